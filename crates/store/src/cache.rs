//! Recently used index records, newest version, bounded in bytes (second-chance replacement).
//!
//! A warm object costs no job: its head and shards are here. Absence is remembered too, so that creating an object
//! a second time, or probing for it, costs no job either.

use bytes::Bytes;
use std::collections::BTreeMap;

/// Memory charged per entry besides key and value.
const OVERHEAD: usize = 112;

#[derive(Debug)]
struct Slot {
    key: Bytes,
    value: Option<Bytes>,
    used: bool,
}

#[derive(Debug)]
pub(crate) struct Cache {
    by_key: BTreeMap<Bytes, usize>,
    slots: Vec<Option<Slot>>,
    vacant: Vec<usize>,
    hand: usize,
    bytes: usize,
    bytes_max: usize,
}

impl Cache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { by_key: BTreeMap::new(), slots: Vec::new(), vacant: Vec::new(), hand: 0, bytes: 0, bytes_max }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The newest value, or that there is none; `None` if the cache does not know.
    pub(crate) fn get(&mut self, key: &[u8]) -> Option<Option<Bytes>> {
        let slot = self.slots[*self.by_key.get(key)?].as_mut().expect("the map names only taken slots");
        slot.used = true;
        Some(slot.value.clone())
    }

    pub(crate) fn set(&mut self, key: &Bytes, value: Option<Bytes>) {
        let size = value.as_ref().map_or(0, Bytes::len);
        if let Some(&at) = self.by_key.get(key) {
            let slot = self.slots[at].as_mut().expect("the map names only taken slots");
            self.bytes = self.bytes + size - slot.value.as_ref().map_or(0, Bytes::len);
            slot.value = value;
            slot.used = true;
        } else {
            self.bytes += key.len() + size + OVERHEAD;
            let slot = Some(Slot { key: key.clone(), value, used: false });
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
            self.by_key.insert(key.clone(), at);
        }
        while self.bytes > self.bytes_max && !self.by_key.is_empty() {
            self.evict();
        }
    }

    /// As `set`, but only if the key is here already.
    pub(crate) fn update(&mut self, key: &Bytes, value: &Option<Bytes>) {
        if self.by_key.contains_key(key) {
            self.set(key, value.clone());
        }
    }

    pub(crate) fn forget_range(&mut self, from: &Bytes, to: &Bytes) {
        let keys: Vec<Bytes> = self.by_key.range(from.clone()..to.max(from).clone()).map(|(k, _)| k.clone()).collect();
        for key in keys {
            let at = self.by_key[&key];
            self.vacate(at);
        }
    }

    fn vacate(&mut self, at: usize) {
        let slot = self.slots[at].take().expect("only taken slots are vacated");
        self.bytes -= slot.key.len() + slot.value.map_or(0, |v| v.len()) + OVERHEAD;
        self.by_key.remove(&slot.key);
        self.vacant.push(at);
    }

    fn evict(&mut self) {
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
        let mut cache = Cache::new(100 * (4 + 100 + OVERHEAD));
        let key = |i: u32| Bytes::from(i.to_be_bytes().to_vec());
        for i in 0..10_000 {
            cache.set(&key(i), Some(Bytes::from(vec![i as u8; 100])));
            assert_eq!(cache.get(&key(0)), Some(Some(Bytes::from(vec![0; 100]))), "used all the time");
            assert!(cache.bytes() <= 100 * (4 + 100 + OVERHEAD));
        }
        assert_eq!(cache.by_key.len(), 100);
        cache.set(&key(0), None);
        cache.update(&key(77), &None);
        assert_eq!((cache.get(&key(0)), cache.get(&key(77))), (Some(None), None));
        cache.forget_range(&key(0), &key(10_000));
        assert_eq!((cache.bytes(), cache.by_key.len()), (0, 0));
    }
}
