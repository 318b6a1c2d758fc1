//! `nacre policy test|explain|trace|library`: tests policies before they are active (MAL-07,
//! MAL-51; USERS: why Mantle failed upstream). No cluster needed.
//!
//! ```text
//!   FILE (Lua) + trace ─▶ nacre_mantle::Model ─▶ tick by tick: metrics in, targets out, moves and their limits ─▶ summary, exit code
//! ```
//! Exit code 1 when the policy failed at any tick or moved a unit back and forth: so a script can
//! check before activating it.

use crate::out::Out;
use crate::program::read_source;
use crate::table::table;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use nacre_mantle::model::PING_PONG_TICKS;
use nacre_mantle::trace::Recorded;
use nacre_mantle::{
    Decision, LIBRARY, Model, Options, SHAPES, Summary, TickReport, Trace, generate, shipped,
};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Verbs that need no cluster.
#[derive(Subcommand)]
pub enum Bench {
    /// Run a policy against recorded load: what it asks for, what moves, whether it fails or plays
    /// ping-pong (then the exit code is 1).
    Test {
        #[command(flatten)]
        run: Run,
        /// Only the summary, not every tick.
        #[arg(long)]
        summary: bool,
    },
    /// One tick of such a run in detail.
    Explain {
        #[command(flatten)]
        run: Run,
        /// Which tick, from 1.
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000))]
        tick: u64,
    },
    /// Print an example trace: hot-spot, two-tenants, drift, flash-crowd, sequencers, or keyspace
    /// (of a cache).
    Trace {
        /// Its kind.
        kind: String,
        /// Ranks.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1024))]
        ranks: u32,
        /// Another seed, another noise.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Policies that come with nacre: their names, or one's source.
    Library {
        /// Whose source.
        name: Option<String>,
    },
}

/// A policy on a trace.
#[derive(Args)]
pub struct Run {
    /// The policy's source; `-` is standard input.
    file: PathBuf,
    /// Recorded load (docs/formats/policy-trace.md; `nacre policy trace` prints examples).
    #[arg(long)]
    trace: PathBuf,
    /// Ranks, if more than the trace has.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    ranks: Option<u32>,
    /// Ticks [default: the trace's]; after its end its last loads go on.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    ticks: Option<u64>,
    /// Part of its load that a rank may give away per tick.
    #[arg(long, default_value_t = Options::default().load_fraction)]
    load_fraction: f64,
    /// Units that may go per tick.
    #[arg(long, default_value_t = Options::default().units_max)]
    units_max: usize,
    /// Part by which who gets load must have less.
    #[arg(long, default_value_t = Options::default().min_imbalance)]
    min_imbalance: f64,
    /// Ticks that a unit stays after it came.
    #[arg(long, default_value_t = Options::default().rest_ticks)]
    rest_ticks: u64,
    /// Ticks before a unit may go back.
    #[arg(long, default_value_t = Options::default().return_ticks)]
    return_ticks: u64,
}

impl Run {
    fn model(&self) -> Result<(Model, u64)> {
        let policy =
            String::from_utf8(read_source(&self.file)?).context("the policy is not UTF-8 text")?;
        let text = fs::read_to_string(&self.trace)
            .with_context(|| format!("{} cannot be read", self.trace.display()))?;
        let trace =
            Trace::parse(&text).with_context(|| format!("{} is no trace", self.trace.display()))?;
        if let (
            Some(ranks),
            Recorded::Ranks {
                ranks: recorded, ..
            },
        ) = (self.ranks, &trace.recorded)
            && ranks < *recorded
        {
            bail!("the trace has {recorded} ranks; --ranks can only add some");
        }
        let ticks = self.ticks.unwrap_or(trace.len() as u64);
        let options = Options {
            load_fraction: self.load_fraction,
            units_max: self.units_max,
            min_imbalance: self.min_imbalance,
            rest_ticks: self.rest_ticks,
            return_ticks: self.return_ticks,
            ..Options::default()
        };
        Ok((
            Model::new(trace, self.ranks, &name_of(&self.file), &policy, options),
            ticks,
        ))
    }
}

/// Name of a policy in messages.
fn name_of(file: &Path) -> String {
    let name = file
        .file_stem()
        .map(|name| name.to_string_lossy().into_owned());
    name.filter(|name| name != "-")
        .unwrap_or_else(|| "policy".into())
}

/// Runs a verb.
///
/// # Errors
/// Files that cannot be read, and invalid texts.
pub fn run(command: Bench, out: &mut Out) -> Result<ExitCode> {
    match command {
        Bench::Test { run, summary } => test(&run, summary, out),
        Bench::Explain { run, tick } => explain(&run, tick, out),
        Bench::Trace { kind, ranks, seed } => {
            let Some((_, shape)) = SHAPES.iter().find(|(name, _)| *name == kind) else {
                let names: Vec<&str> = SHAPES.iter().map(|(name, _)| *name).collect();
                bail!(
                    "there is no example `{kind}`; there are {}",
                    names.join(", ")
                );
            };
            out.bytes(generate(*shape, ranks, seed).to_text().as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        Bench::Library { name } => {
            library(name.as_deref(), out)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn library(name: Option<&str>, out: &mut Out) -> Result<()> {
    if let Some(name) = name {
        let source = shipped(name).with_context(|| {
            format!(
                "there is no policy `{name}` in the library; `nacre policy library` lists {}",
                LIBRARY.len()
            )
        })?;
        return out.bytes(source.as_bytes());
    }
    let about = |source: &str| {
        let first = source
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("-- ");
        first
            .split_once(": ")
            .map_or(first, |(_, about)| about)
            .to_owned()
    };
    let rows: Vec<Value> = LIBRARY
        .iter()
        .map(|policy| json!({ "name": policy.name, "about": about(policy.source) }))
        .collect();
    if out.json() {
        return out.value(&Value::Array(rows));
    }
    out.bytes(table(&[("NAME", "name"), ("ABOUT", "about")], &rows).as_bytes())
}

fn test(run: &Run, only_summary: bool, out: &mut Out) -> Result<ExitCode> {
    let (mut model, ticks) = run.model()?;
    let mut reports = Vec::new();
    for _ in 0..ticks {
        let report = model.step();
        if out.json() {
            if !only_summary {
                reports.push(tick_json(&report));
            }
        } else if !only_summary {
            out.bytes(tick_text(&report).as_bytes())?;
        }
    }
    let summary = model.summary();
    if out.json() {
        out.value(&json!({ "ticks": reports, "summary": summary_json(&summary) }))?;
    } else {
        out.bytes(summary_text(&summary).as_bytes())?;
    }
    Ok(if summary.is_bad() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn explain(run: &Run, tick: u64, out: &mut Out) -> Result<ExitCode> {
    let (mut model, ticks) = run.model()?;
    if tick > ticks {
        bail!("there are {ticks} ticks; --ticks makes it more");
    }
    let mut report = model.step();
    while report.tick < tick {
        report = model.step();
    }
    let failed = report
        .decisions
        .iter()
        .any(|(_, decision)| is_failure(decision));
    if out.json() {
        out.value(&tick_json(&report))?;
    } else {
        out.bytes(explain_text(&report).as_bytes())?;
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn is_failure(decision: &Decision) -> bool {
    decision
        .held
        .as_ref()
        .is_some_and(nacre_mantle::Held::is_failure)
}

// ─── text ───────────────────────────────────────────────────────────────────────────────

/// A human-readable load.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
fn percent(part: f64) -> String {
    format!("{} %", short(part * 100.0))
}

fn tick_text(report: &TickReport) -> String {
    let mut text = match &report.cache {
        Some(cache) => format!(
            "tick {}: {} keys, {} gets/s, {} misses/s",
            report.tick,
            short(cache.keys),
            short(cache.gets),
            short(cache.misses)
        ),
        None => {
            let loads: Vec<String> = report
                .metrics
                .iter()
                .map(|(rank, metrics)| format!("{rank}: {}", short(metrics.auth)))
                .collect();
            format!(
                "tick {}: load {}; imbalance {}",
                report.tick,
                loads.join(", "),
                percent(report.imbalance)
            )
        }
    };
    text.push('\n');
    for (rank, decision) in &report.decisions {
        for line in decision_lines(decision, report) {
            text += &format!("  rank {rank} {line}\n");
        }
    }
    text
}

/// The actions of a rank, if any: requested, moved, held back, with the reason.
fn decision_lines(decision: &Decision, report: &TickReport) -> Vec<String> {
    if let Some(held) = &decision.held {
        return vec![format!("holds: {held}")];
    }
    let mut lines = Vec::new();
    if let Some(keep) = decision.keep {
        lines.push(format!("keeps {keep} keys"));
    }
    if !decision.targets.is_empty() {
        let targets: Vec<String> = decision
            .targets
            .iter()
            .map(|(rank, amount)| format!("{} to {rank}", short(*amount)))
            .collect();
        lines.push(format!("asks for {}", targets.join(", ")));
    }
    for step in &decision.moves {
        lines.push(format!(
            "moves {} (load {}) to {} in {} mode",
            step.units.join(" "),
            short(step.load),
            step.to,
            decision.mode
        ));
        let back: Vec<&str> = report
            .steps
            .iter()
            .filter(|done| done.ping_pong && done.from == step.from && done.to == step.to)
            .map(|done| done.unit.as_str())
            .collect();
        if !back.is_empty() {
            lines.push(format!(
                "PING-PONG: {} came from there at most {PING_PONG_TICKS} ticks ago",
                back.join(" ")
            ));
        }
    }
    lines.extend(decision.notes.iter().cloned());
    lines
}

fn summary_text(summary: &Summary) -> String {
    let mut text = format!(
        "{} ticks, {} instructions at most per tick\n",
        summary.ticks, summary.instructions_max
    );
    if let Some(cache) = &summary.cache {
        text += &format!(
            "keys: {} at most, {} in the end; {} of the reads answered\n",
            short(cache.keys_max),
            short(cache.keys),
            percent(cache.hits)
        );
        text += &match cache.bounded {
            Some((tick, keep)) => format!("bounded at tick {tick} to {keep} keys\n"),
            None => "never bounded\n".to_owned(),
        };
    } else {
        text += &format!(
            "imbalance: {} before, {} after\n",
            percent(summary.imbalance_before),
            percent(summary.imbalance_after)
        );
        text += &format!(
            "moves: {}, of which ping-pong: {}\n",
            summary.moves,
            summary.ping_pong.len()
        );
        text += &format!(
            "load not served (moving, or its rank was full): {}\n",
            percent(summary.unserved)
        );
    }
    for step in summary.ping_pong.iter().take(10) {
        text += &format!(
            "PING-PONG: {} went from {} back to {} at tick {}\n",
            step.unit, step.from, step.to, step.tick
        );
    }
    match &summary.first_failure {
        Some((tick, rank, why)) => {
            text += &format!(
                "FAILED {} times, first at tick {tick} on rank {rank}: {why}\n",
                summary.failed
            )
        }
        None => text += "failures: 0\n",
    }
    text += if summary.is_bad() {
        "do not activate it\n"
    } else {
        "fine\n"
    };
    text
}

fn explain_text(report: &TickReport) -> String {
    let mut text = format!("tick {}\n\nMetrics in\n", report.tick);
    if report.cache.is_some() {
        text += &tick_text(report);
    } else {
        let rows: Vec<Value> = report.metrics.iter().map(|(rank, metrics)| {
            json!({ "rank": rank.0, "auth": short(metrics.auth), "all": short(metrics.all), "cpu": short(metrics.cpu), "q": short(metrics.queue), "req": short(metrics.requests) })
        }).collect();
        text += &table(
            &[
                ("RANK", "rank"),
                ("AUTH", "auth"),
                ("ALL", "all"),
                ("CPU %", "cpu"),
                ("QUEUE", "q"),
                ("REQ/S", "req"),
            ],
            &rows,
        );
    }
    for (rank, decision) in &report.decisions {
        text += &format!(
            "\nRank {rank}, version {}, {} instructions\n",
            decision.version, decision.instructions
        );
        if decision.held.is_none() && !decision.loads.is_empty() {
            let loads: Vec<String> = decision
                .loads
                .iter()
                .map(|(rank, load)| format!("{rank}: {}", short(*load)))
                .collect();
            text += &format!("  weighs {}\n", loads.join(", "));
        }
        let lines = decision_lines(decision, report);
        if lines.is_empty() {
            text += "  asks for nothing\n";
        }
        for line in lines {
            text += &format!("  {line}\n");
        }
        for (_, line) in &decision.log {
            text += &format!("  said: {line}\n");
        }
    }
    for (_, line) in &report.log {
        text += &format!("\nCluster log: {line}\n");
    }
    text
}

// ─── JSON ───────────────────────────────────────────────────────────────────────────────

fn tick_json(report: &TickReport) -> Value {
    let metrics: Vec<Value> = report.metrics.iter().map(|(rank, metrics)| {
        json!({ "rank": rank.0, "auth": metrics.auth, "all": metrics.all, "cpu": metrics.cpu, "q": metrics.queue, "req": metrics.requests })
    }).collect();
    let cache = report
        .cache
        .map(|cache| json!({ "keys": cache.keys, "gets": cache.gets, "misses": cache.misses, "bytes": cache.bytes }));
    let decisions: Vec<Value> = report
        .decisions
        .iter()
        .map(|(rank, decision)| decision_json(rank.0, decision))
        .collect();
    let steps: Vec<Value> = report.steps.iter().map(|step| json!({ "unit": step.unit, "from": step.from.0, "to": step.to.0, "load": step.load, "ping_pong": step.ping_pong })).collect();
    json!({ "tick": report.tick, "metrics": metrics, "cache": cache, "imbalance": report.imbalance, "decisions": decisions, "steps": steps })
}

fn decision_json(rank: u32, decision: &Decision) -> Value {
    let by_rank = |loads: &std::collections::BTreeMap<nacre_mantle::Rank, f64>| -> Value {
        loads
            .iter()
            .map(|(rank, load)| (rank.to_string(), json!(load)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let moves: Vec<Value> = decision
        .moves
        .iter()
        .map(|step| json!({ "to": step.to.0, "asked": step.asked, "load": step.load, "units": step.units }))
        .collect();
    json!({
        "rank": rank, "version": decision.version, "activation": decision.activation,
        "held": decision.held.as_ref().map(ToString::to_string), "failed": is_failure(decision),
        "loads": by_rank(&decision.loads), "targets": by_rank(&decision.targets), "moves": moves, "mode": decision.mode.to_string(),
        "keep": decision.keep, "notes": decision.notes, "instructions": decision.instructions,
        "said": decision.log.iter().map(|(_, line)| line.as_str()).collect::<Vec<_>>(),
    })
}

fn summary_json(summary: &Summary) -> Value {
    let cache = summary.cache.map(|cache| {
        json!({ "keys_max": cache.keys_max, "keys": cache.keys, "hits": cache.hits,
            "bounded_tick": cache.bounded.map(|(tick, _)| tick), "bounded_keys": cache.bounded.map(|(_, keep)| keep) })
    });
    json!({
        "ticks": summary.ticks, "imbalance_before": summary.imbalance_before, "imbalance_after": summary.imbalance_after,
        "moves": summary.moves, "ping_pong": summary.ping_pong.len(), "failed": summary.failed,
        "first_failure": summary.first_failure.as_ref().map(|(tick, rank, why)| json!({ "tick": tick, "rank": rank.0, "why": why })),
        "unserved": summary.unserved, "instructions_max": summary.instructions_max, "cache": cache, "log": summary.log, "bad": summary.is_bad(),
    })
}
