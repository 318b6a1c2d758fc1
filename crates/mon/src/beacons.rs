//! OSDs without peers that would report them: an OSD that sends no beacon for long is down.
//!
//! OSDs watch those they share placement groups with ([`crate::failure`]). One that shares none, or
//! only with OSDs that are down, has no reporter, but its beacons stop all the same. (Not in the
//! paper; Ceph has `mon_osd_report_timeout`.)
//!
//! ```text
//!  leads, or OSD came up ────▶ counted from now ──beacon──▶ counted from now
//!                                    │ mon.osd_beacon_timeout_ms, or five beacons if that is longer
//!                                    ├─ few are silent ──▶ down
//!                                    └─ most are ────────▶ down after twice the time: our network is the likelier cause
//! ```
//! Deliberately far slower than reports: here a single silent channel is the only evidence.
//! [`crate::osds::mass_failure`] ensures that no data move when half the cluster is lost, however
//! that was detected.
//!
//! Invariant: no OSD is blamed for beacons missed while this monitor did not lead, or was stopped.
//! Counting starts with the leadership ([`Beacons::default`] is empty), and uses the leader's awake
//! time (see `failure.rs`).

use nacre_types::{Instance, OsdId, Time};
use nacre_wire::map::{ClusterMap, flag};
use std::collections::BTreeMap;
use std::time::Duration;

use crate::failure::Down;
use crate::options;

/// This many consecutive beacons must be missing, however short the timeout is set.
const MISSED_MIN: u32 = 5;

/// An instance of an OSD.
#[derive(Clone, Copy, Debug)]
struct Heard {
    instance: Instance,
    /// Time of its last message, in awake time; if there was none, when it was first seen up here.
    at: Time,
    ever: bool,
}

/// Time of the last message of each OSD.
#[derive(Clone, Debug, Default)]
pub struct Beacons {
    heard: BTreeMap<OsdId, Heard>,
}

impl Beacons {
    /// When the up instance of the OSD last sent a message here, in awake time, which stops while
    /// this monitor is stopped.
    #[must_use]
    pub fn last_heard(&self, osd: OsdId) -> Option<Time> {
        self.heard
            .get(&osd)
            .filter(|heard| heard.ever)
            .map(|heard| heard.at)
    }

    /// Whether it has no entries.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.heard.is_empty()
    }

    /// This instance sent a message.
    pub fn heard(&mut self, awake: Time, osd: OsdId, instance: Instance) {
        self.heard.insert(
            osd,
            Heard {
                instance,
                at: awake,
                ever: true,
            },
        );
    }

    /// OSDs that count as up but have been silent for two beacons and half a second; for one beacon
    /// less if never heard here, since they send a message as soon as they learn of a new leader.
    /// They are not marked down for it yet, but their PGs may not be served: if all of them die at
    /// once, no OSD is left to report another. (Found by chaos: all OSDs and the leader died
    /// together, and for 5 s health did not mention the OSDs.)
    pub fn silent<'a>(
        &'a self,
        awake: Time,
        map: &'a ClusterMap,
    ) -> impl Iterator<Item = (OsdId, Duration)> + 'a {
        let interval = options::duration(map, "osd.beacon_interval_ms");
        let needed = move |heard: &Heard| {
            interval * if heard.ever { 2 } else { 1 } + Duration::from_millis(500)
        };
        let up = |osd: &OsdId, instance| {
            map.up_osd(*osd)
                .is_some_and(|info| info.instance == instance)
        };
        let silent = move |(osd, heard): (&OsdId, &Heard)| {
            let silent = awake.since(heard.at);
            (silent >= needed(heard) && up(osd, heard.instance)).then_some((*osd, silent))
        };
        self.heard.iter().filter_map(silent)
    }

    /// OSDs to be marked down now. Call it when this monitor begins to lead and about every second:
    /// an OSD's time begins when it is first seen up here.
    pub fn verdicts(&mut self, awake: Time, map: &ClusterMap) -> Vec<Down> {
        let up: BTreeMap<OsdId, Instance> = map
            .osds
            .iter()
            .filter(|(_, info)| info.up)
            .map(|(osd, info)| (*osd, info.instance))
            .collect();
        self.heard
            .retain(|osd, heard| up.get(osd) == Some(&heard.instance));
        for (osd, instance) in &up {
            self.heard.entry(*osd).or_insert(Heard {
                instance: *instance,
                at: awake,
                ever: false,
            });
        }
        if map.flags & flag::NO_DOWN != 0 {
            return Vec::new();
        }
        let timeout = timeout(map);
        let silent_for = |needed: Duration| -> Vec<Down> {
            let silent = self
                .heard
                .iter()
                .filter(|(_, heard)| awake.since(heard.at) >= needed);
            silent
                .map(|(osd, heard)| verdict(*osd, heard.instance, needed))
                .collect()
        };
        let silent = silent_for(timeout);
        let most = silent.len() >= 2 && silent.len() * 2 > up.len();
        if most {
            silent_for(timeout * 2)
        } else {
            silent
        }
    }
}

fn timeout(map: &ClusterMap) -> Duration {
    let several = options::duration(map, "osd.beacon_interval_ms") * MISSED_MIN;
    options::duration(map, "mon.osd_beacon_timeout_ms").max(several)
}

fn verdict(osd: OsdId, instance: Instance, silent: Duration) -> Down {
    Down {
        osd,
        instance,
        why: format!("no beacon for {} s", silent.as_secs()),
        silent: true,
        parted: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::map_with_osds;

    const TIMEOUT: Duration = Duration::from_secs(30);

    /// A long-standing leader, whose OSDs all just sent a beacon.
    fn led(osds: u32) -> (ClusterMap, Beacons, Time) {
        let (map, mut beacons) = (map_with_osds(osds as usize), Beacons::default());
        let now = Time(1_000_000_000_000);
        (0..osds).for_each(|osd| beacons.heard(now, OsdId(osd), map.osds[&OsdId(osd)].instance));
        (map, beacons, now)
    }
    fn who(verdicts: &[Down]) -> Vec<u32> {
        verdicts.iter().map(|down| down.osd.0).collect()
    }

    /// A new leader had recorded of an OSD only that it is up. That counted as a message, so
    /// another process of the OSD, which had moved and asked for its place, was refused for good,
    /// and ended.
    #[test]
    fn who_was_never_heard_was_heard_at_no_time() {
        let (map, _, now) = led(2);
        let mut beacons = Beacons::default();
        beacons.verdicts(now, &map);
        assert_eq!(beacons.last_heard(OsdId(0)), None);
        beacons.heard(now, OsdId(0), map.osds[&OsdId(0)].instance);
        assert_eq!(beacons.last_heard(OsdId(0)), Some(now));
    }

    // An OSD that was alone in its pool stayed up for ever after it died: only OSDs that share PGs
    // with it would have reported it.
    #[test]
    fn an_osd_without_beacons_for_long_is_down() {
        for all in 1..6 {
            let (map, mut beacons, start) = led(all);
            let late = start + TIMEOUT;
            (1..all)
                .for_each(|osd| beacons.heard(late, OsdId(osd), map.osds[&OsdId(osd)].instance));
            assert_eq!(beacons.verdicts(late - Duration::from_nanos(1), &map), []);
            let down = beacons.verdicts(late, &map);
            assert_eq!(
                (who(&down), down[0].instance),
                (vec![0], map.osds[&OsdId(0)].instance)
            );
            assert!(
                down[0].silent && down[0].why == "no beacon for 30 s",
                "{down:?}"
            );
        }
    }

    #[test]
    fn an_osd_not_heard_by_a_new_leader_has_all_its_time() {
        let (map, _, start) = led(3);
        let mut new = Beacons::default();
        assert_eq!(new.verdicts(start, &map), []);
        assert_eq!(new.verdicts(start + TIMEOUT / 2, &map), []);
        (1..3)
            .for_each(|osd| new.heard(start + TIMEOUT, OsdId(osd), map.osds[&OsdId(osd)].instance));
        assert_eq!(who(&new.verdicts(start + TIMEOUT, &map)), [0]);
    }

    #[test]
    fn a_new_instance_has_all_its_time_and_an_old_ones_beacon_is_not_its_own() {
        let (mut map, mut beacons, start) = led(3);
        let old = map.osds[&OsdId(0)].instance;
        map.osds.get_mut(&OsdId(0)).expect("exists").instance = Instance(old.0 + 1);
        let late = start + TIMEOUT;
        beacons.heard(late - Duration::from_secs(1), OsdId(0), old);
        (1..3).for_each(|osd| beacons.heard(late, OsdId(osd), map.osds[&OsdId(osd)].instance));
        assert_eq!(beacons.verdicts(late, &map), [], "first seen up just now");
        (1..3).for_each(|osd| {
            beacons.heard(late + TIMEOUT, OsdId(osd), map.osds[&OsdId(osd)].instance)
        });
        assert_eq!(who(&beacons.verdicts(late + TIMEOUT, &map)), [0]);
    }

    #[test]
    fn the_silence_of_most_is_believed_after_twice_the_time() {
        let (map, mut beacons, start) = led(4);
        beacons.heard(start + TIMEOUT, OsdId(3), map.osds[&OsdId(3)].instance);
        assert_eq!(beacons.verdicts(start + TIMEOUT, &map), []);
        beacons.heard(start + TIMEOUT * 2, OsdId(3), map.osds[&OsdId(3)].instance);
        assert_eq!(who(&beacons.verdicts(start + TIMEOUT * 2, &map)), [0, 1, 2]);
    }

    // All OSDs were killed at once: for a minute no operation was answered, and health was OK.
    #[test]
    fn silence_is_said_long_before_anybody_is_blamed_for_it() {
        let (mut map, mut beacons, start) = led(3);
        let silent = |beacons: &Beacons, map: &ClusterMap, after: Duration| -> Vec<u32> {
            beacons
                .silent(start + after, map)
                .map(|(osd, _)| osd.0)
                .collect()
        };
        assert_eq!(silent(&beacons, &map, Duration::from_millis(4_499)), [0; 0]);
        assert_eq!(
            silent(&beacons, &map, Duration::from_millis(4_500)),
            [0, 1, 2]
        );
        assert_eq!(
            beacons.verdicts(start + Duration::from_millis(4_500), &map),
            [],
            "it is far too early for that"
        );
        beacons.heard(
            start + Duration::from_secs(4),
            OsdId(1),
            map.osds[&OsdId(1)].instance,
        );
        map.osds.get_mut(&OsdId(2)).expect("there").up = false;
        assert_eq!(
            silent(&beacons, &map, Duration::from_secs(5)),
            [0],
            "one was heard of, one is known to be down"
        );
        // Another monitor leads now, and hears only one of them.
        map.osds.get_mut(&OsdId(2)).expect("there").up = true;
        let mut new = Beacons::default();
        assert_eq!(new.verdicts(start, &map), []);
        new.heard(start, OsdId(1), map.osds[&OsdId(1)].instance);
        assert_eq!(silent(&new, &map, Duration::from_millis(2_499)), [0; 0]);
        assert_eq!(silent(&new, &map, Duration::from_millis(2_500)), [0, 2]);
        assert_eq!(silent(&new, &map, Duration::from_millis(4_500)), [0, 1, 2]);
    }

    #[test]
    fn no_down_holds_and_rare_beacons_are_waited_for() {
        let (mut map, mut beacons, start) = led(1);
        map.flags = flag::NO_DOWN;
        assert_eq!(beacons.verdicts(start + TIMEOUT, &map), []);
        map.flags = 0;
        map.config
            .insert("osd.beacon_interval_ms".into(), "10000".into());
        assert_eq!(beacons.verdicts(start + TIMEOUT, &map), []);
        assert_eq!(
            who(&beacons.verdicts(start + Duration::from_secs(50), &map)),
            [0]
        );
    }
}
