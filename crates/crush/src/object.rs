//! Object name → hash → placement group → CRUSH input (CEPH-40).
//!
//! ```text
//! namespace, key or name ──object_hash──▶ 32 bits ──stable_mod(pg_num)──▶ PG seed
//!                                                          │
//!              CRUSH input x ◀──hash with the pool── stable_mod(pgp_num)
//! ```
//! `pg_num` may be any number from 1 on. When it grows by one, the objects of exactly one PG split;
//! the new PG stays on its parent's devices until `pgp_num` follows.

use crate::hash::{hash32_2, name_hash};

/// Separates namespace and name in the hash input, so that (`a`, `bc`) and (`ab`, `c`) differ.
const NAMESPACE_END: u8 = 0x1f;

/// The hash of an object. A non-empty locator `key` replaces the name: objects with the same key
/// stay together.
#[must_use]
pub fn object_hash(namespace: &[u8], key: &[u8], name: &[u8]) -> u32 {
    let name = if key.is_empty() { name } else { key };
    if namespace.is_empty() {
        return name_hash(name);
    }
    let mut bytes = Vec::with_capacity(namespace.len() + 1 + name.len());
    bytes.extend_from_slice(namespace);
    bytes.push(NAMESPACE_END);
    bytes.extend_from_slice(name);
    name_hash(&bytes)
}

/// The smallest 2ⁿ-1 that is at least `count - 1`: the mask that [`stable_mod`] needs for `count`
/// PGs.
#[must_use]
pub fn mask_for(count: u32) -> u32 {
    match count {
        0 | 1 => 0,
        n => u32::MAX >> (n - 1).leading_zeros(),
    }
}

/// `x` modulo `count`, computed so that raising `count` by one moves only values to the new number.
/// `mask` is [`mask_for`]`(count)`; the result is below `count` if `count` is at least 1.
#[must_use]
pub fn stable_mod(x: u32, count: u32, mask: u32) -> u32 {
    if x & mask < count {
        x & mask
    } else {
        x & (mask >> 1)
    }
}

/// The placement group of an object with this hash. A pool with `pg_num` 0 cannot exist; it is
/// treated as 1.
#[must_use]
pub fn pg_seed(hash: u32, pg_num: u32) -> u32 {
    stable_mod(hash, pg_num.max(1), mask_for(pg_num))
}

/// The CRUSH input of a PG: seed and pool hashed together, so that equal seeds of two pools are
/// placed independently. If `pgp_num` is below `pg_num`, a PG shares the placement of the one it
/// was split from.
#[must_use]
pub fn placement_seed(pg_seed: u32, pgp_num: u32, pool: u64) -> u32 {
    // Pool ids are hashed as 32 bits in the systems we are compatible with.
    hash32_2(
        stable_mod(pg_seed, pgp_num.max(1), mask_for(pgp_num)),
        pool as u32,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_by_one_group_moves_only_into_it() {
        for count in 1..200 {
            for x in (0..20_000_u32).map(|x| x.wrapping_mul(0x9e37_79b1)) {
                let (old, new) = (pg_seed(x, count), pg_seed(x, count + 1));
                assert!(old < count);
                assert!(
                    new == old || new == count,
                    "{x} went from {old} to {new} as {count} groups became one more"
                );
            }
        }
    }

    #[test]
    fn masks_cover_the_extremes() {
        for (count, mask) in [
            (0, 0),
            (1, 0),
            (2, 1),
            (3, 3),
            (4, 3),
            (5, 7),
            (1 << 31, (1 << 31) - 1),
        ] {
            assert_eq!(mask_for(count), mask, "{count}");
        }
        assert_eq!(mask_for(u32::MAX), u32::MAX);
        assert_eq!(pg_seed(77, 0), 0);
    }

    #[test]
    fn a_key_replaces_the_name_and_a_namespace_separates() {
        assert_eq!(object_hash(b"", b"k", b"name"), object_hash(b"", b"", b"k"));
        assert_ne!(object_hash(b"a", b"", b"bc"), object_hash(b"ab", b"", b"c"));
    }
}
