//! Giving way before a sleep, as long as that costs nothing.
//!
//! ```text
//!            looks in a row find short waits for as long as it last gave no way: forget that it was long
//!               ┌──┐
//!  GIVES WAY ◀──┘  │──two looks in a row find long waits──▶ GIVES NO WAY for 1 s, the next time 2 s, 4 … 16 s
//!      ▲                                                         │
//!      └────────────────── the time is over ─────────────────────┘
//! ```
//! A thread with nothing left to do yields before it sleeps: who shares its processor goes first, and
//! what they have for it comes together, in one wake-up. That is 5 % of a small operation at depth 16
//! (bench/README.md). But Linux charges a thread that yields for the rest of its turn, and beside
//! processes that never rest it then waits a millisecond for its next one: updates take two to seven
//! times as long. How long a yield takes does not tell the two apart. How long the thread waits for
//! a processor each time it could run does, and the kernel counts it: `schedstat`, read ten times a
//! second. Where there is no such file no way is given.
//!
//! Invariant: between two looks, a tenth of a second apart or more, it either gives way or does not.

use nacre_types::Time;
use std::time::Duration;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// A thread that waits longer than this for a processor, on average, pays for giving way. Beside
/// busy processes it is a millisecond, else a tenth of one or less.
const LONG: Duration = Duration::from_micros(400);
/// So many looks in a row have to find long waits: one may have met what passes.
const LONG_LOOKS: u32 = 2;
/// Fewer turns than these between two looks say nothing.
const TURNS_MIN: u64 = 16;
/// No way is given for so long, the first time.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// And at most.
const PAUSE_MAX: Duration = Duration::from_secs(16);

/// What the kernel counts of a thread since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waits {
    /// It could run and had no processor, in nanoseconds.
    waited: u64,
    /// So often it was given one.
    turns: u64,
}

impl Waits {
    /// `schedstat`: nanoseconds at work, nanoseconds of waiting, turns. Nothing if there are no
    /// turns, for the one that reads has one: a kernel that does not count says zeros.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace().skip(1);
        let waits = Self { waited: numbers.next()?.parse().ok()?, turns: numbers.next()?.parse().ok()? };
        (waits.turns > 0).then_some(waits)
    }

    /// Whether it waited for long each time since `earlier`; nothing if it had too few turns.
    fn were_long(self, earlier: Self) -> Option<bool> {
        let turns = self.turns.saturating_sub(earlier.turns);
        let waited = u128::from(self.waited.saturating_sub(earlier.waited));
        (turns >= TURNS_MIN).then(|| waited > LONG.as_nanos() * u128::from(turns))
    }
}

/// When to give way. It knows neither a clock nor a file.
#[derive(Debug, Default)]
struct Manners {
    gives_way: bool,
    look_at: Time,
    /// What the last look that was judged found.
    seen: Option<Waits>,
    /// The last looks in a row that found long waits.
    long_looks: u32,
    /// It has given way without them since then.
    well_since: Time,
    pause: Duration,
}

impl Manners {
    /// Whether the counts should be read now, for [`Self::looked`].
    fn is_due(&self, now: Time) -> bool {
        self.look_at <= now
    }

    /// `waits` is nothing if it could not be read.
    fn looked(&mut self, now: Time, waits: Option<Waits>) {
        self.look_at = now + LOOK;
        let earlier = self.seen.take();
        let Some(waits) = waits else {
            *self = Self { look_at: now + PAUSE_MAX, ..Self::default() };
            return;
        };
        let (true, Some(earlier)) = (self.gives_way, earlier) else {
            // The first look, or the pause is over.
            self.gives_way = true;
            (self.well_since, self.long_looks) = (now, 0);
            self.seen = Some(waits);
            return;
        };
        match waits.were_long(earlier) {
            None => self.seen = Some(earlier),
            Some(false) => {
                self.seen = Some(waits);
                self.long_looks = 0;
                if now.since(self.well_since) >= self.pause {
                    self.pause = Duration::ZERO;
                }
            }
            Some(true) if self.long_looks + 1 < LONG_LOOKS => {
                self.seen = Some(waits);
                self.long_looks += 1;
            }
            Some(true) => {
                self.gives_way = false;
                self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
                self.look_at = now + self.pause;
            }
        }
    }
}

/// See the module head. Of the thread that calls it, which may change: a client's is its caller's.
#[derive(Debug, Default)]
pub(crate) struct Courtesy(Manners);

impl Courtesy {
    /// The thread has nothing to do at `now` and is about to sleep.
    pub fn give_way(&mut self, now: Time) {
        if self.0.is_due(now) {
            self.0.looked(now, waits());
        }
        if self.0.gives_way {
            std::thread::yield_now();
        }
    }
}

/// What the kernel has counted of this thread, if it counts. Takes some 10 µs.
fn waits() -> Option<Waits> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Waits::parse(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread with 1,000 turns a second that waits `each` time before it is given one.
    struct Thread {
        now: Time,
        waits: Waits,
        manners: Manners,
    }

    impl Thread {
        fn new() -> Self {
            let now = Time::ZERO + Duration::from_secs(1_000);
            let mut thread = Self { now, waits: Waits { waited: 5, turns: 7 }, manners: Manners::default() };
            thread.lives(Duration::from_millis(1), Duration::ZERO);
            thread
        }

        /// How much of `long` it gave way, in milliseconds.
        fn lives(&mut self, long: Duration, each: Duration) -> u128 {
            let mut gave = 0;
            for _ in 0..long.as_millis() {
                self.now = self.now + Duration::from_millis(1);
                self.waits.turns += 1;
                self.waits.waited += u64::try_from(each.as_nanos()).unwrap();
                if self.manners.is_due(self.now) {
                    self.manners.looked(self.now, Some(self.waits));
                }
                gave += u128::from(self.manners.gives_way);
            }
            gave
        }
    }

    const SHORT_WAIT: Duration = Duration::from_micros(50);
    const LONG_WAIT: Duration = Duration::from_micros(900);

    #[test]
    fn a_thread_that_hardly_waits_gives_way_always() {
        let mut thread = Thread::new();
        assert_eq!(thread.lives(Duration::from_secs(60), SHORT_WAIT), 60_000);
    }

    /// Found at work: beside two busy processes each yield cost a client's thread a millisecond, and
    /// it had a seventh of its operations per second.
    #[test]
    fn a_thread_that_waits_long_tries_again_ever_more_seldom() {
        let mut thread = Thread::new();
        let gave = thread.lives(Duration::from_secs(31), LONG_WAIT);
        // 200 ms each: at once, after 1 s, 2, 4 and 8; the pause of 16 s is not over.
        assert!((980..=1_000).contains(&gave), "{gave} ms of 31 s");
        let gave = thread.lives(Duration::from_secs(320), LONG_WAIT);
        assert!((3_600..=4_000).contains(&gave), "{gave} ms of 320 s");
    }

    #[test]
    fn one_look_that_finds_long_waits_changes_nothing() {
        let mut thread = Thread::new();
        for _ in 0..100 {
            assert_eq!(thread.lives(LOOK, LONG_WAIT), 100);
            assert_eq!(thread.lives(LOOK * 2, SHORT_WAIT), 200);
        }
    }

    #[test]
    fn it_gives_way_again_soon_after_what_was_busy_is_gone() {
        let mut thread = Thread::new();
        thread.lives(Duration::from_secs(5), LONG_WAIT);
        let gave = thread.lives(Duration::from_secs(60), SHORT_WAIT);
        assert!(gave > 55_000, "{gave} ms of a minute");
        // It did for longer than it last did not: the first pause is short again.
        let gave = thread.lives(Duration::from_millis(1_500), LONG_WAIT);
        assert!((380..=700).contains(&gave), "{gave} ms");
    }

    /// A short pause after a long one would have it pay once a second wherever waits change.
    #[test]
    fn a_moment_of_short_waits_does_not_make_the_next_pause_short() {
        let mut thread = Thread::new();
        thread.lives(Duration::from_secs(31), LONG_WAIT);
        while !thread.manners.gives_way {
            thread.lives(Duration::from_millis(1), LONG_WAIT);
        }
        thread.lives(Duration::from_secs(1), SHORT_WAIT);
        let gave = thread.lives(Duration::from_secs(16), LONG_WAIT);
        assert!(gave <= 300, "{gave} ms");
    }

    #[test]
    fn few_turns_say_nothing_and_are_judged_with_those_that_follow() {
        let mut thread = Thread::new();
        for _ in 0..TURNS_MIN - 2 {
            thread.now = thread.now + LOOK;
            thread.waits.turns += 1;
            thread.waits.waited += 900_000;
            thread.manners.looked(thread.now, Some(thread.waits));
            assert!(thread.manners.gives_way);
        }
        assert_eq!(thread.manners.long_looks, 0);
        thread.lives(LOOK, LONG_WAIT);
        assert_eq!(thread.manners.long_looks, 1);
    }

    #[test]
    fn where_the_kernel_does_not_count_no_way_is_given() {
        let mut thread = Thread::new();
        assert!(thread.manners.gives_way);
        thread.manners.looked(thread.now, None);
        assert!(!thread.manners.gives_way && !thread.manners.is_due(thread.now + PAUSE_MIN));
        assert_eq!(Waits::parse("12 340 5\n"), Some(Waits { waited: 340, turns: 5 }));
        for text in ["", "12", "12 340", "12 340 x", "a b c", "0 0 0"] {
            assert_eq!(Waits::parse(text), None, "{text:?}");
        }
    }

    /// Not a story of time: that the file of the thread at work is found, and grows.
    #[test]
    #[cfg(target_os = "linux")]
    fn the_kernels_counts_are_the_callers_own() {
        if waits().is_none() {
            eprintln!("SKIPPED: this kernel counts no waits");
            return;
        }
        let before = waits().expect("it counts");
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let after = waits().expect("it counts");
        assert!(after.turns >= before.turns + 20, "{before:?}, {after:?}");
    }
}
