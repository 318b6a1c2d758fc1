//! Index changes that are in the log but not yet in the index: ordered, in memory, with range
//! removals.
//!
//! ```text
//!  active memtable ──freeze──▶ frozen memtable ──checkpoint (a job)──▶ index
//! ```
//! [`crate::tables`] says in which order lookups ask them and the cache.
//!
//! A record that is set and removed again between two checkpoints by a range removal (as a PG log
//! is trimmed) leaves only one merged range here, and never reaches the index.
//!
//! A log in an omap grows at its end and is trimmed at its beginning. Entries of an omap that
//! arrive in key order are kept in that order, separate from the tree ([`Appended`]), until the
//! table is frozen: an insertion into the tree costs five times as much, and so does a removal.
//! Long values are not: they would be copied.
//! Heads are never in the tree ([`Heads`]): they are changed in place.
//!
//! Invariants: `ranges` are disjoint and not adjacent; a record in `records`, `appended` or `heads`
//! is newer than every range; of a key that is in both `records` and `appended`, the one in
//! `appended` is newer, unless it is gone; `appended` is empty once the table is frozen.

mod appended;
mod heads;

use crate::format::keys;
use crate::format::object::Head;
use crate::format::value::Value;
use appended::{Appended, Edge};
use bytes::Bytes;
use foldhash::fast::FixedState;
use heads::Heads;
use indexmap::IndexMap;
use indexmap::map::Entry;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// A memtable's knowledge of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Its value, or its absence.
    Value(Option<Value>),
    /// None: ask the layer below.
    Unknown,
}

/// Memory charged per entry besides key and value.
const OVERHEAD: usize = 128;

/// The first bytes of a key as two big-endian numbers, padded with zeros: they have the order of
/// the bytes.
fn beginning(bytes: &[u8]) -> (u128, u128) {
    let mut first = [0; 32];
    let length = bytes.len().min(32);
    first[..length].copy_from_slice(&bytes[..length]);
    let half = |at: usize| {
        u128::from_be_bytes(
            first[at..at + 16]
                .try_into()
                .expect("sixteen bytes were taken"),
        )
    };
    (half(0), half(16))
}

/// A key with its beginning: nearly every comparison on the way down the tree ends there, without
/// access to other memory; if it is equal the bytes decide.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    beginning: (u128, u128),
    bytes: Bytes,
}

impl Key {
    fn new(bytes: Bytes) -> Self {
        Self {
            beginning: beginning(&bytes),
            bytes,
        }
    }
}

/// Where heads begin among the keys, and where they end.
const HEADS: [&[u8]; 2] = [&[keys::TAG_HEAD], &[keys::TAG_HEAD + 1]];

/// The part of a range that heads may be in.
fn heads_in<'a>(from: &'a [u8], to: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (from, to) = (from.max(HEADS[0]), to.min(HEADS[1]));
    (from < to).then_some((from, to))
}

/// The maximum number of omaps with separate entries; further omaps are in the tree.
const APPENDED_MAX: usize = 1024;

/// A longer value is not copied to the separate entries.
const APPENDED_BYTES_MAX: usize = 2048;

#[derive(Debug, Default)]
pub(crate) struct MemTable {
    records: BTreeMap<Key, Option<Value>>,
    heads: Heads,
    /// By number of the omap.
    appended: IndexMap<u64, Appended, FixedState>,
    /// The total number of such entries.
    appended_count: usize,
    ranges: BTreeMap<Bytes, Bytes>,
    bytes: usize,
}

fn charge(key: &[u8], value: &Option<Value>) -> usize {
    key.len() + value.as_ref().map_or(0, Value::len) + OVERHEAD
}
/// The same for a separate entry with these bytes of key and value, where the key lacks the omap's
/// number.
const fn charge_appended(bytes: usize) -> usize {
    keys::PREFIX + bytes + OVERHEAD
}

impl MemTable {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
    pub(crate) fn count(&self) -> usize {
        self.records.len() + self.heads.len() + self.appended_count + self.ranges.len()
    }

    /// Asserts that the counted bytes match the contents.
    pub(crate) fn check(&self) {
        let records: usize = self
            .records
            .iter()
            .map(|(key, value)| charge(&key.bytes, value))
            .sum();
        let ranges: usize = self
            .ranges
            .iter()
            .map(|(from, to)| from.len() + to.len() + OVERHEAD)
            .sum();
        let all = (Edge::Before, Edge::Behind);
        let appended = self.appended.values().flat_map(|of| of.range(all.0, all.1));
        let appended = appended.map(|(key, value)| charge_appended(key.len() + value.len()));
        let heads = self.heads.iter().map(|(key, value)| charge(key, value));
        assert_eq!(
            self.bytes,
            records + ranges + appended.chain(heads).sum::<usize>(),
            "bytes of a memtable"
        );
        assert_eq!(
            self.appended_count,
            self.appended.values().map(Appended::len).sum(),
            "entries apart"
        );
        assert!(
            self.appended
                .values()
                .all(|of| of.range(all.0, all.1).is_sorted_by_key(|(key, _)| key)),
            "out of order"
        );
    }

    pub(crate) fn set(&mut self, key: Bytes, value: Option<Value>) {
        self.bytes += charge(&key, &value);
        if keys::is_head(&key) {
            if let (_, Some(old)) = self.heads.set(&key, value) {
                self.bytes -= charge(&key, &old);
            }
        } else if let Some((key, value)) = self.set_apart(key, value) {
            self.insert(key, value);
        }
    }
    /// Puts a record that is counted already into the tree.
    fn insert(&mut self, key: Bytes, value: Option<Value>) {
        let length = key.len();
        if let Some(old) = self.records.insert(Key::new(key), value) {
            self.bytes -= length + old.map_or(0, |v| v.len()) + OVERHEAD;
        }
    }

    /// The head under `key`, or its absence; `None` if this table does not know.
    pub(crate) fn head(&self, key: &[u8]) -> Option<&Option<Value>> {
        self.heads.get(key)
    }
    /// The position of a head that exists in this table.
    pub(crate) fn position(&self, key: &[u8]) -> Option<usize> {
        let (at, value) = self.heads.find(key)?;
        matches!(value, Some(Value::Head { .. })).then_some(at)
    }
    /// Adds a head that this table does not have; returns its position.
    pub(crate) fn add_head(&mut self, key: &[u8], head: Arc<Head>) -> usize {
        let value = Some(head.into());
        self.bytes += charge(key, &value);
        let (at, former) = self.heads.set(key, value);
        assert!(former.is_none(), "a head is added once");
        at
    }
    /// The head at a position.
    pub(crate) fn head_at(&self, at: usize) -> &Head {
        match self.heads.nth(at) {
            Some((_, Some(Value::Head { head, .. }))) => head,
            other => panic!("{other:?} at the position of a head"),
        }
    }
    /// Changes the head at a position, in place unless others use it.
    pub(crate) fn change_head(&mut self, at: usize, change: impl FnOnce(&mut Head)) {
        let Some(Value::Head { head, length }) = self.heads.value_mut(at) else {
            panic!("no head at the position of one");
        };
        change(Arc::make_mut(head));
        let before = std::mem::replace(length, head.encoded_len());
        self.bytes = self.bytes + *length - before;
    }
    /// Key and value of a head, by its position, as long as there are any.
    pub(crate) fn nth_head(&self, at: usize) -> Option<(&[u8], &Option<Value>)> {
        self.heads.nth(at)
    }

    /// Appends an entry of an omap to the separate ones, or replaces one of them; returns an entry
    /// that belongs in the tree.
    fn set_apart(&mut self, key: Bytes, value: Option<Value>) -> Option<(Bytes, Option<Value>)> {
        let Some(number) = keys::omap_number(&key) else {
            return Some((key, value));
        };
        let own = &key[keys::PREFIX..];
        let short = value.as_ref().map(Value::bytes);
        let short = short.filter(|value| value.len() <= APPENDED_BYTES_MAX);
        let may_begin = self.appended.len() < APPENDED_MAX && short.is_some();
        let entries = match self.appended.entry(number) {
            Entry::Occupied(entries) => entries.into_mut(),
            Entry::Vacant(none) if may_begin => none.insert(Appended::default()),
            Entry::Vacant(_) => return Some((key, value)),
        };
        if short.is_some_and(|value| entries.append(own, value)) {
            self.appended_count += 1;
            return None;
        }
        if let Some(bytes) = entries.take(own) {
            self.bytes -= charge_appended(bytes);
            self.appended_count -= 1;
        }
        Some((key, value))
    }

    /// The table does not change any more, and will be merged in key order: moves entries that were
    /// kept apart into the tree.
    pub(crate) fn settle(&mut self) {
        self.heads.freeze();
        for (number, entries) in std::mem::take(&mut self.appended) {
            for (key, value) in entries.range(Edge::Before, Edge::Behind) {
                let value = Bytes::copy_from_slice(value).into();
                self.insert(keys::omap(number, key), Some(value));
            }
        }
        self.appended_count = 0;
    }

    pub(crate) fn remove_range(&mut self, from: Bytes, to: Bytes) {
        if from >= to {
            return;
        }
        if let Some(entries) =
            keys::omap_number(&from).and_then(|number| self.appended.get_mut(&number))
        {
            let prefix = &from[..keys::PREFIX];
            let (count, size) = entries.remove(Edge::of(&from, prefix), Edge::of(&to, prefix));
            self.appended_count -= count;
            self.bytes -= size + count * charge_appended(0);
        }
        if let Some((from, to)) = heads_in(&from, &to) {
            let bytes = &mut self.bytes;
            self.heads
                .remove_range(from, to, |key, value| *bytes -= charge(key, value));
        }
        let (from, to) = (Key::new(from), Key::new(to));
        let covered = self
            .records
            .extract_if((Bound::Included(&from), Bound::Excluded(&to)), |_, _| true);
        self.bytes -= covered
            .map(|(key, value)| charge(&key.bytes, &value))
            .sum::<usize>();
        let (from, mut to) = (from.bytes, to.bytes);
        // Absorb every range that touches this one: the last that starts at or before `to`,
        // backwards.
        while let Some((start, end)) = self.ranges.range_mut::<Bytes, _>(..=&to).next_back() {
            if *end < from {
                break;
            }
            if *start <= from {
                // No other can touch. The range grows in place, as it does whenever a log is
                // trimmed.
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

    pub(crate) fn get(&self, key: &[u8]) -> Known {
        if let Some(entries) = keys::omap_number(key).and_then(|number| self.appended.get(&number))
            && let Some(value) = entries.get(&key[keys::PREFIX..])
        {
            return Known::Value(Some(Bytes::copy_from_slice(value).into()));
        }
        let value = if keys::is_head(key) {
            self.heads.get(key)
        } else {
            self.records.get(&Key::new(Bytes::copy_from_slice(key)))
        };
        if let Some(value) = value {
            return Known::Value(value.clone());
        }
        if self.removes(key) {
            Known::Value(None)
        } else {
            Known::Unknown
        }
    }

    /// Whether a range removal covers the key.
    pub(crate) fn removes(&self, key: &[u8]) -> bool {
        let before = self
            .ranges
            .range::<[u8], _>((Bound::Unbounded, Bound::Included(key)))
            .next_back();
        before.is_some_and(|(_, end)| key < &end[..])
    }

    pub(crate) fn ranges(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.ranges.iter()
    }
    /// All records, in key order.
    pub(crate) fn records(&self) -> impl Iterator<Item = (&[u8], &Option<Value>)> {
        assert!(
            self.appended.is_empty(),
            "a table is settled before it is merged"
        );
        let [begin, end] = HEADS.map(|key| Key::new(Bytes::from_static(key)));
        let before = self.records.range(..begin);
        let behind = self.records.range(end..);
        let tree = |(key, value)| -> (&[u8], &Option<Value>) {
            let key: &Key = key;
            (&key.bytes, value)
        };
        before
            .map(tree)
            .chain(self.heads.in_order())
            .chain(behind.map(tree))
    }
    /// Lets [`Self::records_in`] find most records between `from` and `to` by their order.
    pub(crate) fn sort_for(&mut self, from: &[u8], to: &[u8]) {
        if heads_in(from, to).is_some() {
            self.heads.sort();
        }
    }
    /// Not in order; of a key that occurs twice, the later record counts.
    pub(crate) fn records_in<'a>(
        &'a self,
        from: &'a Bytes,
        to: &'a Bytes,
    ) -> impl Iterator<Item = (Bytes, Option<Value>)> {
        let range = Key::new(from.clone())..Key::new(to.max(from).clone());
        let number = keys::omap_number(from);
        let apart = number.and_then(|number| Some((number, self.appended.get(&number)?)));
        let apart = apart.into_iter().flat_map(|(number, entries)| {
            let prefix = &from[..keys::PREFIX];
            let within = entries.range(Edge::of(from, prefix), Edge::of(to, prefix));
            within.map(move |(key, value)| {
                let value = Bytes::copy_from_slice(value);
                (keys::omap(number, key), Some(value.into()))
            })
        });
        let heads = heads_in(from, to)
            .into_iter()
            .flat_map(|(from, to)| self.heads.range(from, to))
            .map(|(key, value)| (Bytes::copy_from_slice(key), value.clone()));
        self.records
            .range(range)
            .map(|(key, value)| (key.bytes.clone(), value.clone()))
            .chain(heads)
            .chain(apart)
    }
    /// Bytes of keys and values that are set between `from` and `to`.
    pub(crate) fn weigh(&self, from: &Bytes, to: &Bytes) -> u64 {
        self.records_in(from, to)
            .filter_map(|(key, value)| Some((key.len() + value.as_ref()?.len()) as u64))
            .sum()
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

    /// Entries that arrive in key order are kept separately: even with others in between, the table
    /// gives the same result for each key as a plain map.
    #[test]
    fn entries_kept_apart_are_entries_like_others() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let value = |n: u8| {
            let length = if n.is_multiple_of(7) {
                APPENDED_BYTES_MAX + 1
            } else {
                1
            };
            Some(Bytes::from(vec![n; length]).into())
        };
        for _ in 0..300 {
            let (mut table, mut model) =
                (MemTable::default(), BTreeMap::<Bytes, Option<Value>>::new());
            let mut end = 0_u8;
            for n in 0..60 {
                let key = |k: u8| keys::omap(u64::from(k % 2), &[k / 2]);
                let some = (rng.next_u32() % 64) as u8;
                match rng.next_u32() % 8 {
                    0 => {
                        let (from, to) = (
                            key(some & !1),
                            key((some & !1).saturating_add((rng.next_u32() % 32) as u8 * 2)),
                        );
                        model.iter_mut().for_each(|(k, value)| {
                            if (&from..&to).contains(&k) {
                                *value = None;
                            }
                        });
                        table.remove_range(from, to);
                    }
                    1 => {
                        model.insert(key(some), None);
                        table.set(key(some), None);
                    }
                    2 => {
                        model.insert(key(some), value(n));
                        table.set(key(some), value(n));
                    }
                    _ => {
                        end = (end + 1) % 120;
                        model.insert(key(end), value(n));
                        table.set(key(end), value(n));
                    }
                }
                table.check();
            }
            for settled in [false, true] {
                if settled {
                    table.settle();
                    table.check();
                    assert!(table.records().is_sorted_by_key(|(key, _)| key));
                }
                for (key, value) in &model {
                    match table.get(key) {
                        Known::Value(found) => assert_eq!(found, *value),
                        Known::Unknown => {
                            assert_eq!(*value, None, "only what a range removed may be unknown")
                        }
                    }
                    if let Known::Unknown = table.get(key) {
                        assert!(table.removes(key));
                    }
                }
                for number in [0, 1] {
                    let (from, to) = (keys::omap(number, &[]), keys::end(keys::TAG_OMAP, number));
                    let seen: BTreeMap<_, _> = table.records_in(&from, &to).collect();
                    let there = |(k, v): (Bytes, Option<Value>)| Some((k, v?));
                    let mine = model
                        .range(from..to)
                        .map(|(k, v)| (k.clone(), v.clone()))
                        .filter_map(there);
                    assert_eq!(
                        seen.into_iter().filter_map(there).collect::<Vec<_>>(),
                        mine.collect::<Vec<_>>()
                    );
                }
            }
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
                            table.set(vec![a].into(), Some(Bytes::from(vec![b]).into()));
                        }
                    }
                }
                let ends: Vec<_> = table.ranges().map(|(a, b)| (a[0], b[0])).collect();
                assert!(
                    ends.windows(2).all(|w| w[0].1 < w[1].0),
                    "disjoint and not adjacent: {ends:?}"
                );
            }
            for k in 0..64 {
                let found = match (tables[1].get(&[k]), tables[0].get(&[k])) {
                    (Known::Value(value), _) | (Known::Unknown, Known::Value(value)) => {
                        value.map(|v| v.bytes()[0])
                    }
                    _ => bottom.get(&k).copied(),
                };
                assert_eq!(found, model.get(&k).copied());
            }
        }
    }
}
