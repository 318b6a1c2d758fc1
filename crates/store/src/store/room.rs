//! The space that a transaction needs, and whether there is enough: computed once, when it is
//! submitted, in blocks and in bytes of the index.
//!
//! ```text
//!  │ data and chunks of the index │ reserved, owed │      available      │ reserve │        spare: inside the index's chunks
//! ```
//! *Reserved* (`promised`) is the space that the queue may take, *owed* the space that the
//! memtables may cost the index at the next checkpoints; both are upper bounds. The *reserve* is
//! the most that two checkpoints may write before they free anything: transactions that only
//! remove, the log and opening need no more. It is a number of units, not a place: a fragmented
//! store has it like any other.

use super::Store;
use crate::api::{ObjectKey, Op, SubmitError, Transaction};
use crate::device::Device;
use crate::format::object::Head;
use crate::format::{BLOCK_U64, keys};
use crate::index::IndexError;
use std::collections::BTreeMap;

/// The maximum space that a byte of records takes, including the index's overhead: half-full pages,
/// and half as much again inside its chunks ([`Store::look_at_index`]), if a new chunk is needed.
pub const INDEX_COST: u64 = 4;

/// The maximum space that a transaction may take: its reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Promise {
    /// Units for data: also the blocks that the log must hold if no unit is fresh.
    pub(super) units: u64,
    /// The bytes that the index may grow by.
    pub(super) index: u64,
}

/// The size of a transaction, computed in one pass over its operations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measure {
    /// [`Transaction::size`].
    pub(super) size: usize,
    /// [`Transaction::logged_size`].
    pub(super) logged: usize,
    pub(super) promise: Promise,
    /// It clones objects: the space of the clones is not included.
    pub(super) clones: bool,
    pub(super) removes_only: bool,
}

impl Measure {
    pub(super) fn of(transaction: &Transaction) -> Self {
        let blocks = |bytes: u64| bytes.div_ceil(BLOCK_U64) + 1;
        let mut all = Self {
            removes_only: true,
            ..Self::default()
        };
        for op in &transaction.ops {
            let size = op.size();
            let (data, units) = match op {
                Op::Write { data, .. } => {
                    let data = data.iter().map(|d| d.len() as u64).sum();
                    // One more for inline data that moves to a block.
                    (data, blocks(data) + 1)
                }
                Op::CloneRange { length, .. } => {
                    // Reference counts, and blocks that are not adjacent.
                    all.promise.index += length / 64;
                    (0, blocks(*length) + 3)
                }
                Op::Zero { .. } => (0, 2),
                Op::Truncate { .. } => (0, 1),
                _ => (0, 0),
            };
            all.size += size;
            if op.is_logged_whole() {
                all.logged += size;
            }
            all.promise.units += units;
            // Pages of the index are at least half full; a block of data takes some 10 bytes of
            // records.
            all.clones |= matches!(op, Op::Clone { .. });
            if !op.is_removal() {
                all.removes_only = false;
                all.promise.index += 2 * (size as u64 - data + 256 + data / 256);
            }
        }
        all
    }
}

impl<D: Device> Store<D> {
    /// Updates the free space inside the index.
    pub(super) fn look_at_index(&mut self, bytes: u64) {
        // Pages are at least half full, and holes are not filled completely: redb grows before it
        // searches for all of them.
        self.index_spare = self
            .index
            .backend()
            .bytes_placed()
            .saturating_sub(3 * bytes)
            / 2;
    }

    /// Bytes that the index may grow by when the memtables are merged into it: pages are at least
    /// half full.
    pub(super) fn owed(&self) -> u64 {
        let frozen = self.tables.frozen.as_ref().map_or(0, |table| table.bytes());
        2 * (self.tables.active.bytes() + frozen) as u64
    }

    /// Bytes left for data and growth of the index together after `promised` and `owed` are
    /// subtracted.
    pub(super) fn available(&self, promised: Promise, owed: u64) -> u64 {
        let free = self.allocator.free().saturating_sub(promised.units) * BLOCK_U64;
        let spare = self.index_spare.saturating_sub(promised.index + owed);
        let index = (promised.index + owed).saturating_sub(self.index_spare);
        let reserve = (self.limits.reserve_units * BLOCK_U64).saturating_sub(spare);
        free.saturating_sub(index + reserve)
    }

    /// Whether there is space for a transaction that does not only remove.
    pub(super) fn admit(&mut self, promise: Promise) -> Result<(), SubmitError> {
        let owed = self.owed();
        let with = |p: Promise| Promise {
            units: p.units + promise.units,
            index: p.index + promise.index,
        };
        let free = self.allocator.free();
        let room = |promised: Promise, owed: u64| {
            let all = with(promised);
            all.units <= free && (promise == Promise::default() || self.available(all, owed) > 0)
        };
        if room(self.promised, owed) {
            return Ok(());
        }
        let settling = self.promised != Promise::default() || owed > 0;
        let coming = !self.waiting.is_empty()
            || !self.discards.is_idle()
            || self.tables.leftovers.count() > 0;
        if settling && room(Promise::default(), 0) || coming {
            // Reservations are upper bounds: once they are settled there may be space.
            self.wants_checkpoint |= owed > 0;
            return Err(SubmitError::Busy);
        }
        self.usage.borders.full += 1;
        let needed = promise.units * BLOCK_U64 + promise.index;
        Err(SubmitError::Full {
            needed,
            available: self
                .available(self.promised, owed)
                .min(needed.saturating_sub(1)),
        })
    }

    /// The bytes that the index may grow by for a transaction's clones: the size of their records.
    /// Busy as long as that is not known.
    pub(super) fn weigh_clones(&mut self, transaction: &Transaction) -> Result<u64, SubmitError> {
        if !self.queue.is_empty() {
            // Their changes are not in the tables yet.
            return Err(SubmitError::Busy);
        }
        let mut all = 0;
        // Objects replaced by this transaction; and the bytes that it adds to objects.
        let mut replaced: BTreeMap<&ObjectKey, u64> = BTreeMap::new();
        let mut added: BTreeMap<&ObjectKey, u64> = BTreeMap::new();
        for op in &transaction.ops {
            match op {
                Op::Clone { from, to } | Op::Rename { from, to } if from != to => {
                    let before = match replaced.get(from) {
                        Some(&weight) => weight,
                        None => self.weight_of(from)?,
                    };
                    let weight = before + added.get(from).copied().unwrap_or(0);
                    replaced.insert(to, weight);
                    added.remove(to);
                    match op {
                        Op::Clone { .. } => {
                            all += if crate::mutant(crate::Mutant::CloneWeighsNothing) {
                                0
                            } else {
                                2 * weight
                            }
                        }
                        _ => {
                            replaced.insert(from, 0);
                            added.remove(from);
                        }
                    }
                }
                Op::Remove(object) => {
                    replaced.insert(object, 0);
                    added.remove(object);
                }
                Op::Write { object, .. }
                | Op::SetAttr { object, .. }
                | Op::OmapSet { object, .. } => {
                    *added.entry(object).or_default() += op.size() as u64;
                }
                _ => {}
            }
        }
        Ok(all)
    }

    /// The number of bytes by which a clone of an object may reduce the free space; busy until that
    /// is known, which was requested.
    pub(super) fn clone_bytes(&mut self, object: &ObjectKey) -> Result<u64, SubmitError> {
        self.weight_of(object).map(|weight| INDEX_COST * weight)
    }

    fn weight_of(&mut self, object: &ObjectKey) -> Result<u64, SubmitError> {
        if self
            .collections
            .get(&object.collection)
            .is_none_or(|&objects| objects == 0)
        {
            return Ok(0);
        }
        let key = keys::head(object);
        match self.tables.head(&key) {
            None => {
                self.lookups.want_keys(vec![key]);
                Err(SubmitError::Busy)
            }
            Some(Ok(Some(head))) => self.weight_of_head(&head),
            // A damaged one will be detected when the transaction is applied.
            Some(Ok(None) | Err(_)) => Ok(0),
        }
    }

    /// Index bytes of an object with this head.
    fn weight_of_head(&mut self, head: &Head) -> Result<u64, SubmitError> {
        let shards: u64 = head
            .shards
            .iter()
            .map(|&(_, count)| u64::from(count) + 1)
            .sum();
        // A shard's record, and reference counts of its blocks, which may be scattered.
        let mut weight = head.encoded_len() as u64 + 1024 + shards * 2048;
        if head.has_omap {
            weight += self.omap_weight(head.number)?;
        }
        Ok(weight)
    }

    fn omap_weight(&mut self, number: u64) -> Result<u64, SubmitError> {
        let indexed = match self.weights.get(&number) {
            Some(&weight) => weight,
            None if number >= self.tables.indexed_numbers => 0,
            None => {
                self.lookups.want_weight(number);
                return Err(SubmitError::Busy);
            }
        };
        let (from, to) = (keys::omap(number, &[]), keys::end(keys::TAG_OMAP, number));
        Ok(indexed + self.tables.weigh(&from, &to))
    }

    pub(super) fn weighed(&mut self, number: u64, weight: Result<u64, IndexError>) {
        let since = self.lookups.weighed(number);
        match weight {
            Ok(weight) => drop(self.weights.insert(number, weight + since)),
            Err(error) => self.lookup_failed(error),
        }
    }
}
