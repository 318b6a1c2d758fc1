//! Callers' metadata requests and watches, between the callers' threads and the pure role.

use crate::error::Error;
use crate::meta::Sink;
use crate::slot::Sender;
use nacre_client::{MetaClient, MetaDone, MetaFailure, MetaId, MetaWatchId, WatchNews};
use nacre_types::{Entity, Instance, Time};
use nacre_wire::Message;
use nacre_wire::msg::meta::{MetaCall, MetaError, MetaResult, MetaSpan};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

type Reply = Sender<Result<(u64, MetaResult), Error>>;

struct Waiting {
    begun: Time,
    deadline: Time,
    reply: Reply,
}

/// The last event of a watch that ends with its client.
pub fn ended(why: &Error) -> WatchNews {
    WatchNews::Ended(MetaError::Unavailable {
        why: why.to_string(),
    })
}

/// See the module head.
pub struct MetaAccess {
    client: MetaClient,
    waiting: BTreeMap<MetaId, Waiting>,
    /// Requests waiting for space in the role's window.
    held: VecDeque<(MetaCall, Waiting)>,
    watches: BTreeMap<MetaWatchId, Arc<Sink>>,
    now: Time,
}

impl MetaAccess {
    pub fn new(instance: Instance) -> Self {
        Self {
            client: MetaClient::new(instance),
            waiting: BTreeMap::new(),
            held: VecDeque::new(),
            watches: BTreeMap::new(),
            now: Time::ZERO,
        }
    }

    pub fn begin(&mut self, now: Time, call: MetaCall, deadline: Time, reply: Reply) {
        self.now = now;
        self.held.push_back((
            call,
            Waiting {
                begun: now,
                deadline,
                reply,
            },
        ));
        self.deliver();
    }

    fn fill(&mut self, now: Time) {
        while let Some((call, waiting)) = self.held.pop_front() {
            match self.client.submit(now, call.clone()) {
                Some(id) => {
                    self.waiting.insert(id, waiting);
                }
                None => return self.held.push_front((call, waiting)),
            }
        }
    }

    pub fn watch(&mut self, span: MetaSpan, from: u64, sink: Arc<Sink>) {
        let id = self.client.watch(span, from);
        self.watches.insert(id, sink);
        // Deliver: a request that cannot be sent has failed already.
        self.deliver();
    }
    pub fn unwatch(&mut self, sink: &Arc<Sink>) {
        let is = |(id, found): (&MetaWatchId, &Arc<Sink>)| Arc::ptr_eq(found, sink).then_some(*id);
        if let Some(id) = self.watches.iter().find_map(is) {
            self.watches.remove(&id);
            self.client.cancel(id);
        }
    }

    pub fn on_message(&mut self, now: Time, from: Entity, message: &Message) -> bool {
        self.now = now;
        let mine = self.client.on_message(now, from, message);
        if mine {
            self.deliver();
        }
        mine
    }

    /// Delivers results and events of watches, and begins requests for which there is space now.
    fn deliver(&mut self) {
        loop {
            self.fill(self.now);
            let (mut done, mut news) = (Vec::new(), Vec::new());
            self.client.take_done(&mut done);
            self.client.take_news(&mut news);
            // A request that cannot be sent fails as it is begun.
            if done.is_empty() && news.is_empty() {
                return;
            }
            done.into_iter().for_each(|done| self.answer(done));
            for (id, news) in news {
                let Some(sink) = self.watches.get(&id) else {
                    continue;
                };
                if !sink.push(news) {
                    self.watches.remove(&id);
                    self.client.cancel(id);
                }
            }
        }
    }

    fn answer(&mut self, done: MetaDone) {
        let Some(waiting) = self.waiting.remove(&done.id) else {
            return;
        };
        waiting.reply.send(match done.result {
            Ok(result) => Ok((done.revision, result)),
            Err(MetaFailure::Refused(error)) => Err(Error::Meta(error)),
            Err(MetaFailure::Unknown(last)) => {
                let nobody = || "no monitor has answered; are the monitors running?".to_owned();
                let waits_for = last.map_or_else(nobody, |why| why.to_string());
                Err(Error::TimedOut {
                    waits_for,
                    waited: self.now.since(waiting.begun),
                })
            }
        });
    }

    pub fn on_session(&mut self, now: Time) {
        self.client.on_session(now);
    }
    pub fn on_session_lost(&mut self) {
        self.client.on_session_lost();
    }
    pub fn awaits_answers(&self) -> bool {
        self.client.awaits_answers()
    }

    pub fn on_tick(&mut self, now: Time) {
        self.now = now;
        let late = |(_, waiting): &(&MetaId, &Waiting)| waiting.deadline <= now;
        for id in self
            .waiting
            .iter()
            .filter(late)
            .map(|(id, _)| *id)
            .collect::<Vec<_>>()
        {
            self.client.abandon(id);
        }
        // Held requests were never sent: they waited for others of this client. Each has its own
        // deadline: a later request may have to be answered first.
        let held = std::mem::take(&mut self.held).into_iter();
        let (late, held): (VecDeque<_>, VecDeque<_>) =
            held.partition(|(_, waiting)| waiting.deadline <= now);
        self.held = held;
        for (_, waiting) in late {
            let waits_for = "too many requests of this client wait for the monitors".to_owned();
            waiting.reply.send(Err(Error::TimedOut {
                waits_for,
                waited: now.since(waiting.begun),
            }));
        }
        self.client.on_tick(now);
        self.deliver();
    }

    pub fn next_deadline(&self) -> Time {
        let waiting = self.waiting.values().map(|waiting| waiting.deadline);
        let held = self.held.iter().map(|(_, waiting)| waiting.deadline);
        waiting
            .chain(held)
            .min()
            .unwrap_or(Time::MAX)
            .min(self.client.next_deadline())
    }

    pub fn take_outputs(&mut self, into: &mut Vec<nacre_role::Output>) {
        let mut messages = Vec::new();
        self.client.take_outputs(&mut messages);
        into.extend(
            messages
                .into_iter()
                .map(|message| nacre_role::Output::SendMon { message }),
        );
    }

    /// Stops after a fatal error of the client.
    pub fn stop(&mut self, stopped: impl Fn() -> Error) {
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            waiting.reply.send(Err(stopped()));
        }
        for (_, waiting) in std::mem::take(&mut self.held) {
            waiting.reply.send(Err(stopped()));
        }
        for (_, sink) in std::mem::take(&mut self.watches) {
            sink.push(ended(&stopped()));
        }
    }
}
