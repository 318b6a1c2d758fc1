//! `sim --seed N`, `sim --seeds N [--from M]`, `sim --mutants [--seeds N]`: runs the simulator and prints what it found.
#![allow(clippy::disallowed_methods, reason = "a command line: reads its arguments, measures its time")]

use std::process::ExitCode;

/// Snapshots whatever the seed says.
static SNAPSHOTS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
/// Watches and locks whatever the seed says.
static CLAIMS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
/// Classes of the library whatever the seed says.
static LIBRARY: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
/// Writes of several objects whatever the seed says.
static SPANS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
/// Groups that forget clients.
static FORGETFUL: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
/// Random classes whatever the seed says.
static RANDOMS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut seed, mut seeds, mut from, mut verbose, mut mutants, mut mutant) =
        (None, None, 0u64, false, false, None::<String>);
    let number = |name: &str, value: Option<String>| -> Result<u64, String> {
        value.and_then(|text| text.parse().ok()).ok_or_else(|| format!("sim: {name} takes a number"))
    };
    while let Some(argument) = arguments.next() {
        let outcome = match argument.as_str() {
            "--seed" => number("--seed", arguments.next()).map(|n| seed = Some(n)),
            "--seeds" => number("--seeds", arguments.next()).map(|n| seeds = Some(n)),
            "--from" => number("--from", arguments.next()).map(|n| from = n),
            "--verbose" => {
                verbose = true;
                Ok(())
            }
            "--snapshots" => {
                SNAPSHOTS.store(true, std::sync::atomic::Ordering::Relaxed);
                Ok(())
            }
            "--randoms" => {
                RANDOMS.store(true, std::sync::atomic::Ordering::Relaxed);
                Ok(())
            }
            "--library" => {
                LIBRARY.store(true, std::sync::atomic::Ordering::Relaxed);
                Ok(())
            }
            "--spans" => {
                SPANS.store(true, std::sync::atomic::Ordering::Relaxed);
                Ok(())
            }
            "--forgetful" => {
                FORGETFUL.store(true, std::sync::atomic::Ordering::Relaxed);
                Ok(())
            }
            "--claims" => {
                CLAIMS.store(true, std::sync::atomic::Ordering::Relaxed);
                Ok(())
            }
            "--mutants" => {
                mutants = true;
                Ok(())
            }
            "--mutant" => {
                mutant = arguments.next();
                mutant.as_ref().map(|_| ()).ok_or_else(|| "sim: --mutant takes a name".to_owned())
            }
            "--propagation" => {
                let osds = number("--propagation", arguments.next());
                return match osds {
                    Ok(osds) => propagate(osds as u32, seeds.unwrap_or(1000)),
                    Err(why) => {
                        eprintln!("{why}");
                        ExitCode::from(2)
                    }
                };
            }
            other => Err(format!(
                "sim: unknown argument `{other}`; use --seed N, --seeds N, --from N, --mutants, --mutant NAME, --claims, --randoms, --library, --spans, --snapshots, --forgetful, --verbose"
            )),
        };
        if let Err(why) = outcome {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    }
    if mutants || mutant.is_some() {
        let (from, seeds) = seed.map_or((from, seeds.unwrap_or(600)), |seed| (seed, 1));
        return hunt(seeds, from, mutant.as_deref(), verbose);
    }
    let range = match (seed, seeds) {
        (Some(seed), _) => seed..seed + 1,
        (None, seeds) => from..from + seeds.unwrap_or(100),
    };
    let (mut passed, mut failed) = (0, 0);
    for seed in range {
        match attempt(seed, verbose) {
            Ok(report) => {
                passed += 1;
                println!(
                    "seed {seed}: {:032x} {} events, {} operations ({} unknown), {} epochs, {} crashes; {}; {}; {}; {}; {}; {}",
                    report.digest,
                    report.events,
                    report.operations,
                    report.unknown,
                    report.epochs,
                    report.crashes,
                    report.claims,
                    report.programs,
                    report.randoms,
                    report.library,
                    report.spans,
                    report.snaps
                );
            }
            Err(why) => {
                failed += 1;
                println!("seed {seed}: FAILED: {why}");
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints how soon updates of a class are live on so many OSDs.
fn propagate(osds: u32, updates: u64) -> ExitCode {
    let found = nacre_sim::propagation::measure(&nacre_sim::propagation::Setup::of(osds, 3, updates), 1);
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

fn attempt(seed: u64, verbose: bool) -> Result<nacre_sim::Report, String> {
    let plan = nacre_sim::Plan::of(seed);
    let claims = plan.claims || CLAIMS.load(std::sync::atomic::Ordering::Relaxed);
    let snaps = plan.snaps || SNAPSHOTS.load(std::sync::atomic::Ordering::Relaxed);
    let randoms = plan.randoms || RANDOMS.load(std::sync::atomic::Ordering::Relaxed);
    let library = plan.library || LIBRARY.load(std::sync::atomic::Ordering::Relaxed);
    let spans = plan.spans || SPANS.load(std::sync::atomic::Ordering::Relaxed);
    let plan = nacre_sim::Plan { claims, snaps, randoms, library, spans, ..plan };
    let plan = if FORGETFUL.load(std::sync::atomic::Ordering::Relaxed) { plan.forgetful() } else { plan };
    let run = std::panic::catch_unwind(|| nacre_sim::run(&plan, verbose));
    run.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_else(|| "panicked".into())
    })
}

#[cfg(feature = "mutants")]
fn hunt(seeds: u64, from: u64, only: Option<&str>, verbose: bool) -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let (mut survivors, mut caught_all) = (0, 0);
    let all = nacre_osd::Mutant::ALL.into_iter();
    for mutant in all.filter(|mutant| only.is_none_or(|name| format!("{mutant:?}").eq_ignore_ascii_case(name))) {
        nacre_osd::set_mutant(Some(mutant));
        let caught =
            (from..from + seeds).find_map(|seed| attempt(seed, verbose).err().map(|why| (seed - from + 1, seed, why)));
        match caught {
            Some((tried, seed, why)) => {
                caught_all += 1;
                let line: String = why.lines().next().unwrap_or_default().chars().take(160).collect();
                println!("{mutant:?}: caught after {tried} seeds (seed {seed}): {line}");
            }
            None => {
                survivors += 1;
                println!("{mutant:?}: SURVIVED {seeds} seeds");
            }
        }
    }
    nacre_osd::set_mutant(None);
    println!("{caught_all} passed, {survivors} failed");
    if survivors == 0 && caught_all > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(not(feature = "mutants"))]
fn hunt(_: u64, _: u64, _: Option<&str>, _: bool) -> ExitCode {
    eprintln!("sim: built without the feature `mutants`; use `./x mutants`");
    ExitCode::from(2)
}
