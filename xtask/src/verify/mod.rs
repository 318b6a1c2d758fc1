//! `./x verify`: all checks that change nothing.

mod borders;
mod documents;
mod layers;
mod lengths;
mod licences;

use crate::git;
use crate::step::cargo;
use crate::workspace::Workspace;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// A check and its name.
pub type Check = (&'static str, fn(&Workspace) -> Result<()>);

/// All checks, quick ones first.
pub const CHECKS: &[Check] = &[
    ("layers", layers::check),
    ("licences and bans", licences::check),
    ("documents", documents::check),
    ("borders", borders::check),
    ("lengths", lengths::check),
    ("format", |_| cargo(["fmt", "--all", "--check"]).run()),
    ("clippy", |_| {
        cargo([
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ])
        .run()
    }),
];

/// Runs all checks; a failure does not stop the others.
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

/// Combines many findings into one error, so that all are seen at once.
fn report(findings: Vec<String>) -> Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    bail!("{}", findings.join("\n        "))
}

/// Files matching the pattern that git tracks or would track, without deleted ones.
fn tracked(root: &Path, pattern: &str) -> Result<Vec<PathBuf>> {
    let known = ["--cached", "--others", "--exclude-standard"];
    let arguments = [&["ls-files", "-z"][..], &known, &["--", pattern]].concat();
    let mut files = git::paths(root, &arguments)?;
    files.retain(|file| root.join(file).exists());
    Ok(files)
}
