//! The index: all metadata of objects, in redb, behind [`Index`].
//!
//! This module (with [`backend`] below it) is the only one that uses redb, and the only one with
//! locks, because redb's storage trait requires them; nothing outside depends on the thread that
//! runs it. The memory in front of it is `memtable` and `cache`; it is read and written only by
//! jobs, and at open.
#![expect(
    clippy::disallowed_types,
    reason = "redb asks for a storage that several threads can share"
)]

pub(crate) mod backend;
mod place;
pub(crate) mod space;

use crate::device::DeviceError;
use crate::format::keys;
use crate::format::value::Value;
use crate::memtable::MemTable;
use backend::Backend;
use bytes::Bytes;
use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::io;
use std::sync::{Arc, Mutex};

const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");

/// Why the index cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexError {
    Device(DeviceError),
    /// A block failed its checksum, or the tree is inconsistent.
    Corrupt,
    /// Its chunks are used up.
    Full,
}

/// Passes the backend's error through redb's errors, which carry an `io::Error`.
impl From<IndexError> for io::Error {
    fn from(error: IndexError) -> Self {
        io::Error::other(Carried(error))
    }
}
#[derive(Debug)]
struct Carried(IndexError);
impl std::fmt::Display for Carried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}
impl std::error::Error for Carried {}

fn from_redb(error: redb::Error) -> IndexError {
    match error {
        redb::Error::Io(error) => match error.get_ref().and_then(|e| e.downcast_ref::<Carried>()) {
            Some(Carried(error)) => *error,
            None => IndexError::Corrupt,
        },
        _ => IndexError::Corrupt,
    }
}

/// Sets or removes one record; returns the weight added and removed.
fn change(
    table: &mut redb::Table<'_, &'static [u8], &'static [u8]>,
    key: &[u8],
    value: Option<&Bytes>,
) -> Result<(u64, u64), redb::StorageError> {
    let old = match value {
        Some(value) => table.insert(key, &value[..])?,
        None => table.remove(key)?,
    };
    let more = value.map_or(0, |value| keys::weight(key, value.len()));
    Ok((
        more,
        old.map_or(0, |old| keys::weight(key, old.value().len())),
    ))
}

/// Entries and whether the scan stopped at its limit.
#[derive(Debug)]
pub(crate) struct Scanned {
    pub(crate) entries: Vec<(Bytes, Bytes)>,
    pub(crate) more: bool,
}

/// The input of a checkpoint's merge: ranges left by earlier checkpoints, then `changes`, then
/// `extra`. Transactions of redb have at most `batch_max` records, the last of them all of `extra`;
/// or, if `atomic`, there is one.
pub(crate) struct Merge<'a> {
    pub(crate) changes: &'a MemTable,
    /// Ranges whose removal earlier checkpoints did not finish. The index's records in them are
    /// logically deleted, and nothing newer is there.
    pub(crate) leftovers: &'a [(Bytes, Bytes)],
    pub(crate) extra: &'a [(Bytes, Option<Bytes>)],
    pub(crate) batch_max: usize,
    /// The maximum number of records that the removal of ranges may delete now: the rest is left
    /// over, so that the log is truncated meanwhile.
    pub(crate) removals_max: usize,
    pub(crate) atomic: bool,
}

impl<'a> Merge<'a> {
    /// Everything in one merge.
    pub(crate) fn all(changes: &'a MemTable, extra: &'a [(Bytes, Option<Bytes>)]) -> Self {
        Self {
            changes,
            leftovers: &[],
            extra,
            batch_max: usize::MAX,
            removals_max: usize::MAX,
            atomic: false,
        }
    }
}

/// The result of a checkpoint's merge.
#[derive(Debug)]
pub(crate) struct Merged {
    /// The bytes of all records: determines how much of the index's space is free inside.
    pub(crate) bytes: u64,
    pub(crate) leftovers: Vec<(Bytes, Bytes)>,
    /// Transactions of redb.
    pub(crate) batches: u64,
}

/// Ranges still to be removed, beginning with those that must be empty before a newer record can be
/// set in them.
struct Ranges {
    must: Vec<(Bytes, Bytes)>,
    may: Vec<(Bytes, Bytes)>,
    removals_left: usize,
}

impl Ranges {
    fn new(merge: &Merge<'_>) -> Self {
        // Disjoint and not adjacent, like the leftovers in memory: the stored ranges must have the
        // same keys, or a part of a range would stay there when it is done, and delete records set
        // since.
        let mut all = MemTable::default();
        for (from, to) in merge.leftovers {
            all.remove_range(from.clone(), to.clone());
        }
        for (from, to) in merge.changes.ranges() {
            all.remove_range(from.clone(), to.clone());
        }
        let all = all
            .ranges()
            .map(|(from, to)| (from.clone(), to.clone()))
            .collect::<Vec<_>>()
            .into_iter();
        let refilled = |(from, to): &(Bytes, Bytes)| {
            merge
                .changes
                .records_in(from, to)
                .any(|(_, value)| value.is_some())
        };
        let (mut must, mut may): (Vec<_>, Vec<_>) = all.partition(refilled);
        // Taken from the end, in order of the keys.
        must.reverse();
        may.reverse();
        Self {
            must,
            may,
            removals_left: merge.removals_max,
        }
    }
    /// The next range, and how many of its records may be deleted now, at most `left`.
    fn next(&self, left: usize) -> Option<(Bytes, Bytes, usize)> {
        let (range, most) = match self.must.last() {
            Some(range) => (range, left),
            None => (self.may.last()?, left.min(self.removals_left)),
        };
        (most > 0).then(|| (range.0.clone(), range.1.clone(), most))
    }
    /// `count` records were there, of at most `most`.
    fn removed(&mut self, count: usize, most: usize, last: Option<&Vec<u8>>) {
        let is_must = !self.must.is_empty();
        if !is_must {
            self.removals_left -= count;
        }
        let ranges = if is_must {
            &mut self.must
        } else {
            &mut self.may
        };
        match last {
            Some(last) if count == most => {
                ranges.last_mut().expect("it was handed out").0 =
                    Bytes::from([&last[..], &[0]].concat());
            }
            _ => drop(ranges.pop()),
        }
    }
    fn left(&self) -> impl Iterator<Item = &(Bytes, Bytes)> {
        self.must.iter().chain(&self.may)
    }
}

/// The ordered, checkpointed key-value map.
#[derive(Clone)]
pub(crate) struct Index {
    database: Arc<Mutex<Option<Arc<Database>>>>,
    backend: Backend,
}

impl Index {
    /// Opens (or, in an empty storage, creates) the index. Memory for redb's pages is bounded by
    /// `cache` bytes.
    pub(crate) fn open(backend: Backend, cache: usize) -> Result<Self, IndexError> {
        let open = || {
            Builder::new()
                .set_cache_size(cache)
                .create_with_backend(backend.clone())
        };
        // Like in `with`.
        let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(open));
        let opened = opened.map_err(|_| backend.failure().unwrap_or(IndexError::Corrupt))?;
        let database =
            opened.map_err(|e| backend.failure().unwrap_or_else(|| from_redb(e.into())))?;
        Ok(Self {
            database: Arc::new(Mutex::new(Some(Arc::new(database)))),
            backend,
        })
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Runs `work`. A tree that passes its checksums but is inconsistent can make redb panic; that
    /// indicates damage on the device, not a reason to end the process.
    fn with<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, IndexError> {
        // Cloned out of the lock: a lookup must not wait for a concurrent checkpoint.
        let open = self
            .database
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone();
        let Some(open) = open else {
            return Err(IndexError::Corrupt);
        };
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&open))) {
            Ok(result) => {
                result.map_err(|e| self.backend.failure().unwrap_or_else(|| from_redb(e)))
            }
            Err(_) => {
                *self
                    .database
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner) = None;
                Err(self.backend.failure().unwrap_or(IndexError::Corrupt))
            }
        }
    }

    /// The values of `keys`, in their order.
    pub(crate) fn get_many(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>, IndexError> {
        self.with(|database| {
            let read = database.begin_read()?;
            let table = match read.open_table(RECORDS) {
                Ok(table) => table,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(vec![None; keys.len()]),
                Err(error) => return Err(error.into()),
            };
            let get = |key: &Bytes| {
                Ok(table
                    .get(&key[..])?
                    .map(|v| Bytes::copy_from_slice(v.value())))
            };
            keys.iter().map(get).collect()
        })
    }

    /// Entries from `from` (included) to `to` (excluded), at most `limit` of them, stopping once
    /// they exceed `bytes`.
    pub(crate) fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
        bytes: usize,
    ) -> Result<Scanned, IndexError> {
        self.with(|database| {
            let mut entries = Vec::new();
            let read = database.begin_read()?;
            let table = match read.open_table(RECORDS) {
                Ok(table) => table,
                Err(redb::TableError::TableDoesNotExist(_)) => {
                    return Ok(Scanned {
                        entries,
                        more: false,
                    });
                }
                Err(error) => return Err(error.into()),
            };
            if from >= to {
                return Ok(Scanned {
                    entries,
                    more: false,
                });
            }
            let mut taken = 0;
            for entry in table.range(from..to)? {
                let (key, value) = entry?;
                let (key, value) = (key.value(), value.value());
                if entries.len() >= limit || taken > bytes {
                    return Ok(Scanned {
                        entries,
                        more: true,
                    });
                }
                taken += key.len() + value.len();
                entries.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
            }
            Ok(Scanned {
                entries,
                more: false,
            })
        })
    }

    /// Bytes of the keys and values between `from` and `to`, up to a little more than `max`. Uses
    /// memory for one page at a time.
    pub(crate) fn weigh(&self, from: &[u8], to: &[u8], max: u64) -> Result<u64, IndexError> {
        self.with(|database| {
            let read = database.begin_read()?;
            let table = match read.open_table(RECORDS) {
                Ok(table) => table,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(0),
                Err(error) => return Err(error.into()),
            };
            let mut bytes = 0;
            for entry in table.range(from..to)? {
                let (key, value) = entry?;
                bytes += (key.value().len() + value.value().len()) as u64;
                if bytes > max {
                    break;
                }
            }
            Ok(bytes)
        })
    }

    /// Makes a memtable durable: see [`Merge`]. After a crash between two transactions of redb the
    /// log is replayed from the earlier position: its records are results, so applying some of them
    /// twice changes nothing. Small transactions limit redb's memory, and let a nearly full index
    /// work with few free pages, since the pages that one transaction frees can be used by the next
    /// but one.
    pub(crate) fn commit(&self, merge: &Merge<'_>) -> Result<Merged, IndexError> {
        let bytes = self
            .get_many(&[Bytes::from_static(keys::INDEX_BYTES)])?
            .pop()
            .flatten();
        let mut bytes = match bytes.map(|b| b[..].try_into()) {
            Some(Ok(bytes)) => u64::from_le_bytes(bytes),
            Some(Err(_)) => return Err(IndexError::Corrupt),
            None => 0,
        };
        let mut ranges = Ranges::new(merge);
        let mut records = merge.changes.records().peekable();
        let mut batches = 0;
        loop {
            batches += 1;
            // A record may need a few pages of its own, and some on the path to the root.
            let mut pages = if merge.atomic {
                u64::MAX
            } else {
                self.backend.blocks_left() / 2
            };
            let mut left = if merge.atomic {
                usize::MAX
            } else {
                merge.batch_max.max(1)
            };
            let mut done = false;
            self.with(|database| {
                let mut write = database.begin_write()?;
                // Without this, opening after a crash walks the whole tree.
                write.set_quick_repair(true);
                {
                    let mut table = write.open_table(RECORDS)?;
                    while left > 0
                        && let Some((from, to, most)) = ranges.next(left)
                    {
                        let keys = table.range(&from[..]..&to[..])?.take(most);
                        let keys = keys
                            .map(|entry| Ok(entry?.0.value().to_vec()))
                            .collect::<Result<Vec<_>, redb::Error>>()?;
                        for key in &keys {
                            bytes -= change(&mut table, key, None)?.1;
                        }
                        left -= keys.len();
                        pages = pages.saturating_sub(keys.len() as u64 * 4);
                        ranges.removed(keys.len(), most, keys.last());
                        if pages == 0 {
                            left = 0;
                        }
                    }
                    while left > 0
                        && let Some((key, value)) = records.next()
                    {
                        let value = value.as_ref().map(Value::encoded);
                        let (more, less) = change(&mut table, key, value.as_deref())?;
                        bytes = bytes + more - less;
                        let size = key.len() + value.map_or(0, |value| value.len());
                        pages = pages.saturating_sub(4 + 2 * (size / crate::format::BLOCK) as u64);
                        left = if pages == 0 { 0 } else { left - 1 };
                    }
                    if ranges.next(1).is_none() && records.peek().is_none() {
                        let before = merge
                            .leftovers
                            .iter()
                            .map(|(from, _)| (keys::leftover(from), None));
                        let after = ranges
                            .left()
                            .map(|(from, to)| (keys::leftover(from), Some(to.clone())));
                        for (key, value) in before.chain(after).chain(merge.extra.iter().cloned()) {
                            let (more, less) = change(&mut table, &key, value.as_ref())?;
                            bytes = bytes + more - less;
                        }
                        done = true;
                    }
                    table.insert(keys::INDEX_BYTES, &bytes.to_le_bytes()[..])?;
                }
                write.commit()?;
                Ok(())
            })?;
            if done {
                let leftovers = ranges
                    .left()
                    .map(|(from, to)| (from.clone(), to.clone()))
                    .collect();
                return Ok(Merged {
                    bytes,
                    leftovers,
                    batches,
                });
            }
        }
    }

    /// Moves pages to the front and returns the chunks behind them. Only while the index has no
    /// other user.
    pub(crate) fn compact(&self) -> Result<(), IndexError> {
        let mut database = self
            .database
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let open = database
            .as_mut()
            .and_then(Arc::get_mut)
            .ok_or(IndexError::Corrupt)?;
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| open.compact())) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(self.backend.failure().unwrap_or(IndexError::Corrupt)),
            Err(_) => {
                *database = None;
                Err(self.backend.failure().unwrap_or(IndexError::Corrupt))
            }
        }
    }

    /// Walks the whole tree against redb's own checksums; for the offline check.
    pub(crate) fn verify(&self) -> Result<bool, IndexError> {
        let mut database = self
            .database
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let open = database
            .as_mut()
            .and_then(Arc::get_mut)
            .ok_or(IndexError::Corrupt)?;
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| open.check_integrity())) {
            Ok(Ok(clean)) => Ok(clean),
            Ok(Err(error)) => Err(self
                .backend
                .failure()
                .unwrap_or_else(|| from_redb(error.into()))),
            Err(_) => Err(IndexError::Corrupt),
        }
    }
}
