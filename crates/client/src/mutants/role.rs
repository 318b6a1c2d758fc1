//! Planted bugs of [`Role`](super::Client): what it is told, what it remembers and what it says are
//! spoiled around each of its steps.

use super::{Client as Role, ClientConfig, InFlight};
use crate::cluster::{
    Completion, Done, Failure, ObjectCluster, OpId, Operation, Refused, WatchError, WatchId,
};
use crate::mutants::{Mutant, mutant};
use crate::watch::Target;
use bytes::Bytes;
use nacre_role::{Input, Output};
use nacre_types::{Entity, Epoch, MonId, ObjectId, OsdId, PoolId, Time, Version};
use nacre_wire::msg::check::{check_payload, check_sendable};
use nacre_wire::msg::client::{Dated, OpFailure, OpReply, OpRequest, RequestId, SubOp, SubReply};
use nacre_wire::{ClusterMap, Message, Wire};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A client with the bug that is switched on; without one, the client.
#[derive(Debug)]
pub struct Client {
    role: Role,
    /// Where each operation was sent first.
    first: BTreeMap<u64, (Target, Entity)>,
    /// What each OSD's clock showed, and when that was received.
    clocks: BTreeMap<OsdId, (Dated, Time)>,
}

impl Deref for Client {
    type Target = Role;
    fn deref(&self) -> &Role {
        &self.role
    }
}
impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut Role {
        &mut self.role
    }
}

/// Whether an output sends an operation to an OSD.
const fn is_request(output: &Output) -> bool {
    matches!(
        output,
        Output::Send {
            message: Message::OpRequest(..),
            ..
        }
    )
}

impl Client {
    /// Like [`Role::new`].
    #[must_use]
    pub fn new(config: ClientConfig, now: Time) -> Self {
        let mut role = Role::new(config, now);
        if mutant(Mutant::OpsUnbounded) {
            role.config.ops_max = usize::MAX;
        }
        Self {
            role,
            first: BTreeMap::new(),
            clocks: BTreeMap::new(),
        }
    }

    /// A step of the role: what it remembers afterwards, and what it says in it, is spoiled.
    fn step<T>(
        &mut self,
        now: Time,
        step: impl FnOnce(&mut Role) -> T,
        spoil: impl FnOnce(&mut Vec<Output>),
    ) -> T {
        let (said, bytes) = (self.role.out.len(), self.role.bytes);
        let watches = self.role.watches.before(now);
        let result = step(&mut self.role);
        let mut out = self.role.out.split_off(said);
        spoil(&mut out);
        self.role.watches.after(watches, &mut out);
        for output in &mut out {
            if let Output::Send { to, message, .. } = output
                && let Message::OpRequest(request, _) = message
            {
                self.spoil_request(now, to, request);
            }
        }
        self.role.out.append(&mut out);
        if mutant(Mutant::BytesKept) {
            self.role.bytes = self.role.bytes.max(bytes);
        }
        if mutant(Mutant::RemovedPoolAwaited) {
            let done = &mut self.role.done;
            done.retain(|one| one.result != Err(Failure::NoSuchPool));
        }
        for op in self.role.in_flight.values_mut() {
            if mutant(Mutant::AttemptsAlike) {
                op.attempt = op.attempt.min(1);
            }
            if mutant(Mutant::OvertakenReadTaken) {
                op.doubted = 0;
            }
        }
        result
    }

    fn spoil_request(&mut self, now: Time, to: &mut Entity, request: &mut OpRequest) {
        let id = request.request.sequence;
        let (Some(op), Entity::Osd(osd)) = (self.role.in_flight.get(&id), *to) else {
            return;
        };
        let begun = op.begun;
        if mutant(Mutant::MarkBeyondUnanswered) {
            request.answered_below = self.role.next;
        }
        if mutant(Mutant::MarkForgotten) {
            request.answered_below = 0;
        }
        if mutant(Mutant::AttemptsAlike) {
            request.attempt = 1;
        }
        if mutant(Mutant::ResentUnderNewNumber) && request.attempt > 1 {
            request.request.sequence += 1 << 32;
        }
        if mutant(Mutant::FenceUnsaid) {
            request.fence = Epoch::NONE;
        }
        if mutant(Mutant::DateOfResending) {
            request.dated = self.role.heard.date(osd, now, now);
        }
        if mutant(Mutant::OldReadingUsed) {
            request.dated = self.role.heard.date(osd, begun, Time::ZERO);
        }
        if mutant(Mutant::DriftIgnored)
            && let Some((dated, at)) = self.clocks.get(&osd)
            && begun >= *at
            && request.dated != Dated::default()
        {
            request.dated.reading = dated.reading + (begun.0 - at.0);
        }
        if mutant(Mutant::FirstTargetKept)
            && let Some(target) = op.target
        {
            let ((pg, ..), first) = self.first.entry(id).or_insert((target, *to));
            (request.pg, *to) = (*pg, *first);
        }
    }

    /// Like [`Role::on_message`].
    pub fn on_message(
        &mut self,
        now: Time,
        mut from: Entity,
        mut epoch: Epoch,
        mut message: Message,
    ) {
        let restore = self.spoil_place(&message);
        let aside = self.role.watches.spoil_message(&mut message);
        match &mut message {
            Message::MapFull(full) => {
                if let Ok(map) = ClusterMap::from_bytes(&full.map) {
                    full.map = self.spoil_map(map).to_bytes().into();
                }
            }
            Message::OpReply(reply, _) => {
                if let (Some(OpFailure::Undated { now: reading }), Entity::Osd(osd)) =
                    (&reply.failure, from)
                {
                    self.clocks.insert(osd, (*reading, now));
                }
                if self.ends_early(reply) {
                    return;
                }
                self.spoil_reply(reply);
            }
            Message::OpApplied(applied) => {
                let request = applied.request;
                if self.is_ours(&request) && mutant(Mutant::AppliedIsDone) {
                    let done = Done {
                        version: Version::NONE,
                        results: Vec::new(),
                        payload: Vec::new(),
                    };
                    return self.role.finish(request.sequence, Ok(done));
                }
                if mutant(Mutant::AppliedTwice)
                    && let Some(op) = self.role.in_flight.get_mut(&request.sequence)
                {
                    op.acked = false;
                }
            }
            Message::Refused(_) if mutant(Mutant::RefusedByAnyone) => from = Entity::Mon(MonId(0)),
            _ => {}
        }
        if mutant(Mutant::NewerEpochIgnored) {
            epoch = epoch.min(self.role.epoch());
        }
        let (full, deltas) = (
            matches!(message, Message::MapFull(_)),
            matches!(message, Message::MapDeltas(_)),
        );
        self.step(
            now,
            |role| role.on_message(now, from, epoch, message),
            |out| {
                if full && mutant(Mutant::ResentOutOfOrder) {
                    out.reverse();
                }
                if deltas && mutant(Mutant::OtherHistoryIgnored) {
                    out.retain(|output| !matches!(output, Output::Halt { .. }));
                }
            },
        );
        self.role.watches.put_back(aside);
        if let Some((id, place)) = restore
            && let Some(op) = self.role.in_flight.get_mut(&id)
            && op.place == u64::MAX
        {
            op.place = place;
        }
    }

    fn is_ours(&self, request: &RequestId) -> bool {
        (request.client, request.instance) == (self.role.config.id, self.role.config.instance)
    }

    /// A new map.
    fn spoil_map(&mut self, mut map: ClusterMap) -> ClusterMap {
        if mutant(Mutant::OlderMapTaken) {
            self.role.map = None;
        }
        if mutant(Mutant::FencedGoesOn) {
            map.fences.clear();
        }
        if mutant(Mutant::IntervalUnseen) {
            let known = self.role.map.replace(map);
            let osd = |target: Option<Target>| target.map(|(_, _, osd)| osd);
            let new = |op: &InFlight| {
                let new = self.role.target(&op.operation);
                (osd(new) == osd(op.target)).then_some(new)
            };
            let all = self.role.in_flight.iter();
            let same: Vec<_> = all.filter_map(|(id, op)| Some((*id, new(op)?))).collect();
            for (id, target) in same {
                let op = self.role.in_flight.get_mut(&id).expect("just seen");
                op.target = target;
            }
            map = std::mem::replace(&mut self.role.map, known).expect("just set");
        }
        map
    }

    /// The answer to an operation.
    fn spoil_reply(&mut self, reply: &mut OpReply) {
        if mutant(Mutant::AnswerOfAnother) {
            reply.request.client = self.role.config.id;
            reply.request.instance = self.role.config.instance;
        }
        if mutant(Mutant::OldFailureTaken)
            && reply.failure.is_some()
            && let Some(op) = self.role.in_flight.get(&reply.request.sequence)
        {
            reply.attempt = op.attempt;
        }
        let is_grant = |result: &SubReply| matches!(result, SubReply::Locked { .. });
        if mutant(Mutant::FenceLowered) && reply.results.iter().any(is_grant) {
            self.role.fence = Epoch::NONE;
        }
    }

    /// A failure that should make the client resend the operation ends it.
    fn ends_early(&mut self, reply: &OpReply) -> bool {
        let id = reply.request.sequence;
        let is_last = |op: &InFlight| op.attempt == reply.attempt;
        let ends = match &reply.failure {
            Some(OpFailure::WrongTarget {}) => mutant(Mutant::WrongTargetFinal),
            Some(OpFailure::Undated { .. }) => mutant(Mutant::UndatedFinal),
            _ => false,
        };
        if ends
            && self.is_ours(&reply.request)
            && self.role.in_flight.get(&id).is_some_and(is_last)
            && let Some(failure) = reply.failure.clone()
        {
            self.role.finish(id, Err(Failure::Refused(failure)));
            return true;
        }
        false
    }

    /// The operation that failed seems to have been sent last. Returns its place, to be restored.
    fn spoil_place(&mut self, message: &Message) -> Option<(u64, u64)> {
        let Message::OpReply(reply, _) = message else {
            return None;
        };
        if reply.failure.is_none() || !mutant(Mutant::OvertakenAnswerTaken) {
            return None;
        }
        let id = reply.request.sequence;
        let op = self.role.in_flight.get_mut(&id)?;
        Some((id, std::mem::replace(&mut op.place, u64::MAX)))
    }

    /// Like [`Role::on_peer_reset`].
    pub fn on_peer_reset(&mut self, now: Time, osd: OsdId) {
        let step = |role: &mut Role| {
            if mutant(Mutant::ResetForgotten) {
                role.watches.on_peer_reset(osd);
                role.look_at_watches(now);
            } else {
                role.on_peer_reset(now, osd);
            }
        };
        self.step(now, step, |_| {});
    }

    /// Like [`Role::on_tick`].
    pub fn on_tick(&mut self, now: Time) {
        let mut apart = Vec::new();
        if mutant(Mutant::RefusedSentAlone) {
            let behind = self.role.in_flight.iter_mut().filter(|(_, op)| !op.refused);
            apart.extend(behind.map(|(id, op)| (*id, op.target.take())));
        }
        let spoil = |out: &mut Vec<Output>| {
            if mutant(Mutant::NeverSentAgain) {
                out.retain(|output| !is_request(output));
            }
        };
        self.step(now, |role| role.on_tick(now), spoil);
        for (id, target) in apart {
            if let Some(op) = self.role.in_flight.get_mut(&id) {
                op.target = op.target.or(target);
            }
        }
    }

    /// Like the role's.
    ///
    /// # Errors
    /// Like the role's.
    pub fn submit(&mut self, now: Time, operation: Operation) -> Result<OpId, Refused> {
        let Operation {
            object,
            ops,
            payload,
            snaps,
            ..
        } = &operation;
        let unchecked = check_sendable(object, ops, snaps, payload).is_err()
            && mutant(Mutant::UnsendableTaken)
            || check_payload(ops, payload).is_err() && mutant(Mutant::PayloadUnchecked);
        if unchecked {
            return self.submit_unchecked(now, operation);
        }
        if mutant(Mutant::LargestRefused) && operation.bytes() > self.role.config.bytes_max {
            return Err(Refused::Busy);
        }
        self.step(now, |role| role.submit(now, operation), |_| {})
    }

    /// Submits something harmless, and sends the operation in its place.
    fn submit_unchecked(&mut self, now: Time, operation: Operation) -> Result<OpId, Refused> {
        let said = self.role.out.len();
        let harmless = Operation {
            pool: operation.pool,
            ops: vec![SubOp::Stat {}],
            ..Operation::default()
        };
        let id = self.role.submit(now, harmless)?;
        self.role.out.truncate(said);
        if let Some(op) = self.role.in_flight.get_mut(&id.0) {
            op.operation = operation;
            self.role.send(now, id.0);
        }
        Ok(id)
    }

    /// Like the role's.
    pub fn completions(&mut self, into: &mut Vec<Completion>) {
        let acks = self.role.acks.clone();
        self.role.completions(into);
        if mutant(Mutant::AppliedAfterDone) {
            self.role.acks = acks;
        }
    }
    /// Like the role's.
    pub fn acks(&mut self, into: &mut Vec<OpId>) {
        if mutant(Mutant::AppliedAfterDone) {
            into.append(&mut self.role.acks);
        }
        self.role.acks(into);
    }

    /// Like the role's.
    ///
    /// # Errors
    /// Like the role's.
    pub fn watch(
        &mut self,
        now: Time,
        pool: PoolId,
        object: ObjectId,
        timeout: Duration,
    ) -> Result<WatchId, Refused> {
        let step = |role: &mut Role| role.watch(now, pool, object, timeout);
        let watch = self.step(now, step, |_| {})?;
        self.role.watches.spoil_begun(watch);
        Ok(watch)
    }
    /// Like the role's.
    ///
    /// # Errors
    /// Like the role's.
    pub fn ack_notify(
        &mut self,
        now: Time,
        watch: WatchId,
        notify: RequestId,
        reply: Bytes,
    ) -> Result<(), WatchError> {
        self.role.ack_notify(now, watch, notify, reply)?;
        self.role.watches.spoil_acknowledged(watch);
        Ok(())
    }
}

impl nacre_role::Role for Client {
    fn on_turn(
        &mut self,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        out: &mut Vec<Output>,
    ) {
        for input in inputs {
            match input {
                Input::Message {
                    from,
                    epoch,
                    message,
                } => self.on_message(now, from, epoch, message),
                Input::Tick => self.on_tick(now),
                Input::Gone(Entity::Osd(osd)) => self.on_peer_reset(now, osd),
                other => self.role.on_turn(now, &mut std::iter::once(other), out),
            }
        }
        self.role.take_outputs(out);
    }
    fn next_deadline(&self) -> Time {
        if mutant(Mutant::NoDeadline) && self.role.map.is_some() {
            return self.role.watches.next_deadline();
        }
        self.role.next_deadline()
    }
    fn map(&self) -> Option<&ClusterMap> {
        self.role.map()
    }
}
