//! The used functions of `librados.so.2`, loaded at run time: Nacre is built and runs without it
//! (`layers.toml` restricts it to this crate).
//!
//! Declared by hand from `librados.h` of Ceph 16; every function here exists since Ceph 14, except
//! for `rados_getaddrs`. Only this crate's wrappers call them.

#![allow(
    non_camel_case_types,
    clippy::type_complexity,
    clippy::upper_case_acronyms
)]

use crate::error::RadosError;
use libloading::Library;
use std::ffi::{c_char, c_int, c_uchar, c_void};
use std::sync::OnceLock;

/// A cluster handle.
pub type rados_t = *mut c_void;
/// An I/O context: pool, namespace, locator, snapshots.
pub type rados_ioctx_t = *mut c_void;
/// Completion handle of an asynchronous operation.
pub type rados_completion_t = *mut c_void;
/// A compound operation that writes.
pub type rados_write_op_t = *mut c_void;
/// A compound operation that reads.
pub type rados_read_op_t = *mut c_void;
/// Iterator over the attributes read.
pub type rados_xattrs_iter_t = *mut c_void;
/// Iterator over the omap entries read.
pub type rados_omap_iter_t = *mut c_void;
/// A position in a listing.
pub type rados_object_list_cursor = *mut c_void;
/// Called when an operation has ended.
pub type rados_callback_t = unsafe extern "C" fn(rados_completion_t, *mut c_void);
/// Called for a notify: argument, notify, watch, notifier, data, its length.
pub type rados_watchcb2_t = unsafe extern "C" fn(*mut c_void, u64, u64, u64, *mut c_void, usize);
/// Called when a watch may have missed something: argument, watch, error.
pub type rados_watcherrcb_t = unsafe extern "C" fn(*mut c_void, u64, c_int);

/// An object in a listing.
#[repr(C)]
pub struct rados_object_list_item {
    pub oid_length: usize,
    pub oid: *mut c_char,
    pub nspace_length: usize,
    pub nspace: *mut c_char,
    pub locator_length: usize,
    pub locator: *mut c_char,
}

/// A watcher that acknowledged a notify, with its reply.
#[repr(C)]
pub struct notify_ack_t {
    pub notifier_id: u64,
    pub cookie: u64,
    pub payload: *mut c_char,
    pub payload_len: u64,
}

/// A watcher that did not.
#[repr(C)]
pub struct notify_timeout_t {
    pub notifier_id: u64,
    pub cookie: u64,
}

pub const LIBRADOS_CMPXATTR_OP_EQ: u8 = 1;
pub const LIBRADOS_CREATE_EXCLUSIVE: c_int = 1;
pub const LIBRADOS_CREATE_IDEMPOTENT: c_int = 0;
pub const LIBRADOS_OPERATION_FULL_TRY: c_int = 64;
pub const LIBRADOS_OPERATION_RETURNVEC: c_int = 1024;
pub const LIBRADOS_CHECKSUM_TYPE_CRC32C: c_int = 2;
/// Namespace of a context that lists all of them.
pub const LIBRADOS_ALL_NSPACES: &std::ffi::CStr = c"\x01";

macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// The library's functions.
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
            /// A client's addresses as known to daemons; some releases of Ceph 14 lack it.
            pub rados_getaddrs: Option<unsafe extern "C" fn(rados_t, *mut *mut c_char) -> c_int>,
        }
        impl Functions {
            /// # Safety
            /// The library must be librados: the declared types are trusted.
            unsafe fn of(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the caller guarantees the library; names and types are from its
                        // header.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($type),*) $(-> $result)?>(concat!(stringify!($name), "\0").as_bytes())
                        };
                        *found?
                    },)*
                    rados_getaddrs: {
                        // SAFETY: as above.
                        let found = unsafe { library.get(b"rados_getaddrs\0") };
                        found.ok().map(|function| *function)
                    },
                })
            }
        }
    };
}

functions! {
    fn rados_create2(cluster: *mut rados_t, cluster_name: *const c_char, name: *const c_char, flags: u64) -> c_int;
    fn rados_conf_read_file(cluster: rados_t, path: *const c_char) -> c_int;
    fn rados_conf_set(cluster: rados_t, option: *const c_char, value: *const c_char) -> c_int;
    fn rados_connect(cluster: rados_t) -> c_int;
    fn rados_shutdown(cluster: rados_t);
    fn rados_wait_for_latest_osdmap(cluster: rados_t) -> c_int;
    fn rados_pool_lookup(cluster: rados_t, name: *const c_char) -> i64;
    fn rados_mon_command(
        cluster: rados_t, command: *const *const c_char, count: usize, input: *const c_char, input_length: usize,
        output: *mut *mut c_char, output_length: *mut usize, status: *mut *mut c_char, status_length: *mut usize,
    ) -> c_int;
    fn rados_osd_command(
        cluster: rados_t, osd: c_int, command: *const *const c_char, count: usize, input: *const c_char, input_length: usize,
        output: *mut *mut c_char, output_length: *mut usize, status: *mut *mut c_char, status_length: *mut usize,
    ) -> c_int;
    fn rados_buffer_free(buffer: *mut c_char);

    fn rados_ioctx_create2(cluster: rados_t, pool: i64, context: *mut rados_ioctx_t) -> c_int;
    fn rados_ioctx_destroy(context: rados_ioctx_t);
    fn rados_ioctx_set_namespace(context: rados_ioctx_t, namespace: *const c_char);
    fn rados_ioctx_locator_set_key(context: rados_ioctx_t, key: *const c_char);
    fn rados_ioctx_snap_set_read(context: rados_ioctx_t, snap: u64);
    fn rados_ioctx_selfmanaged_snap_set_write_ctx(context: rados_ioctx_t, sequence: u64, snaps: *const u64, count: c_int) -> c_int;
    fn rados_ioctx_selfmanaged_snap_create(context: rados_ioctx_t, snap: *mut u64) -> c_int;
    fn rados_ioctx_selfmanaged_snap_remove(context: rados_ioctx_t, snap: u64) -> c_int;

    fn rados_aio_create_completion2(argument: *mut c_void, done: Option<rados_callback_t>, completion: *mut rados_completion_t) -> c_int;
    fn rados_aio_release(completion: rados_completion_t);
    fn rados_aio_get_return_value(completion: rados_completion_t) -> c_int;
    fn rados_aio_get_version(completion: rados_completion_t) -> u64;
    fn rados_aio_cancel(context: rados_ioctx_t, completion: rados_completion_t) -> c_int;
    fn rados_aio_read_op_operate(op: rados_read_op_t, context: rados_ioctx_t, completion: rados_completion_t, object: *const c_char, flags: c_int) -> c_int;
    fn rados_aio_write_op_operate(
        op: rados_write_op_t, context: rados_ioctx_t, completion: rados_completion_t, object: *const c_char, modified: *mut i64, flags: c_int,
    ) -> c_int;
    fn rados_aio_watch2(
        context: rados_ioctx_t, object: *const c_char, completion: rados_completion_t, handle: *mut u64, on_notify: rados_watchcb2_t,
        on_error: rados_watcherrcb_t, timeout_s: u32, argument: *mut c_void,
    ) -> c_int;
    fn rados_aio_unwatch(context: rados_ioctx_t, handle: u64, completion: rados_completion_t) -> c_int;
    fn rados_watch_check(context: rados_ioctx_t, handle: u64) -> c_int;
    fn rados_aio_notify(
        context: rados_ioctx_t, object: *const c_char, completion: rados_completion_t, data: *const c_char, length: c_int, timeout_ms: u64,
        reply: *mut *mut c_char, reply_length: *mut usize,
    ) -> c_int;
    fn rados_notify_ack(context: rados_ioctx_t, object: *const c_char, notify: u64, handle: u64, data: *const c_char, length: c_int) -> c_int;
    fn rados_decode_notify_response(
        reply: *mut c_char, length: usize, acks: *mut *mut notify_ack_t, ack_count: *mut usize, timeouts: *mut *mut notify_timeout_t,
        timeout_count: *mut usize,
    ) -> c_int;
    fn rados_free_notify_response(acks: *mut notify_ack_t, ack_count: usize, timeouts: *mut notify_timeout_t);

    fn rados_create_write_op() -> rados_write_op_t;
    fn rados_release_write_op(op: rados_write_op_t);
    fn rados_write_op_assert_exists(op: rados_write_op_t);
    fn rados_write_op_assert_version(op: rados_write_op_t, version: u64);
    fn rados_write_op_cmpxattr(op: rados_write_op_t, name: *const c_char, operator: u8, value: *const c_char, length: usize);
    fn rados_write_op_create(op: rados_write_op_t, exclusive: c_int, category: *const c_char);
    fn rados_write_op_write(op: rados_write_op_t, data: *const c_char, length: usize, offset: u64);
    fn rados_write_op_write_full(op: rados_write_op_t, data: *const c_char, length: usize);
    fn rados_write_op_append(op: rados_write_op_t, data: *const c_char, length: usize);
    fn rados_write_op_remove(op: rados_write_op_t);
    fn rados_write_op_truncate(op: rados_write_op_t, size: u64);
    fn rados_write_op_zero(op: rados_write_op_t, offset: u64, length: u64);
    fn rados_write_op_setxattr(op: rados_write_op_t, name: *const c_char, value: *const c_char, length: usize);
    fn rados_write_op_rmxattr(op: rados_write_op_t, name: *const c_char);
    fn rados_write_op_exec(op: rados_write_op_t, class: *const c_char, method: *const c_char, input: *const c_char, length: usize, result: *mut c_int);
    fn rados_write_op_omap_set2(
        op: rados_write_op_t, keys: *const *const c_char, values: *const *const c_char, key_lengths: *const usize, value_lengths: *const usize, count: usize,
    );
    fn rados_write_op_omap_rm_keys2(op: rados_write_op_t, keys: *const *const c_char, key_lengths: *const usize, count: usize);
    fn rados_write_op_omap_clear(op: rados_write_op_t);

    fn rados_create_read_op() -> rados_read_op_t;
    fn rados_release_read_op(op: rados_read_op_t);
    fn rados_read_op_stat(op: rados_read_op_t, size: *mut u64, modified: *mut i64, result: *mut c_int);
    fn rados_read_op_read(op: rados_read_op_t, offset: u64, length: usize, into: *mut c_char, read: *mut usize, result: *mut c_int);
    fn rados_read_op_checksum(
        op: rados_read_op_t, kind: c_int, initial: *const c_char, initial_length: usize, offset: u64, length: usize, chunk: usize, into: *mut c_char,
        into_length: usize, result: *mut c_int,
    );
    fn rados_read_op_getxattrs(op: rados_read_op_t, attributes: *mut rados_xattrs_iter_t, result: *mut c_int);
    fn rados_read_op_exec(
        op: rados_read_op_t, class: *const c_char, method: *const c_char, input: *const c_char, length: usize, output: *mut *mut c_char,
        output_length: *mut usize, result: *mut c_int,
    );
    fn rados_read_op_omap_get_vals2(
        op: rados_read_op_t, after: *const c_char, prefix: *const c_char, limit: u64, entries: *mut rados_omap_iter_t, more: *mut c_uchar, result: *mut c_int,
    );
    fn rados_read_op_omap_get_vals_by_keys2(
        op: rados_read_op_t, keys: *const *const c_char, count: usize, key_lengths: *const usize, entries: *mut rados_omap_iter_t, result: *mut c_int,
    );
    fn rados_getxattrs_next(attributes: rados_xattrs_iter_t, name: *mut *const c_char, value: *mut *const c_char, length: *mut usize) -> c_int;
    fn rados_getxattrs_end(attributes: rados_xattrs_iter_t);
    fn rados_omap_get_next2(
        entries: rados_omap_iter_t, key: *mut *mut c_char, value: *mut *mut c_char, key_length: *mut usize, value_length: *mut usize,
    ) -> c_int;
    fn rados_omap_get_end(entries: rados_omap_iter_t);

    fn rados_object_list_begin(context: rados_ioctx_t) -> rados_object_list_cursor;
    fn rados_object_list_end(context: rados_ioctx_t) -> rados_object_list_cursor;
    fn rados_object_list_is_end(context: rados_ioctx_t, cursor: rados_object_list_cursor) -> c_int;
    fn rados_object_list_cursor_free(context: rados_ioctx_t, cursor: rados_object_list_cursor);
    fn rados_object_list_cursor_cmp(context: rados_ioctx_t, left: rados_object_list_cursor, right: rados_object_list_cursor) -> c_int;
    fn rados_object_list(
        context: rados_ioctx_t, from: rados_object_list_cursor, to: rados_object_list_cursor, limit: usize, filter: *const c_char, filter_length: usize,
        items: *mut rados_object_list_item, next: *mut rados_object_list_cursor,
    ) -> c_int;
    fn rados_object_list_free(count: usize, items: *mut rados_object_list_item);
    fn rados_object_list_slice(
        context: rados_ioctx_t, from: rados_object_list_cursor, to: rados_object_list_cursor, part: usize, parts: usize, part_from: *mut rados_object_list_cursor,
        part_to: *mut rados_object_list_cursor,
    );
}

/// The functions, loaded on first use.
///
/// # Errors
/// The library does not exist, or is too old.
pub fn functions() -> Result<&'static Functions, RadosError> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    const NAME: &str = "librados.so.2";
    let load = || {
        // SAFETY: loading runs the library's own initialisers; it is Ceph's, under the name used by
        // its packages.
        let library = unsafe { Library::new(NAME) }.map_err(|error| {
            format!("{NAME}, the library of Ceph's clients, cannot be loaded ({error}); on Debian `apt-get install librados2` installs it")
        })?;
        // SAFETY: as above.
        let functions = unsafe { Functions::of(&library) }
            .map_err(|error| format!("{NAME} is older than Ceph 14 or something else ({error})"))?;
        // It stays until the process ends: its own threads run in it.
        std::mem::forget(library);
        Ok(functions)
    };
    LOADED
        .get_or_init(load)
        .as_ref()
        .map_err(|why| RadosError::library(why.clone()))
}
