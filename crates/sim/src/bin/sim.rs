//! `sim --seed N`, `sim --seeds N [--from M]`, `sim --mutants [--seeds N]`: runs the simulator and
//! prints its findings; failing seeds are shrunk.
#![allow(
    clippy::disallowed_methods,
    reason = "a command line: reads its arguments, measures its time"
)]

use nacre_sim::hunt;
use std::process::ExitCode;

/// Most runs for shrinking a failing seed.
const SHRINK_RUNS: usize = 60;
/// Most failing seeds that are shrunk.
const SHRUNK: usize = 3;

const USAGE: &str = "sim [--seed N | --seeds N [--from N]] [--set NAME=VALUE]… [--verbose] [--borders] [--no-shrink] | --mutants [--part K/N] | --mutant NAME | --propagation OSDS";

#[derive(Default)]
struct Arguments {
    seed: Option<u64>,
    seeds: Option<u64>,
    from: u64,
    verbose: bool,
    borders: bool,
    no_shrink: bool,
    mutants: bool,
    /// Run only every N-th planted bug, starting with the K-th, to split the work over N processes.
    part: Option<(usize, usize)>,
    mutant: Option<String>,
    propagation: Option<u64>,
    /// Settings that override the seed's.
    settings: Vec<(String, u64)>,
}

impl Arguments {
    /// A seed's plan with these settings.
    fn plan(&self, seed: u64) -> nacre_sim::Plan {
        let mut plan = nacre_sim::Plan::of(seed);
        for (name, value) in &self.settings {
            plan.set(name, *value).expect("checked when it was given");
        }
        plan
    }
}

fn parse() -> Result<Arguments, String> {
    let mut given = Arguments::default();
    let mut arguments = std::env::args().skip(1);
    let number = |name: &str, value: Option<String>| -> Result<u64, String> {
        value
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| format!("{name} takes a number"))
    };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seed" => given.seed = Some(number("--seed", arguments.next())?),
            "--seeds" => given.seeds = Some(number("--seeds", arguments.next())?),
            "--from" => given.from = number("--from", arguments.next())?,
            "--verbose" => given.verbose = true,
            "--borders" => given.borders = true,
            "--no-shrink" => given.no_shrink = true,
            "--mutants" => given.mutants = true,
            "--part" => {
                let text = arguments.next().unwrap_or_default();
                given.part = Some(hunt::part(&text).ok_or("--part takes K/N, K from 0")?);
            }
            "--mutant" => given.mutant = Some(arguments.next().ok_or("--mutant takes a name")?),
            "--propagation" => given.propagation = Some(number("--propagation", arguments.next())?),
            "--set" => {
                let text = arguments.next().ok_or("--set takes NAME=VALUE")?;
                let (name, value) = text.split_once('=').ok_or("--set takes NAME=VALUE")?;
                let value = number(name, Some(value.to_owned()))?;
                nacre_sim::Plan::of(0).set(name, value)?;
                given.settings.push((name.to_owned(), value));
            }
            other => return Err(format!("unknown argument `{other}`; usage: {USAGE}")),
        }
    }
    Ok(given)
}

fn main() -> ExitCode {
    let given = match parse() {
        Ok(given) => given,
        Err(why) => {
            eprintln!("sim: {why}");
            return ExitCode::from(2);
        }
    };
    if let Some(osds) = given.propagation {
        return propagate(osds as u32, given.seeds.unwrap_or(1000));
    }
    let Arguments {
        seed,
        seeds,
        from,
        verbose,
        ..
    } = given;
    if given.mutants || given.mutant.is_some() {
        let (from, seeds) = seed.map_or((from, seeds.unwrap_or(600)), |seed| (seed, 1));
        return hunt(&given, seeds, from);
    }
    let range = match (seed, seeds) {
        (Some(seed), _) => seed..seed + 1,
        (None, seeds) => from..from + seeds.unwrap_or(100),
    };
    let begun = std::time::Instant::now();
    let mut borders = nacre_osd::borders::Borders::default();
    let mut rare = nacre_sim::borders::Borders::default();
    let (mut passed, mut failed, mut simulated_ns, mut reverts) = (0u64, 0, 0, 0);
    for seed in range {
        match attempt(&given.plan(seed), verbose) {
            Ok(report) => {
                passed += 1;
                borders.add(&report.borders);
                rare.add(&report.rare);
                simulated_ns += report.simulated_ns;
                reverts += report.reverts;
                if report.reverts > 0 {
                    println!("seed {seed}: an object waits for an operator's word");
                }
                println!("seed {seed}: {report}");
            }
            Err(why) => {
                failed += 1;
                println!("seed {seed}: FAILED: {why}");
                if failed <= SHRUNK && !given.no_shrink && !verbose {
                    shrink(&given, seed, why);
                }
            }
        }
    }
    let hours = begun.elapsed().as_secs_f64() / 3600.0;
    // Not part of a seed's output: it is the same in every process.
    eprintln!(
        "{:.0} seeds an hour, {:.1} simulated hours an hour",
        (passed + failed as u64) as f64 / hours,
        simulated_ns as f64 / 3.6e12 / hours
    );
    if given.borders {
        for (name, count) in borders.counts().into_iter().chain(rare.counts()) {
            println!("border {name}: {count}");
        }
    }
    if reverts > 0 {
        println!("{reverts} ended with an object that waits for an operator's word");
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Prints the part of a seed's plan that is enough to fail.
fn shrink(given: &Arguments, seed: u64, why: String) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (kept, last) = nacre_sim::shrink::shrink(&given.plan(seed), why, SHRINK_RUNS, |plan| {
        attempt(plan, false).err()
    });
    std::panic::set_hook(hook);
    let given = given
        .settings
        .iter()
        .map(|(name, value)| (name.as_str(), *value))
        .chain(kept);
    let settings: Vec<String> = given
        .map(|(name, value)| format!("--set {name}={value}"))
        .collect();
    let line: String = last
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(300)
        .collect();
    println!(
        "seed {seed}: smaller: sim --seed {seed} {}: {line}",
        settings.join(" ")
    );
}

fn attempt(plan: &nacre_sim::Plan, verbose: bool) -> Result<nacre_sim::Report, String> {
    hunt::attempt(|| nacre_sim::run(plan, verbose))
}

/// Prints how soon updates of a class are active on this many OSDs.
fn propagate(osds: u32, updates: u64) -> ExitCode {
    let found =
        nacre_sim::propagation::measure(&nacre_sim::propagation::Setup::of(osds, 3, updates), 1);
    let at = |all: &[u64], share: f64| all[((all.len() - 1) as f64 * share) as usize] as f64 / 1e6;
    let live = &found.live_ns;
    println!(
        "{osds} OSDs, {updates} updates: live after p50 {:.2} ms, p90 {:.2}, p99 {:.2}, max {:.2}; commit p50 {:.2} ms, max {:.2}; {:.1} messages of monitors to OSDs per update",
        at(live, 0.5),
        at(live, 0.9),
        at(live, 0.99),
        at(live, 1.0),
        at(&found.commit_ns, 0.5),
        at(&found.commit_ns, 1.0),
        found.mon_messages,
    );
    ExitCode::SUCCESS
}

#[cfg(feature = "mutants")]
fn hunt(given: &Arguments, seeds: u64, from: u64) -> ExitCode {
    use nacre_object::Mutant as OfObject;
    use nacre_osd::Mutant as OfOsd;

    let hunt = hunt::Hunt {
        part: given.part,
        only: given.mutant.clone(),
        seeds: from..from + seeds,
    };
    let of_osds = OfOsd::ALL
        .iter()
        .map(|mutant| (format!("{mutant:?}"), (Some(*mutant), None)));
    let of_objects = OfObject::ALL
        .iter()
        .map(|mutant| (format!("{mutant:?}"), (None, Some(*mutant))));
    hunt.run(
        of_osds.chain(of_objects),
        |bug: Option<&(Option<OfOsd>, Option<OfObject>)>| {
            let (osd, object) = bug.copied().unwrap_or_default();
            nacre_osd::set_mutant(osd);
            nacre_object::set_mutant(object);
        },
        |seed| attempt(&given.plan(seed), given.verbose).map(drop),
    )
}

#[cfg(not(feature = "mutants"))]
fn hunt(_: &Arguments, _: u64, _: u64) -> ExitCode {
    eprintln!("sim: built without the feature `mutants`; use `./x mutants`");
    ExitCode::from(2)
}
