//! OSDs without which a placement group stands still: whoever has to keep one of two down keeps another down, if it can.

use nacre_types::OsdId;
use nacre_wire::map::{ClusterMap, PgRecord};
use std::collections::BTreeSet;

/// Whether some group could not serve without this OSD, now that `gone` are on their way down too: nobody else who is up took part in its last activation, or
/// too few of those that CRUSH chose are left for its pool's `min_size`. Looks at every group of the map.
pub fn is_needed(map: &ClusterMap, osd: OsdId, gone: &BTreeSet<OsdId>) -> bool {
    let is_up = |other: &OsdId| *other != osd && !gone.contains(other) && map.up_osd(*other).is_some();
    let left = |members: &[OsdId]| members.iter().filter(|other| is_up(other)).count();
    let by_group = |record: &PgRecord, min_size: usize| {
        let members = &record.activated.members;
        members.contains(&osd) && left(members) == 0 || record.raw.contains(&osd) && left(&record.raw) < min_size
    };
    map.pgs.iter().any(|(pg, record)| by_group(record, map.pools.get(&pg.pool).map_or(1, |pool| pool.min_size.into())))
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
        record.activated = Activation { members: vec![OsdId(0), OsdId(3)], ..record.activated.clone() };
        assert_eq!(map.pools[&pg.pool].min_size, 2);
        let needed = |map: &ClusterMap, gone: &[u32]| -> Vec<u32> {
            let gone = gone.iter().copied().map(OsdId).collect();
            (0..4).filter(|osd| is_needed(map, OsdId(*osd), &gone)).collect()
        };
        assert_eq!(needed(&map, &[]), [0; 0]);
        assert_eq!(needed(&map, &[3]), [0], "nobody else took part");
        assert_eq!(needed(&map, &[1]), [0, 2], "two have to be left");
        map.osds.get_mut(&OsdId(3)).expect("exists").up = false;
        assert_eq!(needed(&map, &[]), [0]);
        assert_eq!(needed(&map, &[0]), [0, 1, 2, 3], "itself too");
    }
}
