//! Findings in which daemons stopped or operations were delayed: F10, F11, F12, F16, F17, F41.

use super::{OSDS, POOL, WELL_MAX, WORK_MAX, create, daemons, kill, start};
use crate::bounded;
use crate::cluster::client::Client;
use crate::cluster::ledger::probe;
use crate::cluster::load::{Load, Work, field};
use crate::cluster::{Cluster, succeeds};
use crate::show::site::Site;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// Maximum time for other clients' operations meanwhile.
const OTHERS_MAX: Duration = Duration::from_secs(5);
const SEEN_MAX: Duration = Duration::from_mins(1);

/// An object's omap of 140,000 entries, or of the maximum size: more than a store's log of 128 MiB
/// can hold. Then a snapshot, and a write of five bytes: the whole omap is cloned.
pub fn large_omap(site: &mut Site, cluster: &mut Cluster) -> Result<()> {
    const ENTRIES: u32 = 140_000;
    const AT_ONCE: u32 = 1_000;
    let script = file(
        cluster,
        "large-omap.lua",
        &format!(
            "function f(i, o)
  local first = tonumber(i:str()) * {AT_ONCE}
  local value = string.rep('v', 1000)
  for n = first, first + {AT_ONCE} - 1 do objclass.map_set_val(string.format('%08d', n), value) end
end
objclass.register(f)
"
        ),
    )?;
    let mut entries = 0;
    while entries < ENTRIES {
        let input = (entries / AT_ONCE).to_string();
        let mut command = evaluating(cluster, "wide", &script, &["--input", &input]);
        let set = succeeds(&mut command, SEEN_MAX);
        if let Err(why) = set {
            println!(
                "  refused: {}",
                format!("{why:#}")
                    .rsplit("nacre: ")
                    .next()
                    .unwrap_or_default()
            );
            break;
        }
        entries += AT_ONCE;
    }
    ensure!(entries >= 10_000, "only {entries} entries were taken");
    site.figures
        .note("F10: entries of a kB in one omap", f64::from(entries), "");
    cluster.ask(&["pool", "snap", "create", POOL, "s"])?;
    put(cluster, POOL, "wide", b"hello").context("five bytes")?;
    restart_all(cluster)?;
    put(cluster, POOL, "wide", b"again").context("five bytes after a restart")?;
    cluster.ask(&["pool", "snap", "rm", POOL, "s"])?;
    cluster.ask(&["object", "rm", POOL, "wide"]).map(drop)
}

/// Rounds of four concurrent transactions of 455 kB: monitors of the default size stopped after
/// one.
pub fn large_transactions(_: &mut Site, cluster: &mut Cluster) -> Result<()> {
    let value = "x".repeat(65_000);
    for round in 0..12 {
        let puts = |lane: u32| {
            let put = |n: u32| json!({ "put": format!("large/{lane}/{n}"), "value": format!("{round}{value}") });
            json!({ "then": (0..7).map(put).collect::<Vec<_>>() }).to_string()
        };
        let all: Vec<Result<Output>> = thread::scope(|scope| {
            let begin = |lane| {
                let input = file(cluster, &format!("transaction-{lane}"), &puts(lane));
                let mut command = cluster.command();
                command.args(["meta", "txn"]);
                scope.spawn(move || {
                    let input = File::open(input?).context("reading what was just written")?;
                    bounded::output_with(&mut command, input.into(), SEEN_MAX)
                })
            };
            let lanes: Vec<_> = (0..4).map(begin).collect();
            lanes
                .into_iter()
                .map(|lane| lane.join().expect("nobody panics"))
                .collect()
        });
        for output in all {
            let output = output.context("a transaction")?;
            ensure!(
                output.status.success(),
                "round {round}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
    restart_all(cluster)?;
    let value = cluster
        .command()
        .args(["meta", "get", "large/3/6"])
        .output()
        .context("nacre does not start")?;
    let text = String::from_utf8_lossy(&value.stdout);
    ensure!(
        text.contains("11xxx"),
        "the last round is not what is there"
    );
    cluster.ask(&["meta", "rm", "--prefix", "large/"]).map(drop)
}

/// One update of many bytes, each in a different block, concurrent with large puts: it is small
/// only by its number of bytes.
pub fn scattered_bytes(_: &mut Site, cluster: &mut Cluster) -> Result<()> {
    let script = file(
        cluster,
        "scattered.lua",
        "function f(i, o)\n  for n = 0, 199 do objclass.write(n * 65536 + 7, 1, i) end\nend\nobjclass.register(f)\n",
    )?;
    let large = cluster.dir().join("large");
    fs::write(&large, vec![7; 8 << 20]).context("a file to put")?;
    let change = |lane: u32, round: u32| {
        let name = format!("lane-{lane}-{}", round % 4);
        if lane.is_multiple_of(2) {
            return evaluating(cluster, &name, &script, &["--input", "x"]);
        }
        let mut command = cluster.command();
        command.args(["object", "put", POOL, &name]).arg(&large);
        command
    };
    thread::scope(|scope| {
        let begin = |lane| {
            let commands: Vec<Command> = (0..12).map(|round| change(lane, round)).collect();
            let one_by_one = |mut command: Command| succeeds(&mut command, SEEN_MAX).map(drop);
            scope.spawn(move || commands.into_iter().try_for_each(one_by_one))
        };
        let lanes: Vec<_> = (0..6).map(begin).collect();
        lanes
            .into_iter()
            .try_for_each(|lane| lane.join().expect("nobody panics"))
    })
}

/// Calls that create garbage until the clock ends them: their objects answer, and so do heavy calls
/// of other clients.
pub fn garbage(_: &mut Site, cluster: &mut Cluster) -> Result<()> {
    // A comparison counts as one step for strings of any length: the clock ends it, not the steps.
    let hostile = file(
        cluster,
        "garbage.lua",
        "function f(i, o)
  local a, b, t = string.rep('x', 1000000), string.rep('x', 999999) .. 'y', {}
  while true do
    for n = 1, 20 do t[n] = string.rep('x', 100000 + n) end
    for n = 1, 2000 do if b < a then return end end
  end
end
objclass.register(f)
",
    )?;
    let honest = file(
        cluster,
        "heavy.lua",
        "function f(i, o)\n  local sum = 0\n  for n = 1, 300000 do sum = sum + n % 7 end\n  o:append(tostring(sum))\nend\nobjclass.register(f, { read_only = true })\n",
    )?;
    for round in 0..6 {
        let name = format!("object-{round}");
        put(cluster, POOL, &name, b"x")?;
        let ended = eval(cluster, &name, &hostile);
        ensure!(ended.is_err(), "it ends well, and has no end");
        let said = format!("{:#}", ended.err().context("an error")?);
        for what in [&name, "another"] {
            if what == "another" {
                put(cluster, POOL, what, b"y")?;
            }
            let begun = Instant::now();
            let got = cluster.ask_for(OTHERS_MAX, &["object", "stat", POOL, what]);
            got.with_context(|| format!("{what} after {said}"))?;
            eval(cluster, what, &honest).with_context(|| format!("{what} after {said}"))?;
            ensure!(
                begun.elapsed() < OTHERS_MAX * 2,
                "{what} took {:?}",
                begun.elapsed()
            );
        }
        println!("  {}", said.rsplit("nacre: ").next().unwrap_or_default());
    }
    Ok(())
}

/// One of two members of some PGs is dead, and both are required. Puts to those wait; other
/// operations of the same OSD continue.
pub fn blocked_groups(site: &mut Site, cluster: &mut Cluster) -> Result<()> {
    cluster.ask(&[
        "pool",
        "create",
        "pairs",
        "--size",
        "2",
        "--min-size",
        "2",
        "--pg-num",
        "16",
    ])?;
    cluster.await_health(WELL_MAX)?;
    let large = cluster.dir().join("large");
    fs::write(&large, vec![7; 4 << 20]).context("a file to put")?;
    cluster.ask(&["flag", "set", "noout"])?;
    kill(cluster, 0)?;
    let waits_for_osd_0 = |name: &str| -> Result<bool> {
        // (`object where` also sends a request to the object.)
        let said = cluster.ask(&["pg", "map", "pairs", name])?;
        Ok(said["acting"].as_array().context("no place")?.len() < 2)
    };
    let (mut waits, mut serve) = (Vec::new(), Vec::new());
    for n in 0..60 {
        let name = format!("object-{n}");
        if waits_for_osd_0(&name)? {
            &mut waits
        } else {
            &mut serve
        }
        .push(name);
    }
    ensure!(
        waits.len() >= 8 && serve.len() >= 4,
        "{} wait and {} are served",
        waits.len(),
        serve.len()
    );
    let mut clients = Vec::new();
    for name in waits.iter().take(12) {
        let mut command = cluster.command();
        command.args(["object", "put", "pairs", name]).arg(&large);
        let said = cluster.dir().join(format!("{name}.said"));
        clients.push(Client::begin(&mut command, &said)?);
    }
    let (begun, mut slowest) = (Instant::now(), Duration::ZERO);
    while begun.elapsed() < Duration::from_secs(25) {
        for name in &serve {
            let before = Instant::now();
            cluster
                .ask_with(OTHERS_MAX, &["object", "put", "pairs", name], &large)
                .with_context(|| format!("{name}, which is served"))?;
            slowest = slowest.max(before.elapsed());
        }
    }
    drop(clients);
    site.figures.at_most(
        OTHERS_MAX.as_secs_f64(),
        "F17: slowest put of 4 MiB beside",
        slowest.as_secs_f64(),
        "s",
    );
    start(cluster, 0)?;
    cluster.ask(&["flag", "unset", "noout"])?;
    cluster.await_health(WELL_MAX)
}

/// A pool of small objects is removed while other clients put.
pub fn pool_removed(site: &mut Site, cluster: &mut Cluster) -> Result<()> {
    create(cluster, "many", 3, 8)?;
    let fill = "bench fill write --set a --size 100 --depth 128 --pool many --objects 60000";
    let said = cluster.ask_for(WORK_MAX, &fill.split(' ').collect::<Vec<_>>())?;
    ensure!(
        field(&said, "done") == 60_000.0,
        "not all objects were written: {said}"
    );
    create(cluster, "others", 3, 8)?;
    let work = Work {
        mode: "write",
        size: "4KiB",
        depth: 4,
        objects: 1 << 20,
        seconds: 30,
        pool: "others",
        keep: false,
    };
    let load = Load::begin(cluster, work)?;
    sleep(Duration::from_secs(3));
    cluster.ask(&["pool", "rm", "many", "--yes-i-really-mean-it"])?;
    let figures = load.finish()?;
    site.figures.at_most(
        1.0,
        "F41: longest put of others meanwhile",
        field(&figures, "max_us") / 1e6,
        "s",
    );
    Ok(())
}

/// Kills every daemon and starts it again.
fn restart_all(cluster: &mut Cluster) -> Result<()> {
    for who in daemons() {
        cluster.kill(&who)?;
    }
    cluster.run_all(3, OSDS)?;
    cluster.await_health(WELL_MAX)?;
    probe(cluster, POOL, WORK_MAX).map(drop)
}

fn file(cluster: &Cluster, name: &str, text: &str) -> Result<PathBuf> {
    let path = cluster.dir().join(name);
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

/// Runs a script's `f` on an object.
fn evaluating(cluster: &Cluster, name: &str, script: &Path, more: &[&str]) -> Command {
    let mut command = cluster.command();
    command
        .args(["class", "eval", POOL, name])
        .arg(script)
        .arg("f")
        .args(more);
    command
}

fn eval(cluster: &Cluster, name: &str, script: &Path) -> Result<()> {
    succeeds(&mut evaluating(cluster, name, script, &[]), SEEN_MAX).map(drop)
}

fn put(cluster: &Cluster, pool: &str, name: &str, data: &[u8]) -> Result<()> {
    let content = cluster.dir().join("content");
    fs::write(&content, data).context("a file to put")?;
    let words = ["object", "put", pool, name];
    cluster.ask_with(SEEN_MAX, &words, &content).map(drop)
}
