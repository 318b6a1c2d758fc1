//! Replicas with updates that they should not have: those that an adopted log has undone.
//!
//! ```text
//!   log here      4'61 ── 4'62                      the replica is at 4'62, an unanswered update
//!   adopted log   4'61 ── 6'63 (of other objects)   it must be at 4'61 again: missing
//! ```
//! Usually another member has 61 and recovery brings it. But members that lose power one after the
//! other may each have an unanswered update of their own; then no member has 61, although nothing
//! was lost (simulator, seed 3656). So the undone updates stay noted beside the missing object, and
//! a primary that finds no other source can order them again (`redo.rs`). Clones that those updates
//! made belong to the note. They stay in the store as orphans as long as the note (`snapshots.rs`),
//! because the snapshots' content may exist nowhere else.
//!
//! Not noted: replicas that were missing or had lost a part already, and those of which an undone
//! update changed or removed an older clone.
//!
//! Invariant ([`Local::check`]): a noted object is missing, and needs the version below the undone
//! updates.

use super::local::{Local, Ops};
use super::log::sizes;
use super::stored::undone_key;
use crate::key;
use nacre_object::snaps;
use nacre_store::Op;
use nacre_types::{ObjectId, Version};
use nacre_wire::msg::replication::Undone;
use nacre_wire::{Record, Wire};

/// The approximate maximum of noted bytes of undone updates per object.
const NOTED_MAX: usize = 64 << 10;

/// The last undone update of the object itself: its replica is at that version.
pub(super) fn last(undone: &Undone) -> &Record {
    undone
        .entries
        .iter()
        .rev()
        .find(|entry| *entry.object() == undone.object)
        .expect("a copy is noted for updates on it")
}

/// The parts of the replica: the clones made, and the final object, unless it is deleted.
pub(super) fn parts(undone: &Undone) -> impl Iterator<Item = &Record> {
    let clones = undone
        .entries
        .iter()
        .filter(|entry| *entry.object() != undone.object);
    clones.chain(Some(last(undone)).filter(|entry| !entry.deleted()))
}

impl Local {
    /// The note on our replica of the object, which must return to `base`, when `entries` of its
    /// name were just removed from the log; `None` if the replica is useless.
    pub(super) fn copy_with_undone(
        &self,
        object: &ObjectId,
        base: Version,
        entries: Vec<Record>,
    ) -> Option<Undone> {
        let whole = |object: &ObjectId| {
            !self.missing.contains_key(object) && !self.lost.contains_key(object)
        };
        if base == Version::NONE || snaps::is_clone(object) || !whole(object) {
            return None;
        }
        let new = |entry: &Record| {
            entry.prior() == Version::NONE && !entry.deleted() && whole(entry.object())
        };
        let bytes = sizes(&entries);
        let useful = bytes <= NOTED_MAX
            && entries
                .iter()
                .all(|entry| entry.object() == object || new(entry));
        useful.then_some(Undone {
            object: object.clone(),
            base,
            entries,
        })
    }

    /// Notes the undone updates on our replica of a missing object.
    pub(super) fn note_undone(&mut self, undone: Undone, ops: &mut Ops) {
        self.set(
            ops,
            vec![(undone_key(&undone.object), undone.to_bytes().into())],
        );
        self.undone.insert(undone.object.clone(), undone);
    }

    /// Our replica of the object is useless now, or is an ordinary object again: in the latter case
    /// its clones stay, otherwise they are removed.
    pub(super) fn forget_undone(&mut self, object: &ObjectId, clones_stay: bool, ops: &mut Ops) {
        let Some(undone) = self.undone.swap_remove(object) else {
            return;
        };
        self.unset(ops, vec![undone_key(object)]);
        if !clones_stay {
            let clones = undone
                .entries
                .iter()
                .filter(|entry| *entry.object() != undone.object);
            ops.extend(clones.map(|entry| Op::Remove(key::store_key(self.pg(), entry.object()))));
        }
    }

    /// A clone's place is needed for another object: the clone that the note names is no longer
    /// there.
    pub(super) fn clone_is_needed(&mut self, object: &ObjectId, ops: &mut Ops) {
        if snaps::is_clone(object) && !self.undone.is_empty() {
            self.forget_undone(&snaps::live(object), false, ops);
        }
    }
}
