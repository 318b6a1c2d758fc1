//! A file system becomes a directory of this machine.

use crate::fuse::Fuse;
use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use nacre_node::FileSystem;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// How it is mounted.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// What `df` and `/proc/mounts` call it; the file system's name if empty.
    pub source: String,
    /// Others than its owner may use it.
    pub allow_other: bool,
    /// Nothing can be changed through it.
    pub read_only: bool,
}

/// Why it cannot be mounted, and what to do.
#[derive(Debug)]
pub enum MountError {
    /// There is no `/dev/fuse`.
    NoFuse,
    /// There is no such directory, or it is none.
    NoDirectory(PathBuf),
    /// Something was mounted there whose process is gone.
    Dead(PathBuf),
    /// The operating system's.
    Io(PathBuf, io::Error),
}
impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFuse => f.write_str(
                "this machine has no /dev/fuse: `modprobe fuse` loads it; a container is given it with --device /dev/fuse",
            ),
            Self::NoDirectory(dir) => write!(f, "{0} is no directory; `mkdir {0}` makes one", dir.display()),
            Self::Dead(dir) => {
                let dir = dir.display();
                write!(f, "what was mounted at {dir} is gone without unmounting it; `umount -l {dir}` clears the way")
            }
            Self::Io(dir, why) if why.kind() == ErrorKind::PermissionDenied => write!(
                f,
                "{} cannot be mounted ({why}): be root, or install fusermount3 (package fuse3)",
                dir.display()
            ),
            Self::Io(dir, why) => write!(f, "{} cannot be mounted: {why}", dir.display()),
        }
    }
}
impl std::error::Error for MountError {}

/// A mount; dropping it unmounts.
pub struct Mounted {
    session: BackgroundSession,
    dir: PathBuf,
}

/// Mounts a file system.
///
/// # Errors
/// [`MountError`].
pub fn mount(fs: FileSystem, dir: &Path, options: &MountOptions) -> Result<Mounted, MountError> {
    if !Path::new("/dev/fuse").exists() {
        return Err(MountError::NoFuse);
    }
    match std::fs::metadata(dir) {
        Ok(found) if found.is_dir() => {}
        Err(why) if why.kind() == ErrorKind::NotConnected => return Err(MountError::Dead(dir.to_owned())),
        _ => return Err(MountError::NoDirectory(dir.to_owned())),
    }
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.source.clone()),
        MountOption::Subtype("nacre".to_owned()),
        MountOption::DefaultPermissions,
        // Devices and set-user-id programs work for root's mounts, as in any other file system.
        if options.read_only { MountOption::RO } else { MountOption::RW },
    ];
    if is_root() {
        config.mount_options.extend([MountOption::Dev, MountOption::Suid]);
    }
    if options.allow_other {
        config.acl = SessionACL::All;
    }
    let failed = |why| MountError::Io(dir.to_owned(), why);
    let session = fuser::spawn_mount(Fuse(fs), dir, &config).map_err(failed)?;
    Ok(Mounted { session, dir: dir.to_owned() })
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Mounted {
    /// Whether it was unmounted from outside.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.session.guard.is_finished()
    }
    /// Unmounts; also if it is in use: what is open then fails.
    ///
    /// # Errors
    /// The operating system's.
    pub fn unmount(self) -> Result<(), MountError> {
        let Self { session, dir } = self;
        session.umount_and_join().map_err(|why| MountError::Io(dir, why))
    }
    /// Why it has ended, if that was a failure.
    ///
    /// # Errors
    /// The session's.
    pub fn join(self) -> Result<(), MountError> {
        let Self { session, dir } = self;
        session.join().map_err(|why| MountError::Io(dir, why))
    }
}
