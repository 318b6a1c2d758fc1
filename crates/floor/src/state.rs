//! The state that an OSD must keep about updates, besides the data: objects, requests, and recent
//! records.
//!
//! Objects are slots in an open-addressed table. Requests are a ring per client: a request found
//! there was already executed. Recent records are a ring per placement group, as recovery needs
//! them.

use crate::frame::{BODY_MAX, Body, NAME, Name};
use anyhow::{Result, ensure};

/// Placement groups.
pub const GROUPS: u64 = 32;
/// Number of requests of a client kept per PG.
const REQUESTS: usize = 1024;
/// Number of records kept per PG.
const RECORDS: usize = 64;
/// Bytes of each record.
const RECORD: usize = 256;

/// An object.
#[derive(Clone)]
pub struct Slot {
    hash: u64,
    name: Name,
    /// Version of the last update.
    pub version: u64,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change.
    pub modified: u64,
    /// Location of its data.
    pub place: u64,
    /// Checksum of its data.
    pub crc: u32,
}

/// All objects of an OSD, by name.
pub struct Objects {
    slots: Vec<Slot>,
    mask: usize,
    used: usize,
}

const EMPTY: Slot = Slot {
    hash: 0,
    name: [0; NAME],
    version: 0,
    size: 0,
    modified: 0,
    place: 0,
    crc: 0,
};

impl Objects {
    /// A table with space for `objects` objects.
    pub fn with_room_for(objects: usize) -> Self {
        let slots = (objects * 2).next_power_of_two().max(64);
        Self {
            slots: vec![EMPTY; slots],
            mask: slots - 1,
            used: 0,
        }
    }

    /// The object, if it exists.
    pub fn find(&self, name: &Name) -> Option<&Slot> {
        let hash = hash(name);
        Some(&self.slots[self.position(hash, name)]).filter(|slot| slot.hash != 0)
    }

    /// The object; it is created if it does not exist.
    pub fn entry(&mut self, name: &Name) -> &mut Slot {
        if self.used * 2 >= self.slots.len() {
            self.grow();
        }
        let hash = hash(name);
        let at = self.position(hash, name);
        if self.slots[at].hash == 0 {
            self.used += 1;
            self.slots[at].hash = hash;
            self.slots[at].name = *name;
        }
        &mut self.slots[at]
    }

    /// Its slot, or the free slot for it. At most half of the slots are used, so the search ends.
    fn position(&self, hash: u64, name: &Name) -> usize {
        let mut at = (hash >> 20) as usize & self.mask;
        loop {
            let slot = &self.slots[at];
            if slot.hash == 0 || (slot.hash == hash && slot.name == *name) {
                return at;
            }
            at = (at + 1) & self.mask;
        }
    }

    fn grow(&mut self) {
        let mut larger = Self::with_room_for(self.slots.len());
        for slot in self.slots.drain(..).filter(|slot| slot.hash != 0) {
            let at = larger.position(slot.hash, &slot.name);
            larger.slots[at] = slot;
        }
        larger.used = self.used;
        *self = larger;
    }
}

/// Never 0, which marks an empty slot.
fn hash(name: &Name) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let words = name
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    let mixed = words.fold(ODD, |mixed, word| {
        (mixed.rotate_left(29) ^ word).wrapping_mul(ODD)
    });
    (mixed ^ (mixed >> 32)).wrapping_mul(ODD) | 1
}

/// State per placement group.
struct Group {
    head: usize,
    records: Box<[[u8; RECORD]]>,
    requests: Box<[u64]>,
}

/// The state of an OSD.
pub struct State {
    /// All objects.
    pub objects: Objects,
    groups: Vec<Group>,
}

impl State {
    /// For an OSD with at least this many objects.
    pub fn new(objects: usize) -> Self {
        let group = || Group {
            head: 0,
            records: vec![[0; RECORD]; RECORDS].into_boxed_slice(),
            requests: vec![0; REQUESTS].into_boxed_slice(),
        };
        Self {
            objects: Objects::with_room_for(objects),
            groups: (0..GROUPS).map(|_| group()).collect(),
        }
    }

    /// Applies an update.
    ///
    /// # Errors
    /// When its request was already executed.
    pub fn apply(
        &mut self,
        body: &Body,
        record: &[u8],
        size: usize,
        crc: u32,
        place: u64,
    ) -> Result<()> {
        let group = &mut self.groups[(body.group % GROUPS) as usize];
        let remembered = &mut group.requests[body.request as usize % REQUESTS];
        ensure!(
            *remembered != body.request,
            "request {} came twice",
            body.request
        );
        *remembered = body.request;
        let length = record.len().min(BODY_MAX);
        group.records[group.head % RECORDS][..length].copy_from_slice(&record[..length]);
        group.head += 1;
        let slot = self.objects.entry(&body.name);
        (slot.version, slot.size, slot.modified) = (body.version, size as u64, body.request);
        (slot.place, slot.crc) = (place, crc);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u32) -> Name {
        let mut name = [0; NAME];
        name[7..11].copy_from_slice(&number.to_le_bytes());
        name
    }

    #[test]
    fn objects_are_found_by_name_also_after_the_table_has_grown() {
        let mut objects = Objects::with_room_for(1);
        for number in 0..5_000 {
            assert!(objects.find(&name(number)).is_none());
            objects.entry(&name(number)).version = u64::from(number) + 1;
        }
        for number in 0..5_000 {
            assert_eq!(objects.entry(&name(number)).version, u64::from(number) + 1);
            assert_eq!(
                objects.find(&name(number)).map(|slot| slot.version),
                Some(u64::from(number) + 1)
            );
        }
        assert!(objects.find(&name(5_000)).is_none());
        assert_eq!(objects.used, 5_000);
    }

    #[test]
    fn a_request_is_done_once() {
        let mut state = State::new(8);
        let body = Body {
            name: name(3),
            ..Body::of(5, 3, 1, 3)
        };
        state.apply(&body, &[1; 200], 4096, 9, 77).expect("new");
        assert!(state.apply(&body, &[1; 200], 4096, 9, 77).is_err());
        let slot = state.objects.find(&name(3)).expect("made");
        assert_eq!(
            (slot.version, slot.size, slot.place, slot.crc),
            (1, 4096, 77, 9)
        );
    }
}
