//! Bytes on the device: everything that is encoded or decoded is in the modules below, and drawn to
//! the byte in `docs/formats/store.md`. All numbers are little-endian, except inside index keys,
//! which sort (big-endian).

pub(crate) mod checksum;
pub(crate) mod codec;
pub(crate) mod keys;
pub(crate) mod log;
pub(crate) mod object;
pub(crate) mod root;
pub(crate) mod value;

/// Bytes of one allocation unit, of one checksummed block, and of the write-ahead log's padding.
pub(crate) const BLOCK: usize = 4096;
/// The same for offsets.
pub(crate) const BLOCK_U64: u64 = BLOCK as u64;
/// One block of zeros, for gaps and padding that never need memory of their own.
pub(crate) static ZEROS: [u8; BLOCK] = [0; BLOCK];
