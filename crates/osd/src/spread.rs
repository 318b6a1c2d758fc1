//! The distribution of a map change to every OSD within a few hops, starting at the OSDs that the
//! monitors inform (MAL-73, MAL-E8).
//!
//! ```text
//!  monitors ──▶ root ──▶ 6 others ──▶ 6 others each ──▶ …        120 OSDs: three hops
//! ```
//! The monitors inform two OSDs, each as a root. The OSDs that are up in the new map, in the order
//! of their ids and beginning with the root, form a tree that every OSD can compute: each one
//! passes the change on to its children, once per root. An OSD that is dead, hung or behind costs
//! its part of one tree; the other root's tree is different. OSDs that both trees miss learn of the
//! change from the next frame, because every frame contains an epoch.

use nacre_types::OsdId;
use nacre_wire::ClusterMap;

/// The number of children of one OSD.
const CHILDREN: usize = 6;

/// The OSDs to which `me` passes on a change from the root.
#[must_use]
pub fn children(map: &ClusterMap, root: OsdId, me: OsdId) -> Vec<OsdId> {
    let up: Vec<OsdId> = map
        .osds
        .iter()
        .filter(|(_, info)| info.up)
        .map(|(osd, _)| *osd)
        .collect();
    let (Ok(root), Ok(me)) = (up.binary_search(&root), up.binary_search(&me)) else {
        return Vec::new();
    };
    let place = (me + up.len() - root) % up.len();
    let first = place * CHILDREN + 1;
    (first..(first + CHILDREN).min(up.len()))
        .map(|place| up[(place + root) % up.len()])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::ClusterId;
    use nacre_wire::map::{CrushSection, OsdInfo};
    use std::collections::BTreeMap;

    fn map(osds: u32) -> ClusterMap {
        let mut map = ClusterMap::empty(ClusterId(1), CrushSection::parse("").expect("empty text"));
        // Some are down.
        let info = |osd: u32| OsdInfo {
            up: osd % 7 != 3,
            ..OsdInfo::default()
        };
        map.osds = (0..osds).map(|osd| (OsdId(osd), info(osd))).collect();
        map
    }

    #[test]
    fn everybody_is_told_once_within_a_few_hops_whatever_the_root() {
        for osds in [1, 2, 3, 7, 50, 140] {
            let map = map(osds);
            let up: Vec<OsdId> = map
                .osds
                .iter()
                .filter(|(_, info)| info.up)
                .map(|(osd, _)| *osd)
                .collect();
            for root in &up {
                let mut hops = BTreeMap::from([(*root, 0)]);
                let mut next = vec![*root];
                while let Some(osd) = next.pop() {
                    for child in children(&map, *root, osd) {
                        assert!(
                            hops.insert(child, hops[&osd] + 1).is_none(),
                            "{child} is told twice"
                        );
                        next.push(child);
                    }
                }
                assert_eq!(hops.len(), up.len());
                assert!(
                    hops.values().all(|hops| *hops <= 3),
                    "{osds} OSDs: {hops:?}"
                );
            }
        }
    }

    #[test]
    fn nobody_speaks_for_a_root_that_is_down() {
        assert!(children(&map(20), OsdId(3), OsdId(4)).is_empty());
        assert!(children(&map(20), OsdId(4), OsdId(3)).is_empty());
    }
}
