//! Advisory locks: byte ranges held by a process (`fcntl`), and whole files held by an open file
//! description (`flock`).
//!
//! A server records what each owner holds. So does the client, which reports it to the next holder
//! of the rank. Both use [`LockSpans`].

use crate::wire_record;
use nacre_types::Ino;

/// A lock, held or requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsLock {
    /// The file.
    pub ino: Ino,
    /// Identifies the owner within its client: for the kernel, a process (`fcntl`) or an open file
    /// description (`flock`).
    pub owner: u64,
    /// The process that asked, by its id on its own machine.
    pub pid: u32,
    /// Whether it is a `flock` lock; `fcntl` locks do not conflict with those.
    pub flock: bool,
    /// First byte.
    pub start: u64,
    /// Last byte; the largest number means to the end of the file, however long it grows.
    pub end: u64,
    /// Exclusive: no other owner may hold a lock there. Otherwise shared: no other owner may hold
    /// an exclusive one.
    pub exclusive: bool,
}
wire_record!(FsLock version 1 compat 1 { ino, owner, pid, flock, start, end, exclusive });

/// A lock request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsLockWait {
    /// The request that asked for it.
    pub number: u64,
    /// The lock requested.
    pub lock: FsLock,
}
wire_record!(FsLockWait version 1 compat 1 { number, lock });

/// A range of bytes locked in one mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockSpan {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// Whether it is exclusive.
    pub exclusive: bool,
    /// The process that asked last.
    pub pid: u32,
}

/// What one owner has locked of a file: sorted, without overlaps, adjacent spans of the same mode
/// merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockSpans(Vec<LockSpan>);

impl LockSpans {
    /// Locks (`Some`: exclusive or not, and the process) or unlocks a range, replacing what was
    /// there.
    pub fn set(&mut self, (start, end): (u64, u64), to: Option<(bool, u32)>) {
        if start > end {
            return;
        }
        // The overlapping spans, and a neighbour on each side that may be merged.
        let from = self
            .0
            .partition_point(|span| span.end < start.saturating_sub(1));
        let to_index = self
            .0
            .partition_point(|span| span.start <= end.saturating_add(1));
        let mut new = to.map(|(exclusive, pid)| LockSpan {
            start,
            end,
            exclusive,
            pid,
        });
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for old in self.0[from..to_index].iter().copied() {
            if let Some(new) = &mut new
                && new.exclusive == old.exclusive
            {
                new.start = new.start.min(old.start);
                new.end = new.end.max(old.end);
                continue;
            }
            if old.start < start {
                before.push(LockSpan {
                    end: old.end.min(start - 1),
                    ..old
                });
            }
            if old.end > end {
                after.push(LockSpan {
                    start: old.start.max(end + 1),
                    ..old
                });
            }
        }
        self.0
            .splice(from..to_index, before.into_iter().chain(new).chain(after));
    }
    /// The first span that conflicts with another owner's lock of these bytes.
    #[must_use]
    pub fn conflict(&self, (start, end): (u64, u64), exclusive: bool) -> Option<&LockSpan> {
        let from = self.0.partition_point(|span| span.end < start);
        let overlapping = self.0[from..].iter().take_while(|span| span.start <= end);
        overlapping
            .into_iter()
            .find(|span| exclusive || span.exclusive)
    }
    /// The locked spans, in order.
    pub fn iter(&self) -> impl Iterator<Item = &LockSpan> {
        self.0.iter()
    }
    /// Number of spans.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether nothing is locked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u64 = 9;

    fn bytes(spans: &LockSpans) -> Vec<Option<bool>> {
        let at = |at| {
            spans
                .iter()
                .find(|span| span.start <= at && at <= span.end)
                .map(|span| span.exclusive)
        };
        (0..=END).map(at).collect()
    }

    /// All ranges after all pairs of others: the result equals a byte-by-byte model, and adjacent
    /// spans of one mode are merged.
    #[test]
    fn setting_is_as_byte_by_byte_and_spans_stay_sorted_and_joined() {
        let ranges: Vec<(u64, u64)> = (0..=END)
            .flat_map(|start| (start..=END).map(move |end| (start, end)))
            .collect();
        let ways = [None, Some((false, 1)), Some((true, 2))];
        for first in &ranges {
            for second in &ranges {
                for (third, way) in ranges
                    .iter()
                    .step_by(7)
                    .flat_map(|range| ways.map(|way| (range, way)))
                {
                    let mut spans = LockSpans::default();
                    let mut model = vec![None; bytes(&spans).len()];
                    for (range, way) in [
                        (first, Some((false, 1))),
                        (second, Some((true, 1))),
                        (third, way),
                    ] {
                        spans.set(*range, way);
                        for at in range.0..=range.1 {
                            model[usize::try_from(at).expect("small")] =
                                way.map(|(exclusive, _)| exclusive);
                        }
                    }
                    assert_eq!(
                        bytes(&spans),
                        model,
                        "{first:?} {second:?} {third:?} {way:?}"
                    );
                    let all: Vec<_> = spans.iter().collect();
                    for pair in all.windows(2) {
                        let (left, right) = (pair[0], pair[1]);
                        assert!(left.start <= left.end && left.end < right.start, "{all:?}");
                        assert!(
                            left.end + 1 < right.start || left.exclusive != right.exclusive,
                            "{all:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_last_byte_of_all_can_be_locked_and_unlocked() {
        let mut spans = LockSpans::default();
        spans.set((0, u64::MAX), Some((true, 1)));
        spans.set((u64::MAX, u64::MAX), None);
        spans.set((0, 0), None);
        assert_eq!(
            spans
                .iter()
                .map(|span| (span.start, span.end))
                .collect::<Vec<_>>(),
            [(1, u64::MAX - 1)]
        );
        spans.set((0, u64::MAX), None);
        assert!(spans.is_empty());
    }
}
