//! Planted bugs of read leases.

use super::{OsdId, Peers, Time};
use crate::mutants::{Mutant, mutant};

pub(super) fn start(_: &mut Peers, _: &Time) -> Option<()> {
    mutant(Mutant::LeaseForgottenAfterRestart).then_some(())
}

pub(super) fn lease_until(_: &Peers, _: &OsdId) -> Option<Time> {
    mutant(Mutant::ReadLeaseIgnored).then_some(Time::MAX)
}
