//! A client that continues as a later instance, because its previous one was fenced.
//!
//! A connection belongs to the instance announced at its beginning. So all of them are closed
//! before the new instance sends anything, and opened again as needed; peers see the end of the old
//! instance and the beginning of the new one.

use super::{Node, Reactor};
use crate::any_role::AnyRole;
use crate::clock;
use crate::links::Session;
use nacre_role::Input;
use nacre_types::Entity;

impl Reactor {
    /// Checks whether a client has become a later instance in its turn. An OSD gets its own from
    /// the monitors, over connections that stay open.
    pub(super) fn look_at_instance(&mut self, node: &mut Node, at: usize) {
        let is_service = matches!(node.role, AnyRole::Service(_) | AnyRole::Mds(_));
        if is_service && node.role.instance() != node.instance {
            node.instance = node.role.instance();
            self.close_former(node, at);
        }
    }

    fn close_former(&mut self, node: &mut Node, at: usize) {
        let now = clock::now();
        for (peer, id) in node.links.all().collect::<Vec<_>>() {
            // Its node is taken out of the list during its turn: peers cannot find it there.
            self.drop_conn(id);
            node.links.dropped(peer, id);
            node.inbox.push_back(Input::Gone(peer).into());
        }
        if let Session::Up(mon) | Session::Dialing(mon) = node.links.mon.session {
            if self.local.contains_key(&Entity::Mon(mon)) {
                node.inbox.push_back(Input::Gone(Entity::Mon(mon)).into());
            }
            node.links.mon.on_lost(now, mon);
        }
        // Peers in this process have no connection: notify them.
        let (who, name) = (node.entity, node.name.clone());
        for other in (0..self.nodes.len()).filter(|other| *other != at) {
            let Some(peer) = &mut self.nodes[other] else {
                continue;
            };
            peer.forget(who);
            peer.inbox.push_back(Input::Gone(who).into());
            if matches!(peer.entity, Entity::Osd(_)) {
                self.named(other, who, name.clone());
            }
        }
    }
}
