//! Permanently lost disks, and the operator's reaction: remove the OSD, and create a new store
//! under the same id or a new one.
//!
//! ```text
//!  dies, its disk is gone ─▶ osd rm (force) ─▶ same id: osd add ─▶ a new store starts     the cluster fills it
//!                                           └▶ new id: a new OSD starts, the old one never again
//! ```
//! A disk is lost only where the guarantee holds that no data is lost with it: of each PG's last
//! activation, another member still has the store that it had then. So disks may be lost one after
//! the other, also before PGs have been backfilled, but never the last replica, and none while an
//! object is missing anywhere.

use crate::disk::{DEVICE_LENGTH, Disk};
use crate::plan::{Disks, MS, SECOND};
use crate::process::Process;
use crate::world::{Event, World};
use nacre_osd::Osd;
use nacre_store::Transaction;
use nacre_types::{Entity, Instance, OsdId};
use serde_json::json;
use std::collections::BTreeMap;

/// Most disks lost in one run.
const LOST_MAX: u32 = 3;

/// The handling of a lost disk.
#[derive(Debug)]
struct Loss {
    osd: OsdId,
    /// Whether the same id is used again.
    again: bool,
    removed: bool,
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Losses {
    now: Option<Loss>,
    /// For each OSD, the last instance whose store is gone.
    last: BTreeMap<OsdId, Instance>,
    /// Number of disks lost.
    pub count: u32,
}

/// The unique name of one of the stores that an OSD has had.
#[must_use]
pub fn store_name(osd: OsdId, number: u64) -> u128 {
    u128::from(number) << 32 | u128::from(osd.0 + 1)
}

impl Losses {
    /// Whether no replacement is in progress.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.now.is_none()
    }
}

impl World {
    /// Loses a disk, if it is not needed.
    pub(crate) fn lose_disk(&mut self, osd: OsdId) {
        if !self.is_losable(Entity::Osd(osd)) || self.lacks(osd) || self.knows_more(osd) {
            return;
        }
        let Some(instance) = self
            .ledger
            .map()
            .and_then(|map| map.osds.get(&osd))
            .map(|info| info.instance)
        else {
            return;
        };
        let who = Entity::Osd(osd);
        if !self.crash(who) {
            return;
        }
        if self.plan.disks == Disks::Real && self.rng.one_in(2) {
            let (process, rng) = (
                self.processes.get_mut(&who).expect("a process per daemon"),
                &mut self.rng,
            );
            if !process.disk.spoil(rng) {
                self.note(|| format!("{osd}'s disk was damaged where it does no harm"));
                self.after(200 * MS, Event::Restart(who));
                return;
            }
            self.note(|| format!("{osd}'s disk is damaged in its log or index, and says so"));
        }
        self.give_up_disk(osd, instance);
    }

    /// A daemon's store has ended, or does not open, because its index is corrupt. Its disk is
    /// replaced if possible; otherwise the remaining damage is undone, as if it could be read at
    /// the third attempt.
    pub(crate) fn index_failed(&mut self, who: Entity, why: &str) {
        self.note(|| format!("{who}'s index has rotted: {why}"));
        let Entity::Osd(osd) = who else {
            panic!("{who} halts: {why}")
        };
        let losable = self.is_losable(who);
        let instance = self
            .ledger
            .map()
            .and_then(|map| map.osds.get(&osd))
            .map(|info| info.instance);
        self.crash(who);
        match instance.filter(|_| losable) {
            Some(instance) => {
                self.rare.index_rot_replaced += 1;
                self.give_up_disk(osd, instance);
            }
            None => {
                self.process(who).disk.mend_index();
                self.after(500 * MS, Event::Restart(who));
            }
        }
    }

    /// Whether nothing would be lost with a daemon's disk, as far as the running daemons know.
    pub(crate) fn is_losable(&self, who: Entity) -> bool {
        let Entity::Osd(osd) = who else { return false };
        self.losses.now.is_none()
            && self.losses.count < LOST_MAX
            && self.is_spare(osd)
            && !self
                .osds()
                .into_iter()
                .any(|other| other != osd && self.lacks(other))
    }

    fn give_up_disk(&mut self, osd: OsdId, instance: Instance) {
        let (who, again) = (Entity::Osd(osd), self.rng.one_in(2));
        self.note(|| format!("{osd}'s disk is gone for good; the same id comes again: {again}"));
        self.losses.count += 1;
        self.losses.last.insert(osd, instance);
        self.losses.now = Some(Loss {
            osd,
            again,
            removed: false,
        });
        self.take_disk(who, nacre_osd::format(crate::world::CLUSTER, osd));
        self.process(who).store += 1;
    }

    /// The daemon that has just ended gets a new disk, and does not run until ordered to.
    pub(crate) fn take_disk(&mut self, who: Entity, content: Transaction) {
        let disk = self.new_disk(who, content);
        let process = self.process(who);
        process.disk = disk;
        process.gone = true;
    }

    fn new_disk(&mut self, who: Entity, content: Transaction) -> Disk {
        let length = if matches!(who, Entity::Osd(_)) {
            self.plan.device_length()
        } else {
            DEVICE_LENGTH
        };
        Disk::new(&self.plan, length, content, &mut self.rng)
    }

    /// Whether every PG has another member with all acknowledged writes.
    fn is_spare(&self, osd: OsdId) -> bool {
        let Some(map) = self.ledger.map() else {
            return false;
        };
        map.pgs.values().all(|record| {
            let known = record
                .activated
                .members
                .iter()
                .zip(&record.activated.instances);
            let has = |(other, instance): (&OsdId, &Instance)| {
                *other != osd
                    && self
                        .losses
                        .last
                        .get(other)
                        .is_none_or(|last| instance > last)
            };
            !record.activated.members.contains(&osd) || known.clone().any(has)
        })
    }

    /// Whether its log of some PG has more than every other member's: the others may have been told
    /// of that and adopt it next. A member that adopts an entry needs its data, even if it was
    /// never acknowledged.
    fn knows_more(&self, osd: OsdId) -> bool {
        let heads = |osd: OsdId| {
            let role = self.processes[&Entity::Osd(osd)].osd();
            role.into_iter()
                .flat_map(Osd::pgs)
                .map(|group| (group.id(), group.local.log.head()))
        };
        let mut others = BTreeMap::new();
        for (group, head) in self
            .osds()
            .into_iter()
            .filter(|other| *other != osd)
            .flat_map(heads)
        {
            let most = others.entry(group).or_insert(head);
            *most = head.max(*most);
        }
        heads(osd).any(|(group, head)| others.get(&group).is_none_or(|most| *most < head))
    }

    /// Whether the OSD lacks an object, knows of another OSD that does, or is not running: the only
    /// one that has it could be lost. An update that was never acknowledged remains needed once
    /// others have adopted its log entry, even if no OSD has its data any more (`docs/faults.md`).
    fn lacks(&self, osd: OsdId) -> bool {
        let role = self.processes[&Entity::Osd(osd)].osd();
        role.is_none_or(|role| {
            role.pgs().any(|group| {
                let peers = group
                    .as_primary()
                    .into_iter()
                    .flat_map(|primary| primary.peers.values());
                !group.local.missing.is_empty()
                    || peers.into_iter().any(|peer| !peer.missing.is_empty())
            })
        })
    }

    /// Some of the other OSDs are down while it starts: it may be the only one of a PG's last
    /// members that is up, and has no data.
    fn leave_alone(&mut self, osd: OsdId) {
        for other in self.osds() {
            if self.faults && other != osd && !self.rng.one_in(3) {
                let wait = self.rng.between(SECOND, 4 * SECOND);
                self.crash_for(Entity::Osd(other), wait);
            }
        }
    }

    /// The operator's next step.
    pub(crate) fn replace_disks(&mut self) {
        let Some(Loss {
            osd,
            again,
            removed,
        }) = self.losses.now
        else {
            return;
        };
        let info = self
            .ledger
            .map()
            .and_then(|map| map.osds.get(&osd))
            .map(|info| info.up);
        match info {
            // Its peers and the monitors have to notice first.
            Some(true) if !removed => self.order(&json!({"command": "osd down", "osd": osd.0})),
            Some(false) if !removed => {
                // Names the store, so that a late order cannot remove the next one.
                let store = format!(
                    "{:x}",
                    store_name(osd, self.processes[&Entity::Osd(osd)].store - 1)
                );
                self.order(
                    &json!({"command": "osd rm", "osd": osd.0, "force": true, "store": store}),
                );
            }
            None if again => {
                self.losses.now = Some(Loss {
                    osd,
                    again,
                    removed: true,
                });
                let store = store_name(osd, self.processes[&Entity::Osd(osd)].store);
                let host = format!("host{}", osd.0);
                self.order(&json!({"command": "osd add", "osd": osd.0, "host": host, "store": format!("{store:x}")}));
            }
            None => {
                // An id that was never used.
                let id = OsdId(self.plan.osds + self.losses.count);
                self.note(|| format!("{osd} is removed, {id} comes in its place"));
                let disk = self.new_disk(
                    Entity::Osd(id),
                    nacre_osd::format(crate::world::CLUSTER, id),
                );
                let clock = crate::clock::Clock::any(&mut self.rng);
                self.processes
                    .insert(Entity::Osd(id), Process::new(disk, clock));
                self.losses.now = None;
                self.after(50 * MS, Event::Restart(Entity::Osd(id)));
            }
            Some(_) => {
                self.note(|| format!("{osd} comes again with a new store"));
                self.losses.now = None;
                self.process(Entity::Osd(osd)).gone = false;
                self.leave_alone(osd);
                self.after(50 * MS, Event::Restart(Entity::Osd(osd)));
            }
        }
    }
}
