//! [`Store`]: the object store on a device.
//!
//! ```text
//!            ┌ queue ┐ attempt ┌ building ┐ commit ┌ group ┐ flush
//!  submit ──▶│ t5 t4 │────────▶│  t3 t2   │─────▶│  t1   │──────▶ Committed(t1)
//!            └───────┘         └──────────┘      └───────┘
//!                │ a record is missing: a lookup job       ┌──────────────── cycle ─────────────────┐
//!                ▼                                         │ write back ─▶ flush ─▶ checkpoint job  │
//!          cache, memtables ◀── index ◀────────────────────┴────────────────────────────────────────┘
//! ```
//! * A transaction is *applied* when an attempt succeeds ([`crate::apply`]): reads see it, and it
//!   is in `building`.
//! * A *group* is everything in `building` at a `request_commit` (a request to commit): one log
//!   write, and the blocks for fresh units beside the log, under one flush ([`commit`]).
//! * Transactions that the log is too small for bypass it: once the log is empty, their data goes
//!   to fresh units and their records into the index in one transaction of redb, which commits it.
//!   An omap is cloned in steps beforehand ([`filling`]).
//! * A *cycle* ([`cycle`]) writes blocks that are only in the log to their place (write-back). When
//!   the log or the memtable has filled up, it also freezes the memtable and hands it to a job that
//!   merges it into the index (checkpoint); then that part of the log is free.
//!
//! Invariants (positions in the log: `tail ≤ committed ≤ head`, `head - tail ≤ ring`):
//! 1. Nothing is reported committed before the flush that follows its log write and its blocks
//!    beside the log has succeeded (`commit`).
//! 2. A block is written in place only after the log holding its new content is durable (`cycle`).
//! 3. A freed unit is reused only when the freeing transaction is committed, no read that may use
//!    it is in flight, and no write to it is in flight ([`Store::release`]).
//! 4. The log is truncated only up to the contents of a durable checkpoint, and after its blocks
//!    are at their place.
//!
//! CPU budget of a warm 4 KiB overwrite, submit to committed, without system calls: 5 µs.
//!
//! | step | budget |
//! | --- | --- |
//! | checksum of the block, twice (block, log group) | 0.2 µs |
//! | head: look up, decode, encode | 1.5 µs |
//! | memtable, cache, pending block | 1.8 µs |
//! | log record, group, events | 1.0 µs |
//! | write-back, coalesced | 0.5 µs |

mod commit;
mod cycle;
mod discards;
mod filling;
mod invariants;
mod lookup;
mod plain;
mod reading;
mod room;
pub use room::INDEX_COST;

use crate::alloc::Runs;
use crate::api::{
    CollectionId, Event, Job, JobDone, ObjectStore, Op, Read, StoreFailure, SubmitError, Token,
    Transaction, Usage,
};
use crate::apply::{Attempt, Stop, World};
use crate::device::{Device, DeviceError, Io, IoDone, IoId, IoKind};
use crate::format::BLOCK_U64;
use crate::format::keys;
use crate::format::log::{Change, group_length};
use crate::format::root::Layout;
use crate::format::value::Value;
use crate::index::space::Space;
use crate::index::{Index, IndexError};
use crate::job::Outcome;
use crate::open::Limits;
use crate::tables::{Pending, PendingBlocks, Tables};
use bytes::Bytes;
use commit::{Building, EndMark, Group};
use cycle::Cycle;
pub(crate) use cycle::StateRecord;
use discards::Discards;
use filling::Filling;
use lookup::Lookups;
pub(crate) use lookup::ScanFor;
use reading::Reads;
use room::{Measure, Promise};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Heads of a checkpointed memtable that move into the cache at each request to commit, and twice
/// as many as its transactions if that is more: all have moved before the next checkpoint, and no
/// group of the log waits for all of them.
const LEAVE_AT_KICK: usize = 64;

/// The purpose of an operation on the device.
#[derive(Clone, Debug)]
enum Purpose {
    /// All of a group: its transactions up to this one, and its blocks for fresh units.
    Commit {
        last: u64,
        units: Vec<u64>,
    },
    Log,
    GroupFlush,
    /// Blocks of transactions up to this one for these units.
    Beside {
        last: u64,
        unit: u64,
        count: u64,
    },
    /// Part of a read's answer.
    Read {
        read: u64,
        part: usize,
    },
    /// Old content for a partial overwrite by the transaction that follows `applied`, and its
    /// expected checksum.
    Old {
        unit: u64,
        crc: u32,
        applied: u64,
    },
    /// Blocks written back to their place: unit and transaction of each.
    WriteBack {
        blocks: Vec<(u64, u64)>,
    },
    CycleFlush,
    /// The number of units from there on.
    Discard {
        unit: u64,
        count: u32,
    },
}

/// Freed units that may not be reused yet.
#[derive(Debug)]
struct Waiting {
    transaction: u64,
    runs: Runs,
    /// Reads before this number may use them.
    reads: u64,
    /// This cycle may be writing to them.
    cycle: Option<u64>,
}

/// A submitted transaction that is not applied yet.
struct Queued {
    token: Token,
    transaction: Transaction,
    size: usize,
    promise: Promise,
}

/// An object store on a device; see the module head. Created by [`Store::open`].
pub struct Store<D> {
    device: D,
    layout: Layout,
    limits: Limits,
    index: Index,
    tables: Tables,
    pending: PendingBlocks,
    allocator: Space,
    waiting: VecDeque<Waiting>,
    collections: BTreeMap<CollectionId, u64>,
    /// The collections after all submitted transactions are applied.
    known_collections: BTreeSet<CollectionId>,
    dirty_groups: BTreeSet<u32>,
    next_number: u64,
    cursor: u64,
    /// Bytes that the index can grow by inside its chunks, as of the last checkpoint.
    index_spare: u64,
    /// Index bytes of the objects of transactions being weighed, as of the last checkpoint.
    weights: BTreeMap<u64, u64>,
    /// A transaction was refused until the records of the objects that it clones have been looked
    /// up: they are kept until it is submitted again.
    weighing: bool,
    discards: Discards,
    /// A transaction was refused for lack of space that a checkpoint may free.
    wants_checkpoint: bool,

    queue: VecDeque<Queued>,
    queue_bytes: usize,
    /// The space that the queue may need.
    promised: Promise,
    old_blocks: BTreeMap<u64, (Bytes, bool)>,
    /// Omaps to be cloned; `None`: too large for one piece.
    omaps: BTreeMap<u64, Option<Vec<(Bytes, Bytes)>>>,
    /// An omap is being copied for the next transaction.
    filling: Option<Filling>,
    /// Omaps copied for the next transaction: the copy's number by the index of the operation.
    filled: BTreeMap<usize, u64>,
    /// The next transaction, or the one just applied, bypasses the log.
    past_log: bool,
    submitted: u64,
    applied: u64,
    committed: u64,
    requested: u64,

    epoch: u64,
    salt: u64,
    head: u64,
    tail: u64,
    building: Building,
    group: Option<Group>,
    /// The number of transactions in the previous group.
    last_group: usize,
    end_mark: EndMark,
    cycle: Option<Cycle>,
    cycles: u64,
    /// The store is idle: blocks that wait in the log may be written back.
    resting: bool,
    /// `committed` when blocks to write back were last searched for.
    planned_at: u64,
    /// Applying waits for log space or memory; only a checkpoint frees them.
    stalled: bool,

    lookups: Lookups,
    reads: Reads,
    ios: BTreeMap<u64, Purpose>,
    next_io: u64,
    done: Vec<IoDone>,
    events: Vec<Event>,
    failed: bool,
    usage: Usage,
}

/// The state that [`Store::open`] recovered.
pub(crate) struct Recovered {
    pub(crate) layout: Layout,
    pub(crate) limits: Limits,
    pub(crate) index: Index,
    pub(crate) allocator: Space,
    pub(crate) collections: BTreeMap<CollectionId, u64>,
    pub(crate) state: StateRecord,
    pub(crate) leftovers: Vec<(Bytes, Bytes)>,
    /// Bytes of all records of the index.
    pub(crate) index_bytes: u64,
}

impl<D: Device> Store<D> {
    pub(crate) fn resume(device: D, from: Recovered) -> Self {
        let first_unit = from.layout.first_unit();
        let mut store = Self {
            device,
            layout: from.layout,
            tables: Tables::new(from.limits.cache_bytes, from.state.next_number),
            pending: PendingBlocks::default(),
            allocator: from.allocator,
            waiting: VecDeque::new(),
            known_collections: from.collections.keys().copied().collect(),
            collections: from.collections,
            dirty_groups: BTreeSet::new(),
            next_number: from.state.next_number,
            cursor: first_unit,
            index_spare: 0,
            weights: BTreeMap::new(),
            weighing: false,
            discards: Discards::default(),
            wants_checkpoint: false,
            queue: VecDeque::new(),
            queue_bytes: 0,
            promised: Promise::default(),
            old_blocks: BTreeMap::new(),
            omaps: BTreeMap::new(),
            filling: None,
            filled: BTreeMap::new(),
            past_log: false,
            submitted: from.state.transactions,
            applied: from.state.transactions,
            committed: from.state.transactions,
            requested: from.state.transactions,
            epoch: from.state.epoch,
            salt: from.state.salt,
            head: from.state.position,
            tail: from.state.position,
            building: Building::default(),
            group: None,
            last_group: 0,
            end_mark: EndMark::default(),
            cycle: None,
            cycles: 0,
            resting: false,
            planned_at: 0,
            stalled: false,
            lookups: Lookups::default(),
            reads: Reads::default(),
            ios: BTreeMap::new(),
            next_io: 0,
            done: Vec::new(),
            events: Vec::new(),
            failed: false,
            usage: Usage::default(),
            index: from.index,
            limits: from.limits,
        };
        store.tables.set_leftovers(&from.leftovers);
        store.look_at_index(from.index_bytes);
        store
    }

    fn io(&mut self, purpose: Purpose, kind: IoKind) {
        let id = self.next_io;
        self.next_io += 1;
        self.ios.insert(id, purpose);
        self.usage.flushes += u64::from(matches!(kind, IoKind::Flush | IoKind::Commit { .. }));
        self.device.submit(Io { id: IoId(id), kind });
    }

    fn fail(&mut self, failure: StoreFailure) {
        if !self.failed {
            self.failed = true;
            self.events.push(Event::Failed(failure));
        }
    }

    fn fail_index(&mut self, error: IndexError) {
        self.fail(match error {
            IndexError::Device(error) => StoreFailure::Device(error),
            IndexError::Corrupt => StoreFailure::IndexCorrupt,
            IndexError::Full => StoreFailure::IndexFull,
        });
    }

    fn check_collections(&self, transaction: &Transaction) -> Result<(), SubmitError> {
        let mut changed: BTreeMap<CollectionId, bool> = BTreeMap::new();
        // Most operations are on the same collection as the previous one.
        let mut found = None;
        for op in &transaction.ops {
            match op {
                Op::CreateCollection(id) => drop(changed.insert(*id, true)),
                Op::RemoveCollection(id) => {
                    changed.insert(*id, false);
                    found = None;
                }
                _ => {}
            }
            for object in op.objects() {
                let id = object.collection;
                if found.replace(id) == Some(id) {
                    continue;
                }
                if !changed
                    .get(&id)
                    .copied()
                    .unwrap_or_else(|| self.known_collections.contains(&id))
                {
                    return Err(SubmitError::NoCollection(id));
                }
            }
        }
        Ok(())
    }

    /// Applies queued transactions as far as possible, in order.
    fn apply_queue(&mut self) {
        while !self.queue.is_empty() && !self.failed && !self.must_stall() {
            if self.filling.is_some() && !self.fill() {
                return;
            }
            if self.limits.plain && self.apply_plain() {
                continue;
            }
            let is_alone = self.is_alone();
            let queued = self.queue.front().expect("not empty");
            let mut allocator = self.allocator.lock();
            let world = World {
                tables: &mut self.tables,
                pending: &self.pending,
                allocator: &mut allocator,
                collections: &self.collections,
                next_number: self.next_number,
                old_blocks: &self.old_blocks,
                omaps: &self.omaps,
                filled: &self.filled,
                cursor: self.cursor,
                deferred_write_max: self.limits.deferred_write_max,
                small_object_max: self.limits.small_object_max,
                is_alone,
                // A transaction that bypasses the log has no payload in it.
                deferred_transaction_max: if self.past_log {
                    0
                } else {
                    self.limits.deferred_transaction_max
                },
            };
            let Queued {
                token,
                size,
                promise,
                ..
            } = *queued;
            let tried = Attempt::run(world, &queued.transaction, promise.units * BLOCK_U64);
            drop(allocator);
            match tried {
                Ok(applied) => {
                    if !self.past_log && !self.log(&applied.change, applied.payload.len()) {
                        self.give_back(&applied.change.allocated);
                        if self.tail == self.head
                            && self.building.is_empty()
                            && self.cycle.is_none()
                        {
                            // Even the empty log is too small: the transaction bypasses it.
                            self.past_log = true;
                            self.usage.borders.past_log += 1;
                            continue;
                        }
                        self.usage.borders.log_full += 1;
                        self.stalled = true;
                        return;
                    }
                    let by_log = promise.units * BLOCK_U64 > self.limits.deferred_transaction_max;
                    self.usage.borders.beside_transactions += u64::from(by_log && !self.past_log);
                    let queued = self.queue.pop_front().expect("just looked at");
                    self.taken(size, promise);
                    if !applied.poisoned.is_empty() && !crate::mutant(crate::Mutant::LossUntold) {
                        let lost = applied.poisoned_objects(&queued.transaction);
                        self.events.extend(
                            lost.into_iter()
                                .map(|object| Event::Lost(token, object.clone())),
                        );
                    }
                    self.adopt(token, applied);
                }
                Err(Stop::Keys(keys)) => return self.lookups.want_keys(keys),
                Err(Stop::Omap(number)) => {
                    return self
                        .lookups
                        .want_omap(number, self.limits.clone_slice_bytes);
                }
                Err(Stop::Fill { op, number }) => self.start_filling(op, number),
                Err(Stop::Blocks(blocks)) => return self.load_old_blocks(blocks),
                Err(Stop::Missing(keys, blocks)) => {
                    if !keys.is_empty() {
                        self.lookups.want_keys(keys);
                    }
                    return self.load_old_blocks(blocks);
                }
                Err(Stop::NoSpace) => {
                    if self.is_settled() {
                        return self.fail(StoreFailure::IndexFull);
                    }
                    // Reserved units may still wait for commits and readers.
                    self.stalled = true;
                    return;
                }
                Err(Stop::Corrupt) => return self.fail(StoreFailure::IndexCorrupt),
                Err(Stop::NotEmpty(id)) => return self.fail(StoreFailure::CollectionNotEmpty(id)),
            }
        }
    }

    /// Whether a transaction that is applied now will have its group to itself.
    fn is_alone(&self) -> bool {
        self.last_group.max(self.building.tokens.len()) < self.limits.beside_group_min
    }

    /// A transaction has left the queue.
    fn taken(&mut self, size: usize, promise: Promise) {
        self.promised.units -= promise.units;
        self.promised.index -= promise.index;
        self.queue_bytes -= size;
    }

    /// Adds a change to the group being built, if the log has space for it.
    fn log(&mut self, change: &Change, blocks: usize) -> bool {
        let mut meta = std::mem::take(&mut self.building.meta);
        let start = meta.len();
        change.encode_into(&mut meta);
        let blocks = self.building.payload.len() + blocks;
        let fits =
            self.head - self.tail + group_length(meta.len(), blocks) <= self.layout.wal_length;
        if !fits {
            meta.truncate(start);
        }
        self.building.meta = meta;
        fits
    }

    /// Nothing is in progress that could free space when it ends.
    fn is_settled(&self) -> bool {
        self.waiting.is_empty()
            && self.building.is_empty()
            && self.group.is_none()
            && self.cycle.is_none()
            && self.discards.is_idle()
            && self.head == self.tail
    }

    fn give_back(&mut self, runs: &[(u64, u32)]) {
        let mut allocator = self.allocator.lock();
        for &(unit, count) in runs {
            assert!(allocator.give_range(unit, count.into()), "it was taken");
        }
    }

    /// Makes an attempt's result visible.
    fn adopt(&mut self, token: Token, applied: crate::apply::Applied) {
        self.applied += 1;
        let transaction = self.applied;
        let change = applied.change;
        self.next_number = change.next_number;
        self.cursor = applied.cursor;
        self.usage.payload_bytes_copied += applied.inline_bytes;
        self.usage.blocks_poisoned += applied.poisoned.len() as u64;
        for (from, to) in change.ranges {
            self.tables.cache.forget_range(&from, &to);
            self.tables.active.remove_range(from, to);
        }
        for (key, value) in change.records {
            self.set_record(key, value);
        }
        for (object, number) in applied.omaps {
            self.tables.note_omap(object, number);
        }
        for (id, count) in applied.collections {
            match count {
                Some(count) => drop(self.collections.insert(id, count)),
                None => drop(self.collections.remove(&id)),
            }
        }
        for &(unit, count) in change.allocated.iter().chain(&change.freed) {
            self.mark_dirty(unit, count);
        }
        if !applied.beside.is_empty() {
            self.add_beside(transaction, &change.beside, applied.beside);
        }
        for (&unit, data) in change.blocks.iter().zip(&applied.payload) {
            self.pending.insert(
                unit,
                Pending {
                    data: data.clone(),
                    transaction,
                    beside: false,
                },
            );
        }
        if !change.freed.is_empty() {
            self.free_later(transaction, change.freed.into());
        }
        self.building.payload.extend(applied.payload);
        self.applied_one(token);
    }

    fn set_record(&mut self, key: Bytes, value: Option<Value>) {
        match key[0] {
            keys::TAG_HEAD => {}
            keys::TAG_SHARD | keys::TAG_REFERENCES => self.tables.cache.set(&key, value.clone()),
            _ => self.tables.cache.update(&key, &value),
        }
        self.tables.active.set(key, value);
    }

    /// A transaction gives these units back, as first and count; others may still need them.
    fn free_later(&mut self, transaction: u64, runs: Runs) {
        for &(unit, count) in &runs {
            for unit in unit..unit + u64::from(count) {
                if !crate::mutant(crate::Mutant::CancelForgotten) {
                    self.pending.cancel(unit);
                }
                // No reader and no replay expects its content there.
                self.building.beside.swap_remove(&unit);
            }
        }
        let cycle = self
            .cycle
            .as_ref()
            .filter(|c| c.is_writing())
            .map(|_| self.cycles);
        let reads = self
            .reads
            .next_id()
            .saturating_sub(u64::from(crate::mutant(crate::Mutant::LastReaderUncounted)));
        self.waiting.push_back(Waiting {
            transaction,
            runs,
            reads,
            cycle,
        });
    }

    /// All of a transaction is visible.
    fn applied_one(&mut self, token: Token) {
        self.building.tokens.push(Some(token));
        self.filled.clear();
        // Clearing an empty tree has a cost.
        if !self.old_blocks.is_empty() {
            self.old_blocks.clear();
        }
        if !self.omaps.is_empty() {
            self.omaps.clear();
        }
        self.events.push(Event::Applied(token));
    }

    fn mark_dirty(&mut self, unit: u64, count: u32) {
        let group = |unit: u64| (unit / crate::alloc::GROUP_UNITS) as u32;
        self.dirty_groups.extend(
            group(unit)..=if crate::mutant(crate::Mutant::DirtyGroupsOfFirst) {
                group(unit)
            } else {
                group(unit + u64::from(count) - 1)
            },
        );
    }

    /// Frees units that are no longer needed (invariant 3).
    fn release(&mut self) {
        while let Some(first) = self.waiting.front() {
            let read_over = crate::mutant(crate::Mutant::FreedUnderReader)
                || self
                    .reads
                    .oldest()
                    .is_none_or(|oldest| oldest >= first.reads);
            let writing = |cycle: u64| {
                self.cycles == cycle && self.cycle.as_ref().is_some_and(Cycle::is_writing)
            };
            if first.transaction > self.committed {
                return;
            }
            let still_written = first.cycle.is_some_and(writing);
            if !read_over || still_written {
                self.usage.borders.freed_after_read += u64::from(!read_over);
                self.usage.borders.freed_after_write += u64::from(still_written);
                return;
            }
            let first = self.waiting.pop_front().expect("just looked at");
            self.give_back(&first.runs);
            let allocator = self.allocator.lock();
            // In the area of small pieces, free units are soon reused.
            self.discards.freed(
                first
                    .runs
                    .into_iter()
                    .filter(|&(unit, _)| !allocator.in_area(unit)),
            );
        }
    }

    fn handle(&mut self, done: IoDone) {
        let Some(purpose) = self.ios.remove(&done.id.0) else {
            return;
        };
        match (purpose, done.result) {
            // Whether or not the host reclaimed the space.
            (Purpose::Discard { unit, count }, _) => self.discarded(unit, count),
            (Purpose::Read { read, part }, result) => self.read_part_done(read, part, result),
            // Its transaction did not need it, and may have freed the unit: its content is not the
            // one that a later transaction overwrites.
            (Purpose::Old { applied, .. }, _) if applied != self.applied => {}
            (Purpose::Old { unit, crc, .. }, result) => {
                let (bytes, whole) = match result {
                    Ok(bytes) => {
                        let whole = crate::format::checksum::crc32c(&bytes) == crc;
                        (bytes, whole)
                    }
                    Err(_) => (Bytes::from_static(&crate::format::ZEROS), false),
                };
                self.old_blocks.insert(unit, (bytes, whole));
            }
            (_, Err(error)) => self.device_failed(error),
            (Purpose::Beside { last, unit, count }, Ok(_)) => {
                self.beside_written(last, unit, count)
            }
            (Purpose::Commit { last, units }, Ok(_)) => self.group_written(last, &units),
            (Purpose::Log, Ok(_)) => self.log_written(),
            (Purpose::GroupFlush, Ok(_)) => self.group_committed(),
            (Purpose::WriteBack { blocks }, Ok(_)) => self.written_back(blocks),
            (Purpose::CycleFlush, Ok(_)) => self.cycle_flushed(),
        }
    }

    /// Processes all operations that have ended on the device.
    fn take_done(&mut self) {
        loop {
            let mut done = std::mem::take(&mut self.done);
            self.device.poll(&mut done);
            let any = !done.is_empty();
            for done in done.drain(..) {
                if !self.failed {
                    self.handle(done);
                }
            }
            self.done = done;
            self.advance();
            if !any {
                break;
            }
        }
    }

    fn device_failed(&mut self, error: DeviceError) {
        // Never retried: after a failed write or flush the device's contents are unknown.
        self.fail(StoreFailure::Device(error));
    }

    fn advance(&mut self) {
        loop {
            if self.failed {
                return;
            }
            let before = (
                self.applied,
                self.committed,
                self.next_io,
                self.reads.next_id(),
                self.cycles,
            );
            self.release();
            self.stalled = false;
            self.apply_queue();
            self.retry_reads();
            self.drive_group();
            self.drive_cycle();
            self.drive_discards();
            if before
                == (
                    self.applied,
                    self.committed,
                    self.next_io,
                    self.reads.next_id(),
                    self.cycles,
                )
            {
                break;
            }
        }
        if !self.tables.staged.is_empty()
            && self.queue.is_empty()
            && self.reads.none_wait()
            && !self.weighing
        {
            self.tables.staged.clear();
        }
    }
}

impl<D: Device> ObjectStore for Store<D> {
    fn offer(&mut self, transaction: &mut Transaction, token: Token) -> Result<(), SubmitError> {
        if self.failed {
            return Err(SubmitError::Failed);
        }
        transaction.validate()?;
        self.check_collections(transaction)?;
        let Measure {
            size,
            logged,
            mut promise,
            clones,
            removes_only,
        } = Measure::of(transaction);
        let most = self.limits.transaction_bytes_max as u64;
        for (size, max) in [
            (size as u64, most),
            (logged as u64, self.logged_bytes_max()),
        ] {
            if size > max {
                self.usage.borders.too_large += 1;
                return Err(SubmitError::TooLarge { size, max });
            }
        }
        // A store with nothing else in flight accepts a single transaction of any size.
        let in_flight = self.queue_bytes + self.building.bytes();
        if in_flight > 0
            && in_flight + size > self.limits.queue_bytes_max
            && !crate::mutant(crate::Mutant::QueueUnbounded)
        {
            self.usage.borders.queue_full += 1;
            return Err(SubmitError::Busy);
        }
        if clones {
            self.weighing = true;
            promise.index += self.weigh_clones(transaction)?;
        }
        self.weighing = false;
        if !removes_only {
            self.admit(promise)?;
        }
        let transaction = std::mem::take(transaction);
        for op in &transaction.ops {
            match op {
                Op::CreateCollection(id) => drop(self.known_collections.insert(*id)),
                Op::RemoveCollection(id) => drop(self.known_collections.remove(id)),
                _ => {}
            }
        }
        self.submitted += 1;
        self.resting = false;
        if self.end_mark == EndMark::Wanted {
            self.end_mark = EndMark::Missing;
        }
        self.promised.units += promise.units;
        self.promised.index += promise.index;
        self.queue_bytes += size;
        self.queue.push_back(Queued {
            token,
            transaction,
            size,
            promise,
        });
        if self.queue.len() == 1 {
            self.apply_queue();
        }
        if let Some(Queued { transaction, .. }) = self.queue.back() {
            // It must wait: let one job fetch everything that the queue will need.
            for object in transaction.ops.iter().flat_map(Op::objects) {
                let key = keys::head(object);
                if self.tables.get(&key).is_none() {
                    self.lookups.want_keys(vec![key]);
                }
            }
        }
        Ok(())
    }

    fn read(&mut self, read: Read, token: Token) {
        if !self.failed {
            self.start_read(read, token);
        }
    }

    fn request_commit(&mut self) {
        let count = self.submitted - self.requested;
        self.tables.leave(LEAVE_AT_KICK.max(2 * count as usize));
        self.requested = self.submitted;
        self.advance();
        // Small writes have ended inside this call: their flush need not wait for the host's next
        // call.
        self.take_done();
    }

    fn rest(&mut self) {
        // A few may stay: a client that writes a block now and then should not cause two writes for
        // each at once.
        self.resting = self.pending.deferred > self.limits.deferred_blocks / 16;
        self.wants_checkpoint |= self.tables.active.bytes() > self.limits.memtable_bytes / 8;
        self.tables.leave(usize::MAX);
        self.want_end_mark();
        self.advance();
    }

    fn mark_end(&mut self) -> bool {
        self.want_end_mark();
        self.advance();
        self.failed
            || self.end_mark == EndMark::There && self.group.is_none()
            || !self.can_mark_end()
    }

    fn poll(&mut self, events: &mut Vec<Event>) {
        self.take_done();
        events.append(&mut self.events);
    }

    fn jobs(&mut self, jobs: &mut Vec<Job>) {
        if !self.failed {
            self.advance();
            self.make_jobs(jobs);
        }
    }

    fn on_job(&mut self, done: JobDone) {
        if self.failed {
            return;
        }
        match done.outcome {
            Outcome::Found {
                generation,
                keys,
                found,
            } => self.found(generation, keys, found),
            Outcome::Scanned {
                generation,
                scan,
                from,
                found,
            } => self.scanned(generation, scan, from, found),
            Outcome::Checkpointed(result) => self.checkpointed(result),
            Outcome::Weighed { number, weight } => self.weighed(number, weight),
        }
        self.advance();
    }

    /// A quarter of the log: its blocks must be written back before the log has space again.
    fn logged_bytes_max(&self) -> u64 {
        self.layout.wal_length / 4
    }

    fn usage(&self) -> Usage {
        let total = self.layout.units() - self.layout.first_unit();
        let (free, allocator_memory) = {
            let allocator = self.allocator.lock();
            (allocator.free(), allocator.memory())
        };
        let memory = self.tables.bytes()
            + self.pending.by_unit.len() * (BLOCK_U64 as usize + 96)
            + self.queue_bytes
            + self.limits.index_cache_bytes;
        Usage {
            total: total * BLOCK_U64,
            used: (total - free - u64::from(self.discards.units())) * BLOCK_U64,
            free: self.available(self.promised, self.owed()),
            memory: memory as u64 + allocator_memory,
            committed: self.usage.committed,
            blocks_cancelled: self.pending.cancelled,
            borders: crate::Borders {
                cache_evictions: self.tables.cache.evictions(),
                ..self.usage.borders
            },
            ..self.usage
        }
    }
}

impl<D: Device> Store<D> {
    /// Whether anything is in progress: operations on the device, work for the log, a checkpoint. A
    /// host that stops cleanly may wait for this to become false; nothing is lost if it does not.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.failed
            && (!self.ios.is_empty()
                || !self.queue.is_empty()
                || !self.building.is_empty()
                || self.group.is_some()
                || self.cycle.is_some()
                || self.tables.leftovers.count() > 0
                || !self.reads.none_wait())
    }
}
