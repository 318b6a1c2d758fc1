//! A client in its host: the pure role, the callers' operations and commands, and their deadlines.
//!
//! ```text
//!  threads, tasks ──Call──▶ Port ──(one wake-up for many)──▶ Access ──▶ nacre_client::Client
//!        ◀──────────────── Slot ◀───────────────────────────── completions
//! ```
//! Commands are sent by the host itself: a command that reads is asked again over a new session with the monitors; one that may have
//! written is answered "unknown" when its session breaks, never sent twice.
//!
//! Invariant: every call is answered exactly once: by the cluster, by its deadline, or when the client stops.

use crate::error::Error;
use crate::role::Action;
use crate::slot::{Gate, Permit, Sender};
use crate::wake::Waker;
use nacre_client::{Blocked, Client, Completion, Done, Failure, ObjectCluster, OpId, Operation, Refused};
use nacre_types::{Entity, Epoch, Instance, Time};
use nacre_wire::msg::monitor::Command;
use nacre_wire::{ClusterMap, Message};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// What a caller wants.
pub enum Call {
    /// An operation on an object.
    Operate { operation: Operation, deadline: Time, reply: Sender<Result<Done, Error>>, permit: Permit },
    /// A command for the monitors.
    Command { request: String, writes: bool, deadline: Time, reply: Sender<Result<String, Error>> },
    /// The map, of this epoch or newer.
    Map { at_least: Epoch, deadline: Time, reply: Sender<Result<Arc<ClusterMap>, Error>> },
    /// What has been in flight for longer than this.
    Blocked { than: Duration, reply: Sender<Vec<Blocked>> },
}

#[derive(Default)]
struct Inbox {
    calls: Vec<Call>,
    closed: Option<String>,
}

/// Where callers leave their calls.
pub struct Port {
    inbox: Mutex<Inbox>,
    waker: Arc<Waker>,
    pub gate: Arc<Gate>,
}

impl Port {
    pub fn new(waker: Arc<Waker>) -> Arc<Self> {
        Arc::new(Self { inbox: Mutex::default(), waker, gate: Arc::default() })
    }
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    /// Leaves a call.
    ///
    /// # Errors
    /// The client has stopped.
    pub fn call(&self, call: Call) -> Result<(), Error> {
        let mut inbox = self.lock();
        if let Some(why) = &inbox.closed {
            return Err(Error::Stopped { why: why.clone() });
        }
        inbox.calls.push(call);
        drop(inbox);
        self.waker.wake();
        Ok(())
    }
    /// No more calls are taken; those that wait are dropped, which their callers notice.
    pub fn close(&self, why: &str) -> Vec<Call> {
        let mut inbox = self.lock();
        inbox.closed.get_or_insert_with(|| why.to_owned());
        std::mem::take(&mut inbox.calls)
    }
    /// Why it stopped, if it did.
    pub fn closed(&self) -> Option<String> {
        self.lock().closed.clone()
    }
}

struct Running {
    deadline: Time,
    begun: Time,
    reply: Sender<Result<Done, Error>>,
    _permit: Permit,
}

struct Asked {
    request: String,
    writes: bool,
    begun: Time,
    deadline: Time,
    sent: bool,
    reply: Sender<Result<String, Error>>,
}

/// See the module head.
pub struct Access {
    pub client: Client,
    pub instance: Instance,
    port: Option<Arc<Port>>,
    running: BTreeMap<OpId, Running>,
    held: VecDeque<(Time, Call)>,
    asked: BTreeMap<u64, Asked>,
    next_token: u64,
    session: bool,
    expire_at: Time,
    map: Option<Arc<ClusterMap>>,
    outputs: Vec<nacre_client::Output>,
    completions: Vec<Completion>,
}

/// What the callers' map is waited for with.
const NO_MAP: &str = "no monitor has answered yet; are the monitors running?";

impl Access {
    /// Without a port the host's owner submits and takes completions himself.
    pub fn new(client: Client, instance: Instance, port: Option<Arc<Port>>) -> Self {
        Self {
            client,
            instance,
            port,
            running: BTreeMap::new(),
            held: VecDeque::new(),
            asked: BTreeMap::new(),
            next_token: 1,
            session: false,
            expire_at: Time::ZERO,
            map: None,
            outputs: Vec::new(),
            completions: Vec::new(),
        }
    }

    /// Takes the callers' calls.
    pub fn take_calls(&mut self, now: Time) -> bool {
        let Some(port) = &self.port else { return false };
        let calls = std::mem::take(&mut port.lock().calls);
        let any = !calls.is_empty();
        for call in calls {
            self.begin(now, now, call);
        }
        any
    }

    fn begin(&mut self, now: Time, begun: Time, call: Call) {
        match call {
            Call::Operate { operation, deadline, reply, permit } => {
                // The role refuses what it has no room or no map for, and then has not taken it: keep a copy until it has.
                // It shares the payload's bytes.
                let room = self.client.map().is_some() && self.held.is_empty();
                let spare = if room { None } else { Some(operation.clone()) };
                match self.client.submit(now, operation) {
                    Ok(id) => {
                        self.running.insert(id, Running { deadline, begun, reply, _permit: permit });
                    }
                    Err(Refused::NoSuchPool) => reply.send(Err(Error::NoSuchPool { name: "(removed)".to_owned() })),
                    Err(Refused::Busy | Refused::NotConnected) => match spare {
                        Some(operation) => {
                            self.held.push_back((begun, Call::Operate { operation, deadline, reply, permit }));
                        }
                        None => reply.send(Err(Error::Unexpected("free place: the gate let too many in"))),
                    },
                }
            }
            Call::Command { request, writes, deadline, reply } => {
                let token = self.next_token;
                self.next_token += 1;
                self.asked.insert(token, Asked { request, writes, begun, deadline, sent: false, reply });
                self.send_commands();
            }
            Call::Map { at_least, deadline, reply } => match self.shared_map() {
                Some(map) if map.epoch >= at_least => reply.send(Ok(map)),
                _ => self.held.push_back((begun, Call::Map { at_least, deadline, reply })),
            },
            Call::Blocked { than, reply } => reply.send(self.client.blocked(now, than)),
        }
    }

    fn shared_map(&mut self) -> Option<Arc<ClusterMap>> {
        let epoch = self.client.epoch();
        if self.map.as_ref().is_none_or(|map| map.epoch != epoch) {
            self.map = self.client.map().cloned().map(Arc::new);
        }
        self.map.clone()
    }

    fn send_commands(&mut self) {
        if !self.session {
            return;
        }
        for (token, asked) in self.asked.iter_mut().filter(|(_, asked)| !asked.sent) {
            asked.sent = true;
            let command = Command { token: *token, request: asked.request.clone() };
            self.outputs.push(nacre_client::Output::SendMon { message: Message::Command(command) });
        }
    }

    pub fn on_message(&mut self, now: Time, from: Entity, epoch: Epoch, message: Message) {
        if let Message::CommandReply(reply) = message {
            if let Some(asked) = self.asked.remove(&reply.token) {
                asked.reply.send(match reply.error {
                    None => Ok(reply.reply),
                    Some(why) => Err(Error::Command(why)),
                });
            }
            return;
        }
        let before = self.client.epoch();
        self.client.on_message(now, from, epoch, message);
        if self.client.epoch() != before {
            self.retry_held(now);
        }
    }

    /// Begins again what waited for a map or for room.
    fn retry_held(&mut self, now: Time) {
        for (begun, call) in std::mem::take(&mut self.held) {
            self.begin(now, begun, call);
        }
    }

    pub fn on_gone(&mut self, now: Time, who: Entity) {
        match who {
            Entity::Osd(osd) => self.client.on_peer_reset(now, osd),
            Entity::Mon(_) => {
                self.session = false;
                let lost: Vec<u64> =
                    self.asked.iter().filter(|(_, a)| a.sent && a.writes).map(|(token, _)| *token).collect();
                for token in lost {
                    let asked = self.asked.remove(&token).expect("just listed");
                    let why = "the monitor was lost while it worked on this: it may or may not have happened. Look, then repeat it";
                    asked.reply.send(Err(Error::Command(why.to_owned())));
                }
                for asked in self.asked.values_mut() {
                    asked.sent = false;
                }
            }
            Entity::Client(_) => {}
        }
    }

    /// Whether a command has been sent and not been answered.
    pub fn awaits_answers(&self) -> bool {
        self.asked.values().any(|asked| asked.sent)
    }

    pub fn on_mon_session(&mut self, now: Time) {
        self.session = true;
        self.client.on_mon_session(now);
        self.send_commands();
    }

    pub fn on_tick(&mut self, now: Time) {
        if self.client.next_deadline() <= now {
            self.client.on_tick(now);
        }
        if self.expire_at <= now {
            // Deadlines of callers are seconds; looking at them four times a second is exact enough.
            self.expire_at = now + Duration::from_millis(250);
            self.expire(now);
        }
    }

    fn expire(&mut self, now: Time) {
        let late: Vec<OpId> = self.running.iter().filter(|(_, op)| op.deadline <= now).map(|(id, _)| *id).collect();
        if !late.is_empty() {
            let blocked = self.client.blocked(now, Duration::ZERO);
            for id in late {
                let op = self.running.remove(&id).expect("just listed");
                let waits_for = blocked.iter().find(|b| b.id == id).map_or_else(String::new, |b| b.reason.clone());
                op.reply.send(Err(Error::TimedOut { waits_for, waited: now.since(op.begun) }));
                self.client.abandon(id);
            }
        }
        let late: Vec<u64> = self.asked.iter().filter(|(_, a)| a.deadline <= now).map(|(token, _)| *token).collect();
        for token in late {
            let asked = self.asked.remove(&token).expect("just listed");
            let waits_for = if asked.sent { "the monitors have not answered the command" } else { NO_MAP };
            let waited = now.since(asked.begun);
            asked.reply.send(Err(Error::TimedOut { waits_for: waits_for.to_owned(), waited }));
        }
        let is_late = |call: &Call| match call {
            Call::Operate { deadline, .. } | Call::Command { deadline, .. } | Call::Map { deadline, .. } => {
                *deadline <= now
            }
            Call::Blocked { .. } => false,
        };
        if self.held.iter().any(|(_, call)| is_late(call)) {
            for (begun, call) in std::mem::take(&mut self.held) {
                if !is_late(&call) {
                    self.held.push_back((begun, call));
                    continue;
                }
                let error = Error::TimedOut { waits_for: NO_MAP.to_owned(), waited: now.since(begun) };
                match call {
                    Call::Operate { reply, .. } => reply.send(Err(error)),
                    Call::Map { reply, .. } => reply.send(Err(error)),
                    Call::Command { .. } | Call::Blocked { .. } => unreachable!("never held"),
                }
            }
        }
    }

    pub fn next_deadline(&self) -> Time {
        let idle = self.running.is_empty() && self.asked.is_empty() && self.held.is_empty();
        let next = self.client.next_deadline();
        if idle { next } else { next.min(self.expire_at) }
    }

    pub fn take_actions(&mut self, now: Time, actions: &mut Vec<Action>) {
        self.client.take_outputs(&mut self.outputs);
        if self.port.is_some() {
            self.client.completions(&mut self.completions);
            let any = !self.completions.is_empty();
            for completion in self.completions.drain(..) {
                let Some(op) = self.running.remove(&completion.id) else { continue };
                op.reply.send(completion.result.map_err(|failure| match failure {
                    Failure::Refused(why) => Error::Refused(why),
                    Failure::NoSuchPool => Error::NoSuchPool { name: "(removed)".to_owned() },
                    Failure::Unknown => Error::TimedOut { waits_for: "nobody".to_owned(), waited: now.since(op.begun) },
                }));
            }
            if any && !self.held.is_empty() {
                self.retry_held(now);
                self.client.take_outputs(&mut self.outputs);
            }
        }
        actions.extend(self.outputs.drain(..).map(Action::from));
    }

    /// The client can go on no longer.
    pub fn stop(&mut self, why: &str) {
        let stopped = || Error::Stopped { why: why.to_owned() };
        let mut calls: Vec<Call> = self.port.as_ref().map(|port| port.close(why)).unwrap_or_default();
        calls.extend(std::mem::take(&mut self.held).into_iter().map(|(_, call)| call));
        for (_, op) in std::mem::take(&mut self.running) {
            op.reply.send(Err(stopped()));
        }
        for (_, asked) in std::mem::take(&mut self.asked) {
            asked.reply.send(Err(stopped()));
        }
        for call in calls {
            match call {
                Call::Operate { reply, .. } => reply.send(Err(stopped())),
                Call::Command { reply, .. } => reply.send(Err(stopped())),
                Call::Map { reply, .. } => reply.send(Err(stopped())),
                Call::Blocked { reply, .. } => reply.send(Vec::new()),
            }
        }
    }
}
