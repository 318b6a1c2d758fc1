//! Public test suites for file systems, and demanding programs, on one mount.
//!
//! ```text
//!  cluster, server, standby, mount ─▶ for each suite: its tools are there? ─▶ a folder of the mount ─▶ passed, or WRONG
//!                                     └─▶ umount ─▶ fs check ─▶ mounted again: what was left is there ─▶ fs check
//! ```
//! A failed suite does not stop the others: each failure is reported, and all again at the end.
//!
//! * [`tools`]: third-party programs, found or installed; [`posix`]: pjdfstest and fsx;
//! * [`stress`]: fio and stress-ng; [`databases`]: SQLite and PostgreSQL; [`everyday`]: git, rsync,
//!   cargo.

mod databases;
mod everyday;
mod posix;
mod stress;
mod tools;

use super::mounted;
use super::site::Site;
use super::trees;
use crate::cluster::Cluster;
use crate::cluster::files::Mount;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

/// The environment of a suite.
struct Ground<'a> {
    site: &'a mut Site,
    /// A directory of the mount used only by the suite.
    dir: PathBuf,
    /// A directory that is not on the mount.
    aside: PathBuf,
}

impl Ground<'_> {
    /// A prerequisite of a suite, if available; otherwise the suite is skipped, which is reported.
    fn needs<T>(&mut self, suite: &str, had: Result<T>) -> Option<T> {
        had.inspect_err(|why| self.site.figures.skipped(suite, &format!("{why:#}")))
            .ok()
    }
    /// The same for a program from a package.
    fn has(&mut self, suite: &str, package: &str) -> bool {
        self.needs(suite, tools::package(package, package, "a suite"))
            .is_some()
    }
}

type Suite = (&'static str, fn(&mut Ground) -> Result<()>);

const SUITES: &[Suite] = &[
    ("pjdfstest", posix::pjdfstest),
    ("fsx", posix::fsx),
    ("fio", stress::fio),
    ("git", everyday::git),
    ("rsync", everyday::rsync),
    ("cargo", everyday::cargo),
    ("sqlite", databases::sqlite),
    ("postgresql", databases::postgresql),
    ("stress-ng", stress::stress_ng),
];

/// Runs all suites.
///
/// # Errors
/// The failures of all suites; also when the file system is not consistent afterwards.
pub fn run(site: &mut Site) -> Result<()> {
    if !mounted::is_possible(site, "suites on a mount") {
        return Ok(());
    }
    let cluster = mounted::serve(site)?;
    suites(site, &cluster)
}

/// The same on a Ceph cluster.
///
/// # Errors
/// As [`run`].
pub fn run_on_ceph(site: &mut Site) -> Result<()> {
    if !mounted::is_possible(site, "suites on a mount") {
        return Ok(());
    }
    if let Err(why) = crate::ceph::obtain() {
        site.figures
            .skipped("suites on a mount", &format!("{why:#}"));
        return Ok(());
    }
    // The servers end first.
    let (_ceph, cluster) = mounted::serve_on_ceph(site)?;
    suites(site, &cluster)
}

fn suites(site: &mut Site, cluster: &Cluster) -> Result<()> {
    for name in &site.only {
        ensure!(
            SUITES.iter().any(|(suite, _)| suite == name),
            "there is no suite `{name}`"
        );
    }
    let place = site.dir.join("mount");
    let mount = Mount::new(cluster, &place)?;
    let mut wrong = Vec::new();
    for (name, suite) in SUITES {
        if !site.only.is_empty() && !site.only.iter().any(|only| only == name) {
            continue;
        }
        let (dir, aside) = (mount.dir().join(name), site.dir.join("aside").join(name));
        let begun = Instant::now();
        let result = (|| {
            for folder in [&dir, &aside] {
                fs::create_dir_all(folder)
                    .with_context(|| format!("making {}", folder.display()))?;
            }
            suite(&mut Ground {
                site: &mut *site,
                dir,
                aside,
            })
        })();
        match result {
            Ok(()) => {
                site.figures
                    .note(&format!("{name}: took"), begun.elapsed().as_secs_f64(), "s")
            }
            Err(why) => {
                eprintln!("  WRONG {name}: {why:#}");
                wrong.push(format!("{name}: {why:#}"));
            }
        }
    }
    left(site, mount, cluster).unwrap_or_else(|why| wrong.push(format!("{why:#}")));
    ensure!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    Ok(())
}

/// Checks that the file system is consistent after everything, and that another mount sees the
/// files left in it.
fn left(site: &mut Site, mount: Mount, cluster: &Cluster) -> Result<()> {
    let place = mount.dir().to_owned();
    mount.end().context("unmounting")?;
    mounted::check(site, cluster)?;
    let again = Mount::new(cluster, &place).context("mounting it again")?;
    let (kept, came) = (site.dir.join("aside/rsync/tree"), place.join("rsync/tree"));
    if kept.exists() {
        trees::same(&kept, &came).context("the tree that rsync brought, seen by the next mount")?;
        site.figures
            .proved("rsync: the next mount sees the same tree");
    }
    fs::read_dir(&place)
        .context("listing the next mount")?
        .for_each(drop);
    again.end().context("unmounting the second time")
}
