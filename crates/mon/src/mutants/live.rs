//! A planted bug of reads.

use super::{Live, Output, Time};
use crate::mutants::{Mutant, mutant};

/// Reads are proven before they are looked at.
pub(super) fn answer_reads(live: &mut Live, _: &Time, _: &mut Vec<Output>) -> Option<bool> {
    if mutant(Mutant::StaleLeaderRead) && live.consensus.is_leader() {
        let list = std::mem::take(&mut live.leader.fresh);
        live.leader.confirmed.push((0, list));
    }
    None
}
