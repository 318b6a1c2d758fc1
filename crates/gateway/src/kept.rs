//! The kernel's cache: attributes for the duration of their loans, and how they are revoked
//! (CEPH-12).
//!
//! ```text
//!  reply with an inode ─▶ one more look-up ─▶ the kernel has it ── FORGET ─▶ fewer look-ups
//!  revoke(inode) ─▶ FUSE_NOTIFY_INVAL_INODE ─▶ the kernel has it: dropped
//!                                          └─▶ it does not: no look-ups are left: dropped
//!                                                           some are left: a reply is in flight: again
//! ```
//! For an inode that the kernel has, the notice also prevents caching of replies to earlier
//! requests. For an inode that a reply is about to create it does not; that is why look-ups are
//! counted.
//!
//! Names are not cached: revoking one waits for its directory's lock in the kernel, which may be
//! held by a program whose request waits for exactly that. (A notice without that lock,
//! `FUSE_NOTIFY_INC_EPOCH`, detaches mounts below.) A notice about attributes waits for no lock
//! that is held during a request.

use nacre_node::Keeper;
use nacre_types::Ino;
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// `FUSE_NOTIFY_INVAL_INODE`, sent in the error field.
const INVAL_INODE: i32 = 2;
/// Offset that means attributes only, no pages.
const NO_PAGES: i64 = -1;
/// Length of the notice: total length, code, no request, inode, offset and length.
const NOTICE_BYTES: u32 = 40;

/// See the module head.
#[derive(Debug, Default)]
pub struct Kept {
    /// The kernel's side of the mount.
    device: OnceLock<OwnedFd>,
    /// How often replies have returned each inode that was not forgotten since.
    lookups: Mutex<HashMap<Ino, u64>>,
}

impl Kept {
    /// The file system is mounted.
    ///
    /// # Errors
    /// The system's error when there are too many open files.
    pub fn mounted(&self, device: impl AsFd) -> std::io::Result<()> {
        let device = device.as_fd().try_clone_to_owned()?;
        // It is mounted only once.
        let _ = self.device.set(device);
        Ok(())
    }
    /// An inode is about to be returned to the kernel.
    pub fn looked_up(&self, ino: Ino) {
        *self.lock().entry(ino).or_default() += 1;
    }
    /// The kernel has forgotten this many look-ups.
    pub fn forgotten(&self, ino: Ino, times: u64) {
        let mut lookups = self.lock();
        if let Some(left) = lookups.get_mut(&ino) {
            *left = left.saturating_sub(times);
            if *left == 0 {
                lookups.remove(&ino);
            }
        }
    }
    fn lock(&self) -> MutexGuard<'_, HashMap<Ino, u64>> {
        self.lookups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeper for Kept {
    fn forget(&self, ino: Ino) -> bool {
        let Some(device) = self.device.get() else {
            return true;
        };
        match rustix::io::write(device, &notice(ino)) {
            Err(Errno::NOENT) => !self.lock().contains_key(&ino),
            // There is no mount any more, or the kernel has forgotten the inode.
            _ => true,
        }
    }
}

/// The notice that an inode's attributes have changed.
fn notice(ino: Ino) -> Vec<u8> {
    let mut notice = Vec::with_capacity(NOTICE_BYTES as usize);
    notice.extend_from_slice(&NOTICE_BYTES.to_ne_bytes());
    notice.extend_from_slice(&INVAL_INODE.to_ne_bytes());
    notice.extend_from_slice(&0_u64.to_ne_bytes());
    notice.extend_from_slice(&ino.0.to_ne_bytes());
    notice.extend_from_slice(&NO_PAGES.to_ne_bytes());
    notice.extend_from_slice(&0_i64.to_ne_bytes());
    notice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_ups_are_counted_until_they_are_forgotten() {
        let kept = Kept::default();
        let has = |ino| kept.lock().contains_key(&Ino(ino));
        kept.looked_up(Ino(7));
        kept.looked_up(Ino(7));
        kept.looked_up(Ino(8));
        kept.forgotten(Ino(7), 1);
        assert!(has(7) && has(8) && !has(9));
        kept.forgotten(Ino(7), 1);
        kept.forgotten(Ino(9), 5);
        assert!(!has(7) && has(8));
        assert!(kept.forget(Ino(8)), "nothing is mounted");
    }

    #[test]
    fn a_notice_is_as_long_as_it_says() {
        assert_eq!(notice(Ino(5)).len(), NOTICE_BYTES as usize);
    }
}
