//! How often each inode, and what is below it, was requested recently (Weil et al., OSDI 2006,
//! §4.2; CEPH-27): a weighted tree, from which parts can be moved to other ranks, and which is
//! shown to operators.
//!
//! ```text
//!  a request about /a/b/f is complete ─▶ f + 1, b + 1, a + 1, / + 1
//!  without requests ─▶ each is halved after 5 s
//! ```
//! Bounded: when there are too many counters, the smallest are dropped. They are useless to a later
//! holder and not in the journal.
//!
//! Invariant: a directory's counter is at least as large as each counter below it.

use nacre_types::{Ino, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Counters, of some 40 bytes each.
const COUNTERS_MAX: usize = 10_000;
/// Interval at which counters are multiplied by [`KEPT`]/65,536: halved after 5 s.
const STEP: Duration = Duration::from_secs(1);
const KEPT: u64 = 57_052;
/// After this many steps less than one request is left of any counter.
const STEPS_MAX: u64 = 300;
/// The value of one request.
const ONE: u64 = 1 << 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counter {
    value: u64,
    /// The step of its last update.
    step: u64,
}

impl Counter {
    fn at(self, step: u64) -> u64 {
        let steps = step.saturating_sub(self.step).min(STEPS_MAX);
        let decayed = |value: u64| {
            u64::try_from((u128::from(value) * u128::from(KEPT)) >> 16).expect("it is less")
        };
        (0..steps).fold(
            self.value,
            |value, _| if value == 0 { 0 } else { decayed(value) },
        )
    }
}

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Popularity {
    counters: BTreeMap<Ino, Counter>,
}

fn step_of(now: Time) -> u64 {
    now.since(Time::ZERO).as_secs() / STEP.as_secs()
}

impl Popularity {
    /// A request about the first of these was completed; the others are the directories above it,
    /// up to the root.
    pub fn count(&mut self, now: Time, inodes: impl IntoIterator<Item = Ino>) {
        let step = step_of(now);
        for ino in inodes {
            let counter = self.counters.entry(ino).or_default();
            *counter = Counter {
                value: counter.at(step).saturating_add(ONE),
                step,
            };
        }
        if self.counters.len() > COUNTERS_MAX {
            self.forget_some(step);
        }
    }
    /// Keeps the larger half of the counters.
    fn forget_some(&mut self, step: u64) {
        let mut values: Vec<u64> = self
            .counters
            .values()
            .map(|counter| counter.at(step))
            .collect();
        let middle = values.len() / 2;
        let (_, least, _) = values.select_nth_unstable(middle);
        let least = *least;
        self.counters.retain(|_, counter| counter.at(step) > least);
    }
    /// An inode is removed.
    pub fn gone(&mut self, ino: Ino) {
        self.counters.remove(&ino);
    }

    /// The most requested inodes, the busiest first, each with its rate in thousandths of a request
    /// per second.
    pub fn most(&self, now: Time, count: usize, which: impl Fn(Ino) -> bool) -> Vec<(Ino, u64)> {
        let step = step_of(now);
        // A constant rate adds up to this many seconds' worth.
        let seconds_65536ths = (ONE << 16) / (ONE - KEPT);
        let rate = |counter: &Counter| {
            let rate = u128::from(counter.at(step)) * 1_000 / u128::from(seconds_65536ths);
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        let all = self.counters.iter().filter(|(ino, _)| which(**ino));
        let mut all: Vec<(Ino, u64)> = all.map(|(ino, counter)| (*ino, rate(counter))).collect();
        all.retain(|(_, rate)| *rate > 0);
        all.sort_by_key(|(ino, rate)| (std::cmp::Reverse(*rate), *ino));
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Ino = Ino(1);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    /// 50 requests per second for a minute, one in five of them about another file: each reported
    /// value is the rate, and for the directories above the sum.
    #[test]
    fn what_is_asked_for_evenly_counts_its_rate_and_so_do_the_directories_above() {
        let mut popularity = Popularity::default();
        let (dir, often, seldom) = (Ino(10), Ino(11), Ino(12));
        for n in 0..3_000 {
            let file = if n % 5 == 0 { seldom } else { often };
            popularity.count(at(n * 20), [file, dir, ROOT]);
        }
        let most = popularity.most(at(59_999), 10, |_| true);
        assert_eq!(
            most.iter().map(|(ino, _)| *ino).collect::<Vec<_>>(),
            [ROOT, dir, often, seldom]
        );
        for ((_, rate), expected) in most.iter().zip([50_000, 50_000, 40_000, 10_000]) {
            assert!(
                rate.abs_diff(expected) <= expected / 50,
                "{rate} and {expected}"
            );
        }
        let later = popularity.most(at(64_999), 1, |ino| ino == often);
        assert!(
            later[0].1.abs_diff(20_000) <= 400,
            "half of it after 5 s: {later:?}"
        );
        assert_eq!(popularity.most(at(64_999), 10, |ino| ino == ROOT).len(), 1);
        assert!(
            popularity.most(at(600_000), 10, |_| true).is_empty(),
            "it is forgotten"
        );
    }

    /// Many inodes requested once do not displace one that is requested often.
    #[test]
    fn there_are_never_more_than_so_many() {
        let mut popularity = Popularity::default();
        for n in 0..5 * COUNTERS_MAX as u64 {
            popularity.count(at(n / 100), [Ino(100 + n), ROOT]);
            if n % 10 == 0 {
                popularity.count(at(n / 100), [Ino(7), ROOT]);
            }
            assert!(popularity.counters.len() <= COUNTERS_MAX);
        }
        let most = popularity.most(at(500), 2, |_| true);
        assert!(matches!(most[..], [(ROOT, _), (Ino(7), _)]), "{most:?}");
        popularity.gone(Ino(7));
        assert!(popularity.most(at(500), 9, |ino| ino == Ino(7)).is_empty());
    }
}
