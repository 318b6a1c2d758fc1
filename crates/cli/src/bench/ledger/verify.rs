//! Reading a ledger's objects back, and probing every PG.

use super::SHOWN;
use super::model::{digest, read, state_of};
use crate::cluster::Session;
use crate::objects::{Ended, Window, call, operation};
use crate::out::Out;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use nacre_crush::object::{object_hash, pg_seed};
use nacre_types::{ObjectId, PoolId};
use nacre_wire::Payload;
use nacre_wire::msg::client::{SubOp, SubReply};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Arguments of `bench ledger verify`.
#[derive(clap::Args)]
pub struct Verify {
    /// Ledgers.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The pool.
    #[arg(long, default_value = "bench")]
    pub pool: String,
    /// Only these placement groups, as numbers in hexadecimal: those that are served.
    #[arg(long, value_delimiter = ',')]
    groups: Vec<String>,
}

/// Arguments of `bench ledger probe`.
#[derive(clap::Args)]
pub struct Probe {
    /// The pool.
    #[arg(long, default_value = "bench")]
    pub pool: String,
    /// Milliseconds that an operation may take.
    #[arg(long, default_value_t = 5_000)]
    bound_ms: u64,
}

fn group(name: &str, groups: u32) -> u32 {
    pg_seed(object_hash(b"", b"", name.as_bytes()), groups)
}

/// See the module head.
///
/// # Errors
/// When anything is not as expected.
pub fn verify(
    arguments: &Verify,
    cluster: &mut dyn Session,
    pool: PoolId,
    out: &mut Out,
) -> Result<()> {
    let groups = cluster.pg_num(pool)?;
    let only = arguments
        .groups
        .iter()
        .map(|group| u32::from_str_radix(group, 16).context("--groups: no number"));
    let only: BTreeSet<u32> = only.collect::<Result<_>>()?;
    let wanted = |group: u32| only.is_empty() || only.contains(&group);
    let mut must: BTreeMap<String, (Vec<String>, String)> = BTreeMap::new();
    for file in &arguments.files {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        for line in text.lines() {
            let entry: Value =
                serde_json::from_str(line).with_context(|| format!("in {}", file.display()))?;
            let may_be = entry["may_be"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned);
            let (name, last) = (
                entry["name"].as_str().context("no name")?,
                entry["last"].as_str().unwrap_or("?"),
            );
            if wanted(group(name, groups)) {
                must.insert(name.to_owned(), (may_be.collect(), last.to_owned()));
            }
        }
    }
    let mut wrong: Vec<String> = Vec::new();
    let mut listed: BTreeSet<String> = BTreeSet::new();
    for group in (0..groups).filter(|group| wanted(*group)) {
        let mut after = Bytes::new();
        loop {
            let mut list = operation(
                pool,
                ObjectId::default(),
                vec![SubOp::ListObjects { after, limit: 500 }],
                Payload::new(),
            );
            list.group = Some(group);
            let done = match call(cluster, list)? {
                Ok(done) => done,
                Err(why) => {
                    wrong.push(format!("group {group:x} cannot be listed: {why}"));
                    break;
                }
            };
            let Some(SubReply::Objects { objects, next }) = done.results.into_iter().next() else {
                bail!("the answer to a listing is none: is a daemon of another version?");
            };
            listed.extend(
                objects
                    .iter()
                    .map(|object| String::from_utf8_lossy(object.name.as_bytes()).into_owned()),
            );
            let Some(next) = next else { break };
            after = next;
        }
    }
    for (name, (may_be, last)) in &must {
        let absent = |word: &String| word == "absent";
        if listed.contains(name) && may_be.iter().all(absent) {
            wrong.push(format!("{name} is listed, and was removed; last {last}"));
        }
        if !listed.contains(name) && !may_be.iter().any(absent) {
            wrong.push(format!("{name} is not listed; last {last}"));
        }
    }
    let mut check = |name: String, ended: Ended| -> Result<()> {
        let (may_be, last) = &must[&name];
        let group = group(&name, groups);
        match state_of(ended)? {
            Ok(state) if may_be.contains(&digest(&state)) => {}
            Ok(state) => {
                let is = super::shown(&state);
                wrong.push(format!(
                    "{name} of group {group:x} is {is}, not {}; last {last}",
                    may_be.join(" or ")
                ));
            }
            Err(why) => wrong.push(format!(
                "{name} of group {group:x} cannot be read: {why}; last {last}"
            )),
        }
        Ok(())
    };
    let mut window = Window::new(cluster, 32, 32 << 20);
    for name in must.keys() {
        window.push(
            read(pool, ObjectId::named(name)),
            name.clone(),
            1 << 20,
            &mut check,
        )?;
    }
    window.drain(&mut check)?;
    out.value(&json!({
        "objects": must.len(), "listed": listed.len(), "wrong": wrong.len(), "first": wrong.iter().take(SHOWN).collect::<Vec<_>>(),
    }))?;
    match wrong.first() {
        Some(first) => bail!(
            "{} things are not as they must be; the first: {first}",
            wrong.len()
        ),
        None => Ok(()),
    }
}

/// See the module head.
///
/// # Errors
/// When an operation fails or takes longer than its bound.
pub fn probe(
    arguments: &Probe,
    cluster: &mut dyn Session,
    pool: PoolId,
    out: &mut Out,
) -> Result<()> {
    let groups = cluster.pg_num(pool)?;
    let mut names: BTreeMap<u32, String> = BTreeMap::new();
    for name in (0_u64..).map(|number| format!("probe-{number}")) {
        names.entry(group(&name, groups)).or_insert(name);
        if names.len() == usize::try_from(groups).expect("small") {
            break;
        }
    }
    let call_of = |length: u64| SubOp::Call {
        class: "tally".into(),
        method: "add".into(),
        length,
    };
    type Make = (&'static str, fn() -> Payload, Vec<SubOp>);
    let steps: [Make; 4] = [
        (
            "write",
            || [Bytes::from_static(b"probe")].into_iter().collect(),
            vec![SubOp::WriteFull { length: 5 }],
        ),
        (
            "class call",
            || [Bytes::from_static(b"k")].into_iter().collect(),
            vec![call_of(1)],
        ),
        (
            "read",
            Payload::new,
            vec![SubOp::Read {
                offset: 0,
                length: 5,
            }],
        ),
        ("delete", Payload::new, vec![SubOp::Delete {}]),
    ];
    let (mut wrong, mut worst) = (Vec::new(), (Duration::ZERO, String::new()));
    for (what, payload, ops) in steps {
        // All PGs at once: one that hangs must not hide the others.
        let mut ended = |(group, begun): (u32, Instant), ended: Ended| -> Result<()> {
            let took = begun.elapsed();
            let line = format!("{what} in group {group:x}: {} ms", took.as_millis());
            match ended {
                Err(why) => wrong.push(format!("{line}: {why}")),
                Ok(_) if took > Duration::from_millis(arguments.bound_ms) => {
                    wrong.push(line.clone())
                }
                Ok(_) => {}
            }
            if took > worst.0 {
                worst = (took, line);
            }
            Ok(())
        };
        let mut window = Window::new(cluster, 1000, 1 << 20);
        for (group, name) in &names {
            let request = operation(pool, ObjectId::named(name), ops.clone(), payload());
            window.push(request, (*group, Instant::now()), 1, &mut ended)?;
        }
        window.drain(&mut ended)?;
    }
    out.value(&json!({
        "groups": groups, "worst_ms": u64::try_from(worst.0.as_millis()).unwrap_or(u64::MAX), "worst": worst.1,
        "wrong": wrong.len(), "first": wrong.iter().take(SHOWN).collect::<Vec<_>>(),
    }))?;
    match wrong.first() {
        Some(first) => {
            bail!(
                "{} operations failed or took longer than {} ms; the first: {first}",
                wrong.len(),
                arguments.bound_ms
            )
        }
        None => Ok(()),
    }
}
