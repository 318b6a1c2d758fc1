//! Listings. Ceph lists a pool in the order of its objects' hashes; the range of hashes is divided
//! into [`GROUPS`] parts that are listed independently.
//!
//! librados' cursors are opaque, so a page's end is stored here, and the caller gets a number for
//! it.

use crate::context::Context;
use crate::error::RadosError;
use crate::ffi::{rados_object_list_cursor, rados_object_list_item};
use bytes::Bytes;
use nacre_types::{Name, ObjectId};
use std::collections::BTreeMap;
use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;

/// Number of parts of a listing.
pub const GROUPS: u32 = 16;
/// Most objects in one page.
pub const PAGE_MAX: u32 = 1000;
/// Most stored positions; the oldest one is dropped.
const CURSORS_MAX: usize = 1024;

/// A position in a listing.
pub struct Cursor {
    context: Arc<Context>,
    raw: rados_object_list_cursor,
}
// SAFETY: librados only reads the value.
unsafe impl Send for Cursor {}
// SAFETY: as above.
unsafe impl Sync for Cursor {}
impl Drop for Cursor {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe {
            (self.context.functions().rados_object_list_cursor_free)(self.context.raw(), self.raw)
        };
    }
}

/// One page.
pub struct Page {
    /// Objects, in the listing's order.
    pub objects: Vec<ObjectId>,
    /// Where to continue.
    pub next: Option<Cursor>,
}

/// Reads a page of a part, from its beginning or from a cursor. Blocks.
///
/// # Errors
/// librados' error.
pub fn page(
    context: &Arc<Context>,
    group: u32,
    from: Option<&Cursor>,
    limit: u32,
) -> Result<Page, RadosError> {
    let functions = context.functions();
    let own = |raw| Cursor {
        context: context.clone(),
        raw,
    };
    // SAFETY: cursors are ours until they are dropped; results are written before they are read.
    unsafe {
        let all = (
            own((functions.rados_object_list_begin)(context.raw())),
            own((functions.rados_object_list_end)(context.raw())),
        );
        // Cursors must be initialised before librados fills them.
        let some = || (functions.rados_object_list_begin)(context.raw());
        let (mut begin, mut end) = (some(), some());
        (functions.rados_object_list_slice)(
            context.raw(),
            all.0.raw,
            all.1.raw,
            group as usize,
            GROUPS as usize,
            &raw mut begin,
            &raw mut end,
        );
        let (begin, end) = (own(begin), own(end));
        let from = from.unwrap_or(&begin);
        let limit = limit.clamp(1, PAGE_MAX) as usize;
        let mut items: Vec<rados_object_list_item> = Vec::with_capacity(limit);
        let mut next = some();
        let got = (functions.rados_object_list)(
            context.raw(),
            from.raw,
            end.raw,
            limit,
            ptr::null(),
            0,
            items.as_mut_ptr(),
            &raw mut next,
        );
        let next = own(next);
        if got < 0 {
            return Err(RadosError::of(got, "listing objects"));
        }
        items.set_len(got as usize);
        let objects = items.iter().map(|item| ObjectId {
            namespace: name(item.nspace, item.nspace_length),
            key: name(item.locator, item.locator_length),
            name: name(item.oid, item.oid_length),
            ..ObjectId::default()
        });
        let objects = objects.collect();
        (functions.rados_object_list_free)(items.len(), items.as_mut_ptr());
        let over = (functions.rados_object_list_is_end)(context.raw(), next.raw) != 0
            || (functions.rados_object_list_cursor_cmp)(context.raw(), next.raw, end.raw) >= 0;
        Ok(Page {
            objects,
            next: if over { None } else { Some(next) },
        })
    }
}

/// # Safety
/// The pointer is null, or points to this many bytes.
unsafe fn name(from: *const c_char, length: usize) -> Name {
    if from.is_null() || length == 0 {
        return Name::default();
    }
    // SAFETY: as the caller says.
    Name::copy(unsafe { std::slice::from_raw_parts(from.cast(), length) })
}

/// Stored positions of listings.
#[derive(Default)]
pub struct Cursors {
    next: u64,
    known: BTreeMap<u64, Arc<Cursor>>,
}
impl Cursors {
    /// Stores a position; returns its name.
    pub fn keep(&mut self, cursor: Cursor) -> Bytes {
        if self.known.len() >= CURSORS_MAX {
            self.known.pop_first();
        }
        self.next += 1;
        self.known.insert(self.next, Arc::new(cursor));
        Bytes::copy_from_slice(&self.next.to_be_bytes())
    }
    /// The position with that name, if it is still stored.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<Arc<Cursor>> {
        self.known
            .get(&u64::from_be_bytes(name.try_into().ok()?))
            .cloned()
    }
}
