//! The simulated cluster: one queue of events, and the consequences of each event.
//!
//! Faults ([`crate::faults`]) last until [`Plan::faults_ns`]; then everything is repaired, the
//! clients stop a little later, and everything must become clean ([`crate::health`]).
//!
//! The fault model (`docs/faults.md`) says what can happen: messages according to
//! [`crate::network`], and none to a later incarnation of the receiver; disks according to
//! [`crate::disk`]; clocks according to [`crate::clock`]. A daemon may pause between reading its
//! clock and acting on it.

use crate::clock::Clock;
use crate::disk::{DEVICE_LENGTH, Disk};
use crate::fencing::Order;
use crate::ledger::Ledger;
use crate::network::{CutId, Doubled, Network};
use crate::operator::{Operator, Registrar};
use crate::plan::{MS, Plan, SECOND};
use crate::process::{Daemon, Process};
use crate::registers::RegisterWork;
use crate::rng::Rng;
use crate::schedule::Schedule;
use crate::sessions::Sessions;
use crate::workload::{Records, Report, SimClient, Workload as _};
use nacre_mon::{Founding, Mon, MonConfig};
use nacre_osd::{Limits, Osd, OsdConfig, Timing};
use nacre_role::{Input, Output, Role as _, Tools};
use nacre_types::{ClusterId, Entity, Epoch, MonId, Name, OsdId, PgId, Time};
use nacre_wire::map::{Address, Capability, Change};
use nacre_wire::msg::monitor::Command;
use nacre_wire::msg::replication::ReplicateAcks;
use nacre_wire::{Message, Payload};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(crate) const CLUSTER: ClusterId = ClusterId(1);
/// Most events of a run: ten times the maximum of any seed.
const EVENTS_MAX: u64 = 3_000_000;
/// Most scheduled events: messages that are never taken use memory.
const SCHEDULED_MAX: usize = 200_000;
/// One in this many calls evaluated on another thread takes seconds.
const LONG_CALLS: u64 = 12;
/// The pool of the registers.
pub const POOL: &str = "registers";
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "messages are what there is most of"
)]
pub(crate) enum Event {
    /// An input of a daemon.
    Input {
        who: Entity,
        life: u64,
        input: Input,
    },
    /// A daemon acts on an old reading of its clock.
    StaleAct {
        who: Entity,
        life: u64,
        local: Time,
        inputs: Vec<Input>,
    },
    /// An OSD's turn with its gathered inputs.
    Turn {
        who: Entity,
        life: u64,
    },
    /// A daemon's disk has made progress.
    Disk {
        who: Entity,
        life: u64,
    },
    /// A message for a client or operator.
    ToClient {
        to: Entity,
        from: Entity,
        epoch: Epoch,
        message: Message,
    },
    /// A client's connection to an OSD broke.
    ClientReset {
        client: usize,
        osd: OsdId,
    },
    WakeClient(usize),
    WakeRegistrar(usize),
    /// The operator checks conditions.
    Operate,
    /// An entity without a monitor session tries a monitor.
    Seek(Entity),
    /// A connection silenced by a cut is closed.
    BreakSession {
        who: Entity,
        number: u64,
    },
    Fault,
    Restart(Entity),
    /// The watchdog of an OSD's incarnation checks its device.
    WatchDevice {
        osd: OsdId,
        life: u64,
    },
    Heal(CutId),
    /// Members are compared with primaries.
    Survey,
    /// Some time after the last fault everything must serve: faults have had time to be handled,
    /// and no repair has been ordered yet.
    Calm,
    /// A primary is deposed by the entities that are not with it.
    Depose {
        pg: PgId,
        primary: OsdId,
        alone: Vec<Entity>,
    },
    /// These lose power at once; the first stays away for this long.
    Blackout {
        members: Vec<OsdId>,
        away: u64,
    },
    /// These lose power at once, and some clients cannot reach any OSD for a while.
    Dark {
        members: Vec<OsdId>,
        apart: Vec<Entity>,
    },
    /// For this long, only short messages from others reach these.
    Squeeze {
        alone: Vec<Entity>,
        wait: u64,
    },
    EndOfFaults,
    EndOfWork,
}

/// See the module head.
pub struct World {
    pub(crate) plan: Plan,
    pub(crate) rng: Rng,
    pub(crate) schedule: Schedule<Event>,
    pub(crate) processes: BTreeMap<Entity, Process>,
    pub(crate) network: Network,
    pub(crate) sessions: Sessions,
    pub(crate) operator: Operator,
    pub(crate) registrars: Vec<Registrar>,
    pub(crate) clients: Vec<SimClient>,
    client_wake: Vec<u64>,
    pub(crate) records: Records,
    option_value: u64,
    pub(crate) ledger: Ledger,
    pub(crate) faults: bool,
    pub(crate) splits_left: u32,
    digest: xxhash_rust::xxh3::Xxh3,
    events: u64,
    crashes: u64,
    verbose: bool,
    /// How long a daemon is busy with one input; used only for measurements.
    pub(crate) service_ns: u64,
    /// Duration of a flush in ns: minimum and maximum.
    pub(crate) flush_ns: (u64, u64),
    /// Messages from monitors to OSDs.
    pub(crate) mon_to_osd: u64,
    /// The receiver of the last event, for measurements.
    pub(crate) last: Option<Entity>,
    /// Whether the class that clients call has been ordered.
    installed: bool,
    /// Borders crossed by former incarnations of daemons.
    pub(crate) borders: nacre_osd::borders::Borders,
    /// The simulator's own rare paths.
    pub(crate) rare: crate::borders::Borders,
    /// Comparisons of a member with its primary.
    pub(crate) surveyed: u64,
    /// Operations begun from then on, in virtual nanoseconds, must be answered.
    pub(crate) must_answer_from: u64,
    /// 1 if an object needs an operator's decision.
    reverts: u32,
    /// Objects and versions that OSDs on corrupt disks have reported as having lost data.
    pub(crate) rotted: BTreeSet<(nacre_types::ObjectId, nacre_types::Version)>,
    /// Permanently lost disks.
    pub(crate) losses: crate::replace::Losses,
    pub(crate) moves: crate::moves::Moves,
    /// OSDs that a leading monitor kept down at the last check.
    pub(crate) kept_down: Vec<OsdId>,
    /// Random classes that have been ordered: class and version.
    ordered: BTreeSet<(usize, usize)>,
    /// Runs the long jobs of all OSDs.
    tools: Tools,
}

/// The state of a cluster after the faults.
#[derive(PartialEq, Eq)]
enum Ended {
    /// Everything is repaired.
    Clean,
    /// Some objects need an operator's decision ([`crate::verdict::wants_an_operators_word`]).
    Unhealable,
}

/// Runs a plan to its end.
///
/// # Panics
/// When something is found: a violated invariant, a history that is not linearizable, replicas that
/// differ, a cluster that does not heal.
#[must_use]
pub fn run(plan: &Plan, verbose: bool) -> Report {
    let mut world = World::new(plan.clone(), verbose);
    world.note(|| format!("{plan:?}"));
    if world.run_until_clean() == Ended::Unhealable {
        // Nothing more will happen; the clients' answers are still judged.
        world.reverts = 1;
        RegisterWork::check(&world.records.registers, &world.ledger);
        return world.report();
    }
    crate::verdict::copies_agree(&mut world);
    crate::verdict::clones_are_wanted(&mut world);
    crate::verdict::stores_are_sound(&world);
    crate::verdict::any_survivor(&mut world);
    crate::verdict::streams_survive(&mut world);
    crate::verdict::nothing_piles_up(&world);
    world.ledger.all_was_shown();
    crate::verdict::snapshots_are_whole(&world);
    world.records.check(&world.ledger);
    world.report()
}

impl World {
    pub(crate) fn new(plan: Plan, verbose: bool) -> Self {
        let mut rng = Rng::new(plan.seed);
        let mut processes = BTreeMap::new();
        let config = |key: &str, value: u64| Change::Config {
            key: Name::from(key),
            value: Some(value.to_string()),
        };
        let mut founding = Founding {
            cluster: CLUSTER,
            mons: (0..plan.mons)
                .map(|mon| (MonId(mon), Address(format!("sim:mon{mon}"))))
                .collect(),
            changes: vec![
                config("osd.failure_grace_ms", plan.grace_ms),
                config("mon.down_out_interval_s", plan.down_out_s),
                config("mon.compact_entries", plan.compact_entries),
                config("osd.beacon_interval_ms", plan.beacons_ms.0),
                config("mon.osd_beacon_timeout_ms", plan.beacons_ms.1),
                // The clients, which have no names, may send their own scripts.
                Change::ClientSet {
                    name: Name::default(),
                    capabilities: vec![Capability::All {}],
                },
            ],
        };
        if plan.hangs {
            founding
                .changes
                .extend(crate::hangs::OPTIONS.map(|(key, value)| config(key, value)));
        }
        let mons = (0..plan.mons).map(|mon| {
            (
                Entity::Mon(MonId(mon)),
                Mon::bootstrap(MonId(mon), &founding),
            )
        });
        let osds = (0..plan.osds).map(|osd| {
            (
                Entity::Osd(OsdId(osd)),
                nacre_osd::format(CLUSTER, OsdId(osd)),
            )
        });
        for (who, content) in mons.chain(osds) {
            let length = if matches!(who, Entity::Osd(_)) {
                plan.device_length()
            } else {
                DEVICE_LENGTH
            };
            let disk = Disk::new(&plan, length, content, &mut rng);
            processes.insert(who, Process::new(disk, Clock::any(&mut rng)));
        }
        let clients: Vec<SimClient> = (0..plan.clients + u64::from(plan.fences))
            .map(|index| SimClient::new(&plan, index, &mut rng))
            .collect();
        let mut operator = Operator::default();
        operator.wish(
            json!({"command": "pool create", "name": POOL, "size": plan.size, "min_size": plan.min_size, "pg_num": plan.pg_num}),
            |map| map.pool_named(&POOL.into()).is_some(),
        );
        if plan.programs || plan.randoms {
            operator.wish(
                json!({"command": "program prepare", "kind": "class", "client": "admin"}),
                |map| {
                    map.pool_named(&nacre_wire::map::programs::PROGRAM_POOL.into())
                        .is_some()
                },
            );
        }
        let mut world = Self {
            client_wake: vec![u64::MAX; clients.len()],
            splits_left: plan.splits,
            rng,
            schedule: Schedule::default(),
            processes,
            network: if plan.contend {
                Network::new(Doubled::MANY)
            } else {
                Network::default()
            },
            sessions: Sessions::default(),
            operator,
            registrars: (0..2).map(Registrar::new).collect(),
            clients,
            records: Records::new(&plan),
            option_value: 0,
            ledger: Ledger::default(),
            faults: true,
            digest: xxhash_rust::xxh3::Xxh3::with_seed(0),
            events: 0,
            crashes: 0,
            verbose,
            service_ns: 0,
            flush_ns: (MS / 20, 2 * MS),
            mon_to_osd: 0,
            last: None,
            installed: false,
            borders: nacre_osd::borders::Borders::default(),
            rare: crate::borders::Borders::default(),
            surveyed: 0,
            rotted: BTreeSet::new(),
            reverts: 0,
            must_answer_from: u64::MAX,
            losses: crate::replace::Losses::default(),
            moves: crate::moves::Moves::default(),
            kept_down: Vec::new(),
            ordered: BTreeSet::new(),
            tools: Tools::default(),
            plan,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for who in self.everybody() {
            let at = self.rng.below(10 * MS);
            if self.processes.contains_key(&who) {
                self.schedule.push(at, Event::Restart(who));
            } else {
                self.schedule.push(at, Event::Seek(who));
            }
        }
        for client in 0..self.clients.len() {
            self.schedule.push(MS, Event::WakeClient(client));
        }
        for registrar in 0..self.registrars.len() {
            self.schedule.push(MS, Event::WakeRegistrar(registrar));
        }
        self.schedule.push(100 * MS, Event::Operate);
        self.schedule.push(100 * MS, Event::Survey);
        self.schedule.push(self.plan.fault_every_ns, Event::Fault);
        self.schedule.push(self.plan.faults_ns, Event::EndOfFaults);
    }

    /// All entities that send messages.
    pub(crate) fn everybody(&self) -> Vec<Entity> {
        let daemons = self.processes.keys().copied();
        let clients = self
            .clients
            .iter()
            .map(|client| Entity::Client(client.role.id()));
        let registrars = self.registrars.iter().map(Registrar::entity);
        daemons
            .chain(clients)
            .chain(registrars)
            .chain([Operator::WHO])
            .collect()
    }
    pub(crate) fn osds(&self) -> Vec<OsdId> {
        let osd = |who: &Entity| {
            if let Entity::Osd(osd) = who {
                Some(*osd)
            } else {
                None
            }
        };
        self.processes
            .iter()
            .filter(|(_, process)| !process.gone)
            .filter_map(|(who, _)| osd(who))
            .collect()
    }
    pub(crate) fn mons(&self) -> Vec<Entity> {
        (0..self.plan.mons)
            .map(|mon| Entity::Mon(MonId(mon)))
            .collect()
    }
    pub(crate) fn process(&mut self, who: Entity) -> &mut Process {
        self.processes.get_mut(&who).expect("a process per daemon")
    }
    /// An OSD's disk.
    pub(crate) fn disk(&mut self, osd: OsdId) -> &mut Disk {
        &mut self.process(Entity::Osd(osd)).disk
    }

    fn report(mut self) -> Report {
        for osd in self.processes.values().filter_map(Process::osd) {
            self.borders.add(&osd.counters().borders);
        }
        let history = &self.records.registers.history;
        let mut report = Report {
            digest: self.digest.digest128(),
            events: self.events,
            operations: history.len(),
            unknown: history.iter().filter(|record| record.unknown).count(),
            epochs: self.ledger.epoch().0,
            crashes: self.crashes,
            disks: self.losses.count,
            mons: self.moves.count,
            borders: self.borders,
            reverts: self.reverts,
            simulated_ns: self.schedule.now,
            surveyed: self.surveyed,
            ..self.records.report()
        };
        report.rare.add(&self.rare);
        report
    }

    pub(crate) fn now(&self) -> u64 {
        self.schedule.now
    }
    /// Schedules an event after a while.
    pub(crate) fn after(&mut self, wait: u64, event: Event) {
        let at = self.now() + wait;
        self.schedule.push(at, event);
    }
    pub(crate) fn note(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>12.6} {}", self.now() as f64 / 1e9, text());
        }
    }

    fn run_until_clean(&mut self) -> Ended {
        let limit = self.plan.faults_ns + 300 * SECOND;
        let mut check_at = 0;
        while let Some((number, event)) = self.schedule.pop() {
            self.events += 1;
            self.digest.update(&self.now().to_le_bytes());
            self.digest.update(&number.to_le_bytes());
            self.handle(event);
            if self.events >= check_at {
                check_at = self.events + 50;
                self.check();
                self.split_while_filling();
                if self.is_over() {
                    return Ended::Clean;
                }
            }
            if self.now() >= limit && self.plan.rot && crate::verdict::wants_an_operators_word(self)
            {
                return Ended::Unhealable;
            }
            assert!(self.now() < limit, "does not heal: {}", self.unclean());
            assert!(
                self.events < EVENTS_MAX,
                "is busy without an end: {}",
                self.unclean()
            );
            assert!(
                self.schedule.waiting() < SCHEDULED_MAX,
                "sends more than anybody takes: {}",
                self.unclean()
            );
        }
        panic!("nothing is scheduled any more: {}", self.unclean());
    }

    fn is_over(&self) -> bool {
        let idle = |client: &SimClient| client.finished && client.is_settled(&self.records);
        !self.faults
            && self.losses.is_over()
            && self.processes.values().all(|process| process.gone || process.role.is_some())
            && self.is_every_monitor_in()
            && self.clients.iter().all(idle)
            // Abandoned operations may be executed late: members differ until their updates are
            // everywhere.
            && self.processes.values().filter_map(Process::osd).all(|osd| osd.client_load().0 == 0)
            && self.registrars.iter().all(|registrar| registrar.finished && !registrar.is_busy())
            && self.ledger.map().is_some_and(|map| self.operator.is_content(map))
            && self.is_clean()
    }

    /// Creates and removes snapshots during the faults; afterwards removes some more, so that there
    /// is something to trim.
    fn order_snapshots(&mut self) {
        if !self.plan.snaps || !self.faults {
            return;
        }
        let now = self.now();
        let Some(map) = self
            .ledger
            .map()
            .filter(|map| map.pool_named(&POOL.into()).is_some())
        else {
            return;
        };
        let (request, removed) = crate::snapshots::order(map, POOL, now, &mut self.rng);
        self.records.snaps.removing.extend(removed);
        self.order(&request);
    }
    /// Fences victims for as long as requested, and lifts fences.
    fn order_fences(&mut self) {
        for (client, instance, order) in self.records.fencing.orders() {
            let who = Entity::Client(client);
            self.note(|| format!("{who}, up to {instance}: {order:?}"));
            let add =
                json!({"command": "fence add", "entity": who.to_string(), "instance": instance.0});
            let lift = json!({"command": "fence rm", "entity": who.to_string()});
            // The instance to be unfenced is gone, or is to be fenced once more.
            self.operator.recant(&lift);
            match order {
                Order::Add => self
                    .operator
                    .wish(add, move |map| map.is_fenced(who, instance)),
                Order::Lift => {
                    self.operator.recant(&add);
                    self.operator
                        .wish(lift, move |map| !map.is_fenced(who, instance));
                }
            }
        }
    }
    fn remove_some_snapshots(&mut self) {
        let Some(map) = self.ledger.map() else { return };
        let all: Vec<_> = map
            .pools
            .values()
            .flat_map(|pool| pool.snaps.named.keys().copied())
            .collect();
        for snap in all {
            // If devices are full, clones may be what fills them: deletions alone free no space
            // then.
            if self.rng.one_in(2) || self.plan.small_disks {
                self.records.snaps.removing.insert(snap);
                let request = json!({"command": "pool snap rm", "pool": POOL, "snap": snap.0});
                self.operator.wish(request, move |map| {
                    map.pools.values().all(|pool| !pool.snaps.is_live(snap))
                });
            }
        }
    }

    pub(crate) fn handle(&mut self, event: Event) {
        match event {
            Event::Input { who, life, input } => self.hand_to(who, life, input),
            Event::StaleAct {
                who,
                life,
                local,
                inputs,
            } => {
                if self.processes[&who].life == life {
                    self.act(who, local, inputs);
                }
            }
            Event::Turn { who, life } => self.take_turn(who, life),
            Event::Disk { who, life } => self.disk_turn(who, life),
            Event::ToClient {
                to,
                from,
                epoch,
                message,
            } => self.hand_to_client(to, from, epoch, message),
            Event::ClientReset { client, osd } => {
                let now = Time(self.now());
                self.network.connect(
                    Entity::Client(self.clients[client].role.id()),
                    Entity::Osd(osd),
                );
                self.clients[client].role.on_peer_reset(now, osd);
                self.flush_client(client);
            }
            Event::WakeClient(client) => self.wake_client(client),
            Event::WakeRegistrar(registrar) => self.wake_registrar(registrar),
            Event::Operate => {
                if let Some(command) = self.operator.next(self.ledger.map()) {
                    self.send_mon(Operator::WHO, Epoch::NONE, Message::Command(command));
                }
                self.order_snapshots();
                self.order_fences();
                self.replace_disks();
                self.move_monitors();
                self.after(300 * MS, Event::Operate);
            }
            Event::Seek(who) => self.seek(who),
            Event::BreakSession { who, number } => {
                let with = self
                    .sessions
                    .of(who)
                    .filter(|_| self.sessions.number(who) == number);
                if with.is_some_and(|mon| self.network.is_broken(who, Entity::Mon(mon))) {
                    self.end_session(who);
                }
            }
            Event::Fault => self.fault(),
            Event::Restart(who) => self.restart(who),
            Event::WatchDevice { osd, life } => self.watch_device(osd, life),
            Event::Survey => {
                self.survey();
                self.note_rot();
                self.note_kept_down();
                self.rest();
                self.after(250 * MS, Event::Survey);
            }
            Event::Calm => self.calm_down(),
            Event::Heal(cut) => self.network.heal(cut),
            Event::Depose { pg, primary, alone } => self.depose(pg, primary, &alone),
            Event::Blackout { members, away } => self.blackout(&members, away),
            Event::Dark { members, apart } => self.dark(&members, &apart),
            Event::Squeeze { alone, wait } => self.squeeze(&alone, wait),
            Event::EndOfFaults => self.end_of_faults(),
            Event::EndOfWork => {
                self.remove_some_snapshots();
                if self.plan.small_disks {
                    self.fullest_misses_the_deletions();
                }
                self.clients
                    .iter_mut()
                    .for_each(|client| client.finished = true);
                self.registrars
                    .iter_mut()
                    .for_each(|registrar| registrar.finished = true);
            }
        }
    }

    // ── daemons ─────────────────────────────────────────────────────────────────────────

    fn restart(&mut self, who: Entity) {
        let (now, faults) = (self.now(), self.faults);
        let process = self.processes.get_mut(&who).expect("a process per daemon");
        if process.role.is_some() || process.gone {
            return;
        }
        if process.hang.until > now {
            // It hangs while it opens its store.
            self.schedule.push(process.hang.until, Event::Restart(who));
            return;
        }
        process.life += 1;
        if !process.disk.is_index_whole() && !self.is_losable(who) {
            self.process(who).disk.mend_index();
        }
        let process = self.processes.get_mut(&who).expect("a process per daemon");
        if let Err(why) = process.disk.power_on(&mut self.rng, faults) {
            self.rare.index_rot_ended += 1;
            self.index_failed(who, &why);
            return;
        }
        let local = process.clock.local(now);
        let mut outputs = Vec::new();
        let role = match who {
            Entity::Mon(id) => {
                let mut config = MonConfig::new(id, CLUSTER, self.rng.any());
                // The next wall clock reading is unpredictable.
                config.unix_ms_at_zero = self.rng.below(1 << 42);
                Daemon::Mon(Box::new(Mon::open(config, local, &mut outputs)))
            }
            Entity::Osd(id) => {
                let config = osd_config(&self.plan, id, process.store, self.rng.any() | 1);
                Daemon::Osd(Box::new(Osd::open(config, local, &mut outputs)))
            }
            Entity::Client(_) => panic!("clients do not restart"),
        };
        process.begin(role);
        self.note(|| format!("{who} starts"));
        self.perform(who, outputs);
        if let Entity::Osd(osd) = who {
            let wait = self.rng.between(MS / 5, 5 * MS);
            self.after(wait, Event::Seek(who));
            if self.plan.hangs {
                let life = self.process(who).life;
                self.after(crate::hangs::LOOK, Event::WatchDevice { osd, life });
            }
        }
    }

    /// Crashes the daemon. Returns whether it was running.
    pub(crate) fn crash(&mut self, who: Entity) -> bool {
        let process = self.processes.get_mut(&who).expect("a process per daemon");
        if let Some(osd) = process.osd() {
            self.borders.add(&osd.counters().borders);
        }
        if process.role.take().is_none() {
            return false;
        }
        process.life += 1;
        let left = process.disk.power_off(&mut self.rng);
        self.crashes += 1;
        self.note(|| format!("{who} crashes; {left}"));
        match who {
            Entity::Mon(mon) => {
                for other in self.sessions.with(mon) {
                    self.end_session(other);
                }
                for other in self.mons() {
                    self.tell_gone(other, who);
                }
            }
            Entity::Osd(osd) => {
                self.records.streams.early.crashed(osd);
                if let Some(mon) = self.sessions.close(who) {
                    self.tell_gone(Entity::Mon(mon), who);
                }
                for client in 0..self.clients.len() {
                    if self.rng.one_in(2) {
                        let wait = self.rng.between(MS / 10, 50 * MS);
                        self.after(wait, Event::ClientReset { client, osd });
                    }
                }
            }
            Entity::Client(_) => {}
        }
        true
    }

    /// Crashes the daemon and restarts it after a while.
    pub(crate) fn crash_for(&mut self, who: Entity, wait: u64) {
        if self.crash(who) {
            self.after(wait, Event::Restart(who));
        }
    }

    fn tell_gone(&mut self, mon: Entity, who: Entity) {
        if mon != who && self.processes[&mon].role.is_some() {
            let life = self.processes[&mon].life;
            let wait = self.rng.between(MS / 10, 20 * MS);
            self.after(
                wait,
                Event::Input {
                    who: mon,
                    life,
                    input: Input::Gone(who),
                },
            );
        }
    }

    pub(crate) fn hand_to(&mut self, who: Entity, life: u64, input: Input) {
        let now = self.now();
        let process = self.processes.get_mut(&who).expect("a process per daemon");
        if process.life != life || process.role.is_none() {
            return;
        }
        if process.busy_until > now {
            self.schedule
                .push(process.busy_until, Event::Input { who, life, input });
            return;
        }
        if let Input::Tick = input {
            // An earlier tick has been requested since.
            if process.wake > now {
                return;
            }
            process.wake = u64::MAX;
        }
        if let Some(gathered) = &mut process.gathered {
            gathered.push(input);
            return;
        }
        let most = self.plan.gather_ns;
        if most > 0 && matches!(process.role, Some(Daemon::Osd(_))) && self.rng.one_in(2) {
            process.gathered = Some(vec![input]);
            let wait = self.rng.below(most);
            self.after(wait, Event::Turn { who, life });
            return;
        }
        self.begin_turn(who, life, vec![input]);
    }

    /// An OSD handles its gathered inputs in one turn.
    fn take_turn(&mut self, who: Entity, life: u64) {
        let now = self.now();
        let process = self.processes.get_mut(&who).expect("a process per daemon");
        if process.life != life || process.role.is_none() {
            return;
        }
        if process.busy_until > now {
            self.schedule
                .push(process.busy_until, Event::Turn { who, life });
            return;
        }
        let inputs = process.gathered.take().expect("it gathers until its turn");
        self.rare.turns_of_many += u64::from(inputs.len() > 1);
        self.begin_turn(who, life, inputs);
    }

    fn begin_turn(&mut self, who: Entity, life: u64, inputs: Vec<Input>) {
        let now = self.now();
        let process = self.processes.get_mut(&who).expect("a process per daemon");
        let local = process.clock.local(now);
        if self.faults && self.rng.one_in(3000) {
            let pause = self.rng.between(MS, 3 * SECOND);
            process.busy_until = now + pause;
            self.note(|| {
                format!(
                    "{who} reads its clock and stands still for {} ms",
                    pause / MS
                )
            });
            self.after(
                pause,
                Event::StaleAct {
                    who,
                    life,
                    local,
                    inputs,
                },
            );
            return;
        }
        self.act(who, local, inputs);
        if self.service_ns > 0 {
            self.process(who).busy_until = now + self.service_ns;
        }
    }

    /// An input with a map is a turn of its own, as in the real host.
    fn act(&mut self, who: Entity, local: Time, inputs: Vec<Input>) {
        let mut left = inputs;
        while !left.is_empty() {
            let maps = left.iter().position(Input::is_map);
            let rest = left.split_off(maps.map_or(left.len(), |at| at.max(1)));
            self.turn(who, local, std::mem::replace(&mut left, rest));
        }
    }

    fn turn(&mut self, who: Entity, local: Time, inputs: Vec<Input>) {
        let now = self.now();
        let process = self.processes.get_mut(&who).expect("a process per daemon");
        let Some(role) = &mut process.role else {
            return;
        };
        let early = role.next_deadline() > local;
        let is_tick = |input: &Input| matches!(input, Input::Tick);
        if let (true, Daemon::Osd(osd)) = (inputs.iter().any(is_tick), &mut *role) {
            let (all, used) = room(&self.plan, &mut process.disk, process.full_until > now);
            osd.on_usage(all, used);
            osd.on_store_limit(process.disk.logged_bytes_max());
        }
        let mut outputs = Vec::new();
        // A tick that is too early is dropped.
        let mut inputs = inputs
            .into_iter()
            .filter(|input| !(early && is_tick(input)));
        role.on_turn(local, &mut inputs, &mut outputs);
        self.perform(who, outputs);
    }

    /// Lets idle stores do idle work.
    fn rest(&mut self) {
        let now = self.now();
        let looks = |process: &Process| process.role.is_some() && process.busy_until <= now;
        let running = |(who, process): (&Entity, &Process)| looks(process).then_some(*who);
        let running: Vec<Entity> = self.processes.iter().filter_map(running).collect();
        for who in running {
            self.process(who).disk.rest();
            self.perform(who, Vec::new());
        }
    }

    fn disk_turn(&mut self, who: Entity, life: u64) {
        let now = self.now();
        let process = self.processes.get_mut(&who).expect("a process per daemon");
        if process.life != life || process.role.is_none() {
            return;
        }
        let until = process.busy_until.max(process.hang.until);
        if until > now {
            self.schedule.push(until, Event::Disk { who, life });
            return;
        }
        process.hang.seen = None;
        process.disk.turn(&mut self.rng);
        self.perform(who, Vec::new());
    }

    /// Installs the class, in two versions, as soon as its sources are stored.
    fn install_programs(&mut self) {
        if !self.plan.programs || self.installed || !self.records.programs.is_stored() {
            return;
        }
        self.installed = true;
        let name = crate::programs::NAME;
        for version in [1, 2] {
            self.install(name, crate::programs::source(version), version as usize);
        }
    }

    /// Installs random classes, each version as soon as its source is stored.
    fn install_randoms(&mut self) {
        while let Some((class, version)) = self
            .records
            .randoms
            .stored
            .difference(&self.ordered)
            .next()
            .copied()
        {
            self.ordered.insert((class, version));
            let source = self.records.randoms.sources[class][version - 1].clone();
            self.note(|| format!("random{class}, version {version}:\n{source}"));
            self.install(
                &crate::programs::random::author::name(class),
                source,
                version,
            );
        }
    }

    fn install(&mut self, name: &str, source: String, version: usize) {
        let request = json!({
            "command": "program install", "kind": "class", "name": name, "source": source, "client": "admin",
        });
        let id = (nacre_wire::map::ProgramKind::Class {}, name.into());
        self.operator.wish(request, move |map| {
            map.programs
                .get(&id)
                .is_some_and(|program| program.versions.len() >= version)
        });
    }

    /// Performs outputs, and their consequences within this wake-up.
    fn perform(&mut self, who: Entity, mut outputs: Vec<Output>) {
        let now = self.now();
        let mut events = Vec::new();
        for round in 0.. {
            assert!(
                round < 5000,
                "{who} asks its store without end; now for {:?}",
                outputs.first()
            );
            if let Some(why) = self.perform_once(who, outputs) {
                self.stopped(who, &why);
                return;
            }
            let process = self.processes.get_mut(&who).expect("a process per daemon");
            let local = process.clock.local(now);
            process.disk.poll(local, &mut events);
            let Some(role) = &mut process.role else {
                return;
            };
            outputs = Vec::new();
            let mut told = events.drain(..).map(Input::Store);
            match role {
                Daemon::Osd(osd) if self.plan.gather_ns > 0 => {
                    osd.on_turn(local, &mut told, &mut outputs)
                }
                _ => told.for_each(|input| role.on_input(local, input, &mut outputs)),
            }
            if outputs.is_empty() {
                break;
            }
        }
        let process = self.processes.get_mut(&who).expect("a process per daemon");
        let local = process.clock.local(now);
        process.disk.commit_due(local);
        if let (true, Some(Daemon::Osd(osd))) = (self.plan.small_disks, &mut process.role) {
            // Each time, as in the real host.
            let (all, used) = room(&self.plan, &mut process.disk, process.full_until > now);
            osd.on_usage(all, used);
        }
        self.look_at(who);
        self.schedule_next(who);
    }

    /// A daemon stops by itself: that is allowed if its disk was broken.
    fn stopped(&mut self, who: Entity, why: &str) {
        let is_monitor = matches!(who, Entity::Mon(_));
        if is_monitor {
            // It may have reported a map in this turn that it will not show any more (seeds 1429
            // and 1894).
            self.ledger.one_has_ended();
        }
        // A monitor that learns that it was removed ends, and its data is not needed any more: see
        // `moves.rs`.
        if self.plan.moves && is_monitor && why.contains("was removed from the cluster") {
            self.note(|| format!("{who} halts: {why}"));
            self.crash(who);
            return;
        }
        let process = &self.processes[&who];
        if process.disk.index_rotten && !process.broken && why.contains("its index is damaged") {
            self.rare.index_rot_ended += 1;
            self.index_failed(who, why);
            return;
        }
        // The operator's order for a new store may be executed after its first start, and a late
        // order may remove it again.
        let replaced = process.store > 0 && why.contains("osd add");
        assert!(process.broken || replaced, "{who} halts: {why}");
        self.note(|| format!("{who} halts: {why}"));
        let wait = self.rng.between(50 * MS, 3 * SECOND);
        self.crash_for(who, wait);
    }

    /// Performs outputs in order. Returns why the daemon stops, if it does.
    fn perform_once(&mut self, who: Entity, outputs: Vec<Output>) -> Option<String> {
        for output in outputs {
            let now = self.now();
            let process = self.processes.get_mut(&who).expect("a process per daemon");
            let epoch = process.role.as_ref().map_or(Epoch::NONE, Daemon::epoch);
            match output {
                Output::Send {
                    to,
                    message,
                    before,
                } => {
                    // The host reads the clock again when it releases the reply.
                    if before.is_none_or(|before| process.clock.local(now) <= before) {
                        self.send(who, to, epoch, message);
                    }
                }
                Output::SendMon { message } => self.send_mon(who, epoch, message),
                Output::Submit { transaction, token } => process.disk.submit(transaction, token),
                Output::Read { read, token } => process.disk.read(read, token),
                Output::Run(job) => {
                    let life = process.life;
                    let input = Input::Done(job.run(&mut self.tools));
                    // A busy machine: longer than a client waits before it asks again.
                    let busy = self.rng.one_in(LONG_CALLS);
                    let wait = if busy {
                        self.rng.between(1500 * MS, 6000 * MS)
                    } else {
                        self.rng.between(MS / 10, 50 * MS)
                    };
                    self.after(wait, Event::Input { who, life, input });
                }
                // Here peers are found by their identity.
                Output::Say(_) | Output::Meet { .. } => {}
                Output::Halt { why } => return Some(why),
            }
        }
        None
    }

    /// Records a map that was not shown before.
    fn look_at(&mut self, who: Entity) {
        let now = self.now();
        let process = self.processes.get_mut(&who).expect("a process per daemon");
        let Some(role) = &process.role else { return };
        let Some(map) = role.map().filter(|map| map.epoch > process.seen) else {
            return;
        };
        process.seen = map.epoch;
        let before = self.ledger.epoch();
        match role {
            Daemon::Mon(mon) => {
                self.ledger.see_monitor(now, who, mon);
                let fences = self.ledger.take_fences();
                self.records.fencing.see(fences);
            }
            Daemon::Osd(_) => self.ledger.see(who, map),
        }
        self.see_activations();
        if self.ledger.epoch() > before {
            self.note(|| format!("{} (from {who})", self.ledger.epoch()));
        }
    }

    fn schedule_next(&mut self, who: Entity) {
        let now = self.now();
        let process = self.processes.get_mut(&who).expect("a process per daemon");
        let Some(role) = &process.role else { return };
        let life = process.life;
        let deadline = role.next_deadline().min(process.disk.commit_at());
        let at = process.clock.global(deadline, now).max(now + 1000);
        let wake = at < process.wake;
        if wake {
            process.wake = at;
        }
        let slow = process.slow_until > now;
        let disk = process.disk.wants_turn();
        if wake {
            self.schedule.push(
                at,
                Event::Input {
                    who,
                    life,
                    input: Input::Tick,
                },
            );
        }
        if disk {
            let (least, most) = if slow {
                (20 * MS, 1500 * MS)
            } else {
                self.flush_ns
            };
            let wait = self.rng.between(least, most);
            self.after(wait, Event::Disk { who, life });
        }
    }

    // ── clients and people ──────────────────────────────────────────────────────────────

    fn client_of(&self, who: Entity) -> Option<usize> {
        self.clients
            .iter()
            .position(|client| Entity::Client(client.role.id()) == who)
    }
    fn registrar_of(&self, who: Entity) -> Option<usize> {
        self.registrars
            .iter()
            .position(|registrar| registrar.entity() == who)
    }

    fn hand_to_client(&mut self, to: Entity, from: Entity, epoch: Epoch, message: Message) {
        let now = self.now();
        if let Some(client) = self.client_of(to) {
            self.clients[client]
                .role
                .on_message(Time(now), from, epoch, message);
            if let Some(map) = self.clients[client].role.map() {
                self.ledger.see(to, map);
            }
            self.flush_client(client);
        } else if let (Some(registrar), Message::CommandReply(reply)) =
            (self.registrar_of(to), &message)
        {
            self.registrars[registrar].on_reply(
                now,
                reply,
                &mut self.rng,
                &mut self.records.registers.history,
            );
            let at = self.registrars[registrar].next_at();
            self.schedule.push(at, Event::WakeRegistrar(registrar));
        }
    }

    fn wake_client(&mut self, client: usize) {
        let now = self.now();
        if self.client_wake[client] > now && self.client_wake[client] != u64::MAX {
            return;
        }
        self.client_wake[client] = u64::MAX;
        if self.clients[client].role.next_deadline() <= Time(now) {
            self.clients[client].role.on_tick(Time(now));
        }
        self.flush_client(client);
    }

    pub(crate) fn flush_client(&mut self, index: usize) {
        let now = self.now();
        let ended = self.records.registers.history.len();
        let hung = self.records.streams.hung.len();
        let calm = !self.faults;
        self.clients[index].advance(now, Time(now), calm, &mut self.records, &mut self.rng);
        self.install_programs();
        self.install_randoms();
        for record in &self.records.registers.history[ended..] {
            let (took, what) = (
                (now - record.invoke_ns) / 1000,
                (record.op, &record.value, &record.result),
            );
            self.note(|| {
                format!(
                    "client {} register {}: {what:?} in {took} us",
                    1000 + index,
                    record.key
                )
            });
        }
        self.must_have_answered(ended, hung);
        let client = &mut self.clients[index];
        let mut out = Vec::new();
        client.role.take_outputs(&mut out);
        let (id, epoch) = (Entity::Client(client.role.id()), client.role.epoch());
        let wake = client.next_at().min(client.role.next_deadline().0);
        for output in out {
            match output {
                Output::Send { to, message, .. } => self.send(id, to, epoch, message),
                Output::SendMon { message } => self.send_mon(id, epoch, message),
                Output::Halt { why } => panic!("{id} halts: {why}"),
                other => unreachable!("a client has no store and no threads: {other:?}"),
            }
        }
        if wake < self.client_wake[index] {
            self.client_wake[index] = wake;
            self.schedule.push(wake, Event::WakeClient(index));
        }
    }

    fn wake_registrar(&mut self, index: usize) {
        let now = self.now();
        let who = self.registrars[index].entity();
        let value = self.option_value % 10_000 + 1;
        let asked = self.registrars[index].advance(
            now,
            value,
            &mut self.rng,
            &mut self.records.registers.history,
        );
        if let Some((took, command)) = asked {
            self.option_value += u64::from(took);
            self.send_mon(who, Epoch::NONE, Message::Command(command));
        }
        let at = self.registrars[index].next_at();
        if at > now && at != u64::MAX {
            self.schedule.push(at, Event::WakeRegistrar(index));
        }
    }

    /// The operator sends an order once, to any reachable monitor.
    pub(crate) fn order(&mut self, request: &serde_json::Value) {
        let command: Command = self.operator.order(request);
        self.send_mon(Operator::WHO, Epoch::NONE, Message::Command(command));
    }

    // ── connections ─────────────────────────────────────────────────────────────────────

    fn seek(&mut self, who: Entity) {
        let down = self
            .processes
            .get(&who)
            .is_some_and(|process| process.role.is_none());
        if down || self.sessions.of(who).is_some() {
            return;
        }
        let mon = self.sessions.next(who, self.plan.mons);
        let listens = self.processes[&Entity::Mon(mon)]
            .mon()
            .is_some_and(Mon::is_live);
        if !listens || self.network.is_broken(who, Entity::Mon(mon)) {
            let wait = self.rng.between(5 * MS, 100 * MS);
            self.after(wait, Event::Seek(who));
            return;
        }
        self.sessions.open(who, mon);
        if let Some(process) = self.processes.get(&who) {
            let life = process.life;
            let now = self.now();
            self.schedule.push(
                now,
                Event::Input {
                    who,
                    life,
                    input: Input::MonSession,
                },
            );
        } else if let Some(client) = self.client_of(who) {
            let now = Time(self.now());
            self.clients[client].role.on_mon_session(now);
            self.flush_client(client);
        }
    }

    /// A connection with a monitor breaks, and both ends notice.
    pub(crate) fn end_session(&mut self, who: Entity) {
        let Some(mon) = self.sessions.close(who) else {
            return;
        };
        self.tell_gone(Entity::Mon(mon), who);
        if let Some(registrar) = self.registrar_of(who) {
            let now = self.now();
            self.registrars[registrar].on_gone(now, &mut self.records.registers.history);
            self.after(MS, Event::WakeRegistrar(registrar));
        }
        let wait = self.rng.between(MS / 10, 50 * MS);
        self.after(wait, Event::Seek(who));
    }

    fn send_mon(&mut self, from: Entity, epoch: Epoch, message: Message) {
        // Without a session it is lost; a sender that needs an answer asks again.
        if let Some(mon) = self.sessions.of(from) {
            self.send(from, Entity::Mon(mon), epoch, message);
        }
    }

    /// A message with several items is sent as it is, or split into single items, so that each may
    /// be lost and arrive at any time.
    pub(crate) fn send(&mut self, from: Entity, to: Entity, epoch: Epoch, message: Message) {
        match message {
            Message::Replicate(updates, payload)
                if updates.updates.len() > 1 && self.rng.one_in(2) =>
            {
                for (update, data) in updates.split(payload) {
                    self.send_whole(from, to, epoch, Message::Replicate(update, data));
                }
            }
            Message::ReplicateAcks(ReplicateAcks {
                logged,
                nearly_full,
            }) if logged.len() > 1 && self.rng.one_in(2) => {
                for one in logged {
                    let acks = ReplicateAcks {
                        logged: vec![one],
                        nearly_full,
                    };
                    self.send_whole(from, to, epoch, Message::ReplicateAcks(acks));
                }
            }
            message => self.send_whole(from, to, epoch, message),
        }
    }

    fn send_whole(&mut self, from: Entity, to: Entity, epoch: Epoch, message: Message) {
        let bad = self.faults && self.plan.bad_network;
        let now = self.now();
        if matches!((from, to), (Entity::Mon(_), Entity::Osd(_))) {
            self.mon_to_osd += 1;
        }
        if let (Entity::Osd(osd), Entity::Client(client), Message::OpApplied(applied)) =
            (from, to, &message)
        {
            self.see_early(osd, client, applied);
        }
        // Every message is encoded and decoded on its way.
        let mut meta = Vec::new();
        message.put_meta(&mut meta);
        let payload_len = nacre_wire::msg::payload_len(message.payload());
        let fits =
            meta.len() <= nacre_wire::META_LEN_MAX && payload_len <= nacre_wire::PAYLOAD_LEN_MAX;
        assert!(
            fits,
            "{from} says more to {to} than a frame takes: {}",
            message.name()
        );
        let bytes = meta.len() + payload_len;
        let (Some(at), again) = self
            .network
            .route(&mut self.rng, bad, now, (from, to), bytes)
        else {
            self.break_path(from, to);
            return;
        };
        self.digest.update(&meta);
        let (kind, _, compat) = message.kind();
        let payload: Payload = message.payload().to_vec();
        let message =
            Message::decode(kind, compat, &meta, payload).expect("what was encoded decodes");
        // A command travels on one connection, which duplicates nothing; asking again is a new
        // command.
        if let Some(again) = again.filter(|_| !matches!(message, Message::Command(_))) {
            if let (Entity::Client(client), Message::OpRequest(request, _)) = (from, &message) {
                self.records
                    .fencing
                    .doubled(client, request.request.sequence);
            }
            self.deliver(again, from, to, epoch, message.clone());
        }
        self.deliver(at, from, to, epoch, message);
    }

    /// A loss between a client and an OSD breaks the connection: nothing sent on it later arrives
    /// either. Both ends notice some time later.
    fn break_path(&mut self, from: Entity, to: Entity) {
        let (client, osd) = match (from, to) {
            (Entity::Client(_), Entity::Osd(osd)) => (from, osd),
            (Entity::Osd(osd), Entity::Client(_)) => (to, osd),
            _ => return,
        };
        if self.network.lose(client, Entity::Osd(osd))
            && let Some(client) = self.client_of(client)
        {
            let wait = self.rng.between(MS, 4 * SECOND);
            self.after(wait, Event::ClientReset { client, osd });
        }
    }

    fn deliver(&mut self, at: u64, from: Entity, to: Entity, epoch: Epoch, message: Message) {
        let Some(process) = self.processes.get(&to) else {
            self.schedule.push(
                at,
                Event::ToClient {
                    to,
                    from,
                    epoch,
                    message,
                },
            );
            return;
        };
        if process.role.is_some() {
            let input = Input::Message {
                from,
                epoch,
                message,
            };
            self.schedule.push(
                at,
                Event::Input {
                    who: to,
                    life: process.life,
                    input,
                },
            );
        } else if let (Entity::Osd(sender), Entity::Osd(osd)) = (from, to) {
            let who = Entity::Osd(sender);
            let life = self.processes[&who].life;
            self.schedule.push(
                at,
                Event::Input {
                    who,
                    life,
                    input: Input::Absent(Entity::Osd(osd)),
                },
            );
        }
    }

    /// A human-readable reason why a client's operation takes so long.
    pub(crate) fn blocked(&self) -> String {
        let mut lines = String::new();
        for client in &self.clients {
            for blocked in client.role.blocked(Time::MAX, Duration::ZERO) {
                lines += &format!("\n  {}: {}", client.role.id(), blocked.reason);
            }
        }
        lines
    }
}

/// What an OSD is told about its store: capacity and usage. A store that counts as full has a
/// little space left: too little for recovery, enough for deletions.
fn room(plan: &Plan, disk: &mut Disk, counts_as_full: bool) -> (u64, u64) {
    let (all, used) = match plan.small_disks {
        true => disk.fullness(),
        false => (plan.capacity, disk.usage().used.min(plan.capacity / 2)),
    };
    (all, if counts_as_full { all - all / 45 } else { used })
}

fn osd_config(plan: &Plan, id: OsdId, store: u64, process: u64) -> OsdConfig {
    let limits = Limits {
        log_entries_min: plan.log.0,
        log_entries_max: plan.log.1,
        recovery_objects: 3,
        push_bytes: 4096,
        scan_objects: plan.pages.0.scan_objects.min(5),
        contexts: 8,
        ..plan.pages.0
    };
    OsdConfig {
        id,
        process,
        store: crate::replace::store_name(id, store),
        address: Address(format!("sim:{id}")),
        class: String::new(),
        host: format!("host{}", id.0),
        // Its CRUSH weight, even for a store that reports a small capacity.
        capacity: crate::plan::CAPACITY,
        timing: Timing {
            grace: Duration::from_millis(plan.grace_ms),
            ..Timing::default()
        },
        limits,
    }
}
