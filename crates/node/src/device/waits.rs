//! Whether the reactor's thread may wait for a disk itself.
//!
//! Waiting here saves a single writer two switches between threads, a third of its latency; a disk
//! that takes long would keep the reactor from everything else. One slow call among a thousand is
//! usual (the file system's journal, another program), so it costs only a few turns on a worker;
//! each further one four times as many.

use std::time::Duration;

/// A longer wait is slow.
const SLOW: Duration = Duration::from_millis(1);
/// The number of calls that go to a worker after a slow one, and after many.
const BACK_OFF: std::ops::RangeInclusive<u32> = 16..=1024;

/// See the module head.
#[derive(Debug, Default)]
pub struct Waits {
    /// The number of calls that still go to a worker.
    left: u32,
    /// Their number when it was last set; halved by every fast call.
    back_off: u32,
}

impl Waits {
    /// Whether the next call may be waited for here.
    pub fn may(&mut self) -> bool {
        let may = self.left == 0;
        self.left = self.left.saturating_sub(1);
        may
    }

    /// A call that was waited for took this long.
    pub fn took(&mut self, time: Duration) {
        if time > SLOW {
            self.back_off = (self.back_off * 4).clamp(*BACK_OFF.start(), *BACK_OFF.end());
            self.left = self.back_off;
        } else {
            self.back_off /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Duration = Duration::from_micros(999);
    const STUCK: Duration = Duration::from_micros(1001);

    /// The number of calls until one may be waited for.
    fn away(waits: &mut Waits) -> usize {
        std::iter::from_fn(|| Some(waits.may()))
            .take_while(|may| !may)
            .count()
    }

    /// (A single slow flush sent the next thousand to a worker: on a shared machine a third of all
    /// flushes of a lone writer.)
    #[test]
    fn one_slow_call_costs_little_and_a_slow_disk_is_tried_rarely() {
        let mut waits = Waits::default();
        assert_eq!(away(&mut waits), 0);
        let tries = [STUCK, FAST, STUCK, STUCK, STUCK, STUCK, STUCK].map(|time| {
            waits.took(time);
            away(&mut waits)
        });
        assert_eq!(tries, [16, 0, 32, 128, 512, 1024, 1024]);
        for _ in 0..11 {
            waits.took(FAST);
            assert_eq!(away(&mut waits), 0);
        }
        waits.took(STUCK);
        assert_eq!(away(&mut waits), 16, "it has been fast for long");
    }
}
