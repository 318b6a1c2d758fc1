//! Yielding the processor before a sleep, while that is cheap.
//!
//! ```text
//!             short run delays for as long as the last backoff: the next backoff is short again
//!             ┌──┐
//!  YIELDS ◀───┘  │──two long run delays in a row──▶ DOES NOT for 1 s, then 2 s, 4 … 16 s
//!     ▲                                                  │
//!     └───────────── the backoff is over ────────────────┘
//! ```
//! A thread without work yields before it sleeps: its neighbours run first, and their messages
//! arrive together, in one wake-up. That saves 5 % of a small operation at depth 16
//! (bench/README.md). But Linux charges a thread that yields for the rest of its time slice. Beside
//! processes that never sleep it then waits a millisecond for the next one, and updates take two to
//! seven times as long. The duration of a yield does not tell the two cases apart. The run delay
//! per time slice does: how long the thread was runnable without a processor. The kernel counts it
//! in `schedstat`, which is read ten times a second. Without that file the thread never yields.
//!
//! Invariant: the decision to yield changes at most once in a tenth of a second.

use nacre_types::Time;
use std::time::Duration;

/// Interval between two reads of the counters.
const INTERVAL: Duration = Duration::from_millis(100);
/// From this average run delay on, yielding costs more than it saves. Beside busy processes the
/// delay is a millisecond, otherwise a tenth of a millisecond or less.
const LONG: Duration = Duration::from_micros(400);
/// This many consecutive long delays end the yielding: a single one may be due to a passing load.
const LONG_MAX: u32 = 2;
/// Fewer time slices between two reads give no average.
const SLICES_MIN: u64 = 16;
/// First time without yielding; each further one is twice as long.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// Longest time without yielding.
const BACKOFF_MAX: Duration = Duration::from_secs(16);

/// The kernel's counters of a thread since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Schedstat {
    /// Nanoseconds that it was runnable without a processor.
    run_delay: u64,
    /// Time slices that it has run.
    slices: u64,
}

impl Schedstat {
    /// The file has nanoseconds of running, nanoseconds of run delay, time slices. A kernel that
    /// does not count writes zeros: the thread that reads has run at least one slice.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace().skip(1);
        let counters = Self {
            run_delay: numbers.next()?.parse().ok()?,
            slices: numbers.next()?.parse().ok()?,
        };
        (counters.slices > 0).then_some(counters)
    }

    /// Reads those of this thread. Takes some 10 µs.
    fn read() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
    }

    /// Whether the average run delay since `earlier` was long; `None`: too few time slices.
    fn is_long_since(self, earlier: Self) -> Option<bool> {
        let slices = self.slices.saturating_sub(earlier.slices);
        let delay = u128::from(self.run_delay.saturating_sub(earlier.run_delay));
        (slices >= SLICES_MIN).then(|| delay > LONG.as_nanos() * u128::from(slices))
    }
}

/// When to yield. The pure part.
#[derive(Debug, Default)]
struct Policy {
    /// When yielding began; `None`: it does not yield.
    since: Option<Time>,
    read_at: Time,
    /// Start of the next interval to be judged.
    earlier: Option<Schedstat>,
    /// Number of consecutive long run delays.
    long: u32,
    backoff: Duration,
}

impl Policy {
    fn yields(&self) -> bool {
        self.since.is_some()
    }

    /// Whether the counters should be read now, for [`Self::on_counters`].
    fn is_due(&self, now: Time) -> bool {
        self.read_at <= now
    }

    /// `None`: they could not be read.
    fn on_counters(&mut self, now: Time, counters: Option<Schedstat>) {
        let Some(counters) = counters else {
            *self = Self {
                read_at: now + BACKOFF_MAX,
                ..Self::default()
            };
            return;
        };
        self.read_at = now + INTERVAL;
        let earlier = self.earlier.replace(counters);
        let (Some(since), Some(earlier)) = (self.since, earlier) else {
            // The first read, or the backoff is over.
            (self.since, self.long) = (Some(now), 0);
            return;
        };
        match counters.is_long_since(earlier) {
            None => self.earlier = Some(earlier),
            Some(false) => {
                self.long = 0;
                if now.since(since) >= self.backoff {
                    self.backoff = Duration::ZERO;
                }
            }
            Some(true) => {
                self.long += 1;
                if self.long == LONG_MAX {
                    self.since = None;
                    self.backoff = (self.backoff * 2).clamp(BACKOFF_MIN, BACKOFF_MAX);
                    self.read_at = now + self.backoff;
                }
            }
        }
    }
}

/// See the module head. It decides for the calling thread, which may change: a client runs on its
/// caller's thread.
#[derive(Debug, Default)]
pub(crate) struct Yielding(Policy);

impl Yielding {
    /// The thread has no work at `now` and is about to sleep.
    pub fn before_sleep(&mut self, now: Time) {
        if self.0.is_due(now) {
            self.0.on_counters(now, Schedstat::read());
        }
        if self.0.yields() {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread with 1,000 time slices a second, each after the same run delay.
    struct Thread {
        now: Time,
        counters: Schedstat,
        policy: Policy,
    }

    impl Thread {
        fn new() -> Self {
            let now = Time::ZERO + Duration::from_secs(1_000);
            let mut thread = Self {
                now,
                counters: Schedstat {
                    run_delay: 5,
                    slices: 7,
                },
                policy: Policy::default(),
            };
            thread.runs_for(Duration::from_millis(1), Duration::ZERO);
            thread
        }

        /// How much of `long` it yields, in milliseconds.
        fn runs_for(&mut self, long: Duration, each: Duration) -> u128 {
            let mut yielded = 0;
            for _ in 0..long.as_millis() {
                self.now = self.now + Duration::from_millis(1);
                self.counters.slices += 1;
                self.counters.run_delay += u64::try_from(each.as_nanos()).unwrap();
                if self.policy.is_due(self.now) {
                    self.policy.on_counters(self.now, Some(self.counters));
                }
                yielded += u128::from(self.policy.yields());
            }
            yielded
        }
    }

    const SHORT_DELAY: Duration = Duration::from_micros(50);
    const LONG_DELAY: Duration = Duration::from_micros(900);

    #[test]
    fn a_thread_with_short_run_delays_always_yields() {
        let mut thread = Thread::new();
        assert_eq!(
            thread.runs_for(Duration::from_secs(60), SHORT_DELAY),
            60_000
        );
    }

    /// Observed in use: beside two busy processes each yield cost a client's thread a millisecond,
    /// and it had a seventh of its operations per second.
    #[test]
    fn a_thread_with_long_run_delays_tries_again_after_ever_longer_backoffs() {
        let mut thread = Thread::new();
        let yielded = thread.runs_for(Duration::from_secs(31), LONG_DELAY);
        // 200 ms each: at once, after 1 s, 2, 4 and 8; the backoff of 16 s is not over.
        assert!((980..=1_000).contains(&yielded), "{yielded} ms of 31 s");
        let yielded = thread.runs_for(Duration::from_secs(320), LONG_DELAY);
        assert!((3_600..=4_000).contains(&yielded), "{yielded} ms of 320 s");
    }

    #[test]
    fn one_long_run_delay_changes_nothing() {
        let mut thread = Thread::new();
        for _ in 0..100 {
            assert_eq!(thread.runs_for(INTERVAL, LONG_DELAY), 100);
            assert_eq!(thread.runs_for(INTERVAL * 2, SHORT_DELAY), 200);
        }
    }

    #[test]
    fn it_yields_again_soon_after_the_busy_processes_end() {
        let mut thread = Thread::new();
        thread.runs_for(Duration::from_secs(5), LONG_DELAY);
        let yielded = thread.runs_for(Duration::from_secs(60), SHORT_DELAY);
        assert!(yielded > 55_000, "{yielded} ms of a minute");
        // That was longer than the last backoff: the next one is short again.
        let yielded = thread.runs_for(Duration::from_millis(1_500), LONG_DELAY);
        assert!((380..=700).contains(&yielded), "{yielded} ms");
    }

    /// A short backoff after a long one would cost something each second on machines with changing
    /// load.
    #[test]
    fn a_moment_of_short_run_delays_does_not_make_the_next_backoff_short() {
        let mut thread = Thread::new();
        thread.runs_for(Duration::from_secs(31), LONG_DELAY);
        while !thread.policy.yields() {
            thread.runs_for(Duration::from_millis(1), LONG_DELAY);
        }
        thread.runs_for(Duration::from_secs(1), SHORT_DELAY);
        let yielded = thread.runs_for(Duration::from_secs(16), LONG_DELAY);
        assert!(yielded <= 300, "{yielded} ms");
    }

    #[test]
    fn few_time_slices_are_judged_with_those_that_follow() {
        let mut thread = Thread::new();
        for _ in 0..SLICES_MIN - 2 {
            thread.now = thread.now + INTERVAL;
            thread.counters.slices += 1;
            thread.counters.run_delay += 900_000;
            thread.policy.on_counters(thread.now, Some(thread.counters));
            assert!(thread.policy.yields());
        }
        assert_eq!(thread.policy.long, 0);
        thread.runs_for(INTERVAL, LONG_DELAY);
        assert_eq!(thread.policy.long, 1);
    }

    #[test]
    fn a_thread_whose_kernel_does_not_count_never_yields() {
        let mut thread = Thread::new();
        assert!(thread.policy.yields());
        thread.policy.on_counters(thread.now, None);
        assert!(!thread.policy.yields() && !thread.policy.is_due(thread.now + BACKOFF_MIN));
        assert_eq!(
            Schedstat::parse("12 340 5\n"),
            Some(Schedstat {
                run_delay: 340,
                slices: 5
            })
        );
        for text in ["", "12", "12 340", "12 340 x", "a b c", "0 0 0"] {
            assert_eq!(Schedstat::parse(text), None, "{text:?}");
        }
    }

    /// Not a test of timing: the file of the calling thread is found, and grows.
    #[test]
    #[cfg(target_os = "linux")]
    fn the_counters_are_the_calling_threads() {
        if Schedstat::read().is_none() {
            eprintln!("SKIPPED: this kernel does not count");
            return;
        }
        let before = Schedstat::read().expect("it counts");
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let after = Schedstat::read().expect("it counts");
        assert!(after.slices >= before.slices + 20, "{before:?}, {after:?}");
    }
}
