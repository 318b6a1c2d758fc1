//! One range of objects that backfill compares (`backfill.rs`): the two listings, and the
//! differences.

use super::local::Local;
use super::object::Objects;
use super::transfer::Sending;
use super::{ByObject, Interval};
use crate::key;
use crate::purpose::Purpose;
use crate::shared::Shared;
use bytes::Bytes;
use nacre_store::Read;
use nacre_types::{ObjectId, OsdId, Time, Version};
use nacre_wire::Message;
use nacre_wire::msg::replication::{Missing, Progress, ScanQuery};
use std::collections::BTreeSet;

#[cfg(feature = "mutants")]
#[path = "../mutants/range.rs"]
mod planted;

/// A range without progress is given up after this number of checks: some eight seconds.
const STUCK_MAX: u32 = 10;
/// A range that waits for an update to be ordered is given up after this number of checks: within
/// two seconds.
const UNORDERED_MAX: u32 = 1;
/// How long nothing is compared then, in retry intervals: usually ten seconds, and two (short).
pub(super) const PAUSE: u32 = 25;
pub(super) const PAUSE_SHORT: u32 = 5;

/// The state of the PG that a comparison needs: read-only, except for the queues, which hold the
/// range's objects.
#[derive(Debug)]
pub(super) struct Ground<'a> {
    pub(super) local: &'a Local,
    pub(super) at: &'a Interval,
    pub(super) objects: &'a mut Objects,
    pub(super) sending: &'a Sending,
    /// Everything up to this version is durable on the whole acting set.
    pub(super) committed: Version,
}

impl Ground<'_> {
    fn is_missing_any(&self) -> bool {
        !self.local.missing.is_empty()
    }
}

/// The result of a step of a range.
#[derive(Debug)]
pub(super) enum Step {
    /// It waits for something.
    Rest,
    /// The range is begun again after this number of retry intervals.
    Abandon(u32),
    /// The same, and pushes in flight are ended.
    GiveUp,
    /// These objects are sent; without a version, their deletion is.
    Push(Vec<(ObjectId, Version)>),
    /// The same, just after the listings were compared.
    Compared(Vec<(ObjectId, Version)>),
    /// The range of a sweep is done.
    Swept,
}

/// One range of one target.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) target: OsdId,
    /// Its target has no space: nothing is pushed, and the cursor stays (`sweep.rs`).
    pub(super) sweeps: bool,
    /// The number of objects that only the target had.
    pub(super) removed: usize,
    /// See [`ScanQuery::round`].
    pub(super) round: u64,
    pub(super) from: Bytes,
    /// Everything before this position is compared now; `None`: to the PG's end.
    pub(super) end: Option<Bytes>,
    pub(super) ours: Option<ByObject<Version>>,
    pub(super) theirs: Option<ByObject<Version>>,
    pub(super) listed: Vec<ObjectId>,
    /// Objects ordered since our listing was requested: they may have been created.
    pub(super) fresh: BTreeSet<ObjectId>,
    pub(super) stats: usize,
    /// The last update ordered before the range was held; `None` while an update in it still reads
    /// before it is ordered.
    pub(super) ordered: Option<Version>,
    pub(super) pushing: BTreeSet<ObjectId>,
    pub(super) held: Vec<ObjectId>,
    pub(super) compared: bool,
    /// The number of checks since the range was held that found an update in it without a position
    /// in the log.
    pub(super) unordered: u32,
    pub(super) stored: bool,
    /// The number of consecutive checks without progress, and the remaining objects at each.
    pub(super) stuck: (u32, (usize, u64)),
    pub(super) retry_at: Time,
}

impl Work {
    pub(super) fn is_inside(&self, object: &ObjectId) -> bool {
        let position = key::position(object);
        position >= self.from && self.end.as_ref().is_none_or(|end| position < *end)
    }

    pub(super) const fn new(target: OsdId, sweeps: bool, round: u64, from: Bytes) -> Self {
        Self {
            target,
            sweeps,
            removed: 0,
            round,
            from,
            end: None,
            ours: None,
            theirs: None,
            listed: Vec::new(),
            fresh: BTreeSet::new(),
            stats: 0,
            ordered: None,
            pushing: BTreeSet::new(),
            held: Vec::new(),
            compared: false,
            unordered: 0,
            stored: false,
            stuck: (0, (0, 0)),
            retry_at: Time::ZERO,
        }
    }

    /// Requests the target's listing.
    pub(super) fn ask(&self, at: &Interval, sh: &mut Shared) {
        let query = ScanQuery {
            pg: at.pg,
            interval: at.since,
            from: self.from.clone(),
            limit: sh.config.limits.scan_objects,
            round: self.round,
        };
        sh.send(self.target, Message::ScanQuery(query));
    }

    /// Our store has listed the range. Returns whether that is all.
    pub(super) fn on_list(
        &mut self,
        (keys, more): (Vec<Bytes>, bool),
        limit: usize,
        of: Ground<'_>,
        sh: &mut Shared,
    ) -> bool {
        let (keys, ours) = match whole_names(keys, more, limit) {
            Ok(whole) => whole,
            Err(limit) => {
                let (round, read) = (self.round, range_read(self.from.clone(), limit, of.local));
                of.at.read(sh, read, Purpose::BackfillList { round, limit });
                return false;
            }
        };
        // The range ends at the end of the shorter listing.
        if let Some(ours) = ours {
            self.end = Some(
                self.end
                    .take()
                    .map_or(ours.clone(), |theirs| theirs.min(ours)),
            );
        }
        let inside = |position: &[u8]| self.end.as_ref().is_none_or(|end| position < &end[..]);
        let mut objects: BTreeSet<ObjectId> = keys
            .iter()
            .filter(|key| inside(key))
            .filter_map(|key| key::object_at(key))
            .collect();
        let missing = of.local.missing.keys().filter(|object| {
            let position = key::position(object);
            position >= self.from && inside(&position)
        });
        objects.extend(missing.cloned());
        self.listed = objects.into_iter().collect();
        self.ours = Some(ByObject::default());
        self.stats = 0;
        sh.counters.scanned += self.listed.len() as u64;
        let theirs: Vec<ObjectId> = self
            .theirs
            .iter()
            .flatten()
            .map(|(object, _)| object)
            .filter(|object| inside(&key::position(object)))
            .cloned()
            .collect();
        // Nothing in the range may change until the cursor is beyond it.
        let held: BTreeSet<ObjectId> = self.listed.iter().cloned().chain(theirs).collect();
        self.held = held.iter().cloned().collect();
        for object in &held {
            of.objects.get(object).held += 1;
        }
        true
    }

    /// The range is fixed when no update in it still reads: the last ordered update is the last of
    /// it.
    fn close(&mut self, of: &mut Ground<'_>) {
        // An update that is still reading the data that it will change was let through before the
        // range was held. Clients' operations on other objects do not delay this.
        let stands = self.ours.is_some() && self.ordered.is_none();
        let inside = |object: &ObjectId| self.is_inside(object);
        if !stands || of.objects.is_about_to_change(inside) {
            return;
        }
        self.ordered = Some(of.local.log.head());
        // Nothing is ordered any more. Objects created since our listing may not be in it: an
        // update that was still reading made a clone, or the object itself.
        let fresh = std::mem::take(&mut self.fresh);
        let fresh: Vec<ObjectId> = fresh
            .into_iter()
            .filter(|object| self.is_inside(object))
            .collect();
        for object in fresh
            .into_iter()
            .filter(|object| !self.listed.contains(object))
            .collect::<Vec<_>>()
        {
            of.objects.get(&object).held += 1;
            self.held.push(object.clone());
            self.listed.push(object);
        }
    }

    /// Continues as far as possible: checks again what depends on updates in flight, recovery or
    /// lost messages.
    pub(super) fn tick(&mut self, mut of: Ground<'_>, sh: &mut Shared) -> Step {
        self.close(&mut of);
        let idle = self.ordered.is_some_and(|version| of.committed >= version);
        let again = self.retry_at <= sh.now;
        if again {
            self.retry_at = sh.after(2);
        }
        if self.theirs.is_none() {
            if again {
                self.ask(of.at, sh);
            }
            return Step::Rest;
        }
        if self.ours.is_none() {
            return Step::Rest;
        }
        if !self.compared {
            // A call may be evaluated for seconds, on a busy machine for a minute: writes to all
            // the other objects must not wait for that (simulator, seed 2838).
            if self.ordered.is_none() && again {
                self.unordered += 1;
                if self.unordered > UNORDERED_MAX {
                    return Step::Abandon(PAUSE_SHORT);
                }
            }
            // An object that we miss may be on an OSD that is away for long: writes must not wait
            // for that (simulator, seed 310: an object that only a down OSD had kept all the
            // objects of the range from being written).
            if of.is_missing_any() && again {
                return Step::Abandon(PAUSE);
            }
            // Updates ordered before the range was held must first be in our store and in all logs.
            if !idle || of.is_missing_any() || self.stats > 0 {
                sh.wake_at(sh.now + sh.config.timing.retry_interval / 8);
                return Step::Rest;
            }
            if self
                .ours
                .as_ref()
                .is_some_and(|ours| ours.len() < self.listed.len())
            {
                self.stats = self.listed.len();
                let round = self.round;
                for (index, object) in self.listed.iter().enumerate() {
                    let read = Read::Stat(key::store_key(of.at.pg, object));
                    of.at.read(sh, read, Purpose::BackfillStat { round, index });
                }
                return Step::Rest;
            }
            return Step::Compared(self.compare());
        }
        if again && !self.pushing.is_empty() {
            let left = (self.pushing.len(), of.sending.parts_out(self.target));
            self.stuck = if self.stuck.1 == left {
                (self.stuck.0 + 1, left)
            } else {
                (0, left)
            };
            return if self.stuck.0 >= STUCK_MAX {
                Step::GiveUp
            } else {
                Step::Push(self.left(of.sending, &of.local.missing))
            };
        }
        if self.sweeps && self.pushing.is_empty() {
            return Step::Swept;
        }
        if self.pushing.is_empty() && (!self.stored || again) {
            self.stored = true;
            let message = Progress {
                pg: of.at.pg,
                interval: of.at.since,
                cursor: self.end.clone(),
                round: self.round,
            };
            sh.send(self.target, Message::Progress(message));
        }
        Step::Rest
    }

    /// Compares the two listings. Returns the objects that the target is sent, and those whose
    /// deletion it is sent (without a version).
    pub(super) fn compare(&mut self) -> Vec<(ObjectId, Version)> {
        self.compared = true;
        let (ours, theirs) = (self.ours.as_ref(), self.theirs.as_ref());
        let (ours, theirs) = (ours.expect("listed"), theirs.expect("listed"));
        let differs = |(object, version): &(&ObjectId, &Version)| {
            !self.sweeps && **version != Version::NONE && theirs.get(*object) != Some(*version)
        };
        let push = ours.iter().filter(differs);
        let mut all: Vec<(ObjectId, Version)> = push
            .map(|(object, version)| (object.clone(), *version))
            .collect();
        let gone = self.gone();
        self.removed = gone.len();
        all.extend(gone.into_iter().map(|object| (object, Version::NONE)));
        self.pushing = all.iter().map(|(object, _)| object.clone()).collect();
        all
    }

    /// The objects that only the target has.
    #[nacre_types::planted]
    fn gone(&self) -> Vec<ObjectId> {
        let (ours, theirs) = (self.ours.as_ref(), self.theirs.as_ref());
        let (ours, theirs) = (ours.expect("listed"), theirs.expect("listed"));
        let end = self.end.as_ref();
        let inside = |object: &ObjectId| end.is_none_or(|end| key::position(object) < *end);
        let gone = |object: &ObjectId| {
            ours.get(object)
                .is_none_or(|version| *version == Version::NONE)
        };
        let remove = theirs.keys();
        let remove = remove.filter(|object| inside(object) && gone(object));
        remove.cloned().collect()
    }

    /// The objects of the range that are not being pushed: they could not be read when they were to
    /// be sent, and may have been repaired since.
    pub(super) fn left(
        &self,
        sending: &Sending,
        missing: &ByObject<Missing>,
    ) -> Vec<(ObjectId, Version)> {
        let version = |object: &ObjectId| {
            let ours = self.ours.as_ref().and_then(|ours| ours.get(object));
            ours.copied().unwrap_or_default()
        };
        let left = |object: &&ObjectId| {
            !sending.is_outgoing(self.target, object) && !missing.contains_key(*object)
        };
        let left = self.pushing.iter().filter(left);
        left.map(|object| (object.clone(), version(object)))
            .collect()
    }
}

/// Lists objects of the PG.
pub(super) fn range_read(from: Bytes, limit: usize, local: &Local) -> Read {
    let id = local.pg();
    let (_, to) = key::range(id.seed, local.pg_num);
    Read::List {
        collection: key::collection(id.pool, id.shard),
        from,
        to,
        limit,
    }
}

/// The positions of a listing without those of its last name, if there may be more of that name,
/// and where the listing then ends. If it has only that one name: the number to list instead. A
/// store may list fewer than requested although there are more: doubling the number that it
/// returned could repeat the same request for ever (simulator, seed 398: two were requested, one
/// was returned).
pub(super) fn whole_names(
    mut keys: Vec<Bytes>,
    more: bool,
    limit: usize,
) -> Result<(Vec<Bytes>, Option<Bytes>), usize> {
    if !more {
        return Ok((keys, None));
    }
    let Some(last) = keys.last() else {
        return Err(limit.saturating_mul(2));
    };
    let end = last.slice(..last.len().saturating_sub(key::NUMBERS_LEN));
    let whole = keys.partition_point(|key| *key < end);
    if whole == 0 {
        return Err(limit.saturating_mul(2));
    }
    keys.truncate(whole);
    Ok((keys, Some(end)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::SnapId;

    #[test]
    fn a_range_ends_between_names() {
        let mut keys: Vec<Bytes> = Vec::new();
        for name in ["a", "b", "b\0c"] {
            for snapshot in [SnapId(3), SnapId(7), SnapId::HEAD] {
                keys.push(key::position(&ObjectId {
                    snapshot,
                    ..ObjectId::named(name)
                }));
            }
        }
        keys.sort();
        for listed in 1..=keys.len() {
            let page = keys[..listed].to_vec();
            assert_eq!(
                whole_names(page.clone(), false, listed),
                Ok((page.clone(), None))
            );
            match whole_names(page, true, 5) {
                Err(limit) => assert_eq!(
                    (listed <= 3, limit),
                    (true, 10),
                    "twice what was asked for, not what came"
                ),
                Ok((whole, end)) => {
                    let end = end.expect("there is more");
                    assert_eq!(whole.len(), (listed - 1) / 3 * 3);
                    assert!(
                        keys.iter().all(|key| (*key < end) == whole.contains(key)),
                        "no name is on both sides"
                    );
                }
            }
        }
        assert_eq!(
            whole_names(Vec::new(), true, 4),
            Err(8),
            "nothing came, and it is not the end"
        );
    }
}
