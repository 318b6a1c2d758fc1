//! A set of inode numbers, one bit each, since ranks assign their numbers consecutively.

use nacre_types::Ino;
use std::collections::BTreeMap;

/// Words of a page: 32,768 numbers.
const WORDS: usize = 512;
const BITS: u64 = (WORDS as u64) * 64;

/// See the module head. An isolated number takes a page of 4 KiB.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    pages: BTreeMap<u64, Box<[u64; WORDS]>>,
}

fn place(ino: Ino) -> (u64, usize, u64) {
    let within = ino.0 % BITS;
    (ino.0 / BITS, (within / 64) as usize, 1 << (within % 64))
}

impl Numbers {
    /// Inserts a number; returns whether it is new.
    pub fn insert(&mut self, ino: Ino) -> bool {
        let (page, word, bit) = place(ino);
        let page = self
            .pages
            .entry(page)
            .or_insert_with(|| Box::new([0; WORDS]));
        let is_new = page[word] & bit == 0;
        page[word] |= bit;
        is_new
    }
    pub fn contains(&self, ino: Ino) -> bool {
        let (page, word, bit) = place(ino);
        self.pages
            .get(&page)
            .is_some_and(|page| page[word] & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_it_that_were_put_in_and_no_others() {
        let mut numbers = Numbers::default();
        let all = [
            0,
            1,
            63,
            64,
            32_767,
            32_768,
            1 << 48,
            (1 << 48) + 1,
            u64::MAX,
        ];
        for n in all {
            assert!(numbers.insert(Ino(n)) && !numbers.insert(Ino(n)), "{n}");
        }
        for n in all {
            assert!(numbers.contains(Ino(n)));
        }
        for n in [2, 62, 65, 32_766, 32_769, (1 << 48) - 1, u64::MAX - 1] {
            assert!(!numbers.contains(Ino(n)), "{n}");
        }
    }
}
