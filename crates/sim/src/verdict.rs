//! What must be true when all faults have ended and everything is clean.

use crate::disk::Disk;
use crate::world::World;
use nacre_osd::key;
use nacre_store::{ObjectKey, ObjectStat, Read, ReadReply};
use nacre_types::{OsdId, PgId};
use std::collections::BTreeMap;

/// One copy of an object: attributes, data.
type Copy = (ObjectStat, Vec<u8>);

fn ask(disk: &mut Disk, read: Read) -> ReadReply {
    disk.ask(read).unwrap_or_else(|why| panic!("what was repaired cannot be read: {why:?}"))
}

/// Everything that a disk has of a group.
fn contents(disk: &mut Disk, pg: PgId, pg_num: u32) -> BTreeMap<bytes::Bytes, Copy> {
    let (from, to) = key::range(pg.seed, pg_num);
    let collection = key::collection(pg.pool, pg.shard);
    let ReadReply::List { keys, .. } = ask(disk, Read::List { collection, from, to, limit: usize::MAX }) else {
        panic!("a listing is answered with a listing")
    };
    let mut copies = BTreeMap::new();
    for position in keys {
        let object = ObjectKey::new(collection, position.clone());
        let ReadReply::Stat(Some(stat)) = ask(disk, Read::Stat(object.clone())) else { panic!("listed but absent") };
        let ReadReply::Data(data) = ask(disk, Read::Data { object, offset: 0, length: stat.size }) else {
            panic!("data is answered with data")
        };
        copies.insert(position, (stat, data.concat()));
    }
    copies
}

/// All copies of every group are identical.
///
/// # Panics
/// When they are not: that is the finding.
pub fn copies_agree(world: &mut World) {
    let groups: Vec<(PgId, Vec<OsdId>, u32)> = {
        let map = world.ledger.map().expect("a clean cluster has a map");
        map.pgs.iter().map(|(pg, record)| (*pg, record.acting.clone(), map.pools[&pg.pool].pg_num)).collect()
    };
    for (pg, acting, pg_num) in groups {
        let mut first: Option<(OsdId, BTreeMap<bytes::Bytes, Copy>)> = None;
        for osd in acting {
            let copy = contents(world.disk(osd), pg, pg_num);
            match &first {
                None => first = Some((osd, copy)),
                Some((other, expected)) => {
                    for (position, object) in expected {
                        let name = key::object_at(position).expect("a position");
                        assert!(copy.contains_key(position), "{pg}: {name} is on {other} and not on {osd}");
                        assert!(copy[position] == *object, "{pg}: {name} differs between {other} and {osd}");
                    }
                    let extra = copy.keys().find(|position| !expected.contains_key(*position));
                    assert!(
                        extra.is_none(),
                        "{pg}: {osd} has {:?}, {other} has not",
                        extra.and_then(|p| key::object_at(p))
                    );
                }
            }
        }
    }
}

/// The offline check finds nothing on any device.
///
/// # Panics
/// When it does.
pub fn stores_are_sound(world: &World) {
    for (who, process) in &world.processes {
        let findings = process.disk.findings();
        assert!(findings.is_empty(), "{who}: {}", findings.join("; "));
    }
}
