//! Faults and their times: one fault begins at a time, many may last at once, until all end.
//!
//! Some faults are targeted: at a primary that is deposed without knowing, at a leader that is cut
//! off, at all members that have not yet flushed what they acknowledged. Random faults find those
//! windows too, but rarely.

use crate::network::Network;
use crate::plan::{MS, SECOND};
use crate::process::Process;
use crate::registers::{Aim, register};
use crate::world::{Event, World};
use nacre_mon::Mon;
use nacre_osd::key;
use nacre_types::{Entity, ObjectId, OsdId, PgId};
use nacre_wire::map::flag;
use serde_json::json;

/// Longest pause of a client with a specific task, in nanoseconds.
const QUICK: u64 = 3 * MS;
/// Cluster flags that operators set.
const FLAGS: [(&str, u64); 4] = [
    ("noout", flag::NO_OUT),
    ("nodown", flag::NO_DOWN),
    ("nobackfill", flag::NO_BACKFILL),
    ("norecover", flag::NO_RECOVER),
];

impl World {
    /// Injects the next fault and schedules the one after it.
    pub(crate) fn fault(&mut self) {
        if !self.faults {
            return;
        }
        let every = self.plan.fault_every_ns;
        let (least, most) = if self.plan.aimed {
            (every / 2, every * 3 / 2)
        } else {
            (every / 4, every * 2)
        };
        let wait = self.rng.between(least, most);
        self.after(wait, Event::Fault);
        let osds = self.osds();
        let osd = Entity::Osd(*self.rng.pick(&osds));
        let mons = self.mons();
        let mon = *self.rng.pick(&mons);
        // A third of the faults of a single daemon hit a monitor.
        let daemon = if self.rng.one_in(3) { mon } else { osd };
        let which = if self.plan.aimed {
            *self.rng.pick(&[0, 15, 16, 16, 16, 16, 16, 18, 19, 19])
        } else {
            self.rng.below(26)
        };
        // Drawn only where needed, so that other seeds stay the same.
        let which = if self.plan.early && self.rng.one_in(3) {
            26
        } else {
            which
        };
        let which = if self.plan.replace && self.rng.one_in(3) {
            27
        } else {
            which
        };
        let which = if self.plan.rot && self.rng.one_in(3) {
            22
        } else {
            which
        };
        let which = if self.plan.moves && self.rng.one_in(3) {
            28
        } else {
            which
        };
        let which = if self.plan.index_rot && self.rng.one_in(2) {
            29
        } else {
            which
        };
        let which = if self.plan.returns_full && self.rng.one_in(3) {
            30
        } else {
            which
        };
        let which = if self.plan.hangs && self.rng.one_in(3) {
            31
        } else {
            which
        };
        let which = if self.plan.pairs && self.rng.one_in(3) {
            32
        } else {
            which
        };
        let which = if self.plan.flags && self.rng.one_in(3) {
            33
        } else {
            which
        };
        if self.plan.programs && self.records.programs.is_stored() && self.rng.one_in(2) {
            let version = self.rng.between(1, 2);
            let name = crate::programs::NAME;
            self.order(
                &json!({"command": "program activate", "kind": "class", "name": name, "version": version, "client": "admin"}),
            );
        }
        if self.plan.without & (1 << which) != 0 {
            return;
        }
        match which {
            0..=3 => {
                let wait = self.down_time();
                self.crash_for(daemon, wait);
            }
            4 => self.everybody_dies(),
            5 | 6 => self.pause(daemon),
            7 | 8 => self.partition(true),
            9 => self.partition(false),
            10 | 11 => self.slow_disk(daemon),
            12 => {
                self.note(|| format!("{osd} is marked down for no reason"));
                self.order(&json!({"command": "osd down", "osd": osd.to_string()}));
            }
            13 | 14 => self.reweight(osd),
            15 if self.splits_left > 0 => self.split(),
            16 | 17 => self.prepare_to_depose(),
            18 => self.isolate_leader(),
            19 => self.die_before_flush(),
            20 => self.break_disk(daemon),
            21 => self.fill_disk(osd),
            26 => self.die_after_early_answers(),
            27 => {
                let Entity::Osd(osd) = osd else { return };
                self.lose_disk(osd);
            }
            28 => self.move_monitor(mon),
            29 => self.rot_index(),
            30 => self.return_full(osd),
            31 => self.hang_disk(daemon),
            32 => self.cut_pair(osd),
            33 => self.set_flag(),
            22..=25 if self.plan.rot => self.rot(),
            22 => {
                let now = self.now();
                let (process, rng) = (
                    self.processes
                        .get_mut(&daemon)
                        .expect("a process per daemon"),
                    &mut self.rng,
                );
                process.clock.change_rate(now, rng);
                self.note(|| format!("{daemon}'s clock runs at another rate"));
            }
            23 => self.break_connections(),
            _ => {
                for osd in self.osds() {
                    self.order(&json!({"command": "osd reweight", "osd": osd.0, "weight": 1}));
                }
            }
        }
    }

    /// Often too short to be noticed: a supervisor restarts daemons at once.
    fn down_time(&mut self) -> u64 {
        if self.rng.one_in(3) {
            return self.rng.below(5 * MS);
        }
        let most = if self.rng.one_in(3) {
            8 * SECOND
        } else {
            2 * SECOND
        };
        self.rng.between(50 * MS, most)
    }

    /// All daemons crash at once: only what is on the disks remains.
    fn everybody_dies(&mut self) {
        let monitors_too = self.rng.one_in(2);
        for who in self.processes.keys().copied().collect::<Vec<_>>() {
            if monitors_too || matches!(who, Entity::Osd(_)) {
                let wait = self.rng.between(50 * MS, 3 * SECOND);
                self.crash_for(who, wait);
            }
        }
    }

    fn pause(&mut self, who: Entity) {
        let pause = self.rng.between(100 * MS, 4 * SECOND);
        let until = self.now() + pause;
        let process = self.process(who);
        process.busy_until = process.busy_until.max(until);
        self.note(|| format!("{who} is stopped for {} ms", pause / MS));
    }

    fn slow_disk(&mut self, who: Entity) {
        let until = self.now() + self.rng.between(SECOND, 5 * SECOND);
        self.process(who).slow_until = until;
        self.note(|| format!("{who}'s disk is slow"));
    }

    fn reweight(&mut self, osd: Entity) {
        let weight = *self.rng.pick(&["0", "0", "1", "0.5"]);
        self.note(|| format!("{osd} gets weight {weight}"));
        let weight: f64 = weight.parse().expect("a number");
        self.order(&json!({"command": "osd reweight", "osd": osd.to_string(), "weight": weight}));
    }

    /// Splits PGs while a backfill cursor is inside one.
    pub(crate) fn split_while_filling(&mut self) {
        if !self.plan.split_filling || !self.faults || self.splits_left == 0 {
            return;
        }
        let mut osds = self.processes.values().filter_map(|process| process.osd());
        if osds.any(|osd| osd.pgs().any(|group| group.local.backfill.is_some())) {
            self.split();
        }
    }

    fn split(&mut self) {
        let pool = self
            .ledger
            .map()
            .and_then(|map| map.pools.values().next())
            .map(|pool| pool.pg_num);
        let Some(pg_num) = pool else { return };
        self.splits_left -= 1;
        self.note(|| "groups split".to_owned());
        self.order(&json!({"command": "pool set", "name": crate::world::POOL, "key": "pg_num", "value": pg_num * 2}));
    }

    fn break_disk(&mut self, who: Entity) {
        let (process, rng) = (
            self.processes.get_mut(&who).expect("a process per daemon"),
            &mut self.rng,
        );
        if process.role.is_some() {
            process.broken = true;
            process.disk.break_down(rng);
            self.note(|| format!("{who}'s disk breaks down"));
        }
    }

    /// Corrupts a few blocks of the first OSD's objects; not of a PG's only complete replica, which
    /// nothing could repair (only an operator can give up such an object, and that comes with
    /// scrub).
    fn rot(&mut self) {
        let who = Entity::Osd(OsdId(0));
        if !self.others_are_complete(OsdId(0)) {
            return;
        }
        for _ in 0..self.rng.between(1, 24) {
            let (process, rng) = (
                self.processes.get_mut(&who).expect("a process per daemon"),
                &mut self.rng,
            );
            if process.disk.rot(rng) {
                self.note(|| format!("a block of {who}'s disk is damaged"));
            }
        }
    }

    /// Corrupts index pages of the first OSD's store while it is running.
    fn rot_index(&mut self) {
        let (osd, who) = (OsdId(0), Entity::Osd(OsdId(0)));
        let runs = self
            .processes
            .get(&who)
            .is_some_and(|process| process.role.is_some());
        if !runs || self.losses.count > 0 || !self.others_are_complete(osd) {
            return;
        }
        let (process, rng) = (
            self.processes.get_mut(&who).expect("a process per daemon"),
            &mut self.rng,
        );
        let pages = process.disk.rot_index(rng);
        self.rare.index_pages_damaged += pages as u64;
        self.note(|| format!("{pages} pages of {who}'s index are damaged"));
    }

    fn fill_disk(&mut self, who: Entity) {
        let until = self.now() + self.rng.between(SECOND, 5 * SECOND);
        self.process(who).full_until = until;
        self.note(|| format!("{who}'s disk is full"));
    }

    /// It lacks what is written meanwhile, and has no space for it when it comes back.
    fn return_full(&mut self, who: Entity) {
        let away = self.rng.between(SECOND / 2, 3 * SECOND);
        let until = self.now() + away + self.rng.between(3 * SECOND, 8 * SECOND);
        self.crash_for(who, away);
        self.process(who).full_until = until;
        self.note(|| format!("{who} comes back with a full disk"));
    }

    /// Connections with monitors break without a visible reason.
    fn break_connections(&mut self) {
        for (who, _) in self.sessions.all() {
            if self.rng.one_in(3) {
                self.end_session(who);
            }
        }
        self.note(|| "connections break".to_owned());
    }

    /// Cuts pairs off for a while. Silenced connections are closed some time later.
    fn cut_for(&mut self, pairs: std::collections::BTreeSet<(Entity, Entity)>, wait: u64) {
        let id = self.network.cut(pairs);
        self.after(wait, Event::Heal(id));
        for (who, mon) in self.sessions.all() {
            if self.network.is_broken(who, Entity::Mon(mon)) {
                let number = self.sessions.number(who);
                let wait = self.rng.between(SECOND / 2, 6 * SECOND);
                self.after(wait, Event::BreakSession { who, number });
            }
        }
    }

    /// Cuts some entities off from the others; only in one direction unless `both`.
    fn partition(&mut self, both: bool) {
        let (left, right): (Vec<Entity>, Vec<Entity>) = self
            .everybody()
            .into_iter()
            .partition(|_| self.rng.one_in(3));
        let way = if both { "both ways" } else { "one way" };
        self.note(|| {
            format!(
                "cut ({way}) around {:?}",
                left.iter().map(ToString::to_string).collect::<Vec<_>>()
            )
        });
        let wait = self.rng.between(200 * MS, 5 * SECOND);
        self.cut_for(Network::between(&left, &right, both), wait);
    }

    /// Two OSDs no longer hear each other, or only in one direction. Other OSDs hear both (F31).
    fn cut_pair(&mut self, one: Entity) {
        let others: Vec<OsdId> = self
            .osds()
            .into_iter()
            .filter(|osd| Entity::Osd(*osd) != one)
            .collect();
        if others.is_empty() {
            return;
        }
        let (other, both) = (Entity::Osd(*self.rng.pick(&others)), self.rng.one_in(2));
        self.note(|| {
            format!(
                "{one} and {other} are cut off from each other ({})",
                if both { "both ways" } else { "one way" }
            )
        });
        // Four times the grace before they are separated.
        let wait = self
            .rng
            .between(SECOND, 4 * self.plan.grace_ms * MS + 4 * SECOND);
        self.cut_for(Network::between(&[one], &[other], both), wait);
    }

    /// Counts OSDs that are kept down, for the pairs that are cut.
    pub(crate) fn note_kept_down(&mut self) {
        let mons = self.processes.values().filter_map(Process::mon);
        let kept: Vec<OsdId> = mons.flat_map(Mon::kept_down).collect();
        let new = kept.iter().filter(|osd| !self.kept_down.contains(osd));
        self.rare.kept_down += new.count() as u64;
        self.kept_down = kept;
    }

    /// Sets one cluster flag and clears another.
    fn set_flag(&mut self) {
        let (set, unset) = (self.rng.pick(&FLAGS).0, self.rng.pick(&FLAGS).0);
        self.order(&json!({"command": "flag set", "flag": set}));
        if unset != set {
            self.order(&json!({"command": "flag unset", "flag": unset}));
        }
        self.note(|| format!("flag {set} is set, {unset} is not"));
    }

    /// The leading monitor no longer hears the others, or they no longer hear it; its clients may
    /// not notice.
    fn isolate_leader(&mut self) {
        let leads = |who: &&Entity| {
            self.processes[*who]
                .mon()
                .is_some_and(nacre_mon::Mon::is_leader)
        };
        let Some(leader) = self.mons().iter().find(leads).copied() else {
            return;
        };
        let others: Vec<Entity> = self
            .mons()
            .into_iter()
            .filter(|mon| *mon != leader)
            .collect();
        let way = self.rng.below(3);
        self.note(|| format!("{leader} leads and is cut off ({way})"));
        let pairs = match way {
            0 => Network::between(&[leader], &others, true),
            1 => Network::between(&[leader], &others, false),
            _ => Network::between(&others, &[leader], false),
        };
        let wait = self.rng.between(200 * MS, 4 * SECOND);
        self.cut_for(pairs, wait);
    }

    fn some_group(&mut self) -> Option<(PgId, Vec<OsdId>)> {
        // A PG that serves, if there is one.
        let all = &self.ledger.map()?.pgs;
        let serves = |(pg, record): &(&PgId, &nacre_wire::map::PgRecord)| {
            let osd = self.processes.get(&Entity::Osd(record.primary()?))?.osd()?;
            let group = osd.pgs().find(|group| group.id() == **pg)?;
            group
                .as_primary()
                .filter(|primary| primary.is_active())
                .map(|_| ())
        };
        let mut groups: Vec<PgId> = all
            .iter()
            .filter(|entry| serves(entry).is_some())
            .map(|(pg, _)| *pg)
            .collect();
        if groups.is_empty() {
            groups = all.keys().copied().collect();
        }
        if groups.is_empty() {
            return None;
        }
        let pg = *self.rng.pick(&groups);
        Some((pg, self.ledger.map()?.pgs[&pg].acting.clone()))
    }

    /// The registers of a PG.
    pub(crate) fn registers(&self, pg: PgId) -> Vec<u64> {
        (0..self.plan.keys)
            .filter(|key| self.is_home(pg, &register(*key)))
            .collect()
    }
    /// Whether an object of the PG's pool is in the PG.
    pub(crate) fn is_home(&self, pg: PgId, object: &ObjectId) -> bool {
        let pool = self.ledger.map().and_then(|map| map.pools.get(&pg.pool));
        pool.is_some_and(|pool| key::seed(key::hash(object), pool.pg_num) == pg.seed)
    }

    fn aim(&mut self, client: usize, key: u64, reads: bool, think_ns: u64, wait: u64) {
        let until = self.now() + wait;
        if let Some(registers) = &mut self.clients[client].works.registers {
            registers.aim = Some(Aim {
                key,
                reads,
                think_ns,
                until,
            });
        }
        // At once, replacing the client's scheduled action.
        self.after(1, Event::WakeClient(client));
    }

    /// Prepares to depose a PG's primary while it cannot hear of that, and some clients cannot
    /// either: all clients only read one of its registers for a moment, so that no update is in
    /// flight when it happens.
    fn prepare_to_depose(&mut self) {
        let Some((pg, acting)) = self.some_group() else {
            return;
        };
        let Some(primary) = acting.first().copied() else {
            return;
        };
        let wait = self.rng.between(50 * MS, 250 * MS);
        let mut alone: Vec<Entity> = vec![Entity::Osd(primary)];
        let registers = self.registers(pg);
        for client in 0..self.clients.len() {
            if self.rng.one_in(2) {
                alone.push(Entity::Client(self.clients[client].role.id()));
            }
            if let Some(first) = registers.first() {
                self.aim(client, *first, true, QUICK, wait);
            }
        }
        self.after(wait, Event::Depose { pg, primary, alone });
    }

    /// Deposes the primary, in one of three ways.
    ///
    /// * To test *leases* (what the old primary may still answer, and for how long): the other
    ///   clients write what those with the old primary read, and the other members restart at once.
    /// * To test *intervals* (what it counts as acknowledged): clients with the old primary write,
    ///   and after a while the others hear it again, but only short messages reach it: no map.
    /// * To test activations (what it brings back): its *log* becomes longer than that of the
    ///   others, which are answered and write little.
    pub(crate) fn depose(&mut self, pg: PgId, primary: OsdId, alone: &[Entity]) {
        if !self.faults {
            return;
        }
        let (leases, logs) = *self
            .rng
            .pick(&[(true, false), (false, false), (false, true)]);
        let wait = self
            .rng
            .between(100 * MS, if leases { 3 * SECOND } else { SECOND });
        let narrow = self.rng.between(SECOND, 3 * SECOND);
        let registers = self.registers(pg);
        for client in 0..self.clients.len() {
            let Some(first) = registers.first() else {
                break;
            };
            let apart = alone.contains(&Entity::Client(self.clients[client].role.id()));
            let key = if leases || !apart {
                *first
            } else {
                *self.rng.pick(&registers)
            };
            let think = if logs && !apart { 500 * MS } else { QUICK };
            self.aim(client, key, apart && leases, think, wait + narrow);
        }
        let others: Vec<Entity> = self
            .everybody()
            .into_iter()
            .filter(|entity| !alone.contains(entity))
            .collect();
        self.note(|| format!("{primary} is deposed from {pg} and does not hear of it"));
        self.cut_for(Network::between(&others, alone, true), wait);
        self.order(&json!({"command": "osd down", "osd": primary.0}));
        if !leases && !logs {
            self.after(
                wait,
                Event::Squeeze {
                    alone: alone.to_vec(),
                    wait: narrow,
                },
            );
        }
        let acting = self
            .ledger
            .map()
            .and_then(|map| map.pgs.get(&pg))
            .map(|record| record.acting.clone());
        for osd in acting.into_iter().flatten().filter(|osd| *osd != primary) {
            if leases && self.rng.one_in(2) {
                let wait = self.rng.between(MS, 60 * MS);
                self.crash_for(Entity::Osd(osd), wait);
            }
        }
    }

    /// Only short messages from others reach these.
    pub(crate) fn squeeze(&mut self, alone: &[Entity], wait: u64) {
        if self.faults {
            let others: Vec<Entity> = self
                .everybody()
                .into_iter()
                .filter(|entity| !alone.contains(entity))
                .collect();
            self.note(|| format!("only what is short reaches {}", alone[0]));
            let id = self
                .network
                .squeeze(Network::between(&others, alone, false));
            self.after(wait, Event::Heal(id));
        }
    }

    /// A PG's members lose power while their disks are slow; the primary, whose disk is not slow,
    /// stays away for long. What the others acknowledged must be there.
    fn die_before_flush(&mut self) {
        let Some((pg, members)) = self.some_group() else {
            return;
        };
        self.note(|| format!("the members of {pg} will lose power"));
        let (wait, away) = (
            self.rng.between(100 * MS, SECOND),
            self.rng.between(2 * SECOND, 6 * SECOND),
        );
        for osd in members.iter().skip(1) {
            let until = self.now() + wait;
            let process = self.process(Entity::Osd(*osd));
            process.slow_until = process.slow_until.max(until);
        }
        let registers = self.registers(pg);
        if !registers.is_empty() {
            for client in 0..self.clients.len() {
                let key = *self.rng.pick(&registers);
                self.aim(client, key, false, QUICK, wait);
            }
        }
        self.after(wait, Event::Blackout { members, away });
    }

    /// A PG's members have slow disks and answer early what they have not flushed; then all of them
    /// lose power, or all but one. Some clients cannot resend what was lost for a while, and the
    /// others read meanwhile.
    fn die_after_early_answers(&mut self) {
        let Some((pg, mut members)) = self.some_group().filter(|(_, members)| !members.is_empty())
        else {
            return;
        };
        let wait = self.rng.between(100 * MS, SECOND);
        for osd in &members {
            let until = self.now() + wait;
            let process = self.process(Entity::Osd(*osd));
            process.slow_until = process.slow_until.max(until);
        }
        let survives = self.rng.one_in(2);
        if survives {
            let at = self.rng.below(members.len() as u64) as usize;
            members.remove(at);
        }
        let clients: Vec<Entity> = self
            .clients
            .iter()
            .map(|client| Entity::Client(client.role.id()))
            .collect();
        let apart = clients.into_iter().filter(|_| self.rng.one_in(2)).collect();
        self.note(|| {
            format!("members of {pg} will lose power after early answers; one survives: {survives}")
        });
        self.after(wait, Event::Dark { members, apart });
    }

    /// Carries that out.
    pub(crate) fn dark(&mut self, members: &[OsdId], apart: &[Entity]) {
        if !self.faults {
            return;
        }
        let osds: Vec<Entity> = self.osds().into_iter().map(Entity::Osd).collect();
        // Longer than the others need to peer.
        let wait = self.rng.between(3 * SECOND, 7 * SECOND);
        self.cut_for(Network::between(apart, &osds, true), wait);
        for osd in members {
            let wait = self.rng.between(MS, 100 * MS);
            self.disk(*osd).unlucky = true;
            self.crash_for(Entity::Osd(*osd), wait);
        }
    }

    /// These lose power at once.
    pub(crate) fn blackout(&mut self, members: &[OsdId], away: u64) {
        if !self.faults {
            return;
        }
        for (place, osd) in members.iter().enumerate() {
            let wait = if place == 0 {
                away
            } else {
                self.rng.between(MS, 100 * MS)
            };
            self.crash_for(Entity::Osd(*osd), wait);
        }
    }

    /// Repairs everything.
    pub(crate) fn end_of_faults(&mut self) {
        self.note(|| "all faults end".to_owned());
        self.faults = false;
        self.network.heal_all();
        for who in self.processes.keys().copied().collect::<Vec<_>>() {
            let process = self.process(who);
            (process.slow_until, process.full_until) = (0, 0);
            process.disk.mend_index();
            let wait = self.rng.below(SECOND);
            self.after(wait, Event::Restart(who));
        }
        if self.plan.flags {
            for (name, bit) in FLAGS {
                let unset = json!({"command": "flag unset", "flag": name});
                self.operator.wish(unset, move |map| map.flags & bit == 0);
            }
        }
        let now = self.now();
        self.must_answer_from = now + 7 * SECOND;
        self.after(16 * SECOND, Event::Calm);
    }

    /// The OSD with the least space is absent until others have deleted nearly everything: it comes
    /// back full of deleted data, and its host has no more space for a while either.
    pub(crate) fn fullest_misses_the_deletions(&mut self) {
        let used = |osd: &OsdId| {
            self.processes[&Entity::Osd(*osd)]
                .osd()
                .map(|role| role.last_words().0.used)
        };
        let fullest = self
            .osds()
            .into_iter()
            .filter_map(|osd| Some((used(&osd)?, osd)))
            .max();
        if let Some((_, osd)) = fullest {
            self.crash_for(Entity::Osd(osd), 60 * SECOND);
            let until = self.now() + 90 * SECOND;
            self.process(Entity::Osd(osd)).full_until = until;
        }
    }

    /// All OSDs are marked in again, and clients stop.
    pub(crate) fn put_in_order(&mut self) {
        for osd in self.osds() {
            let is_in = move |map: &nacre_wire::ClusterMap| {
                map.osds
                    .get(&osd)
                    .is_some_and(|info| info.weight == nacre_wire::map::Weight::IN)
            };
            self.operator.wish(
                json!({"command": "osd reweight", "osd": osd.0, "weight": 1}),
                is_in,
            );
        }
        self.after(3 * SECOND, Event::EndOfWork);
    }
}
