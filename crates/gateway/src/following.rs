//! The thread that answers the kernel runs where the program runs whose requests it answers.
//!
//! ```text
//!  one request in 32 ─▶ its thread ─▶ looks where that runs ─▶ the same thread as last time: both
//!   (the thread that     (another      (/proc/TID/stat)          threads run there, and nowhere else
//!    answers)             thread)                              another one: where the kernel wants
//! ```
//! A program waits for each of its requests, and the thread that answers for the next one. Where
//! both have one processor, the kernel goes from one to the other and back. It puts them on two if
//! it can, and then each of the four steps wakes a processor: in a virtual machine, where that
//! leaves the machine, `stat` cost three times as much (61 and 21 µs of CPU), and took three times
//! as long. Of several programs at a time none is followed: they would wait for each other.
//!
//! Invariants:
//! 1. The thread that answers looks at no program. One that starts another closes its files under a
//!    lock of the kernel (`exec_update_lock`) that `/proc/TID/stat` takes too: the close waits for
//!    the answer, and who should answer would wait for the close. A thread of its own may wait.
//! 2. Neither thread runs on a processor on which the one that answers might not when it began.

use fuser::Request;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use std::cell::RefCell;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, Thread};

/// One request in so many is looked at: that costs some 10 µs.
const EVERY: u32 = 32;

thread_local! {
    static FOLLOWING: RefCell<Following> = RefCell::new(Following::new());
}

/// A request has come to this thread.
pub fn follow(request: &Request) {
    FOLLOWING.with_borrow_mut(|following| following.came(request.pid()));
}

/// Where the thread that answers is to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Anywhere,
    /// On this processor.
    On(usize),
}

/// Decides that.
#[derive(Debug, Default)]
struct Policy {
    last: Option<u32>,
    place: Place,
}

impl Policy {
    /// A request was of this thread, which runs on that processor; where to run from now on, if
    /// that is news.
    fn saw(&mut self, thread: u32, processor: usize) -> Option<Place> {
        let is_same = self.last.replace(thread) == Some(thread);
        let place = if is_same {
            Place::On(processor)
        } else {
            Place::Anywhere
        };
        (std::mem::replace(&mut self.place, place) != place).then_some(place)
    }
}

/// What the thread that answers asks for: the thread of a request, [`NONE`] or [`END`].
type Asked = Arc<AtomicU32>;
const NONE: u32 = 0;
const END: u32 = u32::MAX;

/// Of the thread that answers.
struct Following {
    requests: u32,
    /// The thread that looks, unless there is none. Not a channel: who waits for one looks several
    /// times whether something has come before it sleeps, and each time is a switch.
    scout: Option<(Asked, Thread)>,
}

impl Following {
    fn new() -> Self {
        let scout = Scout::of_this_thread().and_then(|scout| {
            let asked = Asked::default();
            let thread = thread::Builder::new().name("nacre-following".to_owned());
            let inbox = Arc::clone(&asked);
            let spawned = thread.spawn(move || scout.work(&inbox)).ok()?;
            Some((asked, spawned.thread().clone()))
        });
        Self { requests: 0, scout }
    }
    fn came(&mut self, thread: u32) {
        self.requests += 1;
        // Those of the kernel itself are of no thread.
        if self.requests < EVERY || thread == NONE {
            return;
        }
        self.requests = 0;
        self.ask(thread);
    }
    fn ask(&self, what: u32) {
        if let Some((asked, scout)) = &self.scout
            // If it has not taken the last one, it is awake, or waits for a program.
            && asked.swap(what, Ordering::Relaxed) == NONE
        {
            scout.unpark();
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.ask(END);
    }
}

/// Looks where programs run, and has the thread that answers run there.
struct Scout {
    answering: Pid,
    /// Where that may run.
    all: CpuSet,
    policy: Policy,
}

impl Scout {
    /// For the thread that makes it; `None`: where that may run cannot be known.
    fn of_this_thread() -> Option<Self> {
        Some(Self {
            answering: gettid(),
            all: sched_getaffinity(None).ok()?,
            policy: Policy::default(),
        })
    }
    /// Until the thread that answers ends, or cannot be moved.
    fn work(mut self, asked: &AtomicU32) {
        loop {
            let thread = asked.swap(NONE, Ordering::Relaxed);
            match thread {
                END => return,
                NONE => thread::park(),
                _ => {
                    let text = fs::read_to_string(format!("/proc/{thread}/stat"));
                    let Some(processor) = text.ok().and_then(|text| processor(&text)) else {
                        continue;
                    };
                    if let Some(place) = self.policy.saw(thread, processor)
                        && !self.go(place)
                    {
                        return;
                    }
                }
            }
        }
    }
    /// Goes there, with the thread that answers, so that it wakes no other processor; whether that
    /// was possible.
    fn go(&self, place: Place) -> bool {
        let set = match place {
            Place::On(processor) if processor < CpuSet::MAX_CPU && self.all.is_set(processor) => {
                let mut one = CpuSet::new();
                one.set(processor);
                one
            }
            Place::On(_) | Place::Anywhere => self.all,
        };
        [Some(self.answering), None]
            .into_iter()
            .all(|thread| sched_setaffinity(thread, &set).is_ok())
    }
}

/// The processor on which a thread ran last, by `/proc/TID/stat`: the 39th field; the second is a
/// name that may have anything in it.
fn processor(stat: &str) -> Option<usize> {
    let (_, from_third) = stat.rsplit_once(')')?;
    from_third.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_program_is_followed_and_several_are_not() {
        let mut policy = Policy::default();
        assert_eq!(policy.saw(7, 1), None, "it may be one of many");
        assert_eq!(policy.saw(7, 1), Some(Place::On(1)));
        assert_eq!(policy.saw(7, 1), None);
        assert_eq!(policy.saw(7, 0), Some(Place::On(0)), "it has moved");
        assert_eq!(policy.saw(8, 0), Some(Place::Anywhere));
        assert_eq!([policy.saw(7, 0), policy.saw(8, 1)], [None; 2]);
        assert_eq!(policy.saw(8, 1), Some(Place::On(1)));
    }

    #[test]
    fn what_a_thread_is_called_is_not_where_it_runs() {
        let rest: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let stat = format!("12 (a) b 1 2) S {}\n", rest.join(" "));
        assert_eq!(
            (processor(&stat), processor("12 (a) S 1 2"), processor("")),
            (Some(39), None, None)
        );
        let own = fs::read_to_string("/proc/thread-self/stat").expect("it is there");
        assert!(processor(&own).is_some_and(|processor| processor < CpuSet::MAX_CPU));
    }

    /// On a thread of its own: it stays changed.
    #[test]
    fn it_comes_back_from_where_it_went() {
        let is_right = thread::spawn(|| {
            let scout = Scout::of_this_thread().expect("it may ask");
            let all = scout.all;
            let first = (0..CpuSet::MAX_CPU)
                .find(|processor| all.is_set(*processor))
                .expect("it runs");
            // By another thread, as it is: that must not be what moves this one.
            let places = [
                Place::On(first),
                Place::On(CpuSet::MAX_CPU),
                Place::Anywhere,
            ];
            let mut went = places.into_iter().map(|place| {
                let moved =
                    thread::scope(|scope| scope.spawn(|| scout.go(place)).join().expect("it ends"));
                (moved, sched_getaffinity(None).expect("it may ask"))
            });
            let there = went.next().expect("three");
            there.0 && there.1.count() == 1 && went.all(|(moved, set)| moved && set == all)
        });
        assert!(is_right.join().expect("it ends"));
    }
}
