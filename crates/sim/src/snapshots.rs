//! Clients that write objects in a pool whose snapshots are created and removed, read them at
//! snapshots, roll back and copy; and checks of the results.
//!
//! Every object has one writer with one operation at a time, so its states are known, in order. A
//! snapshot's name is the time when it was ordered. Checked with every answer:
//! 1. the live object is in its last state, byte for byte: a repeated or reordered append is
//!    detected;
//! 2. an object at a snapshot is in one of the states from the last one completed when the snapshot
//!    was ordered to the last one before the first write whose client knew the snapshot;
//! 3. once a write that knew it is complete, it never changes;
//! 4. after a rollback the object equals its state at the snapshot; after a copy, its source.
//!
//! If an operation fails with an unknown outcome, its object is abandoned: the client continues
//! with another.

use crate::plan::{MS, Plan};
use crate::rng::Rng;
use crate::workload::{POOL, Place, Turn, Workload, operation};
use bytes::Bytes;
use nacre_client::{Client, Completion, Done, Failure, OpId};
use nacre_types::{ObjectId, SnapId};
use nacre_wire::ClusterMap;
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Objects per client.
const OBJECTS: usize = 2;
/// Most snapshots at one time.
const SNAPS: usize = 5;

/// Counters of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapCounts {
    /// Acknowledged writes and deletions.
    pub writes: usize,
    /// Reads at snapshots.
    pub reads: usize,
    /// Of these, reads that differ from the live object at that time.
    pub past: usize,
    /// Rollbacks.
    pub rollbacks: usize,
    /// Copies.
    pub copies: usize,
}
impl fmt::Display for SnapCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            writes,
            reads,
            past,
            rollbacks,
            copies,
        } = self;
        write!(
            f,
            "{writes} preserving writes, {reads} reads at snapshots ({past} of the past), "
        )?;
        write!(f, "{rollbacks} rollbacks, {copies} copies")
    }
}

/// What all clients know and record.
#[derive(Debug, Default)]
pub struct Album {
    /// The counters.
    pub counts: SnapCounts,
    /// Snapshots whose removal was ordered.
    pub removing: BTreeSet<SnapId>,
    objects: usize,
    numbers: u64,
}

/// An object's state; `None` if it does not exist.
type Value = Option<Vec<u8>>;

#[derive(Debug)]
struct State {
    /// `None` after a rollback, until it is read.
    value: Option<Value>,
    ended: u64,
    /// Snapshots known to its writer.
    knew: BTreeSet<SnapId>,
}

#[derive(Debug)]
struct Thing {
    object: ObjectId,
    states: Vec<State>,
    fixed: BTreeMap<SnapId, Value>,
}

impl Thing {
    fn new(album: &mut Album) -> Self {
        album.objects += 1;
        let first = State {
            value: Some(None),
            ended: 0,
            knew: BTreeSet::new(),
        };
        let object = ObjectId::named(&format!("snapped-{}", album.objects));
        Self {
            object,
            states: vec![first],
            fixed: BTreeMap::new(),
        }
    }
    fn now(&self) -> Option<&Value> {
        self.states.last().and_then(|state| state.value.as_ref())
    }
    /// Checks what was read at a snapshot that was ordered at that time.
    fn check(&mut self, snap: SnapId, ordered: u64, found: &Value) {
        let first = self
            .states
            .iter()
            .rposition(|state| state.ended < ordered)
            .unwrap_or_default();
        let knew = self
            .states
            .iter()
            .position(|state| state.knew.contains(&snap));
        let end = knew.unwrap_or(self.states.len()).max(first + 1);
        let same = |state: &State| state.value.as_ref() == Some(found);
        assert!(
            self.states[first..end].iter().any(same),
            "{} at {snap:?}, ordered at {ordered}, is state {:?}, not one from {first} to before {end} of {}",
            self.object,
            self.states.iter().rposition(same),
            self.states.len(),
        );
        if knew.is_some() {
            let fixed = self.fixed.entry(snap).or_insert_with(|| found.clone());
            assert!(
                *fixed == *found,
                "{} at {snap:?} was another state before",
                self.object
            );
        }
    }
}

#[derive(Debug)]
enum Asked {
    Write(usize, State),
    Read(usize, Option<(SnapId, u64)>),
    Rollback(usize, SnapId, u64, State),
}

/// What one client does in a pool with snapshots.
#[derive(Debug, Default)]
pub struct Snapper {
    things: Vec<Thing>,
    asked: Option<(OpId, Asked)>,
    /// The rolled-back object to read next, with its snapshot and the snapshot's time.
    learn: Option<(usize, SnapId, u64)>,
    next_at: u64,
}

/// Named snapshots of the pool, and when they were ordered.
fn snapshots(map: &ClusterMap) -> Vec<(SnapId, u64)> {
    let Some(pool) = map.pools.get(&POOL) else {
        return Vec::new();
    };
    let named = pool.snaps.named.iter();
    named
        .map(|(id, info)| {
            (
                *id,
                info.name.to_string()[1..]
                    .parse()
                    .expect("named by its time"),
            )
        })
        .collect()
}

impl Workload for Snapper {
    type Records = Album;
    type Counts = SnapCounts;

    fn new(plan: &Plan, place: &Place) -> Option<Self> {
        place.does(plan.snaps).then(Self::default)
    }
    fn next_at(&self, finished: bool) -> u64 {
        if self.asked.is_some() || finished {
            u64::MAX
        } else {
            self.next_at
        }
    }
    fn is_settled(&self, _: &Client, _: &Album) -> bool {
        self.asked.is_none()
    }
    fn counts(album: &Album) -> SnapCounts {
        album.counts
    }

    fn advance(&mut self, turn: &mut Turn<'_>, album: &mut Album) {
        if self.next_at(turn.finished) > turn.now {
            return;
        }
        self.next_at = turn.now + turn.rng.between(MS, 60 * MS);
        let Some(map) = turn.role.map() else { return };
        while self.things.len() < OBJECTS {
            self.things.push(Thing::new(album));
        }
        let snaps = snapshots(map);
        let at = self
            .learn
            .map_or_else(|| turn.rng.below(OBJECTS as u64) as usize, |(at, ..)| at);
        let (ops, payload, asked, snapshot) = self.choose(at, &snaps, album, turn.rng);
        let object = ObjectId {
            snapshot: snapshot.unwrap_or(SnapId::HEAD),
            ..self.things[at].object.clone()
        };
        let operation = operation(object, ops, payload);
        self.asked = turn.submit(operation).map(|id| (id, asked));
    }

    fn on_completion(&mut self, done: &Completion, turn: &mut Turn<'_>, album: &mut Album) -> bool {
        let Some((_, asked)) = self.asked.take_if(|(asked, _)| *asked == done.id) else {
            return false;
        };
        match (asked, &done.result) {
            (Asked::Write(at, state), Ok(_)) => {
                album.counts.writes += 1;
                self.things[at].states.push(State {
                    ended: turn.now,
                    ..state
                });
            }
            (Asked::Rollback(at, snap, ordered, state), Ok(_)) => {
                album.counts.rollbacks += 1;
                self.learn = Some((at, snap, ordered));
                self.things[at].states.push(State {
                    ended: turn.now,
                    ..state
                });
            }
            (
                Asked::Read(at, snap),
                Ok(Done {
                    results, payload, ..
                }),
            ) => {
                self.found(at, snap, Some(value_of(results, payload)), album);
            }
            (Asked::Read(at, snap), Err(Failure::Refused(OpFailure::NotFound {}))) => {
                self.found(at, snap, None, album)
            }
            // The snapshot has been removed meanwhile.
            (
                Asked::Read(_, Some((snap, _))) | Asked::Rollback(_, snap, ..),
                Err(Failure::Refused(OpFailure::Invalid { why })),
            ) => {
                assert!(
                    album.removing.contains(&snap),
                    "nobody removed {snap:?}: {why}"
                );
            }
            // It does not exist now and did not exist then.
            (
                Asked::Rollback(at, snap, ordered, _),
                Err(Failure::Refused(OpFailure::NotFound {})),
            ) => {
                let thing = &mut self.things[at];
                assert!(
                    thing.now() == Some(&None),
                    "{} is there and cannot be rolled back",
                    thing.object
                );
                thing.check(snap, ordered, &None);
            }
            // Nothing has changed.
            (_, Err(Failure::Refused(OpFailure::Full {} | OpFailure::TooMany { .. }))) => {}
            (Asked::Read(..), Err(Failure::Refused(OpFailure::Corrupt { .. }))) => {
                self.end(self.learn.map(|(at, ..)| at), album)
            }
            // It may have been executed; or the object or the source of the copy cannot be read.
            (Asked::Write(at, _) | Asked::Rollback(at, ..) | Asked::Read(at, _), Err(failure)) => {
                assert!(
                    failure.may_have_happened(),
                    "{}: {failure}",
                    self.things[at].object
                );
                self.end(Some(at), album);
            }
        }
        true
    }
}

impl Snapper {
    fn choose(
        &self,
        at: usize,
        snaps: &[(SnapId, u64)],
        album: &mut Album,
        rng: &mut Rng,
    ) -> (Vec<SubOp>, Vec<Bytes>, Asked, Option<SnapId>) {
        let whole = || {
            vec![
                SubOp::Read {
                    offset: 0,
                    length: 1 << 20,
                },
                SubOp::OmapGet {
                    keys: vec!["sum".into()],
                },
            ]
        };
        let Some(now) = self.things[at].now().filter(|_| self.learn.is_none()) else {
            return (whole(), vec![], Asked::Read(at, None), None);
        };
        let state = |value| State {
            value,
            ended: 0,
            knew: snaps.iter().map(|(snap, _)| *snap).collect(),
        };
        let snap = (!snaps.is_empty()).then(|| *rng.pick(snaps));
        let write = |op: SubOp, data: Vec<u8>, value: Vec<u8>| {
            let sum = vec![("sum".into(), Bytes::from(checksum(&value)))];
            let asked = Asked::Write(at, state(Some(Some(value))));
            (
                vec![op, SubOp::OmapSet { entries: sum }],
                vec![data.into()],
                asked,
                None,
            )
        };
        match (rng.below(12), snap) {
            (0..=3, Some((snap, ordered))) => (
                whole(),
                vec![],
                Asked::Read(at, Some((snap, ordered))),
                Some(snap),
            ),
            (4, Some((snap, ordered))) => (
                vec![SubOp::Rollback { snap }],
                vec![],
                Asked::Rollback(at, snap, ordered, state(None)),
                None,
            ),
            (5, _) if now.is_some() => (
                vec![SubOp::Delete {}],
                vec![],
                Asked::Write(at, state(Some(None))),
                None,
            ),
            (6, _) if let Some(Some(value)) = self.things[1 - at].now() => {
                let source = self.things[1 - at].object.clone();
                let asked = Asked::Write(at, state(Some(Some(value.clone()))));
                album.counts.copies += 1;
                (vec![SubOp::CopyFrom { source }], vec![], asked, None)
            }
            (7..=9, _) => {
                album.numbers += 1;
                let data = album.numbers.to_le_bytes().to_vec();
                let value = [now.as_deref().unwrap_or_default(), &data].concat();
                write(SubOp::Append { length: 8 }, data, value)
            }
            (10, _) => (whole(), vec![], Asked::Read(at, None), None),
            _ => {
                album.numbers += 1;
                let data = crate::registers::content(album.numbers).to_vec();
                write(
                    SubOp::WriteFull {
                        length: data.len() as u64,
                    },
                    data.clone(),
                    data,
                )
            }
        }
    }

    /// Abandons an object whose state is unknown.
    fn end(&mut self, at: Option<usize>, album: &mut Album) {
        self.learn = None;
        if let Some(at) = at {
            self.things[at] = Thing::new(album);
        }
    }

    fn found(&mut self, at: usize, snap: Option<(SnapId, u64)>, found: Value, album: &mut Album) {
        let thing = &mut self.things[at];
        match (snap, self.learn.take()) {
            (Some((snap, ordered)), _) => {
                album.counts.reads += 1;
                album.counts.past += usize::from(thing.now() != Some(&found));
                thing.check(snap, ordered, &found);
            }
            (None, Some((_, snap, ordered))) => {
                let rolled = thing.states.pop().expect("just pushed");
                thing.check(snap, ordered, &found);
                thing.states.push(State {
                    value: Some(found),
                    ..rolled
                });
            }
            (None, None) => {
                assert!(
                    thing.now() == Some(&found),
                    "{} is {found:?}, not {:?}",
                    thing.object,
                    thing.now()
                )
            }
        }
    }
}

fn checksum(value: &[u8]) -> Vec<u8> {
    xxhash_rust::xxh3::xxh3_64(value).to_le_bytes().to_vec()
}

/// The data, checked against the checksum in the omap.
fn value_of(results: &[SubReply], payload: &[Bytes]) -> Vec<u8> {
    let data = payload.concat();
    let [_, SubReply::Entries { entries, .. }] = results else {
        panic!("{results:?}")
    };
    assert_eq!(
        entries[..],
        [(Bytes::from("sum"), Bytes::from(checksum(&data)))],
        "data and omap are of one state"
    );
    data
}

/// An occasional order of the operator about the pool's snapshots: the command, and the snapshot
/// that it removes.
pub fn order(
    map: &ClusterMap,
    pool: &str,
    now: u64,
    rng: &mut Rng,
) -> (serde_json::Value, Option<SnapId>) {
    let snaps = snapshots(map);
    if snaps.len() >= SNAPS || (!snaps.is_empty() && rng.one_in(4)) {
        let (snap, _) = *rng.pick(&snaps);
        return (
            serde_json::json!({"command": "pool snap rm", "pool": pool, "snap": snap.0}),
            Some(snap),
        );
    }
    (
        serde_json::json!({"command": "pool snap create", "pool": pool, "snap": format!("t{now}")}),
        None,
    )
}
