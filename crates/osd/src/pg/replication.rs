//! Updates from the primary to all holders of the PG (CEPH-45).
//!
//! ```text
//!  client ─op▶ primary ──Replicate──▶ members, backfill targets
//!                 │ submit                 │ submit
//!                 ▼ Logged                 ▼ Logged
//!  client ◀reply── once logged here and acknowledged by every acting member ◀──ReplicateAcks──
//! ```
//! One log write carries entry and data. Updates are pipelined; they commit in order. Backfill
//! targets get every entry, and the data of objects before their cursor; nothing waits for them.
//! Unacknowledged updates are resent by timer: a member accepts entries only in order, so a gap is
//! detected.
//!
//! Updates that belong together (a clone and the write that needs it) are ordered one after the
//! other and go into one transaction here; members apply them one by one.
//!
//! A client may request a message when its update is applied in memory everywhere (CEPH-46):
//! members then report (`ReplicateApplied`) as soon as their stores do, before the log's flush, and
//! the primary forwards it (`OpApplied`). The final answer follows when the update is durable.

use super::catchup::{miss_clone, miss_newer};
use super::local::{Local, Ops};
use super::pending::Pending;
use super::primary::Primary;
use super::update::{Answer, Change, InFlight, Ordered, OrderedTogether};
use super::{Interval, Lead};
use crate::purpose::Purpose;
use crate::shared::Shared;
use crate::{Mutant, key, mutant};
use nacre_object::Context;
use nacre_object::evaluate::Update;
use nacre_types::{ObjectId, OsdId, Time, Version};
use nacre_wire::msg::client::{OpApplied, OpRequest, op_flag};
use nacre_wire::msg::replication::ReplicaUpdate;
use nacre_wire::{Message, Payload};
use smallvec::SmallVec;

impl Lead<'_> {
    fn advance_committed(&mut self, sh: &mut Shared) {
        let Some(objects) = self.primary.commit(self.local, self.interval, sh) else {
            return;
        };
        self.trim_go_on(sh);
        for object in objects {
            self.process_object(&object, sh);
        }
    }

    /// Orders an operation's update and sends it to all receivers, after a clone of the object if a
    /// snapshot needs one.
    pub(super) fn begin_update(
        &mut self,
        op: Box<Pending>,
        before: Context,
        update: Update,
        sh: &mut Shared,
    ) {
        let Update {
            mut effects,
            payload,
            mut context,
            results,
        } = update;
        let mut ops = Ops::new();
        let clone_bytes = op.clone_bytes.unwrap_or(0);
        let clone = self
            .clones()
            .preserve(&op, &before, &mut context, &mut effects, sh);
        let mut clone = clone.map(|clone| {
            self.ordering()
                .clone_of(&op.request.object, &clone, &before, &mut ops, sh)
        });
        if clone.is_none()
            && !context.is_stored()
            && self.holders().is_lacking(&op.request.object, sh)
        {
            // The entry alone is enough to remove the object, and members that lack the object can
            // accept no more (`unseen.rs`).
            effects.clear();
            sh.counters.borders.deleted_lacking += 1;
        }
        if context.is_stored() {
            // The primary's own changes are not modifications of the object from a user's view.
            let by_client = op.is_clients() && op.own.is_none() && op.request.unix_ms > 0;
            context.modified_ms = if by_client {
                op.request.unix_ms
            } else {
                before.modified_ms
            };
        }
        let OpRequest {
            request,
            answered_below,
            flags,
            ref object,
            ..
        } = op.request;
        let object = object.clone();
        let early = flags & op_flag::ACK != 0;
        let told = results.clone();
        let change = Change {
            object,
            before,
            context,
            effects,
            payload,
            request,
            answered_below,
            results,
        };
        let mut ordered = self.ordering().order(change, &mut ops, sh);
        if self.local.dedup.forgot() && op.request.dated.process == sh.config.process {
            self.local
                .dedup
                .dated(&request, Time(op.request.dated.reading));
        }
        let answer = Answer::new(op, ordered.update.version, told);
        (ordered.update.answers, ordered.update.early) = (vec![answer], early);
        // The clone is made with the first of the two updates.
        let first = clone.as_mut().unwrap_or(&mut ordered);
        first.update.room += clone_bytes;
        let all = clone.into_iter().chain([ordered]).collect();
        self.primary.launch(all, ops, self.local, self.interval, sh);
        sh.counters.writes += 1;
        let answered = &mut self.primary.answered;
        answered.executed(&request);
        answered.confirm(&request, answered_below);
    }

    /// An update is durable here. Commits come in order, so this covers all earlier ones.
    pub(super) fn on_logged(&mut self, version: Version, sh: &mut Shared) {
        let before = self.primary.logged;
        self.primary.logged = before.max(version);
        let me = sh.me();
        self.primary
            .has_taken(me, (before, version), self.interval, sh);
        self.advance_committed(sh);
    }

    /// A member has everything up to some version.
    pub(super) fn on_member_logged(&mut self, from: OsdId, version: Version, sh: &mut Shared) {
        let head = self.local.log.head();
        let primary = &mut *self.primary;
        let Some(peer) = primary.peers.get_mut(&from) else {
            return;
        };
        let (catching, before) = (peer.catching.is_some(), peer.acked);
        peer.note_progress(version.min(head), sh.now);
        let (acked, caught_up) = (peer.acked, catching && peer.catching.is_none());
        self.primary
            .has_taken(from, (before, acked), self.interval, sh);
        if caught_up {
            self.start_recovery(sh);
        }
        self.advance_committed(sh);
    }
}

impl Primary {
    /// Updates that every acting member has are committed: their clients are answered. Returns the
    /// objects whose queues may continue, if any.
    fn commit(&mut self, local: &Local, at: &Interval, sh: &mut Shared) -> Option<Vec<ObjectId>> {
        let me = sh.me();
        if !self.is_peered() {
            return None;
        }
        let acked = |osd: &OsdId| {
            if *osd == me {
                self.logged
            } else {
                let peer = self.peers.get(osd);
                peer.map_or(Version::NONE, |peer| peer.acked)
            }
        };
        let committed = at.acting.iter().map(acked).min().unwrap_or(Version::NONE);
        if committed <= self.committed {
            return None;
        }
        self.committed = committed;
        let any_suspect = self.damage.has_suspects();
        let mut done = Vec::new();
        while self
            .in_flight
            .front()
            .is_some_and(|update| update.version <= committed)
        {
            done.push(self.in_flight.pop_front().expect("just seen"));
        }
        let mut objects = Vec::new();
        for update in done {
            let state = self.objects.get(&update.object);
            state.updates -= 1;
            if state.updates == 0
                && (state.has_queue()
                    || any_suspect
                    || nacre_object::snaps::is_clone(&update.object))
            {
                objects.push(update.object);
            }
            for answer in update.answers {
                self.replies(local).answer(answer, None, sh);
            }
        }
        self.watching.tell_gone(committed, sh);
        Some(objects)
    }

    /// Whether a receiver of updates lacks the object.
    fn lacks(&self, osd: OsdId, object: &ObjectId, local: &Local) -> bool {
        let peer = self.peers.get(&osd);
        let missing = peer.map_or(&local.missing, |peer| &peer.missing);
        missing.contains_key(object)
    }

    /// Makes ordered updates durable here, in one transaction, and sends them to all receivers.
    pub(super) fn launch(
        &mut self,
        mut ordered: OrderedTogether,
        mut ops: Ops,
        local: &mut Local,
        at: &Interval,
        sh: &mut Shared,
    ) {
        let last = ordered
            .last()
            .expect("something was ordered")
            .update
            .version;
        let trim = self.trim_point(local, at, sh);
        if trim > local.log.tail() {
            let here = at.acting.len() >= at.size;
            sh.counters.borders.log_short += u64::from(here);
            sh.counters.borders.log_long += u64::from(!here);
        }
        local.trim(trim, &mut ops);
        local.forget(&sh.config.limits, &mut ops);
        let me = sh.me();
        let receivers: SmallVec<[OsdId; 8]> = at.receivers().filter(|osd| *osd != me).collect();
        for Ordered { update, .. } in &mut ordered {
            miss_clone(&mut self.peers, update);
            let acting = &at.acting;
            let lacks = |osd: &&OsdId| {
                self.lacks(**osd, &update.object, local) && !update.is_anew_at(**osd, acting)
            };
            update.without = receivers.iter().filter(lacks).copied().collect();
            let here = (&*local, at);
            for osd in &receivers {
                self.send_update(*osd, update, trim, here, sh);
            }
        }
        for Ordered { update, .. } in &ordered {
            miss_newer(&mut self.peers, update, &at.acting);
            if update.entry.deleted() && update.effects.is_empty() {
                self.is_on_all(&update.object);
            }
            sh.under_way.begin(&at.acting, update.room);
        }
        // Commits come in order: the last one's covers all.
        at.submit(sh, ops, Purpose::Logged(last));
        for Ordered {
            update,
            context,
            watch_change,
        } in ordered
        {
            let object = &update.object;
            // It may have been overwritten completely.
            self.damage.may_be_whole(object);
            self.recovery.may_have(object);
            self.backfill.note(object);
            let state = self.objects.get(object);
            state.context = Some(context);
            state.updates += 1;
            self.watching
                .note(object, watch_change, update.version, sh.now);
            self.in_flight.push_back(update);
        }
    }

    /// Resends updates that members have not acknowledged for a while.
    pub(super) fn resend_updates(&mut self, local: &Local, at: &Interval, sh: &mut Shared) {
        let (now, after) = (sh.now, sh.config.timing.retry_interval);
        let trim = local.log.tail();
        let mut updates = std::mem::take(&mut self.in_flight);
        let peers: Vec<(OsdId, Version)> = self
            .peers
            .iter()
            .map(|(osd, peer)| (*osd, peer.acked))
            .collect();
        let here = (local, at);
        for update in updates
            .iter_mut()
            .filter(|update| now.since(update.sent) >= after)
        {
            update.sent = now;
            for (osd, acked) in &peers {
                if *acked < update.version {
                    self.send_update(*osd, update, trim, here, sh);
                }
            }
        }
        self.in_flight = updates;
    }

    fn send_update(
        &self,
        to: OsdId,
        update: &InFlight,
        trim: Version,
        (local, at): (&Local, &Interval),
        sh: &mut Shared,
    ) {
        let peer = self.peers.get(&to);
        let cursor = peer.and_then(|peer| peer.backfill.as_ref());
        // Backfill brings objects beyond the target's cursor, recovery those that it lacks or has
        // lost since.
        let lost = || !at.acting.contains(&to) && self.lacks(to, &update.object, local);
        let lacks = update.without.contains(&to) || lost();
        let has = key::is_before(&update.object, cursor) && !lacks && !update.entry_only;
        let payload = if has {
            update.payload.clone()
        } else {
            Payload::new()
        };
        let message = ReplicaUpdate {
            pg: at.pg,
            interval: at.since,
            entry: update.entry.clone(),
            effects: if has {
                update.effects.clone()
            } else {
                Vec::new()
            },
            entry_only: !has,
            payload: nacre_wire::msg::payload_len(&payload) as u64,
            committed: self.committed,
            trim,
            tell_applied: update.early,
            takes: update.room,
        };
        sh.update_later(to, message, payload);
    }

    /// The version up to which the log may be trimmed: enough entries stay for absent members, up
    /// to a maximum.
    fn trim_point(&self, local: &Local, at: &Interval, sh: &Shared) -> Version {
        let limits = &sh.config.limits;
        let all_here = at.acting.len() >= at.size && self.is_clean(local, at);
        let keep = if all_here {
            limits.log_entries_min
        } else {
            limits.log_entries_max
        };
        // In batches: the fixed part of the metadata is rewritten at every trim.
        let slack = if all_here { keep } else { keep / 4 }.max(1);
        let long = local.log.bytes() > limits.log_bytes;
        if local.log.len() < keep + slack && !long {
            return local.log.tail();
        }
        let last = local.log.len().checked_sub(keep + 1);
        let last = last.and_then(|last| local.log.entry(last));
        let by_count = last.map_or(local.log.tail(), |entry| entry.version());
        let candidate = if long {
            by_count.max(local.log.beyond(limits.log_bytes / 4 * 3))
        } else {
            by_count
        };
        candidate.min(self.committed).max(local.log.tail())
    }

    /// A member has acknowledged the updates after one version up to another.
    fn has_taken(
        &self,
        member: OsdId,
        (after, up_to): (Version, Version),
        at: &Interval,
        sh: &mut Shared,
    ) {
        if !at.acting.contains(&member) {
            return;
        }
        let updates = &self.in_flight;
        let known = updates.partition_point(|update| update.version <= after);
        let taken = updates
            .range(known..)
            .take_while(|update| update.version <= up_to);
        sh.under_way
            .end(member, taken.map(|update| update.room).sum());
    }

    /// Bytes of updates that each acting member has not acknowledged.
    pub(super) fn under_way(&self, me: OsdId, at: &Interval) -> Vec<(OsdId, u64)> {
        let missing = |member: &OsdId| {
            let peer = self.peers.get(member);
            let acked = peer.map_or(Version::NONE, |peer| peer.acked);
            let acked = if *member == me { self.logged } else { acked };
            let left = self
                .in_flight
                .iter()
                .filter(|update| update.version > acked);
            (*member, left.map(|update| update.room).sum())
        };
        at.acting.iter().map(missing).collect()
    }

    /// Reports updates that are applied on the whole acting set to clients that requested it.
    pub(super) fn tell_applied(&mut self, at: &Interval, sh: &mut Shared) {
        let me = sh.me();
        // Few clients request it, and every update passes here.
        if !self.in_flight.iter().any(|update| update.early) {
            return;
        }
        let applied = |osd: &OsdId| match self.peers.get(osd) {
            _ if *osd == me || mutant(Mutant::AppliedHereTold) => self.applied,
            Some(peer) => peer.applied.max(peer.acked),
            None => Version::NONE,
        };
        let everywhere = at.acting.iter().map(applied).min();
        let everywhere = everywhere.unwrap_or(Version::NONE);
        let updates = self.in_flight.iter_mut();
        for update in updates.take_while(|update| update.version <= everywhere) {
            if std::mem::take(&mut update.early) {
                let Answer { to, reply, .. } = update
                    .answers
                    .first()
                    .expect("an update answers its client first");
                let applied = OpApplied {
                    request: reply.request,
                    version: reply.version,
                    attempt: reply.attempt,
                };
                sh.reply(*to, Message::OpApplied(applied), None);
            }
        }
    }
}
