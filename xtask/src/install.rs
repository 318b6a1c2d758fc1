//! What the machine must have, and getting it where that is possible without asking.
//!
//! The Rust toolchain is pinned in `rust-toolchain.toml`, and rustup fetches it. Everything else is
//! a program that `apt-get` knows.

use crate::step::{cargo, program};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// A program, the Debian package that has it, and who needs it.
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
/// A sentence that says what to install by hand.
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

/// Installs those of some programs that are missing: each with its package, and who needs it.
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

/// A program that a crate has, built into a folder that is ours if it is not there yet; its path.
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

/// Whether this is run by the administrator.
pub fn is_root() -> bool {
    let output = std::process::Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
