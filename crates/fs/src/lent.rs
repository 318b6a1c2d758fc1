//! Attributes lent to a cache above this one: the kernel's (CEPH-12).
//!
//! ```text
//!  shown ─lend─▶ lent, until this client's lease ends
//!                  │ they change, other than by a call of that cache itself
//!                  ▼
//!                owed ──returned──▶ dropped above, too: others may be told so
//!                  └── the loan has expired: the same
//! ```
//! Invariant: attributes that are neither lent nor owed are not shown above without asking here.

use nacre_types::{Ino, Time};
use std::collections::BTreeMap;

/// Expired loans are searched when there are twice as many as were left the last time, plus this.
const SWEEP_MIN: usize = 4096;

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    until: BTreeMap<Ino, Time>,
    owed: BTreeMap<Ino, Time>,
    sweep_at: usize,
}

impl Lent {
    /// An inode's attributes may be cached above until then.
    pub fn lend(&mut self, now: Time, ino: Ino, until: Time) {
        if self.until.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.until.retain(|_, until| now < *until);
            self.sweep_at = 2 * self.until.len();
        }
        self.until.insert(ino, until);
    }
    /// They have changed, or may have.
    pub fn take_back(&mut self, now: Time, ino: Ino) {
        if let Some(until) = self.until.remove(&ino).filter(|until| now < *until) {
            // Lent again before it was returned, it is owed for the longer time.
            let owed = self.owed.entry(ino).or_insert(until);
            *owed = until.max(*owed);
        }
    }
    /// Revokes all loans for which this is true.
    pub fn take_back_where(&mut self, now: Time, is_it: impl Fn(Ino) -> bool) {
        let all: Vec<Ino> = self
            .until
            .keys()
            .copied()
            .filter(|ino| is_it(*ino))
            .collect();
        all.into_iter().for_each(|ino| self.take_back(now, ino));
    }
    /// It is dropped above.
    pub fn returned(&mut self, ino: Ino) {
        self.owed.remove(&ino);
    }
    /// Revoked loans that may still be shown above.
    pub fn owed(&mut self, now: Time) -> impl Iterator<Item = Ino> {
        self.owed.retain(|_, until| now < *until);
        self.owed.keys().copied()
    }
    /// Whether there is any.
    pub fn owes(&mut self, now: Time) -> bool {
        self.owed(now).next().is_some()
    }
    /// When the last of them expires.
    pub fn over_at(&self) -> Time {
        self.owed.values().copied().max().unwrap_or(Time::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_back_is_owed_until_it_is_returned_or_over() {
        let mut lent = Lent::default();
        lent.take_back(Time(1), Ino(7));
        assert!(!lent.owes(Time(1)), "it was never lent");
        lent.lend(Time(1), Ino(7), Time(10));
        lent.lend(Time(1), Ino(8), Time(20));
        lent.lend(Time(1), Ino(9), Time(3));
        lent.take_back_where(Time(5), |_| true);
        assert_eq!(
            lent.owed(Time(5)).collect::<Vec<_>>(),
            [Ino(7), Ino(8)],
            "9 is over"
        );
        lent.returned(Ino(8));
        assert!(lent.owes(Time(9)) && lent.over_at() == Time(10));
        assert!(!lent.owes(Time(10)) && lent.over_at() == Time::MAX);
    }

    /// What was lent between the revocation and the return is not returned with that.
    #[test]
    fn what_is_lent_again_while_it_is_owed_stays_owed() {
        let mut lent = Lent::default();
        lent.lend(Time(1), Ino(7), Time(20));
        lent.take_back(Time(2), Ino(7));
        lent.lend(Time(3), Ino(7), Time(10));
        lent.take_back(Time(4), Ino(7));
        assert!(lent.owes(Time(19)) && !lent.owes(Time(20)));
    }

    #[test]
    fn what_is_over_takes_no_room() {
        let mut lent = Lent::default();
        for n in 0..100_000 {
            lent.lend(Time(n), Ino(n), Time(n + 100));
            assert!(lent.until.len() <= 2 * SWEEP_MIN);
        }
    }
}
