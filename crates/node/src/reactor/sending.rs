//! Sending: to a daemon of this process by value; messages to others are queued and written once
//! per wake-up.

use super::{CLIENT_INBOX_MAX, Node, Reactor, Waiting};
use crate::clock;
use crate::conn::{QUEUE_BYTES_MAX, State};
use nacre_role::Input;
use nacre_types::{Entity, Time};
use nacre_wire::Message;

impl Reactor {
    pub(super) fn send(
        &mut self,
        node: &mut Node,
        at: usize,
        to: Entity,
        epoch: nacre_types::Epoch,
        message: Message,
        before: Option<Time>,
    ) {
        if let Some(&target) = self.local.get(&to) {
            let input = Input::Message {
                from: node.entity,
                epoch,
                message,
            };
            let waiting = Waiting { input, before };
            if target == at {
                node.inbox.push_back(waiting);
            } else if let Some(other) = &mut self.nodes[target]
                && other.halted.is_none()
            {
                let from_client = matches!(node.entity, Entity::Client(_));
                if from_client {
                    &mut other.client_inbox
                } else {
                    &mut other.inbox
                }
                .push_back(waiting);
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
        let conn = self.conns[id]
            .as_mut()
            .expect("links name living connections");
        if !conn.push(epoch, message, before) {
            self.traffic.unsent_dropped += 1;
        }
        self.mark_dirty(id);
    }

    pub(super) fn mark_dirty(&mut self, id: usize) {
        if let Some(conn) = &mut self.conns[id]
            && !conn.dirty
        {
            conn.dirty = true;
            self.dirty.push(id);
        }
    }

    /// Writes once to every connection with queued frames.
    pub(super) fn flush(&mut self) {
        let dirty = std::mem::take(&mut self.dirty);
        for &id in &dirty {
            let Some(conn) = &mut self.conns[id] else {
                continue;
            };
            conn.dirty = false;
            if conn.state == State::Connecting {
                continue;
            }
            match conn.flush(&mut self.traffic, clock::now) {
                Ok(_) if conn.state == State::Closing && !conn.has_output() => {
                    drop(self.drop_conn(id))
                }
                Ok(all) if all || conn.queue_bytes() <= QUEUE_BYTES_MAX => {
                    let read = conn.interest.0;
                    self.set_interest(id, read, !all);
                }
                Ok(_) => {
                    let who = conn.who().map_or_else(String::new, |who| who.to_string());
                    self.say(format!(
                        "{who} does not read what it is sent: closed its connection"
                    ));
                    self.lost(id, None, "");
                }
                Err(errno) => self.lost(id, Some(errno), ""),
            }
        }
        // No step above marks existing connections; keep the allocation.
        if self.dirty.is_empty() {
            self.dirty = dirty;
            self.dirty.clear();
        }
    }

    pub(super) fn resume_paused(&mut self) {
        if self.paused.is_empty() {
            return;
        }
        let now = clock::now();
        for id in std::mem::take(&mut self.paused) {
            let Some(conn) = &mut self.conns[id] else {
                continue;
            };
            if !conn.paused {
                continue;
            }
            let Some(node) = &self.nodes[conn.owner] else {
                continue;
            };
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
            // Frames that were received completely would not make the socket readable again.
            if self.take_buffered(id) {
                self.waker.wake();
            }
        }
    }
}
