//! `nacre history check`: whether the observations of clients are consistent (DESIGN §11).

use crate::out::Out;
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Histories of operations on registers.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Is a history linearizable? Exit code 0 if it is, 1 if not, and then it says where it fails.
    Check {
        /// One JSON object a line, as `nacre bench register` writes them; `-` is standard input.
        file: PathBuf,
    },
}

/// Runs a command.
///
/// # Errors
/// When the file is not a readable history.
pub fn run(command: Command, out: &mut Out) -> Result<ExitCode> {
    let Command::Check { file } = command;
    let text = read(&file)?;
    let records = nacre_history::parse(&text).with_context(|| file.display().to_string())?;
    if records.is_empty() {
        bail!("{} has no operations; nothing was checked", file.display());
    }
    let violations = nacre_history::check(&records).err().unwrap_or_default();
    if out.json() {
        let described = violations.iter().map(|violation| {
            json!({
                "key": violation.key,
                "explained": violation.explained,
                "operations": violation.operations,
                "around": violation.around,
                "undecided": violation.undecided,
            })
        });
        out.value(&json!({
            "linearizable": violations.is_empty(),
            "operations": records.len(),
            "violations": described.collect::<Vec<_>>(),
        }))?;
    } else if violations.is_empty() {
        out.line(&format!("linearizable: {} operations", records.len()))?;
    } else {
        for violation in &violations {
            out.line(&violation.to_string())?;
        }
    }
    Ok(if violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn read(file: &Path) -> Result<String> {
    let mut text = String::new();
    let result = if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map(|_| ())
    } else {
        std::fs::read_to_string(file).map(|found| text = found)
    };
    result.with_context(|| format!("reading the history {}", file.display()))?;
    Ok(text)
}
