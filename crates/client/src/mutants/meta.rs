//! Planted bugs of [`Role`](super::MetaClient): what it is told, what it remembers and what it says
//! are spoiled around each of its steps.

use super::{
    InFlight, MetaClient as Role, MetaDone, MetaFailure, MetaId, MetaWatchId, Watch, sendable,
};
use crate::mutants::{Mutant, mutant};
use nacre_types::{Entity, Instance, Time};
use nacre_wire::Message;
use nacre_wire::measure::Measure;
use nacre_wire::msg::check::{CLIENT_BYTES_MAX, check_meta_sendable};
use nacre_wire::msg::meta::{META_WINDOW, MetaCall, MetaError, MetaReply, MetaResult, MetaSpan};
use std::ops::{Deref, DerefMut};

/// A client with the bug that is switched on; without one, the client.
#[derive(Debug)]
pub struct MetaClient(Role);

impl Deref for MetaClient {
    type Target = Role;
    fn deref(&self) -> &Role {
        &self.0
    }
}
impl DerefMut for MetaClient {
    fn deref_mut(&mut self) -> &mut Role {
        &mut self.0
    }
}

impl MetaClient {
    /// Like [`Role::new`].
    #[must_use]
    pub const fn new(instance: Instance) -> Self {
        Self(Role::new(instance))
    }

    /// A step of the role: what it remembers afterwards, and what it says in it, is spoiled.
    fn step<T>(&mut self, step: impl FnOnce(&mut Role) -> T) -> T {
        let said = self.0.out.len();
        let result = step(&mut self.0);
        let Role {
            out,
            watches,
            next,
            in_flight,
            ..
        } = &mut self.0;
        for message in &mut out[said..] {
            match message {
                Message::MetaRequest(request) => {
                    if mutant(Mutant::MetaMarkBeyondUnanswered) {
                        request.answered_below = *next;
                    }
                    request.again &= !mutant(Mutant::MetaAgainUnsaid);
                }
                Message::MetaWatch(asked) => {
                    let Watch { from, through, .. } = &watches[&asked.watch];
                    if mutant(Mutant::MetaWatchedFromStart) {
                        asked.from = *from;
                    }
                    if mutant(Mutant::MetaWatchedFromLast) {
                        asked.from = through.unwrap_or(*from);
                    }
                }
                _ => {}
            }
        }
        if mutant(Mutant::MetaNotBeforeIgnored) {
            let all = in_flight.values_mut();
            all.for_each(|one| one.not_before = None);
        }
        result
    }

    /// Like [`Role::submit`].
    pub fn submit(&mut self, now: Time, call: MetaCall) -> Option<MetaId> {
        if mutant(Mutant::MetaUnsendableTaken) && check_meta_sendable(&call).is_err() {
            return Some(self.submit_unchecked(now, call));
        }
        let mut others = std::collections::BTreeMap::new();
        if mutant(Mutant::MetaUnbounded) && self.0.in_flight.len() as u64 >= META_WINDOW {
            others = std::mem::take(&mut self.0.in_flight);
        }
        let id = self.step(|role| role.submit(now, call));
        self.0.in_flight.append(&mut others);
        id
    }

    fn submit_unchecked(&mut self, now: Time, call: MetaCall) -> MetaId {
        let id = self.0.next;
        self.0.next += 1;
        let one = InFlight {
            call,
            known: self.0.known,
            sent: None,
            not_before: None,
            again: false,
            last: None,
        };
        self.0.in_flight.insert(id, one);
        self.0.send(now, id);
        MetaId(id)
    }

    /// Like [`Role::watch`].
    pub fn watch(&mut self, span: MetaSpan, from: u64) -> MetaWatchId {
        let measured = Measure::of("span", &span).fits("the span", CLIENT_BYTES_MAX);
        if mutant(Mutant::MetaUnsendableTaken) && sendable(measured).is_err() {
            let id = self.0.next_watch;
            self.0.next_watch += 1;
            let watch = Watch {
                span,
                from,
                through: None,
            };
            self.0.watches.insert(id, watch);
            self.0.ask_watch(id);
            return MetaWatchId(id);
        }
        self.step(|role| role.watch(span, from))
    }

    /// Like [`Role::on_session`].
    pub fn on_session(&mut self, now: Time) {
        let said = self.0.out.len();
        self.step(|role| role.on_session(now));
        if mutant(Mutant::MetaSessionForgets) {
            let new = self.0.out.split_off(said).into_iter();
            let kept = new.filter(|message| !matches!(message, Message::MetaRequest(_)));
            self.0.out.extend(kept);
        }
    }

    /// Like [`Role::on_tick`].
    pub fn on_tick(&mut self, now: Time) {
        self.step(|role| role.on_tick(now));
    }

    /// Like [`Role::on_message`].
    pub fn on_message(&mut self, now: Time, from: Entity, message: &Message) -> bool {
        let (mut message, known) = (message.clone(), self.0.known);
        match &mut message {
            Message::MetaReply(reply) => {
                if mutant(Mutant::MetaAnswerOfAnother) {
                    reply.instance = self.0.instance;
                }
                if mutant(Mutant::MetaUnavailableFinal) && self.ends_early(reply) {
                    return true;
                }
            }
            Message::MetaEvents(told, _) => {
                if let Some(watch) = self.0.watches.get_mut(&told.watch)
                    && let Some(through) = &mut watch.through
                {
                    if mutant(Mutant::MetaGapTaken) {
                        told.after = told.after.min(*through);
                    }
                    if mutant(Mutant::MetaToldTwice) {
                        *through = (*through).min(told.after);
                    }
                }
            }
            _ => {}
        }
        let ours = self.step(|role| role.on_message(now, from, &message));
        if mutant(Mutant::MetaOwnWritesForgotten) && matches!(message, Message::MetaReply(_)) {
            self.0.known = known;
        }
        ours
    }

    /// "Not now" ends the request.
    fn ends_early(&mut self, reply: &MetaReply) -> bool {
        let MetaResult::Failed {
            error: error @ MetaError::Unavailable { .. },
        } = &reply.result
        else {
            return false;
        };
        if self.0.in_flight.remove(&reply.sequence).is_none() {
            return false;
        }
        self.0.done.push(MetaDone {
            id: MetaId(reply.sequence),
            revision: reply.revision,
            result: Err(MetaFailure::Refused(error.clone())),
        });
        true
    }
}
