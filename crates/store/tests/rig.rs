//! Shared by the tests: a store on a test device, driven with jobs held back and reordered, and
//! random transactions.

use bytes::Bytes;
use nacre_store::testing::{Completion, Image, TestDevice};
use nacre_store::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::collections::BTreeMap;
use std::ops::Bound;

pub const C: CollectionId = CollectionId(7);
pub const D: CollectionId = CollectionId(8);

pub fn key(name: impl Into<String>) -> ObjectKey {
    ObjectKey::new(C, name.into())
}

/// Small numbers from a seed.
pub struct Rng(pub ChaCha8Rng);
impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Options with which a small workload exercises every mechanism.
pub fn options() -> OpenOptions {
    OpenOptions {
        deferred_write_max: 12 << 10,
        beside_group_min: 0,
        cache_bytes: 16 << 10,
        index_cache_bytes: 1 << 20,
        memtable_bytes: 24 << 10,
        deferred_bytes: 96 << 10,
        queue_bytes_max: 512 << 10,
        salt: 0x5a17_5a17_5a17_5a17,
        ..OpenOptions::default()
    }
}

/// The same; but whole blocks of small objects stay in place, too, once they have one.
pub fn in_place() -> OpenOptions {
    OpenOptions {
        small_object_max: 0,
        ..options()
    }
}

pub struct Rig {
    pub device: TestDevice,
    pub store: Store<TestDevice>,
    pub rng: Rng,
    held: Vec<Job>,
    /// The losses reported: transaction and object.
    pub lost: Vec<(u64, ObjectKey)>,
    pub events: Vec<Event>,
    pub answers: BTreeMap<Token, Result<ReadReply, ReadError>>,
    pub applied: u64,
    pub committed: u64,
    /// The test holds a job back.
    pub keeps_job: bool,
    next_read: u64,
}

impl Rig {
    pub fn format(length: u64) -> TestDevice {
        let device = TestDevice::new(length);
        format(
            &device.blocking(),
            &FormatOptions {
                wal_bytes: Some(1 << 20),
                ..FormatOptions::default()
            },
        )
        .expect("a healthy device");
        device
    }

    pub fn open(device: TestDevice, options: &OpenOptions, seed: u64) -> Self {
        let store = Store::open(device.clone(), device.blocking(), options).expect("a sound store");
        Self {
            device,
            store,
            rng: Rng::new(seed),
            held: Vec::new(),
            lost: Vec::new(),
            events: Vec::new(),
            answers: BTreeMap::new(),
            applied: 0,
            committed: 0,
            keeps_job: false,
            next_read: 1 << 32,
        }
    }

    /// Space for little more than the workload, so that it is soon reused.
    pub fn small(seed: u64) -> Self {
        Self::with_collections(9 << 20, seed)
    }
    pub fn fresh(seed: u64) -> Self {
        Self::with_collections(16 << 20, seed)
    }
    fn with_collections(length: u64, seed: u64) -> Self {
        let mut rig = Self::open(Self::format(length), &options(), seed);
        rig.must(
            Transaction::new().create_collection(C).create_collection(D),
            0,
        );
        rig.settle();
        rig.committed = 0;
        rig.applied = 0;
        rig
    }

    pub fn from_image(length: u64, image: Image) -> Self {
        Self::open(TestDevice::with_image(length, image), &options(), 0)
    }

    pub fn shuffled(self, seed: u64) -> Self {
        self.device.set_completion(Completion::Shuffled(seed));
        self
    }

    pub fn must(&mut self, transaction: Transaction, token: u64) {
        for _ in 0..10_000 {
            match self.store.submit(transaction.clone(), Token(token)) {
                Ok(()) => return,
                Err(SubmitError::Busy) => {
                    self.store.request_commit();
                    self.turn();
                }
                Err(error) => panic!("{error}"),
            }
        }
        panic!("busy for ever");
    }

    /// Processes events; checks their order.
    fn drain(&mut self) {
        let from = self.events.len();
        self.store.poll(&mut self.events);
        for event in &self.events[from..] {
            match event {
                Event::Applied(token) => {
                    assert!(
                        self.applied == 0 || token.0 == self.applied + 1 || token.0 == 0,
                        "applied out of order"
                    );
                    self.applied = token.0;
                }
                Event::Lost(token, object) => {
                    assert!(
                        token.0 > self.applied || token.0 == 0,
                        "it is told before anybody can read it"
                    );
                    self.lost.push((token.0, object.clone()));
                }
                Event::Committed(token) => {
                    assert!(
                        self.committed == 0 || token.0 == self.committed + 1,
                        "committed out of order"
                    );
                    assert!(token.0 <= self.applied, "committed before applied");
                    self.committed = token.0;
                    self.device.mark(token.0 << 1 | 1);
                }
                Event::Read(token, answer) => {
                    assert!(
                        self.answers.insert(*token, answer.clone()).is_none(),
                        "answered twice"
                    );
                }
                Event::Failed(failure) => panic!("{failure:?}"),
            }
        }
        self.events.clear();
        self.store.check();
    }

    /// One wake-up of a host: some jobs finish, in any order; some continue.
    pub fn turn(&mut self) {
        self.store.jobs(&mut self.held);
        for _ in 0..self.held.len() {
            if self.rng.chance(60) && !self.held.is_empty() {
                let at = self.rng.below(self.held.len() as u64) as usize;
                let done = self.held.swap_remove(at).run();
                if self.rng.chance(50) {
                    self.drain();
                }
                self.store.on_job(done);
            }
        }
        self.drain();
    }

    /// Runs until everything submitted is committed and answered.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            self.store.request_commit();
            self.turn();
            self.store.jobs(&mut self.held);
            if self.held.is_empty() && self.committed == self.applied && !self.store.is_busy() {
                if !self.keeps_job {
                    self.store.check_at_rest();
                }
                return;
            }
        }
        panic!("does not come to rest");
    }

    pub fn ask(&mut self, read: Read) -> Result<ReadReply, ReadError> {
        let token = Token(self.next_read);
        self.next_read += 1;
        self.store.read(read, token);
        for _ in 0..100_000 {
            if let Some(answer) = self.answers.remove(&token) {
                return answer;
            }
            self.turn();
        }
        panic!("no answer");
    }

    pub fn data(&mut self, object: &ObjectKey) -> Result<Vec<u8>, ReadError> {
        match self.ask(Read::Data {
            object: object.clone(),
            offset: 0,
            length: u64::MAX,
        })? {
            ReadReply::Data(segments) => Ok(segments.concat()),
            other => panic!("{other:?}"),
        }
    }
}

/// The same reads for a store and for the model.
pub trait Answers {
    fn answer(&mut self, read: Read) -> Result<ReadReply, ReadError>;
}
impl Answers for Rig {
    fn answer(&mut self, read: Read) -> Result<ReadReply, ReadError> {
        self.ask(read)
    }
}
impl Answers for RamStore {
    fn answer(&mut self, read: Read) -> Result<ReadReply, ReadError> {
        self.read(read, Token(u64::MAX));
        let mut events = Vec::new();
        self.poll(&mut events);
        match events.pop() {
            Some(Event::Read(_, answer)) => answer,
            other => panic!("{other:?}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectDump {
    stat: ObjectStat,
    data: Vec<u8>,
    omap: Vec<(Bytes, Bytes)>,
}
impl ObjectDump {
    /// Enough to show the difference.
    pub fn brief(&self) -> String {
        let sum = self
            .data
            .iter()
            .fold(0_u64, |s, &b| s.wrapping_mul(31).wrapping_add(b.into()));
        format!(
            "size {} attrs {} data {sum:x} omap {:?}",
            self.stat.size,
            self.stat.attrs.len(),
            self.omap
        )
    }
}
pub type Dump = BTreeMap<ObjectKey, ObjectDump>;

/// The complete contents.
pub fn dump(store: &mut impl Answers) -> Dump {
    let mut all = Dump::new();
    for collection in [C, D] {
        let mut from = Bytes::new();
        loop {
            let list = Read::List {
                collection,
                from: from.clone(),
                to: None,
                limit: 5,
            };
            let (keys, more) = match store.answer(list) {
                Ok(ReadReply::List { keys, more }) => (keys, more),
                Err(ReadError::NotFound) => break,
                other => panic!("{other:?}"),
            };
            for key in &keys {
                let object = ObjectKey {
                    collection,
                    key: key.clone(),
                };
                all.insert(object.clone(), dump_object(store, &object));
            }
            match keys.last() {
                Some(last) if more => from = [&last[..], &[0]].concat().into(),
                _ => break,
            }
        }
    }
    all
}

fn dump_object(store: &mut impl Answers, object: &ObjectKey) -> ObjectDump {
    let stat = match store.answer(Read::Stat(object.clone())) {
        Ok(ReadReply::Stat(Some(stat))) => stat,
        other => panic!("{object:?} was listed but {other:?}"),
    };
    let data = match store.answer(Read::Data {
        object: object.clone(),
        offset: 0,
        length: u64::MAX,
    }) {
        Ok(ReadReply::Data(data)) => data.concat(),
        other => panic!("{object:?}: {other:?}"),
    };
    let mut omap: Vec<(Bytes, Bytes)> = Vec::new();
    loop {
        let from = omap
            .last()
            .map_or(Bound::Unbounded, |(last, _)| Bound::Excluded(last.clone()));
        let read = Read::Omap {
            object: object.clone(),
            from,
            to: None,
            limit_entries: 7,
            limit_bytes: 200,
        };
        match store.answer(read) {
            Ok(ReadReply::Omap { entries, more }) => {
                assert!(!more || !entries.is_empty(), "no progress");
                omap.extend(entries);
                if !more {
                    break;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    ObjectDump { stat, data, omap }
}

fn some_object(rng: &mut Rng) -> ObjectKey {
    ObjectKey::new(
        if rng.chance(80) { C } else { D },
        format!("o{}", rng.below(8)),
    )
}

fn some_bytes(rng: &mut Rng, length: u64) -> Bytes {
    let seed = rng.0.next_u64() | 1;
    (0..length)
        .map(|i| (seed.wrapping_mul(i + 1) >> 32) as u8)
        .collect()
}

fn some_range(rng: &mut Rng) -> (u64, u64) {
    match rng.below(6) {
        0 => (rng.below(600), 1 + rng.below(500)),
        1 => (rng.below(40) * 4096, 4096),
        2 => (rng.below(150_000), 1 + rng.below(9000)),
        3 => (rng.below(40) * 4096, 4096 * (1 + rng.below(12))),
        4 => (rng.below(300_000), 1 + rng.below(60_000)),
        _ => (0, 1 + rng.below(5000)),
    }
}

/// One random operation.
pub fn some_op(rng: &mut Rng) -> Op {
    let object = some_object(rng);
    let name = |rng: &mut Rng| Bytes::from(format!("k{:02}", rng.below(30)));
    match rng.below(34) {
        0..12 => {
            let (offset, length) = some_range(rng);
            let data = some_bytes(rng, length);
            let cut = rng.below(length + 1) as usize;
            Op::Write {
                object,
                offset,
                data: vec![data.slice(..cut), data.slice(cut..)],
            }
        }
        12 | 13 => {
            let (offset, length) = some_range(rng);
            Op::Zero {
                object,
                offset,
                length,
            }
        }
        14 | 15 => Op::Truncate {
            object,
            size: some_range(rng).0,
        },
        16 => Op::Touch(object),
        17 | 18 => Op::Remove(object),
        19 | 20 => {
            let length = rng.below(300);
            Op::SetAttr {
                object,
                name: name(rng),
                value: some_bytes(rng, length),
            }
        }
        21 => Op::RemoveAttr {
            object,
            name: name(rng),
        },
        22..25 => {
            let entries = (0..1 + rng.below(6))
                .map(|_| (name(rng), some_bytes(rng, 20)))
                .collect();
            Op::OmapSet { object, entries }
        }
        25 => Op::OmapRemove {
            object,
            keys: vec![name(rng), name(rng)],
        },
        26 | 27 => Op::OmapRemoveRange {
            object,
            from: name(rng),
            to: rng.chance(70).then(|| name(rng)),
        },
        28 => Op::OmapClear(object),
        29 | 30 => Op::Clone {
            from: object,
            to: some_object(rng),
        },
        31 | 32 => {
            let (offset, length) = some_range(rng);
            let to_offset = if rng.chance(60) {
                offset % 4096 + rng.below(20) * 4096
            } else {
                rng.below(50_000)
            };
            Op::CloneRange {
                from: object,
                to: some_object(rng),
                offset,
                length,
                to_offset,
            }
        }
        _ => Op::Rename {
            from: object,
            to: some_object(rng),
        },
    }
}

/// A random transaction that also records its number.
pub fn some_transaction(rng: &mut Rng, number: u64) -> Transaction {
    let ops = (0..1 + rng.below(4)).map(|_| some_op(rng)).collect();
    Transaction { ops }.omap_set(key("meta"), "last", number.to_be_bytes().to_vec())
}

/// The number of the last transaction that the store holds.
pub fn last_transaction(store: &mut impl Answers) -> u64 {
    match store.answer(Read::OmapGet {
        object: key("meta"),
        keys: vec!["last".into()],
    }) {
        Ok(ReadReply::Omap { entries, .. }) => {
            u64::from_be_bytes(entries[0].1[..].try_into().expect("eight bytes"))
        }
        Err(ReadError::NotFound) => 0,
        other => panic!("{other:?}"),
    }
}

/// Opens an idle store again. Its device is consistent, and memory had no unused unit marked as
/// taken.
pub fn reopen(rig: Rig, options: &OpenOptions) -> Rig {
    let (device, before) = (rig.device.clone(), rig.store.data_units());
    drop(rig);
    assert_sound(&device);
    let rig = Rig::open(device, options, 9);
    assert_eq!(
        rig.store.data_units(),
        before,
        "units of data, opened again beside before"
    );
    rig
}

/// Asserts that the offline check finds nothing.
pub fn assert_sound(device: &TestDevice) {
    let report = check(&device.blocking(), CheckOptions { data: true }).expect("a healthy device");
    assert!(report.is_clean(), "{:#?}", report.findings);
}
