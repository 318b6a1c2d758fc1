//! The text form of traces, and that a run gives the same result everywhere.

use nacre_mantle::*;

#[test]
fn every_generated_trace_is_read_as_it_was_written() {
    for (name, shape) in SHAPES {
        let trace = generate(*shape, 3, 7);
        let text = trace.to_text();
        assert_eq!(Trace::parse(&text), Ok(trace), "{name}");
        assert_eq!(
            text,
            generate(*shape, 3, 7).to_text(),
            "{name}: same seed, same bytes"
        );
        assert_ne!(
            text,
            generate(*shape, 3, 8).to_text(),
            "{name}: another seed"
        );
    }
}

#[test]
fn the_keyspace_has_the_published_figures() {
    let trace::Recorded::Cache { ticks } = generate(Shape::Keyspace, 1, 1).recorded else {
        panic!("a cache")
    };
    let rate = |range: std::ops::Range<usize>| {
        ticks[range.clone()].iter().map(|t| t.gets).sum::<f64>() / range.len() as f64
    };
    assert!((rate(0..60) - 610.0).abs() < 10.0 && (rate(540..1500) - 210.0).abs() < 5.0);
    let keys: f64 = ticks.iter().map(|tick| tick.new_keys).sum();
    assert!((keys - 55_398.0).abs() < 60.0, "{keys}");
}

#[test]
fn wrong_lines_are_named_with_the_reason() {
    let head = r#"{"trace":1,"kind":"ranks","ranks":2,"units":[{"name":"a"}]}"#;
    let bad = [
        (String::new(), 1, "empty"),
        ("x".into(), 1, "no JSON"),
        ("[]".into(), 1, "a JSON object"),
        ("{}".into(), 1, "nacre policy trace"),
        (r#"{"trace":1}"#.into(), 1, "kind"),
        (head.into(), 1, "no tick"),
        (head.replace("\"ranks\":2", "\"ranks\":0"), 1, "ranks is 0"),
        (
            head.replace("\"ranks\":2", "\"ranks\":2,\"speed\":1"),
            1,
            "no field `speed`",
        ),
        (
            head.replace("{\"name\":\"a\"}", "{\"name\":\"a\"},{\"name\":\"a\"}"),
            1,
            "two units",
        ),
        (
            head.replace("\"name\":\"a\"", "\"name\":\"a\",\"rank\":2"),
            1,
            "does not exist",
        ),
        (
            format!("{head}\n\n{{\"loads\":{{\"b\":1}}}}"),
            3,
            "unit `b`",
        ),
        (
            format!("{head}\n{{\"loads\":{{\"a\":-1}}}}"),
            2,
            "`a` is -1",
        ),
        (format!("{head}\n{{\"down\":[5]}}"), 2, "no rank 5"),
        (format!("{head}\n{{\"load\":1}}"), 2, "no field `load`"),
    ];
    for (text, line, why) in bad {
        let error = Trace::parse(&text).expect_err(&text);
        assert!(
            error.line == line && error.why.contains(why),
            "{text}: {error}"
        );
    }
    assert!(Trace::parse(&format!("{head}\n{{}}\n")).is_ok());
}

#[test]
fn units_of_a_rank_that_goes_down_are_taken_over_and_nothing_goes_there() {
    let text = r#"{"trace":1,"kind":"ranks","ranks":3,"units":[{"name":"a","rank":1,"load":4},{"name":"b","rank":1,"load":4},{"name":"c","load":1}]}
{}
{"down":[1]}
{}
{"up":[1]}
"#;
    let spill = "for rank, entry in pairs(mds) do if entry.load == 0 then targets[rank] = mds[whoami].load / 2 break end end";
    let mut model = Model::new(
        Trace::parse(text).expect("fine"),
        None,
        "p",
        spill,
        Options::default(),
    );
    for _ in 0..2 {
        model.step();
    }
    assert!(
        model.units().all(|(_, rank, _)| rank != Rank(1)),
        "{:?}",
        model.units().collect::<Vec<_>>()
    );
    let report = model.step();
    assert!(
        report.steps.iter().all(|step| step.to == Rank(2)) && report.decisions.len() == 2,
        "{report:?}"
    );
}

#[test]
fn thrashing_is_flagged_and_damped() {
    // The rank that has the load gives all of it away: the policy of upstream's bug reports.
    let thrash = "nacre.mode('proxy') local to = whoami == 0 and 1 or 0 if mds[whoami].load > 0 then targets[to] = mds[whoami].load end";
    let run = |options: Options| {
        let trace = generate(Shape::Sequencers, 2, 1);
        Model::new(trace, None, "thrash", thrash, options).run(60, |_| {})
    };
    let damped = run(Options::default());
    let bare = run(Options {
        rest_ticks: 0,
        return_ticks: 0,
        ..Options::default()
    });
    assert!(
        damped.is_bad() && !damped.ping_pong.is_empty(),
        "{damped:?}"
    );
    assert!(
        bare.moves > 3 * damped.moves,
        "without the mechanism {} moves, with it {}",
        bare.moves,
        damped.moves
    );
    let calm = run(Options {
        return_ticks: 200,
        ..Options::default()
    });
    assert_eq!((calm.ping_pong.len(), calm.moves), (0, 3));
}
