//! Reading and writing numbers and byte strings. Reading fails with `None` on short input, and
//! never panics.

use bytes::Bytes;

/// Appends to a buffer.
pub(crate) trait Put {
    fn u8(&mut self, value: u8);
    fn u16(&mut self, value: u16);
    fn u32(&mut self, value: u32);
    fn u64(&mut self, value: u64);
    /// A byte string preceded by a 32-bit length.
    fn bytes(&mut self, value: &[u8]);
}

impl Put for Vec<u8> {
    #[inline]
    fn u8(&mut self, value: u8) {
        self.push(value);
    }
    #[inline]
    fn u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    #[inline]
    fn u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    #[inline]
    fn u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    #[inline]
    fn bytes(&mut self, value: &[u8]) {
        self.u32(
            u32::try_from(value.len()).expect("submit bounds every key and value far below 4 GiB"),
        );
        self.extend_from_slice(value);
    }
}

/// Takes from the front of a buffer; byte strings are slices of it, not copies.
pub(crate) struct Take {
    bytes: Bytes,
    /// The number of bytes already taken.
    at: usize,
}

impl Take {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self { bytes, at: 0 }
    }
    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let found = *self.bytes.get(self.at..)?.first_chunk()?;
        self.at += N;
        Some(found)
    }
    #[inline]
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }
    #[inline]
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    #[inline]
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    #[inline]
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    pub(crate) fn take(&mut self, length: usize) -> Option<Bytes> {
        (self.bytes.len() - self.at >= length).then(|| {
            self.at += length;
            self.bytes.slice(self.at - length..self.at)
        })
    }
    pub(crate) fn bytes(&mut self) -> Option<Bytes> {
        let length = self.u32()?;
        self.take(length as usize)
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }
}
