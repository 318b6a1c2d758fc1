//! The index: where everything about objects lies that is not their data, in redb, behind [`Index`].
//!
//! This module (with [`backend`] below it) is the one place that knows redb, and the one place with locks, because
//! redb's storage trait demands them; nothing outside depends on which thread runs what. Memory in front of it is
//! `memtable` and `cache`; it is asked and written only by jobs, and at open.
#![expect(clippy::disallowed_types, reason = "redb asks for a storage that several threads can share")]

pub(crate) mod backend;

use crate::device::DeviceError;
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

    /// Makes `changes` and then `extra` durable, all or nothing.
    pub(crate) fn commit(&self, changes: &MemTable, extra: &[(Bytes, Option<Bytes>)]) -> Result<(), IndexError> {
        self.with(|database| {
            let mut write = database.begin_write()?;
            // Without it, opening after a crash walks the whole tree.
            write.set_quick_repair(true);
            {
                let mut table = write.open_table(RECORDS)?;
                for (from, to) in changes.ranges() {
                    // Looking first keeps a range that was never written back from touching any page.
                    if table.range(&from[..]..&to[..])?.next().is_some() {
                        table.retain_in::<&[u8], _>(&from[..]..&to[..], |_, _| false)?;
                    }
                }
                for (key, value) in changes.records().chain(extra.iter().map(|(k, v)| (k, v))) {
                    match value {
                        Some(value) => drop(table.insert(&key[..], &value[..])?),
                        None => drop(table.remove(&key[..])?),
                    }
                }
            }
            write.commit()?;
            Ok(())
        })
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
