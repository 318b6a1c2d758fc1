//! Mounts a file system on a directory, and unmounts it.
//!
//! ```text
//!  check ─▶ mount ─▶ Mounted ──unmount, or externally──▶ the session ends ──finish──▶ all changes are safe
//! ```
//! The session's thread ends when the kernel releases the mount: at once, or, if files are still
//! open, when the last of them is closed.

use crate::client::{Files, MountClient};
use crate::error::MountError;
use crate::gateway::Gateway;
use crate::kept::Kept;
use crate::options::MountOptions;
use crate::permission::{HELPERS, may_mount};
use fuser::{BackgroundSession, Session};
use nacre_fs::{Ask, Outcome};
use nacre_node::FileSystem;
use nacre_types::Ino;
use nacre_wire::msg::fs::FsCall;
use rustix::mount::UnmountFlags;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long the cluster may take to return the root, and to make the last changes safe.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A mounted file system. Dropping it unmounts it, without waiting for changes to be safe.
pub struct Mounted<F: Files = MountClient> {
    dir: PathBuf,
    files: F,
    /// Its other end is dropped with the session.
    ended: Receiver<Infallible>,
    /// Never dropped: dropping would unmount what is on the directory, even if this file system was
    /// unmounted long ago and something else is mounted there.
    session: ManuallyDrop<BackgroundSession>,
    finished: bool,
}

/// Checks whether a directory can be mounted on; returns its absolute path.
///
/// # Errors
/// [`MountError`]: the directory or the machine does not allow it.
pub fn check(dir: &Path) -> Result<PathBuf, MountError> {
    let unusable = |why: std::io::Error| match (why.kind(), why.raw_os_error()) {
        (ErrorKind::NotFound, _) => MountError::Missing {
            dir: dir.to_owned(),
        },
        (ErrorKind::NotADirectory, _) => MountError::NotDirectory {
            dir: dir.to_owned(),
        },
        (_, Some(errno)) if errno == rustix::io::Errno::NOTCONN.raw_os_error() => {
            MountError::Dead {
                dir: dir.to_owned(),
            }
        }
        _ => MountError::Unusable {
            dir: dir.to_owned(),
            why,
        },
    };
    if !std::fs::metadata(dir).map_err(unusable)?.is_dir() {
        return Err(MountError::NotDirectory {
            dir: dir.to_owned(),
        });
    }
    // The kernel may still have attributes of a mount whose process has ended; opening it fails.
    if let Err(dead @ MountError::Dead { .. }) = std::fs::read_dir(dir).map_err(unusable) {
        return Err(dead);
    }
    let whole = dir.canonicalize().map_err(unusable)?;
    may_mount().map(|()| whole)
}

/// How a mount is unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Only if no program uses it.
    Unused,
    /// Always: programs may continue to use open files while the mount's process serves it.
    Detach,
}

/// Unmounts a directory. It is no error if nothing is mounted.
///
/// # Errors
/// [`MountError::Busy`], [`MountError::NotUnmounted`].
pub fn unmount(dir: &Path, how: Unmount) -> Result<(), MountError> {
    let flags = match how {
        Unmount::Unused => UnmountFlags::NOFOLLOW,
        Unmount::Detach => UnmountFlags::DETACH | UnmountFlags::NOFOLLOW,
    };
    match rustix::mount::unmount(dir, flags) {
        Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(()),
        Err(rustix::io::Errno::BUSY) => Err(MountError::Busy {
            dir: dir.to_owned(),
        }),
        Err(rustix::io::Errno::PERM) => unmount_for_user(dir, how),
        Err(why) => Err(MountError::NotUnmounted {
            dir: dir.to_owned(),
            why: why.to_string(),
        }),
    }
}

/// Only root may unmount; other users have a helper program for it.
fn unmount_for_user(dir: &Path, how: Unmount) -> Result<(), MountError> {
    let mut why = "neither fusermount3 nor fusermount is installed".to_owned();
    for program in HELPERS {
        let mut command = Command::new(program);
        let flags: &[&str] = if how == Unmount::Detach {
            &["-u", "-z", "--"]
        } else {
            &["-u", "--"]
        };
        command
            .args(flags)
            .arg(dir)
            .stdin(Stdio::null())
            .env("LC_ALL", "C");
        match command.output() {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => why = String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(_) => continue,
        }
        break;
    }
    match why.contains("busy") {
        true => Err(MountError::Busy {
            dir: dir.to_owned(),
        }),
        false => Err(MountError::NotUnmounted {
            dir: dir.to_owned(),
            why,
        }),
    }
}

/// Mounts a file system. It is being served when this returns.
///
/// # Errors
/// [`MountError`]; nothing is mounted then.
pub fn mount(files: FileSystem, dir: &Path, options: &MountOptions) -> Result<Mounted, MountError> {
    mount_files(MountClient::from(files), dir, options)
}

/// The same for any receiver of calls.
pub(crate) fn mount_files<F: Files + Clone>(
    files: F,
    dir: &Path,
    options: &MountOptions,
) -> Result<Mounted<F>, MountError> {
    let dir = check(dir)?;
    // A mount that cannot show its root is useless.
    match call(&files, Ask::Names(FsCall::Stat { ino: Ino::ROOT })) {
        Some(Ok(_)) => {}
        Some(Err(errno)) => return Err(MountError::NoRoot { errno }),
        None => {
            return Err(MountError::NoRoot {
                errno: u16::try_from(TIMED_OUT.raw_os_error()).expect("small"),
            });
        }
    }
    let (sender, ended) = mpsc::channel();
    let kept = Arc::new(Kept::default());
    // The session owns it: attributes are lent as long as the session lasts.
    let keeper: Weak<Kept> = Arc::downgrade(&kept);
    files.keep_for(keeper);
    let gateway = Gateway::new(files.clone(), Arc::clone(&kept), sender);
    let session = Session::new(gateway, &dir, &options.config()).and_then(|session| {
        kept.mounted(&session)?;
        session.spawn()
    });
    let session = session.map_err(|why| match why.kind() {
        ErrorKind::PermissionDenied if options.allow_other => MountError::OthersDenied,
        _ => MountError::Refused {
            dir: dir.clone(),
            why,
        },
    })?;
    Ok(Mounted {
        dir,
        files,
        ended,
        session: ManuallyDrop::new(session),
        finished: false,
    })
}

const TIMED_OUT: rustix::io::Errno = rustix::io::Errno::TIMEDOUT;

/// Makes a call, and waits for its end within [`ANSWER_MAX`].
fn call<F: Files>(files: &F, ask: Ask) -> Option<Outcome> {
    let (sender, receiver) = mpsc::channel();
    files.ask(ask, move |outcome| drop(sender.send(outcome)));
    receiver.recv_timeout(ANSWER_MAX).ok()
}

impl<F: Files> Mounted<F> {
    /// The directory's absolute path.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Waits at most `max` until the kernel has released it; returns whether it has.
    #[must_use]
    pub fn wait_for(&self, max: Duration) -> bool {
        !matches!(self.ended.recv_timeout(max), Err(RecvTimeoutError::Timeout))
    }

    /// Unmounts it, whether files are open or not. Open files can be used until they are closed, or
    /// until this process ends.
    ///
    /// # Errors
    /// Unmounting is not allowed.
    pub fn unmount(&self) -> Result<(), MountError> {
        if self.wait_for(Duration::ZERO) {
            return Ok(());
        }
        match unmount(&self.dir, Unmount::Detach) {
            Err(MountError::NotUnmounted { .. }) if self.wait_for(Duration::ZERO) => Ok(()),
            other => other,
        }
    }

    /// Waits until it is unmounted, and all changes are safe.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn wait(self) -> Result<(), MountError> {
        // It only ends when the other end is dropped.
        let _ = self.ended.recv();
        self.finish()
    }

    /// After the end, or instead of waiting for it: makes all changes safe.
    ///
    /// # Errors
    /// [`MountError::Ended`]: the session broke; [`MountError::NotSafe`].
    pub fn finish(mut self) -> Result<(), MountError> {
        self.finished = true;
        let served = if self.wait_for(Duration::ZERO) {
            self.result()
        } else {
            Ok(())
        };
        if served.is_err() {
            // The kernel does not know that it ended: what is left is a mount without a process.
            let _ =
                rustix::mount::unmount(&self.dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
        match call(&self.files, Ask::Sync { ino: None }) {
            Some(Ok(_)) => served,
            Some(Err(errno)) => Err(MountError::NotSafe {
                errno: Some(errno),
                waited: ANSWER_MAX,
            }),
            None => Err(MountError::NotSafe {
                errno: None,
                waited: ANSWER_MAX,
            }),
        }
    }

    /// How the session's thread ended.
    fn result(&mut self) -> Result<(), MountError> {
        // The thread can only be joined by value, and the session is never moved.
        let guard = std::mem::replace(&mut self.session.guard, std::thread::spawn(|| Ok(())));
        match guard.join() {
            Ok(Err(why)) if !is_end(&why) => Err(MountError::Ended { why }),
            Ok(_) => Ok(()),
            Err(_) => Err(MountError::Ended {
                why: std::io::Error::other("its thread panicked"),
            }),
        }
    }
}

/// Whether the session ended by an unmount, although reading the kernel's next request failed: the
/// kernel returns this error if it unmounts while it hands a request over, and the next read would
/// report that there is no mount any more.
fn is_end(why: &std::io::Error) -> bool {
    why.kind() == ErrorKind::ConnectionAborted
}

impl<F: Files> Drop for Mounted<F> {
    fn drop(&mut self) {
        if !self.finished {
            let _ = self.unmount();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    /// Files were closed just before an unmount, and the kernel was sending that: its read failed
    /// with "connection aborted", and the mount's process reported that the last changes may be
    /// lost (in 21 of 25 times after unpacking an archive).
    #[test]
    fn an_unmount_while_the_kernel_hands_over_a_request_is_no_fault() {
        assert!(is_end(&Errno::CONNABORTED.into()));
        assert!(!is_end(&Errno::IO.into()) && !is_end(&Errno::INVAL.into()));
    }
}
