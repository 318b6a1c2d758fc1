//! A million small objects on one OSD: it restarts as fast, and needs as little memory, as with
//! few.

use super::site::Site;
use crate::bounded;
use crate::cluster::client::Client;
use crate::cluster::load::{Load, Work, field};
use crate::cluster::{Cluster, all_groups};
use crate::machine::resident_mib;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::thread::sleep;
use std::time::{Duration, Instant};

const OBJECTS: u64 = 1_000_000;
const HANG: Duration = Duration::from_mins(2);
const CHECK_MAX: Duration = Duration::from_mins(20);
/// Time after a start until memory is measured: the initial checks are finished.
const SETTLED: Duration = Duration::from_secs(5);

/// Runs the scenario.
///
/// # Errors
/// When data differs from what was written, or the OSD does not return.
pub fn run(site: &mut Site) -> Result<()> {
    many(site, OBJECTS)
}

/// Runs the scenario with ten times as many.
///
/// # Errors
/// As [`run`].
pub fn run_ten(site: &mut Site) -> Result<()> {
    many(site, 10 * OBJECTS)
}

fn many(site: &mut Site, objects: u64) -> Result<()> {
    let mut cluster = site.cluster(1, 1)?;
    cluster.ask(&[
        "pool",
        "create",
        "many",
        "--size",
        "1",
        "--min-size",
        "1",
        "--pg-num",
        "32",
    ])?;
    await_serving(&cluster)?;
    let (_, _, empty) = again(&mut cluster)?;
    site.figures
        .note("memory of an empty OSD after a start", empty, "MiB");

    let begun = Instant::now();
    let work = Work {
        mode: "write",
        size: "100",
        depth: 64,
        objects,
        seconds: 7200,
        pool: "many",
        keep: true,
    };
    let wrote = Load::begin(&cluster, work)?.finish()?;
    ensure!(
        field(&wrote, "ops") == objects as f64,
        "not all objects were written: {wrote}"
    );
    site.figures.note(
        &format!("{objects} objects of 100 B: written at"),
        field(&wrote, "ops_per_s"),
        "/s",
    );
    site.figures.note(
        "written and read back in",
        begun.elapsed().as_secs_f64(),
        "s",
    );
    site.figures
        .note("memory then", resident_mib(cluster.pid("osd.0")?)?, "MiB");
    site.figures.proved(&format!("{objects} objects read back"));

    let (up, serving, full) = again(&mut cluster)?;
    site.figures
        .at_most(3.0, "killed and started: up after", up.as_secs_f64(), "s");
    site.figures.note(
        "killed and started: all groups serve after",
        serving.as_secs_f64(),
        "s",
    );
    site.figures.note("memory after that", full, "MiB");
    site.figures
        .at_most(20.0, "more memory than the empty OSD", full - empty, "MiB");
    let work = Work {
        mode: "overwrite",
        objects: 1000,
        seconds: 3,
        keep: false,
        ..work
    };
    Load::begin(&cluster, work)?.finish()?;
    site.figures.proved("written and read back after the start");
    check_store(site, &mut cluster, objects)
}

/// Kills the OSD and checks its store, with all data: measures memory and time (F53).
fn check_store(site: &mut Site, cluster: &mut Cluster, objects: u64) -> Result<()> {
    cluster.kill("osd.0")?;
    let mut command = cluster.command();
    command
        .args(["store", "check"])
        .arg(cluster.dir().join("osd.0"));
    let (begun, mut peak) = (Instant::now(), 0.0_f64);
    let mut check = Client::begin(&mut command, &cluster.dir().join("check.said"))?;
    bounded::until("the store is checked", CHECK_MAX, || {
        peak = peak.max(resident_mib(check.pid()).unwrap_or(0.0));
        check.ended()
    })?;
    let said = check.finish(Duration::ZERO)?;
    let found = said["stores"][0]["objects"]
        .as_u64()
        .context("how many objects it found")?;
    ensure!(
        found >= objects,
        "the check found {found} objects of {objects}"
    );
    site.figures.note(
        "killed, and its store checked with all data in",
        begun.elapsed().as_secs_f64(),
        "s",
    );
    site.figures
        .note("memory of the check at most", peak, "MiB");
    site.figures.proved(&format!(
        "{found} objects and records in the store, all sound"
    ));
    Ok(())
}

/// Kills the OSD and starts it; returns the time until it was up, the time until all PGs served,
/// and its memory a little later.
fn again(cluster: &mut Cluster) -> Result<(Duration, Duration, f64)> {
    cluster.kill("osd.0")?;
    // It has no peer that could report it; and it must not be considered up before it is.
    cluster.ask(&["osd", "down", "0"])?;
    let begun = cluster.run("osd", 0)?;
    let up = cluster.await_osd(0, true, HANG)?;
    await_serving(cluster)?;
    let serving = begun.elapsed();
    sleep(SETTLED);
    Ok((up - begun, serving, resident_mib(cluster.pid("osd.0")?)?))
}

fn await_serving(cluster: &Cluster) -> Result<()> {
    cluster.until("all groups serve", HANG, &["status"], |status| {
        is_serving(status).then_some(())
    })
}

/// Whether there are PGs and all of them are active.
fn is_serving(status: &Value) -> bool {
    all_groups(status, |state| {
        state.split('+').any(|word| word == "active")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn groups_serve_when_all_are_active() {
        let status = |states| json!({ "pgs": { "by_state": states } });
        assert!(is_serving(&status(json!({ "active+clean": 3 }))));
        assert!(!is_serving(&status(
            json!({ "active+clean": 3, "peering": 1 })
        )));
        assert!(!is_serving(&status(json!({ "inactive": 1 }))));
        assert!(!is_serving(&status(json!({}))) && !is_serving(&json!({})));
    }
}
