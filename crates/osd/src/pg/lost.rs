//! Replicas that have lost a part of their data: a block could not be read when a part of it was
//! overwritten.
//!
//! ```text
//!  store: Lost ─▶ noted, durably ──member──▶ reports to its primary, repeatedly ─┐
//!                       │                                                        ▼
//!                       └──primary───────────────────────────────────────▶ suspect (`repair.rs`): another replica replaces it
//!                                                                                │
//!                        no longer noted ◀── a good replica is here, or the object is deleted
//! ```
//! The store keeps such a block unreadable, so no reader gets wrong bytes; but the loss would not
//! be noticed before a client happens to read the block, and by then the other replicas may be
//! lost. (Chaos, seeds 9 and 10: a transient read error of one device; health reported no problem.)
//! The update itself is applied: refusing it would stop the PG, and the other replicas have all of
//! it.
//!
//! The note follows the object's updates: a good replica is sent at the version that the object has
//! by then.
//!
//! Invariant: a noted object exists, at the noted version or on its way to it, or it is missing as
//! well.

use super::local::{Local, Ops};
use super::primary::PeerState;
use super::stored::lost_key;
use super::{Interval, Lead};
use crate::purpose::Purpose;
use crate::shared::Shared;
use nacre_object::snaps;
use nacre_types::{ObjectId, OsdId, SnapId, Version};
use nacre_wire::msg::replication::{Effect, Missing};
use nacre_wire::{Record, RecordView, Wire};
use std::collections::BTreeSet;

/// The number of replicas of one PG that are reported at one time.
const TOLD_AT_ONCE: usize = 16;

impl Local {
    /// Notes that our replica of the object, at `version`, has lost some of its data.
    pub(super) fn note_lost(&mut self, object: &ObjectId, version: Version, ops: &mut Ops) {
        let note = Missing {
            object: object.clone(),
            need: version,
            have: version,
        };
        self.set(ops, vec![(lost_key(object), note.to_bytes().into())]);
        self.lost.insert(object.clone(), version);
    }

    /// Our replica is good, or deleted.
    pub(super) fn not_lost(&mut self, object: &ObjectId, ops: &mut Ops) {
        if self.lost.swap_remove(object).is_some() {
            self.unset(ops, vec![lost_key(object)]);
        }
    }

    /// An update of the object was appended to the log.
    pub(super) fn lost_on_entry(&mut self, entry: &Record, ops: &mut Ops) {
        if self.lost.is_empty() || !self.lost.contains_key(entry.object()) {
            return;
        }
        if entry.deleted() {
            self.not_lost(entry.object(), ops);
        } else {
            self.note_lost(entry.object(), entry.version(), ops);
        }
    }

    /// A clone of an object that has lost data has lost it as well.
    pub(super) fn lost_by_clone(&mut self, entry: &Record, effects: &[Effect], ops: &mut Ops) {
        if self.lost.is_empty() || entry.deleted() {
            return;
        }
        let of_lost = |effect: &Effect| {
            matches!(effect, Effect::CloneFrom { snapshot }
                if self.lost.contains_key(&snaps::at(entry.object(), *snapshot)))
        };
        if effects.iter().any(of_lost) {
            self.note_lost(entry.object(), entry.version(), ops);
        }
    }

    /// The objects that a store event about an object concerns, with their versions: the object
    /// itself, and objects of its name changed between the loss and the event, which may be clones
    /// of it.
    fn lost_since(&self, object: &ObjectId, since: Version) -> Vec<(ObjectId, Version)> {
        let same_name = |entry: &Record| snaps::at(entry.object(), object.snapshot) == *object;
        let last = self.log.last_of(object);
        if last.is_some_and(|last| last.deleted()) {
            return Vec::new();
        }
        let version = last.map_or(since, |last| last.version());
        let after = self.log.after(since.max(self.log.tail()));
        let later: Vec<Record> = after
            .map(RecordView::to_record)
            .filter(|entry| entry.object() != object && same_name(entry))
            .collect();
        let gone: BTreeSet<SnapId> = later
            .iter()
            .filter(|e| e.deleted())
            .map(|e| e.object().snapshot)
            .collect();
        let copies = later
            .iter()
            .filter(|entry| !gone.contains(&entry.object().snapshot));
        std::iter::once((object.clone(), version))
            .chain(copies.map(|e| (e.object().clone(), e.version())))
            .collect()
    }
}

/// Our store has overwritten a part of a block of the object that it could not read; `since` is the
/// version that did it, if known. Returns whether that was noted.
pub(super) fn note(
    object: &ObjectId,
    since: Version,
    local: &mut Local,
    at: &Interval,
    sh: &mut Shared,
) -> bool {
    if !local.exists {
        return false;
    }
    sh.counters.borders.lost_parts += 1;
    let mut ops = Ops::new();
    for (object, version) in local.lost_since(object, since) {
        // A missing object is recovered completely anyhow, unless the store's replica is the best
        // that exists.
        local.note_lost(&object, version, &mut ops);
    }
    let noted = !ops.is_empty();
    if noted {
        at.submit(sh, ops, Purpose::Nothing);
    }
    noted
}

/// Whether the notes are due to be reported again.
pub(super) fn is_due(local: &Local, sh: &Shared) -> bool {
    !local.lost.is_empty() && local.lost_told + sh.config.timing.retry_interval <= sh.now
}

/// Notes that the replicas were reported now.
pub(super) fn heard(local: &mut Local, sh: &mut Shared) {
    local.lost_told = sh.now;
    sh.wake_at(sh.after(1));
}

/// The next notes to report that the primary does not know.
pub(super) fn next(
    local: &mut Local,
    known: impl Fn(&ObjectId) -> bool,
) -> Vec<(ObjectId, Version)> {
    let news: Vec<(ObjectId, Version)> = local
        .lost
        .iter()
        .filter(|(object, _)| !local.missing.contains_key(*object) && !known(object))
        .map(|(object, version)| (object.clone(), *version))
        .collect();
    if news.is_empty() {
        return news;
    }
    // In turn: replicas that cannot be repaired must not keep the others from being reported.
    local.lost_turn = (local.lost_turn + TOLD_AT_ONCE) % news.len();
    let most = TOLD_AT_ONCE.min(news.len());
    let all = news.iter().cycle().skip(local.lost_turn);
    all.take(most).cloned().collect()
}

impl Lead<'_> {
    /// Starts the replacement of replicas here that have lost data.
    pub(super) fn tell_lost(&mut self, sh: &mut Shared) {
        heard(self.local, sh);
        if !self.primary.is_peered() {
            return;
        }
        let damage = &self.primary.damage;
        for (object, version) in next(self.local, |object| damage.is_lost(object)) {
            self.suspect(sh.me(), &object, version, sh);
            self.process_object(&object, sh);
        }
    }

    /// A member reports, unasked, that its replica cannot be read.
    pub(super) fn on_told_lost(
        &mut self,
        from: OsdId,
        object: &ObjectId,
        version: Version,
        sh: &mut Shared,
    ) {
        let peer = self.primary.peers.get(&from);
        let counts = |peer: &PeerState| !peer.missing.contains_key(object);
        let ready = self.primary.is_peered() && peer.is_some_and(counts);
        if ready && !self.primary.damage.is_lost(object) {
            self.suspect(from, object, version, sh);
            self.process_object(object, sh);
        }
    }
}
