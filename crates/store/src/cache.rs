//! Recently used index records, newest version, bounded in bytes (second-chance replacement).
//!
//! ```text
//!  slots: │ head │ omap entry │ shard │ head │ …     a hash table in dense order
//!                      ▲ hand of the clock      ordered: keys of the omap entries
//! ```
//! Only omap entries are removed by ranges, so only they need an order; the others cost one lookup
//! in a hash table.
//!
//! A warm object needs no job: its shards are here, and its head, unless a memtable has it
//! ([`crate::tables`]). Absence is cached too, so that
//! creating an object a second time, or probing for it, needs no job either.

use crate::format::keys::{self, InPlace};
use crate::format::value::Value;
use bytes::Bytes;
use foldhash::fast::FixedState;
use indexmap::IndexMap;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Memory charged per entry besides key and value.
const OVERHEAD: usize = 112;

#[derive(Debug)]
struct Slot {
    value: Option<Value>,
    used: bool,
}

impl Slot {
    fn len(&self) -> usize {
        self.value.as_ref().map_or(0, Value::len)
    }
}

#[derive(Debug)]
pub(crate) struct Cache {
    slots: IndexMap<InPlace, Slot, FixedState>,
    ordered: BTreeSet<Bytes>,
    hand: usize,
    bytes: usize,
    bytes_max: usize,
    evictions: u64,
}

fn is_ordered(key: &[u8]) -> bool {
    key.first() == Some(&keys::TAG_OMAP)
}

impl Cache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            slots: IndexMap::default(),
            ordered: BTreeSet::new(),
            hand: 0,
            bytes: 0,
            bytes_max,
            evictions: 0,
        }
    }

    /// The number of records evicted or not cached for lack of space.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Asserts the limit, and that the counted bytes match the contents.
    pub(crate) fn check(&self) {
        let slots = self.slots.iter();
        let bytes = slots.map(|(key, slot)| key.len() + slot.len() + OVERHEAD);
        assert_eq!(self.bytes, bytes.sum::<usize>(), "bytes of the cache");
        assert!(
            self.bytes <= self.bytes_max,
            "{} bytes in a cache of {}",
            self.bytes,
            self.bytes_max
        );
        let entries = self.slots.keys().filter(|key| is_ordered(key));
        assert_eq!(self.ordered.len(), entries.count(), "keys in order");
    }

    /// The newest value, or its absence; `None` if the cache does not know.
    pub(crate) fn get(&mut self, key: &[u8]) -> Option<&Option<Value>> {
        let slot = self.slots.get_mut(key)?;
        slot.used = true;
        Some(&slot.value)
    }

    pub(crate) fn set(&mut self, key: &[u8], value: Option<Value>) {
        let size = value.as_ref().map_or(0, Value::len);
        if let Some(slot) = self.slots.get_mut(key) {
            self.bytes = self.bytes + size - slot.len();
            (slot.value, slot.used) = (value, true);
        } else {
            self.bytes += key.len() + size + OVERHEAD;
            if is_ordered(key) {
                self.ordered.insert(Bytes::copy_from_slice(key));
            }
            let slot = Slot { value, used: false };
            self.slots.insert(InPlace::from_slice(key), slot);
        }
        while self.bytes > self.bytes_max && !self.slots.is_empty() {
            self.evict();
        }
    }

    /// Like `set`, but only if the key is cached.
    pub(crate) fn update(&mut self, key: &[u8], value: &Option<Value>) {
        // Omap entries rarely are, and a log in an omap grows with every update.
        let none = is_ordered(key) && self.ordered.is_empty();
        if !none && self.slots.contains_key(key) {
            self.set(key, value.clone());
        }
    }

    /// Drops a range of omap entries.
    pub(crate) fn forget_range(&mut self, from: &Bytes, to: &Bytes) {
        assert!(is_ordered(from), "only omap entries are removed by ranges");
        let range = (Bound::Included(from), Bound::Excluded(to.max(from)));
        let covered: Vec<Bytes> = self.ordered.range::<Bytes, _>(range).cloned().collect();
        for key in covered {
            let at = self.slots.get_index_of(&key[..]);
            self.vacate(at.expect("keys in order are of slots"));
        }
    }

    /// The last slot moves to this place.
    fn vacate(&mut self, at: usize) {
        let (key, slot) = self.slots.swap_remove_index(at).expect("a slot");
        self.bytes -= key.len() + slot.len() + OVERHEAD;
        if is_ordered(&key) {
            self.ordered.remove(&key[..]);
        }
    }

    fn evict(&mut self) {
        self.evictions += 1;
        loop {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            // The slot that takes the place of an evicted one is the youngest: the hand leaves it
            // behind.
            let at = self.hand;
            self.hand += 1;
            let slot = &mut self.slots[at];
            if !std::mem::take(&mut slot.used) {
                return self.vacate(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last slot takes the place of an evicted one: if the hand stayed there, each new record
    /// would be the next to go, and old ones that nobody uses would stay for ever.
    #[test]
    fn what_is_new_lives_for_a_round() {
        let mut cache = Cache::new(100 * (5 + OVERHEAD));
        let key = |i: u32| Bytes::from([&[keys::TAG_HEAD][..], &i.to_be_bytes()].concat());
        (0..150).for_each(|i| cache.set(&key(i), None));
        let there: Vec<u32> = (0..150)
            .filter(|&i| cache.slots.contains_key(&key(i)[..]))
            .collect();
        assert_eq!(there, (50..150).collect::<Vec<_>>());
    }

    #[test]
    fn the_bound_holds_and_what_is_used_stays() {
        for tag in [keys::TAG_HEAD, keys::TAG_OMAP] {
            the_bound_holds(tag);
        }
    }

    fn the_bound_holds(tag: u8) {
        let bound = 100 * (5 + 100 + OVERHEAD);
        let mut cache = Cache::new(bound);
        let key = |i: u32| Bytes::from([&[tag][..], &i.to_be_bytes()].concat());
        for i in 0..10_000 {
            cache.set(&key(i), Some(Bytes::from(vec![i as u8; 100]).into()));
            assert_eq!(
                cache.get(&key(0)),
                Some(&Some(Bytes::from(vec![0; 100]).into())),
                "used all the time"
            );
            cache.check();
        }
        assert_eq!(cache.slots.len(), 100);
        cache.set(&key(0), None);
        cache.update(&key(77), &None);
        assert_eq!(cache.get(&key(0)), Some(&None));
        assert_eq!(cache.get(&key(77)), None);
        if tag == keys::TAG_OMAP {
            cache.forget_range(&key(0), &key(10_000));
            assert_eq!((cache.bytes(), cache.slots.len()), (0, 0));
            cache.check();
        }
    }
}
