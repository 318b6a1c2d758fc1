//! Evicts what a sequential reader of a file leaves behind.
//!
//! ```text
//!  began           kept           left_to  behind  to
//!    │ kept           │ left: evicted   │ kept    │ read ahead …
//!    └────────────────┴──── again ──────┴▶ kept this time
//! ```
//! A file that is read from beginning to end is seldom read again before it is closed. If it were
//! cached to the last byte, it would evict data that others use, and each of its bytes would be
//! received into memory that the kernel has to find and clear first, which takes longer than
//! receiving. So a reader that has continued for a while leaves nothing behind, and the memory is
//! reused for its next reads. The first part is kept; for a short file that is all of it. Data that
//! was left and is read again was left too early, and is cached normally.
//!
//! Invariant: only data that has been read is left, and only once. What several programs read at a
//! time, or one program with several reads in flight, is left once all of them are some way past
//! it.

use std::ops::Range;

/// What is kept in any case, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeping {
    /// From where the reader began.
    pub first: u64,
    /// Directly behind the reader: its current reads may be in progress.
    pub behind: u64,
}

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Where it began, and where its last read ended.
    began: u64,
    to: u64,
    /// Everything before this was left before.
    left_to: u64,
}

impl Stream {
    /// A range is read: returns whether it follows the previous one, and what need not be kept from
    /// now on.
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

    /// Reads a range in parts of ten; returns what is left meanwhile.
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
