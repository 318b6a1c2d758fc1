//! The index: where everything about objects lies that is not their data, in redb, behind [`Index`].
//!
//! This module (with [`backend`] below it) is the one place that knows redb, and the one place with locks, because
//! redb's storage trait demands them; nothing outside depends on which thread runs what. Memory in front of it is
//! `memtable` and `cache`; it is asked and written only by jobs, and at open.
#![expect(clippy::disallowed_types, reason = "redb asks for a storage that several threads can share")]

pub(crate) mod backend;

use crate::device::DeviceError;
use crate::format::keys;
use crate::memtable::MemTable;
use backend::Backend;
use bytes::Bytes;
use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::io;
use std::sync::{Arc, Mutex};

const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");

/// Why the index cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexError {
    Device(DeviceError),
    /// A block failed its checksum, or the tree makes no sense.
    Corrupt,
    /// Its chunks are used up.
    Full,
}

/// What the backend wants to say through redb's errors, which carry an `io::Error`.
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

/// Sets or removes one record; returns the weight gained and lost.
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
    Ok((more, old.map_or(0, |old| keys::weight(key, old.value().len()))))
}

/// Entries and whether the scan stopped at its limit.
#[derive(Debug)]
pub(crate) struct Scanned {
    pub(crate) entries: Vec<(Bytes, Bytes)>,
    pub(crate) more: bool,
}

/// The ordered, checkpointed key-value map.
#[derive(Clone)]
pub(crate) struct Index {
    database: Arc<Mutex<Option<Arc<Database>>>>,
    backend: Backend,
}

impl Index {
    /// Opens (or, in an empty storage, creates) the index. Memory for redb's pages is bounded by `cache` bytes.
    pub(crate) fn open(backend: Backend, cache: usize) -> Result<Self, IndexError> {
        let opened = Builder::new().set_cache_size(cache).create_with_backend(backend.clone());
        let database = opened.map_err(|e| backend.failure().unwrap_or_else(|| from_redb(e.into())))?;
        Ok(Self { database: Arc::new(Mutex::new(Some(Arc::new(database)))), backend })
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Runs `work`. A tree that passes its checksums but makes no sense can make redb panic; that is a finding about
    /// the device, not a reason to take the process down.
    fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, IndexError> {
        // Cloned out of the lock: a lookup must not wait for a checkpoint that runs beside it.
        let open = self.database.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let Some(open) = open else { return Err(IndexError::Corrupt) };
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&open))) {
            Ok(result) => result.map_err(|e| self.backend.failure().unwrap_or_else(|| from_redb(e))),
            Err(_) => {
                *self.database.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
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
            let get = |key: &Bytes| Ok(table.get(&key[..])?.map(|v| Bytes::copy_from_slice(v.value())));
            keys.iter().map(get).collect()
        })
    }

    /// Entries from `from` (included) to `to` (excluded), at most `limit` of them, stopping once they exceed `bytes`.
    pub(crate) fn scan(&self, from: &[u8], to: &[u8], limit: usize, bytes: usize) -> Result<Scanned, IndexError> {
        self.with(|database| {
            let mut entries = Vec::new();
            let read = database.begin_read()?;
            let table = match read.open_table(RECORDS) {
                Ok(table) => table,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Scanned { entries, more: false }),
                Err(error) => return Err(error.into()),
            };
            if from >= to {
                return Ok(Scanned { entries, more: false });
            }
            let mut taken = 0;
            for entry in table.range(from..to)? {
                let (key, value) = entry?;
                let (key, value) = (key.value(), value.value());
                if entries.len() >= limit || taken > bytes {
                    return Ok(Scanned { entries, more: true });
                }
                taken += key.len() + value.len();
                entries.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
            }
            Ok(Scanned { entries, more: false })
        })
    }

    /// Makes `changes` and then `extra` durable, in transactions of at most `batch_max` records, the last of which has
    /// all of `extra`. After a crash in between, the log is replayed from the position before: its records are results,
    /// so applying some of them twice changes nothing. Small transactions bound redb's memory, and let a nearly full
    /// index get by with few free pages, since what one transaction frees the next but one can use. Returns the bytes of
    /// all records, which tells how much of the index's space is free inside.
    pub(crate) fn commit(
        &self,
        changes: &MemTable,
        extra: &[(Bytes, Option<Bytes>)],
        batch_max: usize,
    ) -> Result<u64, IndexError> {
        let bytes = self.get_many(&[Bytes::from_static(keys::INDEX_BYTES)])?.pop().flatten();
        let mut bytes = match bytes.map(|b| b[..].try_into()) {
            Some(Ok(bytes)) => u64::from_le_bytes(bytes),
            Some(Err(_)) => return Err(IndexError::Corrupt),
            None => 0,
        };
        let mut ranges = changes.ranges().peekable();
        let mut records = changes.records().peekable();
        loop {
            // A record may cost a few pages of its own, and some on the way to the root.
            let mut pages = self.backend.blocks_left() / 2;
            let mut left = batch_max.max(1);
            let mut done = false;
            self.with(|database| {
                let mut write = database.begin_write()?;
                // Without it, opening after a crash walks the whole tree.
                write.set_quick_repair(true);
                {
                    let mut table = write.open_table(RECORDS)?;
                    while let Some((from, to)) = ranges.peek() {
                        let keys = table.range(&from[..]..&to[..])?.take(left);
                        let keys =
                            keys.map(|entry| Ok(entry?.0.value().to_vec())).collect::<Result<Vec<_>, redb::Error>>()?;
                        for key in &keys {
                            bytes -= change(&mut table, key, None)?.1;
                        }
                        left -= keys.len();
                        pages = pages.saturating_sub(keys.len() as u64 * 4);
                        if left == 0 || pages == 0 {
                            left = 0;
                            break;
                        }
                        ranges.next();
                    }
                    while left > 0
                        && let Some((key, value)) = records.next()
                    {
                        let (more, less) = change(&mut table, key, value.as_ref())?;
                        bytes = bytes + more - less;
                        let size = key.len() + value.as_ref().map_or(0, Bytes::len);
                        pages = pages.saturating_sub(4 + 2 * (size / crate::format::BLOCK) as u64);
                        left = if pages == 0 { 0 } else { left - 1 };
                    }
                    if ranges.peek().is_none() && records.peek().is_none() {
                        for (key, value) in extra {
                            let (more, less) = change(&mut table, key, value.as_ref())?;
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
                return Ok(bytes);
            }
        }
    }

    /// Moves pages to the front and lets go of the chunks behind them. Only while nobody else uses the index.
    pub(crate) fn compact(&self) -> Result<(), IndexError> {
        let mut database = self.database.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let open = database.as_mut().and_then(Arc::get_mut).ok_or(IndexError::Corrupt)?;
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
        let mut database = self.database.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let open = database.as_mut().and_then(Arc::get_mut).ok_or(IndexError::Corrupt)?;
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| open.check_integrity())) {
            Ok(Ok(clean)) => Ok(clean),
            Ok(Err(error)) => Err(self.backend.failure().unwrap_or_else(|| from_redb(error.into()))),
            Err(_) => Err(IndexError::Corrupt),
        }
    }
}
