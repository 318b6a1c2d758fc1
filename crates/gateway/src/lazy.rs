//! Files with lazy I/O: `O_LAZY`, which a program requests with Ceph's `ioctl` on an open file
//! (CEPH-11).
//!
//! ```text
//!  open ─▶ a handle of its own ─ioctl─▶ lazy ─ release ─▶ no longer lazy, then closed
//! ```
//! The kernel has no calls for the rest: `fsync` propagates, and reopening the file synchronizes
//! it, for all programs that have it open in this mount.

use fuser::FileHandle;
use nacre_types::Ino;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `_IO(0x97, 4)`.
pub const LAZYIO: u32 = 0x9704;

/// See the module head.
#[derive(Debug, Default)]
pub struct Lazy {
    last: AtomicU64,
    /// Lazy opens by handle.
    opens: Mutex<BTreeMap<u64, Ino>>,
}

impl Lazy {
    /// A handle for a file that is being opened.
    pub fn handle(&self) -> FileHandle {
        FileHandle(self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }
    /// Makes it lazy; returns whether it was not.
    pub fn begin(&self, handle: FileHandle, ino: Ino) -> bool {
        self.opens().insert(handle.0, ino).is_none()
    }
    /// It is closed, or could not become lazy; returns whether it was lazy.
    pub fn end(&self, handle: FileHandle) -> bool {
        self.opens().remove(&handle.0).is_some()
    }
    /// Whether a file has a lazy open.
    pub fn has(&self, ino: Ino) -> bool {
        self.opens().values().any(|lazy| *lazy == ino)
    }
    fn opens(&self) -> MutexGuard<'_, BTreeMap<u64, Ino>> {
        self.opens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_open_of_a_file_is_lazy_by_itself() {
        let (lazy, ino) = (Lazy::default(), Ino(7));
        let [one, other] = [lazy.handle(), lazy.handle()];
        assert!(
            lazy.begin(one, ino) && !lazy.begin(one, ino),
            "asked for twice, it is lazy once"
        );
        assert!(!lazy.end(other) && lazy.has(ino) && !lazy.has(Ino(8)));
        assert!(lazy.end(one) && !lazy.end(one) && !lazy.has(ino));
    }
}
