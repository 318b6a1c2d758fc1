//! Moves the thread that answers the kernel to the processor of the program whose requests it
//! answers.
//!
//! ```text
//!  one request in 32 ─▶ its thread ─▶ checks its processor ─▶ the same thread as last time: both
//!   (the thread that     (another      (/proc/TID/stat)          threads run there, and nowhere else
//!    answers)             thread)                              another one: any processor
//! ```
//! A program waits for each of its requests, and the answering thread waits for the next one. If
//! both share a processor, the kernel switches between them. Otherwise it distributes them over two
//! if it can, and then each of the four steps wakes a processor: in a virtual machine, where that
//! leaves the guest, `stat` took three times as much CPU (61 instead of 21 µs) and three times as
//! long. With several concurrent programs none is followed: they would wait for each other.
//!
//! Invariants:
//! 1. The answering thread examines no program. A program that starts another closes its files
//!    under a kernel lock (`exec_update_lock`) that `/proc/TID/stat` takes too: the close would
//!    wait for the answer, and the answering thread for the close. A separate thread may wait.
//! 2. Neither thread runs on a processor that was not allowed for the answering thread at the
//!    beginning.

use fuser::Request;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use std::cell::RefCell;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, Thread};

/// One request in this many is examined, which costs some 10 µs.
const EVERY: u32 = 32;

thread_local! {
    static FOLLOWING: RefCell<Following> = RefCell::new(Following::new());
}

/// A request has arrived at this thread.
pub fn follow(request: &Request) {
    FOLLOWING.with_borrow_mut(|following| following.came(request.pid()));
}

/// Where the answering thread must run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Anywhere,
    /// On this processor.
    On(usize),
}

/// Decides the place.
#[derive(Debug, Default)]
struct Policy {
    last: Option<u32>,
    place: Place,
}

impl Policy {
    /// A request came from this thread, which runs on that processor; returns the new place, if it
    /// changes.
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

/// The answering thread's message: the thread of a request, [`NONE`] or [`END`].
type Asked = Arc<AtomicU32>;
const NONE: u32 = 0;
const END: u32 = u32::MAX;

/// State of the answering thread.
struct Following {
    requests: u32,
    /// The scout thread, if there is one. Not a channel: a receiver checks several times before it
    /// sleeps, and each check is a context switch.
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
        // The kernel's own requests belong to no thread.
        if self.requests < EVERY || thread == NONE {
            return;
        }
        self.requests = 0;
        self.ask(thread);
    }
    fn ask(&self, what: u32) {
        if let Some((asked, scout)) = &self.scout
            // If the scout has not taken the last message, it is awake, or waits for a program.
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

/// Finds where programs run, and moves the answering thread there.
struct Scout {
    answering: Pid,
    /// The processors allowed for the answering thread.
    all: CpuSet,
    policy: Policy,
}

impl Scout {
    /// For the calling thread; `None`: its allowed processors cannot be determined.
    fn of_this_thread() -> Option<Self> {
        Some(Self {
            answering: gettid(),
            all: sched_getaffinity(None).ok()?,
            policy: Policy::default(),
        })
    }
    /// Runs until the answering thread ends or cannot be moved.
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
    /// Moves there, together with the answering thread, so that it wakes no other processor;
    /// returns whether that was possible.
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

/// The processor on which a thread ran last, from `/proc/TID/stat`: the 39th field; the second
/// field is a name with arbitrary characters.
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

    /// On a separate thread, because it stays changed.
    #[test]
    fn it_comes_back_from_where_it_went() {
        let is_right = thread::spawn(|| {
            let scout = Scout::of_this_thread().expect("it may ask");
            let all = scout.all;
            let first = (0..CpuSet::MAX_CPU)
                .find(|processor| all.is_set(*processor))
                .expect("it runs");
            // By an unchanged thread: this thread must not move.
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
