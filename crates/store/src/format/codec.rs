//! Reading and writing numbers and byte strings. Reading fails with `None` on short input, and never panics.

use bytes::{Buf, Bytes};

/// Appends to a buffer.
pub(crate) trait Put {
    fn u8(&mut self, value: u8);
    fn u16(&mut self, value: u16);
    fn u32(&mut self, value: u32);
    fn u64(&mut self, value: u64);
    /// A byte string with a 32-bit length in front.
    fn bytes(&mut self, value: &[u8]);
}

impl Put for Vec<u8> {
    fn u8(&mut self, value: u8) {
        self.push(value);
    }
    fn u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn bytes(&mut self, value: &[u8]) {
        self.u32(u32::try_from(value.len()).expect("submit bounds every key and value far below 4 GiB"));
        self.extend_from_slice(value);
    }
}

/// Takes from the front of a buffer; byte strings are slices of it, not copies.
pub(crate) struct Take(pub(crate) Bytes);

impl Take {
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.0.has_remaining().then(|| self.0.get_u8())
    }
    pub(crate) fn u16(&mut self) -> Option<u16> {
        (self.0.len() >= 2).then(|| self.0.get_u16_le())
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        (self.0.len() >= 4).then(|| self.0.get_u32_le())
    }
    pub(crate) fn u64(&mut self) -> Option<u64> {
        (self.0.len() >= 8).then(|| self.0.get_u64_le())
    }
    pub(crate) fn take(&mut self, length: usize) -> Option<Bytes> {
        (self.0.len() >= length).then(|| self.0.split_to(length))
    }
    pub(crate) fn bytes(&mut self) -> Option<Bytes> {
        let length = self.u32()?;
        self.take(length as usize)
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
