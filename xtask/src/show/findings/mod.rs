//! Former failures of Nacre, repeated on processes (`docs/findings.md`). Each runs on a separate
//! cluster.
//!
//! Findings that need a certain size or machine have scenarios of their own: F18 and F52 `growth`,
//! F29 `rolling`, F30 `hung`, F13 to F15 and F24 `full`, F33 to F35 `hostile`, F50 and F53
//! `ten-million`; F31 is in `./x chaos`. `docs/findings.md` lists the command line tests of the
//! others.
//!
//! * [`data`]: lost or hidden data; [`stops`]: stopped daemons or delayed clients;
//! * [`strangers`]: copied daemons, monitors that return, clusters created only in part.

mod data;
mod stops;
mod strangers;

use super::site::Site;
use crate::cluster::Cluster;
use crate::cluster::ledger::probe;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::time::Duration;

/// Maximum time until everything is healthy again.
const WELL_MAX: Duration = Duration::from_mins(3);
const WORK_MAX: Duration = Duration::from_mins(10);
const OSDS: u32 = 3;
const POOL: &str = "data";

/// A repeated finding: its number, the attempt, and the number of replicas of [`POOL`]'s objects.
struct Again(
    &'static str,
    &'static str,
    u32,
    fn(&mut Site, &mut Cluster) -> Result<()>,
);

const ALL: &[Again] = &[
    Again(
        "F1",
        "marked down while it lives, killed and started, each in turn",
        3,
        data::marked_down_alive,
    ),
    Again(
        "F2",
        "out and in again while what it had is being erased",
        2,
        data::in_while_erasing,
    ),
    Again(
        "F4",
        "listings while an update hangs",
        3,
        data::listed_while_it_hangs,
    ),
    Again(
        "F10",
        "an omap larger than the log, a snapshot, a small write",
        3,
        stops::large_omap,
    ),
    Again(
        "F11",
        "large transactions of metadata, four at once",
        3,
        stops::large_transactions,
    ),
    Again(
        "F12",
        "scattered bytes beside puts",
        3,
        stops::scattered_bytes,
    ),
    Again(
        "F16",
        "calls that the clock ends with much garbage",
        3,
        stops::garbage,
    ),
    Again(
        "F17",
        "puts to groups that do not serve, beside others",
        3,
        stops::blocked_groups,
    ),
    Again(
        "F22",
        "a copy of an OSD's folder is started elsewhere",
        3,
        strangers::copied_osd,
    ),
    Again(
        "F26",
        "a monitor is removed and added again at another port",
        3,
        strangers::monitor_comes_back,
    ),
    Again(
        "F27",
        "`up` is killed while it makes a cluster",
        3,
        strangers::killed_while_it_is_made,
    ),
    Again(
        "F41",
        "a pool of 60,000 objects is removed beside puts",
        3,
        stops::pool_removed,
    ),
];

/// Runs the scenario.
///
/// # Errors
/// A finding that occurs again.
pub fn run(site: &mut Site) -> Result<()> {
    for Again(id, what, copies, again) in ALL {
        let mut cluster = site.cluster(3, OSDS)?;
        let done = create(&cluster, POOL, *copies, 32).and_then(|()| again(site, &mut cluster));
        done.with_context(|| format!("{id}: {what}"))?;
        everybody_lives(&mut cluster).with_context(|| format!("{id}: {what}"))?;
        site.figures.proved(&format!("{id}: {what}"));
        let folder = cluster.dir().to_owned();
        drop(cluster);
        fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    Ok(())
}

/// Creates a pool, and waits until it is healthy.
fn create(cluster: &Cluster, pool: &str, size: u32, groups: u32) -> Result<()> {
    cluster.ask(&[
        "pool",
        "create",
        pool,
        "--size",
        &size.to_string(),
        "--pg-num",
        &groups.to_string(),
    ])?;
    cluster.await_health(WELL_MAX)
}

/// No daemon ended by itself, and every PG is written, called, read and deleted.
fn everybody_lives(cluster: &mut Cluster) -> Result<()> {
    cluster.await_health(WELL_MAX)?;
    for who in daemons() {
        ensure!(cluster.ended(&who)?.is_none(), "{who} ended by itself");
    }
    probe(cluster, POOL, WORK_MAX).map(drop)
}

fn daemons() -> impl Iterator<Item = String> {
    (0..3)
        .map(|id| format!("mon.{id}"))
        .chain((0..OSDS).map(|id| format!("osd.{id}")))
}

/// Kills an OSD and marks it down.
fn kill(cluster: &mut Cluster, id: u32) -> Result<()> {
    cluster.kill(&format!("osd.{id}"))?;
    // It must not be considered up before it is again.
    cluster.ask(&["osd", "down", &id.to_string()]).map(drop)
}

fn start(cluster: &mut Cluster, id: u32) -> Result<()> {
    cluster.run("osd", id)?;
    cluster.await_osd(id, true, WELL_MAX).map(drop)
}
