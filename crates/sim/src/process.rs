//! A daemon under the simulator: its role, its disk, its clock, and what is wrong with it at the moment.

use crate::clock::Clock;
use crate::disk::Disk;
use crate::hangs::Hang;
use nacre_mon::Mon;
use nacre_osd::Osd;
use nacre_store::{Event, Read, Token, Transaction};
use nacre_types::{Entity, Epoch, OsdId, Time};
use nacre_wire::{ClusterMap, Message};

/// What a daemon is told.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "messages are what there is most of")]
pub enum Input {
    /// A message arrived.
    Message {
        /// From whom.
        from: Entity,
        /// With which epoch.
        epoch: Epoch,
        /// It.
        message: Message,
    },
    /// Its next deadline may have come.
    Tick,
    /// Nobody listens at an OSD's address.
    Refused(OsdId),
    /// The connection to somebody is gone.
    Gone(Entity),
    /// There is a new connection to the monitors.
    MonSession,
    /// Its host looked at its device.
    Device(nacre_osd::DeviceCall),
    /// An operation that it handed out has been evaluated.
    Evaluated(Box<nacre_osd::Evaluated>),
}

/// What a daemon wants done, in order.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "messages are what there is most of")]
pub enum Action {
    /// Send a message, unless the clock has passed `before` when it is released.
    Send {
        /// To whom.
        to: Entity,
        /// What.
        message: Message,
        /// A read lease's end.
        before: Option<Time>,
    },
    /// Send a message to the monitor of its session.
    SendMon {
        /// What.
        message: Message,
    },
    /// Write.
    Submit(Transaction, Token),
    /// Read.
    Read(Read, Token),
    /// Evaluate an operation.
    Evaluate(Box<nacre_osd::EvaluateJob>),
    /// Stop.
    Halt(String),
}

/// The two roles behind one face.
pub enum Role {
    /// A monitor.
    Mon(Box<Mon>),
    /// An OSD.
    Osd(Box<Osd>),
}

impl Role {
    /// The newest map it knows.
    #[must_use]
    pub fn map(&self) -> Option<&ClusterMap> {
        match self {
            Self::Mon(mon) => mon.is_live().then(|| mon.map()),
            Self::Osd(osd) => osd.map(),
        }
    }
    /// Its epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.map().map_or(Epoch::NONE, |map| map.epoch)
    }
    /// When it wants a tick.
    #[must_use]
    pub fn next_deadline(&self) -> Time {
        match self {
            Self::Mon(mon) => mon.next_deadline().unwrap_or(Time::MAX),
            Self::Osd(osd) => osd.next_deadline(),
        }
    }
    /// Asserts its invariants.
    pub fn check(&self) {
        match self {
            Self::Mon(mon) => mon.check(),
            Self::Osd(osd) => osd.check(),
        }
    }

    /// Handles an input.
    pub fn on_input(&mut self, now: Time, input: Input, actions: &mut Vec<Action>) {
        match self {
            Self::Mon(mon) => {
                let mut out = Vec::new();
                match input {
                    Input::Message { from, epoch, message } => mon.on_message(now, from, epoch, message, &mut out),
                    Input::Tick if mon.next_deadline().is_some_and(|at| at <= now) => mon.on_tick(now, &mut out),
                    Input::Gone(who) => mon.on_disconnect(now, who, &mut out),
                    Input::Tick | Input::Refused(_) | Input::MonSession | Input::Device(_) | Input::Evaluated(_) => {}
                }
                actions.extend(out.into_iter().filter_map(of_mon));
            }
            Self::Osd(osd) => {
                let mut out = Vec::new();
                match input {
                    Input::Message { from, epoch, message } => osd.on_message(now, from, epoch, message, &mut out),
                    Input::Tick if osd.next_deadline() <= now => osd.on_tick(now, &mut out),
                    Input::Refused(peer) => osd.on_peer_refused(now, peer, &mut out),
                    Input::MonSession => osd.on_mon_session(now, &mut out),
                    Input::Device(call) => osd.on_device(now, Some(&call), &mut out),
                    Input::Evaluated(evaluated) => osd.on_evaluated(now, *evaluated, &mut out),
                    Input::Tick | Input::Gone(_) => {}
                }
                actions.extend(out.into_iter().map(of_osd));
            }
        }
    }

    /// Handles a store event.
    pub fn on_store(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        match self {
            Self::Mon(mon) => {
                let mut out = Vec::new();
                mon.on_store(now, event, &mut out);
                actions.extend(out.into_iter().filter_map(of_mon));
            }
            Self::Osd(osd) => {
                let mut out = Vec::new();
                osd.on_store(now, event, &mut out);
                actions.extend(out.into_iter().map(of_osd));
            }
        }
    }
}

/// A monitor's output.
#[must_use]
pub fn of_mon(output: nacre_mon::Output) -> Option<Action> {
    use nacre_mon::Output;
    Some(match output {
        Output::Send { to, message } => Action::Send { to, message, before: None },
        Output::Submit { transaction, token } => Action::Submit(transaction, token),
        Output::Read { read, token } => Action::Read(read, token),
        Output::Log(_) => return None,
        Output::Halt { why } => Action::Halt(why),
    })
}

/// An OSD's output.
#[must_use]
pub fn of_osd(output: nacre_osd::Output) -> Action {
    use nacre_osd::Output;
    match output {
        Output::Send { to, message, before } => Action::Send { to, message, before },
        Output::SendMon { message } => Action::SendMon { message },
        Output::Submit { transaction, token } => Action::Submit(transaction, token),
        Output::Read { read, token } => Action::Read(read, token),
        Output::Evaluate { job } => Action::Evaluate(job),
        Output::Halt { why } => Action::Halt(why),
    }
}

/// See the module head.
pub struct Process {
    /// How often it started or crashed: names its lives.
    pub life: u64,
    /// What it does, while it runs.
    pub role: Option<Role>,
    /// Where it keeps its data.
    pub disk: Disk,
    /// Its clock.
    pub clock: Clock,
    /// It stands still until then.
    pub busy_until: u64,
    /// Its next tick is scheduled for then.
    pub wake: u64,
    /// Its disk is slow until then.
    pub slow_until: u64,
    /// Whether its disk hangs.
    pub hang: Hang,
    /// Its disk counts as full until then.
    pub full_until: u64,
    /// Its disk was broken on purpose: it may stop.
    pub broken: bool,
    /// Its disk is gone for good, and it does not run until it has a new one.
    pub gone: bool,
    /// How many disks it has lost.
    pub store: u64,
    /// The newest map that was looked at.
    pub seen: Epoch,
}

impl Process {
    /// Not running yet.
    #[must_use]
    pub fn new(disk: Disk, clock: Clock) -> Self {
        Self {
            life: 0,
            role: None,
            disk,
            clock,
            busy_until: 0,
            wake: u64::MAX,
            slow_until: 0,
            hang: Hang::default(),
            full_until: 0,
            broken: false,
            gone: false,
            store: 0,
            seen: Epoch::NONE,
        }
    }
    /// The OSD, if it is one and runs.
    #[must_use]
    pub fn osd(&self) -> Option<&Osd> {
        match &self.role {
            Some(Role::Osd(osd)) => Some(osd),
            _ => None,
        }
    }
    /// The monitor, if it is one and runs.
    #[must_use]
    pub fn mon(&self) -> Option<&Mon> {
        match &self.role {
            Some(Role::Mon(mon)) => Some(mon),
            _ => None,
        }
    }
    /// A new life begins.
    pub fn begin(&mut self, role: Role) {
        self.role = Some(role);
        (self.busy_until, self.wake, self.seen, self.broken) = (0, u64::MAX, Epoch::NONE, false);
        self.hang = Hang::default();
    }
}
