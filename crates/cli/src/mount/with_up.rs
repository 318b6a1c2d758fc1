//! `nacre up --mount DIR`: from a running cluster to a file system in a directory.
//!
//! ```text
//!  prepare ─▶ cluster is up ─▶ which file system? ─▶ nacre mount, in the background
//!  (before anything is started)   none: `home` is created · one: that · several: the one of --fs
//! ```
//! The mount is a separate process: when the cluster's is killed the mount waits for the next `up`,
//! and writes its unwritten data then.

use super::place::{self, Target};
use super::{Background, record};
use crate::cluster::Place;
use crate::files;
use anyhow::{Context as _, Result, bail};
use nacre_gateway::table;
use nacre_wire::fs::registry::name_fault;
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The name of a cluster's first file system.
const FIRST: &str = "home";
/// Lock for one mounting command at a time.
const LOCK: &str = "mounting";
/// Longer than a mount takes until it serves or times out.
const OTHERS_MAX: Duration = Duration::from_secs(90);
/// Time limit for an existing mount to answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);

/// The request of the command line.
pub struct Wanted {
    target: Target,
    fs: Option<String>,
}

/// Result of mounting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedAt {
    /// The file system.
    pub fs: String,
    /// Its directory.
    pub dir: PathBuf,
    /// Whether the file system was just created.
    pub made: bool,
    /// Whether it had been mounted before.
    pub before: bool,
    /// Whether `nacre mount` had mounted it, so that `nacre down` does not unmount it.
    pub by_hand: bool,
}

impl MountedAt {
    /// As a sentence.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { fs, dir, .. } = self;
        match (self.before, self.made) {
            _ if self.by_hand => {
                let dir = dir.display();
                format!(
                    "`nacre mount` has mounted {fs} at {dir} already; `umount {dir}` unmounts it, `nacre down` does not"
                )
            }
            (true, _) => format!("file system {fs} is mounted at {} already", dir.display()),
            (_, true) => format!(
                "file system {fs} was made and is mounted at {}",
                dir.display()
            ),
            _ => format!("file system {fs} is mounted at {}", dir.display()),
        }
    }
    /// As JSON.
    #[must_use]
    pub fn value(&self) -> Value {
        json!({
            "fs": self.fs, "dir": self.dir.display().to_string(), "made": self.made, "before": self.before,
        })
    }
}

/// Checks the directory before anything is started or changed.
///
/// # Errors
/// The directory or this machine is not suitable: the reason, and the recommended action.
pub fn prepare(dir: &Path, fs: Option<&str>, cluster: &Path) -> Result<Wanted> {
    if let Some((name, fault)) = fs.and_then(|name| Some((name, name_fault(name)?))) {
        bail!("{name}: {fault}");
    }
    let target = place::prepare(dir, cluster, &mut |line| {
        crate::say::line(&format!("nacre: {line}"))
    })?;
    Ok(Wanted {
        target,
        fs: fs.map(str::to_owned),
    })
}

impl Wanted {
    /// Mounts it on a running cluster.
    ///
    /// # Errors
    /// It cannot be mounted: the reason, and the recommended action.
    pub fn mount(&mut self, cluster: &Path, client: &str) -> Result<MountedAt> {
        let mounted = self.try_mount(cluster, client)?;
        self.target.keep();
        Ok(mounted)
    }

    fn try_mount(&self, cluster: &Path, client: &str) -> Result<MountedAt> {
        let place = Place::new(Some(cluster.to_owned())).named(client.to_owned());
        let dir = self.target.dir.clone();
        let _lock = lock(&place.run_folder())?;
        // Check again: another command may have mounted it meanwhile.
        if let Some(entry) = table::mount_at(&dir) {
            let known = record::all(&place.run_folder())?;
            let Some(found) = place::live(&entry, &known) else {
                bail!(
                    "{} has {} mounted since just now: name another directory",
                    dir.display(),
                    entry.source
                );
            };
            let fs = found.record.fs.clone();
            if let Some(other) = self.fs.as_ref().filter(|name| **name != fs) {
                bail!(
                    "{0} has file system {fs}, not {other}: `umount {0}` first",
                    dir.display()
                );
            }
            await_answer(&dir)?;
            return Ok(MountedAt {
                fs,
                dir,
                made: false,
                before: true,
                by_hand: !found.record.by_up,
            });
        }
        let (fs, made) = choose(&files::names(&place)?, self.fs.as_deref())?;
        if made {
            files::make_plain(&place, &fs).with_context(|| format!("making file system {fs}"))?;
        }
        Background {
            fs: &fs,
            dir: &dir,
            options: &[],
            by_up: true,
        }
        .start(&place)?;
        Ok(MountedAt {
            fs,
            dir,
            made,
            before: false,
            by_hand: false,
        })
    }
}

/// The file system to mount, and whether to create it.
fn choose(there: &[String], wanted: Option<&str>) -> Result<(String, bool)> {
    match (there, wanted) {
        ([], wanted) => Ok((wanted.unwrap_or(FIRST).to_owned(), true)),
        ([one], None) => Ok((one.clone(), false)),
        (several, None) => bail!(
            "which file system? --fs says it; there are {}",
            several.join(", ")
        ),
        (all, Some(name)) if all.iter().any(|known| known == name) => Ok((name.to_owned(), false)),
        // If there are others, an unknown name is more likely a mistake.
        (all, Some(name)) => {
            bail!(
                "there is no file system {name}, only {}; `nacre fs create {name}` makes it",
                all.join(", ")
            )
        }
    }
}

/// One command mounts at a time.
fn lock(run: &Path) -> Result<File> {
    let path = run.join(LOCK);
    let doing = || format!("locking {}", path.display());
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .with_context(doing)?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(std::fs::TryLockError::WouldBlock) if begun.elapsed() < OTHERS_MAX => {
                std::thread::sleep(LOOK)
            }
            Err(why) => return Err(std::io::Error::from(why)).with_context(doing),
        }
    }
}

/// Waits until an existing mount shows its root: its cluster may just have come back.
fn await_answer(dir: &Path) -> Result<()> {
    let answer = place::answer(dir, ANSWER_MAX).with_context(|| {
        format!(
            "{} is mounted, and did not answer within {} s; `nacre health detail` says what is wrong",
            dir.display(),
            ANSWER_MAX.as_secs()
        )
    })?;
    answer.with_context(|| format!("reading {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_file_system_is_clear_or_asked_for() {
        let names = |all: &[&str]| {
            all.iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        let chosen =
            |all: &[&str], wanted| choose(&names(all), wanted).map_err(|why| why.to_string());
        assert_eq!(chosen(&[], None), Ok(("home".to_owned(), true)));
        assert_eq!(chosen(&[], Some("mine")), Ok(("mine".to_owned(), true)));
        assert_eq!(chosen(&["a"], None), Ok(("a".to_owned(), false)));
        assert_eq!(chosen(&["a", "b"], Some("b")), Ok(("b".to_owned(), false)));
        let why = chosen(&["a", "b"], None).expect_err("which?");
        assert_eq!(why, "which file system? --fs says it; there are a, b");
        let why = chosen(&["a"], Some("hmoe")).expect_err("a slip");
        assert!(
            why.contains("there is no file system hmoe, only a"),
            "{why}"
        );
    }

    #[test]
    fn what_was_done_is_a_sentence() {
        let at = MountedAt {
            fs: "home".to_owned(),
            dir: "/mnt".into(),
            made: true,
            before: false,
            by_hand: false,
        };
        assert_eq!(
            at.line(),
            "file system home was made and is mounted at /mnt"
        );
        assert_eq!(
            MountedAt {
                made: false,
                ..at.clone()
            }
            .line(),
            "file system home is mounted at /mnt"
        );
        assert_eq!(
            MountedAt { before: true, ..at }.line(),
            "file system home is mounted at /mnt already"
        );
    }
}
