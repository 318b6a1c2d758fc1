//! Planted bugs of fences, and of messages of an earlier interval (with `pg.rs`).

use super::{ClusterMap, Epoch, Message, RequestId};
use crate::mutants::{Mutant, mutant};

pub(super) fn needed(_: &Epoch, message: &Message) -> Option<Epoch> {
    let is_ack = matches!(message, Message::ReplicateAcks(_));
    (is_ack && mutant(Mutant::AckIntervalUnchecked)).then_some(Epoch::NONE)
}

pub(super) fn is_fenced(_: &ClusterMap, _: &RequestId) -> Option<bool> {
    mutant(Mutant::FenceIgnored).then_some(false)
}
