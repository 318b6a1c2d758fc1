//! The loop: everything that is ready, then the roles, then one kick per store and one write per connection.
//!
//! ```text
//!  sleep ─▶ accept · recv ─▶ frames ─┐             ┌─▶ submit, read ─▶ kick the store once
//!  (epoll)  workers' results ────────┼▶ now ─▶ role ┼─▶ frames queued ─▶ one sendmsg per connection
//!           callers' calls ──────────┘     ▲       └─▶ to a daemon of this process: by value, same turn ─┐
//!                                          └──────────────────────────────────────────────────────────────┘
//! ```
//! One thread runs any number of daemons: one in a daemon's process, all of them in an embedded cluster. Between daemons of one
//! reactor messages travel as values, without encoding, copies or system calls.
//!
//! Budget, 4 KiB durable overwrite at depth 16, three copies, everything together (DESIGN §10: 60 µs). System calls per batch of 16,
//! so divide by the batch that forms; copies are those of the payload.
//!
//! | station | system calls per batch | payload copies by us | budget per operation |
//! | --- | --- | --- | --- |
//! | client | recv, sendmsg, epoll | 0 | 5 µs |
//! | primary | 3 recv, 3 sendmsg, epoll, pwritev, fdatasync (worker) | 0 | 22 µs |
//! | replica, each of two | recv, sendmsg, epoll, pwritev, fdatasync (worker) | 0 | 15 µs |
//!
//! [`Traffic::bytes_copied`] counts what the host itself copies: the head of a frame that began at a receive buffer's end.
//!
//! Invariants: `now` is read after the inputs in hand were received; a role's actions are performed in order, before its next input;
//! per pair of daemons messages are delivered in order, and nothing of a replaced session is delivered after its successor's first.

use crate::clock;
use crate::conn::{Conn, QUEUE_BYTES_MAX, Received, State, Traffic};
use crate::error::StartError;
use crate::hosted::Hosted;
use crate::links::{self, Links, Session};
use crate::moved::Moved;
use crate::net;
use crate::role::{Action, Input, Role};
use crate::wake::Waker;
use crate::workers::Workers;
use nacre_store::{Event, SubmitError};
use nacre_types::{ClusterId, Entity, MonId, Time};
use nacre_wire::map::Address;
use nacre_wire::msg::monitor::{Hello, Refused};
use nacre_wire::{Frame, Message};
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Rounds of local messages in one turn; what is left waits for the next, after the stores were kicked.
const ROUNDS_MAX: usize = 64;
/// A handshake takes at most this long.
const GREETING_MAX: Duration = Duration::from_secs(5);
/// Client operations parsed ahead of the role.
const CLIENT_INBOX_MAX: usize = 1024;
/// Connections that have not said who they are, per daemon.
const STRANGERS_MAX: usize = 256;
const HOUSEKEEPING: Duration = Duration::from_millis(500);

const TOKEN_WAKER: u64 = u64::MAX;
const TOKEN_SIGNAL: u64 = u64::MAX - 1;
const TOKEN_LISTENER: u64 = 1 << 62;

/// A daemon in its host.
pub struct Node {
    pub entity: Entity,
    pub role: Role,
    store: Option<Hosted>,
    links: Links,
    inbox: VecDeque<Input>,
    client_inbox: VecDeque<Input>,
    listener: Option<OwnedFd>,
    listening: bool,
    address: Option<Address>,
    /// Why it stopped.
    halted: Option<String>,
}

/// What a daemon needs to run.
pub struct NodeParts {
    /// Who it is.
    pub entity: Entity,
    /// What it does.
    pub role: Role,
    /// Its store; a client has none.
    pub store: Option<Hosted>,
    /// Where it listens.
    pub listener: Option<(OwnedFd, Address)>,
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
    /// Freed in this turn: events of the same turn may still name them.
    freed: Vec<usize>,
    dirty: Vec<usize>,
    paused: Vec<usize>,
    events: Vec<epoll::Event>,
    store_events: Vec<Event>,
    actions: Vec<Action>,
    traffic: Traffic,
    signal: Option<OwnedFd>,
    signalled: bool,
    housekeeping_at: Time,
    said: VecDeque<String>,
    turns: u64,
}

fn io_error(doing: &'static str) -> impl Fn(Errno) -> StartError {
    move |errno| StartError::Io { doing, path: "the event queue".into(), error: errno.into() }
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
        epoll::add(&epoll, &*waker, epoll::EventData::new_u64(TOKEN_WAKER), epoll::EventFlags::IN)
            .map_err(io_error("use"))?;
        let workers = Workers::new(workers).map_err(|error| StartError::Io {
            doing: "start threads for",
            path: "the disks".into(),
            error,
        })?;
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
            freed: Vec::new(),
            dirty: Vec::new(),
            paused: Vec::new(),
            events: Vec::with_capacity(256),
            store_events: Vec::new(),
            actions: Vec::new(),
            traffic: Traffic::default(),
            signal: None,
            signalled: false,
            housekeeping_at: Time::ZERO,
            said: VecDeque::new(),
            turns: 0,
        })
    }

    pub fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }
    pub fn workers(&self) -> &Workers {
        &self.workers
    }
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }
    /// Payload bytes received so far, and those copied on their way.
    pub fn moved(&self) -> Moved {
        let stores = self.nodes.iter().flatten().filter_map(|node| node.store.as_ref());
        let inside: u64 = stores.map(|store| store.usage().payload_bytes_copied).sum();
        Moved { received: self.traffic.payload_in, copied: self.traffic.bytes_copied + inside }
    }
    /// Wake-ups so far.
    pub fn turns(&self) -> u64 {
        self.turns
    }
    /// Stop when this becomes readable.
    pub fn watch_signal(&mut self, fd: OwnedFd) -> Result<(), StartError> {
        epoll::add(&self.epoll, &fd, epoll::EventData::new_u64(TOKEN_SIGNAL), epoll::EventFlags::IN)
            .map_err(io_error("watch signals with"))?;
        self.signal = Some(fd);
        Ok(())
    }
    pub fn is_signalled(&self) -> bool {
        self.signalled
    }
    /// The daemons' lines for people since the last call.
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

    fn say(&mut self, line: String) {
        if self.said.len() >= 1000 {
            self.said.pop_front();
        }
        self.said.push_back(line);
    }

    /// Adds a daemon. What it did at its start comes with it.
    pub fn add(&mut self, parts: NodeParts) -> Result<(), StartError> {
        let at = self.nodes.iter().position(Option::is_none).unwrap_or(self.nodes.len());
        let (listener, address) = parts.listener.map_or((None, None), |(fd, address)| (Some(fd), Some(address)));
        let node = Node {
            entity: parts.entity,
            role: parts.role,
            store: parts.store,
            links: Links::new(parts.entity),
            inbox: VecDeque::new(),
            client_inbox: VecDeque::new(),
            listener,
            listening: false,
            address,
            halted: None,
        };
        assert!(self.local.insert(node.entity, at).is_none(), "{} runs once", node.entity);
        if at == self.nodes.len() {
            self.nodes.push(None);
        }
        let now = clock::now();
        let mut node = node;
        let mut actions = std::mem::take(&mut self.actions);
        node.role.take_actions(now, &mut actions);
        self.perform(&mut node, at, &mut actions);
        self.actions = actions;
        self.nodes[at] = Some(node);
        Ok(())
    }

    /// Removes a daemon as `kill -9` would: nothing is finished, nobody is told but by broken connections.
    pub fn kill(&mut self, entity: Entity) -> Option<Node> {
        let at = self.local.remove(&entity)?;
        let node = self.nodes[at].take()?;
        for id in 0..self.conns.len() {
            if self.conns[id].as_ref().is_some_and(|conn| conn.owner == at) {
                self.drop_conn(id);
            }
        }
        for other in self.nodes.iter_mut().flatten() {
            other.forget(entity);
            other.inbox.push_back(Input::Gone(entity));
        }
        Some(node)
    }

    /// Tells the monitors that this daemon stops.
    pub fn shut_down(&mut self, entity: Entity) {
        let Some(&at) = self.local.get(&entity) else { return };
        let Some(mut node) = self.nodes[at].take() else { return };
        let mut actions = std::mem::take(&mut self.actions);
        node.role.on_shutdown(clock::now(), &mut actions);
        self.perform(&mut node, at, &mut actions);
        self.actions = actions;
        self.nodes[at] = Some(node);
    }

    /// Whether nothing is queued for sockets and no store has anything in flight.
    pub fn is_drained(&self) -> bool {
        self.conns.iter().flatten().all(|conn| !conn.has_output())
            && self.nodes.iter().flatten().all(|node| node.store.as_ref().is_none_or(Hosted::is_idle))
    }

    /// Why a daemon stopped.
    pub fn halted(&self) -> Vec<(Entity, String)> {
        let nodes = self.nodes.iter().flatten();
        nodes.filter_map(|node| Some((node.entity, node.halted.clone()?))).collect()
    }

    // ── one turn ──────────────────────────────────────────────────────────────────────────────────────────────────

    /// One wake-up. Sleeps until there is something to do, at most `max`.
    pub fn turn(&mut self, max: Duration) {
        self.turns += 1;
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
            // There is more: do not sleep.
            self.waker.wake();
        }
        let now = clock::now();
        for node in self.nodes.iter_mut().flatten() {
            if let Some(store) = &mut node.store {
                store.kick(now);
                // Each time, not now and then: a fast writer fills what is left of a store within milliseconds.
                if let Role::Osd(osd, _) = &mut node.role {
                    let (total, used) = store.fullness();
                    osd.on_usage(total, used);
                }
            }
        }
        self.resume_paused();
        self.flush();
        if self.housekeeping_at <= clock::now() {
            self.keep_house();
        }
        self.free.append(&mut self.freed);
        self.reap();
    }

    fn next_deadline(&self) -> Time {
        let mut next = self.housekeeping_at;
        for node in self.nodes.iter().flatten().filter(|node| node.halted.is_none()) {
            next = next.min(node.role.next_deadline());
            next = next.min(node.store.as_ref().map_or(Time::MAX, Hosted::kick_at));
            if node.role.wants_mon_session() {
                next = next.min(node.links.mon.wake_at());
            }
        }
        next
    }

    fn has_work(&self) -> bool {
        self.nodes.iter().flatten().any(|node| {
            !node.inbox.is_empty()
                || (!node.client_inbox.is_empty() && node.role.wants_client_work())
                || node.store.as_ref().is_some_and(Hosted::is_ready)
        })
    }

    fn wait(&mut self, max: Duration) {
        let now = clock::now();
        let mut timeout = self.next_deadline().since(now).min(max);
        if self.has_work() || !self.waker.may_sleep() {
            timeout = Duration::ZERO;
        }
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        self.events.clear();
        let result = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&timeout));
        self.waker.woke_up();
        match result {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => panic!("waiting for events failed: {errno}; the descriptor is ours and valid"),
        }
    }

    /// Accepts and receives. Strangers before acquaintances: see `links.rs` on simultaneous dialing.
    fn take_frames(&mut self) {
        let events = std::mem::take(&mut self.events);
        for event in &events {
            let token = event.data.u64();
            if token == TOKEN_WAKER {
                self.waker.drain();
            } else if token == TOKEN_SIGNAL {
                self.signalled = true;
                if let Some(fd) = &self.signal {
                    let _ = rustix::io::read(fd, &mut [0_u8; 64]);
                }
            } else if token & TOKEN_LISTENER != 0 {
                self.accept((token & !TOKEN_LISTENER) as usize);
            }
        }
        for acquainted in [false, true] {
            for event in &events {
                let token = event.data.u64();
                if token >= TOKEN_LISTENER {
                    continue;
                }
                let id = token as usize;
                let Some(conn) = &self.conns[id] else { continue };
                let stranger = conn.dialed.is_none() && conn.state == State::Greeting;
                if stranger == acquainted {
                    continue;
                }
                self.on_ready(id, event.flags);
            }
        }
        self.events = events;
    }

    fn on_ready(&mut self, id: usize, flags: epoll::EventFlags) {
        let Some(conn) = &mut self.conns[id] else { return };
        if conn.state == State::Connecting {
            match rustix::net::sockopt::socket_error(&conn.fd) {
                Ok(Ok(())) if flags.contains(epoll::EventFlags::OUT) => {
                    conn.state = State::Greeting;
                    self.mark_dirty(id);
                }
                Ok(Ok(())) => return,
                Ok(Err(errno)) | Err(errno) => return self.lost(id, Some(errno), ""),
            }
        } else if flags.contains(epoll::EventFlags::OUT) {
            self.mark_dirty(id);
        }
        if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            self.receive(id);
        }
    }

    fn accept(&mut self, owner: usize) {
        let now = clock::now();
        loop {
            let Some(listener) = self.nodes[owner].as_ref().and_then(|node| node.listener.as_ref()) else { return };
            let Some(fd) = net::accept(listener) else { return };
            let strangers = self.conns.iter().flatten().filter(|c| c.owner == owner && c.peer.is_none()).count();
            if strangers >= STRANGERS_MAX {
                continue;
            }
            let conn = Conn::new(fd, owner, State::Greeting, None, now);
            if let Some(id) = self.register(conn) {
                self.receive(id);
            }
        }
    }

    fn register(&mut self, mut conn: Conn) -> Option<usize> {
        let id = self.free.pop().unwrap_or_else(|| {
            self.conns.push(None);
            self.conns.len() - 1
        });
        conn.interest = (true, conn.state == State::Connecting);
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, conn.interest.1);
        if epoll::add(&self.epoll, &conn.fd, epoll::EventData::new_u64(id as u64), flags).is_err() {
            self.free.push(id);
            return None;
        }
        self.conns[id] = Some(conn);
        Some(id)
    }

    fn set_interest(&mut self, id: usize, read: bool, write: bool) {
        let Some(conn) = &mut self.conns[id] else { return };
        if conn.interest == (read, write) {
            return;
        }
        conn.interest = (read, write);
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, read);
        flags.set(epoll::EventFlags::OUT, write);
        let changed = epoll::modify(&self.epoll, &conn.fd, epoll::EventData::new_u64(id as u64), flags);
        assert!(changed.is_ok(), "the descriptor is registered: {changed:?}");
    }

    fn receive(&mut self, id: usize) {
        let mut taken = 0;
        loop {
            if !self.take_buffered(id) {
                return;
            }
            let Some(conn) = &mut self.conns[id] else { return };
            match conn.receive(&mut taken, &mut self.traffic) {
                Received::Drained => {
                    self.take_buffered(id);
                    return;
                }
                Received::More if Conn::is_served(taken) => {
                    self.take_buffered(id);
                    return;
                }
                Received::More => {}
                Received::Ended(why) => return self.lost(id, None, &why),
            }
        }
    }

    /// Hands on the frames that are in the buffer. False: no more is to be received from this connection now.
    fn take_buffered(&mut self, id: usize) -> bool {
        loop {
            let Some(conn) = &mut self.conns[id] else { return false };
            let owner = conn.owner;
            let Some(node) = &mut self.nodes[owner] else { return false };
            let client = matches!(conn.peer, Some((Entity::Client(_), _)));
            if client
                && (node.client_inbox.len() >= CLIENT_INBOX_MAX || !node.role.wants_client_work() || !conn.takes_work())
            {
                if !conn.paused {
                    conn.paused = true;
                    conn.paused_at = clock::now();
                    self.paused.push(id);
                    let writing = conn.interest.1;
                    self.set_interest(id, false, writing);
                }
                return false;
            }
            let frame = match conn.next_frame(&mut self.traffic) {
                Ok(Some(frame)) => frame,
                Ok(None) => return true,
                Err(why) => {
                    let who = conn.who().map_or_else(|| "a stranger".to_owned(), |who| who.to_string());
                    let me = node.entity;
                    self.say(format!("{me}: closed the connection of {who}: {why}"));
                    self.lost(id, None, "");
                    return false;
                }
            };
            match (conn.state, conn.peer) {
                (State::Open, Some((from, _))) => {
                    let Frame { epoch, message } = frame;
                    if client {
                        conn.note_request(&message);
                    }
                    let input = Input::Message { from, epoch, message, before: None };
                    let inbox = if client { &mut node.client_inbox } else { &mut node.inbox };
                    inbox.push_back(input);
                }
                (State::Greeting, _) => {
                    if !self.on_greeting(id, frame.message) {
                        return false;
                    }
                }
                _ => return false,
            }
        }
    }

    // ── handshakes ────────────────────────────────────────────────────────────────────────────────────────────────

    fn hello(&self, node: &Node, to: Option<Entity>) -> Message {
        Message::Hello(Hello {
            cluster: self.cluster,
            from: node.entity,
            instance: node.role.instance(),
            to,
            supported: 0,
            required: node.role.map().map_or(0, |map| map.required_features),
            address: node.address.clone(),
            auth: bytes::Bytes::new(),
        })
    }

    /// The first frame of a connection.
    fn on_greeting(&mut self, id: usize, message: Message) -> bool {
        let owner = self.conns[id].as_ref().expect("it just received").owner;
        let Some(node) = &self.nodes[owner] else { return false };
        let me = node.entity;
        let conn = self.conns[id].as_ref().expect("it just received");
        match (message, conn.dialed) {
            (Message::Hello(hello), None) => {
                let conns = &self.conns;
                let known = |conn: usize| conns[conn].as_ref().map(|c| (c.state, c.dialed.is_some(), c.peer));
                match node.links.judge(&hello, self.cluster, 0, known) {
                    Ok(replaced) => {
                        let reply = self.hello(node, Some(hello.from));
                        if let Some(old) = replaced {
                            self.drop_conn(old);
                        }
                        let conn = self.conns[id].as_mut().expect("not the replaced one");
                        conn.greet(reply);
                        self.open(id, hello.from, hello.instance, replaced.is_some());
                        true
                    }
                    Err(why) => {
                        if !links::is_tie(&why) {
                            self.say(format!("{me}: refused {}: {why}", hello.from));
                        }
                        let conn = self.conns[id].as_mut().expect("it just received");
                        conn.greet(Message::Refused(Refused { why }));
                        conn.state = State::Closing;
                        self.mark_dirty(id);
                        false
                    }
                }
            }
            (Message::Hello(hello), Some(expected)) => {
                if hello.from != expected || hello.cluster != self.cluster {
                    let why = format!("{} of cluster {} answers in place of {expected}", hello.from, hello.cluster);
                    self.lost(id, None, &why);
                    return false;
                }
                if hello.required != 0 {
                    let why =
                        format!("{expected} needs features {:#x} that this version lacks: upgrade it", hello.required);
                    self.refused_by(id, expected, why);
                    return false;
                }
                self.open(id, hello.from, hello.instance, false);
                true
            }
            (Message::Refused(refused), Some(expected)) => {
                self.refused_by(id, expected, refused.why);
                false
            }
            (other, _) => {
                self.say(format!("{me}: closed a connection that began with {}", other.name()));
                self.lost(id, None, "");
                false
            }
        }
    }

    fn refused_by(&mut self, id: usize, by: Entity, why: String) {
        let owner = self.conns[id].as_ref().expect("it just received").owner;
        let Some(node) = &mut self.nodes[owner] else { return };
        let me = node.entity;
        let fatal = node.links.mon.on_refused(by, &why);
        let line = format!("{me}: {by} refused: {why}");
        if fatal {
            node.halt(line.clone());
        }
        if !links::is_tie(&why) {
            self.say(line);
        }
        self.lost(id, None, "");
    }

    fn open(&mut self, id: usize, peer: Entity, instance: nacre_types::Instance, replaces: bool) {
        let conn = self.conns[id].as_mut().expect("it just received");
        let owner = conn.owner;
        conn.state = State::Open;
        conn.peer = Some((peer, instance));
        self.mark_dirty(id);
        let Some(node) = &mut self.nodes[owner] else { return };
        if replaces {
            node.forget(peer);
            node.inbox.push_back(Input::Gone(peer));
        }
        node.links.opened(peer, id);
        if let Entity::Mon(mon) = peer
            && node.links.mon.on_open(mon)
        {
            node.inbox.push_back(Input::MonSession);
        }
    }

    // ── ends of connections ───────────────────────────────────────────────────────────────────────────────────────

    fn drop_conn(&mut self, id: usize) {
        if let Some(conn) = self.conns[id].take() {
            if let Some(node) = &mut self.nodes[conn.owner]
                && let Some(who) = conn.who()
            {
                node.links.dropped(who, id);
            }
            // Closing the descriptor takes it out of epoll.
            self.freed.push(id);
        }
    }

    /// A connection failed, or its peer went.
    fn lost(&mut self, id: usize, errno: Option<Errno>, _why: &str) {
        let Some(conn) = &self.conns[id] else { return };
        let (owner, state, who, dialed) = (conn.owner, conn.state, conn.who(), conn.dialed);
        self.drop_conn(id);
        let Some(node) = &mut self.nodes[owner] else { return };
        let Some(who) = who else { return };
        let now = clock::now();
        match state {
            State::Open => {
                node.inbox.push_back(Input::Gone(who));
                node.links.failed(now, who, false);
            }
            _ if dialed.is_some() => {
                node.links.failed(now, who, true);
                if errno == Some(Errno::CONNREFUSED) {
                    node.inbox.push_back(Input::Absent(who));
                }
            }
            _ => {}
        }
        if let Entity::Mon(mon) = who {
            node.links.mon.on_lost(now, mon);
        }
    }

    fn mark_dirty(&mut self, id: usize) {
        if let Some(conn) = &mut self.conns[id]
            && !conn.dirty
        {
            conn.dirty = true;
            self.dirty.push(id);
        }
    }

    /// Writes once to every connection that has something.
    fn flush(&mut self) {
        let dirty = std::mem::take(&mut self.dirty);
        for &id in &dirty {
            let Some(conn) = &mut self.conns[id] else { continue };
            conn.dirty = false;
            if conn.state == State::Connecting {
                continue;
            }
            match conn.flush(&mut self.traffic) {
                Ok(_) if conn.state == State::Closing && !conn.has_output() => self.drop_conn(id),
                Ok(all) if all || conn.queue_bytes() <= QUEUE_BYTES_MAX => {
                    let read = conn.interest.0;
                    self.set_interest(id, read, !all);
                }
                Ok(_) => {
                    let who = conn.who().map_or_else(String::new, |who| who.to_string());
                    self.say(format!("{who} does not read what it is sent: closed its connection"));
                    self.lost(id, None, "");
                }
                Err(errno) => self.lost(id, Some(errno), ""),
            }
        }
        // Nothing above marks connections that are not new; keep the allocation.
        if self.dirty.is_empty() {
            self.dirty = dirty;
            self.dirty.clear();
        }
    }

    fn resume_paused(&mut self) {
        if self.paused.is_empty() {
            return;
        }
        let now = clock::now();
        for id in std::mem::take(&mut self.paused) {
            let Some(conn) = &mut self.conns[id] else { continue };
            if !conn.paused {
                continue;
            }
            let Some(node) = &self.nodes[conn.owner] else { continue };
            if node.client_inbox.len() >= CLIENT_INBOX_MAX / 2
                || !node.role.wants_client_work()
                || !conn.takes_work_again(now)
            {
                self.paused.push(id);
                continue;
            }
            conn.paused = false;
            let writing = conn.interest.1;
            self.set_interest(id, true, writing);
            // Frames that were received whole already would not make the socket readable again.
            if self.take_buffered(id) {
                self.waker.wake();
            }
        }
    }

    // ── roles ─────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Gives every role what is in hand. Returns whether anything happened.
    fn round(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.nodes.len() {
            let Some(mut node) = self.nodes[at].take() else { continue };
            if node.halted.is_none() {
                any |= self.serve(&mut node, at);
            }
            self.nodes[at] = Some(node);
        }
        any
    }

    fn serve(&mut self, node: &mut Node, at: usize) -> bool {
        let mut any = false;
        let mut actions = std::mem::take(&mut self.actions);
        let mut events = std::mem::take(&mut self.store_events);
        if let Some(store) = &mut node.store
            && let Err(error) = store.poll(&mut events)
        {
            node.halt(submit_failure(node.entity, error));
        }
        // After everything in hand was received, never before: leases are counted from it.
        let now = clock::now();
        for event in events.drain(..) {
            any = true;
            node.role.on_store(now, event, &mut actions);
            self.perform(node, at, &mut actions);
        }
        self.store_events = events;
        self.seek_monitor(node, at, now);
        // Only what is here now: answers to it come in the next round, after the other daemons had their turn.
        for _ in 0..node.inbox.len() {
            let Some(input) = node.inbox.pop_front() else { break };
            any |= self.give(node, at, now, input, &mut actions);
        }
        for _ in 0..node.client_inbox.len() {
            if !node.role.wants_client_work() {
                break;
            }
            let Some(input) = node.client_inbox.pop_front() else { break };
            any |= self.give(node, at, now, input, &mut actions);
        }
        if let Role::Client(access) = &mut node.role {
            any |= access.take_calls(now);
            node.role.take_actions(now, &mut actions);
            any |= !actions.is_empty();
            self.perform(node, at, &mut actions);
        }
        if node.halted.is_none() && node.role.next_deadline() <= now {
            any = true;
            node.role.on_tick(now, &mut actions);
            self.perform(node, at, &mut actions);
        }
        self.actions = actions;
        any
    }

    fn give(&mut self, node: &mut Node, at: usize, now: Time, input: Input, actions: &mut Vec<Action>) -> bool {
        if node.halted.is_some() {
            return false;
        }
        if let Input::Message { before: Some(before), .. } = &input
            && clock::now() >= *before
        {
            self.traffic.late_dropped += 1;
            return true;
        }
        node.role.on_input(now, input, actions);
        self.perform(node, at, actions);
        true
    }

    /// Performs actions in order.
    fn perform(&mut self, node: &mut Node, at: usize, actions: &mut Vec<Action>) {
        if actions.is_empty() {
            return;
        }
        let epoch = node.role.epoch();
        for action in actions.drain(..) {
            match action {
                Action::Send { to, message, before } => self.send(node, at, to, epoch, message, before),
                Action::SendMon { message } => {
                    if let Some(mon) = node.links.mon.current() {
                        self.send(node, at, Entity::Mon(mon), epoch, message, None);
                    } else {
                        self.traffic.unsent_dropped += 1;
                    }
                }
                Action::Submit { transaction, token } => {
                    let store = node.store.as_mut().expect("only daemons with a store submit");
                    if let Err(error) = store.submit(transaction, token) {
                        node.halt(submit_failure(node.entity, error));
                    }
                }
                Action::Read { read, token } => {
                    node.store.as_mut().expect("only daemons with a store read").read(read, token);
                }
                Action::Say(text) => {
                    let line = format!("{}: {text}", node.entity);
                    self.say(line);
                }
                Action::Halt(why) => {
                    self.say(format!("{} stops: {why}", node.entity));
                    node.halt(why);
                }
            }
        }
    }

    fn send(
        &mut self,
        node: &mut Node,
        at: usize,
        to: Entity,
        epoch: nacre_types::Epoch,
        message: Message,
        before: Option<Time>,
    ) {
        if let Some(&target) = self.local.get(&to) {
            let input = Input::Message { from: node.entity, epoch, message, before };
            if target == at {
                node.inbox.push_back(input);
            } else if let Some(other) = &mut self.nodes[target]
                && other.halted.is_none()
            {
                let from_client = matches!(node.entity, Entity::Client(_));
                if from_client { &mut other.client_inbox } else { &mut other.inbox }.push_back(input);
            }
            return;
        }
        let id = match node.links.conn(to) {
            Some(id) => id,
            None => match self.dial(node, at, to) {
                Some(id) => id,
                None => {
                    self.traffic.unsent_dropped += 1;
                    return;
                }
            },
        };
        let conn = self.conns[id].as_mut().expect("links name living connections");
        if !conn.push(epoch, message, before) {
            self.traffic.unsent_dropped += 1;
        }
        self.mark_dirty(id);
    }

    /// Begins a connection, unless one just failed.
    fn dial(&mut self, node: &mut Node, at: usize, to: Entity) -> Option<usize> {
        let now = clock::now();
        if !node.links.may_dial(now, to) {
            return None;
        }
        let address = match to {
            Entity::Client(_) => return None,
            // Only OSDs dial monitors, and monitors each other.
            Entity::Osd(_) if matches!(node.entity, Entity::Mon(_)) => return None,
            Entity::Mon(mon) => match self.mons.get(&mon) {
                Some(address) => address.clone(),
                None => node.role.map()?.mons.get(&mon)?.address.0.clone(),
            },
            Entity::Osd(osd) => node.role.map()?.osds.get(&osd)?.address.0.clone(),
        };
        let dialed = net::parse(&address).ok_or(Errno::CONNREFUSED).and_then(net::dial);
        match dialed {
            Ok(fd) => {
                let mut conn = Conn::new(fd, at, State::Connecting, Some(to), now);
                conn.greet(self.hello(node, Some(to)));
                let id = self.register(conn)?;
                node.links.dialed(to, id);
                Some(id)
            }
            Err(errno) => {
                node.links.failed(now, to, true);
                if errno == Errno::CONNREFUSED {
                    node.inbox.push_back(Input::Absent(to));
                }
                if let Entity::Mon(mon) = to {
                    node.links.mon.on_lost(now, mon);
                }
                None
            }
        }
    }

    /// Keeps one session with a monitor.
    fn seek_monitor(&mut self, node: &mut Node, at: usize, now: Time) {
        if !node.role.wants_mon_session() {
            return;
        }
        if let Session::Up(mon) = node.links.mon.session {
            let here = self.local.get(&Entity::Mon(mon));
            let lives = match here {
                Some(&other) => self.nodes[other].as_ref().is_some_and(|other| other.halted.is_none()),
                None => node.links.conn(Entity::Mon(mon)).is_some(),
            };
            if lives {
                return;
            }
            node.links.mon.on_lost(now, mon);
            node.inbox.push_back(Input::Gone(Entity::Mon(mon)));
        }
        let listens = |other: &Node| other.role.is_listening() && other.halted.is_none();
        let here = self.nodes.iter().flatten().find_map(|other| match other.entity {
            Entity::Mon(mon) if listens(other) => Some(mon),
            _ => None,
        });
        if let Some(mon) = here {
            node.links.mon.session = Session::Up(mon);
            node.inbox.push_back(Input::MonSession);
            return;
        }
        if node.links.mon.session != Session::None || now < node.links.mon.retry_at {
            return;
        }
        let mut candidates: Vec<MonId> = self.mons.keys().copied().collect();
        candidates.extend(node.role.map().into_iter().flat_map(|map| map.mons.keys().copied()));
        candidates.sort_unstable();
        candidates.dedup();
        candidates.retain(|mon| !self.local.contains_key(&Entity::Mon(*mon)));
        let Some(mon) = node.links.mon.pick(now, &candidates) else { return };
        if node.links.conn(Entity::Mon(mon)).is_none() && self.dial(node, at, Entity::Mon(mon)).is_none() {
            node.links.mon.on_lost(now, mon);
        }
    }

    /// What need not be done at once.
    fn keep_house(&mut self) {
        let now = clock::now();
        self.housekeeping_at = now + HOUSEKEEPING;
        for at in 0..self.nodes.len() {
            let Some(node) = &mut self.nodes[at] else { continue };
            if let Some(store) = &mut node.store {
                store.look_at_room();
            }
            if !node.listening
                && node.role.is_listening()
                && let Some(listener) = &node.listener
            {
                let token = epoll::EventData::new_u64(TOKEN_LISTENER | at as u64);
                node.listening = epoll::add(&self.epoll, listener.as_fd(), token, epoll::EventFlags::IN).is_ok();
            }
        }
        for id in 0..self.conns.len() {
            let Some(conn) = &self.conns[id] else { continue };
            if conn.state != State::Open && now.since(conn.since) > GREETING_MAX {
                self.lost(id, None, "");
            }
        }
    }

    /// Ends what stopped by itself: its listener and connections go, so that others notice.
    fn reap(&mut self) {
        for at in 0..self.nodes.len() {
            let Some(node) = &mut self.nodes[at] else { continue };
            let Some(why) = &node.halted else { continue };
            if let Role::Client(access) = &mut node.role {
                access.stop(why);
            }
            if node.listener.take().is_none() && node.links.is_empty() {
                continue;
            }
            for id in 0..self.conns.len() {
                if self.conns[id].as_ref().is_some_and(|conn| conn.owner == at && !conn.has_output()) {
                    self.drop_conn(id);
                }
            }
        }
    }
}

impl Node {
    fn halt(&mut self, why: String) {
        self.halted.get_or_insert(why);
    }
    /// Drops what has not been delivered of somebody's former session.
    fn forget(&mut self, who: Entity) {
        let of = |input: &Input| matches!(input, Input::Message { from, .. } if *from == who);
        self.inbox.retain(|input| !of(input));
        self.client_inbox.retain(|input| !of(input));
    }
    /// Its store's figures.
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
