//! Data read from an object for one operation, as it was before the operation.
//!
//! An evaluation never waits. If it needs something that is not here yet, it records the want
//! ([`Want`]) and stops; after the read it starts again from its beginning. So a class method is
//! plain code, in Lua or Rust, and an operation is never half executed. After a few reads, each
//! further one fetches a larger piece: a method that walks through a whole object or omap is
//! restarted a dozen times, not once per key.
//!
//! Invariant: everything here comes from one state of the object, because updates that read block
//! the object until they are evaluated (`osd/src/pg/object.rs`), and reads delay updates.

use bytes::Bytes;
use nacre_store::{ObjectKey, Read, ReadReply};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Limit on the rounds of reading for one operation. Because pieces grow, even the largest object
/// takes fewer.
pub const ROUNDS_MAX: u32 = 48;
/// Limit on the bytes read for one operation.
pub const FETCHED_BYTES_MAX: u64 = 64 << 20;
/// Most entries of one page.
const PAGE_ENTRIES_MAX: usize = 10_000;
/// Most bytes of one page.
pub(crate) const PAGE_BYTES_MAX: usize = 4 << 20;
/// Most keys whose values are read in one round.
pub(crate) const KEYS_AT_ONCE: usize = 512;

/// Something to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// A range of data.
    Data {
        /// First byte.
        offset: u64,
        /// Length in bytes; the range may extend beyond the object's end.
        length: u64,
    },
    /// Values of these omap keys.
    Keys(Vec<Bytes>),
    /// Omap entries in order.
    Page {
        /// After this key; `None` starts at the first.
        after: Option<Bytes>,
        /// Number of entries.
        entries: usize,
    },
    /// The space that a clone of this object takes in the store: of the operation's own object, or
    /// of one of its clones.
    Clone(ObjectKey),
}

impl Want {
    /// The corresponding request to the store.
    #[must_use]
    pub fn read(&self, object: ObjectKey) -> Read {
        match self {
            Self::Data { offset, length } => Read::Data {
                object,
                offset: *offset,
                length: *length,
            },
            Self::Clone(of) => Read::Weight(of.clone()),
            Self::Keys(keys) => Read::OmapGet {
                object,
                keys: keys.clone(),
            },
            Self::Page { after, entries } => Read::Omap {
                object,
                from: after.clone().map_or(Bound::Unbounded, Bound::Excluded),
                to: None,
                limit_entries: (*entries).clamp(1, PAGE_ENTRIES_MAX),
                limit_bytes: PAGE_BYTES_MAX,
            },
        }
    }
}

/// Consecutive omap entries.
#[derive(Clone, Debug)]
pub struct Page {
    /// All entries after this key …
    after: Option<Bytes>,
    /// … up to and including this one; `None`: to the end.
    last: Option<Bytes>,
    entries: Vec<(Bytes, Bytes)>,
}

impl Page {
    fn covers(&self, key: &[u8]) -> bool {
        self.after.as_ref().is_none_or(|after| key > &after[..])
            && self.last.as_ref().is_none_or(|last| key <= &last[..])
    }
    /// Whether the page decides what the next entry after `key` is.
    fn follows(&self, key: Option<&[u8]>) -> bool {
        let begins = match (&self.after, key) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(after), Some(key)) => &after[..] <= key,
        };
        begins
            && self
                .last
                .as_ref()
                .is_none_or(|last| key.is_none_or(|key| key < &last[..]))
    }
    /// The entries after `key`.
    pub fn after(&self, key: Option<&[u8]>) -> &[(Bytes, Bytes)] {
        let from = key.map_or(0, |key| {
            self.entries.partition_point(|(k, _)| &k[..] <= key)
        });
        &self.entries[from..]
    }
    /// The last key that the page covers; `None` if it goes to the end of the omap.
    #[must_use]
    pub const fn last(&self) -> Option<&Bytes> {
        self.last.as_ref()
    }
}

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct Fetched {
    data: BTreeMap<u64, (u64, Vec<Bytes>)>,
    keys: BTreeMap<Bytes, Option<Bytes>>,
    pages: Vec<Page>,
    rounds: u32,
    bytes: u64,
}

impl Fetched {
    /// Number of read rounds so far.
    #[must_use]
    pub const fn rounds(&self) -> u32 {
        self.rounds
    }
    /// Whether the limit on reads is reached.
    #[must_use]
    pub const fn is_exhausted(&self) -> bool {
        self.rounds >= ROUNDS_MAX || self.bytes > FETCHED_BYTES_MAX
    }
    /// Marks the end of a round: everything wanted together has been read.
    pub fn end_round(&mut self) {
        self.rounds += 1;
    }

    /// Stores what was read; no reply means that the object does not exist.
    pub fn take(&mut self, want: Want, reply: Option<ReadReply>) {
        match (want, reply) {
            (Want::Data { offset, length }, reply) => {
                let pieces = match reply {
                    Some(ReadReply::Data(pieces)) => pieces,
                    _ => Vec::new(),
                };
                self.bytes += pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
                // Of two pieces with the same start, keep the longer one.
                if self.data.get(&offset).is_none_or(|(had, _)| *had < length) {
                    self.data.insert(offset, (length, pieces));
                }
            }
            (Want::Keys(keys), reply) => {
                self.keys.extend(keys.into_iter().map(|key| (key, None)));
                if let Some(ReadReply::Omap { entries, .. }) = reply {
                    self.count(&entries);
                    self.keys
                        .extend(entries.into_iter().map(|(key, value)| (key, Some(value))));
                }
            }
            // The operation records it (`Pending::clone_bytes` in `osd`).
            (Want::Clone(_), _) => {}
            (Want::Page { after, .. }, reply) => {
                let (entries, more) = match reply {
                    Some(ReadReply::Omap { entries, more }) => (entries, more),
                    _ => (Vec::new(), false),
                };
                self.count(&entries);
                let last = if more {
                    entries.last().map(|(key, _)| key.clone())
                } else {
                    None
                };
                self.pages.push(Page {
                    after,
                    last,
                    entries,
                });
            }
        }
    }

    fn count(&mut self, entries: &[(Bytes, Bytes)]) {
        self.bytes += entries
            .iter()
            .map(|(key, value)| (key.len() + value.len()) as u64)
            .sum::<u64>();
    }

    /// Bytes `offset..end`, if they were read. The result is shorter at the object's end.
    #[must_use]
    pub fn data(&self, offset: u64, end: u64) -> Option<Vec<Bytes>> {
        let covers =
            |(from, (length, _)): &(&u64, &(u64, Vec<Bytes>))| from.saturating_add(*length) >= end;
        let (from, (_, pieces)) = self.data.range(..=offset).rev().find(covers)?;
        Some(slice(pieces, offset - from, end - from))
    }

    /// The value of an omap key, if it was read: `Some(None)` if the key does not exist.
    #[must_use]
    pub fn key(&self, key: &[u8]) -> Option<Option<Bytes>> {
        if let Some(value) = self.keys.get(key) {
            return Some(value.clone());
        }
        let page = self.pages.iter().find(|page| page.covers(key))?;
        let at = page.entries.binary_search_by(|(k, _)| k[..].cmp(key)).ok();
        Some(at.map(|at| page.entries[at].1.clone()))
    }

    /// A page that contains the next entry after `key`, or shows that there is none.
    #[must_use]
    pub fn page(&self, key: Option<&[u8]>) -> Option<&Page> {
        self.pages.iter().rev().find(|page| page.follows(key))
    }

    /// What to read when `offset..end` of an object of `size` bytes is needed.
    #[must_use]
    pub fn want(&self, offset: u64, end: u64, size: u64) -> Want {
        let needed = end - offset;
        Want::Data {
            offset,
            length: self.widened(needed).min(size - offset).max(needed),
        }
    }

    /// How much to read when this much is needed: it grows with the number of rounds.
    #[must_use]
    pub const fn widened(&self, length: u64) -> u64 {
        if self.rounds < 2 {
            return length;
        }
        let wide = 4096 << if self.rounds > 13 { 13 } else { self.rounds };
        if wide > length { wide } else { length }
    }
    /// Like [`Self::widened`], for omap entries.
    #[must_use]
    pub const fn widened_entries(&self, entries: usize) -> usize {
        if self.rounds < 2 {
            return entries;
        }
        let wide = 32 << if self.rounds > 9 { 9 } else { self.rounds };
        if wide > entries { wide } else { entries }
    }
}

/// Bytes `from..to` of the pieces, as far as they reach.
#[must_use]
pub fn slice(pieces: &[Bytes], from: u64, to: u64) -> Vec<Bytes> {
    let mut out = Vec::new();
    let mut at = 0_u64;
    for piece in pieces {
        let end = at + piece.len() as u64;
        let (first, last) = (from.max(at), to.min(end));
        if first < last {
            out.push(piece.slice((first - at) as usize..(last - at) as usize));
        }
        at = end;
        if at >= to {
            break;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }
    fn page(
        after: Option<&'static str>,
        keys: &[&'static str],
        more: bool,
    ) -> (Want, Option<ReadReply>) {
        let entries = keys.iter().map(|key| (bytes(key), bytes("v"))).collect();
        let want = Want::Page {
            after: after.map(bytes),
            entries: keys.len(),
        };
        (want, Some(ReadReply::Omap { entries, more }))
    }

    #[test]
    fn data_is_found_inside_what_was_read() {
        let mut fetched = Fetched::default();
        fetched.take(
            Want::Data {
                offset: 10,
                length: 10,
            },
            Some(ReadReply::Data(vec![bytes("abc"), bytes("defg")])),
        );
        assert_eq!(fetched.data(12, 15), Some(vec![bytes("c"), bytes("de")]));
        assert_eq!(
            fetched.data(16, 20),
            Some(vec![bytes("g")]),
            "the object ended at 17"
        );
        assert_eq!(fetched.data(9, 12), None);
        assert_eq!(fetched.data(12, 21), None);
    }

    #[test]
    fn a_page_answers_for_the_keys_between_its_own() {
        let mut fetched = Fetched::default();
        let (want, reply) = page(Some("b"), &["d", "f"], true);
        fetched.take(want, reply);
        assert_eq!(fetched.key(b"d"), Some(Some(bytes("v"))));
        assert_eq!(fetched.key(b"e"), Some(None), "it would be between d and f");
        assert_eq!(fetched.key(b"b"), None);
        assert_eq!(fetched.key(b"g"), None);
        assert!(fetched.page(Some(b"b")).is_some() && fetched.page(Some(b"e")).is_some());
        assert!(
            fetched.page(None).is_none()
                && fetched.page(Some(b"a")).is_none()
                && fetched.page(Some(b"f")).is_none()
        );
        let (want, reply) = page(Some("f"), &[], false);
        fetched.take(want, reply);
        assert_eq!(fetched.key(b"z"), Some(None), "nothing comes after f");
    }

    #[test]
    fn keys_that_are_not_there_are_known_not_to_be() {
        let mut fetched = Fetched::default();
        let entries = vec![(bytes("a"), bytes("1"))];
        fetched.take(
            Want::Keys(vec![bytes("a"), bytes("b")]),
            Some(ReadReply::Omap {
                entries,
                more: false,
            }),
        );
        assert_eq!(
            (fetched.key(b"a"), fetched.key(b"b")),
            (Some(Some(bytes("1"))), Some(None))
        );
        fetched.take(Want::Keys(vec![bytes("c")]), None);
        assert_eq!(fetched.key(b"c"), Some(None));
    }
}
