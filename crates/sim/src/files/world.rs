//! The nodes, the network between them, faults, and delays.

use super::data::{Data, Diary};
use super::judge::Judge;
use super::kernel::Kernel;
use super::lazy::{Lazily, Slate};
use super::log::{Book, Log};
use super::programs::{self, Own};
use super::registry::Registry;
use super::relics::{Relic, Shown};
use super::repair::{Repairs, Step};
use super::tops::{self, Top};
use super::view::{Asked, Keys, Objects};
use crate::plan::{MS, SECOND};
use crate::rng::Rng;
use crate::schedule::Schedule;
use nacre_client::{
    Completion, Done, Failure, MetaDone, MetaId, MetaWatchId, OpId, Operation, Service, WatchNews,
};
use nacre_conformance::memory::Memory;
use nacre_fs::{Ask, CallId, Fs, FsConfig, LookAhead, State};
use nacre_history::posix::Kind;
use nacre_mds::mds::{MdsConfig, MdsLimits, first_objects};
use nacre_mds::server::{Server, ServerConfig};
use nacre_role::{Input, Output};
use nacre_types::{ClientId, Entity, Epoch, Ino, Instance, Name, PoolId, Rank, Time, Version};
use nacre_wire::fs::{FsHolder, FsKey, FsSettings, Layout, Stamp, name_hash};
use nacre_wire::map::Address;
use nacre_wire::msg::client::OpFailure;
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsListed};
use nacre_wire::msg::meta::{MetaCall, MetaOp, MetaResult};
use nacre_wire::{Message, Wire as _};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Time after the faults within which everything must be answered.
const HEALED: u64 = 120 * SECOND;
/// Time after which answers must be safe.
const SETTLE: u64 = 10 * SECOND;
/// The namespace of the file system's objects.
pub(super) const NAMESPACE: &str = "home.1";
pub(super) const METADATA: PoolId = PoolId(1);
/// How long a client waits for the end of its programs' calls.
const PATIENCE: Duration = Duration::from_secs(3);
/// Clients that take longer to leave, by their clocks, may not have sent everything.
const LEAVES_WITHIN: Duration = Duration::from_secs(5);
const DATA: PoolId = PoolId(2);
const NAME: &str = "home";

/// The results of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Digest over all events.
    pub digest: u128,
    /// Requests sent to servers.
    pub requests: u64,
    /// Batches of the journal.
    pub batches: u64,
    /// How often a rank was taken.
    pub takeovers: u64,
    /// Clients that died.
    pub deaths: u64,
    /// Clients that were evicted.
    pub evictions: u64,
    /// Steps of programs with files of their own.
    pub own: u64,
    /// Steps of programs with files that several write.
    pub data: u64,
    /// Steps of programs with a file to which all append.
    pub appends: u64,
    /// Steps of programs with a file written with lazy I/O.
    pub lazy: u64,
    /// Calls that were answered between two turns.
    pub at_once: u64,
    /// Names that clients created or removed themselves.
    pub here: u64,
    /// Calls that the kernel above a client answered from its loans.
    pub above: u64,
    /// Files with synchronized data whose clients died or were evicted.
    pub relics: u64,
    /// Clients that were told to stop, and sent everything first.
    pub left: u64,
    /// Name changes across several ranks.
    pub across: u64,
    /// How often a quota left no space for a file's data.
    pub refused: u64,
    /// Operations refused because the cluster was full.
    pub full: u64,
    /// Repairs while in use, and what they repaired.
    pub repairs: u64,
    /// Objects copied inside the cluster.
    pub copied: u64,
}

impl Report {
    /// Adds another run's results.
    pub fn add(&mut self, other: &Self) {
        self.digest ^= other.digest;
        self.requests += other.requests;
        self.batches += other.batches;
        self.takeovers += other.takeovers;
        self.deaths += other.deaths;
        self.evictions += other.evictions;
        self.own += other.own;
        self.data += other.data;
        self.appends += other.appends;
        self.lazy += other.lazy;
        self.at_once += other.at_once;
        self.here += other.here;
        self.above += other.above;
        self.relics += other.relics;
        self.left += other.left;
        self.across += other.across;
        self.refused += other.refused;
        self.full += other.full;
        self.repairs += other.repairs;
        self.copied += other.copied;
    }
}

#[allow(clippy::large_enum_variant, reason = "there are few")]
enum Role {
    Server(Box<Server>),
    Client {
        fs: Box<Fs>,
        kernel: Kernel,
        own: Own,
        data: Data,
        log: Log,
        lazily: Lazily,
        seen: programs::Seen,
        calls: BTreeSet<nacre_fs::CallId>,
    },
}

struct Node {
    id: ClientId,
    role: Role,
    objects: Objects,
    keys: Keys,
    inbox: VecDeque<Input>,
    /// Its clock: how far ahead it is, and its error in parts per million.
    ahead: u64,
    drift: i64,
    /// It is paused until then.
    still: u64,
    wake: u64,
    leaving: Leaving,
}

/// The progress of a client that is to stop; times are by its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    No,
    /// Since then, its programs begin nothing more.
    Ending(Time),
    /// When it was told to stop.
    Told(Time),
    /// It has sent everything.
    Gone,
}

#[derive(Debug)]
enum Event {
    Turn(ClientId),
    Deliver {
        to: ClientId,
        conn: u64,
        input: Input,
    },
    Send {
        from: ClientId,
        to: ClientId,
        message: Message,
        before: Option<Time>,
    },
    Execute {
        who: (ClientId, Instance),
        id: OpId,
        asked: Asked,
    },
    Ended {
        who: ClientId,
        completion: Completion,
    },
    Ask {
        who: ClientId,
        id: MetaId,
        call: MetaCall,
    },
    Answered {
        who: ClientId,
        done: MetaDone,
    },
    News {
        who: ClientId,
        watch: MetaWatchId,
        news: WatchNews,
    },
    Start(usize),
    Broken {
        who: ClientId,
        peer: ClientId,
        absent: bool,
    },
    Fault,
    /// The cluster is full for a while.
    Full,
    /// A repair continues or begins.
    Repair,
    /// A client and the rank's holder lose power at once.
    PowerCut(ClientId),
    /// A client that has left ends.
    End(ClientId),
    /// A silent connection breaks.
    Break((ClientId, ClientId)),
    /// A client pauses until then, and the rank's holder dies.
    Overtaken {
        who: ClientId,
        until: u64,
    },
    Expire,
    EndOfFaults,
    EndOfWork,
}

struct World {
    rng: Rng,
    schedule: Schedule<Event>,
    servers: usize,
    tops: Arc<[Top]>,
    slots: Vec<Option<ClientId>>,
    nodes: BTreeMap<ClientId, Node>,
    memory: Memory,
    /// The last fenced instance of each client.
    fenced: BTreeMap<ClientId, Instance>,
    /// The last instance of each client that was told, or would be, that others continue without
    /// it.
    evicted: BTreeMap<ClientId, Instance>,
    registry: Registry,
    /// The registry has no quorum until then.
    minority_until: u64,
    /// Objects are slow until then.
    slow_until: u64,
    conns: BTreeMap<(ClientId, ClientId), u64>,
    /// Whether the cluster is full at times in this run, and until when it is.
    fills: bool,
    full_until: u64,
    repairs: Repairs,
    /// Operations of these clients begun now are delayed until then.
    stalled: BTreeMap<ClientId, u64>,
    /// No messages between these until then.
    cuts: BTreeMap<(ClientId, ClientId), u64>,
    /// Silent connections that neither side has noticed yet.
    lost: BTreeSet<(ClientId, ClientId)>,
    /// Ordering: messages of a pair, operations of a client on an object.
    after: BTreeMap<(ClientId, Vec<u8>), u64>,
    judge: Judge,
    relics: Vec<Relic>,
    diary: Diary,
    book: Book,
    slate: Slate,
    /// Whether a file is written with lazy I/O in this run.
    lazy: bool,
    faults: bool,
    works: bool,
    /// Whether directories get quotas.
    bounds: bool,
    limits: MdsLimits,
    report: Report,
    digest: xxhash_rust::xxh3::Xxh3,
    next_life: u64,
    next_conn: u64,
    last_at_once: u64,
    verbose: bool,
}

/// Runs a seed to its end.
///
/// # Panics
/// With the finding.
#[must_use]
pub fn run(seed: u64, verbose: bool) -> Report {
    let mut world = World::new(seed, verbose);
    world.run();
    world.finish()
}

/// One in four runs is repaired occasionally.
const fn is_repaired(seed: u64) -> bool {
    seed % 4 == 3
}
/// Of the runs that are never full, one in two.
const fn is_lazy(seed: u64) -> bool {
    seed % 2 == 1 && !is_filled(seed)
}
/// Two in seven runs are full at times.
const fn is_filled(seed: u64) -> bool {
    matches!(seed % 7, 2 | 5)
}
pub(super) fn layout() -> Layout {
    Layout {
        pool: DATA,
        unit: 4096,
        count: 1,
        object: 8192,
    }
}
fn pair(one: ClientId, other: ClientId) -> (ClientId, ClientId) {
    (one.min(other), one.max(other))
}

impl World {
    fn new(seed: u64, verbose: bool) -> Self {
        let mut rng = Rng::new(seed);
        let (spare, clients) = (rng.between(1, 3) as usize, rng.between(2, 4) as usize);
        // One in three has several ranks.
        let ranks = [1, 1, 2, 1, 1, 3][seed as usize % 6];
        let servers = spare + usize::from(ranks) - 1;
        let limits = MdsLimits {
            journal_object_bytes: *rng.pick(&[400, 4_000, 100_000]),
            journal_objects_max: rng.between(4, 12),
            write_after: Duration::from_millis(*rng.pick(&[50, 500, 5_000])),
            entries_max: *rng.pick(&[6, 20, 1_000]),
            page: *rng.pick(&[1, 3, 1_000]),
            linger: Duration::from_millis(*rng.pick(&[0, 3, 50])),
        };
        let mut memory = Memory::default();
        let namespace = Name::from(NAMESPACE);
        let config = |rank| MdsConfig {
            rank,
            namespace: namespace.clone(),
            pool: METADATA,
            layout: layout(),
            unix_ms_at_zero: 1_000,
            limits,
        };
        for operation in (0..ranks).flat_map(|rank| first_objects(&config(Rank(rank)), Stamp(1))) {
            memory.perform(&operation).expect("it is new");
        }
        let tops = if ranks > 1 {
            tops::make(&mut memory, &namespace, ranks)
        } else {
            [Top {
                ino: Ino::ROOT,
                name: String::new(),
            }]
            .into()
        };
        let mut registry = Registry::default();
        let settings = FsSettings {
            namespace,
            pool: METADATA,
            layout: layout(),
            ranks,
        };
        let put = MetaOp::Put {
            key: FsKey::Settings.of(&NAME.into()),
            value: settings.to_bytes().into(),
            lease: 0,
        };
        let made = MetaCall::Transact {
            compares: Vec::new(),
            then: vec![put],
            otherwise: Vec::new(),
        };
        assert!(registry.ask(0, made).is_ok());
        registry.events.clear();
        let mut world = Self {
            rng,
            schedule: Schedule::default(),
            servers,
            slots: vec![None; servers + clients],
            nodes: BTreeMap::new(),
            memory,
            fenced: BTreeMap::new(),
            evicted: BTreeMap::new(),
            registry,
            minority_until: 0,
            slow_until: 0,
            fills: is_filled(seed),
            full_until: 0,
            repairs: Repairs::new(seed, NAME, ranks),
            conns: BTreeMap::new(),
            stalled: BTreeMap::new(),
            cuts: BTreeMap::new(),
            lost: BTreeSet::new(),
            after: BTreeMap::new(),
            judge: Judge::new(&tops, is_filled(seed)),
            tops,
            relics: Vec::new(),
            diary: Diary::default(),
            book: Book::default(),
            slate: Slate::default(),
            lazy: is_lazy(seed),
            faults: true,
            works: true,
            bounds: matches!(seed % 5, 1 | 3),
            limits,
            report: Report::default(),
            digest: xxhash_rust::xxh3::Xxh3::with_seed(0),
            next_life: 1,
            next_conn: 1,
            last_at_once: 0,
            verbose,
        };
        for slot in 0..servers + clients {
            let at = world.rng.below(100 * MS);
            world.schedule.push(at, Event::Start(slot));
        }
        world.schedule.push(SECOND, Event::Fault);
        world.schedule.push(100 * MS, Event::Expire);
        if world.fills {
            world.schedule.push(2 * SECOND, Event::Full);
        }
        if is_repaired(seed) {
            let at = world.repairs.next(0);
            world.schedule.push(at, Event::Repair);
        }
        let faults = world.rng.between(5, 40) * SECOND;
        world.schedule.push(faults, Event::EndOfFaults);
        world.schedule.push(faults + 5 * SECOND, Event::EndOfWork);
        world
    }

    fn note(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>12.6} {}", self.schedule.now as f64 / 1e9, text());
        }
    }

    fn run(&mut self) {
        let (mut limit, mut over) = (u64::MAX, None);
        while let Some((number, event)) = self.schedule.pop() {
            self.digest.update(&self.schedule.now.to_le_bytes());
            self.digest.update(&number.to_le_bytes());
            if matches!(event, Event::EndOfWork) {
                limit = self.schedule.now + HEALED;
            }
            self.handle(event);
            if !self.works && self.is_over() {
                over.get_or_insert(self.schedule.now);
            }
            // Early answers get time to become safe.
            if over.is_some_and(|over| self.schedule.now > over + SETTLE) {
                return;
            }
            assert!(
                self.schedule.now < limit,
                "not everything is answered: {}",
                self.open()
            );
        }
    }
    fn is_over(&self) -> bool {
        self.slots.iter().all(|slot| {
            slot.and_then(|id| self.nodes.get(&id))
                .is_some_and(|node| match &node.role {
                    Role::Server(_) => true,
                    Role::Client {
                        calls,
                        own,
                        data,
                        log,
                        lazily,
                        fs,
                        ..
                    } => {
                        let waits = !calls.is_empty()
                            || own.is_waiting()
                            || data.is_waiting()
                            || log.is_waiting();
                        !waits && !lazily.is_waiting() && fs.state() == State::Connected
                    }
                })
        })
    }
    fn open(&self) -> String {
        let open = |(id, node): (&ClientId, &Node)| match &node.role {
            Role::Server(server) => format!("{id} has {:?}: {server:?}", server.rank()),
            Role::Client {
                fs,
                calls,
                own,
                data,
                log,
                lazily,
                ..
            } => {
                let own = own.is_waiting();
                format!(
                    "{id} waits for {calls:?}, own: {own}, {data:?}, {log:?}, {lazily:?}, {fs:?}"
                )
            }
        };
        self.nodes.iter().map(open).collect::<Vec<_>>().join("; ")
    }

    fn local(&self, node: &Node) -> Time {
        let now = i128::from(self.schedule.now);
        let wrong = now * i128::from(node.drift) / 1_000_000;
        Time(u64::try_from(now + wrong).unwrap_or(0) + node.ahead)
    }
    fn wake_at(&mut self, id: ClientId, at: u64) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let at = at.max(self.schedule.now).max(node.still);
        if at < node.wake {
            node.wake = at;
            self.schedule.push(at, Event::Turn(id));
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Turn(id) => self.turn(id),
            Event::Deliver { to, conn, input } => {
                let from = match &input {
                    Input::Message {
                        from: Entity::Client(from),
                        ..
                    } => *from,
                    _ => unreachable!("messages only"),
                };
                if self.conns.get(&pair(from, to)) == Some(&conn) && self.nodes.contains_key(&to) {
                    self.observe(from, to, &input);
                    self.give(to, input);
                }
            }
            Event::Send {
                from,
                to,
                message,
                before,
            } => self.send(from, to, message, before),
            Event::Execute { who, id, asked } => self.execute(who, id, asked),
            Event::Ended { who, completion } => {
                if let Some(node) = self.nodes.get_mut(&who) {
                    node.objects.end(completion);
                    self.wake_at(who, 0);
                }
            }
            Event::Ask { who, id, call } => {
                if self.schedule.now < self.minority_until {
                    let at = self.minority_until + self.rng.below(20 * MS);
                    return self.schedule.push(at, Event::Ask { who, id, call });
                }
                self.registry.expire(self.schedule.now);
                let result: Result<MetaResult, _> = self.registry.ask(self.schedule.now, call);
                let revision = self.registry.revision();
                let done = MetaDone {
                    id,
                    revision,
                    result,
                };
                let at = self.schedule.now + self.rng.between(MS / 10, 10 * MS);
                self.schedule.push(at, Event::Answered { who, done });
                self.tell_events();
            }
            Event::Answered { who, done } => {
                if let Some(node) = self.nodes.get_mut(&who) {
                    node.keys.ended.push(done);
                    self.wake_at(who, 0);
                }
            }
            Event::News { who, watch, news } => {
                if let Some(node) = self.nodes.get_mut(&who) {
                    node.keys.news.push((watch, news));
                    self.wake_at(who, 0);
                }
            }
            Event::Start(slot) => self.start(slot),
            Event::Broken { who, peer, absent } => {
                let peer = Entity::Client(peer);
                self.give(
                    who,
                    if absent {
                        Input::Absent(peer)
                    } else {
                        Input::Gone(peer)
                    },
                );
            }
            Event::Fault => self.fault(),
            Event::Full if self.faults => {
                self.full_until = self.schedule.now + self.rng.below(5 * SECOND);
                self.note(|| format!("there is no room until {}", self.full_until));
                let at = self.full_until + self.rng.between(SECOND, 8 * SECOND);
                self.schedule.push(at, Event::Full);
            }
            Event::Full => {}
            Event::Repair => self.go_on_repairing(),
            Event::Overtaken { who, until } => self.overtake(who, until),
            Event::PowerCut(who) => self.cut_power(who),
            Event::End(who) if self.nodes.contains_key(&who) => self.kill(who),
            Event::End(_) => {}
            Event::Break(key) => self.break_off(key),
            Event::Expire => {
                if self.schedule.now >= self.minority_until {
                    self.registry.expire(self.schedule.now);
                    self.tell_events();
                }
                let at = self.schedule.now + 100 * MS;
                self.schedule.push(at, Event::Expire);
            }
            Event::EndOfFaults => {
                self.note(|| "faults end".to_owned());
                self.faults = false;
                self.cuts.clear();
                std::mem::take(&mut self.lost)
                    .into_iter()
                    .for_each(|key| self.break_off(key));
                self.stalled.clear();
                self.minority_until = 0;
                self.slow_until = 0;
                self.full_until = 0;
            }
            Event::EndOfWork => self.works = false,
        }
    }

    fn give(&mut self, to: ClientId, input: Input) {
        if let Some(node) = self.nodes.get_mut(&to) {
            node.inbox.push_back(input);
            self.wake_at(to, 0);
        }
    }

    /// Delivers the registry's events to all watchers, in order.
    fn tell_events(&mut self) {
        let events = std::mem::take(&mut self.registry.events);
        if events.is_empty() {
            return;
        }
        let through = self.registry.revision();
        let watches: Vec<_> = self
            .nodes
            .iter()
            .flat_map(|(who, node)| {
                node.keys
                    .watches
                    .iter()
                    .map(move |(watch, span)| (*who, *watch, span.clone()))
            })
            .collect();
        for (who, watch, span) in watches {
            let events = events
                .iter()
                .filter(|event| span.has(event.key()))
                .cloned()
                .collect();
            let at = self.in_order(who, b"news", 30 * MS);
            self.schedule.push(
                at,
                Event::News {
                    who,
                    watch,
                    news: WatchNews::Events { events, through },
                },
            );
        }
    }

    /// A time for an event that must not overtake earlier ones in its row.
    fn in_order(&mut self, who: ClientId, row: &[u8], longest: u64) -> u64 {
        self.in_order_from(self.schedule.now, who, row, longest)
    }
    fn in_order_from(&mut self, begin: u64, who: ClientId, row: &[u8], longest: u64) -> u64 {
        let at = begin + self.rng.between(MS / 20, longest);
        let last = self.after.entry((who, row.to_vec())).or_default();
        *last = at.max(*last + 1);
        *last
    }

    // ── turns ───────────────────────────────────────────────────────────────────────────

    fn turn(&mut self, id: ClientId) {
        let now = self.schedule.now;
        let Some(mut node) = self.nodes.remove(&id) else {
            return;
        };
        if node.wake > now || node.still > now {
            if node.still > now && node.wake <= now {
                node.wake = node.still;
                self.schedule.push(node.still, Event::Turn(id));
            }
            self.nodes.insert(id, node);
            return;
        }
        node.wake = u64::MAX;
        let local = self.local(&node);
        let mut inputs: Vec<Input> = node.inbox.drain(..).collect();
        if let (Leaving::Ending(since), Role::Client { own, .. }) = (node.leaving, &node.role)
            && (!own.is_waiting() || local.since(since) > PATIENCE)
        {
            inputs.push(Input::Stopping);
            node.leaving = Leaving::Told(local);
        }
        inputs.push(Input::Tick);
        let mut out = Vec::new();
        let mut ended = Vec::new();
        if let Role::Client {
            fs,
            kernel,
            own,
            data,
            log,
            lazily,
            seen,
            calls,
        } = &mut node.role
        {
            let (mounted, hurries) = (self.rng.one_in(2), self.rng.one_in(2));
            let works = self.works && node.leaving == Leaving::No;
            let looks = if mounted && works {
                kernel.any(local, &mut self.rng)
            } else {
                None
            };
            let mut begin = |ask: Ask| {
                let above = kernel.answer(local, &ask).filter(|_| mounted);
                let at_once = match above {
                    Some(outcome) => Ok((outcome, false)),
                    None if hurries => fs.at_once(local, ask.clone()),
                    None => Err(ask.clone()),
                };
                let (call, outcome) = match at_once {
                    Ok((outcome, _)) => {
                        self.last_at_once += 1;
                        (CallId(u64::MAX - self.last_at_once), Some(outcome))
                    }
                    Err(ask) => (fs.begin(ask), None),
                };
                kernel.on_begun(call, &ask);
                self.judge.on_begun(now, id, call, &ask);
                ended.extend(outcome.map(|outcome| (call, outcome)));
                call
            };
            if let Some(look) = looks {
                calls.insert(begin(look));
            }
            let busy = self.rng.between(1, 4) as usize;
            while works && calls.len() < busy && self.rng.below(3) > 0 {
                calls.insert(begin(programs::shared(&mut self.rng, seen)));
            }
            if works && !own.is_waiting() {
                own.next(&mut self.rng, &mut begin);
            }
            if works && self.rng.one_in(4) {
                data.next(now, &mut self.rng, &mut self.diary, &mut begin);
            }
            // Data of it that is lost for lack of space is zeros: nothing shows where the next
            // record begins.
            if works && self.rng.one_in(4) && !self.fills {
                log.next(now, &mut self.rng, &mut self.book, &mut begin);
            }
            if works && self.lazy && self.rng.one_in(2) {
                lazily.next(now, &mut self.rng, &mut self.slate, &mut begin);
            }
        }
        self.report.at_once += ended.len() as u64;
        self.on_ended(id, local, &mut node.role, ended);
        let mut answered = Vec::new();
        let (objects, keys) = (&mut node.objects, &mut node.keys);
        let next = match &mut node.role {
            Role::Server(server) => {
                let before = server.rank().is_some();
                server.on_turn(local, &mut inputs.into_iter(), objects, keys, &mut out);
                self.report.takeovers += u64::from(!before && server.rank().is_some());
                server.next_deadline()
            }
            Role::Client {
                fs,
                kernel,
                own,
                data,
                log,
                lazily,
                ..
            } => {
                let before = fs.evictions();
                fs.on_turn(local, &mut inputs.into_iter(), objects, keys, &mut out);
                kernel.give_back(local, &mut self.rng, fs, &mut out);
                self.report.above += std::mem::take(&mut kernel.answered);
                if fs.evictions() != before {
                    self.relics.extend(own.relic());
                    own.begin_again(&format!("own.{id}.{}", fs.evictions()));
                    self.report.evictions += 1;
                    self.judge.on_evicted(now, id);
                    data.on_evicted(&mut self.diary);
                    log.on_evicted(&mut self.book);
                    lazily.on_evicted(&mut self.slate);
                    objects.begin_again(fs.acts_as());
                }
                assert_eq!(
                    objects.instance,
                    fs.acts_as(),
                    "an instance ends with an eviction"
                );
                fs.ended(&mut answered);
                let think = Time(local.0 + self.rng.between(MS, 50 * MS));
                let more = if objects.ended.is_empty() {
                    Time::MAX
                } else {
                    Time::ZERO
                };
                let again = kernel.again_at.unwrap_or(Time::MAX);
                fs.next_deadline().min(more).min(again).min(if self.works {
                    think
                } else {
                    Time::MAX
                })
            }
        };
        self.on_ended(id, local, &mut node.role, answered);
        self.on_left(&mut node, local);
        for output in &out {
            match output {
                Output::Send {
                    message: Message::FsRequest(request),
                    ..
                } => {
                    self.judge.on_sent(
                        now,
                        id,
                        request.number,
                        (&request.call, request.foretold.is_some()),
                    );
                }
                Output::Send {
                    to: Entity::Client(to),
                    message: Message::FsEvicted(evicted),
                    ..
                } => {
                    let last = self.evicted.entry(*to).or_insert(evicted.instance);
                    *last = evicted.instance.max(*last);
                }
                _ => {}
            }
        }
        // By its own clock, which may be slow or fast.
        if next != Time::MAX {
            let wait = next.0.saturating_sub(local.0);
            let at = now + wait + wait / 1000 + 1;
            node.wake = at.max(now);
            self.schedule.push(node.wake, Event::Turn(id));
        }
        let watched = std::mem::take(&mut node.keys.begun);
        let begun = std::mem::take(&mut node.objects.begun);
        let who = (id, node.objects.instance);
        self.nodes.insert(id, node);
        // It may pause between deciding and acting.
        let late = if self.faults && self.rng.one_in(2_000) {
            self.rng.below(8 * SECOND)
        } else {
            0
        };
        // It then does nothing else meanwhile: later messages would overtake the current ones.
        if let Some(node) = self.nodes.get_mut(&id).filter(|_| late > 0) {
            node.still = node.still.max(now + late);
        }
        for (op, asked) in begun {
            let row = match &asked {
                Asked::Operation(operation) => operation.object.name.as_bytes().to_vec(),
                Asked::Fence(..) => b"fence".to_vec(),
            };
            let longest = if now < self.slow_until {
                2 * SECOND
            } else {
                8 * MS
            };
            let begin = self.stalled.get(&id).map_or(now, |until| now.max(*until));
            let at = self.in_order_from(begin, id, &row, longest + late);
            self.schedule
                .push(at, Event::Execute { who, id: op, asked });
        }
        for (question, call) in watched {
            let at = self.in_order(id, b"meta", 10 * MS + late);
            self.schedule.push(
                at,
                Event::Ask {
                    who: id,
                    id: question,
                    call,
                },
            );
        }
        for output in out {
            match output {
                Output::Send {
                    to: Entity::Client(to),
                    message,
                    before,
                } => {
                    let at = now + late;
                    self.schedule.push(
                        at,
                        Event::Send {
                            from: id,
                            to,
                            message,
                            before,
                        },
                    );
                }
                Output::Meet { .. } => {}
                Output::Say(text) => self.note(|| format!("{id}: {text}")),
                Output::Halt { why } => {
                    self.note(|| format!("{id} halts: {why}"));
                    self.kill(id);
                    return;
                }
                other => panic!("no service wants {other:?}"),
            }
        }
    }

    /// Ends a client that was told to stop and has nothing more to send.
    fn on_left(&mut self, node: &mut Node, local: Time) {
        let (Leaving::Told(since), Role::Client { fs, own, .. }) = (node.leaving, &mut node.role)
        else {
            return;
        };
        if nacre_client::Service::is_leaving(&**fs) {
            return;
        }
        node.leaving = Leaving::Gone;
        // What it did not get done is left to its server.
        if local.since(since) < LEAVES_WITHIN && !self.fills {
            own.on_left();
            self.report.left += 1;
        }
        // Its last messages are in flight.
        let at = self.schedule.now + 20 * MS;
        self.schedule.push(at, Event::End(node.id));
    }

    /// Handles ended calls of a client's programs.
    fn on_ended(
        &mut self,
        id: ClientId,
        local: Time,
        role: &mut Role,
        ended: Vec<(CallId, nacre_fs::Outcome)>,
    ) {
        let now = self.schedule.now;
        let Role::Client {
            fs,
            kernel,
            own,
            data,
            log,
            lazily,
            calls,
            ..
        } = role
        else {
            return;
        };
        for (call, outcome) in ended {
            self.judge.on_ended(now, id, call, &outcome);
            kernel.on_ended(local, call, &outcome, fs);
            let refused = own.refused;
            if own.on_ended(call, &outcome) {
                self.report.own += 1;
                self.report.refused += own.refused - refused;
                if own.is_broken {
                    self.relics.extend(own.relic());
                    own.begin_again(&format!("own.{id}.full.{}", own.steps));
                }
                // Data that was just synchronized is in no journal yet.
                if self.faults && own.is_synced() && self.rng.one_in(12) {
                    self.schedule
                        .push(now + self.rng.below(5 * MS), Event::PowerCut(id));
                }
            } else if data.on_ended(now, &mut self.diary, call, &outcome) {
                self.report.data += 1;
            } else if log.on_ended(now, &mut self.book, call, &outcome) {
                self.report.appends += 1;
            } else if lazily.on_ended(now, &mut self.slate, call, &outcome) {
                self.report.lazy += 1;
            } else {
                assert!(calls.remove(&call), "{id}: a call ends once");
            }
        }
    }

    fn send(&mut self, from: ClientId, to: ClientId, message: Message, before: Option<Time>) {
        let Some(node) = self.nodes.get(&from) else {
            return;
        };
        if before.is_some_and(|before| self.local(node) >= before) {
            return;
        }
        let is_client = matches!(node.role, Role::Client { .. });
        let key = pair(from, to);
        if !self.conns.contains_key(&key) {
            // Servers do not connect to clients.
            let to_server = self
                .nodes
                .get(&to)
                .is_none_or(|node| matches!(node.role, Role::Server(_)));
            if !is_client && !to_server {
                return;
            }
            let cut = self
                .cuts
                .get(&key)
                .is_some_and(|until| *until > self.schedule.now);
            if cut || !self.nodes.contains_key(&to) {
                let at = self.schedule.now + self.rng.between(MS, 200 * MS);
                return self.schedule.push(
                    at,
                    Event::Broken {
                        who: from,
                        peer: to,
                        absent: !cut,
                    },
                );
            }
            self.conns.insert(key, self.next_conn);
            self.next_conn += 1;
        }
        if self.lost.contains(&key) {
            return;
        }
        let conn = self.conns[&key];
        self.report.requests += u64::from(matches!(message, Message::FsRequest(_)));
        let row = [b"to ".as_slice(), &to.0.to_le_bytes()].concat();
        let at = self.in_order(from, &row, 5 * MS);
        let input = Input::Message {
            from: Entity::Client(from),
            epoch: Epoch::NONE,
            message,
        };
        self.schedule.push(at, Event::Deliver { to, conn, input });
    }

    fn observe(&mut self, from: ClientId, to: ClientId, input: &Input) {
        let Input::Message { message, .. } = input else {
            return;
        };
        match message {
            Message::FsReply(reply) => {
                self.note(|| format!("{to} is answered {reply:?}"));
                let node = self.nodes.get_mut(&to).expect("it was just seen");
                if let Role::Client { seen, .. } = &mut node.role {
                    seen.note(&reply.answer);
                }
                self.judge.on_answered(
                    self.schedule.now,
                    to,
                    reply.number,
                    &reply.answer,
                    reply.safe,
                );
            }
            Message::FsSafe(safe) => self.judge.on_safe(to, &safe.numbers),
            Message::FsRequest(request) => {
                self.note(|| format!("{to} is asked by {from} {request:?}"))
            }
            Message::FsCaps(caps) => self.note(|| format!("{to} is told {caps:?}")),
            Message::FsTransaction(said) => {
                self.note(|| {
                    format!(
                        "{to} hears from {from} of {}: {:?}",
                        said.transaction, said.step
                    )
                });
            }
            Message::FsSession(session) => {
                self.note(|| format!("{to} is greeted by {from}: {:?}", session.opens))
            }
            _ => {}
        }
    }

    fn execute(&mut self, (who, instance): (ClientId, Instance), id: OpId, asked: Asked) {
        let is_in = |those: &BTreeMap<ClientId, Instance>| {
            those.get(&who).is_some_and(|last| instance <= *last)
        };
        let result = match asked {
            _ if is_in(&self.fenced) => Err(Failure::Refused(OpFailure::Fenced {})),
            Asked::Fence(client, instance) => {
                let last = self.fenced.entry(client).or_insert(instance);
                *last = instance.max(*last);
                Ok(Done {
                    version: Version::NONE,
                    results: Vec::new(),
                    payload: Vec::new(),
                })
            }
            Asked::Operation(operation) => {
                let writes = operation
                    .ops
                    .iter()
                    .any(nacre_wire::msg::client::SubOp::is_write);
                assert!(
                    !writes || !is_in(&self.evicted),
                    "{who} {instance:?} writes after its eviction: {operation:?}"
                );
                let done = self.perform(&operation);
                if operation.pool == DATA {
                    self.note(|| format!("{who} {:?} of {}", operation.ops, operation.object.name));
                }
                let name = operation.object.name.to_string();
                let appends = operation
                    .ops
                    .iter()
                    .any(|op| matches!(op, nacre_wire::msg::client::SubOp::Append { .. }));
                if done.is_ok() && appends && name.starts_with("journal.") {
                    self.note(|| format!("{who} appends to {name}"));
                    let rank = name
                        .split('.')
                        .nth(1)
                        .and_then(|rank| u16::from_str_radix(rank, 16).ok());
                    self.judge
                        .on_append(rank.expect("of a rank"), &operation.payload.concat());
                }
                done
            }
        };
        let longest = if self.schedule.now < self.slow_until {
            SECOND
        } else {
            8 * MS
        };
        let at = self.in_order(who, b"done", longest);
        self.schedule.push(
            at,
            Event::Ended {
                who,
                completion: Completion { id, result },
            },
        );
    }

    /// Operations that need more space are refused while the cluster is full, like OSDs do: all or
    /// nothing of an operation.
    fn perform(&mut self, operation: &Operation) -> Result<Done, Failure> {
        let full = self.schedule.now < self.full_until;
        let done = self.memory.perform_where(operation, full);
        match &done {
            Ok(_) => {
                let copies = operation.ops.iter().any(|op| op.source().is_some());
                self.report.copied += u64::from(copies);
            }
            Err(Failure::Refused(OpFailure::Full {})) => {
                self.report.full += 1;
                self.note(|| {
                    format!(
                        "no room for {:?} of {}",
                        operation.ops, operation.object.name
                    )
                });
            }
            Err(_) => {}
        }
        done
    }

    fn go_on_repairing(&mut self) {
        let now = self.schedule.now;
        let at = if now < self.minority_until {
            self.minority_until
        } else {
            self.registry.expire(now);
            let step = self.repairs.step(now, &mut self.registry, &mut self.memory);
            self.tell_events();
            match step {
                Step::Again(at) => at,
                Step::Over(_) if !self.works => return,
                Step::Over(mended) => {
                    self.note(|| format!("a repair is over, which mended {mended}"));
                    self.report.repairs += u64::from(mended > 0);
                    self.repairs.next(now)
                }
            }
        };
        self.schedule.push(at, Event::Repair);
    }

    // ── lives ───────────────────────────────────────────────────────────────────────────

    fn start(&mut self, slot: usize) {
        let life = self.next_life;
        self.next_life += 1;
        let id = ClientId(life);
        let instance = Instance(1);
        let role = if slot < self.servers {
            let me = FsHolder {
                client: id.0,
                instance,
                address: Address(format!("sim:{life}")),
                name: Name::from(&*format!("mds.{slot}")),
            };
            let config = ServerConfig {
                me,
                delay: Duration::ZERO,
                unix_ms_at_zero: 1_000,
                limits: self.limits,
            };
            Role::Server(Box::new(Server::new(config)))
        } else {
            let names_max = *self.rng.pick(&[0, 3, 12, 1_000]);
            let ahead = LookAhead {
                per_lookup: *self.rng.pick(&[1, 32]),
                page_min: *self.rng.pick(&[1, 8, 128]),
            };
            let (data_max, dirty_max) = (
                *self.rng.pick(&[0, 20_000, 1 << 20]),
                *self.rng.pick(&[1, 30_000, 1 << 20]),
            );
            let early_above = *self.rng.pick(&[0, 128 << 10]);
            let file_system = NAME.into();
            let about = Name::default();
            let config = FsConfig {
                file_system,
                about,
                instance,
                unix_ms_at_zero: 1_000,
                names_max,
                ahead,
                data_max,
                dirty_max,
                early_above,
            };
            let bounded = self.bounds && !life.is_multiple_of(4);
            let mut own = Own::new(&format!("own.{life}"), self.tops.clone(), bounded);
            own.fills = self.fills;
            let dirs: Vec<Ino> = self.tops.iter().map(|top| top.ino).collect();
            let log = Log::new(id, dirs[dirs.len() - 1]);
            let lazily = Lazily::new(id, dirs[0]);
            let mut data = Data::new(id, dirs);
            data.fills = self.fills;
            let (seen, calls) = (
                programs::Seen::new(self.tops.clone(), self.bounds),
                BTreeSet::new(),
            );
            let kernel = Kernel::default();
            Role::Client {
                fs: Box::new(Fs::new(config)),
                kernel,
                own,
                data,
                log,
                lazily,
                seen,
                calls,
            }
        };
        let node = Node {
            id,
            role,
            objects: Objects::new(instance),
            keys: Keys::default(),
            inbox: VecDeque::new(),
            ahead: self.rng.below(1000 * SECOND),
            drift: self.rng.below(201) as i64 - 100,
            still: 0,
            wake: u64::MAX,
            leaving: Leaving::No,
        };
        self.note(|| format!("{id} starts in {slot}"));
        self.slots[slot] = Some(node.id);
        self.nodes.insert(id, node);
        self.wake_at(id, 0);
    }

    fn kill(&mut self, id: ClientId) {
        if let Some(Node {
            role: Role::Client { own, .. },
            ..
        }) = &mut self.nodes.remove(&id)
        {
            self.relics.extend(own.relic());
        }
        self.diary.on_lost(id, false);
        self.book.on_lost(id);
        self.slate.on_lost(id, false);
        let slot = self
            .slots
            .iter()
            .position(|slot| *slot == Some(id))
            .expect("each node has a slot");
        self.slots[slot] = None;
        let broken: Vec<_> = self
            .conns
            .keys()
            .filter(|(one, other)| *one == id || *other == id)
            .copied()
            .collect();
        for key in broken {
            self.conns.remove(&key);
            self.lost.remove(&key);
            let other = if key.0 == id { key.1 } else { key.0 };
            let at = self.schedule.now + self.rng.below(300 * MS);
            self.schedule.push(
                at,
                Event::Broken {
                    who: other,
                    peer: id,
                    absent: false,
                },
            );
        }
        let wait = if self.rng.one_in(3) {
            self.rng.below(10 * SECOND)
        } else {
            self.rng.below(SECOND)
        };
        let at = self.schedule.now + wait;
        self.schedule.push(at, Event::Start(slot));
    }

    fn fault(&mut self) {
        if !self.faults {
            return;
        }
        let now = self.schedule.now;
        let at = now + self.rng.between(50 * MS, 3 * SECOND);
        self.schedule.push(at, Event::Fault);
        let slot = self.rng.below(self.slots.len() as u64) as usize;
        let holder = self.holder();
        let what = self.rng.below(11);
        match (what, holder) {
            (0..3, Some(holder)) => self.kill(self.slots[holder].expect("it has the rank")),
            (3, _) => {
                if let Some(id) = self.slots[slot] {
                    if slot >= self.servers {
                        self.report.deaths += 1;
                        if self.rng.below(3) > 0 {
                            return self.stop(id);
                        }
                    }
                    self.kill(id);
                }
            }
            (4 | 5, _) => {
                let slot = holder.filter(|_| self.rng.one_in(2)).unwrap_or(slot);
                let still = now + self.rng.between(50 * MS, 8 * SECOND);
                if let Some(node) = self.slots[slot].and_then(|id| self.nodes.get_mut(&id)) {
                    node.still = still;
                    let id = node.id;
                    self.note(|| format!("{id} stands still"));
                    self.wake_at(id, still);
                }
            }
            (6 | 7, _) => {
                let other = self.rng.below(self.slots.len() as u64) as usize;
                if let (Some(one), Some(other)) = (self.slots[slot], self.slots[other]) {
                    let key = pair(one, other);
                    let until = now + self.rng.between(10 * MS, 10 * SECOND);
                    self.cuts.insert(key, until);
                    self.note(|| format!("{one} and {other} are cut off from each other"));
                    if self.rng.one_in(3) && self.conns.contains_key(&key) {
                        // Neither side notices for long.
                        self.lost.insert(key);
                        self.schedule
                            .push(now + self.rng.below(15 * SECOND), Event::Break(key));
                    } else {
                        self.break_off(key);
                    }
                }
            }
            (8, _) => {
                self.minority_until = now + self.rng.below(6 * SECOND);
                self.registry.renew_all(self.minority_until);
                self.note(|| "the registry has no majority".to_owned());
            }
            (9, Some(_)) if slot >= self.servers => {
                if let Some(who) = self.slots[slot] {
                    let until = now + self.rng.between(6 * SECOND, 20 * SECOND);
                    self.stalled.insert(who, until);
                    let at = now + self.rng.below(300 * MS);
                    self.schedule.push(at, Event::Overtaken { who, until });
                }
            }
            _ => self.slow_until = now + self.rng.below(5 * SECOND),
        }
    }

    /// A client is to stop once its program's call has ended.
    fn stop(&mut self, id: ClientId) {
        let node = self.nodes.get_mut(&id).expect("it has a slot");
        if node.leaving == Leaving::No {
            let local = self.local(&self.nodes[&id]);
            self.note(|| format!("{id} is to stop"));
            self.nodes.get_mut(&id).expect("just seen").leaving = Leaving::Ending(local);
        }
    }

    /// Breaks a connection, if there is one; both sides notice.
    fn break_off(&mut self, key: (ClientId, ClientId)) {
        self.lost.remove(&key);
        if self.conns.remove(&key).is_some() {
            for (who, peer) in [key, (key.1, key.0)] {
                let at = self.schedule.now + self.rng.below(SECOND);
                self.schedule.push(
                    at,
                    Event::Broken {
                        who,
                        peer,
                        absent: false,
                    },
                );
            }
        }
    }

    /// A server that holds a rank.
    fn holder(&mut self) -> Option<usize> {
        let has_rank = |slot: &usize| {
            let node = self.slots[*slot].and_then(|id| self.nodes.get(&id));
            node.is_some_and(
                |node| matches!(&node.role, Role::Server(server) if server.rank().is_some()),
            )
        };
        let holders: Vec<usize> = (0..self.servers).filter(has_rank).collect();
        match &holders[..] {
            [] => None,
            [one] => Some(*one),
            several => Some(*self.rng.pick(several)),
        }
    }

    fn cut_power(&mut self, who: ClientId) {
        if self.faults && self.nodes.contains_key(&who) {
            self.note(|| format!("{who} and the holder lose their power"));
            self.kill(who);
            if let Some(holder) = self.holder() {
                self.kill(self.slots[holder].expect("it has the rank"));
            }
        }
    }

    /// A client's operations in flight are delayed, and it is too late for the next holder.
    fn overtake(&mut self, who: ClientId, until: u64) {
        let Some(node) = self.nodes.get_mut(&who) else {
            return;
        };
        node.still = until;
        self.note(|| format!("{who} is overtaken"));
        self.wake_at(who, until);
        if let Some(holder) = self.holder() {
            self.kill(self.slots[holder].expect("it has the rank"));
        }
    }

    // ── the end ─────────────────────────────────────────────────────────────────────────

    fn finish(mut self) -> Report {
        let lives: Vec<ClientId> = self.nodes.keys().copied().collect();
        let (model, ids) = self.judge.check(&lives);
        if self.fills {
            // Unsynchronized data may be lost, and not every client synchronized.
            lives.iter().for_each(|id| self.diary.on_lost(*id, false));
        }
        self.diary.check();
        self.book.check();
        self.slate.check(&self.memory);
        // Directories and journal combined, as read by a client that was not there before.
        let (shown, times) = self.read_all();
        let inos: BTreeMap<usize, Ino> = ids.iter().map(|(ino, id)| (*id, *ino)).collect();
        let mut expected = Vec::new();
        walk(&model, 0, "", &mut |path, id| {
            let node = &model.nodes[id];
            let size = if node.kind == Kind::File {
                node.size
            } else {
                0
            };
            expected.push((path, inos.get(&id).copied(), size));
        });
        expected.sort();
        assert_eq!(shown, expected, "what a new client sees");
        self.relics
            .iter()
            .for_each(|relic| relic.check(&shown, &times, &self.memory));
        self.report.relics = self.relics.len() as u64;
        super::checked::check(&mut self.memory, self.tops.len() as u16);
        self.report.across = self.judge.across;
        self.report.here = self.judge.here;
        self.report.batches = self.judge.batches;
        self.report.digest = self.digest.digest128();
        self.report
    }
    /// A client asks for a page of a directory.
    fn list(&mut self, id: ClientId, dir: Ino, after: u64) -> CallId {
        let Role::Client { fs, .. } = &mut self.nodes.get_mut(&id).expect("it lives").role else {
            unreachable!()
        };
        let call = fs.begin(Ask::Names(FsCall::List {
            dir,
            after,
            bytes_max: 1 << 20,
        }));
        self.wake_at(id, 0);
        call
    }

    /// Everything, as a new client lists it.
    fn read_all(&mut self) -> (Vec<Shown>, BTreeMap<Ino, Stamp>) {
        use nacre_fs::Given;
        self.start(self.slots.len() - 1);
        let id = self.slots[self.slots.len() - 1].expect("just started");
        let (mut shown, mut times) = (Vec::new(), BTreeMap::new());
        let mut dirs = vec![(Ino::ROOT, String::new())];
        while let Some((dir, path)) = dirs.pop() {
            let mut call = self.list(id, dir, 0);
            let limit = self.schedule.now + HEALED;
            let mut entries: Vec<FsListed> = Vec::new();
            loop {
                let (_, event) = self.schedule.pop().expect("clocks tick");
                if let Event::Turn(who) = event
                    && who == id
                {
                    // As in `turn`, but the answer is handled here.
                    if let Some(outcome) = self.turn_of_reader(id, call) {
                        match outcome {
                            Ok(Given::Answer(FsAnswer::Listed { entries: page, end })) => {
                                entries.extend(page);
                                if end {
                                    break;
                                }
                                call = self.list(
                                    id,
                                    dir,
                                    entries.last().map_or(0, |last| name_hash(&last.name)),
                                );
                            }
                            other => panic!("{path}: {other:?}"),
                        }
                    }
                } else {
                    self.handle(event);
                }
                assert!(
                    self.schedule.now < limit,
                    "a new client is not answered: {}",
                    self.open()
                );
            }
            for listed in entries {
                let inode = listed.node.inode;
                let path = format!("{path}/{}", listed.name);
                if inode.is_directory() {
                    dirs.push((inode.ino, path.clone()));
                }
                times.insert(inode.ino, inode.mtime);
                shown.push((
                    path,
                    Some(inode.ino),
                    if inode.is_file() { inode.size } else { 0 },
                ));
            }
        }
        shown.sort();
        (shown, times)
    }

    fn turn_of_reader(
        &mut self,
        id: ClientId,
        call: nacre_fs::CallId,
    ) -> Option<nacre_fs::Outcome> {
        if let Role::Client { calls, .. } = &mut self.nodes.get_mut(&id)?.role {
            calls.insert(call);
        }
        let mut node = self.nodes.remove(&id)?;
        let local = self.local(&node);
        node.wake = u64::MAX;
        let mut inputs: Vec<Input> = node.inbox.drain(..).collect();
        inputs.push(Input::Tick);
        let (mut out, mut ended) = (Vec::new(), Vec::new());
        let Role::Client { fs, calls, .. } = &mut node.role else {
            unreachable!("it is a client")
        };
        fs.on_turn(
            local,
            &mut inputs.into_iter(),
            &mut node.objects,
            &mut node.keys,
            &mut out,
        );
        fs.ended(&mut ended);
        let next = fs.next_deadline();
        calls.clear();
        if next != Time::MAX {
            node.wake = self.schedule.now + next.0.saturating_sub(local.0) * 1001 / 1000 + 1;
            self.schedule.push(node.wake, Event::Turn(id));
        }
        let asked = std::mem::take(&mut node.keys.begun);
        self.nodes.insert(id, node);
        for (question, call) in asked {
            let at = self.in_order(id, b"meta", 10 * MS);
            self.schedule.push(
                at,
                Event::Ask {
                    who: id,
                    id: question,
                    call,
                },
            );
        }
        for output in out {
            if let Output::Send {
                to: Entity::Client(to),
                message,
                before,
            } = output
            {
                self.send(id, to, message, before);
            }
        }
        ended
            .into_iter()
            .find(|(ended, _)| *ended == call)
            .map(|(_, outcome)| outcome)
    }
}

fn walk(
    model: &nacre_history::posix::Model,
    dir: usize,
    path: &str,
    each: &mut impl FnMut(String, usize),
) {
    for (name, id) in &model.nodes[dir].entries {
        let path = format!("{path}/{name}");
        each(path.clone(), *id);
        if model.nodes[*id].kind == Kind::Directory {
            walk(model, *id, &path, each);
        }
    }
}
