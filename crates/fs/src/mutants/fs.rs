//! Planted bugs of clients.

use super::{Ask, CopyingObjects, Fs, FsStale, Ino, Output, Range};
use crate::mutants::{Mutant, active, mutant};

pub(super) fn forget_name(_: &mut Fs, _: &FsStale) -> Option<()> {
    mutant(Mutant::NamesKept).then_some(())
}

pub(super) fn owes(_: &Fs) -> Option<bool> {
    mutant(Mutant::LeftAtOnce).then_some(false)
}

pub(super) fn is_exclusive(_: &Fs, _: &Ino, _: &Ask) -> Option<bool> {
    mutant(Mutant::SpanningUnlocked).then_some(false)
}

pub(super) fn is_with_others(_: &mut Fs, _: &Ino, _: &mut Vec<Output>) -> Option<bool> {
    mutant(Mutant::EarlyUnwritten).then_some(true)
}

pub(super) fn drop_shared(_: &mut Fs, _: &Ino, _: &Range<u64>) -> Option<()> {
    mutant(Mutant::SynchronizedKept).then_some(())
}

pub(super) fn is_unused(fs: &mut Fs, ino: &Ino, out: &mut Vec<Output>) -> Option<bool> {
    let (reading, unwritten) = match active()? {
        Mutant::GivenBackReading => (true, false),
        Mutant::GivenBackUnwritten => (false, true),
        _ => return None,
    };
    let file = &fs.files[ino];
    let is_idle = file.first.is_empty() && file.writes == 0 && file.copies == 0;
    let is_idle = is_idle && (file.reads == 0 || reading);
    Some(is_idle && (fs.is_written(*ino, out) || unwritten))
}

pub(super) fn drop_data(_: &mut Fs, _: &Ino) -> Option<()> {
    mutant(Mutant::DataKept).then_some(())
}

pub(super) fn unwritten_of(
    fs: &mut Fs,
    from: &Ino,
    to: &Ino,
    out: &mut Vec<Output>,
) -> Option<Option<Ino>> {
    mutant(Mutant::CopiedUnwritten).then(|| {
        fs.is_written(*from, out);
        (!fs.is_written(*to, out) && to != from).then_some(*to)
    })
}

pub(super) fn is_hole(_: &CopyingObjects, _: &u64) -> Option<bool> {
    mutant(Mutant::HoleNotCopied).then_some(true)
}
