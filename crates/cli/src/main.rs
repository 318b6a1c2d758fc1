//! `nacre`: the one command (DESIGN §9; USERS §3).
//!
//! ```text
//!  arguments ─▶ command line (clap) ─▶ a module per noun ─▶ Out: text and tables, or JSON
//!                                           │
//!      needs no cluster:  crush · history · sim · completions · store · doctor
//!      asks the monitors: cluster::admin          ┐
//!      moves data:        object · bench · tour   ├─▶ Session (cluster/) ─▶ cluster::host, the only module that knows how
//!      runs daemons:      cluster::up, down       ┘
//! ```
//! A host crate: it reads files, clocks and the environment, so clippy's disallowed lists do not
//! apply here.
//!
//! Invariants (tests/): an error is one line on standard error with the problem and the recommended
//! action, and the exit code is not 0; with `--json` standard output holds JSON and nothing else.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(unsafe_code)]
// They panic when the line cannot be written: `say.rs`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod clock;
mod cluster;
mod crush;
mod doctor;
mod failure;
mod files;
mod history;
mod memory;
mod meta;
mod mount;
mod object;
mod objects;
mod out;
mod policy_test;
mod program;
mod progress;
mod say;
mod shelf;
mod shown;
mod sim;
mod store;
mod table;
mod tour;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use cluster::{Place, admin, down, host, members, up};
use out::Out;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Replicated, programmable storage in one binary.
#[derive(Parser)]
#[command(
    name = "nacre",
    version,
    propagate_version = true,
    max_term_width = 110
)]
struct Nacre {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    json: bool,
    /// The cluster: its folder, or its cluster.toml; or ceph:FILE, a Ceph cluster's configuration
    /// [default: ./nacre-data].
    #[arg(
        long,
        global = true,
        value_name = "DIR|FILE|ceph:FILE",
        env = "NACRE_CLUSTER",
        hide_env_values = true
    )]
    cluster: Option<PathBuf>,
    /// The name to act under: what it may do is the cluster's to say (`nacre client ls`, `nacre
    /// meta namespace`).
    #[arg(
        long = "as",
        global = true,
        value_name = "NAME",
        env = "NACRE_CLIENT",
        hide_env_values = true,
        default_value = "admin"
    )]
    client_name: String,
    #[command(subcommand)]
    command: Command,
}

/// What can be waited for.
#[derive(Clone, Copy, ValueEnum)]
enum Wish {
    /// Nothing is wrong.
    HealthOk,
}

/// How much `health` says.
#[derive(Clone, Copy, ValueEnum)]
enum Detail {
    /// Where, and what to do about it.
    Detail,
}

#[derive(Subcommand)]
enum Osd {
    /// Run one OSD until it is told to end.
    Run {
        /// The cluster's folder or file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Which of its OSDs.
        #[arg(long)]
        id: u32,
    },
    #[command(flatten)]
    Member(members::Osd),
    #[command(flatten)]
    Admin(admin::Osd),
}

#[derive(Subcommand)]
enum Mon {
    /// Run one monitor until it is told to end.
    Run {
        /// The cluster's folder or file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Which of its monitors.
        #[arg(long)]
        id: u32,
    },
    #[command(flatten)]
    Member(members::Mon),
    #[command(flatten)]
    Admin(admin::Mon),
}

#[derive(Subcommand)]
enum Mds {
    /// Run servers of file systems until they are told to end: they take the ranks that have none.
    Run {
        /// The cluster's folder or file, or ceph:FILE [default: that of --cluster].
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// What it calls itself: mds.ID.
        #[arg(long)]
        id: u32,
        /// Address of this host where it listens, on ports that are free [default: that of [[mds]]
        /// in cluster.toml, or the one by which this host reaches the monitors].
        #[arg(long, value_name = "IP")]
        address: Option<std::net::IpAddr>,
    },
}

#[derive(Subcommand)]
enum Cluster {
    /// Make a cluster of separate processes: writes cluster.toml and the daemons' empty stores.
    Init {
        /// Its folder.
        #[arg(long)]
        dir: PathBuf,
        /// Monitors: 1, 3 or 5.
        #[arg(long, default_value_t = 3)]
        mons: u32,
        /// OSDs.
        #[arg(long, default_value_t = 4)]
        osds: u32,
        /// First port of 127.0.0.1; the daemons take the following ones [default: the first free
        /// ones from 7400 on].
        #[arg(long)]
        base_port: Option<u16>,
        /// The first daemon's address, such as 127.0.7.1; the others listen on the following ones
        /// [default: all on 127.0.0.1].
        #[arg(long)]
        host: Option<std::net::Ipv4Addr>,
        /// Size of each OSD's store, such as 10GiB [default: what fits on the disk, at most
        /// 10GiB].
        #[arg(long, value_parser = members::size)]
        osd_size: Option<u64>,
    },
}

#[derive(Subcommand)]
enum Command {
    /// Run a whole cluster, made first if there is none: in this process, or one process a daemon.
    Up(up::Arguments),
    /// Stop all daemons that run in the cluster's directory.
    Down(down::Arguments),
    /// Look at this machine and the cluster's folder: what is wrong, and what to do. Exit code 1 if
    /// something is an error.
    Doctor,
    /// Daemons' stores.
    #[command(subcommand)]
    Store(store::Command),
    /// Clusters of separate processes.
    #[command(subcommand)]
    Cluster(Cluster),
    /// The cluster at a glance.
    Status,
    /// What is wrong; exit code 1 if something is an error.
    Health {
        /// Say where, and what to do about it.
        detail: Option<Detail>,
    },
    /// Space, by pool.
    Df,
    /// Wait for something: `nacre wait health-ok`.
    Wait {
        /// For what.
        what: Wish,
        /// Seconds after which to give up.
        #[arg(long, default_value_t = 300)]
        timeout: u64,
    },
    /// Options of the cluster.
    #[command(subcommand, disable_help_subcommand = true)]
    Config(admin::Config),
    /// Object storage daemons.
    #[command(subcommand)]
    Osd(Osd),
    /// Monitors.
    #[command(subcommand)]
    Mon(Mon),
    /// Placement groups.
    #[command(subcommand)]
    Pg(admin::Pg),
    /// Pools.
    #[command(subcommand)]
    Pool(admin::Pool),
    /// Flags that hold back what the cluster does by itself.
    #[command(subcommand)]
    Flag(admin::Flag),
    /// Clients and OSDs that may no longer act.
    #[command(subcommand)]
    Fence(admin::Fence),
    /// The cluster log.
    #[command(subcommand)]
    Log(admin::Log),
    /// Service metadata: small keys that the monitors agree on.
    Meta(meta::Arguments),
    /// Objects, and directory trees as objects.
    #[command(subcommand)]
    Object(object::Command),
    /// File systems.
    #[command(subcommand)]
    Fs(files::Command),
    /// Mount a file system.
    Mount(mount::Arguments),
    /// Servers of file systems.
    #[command(subcommand)]
    Mds(Mds),
    /// Object classes: methods in Lua that run where the objects are.
    #[command(subcommand)]
    Class(program::Class),
    /// Policies: balancers and other decisions, in Lua.
    #[command(subcommand)]
    Policy(program::Policy),
    /// What named clients may do.
    #[command(subcommand)]
    Client(program::Client),
    /// Benchmarks.
    #[command(subcommand)]
    Bench(bench::Command),
    /// A tour: a real tree goes in, a daemon is killed, every byte is compared.
    Tour(tour::Arguments),
    /// Placement maps: try, check and show them.
    #[command(subcommand)]
    Crush(crush::Command),
    /// Histories of operations on registers.
    #[command(subcommand)]
    History(history::Command),
    /// Simulated clusters.
    #[command(subcommand)]
    Sim(sim::Command),
    /// Print the completions of a shell: `nacre completions bash > /etc/bash_completion.d/nacre`.
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

fn run(command: Command, place: &Place, out: &mut Out) -> Result<ExitCode> {
    match command {
        Command::Up(arguments) => up::run(&arguments, place, out)?,
        Command::Down(arguments) => down::run(&arguments, place, out)?,
        Command::Doctor => return doctor::run(place, out),
        Command::Store(command) => return store::run(&command, out),
        Command::Cluster(Cluster::Init {
            dir,
            mons,
            osds,
            base_port,
            host,
            osd_size,
        }) => {
            let shape = host::Shape {
                mons,
                osds,
                base_port,
                host,
                osd_bytes: osd_size,
                first_pool: None,
            };
            host::init(&dir, &shape)?;
            out.say(&format!(
                "made {0}; `nacre up --dir {0} --processes` starts it, or each daemon alone with `nacre mon run` and `nacre osd run`",
                dir.display()
            ))?;
        }
        Command::Mon(Mon::Run { config, id }) => host::run_mon(&config, id)?,
        Command::Osd(Osd::Run { config, id }) => host::run_osd(&config, id)?,
        Command::Mds(Mds::Run {
            config,
            id,
            address,
        }) => host::run_mds(config.as_deref(), id, address, place)?,
        Command::Mount(arguments) => mount::run(&arguments, place, out)?,
        Command::Fs(command) => return files::run(&command, place, out),
        Command::Status => admin::show_status(&mut *place.connect()?, out)?,
        Command::Health { detail } => {
            return admin::show_health(&mut *place.connect()?, detail.is_some(), out);
        }
        Command::Df => admin::show_df(&mut *place.connect()?, out)?,
        Command::Wait {
            what: Wish::HealthOk,
            timeout,
        } => {
            let osds = place.config()?.osds.len();
            let took = up::wait(&mut *place.connect()?, osds, Duration::from_secs(timeout))?;
            if out.json() {
                out.value(&serde_json::json!({ "healthy": true, "waited_s": took.as_secs_f64() }))?;
            }
        }
        Command::Config(command) => admin::config(command, &mut *place.connect()?, out)?,
        Command::Osd(Osd::Member(command)) => members::osd(command, place, out)?,
        Command::Mon(Mon::Member(command)) => members::mon(command, place, out)?,
        Command::Osd(Osd::Admin(command)) => {
            return admin::osd(command, &mut *place.connect()?, out);
        }
        Command::Mon(Mon::Admin(command)) => admin::mon(command, &mut *place.connect()?, out)?,
        Command::Pg(command) => admin::placement(command, &mut *place.connect()?, out)?,
        Command::Pool(command) => admin::pool(command, &mut *place.connect()?, out)?,
        Command::Flag(command) => admin::flag(command, &mut *place.connect()?, out)?,
        Command::Fence(command) => admin::fence(command, &mut *place.connect()?, out)?,
        Command::Log(command) => admin::log(command, &mut *place.connect()?, out)?,
        Command::Meta(arguments) => meta::run(arguments, place, out)?,
        Command::Object(command) => object::run(command, &mut *place.connect()?, out)?,
        Command::Class(program::Class::Library {
            names,
            source,
            install: false,
        }) => shelf::show(&names, source, out)?,
        Command::Class(command) => {
            program::class(command, place.name(), &mut *place.connect()?, out)?
        }
        Command::Policy(program::Policy::Bench(command)) => return policy_test::run(command, out),
        Command::Policy(command) => {
            program::policy(command, place.name(), &mut *place.connect()?, out)?
        }
        Command::Client(command) => {
            program::client(&command, place.name(), &mut *place.connect()?, out)?
        }
        Command::Bench(command) => bench::run(&command, place, out)?,
        Command::Tour(arguments) => tour::run(&arguments, out)?,
        Command::Crush(command) => crush::run(command, out)?,
        Command::History(command) => return history::run(command, out),
        Command::Sim(command) => sim::run(&command, out)?,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Nacre::command(), "nacre", &mut script);
            out.bytes(&script)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    memory::keep_for_a_while();
    let arguments = match Nacre::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return failure::arguments(&error),
    };
    let place = Place::new(arguments.cluster).named(arguments.client_name);
    let mut out = Out::new(arguments.json);
    match run(arguments.command, &place, &mut out).and_then(|code| out.finish().map(|()| code)) {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    }
}
