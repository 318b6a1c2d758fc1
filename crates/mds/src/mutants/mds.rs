//! Planted bugs of servers.

use super::{Answered, BTreeSet, ClientId, FsRequest, Ino, Mds, Outcome};
use crate::journal::JournalHead;
use crate::mutants::{Mutant, active, mutant};
use nacre_wire::Wire as _;

pub(super) fn is_safe_at_once(_: &bool) -> Option<bool> {
    mutant(Mutant::SafeTooEarly).then_some(true)
}

pub(super) fn first_serial(_: &bool, serial: &u64) -> Option<u64> {
    mutant(Mutant::NumbersReused).then_some(*serial)
}

pub(super) fn clients_to_await(_: &Mds) -> Option<BTreeSet<ClientId>> {
    mutant(Mutant::ClientsNotAwaited).then(BTreeSet::new)
}

pub(super) fn inherit_answer(_: &mut Mds, _: &Answered, _: &u64) -> Option<()> {
    mutant(Mutant::AnswersForgotten).then_some(())
}

pub(super) fn waits_for_delegations(
    _: &mut Mds,
    _: &ClientId,
    _: &FsRequest,
    _: &Option<&Outcome>,
) -> Option<bool> {
    mutant(Mutant::DelegationsKept).then_some(false)
}

pub(super) fn written_by(_: &Mds, _: &ClientId) -> Option<BTreeSet<Ino>> {
    mutant(Mutant::NothingProbed).then(BTreeSet::new)
}

pub(super) fn waits_for_writer(_: &mut Mds, _: &ClientId, _: &u64, _: &Ino) -> Option<bool> {
    mutant(Mutant::WriterNotAsked).then_some(false)
}

pub(super) fn encoded(head: &JournalHead) -> Option<Vec<u8>> {
    let mut head = head.clone();
    match active()? {
        Mutant::WritersUnnamed => head.writers.clear(),
        Mutant::TransactionsUnnamed => head.transactions.clear(),
        _ => return None,
    }
    Some(head.to_bytes())
}
