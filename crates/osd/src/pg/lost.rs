//! Copies that have lost a part of their data: a block of them could not be read when a part of it
//! was overwritten.
//!
//! ```text
//!  store: Lost ─▶ noted, durably ──member──▶ tells its primary, again and again ─┐
//!                       │                                                        ▼
//!                       └──primary───────────────────────────────────────▶ suspect (`repair.rs`): another copy takes its place
//!                                                                                │
//!                        no longer noted ◀── a good copy is here, or the object is gone
//! ```
//! The store keeps such a block unreadable, so nobody is given wrong bytes; but nobody would hear
//! of it either before a client happens to read there, and by then the other copies may be gone.
//! (Chaos, seeds 9 and 10: a passing read error of one device; health said that all was well.) The
//! update itself is applied: refusing it would stop the group, and the others have all of it.
//!
//! The note follows the object's updates: a good copy is sent at the version that the object has by
//! then.
//!
//! Invariant: what is noted is there, at the noted version or on its way to it, or it is missing as
//! well.

use super::local::{Local, Ops, lost_key};
use super::{Awaited, Pg, Role};
use crate::shared::Shared;
use nacre_object::snaps;
use nacre_types::{ObjectId, OsdId, SnapId, Version};
use nacre_wire::msg::replication::{Effect, Missing, PushAck};
use nacre_wire::{Message, Record, Wire};
use std::collections::BTreeSet;

/// Copies of one group that are spoken of at one time.
const TOLD_AT_ONCE: usize = 16;

impl Local {
    /// Notes that our copy of the object, at `version`, has lost some of its data.
    pub(super) fn note_lost(&mut self, object: &ObjectId, version: Version, ops: &mut Ops) {
        let note = Missing {
            object: object.clone(),
            need: version,
            have: version,
        };
        self.set(ops, vec![(lost_key(object), note.to_bytes().into())]);
        self.lost.insert(object.clone(), version);
    }

    /// Our copy is good, or gone.
    pub(super) fn not_lost(&mut self, object: &ObjectId, ops: &mut Ops) {
        if self.lost.swap_remove(object).is_some() {
            self.unset(ops, vec![lost_key(object)]);
        }
    }

    /// An update of the object has come to the log.
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

    /// What an update copies from another object of ours has lost what that has lost.
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

    /// The objects that an event of the store about an object is about, at their versions: itself,
    /// and copies made of it since, before the event came.
    fn lost_since(&self, object: &ObjectId, since: Version) -> Vec<(ObjectId, Version)> {
        let same_name = |entry: &Record| snaps::at(entry.object(), object.snapshot) == *object;
        let last = self.log.last_of(object);
        if last.is_some_and(|last| last.deleted()) {
            return Vec::new();
        }
        let version = last.map_or(since, |last| last.version());
        let after = self.log.after(since.max(self.log.tail()));
        let later: Vec<_> = after
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

impl Pg {
    /// Our store has overwritten a part of a block of the object that it could not read; `since` is
    /// the version that did it, if it is known.
    pub(crate) fn on_lost(&mut self, object: &ObjectId, since: Version, sh: &mut Shared) {
        if !self.local.exists {
            return;
        }
        sh.counters.borders.lost_parts += 1;
        let mut ops = Ops::new();
        for (object, version) in self.local.lost_since(object, since) {
            // What is missing is brought whole anyhow, unless it is the store's copy that nobody
            // has a better one of.
            self.local.note_lost(&object, version, &mut ops);
        }
        if !ops.is_empty() {
            sh.submit(self.id(), self.interval.since, ops, Awaited::Nothing);
            self.tell_lost(sh);
        }
    }

    /// Tells again what is noted.
    pub(super) fn lost_tick(&mut self, sh: &mut Shared) {
        if !self.local.lost.is_empty()
            && self.local.lost_told + sh.config.timing.retry_interval <= sh.now
        {
            self.tell_lost(sh);
        }
    }

    fn tell_lost(&mut self, sh: &mut Shared) {
        self.local.lost_told = sh.now;
        sh.wake_at(sh.now + sh.config.timing.retry_interval);
        let ready = match &self.role {
            Role::Member(member) => member.adopted == Some(true),
            Role::Primary(primary) => primary.is_peered(),
            Role::Stray { .. } => false,
        };
        if !ready {
            return;
        }
        let known =
            |object: &ObjectId| self.local.missing.contains_key(object) || self.is_lost(object);
        let news: Vec<(ObjectId, Version)> = self
            .local
            .lost
            .iter()
            .filter(|(object, _)| !known(object))
            .map(|(o, v)| (o.clone(), *v))
            .collect();
        if news.is_empty() {
            return;
        }
        // In turn: what nobody can help must not keep the rest from being heard.
        self.local.lost_turn = (self.local.lost_turn + TOLD_AT_ONCE) % news.len();
        let from = self.local.lost_turn;
        let told: Vec<_> = news
            .iter()
            .cycle()
            .skip(from)
            .take(TOLD_AT_ONCE.min(news.len()))
            .cloned()
            .collect();
        let (pg, interval) = (self.id(), self.interval.since);
        for (object, version) in told {
            match self.interval.acting.first().copied() {
                Some(primary) if primary != sh.me() => {
                    let (part, have, damaged) = (u32::MAX, false, true);
                    let ack = PushAck {
                        pg,
                        interval,
                        object,
                        version,
                        part,
                        have,
                        damaged,
                        transfer: 0,
                    };
                    sh.send(primary, Message::PushAck(ack));
                }
                _ => {
                    self.suspect(sh.me(), &object, version, sh);
                    self.process_object(&object, sh);
                }
            }
        }
    }

    /// A member says that its copy cannot be read, without having been asked for it.
    pub(super) fn on_told_lost(
        &mut self,
        from: OsdId,
        object: &ObjectId,
        version: Version,
        sh: &mut Shared,
    ) {
        let ready = self.as_primary().is_some_and(|primary| {
            primary.is_peered()
                && primary
                    .peers
                    .get(&from)
                    .is_some_and(|peer| !peer.missing.contains_key(object))
        });
        if ready && !self.is_lost(object) {
            self.suspect(from, object, version, sh);
            self.process_object(object, sh);
        }
    }
}
