//! Planted bugs of answers from memory.

use super::{Answered, Pending, Replies, RequestId, Seen, Shared, is_first_sent_after};
use crate::mutants::{Mutant, active, mutant};

pub(super) fn is_new(replies: &Replies<'_>, op: &Pending, process: &u64) -> Option<bool> {
    match (active()?, replies.local.dedup.seen(&op.request.request)) {
        (Mutant::OvertakenExecuted, Seen::New) => Some(true),
        (Mutant::OvertakenExecuted, Seen::Stranger(horizon)) => {
            Some(is_first_sent_after(op, horizon, *process))
        }
        (Mutant::ForgottenClientExecutedAgain, Seen::Stranger(_)) => {
            Some(!replies.is_overtaken(op))
        }
        (Mutant::SupersededExecuted, Seen::Superseded) => Some(true),
        _ => None,
    }
}

pub(super) fn remember_answer(
    _: &mut Replies<'_>,
    _: &RequestId,
    _: &Answered,
    _: &Shared,
) -> Option<()> {
    mutant(Mutant::AnswerForgotten).then_some(())
}
