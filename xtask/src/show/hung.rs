//! A flush that takes a minute in one of three OSDs, under the load of one client and of many:
//! clients wait for a moment, health names the disk, and acknowledged data is present when the disk
//! works again (F30).

use super::site::Site;
use crate::bounded;
use crate::cluster::Setup;
use crate::cluster::load::{Load, Work, field, overwrite};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

const HEALED_MAX: Duration = Duration::from_mins(5);
const HANG: Duration = Duration::from_mins(1);
/// Duration of the load: the flush, and its consequences.
const WORKED: u64 = 80;
/// Limits: the longest stall of clients, and the time until health names the disk.
const STALL_MS: f64 = 5_000.0;
const NAMED_S: f64 = 5.0;
/// Pools and clients.
const LOADS: [(&str, u32); 2] = [("one", 1), ("many", 16)];

/// Runs the scenario.
///
/// # Errors
/// When data differs from what was written, or the disk is never named.
pub fn run(site: &mut Site) -> Result<()> {
    let setup = Setup {
        faulty: true,
        ..Setup::default()
    };
    let mut cluster = site.cluster_with(1, 3, &setup)?;
    cluster.pools(&LOADS.map(|(pool, _)| pool))?;
    for (pool, depth) in LOADS {
        let what = format!("a flush hangs for 60 s, {depth} operations in flight");
        let load = Load::begin(
            &cluster,
            Work {
                depth,
                ..overwrite(pool, WORKED)
            },
        )?;
        load.must_last(HANG)?;
        let begun = Instant::now();
        fs::write(cluster.faults_file(), "osd.1/ flush hang 60000\n")
            .context("asking for a fault")?;
        cluster.until(
            "health names the disk",
            HANG,
            &["health", "detail"],
            |health| names_disk(health).then_some(()),
        )?;
        let named = begun.elapsed().as_secs_f64();
        site.figures.at_most(
            NAMED_S,
            &format!("{what}: health names the disk after"),
            named,
            "s",
        );
        sleep(HANG.saturating_sub(begun.elapsed()));
        fs::remove_file(cluster.faults_file()).context("ending a fault")?;
        // Its daemon ended itself, as it should (osd.device_hung_ms); a service manager would start
        // it again.
        let ended = bounded::until("the OSD whose disk hung ends", HANG, || {
            cluster.ended("osd.1")
        })?;
        ensure!(
            !ended.success(),
            "an OSD whose disk hangs ended as if all were well"
        );
        cluster.run("osd", 1)?;
        let figures = load.finish()?;
        let gap = field(&figures, "longest_gap_ms");
        site.figures.at_most(
            STALL_MS,
            &format!("{what}: clients' longest time without an answer"),
            gap,
            "ms",
        );
        site.figures.proved(&format!("{what}: data read back"));
        cluster.await_health(HEALED_MAX)?;
    }
    site.figures.proved("HEALTH_OK in the end");
    Ok(())
}

/// Whether health names the disk that does not answer.
fn names_disk(health: &Value) -> bool {
    let mut checks = health["checks"].as_array().into_iter().flatten();
    let slow = checks.find(|check| check["code"] == "DEVICE_SLOW");
    slow.is_some_and(|check| check.to_string().contains("osd.1"))
}
