//! CEPH-E8: every device within 3 % of its share at 100 PGs per device, without violating the rule.

use crate::shapes::{flat, pool, tree};
use nacre_crush::balance::{BalanceLimits, balance};
use nacre_crush::place::{PoolPlacement, raw};
use nacre_crush::upmap::Upmaps;
use nacre_crush::{CrushMap, Reweights, Scratch, Weight};
use nacre_types::OsdId;
use std::collections::{BTreeMap, BTreeSet};

/// Balances, applies the result, counts again from scratch, and checks shares and separation by
/// `domain_of`.
fn check(
    name: &str,
    map: &CrushMap,
    pool: &PoolPlacement,
    weight: impl Fn(u32) -> f64,
    domain_of: impl Fn(u32) -> u32,
) {
    let reweights = Reweights::all_in(map);
    let mut upmaps = Upmaps::default();
    let proposal = balance(
        map,
        &[*pool],
        &reweights,
        &upmaps,
        &BalanceLimits::default(),
    )
    .expect("a legal pool");
    assert!(
        proposal.worst.1 < proposal.worst.0 && proposal.swaps > 0,
        "{name}: {:?}",
        proposal.worst
    );
    upmaps.items.extend(proposal.changes);
    let mut counts: BTreeMap<u32, f64> = BTreeMap::new();
    let mut scratch = Scratch::default();
    for seed in 0..pool.pg_num {
        let placed = raw(map, pool, seed, &reweights, &upmaps, &mut scratch).expect("a legal pool");
        let devices: Vec<u32> = placed
            .iter()
            .filter_map(|item| item.device())
            .map(|id| id.0)
            .collect();
        let domains: BTreeSet<u32> = devices.iter().map(|id| domain_of(*id)).collect();
        assert_eq!(
            domains.len(),
            pool.size,
            "{name}: group {seed} on {devices:?}"
        );
        for id in devices {
            *counts.entry(id).or_default() += 1.0;
        }
    }
    let devices: Vec<u32> = map.devices().map(|id| id.0).collect();
    let total: f64 = devices.iter().map(|id| weight(*id)).sum();
    for id in devices {
        let share = f64::from(pool.pg_num) * pool.size as f64 * weight(id) / total;
        let off = (counts.get(&id).copied().unwrap_or(0.0) - share).abs();
        // A small device cannot come closer than a whole PG.
        assert!(
            off <= (share * 0.03).max(1.0),
            "{name}: osd.{id} is {off:.1} groups off its share of {share:.1}"
        );
    }
    // A second run finds nothing to do and changes nothing.
    let again = balance(
        map,
        &[*pool],
        &reweights,
        &upmaps,
        &BalanceLimits::default(),
    )
    .expect("a legal pool");
    assert!(again.worst.1 <= again.worst.0);
}

#[test]
fn shapes_come_within_three_percent() {
    check("flat 10", &flat(10), &pool(334), |_| 1.0, |id| id);
    let uneven = |id: u32| [1.0, 2.0, 1.5, 1.0, 0.5][id as usize % 5];
    check(
        "4x5x4 over hosts",
        &tree(4, 5, 4, "host", uneven),
        &pool(2667),
        uneven,
        |id| id / 4,
    );
    check(
        "5x4x4 over racks",
        &tree(5, 4, 4, "rack", |_| 1.0),
        &pool(2667),
        |_| 1.0,
        |id| id / 16,
    );
    let shards = PoolPlacement {
        rule: 1,
        size: 6,
        ..pool(1334)
    };
    check(
        "4x5x4 shards over hosts",
        &tree(4, 5, 4, "host", |_| 1.0),
        &shards,
        |_| 1.0,
        |id| id / 4,
    );
}

#[test]
fn a_limit_on_swaps_holds_and_out_devices_get_nothing() {
    let map = flat(20);
    let mut reweights = Reweights::all_in(&map);
    reweights.set(OsdId(7), Weight::ZERO);
    let limits = BalanceLimits {
        swaps_max: 5,
        ..BalanceLimits::default()
    };
    let proposal =
        balance(&map, &[pool(512)], &reweights, &Upmaps::default(), &limits).expect("a legal pool");
    assert!(proposal.swaps <= 5 && proposal.changes.len() <= 5);
    let limits = BalanceLimits::default();
    let proposal =
        balance(&map, &[pool(512)], &reweights, &Upmaps::default(), &limits).expect("a legal pool");
    assert!(
        proposal
            .changes
            .values()
            .flatten()
            .all(|(_, to)| *to != OsdId(7))
    );
}
