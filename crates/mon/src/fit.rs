//! Whether the other OSDs have space for the data of a lost OSD.
//!
//! The data of an OSD that is out are copied to the others, by weight: each gets a share in
//! proportion to its size. If that would fill one of them beyond `mon.backfill_full_ratio`, taking
//! it out gains nothing: redundancy would not be restored, and writes would stop as well.
//!
//! ```text
//!   fullest of the others + lost bytes / bytes of the others  >  mon.backfill_full_ratio   ─▶  does not fit
//! ```
//! Several lost OSDs are judged one after the other, each together with pending copies: the data of
//! those already accepted, and replicas missing for other reasons. (A host with three OSDs died:
//! each alone fitted, all three were taken out, and their data filled the others.)
//!
//! Unlike Ceph, which takes OSDs out and then stops at `backfillfull`. The figures come from
//! beacons. For an OSD without figures, the PGs that miss a replica give an estimate.

use nacre_types::OsdId;
use nacre_wire::map::{ClusterMap, OsdInfo, Weight};

use crate::options;
use crate::stats::Stats;

/// OSDs that would take a lost one's data.
struct Takers {
    /// Ascending: total and used bytes.
    osds: Vec<(OsdId, u64, u64)>,
    total: u128,
    /// The fullest two, in millionths.
    fullest: [(u64, Option<OsdId>); 2],
}

impl Takers {
    fn of(map: &ClusterMap, stats: &Stats) -> Self {
        let takes = |osd: &OsdId| {
            map.up_osd(*osd)
                .is_some_and(|info| info.weight != Weight::OUT)
        };
        let known = stats
            .osds()
            .filter(|(osd, stat)| takes(osd) && stat.total > 0);
        let osds: Vec<(OsdId, u64, u64)> = known
            .map(|(osd, stat)| (osd, stat.total, stat.used))
            .collect();
        let mut fullest = [(0, None); 2];
        for (osd, total, used) in &osds {
            let ratio = u64::try_from(u128::from(*used) * 1_000_000 / u128::from(*total))
                .unwrap_or(u64::MAX);
            if ratio > fullest[0].0 || fullest[0].1.is_none() {
                fullest = [(ratio, Some(*osd)), fullest[0]];
            } else if ratio > fullest[1].0 || fullest[1].1.is_none() {
                fullest[1] = (ratio, Some(*osd));
            }
        }
        let total = osds.iter().map(|(_, total, _)| u128::from(*total)).sum();
        Self {
            osds,
            total,
            fullest,
        }
    }

    fn fits(&self, map: &ClusterMap, lost: OsdId, bytes: u64) -> bool {
        let place = self.osds.binary_search_by_key(&lost, |(osd, ..)| *osd);
        let own = place.map_or(0, |place| u128::from(self.osds[place].1));
        let (others, room) = (self.osds.len() - usize::from(own > 0), self.total - own);
        // With fewer OSDs than replicas there is no target: no data move.
        let moves = map
            .pools
            .values()
            .any(|pool| usize::from(pool.size) <= others);
        if !moves || bytes == 0 || room == 0 {
            return true;
        }
        let fullest = self
            .fullest
            .iter()
            .find(|(_, osd)| *osd != Some(lost))
            .map_or(0, |(ratio, _)| *ratio);
        let share = u64::try_from(u128::from(bytes) * 1_000_000 / room).unwrap_or(u64::MAX);
        fullest.saturating_add(share) <= options::millionths(map, "mon.backfill_full_ratio")
    }
}

/// Data of OSDs that are down, and data being copied.
struct Lost {
    /// Share of the PGs' missing data for each OSD that is down and in, and has no figures.
    share: u64,
    /// Bytes being copied, or to be copied, for other reasons than the OSDs that are down and in.
    moving: u64,
}

impl Lost {
    fn of(map: &ClusterMap, stats: &Stats) -> Self {
        let (mut absent, mut copies, mut all_said) = (0_u64, 0_u64, true);
        for (pg, record) in &map.pgs {
            let less = usize::from(map.pools[&pg.pool].size).saturating_sub(record.acting.len());
            let Some(report) = stats.pg(*pg) else {
                all_said = false;
                continue;
            };
            all_said &= report.interval == record.since;
            absent = absent.saturating_add(report.bytes.saturating_mul(less as u64));
            let missing = u128::from(report.bytes) * u128::from(report.degraded)
                / u128::from(report.objects.max(1));
            copies = copies.saturating_add(u64::try_from(missing).unwrap_or(u64::MAX));
        }
        let down = || map.osds.iter().filter(|(_, info)| !info.up);
        let inside = || down().filter(|(_, info)| info.weight != Weight::OUT);
        let mut lost = Self {
            share: absent / inside().count().max(1) as u64,
            moving: 0,
        };
        let held = |(osd, _): (&OsdId, &OsdInfo)| lost.held(stats, *osd);
        lost.moving = if all_said {
            copies.saturating_sub(inside().map(held).sum())
        } else {
            // For OSDs that were just taken out the remaining data are not reported yet.
            down()
                .filter(|(_, info)| info.weight_before_auto_out.is_some())
                .map(held)
                .sum()
        };
        lost
    }

    /// Bytes of an OSD, as last reported, or else estimated.
    fn held(&self, stats: &Stats, osd: OsdId) -> u64 {
        stats.osd(osd).map_or(self.share, |stat| stat.used)
    }
}

/// Splits these OSDs, which are down: those whose data fit on the others, judged one after the
/// other, and the rest.
#[must_use]
pub fn by_room(map: &ClusterMap, stats: &Stats, osds: Vec<OsdId>) -> (Vec<OsdId>, Vec<OsdId>) {
    if osds.is_empty() {
        return (osds, Vec::new());
    }
    let (takers, lost) = (Takers::of(map, stats), Lost::of(map, stats));
    let mut moving = lost.moving;
    osds.into_iter().partition(|osd| {
        let bytes = lost.held(stats, *osd);
        let fits = takers.fits(
            map,
            *osd,
            if bytes == 0 {
                0
            } else {
                moving.saturating_add(bytes)
            },
        );
        moving += if fits { bytes } else { 0 };
        fits
    })
}

/// OSDs whose data would not fit on the others.
#[must_use]
pub fn would_not_fit(map: &ClusterMap, stats: &Stats) -> Vec<OsdId> {
    let takers = Takers::of(map, stats);
    let short = takers
        .osds
        .iter()
        .filter(|(osd, _, used)| !takers.fits(map, *osd, *used));
    short.map(|(osd, ..)| *osd).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{map_with_osds, with_pool};
    use nacre_types::Instance;
    use nacre_wire::map::Change;
    use nacre_wire::msg::monitor::{Beacon, PgReport};

    fn fits_elsewhere(map: &ClusterMap, stats: &Stats, osd: OsdId) -> bool {
        by_room(map, stats, vec![osd]).1.is_empty()
    }

    /// A host with three OSDs died, of ten that were 70 % full. Each alone fitted on the others, so
    /// all three were taken out in one second, and recovery filled the seven.
    #[test]
    fn what_several_held_has_to_fit_together() {
        let mut map = with_pool(map_with_osds(10), 8);
        let stats = used(&map, &[70; 10]);
        let lost: Vec<OsdId> = [7, 8, 9].map(OsdId).to_vec();
        let down = lost
            .iter()
            .map(|osd| Change::OsdDown {
                osd: *osd,
                instance: map.osds[osd].instance,
            })
            .collect();
        map.apply(&map.delta(down)).expect("applies");
        // A tenth more each for one, two tenths for two.
        assert_eq!(
            by_room(&map, &stats, lost.clone()),
            (vec![OsdId(7), OsdId(8)], vec![OsdId(9)])
        );
        // They become due one after the other, and the rest to copy of the first is not reported
        // yet.
        for (osd, fits) in [(7, true), (8, true), (9, false)] {
            assert_eq!(fits_elsewhere(&map, &stats, OsdId(osd)), fits);
            if fits {
                let out = Change::OsdWeight {
                    osd: OsdId(osd),
                    weight: Weight::OUT,
                    automatic: true,
                };
                map.apply(&map.delta(vec![out])).expect("applies");
            }
        }
        // All is copied, and included in the others' usage.
        let mut stats = used(&map, &[80; 7]);
        for (pg, record) in &map.pgs {
            let report = PgReport {
                pg: *pg,
                interval: record.since,
                bytes: 1,
                objects: 1,
                ..PgReport::default()
            };
            let osd = record.primary().expect("it is served");
            assert!(stats.beacon(
                &map,
                Beacon {
                    pgs: vec![report],
                    all: false,
                    ..beacon(osd, 800)
                }
            ));
        }
        let said = Lost::of(&map, &stats);
        assert_eq!(said.moving, 0);
    }

    fn beacon(osd: OsdId, used: u64) -> Beacon {
        let (pgs, slow, device, space) = (Vec::new(), Vec::new(), String::new(), String::new());
        Beacon {
            osd,
            instance: Instance(5),
            total: 1000,
            used,
            pgs,
            all: true,
            slow,
            device,
            space,
            no_room: false,
        }
    }
    fn used(map: &ClusterMap, percent: &[u64]) -> Stats {
        let mut stats = Stats::default();
        for (osd, used) in (0..).map(OsdId).zip(percent) {
            assert!(stats.beacon(map, beacon(osd, used * 10)));
        }
        stats
    }

    // F24: 78 % full, HEALTH_OK; one OSD died, and recovery filled the others.
    #[test]
    fn four_osds_at_78_percent_have_no_room_for_one_of_them() {
        let map = with_pool(map_with_osds(4), 8);
        assert_eq!(
            would_not_fit(&map, &used(&map, &[78, 78, 78, 78])).len(),
            4,
            "26 % more each"
        );
        assert!(
            would_not_fit(&map, &used(&map, &[60, 60, 60, 60])).is_empty(),
            "20 % more each"
        );
        // 64 % and a fifth of 100 % more.
        assert_eq!(
            would_not_fit(&map, &used(&map, &[90, 64, 64, 64])),
            [OsdId(0), OsdId(1), OsdId(2), OsdId(3)]
        );
        assert_eq!(
            would_not_fit(&map, &used(&map, &[80, 50, 60, 60])),
            [OsdId(1), OsdId(2), OsdId(3)]
        );
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

    /// OSDs that are down and never reported figures: the PGs that miss a replica show how much
    /// they held, all together.
    #[test]
    fn what_nobody_said_is_reckoned_from_the_groups_that_miss_a_replica() {
        for lost in [&[4][..], &[3, 4]] {
            let mut map = with_pool(map_with_osds(5), 8);
            let known = 5 - lost.len();
            let mut stats = used(&map, &vec![50; known]);
            let down = lost
                .iter()
                .map(|osd| Change::OsdDown {
                    osd: OsdId(*osd),
                    instance: Instance(5),
                })
                .collect();
            map.apply(&map.delta(down)).expect("applies");
            let missing: u64 = map
                .pgs
                .values()
                .map(|record| 3 - record.acting.len() as u64)
                .sum();
            assert!(missing > 0, "they were members of some groups");
            // The others, of 1,000 bytes each, may get 40 % more; each of the lost held its part.
            let most = known as u64 * 400 * lost.len() as u64 / missing;
            for (bytes, fits) in [(most, true), (most + 2, false)] {
                for (pg, record) in &map.pgs {
                    let osd = record.primary().expect("three are left at least");
                    let report = PgReport {
                        pg: *pg,
                        interval: record.since,
                        bytes,
                        ..PgReport::default()
                    };
                    assert!(stats.beacon(
                        &map,
                        Beacon {
                            pgs: vec![report],
                            all: false,
                            ..beacon(osd, 500)
                        }
                    ));
                }
                assert_eq!(
                    fits_elsewhere(&map, &stats, OsdId(4)),
                    fits,
                    "{lost:?}, {bytes} bytes in a group"
                );
            }
            assert!(
                fits_elsewhere(&map, &Stats::default(), OsdId(4)),
                "nothing is known at all"
            );
        }
    }

    #[test]
    fn an_osd_that_is_out_takes_nothing_and_one_that_is_empty_loses_nothing() {
        let mut map = with_pool(map_with_osds(5), 8);
        let stats = used(&map, &[70, 70, 70, 70, 0]);
        assert!(
            would_not_fit(&map, &stats).is_empty(),
            "the empty one has room"
        );
        map.osds.get_mut(&OsdId(4)).expect("exists").weight = Weight::OUT;
        assert_eq!(
            would_not_fit(&map, &stats),
            [OsdId(0), OsdId(1), OsdId(2), OsdId(3)]
        );
        let stats = used(&map, &[95, 95, 95, 0]);
        assert!(
            !would_not_fit(&map, &stats).contains(&OsdId(3)),
            "there is nothing to copy"
        );
    }

    /// The fullest of the others decides, also when the lost one is fuller, and at any position in
    /// the list.
    #[test]
    fn the_fullest_of_the_others_decides() {
        let map = with_pool(map_with_osds(4), 8);
        for at in 0..4 {
            for second in (0..4).filter(|second| *second != at) {
                // The lost one's share is a third of what it holds.
                for (lost, full, fits) in [
                    (60, 75, false),
                    (60, 69, true),
                    (81, 64, false),
                    (81, 62, true),
                ] {
                    let mut percent = [10, 10, 10, 10];
                    (percent[at], percent[second]) = (lost, full);
                    let said = fits_elsewhere(&map, &used(&map, &percent), OsdId(at as u32));
                    assert_eq!(said, fits, "{lost} % lost at {at}, {full} % at {second}");
                }
            }
        }
    }
}
