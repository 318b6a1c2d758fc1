//! The simulator and its mutants, through `crates/sim`'s own binary.

use crate::profile;
use crate::step::{Step, cargo};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

/// Checks that this source tree has the simulator.
///
/// # Errors
/// What is missing.
pub fn available(workspace: &Workspace) -> Result<()> {
    let Some(sim) = workspace.member("nacre-sim") else {
        bail!("there is no crate nacre-sim yet")
    };
    if !sim.binaries.iter().any(|name| name == "sim") {
        bail!("the crate nacre-sim has no binary `sim` yet");
    }
    Ok(())
}

/// Checks that it can be built with planted bugs.
///
/// # Errors
/// What is missing.
pub fn mutants_available(workspace: &Workspace) -> Result<()> {
    available(workspace)?;
    if !workspace
        .member("nacre-sim")
        .is_some_and(|sim| sim.features.iter().any(|name| name == "mutants"))
    {
        bail!("the crate nacre-sim has no feature `mutants` yet");
    }
    Ok(())
}

/// Cargo runs or builds a program of the simulator. Hundreds of seeds need optimised code, so this
/// is always the release profile.
fn simulator(workspace: &Workspace, verb: &str, program: &str, planted: bool) -> Result<Step> {
    let features: &[&str] = if planted {
        &["--features", "mutants"]
    } else {
        &[]
    };
    let arguments = [
        verb,
        "--release",
        "--locked",
        "--package",
        "nacre-sim",
        "--bin",
        program,
    ];
    Ok(profile::cargo(workspace, arguments)?.args(features))
}

/// `./x sim --seed N | --seeds N [--mutant M]`; the simulator reads the arguments itself.
///
/// # Errors
/// When a seed fails, or there is no simulator.
pub fn run(arguments: &[String]) -> Result<()> {
    let workspace = Workspace::load()?;
    available(&workspace)?;
    let planted = arguments
        .iter()
        .any(|argument| argument == "--mutant" || argument.starts_with("--mutant="));
    if planted {
        mutants_available(&workspace)?;
    }
    match arguments {
        [flag, count] if flag == "--seeds" && !planted => spread(
            &workspace,
            count
                .parse()
                .with_context(|| format!("`{count}` is no number of seeds"))?,
        ),
        _ => simulator(&workspace, "run", "sim", planted)?
            .args(["--"])
            .args(arguments)
            .run(),
    }
}

/// With this many seeds, every border must be crossed.
const SEEDS_FOR_BORDERS: u64 = 200;

/// Seeds are independent: one process per core, each with a part of them. Many seeds must reach
/// every limit and rare path.
fn spread(workspace: &Workspace, seeds: u64) -> Result<()> {
    let (failed, crossed) = on_all_cores(workspace, "sim", false, |core, cores| {
        let (from, to) = (seeds * core / cores, seeds * (core + 1) / cores);
        [
            "--from",
            &from.to_string(),
            "--seeds",
            &(to - from).to_string(),
            "--borders",
        ]
        .map(str::to_owned)
        .to_vec()
    })?;
    println!("\n{:<24} crossed", "border");
    for (name, count) in &crossed {
        println!("{name:<24} {count:>9}");
    }
    if !failed.is_empty() {
        let failed = failed.join("; ");
        bail!(
            "seeds failed: {failed}; `./x sim --seed N` runs one again, the lines \"smaller\" say with how little"
        );
    }
    let never: Vec<&str> = crossed
        .iter()
        .filter(|(_, count)| **count == 0)
        .map(|(name, _)| name.as_str())
        .collect();
    if seeds >= SEEDS_FOR_BORDERS && !never.is_empty() {
        bail!(
            "no seed crosses {}: nothing tests what lies behind",
            never.join(", ")
        );
    }
    Ok(())
}

/// Runs the simulator once for each core, with arguments by core and number of cores; returns the
/// failure lines, and the counts of borders.
fn on_all_cores(
    workspace: &Workspace,
    program: &str,
    planted: bool,
    arguments: impl Fn(u64, u64) -> Vec<String>,
) -> Result<(Vec<String>, BTreeMap<String, u64>)> {
    simulator(workspace, "build", program, planted)?.run()?;
    let binary = workspace.target.join("release").join(program);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let mut running = Vec::new();
    for core in 0..cores {
        let arguments = arguments(core, cores);
        println!("$ {program} {}", arguments.join(" "));
        let mut child = Command::new(&binary)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn();
        let output = child.as_mut().ok().and_then(|child| child.stdout.take());
        let child = child.with_context(|| format!("{} does not start", binary.display()))?;
        running.push((
            child,
            std::thread::spawn(move || show_and_count(output.expect("it was asked for"))),
        ));
    }
    let (mut failed, mut crossed) = (Vec::new(), BTreeMap::<String, u64>::new());
    for (mut child, counts) in running {
        let ended = child.wait().context("waiting for the simulator")?;
        let (counts, said) = counts.join().expect("reading lines does not panic");
        if !ended.success() {
            failed.extend(if said.is_empty() {
                vec![format!("a simulator ended with {ended}")]
            } else {
                said
            });
        }
        for (name, count) in counts {
            *crossed.entry(name).or_default() += count;
        }
    }
    Ok((failed, crossed))
}

/// Prints a simulator's output, and returns its counts of borders and its failures.
fn show_and_count(output: impl Read) -> (Vec<(String, u64)>, Vec<String>) {
    let (mut counts, mut failed) = (Vec::new(), Vec::new());
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        match line
            .strip_prefix("border ")
            .and_then(|rest| rest.split_once(": "))
        {
            Some((name, count)) => {
                counts.push((name.to_owned(), count.parse().unwrap_or_default()))
            }
            None => {
                println!("{line}");
                if ["FAILED", "SURVIVED"]
                    .iter()
                    .any(|word| line.contains(word))
                {
                    failed.push(line);
                }
            }
        }
    }
    (counts, failed)
}

/// Every planted bug must be found: those of stores, monitors and clients by the tests of their
/// crates, those of OSDs and of file systems by their simulators.
///
/// # Errors
/// When one is not found, or there is no simulator.
pub fn mutants() -> Result<()> {
    let workspace = Workspace::load()?;
    mutants_available(&workspace)?;
    for role in ["nacre-planted", "nacre-store", "nacre-mon", "nacre-client"] {
        cargo([
            "test",
            "--locked",
            "--package",
            role,
            "--features",
            "mutants",
            "--test",
            "mutants",
        ])
        .run()?;
    }
    let part = |core, cores| {
        vec![
            "--mutants".to_owned(),
            "--part".to_owned(),
            format!("{core}/{cores}"),
        ]
    };
    let mut survived = Vec::new();
    for program in ["files", "sim"] {
        survived.extend(on_all_cores(&workspace, program, true, part)?.0);
    }
    match &survived[..] {
        [] => Ok(()),
        survived => bail!("planted bugs survived: {}", survived.join("; ")),
    }
}
