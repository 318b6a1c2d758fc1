//! The end of connections, and of daemons that stopped by themselves.

use super::Reactor;
use crate::any_role::AnyRole;
use crate::clock;
use crate::conn::{Conn, State};
use nacre_role::Input;
use nacre_types::Entity;
use rustix::io::Errno;

impl Reactor {
    /// Ends a connection; returns it, for its unsent frames.
    pub(super) fn drop_conn(&mut self, id: usize) -> Option<Conn> {
        let conn = self.conns[id].take()?;
        if let Some(node) = &mut self.nodes[conn.owner]
            && let Some(who) = conn.who()
        {
            node.links.dropped(who, id);
        }
        // Dropping the connection closes the descriptor, which removes it from epoll.
        self.freed.push(id);
        Some(conn)
    }

    /// A connection failed, or the peer closed it.
    pub(super) fn lost(&mut self, id: usize, errno: Option<Errno>, _why: &str) {
        let Some(conn) = &self.conns[id] else { return };
        let (owner, state, who, dialed, since) =
            (conn.owner, conn.state, conn.who(), conn.dialed, conn.since);
        self.drop_conn(id);
        let Some(node) = &mut self.nodes[owner] else {
            return;
        };
        let Some(who) = who else { return };
        let now = clock::now();
        match state {
            State::Open => {
                node.inbox.push_back(Input::Gone(who).into());
                node.links.ended(now, who, Some(now.since(since)));
            }
            _ if dialed.is_some() => {
                node.links.ended(now, who, None);
                if errno == Some(Errno::CONNREFUSED) {
                    node.inbox.push_back(Input::Absent(who).into());
                }
            }
            _ => {}
        }
        if let Entity::Mon(mon) = who {
            node.links.mon.on_lost(now, mon);
        }
    }

    /// Ends daemons that stopped by themselves: closes their listeners and connections, so that
    /// peers notice.
    pub(super) fn reap(&mut self) {
        for at in 0..self.nodes.len() {
            let Some(node) = &mut self.nodes[at] else {
                continue;
            };
            let Some(why) = &node.halted else { continue };
            if let AnyRole::Client(access) = &mut node.role {
                access.stop(why);
            }
            if node.listener.take().is_none() && node.links.is_empty() {
                continue;
            }
            for id in 0..self.conns.len() {
                if self.conns[id]
                    .as_ref()
                    .is_some_and(|conn| conn.owner == at && !conn.has_output())
                {
                    self.drop_conn(id);
                }
            }
        }
    }
}
