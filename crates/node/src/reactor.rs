//! The event loop: all ready inputs, then the roles, then one write per connection and one commit
//! request per store.
//!
//! ```text
//!  sleep ─▶ accept · recv ─▶ frames ─┐             ┌─▶ frames queued ─▶ one sendmsg per connection
//!  (epoll)  workers' results ────────┼▶ now ─▶ role ┼─▶ submit, read ─▶ then one commit request
//!           callers' calls ──────────┘     ▲       └─▶ to a daemon of this process: by value, same turn ─┐
//!                                          └──────────────────────────────────────────────────────────────┘
//! ```
//! One thread runs any number of daemons: one in a daemon's process, all of them in an embedded
//! cluster. Between daemons of one reactor messages travel as values, without encoding, copies or
//! system calls.
//!
//! Budget, 4 KiB durable overwrite at depth 16, three replicas, all processes together (DESIGN §10:
//! 60 µs). System calls are per batch of 16, so divide by the batch that forms; copies are those of
//! the payload.
//!
//! | station | system calls per batch | payload copies by us | budget per operation |
//! | --- | --- | --- | --- |
//! | client | recv, sendmsg, epoll | 0 | 5 µs |
//! | primary | 3 recv, 3 sendmsg, epoll, pwritev, fdatasync (worker) | 0 | 22 µs |
//! | replica, each of two | recv, sendmsg, epoll, pwritev, fdatasync (worker) | 0 | 15 µs |
//!
//! [`Traffic::bytes_copied`] counts the host's own copies: the header of a frame that began at a
//! receive buffer's end, the first few hundred bytes of a large payload.
//!
//! Invariants: `now` is read after the inputs to be processed were received; a role's outputs are
//! performed in order, before its next input; per pair of daemons messages are delivered in order,
//! and no message of a replaced session is delivered after its successor's first.

mod again;
mod ending;
#[cfg(test)]
mod engines;
mod handshake;
#[cfg(test)]
mod meeting;
#[cfg(test)]
mod mistreated;
mod receiving;
mod sending;
mod serving;
mod sessions;

use crate::any_role::AnyRole;
use crate::clock;
use crate::conn::{Conn, State, Traffic};
use crate::device::Blocks;
use crate::directory;
use crate::error::StartError;
use crate::hosted::Hosted;
use crate::last_words::LastWords;
use crate::links::Links;
use crate::moved::Moved;
use crate::net::Listener;
use crate::wake::Waker;
use crate::watchdog::{News, OnHung, Watchdog, Witness};
use crate::workers::Workers;
use crate::yielding::Yielding;
use nacre_role::{Input, Output, Role as _};
use nacre_store::{Event, SubmitError};
use nacre_types::{ClusterId, Entity, Epoch, Instance, MonId, Name, Time};
use nacre_wire::map::Address;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Maximum rounds of local messages per turn; remaining messages wait for the next turn, after the
/// stores' commits.
const ROUNDS_MAX: usize = 64;
/// Client operations parsed ahead of the role.
const CLIENT_INBOX_MAX: usize = 1024;
/// Maximum number of unauthenticated connections of all daemons here together; beyond, the oldest
/// is closed.
const STRANGERS_MAX: usize = 128;
/// Descriptors reserved for stores, logs and other files of the process.
const DESCRIPTORS_KEPT: usize = 64;
/// Interval at which a lasting condition is reported again.
const TELL_AGAIN: Duration = Duration::from_secs(60);
/// Maximum number of connections, regardless of the descriptor limit.
const CONNS_MAX: usize = 60_000;
/// A turn with no more inputs than these counts as idle: those of a single writer, with a heartbeat
/// beside it.
const IDLE_INPUTS: usize = 2;
const HOUSEKEEPING: Duration = Duration::from_millis(500);
/// Up to this many inputs between two housekeepings, per daemon, a daemon counts as idle:
/// heartbeats, beacons, status queries.
const QUIET_INPUTS: u64 = 100;
/// Number of consecutive quiet housekeepings that make an idle phase.
const QUIET_LOOKS: u32 = 2;

const TOKEN_WAKER: u64 = u64::MAX;
const TOKEN_SIGNAL: u64 = u64::MAX - 1;
const TOKEN_LISTENER: u64 = 1 << 62;

/// A daemon in its host.
pub struct Node {
    pub entity: Entity,
    pub role: AnyRole,
    /// Name of a client.
    name: Name,
    /// The instance announced on its connections.
    instance: Instance,
    store: Option<Hosted>,
    /// State of its device.
    device: Option<Arc<News>>,
    /// The state for which the watchdog was last prepared: a daemon that has just come up may hang
    /// at once.
    prepared: (Epoch, bool),
    evaluator: Option<crate::evaluator::Evaluator>,
    links: Links,
    inbox: VecDeque<Waiting>,
    client_inbox: VecDeque<Waiting>,
    listener: Option<Listener>,
    listening: bool,
    address: Option<Address>,
    /// Why it stopped.
    halted: Option<String>,
}

/// Inputs not yet given to a role.
#[derive(Debug)]
struct Waiting {
    input: Input,
    /// Not to be delivered after this time: a reply that depends on a lease.
    before: Option<Time>,
}

impl From<Input> for Waiting {
    fn from(input: Input) -> Self {
        Self {
            input,
            before: None,
        }
    }
}

/// The parts of a daemon.
pub struct NodeParts {
    /// Its identity.
    pub entity: Entity,
    /// Its role.
    pub role: AnyRole,
    /// Outputs from its creation.
    pub begun: Vec<Output>,
    /// Name of a client; daemons have no name.
    pub name: Name,
    /// Its store; `None` for a client.
    pub store: Option<Hosted>,
    /// Its listener.
    pub listener: Option<(Listener, Address)>,
}

/// See the module head.
pub struct Reactor {
    cluster: ClusterId,
    mons: BTreeMap<MonId, String>,
    epoll: OwnedFd,
    waker: Arc<Waker>,
    workers: Workers,
    nodes: Vec<Option<Node>>,
    local: BTreeMap<Entity, usize>,
    conns: Vec<Option<Conn>>,
    free: Vec<usize>,
    /// Maximum number of open connections.
    conns_max: usize,
    /// Whether the descriptors ran out: no connection is accepted until the next housekeeping.
    deaf: bool,
    /// When that was last reported.
    told_deaf: Option<Time>,
    /// Freed in this turn: events of the same turn may still refer to them.
    freed: Vec<usize>,
    dirty: Vec<usize>,
    paused: Vec<usize>,
    events: Vec<epoll::Event>,
    store_events: Vec<Event>,
    outputs: Vec<Output>,
    traffic: Traffic,
    signal: Option<OwnedFd>,
    signalled: bool,
    housekeeping_at: Time,
    said: VecDeque<String>,
    turns: u64,
    /// Whether a hanging device ends the process, not only its daemon.
    hung_ends_process: bool,
    /// Inputs given to roles in this turn.
    given: usize,
    /// Inputs given to roles since the last housekeeping.
    given_since: u64,
    /// Number of consecutive quiet housekeepings.
    quiet_looks: u32,
    idle: Option<fn()>,
    yielding: Yielding,
    // Last: it watches the workers until they have ended.
    watchdog: Watchdog,
}

/// The process's limit of descriptors.
fn descriptors() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

fn io_error(doing: &'static str) -> impl Fn(Errno) -> StartError {
    move |errno| StartError::Io {
        doing,
        path: "the event queue".into(),
        error: errno.into(),
    }
}

impl Reactor {
    /// A reactor without daemons.
    ///
    /// # Errors
    /// The operating system's.
    pub fn new(
        cluster: ClusterId,
        mons: BTreeMap<MonId, String>,
        waker: Arc<Waker>,
        workers: usize,
    ) -> Result<Self, StartError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io_error("make"))?;
        epoll::add(
            &epoll,
            &*waker,
            epoll::EventData::new_u64(TOKEN_WAKER),
            epoll::EventFlags::IN,
        )
        .map_err(io_error("use"))?;
        let workers = Workers::new(workers).map_err(|error| StartError::Io {
            doing: "start threads for",
            path: "the disks".into(),
            error,
        })?;
        let watchdog = Watchdog::new(waker.clone());
        Ok(Self {
            cluster,
            mons,
            epoll,
            waker,
            workers,
            nodes: Vec::new(),
            local: BTreeMap::new(),
            conns: Vec::new(),
            free: Vec::new(),
            conns_max: descriptors()
                .saturating_sub(DESCRIPTORS_KEPT)
                .clamp(16, CONNS_MAX),
            deaf: false,
            told_deaf: None,
            freed: Vec::new(),
            dirty: Vec::new(),
            paused: Vec::new(),
            events: Vec::with_capacity(256),
            store_events: Vec::new(),
            outputs: Vec::new(),
            traffic: Traffic::default(),
            signal: None,
            signalled: false,
            housekeeping_at: Time::ZERO,
            said: VecDeque::new(),
            turns: 0,
            hung_ends_process: false,
            given: 0,
            given_since: 0,
            quiet_looks: 0,
            idle: None,
            yielding: Yielding::default(),
            watchdog,
        })
    }

    /// Sets the function called when an idle phase begins: [`crate::RunOptions::idle`].
    pub fn when_idle(&mut self, idle: Option<fn()>) {
        self.idle = idle;
    }
    /// Sets the reaction to a hanging device; it is called on another thread, since this one may
    /// hang, too. Without it the device's daemon halts.
    pub fn when_hung(&mut self, what: OnHung) {
        self.watchdog.on_hung(what);
        self.hung_ends_process = true;
    }
    /// See [`Watchdog::end_within`].
    pub fn end_within(&self, told: Arc<AtomicBool>, limit: Duration, end: OnHung) {
        self.watchdog.end_within(told, limit, end);
    }
    /// See [`Watchdog::witness`].
    pub fn witness(&self) -> Witness {
        self.watchdog.witness()
    }
    pub fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }
    /// Payload bytes received so far, and those copied on their way.
    pub fn moved(&self) -> Moved {
        let stores = self
            .nodes
            .iter()
            .flatten()
            .filter_map(|node| node.store.as_ref());
        let inside: u64 = stores.map(|store| store.usage().payload_bytes_copied).sum();
        let mut moved = Moved {
            received: self.traffic.payload_in,
            copied: self.traffic.bytes_copied + inside,
            ..Moved::default()
        };
        for node in self.nodes.iter().flatten() {
            if let AnyRole::Osd(osd) = &node.role {
                moved.contexts += osd.counters().contexts_loaded;
                moved.programs += osd.programs().counters.fetched;
            }
        }
        moved
    }
    /// Wake-ups so far.
    pub fn turns(&self) -> u64 {
        self.turns
    }
    /// Stops when this becomes readable.
    pub fn watch_signal(&mut self, fd: OwnedFd) -> Result<(), StartError> {
        epoll::add(
            &self.epoll,
            &fd,
            epoll::EventData::new_u64(TOKEN_SIGNAL),
            epoll::EventFlags::IN,
        )
        .map_err(io_error("watch signals with"))?;
        self.signal = Some(fd);
        Ok(())
    }
    pub fn is_signalled(&self) -> bool {
        self.signalled
    }
    /// The daemons' human-readable lines since the last call.
    pub fn take_said(&mut self) -> Vec<String> {
        self.said.drain(..).collect()
    }
    pub fn node(&self, entity: Entity) -> Option<&Node> {
        self.nodes[*self.local.get(&entity)?].as_ref()
    }
    pub fn node_mut(&mut self, entity: Entity) -> Option<&mut Node> {
        self.nodes[*self.local.get(&entity)?].as_mut()
    }
    pub fn entities(&self) -> Vec<Entity> {
        self.local.keys().copied().collect()
    }

    pub fn say(&mut self, line: String) {
        if self.said.len() >= 1000 {
            self.said.pop_front();
        }
        self.said.push_back(line);
    }

    /// Adds a daemon, with the outputs of its creation.
    pub fn add(&mut self, parts: NodeParts) -> Result<(), StartError> {
        let at = self
            .nodes
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.nodes.len());
        let (listener, address) = parts
            .listener
            .map_or((None, None), |(fds, address)| (Some(fds), Some(address)));
        let node = Node {
            entity: parts.entity,
            instance: parts.role.instance(),
            role: parts.role,
            name: parts.name,
            store: parts.store,
            device: None,
            prepared: (Epoch::NONE, false),
            evaluator: None,
            links: Links::new(parts.entity),
            inbox: VecDeque::new(),
            client_inbox: VecDeque::new(),
            listener,
            listening: false,
            address,
            halted: None,
        };
        assert!(
            self.local.insert(node.entity, at).is_none(),
            "{} runs once",
            node.entity
        );
        if at == self.nodes.len() {
            self.nodes.push(None);
        }
        let now = clock::now();
        let mut node = node;
        if let Some(blocks) = node.store.as_ref().and_then(Hosted::blocks) {
            node.device = Some(self.watch(node.entity, blocks)?);
        }
        let mut outputs = parts.begun;
        node.role.take_outputs(now, &mut outputs);
        self.perform(&mut node, at, &mut outputs);
        self.nodes[at] = Some(node);
        self.introduce(at);
        Ok(())
    }

    /// Opens a daemon's store, monitored by the watchdog from its first call on.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn open_store(&mut self, who: Entity, path: &Path) -> Result<Hosted, StartError> {
        let blocks = directory::open_blocks(path)?;
        self.watch(who, &blocks)?;
        directory::open_hosted(
            self.cluster,
            who,
            blocks,
            &self.workers.handle(),
            &self.waker,
        )
    }

    fn watch(&mut self, who: Entity, blocks: &Arc<Blocks>) -> Result<Arc<News>, StartError> {
        let device = blocks.path().display().to_string();
        self.watchdog
            .watch(who, device, blocks)
            .map_err(|error| StartError::Io {
                doing: "start a thread for",
                path: "the disks".into(),
                error,
            })
    }

    /// Before anything that may hang, the watchdog must know the affected daemons.
    fn prepare_changed(&mut self) {
        for at in 0..self.nodes.len() {
            let Some(node) = &self.nodes[at] else {
                continue;
            };
            let now = match &node.role {
                AnyRole::Osd(osd) if node.device.is_some() => (osd.epoch(), osd.is_live()),
                _ => continue,
            };
            if now != node.prepared {
                self.prepare_for_hang(node);
                self.nodes[at].as_mut().expect("just seen").prepared = now;
            }
        }
    }

    /// Prepares the watchdog for the case that this thread hangs.
    fn prepare_for_hang(&self, node: &Node) {
        let (Some(news), AnyRole::Osd(osd)) = (&node.device, &node.role) else {
            return;
        };
        let words = (self.hung_ends_process && osd.is_live()).then(|| {
            let (beacon, report) = osd.last_words();
            let hello = self.hello_of(node, None);
            let mons = self
                .mons
                .iter()
                .map(|(id, address)| (*id, address.clone()))
                .collect();
            LastWords {
                mons,
                epoch: osd.epoch(),
                hello,
                beacon,
                report,
            }
        });
        news.tell(|for_watchdog| {
            for_watchdog.timing = *osd.timing();
            for_watchdog.words = words;
        });
    }

    /// Without a connection there is no handshake: OSDs and clients of this process learn each
    /// other's names here.
    fn introduce(&mut self, new: usize) {
        let pairs = (0..self.nodes.len()).flat_map(|other| [(new, other), (other, new)]);
        let pairs: Vec<(usize, Entity, nacre_types::Name)> = pairs
            .filter_map(|(client, osd)| {
                let (client, to) = (self.nodes[client].as_ref()?, self.nodes[osd].as_ref()?);
                let meet = matches!(
                    (client.entity, to.entity),
                    (Entity::Client(_), Entity::Osd(_))
                );
                meet.then(|| (osd, client.entity, client.name.clone()))
            })
            .collect();
        for (osd, who, name) in pairs {
            self.named(osd, who, name);
        }
    }

    /// Removes a daemon as `kill -9` would: nothing is finished, peers only see broken connections.
    pub fn kill(&mut self, entity: Entity) -> Option<Node> {
        let at = self.local.remove(&entity)?;
        let node = self.nodes[at].take()?;
        for id in 0..self.conns.len() {
            if self.conns[id].as_ref().is_some_and(|conn| conn.owner == at) {
                self.drop_conn(id);
            }
        }
        let now = clock::now();
        for other in self.nodes.iter_mut().flatten() {
            other.forget(entity);
            // As over a network: an OSD or a client is only connected to its session's monitor.
            if let (Entity::Mon(mon), Entity::Osd(_) | Entity::Client(_)) = (entity, other.entity) {
                if other.links.mon.current() != Some(mon) {
                    continue;
                }
                other.links.mon.on_lost(now, mon);
            }
            other.inbox.push_back(Input::Gone(entity).into());
        }
        Some(node)
    }

    /// Tells the monitors that this daemon stops.
    pub fn shut_down(&mut self, entity: Entity) {
        let Some(&at) = self.local.get(&entity) else {
            return;
        };
        let Some(mut node) = self.nodes[at].take() else {
            return;
        };
        let mut outputs = std::mem::take(&mut self.outputs);
        node.role
            .on_input(clock::now(), Input::Stopping, &mut outputs);
        self.perform(&mut node, at, &mut outputs);
        self.outputs = outputs;
        self.nodes[at] = Some(node);
    }

    /// Whether a role that was told to stop still has messages to send.
    pub fn is_leaving(&self) -> bool {
        self.served().any(|node| node.role.is_leaving())
    }

    /// Whether no message is queued for sockets and no running daemon's store has anything in
    /// flight.
    pub fn is_drained(&self) -> bool {
        self.conns.iter().flatten().all(|conn| !conn.has_output())
            && self
                .served()
                .all(|node| node.store.as_ref().is_none_or(Hosted::is_idle))
    }

    /// Lets every store mark the end of its log; returns whether all have. Call it again after a
    /// turn.
    pub fn mark_ends(&mut self) -> bool {
        let served = self
            .nodes
            .iter_mut()
            .flatten()
            .filter(|node| node.halted.is_none());
        let mut all = true;
        // The flushes run in parallel.
        for store in served.filter_map(|node| node.store.as_mut()) {
            all &= store.mark_end();
        }
        all
    }

    /// The daemons that get turns. Inboxes and stores of halted ones are ignored.
    fn served(&self) -> impl Iterator<Item = &Node> {
        self.nodes
            .iter()
            .flatten()
            .filter(|node| node.halted.is_none())
    }

    /// Why a daemon stopped.
    pub fn halted(&self) -> Vec<(Entity, String)> {
        let nodes = self.nodes.iter().flatten();
        nodes
            .filter_map(|node| Some((node.entity, node.halted.clone()?)))
            .collect()
    }

    /// One wake-up. Sleeps until there is work, at most `max`.
    pub fn turn(&mut self, max: Duration) {
        self.turns += 1;
        self.given_since += std::mem::take(&mut self.given) as u64;
        self.wait(max);
        self.take_frames();
        let mut busy = true;
        for _ in 0..ROUNDS_MAX {
            busy = self.round();
            if !busy {
                break;
            }
        }
        if busy {
            // There is more work: do not sleep.
            self.waker.wake();
        }
        if self.housekeeping_at <= clock::now() {
            self.keep_house();
        }
        self.open_listeners();
        // Before the log: replicas receive their messages while our log is written.
        self.flush();
        // After the flush: a client may have waited for the queue that was just written, and no
        // other event would wake us.
        self.resume_paused();
        self.prepare_changed();
        self.commit_stores();
        self.free.append(&mut self.freed);
        self.reap();
        if cfg!(debug_assertions) {
            self.check();
        }
    }

    /// Asserts the invariants after each turn: all references to connections are valid, and all
    /// connections are referenced.
    fn check(&self) {
        for (id, conn) in self.conns.iter().enumerate() {
            let Some(conn) = conn else { continue };
            conn.check();
            let node = self.nodes[conn.owner]
                .as_ref()
                .expect("connections go with their daemon");
            if let (State::Open, Some(peer)) = (conn.state, conn.who()) {
                assert_eq!(
                    node.links.conn(peer),
                    Some(id),
                    "{} is open to {peer}, who has another connection",
                    node.entity
                );
            }
            assert!(
                !conn.paused || self.paused.contains(&id),
                "nobody goes on with a connection that is paused"
            );
            assert!(
                !conn.dirty || self.dirty.contains(&id),
                "nobody flushes a connection that is to be flushed"
            );
        }
        for (at, node) in self.nodes.iter().enumerate() {
            for (peer, id) in node.iter().flat_map(|node| node.links.all()) {
                let conn = self.conns[id].as_ref().map(|conn| (conn.owner, conn.who()));
                assert_eq!(conn, Some((at, Some(peer))), "the connection to {peer}");
            }
        }
        let vacant = self.conns.iter().filter(|conn| conn.is_none()).count();
        let free: BTreeSet<usize> = self.free.iter().chain(&self.freed).copied().collect();
        assert_eq!(
            (free.len(), self.free.len() + self.freed.len()),
            (vacant, vacant),
            "numbers of connections"
        );
        assert!(
            free.iter().all(|id| self.conns[*id].is_none()),
            "a number that is in use is free"
        );
    }

    /// Begins one log group per store.
    fn commit_stores(&mut self) {
        let now = clock::now();
        let stores = self
            .nodes
            .iter()
            .flatten()
            .filter(|node| node.store.is_some())
            .count();
        let idle = stores == 1 && self.given <= IDLE_INPUTS;
        for node in self.nodes.iter_mut().flatten() {
            if let Some(store) = &mut node.store {
                store.commit_due(now, idle);
                // Each time, not periodically: a fast writer fills the rest of a store within
                // milliseconds.
                if let AnyRole::Osd(osd) = &mut node.role {
                    let (total, used) = store.fullness();
                    osd.on_usage(total, used);
                    osd.on_store_limit(store.logged_bytes_max());
                }
            }
        }
    }

    fn next_deadline(&self) -> Time {
        let mut next = self.housekeeping_at;
        for node in self.served() {
            next = next.min(node.role.next_deadline());
            next = next.min(node.store.as_ref().map_or(Time::MAX, Hosted::commit_at));
            if node.role.wants_mon_session() {
                next = next.min(node.links.mon.wake_at());
            }
        }
        next
    }

    fn has_work(&self) -> bool {
        self.served().any(|node| {
            !node.inbox.is_empty()
                || (!node.client_inbox.is_empty() && node.role.wants_client_work())
                || node.store.as_ref().is_some_and(Hosted::is_ready)
        })
    }

    fn wait(&mut self, max: Duration) {
        debug_assert!(
            self.none_waits_in_vain(),
            "a client whose answers have all left is not read from"
        );
        let busy = self.has_work();
        if !busy {
            self.yielding.before_sleep(clock::now());
        }
        let mut timeout = self.next_deadline().since(clock::now()).min(max);
        if busy || !self.waker.may_sleep() {
            timeout = Duration::ZERO;
        }
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        self.events.clear();
        let result = epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut self.events),
            Some(&timeout),
        );
        self.waker.woke_up();
        match result {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                panic!("waiting for events failed: {errno}; the descriptor is ours and valid")
            }
        }
    }

    /// No event wakes us for a paused connection without queued frames: it must not be paused for
    /// owed answers.
    fn none_waits_in_vain(&self) -> bool {
        let paused = self.paused.iter().filter_map(|&id| self.conns[id].as_ref());
        let mut idle =
            paused.filter(|conn| conn.paused && !conn.has_output() && conn.is_owed_little());
        idle.all(|conn| {
            let node = self.nodes[conn.owner].as_ref();
            node.is_none_or(|node| !node.client_inbox.is_empty() || !node.role.wants_client_work())
        })
    }

    /// Daemons that have become ready for connections accept them from now on.
    fn open_listeners(&mut self) {
        for at in 0..self.nodes.len() {
            let Some(node) = &mut self.nodes[at] else {
                continue;
            };
            if !node.listening
                && !self.deaf
                && node.role.is_listening()
                && let Some(listener) = &node.listener
            {
                let token = epoll::EventData::new_u64(TOKEN_LISTENER | at as u64);
                let add = |socket| epoll::add(&self.epoll, socket, token, epoll::EventFlags::IN);
                node.listening = listener.sockets().all(|socket| add(socket).is_ok());
            }
        }
    }

    /// Periodic work.
    fn keep_house(&mut self) {
        let now = clock::now();
        self.housekeeping_at = now + HOUSEKEEPING;
        for at in 0..self.nodes.len() {
            let Some(node) = &mut self.nodes[at] else {
                continue;
            };
            if let Some(store) = &mut node.store {
                store.look_at_room();
                store.rest();
                if let AnyRole::Osd(osd) = &mut node.role {
                    osd.on_space(&store.space_text());
                }
            }
            let who = node.entity;
            if let Some(why) = node
                .evaluator
                .as_ref()
                .and_then(|evaluator| evaluator.watch(now))
            {
                self.say(format!("{who}: {why}"));
            }
        }
        for node in self.nodes.iter().flatten() {
            self.prepare_for_hang(node);
        }
        if let Some(why) = self.watchdog.check() {
            let watched = self
                .nodes
                .iter_mut()
                .flatten()
                .filter(|node| node.device.is_some());
            watched.for_each(|node| node.halt(why.clone()));
        }
        self.rest();
        // Accept connections again.
        self.deaf = false;
        self.end_slow_greetings();
        self.end_stalled_frames(now);
        self.end_unread(now);
        self.watch_sessions();
    }

    /// Called once per idle phase, when it begins.
    fn rest(&mut self) {
        let quiet = std::mem::take(&mut self.given_since) <= QUIET_INPUTS * self.nodes.len() as u64;
        self.quiet_looks = if quiet {
            self.quiet_looks.saturating_add(1)
        } else {
            0
        };
        if self.quiet_looks == QUIET_LOOKS
            && let Some(idle) = self.idle
        {
            idle();
        }
    }
}

impl Node {
    fn halt(&mut self, why: String) {
        self.halted.get_or_insert(why);
    }
    /// Drops undelivered messages of a peer's previous session.
    fn forget(&mut self, who: Entity) {
        let of = |waiting: &Waiting| matches!(&waiting.input, Input::Message { from, .. } if *from == who);
        self.inbox.retain(|waiting| !of(waiting));
        self.client_inbox.retain(|waiting| !of(waiting));
    }
    /// Space usage of its store.
    pub fn usage(&self) -> Option<nacre_store::Usage> {
        self.store.as_ref().map(Hosted::usage)
    }
}

fn submit_failure(who: Entity, error: SubmitError) -> String {
    match error {
        SubmitError::Full { needed, available } => format!(
            "{who}: its store is full ({needed} bytes needed, {available} left) and a replicated update cannot be refused: \
             add space or OSDs, delete data, then start it again"
        ),
        error => format!("{who}: the store refused a transaction: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    static RESTS: AtomicU32 = AtomicU32::new(0);

    #[test]
    fn a_rest_begins_once_and_again_only_after_work() {
        let waker = Arc::new(Waker::new().expect("an event counter"));
        let mut reactor =
            Reactor::new(ClusterId(1), BTreeMap::new(), waker, 0).expect("an event queue");
        reactor.when_idle(Some(|| {
            RESTS.store(RESTS.load(Ordering::Relaxed) + 1, Ordering::Relaxed)
        }));
        let mut looks = |given: &[u64]| {
            for given in given {
                reactor.given_since = *given;
                reactor.rest();
            }
            RESTS.swap(0, Ordering::Relaxed)
        };
        assert_eq!(
            looks(&[5000, 0, 5000, 0]),
            0,
            "a pause between two loads is none"
        );
        assert_eq!(looks(&[0, 0, 0, 0]), 1);
        assert_eq!(looks(&[5000, 0]), 0);
        assert_eq!(looks(&[0]), 1);
    }
}
