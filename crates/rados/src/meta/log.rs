//! Bounds of the log of recent changes, for watches that begin in the past. Older changes are
//! *compacted*, one block at a time.
//!
//! ```text
//!   block 3        block 4        block 5
//!  ├──────────────┼──────────────┼────────┤
//!  oldest = 192                    revision = 350       head.log = [bytes of 3, of 4, of 5]
//! ```
//! Invariant: `log` has one number for each block from the oldest one kept to the newest
//! revision's, and is empty only if nothing was ever changed.

use super::record::Head;
use std::ops::Range;

/// Revisions in a block.
pub const BLOCK: u64 = 64;
/// Most blocks kept: between 4,161 and 4,224 revisions once there are that many.
const BLOCKS_MAX: usize = 66;
/// Most bytes of changes kept, except for the newest block.
pub const BYTES_MAX: u64 = 4 << 20;

impl Head {
    /// The oldest revision whose changes are kept; the next revision when none are.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        let Some(behind) = (self.log.len() as u64).checked_sub(1) else {
            return self.revision + 1;
        };
        ((self.revision / BLOCK).saturating_sub(behind) * BLOCK).max(1)
    }

    /// Advances to the next revision, whose changes take this many bytes in the log. Returns the
    /// revisions that are compacted.
    pub fn advance(&mut self, bytes: u64) -> Range<u64> {
        let before = if self.log.is_empty() {
            self.revision + 1
        } else {
            self.oldest()
        };
        self.revision += 1;
        match self
            .log
            .last_mut()
            .filter(|_| !self.revision.is_multiple_of(BLOCK))
        {
            Some(newest) => *newest += bytes,
            None => self.log.push(bytes),
        }
        let too_long = |log: &[u64]| log.len() > BLOCKS_MAX || log.iter().sum::<u64>() > BYTES_MAX;
        let gone = (0..self.log.len() - 1)
            .take_while(|gone| too_long(&self.log[*gone..]))
            .count();
        self.log.drain(..gone);
        before..self.oldest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn grown(sizes: impl Iterator<Item = u64>) -> (Head, BTreeSet<u64>) {
        let (mut head, mut kept) = (Head::default(), BTreeSet::new());
        assert_eq!(head.oldest(), 1);
        for size in sizes {
            let gone = head.advance(size);
            kept.insert(head.revision);
            for revision in gone {
                assert!(kept.remove(&revision), "revision {revision} goes once");
            }
            assert_eq!(
                kept.first(),
                Some(&head.oldest()),
                "at revision {}",
                head.revision
            );
            assert_eq!(
                kept.len() as u64,
                head.revision + 1 - head.oldest(),
                "what is kept is dense"
            );
        }
        (head, kept)
    }

    // Fails when `BLOCKS_MAX` is ignored, and when the first block is assumed to begin at 0.
    #[test]
    fn what_is_kept_is_dense_and_bounded_in_number() {
        let (head, kept) = grown((0..10_000).map(|_| 10));
        assert_eq!(head.revision, 10_000);
        assert!((4_161..=4_224).contains(&kept.len()), "{}", kept.len());
    }

    #[test]
    fn what_is_kept_is_bounded_in_bytes_but_for_the_newest_block() {
        let (head, kept) = grown((0..200).map(|_| 100_000));
        assert!(
            head.log.iter().sum::<u64>() <= BYTES_MAX + BLOCK * 100_000 && kept.len() <= 128,
            "{}",
            kept.len()
        );
        let (head, kept) = grown([1, 1, 64 << 20].into_iter());
        assert_eq!((head.oldest(), kept.len()), (1, 3), "a block is kept whole");
    }
}
