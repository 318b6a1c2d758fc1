//! A client that goes on as a later instance of itself: its former one was fenced.
//!
//! A connection is of the instance that said so at its beginning. So all of them are closed, before
//! anything that the new one wants is sent, and opened again as they are needed; peers see the end
//! of the one and the beginning of the other.

use super::{Node, Reactor};
use crate::any_role::AnyRole;
use crate::clock;
use crate::links::Session;
use nacre_role::Input;
use nacre_types::Entity;

impl Reactor {
    /// Looks whether a client has become a later instance in its turn. An OSD is given its own by
    /// the monitors, over connections that stay.
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
            // Its daemon is not where it would be looked for: it has its turn.
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
        // Those of this process have no connection: they are told.
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
