//! Device calls in progress, and jobs of its store, so that a hanging one is noticed.
//!
//! Each call has a number. The watchdog (`watchdog.rs`) reads the current numbers a few times a
//! second and measures how long it has seen each. So a call needs no clock: a call on the reactor's
//! thread costs two stores, one on a worker a lock that is only held briefly.
//!
//! A job makes many calls and may take minutes. It gets a new number whenever its thread begins or
//! ends a call: a job seen for long under one number has stopped outside of any call.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// The kind of a device call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Read = 1,
    Write = 2,
    Flush = 3,
    Discard = 4,
    /// Drops the page cache of the device.
    Forget = 5,
    /// Asks the file system for its free space.
    Space = 6,
    /// No call: a job of the store, between its calls.
    Job = 7,
}

impl What {
    /// Human-readable.
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
    /// The kind of a call on the reactor's thread.
    const fn of(number: u8) -> Self {
        match number {
            1 => Self::Read,
            2 => Self::Write,
            6 => Self::Space,
            _ => Self::Flush,
        }
    }
}

/// A call in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// Unique among the calls of a device.
    pub number: u64,
    pub what: What,
    /// The reactor's own thread makes the call and is blocked by it.
    pub inline: bool,
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Calls {
    /// Counts calls of the reactor's thread, twice each: odd while one is in progress.
    inline: AtomicU64,
    inline_what: AtomicU8,
    others: Mutex<Others>,
}

#[derive(Debug, Default)]
struct Others {
    next: u64,
    under_way: Vec<(u64, What)>,
    /// Threads that run a job, with its current number.
    jobs: Vec<(ThreadId, u64)>,
}

impl Others {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
    /// The thread of a job begins or ends a call: the job makes progress.
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

/// Ends the call when dropped, also during a panic.
#[derive(Debug)]
pub struct Calling<'a> {
    calls: &'a Calls,
    /// `None`: a call on the reactor's thread.
    number: Option<u64>,
}

/// Ends the job when dropped, also during a panic.
#[derive(Debug)]
pub struct Working<'a>(&'a Calls);

impl Calls {
    fn lock(&self) -> MutexGuard<'_, Others> {
        // The numbers are consistent at every moment: a panic elsewhere does not matter.
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call on the reactor's thread; a device has one such thread.
    pub fn begin_inline(&self, what: What) -> Calling<'_> {
        self.inline_what.store(what as u8, Ordering::Relaxed);
        self.inline.fetch_add(1, Ordering::Release);
        Calling {
            calls: self,
            number: None,
        }
    }

    /// Begins a call on any other thread.
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

    /// Begins a job on this thread, which does one at a time.
    pub fn begin_job(&self) -> Working<'_> {
        let mut others = self.lock();
        let number = others.number();
        others.jobs.push((thread::current().id(), number));
        Working(self)
    }

    /// Appends the calls in progress.
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
        // Odd numbers belong to the reactor's thread.
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

    /// A checkpoint of a large index takes minutes, and is no hang: each of its calls shows
    /// progress.
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
