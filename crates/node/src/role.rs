//! The three roles behind one face: an input goes in, actions come out.

use crate::access::Access;
use nacre_mon::Mon;
use nacre_osd::Osd;
use nacre_store::{Event, Read, Token, Transaction};
use nacre_types::{Entity, Epoch, Instance, Name, Time};
use nacre_wire::{ClusterMap, Message};

/// What the host tells a role.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all are messages; a box each would cost an allocation each")]
pub enum Input {
    /// A message arrived.
    Message {
        from: Entity,
        epoch: Epoch,
        message: Message,
        /// Not to be delivered after this: a reply that rests on a lease.
        before: Option<Time>,
    },
    /// The connection to somebody is gone.
    Gone(Entity),
    /// Nobody listens where somebody should.
    Absent(Entity),
    /// There is a new connection to the monitors.
    MonSession,
    /// What a client that just connected calls itself.
    Named(Entity, Name),
}

/// What a role wants done, in order.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all are messages")]
pub enum Action {
    Send { to: Entity, message: Message, before: Option<Time> },
    SendMon { message: Message },
    Submit { transaction: Transaction, token: Token },
    Read { read: Read, token: Token },
    Evaluate(Box<nacre_osd::EvaluateJob>),
    Say(String),
    Halt(String),
}

/// See the module head.
pub enum Role {
    Mon(Box<Mon>, Vec<nacre_mon::Output>),
    Osd(Box<Osd>, Vec<nacre_osd::Output>),
    Client(Box<Access>),
}

impl Role {
    pub fn mon(mon: Mon, out: Vec<nacre_mon::Output>) -> Self {
        Self::Mon(Box::new(mon), out)
    }
    pub fn osd(osd: Osd, out: Vec<nacre_osd::Output>) -> Self {
        Self::Osd(Box::new(osd), out)
    }

    /// The newest map it knows.
    pub fn map(&self) -> Option<&ClusterMap> {
        match self {
            Self::Mon(mon, _) => Some(mon.map()),
            Self::Osd(osd, _) => osd.map(),
            Self::Client(access) => access.client.map(),
        }
    }
    pub fn epoch(&self) -> Epoch {
        match self {
            Self::Mon(mon, _) => mon.epoch(),
            Self::Osd(osd, _) => osd.epoch(),
            Self::Client(access) => access.client.epoch(),
        }
    }
    /// Whether it is an OSD that acts as the instance it says.
    #[must_use]
    pub fn is_live_osd(&self) -> bool {
        matches!(self, Self::Osd(osd, _) if osd.is_live())
    }
    /// The instance that it acts as, for handshakes.
    #[must_use]
    pub fn instance(&self) -> Instance {
        match self {
            Self::Mon(..) => Instance(0),
            Self::Osd(osd, _) => osd.instance(),
            Self::Client(access) => access.instance,
        }
    }
    /// Whether it can make use of messages.
    pub fn is_listening(&self) -> bool {
        match self {
            Self::Mon(mon, _) => mon.is_live(),
            Self::Osd(..) | Self::Client(_) => true,
        }
    }
    /// Whether others than monitors have sessions with it: not with a monitor that does not know the others yet.
    pub fn takes_sessions(&self) -> bool {
        match self {
            Self::Mon(mon, _) => mon.is_live() && !mon.voters().is_empty(),
            Self::Osd(..) | Self::Client(_) => true,
        }
    }
    /// Whether it needs a connection to the monitors.
    pub fn wants_mon_session(&self) -> bool {
        !matches!(self, Self::Mon(..))
    }
    /// Whether it takes more work from clients.
    pub fn wants_client_work(&self) -> bool {
        match self {
            Self::Osd(osd, _) => osd.wants_client_work(),
            Self::Mon(..) | Self::Client(_) => true,
        }
    }
    pub fn next_deadline(&self) -> Time {
        match self {
            Self::Mon(mon, _) => mon.next_deadline().unwrap_or(Time::MAX),
            Self::Osd(osd, _) => osd.next_deadline(),
            Self::Client(access) => access.next_deadline(),
        }
    }

    pub fn on_input(&mut self, now: Time, input: Input, actions: &mut Vec<Action>) {
        match (&mut *self, input) {
            (Self::Mon(mon, out), Input::Message { from, epoch, message, .. }) => {
                mon.on_message(now, from, epoch, message, out);
            }
            (Self::Mon(mon, out), Input::Gone(who)) => mon.on_disconnect(now, who, out),
            (Self::Mon(mon, _), Input::Named(who, name)) => mon.on_client_name(who, name),
            (Self::Mon(..), _) => {}
            (Self::Osd(osd, out), Input::Message { from, epoch, message, .. }) => {
                osd.on_message(now, from, epoch, message, out);
            }
            (Self::Osd(osd, out), Input::Absent(Entity::Osd(id))) => osd.on_peer_refused(now, id, out),
            (Self::Osd(osd, out), Input::MonSession) => osd.on_mon_session(now, out),
            (Self::Osd(osd, _), Input::Named(who, name)) => osd.on_client_name(who, name),
            (Self::Osd(osd, _), Input::Gone(who)) => osd.on_client_name(who, nacre_types::Name::default()),
            (Self::Osd(..), _) => {}
            (Self::Client(access), Input::Message { from, epoch, message, .. }) => {
                access.on_message(now, from, epoch, message);
            }
            (Self::Client(access), Input::Gone(who)) => access.on_gone(now, who),
            (Self::Client(access), Input::MonSession) => access.on_mon_session(now),
            (Self::Client(_), Input::Absent(_) | Input::Named(..)) => {}
        }
        self.take_actions(now, actions);
    }

    pub fn on_store(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        match self {
            Self::Mon(mon, out) => mon.on_store(now, event, out),
            Self::Osd(osd, out) => osd.on_store(now, event, out),
            Self::Client(_) => {}
        }
        self.take_actions(now, actions);
    }

    /// The host looked at the store's device.
    pub fn on_device(&mut self, now: Time, call: Option<&nacre_osd::DeviceCall>, actions: &mut Vec<Action>) {
        if let Self::Osd(osd, out) = self {
            osd.on_device(now, call, out);
        }
        self.take_actions(now, actions);
    }

    pub fn on_evaluated(&mut self, now: Time, evaluated: nacre_osd::Evaluated, actions: &mut Vec<Action>) {
        if let Self::Osd(osd, out) = self {
            osd.on_evaluated(now, evaluated, out);
        }
        self.take_actions(now, actions);
    }

    pub fn on_tick(&mut self, now: Time, actions: &mut Vec<Action>) {
        match self {
            Self::Mon(mon, out) => mon.on_tick(now, out),
            Self::Osd(osd, out) => osd.on_tick(now, out),
            Self::Client(access) => access.on_tick(now),
        }
        self.take_actions(now, actions);
    }

    /// The daemon is about to stop.
    pub fn on_shutdown(&mut self, now: Time, actions: &mut Vec<Action>) {
        if let Self::Osd(osd, out) = self {
            osd.on_shutdown(now, out);
        }
        self.take_actions(now, actions);
    }

    pub fn take_actions(&mut self, now: Time, actions: &mut Vec<Action>) {
        match self {
            Self::Mon(_, out) => actions.extend(out.drain(..).map(Action::from)),
            Self::Osd(_, out) => actions.extend(out.drain(..).map(Action::from)),
            Self::Client(access) => access.take_actions(now, actions),
        }
    }
}

impl From<nacre_mon::Output> for Action {
    fn from(output: nacre_mon::Output) -> Self {
        use nacre_mon::Output;
        match output {
            Output::Send { to, message } => Self::Send { to, message, before: None },
            Output::Submit { transaction, token } => Self::Submit { transaction, token },
            Output::Read { read, token } => Self::Read { read, token },
            Output::Log(line) => Self::Say(line.text),
            Output::Halt { why } => Self::Halt(why),
        }
    }
}
impl From<nacre_osd::Output> for Action {
    fn from(output: nacre_osd::Output) -> Self {
        use nacre_osd::Output;
        match output {
            Output::Send { to, message, before } => Self::Send { to, message, before },
            Output::SendMon { message } => Self::SendMon { message },
            Output::Submit { transaction, token } => Self::Submit { transaction, token },
            Output::Read { read, token } => Self::Read { read, token },
            Output::Evaluate { job } => Self::Evaluate(job),
            Output::Halt { why } => Self::Halt(why),
        }
    }
}
impl From<nacre_client::Output> for Action {
    fn from(output: nacre_client::Output) -> Self {
        use nacre_client::Output;
        match output {
            Output::Send { to, message } => Self::Send { to: Entity::Osd(to), message, before: None },
            Output::SendMon { message } => Self::SendMon { message },
            Output::Halt { why } => Self::Halt(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_osd::{Limits, OsdConfig, Timing};
    use nacre_types::{ClientId, OsdId};
    use nacre_wire::map::Address;

    /// (Planted by a stranger: it stayed.) Each command of the command line is a client of its own.
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
        let mut role = Role::osd(osd, out);
        let who = Entity::Client(ClientId(7));
        for (input, named) in [(Input::Named(who, "anna".into()), 1), (Input::Gone(who), 0)] {
            role.on_input(now, input, &mut Vec::new());
            let Role::Osd(osd, _) = &role else { unreachable!("it is one") };
            assert_eq!(osd.named(), named);
        }
    }
}
