//! A transaction at work: reads see its own changes; the store has them all at its end, or none.

use crate::msg::meta::{
    META_ANSWER_BYTES_MAX, MetaAnswer, MetaCompare, MetaError, MetaEvent, MetaOp, MetaPair, MetaSpan, MetaTarget,
};
use nacre_types::{Epoch, Name};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Keys by name.
pub type Pairs = BTreeMap<Name, MetaPair>;

/// Whether a compare holds.
#[must_use]
pub fn holds(pairs: &Pairs, compare: &MetaCompare) -> bool {
    let pair = pairs.get(&compare.key);
    let number = |found: u64, wanted: u64| Some(found.cmp(&wanted));
    let order: Option<Ordering> = match &compare.target {
        MetaTarget::Value { value } => pair.map(|pair| pair.value.cmp(value)),
        MetaTarget::Version { number: n } => number(pair.map_or(0, |pair| pair.version), *n),
        MetaTarget::Created { number: n } => number(pair.map_or(0, |pair| pair.created), *n),
        MetaTarget::Modified { number: n } => number(pair.map_or(0, |pair| pair.modified), *n),
        MetaTarget::Lease { number: n } => number(pair.map_or(0, |pair| pair.lease), *n),
    };
    order.is_some_and(|order| compare.relation.holds(order))
}

/// The keys of a span, from the map.
pub fn within<'a>(pairs: &'a Pairs, span: &'a MetaSpan) -> impl Iterator<Item = &'a MetaPair> {
    let from = (Bound::Included(span.first().clone()), Bound::Unbounded);
    pairs.range::<Name, _>(from).map(|(_, pair)| pair).take_while(|pair| span.has(&pair.key))
}

/// Bytes that a pair counts for.
#[must_use]
pub fn bytes_of(pair: &MetaPair) -> u64 {
    (pair.key.as_bytes().len() + pair.value.len()) as u64
}

/// Cuts what was found to what was asked for and to what an answer takes; whether there is more.
pub fn page<'a>(found: impl Iterator<Item = &'a MetaPair>, limit: u32, keys_only: bool) -> (Vec<MetaPair>, bool) {
    let most = if limit == 0 { usize::MAX } else { limit as usize };
    let (mut pairs, mut bytes) = (Vec::new(), 0);
    for pair in found {
        let mut pair = pair.clone();
        if keys_only {
            pair.value = bytes::Bytes::new();
        }
        let size = pair.key.as_bytes().len() + pair.value.len() + 64;
        if pairs.len() >= most || !pairs.is_empty() && bytes + size > META_ANSWER_BYTES_MAX {
            return (pairs, true);
        }
        bytes += size;
        pairs.push(pair);
    }
    (pairs, false)
}

/// See the module head.
pub struct Draft<'a> {
    pairs: &'a Pairs,
    revision: u64,
    epoch: Epoch,
    changed: BTreeMap<Name, Option<MetaPair>>,
    answered: usize,
}

impl<'a> Draft<'a> {
    /// `revision` is the one it makes if it changes anything.
    #[must_use]
    pub const fn new(pairs: &'a Pairs, revision: u64, epoch: Epoch) -> Self {
        Self { pairs, revision, epoch, changed: BTreeMap::new(), answered: 0 }
    }

    fn get(&self, key: &Name) -> Option<&MetaPair> {
        self.changed.get(key).map_or_else(|| self.pairs.get(key), Option::as_ref)
    }
    fn matching(&self, span: &MetaSpan) -> BTreeSet<Name> {
        let mut keys: BTreeSet<Name> = within(self.pairs, span).map(|pair| pair.key.clone()).collect();
        for (key, pair) in self.changed.iter().filter(|(key, _)| span.has(key)) {
            match pair {
                Some(_) => keys.insert(key.clone()),
                None => keys.remove(key),
            };
        }
        keys
    }

    /// Carries out one operation.
    ///
    /// # Errors
    /// The transaction's: drop the draft.
    pub fn run(&mut self, op: &MetaOp, lives: impl Fn(u64) -> bool) -> Result<MetaAnswer, MetaError> {
        match op {
            MetaOp::Get { span, limit, keys_only } => {
                let keys = self.matching(span);
                let (pairs, more) = page(keys.iter().filter_map(|key| self.get(key)), *limit, *keys_only);
                self.answered +=
                    pairs.iter().map(|pair| pair.value.len() + pair.key.as_bytes().len() + 64).sum::<usize>();
                if self.answered > META_ANSWER_BYTES_MAX {
                    let what = "answer to the transaction's reads".to_owned();
                    return Err(MetaError::TooLarge { what, limit: META_ANSWER_BYTES_MAX as u64 });
                }
                Ok(MetaAnswer::Got { pairs, more })
            }
            MetaOp::Put { key, value, lease } => {
                if *lease != 0 && !lives(*lease) {
                    return Err(MetaError::NoSuchLease { lease: *lease });
                }
                let old = self.get(key);
                let before = old.map_or(0, |old| old.modified);
                let (created, version) = old.map_or((self.revision, 1), |old| (old.created, old.version + 1));
                let pair = MetaPair {
                    key: key.clone(),
                    value: value.clone(),
                    created,
                    modified: self.revision,
                    version,
                    lease: *lease,
                    epoch: self.epoch,
                };
                self.changed.insert(key.clone(), Some(pair));
                Ok(MetaAnswer::Put { before })
            }
            MetaOp::Delete { span } => {
                let keys = self.matching(span);
                let gone = keys.len() as u64;
                self.changed.extend(keys.into_iter().map(|key| (key, None)));
                Ok(MetaAnswer::Deleted { keys: gone })
            }
        }
    }

    /// What it changed, by key.
    #[must_use]
    pub fn events(self) -> Vec<MetaEvent> {
        let Self { pairs, revision, changed, .. } = self;
        let event = |(key, pair): (Name, Option<MetaPair>)| match pair {
            Some(pair) => Some(MetaEvent::Put { pair }),
            // Made and deleted by the same transaction: nothing happened.
            None => pairs.contains_key(&key).then_some(MetaEvent::Delete { key, revision }),
        };
        changed.into_iter().filter_map(event).collect()
    }
}
