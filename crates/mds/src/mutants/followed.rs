//! A planted bug of standbys.

use super::{Batch, Held};
use crate::mutants::{Mutant, mutant};

/// What was appended since it was followed is not read.
pub(super) fn go_on(
    held: &mut Held,
    _: &[u8],
    next: &mut u64,
    into: &mut Vec<Batch>,
) -> Option<bool> {
    mutant(Mutant::FollowedNotReadAgain).then(|| {
        let continues = held.begins == *next && held.extend(&[]);
        if continues {
            *next = held.next();
            into.append(&mut held.batches);
        }
        continues
    })
}
