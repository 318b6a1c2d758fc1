//! Devices that do not respond for a while, and a watchdog like that of the real host (F30).
//!
//! ```text
//!  no call ends      ─▶ a check every quarter of a second ─▶ `Osd::on_device`: health, "mark me down"
//!                         └─ older than `osd.device_hung_ms` ─▶ the daemon ends (`node/src/watchdog.rs`)
//!  it responds again ─▶ all pending calls end; the OSD, down but alive, asks to boot again
//! ```
//! The role keeps running: it hears peers and clients, and what it submits waits.

use crate::plan::{MS, SECOND};
use crate::process::Process;
use crate::world::{Event, World};
use nacre_role::{DeviceCall, Input};
use nacre_types::{Entity, OsdId};
use std::time::Duration;

/// The watchdog's interval.
pub const LOOK: u64 = 250 * MS;
/// Options of a cluster whose disks hang: faults last only a few seconds.
pub const OPTIONS: [(&str, u64); 3] = [
    ("osd.device_slow_ms", 300),
    ("osd.device_stall_ms", 700),
    ("osd.device_hung_ms", 2500),
];

/// A daemon's device, as the watchdog sees it.
#[derive(Debug, Default)]
pub struct Hang {
    /// No call ends before this, in virtual nanoseconds.
    pub until: u64,
    /// For how long checks have seen the pending call: a paused process must not mistake its own
    /// pause for its disk's.
    pub seen: Option<Duration>,
    /// Age of the pending call as last reported to the role.
    told: Option<Duration>,
    /// The map showed its OSD as down while it hung.
    down: bool,
}

impl Hang {
    /// What the host reports to the role at this check; `slow`: the age from which it reports.
    fn look(&mut self, pending: bool, slow: Duration) -> Option<DeviceCall> {
        let longer = self
            .seen
            .map_or(Duration::ZERO, |seen| seen + Duration::from_nanos(LOOK));
        self.seen = pending.then_some(longer);
        let age = self.seen.filter(|age| *age >= slow);
        let before = std::mem::replace(&mut self.told, age);
        let (device, what, ended) = ("sim".to_owned(), "a flush", age.is_none());
        Some(DeviceCall {
            device,
            what,
            age: age.or(before)?,
            ended,
        })
    }
}

impl World {
    /// Hangs a daemon's disk, not beyond the end of the faults.
    pub(crate) fn hang_disk(&mut self, who: Entity) {
        let wait = self.rng.between(200 * MS, 21 * SECOND / 5);
        let until = (self.now() + wait).min(self.plan.faults_ns);
        self.process(who).hang.until = until;
        self.note(|| format!("{who}'s disk hangs until {} ms", until / MS));
    }

    /// The watchdog of one incarnation of an OSD.
    pub(crate) fn watch_device(&mut self, osd: OsdId, life: u64) {
        let (who, now) = (Entity::Osd(osd), self.now());
        let info = self.ledger.map().and_then(|map| map.osds.get(&osd));
        let is_up = info.is_some_and(|info| info.up);
        let process = self.processes.get_mut(&who).expect("a process per daemon");
        let Some(role) = process.osd().filter(|_| process.life == life) else {
            return;
        };
        let (timing, is_live) = (*role.timing(), role.is_live());
        let Process {
            hang,
            busy_until,
            disk,
            ..
        } = process;
        if *busy_until <= now {
            let news = hang.look(disk.scheduled, timing.device_slow);
            let age = hang.told.unwrap_or_default();
            let stalls = age >= timing.device_stall;
            if stalls && !is_up && !hang.down {
                hang.down = true;
                self.rare.hung_went_down += 1;
            }
            if !stalls && is_live && is_up && hang.down {
                hang.down = false;
                self.rare.hung_came_back += 1;
            }
            if age >= timing.device_hung {
                self.rare.hung_ended += 1;
                self.note(|| format!("{who} ends, for its disk hangs"));
                let wait = self.rng.between(50 * MS, 3 * SECOND);
                self.crash_for(who, wait);
                return;
            }
            if let Some(call) = news {
                self.hand_to(who, life, Input::Device(Some(call)));
            }
        }
        self.after(LOOK, Event::WatchDevice { osd, life });
    }
}
