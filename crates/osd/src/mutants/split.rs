//! A planted bug of splits.

use super::{DedupTable, Local, ObjectId};
use crate::mutants::{Mutant, mutant};

pub(super) fn take_operations(_: &mut Local, _: &impl Fn(&ObjectId) -> bool) -> Option<DedupTable> {
    mutant(Mutant::DedupLostOnSplit).then(DedupTable::default)
}
