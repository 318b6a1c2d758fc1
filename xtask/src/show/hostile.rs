//! Hostile scripts sent to a running cluster, one after the other without a pause: each is stopped with a clear error, and others hardly notice (MAL-24).

use super::load::{Load, Work};
use super::site::Site;
use crate::bounded;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

const HANG: Duration = Duration::from_mins(5);
/// Longest that one script may keep its caller: the evaluator's clock ends it after three seconds, and it may wait for the one before.
const ENDS: Duration = Duration::from_secs(20);

/// The sandbox's own tests have them: what comes of each is in its first line.
fn scripts() -> Result<Vec<(String, String, PathBuf)>> {
    let folder = Workspace::load()?.root.join("crates/policy/tests/zoo");
    let mut all = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        let first = text.lines().next().unwrap_or_default();
        let expected =
            first.strip_prefix("-- expect: ").with_context(|| format!("{} expects nothing", path.display()))?;
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        all.push((name, expected.to_owned(), path));
    }
    all.sort();
    ensure!(all.len() >= 25, "only {} scripts in {}", all.len(), folder.display());
    Ok(all)
}

fn peaceful(pool: &str, seconds: u64) -> Work<'_> {
    Work { mode: "overwrite", size: "4KiB", depth: 4, objects: 512, seconds, pool, kept: 0, keep: false }
}

/// Shows it.
///
/// # Errors
/// When a script is not stopped, says nothing, or takes a daemon with it; or anything read back is wrong.
pub fn run(site: &mut Site) -> Result<()> {
    let scripts = scripts()?;
    let cluster = site.cluster(1, 3)?;
    for pool in ["quiet", "others", "hostile"] {
        cluster.ask(&["pool", "create", pool, "--size", "3", "--pg-num", "32"])?;
    }
    cluster.await_health(HANG)?;
    let before: Vec<u32> = cluster.pids().collect();
    let seconds = site.seconds.unwrap_or(30).max(20);
    let quiet = Load::begin(&cluster, peaceful("quiet", seconds))?.finish()?;

    let others = Load::begin(&cluster, peaceful("others", seconds))?;
    let until = Instant::now() + Duration::from_secs(seconds.saturating_sub(6));
    let (mut sent, mut stopped, mut longest) = (0_u32, 0_u32, Duration::ZERO);
    'all: for round in 0.. {
        for (name, expected, path) in &scripts {
            // Each of them once, however long that takes.
            if round > 0 && Instant::now() > until {
                break 'all;
            }
            let mut command = cluster.command();
            command
                .args(["class", "eval", "hostile", &format!("object-{}", sent % 8)])
                .arg(path)
                .args(["f", "--input", "in"]);
            let begun = Instant::now();
            let output = bounded::output(command.stdin(Stdio::null()), ENDS).with_context(|| name.clone())?;
            longest = longest.max(begun.elapsed());
            sent += 1;
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            // What some of them do depends on what the object has; on the model of the tests it has nothing at hand.
            let may_end_well = expected.starts_with("Ok") || expected == "Wait" || expected.starts_with("Errno");
            if !output.status.success() {
                ensure!(
                    said.starts_with("nacre: ") && said.lines().count() == 1,
                    "{name} says no clear line: {said:?}"
                );
                stopped += 1;
            } else {
                ensure!(may_end_well, "{name} should end with {expected}, and did not");
            }
        }
        sleep(Duration::from_millis(1));
    }
    let disturbed = others.finish()?;
    let after: Vec<u32> = cluster.pids().collect();
    ensure!(before == after, "a daemon is another process than before");
    cluster.await_health(HANG)?;

    let p99 = |figures: &Value| figures["p99_us"].as_f64().unwrap_or(f64::NAN) / 1000.0;
    site.figures.note("hostile scripts sent, one after the other", f64::from(sent), "");
    site.figures.note("of these ended with an error of one line", f64::from(stopped), "");
    site.figures.note("longest that one kept its caller", longest.as_secs_f64(), "s");
    site.figures.note("others' p99 in peace", p99(&quiet), "ms");
    site.figures.at_most(p99(&quiet) * 2.0, "others' p99 meanwhile", p99(&disturbed), "ms");
    site.figures.proved("every script was stopped or ended, no daemon restarted, nothing that others wrote is wrong");
    Ok(())
}
