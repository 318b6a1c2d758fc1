//! Creating a cluster's directory: complete at the end, or nothing.
//!
//! ```text
//!   DIR/creating ─▶ stores ─▶ run/first-pool ─▶ cluster.toml ─▶ creating is removed
//!        │            killed here: the next attempt begins again          │ killed here: complete
//!        └─ locked while its process runs: two never make one cluster; the second waits for the first
//! ```
//! The mark is removed while it is locked. A process that waited for the lock then holds a file
//! without a path, and must start over with the file at the path: its lock excludes no other
//! process.
//!
//! Only the creation's own files are ever removed: `mon.N` and `osd.N` with a store in them, and
//! nothing beside them. The mark alone does not prove that the contents belong to a creation: it
//! may have outlived one. Where `cluster.toml` exists, or a daemon has ever run, nothing is
//! removed.

use crate::config::FILE_NAME;
use crate::error::StartError;
use crate::locks;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::Write as _;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

const MARK: &str = "creating";
const FIRST_POOL: &str = "first-pool";
const STORE_FILES: [&str; 2] = ["store", "store.reserve"];

/// How long a creation waits for another one in the same directory.
const OTHERS_MAX: Duration = Duration::from_secs(60);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(5);

/// Result of an attempt to begin.
enum Attempt {
    Begun(Creating),
    /// Another process is creating a cluster here.
    Busy,
    /// Another process's creation has ended meanwhile.
    Again,
}

/// See the module head. Dropped without [`Self::finish`], it removes what was created.
#[derive(Debug)]
pub struct Creating {
    dir: PathBuf,
    /// Whether the directory itself was created.
    made: bool,
    finished: bool,
    _lock: File,
}

fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StartError {
    let path = path.to_owned();
    move |error| StartError::Io { doing, path, error }
}

/// Makes a directory and its parents, accessible to the owner only.
pub(crate) fn private_dir(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn is_ours(name: &str) -> bool {
    let number = name
        .strip_prefix("mon.")
        .or_else(|| name.strip_prefix("osd."));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Whether the directory holds a complete cluster. An error does not mean "no": stores are removed
/// where there is no cluster.
pub(crate) fn is_complete(dir: &Path) -> Result<bool, StartError> {
    let file = dir.join(FILE_NAME);
    match file.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(io("look for", &file)(error)),
    }
}

/// Durably removes a mark that has outlived its creation.
pub(crate) fn forget_mark(dir: &Path) {
    if matches!(is_complete(dir), Ok(true)) && std::fs::remove_file(dir.join(MARK)).is_ok() {
        let _ = File::open(dir).and_then(|dir| dir.sync_all());
    }
}

/// The first entry in a directory that no creation makes.
fn foreign(dir: &Path) -> Result<Option<String>, StartError> {
    for entry in std::fs::read_dir(dir).map_err(io("read", dir))? {
        let entry = entry.map_err(io("read", dir))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let inside: &[&str] = match name.as_str() {
            MARK | "cluster.new" => continue,
            "run" => &[FIRST_POOL],
            ours if is_ours(ours) => &STORE_FILES,
            _ => return Ok(Some(name)),
        };
        let path = entry.path();
        // Do not follow links: no creation makes one.
        if !entry.file_type().map_err(io("look at", &path))?.is_dir() {
            return Ok(Some(name));
        }
        for inner in std::fs::read_dir(&path).map_err(io("read", &path))? {
            let inner = inner
                .map_err(io("read", &path))?
                .file_name()
                .to_string_lossy()
                .into_owned();
            if !inside.contains(&inner.as_str()) {
                return Ok(Some(format!("{name}/{inner}")));
            }
        }
    }
    Ok(None)
}

fn first_in(dir: &Path) -> Result<Option<String>, StartError> {
    let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io("read", dir)(error)),
    };
    entries
        .map(|entry| entry.map(name).map_err(io("read", dir)))
        .next()
        .transpose()
}

/// Whether an entry found a moment ago belongs to a concurrent creation: it has disappeared, or is
/// the next creation's mark.
fn is_passing(dir: &Path, found: &str) -> bool {
    dir.join(found)
        .symlink_metadata()
        .map_or(true, |meta| found == MARK && meta.is_file())
}

/// Whether a directory could not be made because of a concurrent creation's directory, which may
/// have disappeared by now. A file that is not a directory remains an error.
fn is_passing_dir(dir: &Path, error: &std::io::Error) -> bool {
    let gone = |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    error.kind() == std::io::ErrorKind::AlreadyExists
        && dir
            .symlink_metadata()
            .map_or_else(gone, |meta| meta.is_dir())
}

/// Locks a mark that was opened at this path; `None`: this process owns the creation.
fn lock_mark(opened: &File, mark: &Path) -> Result<Option<Attempt>, StartError> {
    match opened.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Some(Attempt::Busy)),
        Err(TryLockError::Error(error)) => return Err(io("lock", mark)(error)),
    }
    let number = |found: std::fs::Metadata| (found.dev(), found.ino());
    let (ours, there) = (opened.metadata().map(number), mark.metadata().map(number));
    let is_there = matches!((ours, there), (Ok(ours), Ok(there)) if ours == there);
    Ok((!is_there).then_some(Attempt::Again))
}

/// Removes a creation's files from a directory that is not a cluster yet.
fn take_back(dir: &Path) {
    if !matches!(is_complete(dir), Ok(false)) {
        return;
    }
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_ours(&name) {
            for file in STORE_FILES {
                let _ = std::fs::remove_file(entry.path().join(file));
            }
            let _ = std::fs::remove_dir(entry.path());
        }
    }
    let run = dir.join("run");
    let _ = std::fs::remove_file(run.join(FIRST_POOL));
    let _ = std::fs::remove_dir(run);
    let _ = std::fs::remove_file(dir.join("cluster.new"));
}

/// Refuses a directory whose contents are not an unfinished creation's. Call it under the lock:
/// another process may have finished its creation just before.
fn must_be_unfinished(dir: &Path) -> Result<(), StartError> {
    if is_complete(dir)? {
        forget_mark(dir);
        return Err(StartError::Exists {
            path: dir.to_owned(),
        });
    }
    // A creation makes no lock files.
    if let Some(lock) = locks::files(&locks::run_folder(dir), "lock")?.first() {
        let why = format!(
            "it is missing, but a cluster has run here ({} says so): bring it back from a copy. Nothing was changed",
            lock.display()
        );
        return Err(StartError::Config {
            path: dir.join(FILE_NAME),
            why,
        });
    }
    match foreign(dir)? {
        Some(found) => Err(StartError::Foreign {
            path: dir.to_owned(),
            found,
        }),
        None => Ok(()),
    }
}

impl Creating {
    /// Begins in a directory that is empty, missing, or left by an unfinished creation. Waits while
    /// another process makes a cluster there.
    ///
    /// # Errors
    /// [`StartError`]: it holds something else, which may be the cluster that another process has
    /// just made, or cannot be written.
    pub fn begin(dir: &Path) -> Result<Self, StartError> {
        Self::begin_within(dir, OTHERS_MAX)
    }

    fn begin_within(dir: &Path, max: Duration) -> Result<Self, StartError> {
        let begun = crate::clock::now();
        loop {
            match Self::attempt(dir)? {
                Attempt::Begun(creating) => return Ok(creating),
                Attempt::Again => {}
                Attempt::Busy => std::thread::sleep(BETWEEN_ATTEMPTS),
            }
            let waited = crate::clock::now().since(begun);
            if waited >= max {
                let by = format!(
                    "another process, which has been making a cluster there for {} s",
                    waited.as_secs()
                );
                return Err(StartError::Locked {
                    path: dir.to_owned(),
                    by,
                });
            }
        }
    }

    fn attempt(dir: &Path) -> Result<Attempt, StartError> {
        let made = !dir.exists();
        match private_dir(dir) {
            Err(error) if is_passing_dir(dir, &error) => return Ok(Attempt::Again),
            made => made.map_err(io("make", dir))?,
        }
        let mark = dir.join(MARK);
        if let Some(found) = first_in(dir)? {
            // Check for the mark after the listing: a creation makes it first, and removes it last.
            if !mark.is_file() && !is_complete(dir)? {
                if is_passing(dir, &found) {
                    return Ok(Attempt::Again);
                }
                return Err(StartError::Foreign {
                    path: dir.to_owned(),
                    found,
                });
            }
        }
        let mut options = File::options();
        options.write(true).mode(0o600);
        let (opened, resumed) = match options.clone().create_new(true).open(&mark) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                (options.open(&mark), true)
            }
            made => (made, false),
        };
        let mut lock = match opened {
            Ok(lock) => lock,
            // A failed creation has removed its mark, or the directory.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Attempt::Again);
            }
            Err(error) => return Err(io("make", &mark)(error)),
        };
        if let Some(other) = lock_mark(&lock, &mark)? {
            return Ok(other);
        }
        must_be_unfinished(dir)?;
        let text = "A cluster is being made here. If no process does so any more, `nacre up` begins again.\n";
        let _ = lock.write_all(text.as_bytes());
        // The following steps are undone if one fails.
        let creating = Self {
            dir: dir.to_owned(),
            made,
            finished: false,
            _lock: lock,
        };
        // Files of a killed creation, perhaps one since the directory was seen to be empty.
        if resumed {
            take_back(dir);
        }
        // The directory may have been made by the user before.
        let _ = std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700));
        Ok(Attempt::Begun(creating))
    }

    /// Notes that the cluster's first pool, of `size` replicas, is still to be created.
    ///
    /// # Errors
    /// The operating system's.
    pub fn note_first_pool(&self, size: u32) -> Result<(), StartError> {
        let path = first_pool_file(&self.dir);
        let run = path.parent().expect("it is in `run`");
        private_dir(run).map_err(io("make", run))?;
        std::fs::write(&path, format!("{size}\n")).map_err(io("write", &path))
    }

    /// Marks the cluster as complete.
    pub fn finish(mut self) {
        self.finished = true;
        forget_mark(&self.dir);
    }
}

impl Drop for Creating {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        take_back(&self.dir);
        let _ = std::fs::remove_file(self.dir.join(MARK));
        if self.made {
            let _ = std::fs::remove_dir(&self.dir);
        }
    }
}

fn first_pool_file(dir: &Path) -> PathBuf {
    dir.join("run").join(FIRST_POOL)
}

/// Number of replicas of the cluster's first pool, if it is still to be created.
#[must_use]
pub fn first_pool(dir: &Path) -> Option<u32> {
    std::fs::read_to_string(first_pool_file(dir))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Notes that the first pool exists.
pub fn has_first_pool(dir: &Path) {
    let _ = std::fs::remove_file(first_pool_file(dir));
}

/// Restricts the permissions of a cluster's directory to its owner: stores hold the data of all
/// users. Returns what was changed, human-readable.
#[must_use]
pub fn tighten(config: &crate::config::Config) -> Vec<String> {
    let mut all: Vec<(PathBuf, u32)> = vec![
        (config.dir.clone(), 0o700),
        (config.dir.join("run"), 0o700),
        (config.dir.join(crate::config::FILE_NAME), 0o600),
    ];
    let stores = config
        .mons
        .values()
        .map(|entry| &entry.path)
        .chain(config.osds.values().map(|entry| &entry.path));
    for store in stores.filter(|path| path.is_file()) {
        all.push((store.clone(), 0o600));
        // Other directories belong to the operator.
        all.extend(
            store
                .parent()
                .filter(|dir| dir.starts_with(&config.dir))
                .map(|dir| (dir.to_owned(), 0o700)),
        );
    }
    let mut changed = Vec::new();
    for (path, mode) in all {
        let Ok(meta) = path.metadata() else { continue };
        let was = meta.permissions().mode() & 0o777;
        if was & 0o077 != 0
            && std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).is_ok()
        {
            changed.push(format!(
                "{} was open to others (mode {was:03o}); its mode is {mode:03o} now",
                path.display()
            ));
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::directory::{InitOptions, init};
    use crate::locks::Lock;

    fn dir(name: &str) -> PathBuf {
        let dir =
            std::env::temp_dir().join(format!("nacre-creating-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        dir
    }
    fn small() -> InitOptions {
        InitOptions {
            osds: 1,
            base_port: None,
            osd_bytes: 32 << 20,
            mon_bytes: 128 << 20,
            ..InitOptions::default()
        }
    }
    fn mode(path: &Path) -> u32 {
        path.metadata().expect("it is there").permissions().mode() & 0o777
    }

    /// F27: killed while it created a cluster, `up` refused the directory ever after. Here the
    /// process stops at each step that leaves files.
    #[test]
    fn a_creation_that_was_killed_is_begun_again() {
        for step in 0..4 {
            let dir = dir(&format!("killed-{step}"));
            private_dir(&dir).expect("made");
            std::fs::write(dir.join(MARK), "").expect("written");
            if step > 0 {
                private_dir(&dir.join("osd.0")).expect("made");
                std::fs::write(dir.join("osd.0/store"), "half a store").expect("written");
            }
            if step > 1 {
                private_dir(&dir.join("run")).expect("made");
                std::fs::write(first_pool_file(&dir), "3").expect("written");
            }
            if step > 2 {
                std::fs::write(dir.join("cluster.new"), "half").expect("written");
            }
            let config = init(
                &dir,
                &InitOptions {
                    first_pool: Some(2),
                    ..small()
                },
            )
            .expect("begins again");
            assert_eq!(config.osds.len(), 1);
            assert!(!dir.join(MARK).exists() && first_pool(&dir) == Some(2));
            Config::load(&dir).expect("complete");
            std::fs::remove_dir_all(dir).expect("ours");
        }
    }

    #[test]
    fn what_is_not_a_creations_is_never_removed() {
        let dir = dir("foreign");
        private_dir(&dir.join("osd.0")).expect("made");
        std::fs::write(dir.join(MARK), "").expect("written");
        std::fs::write(dir.join("osd.0/thesis"), "x").expect("written");
        assert!(matches!(
            init(&dir, &small()),
            Err(StartError::Foreign { .. })
        ));
        assert!(dir.join("osd.0/thesis").exists());
        std::fs::remove_dir_all(dir).expect("ours");
    }

    /// A mark outlived its creation (a power cut before its removal was durable); later
    /// `cluster.toml` was moved aside: `up` took the cluster for an unfinished one, and removed its
    /// stores. The same happened when another process had completed the cluster just before.
    #[test]
    fn a_mark_that_was_left_costs_no_cluster_its_stores() {
        for (name, file_is) in [("there", 0), ("away", 1), ("nowhere", 2)] {
            let dir = dir(&format!("left-{name}"));
            let config = init(&dir, &small()).expect("made");
            drop(Lock::daemon(&config, "osd.0").expect("free"));
            std::fs::write(dir.join(MARK), "").expect("written");
            if file_is > 0 {
                std::fs::rename(dir.join(FILE_NAME), dir.with_extension("away")).expect("moved");
            }
            if file_is > 1 {
                std::os::unix::fs::symlink("nowhere/cluster.toml", dir.join(FILE_NAME))
                    .expect("a link");
            }
            // Test this directly, not through `init`: another process may complete the cluster
            // after the check in `init`.
            let refused = Creating::begin(&dir)
                .map(drop)
                .expect_err("a cluster is here")
                .to_string();
            assert!(
                refused.contains(if file_is == 1 {
                    "bring it back"
                } else {
                    "holds a cluster already"
                }),
                "{refused}"
            );
            assert!(init(&dir, &small()).is_err());
            assert!(
                dir.join("osd.0/store").exists() && dir.join("mon.0/store").exists(),
                "{name}"
            );
            let _ = std::fs::remove_file(dir.with_extension("away"));
            std::fs::remove_dir_all(dir).expect("ours");
        }
    }

    /// All of the above begins with a stale mark: a starting cluster removes it.
    #[test]
    fn a_mark_that_was_left_goes_when_the_cluster_starts() {
        let dir = dir("stale");
        let config = init(&dir, &small()).expect("made");
        std::fs::write(dir.join(MARK), "").expect("written");
        drop(Lock::daemon(&config, "osd.0").expect("free"));
        assert!(!dir.join(MARK).exists());
        std::fs::remove_dir_all(dir).expect("ours");
    }

    /// The directory was checked for foreign files only after the stores in it had been removed.
    #[test]
    fn where_something_else_lies_nothing_is_removed() {
        let dir = dir("beside");
        drop(init(&dir, &small()).expect("made"));
        std::fs::remove_file(dir.join(FILE_NAME)).expect("ours");
        std::fs::write(dir.join(MARK), "").expect("written");
        std::fs::write(dir.join("thesis"), "x").expect("written");
        assert!(matches!(
            init(&dir, &small()),
            Err(StartError::Foreign { .. })
        ));
        assert!(dir.join("osd.0/store").exists());
        std::fs::remove_dir_all(dir).expect("ours");
    }

    /// Three `nacre up` at a time in one directory: the first failed and removed its mark. The
    /// second had opened that mark before and locked it now, though it no longer had a path. The
    /// third made its own mark. Both made a cluster, one over the other.
    #[test]
    fn a_mark_that_no_path_leads_to_keeps_nobody_out() {
        let dir = dir("unlinked");
        let first = Creating::begin(&dir).expect("nobody else");
        let mark = dir.join(MARK);
        let second = File::options()
            .write(true)
            .open(&mark)
            .expect("it is there");
        assert!(matches!(lock_mark(&second, &mark), Ok(Some(Attempt::Busy))));
        drop(first);
        assert!(
            matches!(lock_mark(&second, &mark), Ok(Some(Attempt::Again))),
            "while there is none"
        );
        second.unlock().expect("locked");
        let third = Creating::begin(&dir).expect("the first one has ended");
        assert!(
            matches!(lock_mark(&second, &mark), Ok(Some(Attempt::Again))),
            "two make one cluster"
        );
        drop(third);
        assert!(!dir.exists());
    }

    /// Of several `nacre up` at a time all but one failed, sometimes with the error that the
    /// directory held something foreign, namely `creating`.
    #[test]
    fn of_several_that_begin_at_once_each_is_alone() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let (dir, inside) = (dir("several"), AtomicUsize::new(0));
        let rounds = || {
            for _ in 0..300 {
                let creating = Creating::begin(&dir).expect("the others end");
                assert_eq!(
                    inside.fetch_add(1, Ordering::SeqCst),
                    0,
                    "another one is at it"
                );
                std::thread::yield_now();
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(creating);
            }
        };
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(rounds)).collect();
            all.into_iter()
                .for_each(|one| one.join().expect("alone each time"));
        });
        assert!(
            std::fs::read_dir(&dir).map_or(0, Iterator::count) == 0,
            "something is left"
        );
        let _ = std::fs::remove_dir(dir);
    }

    /// The same, once in ten runs of the test above: the directory existed when it was to be made,
    /// but had been removed with a failed creation when it was examined.
    #[test]
    fn a_directory_that_went_while_it_was_made_is_made_again() {
        let dir = dir("went");
        let error = || std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        assert!(is_passing_dir(&dir, &error()), "it has gone");
        std::fs::create_dir(&dir).expect("new");
        assert!(is_passing_dir(&dir, &error()), "the next one's");
        assert!(!is_passing_dir(
            &dir,
            &std::io::ErrorKind::PermissionDenied.into()
        ));
        std::fs::remove_dir(&dir).expect("empty");
        std::fs::write(&dir, "mine").expect("written");
        assert!(!is_passing_dir(&dir, &error()), "a file stays one");
        assert!(matches!(Creating::begin(&dir), Err(StartError::Io { .. })));
        std::fs::remove_file(dir).expect("ours");
    }

    /// The same, rarely: one mark had disappeared when it was examined, and the next one existed
    /// when the found entry was examined.
    #[test]
    fn the_mark_of_who_comes_next_is_nothing_foreign() {
        let dir = dir("passing");
        std::fs::create_dir(&dir).expect("new");
        assert!(is_passing(&dir, "notes"), "it has gone");
        std::fs::write(dir.join("notes"), "mine").expect("written");
        assert!(!is_passing(&dir, "notes"));
        std::fs::write(dir.join(MARK), "").expect("written");
        assert!(is_passing(&dir, MARK));
        std::fs::remove_file(dir.join(MARK)).expect("there");
        std::fs::create_dir(dir.join(MARK)).expect("new");
        assert!(
            !is_passing(&dir, MARK),
            "no creation makes a folder of that name"
        );
        std::fs::remove_dir_all(dir).expect("ours");
    }

    /// Of three `nacre up` at a time two failed, though the cluster was complete a moment later.
    #[test]
    fn of_several_that_make_a_cluster_one_does_and_the_others_find_it() {
        let dir = dir("three");
        let all = std::thread::scope(|scope| {
            let all: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| init(&dir, &small())))
                .collect();
            all.into_iter()
                .map(|one| one.join().expect("no panic"))
                .collect::<Vec<_>>()
        });
        let made = all.iter().filter(|one| one.is_ok()).count();
        let found = all
            .iter()
            .filter(|one| matches!(one, Err(StartError::Exists { .. })))
            .count();
        assert_eq!((made, found), (1, 2), "{all:?}");
        assert_eq!(
            Config::load(&dir).expect("complete").cluster,
            all.iter().flatten().next().expect("one").cluster
        );
        std::fs::remove_dir_all(dir).expect("ours");
    }

    /// A process whose wait times out is told what it waited for.
    #[test]
    fn a_creation_that_does_not_end_is_not_waited_for_without_end() {
        let dir = dir("busy");
        let _first = Creating::begin(&dir).expect("nobody else");
        let why = Creating::begin_within(&dir, Duration::ZERO)
            .expect_err("it goes on")
            .to_string();
        assert!(why.contains("has been making a cluster there"), "{why}");
    }

    /// A failed first `up` left a directory that the second one refused.
    #[test]
    fn a_creation_that_fails_leaves_nothing() {
        let dir = dir("failed");
        let tiny = InitOptions {
            osd_bytes: 4096,
            ..small()
        };
        assert!(init(&dir, &tiny).is_err());
        assert!(!dir.exists());
    }

    #[test]
    fn nobody_else_may_read_a_cluster_and_one_of_an_older_version_is_tightened() {
        let dir = dir("private");
        let config = init(&dir, &small()).expect("made");
        let all = ["", "cluster.toml", "osd.0", "osd.0/store", "mon.0/store"]
            .map(|name| config.dir.join(name));
        assert!(
            all.iter().all(|path| mode(path) & 0o077 == 0),
            "{:?}",
            all.iter().map(|p| mode(p)).collect::<Vec<_>>()
        );
        for path in &all {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("ours");
        }
        assert_eq!(tighten(&config).len(), all.len());
        assert!(all.iter().all(|path| mode(path) & 0o077 == 0));
        assert!(tighten(&config).is_empty());
        std::fs::remove_dir_all(dir).expect("ours");
    }
}
