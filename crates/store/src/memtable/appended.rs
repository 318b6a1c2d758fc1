//! Entries of one omap that arrived in key order, as a log's do.
//!
//! An entry is copied behind the one before it ([`ByteQueue`]), and nothing else is kept of it: the
//! entries of the PGs' logs are most of what a memtable is given, and nearly all are removed again,
//! oldest first, before a checkpoint looks at them.
//!
//! ```text
//!  state u8 │ length of the key u32 │ key in the omap │ value
//! ```
//! Invariant: keys ascend. An entry that was replaced, or removed from between others, stays as
//! *gone*: what replaced it is in the tree.

use nacre_types::ByteQueue;

const HERE: u8 = 0;
const GONE: u8 = 1;
/// Bytes before the key.
const HEAD: usize = 5;

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Appended {
    all: ByteQueue,
    gone: usize,
}

/// An entry's key and value; `None` if it is gone.
type Entry<'a> = (&'a [u8], Option<&'a [u8]>);

fn entry(bytes: &[u8]) -> Entry<'_> {
    let length = u32::from_le_bytes(bytes[1..HEAD].try_into().expect("four bytes"));
    let (key, value) = bytes[HEAD..].split_at(length as usize);
    (key, (bytes[0] == HERE).then_some(value))
}

/// A position among the keys of the omap.
#[derive(Clone, Copy)]
pub(super) enum Edge<'a> {
    Before,
    At(&'a [u8]),
    Behind,
}

impl<'a> Edge<'a> {
    /// That of a key of the index, where the keys of the omap begin with `prefix`.
    pub(super) fn of(key: &'a [u8], prefix: &[u8]) -> Self {
        match key.strip_prefix(prefix) {
            Some(key) => Self::At(key),
            None if key < prefix => Self::Before,
            None => Self::Behind,
        }
    }
    fn is_behind(self, key: &[u8]) -> bool {
        match self {
            Self::Before => false,
            Self::At(edge) => key < edge,
            Self::Behind => true,
        }
    }
}

impl Appended {
    /// The number of entries that are not gone.
    pub(super) fn len(&self) -> usize {
        self.all.len() - self.gone
    }

    /// Appends an entry; `false` if its key is not behind all others.
    pub(super) fn append(&mut self, key: &[u8], value: &[u8]) -> bool {
        // Nearly all are, and looking for their place would wait for the memory of a dozen others.
        if self.all.back().is_some_and(|last| entry(last).0 >= key) {
            return false;
        }
        let length = u32::try_from(key.len()).expect("keys are short");
        self.all
            .push_back(&[&[HERE], &length.to_le_bytes(), key, value]);
        true
    }

    /// The index of the first entry that is not before the edge.
    fn index(&self, edge: Edge<'_>) -> usize {
        // A log is trimmed at its beginning.
        match self.all.front() {
            Some(first) if edge.is_behind(entry(first).0) => self
                .all
                .partition_point(|bytes| edge.is_behind(entry(bytes).0)),
            _ => 0,
        }
    }
    /// The index and the value of an entry that is not gone.
    fn find(&self, key: &[u8]) -> Option<(usize, &[u8])> {
        let at = self.index(Edge::At(key));
        let (known, value) = self.all.get(at).map(entry)?;
        value.filter(|_| known == key).map(|value| (at, value))
    }

    /// The value of an entry that is not gone.
    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.find(key).map(|(_, value)| value)
    }

    /// Lets an entry be gone; returns the bytes of its key and value, if there is one.
    pub(super) fn take(&mut self, key: &[u8]) -> Option<usize> {
        let (at, _) = self.find(key)?;
        Some(self.let_go(at))
    }
    /// Returns the bytes of an entry that was not gone.
    fn let_go(&mut self, at: usize) -> usize {
        let bytes = self.all.get_mut(at).expect("it was found there");
        bytes[0] = GONE;
        self.gone += 1;
        bytes.len() - HEAD
    }

    /// Removes the entries between two edges. Returns their number, and the bytes of their keys and
    /// values.
    pub(super) fn remove(&mut self, from: Edge<'_>, to: Edge<'_>) -> (usize, usize) {
        let (first, end) = (self.index(from), self.index(to));
        let (mut count, mut size) = (0, 0);
        for at in first..end {
            // Without any that is gone, an entry's length says all, and its memory is left alone.
            if self.gone > 0 && self.is_gone(at) {
                continue;
            }
            count += 1;
            size += if first == 0 {
                self.all.length(at) - HEAD
            } else {
                self.let_go(at)
            };
        }
        if first == 0 {
            self.all.remove_front(end);
            self.gone -= end - count;
        }
        (count, size)
    }
    fn is_gone(&self, at: usize) -> bool {
        self.all.get(at).is_some_and(|bytes| bytes[0] == GONE)
    }

    /// Keys and values between two edges, in order.
    pub(super) fn range<'a>(
        &'a self,
        from: Edge<'_>,
        to: Edge<'_>,
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let (first, end) = (self.index(from), self.index(to));
        let within = self.all.range(first).take(end.saturating_sub(first));
        within
            .map(entry)
            .filter_map(|(key, value)| Some((key, value?)))
    }
}
