//! Answering operations: at once, when the updates that they saw are committed, or from memory for
//! duplicates.

use super::answered::{Answered, Answers, Known};
use super::dedup::Seen;
use super::local::Local;
use super::object::Objects;
use super::pending::Pending;
use super::primary::Primary;
use super::update::{Answer, InFlight};
use crate::shared::Shared;
use crate::turned_away::TurnedAway;
use nacre_types::{Time, Version};
use nacre_wire::Message;
use nacre_wire::msg::client::{OpFailure, RequestId};
use std::collections::VecDeque;

#[cfg(feature = "mutants")]
#[path = "../mutants/replies.rs"]
mod planted;

/// See the module head: of the PG it has the remembered and the in-flight operations.
#[derive(Debug)]
pub(super) struct Replies<'a> {
    /// The log's head, and the memory of updates.
    pub(super) local: &'a Local,
    pub(super) in_flight: &'a mut VecDeque<InFlight>,
    /// The memory of operations that changed nothing.
    pub(super) answered: &'a mut Answers,
    pub(super) turned_away: &'a mut TurnedAway,
    /// Operations in flight are not forgotten.
    pub(super) objects: &'a Objects,
}

impl Replies<'_> {
    pub(super) fn answer(&mut self, answer: Answer, before: Option<Time>, sh: &mut Shared) {
        let Answer {
            to,
            reply,
            payload,
            op,
        } = answer;
        if !self.turned_away.is_empty() {
            // A duplicate of it may have been refused.
            self.turned_away.take(&reply.request);
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

    /// Sends an answer when everything up to `version` is committed.
    pub(super) fn answer_when_committed(
        &mut self,
        version: Version,
        answer: Answer,
        sh: &mut Shared,
    ) {
        match self
            .in_flight
            .iter_mut()
            .find(|update| update.version >= version)
        {
            Some(update) => match update
                .answers
                .iter_mut()
                .find(|waits| waits.is_for(&answer))
            {
                // A client resends every two seconds: each duplicate would keep its data until then
                // (F17).
                Some(waits) => {
                    if answer.reply.attempt > waits.reply.attempt {
                        (waits.to, waits.reply.attempt) = (answer.to, answer.reply.attempt);
                    }
                    if let Some(op) = answer.op {
                        op.release(sh);
                    }
                }
                None => update.answers.push(answer),
            },
            None => self.answer(answer, None, sh),
        }
    }

    /// Answers a resend of an update, or refuses one that may have been executed.
    pub(super) fn answered_from_memory(&mut self, op: &Pending, sh: &mut Shared) -> bool {
        if op.own.is_some() {
            return false;
        }
        let id = op.request.request;
        let known = match self.answered.known(&id) {
            Known::Answered(answered) => Some(answered.clone()),
            // An update of the client that is remembered below is more precise.
            Known::Forgotten if !matches!(self.local.dedup.seen(&id), Seen::Done(_)) => {
                self.fail(Box::new(op.clone()), OpFailure::Superseded {}, sh);
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
            // The updates that it saw may still be lost: like the first answer, this one waits
            // until they are committed (simulator, seed 202).
            let answer =
                Answer::new(Box::new(op.clone()), Version::NONE, results).with_failure(failure);
            self.answer_when_committed(seen, answer, sh);
            return true;
        }
        if self.is_new(op, sh.config.process) {
            return false;
        }
        let (version, results) = match self.local.dedup.seen(&id) {
            Seen::Stranger(_) if !self.is_overtaken(op) => {
                sh.counters.borders.before_horizon += 1;
                self.fail(Box::new(op.clone()), OpFailure::Superseded {}, sh);
                return true;
            }
            Seen::New | Seen::Stranger(_) => {
                sh.counters.borders.overtaken += 1;
                self.fail(Box::new(op.clone()), OpFailure::Superseded {}, sh);
                return true;
            }
            Seen::Superseded => {
                sh.counters.borders.superseded += 1;
                self.fail(Box::new(op.clone()), OpFailure::Superseded {}, sh);
                return true;
            }
            Seen::Done(done) => (done.version(), done.results().to_vec()),
        };
        sh.counters.dedup_hits += 1;
        let answer = Answer::new(Box::new(op.clone()), version, results);
        self.answer_when_committed(version, answer, sh);
        true
    }

    /// Whether the operation was certainly not executed, and may still be.
    #[nacre_types::planted]
    fn is_new(&self, op: &Pending, process: u64) -> bool {
        let unknown = match self.local.dedup.seen(&op.request.request) {
            Seen::New => true,
            Seen::Stranger(horizon) => is_first_sent_after(op, horizon, process),
            Seen::Superseded | Seen::Done(_) => false,
        };
        unknown && !self.is_overtaken(op)
    }
    /// Order (DESIGN §3): operations that its client sent later must not be executed before it.
    fn is_overtaken(&self, op: &Pending) -> bool {
        let dedup = &self.local.dedup;
        dedup.is_overtaken(&op.request.request, &op.request.object)
    }

    pub(super) fn fail(&mut self, op: Box<Pending>, failure: OpFailure, sh: &mut Shared) {
        // Its client relies on this answer: a duplicate of the request that arrives later must not
        // be executed.
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
        let answer = Answer::new(op, Version::NONE, Vec::new()).with_failure(Some(failure));
        self.answer(answer, None, sh);
    }

    /// Remembers the answer for duplicates; the oldest answers are dropped if necessary.
    #[nacre_types::planted]
    pub(super) fn remember_answer(&mut self, request: RequestId, answered: Answered, sh: &Shared) {
        self.answered.remember(request, answered);
        let most = sh.config.limits.answered_bytes;
        if self.answered.is_too_large(most) {
            // Refused operations are resent, and were not executed either.
            let open = self.objects.in_hand().chain(self.turned_away.all());
            self.answered.shrink(most, open);
        }
    }
}

/// Whether an operation was first sent after this time, by our clock, as its client says.
fn is_first_sent_after(op: &Pending, horizon: Time, process: u64) -> bool {
    let dated = op.request.dated;
    dated.process == process && Time(dated.reading) > horizon
}

impl Primary {
    /// The machine that answers operations.
    pub(super) fn replies<'a>(&'a mut self, local: &'a Local) -> Replies<'a> {
        Replies {
            local,
            in_flight: &mut self.in_flight,
            answered: &mut self.answered,
            turned_away: &mut self.turned_away,
            objects: &self.objects,
        }
    }
}
