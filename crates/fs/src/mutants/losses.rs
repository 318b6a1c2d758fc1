//! A planted bug of reported errors.

use super::Losses;
use crate::mutants::{Mutant, mutant};

pub(super) fn note_told(losses: &mut Losses) -> Option<()> {
    mutant(Mutant::LossesTaken).then(|| losses.0.clear())
}
