//! A store in a daemon's process: executes the decisions of [`Feed`] with workers, a mailbox, files
//! and the host's clock.

use crate::clock;
use crate::config::Config;
use crate::device::Blocks;
use crate::space::{self, HostSpace, Place};
use crate::workers::{Mailbox, Task, WorkersHandle};
use nacre_store::{
    DeviceError, Event, Feed, Job, ObjectStore, Read, SubmitError, Token, Transaction, Usage,
};
use nacre_types::Time;
use std::path::Path;
use std::sync::Arc;

/// See the module head.
pub struct Hosted {
    store: Box<dyn ObjectStore>,
    feed: Feed,
    mailbox: Arc<Mailbox>,
    workers: WorkersHandle,
    blocks: Option<Arc<Blocks>>,
    place: Option<Place>,
    host: Option<HostSpace>,
    jobs: Vec<Job>,
    jobs_out: usize,
    jobs_done: Vec<nacre_store::JobDone>,
}

impl Hosted {
    pub fn new(store: Box<dyn ObjectStore>, mailbox: Arc<Mailbox>, workers: WorkersHandle) -> Self {
        let mut feed = Feed::new();
        feed.note_room(&store.usage(), None);
        let (blocks, place, host) = (None, None, None);
        let (jobs, jobs_out, jobs_done) = (Vec::new(), 0, Vec::new());
        Self {
            store,
            feed,
            mailbox,
            workers,
            blocks,
            place,
            host,
            jobs,
            jobs_out,
            jobs_done,
        }
    }

    /// Sets the device of the store.
    #[must_use]
    pub fn on(mut self, blocks: Arc<Blocks>) -> Self {
        self.blocks = Some(blocks);
        self
    }

    /// Sets the store's location: from now on the host's free space limits the space that the store
    /// reports.
    pub fn look_at_host(&mut self, config: &Config, path: &Path) {
        self.place = self
            .blocks
            .as_ref()
            .and_then(|blocks| Place::of(config, path, blocks));
        self.look_at_room();
    }

    /// Its device.
    pub const fn blocks(&self) -> Option<&Arc<Blocks>> {
        self.blocks.as_ref()
    }

    /// Allocates the log's blocks, which are overwritten repeatedly, and drops them from the page
    /// cache, into which opening the store has read them ([`Blocks::forget_first`]).
    ///
    /// # Errors
    /// The operating system's, such as a lack of space on the host.
    pub fn prepare_log(&self) -> Result<(), DeviceError> {
        let Some(blocks) = &self.blocks else {
            return Ok(());
        };
        let log = blocks.len().saturating_sub(self.store.usage().total);
        blocks.forget_first(log)?;
        blocks.allocate(log)
    }

    /// The reason why the store cannot use all of its space, human-readable; empty: there is none.
    pub fn space_text(&self) -> String {
        match (&self.place, &self.host) {
            (Some(place), Some(host)) if self.feed.is_limited() => place.to_text(host),
            _ => String::new(),
        }
    }

    /// Submits a transaction.
    ///
    /// # Errors
    /// Why the daemon must stop.
    pub fn submit(&mut self, transaction: Transaction, token: Token) -> Result<(), SubmitError> {
        self.feed.submit(&mut *self.store, transaction, token)
    }

    pub fn read(&mut self, read: Read, token: Token) {
        self.feed.read(&mut *self.store, read, token);
    }

    /// Why the daemon must stop although the store reports no error: a worker panicked in its job.
    /// Check it in every round: a concurrent poll may have taken the flag that signals events.
    pub fn broken(&self) -> Option<String> {
        self.mailbox.broken()
    }
    /// Whether [`Self::poll`] may find an event.
    pub fn is_ready(&self) -> bool {
        self.feed.is_touched() || self.mailbox.is_ready()
    }
    /// Whether there is no work, pending or in flight.
    pub fn is_idle(&self) -> bool {
        self.feed.is_idle() && !self.mailbox.is_ready()
    }

    /// Appends new events; call it in every round of a wake-up.
    ///
    /// # Errors
    /// Why the daemon must stop.
    pub fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), SubmitError> {
        if !self.is_ready() {
            return Ok(());
        }
        let start = events.len();
        self.feed.polling();
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
        if self.feed.room_is_stale() {
            self.look_at_room();
        }
        self.feed
            .took(&mut *self.store, clock::now, &events[start..])?;
        self.begin_jobs();
        Ok(())
    }

    fn begin_jobs(&mut self) {
        self.store.jobs(&mut self.jobs);
        for job in self.jobs.drain(..) {
            self.jobs_out += 1;
            self.workers.begin(Task::Job {
                job,
                blocks: self.blocks.clone(),
                to: self.mailbox.clone(),
            });
        }
    }

    /// See [`Feed::commit_due`]. `idle`: the host has no other work, so it may wait for a single
    /// writer's flush.
    pub fn commit_due(&mut self, now: Time, idle: bool) {
        self.mailbox.set_lone(idle && self.feed.handed() == 1);
        if self.feed.commit_due(&mut *self.store, now) {
            self.begin_jobs();
        }
    }

    /// See [`Feed::commit_at`].
    pub fn commit_at(&self) -> Time {
        self.feed.commit_at()
    }

    /// Queries the free space of the store; call it periodically, since freed space is noticed only
    /// here.
    pub fn look_at_room(&mut self) {
        let usage = self.store.usage();
        // If the host does not answer, assume its previous free space.
        self.host = self
            .place
            .as_mut()
            .and_then(|place| place.look(&usage))
            .or(self.host);
        let limited = self
            .host
            .as_ref()
            .and_then(|host| space::limited(&usage, host));
        self.feed.note_room(&usage, limited);
    }
    /// See [`Feed::rest`].
    pub fn rest(&mut self) {
        if self.feed.rest(&mut *self.store) {
            self.begin_jobs();
        }
    }
    /// See [`ObjectStore::mark_end`].
    pub fn mark_end(&mut self) -> bool {
        let marked = self.store.mark_end();
        self.begin_jobs();
        marked
    }
    /// Total and used bytes, as last queried: see [`Feed::fullness`].
    pub fn fullness(&self) -> (u64, u64) {
        let (total, used) = self.feed.fullness();
        if self
            .blocks
            .as_ref()
            .is_some_and(|blocks| blocks.uses_reserve())
        {
            // All space that is left is for deletions.
            return (used, used);
        }
        (total, used)
    }

    pub fn usage(&self) -> Usage {
        self.store.usage()
    }

    pub fn logged_bytes_max(&self) -> u64 {
        self.store.logged_bytes_max()
    }

    /// Runs until `until` finds its event, blocking; for the start, before there is a reactor.
    pub fn run_until<T>(
        &mut self,
        mut until: impl FnMut(Event) -> Option<T>,
    ) -> Result<T, SubmitError> {
        let mut events = Vec::new();
        loop {
            self.feed.commit_at_once(&mut *self.store, clock::now());
            self.begin_jobs();
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

    /// F12: a few puts, together with single bytes scattered over cold blocks: their payload is
    /// small, but they change whole blocks. The host assumed that so little is never refused, kept
    /// no copy, and panicked.
    #[test]
    fn scattered_bytes_beside_puts_wait_for_their_turn() {
        use nacre_store::testing::TestDevice;
        use nacre_store::{CollectionId, FormatOptions, ObjectKey, OpenOptions};
        let device = TestDevice::new(512 << 20);
        nacre_store::format(&device.blocking(), &FormatOptions::default())
            .expect("a healthy device");
        let store =
            nacre_store::Store::open(device.clone(), device.blocking(), &OpenOptions::default());
        let workers = Workers::new(1).expect("threads");
        let mailbox = Mailbox::new(Arc::new(Waker::new().expect("an event descriptor")));
        let mut hosted = Hosted::new(Box::new(store.expect("sound")), mailbox, workers.handle());
        let key = |n: u64| ObjectKey::new(CollectionId(1), format!("{n}"));
        hosted
            .submit(
                Transaction::new().create_collection(CollectionId(1)),
                Token(0),
            )
            .expect("taken");
        let mut last = 0;
        for n in 1..=8 {
            last += 1;
            hosted
                .submit(
                    Transaction::new().write(key(n), 0, vec![1; 4 << 20]),
                    Token(last),
                )
                .expect("taken");
        }
        let committed = |hosted: &mut Hosted, token: u64| {
            hosted
                .run_until(|event| (event == Event::Committed(Token(token))).then_some(()))
                .expect("no failure");
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
        assert_eq!(hosted.feed.handed(), 0);
    }

    /// A write for which the disk lacked space used the reserve. The rest of it is for deletions:
    /// the OSD counts as full at once, whatever space its store reports.
    #[test]
    fn a_store_that_lives_on_its_reserve_is_full() {
        use nacre_store::BlockingDevice as _;
        let dir = std::env::temp_dir().join(format!("nacre-hosted-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let blocks = Arc::new(Blocks::open(&dir.join("store"), Some(4 << 20)).expect("opens"));
        let workers = Workers::new(1).expect("threads");
        let mailbox = Mailbox::new(Arc::new(Waker::new().expect("an event descriptor")));
        let store = nacre_store::RamStore::with(nacre_store::ram::Commits::AtKick, 1 << 20);
        let mut hosted = Hosted::new(Box::new(store), mailbox, workers.handle()).on(blocks.clone());
        let object = nacre_store::ObjectKey::new(nacre_store::CollectionId(1), "a");
        let content = Transaction::new()
            .create_collection(nacre_store::CollectionId(1))
            .write(object, 0, vec![1; 1000]);
        hosted.submit(content, Token(1)).expect("taken");
        hosted.look_at_room();
        let (total, used) = hosted.fullness();
        assert!(used >= 1000 && total > 2 * used, "{used} of {total}");
        std::fs::write(dir.join("store.faults"), "store write error 28").expect("writable");
        assert!(blocks.write_at(0, &[1; 4096]).is_err() && blocks.uses_reserve());
        assert_eq!(hosted.fullness(), (used, used));
        std::fs::remove_dir_all(dir).expect("ours");
    }

    /// (Planted by a reviewer.) A store that must clone something that is not in memory needs a job
    /// before it accepts anything: the job was not fetched, and everything later waited for ever.
    #[test]
    fn a_store_that_is_busy_with_nothing_in_hand_gets_its_job() {
        use nacre_store::testing::TestDevice;
        use nacre_store::{CollectionId, FormatOptions, ObjectKey, OpenOptions, Store};
        let device = TestDevice::new(256 << 20);
        nacre_store::format(&device.blocking(), &FormatOptions::default())
            .expect("a healthy device");
        let key = |name: &'static str| ObjectKey::new(CollectionId(1), name);
        let open = || {
            Store::open(device.clone(), device.blocking(), &OpenOptions::default()).expect("sound")
        };
        let workers = Workers::new(1).expect("threads");
        let host = |store| {
            let mailbox = Mailbox::new(Arc::new(Waker::new().expect("an event descriptor")));
            Hosted::new(Box::new(store), mailbox, workers.handle())
        };
        let mut hosted = host(open());
        let fill = |t: Transaction, n: u32| t.omap_set(key("a"), format!("{n}"), vec![1; 100]);
        let first = Transaction::new().create_collection(CollectionId(1));
        hosted
            .submit((0..50).fold(first, fill), Token(0))
            .expect("taken");
        hosted
            .run_until(|event| (event == Event::Committed(Token(0))).then_some(()))
            .expect("no failure");
        drop(hosted);
        let mut hosted = host(open());
        hosted
            .submit(
                Transaction::new().clone_object(key("a"), key("b")),
                Token(1),
            )
            .expect("taken");
        let (begun, mut events) = (crate::clock::now(), Vec::new());
        while !events.contains(&Event::Committed(Token(1))) {
            assert!(
                crate::clock::now().since(begun) < std::time::Duration::from_secs(60),
                "it waits for ever: {events:?}"
            );
            hosted.commit_due(crate::clock::now(), false);
            hosted.poll(&mut events).expect("no failure");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
