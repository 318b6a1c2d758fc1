//! A directory of a million entries, and a file system of ten million files: only the disk usage
//! grows with them.
//!
//! ```text
//!  100,000 in one directory ─▶ 1,000,000 in another: made, listed, looked up, removed ─▶ so much CPU per call, each
//!  ten directories of 1,000,000 that stay ─▶ the server is killed ─▶ another one has them, as soon and as small
//! ```
//! Memory is the server's peak, sampled a few times per second.

use super::mounted;
use super::site::Site;
use crate::bounded;
use crate::cluster::Cluster;
use crate::cluster::client::Client;
use crate::cluster::files::{self, Mount};
use crate::machine::{self, resident_mib};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const MILLION: u64 = 1_000_000;
/// Maximum memory per cached entry and inode, in bytes.
const ENTRY_MAX: f64 = 400.0;
/// Maximum ratio of the cost of a call with a million entries to that with a hundred thousand.
const LINEAR: f64 = 1.5;
const RUN_MAX: Duration = Duration::from_mins(40);
/// Maximum time until another server has taken over everything.
const TAKEN_OVER_MAX: f64 = 2.0;

/// Runs the scenario with one directory of a million entries.
///
/// # Errors
/// When a call fails, or the file system is not consistent.
pub fn run(site: &mut Site) -> Result<()> {
    let cluster = mounted::serve(site)?;
    let empty = server_mib(&cluster);
    let (few, _) = bench(site, &cluster, "few", MILLION / 10, false)?;
    let (many, peak) = bench(site, &cluster, "many", MILLION, false)?;
    for (row, other) in many.iter().zip(&few) {
        let times = cpu(row) / cpu(other);
        let what = format!(
            "{}: CPU of a call, times that in a directory of 100,000",
            step(row)
        );
        site.figures.at_most(LINEAR, &what, times, "");
    }
    note_memory(site, empty, peak, MILLION);
    mounted::check(site, &cluster)
}

/// Runs the scenario with ten million files.
///
/// # Errors
/// As [`run`], and when no other server takes over.
pub fn run_ten(site: &mut Site) -> Result<()> {
    let mut cluster = mounted::serve(site)?;
    let empty = server_mib(&cluster);
    let (mut peak, mut first) = (0.0_f64, None);
    for number in 0..10 {
        let (rows, used) = bench(site, &cluster, &format!("part-{number}"), MILLION, true)?;
        peak = peak.max(used);
        for row in rows {
            let of_first = *first.get_or_insert_with(|| cpu(&row));
            if step(&row) == "create" && number == 9 {
                let times = cpu(&row) / of_first;
                site.figures.at_most(
                    LINEAR,
                    "create: CPU of the tenth million, times that of the first",
                    times,
                    "",
                );
            }
        }
    }
    note_memory(site, empty, peak, 10 * MILLION);

    let mount = Mount::new(&cluster, &site.dir.join("mount"))?;
    ensure!(
        has_file(&mount.dir().join("part-0"))?,
        "the first entry of part 0 is no file"
    );
    let holder = files::await_server(&cluster)?;
    let killed = cluster.kill(&holder)?;
    fs::create_dir(mount.dir().join("after")).context("a directory, made by the next server")?;
    let took = killed.elapsed().as_secs_f64();
    site.figures.at_most(
        TAKEN_OVER_MAX,
        "the server killed: made by the next one after",
        took,
        "s",
    );
    for number in 0..10 {
        let part = mount.dir().join(format!("part-{number}"));
        let some = fs::read_dir(part)
            .context("listing")?
            .take(2_000)
            .filter(Result::is_ok)
            .count();
        ensure!(
            some == 2_000,
            "{some} of the first 2,000 entries of part {number} are listed"
        );
    }
    site.figures.note(
        "memory of the next server, which has looked at all directories",
        server_mib(&cluster),
        "MiB",
    );
    mount.end()?;
    mounted::check(site, &cluster)
}

/// Whether the first entry of a directory is a file. Nothing stays open there afterwards, unlike
/// while an entry is held.
fn has_file(dir: &Path) -> Result<bool> {
    let first = fs::read_dir(dir)
        .context("listing")?
        .next()
        .context("a million entries")??;
    Ok(first.metadata().context("looking")?.is_file())
}

/// Runs `bench files`; returns its rows, and the peak memory of the server meanwhile.
fn bench(
    site: &mut Site,
    cluster: &Cluster,
    dir: &str,
    count: u64,
    keep: bool,
) -> Result<(Vec<Value>, f64)> {
    let mut command = cluster.command();
    command.args([
        "bench",
        "files",
        "--fs",
        files::NAME,
        "--dir",
        dir,
        "--count",
        &count.to_string(),
    ]);
    if keep {
        command.arg("--keep");
    }
    let (begun, mut peak) = (Instant::now(), 0.0_f64);
    let mut client = Client::begin(&mut command, &cluster.dir().join(format!("{dir}.said")))?;
    bounded::until("names are made and removed", RUN_MAX, || {
        peak = peak.max(server_mib(cluster));
        client.ended()
    })?;
    let said = client.finish(Duration::ZERO)?;
    let rows = said.as_array().context("rows")?.clone();
    for row in &rows {
        let rate = row["per_s"].as_f64().context("a rate")?;
        site.figures.note(
            &format!("{dir}: {} of {count}: rate", step(row)),
            rate,
            "/s",
        );
        let parts = row["cpu_us"].as_object().context("parts")?;
        let parts: Vec<String> = parts
            .iter()
            .map(|(who, us)| format!("{who} {:.1}", us.as_f64().unwrap_or(0.0)))
            .collect();
        let what = format!(
            "{dir}: {} of {count}: CPU ({})",
            step(row),
            parts.join(", ")
        );
        site.figures.note(&what, cpu(row), "µs");
    }
    site.figures
        .note(&format!("{dir}: took"), begun.elapsed().as_secs_f64(), "s");
    Ok((rows, peak))
}

fn step(row: &Value) -> &str {
    row["step"].as_str().unwrap_or("?")
}
/// µs of CPU time of all processes per call.
fn cpu(row: &Value) -> f64 {
    row["cpu_us"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(_, us)| us.as_f64().unwrap_or(0.0))
        .sum()
}
/// Memory of the server that uses more: the one that has the file system.
fn server_mib(cluster: &Cluster) -> f64 {
    let of = |id| resident_mib(cluster.pid(&format!("mds.{id}")).ok()?).ok();
    (0..mounted::SERVERS).filter_map(of).fold(0.0, f64::max)
}
/// Number of entries that a server caches of `of`: those that fit into an eighth of the machine's
/// memory (`limits` in `node/src/servers.rs`).
fn kept(of: u64) -> u64 {
    (machine::memory() / 8 / 400)
        .clamp(100_000, 4_000_000)
        .min(of)
}
fn note_memory(site: &mut Site, empty: f64, peak: f64, entries: u64) {
    site.figures
        .note("memory of the server, at most", peak, "MiB");
    let each = (peak - empty) * f64::from(1 << 20) / kept(entries) as f64;
    site.figures.at_most(
        ENTRY_MAX,
        "memory per entry and inode that it keeps",
        each,
        "B",
    );
}
