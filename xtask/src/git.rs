//! What git says of the work tree.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What git prints.
///
/// # Errors
/// Git does not start, or fails.
pub fn print(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .current_dir(root)
        .args(arguments)
        .output()
        .context("git does not start")?;
    ensure!(
        output.status.success(),
        "git {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The paths that git lists, given with `-z`: without quotes.
///
/// # Errors
/// As [`print`].
pub fn paths(root: &Path, arguments: &[&str]) -> Result<Vec<PathBuf>> {
    let text = print(root, arguments)?;
    let names = text.split('\0').filter(|name| !name.is_empty());
    Ok(names.map(PathBuf::from).collect())
}
