//! Client operations at the primary: admission, order, reads. `evaluate.rs` decides what an
//! operation does; `replication.rs` makes it last.

use super::Lead;
use super::answered::{Answered, Known};
use super::object::{Listing, Pending, Reading};
use super::update::Answer;
use crate::awaited::Awaited;
use crate::evaluating::EvaluateJob;
use crate::programs::{Programs, keeps_sources};
use crate::room::UPDATE_BESIDE;
use crate::shared::{Shared, refusal};
use crate::{Mutant, key, mutant};
use nacre_object::Context;
use nacre_object::claims::Scene;
use nacre_object::evaluate::{self, Outcome, Setting, Update};
use nacre_object::fetched::{Fetched, Want};
use nacre_object::snaps;
use nacre_role::Output;
use nacre_store::{Read, ReadError, ReadReply};
use nacre_types::{Entity, Name, ObjectId, OsdId, SnapId, Time, Version};
use nacre_wire::msg::check::inline_bytes;
use nacre_wire::msg::client::{Dated, OpBlocked, OpFailure, OpReply, OpRequest, RequestId, SubOp};
use nacre_wire::{Message, Payload};

/// What the front of an object's queue waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The interval to be activated, or the old one's leases to run out.
    Serving,
    /// A read lease from every member.
    Lease,
    /// The object's attributes.
    Context,
    /// Earlier operations on the object.
    Order,
    /// The source of a class.
    Program,
    /// Recovery to bring the object.
    Missing,
    /// Recovery to make enough copies of the object.
    Degraded,
    /// Other updates to be acknowledged: a member has no room for more at one time.
    Room,
    /// Recovery or backfill to finish copying the object.
    Held,
    /// A clone of the object to be in a state that the operation can go on from.
    Clone,
    /// The object that is copied.
    Source,
}

impl Wait {
    const fn reason(self) -> &'static str {
        match self {
            Self::Serving => "the placement group is peering",
            Self::Lease => "a member has not granted a read lease",
            Self::Context => "the object's metadata is being read",
            Self::Order => "earlier operations on the object are not finished",
            Self::Program => "the source of its class is being fetched",
            Self::Missing => "the object is being recovered",
            Self::Degraded => "the object has too few copies and is being recovered",
            Self::Room => "a nearly full or small store takes few updates at one time",
            Self::Held => "the object is being copied to another member",
            Self::Clone => "a clone of the object is being looked at, recovered or copied",
            Self::Source => "the object that is copied is being read",
        }
    }
}

fn ms_since(then: Time, now: Time) -> u64 {
    u64::try_from(now.since(then).as_millis()).unwrap_or(u64::MAX)
}

impl Lead<'_> {
    /// A client's operation. `name` is the client's.
    pub(super) fn on_request(
        &mut self,
        from: Entity,
        name: &Name,
        mut request: OpRequest,
        payload: Payload,
        sh: &mut Shared,
    ) {
        let attempt = request.attempt;
        let id = request.request;
        let refuse = |failure: OpFailure, sh: &mut Shared| sh.refuse(from, id, attempt, failure);
        let pool = sh
            .map
            .as_ref()
            .and_then(|map| map.pools.get(&self.id().pool));
        let possible = pool.map_or(Ok(()), |pool| {
            snaps::validate(&request, &pool.snaps)
                .and_then(|()| keeps_sources(&pool.name, &request, &payload))
        });
        if let Err(failure) = evaluate::validate(&request, &payload).and(possible) {
            refuse(failure, sh);
            return;
        }
        let now = sh.now;
        let inline = inline_bytes(&request.ops);
        let bytes = nacre_wire::msg::payload_len(&payload) as u64 + inline;
        if self.is_in_hand(from, &request, sh) {
            return;
        }
        let serving = self.serving(sh);
        let writes = request.ops.iter().any(SubOp::is_write);
        if let Some(failure) = self.comes_again(from, &request, bytes, serving, writes, sh) {
            refuse(failure, sh);
            return;
        }
        // All of one name wait in the live object's queue, to be told where their snapshot is.
        let snapshot = Some(request.object.snapshot).filter(|snapshot| *snapshot != SnapId::HEAD);
        request.object.snapshot = SnapId::HEAD;
        let op = Pending {
            payload,
            inline,
            writes,
            name: name.clone(),
            snapshot,
            blocked: !serving,
            ..Pending::new(from, request, sh.now)
        };
        op.take_up(sh);
        let primary = &mut *self.primary;
        primary.answered.confirm(&id, op.request.answered_below);
        if let [SubOp::ListObjects { .. }] = op.request.ops[..] {
            let number = primary.objects.number();
            let listing = Listing {
                op,
                known: Default::default(),
                missing: None,
                waiting: 0,
                failed: false,
            };
            primary.objects.listings.insert(number, listing);
            self.try_listing(number, sh);
            return;
        }
        let object = op.request.object.clone();
        primary.watching.hear(&object, id.client, id.instance, now);
        if matches!(from, Entity::Osd(_)) && matches!(op.request.ops[..], [SubOp::ReadWhole {}]) {
            // For a copy. What waits here may itself wait for a copy of what waits for this one
            // (`copy.rs`).
            primary.objects.push_front(&object, op);
        } else {
            primary.objects.push(&object, op);
        }
        self.process_object(&object, sh);
    }

    /// Throws away what is in hand: the interval is over, clients will send again.
    pub(super) fn drop_operations(&mut self, sh: &mut Shared) {
        self.forget_under_way(sh);
        let primary = &mut *self.primary;
        let mut gone = primary.objects.drain();
        let notifies = primary.watching.drain();
        notifies.iter().for_each(|op| op.take_back(sh));
        gone.extend(notifies);
        gone.extend(
            primary
                .in_flight
                .drain(..)
                .flat_map(|update| update.answers)
                .filter_map(|answer| answer.op),
        );
        for op in gone {
            op.release(sh);
        }
    }

    pub(super) fn answer(&mut self, answer: Answer, before: Option<Time>, sh: &mut Shared) {
        let Answer {
            to,
            reply,
            payload,
            op,
        } = answer;
        if !self.primary.turned_away.is_empty() {
            // A repetition of it may have been turned away.
            self.primary.turned_away.take(&reply.request);
        }
        sh.counters.ops += 1;
        if let Some(op) = op {
            op.release(sh);
        }
        if reply.request.sequence == 0 {
            return;
        }
        sh.reply(to, Message::OpReply(reply, payload), before);
    }

    /// Whether operations wait that a read lease could release.
    #[must_use]
    pub fn waits_for_lease(&self) -> bool {
        self.primary.is_active() && !self.primary.objects.is_idle()
    }

    /// Everything may have become possible.
    pub(crate) fn process_all_objects(&mut self, sh: &mut Shared) {
        let primary = &mut *self.primary;
        for object in primary.objects.waiting() {
            self.process_object(&object, sh);
        }
        let listings: Vec<u64> = self.primary.objects.listings.keys().copied().collect();
        for number in listings {
            self.try_listing(number, sh);
        }
    }

    /// Executes what is possible at the front of an object's queue.
    pub(super) fn process_object(&mut self, object: &ObjectId, sh: &mut Shared) {
        self.repair_if_quiet(object, sh);
        while self.step(object, sh).is_none() {}
        if snaps::is_clone(object) {
            // What changes the live object may have waited for its clone.
            let live = snaps::live(object);
            while self.step(&live, sh).is_none() {}
        }
        let keep = sh.config.limits.contexts;
        self.primary.objects.shrink(keep);
    }

    pub(super) fn serving(&self, sh: &Shared) -> bool {
        self.primary.is_active() && self.primary.serve_after <= sh.now
    }

    /// Until when reads may be answered.
    pub(super) fn lease_until(&self, sh: &Shared) -> Time {
        let me = sh.me();
        let others = self.interval.acting.iter().filter(|osd| **osd != me);
        others
            .map(|osd| sh.peers.lease_until(*osd))
            .min()
            .unwrap_or(Time::MAX)
    }

    /// What is next of an object's operations.
    pub(super) fn front_of(&self, object: &ObjectId) -> Option<&Pending> {
        self.primary.objects.peek(object)?.front()
    }

    /// Whether a member should have the object and has not.
    pub(super) fn lacks(&self, osd: OsdId, object: &ObjectId) -> bool {
        self.missing_at(osd).contains_key(object)
    }

    /// What a member should have and has not; of ourselves and those that get no updates, what we
    /// miss.
    pub(super) fn missing_at(
        &self,
        osd: OsdId,
    ) -> &super::ByObject<nacre_wire::msg::replication::Missing> {
        let peer = self.primary.peers.get(&osd);
        peer.map_or(&self.local.missing, |peer| &peer.missing)
    }

    /// What the front of the queue waits for recovery to bring: its object, or a clone that it
    /// touches.
    pub(super) fn awaited_copy(&mut self, object: &ObjectId, sh: &mut Shared) -> Option<ObjectId> {
        let wait = self.obstacle(object, sh)?;
        self.copy_waited_for(object, wait, sh)
    }
    fn copy_waited_for(&self, object: &ObjectId, wait: Wait, sh: &Shared) -> Option<ObjectId> {
        match wait {
            Wait::Missing | Wait::Degraded => Some(object.clone()),
            Wait::Clone => {
                let front = self.front_of(object)?;
                self.clone_waited_for(object, sh)
                    .filter(|clone| self.keeps_waiting(clone, front, sh))
            }
            _ => None,
        }
    }

    /// What stands between the front of the queue and its execution.
    fn obstacle(&mut self, object: &ObjectId, sh: &mut Shared) -> Option<Wait> {
        if !self.serving(sh) {
            return Some(Wait::Serving);
        }
        let (now, min_size) = (sh.now, self.interval.min_size);
        if self.local.missing.contains_key(object) {
            return Some(Wait::Missing);
        }
        let acting = &self.interval.acting;
        let having = acting
            .iter()
            .filter(|osd| !self.lacks(**osd, object))
            .count();
        let lost = self.is_lost(object);
        let lacks = |osd: OsdId| self.lacks(osd, object) && self.is_waited_for(osd, sh);
        let lacking = having < acting.len() || self.interval.backfill_targets().any(lacks);
        let primary = &mut *self.primary;
        let suspect = primary.damage.is_suspect(object);
        let state = primary.objects.get(object);
        let front = state.front_mut()?;
        if !learn_of_calls(front, &sh.programs) {
            return Some(Wait::Program);
        }
        let is_write = front.is_write();
        let clones = front.clone_bytes.unwrap_or(0);
        // As the update that comes of it is counted (`room_of`).
        let records = nacre_store::INDEX_COST * front.inline;
        let bytes =
            nacre_wire::msg::payload_len(&front.payload) as u64 + records + UPDATE_BESIDE + clones;
        let uncommitted = front.reads_uncommitted() || mutant(Mutant::ReadUncommitted);
        let needs_copies = having < min_size || (is_write && lacking);
        // What only deletes can do without, as far as it leaves nothing (to know that, the object
        // is looked at) or there is no room for it.
        if needs_copies && (!front.only_deletes() || lost) {
            return Some(Wait::Degraded);
        }
        // What was found damaged is looked at when nothing is under way on it.
        if suspect {
            return Some(Wait::Order);
        }
        if state.context.is_none() {
            return Some(Wait::Context);
        }
        if state.exclusive || (is_write && state.reads > 0) {
            return Some(Wait::Order);
        }
        if !is_write && state.updates > 0 && !uncommitted {
            return Some(Wait::Order);
        }
        let held = state.held > 0;
        if needs_copies {
            let state = self.primary.objects.peek(object)?;
            let (front, context) = (state.front()?, state.context.as_ref()?);
            if !self.leaves_nothing(front, context, sh) && self.keeps_waiting(object, front, sh) {
                return Some(Wait::Degraded);
            }
        }
        if is_write && sh.under_way.must_wait(&self.interval.acting, bytes) {
            sh.counters.borders.room_waits += 1;
            sh.room_waits.insert(self.id());
            return Some(Wait::Room);
        }
        if is_write && (held || self.in_compared_range(object)) {
            return Some(Wait::Held);
        }
        let state = self.primary.objects.peek(object)?;
        let (front, context) = (state.front()?, state.context.as_ref()?);
        if front.source.is_none() && front.request.ops.iter().any(|op| op.source().is_some()) {
            return Some(Wait::Source);
        }
        if is_write && !self.clones_are_ready(front, context, sh) {
            return Some(Wait::Clone);
        }
        if !is_write && self.lease_until(sh) <= now {
            sh.counters.lease_waits += 1;
            return Some(Wait::Lease);
        }
        None
    }

    /// One step of an object's queue; says what it waits for, if for anything.
    fn step(&mut self, object: &ObjectId, sh: &mut Shared) -> Option<Wait> {
        let state = self.primary.objects.existing(object);
        let front_exists = state.is_some_and(|state| state.has_queue());
        if !front_exists {
            return Some(Wait::Order);
        }
        if let Some(wait) = self.obstacle(object, sh) {
            match wait {
                Wait::Missing | Wait::Degraded if self.is_lost(object) => {
                    self.fail_all(object, 0, sh)
                }
                Wait::Missing | Wait::Degraded => self.recover_now(object, sh),
                Wait::Context => self.load_context(object, sh),
                Wait::Clone => self.prepare_clones(object, sh),
                Wait::Source => self.ask_source(object, sh),
                Wait::Held => self.make_way(object, sh),
                _ => {}
            }
            return Some(wait);
        }
        let op = self.primary.objects.pop(object, sh.now).expect("checked");
        if op.is_write() && self.answered_from_memory(&op, sh) {
            return None;
        }
        self.execute(op, Fetched::default(), sh)
    }

    /// Reads what the operation cannot be evaluated without.
    fn read_for(&mut self, op: Pending, wants: Vec<Want>, fetched: Fetched, sh: &mut Shared) {
        let (id, since, is_write) = (self.id(), self.interval.since, op.is_write());
        let store_key = key::store_key(id, &op.request.object);
        let primary = &mut *self.primary;
        let number = primary.objects.number();
        let waiting = wants.len();
        // The last one takes the key itself.
        let keys = std::iter::repeat_n(store_key, waiting);
        for ((index, want), store_key) in wants.iter().enumerate().zip(keys) {
            sh.read(
                id,
                since,
                want.read(store_key),
                Awaited::OpRead { op: number, index },
            );
        }
        let state = primary.objects.get(&op.request.object);
        state.reads += 1;
        state.exclusive = is_write;
        let replies = wants.iter().map(|_| None).collect();
        let reading = Reading {
            op,
            fetched,
            wants,
            replies,
            waiting,
            failed: None,
        };
        primary.objects.begin_reading(number, reading);
    }

    /// Lets somebody else evaluate the operation.
    fn hand_out(
        &mut self,
        op: Pending,
        context: Context,
        full: bool,
        fetched: Fetched,
        scene: Scene,
        sh: &mut Shared,
    ) {
        sh.programs.counters.jobs += 1;
        let facts = sh.programs.facts(&op);
        let brought = self.brought(&op, &context, sh);
        let (pg, interval, may_write) = (self.id(), self.interval.since, op.is_write());
        let primary = &mut *self.primary;
        let number = primary.objects.number();
        let (request, payload) = (op.request.clone(), op.payload.clone());
        let state = primary.objects.get(&op.request.object);
        state.reads += 1;
        state.exclusive = may_write;
        primary.objects.evaluating.insert(number, op);
        let job = EvaluateJob {
            pg,
            interval,
            number,
            request,
            payload,
            context,
            fetched,
            full,
            may_write,
            scene,
            brought,
            facts,
        };
        sh.out.push(Output::Run(std::sync::Arc::new(job)));
    }

    /// Somebody else has evaluated an operation.
    pub(crate) fn on_evaluated(&mut self, number: u64, outcome: Outcome, sh: &mut Shared) {
        let full = self.is_full(sh);
        let primary = &mut *self.primary;
        let Some(op) = primary.objects.evaluating.remove(&number) else {
            return;
        };
        let object = op.request.object.clone();
        let state = primary.objects.get(&object);
        state.reads -= 1;
        state.exclusive = false;
        let context = state
            .context
            .clone()
            .expect("kept while the operation was under way");
        let scene = self.scene(&op, &context, sh);
        if self
            .conclude(op, context, full, scene, outcome, sh)
            .is_none()
        {
            self.process_object(&object, sh);
        }
    }

    /// Whether updates that need room are refused: a member cannot refuse what was ordered, so it
    /// must not come so far.
    pub(super) fn is_full(&self, sh: &Shared) -> bool {
        sh.is_full(self.id().pool)
            || self
                .interval
                .receivers()
                .any(|osd| sh.peers.is_nearly_full(osd))
    }

    /// Whether the store of everybody who gets the update takes it in one transaction: what was
    /// ordered cannot be refused any more, and a store that does not take it stops its daemon. Half
    /// of what they take is for the group's own log, which grows and is trimmed in the same
    /// transaction.
    fn fits_stores(&self, update: &Update, sh: &Shared) -> bool {
        let theirs = |osd: OsdId| self.primary.logged_max(osd);
        let most = self
            .interval
            .receivers()
            .map(theirs)
            .fold(sh.logged_max, u64::min);
        evaluate::small_bytes(&update.effects) as u64 <= most / 2
    }

    /// Whether the members could bear the update beside as large ones of other primaries. One that
    /// is not larger than what a primary may always have under way was looked at before; what an
    /// operator does to make room (`FULL_OK`) is let through. A clone takes room whatever makes it,
    /// a deletion too: as long as there is enough.
    fn fits_rooms(&self, op: &Pending, update: &Update, sh: &Shared) -> bool {
        let bytes =
            super::update::room_of(&update.effects, &update.payload) + op.clone_bytes.unwrap_or(0);
        let acting = &self.interval.acting;
        // Who goes without takes nothing that counts.
        let takes = |osd: &OsdId| !op.only_deletes() || !self.goes_without(*osd, sh);
        let too_much = |osd: &OsdId| takes(osd) && sh.under_way.is_too_much(&[*osd], bytes);
        let fits = !sh.under_way.is_too_much(acting, bytes) || !acting.iter().any(too_much);
        if op.clone_bytes.is_some() {
            return fits && sh.room.bears(bytes);
        }
        fits || op.request.flags & nacre_wire::msg::client::op_flag::FULL_OK != 0
    }

    pub(super) fn load_context(&mut self, object: &ObjectId, sh: &mut Shared) {
        let (id, since) = (self.id(), self.interval.since);
        let state = self.primary.objects.get(object);
        if !state.loading {
            state.loading = true;
            sh.counters.contexts_loaded += 1;
            sh.read(
                id,
                since,
                Read::Stat(key::store_key(id, object)),
                Awaited::Stat(object.clone()),
            );
        }
    }

    pub(super) fn on_stat(
        &mut self,
        object: &ObjectId,
        reply: Result<ReadReply, ReadError>,
        sh: &mut Shared,
    ) {
        let primary = &mut *self.primary;
        let state = primary.objects.get(object);
        state.loading = false;
        match reply {
            Ok(ReadReply::Stat(stat)) => {
                let context = Context::of(stat);
                primary.watching.look_at(object, &context.claims, sh.now);
                primary.objects.get(object).context = Some(context);
            }
            Ok(other) => panic!("a stat answered with {other:?}"),
            Err(_) => {
                // Not even its version can be read; the log may know it.
                let last = self
                    .local
                    .log
                    .entries()
                    .iter()
                    .rev()
                    .find(|entry| entry.object() == object);
                match last.map(|entry| (entry.version(), entry.deleted())) {
                    Some((version, false)) if !self.is_lost(object) => {
                        self.suspect(sh.me(), object, version, sh)
                    }
                    _ => {
                        self.fail_all(object, 0, sh);
                        return;
                    }
                }
            }
        }
        self.process_object(object, sh);
    }

    /// Nobody has the object in a form that can be read.
    fn fail_all(&mut self, object: &ObjectId, offset: u64, sh: &mut Shared) {
        for op in self.primary.objects.take_queue(object) {
            self.forget_own(&op);
            self.fail(op, OpFailure::Corrupt { offset }, sh);
        }
    }

    /// Answers a resend of an update, or refuses one that may have been executed.
    pub(super) fn answered_from_memory(&mut self, op: &Pending, sh: &mut Shared) -> bool {
        if op.own.is_some() {
            return false;
        }
        let id = op.request.request;
        let known = match Some(self.primary.answered.known(&id)) {
            Some(Known::Answered(answered)) => Some(answered.clone()),
            // An update of the client's that is remembered below says more.
            Some(Known::Forgotten)
                if !matches!(self.local.dedup.seen(&id), super::dedup::Seen::Done(_)) =>
            {
                self.fail(op.clone(), OpFailure::Superseded {}, sh);
                return true;
            }
            _ => None,
        };
        if let Some(Answered {
            failure,
            results,
            seen,
        }) = known
        {
            sh.counters.borders.answered_again += 1;
            // What it saw may still be lost: like the first answer, this one waits until that is
            // committed (simulator, seed 202).
            let attempt = op.request.attempt;
            let reply = OpReply {
                request: id,
                failure,
                version: Version::NONE,
                results,
                attempt,
            };
            let answer = Answer {
                to: op.from,
                reply,
                payload: Payload::new(),
                op: Some(op.clone()),
            };
            self.answer_when_committed(seen, answer, sh);
            return true;
        }
        // Order (DESIGN §3): what its client sent after it may not happen before it.
        let overtaken = self.local.dedup.is_overtaken(&id, &op.request.object)
            && !mutant(Mutant::OvertakenExecuted);
        let (version, results) = match self.local.dedup.seen(&id) {
            super::dedup::Seen::New if !overtaken => return false,
            super::dedup::Seen::Stranger(horizon) if !overtaken => {
                let Dated { process, reading } = op.request.dated;
                let after = process == sh.config.process && Time(reading) > horizon;
                if after || mutant(Mutant::ForgottenClientExecutedAgain) {
                    return false;
                }
                sh.counters.borders.before_horizon += 1;
                self.fail(op.clone(), OpFailure::Superseded {}, sh);
                return true;
            }
            super::dedup::Seen::New | super::dedup::Seen::Stranger(_) => {
                sh.counters.borders.overtaken += 1;
                self.fail(op.clone(), OpFailure::Superseded {}, sh);
                return true;
            }
            super::dedup::Seen::Superseded if mutant(Mutant::SupersededExecuted) => return false,
            super::dedup::Seen::Superseded => {
                sh.counters.borders.superseded += 1;
                self.fail(op.clone(), OpFailure::Superseded {}, sh);
                return true;
            }
            super::dedup::Seen::Done(done) => (done.version(), done.results().to_vec()),
        };
        sh.counters.dedup_hits += 1;
        let reply = OpReply {
            request: id,
            failure: None,
            version,
            results,
            attempt: op.request.attempt,
        };
        let answer = Answer {
            to: op.from,
            reply,
            payload: Payload::new(),
            op: Some(op.clone()),
        };
        self.answer_when_committed(version, answer, sh);
        true
    }

    pub(super) fn fail(&mut self, op: Pending, failure: OpFailure, sh: &mut Shared) {
        // Its client believes this answer: a copy of the request that arrives later must not be
        // executed.
        if op.is_write()
            && op.is_clients()
            && matches!(failure, OpFailure::Corrupt { .. } | OpFailure::Full {})
        {
            let seen = self.local.log.head();
            let answered = Answered {
                failure: Some(failure.clone()),
                results: Vec::new(),
                seen,
            };
            self.remember_answer(op.request.request, answered, sh);
        }
        self.answer(Self::failure_answer(op, failure), None, sh);
    }

    /// A copy of the operation gets the same answer; the oldest answers make room.
    fn remember_answer(&mut self, request: RequestId, answered: Answered, sh: &Shared) {
        if mutant(Mutant::AnswerForgotten) {
            return;
        }
        let primary = &mut *self.primary;
        primary.answered.remember(request, answered);
        let most = sh.config.limits.answered_bytes;
        if primary.answered.is_too_large(most) {
            // What was turned away comes again, and was not executed either.
            let open = primary.objects.in_hand().chain(primary.turned_away.all());
            primary.answered.shrink(most, open);
        }
    }

    fn failure_answer(op: Pending, failure: OpFailure) -> Answer {
        let (request, attempt) = (op.request.request, op.request.attempt);
        let reply = refusal(request, attempt, failure);
        Answer {
            to: op.from,
            reply,
            payload: Payload::new(),
            op: Some(op),
        }
    }

    pub(super) fn on_op_read(
        &mut self,
        number: u64,
        index: usize,
        reply: Result<ReadReply, ReadError>,
        sh: &mut Shared,
    ) {
        let primary = &mut *self.primary;
        let Some(reading) = primary.objects.reading(number) else {
            return;
        };
        match reply {
            Ok(reply) => {
                reading.replies[index] = Some(reply);
            }
            Err(ReadError::NotFound) => {}
            Err(error) => reading.failed = Some(error),
        }
        reading.waiting -= 1;
        if reading.waiting > 0 {
            return;
        }
        let Reading {
            mut op,
            mut fetched,
            wants,
            replies,
            failed,
            ..
        } = primary.objects.end_reading(number).expect("just seen");
        if matches!(wants[..], [Want::Clone(_), ..]) {
            let weight = |reply: &Option<ReadReply>| {
                if let Some(ReadReply::Weight(bytes)) = reply {
                    *bytes
                } else {
                    0
                }
            };
            op.clone_bytes = Some(replies.iter().map(weight).sum());
        }
        let object = op.request.object.clone();
        let state = primary.objects.get(&object);
        state.reads -= 1;
        state.exclusive = false;
        match failed {
            Some(error) if self.is_lost(&object) => {
                let (ReadError::Corrupt { offset, .. } | ReadError::Device { offset, .. }) = error
                else {
                    self.fail(op, OpFailure::Corrupt { offset: 0 }, sh);
                    self.process_object(&object, sh);
                    return;
                };
                self.fail(op, OpFailure::Corrupt { offset }, sh);
            }
            // Another member may have a good copy: the operation waits until that is here, and is
            // executed then.
            Some(_) => {
                let primary = &mut *self.primary;
                let version = primary
                    .objects
                    .get(&object)
                    .context
                    .as_ref()
                    .map_or(Version::NONE, |context| context.version);
                primary.objects.push_front(&object, op);
                self.suspect(sh.me(), &object, version, sh);
            }
            None => {
                for (want, reply) in wants.into_iter().zip(replies) {
                    fetched.take(want, reply);
                }
                fetched.end_round();
                if self.execute(op, fetched, sh).is_some() {
                    return;
                }
            }
        }
        self.process_object(&object, sh);
    }

    /// Decides what the operation does and sets it going; or says what it waits for, and leaves it
    /// at the front.
    pub(super) fn execute(
        &mut self,
        op: Pending,
        fetched: Fetched,
        sh: &mut Shared,
    ) -> Option<Wait> {
        let full = self.is_full(sh);
        let state = self.primary.objects.get(&op.request.object);
        let mut context = state
            .context
            .clone()
            .expect("loaded before anything is executed");
        context.damaged = self.is_lost(&op.request.object);
        if op.own.is_some() || matches!(op.request.ops[..], [SubOp::Notify { .. }]) {
            self.execute_watch(op, context, sh);
            return None;
        }
        // Only one that asks for a snapshot may have to go elsewhere.
        let asked = op.snapshot.map(|_| op.request.object.clone());
        let (op, context) = match self.at_snapshot(op, context, sh) {
            Ok(here) => here,
            Err(other) => {
                while asked.as_ref() != Some(&other) && self.step(&other, sh).is_none() {}
                return None;
            }
        };
        if op.is_write() && op.clone_bytes.is_none() {
            let cloned = self.cloned_from(&op, &context, sh);
            if !cloned.is_empty() {
                let id = self.id();
                let wants = cloned
                    .iter()
                    .map(|of| Want::Clone(key::store_key(id, of)))
                    .collect();
                self.read_for(op, wants, fetched, sh);
                return None;
            }
        }
        let source = op.source.clone().transpose();
        let brought = self.brought(&op, &context, sh);
        let scene = self.scene(&op, &context, sh);
        sh.programs.prepare(&op, sh.now);
        let pool = sh
            .map
            .as_ref()
            .and_then(|map| map.pools.get(&self.id().pool));
        let impossible = pool.and_then(|pool| snaps::impossible(&op.request, &pool.snaps));
        let broken = source
            .err()
            .or(impossible)
            .or_else(|| sh.programs.broken(&op.request));
        let may_write = op.is_write();
        let runtime = &mut sh.programs.runtime;
        let setting = Setting {
            full,
            may_write,
            scene: &scene,
            brought: &brought,
        };
        let outcome = match broken {
            Some(failure) => Outcome::failed(failure),
            None => evaluate::evaluate(
                &op.request,
                &op.payload,
                &context,
                fetched,
                &setting,
                runtime,
            ),
        };
        self.conclude(op, context, full, scene, outcome, sh)
    }

    /// It cannot go on yet: what is behind it waits for it.
    fn back_to_front(&mut self, op: Pending) {
        let object = op.request.object.clone();
        self.primary.objects.push_front(&object, op);
    }

    /// Does what the evaluation said.
    fn conclude(
        &mut self,
        op: Pending,
        context: Context,
        full: bool,
        scene: Scene,
        outcome: Outcome,
        sh: &mut Shared,
    ) -> Option<Wait> {
        let attempt = op.request.attempt;
        let request = op.request.request;
        match outcome {
            // It was taken for a read, and its class became another while it read: what writes wait
            // for it has not waited for.
            Outcome::Update(_) if !op.is_write() => {
                let mut op = op;
                if learn_of_calls(&mut op, &sh.programs) && !op.is_write() {
                    let why = "a method that only reads has written".to_owned();
                    let failed = Outcome::failed(OpFailure::Invalid { why });
                    return self.conclude(op, context, full, scene, failed, sh);
                }
                self.back_to_front(op);
            }
            Outcome::Update(_) if !self.clones_are_ready(&op, &context, sh) => {
                // Its queue finds out what it waits for.
                self.back_to_front(op);
            }
            Outcome::Back { snap } => {
                let back = [&op.back[..], &[snap]].concat();
                self.back_to_front(Pending {
                    back,
                    clone_bytes: None,
                    ..op
                });
            }
            Outcome::Update(update) if !self.fits_stores(&update, sh) => {
                return self.conclude(
                    op,
                    context,
                    full,
                    scene,
                    Outcome::failed(OpFailure::TooLarge {}),
                    sh,
                );
            }
            Outcome::Update(update) if !self.fits_rooms(&op, &update, sh) => {
                return self.conclude(
                    op,
                    context,
                    full,
                    scene,
                    Outcome::failed(OpFailure::Full {}),
                    sh,
                );
            }
            Outcome::Update(update) => match self.room_for_clone(&op, &context, sh) {
                Ok(()) => self.begin_update(op, context, update, sh),
                Err(failure) => {
                    return self.conclude(op, context, full, scene, Outcome::failed(failure), sh);
                }
            },
            Outcome::Read { wants, fetched } => self.read_for(op, wants, fetched, sh),
            Outcome::Heavy { fetched } => self.hand_out(op, context, full, fetched, scene, sh),
            Outcome::Program { moment } => {
                self.back_to_front(Pending {
                    awaits_since: Some(moment),
                    ..op
                });
            }
            Outcome::Answer {
                failure,
                results,
                payload,
            } => {
                // It tells what the object is now: only under a lease, and when what it saw is
                // committed.
                let lease = self.lease_until(sh);
                if lease <= sh.now {
                    self.back_to_front(op);
                    sh.counters.lease_waits += 1;
                    return Some(Wait::Lease);
                }
                if op.is_write() {
                    // Its client believes the answer: a copy of the request that arrives later must
                    // not be executed.
                    let answered = Answered {
                        failure: failure.clone(),
                        results: results.clone(),
                        seen: self.local.log.head(),
                    };
                    self.remember_answer(request, answered, sh);
                }
                let version = context.version;
                let reply = OpReply {
                    request,
                    failure,
                    version,
                    results,
                    attempt,
                };
                let updates = self.primary.objects.get(&op.request.object).updates;
                let uncommitted = op.reads_uncommitted() || mutant(Mutant::ReadUncommitted);
                let answer = Answer {
                    to: op.from,
                    reply,
                    payload,
                    op: Some(op),
                };
                if updates > 0 && !uncommitted {
                    let seen = self.local.log.head();
                    self.answer_when_committed(seen, answer, sh);
                } else {
                    self.answer(answer, Some(lease), sh);
                }
            }
        }
        None
    }

    /// Tells clients why their operations wait.
    pub(super) fn explain_waiting(&mut self, sh: &mut Shared) {
        let complain = sh.config.timing.complain_after;
        let now = sh.now;
        let primary = &mut *self.primary;
        let late: Vec<(ObjectId, Entity, OpRequest, Time)> = primary
            .objects
            .pending_mut()
            .filter(|(_, op)| op.is_clients() && now.since(op.explained) >= complain)
            .map(|(object, op)| {
                op.explained = now;
                (object.clone(), op.from, op.request.clone(), op.received)
            })
            .collect();
        let under_way = primary.objects.under_way_mut();
        for (doing, op) in
            under_way.filter(|(_, op)| op.is_clients() && now.since(op.explained) >= complain)
        {
            op.explained = now;
            let reason = format!("{doing} ({}, {})", op.request.pg, op.request.object);
            let blocked = OpBlocked {
                request: op.request.request,
                reason,
                since_ms: ms_since(op.received, now),
            };
            sh.reply(op.from, Message::OpBlocked(blocked), None);
        }
        for (object, from, request, received) in late {
            let reason = match self.obstacle(&object, sh) {
                Some(Wait::Serving) => match Some(self.primary.waits_for()) {
                    Some(osds) if !osds.is_empty() => {
                        let list: Vec<String> = osds.iter().map(ToString::to_string).collect();
                        format!(
                            "{} {} waits for {}",
                            Wait::Serving.reason(),
                            self.id(),
                            list.join(", ")
                        )
                    }
                    _ => format!("{} ({})", Wait::Serving.reason(), self.id()),
                },
                Some(wait) => {
                    let copy = self.copy_waited_for(&object, wait, sh);
                    let full = copy.and_then(|copy| self.without_room(&copy, sh));
                    let full =
                        full.map_or_else(String::new, |osd| format!("; {osd} has no room for it"));
                    format!("{}{full} ({}, {object})", wait.reason(), self.id())
                }
                None => "it is next".to_owned(),
            };
            let since_ms = ms_since(received, now);
            sh.reply(
                from,
                Message::OpBlocked(OpBlocked {
                    request: request.request,
                    reason,
                    since_ms,
                }),
                None,
            );
        }
    }
}

/// Finds out whether the operation may write, now that its classes are known; `false` if they are
/// not yet.
pub(super) fn learn_of_calls(op: &mut Pending, programs: &Programs) -> bool {
    if op.awaits_since == Some(programs.moment()) {
        return false;
    }
    let mut writes = false;
    for part in &op.request.ops {
        let SubOp::Call { class, method, .. } = part else {
            writes |= part.is_write();
            continue;
        };
        if programs.is_fetching(class) && !mutant(Mutant::OldProgramRuns) {
            return false;
        }
        writes |= !programs.is_read_only(class, method);
    }
    op.writes = writes;
    true
}
