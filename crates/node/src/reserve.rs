//! Space that is really there: a file beside a store, allocated, and given up when the host's file system has no other.
//!
//! A store is a sparse file: its length is a promise of the host, kept only as long as the file system has room. A store that had been promised everything
//! stopped at the first block that could not be written, and could then neither delete nor open. So each keeps a reserve for its index, its log and deletions:
//!
//! ```text
//!   write ─▶ no space ─▶ give the reserve up ─▶ write again ─▶ the OSD counts as full: deletes only
//!                              ▲                                   │ space was freed: by deletes, or by whoever filled the disk
//!                              └──── allocated again ◀─────────────┘
//! ```
//! The reserve is `STORE.reserve`; a block device needs none, nor does a file system that cannot allocate (the file is then absent).

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Part of a store's length that is its reserve, within these bounds.
const PART: u64 = 32;
const BYTES_MIN: u64 = 4 << 20;
const BYTES_MAX: u64 = 64 << 20;

/// See the module head.
#[derive(Debug)]
pub struct Reserve {
    path: PathBuf,
    bytes: u64,
    /// It is allocated, or cannot be on this file system.
    whole: AtomicBool,
}

/// Allocates the first `length` bytes of a file, whose content stays.
///
/// # Errors
/// The system's; [`Errno::OPNOTSUPP`]: not on this file system.
pub fn allocate(file: &File, length: u64) -> Result<(), Errno> {
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, length) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

impl Reserve {
    /// The reserve of a store in a file; it is allocated now if there is room.
    pub fn of(store: &Path, length: u64) -> Self {
        let mut path = store.as_os_str().to_owned();
        path.push(".reserve");
        let bytes = (length / PART).clamp(BYTES_MIN, BYTES_MAX);
        let reserve = Self { path: path.into(), bytes, whole: AtomicBool::new(false) };
        let _ = reserve.restore();
        reserve
    }

    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is there.
    pub fn is_whole(&self) -> bool {
        self.whole.load(Ordering::Relaxed)
    }

    /// Gives it up. False: it had been given up before.
    pub fn give_up(&self) -> bool {
        let was = self.whole.swap(false, Ordering::SeqCst);
        // Also what an attempt to restore it has left.
        let freed = std::fs::remove_file(&self.path).is_ok();
        was || freed
    }

    /// Allocates it again.
    ///
    /// # Errors
    /// There is no room.
    pub fn restore(&self) -> Result<(), Errno> {
        let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let open = File::options().create(true).truncate(false).write(true).mode(0o600).open(&self.path);
        let done = open.map_err(failed).and_then(|file| match allocate(&file, self.bytes) {
            Err(Errno::OPNOTSUPP) => {
                let _ = std::fs::remove_file(&self.path);
                Ok(())
            }
            other => other,
        });
        match done {
            Ok(()) => self.whole.store(true, Ordering::SeqCst),
            Err(_) => {
                let _ = std::fs::remove_file(&self.path);
            }
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn a_reserve_is_really_allocated_and_comes_back() {
        let dir = std::env::temp_dir().join(format!("nacre-reserve-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let reserve = Reserve::of(&dir.join("store"), 256 << 20);
        let file = dir.join("store.reserve");
        if file.exists() {
            let meta = file.metadata().expect("it is there");
            assert!(meta.blocks() * 512 >= reserve.bytes(), "allocated, not sparse");
            assert_eq!(meta.mode() & 0o777, 0o600);
            assert!(reserve.is_whole() && reserve.give_up() && !reserve.is_whole() && !file.exists());
            assert!(!reserve.give_up(), "once");
            reserve.restore().expect("there is room");
        }
        assert!(reserve.is_whole());
        std::fs::remove_dir_all(&dir).expect("it is there");
    }
}
