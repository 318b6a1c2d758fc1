//! Errors around the roles, in sentences that recommend an action.

use nacre_client::{Failure, Refused};
use nacre_types::Entity;
use nacre_wire::msg::client::OpFailure;
use nacre_wire::msg::meta::MetaError;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Why an operation on a cluster failed.
#[derive(Debug)]
pub enum Error {
    /// The cluster refused it; nothing has changed.
    Refused(OpFailure),
    /// The cluster refused it now; it had been sent before, and may have been executed then
    /// ([`nacre_client::Failure::Doubtful`]).
    Doubtful(OpFailure),
    /// There is no pool of that name (any more).
    NoSuchPool {
        /// Its name.
        name: String,
    },
    /// Timed out. A write may or may not have been executed, or may still be.
    TimedOut {
        /// What the operation waited for.
        waits_for: String,
        /// Duration of the wait.
        waited: Duration,
    },
    /// The command line has striped the object, which this library does not read.
    Striped {
        /// The object.
        object: nacre_types::ObjectId,
    },
    /// A watch failed.
    Watch(nacre_client::WatchError),
    /// The monitors refused a command, in their words.
    Command(String),
    /// The monitors refused a request about metadata; it was not carried out.
    Meta(MetaError),
    /// Larger than the maximum size of an operation.
    TooLarge {
        /// Bytes asked for.
        length: u64,
        /// Maximum number of bytes.
        max: u64,
    },
    /// The client has stopped.
    Stopped {
        /// The reason.
        why: String,
    },
    /// An embedded cluster does not stop. Its thread is abandoned, and keeps the directory locked.
    NotStopped {
        /// Daemons that wait for their devices, with the pending call.
        hanging: Vec<(Entity, String)>,
        /// Duration of the wait.
        waited: Duration,
    },
    /// An operation on a file failed.
    File {
        /// The operation.
        doing: &'static str,
        /// Its path, or inode number.
        path: String,
        /// The error's number (Linux' numbers).
        errno: u16,
    },
    /// An answer does not match its request: a bug, or a daemon of another version.
    Unexpected(&'static str),
    /// Starting failed.
    Start(StartError),
}
impl Error {
    /// Of an operation that its client gave up or that the cluster refused, after `waited`.
    pub(crate) fn of(failure: Failure, waited: Duration) -> Self {
        match failure {
            Failure::Refused(why) => Self::Refused(why),
            Failure::Doubtful(why) => Self::Doubtful(why),
            Failure::NoSuchPool => Self::NoSuchPool {
                name: "(removed)".to_owned(),
            },
            Failure::Unknown => Self::TimedOut {
                waits_for: "nobody".to_owned(),
                waited,
            },
            Failure::Foreign { why, .. } => Self::Command(why),
        }
    }
    /// Of an operation that was not begun.
    pub(crate) fn refused(why: &Refused) -> Self {
        match why {
            Refused::NoSuchPool => Self::of(Failure::NoSuchPool, Duration::ZERO),
            Refused::Unsupported => Self::Watch(nacre_client::WatchError::Unsupported),
            Refused::Busy | Refused::NotConnected => Self::Unexpected("room for an operation"),
        }
    }
}
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => why.fmt(f),
            Self::Doubtful(why) => nacre_client::Failure::Doubtful(why.clone()).fmt(f),
            Self::NoSuchPool { name } => {
                write!(f, "there is no pool `{name}`; list the pools, or create it")
            }
            Self::TimedOut { waits_for, waited } => {
                write!(
                    f,
                    "timed out after {:.1} s: {}. A change may or may not have been applied",
                    waited.as_secs_f64(),
                    waits_for.trim_end_matches(['?', '.'])
                )
            }
            Self::Striped { object } => write!(
                f,
                "{object} is stored in stripes, since it is larger than one operation may carry: read it with `nacre object get`"
            ),
            Self::Watch(why) => why.fmt(f),
            Self::Command(why) => f.write_str(why),
            Self::Meta(why) => why.fmt(f),
            Self::TooLarge { length, max } => {
                write!(
                    f,
                    "{length} bytes are more than one operation may carry ({max}); write it in pieces"
                )
            }
            Self::Stopped { why } => write!(f, "this client has stopped: {why}"),
            Self::NotStopped { hanging, waited } => {
                write!(
                    f,
                    "the cluster did not stop within {:.1} s: ",
                    waited.as_secs_f64()
                )?;
                for (who, why) in hanging {
                    write!(f, "{who} waits for its disk ({why}), ")?;
                }
                if hanging.is_empty() {
                    f.write_str("its thread is busy, though no disk is known to hang, ")?;
                }
                f.write_str("and its directory stays in use until that ends, or this process does")
            }
            Self::File { doing, path, errno } => {
                write!(
                    f,
                    "cannot {doing} {path}: {}",
                    std::io::Error::from_raw_os_error((*errno).into())
                )
            }
            Self::Unexpected(what) => write!(
                f,
                "the answer is no {what}: is a daemon of another version?"
            ),
            Self::Start(why) => why.fmt(f),
        }
    }
}
impl std::error::Error for Error {}
impl From<StartError> for Error {
    fn from(why: StartError) -> Self {
        Self::Start(why)
    }
}

/// Why a cluster directory cannot be made or used, or a daemon does not start.
#[derive(Debug)]
pub enum StartError {
    /// The configuration is wrong.
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        why: String,
    },
    /// The operating system refused.
    Io {
        /// What was attempted.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The directory holds something else.
    Foreign {
        /// The directory.
        path: PathBuf,
        /// One of its contents.
        found: String,
    },
    /// The directory already holds a cluster.
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// In use by another process.
    Locked {
        /// The file or directory.
        path: PathBuf,
        /// The user, as far as is known.
        by: String,
    },
    /// The port is in use.
    PortInUse {
        /// The daemon that needs it.
        who: String,
        /// The address.
        address: String,
    },
    /// The address is not a loopback address.
    NotLoopback {
        /// The daemon with that address.
        who: String,
        /// The address.
        address: String,
    },
    /// The store belongs to another daemon, or to another cluster.
    WrongStore {
        /// The store.
        path: PathBuf,
        /// The expected owner.
        wanted: String,
        /// The owner found.
        found: String,
    },
    /// The store is in use.
    StoreInUse {
        /// The store.
        path: PathBuf,
    },
    /// Another command is changing `cluster.toml`.
    Changing {
        /// The directory.
        dir: PathBuf,
        /// The process that changes it.
        by: String,
    },
    /// The location of a new store is not empty.
    Occupied {
        /// The location.
        path: PathBuf,
        /// What occupies it.
        by: String,
    },
    /// The store does not open.
    Store {
        /// The store.
        path: PathBuf,
        /// The reason, and the recommended action.
        why: String,
    },
    /// The configuration names no such daemon.
    NoSuchDaemon {
        /// The daemon.
        who: String,
    },
    /// The daemon stopped by itself.
    Halted {
        /// The daemon.
        who: String,
        /// The reason.
        why: String,
    },
    /// No cluster runs in the directory.
    NotRunning {
        /// The directory.
        dir: PathBuf,
    },
    /// A daemon runs that this user may not stop, or that is not visible from here.
    NotOurs {
        /// The daemon.
        who: String,
        /// The directory.
        dir: PathBuf,
    },
    /// The cluster did not become ready in time.
    NotReady {
        /// What is missing.
        why: String,
    },
}
impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config { path, why } => write!(f, "{}: {why}", path.display()),
            Self::Io { doing, path, error } => {
                write!(f, "cannot {doing} {}: {error}", path.display())
            }
            Self::Foreign { path, found } => write!(
                f,
                "{} is not empty and holds no cluster (it has `{found}`); choose an empty folder",
                path.display()
            ),
            Self::Exists { path } => write!(f, "{} holds a cluster already", path.display()),
            Self::Locked { path, by } => {
                write!(
                    f,
                    "{} is in use by {by}; stop that first, or talk to it through its addresses",
                    path.display()
                )
            }
            Self::PortInUse { who, address } => write!(
                f,
                "{who} cannot listen on {address}: something else does. Stop that, or give {who} another port in cluster.toml"
            ),
            Self::NotLoopback { who, address } => write!(
                f,
                "{who} will not listen on {address}: there is no authentication yet, so only loopback addresses (127.0.0.1, [::1]) are allowed"
            ),
            Self::WrongStore {
                path,
                wanted,
                found,
            } => write!(
                f,
                "{} is the store of {found}, not of {wanted}: put the right one in its place, or correct `path` or `cluster` in cluster.toml; nothing was changed",
                path.display()
            ),
            Self::StoreInUse { path } => write!(
                f,
                "the store {} is in use by another process; stop its daemon first (`nacre down`)",
                path.display()
            ),
            Self::Changing { dir, by } => {
                write!(
                    f,
                    "{by} is changing the cluster.toml of {}: try again when it has ended",
                    dir.display()
                )
            }
            Self::Occupied { path, by } => write!(
                f,
                "{} is {by} and will not be overwritten; choose another path, or remove it if it may go",
                path.display()
            ),
            Self::Store { path, why } => {
                write!(f, "the store {} does not open: {why}", path.display())
            }
            Self::NoSuchDaemon { who } => write!(f, "cluster.toml names no {who}"),
            Self::Halted { who, why } => write!(f, "{who} stopped: {why}"),
            Self::NotRunning { dir } => {
                write!(f, "nothing runs in {}; `nacre up` starts it", dir.display())
            }
            Self::NotOurs { who, dir } => write!(
                f,
                "{who} runs in {} but cannot be stopped from here: stop it as the user, and in the container, that started it",
                dir.display()
            ),
            Self::NotReady { why } => write!(f, "the cluster is not ready: {why}"),
        }
    }
}
impl StartError {
    /// Whether it concerns only one daemon, without which the others of a cluster can continue.
    #[must_use]
    pub fn is_one_daemons(&self) -> bool {
        matches!(
            self,
            Self::Store { .. } | Self::Halted { .. } | Self::Io { .. }
        )
    }
}
impl std::error::Error for StartError {}

/// Recommended action when the host has no space for a store.
pub(crate) const HOST_FULL: &str =
    "the file system it lies on is full: free space there, then start it again. Nothing is lost";

/// A human-readable description of a device's failure, with the system's message.
pub(crate) fn explain(error: &nacre_store::DeviceError) -> String {
    match error {
        nacre_store::DeviceError::Os(code) if *code == rustix::io::Errno::NOSPC.raw_os_error() => {
            HOST_FULL.to_owned()
        }
        nacre_store::DeviceError::Os(code) => std::io::Error::from_raw_os_error(*code).to_string(),
        other => other.to_string(),
    }
}
