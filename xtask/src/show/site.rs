//! The environment of a scenario: a separate directory, ports, and its results.

use super::figures::Figures;
use crate::ceph::{self, Throwaway};
use crate::cluster::guard::{self, Guard};
use crate::cluster::{Cluster, Setup};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Number of ports that a scenario may use, from its first.
const PORTS: u16 = 20;

/// See the module head.
pub struct Site {
    /// The program.
    pub nacre: PathBuf,
    /// The scenario's directory, removed at the end.
    pub dir: PathBuf,
    /// The first of its ports.
    pub base_port: u16,
    /// `--seconds`.
    pub seconds: Option<u64>,
    /// `--rounds`.
    pub rounds: Option<u64>,
    /// `--only`: the selected parts of a scenario; empty: all.
    pub only: Vec<String>,
    /// Its results.
    pub figures: Figures,
    /// Destination of the logs when it fails.
    kept: PathBuf,
    guard: Guard,
}

impl Site {
    /// Creates the directory, below `above`; remains of an earlier run there are stopped and
    /// removed.
    ///
    /// # Errors
    /// When the directory cannot be created or the ports are in use.
    pub fn new(
        name: &str,
        nacre: &Path,
        above: &Path,
        base_port: u16,
        seconds: Option<u64>,
    ) -> Result<Self> {
        // A directory given by the user may hold data: a subdirectory is created in it.
        let (dir, kept) = (
            above.join("nacre-show").join(name),
            above.join("nacre-show-failed").join(name),
        );
        let guard = Guard::start(nacre, &dir)?;
        guard::free_ports(base_port, PORTS)?;
        fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        let figures = Figures::default();
        let (nacre, only) = (nacre.to_owned(), Vec::new());
        Ok(Self {
            nacre,
            dir,
            base_port,
            seconds,
            rounds: None,
            only,
            figures,
            kept,
            guard,
        })
    }

    /// Creates a cluster of processes and starts it.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn cluster(&self, mons: u32, osds: u32) -> Result<Cluster> {
        self.cluster_with(mons, osds, &Setup::default())
    }

    /// As [`Self::cluster`], with another setup.
    ///
    /// # Errors
    /// As [`Self::cluster`].
    pub fn cluster_with(&self, mons: u32, osds: u32, setup: &Setup<'_>) -> Result<Cluster> {
        let dir = self.dir.join("cluster");
        Cluster::start(&self.nacre, &dir, self.base_port, mons, osds, setup)
    }

    /// A Ceph cluster in the scenario's directory, and the means to run Nacre's commands on it.
    ///
    /// # Errors
    /// Why it is not possible.
    pub fn ceph(&self, osds: u32) -> Result<(Throwaway, Cluster)> {
        ceph::obtain()?;
        let (port, osds) = (self.base_port.to_string(), osds.to_string());
        let ceph = Throwaway::up(
            &self.nacre,
            &self.dir.join("ceph"),
            &["--port", &port, "--osds", &osds, "--tuned"],
        )?;
        let cluster = Cluster::on_ceph(&self.nacre, &self.dir, &ceph.conf);
        Ok((ceph, cluster))
    }

    /// Saves the output of daemons and clients, and prints where.
    pub fn keep_logs(&self) {
        let _ = fs::remove_dir_all(&self.kept);
        match copy_texts(&self.dir, &self.kept) {
            Ok(0) => {}
            Ok(count) => eprintln!("  {count} logs are kept in {}", self.kept.display()),
            Err(why) => eprintln!(
                "  the logs cannot be kept in {}: {why}",
                self.kept.display()
            ),
        }
    }

    /// Stops and removes everything; returns the results.
    pub fn close(self) -> Figures {
        drop(self.guard);
        self.figures
    }
}

/// Copies logs, histories and the output of loads from a directory and those below, naming them by
/// file name only.
fn copy_texts(from: &Path, to: &Path) -> io::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(from)? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        let is_text = path
            .extension()
            .is_some_and(|ending| ["log", "said", "history"].iter().any(|one| ending == *one));
        if path.is_dir() && !path.is_symlink() {
            count += copy_texts(&path, &to.join(name))?;
        } else if is_text {
            fs::create_dir_all(to)?;
            fs::copy(&path, to.join(name))?;
            count += 1;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_kept_and_stores_are_not() {
        let dir = std::env::temp_dir().join(format!("nacre-show-site-{}", std::process::id()));
        let (from, to) = (dir.join("from"), dir.join("to"));
        fs::create_dir_all(from.join("cluster/osd.0")).expect("writable");
        for name in ["cluster/osd.0.log", "cluster/osd.0/store", "load-1.said"] {
            fs::write(from.join(name), name).expect("writable");
        }
        assert_eq!(copy_texts(&from, &to).expect("copies"), 2);
        assert!(to.join("cluster/osd.0.log").exists() && !to.join("cluster/osd.0").exists());
        fs::remove_dir_all(&dir).expect("removable");
    }
}
