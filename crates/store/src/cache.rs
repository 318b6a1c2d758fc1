//! Recently used index records, newest version, bounded in bytes (second-chance replacement).
//!
//! ```text
//!  heads, shards, counts ─▶ by_hash ─┐
//!  omap entries ──────────▶ by_order ┴▶ slots, with the hand of the clock
//! ```
//! Only omap entries are removed by ranges, so only they need an order; the others cost one lookup
//! in a hash table.
//!
//! A warm object needs no job: its head and shards are here. Absence is cached too, so that
//! creating an object a second time, or probing for it, needs no job either.

use crate::format::keys;
use crate::format::value::Value;
use bytes::Bytes;
use foldhash::fast::FixedState;
use indexmap::IndexMap;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Memory charged per entry besides key and value.
const OVERHEAD: usize = 112;

#[derive(Debug)]
struct Slot {
    key: Bytes,
    value: Option<Value>,
    used: bool,
}

#[derive(Debug)]
pub(crate) struct Cache {
    by_hash: IndexMap<Bytes, usize, FixedState>,
    by_order: BTreeMap<Bytes, usize>,
    slots: Vec<Option<Slot>>,
    vacant: Vec<usize>,
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
        let (by_hash, by_order) = Default::default();
        Self {
            by_hash,
            by_order,
            slots: Vec::new(),
            vacant: Vec::new(),
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

    fn slot_of(&self, key: &[u8]) -> Option<usize> {
        if is_ordered(key) {
            self.by_order.get(key)
        } else {
            self.by_hash.get(key)
        }
        .copied()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Asserts the limit, and that the counted bytes match the contents.
    pub(crate) fn check(&self) {
        let slots = self.slots.iter().flatten();
        let bytes =
            slots.map(|slot| slot.key.len() + slot.value.as_ref().map_or(0, Value::len) + OVERHEAD);
        assert_eq!(self.bytes, bytes.sum::<usize>(), "bytes of the cache");
        assert!(
            self.bytes <= self.bytes_max,
            "{} bytes in a cache of {}",
            self.bytes,
            self.bytes_max
        );
        let named = self.by_hash.len() + self.by_order.len();
        assert_eq!(
            (named, self.slots.len() - named),
            (self.slots.iter().flatten().count(), self.vacant.len())
        );
    }

    /// The newest value, or its absence; `None` if the cache does not know.
    pub(crate) fn get(&mut self, key: &[u8]) -> Option<Option<Value>> {
        let at = self.slot_of(key)?;
        let slot = self.slots[at]
            .as_mut()
            .expect("the map names only taken slots");
        slot.used = true;
        Some(slot.value.clone())
    }

    pub(crate) fn set(&mut self, key: &Bytes, value: Option<Value>) {
        let size = value.as_ref().map_or(0, Value::len);
        if let Some(at) = self.slot_of(key) {
            let slot = self.slots[at]
                .as_mut()
                .expect("the map names only taken slots");
            self.bytes = self.bytes + size - slot.value.as_ref().map_or(0, Value::len);
            slot.value = value;
            slot.used = true;
        } else {
            self.bytes += key.len() + size + OVERHEAD;
            let slot = Some(Slot {
                key: key.clone(),
                value,
                used: false,
            });
            let at = match self.vacant.pop() {
                Some(at) => {
                    self.slots[at] = slot;
                    at
                }
                None => {
                    self.slots.push(slot);
                    self.slots.len() - 1
                }
            };
            if is_ordered(key) {
                self.by_order.insert(key.clone(), at);
            } else {
                self.by_hash.insert(key.clone(), at);
            }
        }
        while self.bytes > self.bytes_max && self.vacant.len() < self.slots.len() {
            self.evict();
        }
    }

    /// Like `set`, but only if the key is cached.
    pub(crate) fn update(&mut self, key: &Bytes, value: &Option<Value>) {
        if self.slot_of(key).is_some() {
            self.set(key, value.clone());
        }
    }

    /// Drops a range of omap entries.
    pub(crate) fn forget_range(&mut self, from: &Bytes, to: &Bytes) {
        assert!(is_ordered(from), "only omap entries are removed by ranges");
        let range = (Bound::Included(from), Bound::Excluded(to.max(from)));
        let slots: Vec<usize> = self
            .by_order
            .range::<Bytes, _>(range)
            .map(|(_, at)| *at)
            .collect();
        for at in slots {
            self.vacate(at);
        }
    }

    fn vacate(&mut self, at: usize) {
        let slot = self.slots[at].take().expect("only taken slots are vacated");
        self.bytes -= slot.key.len() + slot.value.map_or(0, |v| v.len()) + OVERHEAD;
        if is_ordered(&slot.key) {
            self.by_order.remove(&slot.key);
        } else {
            self.by_hash.swap_remove(&slot.key);
        }
        self.vacant.push(at);
    }

    fn evict(&mut self) {
        self.evictions += 1;
        loop {
            self.hand = (self.hand + 1) % self.slots.len();
            match &mut self.slots[self.hand] {
                Some(slot) if slot.used => slot.used = false,
                Some(_) => return self.vacate(self.hand),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                Some(Some(Bytes::from(vec![0; 100]).into())),
                "used all the time"
            );
            assert!(cache.bytes() <= bound);
        }
        let count = |cache: &Cache| cache.by_hash.len() + cache.by_order.len();
        assert_eq!(count(&cache), 100);
        cache.set(&key(0), None);
        cache.update(&key(77), &None);
        assert_eq!(
            (cache.get(&key(0)), cache.get(&key(77))),
            (Some(None), None)
        );
        if tag == keys::TAG_OMAP {
            cache.forget_range(&key(0), &key(10_000));
            assert_eq!((cache.bytes(), count(&cache)), (0, 0));
        }
    }
}
