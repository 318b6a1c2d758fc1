//! A planted bug of leases.

use super::Meta;
use crate::mutants::{Mutant, mutant};

pub(super) fn next_lease(meta: &Meta) -> Option<u64> {
    let last = meta.leases.keys().next_back().copied();
    mutant(Mutant::LeaseNumberReused).then(|| last.unwrap_or_default() + 1)
}
