//! Deterministic election timeouts: raft-rs draws them from the thread's own generator, so the
//! drawn value is overwritten after every step, tick and campaign (`DEPENDENCIES.md` §4) with a
//! pure function of replayable inputs.
//!
//! ```text
//!   ticks  10        13        16        19
//!          ├─ slot 0 ┼─ slot 1 ┼─ slot 2 ┤          slot = (rank among the voters + term) mod voters
//! ```
//! Every voter has its own slot in each term, so that two of them do not campaign at once and split
//! the vote; within the slot, and after failed attempts across slots, the timeout is random.

use nacre_types::SplitMix64;

/// Ticks without a leader before the first slot; also the check-quorum lease, plus a margin.
pub(super) const FIRST: usize = 10;
/// One past the longest timeout.
pub(super) const LIMIT: usize = 20;

/// The first number that is drawn from a seed.
pub(crate) const fn mix(seed: u64) -> u64 {
    SplitMix64(seed).draw()
}

/// The timeout, in ticks, of the voter with `rank` among `voters`, in `term`, after `attempts` lost
/// elections in it.
pub(super) fn ticks(seed: u64, rank: usize, voters: usize, term: u64, attempts: u64) -> usize {
    let random = mix(mix(seed ^ mix(rank as u64)) ^ mix(term.wrapping_mul(31)) ^ attempts) as usize;
    let span = LIMIT - FIRST;
    let width = span / voters.clamp(1, span);
    if attempts > 1 {
        // The slots did not help (for example with a one-way partition): spread over all of them.
        return FIRST + random % span;
    }
    let slot = (rank + (term % 1024) as usize) % voters.max(1);
    FIRST + (slot % span) * width + random % width
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voters_of_one_term_never_stand_in_the_same_tick() {
        for voters in 1..=5 {
            for term in 0..50 {
                let mut seen = std::collections::BTreeSet::new();
                for rank in 0..voters {
                    // Different seeds: each monitor has its own.
                    let ticks = ticks(rank as u64 * 77, rank, voters, term, 0);
                    assert!((FIRST..LIMIT).contains(&ticks));
                    assert!(
                        seen.insert(ticks),
                        "two of {voters} voters stand at {ticks} in term {term}"
                    );
                }
            }
        }
    }

    #[test]
    fn failed_attempts_spread_out() {
        let drawn: std::collections::BTreeSet<usize> = (2..200)
            .map(|attempts| ticks(1, 0, 3, 5, attempts))
            .collect();
        assert_eq!(drawn.len(), LIMIT - FIRST);
    }
}
