//! Looks a few times a second whether calls of devices end, on a thread of its own: the reactor may hang in one itself.
//!
//! ```text
//!   Calls of each store ──every 200 ms──▶ Watch: the oldest, and how long it was seen
//!                                           │ a quarter of a second ──▶ News ──▶ the reactor tells its role (`osd/src/device.rs`: slow, stalled)
//!                                           │ the reactor hangs in it ──▶ last words to a monitor, on a connection of their own
//!                                           └ device_hung ──▶ the process ends (or, in an embedded cluster, the daemon halts)
//! ```
//! Ages are counted in looks that happened: a process that was stopped, or starved, does not take its own absence for its disk's.

use crate::calls::{Outstanding, What};
use crate::clock;
use crate::device::Blocks;
use crate::last_words::{self, LastWords};
use crate::wake::Waker;
use nacre_osd::{DeviceCall, Timing};
use nacre_types::{Entity, Time};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(200);
/// A call that takes less is nobody's business.
const NOTABLE: Duration = Duration::from_millis(250);

/// How long calls of one device have been seen. The pure part.
#[derive(Debug, Default)]
pub struct Watch {
    awake: Duration,
    last: Option<Time>,
    /// When, in awake time, each was first seen.
    seen: BTreeMap<u64, (Duration, What, bool)>,
}

/// A call that takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub what: What,
    /// The reactor's thread makes it.
    pub inline: bool,
    pub age: Duration,
    pub ended: bool,
}

impl Watch {
    /// What is outstanding now. Returns the oldest call that takes long; or else one that did, once.
    pub fn look(&mut self, now: Time, outstanding: &[Outstanding]) -> Option<Seen> {
        let passed = self.last.map_or(Duration::ZERO, |last| now.since(last));
        self.awake += passed.min(EVERY * 2);
        self.last = Some(now);
        let awake = self.awake;
        let is_there = |number: &u64| outstanding.iter().any(|call| call.number == *number);
        let seen = |ended| {
            move |(since, what, inline): (Duration, What, bool)| Seen { what, inline, age: awake - since, ended }
        };
        let ended = self.seen.iter().filter(|(number, _)| !is_there(number)).map(|(_, seen)| *seen);
        let ended = ended.map(seen(true)).max_by_key(|seen| seen.age);
        self.seen.retain(|number, _| is_there(number));
        for call in outstanding {
            self.seen.entry(call.number).or_insert((awake, call.what, call.inline));
        }
        let oldest = self.seen.values().copied().map(seen(false)).max_by_key(|seen| seen.age);
        oldest.filter(|seen| seen.age >= NOTABLE).or(ended.filter(|seen| seen.age >= NOTABLE))
    }
}

/// What the watchdog leaves for a reactor about one store.
#[derive(Debug, Default)]
pub struct News {
    fresh: AtomicBool,
    call: Mutex<Option<DeviceCall>>,
    /// What the reactor leaves for the watchdog.
    for_watchdog: Mutex<ForWatchdog>,
}

/// Limits, and what to say when the reactor cannot.
#[derive(Debug, Default)]
pub struct ForWatchdog {
    pub timing: Timing,
    pub words: Option<LastWords>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl News {
    /// Whether there is something new, and what.
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
    /// To be called now and then.
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
    /// Something was said and is to be taken back.
    told: bool,
    /// What last words were said of the call under way: that it is slow, that it stalls.
    spoken: u8,
}

/// What to do when a device hangs for too long. Called on the watchdog's thread; it may end the process.
pub type OnHung = fn(&str);

struct Shared {
    all: Mutex<Vec<Watched>>,
    closed: Mutex<bool>,
    close: Condvar,
    waker: Arc<Waker>,
    on_hung: Mutex<Option<OnHung>>,
}

/// See the module head. Dropping it ends the thread.
pub struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    pub fn new(waker: Arc<Waker>) -> Self {
        let shared = Shared {
            all: Mutex::default(),
            closed: Mutex::new(false),
            close: Condvar::new(),
            waker,
            on_hung: Mutex::new(None),
        };
        Self { shared: Arc::new(shared), thread: None }
    }

    pub fn on_hung(&self, what: OnHung) {
        *lock(&self.shared.on_hung) = Some(what);
    }

    /// Watches a store's device from now on.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn watch(&mut self, who: Entity, device: String, blocks: &Arc<Blocks>) -> std::io::Result<Arc<News>> {
        let news = Arc::new(News::default());
        let (blocks, watch) = (Arc::downgrade(blocks), Watch::default());
        let watched = Watched { who, blocks, device, news: news.clone(), watch, told: false, spoken: 0 };
        lock(&self.shared.all).push(watched);
        if self.thread.is_none() {
            let shared = self.shared.clone();
            let run = move || shared.run();
            self.thread = Some(std::thread::Builder::new().name("nacre-watchdog".to_owned()).spawn(run)?);
        }
        Ok(news)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *lock(&self.shared.closed) = true;
        self.shared.close.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut closed = lock(&self.closed);
        loop {
            closed = self.close.wait_timeout(closed, EVERY).map_or_else(|poisoned| poisoned.into_inner().0, |(c, _)| c);
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
            let Some(blocks) = watched.blocks.upgrade() else { continue };
            calls.clear();
            blocks.calls().outstanding(&mut calls);
            let seen = watched.watch.look(now, &calls);
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
        if wake {
            self.waker.wake();
        }
    }
}

impl Watched {
    fn name(&self, seen: Seen) -> DeviceCall {
        DeviceCall { device: self.device.clone(), what: seen.what.to_text(), age: seen.age, ended: seen.ended }
    }

    /// What the reactor cannot do itself.
    fn act(&mut self, seen: Seen, hook: Option<OnHung>) {
        if seen.ended {
            self.spoken = 0;
            return;
        }
        let text = self.name(seen).to_text();
        let (timing, words) = {
            let for_watchdog = lock(&self.news.for_watchdog);
            (for_watchdog.timing, for_watchdog.words.clone())
        };
        let grade = u8::from(seen.age >= timing.device_slow) + u8::from(seen.age >= timing.device_stall);
        if let Some(words) = words.filter(|_| seen.inline && grade > self.spoken) {
            self.spoken = grade;
            last_words::speak(words, &text, grade > 1);
        }
        if let Some(hook) = hook.filter(|_| seen.age >= timing.device_hung) {
            hook(&hung(self.who, &text));
        }
    }
}

/// Why a daemon ends whose device hangs.
pub fn hung(who: Entity, text: &str) -> String {
    format!("{who} ends: {text}. The other replicas serve its data; look at the disk (`dmesg`), then start {who} again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u64) -> Outstanding {
        Outstanding { number, what: What::Flush, inline: false }
    }
    fn at(ms: u64) -> Time {
        Time(1 + ms * 1_000_000)
    }

    #[test]
    fn the_oldest_call_is_told_while_it_lasts_and_once_when_it_ended() {
        let mut watch = Watch::default();
        assert_eq!(watch.look(at(0), &[call(2)]), None);
        assert_eq!(watch.look(at(200), &[call(2), call(4)]), None, "not notable yet");
        let seen = watch.look(at(400), &[call(2), call(4)]).expect("long");
        assert_eq!((seen.age, seen.ended), (Duration::from_millis(400), false));
        let seen = watch.look(at(600), &[call(4)]).expect("the other one is older than a quarter of a second, too");
        assert_eq!((seen.age, seen.ended), (Duration::from_millis(400), false));
        let seen = watch.look(at(800), &[]).expect("it took long");
        assert_eq!((seen.age, seen.ended), (Duration::from_millis(600), true));
        assert_eq!(watch.look(at(1000), &[]), None);
    }

    #[test]
    fn many_quick_calls_are_not_a_long_one() {
        let mut watch = Watch::default();
        for n in 0..100 {
            assert_eq!(watch.look(at(n * 200), &[call(2 * n)]), None);
        }
    }

    /// The time that passed is bounded: otherwise, after SIGCONT every call under way was a minute old, and the daemon ended.
    #[test]
    fn a_process_that_was_stopped_does_not_blame_its_disk() {
        let mut watch = Watch::default();
        watch.look(at(0), &[call(2)]);
        let seen = watch.look(at(60_000), &[call(2)]).expect("notable");
        assert_eq!(seen.age, Duration::from_millis(400));
    }
}
