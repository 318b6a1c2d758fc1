//! Settings that operators may change while the daemon runs: options of the cluster's configuration
//! database (`ClusterMap::config`), read from every new map.
//!
//! ```text
//!  nacre config set osd.… ─▶ monitors: known, within bounds? ─▶ map change ─▶ every OSD: settings = the host's, overridden by these
//! ```
//! The monitors' table (`mon::options`) has the same names, bounds and defaults, with
//! human-readable descriptions; a test of `node`, which sees both, compares them. An option that is
//! not set leaves the host's setting. A value out of bounds (from a newer version) is ignored.
//!
//! Invariant: no option makes a lease longer than the host's setting, because a restarted daemon
//! assumes to have granted that ([`crate::heartbeat::Peers::start`]).

use crate::config::{Limits, Timing};
use nacre_types::Name;
use nacre_wire::ClusterMap;
use std::time::Duration;

/// One option: its name, its bounds (both inclusive), and its field.
pub struct OsdOption {
    /// As in the monitors' table; the unit last.
    pub name: &'static str,
    /// Smallest value.
    pub min: u64,
    /// Largest value.
    pub max: u64,
    /// Reads the value from [`Timing`] and [`Limits`].
    pub get: fn(&Timing, &Limits) -> u64,
    set: fn(&mut Timing, &mut Limits, u64),
}

fn to_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("settings are far below 500 million years")
}

macro_rules! option {
    ($name:literal, $min:expr, $max:expr, ms $field:ident) => {
        OsdOption {
            name: $name,
            min: $min,
            max: $max,
            get: |timing, _| to_ms(timing.$field),
            set: |timing, _, value| timing.$field = Duration::from_millis(value),
        }
    };
    ($name:literal, $min:expr, $max:expr, $field:ident: $t:ty) => {
        OsdOption {
            name: $name,
            min: $min,
            max: $max,
            get: |_, limits| limits.$field as u64,
            set: |_, limits, value| limits.$field = <$t>::try_from(value).unwrap_or(<$t>::MAX),
        }
    };
}

/// All options, by name.
pub const OPTIONS: &[OsdOption] = &[
    option!("osd.backfill_scan_objects", 8, 1000, scan_objects: u32),
    option!("osd.beacon_interval_ms", 100, 60_000, ms beacon_interval),
    option!("osd.client_bytes_max", 1 << 20, 1 << 40, client_bytes: u64),
    option!("osd.client_ops_max", 16, 1_000_000, client_ops: usize),
    option!("osd.complain_after_ms", 100, 3_600_000, ms complain_after),
    option!("osd.contexts_per_pg_max", 16, 1_000_000, contexts: usize),
    option!("osd.device_hung_ms", 1000, 3_600_000, ms device_hung),
    option!("osd.device_slow_ms", 100, 3_600_000, ms device_slow),
    option!("osd.device_stall_ms", 500, 3_600_000, ms device_stall),
    OsdOption {
        name: "osd.lease_ms",
        min: 50,
        max: 500,
        get: |timing, _| to_ms(timing.lease),
        set: |timing, _, value| timing.lease = timing.lease.min(Duration::from_millis(value)),
    },
    option!("osd.log_entries_max", 100, 1_000_000, log_entries_max: usize),
    option!("osd.log_entries_min", 16, 100_000, log_entries_min: usize),
    option!("osd.ping_interval_ms", 10, 10_000, ms ping_interval),
    option!("osd.push_bytes_max", 64 << 10, 16 << 20, push_bytes: u64),
    option!("osd.recovery_objects_max", 1, 1000, recovery_objects: usize),
    option!("osd.recovery_objects_total_max", 1, 100_000, recovery_objects_total: usize),
    OsdOption {
        name: "osd.report_grace_ms",
        min: 100,
        max: 3_600_000,
        get: |timing, _| to_ms(timing.grace),
        set: |timing, _, value| timing.grace = Duration::from_millis(value),
    },
    option!("osd.retry_interval_ms", 50, 60_000, ms retry_interval),
];

/// The host's settings, overridden by the map's options.
#[must_use]
pub fn settings(map: &ClusterMap, timing: Timing, limits: Limits) -> (Timing, Limits) {
    let (mut timing, mut limits) = (timing, limits);
    let mut set = false;
    for option in OPTIONS {
        let text = map.config.get(&Name::from(option.name));
        let value = text
            .and_then(|text| text.parse().ok())
            .filter(|value| (option.min..=option.max).contains(value));
        if let Some(value) = value {
            (option.set)(&mut timing, &mut limits, value);
            set = true;
        }
    }
    if set {
        // Options are set one by one; their combination must still be valid. A lease is renewed
        // before it ends, and more entries are kept for a member that is away than for one that is
        // present.
        timing.ping_interval = timing.ping_interval.min(timing.lease / 3);
        limits.log_entries_max = limits.log_entries_max.max(limits.log_entries_min);
    }
    (timing, limits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::ClusterId;
    use nacre_wire::map::CrushSection;

    fn with(options: &[(&str, &str)]) -> (Timing, Limits) {
        let crush = CrushSection::parse("type 0 osd\n").expect("well-formed");
        let mut map = ClusterMap::empty(ClusterId(1), crush);
        map.config = options
            .iter()
            .map(|(name, value)| (Name::from(*name), (*value).to_owned()))
            .collect();
        settings(&map, Timing::default(), Limits::default())
    }

    #[test]
    fn what_is_set_holds_and_nothing_else_changes() {
        let (timing, limits) = with(&[
            ("osd.retry_interval_ms", "77"),
            ("osd.recovery_objects_max", "3"),
        ]);
        assert_eq!(timing.retry_interval, Duration::from_millis(77));
        assert_eq!(limits.recovery_objects, 3);
        let (plain, sizes) = with(&[]);
        for option in OPTIONS
            .iter()
            .filter(|o| !["osd.retry_interval_ms", "osd.recovery_objects_max"].contains(&o.name))
        {
            assert_eq!(
                (option.get)(&timing, &limits),
                (option.get)(&plain, &sizes),
                "{}",
                option.name
            );
        }
    }

    #[test]
    fn every_option_takes_effect() {
        for option in OPTIONS {
            for value in [option.min, option.max] {
                let (timing, limits) = with(&[(option.name, &value.to_string())]);
                let expected = match option.name {
                    // Limited to a valid combination.
                    "osd.ping_interval_ms" => value.min(166),
                    "osd.log_entries_max" => value.max(Limits::default().log_entries_min as u64),
                    _ => value,
                };
                assert_eq!((option.get)(&timing, &limits), expected, "{}", option.name);
            }
        }
    }

    #[test]
    fn a_value_out_of_bounds_or_of_another_kind_is_as_if_not_set() {
        for bad in ["49", "501", "-1", "x", ""] {
            assert_eq!(
                with(&[("osd.lease_ms", bad)]).0.lease,
                Timing::default().lease,
                "{bad}"
            );
        }
    }

    /// A restarted daemon assumes to have granted the host's setting.
    #[test]
    fn no_option_makes_a_lease_longer_than_the_hosts() {
        let crush = CrushSection::parse("type 0 osd\n").expect("well-formed");
        let mut map = ClusterMap::empty(ClusterId(1), crush);
        map.config.insert("osd.lease_ms".into(), "400".to_owned());
        let short = Timing {
            lease: Duration::from_millis(200),
            ..Timing::default()
        };
        assert_eq!(
            settings(&map, short, Limits::default()).0.lease,
            short.lease
        );
    }
}
