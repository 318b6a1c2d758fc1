//! Data that operations must read first, and evaluations elsewhere; the result returns to the
//! object's queue.

use super::object::{Objects, Reading};
use super::pending::Pending;
use super::{Interval, Lead};
use crate::evaluating::EvaluateJob;
use crate::key;
use crate::purpose::Purpose;
use crate::shared::Shared;
use nacre_object::Context;
use nacre_object::claims::Scene;
use nacre_object::evaluate::{Brought, Outcome};
use nacre_object::fetched::{Fetched, Want};
use nacre_role::Output;
use nacre_store::{Read, ReadError, ReadReply};
use nacre_types::{ObjectId, Version};
use nacre_wire::msg::client::OpFailure;

impl Objects {
    /// Reads the data that the operation's evaluation requires.
    pub(super) fn read_for(
        &mut self,
        op: Box<Pending>,
        wants: Vec<Want>,
        fetched: Fetched,
        at: &Interval,
        sh: &mut Shared,
    ) {
        let store_key = key::store_key(at.pg, &op.request.object);
        let number = self.number();
        let waiting = wants.len();
        // The last read takes the key itself.
        let keys = std::iter::repeat_n(store_key, waiting);
        for ((index, want), store_key) in wants.iter().enumerate().zip(keys) {
            let purpose = Purpose::OpRead { op: number, index };
            at.read(sh, want.read(store_key), purpose);
        }
        self.begin(&op);
        let replies = wants.iter().map(|_| None).collect();
        let reading = Reading {
            op,
            fetched,
            wants,
            replies,
            waiting,
            failed: None,
        };
        self.begin_reading(number, reading);
    }

    /// Has another thread evaluate the operation.
    pub(super) fn hand_out(
        &mut self,
        op: Box<Pending>,
        (context, fetched): (Context, Fetched),
        full: bool,
        (scene, brought): (Scene, Brought),
        at: &Interval,
        sh: &mut Shared,
    ) {
        sh.programs.counters.jobs += 1;
        let number = self.number();
        let job = EvaluateJob {
            pg: at.pg,
            interval: at.since,
            number,
            request: op.request.clone(),
            payload: op.payload.clone(),
            context,
            fetched,
            full,
            may_write: op.is_write(),
            scene,
            brought,
            facts: sh.programs.facts(&op.name, &op.request),
        };
        self.begin(&op);
        self.evaluating.insert(number, op);
        sh.out.push(Output::Run(std::sync::Arc::new(job)));
    }

    /// The operation is begun, and not finished.
    fn begin(&mut self, op: &Pending) {
        let state = self.get(&op.request.object);
        state.reads += 1;
        state.exclusive = op.is_write();
    }

    /// Loads an object's context, unless that is in progress.
    pub(super) fn load(&mut self, object: &ObjectId, at: &Interval, sh: &mut Shared) {
        let state = self.get(object);
        if !state.loading {
            state.loading = true;
            sh.counters.contexts_loaded += 1;
            let read = Read::Stat(key::store_key(at.pg, object));
            at.read(sh, read, Purpose::Stat(object.clone()));
        }
    }

    /// The next of an object's operations.
    pub(super) fn front_of(&self, object: &ObjectId) -> Option<&Pending> {
        self.peek(object)?.front()
    }

    /// The operation cannot continue yet: the operations behind it wait for it.
    pub(super) fn put_back(&mut self, op: Box<Pending>) {
        let object = op.request.object.clone();
        self.push_front(&object, op);
    }
}

impl Lead<'_> {
    /// Another thread has evaluated an operation.
    pub(crate) fn on_evaluated(&mut self, number: u64, outcome: Outcome, sh: &mut Shared) {
        let full = self.interval.is_full(sh);
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
                // Not even its version can be read; the log may contain it.
                let last = self.local.log.last_of(object);
                match last.map(|entry| (entry.version(), entry.deleted())) {
                    Some((version, false)) if !self.primary.damage.is_lost(object) => {
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
            Some(error) if self.primary.damage.is_lost(&object) => {
                let (ReadError::Corrupt { offset, .. } | ReadError::Device { offset, .. }) = error
                else {
                    self.replies()
                        .fail(op, OpFailure::Corrupt { offset: 0 }, sh);
                    self.process_object(&object, sh);
                    return;
                };
                self.replies().fail(op, OpFailure::Corrupt { offset }, sh);
            }
            // Another member may have a good replica: the operation waits until that is here, and
            // is executed then.
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
}
