//! The cost of a file system's calls: microseconds of all processes' CPU time, compared with CephFS
//! and ceph-fuse in the same run.
//!
//! ```text
//!  ext4, the limit ──────────────────────────────────┐
//!  Nacre: mon, 3 OSDs, server, standby ─▶ mount ─────┤
//!  Ceph: mon, mgr, 3 OSDs, MDS ─▶ ceph-fuse ─────────┼▶ `calls` ─▶ rows ─▶ ratios against the goals
//!  Ceph: mon, mgr, 3 OSDs; Nacre: 2 servers ─▶ mount ─┘
//! ```
//! Large reads and writes are compared with the same operations on objects, without a file system;
//! the requests of a listing to the server are counted.
//!
//! Without Ceph (`--only nacre`, or where it is not available) there are rows and no ratios.

use super::mounted;
use super::site::Site;
use super::trees;
use crate::calls::{self, Calls, Disk, Found, Mounted};
use crate::cluster::Cluster;
use crate::cluster::files::{self, Mount};
use crate::{bounded, ceph};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const STEP_MAX: Duration = Duration::from_mins(5);
/// Large files are written and read at 80 % or more of the rate of objects of 4 MiB: the objects'
/// rate is at most this percentage of the files' rate.
const OBJECTS_FASTER: f64 = 125.0;
/// Objects of 4 MiB in flight: as many as a mount has of one file.
const OBJECTS_DEPTH: &str = "4";
/// Maximum number of requests of `ls -l` to the server, for any number of entries: pages, and path
/// lookups.
const REQUESTS_MAX: f64 = 40.0;

/// Rows with a goal relative to Ceph: the required factor.
pub const GOALS: &[(&str, f64)] = &[
    (calls::CREATE, 10.0),
    (calls::COLD_STAT, 10.0),
    (calls::FSYNC, 15.0),
    (calls::UNLINK, 10.0),
    (calls::LIST, 4.0),
    (calls::UNTAR, 6.0),
    (calls::UNTAR_SYNC, 6.0),
];

/// Runs the scenario.
///
/// # Errors
/// When a call fails or a system does not come up. A missed goal is a line.
pub fn run(site: &mut Site) -> Result<()> {
    if !mounted::is_possible(site, "what calls cost") {
        return Ok(());
    }
    let archive = archive(&site.dir)?;
    disk(site, &archive)?;
    let ours = nacre(site, &archive)?.rows;
    if site.only == ["nacre"] {
        site.figures
            .skipped("beside Ceph", "only Nacre was asked for");
        return Ok(());
    }
    if let Err(why) = ceph::obtain_files() {
        site.figures.skipped("beside Ceph", &format!("{why:#}"));
        return Ok(());
    }
    let theirs = cephfs(site, &archive)?.rows;
    for (row, goal) in GOALS {
        let ratio = ours[row] / theirs[row];
        let what = format!("{row}: of what CephFS takes, Nacre takes (goal: {goal} times less)");
        site.figures
            .at_most(100.0 / goal, &what, ratio * 100.0, "%");
    }
    // The same servers and mount on Ceph's objects: the difference is Ceph's own cost.
    for (row, found) in on_ceph(site, &archive)?.rows {
        site.figures.note(
            &format!("{row}: Nacre on Ceph, of CephFS"),
            found / theirs[row] * 100.0,
            "%",
        );
    }
    Ok(())
}

/// Creates the archive to unpack, in a directory.
///
/// # Errors
/// When it cannot be created.
pub fn archive(folder: &Path) -> Result<PathBuf> {
    let (tree, archive) = (folder.join("tree"), folder.join("tree.tar"));
    trees::make(&tree, calls::ARCHIVED, 0)?;
    let mut tar = Command::new("tar");
    bounded::printed(
        tar.arg("cf").arg(&archive).arg("-C").arg(&tree).arg("."),
        STEP_MAX,
    )?;
    Ok(archive)
}

/// The same calls on this machine's own disk.
fn disk(site: &mut Site, archive: &Path) -> Result<Found> {
    let folder = site.dir.clone();
    let mount = || Ok(Box::new(Disk::mount(&folder)?) as Box<dyn Mounted>);
    let mut note =
        |what: &str, found, unit| site.figures.note(&format!("ext4: {what}"), found, unit);
    Calls {
        folder: None,
        mount: &mount,
        requests: None,
        note: &mut note,
    }
    .all(archive)
    .context("ext4")
}

fn nacre(site: &mut Site, archive: &Path) -> Result<Found> {
    let cluster = mounted::serve(site)?;
    let (place, folder) = (site.dir.join("mount"), site.dir.clone());
    let requests = || files::requests(&cluster);
    let mount = || Ok(Box::new(Mount::new(&cluster, &place)?) as Box<dyn Mounted>);
    let mut note =
        |what: &str, found, unit| site.figures.note(&format!("Nacre: {what}"), found, unit);
    let mut calls = Calls {
        folder: Some(&folder),
        mount: &mount,
        requests: Some(&requests),
        note: &mut note,
    };
    let found = calls.all(archive).context("Nacre")?;
    let asked = found.list_requests.context("requests are counted")?;
    site.figures.at_most(
        REQUESTS_MAX,
        &format!("Nacre: {}: requests to the server", calls::LIST),
        asked,
        "",
    );
    objects(site, &cluster, &found.rows)?;
    mounted::check(site, &cluster)?;
    Ok(found)
}

/// Large reads and writes compared with those of objects.
fn objects(site: &mut Site, cluster: &Cluster, rows: &calls::Rows) -> Result<()> {
    for (mode, row) in [("write", calls::WRITES), ("read", calls::READS_AGAIN)] {
        let how = [
            "bench",
            "object",
            mode,
            "--size",
            "4MiB",
            "--depth",
            OBJECTS_DEPTH,
            "--objects",
            "64",
        ];
        let done = cluster.ask_for(
            STEP_MAX,
            &[&how[..], &["--seconds", "5", "--no-copies"]].concat(),
        )?;
        let rate = done["mb_per_s"].as_f64().context("a rate")?;
        site.figures.note(
            &format!("bench object {mode}, 4 MiB, {OBJECTS_DEPTH} in flight"),
            rate,
            "MB/s",
        );
        let what = format!("{row}: of its rate, objects of 4 MiB have");
        site.figures
            .at_most(OBJECTS_FASTER, &what, rate / rows[row] * 100.0, "%");
    }
    Ok(())
}

fn cephfs(site: &mut Site, archive: &Path) -> Result<Found> {
    let (dir, place) = (site.dir.join("ceph"), site.dir.join("fuse"));
    let conf = ceph::up(&dir, &[])?;
    ceph::serve_files(&conf)?;
    let mount = || Ok(Box::new(ceph_fuse(&conf, &place)?) as Box<dyn Mounted>);
    let folder = site.dir.clone();
    let mut note =
        |what: &str, found, unit| site.figures.note(&format!("CephFS: {what}"), found, unit);
    let mut calls = Calls {
        folder: Some(&folder),
        mount: &mount,
        requests: None,
        note: &mut note,
    };
    let found = calls.all(archive).context("CephFS")?;
    ceph::down(&dir)?;
    fs::remove_dir_all(&dir).context("removing what it had")?;
    Ok(found)
}

fn on_ceph(site: &mut Site, archive: &Path) -> Result<Found> {
    let (_ceph, cluster) = mounted::serve_on_ceph(site)?;
    let (place, folder) = (site.dir.join("mount-on-ceph"), site.dir.clone());
    let mount = || Ok(Box::new(Mount::new(&cluster, &place)?) as Box<dyn Mounted>);
    let mut note = |what: &str, found, unit| {
        site.figures
            .note(&format!("Nacre on Ceph: {what}"), found, unit)
    };
    let mut calls = Calls {
        folder: Some(&folder),
        mount: &mount,
        requests: None,
        note: &mut note,
    };
    calls.all(archive).context("Nacre on Ceph")
}

/// Mounts CephFS with its own program.
///
/// # Errors
/// When it is not mounted in time.
pub fn ceph_fuse(conf: &Path, place: &Path) -> Result<Mount> {
    let mut command = Command::new("ceph-fuse");
    command.args(["-f", "-c"]).arg(conf).arg(place);
    Mount::begin(&mut command, place, &conf.with_file_name("fuse.log"))
}
