//! An operation in flight in librados.

use crate::compound::Out;
use crate::context::Context;
use crate::ffi::{Functions, rados_completion_t};
use crate::queue::Queue;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// The event that reports the end of an operation.
struct Tag<E> {
    queue: Arc<Queue<E>>,
    event: E,
}

/// librados' handle of an asynchronous operation.
pub struct Completion {
    functions: &'static Functions,
    raw: rados_completion_t,
}
// SAFETY: completions are made to be used by several threads.
unsafe impl Send for Completion {}

impl Drop for Completion {
    fn drop(&mut self) {
        // SAFETY: ours; librados keeps a reference of its own while the operation is in flight.
        unsafe { (self.functions.rados_aio_release)(self.raw) };
    }
}

impl Completion {
    /// A completion that appends `event` to the queue when its operation has ended. If it is never
    /// sent, [`Self::unsent`] frees it.
    pub fn telling<E: Send + 'static>(
        functions: &'static Functions,
        queue: &Arc<Queue<E>>,
        event: E,
    ) -> Unsent<E> {
        let tag = Box::into_raw(Box::new(Tag {
            queue: queue.clone(),
            event,
        }));
        let mut raw = ptr::null_mut();
        // SAFETY: the callback gets the tag exactly once.
        let made = unsafe {
            (functions.rados_aio_create_completion2)(tag.cast(), Some(ended::<E>), &raw mut raw)
        };
        assert_eq!(made, 0, "librados makes completions without asking anyone");
        Unsent {
            completion: Self { functions, raw },
            tag,
        }
    }
    /// The result: the return value, and the object's version.
    pub fn result(&self) -> (i32, u64) {
        // SAFETY: it has ended.
        unsafe {
            (
                (self.functions.rados_aio_get_return_value)(self.raw),
                (self.functions.rados_aio_get_version)(self.raw),
            )
        }
    }
    /// Asks librados to cancel it; it soon ends, with an error if it had not ended yet.
    pub fn cancel(&self, context: &Context) {
        // SAFETY: both are alive. An operation that has ended cannot be found, which is fine.
        unsafe { (self.functions.rados_aio_cancel)(context.raw(), self.raw) };
    }
}

/// A completion whose operation has not been sent.
pub struct Unsent<E> {
    completion: Completion,
    tag: *mut Tag<E>,
}
impl<E> Unsent<E> {
    /// The handle for librados.
    pub fn raw(&self) -> rados_completion_t {
        self.completion.raw
    }
    /// Its operation was sent: the callback will follow.
    pub fn sent(self) -> Completion {
        self.completion
    }
    /// It was not sent: there will be no callback.
    pub fn unsent(self) {
        // SAFETY: made by a box in `new`, and no callback comes.
        drop(unsafe { Box::from_raw(self.tag) });
    }
}

unsafe extern "C" fn ended<E>(_: rados_completion_t, tag: *mut c_void) {
    // SAFETY: made by a box in `new`; librados calls once.
    let Tag { queue, event } = *unsafe { Box::from_raw(tag.cast::<Tag<E>>()) };
    queue.push(event);
}

/// What librados works on, until the operation has ended.
pub struct Flight {
    /// Has the result when the operation has ended.
    pub completion: Completion,
    /// The outputs that it writes to.
    pub outs: Vec<Out>,
    /// The context in which it was sent.
    pub context: Arc<Context>,
}

impl Flight {
    /// Gives up ownership: librados may still write to the outputs, and it is unknown when it
    /// stops. A notify that ends later uses its context, without a reference of its own.
    pub fn leak(self) {
        std::mem::forget(self);
    }
}
