//! Files with set-user-id or set-group-id bits known to the kernel: a write by anyone but root
//! clears the bits (POSIX `write`).
//!
//! The kernel leaves that to the file system if it caches no data. It does not read attributes for
//! it, so what it was told about them is recorded: writes to other files cost nothing.
//!
//! Invariant: a file reported to the kernel with such bits stays recorded until it is reported
//! without them.

use nacre_types::Ino;
use nacre_wire::fs::Inode;
use nacre_wire::fs::inode::S_ISGID;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

const S_ISUID: u16 = 0o4000;
/// Without this bit, set-group-id has another meaning: mandatory locking.
const S_IXGRP: u16 = 0o010;

/// See the module head.
#[derive(Debug, Default)]
pub struct SetIds {
    count: AtomicUsize,
    inos: Mutex<BTreeSet<Ino>>,
}

impl SetIds {
    /// Records what the kernel is told.
    pub fn note(&self, inode: &Inode) {
        let has = without(inode).is_some();
        if has || self.count.load(Ordering::SeqCst) > 0 {
            let mut inos = self.inos.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = if has {
                inos.insert(inode.ino)
            } else {
                inos.remove(&inode.ino)
            };
            self.count.store(inos.len(), Ordering::SeqCst);
        }
    }
    /// Whether a write by this user may have to clear bits of this file.
    pub fn concern(&self, ino: Ino, uid: u32) -> bool {
        uid != 0
            && self.count.load(Ordering::SeqCst) > 0
            && self
                .inos
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .contains(&ino)
    }
}

/// The mode of a file after a write, if it changes.
pub fn without(inode: &Inode) -> Option<u16> {
    let group = if inode.mode & S_IXGRP != 0 {
        S_ISGID
    } else {
        0
    };
    let taken = inode.mode & (S_ISUID | group);
    (inode.is_file() && taken != 0).then_some(inode.mode & !taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_wire::fs::{FileKind, Stamp};

    fn inode(kind: FileKind, mode: u16) -> Inode {
        Inode::new(Ino(7), kind, mode, (1, 1), Stamp(1))
    }

    #[test]
    fn a_write_takes_the_bits_off_that_let_others_run_it_as_its_owner() {
        for (mode, after) in [
            (0o755, None),
            (0o4755, Some(0o755)),
            (0o2755, Some(0o755)),
            (0o2745, None),
            (0o7777, Some(0o1777)),
        ] {
            assert_eq!(without(&inode(FileKind::File {}, mode)), after, "{mode:o}");
        }
        assert_eq!(without(&inode(FileKind::Directory {}, 0o2755)), None);
    }

    #[test]
    fn what_the_kernel_was_told_last_counts_and_root_may() {
        let set_ids = SetIds::default();
        let concern = |uid| set_ids.concern(Ino(7), uid);
        set_ids.note(&inode(FileKind::File {}, 0o755));
        assert!(!concern(5));
        set_ids.note(&inode(FileKind::File {}, 0o4755));
        assert!(concern(5) && !concern(0) && !set_ids.concern(Ino(8), 5));
        set_ids.note(&inode(FileKind::File {}, 0o755));
        assert!(!concern(5));
    }
}
