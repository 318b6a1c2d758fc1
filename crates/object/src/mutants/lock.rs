//! A planted bug of locks.

use super::{Claiming, Name};
use crate::mutants::{Mutant, mutant};

pub(super) fn holds(
    claiming: &Claiming<'_>,
    name: &Name,
    _: &u64,
    shared_ok: &bool,
) -> Option<bool> {
    let record = claiming.context.claims.locks.get(name);
    let is_held = record.is_some_and(|record| !record.shared || *shared_ok);
    mutant(Mutant::LockOwnerUnchecked).then_some(is_held)
}
