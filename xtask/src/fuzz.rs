//! `./x fuzz NAME`: one of the fuzz targets in `fuzz/`, under cargo-fuzz and the nightly toolchain.
//!
//! The inputs that a run finds go to the build directory, not to the corpus in the repository: only
//! small inputs that found something new are worth keeping there. `crates/fuzz` has the targets'
//! code, and replays the corpus on stable.

use crate::step::program;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};

/// Default duration of a run, in seconds.
const SECONDS: &str = "60";

/// Runs a fuzz target.
///
/// # Errors
/// When it finds something, or when a prerequisite is missing; then the message says how to get it.
pub fn run(arguments: &[String]) -> Result<()> {
    let workspace = Workspace::load()?;
    let known = targets(&workspace)?;
    let Some(name) = arguments.first().filter(|name| known.contains(name)) else {
        bail!("say which target: {}", known.join(", "));
    };
    let seconds = arguments.get(1).map_or(SECONDS, String::as_str);
    seconds
        .parse::<u32>()
        .with_context(|| format!("`{seconds}` is no number of seconds"))?;
    if !program("cargo").args(["+nightly", "--version"]).succeeds() {
        bail!(
            "fuzzing needs the nightly toolchain; `rustup toolchain install nightly` installs it"
        );
    }
    if !program("cargo")
        .args(["+nightly", "fuzz", "--version"])
        .succeeds()
    {
        bail!("fuzzing needs cargo-fuzz; `cargo install cargo-fuzz` installs it");
    }
    let folder = workspace.target.join("fuzz");
    let learned = folder.join("learned").join(name);
    std::fs::create_dir_all(&learned).with_context(|| format!("creating {}", learned.display()))?;
    let corpus = workspace.root.join("fuzz/corpus").join(name);
    let limit = format!("-max_total_time={seconds}");
    program("cargo")
        .args(["+nightly", "fuzz", "run", "--target-dir"])
        .args([&folder])
        .args([name])
        .args([&learned, &corpus])
        .args([
            "--",
            &limit,
            "-rss_limit_mb=2048",
            "-malloc_limit_mb=512",
            "-timeout=30",
        ])
        .run()
}

/// The existing targets: `fuzz/fuzz_targets/NAME.rs`.
fn targets(workspace: &Workspace) -> Result<Vec<String>> {
    let folder = workspace.root.join("fuzz/fuzz_targets");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        bail!("there is no fuzz/fuzz_targets, so nothing to fuzz yet")
    };
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "rs") {
            names.extend(
                path.file_stem()
                    .map(|name| name.to_string_lossy().into_owned()),
            );
        }
    }
    names.sort();
    Ok(names)
}
