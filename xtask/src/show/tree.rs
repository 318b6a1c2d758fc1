//! The tour with a large tree: imported, a daemon killed, everything read, recovered, another one
//! killed, everything read again.

use super::site::Site;
use super::trees;
use crate::cluster::load::first_json;
use crate::cluster::{Cluster, signal, succeeds};
use crate::machine::resident_mib;
use crate::{bounded, machine};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
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

    let said = site.dir.join("tour.said");
    let mut command = Command::new(&site.nacre);
    command
        .args(["--json", "tour", "--fresh", "--stay", "--from"])
        .arg(&from)
        .arg("--dir")
        .arg(site.dir.join("tour"));
    let out = File::create(&said).with_context(|| format!("writing {}", said.display()))?;
    command
        .stdin(Stdio::null())
        .stderr(out.try_clone().context("using a file twice")?)
        .stdout(out);
    let mut tour = command.spawn().context("nacre does not start")?;
    let read = || fs::read_to_string(&said).unwrap_or_default();
    let toured = bounded::until("the tour", TOUR_MAX, || {
        if let Some(status) = tour.try_wait().context("waiting for the tour")? {
            bail!("the tour failed ({status}): {}", read().trim());
        }
        Ok(first_json(&read()).filter(|figures| figures["equal"].is_boolean()))
    });
    if toured.is_err() {
        let _ = tour.kill();
    }
    let toured = toured?;
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
    let idle = resident_mib(tour.id())?;
    site.figures.at_most(
        100.0,
        "memory at rest after the tour, cluster and client in one process",
        idle,
        "MiB",
    );
    signal(tour.id(), "TERM")?;
    let status = bounded::ended(&mut tour, UP_MAX).context("the tour, told to end")?;
    ensure!(
        status.success(),
        "the tour ended badly ({status}): {}",
        read().trim()
    );
    Ok(())
}

/// An idle cluster of three OSDs, and the same after the tree was stored in it.
fn fresh(site: &mut Site, from: &Path) -> Result<()> {
    let dir = site.dir.join("fresh");
    let mut up = Command::new(&site.nacre);
    up.args([
        "--json",
        "up",
        "--detach",
        "--base-port",
        &site.base_port.to_string(),
        "--dir",
    ])
    .arg(&dir);
    let made = succeeds(&mut up, UP_MAX)?;
    let ready = |up: &Value| up["ready_s"].as_f64().unwrap_or(f64::NAN);
    site.figures.at_most(
        1.0,
        "a new embedded cluster of 3 OSDs: ready after",
        ready(&made),
        "s",
    );
    let pid = fs::read_to_string(dir.join("run/osd.0.pid")).context("reading a pid file")?;
    let pid = pid.trim().parse().context("a pid file holds a number")?;
    sleep(IDLE);
    site.figures
        .at_most(100.0, "its memory at rest", resident_mib(pid)?, "MiB");
    let (before, pause) = (machine::cpu_seconds(pid)?, Duration::from_secs(5));
    sleep(pause);
    let used = (machine::cpu_seconds(pid)? - before) / pause.as_secs_f64();
    site.figures
        .note("its use of one processor at rest", used * 100.0, "%");
    let cluster = Cluster::at(&site.nacre, &dir);
    succeeds(
        cluster
            .command()
            .args(["object", "import", "data"])
            .arg(from),
        TOUR_MAX,
    )?;
    sleep(IDLE);
    site.figures.at_most(
        100.0,
        "its memory at rest with the tree in it",
        resident_mib(pid)?,
        "MiB",
    );
    cluster.ask_for(UP_MAX, &["down"])?;
    let again = succeeds(&mut up, UP_MAX)?;
    site.figures.at_most(
        1.0,
        "the same with the tree, started again: ready after",
        ready(&again),
        "s",
    );
    cluster.ask_for(UP_MAX, &["down"]).map(drop)
}
