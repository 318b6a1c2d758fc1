//! K-means and regimes: natively and from scripts (PAR-11, PAR-12, PAR-15, UNI-06).

use nacre_policy::regimes::*;
use nacre_policy::*;
use nacre_types::SplitMix64;

/// A run like the paper's: (second, gets/s, keys). Fitted to published figures of a 15,000 s run:
/// 610 gets/s in the first ten minutes, about 210 after 5,400 s, keys put between 600 and 5,400 s,
/// 55,398 at the end. `speed` compresses time, as a faster growth rate does.
fn keyspace(speed: f64, noise_seed: u64) -> Vec<(f64, f64, f64)> {
    let mut random = SplitMix64(noise_seed);
    (0..900)
        .map(|at| {
            let time = f64::from(at) * 10.0;
            let t = time * speed;
            let noise = 1.0 + (random.unit() - 0.5) * 0.1;
            let rate = if t < 600.0 {
                610.0
            } else if t < 5400.0 {
                610.0 - (t - 600.0) / 4800.0 * 400.0
            } else {
                210.0
            };
            let keys = 55_398.0 * ((t - 600.0) / 4800.0).clamp(0.0, 1.0);
            (time, rate * noise, keys)
        })
        .collect()
}
fn free(_: u64) -> bool {
    true
}

#[test]
fn clusters_that_anybody_sees_are_found_and_numbered_by_their_first_coordinate() {
    let mut points = Vec::new();
    for (x, y) in [(100.0, 1.0), (0.0, 2.0), (50.0, 900.0)] {
        for d in 0..20 {
            points.push(vec![x + f64::from(d) * 0.1, y + f64::from(d % 5)]);
        }
    }
    let found = kmeans(&points, 3, 1, &mut free).expect("they are points");
    let expected: Vec<usize> = [2, 0, 1]
        .into_iter()
        .flat_map(|number| [number; 20])
        .collect();
    assert_eq!(found.assigned, expected);
    assert!(
        (found.centres[1][0] - 50.95).abs() < 1e-9 && (found.centres[1][1] - 902.0).abs() < 1e-9,
        "{found:?}"
    );
    assert_eq!(found, kmeans(&points, 3, 1, &mut free).expect("again"));
    // No centre is better than the means of its points.
    assert!(found.inertia < 0.1, "{}", found.inertia);
}

#[test]
fn both_coordinates_weigh_the_same_whatever_their_units() {
    let points: Vec<Vec<f64>> = keyspace(1.0, 3)
        .iter()
        .map(|(t, rate, _)| vec![*t, *rate])
        .collect();
    let in_milliseconds: Vec<Vec<f64>> = points
        .iter()
        .map(|p| vec![p[0] * 1024.0, p[1] / 64.0])
        .collect();
    let [a, b] = [points, in_milliseconds]
        .map(|points| kmeans(&points, 4, 0, &mut free).expect("points").assigned);
    assert_eq!(a, b);
}

#[test]
fn the_third_regime_of_a_run_starts_where_the_rate_has_come_down() {
    for (speed, from, to) in [(1.0, 3800.0, 5600.0), (2.0, 1900.0, 5000.0)] {
        let run = keyspace(speed, 11);
        let points: Vec<(f64, f64)> = run.iter().map(|(t, rate, _)| (*t, *rate)).collect();
        let found = regimes(&points, 4, 0, &mut free).expect("points");
        assert_eq!(found.len(), 4);
        let third = found[2];
        assert!(
            (from..to).contains(&third.start),
            "speed {speed}: {found:?}"
        );
        assert!(third.rate < 0.6 * found[0].rate, "{found:?}");
        let keys = run[third.first].2;
        assert!(
            (35_000.0..=55_398.0).contains(&keys),
            "speed {speed}: {keys} keys"
        );
    }
}

#[test]
fn the_stream_decides_within_minutes_of_the_last_change() {
    let run = keyspace(1.0, 5);
    let mut stream = Stream::default();
    let mut settled = None;
    for (time, rate, _) in &run {
        stream.push(*time, *rate, Sensitivity::default());
        // The decision of the library's regime_cache: ten minutes without a new regime, at most 60
        // % of the rate of the first one.
        if settled.is_none()
            && time - stream.start >= 600.0
            && stream.rate <= 0.6 * stream.first_rate
        {
            settled = Some((*time, stream.start));
        }
    }
    let (decided, start) = settled.expect("it settles");
    let offline: Vec<(f64, f64)> = run.iter().map(|(t, rate, _)| (*t, *rate)).collect();
    let third = regimes(&offline, 4, 0, &mut free).expect("points")[2].start;
    assert!(
        (3000.0..=5400.0).contains(&start) && (start - third).abs() < 1500.0,
        "stream {start}, offline {third}"
    );
    assert!(
        decided - start <= 660.0,
        "decided {decided}, started {start}"
    );
}

#[test]
fn single_outliers_begin_no_regime_and_the_state_survives_storing() {
    let mut stream = Stream::default();
    for at in 0..100_u32 {
        let rate = if at % 10 == 9 { 500.0 } else { 100.0 };
        stream.push(f64::from(at), rate, Sensitivity::default());
        stream = Stream::from_bytes(&stream.to_bytes()).expect("its own bytes");
    }
    assert_eq!((stream.regime, stream.start), (1, 0.0));
    for at in 100..110_u32 {
        stream.push(f64::from(at), 40.0, Sensitivity::default());
    }
    assert_eq!((stream.regime, stream.start), (2, 100.0));
    assert_eq!(Stream::from_bytes(&[0; 3]), None);
    assert_eq!(
        Stream::from_bytes(&[0xff; STATE_BYTES]),
        None,
        "not a number"
    );
}

#[test]
fn what_cannot_be_clustered_is_refused_with_a_reason() {
    let bad: [(&[Vec<f64>], usize, &str); 5] = [
        (&[vec![1.0]], 2, "1 points for 2 clusters"),
        (&[vec![1.0]], 0, "0 clusters"),
        (&[vec![1.0], vec![1.0, 2.0]], 1, "point 2 has 2 coordinates"),
        (&[vec![f64::NAN]], 1, "NaN"),
        (&[vec![]], 1, "0 coordinates"),
    ];
    for (points, k, why) in bad {
        let refused = kmeans(points, k, 0, &mut free).expect_err(why).to_string();
        assert!(refused.contains(why), "{refused}");
    }
    // Equal points, more clusters than distinct points: no division by zero.
    let same = kmeans(&vec![vec![5.0, 5.0]; 9], 4, 0, &mut free).expect("fine");
    assert!(same.centres.iter().flatten().all(|x| *x == 5.0), "{same:?}");
}

fn script(text: &str, budget: &Budget) -> Ran {
    let chunk = Chunk::new("p", text);
    Vm::new(1).run(&Run {
        chunk: &chunk,
        entry: None,
        globals: &[],
        args: &[],
        seed: 0,
        budget,
    })
}

#[test]
fn scripts_call_it_and_pay_for_it() {
    let text = "local p = {} for i = 1, 400 do p[i] = {i, i <= 200 and 100 or 10} end
        local n, c = nacre.kmeans(p, 2) local r = nacre.regimes(p, 2)
        local s, now for i = 1, 400 do s, now = nacre.regime(s, i, p[i][2]) end
        return n[1], n[400], string.format('%.3f', c[2][1]), r[2].start, r[2].first, now.number, now.start, #s";
    let ran = script(text, &Budget::POLICY);
    let expected = [
        1.into(),
        2.into(),
        "300.500".into(),
        201.into(),
        201.into(),
        2.into(),
        201.into(),
        64.into(),
    ];
    assert_eq!(ran.result, Ok(expected.to_vec()));
    // 2 clusters × 2 coordinates × 400 points, at least eight starts of two rounds, twice.
    assert!(ran.instructions > 2 * 8 * 2 * 100, "{}", ran.instructions);
    let poor = script(
        text,
        &Budget {
            instructions: 5000,
            ..Budget::POLICY
        },
    );
    assert_eq!(
        poor.result.expect_err("it costs more").kind,
        Kind::Instructions
    );
    let caught = script(
        "while true do pcall(nacre.kmeans, {{1}, {2}}, 1) end",
        &Budget::POLICY,
    );
    assert_eq!(caught.result.expect_err("endless").kind, Kind::Instructions);
}

#[test]
fn scripts_that_call_it_wrongly_are_told_where() {
    for (text, why) in [
        ("\nnacre.kmeans(3, 2)", "p:2: a list of points is needed"),
        ("nacre.kmeans({{1}, 'x'}, 1)", "point 2 is not a table"),
        ("nacre.kmeans({{1}, {0/0}}, 1)", "NaN"),
        ("nacre.kmeans({{1}, {'a'}}, 1)", "coordinate 1 of point 2"),
        ("nacre.kmeans({{1}}, -1)", "negative"),
        ("nacre.regimes({{1}}, 1)", "a point is {time, rate}"),
        ("nacre.regime('xyz', 1, 1)", "start with nil"),
        (
            "nacre.regime(nil, 0/0, 1)",
            "the time must be a finite number",
        ),
    ] {
        let error = script(text, &Budget::POLICY)
            .result
            .expect_err(text)
            .to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn a_driver_runs_the_script_and_stays_out_of_its_errors() {
    let driver = Chunk::new(
        "[nacre.test]",
        "local main, by = ... main() return answer * by",
    );
    let run = |text: &str| {
        let chunk = Chunk::new("p", text);
        let run = Run {
            chunk: &chunk,
            entry: None,
            globals: &[("base", 5.into())],
            args: &[3.into()],
            seed: 0,
            budget: &Budget::POLICY,
        };
        Vm::new(2).drive(&driver, &run).result
    };
    assert_eq!(run("answer = base + 1"), Ok(vec![Value::Integer(18)]));
    let error = run("\nerror('no')").expect_err("it fails");
    assert_eq!(
        (error.to_string().as_str(), error.stack.len()),
        ("p:2: no", 1)
    );
}
