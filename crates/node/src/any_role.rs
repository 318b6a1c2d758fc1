//! Any of the roles that this host runs, and the host's queries to them besides [`Role`].

use crate::access::Access;
use nacre_client::{Placed, Service};
use nacre_mds::server::Server;
use nacre_mon::Mon;
use nacre_osd::Osd;
use nacre_role::{Input, Output, Role};
use nacre_types::{Epoch, Instance, Time};
use nacre_wire::ClusterMap;

/// A service of any kind, together with its cluster client.
pub type AnyService = Placed<Box<dyn Service + Send>>;

/// See the module head.
pub enum AnyRole {
    Mon(Box<Mon>),
    Osd(Box<Osd>),
    Client(Box<Access>),
    Service(Box<AnyService>),
    /// The server of a file system's rank, or a standby for one.
    Mds(Box<Placed<Server>>),
}

impl AnyRole {
    fn role(&self) -> &dyn Role {
        match self {
            Self::Mon(mon) => &**mon,
            Self::Osd(osd) => &**osd,
            Self::Client(access) => &**access,
            Self::Service(service) => &**service,
            Self::Mds(server) => &**server,
        }
    }
    /// Takes outputs that follow from a call of the role itself, not from an input.
    pub fn take_outputs(&mut self, now: Time, out: &mut Vec<Output>) {
        self.on_turn(now, &mut std::iter::empty(), out);
    }

    /// Whether it is an OSD that is active as its announced instance.
    #[must_use]
    pub fn is_live_osd(&self) -> bool {
        matches!(self, Self::Osd(osd) if osd.is_live())
    }
    /// Whether a turn may have many inputs: its map changes only with messages that bring one.
    pub const fn takes_many(&self) -> bool {
        match self {
            Self::Osd(_) => true,
            Self::Mon(_) | Self::Client(_) | Self::Service(_) | Self::Mds(_) => false,
        }
    }
    /// The instance announced in handshakes.
    #[must_use]
    pub fn instance(&self) -> Instance {
        match self {
            Self::Mon(_) => Instance(0),
            Self::Osd(osd) => osd.instance(),
            Self::Client(access) => access.instance,
            Self::Service(service) => service.instance(),
            Self::Mds(server) => server.instance(),
        }
    }
    /// Whether it can process messages.
    pub fn is_listening(&self) -> bool {
        match self {
            Self::Mon(mon) => mon.is_live(),
            Self::Osd(_) | Self::Client(_) | Self::Service(_) | Self::Mds(_) => true,
        }
    }
    /// Whether it accepts sessions from others than monitors: not while it is a monitor that does
    /// not know the others yet.
    pub fn takes_sessions(&self) -> bool {
        match self {
            Self::Mon(mon) => mon.is_live() && !mon.voters().is_empty(),
            Self::Osd(_) | Self::Client(_) | Self::Service(_) | Self::Mds(_) => true,
        }
    }
    /// Whether it needs a connection to the monitors.
    pub fn wants_mon_session(&self) -> bool {
        match self {
            Self::Mon(_) => false,
            Self::Osd(_) | Self::Client(_) => true,
            Self::Service(service) => service.has_monitors(),
            Self::Mds(server) => server.has_monitors(),
        }
    }
    /// Whether a service's callers, or its engine, have queued work for it.
    pub fn has_calls(&self) -> bool {
        match self {
            Self::Service(service) => service.has_calls(),
            Self::Mds(server) => server.has_calls(),
            Self::Mon(_) | Self::Osd(_) | Self::Client(_) => false,
        }
    }
    /// Whether it was told to stop and still has messages to send.
    pub fn is_leaving(&self) -> bool {
        match self {
            Self::Service(service) => service.is_leaving(),
            Self::Mds(server) => server.is_leaving(),
            Self::Mon(_) | Self::Osd(_) | Self::Client(_) => false,
        }
    }
    /// Whether it accepts more work from clients.
    pub fn wants_client_work(&self) -> bool {
        match self {
            Self::Osd(osd) => osd.wants_client_work(),
            Self::Mon(_) | Self::Client(_) | Self::Service(_) | Self::Mds(_) => true,
        }
    }
    /// Whether a monitor owes an answer to the caller of a command. Services repeat their requests
    /// over the next session.
    pub fn awaits_monitors(&self) -> bool {
        match self {
            Self::Client(access) => access.awaits_answers(),
            Self::Service(_) | Self::Mds(_) | Self::Mon(_) | Self::Osd(_) => false,
        }
    }
}

impl Role for AnyRole {
    fn on_turn(
        &mut self,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        out: &mut Vec<Output>,
    ) {
        match self {
            Self::Mon(mon) => mon.on_turn(now, inputs, out),
            Self::Osd(osd) => osd.on_turn(now, inputs, out),
            Self::Client(access) => access.on_turn(now, inputs, out),
            Self::Service(service) => service.on_turn(now, inputs, out),
            Self::Mds(server) => server.on_turn(now, inputs, out),
        }
    }
    fn next_deadline(&self) -> Time {
        self.role().next_deadline()
    }
    fn map(&self) -> Option<&ClusterMap> {
        self.role().map()
    }
    fn epoch(&self) -> Epoch {
        self.role().epoch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_osd::{Limits, OsdConfig, Timing};
    use nacre_types::{ClientId, Entity, OsdId};
    use nacre_wire::map::Address;

    /// (Planted by a reviewer: it stayed.) Each command of the command line is a separate client.
    #[test]
    fn the_name_of_a_client_goes_with_it() {
        let config = OsdConfig {
            id: OsdId(0),
            process: 1,
            store: 1,
            address: Address("o0".into()),
            class: String::new(),
            host: "h".to_owned(),
            capacity: 1 << 30,
            timing: Timing::default(),
            limits: Limits::default(),
        };
        let (now, mut out) = (Time(1), Vec::new());
        let osd = Osd::open(config, now, &mut out);
        let mut role = AnyRole::Osd(Box::new(osd));
        let who = Entity::Client(ClientId(7));
        for (input, named) in [(Input::Named(who, "anna".into()), 1), (Input::Gone(who), 0)] {
            role.on_input(now, input, &mut Vec::new());
            let AnyRole::Osd(osd) = &role else {
                unreachable!("it is one")
            };
            assert_eq!(osd.named(), named);
        }
    }
}
