//! Ceph on this machine: detection, installation, and a temporary cluster (`tests/ceph-cluster`).
//!
//! ```text
//!  there? ─no─▶ apt-get, when root ─▶ Throwaway::up ─▶ conf: `nacre --cluster ceph:CONF …` ─▶ dropped: down, folder removed
//! ```
//! Nacre needs no Ceph to be built or to run. It is needed to test one engine and for comparison.

use crate::bounded;
use crate::cluster::guard::Guard;
use crate::cluster::{running, signal};
use crate::install::is_root;
use crate::step::program;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Debian's names.
const PACKAGES: &[&str] = &[
    "ceph-mon",
    "ceph-osd",
    "ceph-mgr",
    "ceph-mgr-modules-core",
    "ceph-common",
    "librados2",
    "python3-rados",
];
/// The programs to look for: if they are installed from elsewhere, no packages are needed.
const PROGRAMS: &[&str] = &["ceph-mon", "ceph-osd", "ceph-mgr", "ceph", "monmaptool"];
/// The script bounds all its own waits, some four minutes in total.
const SCRIPT_MAX: Duration = Duration::from_mins(6);
const DOWN_MAX: Duration = Duration::from_mins(1);

/// Whether all programs are installed.
pub fn is_installed() -> bool {
    PROGRAMS
        .iter()
        .all(|name| program(name).args(["--version"]).succeeds())
}

/// The installed version as Ceph reports it, such as `16.2.15`.
pub fn version() -> String {
    let said = crate::machine::text_of("ceph-osd", &["--version"]);
    said.split_whitespace().nth(2).unwrap_or("?").to_owned()
}

/// Ensures that Ceph is installed.
///
/// # Errors
/// Why not, in a sentence.
pub fn obtain() -> Result<()> {
    let by_hand = format!("apt-get install {}", PACKAGES.join(" "));
    ensure!(
        is_root(),
        "Ceph's daemons are started as root, and this is another user"
    );
    if is_installed() {
        return Ok(());
    }
    if !program("apt-get").args(["--version"]).succeeds() {
        bail!("Ceph is not installed, and there is no apt-get; on Debian `{by_hand}` installs it");
    }
    // A separate directory for packages: another apt-get that ends meanwhile may clear the common
    // one.
    let archives = std::env::temp_dir().join(format!("nacre-ceph-packages-{}", std::process::id()));
    std::fs::create_dir_all(archives.join("partial")).context("making a folder for packages")?;
    let folder = format!("Dir::Cache::archives={}", archives.display());
    let updated = program("apt-get").args(["update"]).run();
    let install =
        program("apt-get").args(["install", "--yes", "--no-install-recommends", "-o", &folder]);
    let installed = install
        .args(PACKAGES)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .run();
    let _ = std::fs::remove_dir_all(&archives);
    updated
        .and(installed)
        .with_context(|| format!("Ceph is not installed, and `{by_hand}` did not help"))?;
    ensure!(
        is_installed(),
        "its packages are installed, and one of {} does not run",
        PROGRAMS.join(", ")
    );
    Ok(())
}

/// Debian's names of the additional packages for CephFS.
const FILES_PACKAGES: &[(&str, &str, &str)] = &[
    ("ceph-mds", "ceph-mds", "CephFS"),
    ("ceph-fuse", "ceph-fuse", "CephFS"),
];

/// Ensures that CephFS is installed too.
///
/// # Errors
/// Why not, in a sentence.
pub fn obtain_files() -> Result<()> {
    obtain()?;
    crate::install::programs(FILES_PACKAGES)
}

/// Creates a file system on a running cluster, and starts its server; waits until that is active.
///
/// # Errors
/// When one of Ceph's programs fails.
pub fn serve_files(conf: &Path) -> Result<()> {
    let dir = conf.parent().context("a configuration lies in a folder")?;
    let ask = |arguments: &[&str]| -> Result<String> {
        bounded::printed(
            Command::new("ceph").arg("-c").arg(conf).args(arguments),
            DOWN_MAX,
        )
    };
    for pool in ["files.meta", "files.data"] {
        ask(&["osd", "pool", "create", pool, "32", "32"])?;
    }
    ask(&["fs", "new", "files", "files.meta", "files.data"])?;
    let data = dir.join("mds").join("a");
    std::fs::create_dir_all(&data).context("a folder for the server")?;
    let mut server = Command::new("ceph-mds");
    server
        .arg("-c")
        .arg(conf)
        .args(["-i", "a", "--mds-data"])
        .arg(&data);
    bounded::printed(&mut server, DOWN_MAX)?;
    bounded::until("CephFS has a server", SCRIPT_MAX, || {
        Ok(ask(&["mds", "stat"])?.contains("up:active").then_some(()))
    })
}

/// The path of the script, independent of the working directory.
fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/ceph-cluster")
}

fn run(verb: &str, dir: &Path, arguments: &[&str], limit: Duration) -> Result<()> {
    let mut command = Command::new(script());
    command.arg(verb).arg(dir).args(arguments);
    bounded::printed(&mut command, limit).map(drop)
}

/// Creates the cluster of a directory, or starts its missing daemons; returns its configuration.
/// All its PGs are clean then.
///
/// # Errors
/// The script's error.
pub fn up(dir: &Path, arguments: &[&str]) -> Result<PathBuf> {
    run("up", dir, arguments, SCRIPT_MAX)?;
    Ok(dir.join("ceph.conf"))
}

/// Starts one daemon again, such as `osd.1`.
///
/// # Errors
/// The script's error.
pub fn start(dir: &Path, who: &str) -> Result<()> {
    run("start", dir, &[who], SCRIPT_MAX)
}

/// Kills one daemon, like a crash.
///
/// # Errors
/// When it does not run.
pub fn kill(dir: &Path, who: &str) -> Result<()> {
    signal(running(dir, who)?, "KILL")
}

/// Stops the cluster of a directory, if there is one.
///
/// # Errors
/// The daemon that does not end.
pub fn down(dir: &Path) -> Result<()> {
    run("down", dir, &[], DOWN_MAX)
}

/// The configuration that `--tuned` adds, one setting per line.
pub fn tuning() -> String {
    crate::machine::text_of(&script().display().to_string(), &["tuning"])
}

/// A cluster that is removed when the value is dropped, or when this program ends in another way.
pub struct Throwaway {
    /// Its configuration.
    pub conf: PathBuf,
    _guard: Guard,
}

impl Throwaway {
    /// Creates a new one. Remains of an earlier run in the directory are stopped and removed.
    ///
    /// # Errors
    /// The script's error.
    pub fn up(nacre: &Path, dir: &Path, arguments: &[&str]) -> Result<Self> {
        let guard = Guard::start(nacre, dir)?;
        Ok(Self {
            conf: up(dir, arguments)?,
            _guard: guard,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Needs no Ceph: wrong arguments are detected before anything is started.
    #[test]
    fn the_script_refuses_what_it_does_not_know_and_touches_no_folder_of_others() {
        let dir = std::env::temp_dir().join(format!("nacre-ceph-script-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("writable");
        std::fs::write(dir.join("mine"), "data").expect("writable");
        let said = |verb: &str, arguments: &[&str]| {
            format!(
                "{:#}",
                run(verb, &dir, arguments, DOWN_MAX).expect_err("it is refused")
            )
        };
        assert!(said("upp", &[]).contains("no verb `upp`"));
        assert!(said("up", &["--osds", "many"]).contains("takes a number"));
        assert!(said("up", &["--fast"]).contains("`--fast` is no argument"));
        if is_root() {
            assert!(said("start", &["osd.0"]).contains("holds no cluster") || !is_installed());
            assert!(said("down", &["--wipe"]).contains("left as it is"));
        }
        assert_eq!(
            std::fs::read_to_string(dir.join("mine")).expect("still there"),
            "data"
        );
        assert_eq!(
            std::fs::read_dir(&dir).expect("readable").count(),
            1,
            "nothing was put there"
        );
        std::fs::remove_dir_all(&dir).expect("removable");
    }
}
