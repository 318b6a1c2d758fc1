//! A daemon's monotonic clock: its own start, its own rate, and a rate that may change while it
//! runs (± 500 ppm, DESIGN §3).
//!
//! Decisions never use wall clocks; monitors stamp log lines with one, which differs after each
//! restart.

use crate::rng::Rng;
use nacre_types::Time;

/// Largest deviation of clocks, in parts per million of virtual time.
const DRIFT_PPM_MAX: i64 = 500;

/// See the module head.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// A virtual time and the clock's reading at that time.
    anchor: (u64, u64),
    ppm: i64,
}

impl Clock {
    /// A random clock.
    pub fn any(rng: &mut Rng) -> Self {
        let anchor = (0, rng.below(1_000_000_000_000));
        Self {
            anchor,
            ppm: Self::any_rate(rng),
        }
    }
    fn any_rate(rng: &mut Rng) -> i64 {
        rng.below(2 * DRIFT_PPM_MAX as u64 + 1) as i64 - DRIFT_PPM_MAX
    }
    /// The clock's reading.
    #[must_use]
    pub fn local(&self, now: u64) -> Time {
        let passed = now - self.anchor.0;
        let drift = i128::from(passed) * i128::from(self.ppm) / 1_000_000;
        Time((i128::from(self.anchor.1 + passed) + drift) as u64)
    }
    /// A virtual time by which the clock certainly shows `local`.
    #[must_use]
    pub fn global(&self, local: Time, now: u64) -> u64 {
        let ahead = local.0.saturating_sub(self.local(now).0);
        now.saturating_add(ahead).saturating_add(ahead / 500)
    }
    /// Changes to a random rate.
    pub fn change_rate(&mut self, now: u64, rng: &mut Rng) {
        self.anchor = (now, self.local(now).0);
        self.ppm = Self::any_rate(rng);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_never_goes_back_and_reaches_what_was_promised() {
        let mut rng = Rng::new(7);
        for _ in 0..100 {
            let (mut clock, mut now, mut last) = (Clock::any(&mut rng), 0, Time::ZERO);
            for _ in 0..20 {
                now += rng.below(5_000_000_000);
                assert!(clock.local(now) >= last);
                last = clock.local(now);
                let wanted = Time(last.0 + rng.below(3_000_000_000));
                assert!(clock.local(clock.global(wanted, now)) >= wanted);
                clock.change_rate(now, &mut rng);
                assert_eq!(clock.local(now), last, "only the rate changes");
            }
        }
    }
}
