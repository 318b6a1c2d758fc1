//! What was answered and is lost: an error for who synchronizes the file next, and one for who synchronizes all
//! files next.
//!
//! ```text
//!  not written, not taken by the server, evicted ─▶ noted ─▶ fsync: once for each file
//!                                                        └─▶ sync: once for all of them
//! ```
//! A `sync` of another program says nothing to the one whose file it was: that one would be told that all is well.
//! (Found by the simulator with a full cluster: other data was read than written, and `fsync` gave no error.)
//!
//! A file need not be open: its next opener is told.

use crate::mutants::{Mutant, mutant};
use nacre_types::Ino;
use std::collections::BTreeMap;

/// `EIO`.
const EIO: u16 = 5;

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Which error, and whether it is one of writing the file while it is open: who closes it is told as well.
    of: BTreeMap<Ino, (u16, bool)>,
    any: Option<u16>,
}

impl Losses {
    /// Some of a file could not be written, or the server did not take what it was to become.
    pub fn failed(&mut self, ino: Ino, errno: u16) {
        self.of.insert(ino, (errno, true));
        self.any = Some(errno);
    }
    /// What was done to it may have happened or not: this client came too late.
    pub fn lost(&mut self, ino: Ino) {
        self.of.entry(ino).or_insert((EIO, false));
        self.any = Some(EIO);
    }
    /// It is open no more: who closes it later has nothing to do with that.
    pub fn closed(&mut self, ino: Ino) {
        self.of.entry(ino).and_modify(|(_, writing)| *writing = false);
    }
    /// The error of writing a file, which stays.
    pub fn of_writing(&self, ino: Ino) -> Option<u16> {
        self.of.get(&ino).filter(|(_, writing)| *writing).map(|(errno, _)| *errno)
    }
    /// The error of a file, or of any since this was asked last: told once.
    pub fn take(&mut self, ino: Option<Ino>) -> Option<u16> {
        match ino {
            Some(ino) => self.of.remove(&ino).map(|(errno, _)| errno),
            None => {
                if mutant(Mutant::LossesTaken) {
                    self.of.clear();
                }
                self.any.take()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_and_all_of_them_are_told_once() {
        let (one, other) = (Ino(1), Ino(2));
        let mut losses = Losses::default();
        losses.failed(one, 28);
        losses.lost(one);
        losses.lost(other);
        assert_eq!((losses.of_writing(one), losses.of_writing(other)), (Some(28), None));
        losses.closed(one);
        assert_eq!(losses.of_writing(one), None);
        assert_eq!((losses.take(None), losses.take(None)), (Some(EIO), None), "the last one");
        assert_eq!((losses.take(Some(one)), losses.take(Some(one))), (Some(28), None), "who wrote it is told, too");
        assert_eq!(losses.take(Some(other)), Some(EIO));
    }
}
