//! Ceph on this machine: whether it is there, getting it, and a cluster of it that is thrown away
//! (`tests/ceph-cluster`).
//!
//! ```text
//!  there? ─no─▶ apt-get, when root ─▶ Throwaway::up ─▶ conf: `nacre --cluster ceph:CONF …` ─▶ dropped: down, folder removed
//! ```
//! Nothing of Nacre needs Ceph to be built or to run; it is what one engine is tested on and
//! compared with.

use crate::bounded;
use crate::install::is_root;
use crate::show::guard::{self, Guard};
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
/// What of them is looked for: whoever has these from elsewhere needs no packages.
const PROGRAMS: &[&str] = &["ceph-mon", "ceph-osd", "ceph-mgr", "ceph", "monmaptool"];
/// The script bounds all its own waits, at some four minutes together.
const SCRIPT_MAX: Duration = Duration::from_mins(6);
const DOWN_MAX: Duration = Duration::from_mins(1);

/// Whether all programs are there.
pub fn is_installed() -> bool {
    PROGRAMS
        .iter()
        .all(|name| program(name).args(["--version"]).succeeds())
}

/// Ceph's own word for what is installed, such as `16.2.15`.
pub fn version() -> String {
    let said = crate::machine::text_of("ceph-osd", &["--version"]);
    said.split_whitespace().nth(2).unwrap_or("?").to_owned()
}

/// Makes sure that it is there.
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
    // Packages in a folder of its own: another apt-get that ends meanwhile may clear the common
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

/// Debian's names of what CephFS needs besides.
const FILES_PACKAGES: &[(&str, &str, &str)] = &[
    ("ceph-mds", "ceph-mds", "CephFS"),
    ("ceph-fuse", "ceph-fuse", "CephFS"),
];

/// Makes sure that CephFS is there, too.
///
/// # Errors
/// Why not, in a sentence.
pub fn obtain_files() -> Result<()> {
    obtain()?;
    crate::install::programs(FILES_PACKAGES)
}

/// Makes a file system on a cluster that runs, and starts its server; waits until that is active.
///
/// # Errors
/// When one of Ceph's programs does not do what it is told.
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

/// The script, wherever this is run.
fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/ceph-cluster")
}

fn run(verb: &str, dir: &Path, arguments: &[&str], limit: Duration) -> Result<()> {
    let mut command = Command::new(script());
    command.arg(verb).arg(dir).args(arguments);
    bounded::printed(&mut command, limit).map(drop)
}

/// Makes a folder's cluster or starts what does not run of it; gives its configuration. All its
/// groups are clean then.
///
/// # Errors
/// What the script says.
pub fn up(dir: &Path, arguments: &[&str]) -> Result<PathBuf> {
    run("up", dir, arguments, SCRIPT_MAX)?;
    Ok(dir.join("ceph.conf"))
}

/// Starts one daemon again, such as `osd.1`.
///
/// # Errors
/// What the script says.
pub fn start(dir: &Path, who: &str) -> Result<()> {
    run("start", dir, &[who], SCRIPT_MAX)
}

/// Ends one daemon as a crash would.
///
/// # Errors
/// When it does not run.
pub fn kill(dir: &Path, who: &str) -> Result<()> {
    let path = dir.join("run").join(format!("{who}.pid"));
    let pid =
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    bounded::printed(Command::new("kill").args(["-KILL", pid.trim()]), DOWN_MAX).map(drop)
}

/// Stops a folder's cluster, if there is one.
///
/// # Errors
/// What does not end.
pub fn down(dir: &Path) -> Result<()> {
    run("down", dir, &[], DOWN_MAX)
}

/// What `--tuned` adds to the configuration, a line each.
pub fn tuning() -> String {
    crate::machine::text_of(&script().display().to_string(), &["tuning"])
}

/// A cluster that goes with its value, or with this program if that ends in another way.
pub struct Throwaway {
    /// Its configuration.
    pub conf: PathBuf,
    _guard: Guard,
}

impl Throwaway {
    /// A new one. What an earlier run has left in the folder is ended and removed.
    ///
    /// # Errors
    /// What the script says.
    pub fn up(nacre: &Path, dir: &Path, arguments: &[&str]) -> Result<Self> {
        guard::clean(nacre, dir)?;
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

    /// Needs no Ceph: mistakes are found before anything is started.
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
