//! Space for updates: an ordered update cannot be refused any more, so the space is limited before
//! ordering (F10, F14; DESIGN §11).
//!
//! ```text
//!   used                                   │ free: updates that need space are taken   │ reserve: refused
//!                                                                                        ├ in flight when it began  ┤ recovery ┤ deletions, log, index
//!   share = reserve / 2 per OSD that may send: what each has in flight at most before it learns that we are nearly full
//! ```
//! Senders learn our free space with every acknowledgement, and have at most their share
//! unacknowledged. So after the reserve began, all of them together send at most half of it, even
//! if their information is old. The other half is for recovery, which checks each part that it
//! accepts. (Twenty-four clients with objects of 3 MB stopped all OSDs of 128 MiB at once: 72 MB
//! were in flight when the first one reported that it had 6 left.)
//!
//! An update larger than the share is sent alone, and only if the reserve would suffice for one
//! such update of every sender.

use nacre_types::OsdId;
use std::collections::BTreeMap;

/// The minimum reserve of a small store for each OSD that may send, unless that is too large a part
/// of the store.
const RESERVE_EACH: u64 = 4 << 20;
/// The bytes that an update may take besides its data: log entry, records of the index, partial
/// blocks at both ends.
pub const UPDATE_BESIDE: u64 = 16 << 10;

/// The space of one store, as last reported, minus what was taken since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    free: u64,
    reserve: u64,
    senders: u64,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            free: u64::MAX,
            reserve: u64::MAX / 2,
            senders: 1,
        }
    }
}

impl Room {
    /// The space of a store of `total` bytes with `used`, to which `senders` OSDs may send.
    #[must_use]
    pub fn of(total: u64, used: u64, senders: usize) -> Self {
        let senders = senders.max(1) as u64;
        let reserve = (total / 20).max((total / 8).min(senders * RESERVE_EACH));
        Self {
            free: total.saturating_sub(used),
            reserve,
            senders,
        }
    }
    /// The bytes of updates that one OSD may have in flight here.
    #[must_use]
    pub const fn share(&self) -> u64 {
        self.reserve / 2 / self.senders
    }
    /// The largest update that all may send at one time.
    #[must_use]
    pub const fn most(&self) -> u64 {
        self.free.saturating_sub(self.reserve) / self.senders
    }
    /// Only the reserve is left: updates that need space are refused.
    #[must_use]
    pub const fn is_nearly_full(&self) -> bool {
        self.free < self.reserve
    }
    /// Whether an update that is accepted in the reserve, too, may take `bytes`: all senders may
    /// send one such at one time.
    #[must_use]
    pub const fn bears(&self, bytes: u64) -> bool {
        bytes <= self.free / 2 / self.senders
    }
    /// Whether recovery may add `bytes`. They are counted at once: the next report of the host
    /// follows only after many parts.
    pub const fn take_part(&mut self, bytes: u64) -> bool {
        let fits = self.free > self.reserve / 2 && self.free - self.reserve / 2 >= bytes;
        if fits {
            self.free -= bytes;
        }
        fits
    }
}

/// The limit of one member, and the bytes sent to it.
#[derive(Clone, Copy, Debug)]
struct At {
    share: u64,
    most: u64,
    under_way: u64,
}

/// The bytes of updates that this daemon has ordered, by the member that has not acknowledged them:
/// a hanging member delays only updates of the PGs that it is in.
#[derive(Debug)]
pub struct UnderWay {
    members: BTreeMap<OsdId, At>,
    /// The total of all members, and the smallest share: usually there is space, and one comparison
    /// shows it.
    total: u64,
    least: u64,
    freed: bool,
}

impl Default for UnderWay {
    fn default() -> Self {
        Self {
            members: BTreeMap::new(),
            total: 0,
            least: u64::MAX,
            freed: false,
        }
    }
}

impl UnderWay {
    fn at(&mut self, member: OsdId) -> &mut At {
        self.members.entry(member).or_insert(At {
            share: u64::MAX,
            most: u64::MAX,
            under_way: 0,
        })
    }

    /// The member reports how much of ours it can have in flight, and how large one update may be.
    pub fn says(&mut self, member: OsdId, share: u64, most: u64) {
        let at = self.at(member);
        let before = std::mem::replace(&mut at.share, share);
        at.most = most;
        if before == share {
            return;
        }
        self.freed = true;
        self.find_least();
    }

    fn find_least(&mut self) {
        self.least = self
            .members
            .values()
            .map(|at| at.share)
            .min()
            .unwrap_or(u64::MAX);
    }

    /// Whether an update of `bytes` must wait until one of these members has acknowledged others.
    #[must_use]
    pub fn must_wait(&self, members: &[OsdId], bytes: u64) -> bool {
        let full = |at: &At| at.under_way > 0 && at.under_way.saturating_add(bytes) > at.share;
        self.total.saturating_add(bytes) > self.least
            && members
                .iter()
                .filter_map(|osd| self.members.get(osd))
                .any(full)
    }

    /// Whether an update is so large that these members have no space for it in addition to equally
    /// large ones of others.
    #[must_use]
    pub fn is_too_much(&self, members: &[OsdId], bytes: u64) -> bool {
        let large = |at: &At| bytes > at.share && bytes > at.most;
        bytes > self.least
            && members
                .iter()
                .filter_map(|osd| self.members.get(osd))
                .any(large)
    }

    /// The update is ordered.
    pub fn begin(&mut self, members: &[OsdId], bytes: u64) {
        for member in members {
            self.at(*member).under_way += bytes;
            self.total += bytes;
        }
    }

    /// The member has the update, or the interval has ended.
    pub fn end(&mut self, member: OsdId, bytes: u64) {
        self.at(member).under_way -= bytes;
        self.total -= bytes;
        self.freed |= bytes > 0;
    }

    /// Whether space was freed since the last call, so that waiting updates may fit.
    pub const fn was_freed(&mut self) -> bool {
        std::mem::replace(&mut self.freed, false)
    }

    /// The bytes that each member has not acknowledged, without those that have acknowledged all.
    #[must_use]
    pub fn known(&self) -> BTreeMap<OsdId, u64> {
        let busy = self.members.iter().filter(|(_, at)| at.under_way > 0);
        busy.map(|(osd, at)| (*osd, at.under_way)).collect()
    }

    /// Removes members that are no longer in the map.
    pub fn keep(&mut self, is_there: impl Fn(OsdId) -> bool) {
        self.members
            .retain(|osd, at| at.under_way > 0 || is_there(*osd));
        self.find_least();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: OsdId = OsdId(1);
    const B: OsdId = OsdId(2);

    /// Independent of the age of the senders' information: a sender without news since a store was
    /// empty sends at most its share.
    #[test]
    fn what_all_send_before_they_hear_of_the_reserve_fits_into_it() {
        for (total, senders) in [
            (128 << 20, 3),
            (1 << 30, 3),
            (1 << 30, 100),
            (10 << 40, 1000),
        ] {
            let room = Room::of(total, total / 3, senders);
            assert!(room.share() * senders as u64 <= room.reserve / 2 && room.reserve <= total / 8);
            assert!(room.share() > 0 && !room.is_nearly_full());
            let last = Room::of(total, total - room.reserve - 1, senders);
            assert!(
                !last.is_nearly_full()
                    && Room::of(total, total - room.reserve + 1, senders).is_nearly_full()
            );
            assert_eq!(
                last.most(),
                0,
                "nothing larger than the share is taken at the end"
            );
        }
    }

    #[test]
    fn recovery_keeps_half_of_the_reserve() {
        let mut room = Room::of(1000 << 20, 940 << 20, 3);
        let mut parts = 0;
        while room.take_part(1 << 20) {
            parts += 1;
        }
        assert_eq!(parts, 60 - 25);
        assert!(!Room::of(100, 99, 3).take_part(10));
        assert!(Room::default().take_part(1 << 30));
    }

    #[test]
    fn one_update_is_always_let_through_and_a_member_that_hangs_stops_only_its_own() {
        let mut under_way = UnderWay::default();
        assert!(
            !under_way.must_wait(&[A, B], u64::MAX) && !under_way.is_too_much(&[A], u64::MAX),
            "nothing is known yet"
        );
        under_way.says(A, 100, 1000);
        under_way.says(B, 100, 50);
        assert!(
            !under_way.must_wait(&[A], 500) && !under_way.is_too_much(&[A], 500),
            "alone"
        );
        assert!(under_way.is_too_much(&[A, B], 500) && !under_way.is_too_much(&[A, B], 100));
        under_way.begin(&[A, B], 60);
        assert!(under_way.must_wait(&[A], 41) && !under_way.must_wait(&[A], 40));
        under_way.end(B, 60);
        assert!(
            under_way.must_wait(&[A, B], 41)
                && !under_way.must_wait(&[B], 100)
                && under_way.was_freed()
        );
        assert!(!under_way.was_freed());
        under_way.end(A, 60);
        assert!(under_way.was_freed() && !under_way.must_wait(&[A, B], 500));
    }
}
