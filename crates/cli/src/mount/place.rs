//! The directory of `nacre up --mount`: what is at the path, and whether it is suitable.
//!
//! ```text
//!  nothing                        ─▶ created
//!  an empty directory             ─▶ used as it is
//!  a dead mount of ours           ─▶ unmounted, checked again
//!  this cluster's own live mount  ─▶ already done
//!  anything else                  ─▶ refused with an error
//! ```
//! The table of mounts is read before the path is: a mount whose cluster is stopped does not
//! answer, and a query would block.

use super::record::{self, Found};
use anyhow::{Context as _, Result, bail, ensure};
use nacre_gateway::table::{self, MountEntry};
use nacre_gateway::{MountError, Unmount, unmount};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// Maximum number of symbolic links followed, and of dead mounts on top of each other.
const STEPS_MAX: usize = 40;
/// A dead mount answers with an error at once; one that takes longer is running.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// A suitable directory. When dropped, it removes the directory again if that was created and
/// nothing was mounted there.
#[derive(Debug)]
pub struct Target {
    /// Its absolute path.
    pub dir: PathBuf,
    made: bool,
}

impl Target {
    /// The directory is mounted: keep it.
    pub fn keep(&mut self) {
        self.made = false;
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.made {
            let _ = std::fs::remove_dir(&self.dir);
        }
    }
}

/// Checks a path, and creates the directory if its parent exists.
///
/// # Errors
/// It is not suitable: the reason, and the recommended action.
pub fn prepare(given: &Path, cluster: &Path, say: &mut dyn FnMut(&str)) -> Result<Target> {
    for _ in 0..STEPS_MAX {
        let dir = resolve(given)?;
        ensure_apart(&dir, cluster)?;
        if let Some(entry) = table::mount_at(&dir) {
            let known = record::all(&cluster.join("run"))?;
            if live(&entry, &known).is_some() {
                return Ok(Target { dir, made: false });
            }
            if entry.is_ours() && is_dead(&dir) {
                unmount(&dir, Unmount::Detach)?;
                known
                    .iter()
                    .filter(|found| !found.runs() && found.record.dir == dir)
                    .for_each(Found::forget);
                say(&format!(
                    "{} had a mount whose process was killed: taken away; what it had not written is lost",
                    dir.display()
                ));
                continue;
            }
            if is_dead(&dir) {
                return Err(MountError::Dead { dir }.into());
            }
            bail!(
                "{} has {} mounted already ({}): name another directory",
                dir.display(),
                entry.source,
                entry.kind
            );
        }
        // Before anything is created.
        nacre_gateway::may_mount()?;
        let made = match std::fs::create_dir(&dir) {
            Ok(()) => true,
            Err(why) if why.kind() == ErrorKind::AlreadyExists => false,
            Err(why) => return Err(why).with_context(|| format!("making {}", dir.display())),
        };
        let target = Target { dir, made };
        nacre_gateway::check(&target.dir)?;
        ensure_empty(&target.dir)?;
        return Ok(target);
    }
    bail!(
        "{} has too many dead mounts or symbolic links",
        given.display()
    )
}

/// The record of a running mount.
pub fn live<'a>(entry: &MountEntry, known: &'a [Found]) -> Option<&'a Found> {
    known.iter().find(|found| {
        found.runs() && found.record.dir == entry.dir && found.record.device == entry.device
    })
}

/// Resolves the path's symbolic links, without querying what is mounted at its end.
fn resolve(given: &Path) -> Result<PathBuf> {
    let mut path = given.to_owned();
    for _ in 0..STEPS_MAX {
        // A path that ends with `..` or is `/`.
        let Some(name) = path.file_name() else {
            return path
                .canonicalize()
                .with_context(|| format!("finding {}", given.display()));
        };
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let parent = parent.canonicalize().with_context(|| {
            format!("{}: its parent directory has to be there", given.display())
        })?;
        let whole = parent.join(name);
        if table::mount_at(&whole).is_some() {
            return Ok(whole);
        }
        match std::fs::read_link(&whole) {
            Ok(target) => path = parent.join(target),
            Err(_) => return Ok(whole),
        }
    }
    bail!("{} has too many symbolic links", given.display())
}

/// Whether the mount's process has ended. One that runs but does not answer is not dead. The
/// directory is opened, because the kernel may have cached its attributes beyond the end of the
/// process.
fn is_dead(dir: &Path) -> bool {
    let Some(Err(why)) = answer(dir, ANSWER_MAX) else {
        return false;
    };
    why.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error())
}

/// The result of opening a directory; `None`: the mount does not answer in time.
pub fn answer(dir: &Path, limit: Duration) -> Option<std::io::Result<()>> {
    let (sender, receiver) = mpsc::channel();
    let dir = dir.to_owned();
    // It may never return: then this process ends without it.
    std::thread::spawn(move || sender.send(std::fs::read_dir(dir).map(drop)));
    receiver.recv_timeout(limit).ok()
}

/// A mount must neither hide the cluster's directory nor be among its files.
fn ensure_apart(dir: &Path, cluster: &Path) -> Result<()> {
    // A path that does not exist yet is below one that does.
    let mut there = cluster;
    let whole = loop {
        let there_or_here = if there.as_os_str().is_empty() {
            Path::new(".")
        } else {
            there
        };
        if let Ok(found) = there_or_here.canonicalize() {
            // Joined component by component: joined with an empty path it would end with a slash.
            break cluster
                .strip_prefix(there)
                .expect("a part of it")
                .iter()
                .fold(found, |path, part| path.join(part));
        }
        match there.parent() {
            Some(parent) => there = parent,
            None => break cluster.to_owned(),
        }
    };
    let (dir_shown, whole_shown) = (dir.display(), whole.display());
    ensure!(
        !dir.starts_with(&whole),
        "{dir_shown} is in the cluster's own directory {whole_shown}: mount it somewhere else"
    );
    ensure!(
        !whole.starts_with(dir),
        "the cluster's own directory {whole_shown} is in {dir_shown} and would be hidden by the mount: mount it \
         somewhere else"
    );
    Ok(())
}

fn ensure_empty(dir: &Path) -> Result<()> {
    let mut entries =
        std::fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    let Some(first) = entries.next() else {
        return Ok(());
    };
    let name = first
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .unwrap_or_default();
    bail!(
        "{} is not empty ({name} is in it), and a mount would hide that: name an empty directory",
        dir.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::record::Record;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().canonicalize().expect("it is there");
        let dir = dir.join(format!("nacre-place-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a folder");
        dir
    }

    #[test]
    fn a_path_is_followed_to_what_is_mounted_on() {
        let dir = folder("resolve");
        fs::create_dir(dir.join("real")).expect("made");
        symlink("real", dir.join("link")).expect("made");
        symlink("loop", dir.join("loop")).expect("made");
        assert_eq!(resolve(&dir.join("link")).expect("found"), dir.join("real"));
        assert_eq!(
            resolve(&dir.join("real/.")).expect("found"),
            dir.join("real")
        );
        assert_eq!(resolve(&dir.join("real/..")).expect("found"), dir);
        assert_eq!(
            resolve(&dir.join("new")).expect("its parent is there"),
            dir.join("new")
        );
        let why = resolve(&dir.join("no/such"))
            .expect_err("no parent")
            .to_string();
        assert!(
            why.contains("its parent directory has to be there"),
            "{why}"
        );
        assert!(
            resolve(&dir.join("loop"))
                .expect_err("endless")
                .to_string()
                .contains("too many symbolic links")
        );
        assert_eq!(resolve(Path::new("/")).expect("found"), Path::new("/"));
        fs::remove_dir_all(dir).expect("ours");
    }

    #[test]
    fn mount_and_cluster_are_apart() {
        let dir = folder("apart");
        let cluster = dir.join("not/yet");
        let why = |at: &Path| ensure_apart(at, &cluster).expect_err("refused").to_string();
        assert!(why(&cluster).contains("own directory"));
        assert!(why(&cluster.join("files")).contains("own directory"));
        assert!(why(&dir).contains("would be hidden"));
        assert!(why(Path::new("/")).contains("would be hidden"));
        ensure_apart(&dir.join("not/yet-another"), &cluster).expect("beside it");
        let here = std::env::current_dir()
            .expect("readable")
            .canonicalize()
            .expect("readable");
        assert!(
            ensure_apart(&here.join("data/mnt"), Path::new("data")).is_err(),
            "a relative name"
        );
        fs::remove_dir_all(dir).expect("ours");
    }

    #[test]
    fn a_directory_that_was_made_for_nothing_is_removed() {
        let dir = folder("made");
        drop(Target {
            dir: dir.clone(),
            made: false,
        });
        assert!(dir.exists(), "it had been there");
        let mut kept = Target {
            dir: dir.clone(),
            made: true,
        };
        kept.keep();
        drop(kept);
        assert!(dir.exists(), "something was mounted");
        drop(Target {
            dir: dir.clone(),
            made: true,
        });
        assert!(!dir.exists());
    }

    #[test]
    fn only_an_empty_directory_will_do() {
        let dir = folder("empty");
        ensure_empty(&dir).expect("it is");
        fs::write(dir.join("mine"), "").expect("writable");
        let why = ensure_empty(&dir).expect_err("refused").to_string();
        assert!(why.contains("is not empty (mine is in it)"), "{why}");
        fs::remove_dir_all(dir).expect("ours");
    }

    /// The device number distinguishes this cluster's mount from another's at the same path.
    #[test]
    fn a_mount_is_known_by_place_and_device() {
        let run = folder("live");
        let at = |device: &str| Record {
            dir: "/mnt".into(),
            fs: "home".into(),
            device: device.into(),
            by_up: true,
        };
        let kept = record::Kept::begin(&run, &at("0:54")).expect("writable");
        let entry = |device: &str| MountEntry {
            device: device.into(),
            dir: "/mnt".into(),
            kind: "fuse.nacre".into(),
            source: "nacre:home".into(),
        };
        let known = record::all(&run).expect("readable");
        assert!(live(&entry("0:54"), &known).is_some());
        assert!(live(&entry("0:55"), &known).is_none());
        drop(kept);
        assert!(
            live(&entry("0:54"), &record::all(&run).expect("readable")).is_none(),
            "it was killed"
        );
        fs::remove_dir_all(run).expect("ours");
    }
}
