//! Feeding the store from a host: submissions in order, also while the store is busy, and one log
//! write and flush for many.
//!
//! ```text
//!  role ─submit, read─▶ Feed ─offer, read─▶ ObjectStore       busy: it and all behind it wait here, in order
//!  host ─commit_at, commit_due─▶ Feed ─request_commit─▶ ObjectStore  one group in flight; the next when enough are here, or after a while
//!  ObjectStore ─events─▶ Feed::took                           commits are counted, waiting submissions are retried
//! ```
//! A group for the log is started when as many transactions are pending as were there when the last
//! group ended, written or waiting, or after a small multiple of a group's duration. Writers that
//! are answered together write again together, and a wake-up, a message and a flush for all of them
//! cost the same as for one. Without counting the waiting ones, two halves of the writers would
//! take turns for ever, at twice the cost (`bench/README.md`). A single writer never waits, nor do
//! writers so few that a group ends before the next of them arrives.
//!
//! Invariants: the store gets submissions and reads in the order in which the role made them; as
//! long as any is pending there is a group in flight, or a time ([`Feed::commit_at`]) at which one
//! is started, or the store is busy with work of its own. Both hosts run this, the simulator too.

use crate::api::{Event, ObjectStore, Op, Read, SubmitError, Token, Transaction, Usage};
use nacre_types::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// Other writers' transactions arrive after their last answer has reached the client, and their
/// next write the primary and then this OSD: a small multiple of a flush's duration.
const COMPANY_GROUPS: u32 = 3;
/// A group waits for other transactions at most this long, independent of the duration of groups.
const COMPANY_MAX: Duration = Duration::from_micros(1200);
/// The store is idle at the second check after its last write.
const RESTS_AFTER: u32 = 2;

enum Waiting {
    Submit(Transaction, Token),
    Read(Read, Token),
}

/// An estimate of a store's space without asking it each time: the cost of asking grows with the
/// device.
#[derive(Clone, Copy, Default)]
struct Room {
    total: u64,
    used: u64,
    /// Space for transactions when the store was asked, in the store itself.
    inside: u64,
    /// The same, limited by the host's space.
    free: u64,
    /// The maximum space taken since.
    taken: u64,
}

impl Room {
    /// A transaction of this size was accepted: a small write may cost a whole block, and records
    /// in the index. Only the store knows the cost of a clone.
    fn take(&mut self, size: usize, clones: bool) {
        self.taken += if clones {
            self.free
        } else {
            4 * size as u64 + (16 << 10)
        };
    }
    /// Whether so much was taken that a store with space may soon have none.
    fn is_stale(&self) -> bool {
        let distance = self.free.saturating_sub(self.total / 20).max(8 << 20);
        self.taken >= distance / 8
    }
}

/// The host's feed of one store; see the module head.
#[derive(Default)]
pub struct Feed {
    waiting: VecDeque<Waiting>,
    /// Transactions accepted by the store and not committed.
    handed: usize,
    room: Room,
    /// The store was busy since the last `request_commit`.
    busy: bool,
    /// The store got a submission or a `request_commit`, and was not polled since.
    touched: bool,
    /// Transactions accepted by the store and in no group yet.
    unrequested: usize,
    /// When the first of them was found at the end of a wake-up.
    unrequested_since: Option<Time>,
    /// The number of checks since the last write.
    looks: u32,
    /// When the group in flight was started.
    requested_at: Option<Time>,
    /// The number of transactions in the last group, with those that waited when it ended; and its
    /// duration.
    last_group: (usize, Duration),
}

impl Feed {
    /// For a store that was just opened, which may have work to do when idle.
    #[must_use]
    pub fn new() -> Self {
        Self {
            looks: RESTS_AFTER - 1,
            ..Self::default()
        }
    }

    /// Takes a transaction, for the store now or when it is no longer busy.
    ///
    /// # Errors
    /// Why the daemon must stop: the store refuses a transaction that its role must write.
    pub fn submit(
        &mut self,
        store: &mut dyn ObjectStore,
        transaction: Transaction,
        token: Token,
    ) -> Result<(), SubmitError> {
        if self.waiting.is_empty() {
            self.offer(store, transaction, token)
        } else {
            self.waiting.push_back(Waiting::Submit(transaction, token));
            Ok(())
        }
    }

    /// Takes a read; it sees every transaction submitted before, and none submitted later.
    pub fn read(&mut self, store: &mut dyn ObjectStore, read: Read, token: Token) {
        if self.waiting.is_empty() {
            store.read(read, token);
            self.touched = true;
        } else {
            self.waiting.push_back(Waiting::Read(read, token));
        }
    }

    /// Only the store knows how much it accepts at once: it leaves the rest.
    fn offer(
        &mut self,
        store: &mut dyn ObjectStore,
        mut transaction: Transaction,
        token: Token,
    ) -> Result<(), SubmitError> {
        let (size, clones) = (
            transaction.size(),
            transaction
                .ops
                .iter()
                .any(|op| matches!(op, Op::Clone { .. })),
        );
        match store.offer(&mut transaction, token) {
            Ok(()) => {
                self.room.take(size, clones);
                self.looks = 0;
                self.handed += 1;
                self.touched = true;
                self.unrequested += 1;
                Ok(())
            }
            Err(SubmitError::Busy) => {
                self.waiting.push_front(Waiting::Submit(transaction, token));
                self.busy = true;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Submits the waiting transactions again.
    fn offer_waiting(&mut self, store: &mut dyn ObjectStore) -> Result<(), SubmitError> {
        while let Some(first) = self.waiting.pop_front() {
            match first {
                Waiting::Read(read, token) => {
                    store.read(read, token);
                    self.touched = true;
                }
                Waiting::Submit(transaction, token) => {
                    let before = self.waiting.len();
                    self.offer(store, transaction, token)?;
                    if self.waiting.len() > before {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// The store is about to be polled.
    pub fn polling(&mut self) {
        self.touched = false;
    }

    /// The events of a poll of the store; the clock is read if a group has ended. Now the store may
    /// accept waiting transactions: after commits, and after jobs, because a checkpoint frees space
    /// too.
    ///
    /// # Errors
    /// As for [`Self::submit`].
    pub fn took(
        &mut self,
        store: &mut dyn ObjectStore,
        now: impl FnOnce() -> Time,
        events: &[Event],
    ) -> Result<(), SubmitError> {
        let committed = events
            .iter()
            .filter(|event| matches!(event, Event::Committed(_)))
            .count();
        if committed > 0 {
            // Commits come in order of submission.
            self.handed -= committed;
            // A group also contains transactions that were applied while it waited for the previous
            // one.
            self.unrequested = self.unrequested.min(self.handed);
            if self.unrequested == 0 {
                self.unrequested_since = None;
            }
            if let Some(at) = self.requested_at.take() {
                self.last_group = (committed + self.unrequested, now().since(at));
            }
        }
        self.offer_waiting(store)
    }

    /// Requests one log write and one flush for everything submitted, now or when enough
    /// transactions are pending: see the module head. To be called at the end of every wake-up, and
    /// at [`Self::commit_at`]. Returns whether the store was asked to commit: it may have jobs.
    pub fn commit_due(&mut self, store: &mut dyn ObjectStore, now: Time) -> bool {
        if std::mem::take(&mut self.busy) && self.handed == self.unrequested {
            // Nothing is in flight whose end would be noticed: the work that the store is busy
            // with, perhaps a checkpoint, must be begun now.
            if self.unrequested > 0 {
                self.commit_now(store, now);
            } else {
                store.request_commit();
            }
            return true;
        }
        if self.unrequested == 0 {
            return false;
        }
        if self.handed > self.unrequested {
            return false; // a group is in flight; later transactions form the next one
        }
        if self.unrequested_since.is_none() {
            self.unrequested_since = Some(now);
        }
        if self.unrequested >= self.last_group.0 || now >= self.commit_at() {
            self.commit_now(store, now);
            return true;
        }
        false
    }

    /// The same without waiting for other transactions: for a start, when there is only one writer.
    pub fn commit_at_once(&mut self, store: &mut dyn ObjectStore, now: Time) {
        if self.unrequested > 0 {
            self.commit_now(store, now);
        } else {
            self.commit_due(store, now);
        }
    }

    fn commit_now(&mut self, store: &mut dyn ObjectStore, now: Time) {
        (self.unrequested, self.unrequested_since) = (0, None);
        self.requested_at = Some(now);
        store.request_commit();
        self.touched = true;
    }

    /// The time at which a group that waits for other transactions must be started.
    #[must_use]
    pub fn commit_at(&self) -> Time {
        match self.unrequested_since {
            Some(since) if self.unrequested > 0 => {
                since + (self.last_group.1 * COMPANY_GROUPS).min(COMPANY_MAX)
            }
            _ => Time::MAX,
        }
    }

    /// To be called twice a second: a store without writes since the last call is idle. Blocks that
    /// wait in the log keep the buffers in memory that they were received in, many megabytes.
    /// Returns whether it is idle now: it may have jobs.
    pub fn rest(&mut self, store: &mut dyn ObjectStore) -> bool {
        self.looks = if self.handed == 0 {
            self.looks.saturating_add(1)
        } else {
            1
        };
        let rests = self.looks == RESTS_AFTER;
        if rests {
            store.rest();
            self.touched = true;
        }
        rests
    }

    /// The store's report on its space; and the total and free bytes of its host, if the host has
    /// fewer.
    pub fn note_room(&mut self, usage: &Usage, limited: Option<(u64, u64)>) {
        let (total, free) = limited.unwrap_or((usage.total, usage.free));
        self.room = Room {
            total,
            used: usage.used,
            inside: usage.free,
            free,
            taken: 0,
        };
    }

    /// Whether so much was taken since [`Self::note_room`] that the store must be asked again.
    #[must_use]
    pub fn room_is_stale(&self) -> bool {
        self.room.is_stale()
    }

    /// Whether the store's host has less space than the store itself.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.room.free < self.room.inside
    }

    /// Total and used bytes, as of [`Self::note_room`]. Near the end, only the space for new
    /// transactions counts as free: the reserve for deletes, and the reservations of transactions
    /// in progress, count as used.
    #[must_use]
    pub fn fullness(&self) -> (u64, u64) {
        let Room {
            total, used, free, ..
        } = self.room;
        (
            total,
            if free < total / 20 {
                total.saturating_sub(free)
            } else {
                used
            },
        )
    }

    /// Whether polling the store may return results of its inputs.
    #[must_use]
    pub fn is_touched(&self) -> bool {
        self.touched
    }
    /// Transactions accepted by the store and not committed.
    #[must_use]
    pub fn handed(&self) -> usize {
        self.handed
    }
    /// Whether no transaction waits to be accepted by the store.
    #[must_use]
    pub fn none_wait(&self) -> bool {
        self.waiting.is_empty()
    }
    /// Whether it has nothing to do and nothing in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.none_wait() && self.handed == 0 && !self.touched
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{CollectionId, Job, JobDone, ObjectKey};

    /// A store that commits everything on the test's command, asked or not.
    #[derive(Default)]
    struct Told {
        submitted: Vec<Token>,
        requests: usize,
        rests: usize,
        commit: bool,
        /// Only this many of them.
        commit_first: Option<usize>,
        /// It accepts no more than this many.
        room: Option<usize>,
        /// Submissions and reads, in order.
        seen: Vec<Token>,
        usage: Usage,
    }

    impl ObjectStore for Told {
        fn offer(&mut self, _: &mut Transaction, token: Token) -> Result<(), SubmitError> {
            if self.room.is_some_and(|room| self.submitted.len() >= room) {
                return Err(SubmitError::Busy);
            }
            self.submitted.push(token);
            self.seen.push(token);
            Ok(())
        }
        fn read(&mut self, _: Read, token: Token) {
            self.seen.push(token);
        }
        fn request_commit(&mut self) {
            self.requests += 1;
        }
        fn rest(&mut self) {
            self.rests += 1;
        }
        fn poll(&mut self, events: &mut Vec<Event>) {
            if std::mem::take(&mut self.commit) {
                let count = self.commit_first.take().unwrap_or(self.submitted.len());
                events.extend(self.submitted.drain(..count).map(Event::Committed));
            }
        }
        fn jobs(&mut self, _: &mut Vec<Job>) {}
        fn on_job(&mut self, _: JobDone) {}
        fn usage(&self) -> Usage {
            self.usage
        }
    }

    struct Bench {
        feed: Feed,
        told: Told,
        now: Time,
    }

    fn bench() -> Bench {
        Bench {
            feed: Feed::new(),
            told: Told::default(),
            now: Time::ZERO,
        }
    }

    impl Bench {
        fn submit_one(&mut self, n: u64) {
            self.feed
                .submit(&mut self.told, Transaction::default(), Token(n))
                .expect("taken");
        }
        fn submit(&mut self, count: u64) {
            (0..count).for_each(|n| self.submit_one(n));
        }
        fn read(&mut self, read: Read, token: Token) {
            self.feed.read(&mut self.told, read, token);
        }
        fn look(&mut self) {
            self.feed.note_room(&self.told.usage, None);
        }
        fn rest(&mut self) {
            self.feed.rest(&mut self.told);
        }
        fn commit(&mut self) -> usize {
            self.told.commit = true;
            let mut events = Vec::new();
            self.feed.polling();
            self.told.poll(&mut events);
            if self.feed.room_is_stale() {
                self.look();
            }
            self.feed
                .took(&mut self.told, || self.now, &events)
                .expect("no failure");
            events.len()
        }
        fn requests(&mut self, at: u64) -> usize {
            self.now = Time(at);
            self.feed.commit_due(&mut self.told, self.now);
            self.told.requests
        }
    }

    #[test]
    fn a_single_writer_never_waits_and_many_wait_for_each_other_but_not_long() {
        let mut bench = bench();
        for round in 1..4 {
            bench.submit(1);
            assert_eq!(
                bench.requests(1_000_000 * round as u64),
                round,
                "alone: at once"
            );
            assert_eq!(bench.commit(), 1);
        }
        bench.submit(1);
        assert_eq!(bench.requests(5_000_000), 4);
        bench.submit(7);
        assert_eq!(bench.requests(5_000_000), 4, "a group is under way");
        bench.commit();
        bench.feed.last_group = (8, Duration::from_micros(100));
        bench.submit(3);
        assert_eq!(bench.requests(6_000_000), 4, "five more are likely to come");
        assert_eq!(bench.feed.commit_at(), Time(6_300_000));
        assert_eq!(bench.requests(6_300_000), 5, "they did not come");
        bench.commit();
        bench.feed.last_group = (8, Duration::from_secs(1));
        bench.submit(1);
        bench.requests(7_000_000);
        assert_eq!(bench.feed.commit_at(), Time(7_000_000) + COMPANY_MAX);
        bench.submit(7);
        assert_eq!(bench.requests(7_000_001), 6, "all are here");
    }

    /// Eight of sixteen writers were in the log, eight waited; then the latter were in the log and
    /// the former waited, and so on.
    #[test]
    fn halves_of_the_writers_become_one_group() {
        let mut bench = bench();
        bench.submit(8);
        assert_eq!(bench.requests(1_000_000), 1);
        bench.submit(8);
        assert_eq!(bench.requests(1_000_000), 1, "a group is under way");
        // The store commits what it wrote, and keeps later transactions.
        bench.told.commit_first = Some(8);
        assert_eq!(bench.commit(), 8);
        bench.feed.last_group.1 = Duration::from_micros(100);
        assert_eq!(
            bench.requests(2_000_000),
            1,
            "the first eight write again soon"
        );
        bench.submit(8);
        assert_eq!(bench.requests(2_100_000), 2, "all sixteen");
        assert_eq!(bench.commit(), 16);
    }

    /// A store's group contains everything that is applied when it begins, including transactions
    /// after the last `request_commit`. The host then waited for the commit of a group that had
    /// nothing left to commit, and never requested again.
    #[test]
    fn what_committed_without_a_request_is_not_waited_for() {
        let mut bench = bench();
        bench.submit(1);
        assert_eq!(bench.requests(1), 1);
        bench.submit(2);
        assert_eq!(bench.commit(), 3);
        assert_eq!(bench.requests(2), 1, "nothing is left");
        bench.submit(3);
        assert_eq!(bench.requests(3), 2);
    }

    /// A read of data just written, behind a store that was busy: it must not overtake the write,
    /// nor a later write an earlier one.
    #[test]
    fn what_waits_for_a_busy_store_keeps_its_order() {
        let mut bench = bench();
        bench.told.room = Some(2);
        let key = || ObjectKey::new(CollectionId(1), "a");
        for n in 0..9 {
            match n % 3 {
                2 => bench.read(Read::Stat(key()), Token(n)),
                _ => bench.submit_one(n),
            }
        }
        assert!(bench.feed.waiting.len() > 3 && !bench.feed.is_idle());
        for _ in 0..9 {
            bench.requests(1);
            bench.commit();
        }
        let seen: Vec<u64> = bench.told.seen.iter().map(|token| token.0).collect();
        assert_eq!(seen, (0..9).collect::<Vec<_>>());
        bench.commit();
        assert!(bench.feed.is_idle());
    }

    /// A `request_commit` clears the mark that the store was busy, and waiting transactions
    /// continue to wait. A read that arrived then overtook them: it saw objects as they were before
    /// earlier writes.
    #[test]
    fn a_read_after_a_request_waits_behind_earlier_writes() {
        let mut bench = bench();
        bench.told.room = Some(2);
        bench.submit(3);
        assert_eq!(bench.requests(1), 1, "two are taken, the third waits");
        let key = ObjectKey::new(CollectionId(1), "a");
        bench.read(Read::Stat(key), Token(3));
        bench.commit();
        let seen: Vec<u64> = bench.told.seen.iter().map(|token| token.0).collect();
        assert_eq!(seen, [0, 1, 2, 3]);
    }

    /// Blocks that wait in the log keep the buffers that they were received in. A store that had
    /// been idle once never became idle again.
    #[test]
    fn a_store_rests_after_each_time_it_was_written_to() {
        let mut bench = bench();
        let looks = |bench: &mut Bench, count: u32| {
            (0..count).for_each(|_| bench.rest());
            std::mem::take(&mut bench.told.rests)
        };
        assert_eq!(looks(&mut bench, 10), 1, "what it did when it was opened");
        for looked_at in [true, false, true, false] {
            bench.submit(1);
            if looked_at {
                assert_eq!(looks(&mut bench, 10), 0, "it is being written to");
            }
            bench.commit();
            assert_eq!(looks(&mut bench, 10), 1, "once");
        }
    }

    /// A store is busy although nothing of ours is in flight, because a checkpoint has not been
    /// begun: it is requested only from here, and otherwise the waiting transactions would wait for
    /// ever.
    #[test]
    fn a_busy_store_with_nothing_in_flight_is_asked_to_commit() {
        let mut bench = bench();
        bench.told.room = Some(0);
        bench.submit(1);
        assert_eq!(bench.requests(1), 1);
        bench.told.room = None;
        bench.commit();
        let taken = bench.told.submitted.len();
        assert_eq!((taken, bench.requests(2)), (1, 2));
    }

    /// A nearly full store is asked after every few writes, not twice a second: a fast writer fills
    /// the rest in between.
    #[test]
    fn a_store_that_fills_is_asked_how_much_room_it_has() {
        const MIB: u64 = 1 << 20;
        let mut bench = bench();
        let usage = |free: u64| Usage {
            total: 1000 * MIB,
            used: (1000 - free) * MIB,
            free: free * MIB,
            ..Usage::default()
        };
        bench.told.usage = usage(55);
        bench.look();
        assert_eq!(bench.feed.fullness(), (1000 * MIB, 945 * MIB));
        bench.told.usage = Usage {
            used: 600 * MIB,
            ..usage(20)
        };
        let mut asked = 0;
        for n in 1..=64 {
            bench.submit(1);
            bench.commit();
            if bench.feed.fullness() != (1000 * MIB, 945 * MIB) {
                asked = n;
                break;
            }
        }
        assert!(
            (2..=64).contains(&asked),
            "64 blocks of 16 KiB are an eighth of 8 MiB: {asked}"
        );
        assert_eq!(
            bench.feed.fullness().1,
            980 * MIB,
            "what is kept for deletes counts as used near the end"
        );
    }

    /// (Planted by a reviewer.) The cost of a clone is not in the transaction's size: after a
    /// clone, the estimate of the space is stale.
    #[test]
    fn a_clone_makes_the_account_of_room_old() {
        let of = |name: &'static str| ObjectKey::new(CollectionId(1), name);
        let small = Transaction::new().touch(of("a"));
        let clone = Transaction::new().clone_object(of("a"), of("b"));
        for (transaction, stale) in [(small, false), (clone, true)] {
            let mut bench = bench();
            let (total, used) = (1000 << 20, 500 << 20);
            bench.told.usage = Usage {
                total,
                used,
                free: total - used,
                ..Usage::default()
            };
            bench.look();
            bench
                .feed
                .submit(&mut bench.told, transaction, Token(1))
                .expect("taken");
            assert_eq!(bench.feed.room_is_stale(), stale);
        }
    }
}
