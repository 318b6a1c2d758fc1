//! Waking a sleeping reactor from another thread: at most one system call per batch, none while it
//! is awake.
//!
//! ```text
//!  AWAKE ──about to sleep──▶ ASLEEP ──wake(): one write──▶ TOLD ──woke up──▶ AWAKE
//!    └────────wake(): no system call─────────────────────▶ TOLD ──about to sleep: does not──▶ AWAKE
//! ```

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const TOLD: u8 = 2;

/// See the module head.
#[derive(Debug)]
pub struct Waker {
    state: AtomicU8,
    fd: OwnedFd,
}

impl Waker {
    pub fn new() -> rustix::io::Result<Self> {
        Ok(Self {
            state: AtomicU8::new(AWAKE),
            fd: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        })
    }

    /// The reactor's next turn, which begins at once, sees everything that the caller published
    /// before.
    pub fn wake(&self) {
        if self.state.swap(TOLD, Ordering::SeqCst) == ASLEEP {
            // Fails only if the counter is full, and then the reactor wakes up anyway.
            let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        }
    }

    /// The same, for threads that do not know this host.
    pub fn on_other_threads(self: &Arc<Self>) -> nacre_client::Wake {
        let waker = self.clone();
        Arc::new(move || waker.wake())
    }

    /// Whether the reactor may sleep: [`Self::wake`] was not called since it woke up.
    pub fn may_sleep(&self) -> bool {
        self.state
            .compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Notes that the reactor is awake.
    pub fn woke_up(&self) {
        self.state.store(AWAKE, Ordering::SeqCst);
    }

    /// Empties the counter after the descriptor became readable.
    pub fn drain(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0_u8; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call between the reactor's last check and its sleep must keep it awake: nothing else would
    /// wake it.
    #[test]
    fn who_is_called_while_awake_does_not_sleep() {
        let waker = Waker::new().expect("an event counter");
        assert!(waker.may_sleep(), "nobody has called");
        waker.wake();
        waker.woke_up();
        waker.wake();
        assert!(!waker.may_sleep(), "called while awake");
        waker.woke_up();
        assert!(waker.may_sleep(), "the call was heard");
    }
}
