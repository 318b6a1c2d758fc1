//! A host's clock ends calls from outside: by the stop switch, at any moment of a call or of the clearing up after it.
//!
//! F16: the switch stayed set after the call that it ended. When that call left more than a MiB of garbage, the collection that follows runs a function
//! of the prelude, whose first safepoint found the switch set and raised: the `expect` behind it panicked the evaluator's thread, and every long
//! call of that OSD waited for ever, with nothing in health.

use crate::model::{Caller, Model};
use bytes::Bytes;
use nacre_policy::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Time is over whenever a script calls `clock.over`.
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
    classes.insert("clock", 0, ClassRef::Native(Arc::new(Clock(at.vm.stop_switch()))));
    at.classes = Arc::new(classes);
    at
}

#[test]
#[ignore = "F16: red until mended"]
fn a_call_that_the_clock_ends_leaves_a_vm_that_works() {
    let mut at = with_clock();
    for garbage in ["", "local t = {} for i = 1, 60000 do t[i] = {i} end "] {
        let error = at.error(&format!("{garbage} objclass.call('clock', 'over') while true do end"));
        assert_eq!(error.kind, Kind::Clock, "{error}");
        assert_eq!(at.text("o:append('still here')"), "still here");
    }
}

#[test]
#[ignore = "F16: red until mended"]
fn a_clock_that_comes_too_late_ends_nothing() {
    let mut at = with_clock();
    let switch = at.vm.stop_switch();
    // Between two calls, and with garbage that the next call's end collects.
    switch.store(true, Ordering::Relaxed);
    at.text("local t = {} for i = 1, 60000 do t[i] = {i} end");
    switch.store(true, Ordering::Relaxed);
    assert_eq!(at.text("o:append('still here')"), "still here");
    // Compiling and checking are not calls of a method, and end as well.
    switch.store(true, Ordering::Relaxed);
    let chunk = Chunk::new("t", "function f() end objclass.register('f', f)");
    assert_eq!(at.vm.check(&chunk, &Budget::CLASS).expect("it is a class").len(), 1);
    assert_eq!(at.body("objclass.call('clock', 'over')").status, -errno::EAGAIN, "the safepoint behind the call sees it");
    let object = &mut Model::with("base");
    assert_eq!(at.on(object, "function f() end objclass.register(f)", "f", b"").status, 0);
}
