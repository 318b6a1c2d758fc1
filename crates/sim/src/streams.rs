//! Clients that keep several operations on one object in flight, and checks of the results (DESIGN
//! §3, Order; FINDINGS §8).
//!
//! ```text
//!  its one writer ─▶ op 1, op 2, op 3 … without waiting     values recur: a guard that held once holds again later
//!                      │     │     └ expects state 2 ┐
//!                      │     └ expects state 1       ├ the states that program order gives, computed before anything is sent
//!                      └ expects state 0 ────────────┘
//!  other clients ──▶ read it, list its group
//! ```
//! An object, here a stream, has one writer, so its states are known. Checked with every answer:
//! 1. an update's answer matches its place in the writer's order: data, omap, guards, existence; a
//!    duplicated, lost, reordered or forgotten update shows in the next one. A read may have been
//!    executed again and see later states, but never earlier ones;
//! 2. versions increase in that order;
//! 3. others read a state that is not older than what was acknowledged or read when they asked, and
//!    not newer than what had been sent when they were answered;
//! 4. an update with an early answer counts as acknowledged in 3, unless all holders have lost it
//!    (`early.rs`);
//! 5. a listing of all PGs names each stream that existed all the time exactly once, and none that
//!    did not exist.
//!
//! An operation whose outcome cannot be known ends its stream: nothing more is checked for it, and
//! its writer continues with another.

use crate::early::{self, EarlyAnswers};
use crate::plan::{MS, Plan};
use crate::rng::Rng;
use crate::workload::{POOL, Place, Turn, Workload, operation};
use bytes::Bytes;
use nacre_client::{Client, Completion, Done, Failure, ObjectCluster, OpId, Operation};
use nacre_types::{ClientId, ObjectId, Version};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply, op_flag};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Most operations of a stream: then its writer continues with another.
const LENGTH: usize = 80;
/// Number of recurring values.
const VALUES: u64 = 3;
/// How long an operation may take before its client gives up.
const PATIENCE: u64 = 12_000 * MS;

/// Counters of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations with correct answers.
    pub answers: usize,
    /// Most operations of one writer in flight at once.
    pub deepest: usize,
    /// Early answers, before durability.
    pub acks: usize,
    /// Reads that had to see updates with early answers.
    pub early: usize,
    /// Updates with early answers that were lost with all their holders.
    pub lost: usize,
    /// Streams ended by an operation with unknown outcome.
    pub ended: usize,
    /// Reads by others.
    pub reads: usize,
    /// Complete listings.
    pub listings: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            answers,
            deepest,
            acks,
            early,
            lost,
            ended,
            reads,
            listings,
        } = self;
        write!(
            f,
            "{answers} in streams (depth {deepest}, {acks} acks, {early} read, {lost} lost, {ended} ended), {reads} by others, {listings} listings"
        )
    }
}

/// An object's content.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Body {
    /// Its data.
    pub data: Vec<u8>,
    /// Its omap.
    pub omap: BTreeMap<Bytes, Bytes>,
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { data, omap } = self;
        let (first, last) = (
            data.first().copied().unwrap_or_default(),
            data.iter().rev().nth(7).copied(),
        );
        write!(
            f,
            "{} bytes {first}…{}, {} keys",
            data.len(),
            last.unwrap_or_default(),
            omap.len()
        )
    }
}

/// An object's state; `None` if it does not exist.
pub type Value = Option<Body>;

/// One object with one writer.
#[derive(Debug)]
pub struct Stream {
    /// The object.
    pub object: ObjectId,
    /// The states before the first operation, and after each one sent.
    states: Vec<Value>,
    /// Versions of updates, by their position.
    versions: BTreeMap<usize, Version>,
    /// The latest state known to have been reached.
    reached: usize,
    /// Everything up to this position is answered, and nothing was refused.
    answered: usize,
    /// Reads that matched no state, with the last state sent by then: they are wrong once
    /// everything up to it is answered. If an earlier operation was refused (which is reported
    /// after later states are seen), they cannot be judged.
    odd: Vec<(usize, String)>,
    /// The latest state with an early answer, and that answer's name.
    applied: Option<(usize, early::Name)>,
    /// Its state is no longer known.
    pub ended: bool,
}

impl Stream {
    /// Its state when nothing is in flight.
    #[must_use]
    pub fn last(&self) -> &Value {
        self.states.last().expect("it began with a state")
    }
    /// Whether everything sent is known to have been executed.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !self.ended && self.reached + 1 == self.states.len()
    }
    /// Records the version of an update.
    fn has_version(&mut self, place: usize, version: Version) {
        let before = self
            .versions
            .range(..place)
            .next_back()
            .is_none_or(|(_, other)| *other < version);
        let after = self
            .versions
            .range(place + 1..)
            .next()
            .is_none_or(|(_, other)| *other > version);
        assert!(
            before && after,
            "{}: update {place} is {version}, others are {:?}",
            self.object,
            self.versions
        );
        self.versions.insert(place, version);
    }
    /// Checks a read that was begun when the stream had reached a state.
    fn was_read(&mut self, from: usize, found: &Value) {
        if let Some(at) = self.must_be(from, found) {
            self.reached = self.reached.max(at);
        }
    }
    /// The first state from `from` on that equals this one.
    fn must_be(&mut self, from: usize, found: &Value) -> Option<usize> {
        let at = (from..self.states.len()).find(|place| self.states[*place] == *found);
        if at.is_none() {
            let last = self.states.len() - 1;
            let what = format!(
                "{} is read as {found:?}: state {:?}, not one of {from} to {last}, which are {:?}",
                self.object,
                self.states.iter().rposition(|state| state == found),
                &self.states[from..],
            );
            self.odd.push((last, what));
            self.was_answered(self.answered);
        }
        at
    }
    /// All operations up to this one are answered, and none was refused.
    fn was_answered(&mut self, place: usize) {
        self.answered = self.answered.max(place);
        if let Some((_, what)) = self.odd.iter().find(|(last, _)| *last <= self.answered) {
            panic!("{what}");
        }
    }
}

/// What all clients know and record.
#[derive(Debug, Default)]
pub struct Streams {
    /// Every stream so far.
    pub all: Vec<Stream>,
    counts: Counts,
    /// Abandoned operations: the object, and when they were begun.
    pub hung: Vec<(ObjectId, u64)>,
    /// Updates with early answers, and their holders.
    pub early: EarlyAnswers,
    /// Objects of updates in flight.
    flying: BTreeMap<early::Name, ObjectId>,
}

impl Streams {
    fn begin(&mut self) -> usize {
        let object = ObjectId::named(&format!("stream-{}", self.all.len()));
        let (states, versions) = (vec![None], BTreeMap::new());
        self.all.push(Stream {
            object,
            states,
            versions,
            reached: 0,
            answered: 0,
            odd: Vec::new(),
            applied: None,
            ended: false,
        });
        self.all.len() - 1
    }
    /// The object of an update in flight.
    #[must_use]
    pub fn object_of(&self, client: ClientId, sequence: u64) -> Option<ObjectId> {
        self.flying.get(&(client, sequence)).cloned()
    }
    fn landed(&mut self, role: &Client, id: OpId) {
        let name = (role.id(), id.0);
        self.flying.remove(&name);
        self.early.ended(&name);
        self.counts.lost = self.early.lost();
    }
    fn end(&mut self, at: usize) {
        if !std::mem::replace(&mut self.all[at].ended, true) {
            self.counts.ended += 1;
        }
    }
}

/// The expected answer.
#[derive(Clone, Debug)]
enum Expected {
    Done,
    /// The state at its position, or a later one.
    Read,
    NotFound,
    Guard,
    Exists,
}

#[derive(Debug)]
struct Flight {
    stream: usize,
    object: ObjectId,
    place: usize,
    expected: Expected,
    updates: bool,
    begun: u64,
}

/// A read by another client, or of an update with an early answer.
#[derive(Debug)]
struct Reading {
    stream: usize,
    /// The state that was known to be reached when it began.
    from: usize,
    /// A later state with an early answer, and that answer's name.
    applied: Option<(usize, early::Name)>,
    /// It may see what is not durable: no other check may rely on it.
    uncommitted: bool,
    begun: u64,
}

/// A listing of all PGs.
#[derive(Debug)]
struct Listing {
    /// Number of PGs when it began.
    groups: u32,
    group: u32,
    after: Bytes,
    found: BTreeSet<ObjectId>,
    /// The state that each stream had reached when it began; later streams are not included.
    reached: Vec<usize>,
    begun: u64,
}

/// What one client does.
#[derive(Debug, Default)]
pub struct Streamer {
    /// Most operations in flight.
    depth: usize,
    stream: Option<usize>,
    flying: BTreeMap<OpId, Flight>,
    /// Answers that arrived before those of earlier operations. They are judged in order, because
    /// after a refused operation all later ones prove nothing.
    early: BTreeMap<OpId, (Flight, Result<Done, Failure>)>,
    reads: BTreeMap<OpId, Reading>,
    listing: Option<(Option<OpId>, Listing)>,
    /// Abandoned operations, whose ends prove nothing.
    forgotten: BTreeSet<OpId>,
    next_at: u64,
}

fn word(value: u64) -> Vec<u8> {
    // Lengths differ, and some exceed what is written through the log.
    value
        .to_le_bytes()
        .repeat(1 + (value * value * 170) as usize)
}

fn whole() -> Vec<SubOp> {
    vec![
        SubOp::Read {
            offset: 0,
            length: 1 << 20,
        },
        SubOp::OmapList {
            after: Bytes::new(),
            limit: 10_000,
        },
    ]
}

fn body_of(done: &Done) -> Body {
    let [
        SubReply::Data { .. },
        SubReply::Entries {
            entries,
            more: false,
        },
    ] = &done.results[..]
    else {
        panic!("a read of everything is answered with {:?}", done.results)
    };
    Body {
        data: done.payload.concat(),
        omap: entries.iter().cloned().collect(),
    }
}

impl Workload for Streamer {
    type Records = Streams;
    type Counts = Counts;

    fn new(plan: &Plan, place: &Place) -> Option<Self> {
        place.does(plan.depth > 0).then(|| Self {
            depth: plan.depth,
            ..Self::default()
        })
    }
    fn next_at(&self, finished: bool) -> u64 {
        let flying = self.flying.values().map(|flight| flight.begun);
        let reads = self.reads.values().map(|read| read.begun);
        let listed = self.listing.iter().map(|(_, listing)| listing.begun);
        let next = if finished { u64::MAX } else { self.next_at };
        let begun = flying.chain(reads).chain(listed);
        begun.map(|begun| begun + PATIENCE).fold(next, u64::min)
    }
    /// Only updates.
    fn waits_for(&self, _: &Streams) -> Vec<(ObjectId, u64)> {
        let flying = self.flying.values();
        flying
            .map(|flight| (flight.object.clone(), flight.begun))
            .collect()
    }
    fn is_settled(&self, _: &Client, _: &Streams) -> bool {
        self.flying.is_empty() && self.reads.is_empty() && self.listing.is_none()
    }
    fn counts(all: &Streams) -> Counts {
        all.counts
    }

    fn advance(&mut self, turn: &mut Turn<'_>, all: &mut Streams) {
        self.give_up(turn, all);
        self.hear_early(turn, all);
        if let Some((None, _)) = self.listing {
            self.list_on(turn);
        }
        if turn.finished || self.next_at > turn.now {
            return;
        }
        // In bursts: pipelined operations are what tests ordering.
        let pause = if turn.calm { 3000 * MS } else { 250 * MS };
        self.next_at = turn.now + turn.rng.between(MS, pause);
        for _ in 0..turn.rng.between(1, self.depth as u64) {
            if self.flying.len() >= self.depth || !self.write(turn, all) {
                break;
            }
        }
        all.counts.deepest = all.counts.deepest.max(self.flying.len());
        if turn.rng.one_in(3) && self.reads.is_empty() && !all.all.is_empty() {
            let stream = all.all.len() - 1 - turn.rng.below(all.all.len().min(6) as u64) as usize;
            let uncommitted = turn.rng.one_in(3);
            self.read(stream, uncommitted, turn, all);
        }
        if turn.rng.one_in(12) && self.listing.is_none() {
            self.begin_listing(turn, all);
            self.list_on(turn);
        }
    }

    fn on_completion(&mut self, done: &Completion, turn: &mut Turn<'_>, all: &mut Streams) -> bool {
        let Completion { id, result } = done;
        if let Some(flight) = self.flying.remove(id) {
            all.landed(turn.role, *id);
            self.early.insert(*id, (flight, result.clone()));
            // A client numbers its operations in the order of sending.
            while let Some(first) = self.early.first_entry()
                && self
                    .flying
                    .first_key_value()
                    .is_none_or(|(unanswered, _)| unanswered > first.key())
            {
                let (flight, result) = first.remove();
                Self::ended(&flight, &result, all);
            }
        } else if let Some(reading) = self.reads.remove(id) {
            let stream = reading.stream;
            let found = match result {
                Ok(done) => Some(body_of(done)),
                Err(Failure::Refused(OpFailure::NotFound {})) => None,
                Err(failure) => {
                    assert!(
                        says_nothing(failure),
                        "{} cannot be read: {failure}",
                        all.all[stream].object
                    );
                    return true;
                }
            };
            all.counts.reads += 1;
            if all.all[stream].ended {
                return true;
            }
            let applied = reading.applied.filter(|(_, name)| !all.early.is_lost(name));
            all.counts.early += usize::from(applied.is_some());
            let from = applied.map_or(reading.from, |(place, _)| reading.from.max(place));
            if reading.uncommitted {
                all.all[stream].must_be(from, &found);
            } else {
                all.all[stream].was_read(from, &found);
            }
        } else if self
            .listing
            .as_ref()
            .is_some_and(|(asked, _)| *asked == Some(*id))
        {
            self.listed(result, turn.role, all);
        } else {
            return self.forgotten.remove(id);
        }
        true
    }
}

impl Streamer {
    fn read(&mut self, stream: usize, uncommitted: bool, turn: &mut Turn<'_>, all: &mut Streams) {
        let Stream {
            ref object,
            reached: from,
            applied,
            ..
        } = all.all[stream];
        let flags = if uncommitted { op_flag::UNCOMMITTED } else { 0 };
        let operation = Operation {
            flags,
            ..operation(object.clone(), whole(), Payload::new())
        };
        if let Some(id) = turn.submit(operation) {
            let applied = applied.filter(|(place, _)| *place > from);
            self.reads.insert(
                id,
                Reading {
                    stream,
                    from,
                    applied,
                    uncommitted,
                    begun: turn.now,
                },
            );
        }
    }

    /// Updates with early answers must be visible to reads from then on; some are read at once.
    fn hear_early(&mut self, turn: &mut Turn<'_>, all: &mut Streams) {
        let mut acks = Vec::new();
        turn.role.acks(&mut acks);
        for id in acks {
            let Some(flight) = self.flying.get(&id) else {
                continue;
            };
            all.counts.acks += 1;
            let stream = flight.stream;
            let known = &mut all.all[stream];
            if known.applied.is_none_or(|(place, _)| place < flight.place) {
                known.applied = Some((flight.place, (turn.role.id(), id.0)));
            }
            if turn.rng.one_in(2) {
                let uncommitted = turn.rng.one_in(2);
                self.read(stream, uncommitted, turn, all);
            }
        }
    }

    fn give_up(&mut self, turn: &mut Turn<'_>, all: &mut Streams) {
        let late = |begun: u64| begun + PATIENCE <= turn.now;
        let mut given_up = Vec::new();
        for (id, flight) in self.flying.extract_if(.., |_, flight| late(flight.begun)) {
            all.hung.push((flight.object, flight.begun));
            all.end(flight.stream);
            all.landed(turn.role, id);
            given_up.push(id);
        }
        for (id, read) in self.reads.extract_if(.., |_, read| late(read.begun)) {
            let object = all.all[read.stream].object.clone();
            all.hung.push((object, read.begun));
            given_up.push(id);
        }
        let listing = self.listing.take_if(|(_, listing)| late(listing.begun));
        given_up.extend(listing.and_then(|(id, _)| id));
        for id in given_up {
            self.forgotten.insert(id);
            turn.role.abandon(id);
        }
    }

    /// Sends another operation on the stream. Returns whether the client accepted it.
    fn write(&mut self, turn: &mut Turn<'_>, all: &mut Streams) -> bool {
        let usable = |at: &usize| !all.all[*at].ended && all.all[*at].states.len() <= LENGTH;
        let at = self.stream.filter(usable).unwrap_or_else(|| all.begin());
        self.stream = Some(at);
        let stream = &mut all.all[at];
        let before = stream.last().clone();
        let (ops, payload, expected, after) = act(&before, stream.states.len() as u64, turn.rng);
        let updates = ops.iter().any(SubOp::is_write) && matches!(expected, Expected::Done);
        let flags = if turn.rng.one_in(3) { op_flag::ACK } else { 0 };
        let object = stream.object.clone();
        let operation = Operation {
            flags,
            ..operation(object.clone(), ops, payload)
        };
        let Some(id) = turn.submit(operation) else {
            return false;
        };
        stream.states.push(after);
        let place = stream.states.len() - 1;
        all.flying.insert((turn.role.id(), id.0), object.clone());
        self.flying.insert(
            id,
            Flight {
                stream: at,
                object,
                place,
                expected,
                updates,
                begun: turn.now,
            },
        );
        true
    }

    fn ended(flight: &Flight, result: &Result<Done, Failure>, all: &mut Streams) {
        let Flight {
            stream: at,
            place,
            expected,
            updates,
            ..
        } = flight;
        if all.all[*at].ended {
            return;
        }
        let right = match (expected, result) {
            (_, Err(failure)) if says_nothing(failure) => {
                all.end(*at);
                return;
            }
            (Expected::Done, Ok(_)) => true,
            (Expected::Read, Ok(done)) => {
                all.all[*at].was_read(*place, &Some(body_of(done)));
                true
            }
            (Expected::Read, Err(Failure::Refused(OpFailure::NotFound {}))) => {
                all.all[*at].was_read(*place, &None);
                true
            }
            (Expected::NotFound, Err(Failure::Refused(OpFailure::NotFound {}))) => true,
            (Expected::Guard, Err(Failure::Refused(OpFailure::Guard { .. }))) => true,
            (Expected::Exists, Err(Failure::Refused(OpFailure::AlreadyExists {}))) => true,
            _ => false,
        };
        let stream = &mut all.all[*at];
        assert!(
            right,
            "{}: operation {place}, expected {expected:?}, is answered with {:?}; states before: {:?}",
            stream.object,
            result.as_ref().map(|done| (
                done.version,
                (!done.payload.is_empty()).then(|| body_of(done))
            )),
            &stream.states[place.saturating_sub(6)..*place],
        );
        all.counts.answers += 1;
        stream.reached = stream.reached.max(*place);
        stream.was_answered(*place);
        if let (true, Ok(done)) = (updates, result) {
            stream.has_version(*place, done.version);
        }
    }

    // ── listings ────────────────────────────────────────────────────────────────────────

    fn begin_listing(&mut self, turn: &Turn<'_>, all: &Streams) {
        let Some(groups) = turn
            .role
            .map()
            .and_then(|map| map.pools.get(&POOL))
            .map(|pool| pool.pg_num)
        else {
            return;
        };
        let reached = all.all.iter().map(|stream| stream.reached).collect();
        let listing = Listing {
            groups,
            group: 0,
            after: Bytes::new(),
            found: BTreeSet::new(),
            reached,
            begun: turn.now,
        };
        self.listing = Some((None, listing));
    }

    /// Requests the next page.
    fn list_on(&mut self, turn: &mut Turn<'_>) {
        let Some((asked, listing)) = &mut self.listing else {
            return;
        };
        let operation = Operation {
            pool: POOL,
            ops: vec![SubOp::ListObjects {
                after: listing.after.clone(),
                limit: 100,
            }],
            group: Some(listing.group),
            ..Operation::default()
        };
        // A client with too many operations in flight retries.
        *asked = turn.submit(operation);
    }

    fn listed(&mut self, result: &Result<Done, Failure>, role: &Client, all: &mut Streams) {
        let (_, mut listing) = self.listing.take().expect("just seen");
        // Objects have moved between PGs during the listing: a listing by pages of PGs gives no
        // guarantee then.
        if role
            .map()
            .and_then(|map| map.pools.get(&POOL))
            .is_none_or(|pool| pool.pg_num != listing.groups)
        {
            return;
        }
        let done = match result {
            Ok(done) => done,
            Err(failure) => {
                let split = matches!(failure, Failure::Refused(OpFailure::Invalid { .. }));
                assert!(says_nothing(failure) || split, "a listing fails: {failure}");
                return;
            }
        };
        let [SubReply::Objects { objects, next }] = &done.results[..] else {
            panic!("a listing is answered with {:?}", done.results)
        };
        for object in objects {
            assert!(
                listing.found.insert(object.clone()),
                "{object} is listed twice"
            );
        }
        match next {
            Some(next) => listing.after = next.clone(),
            None => (listing.group, listing.after) = (listing.group + 1, Bytes::new()),
        }
        if listing.group < listing.groups {
            self.listing = Some((None, listing));
            return;
        }
        all.counts.listings += 1;
        for (at, reached) in listing
            .reached
            .iter()
            .enumerate()
            .filter(|(at, _)| !all.all[*at].ended)
        {
            let stream = &all.all[at];
            let mut possible = stream.states[*reached..].iter().map(Option::is_some);
            let listed = listing.found.contains(&stream.object);
            assert!(
                possible.any(|there| there == listed),
                "{} is listed: {listed}; from state {reached} on it was always otherwise: {:?}, answered up to {}, reached {}, asked at {}",
                stream.object,
                stream
                    .states
                    .iter()
                    .map(Option::is_some)
                    .collect::<Vec<_>>(),
                stream.answered,
                stream.reached,
                listing.begun,
            );
        }
    }
}

/// Whether the outcome is unknown, or the operation was refused for a temporary reason: later
/// operations may have been executed.
fn says_nothing(failure: &Failure) -> bool {
    failure.may_have_happened()
        || matches!(
            failure,
            Failure::Refused(OpFailure::Full {} | OpFailure::Expired {} | OpFailure::Fenced {})
        )
}

/// An operation, its expected answer, and the state after it.
fn act(before: &Value, number: u64, rng: &mut Rng) -> (Vec<SubOp>, Vec<Bytes>, Expected, Value) {
    let body = before.clone().unwrap_or_default();
    let full = |data: Vec<u8>| {
        (
            SubOp::WriteFull {
                length: data.len() as u64,
            },
            Bytes::from(data),
        )
    };
    match rng.below(12) {
        0..=2 => {
            let data = number.to_le_bytes().to_vec();
            let after = Body {
                data: [&body.data[..], &data].concat(),
                ..body
            };
            (
                vec![SubOp::Append { length: 8 }],
                vec![data.into()],
                Expected::Done,
                Some(after),
            )
        }
        3 | 4 => {
            let (op, data) = full(word(rng.below(VALUES)));
            let after = Body {
                data: data.to_vec(),
                ..body
            };
            (vec![op], vec![data], Expected::Done, Some(after))
        }
        // A guard on a recurring value.
        5 | 6 => {
            let expected = Bytes::from(word(rng.below(VALUES)));
            let (op, data) = full(word(rng.below(VALUES)));
            let guards = [
                SubOp::AssertExists { exists: true },
                SubOp::CompareData {
                    offset: 0,
                    length: expected.len() as u64,
                },
            ];
            let holds = before
                .as_ref()
                .is_some_and(|body| body.data.starts_with(&expected));
            let ops = guards.into_iter().chain([op]).collect();
            let after = Body {
                data: data.to_vec(),
                ..body
            };
            match holds {
                true => (ops, vec![expected, data], Expected::Done, Some(after)),
                false => (ops, vec![expected, data], Expected::Guard, before.clone()),
            }
        }
        7 => match before {
            Some(_) => (vec![SubOp::Delete {}], vec![], Expected::Done, None),
            None => (vec![SubOp::Delete {}], vec![], Expected::NotFound, None),
        },
        8 => {
            let expected = if before.is_some() {
                Expected::Exists
            } else {
                Expected::Done
            };
            (
                vec![SubOp::Create { exclusive: true }],
                vec![],
                expected,
                Some(body),
            )
        }
        9 | 10 => {
            let count = rng.between(1, 30);
            let entries: Vec<(Bytes, Bytes)> = (0..count)
                .map(|_| {
                    (
                        Bytes::from(format!("k{}", rng.below(60))),
                        Bytes::from(number.to_le_bytes().repeat(3)),
                    )
                })
                .collect();
            let mut after = body;
            if rng.one_in(3) {
                let keys: Vec<Bytes> = entries.into_iter().map(|(key, _)| key).collect();
                if before.is_none() {
                    return (
                        vec![SubOp::OmapRemove { keys }],
                        vec![],
                        Expected::NotFound,
                        None,
                    );
                }
                keys.iter().for_each(|key| drop(after.omap.remove(key)));
                return (
                    vec![SubOp::OmapRemove { keys }],
                    vec![],
                    Expected::Done,
                    Some(after),
                );
            }
            after.omap.extend(entries.iter().cloned());
            (
                vec![SubOp::OmapSet { entries }],
                vec![],
                Expected::Done,
                Some(after),
            )
        }
        _ => (whole(), vec![], Expected::Read, before.clone()),
    }
}
