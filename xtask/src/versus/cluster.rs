//! A cluster of one of the systems that are compared, driven in the same way: `nacre --json
//! --cluster …`.
//!
//! ```text
//!            Nacre                                   Ceph
//!  up        nacre up --processes --detach           tests/ceph-cluster up          each with 1 monitor, 3 OSDs, over TCP on loopback
//!            └──── pool of 32 groups, 3 copies, of which 2 must be there, clean ────┘
//!  kill      the process in run/osd.0.pid of the cluster's folder
//!  start     nacre osd run                           tests/ceph-cluster start
//!  down      nacre down                              tests/ceph-cluster down
//! ```

use crate::cluster::guard;
use crate::show::costs;
use crate::show::mounted::{self, Mount};
use crate::{bounded, ceph, cluster, machine};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Number of OSDs, and of replicas of every object.
pub const OSDS: u64 = 3;
/// Number of placement groups of the pool.
pub const GROUPS: u64 = 32;
/// The pool.
pub const POOL: &str = "bench";

const COMMAND_MAX: Duration = Duration::from_mins(1);
const UP_MAX: Duration = Duration::from_mins(4);
/// Maximum time until all PGs are clean after an OSD returned.
const CLEAN_MAX: Duration = Duration::from_mins(4);

/// The compared systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// Nacre.
    Nacre,
    /// Ceph with its defaults.
    Ceph,
    /// Ceph with the settings of `tests/ceph-cluster tuning`.
    Tuned,
}

impl System {
    /// All systems.
    pub const ALL: [Self; 3] = [Self::Nacre, Self::Ceph, Self::Tuned];
    /// Its name in tables and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nacre => "nacre",
            Self::Ceph => "ceph",
            Self::Tuned => "tuned",
        }
    }
}

/// A running cluster. The owner must have a guard for the directory above: dropping this stops
/// nothing.
pub struct Cluster {
    system: System,
    nacre: PathBuf,
    dir: PathBuf,
    /// An OSD that was started separately.
    child: Option<Child>,
}

impl Cluster {
    /// Creates one in a directory that does not exist, with its pool.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn up(system: System, nacre: &Path, dir: &Path, base_port: u16) -> Result<Self> {
        let cluster = Self {
            system,
            nacre: nacre.to_owned(),
            dir: dir.to_owned(),
            child: None,
        };
        match system {
            System::Nacre => {
                let mut up = Command::new(nacre);
                up.args([
                    "--json",
                    "up",
                    "--processes",
                    "--detach",
                    "--mons",
                    "1",
                    "--osds",
                    &OSDS.to_string(),
                ]);
                up.args(["--base-port", &base_port.to_string(), "--dir"])
                    .arg(dir);
                cluster::succeeds(&mut up, UP_MAX)?;
            }
            System::Ceph => drop(ceph::up(dir, &[])?),
            System::Tuned => drop(ceph::up(dir, &["--tuned"])?),
        }
        let (copies, groups) = (OSDS.to_string(), GROUPS.to_string());
        let pool = [
            "pool",
            "create",
            POOL,
            "--size",
            &copies,
            "--min-size",
            "2",
            "--pg-num",
            &groups,
        ];
        cluster.ask(COMMAND_MAX, &pool)?;
        cluster.await_clean()?;
        Ok(cluster)
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// `nacre --json --cluster …`; the caller adds arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.nacre);
        command
            .args(["--json", "--cluster"])
            .arg(match self.system {
                System::Nacre => self.dir.clone().into_os_string(),
                System::Ceph | System::Tuned => {
                    let mut name = OsString::from("ceph:");
                    name.push(self.dir.join("ceph.conf"));
                    name
                }
            });
        command
    }

    /// Runs a command; returns its JSON output.
    ///
    /// # Errors
    /// Its error; also when it takes longer than `limit`.
    pub fn ask(&self, limit: Duration, arguments: &[&str]) -> Result<Value> {
        cluster::succeeds(self.command().args(arguments), limit)
    }

    /// Whether all OSDs are up, and all PGs clean.
    ///
    /// # Errors
    /// When the monitors do not answer.
    pub fn is_clean(&self) -> Result<bool> {
        Ok(is_clean(&self.ask(COMMAND_MAX, &["status"])?))
    }

    /// Waits until it is clean.
    ///
    /// # Errors
    /// When it takes too long.
    pub fn await_clean(&self) -> Result<()> {
        bounded::until("all OSDs are up and all groups clean", CLEAN_MAX, || {
            Ok(self.is_clean()?.then_some(()))
        })
    }

    /// Ends all daemons, drops the kernel's page cache, and starts them again; returns the number
    /// of seconds from then until everything is clean.
    ///
    /// # Errors
    /// When they do not come up.
    pub fn restart(&mut self) -> Result<f64> {
        self.down()?;
        forget_pages()?;
        let ((), seconds) = timed(|| {
            match self.system {
                System::Nacre => {
                    let mut up = Command::new(&self.nacre);
                    up.args(["--json", "up", "--processes", "--detach", "--dir"])
                        .arg(&self.dir);
                    cluster::succeeds(&mut up, UP_MAX)?;
                }
                System::Ceph | System::Tuned => drop(ceph::up(&self.dir, &[])?),
            }
            self.await_clean()
        })?;
        Ok(seconds)
    }

    /// Ends all daemons.
    ///
    /// # Errors
    /// When one does not end.
    pub fn down(&mut self) -> Result<()> {
        match self.system {
            System::Nacre => {
                let mut down = Command::new(&self.nacre);
                cluster::succeeds(
                    down.args(["--json", "down", "--dir"]).arg(&self.dir),
                    UP_MAX,
                )?;
            }
            System::Ceph | System::Tuned => ceph::down(&self.dir)?,
        }
        if let Some(mut child) = self.child.take() {
            bounded::ended(&mut child, COMMAND_MAX).context("an OSD that was started again")?;
        }
        Ok(())
    }

    /// Sends a daemon a signal such as `KILL`.
    ///
    /// # Errors
    /// When it is not running.
    pub fn signal(&self, who: &str, name: &str) -> Result<()> {
        let path = self.dir.join("run").join(format!("{who}.pid"));
        let text = fs::read_to_string(&path)
            .with_context(|| format!("{who} does not run: {}", path.display()))?;
        let pid = text
            .trim()
            .parse()
            .with_context(|| format!("{} holds no number", path.display()))?;
        ensure!(
            self.processes().contains(&pid),
            "{who} does not run: process {pid} is another"
        );
        cluster::signal(pid, name)
    }

    /// Starts an OSD again.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_osd(&mut self, id: u32) -> Result<()> {
        match self.system {
            System::Nacre => {
                let log = File::options()
                    .create(true)
                    .append(true)
                    .open(self.dir.join("run/again.log"));
                let mut daemon = Command::new(&self.nacre);
                daemon
                    .args(["osd", "run", "--id", &id.to_string(), "--config"])
                    .arg(&self.dir);
                daemon
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(log.context("opening a log")?);
                self.child = Some(daemon.spawn().context("the OSD does not start")?);
            }
            System::Ceph | System::Tuned => ceph::start(&self.dir, &format!("osd.{id}"))?,
        }
        Ok(())
    }

    /// Creates a file system and waits for its server.
    ///
    /// # Errors
    /// When no server has it in time.
    pub fn serve_files(&self) -> Result<()> {
        match self.system {
            System::Nacre => {
                self.ask(COMMAND_MAX, &["fs", "create", mounted::NAME])?;
                mounted::await_ranks(1, |words| self.ask(COMMAND_MAX, words)).map(drop)
            }
            System::Ceph | System::Tuned => ceph::serve_files(&self.dir.join("ceph.conf")),
        }
    }

    /// Mounts it with the system's own program, as a separate process.
    ///
    /// # Errors
    /// When it is not mounted in time.
    pub fn mount(&self, place: &Path) -> Result<Mount> {
        match self.system {
            System::Nacre => Mount::with(self.command(), place, &self.dir.join("run/mount.log")),
            System::Ceph | System::Tuned => costs::ceph_fuse(&self.dir.join("ceph.conf"), place),
        }
    }

    /// All processes of the cluster.
    fn processes(&self) -> Vec<u32> {
        guard::processes(&self.dir)
            .into_iter()
            .map(|(pid, _)| pid)
            .collect()
    }

    /// Memory of all daemons, in MiB.
    pub fn resident_mib(&self) -> f64 {
        // A process that has ended meanwhile uses none.
        self.processes()
            .into_iter()
            .filter_map(|pid| machine::resident_mib(pid).ok())
            .sum()
    }
}

/// Drops the kernel's page cache.
fn forget_pages() -> Result<()> {
    let synced = bounded::output(&mut Command::new("sync"), COMMAND_MAX)?;
    ensure!(synced.status.success(), "sync failed");
    fs::write("/proc/sys/vm/drop_caches", "3")
        .context("dropping the kernel's caches, which only root may")
}

fn is_clean(status: &Value) -> bool {
    status["osds"]["up"].as_u64() == Some(OSDS)
        && cluster::all_groups(status, |state| state == "active+clean")
}

/// Runs `run`; also returns the number of seconds that it took.
pub fn timed<T>(run: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let begun = Instant::now();
    Ok((run()?, begun.elapsed().as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn clean_is_all_osds_and_all_groups() {
        let status =
            |up: u64, states| json!({ "osds": { "up": up }, "pgs": { "by_state": states } });
        assert!(is_clean(&status(3, json!({ "active+clean": 33 }))));
        assert!(!is_clean(&status(2, json!({ "active+clean": 33 }))));
        assert!(!is_clean(&status(
            3,
            json!({ "active+clean": 32, "active+undersized+degraded": 1 })
        )));
        assert!(!is_clean(&status(3, json!({}))));
    }
}
