//! Hostile scripts sent to a running cluster without a pause: each is stopped with a clear error,
//! with little effect on other clients (MAL-24).

use super::site::Site;
use crate::cluster::load::{Load, Work};
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const HANG: Duration = Duration::from_mins(5);
/// Maximum time that one script may delay its caller: the evaluator's clock ends it after three
/// seconds, and it may wait for the previous one.
const ENDS: Duration = Duration::from_secs(20);
/// Number of alternations between quiet phases and scripts.
const ROUNDS: u32 = 3;

/// The scripts are those of the sandbox's tests: the first line of each states the expected result.
fn scripts() -> Result<(PathBuf, BTreeMap<String, String>)> {
    let folder = Workspace::load()?.root.join("crates/policy/tests/zoo");
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        let first = text.lines().next().unwrap_or_default();
        let expected = first
            .strip_prefix("-- expect: ")
            .with_context(|| format!("{} expects nothing", path.display()))?;
        all.insert(
            path.file_stem()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default(),
            expected.to_owned(),
        );
    }
    ensure!(
        all.len() >= 25,
        "only {} scripts in {}",
        all.len(),
        folder.display()
    );
    Ok((folder, all))
}

fn peaceful(pool: &str, seconds: u64) -> Work<'_> {
    Work {
        mode: "overwrite",
        size: "4KiB",
        depth: 4,
        objects: 512,
        seconds,
        pool,
        keep: false,
    }
}

/// Runs the scenario.
///
/// # Errors
/// When a script is not stopped, gives no message, or ends a daemon; or when data read back is
/// wrong.
pub fn run(site: &mut Site) -> Result<()> {
    let (folder, scripts) = scripts()?;
    let cluster = site.cluster(1, 3)?;
    cluster.pools(&["quiet", "others", "hostile"])?;
    let before: Vec<u32> = cluster.pids().collect();
    let state = || -> Result<_> {
        Ok((
            cluster.ask(&["osd", "tree"])?,
            cluster.ask(&["mon", "stat"])?["term"].clone(),
        ))
    };
    // It contains instances: an OSD that was marked down has another one afterwards.
    let stood = state()?;
    let seconds = site.seconds.unwrap_or(20).max(20);
    // Alternating, so that other load on the machine affects both equally.
    let (mut peace, mut meanwhile) = (Vec::new(), Vec::new());
    let (mut sent, mut longest) = (0, 0.0_f64);
    let mut stopped = 0_u32;
    for _ in 0..ROUNDS {
        peace.push(p99(
            &Load::begin(&cluster, peaceful("quiet", seconds))?.finish()?
        ));
        let others = Load::begin(&cluster, peaceful("others", seconds))?;
        let sending = (seconds - 6).to_string();
        let words = [
            "bench",
            "scripts",
            "--pool",
            "hostile",
            "--seconds",
            &sending,
        ];
        let said = cluster.ask_with(HANG, &words, &folder)?;
        meanwhile.push(p99(&others.finish()?));
        sent += said["sent"].as_u64().context("no count")?;
        stopped = 0;
        let rows = said["scripts"].as_array().context("no scripts")?;
        ensure!(
            rows.len() == scripts.len(),
            "{} of {} scripts were run",
            rows.len(),
            scripts.len()
        );
        for row in rows {
            let name = row["script"].as_str().context("no name")?;
            let expected = scripts
                .get(name)
                .with_context(|| format!("{name} is none of ours"))?;
            // The result of some of them depends on the object's content; on the model of the tests
            // no data is in memory.
            let may_end_well =
                expected.starts_with("Ok") || expected == "Wait" || expected.starts_with("Errno");
            match row["failure"].as_str() {
                Some(why) => {
                    ensure!(
                        !why.is_empty() && why.lines().count() == 1,
                        "{name} says no clear line: {why:?}"
                    );
                    stopped += 1;
                }
                None => ensure!(
                    may_end_well,
                    "{name} should end with {expected}, and did not"
                ),
            }
            let took = row["longest_ms"].as_f64().context("no time")? / 1e3;
            ensure!(
                took < ENDS.as_secs_f64(),
                "{name} kept its caller for {took} s"
            );
            longest = longest.max(took);
        }
    }
    let after: Vec<u32> = cluster.pids().collect();
    ensure!(before == after, "a daemon is another process than before");
    let stands = state()?;
    ensure!(
        stood == stands,
        "an OSD was marked down, or the leader changed: {stood:?}, now {stands:?}"
    );
    cluster.await_health(HANG)?;

    site.figures
        .note("hostile scripts", scripts.len() as f64, "");
    site.figures.note(
        "of these ended with an error of one line",
        f64::from(stopped),
        "",
    );
    site.figures
        .note("sent, one after the other", sent as f64, "");
    site.figures
        .note("longest that one kept its caller", longest, "s");
    let (peace, meanwhile) = (median(peace), median(meanwhile));
    site.figures.note("others' p99 in peace", peace, "ms");
    site.figures
        .at_most(peace * 2.0, "others' p99 meanwhile", meanwhile, "ms");
    site.figures.proved("every script was stopped or ended, no daemon restarted or was marked down, the leader stayed, nothing that others wrote is wrong");
    Ok(())
}

fn p99(figures: &Value) -> f64 {
    figures["p99_us"].as_f64().unwrap_or(f64::NAN) / 1000.0
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
