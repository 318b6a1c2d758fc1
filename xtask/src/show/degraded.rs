//! Many writes while an OSD is dead; it returns and recovers by its log, while clients continue.
//!
//! ```text
//!  control load ─▶ osd.0 dies under load ─▶ 50,000 objects without it ─▶ it starts under load ─▶ HEALTH_OK
//!   p99 in peace    overwrites go on         100 B, 4 KiB, 64 KiB        groups that backfill? clients' p99, rate, CPU, disk
//! ```

use super::site::Site;
use super::trees;
use crate::bench::disk;
use crate::cluster::Cluster;
use crate::cluster::load::{Load, Work, field, overwrite};
use crate::machine::{self, cpu_seconds};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const HANG: Duration = Duration::from_mins(2);
const HEALED_MAX: Duration = Duration::from_mins(10);
/// Polling interval of the PGs.
const LOOK: Duration = Duration::from_millis(100);
/// Sizes and numbers of objects: some 400 MB, and three times that on the disk.
const MIX: [(&str, u64, u64); 3] = [
    ("100", 100, 25_000),
    ("4KiB", 4 << 10, 20_000),
    ("64KiB", 64 << 10, 5_000),
];
/// Time after which the immediate effects of a death are over.
const HARM: Duration = Duration::from_secs(3);
/// Number of existing objects that are overwritten while it is dead.
const OVERWRITTEN: u64 = 5_000;

/// Runs the scenario.
///
/// # Errors
/// When data differs from what was written, or the cluster does not heal.
pub fn run(site: &mut Site) -> Result<()> {
    let alone = disk(&site.nacre, &site.dir, 2.0)?;
    let mut cluster = site.cluster(1, 4)?;
    cluster.pools(&["mixed", "clients"])?;
    let peace = Load::begin(&cluster, overwrite("clients", 8))?.finish()?;
    site.figures
        .note("clients in peace: p99", field(&peace, "p99_us") / 1e3, "ms");

    // The overwritten objects existed before: when the OSD returns, its versions are old.
    let load = Load::begin(
        &cluster,
        Work {
            keep: true,
            objects: OVERWRITTEN,
            ..overwrite("mixed", 10)
        },
    )?;
    load.must_last(HARM)?;
    cluster.kill("osd.0")?;
    cluster.await_osd(0, false, HANG)?;
    let overwritten = load.finish()?;
    let begun = Instant::now();
    for (size, _, objects) in MIX {
        let work = Work {
            mode: "write",
            size,
            depth: 32,
            objects,
            seconds: 3600,
            pool: "mixed",
            keep: true,
        };
        let wrote = Load::begin(&cluster, work)?.finish()?;
        ensure!(
            field(&wrote, "ops") + field(&wrote, "unknown") == objects as f64,
            "not all objects were written: {wrote}"
        );
    }
    let written: u64 = MIX.iter().map(|(_, _, objects)| objects).sum();
    let bytes: u64 = MIX.iter().map(|(_, size, objects)| size * objects).sum();
    let gap = field(&overwritten, "longest_gap_ms");
    site.figures
        .at_most(1000.0, "an OSD dies: longest without an answer", gap, "ms");
    site.figures.note(
        "overwritten around its death",
        field(&overwritten, "ops"),
        "operations",
    );
    site.figures.note(
        "written with one OSD dead, read back",
        written as f64,
        "objects",
    );
    site.figures.note(
        "at a rate, with reading back, of",
        written as f64 / begun.elapsed().as_secs_f64(),
        "objects/s",
    );
    site.figures
        .proved("all that was written without it, read back");
    export(&cluster, &site.dir.join("without-osd.0"))?;
    back(site, &mut cluster, bytes as f64 / written as f64, &alone)
}

/// The OSD returns.
fn back(site: &mut Site, cluster: &mut Cluster, object_bytes: f64, alone: &Value) -> Result<()> {
    let called = cluster
        .ask(&["status"])?
        .pointer("/data/degraded")
        .and_then(Value::as_f64)
        .unwrap_or(0.0);
    ensure!(called > 0.0, "nothing is called degraded with an OSD dead");
    let load = Load::begin(cluster, overwrite("clients", 30))?;
    let begun = cluster.run("osd", 0)?;
    let cpu = |cluster: &Cluster| cluster.pids().map(cpu_seconds).sum::<Result<f64>>();
    let cpu_before = cpu(cluster)?;
    let all_before = machine::busy_seconds()?;
    cluster.await_osd(0, true, HANG)?;
    let mut backfilled = BTreeSet::new();
    loop {
        let groups = cluster.ask(&["pg", "ls"])?;
        let groups = groups["pgs"].as_array().context("pg ls has no pgs")?;
        let filling = groups.iter().filter(|group| {
            group["state"]
                .as_str()
                .is_some_and(|state| state.contains("backfill"))
        });
        backfilled.extend(filling.map(|group| group["pg"].to_string()));
        if cluster.ask(&["health"])?["status"] == "ok" {
            break;
        }
        ensure!(
            begun.elapsed() < HEALED_MAX,
            "not healed in {} s: {}",
            HEALED_MAX.as_secs(),
            cluster.ask(&["health"])?
        );
        sleep(LOOK);
    }
    let took = begun.elapsed().as_secs_f64();
    let (used, all) = (
        cpu(cluster)? - cpu_before,
        machine::busy_seconds()? - all_before,
    );
    let figures = load.finish()?;
    // Every object in the pool was written or overwritten while it was dead.
    let groups = cluster.ask(&["pg", "ls", "--pool", "mixed", "--osd", "0"])?;
    let groups = groups["pgs"].as_array().context("pg ls has no pgs")?;
    let missing: f64 = groups
        .iter()
        .filter_map(|group| group["objects"].as_f64())
        .sum();
    let rate = missing / took;
    site.figures
        .note("called degraded before it started", called, "objects");
    site.figures.note(
        "missing on it when it started: all in its groups",
        missing,
        "objects",
    );
    site.figures
        .note("from its start to HEALTH_OK under load", took, "s");
    site.figures.at_most(
        0.0,
        "groups seen to backfill instead of going by the log",
        backfilled.len() as f64,
        "groups",
    );
    site.figures.note("recovered", rate, "objects/s");
    site.figures.note(
        "recovered (mean size of the mix)",
        rate * object_bytes / 1e6,
        "MB/s",
    );
    let disk = if alone["unbuffered"] == true {
        "the disk alone"
    } else {
        "the disk alone, through the page cache"
    };
    site.figures
        .note(disk, field(alone, "write_mb_per_s"), "MB/s");
    let whole = took * machine::processors() as f64;
    site.figures.note(
        "processors' time that the daemons had meanwhile",
        used / whole * 100.0,
        "%",
    );
    site.figures.note(
        "that everybody had, the client and strangers too",
        all / whole * 100.0,
        "%",
    );
    site.figures.note(
        "clients over 30 s around it: p99",
        field(&figures, "p99_us") / 1e3,
        "ms",
    );
    site.figures.at_most(
        1000.0,
        "clients around it: longest without an answer",
        field(&figures, "longest_gap_ms"),
        "ms",
    );
    site.figures.proved("clients' data read back");

    // The recovered replicas are read, not only counted: with another OSD dead they are needed.
    cluster.kill("osd.1")?;
    cluster.await_osd(1, false, HANG)?;
    export(cluster, &site.dir.join("without-osd.1"))?;
    let same = trees::same(
        &site.dir.join("without-osd.0"),
        &site.dir.join("without-osd.1"),
    )?;
    site.figures.note(
        "compared with another OSD dead instead",
        same as f64,
        "objects",
    );
    site.figures
        .proved("with another OSD dead instead, every object is what it was");
    Ok(())
}

fn export(cluster: &Cluster, to: &Path) -> Result<()> {
    let words = ["object", "export", "mixed"];
    cluster.ask_with(HEALED_MAX, &words, to).map(drop)
}
