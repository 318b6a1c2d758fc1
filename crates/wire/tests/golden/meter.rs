//! Measures how much memory a decoder allocates: the test binary's allocator counts.
//!
//! This is a host part of the test binary, not of the crate: it implements the allocator trait,
//! which is inherently unsafe, and forwards every call unchanged.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Meter;

thread_local! {
    // Per thread, because tests run in parallel.
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

fn note(bytes: usize) {
    // During the teardown of a thread there is no counter any more.
    let _ = ASKED.try_with(|asked| asked.set(asked.get().saturating_add(bytes)));
}

// SAFETY: every call is forwarded to the system's allocator with unchanged arguments.
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size.saturating_sub(layout.size()));
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static METER: Meter = Meter;

/// The result of `run`, and how many bytes it requested from the allocator, freed or not.
pub fn asked<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = ASKED.get();
    let result = run();
    (result, ASKED.get() - before)
}

#[test]
fn the_meter_sees_an_allocation() {
    let (list, bytes) = asked(|| Vec::<u8>::with_capacity(1_000_000));
    assert!(bytes >= 1_000_000 && list.capacity() >= 1_000_000);
}
