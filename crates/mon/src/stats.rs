//! Statistics that OSDs report every few seconds: soft state of the leader, never replicated; a new
//! leader has it again after one round of beacons. A report counts only for the interval and the
//! instance in which it was made.

use nacre_types::{Epoch, Instance, OsdId, PgId, PoolId};
use nacre_wire::map::{ClusterMap, PgRecord, Weight, pool_flag};
use nacre_wire::msg::monitor::{Beacon, PgReport, pg_state};
use std::collections::{BTreeMap, BTreeSet};

use crate::options;

/// An OSD's last report.
#[derive(Clone, Debug)]
pub struct OsdStat {
    /// Its instance.
    pub instance: Instance,
    /// Capacity in bytes.
    pub total: u64,
    /// Used bytes.
    pub used: u64,
    /// Long-waiting operations, at most [`SLOW_MAX`].
    pub slow: Vec<String>,
    /// Trouble with its device, human-readable; empty: none.
    pub device: String,
    /// The reason why its store cannot use all of its space, human-readable; empty: there is none.
    pub space: String,
    /// Whether it recently lacked space for recovery or backfill.
    pub no_room: bool,
}

/// Maximum number of slow operations kept per OSD.
pub const SLOW_MAX: usize = 20;

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    osds: BTreeMap<OsdId, OsdStat>,
    pgs: BTreeMap<PgId, PgReport>,
}

/// Sums of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStat {
    /// Objects.
    pub objects: u64,
    /// Bytes of data, one replica.
    pub bytes: u64,
    /// Missing or outdated replicas.
    pub degraded: u64,
    /// Replicas on the wrong OSDs.
    pub misplaced: u64,
    /// Objects whose newest version no running OSD has.
    pub unfound: u64,
}

impl Stats {
    /// Takes a beacon. `false`: of another instance than the map's, or of PGs of which it is not
    /// the primary.
    pub fn beacon(&mut self, map: &ClusterMap, mut beacon: Beacon) -> bool {
        if map
            .up_osd(beacon.osd)
            .is_none_or(|info| info.instance != beacon.instance)
        {
            return false;
        }
        beacon.slow.truncate(SLOW_MAX);
        let stat = OsdStat {
            instance: beacon.instance,
            total: beacon.total,
            used: beacon.used.min(beacon.total),
            slow: beacon.slow,
            device: beacon.device,
            space: beacon.space,
            no_room: beacon.no_room,
        };
        self.osds.insert(beacon.osd, stat);
        for report in beacon.pgs {
            let current = map.pgs.get(&report.pg).is_some_and(|record| {
                record.since == report.interval && record.primary() == Some(beacon.osd)
            });
            if current {
                self.pgs.insert(report.pg, report);
            }
        }
        true
    }

    /// Drops what is no longer in the map.
    pub fn on_map(&mut self, map: &ClusterMap) {
        self.osds.retain(|osd, stat| {
            map.osds
                .get(osd)
                .is_some_and(|info| info.instance == stat.instance)
        });
        self.pgs.retain(|pg, _| map.pgs.contains_key(pg));
    }

    /// An OSD's last report.
    #[must_use]
    pub fn osd(&self, osd: OsdId) -> Option<&OsdStat> {
        self.osds.get(&osd)
    }
    /// Whether it is empty.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.osds.is_empty() && self.pgs.is_empty()
    }
    /// All OSDs with reports.
    pub fn osds(&self) -> impl Iterator<Item = (OsdId, &OsdStat)> {
        self.osds.iter().map(|(osd, stat)| (*osd, stat))
    }
    /// The last report of a PG, of any interval.
    #[must_use]
    pub fn pg(&self, pg: PgId) -> Option<&PgReport> {
        self.pgs.get(&pg)
    }

    /// Whether a PG's primary reports that peering waits for this OSD, together with other absent
    /// ones; or that there are unfound objects. Those may be anywhere. (Simulator, seed 4166: the
    /// only OSD with an object was kept down, since it and another did not hear each other.)
    #[must_use]
    pub fn is_awaited(&self, map: &ClusterMap, osd: OsdId) -> bool {
        let waits = |report: &PgReport| {
            report.state & pg_state::DOWN != 0 && report.waits_for.contains(&osd)
        };
        self.pgs.iter().any(|(pg, report)| {
            (waits(report) || report.unfound > 0)
                && map
                    .pgs
                    .get(pg)
                    .is_some_and(|record| record.since == report.interval)
        })
    }

    /// A PG's state: its primary's report if it is of the current interval, else derived from the
    /// map alone.
    #[must_use]
    pub fn pg_state(&self, map: &ClusterMap, pg: PgId, record: &PgRecord) -> u32 {
        let pool = &map.pools[&pg.pool];
        if record.acting.is_empty() {
            return pg_state::DOWN | pg_state::UNDERSIZED;
        }
        let mut state = match self
            .pgs
            .get(&pg)
            .filter(|report| report.interval == record.since)
        {
            Some(report) => report.state,
            None if record.is_activated() => pg_state::ACTIVE,
            None => pg_state::PEERING,
        };
        if record.acting.len() < usize::from(pool.min_size) {
            state |= pg_state::UNDERSIZED;
            state &= !(pg_state::ACTIVE | pg_state::CLEAN);
        }
        if record.acting.len() < usize::from(pool.size) {
            state |= pg_state::DEGRADED;
            state &= !pg_state::CLEAN;
        }
        if record.acting != record.up {
            state |= pg_state::REMAPPED;
            state &= !pg_state::CLEAN;
        }
        state
    }

    /// Sums over a pool's PGs.
    #[must_use]
    pub fn pool(&self, pool: PoolId) -> PoolStat {
        let mut sum = PoolStat::default();
        let first = PgId {
            pool,
            seed: 0,
            shard: nacre_types::Shard(0),
        };
        for (_, report) in self
            .pgs
            .range(first..)
            .take_while(|(pg, _)| pg.pool == pool)
        {
            sum.objects += report.objects;
            sum.bytes += report.bytes;
            sum.degraded += report.degraded;
            sum.misplaced += report.misplaced;
            sum.unfound += report.unfound;
        }
        sum
    }

    /// OSDs at or above a ratio, in millionths. Those that take no data do not count.
    #[must_use]
    pub fn fuller_than(&self, map: &ClusterMap, millionths: u64) -> Vec<OsdId> {
        let full = |(osd, stat): &(&OsdId, &OsdStat)| {
            let takes = map
                .osds
                .get(osd)
                .is_some_and(|info| info.weight != Weight::OUT);
            takes
                && stat.total > 0
                && u128::from(stat.used) * 1_000_000
                    >= u128::from(stat.total) * u128::from(millionths)
        };
        self.osds.iter().filter(full).map(|(osd, _)| *osd).collect()
    }

    /// Pools whose [`pool_flag::FULL`] is wrong, with the right value.
    #[must_use]
    pub fn pools_to_flag(&self, map: &ClusterMap) -> Vec<(PoolId, bool)> {
        let full: BTreeSet<OsdId> = self
            .fuller_than(map, options::millionths(map, "mon.full_ratio"))
            .into_iter()
            .collect();
        let mut pools: BTreeSet<PoolId> = BTreeSet::new();
        if !full.is_empty() {
            for (pg, record) in &map.pgs {
                if record
                    .acting
                    .iter()
                    .chain(&record.up)
                    .any(|osd| full.contains(osd))
                {
                    pools.insert(pg.pool);
                }
            }
        }
        for (id, pool) in &map.pools {
            if pool.quota_bytes > 0 || pool.quota_objects > 0 {
                let stat = self.pool(*id);
                let over = |used: u64, quota: u64| quota > 0 && used >= quota;
                if over(stat.bytes, pool.quota_bytes) || over(stat.objects, pool.quota_objects) {
                    pools.insert(*id);
                }
            }
        }
        let wrong = |(id, pool): (&PoolId, &nacre_wire::map::Pool)| {
            let (is, should) = (pool.flags & pool_flag::FULL != 0, pools.contains(id));
            // Without all reports (a new leader) no flag is cleared: an election does not empty a
            // full disk.
            (is != should && (should || self.knows_all_in(map))).then_some((*id, should))
        };
        map.pools.iter().filter_map(wrong).collect()
    }

    fn knows_all_in(&self, map: &ClusterMap) -> bool {
        map.osds
            .iter()
            .all(|(osd, info)| !info.up || self.osds.contains_key(osd))
    }

    /// The newest epoch up to which every PG's past is clean: later deltas are needed by some
    /// interval.
    #[must_use]
    pub fn clean_to(&self, map: &ClusterMap) -> Epoch {
        let unclean = map.pgs.iter().filter(|(pg, record)| {
            self.pgs.get(pg).is_none_or(|report| {
                report.interval != record.since || report.state & pg_state::CLEAN == 0
            })
        });
        let oldest = unclean
            .map(|(_, record)| record.activated.interval.min(record.since))
            .min();
        oldest.map_or(map.epoch, |epoch| Epoch(epoch.0.saturating_sub(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{map_with_osds, with_pool};
    use nacre_wire::map::Change;

    fn clean(map: &ClusterMap) -> Vec<Beacon> {
        let report = |(pg, record): (&PgId, &PgRecord)| PgReport {
            pg: *pg,
            interval: record.since,
            state: pg_state::ACTIVE | pg_state::CLEAN,
            objects: 1,
            bytes: 1,
            degraded: 0,
            misplaced: 0,
            unfound: 0,
            waits_for: Vec::new(),
        };
        let beacon = |(osd, info): (&OsdId, &nacre_wire::map::OsdInfo)| Beacon {
            osd: *osd,
            instance: info.instance,
            total: 100,
            used: 1,
            pgs: map
                .pgs
                .iter()
                .filter(|(_, record)| record.primary() == Some(*osd))
                .map(report)
                .collect(),
            all: true,
            slow: Vec::new(),
            device: String::new(),
            space: String::new(),
            no_room: false,
        };
        map.osds
            .iter()
            .filter(|(_, info)| info.up)
            .map(beacon)
            .collect()
    }

    #[test]
    fn who_may_have_what_nobody_else_has_is_awaited() {
        let map = with_pool(map_with_osds(4), 16);
        let mut stats = Stats::default();
        assert!(
            clean(&map)
                .into_iter()
                .all(|beacon| stats.beacon(&map, beacon))
        );
        assert!(!stats.is_awaited(&map, OsdId(3)));
        let mut beacon = clean(&map)
            .into_iter()
            .find(|beacon| !beacon.pgs.is_empty())
            .expect("somebody leads");
        beacon.pgs.truncate(1);
        beacon.pgs[0].unfound = 1;
        let first = beacon.pgs[0].clone();
        assert!(
            stats.beacon(&map, beacon.clone()) && stats.is_awaited(&map, OsdId(3)),
            "it may have it"
        );
        beacon.pgs = vec![PgReport {
            unfound: 0,
            waits_for: vec![OsdId(2)],
            state: pg_state::DOWN,
            ..first
        }];
        assert!(
            stats.beacon(&map, beacon)
                && stats.is_awaited(&map, OsdId(2))
                && !stats.is_awaited(&map, OsdId(3))
        );
    }

    /// OSDs were down, and their PGs were reported clean before that: the epochs since were
    /// forgotten, and returning OSDs learned of no interval in between.
    #[test]
    fn history_is_kept_for_groups_that_were_clean_in_another_interval() {
        let mut map = with_pool(map_with_osds(4), 16);
        let activate = |(pg, record): (&PgId, &PgRecord)| Change::PgActivate {
            pg: *pg,
            interval: record.since,
            members: record.acting.clone(),
        };
        let delta = map.delta(map.pgs.iter().map(activate).collect());
        map.apply(&delta).expect("applies");
        let mut stats = Stats::default();
        assert!(
            clean(&map)
                .into_iter()
                .all(|beacon| stats.beacon(&map, beacon))
        );
        assert_eq!(stats.clean_to(&map), map.epoch, "all is clean");
        for osd in [OsdId(0), OsdId(1)] {
            let instance = map.osds[&osd].instance;
            let delta = map.delta(vec![Change::OsdDown { osd, instance }]);
            map.apply(&delta).expect("applies");
            stats.on_map(&map);
            let begun = map.pgs.values().filter(|record| record.since == map.epoch);
            let oldest = begun
                .map(|record| record.activated.interval.min(record.since))
                .min();
            let oldest = oldest.expect("groups of an OSD that goes have another interval");
            assert!(
                stats.clean_to(&map) < oldest,
                "{:?} of {oldest:?}",
                stats.clean_to(&map)
            );
            for beacon in clean(&map) {
                stats.beacon(&map, beacon);
            }
            assert_eq!(
                stats.clean_to(&map),
                map.epoch,
                "as soon as they are clean again"
            );
        }
    }
}
