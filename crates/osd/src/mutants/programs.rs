//! Planted bugs of classes.

use super::{Name, Programs};
use crate::mutants::{Mutant, active, mutant};

pub(super) fn is_fetching(_: &Programs, _: &Name) -> Option<bool> {
    mutant(Mutant::OldProgramRuns).then_some(false)
}

pub(super) fn await_source(_: &mut Programs, _: &Name, _: &u64) -> Option<()> {
    matches!(active()?, Mutant::OldProgramRuns | Mutant::CalledProgramOld).then_some(())
}
