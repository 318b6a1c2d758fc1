//! A member that is not primary: executes its primary's orders, and acknowledges them.
//!
//! [`Follow`] is a member of a PG with all the state that it may access. A primary's state does not
//! exist there.

use super::local::{Local, Ops};
use super::receive::{Expects, Receiving, cannot_send};
use super::scan::{Listed, TargetScan};
use super::transfer::Sending;
use super::update::{apply_update, clone_source, wipes};
use super::{ByObject, Interval, lost};
use crate::purpose::{Purpose, StoreOutcome};
use crate::shared::Shared;
use nacre_role::Output;
use nacre_store::{ReadError, ReadReply};
use nacre_types::{ObjectId, OsdId, Version};
use nacre_wire::msg::replication::{
    Adopt, AdoptAck, Logged, Progress, Push, ReplicaUpdate, ReplicateApplied, ScanQuery,
};
use nacre_wire::{Message, Payload, Record};

#[cfg(feature = "mutants")]
#[path = "../mutants/member.rs"]
mod planted;

/// The state of a member that is not primary.
#[derive(Debug, Default)]
pub struct Member {
    /// Whether we have the primary's log: no, in memory, or durably.
    pub adopted: Option<bool>,
    /// Our log is durable up to this version.
    pub logged: Version,
    /// The primary requests a report when updates up to this version are applied.
    tell_applied: Version,
    /// The newest comparison of a range that was requested of us. After we have started over,
    /// earlier ones are ignored.
    pub(super) round: u64,
    /// Replicas at these versions that we could not read and that the primary may replace.
    pub(super) damaged: ByObject<Version>,
    /// The range that we list for the primary.
    pub(super) scan: Option<Box<TargetScan>>,
}

/// A PG at a member that is not primary.
#[derive(Debug)]
pub(super) struct Follow<'a> {
    pub(super) local: &'a mut Local,
    pub(super) interval: &'a Interval,
    pub(super) sending: &'a mut Sending,
    pub(super) receiving: &'a mut Receiving,
    pub(super) member: &'a mut Member,
}

impl Follow<'_> {
    /// An update arrived from the primary.
    pub fn on_replicate(&mut self, message: ReplicaUpdate, payload: Payload, sh: &mut Shared) {
        let head = self.local.log.head();
        if self.member.adopted.is_none() {
            return;
        }
        let ReplicaUpdate {
            entry,
            effects,
            entry_only,
            trim,
            tell_applied,
            takes,
            ..
        } = message;
        if entry.version() <= head {
            // A duplicate: if it is durable, the acknowledgement was lost.
            if self.member.logged >= entry.version() {
                sh.ack_later(self.local.pg());
            }
            return;
        }
        if entry.version().number != head.number + 1 {
            return;
        }
        let mut ops = Ops::new();
        let object = entry.object().clone();
        // A receiver that we are sending the object to no longer needs the old version, or will ask
        // again. (The receiver had the object from another member, and it was written again,
        // shorter: parts without data followed each other for ever, as fast as they were
        // acknowledged. Simulator, seed 2227.)
        self.sending.end_all_of(&object);
        let source = clone_source(&object, &effects);
        let lacks = |object: &ObjectId| {
            self.local.missing.contains_key(object) || !self.local.inside_cursor(object)
        };
        let acts = self.interval.acting.contains(&sh.config.id);
        let rewritten = acts && wipes(&effects);
        let needs = !entry_only && !rewritten;
        let absent = (needs && self.local.missing.contains_key(&object)).then_some(&object);
        let absent = absent.or(source.as_ref().filter(|source| lacks(source)));
        // The entry only: recovery brings the object (`redo.rs`). The same holds outside the acting
        // set after an update was lost (`catchup.rs`).
        if !acts && !entry_only && !entry.deleted() && !sh.take_part(takes) {
            // As if it had been lost: it is noted as missing (`catchup.rs`), and recovered when
            // there is space.
            return;
        }
        let lost = (entry_only && self.local.inside_cursor(&object)) || (!acts && absent.is_some());
        if lost {
            self.append_lost(&entry, &mut ops);
        } else if let Some(absent) = absent {
            sh.out.push(Output::Halt {
                why: format!(
                    "{}: update of {object} needs {absent}, which is missing here: a bug",
                    self.local.pg()
                ),
            });
            return;
        }
        if rewritten && self.local.missing.contains_key(&object) {
            self.receiving.drop_object(&object, self.local, &mut ops);
        }
        if !lost
            && !entry_only
            && apply_update(self.local.pg(), &entry, &effects, payload, &mut ops).is_none()
        {
            return;
        }
        let version = entry.version();
        let member = &mut *self.member;
        if tell_applied {
            member.tell_applied = version;
        }
        // Writing a part does not repair an unreadable object.
        if entry.deleted() {
            member.damaged.swap_remove(&object);
        } else if let Some(at) = member.damaged.get_mut(&object) {
            *at = version;
        }
        self.local.append(entry.clone(), sh.now, &mut ops);
        self.local.lost_by_clone(&entry, &effects, &mut ops);
        self.local.trim(trim, &mut ops);
        self.local.forget(&sh.config.limits, &mut ops);
        self.log(version, ops, sh);
    }

    /// Gives an update to the store, and acknowledges it when its log entry is durable.
    #[nacre_types::planted]
    fn log(&mut self, version: Version, ops: Ops, sh: &mut Shared) {
        self.interval.submit(sh, ops, Purpose::Logged(version));
    }

    /// The object of an entry is to be recovered, or is deleted.
    fn append_lost(&mut self, entry: &Record, ops: &mut Ops) {
        if entry.deleted() {
            self.receiving.drop_object(entry.object(), self.local, ops);
        } else {
            self.local
                .miss(entry.object(), entry.version(), Version::NONE, ops);
        }
    }

    /// A member adopts the primary's log.
    fn on_adopt(&mut self, message: Adopt, sh: &mut Shared) {
        let outside = !self.interval.acting.contains(&sh.config.id);
        let beyond = message.head > self.local.log.head();
        let member = &mut *self.member;
        let anew = outside && message.restart && member.adopted == Some(true) && beyond;
        if anew {
            // We have lost more than the primary's log contains.
            member.adopted = None;
            member.round += 1;
            member.scan = None;
            self.sending.end_all();
            self.receiving.end_all(self.interval, sh);
        } else if member.adopted.is_some() {
            // A duplicate: acknowledge again if the log is durable; otherwise its commit will.
            if member.adopted == Some(true) {
                self.send_adopt_ack(sh);
            }
            return;
        }
        let mut ops = Ops::new();
        let interval = message.interval;
        if message.restart {
            sh.counters.borders.started_over += 1;
            let Adopt {
                tail,
                totals,
                entries,
                head,
                dedup,
                ..
            } = message;
            self.local.restart(
                tail,
                totals,
                entries,
                head,
                &dedup,
                (interval, sh.now),
                &mut ops,
            );
        } else if message.from >= self.local.log.tail() && message.from <= self.local.log.head() {
            let Adopt {
                from,
                entries,
                head,
                dedup,
                ..
            } = message;
            sh.counters.borders.divergent += u64::from(from < self.local.log.head());
            sh.counters.borders.recovered_by_log += u64::from(from < head);
            self.local
                .adopt(from, entries, head, &dedup, (interval, sh.now), &mut ops);
        } else {
            // Impossible: the position was computed from our report in this interval, and nothing
            // has changed since.
            panic!(
                "{}: asked to adopt from {}, our log is {}..{}",
                self.local.pg(),
                message.from,
                self.local.log.tail(),
                self.local.log.head()
            );
        }
        self.local.forget(&sh.config.limits, &mut ops);
        self.member.adopted = Some(false);
        self.interval.submit(sh, ops, Purpose::Adopted);
    }

    fn send_adopt_ack(&self, sh: &mut Shared) {
        let Some(primary) = self.interval.primary() else {
            return;
        };
        let message = AdoptAck {
            pg: self.local.pg(),
            interval: self.interval.since,
            head: self.local.log.head(),
            missing: self.local.missing.values().cloned().collect(),
            backfill: self.local.backfill.clone(),
            undone: self.local.undone.values().cloned().collect(),
        };
        sh.send(primary, Message::AdoptAck(message));
    }

    /// The primary relies on everything before the cursor.
    fn on_progress(&mut self, from: OsdId, message: &Progress, sh: &mut Shared) {
        if self.member.adopted.is_none() || self.member.round != message.round {
            return;
        }
        let forward = match (&self.local.backfill, &message.cursor) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(have), Some(new)) => new > have,
        };
        let mut ops = Ops::new();
        if forward {
            self.local.set_cursor(message.cursor.clone(), &mut ops);
        }
        let purpose = Purpose::CursorStored {
            to: from,
            cursor: message.cursor.clone(),
            round: message.round,
        };
        self.interval.submit(sh, ops, purpose);
    }

    /// An update, or the adopted log, is durable here up to `version`. Commits come in order, so
    /// this covers all earlier ones.
    pub(super) fn on_logged(&mut self, version: Version, sh: &mut Shared) {
        self.member.logged = self.member.logged.max(version);
        sh.ack_later(self.local.pg());
    }

    /// A message of this interval from another OSD of the PG; `ordered`: from its primary.
    pub(super) fn on_message(
        &mut self,
        from: OsdId,
        ordered: bool,
        message: Message,
        sh: &mut Shared,
    ) {
        match message {
            Message::ScanQuery(m) => {
                let (local, at) = (&*self.local, self.interval);
                self.member.on_scan_query(from, &m, local, at, sh);
            }
            Message::Progress(m) => self.on_progress(from, &m, sh),
            Message::Adopt(m) if ordered => self.on_adopt(m, sh),
            _ => {}
        }
    }

    /// A pending store event of this interval.
    pub(super) fn on_store(&mut self, purpose: Purpose, outcome: StoreOutcome, sh: &mut Shared) {
        let (local, at) = (&*self.local, self.interval);
        match (purpose, outcome) {
            (Purpose::Logged(version), _) => self.on_logged(version, sh),
            (Purpose::Adopted, _) => self.on_adopted(sh),
            (Purpose::ScanList { round, limit }, StoreOutcome::Read(reply)) => {
                self.member
                    .on_scan_list((round, limit), reply, local, at, sh);
            }
            (Purpose::ScanStat { round, index }, StoreOutcome::Read(reply)) => {
                self.member.on_scan_stat((round, index), reply, at, sh);
            }
            (purpose, StoreOutcome::Committed) => panic!("{purpose:?} is a read"),
            (_, StoreOutcome::Read(_)) => {}
        }
    }

    /// The adopted log is durable here.
    fn on_adopted(&mut self, sh: &mut Shared) {
        self.member.adopted = Some(true);
        self.member.logged = self.member.logged.max(self.local.log.head());
        self.send_adopt_ack(sh);
    }

    /// Reports to the primary again which replicas have lost data.
    pub(super) fn on_tick(&mut self, sh: &mut Shared) {
        if lost::is_due(self.local, sh) {
            self.tell_lost(sh);
        }
    }

    /// Reports to the primary which replicas have lost data.
    pub(super) fn tell_lost(&mut self, sh: &mut Shared) {
        lost::heard(self.local, sh);
        let Some(primary) = self.interval.primary() else {
            return;
        };
        if self.member.adopted != Some(true) {
            return;
        }
        for (object, version) in lost::next(self.local, |_| false) {
            cannot_send(primary, object, version, true, self.interval, sh);
        }
    }

    /// A part of an object arrived.
    pub(super) fn on_push(&mut self, from: OsdId, push: Push, payload: Payload, sh: &mut Shared) {
        if self.member.adopted.is_none() {
            return;
        }
        let expects = Expects {
            undone: false,
            round: self.member.round,
            damaged: self.member.damaged.get(&push.object).copied(),
        };
        let at = self.interval;
        let Some(wanted) = expects.judge(from, &push, self.local, at, sh) else {
            return;
        };
        let damaged = wanted.damaged.then(|| push.object.clone());
        let part = (push, payload);
        let taken = self.receiving.take(from, part, wanted, self.local, at, sh);
        if let Some(object) = damaged.filter(|_| taken) {
            // Not before the push is accepted: without this note a duplicate of this message would
            // be acknowledged as already received.
            self.member.damaged.swap_remove(&object);
        }
    }
}

impl Member {
    /// As a member: the durable position, and the primary to report it to.
    pub(super) fn logged_for_primary(&self, at: &Interval) -> Option<(OsdId, Logged)> {
        let logged = Logged {
            pg: at.pg,
            interval: at.since,
            version: self.logged,
        };
        Some((at.primary()?, logged))
    }

    /// An update is applied in memory here. Updates are applied in order, so this covers all
    /// earlier ones.
    pub(super) fn on_applied(&self, version: Version, at: &Interval, sh: &mut Shared) {
        let Some(primary) = at.primary().filter(|_| version <= self.tell_applied) else {
            return;
        };
        let message = ReplicateApplied {
            pg: at.pg,
            interval: at.since,
            version,
        };
        sh.send(primary, Message::ReplicateApplied(message));
    }

    /// The primary asks what we have.
    pub(super) fn on_scan_query(
        &mut self,
        from: OsdId,
        message: &ScanQuery,
        local: &Local,
        at: &Interval,
        sh: &mut Shared,
    ) {
        let round = message.round;
        if self.adopted.is_none() || round < self.round {
            return;
        }
        self.round = round;
        if self.scan.as_ref().is_some_and(|scan| scan.is_of(round)) {
            return;
        }
        let limit = (message.limit as usize).clamp(1, 1000);
        let range = (round, message.from.clone());
        let scan = TargetScan::begin(from, range, limit, local, at, sh);
        self.scan = Some(Box::new(scan));
    }

    /// The store has listed the range that the primary compares.
    pub(super) fn on_scan_list(
        &mut self,
        (round, limit): (u64, usize),
        reply: Result<ReadReply, ReadError>,
        local: &Local,
        at: &Interval,
        sh: &mut Shared,
    ) {
        let begun = |scan: &&mut Box<TargetScan>| scan.is_of(round) && scan.waits_for_list();
        let Some(scan) = self.scan.as_mut().filter(begun) else {
            return;
        };
        match scan.on_list(limit, reply, local, at, sh) {
            Listed::Failed => self.scan = None,
            Listed::Again => {}
            Listed::Done => self.end_scan(at, sh),
        }
    }

    /// The version of an object of the range was read.
    pub(super) fn on_scan_stat(
        &mut self,
        (round, index): (u64, usize),
        reply: Result<ReadReply, ReadError>,
        at: &Interval,
        sh: &mut Shared,
    ) {
        if let Some(scan) = self.scan.as_mut().filter(|scan| scan.is_of(round))
            && scan.on_stat(index, reply)
        {
            self.end_scan(at, sh);
        }
    }

    fn end_scan(&mut self, at: &Interval, sh: &mut Shared) {
        if let Some(scan) = self.scan.take_if(|scan| scan.is_done()) {
            scan.reply(at, sh);
        }
    }
}
