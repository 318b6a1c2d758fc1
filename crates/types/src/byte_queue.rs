//! A queue of byte strings in few pieces of memory.
//!
//! ```text
//!  pieces:  │ aaa bbbb cc ····· │   │ dddd e ffff ····· │   of PIECE bytes, or one long string
//!  places:     0   0    0               1   1  1               piece, start, length; oldest first
//! ```
//! Logs grow at their end and are trimmed at their beginning. An allocation of its own per entry is
//! freed when its memory has left the processor's caches, and what is allocated next waits for it:
//! every update of an OSD paid for that several times. Here an entry is appended to memory that was
//! just used, and removing the oldest ones does not touch them.
//!
//! Invariants: a string is within one piece; the pieces' strings are the queue's, in order.

use std::collections::VecDeque;

/// Bytes of a piece, unless a string is longer.
const PIECE: usize = 4096;

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct ByteQueue {
    pieces: VecDeque<Vec<u8>>,
    places: VecDeque<Place>,
    /// Number of the first piece.
    first: u32,
    /// Memory of an emptied piece, for the next one.
    spare: Vec<u8>,
}

/// A string's piece, and its bytes there.
#[derive(Clone, Copy, Debug)]
struct Place {
    piece: u32,
    start: u32,
    length: u32,
}

fn short(length: usize) -> u32 {
    u32::try_from(length).expect("strings are shorter than 4 GiB")
}

impl ByteQueue {
    /// The number of strings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn piece(&self, place: Place) -> usize {
        place.piece.wrapping_sub(self.first) as usize
    }
    fn at(&self, place: Place) -> &[u8] {
        &self.pieces[self.piece(place)][place.start as usize..][..place.length as usize]
    }

    /// The string at an index.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        self.places.get(index).map(|place| self.at(*place))
    }
    /// The string at an index, to change bytes of it.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut [u8]> {
        let place = *self.places.get(index)?;
        let piece = self.piece(place);
        Some(&mut self.pieces[piece][place.start as usize..][..place.length as usize])
    }
    /// The length of the string at an index, without access to its memory.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn length(&self, index: usize) -> usize {
        self.places[index].length as usize
    }
    /// The oldest string.
    #[must_use]
    pub fn front(&self) -> Option<&[u8]> {
        self.get(0)
    }
    /// The newest string.
    #[must_use]
    pub fn back(&self) -> Option<&[u8]> {
        self.places.back().map(|place| self.at(*place))
    }
    /// The strings from an index on, oldest first.
    pub fn range(&self, from: usize) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        self.places.range(from..).map(|place| self.at(*place))
    }
    /// All strings, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        self.range(0)
    }
    /// The index of the first string that is not `before`, if those that are come first.
    pub fn partition_point(&self, mut before: impl FnMut(&[u8]) -> bool) -> usize {
        self.places.partition_point(|place| before(self.at(*place)))
    }

    /// Appends a string, given in parts.
    pub fn push_back(&mut self, parts: &[&[u8]]) {
        let length = parts.iter().map(|part| part.len()).sum();
        let has_room = |piece: &Vec<u8>| piece.capacity() - piece.len() >= length;
        if !self.pieces.back().is_some_and(has_room) {
            let mut piece = std::mem::take(&mut self.spare);
            piece.reserve_exact(length.max(PIECE));
            self.pieces.push_back(piece);
        }
        let number = self.first.wrapping_add(short(self.pieces.len() - 1));
        let piece = self.pieces.back_mut().expect("just looked at");
        let start = short(piece.len());
        parts.iter().for_each(|part| piece.extend_from_slice(part));
        self.places.push_back(Place {
            piece: number,
            start,
            length: short(length),
        });
    }

    /// Puts a string before all others. Rare: it gets a piece of its own.
    pub fn push_front(&mut self, string: &[u8]) {
        self.first = self.first.wrapping_sub(1);
        self.pieces.push_front(string.to_vec());
        self.places.push_front(Place {
            piece: self.first,
            start: 0,
            length: short(string.len()),
        });
    }

    /// Removes the oldest strings; the one at index `count` becomes the first.
    pub fn remove_front(&mut self, count: usize) {
        self.places.drain(..count.min(self.places.len()));
        let unused = match self.places.front() {
            Some(place) => self.piece(*place),
            None => self.pieces.len(),
        };
        for mut piece in self.pieces.drain(..unused) {
            if piece.capacity() == PIECE {
                piece.clear();
                self.spare = piece;
            }
        }
        self.first = self.first.wrapping_add(short(unused));
    }

    /// Removes the newest strings, so that `count` are left.
    pub fn truncate(&mut self, count: usize) {
        self.places.truncate(count);
        let (used, end) = match self.places.back() {
            Some(place) => (self.piece(*place) + 1, place.start + place.length),
            None => (0, 0),
        };
        self.pieces.truncate(used);
        if let Some(last) = self.pieces.back_mut() {
            last.truncate(end as usize);
        }
    }
}

impl PartialEq for ByteQueue {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}
impl Eq for ByteQueue {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    /// The same as a queue of vectors, also with strings around the length of a piece; and it keeps
    /// no memory of what was removed but one piece.
    #[test]
    fn it_is_a_queue() {
        for seed in 0..200 {
            let mut random = SplitMix64(seed);
            let (mut queue, mut model) = (ByteQueue::default(), VecDeque::<Vec<u8>>::new());
            queue.first = u32::MAX - 2;
            let longest = [5, 300, 2 * PIECE][(seed % 3) as usize];
            for step in 0..400_u64 {
                let mut below = |n: usize| random.below(n as u64 + 1) as usize;
                let string = vec![step as u8; below(longest)];
                let count = below(model.len());
                match below(9) {
                    0 => {
                        queue.push_front(&string);
                        model.push_front(string);
                    }
                    1 if step % 3 == 0 => {
                        queue.truncate(count);
                        model.truncate(count);
                    }
                    2 => {
                        let count = count / 2;
                        queue.remove_front(count);
                        model.drain(..count);
                    }
                    3 => {
                        if let Some(string) = queue.get_mut(count) {
                            string.fill(7);
                            model[count].fill(7);
                        }
                    }
                    _ => {
                        let (one, other) = string.split_at(string.len() / 2);
                        queue.push_back(&[one, other]);
                        model.push_back(string);
                    }
                }
                assert!(queue.iter().eq(model.iter().map(|s| &s[..])), "seed {seed}");
                assert!(queue.iter().rev().eq(model.iter().rev().map(|s| &s[..])));
                assert_eq!(queue.back(), model.back().map(|s| &s[..]));
                assert_eq!(queue.get(count), model.get(count).map(|s| &s[..]));
                assert_eq!(queue.len(), model.len());
                let used: usize = queue.pieces.iter().map(Vec::len).sum();
                let strings: usize = model.iter().map(Vec::len).sum();
                assert!(
                    used <= strings + 2 * PIECE.max(longest),
                    "{used}, {strings}"
                );
            }
            queue.remove_front(usize::MAX);
            assert!(queue.pieces.is_empty() && queue.spare.capacity() <= PIECE);
        }
    }
}
