//! Under load: an OSD killed and started again, two stopped and one of them once more within half a
//! minute each, the leading monitor killed.
//!
//! Every fault has a separate load, so that its longest time without an answer is caused by that
//! fault. Two pools alternate: a load prepares its objects while the previous one reads back.

use super::site::Site;
use crate::cluster::Cluster;
use crate::cluster::load::{Load, field, overwrite};
use anyhow::{Context, Result, ensure};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Duration for which an OSD is stopped.
const STOPPED: Duration = Duration::from_secs(8);
/// Seconds for which a load runs around that.
const WORKED: u64 = 16;
/// Time after which the immediate effects of a fault are over.
const HARM: Duration = Duration::from_secs(5);
const HEALED_MAX: Duration = Duration::from_mins(5);
/// Anything that should take a second or two is a hang after this time.
const HANG: Duration = Duration::from_mins(1);
const COMMITS: usize = 20;

/// Runs the scenario.
///
/// # Errors
/// When data differs from what was written, or something hangs.
pub fn run(site: &mut Site) -> Result<()> {
    let mut cluster = site.cluster(3, 4)?;
    cluster.pools(&["even", "odd"])?;

    commits(site, &cluster)?;
    killed(site, &mut cluster)?;
    stopped(site, &mut cluster)?;
    leader(site, &mut cluster)?;
    cluster.await_health(HEALED_MAX)?;
    site.figures.proved("HEALTH_OK in the end");
    Ok(())
}

fn commits(site: &mut Site, cluster: &Cluster) -> Result<()> {
    let mut took = Vec::new();
    for _ in 0..COMMITS {
        let begun = Instant::now();
        cluster.change_map()?;
        took.push(begun.elapsed());
    }
    took.sort();
    let median = took[COMMITS / 2].as_secs_f64() * 1e3;
    site.figures.at_most(
        20.0,
        "a change of the map, the whole command, median of 20",
        median,
        "ms",
    );
    Ok(())
}

fn killed(site: &mut Site, cluster: &mut Cluster) -> Result<()> {
    let load = Load::begin(cluster, overwrite("even", 10))?;
    load.must_last(HARM)?;
    let at = cluster.kill("osd.0")?;
    let seen = cluster.await_osd(0, false, HANG)?;
    site.figures.note(
        "killed OSD: marked down after",
        (seen - at).as_secs_f64() * 1e3,
        "ms",
    );
    let figures = load.finish()?;
    site.figures.at_most(
        1000.0,
        "killed OSD: longest without an answer",
        field(&figures, "longest_gap_ms"),
        "ms",
    );
    site.figures.proved("killed OSD: data read back");

    let load = Load::begin(cluster, overwrite("odd", 10))?;
    load.must_last(HARM)?;
    let begun = cluster.run("osd", 0)?;
    let seen = cluster.await_osd(0, true, HANG)?;
    site.figures.at_most(
        1.0,
        "started again under load: up after",
        (seen - begun).as_secs_f64(),
        "s",
    );
    let figures = load.finish()?;
    site.figures.note(
        "started again: longest without an answer",
        field(&figures, "longest_gap_ms"),
        "ms",
    );
    site.figures.proved("started again: data read back");
    cluster.await_health(HEALED_MAX)
}

/// Label of a stop, the OSD that is stopped, and the pool of its load. An OSD that was marked down
/// and returned is given a longer grace period.
const STOPS: [(&str, u32, &str); 3] = [
    ("stopped OSD", 1, "even"),
    ("another one stopped", 2, "odd"),
    ("the same stopped again", 2, "even"),
];

fn stopped(site: &mut Site, cluster: &mut Cluster) -> Result<()> {
    let mut next = Load::begin(cluster, overwrite(STOPS[0].2, WORKED))?;
    let mut last = None;
    for (at, (what, id, _)) in STOPS.into_iter().enumerate() {
        let who = format!("osd.{id}");
        next.must_last(HARM)?;
        let stopped = cluster.signal(&who, "STOP")?;
        if let Some(last) = last.replace(stopped) {
            site.figures.at_most(
                30.0,
                &format!("{what}: after"),
                (stopped - last).as_secs_f64(),
                "s",
            );
        }
        sleep(STOPPED);
        cluster.signal(&who, "CONT")?;
        cluster.await_osd(id, true, HANG)?;
        // The next load prepares while this one reads back.
        let load = match STOPS.get(at + 1) {
            Some((_, _, pool)) => {
                std::mem::replace(&mut next, Load::begin(cluster, overwrite(pool, WORKED))?)
            }
            None => break,
        };
        said(site, what, load)?;
    }
    said(site, STOPS[STOPS.len() - 1].0, next)?;
    cluster.await_health(HEALED_MAX)
}

fn said(site: &mut Site, what: &str, load: Load) -> Result<()> {
    let gap = field(&load.finish()?, "longest_gap_ms");
    site.figures.at_most(
        3000.0,
        &format!("{what}: longest without an answer"),
        gap,
        "ms",
    );
    site.figures.proved(&format!("{what}: data read back"));
    Ok(())
}

fn leader(site: &mut Site, cluster: &mut Cluster) -> Result<()> {
    let leads = cluster.ask(&["mon", "stat"])?["leader"]
        .as_u64()
        .context("mon stat names no leader")?;
    let load = Load::begin(cluster, overwrite("even", 10))?;
    load.must_last(HARM)?;
    let at = cluster.kill(&format!("mon.{leads}"))?;
    cluster.await_change(HANG)?;
    let changed = Instant::now();
    site.figures.at_most(
        2.0,
        "killed leader: the map is changed after",
        (changed - at).as_secs_f64(),
        "s",
    );
    let figures = load.finish()?;
    site.figures.at_most(
        1000.0,
        "killed leader: longest without an answer",
        field(&figures, "longest_gap_ms"),
        "ms",
    );
    site.figures.proved("killed leader: data read back");
    let now = cluster.ask(&["mon", "stat"])?["leader"].as_u64();
    ensure!(
        now.is_some() && now != Some(leads),
        "mon.{leads} was killed and is still called the leader"
    );
    cluster.run("mon", u32::try_from(leads).context("a small number")?)?;
    Ok(())
}
