//! A queue from librados' threads to ours: ended operations, in order.
//!
//! ```text
//!  librados' finisher ─▶ Queue::push ─▶ (mutex, condition) ─▶ Queue::take: everything there, at once
//!                              └─ the first: wake ─▶ a reactor, which takes without waiting
//! ```
//!
//! A callback only appends; it wakes the taker if that sleeps, so a burst of answers costs one
//! wake-up.

use nacre_client::Wake;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// See the module head.
pub struct Queue<T> {
    state: Mutex<State<T>>,
    ready: Condvar,
    /// Wakes a taker that sleeps elsewhere.
    wake: OnceLock<Wake>,
}

struct State<T> {
    ended: Vec<T>,
    sleeping: bool,
}

impl<T> Queue<T> {
    /// An empty queue.
    pub fn new() -> Self {
        Self {
            state: Mutex::new(State {
                ended: Vec::new(),
                sleeping: false,
            }),
            ready: Condvar::new(),
            wake: OnceLock::new(),
        }
    }
    /// Sets what to call, in addition to waking a taker that sleeps here, when the queue is no
    /// longer empty.
    pub fn wake_with(&self, wake: Wake) {
        assert!(self.wake.set(wake).is_ok(), "a queue has one taker");
    }
    /// Appends an item.
    pub fn push(&self, ended: T) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let first = state.ended.is_empty();
        state.ended.push(ended);
        if state.sleeping {
            state.sleeping = false;
            drop(state);
            self.ready.notify_one();
        } else {
            drop(state);
        }
        if let Some(wake) = self.wake.get().filter(|_| first) {
            wake();
        }
    }
    /// Takes everything, waiting at most `max` for the first item.
    pub fn take(&self, max: Duration, into: &mut Vec<T>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Instant::now();
        while state.ended.is_empty() {
            let Some(left) = max
                .checked_sub(begun.elapsed())
                .filter(|left| !left.is_zero())
            else {
                break;
            };
            state.sleeping = true;
            let woken = self
                .ready
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
            state = woken.0;
        }
        state.sleeping = false;
        if into.is_empty() {
            std::mem::swap(&mut state.ended, into)
        } else {
            into.append(&mut state.ended)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_sleeper_is_woken_and_gets_everything_in_order() {
        let queue = Arc::new(Queue::new());
        let pusher = {
            let queue = queue.clone();
            std::thread::spawn(move || (0..1000).for_each(|n| queue.push(n)))
        };
        let mut all = Vec::new();
        while all.len() < 1000 {
            let before = all.len();
            queue.take(Duration::from_secs(60), &mut all);
            assert!(all.len() > before, "it woke for nothing");
        }
        pusher.join().expect("no panic");
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
        queue.take(Duration::ZERO, &mut all);
        assert_eq!(all.len(), 1000);
    }

    // Fails when only pushes that end a sleep here wake the other taker.
    #[test]
    fn who_sleeps_elsewhere_is_woken_once_for_all_that_he_has_not_taken() {
        use std::sync::atomic::{AtomicU32, Ordering};
        let (queue, woken) = (Queue::new(), Arc::new(AtomicU32::new(0)));
        let count = woken.clone();
        queue.wake_with(Arc::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        }));
        let mut all = Vec::new();
        for turn in 1..=3 {
            (0..5).for_each(|n| queue.push(n));
            assert_eq!(woken.load(Ordering::SeqCst), turn);
            queue.take(Duration::ZERO, &mut all);
        }
        assert_eq!(all.len(), 15);
    }
}
