//! Small maps for unit tests.

use nacre_types::{ClusterId, Instance, OsdId, PoolId};
use nacre_wire::map::{Address, Change, ClusterMap, CrushSection, Pool};

use crate::hierarchy::{self, Place, WEIGHT_ONE};

/// A map with OSDs 0..n, up and in, each on its own host.
pub fn map_with_osds(n: usize) -> ClusterMap {
    let mut text = hierarchy::initial();
    let ids: Vec<u32> = (0..).take(n).collect();
    for osd in &ids {
        let place = Place {
            osd: OsdId(*osd),
            class: "hdd".into(),
            weight: WEIGHT_ONE,
            host: format!("host{osd}"),
        };
        text = hierarchy::put(&text, &place);
    }
    let crush = CrushSection::parse(&hierarchy::initial()).expect("parses");
    let mut map = ClusterMap::empty(ClusterId(7), crush);
    let mut changes = vec![Change::Crush { text }];
    for osd in ids {
        let store = 1_000 + u128::from(osd);
        changes.push(Change::OsdNew {
            osd: OsdId(osd),
            store,
        });
        let address = Address(format!("host{osd}:1"));
        changes.push(Change::OsdUp {
            osd: OsdId(osd),
            instance: Instance(5),
            address,
            store,
            features: 0,
            process: u64::from(osd) + 1,
        });
    }
    let delta = map.delta(changes);
    map.apply(&delta).expect("applies");
    map
}

/// The same with pool 1 of `pg_num` PGs, size 3, min_size 2.
pub fn with_pool(mut map: ClusterMap, pg_num: u32) -> ClusterMap {
    let settings = Pool {
        created: map.epoch,
        ..Pool::replicated("data".into(), 3, 2, pg_num)
    };
    let delta = map.delta(vec![Change::PoolSet {
        pool: PoolId(1),
        settings,
    }]);
    map.apply(&delta).expect("applies");
    map
}
