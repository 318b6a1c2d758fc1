//! `pg …`.

use nacre_command::{PgLs, PgMap, State};
use nacre_types::{OsdId, PgId};
use nacre_wire::map::PgRecord;
use nacre_wire::msg::monitor::pg_state;
use serde_json::{Value, json};
use strum::VariantArray;

use super::{Done, View, find_osd, find_pool, read};
use crate::hierarchy;

fn bit(state: State) -> u32 {
    match state {
        State::Active => pg_state::ACTIVE,
        State::Clean => pg_state::CLEAN,
        State::Peering => pg_state::PEERING,
        State::Degraded => pg_state::DEGRADED,
        State::Recovering => pg_state::RECOVERING,
        State::Backfilling => pg_state::BACKFILLING,
        State::Remapped => pg_state::REMAPPED,
        State::Down => pg_state::DOWN,
        State::Undersized => pg_state::UNDERSIZED,
    }
}

/// A state as the names of its flags, joined by `+`.
pub(super) fn state_name(state: u32) -> String {
    let set = State::VARIANTS
        .iter()
        .filter(|known| state & bit(**known) != 0);
    let names: Vec<&str> = set.map(Into::into).collect();
    if names.is_empty() {
        "unknown".to_owned()
    } else {
        names.join("+")
    }
}

fn ids(osds: &[OsdId]) -> Vec<u32> {
    osds.iter().map(|osd| osd.0).collect()
}

fn describe(view: &View<'_>, pg: PgId, record: &PgRecord) -> Value {
    let report = view.stats.pg(pg);
    json!({
        "pg": pg.to_string(),
        "state": state_name(view.stats.pg_state(view.map(), pg, record)),
        "up": ids(&record.up),
        "acting": ids(&record.acting),
        "since": record.since.0,
        "objects": report.map_or(0, |report| report.objects),
        "bytes": report.map_or(0, |report| report.bytes),
        "degraded": report.map_or(0, |report| report.degraded),
        "misplaced": report.map_or(0, |report| report.misplaced),
        "unfound": report.map_or(0, |report| report.unfound),
    })
}

pub fn ls(view: &View<'_>, only: &PgLs) -> Result<Done, String> {
    let pool = only
        .pool
        .as_ref()
        .map(|pool| find_pool(view, pool))
        .transpose()?;
    let osd = only.osd.map(|osd| find_osd(view, osd)).transpose()?;
    let bit = only.state.map(bit);
    let mut listed = Vec::new();
    for (pg, record) in &view.map().pgs {
        let in_pool = pool.is_none_or(|(pool, _)| pg.pool == pool);
        let on_osd = osd.is_none_or(|osd| record.acting.contains(&osd) || record.up.contains(&osd));
        if in_pool
            && on_osd
            && bit.is_none_or(|bit| view.stats.pg_state(view.map(), *pg, record) & bit != 0)
        {
            listed.push(describe(view, *pg, record));
        }
    }
    read(json!({ "pgs": listed }))
}

pub fn map(view: &View<'_>, of: &PgMap) -> Result<Done, String> {
    let (pool, settings) = find_pool(view, &of.pool)?;
    let bytes = |text: &Option<String>| text.clone().unwrap_or_default().into_bytes();
    let seed = hierarchy::group_of(
        &bytes(&of.namespace),
        &bytes(&of.key),
        of.object.as_bytes(),
        settings.pg_num,
    );
    let pg = PgId::replicated(pool, seed);
    let record = &view.map().pgs[&pg];
    read(json!({
        "pg": pg.to_string(),
        "up": ids(&record.up),
        "acting": ids(&record.acting),
        "primary": record.primary().map(|osd| osd.0),
        "epoch": view.map().epoch.0,
    }))
}

pub fn explain(view: &View<'_>, pg: &str) -> Result<Done, String> {
    let pg: PgId = pg.parse()?;
    let map = view.map();
    let Some(record) = map.pgs.get(&pg) else {
        return Err(format!("there is no placement group {pg}"));
    };
    let pool = &map.pools[&pg.pool];
    let mut story = Vec::new();
    let missing: Vec<OsdId> = record
        .raw
        .iter()
        .copied()
        .filter(|osd| !record.up.contains(osd))
        .collect();
    for osd in &missing {
        story.push(format!("{osd} should hold a copy but is down"));
    }
    if record.raw.len() < usize::from(pool.size) {
        story.push(format!(
            "placement finds only {} OSDs for {} copies: add OSDs or lower the size",
            record.raw.len(),
            pool.size
        ));
    }
    if record.acting.len() < usize::from(pool.min_size) {
        story.push(format!(
            "{} OSDs act, {} are needed (min_size): it does not serve",
            record.acting.len(),
            pool.min_size
        ));
    } else if !record.is_activated() {
        story.push(format!(
            "its interval began at {} and has not been activated: its primary is still peering",
            record.since
        ));
        let last = &record.activated;
        if !last.members.is_empty() {
            let names: Vec<String> = last.members.iter().map(ToString::to_string).collect();
            let up = last.members.iter().any(|osd| map.up_osd(*osd).is_some());
            let fate = if up {
                "at least one of them is up"
            } else {
                "none of them is up: start one"
            };
            story.push(format!(
                "the last writes are on {} ({fate})",
                names.join(", ")
            ));
        }
    }
    if !record.temporary.is_empty() {
        story.push("a temporary acting set serves while others are backfilled".to_owned());
    }
    if let Some(report) = view.stats.pg(pg) {
        for osd in &report.waits_for {
            story.push(format!("its primary waits for {osd}"));
        }
        if report.degraded > 0 {
            story.push(format!(
                "{} copies of objects are missing or old; recovery brings them",
                report.degraded
            ));
        }
        if report.unfound > 0 {
            story.push(format!(
                "{} objects have no newest copy that is live and can be read",
                report.unfound
            ));
        }
    }
    if story.is_empty() {
        story.push("nothing is wrong".to_owned());
    }
    let mut value = describe(view, pg, record);
    value["raw"] = json!(ids(&record.raw));
    value["temporary"] = json!(ids(&record.temporary));
    value["activated"] = json!({ "interval": record.activated.interval.0, "members": ids(&record.activated.members) });
    value["explanation"] = json!(story);
    read(value)
}
