//! `nacre object watch|notify|watchers|lock|unlock|locks|break-lock`: clients' claims on an object.
//!
//! A command is a separate client, and ends: a watch ends with its command, a lock outlives it. A
//! lock taken here is released by its owner's name, which `lock` prints and `locks` lists.

use super::{Target, found, pool_id};
use crate::cluster::Session;
use crate::objects::{call, operation};
use crate::out::Out;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::Args;
use nacre_client::{Done, WatchEvent};
use nacre_command::{Command, FenceAdd};
use nacre_types::{Name, ObjectId, PoolId, Version};
use nacre_wire::Payload;
use nacre_wire::msg::client::{SubOp, SubReply};
use nacre_wire::msg::lock::{LockEntry, LockHolder};
use nacre_wire::msg::watch::NOTIFY_BYTES_MAX;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Longest timeout of a notify: an operation unanswered for longer has an unknown result.
const NOTIFY_MAX_S: f64 = 25.0;
/// Duration of one wait for a watch's events.
const LOOK: Duration = Duration::from_millis(200);

/// Watching.
#[derive(Args)]
pub struct Watch {
    #[command(flatten)]
    target: Target,
    /// End after so many notifies.
    #[arg(long)]
    count: Option<u64>,
    /// How long the cluster may hear nothing of this command before it takes the watch away.
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS")]
    timeout: f64,
}

/// Notifying.
#[derive(Args)]
pub struct Notify {
    #[command(flatten)]
    target: Target,
    /// What to tell, at most 64 KiB; standard input if it is not given.
    text: Option<OsString>,
    /// How long watchers have to acknowledge; who does not loses his watch.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    timeout: f64,
}

/// Locking.
#[derive(Args)]
pub struct Lock {
    #[command(flatten)]
    target: Target,
    /// The lock.
    lock: OsString,
    /// Others may hold it too, if they also take it so.
    #[arg(long)]
    shared: bool,
    /// Others may take it over after so long; without, only when it is broken or this client is
    /// fenced.
    #[arg(long, default_value_t = 0.0, value_name = "SECONDS")]
    lease: f64,
    /// For people who find it locked.
    #[arg(long, default_value = "")]
    description: String,
}

/// Giving a lock back.
#[derive(Args)]
pub struct Unlock {
    #[command(flatten)]
    target: Target,
    /// The lock.
    lock: OsString,
    /// Whose, as `nacre object locks` says, such as client.7/1/3; not needed while only one holds
    /// it.
    owner: Option<String>,
}

/// Breaking a lock.
#[derive(Args)]
pub struct BreakLock {
    #[command(flatten)]
    target: Target,
    /// The lock.
    lock: OsString,
    /// Fence its holders first: nothing that they sent can happen any more, guarded or not.
    #[arg(long)]
    fence: bool,
}

fn ms(seconds: f64, what: &str, max_s: f64) -> Result<u32> {
    if !(0.0..=max_s).contains(&seconds) {
        bail!("{what} is between 0 and {max_s} seconds");
    }
    Ok((seconds * 1000.0) as u32)
}

fn act(
    cluster: &mut dyn Session,
    pool: PoolId,
    object: &ObjectId,
    op: SubOp,
    data: Payload,
) -> Result<Done> {
    found(
        call(cluster, operation(pool, object.clone(), vec![op], data))?,
        object,
    )
}

/// Prints notifies as they arrive; an error when the watch is lost.
///
/// # Errors
/// Also when there is no such object, or the cluster cannot be reached.
pub fn watch(args: &Watch, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let pool = pool_id(cluster, &args.target.pool)?;
    let object = args.target.object()?;
    let timeout = Duration::from_millis(u64::from(ms(args.timeout, "a watch's timeout", 3600.0)?));
    let watch = cluster.watch(pool, &object, timeout)?;
    let (_, ended) = cluster.next()?.context("the registration is lost")?;
    found(ended, &object)?;
    out.say(&format!("watching {object}"))?;
    out.finish()?;
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        match cluster.watch_event(LOOK)? {
            None => {}
            Some(WatchEvent::Notify {
                notify, payload, ..
            }) => {
                let text = payload.concat();
                let text = String::from_utf8_lossy(&text);
                if out.json() {
                    out.value(
                        &json!({ "from": format!("client.{}", notify.client.0), "text": text }),
                    )?;
                } else {
                    out.line(&text)?;
                }
                out.finish()?;
                // Acknowledge only what was printed. If the watch was lost meanwhile, the next
                // event says so.
                cluster.acknowledge(watch, notify)?;
                left -= 1;
            }
            Some(WatchEvent::Lost { .. }) => {
                bail!(
                    "the watch of {object} is lost: notifies may have been missed. Read the object, and watch it again"
                )
            }
        }
    }
    cluster.unwatch(watch)
}

/// Notifies the watchers, and prints which have acknowledged and which missed it.
///
/// # Errors
/// When there is no such object, or the cluster refuses.
pub fn notify(args: &Notify, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let pool = pool_id(cluster, &args.target.pool)?;
    let object = args.target.object()?;
    let timeout_ms = ms(args.timeout, "a notify's timeout", NOTIFY_MAX_S)?;
    let text = match &args.text {
        Some(text) => text.as_bytes().to_vec(),
        None => {
            let mut text = Vec::new();
            io::stdin()
                .take(NOTIFY_BYTES_MAX + 1)
                .read_to_end(&mut text)
                .context("reading standard input")?;
            text
        }
    };
    let op = SubOp::Notify {
        timeout_ms,
        length: text.len() as u64,
    };
    let done = act(
        cluster,
        pool,
        &object,
        op,
        if text.is_empty() {
            vec![]
        } else {
            vec![Bytes::from(text)]
        },
    )?;
    let [SubReply::Notified { acked, missed, .. }] = &done.results[..] else {
        bail!("the cluster answered something else than who was notified")
    };
    let acked: Vec<String> = acked
        .iter()
        .map(|acked| acked.watcher.to_string())
        .collect();
    let missed: Vec<String> = missed.iter().map(ToString::to_string).collect();
    if out.json() {
        return out.value(&json!({ "acknowledged": acked, "missed": missed }));
    }
    acked
        .iter()
        .try_for_each(|who| out.line(&format!("acknowledged  {who}")))?;
    missed
        .iter()
        .try_for_each(|who| out.line(&format!("missed        {who} (its watch is gone)")))?;
    if acked.is_empty() && missed.is_empty() {
        out.say("it has no watchers")
    } else {
        Ok(())
    }
}

/// Lists the watchers.
///
/// # Errors
/// When there is no such object.
pub fn watchers(target: &Target, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let pool = pool_id(cluster, &target.pool)?;
    let object = target.object()?;
    let done = act(
        cluster,
        pool,
        &object,
        SubOp::ListWatchers {},
        Payload::new(),
    )?;
    let [SubReply::Watchers { watchers }] = &done.results[..] else {
        bail!("the cluster answered something else than its watchers")
    };
    if out.json() {
        let one = |w: &nacre_wire::msg::watch::Watcher| {
            json!({ "client": format!("client.{}", w.id.client.0), "instance": w.id.instance.0, "cookie": w.id.cookie,
                "timeout_ms": w.record.timeout_ms })
        };
        return out.value(&watchers.iter().map(one).collect());
    }
    watchers.iter().try_for_each(|w| {
        out.line(&format!(
            "{}, timeout {} s",
            w.id,
            f64::from(w.record.timeout_ms) / 1000.0
        ))
    })
}

/// A holder's owner, in the human-readable form.
fn owner_text(holder: &LockHolder) -> String {
    let owner = &holder.owner;
    format!(
        "client.{}/{}/{}",
        owner.client.0, owner.instance.0, owner.cookie
    )
}

/// Takes a lock.
///
/// # Errors
/// When another client holds it: the error names the holder.
pub fn lock(args: &Lock, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let pool = pool_id(cluster, &args.target.pool)?;
    let object = args.target.object()?;
    let name = Name::copy(args.lock.as_bytes());
    let lease_ms = ms(args.lease, "a lease", 1_000_000.0)?;
    let (shared, description) = (args.shared, args.description.clone());
    let op = SubOp::Lock {
        name: name.clone(),
        cookie: 1,
        shared,
        lease_ms,
        description,
    };
    let done = act(cluster, pool, &object, op, Payload::new())?;
    let [SubReply::Locked { token, .. }] = done.results[..] else {
        bail!("the cluster answered something else than a grant")
    };
    // The grant has the token, the listing the owner.
    let entry = entry(cluster, pool, &object, &name)?;
    // Ceph has no tokens; our own cookie is among at most a few.
    let mine = |holder: &&LockHolder| {
        holder.token == token || (holder.token == Version::default() && holder.owner.cookie == 1)
    };
    let holder = entry.record.holders.iter().find(mine);
    let owner = holder
        .map(owner_text)
        .context("the lock was broken at once")?;
    if out.json() {
        return out.value(&json!({ "owner": owner, "token": token.to_string() }));
    }
    out.line(&format!("{owner} holds it, token {token}"))
}

fn entries(cluster: &mut dyn Session, pool: PoolId, object: &ObjectId) -> Result<Vec<LockEntry>> {
    let done = act(cluster, pool, object, SubOp::ListLocks {}, Payload::new())?;
    match done.results.into_iter().next() {
        Some(SubReply::Locks { locks }) => Ok(locks),
        _ => bail!("the cluster answered something else than its locks"),
    }
}

fn entry(
    cluster: &mut dyn Session,
    pool: PoolId,
    object: &ObjectId,
    name: &Name,
) -> Result<LockEntry> {
    let known = entries(cluster, pool, object)?;
    let names: Vec<String> = known.iter().map(|entry| entry.name.to_string()).collect();
    let found = known.into_iter().find(|entry| entry.name == *name);
    found.with_context(|| {
        let others = if names.is_empty() {
            "no lock of it is held".to_owned()
        } else {
            format!("held are {}", names.join(", "))
        };
        format!("the lock {name} of {object} is not held ({others})")
    })
}

/// Lists locks and their holders.
///
/// # Errors
/// When there is no such object.
pub fn locks(target: &Target, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let pool = pool_id(cluster, &target.pool)?;
    let locks = entries(cluster, pool, &target.object()?)?;
    let mut values: Vec<Value> = Vec::new();
    for entry in &locks {
        for holder in &entry.record.holders {
            let (lock, owner) = (entry.name.to_string(), owner_text(holder));
            let kind = if entry.record.shared {
                "shared"
            } else {
                "exclusive"
            };
            if out.json() {
                values.push(json!({ "lock": lock, "kind": kind, "owner": owner, "token": holder.token.to_string(),
                    "lease_ms": holder.lease_ms, "description": holder.description }));
            } else {
                out.line(
                    format!(
                        "{lock}  {kind}  {owner}  token {}  {}",
                        holder.token, holder.description
                    )
                    .trim_end(),
                )?;
            }
        }
    }
    if out.json() {
        out.value(&Value::Array(values))
    } else {
        Ok(())
    }
}

/// Releases a lock for its owner.
///
/// # Errors
/// When it is not held, or by several and none is named.
pub fn unlock(args: &Unlock, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let pool = pool_id(cluster, &args.target.pool)?;
    let object = args.target.object()?;
    let name = Name::copy(args.lock.as_bytes());
    let holders = entry(cluster, pool, &object, &name)?.record.holders;
    let known: Vec<String> = holders.iter().map(owner_text).collect();
    let holder = match (&args.owner, &holders[..]) {
        (None, [one]) => one,
        (None, _) => bail!("several hold it; say whose: {}", known.join(", ")),
        (Some(owner), _) => match known.iter().position(|known| known == owner) {
            Some(at) => &holders[at],
            None => bail!(
                "{owner} does not hold it; its holders: {}",
                known.join(", ")
            ),
        },
    };
    act(
        cluster,
        pool,
        &object,
        SubOp::BreakLock {
            name,
            owner: holder.owner,
        },
        Payload::new(),
    )?;
    let owner = owner_text(holder);
    if out.json() {
        out.value(&json!({ "unlocked": owner }))
    } else {
        out.say(&format!("{owner} holds it no longer"))
    }
}

/// Breaks a lock for all its holders.
///
/// # Errors
/// When it is not held.
pub fn break_lock(args: &BreakLock, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let pool = pool_id(cluster, &args.target.pool)?;
    let object = args.target.object()?;
    let name = Name::copy(args.lock.as_bytes());
    let holders = entry(cluster, pool, &object, &name)?.record.holders;
    for holder in &holders {
        let entity = format!("client.{}", holder.owner.client.0);
        if args.fence {
            let owner = &holder.owner;
            cluster.command(&Command::FenceAdd(FenceAdd::of(
                owner.client,
                owner.instance,
            )))?;
        }
        let op = SubOp::BreakLock {
            name: name.clone(),
            owner: holder.owner,
        };
        act(cluster, pool, &object, op, Payload::new())?;
        if !args.fence {
            out.say(&format!(
                "{entity} may still write what it does not guard with the lock; `nacre fence add {entity} --instance {}` ends that",
                holder.owner.instance.0
            ))?;
        }
    }
    let broken: Vec<String> = holders.iter().map(owner_text).collect();
    if out.json() {
        out.value(&json!({ "broken": broken, "fenced": args.fence }))
    } else {
        Ok(())
    }
}
