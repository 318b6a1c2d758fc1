//! Stores filled to the last byte under load: writes that need space are refused at once, deletes
//! continue, everything can restart, and health is good after deleting (F10 to F15, F24).
//!
//! ```text
//!  stores of 1 GiB ──────────────────────────────┐
//!  the same, fragmented: full, then 7 of 8 gone ─┼─▶ load ─▶ fill: 1 MiB, 64 KiB, 4 KiB, 100 B ─▶ delete some ─▶ restart all
//!  a host's file system of 600 MiB (root) ───────┘              (others take the rest of the host)      └▶ all there? delete all ─▶ HEALTH_OK
//! ```

use super::site::Site;
use crate::chaos::disks::Small;
use crate::cluster::ledger::Ledger;
use crate::cluster::load::field;
use crate::cluster::{Cluster, Setup};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::time::Duration;

const OSDS: u32 = 3;
const OSD_SIZE: &str = "1GiB";
const HOST: &str = "600M";
const HEALED_MAX: Duration = Duration::from_mins(5);
const FILL_MAX: Duration = Duration::from_mins(20);
const UP_MAX: Duration = Duration::from_mins(1);
/// Sizes written in turn, each until no more of that size are accepted.
const SIZES: [&str; 4] = ["1MiB", "64KiB", "4KiB", "100"];
/// Limit: the maximum time until a refusal.
const REFUSED_MS: f64 = 1_000.0;
/// One object of this many of each set stays in a store that is fragmented on purpose: 12 %.
const STAYS: u64 = 8;
const SOME: u64 = 20;

/// Runs the scenario.
///
/// # Errors
/// When acknowledged data is missing, a daemon ends, or space is not reclaimed.
pub fn run(site: &mut Site) -> Result<()> {
    let setup = Setup {
        osd_size: Some(OSD_SIZE),
        ..Setup::default()
    };
    {
        let mut cluster = site.cluster_with(1, OSDS, &setup)?;
        let capacity = filled(site, &mut cluster, "3 × 1 GiB", None)?;
        let (kept, written) = fragment(&cluster)?;
        let again = filled(site, &mut cluster, "fragmented", None)?;
        site.figures.note(
            "fragmented: bytes taken, of what the empty store took",
            again / capacity * 100.0,
            "%",
        );
        let left = fill(&cluster, "verify", "fragments", "4KiB", written, &[])?;
        let found = field(&left, "done");
        ensure!(
            found == kept as f64,
            "{found} of {kept} objects between which the store was filled are there"
        );
        site.figures
            .proved("fragmented: what was there before is there");
    }
    fs::remove_dir_all(site.dir.join("cluster")).context("removing a cluster")?;
    // The ports are free again; the directory is a different one, because the mounted file system
    // hides it.
    let host = site.dir.join("host");
    fs::create_dir(&host).context("making a folder")?;
    let small = match Small::under(&host, HOST, Some(&site.dir.join("host.image"))) {
        Ok(small) => small,
        Err(why) => {
            println!(
                "  SKIPPED: a host's file system of 600 MiB: this user cannot mount one ({why:#})"
            );
            return Ok(());
        }
    };
    let dir = host.join("cluster");
    let mut cluster = Cluster::start(&site.nacre, &dir, site.base_port, 1, OSDS, &setup)?;
    filled(site, &mut cluster, "a host of 600 MiB", Some(&small)).map(drop)
}

/// Fills a cluster and runs all following steps; returns the number of bytes that it accepted.
fn filled(site: &mut Site, cluster: &mut Cluster, what: &str, host: Option<&Small>) -> Result<f64> {
    let name = what.replace(' ', "-");
    let (full, others) = (format!("full-{name}"), format!("others-{name}"));
    cluster.pools(&[&full, &others])?;
    let how = "--clients 2 --pause-ms 5 --seconds 7200";
    let mut load = Ledger::begin(cluster, &others, how)?;
    let (mut sets, mut longest, mut taken) = (Vec::new(), 0.0_f64, 0.0);
    for (size, bytes) in SIZES.into_iter().zip([1048576.0, 65536.0, 4096.0, 100.0]) {
        let said = fill(cluster, "write", &full, size, 1_000_000, &[])?;
        longest = longest.max(field(&said, "longest_refusal_ms"));
        ensure!(
            field(&said, "refused") > 0.0,
            "{size}: nothing was refused: {said}"
        );
        taken += field(&said, "done") * bytes;
        sets.push((
            size,
            field(&said, "done") + field(&said, "refused") + field(&said, "unknown"),
            said,
        ));
        if let Some(host) = host.filter(|_| size == "64KiB") {
            let hog = host.fill()?;
            site.figures.note(
                &format!("{what}: taken by others"),
                hog as f64 / 1048576.0,
                "MiB",
            );
        }
    }
    site.figures
        .note(&format!("{what}: taken"), taken / 1048576.0, "MiB");
    site.figures.at_most(
        REFUSED_MS,
        &format!("{what}: longest refusal"),
        longest,
        "ms",
    );
    let some = fill(cluster, "thin", &full, SIZES[0], SOME, &[])?;
    ensure!(
        field(&some, "unknown") == 0.0,
        "deleting on full stores: {some}"
    );
    site.figures.at_most(
        REFUSED_MS,
        &format!("{what}: longest deletion while full"),
        field(&some, "longest_ms"),
        "ms",
    );
    let deleted = field(&some, "done");

    for id in 0..OSDS {
        cluster.kill(&format!("osd.{id}"))?;
    }
    cluster.kill("mon.0")?;
    cluster.run_all(1, OSDS)?;
    for id in 0..OSDS {
        cluster.await_osd(id, true, UP_MAX)?;
    }
    for (size, begun, said) in &sets {
        let found = fill(cluster, "verify", &full, size, *begun as u64, &[])?;
        let least = field(said, "done") - if *size == SIZES[0] { deleted } else { 0.0 };
        ensure!(
            field(&found, "done") >= least,
            "{what}: of {said} is left after a restart: {found}"
        );
    }
    site.figures.proved(&format!(
        "{what}: all killed and started again, all is there"
    ));
    for (size, begun, _) in &sets {
        fill(cluster, "thin", &full, size, *begun as u64, &[])?;
    }
    cluster.await_health(HEALED_MAX)?;
    site.figures
        .proved(&format!("{what}: HEALTH_OK after deleting"));
    load.end(UP_MAX)?;
    load.verify(cluster)?;
    site.figures
        .proved(&format!("{what}: what the load was told is so"));
    Ok(taken)
}

/// Fills a pool with small objects and deletes 7 of 8; returns the number that stay, and the number
/// tried: some of the last were refused, and lie between those that stay.
fn fragment(cluster: &Cluster) -> Result<(u64, u64)> {
    cluster.pools(&["fragments"])?;
    let said = fill(cluster, "write", "fragments", "4KiB", 10_000_000, &[])?;
    let written = (field(&said, "done") + field(&said, "refused") + field(&said, "unknown")) as u64;
    fill(
        cluster,
        "thin",
        "fragments",
        "4KiB",
        written,
        &["--keep-every", &STAYS.to_string()],
    )?;
    let left = fill(cluster, "verify", "fragments", "4KiB", written, &[])?;
    cluster.await_health(HEALED_MAX)?;
    Ok((field(&left, "done") as u64, written))
}

/// Runs `nacre bench fill` in a pool: a separate set for each size.
fn fill(
    cluster: &Cluster,
    mode: &str,
    pool: &str,
    size: &str,
    objects: u64,
    more: &[&str],
) -> Result<Value> {
    let (set, objects) = (format!("{pool}-{size}"), objects.max(1).to_string());
    let mut words = vec!["bench", "fill", mode, "--set", &set, "--size", size];
    words.extend(["--pool", pool, "--objects", &objects]);
    words.extend(more);
    cluster.ask_for(FILL_MAX, &words)
}
