//! Object keys in the store: their order makes every placement group one contiguous range.
//!
//! ```text
//!  collection   pool (8 bytes, as a number) and shard
//!  key          reversed hash u32 BE | namespace 0 0 | key 0 0 | name 0 0 | snapshot u64 BE | generation u64 BE
//! ```
//! A PG of a pool with any `pg_num` holds the hashes that agree with its seed in their lowest bits;
//! in reversed bit order, those bits come first, so they are a prefix. Splitting a PG therefore
//! moves nothing. A zero byte in a name is written `0 1`, its end `0 0`: names keep their order and
//! none is a prefix of another. Objects of one name follow each other, clones first, the live one
//! last.

use bytes::Bytes;
use nacre_store::{CollectionId, ObjectKey};
use nacre_types::{Generation, Name, ObjectId, PgId, PoolId, Shard, SnapId};

/// The daemon's own collection: one metadata object per placement group, and the map.
pub const META: CollectionId = CollectionId(0);
/// Objects being received.
pub const INCOMING: CollectionId = CollectionId(1);

/// The collection of a pool's objects.
#[must_use]
pub fn collection(pool: PoolId, shard: Shard) -> CollectionId {
    assert!(
        pool.0 > 0 && pool.0 < 1 << 54,
        "pool ids start at 1 and are counted up"
    );
    CollectionId(pool.0 << 8 | u64::from(shard.0))
}

/// The pool and shard of a collection's objects; `None` for the daemon's own.
fn pool_of(collection: CollectionId) -> Option<(PoolId, Shard)> {
    (collection.0 >> 8 > 0).then_some((PoolId(collection.0 >> 8), Shard(collection.0 as u8)))
}

/// The hash that decides an object's placement group.
#[must_use]
pub fn hash(object: &ObjectId) -> u32 {
    nacre_crush::object::object_hash(
        object.namespace.as_bytes(),
        object.key.as_bytes(),
        object.name.as_bytes(),
    )
}

/// The placement group of a hash.
#[must_use]
pub fn seed(hash: u32, pg_num: u32) -> u32 {
    nacre_crush::object::pg_seed(hash, pg_num)
}

/// The length of the part of a position that objects of one name do not share.
pub const NUMBERS_LEN: usize = 16;

/// An object's position in its pool. Listing and backfill use this order.
#[must_use]
pub fn position(object: &ObjectId) -> Bytes {
    let names = [&object.namespace, &object.key, &object.name].map(Name::as_bytes);
    // The final capacity in nearly all cases: then it becomes `Bytes` without a copy.
    let mut out = Vec::with_capacity(
        4 + 3 * 2 + NUMBERS_LEN + names.iter().map(|name| name.len()).sum::<usize>(),
    );
    out.extend_from_slice(&hash(object).reverse_bits().to_be_bytes());
    for name in names {
        if name.contains(&0) {
            for byte in name {
                out.push(*byte);
                if *byte == 0 {
                    out.push(1);
                }
            }
        } else {
            out.extend_from_slice(name);
        }
        out.extend_from_slice(&[0, 0]);
    }
    out.extend_from_slice(&object.snapshot.0.to_be_bytes());
    out.extend_from_slice(&object.generation.0.to_be_bytes());
    out.into()
}

/// Whether an object is before a backfill cursor; without a cursor, every object is.
#[must_use]
pub fn is_before(object: &ObjectId, cursor: Option<&Bytes>) -> bool {
    cursor.is_none_or(|cursor| position(object)[..] < cursor[..])
}

/// The object at a position; `None` if it is not one.
#[must_use]
pub fn object_at(position: &[u8]) -> Option<ObjectId> {
    let mut rest = position.get(4..)?;
    let mut name = || {
        let mut out = Vec::new();
        loop {
            match rest {
                [0, 0, tail @ ..] => {
                    rest = tail;
                    return Some(Name::copy(&out));
                }
                [0, 1, tail @ ..] => {
                    out.push(0);
                    rest = tail;
                }
                [0, ..] | [] => return None,
                [byte, tail @ ..] => {
                    out.push(*byte);
                    rest = tail;
                }
            }
        }
    };
    let (namespace, key, name) = (name()?, name()?, name()?);
    let numbers: &[u8; 16] = rest.try_into().ok()?;
    let number =
        |at: usize| u64::from_be_bytes(numbers[at..at + 8].try_into().expect("eight bytes"));
    Some(ObjectId {
        namespace,
        key,
        name,
        snapshot: SnapId(number(0)),
        generation: Generation(number(8)),
    })
}

/// A placement group's positions: from the first, up to but excluding the second; `None` is the
/// pool's end.
#[must_use]
pub fn range(seed: u32, pg_num: u32) -> (Bytes, Option<Bytes>) {
    let bits = mask_bits(seed, pg_num);
    let first = seed.reverse_bits();
    let end = if bits == 0 {
        None
    } else {
        first.checked_add(1 << (32 - bits))
    };
    (
        Bytes::copy_from_slice(&first.to_be_bytes()),
        end.map(|end| Bytes::copy_from_slice(&end.to_be_bytes())),
    )
}

/// The number of low bits of a hash that identify the PG.
fn mask_bits(seed: u32, pg_num: u32) -> u32 {
    let bits = pg_num.next_power_of_two().trailing_zeros();
    // If `pg_num` is no power of two, a PG whose upper twin does not exist yet holds both halves.
    let alone = bits > 0 && u64::from(seed) + (1 << (bits - 1)) >= u64::from(pg_num);
    if alone && seed < 1 << (bits - 1) {
        bits - 1
    } else {
        bits
    }
}

/// The store's key of an object.
#[must_use]
pub fn store_key(pg: PgId, object: &ObjectId) -> ObjectKey {
    ObjectKey::new(collection(pg.pool, pg.shard), position(object))
}

/// The store's key of an object being received.
#[must_use]
pub fn incoming_key(pg: PgId, object: &ObjectId) -> ObjectKey {
    let mut key = pg.pool.0.to_be_bytes().to_vec();
    key.push(pg.shard.0);
    key.extend_from_slice(&position(object));
    ObjectKey::new(INCOMING, key)
}

/// The pool, the shard and the object that a store's key names; the object may be one being
/// received.
#[must_use]
pub fn object_in(key: &ObjectKey) -> Option<(PoolId, Shard, ObjectId)> {
    if key.collection == INCOMING {
        let (pool, rest) = key.key.split_first_chunk::<8>()?;
        let (shard, position) = rest.split_first()?;
        return Some((
            PoolId(u64::from_be_bytes(*pool)),
            Shard(*shard),
            object_at(position)?,
        ));
    }
    let (pool, shard) = pool_of(key.collection)?;
    Some((pool, shard, object_at(&key.key)?))
}

/// The store's key of a placement group's metadata object.
#[must_use]
pub fn meta_key(pg: PgId) -> ObjectKey {
    let mut key = b"pg".to_vec();
    key.extend_from_slice(&pg.pool.0.to_be_bytes());
    key.extend_from_slice(&pg.seed.to_be_bytes());
    key.push(pg.shard.0);
    ObjectKey::new(META, key)
}

/// The placement group of a metadata object's key.
#[must_use]
pub fn pg_of_meta_key(key: &[u8]) -> Option<PgId> {
    let key: &[u8; 13] = key.strip_prefix(b"pg")?.try_into().ok()?;
    Some(PgId {
        pool: PoolId(u64::from_be_bytes(
            key[..8].try_into().expect("eight bytes"),
        )),
        seed: u32::from_be_bytes(key[8..12].try_into().expect("four bytes")),
        shard: Shard(key[12]),
    })
}

/// The store's key of the index of a pool's clones ([`crate::clones`]).
#[must_use]
pub fn clones_key(collection: CollectionId) -> ObjectKey {
    let mut key = b"clones".to_vec();
    key.extend_from_slice(&collection.0.to_be_bytes());
    ObjectKey::new(META, key)
}

/// Whether a store's key is that of a clone in a pool's collection.
#[must_use]
pub fn is_clone(key: &ObjectKey) -> bool {
    let number = key
        .key
        .len()
        .checked_sub(NUMBERS_LEN)
        .and_then(|at| key.key.get(at..at + 8));
    pool_of(key.collection).is_some()
        && number.is_some_and(|number| number != SnapId::HEAD.0.to_be_bytes())
}

/// The store's key of the daemon's own record.
#[must_use]
pub fn daemon_key() -> ObjectKey {
    ObjectKey::new(META, &b"daemon"[..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn positions_and_objects_are_one_to_one(
            namespace: Vec<u8>, name in proptest::collection::vec(0u8..3, 0..9), key in proptest::collection::vec(0u8..3, 0..4), other: Vec<u8>,
        ) {
            let object = ObjectId { namespace: Name::copy(&namespace), key: Name::copy(&key), name: Name::copy(&name), ..ObjectId::default() };
            prop_assert_eq!(object_at(&position(&object)), Some(object));
            let _ = object_at(&other);
        }

        #[test]
        fn a_group_is_just_the_positions_in_its_range(pg_num in 1u32..200, hash: u32) {
            let mine = seed(hash, pg_num);
            let at = hash.reverse_bits().to_be_bytes();
            let inside: Vec<u32> = (0..pg_num).filter(|group| {
                let (from, to) = range(*group, pg_num);
                from[..] <= at[..] && to.is_none_or(|to| at[..] < to[..])
            }).collect();
            prop_assert_eq!(inside, vec![mine]);
        }
    }

    #[test]
    fn collections_of_pools_never_meet_the_daemons_own() {
        assert!(collection(PoolId(1), Shard(0)) > INCOMING);
        assert_ne!(
            collection(PoolId(1), Shard(0)),
            collection(PoolId(1), Shard::NONE)
        );
        assert_ne!(
            collection(PoolId(1), Shard::NONE),
            collection(PoolId(2), Shard(0))
        );
    }
}
