//! One directory through all changes that a cluster may go through; after each step everything is
//! read back.
//!
//! ```text
//!  embedded ─▶ processes ─▶ embedded ─▶ processes: 1 ─▶ 3 monitors, the first killed ─▶ groups split
//!                             a monitor away for 1,500 changes comes back ◀─ OSD out, in, added ◀─┘
//! ```
//! A tree imported at the beginning is exported and compared after each step; loads read back their
//! own data.

use super::site::Site;
use super::trees;
use crate::bounded;
use crate::cluster::load::{Load, field, overwrite};
use crate::cluster::{Cluster, is_clean};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const UP_MAX: Duration = Duration::from_mins(2);
const HEALED_MAX: Duration = Duration::from_mins(5);
const COPY_MAX: Duration = Duration::from_mins(5);
/// Time after which the immediate effects of a death are over.
const HARM: Duration = Duration::from_secs(3);
const OSDS: u32 = 4;
const CHANGES: u32 = 1_500;

/// Runs the scenario.
///
/// # Errors
/// When data differs from what was written, or something hangs.
pub fn run(site: &mut Site) -> Result<()> {
    let dir = site.dir.join("cluster");
    let from = site.dir.join("files");
    trees::make(&from, 400, 2)?;
    let tree = Tree {
        from,
        to: site.dir.join("exported"),
    };

    forms(site, &dir, &tree)?;
    let mut cluster = Cluster::at(&site.nacre, &dir);
    cluster.run_all(1, OSDS)?;
    await_clean(&cluster, None)?;
    monitors(site, &mut cluster)?;
    tree.is_there(&cluster)?;
    split(site, &cluster)?;
    tree.is_there(&cluster)?;
    placement(site, &mut cluster)?;
    tree.is_there(&cluster)?;
    away(site, &mut cluster)?;
    tree.is_there(&cluster)?;
    site.figures
        .proved("the tree imported in the beginning, after every step");
    cluster.await_health(HEALED_MAX)
}

/// The tree that is imported once and must not change.
struct Tree {
    from: PathBuf,
    to: PathBuf,
}

impl Tree {
    fn import(&self, cluster: &Cluster) -> Result<()> {
        let words = ["object", "import", "data"];
        cluster.ask_with(COPY_MAX, &words, &self.from).map(drop)
    }
    fn is_there(&self, cluster: &Cluster) -> Result<()> {
        cluster.ask_with(COPY_MAX, &["object", "export", "data"], &self.to)?;
        trees::same(&self.from, &self.to).context("the tree imported in the beginning")?;
        fs::remove_dir_all(&self.to).context("removing what was exported")
    }
}

/// The same directory in one process, in many, and in one again.
fn forms(site: &mut Site, dir: &Path, tree: &Tree) -> Result<()> {
    let cluster = Cluster::at(&site.nacre, dir);
    let port = site.base_port.to_string();
    cluster.up(&["--osds", "4", "--mons", "1", "--base-port", &port])?;
    cluster.ask(&["pool", "create", "clients", "--size", "3", "--pg-num", "32"])?;
    tree.import(&cluster)?;
    let verify = |what: &str, site: &mut Site| -> Result<()> {
        Load::begin(&cluster, overwrite("clients", 3))
            .and_then(Load::finish)
            .context(what.to_owned())?;
        tree.is_there(&cluster)?;
        cluster.down()?;
        site.figures.proved(what);
        Ok(())
    };
    verify("nacre up --detach: data read back", site)?;
    cluster.up(&["--processes"])?;
    verify("nacre up --processes --detach: data read back", site)?;
    let mut up = cluster.up_attached(&[])?;
    bounded::until("nacre up serves", UP_MAX, || {
        up.must_run()?;
        Ok(cluster.ask(&["status"]).ok().filter(is_clean))
    })?;
    verify("nacre up: data read back", site)?;
    up.finish(UP_MAX).map(drop)
}

/// One monitor becomes three, then the first one dies.
fn monitors(site: &mut Site, cluster: &mut Cluster) -> Result<()> {
    let load = Load::begin(cluster, overwrite("clients", 12))?;
    let begun = Instant::now();
    for id in [1, 2] {
        cluster.ask(&["mon", "add", &id.to_string()])?;
        cluster.run("mon", id)?;
        await_votes(cluster, id as usize + 1)?;
    }
    site.figures.note(
        "from one monitor to three that vote, under load",
        begun.elapsed().as_secs_f64(),
        "s",
    );
    let figures = load.finish()?;
    site.figures.at_most(
        1000.0,
        "meanwhile: longest without an answer",
        field(&figures, "longest_gap_ms"),
        "ms",
    );
    let load = Load::begin(cluster, overwrite("clients", 8))?;
    load.must_last(HARM)?;
    let at = cluster.kill("mon.0")?;
    cluster.await_change(UP_MAX)?;
    site.figures.at_most(
        2.0,
        "the first one killed: the map is changed after",
        at.elapsed().as_secs_f64(),
        "s",
    );
    let figures = load.finish()?;
    site.figures.at_most(
        1000.0,
        "meanwhile: longest without an answer",
        field(&figures, "longest_gap_ms"),
        "ms",
    );
    cluster.run("mon", 0)?;
    await_votes(cluster, 3)?;
    site.figures
        .proved("one monitor to three, the first killed: data read back");
    Ok(())
}

/// Splits the PGs of a pool in use.
fn split(site: &mut Site, cluster: &Cluster) -> Result<()> {
    cluster.ask(&["pool", "create", "split", "--size", "3", "--pg-num", "16"])?;
    let load = Load::begin(cluster, overwrite("split", 12))?;
    let begun = Instant::now();
    cluster.ask(&["pool", "set", "split", "pg_num", "64"])?;
    let words = ["pg", "ls", "--pool", "split"];
    cluster.until("the split groups are clean", HEALED_MAX, &words, |groups| {
        let groups = groups["pgs"].as_array()?;
        (groups.len() == 64 && groups.iter().all(|group| group["state"] == "active+clean"))
            .then_some(())
    })?;
    site.figures.note(
        "16 groups split into 64 under load, clean after",
        begun.elapsed().as_secs_f64(),
        "s",
    );
    let figures = load.finish()?;
    site.figures.at_most(
        1000.0,
        "meanwhile: longest without an answer",
        field(&figures, "longest_gap_ms"),
        "ms",
    );
    site.figures
        .proved("groups split under load: data read back");
    Ok(())
}

/// An OSD is marked out and in; another OSD is added.
fn placement(site: &mut Site, cluster: &mut Cluster) -> Result<()> {
    for (what, empty) in [("out", true), ("in", false), ("add", false)] {
        let load = Load::begin(cluster, overwrite("clients", 12))?;
        let begun = Instant::now();
        let id = if what == "add" {
            let added = cluster.ask(&["osd", "add"])?;
            let id = added["id"]
                .as_u64()
                .and_then(|id| u32::try_from(id).ok())
                .context("osd add names no OSD")?;
            cluster.run("osd", id)?;
            id
        } else {
            cluster.ask(&["osd", what, "0"])?;
            0
        };
        await_clean(cluster, Some((id, empty)))?;
        site.figures.note(
            &format!("osd {what} under load: clean after"),
            begun.elapsed().as_secs_f64(),
            "s",
        );
        let figures = load.finish()?;
        let gap = field(&figures, "longest_gap_ms");
        site.figures.at_most(
            1000.0,
            &format!("osd {what}: longest without an answer"),
            gap,
            "ms",
        );
        site.figures
            .proved(&format!("osd {what} under load: data read back"));
    }
    Ok(())
}

/// A monitor misses more changes than are kept individually (`mon.compact_entries`, 1,000); the
/// others compact. All are started again.
fn away(site: &mut Site, cluster: &mut Cluster) -> Result<()> {
    cluster.kill("mon.2")?;
    let begun = Instant::now();
    let mut epoch = cluster.change_map()?;
    for _ in 1..CHANGES {
        let next = cluster.change_map()?;
        ensure!(next > epoch, "the map went from epoch {epoch} to {next}");
        epoch = next;
    }
    let rate = f64::from(CHANGES) / begun.elapsed().as_secs_f64();
    site.figures
        .note("1,500 changes of the map, one command each, at", rate, "/s");
    let back = Instant::now();
    cluster.run("mon", 2)?;
    await_votes(cluster, 3)?;
    site.figures.note(
        "a monitor that missed them votes again after",
        back.elapsed().as_secs_f64(),
        "s",
    );
    cluster.kill("mon.1")?;
    cluster.run("mon", 1)?;
    await_votes(cluster, 3)?;
    // Only these two are left for a majority: both must have everything.
    cluster.kill("mon.0")?;
    let last = cluster.await_change(UP_MAX)?;
    ensure!(
        last > epoch,
        "the map went back from epoch {epoch} to {last}"
    );
    cluster.run("mon", 0)?;
    await_votes(cluster, 3)?;
    Load::begin(cluster, overwrite("clients", 3))?.finish()?;
    site.figures.proved("monitors that compacted, and one that missed it, started again: they agree; data read back");
    Ok(())
}

/// Waits until this number of monitors vote and are reachable.
fn await_votes(cluster: &Cluster, count: usize) -> Result<()> {
    bounded::until(&format!("{count} monitors vote"), UP_MAX, || {
        Ok(cluster
            .ask(&["mon", "stat"])
            .ok()
            .filter(|stat| votes(stat) == count)
            .map(drop))
    })
}

fn votes(stat: &Value) -> usize {
    let votes = |mon: &&Value| {
        matches!(mon["role"].as_str(), Some("leader" | "follower")) && mon["reachable"] == true
    };
    stat["mons"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(votes)
        .count()
}

/// Waits until all PGs are clean, and an OSD has none (`true`) or some (`false`).
fn await_clean(cluster: &Cluster, osd: Option<(u32, bool)>) -> Result<()> {
    bounded::until("all groups are clean", HEALED_MAX, || {
        if let Some((id, empty)) = osd {
            let df = cluster.ask(&["osd", "df"])?;
            let osds = df["osds"].as_array().context("osd df has no osds")?;
            let groups = osds
                .iter()
                .find(|osd| osd["id"] == id)
                .and_then(|osd| osd["pgs"].as_u64());
            if groups.is_none_or(|groups| (groups == 0) != empty) {
                return Ok(None);
            }
        }
        Ok(cluster.ask(&["status"]).ok().filter(is_clean).map(drop))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn monitors_that_only_learn_or_are_gone_do_not_vote() {
        let mon = |role, reachable| json!({ "role": role, "reachable": reachable });
        let stat = json!({ "mons": [mon("leader", true), mon("follower", true), mon("follower", false), mon("catching up", true)] });
        assert_eq!(votes(&stat), 2);
    }
}
