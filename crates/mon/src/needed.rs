//! OSDs without which a placement group stalls: if one of two must be kept down, prefer one that is
//! not needed.

use nacre_types::{OsdId, PgId};
use nacre_wire::map::ClusterMap;
use std::collections::BTreeMap;

/// For each PG, the number of up OSDs among the members of its last activation and among CRUSH's
/// choice. Built by one pass over all PGs of the map.
#[derive(Debug)]
pub struct Needs<'a> {
    map: &'a ClusterMap,
    /// The PGs of each OSD.
    groups: BTreeMap<OsdId, Vec<PgId>>,
    left: BTreeMap<PgId, Left>,
    gone: Vec<OsdId>,
}

#[derive(Debug)]
struct Left {
    members: usize,
    raw: usize,
    min_size: usize,
}

impl<'a> Needs<'a> {
    /// With the up OSDs of the map.
    pub fn of(map: &'a ClusterMap) -> Self {
        let mut needs = Self {
            map,
            groups: BTreeMap::new(),
            left: BTreeMap::new(),
            gone: Vec::new(),
        };
        let up = |osds: &[OsdId]| {
            osds.iter()
                .filter(|osd| map.up_osd(**osd).is_some())
                .count()
        };
        for (pg, record) in &map.pgs {
            let members = &record.activated.members;
            let others = record.raw.iter().filter(|osd| !members.contains(osd));
            for osd in members.iter().chain(others) {
                needs.groups.entry(*osd).or_default().push(*pg);
            }
            let min_size = map
                .pools
                .get(&pg.pool)
                .map_or(1, |pool| pool.min_size.into());
            needs.left.insert(
                *pg,
                Left {
                    members: up(members),
                    raw: up(&record.raw),
                    min_size,
                },
            );
        }
        needs
    }

    fn is_up(&self, osd: OsdId) -> bool {
        !self.gone.contains(&osd) && self.map.up_osd(osd).is_some()
    }

    /// One more OSD is about to be marked down.
    pub fn take(&mut self, osd: OsdId) {
        if !self.is_up(osd) {
            return;
        }
        for pg in self.groups.get(&osd).into_iter().flatten() {
            let (record, left) = (
                &self.map.pgs[pg],
                self.left.get_mut(pg).expect("every group"),
            );
            left.members -= usize::from(record.activated.members.contains(&osd));
            left.raw -= usize::from(record.raw.contains(&osd));
        }
        self.gone.push(osd);
    }

    /// Whether some PG could not serve without this OSD: no other up OSD took part in its last
    /// activation, or too few of CRUSH's choice are left for its pool's `min_size`.
    pub fn is_needed(&self, osd: OsdId) -> bool {
        let own = usize::from(self.is_up(osd));
        self.groups.get(&osd).into_iter().flatten().any(|pg| {
            let (record, left) = (&self.map.pgs[pg], &self.left[pg]);
            record.activated.members.contains(&osd) && left.members == own
                || record.raw.contains(&osd) && left.raw - own < left.min_size
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{map_with_osds, with_pool};
    use nacre_wire::map::Activation;

    #[test]
    fn needed_are_the_last_that_know_and_the_last_that_make_it_enough() {
        let mut map = with_pool(map_with_osds(4), 1);
        let (pg, record) = map.pgs.iter_mut().next().expect("one group");
        record.raw = vec![OsdId(0), OsdId(1), OsdId(2)];
        record.activated = Activation {
            members: vec![OsdId(0), OsdId(3)],
            ..record.activated.clone()
        };
        assert_eq!(map.pools[&pg.pool].min_size, 2);
        let needed = |map: &ClusterMap, gone: &[u32]| -> Vec<u32> {
            let mut needs = Needs::of(map);
            gone.iter().for_each(|osd| needs.take(OsdId(*osd)));
            (0..4).filter(|osd| needs.is_needed(OsdId(*osd))).collect()
        };
        assert_eq!(needed(&map, &[]), [0; 0]);
        assert_eq!(needed(&map, &[3]), [0], "nobody else took part");
        assert_eq!(needed(&map, &[1]), [0, 2], "two have to be left");
        map.osds.get_mut(&OsdId(3)).expect("exists").up = false;
        assert_eq!(needed(&map, &[]), [0]);
        assert_eq!(needed(&map, &[0]), [0, 1, 2, 3], "itself too");
    }
}
