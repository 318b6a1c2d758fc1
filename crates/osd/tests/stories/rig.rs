//! One daemon on a RAM store; the test plays the monitors, peers and clients.

use crate::boot::format;
use crate::config::{Limits, OsdConfig, Timing};
use crate::osd::Osd;
use bytes::Bytes;
use nacre_role::{Input, Job, Output, Role as _, Tools};
use nacre_store::{Event, ObjectStore, Op, RamStore, Token};
use nacre_types::{
    ClientId, ClusterId, Entity, Epoch, Instance, MonId, Name, ObjectId, OsdId, PgId, PoolId, Time,
};
use nacre_wire::map::{Address, Change, ClusterMap, CrushSection, MapDelta, Pool, Weight};
use nacre_wire::msg::client::{OpRequest, RequestId, SubOp};
use nacre_wire::msg::monitor::{MapDeltas, MapFull};
use nacre_wire::{Message, Payload, Wire};
use std::sync::Arc;
use std::time::Duration;

pub(super) const MON: Entity = Entity::Mon(MonId(0));

pub(super) const PG: PgId = PgId::replicated(PoolId(1), 0);

/// The monitors: one history of maps.
pub(super) struct Monitors {
    pub(super) map: ClusterMap,
    pub(super) deltas: Vec<(Epoch, Bytes)>,
}

impl Monitors {
    /// OSDs on hosts of their own, no pool.
    pub(super) fn of(osds: u32) -> Self {
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
    pub(super) fn commit(&mut self, changes: Vec<Change>) -> Epoch {
        let delta: MapDelta = self.map.delta(changes);
        self.map.apply(&delta).expect("made from this map");
        self.deltas.push((delta.epoch, delta.to_bytes().into()));
        delta.epoch
    }
    /// Grants the next instance to a process.
    pub(super) fn up(&mut self, osd: u32, process: u64) -> Epoch {
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
    pub(super) fn down(&mut self, osd: u32) -> Epoch {
        let instance = self.map.osds[&OsdId(osd)].instance;
        self.commit(vec![Change::OsdDown {
            osd: OsdId(osd),
            instance,
        }])
    }
    /// So many OSDs on hosts of their own, each with its first process up; no pool.
    pub(super) fn all_up(osds: u32) -> Self {
        let mut monitors = Self::of(osds);
        for osd in 0..osds {
            monitors.up(osd, process(osd, 1));
        }
        monitors
    }
    /// Activates the PG in its current interval.
    pub(super) fn activate(&mut self, members: Vec<OsdId>) -> Epoch {
        let interval = self.map.pgs[&PG].since;
        self.commit(vec![Change::PgActivate {
            pg: PG,
            interval,
            members,
        }])
    }
    pub(super) fn pool(&mut self, size: u8) -> Epoch {
        self.pool_that_needs(size, size)
    }
    pub(super) fn pool_that_needs(&mut self, min_size: u8, size: u8) -> Epoch {
        let settings = Pool::replicated("registers".into(), size, min_size, 1);
        self.commit(vec![Change::PoolSet {
            pool: PoolId(1),
            settings,
        }])
    }
    pub(super) fn full(&self) -> Message {
        Message::MapFull(MapFull {
            map: self.map.to_bytes().into(),
        })
    }
    pub(super) fn since(&self, epoch: Epoch) -> Message {
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

/// An operator's change of an OSD's weight.
pub(super) const fn weighted(osd: u32, weight: Weight) -> Change {
    Change::OsdWeight {
        osd: OsdId(osd),
        weight,
        automatic: false,
    }
}

/// A daemon with its store and a clock under the test's control.
pub(super) struct Host {
    pub(super) osd: Osd,
    pub(super) store: RamStore,
    pub(super) now: Time,
    /// Messages to the monitors, since last taken.
    pub(super) to_mon: Vec<Message>,
    /// Messages to others, since last taken.
    pub(super) sent: Vec<(Entity, Message)>,
    pub(super) removed: usize,
    /// Whether the store makes its transactions durable.
    pub(super) commits: bool,
    /// Answers of the store that are held back, if any.
    pub(super) held: Option<Vec<Event>>,
    /// Operations that take long and are not evaluated yet, if they wait.
    pub(super) jobs: Option<Vec<Arc<dyn Job>>>,
}

/// The process number of the OSD's start number `starts`.
pub(super) const fn process(id: u32, starts: u64) -> u64 {
    starts << 32 | (id as u64 + 1)
}

pub(super) fn config(id: u32, starts: u64) -> OsdConfig {
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
    pub(super) fn new(id: u32) -> Self {
        let mut store = RamStore::new();
        store
            .submit(format(ClusterId(1), OsdId(id)), Token(0))
            .expect("an empty store takes it");
        store.request_commit();
        Self::start(id, 1, store)
    }
    pub(super) fn start(id: u32, starts: u64, mut store: RamStore) -> Self {
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
    pub(super) fn restart(self, starts: u64) -> Self {
        let id = self.osd.id().0;
        Self::start(id, starts, self.store.crash(0))
    }
    pub(super) fn perform(&mut self, mut out: Vec<Output>) {
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
    pub(super) fn release(&mut self) {
        let mut out = Vec::new();
        for event in std::mem::take(self.held.as_mut().expect("they are held back")) {
            self.osd.on_input(self.now, Input::Store(event), &mut out);
        }
        self.perform(out);
    }
    /// Waiting operations are evaluated; later ones do not wait any more.
    pub(super) fn evaluate(&mut self) {
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
    pub(super) fn tell(&mut self, from: Entity, epoch: Epoch, message: Message) {
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
    pub(super) fn name(&mut self, client: Entity, name: Name) {
        self.osd
            .on_input(self.now, Input::Named(client, name), &mut Vec::new());
    }
    pub(super) fn wait(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        let mut out = Vec::new();
        self.osd.on_input(self.now, Input::Tick, &mut out);
        self.perform(out);
    }
    pub(super) fn boots(&mut self) -> Vec<Instance> {
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
    pub(super) fn sent_to(&mut self, osd: u32) -> Vec<Message> {
        let (taken, left) = std::mem::take(&mut self.sent)
            .into_iter()
            .partition(|(to, _)| *to == Entity::Osd(OsdId(osd)));
        self.sent = left;
        let taken: Vec<(Entity, Message)> = taken;
        taken.into_iter().map(|(_, message)| message).collect()
    }
}

/// A client's operation on the one object.
pub(super) fn operation(client: u64, sequence: u64, attempt: u32, ops: Vec<SubOp>) -> OpRequest {
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

pub(super) fn ask(
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

pub(super) fn write(sequence: u64, epoch: Epoch, host: &mut Host) {
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

pub(super) fn read(sequence: u64, epoch: Epoch, host: &mut Host) {
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
