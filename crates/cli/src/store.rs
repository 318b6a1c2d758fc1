//! `nacre store check`: verifies a store that is not in use.

use crate::out::Out;
use anyhow::{Context, Result, bail, ensure};
use nacre_node::{Config, StoreReport, config, inspect};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Daemons' stores.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Check stores, writing nothing. Exit code 1 if something is wrong.
    Check {
        /// Store files or devices, daemons' folders, or clusters' folders: all their stores.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Check index and log only: do not read all data.
        #[arg(long)]
        quick: bool,
    },
}

/// The stores below a path.
fn stores(path: &Path) -> Result<Vec<PathBuf>> {
    let kind = path
        .metadata()
        .with_context(|| format!("looking at {}", path.display()))?
        .file_type();
    if !kind.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    if path.join(config::FILE_NAME).is_file() {
        let config = Config::load(path)?;
        let mons = config.mons.values().map(|entry| entry.path.clone());
        return Ok(mons
            .chain(config.osds.values().map(|entry| entry.path.clone()))
            .collect());
    }
    let store = path.join("store");
    ensure!(
        store.exists(),
        "{} holds neither a cluster nor a daemon's store; name a store's file",
        path.display()
    );
    Ok(vec![store])
}

fn as_json(path: &Path, report: &StoreReport) -> Value {
    json!({
        "path": path.display().to_string(),
        "owner": report.owner,
        "sound": report.findings.is_empty(),
        "objects": report.objects,
        "blocks": report.blocks,
        "omap_entries": report.omap_entries,
        "replayed": report.replayed,
        "findings": report.findings,
    })
}

/// Checks the stores.
///
/// # Errors
/// When one cannot be read at all, or is in use.
pub fn run(command: &Command, out: &mut Out) -> Result<ExitCode> {
    let Command::Check { paths, quick } = command;
    let mut all: Vec<PathBuf> = Vec::new();
    for path in paths {
        all.extend(stores(path)?);
    }
    let (mut damaged, mut reports) = (false, Vec::new());
    for path in &all {
        let bar = crate::progress::waiting("checking");
        bar.enable_steady_tick(std::time::Duration::from_millis(200));
        let report = inspect(path, !quick);
        bar.finish_and_clear();
        let report = match report {
            Ok(report) => report,
            Err(why) if all.len() == 1 => bail!(why),
            Err(why) => {
                // The others can still be checked.
                crate::say::line(&format!("nacre: {why}"));
                damaged = true;
                continue;
            }
        };
        damaged |= !report.findings.is_empty();
        if out.json() {
            reports.push(as_json(path, &report));
            continue;
        }
        for finding in &report.findings {
            out.line(&format!("{}: {finding}", path.display()))?;
        }
        let owner = report
            .owner
            .as_deref()
            .unwrap_or("nobody that could be read");
        let verdict = if report.findings.is_empty() {
            "sound"
        } else {
            "DAMAGED"
        };
        let read = if *quick { "data not read" } else { "data read" };
        out.line(&format!(
            "{}: {verdict}; store of {owner}; {} objects, {} blocks ({read}), {} omap entries, {} transactions only in the log",
            path.display(),
            report.objects,
            report.blocks,
            report.omap_entries,
            report.replayed
        ))?;
    }
    if out.json() {
        out.value(&json!({ "sound": !damaged, "stores": reports }))?;
    }
    Ok(if damaged {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
