//! Connections that are open and carry nothing: sessions with monitors that hang, peers whose machine is gone.
//!
//! Monitors are asked ([`crate::vigil`]). Between OSDs the roles ping each other. What is left to the kernel is a peer that does not even
//! acknowledge: [`net::watch`].

use super::Reactor;
use crate::clock;
use crate::conn::State;
use crate::role::Role;
use crate::vigil::Look;
use nacre_types::Entity;
use nacre_wire::Message;
use std::time::Duration;

/// A handshake takes at most this long.
const GREETING_MAX: Duration = Duration::from_secs(5);
/// The same with a monitor while there are others to try: it may hang.
const GREETING_MON_MAX: Duration = Duration::from_secs(2);

impl Reactor {
    /// Ends handshakes that take too long.
    pub(super) fn end_slow_greetings(&mut self) {
        let now = clock::now();
        for id in 0..self.conns.len() {
            let Some(conn) = &self.conns[id] else { continue };
            if conn.state == State::Open {
                continue;
            }
            let others = self.nodes[conn.owner].as_ref().is_some_and(|node| node.links.mon.has_choice());
            let monitor = matches!(conn.dialed, Some(Entity::Mon(_)));
            let most = if monitor && others { GREETING_MON_MAX } else { GREETING_MAX };
            if now.since(conn.since) > most {
                self.lost(id, None, "");
            }
        }
    }

    /// Looks whether the monitors at the other ends of the daemons' sessions still work. Those in this process need no looking at.
    pub(super) fn watch_sessions(&mut self) {
        for at in 0..self.nodes.len() {
            let Some(node) = &mut self.nodes[at] else { continue };
            let Some(mon) = node.links.mon.current() else { continue };
            let Some(id) = node.links.conn(Entity::Mon(mon)) else { continue };
            // A command that waits for a majority gets its answer, a better one than the end of the session.
            let waits = matches!(&node.role, Role::Client(access) if access.awaits_answers());
            let choice = node.links.mon.has_choice();
            let (me, epoch) = (node.entity, node.role.epoch());
            match node.links.mon.vigil.look(choice, waits) {
                Look::Fine => {}
                Look::Ask(ping) => {
                    let conn = self.conns[id].as_mut().expect("links name living connections");
                    conn.push(epoch, Message::SessionPing(ping), None);
                    self.mark_dirty(id);
                }
                Look::GiveUp(why) => {
                    self.say(format!("{me}: {mon} {why}: taking another monitor"));
                    self.lost(id, None, "");
                }
            }
        }
    }
}
