//! What a standby holds of a rank's journal: whole batches from the journal's beginning, object by
//! object.
//!
//! ```text
//!  journal.0.00000007 │ batch │ batch │ batch │       held completely, since the next one continues from there
//!  journal.0.00000008 │ batch │ batch │ - - -         held up to `length`; the rest is read at a takeover
//! ```
//! Invariants: object numbers and batch numbers have no gaps; what is held of an object is a prefix
//! of it, as long as the holder is the one under which it was read ([`crate::follow`]).

use crate::journal::{self, Batch};
use crc_fast::{CrcAlgorithm, Digest};
use std::collections::BTreeMap;

#[cfg(feature = "mutants")]
#[path = "mutants/followed.rs"]
mod planted;

/// The held part of an object.
#[derive(Debug)]
pub(crate) struct Held {
    /// The number of its first batch.
    begins: u64,
    /// Its length in bytes, and their checksum.
    length: u64,
    digest: Digest,
    /// At least one.
    batches: Vec<Batch>,
}

impl Held {
    fn new(begins: u64) -> Self {
        Self {
            begins,
            length: 0,
            digest: Digest::new(CrcAlgorithm::Crc32Iscsi),
            batches: Vec::new(),
        }
    }
    /// The number of the next batch.
    const fn next(&self) -> u64 {
        self.begins + self.batches.len() as u64
    }
    /// Its length in bytes.
    pub const fn length(&self) -> u64 {
        self.length
    }
    /// Appends further bytes. Returns whether all of them were valid; if not, nothing changes.
    fn extend(&mut self, bytes: &[u8]) -> bool {
        let (before, mut next) = (self.batches.len(), self.next());
        if !journal::read(bytes, &mut next, &mut self.batches) {
            self.batches.truncate(before);
            return false;
        }
        self.digest.update(bytes);
        self.length += bytes.len() as u64;
        true
    }
    /// Whether a checksum and length match the held part.
    pub fn is_same(&self, crc: u32, length: u64) -> bool {
        // The library's checksums are 64 bits wide; this one fills the low half.
        length == self.length && u64::from(crc) == self.digest.finalize()
    }
    /// Returns the held batches and further ones, if it continues from `next` and all bytes are
    /// valid.
    #[nacre_types::planted]
    pub fn go_on(mut self, bytes: &[u8], next: &mut u64, into: &mut Vec<Batch>) -> bool {
        if self.begins != *next || !self.extend(bytes) {
            return false;
        }
        *next = self.next();
        into.append(&mut self.batches);
        true
    }
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Followed {
    objects: BTreeMap<u64, Held>,
}

impl Followed {
    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }
    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
    /// Bytes of the journal; they take about as much memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.objects.values().map(|held| held.length).sum()
    }
    /// The last object: its number, its held length, and the next batch.
    pub(crate) fn last(&self) -> Option<(u64, u64, u64)> {
        self.objects
            .last_key_value()
            .map(|(number, held)| (*number, held.length, held.next()))
    }
    /// The held part of an object.
    pub(crate) fn get(&self, number: u64) -> Option<&Held> {
        self.objects.get(&number)
    }
    /// Whether an object from this number on is held.
    pub(crate) fn has_from(&self, number: u64) -> bool {
        self.objects.range(number..).next().is_some()
    }
    pub(crate) fn remove(&mut self, number: u64) -> Option<Held> {
        self.objects.remove(&number)
    }
    /// The journal begins with this object and this batch: drops what precedes it, or everything if
    /// it does not fit.
    pub(crate) fn cut_off(&mut self, first: u64, sequence: u64) {
        self.objects = self.objects.split_off(&first);
        if self
            .objects
            .first_key_value()
            .is_none_or(|(number, held)| (*number, held.begins) != (first, sequence))
        {
            self.objects.clear();
        }
    }
    /// Appends bytes to the last object. Returns whether all of them were valid.
    pub(crate) fn extend_last(&mut self, bytes: &[u8]) -> bool {
        self.objects
            .last_entry()
            .is_some_and(|mut last| last.get_mut().extend(bytes))
    }
    /// Adds the next object, or the first one, which begins with this batch. Returns whether all
    /// bytes were valid.
    pub(crate) fn push(&mut self, number: u64, begins: u64, bytes: &[u8]) -> bool {
        let mut held = Held::new(begins);
        let good = held.extend(bytes) && !held.batches.is_empty();
        if good {
            self.objects.insert(number, held);
        }
        good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(sequence: u64, serial: u64) -> Vec<u8> {
        Batch {
            sequence,
            serial,
            ..Batch::default()
        }
        .frame()
    }
    /// Batches 5 to 7 in object 3, 8 in object 4.
    fn followed() -> Followed {
        let mut followed = Followed::default();
        assert!(followed.push(3, 5, &[frame(5, 1), frame(6, 2)].concat()));
        assert!(followed.extend_last(&frame(7, 3)) && followed.push(4, 8, &frame(8, 4)));
        followed
    }

    #[test]
    fn what_is_held_has_no_gap_and_nothing_that_is_not_whole() {
        let mut followed = followed();
        let (length, all) = (frame(7, 3).len() as u64, 4 * frame(8, 4).len() as u64);
        assert_eq!(
            (followed.bytes(), followed.last(), followed.len()),
            (all, Some((4, length, 9)), 2)
        );
        assert!(!followed.extend_last(&frame(10, 1)), "a gap");
        assert!(
            !followed.extend_last(&[frame(9, 1), vec![1]].concat()),
            "not whole"
        );
        assert!(!followed.push(5, 9, &[]) && !followed.push(5, 9, &frame(10, 1)));
        assert_eq!(
            (followed.bytes(), followed.last()),
            (all, Some((4, length, 9))),
            "as it was"
        );
        assert_eq!(followed.get(3).map(Held::length), Some(3 * length));
    }

    #[test]
    fn what_the_head_says_is_gone_goes() {
        for (first, sequence, left) in [
            (3, 5, 2),
            (4, 8, 1),
            (4, 7, 0),
            (3, 6, 0),
            (2, 4, 0),
            (5, 9, 0),
        ] {
            let mut followed = followed();
            followed.cut_off(first, sequence);
            assert_eq!(followed.len(), left, "{first} {sequence}");
        }
    }

    /// It is accepted as current only if its checksum matches and what follows is intact.
    #[test]
    fn what_is_there_must_be_what_is_held() {
        let held = || followed().remove(3).expect("held");
        let there = [frame(5, 1), frame(6, 2), frame(7, 3)].concat();
        assert!(held().is_same(nacre_wire::frame::crc32c(&there), there.len() as u64));
        assert!(!held().is_same(nacre_wire::frame::crc32c(&there), there.len() as u64 - 1));
        assert!(!held().is_same(nacre_wire::frame::crc32c(&there[1..]), there.len() as u64));
        let go_on = |bytes: &[u8]| {
            let (mut next, mut batches) = (5, Vec::new());
            let fits = held().go_on(bytes, &mut next, &mut batches);
            assert_eq!(next, 5 + batches.len() as u64);
            fits.then_some(batches.len())
        };
        assert_eq!((go_on(&[]), go_on(&frame(8, 9))), (Some(3), Some(4)));
        for other in [
            frame(7, 3),
            frame(9, 3),
            [frame(8, 3), frame(8, 3)].concat(),
            frame(8, 3)[1..].to_vec(),
        ] {
            assert_eq!(go_on(&other), None, "{other:?}");
        }
        assert!(
            !held().go_on(&[], &mut 6, &mut Vec::new()),
            "it begins elsewhere"
        );
    }
}
