//! Applying one transaction: from operations to the [`Change`] that is logged.
//!
//! ```text
//!  transaction ──Attempt──▶ Ok: Change + blocks     (the store logs it and makes it visible)
//!                   └─────▶ Stop: something is not in memory, or there is no space (nothing has happened)
//! ```
//! An attempt changes only its own scratch state and the allocator, which is restored if it stops.
//! The store fetches the missing data and attempts again, so that a transaction is applied
//! completely or not at all.
//!
//! Data takes one of two ways. *Beside* the log: to fresh units, under the same flush; the log
//! contains only the blocks' checksums. Large writes use it, and so do all whole blocks that get a
//! new unit anyway or belong to a small object: writing them once halves the cost for device and
//! processor. *Through* the log: the other blocks stay where they are; their new content goes into
//! the log and is written to their units later. These are parts of blocks, blocks of large objects,
//! which stay contiguous, and a lone writer's few blocks: it waits for one write to one place.
//! Units that a clone shares are never written in place.

mod blocks;
mod clone;

use crate::alloc::{Allocator, Runs};
use crate::api::{CollectionId, ObjectKey, Op, Transaction};
use crate::few::Few;
use crate::format::BLOCK_U64;
use crate::format::checksum::BlockData;
use crate::format::keys;
use crate::format::log::Change;
use crate::format::object::{
    BlockRef, Head, INLINE_MAX, REFERENCE_UNITS, References, SHARD_BLOCKS, Shard,
};
use crate::format::value::Value;
use crate::tables::{Damaged, PendingBlocks, Tables};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Why an attempt stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// These records must be looked up.
    Keys(Vec<Bytes>),
    /// All omap entries of this object number must be looked up.
    Omap(u64),
    /// The omap of this object number must be copied for this operation: it is too large to be
    /// cloned in one piece.
    Fill { op: usize, number: u64 },
    /// These blocks must be read: unit and expected checksum.
    Blocks(Vec<(u64, u32)>),
    /// Both.
    Missing(Vec<Bytes>, Vec<(u64, u32)>),
    /// Not enough free units at the moment.
    NoSpace,
    /// A record is malformed.
    Corrupt,
    /// The caller removed a collection with objects in it.
    NotEmpty(CollectionId),
}

pub(crate) type Step<T> = Result<T, Stop>;

/// The state that an attempt may read and allocate from.
pub(crate) struct World<'a> {
    pub(crate) tables: &'a mut Tables,
    pub(crate) pending: &'a PendingBlocks,
    pub(crate) allocator: &'a mut Allocator,
    pub(crate) collections: &'a BTreeMap<CollectionId, u64>,
    pub(crate) next_number: u64,
    /// Old blocks read for partial overwrites, and whether they passed their checksum.
    pub(crate) old_blocks: &'a BTreeMap<u64, (Bytes, bool)>,
    /// The index's entries of omaps being cloned, by object number; `None`: too large for one
    /// piece.
    pub(crate) omaps: &'a BTreeMap<u64, Option<Vec<(Bytes, Bytes)>>>,
    /// Numbers of omap copies that were made for operations of this transaction.
    pub(crate) filled: &'a BTreeMap<usize, u64>,
    /// The end of the last allocation.
    pub(crate) cursor: u64,
    /// Larger writes go to fresh units.
    pub(crate) deferred_write_max: usize,
    /// Whole blocks of objects up to this size go to fresh units.
    pub(crate) small_object_max: u64,
    /// A few blocks go through the log anyway: this transaction has its group to itself.
    pub(crate) is_alone: bool,
    /// All writes go to fresh units if the transaction may change more than this many bytes of
    /// blocks.
    pub(crate) deferred_transaction_max: u64,
}

/// The result of applying a transaction.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    pub(crate) change: Change,
    /// Contents of `change.blocks`, in their order.
    pub(crate) payload: Vec<BlockData>,
    /// Contents of `change.beside`, in their order.
    pub(crate) beside: Vec<BlockData>,
    /// Collections created, removed, or with another object count.
    pub(crate) collections: BTreeMap<CollectionId, Option<u64>>,
    /// Objects that have, or had, an omap, and its number now.
    pub(crate) omaps: Vec<(ObjectKey, Option<u64>)>,
    pub(crate) cursor: u64,
    pub(crate) inline_bytes: u64,
    /// For each block of which a part was overwritten and the rest could not be read: the index of
    /// the operation.
    pub(crate) poisoned: Vec<usize>,
}

impl Applied {
    /// Objects that have lost the rest of a block.
    pub(crate) fn poisoned_objects<'t>(
        &self,
        transaction: &'t Transaction,
    ) -> BTreeSet<&'t ObjectKey> {
        let target = |at: &usize| {
            transaction.ops[*at]
                .objects()
                .last()
                .expect("blocks belong to an object")
        };
        self.poisoned.iter().map(target).collect()
    }
}

/// An object while a transaction changes it.
#[derive(Clone, Debug)]
struct Open {
    /// Shared with memory until it is changed.
    head: Arc<Head>,
    /// Further shards that were accessed, and whether they changed.
    shards: BTreeMap<u32, (Shard, bool)>,
}

impl Open {
    fn head_mut(&mut self) -> &mut Head {
        Arc::make_mut(&mut self.head)
    }
    fn omap(&self) -> Option<u64> {
        self.head.has_omap.then_some(self.head.number)
    }
    fn has_blocks(&self) -> bool {
        let touched = || self.shards.values().any(|(shard, _)| !shard.is_empty());
        !self.head.shards.is_empty() || !self.head.first.is_empty() || touched()
    }
    /// The shard must have been loaded.
    fn block(&self, index: u64) -> BlockRef {
        let (n, at) = split(index);
        match n {
            0 => self.head.first.block(at),
            _ => self
                .shards
                .get(&n)
                .map_or(BlockRef::default(), |(shard, _)| shard.block(at)),
        }
    }
    fn set_block(&mut self, index: u64, block: BlockRef) {
        let (n, at) = split(index);
        if n == 0 {
            self.head_mut().first.set_block(at, block);
        } else {
            let (shard, changed) = self.shards.entry(n).or_default();
            shard.set_block(at, block);
            *changed = true;
        }
    }
}

/// The shard of a block, and the position in the shard.
pub(crate) fn split(index: u64) -> (u32, usize) {
    (
        (index / SHARD_BLOCKS as u64) as u32,
        (index % SHARD_BLOCKS as u64) as usize,
    )
}

struct Slot {
    /// The key of its head.
    key: Bytes,
    open: Option<Open>,
    existed: bool,
    /// The number of the former object, if it had an omap.
    omap: Option<u64>,
    changed: bool,
}

/// One attempt at applying one transaction.
pub(crate) struct Attempt<'a> {
    world: World<'a>,
    objects: Few<ObjectKey, Slot>,
    references: Few<u64, (References, bool)>,
    /// Omap records; all other records are added at the end.
    records: Few<Bytes, Option<Value>>,
    deferred: Few<u64, BlockData>,
    /// Blocks for fresh units, with their checksums.
    beside: Few<u64, (BlockData, u32)>,
    collections: Few<CollectionId, bool>,
    direct_now: bool,
    /// The index of the current operation.
    at: usize,
    out: Applied,
}

impl<'a> Attempt<'a> {
    /// Applies `transaction`, which changes at most this many bytes of blocks, or returns why not
    /// yet.
    pub(crate) fn run(
        world: World<'a>,
        transaction: &Transaction,
        block_bytes: u64,
    ) -> Step<Applied> {
        let out = Applied {
            cursor: world.cursor,
            ..Applied::default()
        };
        let mut attempt = Self {
            objects: Few::default(),
            references: Few::default(),
            records: Few::default(),
            deferred: Few::default(),
            beside: Few::default(),
            collections: Few::default(),
            direct_now: block_bytes > world.deferred_transaction_max,
            at: 0,
            out,
            world,
        };
        let (mut keys, mut blocks) = (Vec::new(), Vec::new());
        let mut result = Ok(());
        for (at, op) in transaction.ops.iter().enumerate() {
            attempt.at = at;
            // A missing record stops the operation, but the search continues with the next ones:
            // otherwise a transaction of a thousand small writes to cold blocks would be attempted
            // a thousand times.
            result = match attempt.op(op) {
                Err(Stop::Keys(more)) => {
                    keys.extend(more);
                    Ok(())
                }
                Err(Stop::Blocks(more)) => {
                    blocks.extend(more);
                    Ok(())
                }
                other => other,
            };
            if result.is_err() {
                break;
            }
        }
        if !keys.is_empty() || !blocks.is_empty() {
            // Later operations ran without the effects of a stopped one: only the missing records
            // count.
            result = Err(Stop::Missing(keys, blocks));
        }
        let result = result.and_then(|()| attempt.finish());
        match result {
            Ok(()) => Ok(attempt.out),
            Err(stop) => {
                for &(unit, count) in &attempt.out.change.allocated {
                    assert!(
                        attempt.world.allocator.give_range(unit, count.into()),
                        "taken by this attempt"
                    );
                }
                Err(stop)
            }
        }
    }

    fn op(&mut self, op: &Op) -> Step<()> {
        match op {
            Op::CreateCollection(id) => {
                self.collections.insert(*id, true);
            }
            Op::RemoveCollection(id) => {
                if self.objects_in(*id) != 0 {
                    return Err(Stop::NotEmpty(*id));
                }
                self.collections.insert(*id, false);
            }
            Op::Touch(object) => self.with(object, true, |_, _| Ok(()))?,
            Op::Write {
                object,
                offset,
                data,
            } => self.with(object, true, |a, o| a.write(o, *offset, data, false))?,
            Op::Zero {
                object,
                offset,
                length,
            } => self.with(object, true, |a, o| a.zero(o, *offset, *length))?,
            Op::Truncate { object, size } => {
                self.with(object, true, |a, o| a.truncate(o, *size))?
            }
            Op::Remove(object) => self.remove(object)?,
            Op::SetAttr {
                object,
                name,
                value,
            } => self.with(object, true, |_, o| {
                o.head_mut().attrs.set(name, value);
                Ok(())
            })?,
            Op::RemoveAttr { object, name } => self.with(object, false, |_, o| {
                o.head_mut().attrs.remove(name);
                Ok(())
            })?,
            Op::OmapSet { object, entries } => {
                self.with_omap(object, Some(!entries.is_empty()), |a, number| {
                    for (key, value) in entries {
                        a.records
                            .insert(keys::omap(number, key), Some(value.clone().into()));
                    }
                })?
            }
            Op::OmapRemove { object, keys } => self.with_omap(object, None, |a, number| {
                for key in keys {
                    a.records.insert(keys::omap(number, key), None);
                }
            })?,
            Op::OmapRemoveRange { object, from, to } => {
                self.with_omap(object, None, |a, number| {
                    let end = to.as_ref().map_or_else(
                        || keys::end(keys::TAG_OMAP, number),
                        |to| keys::omap(number, to),
                    );
                    a.remove_range(keys::omap(number, from), end);
                })?
            }
            Op::OmapClear(object) => self.with(object, false, |a, o| {
                a.clear_omap(o);
                Ok(())
            })?,
            Op::Clone { from, to } => self.clone_object(from, to)?,
            Op::CloneRange {
                from,
                to,
                offset,
                length,
                to_offset,
            } => {
                self.clone_range(from, to, *offset, *length, *to_offset)?;
            }
            Op::Rename { from, to } => {
                if from != to {
                    self.load(from)?;
                    self.remove(to)?;
                    let slot = self.objects.get_mut(from).expect("just loaded");
                    slot.changed = true;
                    let open = slot.open.take();
                    let slot = self.objects.get_mut(to).expect("remove loads it");
                    slot.changed = true;
                    slot.open = open;
                }
            }
        }
        Ok(())
    }

    /// The number of objects of a collection at this point of the transaction.
    fn objects_in(&self, id: CollectionId) -> i64 {
        let before = self
            .world
            .collections
            .get(&id)
            .map_or(0, |&count| count as i64);
        let here = self.objects.iter().filter(|(key, _)| key.collection == id);
        before
            + here
                .map(|(_, slot)| i64::from(slot.open.is_some()) - i64::from(slot.existed))
                .sum::<i64>()
    }

    fn record(&mut self, key: Bytes) -> Step<Option<Value>> {
        self.world
            .tables
            .get(&key)
            .ok_or_else(|| Stop::Keys(vec![key]))
    }

    /// Makes sure that the object has a slot.
    fn load(&mut self, object: &ObjectKey) -> Step<()> {
        if self.objects.get(object).is_some() {
            return Ok(());
        }
        let key = keys::head(object);
        let open = match self.world.tables.head(&key) {
            None => return Err(Stop::Keys(vec![key])),
            Some(Ok(head)) => head.map(|head| Open {
                head,
                shards: BTreeMap::new(),
            }),
            Some(Err(Damaged)) => return Err(Stop::Corrupt),
        };
        let omap = open.as_ref().and_then(|open| open.omap());
        let slot = Slot {
            key,
            existed: open.is_some(),
            omap,
            open,
            changed: false,
        };
        self.objects.insert(object.clone(), slot);
        Ok(())
    }

    fn fresh(&mut self) -> Open {
        let number = self.world.next_number;
        self.world.next_number += 1;
        Open {
            head: Arc::new(Head {
                number,
                ..Head::default()
            }),
            shards: BTreeMap::new(),
        }
    }

    /// Runs `work` on an object, creating it if `create`, otherwise skipping it if absent.
    fn with(
        &mut self,
        object: &ObjectKey,
        create: bool,
        work: impl FnOnce(&mut Self, &mut Open) -> Step<()>,
    ) -> Step<()> {
        self.load(object)?;
        let slot = self.objects.get_mut(object).expect("just loaded");
        slot.changed = true;
        let mut open = match slot.open.take() {
            Some(open) => open,
            None if create => self.fresh(),
            None => return Ok(()),
        };
        let result = work(self, &mut open);
        self.objects.get_mut(object).expect("slots stay").open = Some(open);
        result
    }

    /// Runs `work` on the omap of the object with this number, creating the object if `fills` is
    /// given, which states whether the object gets entries; otherwise skipping it if it is absent
    /// or has no omap. Its head is unchanged unless this adds its first entry: a PG's log grows at
    /// every update, and rewriting the head of its object each time would be half of the records,
    /// reading it a fifth of the work.
    fn with_omap(
        &mut self,
        object: &ObjectKey,
        fills: Option<bool>,
        work: impl FnOnce(&mut Self, u64),
    ) -> Step<()> {
        if let Some(&number) = self.world.tables.omap_numbers.get(object)
            && self.objects.get(object).is_none()
        {
            work(self, number);
            return Ok(());
        }
        self.load(object)?;
        let slot = self.objects.get(object).expect("just loaded");
        let before = slot
            .open
            .as_ref()
            .map(|open| (slot.changed, open.head.has_omap));
        self.with(object, fills.is_some(), |a, o| {
            if fills == Some(true) && !o.head.has_omap {
                o.head_mut().has_omap = true;
            }
            if fills.is_some() || o.head.has_omap {
                work(a, o.head.number);
            }
            Ok(())
        })?;
        let slot = self.objects.get_mut(object).expect("slots stay");
        if let (Some((changed, had)), Some(open)) = (before, &slot.open)
            && had == open.head.has_omap
        {
            slot.changed = changed;
        }
        Ok(())
    }

    /// Makes the object absent and frees all its space.
    fn remove(&mut self, object: &ObjectKey) -> Step<()> {
        self.with(object, false, |a, o| {
            a.punch(o, 0, u64::MAX)?;
            a.clear_omap(o);
            a.put_shards(o);
            Ok(())
        })?;
        self.objects.get_mut(object).expect("loaded").open = None;
        Ok(())
    }

    fn remove_range(&mut self, from: Bytes, to: Bytes) {
        if from < to {
            self.records.remove_range(&from, &to);
            self.out.change.ranges.push((from, to));
        }
    }

    fn clear_omap(&mut self, open: &mut Open) {
        if open.head.has_omap {
            open.head_mut().has_omap = false;
            let number = open.head.number;
            self.remove_range(keys::omap(number, &[]), keys::end(keys::TAG_OMAP, number));
        }
    }

    /// Loads the existing shards among `first..=last` into the object.
    fn need_shards(&mut self, open: &mut Open, first: u32, last: u32) -> Step<()> {
        if open.head.shards.is_empty() {
            return Ok(());
        }
        let mut missing = Vec::new();
        let wanted: Vec<u32> = open.head.shards_in(first..last.saturating_add(1)).collect();
        for n in wanted {
            if open.shards.contains_key(&n) {
                continue;
            }
            let key = keys::shard(open.head.number, n);
            match self.world.tables.get(&key) {
                Some(Some(record)) => {
                    open.shards.insert(
                        n,
                        (Shard::decode(record.bytes()).ok_or(Stop::Corrupt)?, false),
                    );
                }
                Some(None) => return Err(Stop::Corrupt),
                None => missing.push(key),
            }
        }
        if missing.is_empty() {
            Ok(())
        } else {
            Err(Stop::Keys(missing))
        }
    }

    fn put_shards(&mut self, open: &mut Open) {
        let number = open.head.number;
        for (&n, (shard, changed)) in &mut open.shards {
            if std::mem::take(changed) {
                let empty = shard.is_empty();
                if empty && !open.head.has_shard(n) {
                    continue;
                }
                Arc::make_mut(&mut open.head).set_shard(n, !empty);
                let record = (!empty).then(|| shard.encode().into());
                self.records.insert(keys::shard(number, n), record);
            }
        }
    }

    /// The counts of the units around `unit`.
    fn references(&mut self, unit: u64) -> Step<&mut References> {
        let group = unit / REFERENCE_UNITS;
        if self.references.get(&group).is_none() {
            let references = match self.record(keys::references(group))? {
                Some(record) => References::decode(record.bytes()).ok_or(Stop::Corrupt)?,
                None => References::default(),
            };
            self.references.insert(group, (references, false));
        }
        let (references, changed) = self.references.get_mut(&group).expect("just loaded");
        *changed = true;
        Ok(references)
    }

    fn add_reference(&mut self, block: BlockRef) -> Step<()> {
        let at = (block.unit % REFERENCE_UNITS) as u8;
        *self.references(block.unit)?.0.entry(at).or_insert(1) += 1;
        Ok(())
    }

    /// Removes one reference; the last one frees the unit.
    fn drop_reference(&mut self, block: BlockRef) -> Step<()> {
        if block.is_hole() {
            return Ok(());
        }
        if block.shared {
            let at = (block.unit % REFERENCE_UNITS) as u8;
            let counts = &mut self.references(block.unit)?.0;
            match counts.get_mut(&at) {
                Some(count) if *count > 2 => {
                    *count -= 1;
                    return Ok(());
                }
                Some(_) if !crate::mutant(crate::Mutant::ReferencedFreed) => {
                    counts.remove(&at);
                    return Ok(());
                }
                Some(_) => drop(counts.remove(&at)),
                None => {}
            }
        }
        self.deferred.remove(&block.unit);
        self.beside.remove(&block.unit);
        match self.out.change.freed.last_mut() {
            Some((unit, count)) if *unit + u64::from(*count) == block.unit => *count += 1,
            _ => self.out.change.freed.push((block.unit, 1)),
        }
        Ok(())
    }

    /// Takes units near `near`; for a small object, without moving the cursor.
    fn take_units(
        &mut self,
        count: u64,
        near: u64,
        small: bool,
    ) -> Step<impl Iterator<Item = u64> + use<>> {
        let allocator = &mut self.world.allocator;
        let runs = if small {
            allocator.take_small(count, near)
        } else {
            allocator.take(count, near).map(Runs::from)
        };
        let runs = runs.ok_or(Stop::NoSpace)?;
        self.out.change.allocated.extend_from_slice(&runs);
        if let Some(&(unit, length)) = runs.last().filter(|_| !small) {
            self.out.cursor = unit + u64::from(length);
        }
        Ok(runs
            .into_iter()
            .flat_map(|(unit, length)| unit..unit + u64::from(length)))
    }

    fn finish(&mut self) -> Step<()> {
        let mut counts: BTreeMap<CollectionId, i64> = BTreeMap::new();
        for (object, slot) in std::mem::take(&mut self.objects).into_row() {
            let delta = i64::from(slot.open.is_some()) - i64::from(slot.existed);
            if delta != 0 {
                *counts.entry(object.collection).or_default() += delta;
            }
            let omap = slot.open.as_ref().and_then(|open| open.omap());
            if slot.omap.or(omap).is_some() {
                self.out.omaps.push((object, omap));
            }
            if !slot.changed {
                continue;
            }
            match slot.open {
                Some(mut open) => {
                    self.put_shards(&mut open);
                    self.records.insert(slot.key, Some(open.head.into()));
                }
                None if slot.existed => self.records.insert(slot.key, None),
                None => {}
            }
        }
        for (&group, (references, changed)) in self.references.iter() {
            if *changed {
                let value = (!references.0.is_empty()).then(|| references.encode().into());
                self.records.insert(keys::references(group), value);
            }
        }
        let mut ids: Vec<CollectionId> = counts
            .iter()
            .filter(|(_, d)| **d != 0)
            .map(|(&id, _)| id)
            .collect();
        ids.extend(self.collections.iter().map(|(id, _)| id));
        for id in ids {
            let before = self.world.collections.get(&id);
            let now = match self.collections.get(&id) {
                Some(false) => None,
                _ => Some(before.map_or(0, |&c| c as i64) + counts.get(&id).copied().unwrap_or(0)),
            };
            let now = now.map(|count| {
                u64::try_from(count).expect("a collection has no fewer than no objects")
            });
            if now != before.copied() {
                self.records.insert(
                    keys::collection(id),
                    now.map(|n| Bytes::copy_from_slice(&n.to_le_bytes()).into()),
                );
                self.out.collections.insert(id, now);
            }
        }
        let change = &mut self.out.change;
        change.next_number = self.world.next_number;
        change.records = std::mem::take(&mut self.records).into_row();
        let deferred = std::mem::take(&mut self.deferred).into_row();
        change.blocks = deferred.iter().map(|&(unit, _)| unit).collect();
        self.out.payload = deferred.into_iter().map(|(_, data)| data).collect();
        for (unit, (data, crc)) in std::mem::take(&mut self.beside).into_row() {
            change.beside.push((unit, crc));
            self.out.beside.push(data);
        }
        Ok(())
    }
}

/// The first block touched by a range and the first block after it.
fn block_range(offset: u64, end: u64) -> (u64, u64) {
    (offset / BLOCK_U64, end.div_ceil(BLOCK_U64))
}

/// Whether an object's data may be inline in its head.
fn fits_inline(end: u64) -> bool {
    end <= INLINE_MAX as u64
}
