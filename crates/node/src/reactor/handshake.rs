//! Handshakes: dialing, the first frame of a connection, and a daemon's single session with the
//! monitors.

use super::{Node, Reactor};
use crate::conn::{Conn, State};
use crate::links::{Answer, Session};
use crate::{clock, links, net};
use nacre_role::{Input, Role as _};
use nacre_types::{Entity, MonId, Name, Time};
use nacre_wire::Message;
use nacre_wire::msg::monitor::{Hello, Refused};
use rustix::io::Errno;

impl Reactor {
    pub(super) fn hello(&self, node: &Node, to: Option<Entity>) -> Message {
        Message::Hello(self.hello_of(node, to))
    }

    pub(super) fn hello_of(&self, node: &Node, to: Option<Entity>) -> Hello {
        Hello {
            cluster: self.cluster,
            from: node.entity,
            instance: node.role.instance(),
            to,
            supported: 0,
            required: node.role.map().map_or(0, |map| map.required_features),
            address: node.address.clone(),
            auth: bytes::Bytes::new(),
            name: node.name.clone(),
        }
    }

    /// The first frame of a connection.
    pub(super) fn on_greeting(&mut self, id: usize, message: Message) -> bool {
        let owner = self.conns[id].as_ref().expect("it just received").owner;
        let Some(node) = &self.nodes[owner] else {
            return false;
        };
        let me = node.entity;
        let conn = self.conns[id].as_ref().expect("it just received");
        match (message, conn.dialed) {
            (Message::Hello(hello), None) => {
                let conns = &self.conns;
                let known = |conn: usize| {
                    conns[conn]
                        .as_ref()
                        .map(|c| (c.state, c.dialed.is_some(), c.peer))
                };
                let takes_sessions = node.role.takes_sessions();
                match node
                    .links
                    .judge(&hello, self.cluster, 0, takes_sessions, known)
                {
                    Ok(replaced) => {
                        let reply = self.hello(node, Some(hello.from));
                        let old = replaced.and_then(|old| self.drop_conn(old));
                        let conn = self.conns[id].as_mut().expect("not the replaced one");
                        conn.greet(reply);
                        // Two peers dialed each other: none of our messages was sent on the
                        // connection that is closed.
                        let replaces = match old {
                            Some(old) if old.state != State::Open => {
                                conn.inherit(old);
                                false
                            }
                            old => old.is_some(),
                        };
                        self.open(id, hello.from, hello.instance, replaces);
                        self.named(owner, hello.from, hello.name);
                        true
                    }
                    Err(why) => {
                        if !links::is_passing(&why) {
                            self.say(format!("{me}: refused {}: {why}", hello.from));
                        }
                        let conn = self.conns[id].as_mut().expect("it just received");
                        conn.greet(Message::Refused(Refused { why, process: 0 }));
                        conn.state = State::Closing;
                        self.mark_dirty(id);
                        false
                    }
                }
            }
            (Message::Hello(hello), Some(expected)) => {
                match links::judge_answer(&hello, expected, self.cluster) {
                    Ok(()) => self.open(id, hello.from, hello.instance, false),
                    Err(Answer::Wrong(why)) => {
                        self.lost(id, None, &why);
                        return false;
                    }
                    Err(Answer::Lacking(why)) => {
                        self.refused_by(id, expected, why);
                        return false;
                    }
                }
                true
            }
            (Message::Refused(refused), Some(expected)) => {
                self.refused_by(id, expected, refused.why);
                false
            }
            (other, _) => {
                self.say(format!(
                    "{me}: closed a connection that began with {}",
                    other.name()
                ));
                self.lost(id, None, "");
                false
            }
        }
    }

    /// A client is connected and has sent its name: the role gets it before the client's first
    /// message.
    pub(super) fn named(&mut self, at: usize, who: Entity, name: Name) {
        if let Some(node) = &mut self.nodes[at]
            && matches!(who, Entity::Client(_))
        {
            node.inbox.push_back(Input::Named(who, name).into());
        }
    }

    pub(super) fn refused_by(&mut self, id: usize, by: Entity, why: String) {
        let owner = self.conns[id].as_ref().expect("it just received").owner;
        let Some(node) = &mut self.nodes[owner] else {
            return;
        };
        let me = node.entity;
        let others = self
            .mons
            .keys()
            .filter(|mon| Entity::Mon(**mon) != me)
            .count();
        let fatal = node.links.mon.on_refused(by, &why, others);
        let line = format!("{me}: {by} refused: {why}");
        if fatal {
            node.halt(line.clone());
        }
        if !links::is_passing(&why) {
            self.say(line);
        }
        self.lost(id, None, "");
    }

    pub(super) fn open(
        &mut self,
        id: usize,
        peer: Entity,
        instance: nacre_types::Instance,
        replaces: bool,
    ) {
        let conn = self.conns[id].as_mut().expect("it just received");
        let owner = conn.owner;
        conn.opened(peer, instance);
        let me = self.nodes[owner].as_ref().map(|node| node.entity);
        let daemons = [me, Some(peer)]
            .iter()
            .all(|who| !matches!(who, Some(Entity::Client(_)) | None));
        net::watch(&conn.fd, daemons);
        self.mark_dirty(id);
        let Some(node) = &mut self.nodes[owner] else {
            return;
        };
        if replaces {
            node.forget(peer);
            node.inbox.push_back(Input::Gone(peer).into());
        }
        node.links.opened(peer, id);
        if let Entity::Mon(mon) = peer
            && node.links.mon.on_open(mon)
        {
            node.inbox.push_back(Input::MonSession.into());
        }
    }

    /// Begins a connection, unless one just failed.
    pub(super) fn dial(&mut self, node: &mut Node, at: usize, to: Entity) -> Option<usize> {
        let now = clock::now();
        if !node.links.may_dial(now, to) {
            return None;
        }
        let address = match to {
            Entity::Client(_) => node.links.met(to)?.to_owned(),
            // Only OSDs dial monitors, and monitors each other.
            Entity::Osd(_) if matches!(node.entity, Entity::Mon(_)) => return None,
            Entity::Mon(mon) => {
                let by_map = node
                    .role
                    .map()
                    .and_then(|map| map.mons.get(&mon))
                    .map(|info| info.address.0.as_str());
                let by_folder = self.mons.get(&mon).map(String::as_str);
                links::address_of_mon(by_map, by_folder, node.links.failures(to))?.to_owned()
            }
            Entity::Osd(osd) => node.role.map()?.osds.get(&osd)?.address.0.clone(),
        };
        let dialed = net::parse(&address)
            .ok_or(Errno::CONNREFUSED)
            .and_then(net::dial);
        match dialed {
            Ok(fd) => {
                let mut conn = Conn::new(fd, at, State::Connecting, Some(to), now);
                conn.greet(self.hello(node, Some(to)));
                let id = self.register(conn)?;
                node.links.dialed(to, id);
                Some(id)
            }
            Err(errno) => {
                node.links.ended(now, to, None);
                if errno == Errno::CONNREFUSED {
                    node.inbox.push_back(Input::Absent(to).into());
                }
                if let Entity::Mon(mon) = to {
                    node.links.mon.on_lost(now, mon);
                }
                None
            }
        }
    }

    /// Maintains one session with a monitor.
    pub(super) fn seek_monitor(&mut self, node: &mut Node, at: usize, now: Time) {
        if !node.role.wants_mon_session() {
            return;
        }
        if let Session::Up(mon) = node.links.mon.session {
            let here = self.local.get(&Entity::Mon(mon));
            let runs = match here {
                Some(&other) => self.nodes[other]
                    .as_ref()
                    .is_some_and(|other| other.halted.is_none()),
                None => node.links.conn(Entity::Mon(mon)).is_some(),
            };
            if runs {
                return;
            }
            node.links.mon.on_lost(now, mon);
            node.inbox.push_back(Input::Gone(Entity::Mon(mon)).into());
        }
        let listens = |other: &Node| other.role.takes_sessions() && other.halted.is_none();
        let here = self
            .nodes
            .iter()
            .flatten()
            .find_map(|other| match other.entity {
                Entity::Mon(mon) if listens(other) => Some(mon),
                _ => None,
            });
        if let Some(mon) = here {
            node.links.mon.session = Session::Up(mon);
            node.inbox.push_back(Input::MonSession.into());
            let (who, name) = (node.entity, node.name.clone());
            if let Some(&other) = self.local.get(&Entity::Mon(mon)) {
                self.named(other, who, name);
            }
            return;
        }
        if node.links.mon.session != Session::None || now < node.links.mon.retry_at {
            return;
        }
        let mut candidates: Vec<MonId> = self.mons.keys().copied().collect();
        candidates.extend(
            node.role
                .map()
                .into_iter()
                .flat_map(|map| map.mons.keys().copied()),
        );
        candidates.sort_unstable();
        candidates.dedup();
        candidates.retain(|mon| !self.local.contains_key(&Entity::Mon(*mon)));
        let Some(mon) = node.links.mon.pick(now, &candidates) else {
            return;
        };
        if node.links.conn(Entity::Mon(mon)).is_none()
            && self.dial(node, at, Entity::Mon(mon)).is_none()
        {
            node.links.mon.on_lost(now, mon);
        }
    }
}
