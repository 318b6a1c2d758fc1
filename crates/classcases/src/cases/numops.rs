//! `numops`: exact integers, or refused.

use super::Promise;
use crate::{Change, Desk, Host, property};
use nacre_policy::{INTEGER_MAX, errno};
use proptest::prelude::*;

const LAST: i128 = INTEGER_MAX as i128;

pub const CASES: &[Promise] = &[
    ("results are exact or refused", results_are_exact_or_refused),
    ("what is no number is refused", what_is_no_number_is_refused),
];

fn results_are_exact_or_refused(host: &mut dyn Host) {
    let first = prop_oneof![
        -100..100_i64,
        -INTEGER_MAX..=INTEGER_MAX,
        Just(INTEGER_MAX),
        Just(-INTEGER_MAX)
    ];
    let second = prop_oneof![
        -100..100_i64,
        -INTEGER_MAX..=INTEGER_MAX,
        Just(INTEGER_MAX),
        Just(1)
    ];
    let method = proptest::sample::select(vec!["add", "sub", "mul", "div", "min", "max"]);
    property(
        host,
        200,
        (first, second, method),
        |host, (first, second, method)| {
            let mut desk = Desk::new(host, "numops");
            desk.ok("add", &format!("n {first}"));
            let (a, b) = (i128::from(first), i128::from(second));
            let exact = match method {
                "add" => Ok(a + b),
                "sub" => Ok(a - b),
                "mul" => Ok(a * b),
                "div" if b == 0 => Err(errno::EINVAL),
                "div" if a % b != 0 => Err(errno::ERANGE),
                "div" => Ok(a / b),
                "min" => Ok(a.min(b)),
                _ => Ok(a.max(b)),
            };
            let exact = exact.and_then(|n| {
                if n.abs() <= LAST {
                    Ok(n)
                } else {
                    Err(errno::ERANGE)
                }
            });
            prop_assert_eq!(
                desk.say(method, &format!("n {second}")).map(|_| ()),
                exact.map(|_| ())
            );
            prop_assert_eq!(desk.ok("get", "n"), exact.unwrap_or(a).to_string());
            Ok(())
        },
    );
}

fn what_is_no_number_is_refused(host: &mut dyn Host) {
    let mut desk = Desk::new(host, "numops");
    for input in [
        "",
        "n",
        "n x",
        "n 1.5",
        "n 0x10",
        "n 1e3",
        "n 9007199254740992",
        "n -9007199254740992",
        "n 99999999999999999999",
        "n 1 2",
        "n inf",
        " n 1",
    ] {
        assert_eq!(desk.say("add", input), Err(errno::EINVAL), "{input}");
    }
    desk.ok("add", "k 5");
    desk.host.change(Change::SetKey("k", b"five".to_vec()));
    assert_eq!(
        desk.say("add", "k 1"),
        Err(errno::EIO),
        "what another wrote is not taken for 0"
    );
    assert_eq!(desk.say("get", "k"), Err(errno::EIO));
    assert_eq!(desk.say("get", "a b"), Err(errno::EINVAL));
    assert_eq!(desk.ok("get", "never"), "0");
}
