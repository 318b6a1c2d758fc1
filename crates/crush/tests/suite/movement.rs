//! CEPH-42, CEPH-43: data movement when the cluster changes.

use crate::shapes::flat;
use nacre_crush::{CrushMap, ItemId, Reweights, Scratch, Weight};
use nacre_types::OsdId;

const INPUTS: u32 = 20_000;

fn placements(map: &CrushMap, rule: u8, reweights: &Reweights) -> Vec<Vec<ItemId>> {
    let mut scratch = Scratch::default();
    (0..INPUTS)
        .map(|x| {
            map.map(rule, x, 3, reweights, &mut scratch)
                .expect("a legal call")
                .to_vec()
        })
        .collect()
}

/// Replicas of `new` on devices that `old` did not use for the same input, as a fraction of all.
fn moved(old: &[Vec<ItemId>], new: &[Vec<ItemId>]) -> f64 {
    let pairs = old.iter().zip(new);
    let moved: usize = pairs
        .map(|(old, new)| new.iter().filter(|item| !old.contains(item)).count())
        .sum();
    moved as f64 / (3 * old.len()) as f64
}

#[test]
fn one_device_more_or_less_moves_little_more_than_its_share() {
    let small = flat(100);
    let mut large = small.clone();
    large
        .add_device(OsdId(100), Weight::ONE, None, &[("root", "default")])
        .expect("a legal device");
    let least = 1.0 / 101.0;
    for rule in [0, 1] {
        let [small, large] =
            [&small, &large].map(|map| placements(map, rule, &Reweights::all_in(map)));
        let (grown, shrunk) = (moved(&small, &large), moved(&large, &small));
        assert!(
            grown >= 0.9 * least && grown <= 1.1 * least,
            "growing moves {grown}, at least {least}"
        );
        assert!(
            shrunk >= 0.9 * least && shrunk <= 1.1 * least,
            "shrinking moves {shrunk}, at least {least}"
        );
    }
}

#[test]
fn a_reweight_off_loads_that_fraction_of_a_device() {
    let map = flat(50);
    let mut reweights = Reweights::all_in(&map);
    let full = placements(&map, 0, &reweights);
    let on = |all: &[Vec<ItemId>]| {
        all.iter()
            .filter(|items| items.contains(&ItemId(7)))
            .count() as f64
    };
    for (raw, kept) in [(0xc000, 0.75), (0x8000, 0.5), (0x1000, 0.0625), (0, 0.0)] {
        reweights.set(OsdId(7), Weight(raw));
        let now = placements(&map, 0, &reweights);
        let fraction = on(&now) / on(&full);
        assert!(
            (fraction - kept).abs() < 0.05,
            "{kept} should stay, {fraction} does"
        );
        // Only replicas on the reweighted device move.
        let others: f64 = moved(&full, &now) * f64::from(3 * INPUTS) - (on(&full) - on(&now));
        assert!(
            others.abs() <= 0.05 * on(&full),
            "{others} replicas of other devices moved"
        );
    }
}

/// CEPH-54: each PG of a lost device is copied from one of many devices to one of many. With a
/// hundred PGs per device, the load of the busiest device, and thus the recovery time, falls as the
/// number of devices grows.
#[test]
fn what_a_lost_device_had_is_spread_over_more_the_more_there_are() {
    let figures: Vec<[usize; 3]> = [10, 30, 100, 1_000]
        .map(|devices: u32| {
            let map = flat(devices);
            let mut scratch = Scratch::default();
            let [before, after] = [Weight::ONE, Weight(0)].map(|weight| {
                let mut reweights = Reweights::all_in(&map);
                reweights.set(OsdId(7), weight);
                let groups = 0..devices * 100 / 3;
                groups
                    .map(|x| {
                        map.map(0, x, 3, &reweights, &mut scratch)
                            .expect("a legal call")
                            .to_vec()
                    })
                    .collect::<Vec<_>>()
            });
            let mut given = std::collections::BTreeMap::<ItemId, usize>::new();
            for (before, after) in before
                .iter()
                .zip(&after)
                .filter(|(before, _)| before.contains(&ItemId(7)))
            {
                for item in after.iter().filter(|item| !before.contains(item)) {
                    *given.entry(*item).or_default() += 1;
                }
            }
            [
                given.values().sum(),
                given.len(),
                given.values().copied().max().expect("some"),
            ]
        })
        .to_vec();
    println!("groups that move, devices that are given some, most that one is given: {figures:?}");
    let busiest: Vec<usize> = figures.iter().map(|[.., most]| *most).collect();
    assert!(busiest.is_sorted_by(|few, many| few > many), "{figures:?}");
    assert!(
        busiest[0] >= 10 && busiest[2] <= 5 && figures[2][1] > 50,
        "{figures:?}"
    );
}
