//! `nacre history check`.

use super::{nacre, prints, scratch};
use std::fs;

const GOOD: &str = r#"{"client":1,"op":"write","key":"a","value":7,"invoke_ns":1,"return_ns":9}
{"client":2,"op":"read","key":"a","invoke_ns":3,"return_ns":8,"result":7}
{"client":3,"op":"cas","key":"a","expect":7,"value":8,"invoke_ns":10,"return_ns":19,"result":true}
{"client":4,"op":"write","key":"a","value":9,"invoke_ns":3,"unknown":true}
"#;
/// The second read returns a value older than one that was already read.
const BAD: &str = r#"{"client":1,"op":"write","key":"a","value":7,"invoke_ns":1,"return_ns":9}
{"client":2,"op":"read","key":"a","invoke_ns":10,"return_ns":12,"result":7}
{"client":2,"op":"read","key":"a","invoke_ns":13,"return_ns":14,"result":null}
"#;

fn file(name: &str, text: &str) -> String {
    let file = scratch(name);
    fs::write(&file, text).expect("writable");
    file.to_str().expect("readable").to_owned()
}

#[test]
fn a_linearizable_history_passes() {
    let file = file("good.history", GOOD);
    assert_eq!(
        prints(["history", "check", &file]),
        "linearizable: 4 operations\n"
    );
    let json: serde_json::Value =
        serde_json::from_str(&prints(["--json", "history", "check", &file])).expect("JSON");
    assert_eq!(json["linearizable"], true);
}

#[test]
fn one_that_is_not_ends_with_1_and_says_where() {
    let file = file("bad.history", BAD);
    let output = nacre(["history", "check", &file]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("`a` is not linearizable"), "{said}");
    let output = nacre(["history", "check", "--json", &file]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&json["linearizable"], &json["violations"][0]["key"]),
        (&false.into(), &"a".into())
    );
}

#[test]
fn what_is_no_history_is_refused_rather_than_passed() {
    for (name, text, part) in [
        ("empty", "\n", "nothing was checked"),
        ("torn", &GOOD[..100], "line 2"),
    ] {
        let output = nacre(["history", "check", &file(&format!("{name}.history"), text)]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(1) && error.contains(part),
            "{name}: {error}"
        );
    }
}
