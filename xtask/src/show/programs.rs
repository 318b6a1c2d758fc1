//! A class is installed, upgraded and rolled back under load: nothing restarts, no cache is lost,
//! no call fails, every answer names the activation that ran (MAL-01, -02, -06).

use super::site::Site;
use crate::bounded;
use crate::cluster::Cluster;
use crate::cluster::client::Client;
use crate::cluster::load::{self, Load};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::thread::sleep;
use std::time::Duration;

const HANG: Duration = Duration::from_mins(5);
const STEP: Duration = Duration::from_secs(4);
/// The class of the library on which the paper's log is built.
const ZLOG: &str = include_str!("../../../crates/policy/library/classes/zlog.lua");

/// Sum of a counter that the OSDs write.
fn counted(cluster: &Cluster, what: &str) -> Result<u64> {
    // They write it once per second.
    sleep(Duration::from_millis(1500));
    let mut sum = 0;
    for entry in fs::read_dir(cluster.dir().join("run")).context("reading the daemons' folder")? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "moved") {
            let text = fs::read_to_string(&path)?;
            let line = text.lines().find_map(|line| line.strip_prefix(what));
            sum += line
                .and_then(|number| number.trim().parse::<u64>().ok())
                .unwrap_or(0);
        }
    }
    Ok(sum)
}

/// Runs the scenario.
///
/// # Errors
/// When a call fails, an object's calls go back to an older version, or a daemon has another
/// instance than before.
pub fn run(site: &mut Site) -> Result<()> {
    let cluster = site.cluster(3, 3)?;
    cluster.pools(&["logs", "others"])?;
    let before: Vec<u32> = cluster.pids().collect();
    let source = |name: &str, text: &str| -> Result<String> {
        let path = site.dir.join(name);
        fs::write(&path, text).context("writing a source")?;
        Ok(path.to_string_lossy().into_owned())
    };
    let one = source("one.lua", ZLOG)?;
    let two = source("two.lua", &format!("{ZLOG}\n-- the second version\n"))?;
    let others = Load::begin(&cluster, load::overwrite("others", 40))?;
    let installed = cluster.ask(&["class", "install", "zlog", &one])?;
    let first = installed["activation"].as_u64().context("an activation")?;

    let mut command = cluster.command();
    command.args([
        "bench",
        "call",
        "--class",
        "zlog",
        "--method",
        "write",
        "--input",
        "1 {n}\nan entry of the log",
    ]);
    command.args([
        "--objects",
        "64",
        "--depth",
        "8",
        "--seconds",
        "24",
        "--pool",
        "logs",
    ]);
    let calls = Client::begin(&mut command, &site.dir.join("calls.said"))?;
    sleep(STEP);
    let warm = counted(&cluster, "contexts ")?;
    let upgraded = cluster.ask(&["class", "install", "zlog", &two])?;
    sleep(STEP);
    let rolled = cluster.ask(&["class", "rollback", "zlog"])?;
    sleep(STEP);
    let cold = counted(&cluster, "contexts ")?;
    let fetched = counted(&cluster, "programs ")?;
    let found = calls.finish(Duration::from_secs(24) + HANG)?;
    others.finish()?;

    ensure!(
        found["failed"] == 0 && found["unknown"] == 0,
        "calls failed: {found}"
    );
    ensure!(
        found["backwards"] == 0,
        "calls of an object went back to an older version: {found}"
    );
    let mut expected = vec![first];
    for reply in [&upgraded, &rolled] {
        expected.push(reply["activation"].as_u64().context("an activation")?);
    }
    let ran: Vec<u64> = found["activations"]
        .as_object()
        .into_iter()
        .flat_map(|all| all.keys())
        .filter_map(|n| n.parse().ok())
        .collect();
    let mut sorted = ran.clone();
    sorted.sort_unstable();
    ensure!(
        sorted == expected,
        "calls were answered by activations {sorted:?}, not {expected:?}"
    );
    let after: Vec<u32> = cluster.pids().collect();
    ensure!(before == after, "a daemon is another process than before");
    ensure!(
        fetched == 6,
        "three OSDs fetched {fetched} sources, not two each: a rollback needs none"
    );
    let log = cluster.ask(&["log", "last", "50"])?.to_string();
    for text in ["version 1 is active", "version 2 is active"] {
        ensure!(log.contains(text), "the cluster log does not say {text:?}");
    }

    site.figures.note(
        "calls of zlog.write while it was upgraded and rolled back",
        found["ops"].as_f64().unwrap_or(f64::NAN),
        "",
    );
    site.figures.note(
        "of these per second",
        found["ops_per_s"].as_f64().unwrap_or(f64::NAN),
        "",
    );
    site.figures.note(
        "longest time without an answer",
        found["longest_gap_ms"].as_f64().unwrap_or(f64::NAN),
        "ms",
    );
    // The new source is an object too: its primary reads it once.
    site.figures.at_most(
        1.0,
        "objects read anew through both changes of version",
        (cold - warm) as f64,
        "",
    );
    site.figures
        .proved("no call failed, none of an object went back, every answer named what ran, no daemon restarted");
    the_whole_life(&cluster)?;
    site.figures
        .proved("a class that does not compile is refused with its line; who may not is told so");
    cluster.await_health(HANG)
}

/// The life cycle of a class, on the command line.
fn the_whole_life(cluster: &Cluster) -> Result<()> {
    let broken = cluster.dir().join("broken.lua");
    fs::write(
        &broken,
        "function write(input, output)\n  return 1 +\nend\n",
    )
    .context("writing a source")?;
    let refused = |arguments: &[&str], says: &str| -> Result<()> {
        let mut command = cluster.command();
        let output = bounded::output(command.args(arguments), HANG)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            !output.status.success() && said.contains(says),
            "{arguments:?} should be refused with {says:?}: {said}"
        );
        Ok(())
    };
    let broken = broken.to_string_lossy().into_owned();
    refused(&["class", "install", "zlog", &broken], "zlog:3")?;
    refused(
        &["--as", "bob", "class", "rollback", "zlog"],
        "may not install",
    )?;
    refused(
        &[
            "class",
            "exec",
            "logs",
            "an-object",
            "zlog",
            "no_such_method",
        ],
        "no_such_method",
    )?;
    cluster.ask_for(HANG, &["class", "diff", "zlog"]).map(drop)
}
