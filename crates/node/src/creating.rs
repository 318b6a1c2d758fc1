//! A cluster's directory while it is being made: whole at the end, or nothing.
//!
//! ```text
//!   DIR/creating ─▶ stores ─▶ run/first-pool ─▶ cluster.toml ─▶ creating goes
//!        │            killed here: the next attempt begins again          │ killed here: complete
//!        └─ locked while its process lives: two do not make one cluster
//! ```
//! Only what a creation makes is ever removed: `mon.N` and `osd.N` with a store in them, and nothing that lies beside.

use crate::error::StartError;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

const MARK: &str = "creating";
const FIRST_POOL: &str = "first-pool";

/// See the module head. Dropped without [`Self::finish`], it takes back what was made.
#[derive(Debug)]
pub struct Creating {
    dir: PathBuf,
    /// The directory itself was made.
    made: bool,
    finished: bool,
    _lock: File,
}

fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StartError {
    let path = path.to_owned();
    move |error| StartError::Io { doing, path, error }
}

/// Makes a directory, and those above it, for its owner alone.
pub(crate) fn private_dir(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn is_ours(name: &str) -> bool {
    let number = name.strip_prefix("mon.").or_else(|| name.strip_prefix("osd."));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Removes what a creation has made in a directory that is no cluster yet.
fn take_back(dir: &Path) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_ours(&name) {
            for file in ["store", "store.reserve"] {
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

impl Creating {
    /// Begins, in a directory that is empty, missing, or left by a creation that did not end.
    ///
    /// # Errors
    /// [`StartError`]: it holds something else, or cannot be written.
    pub fn begin(dir: &Path) -> Result<Self, StartError> {
        let made = !dir.exists();
        private_dir(dir).map_err(io("make", dir))?;
        let mark = dir.join(MARK);
        let resumed = mark.is_file();
        if !resumed && let Some(found) = std::fs::read_dir(dir).map_err(io("read", dir))?.next() {
            let found = found.map_err(io("read", dir))?.file_name().to_string_lossy().into_owned();
            return Err(StartError::Foreign { path: dir.to_owned(), found });
        }
        let mut options = File::options();
        options.create(true).truncate(false).write(true).mode(0o600);
        let mut lock = options.open(&mark).map_err(io("make", &mark))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StartError::Locked {
                    path: dir.to_owned(),
                    by: "a process that makes a cluster".to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(io("lock", &mark)(error)),
        }
        let text = "A cluster is being made here. If no process does so any more, `nacre up` begins again.\n";
        let _ = lock.write_all(text.as_bytes());
        // What follows is taken back if this fails, also here.
        let creating = Self { dir: dir.to_owned(), made, finished: false, _lock: lock };
        if resumed {
            take_back(dir);
            let left = std::fs::read_dir(dir).map_err(io("read", dir))?.flatten();
            let mut left = left.map(|entry| entry.file_name().to_string_lossy().into_owned());
            if let Some(found) = left.find(|name| name != MARK) {
                return Err(StartError::Foreign { path: dir.to_owned(), found });
            }
        }
        // The directory may be the user's, made before.
        let _ = std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700));
        Ok(creating)
    }

    /// Notes that the cluster's first pool, of so many replicas, is still to be made.
    ///
    /// # Errors
    /// The operating system's.
    pub fn note_first_pool(&self, size: u32) -> Result<(), StartError> {
        let path = first_pool_file(&self.dir);
        let run = path.parent().expect("it is in `run`");
        private_dir(run).map_err(io("make", run))?;
        std::fs::write(&path, format!("{size}\n")).map_err(io("write", &path))
    }

    /// The cluster is complete.
    pub fn finish(mut self) {
        self.finished = true;
        let _ = std::fs::remove_file(self.dir.join(MARK));
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

/// How many replicas the cluster's first pool is to have, if it is still to be made.
#[must_use]
pub fn first_pool(dir: &Path) -> Option<u32> {
    std::fs::read_to_string(first_pool_file(dir)).ok()?.trim().parse().ok()
}

/// The first pool is there.
pub fn has_first_pool(dir: &Path) {
    let _ = std::fs::remove_file(first_pool_file(dir));
}

/// Makes what lies in a cluster's directory its owner's alone: stores hold everybody's data. Returns what was changed, for people.
#[must_use]
pub fn tighten(config: &crate::config::Config) -> Vec<String> {
    let mut all: Vec<(PathBuf, u32)> = vec![
        (config.dir.clone(), 0o700),
        (config.dir.join("run"), 0o700),
        (config.dir.join(crate::config::FILE_NAME), 0o600),
    ];
    let stores = config.mons.values().map(|entry| &entry.path).chain(config.osds.values().map(|entry| &entry.path));
    for store in stores.filter(|path| path.is_file()) {
        all.push((store.clone(), 0o600));
        // Other directories are the operator's own.
        all.extend(store.parent().filter(|dir| dir.starts_with(&config.dir)).map(|dir| (dir.to_owned(), 0o700)));
    }
    let mut changed = Vec::new();
    for (path, mode) in all {
        let Ok(meta) = path.metadata() else { continue };
        let was = meta.permissions().mode() & 0o777;
        if was & 0o077 != 0 && std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).is_ok() {
            changed.push(format!("{} was open to others (mode {was:03o}); its mode is {mode:03o} now", path.display()));
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::directory::{InitOptions, init};

    fn dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("nacre-creating-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        dir
    }
    fn small() -> InitOptions {
        InitOptions { osds: 1, base_port: None, osd_bytes: 32 << 20, mon_bytes: 128 << 20, ..InitOptions::default() }
    }
    fn mode(path: &Path) -> u32 {
        path.metadata().expect("it is there").permissions().mode() & 0o777
    }

    /// F27: killed while it made a cluster, `up` refused the directory ever after. Here the process goes at each step that leaves files.
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
            let config = init(&dir, &InitOptions { first_pool: Some(2), ..small() }).expect("begins again");
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
        assert!(matches!(init(&dir, &small()), Err(StartError::Foreign { .. })));
        assert!(dir.join("osd.0/thesis").exists());
        std::fs::remove_dir_all(dir).expect("ours");
    }

    /// A failed first `up` left a directory that the second one refused.
    #[test]
    fn a_creation_that_fails_leaves_nothing() {
        let dir = dir("failed");
        let tiny = InitOptions { osd_bytes: 4096, ..small() };
        assert!(init(&dir, &tiny).is_err());
        assert!(!dir.exists());
    }

    #[test]
    fn nobody_else_may_read_a_cluster_and_one_of_an_older_version_is_tightened() {
        let dir = dir("private");
        let config = init(&dir, &small()).expect("made");
        let all = ["", "cluster.toml", "osd.0", "osd.0/store", "mon.0/store"].map(|name| config.dir.join(name));
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
