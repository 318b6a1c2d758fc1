//! A pool's snapshots in the cluster map: which exist and which were removed permanently (DESIGN
//! §3; CHECKLIST CEPH-09).
//!
//! ```text
//!  ids       1   2   3   4   5   6 = last        counted up, never used again
//!  removed       └───────┘                       ranges, ascending, with something between any two
//!  named     a               b   c               or none has a name: clients allocate ids for contexts of their own
//! ```
//! A pool's first snapshot fixes its mode. With names, every client's write preserves all of them:
//! an OSD does not execute a request with a newer epoch than its map's, so a client that knows of a
//! snapshot writes to an OSD that knows it too. Without names, every operation lists the snapshots
//! that it preserves.
//!
//! Invariants ([`PoolSnaps::fault`], checked for every decoded value): ranges ascend with gaps and
//! end at or before `last`; a named snapshot is not removed; at most [`SNAPS_MAX`] exist.

use crate::msg::client::SnapContext;
use crate::{wire_enum, wire_record};
use nacre_types::{Epoch, Name, SnapId};
use std::collections::BTreeMap;

/// Most snapshots of a pool that may exist at one time.
pub const SNAPS_MAX: u64 = 64;
/// Longest name of a snapshot, in bytes.
pub const SNAP_NAME_MAX: usize = 255;

/// What decides which snapshots a write preserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapMode {
    /// The pool never had a snapshot.
    Unused {},
    /// The map: all named snapshots.
    Named {},
    /// Each operation decides for itself.
    Own {},
}
wire_enum!(SnapMode { 0 => Unused {}, 1 => Named {}, 2 => Own {} });

/// A snapshot with a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapInfo {
    /// Unique in its pool.
    pub name: Name,
    /// The epoch that created it.
    pub created: Epoch,
}
wire_record!(SnapInfo version 1 compat 1 { name, created });

/// A pool's snapshots. See the module head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSnaps {
    /// What decides which snapshots a write preserves.
    pub mode: SnapMode,
    /// The last id assigned; 0 for none.
    pub last: SnapId,
    /// Snapshots with names.
    pub named: BTreeMap<SnapId, SnapInfo>,
    /// First and last of each range of removed ids.
    pub removed: Vec<(SnapId, SnapId)>,
}
wire_record!(PoolSnaps version 1 compat 1 { mode, last, named, removed } verify fault);

impl Default for PoolSnaps {
    fn default() -> Self {
        Self {
            mode: SnapMode::Unused {},
            last: SnapId(0),
            named: BTreeMap::new(),
            removed: Vec::new(),
        }
    }
}

impl PoolSnaps {
    /// Whether the snapshot exists.
    #[must_use]
    pub fn is_live(&self, snap: SnapId) -> bool {
        let after = self.removed.partition_point(|(first, _)| *first <= snap);
        let removed = after > 0 && snap <= self.removed[after - 1].1;
        snap.0 > 0 && snap <= self.last && !removed
    }

    /// How many exist.
    #[must_use]
    pub fn live(&self) -> u64 {
        let gone: u64 = self
            .removed
            .iter()
            .map(|(first, last)| last.0 - first.0 + 1)
            .sum();
        self.last.0 - gone
    }

    /// The snapshot with that name.
    #[must_use]
    pub fn named(&self, name: &Name) -> Option<SnapId> {
        self.named
            .iter()
            .find(|(_, info)| info.name == *name)
            .map(|(id, _)| *id)
    }

    /// The snapshots that every write to a pool with named snapshots preserves.
    #[must_use]
    pub fn context(&self) -> SnapContext {
        let snapshots: Vec<SnapId> = self.named.keys().rev().copied().collect();
        SnapContext {
            sequence: snapshots.first().map_or(0, |snap| snap.0),
            snapshots,
        }
    }

    /// Adds a snapshot; does nothing if the id is not the next one, or the mode does not fit. An
    /// empty name means one managed by a client.
    pub(super) fn create(&mut self, snap: SnapId, name: &Name, epoch: Epoch) {
        let mode = if name.is_empty() {
            SnapMode::Own {}
        } else {
            SnapMode::Named {}
        };
        let fits = self.mode == SnapMode::Unused {} || self.mode == mode;
        let next = self
            .last
            .0
            .checked_add(1)
            .filter(|next| *next < SnapId::HEAD.0);
        let taken = !name.is_empty() && self.named(name).is_some();
        if !fits
            || next != Some(snap.0)
            || taken
            || self.live() >= SNAPS_MAX
            || name.as_bytes().len() > SNAP_NAME_MAX
        {
            return;
        }
        (self.mode, self.last) = (mode, snap);
        if !name.is_empty() {
            self.named.insert(
                snap,
                SnapInfo {
                    name: name.clone(),
                    created: epoch,
                },
            );
        }
    }

    /// Removes a snapshot; does nothing if it does not exist.
    pub(super) fn remove(&mut self, snap: SnapId) {
        if !self.is_live(snap) {
            return;
        }
        self.named.remove(&snap);
        let at = self.removed.partition_point(|(first, _)| *first < snap);
        self.removed.insert(at, (snap, snap));
        // Merge it with adjacent ranges.
        if self
            .removed
            .get(at + 1)
            .is_some_and(|(first, _)| first.0 == snap.0 + 1)
        {
            self.removed[at].1 = self.removed.remove(at + 1).1;
        }
        if at > 0 && self.removed[at - 1].1.0 + 1 == snap.0 {
            self.removed[at - 1].1 = self.removed.remove(at).1;
        }
    }

    /// Which invariant of the module head is violated, if any.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let mut end = 0;
        for (first, last) in &self.removed {
            let apart = first.0 > end + u64::from(end > 0) && first <= last && *last <= self.last;
            if !apart || last.0 == u64::MAX {
                return Some(format!(
                    "removed snapshots {first:?} to {last:?}, the last is {:?}",
                    self.last
                ));
            }
            end = last.0;
        }
        if self.last == SnapId::HEAD || self.live() > SNAPS_MAX {
            return Some(format!("more than {SNAPS_MAX} snapshots"));
        }
        self.named
            .keys()
            .find(|snap| !self.is_live(**snap))
            .map(|snap| format!("{snap:?} has a name and is not there"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Wire;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_removed_is_gone_and_nothing_else(order in Just((1..=30_u64).collect::<Vec<_>>()).prop_shuffle(), keep in 0..30_usize) {
            let mut snaps = PoolSnaps::default();
            for id in 1..=30 {
                snaps.create(SnapId(id), &format!("s{id}").as_str().into(), Epoch(id));
            }
            for id in &order[keep..] {
                snaps.remove(SnapId(*id));
                prop_assert_eq!(snaps.fault(), None);
            }
            for id in 0..40 {
                prop_assert_eq!(snaps.is_live(SnapId(id)), order[..keep].contains(&id));
            }
            prop_assert_eq!((snaps.live(), snaps.named.len()), (keep as u64, keep));
            prop_assert!(snaps.context().snapshots.is_sorted_by(|a, b| a > b));
            prop_assert_eq!(PoolSnaps::from_bytes(&snaps.to_bytes()), Ok(snaps));
        }
    }

    #[test]
    fn only_the_next_id_of_the_pools_mode_is_taken() {
        let mut snaps = PoolSnaps::default();
        for (snap, name) in [(2, "a"), (1, "a"), (1, "b"), (2, "a"), (2, ""), (2, "b")] {
            snaps.create(SnapId(snap), &name.into(), Epoch(1));
        }
        assert_eq!(
            snaps
                .named
                .values()
                .map(|info| info.name.to_string())
                .collect::<Vec<_>>(),
            ["a", "b"]
        );
        let mut own = PoolSnaps::default();
        for id in 1..=SNAPS_MAX + 1 {
            own.create(SnapId(id), &Name::default(), Epoch(1));
        }
        assert_eq!(
            (own.live(), own.context()),
            (SNAPS_MAX, SnapContext::default()),
            "no more than so many"
        );
        own.remove(SnapId(7));
        own.create(SnapId(SNAPS_MAX + 1), &Name::default(), Epoch(1));
        assert_eq!(own.last.0, SNAPS_MAX + 1);
    }

    #[test]
    fn ranges_that_contradict_themselves_do_not_decode() {
        let spoiled = |removed: &[(u64, u64)]| {
            let removed = removed
                .iter()
                .map(|(a, b)| (SnapId(*a), SnapId(*b)))
                .collect();
            let snaps = PoolSnaps {
                mode: SnapMode::Own {},
                last: SnapId(9),
                named: BTreeMap::new(),
                removed,
            };
            PoolSnaps::from_bytes(&snaps.to_bytes()).is_err()
        };
        assert!(
            spoiled(&[(3, 2)])
                && spoiled(&[(2, 10)])
                && spoiled(&[(2, 3), (4, 5)])
                && spoiled(&[(0, 1)])
        );
        assert!(spoiled(&[(1, u64::MAX)]) && !spoiled(&[(2, 3), (5, 9)]));
    }
}
