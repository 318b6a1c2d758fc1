//! Objects that no member has at the needed version, while a member has them with undone updates:
//! the primary orders those updates again.
//!
//! ```text
//!  no source, a replica is noted (`undone.rs`)
//!    ─▶ Pull, if another member has it: its parts are moved into place when all are here, with the note ─▶ Stat
//!    ─▶ new log entries without data: every other member now misses the object
//!    ─▶ recovery pushes it
//! ```
//! No client was answered for those updates, so they may be kept or lost. Each new entry carries
//! the request of the old one: a client that resends is answered and its operation does not run
//! twice. Reads in between saw the object without the update; an unanswered operation may take
//! effect that late. Updates of clients that are fenced by now may not: such a replica is left
//! alone.
//!
//! A client that resent such an operation may have been refused meanwhile for lack of space: it was
//! informed that this says nothing of its earlier attempt (`nacre_client::Failure::Doubtful`). Not
//! covered: its class has been replaced since, and the new one refused it. The client then finds
//! the operation executed.

use super::Lead;
use super::answered::Known;
use super::local::{Local, Ops};
use super::primary::Primary;
use super::recovery::Recovery;
use super::undone::{last, parts};
use super::update::{InFlight, Ordered, version_attr};
use crate::key;
use crate::purpose::Purpose;
use crate::shared::Shared;
use nacre_object::Context;
use nacre_object::snaps;
use nacre_store::{Op, Read, ReadError, ReadReply};
use nacre_types::{Entity, ObjectId, OsdId, Version};
use nacre_wire::msg::client::{OpFailure, RequestId};
use nacre_wire::msg::monitor::Severity;
use nacre_wire::msg::replication::{Pull, Totals, Undone};
use nacre_wire::{Message, Record, RecordFields};
use std::collections::BTreeMap;

/// A replica that is being fetched or read.
#[derive(Debug)]
pub struct Redo {
    whose: OsdId,
    undone: Undone,
    /// The number of parts received.
    fetched: usize,
    /// Their contexts, in order.
    known: BTreeMap<ObjectId, Context>,
}

impl Redo {
    fn next(&self) -> Option<&Record> {
        parts(&self.undone).nth(self.fetched)
    }
}

impl Recovery {
    fn redo_of(&mut self, object: &ObjectId) -> Option<&mut Redo> {
        self.redo.get_mut(&snaps::live(object))
    }

    /// Whether we wait for this version of the object.
    pub(super) fn awaits_undone(&self, object: &ObjectId, version: Version) -> bool {
        let redo = self.redo.get(&snaps::live(object));
        redo.and_then(Redo::next)
            .is_some_and(|next| next.object() == object && next.version() == version)
    }
}

impl Primary {
    /// The replica to use: ours is preferred.
    fn copy_to_redo(
        &self,
        object: &ObjectId,
        local: &Local,
        sh: &Shared,
    ) -> Option<(OsdId, Undone)> {
        let need = local.missing.get(object)?.need;
        let quiet = self
            .objects
            .peek(object)
            .is_none_or(|state| state.held == 0 && state.updates == 0);
        if !self.serves(sh.now) || !quiet || self.backfill.compares(object) {
            return None;
        }
        let map = sh.map.as_ref()?;
        let fits = |undone: &&Undone| {
            let over = |id: &RequestId| {
                let failed = match self.answered.known(id) {
                    // A client that gets these answers to a resent update does not know whether the
                    // update was executed.
                    Known::Answered(answered) => !matches!(
                        answered.failure,
                        Some(OpFailure::Corrupt { .. } | OpFailure::Full {})
                    ),
                    // While the object is missing, the only other answer is a timeout.
                    Known::Nothing | Known::Forgotten => false,
                };
                failed || map.is_fenced(Entity::Client(id.client), id.instance)
            };
            // A clone that an interval's end left without its write is in the log, and stays as it
            // is.
            let taken = |entry: &Record| {
                entry.object() != object
                    && local
                        .log
                        .last_of(entry.object())
                        .is_some_and(|last| !last.deleted())
            };
            undone.base == need
                && !undone
                    .entries
                    .iter()
                    .any(|entry| over(&entry.request()) || taken(entry))
        };
        let own = local.undone.get(object).map(|undone| (sh.me(), undone));
        let others = self
            .peers
            .iter()
            .filter_map(|(osd, peer)| Some((*osd, peer.undone.get(object)?)));
        let (whose, undone) = own
            .into_iter()
            .chain(others)
            .find(|(_, undone)| fits(undone))?;
        Some((whose, undone.clone()))
    }
}

impl Lead<'_> {
    /// Begins if a member has such a replica of an object that no member has at the needed version.
    /// Returns whether it is in progress.
    pub(super) fn redo(&mut self, object: &ObjectId, sh: &mut Shared) -> bool {
        let Some((whose, undone)) = self.primary.copy_to_redo(object, self.local, sh) else {
            return false;
        };
        let (me, pg, interval) = (sh.me(), self.id(), self.interval.since);
        let until = sh.after(4);
        let recovery = &mut self.primary.recovery;
        recovery.pulls.insert(object.clone(), (whose, until));
        let same = |redo: &Redo| redo.whose == whose && redo.undone == undone;
        if !recovery.redo.get(object).is_some_and(same) || whose == me {
            let redo = Redo {
                whose,
                undone: undone.clone(),
                fetched: 0,
                known: BTreeMap::new(),
            };
            recovery.redo.insert(object.clone(), redo);
        }
        if whose != me {
            self.fetch_undone(object, sh);
        } else if parts(&undone).next().is_none() {
            self.redo_on(&undone, &BTreeMap::new(), sh);
        } else {
            for part in parts(&undone) {
                let read = Read::Stat(key::store_key(pg, part.object()));
                sh.read(pg, interval, read, Purpose::Redo(part.object().clone()));
            }
        }
        true
    }

    /// Requests the next part of another member's replica; without one, the replica is ours.
    fn fetch_undone(&mut self, object: &ObjectId, sh: &mut Shared) {
        let (pg, interval) = (self.id(), self.interval.since);
        let Some(redo) = self.primary.recovery.redo_of(object) else {
            return;
        };
        if let Some(next) = redo.next() {
            let pull = Pull {
                pg,
                interval,
                object: next.object().clone(),
                version: next.version(),
            };
            let whose = redo.whose;
            sh.send(whose, Message::Pull(pull));
        } else {
            let undone = redo.undone.clone();
            self.primary.recovery.pulls.remove(object);
            let mut ops = Ops::new();
            for part in parts(&undone) {
                let (from, to) = (
                    key::incoming_key(pg, part.object()),
                    key::store_key(pg, part.object()),
                );
                ops.push(Op::Rename { from, to });
                self.receiving.unstage(part.object());
            }
            self.local.note_undone(undone, &mut ops);
            sh.submit(pg, interval, ops, Purpose::Nothing);
            self.start_recovery(sh);
        }
    }

    /// A part of another member's replica is complete here, if it is one.
    pub(super) fn on_undone_fetched(
        &mut self,
        object: &ObjectId,
        version: Version,
        sh: &mut Shared,
    ) -> bool {
        if !self.primary.recovery.awaits_undone(object, version) {
            return false;
        }
        self.primary
            .recovery
            .redo_of(object)
            .expect("it is pending")
            .fetched += 1;
        self.fetch_undone(&snaps::live(object), sh);
        true
    }

    /// The member cannot send its replica.
    pub(super) fn on_undone_failed(&mut self, from: OsdId, object: &ObjectId, sh: &mut Shared) {
        let object = snaps::live(object);
        let primary = &mut *self.primary;
        primary.recovery.pulls.remove(&object);
        primary.recovery.redo.remove(&object);
        if let Some(peer) = primary.peers.get_mut(&from) {
            peer.undone.swap_remove(&object);
        }
        self.start_recovery(sh);
    }

    /// The context of a part of our replica was read.
    pub(super) fn on_redo_stat(
        &mut self,
        part: &ObjectId,
        reply: Result<ReadReply, ReadError>,
        sh: &mut Shared,
    ) {
        let object = snaps::live(part);
        let Some(redo) = self.primary.recovery.redo_of(&object) else {
            return;
        };
        let context = match reply {
            Ok(ReadReply::Stat(stat)) => Context::of(stat),
            _ => Context::default(),
        };
        redo.known.insert(part.clone(), context);
        let contexts = &redo.known;
        let is_whole = |part: &Record| {
            contexts
                .get(part.object())
                .is_some_and(|has| has.version == part.version())
        };
        let (all, whole) = (
            parts(&redo.undone).count() == contexts.len(),
            parts(&redo.undone).all(is_whole),
        );
        if !all {
            return;
        }
        let Redo { undone, known, .. } = self
            .primary
            .recovery
            .redo
            .remove(&object)
            .expect("just seen");
        self.primary.recovery.pulls.remove(&object);
        match self.primary.copy_to_redo(&object, self.local, sh) {
            Some((_, now)) if now == undone && whole => self.redo_on(&undone, &known, sh),
            Some((_, now)) if now == undone => {
                let mut ops = Ops::new();
                self.local.forget_undone(&object, false, &mut ops);
                self.interval.submit(sh, ops, Purpose::Nothing);
                let text = format!(
                    "{}: the copy of {object} here is not what was noted, or cannot be read",
                    self.id()
                );
                sh.say(Severity::Error {}, text);
            }
            _ => {}
        }
        self.start_recovery(sh);
    }

    /// Orders the updates again; their objects are here, in the state after the last update of
    /// each.
    fn redo_on(
        &mut self,
        undone: &Undone,
        contexts: &BTreeMap<ObjectId, Context>,
        sh: &mut Shared,
    ) {
        let (pg, object) = (self.id(), undone.object.clone());
        let (mut ops, mut ordered) = (Ops::new(), Vec::new());
        let mut prior = undone.base;
        // The object is no longer missing, and its clones no longer orphans, only when the log
        // contains them again.
        self.local.forget_undone(&object, true, &mut ops);
        self.local.found(&object, &mut ops);
        if last(undone).deleted() {
            ops.push(Op::Remove(key::store_key(pg, &object)));
        }
        let nothing = Context::default();
        for old in &undone.entries {
            let is_part = parts(undone).any(|part| part.version() == old.version());
            let version = self.local.log.head().next_in(self.interval.since);
            let known = self.local.dedup.knows(&old.request());
            let request = if known {
                RequestId::default()
            } else {
                old.request()
            };
            let of_object = *old.object() == object;
            let context = contexts.get(old.object()).unwrap_or(&nothing);
            // The object's former size is not known: the PG is counted again.
            let size = context.stored_size();
            let totals = Totals {
                estimated: true,
                ..self
                    .primary
                    .counting
                    .after_update(old.object(), (size, size), self.local)
            };
            let before = if of_object { prior } else { Version::NONE };
            let modified_ms = context.modified_ms;
            let fields = RecordFields {
                version,
                prior: before,
                request,
                totals,
                modified_ms,
                ..old.fields()
            };
            let entry = Record::new(fields);
            if of_object {
                prior = if entry.deleted() {
                    Version::NONE
                } else {
                    version
                };
            }
            if is_part {
                ops.push(version_attr(key::store_key(pg, entry.object()), &entry));
            }
            self.local.append(entry.clone(), sh.now, &mut ops);
            let primary = &mut *self.primary;
            primary
                .peers
                .values_mut()
                .for_each(|peer| peer.gets_without_data(&entry));
            primary.answered.executed(&request);
            primary
                .watching
                .look_at(entry.object(), &context.claims, sh.now);
            ordered.push(Ordered::without_data(
                InFlight::without_data(entry, sh.now),
                context,
            ));
        }
        let primary = &mut *self.primary;
        primary.counting.forget();
        for peer in primary.peers.values_mut() {
            peer.undone.swap_remove(&object);
        }
        self.primary
            .launch(ordered.into(), ops, self.local, self.interval, sh);
        sh.counters.redone += 1;
        let text = format!(
            "{pg}: nobody has {object} at {}; updates that nobody was told of are kept",
            undone.base
        );
        sh.say(Severity::Warn {}, text);
        self.on_recovered_here(&object, sh);
    }
}
