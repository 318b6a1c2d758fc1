//! Calls that have not begun: one ordered queue per rank, independent of the others.

use crate::ask::{Ask, CallId};
use nacre_types::Rank;
use std::collections::{BTreeMap, VecDeque};

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    ranks: BTreeMap<Rank, VecDeque<(CallId, Ask)>>,
}

impl Queue {
    pub fn push_back(&mut self, rank: Rank, call: CallId, ask: Ask) {
        self.ranks.entry(rank).or_default().push_back((call, ask));
    }
    pub fn push_front(&mut self, rank: Rank, call: CallId, ask: Ask) {
        self.ranks.entry(rank).or_default().push_front((call, ask));
    }
    /// The next call to a rank.
    pub fn pop(&mut self, rank: Rank) -> Option<(CallId, Ask)> {
        self.ranks.get_mut(&rank)?.pop_front()
    }
    /// Whether there is no call to a rank.
    pub fn is_empty(&self, rank: Rank) -> bool {
        self.ranks.get(&rank).is_none_or(VecDeque::is_empty)
    }
    /// Number of calls.
    pub fn len(&self) -> usize {
        self.ranks.values().map(VecDeque::len).sum()
    }
    /// The next rank after this one that has or had calls.
    pub fn following(&self, rank: Option<Rank>) -> Option<Rank> {
        let from = rank.map_or(Some(Rank(0)), |rank| rank.0.checked_add(1).map(Rank))?;
        self.ranks.range(from..).next().map(|(rank, _)| *rank)
    }
    /// Takes all calls to a rank.
    pub fn take(&mut self, rank: Rank) -> VecDeque<(CallId, Ask)> {
        self.ranks.remove(&rank).unwrap_or_default()
    }
    pub fn iter(&self) -> impl Iterator<Item = &(CallId, Ask)> {
        self.ranks.values().flatten()
    }
    /// Removes the first call for which this is true.
    pub fn extract(&mut self, is_it: impl Fn(&Ask) -> bool) -> Option<CallId> {
        self.ranks.values_mut().find_map(|calls| {
            let at = calls.iter().position(|(_, ask)| is_it(ask))?;
            calls.remove(at).map(|(call, _)| call)
        })
    }
}
