//! The policies of the library: the receivers under given loads (MAL-58 to MAL-61, PAR-09 to
//! PAR-12), and that none plays ping-pong on any example.

use crate::bench::*;
use nacre_mantle::*;
use std::collections::{BTreeMap, BTreeSet};

fn source(name: &str) -> &'static str {
    shipped(name).unwrap_or_else(|| panic!("{name} is in the library"))
}
fn decide(name: &str, whoami: u32, loads: &[f64], units: &[f64]) -> Decision {
    let decision = Bench::free(whoami, source(name)).tick(metrics(loads, units));
    assert_eq!(decision.held, None, "{name}");
    decision
}
fn targets(name: &str, whoami: u32, loads: &[f64]) -> Vec<(u32, f64)> {
    decide(name, whoami, loads, &[1.0; 4])
        .targets
        .into_iter()
        .map(|(rank, amount)| (rank.0, amount))
        .collect()
}
fn run(name: &str, shape: Shape, ranks: u32) -> (Model, Summary) {
    let mut model = Model::new(
        generate(shape, ranks, 1),
        None,
        name,
        source(name),
        Options::default(),
    );
    let ticks = if shape == Shape::Keyspace { 1500 } else { 60 };
    let summary = model.run(ticks, |_| {});
    (model, summary)
}
fn homes(model: &Model) -> BTreeMap<String, u32> {
    model
        .units()
        .map(|(name, rank, _)| (name.to_owned(), rank.0))
        .collect()
}

#[test]
fn greedy_spill_halves_to_an_idle_neighbour() {
    assert_eq!(targets("greedy_spill", 0, &[8.0, 0.0, 0.0]), [(1, 4.0)]);
    assert_eq!(
        targets("greedy_spill", 0, &[8.0, 1.0, 0.0]),
        [],
        "the neighbour has something"
    );
    assert_eq!(
        targets("greedy_spill", 2, &[0.0, 0.0, 8.0]),
        [],
        "no neighbour"
    );
}

#[test]
fn fill_and_spill_waits_until_the_processor_is_full_for_a_while() {
    let mut bench = Bench::free(0, source("fill_and_spill"));
    // The bench's processor use is half the load.
    let mut ask = |load: f64| {
        bench
            .tick(metrics(&[load, 0.0], &[1.0; 8]))
            .targets
            .values()
            .copied()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        [ask(90.0), ask(100.0), ask(100.0)],
        [const { Vec::<f64>::new() }; 3]
    );
    assert_eq!(ask(100.0), [12.5], "a quarter, after two busy ticks");
    assert_eq!([ask(100.0), ask(100.0)], [const { Vec::<f64>::new() }; 2]);
    assert_eq!(ask(100.0), [12.5]);
    let (_, summary) = run("fill_and_spill", Shape::HotSpot, 3);
    assert!(
        summary.moves > 0 && summary.imbalance_after < summary.imbalance_before,
        "{summary:?}"
    );
}

#[test]
fn adaptable_gives_what_others_lack_and_only_from_the_heaviest() {
    assert_eq!(
        targets("adaptable", 0, &[9.0, 3.0, 0.0]),
        [(1, 1.0), (2, 4.0)]
    );
    assert_eq!(targets("adaptable", 1, &[9.0, 3.0, 0.0]), []);
    assert_eq!(
        targets("adaptable", 0, &[4.5, 4.0, 3.5]),
        [],
        "within the margin"
    );
    let (_, summary) = run("adaptable", Shape::HotSpot, 4);
    assert!(
        summary.imbalance_before > 2.9 && summary.imbalance_after < 0.4,
        "{summary:?}"
    );
}

#[test]
fn the_baseline_pairs_the_largest_with_the_largest_in_three_modes() {
    let as_mode = |mode: &str, whoami: u32| {
        let policy = source("baseline").replace("mode = \"hybrid\"", &format!("mode = \"{mode}\""));
        // The bench measures requests as the load, and half of it as processor use.
        let decision =
            Bench::free(whoami, &policy).tick(metrics(&[12.0, 8.0, 4.0, 0.0], &[1.0; 12]));
        assert_eq!(decision.held, None);
        decision
            .targets
            .into_iter()
            .map(|(rank, amount)| (rank.0, amount))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        [
            as_mode("workload", 0),
            as_mode("workload", 1),
            as_mode("workload", 2)
        ],
        [vec![(3, 6.0)], vec![(2, 2.0)], vec![]]
    );
    assert_eq!(as_mode("hybrid", 0), [(3, 12.0)]);
    assert_eq!(as_mode("cpu", 0), [(3, 3.0)]);
}

#[test]
fn proxies_hand_out_half_or_all() {
    let (model, summary) = run("proxy_half", Shape::Sequencers, 2);
    assert_eq!(
        homes(&model).values().filter(|rank| **rank == 1).count(),
        1,
        "{summary:?}"
    );
    let (model, summary) = run("proxy_full", Shape::Sequencers, 4);
    let ranks: BTreeSet<u32> = homes(&model).into_values().collect();
    assert_eq!(ranks, BTreeSet::from([1, 2, 3]), "{summary:?}");
    assert_eq!(
        decide("proxy_full", 0, &[6.0, 0.0], &[3.0, 3.0]).mode,
        Mode::Proxy
    );
}

#[test]
fn one_interface_places_on_one_server_by_hash_and_by_load() {
    let everywhere = |name: &str| {
        let mut trace = generate(Shape::HotSpot, 4, 3);
        if let trace::Recorded::Ranks { units, .. } = &mut trace.recorded {
            for (at, unit) in units.iter_mut().enumerate() {
                unit.rank = Rank(at as u32 % 4);
            }
        }
        let mut model = Model::new(trace, None, name, source(name), Options::default());
        let summary = model.run(30, |_| {});
        assert!(!summary.is_bad(), "{summary:?}");
        homes(&model)
    };
    assert!(everywhere("single").values().all(|rank| *rank == 0));
    let hashed = everywhere("hash");
    let (from_one, _) = run("hash", Shape::HotSpot, 4);
    assert_eq!(
        hashed,
        homes(&from_one),
        "the name decides, not where a unit was"
    );
    assert!(
        hashed.values().collect::<BTreeSet<_>>().len() == 4,
        "{hashed:?}"
    );
    let (dynamic, _) = run("adaptable", Shape::HotSpot, 4);
    assert_ne!(homes(&dynamic), hashed);
}

#[test]
fn a_hash_moves_only_the_units_of_a_rank_that_goes() {
    let of = |ranks: &[u32]| -> BTreeMap<String, u32> {
        let mut facts = metrics(&[0.0; 6], &[1.0; 60]);
        facts
            .ranks
            .retain(|rank, _| rank.0 == 0 || ranks.contains(&rank.0));
        let mut bench = Bench::free(0, source("hash"));
        let decision = bench.tick(facts);
        decision
            .moves
            .into_iter()
            .flat_map(|step| step.units.into_iter().map(move |unit| (unit, step.to.0)))
            .collect()
    };
    let (all, fewer) = (of(&[1, 2, 3, 4, 5]), of(&[1, 2, 4, 5]));
    assert!(
        (1..6).all(|rank| all.values().filter(|home| **home == rank).count() >= 4),
        "{all:?}"
    );
    for (unit, home) in all.iter().filter(|(_, home)| **home != 3) {
        assert_eq!(fewer.get(unit), Some(home));
    }
}

#[test]
fn pins_hold_by_the_longest_prefix() {
    let policy = source("pin").replace(
        "[\"batch/\"] = 1,",
        "[\"batch/\"] = 1, [\"batch/hot/\"] = 2, [\"gone/\"] = 9,",
    );
    let mut facts = metrics(&[4.0, 0.0, 0.0], &[1.0; 5]);
    for (unit, name) in
        facts
            .units
            .iter_mut()
            .zip(["batch/a", "batch/hot/b", "other", "shared/c", "gone/d"])
    {
        unit.name = name.into();
    }
    let decision = Bench::free(0, &policy).tick(facts);
    assert_eq!(
        (moved(&decision), decision.held.clone()),
        (vec![(1, vec!["batch/a"]), (2, vec!["batch/hot/b"])], None)
    );
}

#[test]
fn caches_are_bounded_at_once_after_a_trigger_or_when_the_reads_came_down() {
    let (_, fixed) = run("static_cache", Shape::Keyspace, 1);
    assert_eq!(
        fixed.cache.expect("a cache").bounded,
        None,
        "55,000 keys are below the limit"
    );
    let small = source("static_cache").replace("100000", "10");
    let mut model = Model::new(
        generate(Shape::Keyspace, 1, 1),
        None,
        "s",
        &small,
        Options::default(),
    );
    let ten = model.run(1500, |_| {}).cache.expect("a cache");
    assert_eq!(
        (ten.keys, ten.bounded.map(|(_, keep)| keep)),
        (10.0, Some(10))
    );
    assert!((0.5..0.75).contains(&ten.hits), "{ten:?}");

    let two = source("two_phase_cache").replace("trigger = 100000", "trigger = 30000");
    let mut model = Model::new(
        generate(Shape::Keyspace, 1, 1),
        None,
        "t",
        &two,
        Options::default(),
    );
    let two = model.run(1500, |_| {}).cache.expect("a cache");
    assert!(two.keys_max >= 30_000.0 && two.keys == 10_000.0, "{two:?}");

    let (_, regime) = run("regime_cache", Shape::Keyspace, 1);
    let cache = regime.cache.expect("a cache");
    let (tick, keep) = cache.bounded.expect("it settles");
    assert!(
        (30_000..=55_390).contains(&keep) && (400..620).contains(&tick),
        "{regime:?}"
    );
    assert!(!regime.is_bad() && cache.hits > 0.98, "{regime:?}");
}

#[test]
fn a_regime_cache_that_knows_the_run_s_length_finds_the_third_regime_as_it_begins() {
    // The result of K-means after the run.
    let trace = generate(Shape::Keyspace, 1, 1);
    let trace::Recorded::Cache { ticks } = &trace.recorded else {
        unreachable!()
    };
    let points: Vec<(f64, f64)> = ticks
        .iter()
        .zip(1..)
        .map(|(tick, at)| (f64::from(at) * 10.0, tick.gets))
        .collect();
    let third = nacre_policy::regimes::regimes(&points, 4, 0, &mut |_| true).expect("points")[2];
    let keys: f64 = ticks[..=third.first].iter().map(|tick| tick.new_keys).sum();

    let policy = source("regime_cache").replace("local horizon = nil", "local horizon = 15000");
    let mut model = Model::new(trace, None, "r", &policy, Options::default());
    let summary = model.run(1500, |_| {});
    let (tick, keep) = summary.cache.expect("a cache").bounded.expect("it decides");
    assert!(
        (tick as f64 * 10.0 - third.start).abs() < 900.0,
        "decided {}, began {}",
        tick * 10,
        third.start
    );
    assert!((keep as f64 - keys).abs() < 0.2 * keys, "{keep} {keys}");
    assert!(!summary.is_bad(), "{summary:?}");
}

#[test]
fn the_regime_cache_follows_other_growth_rates_without_a_knob() {
    let limit = |stretch: f64| {
        let mut trace = generate(Shape::Keyspace, 1, 1);
        trace.tick_seconds *= stretch;
        let mut model = Model::new(trace, None, "r", source("regime_cache"), Options::default());
        let summary = model.run(1500, |_| {});
        let (tick, keep) = summary.cache.expect("a cache").bounded.expect("it settles");
        (tick as f64 * 10.0 * stretch, keep)
    };
    let ((slow, a), (fast, b)) = (limit(2.0), limit(1.0));
    assert!(slow > fast + 2000.0, "other times: {slow} {fast}");
    assert!(a.abs_diff(b) < 12_000, "the right limits: {a} {b}");
}

#[test]
fn no_policy_of_the_library_but_the_baseline_plays_ping_pong_or_fails_on_any_example() {
    // CephFS's default balancer acts on any rank above the mean, and the model reports it.
    let (_, summary) = run("baseline", Shape::Drift, 2);
    assert!(
        summary.failed == 0 && !summary.ping_pong.is_empty(),
        "{summary:?}"
    );
    for policy in LIBRARY.iter().filter(|policy| policy.name != "baseline") {
        for (shape_name, shape) in SHAPES {
            let cache = policy.name.ends_with("_cache");
            if cache != (*shape == Shape::Keyspace) {
                continue;
            }
            for ranks in [1, 2, 5] {
                let (_, summary) = run(policy.name, *shape, ranks);
                assert!(
                    !summary.is_bad(),
                    "{} on {shape_name} with {ranks} ranks: {summary:?}",
                    policy.name
                );
            }
        }
        assert!(
            policy.source.starts_with("-- ") && policy.source.contains("Form:"),
            "{}: its head says what it is",
            policy.name
        );
    }
}
