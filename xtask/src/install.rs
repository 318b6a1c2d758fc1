//! Prerequisites on the machine, and their installation where that is possible without interaction.
//!
//! The Rust toolchain is pinned in `rust-toolchain.toml`, and rustup fetches it. All others are
//! programs that `apt-get` can install.

use crate::step::{cargo, program};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// A program, its Debian package, and the reason why it is needed.
const PROGRAMS: &[(&str, &str, &str)] = &[
    ("cc", "build-essential", "crates with C parts"),
    ("c++", "build-essential", "crates with C++ parts"),
    ("git", "git", "the tour, which imports the tracked files"),
];

/// Rust components that the checks run.
const COMPONENTS: &[(&str, &str)] = &[("fmt", "rustfmt"), ("clippy", "clippy")];

/// Installs what is missing.
///
/// # Errors
/// A message with what to install manually.
pub fn everything() -> Result<()> {
    let missing = |(verb, _): &&(&str, &str)| !cargo([*verb, "--version"]).succeeds();
    for (_, component) in COMPONENTS.iter().filter(missing) {
        if program("rustup")
            .args(["component", "add", component])
            .run()
            .is_err()
        {
            bail!(
                "the Rust component {component} is missing; `rustup component add {component}` installs it"
            );
        }
    }
    programs(PROGRAMS)
}

/// Installs the missing ones of some programs: each with its package, and the reason why it is
/// needed.
///
/// # Errors
/// As [`everything`].
pub fn programs(wanted: &[(&str, &str, &str)]) -> Result<()> {
    let mut packages: Vec<&str> = Vec::new();
    for (name, package, why) in wanted {
        if !program(name).args(["--version"]).succeeds() && !packages.contains(package) {
            println!("`{name}` is missing (needed by {why})");
            packages.push(package);
        }
    }
    if packages.is_empty() {
        return Ok(());
    }
    let by_hand = format!("apt-get install {}", packages.join(" "));
    if !program("apt-get").args(["--version"]).succeeds() || !is_root() {
        bail!("install what is missing, on Debian with `{by_hand}` as root, then run this again");
    }
    program("apt-get").args(["update"]).run()?;
    let install = program("apt-get")
        .args(["install", "--yes", "--no-install-recommends"])
        .args(packages);
    install.env("DEBIAN_FRONTEND", "noninteractive").run()
}

/// Builds a program of a crate into our own directory if it is not there yet; returns its path.
///
/// # Errors
/// When it cannot be built.
pub fn from_crate(name: &str, folder: &Path) -> Result<PathBuf> {
    let path = folder.join("bin").join(name);
    if !path.exists() {
        let root = folder.display().to_string();
        cargo(["install", "--locked", "--root", root.as_str(), name]).run()?;
    }
    Ok(path)
}

/// Whether the user is root.
pub fn is_root() -> bool {
    let output = std::process::Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
