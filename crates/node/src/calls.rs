//! Calls of a device that have not ended, and jobs of its store, so that one that never ends is
//! noticed.
//!
//! Each call has a number. The watchdog (`watchdog.rs`) looks a few times a second which numbers
//! are there, and counts how long it has seen each. So a
//! call costs no look at the clock: a call on the reactor's thread costs two stores, one on a
//! worker a lock that is never held for long.
//!
//! A job makes many calls and may take minutes. It gets a new number with each call that its thread
//! begins or ends: a job that is seen for long under
//! one number is one that has stopped outside of any call.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// What was asked of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Read = 1,
    Write = 2,
    Flush = 3,
    Discard = 4,
    /// The page cache is to forget the device.
    Forget = 5,
    /// How much room the file system has.
    Space = 6,
    /// No call: a job of the store, between its calls.
    Job = 7,
}

impl What {
    /// For people.
    pub const fn to_text(self) -> &'static str {
        match self {
            Self::Read => "a read",
            Self::Write => "a write",
            Self::Flush => "a flush",
            Self::Discard => "a discard",
            Self::Forget => "a drop of its page cache",
            Self::Space => "a look at its file system",
            Self::Job => "a job of the store",
        }
    }
    /// One word, for `faults.rs`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::Forget => "forget",
            Self::Space => "space",
            Self::Job => "job",
        }
    }
    /// What the reactor's thread calls.
    const fn of(number: u8) -> Self {
        match number {
            1 => Self::Read,
            2 => Self::Write,
            6 => Self::Space,
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
    /// Who does a job, and under which number it is known now.
    jobs: Vec<(ThreadId, u64)>,
}

impl Others {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
    /// A job's thread begins or ends a call: the job goes on.
    fn note_progress(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        let (me, number) = (thread::current().id(), self.number());
        if let Some((_, job)) = self.jobs.iter_mut().find(|(thread, _)| *thread == me) {
            *job = number;
        }
    }
}

/// Ends the call when dropped, also by a panic.
#[derive(Debug)]
pub struct Calling<'a> {
    calls: &'a Calls,
    /// None: the reactor's thread.
    number: Option<u64>,
}

/// Ends the job when dropped, also by a panic.
#[derive(Debug)]
pub struct Working<'a>(&'a Calls);

impl Calls {
    fn lock(&self) -> MutexGuard<'_, Others> {
        // Numbers are right at every moment: a panic elsewhere does not matter.
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call on the reactor's thread begins; there is one such thread for a device.
    pub fn begin_inline(&self, what: What) -> Calling<'_> {
        self.inline_what.store(what as u8, Ordering::Relaxed);
        self.inline.fetch_add(1, Ordering::Release);
        Calling {
            calls: self,
            number: None,
        }
    }

    /// A call on any other thread begins.
    pub fn begin(&self, what: What) -> Calling<'_> {
        let mut others = self.lock();
        others.note_progress();
        let number = others.number();
        others.under_way.push((number, what));
        Calling {
            calls: self,
            number: Some(number),
        }
    }

    /// A job begins on this thread, which does one at a time.
    pub fn begin_job(&self) -> Working<'_> {
        let mut others = self.lock();
        let number = others.number();
        others.jobs.push((thread::current().id(), number));
        Working(self)
    }

    /// Appends what is under way.
    pub fn outstanding(&self, into: &mut Vec<Outstanding>) {
        let number = self.inline.load(Ordering::Acquire);
        if number % 2 == 1 {
            let what = What::of(self.inline_what.load(Ordering::Relaxed));
            into.push(Outstanding {
                number,
                what,
                inline: true,
            });
        }
        let others = self.lock();
        // Odd numbers are the reactor's.
        let jobs = others.jobs.iter().map(|(_, number)| (*number, What::Job));
        let all = others.under_way.iter().copied().chain(jobs);
        into.extend(all.map(|(number, what)| Outstanding {
            number: number * 2,
            what,
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
            Some(number) => {
                let mut others = self.calls.lock();
                others.under_way.retain(|(other, _)| *other != number);
                others.note_progress();
            }
        }
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        let me = thread::current().id();
        self.0.lock().jobs.retain(|(thread, _)| *thread != me);
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
            both.iter()
                .map(|call| (call.what, call.inline))
                .collect::<Vec<_>>(),
            [(What::Flush, true), (What::Write, false)]
        );
        drop(second);
        drop(first);
        assert!(seen().is_empty());
        let third = calls.begin_inline(What::Read);
        assert_ne!(
            seen()[0].number,
            both[0].number,
            "another call has another number"
        );
        drop(third);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _calling = calls.begin(What::Read);
            panic!("inside the call");
        }));
        assert!(panicked.is_err() && seen().is_empty());
    }

    /// A checkpoint of a large index takes minutes, and is no hang: each of its calls shows that it
    /// goes on.
    #[test]
    fn a_job_has_another_number_after_each_of_its_calls_and_no_other_threads() {
        let calls = Calls::default();
        let job = || {
            let mut all = Vec::new();
            calls.outstanding(&mut all);
            let jobs: Vec<u64> = all
                .iter()
                .filter(|call| call.what == What::Job)
                .map(|call| call.number)
                .collect();
            assert_eq!(jobs.len(), 1);
            jobs[0]
        };
        let working = calls.begin_job();
        let first = job();
        std::thread::scope(|scope| scope.spawn(|| drop(calls.begin(What::Read))).join())
            .expect("another's call");
        assert_eq!(job(), first, "another's call is none of its own");
        let calling = calls.begin(What::Write);
        let second = job();
        assert_ne!(second, first);
        drop(calling);
        assert_ne!(job(), second);
        drop(working);
        let mut all = Vec::new();
        calls.outstanding(&mut all);
        assert!(all.is_empty());
    }
}
