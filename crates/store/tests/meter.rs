//! Measures how much memory a piece of work holds at a time, with the test binary's allocator.
//!
//! Belongs to the host side of this test binary, not to the crate: it implements the allocator
//! trait, which is inherently unsafe, and forwards everything unchanged.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Meter;

thread_local! {
    // Per thread: tests run in parallel. Memory that one thread frees for another makes this
    // negative.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn note(bytes: isize) {
    // While a thread is torn down, nothing is counted.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: every call is forwarded to the system's allocator with its original arguments.
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size.cast_signed() - layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static METER: Meter = Meter;

/// The result of `run`, and the maximum of bytes that this thread held meanwhile beyond those held
/// before.
pub fn held<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let result = run();
    (result, (MOST.get() - before).unsigned_abs())
}

#[test]
fn the_meter_sees_the_most_that_is_held_at_a_time() {
    let work = || {
        (0..10)
            .map(|n| Vec::<u8>::with_capacity(1_000_000 + n).capacity())
            .sum::<usize>()
    };
    let (sum, most) = held(work);
    assert!(
        sum >= 10_000_000 && (1_000_000..2_000_000).contains(&most),
        "{most}"
    );
}
