//! Watches by means of librados, which registers them again after failures by itself, and reports
//! when something may have been missed.
//!
//! Weaker than on Nacre's own engine: a watcher that does not acknowledge in time is reported as
//! having missed the notify, but keeps its watch.

use crate::context::Context;
use crate::ffi::Functions;
use crate::queue::Queue;
use bytes::Bytes;
use nacre_client::WatchId;
use nacre_types::{ClientId, Instance};
use nacre_wire::msg::watch::{NotifyAcked, WatcherId};
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

/// A report of librados' threads about a watch.
#[derive(Debug)]
pub enum Heard {
    /// A notify: its number, the notifier, the payload.
    Notify(u64, u64, Bytes),
    /// It may have missed something.
    Broken,
}

/// The argument of callbacks. It is never freed: callbacks may be in progress when a watch ends,
/// and it is unknown when the last one has returned.
pub struct Ear<E> {
    queue: Arc<Queue<E>>,
    watch: WatchId,
    event: fn(WatchId, Heard) -> E,
}
impl<E: Send + 'static> Ear<E> {
    /// Creates one for a watch; some 40 bytes that are leaked.
    pub fn leak(
        queue: &Arc<Queue<E>>,
        watch: WatchId,
        event: fn(WatchId, Heard) -> E,
    ) -> *mut c_void {
        Box::into_raw(Box::new(Self {
            queue: queue.clone(),
            watch,
            event,
        }))
        .cast()
    }
}

/// Called for a notify.
///
/// # Safety
/// The argument is an [`Ear`], and the data has the given length.
pub unsafe extern "C" fn notified<E: Send + 'static>(
    ear: *mut c_void,
    notify: u64,
    _: u64,
    notifier: u64,
    data: *mut c_void,
    length: usize,
) {
    // SAFETY: guaranteed by the caller.
    let (ear, data) = unsafe {
        let data = if data.is_null() {
            &[][..]
        } else {
            std::slice::from_raw_parts(data.cast::<u8>(), length)
        };
        (&*ear.cast::<Ear<E>>(), Bytes::copy_from_slice(data))
    };
    ear.queue.push((ear.event)(
        ear.watch,
        Heard::Notify(notify, notifier, data),
    ));
}

/// Called when something may have been missed.
///
/// # Safety
/// The argument is an [`Ear`].
pub unsafe extern "C" fn broken<E: Send + 'static>(ear: *mut c_void, _: u64, _: c_int) {
    // SAFETY: guaranteed by the caller.
    let ear = unsafe { &*ear.cast::<Ear<E>>() };
    ear.queue.push((ear.event)(ear.watch, Heard::Broken));
}

/// A watch that is registered, or being registered.
pub struct Watch {
    /// Its context.
    pub context: Arc<Context>,
    /// The object.
    pub object: CString,
    /// librados' handle of it, written by the time the registration has ended.
    pub handle: Box<u64>,
    /// The registration has succeeded.
    pub registered: bool,
}

impl Watch {
    /// Milliseconds since the OSD last confirmed it; `None` if it is broken.
    pub fn silent_ms(&self) -> Option<u64> {
        // SAFETY: the context is alive.
        let since = unsafe {
            (self.context.functions().rados_watch_check)(self.context.raw(), *self.handle)
        };
        u64::try_from(since).ok()
    }
    /// Acknowledges a notify.
    pub fn acknowledge(&self, notify: u64, reply: &[u8]) -> i32 {
        let length = c_int::try_from(reply.len()).expect("a reply is short");
        // SAFETY: strings and data live until the call returns.
        unsafe {
            (self.context.functions().rados_notify_ack)(
                self.context.raw(),
                self.object.as_ptr(),
                notify,
                *self.handle,
                reply.as_ptr().cast(),
                length,
            )
        }
    }
}

/// Watchers that acknowledged a notify, with their replies; and those that did not.
pub type Answers = (Vec<(NotifyAcked, Bytes)>, Vec<WatcherId>);

/// Decodes the answer to a notify; `None` if it is invalid.
pub fn answers(functions: &Functions, reply: &[u8]) -> Option<Answers> {
    let (mut acks, mut timeouts) = (ptr::null_mut(), ptr::null_mut());
    let (mut ack_count, mut timeout_count) = (0, 0);
    let id = |client: u64, cookie: u64| WatcherId {
        client: ClientId(client),
        instance: Instance(0),
        cookie,
    };
    // SAFETY: the reply is read, not kept; what librados allocates is freed below.
    unsafe {
        let decoded = (functions.rados_decode_notify_response)(
            reply.as_ptr().cast_mut().cast::<c_char>(),
            reply.len(),
            &raw mut acks,
            &raw mut ack_count,
            &raw mut timeouts,
            &raw mut timeout_count,
        );
        if decoded < 0 {
            return None;
        }
        let acked = (0..ack_count).map(|at| {
            let ack = &*acks.add(at);
            let payload = if ack.payload.is_null() {
                &[][..]
            } else {
                std::slice::from_raw_parts(ack.payload.cast::<u8>(), ack.payload_len as usize)
            };
            (
                NotifyAcked {
                    watcher: id(ack.notifier_id, ack.cookie),
                    length: payload.len() as u32,
                },
                Bytes::copy_from_slice(payload),
            )
        });
        let acked = acked.collect();
        let missed = (0..timeout_count).map(|at| {
            let timeout = &*timeouts.add(at);
            id(timeout.notifier_id, timeout.cookie)
        });
        let missed = missed.collect();
        (functions.rados_free_notify_response)(acks, ack_count, timeouts);
        Some((acked, missed))
    }
}
