//! Checks a few times a second whether device calls and jobs of stores end, on a separate thread:
//! the reactor itself may hang in a call.
//!
//! ```text
//!   Calls of each store ──every 200 ms──▶ Watch: the oldest, and how long it has lasted
//!                                           │ a quarter of a second ──▶ News ──▶ the reactor tells its role (`osd/src/device.rs`: slow, stalled)
//!                                           │ the reactor hangs in it ──▶ last words to a monitor, on a separate connection
//!                                           └ device_hung ──▶ the process ends (or, in an embedded cluster, the daemon halts)
//!   told to end, and its disk slow: a turn of the reactor may take a minute ──▶ the process ends
//!
//!   the watchdog's looks ──every 500 ms──▶ the reactor: any progress? ──no──▶ its daemons halt
//! ```
//! Ages are counted in completed looks: a process that was stopped, or starved, does not attribute
//! its own absence to its disk. A job also computes between its calls, which does not concern the
//! device: it is only reported once it counts as hung, after [`JOB_PATIENCE`] times as long.

use crate::calls::{Outstanding, What};
use crate::clock;
use crate::device::Blocks;
use crate::last_words::{self, LastWords};
use crate::wake::Waker;
use nacre_osd::Timing;
use nacre_role::DeviceCall;
use nacre_types::{Entity, Time};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval of looks.
const EVERY: Duration = Duration::from_millis(200);
/// Shorter calls are not reported.
const NOTABLE: Duration = Duration::from_millis(250);
/// Factor by which a job may take longer between two of its calls than a call.
const JOB_PATIENCE: u32 = 3;
/// Looks of the reactor, two a second, within which the watchdog must have looked once.
const SILENT_MAX: u32 = 20;
/// How long a [`Witness`] waits for the lock during a look. A look holds its lock for microseconds,
/// but may itself be delayed: by a busy machine, or by a device that hangs in a call of the look.
const WITNESS_MAX: Duration = Duration::from_secs(1);
/// How long to wait for its end.
const END_MAX: Duration = Duration::from_secs(2);

/// How long calls of one device have been seen. The pure part.
#[derive(Debug, Default)]
pub struct Watch {
    awake: Duration,
    last: Option<Time>,
    /// First sighting of each, in awake time.
    seen: BTreeMap<u64, (Duration, What, bool)>,
}

/// A long call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub what: What,
    /// The reactor's thread makes it.
    pub inline: bool,
    pub age: Duration,
    pub ended: bool,
}

impl Watch {
    /// Handles the calls in progress. Returns the oldest long call; or else, once, one that was
    /// long. A job counts from `job_max` on.
    pub fn look(
        &mut self,
        now: Time,
        outstanding: &[Outstanding],
        job_max: Duration,
    ) -> Option<Seen> {
        let passed = self.last.map_or(Duration::ZERO, |last| now.since(last));
        self.awake += passed.min(EVERY * 2);
        self.last = Some(now);
        let awake = self.awake;
        let is_there = |number: &u64| outstanding.iter().any(|call| call.number == *number);
        let seen = |ended| {
            move |(since, what, inline): (Duration, What, bool)| Seen {
                what,
                inline,
                age: awake - since,
                ended,
            }
        };
        let ended = self
            .seen
            .iter()
            .filter(|(number, _)| !is_there(number))
            .map(|(_, seen)| *seen);
        let ended = ended.map(seen(true)).max_by_key(|seen| seen.age);
        self.seen.retain(|number, _| is_there(number));
        for call in outstanding {
            self.seen
                .entry(call.number)
                .or_insert((awake, call.what, call.inline));
        }
        let counts = |seen: &Seen| {
            seen.age
                >= if seen.what == What::Job {
                    job_max
                } else {
                    NOTABLE
                }
        };
        let oldest = self
            .seen
            .values()
            .copied()
            .map(seen(false))
            .filter(counts)
            .max_by_key(|seen| seen.age);
        oldest.or(ended.filter(counts))
    }

    /// The call that blocks the reactor's thread, if it is long: another one may be older.
    fn inline(&self) -> Option<Seen> {
        let (since, what, inline) = *self.seen.values().find(|(_, _, inline)| *inline)?;
        let age = self.awake - since;
        (age >= NOTABLE).then_some(Seen {
            what,
            inline,
            age,
            ended: false,
        })
    }
}

/// Whether the watchdog itself makes progress, as seen by its reactor. The pure part.
#[derive(Debug, Default)]
struct Pulse {
    looks: u64,
    silent: u32,
}

impl Pulse {
    /// Takes its number of looks. Returns whether it has stopped.
    fn look(&mut self, looks: u64) -> bool {
        self.silent = if looks == self.looks {
            self.silent + 1
        } else {
            0
        };
        self.looks = looks;
        self.silent >= SILENT_MAX
    }
}

/// Reports of the watchdog to a reactor about one store.
#[derive(Debug, Default)]
pub struct News {
    fresh: AtomicBool,
    call: Mutex<Option<DeviceCall>>,
    /// Settings of the reactor for the watchdog.
    for_watchdog: Mutex<ForWatchdog>,
}

/// Limits, and the messages to send when the reactor cannot.
#[derive(Debug, Default)]
pub struct ForWatchdog {
    pub timing: Timing,
    pub words: Option<LastWords>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl News {
    /// The new state, if there is one.
    pub fn take(&self) -> Option<Option<DeviceCall>> {
        if !self.fresh.load(Ordering::Relaxed) || !self.fresh.swap(false, Ordering::Acquire) {
            return None;
        }
        Some(lock(&self.call).clone())
    }
    fn put(&self, call: Option<DeviceCall>) {
        *lock(&self.call) = call;
        self.fresh.store(true, Ordering::Release);
    }
    /// Updates the settings; called periodically.
    pub fn tell(&self, tell: impl FnOnce(&mut ForWatchdog)) {
        tell(&mut lock(&self.for_watchdog));
    }
}

/// One store that is watched.
struct Watched {
    who: Entity,
    blocks: Weak<Blocks>,
    device: String,
    news: Arc<News>,
    watch: Watch,
    /// A report was sent and has to be retracted.
    told: bool,
    /// Last words sent about the current call: that it is slow, that it stalls.
    spoken: u8,
}

/// The reaction to a device that hangs for too long. Called on the watchdog's thread; it may end
/// the process.
pub type OnHung = fn(&str);

/// A process that was told to end, and its time limit.
struct Ending {
    told: Arc<AtomicBool>,
    /// In looks.
    since: u32,
    limit: Duration,
    end: OnHung,
}

impl Ending {
    /// Whether the limit is exceeded.
    fn look(&mut self) -> bool {
        self.since += u32::from(self.told.load(Ordering::Relaxed));
        EVERY * self.since > self.limit
    }
}

struct Shared {
    all: Mutex<Vec<Watched>>,
    /// Number of looks.
    looks: AtomicU64,
    closed: Mutex<bool>,
    close: Condvar,
    waker: Arc<Waker>,
    on_hung: Mutex<Option<OnHung>>,
    ending: Mutex<Option<Ending>>,
}

/// Reports hanging calls to another thread.
#[derive(Clone)]
pub struct Witness(Arc<Shared>);

impl Witness {
    /// The hanging calls, with their daemons. Also empty when the watchdog itself makes no progress
    /// for [`WITNESS_MAX`].
    pub fn hanging(&self) -> Vec<(Entity, DeviceCall)> {
        let begun = clock::now();
        let all = loop {
            match self.0.all.try_lock() {
                Ok(all) => break all,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if clock::now().since(begun) < WITNESS_MAX => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(TryLockError::WouldBlock) => return Vec::new(),
            }
        };
        let call = |watched: &Watched| lock(&watched.news.call).clone().filter(|call| !call.ended);
        all.iter()
            .filter_map(|watched| Some((watched.who, call(watched)?)))
            .collect()
    }
}

/// See the module head. Dropping it ends the thread.
pub struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    pulse: Pulse,
}

impl Watchdog {
    pub fn new(waker: Arc<Waker>) -> Self {
        let shared = Shared {
            all: Mutex::default(),
            looks: AtomicU64::new(0),
            closed: Mutex::new(false),
            close: Condvar::new(),
            waker,
            on_hung: Mutex::new(None),
            ending: Mutex::new(None),
        };
        Self {
            shared: Arc::new(shared),
            thread: None,
            pulse: Pulse::default(),
        }
    }

    pub fn on_hung(&self, what: OnHung) {
        *lock(&self.shared.on_hung) = Some(what);
    }

    /// Calls `end` if the process has not ended within `limit` after it was told to. (Found by
    /// chaos: each write took 3.7 s, and a daemon that was told to end had not after 40 s: its
    /// reactor was in one turn all the while.)
    pub fn end_within(&self, told: Arc<AtomicBool>, limit: Duration, end: OnHung) {
        *lock(&self.shared.ending) = Some(Ending {
            told,
            since: 0,
            limit,
            end,
        });
    }

    /// For a thread that waits for a watched one.
    pub fn witness(&self) -> Witness {
        Witness(self.shared.clone())
    }

    /// Watches a store's device from now on. If it already does, it returns the same reports.
    ///
    /// # Errors
    /// No thread can be created.
    pub fn watch(
        &mut self,
        who: Entity,
        device: String,
        blocks: &Arc<Blocks>,
    ) -> std::io::Result<Arc<News>> {
        let known = |watched: &&Watched| watched.blocks.ptr_eq(&Arc::downgrade(blocks));
        if let Some(watched) = lock(&self.shared.all).iter().find(known) {
            return Ok(watched.news.clone());
        }
        let news = Arc::new(News::default());
        let (blocks, watch) = (Arc::downgrade(blocks), Watch::default());
        let watched = Watched {
            who,
            blocks,
            device,
            news: news.clone(),
            watch,
            told: false,
            spoken: 0,
        };
        lock(&self.shared.all).push(watched);
        if self.thread.is_none() {
            let shared = self.shared.clone();
            let run = move || shared.run();
            self.thread = Some(
                std::thread::Builder::new()
                    .name("nacre-watchdog".to_owned())
                    .spawn(run)?,
            );
        }
        Ok(news)
    }

    /// Whether it makes progress; call it twice a second. Returns the reason why the watched
    /// daemons must stop: a hanging disk would not be detected any more.
    pub fn check(&mut self) -> Option<String> {
        let thread = self.thread.as_ref()?;
        let why = if thread.is_finished() {
            "its watchdog ended by a fault of its own (the log says where)"
        } else if self.pulse.look(self.shared.looks.load(Ordering::Relaxed)) {
            "its watchdog hangs"
        } else {
            return None;
        };
        Some(format!(
            "{why}: a disk that hangs would not be noticed; start the daemon again"
        ))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *lock(&self.shared.closed) = true;
        self.shared.close.notify_all();
        let Some(thread) = self.thread.take() else {
            return;
        };
        let begun = clock::now();
        while !thread.is_finished() {
            if clock::now().since(begun) > END_MAX {
                // It hangs, which is why its daemon stops. The thread is abandoned.
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = thread.join();
    }
}

impl Shared {
    fn run(&self) {
        let mut closed = lock(&self.closed);
        loop {
            closed = self
                .close
                .wait_timeout(closed, EVERY)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(c, _)| c);
            if *closed {
                return;
            }
            drop(closed);
            self.look();
            closed = lock(&self.closed);
        }
    }

    fn look(&self) {
        let (now, mut calls, mut wake) = (clock::now(), Vec::new(), false);
        let mut all = lock(&self.all);
        all.retain(|watched| watched.blocks.strong_count() > 0);
        for watched in all.iter_mut() {
            let Some(blocks) = watched.blocks.upgrade() else {
                continue;
            };
            blocks.meet("look");
            calls.clear();
            blocks.calls().outstanding(&mut calls);
            let hung = lock(&watched.news.for_watchdog).timing.device_hung;
            let seen = watched.watch.look(now, &calls, hung * JOB_PATIENCE);
            if let Some(seen) = seen {
                watched.news.put(Some(watched.name(seen)));
                watched.told = true;
                wake = true;
                let hook = *lock(&self.on_hung);
                watched.act(seen, hook);
            } else if std::mem::take(&mut watched.told) {
                watched.news.put(None);
                watched.spoken = 0;
                wake = true;
            }
        }
        drop(all);
        let mut ending = lock(&self.ending);
        if let Some(Ending { limit, end, .. }) = ending.take_if(Ending::look) {
            end(&format!(
                "told to end {} s ago, and its disk is too slow for that: it ends now. What was answered is on the disk",
                limit.as_secs()
            ));
        }
        drop(ending);
        self.looks.fetch_add(1, Ordering::Relaxed);
        if wake {
            self.waker.wake();
        }
    }
}

impl Watched {
    fn name(&self, seen: Seen) -> DeviceCall {
        DeviceCall {
            device: self.device.clone(),
            what: seen.what.to_text(),
            age: seen.age,
            ended: seen.ended,
        }
    }

    /// Acts in place of a hanging reactor.
    fn act(&mut self, seen: Seen, hook: Option<OnHung>) {
        let (timing, words) = {
            let for_watchdog = lock(&self.news.for_watchdog);
            (for_watchdog.timing, for_watchdog.words.clone())
        };
        if let Some(own) = self.watch.inline() {
            let grade =
                u8::from(own.age >= timing.device_slow) + u8::from(own.age >= timing.device_stall);
            if let Some(words) = words.filter(|_| grade > self.spoken) {
                self.spoken = grade;
                last_words::speak(words, &self.name(own).to_text(), grade > 1);
            }
        } else {
            self.spoken = 0;
        }
        if let Some(hook) = hook.filter(|_| !seen.ended && seen.age >= timing.device_hung) {
            hook(&hung(self.who, &self.name(seen).to_text()));
        }
    }
}

/// The reason why a daemon with a hanging device ends.
pub fn hung(who: Entity, text: &str) -> String {
    format!(
        "{who} ends: {text}. The other replicas serve its data; look at the disk (`dmesg`), then start {who} again"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_store::BlockingDevice as _;

    const JOB_MAX: Duration = Duration::from_secs(30);

    fn call(number: u64) -> Outstanding {
        Outstanding {
            number,
            what: What::Flush,
            inline: false,
        }
    }
    fn at(ms: u64) -> Time {
        Time(1 + ms * 1_000_000)
    }

    /// (Found by reading the code.) A flush of a worker hung, then the reactor hung in its own
    /// write: the daemon was not reported to be marked down, since the older call was not the
    /// reactor's.
    #[test]
    fn the_reactors_own_call_is_seen_beside_an_older_one() {
        let mut watch = Watch::default();
        let own = Outstanding {
            inline: true,
            ..call(4)
        };
        assert!(watch.look(at(0), &[call(2)], JOB_MAX).is_none());
        let oldest = [200, 400, 600].map(|ms| {
            watch
                .look(at(ms), &[call(2), own], JOB_MAX)
                .map(|seen| seen.age)
        });
        assert_eq!(oldest[2], Some(Duration::from_millis(600)));
        let seen = watch.inline().expect("it is long");
        assert_eq!((seen.age, seen.inline), (Duration::from_millis(400), true));
        watch.look(at(800), &[call(2)], JOB_MAX);
        assert!(watch.inline().is_none());
    }

    #[test]
    fn the_oldest_call_is_told_while_it_lasts_and_once_when_it_ended() {
        let mut watch = Watch::default();
        assert_eq!(watch.look(at(0), &[call(2)], JOB_MAX), None);
        assert_eq!(
            watch.look(at(200), &[call(2), call(4)], JOB_MAX),
            None,
            "not notable yet"
        );
        let seen = watch
            .look(at(400), &[call(2), call(4)], JOB_MAX)
            .expect("long");
        assert_eq!((seen.age, seen.ended), (Duration::from_millis(400), false));
        let seen = watch
            .look(at(600), &[call(4)], JOB_MAX)
            .expect("the other one is older than a quarter of a second, too");
        assert_eq!((seen.age, seen.ended), (Duration::from_millis(400), false));
        let seen = watch.look(at(800), &[], JOB_MAX).expect("it took long");
        assert_eq!((seen.age, seen.ended), (Duration::from_millis(600), true));
        assert_eq!(watch.look(at(1000), &[], JOB_MAX), None);
        let ages = [
            (1200, &[call(6)][..]),
            (1400, &[call(8), call(6)]),
            (1800, &[call(8), call(6)]),
        ]
        .map(|(ms, calls)| watch.look(at(ms), calls, JOB_MAX).map(|seen| seen.age));
        assert_eq!(
            ages[2],
            Some(Duration::from_millis(600)),
            "of two that take long the older one"
        );
    }

    #[test]
    fn many_quick_calls_are_not_a_long_one() {
        let mut watch = Watch::default();
        for n in 0..100 {
            assert_eq!(watch.look(at(n * 200), &[call(2 * n)], JOB_MAX), None);
        }
    }

    /// The counted time is bounded: otherwise, after SIGCONT every call in progress was a minute
    /// old, and the daemon ended.
    #[test]
    fn a_process_that_was_stopped_does_not_blame_its_disk() {
        let mut watch = Watch::default();
        watch.look(at(0), &[call(2)], JOB_MAX);
        let seen = watch
            .look(at(60_000), &[call(2)], JOB_MAX)
            .expect("notable");
        assert_eq!(seen.age, Duration::from_millis(400));
    }

    /// A job may compute for any time without concerning the disk, until it counts as hung; a call
    /// of the job restarts its age.
    #[test]
    fn a_job_is_told_only_when_it_hangs() {
        let job = |number| Outstanding {
            number,
            what: What::Job,
            inline: false,
        };
        let mut watch = Watch::default();
        let told = |watch: &mut Watch, from: u64, outstanding: &[Outstanding]| {
            (from..from + 200).find_map(|n| {
                watch
                    .look(at(n * 200), outstanding, JOB_MAX)
                    .map(|seen| (n - from, seen))
            })
        };
        for number in 1..4 {
            let looks = 100;
            let quiet = (0..looks).all(|n| {
                watch
                    .look(at((number * looks + n) * 200), &[job(number)], JOB_MAX)
                    .is_none()
            });
            assert!(quiet, "20 s between two calls");
        }
        assert_eq!(
            watch.look(at(80_000), &[], JOB_MAX),
            None,
            "nor when it has ended"
        );
        let (looks, seen) = told(&mut watch, 401, &[job(9)]).expect("it hangs");
        assert_eq!(
            (looks, seen.what, seen.ended, seen.age),
            (150, What::Job, false, JOB_MAX)
        );
        let seen = watch
            .look(at(111_000), &[call(12), job(9)], JOB_MAX)
            .expect("still");
        assert_eq!(seen.what, What::Job, "the older one");
    }

    #[test]
    fn a_watchdog_that_does_not_look_is_noticed() {
        let mut pulse = Pulse::default();
        assert!(
            (0..100).all(|n| !pulse.look(n / 10)),
            "starved, it looks now and then"
        );
        let still = (0..100)
            .position(|_| pulse.look(9))
            .expect("it stands still");
        assert!((9..=20).contains(&still), "{still}");
    }

    #[test]
    fn a_watchdog_that_panicked_is_noticed_and_one_that_is_not_needed_is_not_missed() {
        let dir = std::env::temp_dir().join(format!("nacre-watchdog-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let mut dog = Watchdog::new(Arc::new(Waker::new().expect("an event counter")));
        assert_eq!(dog.check(), None, "there is nothing to watch");
        let blocks = Arc::new(Blocks::open(&dir.join("store"), Some(1 << 20)).expect("opens"));
        let who = Entity::Osd(nacre_types::OsdId(0));
        let news = dog.watch(who, "d".to_owned(), &blocks).expect("a thread");
        assert!(
            Arc::ptr_eq(
                &news,
                &dog.watch(who, "d".to_owned(), &blocks).expect("a thread")
            ),
            "it is watched already"
        );
        assert_eq!(dog.check(), None);
        std::fs::write(dir.join("store.faults"), "store look panic").expect("writable");
        let begun = clock::now();
        while !dog.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            assert!(
                clock::now().since(begun) < Duration::from_secs(60),
                "it does not meet the fault"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(
            dog.check()
                .is_some_and(|why| why.contains("its watchdog ended")),
            "at once"
        );
        drop(blocks);
        std::fs::remove_dir_all(dir).expect("ours");
    }

    /// A device with faults from a file beside its store, and the watchdog over it.
    struct Kennel {
        dir: std::path::PathBuf,
        blocks: Arc<Blocks>,
        news: Arc<News>,
        dog: Watchdog,
    }
    impl Kennel {
        fn new(name: &str, hook: OnHung) -> Self {
            let dir =
                std::env::temp_dir().join(format!("nacre-kennel-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&dir).expect("a directory");
            let blocks = Arc::new(Blocks::open(&dir.join("store"), Some(1 << 20)).expect("opens"));
            let mut dog = Watchdog::new(Arc::new(Waker::new().expect("an event counter")));
            dog.on_hung(hook);
            let news = dog
                .watch(Entity::Osd(nacre_types::OsdId(0)), "d".to_owned(), &blocks)
                .expect("a thread");
            Self {
                dir,
                blocks,
                news,
                dog,
            }
        }
        fn meet(&self, line: &str) {
            std::fs::write(self.dir.join("store.faults"), line).expect("writable");
        }
        /// The next report for which this is true.
        fn until(
            &self,
            what: &str,
            is_so: impl Fn(&Option<DeviceCall>) -> bool,
        ) -> Option<DeviceCall> {
            let begun = clock::now();
            loop {
                if let Some(call) = self.news.take().filter(|call| is_so(call)) {
                    return call;
                }
                assert!(
                    clock::now().since(begun) < Duration::from_secs(60),
                    "{what}: nothing is said"
                );
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    impl Drop for Kennel {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }

    static HUNG: Mutex<Vec<String>> = Mutex::new(Vec::new());

    /// Each kind of call is reported while it lasts, named when it counts as hung, and retracted
    /// when it has ended.
    #[test]
    fn a_call_that_hangs_is_told_named_and_taken_back() {
        let kennel = Kennel::new("calls", |why| lock(&HUNG).push(why.to_owned()));
        kennel
            .news
            .tell(|for_watchdog| for_watchdog.timing.device_hung = Duration::from_millis(600));
        let blocks = &kennel.blocks;
        let calls: [(&str, &str, &(dyn Fn() + Sync)); 4] = [
            ("flush", "a flush", &|| blocks.flush().expect("flushes")),
            ("discard", "a discard", &|| {
                let kind = nacre_store::IoKind::Discard {
                    offset: 0,
                    length: 4096,
                };
                blocks.run(kind).map(drop).expect("punched or refused");
            }),
            ("forget", "a drop of its page cache", &|| {
                blocks.forget_cached().expect("forgets")
            }),
            ("job", "a job of the store", &|| blocks.work(|| ())),
        ];
        for (call, named, make) in calls {
            kennel.meet(&format!("store {call} hang 90000"));
            std::thread::scope(|scope| {
                scope.spawn(make);
                let seen = kennel.until(call, Option::is_some).expect("it is");
                assert_eq!((seen.what, seen.ended), (named, false));
                let begun = clock::now();
                while !lock(&HUNG)
                    .iter()
                    .any(|why| why.contains(&format!("{named} has not ended")))
                {
                    assert!(
                        clock::now().since(begun) < Duration::from_secs(60),
                        "{call}: the deadline does not fire"
                    );
                    std::thread::sleep(Duration::from_millis(5));
                }
                kennel.meet("");
                std::fs::remove_file(kennel.dir.join("store.faults")).expect("ours");
            });
            kennel.until(call, Option::is_none);
        }
    }

    /// (Failed once in ten runs of all tests.) A cluster that did not stop did not name the hanging
    /// disk: the query came during a look, and was answered that nothing hangs.
    #[test]
    fn who_asks_while_it_looks_waits_for_the_answer() {
        let kennel = Kennel::new("asked", |_| {});
        kennel.meet("store flush hang 90000");
        let witness = kennel.dog.witness();
        std::thread::scope(|scope| {
            scope.spawn(|| kennel.blocks.flush().expect("flushes"));
            kennel.until("flush", Option::is_some);
            let looking = lock(&kennel.dog.shared.all);
            let (begun, begins) = std::sync::mpsc::channel();
            let asked = scope.spawn(move || {
                begun.send(()).expect("waited for");
                witness.hanging()
            });
            begins.recv().expect("it asks");
            std::thread::sleep(Duration::from_millis(20));
            drop(looking);
            assert_eq!(asked.join().expect("no panic").len(), 1, "the flush hangs");
            std::fs::remove_file(kennel.dir.join("store.faults")).expect("ours");
        });
    }

    /// A process that was told to end does end, however long its reactor's turns take; and not
    /// before it is told.
    #[test]
    fn who_is_told_to_end_and_cannot_is_ended() {
        static ENDED: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let kennel = Kennel::new("ending", |_| {});
        let told = Arc::new(AtomicBool::new(false));
        kennel.dog.end_within(told.clone(), EVERY * 3, |why| {
            lock(&ENDED).push(why.to_owned())
        });
        let looks = || kennel.dog.shared.looks.load(Ordering::Relaxed);
        let until = |count: u64| {
            let begun = clock::now();
            while looks() < count {
                assert!(
                    clock::now().since(begun) < Duration::from_secs(60),
                    "it does not look"
                );
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        until(looks() + 6);
        assert!(lock(&ENDED).is_empty(), "nobody told it");
        told.store(true, Ordering::Relaxed);
        until(looks() + 12);
        let said = lock(&ENDED);
        assert!(
            matches!(&said[..], [why] if why.contains("told to end")),
            "once: {said:?}"
        );
    }

    /// The reactor hangs in the call and reports nothing itself.
    #[test]
    fn last_words_are_said_for_a_reactor_that_hangs_in_its_disk() {
        use nacre_types::{ClientId, ClusterId, Epoch, Instance, OsdId};
        use nacre_wire::Message;
        use nacre_wire::msg::monitor::{Beacon, FailureReport, Hello};
        use std::io::Read as _;
        let mon = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let (osd, instance) = (OsdId(0), Instance(1));
        let (address, auth, name, to) = (
            None,
            bytes::Bytes::new(),
            nacre_types::Name::default(),
            None,
        );
        let from = Entity::Client(ClientId(1));
        let hello = Hello {
            cluster: ClusterId(1),
            from,
            instance,
            to,
            supported: 0,
            required: 0,
            address,
            auth,
            name,
        };
        let (pgs, slow, device, space) = (Vec::new(), Vec::new(), String::new(), String::new());
        let beacon = Beacon {
            osd,
            instance,
            total: 1,
            used: 0,
            pgs,
            all: true,
            slow,
            device,
            space,
            no_room: false,
        };
        let report = FailureReport {
            target: osd,
            instance,
            reporter: osd,
            silent_ms: 0,
            alive: true,
            refused: false,
            itself: true,
            stalled: false,
        };
        let mons = vec![(
            nacre_types::MonId(0),
            mon.local_addr().expect("bound").to_string(),
        )];
        let kennel = Kennel::new("words", |_| {});
        kennel.news.tell(|for_watchdog| {
            for_watchdog.timing.device_slow = Duration::from_millis(300);
            for_watchdog.words = Some(LastWords {
                mons,
                epoch: Epoch(1),
                hello,
                beacon,
                report,
            });
        });
        kennel.meet("store space hang 90000");
        std::thread::scope(|scope| {
            scope.spawn(|| kennel.blocks.ask_space(|| ()));
            let (mut stream, _) = mon.accept().expect("a connection");
            stream
                .set_read_timeout(Some(Duration::from_secs(60)))
                .expect("a limit");
            let (mut reader, mut said, mut bytes) =
                (nacre_wire::FrameReader::default(), Vec::new(), [0; 4096]);
            while said.len() < 2 {
                let count = stream.read(&mut bytes).expect("it speaks");
                assert!(count > 0, "it said {said:?}");
                reader.push(&bytes[..count]);
                while let Some(frame) = reader.poll().expect("well-formed") {
                    said.push(frame.message);
                }
            }
            assert!(
                matches!(&said[0], Message::Hello(hello) if hello.to == Some(Entity::Mon(nacre_types::MonId(0))))
            );
            let text = "device d: a look at its file system has not ended";
            assert!(
                matches!(&said[1], Message::Beacon(beacon) if beacon.device.contains(text)),
                "{said:?}"
            );
            std::fs::remove_file(kennel.dir.join("store.faults")).expect("ours");
        });
    }
}
