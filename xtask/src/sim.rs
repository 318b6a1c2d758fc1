//! The simulator and its mutants, through `crates/sim`'s own binary.

use crate::step::{Step, cargo};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::process::Command;

/// Whether this tree has the simulator.
///
/// # Errors
/// What is missing.
pub fn available(workspace: &Workspace) -> Result<()> {
    let Some(sim) = workspace.member("nacre-sim") else { bail!("there is no crate nacre-sim yet") };
    if !sim.binaries.iter().any(|name| name == "sim") {
        bail!("the crate nacre-sim has no binary `sim` yet");
    }
    Ok(())
}

/// Whether it can be built with planted bugs.
///
/// # Errors
/// What is missing.
pub fn mutants_available(workspace: &Workspace) -> Result<()> {
    available(workspace)?;
    if !workspace.member("nacre-sim").is_some_and(|sim| sim.features.iter().any(|name| name == "mutants")) {
        bail!("the crate nacre-sim has no feature `mutants` yet");
    }
    Ok(())
}

/// Seeds by the hundred want optimised code, so this is always the release profile.
fn simulator(planted: bool) -> Step {
    let features: &[&str] = if planted { &["--features", "mutants"] } else { &[] };
    cargo(["run", "--release", "--locked", "--package", "nacre-sim", "--bin", "sim"]).args(features).args(["--"])
}

/// `./x sim --seed N | --seeds N [--mutant M]`; the simulator reads the arguments itself.
///
/// # Errors
/// When a seed fails, or there is no simulator.
pub fn run(arguments: &[String]) -> Result<()> {
    let workspace = Workspace::load()?;
    available(&workspace)?;
    let planted = arguments.iter().any(|argument| argument == "--mutant" || argument.starts_with("--mutant="));
    if planted {
        mutants_available(&workspace)?;
    }
    match arguments {
        [flag, count] if flag == "--seeds" && !planted => {
            spread(&workspace, count.parse().with_context(|| format!("`{count}` is no number of seeds"))?)
        }
        _ => simulator(planted).args(arguments).run(),
    }
}

/// Seeds do not know of each other: a process per core, each with a part of them.
fn spread(workspace: &Workspace, seeds: u64) -> Result<()> {
    cargo(["build", "--release", "--locked", "--package", "nacre-sim", "--bin", "sim"]).run()?;
    let binary = workspace.target.join("release/sim");
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64).min(seeds.max(1));
    let mut running = Vec::new();
    for core in 0..cores {
        let (from, to) = (seeds * core / cores, seeds * (core + 1) / cores);
        println!("$ sim --from {from} --seeds {}", to - from);
        let mut command = Command::new(&binary);
        command.args(["--from", &from.to_string(), "--seeds", &(to - from).to_string()]);
        running.push(command.spawn().with_context(|| format!("{} does not start", binary.display()))?);
    }
    let mut failed = 0;
    for mut child in running {
        failed += u32::from(!child.wait().context("waiting for the simulator")?.success());
    }
    if failed > 0 {
        bail!("seeds failed; `./x sim --seed N` runs one again");
    }
    Ok(())
}

/// Every planted bug must be caught: those of monitors by the stories of their crate, the others by the simulator.
///
/// # Errors
/// When one is not, or there is no simulator.
pub fn mutants() -> Result<()> {
    mutants_available(&Workspace::load()?)?;
    cargo(["test", "--locked", "--package", "nacre-mon", "--features", "mutants", "--test", "mutants"]).run()?;
    simulator(true).args(["--mutants"]).run()
}
