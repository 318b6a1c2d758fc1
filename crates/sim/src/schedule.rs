//! The one queue: events ordered by virtual time, and by number within one moment.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

struct Queued<E> {
    at: u64,
    number: u64,
    event: E,
}
impl<E> PartialEq for Queued<E> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl<E> Eq for Queued<E> {}
impl<E> PartialOrd for Queued<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Queued<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// See the module head.
pub struct Schedule<E> {
    /// Virtual nanoseconds since the start.
    pub now: u64,
    number: u64,
    queue: BinaryHeap<Reverse<Queued<E>>>,
}

impl<E> Default for Schedule<E> {
    fn default() -> Self {
        Self {
            now: 0,
            number: 0,
            queue: BinaryHeap::new(),
        }
    }
}

impl<E> Schedule<E> {
    /// Number of scheduled events.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Schedules an event, now at the earliest.
    pub fn push(&mut self, at: u64, event: E) {
        self.number += 1;
        self.queue.push(Reverse(Queued {
            at: at.max(self.now),
            number: self.number,
            event,
        }));
    }

    /// Takes the next event and its number; advances the time to it.
    pub fn pop(&mut self) -> Option<(u64, E)> {
        let Reverse(Queued { at, number, event }) = self.queue.pop()?;
        assert!(at >= self.now, "time only goes forward");
        self.now = at;
        Some((number, event))
    }
}
