//! One range of objects that backfill compares (`backfill.rs`): the two listings, and what differs.

use super::local::Local;
use super::transfer::Sending;
use super::{ByObject, Interval};
use crate::shared::Shared;
use crate::{Mutant, key, mutant};
use bytes::Bytes;
use nacre_store::Read;
use nacre_types::{ObjectId, OsdId, Time, Version};
use nacre_wire::Message;
use nacre_wire::msg::replication::{Missing, ScanQuery};
use std::collections::BTreeSet;

/// One range of one target.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) target: OsdId,
    /// Its target has no room: nothing is pushed, and the cursor stays (`sweep.rs`).
    pub(super) sweeps: bool,
    /// Objects that the target has had too much.
    pub(super) removed: usize,
    /// See [`ScanQuery::round`].
    pub(super) round: u64,
    pub(super) from: Bytes,
    /// Everything before is compared now; `None`: to the group's end.
    pub(super) end: Option<Bytes>,
    pub(super) ours: Option<ByObject<Version>>,
    pub(super) theirs: Option<ByObject<Version>>,
    pub(super) listed: Vec<ObjectId>,
    /// What was ordered since our listing was asked for: it may have come into being.
    pub(super) fresh: BTreeSet<ObjectId>,
    pub(super) stats: usize,
    /// What was ordered before the range was held; `None` while an update in it still reads before
    /// it is ordered.
    pub(super) ordered: Option<Version>,
    pub(super) pushing: BTreeSet<ObjectId>,
    pub(super) held: Vec<ObjectId>,
    pub(super) compared: bool,
    /// Looks since it is held that found an update in it that had no place in the log yet.
    pub(super) unordered: u32,
    pub(super) stored: bool,
    /// How often nothing of it had moved when it was looked at again: so many objects were left
    /// each time.
    pub(super) stuck: (u32, (usize, u64)),
    pub(super) retry_at: Time,
}

impl Work {
    pub(super) fn is_inside(&self, object: &ObjectId) -> bool {
        let position = key::position(object);
        position >= self.from && self.end.as_ref().is_none_or(|end| position < *end)
    }
}

impl Work {
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

    /// Asks the target what it has.
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

    /// Compares the two listings: what the target is sent, and of what it hears that it is gone
    /// (without a version).
    pub(super) fn compare(&mut self) -> Vec<(ObjectId, Version)> {
        self.compared = true;
        let (ours, theirs) = (self.ours.as_ref(), self.theirs.as_ref());
        let (ours, theirs) = (ours.expect("listed"), theirs.expect("listed"));
        let end = self.end.as_ref();
        let inside = |object: &ObjectId| end.is_none_or(|end| key::position(object) < *end);
        let differs = |(object, version): &(&ObjectId, &Version)| {
            !self.sweeps && **version != Version::NONE && theirs.get(*object) != Some(*version)
        };
        let push = ours.iter().filter(differs);
        let mut all: Vec<(ObjectId, Version)> = push
            .map(|(object, version)| (object.clone(), *version))
            .collect();
        let gone = |object: &ObjectId| {
            ours.get(object)
                .is_none_or(|version| *version == Version::NONE)
        };
        if !mutant(Mutant::BackfillResurrects) {
            let remove = theirs.keys();
            let remove = remove.filter(|object| inside(object) && gone(object));
            let pushed = all.len();
            all.extend(remove.map(|object| (object.clone(), Version::NONE)));
            self.removed = all.len() - pushed;
        }
        self.pushing = all.iter().map(|(object, _)| object.clone()).collect();
        all
    }

    /// What of the range is not on its way: it could not be read when it was to be sent, and may
    /// have been healed since.
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

/// Lists objects of the group.
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

/// The positions of a listing without those of its last name, if there may be more of that, and
/// where it ends then. If it has only that one name: how many to list instead. A store may list
/// less than it was asked for though there is more: twice what came could be what was asked for,
/// again and again (simulator, seed 398: two, of which one came).
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
