//! The allocator, and releasing memory.
//!
//! A daemon allocates some forty small pieces per operation on one thread; the C library's
//! allocator took a tenth of its time. Huge pages are disabled (`no_thp` in the workspace's
//! manifest): they made every daemon some 12 MiB larger, 60 under load, and nothing faster.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of mimalloc's version 3, which its crate does not name.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
/// How long freed memory stays mapped under load, in milliseconds.
const KEPT_MS: std::ffi::c_long = 10_000;

/// Memory freed under load is soon needed again. By default the allocator returns all of it to the
/// kernel once a second, and every received byte is then written to memory that has to be mapped
/// again: a page fault per kilobyte or two, a twentieth of an update of 4 KiB. Keeping it for ten
/// seconds costs some 12 MiB per OSD. Call this before anything else.
#[expect(unsafe_code, reason = "a function of the allocator's C library")]
pub fn keep_for_a_while() {
    // SAFETY: an option of the allocator, which may be set at any time.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, KEPT_MS) }
}

/// Returns this thread's freed memory to the kernel. The allocator does so by itself only while it
/// is being used: after a load of large objects an idle daemon stayed 50 MiB larger than necessary.
/// Takes milliseconds; for idle phases ([`nacre_node::RunOptions::idle`]).
#[expect(unsafe_code, reason = "a function of the allocator's C library")]
pub fn give_back() {
    // SAFETY: it may be called at any time, on any thread; it does not touch allocated memory.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options are numbers, which another version of the allocator may change.
    #[test]
    #[expect(unsafe_code, reason = "a function of the allocator's C library")]
    fn the_option_is_the_one_that_is_a_second_by_default() {
        // SAFETY: it reads an option.
        let get = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        if std::env::var_os("MIMALLOC_PURGE_DELAY").is_none() {
            assert_eq!(get(), 1_000);
        }
        keep_for_a_while();
        assert_eq!(get(), KEPT_MS);
    }
}
