//! A placement group's log of updates (CEPH-51).
//!
//! ```text
//!        tail                                    head
//!         │ 4'7   4'9   4'10 │ 6'11   6'12        │        numbers grow; a split leaves gaps
//! spans:  4'6 ………………… 4'10    ……………… 6'12
//! ```
//! Two logs of one PG agree on everything up to some entry and on nothing after it: a version names
//! one update by one primary, which put it after one predecessor. So the last version of each
//! interval is enough to find where they diverge ([`common`]).
//!
//! Entries are kept as bytes, one behind the other ([`ByteQueue`]): a log's entries are not needed
//! while nothing fails.
//!
//! Invariants ([`PgLog::check`]): `tail < first entry < … < last entry ≤ head`; numbers grow with
//! versions.

use nacre_types::{ByteQueue, ObjectId, Version};
use nacre_wire::msg::replication::{PgInfo, Totals};
use nacre_wire::{Record, RecordView};

/// The log, oldest first. `head` may be later than the last entry: after a split the other half has
/// the entry at `head`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PgLog {
    tail: Version,
    head: Version,
    entries: ByteQueue,
    /// Approximate size of the entries.
    bytes: usize,
}

/// The approximate size of an entry, in memory and in a message.
#[must_use]
pub fn entry_bytes(entry: RecordView<'_>) -> usize {
    64 + entry.as_bytes().len()
}

impl PgLog {
    /// Restores a stored log.
    ///
    /// # Panics
    /// When it violates the invariants: the caller has verified it.
    #[must_use]
    pub fn restore(tail: Version, head: Version, entries: &[Record]) -> Self {
        let head = entries
            .last()
            .map_or(head, |last| head.max(last.version()))
            .max(tail);
        let mut log = Self {
            tail,
            head,
            ..Self::default()
        };
        for entry in entries {
            log.push(entry);
        }
        log.check();
        log
    }

    /// The version before the first entry.
    #[must_use]
    pub const fn tail(&self) -> Version {
        self.tail
    }
    /// The version of the last entry, or the log's position when it was split.
    #[must_use]
    pub const fn head(&self) -> Version {
        self.head
    }
    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
    /// The entries, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = RecordView<'_>> + ExactSizeIterator {
        self.entries.iter().map(RecordView::of)
    }
    /// The entry at an index, the oldest first.
    #[must_use]
    pub fn entry(&self, index: usize) -> Option<RecordView<'_>> {
        self.entries.get(index).map(RecordView::of)
    }
    /// The newest entry.
    #[must_use]
    pub fn newest(&self) -> Option<RecordView<'_>> {
        self.entries.back().map(RecordView::of)
    }

    /// The approximate size of the entries, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The newest entry that must be trimmed for the rest to take at most `bytes`.
    #[must_use]
    pub fn beyond(&self, bytes: usize) -> Version {
        let (mut left, mut last) = (self.bytes, self.tail);
        for entry in self.entries() {
            if left <= bytes {
                break;
            }
            left -= entry_bytes(entry);
            last = entry.version();
        }
        last
    }

    /// The last version of each interval in the log, ascending, tail and head included.
    #[must_use]
    pub fn spans(&self) -> Vec<Version> {
        let mut spans: Vec<Version> = Vec::new();
        let all = std::iter::once(self.tail)
            .chain(self.entries().map(|entry| entry.version()))
            .chain([self.head]);
        for version in all {
            match spans.last_mut() {
                Some(last) if last.interval == version.interval => *last = version,
                _ => spans.push(version),
            }
        }
        spans
    }

    /// Appends an update.
    pub fn append(&mut self, entry: &Record) {
        assert!(
            entry.version() > self.head && entry.version().number > self.head.number,
            "the log only grows"
        );
        self.head = entry.version();
        self.push(entry);
    }
    fn push(&mut self, entry: &Record) {
        self.bytes += entry_bytes(entry.view());
        self.entries.push_back(&[entry.as_bytes()]);
    }
    /// The number of entries up to `version`.
    fn up_to(&self, version: Version) -> usize {
        self.entries
            .partition_point(|entry| RecordView::of(entry).version() <= version)
    }

    /// The newest entry about an object. Scans all entries if there is none: for rare use.
    #[must_use]
    pub fn last_of(&self, object: &ObjectId) -> Option<RecordView<'_>> {
        self.entries().rev().find(|entry| entry.is_about(object))
    }

    /// The entries after a version, oldest first.
    pub fn after(&self, version: Version) -> impl Iterator<Item = RecordView<'_>> {
        self.entries.range(self.up_to(version)).map(RecordView::of)
    }

    /// Removes everything after `common` and returns it, oldest first.
    pub fn rewind(&mut self, common: Version) -> Vec<Record> {
        let cut: Vec<Record> = self.after(common).map(RecordView::to_record).collect();
        self.entries.truncate(self.up_to(common));
        self.bytes -= sizes(&cut);
        self.head = common.max(self.tail);
        cut
    }

    /// Moves the head to that of the authoritative log.
    pub fn advance_head(&mut self, head: Version) {
        assert!(head >= self.head, "a head only advances here");
        self.head = head;
    }

    /// The entries that [`Self::trim`] would remove, oldest first.
    pub fn trimmed_by(&self, version: Version) -> impl ExactSizeIterator<Item = RecordView<'_>> {
        self.entries().take(self.up_to(version))
    }

    /// Trims everything up to `version`.
    pub fn trim(&mut self, version: Version) {
        let count = self.up_to(version);
        let last = count.checked_sub(1).and_then(|last| self.entry(last));
        let Some(tail) = last.map(|last| last.version()) else {
            return;
        };
        self.bytes -= self.entries().take(count).map(entry_bytes).sum::<usize>();
        self.entries.remove_front(count);
        self.tail = tail;
    }

    /// Extends the log backwards with entries that were trimmed here but not elsewhere: those
    /// before our first entry.
    ///
    /// # Panics
    /// When the entries do not precede ours.
    pub fn reach_back(&mut self, tail: Version, entries: Vec<Record>) {
        assert!(
            tail <= self.tail && entries.iter().all(|entry| entry.version() <= self.tail),
            "older than the log"
        );
        self.tail = tail;
        for entry in entries.into_iter().rev() {
            self.bytes += entry_bytes(entry.view());
            self.entries.push_front(entry.as_bytes());
        }
        self.check();
    }

    /// Clears the log and starts at `at`.
    pub fn restart(&mut self, at: Version) {
        *self = Self {
            tail: at,
            head: at,
            ..Self::default()
        };
    }

    /// Takes out the entries of another PG that splits off; both logs keep their positions.
    pub fn split(&mut self, mut leaves: impl FnMut(&Record) -> bool) -> Self {
        let all: Vec<Record> = self.entries().map(RecordView::to_record).collect();
        let (tail, head) = (self.tail, self.head);
        let empty = || Self {
            tail,
            head,
            ..Self::default()
        };
        let (mut kept, mut gone) = (empty(), empty());
        for entry in &all {
            if leaves(entry) { &mut gone } else { &mut kept }.push(entry);
        }
        *self = kept;
        gone
    }

    /// Sets the totals of every entry: after a split they are still those of the parent.
    pub fn set_totals(&mut self, totals: Totals) {
        for index in 0..self.entries.len() {
            let entry = self.entries.get_mut(index).expect("there are so many");
            RecordView::set_totals(entry, totals);
        }
    }

    /// Asserts the invariants of the module head.
    pub fn check(&self) {
        let mut last = self.tail;
        for entry in self.entries() {
            assert!(
                last < entry.version() && last.number < entry.version().number,
                "log out of order at {}",
                entry.version()
            );
            last = entry.version();
        }
        let bytes: usize = self.entries().map(entry_bytes).sum();
        assert_eq!(self.bytes, bytes, "the log's bytes were miscounted");
        assert!(
            last <= self.head,
            "the head {} lies before the last entry {last}",
            self.head
        );
        self.check_newest();
    }

    /// The prior version of the newest entry on an object equals the version of the previous entry
    /// on that object, as far as the log goes: undoing it starts from there.
    fn check_newest(&self) {
        let mut entries = self.entries().rev();
        let Some(newest) = entries.next().map(RecordView::to_record) else {
            return;
        };
        let Some(before) = entries.find(|entry| entry.is_about(newest.object())) else {
            return;
        };
        let there = if before.deleted() {
            Version::NONE
        } else {
            before.version()
        };
        assert_eq!(
            newest.prior(),
            there,
            "{} of {} names another version before it",
            newest.version(),
            newest.object()
        );
    }
}

/// The approximate size of entries.
pub(super) fn sizes(entries: &[Record]) -> usize {
    entries.iter().map(|entry| entry_bytes(entry.view())).sum()
}

/// The last position that two logs share, from their spans. [`Version::NONE`] if they share only
/// the beginning.
#[must_use]
pub fn common(a: &[Version], b: &[Version]) -> Version {
    for x in a.iter().rev() {
        if let Some(y) = b.iter().find(|y| y.interval == x.interval) {
            return if x.number <= y.number { *x } else { *y };
        }
    }
    Version::NONE
}

/// The position from which a member can follow a log with these spans and this tail: the last one
/// that both share, if neither log has been trimmed beyond it. A member that has nothing follows
/// from the beginning, if the log is the whole history.
#[must_use]
pub fn follows_from(info: &PgInfo, spans: &[Version], tail: Version) -> Option<Version> {
    let shared = common(&info.spans, spans);
    (shared >= tail && shared >= info.tail && (info.exists || tail == Version::NONE))
        .then_some(shared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg::testing::{entry, v};

    fn log(versions: &[Version]) -> PgLog {
        let mut log = PgLog::default();
        for version in versions {
            log.append(&entry("x", Version::NONE, *version));
        }
        log
    }

    #[test]
    fn logs_part_after_the_last_version_they_share() {
        let a = log(&[v(3, 1), v(3, 2), v(3, 3), v(5, 4)]);
        for (b, expected) in [
            (log(&[v(3, 1), v(3, 2)]), v(3, 2)),
            (log(&[v(3, 1), v(3, 2), v(3, 3), v(4, 4), v(4, 5)]), v(3, 3)),
            (log(&[v(3, 1), v(3, 2), v(3, 3), v(5, 4), v(5, 5)]), v(5, 4)),
            (log(&[]), v(0, 0)),
        ] {
            assert_eq!(common(&a.spans(), &b.spans()), expected);
            assert_eq!(common(&b.spans(), &a.spans()), expected);
        }
    }

    #[test]
    fn rewinding_gives_back_what_diverged() {
        let mut a = log(&[v(3, 1), v(4, 2), v(4, 3)]);
        let cut = a.rewind(v(3, 1));
        assert_eq!(
            cut.iter().map(|e| e.version()).collect::<Vec<_>>(),
            [v(4, 2), v(4, 3)]
        );
        assert_eq!(a.head(), v(3, 1));
        a.append(&entry("x", v(3, 1), v(5, 2)));
        a.check();
    }

    #[test]
    fn trimming_moves_the_tail_to_the_last_forgotten_entry() {
        let mut a = log(&[v(3, 1), v(3, 2), v(5, 3)]);
        assert_eq!(a.trimmed_by(v(3, 2)).count(), 2);
        a.trim(v(3, 2));
        assert_eq!(
            (a.tail(), a.head(), a.spans()),
            (v(3, 2), v(5, 3), vec![v(3, 2), v(5, 3)])
        );
    }
}
