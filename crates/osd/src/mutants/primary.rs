//! A planted bug of peering that [`Primary::check`](super::Primary) tolerates: its harm must be
//! visible.

use super::PeerState;
use crate::mutants::{Mutant, mutant};

pub(super) fn may_serve(_: &PeerState) -> Option<bool> {
    mutant(Mutant::BackfillTargetComplete).then_some(true)
}
