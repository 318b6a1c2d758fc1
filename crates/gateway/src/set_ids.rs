//! Files with set-user-id or set-group-id bits that the kernel knows: who writes one without being
//! root takes the bits off it (POSIX `write`).
//!
//! The kernel leaves that to us where it keeps no data itself. It asks for no attributes for that,
//! so what it was told of them is noted: a write to any other file costs nothing.
//!
//! Invariant: a file that the kernel was told has such bits is noted until it is told otherwise.

use nacre_types::Ino;
use nacre_wire::fs::Inode;
use nacre_wire::fs::inode::S_ISGID;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

const S_ISUID: u16 = 0o4000;
/// Without it set-group-id means something else: records are locked for others.
const S_IXGRP: u16 = 0o010;

/// See the module head.
#[derive(Debug, Default)]
pub struct SetIds {
    count: AtomicUsize,
    inos: Mutex<BTreeSet<Ino>>,
}

impl SetIds {
    /// The kernel is told this.
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
    /// Whether a write of this user may have to take bits off this file.
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

/// The mode that a file has after a write, if that is another one.
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
