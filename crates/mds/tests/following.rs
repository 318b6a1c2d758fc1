//! Standbys that follow a journal, and takeovers after that.

use crate::crash::World;
use crate::objects::{Objects, config, small};
use crate::rig::Dice;
use nacre_client::{Capabilities, Completion, Failure, ObjectCluster, OpId, Operation, Refused};
use nacre_conformance::memory::{Memory, Object};
use nacre_mds::Followed;
use nacre_mds::follow::{BYTES_MAX, Follow, Source};
use nacre_mds::journal::{Batch, JournalHead, head_name, object_name};
use nacre_mds::mds::{Mds, MdsConfig};
use nacre_types::{Name, ObjectId, PoolId, Time, Version};
use nacre_wire::Wire as _;
use nacre_wire::msg::client::SubOp;
use std::collections::BTreeMap;
use std::time::Duration;

/// A standby's reads, which are executed and end at random times.
#[derive(Default)]
struct Reads {
    begun: Option<(OpId, Operation)>,
    ended: Vec<Completion>,
    count: u64,
}
impl ObjectCluster for Reads {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }
    fn submit(&mut self, _: Time, operation: Operation) -> Result<OpId, Refused> {
        assert!(!operation.ops.iter().any(SubOp::is_write), "{operation:?}");
        self.count += 1;
        let id = OpId(self.count);
        assert!(
            self.begun.replace((id, operation)).is_none(),
            "one at a time"
        );
        Ok(id)
    }
    fn completions(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.ended);
    }
}

/// A standby that follows one rank.
pub struct Standby {
    follow: Follow,
    reads: Reads,
    source: Source,
    dice: Dice,
    /// How much faster its clock runs: it looks more often than once a second.
    pub haste: u64,
}

impl Standby {
    pub fn new(config: &MdsConfig, seed: u64) -> Self {
        let MdsConfig {
            rank,
            namespace,
            pool,
            ..
        } = config.clone();
        let source = Source {
            file_system: Name::from("home"),
            rank,
            namespace,
            pool,
            taken: 1,
        };
        let mut follow = Follow::new(BYTES_MAX);
        follow.set(std::slice::from_ref(&source));
        Self {
            follow,
            reads: Reads::default(),
            source,
            dice: Dice(seed),
            haste: 200,
        }
    }
    /// A turn, in which a read may be executed, or end.
    pub fn turn(&mut self, now: Time, memory: &mut Memory) {
        let now = Time(now.0 * self.haste);
        let mut ended = Vec::new();
        if self.dice.below(2) == 0 {
            self.reads.completions(&mut ended);
        }
        ended
            .iter()
            .for_each(|completion| self.follow.on_completion(now, completion));
        self.follow.on_turn(now, &mut self.reads);
        if self.dice.below(3) > 0
            && let Some((id, operation)) = self.reads.begun.take()
        {
            self.reads.ended.push(Completion {
                id,
                result: memory.perform(&operation),
            });
        }
    }
    /// Everything that is due, at once.
    fn look(&mut self, now: Time, memory: &mut Memory) -> u64 {
        let before = self.reads.count;
        while self.follow.next_deadline() <= now || self.reads.begun.is_some() {
            self.follow.on_turn(now, &mut self.reads);
            if let Some((id, operation)) = self.reads.begun.take() {
                let completion = Completion {
                    id,
                    result: memory.perform(&operation),
                };
                self.follow.on_completion(now, &completion);
            }
        }
        self.reads.count - before
    }
    /// What it holds from a former holder. From now on it follows the next one.
    pub fn take(&mut self) -> Followed {
        let followed = self.follow.take(&self.source).expect("it was told to");
        self.reads = Reads {
            count: self.reads.count,
            ..Reads::default()
        };
        self.source.taken += 1;
        self.follow.set(std::slice::from_ref(&self.source));
        followed
    }
}

/// Everything except the journals.
fn directories(memory: &Memory) -> BTreeMap<(PoolId, ObjectId), Object> {
    let is_journal = |object: &ObjectId| object.name.as_bytes().starts_with(b"journal.");
    memory
        .all
        .iter()
        .filter(|((_, object), _)| !is_journal(object))
        .map(|(at, what)| {
            (
                at.clone(),
                Object {
                    version: Version::NONE,
                    ..what.clone()
                },
            )
        })
        .collect()
}

/// The state of a new holder that may have followed: once it is live, and after everything is
/// written and no client has come; and the bytes read until it was live, and the number of turns.
fn takeover(config: &MdsConfig, memory: &Memory, followed: Followed) -> Result<Taken, String> {
    let mut objects = Objects::new();
    objects.memory = memory.clone();
    let mut mds = Mds::open_after(config.clone(), followed);
    let (mut now, mut turns, mut out) = (Time(1), 0, Vec::new());
    let mut turn = |mds: &mut Mds, objects: &mut Objects, ms| {
        now = now + Duration::from_millis(ms);
        mds.on_turn(now, objects, &mut out);
        mds.ended().map_or(Ok(()), |why| Err(why.clone()))
    };
    while !mds.is_live() {
        turn(&mut mds, &mut objects, 1)?;
        turns += 1;
        if !mds.is_live() {
            objects.work(8);
        }
    }
    let (found, read) = (mds.figures(), objects.read);
    for _ in 0..2_000 {
        turn(&mut mds, &mut objects, 20)?;
        objects.work(8);
    }
    assert!(mds.is_idle(), "{mds:?}");
    Ok(Taken {
        found: format!("{found:?}"),
        directories: directories(&objects.memory),
        read,
        turns,
    })
}

#[derive(Debug)]
struct Taken {
    found: String,
    directories: BTreeMap<(PoolId, ObjectId), Object>,
    read: u64,
    turns: u32,
}

/// Histories with crashes, each taken over in both ways: what was followed, however late, and what
/// came since, changes only what is read.
#[test]
fn a_takeover_after_following_comes_to_the_same() {
    let (mut followed_bytes, mut saved, mut whole) = (0, 0, 0);
    for seed in 0..60 {
        let config = if seed % 2 == 0 {
            config()
        } else {
            small(seed / 2)
        };
        let mut world = World::with(seed, 2, config.clone());
        world.standby = Some(Standby {
            haste: [20, 200, 1_000][seed as usize % 3],
            ..Standby::new(&config, seed)
        });
        world.run_unfinished(30 + 10 * (seed as usize % 4));
        let mut standby = world.standby.take().expect("just put there");
        // Some of the former holder's operations in flight are executed after the last look.
        world.objects.crash(seed as usize % 4);
        let memory = &world.objects.memory;
        let followed = standby.take();
        followed_bytes += followed.bytes();
        let with = takeover(&config, memory, followed).expect("the journal is good");
        let without = takeover(&config, memory, Followed::default()).expect("the journal is good");
        assert_eq!(with.found, without.found, "seed {seed}");
        assert_eq!(with.directories, without.directories, "seed {seed}");
        assert!(
            with.read <= without.read,
            "seed {seed}: {} {}",
            with.read,
            without.read
        );
        (saved, whole) = (saved + without.read - with.read, whole + without.read);
    }
    assert!(
        followed_bytes > 50_000 && saved > whole / 3,
        "{followed_bytes} followed, {saved} of {whole} not read again"
    );
}

/// A journal whose batches come and go.
struct Writer {
    memory: Memory,
    config: MdsConfig,
    next: u64,
}
impl Writer {
    fn new() -> Self {
        let (memory, config) = (Memory::default(), config());
        let mut writer = Self {
            memory,
            config,
            next: 0,
        };
        let first = nacre_mds::mds::first_objects(&writer.config, nacre_wire::fs::Stamp(1));
        first
            .iter()
            .for_each(|operation| drop(writer.memory.perform(operation).expect("it is new")));
        writer
    }
    fn key(&self, name: &str) -> (PoolId, ObjectId) {
        let namespace = self.config.namespace.clone();
        (
            self.config.pool,
            ObjectId {
                name: Name::from(name),
                namespace,
                ..ObjectId::default()
            },
        )
    }
    fn object(&mut self, number: u64) -> &mut Vec<u8> {
        let key = self.key(&object_name(self.config.rank, number));
        &mut self.memory.all.entry(key).or_default().data
    }
    fn append(&mut self, number: u64, batches: u64) {
        for _ in 0..batches {
            let frame = Batch {
                sequence: self.next,
                serial: (1 << 20) + self.next,
                ..Batch::default()
            }
            .frame();
            self.next += 1;
            self.object(number).extend(frame);
        }
    }
    fn head(&mut self, first: u64, sequence: u64) {
        let key = self.key(&head_name(self.config.rank));
        let head = JournalHead {
            first,
            sequence,
            serial: 1 << 20,
            gone_below: first,
            ..JournalHead::default()
        };
        self.memory.all.entry(key).or_default().data = head.to_bytes();
    }
    fn remove(&mut self, number: u64) {
        let key = self.key(&object_name(self.config.rank, number));
        self.memory.all.remove(&key).expect("it was there");
    }
    /// Both ways end alike: with the same state, or with the same error.
    fn assert_same(&self, followed: Followed) -> Result<Taken, String> {
        let with = takeover(&self.config, &self.memory, followed);
        let without = takeover(&self.config, &self.memory, Followed::default());
        match (&with, &without) {
            (Ok(with), Ok(without)) => {
                assert_eq!(
                    (&with.found, &with.directories),
                    (&without.found, &without.directories)
                );
            }
            (with, without) => assert_eq!(with.as_ref().err(), without.as_ref().err()),
        }
        with
    }
}
const fn at(s: u64) -> Time {
    Time(s * 1_000_000_000)
}

/// A standby reads what is new once, and little while nothing is.
#[test]
fn what_is_new_is_read_once() {
    let mut writer = Writer::new();
    let mut standby = Standby::new(&writer.config, 1);
    assert_eq!(
        standby.look(at(1), &mut writer.memory),
        2,
        "a head, and no object"
    );
    writer.append(0, 3);
    let length = writer.object(0).len() as u64;
    assert_eq!(
        (
            standby.look(at(4), &mut writer.memory),
            standby.follow.bytes()
        ),
        (3, length),
        "head, 0 and 1"
    );
    assert_eq!(standby.follow.next_deadline(), at(5), "it grows");
    // It was full after some more batches, which are read together with the next object.
    writer.append(0, 2);
    writer.append(1, 1);
    let (first, second) = (writer.object(0).len() as u64, writer.object(1).len() as u64);
    assert_eq!(
        (
            standby.look(at(5), &mut writer.memory),
            standby.follow.bytes()
        ),
        (3, first + second)
    );
    let mut looks = Vec::new();
    for s in 6..100 {
        match standby.look(at(s), &mut writer.memory) {
            0 => {}
            reads => looks.push((s, reads)),
        }
    }
    // Nothing new: reads where it ends, and periodically whether its beginning was deleted.
    assert_eq!(looks[..5], [(6, 2), (8, 2), (12, 2), (20, 3), (28, 2)]);
    writer.head(1, 5);
    writer.remove(0);
    assert!(standby.look(at(120), &mut writer.memory) > 0);
    assert_eq!(standby.follow.bytes(), second, "what is gone is not held");
    assert_eq!(
        standby.look(at(200), &mut writer.memory),
        2,
        "there is nothing that could go"
    );
    let taken = writer.assert_same(standby.take()).expect("it is good");
    assert_eq!(taken.turns, 3, "head; the journal; it is live");
}

/// The head moved on, the journal grew, an object was added, after the last look.
#[test]
fn what_came_after_the_last_look_is_read() {
    for (grown, more, first) in [
        (0, 0, 0),
        (2, 0, 0),
        (0, 1, 0),
        (2, 3, 0),
        (2, 3, 2),
        (0, 3, 3),
        (1, 2, 4),
    ] {
        let mut writer = Writer::new();
        let mut standby = Standby::new(&writer.config, 1);
        for number in 0..3 {
            writer.append(number, 3);
        }
        standby.look(at(1), &mut writer.memory);
        assert_eq!(standby.follow.bytes(), 3 * writer.object(1).len() as u64);
        writer.append(2, grown);
        for number in 3..3 + more {
            writer.append(number, 2);
        }
        let sequences = [0, 3, 6, 9 + grown, 11 + grown];
        if first > 0 {
            writer.head(first, sequences[first as usize]);
            (0..first).for_each(|number| writer.remove(number));
        }
        writer.assert_same(standby.take()).expect("it is good");
    }
}

/// Many objects, several at a time, whether they were followed or not.
#[test]
fn objects_are_read_several_at_a_time() {
    let mut writer = Writer::new();
    for number in 0..40 {
        writer.append(number, 2);
    }
    let mut standby = Standby::new(&writer.config, 1);
    standby.look(at(1), &mut writer.memory);
    let with = writer.assert_same(standby.take()).expect("it is good");
    let without =
        takeover(&writer.config, &writer.memory, Followed::default()).expect("it is good");
    assert!(without.turns < 20, "{} turns for 40 objects", without.turns);
    assert_eq!(with.read, 0, "checksums only");
    assert!(without.read > 0);
}

/// Damage is detected, whether the journal was followed or not: before the last look, or after it.
#[test]
fn damage_is_not_hidden_by_what_was_followed() {
    let mut found = 0;
    for look_first in [true, false] {
        for number in 0..4_u64 {
            for byte in 0..4 {
                let mut writer = Writer::new();
                let mut standby = Standby::new(&writer.config, 1);
                (0..3).for_each(|number| writer.append(number, 3));
                if look_first {
                    standby.look(at(1), &mut writer.memory);
                }
                writer.append(2, 1);
                writer.append(3, 2);
                // In the first batch or the last, or a missing end; and everything.
                match byte {
                    0 if look_first => writer.object(number)[9] ^= 1,
                    0 => *writer.object(number).last_mut().expect("some") ^= 1,
                    1 => drop(writer.object(number).pop()),
                    2 => writer.object(number).push(0),
                    _ => writer.object(number).clear(),
                }
                if !look_first {
                    standby.look(at(1), &mut writer.memory);
                }
                let why = writer
                    .assert_same(standby.take())
                    .expect_err("it is damaged");
                assert!(
                    why.contains(&format!(
                        "its journal is damaged: object journal.0.{number:08x}"
                    )),
                    "{why}"
                );
                found += 1;
            }
        }
    }
    assert_eq!(found, 32);
    // A missing object ends the journal, as it does without following.
    let mut writer = Writer::new();
    let mut standby = Standby::new(&writer.config, 1);
    (0..3).for_each(|number| writer.append(number, 3));
    standby.look(at(1), &mut writer.memory);
    writer.remove(1);
    writer
        .assert_same(standby.take())
        .expect("as if it had ended");
    // A head that cannot be read.
    let key = writer.key(&head_name(writer.config.rank));
    writer.memory.all.insert(
        key,
        Object {
            data: vec![7; 9],
            ..Object::default()
        },
    );
    standby.look(at(99), &mut writer.memory);
    assert!(
        writer
            .assert_same(standby.take())
            .expect_err("damaged")
            .contains("journal.0")
    );
}

/// A different journal with the same numbers, or one that went back: nothing that was followed is
/// accepted for it.
#[test]
fn a_journal_that_is_another_one_is_read() {
    let mut old = Writer::new();
    let mut standby = Standby::new(&old.config, 1);
    (0..3).for_each(|number| old.append(number, 3));
    standby.look(at(1), &mut old.memory);
    let mut writer = Writer::new();
    for number in 0..3 {
        for _ in 0..3 {
            let frame = Batch {
                sequence: writer.next,
                serial: (1 << 20) + 77,
                ..Batch::default()
            }
            .frame();
            writer.next += 1;
            writer.object(number).extend(frame);
        }
    }
    writer.assert_same(standby.take()).expect("it is good");
    // What it holds is returned only for what it has followed.
    standby.look(at(2), &mut old.memory);
    let source = standby.source.clone();
    let others = [
        Source {
            taken: source.taken + 1,
            ..source.clone()
        },
        Source {
            namespace: Name::from("home.2"),
            ..source.clone()
        },
        Source {
            pool: PoolId(9),
            ..source.clone()
        },
        Source {
            file_system: Name::from("away"),
            ..source.clone()
        },
    ];
    for other in &others {
        assert!(standby.follow.take(other).is_none(), "{other:?}");
    }
    assert!(standby.follow.bytes() > 0);
    // The rank was created again, or claimed and given back: as far as is known, that is another
    // journal.
    standby.follow.set(&others[..1]);
    assert_eq!(standby.follow.bytes(), 0);
    let mut back = Writer::new();
    (0..3).for_each(|number| back.append(number, 3));
    back.head(2, 6);
    standby.follow.set(std::slice::from_ref(&source));
    standby.look(at(3), &mut back.memory);
    assert_eq!(standby.follow.bytes(), back.object(2).len() as u64);
    back.head(1, 3);
    back.assert_same(standby.take()).expect("it is good");
}

/// What it holds is bounded: it is the beginning of the journal, and deleted objects free space.
#[test]
fn what_is_held_is_bounded() {
    let mut writer = Writer::new();
    let mut standby = Standby::new(&writer.config, 1);
    (0..10).for_each(|number| writer.append(number, 3));
    let object = writer.object(0).len() as u64;
    standby.follow = Follow::new(4 * object - 1);
    standby.follow.set(std::slice::from_ref(&standby.source));
    standby.look(at(1), &mut writer.memory);
    assert_eq!(standby.follow.bytes(), 4 * object);
    for s in 2..60 {
        let reads = standby.look(at(s), &mut writer.memory);
        assert!(reads <= 1, "at most the head: {reads}");
    }
    assert_eq!(standby.follow.bytes(), 4 * object);
    writer.head(2, 6);
    (0..2).for_each(|number| writer.remove(number));
    standby.look(at(80), &mut writer.memory);
    assert_eq!(
        standby.follow.bytes(),
        4 * object,
        "two have gone, and two have come"
    );
    writer
        .assert_same(standby.take())
        .expect("the rest is read");
}

/// Without anything to follow there are no reads; and a store with problems gets no more of them.
#[test]
fn what_cannot_be_read_is_asked_for_seldom() {
    let mut writer = Writer::new();
    writer.append(0, 1);
    let mut standby = Standby::new(&writer.config, 1);
    standby.follow.set(&[]);
    assert_eq!(
        (
            standby.look(at(1), &mut writer.memory),
            standby.follow.next_deadline()
        ),
        (0, Time::MAX)
    );
    standby.follow.set(std::slice::from_ref(&standby.source));
    standby.follow.on_turn(at(1), &mut standby.reads);
    let (id, _) = standby.reads.begun.take().expect("a read");
    assert_eq!(
        standby.follow.next_deadline(),
        Time::MAX,
        "it waits for its end"
    );
    standby.follow.on_completion(
        at(2),
        &Completion {
            id,
            result: Err(Failure::Unknown),
        },
    );
    assert_eq!(standby.follow.next_deadline(), at(10));
    assert!(standby.look(at(10), &mut writer.memory) > 0);
    assert!(standby.follow.bytes() > 0);
}
