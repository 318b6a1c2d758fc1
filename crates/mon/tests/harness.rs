//! A deterministic world: monitors, their stores, and a network that loses, repeats, reorders and
//! partitions.
//!
//! ```text
//!  Mon ──Send──▶ net (delay, loss, repetition, cuts) ──▶ Mon | inbox of the test's own entities
//!   └──Submit──▶ RamStore (commits after `disk`; a crash loses what was not committed)
//! ```
//! After every event each monitor's `check()` runs, and the world compares: never two digests for
//! one epoch, never two states after one entry of the log. A monitor's snapshot is its whole state,
//! and its map messages bring a client up to the monitor's own epoch.

use nacre_mon::meta::programs::Programs;
use nacre_mon::meta::scripts::Scripts;
use nacre_mon::{Founding, Mon, MonConfig};
use nacre_role::{Output, Role as _};
use nacre_store::ram::Commits;
use nacre_store::{Event, ObjectStore, RamStore, Token};
use nacre_types::{ClientId, ClusterId, Entity, Epoch, Instance, MonId, OsdId, SplitMix64, Time};
use nacre_wire::codec::Wire;
use nacre_wire::map::{Address, ClusterMap, Digest, MapDelta};
use nacre_wire::msg::Message;
use nacre_wire::msg::monitor::{Beacon, Boot, Command, FailureReport, Subscribe};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub const CLUSTER: ClusterId = ClusterId(0xc1a5);
pub const CLIENT: Entity = Entity::Client(ClientId(1));

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The world's random numbers.
pub struct Dice(SplitMix64);
impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64(seed))
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.0.below(n.max(1))
    }
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Number of log entries between comparisons of whole states.
const LOOKED_AT_EVERY: u64 = 8;

/// The epoch that a follower of the map reaches with this message.
fn newest_in(message: &Message) -> Option<Epoch> {
    match message {
        Message::MapFull(full) => Some(ClusterMap::from_bytes(&full.map).expect("a map").epoch),
        Message::MapDeltas(news) => Some(
            MapDelta::from_bytes(news.deltas.last()?)
                .expect("a delta")
                .epoch,
        ),
        _ => None,
    }
}

#[derive(Clone)]
#[allow(clippy::large_enum_variant, reason = "few exist at a time")]
enum What {
    Deliver {
        from: Entity,
        to: Entity,
        epoch: Epoch,
        message: Message,
    },
    /// Everything submitted so far reaches the disk.
    Disk {
        mon: MonId,
        life: u64,
    },
    Tick {
        mon: MonId,
        life: u64,
    },
}

pub struct Node {
    pub mon: Mon,
    pub store: RamStore,
    pub life: u64,
    pub up: bool,
    pub paused: bool,
    /// Its disk accepts writes and never answers.
    pub stuck_disk: bool,
    pub halted: Option<String>,
    pub logged: Vec<String>,
    /// The log entry of the last comparison of its state.
    looked_at: u64,
    next_tick: Option<Time>,
}

pub struct World {
    pub now: Time,
    pub dice: Dice,
    pub nodes: BTreeMap<MonId, Node>,
    queue: BTreeMap<(Time, u64), What>,
    sequence: u64,
    /// Percentages of messages lost and repeated.
    pub loss: u64,
    pub repeats: u64,
    /// Bounds of a message's delay.
    pub delay: (Duration, Duration),
    /// Time of a log write with its flush.
    pub disk: Duration,
    /// The same for single monitors.
    pub disk_of: BTreeMap<MonId, Duration>,
    /// Pairs that do not hear each other.
    pub cuts: BTreeSet<(Entity, Entity)>,
    /// Messages received by the test's entities.
    pub inbox: Vec<(Time, Entity, Entity, Message)>,
    /// All events, as bytes; for comparing two runs.
    pub trace: Vec<u8>,
    pub tracing: bool,
    digests: BTreeMap<Epoch, Digest>,
    /// Digests of monitors' whole states after some log entries.
    states: BTreeMap<u64, [u8; 32]>,
    pub messages_between_mons: u64,
    /// Disables the checks after each step: they read the whole map.
    pub unchecked: bool,
    /// The longest step of a monitor, for display.
    pub slowest: Duration,
    pub submits: u64,
    tokens: u64,
    programs: fn() -> Box<dyn Programs>,
    seed: u64,
}

impl World {
    /// A cluster of `n` monitors with an empty state.
    pub fn found(n: u32, seed: u64) -> Self {
        Self::found_with(n, seed, || Box::<Scripts>::default())
    }

    /// The same with programs for metadata.
    pub fn found_with(n: u32, seed: u64, programs: fn() -> Box<dyn Programs>) -> Self {
        let mut world = Self {
            now: Time(1_000_000_000),
            dice: Dice::new(seed),
            nodes: BTreeMap::new(),
            queue: BTreeMap::new(),
            sequence: 0,
            loss: 0,
            repeats: 0,
            delay: (Duration::from_micros(100), Duration::from_micros(300)),
            disk: ms(1),
            disk_of: BTreeMap::new(),
            cuts: BTreeSet::new(),
            inbox: Vec::new(),
            trace: Vec::new(),
            tracing: false,
            digests: BTreeMap::new(),
            states: BTreeMap::new(),
            messages_between_mons: 0,
            unchecked: false,
            slowest: Duration::ZERO,
            submits: 0,
            tokens: 0,
            programs,
            seed,
        };
        let mons = (0..n)
            .map(|id| (MonId(id), Address(format!("m{id}:1"))))
            .collect();
        let founding = Founding {
            cluster: CLUSTER,
            mons,
            changes: Vec::new(),
        };
        for id in 0..n {
            let mut store = RamStore::with(Commits::Manual, u64::MAX);
            store
                .submit(Mon::bootstrap(MonId(id), &founding), Token(0))
                .expect("an empty store takes it");
            store.commit(1);
            world.start(MonId(id), store, 1);
        }
        world
    }

    /// Adds a machine with a monitor that waits to join, whose store has that number.
    pub fn add_joining(&mut self, id: u32, number: u64) {
        let mut store = RamStore::with(Commits::Manual, u64::MAX);
        store
            .submit(Mon::bootstrap_joining(MonId(id), number, CLUSTER), Token(0))
            .expect("an empty store takes it");
        store.commit(1);
        self.start(MonId(id), store, 1);
    }

    fn start(&mut self, id: MonId, store: RamStore, life: u64) {
        let mut store = store;
        store.poll(&mut Vec::new());
        let config = MonConfig::new(id, CLUSTER, self.seed ^ u64::from(id.0));
        let mut out = Vec::new();
        let mon = Mon::open_with(config, (self.programs)(), self.now, &mut out);
        let node = Node {
            mon,
            store,
            life,
            up: true,
            paused: false,
            stuck_disk: false,
            halted: None,
            logged: Vec::new(),
            looked_at: 0,
            next_tick: None,
        };
        self.nodes.insert(id, node);
        self.perform(id, out);
    }

    fn at(&mut self, when: Time, what: What) {
        self.sequence += 1;
        self.queue.insert((when, self.sequence), what);
    }

    fn perform(&mut self, id: MonId, out: Vec<Output>) {
        let mut more = out;
        let mut brought: BTreeMap<Entity, Epoch> = BTreeMap::new();
        while !more.is_empty() {
            let outputs = std::mem::take(&mut more);
            for output in outputs {
                let node = self.nodes.get_mut(&id).expect("exists");
                match output {
                    Output::Send { to, message, .. } => {
                        let epoch = node.mon.epoch();
                        if !self.unchecked
                            && let Some(newest) = newest_in(&message)
                        {
                            brought.insert(to, newest);
                        }
                        self.send(Entity::Mon(id), to, epoch, message);
                    }
                    Output::Submit { transaction, token } => {
                        if self.tracing {
                            self.trace.extend_from_slice(
                                format!("{id} {token:?} {transaction:?}").as_bytes(),
                            );
                        }
                        node.store
                            .submit(transaction, token)
                            .expect("the store takes it");
                        let life = node.life;
                        self.submits += 1;
                        let when = self.now + self.disk_of.get(&id).copied().unwrap_or(self.disk);
                        self.at(when, What::Disk { mon: id, life });
                    }
                    Output::Read { read, token } => {
                        node.store.read(read, token);
                        let mut events = Vec::new();
                        node.store.poll(&mut events);
                        for event in events {
                            if matches!(event, Event::Read(..)) {
                                node.mon.on_store(self.now, event, &mut more);
                            }
                        }
                    }
                    Output::Say(line) => node.logged.push(line),
                    Output::Halt { why } => node.halted = Some(why),
                    Output::Meet { .. } | Output::SendMon { .. } | Output::Run(_) => {
                        unreachable!("a monitor does without")
                    }
                }
            }
        }
        let node = &self.nodes[&id];
        for (who, epoch) in brought
            .iter()
            .filter(|(who, _)| node.mon.is_live() && matches!(who, Entity::Client(_)))
        {
            assert_eq!(
                *epoch,
                node.mon.epoch(),
                "{id} sends {who} maps, and not the newest"
            );
        }
        self.after(id);
    }

    fn after(&mut self, id: MonId) {
        let node = self.nodes.get_mut(&id).expect("exists");
        if !self.unchecked {
            node.mon.check();
            let applied = node.mon.log_bounds().2;
            if applied / LOOKED_AT_EVERY != node.looked_at / LOOKED_AT_EVERY
                && let Some(state) = node.mon.state()
            {
                node.looked_at = applied;
                state.check_image();
                let digest = *blake3::hash(&state.to_image()).as_bytes();
                let known = *self.states.entry(applied).or_insert(digest);
                assert_eq!(
                    known, digest,
                    "{id} has another state than others after entry {applied}"
                );
            }
        }
        let (epoch, digest) = (node.mon.epoch(), node.mon.map().digest);
        if epoch > Epoch::NONE {
            let known = *self.digests.entry(epoch).or_insert(digest);
            assert_eq!(known, digest, "two different maps of {epoch}");
        }
        let deadline = node.mon.next_deadline();
        if deadline < Time::MAX
            && node
                .next_tick
                .is_none_or(|at| at > deadline || at <= self.now)
        {
            node.next_tick = Some(deadline);
            let life = node.life;
            let when = deadline.max(self.now + Duration::from_nanos(1));
            self.at(when, What::Tick { mon: id, life });
        }
    }

    pub fn send(&mut self, from: Entity, to: Entity, epoch: Epoch, message: Message) {
        if self.tracing {
            let mut meta = Vec::new();
            message.put_meta(&mut meta);
            self.trace.extend_from_slice(
                format!("{} {from} {to} {epoch} {}", self.now, message.name()).as_bytes(),
            );
            self.trace.extend_from_slice(&meta);
        }
        if matches!((from, to), (Entity::Mon(_), Entity::Mon(_))) {
            self.messages_between_mons += 1;
        }
        let mut copies = 1;
        // A client's connection loses nothing while it exists.
        if matches!((from, to), (Entity::Mon(_), Entity::Mon(_))) {
            if self.dice.chance(self.loss) {
                copies -= 1;
            }
            if self.dice.chance(self.repeats) {
                copies += 1;
            }
        }
        for _ in 0..copies {
            let (low, high) = self.delay;
            let spread = u64::try_from((high - low).as_nanos()).expect("small");
            let when = self.now + low + Duration::from_nanos(self.dice.below(spread.max(1)));
            self.at(
                when,
                What::Deliver {
                    from,
                    to,
                    epoch,
                    message: message.clone(),
                },
            );
        }
    }

    #[allow(clippy::disallowed_methods, reason = "for figures only")]
    fn step(&mut self) -> bool {
        let begun = std::time::Instant::now();
        let any = self.step_untimed();
        self.slowest = self.slowest.max(begun.elapsed());
        any
    }

    fn step_untimed(&mut self) -> bool {
        let Some((&key, _)) = self.queue.first_key_value() else {
            return false;
        };
        let what = self.queue.remove(&key).expect("just seen");
        self.now = self.now.max(key.0);
        match what {
            What::Deliver {
                from,
                to,
                epoch,
                message,
            } => {
                if self.cuts.contains(&(from, to)) {
                    return true;
                }
                match to {
                    Entity::Mon(id) => {
                        let now = self.now;
                        let Some(node) = self.nodes.get_mut(&id) else {
                            return true;
                        };
                        if node.paused {
                            // A stopped process reads its sockets later.
                            self.at(
                                now + ms(1),
                                What::Deliver {
                                    from,
                                    to,
                                    epoch,
                                    message,
                                },
                            );
                            return true;
                        }
                        if !node.up || node.halted.is_some() {
                            return true;
                        }
                        let mut out = Vec::new();
                        node.mon.on_message(now, from, epoch, message, &mut out);
                        self.perform(id, out);
                    }
                    _ => self.inbox.push((self.now, from, to, message)),
                }
            }
            What::Disk { mon, life } => {
                let now = self.now;
                let Some(node) = self.nodes.get_mut(&mon) else {
                    return true;
                };
                if !node.up || node.life != life {
                    return true;
                }
                if node.paused || node.stuck_disk {
                    self.at(now + ms(1), What::Disk { mon, life });
                    return true;
                }
                node.store.commit(1);
                let mut events = Vec::new();
                node.store.poll(&mut events);
                let mut out = Vec::new();
                for event in events {
                    if matches!(event, Event::Committed(_)) {
                        node.mon.on_store(now, event, &mut out);
                    }
                }
                self.perform(mon, out);
            }
            What::Tick { mon, life } => {
                let now = self.now;
                let Some(node) = self.nodes.get_mut(&mon) else {
                    return true;
                };
                if !node.up || node.life != life || node.halted.is_some() {
                    return true;
                }
                if node.paused {
                    self.at(now + ms(1), What::Tick { mon, life });
                    return true;
                }
                let mut out = Vec::new();
                node.next_tick = None;
                node.mon.on_tick(now, &mut out);
                self.perform(mon, out);
            }
        }
        true
    }

    /// Runs for `span`.
    pub fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self
            .queue
            .first_key_value()
            .is_some_and(|(&(when, _), _)| when <= end)
        {
            self.step();
        }
        self.now = end;
    }

    /// Runs until it holds; returns the time. Panics after `limit`.
    pub fn until(
        &mut self,
        what: &str,
        limit: Duration,
        mut holds: impl FnMut(&Self) -> bool,
    ) -> Duration {
        let start = self.now;
        while !holds(self) {
            assert!(
                self.now.since(start) <= limit,
                "not within {limit:?}: {what}\n{}",
                self.describe()
            );
            assert!(self.step(), "nothing more happens: {what}");
        }
        self.now.since(start)
    }

    pub fn describe(&self) -> String {
        let one = |(id, node): (&MonId, &Node)| {
            format!(
                "{id} up {} paused {} leader {:?} leads {} epoch {} log {:?} voters {:?} halted {:?}\n",
                node.up,
                node.paused,
                node.mon.leader(),
                node.mon.is_leader(),
                node.mon.epoch(),
                node.mon.log_bounds(),
                node.mon.voters(),
                node.halted
            )
        };
        self.nodes.iter().map(one).collect()
    }

    /// The leader, if all can reach it.
    pub fn leader(&self) -> Option<MonId> {
        let leads = |node: &Node| node.up && !node.paused && node.mon.is_leader();
        self.nodes
            .iter()
            .filter(|(_, node)| leads(node))
            .max_by_key(|(_, node)| node.mon.log_bounds().1)
            .map(|(id, _)| *id)
    }

    pub fn elect(&mut self) -> MonId {
        self.until("a leader", Duration::from_secs(10), |world| {
            world.leader().is_some()
        });
        self.leader().expect("just seen")
    }

    pub fn mon(&self, id: MonId) -> &Mon {
        &self.nodes[&id].mon
    }
    pub fn map(&self, id: MonId) -> &ClusterMap {
        self.mon(id).map()
    }

    // ── faults ──────────────────────────────────────────────────────────────────────────

    /// kill -9 and a power cut in one: uncommitted transactions are lost, except for the `lucky`
    /// oldest ones.
    pub fn crash(&mut self, id: MonId) {
        self.nodes.get_mut(&id).expect("exists").up = false;
        for other in self
            .nodes
            .keys()
            .copied()
            .filter(|other| *other != id)
            .collect::<Vec<_>>()
        {
            self.disconnect(other, Entity::Mon(id));
        }
    }

    pub fn disconnect(&mut self, id: MonId, who: Entity) {
        let now = self.now;
        let node = self.nodes.get_mut(&id).expect("exists");
        if node.up && !node.paused && node.halted.is_none() {
            let mut out = Vec::new();
            node.mon.on_disconnect(now, who, &mut out);
            self.perform(id, out);
        }
    }

    pub fn restart(&mut self, id: MonId, lucky: usize) {
        let node = self.nodes.remove(&id).expect("exists");
        let store = node.store.crash(lucky);
        self.start(id, store, node.life + 1);
    }

    pub fn pause(&mut self, id: MonId) {
        self.nodes.get_mut(&id).expect("exists").paused = true;
    }
    pub fn resume(&mut self, id: MonId) {
        self.nodes.get_mut(&id).expect("exists").paused = false;
    }

    /// No entity of `a` hears one of `b`, nor the other way round.
    pub fn cut(&mut self, a: &[Entity], b: &[Entity]) {
        for x in a {
            for y in b {
                self.cuts.insert((*x, *y));
                self.cuts.insert((*y, *x));
            }
        }
    }
    pub fn isolate(&mut self, id: MonId) {
        let others: Vec<Entity> = self
            .nodes
            .keys()
            .filter(|other| **other != id)
            .map(|other| Entity::Mon(*other))
            .collect();
        self.cut(&[Entity::Mon(id)], &others);
    }
    pub fn heal(&mut self) {
        self.cuts.clear();
        (self.loss, self.repeats) = (0, 0);
        self.delay = (Duration::from_micros(100), Duration::from_micros(300));
    }

    // ── what the test's entities do ─────────────────────────────────────────────────────

    pub fn say(&mut self, from: Entity, to: MonId, epoch: Epoch, message: Message) {
        self.send(from, Entity::Mon(to), epoch, message);
    }

    /// A client sent a monitor its name when it connected.
    pub fn name(&mut self, id: MonId, who: Entity, name: &str) {
        self.nodes
            .get_mut(&id)
            .expect("exists")
            .mon
            .on_client_name(who, name.into());
    }

    /// The OSD's process asks to come up; it knows the instance before `instance`, so that is the
    /// one it is granted.
    pub fn boot_message(&self, osd: u32, instance: u64) -> Message {
        Message::Boot(Boot {
            osd: OsdId(osd),
            instance: Instance(instance - 1),
            address: Address(format!("o{osd}")),
            store: 5_000 + u128::from(osd),
            features: 0,
            class: "ssd".into(),
            capacity: 1 << 40,
            host: format!("host{osd}"),
            process: instance,
        })
    }

    /// Boots OSDs 0..n through any monitor and waits until the map says so.
    pub fn boot_osds(&mut self, n: u32) {
        let to = self.elect();
        for osd in 0..n {
            let boot = self.boot_message(osd, 1);
            self.say(Entity::Osd(OsdId(osd)), to, Epoch::NONE, boot);
        }
        self.until("the OSDs are up", Duration::from_secs(10), |world| {
            world.map(to).osds.values().filter(|info| info.up).count() >= n as usize
        });
    }

    /// A beacon of an OSD without PGs, with the current map.
    pub fn beacon(&mut self, to: MonId, osd: u32, used: u64) {
        self.beacon_with(to, osd, used, |_| {});
    }

    /// The same with further contents.
    pub fn beacon_with(
        &mut self,
        to: MonId,
        osd: u32,
        used: u64,
        change: impl FnOnce(&mut Beacon),
    ) {
        let Some(info) = self.map(to).osds.get(&OsdId(osd)) else {
            return;
        };
        let (instance, epoch) = (info.instance, self.map(to).epoch);
        let (osd, pgs, slow) = (OsdId(osd), Vec::new(), Vec::new());
        let mut beacon = Beacon {
            osd,
            instance,
            total: 1_000,
            used,
            pgs,
            all: true,
            slow,
            device: String::new(),
            space: String::new(),
            no_room: false,
        };
        change(&mut beacon);
        self.say(Entity::Osd(osd), to, epoch, Message::Beacon(beacon));
    }

    /// Runs for `span`, while every OSD that is up, except these, sends its beacon every two
    /// seconds through a running monitor.
    pub fn run_with_beacons(&mut self, span: Duration, but: &[u32]) {
        let end = self.now + span;
        while self.now < end {
            let runs = |node: &&Node| node.up && !node.paused;
            let via = self
                .nodes
                .iter()
                .find(|(_, node)| runs(node))
                .map(|(id, _)| *id);
            if let Some(via) = via {
                let up = self
                    .map(via)
                    .osds
                    .iter()
                    .filter(|(_, info)| info.up)
                    .map(|(osd, _)| osd.0);
                for osd in up.filter(|osd| !but.contains(osd)).collect::<Vec<_>>() {
                    self.beacon(via, osd, 0);
                }
            }
            self.run(ms(2_000).min(end.since(self.now)));
        }
    }

    pub fn report(&mut self, to: MonId, reporter: u32, target: u32, silent_ms: u64, refused: bool) {
        let newest = self
            .nodes
            .values()
            .max_by_key(|node| node.mon.epoch())
            .expect("monitors");
        let Some(info) = newest.mon.map().osds.get(&OsdId(target)) else {
            return;
        };
        let report = FailureReport {
            target: OsdId(target),
            instance: info.instance,
            reporter: OsdId(reporter),
            silent_ms,
            alive: false,
            refused,
            itself: false,
            stalled: false,
        };
        self.say(
            Entity::Osd(OsdId(reporter)),
            to,
            Epoch(1),
            Message::FailureReport(report),
        );
    }

    /// Sends a command without waiting; returns its token.
    pub fn ask(&mut self, from: Entity, to: MonId, request: &Value) -> u64 {
        self.tokens += 1;
        let command = Command {
            token: self.tokens,
            request: request.to_string(),
        };
        self.say(from, to, Epoch::NONE, Message::Command(command));
        self.tokens
    }

    pub fn reply_to(&self, token: u64) -> Option<Result<Value, String>> {
        self.inbox
            .iter()
            .find_map(|(_, _, _, message)| match message {
                Message::CommandReply(reply) if reply.token == token => Some(match &reply.error {
                    Some(error) => Err(error.clone()),
                    None => Ok(serde_json::from_str(&reply.reply).expect("replies are JSON")),
                }),
                _ => None,
            })
    }

    /// Sends a command and waits for its answer.
    pub fn command(&mut self, to: MonId, request: Value) -> Result<Value, String> {
        let token = self.ask(CLIENT, to, &request);
        self.until(
            &format!("an answer to {request}"),
            Duration::from_secs(20),
            |world| world.reply_to(token).is_some(),
        );
        self.reply_to(token).expect("just seen")
    }

    /// Makes `count` map changes, each one entry of the log.
    pub fn toggle_flag(&mut self, to: MonId, count: u64) {
        for round in 0..count {
            let command = if round % 2 == 0 {
                "flag set"
            } else {
                "flag unset"
            };
            self.command(to, json!({"command": command, "flag": "noout"}))
                .expect("done");
        }
    }
    /// Makes snapshots after this many entries.
    pub fn compact_after(&mut self, to: MonId, entries: u64) {
        let order =
            json!({"command": "config set", "key": "mon.compact_entries", "value": entries});
        self.command(to, order).expect("set");
    }

    pub fn subscribe(&mut self, from: Entity, to: MonId, have: &ClusterMap) {
        let ask = Subscribe {
            have: have.epoch,
            digest: have.digest,
            once: false,
        };
        self.say(from, to, have.epoch, Message::Subscribe(ask));
    }
}

/// A follower of the map, such as an OSD or client.
pub struct Follower {
    pub who: Entity,
    pub map: Option<ClusterMap>,
    pub refused: bool,
    read: usize,
}
impl Follower {
    pub fn new(who: Entity) -> Self {
        Self {
            who,
            map: None,
            refused: false,
            read: 0,
        }
    }
    /// Takes the messages that arrived since the last call.
    pub fn catch_up(&mut self, world: &World) {
        for (_, _, to, message) in &world.inbox[self.read..] {
            if *to != self.who {
                continue;
            }
            match message {
                Message::MapFull(full) => {
                    let map = ClusterMap::from_bytes(&full.map).expect("a map");
                    if self
                        .map
                        .as_ref()
                        .is_none_or(|known| known.epoch < map.epoch)
                    {
                        self.map = Some(map);
                    }
                }
                Message::MapDeltas(deltas) => {
                    for bytes in &deltas.deltas {
                        let delta = MapDelta::from_bytes(bytes).expect("a delta");
                        let map = self.map.as_mut().expect("deltas continue a map");
                        map.apply(&delta).expect("without gaps, of one history");
                    }
                }
                Message::Refused(_) => self.refused = true,
                _ => {}
            }
        }
        self.read = world.inbox.len();
    }
    pub fn epoch(&self) -> Epoch {
        self.map.as_ref().map_or(Epoch::NONE, |map| map.epoch)
    }
}
