//! Commands that the monitors answer (`docs/formats/commands.md`), and how people see the answers.

use super::{Commands, Session, snap};
use crate::out::Out;
use crate::table::{Column, bytes, show, table};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
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
    Set {
        /// Which.
        key: String,
        /// To what.
        value: String,
    },
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
    In {
        /// `3` or `osd.3`.
        osd: String,
    },
    /// Take an OSD's data elsewhere; it stays up and helps.
    Out {
        /// `3` or `osd.3`.
        osd: String,
    },
    /// Mark an OSD down; one that lives comes back by itself.
    Down {
        /// `3` or `osd.3`.
        osd: String,
    },
    /// Set the share of its weight that an OSD takes, from 0 to 1.
    Reweight {
        /// `3` or `osd.3`.
        osd: String,
        /// From 0 to 1.
        weight: f64,
    },
    /// Can these be stopped together without any data becoming unavailable? Exit code 0 if so, 1 if
    /// not.
    OkToStop {
        /// `3` or `osd.3`, several if wanted.
        #[arg(required = true)]
        osds: Vec<String>,
    },
    /// Even out placement groups over OSDs.
    Balance {
        /// Only this pool's.
        #[arg(long)]
        pool: Option<String>,
        /// Only say what it would do.
        #[arg(long)]
        dry_run: bool,
        /// Most swaps: each moves one copy of a placement group.
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        swaps_max: u32,
    },
}

/// Placement groups.
#[derive(clap::Subcommand)]
pub enum Pg {
    /// Placement groups and their states.
    Ls {
        /// Only of this pool.
        #[arg(long)]
        pool: Option<String>,
        /// Only those on this OSD.
        #[arg(long)]
        osd: Option<String>,
        /// Only in this state: active, clean, peering, degraded, recovering, backfilling,
        /// remapped, down, undersized.
        #[arg(long)]
        state: Option<String>,
    },
    /// Where an object is.
    Map {
        /// The pool.
        pool: String,
        /// The object.
        object: String,
    },
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
    Create {
        /// Its name.
        name: String,
        /// Copies of every object.
        #[arg(long)]
        size: Option<u32>,
        /// Copies that must be there for reads and writes.
        #[arg(long)]
        min_size: Option<u32>,
        /// Placement groups; chosen from the number of OSDs without.
        #[arg(long)]
        pg_num: Option<u32>,
        /// The placement rule.
        #[arg(long)]
        rule: Option<String>,
    },
    /// Change a pool: `nacre pool set data size 3`.
    Set {
        /// Its name.
        name: String,
        /// size, min_size, pg_num, quota_bytes, quota_objects or no_delete.
        key: String,
        /// The value.
        value: String,
    },
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
        flag: String,
    },
    /// Clear one of them.
    Unset {
        /// Which.
        flag: String,
    },
}

/// Clients and OSDs that may no longer act.
#[derive(clap::Subcommand)]
pub enum Fence {
    /// Who may no longer act.
    Ls,
    /// End all lives of a client or OSD up to one.
    Add {
        /// `client.7` or `osd.3`.
        entity: String,
        /// The last life that may not act any more; an OSD's present one without.
        #[arg(long)]
        instance: Option<u64>,
    },
    /// Lift a fence: the lives that it ended may act again.
    Rm {
        /// `client.7` or `osd.3`.
        entity: String,
    },
}

/// The cluster log.
#[derive(clap::Subcommand)]
pub enum Log {
    /// Its last lines.
    Last {
        /// How many.
        #[arg(default_value_t = 20)]
        n: u64,
        /// At least this bad: debug, info, warn, error.
        #[arg(long)]
        severity: Option<String>,
    },
    /// Follow it until Ctrl-C; with --json one object a line.
    Watch {
        /// At least this bad: debug, info, warn, error.
        #[arg(long)]
        severity: Option<String>,
    },
}

type Render = fn(&Value) -> String;

/// Asks, and shows the answer.
fn ask(
    cluster: &mut dyn Commands,
    out: &mut Out,
    request: &Value,
    render: Render,
) -> Result<Value> {
    let reply = cluster.command(request)?;
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

/// One field a line; what a command without a shape of its own answers.
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

/// The cluster at a glance.
///
/// # Errors
/// When the monitors do not answer.
pub fn show_status(cluster: &mut dyn Commands, out: &mut Out) -> Result<()> {
    ask(cluster, out, &json!({ "command": "status" }), status).map(drop)
}

/// What is wrong. The exit code is 1 when something is an error.
///
/// # Errors
/// When the monitors do not answer.
pub fn show_health(cluster: &mut dyn Commands, detail: bool, out: &mut Out) -> Result<ExitCode> {
    let command = if detail { "health detail" } else { "health" };
    let reply = ask(cluster, out, &json!({ "command": command }), health)?;
    Ok(if state_of(&reply)? == "error" {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Space.
///
/// # Errors
/// When the monitors do not answer.
pub fn show_df(cluster: &mut dyn Commands, out: &mut Out) -> Result<()> {
    ask(cluster, out, &json!({ "command": "df" }), df).map(drop)
}

/// Waits until nothing is wrong; `seen` is given every answer. Monitors do not miss OSDs that never
/// reported: the caller says how many the cluster's configuration has, so that a cluster that is
/// just being started is not called healthy for the daemons that were first.
///
/// # Errors
/// When it takes longer than `limit`, with what is still wrong.
pub fn wait_healthy(
    cluster: &mut dyn Commands,
    osds: usize,
    limit: Duration,
    seen: &mut dyn FnMut(&Value),
) -> Result<Duration> {
    let begun = Instant::now();
    loop {
        let status = cluster.command(&json!({ "command": "status" }))?;
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
pub fn config(command: &Config, cluster: &mut dyn Commands, out: &mut Out) -> Result<()> {
    let (request, render): (_, Render) = match command {
        Config::Get { key: None } => (json!({ "command": "config dump" }), |reply| {
            table(OPTIONS, rows(reply, "options"))
        }),
        Config::Get { key: Some(key) } => {
            (json!({ "command": "config get", "key": key }), |reply| {
                format!("{}\n", show("", &reply["value"]))
            })
        }
        Config::Set { key, value } => (
            json!({ "command": "config set", "key": key, "value": value }),
            fields,
        ),
        Config::Rm { key } => (json!({ "command": "config rm", "key": key }), fields),
        Config::Help { key: None } => (json!({ "command": "config help" }), option_help),
        Config::Help { key: Some(key) } => {
            (json!({ "command": "config help", "key": key }), option_help)
        }
    };
    ask(cluster, out, &request, render).map(drop)
}

/// OSDs.
///
/// # Errors
/// When the monitors refuse.
pub fn osd(command: &Osd, cluster: &mut dyn Commands, out: &mut Out) -> Result<ExitCode> {
    let named = |verb: &str, osd: &str| json!({ "command": format!("osd {verb}"), "osd": osd });
    let (request, render): (_, Render) = match command {
        Osd::Tree => (json!({ "command": "osd tree" }), tree),
        Osd::Df => (json!({ "command": "osd df" }), |reply| {
            table(OSD_DF, rows(reply, "osds"))
        }),
        Osd::In { osd } => (named("in", osd), fields),
        Osd::Out { osd } => (named("out", osd), fields),
        Osd::Down { osd } => (named("down", osd), fields),
        Osd::Reweight { osd, weight } => (
            json!({ "command": "osd reweight", "osd": osd, "weight": weight }),
            fields,
        ),
        Osd::OkToStop { osds } => {
            let render = |reply: &Value| format!("{}\n", show("", &reply["answer"]));
            let reply = ask(
                cluster,
                out,
                &json!({ "command": "osd ok-to-stop", "osds": osds }),
                render,
            )?;
            return Ok(if reply["ok"] == true {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
        Osd::Balance {
            pool,
            dry_run,
            swaps_max,
        } => {
            let request = json!({ "command": "osd balance", "pool": pool, "dry_run": dry_run, "swaps_max": swaps_max });
            (request, if *dry_run { would_balance } else { balanced })
        }
    };
    ask(cluster, out, &request, render).map(|_| ExitCode::SUCCESS)
}

/// Placement groups.
///
/// # Errors
/// When the monitors refuse.
pub fn placement(command: &Pg, cluster: &mut dyn Commands, out: &mut Out) -> Result<()> {
    let (request, render): (_, Render) = match command {
        Pg::Ls { pool, osd, state } => {
            let request = json!({ "command": "pg ls", "pool": pool, "osd": osd, "state": state });
            (request, |reply| table(PGS, rows(reply, "pgs")))
        }
        Pg::Map { pool, object } => (
            json!({ "command": "pg map", "pool": pool, "object": object }),
            fields,
        ),
        Pg::Explain { pg: name } => (json!({ "command": "pg explain", "pg": name }), pg),
    };
    ask(cluster, out, &request, render).map(drop)
}

/// Pools.
///
/// # Errors
/// When the monitors refuse.
pub fn pool(command: &Pool, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let (request, render): (_, Render) = match command {
        Pool::Ls => (json!({ "command": "pool ls" }), |reply| {
            table(POOLS, rows(reply, "pools"))
        }),
        Pool::Create {
            name,
            size,
            min_size,
            pg_num,
            rule,
        } => {
            let request = json!({
                "command": "pool create", "name": name, "size": size, "min_size": min_size, "pg_num": pg_num, "rule": rule,
            });
            (request, pool_made)
        }
        Pool::Set { name, key, value } => (
            json!({ "command": "pool set", "name": name, "key": key, "value": value }),
            pool_made,
        ),
        Pool::Snap(command) => return snap::run(command, cluster, out),
        Pool::Rm {
            name,
            yes_i_really_mean_it,
        } => {
            if !yes_i_really_mean_it {
                bail!(
                    "this removes {name} with everything in it, for good; say --yes-i-really-mean-it if you do"
                );
            }
            (
                json!({ "command": "pool rm", "name": name, "yes_i_really_mean_it": true }),
                fields,
            )
        }
    };
    ask(cluster, out, &request, render).map(drop)
}

/// Monitors.
///
/// # Errors
/// When the monitors refuse.
pub fn mon(command: &Mon, cluster: &mut dyn Commands, out: &mut Out) -> Result<()> {
    let (request, render): (_, Render) = match command {
        Mon::Stat => (json!({ "command": "mon stat" }), |reply| {
            table(MONS, rows(reply, "mons"))
        }),
    };
    ask(cluster, out, &request, render).map(drop)
}

/// Flags.
///
/// # Errors
/// When the monitors refuse.
pub fn flag(command: &Flag, cluster: &mut dyn Commands, out: &mut Out) -> Result<()> {
    let request = match command {
        Flag::Set { flag } => json!({ "command": "flag set", "flag": flag }),
        Flag::Unset { flag } => json!({ "command": "flag unset", "flag": flag }),
    };
    ask(cluster, out, &request, fields).map(drop)
}

/// Fences.
///
/// # Errors
/// When the monitors refuse.
pub fn fence(command: &Fence, cluster: &mut dyn Commands, out: &mut Out) -> Result<()> {
    let (request, render): (_, Render) = match command {
        Fence::Ls => (json!({ "command": "fence ls" }), |reply| {
            table(
                &[("WHO", "entity"), ("UP TO INSTANCE", "instance")],
                rows(reply, "fences"),
            )
        }),
        Fence::Add { entity, instance } => (
            json!({ "command": "fence add", "entity": entity, "instance": instance }),
            fields,
        ),
        Fence::Rm { entity } => (json!({ "command": "fence rm", "entity": entity }), fields),
    };
    ask(cluster, out, &request, render).map(drop)
}

/// The cluster log.
///
/// # Errors
/// When the monitors refuse.
pub fn log(command: &Log, cluster: &mut dyn Commands, out: &mut Out) -> Result<()> {
    match command {
        Log::Last { n, severity } => {
            let request = json!({ "command": "log last", "n": n, "severity": severity });
            ask(cluster, out, &request, log_lines).map(drop)
        }
        Log::Watch { severity } => {
            let first = cluster
                .command(&json!({ "command": "log last", "n": 10, "severity": severity }))?;
            let mut reply = first;
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
                // Where there were lines there may be more.
                if rows(&reply, "lines").is_empty() {
                    std::thread::sleep(Duration::from_millis(500));
                }
                let since = reply["next"].clone();
                reply = cluster.command(
                    &json!({ "command": "log watch", "since": since, "severity": severity }),
                )?;
            }
        }
    }
}
