//! Dirty data being written to objects.
//!
//! ```text
//!  take_dirty ─▶ run in flight ─┬─ written ─▶ clean   ┐ where it was not overwritten, truncated
//!                               └─ failed ──▶ dropped ┘ or dropped since
//! ```

use super::slice::Slice;
use super::{Cache, indexes, within};
use bytes::Bytes;
use nacre_types::Ino;
use std::ops::Range;

/// Identifies data that is being written to objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunId(pub(super) u64);

/// Adjacent bytes to write to objects. Each run has to be ended by [`Cache::written`] or
/// [`Cache::failed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub id: RunId,
    pub offset: u64,
    pub length: u64,
    pub parts: Vec<Bytes>,
}

/// A run that is in flight.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub range: Range<u64>,
    /// Some of it was truncated or dropped. Objects may still get it, so reads of that range may
    /// return outdated data meanwhile.
    pub cut: bool,
}

impl<const BLOCK: usize> Cache<BLOCK> {
    /// Takes dirty data of a file for writing, in order of offset: at most `bytes_max`, but at
    /// least one segment (at most a block) if there is one. Until their run ends, these bytes are
    /// cached and not evicted. Overwritten bytes are dirty again, and are not taken before that run
    /// has ended: if there is dirty data and no run is returned, the caller waits for one.
    pub fn take_dirty(&mut self, ino: Ino, range: Range<u64>, bytes_max: usize) -> Vec<Run> {
        let mut runs = Vec::<Run>::new();
        let Some(file) = self.files.get(&ino).filter(|_| !range.is_empty()) else {
            return runs;
        };
        let in_flight: Vec<_> = file
            .flights
            .values()
            .map(|flight| flight.range.clone())
            .collect();
        let (mut taken, mut full, mut ids, mut indexes) =
            (0, false, self.runs, indexes::<BLOCK>(&range));
        while let Some(index) = self.files[&ino]
            .dirty_blocks
            .range(indexes)
            .next()
            .copied()
            .filter(|_| !full)
        {
            let base = index * BLOCK as u64;
            let take = |at: usize, data: &Slice| {
                let (start, length) = (base + at as u64, data.len() as u64);
                full |= taken > 0 && taken + data.len() > bytes_max;
                if full
                    || in_flight
                        .iter()
                        .any(|run| run.start < start + length && start < run.end)
                {
                    return None;
                }
                taken += data.len();
                match runs
                    .last_mut()
                    .filter(|run| run.offset + run.length == start)
                {
                    Some(run) => {
                        run.length += length;
                        run.parts.push(data.clone().into_bytes());
                    }
                    None => {
                        ids += 1;
                        runs.push(Run {
                            id: RunId(ids),
                            offset: start,
                            length,
                            parts: vec![data.clone().into_bytes()],
                        });
                    }
                }
                Some(RunId(ids))
            };
            self.edit(ino, index, |block| {
                block.take(within::<BLOCK>(index, &range), take)
            });
            indexes = index + 1..=(range.end - 1) / BLOCK as u64;
            if indexes.is_empty() {
                break;
            }
        }
        self.runs = ids;
        let flights = runs.iter().map(|run| {
            (
                run.id,
                Flight {
                    range: run.offset..run.offset + run.length,
                    cut: false,
                },
            )
        });
        self.file(ino).flights.extend(flights);
        self.settle(ino);
        runs
    }
    /// A run is in objects: its data is clean, where it was not overwritten.
    pub fn written(&mut self, ino: Ino, run: RunId) {
        self.end_run(ino, run, self.bytes_max > 0);
    }
    /// A run could not be written: its data is dropped, where it was not overwritten.
    pub fn failed(&mut self, ino: Ino, run: RunId) {
        self.end_run(ino, run, false);
    }
    fn end_run(&mut self, ino: Ino, run: RunId, known: bool) {
        let Some(Flight { range, cut }) = self.file(ino).flights.remove(&run) else {
            return self.tidy(ino);
        };
        let now = self.next();
        for index in self.known(ino, indexes::<BLOCK>(&range)) {
            self.edit(ino, index, |block| {
                if cut {
                    block.drop_clean(within::<BLOCK>(index, &range));
                }
                block.end_run(run, known.then_some(now));
            });
        }
        if cut || !known {
            self.lose(ino);
        }
        self.settle(ino);
    }
}
