//! A slice that knows its buffer, so that consecutive slices can be joined.
//!
//! ```text
//!  whole   │ block │ block │ block │ …      an object, as it was received
//!            └─ join ──┘                    a read of two blocks is one piece of it
//! ```
//! Data is cached in small blocks and read in large pieces: data that arrived in one piece is
//! returned in one piece, without copying.
//!
//! Invariant: a slice lies within its buffer, and keeps nothing else alive.

use bytes::{Buf as _, Bytes};
use std::ops::Range;

/// See the module head.
#[derive(Clone, Debug, Default)]
pub(super) struct Slice {
    whole: Bytes,
    from: usize,
    len: usize,
}

impl From<Bytes> for Slice {
    fn from(whole: Bytes) -> Self {
        Self {
            from: 0,
            len: whole.len(),
            whole,
        }
    }
}

impl Slice {
    pub const fn len(&self) -> usize {
        self.len
    }
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The bytes alone. If this was the last reference, they can be changed in place.
    pub fn into_bytes(mut self) -> Bytes {
        self.whole.truncate(self.from + self.len);
        self.whole.advance(self.from);
        self.whole
    }
    pub fn bytes(&self) -> &[u8] {
        &self.whole[self.from..self.from + self.len]
    }
    /// A part of the slice.
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "{range:?} of {}",
            self.len
        );
        Self {
            whole: self.whole.clone(),
            from: self.from + range.start,
            len: range.len(),
        }
    }
    /// Splits off the first bytes.
    pub fn split_to(&mut self, len: usize) -> Self {
        let first = self.slice(0..len);
        self.from += len;
        self.len -= len;
        first
    }
    /// Joins `next` if it follows in the same buffer; returns whether it does.
    pub fn join(&mut self, next: &Self) -> bool {
        // Both are alive: equal addresses mean the same buffer.
        let place = |slice: &Self| (slice.whole.as_ptr(), slice.whole.len());
        let follows = place(self) == place(next) && self.from + self.len == next.from;
        if follows {
            self.len += next.len;
        }
        follows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_follows_in_the_same_buffer_is_joined() {
        let whole = Bytes::from_static(b"abcdef");
        let all = Slice::from(whole.clone());
        let yes = [(0..2, 2..6, true), (1..2, 2..3, true)];
        let no = [(0..2, 3..6, false), (2..4, 0..2, false)];
        for (left, right, joins) in yes.into_iter().chain(no) {
            let mut joined = all.slice(left.clone());
            assert_eq!(
                joined.join(&all.slice(right.clone())),
                joins,
                "{left:?} and {right:?}"
            );
            let expected = if joins { left.start..right.end } else { left };
            assert_eq!(joined.bytes(), &whole[expected.clone()]);
            assert_eq!(
                joined.into_bytes().as_ptr(),
                whole[expected].as_ptr(),
                "nothing is copied"
            );
        }
        let mut one = all.slice(0..3);
        let other = Slice::from(Bytes::copy_from_slice(&whole));
        assert!(!one.join(&other.slice(3..6)), "the same bytes elsewhere");
        // Two halves of one allocation, each a buffer of its own.
        let mut half = Slice::from(whole.slice(0..3));
        assert!(!half.join(&Slice::from(whole.slice(3..6))));
    }

    #[test]
    fn the_last_reference_may_be_changed_in_place() {
        let mut slice = Slice::from(Bytes::from(vec![1, 2, 3, 4]));
        let first = slice.split_to(1);
        assert_eq!((first.bytes(), slice.bytes()), (&[1][..], &[2, 3, 4][..]));
        assert!(slice.clone().into_bytes().try_into_mut().is_err());
        drop(first);
        assert!(slice.into_bytes().try_into_mut().is_ok());
    }
}
