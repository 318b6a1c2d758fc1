//! Health: what is wrong, how severe it is, and what to do about it (USERS §1, item 1: no mystery
//! warnings).
//!
//! Each check has a code that never changes its meaning, a summary of one line, details, and the
//! recommended action.

use nacre_types::Epoch;
use nacre_wire::map::{Weight, flag, pool_flag};
use nacre_wire::msg::monitor::pg_state;
use serde_json::{Value, json};

use crate::command::View;
use crate::meta::settings::program_key;
use crate::options;
use crate::osds;
use crate::ranks::Registry;

/// Severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// All is well.
    Ok,
    /// An operator should look; data are safe and served.
    Warn,
    /// Data are not served, or in danger.
    Error,
}
impl Level {
    /// Its name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its code.
    pub code: &'static str,
    /// Its severity.
    pub level: Level,
    /// One line.
    pub summary: String,
    /// Affected items, one per line, at most [`DETAIL_MAX`].
    pub detail: Vec<String>,
    /// Recommended action.
    pub what_to_do: &'static str,
}

/// Maximum number of lines of detail.
pub const DETAIL_MAX: usize = 50;

fn check(
    code: &'static str,
    level: Level,
    summary: String,
    mut detail: Vec<String>,
    what_to_do: &'static str,
) -> Check {
    if detail.len() > DETAIL_MAX {
        let more = detail.len() - DETAIL_MAX;
        detail.truncate(DETAIL_MAX);
        detail.push(format!("and {more} more"));
    }
    Check {
        code,
        level,
        summary,
        detail,
        what_to_do,
    }
}

/// All findings, the worst first.
#[must_use]
pub fn checks(view: &View<'_>) -> Vec<Check> {
    let mut found = Vec::new();
    monitors(view, &mut found);
    osds(view, &mut found);
    fullness(view, &mut found);
    groups(view, &mut found);
    pools(view, &mut found);
    flags(view, &mut found);
    programs(view, &mut found);
    ranks(view, &mut found);
    found.sort_by_key(|check| (std::cmp::Reverse(check.level), check.code));
    found
}

/// The highest severity of the findings.
#[must_use]
pub fn level(checks: &[Check]) -> Level {
    checks
        .iter()
        .map(|check| check.level)
        .max()
        .unwrap_or(Level::Ok)
}

/// As JSON; details and recommended actions only on request.
#[must_use]
pub fn to_json(checks: &[Check], detail: bool) -> Value {
    let one = |check: &Check| {
        let mut value =
            json!({ "code": check.code, "severity": check.level.name(), "summary": check.summary });
        if detail {
            value["detail"] = json!(check.detail);
            value["what_to_do"] = json!(check.what_to_do);
        }
        value
    };
    json!({ "status": level(checks).name(), "checks": checks.iter().map(one).collect::<Vec<_>>() })
}

fn monitors(view: &View<'_>, found: &mut Vec<Check>) {
    let quorum = &view.quorum;
    let down: Vec<String> = quorum
        .voters
        .iter()
        .filter(|mon| !quorum.reachable.contains(mon))
        .map(ToString::to_string)
        .collect();
    if !down.is_empty() {
        let left = quorum
            .reachable
            .len()
            .saturating_sub(quorum.voters.len() / 2 + 1);
        let summary = format!(
            "{} of {} monitors are down; {left} more may fail",
            down.len(),
            quorum.voters.len()
        );
        let todo = "Start them. A monitor that is gone for good: `mon rm`, then `mon add` another.";
        found.push(check("MON_DOWN", Level::Warn, summary, down, todo));
    }
    let joining: Vec<String> = view
        .map()
        .mons
        .iter()
        .filter(|(mon, info)| !info.leaving && !quorum.voters.contains(mon))
        .map(|(mon, _)| format!("{mon} has no vote yet"))
        .collect();
    if !joining.is_empty() {
        let summary = format!(
            "{} of {} monitors have not joined",
            joining.len(),
            view.map().mons.len()
        );
        let todo = "Start them: a monitor votes once it runs and has caught up. One that was added by mistake: `mon rm`.";
        found.push(check("MON_JOINING", Level::Warn, summary, joining, todo));
    }
    let leaving: Vec<String> = view
        .map()
        .mons
        .iter()
        .filter(|(_, info)| info.leaving)
        .map(|(mon, _)| mon.to_string())
        .collect();
    if !leaving.is_empty() {
        let summary = format!(
            "{} monitors are to leave and are not gone yet",
            leaving.len()
        );
        let todo = "Keep them running until `mon stat` no longer lists them: their votes may be needed. Most of those that stay have to run.";
        found.push(check("MON_LEAVING", Level::Warn, summary, leaving, todo));
    }
    if quorum.voters.len() == 2 {
        let todo = "Add a third with `mon add`: with two, losing either one stops the cluster.";
        found.push(check(
            "MON_COUNT",
            Level::Warn,
            "two monitors tolerate no failure".into(),
            Vec::new(),
            todo,
        ));
    }
}

fn osds(view: &View<'_>, found: &mut Vec<Check>) {
    let map = view.map();
    let line = |osd: nacre_types::OsdId| match view.outages.get(&osd) {
        Some(outage) => format!(
            "{osd} has been down for {} s",
            view.now.since(outage.since).as_secs()
        ),
        None => osd.to_string(),
    };
    let counted = map
        .osds
        .iter()
        .filter(|(_, info)| !info.up && info.instance.0 > 0 && info.weight != Weight::OUT);
    let down: Vec<String> = counted.map(|(osd, _)| line(*osd)).collect();
    if !down.is_empty() {
        let summary = format!("{} of {} OSDs are down", down.len(), map.osds.len());
        let todo = "Start them, or see their host's log. After mon.down_out_interval_s their data is copied elsewhere.";
        found.push(check("OSD_DOWN", Level::Warn, summary, down, todo));
    }
    if osds::mass_failure(map) {
        let todo = "Probably power or network. Bring them back; nothing moves meanwhile. Those lost for good: `osd out`, one after the other.";
        let summary = "so many OSDs are lost that none is taken out automatically".to_owned();
        found.push(check(
            "OSD_MASS_FAILURE",
            Level::Error,
            summary,
            Vec::new(),
            todo,
        ));
    }
    if !view.suspects.is_empty() {
        let detail = view
            .suspects
            .iter()
            .map(|osd| format!("{osd} accuses most of the cluster and is accused itself"))
            .collect();
        let summary = format!(
            "{} OSDs seem to be cut off from the others",
            view.suspects.len()
        );
        let todo = "Check the network between the OSDs' hosts; the monitors ignore these OSDs' reports meanwhile.";
        found.push(check("OSD_CUT_OFF", Level::Warn, summary, detail, todo));
    }
    parted(view, found);
    if let Some(longest) = view.silent.iter().map(|(_, silent)| silent.as_secs()).max() {
        let (up, silent) = (
            map.osds.values().filter(|info| info.up).count(),
            view.silent.len(),
        );
        let summary = format!(
            "{silent} of {up} OSDs that count as up have not been heard of for up to {longest} s"
        );
        let detail = view
            .silent
            .iter()
            .map(|(osd, silent)| format!("{osd} for {} s", silent.as_secs()))
            .collect();
        let todo = "See whether their daemons and hosts run. OSDs that others miss are marked down within seconds; if all are silent, after twice \
                    mon.osd_beacon_timeout_ms.";
        found.push(check("OSD_SILENT", Level::Warn, summary, detail, todo));
    }
    let slow: Vec<String> = view
        .stats
        .osds()
        .filter(|(osd, _)| map.up_osd(*osd).is_some())
        .flat_map(|(osd, stat)| stat.slow.iter().map(move |op| format!("{osd}: {op}")))
        .collect();
    if !slow.is_empty() {
        let todo = "Look at the disks and hosts that appear most often; `health detail` shows what each operation waits for.";
        found.push(check(
            "SLOW_OPS",
            Level::Warn,
            format!("{} operations have waited for long", slow.len()),
            slow,
            todo,
        ));
    }
    let device = |(osd, stat): (nacre_types::OsdId, &crate::stats::OsdStat)| {
        (!stat.device.is_empty()).then(|| format!("{osd}: {}", stat.device))
    };
    let devices: Vec<String> = view.stats.osds().filter_map(device).collect();
    if let Some(first) = devices.first() {
        let summary = match devices.len() {
            1 => first.clone(),
            more => format!("the devices of {more} OSDs are slow or hang: {first}, …"),
        };
        let todo = "Look at the disk (`dmesg`, SMART) and at what else uses it. An OSD whose disk hangs is down until it answers; after osd.device_hung_ms \
                    its daemon ends. A disk that keeps doing so: replace it.";
        found.push(check("DEVICE_SLOW", Level::Warn, summary, devices, todo));
    }
    let kept = osds::kept_in(view.now, map, view.outages, view.stats);
    if !kept.is_empty() {
        let summary = format!(
            "{} OSDs are down for long and stay in: the others have no room for their data",
            kept.len()
        );
        let todo = "Start them, add OSDs or delete data; then their data is copied. `osd out` takes one out all the same.";
        found.push(check(
            "OSD_OUT_NO_ROOM",
            Level::Error,
            summary,
            kept.iter().map(ToString::to_string).collect(),
            todo,
        ));
    }
    if map.osds.values().all(|info| !info.up) && !map.pools.is_empty() {
        let todo = "Start OSDs: pools exist, but no OSD stores their objects.";
        found.push(check(
            "NO_OSD_UP",
            Level::Error,
            "no OSD is up".into(),
            Vec::new(),
            todo,
        ));
    }
}

fn parted(view: &View<'_>, found: &mut Vec<Check>) {
    let both = |(by, osd): &&(_, _)| view.parted.contains(&(*osd, *by));
    let mut detail: Vec<String> = Vec::new();
    for pair in view.parted {
        let (by, osd) = pair;
        match both(&pair) {
            true if by < osd => detail.push(format!("{by} and {osd} do not hear each other")),
            true => {}
            false => detail.push(format!("{by} does not hear {osd}")),
        }
    }
    let pairs = detail.len();
    for (osd, left) in &view.held {
        detail.push(format!(
            "{osd} was marked down for it, and is let up in {} s at the soonest",
            left.as_secs()
        ));
    }
    if detail.is_empty() {
        return;
    }
    let summary = match (pairs, view.held.len()) {
        (1, 0) => detail[0].clone(),
        (0, held) => format!("{held} OSDs are kept down: they and others did not hear each other"),
        (pairs, _) => {
            format!("{pairs} pairs of OSDs do not hear each other, though others hear both")
        }
    };
    let todo = "Look at the network between their hosts (cables, switches, firewalls, MTU). After four times osd.failure_grace_ms one of the two is \
                marked down, so that what they serve together goes on.";
    found.push(check("OSD_PARTED", Level::Warn, summary, detail, todo));
}

fn programs(view: &View<'_>, found: &mut Vec<Check>) {
    let meta = view.state.meta();
    let suspended: Vec<String> = view
        .overruns
        .suspended(|program| meta.modified(&program_key(program)))
        .map(|name| format!("program {name}"))
        .collect();
    if !suspended.is_empty() {
        let summary = format!(
            "{} programs of metadata are suspended: they took more time than the monitors have",
            suspended.len()
        );
        let todo = "Install one that does less (`nacre meta program install`), or take it out of the namespace's settings. Changes that it should \
                    judge are refused meanwhile.";
        found.push(check(
            "META_PROGRAM_SUSPENDED",
            Level::Warn,
            summary,
            suspended,
            todo,
        ));
    }
}

fn ranks(view: &View<'_>, found: &mut Vec<Check>) {
    let registry = Registry::of(view.state.meta());
    let down = view.ranks.down(view.awake, &registry);
    if let Some((name, rank, _)) = down.first() {
        let line =
            |(name, rank, since): &(nacre_types::Name, nacre_types::Rank, std::time::Duration)| {
                format!(
                    "rank {} of file system {name} has had no server for {} s",
                    rank.0,
                    since.as_secs()
                )
            };
        let summary = match down.len() {
            1 => format!("rank {} of file system {name} has no server", rank.0),
            more => format!("{more} ranks of file systems have no server"),
        };
        // As in Ceph: degraded while standbys are left, an error when none is.
        let (level, todo) = if registry.standbys > 0 {
            (
                Level::Warn,
                "A server waits and has not taken over: see its log. Calls on what the rank has wait; nothing is lost.",
            )
        } else {
            (
                Level::Error,
                "Start a server: `nacre mds run`, or `nacre up`. Calls on what the rank has wait; nothing is lost.",
            )
        };
        found.push(check(
            "FS_RANK_DOWN",
            level,
            summary,
            down.iter().map(line).collect(),
            todo,
        ));
    } else if view.ranks.lacks_standby(view.awake, &registry) {
        let summary = "no server waits to take over ranks of file systems".to_owned();
        let todo = "Start one more, if possible on another host: `nacre mds run`. Until then calls wait when a server dies.";
        found.push(check(
            "FS_NO_STANDBY",
            Level::Warn,
            summary,
            Vec::new(),
            todo,
        ));
    }
}

fn fullness(view: &View<'_>, found: &mut Vec<Check>) {
    let map = view.map();
    let full = view
        .stats
        .fuller_than(map, options::millionths(map, "mon.full_ratio"));
    let near = view
        .stats
        .fuller_than(map, options::millionths(map, "mon.near_full_ratio"));
    let lines = |osds: Vec<nacre_types::OsdId>| -> Vec<String> {
        let percent = |osd| {
            view.stats
                .osd(osd)
                .map_or(0, |stat| stat.used * 100 / stat.total.max(1))
        };
        let space = |osd| {
            view.stats
                .osd(osd)
                .map(|stat| stat.space.as_str())
                .filter(|space| !space.is_empty())
        };
        let line = |osd| {
            let cause = space(osd).map_or_else(String::new, |space| format!(" ({space})"));
            format!("{osd} is {} % full{cause}", percent(osd))
        };
        osds.into_iter().map(line).collect()
    };
    let near: Vec<_> = near.into_iter().filter(|osd| !full.contains(osd)).collect();
    if !full.is_empty() {
        let todo = "Delete data (deletes always work), add OSDs, or, where `health detail` says that a host's file system is full, free space there. \
             Nothing is lost.";
        found.push(check(
            "OSD_FULL",
            Level::Error,
            format!("{} OSDs are full", full.len()),
            lines(full),
            todo,
        ));
    }
    if !near.is_empty() {
        let todo = "Add OSDs or delete data before they are full: then writes stop.";
        found.push(check(
            "OSD_NEARFULL",
            Level::Warn,
            format!("{} OSDs are nearly full", near.len()),
            lines(near),
            todo,
        ));
    }
    let up = view
        .stats
        .osds()
        .filter(|(osd, _)| map.up_osd(*osd).is_some());
    let no_room: Vec<_> = up
        .filter(|(_, stat)| stat.no_room)
        .map(|(osd, _)| osd)
        .collect();
    if !no_room.is_empty() {
        let summary = format!(
            "{} OSDs have no room for what recovery or backfill brings",
            no_room.len()
        );
        let todo = "Delete data (deletes always work) or add OSDs: until then objects there have fewer copies. The others serve them; where \
                    these are too few, writes are refused, and reads of what only others have wait. Nothing is lost.";
        found.push(check(
            "RECOVERY_NO_ROOM",
            Level::Warn,
            summary,
            lines(no_room),
            todo,
        ));
    }
    let short = crate::fit::would_not_fit(map, view.stats);
    if !short.is_empty() {
        let summary = "with one more OSD lost, the others have no room for its data".to_owned();
        let detail = short
            .iter()
            .map(|osd| format!("what {osd} holds does not fit on the others"))
            .collect();
        let todo = "Add OSDs or delete data: until then redundancy does not come back by itself after a loss.";
        found.push(check(
            "OSD_LOSS_NO_ROOM",
            Level::Warn,
            summary,
            detail,
            todo,
        ));
    }
}

fn groups(view: &View<'_>, found: &mut Vec<Check>) {
    let map = view.map();
    let (mut down, mut degraded, mut inactive, mut unfound) =
        (Vec::new(), Vec::new(), Vec::new(), 0);
    for (pg, record) in &map.pgs {
        let state = view.stats.pg_state(map, *pg, record);
        if let Some(report) = view.stats.pg(*pg) {
            unfound += report.unfound;
        }
        let waits = || match view.stats.pg(*pg).map(|report| &report.waits_for) {
            Some(waits) if !waits.is_empty() => {
                format!(
                    ", waits for {}",
                    waits
                        .iter()
                        .map(ToString::to_string)
                        .collect::<Vec<_>>()
                        .join(", ")
                )
            }
            _ => String::new(),
        };
        let (size, min_size) = (
            map.pools[&pg.pool].size,
            usize::from(map.pools[&pg.pool].min_size),
        );
        let short = state & pg_state::UNDERSIZED != 0 && state & pg_state::ACTIVE == 0;
        if state & pg_state::DOWN == 0 && short && record.up.len() >= min_size {
            let filled = record.up.iter().filter(|osd| !record.acting.contains(osd));
            let filled: Vec<String> = filled.map(ToString::to_string).collect();
            inactive.push(format!(
                "{pg} has {} of {size} copies, and {min_size} are needed: waits until {} has been filled",
                record.acting.len(),
                filled.join(", ")
            ));
        } else if state & pg_state::DOWN != 0 || short {
            down.push(format!(
                "{pg} has {} of {size} copies up{}",
                record.acting.len(),
                waits()
            ));
        } else if state & pg_state::ACTIVE == 0 {
            inactive.push(format!("{pg} is peering since {}{}", record.since, waits()));
        } else if state & (pg_state::DEGRADED | pg_state::UNDERSIZED) != 0 {
            degraded.push(format!("{pg} has {} of {size} copies", record.acting.len()));
        }
    }
    let all = map.pgs.len();
    if !down.is_empty() {
        let summary = format!(
            "{} of {all} placement groups do not serve: too few of their OSDs are up",
            down.len()
        );
        let todo = "Start the OSDs that `health detail` and `pg explain` name. Nothing is lost as long as they come back.";
        found.push(check("PG_DOWN", Level::Error, summary, down, todo));
    }
    if !inactive.is_empty() {
        let summary = format!(
            "{} of {all} placement groups are not active yet",
            inactive.len()
        );
        let todo = "Normal for a moment after a change. If it lasts: `pg explain` says whom a group waits for.";
        found.push(check("PG_INACTIVE", Level::Warn, summary, inactive, todo));
    }
    if !degraded.is_empty() {
        let summary = format!(
            "{} of {all} placement groups have fewer copies than wanted",
            degraded.len()
        );
        let todo = "They are served. Start the missing OSDs; recovery does the rest.";
        found.push(check("PG_DEGRADED", Level::Warn, summary, degraded, todo));
    }
    if unfound > 0 {
        let todo = "Start the OSDs that were up when these objects were last written (`pg explain`). If all are, the copies are damaged: the cluster log names the objects.";
        found.push(check(
            "OBJECT_UNFOUND",
            Level::Error,
            format!("{unfound} objects have no newest copy that is live and can be read"),
            Vec::new(),
            todo,
        ));
    }
}

fn pools(view: &View<'_>, found: &mut Vec<Check>) {
    let map = view.map();
    let full: Vec<String> = map
        .pools
        .values()
        .filter(|pool| pool.flags & pool_flag::FULL != 0)
        .map(|pool| pool.name.to_string())
        .collect();
    if !full.is_empty() {
        let todo = "Delete data (deletes always work), raise the pool's quota, or add OSDs.";
        found.push(check(
            "POOL_FULL",
            Level::Error,
            format!("{} pools are full: writes are refused", full.len()),
            full,
            todo,
        ));
    }
    let osds = map
        .osds
        .values()
        .filter(|info| info.weight != Weight::OUT)
        .count();
    let wants: Vec<String> = map
        .pools
        .values()
        .filter(|pool| usize::from(pool.size) > osds)
        .map(|pool| format!("pool {} wants {} copies", pool.name, pool.size))
        .collect();
    if !wants.is_empty() {
        let todo = "Add OSDs, or lower the pools' size.";
        found.push(check(
            "TOO_FEW_OSDS",
            Level::Warn,
            format!("{osds} OSDs are too few for {} pools", wants.len()),
            wants,
            todo,
        ));
    }
    let single: Vec<String> = map
        .pools
        .values()
        .filter(|pool| pool.size == 1)
        .map(|pool| format!("pool {} keeps one copy", pool.name))
        .collect();
    if !single.is_empty() {
        let todo = "Losing one disk loses data of these pools: `pool set NAME size 3`, unless that is meant.";
        found.push(check(
            "POOL_NO_REDUNDANCY",
            Level::Warn,
            format!("{} pools keep one copy", single.len()),
            single,
            todo,
        ));
    }
}

fn flags(view: &View<'_>, found: &mut Vec<Check>) {
    let set = flag_names(view.map().flags);
    if !set.is_empty() {
        let todo = "Set by an operator. When the work is done: `flag unset`.";
        found.push(check(
            "FLAGS_SET",
            Level::Warn,
            format!("flags are set: {}", set.join(", ")),
            Vec::new(),
            todo,
        ));
    }
    if view.map().epoch == Epoch::NONE {
        let todo = "Wait a moment.";
        found.push(check(
            "NO_MAP",
            Level::Error,
            "there is no map yet".into(),
            Vec::new(),
            todo,
        ));
    }
}

/// Names of the operators' flags.
pub const FLAGS: &[(&str, u64)] = &[
    ("nobackfill", flag::NO_BACKFILL),
    ("nodown", flag::NO_DOWN),
    ("noout", flag::NO_OUT),
    ("norecover", flag::NO_RECOVER),
];

/// The names of the flags that are set.
#[must_use]
pub fn flag_names(flags: u64) -> Vec<&'static str> {
    FLAGS
        .iter()
        .filter(|(_, bit)| flags & bit != 0)
        .map(|(name, _)| *name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Quorum;
    use crate::meta::overruns::Overruns;
    use crate::ranks::Ranks;
    use crate::state::State;
    use crate::stats::Stats;
    use crate::testing::map_with_osds;
    use nacre_types::{ClusterId, MonId, Time};
    use nacre_wire::map::{ClusterMap, CrushSection};
    use std::collections::BTreeMap;

    fn checks_of(state: &State) -> Vec<Check> {
        checks(&View {
            now: Time(1),
            awake: Time(1),
            me: MonId(0),
            term: 1,
            state,
            stats: &Stats::default(),
            suspects: &Default::default(),
            parted: &Default::default(),
            held: Vec::new(),
            silent: Vec::new(),
            rejects: &BTreeMap::new(),
            outages: &BTreeMap::new(),
            overruns: &Overruns::default(),
            ranks: &Ranks::default(),
            quorum: Quorum::default(),
            clock: None,
        })
    }

    /// A monitor without any map has no OSD that could be down and no PG that could be degraded:
    /// all other checks are silent, and without this one it would report `HEALTH_OK`.
    #[test]
    fn without_a_map_health_is_not_ok() {
        let empty = ClusterMap::empty(ClusterId(1), CrushSection::parse("").expect("empty text"));
        let found = checks_of(&State::new(empty));
        assert_eq!(
            found
                .iter()
                .map(|check| (check.code, check.level))
                .collect::<Vec<_>>(),
            [("NO_MAP", Level::Error)]
        );
        assert_eq!(checks_of(&State::new(map_with_osds(3))), []);
    }

    /// The worst finding comes first and is the overall severity. Omitted lines are counted.
    #[test]
    fn the_worst_comes_first_and_long_lists_are_cut() {
        let mut map = map_with_osds(60);
        map.osds.values_mut().for_each(|info| info.up = false);
        let found = checks_of(&State::new(map));
        let levels: Vec<Level> = found.iter().map(|check| check.level).collect();
        assert!(
            levels.is_sorted_by(|a, b| a >= b) && levels.contains(&Level::Warn),
            "{found:?}"
        );
        assert_eq!(
            (levels[0], level(&found), level(&[])),
            (Level::Error, Level::Error, Level::Ok)
        );
        let down = found
            .iter()
            .find(|check| check.code == "OSD_DOWN")
            .expect("said");
        assert_eq!(
            (down.detail.len(), &*down.detail[DETAIL_MAX]),
            (DETAIL_MAX + 1, "and 10 more")
        );
    }
}
