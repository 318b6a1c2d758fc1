//! A planted bug of changes that are not safe.

use crate::mutants::{Mutant, mutant};

pub(super) fn is_kept(_: &bool) -> Option<bool> {
    mutant(Mutant::UnsafeForgotten).then_some(false)
}
