//! What operations have to read first, or have evaluated elsewhere; it comes back to the object's
//! queue.

use super::Lead;
use super::object::Reading;
use super::pending::Pending;
use crate::awaited::Awaited;
use crate::evaluating::EvaluateJob;
use crate::key;
use crate::shared::Shared;
use nacre_object::Context;
use nacre_object::claims::Scene;
use nacre_object::evaluate::Outcome;
use nacre_object::fetched::{Fetched, Want};
use nacre_role::Output;
use nacre_store::{Read, ReadError, ReadReply};
use nacre_types::{ObjectId, Version};
use nacre_wire::msg::client::OpFailure;

impl Lead<'_> {
    /// Reads what the operation cannot be evaluated without.
    pub(super) fn read_for(
        &mut self,
        op: Pending,
        wants: Vec<Want>,
        fetched: Fetched,
        sh: &mut Shared,
    ) {
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
    pub(super) fn hand_out(
        &mut self,
        op: Pending,
        context: Context,
        full: bool,
        fetched: Fetched,
        scene: Scene,
        sh: &mut Shared,
    ) {
        sh.programs.counters.jobs += 1;
        let facts = sh.programs.facts(&op.name, &op.request);
        let brought = self.clones().brought(&op, &context, sh);
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
}
