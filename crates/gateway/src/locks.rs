//! Locks: owners that may hold some, and threads that wait for one.
//!
//! An owner is a number of the kernel's: for a process (`fcntl`), whose locks are released when it
//! closes the file (`flush`), or for an open file description (`flock`), whose lock is released
//! with it (`release`). Owners without locks cost nothing then.
//!
//! A wait ends with `EINTR` when its thread gets a signal: threads are checked every [`LOOK`] while
//! there are waits.

use crate::caller;
use crate::client::Files;
use nacre_fs::Ask;
use nacre_types::Ino;
use nacre_wire::fs::FsLock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How often waiting threads are checked.
const LOOK: Duration = Duration::from_millis(100);

/// Linux' lock types (`F_RDLCK`, `F_WRLCK`, `F_UNLCK`).
pub const SHARED: i32 = 0;
/// The same.
pub const EXCLUSIVE: i32 = 1;
/// The same.
pub const UNLOCKED: i32 = 2;
/// The kernel's largest offset: to the end of the file.
const END: u64 = i64::MAX.cast_unsigned();

#[derive(Debug, Default)]
struct State {
    /// Owners that may hold locks of a file, and whether with `flock`.
    owners: BTreeMap<(Ino, u64), bool>,
    /// Threads that wait for a lock.
    waits: BTreeMap<u64, u32>,
    next_wait: u64,
    /// Whether a thread checks them.
    watched: bool,
}

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct Locks(Arc<Mutex<State>>);

impl Locks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The lock that a thread requests. `flock` always covers the whole file; if the kind cannot be
    /// determined, such a lock counts as `fcntl`.
    pub fn lock(
        &self,
        ino: Ino,
        owner: u64,
        (start, end): (u64, u64),
        pid: u32,
        exclusive: bool,
        by: u32,
    ) -> FsLock {
        let known = self.state().owners.get(&(ino, owner)).copied();
        let is_whole = start == 0 && end >= END;
        let flock = is_whole && known.unwrap_or_else(|| caller::is_in_flock(by).unwrap_or(false));
        FsLock {
            ino,
            owner,
            pid,
            flock,
            start,
            end: last(end),
            exclusive,
        }
    }
    /// An owner requests this lock, or has it.
    pub fn note(&self, lock: &FsLock) {
        self.state()
            .owners
            .insert((lock.ino, lock.owner), lock.flock);
    }
    /// An owner closes a file: returns whether it may hold locks of it.
    pub fn take(&self, ino: Ino, owner: u64) -> bool {
        let mut state = self.state();
        !state.owners.is_empty() && state.owners.remove(&(ino, owner)).is_some()
    }

    /// A thread is about to wait for a lock: returns the wait's number.
    pub fn begin_wait<F: Files + Clone>(&self, files: &F, thread: u32) -> u64 {
        let mut state = self.state();
        state.next_wait += 1;
        let wait = state.next_wait;
        state.waits.insert(wait, thread);
        if !state.watched {
            let (locks, files) = (self.clone(), files.clone());
            let watch = move || while locks.look(&files) {};
            // Without this thread, signals wait for the lock.
            state.watched = std::thread::Builder::new()
                .name("nacre-waits".to_owned())
                .spawn(watch)
                .is_ok();
        }
        wait
    }
    /// It has ended.
    pub fn end_wait(&self, wait: u64) {
        self.state().waits.remove(&wait);
    }
    /// Ends the waits of threads with a signal to handle; returns whether there may be more waits.
    fn look<F: Files>(&self, files: &F) -> bool {
        std::thread::sleep(LOOK);
        let waits: Vec<(u64, u32)> = {
            let mut state = self.state();
            state.watched = !state.waits.is_empty();
            state
                .waits
                .iter()
                .map(|(wait, thread)| (*wait, *thread))
                .collect()
        };
        for (wait, _) in waits
            .iter()
            .filter(|(_, thread)| caller::is_interrupted(*thread))
        {
            // The call itself ends the wait: it may have the lock by now.
            files.ask(Ask::CancelLock { wait: *wait }, |_| {});
        }
        !waits.is_empty()
    }
}

/// The last byte in the servers' form.
pub fn last(end: u64) -> u64 {
    if end >= END { u64::MAX } else { end }
}
/// A range in the kernel's form.
pub fn shown(lock: &FsLock) -> (u64, u64) {
    (lock.start.min(END), lock.end.min(END))
}
