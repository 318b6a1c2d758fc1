//! What a reader that goes through a file in order leaves behind.
//!
//! ```text
//!  began           kept           left_to  behind  to
//!    │ kept           │ left: forgotten │ kept    │ read ahead …
//!    └────────────────┴──── again ──────┴▶ kept this time
//! ```
//! A file that is read from its beginning to its end is seldom read again before it is closed. Kept
//! to the last byte, it pushes out what others use, and each of its bytes is received to memory
//! that the kernel has to find and clear first, which takes longer than receiving does. So a reader
//! that has gone on for a while leaves nothing behind; what it has left is free for what it reads
//! next. The part before that is kept: of a short file all. What was left and is read again was
//! left too early, and is kept as all else is.
//!
//! Invariant: nothing is left that has not been read, nor twice. What several programs read at a
//! time, or one program with several reads in flight, is left once all are some way past it.

use std::ops::Range;

/// What is kept in any case, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeping {
    /// From where the reader began.
    pub first: u64,
    /// Behind it: what it reads now may be on its way.
    pub behind: u64,
}

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Where it began, and where its last read ended.
    began: u64,
    to: u64,
    /// Up to here it was left before.
    left_to: u64,
}

impl Stream {
    /// A range is read: whether it follows the one before, and what need not be kept from now on.
    pub fn read(&mut self, range: Range<u64>, how: Keeping) -> (bool, Range<u64>) {
        let follows = std::mem::replace(&mut self.to, range.end) == range.start;
        if !follows {
            self.began = range.start;
        }
        let from = self.left_to.max(self.began.saturating_add(how.first));
        let left = from..range.start.saturating_sub(how.behind).max(from);
        if !left.is_empty() {
            self.left_to = left.end;
        }
        (follows, left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOW: Keeping = Keeping {
        first: 25,
        behind: 10,
    };

    /// Reads a range in parts of ten; what is left meanwhile.
    fn read(stream: &mut Stream, range: Range<u64>) -> Vec<u64> {
        let parts = range
            .clone()
            .step_by(10)
            .map(|at| at..range.end.min(at + 10));
        parts.flat_map(|part| stream.read(part, HOW).1).collect()
    }

    #[test]
    fn what_follows_the_beginning_is_left_once_and_kept_when_it_is_read_again() {
        let mut stream = Stream::default();
        assert_eq!(read(&mut stream, 0..60), Vec::from_iter(25..40));
        assert!(read(&mut stream, 0..50).is_empty(), "read again");
        assert_eq!(
            read(&mut stream, 50..75),
            Vec::from_iter(40..60),
            "and further"
        );
    }

    #[test]
    fn reads_here_and_there_leave_nothing() {
        let mut stream = Stream::default();
        for at in [100, 50, 200, 0, 120, 30] {
            let (follows, left) = stream.read(at..at + 20, HOW);
            assert!(!follows && left.is_empty(), "{left:?} at {at}");
        }
        assert!(
            read(&mut stream, 50..60).is_empty(),
            "30 bytes in a row, of which 10 are new"
        );
        assert_eq!(read(&mut stream, 60..80), Vec::from_iter(55..60));
    }
}
