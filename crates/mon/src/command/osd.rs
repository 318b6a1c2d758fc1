//! `osd …`.

use nacre_command::{Osd, OsdAdd, OsdReweight, Store};
use nacre_types::{Entity, OsdId};
use nacre_wire::map::{Change, OsdInfo, Weight};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

use super::{Done, View, change, find_osd, read};
use crate::hierarchy::{self, Place};
use crate::osds::OSD_ID_MAX;

fn share(weight: Weight) -> f64 {
    f64::from(weight.0) / f64::from(Weight::IN.0)
}

fn describe(osd: OsdId, info: &OsdInfo) -> Value {
    json!({
        "id": osd.0,
        "up": info.up,
        "in": info.weight != Weight::OUT,
        "reweight": share(info.weight),
        "taken_out_automatically": info.weight_before_auto_out.is_some(),
        "instance": info.instance.0,
        "address": info.address.0,
        "up_from": info.up_from.0,
        "down_at": info.down_at.0,
    })
}

pub fn tree(view: &View<'_>) -> Result<Done, String> {
    let map = view.map();
    let places = hierarchy::places(&map.crush.text);
    let mut hosts: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for place in places {
        let Some(info) = map.osds.get(&place.osd) else {
            continue;
        };
        seen.insert(place.osd);
        let mut value = describe(place.osd, info);
        value["class"] = json!(place.class);
        value["weight"] = json!(hierarchy::show_weight(place.weight));
        hosts.entry(place.host).or_default().push(value);
    }
    let stray: Vec<Value> = map
        .osds
        .iter()
        .filter(|(osd, _)| !seen.contains(osd))
        .map(|(osd, info)| describe(*osd, info))
        .collect();
    let hosts: Vec<Value> = hosts
        .into_iter()
        .map(|(host, osds)| json!({ "host": host, "osds": osds }))
        .collect();
    read(json!({ "hosts": hosts, "without_a_place": stray }))
}

pub fn df(view: &View<'_>) -> Result<Done, String> {
    let map = view.map();
    let mut groups: BTreeMap<OsdId, u64> = BTreeMap::new();
    for record in map.pgs.values() {
        for osd in &record.raw {
            *groups.entry(*osd).or_default() += 1;
        }
    }
    let one = |(osd, info): (&OsdId, &OsdInfo)| {
        let stat = view.stats.osd(*osd);
        let (total, used) = stat.map_or((0, 0), |stat| (stat.total, stat.used));
        json!({
            "id": osd.0,
            "up": info.up,
            "reweight": share(info.weight),
            "total_bytes": total,
            "used_bytes": used,
            "used_percent": (used * 1000).checked_div(total).map(|permille| permille as f64 / 10.0),
            "pgs": groups.get(osd).copied().unwrap_or(0),
            "reported": stat.is_some(),
        })
    };
    read(json!({ "osds": map.osds.iter().map(one).collect::<Vec<_>>() }))
}

fn weigh(view: &View<'_>, osd: OsdId, weight: Weight, said: String) -> Result<Done, String> {
    let info = &view.map().osds[&osd];
    let reply = json!({ "id": osd.0, "reweight": share(weight) });
    if info.weight == weight && info.weight_before_auto_out.is_none() {
        return read(reply);
    }
    change(
        reply,
        vec![Change::OsdWeight {
            osd,
            weight,
            automatic: false,
        }],
        said,
    )
}

pub fn in_(view: &View<'_>, osd: Osd) -> Result<Done, String> {
    let osd = find_osd(view, osd)?;
    let info = &view.map().osds[&osd];
    if info.weight != Weight::OUT && info.weight_before_auto_out.is_none() {
        return read(json!({ "id": osd.0, "reweight": share(info.weight) }));
    }
    let weight = info
        .weight_before_auto_out
        .filter(|weight| *weight != Weight::OUT)
        .unwrap_or(Weight::IN);
    weigh(view, osd, weight, format!("{osd} is in"))
}

pub fn out(view: &View<'_>, osd: Osd) -> Result<Done, String> {
    let osd = find_osd(view, osd)?;
    weigh(
        view,
        osd,
        Weight::OUT,
        format!("{osd} is out: its data is copied elsewhere"),
    )
}

pub fn reweight(view: &View<'_>, wish: &OsdReweight) -> Result<Done, String> {
    let (osd, weight) = (find_osd(view, wish.osd)?, wish.weight.0);
    let fixed = Weight((weight * f64::from(Weight::IN.0)).round() as u32);
    weigh(
        view,
        osd,
        fixed,
        format!("{osd} takes {weight} of its share"),
    )
}

pub fn down(view: &View<'_>, osd: Osd) -> Result<Done, String> {
    let osd = find_osd(view, osd)?;
    let info = &view.map().osds[&osd];
    let reply = json!({ "id": osd.0, "up": false });
    if !info.up {
        return read(reply);
    }
    let said = format!("{osd} is down: an operator said so");
    change(
        reply,
        vec![Change::OsdDown {
            osd,
            instance: info.instance,
        }],
        said,
    )
}

pub fn add(view: &View<'_>, wish: &OsdAdd) -> Result<Done, String> {
    let map = view.map();
    let osd = match wish.osd {
        None => {
            let free = (0..=OSD_ID_MAX)
                .map(OsdId)
                .find(|osd| !map.osds.contains_key(osd));
            free.ok_or_else(|| format!("all ids up to {OSD_ID_MAX} are taken"))?
        }
        Some(osd) => osd.0,
    };
    if osd.0 > OSD_ID_MAX {
        return Err(format!("ids end at {OSD_ID_MAX}"));
    }
    if map.osds.contains_key(&osd) {
        return Err(format!("there is an {osd} already"));
    }
    let (host, class) = (
        wish.host.as_deref().unwrap_or("host"),
        wish.class.as_deref().unwrap_or("hdd"),
    );
    for (field, name) in [("host", host), ("class", class)] {
        if hierarchy::clean_name(name, "") != name || name.is_empty() {
            return Err(format!(
                "`{field}` is 1 to 64 letters, digits, `-`, `_` and `.`, not `{name}`"
            ));
        }
    }
    let capacity = wish.capacity.map_or(1 << 40, |bytes| bytes.0);
    if capacity == 0 {
        return Err("`capacity` is a number of bytes, more than 0".to_owned());
    }
    let weight = hierarchy::weight_of_capacity(capacity);
    let place = Place {
        osd,
        class: class.to_owned(),
        weight,
        host: host.to_owned(),
    };
    // Without its name: the first store that boots under this id owns it. Out until then, so that
    // no PG waits for it.
    let store = wish.store.map(checked_store).transpose()?.unwrap_or(0);
    if let Some((other, _)) = map
        .osds
        .iter()
        .find(|(_, info)| store != 0 && info.store == store)
    {
        return Err(format!("that is the store of {other}"));
    }
    let changes = vec![
        Change::OsdNew { osd, store },
        Change::OsdWeight {
            osd,
            weight: Weight::OUT,
            automatic: true,
        },
        Change::Crush {
            text: hierarchy::put(&map.crush.text, &place),
        },
    ];
    // Instances of an earlier OSD with this id are fenced: a new store without a number must
    // continue after them.
    let after = map
        .fences
        .get(&Entity::Osd(osd))
        .map_or(0, |instance| instance.0);
    let reply = json!({ "id": osd.0, "after_instance": after, "note": "it takes data as soon as it boots" });
    change(reply, changes, format!("{osd} is expected on host {host}"))
}

/// In the map, 0 stands for a store that is not known yet.
fn checked_store(store: Store) -> Result<u128, String> {
    match store.0 {
        0 => Err("`store` is a number in hexadecimal, at most 32 digits, not 0".to_owned()),
        store => Ok(store),
    }
}

pub fn rm(view: &View<'_>, osd: Osd, force: bool, store: Option<Store>) -> Result<Done, String> {
    let osd = find_osd(view, osd)?;
    let map = view.map();
    let info = &map.osds[&osd];
    if info.up {
        return Err(format!("{osd} is up; stop it first"));
    }
    if store
        .map(checked_store)
        .transpose()?
        .is_some_and(|store| store != info.store)
    {
        return Err(format!(
            "{osd} has another store by now, and that is not the one to be removed"
        ));
    }
    let last: Vec<String> = map
        .pgs
        .iter()
        .filter(|(_, record)| !record.is_activated() && record.activated.members.contains(&osd))
        .map(|(pg, _)| pg.to_string())
        .collect();
    let named = || {
        last.iter()
            .take(5)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    };
    if !force {
        if info.weight != Weight::OUT {
            return Err(format!(
                "{osd} still counts for placement: `osd out {}` and wait until its data is elsewhere (or `force`)",
                osd.0
            ));
        }
        if !last.is_empty() {
            return Err(format!(
                "{} placement groups do not serve and may need {osd} ({}): bring them back first (or `force`, and lose what only it has)",
                last.len(),
                named()
            ));
        }
    }
    let lost = if last.is_empty() {
        "nothing is lost: every placement group serves without it".to_owned()
    } else {
        format!(
            "{} placement groups do not serve, and {osd} was a member of each when it last did ({}): what only it had is lost for good",
            last.len(),
            named()
        )
    };
    // Its last instance must not come back under an id that is assigned again.
    let changes = vec![
        Change::OsdRemove { osd },
        Change::Crush {
            text: hierarchy::remove(&map.crush.text, osd),
        },
        Change::Fence {
            entity: Entity::Osd(osd),
            instance: info.instance,
        },
    ];
    let said = if last.is_empty() {
        format!("{osd} is removed")
    } else {
        format!("{osd} is removed by force: {lost}")
    };
    let reply = json!({ "id": osd.0, "lost_groups": last.len(), "lost": lost });
    change(reply, changes, said)
}

pub fn ok_to_stop(view: &View<'_>, osds: &[Osd]) -> Result<Done, String> {
    let map = view.map();
    let stop: BTreeSet<OsdId> = osds
        .iter()
        .map(|osd| find_osd(view, *osd))
        .collect::<Result<_, _>>()?;
    let mut held_back = Vec::new();
    let mut affected = 0;
    for (pg, record) in &map.pgs {
        if !record.acting.iter().any(|osd| stop.contains(osd)) {
            continue;
        }
        affected += 1;
        // Only complete members can continue a PG: those being backfilled do not count.
        let complete: &[OsdId] = if record.is_activated() {
            &record.activated.members
        } else {
            &[]
        };
        let left = record
            .acting
            .iter()
            .filter(|osd| !stop.contains(osd) && complete.contains(osd))
            .count();
        if left < usize::from(map.pools[&pg.pool].min_size) {
            held_back.push(pg.to_string());
        }
    }
    let ok = held_back.is_empty();
    let sentence = if ok {
        format!("yes: {affected} placement groups lose a copy, all of them go on")
    } else {
        format!(
            "no: {} placement groups would stop serving",
            held_back.len()
        )
    };
    let would_stop = held_back.len();
    held_back.truncate(50);
    read(
        json!({ "ok": ok, "answer": sentence, "affected": affected, "would_stop": would_stop, "pgs": held_back }),
    )
}
