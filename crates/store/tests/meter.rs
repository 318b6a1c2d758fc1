//! How much memory a piece of work holds at a time: the test binary's allocator counts.
//!
//! A host part of this test binary, not of the crate: it implements the allocator trait, which is
//! unsafe by its nature, and forwards everything unchanged.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Meter;

thread_local! {
    // Per thread: tests run side by side. What one thread gives back for another goes below 0.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn note(bytes: isize) {
    // While a thread is torn down there is nobody to count for.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: every call is handed to the system's allocator with the arguments it came with.
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

/// What `run` gives, and the most bytes that this thread held meanwhile beyond what it held before.
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
