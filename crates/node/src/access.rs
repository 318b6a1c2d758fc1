//! A client in its host: the pure role, the callers' operations and commands, and their deadlines.
//!
//! ```text
//!  threads, tasks ──Call──▶ Port ──(one wake-up for many)──▶ Access ──▶ nacre_client::Client
//!        ◀──────────────── Slot ◀───────────────────────────── completions
//!                       owner of the reactor ──submit──────────────────▶ │
//!        ◀─────────────────────────────────────────────────── completions
//! ```
//! Every host of a client is this one, with one session and one bound of what is in flight, the
//! role's: [`crate::Cluster`] on a thread of its own, [`crate::Embedded`] beside its daemons,
//! [`crate::Pipelined`] on its owner's thread. The owner of the reactor may submit to the role
//! itself, without a [`Call`].
//!
//! An operation for which there is no room waits here, in order. `commands` sends commands.
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
//! Invariants: every call is answered exactly once: by the cluster, by its deadline, or when the
//! client stops. Calls about one object begin in the order in which they were made.

mod call;
mod commands;
#[cfg(test)]
mod tests;

pub use call::{Call, Port};

use crate::clock;
use crate::error::Error;
use crate::meta_access::MetaAccess;
use crate::watch::Hearing;
use call::Reply;
use commands::Commands;
use nacre_client::{Client, Completion, Done, ObjectCluster, OpId, WatchEvent, WatchId};
use nacre_role::{Input, Output, Role};
use nacre_types::{Entity, Epoch, Instance, PoolId, Time};
use nacre_wire::{ClusterMap, Message};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How long a new client waits for the majority of the monitors to report the current epoch.
const FIRST_MAP_MAX: Duration = Duration::from_secs(2);

/// An operation in flight that a caller or this client itself began.
struct Running {
    deadline: Time,
    begun: Time,
    /// `None`: its caller has its answer, or there is none.
    reply: Option<Reply<Done>>,
}

/// What a call needs before it can begin.
enum Lack {
    Map,
    Pool(PoolId),
    Room,
}

/// See the module head.
pub struct Access {
    pub client: Client,
    pub instance: Instance,
    port: Arc<Port>,
    running: BTreeMap<OpId, Running>,
    /// Receivers of the events of each watch.
    watching: BTreeMap<WatchId, Arc<Hearing>>,
    /// Calls that wait for a map, and since when.
    held: VecDeque<(Time, Call)>,
    /// Operations that wait for room, and since when.
    waiting: VecDeque<(Time, Call)>,
    commands: Commands,
    /// Pools that the monitors know and this client's map lacks so far.
    coming: BTreeSet<PoolId>,
    /// The monitors' epoch when this client connected, once a majority has reported it.
    came_at: Option<Epoch>,
    /// Until then the client waits for that epoch; before the first session it has no map anyway.
    patient_until: Time,
    expire_at: Time,
    map: Option<Arc<ClusterMap>>,
    meta: MetaAccess,
    completions: Vec<Completion>,
    heard: Vec<WatchEvent>,
    /// Ends of operations that the owner of the reactor has begun.
    own: Vec<Completion>,
    /// Events of watches that the owner of the reactor has begun.
    own_heard: Vec<WatchEvent>,
}

/// Reported as the reason of waiting while there is no map.
const NO_MAP: &str = "no monitor has answered yet; are the monitors running?";
/// Reported while there is a map that lacks something that exists or may exist.
const OLD_MAP: &str =
    "the monitors have not sent the newest map; `nacre health detail` says what is wrong";
/// Reported of an operation that never began.
const NO_ROOM: &str = "earlier operations of this client fill its bounds";

fn timed_out(waits_for: &str, waited: Duration) -> Error {
    Error::TimedOut {
        waits_for: waits_for.to_owned(),
        waited,
    }
}

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
        let idle = self.running.is_empty()
            && self.commands.is_empty()
            && self.held.is_empty()
            && self.waiting.is_empty();
        let next = self.client.next_deadline().min(self.meta.next_deadline());
        if idle { next } else { next.min(self.expire_at) }
    }
    fn map(&self) -> Option<&ClusterMap> {
        self.client.map()
    }
}

impl Access {
    pub fn new(client: Client, instance: Instance, port: Arc<Port>) -> Self {
        Self {
            client,
            instance,
            port,
            running: BTreeMap::new(),
            watching: BTreeMap::new(),
            held: VecDeque::new(),
            waiting: VecDeque::new(),
            commands: Commands::new(),
            coming: BTreeSet::new(),
            came_at: None,
            patient_until: Time::ZERO,
            expire_at: Time::ZERO,
            map: None,
            meta: MetaAccess::new(instance),
            completions: Vec::new(),
            heard: Vec::new(),
            own: Vec::new(),
            own_heard: Vec::new(),
        }
    }

    /// Takes the callers' calls.
    pub fn take_calls(&mut self, now: Time) -> bool {
        let calls = self.port.take();
        let any = !calls.is_empty();
        for call in calls {
            self.begin(now, now, call);
        }
        any
    }

    /// Begins a call, or keeps it until it can begin.
    fn begin(&mut self, now: Time, begun: Time, call: Call) {
        let must_queue = !self.waiting.is_empty() && call.bytes().is_some();
        match self.lack(now, &call) {
            None if !must_queue => self.start(now, begun, call),
            // Not so if it lacks a map: an earlier one of the same object may lack it as well.
            None | Some(Lack::Room) => self.waiting.push_back((begun, call)),
            Some(Lack::Map) => self.held.push_back((begun, call)),
            Some(Lack::Pool(pool)) => {
                self.held.push_back((begun, call));
                if !self.coming.contains(&pool) {
                    self.commands.ask_for_pools(now);
                }
            }
        }
    }

    fn lack(&self, now: Time, call: &Call) -> Option<Lack> {
        if let Call::Map { at_least, .. } = call {
            let map = self.map_at(now);
            return map
                .is_none_or(|map| map.epoch < *at_least)
                .then_some(Lack::Map);
        }
        if let Some(pool) = call.pool() {
            let Some(map) = self.map_at(now) else {
                return Some(Lack::Map);
            };
            if !map.pools.contains_key(&pool) {
                return Some(Lack::Pool(pool));
            }
        }
        let is_full = |bytes| !self.client.has_room(bytes);
        call.bytes().is_some_and(is_full).then_some(Lack::Room)
    }

    /// Begins a call that lacks nothing.
    fn start(&mut self, now: Time, begun: Time, call: Call) {
        match call {
            Call::Operate {
                operation,
                deadline,
                reply,
            } => match self.client.submit(now, operation) {
                Ok(id) => self.run(id, begun, deadline, Some(reply)),
                Err(refused) => reply.send(Err(Error::refused(&refused))),
            },
            Call::Watch {
                pool,
                object,
                timeout,
                deadline,
                hearing,
                reply,
            } => match self.client.watch(now, pool, object, timeout) {
                Ok(watch) => {
                    hearing.begin(watch);
                    self.watching.insert(watch, hearing);
                    self.run(OpId(watch.0), begun, deadline, Some(reply));
                }
                Err(refused) => reply.send(Err(Error::refused(&refused))),
            },
            Call::Acknowledge {
                watch,
                notify,
                data,
                reply,
            } => {
                let done = self.client.ack_notify(now, watch, notify, data);
                reply.send(done.map_err(Error::Watch));
            }
            Call::Unwatch { watch } => {
                self.watching.remove(&watch);
                // Otherwise it is lost, or its pool is gone.
                if let Ok(Some(id)) = self.client.unwatch(now, watch) {
                    self.run(id, begun, Time::MAX, None);
                }
            }
            Call::Command {
                request,
                writes,
                deadline,
                reply,
            } => self
                .commands
                .begin((begun, deadline), request, writes, reply),
            Call::Map { reply, .. } => reply.send(Ok(self.shared_map().expect("just seen"))),
            Call::Meta {
                call,
                deadline,
                reply,
            } => self.meta.begin(now, call, deadline, reply),
            Call::MetaWatch { span, from, sink } => self.meta.watch(span, from, sink),
            Call::MetaUnwatch { sink } => self.meta.unwatch(&sink),
            Call::Blocked { than, reply } => reply.send(Ok(self.client.blocked(now, than))),
        }
    }

    fn run(&mut self, id: OpId, begun: Time, deadline: Time, reply: Option<Reply<Done>>) {
        let running = Running {
            deadline,
            begun,
            reply,
        };
        self.running.insert(id, running);
    }

    /// Begins operations that waited for room, in order, as long as there is some.
    fn admit(&mut self, now: Time) {
        while let Some((begun, call)) = self.waiting.pop_front() {
            if call.is_given_up() {
                continue;
            }
            match self.lack(now, &call) {
                None => self.start(now, begun, call),
                Some(Lack::Room) => return self.waiting.push_front((begun, call)),
                // Its pool was removed meanwhile.
                Some(Lack::Map | Lack::Pool(_)) => self.held.push_back((begun, call)),
            }
        }
    }

    /// The map, unless it may be older than this client's connection: nothing begins with that.
    fn map_at(&self, now: Time) -> Option<&ClusterMap> {
        let map = self.client.map()?;
        let is_old = now < self.patient_until && self.came_at.is_none_or(|epoch| map.epoch < epoch);
        (!is_old).then_some(map)
    }

    /// The map with which operations may begin now.
    pub fn usable_map(&self) -> Option<&ClusterMap> {
        // No reading of the clock for each operation of the owner.
        match (self.client.map(), self.came_at) {
            (Some(map), Some(epoch)) if map.epoch >= epoch => Some(map),
            _ => self.map_at(clock::now()),
        }
    }

    /// Whether there is a map and it lacks the pool, and the monitors have not said that there is
    /// one.
    fn is_unknown(&self, pool: PoolId) -> bool {
        let lacks = |map: &ClusterMap| !map.pools.contains_key(&pool);
        self.client.map().is_some_and(lacks) && !self.coming.contains(&pool)
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
            match call.pool() {
                Some(pool) if begun <= asked_at && self.is_unknown(pool) => {
                    let name = pool.0.to_string();
                    call.fail(Error::NoSuchPool { name });
                }
                _ => self.held.push_back((begun, call)),
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

    pub fn on_message(&mut self, now: Time, from: Entity, epoch: Epoch, message: Message) {
        let message = match message {
            Message::CommandReply(reply) if Commands::is_ours(&reply) => {
                if let Some((asked_at, pools)) = self.commands.on_reply(reply) {
                    self.on_pools(asked_at, &pools);
                    // For operations that came after the request, ask again.
                    self.retry_held(now);
                }
                return;
            }
            message => message,
        };
        if self.meta.on_message(now, from, &message) {
            return;
        }
        let before = self.client.epoch();
        self.client.on_message(now, from, epoch, message);
        if self.client.epoch() != before {
            self.retry_held(now);
        }
    }

    /// Retries calls that waited for a map.
    fn retry_held(&mut self, now: Time) {
        for (begun, call) in std::mem::take(&mut self.held) {
            self.begin(now, begun, call);
        }
    }

    pub fn on_gone(&mut self, now: Time, who: Entity) {
        match who {
            Entity::Osd(osd) => self.client.on_peer_reset(now, osd),
            Entity::Mon(_) => {
                self.meta.on_session_lost();
                self.commands.on_session_lost();
            }
            Entity::Client(_) => {}
        }
    }

    /// Whether a command was sent and is unanswered.
    pub fn awaits_answers(&self) -> bool {
        self.commands.awaits_answers() || self.meta.awaits_answers()
    }

    pub fn on_mon_session(&mut self, now: Time) {
        self.meta.on_session(now);
        self.client.on_mon_session(now);
        if self.patient_until == Time::ZERO {
            self.patient_until = now + FIRST_MAP_MAX;
            self.commands.ask_for_pools(now);
        }
        self.commands.on_session();
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
        self.end_unheard_watches(now);
        self.expire_running(now);
        self.commands.expire(now);
        // The wait for a newer map is over: waiting operations continue with this one.
        let began_with_it = self
            .came_at
            .is_some_and(|epoch| self.client.epoch() >= epoch);
        if !began_with_it && self.patient_until <= now && !self.held.is_empty() {
            self.came_at = Some(Epoch::NONE);
            self.retry_held(now);
        }
        // The request failed (no leader, for example): repeat it while operations wait.
        let unknown = |(_, call): &(Time, Call)| call.pool().is_some_and(|p| self.is_unknown(p));
        if self.held.iter().any(unknown) {
            self.commands.ask_for_pools(now);
        }
        let no_map = match self.client.map() {
            Some(_) => OLD_MAP,
            None => NO_MAP,
        };
        for (queue, waits_for) in [(&mut self.held, no_map), (&mut self.waiting, NO_ROOM)] {
            let is_late = |(_, call): &(Time, Call)| call.deadline().is_some_and(|at| at <= now);
            if queue.iter().any(is_late) {
                let (late, kept): (VecDeque<_>, _) = queue.drain(..).partition(is_late);
                *queue = kept;
                for (begun, call) in late {
                    call.fail(timed_out(waits_for, now.since(begun)));
                }
            }
        }
        self.admit(now);
    }

    /// A caller that registered a watch and gave up waiting never receives its events.
    fn end_unheard_watches(&mut self, now: Time) {
        let registers = |watch: &WatchId| {
            let running = self.running.get(&OpId(watch.0));
            running.is_some_and(|op| op.reply.is_some())
        };
        let unheard = self
            .watching
            .iter()
            .filter(|(watch, hearing)| Arc::strong_count(hearing) == 1 && !registers(watch));
        let unheard: Vec<WatchId> = unheard.map(|(watch, _)| *watch).collect();
        for watch in unheard {
            self.begin(now, now, Call::Unwatch { watch });
        }
    }

    fn expire_running(&mut self, now: Time) {
        let is_late = |op: &Running| op.deadline <= now && op.reply.is_some();
        if !self.running.values().any(is_late) {
            return;
        }
        let blocked = self.client.blocked(now, Duration::ZERO);
        for (id, op) in self.running.iter_mut().filter(|(_, op)| is_late(op)) {
            let waits_for = blocked.iter().find(|blocked| blocked.id == *id);
            let waits_for = waits_for.map_or("", |blocked| &blocked.reason);
            let why = timed_out(waits_for, now.since(op.begun));
            op.reply.take().expect("just seen").send(Err(why));
            // It ends with the completion of this.
            self.client.abandon(*id);
        }
    }

    fn take_outputs(&mut self, now: Time, out: &mut Vec<Output>) {
        if self.answer(now) {
            self.admit(now);
        }
        self.commands.take_outputs(out);
        self.client.take_outputs(out);
        self.meta.take_outputs(out);
        self.tell_watchers();
    }

    /// Answers the callers whose operations have ended; returns whether an operation has.
    fn answer(&mut self, now: Time) -> bool {
        if self.running.is_empty() {
            // All are the owner's, and wait in the client.
            return self.client.has_more();
        }
        self.client.completions(&mut self.completions);
        let any = !self.completions.is_empty();
        for completion in self.completions.drain(..) {
            let Some(op) = self.running.remove(&completion.id) else {
                self.own.push(completion);
                continue;
            };
            if completion.result.is_err() {
                self.watching.remove(&WatchId(completion.id.0));
            }
            if let Some(reply) = op.reply {
                let failed = |failure| Error::of(failure, now.since(op.begun));
                reply.send(completion.result.map_err(failed));
            }
        }
        any
    }

    fn tell_watchers(&mut self) {
        if self.watching.is_empty() {
            return;
        }
        self.client.watch_events(&mut self.heard);
        for event in self.heard.drain(..) {
            let (WatchEvent::Notify { watch, .. } | WatchEvent::Lost { watch, .. }) = event;
            let is_lost = matches!(event, WatchEvent::Lost { .. });
            match self.watching.get(&watch) {
                Some(hearing) => hearing.push(event),
                None => self.own_heard.push(event),
            }
            if is_lost {
                self.watching.remove(&watch);
            }
        }
    }

    /// Takes the ends of operations that the owner of the reactor has begun.
    pub fn completions(&mut self, into: &mut Vec<Completion>) {
        if !self.running.is_empty() {
            self.answer(clock::now());
        }
        into.append(&mut self.own);
        if self.running.is_empty() {
            self.client.completions(into);
        }
    }

    /// Takes the events of watches that the owner of the reactor has begun.
    pub fn watch_events(&mut self, into: &mut Vec<WatchEvent>) {
        self.tell_watchers();
        into.append(&mut self.own_heard);
        if self.watching.is_empty() {
            self.client.watch_events(into);
        }
    }

    /// Stops the client after a fatal error.
    pub fn stop(&mut self, why: &str) {
        let stopped = || Error::Stopped {
            why: why.to_owned(),
        };
        self.meta.stop(stopped);
        self.commands.stop(stopped);
        let kept = self.held.drain(..).chain(self.waiting.drain(..));
        let calls = self.port.close(why).into_iter();
        for call in calls.chain(kept.map(|(_, call)| call)) {
            call.fail(stopped());
        }
        let running = std::mem::take(&mut self.running).into_values();
        for reply in running.filter_map(|op| op.reply) {
            reply.send(Err(stopped()));
        }
        for hearing in std::mem::take(&mut self.watching).into_values() {
            hearing.close();
        }
    }
}

/// Tell waiting callers on every path: a watch has no deadline of its own.
impl Drop for Access {
    fn drop(&mut self) {
        self.stop("it was closed");
    }
}
