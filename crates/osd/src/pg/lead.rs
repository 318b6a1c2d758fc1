//! A group at its primary, with all that a primary may touch: what the map, the store and the other
//! members say goes from here to the machine that it concerns.

use super::local::Local;
use super::peering::Primary;
use super::receive::{Expects, Receiving};
use super::transfer::{Sending, Unsent};
use super::{Counted, Interval, lost};
use crate::awaited::{Awaited, StoreOutcome};
use crate::shared::Shared;
use nacre_types::{ObjectId, OsdId, PgId, Version};
use nacre_wire::msg::replication::{Push, PushAck};
use nacre_wire::{Message, Payload};

/// See the module head.
#[derive(Debug)]
pub(crate) struct Lead<'a> {
    pub(super) local: &'a mut Local,
    pub(super) interval: &'a Interval,
    pub(super) sending: &'a mut Sending,
    pub(super) receiving: &'a mut Receiving,
    pub(super) counted: &'a mut Counted,
    pub(super) primary: &'a mut Primary,
}

impl Lead<'_> {
    pub(super) fn id(&self) -> PgId {
        self.interval.pg
    }

    /// Another OSD of the group says something of this interval.
    pub(super) fn on_message(&mut self, from: OsdId, message: Message, sh: &mut Shared) {
        match message {
            Message::ReplicateApplied(m) => self.on_replicate_applied(from, m.version, sh),
            Message::PeerInfo(m) => self.peering_on_info(from, m, sh),
            Message::LogReply(m) => self.peering_on_log(from, m, sh),
            Message::AdoptAck(m) => self.on_adopt_ack(from, m, sh),
            Message::PushAck(m) => self.on_push_ack(from, &m, sh),
            Message::ScanReply(m) => self.on_scan_reply(from, m, sh),
            Message::ProgressAck(m) => self.on_progress_ack(from, &m, sh),
            _ => {}
        }
    }

    /// A store event that was expected in this interval.
    pub(super) fn on_store(&mut self, awaited: Awaited, outcome: StoreOutcome, sh: &mut Shared) {
        use StoreOutcome::{Committed, Read};
        match (awaited, outcome) {
            (Awaited::Logged(version), _) => self.on_logged(version, sh),
            (Awaited::Barrier, _) => self.on_barrier(sh),
            (Awaited::Adopted, _) => self.on_adopted(sh),
            (Awaited::Stat(object), Read(reply)) => self.on_stat(&object, reply, sh),
            (Awaited::OpRead { op, index }, Read(reply)) => self.on_op_read(op, index, reply, sh),
            (Awaited::ClientList(op), Read(reply)) => self.on_client_list(op, reply, sh),
            (Awaited::ListedStat { number, object }, Read(reply)) => {
                self.on_listed_stat(number, object, reply, sh);
            }
            (Awaited::BackfillList { round, limit }, Read(reply)) => {
                self.on_backfill_list((round, limit), reply, sh);
            }
            (Awaited::BackfillStat { round, index }, Read(reply)) => {
                self.on_backfill_stat((round, index), reply, sh);
            }
            (Awaited::CountList(number), Read(reply)) => {
                self.primary
                    .counting
                    .on_list(number, reply, self.interval, sh);
            }
            (Awaited::CountStat { number, position }, Read(reply)) => {
                self.primary.counting.on_stat(number, position, reply);
            }
            (Awaited::Redo(object), Read(reply)) => self.on_redo_stat(&object, reply, sh),
            (Awaited::TrimList(page), Read(reply)) => self.on_trim_list(page, reply, sh),
            (awaited, Committed) => panic!("{awaited:?} is a read"),
            (_, Read(_)) => {}
        }
    }

    /// Repeats what has not been answered.
    pub(super) fn on_tick(&mut self, sh: &mut Shared) {
        if lost::is_due(self.local, sh) {
            self.tell_lost(sh);
        }
        self.watch_tick(sh);
        self.primary_tick(sh);
    }

    /// A part of an object arrived.
    pub(super) fn on_push(&mut self, from: OsdId, push: Push, payload: Payload, sh: &mut Shared) {
        let undone = self.awaits_undone(&push.object, push.version);
        if undone && push.absent {
            self.on_undone_failed(from, &push.object, sh);
            return;
        }
        let expects = Expects {
            undone,
            ..Expects::default()
        };
        let at = self.interval;
        let Some(wanted) = expects.judge(from, &push, self.local, at, sh) else {
            return;
        };
        if !self.delete_by_first_part(&push, undone, sh) {
            let part = (push, payload);
            self.receiving.take(from, part, wanted, self.local, at, sh);
        }
    }

    /// An object that was on its way here is whole.
    pub(super) fn on_received(&mut self, object: &ObjectId, version: Version, sh: &mut Shared) {
        if !self.on_undone_fetched(object, version, sh) {
            self.on_recovered_here(object, sh);
        }
    }

    /// A part is durable at the receiver, or a member cannot send what we asked for.
    fn on_push_ack(&mut self, from: OsdId, message: &PushAck, sh: &mut Shared) {
        if !message.have {
            self.on_pull_failed(from, message, sh);
            return;
        }
        let (object, at) = (&message.object, self.interval);
        if let Some(ended) = self.sending.on_push_ack(from, message, at, sh) {
            if ended.holds {
                self.release_object(object, sh);
            }
            self.on_pushed(from, object, ended.version, sh);
        }
    }

    /// An object that was to be sent is not here at that version, or cannot be read.
    pub(super) fn on_unsent(
        &mut self,
        to: OsdId,
        object: &ObjectId,
        unsent: &Unsent,
        sh: &mut Shared,
    ) {
        if unsent.ended.holds {
            self.release_object(object, sh);
        }
        self.on_push_failed(to, object, unsent.ended.version, unsent.damaged, sh);
    }

    /// Begins to send an object at a version; its queue is held meanwhile. The caller knows that it
    /// is here.
    pub(super) fn push_object(
        &mut self,
        to: OsdId,
        object: &ObjectId,
        version: Version,
        sh: &mut Shared,
    ) {
        let (version, at) = ((version, true), self.interval);
        if self.sending.push_object(to, object, version, at, sh) {
            self.primary.objects.get(object).held += 1;
        }
    }

    /// Tells a member that an object does not exist; its queue is held meanwhile.
    pub(super) fn push_absence(
        &mut self,
        to: OsdId,
        object: &ObjectId,
        version: Version,
        sh: &mut Shared,
    ) {
        let (version, at) = ((version, true), self.interval);
        if self.sending.push_absence(to, object, version, at, sh) {
            self.primary.objects.get(object).held += 1;
        }
    }

    /// The object is not sent to the member any more.
    pub(super) fn end_outgoing(&mut self, to: OsdId, object: &ObjectId, sh: &mut Shared) {
        if self
            .sending
            .end(to, object)
            .is_some_and(|ended| ended.holds)
        {
            self.release_object(object, sh);
        }
    }

    /// Nothing is sent to the member any more.
    pub(super) fn stop_sending_to(&mut self, to: OsdId, sh: &mut Shared) {
        for object in self.sending.objects_to(to) {
            self.end_outgoing(to, &object, sh);
        }
    }

    /// Members that lack the object are no longer sent it, since it is about to change: all of them
    /// if it is to be deleted, otherwise those that nobody waits for.
    pub(super) fn stop_pushing(&mut self, object: &ObjectId, all: bool, sh: &mut Shared) {
        for to in self.sending.receivers_of(object) {
            if self.lacks(to, object) && (all || !self.is_waited_for(to, sh)) {
                self.end_outgoing(to, object, sh);
            }
        }
    }
}
