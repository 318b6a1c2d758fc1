//! Events, clocks, network, stores, crashes.
//!
//! Everything happens in one queue ordered by virtual time and number. A daemon's clock runs at its own rate from its own start. Faults last
//! until [`Plan::faults_ns`]; then all is repaired, the clients stop a little later, and everything must become clean.
//!
//! What can happen, and what cannot (the fault model, `docs/faults.md`): messages between OSDs are delayed, lost, doubled and overtake each
//! other; messages on a client's connection are delayed, lost and doubled, and overtake nothing; nothing is delivered to a later life of its
//! receiver. A crashed store keeps what was committed and some prefix of what was not. A daemon may stand still between reading its clock
//! and acting on it. The oracle may take the living for dead.

use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::workload::{SimClient, Workload};
use nacre_client::Output as ClientOutput;
use nacre_osd::{Limits, Osd, OsdConfig, Output, Timing};
use nacre_store::{ObjectStore, RamStore, Token};
use nacre_types::{Entity, Epoch, Instance, MonId, OsdId, PgId, Time};
use nacre_wire::map::{Address, Change, Weight};
use nacre_wire::{Message, Payload};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const MON: Entity = Entity::Mon(MonId(0));

/// What a seed means.
#[derive(Clone, Debug)]
pub struct Plan {
    /// For everything that happens.
    pub seed: u64,
    /// How many OSDs.
    pub osds: u32,
    /// Copies.
    pub size: u8,
    /// Copies needed.
    pub min_size: u8,
    /// Groups at the beginning.
    pub pg_num: u32,
    /// Registers.
    pub keys: u64,
    /// Clients.
    pub clients: u64,
    /// How long faults last.
    pub faults_ns: u64,
    /// Mean time between faults.
    pub fault_every_ns: u64,
    /// Messages are lost, doubled, reordered and late.
    pub bad_network: bool,
    /// Log entries kept when clean, and at most.
    pub log: (usize, usize),
    /// How often groups may split.
    pub splits: u32,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x6e61_6372_6521);
        let osds = rng.between(3, 6) as u32;
        let log = rng.between(3, 60) as usize;
        Self {
            seed,
            osds,
            size: if rng.one_in(5) { 2 } else { 3 },
            min_size: if rng.one_in(8) { 1 } else { 2 },
            pg_num: rng.between(1, 6) as u32,
            // A third of the plans has a few hot registers and many clients: order shows there.
            keys: if rng.one_in(3) { rng.between(1, 2) } else { rng.between(2, 24) },
            clients: rng.between(2, 8),
            faults_ns: rng.between(4, 16) * SECOND,
            fault_every_ns: rng.between(150, 1500) * MS,
            bad_network: !rng.one_in(4),
            log: (log, log + rng.between(1, 80) as usize),
            splits: rng.below(3) as u32,
        }
    }
}

/// What a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Over every event in order.
    pub digest: u128,
    /// How many events.
    pub events: u64,
    /// How many operations were invoked.
    pub operations: usize,
    /// Of these, of unknown outcome.
    pub unknown: usize,
    /// The last epoch.
    pub epochs: u64,
    /// How often a daemon crashed.
    pub crashes: u64,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "messages are what there is most of")]
enum Input {
    Message { from: Entity, epoch: Epoch, message: Message },
    Tick,
    Refused(OsdId),
}

#[derive(Debug)]
enum Event {
    ToOsd {
        osd: OsdId,
        life: u64,
        input: Input,
    },
    /// Acts on a reading of the clock that is old by now.
    StaleAct {
        osd: OsdId,
        life: u64,
        local: Time,
        input: Input,
    },
    Commit {
        osd: OsdId,
        life: u64,
        count: usize,
    },
    ToClient {
        client: usize,
        from: Entity,
        epoch: Epoch,
        message: Message,
    },
    WakeClient(usize),
    ToOracle {
        from: Entity,
        message: Message,
    },
    OracleCommit,
    Fault,
    Restart(OsdId),
    Heal(u64),
    EndOfFaults,
    EndOfWork,
}

struct Queued {
    at: u64,
    number: u64,
    event: Event,
}
impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Queued {}
impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

struct Node {
    life: u64,
    role: Option<Osd>,
    store: RamStore,
    offset: u64,
    drift_ppm: i64,
    busy_until: u64,
    wake: u64,
    committing: bool,
    slow_until: u64,
}

impl Node {
    fn local(&self, now: u64) -> Time {
        let drift = i128::from(now) * i128::from(self.drift_ppm) / 1_000_000;
        Time((i128::from(now + self.offset) + drift) as u64)
    }
    fn global(&self, local: Time, now: u64) -> u64 {
        let ahead = local.0.saturating_sub(self.local(now).0);
        now.saturating_add(ahead).saturating_add(ahead / 500)
    }
}

/// The simulated cluster.
pub struct World {
    plan: Plan,
    rng: Rng,
    now: u64,
    number: u64,
    queue: BinaryHeap<Reverse<Queued>>,
    nodes: BTreeMap<OsdId, Node>,
    /// The monitors.
    pub oracle: Oracle,
    clients: Vec<SimClient>,
    client_wake: Vec<u64>,
    work: Workload,
    cuts: BTreeMap<u64, BTreeSet<(Entity, Entity)>>,
    next_cut: u64,
    fifo: BTreeMap<(Entity, Entity), u64>,
    faults: bool,
    splits_left: u32,
    digest: xxhash_rust::xxh3::Xxh3,
    events: u64,
    crashes: u64,
    verbose: bool,
}

/// Runs a plan to its end.
///
/// # Panics
/// When something is found: an invariant, a history that is not linearizable, copies that differ, a cluster that does not heal.
#[must_use]
pub fn run(plan: &Plan, verbose: bool) -> Report {
    let mut world = World::new(plan.clone(), verbose);
    world.run_until_clean();
    crate::verdict::copies_agree(&mut world);
    if let Err(violations) = nacre_history::check(&world.work.history) {
        panic!("{}", violations[0]);
    }
    world.report()
}

impl World {
    fn new(plan: Plan, verbose: bool) -> Self {
        let mut rng = Rng::new(plan.seed);
        let mut nodes = BTreeMap::new();
        for osd in 0..plan.osds {
            let mut store = RamStore::with(nacre_store::ram::Commits::Manual, 1 << 40);
            store
                .submit(nacre_osd::format(nacre_types::ClusterId(1), OsdId(osd)), Token(0))
                .expect("an empty store takes its first transaction");
            store.commit(usize::MAX);
            let node = Node {
                life: 0,
                role: None,
                store: store.crash(0),
                offset: rng.below(1000 * SECOND),
                drift_ppm: rng.below(1001) as i64 - 500,
                busy_until: 0,
                wake: u64::MAX,
                committing: false,
                slow_until: 0,
            };
            nodes.insert(OsdId(osd), node);
        }
        let mut work = Workload::new(plan.keys);
        let clients: Vec<SimClient> = (0..plan.clients).map(|index| work.client(index, &mut rng, Time(0))).collect();
        let oracle = Oracle::new(plan.osds, plan.size, plan.min_size, plan.pg_num);
        let mut world = Self {
            client_wake: vec![u64::MAX; clients.len()],
            splits_left: plan.splits,
            plan,
            rng,
            now: 0,
            number: 0,
            queue: BinaryHeap::new(),
            nodes,
            oracle,
            clients,
            work,
            cuts: BTreeMap::new(),
            next_cut: 0,
            fifo: BTreeMap::new(),
            faults: true,
            digest: xxhash_rust::xxh3::Xxh3::with_seed(0),
            events: 0,
            crashes: 0,
            verbose,
        };
        for osd in 0..world.plan.osds {
            world.push(u64::from(osd), Event::Restart(OsdId(osd)));
        }
        for client in 0..world.clients.len() {
            world.push(MS, Event::WakeClient(client));
            world.flush_client(client);
        }
        let (faults, every) = (world.plan.faults_ns, world.plan.fault_every_ns);
        world.push(every, Event::Fault);
        world.push(faults, Event::EndOfFaults);
        world
    }

    /// An OSD's store.
    pub fn store(&mut self, osd: OsdId) -> &mut RamStore {
        &mut self.nodes.get_mut(&osd).expect("a node per OSD").store
    }

    fn report(self) -> Report {
        let unknown = self.work.history.iter().filter(|record| record.unknown).count();
        Report {
            digest: self.digest.digest128(),
            events: self.events,
            operations: self.work.history.len(),
            unknown,
            epochs: self.oracle.map.epoch.0,
            crashes: self.crashes,
        }
    }

    fn push(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.queue.push(Reverse(Queued { at: at.max(self.now), number: self.number, event }));
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>12.6} {}", self.now as f64 / 1e9, text());
        }
    }

    fn run_until_clean(&mut self) {
        let limit = self.plan.faults_ns + 300 * SECOND;
        let mut check_at = 0;
        while let Some(Reverse(Queued { at, number, event })) = self.queue.pop() {
            assert!(at >= self.now, "time only goes forward");
            self.now = at;
            self.events += 1;
            self.digest.update(&at.to_le_bytes());
            self.digest.update(&number.to_le_bytes());
            self.handle(event);
            if self.events >= check_at {
                check_at = self.events + 50;
                self.check();
                if !self.faults
                    && self.clients.iter().all(|client| client.finished && !client.is_busy())
                    && self.is_clean()
                {
                    return;
                }
            }
            assert!(at < limit, "does not heal: {}", self.unclean());
        }
    }

    /// Invariants of each daemon, and those between them.
    fn check(&self) {
        for node in self.nodes.values() {
            let Some(role) = &node.role else { continue };
            role.check();
            for group in role.pgs() {
                let Some(primary) = group.as_primary() else { continue };
                for (osd, peer) in &primary.peers {
                    // Nobody has acknowledged what it does not have.
                    let other = self.nodes[osd]
                        .role
                        .as_ref()
                        .and_then(|role| role.pgs().find(|other| other.id() == group.id()));
                    let Some(other) = other.filter(|other| other.interval.since == group.interval.since) else {
                        continue;
                    };
                    let head = other.local.log.head();
                    assert!(
                        peer.acked <= head,
                        "{}: {osd} is said to have {}, its log ends at {head}",
                        group.id(),
                        peer.acked
                    );
                }
            }
        }
    }

    fn is_clean(&self) -> bool {
        let map = &self.oracle.map;
        map.pgs.iter().all(|(pg, record)| {
            record.acting.len() >= usize::from(self.plan.size)
                && record.primary().is_some_and(|osd| self.pg_is_clean(osd, *pg, record.since))
        })
    }

    fn pg_is_clean(&self, osd: OsdId, pg: PgId, since: Epoch) -> bool {
        let role = self.nodes[&osd].role.as_ref();
        let group = role.and_then(|role| role.pgs().find(|group| group.id() == pg));
        group.is_some_and(|group| group.interval.since == since && group.is_clean())
    }

    fn unclean(&self) -> String {
        let mut lines = String::new();
        for (pg, record) in &self.oracle.map.pgs {
            if record.primary().is_some_and(|osd| self.pg_is_clean(osd, *pg, record.since)) {
                continue;
            }
            let primary = record.primary().and_then(|osd| self.nodes[&osd].role.as_ref());
            let group = primary.and_then(|role| role.pgs().find(|group| group.id() == *pg));
            let state = group.map(|group| {
                let phase = group.as_primary().map(|primary| format!("{:?}", primary.phase));
                let peers = group.as_primary().map(|p| {
                    p.peers
                        .iter()
                        .map(|(o, s)| format!("{o}: missing {} backfill {:?}", s.missing.len(), s.backfill.is_some()))
                        .collect::<Vec<_>>()
                });
                format!(
                    "since {} {phase:?} missing {:?} peers {peers:?}",
                    group.interval.since,
                    group.local.missing.keys().collect::<Vec<_>>()
                )
            });
            lines += &format!(
                "\n  {pg} since {} up {:?} acting {:?} temporary {:?} activated {:?}: {state:?}",
                record.since, record.up, record.acting, record.temporary, record.activated
            );
        }
        for (osd, node) in &self.nodes {
            let info = &self.oracle.map.osds[osd];
            let role = node.role.as_ref().map(|role| (role.instance(), role.epoch(), role.is_live()));
            lines +=
                &format!("\n  {osd}: map up {} {} weight {:?}; role {role:?}", info.up, info.instance, info.weight);
        }
        for client in &self.clients {
            for blocked in client.role.blocked(Time::MAX, Duration::ZERO) {
                lines += &format!("\n  {}: {}", client.role.id(), blocked.reason);
            }
        }
        lines
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::ToOsd { osd, life, input } => self.hand_to(osd, life, input),
            Event::StaleAct { osd, life, local, input } => {
                if self.nodes[&osd].life == life {
                    self.act(osd, local, input);
                }
            }
            Event::Commit { osd, life, count } => self.commit(osd, life, count),
            Event::ToClient { client, from, epoch, message } => {
                let local = Time(self.now);
                self.clients[client].role.on_message(local, from, epoch, message);
                self.flush_client(client);
            }
            Event::WakeClient(client) => {
                if self.client_wake[client] > self.now {
                    return;
                }
                self.client_wake[client] = u64::MAX;
                let local = Time(self.now);
                if self.clients[client].role.next_deadline() <= local {
                    self.clients[client].role.on_tick(local);
                }
                self.flush_client(client);
            }
            Event::ToOracle { from, message } => {
                let reply = self.oracle.on_message(&message);
                if let Some(reply) = reply {
                    let epoch = self.oracle.map.epoch;
                    self.send(MON, from, epoch, reply);
                }
                if self.oracle.has_pending() {
                    let delay = self.rng.between(MS / 2, if self.faults { 20 * MS } else { 3 * MS });
                    self.push(self.now + delay, Event::OracleCommit);
                }
            }
            Event::OracleCommit => self.oracle_commit(),
            Event::Fault => self.fault(),
            Event::Restart(osd) => self.restart(osd),
            Event::Heal(cut) => {
                self.cuts.remove(&cut);
            }
            Event::EndOfFaults => self.end_of_faults(),
            Event::EndOfWork => {
                for client in &mut self.clients {
                    client.finished = true;
                }
            }
        }
    }

    // ── daemons ───────────────────────────────────────────────────────────────────────────────────────────────────

    fn restart(&mut self, osd: OsdId) {
        let plan = self.plan.clone();
        let now = self.now;
        let node = self.nodes.get_mut(&osd).expect("a node per OSD");
        if node.role.is_some() {
            return;
        }
        node.life += 1;
        node.busy_until = 0;
        node.wake = u64::MAX;
        node.committing = false;
        let limits = Limits {
            log_entries_min: plan.log.0,
            log_entries_max: plan.log.1,
            recovery_objects: 3,
            push_bytes: 4096,
            scan_objects: 5,
            contexts: 8,
            ..Limits::default()
        };
        let config = OsdConfig {
            id: osd,
            instance: Instance(node.life << 16),
            store: u128::from(osd.0) + 1,
            address: Address(format!("sim:{osd}")),
            class: String::new(),
            host: format!("host{}", osd.0),
            capacity: 1 << 40,
            timing: Timing::default(),
            limits,
        };
        let mut out = Vec::new();
        let local = node.local(now);
        node.role = Some(Osd::open(config, local, &mut out));
        self.note(|| format!("{osd} starts"));
        self.perform(osd, out);
    }

    fn crash(&mut self, osd: OsdId) {
        let node = self.nodes.get_mut(&osd).expect("a node per OSD");
        if node.role.take().is_none() {
            return;
        }
        let lucky = self.rng.below(node.store.uncommitted() as u64 + 1) as usize;
        let store = std::mem::replace(&mut node.store, RamStore::new());
        node.store = store.crash(lucky);
        node.life += 1;
        self.crashes += 1;
        self.note(|| format!("{osd} crashes, {lucky} unflushed transactions survive"));
    }

    fn hand_to(&mut self, osd: OsdId, life: u64, input: Input) {
        let now = self.now;
        let node = self.nodes.get_mut(&osd).expect("a node per OSD");
        if node.life != life || node.role.is_none() {
            return;
        }
        if node.busy_until > now {
            let at = node.busy_until;
            self.push(at, Event::ToOsd { osd, life, input });
            return;
        }
        let local = node.local(now);
        if let Input::Tick = input {
            // An earlier one was asked for since.
            if node.wake > now {
                return;
            }
            node.wake = u64::MAX;
        }
        if self.faults && self.rng.one_in(3000) {
            let pause = self.rng.between(MS, 3 * SECOND);
            self.nodes.get_mut(&osd).expect("still").busy_until = now + pause;
            self.note(|| format!("{osd} reads its clock and stands still for {} ms", pause / MS));
            self.push(now + pause, Event::StaleAct { osd, life, local, input });
            return;
        }
        self.act(osd, local, input);
    }

    fn act(&mut self, osd: OsdId, local: Time, input: Input) {
        let node = self.nodes.get_mut(&osd).expect("a node per OSD");
        let Some(role) = &mut node.role else { return };
        let mut out = Vec::new();
        match input {
            Input::Message { from, epoch, message } => role.on_message(local, from, epoch, message, &mut out),
            Input::Tick => {
                if role.next_deadline() <= local {
                    role.on_tick(local, &mut out);
                }
            }
            Input::Refused(peer) => role.on_peer_refused(local, peer, &mut out),
        }
        self.perform(osd, out);
    }

    fn perform(&mut self, osd: OsdId, mut out: Vec<Output>) {
        let mut rounds = 0;
        loop {
            rounds += 1;
            assert!(rounds < 5000, "{osd} asks its store without end; now for {:?}", out.first());
            self.outputs(osd, out);
            let now = self.now;
            let node = self.nodes.get_mut(&osd).expect("a node per OSD");
            node.store.kick();
            let mut events = Vec::new();
            node.store.poll(&mut events);
            let local = node.local(now);
            let Some(role) = &mut node.role else { return };
            out = Vec::new();
            for event in events {
                role.on_store(local, event, &mut out);
            }
            if out.is_empty() {
                break;
            }
        }
        self.schedule(osd);
    }

    fn schedule(&mut self, osd: OsdId) {
        let now = self.now;
        let node = self.nodes.get_mut(&osd).expect("a node per OSD");
        let Some(role) = &node.role else { return };
        let life = node.life;
        let at = node.global(role.next_deadline(), now).max(now + 1000);
        let wake = at < node.wake;
        if wake {
            node.wake = at;
        }
        let count = node.store.uncommitted();
        let commit = count > 0 && !node.committing;
        node.committing |= commit;
        let slow = node.slow_until > now;
        if wake {
            self.push(at, Event::ToOsd { osd, life, input: Input::Tick });
        }
        if commit {
            let latency = if slow { self.rng.between(20 * MS, 1500 * MS) } else { self.rng.between(MS / 10, 2 * MS) };
            self.push(now + latency, Event::Commit { osd, life, count });
        }
    }

    fn commit(&mut self, osd: OsdId, life: u64, count: usize) {
        let now = self.now;
        let node = self.nodes.get_mut(&osd).expect("a node per OSD");
        if node.life != life {
            return;
        }
        if node.busy_until > now {
            let at = node.busy_until;
            self.push(at, Event::Commit { osd, life, count });
            return;
        }
        node.store.commit(count);
        node.committing = false;
        self.perform(osd, Vec::new());
    }

    fn outputs(&mut self, osd: OsdId, out: Vec<Output>) {
        for output in out {
            let node = self.nodes.get_mut(&osd).expect("a node per OSD");
            let epoch = node.role.as_ref().map_or(Epoch::NONE, Osd::epoch);
            match output {
                Output::Send { to, message, before } => {
                    // The host looks at the clock once more as it lets the reply go.
                    if before.is_none_or(|before| node.local(self.now) <= before) {
                        self.send(Entity::Osd(osd), to, epoch, message);
                    }
                }
                Output::SendMon { message } => self.send(Entity::Osd(osd), MON, epoch, message),
                Output::Submit { transaction, token } => {
                    node.store.submit(transaction, token).expect("RAM stores are large and take everything valid");
                }
                Output::Read { read, token } => node.store.read(read, token),
                Output::Halt { why } => panic!("{osd} halts: {why}"),
            }
        }
    }

    // ── clients and oracle ────────────────────────────────────────────────────────────────────────────────────────

    fn flush_client(&mut self, index: usize) {
        let local = Time(self.now);
        self.clients[index].advance(self.now, local, &mut self.work, &mut self.rng);
        let client = &mut self.clients[index];
        let mut out = Vec::new();
        client.role.take_outputs(&mut out);
        let (id, epoch) = (Entity::Client(client.role.id()), client.role.epoch());
        let wake = client.next_at().min(client.role.next_deadline().0);
        for output in out {
            match output {
                ClientOutput::Send { to, message } => self.send(id, Entity::Osd(to), epoch, message),
                ClientOutput::SendMon { message } => self.send(id, MON, epoch, message),
                ClientOutput::Halt { why } => panic!("{id} halts: {why}"),
            }
        }
        if wake < self.client_wake[index] {
            self.client_wake[index] = wake;
            self.push(wake, Event::WakeClient(index));
        }
    }

    fn oracle_commit(&mut self) {
        let Some(message) = self.oracle.commit() else { return };
        let epoch = self.oracle.map.epoch;
        self.note(|| format!("epoch {epoch}"));
        let everybody: Vec<Entity> = self
            .nodes
            .keys()
            .map(|osd| Entity::Osd(*osd))
            .chain(self.clients.iter().map(|client| Entity::Client(client.role.id())))
            .collect();
        for entity in everybody {
            // Monitors tell some; the others hear from each other.
            if !self.faults || !self.rng.one_in(3) {
                self.send(MON, entity, epoch, message.clone());
            }
        }
    }

    // ── network ───────────────────────────────────────────────────────────────────────────────────────────────────

    fn send(&mut self, from: Entity, to: Entity, epoch: Epoch, message: Message) {
        if self.cuts.values().any(|cut| cut.contains(&(from, to))) {
            return;
        }
        let bad = self.faults && self.plan.bad_network;
        let peers = matches!((from, to), (Entity::Osd(_), Entity::Osd(_)));
        if bad && self.rng.one_in(if peers { 60 } else { 300 }) {
            return;
        }
        let mut delay = self.rng.between(20_000, 200_000);
        if bad && self.rng.one_in(50) {
            delay += self.rng.below(if self.rng.clone().one_in(4) { 2 * SECOND } else { 50 * MS });
        }
        let overtakes = bad && peers && self.rng.one_in(20);
        let mut at = self.now + delay;
        if !overtakes {
            let last = self.fifo.entry((from, to)).or_insert(0);
            at = at.max(*last + 1);
            *last = at;
        }
        // What arrives is what was written: every message goes through its bytes.
        let mut meta = Vec::new();
        message.put_meta(&mut meta);
        self.digest.update(&meta);
        let (kind, _, compat) = message.kind();
        let payload: Payload = message.payload().to_vec();
        let message = Message::decode(kind, compat, &meta, payload).expect("what was encoded decodes");
        if bad && self.rng.one_in(100) {
            let again = at + self.rng.below(3 * SECOND);
            self.deliver(again, from, to, epoch, message.clone());
        }
        self.deliver(at, from, to, epoch, message);
    }

    fn deliver(&mut self, at: u64, from: Entity, to: Entity, epoch: Epoch, message: Message) {
        match to {
            Entity::Osd(osd) => {
                let node = &self.nodes[&osd];
                let life = node.life;
                if node.role.is_some() {
                    self.push(at, Event::ToOsd { osd, life, input: Input::Message { from, epoch, message } });
                } else if let Entity::Osd(sender) = from {
                    let life = self.nodes[&sender].life;
                    self.push(at, Event::ToOsd { osd: sender, life, input: Input::Refused(osd) });
                }
            }
            Entity::Client(id) => {
                let client = self.clients.iter().position(|client| client.role.id() == id).expect("clients stay");
                self.push(at, Event::ToClient { client, from, epoch, message });
            }
            Entity::Mon(_) => self.push(at, Event::ToOracle { from, message }),
        }
    }

    // ── faults ────────────────────────────────────────────────────────────────────────────────────────────────────

    fn fault(&mut self) {
        if !self.faults {
            return;
        }
        let every = self.plan.fault_every_ns;
        let next = self.now + self.rng.between(every / 4, every * 2);
        self.push(next, Event::Fault);
        let osd = OsdId(self.rng.below(u64::from(self.plan.osds)) as u32);
        match self.rng.below(18) {
            0..=3 => {
                self.crash(osd);
                let after = self.rng.between(50 * MS, if self.rng.clone().one_in(3) { 8 * SECOND } else { 2 * SECOND });
                self.push(self.now + after, Event::Restart(osd));
            }
            // Everybody at once: only what is on the disks remains.
            4 => {
                for osd in self.nodes.keys().copied().collect::<Vec<_>>() {
                    self.crash(osd);
                    let after = self.rng.between(50 * MS, 3 * SECOND);
                    self.push(self.now + after, Event::Restart(osd));
                }
            }
            16 | 17 => self.depose(),
            5 | 6 => {
                let pause = self.rng.between(100 * MS, 4 * SECOND);
                let until = self.now + pause;
                let node = self.nodes.get_mut(&osd).expect("a node per OSD");
                node.busy_until = node.busy_until.max(until);
                self.note(|| format!("{osd} is stopped for {} ms", pause / MS));
            }
            7 | 8 => self.partition(true),
            9 => self.partition(false),
            10 => {
                let until = self.now + self.rng.between(SECOND, 5 * SECOND);
                self.nodes.get_mut(&osd).expect("a node per OSD").slow_until = until;
                self.note(|| format!("{osd}'s disk is slow"));
            }
            11 => {
                self.oracle.accuse(osd);
                self.note(|| format!("{osd} is marked down for no reason"));
                self.push(self.now + MS, Event::OracleCommit);
            }
            12 | 13 => {
                let weight = *self.rng.pick(&[Weight::OUT, Weight::OUT, Weight::IN, Weight(0x8000)]);
                self.oracle.propose(Change::OsdWeight { osd, weight, automatic: false });
                self.note(|| format!("{osd} gets weight {weight:?}"));
                self.push(self.now + MS, Event::OracleCommit);
            }
            14 if self.splits_left > 0 => {
                self.splits_left -= 1;
                self.oracle.split();
                self.note(|| "groups split".to_owned());
                self.push(self.now + MS, Event::OracleCommit);
            }
            _ => {
                for osd in self.nodes.keys().copied().collect::<Vec<_>>() {
                    self.oracle.propose(Change::OsdWeight { osd, weight: Weight::IN, automatic: false });
                }
                self.push(self.now + MS, Event::OracleCommit);
            }
        }
    }

    /// Takes a group from its primary while that cannot hear of it, and some clients cannot either; its members start anew at once.
    /// What the old primary may still say, and for how long, is what leases are about.
    fn depose(&mut self) {
        let groups: Vec<PgId> = self.oracle.groups().collect();
        let pg = *self.rng.pick(&groups);
        let acting = self.oracle.map.pgs[&pg].acting.clone();
        let Some(primary) = acting.first().copied() else { return };
        let mut alone: BTreeSet<Entity> = BTreeSet::from([Entity::Osd(primary)]);
        for client in &self.clients {
            if self.rng.one_in(2) {
                alone.insert(Entity::Client(client.role.id()));
            }
        }
        let others: Vec<Entity> = self
            .nodes
            .keys()
            .map(|osd| Entity::Osd(*osd))
            .chain(self.clients.iter().map(|client| Entity::Client(client.role.id())))
            .chain([MON])
            .filter(|entity| !alone.contains(entity))
            .collect();
        let both = others.iter().flat_map(|a| alone.iter().map(|b| (*a, *b)));
        let cut = both.flat_map(|(a, b)| [(a, b), (b, a)]).collect();
        let id = self.next_cut;
        self.next_cut += 1;
        self.cuts.insert(id, cut);
        let until = self.now + self.rng.between(100 * MS, 3 * SECOND);
        self.push(until, Event::Heal(id));
        self.note(|| format!("{primary} is deposed from {pg} and does not hear of it"));
        self.oracle.accuse(primary);
        self.push(self.now + MS, Event::OracleCommit);
        for osd in acting.into_iter().skip(1) {
            if self.rng.one_in(2) {
                self.crash(osd);
                let after = self.rng.between(MS, 60 * MS);
                self.push(self.now + after, Event::Restart(osd));
            }
        }
    }

    /// Cuts some entities off from the others; in one direction only unless `both`.
    fn partition(&mut self, both: bool) {
        let everybody: Vec<Entity> = self
            .nodes
            .keys()
            .map(|osd| Entity::Osd(*osd))
            .chain(self.clients.iter().map(|client| Entity::Client(client.role.id())))
            .chain([MON])
            .collect();
        let side: Vec<bool> = everybody.iter().map(|_| self.rng.one_in(3)).collect();
        let mut cut = BTreeSet::new();
        for (a, left) in everybody.iter().zip(&side) {
            for (b, right) in everybody.iter().zip(&side) {
                if *left && !*right {
                    cut.insert((*a, *b));
                    if both {
                        cut.insert((*b, *a));
                    }
                }
            }
        }
        self.note(|| {
            format!(
                "cut ({}) around {:?}",
                if both { "both ways" } else { "one way" },
                everybody.iter().zip(&side).filter(|(_, s)| **s).map(|(e, _)| e.to_string()).collect::<Vec<_>>()
            )
        });
        let id = self.next_cut;
        self.next_cut += 1;
        self.cuts.insert(id, cut);
        let until = self.now + self.rng.between(200 * MS, 5 * SECOND);
        self.push(until, Event::Heal(id));
    }

    fn end_of_faults(&mut self) {
        self.note(|| "all faults end".to_owned());
        self.faults = false;
        self.cuts.clear();
        for osd in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.nodes.get_mut(&osd).expect("a node per OSD").slow_until = 0;
            self.oracle.propose(Change::OsdWeight { osd, weight: Weight::IN, automatic: false });
            let at = self.now + self.rng.below(SECOND);
            self.push(at, Event::Restart(osd));
        }
        self.push(self.now + MS, Event::OracleCommit);
        self.push(self.now + 3 * SECOND, Event::EndOfWork);
    }
}
