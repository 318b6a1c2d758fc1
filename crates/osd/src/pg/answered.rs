//! Operations that could have changed something and did not, with their answers in this interval.
//!
//! A client relies on the answer that it got. A duplicate of the request that arrives later, when
//! the object has changed, must not be executed: it gets the same answer. Updates are remembered
//! with the PG (`dedup.rs`); these need not be, because duplicates from an older interval are
//! refused.
//!
//! Answers beyond the memory bound are forgotten, and their client's mark is raised above them:
//! requests below the mark are refused. Requests that were in flight and unknown when the mark was
//! raised are excepted: they were not executed before, and are spared once (F39: a write that
//! waited for recovery was refused although it had never been executed, because its client got many
//! other answers meanwhile).
//!
//! Invariant: everything forgotten here is below its client's mark, and every request below the
//! mark that was not spared is refused.

use nacre_types::{ClientId, Instance, Version};
use nacre_wire::Wire;
use nacre_wire::msg::client::{OpFailure, RequestId, SubReply};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// An answer.
#[derive(Clone, Debug)]
pub struct Answered {
    /// Why the operation failed, if it did.
    pub failure: Option<OpFailure>,
    /// Its results, if it succeeded.
    pub results: Vec<SubReply>,
    /// The log's head at that time: what the operation saw may be lost until the head is committed.
    pub seen: Version,
}

/// The state of a request in the memory.
#[derive(Debug)]
pub enum Known<'a> {
    /// It is new.
    Nothing,
    /// It was answered.
    Answered(&'a Answered),
    /// It may or may not have been answered long ago.
    Forgotten,
}

/// The answers of one PG; see the module head.
#[derive(Debug, Default)]
pub struct Answers {
    entries: BTreeMap<RequestId, (Answered, usize)>,
    /// In the order in which they were answered; some may have been forgotten already.
    order: VecDeque<RequestId>,
    bytes: usize,
    below: BTreeMap<(ClientId, Instance), u64>,
    /// Below the mark, in flight when it was raised, and not executed yet.
    spared: BTreeSet<RequestId>,
}

impl Answers {
    /// Looks a request up.
    #[must_use]
    pub fn known(&self, request: &RequestId) -> Known<'_> {
        match self.entries.get(request) {
            Some((answered, _)) => Known::Answered(answered),
            None if self
                .below
                .get(&(request.client, request.instance))
                .is_some_and(|below| request.sequence < *below)
                && !self.spared.contains(request) =>
            {
                Known::Forgotten
            }
            None => Known::Nothing,
        }
    }

    /// The client has all its answers below this sequence number.
    pub fn confirm(&mut self, who: &RequestId, below: u64) {
        // Numbers begin at 1: a client that sends one operation and leaves needs no mark.
        if below <= 1 {
            return;
        }
        let mark = self.below.entry((who.client, who.instance)).or_default();
        if *mark >= below {
            return;
        }
        *mark = below;
        if self.entries.is_empty() && self.spared.is_empty() {
            return;
        }
        let first = RequestId {
            sequence: 0,
            ..*who
        };
        let gone: Vec<RequestId> = self
            .entries
            .range(
                first..RequestId {
                    sequence: below,
                    ..*who
                },
            )
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            self.forget(&id);
        }
        if !self.spared.is_empty() {
            let gone = first..RequestId {
                sequence: below,
                ..*who
            };
            self.spared.retain(|id| !gone.contains(id));
        }
    }

    /// The request was executed; a duplicate of it must not be.
    pub fn executed(&mut self, request: &RequestId) {
        if !self.spared.is_empty() {
            self.spared.remove(request);
        }
    }

    /// Whether the memory exceeds `bytes_max`: then call [`Self::shrink`].
    #[must_use]
    pub const fn is_too_large(&self, bytes_max: usize) -> bool {
        self.bytes > bytes_max
    }

    /// Forgets the oldest answers, down to three quarters of `bytes_max`. `in_hand`: operations
    /// that were not executed, and are queued here or will be resent.
    pub fn shrink(&mut self, bytes_max: usize, in_hand: impl Iterator<Item = RequestId>) {
        let unknown: Vec<RequestId> = in_hand
            .filter(|id| matches!(self.known(id), Known::Nothing))
            .collect();
        while self.bytes > bytes_max / 4 * 3 {
            let oldest = self
                .order
                .pop_front()
                .expect("what has bytes is in the order");
            if self.entries.contains_key(&oldest) {
                self.confirm(&oldest, oldest.sequence + 1);
                // The answer of a spared request is below the mark.
                self.forget(&oldest);
            }
        }
        let mark = |id: &RequestId| {
            self.below
                .get(&(id.client, id.instance))
                .copied()
                .unwrap_or_default()
        };
        self.spared = unknown
            .into_iter()
            .filter(|id| id.sequence < mark(id))
            .collect();
    }

    /// Remembers the answer of a request.
    pub fn remember(&mut self, request: RequestId, answered: Answered) {
        self.executed(&request);
        let bytes = answered.results.to_bytes().len() + 128;
        self.forget(&request);
        self.entries.insert(request, (answered, bytes));
        self.order.push_back(request);
        self.bytes += bytes;
        if self.order.len() > 2 * self.entries.len() + 64 {
            self.order.retain(|id| self.entries.contains_key(id));
        }
    }

    fn forget(&mut self, request: &RequestId) {
        if let Some((_, bytes)) = self.entries.remove(request) {
            self.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn id(client: u64, sequence: u64) -> RequestId {
        RequestId {
            client: ClientId(client),
            instance: Instance(1),
            sequence,
        }
    }
    fn answered(bytes: usize) -> Answered {
        let results = vec![SubReply::Value {
            value: Bytes::from(vec![0; bytes]),
        }];
        Answered {
            failure: None,
            results,
            seen: Version::NONE,
        }
    }

    /// A request that was spared when older answers were forgotten is answered below its client's
    /// mark. Forgetting went by the mark, which is beyond that answer already, so the answer was
    /// kept for ever and the next round found nothing more in the order (simulator, seed 53).
    #[test]
    fn an_answer_below_the_mark_is_forgotten_too() {
        let mut answers = Answers::default();
        for sequence in 2..=10 {
            answers.remember(id(1, sequence), answered(100));
        }
        answers.shrink(1000, [id(1, 1)].into_iter());
        assert!(
            matches!(answers.known(&id(1, 1)), Known::Nothing),
            "it is in hand"
        );
        answers.remember(id(1, 1), answered(100));
        answers.shrink(100, std::iter::empty());
        assert!(answers.bytes <= 75 && matches!(answers.known(&id(1, 1)), Known::Forgotten));
    }

    #[test]
    fn an_answer_is_known_until_its_client_has_it_and_refused_after() {
        let mut answers = Answers::default();
        answers.remember(id(1, 5), answered(1));
        answers.remember(id(2, 5), answered(1));
        assert!(matches!(answers.known(&id(1, 5)), Known::Answered(_)));
        assert!(matches!(answers.known(&id(1, 4)), Known::Nothing));
        answers.confirm(&id(1, 9), 6);
        assert!(matches!(answers.known(&id(1, 5)), Known::Forgotten));
        assert!(matches!(answers.known(&id(1, 6)), Known::Nothing));
        assert!(matches!(answers.known(&id(2, 5)), Known::Answered(_)));
    }

    /// A client that never confirms costs no more than the bound; requests whose answers had to be
    /// forgotten are refused, not executed.
    #[test]
    fn memory_is_bounded_and_what_is_forgotten_is_refused() {
        let mut answers = Answers::default();
        for sequence in 1..=100 {
            answers.remember(id(1, sequence), answered(100_000));
            if answers.is_too_large(4 << 20) {
                answers.shrink(4 << 20, std::iter::empty());
            }
        }
        assert!(answers.bytes <= 4 << 20 && answers.entries.len() < 50);
        assert!(matches!(answers.known(&id(1, 1)), Known::Forgotten));
        assert!(matches!(answers.known(&id(1, 100)), Known::Answered(_)));
    }

    /// An operation waits while its client gets so many other answers that some must be forgotten.
    /// It was never executed: it is spared, once.
    #[test]
    fn what_was_in_hand_and_unknown_is_executed_once() {
        let mut answers = Answers::default();
        for sequence in 2..=100 {
            answers.remember(id(1, sequence), answered(1000));
        }
        // Number 1 waits; 5 is a duplicate of an answered request, and waits as well.
        answers.shrink(20_000, [id(1, 1), id(1, 5), id(2, 1)].into_iter());
        assert!(matches!(answers.known(&id(1, 1)), Known::Nothing));
        assert!(matches!(answers.known(&id(1, 5)), Known::Forgotten));
        assert!(matches!(answers.known(&id(2, 1)), Known::Nothing));
        // It is spared only until it is executed.
        for sequence in 101..=200 {
            answers.remember(id(1, sequence), answered(1000));
        }
        answers.shrink(20_000, [id(1, 1)].into_iter());
        assert!(matches!(answers.known(&id(1, 1)), Known::Nothing));
        answers.executed(&id(1, 1));
        assert!(matches!(answers.known(&id(1, 1)), Known::Forgotten));
        answers.shrink(0, [id(1, 1)].into_iter());
        assert!(matches!(answers.known(&id(1, 1)), Known::Forgotten));
    }
}
