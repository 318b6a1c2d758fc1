//! Operators on long strings: each reads one from end to end, and there is no safepoint between two
//! of them, so that neither a count nor a clock ends them. (Found by reading.) A text of `-s-s-s…`
//! with a string of a megabyte blocked a daemon's own thread for a time proportional to its number
//! of operators, and the leading monitor when a class was installed.

use crate::model::{Caller, Model};
use nacre_policy::*;
use std::sync::Arc;

/// A budget like that of a daemon's own thread.
const OWN_THREAD: Budget = Budget {
    instructions: 20_000,
    memory: 1 << 20,
    churn: 8 << 20,
    operator_bytes: 128 << 20,
    ..Budget::CLASS
};

/// A class with a method that applies this number of operators to a string of this many bytes.
fn class(bytes: usize, operators: usize) -> String {
    let work = " t[1]=-s".repeat(operators);
    format!(
        "local t = {{}} function f(i, o) local s = ('0'):rep({bytes}) {work} end objclass.register(f)"
    )
}

fn kind(at: &mut Caller, script: &str) -> Option<Kind> {
    at.on(&mut Model::with("base"), script, "f", b"")
        .error
        .map(|error| error.kind)
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
        assert_eq!(
            kind(&mut at, &class(bytes, operators)),
            expected,
            "{operators} on {bytes} bytes"
        );
    }
    // A caller with enough time executes them all.
    at.budget = Budget::CLASS;
    for operators in [100, 1000, 3000] {
        assert_eq!(
            kind(&mut at, &class(900 << 10, operators)),
            None,
            "{operators}"
        );
    }
}

/// A chunk's constants do not count as the call's memory.
#[test]
fn a_long_constant_counts_as_a_string() {
    let mut at = Caller::new();
    at.budget = OWN_THREAD;
    let constant = |bytes: usize, operators: usize| {
        let (zeros, work) = ("0".repeat(bytes), " t[1]=-s".repeat(operators));
        format!("local s, t = '{zeros}', {{}} function f() {work} end objclass.register(f)")
    };
    assert_eq!(kind(&mut at, &constant(10, 1900)), None);
    assert_eq!(kind(&mut at, &constant(40 << 10, 1000)), None);
    assert_eq!(
        kind(&mut at, &constant(40 << 10, 1900)),
        Some(Kind::Instructions)
    );
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
        classes.insert(
            "callee",
            2,
            ClassRef::Lua(Chunk::new("callee", class(bytes, operators))),
        );
        at.classes = Arc::new(classes);
        match at.end(
            &mut Model::with("base"),
            Target::Class("caller"),
            method,
            b"",
        ) {
            CallEnd::Done(outcome) => outcome.error.map(|error| error.kind),
            CallEnd::Wait => panic!("the model has everything at hand"),
        }
    };
    assert_eq!(ends(10, 1000, "plain"), None);
    assert_eq!(ends(200 << 10, 1000, "plain"), Some(Kind::Memory));
    assert_eq!(ends(10, 3000, "plain"), Some(Kind::Instructions));
    assert_eq!(
        ends(10, 3000, "caught"),
        Some(Kind::Instructions),
        "no class goes on after it"
    );
    assert_eq!(ends(10, 100, "held"), None);
    assert_eq!(
        ends(10, 1000, "held"),
        Some(Kind::Memory),
        "its caller's strings may be its own"
    );
}

/// The checks that a leading monitor and each OSD run on their own thread, where no clock may
/// decide.
#[test]
fn a_text_that_could_hold_up_who_checks_it_is_no_class() {
    let check = |text: &str| {
        check_class(&Chunk::new("c", text))
            .map(drop)
            .map_err(|error| error.kind)
    };
    let top = |bytes: usize, operators: usize| {
        format!(
            "local s, t = ('0'):rep({bytes}), {{}} {}",
            " t[1]=-s".repeat(operators)
        )
    };
    assert_eq!(check(&top(1 << 20, 120)), Ok(()));
    assert_eq!(check(&top(1 << 20, 4000)), Err(Kind::Memory));
    assert_eq!(check(&top(1000, 4_000)), Ok(()));
    assert_eq!(check(&"--*****\n".repeat(2_000)), Err(Kind::Instructions));
    assert_eq!(check(&"-- 64 KiB\n".repeat(7_000)), Err(Kind::Syntax));
}

/// After a call that was refused before it began, nothing of the call before it is left.
#[test]
fn a_refused_text_leaves_no_trace_of_the_call_before() {
    let mut at = Caller::new();
    at.budget = OWN_THREAD;
    let mut object = Model {
        absent: vec!["getxattr"],
        ..Model::with("base")
    };
    let waits = Chunk::new(
        "t",
        "function f() objclass.getxattr('a') end objclass.register(f)",
    );
    assert!(matches!(
        at.end(&mut object, Target::Eval(&waits), "f", b""),
        CallEnd::Wait
    ));
    assert_eq!(kind(&mut at, &class(1, 3000)), Some(Kind::Instructions));
    assert_eq!(at.vm.used(), 0);
}

/// A callee's limit applies to the callee only.
#[test]
fn a_caller_may_hold_again_what_it_might_before_its_callee() {
    let mut at = Caller::new();
    at.budget = OWN_THREAD;
    let mut classes = Classes::default();
    let caller = "function f(i, o) objclass.call('callee', 'f', '') local s = ('0'):rep(500 * 1024) o:append(#s) end
        objclass.register(f)";
    classes.insert("caller", 1, ClassRef::Lua(Chunk::new("caller", caller)));
    classes.insert(
        "callee",
        2,
        ClassRef::Lua(Chunk::new("callee", class(10, 1000))),
    );
    at.classes = Arc::new(classes);
    match at.end(&mut Model::with("base"), Target::Class("caller"), "f", b"") {
        CallEnd::Done(outcome) => {
            assert_eq!((outcome.error, &outcome.output[..]), (None, &b"512000"[..]))
        }
        CallEnd::Wait => panic!("the model has everything at hand"),
    }
}

/// Operators of a text loaded by a text count too.
#[test]
fn a_loaded_text_is_bounded_as_well() {
    let mut at = Caller::new();
    at.budget = OWN_THREAD;
    let load = |bytes: usize, operators: usize| {
        format!(
            "function f(i, o) local s = ('0'):rep({bytes})
             load('local s, t = ..., {{}} ' .. (' t[1]=-s'):rep({operators}))(s) end objclass.register(f)"
        )
    };
    assert_eq!(kind(&mut at, &load(900 << 10, 50)), None);
    assert_eq!(kind(&mut at, &load(900 << 10, 1000)), Some(Kind::Memory));
    assert_eq!(kind(&mut at, &load(10, 1000)), None);
}

/// Functions with any number of numeric arguments parse each string among them.
#[test]
fn many_texts_that_are_read_as_numbers_cost_by_their_length() {
    let mut at = Caller::new();
    at.budget = OWN_THREAD;
    for function in ["math.max", "bit32.bor", "string.char"] {
        let call = |bytes: usize, count: usize| {
            format!(
                "function f(i, o) local s = ('0'):rep({bytes}) local t = table.create({count}, s)
                 {function}(table.unpack(t)) end objclass.register(f)"
            )
        };
        assert_eq!(
            kind(&mut at, &call(500_000, 3000)),
            Some(Kind::Instructions),
            "{function}"
        );
        assert_eq!(kind(&mut at, &call(1, 3000)), None, "{function}");
    }
}

/// Counts how often it is asked.
#[derive(Default)]
struct Asked(std::sync::atomic::AtomicU64);
impl Patience for Asked {
    fn begin(&self) {}
    fn is_over(&self) -> bool {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        false
    }
}

/// A clock that is read every so many steps is overrun by all of them.
#[test]
fn a_clock_is_asked_the_more_often_the_more_a_step_may_take() {
    let mut at = Caller::new();
    at.budget = OWN_THREAD;
    let asked = Arc::new(Asked::default());
    at.vm.set_patience(asked.clone());
    let mut questions = |text: &str| {
        asked.0.store(0, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(kind(&mut at, text), None);
        asked.0.load(std::sync::atomic::Ordering::Relaxed)
    };
    let work = " t[1]=-s".repeat(100);
    let run = |bytes: usize, work: &str| {
        format!(
            "function f(i, o) local s, t = ('0'):rep({bytes}), {{}} for i = 1, 64 do {work} end end
             objclass.register(f)"
        )
    };
    let runs = [
        run(900 << 10, &work),
        run(900 << 10, "t[1]=-s"),
        run(10, &work),
    ];
    let asked = runs.map(|text| questions(&text));
    assert!(
        asked[0] >= 30 && asked[1] < 10 && asked[2] < 10,
        "of 64 steps each: {asked:?}"
    );
}

/// A check has a clock where its host has one, and reports when the clock ended it.
#[test]
fn a_class_that_takes_too_long_to_check_may_still_be_one() {
    struct Over(bool);
    impl Patience for Over {
        fn begin(&self) {}
        fn is_over(&self) -> bool {
            self.0
        }
    }
    let text = "local s, t = ('0'):rep(1024), {} for i = 1, 100 do t[1]=-s end function f() end objclass.register(f)";
    let check = |over: bool| {
        let methods = check_class_within(&Chunk::new("c", text), Some(Arc::new(Over(over))), 1);
        methods
            .map(|methods| methods.len())
            .map_err(|error| error.kind)
    };
    assert_eq!([check(true), check(false)], [Err(Kind::Clock), Ok(1)]);
}
