//! The allocator, and giving memory back.
//!
//! A daemon allocates some forty small pieces per operation on one thread; the C library's
//! allocator took a tenth of its time. Huge pages are not asked for (`no_thp` in the workspace's
//! manifest): they made every daemon some 12 MiB larger, 60 under load, and nothing faster.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Gives the kernel what this thread has freed and kept. The allocator does so by itself only while
/// it is being used: after a load of large objects an idle daemon stayed 50 MiB larger than it
/// needed to be. Takes milliseconds; for when there is nothing to do
/// ([`nacre_node::RunOptions::idle`]).
#[expect(unsafe_code, reason = "a function of the allocator's C library")]
pub fn give_back() {
    // SAFETY: it may be called at any time, on any thread; it touches nothing that is allocated.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
