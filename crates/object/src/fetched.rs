//! What was read of an object for one operation, as the object was before it.
//!
//! An operation is evaluated without waiting. Where it needs something that is not here yet, it
//! says what ([`Want`]) and stops; when that has been read, it is evaluated again from its
//! beginning. So a method of a class is plain code, in Lua or Rust, and an operation is never half
//! done. What has to be read more than a few times over is read in larger and larger pieces: a
//! method that walks through a whole object or omap is begun again a dozen times, not once per key.
//!
//! Invariant: everything here is from one state of the object, because updates that read hold the
//! object until they are evaluated (`osd/src/pg/object.rs`), and reads hold back updates.

use bytes::Bytes;
use nacre_store::{ObjectKey, Read, ReadReply};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Rounds of reading for one operation. With growing pieces even the largest object is read in
/// fewer.
pub const ROUNDS_MAX: u32 = 48;
/// Bytes that one operation may have read.
pub const FETCHED_BYTES_MAX: u64 = 64 << 20;
/// Entries of one page at most.
const PAGE_ENTRIES_MAX: usize = 10_000;
/// Bytes of one page at most.
pub(crate) const PAGE_BYTES_MAX: usize = 4 << 20;
/// Keys whose values are asked for in one round.
pub(crate) const KEYS_AT_ONCE: usize = 512;

/// Something to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// Bytes.
    Data {
        /// First.
        offset: u64,
        /// How many; fewer are there at the object's end.
        length: u64,
    },
    /// Values of these omap keys.
    Keys(Vec<Bytes>),
    /// Omap entries in order.
    Page {
        /// After this key; `None` is from the first.
        after: Option<Bytes>,
        /// So many.
        entries: usize,
    },
    /// What a clone of this object takes of a store's room: of the operation's own, or of one of
    /// its clones.
    Clone(ObjectKey),
}

impl Want {
    /// As a question to the store.
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
    /// … up to this one; to the end if none.
    last: Option<Bytes>,
    entries: Vec<(Bytes, Bytes)>,
}

impl Page {
    fn covers(&self, key: &[u8]) -> bool {
        self.after.as_ref().is_none_or(|after| key > &after[..])
            && self.last.as_ref().is_none_or(|last| key <= &last[..])
    }
    /// Whether the next entry after `key`, if there is one, is in the page or behind it.
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
    /// The last key it says something of; `None` if it goes to the end of the omap.
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
    /// How often something was read for the operation.
    #[must_use]
    pub const fn rounds(&self) -> u32 {
        self.rounds
    }
    /// Whether nothing more may be read.
    #[must_use]
    pub const fn is_exhausted(&self) -> bool {
        self.rounds >= ROUNDS_MAX || self.bytes > FETCHED_BYTES_MAX
    }
    /// Everything that was wanted together is here.
    pub fn end_round(&mut self) {
        self.rounds += 1;
    }

    /// Takes in what was read; no reply means that the object is not there.
    pub fn take(&mut self, want: Want, reply: Option<ReadReply>) {
        match (want, reply) {
            (Want::Data { offset, length }, reply) => {
                let pieces = match reply {
                    Some(ReadReply::Data(pieces)) => pieces,
                    _ => Vec::new(),
                };
                self.bytes += pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
                // Of two that begin together, the longer one says more.
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
            // The operation remembers it (`Pending::clone_bytes` in `osd`).
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

    /// Bytes `offset..end`, if they were read. They may end early: there was no more.
    #[must_use]
    pub fn data(&self, offset: u64, end: u64) -> Option<Vec<Bytes>> {
        let covers =
            |(from, (length, _)): &(&u64, &(u64, Vec<Bytes>))| from.saturating_add(*length) >= end;
        let (from, (_, pieces)) = self.data.range(..=offset).rev().find(covers)?;
        Some(slice(pieces, offset - from, end - from))
    }

    /// The value of an omap key, if it was read: `Some(None)` if there is none.
    #[must_use]
    pub fn key(&self, key: &[u8]) -> Option<Option<Bytes>> {
        if let Some(value) = self.keys.get(key) {
            return Some(value.clone());
        }
        let page = self.pages.iter().find(|page| page.covers(key))?;
        let at = page.entries.binary_search_by(|(k, _)| k[..].cmp(key)).ok();
        Some(at.map(|at| page.entries[at].1.clone()))
    }

    /// A page that has the next entry after `key`, or shows that there is none.
    #[must_use]
    pub fn page(&self, key: Option<&[u8]>) -> Option<&Page> {
        self.pages.iter().rev().find(|page| page.follows(key))
    }

    /// What to read where `offset..end` is needed of an object of `size` bytes.
    #[must_use]
    pub fn want(&self, offset: u64, end: u64, size: u64) -> Want {
        let needed = end - offset;
        Want::Data {
            offset,
            length: self.widened(needed).min(size - offset).max(needed),
        }
    }

    /// How much to read where so much is needed: more, the more often something was needed before.
    #[must_use]
    pub const fn widened(&self, length: u64) -> u64 {
        if self.rounds < 2 {
            return length;
        }
        let wide = 4096 << if self.rounds > 13 { 13 } else { self.rounds };
        if wide > length { wide } else { length }
    }
    /// As [`Self::widened`], for omap entries.
    #[must_use]
    pub const fn widened_entries(&self, entries: usize) -> usize {
        if self.rounds < 2 {
            return entries;
        }
        let wide = 32 << if self.rounds > 9 { 9 } else { self.rounds };
        if wide > entries { wide } else { entries }
    }
}

/// Bytes `from..to` of what the pieces hold, as far as they go.
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
