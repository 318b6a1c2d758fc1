//! A planted function is as it was, and with the feature `mutants` as its bug has it.
#![allow(missing_docs, reason = "tests")]

use nacre_planted::planted;
use std::collections::BTreeMap;

#[cfg(feature = "mutants")]
mod planted {
    use super::Shelf;
    use std::collections::BTreeMap;

    pub fn place(shelf: &Shelf, book: &u32, others: &BTreeMap<u32, u32>) -> Option<u32> {
        (*book == 13).then_some(shelf.width + others.len() as u32)
    }
    pub fn put(shelf: &mut Shelf, book: &u32, said: &mut Vec<u32>) -> Option<()> {
        said.push(*book);
        (*book > shelf.width).then_some(())
    }
    pub fn sold(shelf: &mut Shelf, book: &u32) -> Option<u32> {
        shelf.width += 1;
        (*book == 13).then_some(shelf.width)
    }
    pub fn twice(number: &u32) -> Option<u32> {
        (*number == 13).then_some(13)
    }
}

struct Shelf {
    width: u32,
}

impl Shelf {
    /// Where a book is.
    #[planted]
    fn place(&self, book: u32, others: &BTreeMap<u32, u32>) -> u32 {
        book % self.width + others.len() as u32
    }
    #[planted]
    fn put(&mut self, book: u32, said: &mut Vec<u32>) {
        said.push(book);
        self.width += 1;
    }
    #[planted]
    fn sold(mut self, book: u32) -> u32 {
        self.width += book;
        self.width
    }
}

#[planted]
fn twice(number: u32) -> u32 {
    number * 2
}

#[test]
fn a_planted_function_is_spoiled_only_with_the_feature() {
    let spoiled = cfg!(feature = "mutants");
    let (mut shelf, others, mut said) = (Shelf { width: 10 }, BTreeMap::new(), Vec::new());
    assert_eq!(shelf.place(12, &others), 2);
    assert_eq!(shelf.place(13, &others), if spoiled { 10 } else { 3 });
    assert_eq!(twice(4), 8);
    assert_eq!(twice(13), if spoiled { 13 } else { 26 });
    shelf.put(11, &mut said);
    assert_eq!(said, [11]);
    assert_eq!(shelf.width, if spoiled { 10 } else { 11 });
    assert_eq!(shelf.sold(13), if spoiled { 11 } else { 24 });
}
