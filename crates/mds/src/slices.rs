//! The parts of a fragment that are in memory: ranges of hashes, each with all entries in it.
//!
//! ```text
//!  0        first ─── last      first ─────── last                 2⁶³ - 1
//!  │  gap     │ slice  │  gap     │   slice     │        gap          │
//! ```
//! A directory may have more entries than fit into memory, and reading all of it would delay
//! everything else; so slices are loaded and evicted one at a time. A slice that has grown is
//! divided.
//!
//! Invariant: slices are disjoint, and each entry is in the slice that contains its hash.

use nacre_types::{Frag, Name};
use std::collections::BTreeMap;
use std::ops::Range;

/// Entries in the order of their names' hashes.
pub(crate) type Entries<T> = BTreeMap<(u64, Name), T>;

/// The keys of a range of hashes.
pub(crate) fn between((first, last): (u64, u64)) -> Range<(u64, Name)> {
    (first, Name::default())..(last + 1, Name::default())
}

#[derive(Clone, Debug)]
struct Slice<T> {
    last: u64,
    entries: Entries<T>,
    /// The turn of its last use.
    used: u64,
}

/// See the module head. `T` is the value of a name.
#[derive(Clone, Debug)]
pub(crate) struct Slices<T>(BTreeMap<u64, Slice<T>>);

impl<T> Default for Slices<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Copy> Slices<T> {
    fn slice(&self, hash: u64) -> Option<(u64, &Slice<T>)> {
        let (first, slice) = self.0.range(..=hash).next_back()?;
        (hash <= slice.last).then_some((*first, slice))
    }
    fn slice_mut(&mut self, hash: u64) -> Option<(u64, &mut Slice<T>)> {
        let (first, slice) = self.0.range_mut(..=hash).next_back()?;
        (hash <= slice.last).then_some((*first, slice))
    }
    /// The slice that contains a hash, as its first hash.
    pub fn of(&self, hash: u64) -> Option<u64> {
        self.slice(hash).map(|(first, _)| first)
    }
    /// The value of a name; `None`: its slice is not in memory.
    pub fn get(&self, key: &(u64, Name)) -> Option<Option<T>> {
        self.slice(key.0)
            .map(|(_, slice)| slice.entries.get(key).copied())
    }
    /// All consecutive entries from this hash on, up to the first gap.
    pub fn from(&self, hash: u64) -> impl Iterator<Item = (&(u64, Name), T)> {
        let to = self.known_to(hash);
        let slices = to
            .and_then(|_| self.of(hash))
            .map(|first| self.0.range(first..=to.unwrap_or(first)));
        let entries = slices
            .into_iter()
            .flatten()
            .flat_map(|(_, slice)| &slice.entries);
        entries
            .map(|(key, what)| (key, *what))
            .skip_while(move |((of, _), _)| *of < hash)
    }
    /// Up to which hash everything is in memory, from this one on; `None`: this one is not.
    pub fn known_to(&self, hash: u64) -> Option<u64> {
        let mut known = self.slice(hash)?.1.last;
        while let Some(next) = self.0.get(&(known + 1)) {
            known = next.last;
        }
        Some(known)
    }
    /// Whether the whole fragment is in memory.
    pub fn is_all(&self, frag: Frag) -> bool {
        self.known_to(frag.first())
            .is_some_and(|known| known >= frag.last())
    }
    /// The gap in this fragment that contains a hash.
    pub fn gap(&self, frag: Frag, hash: u64) -> (u64, u64) {
        debug_assert!(self.of(hash).is_none(), "{hash:x} is in memory");
        let before = self.0.range(..=hash).next_back();
        let after = self.0.range(hash..).next();
        (
            before.map_or(frag.first(), |(_, slice)| slice.last + 1),
            after.map_or(frag.last(), |(first, _)| first - 1),
        )
    }
    /// Adds an empty slice for a range.
    ///
    /// # Panics
    /// If some of it is already in memory.
    pub fn add(&mut self, (first, last): (u64, u64), used: u64) {
        assert!(
            first <= last
                && self
                    .0
                    .range(..=last)
                    .next_back()
                    .is_none_or(|(_, slice)| slice.last < first)
        );
        self.0.insert(
            first,
            Slice {
                last,
                entries: BTreeMap::new(),
                used,
            },
        );
    }
    /// Sets a name's value; a slice with more than `max` entries is divided.
    ///
    /// # Panics
    /// If its slice is not in memory.
    pub fn insert(&mut self, key: (u64, Name), what: T, max: usize) {
        let (_, slice) = self
            .slice_mut(key.0)
            .expect("entries are read before they are changed");
        slice.entries.insert(key, what);
        if slice.entries.len() <= max {
            return;
        }
        let middle = slice
            .entries
            .keys()
            .nth(slice.entries.len() / 2)
            .map(|(hash, _)| *hash);
        // Names with equal hashes stay together.
        let begins = |middle: &u64| {
            slice
                .entries
                .keys()
                .next()
                .is_some_and(|(hash, _)| hash < middle)
        };
        if let Some(middle) = middle.filter(begins) {
            let entries = slice.entries.split_off(&(middle, Name::default()));
            let second = Slice {
                last: slice.last,
                entries,
                used: slice.used,
            };
            slice.last = middle - 1;
            self.0.insert(middle, second);
        }
    }
    /// Removes a name; returns its value.
    pub fn remove(&mut self, key: &(u64, Name)) -> Option<T> {
        self.slice_mut(key.0)?.1.entries.remove(key)
    }
    /// Marks the slice of this hash as used in this turn.
    pub fn touch(&mut self, hash: u64, turn: u64) {
        if let Some((_, slice)) = self.slice_mut(hash) {
            slice.used = turn;
        }
    }
    /// Removes the slice that begins there; returns its entries.
    pub fn forget(&mut self, first: u64) -> Entries<T> {
        self.0
            .remove(&first)
            .map(|slice| slice.entries)
            .unwrap_or_default()
    }
    /// All slices as ranges, with the turn of their last use.
    pub fn all(&self) -> impl Iterator<Item = ((u64, u64), u64)> {
        self.0
            .iter()
            .map(|(first, slice)| ((*first, slice.last), slice.used))
    }
    /// All entries in memory, each with its slice's range.
    pub fn entries(&self) -> impl Iterator<Item = ((u64, u64), &(u64, Name), T)> {
        self.0.iter().flat_map(|(first, slice)| {
            slice
                .entries
                .iter()
                .map(move |(key, what)| ((*first, slice.last), key, *what))
        })
    }
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: (u64, u64) = (0, (1 << Frag::HASH_BITS) - 1);

    fn slices(ranges: &[(u64, u64)]) -> Slices<u64> {
        let mut slices = Slices::default();
        ranges.iter().for_each(|range| slices.add(*range, 1));
        slices
    }
    fn key(hash: u64) -> (u64, Name) {
        (hash, "a".into())
    }

    #[test]
    fn what_is_here_and_what_is_not() {
        let mut slices = slices(&[(10, 19), (20, 29), (40, 49)]);
        for hash in [11, 15, 22, 45] {
            slices.insert(key(hash), hash, 100);
        }
        let known = [9, 10, 29, 30, 45].map(|hash| slices.get(&key(hash)));
        assert_eq!(known, [None, Some(None), Some(None), None, Some(Some(45))]);
        assert_eq!(
            [10, 25, 30, 40].map(|hash| slices.known_to(hash)),
            [Some(29), Some(29), None, Some(49)]
        );
        let from = |hash| slices.from(hash).map(|(_, what)| what).collect::<Vec<_>>();
        assert_eq!(
            [from(10), from(12), from(23), from(30)],
            [vec![11, 15, 22], vec![15, 22], vec![], vec![]]
        );
        let gaps = [0, 9, 30, 39, 50, ALL.1].map(|hash| slices.gap(Frag::WHOLE, hash));
        assert_eq!(
            gaps,
            [(0, 9), (0, 9), (30, 39), (30, 39), (50, ALL.1), (50, ALL.1)]
        );
        assert!(!slices.is_all(Frag::WHOLE));
    }

    #[test]
    fn a_slice_that_has_grown_is_divided() {
        let mut slices = slices(&[ALL]);
        for hash in 0..1000 {
            slices.insert(key(hash), hash, 10);
            slices.insert(key(hash), hash, 10);
        }
        assert!(slices.is_all(Frag::WHOLE) && slices.len() > 1000 / 11);
        assert!(slices.from(0).map(|(_, what)| what).eq(0..1000));
        for ((first, _), _) in slices.all().collect::<Vec<_>>() {
            assert!(slices.forget(first).len() <= 10);
        }
        assert_eq!((slices.len(), slices.get(&key(7))), (0, None));
    }

    /// Names can be chosen to have equal hashes.
    #[test]
    fn names_of_one_hash_stay_together() {
        let mut slices = slices(&[ALL]);
        for name in 0..20 {
            slices.insert((5, Name::from(&*format!("{name}"))), name, 4);
        }
        assert_eq!(slices.len(), 1);
        slices.insert(key(6), 6, 4);
        slices.insert(key(4), 4, 4);
        assert!(slices.len() > 1 && slices.is_all(Frag::WHOLE));
        assert_eq!(slices.from(0).count(), 22);
        assert_eq!(
            (slices.remove(&key(4)), slices.remove(&key(4))),
            (Some(4), None)
        );
    }

    #[test]
    #[should_panic(expected = "assertion failed")]
    fn what_is_here_does_not_come_twice() {
        slices(&[(10, 19)]).add((19, 25), 1);
    }
}
