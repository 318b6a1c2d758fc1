//! Planted bugs of forgotten clients.

use super::{Admit, OpRequest};
use crate::mutants::{Mutant, active};

pub(super) fn is_undated(admit: &Admit<'_>, request: &OpRequest, _: &u64) -> Option<bool> {
    match active()? {
        Mutant::UndatedForEver => Some(admit.dedup.is_stranger(&request.request)),
        Mutant::ForgottenClientExecutedAgain => Some(false),
        _ => None,
    }
}
