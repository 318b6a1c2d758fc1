//! When to write a group of the log: once the writers of the previous group have written again, or
//! after a time limit.
//!
//! Writers that are answered together write again together. A group therefore waits until there are
//! as many updates as there were when the last group ended, written or waiting, but no longer than
//! three times the duration of the last one. The same algorithm as in `crates/store/src/feed.rs`.

use std::time::{Duration, Instant};

/// A group waits at most this many times the duration of the last one.
const GROUPS: u32 = 3;
/// The longest wait.
const WAIT_MAX: Duration = Duration::from_micros(1200);

/// See the module head.
#[derive(Default)]
pub struct Company {
    expected: usize,
    took: Duration,
    since: Option<Instant>,
}

/// The decision.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Write the group.
    Write,
    /// Wait, at most until this time.
    WaitUntil(Instant),
}

impl Company {
    /// A group ended: its updates and those waiting give the number of writers of the next one.
    pub fn ended(&mut self, written: usize, waiting: usize, took: Duration) {
        (self.expected, self.took) = (written + waiting, took);
    }

    /// Whether to write a group of `count` updates now, while none is in flight.
    pub fn judge(&mut self, count: usize, now: Instant) -> Verdict {
        let until = *self.since.get_or_insert(now) + (self.took * GROUPS).min(WAIT_MAX);
        if count < self.expected && now < until {
            return Verdict::WaitUntil(until);
        }
        self.since = None;
        Verdict::Write
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_waits_for_its_company_or_three_times_the_last_ones_time() {
        let (mut company, start) = (Company::default(), Instant::now());
        let after = |micros| start + Duration::from_micros(micros);
        assert_eq!(
            company.judge(1, start),
            Verdict::Write,
            "the first waits for nothing"
        );
        company.ended(1, 2, Duration::from_micros(100));
        assert_eq!(company.judge(2, after(0)), Verdict::WaitUntil(after(300)));
        assert_eq!(company.judge(3, after(50)), Verdict::Write);
        assert_eq!(
            company.judge(2, after(1000)),
            Verdict::WaitUntil(after(1300)),
            "each wait has its own start"
        );
        assert_eq!(company.judge(2, after(1300)), Verdict::Write);
        company.ended(3, 0, Duration::from_secs(1));
        assert_eq!(
            company.judge(1, after(2000)),
            Verdict::WaitUntil(after(3200)),
            "but never longer"
        );
    }
}
