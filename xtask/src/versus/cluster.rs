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

use crate::cluster::files::{self, Mount};
use crate::cluster::{Cluster, guard, is_clean};
use crate::show::costs;
use crate::{bounded, ceph, machine};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Number of OSDs, and of replicas of every object.
pub const OSDS: u64 = 3;
/// Number of placement groups of the pool.
pub const GROUPS: u64 = 32;
/// The pool.
pub const POOL: &str = "bench";

const COMMAND_MAX: Duration = Duration::from_mins(1);
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

/// A running system. The owner must have a guard for the directory above: dropping this stops
/// nothing that `up` started.
pub struct Side {
    system: System,
    /// The means to run Nacre's commands on it.
    pub cluster: Cluster,
}

impl Side {
    /// Creates one in a directory that does not exist, with its pool.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn up(system: System, nacre: &Path, dir: &Path, base_port: u16) -> Result<Self> {
        let cluster = match system {
            System::Nacre => Cluster::at(nacre, dir),
            System::Ceph | System::Tuned => Cluster::on_ceph(nacre, dir, &dir.join("ceph.conf")),
        };
        let side = Self { system, cluster };
        let (osds, port) = (OSDS.to_string(), base_port.to_string());
        let shape = ["--mons", "1", "--osds", &osds, "--base-port", &port];
        side.start(match system {
            System::Nacre => &shape,
            System::Ceph => &[],
            System::Tuned => &["--tuned"],
        })?;
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
        side.cluster.ask(&pool)?;
        side.await_clean()?;
        Ok(side)
    }

    /// Creates it, or starts the existing one.
    fn start(&self, how: &[&str]) -> Result<()> {
        match self.system {
            System::Nacre => {
                let how = [&["--processes"], how].concat();
                self.cluster.up(&how).map(drop)
            }
            System::Ceph | System::Tuned => ceph::up(self.cluster.dir(), how).map(drop),
        }
    }

    /// Waits until all OSDs are up and all PGs clean.
    ///
    /// # Errors
    /// When it takes too long.
    pub fn await_clean(&self) -> Result<()> {
        let what = "all OSDs are up and all groups clean";
        self.cluster.until(what, CLEAN_MAX, &["status"], |status| {
            is_whole(status).then_some(())
        })
    }

    /// Ends all daemons, drops the kernel's page cache, and starts them again; returns the number
    /// of seconds from then until everything is clean.
    ///
    /// # Errors
    /// When they do not come up.
    pub fn restart(&self) -> Result<f64> {
        self.down()?;
        forget_pages()?;
        let ((), seconds) = timed(|| {
            self.start(&[])?;
            self.await_clean()
        })?;
        Ok(seconds)
    }

    /// Ends all daemons.
    ///
    /// # Errors
    /// When one does not end.
    pub fn down(&self) -> Result<()> {
        match self.system {
            System::Nacre => self.cluster.down(),
            System::Ceph | System::Tuned => ceph::down(self.cluster.dir()),
        }
    }

    /// Starts an OSD again.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_osd(&mut self, id: u32) -> Result<()> {
        match self.system {
            System::Nacre => self.cluster.run("osd", id).map(drop),
            System::Ceph | System::Tuned => ceph::start(self.cluster.dir(), &format!("osd.{id}")),
        }
    }

    /// Creates a file system and waits for its server.
    ///
    /// # Errors
    /// When no server has it in time.
    pub fn serve_files(&self) -> Result<()> {
        match self.system {
            System::Nacre => {
                self.cluster.ask(&["fs", "create", files::NAME])?;
                files::await_server(&self.cluster).map(drop)
            }
            System::Ceph | System::Tuned => {
                ceph::serve_files(&self.cluster.dir().join("ceph.conf"))
            }
        }
    }

    /// Mounts it with the system's own program, as a separate process.
    ///
    /// # Errors
    /// When it is not mounted in time.
    pub fn mount(&self, place: &Path) -> Result<Mount> {
        match self.system {
            System::Nacre => {
                let log = self.cluster.dir().join("run/mount.log");
                Mount::with(self.cluster.command(), place, &log)
            }
            System::Ceph | System::Tuned => {
                costs::ceph_fuse(&self.cluster.dir().join("ceph.conf"), place)
            }
        }
    }

    /// Memory of all daemons, in MiB.
    pub fn resident_mib(&self) -> f64 {
        // A process that has ended meanwhile uses none.
        guard::processes(self.cluster.dir())
            .into_iter()
            .filter_map(|(pid, _)| machine::resident_mib(pid).ok())
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

/// Whether all OSDs are up, and all PGs clean.
pub fn is_whole(status: &Value) -> bool {
    status["osds"]["up"].as_u64() == Some(OSDS) && is_clean(status)
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
    fn whole_is_all_osds_and_all_groups() {
        let status =
            |up: u64, states| json!({ "osds": { "up": up }, "pgs": { "by_state": states } });
        assert!(is_whole(&status(3, json!({ "active+clean": 33 }))));
        assert!(!is_whole(&status(2, json!({ "active+clean": 33 }))));
        assert!(!is_whole(&status(
            3,
            json!({ "active+clean": 32, "active+undersized+degraded": 1 })
        )));
        assert!(!is_whole(&status(3, json!({}))));
    }
}
