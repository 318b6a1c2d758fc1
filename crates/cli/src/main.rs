//! `nacre`: the one command (DESIGN §9; USERS §3).
//!
//! ```text
//!  arguments ─▶ command line (clap) ─▶ a module per noun ─▶ Out: plain lines and tables, or one JSON value
//!                                           │
//!              needs no cluster: crush, history, completions
//! ```
//! A host crate: it reads files and the environment, so clippy's disallowed lists do not apply here.
//!
//! Invariants (tests/): an error is one line on standard error that says what is wrong and what to do, and the exit code is not 0; with
//! `--json` standard output holds JSON and nothing else.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]
#![forbid(unsafe_code)]

mod crush;
mod failure;
mod history;
mod out;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use out::Out;
use std::process::ExitCode;

/// Replicated, programmable storage in one binary.
#[derive(Parser)]
#[command(name = "nacre", version, propagate_version = true, max_term_width = 110)]
struct Nacre {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Placement maps: try, check and show them.
    #[command(subcommand)]
    Crush(crush::Command),
    /// Histories of operations on registers.
    #[command(subcommand)]
    History(history::Command),
    /// Print the completions of a shell: `nacre completions bash > /etc/bash_completion.d/nacre`.
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

fn run(command: Command, out: &mut Out) -> Result<ExitCode> {
    match command {
        Command::Crush(command) => crush::run(command, out)?,
        Command::History(command) => return history::run(command, out),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Nacre::command(), "nacre", &mut script);
            out.bytes(&script)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    let arguments = match Nacre::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return failure::arguments(&error),
    };
    let mut out = Out::new(arguments.json);
    match run(arguments.command, &mut out).and_then(|code| out.finish().map(|()| code)) {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    }
}
