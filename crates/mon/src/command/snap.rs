//! `pool snap …`: snapshots of a pool (CHECKLIST CEPH-09). Named snapshots are preserved by all
//! writes; without names, clients allocate ids for their own contexts. A pool has one kind or the
//! other.

use nacre_types::{Name, SnapId};
use nacre_wire::map::snaps::{SNAP_NAME_MAX, SNAPS_MAX};
use nacre_wire::map::{Change, Pool, SnapMode};
use serde_json::{Value, json};

use super::{Done, View, change, find_pool, read};

fn describe(pool: &Pool) -> Value {
    let mode = match pool.snaps.mode {
        SnapMode::Unused {} => "unused",
        SnapMode::Named {} => "named",
        SnapMode::Own {} => "own",
    };
    let named = pool.snaps.named.iter();
    let named = named.map(|(id, info)| json!({ "id": id.0, "name": info.name.to_string(), "created": info.created.0 }));
    let removed = pool
        .snaps
        .removed
        .iter()
        .map(|(first, last)| json!([first.0, last.0]));
    json!({
        "mode": mode,
        "last": pool.snaps.last.0,
        "live": pool.snaps.live(),
        "snaps": named.collect::<Vec<_>>(),
        "removed": removed.collect::<Vec<_>>(),
    })
}

pub fn ls(view: &View<'_>, pool: &str) -> Result<Done, String> {
    let (_, pool) = find_pool(view, pool)?;
    read(describe(pool))
}

pub fn create(view: &View<'_>, pool: &str, name: Option<&str>) -> Result<Done, String> {
    let (id, pool) = find_pool(view, pool)?;
    let name = name.unwrap_or_default();
    let what = &pool.name;
    match (pool.snaps.mode, name.is_empty()) {
        (SnapMode::Named {}, true) => {
            return Err(format!(
                "the snapshots of pool {what} have names; give this one a name, too"
            ));
        }
        (SnapMode::Own {}, false) => {
            return Err(format!(
                "clients of pool {what} have snapshots of their own; take a name for none, or another pool"
            ));
        }
        _ => {}
    }
    if name.len() > SNAP_NAME_MAX
        || name.chars().any(char::is_control)
        || name.parse::<u64>().is_ok()
    {
        return Err(format!(
            "a snapshot's name has at most {SNAP_NAME_MAX} bytes, no control characters, and is not a number"
        ));
    }
    let name = Name::from(name);
    if !name.is_empty() && pool.snaps.named(&name).is_some() {
        return Err(format!("pool {what} has a snapshot {name} already"));
    }
    if pool.snaps.live() >= SNAPS_MAX {
        return Err(format!(
            "pool {what} has {SNAPS_MAX} snapshots, as many as there may be; remove one first"
        ));
    }
    let snap = SnapId(pool.snaps.last.0 + 1);
    let said = match name.is_empty() {
        true => format!("pool {what}: a client has got snapshot {}", snap.0),
        false => format!("pool {what}: snapshot {name} ({}) is taken", snap.0),
    };
    change(
        json!({ "id": snap.0 }),
        vec![Change::SnapCreate {
            pool: id,
            snap,
            name,
        }],
        said,
    )
}

/// Finds a snapshot by name or number.
fn find(pool: &Pool, what: &str) -> Result<SnapId, String> {
    let number = what
        .parse()
        .ok()
        .map(SnapId)
        .filter(|snap| pool.snaps.is_live(*snap));
    number
        .or_else(|| pool.snaps.named(&what.into()))
        .ok_or_else(|| {
            let names: Vec<String> = pool
                .snaps
                .named
                .values()
                .map(|info| info.name.to_string())
                .collect();
            let names = if names.is_empty() {
                "none has a name".to_owned()
            } else {
                format!("there are {}", names.join(", "))
            };
            format!("pool {} has no snapshot {what}; {names}", pool.name)
        })
}

pub fn rm(view: &View<'_>, pool: &str, what: &str) -> Result<Done, String> {
    let (id, pool) = find_pool(view, pool)?;
    let snap = find(pool, what)?;
    let said = format!("pool {}: snapshot {what} is removed", pool.name);
    change(
        json!({ "id": snap.0 }),
        vec![Change::SnapRemove { pool: id, snap }],
        said,
    )
}
