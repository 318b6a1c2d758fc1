//! Separates writes through the page cache from direct writes.
//!
//! A direct write ends by dropping its range from the page cache. The kernel drops whole folios,
//! which may be megabytes long and hold neighbouring blocks: if one of them was dirtied meanwhile,
//! the folio cannot be dropped, its part of our range is stale, and the kernel reports that by
//! failing the file's next flush. So the two kinds never run at the same time in one window. (ext4
//! and XFS ensure that by a lock of the file; a block device has none.)
//!
//! ```text
//!  through ──┬─ no direct write in its windows ──────▶ writes      direct ┬─ no cached write in its windows ──▶ writes
//!            └─ waits (a worker), or goes to one (the reactor)            └─ waits
//! ```
//! Invariant: of two entries of different kinds in `writing`, no window belongs to both.

use std::ops::RangeInclusive;
use std::sync::{Condvar, Mutex, MutexGuard};

/// Maximum length of a folio (on ext4; less elsewhere); each begins at a multiple of its length.
const WINDOW: u64 = 8 << 20;

/// The way of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Through,
    Past,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    way: Way,
    windows: RangeInclusive<u64>,
}

impl Entry {
    fn new(way: Way, offset: u64, length: u64) -> Self {
        Self {
            way,
            windows: offset / WINDOW..=(offset + length.max(1) - 1) / WINDOW,
        }
    }
    fn excludes(&self, other: &Self) -> bool {
        let (a, b) = (&self.windows, &other.windows);
        self.way != other.way && a.start() <= b.end() && b.start() <= a.end()
    }
}

#[derive(Debug, Default)]
struct Inside {
    writing: Vec<Entry>,
    /// Number of threads that wait for a writer to leave.
    waiting: usize,
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Windows {
    inside: Mutex<Inside>,
    left: Condvar,
}

/// A write in progress. Ends when dropped.
#[derive(Debug)]
pub struct Writing<'a> {
    windows: &'a Windows,
    entry: Entry,
}

impl Windows {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside
            .lock()
            .unwrap_or_else(|_| panic!("a thread panicked while it wrote; nothing can be trusted"))
    }

    /// Waits until a write of this kind may begin there.
    pub fn enter(&self, way: Way, offset: u64, length: u64) -> Writing<'_> {
        let entry = Entry::new(way, offset, length);
        let mut inside = self.lock();
        while inside.writing.iter().any(|other| other.excludes(&entry)) {
            inside.waiting += 1;
            inside = self
                .left
                .wait(inside)
                .unwrap_or_else(|_| panic!("a thread panicked while it wrote"));
            inside.waiting -= 1;
        }
        inside.writing.push(entry.clone());
        Writing {
            windows: self,
            entry,
        }
    }

    /// As [`Self::enter`], for callers that must not wait.
    pub fn try_enter(&self, way: Way, offset: u64, length: u64) -> Option<Writing<'_>> {
        let entry = Entry::new(way, offset, length);
        let mut inside = self.lock();
        if inside.writing.iter().any(|other| other.excludes(&entry)) {
            return None;
        }
        inside.writing.push(entry.clone());
        Some(Writing {
            windows: self,
            entry,
        })
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut inside = self.windows.lock();
        let at = inside
            .writing
            .iter()
            .position(|entry| *entry == self.entry)
            .expect("it entered");
        inside.writing.swap_remove(at);
        let awaited = inside.waiting > 0;
        drop(inside);
        // Notifying is a system call even without waiters, and there are several writes per group
        // of the log.
        if awaited {
            self.windows.left.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_ways_exclude_each_other_where_windows_meet() {
        let windows = Windows::default();
        let past = windows.enter(Way::Past, WINDOW, WINDOW);
        assert!(
            windows.try_enter(Way::Past, WINDOW + 4096, 4096).is_some(),
            "the same way"
        );
        assert!(
            windows.try_enter(Way::Through, 2 * WINDOW, 4096).is_some(),
            "the next window"
        );
        assert!(
            windows.try_enter(Way::Through, 0, WINDOW).is_some(),
            "the one before"
        );
        assert!(
            windows.try_enter(Way::Through, 0, WINDOW + 1).is_none(),
            "one byte too many"
        );
        assert!(windows.try_enter(Way::Through, 2 * WINDOW - 1, 1).is_none());
        drop(past);
        let through = windows
            .try_enter(Way::Through, WINDOW, 1)
            .expect("it has left");
        let again = windows
            .try_enter(Way::Through, WINDOW, 1)
            .expect("as many as like");
        drop(through);
        assert!(
            windows.try_enter(Way::Past, WINDOW, 4096).is_none(),
            "one of two equals is still there"
        );
        drop(again);
        assert!(windows.try_enter(Way::Past, WINDOW, 4096).is_some());
    }

    #[test]
    fn what_waits_gets_in_when_the_last_has_left() {
        let windows = Windows::default();
        let (first, second) = (
            windows.enter(Way::Through, 0, 1),
            windows.enter(Way::Through, 1, 1),
        );
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| drop(windows.enter(Way::Past, 0, 4096)));
            drop(first);
            drop(second);
            waits.join().expect("it got in");
        });
    }

    /// (Planted by a reviewer: only one of the waiters was notified, and no test failed.) All that
    /// wait for the last one to leave are notified.
    #[test]
    fn all_who_wait_get_in() {
        let windows = Windows::default();
        let first = windows.enter(Way::Through, 0, 1);
        let both = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let _past = windows.enter(Way::Past, 0, 4096);
                    // Neither leaves before the other has entered.
                    both.wait();
                });
            }
            while windows.lock().waiting < 2 {
                std::thread::yield_now();
            }
            drop(first);
        });
        assert_eq!(windows.lock().waiting, 0);
    }
}
