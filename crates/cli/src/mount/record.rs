//! The mounts of a cluster: one file each in its `run`, locked by the process that serves the
//! mount.
//!
//! ```text
//!  mounted ─▶ PID.mount, locked ──unmounted, all durable──▶ removed
//!                  │   └─────────unmounted, not all durable─▶ `unsafe: why` is added, unlocked
//!                  └──────killed──▶ unlocked
//! ```
//! The lock is the kernel's and ends with the process. The file is one line, with words of the
//! kernel's table of mounts: `DIR FILE-SYSTEM DEVICE up|mount (process PID)`; `up` marks mounts of
//! `nacre up --mount`, which `nacre down` unmounts.

use anyhow::{Context, Result};
use nacre_gateway::table::{self, MountEntry};
use nacre_node::locks;
use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

const ENDING: &str = "mount";
const UNSAFE: &str = "unsafe: ";
/// A check takes each lock for a moment; a starting mount must not fail for that.
const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// The recorded properties of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its directory, absolute and without symbolic links.
    pub dir: PathBuf,
    /// The file system's name.
    pub fs: String,
    /// Its device number in the table of mounts.
    pub device: String,
    /// Whether `nacre up --mount` mounted it.
    pub by_up: bool,
}

impl Record {
    /// Its entry in the table of mounts: `None` if it was unmounted, or something else is there.
    #[must_use]
    pub fn entry(&self) -> Option<MountEntry> {
        table::mount_at(&self.dir).filter(|entry| entry.device == self.device)
    }

    fn text(&self, pid: u32) -> String {
        let by = if self.by_up { "up" } else { "mount" };
        let (dir, fs) = (
            table::escape(self.dir.as_os_str().as_bytes()),
            table::escape(self.fs.as_bytes()),
        );
        format!("{dir} {fs} {} {by} (process {pid})", self.device)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.lines().next()?.split(' ');
        let dir = PathBuf::from(OsString::from_vec(table::unescape(
            words.next()?.as_bytes(),
        )));
        let fs = String::from_utf8(table::unescape(words.next()?.as_bytes())).ok()?;
        let device = words.next()?.to_owned();
        let by_up = match words.next()? {
            "up" => true,
            "mount" => false,
            _ => return None,
        };
        dir.is_absolute().then_some(Self {
            dir,
            fs,
            device,
            by_up,
        })
    }
}

/// The file of a mount that this process serves.
pub struct Kept {
    path: PathBuf,
    file: File,
}

impl Kept {
    /// Writes it.
    ///
    /// # Errors
    /// The operating system's.
    pub fn begin(run: &Path, record: &Record) -> Result<Self> {
        let pid = std::process::id();
        let path = run.join(format!("{pid}.{ENDING}"));
        let doing = || format!("writing {}", path.display());
        // An existing file is from a killed process that had this number.
        let mut file = File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .open(&path)
            .with_context(doing)?;
        for tried in 1.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if tried < TRIES => std::thread::sleep(BETWEEN_TRIES),
                Err(why) => return Err(std::io::Error::from(why)).with_context(doing),
            }
        }
        file.write_all(record.text(pid).as_bytes())
            .with_context(doing)?;
        Ok(Self { path, file })
    }

    /// It is unmounted; `fault`: why not all changes are durable.
    pub fn end(mut self, fault: Option<&str>) {
        // A command that waits for this process's end sees that the file is gone, or the reason.
        let _ = match fault {
            None => std::fs::remove_file(&self.path),
            Some(why) => write!(self.file, "\n{UNSAFE}{}", why.replace('\n', " ")),
        };
    }
}

/// State of a recorded mount's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// It serves the mount. `None`: its process id is unknown.
    Runs(Option<u32>),
    /// It was killed.
    Killed,
    /// It unmounted the file system, and not all changes are durable.
    Unsafe(String),
}

/// A mount's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its contents.
    pub record: Record,
    /// Its process.
    pub server: Server,
    path: PathBuf,
}

impl Found {
    /// Whether its process runs.
    #[must_use]
    pub fn runs(&self) -> bool {
        matches!(self.server, Server::Runs(_))
    }
    /// Its process, for messages.
    #[must_use]
    pub fn process(&self) -> String {
        match self.server {
            Server::Runs(Some(pid)) => format!(" (process {pid})"),
            _ => String::new(),
        }
    }
    /// Its current state; `None`: it has ended well.
    ///
    /// # Errors
    /// As [`all`].
    pub fn again(&self) -> Result<Option<Self>> {
        look(&self.path)
    }
    /// Removes the file of a process that has ended.
    pub fn forget(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// All mounts recorded in a cluster's `run`.
///
/// # Errors
/// It cannot be read.
pub fn all(run: &Path) -> Result<Vec<Found>> {
    let entries = match std::fs::read_dir(run) {
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("reading {}", run.display()))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry
            .with_context(|| format!("reading {}", run.display()))?
            .path();
        if path.extension().is_some_and(|ending| ending == ENDING) {
            found.extend(look(&path)?);
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn look(path: &Path) -> Result<Option<Found>> {
    let doing = || format!("reading {}", path.display());
    let mut file = match File::options().read(true).open(path) {
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.with_context(doing)?,
    };
    let locked = match file.try_lock_shared() {
        Ok(()) => false,
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(why)) => return Err(why).with_context(doing),
    };
    // After locking: an ending process writes first.
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(doing)?;
    // One that is just being written, or that a power cut left.
    let Some(record) = Record::parse(&text) else {
        return Ok(None);
    };
    let fault = text.lines().find_map(|line| line.strip_prefix(UNSAFE));
    let server = match (locked, fault) {
        (true, _) => Server::Runs(locks::holder_of(
            &file,
            text.lines().next().unwrap_or_default(),
        )),
        (false, Some(why)) => Server::Unsafe(why.to_owned()),
        // Removed since it was opened: it has ended well.
        (false, None) if !path.exists() => return Ok(None),
        (false, None) => Server::Killed,
    };
    Ok(Some(Found {
        record,
        server,
        path: path.to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(dir: &str) -> Record {
        Record {
            dir: dir.into(),
            fs: "home".to_owned(),
            device: "0:54".to_owned(),
            by_up: true,
        }
    }

    #[test]
    fn a_record_is_a_line_that_comes_back() {
        let record = record("/mnt/my files\n(process 1)");
        let text = record.text(7);
        assert_eq!(
            text,
            r"/mnt/my\040files\012(process\0401) home 0:54 up (process 7)"
        );
        assert_eq!(Record::parse(&text), Some(record.clone()));
        assert_eq!(Record::parse(&format!("{text}\nunsafe: why")), Some(record));
        for text in [
            "",
            "/mnt home 0:54",
            "/mnt home 0:54 down (process 7)",
            "mnt home 0:54 up (process 7)",
        ] {
            assert_eq!(Record::parse(text), None, "{text:?}");
        }
    }

    /// Each way in which a process ends is recognised.
    #[test]
    fn a_mount_runs_was_killed_ended_well_or_lost_something() {
        let run = std::env::temp_dir().join(format!("nacre-records-{}", std::process::id()));
        std::fs::create_dir_all(&run).expect("a folder");
        assert_eq!(all(&run).expect("readable"), []);
        let kept = Kept::begin(&run, &record("/mnt/a")).expect("writable");
        let [found] = &all(&run).expect("readable")[..] else {
            panic!("one")
        };
        assert_eq!(found.record, record("/mnt/a"));
        assert_eq!(found.server, Server::Runs(Some(std::process::id())));
        assert_eq!(found.record.entry(), None, "the kernel knows nothing of it");
        kept.end(None);
        assert_eq!(found.again().expect("readable"), None);

        Kept::begin(&run, &record("/mnt/b"))
            .expect("writable")
            .end(Some("no answer\nfrom mon.0"));
        let [found] = &all(&run).expect("readable")[..] else {
            panic!("one")
        };
        assert_eq!(
            found.server,
            Server::Unsafe("no answer from mon.0".to_owned())
        );

        // As left by a kill: the same file, unlocked.
        drop(Kept::begin(&run, &record("/mnt/c")).expect("writable"));
        let [found] = &all(&run).expect("readable")[..] else {
            panic!("one")
        };
        assert_eq!((&found.server, found.runs()), (&Server::Killed, false));
        found.forget();
        assert_eq!(all(&run).expect("readable"), []);
        std::fs::remove_dir_all(&run).expect("ours");
        assert_eq!(all(&run).expect("no folder is none"), []);
    }
}
