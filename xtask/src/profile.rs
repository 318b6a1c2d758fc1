//! Release binaries are compiled with counts of what ran before: profile-guided optimization.
//!
//! ```text
//!  loads ─▶ an instrumented binary ─▶ target/profile/raw/*.profraw ─▶ merged: bench/nacre.profdata
//!                                                                           │ in the repository
//!  ./x build, bench, show, chaos, sim, test ◀── rustc -Cprofile-use ◀───────┘
//! ```
//! Half of an OSD's own time is spent waiting for its code and data: with the counts, what runs
//! together lies together, and branches fall through where they usually go. It saved a fifth of the
//! CPU of an overwrite and of a read when it was first tried. Functions without counts are compiled
//! as without a profile. After a function has changed, its counts are ignored: an old profile costs
//! speed, never correctness. So it is made again (`./x profile`) when the short ways have changed
//! much, not with every commit: each version stays in the repository's history.
//!
//! Every release build of this tree must have the same flags: cargo compiles everything again when
//! they change.

use crate::bounded;
use crate::cluster::Cluster;
use crate::cluster::guard::Guard;
use crate::step::{self, Step};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Maximum duration of a load, with preparation.
const LOAD_MAX: Duration = Duration::from_mins(5);
/// Separates flags in `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: char = '\u{1f}';

/// What is counted, and a tour (faults, recovery, files). Small operations dominate by number.
const LOADS: &[&str] = &[
    "bench object prepare --size 4096 --objects 5000 --set small",
    "bench object overwrite --size 4096 --depth 16 --objects 5000 --set small \
     --prepared --keep --seconds 6",
    "bench object overwrite --size 4096 --depth 1 --objects 5000 --set small --prepared \
     --keep --seconds 4",
    "bench object read --size 4096 --depth 16 --objects 5000 --set small --prepared \
     --keep --seconds 4",
    "bench object read --size 4096 --depth 1 --objects 5000 --set small --prepared \
     --keep --seconds 2",
    "bench object omap --size 100 --depth 16 --objects 5000 --seconds 4",
    "bench object write --size 4096 --depth 16 --objects 10000000 --seconds 4",
    "bench object write --size 4194304 --depth 16 --objects 64 --seconds 4",
    "bench object read --size 4194304 --depth 16 --objects 64 --seconds 4",
    "bench object prepare --size 4096 --objects 100000 --set many",
    "bench object overwrite --size 4096 --depth 16 --objects 100000 --set many \
     --prepared --keep --seconds 6",
    "bench call --seconds 4",
    "bench meta --sets 1000 --watchers 1000 --changes 10",
    "fs create home",
    "bench files --count 20000",
];

/// The profile in the repository.
fn kept(workspace: &Workspace) -> PathBuf {
    workspace.root.join("bench/nacre.profdata")
}

/// Cargo for a release build, with the profile if there is one.
///
/// # Errors
/// When the profile cannot be read.
pub fn cargo<const N: usize>(workspace: &Workspace, arguments: [&str; N]) -> Result<Step> {
    let kept = kept(workspace);
    if !kept.exists() {
        return Ok(step::cargo(arguments));
    }
    let profile = fs::read(&kept).with_context(|| format!("reading {}", kept.display()))?;
    // The name has the content's hash: cargo does not look into the file.
    let mut hash = std::hash::DefaultHasher::new();
    profile.hash(&mut hash);
    let named = workspace
        .target
        .join(format!("profile/{:016x}.profdata", hash.finish()));
    if !named.exists() {
        let new = named.with_extension("new");
        fs::create_dir_all(workspace.target.join("profile")).context("making its folder")?;
        fs::write(&new, profile).context("copying the profile")?;
        fs::rename(&new, &named).context("naming the profile")?;
    }
    let mut used = OsString::from("-Cprofile-use=");
    used.push(named);
    // Functions that have changed since are not worth a warning each.
    let quiet = "-Cllvm-args=-no-pgo-warn-mismatch".into();
    Ok(with_flags(step::cargo(arguments), &[used, quiet]))
}

/// Adds flags to those that the user has set.
fn with_flags(cargo: Step, more: &[OsString]) -> Step {
    let mut flags = match std::env::var_os("CARGO_ENCODED_RUSTFLAGS") {
        Some(encoded) => encoded,
        None => std::env::var("RUSTFLAGS")
            .unwrap_or_default()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(&SEPARATOR.to_string())
            .into(),
    };
    for flag in more {
        if !flags.is_empty() {
            flags.push(SEPARATOR.to_string());
        }
        flags.push(flag);
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags)
}

/// `./x profile`: makes the profile again.
///
/// # Errors
/// When a load does not run, or there is no program that merges counts.
pub fn run(arguments: &[String]) -> Result<()> {
    let base_port = match arguments {
        [] => "17500",
        [flag, port] if flag == "--base-port" => port,
        _ => bail!("profile has one argument: --base-port PORT"),
    };
    let workspace = Workspace::load()?;
    let merge = merger()?;
    let place = workspace.target.join("profile");
    let (raw, build) = (place.join("raw"), place.join("build"));
    if raw.exists() {
        fs::remove_dir_all(&raw).with_context(|| format!("emptying {}", raw.display()))?;
    }
    let mut flag = OsString::from("-Cprofile-generate=");
    flag.push(&raw);
    let arguments = ["build", "--release", "--locked", "--package", "nacre-cli"];
    with_flags(step::cargo(arguments), &[flag])
        .args(["--package", "nacre-floor"])
        .env("CARGO_TARGET_DIR", &build)
        .run()?;
    let nacre = build.join("release/nacre");
    let dir = place.join("cluster");
    let guard = Guard::start(&nacre, &dir)?;
    loads(&nacre, &dir, base_port)?;
    drop(guard);
    // What is compared with is compiled in the same way.
    step::program(build.join("release/nacre-floor"))
        .args(["--seconds", "2", "--dir"])
        .args([&place])
        .run()?;
    let tour = place.join("tour");
    step::program(&nacre)
        .args(["tour", "--fresh", "--dir"])
        .args([&tour])
        .run()?;
    merged(&merge, &raw, &kept(&workspace))
}

/// Runs each load on a cluster of processes, which ends as clusters should: what is killed leaves
/// no counts.
fn loads(nacre: &Path, dir: &Path, base_port: &str) -> Result<()> {
    let cluster = Cluster::at(nacre, dir);
    cluster.up(&["--processes", "--base-port", base_port])?;
    for load in LOADS {
        println!("$ nacre {load}");
        let words: Vec<&str> = load.split(' ').collect();
        cluster.ask_for(LOAD_MAX, &words)?;
    }
    cluster.down()
}

/// Merges the counts, of what ran only.
fn merged(merge: &Path, raw: &Path, into: &Path) -> Result<()> {
    let mut counts = Vec::new();
    for entry in fs::read_dir(raw).context("reading the counts")? {
        counts.push(entry.context("reading the counts")?.path());
    }
    // A process that was killed while it wrote them has left a part.
    let mut command = Command::new(merge);
    command
        .args(["merge", "--sparse", "--failure-mode=all", "-o"])
        .arg(into)
        .args(counts);
    bounded::printed(&mut command, LOAD_MAX)?;
    let size = fs::metadata(into).context("measuring the profile")?.len();
    println!("made {} ({} KiB)", into.display(), size >> 10);
    Ok(())
}

/// The program that merges counts, of the compiler's version of LLVM.
fn merger() -> Result<PathBuf> {
    let ask = |arguments: &[&str]| {
        let mut rustc = Command::new("rustc");
        bounded::printed(rustc.args(arguments), Duration::from_secs(30))
    };
    let about = ask(&["-vV"])?;
    let field = |name: &str| about.lines().find_map(|line| line.strip_prefix(name));
    let host = field("host: ").context("rustc does not say its host")?;
    let version = field("LLVM version: ").context("rustc does not say its LLVM")?;
    let major = version.split('.').next().unwrap_or_default();
    let own = PathBuf::from(ask(&["--print", "sysroot"])?.trim())
        .join("lib/rustlib")
        .join(host)
        .join("bin/llvm-profdata");
    let distributions = PathBuf::from(format!("llvm-profdata-{major}"));
    [own, distributions]
        .into_iter()
        .find(|program| step::program(program).args(["--version"]).succeeds())
        .with_context(|| {
            format!(
                "no llvm-profdata of LLVM {major}: `rustup component add llvm-tools`, or install \
                 llvm-{major} of your distribution"
            )
        })
}
