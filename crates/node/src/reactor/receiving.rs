//! Receiving: readiness, new connections, frames, and when to stop taking more from a client.
//!
//! Unauthenticated peers are handled before authenticated ones (`links.rs` on simultaneous
//! dialing). A connection whose daemon is busy is paused: its bytes stay in the kernel, which slows
//! the client down.

use super::{
    CLIENT_INBOX_MAX, Reactor, STRANGERS_MAX, TELL_AGAIN, TOKEN_LISTENER, TOKEN_SIGNAL, TOKEN_WAKER,
};
use crate::clock;
use crate::conn::{Conn, Received, State};
use nacre_role::Input;
use nacre_types::{Entity, Time};
use nacre_wire::Frame;
use rustix::event::epoll;
use rustix::io::Errno;

impl Reactor {
    /// Accepts and receives. Unauthenticated peers come first: see `links.rs` on simultaneous
    /// dialing.
    pub(super) fn take_frames(&mut self) {
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
                let Some(conn) = &self.conns[id] else {
                    continue;
                };
                let stranger = conn.dialed.is_none() && conn.state == State::Greeting;
                if stranger == acquainted {
                    continue;
                }
                self.on_ready(id, event.flags);
            }
        }
        self.events = events;
    }

    pub(super) fn on_ready(&mut self, id: usize, flags: epoll::EventFlags) {
        let Some(conn) = &mut self.conns[id] else {
            return;
        };
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
        // A paused connection is not read from, so its end would not be detected there; and epoll,
        // which always reports these events, would do so again at once.
        if self.conns[id].as_ref().is_some_and(|conn| conn.paused)
            && flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR)
        {
            return self.lost(id, None, "");
        }
        if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR)
        {
            self.receive(id);
        }
    }

    pub(super) fn accept(&mut self, owner: usize) {
        let now = clock::now();
        loop {
            let Some(listener) = self.nodes[owner]
                .as_ref()
                .and_then(|node| node.listener.as_ref())
            else {
                return;
            };
            let fd = match listener.accept() {
                Ok(Some(fd)) => fd,
                Ok(None) => return,
                Err(why) => return self.stop_listening(why),
            };
            self.make_room();
            if self.conns.iter().flatten().count() >= self.conns_max {
                return self.stop_listening(Errno::MFILE);
            }
            let conn = Conn::new(fd, owner, State::Greeting, None, now);
            if let Some(id) = self.register(conn) {
                self.receive(id);
            }
        }
    }

    /// The number of unauthenticated connections is bounded: closes the oldest. A working peer
    /// identifies itself within milliseconds.
    pub(super) fn make_room(&mut self) {
        let strangers = self
            .conns
            .iter()
            .enumerate()
            .filter_map(|(id, conn)| Some((id, conn.as_ref()?)));
        let strangers = strangers.filter(|(_, conn)| conn.dialed.is_none() && conn.peer.is_none());
        let waiting: Vec<(Time, usize)> = strangers.map(|(id, conn)| (conn.since, id)).collect();
        if waiting.len() >= STRANGERS_MAX
            && let Some((_, oldest)) = waiting.into_iter().min()
        {
            self.lost(oldest, None, "");
        }
    }

    /// Descriptors have run out. Waiting connections would wake us again and again: the listeners
    /// are not polled until the next housekeeping, when descriptors may be free.
    fn stop_listening(&mut self, why: Errno) {
        self.deaf = true;
        for node in self.nodes.iter_mut().flatten() {
            if std::mem::take(&mut node.listening)
                && let Some(listener) = &node.listener
            {
                for socket in listener.sockets() {
                    let removed = epoll::delete(&self.epoll, socket);
                    assert!(removed.is_ok(), "the listener is registered: {removed:?}");
                }
            }
        }
        let (most, now) = (self.conns_max, clock::now());
        if self.told_deaf.is_some_and(|at| now.since(at) < TELL_AGAIN) {
            return;
        }
        self.told_deaf = Some(now);
        self.say(format!(
            "no more connections can be taken ({why}; {most} at most): raise the limit of open files (`ulimit -n`), or close some clients"
        ));
    }

    pub(super) fn register(&mut self, mut conn: Conn) -> Option<usize> {
        let id = self.free.pop().unwrap_or_else(|| {
            self.conns.push(None);
            self.conns.len() - 1
        });
        conn.interest = (true, conn.state == State::Connecting);
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, conn.interest.1);
        if epoll::add(
            &self.epoll,
            &conn.fd,
            epoll::EventData::new_u64(id as u64),
            flags,
        )
        .is_err()
        {
            self.free.push(id);
            return None;
        }
        self.conns[id] = Some(conn);
        Some(id)
    }

    pub(super) fn set_interest(&mut self, id: usize, read: bool, write: bool) {
        let Some(conn) = &mut self.conns[id] else {
            return;
        };
        if conn.interest == (read, write) {
            return;
        }
        conn.interest = (read, write);
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, read);
        flags.set(epoll::EventFlags::OUT, write);
        let changed = epoll::modify(
            &self.epoll,
            &conn.fd,
            epoll::EventData::new_u64(id as u64),
            flags,
        );
        assert!(changed.is_ok(), "the descriptor is registered: {changed:?}");
    }

    pub(super) fn receive(&mut self, id: usize) {
        let mut taken = 0;
        loop {
            if !self.take_buffered(id) {
                return;
            }
            let Some(conn) = &mut self.conns[id] else {
                return;
            };
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

    /// Delivers the frames in the buffer. False: do not receive more from this connection now.
    pub(super) fn take_buffered(&mut self, id: usize) -> bool {
        loop {
            let Some(conn) = &mut self.conns[id] else {
                return false;
            };
            let owner = conn.owner;
            let Some(node) = &mut self.nodes[owner] else {
                return false;
            };
            let client = matches!(conn.peer, Some((Entity::Client(_), _)));
            if client
                && (node.client_inbox.len() >= CLIENT_INBOX_MAX
                    || !node.role.wants_client_work()
                    || !conn.takes_work())
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
                    let who = conn
                        .who()
                        .map_or_else(|| "a stranger".to_owned(), |who| who.to_string());
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
                    if let Entity::Mon(mon) = from
                        && node.links.mon.current() == Some(mon)
                    {
                        node.links.mon.watchdog.heard(&message);
                    }
                    let input = Input::Message {
                        from,
                        epoch,
                        message,
                    };
                    let inbox = if client {
                        &mut node.client_inbox
                    } else {
                        &mut node.inbox
                    };
                    inbox.push_back(input.into());
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
}
