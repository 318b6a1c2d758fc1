//! A simulated daemon: its role, its disk, its clock, and its current faults.

use crate::clock::Clock;
use crate::disk::Disk;
use crate::hangs::Hang;
use nacre_mon::Mon;
use nacre_osd::Osd;
use nacre_role::{Input, Output, Role};
use nacre_types::{Epoch, Time};
use nacre_wire::ClusterMap;

/// A daemon's role.
pub enum Daemon {
    /// A monitor.
    Mon(Box<Mon>),
    /// An OSD.
    Osd(Box<Osd>),
}

impl Daemon {
    /// Asserts the role's invariants.
    pub fn check(&self) {
        match self {
            Self::Mon(mon) => mon.check(),
            Self::Osd(osd) => osd.check(),
        }
    }
}

impl Role for Daemon {
    fn on_turn(
        &mut self,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        out: &mut Vec<Output>,
    ) {
        match self {
            Self::Mon(mon) => mon.on_turn(now, inputs, out),
            Self::Osd(osd) => osd.on_turn(now, inputs, out),
        }
    }
    fn next_deadline(&self) -> Time {
        match self {
            Self::Mon(mon) => mon.next_deadline(),
            Self::Osd(osd) => osd.next_deadline(),
        }
    }
    fn map(&self) -> Option<&ClusterMap> {
        match self {
            Self::Mon(mon) => Role::map(&**mon),
            Self::Osd(osd) => osd.map(),
        }
    }
}

/// See the module head.
pub struct Process {
    /// Number of starts and crashes: identifies the incarnation.
    pub life: u64,
    /// The role, while it is running.
    pub role: Option<Daemon>,
    /// Its disk.
    pub disk: Disk,
    /// Its clock.
    pub clock: Clock,
    /// The inputs of its next turn, if it gathers.
    pub gathered: Option<Vec<Input>>,
    /// It is paused until then.
    pub busy_until: u64,
    /// The time of its next scheduled tick.
    pub wake: u64,
    /// Its disk is slow until then.
    pub slow_until: u64,
    /// Whether its disk hangs.
    pub hang: Hang,
    /// Its disk counts as full until then.
    pub full_until: u64,
    /// Its disk was made to fail: it may stop.
    pub broken: bool,
    /// Its disk is gone for good, and it cannot run until it gets a new one.
    pub gone: bool,
    /// Number of disks it has lost.
    pub store: u64,
    /// The epoch of the newest map that was examined.
    pub seen: Epoch,
}

impl Process {
    /// A process that is not running yet.
    #[must_use]
    pub fn new(disk: Disk, clock: Clock) -> Self {
        Self {
            life: 0,
            role: None,
            disk,
            clock,
            gathered: None,
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
    /// The OSD, if it is one and is running.
    #[must_use]
    pub fn osd(&self) -> Option<&Osd> {
        match &self.role {
            Some(Daemon::Osd(osd)) => Some(osd),
            _ => None,
        }
    }
    /// The monitor, if it is one and is running.
    #[must_use]
    pub fn mon(&self) -> Option<&Mon> {
        match &self.role {
            Some(Daemon::Mon(mon)) => Some(mon),
            _ => None,
        }
    }
    /// Begins a new incarnation.
    pub fn begin(&mut self, role: Daemon) {
        self.role = Some(role);
        self.gathered = None;
        (self.busy_until, self.wake, self.seen, self.broken) = (0, u64::MAX, Epoch::NONE, false);
        self.hang = Hang::default();
    }
}
