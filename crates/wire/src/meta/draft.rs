//! A transaction in progress: its reads see its own changes; the store gets all of them at its end,
//! or none.

use crate::msg::meta::{
    META_ANSWER_BYTES_MAX, MetaAnswer, MetaCompare, MetaError, MetaEvent, MetaOp, MetaPair,
    MetaSpan, MetaTarget,
};
use nacre_types::{Epoch, Name};
use std::cmp::Ordering;
use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;
use std::ops::Bound;

/// Keys by name.
pub type Pairs = BTreeMap<Name, MetaPair>;

/// Whether a comparison holds.
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

/// The pairs of a span of keys.
pub fn within<'a>(pairs: &'a Pairs, span: &'a MetaSpan) -> impl Iterator<Item = &'a MetaPair> {
    let from = (Bound::Included(span.first().clone()), Bound::Unbounded);
    pairs
        .range::<Name, _>(from)
        .map(|(_, pair)| pair)
        .take_while(|pair| span.has(&pair.key))
}

/// Bytes that a pair counts towards limits.
#[must_use]
pub fn bytes_of(pair: &MetaPair) -> u64 {
    (pair.key.as_bytes().len() + pair.value.len()) as u64
}

/// Cuts the pairs found to the requested count and to the size of an answer; returns whether there
/// are more.
pub fn page<'a>(
    found: impl Iterator<Item = &'a MetaPair>,
    limit: u32,
    keys_only: bool,
) -> (Vec<MetaPair>, bool) {
    let most = if limit == 0 {
        usize::MAX
    } else {
        limit as usize
    };
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
    walked: usize,
}

/// Limit on the keys that the operations of one transaction may visit together. It exceeds the size
/// of any monitor's store, so that one deletion of everything is always possible; a hundred of them
/// in one transaction would block every monitor for seconds.
pub const WALKED_MAX: usize = 1 << 20;

impl<'a> Draft<'a> {
    /// `revision` is the revision it creates if it changes anything.
    #[must_use]
    pub const fn new(pairs: &'a Pairs, revision: u64, epoch: Epoch) -> Self {
        Self {
            pairs,
            revision,
            epoch,
            changed: BTreeMap::new(),
            answered: 0,
            walked: 0,
        }
    }

    fn get(&self, key: &Name) -> Option<&MetaPair> {
        self.changed
            .get(key)
            .map_or_else(|| self.pairs.get(key), Option::as_ref)
    }
    /// The keys of a span as the transaction currently sees them, in order; `None` for keys that it
    /// deleted.
    fn matching(&self, span: &MetaSpan) -> Matching<'_> {
        let from = (Bound::Included(span.first().clone()), Bound::Unbounded);
        Matching {
            pairs: self.pairs.range::<Name, _>(from.clone()).peekable(),
            changed: self.changed.range::<Name, _>(from).peekable(),
            span: span.clone(),
        }
    }

    /// Counts the keys that an operation visited.
    fn walk(&mut self, keys: usize) -> Result<(), MetaError> {
        self.walked += keys;
        if self.walked > WALKED_MAX {
            let what = "number of keys that the transaction's operations pass".to_owned();
            return Err(MetaError::TooLarge {
                what,
                limit: WALKED_MAX as u64,
            });
        }
        Ok(())
    }

    /// Executes one operation.
    ///
    /// # Errors
    /// The transaction fails with it: drop the draft.
    pub fn run(
        &mut self,
        op: &MetaOp,
        lives: impl Fn(u64) -> bool,
    ) -> Result<MetaAnswer, MetaError> {
        match op {
            MetaOp::Get {
                span,
                limit,
                keys_only,
            } => {
                let mut passed = 0;
                let found = self
                    .matching(span)
                    .inspect(|_| passed += 1)
                    .filter_map(|(_, pair)| pair);
                let (pairs, more) = page(found, *limit, *keys_only);
                self.walk(passed)?;
                self.answered += pairs
                    .iter()
                    .map(|pair| pair.value.len() + pair.key.as_bytes().len() + 64)
                    .sum::<usize>();
                if self.answered > META_ANSWER_BYTES_MAX {
                    let what = "answer to the transaction's reads".to_owned();
                    return Err(MetaError::TooLarge {
                        what,
                        limit: META_ANSWER_BYTES_MAX as u64,
                    });
                }
                Ok(MetaAnswer::Got { pairs, more })
            }
            MetaOp::Put { key, value, lease } => {
                if *lease != 0 && !lives(*lease) {
                    return Err(MetaError::NoSuchLease { lease: *lease });
                }
                let old = self.get(key);
                let before = old.map_or(0, |old| old.modified);
                let (created, version) =
                    old.map_or((self.revision, 1), |old| (old.created, old.version + 1));
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
                let mut passed = 0;
                let found = self
                    .matching(span)
                    .inspect(|_| passed += 1)
                    .filter(|(_, pair)| pair.is_some());
                let gone: Vec<Name> = found.map(|(key, _)| key.clone()).collect();
                self.walk(passed)?;
                let keys = gone.len() as u64;
                self.changed.extend(gone.into_iter().map(|key| (key, None)));
                Ok(MetaAnswer::Deleted { keys })
            }
        }
    }

    /// The changes, by key.
    #[must_use]
    pub fn events(self) -> Vec<MetaEvent> {
        let Self {
            pairs,
            revision,
            changed,
            ..
        } = self;
        let event = |(key, pair): (Name, Option<MetaPair>)| match pair {
            Some(pair) => Some(MetaEvent::Put { pair }),
            // Created and deleted by the same transaction: no change.
            None => pairs
                .contains_key(&key)
                .then_some(MetaEvent::Delete { key, revision }),
        };
        changed.into_iter().filter_map(event).collect()
    }
}

/// See [`Draft::matching`].
struct Matching<'a> {
    pairs: Peekable<btree_map::Range<'a, Name, MetaPair>>,
    changed: Peekable<btree_map::Range<'a, Name, Option<MetaPair>>>,
    span: MetaSpan,
}

impl<'a> Iterator for Matching<'a> {
    type Item = (&'a Name, Option<&'a MetaPair>);

    fn next(&mut self) -> Option<Self::Item> {
        let kept = self
            .pairs
            .peek()
            .map(|(key, _)| *key)
            .filter(|key| self.span.has(key));
        let changed = self
            .changed
            .peek()
            .map(|(key, _)| *key)
            .filter(|key| self.span.has(key));
        let changed_is_next =
            changed.is_some_and(|changed| kept.is_none_or(|kept| changed <= kept));
        if changed_is_next {
            if changed == kept {
                self.pairs.next();
            }
            return self.changed.next().map(|(key, pair)| (key, pair.as_ref()));
        }
        kept?;
        self.pairs.next().map(|(key, pair)| (key, Some(pair)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn pair(key: &str, value: &str) -> MetaPair {
        let (key, value) = (Name::from(key), Bytes::copy_from_slice(value.as_bytes()));
        MetaPair {
            key,
            value,
            created: 1,
            modified: 1,
            version: 1,
            lease: 0,
            epoch: Epoch(1),
        }
    }
    fn store(keys: usize) -> Pairs {
        (0..keys)
            .map(|n| pair(&format!("k/{n:06}"), "old"))
            .map(|pair| (pair.key.clone(), pair))
            .collect()
    }
    fn all() -> MetaSpan {
        MetaSpan::Prefix {
            prefix: Name::from("k/"),
        }
    }
    fn get(span: MetaSpan, limit: u32) -> MetaOp {
        MetaOp::Get {
            span,
            limit,
            keys_only: true,
        }
    }
    fn put(key: &str) -> MetaOp {
        MetaOp::Put {
            key: Name::from(key),
            value: Bytes::from_static(b"new"),
            lease: 0,
        }
    }
    fn keys(answer: MetaAnswer) -> (Vec<String>, bool) {
        let MetaAnswer::Got { pairs, more } = answer else {
            panic!("{answer:?}")
        };
        (
            pairs
                .iter()
                .map(|pair| String::from_utf8_lossy(pair.key.as_bytes()).into_owned())
                .collect(),
            more,
        )
    }

    #[test]
    fn a_read_sees_what_its_transaction_did_before_it_in_order() {
        let pairs = store(5);
        let mut draft = Draft::new(&pairs, 9, Epoch(1));
        let between = MetaSpan::Between {
            from: Name::from("k/000001"),
            to: Name::from("k/000003"),
        };
        let ops = [
            MetaOp::Delete { span: between },
            put("k/000000"),
            put("k/000002"),
            put("k/000009"),
            put("l"),
        ];
        for op in &ops {
            draft.run(op, |_| true).expect("nothing forbids it");
        }
        let all = |limit| get(all(), limit);
        let names = ["k/000000", "k/000002", "k/000003", "k/000004", "k/000009"].map(str::to_owned);
        assert_eq!(
            keys(draft.run(&all(0), |_| true).expect("a read")),
            (names.to_vec(), false)
        );
        assert_eq!(
            keys(draft.run(&all(5), |_| true).expect("a read")),
            (names.to_vec(), false)
        );
        assert_eq!(
            keys(draft.run(&all(2), |_| true).expect("a read")),
            (names[..2].to_vec(), true)
        );
    }

    // Reading one key of a large span used to visit the whole span, 128 times in a transaction, in
    // every monitor.
    #[test]
    fn a_read_passes_no_more_than_it_answers() {
        let pairs = store(1_000);
        let mut draft = Draft::new(&pairs, 9, Epoch(1));
        for _ in 0..128 {
            assert_eq!(
                keys(draft.run(&get(all(), 1), |_| true).expect("a read")).0,
                ["k/000000"]
            );
        }
        assert!(
            draft.walked <= 256,
            "one key answered and one seen behind it: {}",
            draft.walked
        );
    }

    // Deleted keys are visited too: one deletion of everything, followed by reads and deletions of
    // everything.
    #[test]
    fn what_a_transaction_passes_is_bounded() {
        let pairs = store(10_000);
        for again in [get(all(), 1), MetaOp::Delete { span: all() }] {
            let mut draft = Draft::new(&pairs, 9, Epoch(1));
            draft
                .run(&MetaOp::Delete { span: all() }, |_| true)
                .expect("once is possible");
            let refused = (0..127).find_map(|_| draft.run(&again, |_| true).err());
            assert!(
                matches!(refused, Some(MetaError::TooLarge { .. })),
                "{refused:?}"
            );
        }
    }
}
