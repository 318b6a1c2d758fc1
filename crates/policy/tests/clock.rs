//! A host's clock ends calls from outside: by the stop switch, at any moment of a call or of the
//! cleanup after it.
//!
//! F16: the switch stayed set after the call that it ended. When that call left more than a MiB of
//! garbage, the following collection ran a function of the prelude, whose first safepoint found the
//! switch set and raised. The `expect` behind it panicked the evaluator's thread, and every long
//! call of that OSD waited for ever, without a health warning.

use crate::model::{Caller, Model};
use bytes::Bytes;
use nacre_policy::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The time is over when a script calls `clock.over`.
struct Clock(Arc<AtomicBool>);
impl NativeClass for Clock {
    fn method(&self, name: &str) -> Option<MethodFlags> {
        (name == "over").then_some(MethodFlags { read_only: true })
    }
    fn call(&self, _: &str, _: Bytes, _: &mut Context<'_>) -> Result<(i32, Bytes), Stop> {
        self.0.store(true, Ordering::Relaxed);
        Ok((0, Bytes::new()))
    }
}

fn with_clock() -> Caller {
    let mut at = Caller::new();
    let mut classes = Classes::default();
    classes.insert(
        "clock",
        0,
        ClassRef::Native(Arc::new(Clock(at.vm.stop_switch()))),
    );
    at.classes = Arc::new(classes);
    at
}

#[test]
fn a_call_that_the_clock_ends_leaves_a_vm_that_works() {
    let mut at = with_clock();
    for garbage in ["", "local t = {} for i = 1, 60000 do t[i] = {i} end "] {
        let error = at.error(&format!(
            "{garbage} objclass.call('clock', 'over') while true do end"
        ));
        assert_eq!(error.kind, Kind::Clock, "{error}");
        assert_eq!(at.text("o:append('still here')"), "still here");
    }
}

#[test]
fn a_clock_that_comes_too_late_ends_nothing() {
    let mut at = with_clock();
    let switch = at.vm.stop_switch();
    // Between two calls, and with garbage that the end of the next call collects.
    switch.store(true, Ordering::Relaxed);
    at.text("local t = {} for i = 1, 60000 do t[i] = {i} end");
    switch.store(true, Ordering::Relaxed);
    assert_eq!(at.text("o:append('still here')"), "still here");
    // Compiling and checking are not method calls, and end as well.
    switch.store(true, Ordering::Relaxed);
    let chunk = Chunk::new("t", "function f() end objclass.register('f', f)");
    assert_eq!(
        at.vm
            .check(&chunk, &Budget::CLASS)
            .expect("it is a class")
            .len(),
        1
    );
    assert_eq!(
        at.body("objclass.call('clock', 'over')").status,
        -errno::EAGAIN,
        "the safepoint behind the call sees it"
    );
    let object = &mut Model::with("base");
    assert_eq!(
        at.on(object, "function f() end objclass.register(f)", "f", b"")
            .status,
        0
    );
}

/// F33: the charge of a step must grow with its input, or a script takes hours within its budget.
/// The bytes per instruction are at most these.
#[test]
fn every_step_pays_by_the_size_of_what_it_works_on() {
    const N: usize = 256 << 10;
    // Steps executed once on strings `s` and `t` of N bytes that differ in their last byte, a
    // buffer `b`, a bufferlist `l`; maximum bytes per instruction.
    let steps = [
        ("objclass.checksum()", 1024),
        ("s:sub(1, -2)", 1024),
        ("s:upper()", 1024),
        ("s:reverse()", 1024),
        ("s:rep(1)", 1024),
        ("s:byte(1, 10)", 1024),
        ("s:find('no', 1, true)", 4096),
        ("s:find('[^x]y')", 64),
        ("s:find(s, 1, true)", 64),
        ("s:gsub('x', 'y')", 64),
        ("tonumber(s)", 1024),
        ("utf8.len(s)", 1024),
        ("utf8.offset(s, -1)", 1024),
        ("string.unpack('z', z)", 1024),
        ("string.unpack('s4', p)", 1024),
        ("string.packsize(s)", 1024),
        ("string.pack('s4', s)", 1024),
        ("nacre.u64.from(s)", 1024),
        ("nacre.u64.unpack(s, 1)", 1024),
        ("buffer.readstring(b, 0, #s)", 1024),
        ("buffer.writestring(b, 0, s)", 1024),
        ("buffer.tostring(b)", 1024),
        ("buffer.fromstring(s)", 1024),
        ("buffer.create(#s)", 1024),
        ("buffer.fill(b, 0, 1)", 1024),
        ("buffer.copy(b, 0, b)", 1024),
        (
            "table.sort({s, t, s, t, s, t, s, t, s, t, s, t, s, t, s, t, s, t, s, t})",
            1024,
        ),
        ("l:str()", 1024),
        ("l:append(s)", 1024),
        ("return l .. s", 1024),
        ("return l < bufferlist.new(t)", 1024),
        ("objclass.setxattr(s, 'x')", 1024),
        ("objclass.getxattr(s)", 1024),
        ("objclass.map_get_val(s)", 1024),
        ("objclass.map_get_keys(s, 1)", 1024),
        ("objclass.map_set_val(s, 'x')", 1024),
        ("objclass.write_full(s)", 1024),
        ("load(s)", 16),
    ];
    let mut at = Caller::new();
    at.budget.instructions = u64::MAX / 2;
    let mut used = |size: usize, step: &str| {
        let script = format!(
            "local s, t = string.rep('x', {size}), string.rep('x', {size} - 1) .. 'y'\n\
             local z, p = s .. '\\0', string.pack('s4', s)\n\
             local b, l = buffer.fromstring(s), bufferlist.new(s)\n\
             function f(i, o) pcall(function() {step} end) end objclass.register(f)"
        );
        let object = &mut Model::with("base");
        object.data = Some(vec![7; size]);
        at.on(object, &script, "f", b"").instructions
    };
    let setting = used(N, "");
    for (step, each) in steps {
        let step = if step.starts_with("return") {
            step.to_owned()
        } else {
            format!("return ({step})")
        };
        let paid = used(N, &step).saturating_sub(setting);
        assert!(
            paid >= (N / each) as u64,
            "{step}: {paid} instructions for {N} bytes"
        );
    }
}

/// Uncharged work is ended by the host's clock: here, one that expires at the third question.
#[test]
fn a_host_that_has_no_patience_ends_a_call() {
    #[derive(Default)]
    struct Questions(std::sync::atomic::AtomicU32);
    impl Patience for Questions {
        fn begin(&self) {}
        fn is_over(&self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed) >= 3
        }
    }
    let mut at = Caller::new();
    let questions = Arc::new(Questions::default());
    at.vm.set_patience(questions.clone());
    at.text("o:append('short calls are not asked about')");
    assert_eq!(questions.0.load(Ordering::Relaxed), 0);
    let error = at.error(
        "local s, t = string.rep('x', 200000), string.rep('x', 199999) .. 'y' objclass.setxattr('a', 'b')\n\
         local n = 0 while s < t do n += 1 end",
    );
    assert_eq!(error.kind, Kind::Clock, "{error}");
    assert!(error.kind.status() == -errno::EAGAIN && questions.0.load(Ordering::Relaxed) == 4);
}
