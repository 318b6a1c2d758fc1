//! The queue of one object's operations, and the cached state of the object.
//!
//! ```text
//!  queue: op op op ─▶ front ─▶ needs data? ──store reads──▶ evaluate ─▶ update: in flight until committed
//!                        │                                          └─▶ reply
//!                        └─ waits while: context is loaded · object is missing or held · for reads: updates in flight, no lease
//! ```
//! Updates follow each other without waiting for commits; a read waits for the earlier updates, and
//! everything behind it waits for the read. So one client's operations on one object are executed
//! in their order of arrival.

use super::pending::Pending;
use foldhash::fast::FixedState;
use indexmap::IndexMap;
use nacre_object::Context;
use nacre_object::fetched::{Fetched, Want};
use nacre_object::snaps::{is_clone, live};
use nacre_store::ReadReply;
use nacre_types::{Entity, ObjectId, Time};
use nacre_wire::msg::client::{OpRequest, RequestId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The state of one object; see the module head.
#[derive(Debug, Default)]
pub struct ObjectState {
    /// Its loaded context; `None` until loaded.
    pub context: Option<Context>,
    /// Its attributes are being read.
    pub loading: bool,
    /// In order. Changed only by [`Objects`], which counts.
    queue: VecDeque<Box<Pending>>,
    /// Since when the first operation has been the first.
    since: Time,
    /// Updates not yet committed.
    pub updates: u32,
    /// Reads in progress.
    pub reads: u32,
    /// An update is waiting for data that it must read first.
    pub exclusive: bool,
    /// Recovery or backfill is copying it: updates wait.
    pub held: u32,
    used: u64,
}

impl ObjectState {
    /// The next operation to be executed.
    #[must_use]
    pub fn front(&self) -> Option<&Pending> {
        self.queue.front().map(|op| &**op)
    }
    /// The next operation to be executed.
    pub fn front_mut(&mut self) -> Option<&mut Pending> {
        self.queue.front_mut().map(|op| &mut **op)
    }
    /// Whether operations wait.
    #[must_use]
    pub fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }
    /// The number and bytes of clients' operations that wait, if none of the waiting ones was begun
    /// for the time `than`: a long queue that moves is not held up.
    fn held_up(&self, now: Time, than: Duration) -> Option<(usize, u64)> {
        let held_up = !self.queue.is_empty() && now.since(self.since) >= than;
        let waits = || self.queue.iter().filter(|op| op.is_counted());
        held_up.then(|| (waits().count(), waits().map(|op| op.bytes()).sum()))
    }
    /// Whether the entry is only a cache.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && self.updates == 0
            && self.reads == 0
            && !self.exclusive
            && !self.loading
            && self.held == 0
    }
}

/// Data being read for an operation.
#[derive(Debug)]
pub struct Reading {
    /// The operation.
    pub op: Box<Pending>,
    /// The data read for it before.
    pub fetched: Fetched,
    /// The reads.
    pub wants: Vec<Want>,
    /// The replies, one for each want; a missing object gives no reply.
    pub replies: Vec<Option<ReadReply>>,
    /// The number of pending replies.
    pub waiting: usize,
    /// The read that failed, if one did.
    pub failed: Option<nacre_store::ReadError>,
}

/// A listing.
#[derive(Debug)]
pub struct Listing {
    /// The objects that were missing here when the store was asked; `None` while the store does not
    /// list for this operation.
    pub missing: Option<Vec<ObjectId>>,
    /// The operation.
    pub op: Box<Pending>,
    /// Whether these objects, which have clones, exist for clients, according to the reads for it.
    pub known: BTreeMap<ObjectId, bool>,
    /// The number of pending reads.
    pub waiting: usize,
    /// A read failed.
    pub failed: bool,
}

/// The states of operations, human-readable.
const READ: &str = "its data is being read";
const EVALUATED: &str = "its call is being evaluated";
const LISTED: &str = "its objects are being listed";

/// All objects of a PG with operations in flight, and a cache of others.
///
/// A hash table: every operation looks its object up several times. Its order is that of insertions
/// and removals, so a replay iterates in the same order. Invariant: `queued` is the sum of the
/// queues' lengths.
#[derive(Debug, Default)]
pub struct Objects {
    states: IndexMap<ObjectId, ObjectState, FixedState>,
    /// The position of the last object that was looked up, tried first: an operation looks its
    /// object up a dozen times in a row.
    last: usize,
    queued: usize,
    clock: u64,
    /// Data being read, in order of the numbers. Boxed: a reading is large, and is inserted and
    /// removed once.
    readings: Vec<(u64, Box<Reading>)>,
    /// Operations being evaluated by another thread, by number.
    pub evaluating: BTreeMap<u64, Box<Pending>>,
    /// Listings in progress or waiting, by number.
    pub listings: BTreeMap<u64, Listing>,
    next: u64,
}

impl Objects {
    fn find(&self, object: &ObjectId) -> Option<usize> {
        match self.states.get_index(self.last) {
            Some((known, _)) if known == object => Some(self.last),
            _ => self.states.get_index_of(object),
        }
    }
    /// The state of an object, created if necessary.
    pub fn get(&mut self, object: &ObjectId) -> &mut ObjectState {
        self.clock += 1;
        let at = match self.find(object) {
            Some(at) => at,
            None => {
                self.states
                    .insert_full(object.clone(), ObjectState::default())
                    .0
            }
        };
        self.last = at;
        let state = &mut self.states[at];
        state.used = self.clock;
        state
    }
    /// The state of an object, unchanged, if there is one.
    #[must_use]
    pub fn peek(&self, object: &ObjectId) -> Option<&ObjectState> {
        self.find(object).map(|at| &self.states[at])
    }
    /// The state of an object, if there is one.
    pub fn existing(&mut self, object: &ObjectId) -> Option<&mut ObjectState> {
        self.last = self.find(object)?;
        Some(&mut self.states[self.last])
    }
    /// Appends an operation on the object.
    pub fn push(&mut self, object: &ObjectId, op: Box<Pending>) {
        self.queued += 1;
        let state = self.get(object);
        if state.queue.is_empty() {
            state.since = op.received;
        }
        // Nearly always the only one; space for four would take a kilobyte.
        state.queue.reserve_exact(1);
        state.queue.push_back(op);
    }
    /// Returns an operation to the front that could not be executed after all.
    pub fn push_front(&mut self, object: &ObjectId, op: Box<Pending>) {
        self.queued += 1;
        let state = self.get(object);
        let other = if state.queue.is_empty() {
            op.received
        } else {
            state.since
        };
        state.since = op.next_since.unwrap_or(other);
        state.queue.push_front(op);
    }
    /// The number and bytes of the operations that wait for the object, if the first one has been
    /// the first for the time `than`.
    #[must_use]
    pub fn held_up(&self, object: &ObjectId, now: Time, than: Duration) -> Option<(usize, u64)> {
        self.peek(object)?.held_up(now, than)
    }
    /// All such objects, with their waiting operations' number and bytes.
    #[must_use]
    pub fn all_held_up(&self, now: Time, than: Duration) -> Vec<(ObjectId, (usize, u64))> {
        let some = if self.queued == 0 {
            0
        } else {
            self.states.len()
        };
        let of = |(object, state): (&ObjectId, &ObjectState)| {
            Some((object.clone(), state.held_up(now, than)?))
        };
        self.states[..some].iter().filter_map(of).collect()
    }
    /// Removes the last client's operation that waits for the object, unless that is the only one
    /// or the first. The primary's own follow-ups are not removed: they are partly done.
    pub fn pop_back(&mut self, object: &ObjectId) -> Option<Box<Pending>> {
        let queue = &mut self.existing(object)?.queue;
        let at = queue
            .iter()
            .rposition(|op| op.own.is_none() && matches!(op.from, Entity::Client(_)))?;
        let op = if at == 0 { None } else { queue.remove(at) };
        self.queued -= usize::from(op.is_some());
        op
    }
    /// Moves the first deletion in the queue before reads of other clients. Returns whether there
    /// was one.
    pub fn advance_deletion(&mut self, object: &ObjectId) -> bool {
        let Some(state) = self.existing(object) else {
            return false;
        };
        let Some(at) = state
            .queue
            .iter()
            .position(|op| op.only_deletes())
            .filter(|at| *at > 0)
        else {
            return false;
        };
        let client = state.queue[at].from;
        if state
            .queue
            .iter()
            .take(at)
            .any(|op| op.is_write() || op.from == client)
        {
            return false;
        }
        let op = state.queue.remove(at).expect("just found");
        state.queue.push_front(op);
        true
    }
    /// A waiting operation, by its request id.
    pub fn queued_mut(&mut self, object: &ObjectId, request: &RequestId) -> Option<&mut Pending> {
        self.existing(object)?
            .queue
            .iter_mut()
            .map(|op| &mut **op)
            .find(|op| op.request.request == *request)
    }
    /// Whether an operation with this property waits for the object.
    pub fn has_queued(&mut self, object: &ObjectId, such: impl Fn(&Pending) -> bool) -> bool {
        self.existing(object)
            .is_some_and(|state| state.queue.iter().any(|op| such(op)))
    }
    /// The operation that an attempt repeats, and whether it is in progress. Its result stays valid
    /// while it waits or is in progress, since updates of its object wait for it. So its result
    /// answers the newest attempt, too, unless that one must see an update that its client sent
    /// before it and that waits here behind the earlier attempt.
    pub fn in_hand_mut(&mut self, request: &OpRequest) -> Option<(&mut Pending, bool)> {
        let id = request.request;
        let is_it = |op: &Pending| op.request.request == id;
        let goes_before = |op: &Pending| {
            let other = op.request.request;
            (other.client, other.instance) == (id.client, id.instance)
                && other.sequence < id.sequence
                && op.is_write()
        };
        if let Some((number, _)) = self.listings.iter().find(|(_, listing)| is_it(&listing.op)) {
            let number = *number;
            return self
                .listings
                .get_mut(&number)
                .map(|listing| (&mut *listing.op, false));
        }
        let live = live(&request.object);
        let at = self.find(&live);
        let queue = at.map(|at| &self.states[at].queue);
        // The last of several: it is behind everything that the newest attempt must follow.
        let place = queue.and_then(|queue| queue.iter().rposition(|op| is_it(op)));
        let from = place.map_or(0, |place| place + 1);
        if queue.is_some_and(|queue| queue.iter().skip(from).any(|op| goes_before(op))) {
            return None;
        }
        if let (Some(at), Some(place)) = (at, place) {
            return Some((&mut self.states[at].queue[place], false));
        }
        // It may already be assigned to a clone.
        let of_clone = is_clone(&request.object);
        if of_clone {
            let of_name =
                |object: &ObjectId| is_clone(object) && nacre_object::snaps::live(object) == live;
            let at = self.states.iter().position(|(object, state)| {
                of_name(object) && state.queue.iter().any(|op| is_it(op))
            });
            if let Some(at) = at {
                return self.states[at]
                    .queue
                    .iter_mut()
                    .find(|op| is_it(op))
                    .map(|op| (&mut **op, false));
            }
        }
        // Nearly all resends wait for others to write the object: they are not worth a search.
        if !of_clone && at.is_none_or(|at| self.states[at].reads == 0) {
            return None;
        }
        self.under_way_mut()
            .map(|(_, op)| op)
            .find(|op| is_it(op))
            .map(|op| (op, true))
    }
    /// Operations that are evaluated or whose data is read, and listings, with their state.
    pub fn under_way_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut Pending)> {
        let reading = self
            .readings
            .iter_mut()
            .map(|(_, reading)| (READ, &mut *reading.op));
        let evaluated = self
            .evaluating
            .values_mut()
            .map(|op| (EVALUATED, &mut **op));
        let listed = self
            .listings
            .values_mut()
            .map(|listing| (LISTED, &mut *listing.op));
        reading.chain(evaluated).chain(listed)
    }
    /// All operations with their objects and states: waiting ones, and those of
    /// [`Self::under_way_mut`].
    pub fn all_with_what_they_do(
        &self,
    ) -> impl Iterator<Item = (&ObjectId, &Pending, Option<&'static str>)> {
        let some = if self.queued == 0 {
            0
        } else {
            self.states.len()
        };
        let queued = self.states[..some]
            .iter()
            .flat_map(|(object, state)| state.queue.iter().map(move |op| (object, &**op)));
        let reading = self
            .readings
            .iter()
            .map(|(_, reading)| (READ, &*reading.op));
        let evaluated = self.evaluating.values().map(|op| (EVALUATED, &**op));
        let listed = self.listings.values().map(|listing| (LISTED, &*listing.op));
        let under_way = reading.chain(evaluated).chain(listed);
        queued
            .map(|(object, op)| (object, op, None))
            .chain(under_way.map(|(doing, op)| (&op.request.object, op, Some(doing))))
    }
    /// Removes the operation at the front, which begins.
    pub fn pop(&mut self, object: &ObjectId, now: Time) -> Option<Box<Pending>> {
        let state = self.existing(object)?;
        let mut op = state.queue.pop_front()?;
        op.next_since.get_or_insert(state.since);
        state.since = now;
        if state.queue.is_empty() {
            // An idle object stays in the cache without its queue's memory.
            state.queue = VecDeque::new();
        }
        self.queued -= 1;
        Some(op)
    }
    /// Removes all operations that wait for an object.
    pub fn take_queue(&mut self, object: &ObjectId) -> VecDeque<Box<Pending>> {
        let queue = self
            .existing(object)
            .map(|state| std::mem::take(&mut state.queue))
            .unwrap_or_default();
        self.queued -= queue.len();
        queue
    }
    /// Adds a reading, under a number that is larger than all earlier ones.
    pub fn begin_reading(&mut self, number: u64, reading: Reading) {
        assert!(
            self.readings.last().is_none_or(|(last, _)| *last < number),
            "numbers only grow"
        );
        self.readings.push((number, Box::new(reading)));
    }
    fn reading_at(&self, number: u64) -> Option<usize> {
        self.readings
            .binary_search_by_key(&number, |(number, _)| *number)
            .ok()
    }
    /// The reading with this number.
    pub fn reading(&mut self, number: u64) -> Option<&mut Reading> {
        let at = self.reading_at(number)?;
        Some(&mut self.readings[at].1)
    }
    /// Removes a finished reading.
    pub fn end_reading(&mut self, number: u64) -> Option<Reading> {
        let at = self.reading_at(number)?;
        Some(*self.readings.remove(at).1)
    }
    /// A new number for a reading or listing.
    pub const fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
    /// Objects with something in their queues.
    #[must_use]
    pub fn waiting(&self) -> Vec<ObjectId> {
        if self.queued == 0 {
            return Vec::new();
        }
        self.states
            .iter()
            .filter(|(_, state)| state.has_queue())
            .map(|(object, _)| object.clone())
            .collect()
    }
    /// All waiting operations.
    pub fn pending_mut(&mut self) -> impl Iterator<Item = (&ObjectId, &mut Pending)> {
        let some = if self.queued == 0 {
            0
        } else {
            self.states.len()
        };
        self.states[..some]
            .iter_mut()
            .flat_map(|(object, state)| state.queue.iter_mut().map(move |op| (object, &mut **op)))
    }
    /// Whether no operation waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queued == 0
            && self.readings.is_empty()
            && self.evaluating.is_empty()
            && self.listings.is_empty()
    }
    /// Whether an update of one of these objects is in progress that has no position in the log
    /// yet.
    #[must_use]
    pub fn is_about_to_change(&self, inside: impl Fn(&ObjectId) -> bool) -> bool {
        let reading = self.readings.iter().map(|(_, reading)| &reading.op);
        reading
            .chain(self.evaluating.values())
            .any(|op| op.is_write() && inside(&op.request.object))
    }
    /// The request ids of clients' operations that wait, read or are evaluated.
    pub fn in_hand(&self) -> impl Iterator<Item = RequestId> + '_ {
        let queued = self.states.values().flat_map(|state| state.queue.iter());
        let reading = self.readings.iter().map(|(_, reading)| &reading.op);
        let all = queued.chain(reading).chain(self.evaluating.values());
        all.filter(|op| op.is_clients())
            .map(|op| op.request.request)
    }
    /// All operations: waiting, reading, evaluated, and listings.
    pub fn all(&self) -> impl Iterator<Item = &Pending> {
        self.all_with_what_they_do().map(|(_, op, _)| op)
    }
    /// All loaded contexts with their objects.
    #[cfg(test)]
    pub fn contexts(&self) -> impl Iterator<Item = (&ObjectId, &Context)> {
        self.states
            .iter()
            .filter_map(|(object, state)| Some((object, state.context.as_ref()?)))
    }
    /// The number of operations that read or are evaluated.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.readings.len() + self.evaluating.len()
    }
    /// Over all objects: the number of uncommitted updates, reads in progress, and holds.
    #[must_use]
    pub fn counted(&self) -> (usize, usize, usize) {
        let add = |(updates, reads, held): (usize, usize, usize), state: &ObjectState| {
            (
                updates + state.updates as usize,
                reads + state.reads as usize,
                held + state.held as usize,
            )
        };
        self.states.values().fold((0, 0, 0), add)
    }
    /// Removes everything; returns the operations in flight.
    pub fn drain(&mut self) -> Vec<Box<Pending>> {
        self.queued = 0;
        let queued = std::mem::take(&mut self.states)
            .into_values()
            .flat_map(|state| state.queue);
        let reading = std::mem::take(&mut self.readings)
            .into_iter()
            .map(|(_, reading)| reading.op);
        let evaluating = std::mem::take(&mut self.evaluating).into_values();
        let listing = std::mem::take(&mut self.listings)
            .into_values()
            .map(|listing| listing.op);
        queued
            .chain(reading)
            .chain(evaluating)
            .chain(listing)
            .collect()
    }
    /// Drops the least recently used idle objects beyond `keep`.
    pub fn shrink(&mut self, keep: usize) {
        // Amortised: half of the allowed number is dropped at once.
        if self.states.len() <= keep {
            return;
        }
        // The contexts of several clones that an operation on the live object needs must be here at
        // the same time, also while the operation reads: an operation that found a clone dropped
        // afterwards read everything again, and found it dropped again.
        let waits = |state: &ObjectState| state.has_queue() || state.reads > 0;
        let needed = |object: &ObjectId| {
            is_clone(object) && self.states.get(&live(object)).is_some_and(waits)
        };
        let idle = self
            .states
            .iter()
            .filter(|(object, state)| state.is_idle() && !needed(object));
        let mut ages: Vec<u64> = idle.map(|(_, state)| state.used).collect();
        ages.sort_unstable();
        let drop = (self.states.len() - keep / 2).min(ages.len());
        if drop > 0 {
            let limit = ages[drop - 1];
            let kept: Vec<ObjectId> = self
                .states
                .keys()
                .filter(|object| needed(object))
                .cloned()
                .collect();
            self.states.retain(|object, state| {
                !state.is_idle() || state.used > limit || kept.contains(object)
            });
        }
    }
    /// Asserts the invariant.
    pub fn check(&self) {
        let queued: usize = self.states.values().map(|state| state.queue.len()).sum();
        assert_eq!(self.queued, queued, "operations that wait were miscounted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::SnapId;

    /// (Reading.) A long queue that moves was considered held up: its first operation had arrived
    /// long ago. And a copy's read, which goes to the front, made a queue that does not move look
    /// new.
    #[test]
    fn a_queue_is_held_up_if_it_does_not_move() {
        let (object, mut objects) = (ObjectId::named("a"), Objects::default());
        let at = |ms: u64| Time(ms * 1_000_000);
        let op = |ms| {
            Box::new(Pending {
                received: at(ms),
                ..pending()
            })
        };
        let held_up = |objects: &Objects, ms| {
            objects
                .held_up(&object, at(ms), Duration::from_secs(1))
                .map(|held| held.0)
        };
        (0..4).for_each(|_| objects.push(&object, op(500)));
        assert_eq!(
            (held_up(&objects, 1_499), held_up(&objects, 1_500)),
            (None, Some(4))
        );
        objects.pop(&object, at(1_600)).expect("there");
        assert_eq!(
            (held_up(&objects, 2_599), held_up(&objects, 2_600)),
            (None, Some(3))
        );
        // Begun, and returned because it cannot continue.
        let begun = objects.pop(&object, at(2_500)).expect("there");
        objects.push_front(&object, begun);
        assert_eq!(held_up(&objects, 2_600), Some(3));
        objects.push_front(&object, op(2_600));
        assert_eq!(
            held_up(&objects, 2_600),
            Some(4),
            "what goes first does not say that it moves"
        );
    }

    #[test]
    fn the_last_of_clients_goes_back_and_never_the_next_one() {
        let (object, mut objects) = (ObjectId::named("a"), Objects::default());
        let of = |sequence, from, own| {
            let mut op = Pending {
                from,
                own,
                ..pending()
            };
            op.request.request.sequence = sequence;
            Box::new(op)
        };
        let (client, osd) = (
            Entity::Client(nacre_types::ClientId(1)),
            Entity::Osd(nacre_types::OsdId(1)),
        );
        let drop = || super::super::watch::Own::Drop {
            watchers: Default::default(),
            acked: Default::default(),
        };
        objects.push(&object, of(1, client, None));
        objects.push(&object, of(2, client, None));
        objects.push(&object, of(3, osd, None));
        objects.push(&object, of(4, client, Some(drop())));
        assert_eq!(
            objects
                .pop_back(&object)
                .map(|op| op.request.request.sequence),
            Some(2)
        );
        assert!(objects.pop_back(&object).is_none());
        assert_eq!(objects.queued, 3);
    }

    fn pending() -> Pending {
        let request = OpRequest {
            object: ObjectId::named("a"),
            ..OpRequest::default()
        };
        Pending::new(Entity::Client(nacre_types::ClientId(1)), request, Time(0))
    }

    #[test]
    fn a_clone_is_known_as_long_as_an_operation_on_its_object_waits_or_reads() {
        let object = ObjectId::named("a");
        let clone = ObjectId {
            snapshot: SnapId(1),
            ..object.clone()
        };
        for reads in [0, 1] {
            let mut objects = Objects::default();
            objects.get(&clone).context = Some(Context::default());
            objects.get(&object).reads = reads;
            for n in 0..10 {
                objects.get(&ObjectId::named(&format!("other-{n}")));
            }
            objects.shrink(4);
            assert_eq!(objects.peek(&clone).is_some(), reads > 0);
            assert!(objects.states.len() <= 4, "the others are forgotten");
        }
    }
}
