//! State that must not grow without bound: clients that come and go, and objects of one PG with
//! snapshots that are taken and removed (F18, F52).
//!
//! ```text
//!  one group: 20,000 clients ─▶ measure ─▶ 193,000 more ─▶ measure    memory · bytes to bring a replica back · time until it is
//!  one group: 10⁶ objects    ─▶ snapshot ─▶ 1,000 overwritten ─▶ removed ─▶ how soon their space is back
//! ```

use super::site::Site;
use crate::cluster::Cluster;
use crate::cluster::load::field;
use crate::machine::{resident_mib, written_bytes};
use anyhow::{Result, ensure};
use serde_json::Value;
use std::thread::sleep;
use std::time::{Duration, Instant};

const HEALED_MAX: Duration = Duration::from_mins(5);
const WORK_MAX: Duration = Duration::from_mins(60);
const HANG: Duration = Duration::from_mins(2);
/// The scale of F18: a client per second for two and a half days. The first number is enough to
/// fill the client records of a PG.
const LIVES: [u64; 2] = [20_000, 193_000];
/// Time until written data is in its final location and reported.
const SETTLED: Duration = Duration::from_secs(10);
const OBJECTS: u64 = 1_000_000;
const OVERWRITTEN: u64 = 1_000;
/// Limit: nothing grows by more than this factor.
const GROWN: f64 = 1.25;

/// Runs the scenario.
///
/// # Errors
/// When anything is refused or hangs.
pub fn run(site: &mut Site) -> Result<()> {
    let mut cluster = site.cluster(1, 3)?;
    cluster.ask(&["pool", "create", "sessions", "--size", "3", "--pg-num", "1"])?;
    cluster.await_health(HEALED_MAX)?;
    let mut first: Option<Seen> = None;
    let mut total = 0;
    for count in LIVES {
        total += count;
        let number = count.to_string();
        let words = ["bench", "sessions", &number, "--at-once", "16", "--pool"];
        let said = cluster.ask_for(WORK_MAX, &[&words[..], &["sessions"]].concat())?;
        let what = format!("{total} clients");
        site.figures.note(
            &format!("{what}: the last {count} in"),
            field(&said, "seconds"),
            "s",
        );
        site.figures.note(
            &format!("{what}: the slowest, with its connection"),
            field(&said, "longest_ms"),
            "ms",
        );
        let seen = look(&mut cluster)?;
        seen.say(site, &what, first.as_ref());
        first.get_or_insert(seen);
    }
    cluster.ask(&["pool", "create", "many", "--size", "3", "--pg-num", "1"])?;
    cluster.await_health(HEALED_MAX)?;
    fill(&cluster, "64KiB", OVERWRITTEN)?;
    let few = trim(&cluster)?;
    site.figures.note(
        "a group of 1,000 objects, all overwritten, the snapshot removed: space is back after",
        few,
        "s",
    );
    let wrote = fill(&cluster, "100", OBJECTS)?;
    site.figures.note(
        "1,000,000 more objects in this group are written in",
        field(&wrote, "seconds"),
        "s",
    );
    let many = trim(&cluster)?;
    site.figures.note(
        "the same 1,000 overwritten, the snapshot removed: space is back after",
        many,
        "s",
    );
    // Space is reported every two seconds: a shorter time cannot be measured.
    site.figures
        .at_most(6.0, "longer than before", many - few, "s");
    let seen = look(&mut cluster)?;
    seen.say(site, "1,000,000 objects in one group", None);
    cluster.await_health(HEALED_MAX)
}

/// The resources of an OSD.
struct Seen {
    memory: f64,
    restart: f64,
    written: f64,
}

impl Seen {
    fn say(&self, site: &mut Site, what: &str, first: Option<&Self>) {
        let mut one = |name: &str, found: f64, of: fn(&Self) -> f64, unit| match first.map(of) {
            Some(first) => {
                site.figures
                    .at_most(first * GROWN, &format!("{what}: {name}"), found, unit)
            }
            None => site.figures.note(&format!("{what}: {name}"), found, unit),
        };
        one("memory of an OSD", self.memory, |seen| seen.memory, "MiB");
        one(
            "a replica that missed an update is back after",
            self.restart,
            |seen| seen.restart.max(2.0),
            "s",
        );
        one(
            "it wrote for that",
            self.written,
            |seen| seen.written,
            "MiB",
        );
    }
}

/// Stops an OSD, lets it miss an update, starts it, and measures its recovery.
fn look(cluster: &mut Cluster) -> Result<Seen> {
    let memory = resident_mib(cluster.pid("osd.1")?)?;
    cluster.end("osd.2")?;
    cluster.await_osd(2, false, HANG)?;
    cluster.ask_for(HANG, &["bench", "sessions", "1", "--pool", "sessions"])?;
    let begun = cluster.run("osd", 2)?;
    cluster.await_osd(2, true, HANG)?;
    cluster.await_health(HEALED_MAX)?;
    let written = written_bytes(cluster.pid("osd.2")?)? / 1048576.0;
    Ok(Seen {
        memory,
        restart: begun.elapsed().as_secs_f64(),
        written,
    })
}

fn fill(cluster: &Cluster, size: &str, count: u64) -> Result<Value> {
    let objects = count.to_string();
    let mut words = vec!["bench", "fill", "write", "--set", size, "--size", size];
    words.extend(["--depth", "128", "--pool", "many", "--objects", &objects]);
    let said = cluster.ask_for(WORK_MAX, &words)?;
    ensure!(
        field(&said, "done") == count as f64,
        "not all objects were written: {said}"
    );
    Ok(said)
}

/// Overwrites 64 MiB under a snapshot and removes it; returns the number of seconds until the space
/// of its clones is reclaimed.
fn trim(cluster: &Cluster) -> Result<f64> {
    // Three times the clones' bytes, minus their index.
    const CLONES: f64 = 3.0 * 50e6;
    let used = |df: &Value| field(df, "used_bytes");
    sleep(SETTLED);
    let before = used(&cluster.ask(&["df"])?);
    cluster.ask(&["pool", "snap", "create", "many", "s"])?;
    fill(cluster, "64KiB", OVERWRITTEN)?;
    cluster.until("the clones are counted", HANG, &["df"], |df| {
        (used(df) > before + CLONES).then_some(())
    })?;
    cluster.ask(&["pool", "snap", "rm", "many", "s"])?;
    let begun = Instant::now();
    cluster.until("the clones are gone", WORK_MAX, &["df"], |df| {
        (used(df) < before + CLONES / 10.0).then_some(())
    })?;
    Ok(begun.elapsed().as_secs_f64())
}
