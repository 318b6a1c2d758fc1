//! Whole maps: one that decodes satisfies the map's invariants, encodes to the same bytes, and
//! accepts a further change.

use nacre_types::{Instance, OsdId};
use nacre_wire::map::Change;
use nacre_wire::{ClusterMap, Wire};

pub fn run(input: &[u8]) {
    let Ok(mut map) = ClusterMap::from_bytes(input) else {
        return;
    };
    map.check();
    let written = map.to_bytes();
    assert_eq!(
        ClusterMap::from_bytes(&written).as_ref(),
        Ok(&map),
        "written and read back"
    );
    if map.epoch.0 == u64::MAX || map.crush.text.contains("tries") {
        return; // an epoch outlives the cluster; a hundred thousand attempts are legal, and too slow to fuzz
    }
    let down = map.osds.iter().map(|(osd, info)| Change::OsdDown {
        osd: *osd,
        instance: info.instance,
    });
    let mut changes: Vec<Change> = down.collect();
    changes.push(Change::OsdNew {
        osd: OsdId(77),
        store: 1,
    });
    changes.push(Change::OsdDown {
        osd: OsdId(77),
        instance: Instance(1),
    });
    map.apply(&map.delta(changes))
        .expect("the map's own next delta");
    map.check();
}
