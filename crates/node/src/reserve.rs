//! Reserved space: an allocated file beside a store, given up in parts when the host's file system
//! has no other space.
//!
//! A store is a sparse file: its length is only usable as long as the file system has space. A
//! store without a reserve stopped at the first block that could not be written, and could then
//! neither delete nor open. So each keeps a reserve for its index, its log and deletions:
//!
//! ```text
//!   write ─▶ no space ─▶ give up a part ──▶ write again ─▶ the OSD counts as full: deletes only
//!                              ▲                                │ space was freed: by deletes, or by other users of the disk
//!                              └──── allocated again ◀──────────┘
//! ```
//! It is given up in parts, since other processes can take that space, too. The reserve is
//! `STORE.reserve`; a block device needs none, nor is there one on a file system that cannot
//! allocate.
//!
//! Invariant: `have` bytes of the file are allocated; `have == level` as long as nothing was given
//! up.

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The reserve is this fraction of a store's length, within these bounds.
const PART: u64 = 32;
const BYTES_MIN: u64 = 4 << 20;
const BYTES_MAX: u64 = 64 << 20;
/// Minimum size that is given up at a time.
const PIECE: u64 = 1 << 20;

#[derive(Debug, Default)]
struct State {
    file: Option<File>,
    have: u64,
    /// Its size when it was last restored.
    level: u64,
    /// Whether the file system cannot allocate.
    unsupported: bool,
}

/// See the module head.
#[derive(Debug)]
pub struct Reserve {
    bytes: u64,
    state: Mutex<State>,
}

fn retried(call: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Allocates the first `length` bytes of a file and keeps its content.
///
/// # Errors
/// The system's; [`Errno::OPNOTSUPP`]: not on this file system.
pub fn allocate(file: &File, length: u64) -> Result<(), Errno> {
    retried(|| rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, length))
}

impl Reserve {
    /// The reserve of a store in a file; allocates it now as far as there is space.
    pub fn of(store: &Path, length: u64) -> Self {
        let mut path = store.as_os_str().to_owned();
        path.push(".reserve");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path)
            .ok();
        let bytes = (length / PART).clamp(BYTES_MIN, BYTES_MAX);
        let reserve = Self {
            bytes,
            state: Mutex::new(State {
                file,
                ..State::default()
            }),
        };
        let _ = reserve.grow(bytes);
        reserve
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Its numbers are consistent at every moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is complete: no part of it was given up.
    pub fn is_whole(&self) -> bool {
        let state = self.lock();
        state.unsupported || (state.have == state.level && state.have >= BYTES_MIN)
    }

    /// Gives up a part for a write of `needed` bytes. False: there is nothing left.
    pub fn give_up(&self, needed: u64) -> bool {
        let mut state = self.lock();
        let piece = (needed + needed / 4)
            .next_multiple_of(PIECE)
            .min(state.have);
        if piece == 0 {
            return false;
        }
        let start = state.have - piece;
        // Shortened, not punched: ext4 ignores punching for blocks behind a file's end.
        let shortened = state
            .file
            .as_ref()
            .is_some_and(|file| file.set_len(start).is_ok());
        if !shortened {
            return false;
        }
        state.have = start;
        true
    }

    /// Grows it as far as `free` bytes of the file system allow.
    pub fn restore(&self, free: u64) {
        let have = {
            let state = self.lock();
            if state.unsupported || (state.have == state.level && state.have == self.bytes) {
                return;
            }
            state.have
        };
        let target = self.bytes.min(have + free / 2 / PIECE * PIECE);
        if target >= BYTES_MIN && target >= have {
            let _ = self.grow(target);
        }
    }

    fn grow(&self, target: u64) -> Result<(), Errno> {
        let mut state = self.lock();
        let Some(file) = &state.file else {
            return Err(Errno::IO);
        };
        match retried(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, target)) {
            Ok(()) => {
                (state.have, state.level) = (target, target);
                Ok(())
            }
            Err(Errno::OPNOTSUPP) => {
                state.unsupported = true;
                Ok(())
            }
            Err(errno) => {
                // A part of it may have been allocated.
                let allocated = file
                    .metadata()
                    .map_or(state.have, |meta| meta.blocks() * 512);
                let have = (allocated / PIECE * PIECE).min(target);
                let _ = file.set_len(have);
                state.have = have;
                state.level = state.level.max(state.have + 1);
                Err(errno)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_really_allocated_is_given_up_in_pieces_and_comes_back() {
        let dir = std::env::temp_dir().join(format!("nacre-reserve-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let reserve = Reserve::of(&dir.join("store"), 256 << 20);
        let allocated = || {
            dir.join("store.reserve")
                .metadata()
                .expect("it is there")
                .blocks()
                * 512
        };
        assert!(reserve.is_whole());
        if !reserve.lock().unsupported {
            assert!(allocated() >= reserve.bytes, "allocated, not sparse");
            let mut given = 0;
            while reserve.give_up(100) {
                given += 1;
                assert!(
                    !reserve.is_whole(),
                    "the OSD counts as full from the first piece on"
                );
            }
            assert_eq!((given, allocated()), (8, 0));
            reserve.restore(1 << 20);
            assert!(!reserve.is_whole(), "too little to be one");
            reserve.restore(10 << 20);
            assert!(
                reserve.is_whole() && allocated() >= 5 << 20,
                "as far as there is room"
            );
            reserve.restore(100 << 20);
            assert!(reserve.is_whole() && allocated() >= 8 << 20);
            assert!(
                reserve.give_up(3 << 20) && allocated() <= 4 << 20,
                "as much as the write needs"
            );
        }
        std::fs::remove_dir_all(&dir).expect("it is there");
    }
}
