//! A planted bug of backfill.

use super::{ObjectId, Work};
use crate::mutants::{Mutant, mutant};

pub(super) fn gone(_: &Work) -> Option<Vec<ObjectId>> {
    mutant(Mutant::BackfillResurrects).then(Vec::new)
}
