//! Errors of a mount, as sentences that say what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a file system is not mounted; or, at its end, what may not be safe.
#[derive(Debug)]
pub enum MountError {
    /// The kernel has no FUSE, or does not provide it here.
    NoDevice,
    /// The device may not be opened.
    DeviceDenied,
    /// This process may not mount, and there is no helper that mounts for users.
    NotPermitted,
    /// The mount point does not exist.
    Missing {
        /// The mount point.
        dir: PathBuf,
    },
    /// The mount point is not a directory.
    NotDirectory {
        /// The mount point.
        dir: PathBuf,
    },
    /// There is a mount whose process has ended.
    Dead {
        /// The mount point.
        dir: PathBuf,
    },
    /// The directory cannot be read.
    Unusable {
        /// The mount point.
        dir: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// Users may not mount with `allow_other` here.
    OthersDenied,
    /// The file system does not return its root.
    NoRoot {
        /// The POSIX error number.
        errno: u16,
    },
    /// The kernel, or the helper that mounts for users, refuses.
    Refused {
        /// The mount point.
        dir: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// Programs are using the mount.
    Busy {
        /// The mount point.
        dir: PathBuf,
    },
    /// Unmounting failed.
    NotUnmounted {
        /// The mount point.
        dir: PathBuf,
        /// Why.
        why: String,
    },
    /// The session ended with an error.
    Ended {
        /// Why.
        why: io::Error,
    },
    /// It is unmounted, but the last changes are not known to be durable.
    NotSafe {
        /// The POSIX error number; `None`: no answer in time.
        errno: Option<u16>,
        /// How long it waited.
        waited: Duration,
    },
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDevice => write!(
                f,
                "this machine has no /dev/fuse: load the kernel module fuse, or give the container the device"
            ),
            Self::DeviceDenied => {
                write!(
                    f,
                    "/dev/fuse may not be opened: give this user the right to, or the container the device"
                )
            }
            Self::NotPermitted => write!(
                f,
                "this user may not mount: install fusermount3 (package fuse3), or run this as root \
                 (in a container with the capability CAP_SYS_ADMIN)"
            ),
            Self::Missing { dir } => {
                write!(f, "{0} does not exist: `mkdir {0}` makes it", dir.display())
            }
            Self::NotDirectory { dir } => {
                write!(f, "{} is no directory: name one to mount on", dir.display())
            }
            Self::Dead { dir } => write!(
                f,
                "{0} has a mount whose process has ended: `umount -l {0}` takes it away (or `fusermount3 -uz {0}`)",
                dir.display()
            ),
            Self::Unusable { dir, why } => {
                write!(f, "{} cannot be mounted on: {why}", dir.display())
            }
            Self::OthersDenied => write!(
                f,
                "users may not mount with allow_other here: the line user_allow_other in /etc/fuse.conf lets them"
            ),
            Self::NoRoot { errno } => {
                write!(
                    f,
                    "the file system does not tell its root: {}",
                    io::Error::from_raw_os_error(i32::from(*errno))
                )
            }
            Self::Refused { dir, why } => write!(f, "mounting on {}: {why}", dir.display()),
            Self::Busy { dir } => write!(
                f,
                "{} is in use by programs, so it stays mounted",
                dir.display()
            ),
            Self::NotUnmounted { dir, why } => {
                write!(
                    f,
                    "{0} is still mounted: {why}; `umount -l {0}` takes it away",
                    dir.display()
                )
            }
            Self::Ended { why } => write!(f, "the mount ended: {why}"),
            Self::NotSafe {
                errno: Some(errno), ..
            } => write!(
                f,
                "unmounted, but the last changes may be lost: {}",
                io::Error::from_raw_os_error(i32::from(*errno))
            ),
            Self::NotSafe {
                errno: None,
                waited,
            } => write!(
                f,
                "unmounted, but the last changes may be lost: the cluster did not answer within {} s",
                waited.as_secs()
            ),
        }
    }
}

/// No sources: the sentences above include them.
impl std::error::Error for MountError {}
