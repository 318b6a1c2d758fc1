//! Replicas that have more than they should: updates that an adopted log undid.
//!
//! ```text
//!   log here      4'61 ── 4'62                      the replica is at 4'62, an unanswered update
//!   adopted log   4'61 ── 6'63 (of other objects)   it must be at 4'61 again: missing
//! ```
//! Usually another member has 61 and recovery brings it. But members that lose power one after the
//! other may each have an unanswered update of their own; then no member has 61, although nothing
//! was lost (simulator, seed 3656). So the undone updates stay noted beside the missing object, and
//! a primary that finds no other source can order them again (`redo.rs`). Clones that those updates
//! made belong to the note. They stay in the store as orphans as long as it does (`snapshots.rs`),
//! because the snapshots' content may be nowhere else.
//!
//! Not noted: replicas that were missing or had lost a part already, and those of which an undone
//! update changed or removed an older clone.
//!
//! Invariant ([`Local::check`]): a noted object is missing, and needs the version below the undone
//! updates.

use super::local::{Local, Ops};
use super::log::entry_bytes;
use super::stored::undone_key;
use crate::key;
use nacre_object::snaps;
use nacre_store::Op;
use nacre_types::{ObjectId, Version};
use nacre_wire::msg::replication::Undone;
use nacre_wire::{Record, Wire};

/// Bytes of undone updates that are noted of one object, about.
const NOTED_MAX: usize = 64 << 10;

/// The last of the undone updates of the object itself: its copy is at that version.
pub(super) fn last(undone: &Undone) -> &Record {
    undone
        .entries
        .iter()
        .rev()
        .find(|entry| *entry.object() == undone.object)
        .expect("a copy is noted for updates on it")
}

/// What the copy consists of: clones that were made, and the object at the end, unless it is gone.
pub(super) fn parts(undone: &Undone) -> impl Iterator<Item = &Record> {
    let clones = undone
        .entries
        .iter()
        .filter(|entry| *entry.object() != undone.object);
    clones.chain(Some(last(undone)).filter(|entry| !entry.deleted()))
}

impl Local {
    /// What our copy of the object is, which is to go back to `base`, when the log has just lost
    /// `entries` of its name; nothing if that is of no use.
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
        let bytes: usize = entries.iter().map(entry_bytes).sum();
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

    /// Our copy of a missing object is this.
    pub(super) fn note_undone(&mut self, undone: Undone, ops: &mut Ops) {
        self.set(
            ops,
            vec![(undone_key(&undone.object), undone.to_bytes().into())],
        );
        self.undone.insert(undone.object.clone(), undone);
    }

    /// Our copy of the object is no use any more, or is an object like others again: then its
    /// clones stay, otherwise they go.
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

    /// Something else is to be in a clone's place: what the copy of its object names is not there
    /// any more.
    pub(super) fn clone_is_needed(&mut self, object: &ObjectId, ops: &mut Ops) {
        if snaps::is_clone(object) && !self.undone.is_empty() {
            self.forget_undone(&snaps::live(object), false, ops);
        }
    }
}
