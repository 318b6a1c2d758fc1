//! Advisory locks: byte ranges of a process (`fcntl`), and whole files of an open file description
//! (`flock`).
//!
//! A server keeps what each owner holds, and so does the client, which names it to the next holder
//! of the rank: both with [`LockSpans`].

use crate::wire_record;
use nacre_types::Ino;

/// A lock, held or wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsLock {
    /// Of which file.
    pub ino: Ino,
    /// Names the owner within its client: for the kernel a process (`fcntl`) or an open file
    /// description (`flock`).
    pub owner: u64,
    /// The process that asked, as its machine knows it.
    pub pid: u32,
    /// It is of `flock`; those of `fcntl` do not see it.
    pub flock: bool,
    /// First byte.
    pub start: u64,
    /// Last byte; the largest number: to the end, wherever that is.
    pub end: u64,
    /// No other owner may have a lock there; else none that is exclusive.
    pub exclusive: bool,
}
wire_record!(FsLock version 1 compat 1 { ino, owner, pid, flock, start, end, exclusive });

/// A lock that a client was told to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsLockWait {
    /// The request that asked for it.
    pub number: u64,
    /// What it asked for.
    pub lock: FsLock,
}
wire_record!(FsLockWait version 1 compat 1 { number, lock });

/// Bytes that are locked in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockSpan {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// In which way.
    pub exclusive: bool,
    /// Who asked last.
    pub pid: u32,
}

/// What one owner has locked of a file: sorted, without overlaps, neighbours of the same way
/// joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockSpans(Vec<LockSpan>);

impl LockSpans {
    /// Locks bytes (`Some`: exclusive or not, and for whom) or unlocks them; what was there before
    /// is replaced.
    pub fn set(&mut self, (start, end): (u64, u64), to: Option<(bool, u32)>) {
        if start > end {
            return;
        }
        // Those that overlap, and a neighbour on each side that may be joined.
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
    /// The first that another owner's lock of these bytes cannot be beside.
    #[must_use]
    pub fn conflict(&self, (start, end): (u64, u64), exclusive: bool) -> Option<&LockSpan> {
        let from = self.0.partition_point(|span| span.end < start);
        let overlapping = self.0[from..].iter().take_while(|span| span.start <= end);
        overlapping
            .into_iter()
            .find(|span| exclusive || span.exclusive)
    }
    /// What is locked, in order.
    pub fn iter(&self) -> impl Iterator<Item = &LockSpan> {
        self.0.iter()
    }
    /// Spans.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Nothing is locked.
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

    /// All ranges after all pairs of others: by bytes it is the same, and no neighbours of one way
    /// stay apart.
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
