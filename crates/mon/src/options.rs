//! Every option of the configuration database: name, kind, default, explanation. `nacre config
//! help` prints this table, and an invalid value is refused before it is proposed. Deliberately few
//! (USERS §1, item 13): fewer than sixty in all.
//!
//! Options that a daemon uses are in the map (`ClusterMap::config`); it calls the reader functions
//! here, or reads the map's entry with the same name and bounds.

use nacre_command::nearest;
use nacre_types::Name;
use nacre_wire::map::ClusterMap;
use std::time::Duration;

/// Valid values of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number within bounds, both included. The option's name ends with the unit.
    Whole {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A fraction between 0 and 1, both included, as a decimal number.
    Fraction,
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Its name; it begins with the daemon that uses it, and ends with the unit.
    pub name: &'static str,
    /// Its valid values.
    pub kind: Kind,
    /// Its default.
    pub default: &'static str,
    /// A human-readable sentence.
    pub doc: &'static str,
}

const fn whole(
    name: &'static str,
    default: &'static str,
    min: u64,
    max: u64,
    doc: &'static str,
) -> Spec {
    Spec {
        name,
        kind: Kind::Whole { min, max },
        default,
        doc,
    }
}
const fn fraction(name: &'static str, default: &'static str, doc: &'static str) -> Spec {
    Spec {
        name,
        kind: Kind::Fraction,
        default,
        doc,
    }
}

/// All options, by name.
pub const OPTIONS: &[Spec] = &[
    whole(
        "meta.client_rate",
        "2000",
        1,
        1_000_000,
        "Metadata requests per second that clients of one name may send to the monitors; metadata is for what changes seldom.",
    ),
    whole(
        "meta.propose_interval_ms",
        "0",
        0,
        10_000,
        "How long the monitors gather changes of metadata before they propose them together; what comes while a proposal is on its way is together anyway.",
    ),
    whole(
        "meta.rate",
        "10000",
        1,
        1_000_000,
        "Metadata requests per second that all clients together may send to the monitors.",
    ),
    whole(
        "meta.total_bytes_max",
        "16777216",
        1 << 20,
        20 << 20,
        "Bytes of all metadata's keys and values together, and a key for every 128 of them; they are in every snapshot of the monitors' state.",
    ),
    fraction(
        "mon.auto_out_max_down_fraction",
        "0.5",
        "When this share of the OSDs that hold data is down or was taken out, none is taken out by the monitors: losing half the cluster's power must not move data.",
    ),
    fraction(
        "mon.backfill_full_ratio",
        "0.90",
        "An OSD that is down is not taken out automatically if that would fill another one so far.",
    ),
    whole(
        "mon.command_wait_ms",
        "5000",
        100,
        600_000,
        "How long a command waits for a monitor majority before it fails.",
    ),
    whole(
        "mon.compact_entries",
        "1000",
        16,
        1_000_000,
        "Consensus log entries between snapshots of the monitors' state.",
    ),
    whole(
        "mon.down_out_interval_s",
        "600",
        1,
        31_536_000,
        "How long an OSD is down before its data is copied elsewhere.",
    ),
    fraction(
        "mon.full_ratio",
        "0.95",
        "An OSD this full stops writes (never deletes) to the pools that use it.",
    ),
    whole(
        "mon.map_fanout",
        "2",
        1,
        16,
        "How many OSDs a monitor tells of a map change besides those it is about; each of them begins another tree by which all tell each other.",
    ),
    fraction(
        "mon.near_full_ratio",
        "0.85",
        "An OSD this full raises a warning.",
    ),
    whole(
        "mon.osd_beacon_timeout_ms",
        "30000",
        1_000,
        3_600_000,
        "How long the monitors hear nothing of an OSD before they mark it down though no other OSD misses it; never less than five times osd.beacon_interval_ms.",
    ),
    whole(
        "mon.osd_reporters_min",
        "2",
        1,
        100,
        "How many OSDs, on different hosts where there are several, must miss an OSD before it is marked down.",
    ),
    whole(
        "mon.pg_per_osd_max",
        "250",
        8,
        10_000,
        "A pool that would put more placement-group copies than this on an OSD is refused.",
    ),
    whole(
        "mon.pg_per_osd_target",
        "100",
        1,
        10_000,
        "Placement-group copies per OSD aimed at when a pool is created without pg_num.",
    ),
    whole(
        "mon.propose_interval_ms",
        "2",
        0,
        10_000,
        "How long the monitors gather changes before they propose them together.",
    ),
    whole(
        "osd.backfill_scan_objects",
        "64",
        8,
        1_000,
        "Objects that a group compares at a time while it fills a new member: more is faster and holds more client writes back.",
    ),
    whole(
        "osd.beacon_interval_ms",
        "2000",
        100,
        60_000,
        "How often an OSD sends its figures to the monitors when nothing has changed.",
    ),
    whole(
        "osd.client_bytes_max",
        "67108864",
        1 << 20,
        1 << 40,
        "Bytes of client operations that an OSD has in hand; it reads no more from connections until some are done.",
    ),
    whole(
        "osd.client_ops_max",
        "4096",
        16,
        1_000_000,
        "Client operations that an OSD has in hand; it reads no more from connections until some are done.",
    ),
    whole(
        "osd.complain_after_ms",
        "2000",
        100,
        3_600_000,
        "How long an operation waits before its client is told what it waits for.",
    ),
    whole(
        "osd.contexts_per_pg_max",
        "1024",
        16,
        1_000_000,
        "Objects per placement group whose state is kept in memory after their last operation.",
    ),
    whole(
        "osd.device_hung_ms",
        "10000",
        1_000,
        3_600_000,
        "How long a call of its disk may take before an OSD's daemon ends itself.",
    ),
    whole(
        "osd.device_slow_ms",
        "1000",
        100,
        3_600_000,
        "How long a call of its disk may take before health names the disk.",
    ),
    whole(
        "osd.device_stall_ms",
        "2000",
        500,
        3_600_000,
        "How long a call of its disk may take before an OSD asks to be marked down; it comes back when the disk answers.",
    ),
    whole(
        "osd.failure_grace_ms",
        "2000",
        100,
        3_600_000,
        "How long an OSD must be silent before it is marked down.",
    ),
    whole(
        "osd.lease_ms",
        "500",
        50,
        500,
        "How long a primary may answer reads after a replica last answered it: a primary that died holds back its successor's first reads for at most so long.",
    ),
    whole(
        "osd.log_entries_max",
        "10000",
        100,
        1_000_000,
        "Log entries that a placement group keeps while a member is away: so many updates later it still comes back by log instead of by backfill.",
    ),
    whole(
        "osd.log_entries_min",
        "32",
        16,
        100_000,
        "Log entries that a placement group keeps while all its members are there: so many to twice as many.",
    ),
    whole(
        "osd.ping_interval_ms",
        "150",
        10,
        10_000,
        "How often OSDs that share placement groups ping each other; never less often than three times per lease.",
    ),
    whole(
        "osd.push_bytes_max",
        "1048576",
        64 << 10,
        16 << 20,
        "Bytes of an object that recovery sends at a time.",
    ),
    whole(
        "osd.recovery_objects_max",
        "16",
        1,
        1_000,
        "Objects that a placement group recovers at a time: fewer leave more to clients.",
    ),
    whole(
        "osd.recovery_objects_total_max",
        "32",
        1,
        100_000,
        "Objects that an OSD recovers and backfills at a time, in all its placement groups together.",
    ),
    whole(
        "osd.report_grace_ms",
        "1800",
        100,
        3_600_000,
        "How long an OSD must be silent before its peers report it; less than osd.failure_grace_ms, after which the monitors believe them.",
    ),
    whole(
        "osd.retry_interval_ms",
        "400",
        50,
        60_000,
        "When a message between OSDs that was not answered is sent again.",
    ),
    whole(
        "pool.default_min_size",
        "2",
        1,
        10,
        "Copies a new pool needs to accept reads and writes, unless it says so itself.",
    ),
    whole(
        "pool.default_size",
        "3",
        1,
        10,
        "Copies a new pool keeps, unless it says so itself.",
    ),
];

/// The option of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Spec> {
    OPTIONS.iter().find(|spec| spec.name == name)
}

/// Checks that `value` is valid for the option.
///
/// # Errors
/// A sentence that describes valid values.
pub fn validate(spec: &Spec, value: &str) -> Result<(), String> {
    match spec.kind {
        Kind::Whole { min, max } => match value.parse::<u64>() {
            Ok(number) if (min..=max).contains(&number) => Ok(()),
            _ => Err(format!(
                "{} takes a whole number from {min} to {max}, not `{value}`",
                spec.name
            )),
        },
        Kind::Fraction => match value.parse::<f64>() {
            Ok(number) if (0.0..=1.0).contains(&number) => Ok(()),
            _ => Err(format!(
                "{} takes a number from 0 to 1, such as 0.85, not `{value}`",
                spec.name
            )),
        },
    }
}

/// The three names most similar to `name`, the most similar first.
#[must_use]
pub fn closest(name: &str) -> Vec<&'static str> {
    nearest(name, OPTIONS.iter().map(|spec| spec.name))
}

fn text<'m>(map: &'m ClusterMap, name: &str) -> &'m str {
    let default = find(name)
        .expect("options are read by the names of the table")
        .default;
    map.config
        .get(&Name::from(name))
        .map_or(default, String::as_str)
}

/// The value of a whole-number option in the map. An invalid value (written by a newer version)
/// counts as the default.
///
/// # Panics
/// When the table has no such option.
#[must_use]
pub fn number(map: &ClusterMap, name: &str) -> u64 {
    let default = || {
        find(name)
            .expect("looked up before")
            .default
            .parse()
            .expect("defaults fit their kind")
    };
    text(map, name).parse().unwrap_or_else(|_| default())
}

/// A fraction in the map, in millionths: decisions use no floating point.
///
/// # Panics
/// When the table has no such option.
#[must_use]
pub fn millionths(map: &ClusterMap, name: &str) -> u64 {
    let parse = |text: &str| {
        text.parse::<f64>()
            .ok()
            .filter(|f| (0.0..=1.0).contains(f))
            .map(|f| (f * 1e6).round() as u64)
    };
    parse(text(map, name)).unwrap_or_else(|| {
        parse(find(name).expect("looked up before").default).expect("defaults fit their kind")
    })
}

/// A duration in the map; the option's name ends with the unit.
///
/// # Panics
/// When the table has no such option, or its name no unit.
#[must_use]
pub fn duration(map: &ClusterMap, name: &str) -> Duration {
    let value = number(map, name);
    match name.rsplit_once('_') {
        Some((_, "ms")) => Duration::from_millis(value),
        Some((_, "s")) => Duration::from_secs(value),
        _ => panic!("{name} is no duration"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_small_and_its_defaults_fit() {
        assert!(OPTIONS.len() < 60);
        assert!(
            OPTIONS.is_sorted_by(|a, b| a.name < b.name),
            "by name, without repetition"
        );
        for spec in OPTIONS {
            assert_eq!(validate(spec, spec.default), Ok(()), "{}", spec.name);
            assert!(
                spec.doc.ends_with('.') || spec.doc.ends_with(").") || spec.doc.ends_with(')'),
                "{}",
                spec.name
            );
        }
    }

    #[test]
    fn a_mistyped_name_is_answered_with_its_neighbours() {
        assert_eq!(
            closest("mon.down_out_intervall_s")[0],
            "mon.down_out_interval_s"
        );
        assert_eq!(closest("full_ratio").len(), 3);
        assert!(closest("full_ratio")[..2].contains(&"mon.full_ratio"));
        assert_eq!(closest("grace")[0], "osd.failure_grace_ms");
    }

    #[test]
    fn values_are_checked() {
        let grace = find("osd.failure_grace_ms").expect("known");
        assert!(
            validate(grace, "99").is_err()
                && validate(grace, "2s").is_err()
                && validate(grace, "-5").is_err()
        );
        let full = find("mon.full_ratio").expect("known");
        assert!(
            validate(full, "0.9").is_ok()
                && validate(full, "95").is_err()
                && validate(full, "NaN").is_err()
        );
    }
}
