//! Commands about the cluster as a whole.

use nacre_command::{FenceAdd, Flag, LogLast, Severity, Spec, specs};
use nacre_types::{Entity, Instance, MonId, OsdId};
use nacre_wire::map::{Change, ClusterMap, MonInfo, Weight, pool_flag};
use nacre_wire::msg::monitor;
use serde_json::{Value, json};
use std::collections::BTreeMap;

use super::{Done, View, change, pg, pool, read};
use crate::health::{self, FLAGS};
use crate::options;
use crate::osds::INSTANCE_MAX;
use crate::state::cluster_log::Numbered;

pub fn help(about: &str) -> Result<Done, String> {
    let mut listed: Vec<_> = specs()
        .iter()
        .filter(|spec| spec.name.starts_with(about))
        .collect();
    listed.sort_by_key(|spec| &spec.name);
    let one = |spec: &&Spec| json!({ "command": spec.name, "fields": spec.fields, "doc": spec.doc(), "writes": spec.writes });
    let listed: Vec<Value> = listed.iter().map(one).collect();
    if listed.is_empty() {
        return Err(format!("no command begins with `{about}`"));
    }
    read(json!({ "commands": listed }))
}

pub fn health(view: &View<'_>, detail: bool) -> Result<Done, String> {
    read(health::to_json(&health::checks(view), detail))
}

pub fn status(view: &View<'_>) -> Result<Done, String> {
    let map = view.map();
    let up = map.osds.values().filter(|info| info.up).count();
    let in_ = map
        .osds
        .values()
        .filter(|info| info.weight != Weight::OUT)
        .count();
    let mut states: BTreeMap<String, u64> = BTreeMap::new();
    for (id, record) in &map.pgs {
        *states
            .entry(pg::state_name(view.stats.pg_state(map, *id, record)))
            .or_default() += 1;
    }
    let (mut objects, mut bytes, mut degraded, mut misplaced) = (0, 0, 0, 0);
    for id in map.pools.keys() {
        let stat = view.stats.pool(*id);
        objects += stat.objects;
        bytes += stat.bytes;
        degraded += stat.degraded;
        misplaced += stat.misplaced;
    }
    // An OSD that is up in an earlier run's map has not reported to this leader.
    let reporting = view
        .stats
        .osds()
        .filter(|(osd, _)| map.up_osd(*osd).is_some())
        .count();
    let (total, used) = space(view);
    read(json!({
        "cluster": map.cluster.to_string(),
        "epoch": map.epoch.0,
        "digest": map.digest.to_string(),
        "health": health::to_json(&health::checks(view), false),
        "mons": {
            "leader": view.quorum.leader.map(|mon| mon.0),
            "count": map.mons.len(),
            "voters": view.quorum.voters.len(),
            "reachable": view.quorum.reachable.len(),
            "term": view.quorum.term,
        },
        "osds": { "count": map.osds.len(), "up": up, "in": in_, "reporting": reporting },
        "pools": map.pools.len(),
        "pgs": { "count": map.pgs.len(), "by_state": states },
        "data": { "objects": objects, "bytes": bytes, "degraded": degraded, "misplaced": misplaced },
        "space": { "total_bytes": total, "used_bytes": used },
        "flags": health::flag_names(map.flags),
        "rejected_requests": view.rejects,
    }))
}

fn space(view: &View<'_>) -> (u64, u64) {
    view.stats.osds().fold((0, 0), |(total, used), (_, stat)| {
        (total + stat.total, used + stat.used)
    })
}

/// Bytes that can be written before OSDs count as full: over the OSDs that take data, each up to
/// `mon.full_ratio`.
fn usable(view: &View<'_>) -> u64 {
    let map = view.map();
    let ratio = u128::from(options::millionths(map, "mon.full_ratio"));
    let takes = |osd: &OsdId| {
        map.osds
            .get(osd)
            .is_some_and(|info| info.weight != Weight::OUT)
    };
    let osds = view.stats.osds().filter(|(osd, _)| takes(osd));
    osds.map(|(_, stat)| {
        let full = u128::from(stat.total) * ratio / 1_000_000;
        u64::try_from(full)
            .unwrap_or(u64::MAX)
            .saturating_sub(stat.used)
    })
    .sum()
}

pub fn df(view: &View<'_>) -> Result<Done, String> {
    let (total, used) = space(view);
    let usable = usable(view);
    let one = |(id, settings): (&nacre_types::PoolId, &nacre_wire::map::Pool)| {
        let stat = view.stats.pool(*id);
        // Free space divided by replicas is an upper bound: placement decides which OSD fills
        // first.
        let is_full = settings.flags & pool_flag::FULL != 0;
        let room = if is_full {
            0
        } else {
            usable / u64::from(settings.size)
        };
        let by_quota = if settings.quota_bytes > 0 {
            settings.quota_bytes.saturating_sub(stat.bytes)
        } else {
            u64::MAX
        };
        let mut value = pool::describe(settings);
        value["id"] = json!(id.0);
        value["objects"] = json!(stat.objects);
        value["bytes"] = json!(stat.bytes);
        value["stored_bytes"] = json!(stat.bytes * u64::from(settings.size));
        value["max_available_bytes"] = json!(room.min(by_quota));
        value
    };
    let pools: Vec<Value> = view.map().pools.iter().map(one).collect();
    read(
        json!({ "total_bytes": total, "used_bytes": used, "available_bytes": total - used, "pools": pools }),
    )
}

pub fn map_dump(view: &View<'_>) -> Result<Done, String> {
    read(dump(view.map()))
}

fn dump(map: &ClusterMap) -> Value {
    let ids = |osds: &[OsdId]| osds.iter().map(|osd| osd.0).collect::<Vec<_>>();
    let mon = |(id, info): (&MonId, &MonInfo)| {
        let store = format!("{:x}", info.store);
        json!({ "id": id.0, "address": info.address.0, "store": store, "leaving": info.leaving })
    };
    let mons: Vec<Value> = map.mons.iter().map(mon).collect();
    let osds: Vec<Value> = map
        .osds
        .iter()
        .map(|(id, info)| {
            json!({
                "id": id.0, "up": info.up, "weight": info.weight.0,
                "weight_before_auto_out": info.weight_before_auto_out.map(|weight| weight.0),
                "instance": info.instance.0, "address": info.address.0, "up_from": info.up_from.0, "down_at": info.down_at.0,
                "store": format!("{:032x}", info.store), "features": info.features,
            })
        })
        .collect();
    let pools: Vec<Value> = map
        .pools
        .iter()
        .map(|(id, settings)| {
            let mut value = pool::describe(settings);
            value["id"] = json!(id.0);
            value
        })
        .collect();
    let pgs: Vec<Value> = map
        .pgs
        .iter()
        .map(|(pg, record)| {
            json!({
                "pg": pg.to_string(), "raw": ids(&record.raw), "up": ids(&record.up), "acting": ids(&record.acting),
                "since": record.since.0, "temporary": ids(&record.temporary),
                "activated": { "interval": record.activated.interval.0, "members": ids(&record.activated.members) },
            })
        })
        .collect();
    let upmaps: BTreeMap<String, Vec<(u32, u32)>> = map
        .upmaps
        .iter()
        .map(|(pg, items)| {
            (
                pg.to_string(),
                items.iter().map(|(from, to)| (from.0, to.0)).collect(),
            )
        })
        .collect();
    let fences: BTreeMap<String, u64> = map
        .fences
        .iter()
        .map(|(entity, instance)| (entity.to_string(), instance.0))
        .collect();
    let config: BTreeMap<String, &String> = map
        .config
        .iter()
        .map(|(key, value)| (key.to_string(), value))
        .collect();
    json!({
        "cluster": map.cluster.to_string(), "epoch": map.epoch.0, "digest": map.digest.to_string(),
        "required_features": map.required_features, "flags": health::flag_names(map.flags), "mons": mons, "osds": osds,
        "crush": &*map.crush.text, "pools": pools, "pool_last": map.pool_last.0, "pgs": pgs, "upmaps": upmaps, "fences": fences,
        "config": config,
    })
}

// ── flags ───────────────────────────────────────────────────────────────────────────────

pub fn flag(view: &View<'_>, flag: Flag, is_set: bool) -> Result<Done, String> {
    let name: &str = flag.into();
    let known = FLAGS.iter().find(|(known, _)| *known == name);
    let (_, bit) = known.expect("every flag has a bit");
    let (flags, said) = match is_set {
        true => (view.map().flags | bit, "set"),
        false => (view.map().flags & !bit, "no longer set"),
    };
    let reply = json!({ "flags": health::flag_names(flags) });
    if flags == view.map().flags {
        read(reply)
    } else {
        change(
            reply,
            vec![Change::Flags { flags }],
            format!("flag {name} is {said}"),
        )
    }
}

// ── fences ──────────────────────────────────────────────────────────────────────────────

pub fn fence_ls(view: &View<'_>) -> Result<Done, String> {
    let one = |(entity, instance): (&Entity, &Instance)| json!({ "entity": entity.to_string(), "instance": instance.0 });
    read(json!({ "fences": view.map().fences.iter().map(one).collect::<Vec<_>>() }))
}

pub fn fence_add(view: &View<'_>, fence: &FenceAdd) -> Result<Done, String> {
    let (entity, map) = (fence.entity.0, view.map());
    let osd = match entity {
        Entity::Osd(osd) => Some(
            map.osds
                .get(&osd)
                .ok_or_else(|| format!("there is no {osd}"))?,
        ),
        _ => None,
    };
    let instance = match (fence.instance, osd) {
        (Some(instance), _) => Instance(instance.0),
        (None, Some(info)) => info.instance,
        (None, None) => {
            return Err(
                "a client's fence needs `instance`: the last instance that may not act any more"
                    .to_owned(),
            );
        }
    };
    if osd.is_some() && instance > INSTANCE_MAX {
        let most = INSTANCE_MAX.0;
        return Err(format!(
            "{entity} could never come back: its next instance is above the fence's, and {most} is the largest fence. Without `instance` it is the present one"
        ));
    }
    let reply = json!({ "entity": entity.to_string(), "instance": instance.0 });
    if map.is_fenced(entity, instance) {
        return read(reply);
    }
    let mut changes = vec![Change::Fence { entity, instance }];
    if let (Entity::Osd(id), Some(info)) = (entity, osd)
        && info.up
        && info.instance <= instance
    {
        // A fenced OSD must not remain up.
        changes.push(Change::OsdDown {
            osd: id,
            instance: info.instance,
        });
    }
    change(
        reply,
        changes,
        format!("{entity} is fenced up to {instance}"),
    )
}

pub fn fence_rm(view: &View<'_>, entity: Entity) -> Result<Done, String> {
    let map = view.map();
    let Some(instance) = map.fences.get(&entity).copied() else {
        return Err(format!("{entity} is not fenced; `fence ls` says who is"));
    };
    if let Entity::Osd(osd) = entity
        && !map.osds.contains_key(&osd)
    {
        return Err(format!(
            "{osd} was removed, and its fence keeps its old store out: a new store may take the id as it is"
        ));
    }
    let reply = json!({
        "entity": entity.to_string(),
        "instance": instance.0,
        "warning": "its instances up to this one may act again: clients that took over from them must not rely on the fence any more",
    });
    change(
        reply,
        vec![Change::FenceLift { entity, instance }],
        format!("the fence of {entity} up to {instance} is lifted"),
    )
}

// ── the cluster log ─────────────────────────────────────────────────────────────────────

const LINES_MAX: u64 = 1_000;

fn at_least(severity: Option<Severity>) -> monitor::Severity {
    severity.unwrap_or(Severity::Debug).into()
}

fn line(numbered: &Numbered) -> Value {
    let severity = match numbered.line.severity {
        monitor::Severity::Debug {} => "debug",
        monitor::Severity::Info {} => "info",
        monitor::Severity::Warn {} => "warn",
        monitor::Severity::Error {} => "error",
    };
    json!({
        "number": numbered.number,
        "unix_ms": if numbered.unix_ms == 0 { Value::Null } else { json!(numbered.unix_ms) },
        "from": numbered.line.from.to_string(),
        "severity": severity,
        "text": numbered.line.text,
    })
}

pub fn log_last(view: &View<'_>, last: &LogLast) -> Result<Done, String> {
    let least = at_least(last.severity);
    let n = last.n.map_or(20, |n| n.0.min(LINES_MAX));
    let n = usize::try_from(n).expect("a thousand");
    let log = view.state.log();
    let mut lines: Vec<Value> = log
        .lines()
        .rev()
        .filter(|numbered| numbered.line.severity >= least)
        .take(n)
        .map(line)
        .collect();
    lines.reverse();
    read(json!({ "lines": lines, "next": log.last() }))
}

pub fn log_watch(view: &View<'_>, since: u64, severity: Option<Severity>) -> Result<Done, String> {
    let least = at_least(severity);
    let log = view.state.log();
    let fresh: Vec<&Numbered> = log
        .lines()
        .filter(|numbered| numbered.number > since)
        .take(usize::try_from(LINES_MAX).expect("a thousand"))
        .collect();
    let next = fresh
        .last()
        .map_or(log.last().max(since), |numbered| numbered.number);
    let lost = fresh
        .first()
        .map_or(0, |numbered| numbered.number - since - 1);
    let lines: Vec<Value> = fresh
        .into_iter()
        .filter(|numbered| numbered.line.severity >= least)
        .map(line)
        .collect();
    read(json!({ "lines": lines, "next": next, "no_longer_kept": lost }))
}
