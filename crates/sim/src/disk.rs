//! A daemon's store on its simulated disk: when data becomes durable, what a crash leaves, what
//! becomes corrupt.
//!
//! ```text
//!  role ─submit, read─▶ Disk: Feed ─▶ RamStore                commits what it is asked to, on schedule
//!                               └──▶ Store ─▶ TestDevice      operations and jobs finish a few at a time, in any order
//!  crash ─▶ RamStore: a prefix of what was not committed      Store: any part of what was not flushed, in sectors
//! ```
//! Pages of a running store's index may become corrupt ([`Disk::rot_index`]): the store then ends
//! when it reads one, does not open again, or never reads that page.
//!
//! A crash may happen during a job (a checkpoint of the index) or while the store is opened: the
//! next incarnation then finds some prefix of what was being written, as far as it was flushed.

use crate::plan::{Disks, Plan};
use crate::rng::Rng;
use nacre_store::testing::{Completion, Image, PowerCuts, Step, TestDevice};
use nacre_store::{
    CheckOptions, Event, Feed, Finding, FormatOptions, Job, ObjectStore, OpenOptions, RamStore,
    Read, ReadError, ReadReply, Store, SubmitError, Token, Transaction, Usage,
};
use nacre_types::Time;
use std::collections::BTreeSet;

/// Default length of a simulated device in bytes.
pub const DEVICE_LENGTH: u64 = 24 << 20;
/// The log's part of it.
const WAL_LENGTH: u64 = 1 << 20;
/// Start of data, after the two copies of the root and the log (docs/formats/store.md).
const DATA_BEGINS: u64 = 2 * (128 << 10) + WAL_LENGTH;

/// The real store in operation.
struct Real {
    store: Store<TestDevice>,
    device: TestDevice,
    /// What is durable and what is not.
    cuts: PowerCuts,
    jobs: Vec<Job>,
    /// Pages after the log that jobs have written: the index.
    index: BTreeSet<u64>,
}

enum Kind {
    Ram(Box<RamStore>),
    Real(Box<Real>),
    /// The real store's device while its daemon is not running.
    Off(Image),
}

/// A damaged page.
struct Damage {
    at: u64,
    before: [u8; 4096],
    after: [u8; 4096],
}

/// See the module head.
pub struct Disk {
    kind: Kind,
    options: OpenOptions,
    /// Length of the device in bytes.
    length: u64,
    /// The layer in front of a store, as in the production host: ordering, group commit, idle time.
    feed: Feed,
    /// Whether the next turn is scheduled.
    pub scheduled: bool,
    /// Whether objects' blocks may be damaged.
    pub rotten: bool,
    /// Index pages damaged since the index was last intact.
    damages: Vec<Damage>,
    /// Whether index pages have ever been damaged.
    pub index_rotten: bool,
    /// Nothing unflushed survives the next crash.
    pub unlucky: bool,
    /// The device's content when its daemon started.
    at_start: Image,
    /// Transactions that the next turn of a RAM store commits.
    batch: usize,
}

fn options(plan: &Plan) -> OpenOptions {
    OpenOptions {
        deferred_write_max: plan.deferred_write_max,
        // Groups of writes are small here: in half of the runs blocks go beside the log, as with
        // many writers.
        beside_group_min: if plan.deferred_write_max > 4096 { 0 } else { 3 },
        cache_bytes: 64 << 10,
        index_cache_bytes: 1 << 20,
        memtable_bytes: 32 << 10,
        deferred_bytes: 96 << 10,
        queue_bytes_max: plan.queue_bytes_max,
        commit_bytes_max: plan.commit_bytes_max,
        plain: plan.plain,
        salt: 0x6e61_6372_6531_3337,
        // So small that workloads exceed them: omaps are cloned in slices, ranges leave the index
        // in several checkpoints.
        clone_slice_bytes: 256,
        removals_max: 16,
        write_back_depth: 4,
        discard_bytes_min: 8 << 10,
        discard_bytes_max: 64 << 10,
        ..OpenOptions::default()
    }
}

/// The pages that a step writes.
fn pages_of(step: &Step) -> impl Iterator<Item = u64> + use<> {
    let (offset, length) = match step {
        Step::Write { offset, data, .. } => (*offset, data.len() as u64),
        _ => (0, 0),
    };
    (offset..offset + length).step_by(4096)
}

impl Real {
    fn feed(&mut self) {
        for step in self.device.take_steps() {
            self.cuts.step(&step);
            for page in pages_of(&step) {
                self.index.remove(&page);
            }
        }
    }
    /// Runs a job and passes its result to the store.
    fn run(&mut self, job: Job) {
        self.feed();
        let done = job.run();
        for step in self.device.take_steps() {
            self.cuts.step(&step);
            self.index
                .extend(pages_of(&step).filter(|at| *at >= DATA_BEGINS));
        }
        self.store.on_job(done);
    }
    /// The device's content if nothing is lost.
    fn whole(&self) -> Image {
        self.cuts.image(|_, _| true)
    }
    fn take_jobs(&mut self) {
        self.store.jobs(&mut self.jobs);
    }
}

/// Opens the store on an image, with random crashes while opening. If it does not open, returns the
/// device's content and the reason.
fn open(
    length: u64,
    mut image: Image,
    options: &OpenOptions,
    rng: &mut Rng,
    crash: bool,
) -> Result<Real, (Image, String)> {
    loop {
        let device = TestDevice::with_image(length, image.clone());
        let _ = device.record();
        let opened = Store::open(device.clone(), device.blocking(), options);
        let store = match opened {
            Ok(store) => store,
            Err(why) => return Err((device.live(), why.to_string())),
        };
        let mut cuts = PowerCuts::new(image);
        let steps = device.take_steps();
        if crash && rng.one_in(8) {
            image = torn(cuts, &steps, rng);
            continue;
        }
        for step in &steps {
            cuts.step(step);
        }
        device.set_completion(Completion::Held);
        return Ok(Real {
            store,
            device,
            cuts,
            jobs: Vec::new(),
            index: BTreeSet::new(),
        });
    }
}

/// What a crash leaves after some of these steps.
fn torn(mut cuts: PowerCuts, steps: &[Step], rng: &mut Rng) -> Image {
    let done = rng.below(steps.len() as u64 + 1) as usize;
    for step in &steps[..done] {
        cuts.step(step);
    }
    let loose = cuts.loose();
    match rng.below(4) {
        // Nothing unflushed survives.
        0 => cuts.image(|_, _| false),
        // Only the process died: everything written is there.
        1 => cuts.image(|at, _| cuts.is_written(at)),
        2 => {
            let kept: Vec<bool> = (0..loose).map(|_| rng.one_in(2)).collect();
            cuts.image(|at, _| kept[at])
        }
        _ => cuts.image(|_, _| rng.one_in(2)),
    }
}

/// A failed submission is reported in an event.
fn taken(result: Result<(), SubmitError>) {
    match result {
        Ok(()) | Err(SubmitError::Failed) => {}
        Err(why) => panic!("the store refuses what its daemon must write: {why}"),
    }
}

/// The offline check's report for a device.
fn checked(length: u64, image: Image) -> nacre_store::Report {
    let device = TestDevice::with_image(length, image);
    nacre_store::check(&device.blocking(), CheckOptions { data: true }).expect("a healthy device")
}

/// A page after a fault: with a flipped bit, with its content `before` (later writes were lost), or
/// with the content of the page at `other` (a misdirected write).
fn damaged(image: &Image, before: &Image, at: u64, other: u64, rng: &mut Rng) -> [u8; 4096] {
    let mut page = [0; 4096];
    match rng.below(3) {
        0 => {
            image.read(at, &mut page);
            page[rng.below(4096) as usize] ^= 1 << rng.below(8);
        }
        1 => before.read(at, &mut page),
        _ => image.read(other, &mut page),
    }
    page
}

impl Disk {
    /// A disk with a store that holds one transaction.
    #[must_use]
    pub fn new(plan: &Plan, length: u64, content: Transaction, rng: &mut Rng) -> Self {
        let mut options = options(plan);
        if plan.index_rot {
            // A small cache, so that damaged pages are actually read.
            options.index_cache_bytes = 4 << 10;
        }
        let kind = match plan.disks {
            Disks::Ram => {
                let mut store = RamStore::with(nacre_store::ram::Commits::Manual, 1 << 40);
                store
                    .submit(content, Token(0))
                    .expect("an empty store takes its first transaction");
                store.commit(usize::MAX);
                Kind::Ram(Box::new(store.crash(0)))
            }
            Disks::Real => {
                let device = TestDevice::new(length);
                let format = FormatOptions {
                    wal_bytes: Some(WAL_LENGTH),
                    ..FormatOptions::default()
                };
                nacre_store::format(&device.blocking(), &format)
                    .expect("a healthy device of sufficient size");
                let opened = open(length, device.live(), &options, rng, false);
                let real =
                    opened.unwrap_or_else(|(_, why)| panic!("a new store does not open: {why}"));
                let mut disk = Self::of(Kind::Real(Box::new(real)), options, length);
                disk.submit(content, Token(0));
                disk.run_until(|event| matches!(event, Event::Committed(_)).then_some(()));
                disk.power_off(rng);
                return disk;
            }
        };
        Self::of(kind, options, length)
    }

    fn of(kind: Kind, options: OpenOptions, length: u64) -> Self {
        let (feed, at_start, damages) = (Feed::new(), Image::default(), Vec::new());
        Self {
            kind,
            options,
            length,
            feed,
            scheduled: false,
            rotten: false,
            damages,
            index_rotten: false,
            unlucky: false,
            at_start,
            batch: 0,
        }
    }

    fn store(&mut self) -> &mut dyn ObjectStore {
        self.fed().1
    }
    fn fed(&mut self) -> (&mut Feed, &mut dyn ObjectStore) {
        let store: &mut dyn ObjectStore = match &mut self.kind {
            Kind::Ram(store) => &mut **store,
            Kind::Real(real) => &mut real.store,
            Kind::Off(_) => panic!("the disk of a daemon that does not run"),
        };
        (&mut self.feed, store)
    }

    /// Starts the daemon. With `faults`, the start may be interrupted and repeated.
    ///
    /// # Errors
    /// Why the store does not open, if its index was damaged.
    pub fn power_on(&mut self, rng: &mut Rng, faults: bool) -> Result<(), String> {
        if let Kind::Off(image) = &mut self.kind {
            self.at_start = image.clone();
            match open(
                self.length,
                std::mem::take(image),
                &self.options,
                rng,
                faults,
            ) {
                Ok(real) => self.kind = Kind::Real(Box::new(real)),
                Err((left, why)) => {
                    assert!(
                        self.index_rotten,
                        "a store does not open after a crash: {why}"
                    );
                    self.kind = Kind::Off(left);
                    return Err(why);
                }
            }
        }
        Ok(())
    }

    /// Damages index pages of a running store: flipped bits, another page's content, or the content
    /// from when the daemon started. The last one only for a single page, because a store that
    /// loses a page together with its checksum cannot detect it (F7). Returns the number of damaged
    /// pages.
    pub fn rot_index(&mut self, rng: &mut Rng) -> usize {
        let Kind::Real(real) = &mut self.kind else {
            return 0;
        };
        real.feed();
        let pages: Vec<u64> = real.index.iter().copied().collect();
        if pages.is_empty() {
            return 0;
        }
        let (count, mut lost) = (rng.between(1, 12), self.index_rotten);
        for _ in 0..count {
            let (at, other) = (*rng.pick(&pages), *rng.pick(&pages));
            let (mut before, now) = ([0; 4096], real.device.live());
            now.read(at, &mut before);
            let after = damaged(
                &now,
                if lost { &now } else { &self.at_start },
                at,
                other,
                rng,
            );
            lost = true;
            real.device.overwrite(at, &after);
            real.cuts.overwrite(at, &after);
            self.damages.push(Damage { at, before, after });
        }
        self.index_rotten = true;
        count as usize
    }

    /// Whether no index page is damaged.
    #[must_use]
    pub const fn is_index_whole(&self) -> bool {
        self.damages.is_empty()
    }

    /// Restores index pages that are still as they were damaged: the cause was a cable, or the
    /// sector can be read at the third attempt.
    pub fn mend_index(&mut self) {
        // A page may have been damaged twice: the last damage is undone first.
        for Damage { at, before, after } in std::mem::take(&mut self.damages).into_iter().rev() {
            let mut page = [0; 4096];
            match &mut self.kind {
                Kind::Real(real) => {
                    real.feed();
                    real.device.live().read(at, &mut page);
                    if page == after {
                        real.device.overwrite(at, &before);
                        real.cuts.overwrite(at, &before);
                    }
                }
                Kind::Off(image) => {
                    image.read(at, &mut page);
                    if page == after {
                        image.write(at, &before);
                    }
                }
                Kind::Ram(_) => {}
            }
        }
    }

    /// The daemon crashes. Returns a description of what was unflushed.
    pub fn power_off(&mut self, rng: &mut Rng) -> String {
        self.feed = Feed::new();
        (self.scheduled, self.batch) = (false, 0);
        let kind = std::mem::replace(&mut self.kind, Kind::Off(Image::default()));
        let unlucky = std::mem::take(&mut self.unlucky);
        match kind {
            Kind::Ram(store) => {
                let lucky = if unlucky {
                    0
                } else {
                    rng.below(store.uncommitted() as u64 + 1) as usize
                };
                let text = format!(
                    "{lucky} of {} unflushed transactions survive",
                    store.uncommitted()
                );
                self.kind = Kind::Ram(Box::new(store.crash(lucky)));
                text
            }
            Kind::Real(mut real) => {
                real.feed();
                let text = format!(
                    "{} writes were not flushed, {} jobs under way",
                    real.cuts.loose(),
                    real.jobs.len()
                );
                let mut last = Vec::new();
                for job in std::mem::take(&mut real.jobs) {
                    if !unlucky && rng.one_in(2) {
                        drop(job.run());
                        last.extend(real.device.take_steps());
                    }
                }
                let left = if unlucky {
                    real.cuts.image(|_, _| false)
                } else {
                    torn(real.cuts, &last, rng)
                };
                self.kind = Kind::Off(left);
                text
            }
            Kind::Off(image) => {
                self.kind = Kind::Off(image);
                "it was off".to_owned()
            }
        }
    }

    /// Submits a transaction, now or when the store is no longer busy.
    pub fn submit(&mut self, transaction: Transaction, token: Token) {
        let (feed, store) = self.fed();
        taken(feed.submit(store, transaction, token));
    }
    /// Submits a read; it sees every transaction submitted before.
    pub fn read(&mut self, read: Read, token: Token) {
        let (feed, store) = self.fed();
        feed.read(store, read, token);
    }

    /// Appends the new events.
    pub fn poll(&mut self, now: Time, events: &mut Vec<Event>) {
        let from = events.len();
        let (feed, store) = self.fed();
        feed.polling();
        store.poll(events);
        taken(feed.took(store, || now, &events[from..]));
    }

    /// The end of a wake-up: one log write and one flush for what was submitted in it, possibly
    /// later to group it with more.
    pub fn commit_due(&mut self, now: Time) {
        let (feed, store) = self.fed();
        feed.commit_due(store, now);
        self.look_at_real();
    }

    /// When [`Self::commit_due`] must be called again at the latest.
    #[must_use]
    pub fn commit_at(&self) -> Time {
        self.feed.commit_at()
    }

    /// To be called twice a second: idle work.
    pub fn rest(&mut self) {
        let (feed, store) = self.fed();
        feed.rest(store);
        self.look_at_real();
    }

    fn look_at_real(&mut self) {
        if let Kind::Real(real) = &mut self.kind {
            real.take_jobs();
            real.feed();
            real.store.check();
            if self.feed.none_wait() && real.jobs.is_empty() && !real.store.is_busy() {
                real.store.check_at_rest();
            }
        }
    }

    /// Whether the disk has work; if so, the caller must schedule a turn, and this returns `false`
    /// until that turn is over.
    pub fn wants_turn(&mut self) -> bool {
        let busy = match &self.kind {
            Kind::Ram(store) => {
                if !self.scheduled {
                    self.batch = store.requested();
                }
                self.batch > 0
            }
            Kind::Real(real) => real.device.in_flight() > 0 || !real.jobs.is_empty(),
            Kind::Off(_) => false,
        };
        let wants = busy && !self.scheduled;
        self.scheduled |= busy;
        wants
    }

    /// Finishes some of the pending work.
    pub fn turn(&mut self, rng: &mut Rng) {
        self.scheduled = false;
        match &mut self.kind {
            Kind::Ram(store) => store.commit(self.batch),
            Kind::Real(real) => {
                let under_way = real.device.in_flight() as u64;
                for _ in 0..if under_way > 0 {
                    rng.between(1, under_way)
                } else {
                    0
                } {
                    let at = rng.below(real.device.in_flight() as u64);
                    real.device.complete(at as usize);
                }
                // Polls occasionally between jobs, so that their results meet any state of the
                // store.
                for _ in 0..real.jobs.len() {
                    if under_way == 0 || rng.one_in(2) {
                        let at = rng.below(real.jobs.len() as u64) as usize;
                        let job = real.jobs.swap_remove(at);
                        real.run(job);
                    }
                }
                real.feed();
            }
            Kind::Off(_) => {}
        }
    }

    /// Makes every write and flush fail from now on (after a few more).
    pub fn break_down(&mut self, rng: &mut Rng) {
        match &mut self.kind {
            Kind::Ram(store) => {
                store.fail(nacre_store::StoreFailure::Device(
                    nacre_store::DeviceError::Os(5),
                ));
            }
            Kind::Real(real) => real.device.fail_after(rng.below(4)),
            Kind::Off(_) => {}
        }
    }

    /// Flips bits in a block of a random object, or makes it unreadable until the daemon restarts.
    /// Returns whether there was such an object.
    pub fn rot(&mut self, rng: &mut Rng) -> bool {
        let Kind::Real(real) = &mut self.kind else {
            return false;
        };
        let blocks = real.device.data_blocks(WAL_LENGTH);
        if blocks.is_empty() {
            return false;
        }
        real.feed();
        let at = *rng.pick(&blocks);
        if rng.one_in(3) {
            real.device.make_unreadable(at);
        } else {
            let page = damaged(
                &real.device.live(),
                &self.at_start,
                at,
                *rng.pick(&blocks),
                rng,
            );
            real.device.overwrite(at, &page);
            real.cuts.overwrite(at, &page);
        }
        self.rotten = true;
        true
    }

    /// Damages a closed device in its roots, log and index, but not in objects' data. Returns
    /// whether the store detects it: it does not open, or its check reports it, and is unusable
    /// then. Damage that neither detects stays and has to be harmless.
    pub fn spoil(&mut self, rng: &mut Rng) -> bool {
        let Kind::Off(image) = &mut self.kind else {
            return false;
        };
        let replayed = checked(self.length, image.clone()).replayed;
        let pages: Vec<u64> = image.written().collect();
        for _ in 0..rng.between(1, 6) {
            let (at, other) = (*rng.pick(&pages), *rng.pick(&pages));
            let mut spoilt = image.clone();
            spoilt.write(at, &damaged(image, &self.at_start, at, other, rng));
            let report = checked(self.length, spoilt.clone());
            let is_data = |finding: &Finding| matches!(finding, Finding::Data { .. });
            // If one copy of the root is damaged, the other is used.
            let is_noticed = |finding: &Finding| !is_data(finding) && *finding != Finding::RootCopy;
            let noticed = report.findings.iter().any(is_noticed);
            // Damage to the log's last group looks like a torn write (docs/formats/store.md): such
            // a replica cannot know what it has lost.
            if noticed || !report.findings.iter().any(is_data) && report.replayed == replayed {
                *image = spoilt;
            }
            if noticed {
                return true;
            }
        }
        false
    }

    /// Capacity and usage, as the production host reports them.
    pub fn fullness(&mut self) -> (u64, u64) {
        let (feed, store) = self.fed();
        feed.note_room(&store.usage(), None);
        feed.fullness()
    }

    /// Space and work counters.
    pub fn usage(&mut self) -> Usage {
        self.store().usage()
    }

    /// A RAM store's answer to a read; `None` for other stores, which a read would disturb.
    #[must_use]
    pub fn peek(&self, read: &Read) -> Option<Result<ReadReply, ReadError>> {
        match &self.kind {
            Kind::Ram(store) => Some(store.peek(read)),
            _ => None,
        }
    }

    /// The size limit of one transaction.
    pub fn logged_bytes_max(&mut self) -> u64 {
        self.store().logged_bytes_max()
    }

    fn run_until<T>(&mut self, mut until: impl FnMut(Event) -> Option<T>) -> T {
        let mut events = Vec::new();
        for _ in 0..10_000 {
            let (feed, store) = self.fed();
            feed.commit_at_once(store, Time::ZERO);
            self.look_at_real();
            self.poll(Time::ZERO, &mut events);
            if let Some(found) = events.drain(..).find_map(&mut until) {
                return found;
            }
            if let Kind::Real(real) = &mut self.kind {
                while real.device.in_flight() > 0 {
                    real.device.complete(0);
                }
                for job in std::mem::take(&mut real.jobs) {
                    let done = job.run();
                    real.store.on_job(done);
                }
            }
        }
        panic!("the store does not answer");
    }

    /// Reads and waits for the answer, at the end of a run.
    ///
    /// # Errors
    /// The store's.
    pub fn ask(&mut self, read: Read) -> Result<ReadReply, ReadError> {
        let token = Token(u64::MAX);
        self.store().read(read, token);
        self.run_until(|event| match event {
            Event::Read(answered, reply) if answered == token => Some(reply),
            _ => None,
        })
    }

    /// What the offline check finds on the device, if there is one.
    #[must_use]
    pub fn findings(&self) -> Vec<String> {
        let Kind::Real(real) = &self.kind else {
            return Vec::new();
        };
        let report = checked(self.length, real.whole());
        let expected = |finding: &&Finding| self.rotten && matches!(finding, Finding::Data { .. });
        report
            .findings
            .iter()
            .filter(|finding| !expected(finding))
            .map(|finding| format!("{finding:?}"))
            .collect()
    }
}
