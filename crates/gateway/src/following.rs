//! The thread that answers the kernel runs where the program runs whose requests it answers.
//!
//! ```text
//!  one request in 32 ─▶ whose is it, and where does that thread run?
//!       the same as last time ─▶ this thread runs there, too, and nowhere else
//!       another one           ─▶ this thread runs where the kernel wants
//! ```
//! A program waits for each of its requests, and this thread for the next one. Where both have one
//! processor, the kernel goes from one to the other and back. It puts them on two if it can, and
//! then each of the four steps wakes a processor: in a virtual machine, where that leaves the
//! machine, `stat` cost three times as much (61 and 21 µs of CPU), and took three times as long.
//! Of several programs at a time none is followed: they would wait for each other.
//!
//! Invariant: this thread runs on no processor on which it might not run when it began.

use fuser::Request;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::RefCell;
use std::fs;

/// One request in so many is looked at: that costs some 10 µs.
const EVERY: u32 = 32;

thread_local! {
    static FOLLOWING: RefCell<Following> = RefCell::new(Following::new());
}

/// A request has come to this thread.
pub fn follow(request: &Request) {
    FOLLOWING.with_borrow_mut(|following| following.came(request.pid()));
}

/// Where this thread is to run.
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
        let place = if is_same { Place::On(processor) } else { Place::Anywhere };
        (std::mem::replace(&mut self.place, place) != place).then_some(place)
    }
}

struct Following {
    requests: u32,
    policy: Policy,
    /// Where it may run; `None`: that cannot be known or changed, and is left alone.
    all: Option<CpuSet>,
}

impl Following {
    fn new() -> Self {
        Self { requests: 0, policy: Policy::default(), all: sched_getaffinity(None).ok() }
    }
    fn came(&mut self, thread: u32) {
        self.requests += 1;
        // Those of the kernel itself are of no thread.
        if self.requests < EVERY || thread == 0 || self.all.is_none() {
            return;
        }
        self.requests = 0;
        let text = fs::read_to_string(format!("/proc/{thread}/stat"));
        let Some(processor) = text.ok().and_then(|text| processor(&text)) else { return };
        if let Some(place) = self.policy.saw(thread, processor)
            && !self.go(place)
        {
            self.all = None;
        }
    }
    /// Goes there; whether that was possible.
    fn go(&self, place: Place) -> bool {
        let Some(all) = &self.all else { return false };
        let set = match place {
            Place::On(processor) if processor < CpuSet::MAX_CPU && all.is_set(processor) => {
                let mut one = CpuSet::new();
                one.set(processor);
                one
            }
            Place::On(_) | Place::Anywhere => *all,
        };
        sched_setaffinity(None, &set).is_ok()
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
        assert_eq!((processor(&stat), processor("12 (a) S 1 2"), processor("")), (Some(39), None, None));
        let own = fs::read_to_string("/proc/thread-self/stat").expect("it is there");
        assert!(processor(&own).is_some_and(|processor| processor < CpuSet::MAX_CPU));
    }

    /// On a thread of its own: it stays changed.
    #[test]
    fn it_comes_back_from_where_it_went() {
        let is_right = std::thread::spawn(|| {
            let following = Following::new();
            let all = following.all.expect("it may ask");
            let first = (0..CpuSet::MAX_CPU).find(|processor| all.is_set(*processor)).expect("it runs");
            let went = following.go(Place::On(first));
            let there = sched_getaffinity(None).expect("it may ask");
            let back = following.go(Place::On(CpuSet::MAX_CPU)) && following.go(Place::Anywhere);
            went && there.count() == 1 && back && sched_getaffinity(None) == Ok(all)
        });
        assert!(is_right.join().expect("it ends"));
    }
}
