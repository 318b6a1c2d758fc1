//! Index changes that are in the log but not yet in the index: ordered, in memory, with range removals.
//!
//! ```text
//!  lookup:  cache ──▶ active memtable ──▶ frozen memtable (being checkpointed) ──▶ index (a job)
//! ```
//! A record set and removed again between two checkpoints by a range removal (as a PG log is trimmed) leaves nothing
//! but one merged range here, and never reaches the index.
//!
//! Invariant: `ranges` are disjoint and not adjacent; a record in `records` is newer than every range.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;

/// What a memtable knows about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Its value, or that it has none.
    Value(Option<Bytes>),
    /// Nothing: ask the layer below.
    Unknown,
}

/// Memory charged per entry besides key and value.
const OVERHEAD: usize = 128;

/// A key with its beginning in place: nearly every comparison on the way down the tree ends there,
/// without a visit to memory elsewhere. That beginning is the key's first bytes as two big numbers,
/// followed by zeros, so it orders as the bytes do; where it is equal the bytes decide.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    beginning: (u128, u128),
    bytes: Bytes,
}

impl Key {
    fn new(bytes: Bytes) -> Self {
        let mut first = [0; 32];
        let length = bytes.len().min(32);
        first[..length].copy_from_slice(&bytes[..length]);
        let half = |at: usize| u128::from_be_bytes(first[at..at + 16].try_into().expect("sixteen bytes were taken"));
        Self { beginning: (half(0), half(16)), bytes }
    }
}

#[derive(Debug, Default)]
pub(crate) struct MemTable {
    records: BTreeMap<Key, Option<Bytes>>,
    ranges: BTreeMap<Bytes, Bytes>,
    bytes: usize,
}

fn charge(key: &Bytes, value: &Option<Bytes>) -> usize {
    key.len() + value.as_ref().map_or(0, Bytes::len) + OVERHEAD
}

impl MemTable {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
    pub(crate) fn count(&self) -> usize {
        self.records.len() + self.ranges.len()
    }

    /// Its bytes are those of what is in it.
    pub(crate) fn check(&self) {
        let records: usize = self.records().map(|(key, value)| charge(key, value)).sum();
        let ranges: usize = self.ranges.iter().map(|(from, to)| from.len() + to.len() + OVERHEAD).sum();
        assert_eq!(self.bytes, records + ranges, "bytes of a memtable");
    }

    pub(crate) fn set(&mut self, key: Bytes, value: Option<Bytes>) {
        self.bytes += charge(&key, &value);
        let length = key.len();
        if let Some(old) = self.records.insert(Key::new(key), value) {
            self.bytes -= length + old.map_or(0, |v| v.len()) + OVERHEAD;
        }
    }

    pub(crate) fn remove_range(&mut self, from: Bytes, to: Bytes) {
        if from >= to {
            return;
        }
        let (from, to) = (Key::new(from), Key::new(to));
        let covered = self.records.extract_if((Bound::Included(&from), Bound::Excluded(&to)), |_, _| true);
        self.bytes -= covered.map(|(key, value)| charge(&key.bytes, &value)).sum::<usize>();
        let (from, mut to) = (from.bytes, to.bytes);
        // Swallow every range that touches: the last that starts at or before `to`, backwards.
        while let Some((start, end)) = self.ranges.range_mut::<Bytes, _>(..=&to).next_back() {
            if *end < from {
                break;
            }
            if *start <= from {
                // No other can touch. It grows where it is, as it does whenever a log is trimmed.
                if *end < to {
                    self.bytes = self.bytes + to.len() - end.len();
                    *end = to;
                }
                return;
            }
            let start = start.clone();
            let end = self.ranges.remove(&start).expect("just looked at");
            self.bytes -= start.len() + end.len() + OVERHEAD;
            to = to.max(end);
        }
        self.bytes += from.len() + to.len() + OVERHEAD;
        self.ranges.insert(from, to);
    }

    pub(crate) fn get(&self, key: &Bytes) -> Known {
        if let Some(value) = self.records.get(&Key::new(key.clone())) {
            return Known::Value(value.clone());
        }
        if self.removes(key) { Known::Value(None) } else { Known::Unknown }
    }

    /// Whether a range removal covers the key.
    pub(crate) fn removes(&self, key: &[u8]) -> bool {
        let before = self.ranges.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        before.is_some_and(|(_, end)| key < &end[..])
    }

    pub(crate) fn ranges(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.ranges.iter()
    }
    pub(crate) fn records(&self) -> impl Iterator<Item = (&Bytes, &Option<Bytes>)> {
        self.records.iter().map(|(key, value)| (&key.bytes, value))
    }
    pub(crate) fn records_in(&self, from: &Bytes, to: &Bytes) -> impl Iterator<Item = (&Bytes, &Option<Bytes>)> {
        let range = Key::new(from.clone())..Key::new(to.max(from).clone());
        self.records.range(range).map(|(key, value)| (&key.bytes, value))
    }
    /// Bytes of keys and values that are set between `from` and `to`.
    pub(crate) fn weigh(&self, from: &Bytes, to: &Bytes) -> u64 {
        self.records_in(from, to).filter_map(|(key, value)| Some((key.len() + value.as_ref()?.len()) as u64)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{RngCore, SeedableRng};

    proptest::proptest! {
        #[test]
        fn keys_order_as_their_bytes_do(a in proptest::collection::vec(0u8..3, 0..40), b in proptest::collection::vec(0u8..3, 0..40)) {
            let key = |bytes: &[u8]| Key::new(Bytes::copy_from_slice(bytes));
            proptest::prop_assert_eq!(key(&a).cmp(&key(&b)), a.cmp(&b));
        }
    }

    #[test]
    fn layers_of_memtables_equal_one_map() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        for _ in 0..200 {
            let mut model: BTreeMap<u8, u8> = (0..64).map(|k| (k, 255)).collect();
            let bottom = model.clone();
            let mut tables = [MemTable::default(), MemTable::default()];
            for table in &mut tables {
                for _ in 0..rng.next_u32() % 40 {
                    let (a, b) = ((rng.next_u32() % 64) as u8, (rng.next_u32() % 65) as u8);
                    match rng.next_u32() % 4 {
                        0 => {
                            model.retain(|&k, _| k < a || k >= b);
                            table.remove_range(vec![a].into(), vec![b].into());
                        }
                        1 => {
                            model.remove(&a);
                            table.set(vec![a].into(), None);
                        }
                        _ => {
                            model.insert(a, b);
                            table.set(vec![a].into(), Some(vec![b].into()));
                        }
                    }
                }
                let ends: Vec<_> = table.ranges().map(|(a, b)| (a[0], b[0])).collect();
                assert!(ends.windows(2).all(|w| w[0].1 < w[1].0), "disjoint and not adjacent: {ends:?}");
            }
            for k in 0..64 {
                let found = match (tables[1].get(&vec![k].into()), tables[0].get(&vec![k].into())) {
                    (Known::Value(value), _) | (Known::Unknown, Known::Value(value)) => value.map(|v| v[0]),
                    _ => bottom.get(&k).copied(),
                };
                assert_eq!(found, model.get(&k).copied());
            }
        }
    }
}
