//! Policies on recorded load, without a cluster.

use super::errors::fails;
use super::{nacre, prints, scratch};
use std::fs;
use std::path::PathBuf;

fn file(folder: &str, name: &str, text: &str) -> PathBuf {
    let path = scratch(folder).join(name);
    fs::create_dir_all(scratch(folder)).expect("a scratch folder");
    fs::write(&path, text).expect("the scratch folder takes it");
    path
}
/// Standard output and exit code.
fn run(arguments: &[&str]) -> (String, i32) {
    let output = nacre(arguments);
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    (
        String::from_utf8(output.stdout).expect("text"),
        output.status.code().expect("it was not killed"),
    )
}

#[test]
fn a_policy_is_tested_explained_and_judged_by_its_exit_code() {
    let trace = file(
        "policies",
        "load.trace",
        &prints(["policy", "trace", "hot-spot", "--ranks", "4"]),
    );
    let trace = trace.to_str().expect("readable");
    let good = file(
        "policies",
        "adaptable.lua",
        &prints(["policy", "library", "adaptable"]),
    );
    let (text, code) = run(&[
        "policy",
        "test",
        good.to_str().expect("readable"),
        "--trace",
        trace,
    ]);
    assert_eq!(code, 0, "{text}");
    for part in [
        "tick 1: load 0: ",
        "imbalance 300 %",
        "rank 0 asks for ",
        "rank 0 moves dir",
        "moves: ",
        "ping-pong: 0",
        "fine\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (text, code) = run(&[
        "policy",
        "explain",
        good.to_str().expect("readable"),
        "--trace",
        trace,
        "--tick",
        "1",
    ]);
    assert!(
        code == 0 && text.contains("Metrics in\nRANK") && text.contains("  weighs 0: "),
        "{text}"
    );
    assert!(
        text.contains("Rank 3") && text.contains("  asks for nothing"),
        "{text}"
    );
    assert!(
        text.contains("Cluster log: ") || !text.contains("failed"),
        "{text}"
    );

    let bad = file(
        "policies",
        "bad.lua",
        "BAL_LOG(0, 'tick '..nacre.tick)\nif nacre.tick == 3 then targets[1] = 0/0 end\n",
    );
    let bad = bad.to_str().expect("readable");
    let (text, code) = run(&["policy", "test", bad, "--trace", trace, "--summary"]);
    assert!(
        code == 1
            && text.contains("FAILED 4 times, first at tick 3 on rank 0: bad version 1: the target of rank 1 is NaN"),
        "{text}"
    );
    assert!(
        text.ends_with("do not activate it\n") && !text.contains("tick 1: load"),
        "{text}"
    );
    let (text, code) = run(&["policy", "explain", bad, "--trace", trace, "--tick", "3"]);
    assert!(
        code == 1 && text.contains("(targets are set at line 2)") && text.contains("said: tick 3"),
        "{text}"
    );
    assert!(
        text.contains("Cluster log: balancer of rank 0: policy refused, position held"),
        "{text}"
    );

    let thrash = file(
        "policies",
        "thrash.lua",
        "nacre.mode('proxy') local to = whoami == 0 and 1 or 0 targets[to] = mds[whoami].load",
    );
    let (text, code) = run(&[
        "--json",
        "policy",
        "test",
        thrash.to_str().expect("readable"),
        "--trace",
        trace,
    ]);
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert!(
        code == 1 && value["summary"]["bad"] == true && value["summary"]["failed"] == 0,
        "{}",
        value["summary"]
    );
    assert!(value["summary"]["ping_pong"].as_u64() > Some(0));
    assert_eq!(value["ticks"].as_array().map(Vec::len), Some(60));
    assert!(value["ticks"][0]["decisions"][0]["moves"][0]["units"].is_array());
}

#[test]
fn a_cache_policy_is_tested_on_a_keyspace() {
    let trace = file(
        "policies-cache",
        "keys.trace",
        &prints(["policy", "trace", "keyspace"]),
    );
    let policy = file(
        "policies-cache",
        "regime.lua",
        &prints(["policy", "library", "regime_cache"]),
    );
    let run_it = |more: &[&str]| {
        let base = [
            "policy",
            "test",
            policy.to_str().expect("readable"),
            "--trace",
            trace.to_str().expect("readable"),
        ];
        run(&[&base[..], more].concat())
    };
    let (text, code) = run_it(&["--summary"]);
    assert!(
        code == 0 && text.contains("bounded at tick ") && text.ends_with("fine\n"),
        "{text}"
    );
    let (text, _) = run_it(&["--ticks", "50"]);
    assert!(
        text.contains("50 ticks") && text.contains("never bounded"),
        "{text}"
    );
}

#[test]
fn what_is_wrong_with_a_test_is_one_line() {
    let policy = file("policies-errors", "p.lua", "targets = {}");
    let policy = policy.to_str().expect("readable");
    let (error, code) = fails(&["policy", "test", policy, "--trace", "/nowhere"]);
    assert!(
        code == 1 && error.contains("/nowhere cannot be read"),
        "{error}"
    );
    let (error, _) = fails(&["policy", "test", policy, "--trace", policy]);
    assert!(
        error.contains("is no trace") && error.contains("line 1 of the trace"),
        "{error}"
    );
    let (error, _) = fails(&["policy", "trace", "storm"]);
    assert!(error.contains("flash-crowd"), "{error}");
    let (error, _) = fails(&["policy", "library", "none"]);
    assert!(error.contains("nacre policy library"), "{error}");
    let trace = file(
        "policies-errors",
        "t",
        &prints(["policy", "trace", "drift"]),
    );
    let trace = trace.to_str().expect("readable");
    let (error, _) = fails(&["policy", "test", policy, "--trace", trace, "--ranks", "2"]);
    assert!(error.contains("--ranks can only add"), "{error}");
    let (error, _) = fails(&[
        "policy", "explain", policy, "--trace", trace, "--tick", "61",
    ]);
    assert!(error.contains("there are 60 ticks"), "{error}");
    let listed = prints(["policy", "library"]);
    assert!(
        listed.contains("greedy_spill") && listed.contains("regime_cache"),
        "{listed}"
    );
}
