//! The crates that have changed since `./x check` last passed in this clone.
//!
//! ```text
//!  target/checked: a commit ─▶ git diff --name-only COMMIT, and untracked files ─▶ crates
//! ```
//! A pass records `HEAD`. Changes that are not committed yet differ from it, so they are tested
//! again by the next check. Without a record, in a new clone, the last commit counts as changed.

use crate::git;
use crate::workspace::{Package, Workspace};
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;

fn record(workspace: &Workspace) -> PathBuf {
    workspace.target.join("checked")
}

/// The crates with a file that differs from the last commit that passed.
///
/// # Errors
/// Git fails.
pub fn crates(workspace: &Workspace) -> Result<Vec<&Package>> {
    let root = &workspace.root;
    let last = fs::read_to_string(record(workspace)).unwrap_or_default();
    let known = format!("{}^{{commit}}", last.trim());
    let base = match git::print(root, &["rev-parse", "--verify", "--quiet", &known]) {
        Ok(commit) if !last.is_empty() => commit.trim().to_owned(),
        _ => "HEAD~1".to_owned(),
    };
    let mut files = git::paths(root, &["diff", "-z", "--name-only", &base])?;
    let others = ["ls-files", "-z", "--others", "--exclude-standard"];
    files.extend(git::paths(root, &others)?);
    Ok(of_files(workspace, &files))
}

/// The crates in whose directories these files are.
fn of_files<'w>(workspace: &'w Workspace, files: &[PathBuf]) -> Vec<&'w Package> {
    let has = |package: &&Package| {
        let inside = |file: &PathBuf| workspace.root.join(file).starts_with(&package.folder);
        files.iter().any(inside)
    };
    workspace.members.iter().filter(has).collect()
}

/// Remembers that everything passed.
///
/// # Errors
/// Git fails, or the target directory cannot be written.
pub fn passed(workspace: &Workspace) -> Result<()> {
    let head = git::print(&workspace.root, &["rev-parse", "HEAD"])?;
    fs::write(record(workspace), head.trim()).context("writing target/checked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_crate_in_whose_directory_it_is() {
        let workspace = Workspace::load().expect("cargo runs");
        let names = |files: &[&str]| {
            let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
            let found = of_files(&workspace, &files);
            found
                .iter()
                .map(|package| package.name.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names(&[
                "crates/osd/src/pg/mod.rs",
                "crates/osd/Cargo.toml",
                "xtask/x.rs"
            ]),
            ["nacre-osd", "xtask"]
        );
        assert!(names(&["README.md", "docs/crates/osd/x.md", "Cargo.lock"]).is_empty());
    }
}
