//! The file system of a cluster: its servers, and mounts of it.
//!
//! Invariant: a mount's process and its entry in the kernel's table are removed with the value, so
//! that no walk through the directory of its cluster meets a file system that does not answer.

use super::Cluster;
use super::client::Client;
use crate::bounded;
use crate::install::is_root;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The file system.
pub const NAME: &str = "home";

const READY_MAX: Duration = Duration::from_mins(1);
const UMOUNT_MAX: Duration = Duration::from_mins(2);
/// A mount that is busy for longer is in use by a program.
const BUSY_MAX: Duration = Duration::from_secs(5);
const CHECK_MAX: Duration = Duration::from_mins(10);

/// The reason why this process may not mount anything here; none: it may.
pub fn why_not() -> Option<&'static str> {
    if !is_root() {
        Some("only root may mount")
    } else if !Path::new("/dev/fuse").exists() {
        Some("there is no /dev/fuse")
    } else {
        None
    }
}

/// Waits until a server has the file system; returns its name, such as `mds.0`.
///
/// # Errors
/// When none does.
pub fn await_server(cluster: &Cluster) -> Result<String> {
    await_ranks(cluster, 1)?.pop().context("one of one")
}

/// Waits until all `ranks` ranks have a server; returns their names, by rank.
///
/// # Errors
/// When a rank has none.
pub fn await_ranks(cluster: &Cluster, ranks: usize) -> Result<Vec<String>> {
    let (what, words) = ("servers have the file system", ["fs", "status", NAME]);
    cluster.until(what, READY_MAX, &words, |status| {
        let rows = status.as_array().into_iter().flatten();
        let servers: Option<Vec<String>> = rows
            .map(|row| row["server"].as_str().map(str::to_owned))
            .collect();
        servers.filter(|servers| servers.len() == ranks)
    })
}

/// Number of requests from mounts that its server has processed.
///
/// # Errors
/// When there is no answer.
pub fn requests(cluster: &Cluster) -> Result<f64> {
    let clients = cluster.ask(&["fs", "clients", NAME])?;
    let each = clients
        .as_array()
        .into_iter()
        .flatten()
        .map(|client| client["requests"].as_f64().unwrap_or(0.0));
    Ok(each.sum())
}

/// Checks that the file system is consistent, with `nacre fs check`.
///
/// # Errors
/// The findings.
pub fn check(cluster: &Cluster) -> Result<()> {
    let output = bounded::output(cluster.command().args(["fs", "check", NAME]), CHECK_MAX)?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    ensure!(
        output.status.success(),
        "`fs check` ({}): {} {}",
        output.status,
        said(&output.stdout),
        said(&output.stderr)
    );
    Ok(())
}

/// A mounted file system, served by a separate process.
pub struct Mount {
    client: Client,
    dir: PathBuf,
}

impl Mount {
    /// Mounts it in a new directory, for all users.
    ///
    /// # Errors
    /// When it is not mounted in time.
    pub fn new(cluster: &Cluster, dir: &Path) -> Result<Self> {
        let name = dir
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Self::with(
            cluster.command(),
            dir,
            &cluster.dir().join(format!("mount.{name}.log")),
        )
    }

    /// The same with a command of the cluster, to which arguments are added, and a log.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with(mut command: Command, dir: &Path, log: &Path) -> Result<Self> {
        command.args(["mount", "-f", "--fs", NAME, "-o", "allow_other"]);
        Self::begin(command.arg(dir), dir, log)
    }

    /// Runs a program that mounts something in a new directory.
    ///
    /// # Errors
    /// When it ends, or takes too long.
    pub fn begin(command: &mut Command, dir: &Path, log: &Path) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        let mut mount = Self {
            client: Client::begin(command, log)?,
            dir: dir.to_owned(),
        };
        bounded::until(&format!("{} is mounted", dir.display()), READY_MAX, || {
            mount.client.must_run()?;
            Ok(is_mounted(dir).then_some(()))
        })?;
        Ok(mount)
    }

    /// The mount point.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    /// The process that serves it.
    pub fn pid(&self) -> u32 {
        self.client.pid()
    }

    /// Unmounts it, and waits for its process; written data is safe afterwards.
    ///
    /// # Errors
    /// When it fails.
    pub fn end(mut self) -> Result<()> {
        unmount(&self.dir)?;
        let status = self
            .client
            .wait(UMOUNT_MAX)
            .context("a mount that was unmounted")?;
        ensure!(
            status.success(),
            "a mount was unmounted and ended badly ({status}): see its log"
        );
        Ok(())
    }

    /// Checks that it is running.
    ///
    /// # Errors
    /// When it has ended.
    pub fn must_run(&mut self) -> Result<()> {
        self.client.must_run()
    }

    /// Kills its process, like a crash; returns the time.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(mut self) -> Result<Instant> {
        self.must_run()?;
        Ok(self.client.kill())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Calls in flight fail from here on, so that programs in the directory end.
        self.client.kill();
        if is_mounted(&self.dir) {
            let _ = bounded::output(Command::new("umount").arg("-l").arg(&self.dir), UMOUNT_MAX);
        }
    }
}

/// Unmounts a directory that no program uses any more. A process that inspects other processes'
/// open files, as `nacre down` does, keeps it busy for a moment.
///
/// # Errors
/// The error of `umount`; it stays busy.
pub fn unmount(dir: &Path) -> Result<()> {
    let what = format!("unmounting {}, which is busy", dir.display());
    bounded::until(&what, BUSY_MAX, || {
        match bounded::printed(Command::new("umount").arg(dir), UMOUNT_MAX) {
            Ok(_) => Ok(Some(())),
            Err(why) if format!("{why:#}").contains("busy") => Ok(None),
            Err(why) => Err(why),
        }
    })
}

/// Whether the kernel has a file system there. The file system itself is not accessed, because it
/// may not answer.
fn is_mounted(dir: &Path) -> bool {
    let text = fs::read_to_string("/proc/mounts").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split(' ').nth(1))
        .any(|place| Path::new(place) == dir)
}
