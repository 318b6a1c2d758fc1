//! `./x`: the commands that build, check and test Nacre.
//!
//! ```text
//!  ./x VERB ─▶ main ─▶ install   what the machine lacks
//!                  ├─▶ verify/   reads only: fmt, clippy, layers, licences, documents
//!                  ├─▶ suite     ./x test: everything, counted
//!                  ├─▶ sim       the simulator and the mutants it must catch
//!                  ├─▶ ceph      a Ceph cluster to test with and compare with
//!                  ├─▶ bench     figures, with their baselines
//!                  ├─▶ floor     what the same costs when only the unavoidable is done
//!                  ├─▶ versus/   the same client on Nacre and on Ceph
//!                  ├─▶ calls     what calls on a file system cost, for the last and the next
//!                  ├─▶ show/     what is claimed, tried on clusters of processes
//!                  ├─▶ chaos/    processes, networks and disks mistreated as a seed says
//!                  └─▶ dist      what is shipped
//! ```
//! A host crate: it runs programs and reads files, so clippy's disallowed lists do not apply here.
//! Only the verb `fix` changes tracked files.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]
#![forbid(unsafe_code)]

mod bench;
mod bounded;
mod calls;
mod ceph;
mod changed;
mod chaos;
mod cluster;
mod dist;
mod floor;
mod fuzz;
mod git;
mod install;
mod machine;
mod profile;
mod show;
mod sim;
mod step;
mod suite;
mod verify;
mod versus;
mod workspace;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use workspace::Workspace;

/// A verb: its name, its arguments, and its function.
type Verb = (
    &'static str,
    &'static str,
    &'static str,
    fn(&[String]) -> Result<()>,
);

const VERBS: &[Verb] = &[
    (
        "run",
        "[--once] [--from DIR]",
        "install what is missing, build, and take the tour of a cluster; stays up until Ctrl-C",
        run,
    ),
    (
        "test",
        "[--ceph]",
        "install what is missing, then every check and test, on a Ceph cluster too where there can be one (root, Debian); --ceph: only that",
        suite::test,
    ),
    (
        "check",
        "",
        "before every commit: fmt, clippy, tests of crates that are quick or have changed",
        |_| suite::check(),
    ),
    (
        "verify",
        "",
        "changes nothing: fmt, clippy, layers, licences, links in documents",
        |_| verify::all(),
    ),
    (
        "fix",
        "",
        "format, and apply what clippy can fix by itself",
        |_| fix(),
    ),
    (
        "build",
        "",
        "the release binary: target/release/nacre",
        |_| build(),
    ),
    (
        "sim",
        "--seed N | --seeds N [--mutant M]",
        "the whole cluster under simulated faults",
        sim::run,
    ),
    (
        "mutants",
        "",
        "planted bugs that the simulator must catch, each with the seeds it took",
        |_| sim::mutants(),
    ),
    (
        "bench",
        "[--quick] [--base-port PORT] [--dir DIR]",
        "a cluster of processes beside the disk under it, against the goals; appends to bench/history.ndjson",
        bench::run,
    ),
    (
        "bench floor",
        "[--only ROW]… [--seconds S] [--objects N] [--depth N] [--size BYTES] [--dir DIR] [--base-port PORT]",
        "what replicated operations cost when only the unavoidable is done (crates/floor)",
        bench::run,
    ),
    (
        "bench versus",
        "[--quick] [--rounds N] [--only nacre|ceph|tuned] [--record] [--dir DIR] [--nacre FILE] [--base-port PORT]",
        "Nacre and Ceph in turn on this machine (root; 30 minutes): a table of ratios; --record writes bench/versus.md",
        bench::run,
    ),
    (
        "show",
        "[NAME…|all] [--seconds S] [--rounds N] [--only PART,…] [--dir DIR] [--base-port PORT] [--nacre FILE] [--record]",
        "clusters of processes mistreated: what is claimed, with what was found; without a name, the list",
        show::run,
    ),
    (
        "chaos",
        "[--seconds N] [--seed S] [--only KIND,…] [--plan] [--dir DIR] [--base-port PORT] [--nacre FILE]",
        "processes killed, stopped, cut off, mounts too, with failing, full and rotten disks, as the seed says: nothing lost, stale or silent",
        chaos::run,
    ),
    (
        "fuzz",
        "NAME [SECONDS]",
        "fuzz one of the parsers (needs the nightly toolchain and cargo-fuzz)",
        fuzz::run,
    ),
    (
        "profile",
        "[--base-port PORT]",
        "makes bench/nacre.profdata again, for release builds (needs llvm-tools; 15 minutes)",
        profile::run,
    ),
    (
        "dist",
        "",
        "dist/: a stripped binary, a systemd unit, a container file",
        |_| dist::dist(),
    ),
];

fn help() {
    println!("usage: ./x VERB\n");
    for (name, arguments, about, _) in VERBS {
        let line = format!("{name} {arguments}");
        // An entry longer than the column gets a separate line.
        let gap = if line.chars().count() > 42 {
            format!("\n{:45}", "")
        } else {
            " ".to_owned()
        };
        println!("  {line:<42}{gap}{about}");
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((verb, rest)) = arguments.split_first() else {
        help();
        return ExitCode::from(2);
    };
    if matches!(verb.as_str(), "help" | "-h" | "--help") {
        help();
        return ExitCode::SUCCESS;
    }
    let Some((_, _, _, run)) = VERBS.iter().find(|(name, ..)| name == verb) else {
        eprintln!("x: there is no verb `{verb}`; ./x help lists them");
        return ExitCode::from(2);
    };
    match run(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("x {verb}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let (mut once, mut from, mut rest) = (false, None, arguments.iter());
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--once" => once = true,
            "--from" => match rest.next() {
                Some(folder) => from = Some(folder.clone()),
                None => bail!("--from needs a folder"),
            },
            other => bail!("`{other}` is no argument of run; there are --once and --from DIR"),
        }
    }
    install::everything()?;
    build()?;
    suite::tour(&Workspace::load()?, once, from.as_deref())
}

/// Builds `target/release/nacre`.
pub(crate) fn build() -> Result<()> {
    let workspace = Workspace::load()?;
    if !workspace.has("nacre-cli") {
        bail!("this tree has no crate nacre-cli, so there is no binary to build");
    }
    let arguments = ["build", "--release", "--locked", "--package", "nacre-cli"];
    profile::cargo(&workspace, arguments)?.run()?;
    println!("built {}", workspace.binary().display());
    Ok(())
}

/// The program to test: the given one, or the release binary, which is built.
pub(crate) fn nacre(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(given) = given {
        return given
            .canonicalize()
            .with_context(|| format!("finding {}", given.display()));
    }
    build()?;
    Ok(Workspace::load()?.binary())
}

fn fix() -> Result<()> {
    step::cargo([
        "clippy",
        "--workspace",
        "--all-targets",
        "--fix",
        "--allow-dirty",
        "--allow-staged",
    ])
    .run()?;
    step::cargo(["fmt", "--all"]).run()
}
