//! From a placement group to the devices that serve it.
//!
//! ```text
//!  seed ──placement_seed──▶ x ──rule──▶ raw ──exceptions──▶ raw' ──drop what is down──▶ up set
//! ```
//! In replicated pools the gaps left by down devices are closed; in erasure-coded pools they stay,
//! because the position identifies the shard.

use crate::map::{CrushMap, DeviceId, ItemId, RuleKind};
use crate::mapper::{MapError, Reweights, Scratch};
use crate::object::placement_seed;
use crate::upmap::Upmaps;
use nacre_types::PoolId;

/// The parameters of a pool that placement needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolPlacement {
    /// Its number; an input of the hash.
    pub pool: PoolId,
    /// Number of PGs, at least 1.
    pub pg_num: u32,
    /// Number of PGs with a placement of their own, at most `pg_num`.
    pub pgp_num: u32,
    /// The rule it uses.
    pub rule: u8,
    /// Number of replicas or shards.
    pub size: usize,
    /// Whether positions shift or are fixed.
    pub kind: RuleKind,
}

/// The result of CRUSH and the exceptions for PG `seed`, regardless of which devices are up.
pub fn raw(
    map: &CrushMap,
    pool: &PoolPlacement,
    seed: u32,
    reweights: &Reweights,
    upmaps: &Upmaps,
    scratch: &mut Scratch,
) -> Result<Vec<ItemId>, MapError> {
    let x = placement_seed(seed, pool.pgp_num, pool.pool.0);
    let args = map.choose_args_of_pool(pool.pool.0);
    let mut raw = map
        .map_with(pool.rule, x, pool.size, reweights, args, scratch)?
        .to_vec();
    upmaps.apply((pool.pool, seed), reweights, &mut raw);
    Ok(raw)
}

/// The up set of PG `seed`: the devices that are to serve it, in order. For replicated pools there
/// are no holes; for erasure-coded pools there is an entry per position.
pub fn place(
    map: &CrushMap,
    pool: &PoolPlacement,
    seed: u32,
    reweights: &Reweights,
    upmaps: &Upmaps,
    is_up: impl Fn(DeviceId) -> bool,
    scratch: &mut Scratch,
) -> Result<Vec<Option<DeviceId>>, MapError> {
    let raw = raw(map, pool, seed, reweights, upmaps, scratch)?;
    let up = raw
        .iter()
        .map(|item| item.device().filter(|device| is_up(*device)));
    Ok(match pool.kind {
        RuleKind::Replicated => up.filter(Option::is_some).collect(),
        RuleKind::Erasure => up.collect(),
    })
}
