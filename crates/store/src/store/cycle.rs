//! Cycles: write-back of deferred blocks, and the merge of the memtable into the index.
//!
//! ```text
//!  WaitCommit ──log durable──▶ Writing ──all done──▶ Flushing ──▶ Job ──durable──▶ log cut, memtable dropped
//!   (checkpoint only)            ▲                      └──▶ done (write-back only)
//!                        one per block, elevator order, neighbours joined
//! ```
//! Blocks replaced or freed while they wait are never written back (CEPH-57).

use super::{Purpose, Store};
use crate::alloc::GROUP_UNITS;
use crate::device::{Device, IoKind};
use crate::format::BLOCK_U64;
use crate::format::codec::Put;
use crate::format::keys;
use crate::index::{IndexError, Merged};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

enum State {
    WaitCommit,
    Writing,
    Flushing,
    /// The job is ready to be taken.
    Ready,
    /// The job is running.
    Job,
}

/// The index's state besides records of objects, as of one position in the log. Record
/// `keys::STATE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StateRecord {
    pub(crate) epoch: u64,
    /// The position where replay starts.
    pub(crate) position: u64,
    /// The number of transactions before it.
    pub(crate) transactions: u64,
    pub(crate) next_number: u64,
    /// The salt of every group of this epoch: see `format::log`.
    pub(crate) salt: u64,
}

impl StateRecord {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(40);
        for number in [
            self.epoch,
            self.position,
            self.transactions,
            self.next_number,
            self.salt,
        ] {
            out.u64(number);
        }
        Bytes::from(out)
    }
    pub(crate) fn decode(record: &Bytes) -> Option<Self> {
        let mut take = crate::format::codec::Take::new(record.clone());
        let (epoch, position, transactions) = (take.u64()?, take.u64()?, take.u64()?);
        let state = Self {
            epoch,
            position,
            transactions,
            next_number: take.u64()?,
            salt: take.u64()?,
        };
        take.is_empty().then_some(state)
    }
}

/// The runs, of some that are sorted and disjoint, that overlap an allocation group.
fn near<C: Copy + Into<u64>>(runs: &[(u64, C)], group: u32) -> impl Iterator<Item = (u64, u64)> {
    let base = u64::from(group) * GROUP_UNITS;
    let from = runs.partition_point(|&(unit, count)| {
        if crate::mutant(crate::Mutant::NearForgetsFirst) {
            unit < base
        } else {
            unit + count.into() <= base
        }
    });
    let near = runs[from..]
        .iter()
        .take_while(move |&&(unit, _)| unit < base + GROUP_UNITS);
    near.map(|&(unit, count)| (unit, count.into()))
}

/// First unit, content, and unit and transaction of each block.
type Run = (u64, Vec<Bytes>, Vec<(u64, u64)>);

/// A checkpoint's contents besides the frozen memtable.
struct Checkpoint {
    /// The last transaction in it.
    last: u64,
    state: StateRecord,
    extra: Vec<(Bytes, Option<Bytes>)>,
    /// It commits the transaction that bypassed the log.
    past_log: bool,
}

pub(super) struct Cycle {
    state: State,
    checkpoint: Option<Checkpoint>,
    /// Runs still to be written: first unit and count.
    todo: VecDeque<(u64, u64)>,
    in_flight: usize,
    written: Vec<(u64, u64)>,
    /// The checkpoint may become durable only after this transaction: a block of the checkpoint
    /// that was replaced or freed before it was written back exists only in the part of the log
    /// that the checkpoint truncates. Once the transaction that replaced it is durable, replay does
    /// not need the block.
    needs: u64,
}

impl Cycle {
    /// Whether it may have writes in flight, or start some.
    pub(super) fn is_writing(&self) -> bool {
        matches!(self.state, State::Writing | State::Flushing)
    }
}

impl<D: Device> Store<D> {
    /// Whether applying must wait for a checkpoint or write-back to catch up; makes sure that one
    /// begins.
    pub(super) fn must_stall(&mut self) -> bool {
        let full = self.tables.active.bytes() > 2 * self.limits.memtable_bytes
            || self.tables.active.count() > 2 * self.limits.memtable_records
            || self.pending.deferred > 2 * self.limits.deferred_blocks;
        self.usage.borders.stalls += u64::from(full && !self.stalled);
        let full = full && !crate::mutant(crate::Mutant::StallIgnored);
        self.stalled |= full;
        // Nothing else is applied together with a transaction that bypasses the log.
        full || self.past_log && (!self.building.is_empty() || self.group.is_some())
    }

    fn checkpoint_is_due(&self) -> bool {
        self.stalled
            || self.wants_checkpoint
            || self.tables.leftovers.count() > 0
            || self.head - self.tail > self.layout.wal_length / 2
            || self.tables.active.bytes() > self.limits.memtable_bytes
            || self.tables.active.count() > self.limits.memtable_records
    }

    /// At a group's start everything applied is in the log or in this group: the memtable is a
    /// consistent state of the store.
    pub(super) fn maybe_freeze(&mut self) {
        let empty = self.head == self.tail && self.tables.leftovers.count() == 0;
        if self.cycle.is_none() && self.checkpoint_is_due() && !empty {
            let (active, limits, borders) =
                (&self.tables.active, &self.limits, &mut self.usage.borders);
            borders.half_log += u64::from(self.head - self.tail > self.layout.wal_length / 2);
            borders.memtable_bytes += u64::from(active.bytes() > limits.memtable_bytes);
            borders.memtable_records += u64::from(active.count() > limits.memtable_records);
            self.freeze(false);
        }
    }

    /// Begins a checkpoint of everything applied. `past_log`: it also commits the group in flight,
    /// which is not in the log.
    pub(super) fn freeze(&mut self, past_log: bool) {
        assert!(
            self.building.is_empty() && self.cycle.is_none(),
            "frozen only between groups"
        );
        let state = StateRecord {
            epoch: self.epoch,
            position: self.head,
            transactions: self.applied,
            next_number: self.next_number,
            salt: self.salt,
        };
        let chunks = self.index.backend().units();
        let groups = std::mem::take(&mut self.dirty_groups);
        let mut extra: Vec<(Bytes, Option<Bytes>)> = Vec::with_capacity(groups.len() + 1);
        // The index records a waiting unit as free: the transactions that freed it are in this
        // checkpoint.
        let mut waiting: Vec<(u64, u64)> = self
            .waiting
            .iter()
            .flat_map(|w| w.runs.iter().map(|&(unit, count)| (unit, count.into())))
            .collect();
        if !crate::mutant(crate::Mutant::DiscardTakenInCheckpoint) {
            waiting.extend(self.discards.in_flight());
        }
        if crate::mutant(crate::Mutant::WaitingTakenInCheckpoint) {
            waiting.clear();
        }
        waiting.sort_unstable();
        let allocator = self.allocator.lock();
        for group in groups {
            let own = [
                (0, self.layout.first_unit()),
                (self.layout.units(), u64::MAX - self.layout.units()),
            ];
            let except = own
                .into_iter()
                .chain(near(&chunks, group))
                .chain(near(&waiting, group));
            let record = allocator.encode_group(group, except);
            extra.push((keys::bitmap(group), record.map(Bytes::from)));
        }
        drop(allocator);
        extra.push((Bytes::from_static(keys::STATE), Some(state.encode())));
        let mut frozen = std::mem::take(&mut self.tables.active);
        frozen.settle();
        self.tables.frozen = Some(Arc::new(frozen));
        self.wants_checkpoint = false;
        // A transaction that bypassed the log was alone: there is nothing in the log to be written
        // back.
        let first = if past_log {
            State::Ready
        } else {
            State::WaitCommit
        };
        self.start_cycle(
            first,
            Some(Checkpoint {
                last: self.applied,
                state,
                extra,
                past_log,
            }),
        );
    }

    fn start_cycle(&mut self, state: State, checkpoint: Option<Checkpoint>) {
        self.cycles += 1;
        self.cycle = Some(Cycle {
            state,
            checkpoint,
            todo: VecDeque::new(),
            in_flight: 0,
            written: Vec::new(),
            needs: 0,
        });
    }

    /// Starts a cycle if one is due, and advances it.
    pub(super) fn drive_cycle(&mut self) {
        if self.cycle.is_none() && self.group.is_none() && self.building.is_empty() {
            // Nothing is between the log and the memtable: it can be frozen without waiting for a
            // group.
            self.maybe_freeze();
        }
        self.drive_past_log();
        let many = self.pending.deferred > self.limits.deferred_blocks || self.resting;
        if self.cycle.is_none() && many && self.planned_at != self.committed {
            // Once per commit: if all of them wait for the log, there is nothing to write yet.
            self.planned_at = self.committed;
            let runs = self.write_back_runs();
            if !runs.is_empty() {
                self.usage.borders.deferred_bytes +=
                    u64::from(self.pending.deferred > self.limits.deferred_blocks);
                self.start_cycle(State::Writing, None);
                self.cycle.as_mut().expect("just started").todo = runs;
            }
        }
        let Some(cycle) = &mut self.cycle else { return };
        if matches!(cycle.state, State::WaitCommit)
            && cycle
                .checkpoint
                .as_ref()
                .is_some_and(|c| c.last <= self.committed)
        {
            let runs = self.write_back_runs();
            let needs = self.applied;
            let cycle = self.cycle.as_mut().expect("just looked at");
            cycle.state = State::Writing;
            cycle.todo = runs;
            cycle.needs = needs;
        }
        self.write_back_more();
    }

    /// The blocks that are durable in the log but not at their place, in order of place.
    fn write_back_runs(&mut self) -> VecDeque<(u64, u64)> {
        let (mut runs, mut cut): (VecDeque<(u64, u64)>, u64) = (VecDeque::new(), 0);
        let due = self
            .pending
            .by_unit
            .iter()
            .filter(|(_, pending)| !pending.beside && pending.transaction <= self.committed);
        let mut units: Vec<u64> = due.map(|(&unit, _)| unit).collect();
        units.sort_unstable();
        for unit in units {
            match runs.back_mut() {
                Some((start, count))
                    if *start + *count == unit && *count < self.limits.write_back_run_blocks =>
                {
                    *count += 1
                }
                last => {
                    cut += u64::from(last.is_some_and(|(start, count)| *start + *count == unit));
                    runs.push_back((unit, 1));
                }
            }
        }
        self.usage.borders.write_back_runs_cut += cut;
        runs
    }

    fn write_back_more(&mut self) {
        loop {
            let Some(cycle) = &mut self.cycle else { return };
            if !matches!(cycle.state, State::Writing) {
                return;
            }
            if cycle.in_flight >= self.limits.write_back_depth {
                self.usage.borders.write_back_waits += u64::from(!cycle.todo.is_empty());
                return;
            }
            // A read that started before the block was overwritten still expects the old content at
            // its place.
            let clear = |&(unit, count): &(u64, u64)| {
                crate::mutant(crate::Mutant::WriteBackUnderReader)
                    || !self.reads.looks_at(unit, count)
            };
            let Some(at) = cycle.todo.iter().position(clear) else {
                self.usage.borders.write_back_after_read += u64::from(!cycle.todo.is_empty());
                if cycle.todo.is_empty() && cycle.in_flight == 0 {
                    cycle.state = State::Flushing;
                    if cycle.written.is_empty() && cycle.checkpoint.is_none() {
                        self.cycle = None;
                    } else {
                        self.io(Purpose::CycleFlush, IoKind::Flush);
                    }
                }
                return;
            };
            let (unit, count) = cycle.todo.remove(at).expect("just found");
            let mut run: Option<Run> = None;
            let mut runs: Vec<Run> = Vec::new();
            for unit in unit..unit + count {
                // Blocks replaced by a transaction that is not durable yet, or freed, are not
                // written back any more.
                let due = self
                    .pending
                    .by_unit
                    .get(&unit)
                    .filter(|p| !p.beside && p.transaction <= self.committed);
                match due {
                    Some(pending) => {
                        let (_, data, blocks) =
                            run.get_or_insert_with(|| (unit, Vec::new(), Vec::new()));
                        data.extend_from_slice(pending.data.segments());
                        blocks.push((unit, pending.transaction));
                    }
                    None => {
                        cycle.needs = self.applied;
                        self.usage.borders.replaced_in_cycle += 1;
                        runs.extend(run.take());
                    }
                }
            }
            runs.extend(run);
            cycle.in_flight += runs.len();
            for (unit, data, blocks) in runs {
                self.usage.blocks_written_back += blocks.len() as u64;
                self.io(
                    Purpose::WriteBack { blocks },
                    IoKind::Write {
                        offset: unit * BLOCK_U64,
                        data,
                    },
                );
            }
        }
    }

    pub(super) fn written_back(&mut self, blocks: Vec<(u64, u64)>) {
        let cycle = self
            .cycle
            .as_mut()
            .expect("write-backs belong to the cycle under way");
        cycle.in_flight -= 1;
        cycle.written.extend(blocks);
    }

    pub(super) fn cycle_flushed(&mut self) {
        let cycle = self
            .cycle
            .as_mut()
            .expect("the flush belongs to the cycle under way");
        for (unit, transaction) in std::mem::take(&mut cycle.written) {
            self.pending.settled(unit, transaction);
        }
        match cycle.checkpoint {
            Some(_) => cycle.state = State::Ready,
            None => self.cycle = None,
        }
    }

    /// The input of the checkpoint's job, once.
    pub(super) fn take_checkpoint(&mut self) -> Option<super::lookup::CheckpointWork> {
        let cycle = self.cycle.as_mut()?;
        if !matches!(cycle.state, State::Ready)
            || self.committed < cycle.needs && !crate::mutant(crate::Mutant::NeedsIgnored)
        {
            return None;
        }
        cycle.state = State::Job;
        let checkpoint = cycle
            .checkpoint
            .as_mut()
            .expect("only checkpoints become ready");
        let frozen = self
            .tables
            .frozen
            .clone()
            .expect("frozen with the checkpoint");
        Some(super::lookup::CheckpointWork {
            index: self.index.clone(),
            frozen,
            leftovers: self
                .tables
                .leftovers
                .ranges()
                .map(|(from, to)| (from.clone(), to.clone()))
                .collect(),
            extra: std::mem::take(&mut checkpoint.extra),
            batch_max: self.limits.index_batch_max,
            removals_max: self.limits.removals_max,
            atomic: checkpoint.past_log,
        })
    }

    pub(super) fn checkpointed(&mut self, result: Result<Merged, IndexError>) {
        let merged = match result {
            Ok(merged) => merged,
            Err(error) => return self.fail_index(error),
        };
        let cycle = self
            .cycle
            .take()
            .expect("a checkpoint that comes back was sent");
        let checkpoint = cycle
            .checkpoint
            .expect("a cycle with a job has a checkpoint");
        self.tail = checkpoint.state.position;
        let frozen = self.tables.begin_leaving();
        self.tables.indexed_numbers = checkpoint.state.next_number;
        // Running lookups may have read the index before this; their results could be older than
        // records that memory has just dropped.
        self.lookups.checkpointed(&frozen);
        self.tables.staged.clear();
        self.tables.set_leftovers(&merged.leftovers);
        self.omaps.clear();
        if !crate::mutant(crate::Mutant::WeightsKept) {
            self.weights.clear();
        }
        if let Some(filling) = &mut self.filling {
            filling.found = None;
        }
        self.usage.checkpoints += 1;
        self.usage.borders.index_batches += merged.batches - 1;
        self.usage.borders.removals_left += u64::from(!merged.leftovers.is_empty());
        self.usage.borders.scattered_chunks = self.index.backend().scattered();
        self.look_at_index(merged.bytes);
        self.discards.checkpointed();
        self.discards.freed(self.allocator.lock().take_left());
        if checkpoint.past_log {
            self.past_log = false;
            self.group_committed();
        }
    }
}
