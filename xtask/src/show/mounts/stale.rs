//! Handling of `ESTALE` from the kernel: the call is repeated.
//!
//! Invariant: no answer of a server or a mount is hidden. If an object does not exist for them,
//! repeating does not help, and the error is reported in the end.
//!
//! A directory that another mount has moved is still cached here at its old location. Looking it up
//! at its new one makes the kernel move its cached entry (`__d_unalias`), which needs the lock that
//! this mount's renames between directories hold while they wait for their answer. The kernel does
//! not wait for that lock: the call fails, as on NFS and CephFS.

use rustix::io::Errno;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A rename may wait for as long as the file system does not answer.
const LONGEST: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(1);
/// Number of repeated calls of this process.
static AGAIN: AtomicU64 = AtomicU64::new(0);

/// Makes a call with a path lookup, and repeats it while it returns `ESTALE`.
///
/// # Errors
/// The error of the call.
pub fn again<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let begun = Instant::now();
    loop {
        let result = call();
        let is_stale = result
            .as_ref()
            .is_err_and(|why| Errno::from_io_error(why) == Some(Errno::STALE));
        if !is_stale || begun.elapsed() > LONGEST {
            return result;
        }
        AGAIN.fetch_add(1, Ordering::Relaxed);
        sleep(PAUSE);
    }
}

/// Number of repeated calls.
pub fn count() -> u64 {
    AGAIN.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_stale_is_asked_again() {
        let mut left = 3;
        let found = again(|| {
            left -= 1;
            if left > 0 {
                Err(Errno::STALE.into())
            } else {
                Err::<(), _>(Errno::NOENT.into())
            }
        });
        assert_eq!(
            (Errno::from_io_error(&found.expect_err("gone")), left),
            (Some(Errno::NOENT), 0)
        );
    }
}
