//! `osd balance`: exceptions to CRUSH that bring every OSD close to its share (CEPH-E8).
//!
//! It is computed here, on the latest map, in the batch that commits it: exceptions computed on
//! another map could violate the placement rule. For the leader it costs as much as any change of
//! the hierarchy (CRUSH over all PGs), plus the swaps, which are bounded.

use nacre_command::OsdBalance;
use nacre_crush::balance::{BalanceLimits, balance as even_out};
use nacre_crush::map::RuleKind;
use nacre_crush::place::PoolPlacement;
use nacre_crush::upmap::Upmaps;
use nacre_crush::{Reweights, Weight};
use nacre_types::PgId;
use nacre_wire::map::{Change, ClusterMap};
use serde_json::{Value, json};

use super::{Done, View, change, find_pool, read};

/// Default number of swaps per command: each moves a replica of a PG's data.
const SWAPS: u64 = 1_000;
const SWAPS_MAX: u64 = 100_000;

/// The map's inputs to placement.
fn inputs(map: &ClusterMap) -> (Reweights, Upmaps) {
    let mut reweights = Reweights::default();
    for (osd, info) in &map.osds {
        reweights.set(*osd, Weight(info.weight.0));
    }
    let items = map
        .upmaps
        .iter()
        .map(|(pg, items)| ((pg.pool, pg.seed), items.clone()))
        .collect();
    (
        reweights,
        Upmaps {
            items,
            ..Upmaps::default()
        },
    )
}

pub fn balance(view: &View<'_>, wish: &OsdBalance) -> Result<Done, String> {
    let map = view.map();
    let only = wish
        .pool
        .as_ref()
        .map(|pool| find_pool(view, pool))
        .transpose()?;
    let swaps_max = wish.swaps_max.map_or(SWAPS, |swaps| swaps.0);
    if swaps_max == 0 || swaps_max > SWAPS_MAX {
        return Err(format!("`swaps_max` is from 1 to {SWAPS_MAX}"));
    }
    let chosen = map
        .pools
        .iter()
        .filter(|(id, _)| only.is_none_or(|(only, _)| only == **id));
    let pools: Vec<PoolPlacement> = chosen
        .map(|(id, pool)| PoolPlacement {
            pool: *id,
            pg_num: pool.pg_num,
            pgp_num: pool.pgp_num,
            rule: u8::try_from(pool.rule).unwrap_or(u8::MAX),
            size: usize::from(pool.size),
            kind: RuleKind::Replicated,
        })
        .collect();
    let (reweights, upmaps) = inputs(map);
    let swaps_max = usize::try_from(swaps_max).expect("bounded above");
    let limits = BalanceLimits {
        swaps_max,
        ..BalanceLimits::default()
    };
    let found = even_out(&map.crush.map, &pools, &reweights, &upmaps, &limits).map_err(|why| {
        format!("a pool's placement rule does not work: {why}; `pool ls` shows the rules")
    })?;
    let (before, after) = found.worst;
    let moved: Vec<Value> = found
        .changes
        .keys()
        .map(|(pool, seed)| json!(PgId::replicated(*pool, *seed).to_string()))
        .collect();
    let reply = json!({
        "worst_before": before,
        "worst_after": after,
        "swaps": found.swaps,
        "groups": moved,
        "finished": found.swaps < swaps_max,
    });
    if wish.dry_run || found.changes.is_empty() {
        return read(reply);
    }
    let said = format!(
        "placement is evened out: {} groups move, the worst OSD goes from {before:.1} to {after:.1} groups off its share",
        found.changes.len()
    );
    let as_change = |((pool, seed), items)| Change::Upmap {
        pg: PgId::replicated(pool, seed),
        items,
    };
    change(
        reply,
        found.changes.into_iter().map(as_change).collect(),
        said,
    )
}
