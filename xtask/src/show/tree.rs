//! The tour with a large tree: imported, a daemon killed, everything read, recovered, another one
//! killed, everything read again.

use super::site::Site;
use super::trees;
use crate::cluster::Cluster;
use crate::cluster::client::Client;
use crate::machine::resident_mib;
use crate::{bounded, machine};
use anyhow::{Result, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

const SMALL: usize = 10_500;
const LARGE: usize = 18;
const BYTES: u64 = 500_000_000;
const UP_MAX: Duration = Duration::from_mins(2);
const TOUR_MAX: Duration = Duration::from_mins(30);
/// Time until a cluster without load is idle.
const IDLE: Duration = Duration::from_secs(10);

/// Runs the scenario.
///
/// # Errors
/// When a byte differs, or something hangs.
pub fn run(site: &mut Site) -> Result<()> {
    let from = site.dir.join("files");
    let (files, bytes) = trees::make(&from, SMALL, LARGE)?;
    ensure!(
        files >= 10_000 && bytes >= BYTES,
        "the tree is smaller than it should be: {files} files, {bytes} bytes"
    );
    site.figures
        .note("files of mixed sizes", files as f64, "files");
    site.figures.note("in them", bytes as f64 / 1e6, "MB");
    fresh(site, &from)?;

    let mut command = Command::new(&site.nacre);
    command
        .args(["--json", "tour", "--fresh", "--stay", "--from"])
        .arg(&from)
        .arg("--dir")
        .arg(site.dir.join("tour"));
    let mut tour = Client::begin(&mut command, &site.dir.join("tour.said"))?;
    let toured = bounded::until("the tour", TOUR_MAX, || {
        tour.must_run()?;
        let figures = tour.answer();
        Ok(figures.filter(|figures| figures["equal"].is_boolean()))
    })?;
    ensure!(
        toured["equal"] == true,
        "not all that was read is what was stored: {toured}"
    );
    let seconds = |name: &str| toured["seconds"][name].as_f64().unwrap_or(f64::NAN);
    site.figures.at_most(
        1.0,
        "the tour's cluster: ready after",
        seconds("ready"),
        "s",
    );
    site.figures.note(
        "imported at",
        bytes as f64 / 1e6 / seconds("import"),
        "MB/s",
    );
    site.figures
        .note("recovery of an OSD, to HEALTH_OK", seconds("recovery"), "s");
    site.figures.note(
        "read with one OSD dead at",
        bytes as f64 / 1e6 / seconds("read_with_one_osd_dead"),
        "MB/s",
    );
    site.figures.proved(
        "every hash equal: with one OSD dead, and after its recovery with another one dead",
    );
    sleep(IDLE);
    let idle = resident_mib(tour.pid())?;
    site.figures.at_most(
        100.0,
        "memory at rest after the tour, cluster and client in one process",
        idle,
        "MiB",
    );
    tour.end(UP_MAX)
}

/// An idle cluster of three OSDs, and the same after the tree was stored in it.
fn fresh(site: &mut Site, from: &Path) -> Result<()> {
    let dir = site.dir.join("fresh");
    let cluster = Cluster::at(&site.nacre, &dir);
    let made = cluster.up(&["--base-port", &site.base_port.to_string()])?;
    let ready = |up: &Value| up["ready_s"].as_f64().unwrap_or(f64::NAN);
    site.figures.at_most(
        1.0,
        "a new embedded cluster of 3 OSDs: ready after",
        ready(&made),
        "s",
    );
    let pid = cluster.pid("osd.0")?;
    sleep(IDLE);
    site.figures
        .at_most(100.0, "its memory at rest", resident_mib(pid)?, "MiB");
    let (before, pause) = (machine::cpu_seconds(pid)?, Duration::from_secs(5));
    sleep(pause);
    let used = (machine::cpu_seconds(pid)? - before) / pause.as_secs_f64();
    site.figures
        .note("its use of one processor at rest", used * 100.0, "%");
    cluster.ask_with(TOUR_MAX, &["object", "import", "data"], from)?;
    sleep(IDLE);
    site.figures.at_most(
        100.0,
        "its memory at rest with the tree in it",
        resident_mib(pid)?,
        "MiB",
    );
    cluster.down()?;
    let again = cluster.up(&["--base-port", &site.base_port.to_string()])?;
    site.figures.at_most(
        1.0,
        "the same with the tree, started again: ready after",
        ready(&again),
        "s",
    );
    cluster.down()
}
