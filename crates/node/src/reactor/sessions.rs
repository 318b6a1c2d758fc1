//! Connections that are open but carry nothing: sessions with monitors that hang, peers whose
//! machine is gone.
//!
//! Monitors are pinged ([`crate::session_watchdog`]). Between OSDs the roles ping each other. A
//! peer that does not even acknowledge is left to the kernel: [`net::watch`].

use super::Reactor;
use crate::conn::State;
use crate::session_watchdog::Look;
use crate::{clock, net};
use nacre_role::Role as _;
use nacre_types::{Entity, Time};
use nacre_wire::Message;
use std::time::Duration;

/// Time limit of a handshake.
const GREETING_MAX: Duration = Duration::from_secs(5);
/// The same with a monitor while there are others to try: it may hang.
const GREETING_MON_MAX: Duration = Duration::from_secs(2);

/// A frame that makes hardly any progress for this long ends its connection.
const FRAME_STALL_MAX: Duration = Duration::from_secs(10);
/// The same, while stalled frames reserve more than [`STALLED_BYTES_MAX`] together.
const FRAME_STALL_MUCH: Duration = Duration::from_secs(1);
/// Memory that stalled frames may reserve together.
const STALLED_BYTES_MAX: usize = 128 << 20;

/// Selects the connections to end, of those with stalled frames: `(connection, for how long, bytes
/// reserved)`.
fn stalled_too_long(mut stalled: Vec<(usize, Duration, usize)>) -> Vec<usize> {
    // The longest first: a peer with a slow network at least makes progress.
    stalled.sort_by_key(|(id, time, _)| (std::cmp::Reverse(*time), *id));
    let mut reserved: usize = stalled.iter().map(|(_, _, bytes)| bytes).sum();
    let mut ended = Vec::new();
    for (id, time, bytes) in stalled {
        let much = reserved > STALLED_BYTES_MAX && time > FRAME_STALL_MUCH;
        if time > FRAME_STALL_MAX || much {
            reserved -= bytes;
            ended.push(id);
        }
    }
    ended
}

impl Reactor {
    /// Ends connections with partial frames that make no progress: each holds the memory of a
    /// complete frame.
    pub(super) fn end_stalled_frames(&mut self, now: Time) {
        let open = self
            .conns
            .iter_mut()
            .enumerate()
            .filter_map(|(id, conn)| Some((id, conn.as_mut()?)));
        let stalled = open
            .filter(|(_, conn)| conn.state == State::Open)
            .map(|(id, conn)| {
                let (time, bytes) = conn.stalled(now);
                (id, time, bytes)
            });
        let stalled = stalled
            .filter(|(_, time, bytes)| *bytes > 0 && *time > FRAME_STALL_MUCH / 2)
            .collect();
        for id in stalled_too_long(stalled) {
            self.close(id, "it began a message and did not go on");
        }
    }

    /// The two ends of a connection: the daemon here, and the peer.
    fn ends(&self, id: usize) -> Option<(Entity, Entity)> {
        let conn = self.conns[id].as_ref()?;
        Some((self.nodes[conn.owner].as_ref()?.entity, conn.who()?))
    }

    /// Ends a connection because of its peer's behaviour, and reports it.
    fn close(&mut self, id: usize, why: &str) {
        if let Some((me, who)) = self.ends(id) {
            self.say(format!("{me}: closed the connection of {who}: {why}"));
        }
        self.lost(id, None, "");
    }

    /// Ends connections between daemons if the peer has not read for long: its queue would stay in
    /// memory. (Over TCP the kernel does, too: [`net::watch`].)
    pub(super) fn end_unread(&mut self, now: Time) {
        let is_daemon = |who: Entity| !matches!(who, Entity::Client(_));
        for id in 0..self.conns.len() {
            let conn = self.conns[id].as_ref();
            let unread = conn.is_some_and(|conn| conn.unread_for(now) > net::UNREAD_MAX);
            let daemons = |(me, who): (Entity, Entity)| is_daemon(me) && is_daemon(who);
            if unread && self.ends(id).is_some_and(daemons) {
                self.close(id, "it does not read");
            }
        }
    }

    /// Ends handshakes that take too long.
    pub(super) fn end_slow_greetings(&mut self) {
        let now = clock::now();
        for id in 0..self.conns.len() {
            let Some(conn) = &self.conns[id] else {
                continue;
            };
            if conn.state == State::Open {
                continue;
            }
            let others = self.nodes[conn.owner]
                .as_ref()
                .is_some_and(|node| node.links.mon.has_choice());
            let monitor = matches!(conn.dialed, Some(Entity::Mon(_)));
            let most = if monitor && others {
                GREETING_MON_MAX
            } else {
                GREETING_MAX
            };
            if now.since(conn.since) > most {
                self.lost(id, None, "");
            }
        }
    }

    /// Checks whether the monitors of the daemons' sessions still work. Those in this process need
    /// no check.
    pub(super) fn watch_sessions(&mut self) {
        for at in 0..self.nodes.len() {
            let Some(node) = &mut self.nodes[at] else {
                continue;
            };
            let Some(mon) = node.links.mon.current() else {
                continue;
            };
            let Some(id) = node.links.conn(Entity::Mon(mon)) else {
                continue;
            };
            // A command that waits for a majority gets its answer, which tells more than the end of
            // the session.
            let waits = node.role.awaits_monitors();
            let choice = node.links.mon.has_choice();
            let (me, epoch) = (node.entity, node.role.epoch());
            match node.links.mon.watchdog.look(choice, waits) {
                Look::Fine => {}
                Look::Ask(ping) => {
                    let conn = self.conns[id]
                        .as_mut()
                        .expect("links name living connections");
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

#[cfg(test)]
mod tests {
    use super::*;

    /// F61: eight stalled frames pinned 504 MiB for ever.
    #[test]
    fn frames_that_stall_end_sooner_when_they_reserve_much() {
        let s = Duration::from_secs;
        assert!(stalled_too_long(vec![(1, s(9), 64 << 20)]).is_empty());
        assert_eq!(stalled_too_long(vec![(1, s(11), 100)]), [1]);
        assert!(
            stalled_too_long((0..8).map(|id| (id, s(1), 63 << 20)).collect()).is_empty(),
            "a second is not long"
        );
        let eight = (0..8)
            .map(|id| (id, s(2) + Duration::from_millis(id as u64), 63 << 20))
            .collect();
        assert_eq!(
            stalled_too_long(eight),
            [7, 6, 5, 4, 3, 2],
            "until 128 MiB are left"
        );
    }
}
