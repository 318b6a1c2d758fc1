//! Operators on long strings: each reads one from end to end, and no safepoint stands between two of
//! them, so that neither a count nor a clock ends them. (Reading.) A text of `-s-s-s…` with a string
//! of a megabyte held a daemon's own thread for as long as it had operators, and the leading monitor
//! when a class was installed.

use crate::model::{Caller, Model};
use nacre_policy::*;
use std::sync::Arc;

/// The budget of a daemon's own thread.
const OWN_THREAD: Budget =
    Budget { instructions: 20_000, memory: 1 << 20, churn: 8 << 20, operator_bytes: 128 << 20, ..Budget::CLASS };

/// A class of which a method works on a string of so many bytes with so many operators.
fn class(bytes: usize, operators: usize) -> String {
    let work = " t[1]=-s".repeat(operators);
    format!("local t = {{}} function f(i, o) local s = ('0'):rep({bytes}) {work} end objclass.register(f)")
}

fn kind(at: &mut Caller, script: &str) -> Option<Kind> {
    at.on(&mut Model::with("base"), script, "f", b"").error.map(|error| error.kind)
}

#[test]
fn who_has_many_operators_may_have_only_short_strings() {
    let mut at = Caller::new();
    at.budget = OWN_THREAD;
    for (bytes, operators, expected) in [
        (900 << 10, 100, None),
        (900 << 10, 1000, Some(Kind::Memory)),
        (50 << 10, 1000, None),
        (900 << 10, 2000, Some(Kind::Memory)),
        (1, 2000, None),
        (1, 3000, Some(Kind::Instructions)),
    ] {
        assert_eq!(kind(&mut at, &class(bytes, operators)), expected, "{operators} on {bytes} bytes");
    }
    // Somebody who has the time does them all.
    at.budget = Budget::CLASS;
    for operators in [100, 1000, 3000] {
        assert_eq!(kind(&mut at, &class(900 << 10, operators)), None, "{operators}");
    }
}

/// What a chunk has as a constant is not in what a call may hold.
#[test]
fn a_long_constant_counts_as_a_string() {
    let mut at = Caller::new();
    at.budget = OWN_THREAD;
    let constant = |bytes: usize| {
        let (zeros, work) = ("0".repeat(bytes), " t[1]=-s".repeat(1000));
        format!("local s, t = '{zeros}', {{}} function f() {work} end objclass.register(f)")
    };
    assert_eq!(kind(&mut at, &constant(10 << 10)), None);
    assert_eq!(kind(&mut at, &constant(200 << 10)), Some(Kind::Instructions));
}

#[test]
fn a_class_that_is_called_by_another_is_bounded_as_well() {
    let mut at = Caller::new();
    at.budget = OWN_THREAD;
    let caller = "
        function plain(i, o) o:append(objclass.call('callee', 'f', '')) end objclass.register(plain)
        function caught(i, o) pcall(objclass.call, 'callee', 'f', '') end objclass.register(caught)
        function held(i, o) local s = ('0'):rep(300 * 1024) objclass.call('callee', 'f', s) end objclass.register(held)";
    let mut ends = |bytes: usize, operators: usize, method: &str| {
        let mut classes = Classes::default();
        classes.insert("caller", 1, ClassRef::Lua(Chunk::new("caller", caller)));
        classes.insert("callee", 2, ClassRef::Lua(Chunk::new("callee", class(bytes, operators))));
        at.classes = Arc::new(classes);
        match at.end(&mut Model::with("base"), Target::Class("caller"), method, b"") {
            CallEnd::Done(outcome) => outcome.error.map(|error| error.kind),
            CallEnd::Wait => panic!("the model has everything at hand"),
        }
    };
    assert_eq!(ends(10, 1000, "plain"), None);
    assert_eq!(ends(200 << 10, 1000, "plain"), Some(Kind::Memory));
    assert_eq!(ends(10, 3000, "plain"), Some(Kind::Instructions));
    assert_eq!(ends(10, 3000, "caught"), Some(Kind::Instructions), "no class goes on after it");
    assert_eq!(ends(10, 100, "held"), None);
    assert_eq!(ends(10, 1000, "held"), Some(Kind::Memory), "its caller's strings may be its own");
}

/// What a leading monitor and each OSD do on their own thread, and no clock may decide.
#[test]
fn a_text_that_could_hold_up_who_checks_it_is_no_class() {
    let check = |text: &str| check_class(&Chunk::new("c", text)).map(drop).map_err(|error| error.kind);
    let top = |bytes: usize, operators: usize| {
        format!("local s, t = ('0'):rep({bytes}), {{}} {}", " t[1]=-s".repeat(operators))
    };
    assert_eq!(check(&top(1 << 20, 400)), Ok(()));
    assert_eq!(check(&top(1 << 20, 4000)), Err(Kind::Memory));
    assert_eq!(check(&top(1000, 16_000)), Ok(()));
    assert_eq!(check(&top(1000, 20_000)), Err(Kind::Instructions));
    // Names that meet in the compiler's tables cost a square.
    let names = |count: usize| (0..count).map(|n| format!("a{n}()\n")).collect::<String>();
    assert_eq!(check(&format!("function never() {} end", names(8000))), Ok(()));
    let error = check_class(&Chunk::new("c", names(9000))).expect_err("too many names");
    assert_eq!(error.kind, Kind::Syntax);
    assert!(error.message.contains("8192 different names"), "{}", error.message);
}

/// After one that was refused before it began, nothing of the call before it is left.
#[test]
fn a_refused_text_leaves_no_trace_of_the_call_before() {
    let mut at = Caller::new();
    at.budget = OWN_THREAD;
    let mut object = Model { absent: vec!["getxattr"], ..Model::with("base") };
    let waits = Chunk::new("t", "function f() objclass.getxattr('a') end objclass.register(f)");
    assert!(matches!(at.end(&mut object, Target::Eval(&waits), "f", b""), CallEnd::Wait));
    assert_eq!(kind(&mut at, &class(1, 3000)), Some(Kind::Instructions));
    assert_eq!(at.vm.used(), 0);
}
