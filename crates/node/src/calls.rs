//! Calls of a device that have not ended, so that one that never ends is noticed.
//!
//! Each call has a number; the watchdog (`watchdog.rs`) looks a few times a second which numbers are there, and counts how long it has seen each. So a
//! call costs no look at the clock: a call on the reactor's thread costs two stores, one on a worker a lock that nobody else holds for long.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What was asked of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Read = 1,
    Write = 2,
    Flush = 3,
}

impl What {
    /// For people.
    pub const fn to_text(self) -> &'static str {
        match self {
            Self::Read => "a read",
            Self::Write => "a write",
            Self::Flush => "a flush",
        }
    }
    const fn of(number: u8) -> Self {
        match number {
            1 => Self::Read,
            2 => Self::Write,
            _ => Self::Flush,
        }
    }
}

/// A call under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// Never the same for two calls of a device.
    pub number: u64,
    pub what: What,
    /// The reactor's own thread makes it: meanwhile nothing else happens there.
    pub inline: bool,
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Calls {
    /// Counts calls of the reactor's thread, twice each: odd while one is under way.
    inline: AtomicU64,
    inline_what: AtomicU8,
    others: Mutex<Others>,
}

#[derive(Debug, Default)]
struct Others {
    next: u64,
    under_way: Vec<(u64, What)>,
}

/// Ends the call when dropped, also by a panic.
#[derive(Debug)]
pub struct Calling<'a> {
    calls: &'a Calls,
    /// None: the reactor's thread.
    number: Option<u64>,
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, Others> {
        // Numbers are right at every moment: a panic elsewhere does not matter.
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call on the reactor's thread begins; there is one such thread for a device.
    pub fn begin_inline(&self, what: What) -> Calling<'_> {
        self.inline_what.store(what as u8, Ordering::Relaxed);
        self.inline.fetch_add(1, Ordering::Release);
        Calling { calls: self, number: None }
    }

    /// A call on any other thread begins.
    pub fn begin(&self, what: What) -> Calling<'_> {
        let mut others = self.lock();
        others.next += 1;
        let number = others.next;
        others.under_way.push((number, what));
        Calling { calls: self, number: Some(number) }
    }

    /// Appends what is under way.
    pub fn outstanding(&self, into: &mut Vec<Outstanding>) {
        let number = self.inline.load(Ordering::Acquire);
        if number % 2 == 1 {
            let what = What::of(self.inline_what.load(Ordering::Relaxed));
            into.push(Outstanding { number, what, inline: true });
        }
        let others = self.lock();
        // Odd numbers are the reactor's.
        into.extend(others.under_way.iter().map(|(number, what)| Outstanding {
            number: number * 2,
            what: *what,
            inline: false,
        }));
    }
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        match self.number {
            None => {
                self.calls.inline.fetch_add(1, Ordering::Release);
            }
            Some(number) => self.calls.lock().under_way.retain(|(other, _)| *other != number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_is_seen_until_it_ends_also_by_a_panic() {
        let calls = Calls::default();
        let seen = || {
            let mut all = Vec::new();
            calls.outstanding(&mut all);
            all
        };
        let first = calls.begin_inline(What::Flush);
        let second = calls.begin(What::Write);
        let both = seen();
        assert_eq!(
            both.iter().map(|call| (call.what, call.inline)).collect::<Vec<_>>(),
            [(What::Flush, true), (What::Write, false)]
        );
        drop(second);
        drop(first);
        assert!(seen().is_empty());
        let third = calls.begin_inline(What::Read);
        assert_ne!(seen()[0].number, both[0].number, "another call has another number");
        drop(third);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _calling = calls.begin(What::Read);
            panic!("inside the call");
        }));
        assert!(panicked.is_err() && seen().is_empty());
    }
}
