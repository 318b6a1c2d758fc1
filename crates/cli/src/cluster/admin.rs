//! Commands that the monitors answer (`docs/formats/commands.md`), and the display of their
//! answers.

use super::{Commands, Session, snap};
use crate::out::Out;
use crate::table::{Column, bytes, show, table};
use anyhow::{Context, Result, bail};
use nacre_command::{
    Command, ConfigSet, FenceAdd, Fenced, LogLast, OneOsd, OsdBalance, OsdOkToStop, OsdReweight,
    PgLs, PgMap, PoolCreate, PoolSet, Severity, Whole,
};
use serde_json::Value;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Options of the cluster.
#[derive(clap::Subcommand)]
pub enum Config {
    /// One option's value; without a name, all of them.
    Get {
        /// Which.
        key: Option<String>,
    },
    /// Set an option.
    Set(ConfigSet),
    /// Put an option back to its default.
    Rm {
        /// Which.
        key: String,
    },
    /// What options there are, what they take, and what they do.
    Help {
        /// Only this one.
        key: Option<String>,
    },
}

/// Object storage daemons.
#[derive(clap::Subcommand)]
pub enum Osd {
    /// OSDs by host.
    Tree,
    /// Space by OSD.
    Df,
    /// Give an OSD data again.
    In(OneOsd),
    /// Take an OSD's data elsewhere; it stays up and helps.
    Out(OneOsd),
    /// Mark an OSD down; one that still runs comes back by itself.
    Down(OneOsd),
    /// Set the share of its weight that an OSD takes, from 0 to 1.
    Reweight(OsdReweight),
    /// Can these be stopped together without any data becoming unavailable? Exit code 0 if so, 1 if
    /// not.
    OkToStop(OsdOkToStop),
    /// Even out placement groups over OSDs.
    Balance(OsdBalance),
}

/// Placement groups.
#[derive(clap::Subcommand)]
pub enum Pg {
    /// Placement groups and their states.
    Ls(PgLs),
    /// Where an object is.
    Map(PgMap),
    /// One placement group: who acts, what it waits for, and why.
    Explain {
        /// Such as 1.2f.
        pg: String,
    },
}

/// Pools.
#[derive(clap::Subcommand)]
pub enum Pool {
    /// Pools and their settings.
    Ls,
    /// Make a pool.
    Create(PoolCreate),
    /// Change a pool: `nacre pool set data size 3`.
    Set(PoolSet),
    /// Snapshots of a pool: all its objects as they are when it is taken.
    #[command(subcommand)]
    Snap(snap::Snap),
    /// Remove a pool with everything in it.
    Rm {
        /// Its name.
        name: String,
        /// Confirms that everything in it will be gone.
        #[arg(long)]
        yes_i_really_mean_it: bool,
    },
}

/// Monitors.
#[derive(clap::Subcommand)]
pub enum Mon {
    /// Who takes part in consensus.
    Stat,
}

/// Flags of the cluster.
#[derive(clap::Subcommand)]
pub enum Flag {
    /// Set noout, nodown, nobackfill or norecover.
    Set {
        /// Which.
        flag: nacre_command::Flag,
    },
    /// Clear one of them.
    Unset {
        /// Which.
        flag: nacre_command::Flag,
    },
}

/// Clients and OSDs that may no longer act.
#[derive(clap::Subcommand)]
pub enum Fence {
    /// Who may no longer act.
    Ls,
    /// Fence all instances of a client or OSD up to one.
    Add(FenceAdd),
    /// Lift a fence: the instances that it fenced may act again.
    Rm {
        /// `client.7` or `osd.3`.
        entity: Fenced,
    },
}

/// The cluster log.
#[derive(clap::Subcommand)]
pub enum Log {
    /// Its last lines.
    Last(LogLast),
    /// Follow it until Ctrl-C; with --json one object a line.
    Watch {
        /// At least this bad.
        #[arg(long)]
        severity: Option<Severity>,
    },
}

type Render = fn(&Value) -> String;

/// Sends a command, and shows the answer.
fn ask(
    cluster: &mut dyn Commands,
    out: &mut Out,
    command: &Command,
    render: Render,
) -> Result<Value> {
    let reply = cluster.command(command)?;
    if out.json() {
        out.value(&reply)?;
    } else {
        out.bytes(render(&reply).as_bytes())?;
    }
    Ok(reply)
}

fn rows<'v>(reply: &'v Value, field: &str) -> &'v [Value] {
    reply[field]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// One field per line; for the answer of a command without its own format.
fn fields(reply: &Value) -> String {
    let all = reply.as_object().into_iter().flatten();
    all.map(|(name, value)| format!("{name}: {}\n", show(name, value)))
        .collect()
}

const POOLS: &[Column] = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("SIZE", "size"),
    ("MIN", "min_size"),
    ("PGS", "pg_num"),
    ("RULE", "rule"),
    ("QUOTA", "quota_bytes"),
    ("FULL", "full"),
];
const DF: &[Column] = &[
    ("ID", "id"),
    ("POOL", "name"),
    ("OBJECTS", "objects"),
    ("DATA", "bytes"),
    ("STORED", "stored_bytes"),
    ("STILL FITS", "max_available_bytes"),
];
const PGS: &[Column] = &[
    ("PG", "pg"),
    ("STATE", "state"),
    ("UP", "up"),
    ("ACTING", "acting"),
    ("SINCE", "since"),
    ("OBJECTS", "objects"),
    ("DATA", "bytes"),
    ("DEGRADED", "degraded"),
    ("MISPLACED", "misplaced"),
];
const OSD_DF: &[Column] = &[
    ("OSD", "id"),
    ("UP", "up"),
    ("REWEIGHT", "reweight"),
    ("SIZE", "total_bytes"),
    ("USED", "used_bytes"),
    ("USED %", "used_percent"),
    ("PGS", "pgs"),
];
const OSD_TREE: &[Column] = &[
    ("HOST", "host"),
    ("OSD", "id"),
    ("CLASS", "class"),
    ("WEIGHT", "weight"),
    ("UP", "up"),
    ("IN", "in"),
    ("REWEIGHT", "reweight"),
    ("ADDRESS", "address"),
];
const OPTIONS: &[Column] = &[
    ("OPTION", "key"),
    ("VALUE", "value"),
    ("DEFAULT", "default"),
];
const MONS: &[Column] = &[
    ("MON", "id"),
    ("ROLE", "role"),
    ("REACHABLE", "reachable"),
    ("ADDRESS", "address"),
];

fn tree(reply: &Value) -> String {
    let with_host = |host: &Value, osd: &Value| {
        let mut row = osd.clone();
        row["host"] = host.clone();
        row
    };
    let mut flat = Vec::new();
    for host in rows(reply, "hosts") {
        flat.extend(
            rows(host, "osds")
                .iter()
                .map(|osd| with_host(&host["host"], osd)),
        );
    }
    flat.extend(
        rows(reply, "without_a_place")
            .iter()
            .map(|osd| with_host(&Value::Null, osd)),
    );
    table(OSD_TREE, &flat)
}

fn health(reply: &Value) -> String {
    let mut text = format!(
        "HEALTH_{}\n",
        reply["status"].as_str().unwrap_or("unknown").to_uppercase()
    );
    for check in rows(reply, "checks") {
        let word = |name: &str| check[name].as_str().unwrap_or("?").to_owned();
        text += &format!(
            "  {:<5} {}: {}\n",
            word("severity"),
            word("code"),
            word("summary")
        );
        for line in rows(check, "detail") {
            text += &format!("          {}\n", show("", line));
        }
        if let Some(advice) = check["what_to_do"].as_str() {
            text += &format!("          → {advice}\n");
        }
    }
    text
}

fn status(reply: &Value) -> String {
    let at = |pointer: &str| {
        reply
            .pointer(pointer)
            .map_or_else(|| "?".to_owned(), |value| show(pointer, value))
    };
    let mut text = format!(
        "cluster  {}  (epoch {})\nhealth   ",
        at("/cluster"),
        at("/epoch")
    );
    text += health(&reply["health"]).trim_end();
    text += &format!(
        "\nmons     {} of {} reachable, leader mon.{}\n",
        at("/mons/reachable"),
        at("/mons/count"),
        at("/mons/leader")
    );
    text += &format!(
        "osds     {} ({} up, {} in)\n",
        at("/osds/count"),
        at("/osds/up"),
        at("/osds/in")
    );
    let states = reply["pgs"]["by_state"].as_object().into_iter().flatten();
    let states: Vec<String> = states
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    text += &format!(
        "pgs      {} in {} pools: {}\n",
        at("/pgs/count"),
        at("/pools"),
        states.join(", ")
    );
    let number = |pointer: &str| reply.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    text += &format!(
        "data     {} objects, {}",
        number("/data/objects"),
        bytes(number("/data/bytes"))
    );
    for word in ["degraded", "misplaced"] {
        let count = number(&format!("/data/{word}"));
        if count > 0 {
            text += &format!(", {count} {word}");
        }
    }
    text += &format!(
        "\nspace    {} used of {}\n",
        bytes(number("/space/used_bytes")),
        bytes(number("/space/total_bytes"))
    );
    if !rows(reply, "flags").is_empty() {
        text += &format!("flags    {}\n", at("/flags"));
    }
    text
}

fn df(reply: &Value) -> String {
    let number = |name: &str| bytes(reply[name].as_u64().unwrap_or(0));
    let total = format!(
        "{} used, {} free of {}\n",
        number("used_bytes"),
        number("available_bytes"),
        number("total_bytes")
    );
    total + &table(DF, rows(reply, "pools"))
}

fn pg(reply: &Value) -> String {
    let mut text = String::new();
    for (name, value) in reply
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| *name != "explanation")
    {
        text += &format!("{name}: {}\n", show(name, value));
    }
    for line in rows(reply, "explanation") {
        text += &format!("→ {}\n", show("", line));
    }
    text
}

fn pool_made(reply: &Value) -> String {
    let mut text = table(POOLS, std::slice::from_ref(reply));
    for warning in rows(reply, "warnings") {
        text += &format!("warning: {}\n", show("", warning));
    }
    text
}

fn balance_sentence(reply: &Value, verb: &str) -> String {
    let groups = rows(reply, "groups").len();
    let worst = |name: &str| reply[name].as_f64().unwrap_or(f64::NAN);
    let mut text = format!(
        "the worst OSD is {:.1} placement groups off its share",
        worst("worst_before")
    );
    text += &match groups {
        0 => "; nothing is to be gained by moving any\n".to_owned(),
        _ => format!(
            "; {verb} {groups} of them leave {:.1}\n",
            worst("worst_after")
        ),
    };
    if reply["finished"] == false {
        text += "more swaps would be of use: run it again when the cluster is healthy, or raise --swaps-max\n";
    }
    text
}
fn would_balance(reply: &Value) -> String {
    balance_sentence(reply, "moving a copy of")
}
fn balanced(reply: &Value) -> String {
    balance_sentence(reply, "a copy moves of")
}

fn option_help(reply: &Value) -> String {
    let one = |option: &Value| {
        let word = |name: &str| show(name, &option[name]);
        format!(
            "{} = {}\n    {} It takes {}.\n",
            word("key"),
            word("default"),
            word("doc"),
            word("takes")
        )
    };
    rows(reply, "options").iter().map(one).collect()
}

/// A line of the cluster log.
fn log_line(line: &Value) -> String {
    let word = |name: &str| show(name, &line[name]);
    let time = line["unix_ms"]
        .as_u64()
        .map_or_else(|| "-".repeat(20), crate::clock::utc);
    format!(
        "{time} {:>5} {} {}: {}\n",
        word("number"),
        word("severity"),
        word("from"),
        word("text")
    )
}
fn log_lines(reply: &Value) -> String {
    rows(reply, "lines").iter().map(log_line).collect()
}

fn state_of(reply: &Value) -> Result<String> {
    reply["status"]
        .as_str()
        .map(str::to_owned)
        .context("the answer to `health` has no status")
}

/// Shows the cluster's status.
///
/// # Errors
/// When the monitors do not answer.
pub fn show_status(cluster: &mut dyn Commands, out: &mut Out) -> Result<()> {
    ask(cluster, out, &Command::Status {}, status).map(drop)
}

/// Shows what is wrong. The exit code is 1 if something is an error.
///
/// # Errors
/// When the monitors do not answer.
pub fn show_health(cluster: &mut dyn Commands, detail: bool, out: &mut Out) -> Result<ExitCode> {
    let command = if detail {
        Command::HealthDetail {}
    } else {
        Command::Health {}
    };
    let reply = ask(cluster, out, &command, health)?;
    Ok(if state_of(&reply)? == "error" {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Shows the space by pool.
///
/// # Errors
/// When the monitors do not answer.
pub fn show_df(cluster: &mut dyn Commands, out: &mut Out) -> Result<()> {
    ask(cluster, out, &Command::Df {}, df).map(drop)
}

/// Waits until health is OK; `seen` gets every answer. Monitors do not report OSDs that have never
/// reported: the caller passes the number in the cluster's configuration, so that a starting
/// cluster does not count as healthy when only its first daemons run.
///
/// # Errors
/// When it takes longer than `limit`, with the remaining findings.
pub fn wait_healthy(
    cluster: &mut dyn Commands,
    osds: usize,
    limit: Duration,
    seen: &mut dyn FnMut(&Value),
) -> Result<Duration> {
    let begun = Instant::now();
    loop {
        let status = cluster.command(&Command::Status {})?;
        seen(&status);
        let (health, known) = (
            &status["health"],
            status["osds"]["count"].as_u64().unwrap_or(0),
        );
        let unheard = osds.saturating_sub(usize::try_from(known).unwrap_or(usize::MAX));
        if state_of(health)? == "ok" && unheard == 0 {
            return Ok(begun.elapsed());
        }
        if begun.elapsed() >= limit {
            let checks = rows(health, "checks");
            let mut wrong: Vec<String> = checks
                .iter()
                .map(|check| show("", &check["summary"]))
                .collect();
            if unheard > 0 {
                wrong.push(format!(
                    "{unheard} of the {osds} OSDs in the configuration never reported: start them"
                ));
            }
            bail!(
                "not healthy after {} s: {}",
                limit.as_secs(),
                wrong.join("; ")
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Options of the cluster.
///
/// # Errors
/// When the monitors refuse.
pub fn config(config: Config, cluster: &mut dyn Commands, out: &mut Out) -> Result<()> {
    let (command, render): (_, Render) = match config {
        Config::Get { key: None } => (Command::ConfigDump {}, |reply| {
            table(OPTIONS, rows(reply, "options"))
        }),
        Config::Get { key: Some(key) } => (Command::ConfigGet { key }, |reply| {
            format!("{}\n", show("", &reply["value"]))
        }),
        Config::Set(set) => (Command::ConfigSet(set), fields),
        Config::Rm { key } => (Command::ConfigRm { key }, fields),
        Config::Help { key } => (Command::ConfigHelp { key }, option_help),
    };
    ask(cluster, out, &command, render).map(drop)
}

/// OSDs.
///
/// # Errors
/// When the monitors refuse.
pub fn osd(osd: Osd, cluster: &mut dyn Commands, out: &mut Out) -> Result<ExitCode> {
    let (command, render): (_, Render) = match osd {
        Osd::Tree => (Command::OsdTree {}, tree),
        Osd::Df => (Command::OsdDf {}, |reply| {
            table(OSD_DF, rows(reply, "osds"))
        }),
        Osd::In(one) => (Command::OsdIn(one), fields),
        Osd::Out(one) => (Command::OsdOut(one), fields),
        Osd::Down(one) => (Command::OsdDown(one), fields),
        Osd::Reweight(wish) => (Command::OsdReweight(wish), fields),
        Osd::OkToStop(wish) => {
            let render = |reply: &Value| format!("{}\n", show("", &reply["answer"]));
            let reply = ask(cluster, out, &Command::OsdOkToStop(wish), render)?;
            return Ok(if reply["ok"] == true {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
        Osd::Balance(wish) => {
            let render = if wish.dry_run {
                would_balance
            } else {
                balanced
            };
            (Command::OsdBalance(wish), render)
        }
    };
    ask(cluster, out, &command, render).map(|_| ExitCode::SUCCESS)
}

/// Placement groups.
///
/// # Errors
/// When the monitors refuse.
pub fn placement(of: Pg, cluster: &mut dyn Commands, out: &mut Out) -> Result<()> {
    let (command, render): (_, Render) = match of {
        Pg::Ls(only) => (Command::PgLs(only), |reply| table(PGS, rows(reply, "pgs"))),
        Pg::Map(object) => (Command::PgMap(object), fields),
        Pg::Explain { pg: name } => (Command::PgExplain { pg: name }, pg),
    };
    ask(cluster, out, &command, render).map(drop)
}

/// Pools.
///
/// # Errors
/// When the monitors refuse.
pub fn pool(pool: Pool, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let (command, render): (_, Render) = match pool {
        Pool::Ls => (Command::PoolLs {}, |reply| {
            table(POOLS, rows(reply, "pools"))
        }),
        Pool::Create(wish) => (Command::PoolCreate(wish), pool_made),
        Pool::Set(set) => (Command::PoolSet(set), pool_made),
        Pool::Snap(command) => return snap::run(&command, cluster, out),
        Pool::Rm {
            name,
            yes_i_really_mean_it: false,
        } => bail!(
            "this removes {name} with everything in it, for good; say --yes-i-really-mean-it if you do"
        ),
        Pool::Rm {
            name,
            yes_i_really_mean_it,
        } => (
            Command::PoolRm {
                name,
                yes_i_really_mean_it,
            },
            fields,
        ),
    };
    ask(cluster, out, &command, render).map(drop)
}

/// Monitors.
///
/// # Errors
/// When the monitors refuse.
pub fn mon(mon: Mon, cluster: &mut dyn Commands, out: &mut Out) -> Result<()> {
    let Mon::Stat = mon;
    ask(cluster, out, &Command::MonStat {}, |reply| {
        table(MONS, rows(reply, "mons"))
    })
    .map(drop)
}

/// Flags.
///
/// # Errors
/// When the monitors refuse.
pub fn flag(flag: Flag, cluster: &mut dyn Commands, out: &mut Out) -> Result<()> {
    let command = match flag {
        Flag::Set { flag } => Command::FlagSet { flag },
        Flag::Unset { flag } => Command::FlagUnset { flag },
    };
    ask(cluster, out, &command, fields).map(drop)
}

/// Fences.
///
/// # Errors
/// When the monitors refuse.
pub fn fence(fence: Fence, cluster: &mut dyn Commands, out: &mut Out) -> Result<()> {
    let (command, render): (_, Render) = match fence {
        Fence::Ls => (Command::FenceLs {}, |reply| {
            let columns = [("WHO", "entity"), ("UP TO INSTANCE", "instance")];
            table(&columns, rows(reply, "fences"))
        }),
        Fence::Add(fence) => (Command::FenceAdd(fence), fields),
        Fence::Rm { entity } => (Command::FenceRm { entity }, fields),
    };
    ask(cluster, out, &command, render).map(drop)
}

/// The cluster log.
///
/// # Errors
/// When the monitors refuse.
pub fn log(log: Log, cluster: &mut dyn Commands, out: &mut Out) -> Result<()> {
    let severity = match log {
        Log::Last(last) => {
            return ask(cluster, out, &Command::LogLast(last), log_lines).map(drop);
        }
        Log::Watch { severity } => severity,
    };
    let mut reply = cluster.command(&Command::LogLast(LogLast {
        n: Some(Whole(10)),
        severity,
    }))?;
    loop {
        for line in rows(&reply, "lines") {
            let text = if out.json() {
                format!("{line}\n")
            } else {
                log_line(line)
            };
            out.bytes(text.as_bytes())?;
        }
        out.finish()?;
        // After a full page there may be more lines.
        if rows(&reply, "lines").is_empty() {
            std::thread::sleep(Duration::from_millis(500));
        }
        let since = Whole(
            reply["next"]
                .as_u64()
                .context("the answer to `log` has no `next`")?,
        );
        reply = cluster.command(&Command::LogWatch { since, severity })?;
    }
}
