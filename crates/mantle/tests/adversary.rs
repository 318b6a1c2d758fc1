//! Any policy with any measurements: the guarantees of the mechanism (MAL-07).

use crate::bench::*;
use nacre_mantle::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Amounts that policies return.
fn amount() -> impl Strategy<Value = String> {
    prop_oneof![
        40 => (0..110_u8).prop_map(|part| format!("mds[whoami].load * {part} / 100")),
        1 => Just("0/0".to_owned()),
        1 => Just("1/0".to_owned()),
        1 => Just("-1".to_owned()),
        1 => Just("1e308".to_owned()),
        1 => Just("2^53 + 1".to_owned()),
        1 => Just("5e-324".to_owned()),
        1 => Just("{}".to_owned()),
        1 => Just("'8'".to_owned()),
    ]
}

fn statement() -> impl Strategy<Value = String> {
    prop_oneof![
        20 => (1..4_u8, amount()).prop_map(|(rank, amount)| format!("targets[{rank}] = {amount}")),
        8 => amount().prop_map(|amount| format!("targets[whoami + 1] = {amount}")),
        3 => amount().prop_map(|amount| format!("targets[whoami] = {amount}")),
        3 => (0..6_u8, amount()).prop_map(|(rank, amount)| format!("if mds[{rank}] then mds[{rank}].load = {amount} end")),
        5 => (0..4_u8, 0..4_u8).prop_map(|(unit, rank)| format!("nacre.place('u{unit}', {rank})")),
        5 => (0..4_u8).prop_map(|rank| format!("for _, u in ipairs(nacre.units) do nacre.place(u, {rank}) end")),
        12 => prop_oneof![8 => Just("proxy"), 1 => Just("client"), 1 => Just("x")].prop_map(|mode| format!("nacre.mode('{mode}')")),
        1 => prop_oneof![Just("{'half'}"), Just("{'big_small', 0.3}"), Just("{'small'}"), Just("{7}"), Just("'none'")]
            .prop_map(|howmuch| format!("howmuch = {howmuch}")),
        1 => Just("nacre.state = (nacre.state or '') .. string.rep('s', 5000)".to_owned()),
        1 => Just("function when() return math.random() < 0.5 end".to_owned()),
        1 => amount().prop_map(|amount| format!("function metaload(u) return {amount} end")),
        1 => amount().prop_map(|amount| format!("function mdsload(m) return {amount} end")),
        1 => Just("mds = nil".to_owned()),
        1 => Just("mds[whoami] = nil".to_owned()),
        1 => Just("targets = setmetatable({}, {__index = function() return 1 end, __len = function() return 3 end})".to_owned()),
        1 => Just("whoami, total, pairs, table, nacre.units = 'x', {}, nil, nil, nil".to_owned()),
        1 => Just("setmetatable(_G, {__index = error, __newindex = error})".to_owned()),
        1 => Just("error({})".to_owned()),
        1 => Just("while true do end".to_owned()),
        1 => Just("local t = {} t.t = t targets = t".to_owned()),
    ]
}

fn policy() -> impl Strategy<Value = String> {
    (prop::collection::vec(statement(), 1..6), any::<bool>()).prop_map(|(lines, give)| {
        let text = lines.join("\n");
        if give {
            format!("{text}\nreturn targets")
        } else {
            text
        }
    })
}

/// Mostly valid measurements.
fn measured() -> impl Strategy<Value = f64> {
    prop_oneof![
        200 => (0..1000_u16).prop_map(|load| f64::from(load) / 10.0),
        1 => Just(0.0),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
        1 => Just(-1.0),
        1 => Just(1e300),
    ]
}

fn options() -> impl Strategy<Value = Options> {
    (0..=4_u8, 0..5_usize, any::<bool>()).prop_map(|(quarter, units_max, hysteresis)| Options {
        load_fraction: f64::from(quarter) / 4.0,
        units_max,
        rest_ticks: if hysteresis { 3 } else { 0 },
        return_ticks: if hysteresis { 6 } else { 0 },
        series: 4,
        budget: nacre_policy::Budget {
            instructions: 20_000,
            ..nacre_policy::Budget::POLICY
        },
        ..Options::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_decision_is_sound_whatever_was_asked(
        policy in policy(),
        options in options(),
        ticks in prop::collection::vec((prop::collection::vec(measured(), 3..5), prop::collection::vec(measured(), 0..8)), 1..4),
    ) {
        let run = || {
            let mut bench = Bench::new(0, options);
            bench.activate(&policy);
            let decisions: Vec<Decision> = ticks.iter().map(|(loads, units)| {
                let mut facts = metrics(loads, units);
                if let Some(unit) = facts.units.first_mut() {
                    unit.pinned = true;
                }
                bench.tick(facts)
            }).collect();
            (decisions, bench.log, bench.saved)
        };
        let (decisions, log, saved) = run();
        // Same inputs, same bytes. Compared as texts, because NaN is not equal to itself.
        prop_assert_eq!(format!("{:?}", (&decisions, &log, &saved)), format!("{:?}", run()));
        prop_assert!(log.len() <= 2 + 2 * ticks.len() && saved.is_none_or(|bytes| bytes.len() <= state::STATE_BYTES_MAX));
        let mut spent = 0.0;
        for (decision, (loads, units)) in decisions.iter().zip(&ticks) {
            if decision.held.is_some() {
                prop_assert!(decision.moves.is_empty());
                continue;
            }
            let facts = metrics(loads, units);
            let mut gone = BTreeSet::new();
            for step in &decision.moves {
                prop_assert!(step.from == Rank(0) && step.to != Rank(0) && facts.ranks.contains_key(&step.to), "{:?}", step);
                for unit in &step.units {
                    prop_assert!(unit != "u0", "it is pinned");
                    prop_assert!(facts.units.iter().any(|known| known.name == *unit) && gone.insert(unit.clone()), "{}", unit);
                }
            }
            prop_assert!(gone.len() <= options.units_max);
            // By the policy's weights, or the measured ones.
            let whole: f64 = decision.meta_load.unwrap_or_else(|| units.iter().sum());
            if whole > 0.0 {
                spent += decision.moves.iter().map(|step| step.load).sum::<f64>() / whole;
            }
            prop_assert!(decision.targets.values().all(|amount| amount.is_finite() && *amount > 0.0));
        }
        prop_assert!(spent <= options.load_fraction * ticks.len() as f64 + 1e-6, "{} spent", spent);
    }

    #[test]
    fn foreign_bytes_are_a_state_or_none_and_foreign_lines_a_trace_or_an_error(
        bytes in prop::collection::vec(any::<u8>(), 0..64),
        cut in 0..2000_usize,
        flip in any::<u8>(),
    ) {
        let with_version = [vec![1, 0, 0, 0, 0], bytes.clone()].concat();
        if let Some((program, state)) = state::decode(&with_version) {
            prop_assert_eq!(state::decode(&state::encode(&program, &state)).map(|again| format!("{again:?}")), Some(format!("{:?}", (program, state))));
        }
        let mut text = generate(Shape::TwoTenants, 2, 1).to_text().into_bytes();
        let at = cut % text.len();
        text[at] ^= flip;
        text.truncate(text.len() - cut % 7);
        let _ = Trace::parse(&String::from_utf8_lossy(&text));
        let _ = Trace::parse(&String::from_utf8_lossy(&bytes));
    }

}

proptest! {
    // Each runs three engines for twelve ticks, twice.
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn load_is_conserved_and_lives_on_ranks_that_are_up(policy in policy(), options in options(), seed in 0..100_u64, down in 0..3_u32) {
        let mut trace = generate(Shape::TwoTenants, 3, seed);
        if let trace::Recorded::Ranks { ticks, .. } = &mut trace.recorded {
            ticks[3].down.insert(Rank(down));
            ticks[8].up.insert(Rank(down));
        }
        let trace::Recorded::Ranks { ticks, .. } = trace.recorded.clone() else { unreachable!() };
        let run = |see: &mut dyn FnMut(&Model, usize)| {
            let mut model = Model::new(trace.clone(), None, "p", &policy, options);
            let mut reports = String::new();
            for at in 0..12 {
                reports += &format!("{:?}", model.step());
                see(&model, at);
            }
            reports
        };
        let mut wrong = None;
        let first = run(&mut |model, at| {
            let (sum, expected): (f64, f64) = (model.units().map(|(_, _, load)| load).sum(), ticks[at].loads.values().sum());
            let names: BTreeSet<&str> = model.units().map(|(name, ..)| name).collect();
            if (sum - expected).abs() > 1e-6 || names.len() != 24 || model.units().any(|(_, rank, _)| !model.up().contains(&rank)) {
                wrong.get_or_insert((at, sum, expected));
            }
        });
        prop_assert_eq!(wrong, None);
        prop_assert_eq!(first, run(&mut |_, _| {}));
    }
}
