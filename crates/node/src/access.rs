//! A client in its host: the pure role, the callers' operations and commands, and their deadlines.
//!
//! ```text
//!  threads, tasks ──Call──▶ Port ──(one wake-up for many)──▶ Access ──▶ nacre_client::Client
//!        ◀──────────────── Slot ◀───────────────────────────── completions
//! ```
//! The host sends commands itself. A read-only command is resent over a new session with the
//! monitors. A command that may have written is answered "unknown" when its session breaks, and
//! never resent.
//!
//! *No such pool* is only answered by a majority of the monitors, never from one map: this client's
//! map may come from a lagging monitor. An operation on a pool that is not in the map is held and
//! the monitors are asked for all pools. Their answer resumes or fails the operation.
//!
//! *A client sees what was changed before it connected*. Its first map may be a lagging monitor's
//! too, so it asks a majority for the current epoch and starts nothing with an older map. The OSDs
//! then have that epoch as well before they act, since each message carries its sender's epoch.
//! Without a majority the epoch is unknown: after [`FIRST_MAP_MAX`] the client works with the map
//! that it has.
//!
//! Invariant: every call is answered exactly once: by the cluster, by its deadline, or when the
//! client stops.

use crate::error::Error;
use crate::meta::Sink;
use crate::meta_access::{MetaAccess, ended};
use crate::slot::{Gate, Permit, Sender};
use crate::wake::Waker;
use crate::watch::Hearing;
use bytes::Bytes;
use nacre_client::{
    Blocked, Client, Completion, Done, Failure, ObjectCluster, OpId, Operation, Refused,
    WatchError, WatchEvent, WatchId,
};
use nacre_role::{Input, Output, Role};
use nacre_types::{Entity, Epoch, Instance, ObjectId, PoolId, Time};
use nacre_wire::msg::check::CLIENT_BYTES_MAX;
use nacre_wire::msg::client::RequestId;
use nacre_wire::msg::meta::{MetaCall, MetaResult, MetaSpan};
use nacre_wire::msg::monitor::Command;
use nacre_wire::{ClusterMap, Measure, Message};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// A request of a caller.
pub enum Call {
    /// An operation on an object.
    Operate {
        operation: Operation,
        deadline: Time,
        reply: Sender<Result<Done, Error>>,
        permit: Permit,
    },
    /// A command for the monitors.
    Command {
        request: String,
        writes: bool,
        deadline: Time,
        reply: Sender<Result<String, Error>>,
    },
    /// A map of this epoch or newer.
    Map {
        at_least: Epoch,
        deadline: Time,
        reply: Sender<Result<Arc<ClusterMap>, Error>>,
    },
    /// Registers a watch; answered when it is registered.
    Watch {
        pool: PoolId,
        object: ObjectId,
        timeout: Duration,
        deadline: Time,
        hearing: Arc<Hearing>,
        reply: Sender<Result<Done, Error>>,
        permit: Permit,
    },
    /// Acknowledges a notify for a watcher.
    Acknowledge {
        watch: WatchId,
        notify: RequestId,
        data: Bytes,
        reply: Sender<Result<(), WatchError>>,
    },
    /// Ends a watch.
    Unwatch { watch: WatchId },
    /// A request about metadata.
    Meta {
        call: MetaCall,
        deadline: Time,
        reply: Sender<Result<(u64, MetaResult), Error>>,
    },
    /// Subscribes to changes of metadata.
    MetaWatch {
        span: MetaSpan,
        from: u64,
        sink: Arc<Sink>,
    },
    /// Ends such a subscription.
    MetaUnwatch { sink: Arc<Sink> },
    /// Lists operations in flight for longer than this.
    Blocked {
        than: Duration,
        reply: Sender<Vec<Blocked>>,
    },
}

/// Time to wait for the list of pools before it is requested again.
const POOLS_MAX: Duration = Duration::from_secs(10);

/// How long a new client waits for the majority of the monitors to report the current epoch.
const FIRST_MAP_MAX: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Inbox {
    calls: Vec<Call>,
    closed: Option<String>,
}

/// Queue of the callers' calls.
pub struct Port {
    inbox: Mutex<Inbox>,
    waker: Arc<Waker>,
    pub gate: Arc<Gate>,
}

impl Port {
    pub fn new(waker: Arc<Waker>) -> Arc<Self> {
        Arc::new(Self {
            inbox: Mutex::default(),
            waker,
            gate: Arc::default(),
        })
    }
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    /// Queues a call.
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
    /// Closes the queue; returns the pending calls. Dropping them tells their callers.
    pub fn close(&self, why: &str) -> Vec<Call> {
        let mut inbox = self.lock();
        inbox.closed.get_or_insert_with(|| why.to_owned());
        std::mem::take(&mut inbox.calls)
    }
    /// Why the client stopped, if it did.
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
    reply: For,
}

/// Recipient of an answer.
enum For {
    Caller(Sender<Result<String, Error>>),
    /// This client itself: the pools and their epoch.
    Pools,
}
impl For {
    fn send(self, answer: Result<String, Error>) {
        match self {
            Self::Caller(reply) => reply.send(answer),
            Self::Pools => {}
        }
    }
}

/// See the module head.
pub struct Access {
    pub client: Client,
    pub instance: Instance,
    port: Option<Arc<Port>>,
    running: BTreeMap<OpId, Running>,
    /// Receivers of the events of each watch.
    watching: BTreeMap<WatchId, Arc<Hearing>>,
    held: VecDeque<(Time, Call)>,
    asked: BTreeMap<u64, Asked>,
    /// Pools that the monitors know and this client's map lacks so far.
    coming: BTreeSet<PoolId>,
    /// The monitors' epoch when this client connected, once a majority has reported it.
    came_at: Option<Epoch>,
    /// Until then the client waits for that epoch; before the first session it has no map anyway.
    patient_until: Time,
    next_token: u64,
    session: bool,
    expire_at: Time,
    map: Option<Arc<ClusterMap>>,
    meta: MetaAccess,
    outputs: Vec<Output>,
    completions: Vec<Completion>,
    heard: Vec<WatchEvent>,
}

/// Reported as the reason of waiting while there is no map.
const NO_MAP: &str = "no monitor has answered yet; are the monitors running?";
/// Reported while there is a map that lacks something that exists or may exist.
const OLD_MAP: &str =
    "the monitors have not sent the newest map; `nacre health detail` says what is wrong";

impl Role for Access {
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
                Input::Gone(who) => self.on_gone(now, who),
                Input::MonSession => self.on_mon_session(now),
                Input::Absent(_)
                | Input::Named(..)
                | Input::Store(_)
                | Input::Device(_)
                | Input::Done(_)
                | Input::Stopping => {}
            }
        }
        self.take_outputs(now, out);
    }
    fn next_deadline(&self) -> Time {
        let idle = self.running.is_empty() && self.asked.is_empty() && self.held.is_empty();
        let next = self.client.next_deadline().min(self.meta.next_deadline());
        if idle { next } else { next.min(self.expire_at) }
    }
    fn map(&self) -> Option<&ClusterMap> {
        self.client.map()
    }
}

impl Access {
    /// Without a port, the owner of the host submits and takes completions itself.
    pub fn new(client: Client, instance: Instance, port: Option<Arc<Port>>) -> Self {
        Self {
            client,
            instance,
            port,
            running: BTreeMap::new(),
            watching: BTreeMap::new(),
            heard: Vec::new(),
            held: VecDeque::new(),
            asked: BTreeMap::new(),
            coming: BTreeSet::new(),
            came_at: None,
            patient_until: Time::ZERO,
            next_token: 1,
            session: false,
            expire_at: Time::ZERO,
            map: None,
            meta: MetaAccess::new(instance),
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
            call @ (Call::Operate { .. } | Call::Watch { .. } | Call::Map { .. })
                if self.has_old_map(now) =>
            {
                self.held.push_back((begun, call));
            }
            Call::Operate {
                operation,
                deadline,
                reply,
                permit,
            } => {
                // The role refuses an operation when it lacks space or a map, and does not consume
                // it then: keep a copy until it is accepted. The copy shares the payload's bytes.
                let pool = operation.pool;
                if self.lacks(pool) {
                    self.held.push_back((
                        begun,
                        Call::Operate {
                            operation,
                            deadline,
                            reply,
                            permit,
                        },
                    ));
                    if !self.coming.contains(&pool) {
                        self.ask_for_pools(now);
                    }
                    return;
                }
                let room = self.client.map().is_some() && self.held.is_empty();
                let spare = if room { None } else { Some(operation.clone()) };
                match self.client.submit(now, operation) {
                    Ok(id) => {
                        self.running.insert(
                            id,
                            Running {
                                deadline,
                                begun,
                                reply,
                                _permit: permit,
                            },
                        );
                    }
                    Err(Refused::NoSuchPool | Refused::Unsupported) => {
                        reply.send(Err(Error::NoSuchPool {
                            name: "(removed)".to_owned(),
                        }))
                    }
                    Err(Refused::Busy | Refused::NotConnected) => match spare {
                        Some(operation) => {
                            self.held.push_back((
                                begun,
                                Call::Operate {
                                    operation,
                                    deadline,
                                    reply,
                                    permit,
                                },
                            ));
                        }
                        None => reply.send(Err(Error::Unexpected(
                            "free place: the gate let too many in",
                        ))),
                    },
                }
            }
            Call::Watch {
                pool,
                object,
                timeout,
                deadline,
                hearing,
                reply,
                permit,
            } => {
                match self.client.watch(now, pool, object.clone(), timeout) {
                    Ok(watch) => {
                        hearing.begin(watch);
                        self.watching.insert(watch, hearing);
                        self.running.insert(
                            OpId(watch.0),
                            Running {
                                deadline,
                                begun,
                                reply,
                                _permit: permit,
                            },
                        );
                    }
                    // The map may be older than the pool: a caller that reaches its deadline is
                    // told so.
                    Err(Refused::Busy | Refused::NotConnected | Refused::NoSuchPool) => {
                        let call = Call::Watch {
                            pool,
                            object,
                            timeout,
                            deadline,
                            hearing,
                            reply,
                            permit,
                        };
                        self.held.push_back((begun, call));
                    }
                    Err(Refused::Unsupported) => {
                        reply.send(Err(Error::Watch(WatchError::Unsupported)))
                    }
                }
            }
            Call::Acknowledge {
                watch,
                notify,
                data,
                reply,
            } => {
                reply.send(self.client.ack_notify(now, watch, notify, data));
            }
            Call::Unwatch { watch } => {
                self.watching.remove(&watch);
                // The answer has no recipient; if the queue is full it is retried.
                if self.client.unwatch(now, watch).is_err() {
                    self.held.push_back((begun, Call::Unwatch { watch }));
                }
            }
            Call::Command {
                request,
                writes,
                deadline,
                reply,
            } => {
                // A longer command is never sent, and its caller would wait for the answer.
                if let Err(why) =
                    Measure::of("the command", &request).fits("the command", CLIENT_BYTES_MAX)
                {
                    return reply.send(Err(Error::Command(why.to_string())));
                }
                let token = self.next_token;
                self.next_token += 1;
                let reply = For::Caller(reply);
                self.asked.insert(
                    token,
                    Asked {
                        request,
                        writes,
                        begun,
                        deadline,
                        sent: false,
                        reply,
                    },
                );
                self.send_commands();
            }
            Call::Map {
                at_least,
                deadline,
                reply,
            } => match self.shared_map() {
                Some(map) if map.epoch >= at_least => reply.send(Ok(map)),
                _ => self.held.push_back((
                    begun,
                    Call::Map {
                        at_least,
                        deadline,
                        reply,
                    },
                )),
            },
            Call::Meta {
                call,
                deadline,
                reply,
            } => self.meta.begin(now, call, deadline, reply),
            Call::MetaWatch { span, from, sink } => self.meta.watch(span, from, sink),
            Call::MetaUnwatch { sink } => self.meta.unwatch(&sink),
            Call::Blocked { than, reply } => reply.send(self.client.blocked(now, than)),
        }
    }

    /// Whether the map may be older than this client's connection.
    fn has_old_map(&self, now: Time) -> bool {
        now < self.patient_until && self.came_at.is_none_or(|epoch| self.client.epoch() < epoch)
    }

    /// Whether there is a map and it lacks the pool.
    fn lacks(&self, pool: PoolId) -> bool {
        self.client
            .map()
            .is_some_and(|map| !map.pools.contains_key(&pool))
    }

    /// Asks the monitors for the pools: one request for all waiting operations.
    fn ask_for_pools(&mut self, now: Time) {
        if self
            .asked
            .values()
            .any(|asked| matches!(asked.reply, For::Pools))
        {
            return;
        }
        let token = self.next_token;
        self.next_token += 1;
        let request = nacre_command::Command::PoolLs {}.to_json().to_string();
        // Waiting operations have their own deadlines; without a leader the answer comes sooner.
        let deadline = now + POOLS_MAX;
        let asked = Asked {
            request,
            writes: false,
            begun: now,
            deadline,
            sent: false,
            reply: For::Pools,
        };
        self.asked.insert(token, asked);
        self.send_commands();
    }

    /// Handles the monitors' list of pools, requested at `asked_at`. Operations that waited then
    /// for a pool that is not in it fail.
    fn on_pools(&mut self, asked_at: Time, reply: &str) {
        let Ok(reply) = serde_json::from_str::<Value>(reply) else {
            return;
        };
        let epoch = reply
            .get("epoch")
            .and_then(Value::as_u64)
            .map_or(Epoch::NONE, Epoch);
        self.came_at.get_or_insert(epoch);
        let Some(pools) = reply.get("pools").and_then(Value::as_array) else {
            return;
        };
        self.coming = pools
            .iter()
            .filter_map(|pool| pool.get("id")?.as_u64().map(PoolId))
            .collect();
        for (begun, call) in std::mem::take(&mut self.held) {
            match call {
                Call::Operate {
                    operation, reply, ..
                } if begun <= asked_at
                    && self.lacks(operation.pool)
                    && !self.coming.contains(&operation.pool) =>
                {
                    reply.send(Err(Error::NoSuchPool {
                        name: operation.pool.0.to_string(),
                    }));
                }
                call => self.held.push_back((begun, call)),
            }
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
            let command = Command {
                token: *token,
                request: asked.request.clone(),
            };
            self.outputs.push(Output::SendMon {
                message: Message::Command(command),
            });
        }
    }

    pub fn on_message(&mut self, now: Time, from: Entity, epoch: Epoch, message: Message) {
        if let Message::CommandReply(reply) = message {
            match (self.asked.remove(&reply.token), reply.error) {
                (
                    Some(Asked {
                        reply: For::Pools,
                        begun,
                        ..
                    }),
                    None,
                ) => {
                    self.on_pools(begun, &reply.reply);
                    // For operations that came after the request, ask again.
                    self.retry_held(now);
                }
                (Some(asked), None) => asked.reply.send(Ok(reply.reply)),
                (Some(asked), Some(why)) => asked.reply.send(Err(Error::Command(why))),
                (None, _) => {}
            }
            return;
        }
        if self.meta.on_message(now, from, &message) {
            return;
        }
        let before = self.client.epoch();
        self.client.on_message(now, from, epoch, message);
        if self.client.epoch() != before {
            self.retry_held(now);
        }
    }

    /// Retries operations that waited for a map or for space in the queue.
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
                self.meta.on_session_lost();
                let lost: Vec<u64> = self
                    .asked
                    .iter()
                    .filter(|(_, a)| a.sent && a.writes)
                    .map(|(token, _)| *token)
                    .collect();
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

    /// Whether a command was sent and is unanswered.
    pub fn awaits_answers(&self) -> bool {
        self.asked.values().any(|asked| asked.sent) || self.meta.awaits_answers()
    }

    pub fn on_mon_session(&mut self, now: Time) {
        self.session = true;
        self.meta.on_session(now);
        self.client.on_mon_session(now);
        if self.port.is_some() && self.patient_until == Time::ZERO {
            self.patient_until = now + FIRST_MAP_MAX;
            self.ask_for_pools(now);
        }
        self.send_commands();
    }

    pub fn on_tick(&mut self, now: Time) {
        if self.client.next_deadline() <= now {
            self.client.on_tick(now);
        }
        self.meta.on_tick(now);
        if self.expire_at <= now {
            // Callers' deadlines are in seconds; checking four times a second is exact enough.
            self.expire_at = now + Duration::from_millis(250);
            self.expire(now);
        }
    }

    fn expire(&mut self, now: Time) {
        // A caller that registered a watch and gave up waiting never receives its events.
        let nobodys = |hearing: &Arc<Hearing>| Arc::strong_count(hearing) == 1;
        let left: Vec<WatchId> = self
            .watching
            .iter()
            .filter(|(_, h)| nobodys(h))
            .map(|(watch, _)| *watch)
            .collect();
        for watch in left
            .into_iter()
            .filter(|watch| !self.running.contains_key(&OpId(watch.0)))
            .collect::<Vec<_>>()
        {
            self.begin(now, now, Call::Unwatch { watch });
        }
        let late: Vec<OpId> = self
            .running
            .iter()
            .filter(|(_, op)| op.deadline <= now)
            .map(|(id, _)| *id)
            .collect();
        if !late.is_empty() {
            let blocked = self.client.blocked(now, Duration::ZERO);
            for id in late {
                let op = self.running.remove(&id).expect("just listed");
                let waits_for = blocked
                    .iter()
                    .find(|b| b.id == id)
                    .map_or_else(String::new, |b| b.reason.clone());
                op.reply.send(Err(Error::TimedOut {
                    waits_for,
                    waited: now.since(op.begun),
                }));
                self.client.abandon(id);
            }
        }
        let late: Vec<u64> = self
            .asked
            .iter()
            .filter(|(_, a)| a.deadline <= now)
            .map(|(token, _)| *token)
            .collect();
        for token in late {
            let asked = self.asked.remove(&token).expect("just listed");
            let waits_for = if asked.sent {
                "the monitors have not answered the command"
            } else {
                NO_MAP
            };
            let waited = now.since(asked.begun);
            asked.reply.send(Err(Error::TimedOut {
                waits_for: waits_for.to_owned(),
                waited,
            }));
        }
        let is_late = |call: &Call| match call {
            Call::Operate { deadline, .. }
            | Call::Watch { deadline, .. }
            | Call::Command { deadline, .. }
            | Call::Map { deadline, .. } => *deadline <= now,
            Call::Blocked { .. }
            | Call::Acknowledge { .. }
            | Call::Unwatch { .. }
            | Call::Meta { .. }
            | Call::MetaWatch { .. }
            | Call::MetaUnwatch { .. } => false,
        };
        // The wait for a newer map is over: waiting operations continue with this one.
        let began_with_it = self
            .came_at
            .is_some_and(|epoch| self.client.epoch() >= epoch);
        if !began_with_it && self.patient_until <= now && !self.held.is_empty() {
            self.came_at = Some(Epoch::NONE);
            self.retry_held(now);
        }
        // The request failed (no leader, for example): repeat it while operations wait.
        let unknown = |pool| self.lacks(pool) && !self.coming.contains(&pool);
        if self.held.iter().any(
            |(_, call)| matches!(call, Call::Operate { operation, .. } if unknown(operation.pool)),
        ) {
            self.ask_for_pools(now);
        }
        if self.held.iter().any(|(_, call)| is_late(call)) {
            for (begun, call) in std::mem::take(&mut self.held) {
                if !is_late(&call) {
                    self.held.push_back((begun, call));
                    continue;
                }
                let waits_for = if self.client.map().is_some() {
                    OLD_MAP
                } else {
                    NO_MAP
                };
                let error = Error::TimedOut {
                    waits_for: waits_for.to_owned(),
                    waited: now.since(begun),
                };
                match call {
                    Call::Operate { reply, .. } | Call::Watch { reply, .. } => {
                        reply.send(Err(error))
                    }
                    Call::Map { reply, .. } => reply.send(Err(error)),
                    Call::Command { .. }
                    | Call::Blocked { .. }
                    | Call::Acknowledge { .. }
                    | Call::Unwatch { .. }
                    | Call::Meta { .. }
                    | Call::MetaWatch { .. }
                    | Call::MetaUnwatch { .. } => unreachable!("never held, or never late"),
                }
            }
        }
    }

    fn take_outputs(&mut self, now: Time, out: &mut Vec<Output>) {
        out.append(&mut self.outputs);
        self.client.take_outputs(out);
        if self.port.is_some() {
            self.client.completions(&mut self.completions);
            let any = !self.completions.is_empty();
            for completion in self.completions.drain(..) {
                if completion.result.is_err() {
                    self.watching.remove(&WatchId(completion.id.0));
                }
                let Some(op) = self.running.remove(&completion.id) else {
                    continue;
                };
                op.reply
                    .send(completion.result.map_err(|failure| match failure {
                        Failure::Refused(why) => Error::Refused(why),
                        Failure::Doubtful(why) => Error::Doubtful(why),
                        Failure::NoSuchPool => Error::NoSuchPool {
                            name: "(removed)".to_owned(),
                        },
                        Failure::Unknown => Error::TimedOut {
                            waits_for: "nobody".to_owned(),
                            waited: now.since(op.begun),
                        },
                        Failure::Foreign { why, .. } => Error::Command(why),
                    }));
            }
            if any && !self.held.is_empty() {
                self.retry_held(now);
                out.append(&mut self.outputs);
                self.client.take_outputs(out);
            }
        }
        self.meta.take_outputs(out);
        if self.port.is_some() {
            self.client.watch_events(&mut self.heard);
            for event in self.heard.drain(..) {
                let (WatchEvent::Notify { watch, .. } | WatchEvent::Lost { watch, .. }) = &event;
                let watch = *watch;
                let lost = matches!(event, WatchEvent::Lost { .. });
                if let Some(hearing) = self.watching.get(&watch) {
                    hearing.push(event);
                }
                if lost {
                    self.watching.remove(&watch);
                }
            }
        }
    }

    /// Stops the client after a fatal error.
    pub fn stop(&mut self, why: &str) {
        let stopped = || Error::Stopped {
            why: why.to_owned(),
        };
        self.meta.stop(why);
        let mut calls: Vec<Call> = self
            .port
            .as_ref()
            .map(|port| port.close(why))
            .unwrap_or_default();
        calls.extend(
            std::mem::take(&mut self.held)
                .into_iter()
                .map(|(_, call)| call),
        );
        for (_, op) in std::mem::take(&mut self.running) {
            op.reply.send(Err(stopped()));
        }
        for (_, asked) in std::mem::take(&mut self.asked) {
            asked.reply.send(Err(stopped()));
        }
        for (_, hearing) in std::mem::take(&mut self.watching) {
            hearing.close();
        }
        for call in calls {
            match call {
                Call::Operate { reply, .. } | Call::Watch { reply, .. } => {
                    reply.send(Err(stopped()))
                }
                Call::Acknowledge { reply, .. } => reply.send(Err(WatchError::NoSuchWatch)),
                Call::Unwatch { .. } => {}
                Call::Command { reply, .. } => reply.send(Err(stopped())),
                Call::Map { reply, .. } => reply.send(Err(stopped())),
                Call::Meta { reply, .. } => reply.send(Err(stopped())),
                Call::MetaWatch { sink, .. } => {
                    sink.push(ended(why));
                }
                Call::MetaUnwatch { .. } => {}
                Call::Blocked { reply, .. } => reply.send(Vec::new()),
            }
        }
    }
}

/// Tell waiting callers on every path: a watch has no deadline of its own.
impl Drop for Access {
    fn drop(&mut self) {
        self.stop("it was closed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::{Receiver, block_on, slot};
    use nacre_client::ClientConfig;
    use nacre_types::{ClientId, ClusterId, MonId, Name};
    use nacre_wire::Wire;
    use nacre_wire::map::{Change, CrushSection, Pool};
    use nacre_wire::msg::monitor::{CommandReply, MapFull};
    use std::task::{Context, Poll, Waker as TaskWaker};

    type Answer = Receiver<Result<Done, Error>>;
    const MON: Entity = Entity::Mon(MonId(0));

    /// A map with pools 1 to `pools`, served by no OSD.
    fn map(pools: u64) -> ClusterMap {
        let mut map = ClusterMap::empty(
            ClusterId(1),
            CrushSection::parse("type 0 osd\n").expect("well-formed"),
        );
        for pool in 1..=pools {
            let settings = Pool {
                created: map.epoch,
                ..Pool::replicated(format!("p{pool}").as_str().into(), 3, 2, 1)
            };
            let delta = map.delta(vec![Change::PoolSet {
                pool: PoolId(pool),
                settings,
            }]);
            map.apply(&delta).expect("applies");
        }
        map
    }

    struct Case {
        access: Access,
        port: Arc<Port>,
        now: Time,
    }
    impl Case {
        /// A client whose first map has pool 1 only, and was the newest.
        fn new() -> Self {
            let mut case = Self::stranger();
            case.sees(1);
            let question = case.questions()[0];
            case.answer(question, Ok(r#"{"pools": [{"id": 1}], "epoch": 1}"#));
            case
        }
        /// A client that has just connected.
        fn stranger() -> Self {
            let now = Time(1_000_000_000);
            let port = Port::new(Arc::new(Waker::new().expect("a descriptor")));
            let client = Client::new(ClientConfig::new(ClientId(7)), now);
            let mut case = Self {
                access: Access::new(client, Instance(1), Some(port.clone())),
                port,
                now,
            };
            case.access.on_mon_session(now);
            case
        }
        fn sees(&mut self, pools: u64) {
            let map = map(pools);
            let full = MapFull {
                map: map.to_bytes().into(),
            };
            self.access
                .on_message(self.now, MON, map.epoch, Message::MapFull(full));
        }
        fn operate(&mut self, pool: u64) -> Answer {
            let (reply, receiver) = slot();
            let permit = block_on(self.port.gate.enter(0));
            let operation = Operation {
                pool: PoolId(pool),
                ..Operation::default()
            };
            let deadline = self.now + Duration::from_secs(30);
            self.port
                .call(Call::Operate {
                    operation,
                    deadline,
                    reply,
                    permit,
                })
                .expect("it runs");
            self.access.take_calls(self.now);
            receiver
        }
        /// Tokens of the requests sent since the last call.
        fn questions(&mut self) -> Vec<u64> {
            let mut out = Vec::new();
            self.access.take_outputs(self.now, &mut out);
            let command = |output| match output {
                Output::SendMon {
                    message: Message::Command(command),
                } => Some(command),
                _ => None,
            };
            let commands = out.into_iter().filter_map(command);
            commands
                .inspect(|command| assert!(command.request.contains("pool ls")))
                .map(|c| c.token)
                .collect()
        }
        fn answer(&mut self, token: u64, answer: Result<&str, &str>) {
            let (reply, error) = (
                answer.unwrap_or("{}").to_owned(),
                answer.err().map(str::to_owned),
            );
            let message = Message::CommandReply(CommandReply {
                token,
                error,
                reply,
            });
            self.access.on_message(self.now, MON, Epoch(1), message);
        }
        fn waits(&mut self, millis: u64) {
            for _ in 0..millis / 100 {
                self.now = self.now + Duration::from_millis(100);
                self.access.on_tick(self.now);
            }
        }
    }
    fn ended(answer: &mut Answer) -> Option<Result<Done, Error>> {
        let mut context = Context::from_waker(TaskWaker::noop());
        match std::pin::Pin::new(answer).poll(&mut context) {
            Poll::Ready(answer) => answer,
            Poll::Pending => None,
        }
    }
    use std::future::Future as _;

    /// The answer if it is there; does not wait.
    fn now<T>(answer: &mut Receiver<T>) -> Option<T> {
        match std::pin::Pin::new(answer).poll(&mut Context::from_waker(TaskWaker::noop())) {
            Poll::Ready(answer) => answer,
            Poll::Pending => None,
        }
    }
    impl Case {
        fn call(&mut self, call: Call) {
            self.port.call(call).expect("it runs");
            self.access.take_calls(self.now);
        }
        fn command(&mut self, request: &str, writes: bool) -> Receiver<Result<String, Error>> {
            let (reply, receiver) = slot();
            let deadline = self.now + Duration::from_secs(30);
            self.call(Call::Command {
                request: request.to_owned(),
                writes,
                deadline,
                reply,
            });
            receiver
        }
        /// Commands that were sent since the last call.
        fn commands(&mut self) -> Vec<(String, u64)> {
            let mut out = Vec::new();
            self.access.take_outputs(self.now, &mut out);
            let command = |output| match output {
                Output::SendMon {
                    message: Message::Command(command),
                } => Some((command.request, command.token)),
                _ => None,
            };
            out.into_iter().filter_map(command).collect()
        }
        fn new_session(&mut self) {
            self.access.on_gone(self.now, MON);
            self.access.on_mon_session(self.now);
        }
    }

    /// A monitor that is lost may have executed a command: its caller is told so, and the command
    /// is not resent. A read-only command is resent; before, its caller waited until its deadline.
    /// A command that was never sent is sent in any case.
    #[test]
    fn a_lost_session_asks_again_what_reads_and_never_what_writes() {
        let mut case = Case::new();
        let (mut looks, mut writes) = (case.command("look", false), case.command("write", true));
        assert_eq!(case.commands().len(), 2);
        case.access.on_gone(case.now, MON);
        let mut later = case.command("later", true);
        let Some(Err(Error::Command(why))) = now(&mut writes) else {
            panic!("it may have happened")
        };
        assert!(why.contains("may or may not have happened"), "{why}");
        assert!(case.commands().is_empty(), "there is no session");
        case.access.on_mon_session(case.now);
        let again = case.commands();
        assert_eq!(
            again
                .iter()
                .map(|(request, _)| request.as_str())
                .collect::<Vec<_>>(),
            ["look", "later"]
        );
        assert!(case.commands().is_empty(), "once");
        assert!(now(&mut looks).is_none() && now(&mut later).is_none());
        for (_, token) in again {
            case.answer(token, Ok("{}"));
        }
        assert!(matches!(
            (now(&mut looks), now(&mut later)),
            (Some(Ok(_)), Some(Ok(_)))
        ));
        // Each new session asks again.
        let mut patient = case.command("look", false);
        for _ in 0..5 {
            assert_eq!(case.commands().len(), 1);
            case.new_session();
        }
        assert_eq!(case.commands().len(), 1);
        case.waits(31_000);
        assert!(
            matches!(now(&mut patient), Some(Err(Error::TimedOut { .. }))),
            "its deadline holds"
        );
        case.new_session();
        assert!(case.commands().is_empty(), "nobody waits for it");
    }

    /// A key or a command too large for any monitor waited for its deadline, with a monitor and
    /// without: here there is no session yet, and each is answered before time passes.
    #[test]
    fn what_cannot_be_sent_is_refused_at_once() {
        let mut case = Case::new();
        case.access.on_gone(case.now, MON);
        let mut command = case.command(&"x".repeat(CLIENT_BYTES_MAX), false);
        let Some(Err(Error::Command(why))) = now(&mut command) else {
            panic!("it waits")
        };
        assert!(
            why.contains(&format!("at most {CLIENT_BYTES_MAX} ")),
            "{why}"
        );
        let span = || MetaSpan::Key {
            key: Name::copy(&[b'x'; Name::LEN_MAX + 1]),
        };
        let (reply, mut asked) = slot();
        let call = MetaCall::Range {
            span: span(),
            limit: 0,
            keys_only: false,
            serializable: false,
        };
        case.call(Call::Meta {
            call,
            deadline: case.now + Duration::from_secs(30),
            reply,
        });
        assert!(matches!(now(&mut asked), Some(Err(Error::Meta(_)))));
        let sink = Arc::<Sink>::default();
        case.call(Call::MetaWatch {
            span: span(),
            from: 0,
            sink: sink.clone(),
        });
        assert!(
            !sink.push(nacre_client::WatchNews::Events {
                events: Vec::new(),
                through: 1
            }),
            "it has ended"
        );
    }

    /// An operation whose caller gave up is neither kept nor resent.
    #[test]
    fn an_operation_whose_caller_gave_up_leaves_nothing() {
        let mut case = Case::new();
        let mut calls: Vec<Answer> = (0..100).map(|_| case.operate(1)).collect();
        assert_eq!(
            (case.access.client.in_flight(), case.access.running.len()),
            (100, 100)
        );
        case.waits(31_000);
        assert!(
            calls
                .iter_mut()
                .all(|call| matches!(ended(call), Some(Err(Error::TimedOut { .. }))))
        );
        case.commands();
        assert_eq!(
            (case.access.client.in_flight(), case.access.running.len()),
            (0, 0)
        );
        let _all = block_on(case.port.gate.enter(64 << 20));
    }

    /// A watch exists for its watcher. If the watcher is dropped before the registration completes,
    /// nothing else would end the watch.
    #[test]
    fn a_watch_that_nobody_hears_ends() {
        let mut case = Case::new();
        let watch = |case: &mut Case| {
            let ((reply, receiver), hearing) = (slot(), Arc::<Hearing>::default());
            let permit = block_on(case.port.gate.enter(0));
            let (deadline, timeout) = (case.now + Duration::from_secs(30), Duration::from_secs(60));
            let (pool, object) = (PoolId(1), ObjectId::named("a"));
            case.call(Call::Watch {
                pool,
                object,
                timeout,
                deadline,
                hearing: hearing.clone(),
                reply,
                permit,
            });
            (receiver, hearing)
        };
        let (_kept, _heard) = watch(&mut case);
        drop(watch(&mut case));
        assert_eq!(case.access.watching.len(), 2);
        case.waits(32_000);
        let heard = case
            .access
            .watching
            .values()
            .filter(|hearing| Arc::strong_count(hearing) == 1)
            .count();
        assert_eq!(heard, 0, "it is kept for nobody");
    }

    /// A watcher read nothing for so long that its watch was ended here, but the monitors kept
    /// sending events to this client until it stopped.
    #[test]
    fn a_watch_that_ended_here_ends_at_the_monitors() {
        use nacre_wire::msg::meta::{MetaError, MetaEvent, MetaEvents};
        let mut case = Case::new();
        let sink = Arc::<Sink>::default();
        case.call(Call::MetaWatch {
            span: MetaSpan::Prefix {
                prefix: "a/".into(),
            },
            from: 1,
            sink: sink.clone(),
        });
        let sent = |case: &mut Case| {
            let mut out = Vec::new();
            case.access.take_outputs(case.now, &mut out);
            let message = |output| match output {
                Output::SendMon { message } => Some(message),
                _ => None,
            };
            out.into_iter().filter_map(message).collect::<Vec<_>>()
        };
        let watch = |message: &Message| match message {
            Message::MetaWatch(watch) => Some(watch.watch),
            _ => None,
        };
        let watch = sent(&mut case)
            .iter()
            .find_map(watch)
            .expect("it is asked for");
        assert!(
            !sink.push(nacre_client::WatchNews::Ended(MetaError::Superseded {})),
            "nobody reads it any more"
        );
        let events = MetaEvents::encode(&[MetaEvent::Delete {
            key: "a/k".into(),
            revision: 1,
        }]);
        let message = Message::MetaEvents(
            MetaEvents {
                watch,
                after: 0,
                through: 1,
            },
            vec![events],
        );
        case.access.on_message(case.now, MON, Epoch(1), message);
        let cancelled = |message: &Message| matches!(message, Message::MetaCancel(cancel) if cancel.watch == watch);
        assert!(
            sent(&mut case).iter().any(cancelled),
            "the monitors are not told"
        );
    }

    /// Two requests waited for others of their client. The second had less time, but was answered
    /// only when the first one's time was over, too.
    #[test]
    fn each_request_about_metadata_has_a_time_of_its_own() {
        use nacre_wire::msg::meta::META_WINDOW;
        let mut case = Case::new();
        let ask = |case: &mut Case, seconds| {
            let (reply, receiver) = slot();
            let call = MetaCall::Leases {};
            case.call(Call::Meta {
                call,
                deadline: case.now + Duration::from_secs(seconds),
                reply,
            });
            receiver
        };
        let mut patient: Vec<_> = (0..META_WINDOW + 10).map(|_| ask(&mut case, 30)).collect();
        let mut hurried = ask(&mut case, 1);
        assert!(
            case.access.next_deadline() <= case.now + Duration::from_secs(1),
            "or nobody looks"
        );
        case.waits(1_000);
        assert!(
            matches!(now(&mut hurried), Some(Err(Error::TimedOut { .. }))),
            "a second is over"
        );
        assert!(
            patient.iter_mut().all(|answer| now(answer).is_none()),
            "the others have time"
        );
        case.waits(30_000);
        assert!(patient.iter_mut().all(|answer| now(answer).is_some()));
    }

    /// Metadata requests beyond a client's limit in flight wait here, and continue when others are
    /// answered.
    #[test]
    fn requests_about_metadata_go_on_when_others_are_answered() {
        use nacre_wire::msg::meta::{META_WINDOW, MetaReply};
        let mut case = Case::new();
        case.commands();
        let count = META_WINDOW + 10;
        let mut answers = Vec::new();
        for n in 0..count {
            let (reply, receiver) = slot();
            let span = MetaSpan::Key {
                key: n.to_string().as_str().into(),
            };
            let call = MetaCall::Range {
                span,
                limit: 0,
                keys_only: false,
                serializable: false,
            };
            case.call(Call::Meta {
                call,
                deadline: case.now + Duration::from_secs(30),
                reply,
            });
            answers.push(receiver);
        }
        let mut done = 0;
        while done < count {
            let mut out = Vec::new();
            case.access.take_outputs(case.now, &mut out);
            let request = |output| match output {
                Output::SendMon {
                    message: Message::MetaRequest(request),
                } => Some(request),
                _ => None,
            };
            let sent: Vec<_> = out.into_iter().filter_map(request).collect();
            assert!(
                !sent.is_empty(),
                "{done} of {count} are done, and nothing is under way"
            );
            for request in sent {
                let result = MetaResult::Ranged {
                    pairs: Vec::new(),
                    more: false,
                };
                let reply = MetaReply {
                    instance: request.instance,
                    sequence: request.sequence,
                    revision: 1,
                    result,
                };
                case.access
                    .on_message(case.now, MON, Epoch(1), Message::MetaReply(reply));
                done += 1;
            }
        }
        assert_eq!(
            answers
                .iter_mut()
                .filter_map(now)
                .filter(Result::is_ok)
                .count() as u64,
            count
        );
    }

    // A client whose first map came from a lagging monitor answered at once that there was no such
    // pool.
    #[test]
    fn a_pool_that_an_old_map_lacks_is_asked_for_and_waited_for() {
        let mut case = Case::new();
        let (mut first, mut second) = (case.operate(2), case.operate(2));
        let questions = case.questions();
        assert_eq!(questions.len(), 1, "one question for both");
        case.answer(questions[0], Ok(r#"{"pools": [{"id": 1}, {"id": 2}]}"#));
        case.waits(1000);
        assert!(
            ended(&mut first).is_none() && ended(&mut second).is_none(),
            "the map is on its way"
        );
        assert_eq!(case.questions(), [] as [u64; 0]);
        case.sees(2);
        assert_eq!(case.access.client.in_flight(), 2);
    }

    /// `nacre class install` was answered, and `nacre class exec` right after it reported that
    /// there was no such class: neither its monitor nor the OSD had received the change yet.
    #[test]
    fn a_client_begins_nothing_with_a_map_from_before_it_came() {
        let mut case = Case::stranger();
        let question = case.questions()[0];
        let (mut early, (reply, mut map)) = (case.operate(1), slot());
        let deadline = case.now + Duration::from_secs(30);
        case.call(Call::Map {
            at_least: Epoch::NONE,
            deadline,
            reply,
        });
        case.sees(1);
        assert_eq!(
            (case.access.client.in_flight(), now(&mut map).is_none()),
            (0, true),
            "it is not known to be new"
        );
        case.answer(
            question,
            Ok(r#"{"pools": [{"id": 1}, {"id": 2}], "epoch": 2}"#),
        );
        assert_eq!(
            (case.access.client.in_flight(), now(&mut map).is_none()),
            (0, true),
            "it is old"
        );
        case.sees(2);
        assert!(ended(&mut early).is_none());
        assert_eq!(
            (case.access.client.in_flight(), now(&mut map).is_some()),
            (1, true)
        );
        case.new_session();
        assert_eq!(case.questions(), [] as [u64; 0], "it has come before");
    }

    /// Objects can be read without a majority of monitors, also by a client that connects then, or
    /// that connects to a monitor cut off from the others.
    #[test]
    fn a_client_that_comes_when_nobody_leads_goes_on_with_what_it_has() {
        for answer in [
            None,
            Some(Err("no monitor majority")),
            Some(Ok(r#"{"pools": [{"id": 1}], "epoch": 2}"#)),
        ] {
            let mut case = Case::stranger();
            let (question, _call) = (case.questions()[0], case.operate(1));
            case.sees(1);
            if let Some(answer) = answer {
                case.answer(question, answer);
            }
            assert_eq!(case.access.client.in_flight(), 0);
            case.waits(2_500);
            assert_eq!(case.access.client.in_flight(), 1);
        }
    }

    /// A pool was created and then used while the answer that it did not exist was in flight.
    #[test]
    fn a_pool_that_is_asked_for_after_a_question_is_not_judged_by_its_answer() {
        let mut case = Case::new();
        let mut first = case.operate(2);
        let question = case.questions()[0];
        case.now = case.now + Duration::from_millis(1);
        let mut second = case.operate(2);
        case.answer(question, Ok(r#"{"pools": [{"id": 1}], "epoch": 1}"#));
        assert!(matches!(
            ended(&mut first),
            Some(Err(Error::NoSuchPool { .. }))
        ));
        assert!(ended(&mut second).is_none());
        assert_eq!(case.questions().len(), 1, "it is asked for again");
    }

    #[test]
    fn a_pool_that_the_monitors_do_not_know_does_not_exist() {
        let mut case = Case::new();
        let (mut gone, mut there) = (case.operate(3), case.operate(2));
        let question = case.questions()[0];
        case.answer(question, Ok(r#"{"pools": [{"id": 1}, {"id": 2}]}"#));
        assert!(matches!(
            ended(&mut gone),
            Some(Err(Error::NoSuchPool { .. }))
        ));
        assert!(ended(&mut there).is_none());
    }

    #[test]
    fn without_a_majority_it_is_asked_again_until_the_callers_deadline() {
        let mut case = Case::new();
        let mut call = case.operate(2);
        for _ in 0..20 {
            for question in case.questions() {
                case.answer(question, Err("no monitor majority"));
            }
            case.waits(1000);
            assert!(ended(&mut call).is_none());
        }
        assert_eq!(case.questions().len(), 1);
        case.waits(15_000);
        let Some(Err(Error::TimedOut { waits_for, .. })) = ended(&mut call) else {
            panic!("its deadline has passed")
        };
        assert_eq!(waits_for, OLD_MAP);
    }

    /// (Planted by a reviewer: it was reported as a definite refusal.) A write was sent twice, and
    /// the second sending was refused because the queue was full: the first may have been executed.
    #[test]
    fn a_doubtful_refusal_stays_doubtful() {
        use nacre_types::OsdId;
        use nacre_wire::map::Address;
        use nacre_wire::msg::client::{OpFailure, OpReply, OpRequest, SubOp};
        let text = "device 0 osd.0\ntype 0 osd\ntype 1 root\nroot default { id -1 alg straw2 item osd.0 weight 1 }\n\
            rule r { id 0 type replicated min_size 1 max_size 10 step take default step choose firstn 0 type osd step emit }\n";
        let mut map = ClusterMap::empty(
            ClusterId(1),
            CrushSection::parse(text).expect("well-formed"),
        );
        let (osd, store, address) = (OsdId(0), 1, Address("o0".into()));
        let changes = vec![
            Change::OsdNew { osd, store },
            Change::OsdUp {
                osd,
                instance: Instance(1),
                address,
                store,
                features: 0,
                process: 1,
            },
            Change::PoolSet {
                pool: PoolId(1),
                settings: Pool::replicated("p1".into(), 1, 1, 1),
            },
        ];
        // Newer than the map that the client has.
        for changes in [
            vec![Change::Flags { flags: 0 }],
            vec![Change::Flags { flags: 1 }],
            changes,
        ] {
            map.apply(&map.delta(changes)).expect("the next delta");
        }
        for again in [false, true] {
            let mut case = Case::new();
            let full = MapFull {
                map: map.to_bytes().into(),
            };
            case.access
                .on_message(case.now, MON, map.epoch, Message::MapFull(full));
            let (reply, mut answer) = slot();
            let permit = block_on(case.port.gate.enter(0));
            let ops = vec![SubOp::WriteFull { length: 0 }];
            let operation = Operation {
                pool: PoolId(1),
                ops,
                ..Operation::default()
            };
            let deadline = case.now + Duration::from_secs(30);
            case.call(Call::Operate {
                operation,
                deadline,
                reply,
                permit,
            });
            let sent = |case: &mut Case| -> Option<OpRequest> {
                let mut out = Vec::new();
                case.access.take_outputs(case.now, &mut out);
                out.into_iter().find_map(|output| match output {
                    Output::Send {
                        message: Message::OpRequest(request, _),
                        ..
                    } => Some(request),
                    _ => None,
                })
            };
            let mut request = sent(&mut case).expect("it is sent");
            if again {
                case.access.on_gone(case.now, Entity::Osd(osd));
                request = sent(&mut case).expect("and again");
            }
            let failure = Some(OpFailure::Full {});
            let (version, results) = (Default::default(), Vec::new());
            let refused = OpReply {
                request: request.request,
                failure,
                version,
                results,
                attempt: request.attempt,
            };
            case.access.on_message(
                case.now,
                Entity::Osd(osd),
                map.epoch,
                Message::OpReply(refused, Vec::new()),
            );
            let mut out = Vec::new();
            case.access.take_outputs(case.now, &mut out);
            match now(&mut answer) {
                Some(Err(Error::Doubtful(OpFailure::Full {}))) if again => {}
                Some(Err(Error::Refused(OpFailure::Full {}))) if !again => {}
                other => panic!("{other:?}"),
            }
        }
    }
}
