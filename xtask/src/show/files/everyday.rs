//! Everyday programs: git, rsync, cargo.

use super::super::trees;
use super::{Ground, tools};
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::process::Command;
use std::time::Duration;

const STEP_MAX: Duration = Duration::from_mins(5);

/// A clone of this repository, checked by git, packed, and checked again.
pub fn git(ground: &mut Ground) -> Result<()> {
    let (from, to) = (Workspace::load()?.root, ground.dir.join("clone"));
    let step = |arguments: &[&str]| -> Result<String> {
        tools::run(
            Command::new("git").arg("-C").arg(&to).args(arguments),
            STEP_MAX,
        )
    };
    tools::run(
        Command::new("git")
            .args(["clone", "--quiet", "--no-hardlinks"])
            .arg(from)
            .arg(&to),
        STEP_MAX,
    )?;
    step(&["fsck", "--full", "--strict", "--no-progress"])?;
    for round in 0..3 {
        fs::write(to.join("more"), format!("round {round}\n")).context("changing a file")?;
        step(&["add", "--all"])?;
        step(&[
            "-c",
            "user.name=show",
            "-c",
            "user.email=show@localhost",
            "commit",
            "--quiet",
            "-m",
            "More",
        ])?;
    }
    step(&["gc", "--quiet", "--prune=now"])?;
    step(&["fsck", "--full", "--strict", "--no-progress"])?;
    let changed = step(&["status", "--porcelain"])?;
    ensure!(
        changed.trim().is_empty(),
        "git sees changes where there are none: {changed}"
    );
    ground
        .site
        .figures
        .proved("git: clone, commits, gc; fsck finds nothing, status is clean");
    Ok(())
}

/// A tree copied by rsync, compared byte for byte here, and by rsync's checksums.
pub fn rsync(ground: &mut Ground) -> Result<()> {
    if !ground.has("rsync", "rsync") {
        return Ok(());
    }
    let (from, to) = (ground.aside.join("tree"), ground.dir.join("tree"));
    let (files, _) = trees::make(&from, 2_000, 2)?;
    let copy = |more: &[&str]| -> Result<String> {
        let mut command = Command::new("rsync");
        command
            .args(["--archive", "--hard-links", "--xattrs"])
            .args(more);
        tools::run(
            command.arg(format!("{}/", from.display())).arg(&to),
            STEP_MAX,
        )
    };
    copy(&[])?;
    trees::same(&from, &to)?;
    let differ = copy(&["--dry-run", "--checksum", "--itemize-changes"])?;
    let differ: Vec<&str> = differ
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let few = differ
        .iter()
        .take(4)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    ensure!(
        differ.is_empty(),
        "rsync would bring {} of them again: {few}",
        differ.len()
    );
    ground
        .site
        .figures
        .note("rsync: files", files as f64, "files");
    ground
        .site
        .figures
        .proved("rsync: the tree is the same, in times and checksums, too");
    Ok(())
}

const MAIN: &str = "mod sums;\nfn main() { println!(\"{}\", sums::sum(1_000)); }\n";
const SUMS: &str = "pub fn sum(to: u64) -> u64 { (1..=to).sum() }
#[cfg(test)]
mod tests {
    #[test]
    fn sums() { assert_eq!(super::sum(4), 10); }
}
";

/// A crate is built, run, changed, built again and tested in the mount.
pub fn cargo(ground: &mut Ground) -> Result<()> {
    let root = ground.dir.join("small");
    let step = |arguments: &[&str]| -> Result<String> {
        let mut command = Command::new(env!("CARGO"));
        // As if called manually: this program was perhaps started by cargo.
        for name in [
            "CARGO_TARGET_DIR",
            "RUSTFLAGS",
            "CARGO_MANIFEST_DIR",
            "CARGO_ENCODED_RUSTFLAGS",
        ] {
            command.env_remove(name);
        }
        tools::run(
            command.args(arguments).arg("--offline").current_dir(&root),
            STEP_MAX,
        )
    };
    fs::create_dir_all(root.join("src")).context("making a crate")?;
    let manifest =
        "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    for (name, text) in [
        ("Cargo.toml", manifest),
        ("src/main.rs", MAIN),
        ("src/sums.rs", SUMS),
    ] {
        fs::write(root.join(name), text).with_context(|| format!("writing {name}"))?;
    }
    step(&["build"])?;
    let ran = |expected: &str| -> Result<()> {
        let said = tools::run(&mut Command::new(root.join("target/debug/small")), STEP_MAX)?;
        ensure!(
            said.trim() == expected,
            "the program says {said}, not {expected}"
        );
        Ok(())
    };
    ran("500500")?;
    fs::write(root.join("src/main.rs"), MAIN.replace("1_000", "100"))
        .context("changing the crate")?;
    step(&["build"])?;
    ran("5050")?;
    step(&["test"])?;
    step(&["build", "--release"])?;
    ground
        .site
        .figures
        .proved("cargo: built, run, changed, built again and tested on the mount");
    Ok(())
}
