//! Answered changes that are lost: reported as an error to the next caller that synchronizes the
//! file, and to the next one that synchronizes all files.
//!
//! ```text
//!  not written, refused by the server, evicted ─▶ recorded ─▶ fsync: once for each file
//!                                                          └─▶ sync: once for all of them
//! ```
//! What the file's `close` or `fsync` has reported, `sync` does not report again: otherwise an
//! unmount would fail much later because of it (found by chaos with a full disk). But a `sync` by
//! another program does not replace the report to the file's own program, which would otherwise be
//! told that all is well. (Found by the simulator with a full cluster: reads differed from what was
//! written, and `fsync` gave no error.)
//!
//! A file need not be open: its next opener is told.

use crate::fs::errno::EIO;
use nacre_types::Ino;
use std::collections::BTreeMap;

#[cfg(feature = "mutants")]
#[path = "mutants/losses.rs"]
mod planted;

#[derive(Debug)]
struct Loss {
    errno: u16,
    /// A failed write of an open file: the caller that closes it is told as well.
    writing: bool,
    /// The caller that closed it, or one that synchronizes all files, has been told.
    told: bool,
}

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Losses(BTreeMap<Ino, Loss>);

impl Losses {
    /// Some of a file could not be written, or the server refused its future state.
    pub fn failed(&mut self, ino: Ino, errno: u16) {
        self.0.insert(
            ino,
            Loss {
                errno,
                writing: true,
                told: false,
            },
        );
    }
    /// Its changes may have been executed or not: this client was evicted.
    pub fn lost(&mut self, ino: Ino) {
        self.0
            .entry(ino)
            .or_insert(Loss {
                errno: EIO,
                writing: false,
                told: false,
            })
            .told = false;
    }
    /// It is no longer open: later closes have nothing to do with the error.
    pub fn closed(&mut self, ino: Ino) {
        self.0.entry(ino).and_modify(|loss| loss.writing = false);
    }
    /// The error of a failed write, which is kept.
    pub fn of_writing(&self, ino: Ino) -> Option<u16> {
        self.0
            .get(&ino)
            .filter(|loss| loss.writing)
            .map(|loss| loss.errno)
    }
    /// The same for a caller that closes the file: synchronizing all files then reports nothing
    /// more.
    pub fn tell_closer(&mut self, ino: Ino) -> Option<u16> {
        let loss = self.0.get_mut(&ino).filter(|loss| loss.writing)?;
        loss.told = true;
        Some(loss.errno)
    }
    /// The error of a file, or of any whose own was not reported yet: returned once.
    pub fn take(&mut self, ino: Option<Ino>) -> Option<u16> {
        let Some(ino) = ino else {
            let new = self
                .0
                .values()
                .rfind(|loss| !loss.told)
                .map(|loss| loss.errno);
            self.note_told();
            return new;
        };
        self.0.remove(&ino).map(|loss| loss.errno)
    }
    /// A file's own error stays until its own caller has been told.
    #[nacre_types::planted]
    fn note_told(&mut self) {
        self.0.values_mut().for_each(|loss| loss.told = true);
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
        assert_eq!(
            (losses.of_writing(one), losses.of_writing(other)),
            (Some(28), None)
        );
        losses.closed(one);
        assert_eq!(losses.of_writing(one), None);
        assert_eq!(
            (losses.take(None), losses.take(None)),
            (Some(EIO), None),
            "one of them"
        );
        assert_eq!(
            (losses.take(Some(one)), losses.take(Some(one))),
            (Some(28), None),
            "who wrote it is told, too"
        );
        assert_eq!(losses.take(Some(other)), Some(EIO));
        losses.failed(one, 28);
        assert_eq!(
            (losses.take(Some(one)), losses.take(None)),
            (Some(28), None),
            "an unmount later has no error"
        );
        losses.failed(one, 28);
        assert_eq!(
            (losses.tell_closer(one), losses.take(None)),
            (Some(28), None),
            "nor after a close"
        );
        assert_eq!(
            losses.take(Some(one)),
            Some(28),
            "fsync tells it in any case"
        );
    }
}
