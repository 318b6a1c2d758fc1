//! The two forms of policies, as published scripts are written (MAL-51, MAL-52, MAL-60, MAL-61,
//! MAL-62).

use crate::bench::*;
use nacre_mantle::*;
use std::collections::BTreeMap;

#[test]
fn the_paper_s_line_works_as_it_is_written() {
    let mut bench = Bench::free(0, r#"targets[whoami+1] = mds[whoami]["load"]/2"#);
    let decision = bench.tick(metrics(&[8.0, 0.0], &[2.0, 2.0, 2.0, 2.0]));
    assert_eq!(
        (decision.targets, decision.held),
        (BTreeMap::from([(Rank(1), 4.0)]), None)
    );
    assert_eq!(
        decision.moves[0],
        Move {
            from: Rank(0),
            to: Rank(1),
            asked: 4.0,
            load: 4.0,
            units: vec!["u0".into(), "u1".into()]
        }
    );
    // In its library's convention the first rank is 1.
    let mut bench = Bench::free(
        0,
        r#"targets[whoami+1] = MDSs[whoami]["load"]/2 print(whoami, targets[2])"#,
    );
    let decision = bench.tick(metrics(&[8.0, 0.0], &[2.0, 2.0, 2.0, 2.0]));
    assert_eq!(
        (decision.log[0].1.as_str(), moved(&decision)),
        ("1\t4", vec![(1, vec!["u0", "u1"])])
    );
}

#[test]
fn half_and_full_units_differ_as_in_the_paper() {
    let two = || metrics(&[10.0, 0.0], &[5.0, 5.0]);
    let full = r#"nacre.mode("proxy") targets[whoami+1] = mds[whoami]["load"]"#;
    let decision = Bench::free(0, full).tick(two());
    assert_eq!(
        (moved(&decision), decision.mode),
        (vec![(1, vec!["u0", "u1"])], Mode::Proxy)
    );
    let half = r#"nacre.mode("proxy") targets[whoami+1] = mds[whoami]["load"]/2"#;
    assert_eq!(moved(&Bench::free(0, half).tick(two())), [(1, vec!["u0"])]);
}

/// The shape of Ceph's own greedy balancer since 2017, rewritten: ranks as keys, a table of targets
/// returned.
const BY_RANK: &str = r#"
local names = {"auth.meta_load", "all.meta_load", "req_rate", "queue_len", "cpu_load_avg"}
local function weigh()
  for rank, entry in pairs(mds) do
    local line = "MDS"..rank..":"
    for _, name in ipairs(names) do line = line.." "..name.."="..entry[name] end
    entry.load = entry["all.meta_load"]
    BAL_LOG(5, line.." load="..entry.load)
  end
end
local wanted = {}
for rank in pairs(mds) do wanted[rank] = 0 end
weigh()
if mds[whoami+1] and mds[whoami].load > 0.01 and mds[whoami+1].load < 0.01 then
  wanted[whoami+1] = mds[whoami]["load"]/2
end
return wanted
"#;

/// The shape of Ceph's balancer in 2016: tables from 0 with `#`, global functions that are not
/// hooks, a list from 1 returned.
const BY_LIST: &str = r#"
function when()
  if whoami + 1 > #mds then return false end
  return mds[whoami]["load"] > 0.01 and mds[whoami+1]["load"] < 0.01
end
function where()
  targets = {}
  for i=1, #mds+1 do targets[i] = 0 end
  targets[whoami+2] = mds[whoami]["load"]/2
  return targets
end
for i=0, #mds do mds[i]["load"] = mds[i]["all.meta_load"] end
if when() then return where() end
targets = {}
for i=1, #mds+1 do targets[i] = 0 end
return targets
"#;

#[test]
fn both_shapes_of_ceph_s_balancers_run_unmodified() {
    for policy in [BY_RANK, BY_LIST] {
        let of = |whoami, loads: &[f64]| {
            let decision = Bench::free(whoami, policy).tick(metrics(loads, &[1.0, 1.0, 1.0, 1.0]));
            assert_eq!(decision.held, None);
            decision
                .targets
                .into_iter()
                .map(|(rank, amount)| (rank.0, amount))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(0, &[4.0, 0.0, 0.0]), [(1, 2.0)]);
        assert_eq!(
            of(1, &[0.0, 4.0, 0.0]),
            [(2, 2.0)],
            "the middle rank spills to the next, whatever lists count from"
        );
        assert_eq!(of(0, &[4.0, 1.0, 0.0]), []);
        assert_eq!(
            of(2, &[0.0, 0.0, 4.0]),
            [],
            "the last rank has no neighbour"
        );
        assert_eq!(of(0, &[4.0]), []);
    }
}

#[test]
fn hooks_are_asked_in_order_as_functions_and_as_the_paper_s_pieces_of_lua() {
    let functions = r#"
        function metaload(unit) return unit.IRD + 2 * unit.IWR end
        function mdsload(m, rank) return m.auth end
        function when() return mds[whoami].load > total / 2 end
        function where() targets[2] = mds[whoami].load / 2 end
        function howmuch() return {"small", "big"} end"#;
    let pieces = r#"
        metaload = "IRD + 2 * IWR"
        mdsload = 'MDSs[i]["auth"]'
        when = 'if MDSs[whoami]["load"] > total / 2 then'
        where = 'targets[3] = MDSs[whoami]["load"]/2'
        howmuch = {"small", "big"}"#;
    for policy in [functions, pieces] {
        let mut facts = metrics(&[1.0, 2.0, 1.0], &[1.0, 1.0, 1.0]);
        for (unit, (reads, writes)) in
            facts
                .units
                .iter_mut()
                .zip([(1.0, 1.0), (2.0, 0.0), (5.0, 0.0)])
        {
            unit.counters = BTreeMap::from([("IRD".into(), reads), ("IWR".into(), writes)]);
        }
        let decision = Bench::free(0, policy).tick(facts.clone());
        assert_eq!(
            (decision.held.clone(), decision.meta_load),
            (None, Some(10.0)),
            "{policy}"
        );
        assert_eq!(
            decision.loads,
            BTreeMap::from([(Rank(0), 10.0), (Rank(1), 2.0), (Rank(2), 1.0)])
        );
        // Units weigh 3, 2 and 5; 5 is asked for: both strategies meet it exactly, and the first
        // one named wins.
        assert_eq!(moved(&decision), [(2, vec!["u1", "u0"])]);
        facts.ranks.get_mut(&Rank(1)).expect("it is up").auth = 20.0;
        assert_eq!(
            moved(&Bench::free(0, policy).tick(facts)),
            [],
            "when says no"
        );
    }
}

#[test]
fn a_hook_that_is_missing_has_the_obvious_meaning() {
    // No `when`: always. No `mdsload`: all. No `howmuch`: heaviest first or lightest first,
    // whichever is nearer.
    let decision = Bench::free(0, "function where() return {[1] = 3} end")
        .tick(metrics(&[9.0, 0.0], &[5.0, 3.0, 1.0]));
    assert_eq!(moved(&decision), [(1, vec!["u1"])]);
    let decision =
        Bench::free(0, "function when() return true end").tick(metrics(&[9.0, 0.0], &[9.0]));
    assert_eq!((decision.held, decision.moves), (None, vec![]));
}

#[test]
fn strategies_choose_what_they_say() {
    let of = |howmuch: &str, amount: f64| {
        let policy = format!("howmuch = {howmuch} targets[1] = {amount}");
        let decision =
            Bench::free(0, &policy).tick(metrics(&[16.0, 0.0], &[1.0, 2.0, 4.0, 8.0, 1.0]));
        assert_eq!(decision.held, None, "{howmuch}");
        decision
            .moves
            .into_iter()
            .flat_map(|step| step.units)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(of("'big'", 12.0), "u3 u2");
    assert_eq!(of("'small'", 4.0), "u4 u0 u1");
    assert_eq!(of("'big_small'", 9.0), "u3 u4");
    assert_eq!(of("'half'", 7.0), "u0 u1 u2");
    assert_eq!(
        of("{0.5}", 12.0),
        "u3",
        "heaviest first, for half of what is asked"
    );
    assert_eq!(
        of("{'small', 'big'}", 9.0),
        "u3 u0",
        "the nearer one: 9, not 8"
    );
}

#[test]
fn back_off_is_a_countdown_in_the_saved_state() {
    // Malacology §6.2.3: a move only after two ticks of overload, and none for three ticks after a
    // move.
    let policy = r#"
        function when()
          local wait = RDstate()
          if wait > 0 then WRstate(wait - 1) return false end
          return mds[whoami].load > 1
        end
        function where() WRstate(3) targets[1] = mds[whoami].load / 2 end"#;
    let mut bench = Bench::free(0, policy);
    let mut pattern = String::new();
    for tick in 0..9 {
        // A restart in the middle, with the saved bytes.
        if tick == 5 {
            let (saved, activation) = (bench.saved.clone().expect("it saved"), bench.activation);
            bench = Bench::free(0, policy);
            assert_eq!(bench.activation, activation);
            bench.handle(Input::Restore(saved));
        }
        let decision = bench.tick(metrics(&[8.0, 0.0], &[4.0, 4.0]));
        assert_eq!(decision.held, None);
        pattern.push(if decision.moves.is_empty() { '.' } else { 'M' });
    }
    assert_eq!(pattern, "M...M...M");
}

#[test]
fn scripts_read_time_series_and_structured_state() {
    let policy = r#"
        local s = nacre.state or {seen = {}}
        s.seen[#s.seen + 1] = nacre.series("req", whoami)[1]
        nacre.state = s
        print(#nacre.series("cpu", 1), nacre.series("all")[#nacre.series("all")], #s.seen, s.seen[#s.seen])"#;
    let mut bench = Bench::new(
        0,
        Options {
            series: 3,
            ..Options::default()
        },
    );
    bench.activate(policy);
    let said: Vec<String> = (1..=5)
        .map(|load| {
            let decision = bench.tick(metrics(&[f64::from(load), 1.0], &[]));
            assert_eq!(decision.held, None);
            decision.log[0].1.clone()
        })
        .collect();
    assert_eq!(
        said,
        [
            "1\t1\t1\t1",
            "2\t2\t2\t1",
            "3\t3\t3\t1",
            "3\t4\t4\t2",
            "3\t5\t5\t3"
        ]
    );
    let mut bench = Bench::free(0, "\nnacre.series('heat', 0)");
    let held = bench
        .tick(metrics(&[1.0], &[]))
        .held
        .expect("no such metric")
        .to_string();
    assert_eq!(held, "p:2: nacre.series: there is no metric heat");
}

#[test]
fn a_cache_keeps_what_a_policy_says() {
    let cache = |keys| {
        Facts::Cache(CacheMetrics {
            keys,
            gets: 100.0,
            ..CacheMetrics::default()
        })
    };
    let hooks = "function when() return cache.keys > 100 end function howmuch() return 10 end";
    let mut bench = Bench::free(0, hooks);
    assert_eq!(
        [bench.ask(cache(100.0)).keep, bench.ask(cache(101.0)).keep],
        [None, Some(10)]
    );
    assert_eq!(
        Bench::free(0, "return cache.keys / 2").ask(cache(9.0)).keep,
        Some(4)
    );
    assert_eq!(Bench::free(0, "return nil").ask(cache(9.0)).keep, None);
    for (policy, why) in [
        ("return -1", "keep -1 keys"),
        ("return 0/0", "keep NaN keys"),
        ("return {}", "no number, but a table"),
    ] {
        let held = Bench::free(0, policy)
            .ask(cache(9.0))
            .held
            .expect(policy)
            .to_string();
        assert!(held.contains(why), "{held}");
    }
}
