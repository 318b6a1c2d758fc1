//! The general entry point: the base of policies, validators and balancers (MAL-07, UNI-01).

use nacre_policy::*;
use std::collections::BTreeMap;

fn run_with(
    vm: &mut Vm,
    text: &str,
    entry: Option<&str>,
    globals: &[(&str, Value)],
    args: &[Value],
    budget: &Budget,
) -> Ran {
    let chunk = Chunk::new("policy", text);
    vm.run(&Run {
        chunk: &chunk,
        entry,
        globals,
        args,
        seed: 7,
        budget,
    })
}
fn run(
    text: &str,
    entry: Option<&str>,
    globals: &[(&str, Value)],
    args: &[Value],
) -> Result<Vec<Value>, ScriptError> {
    run_with(&mut Vm::new(4), text, entry, globals, args, &Budget::POLICY).result
}
fn map(pairs: &[(&str, Value)]) -> Value {
    Value::Map(
        pairs
            .iter()
            .map(|(key, value)| (key.as_bytes().to_vec().into(), value.clone()))
            .collect::<BTreeMap<_, _>>(),
    )
}

#[test]
fn values_go_in_and_come_out_as_they_are() {
    let values = [
        Value::Nil,
        Value::Bool(true),
        Value::Integer(-3),
        Value::Number(2.5),
        "text".into(),
        Value::List(vec![1.into(), Value::List(vec![]), "x".into()]),
        map(&[("a", 1.into()), ("b", map(&[("c", Value::Bool(false))]))]),
    ];
    assert_eq!(
        run("return ...", None, &[], &values).expect("it runs"),
        values
    );
    let sum = run(
        "function add(a, b) return a + b + base end",
        Some("add"),
        &[("base", 10.into())],
        &[1.into(), 2.into()],
    );
    assert_eq!(sum, Ok(vec![Value::Integer(13)]));
    assert_eq!(
        run("return {10, 20, x = 1}", None, &[], &[]),
        Ok(vec![map(&[
            ("1", 10.into()),
            ("2", 20.into()),
            ("x", 1.into())
        ])])
    );
    assert_eq!(
        run("return {[2] = 'b'}", None, &[], &[]),
        Ok(vec![map(&[("2", "b".into())])])
    );
}

#[test]
fn a_balancer_of_the_paper_runs_as_it_is_written() {
    let mds = |load: f64| map(&[("load", load.into())]);
    let globals = [
        ("mds", Value::List(vec![mds(90.5), mds(1.0), mds(2.0)])),
        ("whoami", 1.into()),
        ("targets", Value::List(vec![])),
    ];
    let out = run(
        "targets[whoami + 1] = mds[whoami]['load'] / 2\nreturn targets[2]",
        None,
        &globals,
        &[],
    );
    assert_eq!(out, Ok(vec![Value::Number(45.25)]));
}

#[test]
fn what_has_no_bytes_cannot_be_a_result() {
    let refused = [
        ("return {[{}] = 1}", Kind::Runtime),
        ("return {[print] = 1}", Kind::Runtime),
        ("return {[true] = 1}", Kind::Runtime),
        ("return {[0.5] = 1}", Kind::Number),
        ("return {[1] = 1, ['1'] = 2, x = 1}", Kind::Runtime),
        ("return print", Kind::Runtime),
        ("local t = {} t.t = t return t", Kind::Depth),
        ("return string.rep('x', 100000)", Kind::Output),
        (
            "local t = {} for k = 1, 60000 do t[k] = 1 end return t",
            Kind::Output,
        ),
    ];
    for (text, kind) in refused {
        let error = run(text, None, &[], &[]).expect_err(text);
        assert_eq!(
            (error.kind, error.script.as_str()),
            (kind, "policy"),
            "{text}: {error}"
        );
    }
}

#[test]
fn a_policy_has_no_object_and_says_so_clearly() {
    let error = run("return objclass.read(0, 0)", None, &[], &[]).expect_err("no object");
    assert_eq!(
        error.to_string(),
        "policy:1: attempt to index nil with 'read'"
    );
    let missing = run("x = 1", Some("when"), &[], &[]).expect_err("no entry");
    assert_eq!(missing.kind, Kind::Missing);
    assert!(missing.message.contains("`when`"), "{missing}");
    let broken = Vm::new(1)
        .check(&Chunk::new("policy", "if x then"))
        .expect_err("it is broken");
    assert_eq!((broken.kind, broken.line), (Kind::Syntax, Some(1)));
}

#[test]
fn globals_of_the_host_are_the_script_s_own_copies() {
    let mut vm = Vm::new(4);
    let globals = [("loads", Value::List(vec![1.into(), 2.into()]))];
    for _ in 0..2 {
        let ran = run_with(
            &mut vm,
            "loads[1] = loads[1] + 1 string_leak = 1 return loads[1]",
            None,
            &globals,
            &[],
            &Budget::POLICY,
        );
        assert_eq!(ran.result, Ok(vec![Value::Integer(2)]));
    }
    assert_eq!((vm.stats().cache_hits, vm.stats().cache_misses), (1, 1));
}

#[test]
fn a_policy_is_bounded_like_a_class() {
    let mut vm = Vm::new(4);
    let budget = Budget {
        instructions: 1000,
        ..Budget::POLICY
    };
    let looping = run_with(
        &mut vm,
        "print('on') while true do end",
        None,
        &[],
        &[],
        &budget,
    );
    assert_eq!(
        looping.result.expect_err("endless").kind,
        Kind::Instructions
    );
    assert_eq!(
        (looping.instructions, looping.log),
        (1001, vec![(Severity::Debug, "on".to_owned())])
    );
    let large = run_with(
        &mut vm,
        "return #string.rep('x', 9 * 2^20)",
        None,
        &[],
        &[],
        &Budget::POLICY,
    );
    assert_eq!(large.result.expect_err("too large").kind, Kind::Memory);
    let fine = run_with(&mut vm, "return 1", None, &[], &[], &budget);
    assert_eq!(fine.result, Ok(vec![Value::Integer(1)]));
    assert!(fine.instructions < 20);
    // A script that fails before it runs has used nothing.
    let broken = run_with(&mut vm, "return (", None, &[], &[], &budget);
    assert_eq!(
        (broken.instructions, broken.result.expect_err("broken").kind),
        (0, Kind::Syntax)
    );
    let inexact = run_with(
        &mut vm,
        "return 1",
        None,
        &[("big", i64::MAX.into())],
        &[],
        &budget,
    );
    assert_eq!(
        (
            inexact.instructions,
            inexact.result.expect_err("inexact").kind
        ),
        (0, Kind::Number)
    );
}

// Fails when `is_raised` always returns true, and when it always returns false.
#[test]
fn what_a_script_raises_is_told_from_what_befalls_it() {
    let raised = |script: &str| run(script, None, &[], &[]).expect_err("fails").raised;
    for script in [
        "error('no')",
        "error('no', 0)",
        "error(-5)",
        "error({})",
        "assert(false, 'no')",
        "assert(nil)",
        "local function f() error('no', 2) end f()",
        "local ok, e = pcall(error, 'no') error(e, 0)",
    ] {
        assert!(raised(script), "{script}");
    }
    for script in [
        "local x = nil; x.y = 1",
        "string.rep()",
        "tostring()",
        "while true do end",
        "local function f() return f() + 1 end f()",
        "return ('x'):rep(1e9)",
        "return nacre.u64.add('x', 1)",
    ] {
        assert!(!raised(script), "{script}");
    }
}

#[test]
fn a_run_says_where_its_entry_begins() {
    let script = "local x = 1\n\nfunction f()\n  return false\nend";
    let chunk = Chunk::new("s", script);
    let mut vm = Vm::new(1);
    let mut line = |entry| {
        vm.run(&Run {
            chunk: &chunk,
            entry,
            globals: &[],
            args: &[],
            seed: 0,
            budget: &Budget::POLICY,
        })
        .entry_line
    };
    assert_eq!(
        (line(Some("f")), line(Some("g")), line(None)),
        (Some(3), None, None)
    );
}

/// Library functions that work long within one step are charged by size, above the size at which
/// they take as long as a step. Each line fails without its charge.
#[test]
fn what_works_long_in_one_step_is_charged_by_its_size() {
    let cost = |setup: &str, call: &str| {
        let text = format!("local n = ... {setup} {call}");
        let ran = |n: i64, text: &str| {
            let ran = run_with(
                &mut Vm::new(4),
                text,
                None,
                &[],
                &[n.into()],
                &Budget::POLICY,
            );
            ran.result.expect(call);
            ran.instructions
        };
        let of = |n| ran(n, &text) - ran(n, &format!("local n = ... {setup}"));
        (of(4), of(6000))
    };
    let mut wrong = Vec::new();
    let string = "local s = string.rep('x', n)";
    let numbers = "local t = table.create(n, 1)";
    for (setup, call, least) in [
        ("", "string.rep('x', n)", 11),
        ("", "string.pack('c6000', 'x')", 46),
        (string, "s:upper()", 187),
        (string, "s:lower()", 187),
        (string, "s:reverse()", 187),
        (string, "utf8.len(s)", 93),
        (string, "tonumber(s)", 93),
        (string, "s:byte(1, -1)", 375),
        (string, "utf8.codepoint(s, 1, -1)", 375),
        (string, "s:split('')", 3000),
        (string, "load(s)", 6000),
        (numbers, "table.concat(t)", 3000),
        (numbers, "table.find(t, 2)", 187),
        (numbers, "table.unpack(t)", 93),
        (numbers, "table.sort(t)", 4700),
        (
            "local t = {} for k = 1, n do t[k] = k end",
            "table.sort(t, rawequal)",
            15_000,
        ),
        (numbers, "table.maxn(t)", 6000),
        (numbers, "string.char(table.unpack(t))", 843),
        (numbers, "utf8.char(table.unpack(t))", 843),
        (
            "local t, p = table.create(n, 1), string.rep('%d', n)",
            "string.format(p, table.unpack(t))",
            500_000,
        ),
        (
            "local p = if n > 9 then '%.99f' else '%.2f'",
            "string.format(p, if n > 9 then 1e308 else 1)",
            20,
        ),
        (
            "local function g(n) if n > 0 then pcall(g, n - 1) end end n = n // 60",
            "g(n)",
            8000,
        ),
    ] {
        let (short, long) = cost(setup, call);
        if short > 100 && !call.contains("c6000") || long < least {
            wrong.push(format!(
                "{call}: {short} for little, {long} for much, which is at least {least}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A script that catches is charged: unwinding takes time, however little was done before.
    let caught =
        |text: &str| run_with(&mut Vm::new(4), text, None, &[], &[], &Budget::POLICY).instructions;
    assert!(caught("pcall(error, 1)") >= caught("pcall(rawequal, 1, 1)") + 8);
}

#[test]
fn what_is_allocated_in_total_is_bounded_by_itself() {
    let budget = Budget {
        churn: 4 << 20,
        ..Budget::POLICY
    };
    let text = |rounds: u32| {
        format!("local s = string.rep('x', 500000) for k = 1, {rounds} do local t = s .. k end")
    };
    let ran = |rounds, budget: &Budget| {
        run_with(&mut Vm::new(4), &text(rounds), None, &[], &[], budget).result
    };
    assert_eq!(ran(4, &budget), Ok(vec![]));
    let error = ran(40, &budget).expect_err("20 MB are made");
    assert_eq!(
        (error.kind, error.message.contains("4194304 bytes in total")),
        (Kind::Memory, true),
        "{error}"
    );
    assert_eq!(ran(40, &Budget::POLICY), Ok(vec![]));
}
