//! `./x verify`: everything that can be checked without changing anything.

mod borders;
mod documents;
mod layers;
mod licences;

use crate::step::cargo;
use crate::workspace::Workspace;
use anyhow::{Result, bail};

/// A check and what it is called.
pub type Check = (&'static str, fn(&Workspace) -> Result<()>);

/// All checks, quick ones first.
pub const CHECKS: &[Check] = &[
    ("layers", layers::check),
    ("licences and bans", licences::check),
    ("documents", documents::check),
    ("borders", borders::check),
    ("format", |_| cargo(["fmt", "--all", "--check"]).run()),
    ("clippy", |_| cargo(["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]).run()),
];

/// Runs all checks; a failed one does not hide the others.
///
/// # Errors
/// When one failed.
pub fn all() -> Result<()> {
    let workspace = Workspace::load()?;
    let mut failed = Vec::new();
    for (name, check) in CHECKS {
        match check(&workspace) {
            Ok(()) => println!("ok      {name}"),
            Err(error) => {
                eprintln!("FAILED  {name}: {error:#}");
                failed.push(*name);
            }
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    println!("{} passed, 0 failed", CHECKS.len());
    Ok(())
}

/// One error out of many findings, so that all are seen at once.
fn report(findings: Vec<String>) -> Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    bail!("{}", findings.join("\n        "))
}
