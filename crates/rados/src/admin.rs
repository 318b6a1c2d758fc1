//! Commands in Nacre's dialect (`docs/formats/commands.md`) that a Ceph cluster's monitors can
//! answer: those needed by services and by the commands about objects. A Ceph cluster is
//! administered with its own tools.

use crate::error::{EINVAL, EOPNOTSUPP, RadosError};
use crate::handle::{Rados, To};
use nacre_client::Failure;
use nacre_command::{Command, FenceAdd, PoolCreate, Whole};
use nacre_types::{Entity, Instance};
use serde_json::{Map, Value, json};

/// Executes a command.
///
/// # Errors
/// The monitors' error; commands without an equivalent on Ceph.
pub fn command(cluster: &Rados, command: &Command) -> Result<Value, RadosError> {
    match command {
        Command::PoolLs {} => Ok(json!({ "pools": pools(cluster)? })),
        Command::PoolCreate(wish) => create(cluster, wish),
        Command::PoolRm { name, .. } => remove(cluster, name),
        Command::PgMap(of) => map(
            cluster,
            &of.pool,
            &of.object,
            of.namespace.as_deref().unwrap_or_default(),
        ),
        Command::PoolSnapLs { pool } => snaps(cluster, pool),
        Command::PoolSnapCreate { pool, snap } => {
            take_snap(cluster, pool, snap.as_deref().unwrap_or_default())
        }
        Command::PoolSnapRm { pool, snap } => remove_snap(cluster, pool, &snap.0),
        Command::Status {} => status(cluster),
        Command::Health {} => Ok(health(
            &cluster.ask(To::Mon, json!({ "prefix": "health", "detail": "detail" }))?,
        )),
        Command::Df {} => space(cluster),
        Command::FenceAdd(wish) => fence(cluster, wish),
        Command::ProgramPrepare { .. }
        | Command::ProgramLs { .. }
        | Command::ProgramShow { .. }
        | Command::ProgramInstall(_)
        | Command::ProgramActivate(_)
        | Command::ProgramRm { .. } => crate::programs::command(cluster, command),
        other => Err(RadosError {
            code: EOPNOTSUPP,
            why: format!(
                "`{}` is a command for Nacre's own daemons; {} is a Ceph cluster, which is administered with `ceph`",
                other.spec().name,
                cluster.conf().display()
            ),
        }),
    }
}

/// Fences a client of Nacre that has registered its address.
fn fence(cluster: &Rados, wish: &FenceAdd) -> Result<Value, RadosError> {
    let entity = wish.entity.0.to_string();
    let Entity::Client(client) = wish.entity.0 else {
        return Err(RadosError {
            code: EINVAL,
            why: format!(
                "`{entity}` is no client of Nacre's on a Ceph cluster; `ceph osd blocklist` ends others"
            ),
        });
    };
    let instance = Instance(wish.instance.map_or(u64::MAX, |instance| instance.0));
    crate::instances::fence(cluster, client, instance).map_err(|failure| match failure {
        Failure::Foreign { code, why } => RadosError { code, why },
        other => RadosError {
            code: EINVAL,
            why: other.to_string(),
        },
    })?;
    Ok(json!({ "entity": entity, "instance": instance.0 }))
}

fn rows<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value
        .get(field)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn pools(cluster: &Rados) -> Result<Vec<Value>, RadosError> {
    let dump = cluster.ask(To::Mon, json!({ "prefix": "osd dump" }))?;
    let pool = |pool: &Value| {
        let flags = pool["flags_names"].as_str().unwrap_or_default();
        json!({
            "id": pool["pool"], "name": pool["pool_name"], "size": pool["size"], "min_size": pool["min_size"], "pg_num": pool["pg_num"],
            "pgp_num": pool["pg_placement_num"], "rule": pool["crush_rule"], "quota_bytes": pool["quota_max_bytes"],
            "quota_objects": pool["quota_max_objects"], "full": flags.split(',').any(|flag| flag == "full"),
            "no_delete": flags.split(',').any(|flag| flag == "nodelete"), "created": pool["create_time"],
        })
    };
    Ok(rows(&dump, "pools").iter().map(pool).collect())
}

/// Creates a pool with the cluster's defaults, or as requested, and sets its application: a pool
/// without one causes a health warning.
fn create(cluster: &Rados, wish: &PoolCreate) -> Result<Value, RadosError> {
    let name = &wish.name;
    if pools(cluster)?.iter().any(|pool| pool["name"] == *name) {
        return Err(RadosError {
            code: EINVAL,
            why: format!("there is a pool {name} already"),
        });
    }
    let mut make = json!({ "prefix": "osd pool create", "pool": name, "pool_type": "replicated" });
    if let Some(pg_num) = &wish.pg_num {
        (make["pg_num"], make["pgp_num"]) = (pg_num.0.into(), pg_num.0.into());
    }
    if let Some(rule) = &wish.rule {
        make["rule"] = rule.0.as_str().into();
    }
    cluster.command(To::Mon, &make, &[])?;
    for (field, value) in [("size", &wish.size), ("min_size", &wish.min_size)] {
        if let Some(Whole(value)) = value {
            let mut set = json!({ "prefix": "osd pool set", "pool": name, "var": field, "val": value.to_string() });
            if field == "size" && *value == 1 {
                set["yes_i_really_mean_it"] = true.into();
            }
            cluster.command(To::Mon, &set, &[])?;
        }
    }
    cluster.command(
        To::Mon,
        &json!({ "prefix": "osd pool application enable", "pool": name, "app": "nacre" }),
        &[],
    )?;
    cluster.wait_for_newest_map()?;
    let made = pools(cluster)?
        .into_iter()
        .find(|pool| pool["name"] == *name);
    let mut made = made.ok_or_else(|| RadosError {
        code: EINVAL,
        why: format!("the pool {name} was made, and is gone again"),
    })?;
    made["warnings"] = json!([]);
    Ok(made)
}

fn remove(cluster: &Rados, name: &str) -> Result<Value, RadosError> {
    let id = cluster.pool(name)?.ok_or_else(|| RadosError {
        code: crate::error::ENOENT,
        why: format!("there is no pool {name}"),
    })?;
    let request = json!({ "prefix": "osd pool delete", "pool": name, "pool2": name, "yes_i_really_really_mean_it": true });
    cluster.command(To::Mon, &request, &[])?;
    cluster.wait_for_newest_map()?;
    Ok(json!({ "id": id }))
}

fn pool_dump(cluster: &Rados, name: &str) -> Result<Value, RadosError> {
    let dump = cluster.ask(To::Mon, json!({ "prefix": "osd dump" }))?;
    let found = rows(&dump, "pools")
        .iter()
        .find(|pool| pool["pool_name"] == name)
        .cloned();
    found.ok_or_else(|| RadosError {
        code: crate::error::ENOENT,
        why: format!("there is no pool {name}"),
    })
}

fn snaps(cluster: &Rados, pool: &str) -> Result<Value, RadosError> {
    let pool = pool_dump(cluster, pool)?;
    // A pool has either its own snapshots or its clients', or neither yet.
    let flags = pool["flags_names"].as_str().unwrap_or_default();
    let own = flags.split(',').any(|flag| flag == "selfmanaged_snaps");
    let one = |snap: &Value| json!({ "id": snap["snapid"], "name": snap["name"], "created": 0 });
    let all: Vec<Value> = rows(&pool, "pool_snaps").iter().map(one).collect();
    let mode = if own {
        "own"
    } else if all.is_empty() && pool["snap_seq"] == 0 {
        "unused"
    } else {
        "named"
    };
    Ok(
        json!({ "mode": mode, "last": pool["snap_seq"], "live": all.len(), "snaps": all, "removed": [] }),
    )
}

fn take_snap(cluster: &Rados, pool: &str, snap: &str) -> Result<Value, RadosError> {
    if snap.is_empty() {
        let id = pool_dump(cluster, pool)?["pool"]
            .as_u64()
            .unwrap_or_default();
        return Ok(
            json!({ "id": crate::context::Context::plain(cluster, nacre_types::PoolId(id))?.allocate_snap()?, "epoch": 0 }),
        );
    }
    let known = |found: &Value| {
        rows(found, "snaps")
            .iter()
            .find(|known| known["name"] == snap)
            .map(|known| known["id"].clone())
    };
    if known(&snaps(cluster, pool)?).is_some() {
        return Err(RadosError {
            code: crate::error::EEXIST,
            why: format!("the pool {pool} has a snapshot {snap} already"),
        });
    }
    cluster.command(
        To::Mon,
        &json!({ "prefix": "osd pool mksnap", "pool": pool, "snap": snap }),
        &[],
    )?;
    cluster.wait_for_newest_map()?;
    Ok(json!({ "id": known(&snaps(cluster, pool)?), "epoch": 0 }))
}

fn remove_snap(cluster: &Rados, pool: &str, snap: &str) -> Result<Value, RadosError> {
    let all = snaps(cluster, pool)?;
    let number: Option<u64> = snap.parse().ok();
    let found = rows(&all, "snaps").iter().find(|known| {
        known["name"] == snap || (number.is_some() && known["id"].as_u64() == number)
    });
    match (found, number) {
        (Some(found), _) => {
            let request =
                json!({ "prefix": "osd pool rmsnap", "pool": pool, "snap": found["name"] });
            cluster.command(To::Mon, &request, &[])?;
            Ok(json!({ "id": found["id"] }))
        }
        (None, Some(number)) if all["mode"] == "own" => {
            let id = pool_dump(cluster, pool)?["pool"]
                .as_u64()
                .unwrap_or_default();
            crate::context::Context::plain(cluster, nacre_types::PoolId(id))?
                .remove_snap(number)?;
            Ok(json!({ "id": number }))
        }
        _ => Err(RadosError {
            code: crate::error::ENOENT,
            why: format!("the pool {pool} has no snapshot {snap}"),
        }),
    }
}

fn map(cluster: &Rados, pool: &str, object: &str, namespace: &str) -> Result<Value, RadosError> {
    let mut request = json!({ "prefix": "osd map", "pool": pool, "object": object });
    if !namespace.is_empty() {
        request["nspace"] = namespace.into();
    }
    let found = cluster.ask(To::Mon, request)?;
    Ok(json!({
        "pg": found["pgid"], "up": found["up"], "acting": found["acting"], "primary": found["acting_primary"], "epoch": found["epoch"],
    }))
}

fn health(answer: &Value) -> Value {
    let severity = |word: &str| {
        if word == "HEALTH_ERR" {
            "error"
        } else {
            "warning"
        }
    };
    let checks: Vec<Value> = answer["checks"].as_object().into_iter().flatten().map(|(code, check)| {
        let details: Vec<&Value> = rows(check, "detail").iter().map(|line| &line["message"]).collect();
        json!({
            "code": code, "severity": severity(check["severity"].as_str().unwrap_or_default()), "summary": check["summary"]["message"], "detail": details,
            "advice": format!("https://docs.ceph.com/en/latest/rados/operations/health-checks explains {code}"),
        })
    }).collect();
    let status = match answer["status"].as_str() {
        Some("HEALTH_OK") => "ok",
        Some("HEALTH_ERR") => "error",
        _ => "warning",
    };
    json!({ "status": status, "checks": checks })
}

fn status(cluster: &Rados) -> Result<Value, RadosError> {
    let answer = cluster.ask(To::Mon, json!({ "prefix": "status" }))?;
    let states: Map<String, Value> = rows(&answer["pgmap"], "pgs_by_state")
        .iter()
        .map(|state| {
            (
                state["state_name"].as_str().unwrap_or("?").to_owned(),
                state["count"].clone(),
            )
        })
        .collect();
    let (map, groups) = (&answer["osdmap"], &answer["pgmap"]);
    Ok(json!({
        "cluster": answer["fsid"], "epoch": map["epoch"], "health": health(&answer["health"]),
        "mons": { "count": answer["monmap"]["num_mons"], "reachable": rows(&answer, "quorum").len(), "leader": answer["quorum"][0] },
        "osds": { "count": map["num_osds"], "up": map["num_up_osds"], "in": map["num_in_osds"] },
        "pgs": { "count": groups["num_pgs"], "by_state": states }, "pools": groups["num_pools"],
        "data": {
            "objects": groups["num_objects"], "bytes": groups["data_bytes"], "degraded": groups.get("degraded_objects").cloned().unwrap_or(0.into()),
            "misplaced": groups.get("misplaced_objects").cloned().unwrap_or(0.into()),
        },
        "space": { "used_bytes": groups["bytes_used"], "total_bytes": groups["bytes_total"] }, "flags": [],
    }))
}

fn space(cluster: &Rados) -> Result<Value, RadosError> {
    let answer = cluster.ask(To::Mon, json!({ "prefix": "df", "detail": "detail" }))?;
    let known = pools(cluster)?;
    let with = |mut pool: Value| {
        let stats = rows(&answer, "pools")
            .iter()
            .find(|stats| stats["id"] == pool["id"])
            .map_or(&Value::Null, |stats| &stats["stats"]);
        for (ours, theirs) in [
            ("objects", "objects"),
            ("bytes", "stored"),
            ("stored_bytes", "bytes_used"),
            ("max_available_bytes", "max_avail"),
        ] {
            pool[ours] = stats[theirs].clone();
        }
        pool
    };
    let stats = &answer["stats"];
    Ok(json!({
        "total_bytes": stats["total_bytes"], "used_bytes": stats["total_used_raw_bytes"], "available_bytes": stats["total_avail_bytes"],
        "pools": known.into_iter().map(with).collect::<Vec<Value>>(),
    }))
}
