//! A planted bug of reads.

use super::Pending;
use crate::mutants::{Mutant, mutant};

pub(super) fn reads_uncommitted(_: &Pending) -> Option<bool> {
    mutant(Mutant::ReadUncommitted).then_some(true)
}
