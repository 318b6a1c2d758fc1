//! Compound operations, and the outputs that librados writes to.
//!
//! An output has to stay in place until the operation has ended: it is in an allocation of its own
//! ([`Out`]), which only the owner of an ended operation opens. librados copies the data to be
//! written at once.

use crate::ffi::{
    self, Functions, rados_completion_t, rados_omap_iter_t, rados_read_op_t, rados_write_op_t,
    rados_xattrs_iter_t,
};
use crate::handle::taken;
use bytes::Bytes;
use nacre_types::Name;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uchar};
use std::ptr::{self, NonNull};

/// The result of a part.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// Bytes.
    Data(Bytes),
    /// Size, and modification time in seconds since 1970.
    Stat(u64, i64),
    /// Attributes.
    Attrs(BTreeMap<Name, Bytes>),
    /// Omap entries, and whether there are more.
    Entries(Vec<(Bytes, Bytes)>, bool),
    /// CRC32C.
    Checksum(u32),
    /// A method's return value and output.
    Called(c_int, Bytes),
}

enum Kind {
    Data {
        buffer: Vec<u8>,
        read: usize,
    },
    Stat {
        size: u64,
        modified: i64,
    },
    Attrs {
        list: rados_xattrs_iter_t,
    },
    Entries {
        list: rados_omap_iter_t,
        more: c_uchar,
    },
    Checksum {
        bytes: [u8; 8],
    },
    Called {
        output: *mut c_char,
        length: usize,
    },
}

struct Cell {
    kind: Kind,
    result: c_int,
}

/// One part's result, being written.
pub struct Out {
    functions: &'static Functions,
    cell: NonNull<Cell>,
}
// SAFETY: it is the only owner of the allocation; librados writes to it from its own threads,
// before the operation ends.
unsafe impl Send for Out {}

impl Out {
    fn new(functions: &'static Functions, kind: Kind) -> Self {
        let cell = Box::new(Cell { kind, result: 0 });
        Self {
            functions,
            cell: NonNull::from(Box::leak(cell)),
        }
    }
    /// An output that librados allocates.
    pub fn output(functions: &'static Functions) -> Self {
        Self::new(
            functions,
            Kind::Called {
                output: ptr::null_mut(),
                length: 0,
            },
        )
    }
    /// The addresses to pass to librados.
    pub fn output_place(&mut self) -> (*mut *mut c_char, *mut usize) {
        // SAFETY: nothing is in flight yet.
        match unsafe { &mut self.cell.as_mut().kind } {
            Kind::Called { output, length } => (output, length),
            _ => unreachable!("it was made for output"),
        }
    }
    /// The result of a part that is a call, without taking the output.
    pub fn failed(&self) -> Option<c_int> {
        // SAFETY: the operation has ended.
        let cell = unsafe { self.cell.as_ref() };
        (matches!(cell.kind, Kind::Called { .. }) && cell.result < 0).then_some(cell.result)
    }
    /// The result; for a part that failed or was not reached, its error.
    ///
    /// # Errors
    /// The part's negative result.
    pub fn found(mut self) -> Result<Found, c_int> {
        // SAFETY: the operation has ended; there is no other owner of the cell.
        let Cell { kind, result } = unsafe { self.cell.as_mut() };
        let functions = self.functions;
        if *result < 0 && !matches!(kind, Kind::Called { .. }) {
            return Err(*result);
        }
        Ok(match kind {
            Kind::Data { buffer, read } => {
                let mut data = std::mem::take(buffer);
                let length = (*read).min(data.capacity());
                // SAFETY: librados has filled this many bytes.
                unsafe { data.set_len(length) };
                Found::Data(fitting(data))
            }
            Kind::Stat { size, modified } => Found::Stat(*size, *modified),
            Kind::Attrs { list } => Found::Attrs(attributes(functions, *list)),
            Kind::Entries { list, more } => Found::Entries(entries(functions, *list), *more != 0),
            Kind::Checksum { bytes } => {
                // The number of chunks, which is one, and the chunk's value.
                Found::Checksum(u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]))
            }
            Kind::Called { output, length } => {
                let bytes = taken(
                    functions,
                    std::mem::replace(output, ptr::null_mut()),
                    *length,
                );
                Found::Called(*result, bytes.into())
            }
        })
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        // SAFETY: it was made by a box, and is not used any more: operations in flight are never
        // dropped, but leaked.
        let cell = unsafe { Box::from_raw(self.cell.as_ptr()) };
        match cell.kind {
            // SAFETY: made by librados for this part, and not freed yet.
            Kind::Attrs { list } if !list.is_null() => unsafe {
                (self.functions.rados_getxattrs_end)(list)
            },
            // SAFETY: as above.
            Kind::Entries { list, .. } if !list.is_null() => unsafe {
                (self.functions.rados_omap_get_end)(list)
            },
            Kind::Called { output, length } => drop(taken(self.functions, output, length)),
            _ => {}
        }
    }
}

/// Shrinks the buffer to the data that was read.
pub fn fitting(mut data: Vec<u8>) -> Bytes {
    if data.capacity() > data.len() + data.len() / 2 + 4096 {
        data.shrink_to_fit();
    }
    data.into()
}

fn attributes(functions: &Functions, list: rados_xattrs_iter_t) -> BTreeMap<Name, Bytes> {
    let mut all = BTreeMap::new();
    loop {
        let (mut name, mut value, mut length) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the list belongs to an operation that has ended; what it points to stays until
        // the list is freed.
        unsafe {
            let got = (functions.rados_getxattrs_next)(
                list,
                &raw mut name,
                &raw mut value,
                &raw mut length,
            );
            if got < 0 || name.is_null() {
                return all;
            }
            all.insert(
                Name::copy(CStr::from_ptr(name).to_bytes()),
                copied(value, length),
            );
        }
    }
}

fn entries(functions: &Functions, list: rados_omap_iter_t) -> Vec<(Bytes, Bytes)> {
    let mut all = Vec::new();
    loop {
        let (mut key, mut value) = (ptr::null_mut(), ptr::null_mut());
        let (mut key_length, mut value_length) = (0, 0);
        // SAFETY: as above.
        unsafe {
            let (keys, values) = (&raw mut key_length, &raw mut value_length);
            let got =
                (functions.rados_omap_get_next2)(list, &raw mut key, &raw mut value, keys, values);
            if got < 0 || key.is_null() {
                return all;
            }
            all.push((copied(key, key_length), copied(value, value_length)));
        }
    }
}

/// # Safety
/// The pointer is null, or points to this many bytes.
unsafe fn copied(from: *const c_char, length: usize) -> Bytes {
    if from.is_null() || length == 0 {
        return Bytes::new();
    }
    // SAFETY: as the caller says.
    Bytes::copy_from_slice(unsafe { std::slice::from_raw_parts(from.cast(), length) })
}

/// A compound operation that reads.
pub struct ReadOp {
    functions: &'static Functions,
    raw: rados_read_op_t,
    outs: Vec<Out>,
}

impl Drop for ReadOp {
    fn drop(&mut self) {
        // SAFETY: librados has taken what it needs of it.
        unsafe { (self.functions.rados_release_read_op)(self.raw) };
    }
}

impl ReadOp {
    /// An operation without parts.
    pub fn new(functions: &'static Functions) -> Self {
        // SAFETY: no arguments.
        Self {
            functions,
            raw: unsafe { (functions.rados_create_read_op)() },
            outs: Vec::new(),
        }
    }
    fn out(&mut self, kind: Kind) -> &mut Cell {
        self.outs.push(Out::new(self.functions, kind));
        let out = self.outs.last_mut().expect("just pushed");
        // SAFETY: nothing is in flight yet.
        unsafe { out.cell.as_mut() }
    }
    /// Reads size and time.
    pub fn stat(&mut self) {
        let (functions, raw) = (self.functions, self.raw);
        let Cell {
            kind: Kind::Stat { size, modified },
            result,
        } = self.out(Kind::Stat {
            size: 0,
            modified: 0,
        })
        else {
            unreachable!()
        };
        // SAFETY: the cell stays where it is until the operation has ended.
        unsafe { (functions.rados_read_op_stat)(raw, size, modified, result) };
    }
    /// Reads a range.
    pub fn read(&mut self, offset: u64, length: usize) {
        let (functions, raw) = (self.functions, self.raw);
        let kind = Kind::Data {
            buffer: Vec::with_capacity(length),
            read: 0,
        };
        let Cell {
            kind: Kind::Data { buffer, read },
            result,
        } = self.out(kind)
        else {
            unreachable!()
        };
        // SAFETY: as above; the buffer has the capacity, and is not touched meanwhile.
        unsafe {
            (functions.rados_read_op_read)(
                raw,
                offset,
                length,
                buffer.as_mut_ptr().cast(),
                read,
                result,
            )
        };
    }
    /// Reads a CRC32C in the usual form except for the final inversion.
    pub fn checksum(&mut self, offset: u64, length: usize) {
        let (functions, raw) = (self.functions, self.raw);
        let Cell {
            kind: Kind::Checksum { bytes },
            result,
        } = self.out(Kind::Checksum { bytes: [0; 8] })
        else {
            unreachable!()
        };
        let initial = u32::MAX.to_le_bytes();
        // SAFETY: as above; the initial value is copied.
        unsafe {
            (functions.rados_read_op_checksum)(
                raw,
                ffi::LIBRADOS_CHECKSUM_TYPE_CRC32C,
                initial.as_ptr().cast(),
                initial.len(),
                offset,
                length,
                0,
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                result,
            );
        }
    }
    /// Reads all attributes.
    pub fn attrs(&mut self) {
        let (functions, raw) = (self.functions, self.raw);
        let Cell {
            kind: Kind::Attrs { list },
            result,
        } = self.out(Kind::Attrs {
            list: ptr::null_mut(),
        })
        else {
            unreachable!()
        };
        // SAFETY: as above.
        unsafe { (functions.rados_read_op_getxattrs)(raw, list, result) };
    }
    /// Lists omap entries after a key.
    pub fn list(&mut self, after: &CStr, limit: u64) {
        let (functions, raw) = (self.functions, self.raw);
        let kind = Kind::Entries {
            list: ptr::null_mut(),
            more: 0,
        };
        let Cell {
            kind: Kind::Entries { list, more },
            result,
        } = self.out(kind)
        else {
            unreachable!()
        };
        // SAFETY: as above; strings are copied.
        unsafe {
            (functions.rados_read_op_omap_get_vals2)(
                raw,
                after.as_ptr(),
                c"".as_ptr(),
                limit,
                list,
                more,
                result,
            )
        };
    }
    /// Reads the values of keys.
    pub fn keys(&mut self, keys: &[Bytes]) {
        let (functions, raw) = (self.functions, self.raw);
        let kind = Kind::Entries {
            list: ptr::null_mut(),
            more: 0,
        };
        let Cell {
            kind: Kind::Entries { list, .. },
            result,
        } = self.out(kind)
        else {
            unreachable!()
        };
        let (pointers, lengths) = pointers(keys.iter());
        // SAFETY: as above; keys are copied.
        unsafe {
            (functions.rados_read_op_omap_get_vals_by_keys2)(
                raw,
                pointers.as_ptr(),
                keys.len(),
                lengths.as_ptr(),
                list,
                result,
            )
        };
    }
    /// Calls a method.
    pub fn call(&mut self, class: &CStr, method: &CStr, input: &[u8]) {
        let (functions, raw) = (self.functions, self.raw);
        let kind = Kind::Called {
            output: ptr::null_mut(),
            length: 0,
        };
        let Cell {
            kind: Kind::Called { output, length },
            result,
        } = self.out(kind)
        else {
            unreachable!()
        };
        // SAFETY: as above; the input is copied.
        unsafe {
            (functions.rados_read_op_exec)(
                raw,
                class.as_ptr(),
                method.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                output,
                length,
                result,
            );
        }
    }
    /// Sends the operation.
    ///
    /// # Errors
    /// It was not sent: the negative result.
    pub fn send(
        mut self,
        context: &crate::context::Context,
        completion: rados_completion_t,
        object: &CStr,
        flags: c_int,
    ) -> Result<Vec<Out>, c_int> {
        // SAFETY: everything is alive, and the outs stay until the operation has ended.
        let sent = unsafe {
            (self.functions.rados_aio_read_op_operate)(
                self.raw,
                context.raw(),
                completion,
                object.as_ptr(),
                flags,
            )
        };
        if sent < 0 {
            Err(sent)
        } else {
            Ok(std::mem::take(&mut self.outs))
        }
    }
}

fn pointers<'a>(items: impl Iterator<Item = &'a Bytes>) -> (Vec<*const c_char>, Vec<usize>) {
    items
        .map(|item| (item.as_ptr().cast::<c_char>(), item.len()))
        .unzip()
}

/// A compound operation that writes.
pub struct WriteOp {
    functions: &'static Functions,
    raw: rados_write_op_t,
    outs: Vec<Out>,
}

impl Drop for WriteOp {
    fn drop(&mut self) {
        // SAFETY: librados has taken what it needs of it.
        unsafe { (self.functions.rados_release_write_op)(self.raw) };
    }
}

impl WriteOp {
    /// An operation without parts.
    pub fn new(functions: &'static Functions) -> Self {
        // SAFETY: no arguments.
        Self {
            functions,
            raw: unsafe { (functions.rados_create_write_op)() },
            outs: Vec::new(),
        }
    }
    /// Guard: the object exists.
    pub fn assert_exists(&mut self) {
        // SAFETY: ours.
        unsafe { (self.functions.rados_write_op_assert_exists)(self.raw) };
    }
    /// Guard: it has this version.
    pub fn assert_version(&mut self, version: u64) {
        // SAFETY: ours.
        unsafe { (self.functions.rados_write_op_assert_version)(self.raw, version) };
    }
    /// Guard: the attribute has this value.
    pub fn compare_attr(&mut self, name: &CStr, value: &[u8]) {
        // SAFETY: ours; librados copies.
        unsafe {
            (self.functions.rados_write_op_cmpxattr)(
                self.raw,
                name.as_ptr(),
                ffi::LIBRADOS_CMPXATTR_OP_EQ,
                value.as_ptr().cast(),
                value.len(),
            );
        }
    }
    /// Creates the object.
    pub fn create(&mut self, exclusive: bool) {
        let how = if exclusive {
            ffi::LIBRADOS_CREATE_EXCLUSIVE
        } else {
            ffi::LIBRADOS_CREATE_IDEMPOTENT
        };
        // SAFETY: ours.
        unsafe { (self.functions.rados_write_op_create)(self.raw, how, ptr::null()) };
    }
    /// Writes a range.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        // SAFETY: ours; librados copies.
        unsafe {
            (self.functions.rados_write_op_write)(
                self.raw,
                data.as_ptr().cast(),
                data.len(),
                offset,
            )
        };
    }
    /// Replaces all bytes.
    pub fn write_full(&mut self, data: &[u8]) {
        // SAFETY: as above.
        unsafe {
            (self.functions.rados_write_op_write_full)(self.raw, data.as_ptr().cast(), data.len())
        };
    }
    /// Writes at the end.
    pub fn append(&mut self, data: &[u8]) {
        // SAFETY: as above.
        unsafe {
            (self.functions.rados_write_op_append)(self.raw, data.as_ptr().cast(), data.len())
        };
    }
    /// Removes the object.
    pub fn remove(&mut self) {
        // SAFETY: ours.
        unsafe { (self.functions.rados_write_op_remove)(self.raw) };
    }
    /// Sets the size.
    pub fn truncate(&mut self, size: u64) {
        // SAFETY: ours.
        unsafe { (self.functions.rados_write_op_truncate)(self.raw, size) };
    }
    /// Zeroes a range; one that reaches the end truncates the object.
    pub fn zero(&mut self, offset: u64, length: u64) {
        // SAFETY: ours.
        unsafe { (self.functions.rados_write_op_zero)(self.raw, offset, length) };
    }
    /// Sets an attribute.
    pub fn set_attr(&mut self, name: &CStr, value: &[u8]) {
        // SAFETY: ours; librados copies.
        unsafe {
            (self.functions.rados_write_op_setxattr)(
                self.raw,
                name.as_ptr(),
                value.as_ptr().cast(),
                value.len(),
            )
        };
    }
    /// Removes an attribute.
    pub fn remove_attr(&mut self, name: &CStr) {
        // SAFETY: as above.
        unsafe { (self.functions.rados_write_op_rmxattr)(self.raw, name.as_ptr()) };
    }
    /// Sets omap keys.
    pub fn omap_set(&mut self, entries: &[(Bytes, Bytes)]) {
        let (keys, key_lengths) = pointers(entries.iter().map(|(key, _)| key));
        let (values, value_lengths) = pointers(entries.iter().map(|(_, value)| value));
        // SAFETY: as above.
        unsafe {
            (self.functions.rados_write_op_omap_set2)(
                self.raw,
                keys.as_ptr(),
                values.as_ptr(),
                key_lengths.as_ptr(),
                value_lengths.as_ptr(),
                entries.len(),
            );
        }
    }
    /// Removes omap keys.
    pub fn omap_remove(&mut self, keys: &[Bytes]) {
        let (pointers, lengths) = pointers(keys.iter());
        // SAFETY: as above.
        unsafe {
            (self.functions.rados_write_op_omap_rm_keys2)(
                self.raw,
                pointers.as_ptr(),
                lengths.as_ptr(),
                keys.len(),
            )
        };
    }
    /// Removes all omap keys.
    pub fn omap_clear(&mut self) {
        // SAFETY: ours.
        unsafe { (self.functions.rados_write_op_omap_clear)(self.raw) };
    }
    /// Calls a method; only its return value comes back.
    pub fn call(&mut self, class: &CStr, method: &CStr, input: &[u8]) {
        let kind = Kind::Called {
            output: ptr::null_mut(),
            length: 0,
        };
        self.outs.push(Out::new(self.functions, kind));
        let out = self.outs.last_mut().expect("just pushed");
        // SAFETY: nothing is in flight yet; the cell stays where it is.
        unsafe {
            let result = &raw mut out.cell.as_mut().result;
            (self.functions.rados_write_op_exec)(
                self.raw,
                class.as_ptr(),
                method.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                result,
            );
        }
    }
    /// Sends the operation.
    ///
    /// # Errors
    /// It was not sent: the negative result.
    pub fn send(
        mut self,
        context: &crate::context::Context,
        completion: rados_completion_t,
        object: &CStr,
        flags: c_int,
    ) -> Result<Vec<Out>, c_int> {
        // SAFETY: everything is alive; without a time, the client's clock is used.
        let sent = unsafe {
            (self.functions.rados_aio_write_op_operate)(
                self.raw,
                context.raw(),
                completion,
                object.as_ptr(),
                ptr::null_mut(),
                flags,
            )
        };
        if sent < 0 {
            Err(sent)
        } else {
            Ok(std::mem::take(&mut self.outs))
        }
    }
}
