//! `./x bench`: a cluster of processes compared with the disk under it, in one run (DESIGN §10).
//!
//! ```text
//!  others' load ─▶ disk alone ─▶ 1 monitor + 3 OSDs (processes, loopback TCP) ─▶ each scenario: objects made, measured, removed ─▶ disk alone
//!       └──────────────┴──────────────── ratios, table, one line each in bench/history.ndjson ───────────────┘
//! ```
//! The disk is measured before and after, and the mean is the baseline, because machines are
//! shared. The same holds for the floor (`floor.rs`), before and after each scenario that has a row
//! there. Goals are those of DESIGN §10 and the issue.

use crate::cluster::guard::Guard;
use crate::cluster::{Cluster, Setup, run_nacre};
use crate::floor::{self, Floor, Times};
use crate::machine;
use crate::profile;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum duration of a scenario, with preparation and draining: a longer one hangs.
const SCENARIO_MAX: Duration = Duration::from_mins(30);

/// One measurement.
struct Scenario {
    mode: &'static str,
    size: u64,
    depth: u32,
}

const fn scenario(mode: &'static str, size: u64, depth: u32) -> Scenario {
    Scenario { mode, size, depth }
}

impl Scenario {
    /// Its row of the floor.
    fn floor_row(&self) -> Option<&'static str> {
        match (self.mode, self.size, self.depth) {
            ("overwrite", KIB_4, 1) => Some("overwrite-1"),
            ("overwrite", KIB_4, 16) => Some("overwrite"),
            ("read", KIB_4, 1) => Some("read-1"),
            ("read", KIB_4, 16) => Some("read"),
            ("write", KIB_4, 16) => Some("new"),
            ("write", MIB_4, 1) => Some("large-write-1"),
            ("write", MIB_4, 16) => Some("large-write"),
            ("read", MIB_4, 16) => Some("large-read"),
            _ => None,
        }
    }
    fn name(&self) -> String {
        format!("{} {} d{}", self.mode, size_text(self.size), self.depth)
    }
}

const KIB_4: u64 = 4 << 10;
const MIB_4: u64 = 4 << 20;

const SCENARIOS: &[Scenario] = &[
    scenario("overwrite", KIB_4, 1),
    scenario("overwrite", KIB_4, 16),
    scenario("read", KIB_4, 1),
    scenario("read", KIB_4, 16),
    scenario("write", KIB_4, 16),
    scenario("write", MIB_4, 1),
    scenario("write", MIB_4, 16),
    scenario("read", MIB_4, 16),
];
/// The scenarios that fit into a minute.
const QUICK: &[Scenario] = &[
    scenario("overwrite", KIB_4, 1),
    scenario("overwrite", KIB_4, 16),
    scenario("read", KIB_4, 16),
    scenario("write", MIB_4, 16),
];

/// The amount of work.
struct Extent {
    scenarios: &'static [Scenario],
    seconds: f64,
    objects_small: u64,
    objects_large: u64,
    disk_seconds: f64,
    floor_seconds: f64,
}
const FULL: Extent = Extent {
    scenarios: SCENARIOS,
    seconds: 10.0,
    objects_small: 100_000,
    objects_large: 1024,
    disk_seconds: 3.0,
    floor_seconds: 3.0,
};
const SHORT: Extent = Extent {
    scenarios: QUICK,
    seconds: 3.0,
    objects_small: 2_000,
    objects_large: 96,
    disk_seconds: 1.0,
    floor_seconds: 1.0,
};

/// Runs the benchmarks.
///
/// # Errors
/// When something does not run. A missed goal is a line of the table, not an error, because
/// machines differ.
pub fn run(arguments: &[String]) -> Result<()> {
    if let Some(("versus", rest)) = arguments
        .split_first()
        .map(|(first, rest)| (first.as_str(), rest))
    {
        return crate::versus::run(rest);
    }
    if let Some(("floor", rest)) = arguments
        .split_first()
        .map(|(first, rest)| (first.as_str(), rest))
    {
        return floor::run(rest);
    }
    let (mut quick, mut base_port, mut dir, mut rest) = (false, 17_400_u16, None, arguments.iter());
    while let Some(argument) = rest.next() {
        let mut next = || {
            rest.next()
                .with_context(|| format!("{argument} needs a value"))
        };
        match argument.as_str() {
            "--quick" => quick = true,
            "--base-port" => {
                base_port = next()?.parse().context("--base-port takes a port number")?
            }
            "--dir" => dir = Some(PathBuf::from(next()?)),
            other => bail!(
                "`{other}` is no argument of bench; there are --quick, --base-port PORT and --dir DIR, and `versus` and `floor`"
            ),
        }
    }
    let workspace = Workspace::load()?;
    if !quick {
        let arguments = ["bench", "--locked", "--package", "nacre-crush"];
        profile::cargo(&workspace, arguments)?.run()?;
    }
    crate::build()?;
    // A directory given by the user may hold data: the benchmark creates a subdirectory of its own.
    let dir = std::path::absolute(dir.unwrap_or_else(|| workspace.target.clone()))
        .context("finding the folder")?
        .join("bench-cluster");
    let guard = Guard::start(&workspace.binary(), &dir)?;
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let floor = Floor::built(&workspace, &dir)?;
    let lines = measure(
        &workspace.binary(),
        &floor,
        &dir,
        base_port,
        if quick { &SHORT } else { &FULL },
    )?;
    drop(guard);
    let history = workspace.root.join("bench/history.ndjson");
    let mut file = fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(&history)
        .context("opening the history")?;
    for line in &lines {
        writeln!(file, "{line}").context("writing to the history")?;
    }
    println!("\n{} lines added to bench/history.ndjson", lines.len());
    Ok(())
}

fn measure(
    nacre: &Path,
    floor: &Floor,
    dir: &Path,
    base_port: u16,
    extent: &Extent,
) -> Result<Vec<Value>> {
    let load_before = machine::others_load()?;
    let disk_before = disk(nacre, dir, extent.disk_seconds)?;
    let mut results = Vec::new();
    {
        let place = dir.join("cluster");
        let cluster = Cluster::start(nacre, &place, base_port, 1, 3, &Setup::default())?;
        for scenario in extent.scenarios {
            println!(
                "{} {} depth {} …",
                scenario.mode,
                size_text(scenario.size),
                scenario.depth
            );
            let beside = || {
                scenario
                    .floor_row()
                    .map(|row| floor_beside(floor, row, scenario, extent))
                    .transpose()
            };
            let before = beside()?;
            let result = bench(&cluster, scenario, extent)?;
            let found = before
                .zip(beside()?)
                .map(|(before, after)| before.mean(after));
            results.push((result, found));
        }
    }
    let disk_after = disk(nacre, dir, extent.disk_seconds)?;
    let load = f64::midpoint(load_before, machine::others_load()?);
    let baseline = Baseline {
        flushes_us: mean(&disk_before, &disk_after, "three_flushes_p50_us")?,
        write_mb_per_s: mean(&disk_before, &disk_after, "write_mb_per_s")?,
    };
    println!(
        "\ndisk in this run (mean of before and after): three log appends durable in {:.0} µs (p50), {:.0} MB/s of large writes{}",
        baseline.flushes_us,
        baseline.write_mb_per_s,
        if disk_before["unbuffered"] == true {
            ""
        } else {
            ", through the page cache"
        }
    );
    println!(
        "others used {load:.2} of {} processors before and after\n",
        machine::processors()
    );
    println!(
        "{:<22}{:>10}{:>10}{:>9}{:>9}{:>10}{:>9}  goal",
        "scenario", "ops/s", "MB/s", "p50 µs", "p99 µs", "CPU µs/op", "copied"
    );
    let extra = json!({
        "others_cpus": (load * 100.0).round() / 100.0,
        "disk_three_flushes_p50_us": baseline.flushes_us,
        "disk_write_mb_per_s": baseline.write_mb_per_s,
        "cluster": "1 mon + 3 osd processes, loopback TCP",
        "quick": extent.scenarios.len() == QUICK.len(),
    });
    let mut common = machine::stamp();
    for (key, value) in extra.as_object().expect("written as one") {
        common[key] = value.clone();
    }
    let mut lines = Vec::new();
    let mut multiples = Vec::new();
    for (scenario, (result, floor)) in extent.scenarios.iter().zip(results) {
        let goal = Goal::of(scenario, &baseline, &result);
        println!("{}", row(scenario, &result, goal.as_ref()));
        let mut line = common.clone();
        for (key, value) in result.as_object().context("a result is an object")? {
            line[key] = value.clone();
        }
        if let Some(goal) = goal {
            line["goal"] = json!({ "what": goal.what, "limit": goal.limit, "found": goal.found, "met": goal.is_met() });
        }
        if let (Some(floor), Some(row), Ok(ours)) =
            (floor, scenario.floor_row(), floor::Figures::of(&result))
        {
            let times = floor.times(ours, scenario.depth);
            line["floor"] = floor.json(row, times);
            multiples.push(floor_row(scenario, &floor, times));
        }
        lines.push(line);
    }
    println!(
        "\n{:<22}{:>10}{:>9}{:>9}{:>9}{:>10}{:>9}",
        "floor in this run", "CPU µs/op", "times", "p50 µs", "times", "ops/s", "times"
    );
    multiples.iter().for_each(|line| println!("{line}"));
    Ok(lines)
}

/// The disk's results without a cluster.
struct Baseline {
    flushes_us: f64,
    write_mb_per_s: f64,
}

/// A goal of the issue.
struct Goal {
    what: &'static str,
    limit: f64,
    found: f64,
    /// Whether larger values are better.
    at_least: bool,
}

impl Goal {
    fn of(scenario: &Scenario, baseline: &Baseline, result: &Value) -> Option<Self> {
        let found = |field: &str| result[field].as_f64().unwrap_or(f64::NAN);
        let most = |what, limit, found| {
            Some(Self {
                what,
                limit,
                found,
                at_least: false,
            })
        };
        match (scenario.mode, scenario.size, scenario.depth) {
            ("overwrite", KIB_4, 16) => most("CPU µs per operation", 60.0, found("cpu_us_per_op")),
            ("read", KIB_4, 16) => most("CPU µs per operation", 12.0, found("cpu_us_per_op")),
            ("overwrite", KIB_4, 1) => most(
                "p50: 1.5 × three flushes + 100 µs",
                baseline.flushes_us * 1.5 + 100.0,
                found("p50_us"),
            ),
            ("write", MIB_4, 16) => Some(Self {
                what: "MB/s: 70 % of the disk ÷ 3",
                limit: baseline.write_mb_per_s * 0.7 / 3.0,
                found: found("mb_per_s"),
                at_least: true,
            }),
            _ => None,
        }
    }
    fn is_met(&self) -> bool {
        if self.at_least {
            self.found >= self.limit
        } else {
            self.found <= self.limit
        }
    }
    /// Ratio to the goal; above 1 is better than the goal.
    fn ratio(&self) -> f64 {
        if self.at_least {
            self.found / self.limit
        } else {
            self.limit / self.found
        }
    }
}

fn row(scenario: &Scenario, result: &Value, goal: Option<&Goal>) -> String {
    let name = scenario.name();
    let number = |field: &str| {
        result[field]
            .as_f64()
            .map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"))
    };
    let copied = result["bytes_copied_per_byte"]
        .as_f64()
        .map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"));
    let goal = goal.map_or_else(String::new, |goal| {
        let (sign, verdict) = (
            if goal.at_least { "≥" } else { "≤" },
            if goal.is_met() { "met" } else { "MISSED" },
        );
        format!(
            "{verdict} ({:.2}×): {} {sign} {:.0}",
            goal.ratio(),
            goal.what,
            goal.limit
        )
    });
    format!(
        "{name:<22}{:>10}{:>10}{:>9}{:>9}{:>10}{copied:>9}  {goal}",
        number("ops_per_s"),
        number("mb_per_s"),
        number("p50_us"),
        number("p99_us"),
        number("cpu_us_per_op"),
    )
}

/// A scenario relative to the floor: how many times worse it is; 1 is equal.
fn floor_row(scenario: &Scenario, floor: &floor::Figures, times: Times) -> String {
    let (p50, times_p50) = match times.p50 {
        Some(times) => (format!("{:.0}", floor.p50_us), format!("{times:.2}×")),
        None => ("-".to_owned(), "-".to_owned()),
    };
    format!(
        "{:<22}{:>10.1}{:>9}{p50:>9}{times_p50:>9}{:>10.0}{:>9}",
        scenario.name(),
        floor.cpu_us,
        format!("{:.2}×", times.cpu),
        floor.ops_per_s,
        format!("{:.2}×", times.rate)
    )
}

/// Measures the floor of a scenario, with as many objects.
fn floor_beside(
    floor: &Floor,
    row: &str,
    scenario: &Scenario,
    extent: &Extent,
) -> Result<floor::Figures> {
    let objects = if scenario.size == KIB_4 {
        extent.objects_small
    } else {
        extent.objects_large
    };
    floor
        .measure(row, objects, extent.floor_seconds)
        .context("the floor")
}

/// One measurement in a running cluster.
fn bench(cluster: &Cluster, scenario: &Scenario, extent: &Extent) -> Result<Value> {
    let objects = if scenario.size == KIB_4 {
        extent.objects_small
    } else {
        extent.objects_large
    };
    // An upper limit of new objects: they are created until the time is up.
    let objects = if scenario.mode == "write" && scenario.size == KIB_4 {
        10_000_000
    } else {
        objects
    };
    let (size, depth) = (scenario.size.to_string(), scenario.depth.to_string());
    let (seconds, objects) = (extent.seconds.to_string(), objects.to_string());
    let mut arguments = vec![
        "bench",
        "object",
        scenario.mode,
        "--size",
        &size,
        "--depth",
        &depth,
    ];
    arguments.extend(["--seconds", &seconds, "--objects", &objects]);
    cluster.ask_for(SCENARIO_MAX, &arguments)
}

/// Disk performance, as measured by `nacre bench disk`.
pub fn disk(nacre: &Path, dir: &Path, seconds: f64) -> Result<Value> {
    let seconds = seconds.to_string();
    let words = ["bench", "disk", "--seconds", &seconds, "--dir"];
    run_nacre(nacre, SCENARIO_MAX, &words, dir)
}

fn mean(before: &Value, after: &Value, field: &str) -> Result<f64> {
    let number = |value: &Value| {
        value[field]
            .as_f64()
            .with_context(|| format!("`nacre bench disk` says no {field}"))
    };
    Ok(f64::midpoint(number(before)?, number(after)?))
}

fn size_text(size: u64) -> String {
    if size >= 1 << 20 {
        format!("{} MiB", size >> 20)
    } else {
        format!("{} KiB", size >> 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_has_a_row_of_the_floor() {
        assert!(
            SCENARIOS
                .iter()
                .chain(QUICK)
                .all(|scenario| scenario.floor_row().is_some())
        );
        assert_eq!(scenario("read", MIB_4, 1).floor_row(), None);
    }

    #[test]
    fn goals_are_met_or_missed_in_their_own_direction() {
        let baseline = Baseline {
            flushes_us: 1000.0,
            write_mb_per_s: 300.0,
        };
        let found = json!({ "cpu_us_per_op": 120.0, "p50_us": 1600, "mb_per_s": 70.0 });
        let goal = |mode, size, depth| Goal::of(&scenario(mode, size, depth), &baseline, &found);
        let cpu = goal("overwrite", KIB_4, 16).expect("a goal");
        assert!(!cpu.is_met() && (cpu.ratio() - 0.5).abs() < 1e-9);
        assert!(goal("overwrite", KIB_4, 1).expect("a goal").is_met());
        let large = goal("write", MIB_4, 16).expect("a goal");
        assert!(large.is_met() && large.ratio() >= 1.0 - 1e-9);
        assert!(goal("write", KIB_4, 16).is_none());
        let missing =
            Goal::of(&scenario("read", KIB_4, 16), &baseline, &json!({})).expect("a goal");
        assert!(!missing.is_met(), "no figure is no success");
    }
}
