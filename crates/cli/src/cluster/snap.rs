//! `nacre pool snap …`: snapshots of a pool (CHECKLIST CEPH-09).
//!
//! A write preserves the snapshots in its OSD's map. So `create` ends when the primaries of all PGs
//! have the map with the snapshot: no later write of any client is in the snapshot.

use super::Session;
use crate::object::pool_id;
use crate::objects::{Failed, Objects, Window, operation};
use crate::out::Out;
use crate::table::{Column, table};
use anyhow::{Context, Result, bail};
use nacre_command::{Command, Text};
use nacre_types::{ObjectId, PoolId, SnapId};
use nacre_wire::Payload;
use nacre_wire::msg::client::SubOp;
use serde_json::Value;

/// Snapshots of a pool.
#[derive(clap::Subcommand)]
pub enum Snap {
    /// Take a snapshot; or, without a name, allocate a number for a client that says itself what
    /// its writes preserve.
    Create {
        /// The pool.
        pool: String,
        /// What the snapshot is called: not a number.
        name: Option<String>,
    },
    /// Snapshots of a pool.
    Ls {
        /// The pool.
        pool: String,
    },
    /// Remove a snapshot; the space that only it uses is reclaimed in the background.
    Rm {
        /// The pool.
        pool: String,
        /// Its name or number.
        snap: String,
    },
}

const SNAPS: &[Column] = &[("ID", "id"), ("NAME", "name"), ("SINCE", "created")];
/// Maximum number of PGs queried at a time.
const GROUPS_MAX: usize = 64;

/// Runs a command.
///
/// # Errors
/// When the monitors refuse, or a PG does not answer.
pub fn run(command: &Snap, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    match command {
        Snap::Create { pool, name } => create(pool, name.as_deref(), cluster, out),
        Snap::Ls { pool } => {
            let reply = list(cluster, pool)?;
            if out.json() {
                return out.value(&reply);
            }
            let snaps = reply["snaps"]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default();
            if reply["mode"] == "own" {
                let (live, last) = (&reply["live"], &reply["last"]);
                return out.line(&format!(
                    "its clients have snapshots of their own: {live} live, the last is {last}"
                ));
            }
            out.bytes(table(SNAPS, snaps).as_bytes())
        }
        Snap::Rm { pool, snap } => {
            let reply = cluster.command(&Command::PoolSnapRm {
                pool: pool.clone(),
                snap: Text(snap.clone()),
            })?;
            if out.json() {
                out.value(&reply)
            } else {
                Ok(())
            }
        }
    }
}

fn list(cluster: &mut dyn Session, pool: &str) -> Result<Value> {
    cluster.command(&Command::PoolSnapLs {
        pool: pool.to_owned(),
    })
}

fn create(pool: &str, name: Option<&str>, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let id = pool_id(cluster, pool)?;
    let reply = cluster.command(&Command::PoolSnapCreate {
        pool: pool.to_owned(),
        snap: name.map(str::to_owned),
    })?;
    let epoch = reply["epoch"]
        .as_u64()
        .context("the answer to `pool snap create` has no epoch")?;
    tell_primaries(cluster, id, epoch).with_context(|| {
        format!("the snapshot is taken, but not every placement group knows it yet ({reply}): what is written there now may still be in it")
    })?;
    if out.json() {
        out.value(&reply)
    } else {
        out.line(&format!("snapshot {}", reply["id"]))
    }
}

/// Queries every PG with this epoch: its primary answers when it has that map.
fn tell_primaries(cluster: &mut dyn Session, pool: PoolId, epoch: u64) -> Result<()> {
    cluster.map_at_least(epoch)?;
    let groups = cluster.pg_num(pool)?;
    let cluster: &mut dyn Objects = cluster;
    let mut window = Window::new(cluster, GROUPS_MAX, u64::MAX);
    let mut ended = |group: u32, result: Result<_, Failed>| match result {
        Ok(_) => Ok(()),
        Err(why) => Err(anyhow::Error::from(why).context(format!("placement group {group:x}"))),
    };
    for group in 0..groups {
        let ops = vec![SubOp::ListObjects {
            after: Default::default(),
            limit: 1,
        }];
        let mut ask = operation(pool, ObjectId::default(), ops, Payload::new());
        ask.group = Some(group);
        window.push(ask, group, 0, &mut ended)?;
    }
    window.drain(&mut ended)
}

/// Finds a snapshot of a pool by its name or number; returns its number and label.
///
/// # Errors
/// When there is none; then it lists the existing ones.
pub fn find(cluster: &mut dyn Session, pool: &str, what: &str) -> Result<(SnapId, String)> {
    let reply = list(cluster, pool)?;
    let snaps = reply["snaps"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let number: Option<u64> = what.parse().ok();
    let is_it =
        |snap: &&Value| snap["name"] == what || (number.is_some() && snap["id"].as_u64() == number);
    if let Some(snap) = snaps.iter().find(is_it) {
        cluster.map_at_least(snap["created"].as_u64().unwrap_or_default())?;
        let id = snap["id"]
            .as_u64()
            .context("the answer to `pool snap ls` has no ids")?;
        return Ok((
            SnapId(id),
            snap["name"].as_str().unwrap_or_default().to_owned(),
        ));
    }
    if let Some(number) = number.filter(|_| reply["mode"] == "own") {
        // The OSD decides whether it exists: its map may be newer than this answer.
        return Ok((SnapId(number), number.to_string()));
    }
    let known: Vec<&str> = snaps
        .iter()
        .filter_map(|snap| snap["name"].as_str())
        .collect();
    let known = if known.is_empty() {
        "it has none".to_owned()
    } else {
        format!("there are {}", known.join(", "))
    };
    bail!(
        "pool {pool} has no snapshot {what}; {known}; `nacre pool snap create {pool} NAME` takes one"
    )
}

/// Names of snapshots, by number; empty in a pool whose clients have their own snapshots.
///
/// # Errors
/// When the monitors do not answer.
pub fn names(cluster: &mut dyn Session, pool: &str) -> Result<Vec<(SnapId, String)>> {
    let reply = list(cluster, pool)?;
    let snaps = reply["snaps"].as_array().into_iter().flatten();
    let one = |snap: &Value| {
        Some((
            SnapId(snap["id"].as_u64()?),
            snap["name"].as_str()?.to_owned(),
        ))
    };
    Ok(snaps.filter_map(one).collect())
}
