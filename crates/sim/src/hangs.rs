//! Devices that do not answer for a while, and the watchdog that production's host has for them (F30).
//!
//! ```text
//!  nothing of the disk ends ─▶ a look every quarter of a second ─▶ `Osd::on_device`: health, then "mark me down"
//!                                └─ older than `osd.device_hung_ms` ─▶ the daemon ends, as `node/src/watchdog.rs` does it
//!  it answers again          ─▶ all that waited ends; the OSD, down but alive, asks to be let in
//! ```
//! The role goes on all the while: it hears peers and clients, and what it submits waits.

use crate::plan::{MS, SECOND};
use crate::process::{Input, Process};
use crate::world::{Event, World};
use nacre_osd::DeviceCall;
use nacre_types::{Entity, OsdId};
use std::time::Duration;

/// How often the watchdog looks.
const LOOK: u64 = 250 * MS;
/// What the options are in a cluster whose disks hang: faults last for some seconds only.
pub const OPTIONS: [(&str, u64); 3] =
    [("osd.device_slow_ms", 300), ("osd.device_stall_ms", 700), ("osd.device_hung_ms", 2500)];

/// A daemon's device, as the watchdog sees it.
#[derive(Debug, Default)]
pub struct Hang {
    /// Nothing of it ends until then.
    pub until: u64,
    /// When what is under way was begun.
    pub since: Option<u64>,
    /// How long the last call was that the role heard of.
    told: Option<Duration>,
    /// The map said that its OSD is down while it hung.
    down: bool,
}

impl Hang {
    /// What the host says at this look, if anything; `slow`: from which age it does.
    fn look(&mut self, now: u64, slow: Duration) -> Option<Option<DeviceCall>> {
        let call = |age, ended| DeviceCall { device: "sim".to_owned(), what: "a flush", age, ended };
        let age = self.since.map(|since| Duration::from_nanos(now - since)).filter(|age| *age >= slow);
        match (age, self.told) {
            (Some(age), _) => {
                self.told = Some(age);
                Some(Some(call(age, false)))
            }
            (None, Some(age)) => {
                self.told = None;
                Some(Some(call(age, true)))
            }
            (None, None) => None,
        }
    }
}

impl World {
    /// A daemon's disk hangs, not beyond the end of the faults.
    pub(crate) fn hang_disk(&mut self, who: Entity) {
        let until = self.now() + self.rng.between(200 * MS, 21 * SECOND / 5);
        let until = until.min(self.plan.faults_ns);
        self.process(who).hang.until = until;
        let wait = until.saturating_sub(self.now());
        self.note(|| format!("{who}'s disk hangs for {} ms", wait / MS));
    }

    /// The watchdog of a life of an OSD.
    pub(crate) fn watch_device(&mut self, osd: OsdId, life: u64) {
        let (who, now) = (Entity::Osd(osd), self.now());
        let is_up = self.ledger.map().and_then(|map| map.osds.get(&osd)).is_some_and(|info| info.up);
        let process = self.process(who);
        let Some(role) = process.osd().filter(|_| process.life == life) else { return };
        let (timing, is_live) = (*role.timing(), role.is_live());
        let Process { hang, busy_until, .. } = process;
        if *busy_until <= now {
            let news = hang.look(now, timing.device_slow);
            let stalls = hang.told.is_some_and(|age| age >= timing.device_stall);
            let (went_down, came_back) = (stalls && !is_up && !hang.down, !stalls && is_live && is_up && hang.down);
            hang.down = (hang.down || went_down) && !came_back;
            let hung = hang.told.is_some_and(|age| age >= timing.device_hung);
            self.rare.hung_went_down += u64::from(went_down);
            self.rare.hung_came_back += u64::from(came_back);
            if hung {
                self.rare.hung_ended += 1;
                self.note(|| format!("{who} ends, for its disk hangs"));
                let wait = self.rng.between(50 * MS, 3 * SECOND);
                self.crash_for(who, wait);
                return;
            }
            if let Some(call) = news {
                self.hand_to(who, life, Input::Device(call));
            }
        }
        self.after(LOOK, Event::WatchDevice { osd, life });
    }
}
