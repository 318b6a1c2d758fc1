//! Heads of objects in a memtable: found by hash, sorted when their order is asked for.
//!
//! ```text
//!  by_key: │ a │ q │ c │ z │ b │ k │ …          in order of their first change
//!  sorted: │ 0   2   1   3 │ ─unsorted─ │       positions of the first ones, by key
//! ```
//! Every update changes a head. On the way down a tree of tens of thousands of keys, each node is
//! memory that the processor has to wait for; a hash table has one such place. A key is there, too:
//! in memory of its own it was one more. The order of heads is needed once per checkpoint, by the
//! job that merges the table into the index, and by listings.

use crate::format::keys::InPlace as Key;
use crate::format::value::Value;
use foldhash::fast::FixedState;
use indexmap::IndexMap;
use std::sync::OnceLock;

/// A range is looked for among at most this many unsorted heads, one by one.
const UNSORTED_MAX: usize = if cfg!(test) { 8 } else { 1024 };

/// A key's first bytes as numbers of the same order, its bytes, and its position.
type Sortable<'a> = ((u128, u128), &'a [u8], u32);

/// A key and its value.
pub(super) type Entry<'a> = (&'a [u8], &'a Option<Value>);

fn entry<'a>((key, value): (&'a Key, &'a Option<Value>)) -> Entry<'a> {
    (key, value)
}

#[derive(Debug, Default)]
pub(super) struct Heads {
    by_key: IndexMap<Key, Option<Value>, FixedState>,
    /// Set once for a frozen table; an active one replaces it when too many are unsorted.
    sorted: OnceLock<Vec<u32>>,
}

impl Heads {
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns the key's position, and the former value, if it has one here.
    pub(super) fn set(
        &mut self,
        key: &[u8],
        value: Option<Value>,
    ) -> (usize, Option<Option<Value>>) {
        self.by_key.insert_full(Key::from_slice(key), value)
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Option<Value>> {
        self.by_key.get(key)
    }
    /// The key's position, and its value.
    pub(super) fn find(&self, key: &[u8]) -> Option<(usize, &Option<Value>)> {
        let (at, _, value) = self.by_key.get_full(key)?;
        Some((at, value))
    }
    /// The value at a position; positions change only when a range is removed.
    pub(super) fn value_mut(&mut self, at: usize) -> &mut Option<Value> {
        &mut self.by_key[at]
    }
    /// Key and value at a position, as long as there are any.
    pub(super) fn nth(&self, at: usize) -> Option<Entry<'_>> {
        self.by_key.get_index(at).map(entry)
    }

    /// All heads, in the order in which they came.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.by_key.iter().map(entry)
    }

    /// Removes the heads from `from` on and before `to`, and gives them to `gone`. Rare: it looks
    /// at all.
    pub(super) fn remove_range(
        &mut self,
        from: &[u8],
        to: &[u8],
        mut gone: impl FnMut(&[u8], &Option<Value>),
    ) {
        self.sorted = OnceLock::new();
        self.by_key.retain(|key, value| {
            let covered = from <= &key[..] && &key[..] < to;
            if covered {
                gone(key, value);
            }
            !covered
        });
    }

    /// Lets [`Self::range`] find most heads by their order.
    pub(super) fn sort(&mut self) {
        let sorted = self.sorted.get().map_or(0, Vec::len);
        if self.by_key.len() - sorted > UNSORTED_MAX {
            self.sorted = self.order().into();
        }
    }

    /// No head is added any more: the order of all is made by the first who asks for it.
    pub(super) fn freeze(&mut self) {
        self.sorted = OnceLock::new();
    }

    fn order(&self) -> Vec<u32> {
        let keys = self.by_key.keys().zip(0..);
        let mut all: Vec<Sortable<'_>> = keys
            .map(|(key, at)| (super::beginning(key), &key[..], at))
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(_, _, at)| at).collect()
    }

    fn at(&self, position: u32) -> Entry<'_> {
        let found = self.nth(position as usize);
        found.expect("positions are of this table")
    }

    /// All heads of a frozen table, by key.
    pub(super) fn in_order(&self) -> impl Iterator<Item = Entry<'_>> {
        let sorted = self.sorted.get_or_init(|| self.order());
        assert_eq!(sorted.len(), self.by_key.len(), "the table is frozen");
        sorted.iter().map(|&at| self.at(at))
    }

    /// The heads from `from` on and before `to`: first the sorted ones, by key.
    pub(super) fn range<'a>(
        &'a self,
        from: &'a [u8],
        to: &'a [u8],
    ) -> impl Iterator<Item = Entry<'a>> {
        let sorted = self.sorted.get().map_or(&[][..], Vec::as_slice);
        let first = sorted.partition_point(|&at| self.at(at).0[..] < *from);
        let end = sorted.partition_point(|&at| self.at(at).0[..] < *to);
        let others = self.by_key[sorted.len()..].iter().map(entry);
        let covered = move |(key, _): &Entry<'_>| from <= *key && *key < to;
        sorted[first..end.max(first)]
            .iter()
            .map(|&at| self.at(at))
            .chain(others.filter(covered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{RngCore, SeedableRng};
    use std::collections::BTreeMap;

    /// Ranges are the same whether few or many heads are sorted, and before and after the table is
    /// frozen.
    #[test]
    fn heads_are_those_of_an_ordered_map() {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        for round in 0..200 {
            let (mut heads, mut model) =
                (Heads::default(), BTreeMap::<Bytes, Option<Value>>::new());
            let key = |n: u32| Bytes::from([&[16; 40][..], &[n as u8]].concat());
            for n in 0..rng.next_u32() % 100 {
                let value = (n % 5 != 0).then(|| Bytes::from(vec![n as u8]).into());
                let (at, to) = (key(rng.next_u32() % 64), key(rng.next_u32() % 64));
                match rng.next_u32() % 40 {
                    0 => {
                        let mut gone = Vec::new();
                        heads.remove_range(&at, &to, |key, _| {
                            gone.push(Bytes::copy_from_slice(key))
                        });
                        gone.sort();
                        let covered = |known: &&Bytes| **known >= at && **known < to;
                        let known: Vec<Bytes> = model.keys().filter(covered).cloned().collect();
                        assert_eq!(gone, known);
                        model.retain(|key, _| !gone.contains(key));
                    }
                    1..10 => heads.sort(),
                    _ => assert_eq!(heads.set(&at, value.clone()).1, model.insert(at, value)),
                }
                let (from, to) = (key(rng.next_u32() % 64), key(rng.next_u32() % 64));
                let mut found: Vec<_> = heads.range(&from, &to).collect();
                found.sort_by_key(|(key, _)| *key);
                let known = model.iter().filter(|(key, _)| **key >= from && **key < to);
                let known = known.map(|(key, value)| (&key[..], value));
                assert_eq!(found, known.collect::<Vec<_>>());
                let unsorted = heads.len() - heads.sorted.get().map_or(0, Vec::len);
                heads.sort();
                assert!(
                    unsorted <= 64 && heads.len() - heads.sorted.get().map_or(0, Vec::len) <= 8
                );
            }
            heads.freeze();
            for _ in 0..=round % 2 {
                let known = model.iter().map(|(key, value)| (&key[..], value));
                assert!(heads.in_order().eq(known));
            }
            let (from, to) = (key(10), key(50));
            let known = model.range(from.clone()..to.clone());
            let known = known.map(|(key, value)| (&key[..], value));
            assert!(heads.range(&from, &to).eq(known));
        }
    }
}
