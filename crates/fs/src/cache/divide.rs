//! Divides ranges of a file, and data in parts, into blocks.

use super::slice::Slice;
use bytes::Bytes;
use std::ops::{Range, RangeInclusive};

/// Divides a range into blocks: each block's index, the offset in it, and the bytes of the range.
pub(super) fn blocks<const BLOCK: usize>(
    offset: u64,
    length: usize,
) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let (index, at) = (
            (offset + done as u64) / BLOCK as u64,
            ((offset + done as u64) % BLOCK as u64) as usize,
        );
        let range = done..length.min(done + BLOCK - at);
        done = range.end;
        (!range.is_empty()).then_some((index, at, range))
    })
}

/// The part of a non-empty range that is in a block.
pub(super) fn within<const BLOCK: usize>(index: u64, range: &Range<u64>) -> Range<usize> {
    let base = index * BLOCK as u64;
    let inside = |at: u64| at.saturating_sub(base).min(BLOCK as u64) as usize;
    inside(range.start)..inside(range.end)
}

/// Indexes of the blocks of a non-empty range.
pub(super) fn indexes<const BLOCK: usize>(range: &Range<u64>) -> RangeInclusive<u64> {
    range.start / BLOCK as u64..=(range.end - 1) / BLOCK as u64
}

/// Parts taken one after another, with other boundaries.
pub(super) struct Rope<'a> {
    parts: std::slice::Iter<'a, Bytes>,
    part: Slice,
}

impl<'a> Rope<'a> {
    pub fn new(parts: &'a [Bytes]) -> Self {
        Self {
            parts: parts.iter(),
            part: Slice::default(),
        }
    }
    /// The next `length` bytes: copied, unless they may keep their buffer alive.
    pub fn take(&mut self, length: usize, slice: bool) -> Slice {
        let mut copy = Vec::new();
        loop {
            if slice && copy.is_empty() && self.part.len() >= length {
                return self.part.split_to(length);
            }
            let part = self.part.split_to(self.part.len().min(length - copy.len()));
            copy.reserve_exact(if part.is_empty() {
                0
            } else {
                length - copy.len()
            });
            copy.extend_from_slice(part.bytes());
            if copy.len() == length {
                return Bytes::from(copy).into();
            }
            self.part = self
                .parts
                .next()
                .expect("lengths were added up")
                .clone()
                .into();
        }
    }
}
