//! Which processes run in a cluster's directory: locks that end with their holder, and pid files
//! for users and tools.
//!
//! ```text
//!                          embedded        a daemon's process     `up --processes`
//!  run/cluster.lock        exclusive       shared
//!  run/osd.2.lock                          exclusive
//!  run/up.lock                                                    exclusive
//!  run/osd.2.pid           its process     its process
//!  run/changing            a command that changes cluster.toml
//! ```
//! The locks are the kernel's (`flock`): they end with the process, however it ends. A lock file's
//! text names its last holder, for messages only. Pid files are hints: after a crash they are
//! stale, and their numbers may belong to other processes.
//!
//! Invariant: a process that gets a signal holds a lock now *and* has that very lock file open
//! ([`holders`]); a process id that is only read from a file never gets a signal.

use crate::config::Config;
use crate::error::StartError;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::fs::{File, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

const CLUSTER: &str = "cluster.lock";
const KEEPER: &str = "up.lock";
/// Without the file name extension of locks: its holder runs no daemon, and `nacre down` ignores
/// it.
const CHANGING: &str = "changing";
const EMBEDDED: &str = "an embedded cluster";
/// [`holders`] takes each lock for a moment, to test it; a start that collides with that must not
/// fail.
const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// The right to run daemons of a directory; ends when dropped.
#[derive(Debug)]
pub struct Lock {
    // Dropped before the locks: as long as a pid file of ours exists, no other process writes it.
    pids: Pids,
    _files: Vec<File>,
}

/// The right to change a directory's `cluster.toml`; ends when dropped. A command reads the file,
/// asks the cluster, and writes it: two concurrent commands lost each other's change. (Found by
/// reading the code: `mon rm`, which waits for up to 30 s, reverted a concurrent `osd add`.)
#[derive(Debug)]
pub struct Changing {
    _file: File,
}

impl Changing {
    /// Waits for another holder, at most `max`.
    ///
    /// # Errors
    /// [`StartError::Changing`]; [`StartError::Io`].
    pub fn begin(dir: &Path, max: Duration) -> Result<Self, StartError> {
        let run = run_folder(dir);
        crate::creating::private_dir(&run).map_err(io("make", &run))?;
        let (path, begun) = (run.join(CHANGING), crate::clock::now());
        loop {
            match open_and_lock(&path, false) {
                Ok(mut file) => {
                    sign(&mut file, "a command");
                    return Ok(Self { _file: file });
                }
                Err(StartError::Locked { .. }) if crate::clock::now().since(begun) < max => {}
                Err(StartError::Locked { by, .. }) => {
                    return Err(StartError::Changing {
                        dir: dir.to_owned(),
                        by,
                    });
                }
                Err(other) => return Err(other),
            }
        }
    }
}

/// Pid files of this process's daemons; removed when dropped.
#[derive(Debug)]
struct Pids {
    run: PathBuf,
    written: Vec<PathBuf>,
}

impl Drop for Pids {
    fn drop(&mut self) {
        for path in &self.written {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StartError {
    let path = path.to_owned();
    move |error| StartError::Io { doing, path, error }
}

/// The directory of locks, pid files and logs.
#[must_use]
pub fn run_folder(dir: &Path) -> PathBuf {
    dir.join("run")
}

fn read_text(file: &mut File) -> String {
    let mut text = String::new();
    let _ = file.read_to_string(&mut text);
    text.trim().to_owned()
}

fn open_and_lock(path: &Path, shared: bool) -> Result<File, StartError> {
    let mut file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .map_err(io("open", path))?;
    for tried in 1.. {
        match if shared {
            file.try_lock_shared()
        } else {
            file.try_lock()
        } {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if tried < TRIES => std::thread::sleep(BETWEEN_TRIES),
            Err(TryLockError::WouldBlock) => {
                let by = read_text(&mut file);
                let by = if by.is_empty() {
                    "another process".to_owned()
                } else {
                    by
                };
                return Err(StartError::Locked {
                    path: path
                        .parent()
                        .and_then(Path::parent)
                        .unwrap_or(path)
                        .to_owned(),
                    by,
                });
            }
            Err(TryLockError::Error(error)) => return Err(io("lock", path)(error)),
        }
    }
    Ok(file)
}

fn sign(file: &mut File, who: &str) {
    // Only for messages of other processes, and as a hint where to look for the holder.
    let text = format!("{who} (process {})", std::process::id());
    let _ = file
        .set_len(0)
        .and_then(|()| file.write_all(text.as_bytes()));
}

impl Lock {
    fn new(config: &Config) -> Result<Self, StartError> {
        let run = run_folder(&config.dir);
        crate::creating::private_dir(&run).map_err(io("make", &run))?;
        crate::creating::forget_mark(&config.dir);
        Ok(Self {
            _files: Vec::new(),
            pids: Pids {
                run,
                written: Vec::new(),
            },
        })
    }

    fn take(&mut self, name: &str, shared: bool, who: &str) -> Result<(), StartError> {
        let mut file = open_and_lock(&self.pids.run.join(name), shared)?;
        sign(&mut file, who);
        self._files.push(file);
        Ok(())
    }

    /// For an embedded cluster: no other process runs a daemon of this directory.
    ///
    /// # Errors
    /// [`StartError::Locked`].
    pub fn whole(config: &Config) -> Result<Self, StartError> {
        let mut lock = Self::new(config)?;
        lock.take(CLUSTER, false, EMBEDDED)?;
        sweep(&config.dir);
        Ok(lock)
    }

    /// For one daemon's process.
    ///
    /// # Errors
    /// [`StartError::Locked`].
    pub fn daemon(config: &Config, who: &str) -> Result<Self, StartError> {
        let mut lock = Self::new(config)?;
        // Several processes share this one; its text names the last of them.
        lock.take(CLUSTER, true, who)?;
        lock.take(&format!("{who}.lock"), false, who)?;
        lock.add_pid(who)?;
        Ok(lock)
    }

    /// For the process that starts all daemons as separate processes.
    ///
    /// # Errors
    /// [`StartError::Locked`]: there is such a process already, or some daemon runs.
    pub fn keeper(config: &Config) -> Result<Self, StartError> {
        let mut lock = Self::new(config)?;
        lock.take(KEEPER, false, "`nacre up --processes`")?;
        // Not kept: it is shared by the daemons.
        drop(open_and_lock(&lock.pids.run.join(CLUSTER), false)?);
        sweep(&config.dir);
        Ok(lock)
    }

    /// Records that a daemon runs in this process.
    ///
    /// # Errors
    /// The operating system's.
    pub fn add_pid(&mut self, who: &str) -> Result<(), StartError> {
        let path = self.pids.run.join(format!("{who}.pid"));
        // A hint: on a full disk daemons start without it, so that files can be deleted.
        match std::fs::write(&path, format!("{}\n", std::process::id())) {
            Err(error) if error.kind() != std::io::ErrorKind::StorageFull => {
                return Err(io("write", &path)(error));
            }
            _ => {}
        }
        self.pids.written.push(path);
        Ok(())
    }

    /// Records that a daemon no longer runs here.
    pub fn remove_pid(&mut self, who: &str) {
        let path = self.pids.run.join(format!("{who}.pid"));
        self.pids.written.retain(|written| *written != path);
        let _ = std::fs::remove_file(path);
    }
}

/// Whether no daemon runs of a cluster whose directory is here: no lock is held, and nothing
/// listens at its monitors' addresses. For a cluster of another machine, or one whose directory is
/// elsewhere, this cannot be determined: false.
#[must_use]
pub fn nothing_runs(config: &Config) -> bool {
    let is_here = config.mons.values().all(|entry| entry.path.exists());
    let silent = |address: &str| {
        let address = crate::net::parse(address).filter(|address| address.ip().is_loopback());
        address.is_none_or(|address| {
            std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200))
                .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
        })
    };
    is_here
        && holders(&config.dir).is_ok_and(|holders| holders.is_empty())
        && config.mons.values().all(|entry| silent(&entry.address))
}

/// Role of a process in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Runs all daemons.
    Embedded,
    /// Has started the daemons' processes and watches them.
    Keeper,
    /// Runs one daemon: `osd.2`.
    Daemon(String),
}
impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Embedded => f.write_str(EMBEDDED),
            Self::Keeper => f.write_str("`nacre up --processes`"),
            Self::Daemon(who) => f.write_str(who),
        }
    }
}

/// A process that runs a part of a directory's cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its role.
    pub part: Part,
    /// Its process id; `None` if it cannot be found, since the process is another user's or in
    /// another container.
    pub pid: Option<u32>,
}

/// The processes that run daemons of a directory now: monitors last, the order in which to stop
/// them.
///
/// # Errors
/// [`StartError`]: the directory cannot be read.
pub fn holders(dir: &Path) -> Result<Vec<Holder>, StartError> {
    let run = run_folder(dir);
    let mut found = Vec::new();
    for path in files(&run, "lock")? {
        let name = path
            .file_stem()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let mut file = match File::options().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(io("open", &path)(error)),
        };
        // Shared: a concurrent check is no holder. Holders' locks exclude this one, except the lock
        // that daemons share; daemons hold others as well.
        match file.try_lock_shared() {
            Ok(()) => continue,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(io("look at the lock", &path)(error)),
        }
        let text = read_text(&mut file);
        let part = match name.as_str() {
            "cluster" if text.starts_with(EMBEDDED) => Part::Embedded,
            // Held for a moment by a starting process.
            "cluster" => continue,
            "up" => Part::Keeper,
            _ => Part::Daemon(name),
        };
        found.push(Holder {
            part,
            pid: holder_of(&file, &text),
        });
    }
    found.sort_by_key(|holder| {
        (
            matches!(&holder.part, Part::Daemon(who) if who.starts_with("mon.")),
            holder.part.clone(),
        )
    });
    Ok(found)
}

/// The directory's files with this extension.
pub(crate) fn files(run: &Path, ending: &str) -> Result<Vec<PathBuf>, StartError> {
    let entries = match std::fs::read_dir(run) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io("read", run)(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(io("read", run))?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|found| found == ending));
    paths.sort();
    Ok(paths)
}

/// The process, other than this one unless the text names it, that has this file open; `text`,
/// which may end with `(process N)`, is a hint.
#[must_use]
pub fn holder_of(file: &File, text: &str) -> Option<u32> {
    let hint: Option<u32> = text
        .rsplit_once("(process ")
        .and_then(|(_, rest)| rest.trim_end_matches(')').parse().ok());
    let me = std::process::id();
    if hint == Some(me) {
        return hint;
    }
    let lock = identity(file, c"", AtFlags::EMPTY_PATH)?;
    let has_open = |pid: u32| {
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        let mut found = entries.filter_map(|entry| identity(CWD, entry.path(), AtFlags::empty()));
        found.any(|open| open == lock)
    };
    if let Some(pid) = hint.filter(|pid| has_open(*pid)) {
        return Some(pid);
    }
    let all = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid| *pid != me && has_open(*pid))
}

/// Identity of an open file, from the kernel alone: the file system is not asked. A mount whose
/// process or server does not answer would block the caller for ever, and other processes' open
/// files may be anywhere.
fn identity(
    dir: impl AsFd,
    path: impl rustix::path::Arg,
    flags: AtFlags,
) -> Option<(u32, u32, u64)> {
    let found = statx(dir, path, flags | AtFlags::STATX_DONT_SYNC, StatxFlags::INO).ok()?;
    Some((found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
}

/// Stale pid files: their daemons do not run, after a crash.
///
/// # Errors
/// As [`holders`].
pub fn stale_pids(dir: &Path) -> Result<Vec<PathBuf>, StartError> {
    let holders = holders(dir)?;
    if holders.iter().any(|holder| holder.part == Part::Embedded) {
        return Ok(Vec::new());
    }
    let runs = |path: &Path| {
        let who = path
            .file_stem()
            .map(|who| who.to_string_lossy().into_owned());
        holders.iter().any(
            |holder| matches!((&holder.part, &who), (Part::Daemon(part), Some(who)) if part == who),
        )
    };
    Ok(files(&run_folder(dir), "pid")?
        .into_iter()
        .filter(|path| !runs(path))
        .collect())
}

/// Removes stale pid files.
fn sweep(dir: &Path) {
    // They only mislead users: no code relies on them.
    for path in files(&run_folder(dir), "pid").unwrap_or_default() {
        let _ = std::fs::remove_file(path);
    }
}

/// Removes stale files. Returns their number.
///
/// # Errors
/// As [`holders`].
pub fn clear_stale(dir: &Path) -> Result<usize, StartError> {
    let stale = stale_pids(dir)?;
    for path in &stale {
        let _ = std::fs::remove_file(path);
    }
    Ok(stale.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands exclude each other, and none counts as a daemon.
    #[test]
    fn one_command_at_a_time_changes_the_file() {
        let dir = std::env::temp_dir().join(format!("nacre-changing-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        let first = Changing::begin(&dir, Duration::ZERO).expect("nobody has it");
        let second = Changing::begin(&dir, Duration::from_millis(200)).expect_err("it is taken");
        assert!(
            second.to_string().contains("a command (process"),
            "{second}"
        );
        assert_eq!(holders(&dir).expect("readable"), [], "no daemon runs");
        drop(first);
        Changing::begin(&dir, Duration::ZERO).expect("it has ended");
        std::fs::remove_dir_all(dir).expect("ours");
    }
    use crate::directory::{InitOptions, init};

    fn folder(name: &str) -> (PathBuf, Config) {
        let dir = std::env::temp_dir().join(format!("nacre-locks-{}-{name}", std::process::id()));
        let options = InitOptions {
            osds: 1,
            base_port: None,
            osd_bytes: 32 << 20,
            mon_bytes: 128 << 20,
            ..Default::default()
        };
        let config = init(&dir, &options).expect("an empty folder");
        (dir, config)
    }

    /// Each check took every lock for a moment, as its holder does: two concurrent checks saw each
    /// other as running daemons.
    #[test]
    fn who_looks_is_no_holder() {
        let (dir, config) = folder("looks");
        drop(Lock::daemon(&config, "osd.0").expect("free"));
        let look = || (0..2000).all(|_| holders(&dir).expect("readable").is_empty());
        let alone = std::thread::scope(|scope| {
            let other = scope.spawn(look);
            [look(), other.join().expect("it ends")]
        });
        assert_eq!(alone, [true, true]);
        std::fs::remove_dir_all(dir).expect("ours");
    }

    // Failed when `holders` believed the text of a lock that is not held.
    #[test]
    fn only_living_locks_count_and_stale_pid_files_are_known_as_such() {
        let (dir, config) = folder("living");
        assert_eq!(holders(&dir).expect("readable"), []);
        let mut whole = Lock::whole(&config).expect("free");
        whole.add_pid("osd.0").expect("writable");
        let me = Some(std::process::id());
        assert_eq!(
            holders(&dir).expect("readable"),
            [Holder {
                part: Part::Embedded,
                pid: me
            }]
        );
        assert!(stale_pids(&dir).expect("readable").is_empty());
        drop(whole);
        assert_eq!(
            holders(&dir).expect("readable"),
            [],
            "the text is still there, the lock is not"
        );
        assert!(!dir.join("run/osd.0.pid").exists());

        // As left by a killed process: process 1 certainly runs, and certainly is not ours.
        std::fs::write(dir.join("run/osd.0.pid"), "1\n").expect("writable");
        std::fs::write(dir.join("run/osd.0.lock"), "osd.0 (process 1)").expect("writable");
        assert_eq!(holders(&dir).expect("readable"), []);
        assert_eq!(
            stale_pids(&dir).expect("readable"),
            [dir.join("run/osd.0.pid")]
        );

        let daemon = Lock::daemon(&config, "osd.0").expect("free");
        let mon = Lock::daemon(&config, "mon.0").expect("shared");
        let parts: Vec<String> = holders(&dir)
            .expect("readable")
            .into_iter()
            .map(|holder| holder.part.to_string())
            .collect();
        assert_eq!(parts, ["osd.0", "mon.0"], "monitors last");
        assert!(matches!(
            Lock::whole(&config),
            Err(StartError::Locked { .. })
        ));
        assert!(matches!(
            Lock::keeper(&config),
            Err(StartError::Locked { .. })
        ));
        assert!(
            matches!(Lock::daemon(&config, "osd.0"), Err(StartError::Locked { by, .. }) if by.contains("osd.0"))
        );
        drop((daemon, mon));
        let keeper = Lock::keeper(&config).expect("free");
        assert!(matches!(
            Lock::keeper(&config),
            Err(StartError::Locked { .. })
        ));
        drop(Lock::daemon(&config, "osd.0").expect("the keeper leaves the daemons' lock to them"));
        drop(keeper);
        std::fs::remove_dir_all(dir).expect("ours");
    }
}
