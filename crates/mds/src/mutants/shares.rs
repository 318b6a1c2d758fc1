//! A planted bug of invalidations.

use super::{Shares, Wait};
use crate::mutants::{Mutant, mutant};

pub(super) fn is_met(_: &Shares, _: &Wait) -> Option<bool> {
    mutant(Mutant::ForgettingNotAwaited).then_some(true)
}
