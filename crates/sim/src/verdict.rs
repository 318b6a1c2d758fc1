//! What must be true after all faults have ended and everything is clean.

use crate::disk::Disk;
use crate::registers::{register, value_of};
use crate::world::World;
use bytes::Bytes;
use nacre_history::record::Outcome;
use nacre_history::{Kind, Record};
use nacre_osd::key;
use nacre_store::{ObjectKey, ObjectStat, Read, ReadError, ReadReply};
use nacre_types::{ObjectId, OsdId, PgId, SnapId, Version};
use nacre_wire::Wire;
use nacre_wire::msg::snap::SnapSet;
use std::collections::BTreeMap;
use std::ops::Bound;

/// One replica of an object: attributes, omap, and data unless it is damaged.
type Copy = (ObjectStat, BTreeMap<Bytes, Bytes>, Option<Vec<u8>>);

/// Whether two replicas are the same as far as they can be read.
fn same(a: &Copy, b: &Copy) -> bool {
    a.0 == b.0 && a.1 == b.1 && a.2.as_ref().zip(b.2.as_ref()).is_none_or(|(a, b)| a == b)
}

fn ask(disk: &mut Disk, read: Read) -> ReadReply {
    disk.ask(read)
        .unwrap_or_else(|why| panic!("what was repaired cannot be read: {why:?}"))
}

/// An object's whole omap.
fn omap(disk: &mut Disk, object: ObjectKey) -> BTreeMap<Bytes, Bytes> {
    let all = Read::Omap {
        object,
        from: Bound::Unbounded,
        to: None,
        limit_entries: usize::MAX,
        limit_bytes: usize::MAX,
    };
    let ReadReply::Omap { entries, .. } = ask(disk, all) else {
        panic!("an omap is answered with an omap")
    };
    entries.into_iter().collect()
}

/// An object as clients see it: a live object kept only for its clones does not exist.
fn live(disk: &mut Disk, object: &ObjectKey) -> Option<ObjectStat> {
    let stat = match disk.ask(Read::Stat(object.clone())) {
        Ok(ReadReply::Stat(stat)) => stat?,
        Err(ReadError::NotFound) => return None,
        other => panic!("a look at {object:?} is answered with {other:?}"),
    };
    let set = stat
        .attrs
        .get(&b"s"[..])
        .map(|set| SnapSet::from_bytes(set).expect("what was stored decodes"));
    (!set.is_some_and(|set| set.whiteout)).then_some(stat)
}

/// Everything that a disk has of a PG.
fn contents(disk: &mut Disk, pg: PgId, pg_num: u32) -> BTreeMap<bytes::Bytes, Copy> {
    let (from, to) = key::range(pg.seed, pg_num);
    let collection = key::collection(pg.pool, pg.shard);
    let ReadReply::List { keys, .. } = ask(
        disk,
        Read::List {
            collection,
            from,
            to,
            limit: usize::MAX,
        },
    ) else {
        panic!("a listing is answered with a listing")
    };
    let mut copies = BTreeMap::new();
    for position in keys {
        let object = ObjectKey::new(collection, position.clone());
        let ReadReply::Stat(Some(stat)) = ask(disk, Read::Stat(object.clone())) else {
            panic!("listed but absent")
        };
        let omap = omap(disk, object.clone());
        let data = match disk.ask(Read::Data {
            object,
            offset: 0,
            length: stat.size,
        }) {
            Ok(ReadReply::Data(data)) => Some(data.concat()),
            Err(ReadError::Corrupt {
                expected,
                found,
                offset,
            }) if expected == !found => {
                panic!(
                    "{pg}: {position:?} lost what it had at {offset} when a part of that block was overwritten, and nobody repairs it"
                )
            }
            // Damage that was never read was never repaired: that needs scrub.
            Err(ReadError::Corrupt { .. } | ReadError::Device { .. }) if disk.rotten => None,
            other => panic!("data is answered with {other:?}"),
        };
        copies.insert(position, (stat, omap, data));
    }
    copies
}

/// Whether the cluster fails to heal only because of objects whose only replica of the newest
/// version is corrupt: that version was never acknowledged to a client, and which older one to keep
/// is an operator's decision, which comes with scrub (simulator, seed 2668). The damage is verified
/// on the disk.
pub fn wants_an_operators_word(world: &mut World) -> bool {
    let stuck = world.unclean_groups();
    let mut lost: Vec<(PgId, OsdId, ObjectId)> = Vec::new();
    for (pg, acting) in &stuck {
        let of_group: Vec<_> = acting
            .iter()
            .flat_map(|osd| {
                world
                    .lost_of(*osd, *pg)
                    .into_iter()
                    .map(|(object, at)| (*osd, object, at))
            })
            .collect();
        for (osd, object, version) in &of_group {
            let misses = |other: &OsdId| world.needs_of(*other, *pg, object) == Some(*version);
            if !acting.iter().filter(|other| *other != osd).all(misses) {
                return false;
            }
        }
        if of_group.is_empty() && !misses_what_rotted(world, *pg, acting) {
            return false;
        }
        lost.extend(
            of_group
                .into_iter()
                .map(|(osd, object, _)| (*pg, osd, object)),
        );
    }
    let is_damaged = |(pg, osd, object): (PgId, OsdId, ObjectId)| {
        let disk = world.disk(osd);
        let object = key::store_key(pg, &object);
        let Ok(ReadReply::Stat(Some(stat))) = disk.ask(Read::Stat(object.clone())) else {
            return false;
        };
        let read = disk.ask(Read::Data {
            object,
            offset: 0,
            length: stat.size,
        });
        disk.rotten
            && matches!(
                read,
                Err(ReadError::Corrupt { .. } | ReadError::Device { .. })
            )
    };
    !stuck.is_empty() && lost.into_iter().all(is_damaged)
}

/// Whether the PG fails to heal because of objects that all its acting members lack at a version of
/// which one replica is corrupt, or because of clones of them, which shared its blocks. The OSD
/// with that replica may have forgotten it when it started over (simulator, seed 1121).
fn misses_what_rotted(world: &World, pg: PgId, acting: &[OsdId]) -> bool {
    let Some((first, others)) = acting.split_first() else {
        return false;
    };
    let missed = world.missed_by(*first, pg);
    let rotted = |(object, need): (&ObjectId, &Version)| {
        let live = |object: &ObjectId| ObjectId {
            snapshot: SnapId::HEAD,
            ..object.clone()
        };
        let is_clone = object.snapshot != SnapId::HEAD;
        let mut of_name = world
            .rotted
            .iter()
            .filter(|(other, _)| live(other) == live(object));
        of_name.any(|(other, at)| (other == object && at == need) || (is_clone && at >= need))
    };
    !missed.is_empty()
        && others.iter().all(|osd| world.missed_by(*osd, pg) == missed)
        && missed.iter().all(rotted)
}

/// Every clone that a member has of a PG is in its index of clones: a clone that is not would never
/// be trimmed.
fn clones_are_indexed(disk: &mut Disk, (pg, osd): (PgId, OsdId), copies: &BTreeMap<Bytes, Copy>) {
    let objects = copies
        .keys()
        .map(|position| (position, key::object_at(position).expect("a position")));
    let mut clones = objects
        .filter(|(_, object)| object.snapshot != SnapId::HEAD)
        .peekable();
    if clones.peek().is_none() {
        return;
    }
    let index = omap(disk, key::clones_key(key::collection(pg.pool, pg.shard)));
    for (position, clone) in clones {
        assert!(
            index.contains_key(position),
            "{pg}: {osd} has {clone}, and its index of clones does not"
        );
    }
}

/// All replicas of every PG are identical.
///
/// # Panics
/// When they are not: that is the finding.
pub fn copies_agree(world: &mut World) {
    let groups: Vec<(PgId, Vec<OsdId>, u32)> = {
        let map = world.ledger.map().expect("a clean cluster has a map");
        map.pgs
            .iter()
            .map(|(pg, record)| (*pg, record.acting.clone(), map.pools[&pg.pool].pg_num))
            .collect()
    };
    for (pg, acting, pg_num) in groups {
        let mut first: Option<(OsdId, BTreeMap<bytes::Bytes, Copy>)> = None;
        for osd in acting {
            let copy = contents(world.disk(osd), pg, pg_num);
            clones_are_indexed(world.disk(osd), (pg, osd), &copy);
            match &first {
                None => first = Some((osd, copy)),
                Some((other, expected)) => {
                    for (position, object) in expected {
                        let name = key::object_at(position).expect("a position");
                        assert!(
                            copy.contains_key(position),
                            "{pg}: {name} is on {other} and not on {osd}"
                        );
                        assert!(
                            same(&copy[position], object),
                            "{pg}: {name} differs between {other} and {osd}"
                        );
                    }
                    let extra = copy
                        .keys()
                        .find(|position| !expected.contains_key(*position));
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

/// Oracle: any survivor. Each replica alone must have everything acknowledged: what its store has
/// of every register is added to the history as a read, as if all other replicas were lost.
///
/// # Panics
/// When the content is not a valid value.
pub fn any_survivor(world: &mut World) {
    let map = world
        .ledger
        .map()
        .expect("a clean cluster has a map")
        .clone();
    let now = world.now();
    let Some((pool_id, pool)) = map.pool_named(&crate::world::POOL.into()) else {
        return;
    };
    let mut reader = 2_000_000_000;
    for key in 0..world.plan.keys {
        let object = register(key);
        let seed = key::seed(key::hash(&object), pool.pg_num);
        let pg = PgId::replicated(pool_id, seed);
        for osd in map.pgs[&pg].acting.clone() {
            let store_key = key::store_key(pg, &object);
            let value = match live(world.disk(osd), &store_key) {
                None => None,
                Some(stat) => match world.disk(osd).ask(Read::Data {
                    object: store_key,
                    offset: 0,
                    length: stat.size,
                }) {
                    Ok(ReadReply::Data(data)) => Some(
                        value_of(&data.concat())
                            .unwrap_or_else(|why| panic!("{osd} has {object} as {why}")),
                    ),
                    Err(_) if world.disk(osd).rotten => continue,
                    other => panic!("data is answered with {other:?}"),
                },
            };
            reader += 1;
            world.records.registers.history.push(Record {
                client: reader,
                op: Kind::Read,
                key: key.to_string(),
                value: None,
                expect: None,
                invoke_ns: now,
                return_ns: Some(now + 1),
                result: Some(Outcome::Value(value)),
                unknown: false,
                fail: false,
            });
        }
    }
}

/// Each replica alone has every acknowledged update of every stream.
///
/// # Panics
/// When it does not.
pub fn streams_survive(world: &mut World) {
    let map = world
        .ledger
        .map()
        .expect("a clean cluster has a map")
        .clone();
    let Some((pool_id, pool)) = map.pool_named(&crate::world::POOL.into()) else {
        return;
    };
    let known = world
        .records
        .streams
        .all
        .iter()
        .filter(|stream| stream.is_known());
    let known: Vec<_> = known
        .map(|stream| (stream.object.clone(), stream.last().clone()))
        .collect();
    for (object, expected) in known {
        let pg = PgId::replicated(pool_id, key::seed(key::hash(&object), pool.pg_num));
        for osd in map.pgs[&pg].acting.clone() {
            let disk = world.disk(osd);
            let store_key = key::store_key(pg, &object);
            let Some(stat) = live(disk, &store_key) else {
                assert!(
                    expected.is_none(),
                    "{osd} has no {object}, which is {expected:?}"
                );
                continue;
            };
            let expected = expected
                .as_ref()
                .unwrap_or_else(|| panic!("{osd} has {object}, which was deleted"));
            assert_eq!(
                omap(disk, store_key.clone()),
                expected.omap,
                "the omap of {object} on {osd}"
            );
            match disk.ask(Read::Data {
                object: store_key,
                offset: 0,
                length: stat.size,
            }) {
                Ok(ReadReply::Data(data)) => {
                    assert_eq!(data.concat(), expected.data, "{object} on {osd}")
                }
                Err(_) if disk.rotten => {}
                other => panic!("data is answered with {other:?}"),
            }
        }
    }
}

/// Every clone is listed by the live object of its name and preserves an existing snapshot;
/// whiteouts exist only for clones.
///
/// # Panics
/// When that is not so.
pub fn clones_are_wanted(world: &mut World) {
    let map = world
        .ledger
        .map()
        .expect("a clean cluster has a map")
        .clone();
    for (pg, record) in &map.pgs {
        let pool = &map.pools[&pg.pool];
        let osd = *record.acting.first().expect("a clean group is served");
        let mut wanted: BTreeMap<ObjectId, u64> = BTreeMap::new();
        let mut found: BTreeMap<ObjectId, u64> = BTreeMap::new();
        for (position, (stat, ..)) in contents(world.disk(osd), *pg, pool.pg_num) {
            let object = key::object_at(&position).expect("a position");
            if object.snapshot != SnapId::HEAD {
                found.insert(object, stat.size);
                continue;
            }
            let Some(set) = stat.attrs.get(&b"s"[..]) else {
                continue;
            };
            let set = SnapSet::from_bytes(set).expect("what was stored decodes");
            assert!(
                !set.whiteout || !set.clones.is_empty(),
                "{pg}: {object} is there for nobody"
            );
            for clone in set.clones {
                let live = clone.snaps.iter().all(|snap| pool.snaps.is_live(*snap));
                assert!(
                    live && !clone.snaps.is_empty(),
                    "{pg}: {object} keeps {clone:?}"
                );
                wanted.insert(
                    ObjectId {
                        snapshot: clone.id,
                        ..object.clone()
                    },
                    clone.size,
                );
            }
        }
        assert_eq!(
            found, wanted,
            "{pg}: clones that are there, and those that live objects name"
        );
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

/// What an OSD keeps for pending answers of its store is bounded by the pending requests: an entry
/// that is never removed keeps all later ones (`./x show growth` found 200 B per update, for ever).
pub(crate) fn nothing_piles_up(world: &World) {
    for osd in world.processes.values().filter_map(|process| process.osd()) {
        let (pending, most) = (osd.pending_events(), 512);
        assert!(
            pending <= most,
            "{} keeps {pending} answers of its store, though all is well",
            osd.id()
        );
    }
}

/// A monitor that gets another's snapshot has the same state as that monitor, including everything
/// counted in addition.
pub(crate) fn snapshots_are_whole(world: &World) {
    let mons = world.processes.values().filter_map(|process| process.mon());
    mons.filter_map(|mon| mon.state())
        .for_each(nacre_mon::state::State::check_image);
}
