//! `nacre sim run`: the whole cluster under a deterministic scheduler (DESIGN §11), from the same
//! code that this binary runs.

use crate::out::Out;
use anyhow::{Result, bail};
use nacre_sim::{Plan, Report};
use serde_json::json;

/// Simulated clusters.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Run seeds: a cluster, its clients and its faults are drawn from each, and everything found
    /// is checked.
    Run {
        /// One seed.
        #[arg(long, value_name = "N", conflicts_with = "seeds")]
        seed: Option<u64>,
        /// So many seeds.
        #[arg(long, value_name = "N")]
        seeds: Option<u64>,
        /// The first of them.
        #[arg(long, value_name = "N", default_value_t = 0, requires = "seeds")]
        from: u64,
        /// Print every event.
        #[arg(long)]
        verbose: bool,
    },
}

/// Runs a command.
///
/// # Errors
/// When a seed finds an error.
pub fn run(command: &Command, out: &mut Out) -> Result<()> {
    let Command::Run {
        seed,
        seeds,
        from,
        verbose,
    } = *command;
    let seeds = match (seed, seeds) {
        (Some(seed), _) => seed..seed.saturating_add(1),
        (None, count) => from..from.saturating_add(count.unwrap_or(10)),
    };
    let (mut reports, mut failed) = (Vec::new(), Vec::new());
    for seed in seeds {
        match attempt(seed, verbose) {
            Ok(report) => {
                let Report {
                    digest,
                    events,
                    operations,
                    unknown,
                    epochs,
                    crashes,
                    claims,
                    programs,
                    randoms,
                    library,
                    spans,
                    snaps,
                    ..
                } = report;
                out.say(&format!(
                    "seed {seed}: {digest:032x} {events} events, {operations} operations ({unknown} unknown), {epochs} epochs, {crashes} crashes; {claims}; {programs}; {randoms}; {library}; {spans}; {snaps}"
                ))?;
                reports.push(json!({
                    "seed": seed, "digest": format!("{digest:032x}"), "events": events, "operations": operations,
                    "unknown": unknown, "epochs": epochs, "crashes": crashes, "notifies": claims.notifies, "missed": claims.missed, "locks": claims.grants, "steps": programs.steps,
                }));
            }
            Err(why) => {
                out.say(&format!("seed {seed}: FAILED: {why}"))?;
                reports.push(json!({ "seed": seed, "failed": why }));
                failed.push(seed);
            }
        }
        out.finish()?;
    }
    if out.json() {
        out.value(&json!(reports))?;
        out.finish()?;
    }
    if !failed.is_empty() {
        bail!(
            "{} of {} seeds failed: {failed:?}",
            failed.len(),
            reports.len()
        );
    }
    Ok(())
}

/// The simulator panics with its finding.
fn attempt(seed: u64, verbose: bool) -> Result<Report, String> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let run = std::panic::catch_unwind(|| nacre_sim::run(&Plan::of(seed), verbose));
    std::panic::set_hook(hook);
    run.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "it panicked".to_owned())
    })
}
