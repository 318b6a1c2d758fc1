//! Map changes: one that decodes encodes to the same bytes, and applies to a map of the same
//! history without breaking an invariant, with the same result twice.
//!
//! The fuzzer cannot guess a digest, so epoch and predecessor are set to what the map expects: a
//! hostile monitor would do the same.

use nacre_crush::text;
use nacre_types::{ClusterId, Instance, OsdId, PoolId};
use nacre_wire::map::{Address, Change, CrushSection, Pool};
use nacre_wire::{ClusterMap, MapDelta, Wire};
use std::sync::OnceLock;

/// Three hosts with a device each, and a rule over hosts.
const HIERARCHY: &str = "\
tunable choose_total_tries 20
device 0 osd.0
device 1 osd.1
device 2 osd.2
type 0 osd
type 1 host
type 2 root
host a { id -1 alg straw2 item osd.0 weight 1 }
host b { id -2 alg straw2 item osd.1 weight 1 }
host c { id -3 alg straw2 item osd.2 weight 1 }
root default { id -4 alg straw2 item a item b item c }
rule replicated { id 0 type replicated min_size 1 max_size 10 step take default step chooseleaf firstn 0 type host step emit }
";

/// A small cluster: three OSDs, of which two are up, and a pool.
pub fn sample() -> &'static ClusterMap {
    static MAP: OnceLock<ClusterMap> = OnceLock::new();
    MAP.get_or_init(|| {
        let crush = CrushSection::parse(HIERARCHY).expect("a well-formed hierarchy");
        let mut map = ClusterMap::empty(ClusterId(1), crush);
        let mut changes = Vec::new();
        for osd in 0..3 {
            changes.push(Change::OsdNew {
                osd: OsdId(osd),
                store: u128::from(osd) + 1,
            });
        }
        for osd in 0..2 {
            changes.push(Change::OsdUp {
                osd: OsdId(osd),
                instance: Instance(1),
                address: Address(format!("127.0.0.1:{}", 7000 + osd)),
                store: u128::from(osd) + 1,
                features: 0,
                process: u64::from(osd) + 1,
            });
        }
        let settings = Pool {
            created: map.epoch,
            ..Pool::replicated("data".into(), 3, 2, 4)
        };
        changes.push(Change::PoolSet {
            pool: PoolId(1),
            settings,
        });
        map.apply(&map.delta(changes)).expect("the next delta");
        map.check();
        map
    })
}

/// Whether applying it legally takes long: tens of thousands of PGs, a hundred thousand attempts
/// per replica.
fn is_slow(change: &Change) -> bool {
    match change {
        Change::PoolSet { settings, .. } => settings.pg_num > 256,
        Change::Crush { text } => text::parse(text).is_ok() && text.contains("tries"),
        Change::CrushPatch { hunks } => hunks.iter().any(|hunk| hunk.lines.contains("tries")),
        _ => false,
    }
}

pub fn run(input: &[u8]) {
    let Ok(mut delta) = MapDelta::from_bytes(input) else {
        return;
    };
    let written = delta.to_bytes();
    assert_eq!(
        MapDelta::from_bytes(&written),
        Ok(delta.clone()),
        "written and read back"
    );
    if delta.changes.len() > 64 || delta.changes.iter().any(is_slow) {
        return;
    }
    let mut map = sample().clone();
    delta.epoch = map.epoch.next();
    delta.previous = map.digest;
    let mut other = map.clone();
    map.apply(&delta).expect("it follows");
    map.check();
    other.apply(&delta).expect("it follows");
    assert!(
        map == other,
        "the same map and delta give the same next map"
    );
    assert_eq!(
        ClusterMap::from_bytes(&map.to_bytes()).as_ref(),
        Ok(&map),
        "the map is written and read back"
    );
    // After any change, a further change applies.
    let down = map.delta(vec![Change::OsdDown {
        osd: OsdId(0),
        instance: Instance(1),
    }]);
    map.apply(&down).expect("the next delta");
    map.check();
}
