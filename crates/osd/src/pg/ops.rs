//! Client operations at the primary: admission, order, reads. `evaluate.rs` decides what an
//! operation does; `replication.rs` replicates it.

use super::Lead;
use super::answered::Answered;
use super::copy::ask_source;
use super::object::Listing;
use super::pending::Pending;
use super::update::Answer;
use super::waiting::Wait;
use crate::key;
use crate::programs::{Programs, keeps_sources};
use crate::shared::Shared;
use nacre_object::Context;
use nacre_object::claims::Scene;
use nacre_object::evaluate::{self, Outcome, Setting};
use nacre_object::fetched::{Fetched, Want};
use nacre_object::snaps;
use nacre_types::{Entity, Name, ObjectId, SnapId};
use nacre_wire::Payload;
use nacre_wire::msg::check::inline_bytes;
use nacre_wire::msg::client::{OpFailure, OpRequest, SubOp};

impl Lead<'_> {
    /// A client's operation. `name` is the client's name.
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
        let pool = self.interval.pool(sh);
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
        if self.admit().is_in_hand(from, &request, sh) {
            return;
        }
        let serving = self.primary.serves(sh.now);
        let writes = request.ops.iter().any(SubOp::is_write);
        if let Some(failure) =
            self.admit()
                .comes_again(from, &request, bytes, (serving, writes), sh)
        {
            refuse(failure, sh);
            return;
        }
        // All operations on one name wait in the live object's queue, which determines the object
        // of their snapshot.
        let snapshot = Some(request.object.snapshot).filter(|snapshot| *snapshot != SnapId::HEAD);
        request.object.snapshot = SnapId::HEAD;
        let op = Box::new(Pending {
            payload,
            inline,
            writes,
            name: name.clone(),
            snapshot,
            blocked: !serving,
            ..Pending::new(from, request, sh.now)
        });
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
            // A copy's read. Operations waiting here may wait for a copy of objects that wait for
            // this read (`copy.rs`).
            primary.objects.push_front(&object, op);
        } else {
            primary.objects.push(&object, op);
        }
        self.process_object(&object, sh);
    }

    /// Retries all objects' queues.
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
            // Operations that change the live object may have waited for its clone.
            let live = snaps::live(object);
            while self.step(&live, sh).is_none() {}
        }
        let keep = sh.config.limits.contexts;
        self.primary.objects.shrink(keep);
    }

    /// One step of an object's queue; returns what it waits for, if anything.
    fn step(&mut self, object: &ObjectId, sh: &mut Shared) -> Option<Wait> {
        let state = self.primary.objects.existing(object);
        let front_exists = state.is_some_and(|state| state.has_queue());
        if !front_exists {
            return Some(Wait::Order);
        }
        if let Some(wait) = self.gate().obstacle(object, sh) {
            match wait {
                Wait::Missing | Wait::Degraded if self.primary.damage.is_lost(object) => {
                    self.fail_all(object, 0, sh)
                }
                Wait::Missing | Wait::Degraded => self.recover_now(object, sh),
                Wait::Context => self.primary.objects.load(object, self.interval, sh),
                Wait::Clone => self.prepare_clones(object, sh),
                Wait::Source => {
                    if let Some(front) = self.primary.objects.front_of(object) {
                        ask_source(front, self.interval, sh);
                    }
                }
                Wait::Held => self.make_way(object, sh),
                _ => {}
            }
            return Some(wait);
        }
        let op = self.primary.objects.pop(object, sh.now).expect("checked");
        if op.is_write() && self.replies().answered_from_memory(&op, sh) {
            return None;
        }
        self.execute(op, Fetched::default(), sh)
    }

    /// No replica of the object can be read.
    pub(super) fn fail_all(&mut self, object: &ObjectId, offset: u64, sh: &mut Shared) {
        for op in self.primary.objects.take_queue(object) {
            self.primary.forget_own(&op);
            self.replies().fail(op, OpFailure::Corrupt { offset }, sh);
        }
    }

    /// Decides what the operation does and starts it, or returns what it waits for and leaves it at
    /// the front.
    pub(super) fn execute(
        &mut self,
        op: Box<Pending>,
        fetched: Fetched,
        sh: &mut Shared,
    ) -> Option<Wait> {
        let full = self.interval.is_full(sh);
        let state = self.primary.objects.get(&op.request.object);
        let mut context = state
            .context
            .clone()
            .expect("loaded before anything is executed");
        context.damaged = self.primary.damage.is_lost(&op.request.object);
        if op.own.is_some() || matches!(op.request.ops[..], [SubOp::Notify { .. }]) {
            self.execute_watch(op, context, sh);
            return None;
        }
        // Only an operation on a snapshot may have to move to another queue.
        let asked = op.snapshot.map(|_| op.request.object.clone());
        let (op, context) = match self.at_snapshot(op, context, sh) {
            Ok(here) => here,
            Err(other) => {
                while asked.as_ref() != Some(&other) && self.step(&other, sh).is_none() {}
                return None;
            }
        };
        if op.is_write() && op.clone_bytes.is_none() {
            let cloned = self.clones().cloned_from(&op, &context, sh);
            if !cloned.is_empty() {
                let id = self.id();
                let wants = cloned
                    .iter()
                    .map(|of| Want::Clone(key::store_key(id, of)))
                    .collect();
                let objects = &mut self.primary.objects;
                objects.read_for(op, wants, fetched, self.interval, sh);
                return None;
            }
        }
        let source = op.source.clone().transpose();
        let brought = self.clones().brought(&op, &context, sh);
        let scene = self.scene(&op, &context, sh);
        sh.programs.prepare(&op.name, &op.request, sh.now);
        let pool = self.interval.pool(sh);
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

    /// Executes the result of the evaluation.
    pub(super) fn conclude(
        &mut self,
        mut op: Box<Pending>,
        context: Context,
        full: bool,
        scene: Scene,
        outcome: Outcome,
        sh: &mut Shared,
    ) -> Option<Wait> {
        let request = op.request.request;
        match outcome {
            // The operation was considered a read, and its class changed while it read: it has not
            // waited for what writes must wait for.
            Outcome::Update(_) if !op.is_write() => {
                let mut op = op;
                if learn_of_calls(&mut op, &sh.programs) && !op.is_write() {
                    let why = "a method that only reads has written".to_owned();
                    let failed = Outcome::failed(OpFailure::Invalid { why });
                    return self.conclude(op, context, full, scene, failed, sh);
                }
                self.primary.objects.put_back(op);
            }
            Outcome::Update(_) if !self.clones().clones_are_ready(&op, &context, sh) => {
                // Its queue determines what it waits for.
                self.primary.objects.put_back(op);
            }
            Outcome::Back { snap } => {
                op.back.push(snap);
                op.clone_bytes = None;
                self.primary.objects.put_back(op);
            }
            Outcome::Update(update)
                if !self.primary.peering.fits_stores(&update, self.interval, sh) =>
            {
                return self.conclude(
                    op,
                    context,
                    full,
                    scene,
                    Outcome::failed(OpFailure::TooLarge {}),
                    sh,
                );
            }
            Outcome::Update(update) if !self.holders().fits_rooms(&op, &update, sh) => {
                return self.conclude(
                    op,
                    context,
                    full,
                    scene,
                    Outcome::failed(OpFailure::Full {}),
                    sh,
                );
            }
            Outcome::Update(update) => match self.clones().room_for_clone(&op, &context, sh) {
                Ok(()) => self.begin_update(op, context, update, sh),
                Err(failure) => {
                    return self.conclude(op, context, full, scene, Outcome::failed(failure), sh);
                }
            },
            Outcome::Read { wants, fetched } => {
                let objects = &mut self.primary.objects;
                objects.read_for(op, wants, fetched, self.interval, sh);
            }
            Outcome::Heavy { fetched } => {
                let brought = self.clones().brought(&op, &context, sh);
                let (what, by) = ((context, fetched), (scene, brought));
                let objects = &mut self.primary.objects;
                objects.hand_out(op, what, full, by, self.interval, sh);
            }
            Outcome::Program { moment } => {
                op.awaits_since = Some(moment);
                self.primary.objects.put_back(op);
            }
            Outcome::Answer {
                failure,
                results,
                payload,
            } => {
                // The answer depends on the object's current state: only under a lease, and when
                // the updates that it saw are committed.
                let lease = self.interval.lease_until(sh);
                if lease <= sh.now {
                    self.primary.objects.put_back(op);
                    sh.counters.lease_waits += 1;
                    return Some(Wait::Lease);
                }
                if op.is_write() {
                    // Its client relies on the answer: a duplicate of the request that arrives
                    // later must not be executed.
                    let answered = Answered {
                        failure: failure.clone(),
                        results: results.clone(),
                        seen: self.local.log.head(),
                    };
                    self.replies().remember_answer(request, answered, sh);
                }
                let updates = self.primary.objects.get(&op.request.object).updates;
                let uncommitted = op.reads_uncommitted();
                let answer = Answer {
                    payload,
                    ..Answer::new(op, context.version, results).with_failure(failure)
                };
                if updates > 0 && !uncommitted {
                    let seen = self.local.log.head();
                    self.replies().answer_when_committed(seen, answer, sh);
                } else {
                    self.replies().answer(answer, Some(lease), sh);
                }
            }
        }
        None
    }
}

/// Determines whether the operation may write, now that its classes are known; `false` if they are
/// not known yet.
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
        if programs.is_fetching(class) {
            return false;
        }
        writes |= !programs.is_read_only(class, method);
    }
    op.writes = writes;
    true
}
