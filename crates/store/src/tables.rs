//! The memory layers in front of the index, and blocks that are not at their place yet.
//!
//! ```text
//!  heads:          active ─▶ frozen ─▶ leaving ─▶ cache ─▶ staged
//!  other records:  cache ─▶ active ─▶ frozen ─▶ removed ranges ─▶ staged
//! ```
//! A head that changes often has one place, in the active memtable, where it is changed. The cache
//! gets it when it leaves memory otherwise: after its checkpoint, a few at a time.

use crate::api::ObjectKey;
use crate::cache::Cache;
use crate::format::checksum::BlockData;
use crate::format::keys;
use crate::format::object::Head;
use crate::format::value::Value;
use crate::memtable::{Known, MemTable};
use bytes::Bytes;
use foldhash::fast::FixedState;
use indexmap::IndexMap;
use std::collections::BTreeMap;
use std::sync::Arc;

#[cfg(feature = "mutants")]
#[path = "mutants/tables.rs"]
mod planted;

/// Index records in memory. Invariant: of a head that is in several layers, the first one of the
/// picture has the newest value.
pub(crate) struct Tables {
    pub(crate) cache: Cache,
    pub(crate) active: MemTable,
    /// Being checkpointed; immutable.
    pub(crate) frozen: Option<Arc<MemTable>>,
    leaving: Option<Leaving>,
    /// Ranges whose removal no checkpoint has finished: the index's records in them are logically
    /// deleted.
    pub(crate) leftovers: MemTable,
    pub(crate) staged: Staged,
    /// Numbers of recently used objects with an omap. Invariant: they match the heads.
    pub(crate) omap_numbers: IndexMap<ObjectKey, u64, FixedState>,
    /// Objects with this or a larger number have nothing in the index.
    pub(crate) indexed_numbers: u64,
}

/// A memtable that is in the index, and whose heads are being moved into the cache.
struct Leaving {
    table: Arc<MemTable>,
    /// The position of the next one.
    next: usize,
}

/// A malformed record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Damaged;

/// A head in memory that exists.
pub(crate) enum HeadPlace {
    /// At this position of the active memtable.
    Active(usize),
    /// In another layer.
    Below(Arc<Head>),
}

/// Results of jobs for waiting work; the cache alone could drop them before the work is retried.
///
/// They are dropped when nothing waits any more. While something always does, as with many
/// concurrent reads, they are dropped in turn: when the younger half is full the older one is
/// dropped, so a new result outlives a retry.
#[derive(Default)]
pub(crate) struct Staged {
    young: BTreeMap<Bytes, Option<Value>>,
    old: BTreeMap<Bytes, Option<Value>>,
    /// The bytes of the young and of the old half.
    bytes: [usize; 2],
    max: usize,
}

impl Staged {
    /// Each half has about this many bytes.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            ..Self::default()
        }
    }
    fn get(&self, key: &[u8]) -> Option<Option<Value>> {
        self.young.get(key).or_else(|| self.old.get(key)).cloned()
    }
    pub(crate) fn insert(&mut self, key: Bytes, value: Option<Value>) {
        // Plus a tree node.
        self.bytes[0] += key.len() + value.as_ref().map_or(0, Value::len) + 96;
        self.young.insert(key, value);
    }
    /// Makes space for the result of another job.
    pub(crate) fn turn(&mut self) {
        if self.bytes[0] > self.max {
            self.old = std::mem::take(&mut self.young);
            self.bytes = [0, self.bytes[0]];
        }
    }
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.max);
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.young.is_empty() && self.old.is_empty()
    }
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.iter().sum()
    }
}

/// The maximum number of kept numbers: the PGs of an OSD, and many objects besides.
const OMAPS_MAX: usize = 4096;

impl Tables {
    pub(crate) fn new(cache_bytes: usize, indexed_numbers: u64) -> Self {
        Self {
            cache: Cache::new(cache_bytes),
            active: MemTable::default(),
            frozen: None,
            leaving: None,
            leftovers: MemTable::default(),
            staged: Staged::new((cache_bytes / 4).max(1 << 20)),
            omap_numbers: IndexMap::default(),
            indexed_numbers,
        }
    }

    /// Records that the object has an omap under this number now, or none.
    pub(crate) fn note_omap(&mut self, object: ObjectKey, number: Option<u64>) {
        match number {
            Some(number) => {
                if self.omap_numbers.len() >= OMAPS_MAX {
                    self.omap_numbers.clear();
                }
                self.omap_numbers.insert(object, number);
            }
            None => drop(self.omap_numbers.swap_remove(&object)),
        }
    }

    /// The record under `key`, or its absence; `None` if only the index knows.
    #[nacre_types::planted]
    pub(crate) fn get(&mut self, key: &[u8]) -> Option<Option<Value>> {
        if keys::is_head(key) {
            if let Some(value) = self.head_of_tables(key) {
                return Some(value.clone());
            }
            if let Some(value) = self.cache.get(key) {
                return Some(value.clone());
            }
            return self.staged.get(key);
        }
        if let Some(value) = self.cache.get(key) {
            return Some(value.clone());
        }
        let leftovers = (self.leftovers.count() > 0).then_some(&self.leftovers);
        for table in [&self.active]
            .into_iter()
            .chain(self.frozen.as_deref())
            .chain(leftovers)
        {
            if let Known::Value(value) = table.get(key) {
                return Some(value);
            }
        }
        self.staged.get(key)
    }

    /// The head under `key`, decoded, and kept decoded for the next call; otherwise like
    /// [`Self::get`].
    pub(crate) fn head(&mut self, key: &[u8]) -> Option<Result<Option<Arc<Head>>, Damaged>> {
        let record = match self.get(key)? {
            None => return Some(Ok(None)),
            Some(Value::Head { head, .. }) => return Some(Ok(Some(head))),
            Some(Value::Bytes(record)) => record,
        };
        let Some(head) = Head::decode(&record).map(Arc::new) else {
            return Some(Err(Damaged));
        };
        self.cache.update(key, &Some(head.clone().into()));
        Some(Ok(Some(head)))
    }

    /// Where the head under `key` is; `None` if it is not in memory, does not exist, or is damaged.
    pub(crate) fn place_of(&mut self, key: &[u8]) -> Option<HeadPlace> {
        if let Some(at) = self.active.position(key) {
            return Some(HeadPlace::Active(at));
        }
        match self.head(key) {
            Some(Ok(Some(head))) => Some(HeadPlace::Below(head)),
            _ => None,
        }
    }
    pub(crate) fn head_in<'a>(&'a self, place: &'a HeadPlace) -> &'a Head {
        match place {
            HeadPlace::Active(at) => self.active.head_at(*at),
            HeadPlace::Below(head) => head,
        }
    }
    /// The position of the head in the active memtable, to be changed there.
    pub(crate) fn activate(&mut self, place: HeadPlace, key: &[u8]) -> usize {
        match place {
            HeadPlace::Active(at) => at,
            HeadPlace::Below(head) => self.active.add_head(key, head),
        }
    }

    /// The frozen memtable is in the index: its heads leave it for the cache.
    pub(crate) fn begin_leaving(&mut self) -> Arc<MemTable> {
        self.leave(usize::MAX);
        let table = self.frozen.take().expect("frozen until it is in the index");
        let next = 0;
        self.leaving = Some(Leaving {
            table: table.clone(),
            next,
        });
        table
    }
    /// Moves up to this number of heads.
    pub(crate) fn leave(&mut self, most: usize) {
        let Some(Leaving { table, next }) = &mut self.leaving else {
            return;
        };
        for _ in 0..most {
            let Some((key, value)) = table.nth_head(*next) else {
                self.leaving = None;
                return;
            };
            *next += 1;
            self.cache.set(key, value.clone());
        }
    }
    /// A head in the newest of the tables that have it. (The cache may have an older one.)
    #[nacre_types::planted]
    fn head_of_tables(&self, key: &[u8]) -> Option<&Option<Value>> {
        let leaving = self.leaving.as_ref().map(|leaving| &*leaving.table);
        let tables = [Some(&self.active), self.frozen.as_deref(), leaving];
        tables
            .into_iter()
            .flatten()
            .find_map(|table| table.head(key))
    }
    /// Bytes of memory of the tables' records.
    pub(crate) fn bytes(&self) -> usize {
        let leaving = self.leaving.as_ref().map(|leaving| &*leaving.table);
        let tables = [Some(&self.active), self.frozen.as_deref(), leaving];
        let tables: usize = tables.into_iter().flatten().map(MemTable::bytes).sum();
        tables + self.cache.bytes() + self.staged.bytes()
    }

    /// Overlays the memtables on entries of the index between `from` and `to`.
    pub(crate) fn overlay(
        &mut self,
        entries: &mut BTreeMap<Bytes, Bytes>,
        from: &Bytes,
        to: &Bytes,
    ) {
        self.active.sort_for(from, to);
        for table in [&self.leftovers]
            .into_iter()
            .chain(self.frozen.as_deref())
            .chain([&self.active])
        {
            entries.retain(|key, _| !table.removes(key));
            for (key, value) in table.records_in(from, to) {
                match value {
                    Some(value) => drop(entries.insert(key, value.encoded().into_owned())),
                    None => drop(entries.remove(&key)),
                }
            }
        }
    }

    /// Bytes of keys and values that the memtables set between `from` and `to`.
    pub(crate) fn weigh(&self, from: &Bytes, to: &Bytes) -> u64 {
        self.frozen
            .as_deref()
            .into_iter()
            .chain([&self.active])
            .map(|table| table.weigh(from, to))
            .sum()
    }

    /// Asserts that the counted bytes match the contents.
    pub(crate) fn check(&self) {
        self.cache.check();
        self.active.check();
    }

    /// Records the ranges that a checkpoint left over.
    pub(crate) fn set_leftovers(&mut self, ranges: &[(Bytes, Bytes)]) {
        self.leftovers = MemTable::default();
        for (from, to) in ranges {
            self.leftovers.remove_range(from.clone(), to.clone());
        }
    }

    /// The number of records of the index that the memtables may hide between `from` and `to`, at
    /// most `limit`.
    pub(crate) fn hidden(&self, from: &Bytes, to: &Bytes, limit: usize) -> usize {
        let tables = self.frozen.as_deref().into_iter().chain([&self.active]);
        tables
            .map(|t| {
                t.records_in(from, to)
                    .take(limit)
                    .filter(|(_, v)| v.is_none())
                    .count()
            })
            .sum()
    }
}

/// The content of a unit that reads must take from memory.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) data: BlockData,
    /// The transaction that wrote it.
    pub(crate) transaction: u64,
    /// It is written to its place beside the log; otherwise it waits in the log to be written back.
    pub(crate) beside: bool,
}

/// Units whose newest content is in memory.
#[derive(Default)]
pub(crate) struct PendingBlocks {
    pub(crate) by_unit: IndexMap<u64, Pending, FixedState>,
    /// The number of those that are not beside the log.
    pub(crate) deferred: usize,
    /// Log-only blocks replaced or freed before they were written back (CEPH-57).
    pub(crate) cancelled: u64,
}

impl PendingBlocks {
    pub(crate) fn insert(&mut self, unit: u64, pending: Pending) {
        self.deferred += usize::from(!pending.beside);
        if let Some(old) = self.by_unit.insert(unit, pending) {
            self.forget(&old);
        }
    }
    pub(crate) fn cancel(&mut self, unit: u64) {
        if let Some(old) = self.by_unit.swap_remove(&unit) {
            self.forget(&old);
        }
    }
    fn forget(&mut self, old: &Pending) {
        if !old.beside {
            self.deferred -= 1;
            self.cancelled += 1;
        }
    }
    /// The block that this transaction left in the log is at its place; a newer one stays pending.
    #[nacre_types::planted]
    pub(crate) fn settled(&mut self, unit: u64, transaction: u64) {
        if let Some(pending) = self.by_unit.get(&unit)
            && !pending.beside
            && pending.transaction == transaction
        {
            self.deferred -= 1;
            self.by_unit.swap_remove(&unit);
        }
    }
    /// The blocks that transactions up to `last` wrote beside the log are at their place;
    /// overwritten ones stay pending.
    pub(crate) fn settled_beside(&mut self, unit: u64, last: u64) {
        if self
            .by_unit
            .get(&unit)
            .is_some_and(|pending| pending.beside && pending.transaction <= last)
        {
            self.by_unit.swap_remove(&unit);
        }
    }
}
