//! A PG at its primary, with all the state that a primary may access: input from the map, the store
//! and the other members is dispatched from here to the machine that it concerns.

use super::holders::Holders;
use super::local::Local;
use super::order::Order;
use super::outbox::Outbox;
use super::peering::{Agree, Reached};
use super::primary::Primary;
use super::receive::{Expects, Receiving};
use super::replies::Replies;
use super::shares::Admit;
use super::snapshots::Clones;
use super::transfer::{Sending, Unsent};
use super::waiting::Gate;
use super::{Counted, Interval, lost};
use crate::purpose::{Purpose, StoreOutcome};
use crate::shared::Shared;
use nacre_types::{ObjectId, OsdId, PgId, Version};
use nacre_wire::msg::replication::{Discard, PeerInfo, Push, PushAck};
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

    /// A message of this interval from another OSD of the PG.
    pub(super) fn on_message(&mut self, from: OsdId, message: Message, sh: &mut Shared) {
        match message {
            Message::ReplicateApplied(m) => {
                if let Some(peer) = self.primary.peers.get_mut(&from) {
                    peer.applied = peer.applied.max(m.version);
                    self.primary.tell_applied(self.interval, sh);
                }
            }
            Message::PeerInfo(m) => self.on_info(from, m, sh),
            Message::LogReply(m) => self.agree().on_log(from, m, sh),
            Message::AdoptAck(m) => {
                let reached = self.agree().on_adopt_ack(from, m, sh);
                self.on_reached(reached, sh);
            }
            Message::PushAck(m) => self.on_push_ack(from, &m, sh),
            Message::ScanReply(m) => {
                let backfill = &mut self.primary.backfill;
                backfill.on_scan_reply(from, m, self.local, self.interval, sh);
            }
            Message::ProgressAck(m) => self.on_progress_ack(from, &m, sh),
            _ => {}
        }
    }

    /// A pending store event of this interval.
    pub(super) fn on_store(&mut self, purpose: Purpose, outcome: StoreOutcome, sh: &mut Shared) {
        use StoreOutcome::{Committed, Read};
        match (purpose, outcome) {
            (Purpose::Logged(version), _) => self.on_logged(version, sh),
            (Purpose::Barrier, _) => self.agree().on_barrier(sh),
            (Purpose::Adopted, _) => {
                let reached = self.agree().on_adopted(sh);
                self.on_reached(reached, sh);
            }
            (Purpose::Stat(object), Read(reply)) => self.on_stat(&object, reply, sh),
            (Purpose::OpRead { op, index }, Read(reply)) => self.on_op_read(op, index, reply, sh),
            (Purpose::ClientList(op), Read(reply)) => self.on_client_list(op, reply, sh),
            (Purpose::ListedStat { number, object }, Read(reply)) => {
                self.on_listed_stat(number, object, reply, sh);
            }
            (Purpose::BackfillList { round, limit }, Read(reply)) => {
                self.on_backfill_list((round, limit), reply, sh);
            }
            (Purpose::BackfillStat { round, index }, Read(reply)) => {
                self.on_backfill_stat((round, index), reply, sh);
            }
            (Purpose::CountList(number), Read(reply)) => {
                self.primary
                    .counting
                    .on_list(number, reply, self.interval, sh);
            }
            (Purpose::CountStat { number, position }, Read(reply)) => {
                self.primary.counting.on_stat(number, position, reply);
            }
            (Purpose::Redo(object), Read(reply)) => self.on_redo_stat(&object, reply, sh),
            (Purpose::TrimList(page), Read(reply)) => self.on_trim_list(page, reply, sh),
            (purpose, Committed) => panic!("{purpose:?} is a read"),
            (_, Read(_)) => {}
        }
    }

    /// Whether operations wait for a read lease.
    pub(crate) fn waits_for_lease(&self) -> bool {
        self.primary.is_active() && !self.primary.objects.is_idle()
    }

    /// Repeats unanswered messages.
    pub(super) fn on_tick(&mut self, sh: &mut Shared) {
        if lost::is_due(self.local, sh) {
            self.tell_lost(sh);
        }
        self.watch_tick(sh);
        if self.primary.peering.retry_at <= sh.now {
            self.agree().repeat(sh);
            self.primary.resend_updates(self.local, self.interval, sh);
            self.catch_up_tick(sh);
            self.recovery_tick(sh);
            self.backfill_tick(sh);
            if self.primary.is_clean(self.local, self.interval) {
                self.primary.counting.tick(self.local, self.interval, sh);
            }
            self.trim_tick(sh);
            self.primary.stand_aside(self.local, self.interval, sh);
            self.refuse_what_has_no_room(sh);
            self.gate().explain_waiting(sh);
        }
        if self.primary.is_active() {
            self.process_all_objects(sh);
        }
    }

    /// The holders and what they have.
    pub(super) fn holders(&self) -> Holders<'_> {
        self.primary.holders(self.local, self.interval)
    }
    /// The machine that handles clones.
    pub(super) fn clones(&self) -> Clones<'_> {
        Clones {
            holders: self.holders(),
            objects: &self.primary.objects,
            damage: &self.primary.damage,
        }
    }
    /// The machine that decides what operations wait for.
    pub(super) fn gate(&mut self) -> Gate<'_> {
        self.primary.gate(self.local, self.interval)
    }
    /// The machine that answers operations.
    pub(super) fn replies(&mut self) -> Replies<'_> {
        self.primary.replies(self.local)
    }
    /// The machine that sends objects.
    pub(super) fn outbox(&mut self) -> Outbox<'_> {
        Outbox {
            interval: self.interval,
            objects: &mut self.primary.objects,
            sending: self.sending,
        }
    }
    /// The machine that admits operations.
    pub(super) fn admit(&mut self) -> Admit<'_> {
        let Primary {
            objects,
            watching,
            turned_away,
            ..
        } = &mut *self.primary;
        Admit {
            objects,
            watching,
            turned_away,
            dedup: &self.local.dedup,
        }
    }
    /// The daemon's memory for operations is full.
    pub(crate) fn make_room(&mut self, sh: &mut Shared) {
        if self.primary.serves(sh.now) {
            self.admit().make_room(sh);
        }
    }
    /// The machine that assigns changes their positions in the log.
    pub(super) fn ordering(&mut self) -> Order<'_> {
        Order {
            local: self.local,
            interval: self.interval,
            receiving: self.receiving,
            counting: &mut self.primary.counting,
            objects: &self.primary.objects,
        }
    }
    /// The machine that peers.
    pub(super) fn agree(&mut self) -> Agree<'_> {
        let Primary {
            peering,
            peers,
            logged,
            committed,
            ..
        } = &mut *self.primary;
        Agree {
            local: self.local,
            interval: self.interval,
            peering,
            peers,
            logged,
            committed,
        }
    }

    fn on_reached(&mut self, reached: Reached, sh: &mut Shared) {
        if reached.active {
            self.process_all_objects(sh);
            self.start_recovery(sh);
        }
        if reached.peered {
            self.start_recovery(sh);
        }
    }

    /// The map allows our interval to serve.
    pub(super) fn on_activation(&mut self, sh: &mut Shared) {
        let active = self.primary.peering.activate(self.interval);
        let reached = Reached {
            active,
            peered: false,
        };
        self.on_reached(reached, sh);
    }

    /// A member reports its state.
    fn on_info(&mut self, from: OsdId, message: PeerInfo, sh: &mut Shared) {
        let Some(new) = self.agree().on_info(from, message, sh) else {
            return;
        };
        let Primary {
            peering, backfill, ..
        } = &mut *self.primary;
        backfill.cover_with(from, peering, self.local, self.interval, sh);
        if new {
            self.look_again(sh);
        }
        // An unreadable object may be intact at the new member, if only in an older version: it
        // keeps that.
        let (damage, at) = (&self.primary.damage, self.interval);
        let wanted =
            damage.has_suspects() || damage.lost_count() > 0 || !self.local.lost.is_empty();
        let stray = !at.acting.contains(&from) && !at.up.contains(&from);
        if stray && !wanted && self.primary.is_clean(self.local, at) {
            let message = Discard {
                pg: at.pg,
                interval: at.since,
            };
            sh.send(from, Message::Discard(message));
        }
    }

    /// A part of an object arrived.
    pub(super) fn on_push(&mut self, from: OsdId, push: Push, payload: Payload, sh: &mut Shared) {
        let undone = self
            .primary
            .recovery
            .awaits_undone(&push.object, push.version);
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

    /// An object that was being received is complete.
    pub(super) fn on_received(&mut self, object: &ObjectId, version: Version, sh: &mut Shared) {
        if !self.on_undone_fetched(object, version, sh) {
            self.on_recovered_here(object, sh);
        }
    }

    /// A part is durable at the receiver, or a member cannot send a requested object.
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

    /// An object to be sent is not here at that version, or cannot be read.
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

    /// Stops sending the object to the member.
    pub(super) fn end_outgoing(&mut self, to: OsdId, object: &ObjectId, sh: &mut Shared) {
        if self
            .sending
            .end(to, object)
            .is_some_and(|ended| ended.holds)
        {
            self.release_object(object, sh);
        }
    }

    /// Stops sending any object to the member.
    pub(super) fn stop_sending_to(&mut self, to: OsdId, sh: &mut Shared) {
        for object in self.sending.objects_to(to) {
            self.end_outgoing(to, &object, sh);
        }
    }

    /// Stops sending the object, which is about to change, to members that lack it: to all of them
    /// if it is to be deleted, otherwise to those that nothing waits for.
    pub(super) fn stop_pushing(&mut self, object: &ObjectId, all: bool, sh: &mut Shared) {
        for to in self.sending.receivers_of(object) {
            if self.holders().lacks(to, object) && (all || !self.interval.is_waited_for(to, sh)) {
                self.end_outgoing(to, object, sh);
            }
        }
    }
}
