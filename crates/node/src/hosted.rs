//! A store as a daemon's host keeps it: submissions in order, also when the store is busy; jobs on the workers.
//!
//! A group for the log is started when as many transactions are in hand as were there when the last group ended, written or waiting, or after a few
//! times as long as a group takes. Writers that are answered together write again together, and a wake-up, a message and a flush for all of them cost
//! what they do for one. Without the waiting ones, two halves of the writers would take turns for ever, at twice the cost (`bench/README.md`).
//! A single writer never waits, nor do so few that a group is over before the next of them comes.
//!
//! Invariant: the store sees submissions and reads in the order in which the role made them. When it says *busy*, that one and everything
//! after it waits here and is offered again after commits.

use crate::clock;
use crate::config::Config;
use crate::device::Blocks;
use crate::space::{self, HostSpace, Place};
use crate::workers::{Mailbox, Task, WorkersHandle};
use nacre_store::{DeviceError, Event, Job, ObjectStore, Read, SubmitError, Token, Transaction, Usage};
use nacre_types::Time;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Company comes after its last answer has gone to its client, and its next write to the primary and from there to us: some times what a flush takes.
const COMPANY_GROUPS: u32 = 3;
/// A group waits for company at most this long, however long groups take.
const COMPANY_MAX: Duration = Duration::from_micros(1200);

/// A store may rest at the second look after it was last written to.
const RESTS_AFTER: u32 = 2;

enum Waiting {
    Submit(Transaction, Token),
    Read(Read, Token),
}

/// What is known of a store's room without asking it each time: that costs more the larger the device is.
#[derive(Clone, Copy)]
struct Room {
    total: u64,
    used: u64,
    /// Left for transactions when the store was asked: what it has itself.
    inside: u64,
    /// The same, as far as the host has it.
    free: u64,
    /// Taken since, at most.
    taken: u64,
}
impl Room {
    fn of(usage: &Usage, host: Option<&HostSpace>) -> Self {
        let limited = host.and_then(|host| space::limited(usage, host));
        let (total, free) = limited.unwrap_or((usage.total, usage.free));
        Self { total, used: usage.used, inside: usage.free, free, taken: 0 }
    }
    /// A transaction of so many bytes was taken: a small write may cost a whole block, and records in the index.
    fn take(&mut self, size: usize) {
        self.taken += 4 * size as u64 + (16 << 10);
    }
    /// So much was taken that a store that had room may soon have none.
    fn is_stale(&self) -> bool {
        let distance = self.free.saturating_sub(self.total / 20).max(8 << 20);
        self.taken >= distance / 8
    }
}

/// See the module head.
pub struct Hosted {
    store: Box<dyn ObjectStore>,
    mailbox: Arc<Mailbox>,
    workers: WorkersHandle,
    waiting: VecDeque<Waiting>,
    /// Transactions handed over and not committed.
    handed: usize,
    room: Room,
    blocks: Option<Arc<Blocks>>,
    place: Option<Place>,
    host: Option<HostSpace>,
    /// It said busy since the last kick.
    busy: bool,
    touched: bool,
    /// Handed over and in no group yet.
    unkicked: usize,
    /// When the first of them came.
    unkicked_since: Time,
    /// Looks at it since it was last written to.
    looks: u32,
    /// When the group under way was started.
    kicked_at: Option<Time>,
    /// Transactions in the last group, with those that waited when it ended; and how long it took.
    last_group: (usize, Duration),
    jobs: Vec<Job>,
    jobs_out: usize,
    jobs_done: Vec<nacre_store::JobDone>,
}

impl Hosted {
    pub fn new(store: Box<dyn ObjectStore>, mailbox: Arc<Mailbox>, workers: WorkersHandle) -> Self {
        let room = Room::of(&store.usage(), None);
        Self {
            store,
            mailbox,
            workers,
            waiting: VecDeque::new(),
            handed: 0,
            room,
            blocks: None,
            place: None,
            host: None,
            busy: false,
            touched: false,
            unkicked: 0,
            unkicked_since: Time::ZERO,
            looks: RESTS_AFTER - 1,
            kicked_at: None,
            last_group: (0, Duration::ZERO),
            jobs: Vec::new(),
            jobs_out: 0,
            jobs_done: Vec::new(),
        }
    }

    /// On which device the store lies.
    #[must_use]
    pub fn on(mut self, blocks: Arc<Blocks>) -> Self {
        self.blocks = Some(blocks);
        self
    }

    /// Where it lies: from now on what the host has limits what the store says it has.
    pub fn look_at_host(&mut self, config: &Config, path: &Path) {
        self.place = self.blocks.as_ref().and_then(|blocks| Place::of(config, path, blocks));
        self.look_at_room();
    }

    /// The device.
    pub const fn blocks(&self) -> Option<&Arc<Blocks>> {
        self.blocks.as_ref()
    }

    /// Allocates the log's blocks, which are written again and again.
    ///
    /// # Errors
    /// The host has no room for them.
    pub fn allocate_log(&self) -> Result<(), DeviceError> {
        let Some(blocks) = &self.blocks else { return Ok(()) };
        blocks.allocate(blocks.len().saturating_sub(self.store.usage().total))
    }

    /// What keeps the store from using all of its space, for people; empty: nothing.
    pub fn space_text(&self) -> String {
        match (&self.place, &self.host) {
            (Some(place), Some(host)) if self.room.free < self.room.inside => place.to_text(host),
            _ => String::new(),
        }
    }

    /// Takes a transaction.
    ///
    /// # Errors
    /// Why the daemon must stop.
    pub fn submit(&mut self, transaction: Transaction, token: Token) -> Result<(), SubmitError> {
        if self.waiting.is_empty() {
            self.offer(transaction, token)
        } else {
            self.waiting.push_back(Waiting::Submit(transaction, token));
            Ok(())
        }
    }

    pub fn read(&mut self, read: Read, token: Token) {
        if self.waiting.is_empty() {
            self.store.read(read, token);
            self.touched = true;
        } else {
            self.waiting.push_back(Waiting::Read(read, token));
        }
    }

    /// How much the store takes at once only the store counts: it leaves what it does not take.
    fn offer(&mut self, mut transaction: Transaction, token: Token) -> Result<(), SubmitError> {
        let size = transaction.size();
        match self.store.offer(&mut transaction, token) {
            Ok(()) => {
                self.room.take(size);
                self.looks = 0;
                self.handed += 1;
                self.touched = true;
                self.unkicked += 1;
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

    /// Offers again what waits.
    fn offer_waiting(&mut self) -> Result<(), SubmitError> {
        while let Some(first) = self.waiting.pop_front() {
            match first {
                Waiting::Read(read, token) => {
                    self.store.read(read, token);
                    self.touched = true;
                }
                Waiting::Submit(transaction, token) => {
                    let before = self.waiting.len();
                    self.offer(transaction, token)?;
                    if self.waiting.len() > before {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Why the daemon must stop although the store says nothing: a worker panicked over its work. To be asked in every round: a poll that was under way
    /// has taken the flag that says that there is news.
    pub fn broken(&self) -> Option<String> {
        self.mailbox.broken()
    }
    /// Whether [`Self::poll`] may find something.
    pub fn is_ready(&self) -> bool {
        self.touched || self.mailbox.is_ready()
    }
    /// Whether it has nothing to do and nothing in flight.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.handed == 0 && !self.is_ready()
    }

    /// Appends what happened; to be called in every round of a wake-up.
    ///
    /// # Errors
    /// Why the daemon must stop.
    pub fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), SubmitError> {
        if !self.is_ready() {
            return Ok(());
        }
        let start = events.len();
        self.touched = false;
        loop {
            if self.mailbox.take_ready() && self.jobs_out > 0 {
                self.mailbox.take_jobs(&mut self.jobs_done);
                for done in self.jobs_done.drain(..) {
                    self.jobs_out -= 1;
                    self.store.on_job(done);
                }
            }
            self.store.poll(events);
            if !self.mailbox.is_ready() {
                break;
            }
        }
        let mut committed = 0;
        for event in &events[start..] {
            if let Event::Committed(_) = event {
                // Commits come in order of submission.
                self.handed -= 1;
                committed += 1;
            }
        }
        if committed > 0 {
            // A group also takes what was applied while it waited for the one before.
            self.unkicked = self.unkicked.min(self.handed);
            if let Some(at) = self.kicked_at.take() {
                self.last_group = (committed + self.unkicked, clock::now().since(at));
            }
        }
        if self.room.is_stale() {
            self.look_at_room();
        }
        // Not only after commits: a checkpoint makes room too.
        if !self.waiting.is_empty() {
            self.offer_waiting()?;
        }
        self.begin_jobs();
        Ok(())
    }

    fn begin_jobs(&mut self) {
        self.store.jobs(&mut self.jobs);
        for job in self.jobs.drain(..) {
            self.jobs_out += 1;
            self.workers.begin(Task::Job { job, blocks: self.blocks.clone(), to: self.mailbox.clone() });
        }
    }

    /// One log write and one flush for everything submitted, now or when it has company: see the module head. To be called at the end
    /// of every wake-up, and at [`Self::kick_at`]. `idle`: the host has nothing else to do, so it may as well wait for a single writer's flush.
    pub fn kick(&mut self, now: Time, idle: bool) {
        self.mailbox.set_lone(idle && self.handed == 1);
        if std::mem::take(&mut self.busy) && self.handed == self.unkicked {
            // Nothing is under way whose end would be noticed: what it is busy with, perhaps a checkpoint, must be begun now.
            if self.unkicked > 0 {
                self.kick_now(now);
            } else {
                self.store.kick();
                self.begin_jobs();
            }
            return;
        }
        if self.unkicked == 0 {
            return;
        }
        if self.handed > self.unkicked {
            return; // a group is under way; what arrives meanwhile becomes the next one
        }
        if self.unkicked_since == Time::ZERO {
            self.unkicked_since = now;
        }
        if self.unkicked >= self.last_group.0 || now >= self.kick_at() {
            self.kick_now(now);
        }
    }

    fn kick_now(&mut self, now: Time) {
        (self.unkicked, self.unkicked_since) = (0, Time::ZERO);
        self.kicked_at = Some(now);
        self.store.kick();
        self.begin_jobs();
        self.touched = true;
    }

    /// When a group is to be started that still waits for company.
    pub fn kick_at(&self) -> Time {
        if self.unkicked == 0 || self.unkicked_since == Time::ZERO {
            return Time::MAX;
        }
        self.unkicked_since + (self.last_group.1 * COMPANY_GROUPS).min(COMPANY_MAX)
    }

    /// Asks the store how much room there is; to be called now and then, since freed room is noticed only here.
    pub fn look_at_room(&mut self) {
        let usage = self.store.usage();
        // A host that does not say has no more room than it had.
        self.host = self.place.as_mut().and_then(|place| place.look(&usage)).or(self.host);
        self.room = Room::of(&usage, self.host.as_ref());
    }
    /// To be called twice a second: a store that nobody has written to since the last time may rest. Blocks that wait in the log for their
    /// place keep the buffers in memory that they were received in, many megabytes.
    pub fn rest(&mut self) {
        self.looks = if self.handed == 0 { self.looks.saturating_add(1) } else { 1 };
        if self.looks == RESTS_AFTER {
            self.store.rest();
            self.begin_jobs();
            self.touched = true;
        }
    }
    /// Total and used bytes, as of a moment ago. Near the end it counts what may still be asked for: what is kept for deletes, or may be
    /// needed by what is under way, is as good as used.
    pub fn fullness(&self) -> (u64, u64) {
        let Room { total, used, free, .. } = self.room;
        if self.blocks.as_ref().is_some_and(|blocks| blocks.uses_reserve()) {
            // Everything that is left is for deletions, as of now.
            return (used, used);
        }
        (total, if free < total / 20 { total.saturating_sub(free) } else { used })
    }

    pub fn usage(&self) -> Usage {
        self.store.usage()
    }

    pub fn logged_bytes_max(&self) -> u64 {
        self.store.logged_bytes_max()
    }

    /// Runs until `until` finds its event, blocking; for starting, before there is a reactor.
    pub fn run_until<T>(&mut self, mut until: impl FnMut(Event) -> Option<T>) -> Result<T, SubmitError> {
        let mut events = Vec::new();
        loop {
            if self.unkicked > 0 {
                self.kick_now(clock::now());
            } else {
                self.kick(clock::now(), false);
            }
            self.poll(&mut events)?;
            for event in events.drain(..) {
                if let Some(found) = until(event) {
                    return Ok(found);
                }
            }
            if !self.is_ready() {
                self.mailbox.wait();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wake::Waker;
    use crate::workers::Workers;
    use nacre_store::JobDone;
    use std::sync::Mutex;

    /// A store that commits everything it was given when it is told to, kicked or not.
    #[derive(Default)]
    struct Told {
        submitted: Vec<Token>,
        kicks: usize,
        rests: usize,
        commit: bool,
        /// Only so many of them.
        commit_first: Option<usize>,
        /// It takes no more than so many.
        room: Option<usize>,
        /// Submissions and reads, in order.
        seen: Vec<Token>,
        usage: Usage,
    }
    struct Store(Arc<Mutex<Told>>);

    impl ObjectStore for Store {
        fn offer(&mut self, _: &mut Transaction, token: Token) -> Result<(), SubmitError> {
            let mut told = lock(&self.0);
            if told.room.is_some_and(|room| told.submitted.len() >= room) {
                return Err(SubmitError::Busy);
            }
            told.submitted.push(token);
            told.seen.push(token);
            Ok(())
        }
        fn read(&mut self, _: Read, token: Token) {
            lock(&self.0).seen.push(token);
        }
        fn kick(&mut self) {
            lock(&self.0).kicks += 1;
        }
        fn rest(&mut self) {
            lock(&self.0).rests += 1;
        }
        fn poll(&mut self, events: &mut Vec<Event>) {
            let mut told = lock(&self.0);
            if std::mem::take(&mut told.commit) {
                let count = told.commit_first.take().unwrap_or(told.submitted.len());
                events.extend(told.submitted.drain(..count).map(Event::Committed));
            }
        }
        fn jobs(&mut self, _: &mut Vec<Job>) {}
        fn on_job(&mut self, _: JobDone) {}
        fn usage(&self) -> Usage {
            lock(&self.0).usage
        }
    }

    fn lock(told: &Mutex<Told>) -> std::sync::MutexGuard<'_, Told> {
        told.lock().expect("no test panics while it holds this")
    }

    struct Bench {
        hosted: Hosted,
        told: Arc<Mutex<Told>>,
        _workers: Workers,
    }

    fn bench() -> Bench {
        let workers = Workers::new(1).expect("threads");
        let mailbox = Mailbox::new(Arc::new(Waker::new().expect("an event descriptor")));
        let told = Arc::new(Mutex::new(Told::default()));
        Bench { hosted: Hosted::new(Box::new(Store(told.clone())), mailbox, workers.handle()), told, _workers: workers }
    }

    impl Bench {
        fn submit(&mut self, count: u64) {
            (0..count).for_each(|n| self.hosted.submit(Transaction::default(), Token(n)).expect("taken"));
        }
        fn commit(&mut self) -> usize {
            lock(&self.told).commit = true;
            self.hosted.touched = true;
            let mut events = Vec::new();
            self.hosted.poll(&mut events).expect("no failure");
            events.len()
        }
        fn kicks(&mut self, at: u64) -> usize {
            self.hosted.kick(Time(at), false);
            lock(&self.told).kicks
        }
    }

    #[test]
    fn a_single_writer_never_waits_and_many_wait_for_each_other_but_not_long() {
        let mut bench = bench();
        for round in 1..4 {
            bench.submit(1);
            assert_eq!(bench.kicks(1_000_000 * round as u64), round, "alone: at once");
            assert_eq!(bench.commit(), 1);
        }
        bench.submit(1);
        assert_eq!(bench.kicks(5_000_000), 4);
        bench.submit(7);
        assert_eq!(bench.kicks(5_000_000), 4, "a group is under way");
        bench.commit();
        bench.hosted.last_group = (8, Duration::from_micros(100));
        bench.submit(3);
        assert_eq!(bench.kicks(6_000_000), 4, "five more are likely to come");
        assert_eq!(bench.hosted.kick_at(), Time(6_300_000));
        assert_eq!(bench.kicks(6_300_000), 5, "they did not come");
        bench.commit();
        bench.hosted.last_group = (8, Duration::from_secs(1));
        bench.submit(1);
        bench.kicks(7_000_000);
        assert_eq!(bench.hosted.kick_at(), Time(7_000_000) + COMPANY_MAX);
        bench.submit(7);
        assert_eq!(bench.kicks(7_000_001), 6, "all are here");
    }

    /// Eight of sixteen writers were in the log, eight waited; then these were in the log and those waited, and so on.
    #[test]
    fn halves_of_the_writers_become_one_group() {
        let mut bench = bench();
        bench.submit(8);
        assert_eq!(bench.kicks(1_000_000), 1);
        bench.submit(8);
        assert_eq!(bench.kicks(1_000_000), 1, "a group is under way");
        // The store commits what it wrote, and keeps what came later.
        lock(&bench.told).commit_first = Some(8);
        assert_eq!(bench.commit(), 8);
        bench.hosted.last_group.1 = Duration::from_micros(100);
        assert_eq!(bench.kicks(2_000_000), 1, "the first eight write again soon");
        bench.submit(8);
        assert_eq!(bench.kicks(2_100_000), 2, "all sixteen");
        assert_eq!(bench.commit(), 16);
    }

    /// A store's group takes everything that is applied when it begins, also what was not kicked. The host then waited for the commit of
    /// a group that had nothing left to commit, and never kicked again.
    #[test]
    fn what_committed_without_a_kick_is_not_waited_for() {
        let mut bench = bench();
        bench.submit(1);
        assert_eq!(bench.kicks(1), 1);
        bench.submit(2);
        assert_eq!(bench.commit(), 3);
        assert_eq!(bench.kicks(2), 1, "nothing is left");
        bench.submit(3);
        assert_eq!(bench.kicks(3), 2);
    }

    /// F12: a few puts, and single bytes scattered over cold blocks beside them: what they carry is little, what they change is blocks. The
    /// host believed that so little is never refused, had kept no copy, and panicked.
    #[test]
    fn scattered_bytes_beside_puts_wait_for_their_turn() {
        use nacre_store::testing::TestDevice;
        use nacre_store::{CollectionId, FormatOptions, ObjectKey, OpenOptions};
        let device = TestDevice::new(512 << 20);
        nacre_store::format(&device.blocking(), &FormatOptions::default()).expect("a healthy device");
        let store = nacre_store::Store::open(device.clone(), device.blocking(), &OpenOptions::default());
        let workers = Workers::new(1).expect("threads");
        let mailbox = Mailbox::new(Arc::new(Waker::new().expect("an event descriptor")));
        let mut hosted = Hosted::new(Box::new(store.expect("sound")), mailbox, workers.handle());
        let key = |n: u64| ObjectKey::new(CollectionId(1), format!("{n}"));
        hosted.submit(Transaction::new().create_collection(CollectionId(1)), Token(0)).expect("taken");
        let mut last = 0;
        for n in 1..=8 {
            last += 1;
            hosted.submit(Transaction::new().write(key(n), 0, vec![1; 4 << 20]), Token(last)).expect("taken");
        }
        let committed = |hosted: &mut Hosted, token: u64| {
            hosted.run_until(|event| (event == Event::Committed(Token(token))).then_some(())).expect("no failure");
        };
        committed(&mut hosted, last);
        for round in 0..3 {
            for n in 0..3000 {
                last += 1;
                let t = Transaction::new().write(key(1 + n % 8), n / 8 * 8192 + round, vec![2; 1]);
                hosted.submit(t, Token(last)).expect("taken");
                if n % 1000 == 0 {
                    last += 1;
                    let put = Transaction::new().write(key(100 + n), 0, vec![3; 40 << 10]);
                    hosted.submit(put, Token(last)).expect("taken");
                }
            }
            committed(&mut hosted, last);
        }
        assert_eq!(hosted.handed, 0);
    }

    /// A read of what was just written, behind a store that was busy: it must not overtake the write, nor a later write an earlier one.
    #[test]
    fn what_waits_for_a_busy_store_keeps_its_order() {
        let mut bench = bench();
        lock(&bench.told).room = Some(2);
        let key = || nacre_store::ObjectKey::new(nacre_store::CollectionId(1), "a");
        for n in 0..9 {
            match n % 3 {
                2 => bench.hosted.read(Read::Stat(key()), Token(n)),
                _ => bench.hosted.submit(Transaction::default(), Token(n)).expect("taken"),
            }
        }
        assert!(bench.hosted.waiting.len() > 3 && !bench.hosted.is_idle());
        for _ in 0..9 {
            bench.kicks(1);
            bench.commit();
        }
        let seen: Vec<u64> = lock(&bench.told).seen.iter().map(|token| token.0).collect();
        assert_eq!(seen, (0..9).collect::<Vec<_>>());
        bench.commit();
        assert!(bench.hosted.is_idle());
    }

    /// A kick takes the mark that the store was busy, and what waits goes on waiting.
    /// A read that came then overtook it: it saw objects as they were before earlier writes.
    #[test]
    fn a_read_after_a_kick_waits_behind_earlier_writes() {
        let mut bench = bench();
        lock(&bench.told).room = Some(2);
        bench.submit(3);
        assert_eq!(bench.kicks(1), 1, "two are taken, the third waits");
        let key = nacre_store::ObjectKey::new(nacre_store::CollectionId(1), "a");
        bench.hosted.read(Read::Stat(key), Token(3));
        bench.commit();
        let seen: Vec<u64> = lock(&bench.told).seen.iter().map(|token| token.0).collect();
        assert_eq!(seen, [0, 1, 2, 3]);
    }

    /// Blocks that wait in the log keep the buffers that they were received in. A store that had rested once never rested again.
    #[test]
    fn a_store_rests_after_each_time_it_was_written_to() {
        let mut bench = bench();
        let looks = |bench: &mut Bench, count: u32| {
            (0..count).for_each(|_| bench.hosted.rest());
            std::mem::take(&mut lock(&bench.told).rests)
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

    /// A store that is busy with nothing of ours, a checkpoint that has not been begun: nobody else kicks it, and what waits would wait for ever.
    #[test]
    fn a_busy_store_with_nothing_in_hand_is_kicked() {
        let mut bench = bench();
        lock(&bench.told).room = Some(0);
        bench.submit(1);
        assert_eq!(bench.kicks(1), 1);
        lock(&bench.told).room = None;
        bench.commit();
        let taken = lock(&bench.told).submitted.len();
        assert_eq!((taken, bench.kicks(2)), (1, 2));
    }

    /// A write for which the disk had no room took the reserve's. What is left of that is for deletions: the OSD counts as full at once, whatever its store
    /// believes to have.
    #[test]
    fn a_store_that_lives_on_its_reserve_is_full() {
        use nacre_store::BlockingDevice as _;
        let dir = std::env::temp_dir().join(format!("nacre-hosted-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let blocks = Arc::new(Blocks::open(&dir.join("store"), Some(4 << 20)).expect("opens"));
        let Bench { hosted, told, _workers } = bench();
        let mut hosted = hosted.on(blocks.clone());
        lock(&told).usage = Usage { total: 1000, used: 10, free: 990, ..Usage::default() };
        hosted.look_at_room();
        assert_eq!(hosted.fullness(), (1000, 10));
        std::fs::write(dir.join("store.faults"), "store write error 28").expect("writable");
        assert!(blocks.write_at(0, &[1; 4096]).is_err() && blocks.uses_reserve());
        assert_eq!(hosted.fullness(), (10, 10));
        std::fs::remove_dir_all(dir).expect("ours");
    }

    /// Near its end a store is asked after every few writes, not twice a second: a fast writer fills the rest in between.
    #[test]
    fn a_store_that_fills_is_asked_how_much_room_it_has() {
        const MIB: u64 = 1 << 20;
        let mut bench = bench();
        let usage =
            |free: u64| Usage { total: 1000 * MIB, used: (1000 - free) * MIB, free: free * MIB, ..Usage::default() };
        lock(&bench.told).usage = usage(55);
        bench.hosted.look_at_room();
        assert_eq!(bench.hosted.fullness(), (1000 * MIB, 945 * MIB));
        lock(&bench.told).usage = Usage { used: 600 * MIB, ..usage(20) };
        let mut asked = 0;
        for n in 1..=64 {
            bench.submit(1);
            bench.commit();
            if bench.hosted.fullness() != (1000 * MIB, 945 * MIB) {
                asked = n;
                break;
            }
        }
        assert!((2..=64).contains(&asked), "64 blocks of 16 KiB are an eighth of 8 MiB: {asked}");
        assert_eq!(bench.hosted.fullness().1, 980 * MIB, "what is kept for deletes counts as used near the end");
    }
}
