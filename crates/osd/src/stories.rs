//! Stories that the simulator found at a whole daemon, each as the shortest trace that shows it:
//! one [`Osd`] on a RAM store; the test plays the monitors, peers and clients.

use crate::boot::format;
use crate::config::{Limits, OsdConfig, Timing};
use crate::osd::Osd;
use bytes::Bytes;
use nacre_role::{Input, Job, Output, Role as _, Tools};
use nacre_store::{Event, ObjectStore, Op, RamStore, Token};
use nacre_types::{
    ClientId, ClusterId, Entity, Epoch, Instance, MonId, Name, ObjectId, OsdId, PgId, PoolId, Time,
    Version,
};
use nacre_wire::map::{Address, Change, ClusterMap, CrushSection, MapDelta, Pool};
use nacre_wire::msg::client::{OpRequest, RequestId, SubOp};
use nacre_wire::msg::monitor::{MapDeltas, MapFull};
use nacre_wire::msg::replication::{
    Adopt, AdoptAck, Dedup, LogReply, Logged, Missing, PeerInfo, PgInfo, Ping, Pong, Progress,
    ProgressAck, Push, PushAck, ReplicateAcks, ScanReply, Totals,
};
use nacre_wire::{Message, Payload, Record, RecordFields, Wire};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const MON: Entity = Entity::Mon(MonId(0));
pub(crate) const PG: PgId = PgId::replicated(PoolId(1), 0);

/// The monitors: one history of maps.
pub(crate) struct Monitors {
    pub(crate) map: ClusterMap,
    pub(crate) deltas: Vec<(Epoch, Bytes)>,
}

impl Monitors {
    /// OSDs on hosts of their own, no pool.
    pub(crate) fn of(osds: u32) -> Self {
        let mut crush = nacre_crush::CrushMap::new();
        for osd in 0..osds {
            let host = format!("host{osd}");
            let path = [("root", "default"), ("host", host.as_str())];
            crush
                .add_device(OsdId(osd), nacre_crush::Weight::ONE, None, &path)
                .expect("a new device under a new host");
        }
        crush
            .create_replicated_rule("replicated", "default", "host", None)
            .expect("the first rule");
        let section = CrushSection::parse(&nacre_crush::text::print(&crush))
            .expect("what was printed parses");
        let mut monitors = Self {
            map: ClusterMap::empty(ClusterId(1), section),
            deltas: Vec::new(),
        };
        let store = |osd: u32| u128::from(osd) + 1;
        monitors.commit(
            (0..osds)
                .map(|osd| Change::OsdNew {
                    osd: OsdId(osd),
                    store: store(osd),
                })
                .collect(),
        );
        monitors
    }
    pub(crate) fn commit(&mut self, changes: Vec<Change>) -> Epoch {
        let delta: MapDelta = self.map.delta(changes);
        self.map.apply(&delta).expect("made from this map");
        self.deltas.push((delta.epoch, delta.to_bytes().into()));
        delta.epoch
    }
    /// Grants the next instance to a process.
    pub(crate) fn up(&mut self, osd: u32, process: u64) -> Epoch {
        let address = Address(format!("o{osd}"));
        let instance = Instance(self.map.osds[&OsdId(osd)].instance.0 + 1);
        let store = u128::from(osd) + 1;
        self.commit(vec![Change::OsdUp {
            osd: OsdId(osd),
            instance,
            address,
            store,
            features: 0,
            process,
        }])
    }
    pub(crate) fn down(&mut self, osd: u32) -> Epoch {
        let instance = self.map.osds[&OsdId(osd)].instance;
        self.commit(vec![Change::OsdDown {
            osd: OsdId(osd),
            instance,
        }])
    }
    pub(crate) fn pool(&mut self, size: u8) -> Epoch {
        self.pool_that_needs(size, size)
    }
    pub(crate) fn pool_that_needs(&mut self, min_size: u8, size: u8) -> Epoch {
        let settings = Pool::replicated("registers".into(), size, min_size, 1);
        self.commit(vec![Change::PoolSet {
            pool: PoolId(1),
            settings,
        }])
    }
    pub(crate) fn full(&self) -> Message {
        Message::MapFull(MapFull {
            map: self.map.to_bytes().into(),
        })
    }
    pub(crate) fn since(&self, epoch: Epoch) -> Message {
        let deltas = self
            .deltas
            .iter()
            .filter(|(at, _)| *at > epoch)
            .map(|(_, bytes)| bytes.clone())
            .collect();
        Message::MapDeltas(MapDeltas {
            deltas,
            newest: self.map.epoch,
            root: None,
        })
    }
}

/// A daemon with its store and a clock under the test's control.
pub(crate) struct Host {
    pub(crate) osd: Osd,
    pub(crate) store: RamStore,
    pub(crate) now: Time,
    /// Messages to the monitors, since last taken.
    pub(crate) to_mon: Vec<Message>,
    /// Messages to others, since last taken.
    pub(crate) sent: Vec<(Entity, Message)>,
    pub(crate) removed: usize,
    /// Whether the store makes its transactions durable.
    pub(crate) commits: bool,
    /// Answers of the store that are held back, if any.
    pub(crate) held: Option<Vec<Event>>,
    /// Operations that take long and are not evaluated yet, if they wait.
    pub(crate) jobs: Option<Vec<Arc<dyn Job>>>,
}

/// The process number of the OSD's start number `starts`.
pub(crate) const fn process(id: u32, starts: u64) -> u64 {
    starts << 32 | (id as u64 + 1)
}

pub(crate) fn config(id: u32, starts: u64) -> OsdConfig {
    OsdConfig {
        id: OsdId(id),
        process: process(id, starts),
        store: u128::from(id) + 1,
        address: Address(format!("o{id}")),
        class: String::new(),
        host: format!("host{id}"),
        capacity: 1 << 30,
        timing: Timing::default(),
        limits: Limits {
            push_bytes: 2,
            ..Limits::default()
        },
    }
}

impl Host {
    pub(crate) fn new(id: u32) -> Self {
        let mut store = RamStore::new();
        store
            .submit(format(ClusterId(1), OsdId(id)), Token(0))
            .expect("an empty store takes it");
        store.request_commit();
        Self::start(id, 1, store)
    }
    pub(crate) fn start(id: u32, starts: u64, mut store: RamStore) -> Self {
        store.poll(&mut Vec::new());
        let now = Time(starts * 1_000_000_000_000);
        let mut out = Vec::new();
        let osd = Osd::open(config(id, starts), now, &mut out);
        let (to_mon, sent) = (Vec::new(), Vec::new());
        let mut host = Self {
            osd,
            store,
            now,
            to_mon,
            sent,
            removed: 0,
            commits: true,
            held: None,
            jobs: None,
        };
        host.perform(out);
        host
    }
    /// Its process dies and another one starts, on the durable state.
    pub(crate) fn restart(self, starts: u64) -> Self {
        let id = self.osd.id().0;
        Self::start(id, starts, self.store.crash(0))
    }
    pub(crate) fn perform(&mut self, mut out: Vec<Output>) {
        for round in 0.. {
            assert!(round < 100, "goes round and round: {:?}", out.first());
            let mut done = Vec::new();
            for output in out.drain(..) {
                match output {
                    // Each separately, so that stories can lose one of them.
                    Output::Send {
                        to,
                        message: Message::Replicate(updates, payload),
                        ..
                    } => {
                        let alone = updates.split(payload).into_iter();
                        self.sent.extend(
                            alone.map(|(update, data)| (to, Message::Replicate(update, data))),
                        );
                    }
                    Output::Send { to, message, .. } => self.sent.push((to, message)),
                    Output::SendMon { message } => self.to_mon.push(message),
                    Output::Submit { transaction, token } => {
                        self.removed += transaction
                            .ops
                            .iter()
                            .filter(|op| matches!(op, Op::Remove(_)))
                            .count();
                        self.store
                            .submit(transaction, token)
                            .expect("a RAM store takes everything valid");
                    }
                    Output::Read { read, token } => self.store.read(read, token),
                    Output::Run(job) => match &mut self.jobs {
                        Some(jobs) => jobs.push(job),
                        None => done.push(job.run(&mut Tools::default())),
                    },
                    Output::Meet { .. } => unreachable!("an OSD finds its peers in its map"),
                    Output::Say(line) => panic!("says {line}"),
                    Output::Halt { why } => panic!("halts: {why}"),
                }
            }
            for done in done {
                self.osd.on_input(self.now, Input::Done(done), &mut out);
            }
            if self.commits {
                self.store.request_commit();
            }
            let mut events = Vec::new();
            self.store.poll(&mut events);
            for event in events {
                match &mut self.held {
                    Some(held) if matches!(event, Event::Read(..)) => held.push(event),
                    _ => self.osd.on_input(self.now, Input::Store(event), &mut out),
                }
            }
            if out.is_empty() {
                return;
            }
        }
    }
    /// The answers that were held back arrive; later ones are held back again.
    pub(crate) fn release(&mut self) {
        let mut out = Vec::new();
        for event in std::mem::take(self.held.as_mut().expect("they are held back")) {
            self.osd.on_input(self.now, Input::Store(event), &mut out);
        }
        self.perform(out);
    }
    /// Waiting operations are evaluated; later ones do not wait any more.
    pub(crate) fn evaluate(&mut self) {
        let mut out = Vec::new();
        for job in self.jobs.take().expect("they wait") {
            self.osd.on_input(
                self.now,
                Input::Done(job.run(&mut Tools::default())),
                &mut out,
            );
        }
        self.perform(out);
    }
    pub(crate) fn tell(&mut self, from: Entity, epoch: Epoch, message: Message) {
        let mut out = Vec::new();
        self.osd.on_input(
            self.now,
            Input::Message {
                from,
                epoch,
                message,
            },
            &mut out,
        );
        self.perform(out);
    }
    pub(crate) fn name(&mut self, client: Entity, name: Name) {
        self.osd
            .on_input(self.now, Input::Named(client, name), &mut Vec::new());
    }
    pub(crate) fn wait(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        let mut out = Vec::new();
        self.osd.on_input(self.now, Input::Tick, &mut out);
        self.perform(out);
    }
    pub(crate) fn boots(&mut self) -> Vec<Instance> {
        let instance = |message: Message| match message {
            Message::Boot(boot) => Some(boot.instance),
            _ => None,
        };
        std::mem::take(&mut self.to_mon)
            .into_iter()
            .filter_map(instance)
            .collect()
    }
    /// Takes what was sent to an OSD.
    pub(crate) fn sent_to(&mut self, osd: u32) -> Vec<Message> {
        let (taken, left) = std::mem::take(&mut self.sent)
            .into_iter()
            .partition(|(to, _)| *to == Entity::Osd(OsdId(osd)));
        self.sent = left;
        let taken: Vec<(Entity, Message)> = taken;
        taken.into_iter().map(|(_, message)| message).collect()
    }
}

/// A client's operation on the one object.
pub(crate) fn operation(client: u64, sequence: u64, attempt: u32, ops: Vec<SubOp>) -> OpRequest {
    OpRequest {
        request: RequestId {
            client: ClientId(client),
            instance: Instance(1),
            sequence,
        },
        answered_below: sequence,
        pg: PG,
        object: ObjectId::named("a"),
        ops,
        attempt,
        ..OpRequest::default()
    }
}
pub(crate) fn ask(
    client: u64,
    sequence: u64,
    attempt: u32,
    ops: Vec<SubOp>,
    payload: Payload,
    epoch: Epoch,
    host: &mut Host,
) {
    let request = operation(client, sequence, attempt, ops);
    host.tell(
        Entity::Client(ClientId(client)),
        epoch,
        Message::OpRequest(request, payload),
    );
}
pub(crate) fn write(sequence: u64, epoch: Epoch, host: &mut Host) {
    ask(
        9,
        sequence,
        1,
        vec![SubOp::WriteFull { length: 3 }],
        vec![Bytes::from_static(b"abc")],
        epoch,
        host,
    );
}
pub(crate) fn read(sequence: u64, epoch: Epoch, host: &mut Host) {
    ask(
        9,
        sequence,
        1,
        vec![SubOp::Read {
            offset: 0,
            length: 3,
        }],
        Payload::new(),
        epoch,
        host,
    );
}

/// A pool of one PG and one replica, served and written to.
fn served_alone() -> (Monitors, Host, Epoch) {
    let mut monitors = Monitors::of(1);
    let mut host = Host::new(0);
    monitors.up(0, process(0, 1));
    monitors.pool(1);
    host.tell(MON, Epoch::NONE, monitors.full());
    let before = monitors.map.epoch;
    let interval = monitors.map.pgs[&PG].since;
    let epoch = monitors.commit(vec![Change::PgActivate {
        pg: PG,
        interval,
        members: vec![OsdId(0)],
    }]);
    host.tell(MON, epoch, monitors.since(before));
    write(1, epoch, &mut host);
    let answered = |(_, message): &(Entity, Message)| matches!(message, Message::OpReply(reply, _) if reply.failure.is_none());
    assert!(host.sent.iter().any(answered), "{:?}", host.sent);
    (monitors, host, epoch)
}

/// Simulator with real monitors, seed 35. All machines lost power. A monitor came back first, at
/// the epoch of its snapshot; the pool was younger. An OSD that came back then was sent that map,
/// found that none of its PGs existed any more, and erased them all.
#[test]
fn a_map_from_before_the_pool_erases_nothing() {
    let (monitors, host, epoch) = served_alone();
    let mut old = Monitors::of(1);
    assert!(!old.map.pools.contains_key(&PG.pool) && old.map.epoch < epoch);
    let mut host = host.restart(2);
    host.tell(MON, old.map.epoch, old.full());
    old.up(0, process(0, 7));
    host.tell(MON, old.map.epoch, old.since(Epoch(1)));
    assert_eq!(host.removed, 0);
    let mut host = host.restart(3);
    host.tell(MON, epoch, monitors.full());
    let group = host
        .osd
        .pgs()
        .find(|pg| pg.id() == PG)
        .expect("it is there");
    assert!(
        group.local.exists && group.local.log.head() > Version::NONE,
        "with everything that was written"
    );
}

/// The opposite case: a map that has known the pool and no longer contains it is followed.
#[test]
fn a_pool_that_is_removed_takes_its_data_along() {
    let (mut monitors, mut host, epoch) = served_alone();
    let gone = monitors.commit(vec![Change::PoolRemove { pool: PG.pool }]);
    host.tell(MON, gone, monitors.since(epoch));
    host.wait(100);
    assert!(host.removed > 0);
    assert!(host.osd.pgs().all(|pg| !pg.local.exists));
    let (mut monitors, host, epoch) = served_alone();
    let mut host = host.restart(2);
    monitors.commit(vec![Change::PoolRemove { pool: PG.pool }]);
    monitors.up(0, process(0, 2));
    assert!(monitors.map.epoch > epoch);
    host.tell(MON, monitors.map.epoch, monitors.full());
    host.wait(100);
    assert!(
        host.removed > 0,
        "also when it is gone at the first map of a life"
    );
}

/// Simulator, seed 15. The monitors committed the boot of an instance, then a failure report on the
/// same instance, before the daemon learned of either. It announced that instance again, for ever,
/// and the monitors took each announcement for a late frame.
#[test]
fn a_life_given_up_before_it_heard_of_itself_is_followed_by_another() {
    let mut monitors = Monitors::of(1);
    let mut host = Host::new(0);
    assert_eq!(host.boots(), [Instance(0)]);
    monitors.up(0, process(0, 1));
    monitors.down(0);
    host.tell(MON, monitors.map.epoch, monitors.full());
    assert!(!host.osd.is_live());
    let boots = host.boots();
    assert!(
        !boots.is_empty() && boots.iter().all(|instance| *instance == Instance(1)),
        "{boots:?}"
    );
    let before = monitors.map.epoch;
    monitors.up(0, process(0, 1));
    host.tell(MON, monitors.map.epoch, monitors.since(before));
    assert!(host.osd.is_live());
    assert_eq!(host.osd.instance(), Instance(2));
}

/// F1, proven on processes: an OSD that was marked down while it was alive continued as the next
/// instance, which only its memory knew. Killed and started again, it counted its starts, computed
/// the same number, and was up at once in the same interval, which it did not remember: as a
/// replica it ignored every update for ever, as a primary it considered committed what its members
/// had not adopted.
#[test]
fn a_process_is_never_live_as_an_instance_that_another_was_granted() {
    let mut monitors = Monitors::of(1);
    let mut host = Host::new(0);
    monitors.up(0, process(0, 1));
    monitors.pool(1);
    host.tell(MON, Epoch::NONE, monitors.full());
    assert!(host.osd.is_live());
    let mut before = monitors.map.epoch;
    monitors.down(0);
    monitors.up(0, process(0, 1));
    host.tell(MON, monitors.map.epoch, monitors.since(before));
    assert!(host.osd.is_live(), "it lived on");
    assert_eq!(host.osd.instance(), Instance(2));
    let interval = monitors.map.pgs[&PG].since;

    let mut host = host.restart(2);
    host.tell(MON, monitors.map.epoch, monitors.full());
    host.wait(1000);
    assert!(
        !host.osd.is_live(),
        "the map names instance 2, and its store too, but that was another process"
    );
    assert!(host.boots().iter().all(|instance| *instance == Instance(2)));
    before = monitors.map.epoch;
    monitors.up(0, process(0, 2));
    host.tell(MON, monitors.map.epoch, monitors.since(before));
    assert!(host.osd.is_live());
    assert_eq!(host.osd.instance(), Instance(3));
    assert_ne!(
        monitors.map.pgs[&PG].since, interval,
        "everybody begins a new interval with it"
    );
}

/// A daemon acts as an instance only after the instance is stored: after a crash in between, no
/// other daemon has received anything.
#[test]
fn an_instance_is_stored_before_anything_is_done_as_it() {
    let mut monitors = Monitors::of(2);
    let mut host = Host::new(0);
    monitors.up(0, process(0, 1));
    monitors.up(1, process(1, 1));
    monitors.pool(2);
    host.commits = false;
    host.tell(MON, Epoch::NONE, monitors.full());
    host.wait(1000);
    assert!(!host.osd.is_live());
    assert_eq!(host.sent_to(1).len(), 0, "not even a question");
    host.tell(
        Entity::Osd(OsdId(1)),
        monitors.map.epoch,
        Message::Ping(Ping { stamp: 1 }),
    );
    assert_eq!(host.sent_to(1).len(), 0);
    host.commits = true;
    host.perform(Vec::new());
    assert!(host.osd.is_live());
    let sent = host.sent_to(1);
    assert!(
        sent.iter()
            .any(|message| matches!(message, Message::Pong(_))),
        "what came meanwhile is answered: {sent:?}"
    );
    let host = host.restart(2);
    assert_eq!(host.osd.instance(), Instance(1));
}

/// Monitors that were reset to an older state grant a number that was used: it is refused, and they
/// are informed.
#[test]
fn an_instance_that_the_store_has_had_is_not_taken_again() {
    let mut monitors = Monitors::of(1);
    let mut host = Host::new(0);
    for _ in 0..3 {
        monitors.up(0, process(0, 1));
    }
    host.tell(MON, monitors.map.epoch, monitors.full());
    assert_eq!(host.osd.instance(), Instance(3));
    let mut host = host.restart(2);
    let mut restored = Monitors::of(1);
    restored.up(0, process(0, 2));
    host.tell(MON, restored.map.epoch, restored.full());
    host.wait(1000);
    assert!(!host.osd.is_live());
    assert!(host.boots().iter().all(|instance| *instance == Instance(3)));
}

/// The entry of the update that creates object `a`, of one byte, the only object of its PG.
fn first_of_a(version: Version) -> Record {
    let request = RequestId {
        client: ClientId(8),
        instance: Instance(1),
        sequence: 1,
    };
    let totals = Totals {
        objects: 1,
        bytes: 1,
        estimated: false,
    };
    let fields = RecordFields {
        version,
        request,
        answered_below: 1,
        totals,
        ..RecordFields::default()
    };
    Record::new(RecordFields {
        object: ObjectId::named("a"),
        ..fields
    })
}

/// A member's report that it has everything up to this version.
fn logged(interval: Epoch, version: Version) -> Message {
    let logged = vec![Logged {
        pg: PG,
        interval,
        version,
    }];
    Message::ReplicateAcks(ReplicateAcks {
        logged,
        nearly_full: false,
    })
}

/// Two members and their primary up to the point where it serves; the test controls the second
/// member's messages.
fn served_by_two() -> (Monitors, Host, Epoch, u32) {
    let mut monitors = Monitors::of(2);
    monitors.up(0, process(0, 1));
    monitors.up(1, process(1, 1));
    monitors.pool(2);
    let acting = monitors.map.pgs[&PG].acting.clone();
    let (primary, member) = (acting[0].0, acting[1].0);
    let mut host = Host::new(primary);
    host.tell(MON, monitors.map.epoch, monitors.full());
    assert!(host.osd.is_live());
    let (from, interval, epoch) = (
        Entity::Osd(OsdId(member)),
        monitors.map.pgs[&PG].since,
        monitors.map.epoch,
    );
    let info = PeerInfo {
        pg: PG,
        interval,
        info: PgInfo::default(),
        lease_left_ns: 0,
        logged_max: 0,
    };
    host.tell(from, epoch, Message::PeerInfo(info));
    let adopted = AdoptAck {
        pg: PG,
        interval,
        head: Version::NONE,
        missing: Vec::new(),
        backfill: None,
        undone: vec![],
    };
    host.tell(from, epoch, Message::AdoptAck(adopted));
    let members = acting;
    let after = monitors.commit(vec![Change::PgActivate {
        pg: PG,
        interval,
        members,
    }]);
    host.tell(MON, after, monitors.since(epoch));
    (monitors, host, after, member)
}

/// Simulator, session 1. A peer that was behind was sent the map's changes once; that message was
/// lost, and not repeated. The peer continued to send its old epoch and got no useful answer.
#[test]
fn whoever_stays_behind_is_told_again() {
    let (monitors, mut host, _, member) = served_by_two();
    let (from, old) = (Entity::Osd(OsdId(member)), Epoch(monitors.map.epoch.0 - 1));
    let mut told = || {
        host.tell(from, old, Message::Ping(Ping { stamp: host.now.0 }));
        host.sent_to(member)
            .iter()
            .filter(|message| matches!(message, Message::MapDeltas(_)))
            .count()
    };
    let first = told();
    let at_once = told();
    host.wait(500);
    let mut again = || {
        host.tell(from, old, Message::Ping(Ping { stamp: host.now.0 }));
        host.sent_to(member)
            .iter()
            .filter(|message| matches!(message, Message::MapDeltas(_)))
            .count()
    };
    assert_eq!(
        (first, at_once, again()),
        (1, 0, 1),
        "once, not with every frame, and again after a while"
    );
}

/// Simulator, session 1. A read that lacked a lease was checked, put back and checked again without
/// an end, in one wake-up; and later once per microsecond, since the next deadline was always now.
#[test]
fn a_read_without_a_lease_waits_for_one() {
    let (_, mut host, epoch, member) = served_by_two();
    let from = Entity::Osd(OsdId(member));
    write(1, epoch, &mut host);
    let updates = host.sent_to(member);
    let version = updates.iter().find_map(|message| match message {
        Message::Replicate(update, _) => Some((
            update.updates[0].interval,
            update.updates[0].entry.version(),
        )),
        _ => None,
    });
    let (interval, version) = version.expect("the write goes to the member");
    host.tell(from, epoch, logged(interval, version));
    host.sent.clear();
    read(2, epoch, &mut host);
    assert!(
        host.sent
            .iter()
            .all(|(to, _)| *to != Entity::Client(ClientId(9))),
        "nobody granted a lease: {:?}",
        host.sent
    );
    let answered = |host: &Host| {
        host.sent
            .iter()
            .any(|(_, message)| matches!(message, Message::OpReply(..)))
    };
    for _ in 0..20 {
        let next = host.osd.next_deadline();
        assert!(
            next.since(host.now) >= Duration::from_millis(1),
            "the next look is not at once"
        );
        host.wait(3);
        assert!(!answered(&host));
    }
    grants_a_lease(&mut host, from, epoch);
    assert!(
        answered(&host),
        "and when there is one it is answered: {:?}",
        host.sent
    );
}

/// Simulator, seed 202. A compare-and-set failed on an update that was not committed; its answer
/// waited. The same request arrived again and was answered from memory at once; the update was then
/// lost in a crash, and the failure had revealed a state that never existed.
#[test]
fn a_repeated_failure_waits_like_the_first_until_what_it_saw_is_committed() {
    let (_, mut host, epoch, member) = served_by_two();
    let from = Entity::Osd(OsdId(member));
    grants_a_lease(&mut host, from, epoch);
    write(1, epoch, &mut host);
    let guard = |attempt: u32, host: &mut Host| {
        let ops = vec![
            SubOp::AssertExists { exists: false },
            SubOp::WriteFull { length: 1 },
        ];
        ask(
            10,
            1,
            attempt,
            ops,
            vec![Bytes::from_static(b"x")],
            epoch,
            host,
        );
    };
    let answers = |host: &Host| {
        let to_client = |(to, message): &&(Entity, Message)| {
            *to == Entity::Client(ClientId(10))
                && matches!(message, Message::OpReply(reply, _) if reply.failure.is_some() && reply.attempt == 2)
        };
        host.sent.iter().filter(to_client).count()
    };
    guard(1, &mut host);
    assert_eq!(
        answers(&host),
        0,
        "the write it saw is not on the member yet"
    );
    guard(2, &mut host);
    assert_eq!(answers(&host), 0, "nor does asking again change that");
    let (interval, version) = host
        .sent
        .iter()
        .find_map(|(_, message)| match message {
            Message::Replicate(update, _) => Some((
                update.updates[0].interval,
                update.updates[0].entry.version(),
            )),
            _ => None,
        })
        .expect("the write went to the member");
    host.tell(from, epoch, logged(interval, version));
    assert_eq!(
        answers(&host),
        1,
        "when it is, the last attempt is answered"
    );
}

/// Simulator with real monitors, seed 6. Both members of a PG were replaced at once while its log
/// was still the whole history: the new ones adopted it and requested their activation. The
/// monitors refuse that without a member of the last activated interval, for ever.
#[test]
fn members_that_are_all_replaced_are_replaced_in_two_steps() {
    let mut monitors = Monitors::of(4);
    for osd in 0..4 {
        monitors.up(osd, process(osd, 1));
    }
    monitors.pool(2);
    let old = monitors.map.pgs[&PG].acting.clone();
    let interval = monitors.map.pgs[&PG].since;
    monitors.commit(vec![Change::PgActivate {
        pg: PG,
        interval,
        members: old.clone(),
    }]);
    let out = |osd: &OsdId| Change::OsdWeight {
        osd: *osd,
        weight: nacre_wire::map::Weight::OUT,
        automatic: false,
    };
    monitors.commit(old.iter().map(out).collect());
    let new = monitors.map.pgs[&PG].acting.clone();
    assert!(
        new.len() == 2 && new.iter().all(|osd| !old.contains(osd)),
        "{old:?} {new:?}"
    );
    let mut host = Host::new(new[0].0);
    host.tell(MON, monitors.map.epoch, monitors.full());
    let (interval, epoch) = (monitors.map.pgs[&PG].since, monitors.map.epoch);
    let version = Version {
        interval: Epoch(3),
        number: 1,
    };
    for osd in old.iter().chain(&new[1..]) {
        let mut info = PgInfo::default();
        if old.contains(osd) {
            (info.exists, info.head, info.spans) = (true, version, vec![version]);
        }
        let info = PeerInfo {
            pg: PG,
            interval,
            info,
            lease_left_ns: 0,
            logged_max: 0,
        };
        host.tell(Entity::Osd(*osd), epoch, Message::PeerInfo(info));
    }
    let asked: Vec<&Vec<OsdId>> = host
        .to_mon
        .iter()
        .filter_map(|message| match message {
            Message::PgTemporaryRequest(request) => Some(&request.acting),
            _ => None,
        })
        .collect();
    assert!(
        !asked.is_empty(),
        "nobody of the last interval acts: {:?}",
        host.to_mon
    );
    assert!(
        asked
            .iter()
            .all(|acting| acting[0] == new[0] && old.contains(&acting[1])),
        "{asked:?}"
    );
}

/// The member of [`served_by_two`] starts over with nothing; the primary has one object of two
/// parts to give it.
fn one_object_to_give() -> (Host, Epoch, Epoch, u32, Version) {
    let (mut monitors, mut host, epoch, member) = served_by_two();
    let from = Entity::Osd(OsdId(member));
    write(1, epoch, &mut host);
    let version = Version {
        interval: monitors.map.pgs[&PG].since,
        number: 1,
    };
    let interval = version.interval;
    host.tell(from, epoch, logged(interval, version));
    monitors.down(member);
    let now = monitors.up(member, process(member, 2));
    host.tell(MON, now, monitors.since(epoch));
    let interval = monitors.map.pgs[&PG].since;
    let info = PeerInfo {
        pg: PG,
        interval,
        info: PgInfo::default(),
        lease_left_ns: 0,
        logged_max: 0,
    };
    host.tell(from, now, Message::PeerInfo(info));
    let missing = vec![Missing {
        object: ObjectId::named("a"),
        need: version,
        have: Version::NONE,
    }];
    host.tell(
        from,
        now,
        Message::AdoptAck(AdoptAck {
            pg: PG,
            interval,
            head: version,
            missing,
            backfill: None,
            undone: vec![],
        }),
    );
    (host, now, interval, member, version)
}

pub(crate) fn pushes(host: &mut Host, to: u32) -> Vec<(u32, bool)> {
    let part = |message: &Message| match message {
        Message::Push(push, _) => Some((push.part, push.last)),
        _ => None,
    };
    host.sent_to(to).iter().filter_map(part).collect()
}

/// Simulator with the real store, seed 439. The acknowledgement of an object's last part was lost.
/// The receiver had put the object into its place and forgotten the transfer; it ignored the last
/// part, which was resent again and again; the backfill made no progress any more.
#[test]
fn an_object_whose_last_acknowledgement_is_lost_is_sent_from_the_beginning() {
    let (mut host, epoch, interval, member, version) = one_object_to_give();
    let sent = host.sent_to(member);
    let Some(transfer) = sent.iter().find_map(|message| match message {
        Message::Push(push, _) if (push.part, push.last) == (0, false) => Some(push.transfer),
        _ => None,
    }) else {
        panic!("{sent:?}")
    };
    let ack = PushAck {
        pg: PG,
        interval,
        object: ObjectId::named("a"),
        version,
        part: 0,
        have: true,
        damaged: false,
        transfer,
    };
    host.tell(Entity::Osd(OsdId(member)), epoch, Message::PushAck(ack));
    assert_eq!(pushes(&mut host, member), [(1, true)]);
    let mut again = Vec::new();
    for _ in 0..6 {
        host.wait(500);
        again.extend(pushes(&mut host, member));
    }
    assert_eq!(again[..3], [(1, true), (1, true), (0, false)], "{again:?}");
}

/// A receiver whose store takes three seconds for a part: the transfer restarted before the first
/// part was acknowledged, each time, and the acknowledgement then belonged to an ended transfer.
#[test]
fn a_slow_receiver_has_the_whole_object_in_the_end() {
    let (mut host, epoch, interval, member, version) = one_object_to_give();
    let mut stored: Vec<(u64, Push)> = Vec::new();
    for step in 0..240 {
        let parts = host
            .sent_to(member)
            .into_iter()
            .filter_map(|message| match message {
                Message::Push(push, _) => Some((step, push)),
                _ => None,
            });
        stored.extend(parts);
        if stored.iter().any(|(_, push)| push.last) {
            return;
        }
        let late = stored.iter().filter(|(at, _)| step - at == 6);
        for (
            _,
            Push {
                object,
                part,
                transfer,
                ..
            },
        ) in late.cloned().collect::<Vec<_>>()
        {
            let ack = PushAck {
                pg: PG,
                interval,
                object,
                version,
                part,
                have: true,
                damaged: false,
                transfer,
            };
            host.tell(Entity::Osd(OsdId(member)), epoch, Message::PushAck(ack));
        }
        host.wait(500);
    }
    panic!("two minutes, and the second part was not sent");
}

/// Simulator with the real store, seed 738. A primary received an object that it missed, and began
/// to read it for a client while it was being made durable. When it was durable, the object's
/// context was dropped; the read returned and found none, and the daemon died of an assertion.
#[test]
fn an_object_may_be_read_while_it_is_made_durable() {
    let mut monitors = Monitors::of(2);
    for osd in 0..2 {
        monitors.up(osd, process(osd, 1));
    }
    monitors.pool(2);
    let acting = monitors.map.pgs[&PG].acting.clone();
    let interval = monitors.map.pgs[&PG].since;
    monitors.commit(vec![Change::PgActivate {
        pg: PG,
        interval,
        members: acting.clone(),
    }]);
    monitors.down(acting[0].0);
    monitors.up(acting[0].0, process(acting[0].0, 2));
    let mut host = Host::start(acting[0].0, 2, Host::new(acting[0].0).store);
    let (from, epoch, interval) = (
        Entity::Osd(acting[1]),
        monitors.map.epoch,
        monitors.map.pgs[&PG].since,
    );
    host.tell(MON, epoch, monitors.full());
    // The other member has one object, of which we have nothing.
    let version = Version {
        interval: Epoch(3),
        number: 1,
    };
    let has = PgInfo {
        exists: true,
        head: version,
        spans: vec![version],
        ..PgInfo::default()
    };
    host.tell(
        from,
        epoch,
        Message::PeerInfo(PeerInfo {
            pg: PG,
            interval,
            info: has,
            lease_left_ns: 0,
            logged_max: 0,
        }),
    );
    let entries = vec![first_of_a(version)];
    let log = LogReply {
        pg: PG,
        interval,
        from: Version::NONE,
        tail: Version::NONE,
        head: version,
        entries,
        dedup: Dedup::default(),
        totals: Totals::default(),
    };
    host.tell(from, epoch, Message::LogReply(log));
    let adopted = AdoptAck {
        pg: PG,
        interval,
        head: version,
        missing: Vec::new(),
        backfill: None,
        undone: vec![],
    };
    host.tell(from, epoch, Message::AdoptAck(adopted));
    let members = monitors.map.pgs[&PG].acting.clone();
    let after = monitors.commit(vec![Change::PgActivate {
        pg: PG,
        interval,
        members,
    }]);
    host.tell(MON, after, monitors.since(epoch));
    host.wait(1000);
    grants_a_lease(&mut host, from, after);
    assert!(
        host.sent_to(acting[1].0)
            .iter()
            .any(|message| matches!(message, Message::Pull(_))),
        "it asks for the object"
    );
    // The object arrives; the store takes its time to make it durable.
    host.commits = false;
    host.tell(from, after, copy_of_a(interval, version, b"x"));
    host.held = Some(Vec::new());
    read(2, after, &mut host);
    // The object's attributes arrive; its data is read.
    host.release();
    assert_eq!(host.held.as_ref().map(Vec::len), Some(1));
    // Now the object is durable, and then the data arrives.
    host.commits = true;
    host.wait(50);
    host.release();
    let answered = |(_, message): &(Entity, Message)| matches!(message, Message::OpReply(reply, _) if reply.failure.is_none());
    assert!(host.sent.iter().any(answered), "{:?}", host.sent);
}

/// A member with much space answers a ping that was sent now.
fn grants_a_lease(host: &mut Host, from: Entity, epoch: Epoch) {
    let (stamp, lease_ns) = (host.now.0, 500_000_000);
    let pong = Pong {
        stamp,
        lease_ns,
        nearly_full: false,
        share: 1 << 30,
        most: 1 << 30,
        no_room: false,
    };
    host.tell(from, epoch, Message::Pong(pong));
}
/// The member reports that it has nothing in the compared range, which is the whole PG.
pub(crate) fn has_nothing(host: &mut Host, (epoch, interval): (Epoch, Epoch), target: OsdId) {
    let round = compared(host);
    let reply = ScanReply {
        pg: PG,
        interval,
        from: Bytes::new(),
        to: None,
        objects: Vec::new(),
        round,
    };
    host.tell(Entity::Osd(target), epoch, Message::ScanReply(reply));
}
/// The primary's current comparison.
pub(crate) fn compared(host: &Host) -> u64 {
    let group = host
        .osd
        .pgs()
        .find(|group| group.id() == PG)
        .expect("it is there");
    group.as_primary().expect("it leads").backfill.round()
}
/// The whole object `a` at a version, as another member sends it.
pub(crate) fn copy_of_a(interval: Epoch, version: Version, data: &'static [u8]) -> Message {
    let push = Push {
        pg: PG,
        interval,
        object: ObjectId::named("a"),
        version,
        absent: false,
        part: 0,
        last: true,
        size: data.len() as u64,
        offset: 0,
        attrs: vec![(
            nacre_types::Name::copy(nacre_object::VERSION_ATTR),
            nacre_object::version_value(version, 0),
        )],
        omap: Vec::new(),
        transfer: 1,
    };
    Message::Push(push, vec![Bytes::from_static(data)])
}

/// Simulator with real monitors, seed 268. Two members had everything, one with a shorter log than
/// the other. By the longer log the PG's new members could follow by log, by the shorter they could
/// not: each primary judged by its own log, and the two handed the PG to each other, 38,000 times.
#[test]
fn of_those_who_know_everything_the_longest_log_is_the_measure() {
    let mut monitors = Monitors::of(3);
    for osd in 0..3 {
        monitors.up(osd, process(osd, 1));
    }
    monitors.pool(3);
    let acting = monitors.map.pgs[&PG].acting.clone();
    let interval = monitors.map.pgs[&PG].since;
    monitors.commit(vec![Change::PgActivate {
        pg: PG,
        interval,
        members: acting.clone(),
    }]);
    monitors.down(acting[0].0);
    monitors.up(acting[0].0, process(acting[0].0, 2));
    let (epoch, interval) = (monitors.map.epoch, monitors.map.pgs[&PG].since);
    let head = Version {
        interval: Epoch(3),
        number: 9,
    };
    let (low, high) = (acting[1].min(acting[2]), acting[1].max(acting[2]));
    for longest in [low, high] {
        let mut host = Host::start(acting[0].0, 2, Host::new(acting[0].0).store);
        host.tell(MON, epoch, monitors.full());
        for osd in [low, high] {
            let tail = if osd == longest {
                Version::NONE
            } else {
                Version { number: 5, ..head }
            };
            let info = PgInfo {
                exists: true,
                head,
                tail,
                spans: vec![head],
                ..PgInfo::default()
            };
            host.tell(
                Entity::Osd(osd),
                epoch,
                Message::PeerInfo(PeerInfo {
                    pg: PG,
                    interval,
                    info,
                    lease_left_ns: 0,
                    logged_max: 0,
                }),
            );
        }
        let asked = host
            .sent_to(longest.0)
            .iter()
            .any(|message| matches!(message, Message::LogQuery(_)));
        assert!(
            asked,
            "{longest} has the longest log; to the monitors: {:?}",
            host.to_mon
        );
    }
}

/// A member that was brought up to date with this log becomes primary of three who all answer:
/// returns the host, the epoch, the interval, and the other two.
fn primary_with_log(
    tail: Version,
    head: Version,
    entries: Vec<Record>,
) -> (Host, Epoch, Epoch, [OsdId; 2]) {
    let mut monitors = Monitors::of(3);
    for osd in 0..3 {
        monitors.up(osd, process(osd, 1));
    }
    monitors.pool_that_needs(2, 3);
    let [first, second, third] = monitors.map.pgs[&PG].acting[..] else {
        panic!("three of three")
    };
    let interval = monitors.map.pgs[&PG].since;
    monitors.commit(vec![Change::PgTemporary {
        pg: PG,
        interval,
        acting: vec![second, first, third],
    }]);
    let interval = monitors.map.pgs[&PG].since;
    let epoch = monitors.commit(vec![Change::PgActivate {
        pg: PG,
        interval,
        members: vec![second, first, third],
    }]);
    let mut host = Host::new(first.0);
    host.tell(MON, epoch, monitors.full());
    let adopt = Adopt {
        pg: PG,
        interval,
        from: tail,
        tail,
        head,
        entries,
        dedup: Dedup::default(),
        restart: true,
        committed: Version::NONE,
        totals: Totals::default(),
    };
    host.tell(Entity::Osd(second), epoch, Message::Adopt(adopt));
    host.tell(
        Entity::Osd(second),
        epoch,
        Message::Progress(Progress {
            pg: PG,
            interval,
            cursor: None,
            round: 0,
        }),
    );
    let after = monitors.commit(vec![Change::PgTemporary {
        pg: PG,
        interval,
        acting: Vec::new(),
    }]);
    host.tell(MON, after, monitors.since(epoch));
    (host, after, monitors.map.pgs[&PG].since, [second, third])
}

/// The library's seed 74. The primary's log was longer than the authoritative one and diverged from
/// it at a position without an entry here: the other half of a split has it. From its own former
/// log, the primary could not see that a third member shares that position; peering had let that
/// member in because it shares the position with the authoritative log. The member started over in
/// the acting set, where it is never brought up to date.
#[test]
fn who_follows_by_the_authoritys_log_is_given_what_comes_after_what_he_shares_with_that() {
    let old = |number| Version {
        interval: Epoch(3),
        number,
    };
    let entry = |version| crate::pg::testing::entry("a", Version::NONE, version);
    let (mut host, after, interval, [second, third]) =
        primary_with_log(old(1), old(9), vec![entry(old(2))]);
    let (tail, new) = (
        old(5),
        Version {
            interval: Epoch(4),
            number: 10,
        },
    );
    for (osd, head, spans) in [
        (second, new, vec![tail, new]),
        (third, old(7), vec![old(7)]),
    ] {
        let info = PgInfo {
            exists: true,
            head,
            tail,
            spans,
            activated: Epoch(3),
            ..PgInfo::default()
        };
        let info = PeerInfo {
            pg: PG,
            interval,
            info,
            lease_left_ns: 0,
            logged_max: 0,
        };
        host.tell(Entity::Osd(osd), after, Message::PeerInfo(info));
    }
    let asked = host
        .sent_to(second.0)
        .into_iter()
        .find_map(|message| match message {
            Message::LogQuery(query) => Some(query.common),
            _ => None,
        });
    assert_eq!(asked, Some(tail), "where the two parted");
    let (dedup, totals) = (Dedup::default(), Totals::default());
    let reply = LogReply {
        pg: PG,
        interval,
        from: tail,
        tail,
        head: new,
        entries: vec![entry(new)],
        dedup,
        totals,
    };
    host.tell(Entity::Osd(second), after, Message::LogReply(reply));
    let adopts = host
        .sent_to(third.0)
        .into_iter()
        .find_map(|message| match message {
            Message::Adopt(adopt) => Some((adopt.restart, adopt.from, adopt.entries)),
            _ => None,
        });
    assert_eq!(adopts, Some((false, tail, vec![entry(new)])));
}

/// Simulator with snapshots, seed 1486. The primary's log began later than that of another complete
/// member; the third could follow by the other's log, and was let into the acting set. But the
/// primary took from the other log only what it lacked itself, which was nothing: by the primary's
/// log the third could not follow. It started over in the acting set, where it is never brought up
/// to date.
#[test]
fn a_primary_with_a_short_log_takes_what_others_need_to_follow() {
    let number = |number| Version {
        interval: Epoch(3),
        number,
    };
    let entry = |n| crate::pg::testing::entry(&format!("object-{n}"), Version::NONE, number(n));
    let entries: Vec<Record> = (1..=9).map(entry).collect();
    let (mut host, after, interval, [second, third]) =
        primary_with_log(number(5), number(9), entries[5..].to_vec());
    for (osd, head) in [(second, 9), (third, 3)] {
        let spans = vec![number(head)];
        let info = PgInfo {
            exists: true,
            head: number(head),
            spans,
            activated: Epoch(3),
            ..PgInfo::default()
        };
        let info = PeerInfo {
            pg: PG,
            interval,
            info,
            lease_left_ns: 0,
            logged_max: 0,
        };
        host.tell(Entity::Osd(osd), after, Message::PeerInfo(info));
    }
    let asked = host
        .sent_to(second.0)
        .into_iter()
        .find_map(|message| match message {
            Message::LogQuery(query) => Some(query.common),
            _ => None,
        });
    assert_eq!(asked, Some(Version::NONE), "all of it");
    // The request or its answer may be lost: the same part is requested again.
    host.sent.clear();
    host.wait(2000);
    let again = host
        .sent_to(second.0)
        .into_iter()
        .find_map(|message| match message {
            Message::LogQuery(query) => Some(query.common),
            _ => None,
        });
    assert_eq!(again, Some(Version::NONE), "all of it, again");
    let reply = LogReply {
        pg: PG,
        interval,
        from: Version::NONE,
        tail: Version::NONE,
        head: number(9),
        entries: entries.clone(),
        dedup: Dedup::default(),
        totals: Totals::default(),
    };
    host.tell(Entity::Osd(second), after, Message::LogReply(reply));
    let adopts = host
        .sent_to(third.0)
        .into_iter()
        .find_map(|message| match message {
            Message::Adopt(adopt) => Some((adopt.restart, adopt.from, adopt.entries)),
            _ => None,
        });
    assert_eq!(adopts, Some((false, number(3), entries[3..].to_vec())));
    // The trimmed entries are in the store again, and clients that resend are known.
    let host = host.restart(2);
    let local = &host
        .osd
        .pgs()
        .find(|pg| pg.id() == PG)
        .expect("it is there")
        .local;
    assert_eq!(
        (local.log.tail(), local.log.entries().len()),
        (Version::NONE, 9)
    );
    assert!(local.missing.is_empty(), "its objects were there already");
    assert!(matches!(
        local.dedup.seen(&entries[1].request()),
        crate::pg::dedup::Seen::Done(_)
    ));
}

/// A primary that serves alone for a member that is being brought up to date and is complete except
/// for this cursor.
fn served_for_another(backfill: Option<Bytes>) -> (Host, Epoch, Epoch, OsdId) {
    let (_, host, epoch, interval, target) = served_by_monitors_for_another(backfill);
    (host, epoch, interval, target)
}
pub(crate) fn served_by_monitors_for_another(
    backfill: Option<Bytes>,
) -> (Monitors, Host, Epoch, Epoch, OsdId) {
    let mut monitors = Monitors::of(2);
    for osd in 0..2 {
        monitors.up(osd, process(osd, 1));
    }
    monitors.pool_that_needs(1, 2);
    let (primary, target) = (
        monitors.map.pgs[&PG].acting[0],
        monitors.map.pgs[&PG].acting[1],
    );
    let mut host = Host::new(primary.0);
    let interval = monitors.map.pgs[&PG].since;
    monitors.commit(vec![Change::PgTemporary {
        pg: PG,
        interval,
        acting: vec![primary],
    }]);
    let (from, epoch, interval) = (
        Entity::Osd(target),
        monitors.map.epoch,
        monitors.map.pgs[&PG].since,
    );
    host.tell(MON, epoch, monitors.full());
    let old = Version {
        interval: Epoch(1),
        number: 7,
    };
    let info = PgInfo {
        exists: true,
        head: old,
        tail: old,
        spans: vec![old],
        backfill: backfill.clone(),
        ..PgInfo::default()
    };
    host.tell(
        from,
        epoch,
        Message::PeerInfo(PeerInfo {
            pg: PG,
            interval,
            info,
            lease_left_ns: 0,
            logged_max: 0,
        }),
    );
    host.tell(
        from,
        epoch,
        Message::AdoptAck(AdoptAck {
            pg: PG,
            interval,
            head: Version::NONE,
            missing: Vec::new(),
            backfill,
            undone: vec![],
        }),
    );
    let after = monitors.commit(vec![Change::PgActivate {
        pg: PG,
        interval,
        members: vec![primary],
    }]);
    host.tell(MON, after, monitors.since(epoch));
    (monitors, host, after, interval, target)
}

/// Simulator with the real store, seed 439. A compare-and-set was reading the data to compare when
/// backfill held its object's range to compare it with the target's. The update was ordered after
/// the comparison: the object to push was no longer the compared one, the push was given up, and
/// the backfill made no progress any more.
#[test]
fn a_range_is_not_compared_while_an_update_in_it_is_still_reading() {
    let (mut host, after, interval, target) = served_for_another(Some(Bytes::new()));
    write(1, after, &mut host);
    assert!(
        host.sent_to(target.0)
            .iter()
            .any(|message| matches!(message, Message::ScanQuery(_)))
    );
    // The compare-and-set waits for its data.
    host.held = Some(Vec::new());
    let swap = vec![
        SubOp::CompareData {
            offset: 0,
            length: 3,
        },
        SubOp::WriteFull { length: 3 },
    ];
    ask(
        10,
        1,
        1,
        swap,
        vec![Bytes::from_static(b"abc"), Bytes::from_static(b"xyz")],
        after,
        &mut host,
    );
    let waiting = host.held.take().expect("set above");
    assert_eq!(waiting.len(), 1);
    // The range is listed, here and there.
    has_nothing(&mut host, (after, interval), target);
    assert_eq!(
        pushes(&mut host, target.0),
        [],
        "not yet: the object is about to change"
    );
    host.held = Some(waiting);
    host.release();
    host.held = None;
    host.wait(1000);
    let versions: Vec<Version> = host
        .sent_to(target.0)
        .iter()
        .filter_map(|message| match message {
            Message::Push(push, _) => Some(push.version),
            _ => None,
        })
        .collect();
    assert!(
        versions.iter().any(|version| version.number == 2),
        "the object as it is now: {versions:?}"
    );
}

/// Simulator with snapshots, seed 1018. As above, and the update made a clone of its object, which
/// was in no listing: the target never got it, and its cursor passed the position. A member without
/// the clone became primary later, and trimmed only clones that it had itself: the clone stayed on
/// one of the others for ever.
#[test]
fn a_range_has_what_came_into_being_after_it_was_listed() {
    let (mut monitors, mut host, epoch, interval, target) =
        served_by_monitors_for_another(Some(Bytes::new()));
    write(1, epoch, &mut host);
    let snap = nacre_types::SnapId(1);
    let after = monitors.commit(vec![Change::SnapCreate {
        pool: PG.pool,
        snap,
        name: "monday".into(),
    }]);
    host.tell(MON, after, monitors.since(epoch));
    host.sent_to(target.0);
    host.held = Some(Vec::new());
    let swap = vec![
        SubOp::CompareData {
            offset: 0,
            length: 3,
        },
        SubOp::WriteFull { length: 3 },
    ];
    ask(
        10,
        1,
        1,
        swap,
        vec![Bytes::from_static(b"abc"), Bytes::from_static(b"xyz")],
        after,
        &mut host,
    );
    // The object in the clone's place is known, and the clone's size, and the data is being read.
    host.release();
    host.release();
    let waiting = host.held.take().expect("set above");
    assert_eq!(waiting.len(), 1);
    has_nothing(&mut host, (after, interval), target);
    host.held = Some(waiting);
    host.release();
    host.held = None;
    host.wait(1000);
    let pushed = |message| match message {
        Message::Push(push, _) => Some((push.object.to_string(), push.version.number)),
        _ => None,
    };
    let pushed: std::collections::BTreeSet<_> = host
        .sent_to(target.0)
        .into_iter()
        .filter_map(pushed)
        .collect();
    assert_eq!(pushed, [("a:1".into(), 2), ("a".into(), 3)].into());
}

/// Simulator with real monitors, seed 205. Backfill was done and the primary requested the end of
/// the temporary acting set from the monitors; that message was lost with the connection. No client
/// was writing to the PG, so it was not checked again: it stayed remapped for ever.
#[test]
fn the_end_of_a_temporary_set_is_asked_for_until_it_comes() {
    let (mut host, ..) = served_for_another(None);
    let asked = |host: &mut Host| {
        let ends = |message: &Message| matches!(message, Message::PgTemporaryRequest(ask) if ask.acting.is_empty());
        std::mem::take(&mut host.to_mon)
            .iter()
            .filter(|message| ends(message))
            .count()
    };
    assert_eq!(asked(&mut host), 1);
    for _ in 0..8 {
        host.wait(500);
    }
    assert!(asked(&mut host) >= 2, "although no client does anything");
}

/// A range was done while backfill was forbidden, and no client was writing to the PG: when
/// backfill was allowed again, the PG was not checked.
#[test]
fn backfill_goes_on_when_it_is_allowed_again() {
    let (mut monitors, mut host, epoch, interval, target) =
        served_by_monitors_for_another(Some(Bytes::new()));
    let from = Entity::Osd(target);
    let asks = |host: &mut Host| {
        let sent = host.sent_to(target.0);
        sent.iter()
            .filter(|message| matches!(message, Message::ScanQuery(_)))
            .count()
    };
    assert_eq!(asks(&mut host), 1);
    let stopped = monitors.commit(vec![Change::Flags {
        flags: nacre_wire::map::flag::NO_BACKFILL,
    }]);
    host.tell(MON, stopped, monitors.since(epoch));
    // The range in progress ends; the next one waits.
    let to = Some(Bytes::from_static(&[0x80]));
    let round = compared(&host);
    let reply = ScanReply {
        pg: PG,
        interval,
        from: Bytes::new(),
        to: to.clone(),
        objects: Vec::new(),
        round,
    };
    host.tell(from, stopped, Message::ScanReply(reply));
    host.wait(1000);
    host.tell(
        from,
        stopped,
        Message::ProgressAck(ProgressAck {
            pg: PG,
            interval,
            cursor: to,
            round,
        }),
    );
    for _ in 0..8 {
        host.wait(500);
    }
    assert_eq!(asks(&mut host), 0, "it is forbidden");
    let goes_on = monitors.commit(vec![Change::Flags { flags: 0 }]);
    host.tell(MON, goes_on, monitors.since(stopped));
    for _ in 0..4 {
        host.wait(500);
    }
    assert!(asks(&mut host) > 0, "it is allowed");
}

/// A block of the primary's replica is corrupt. The reader does not get that error: the operation
/// waits, another member's replica replaces the damaged one, and the answer is from that.
#[test]
fn a_damaged_copy_is_healed_from_another_member() {
    let (_, mut host, epoch, member) = served_by_two();
    let from = Entity::Osd(OsdId(member));
    write(1, epoch, &mut host);
    let updates = host.sent_to(member);
    let sent = updates.iter().find_map(|message| match message {
        Message::Replicate(update, _) => Some((
            update.updates[0].interval,
            update.updates[0].entry.version(),
        )),
        _ => None,
    });
    let (interval, version) = sent.expect("the write goes to the member");
    host.tell(from, epoch, logged(interval, version));
    grants_a_lease(&mut host, from, epoch);
    assert!(
        host.store
            .corrupt(&crate::key::store_key(PG, &ObjectId::named("a")), 0)
    );
    host.sent.clear();
    read(2, epoch, &mut host);
    let pulls =
        |message: &Message| matches!(message, Message::Pull(pull) if pull.version == version);
    assert!(
        host.sent_to(member).iter().any(pulls),
        "it asks for the other copy"
    );
    assert!(
        host.sent.is_empty(),
        "nobody is told anything yet: {:?}",
        host.sent
    );
    host.tell(from, epoch, copy_of_a(interval, version, b"abc"));
    let good = |(_, message): &(Entity, Message)| matches!(message, Message::OpReply(reply, data) if reply.failure.is_none() && data.concat() == b"abc");
    assert!(host.sent.iter().any(good), "{:?}", host.sent);
}

/// Simulator with real monitors, seed 445. A primary was cut off with leases that were still valid.
/// The next interval was activated and waited for them; before they expired it ended, and the one
/// after it waited only for the leases of *its* primary. It served at once, and the first primary,
/// still within its lease, answered with overwritten data. So an interval requests its activation
/// only when the earlier leases have expired.
#[test]
fn an_activation_waits_for_the_old_primarys_leases() {
    let mut monitors = Monitors::of(3);
    for osd in 0..3 {
        monitors.up(osd, process(osd, 1));
    }
    monitors.pool_that_needs(2, 3);
    let acting = monitors.map.pgs[&PG].acting.clone();
    let interval = monitors.map.pgs[&PG].since;
    monitors.commit(vec![Change::PgActivate {
        pg: PG,
        interval,
        members: acting.clone(),
    }]);
    monitors.down(acting[0].0);
    let mut host = Host::new(acting[1].0);
    let (epoch, interval) = (monitors.map.epoch, monitors.map.pgs[&PG].since);
    // A member starts with the state that makes the PG exist, and as if it had just granted a
    // lease.
    host.tell(MON, epoch, monitors.full());
    let from = Entity::Osd(acting[2]);
    let head = Version {
        interval: Epoch(3),
        number: 1,
    };
    let info = PgInfo {
        exists: true,
        head,
        spans: vec![head],
        ..PgInfo::default()
    };
    host.tell(
        from,
        epoch,
        Message::PeerInfo(PeerInfo {
            pg: PG,
            interval,
            info,
            lease_left_ns: 300_000_000,
            logged_max: 0,
        }),
    );
    let log = LogReply {
        pg: PG,
        interval,
        from: Version::NONE,
        tail: Version::NONE,
        head,
        entries: vec![first_of_a(head)],
        dedup: Dedup::default(),
        totals: Totals::default(),
    };
    host.tell(from, epoch, Message::LogReply(log));
    host.tell(
        from,
        epoch,
        Message::AdoptAck(AdoptAck {
            pg: PG,
            interval,
            head,
            missing: Vec::new(),
            backfill: None,
            undone: vec![],
        }),
    );
    let asks = |host: &Host| {
        host.to_mon
            .iter()
            .any(|message| matches!(message, Message::PgActivateRequest(_)))
    };
    for _ in 0..5 {
        host.wait(50);
        assert!(!asks(&host), "the old primary may still answer reads");
    }
    host.wait(60);
    assert!(asks(&host), "its leases are over: {:?}", host.to_mon);
}

/// A client that has the answer to its first write only appends a letter that its operation's
/// number determines.
fn append(sequence: u64, attempt: u32, epoch: Epoch, host: &mut Host) {
    let letter = Bytes::from(vec![b'a' + sequence as u8]);
    let request = operation(9, sequence, attempt, vec![SubOp::Append { length: 1 }]);
    let request = OpRequest {
        answered_below: 3,
        ..request
    };
    host.tell(
        Entity::Client(ClientId(9)),
        epoch,
        Message::OpRequest(request, vec![letter]),
    );
}
/// The data that the client reads then, if it is answered.
fn read_by_appender(epoch: Epoch, host: &mut Host) -> Option<Vec<u8>> {
    host.sent.clear();
    ask(
        9,
        6,
        1,
        vec![SubOp::Read {
            offset: 0,
            length: 100,
        }],
        Payload::new(),
        epoch,
        host,
    );
    host.sent.iter().find_map(|(_, message)| match message {
        Message::OpReply(reply, payload) if reply.request.sequence == 6 => Some(payload.concat()),
        _ => None,
    })
}

/// Simulator, seed 2051. A daemon that waited for a map held a client's operations of an older
/// interval, and had no memory for the same ones when they were resent under the new one. Then it
/// received the held ones: the old duplicates were refused, and with them the note was removed that
/// the new ones were still to come. Operations that the client had sent after them were executed
/// first.
#[test]
fn a_copy_of_an_older_interval_does_not_stand_for_one_that_found_no_room() {
    let (mut monitors, mut host, old) = served_alone();
    host.osd.set_limits(Limits {
        held_messages: 4,
        ..Limits::default()
    });
    monitors.down(0);
    monitors.up(0, process(0, 1));
    host.commits = false;
    host.tell(MON, monitors.map.epoch, monitors.since(old));
    let new = monitors.map.epoch;
    assert!(!host.osd.is_live(), "its instance is not durable yet");
    for (attempt, epoch) in [(1, old), (2, new)] {
        append(3, attempt, epoch, &mut host);
        append(4, attempt, epoch, &mut host);
    }
    host.commits = true;
    host.wait(1);
    assert!(host.osd.is_live());
    append(5, 2, new, &mut host);
    let interval = monitors.map.pgs[&PG].since;
    let active = monitors.commit(vec![Change::PgActivate {
        pg: PG,
        interval,
        members: vec![OsdId(0)],
    }]);
    host.tell(MON, active, monitors.since(new));
    host.wait(10_000);
    for sequence in 3..6 {
        append(sequence, 3, active, &mut host);
    }
    host.wait(100);
    let data = read_by_appender(active, &mut host);
    assert_eq!(data.as_deref(), Some(&b"abcdef"[..]));
}

/// (Review.) Messages that wait for a map are dropped after 20 s. A client's operations and their
/// later duplicates are held in turn, and the first one that was dropped let the next one overtake
/// its duplicate.
#[test]
fn what_was_held_for_too_long_is_not_overtaken_by_what_came_after_it() {
    let (mut monitors, mut host, old) = served_alone();
    let settings = Pool::replicated("another".into(), 1, 1, 1);
    let new = monitors.commit(vec![Change::PoolSet {
        pool: PoolId(2),
        settings,
    }]);
    for attempt in 1..=11 {
        append(3, attempt, new, &mut host);
        host.wait(1_000);
        append(4, attempt, new, &mut host);
        host.wait(1_000);
        if attempt == 10 {
            // The first copy of 3 is dropped, and that of 4 not yet.
            host.wait(500);
            host.tell(MON, new, monitors.since(old));
            host.wait(100);
        }
    }
    for sequence in [3, 4] {
        append(sequence, 20, new, &mut host);
    }
    host.wait(100);
    let data = read_by_appender(new, &mut host);
    let data = data.map(|data| String::from_utf8_lossy(&data).into_owned());
    assert!(
        data.as_ref().is_some_and(|data| data.ends_with("de")),
        "{data:?}"
    );
}

/// (Planted by a reviewer: each option took effect one change late.)
#[test]
fn an_option_counts_for_leases_as_soon_as_it_is_heard() {
    let (mut monitors, mut host, epoch) = served_alone();
    let lease = |host: &mut Host, epoch| {
        host.sent.clear();
        host.tell(
            Entity::Osd(OsdId(5)),
            epoch,
            Message::Ping(Ping { stamp: 1 }),
        );
        let pong = host
            .sent_to(5)
            .into_iter()
            .find_map(|message| match message {
                Message::Pong(pong) => Some(pong.lease_ns),
                _ => None,
            });
        pong.expect("it answers")
    };
    let before = lease(&mut host, epoch);
    let mut set = |host: &mut Host, value: Option<&str>| {
        let since = monitors.map.epoch;
        let change = Change::Config {
            key: "osd.lease_ms".into(),
            value: value.map(Into::into),
        };
        let epoch = monitors.commit(vec![change]);
        host.tell(MON, epoch, monitors.since(since));
        epoch
    };
    let epoch = set(&mut host, Some("100"));
    assert_eq!(lease(&mut host, epoch), 100_000_000);
    let epoch = set(&mut host, None);
    assert_eq!(lease(&mut host, epoch), before);
    assert_ne!(before, 100_000_000);
}
