//! Whether the others have room for what a lost OSD held.
//!
//! An OSD that is out has its data copied to the others, by weight: each gets a share in proportion to its size. Where that would fill one of them beyond
//! `mon.backfill_full_ratio`, nothing is gained by taking it out: redundancy would not come back, and writes would stop besides.
//!
//! ```text
//!   fullest of the others + lost bytes / bytes of the others  >  mon.backfill_full_ratio   ─▶  does not fit
//! ```
//! Unlike Ceph, which takes out and then stops at `backfillfull`. What is known is what beacons said; of an OSD of which nothing is known, the groups that
//! miss a replica say how much it is.

use nacre_types::OsdId;
use nacre_wire::map::{ClusterMap, Weight};

use crate::options;
use crate::stats::Stats;

/// OSDs that would take what another one loses.
struct Takers {
    osds: Vec<(OsdId, u64, u64)>,
    total: u128,
    /// The fullest two, in millionths.
    fullest: [(u64, Option<OsdId>); 2],
}

impl Takers {
    fn of(map: &ClusterMap, stats: &Stats) -> Self {
        let takes = |osd: &OsdId| map.up_osd(*osd).is_some_and(|info| info.weight != Weight::OUT);
        let known = stats.osds().filter(|(osd, stat)| takes(osd) && stat.total > 0);
        let osds: Vec<(OsdId, u64, u64)> = known.map(|(osd, stat)| (osd, stat.total, stat.used)).collect();
        let mut fullest = [(0, None); 2];
        for (osd, total, used) in &osds {
            let ratio = u64::try_from(u128::from(*used) * 1_000_000 / u128::from(*total)).unwrap_or(u64::MAX);
            if ratio > fullest[0].0 || fullest[0].1.is_none() {
                fullest = [(ratio, Some(*osd)), fullest[0]];
            } else if ratio > fullest[1].0 || fullest[1].1.is_none() {
                fullest[1] = (ratio, Some(*osd));
            }
        }
        let total = osds.iter().map(|(_, total, _)| u128::from(*total)).sum();
        Self { osds, total, fullest }
    }

    fn fits(&self, map: &ClusterMap, lost: OsdId, bytes: u64) -> bool {
        let own = self.osds.iter().find(|(osd, ..)| *osd == lost).map_or(0, |(_, total, _)| u128::from(*total));
        let (others, room) = (self.osds.len() - usize::from(own > 0), self.total - own);
        // With fewer OSDs than replicas there is nowhere to copy to: nothing moves.
        let moves = map.pools.values().any(|pool| usize::from(pool.size) <= others);
        if !moves || bytes == 0 || room == 0 {
            return true;
        }
        let fullest = self.fullest.iter().find(|(_, osd)| *osd != Some(lost)).map_or(0, |(ratio, _)| *ratio);
        let share = u64::try_from(u128::from(bytes) * 1_000_000 / room).unwrap_or(u64::MAX);
        fullest.saturating_add(share) <= options::millionths(map, "mon.backfill_full_ratio")
    }
}

/// What an OSD holds, as far as anybody said.
fn held(map: &ClusterMap, stats: &Stats, osd: OsdId) -> u64 {
    if let Some(stat) = stats.osd(osd) {
        return stat.used;
    }
    let lost = map.osds.values().filter(|info| !info.up && info.weight != Weight::OUT).count().max(1);
    let missing = map.pgs.iter().map(|(pg, record)| {
        let less = usize::from(map.pools[&pg.pool].size).saturating_sub(record.acting.len());
        stats.pg(*pg).map_or(0, |report| report.bytes) * less as u64
    });
    missing.sum::<u64>() / lost as u64
}

/// Whether the others have room for what this OSD holds.
#[must_use]
pub fn fits_elsewhere(map: &ClusterMap, stats: &Stats, osd: OsdId) -> bool {
    Takers::of(map, stats).fits(map, osd, held(map, stats, osd))
}

/// OSDs whose loss the others have no room for.
#[must_use]
pub fn would_not_fit(map: &ClusterMap, stats: &Stats) -> Vec<OsdId> {
    let takers = Takers::of(map, stats);
    let short = takers.osds.iter().filter(|(osd, _, used)| !takers.fits(map, *osd, *used));
    short.map(|(osd, ..)| *osd).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{map_with_osds, with_pool};
    use nacre_types::Instance;
    use nacre_wire::msg::monitor::Beacon;

    fn used(map: &ClusterMap, percent: &[u64]) -> Stats {
        let mut stats = Stats::default();
        for (osd, used) in (0..).map(OsdId).zip(percent) {
            let (pgs, slow) = (Vec::new(), Vec::new());
            let (device, space) = (String::new(), String::new());
            let beacon = Beacon {
                osd,
                instance: Instance(5),
                total: 1000,
                used: used * 10,
                pgs,
                all: true,
                slow,
                device,
                space,
            };
            assert!(stats.beacon(map, beacon));
        }
        stats
    }

    // F24: 78 % full, HEALTH_OK; one OSD died, and recovery filled the others.
    #[test]
    fn four_osds_at_78_percent_have_no_room_for_one_of_them() {
        let map = with_pool(map_with_osds(4), 8);
        assert_eq!(would_not_fit(&map, &used(&map, &[78, 78, 78, 78])).len(), 4, "26 % more each");
        assert!(would_not_fit(&map, &used(&map, &[60, 60, 60, 60])).is_empty(), "20 % more each");
        // 64 % and a fifth of 100 % more.
        assert_eq!(would_not_fit(&map, &used(&map, &[90, 64, 64, 64])), [OsdId(0), OsdId(1), OsdId(2), OsdId(3)]);
        assert_eq!(would_not_fit(&map, &used(&map, &[80, 50, 60, 60])), [OsdId(1), OsdId(2), OsdId(3)]);
    }

    #[test]
    fn with_as_many_osds_as_replicas_nothing_moves() {
        let map = with_pool(map_with_osds(3), 8);
        assert!(would_not_fit(&map, &used(&map, &[80, 80, 80])).is_empty());
    }

    #[test]
    fn an_osd_that_is_down_is_counted_by_what_it_said_last() {
        let mut map = with_pool(map_with_osds(4), 8);
        let stats = used(&map, &[78, 78, 78, 78]);
        map.osds.get_mut(&OsdId(3)).expect("exists").up = false;
        assert!(!fits_elsewhere(&map, &stats, OsdId(3)));
        let stats = {
            map.osds.get_mut(&OsdId(3)).expect("exists").up = true;
            let stats = used(&map, &[50, 50, 50, 50]);
            map.osds.get_mut(&OsdId(3)).expect("exists").up = false;
            stats
        };
        assert!(fits_elsewhere(&map, &stats, OsdId(3)));
    }
}
