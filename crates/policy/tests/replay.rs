//! Same chunk, input, object, request and seed: the same results, whatever ran before (invariant 1;
//! MAL-29).

use crate::model::{Caller, Model};
use nacre_policy::{CallEnd, Chunk, Kind, Target};
use proptest::prelude::*;

/// A statement of a small script language: it computes, stores, loops, fails and catches.
fn statement() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        (0..5_u8, 0..100_u8).prop_map(|(k, v)| format!("v[{k}] = (v[{k}] or 0) + {v}")),
        (0..5_u8).prop_map(|k| format!("v.k{k} = tostring(v) .. #v")),
        (0..5_u8, 0..9_u8).prop_map(|(k, v)| format!("objclass.map_set_val('k{k}', bufferlist.new(tostring({v})))")),
        (0..5_u8).prop_map(|k| format!("local ok, e = pcall(objclass.map_get_val, 'k{k}') say(ok and e:str() or e)")),
        (0..9_u8, 1..9_u8)
            .prop_map(|(at, n)| format!("objclass.write({at}, {n}, bufferlist.new(string.rep('w', {n})))")),
        Just("say(objclass.read(0, 0):str())".to_owned()),
        Just("for k in pairs({alpha = 1, beta = 2, gamma = 3, delta = 4}) do say(k) end".to_owned()),
        Just("for k in pairs(objclass) do v.last = k end say(v.last)".to_owned()),
        Just("say(math.random(1000000))".to_owned()),
        Just("say(string.format('%s %5.2f', {}, math.random()))".to_owned()),
        Just("say(select(2, pcall(error, {})))".to_owned()),
        Just("say(select(2, pcall(function() return nil .. 1 end)))".to_owned()),
        Just("shared = (shared or 0) + 1 say(shared)".to_owned()),
        (1..300_u16).prop_map(|n| format!("say(#string.rep('x', {n} * 1000))")),
        (1..50_u8).prop_map(|n| format!(
            "local t = {{}} for k = 1, {n} do t[k] = math.random(100) end table.sort(t) say(table.concat(t, ','))"
        )),
        Just("print(v, say)".to_owned()),
        Just("error('gave up')".to_owned()),
        Just("while true do end".to_owned()),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            (1..6_u8, inner.clone()).prop_map(|(n, body)| format!("for _ = 1, {n} do {body} end")),
            inner
                .clone()
                .prop_map(|body| format!("say(select('#', pcall(function() {body} end)))")),
            (inner.clone(), inner)
                .prop_map(|(a, b)| format!("if #v % 2 == 0 then {a} else {b} end")),
        ]
    })
}

fn script() -> impl Strategy<Value = String> {
    prop::collection::vec(statement(), 1..8).prop_map(|body| {
        let body = body.join("\n");
        format!(
            "local v = {{}}\nfunction f(i, o)\nlocal function say(x) o:append(tostring(x) .. ' ') end\ndo {} end\nend\nobjclass.register(f)",
            body.replace('\n', " end\ndo ")
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_call_is_a_function_of_its_arguments(scripts in prop::collection::vec(script(), 2..6)) {
        let outcome = |at: &mut Caller, script: &String| {
            at.budget.instructions = 20_000;
            let mut object = Model::with("base");
            let CallEnd::Done(mut outcome) = at.end(&mut object, Target::Eval(&Chunk::new("r", script)), "f", b"in") else {
                panic!("nothing is absent")
            };
            outcome.memory_peak = 0;
            assert!(!matches!(outcome.error.as_ref().map(|error| error.kind), Some(Kind::Syntax | Kind::Missing)), "it runs: {script}");
            (outcome, object)
        };
        let (mut forwards, mut backwards) = (Caller::new(), Caller::new());
        let one: Vec<_> = scripts.iter().map(|script| outcome(&mut forwards, script)).collect();
        let mut two: Vec<_> = scripts.iter().rev().map(|script| outcome(&mut backwards, script)).collect();
        two.reverse();
        prop_assert_eq!(&one, &two);
        // Again, in a VM that has the compiled forms.
        let again: Vec<_> = scripts.iter().map(|script| outcome(&mut forwards, script)).collect();
        prop_assert_eq!(&one, &again);
    }
}

/// The exact bytes: detects a change of Luau or of our environment about which replicas of two
/// versions would disagree.
#[test]
fn the_bytes_are_these() {
    let mut at = Caller::new();
    let body = "local t = {} for k in pairs({alpha = 1, beta = 2, gamma = 3, delta = 4, epsilon = 5}) do t[#t + 1] = k end \
                o:append(table.concat(t, ' ')..' '..math.random(1000000)..' '..math.random(1000000)..' '..tostring(1e15)..tostring(0.1)..tostring(-0.0))";
    // The first two numbers of SplitMix64 with seed 42 are 0xbdd732262feb6e95 and
    // 0x28efe333b266f103.
    assert_eq!(
        at.text(body),
        "beta epsilon delta alpha gamma 741565 159911 10000000000000000.1-0"
    );
}
