//! The floor: the cost of a replicated operation when only the unavoidable work is done.
//!
//! ```text
//!  client ──▶ primary ──▶ two replicas    four processes, loopback TCP; each OSD is the primary
//!             log │           │ log       of a third of the objects; one flush for many updates
//!  client ◀── reply once all three logs have it; acknowledgements are cumulative
//! ```
//! Done: checksums at both ends of every frame, a log that is flushed, a table of objects, a table
//! of completed requests, recent records of each PG. Not done: maps, peering, recovery, scrub,
//! snapshots, locks, in-place writes, space management, checkpoints, recovery after a crash.
//!
//! * [`workload`]: the rows; [`cluster`]: the processes; [`measure`]: the figures;
//! * [`client`], [`osd`], [`net`], [`log`] (with [`company`] and [`flusher`]), [`state`], [`acks`]:
//!   small operations, start at `osd`;
//! * [`pieces`], [`stream`], [`disk`]: large writes; [`bare`]: large reads.
//!
//! It shares no code with Nacre, so that it cannot share Nacre's overhead. It is a host crate: it
//! opts out of the lists that keep clocks, threads and files out of the pure crates.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this crate is a host"
)]
#![forbid(unsafe_code)]

mod acks;
mod bare;
mod client;
mod cluster;
mod company;
mod disk;
mod files;
mod flusher;
mod frame;
mod log;
mod measure;
mod memory;
mod net;
mod osd;
mod pieces;
mod poll;
mod random;
mod state;
mod stream;
mod usage;
mod workload;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use workload::{ROWS, Row};

/// OSDs, each with a replica of every object.
pub(crate) const OSDS: usize = 3;
/// Index of the client among the peers of an OSD.
pub(crate) const CLIENT: usize = OSDS;

/// What a replicated operation costs when only the unavoidable is done
///
/// Prints one JSON object per row on standard output, and a table on standard error.
#[derive(Parser, Debug)]
#[command(name = "nacre-floor", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    /// Directory for data files, which are gone when the program ends
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Length of each measurement in seconds
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Number of objects
    #[arg(long, default_value_t = 5_000)]
    objects: u64,
    /// Operations in flight [default: the row's]
    #[arg(long)]
    depth: Option<usize>,
    /// Bytes of an operation's payload [default: the row's]
    #[arg(long)]
    size: Option<usize>,
    /// Measure only this row; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// First of three ports [default: ports that are free]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    base_port: u16,
    /// MiB of each OSD's data file
    #[arg(long, default_value_t = 128)]
    file_mib: u64,
}

#[derive(Subcommand, Debug)]
enum Role {
    /// An OSD; the client starts it
    #[command(hide = true)]
    Osd(cluster::Osd),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.role {
        Some(Role::Osd(settings)) => {
            cluster::osd(settings).with_context(|| format!("OSD {}", settings.id))
        }
        None => run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("nacre-floor: {why:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let rows = rows(arguments)?;
    let seconds = arguments.seconds;
    ensure!(
        (0.05..=3600.0).contains(&seconds),
        "--seconds must be from 0.05 to 3600"
    );
    ensure!(
        (1..=10_000_000).contains(&arguments.objects),
        "--objects must be from 1 to 10,000,000"
    );
    ensure!(
        (4..=65_536).contains(&arguments.file_mib),
        "--file-mib must be from 4 to 65,536"
    );
    ensure!(
        arguments.base_port <= 65_000,
        "--base-port must be at most 65,000: three ports are taken"
    );
    let files = cluster::Files::create(&arguments.dir, arguments.file_mib << 20)?;
    eprintln!(
        "{:<46}{:>10}{:>9}{:>9}{:>9}{:>10}{:>8}",
        "row", "ops/s", "MB/s", "p50 µs", "p99 µs", "CPU µs/op", "others"
    );
    for row in rows {
        let length = Duration::from_secs_f64(seconds);
        let outcome =
            cluster::measure(&row, arguments.objects, length, arguments.base_port, &files)
                .with_context(|| row.name.to_owned())?;
        let mut line = outcome.json(row.size);
        line["row"] = row.name.into();
        let label = row.label();
        line["what"] = label.clone().into();
        (line["depth"], line["size"], line["objects"]) =
            (row.depth.into(), row.size.into(), arguments.objects.into());
        writeln!(std::io::stdout(), "{line}").context("writing to standard output")?;
        let figure = |name: &str| line[name].as_f64().unwrap_or(f64::NAN);
        let (rate, bandwidth, cpu) = (
            figure("ops_per_s"),
            figure("mb_per_s"),
            figure("cpu_us_per_op"),
        );
        let (p50, p99, others) = (figure("p50_us"), figure("p99_us"), figure("others_cpus"));
        eprintln!(
            "{label:<46}{rate:>10.0}{bandwidth:>9.0}{p50:>9.1}{p99:>9.1}{cpu:>10.1}{others:>8.2}"
        );
    }
    Ok(())
}

fn rows(arguments: &Arguments) -> Result<Vec<Row>> {
    for name in &arguments.only {
        if !ROWS.iter().any(|row| row.name == name) {
            let all: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
            bail!("there is no row `{name}`; there are {}", all.join(", "));
        }
    }
    let wanted = |row: &&Row| {
        arguments.only.is_empty() || arguments.only.iter().any(|name| name == row.name)
    };
    let mut rows: Vec<Row> = ROWS.iter().filter(wanted).cloned().collect();
    for row in &mut rows {
        row.depth = arguments.depth.unwrap_or(row.depth);
        row.size = arguments.size.unwrap_or(row.size);
        ensure!(
            (1..=512).contains(&row.depth),
            "--depth must be from 1 to 512"
        );
        ensure!(
            (1..=64 << 20).contains(&row.size),
            "--size must be from 1 byte to 64 MiB"
        );
    }
    Ok(rows)
}
