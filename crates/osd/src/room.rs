//! Room for updates: what was ordered cannot be refused any more, so it is bounded before it is
//! ordered (F10, F14; DESIGN §11).
//!
//! ```text
//!   used                                   │ free: updates that need room are taken    │ reserve: refused
//!                                                                                        ├ under way when it began ┤ recovery ┤ deletions, log, index
//!   share = reserve / 2 per OSD that may send: what each has under way, beginning to end, before it hears from us that we are nearly full
//! ```
//! Who sends hears how full we are with every acknowledgement, and has no more than its share
//! unacknowledged. So all of them together bring no more after the reserve began than half of it,
//! whatever they had heard last, and the other half is for recovery, which looks at each part it
//! takes. (Twenty-four clients with objects of 3 MB stopped all OSDs of 128 MiB at once: 72 MB were
//! under way when the first one said that it had 6 left.)
//!
//! An update that is larger than the share goes alone, and only if all could send one such and the
//! reserve stayed.

use nacre_types::OsdId;
use std::collections::BTreeMap;

/// Of a small store's space the reserve has at least so much for each OSD that may send, if that is
/// not too much of it.
const RESERVE_EACH: u64 = 4 << 20;
/// Bytes that an update may take beside its data: log entry, records of the index, blocks begun at
/// both ends.
pub const UPDATE_BESIDE: u64 = 16 << 10;

/// What there is at one store, as it was last said and with what was taken since.
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
    /// Of a store of `total` bytes with `used`, to which `senders` OSDs may send.
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
    /// Bytes of updates that one OSD may have under way here.
    #[must_use]
    pub const fn share(&self) -> u64 {
        self.reserve / 2 / self.senders
    }
    /// The largest update that all may send at one time.
    #[must_use]
    pub const fn most(&self) -> u64 {
        self.free.saturating_sub(self.reserve) / self.senders
    }
    /// Only the reserve is left: updates that need room are refused.
    #[must_use]
    pub const fn is_nearly_full(&self) -> bool {
        self.free < self.reserve
    }
    /// Whether an update that is let through in the reserve, too, may take so much: all senders may
    /// send one such at one time.
    #[must_use]
    pub const fn bears(&self, bytes: u64) -> bool {
        bytes <= self.free / 2 / self.senders
    }
    /// Whether recovery may add so much. It is counted at once: the next look comes after many
    /// parts.
    pub const fn take_part(&mut self, bytes: u64) -> bool {
        let fits = self.free > self.reserve / 2 && self.free - self.reserve / 2 >= bytes;
        if fits {
            self.free -= bytes;
        }
        fits
    }
}

/// What one member may be sent, and has been.
#[derive(Clone, Copy, Debug)]
struct At {
    share: u64,
    most: u64,
    under_way: u64,
}

/// Bytes of updates that this daemon has ordered, by the member that has not acknowledged them: one
/// that hangs keeps others' updates from nobody but those who share a group with it.
#[derive(Debug)]
pub struct UnderWay {
    members: BTreeMap<OsdId, At>,
    /// Of all members together, and the least share: usually there is room, and one look says so.
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

    /// It says how much of ours it can have under way, and how large one update may be.
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

    /// Whether an update of so many bytes has to wait until one of these members has acknowledged
    /// others.
    #[must_use]
    pub fn must_wait(&self, members: &[OsdId], bytes: u64) -> bool {
        let full = |at: &At| at.under_way > 0 && at.under_way.saturating_add(bytes) > at.share;
        self.total.saturating_add(bytes) > self.least
            && members
                .iter()
                .filter_map(|osd| self.members.get(osd))
                .any(full)
    }

    /// Whether an update is so large that these members could not bear it beside as large ones of
    /// others.
    #[must_use]
    pub fn is_too_much(&self, members: &[OsdId], bytes: u64) -> bool {
        let large = |at: &At| bytes > at.share && bytes > at.most;
        bytes > self.least
            && members
                .iter()
                .filter_map(|osd| self.members.get(osd))
                .any(large)
    }

    /// It is ordered.
    pub fn begin(&mut self, members: &[OsdId], bytes: u64) {
        for member in members {
            self.at(*member).under_way += bytes;
            self.total += bytes;
        }
    }

    /// The member has it, or the interval is over.
    pub fn end(&mut self, member: OsdId, bytes: u64) {
        self.at(member).under_way -= bytes;
        self.total -= bytes;
        self.freed |= bytes > 0;
    }

    /// Whether somebody who waits may find room, since the last time that somebody asked.
    pub const fn was_freed(&mut self) -> bool {
        std::mem::replace(&mut self.freed, false)
    }

    /// Bytes that each member has not acknowledged, but for those that have acknowledged all.
    #[must_use]
    pub fn known(&self) -> BTreeMap<OsdId, u64> {
        let busy = self.members.iter().filter(|(_, at)| at.under_way > 0);
        busy.map(|(osd, at)| (*osd, at.under_way)).collect()
    }

    /// Others are gone from the map.
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

    /// However the senders' news is out of date: who has heard nothing since a store was empty
    /// sends its share and no more.
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
