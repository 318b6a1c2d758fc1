//! Group commit: the log record and the blocks beside the log, durable, Committed.
//!
//! ```text
//!  small:  Committing ── record and blocks in one operation of the device ─────────────▶ committed
//!
//!             ┌ record to the log ────────┐
//!  Writing ───┤                           ├──all on the device──▶ Flushing ──▶ committed
//!             └ blocks to fresh units ────┘
//! ```
//! A small group is one commit of the device, which may write it past its cache; a large one is
//! written in pieces that several threads handle at the same time, and so is a group of which
//! blocks were written early, since they need the flush.
//!
//! The record contains the checksums of the blocks beside the log, by which replay determines
//! whether the flush was completed (`replay`). One group is in flight at a time; transactions that
//! arrive meanwhile form the next one. So groups become large exactly when the device is slow. If a
//! transaction has many blocks, they are written to their units at once; a few wait for their
//! group, where adjacent blocks form one write.
//!
//! When the store is idle, and before its host stops, a group without transactions marks the *end*
//! of the log. A later group proves that the previous one was flushed: without the mark, damage to
//! the last group would look as if it had never been acknowledged, until the next write.

use super::{Purpose, Store};
use crate::api::{Event, Token};
use crate::device::{Device, IoKind, Run};
use crate::format::checksum::BlockData;
use crate::format::log::{GroupHeader, encode_group, group_length, runs};
use crate::format::{BLOCK, BLOCK_U64};
use crate::tables::Pending;
use bytes::Bytes;
use foldhash::fast::FixedState;
use indexmap::IndexMap;

/// A transaction with this many blocks writes them at once, before its group.
const EARLY_BLOCKS: usize = 16;

/// Applied transactions that are not in a group yet.
#[derive(Default)]
pub(super) struct Building {
    pub(super) meta: Vec<u8>,
    pub(super) payload: Vec<BlockData>,
    /// One per transaction; `None` for a slice of an omap that is copied for the next one.
    pub(super) tokens: Vec<Option<Token>>,
    /// Blocks for fresh units that are written with the group.
    pub(super) beside: IndexMap<u64, BlockData, FixedState>,
    /// Writes of such blocks in flight.
    beside_left: usize,
    /// Such blocks were written before the group.
    early: bool,
}

/// Bytes of records, and transactions, that a new group has memory for, at most.
const ROOM: (usize, usize) = (64 << 10, 256);

impl Building {
    /// The group after this one, which is probably as large: what grows step by step is copied at
    /// each.
    fn next(&self) -> Self {
        let count = self.tokens.len().min(ROOM.1);
        let beside = self.beside.len().min(ROOM.1);
        Self {
            meta: Vec::with_capacity(self.meta.len().min(ROOM.0)),
            tokens: Vec::with_capacity(count),
            beside: IndexMap::with_capacity_and_hasher(beside, FixedState::default()),
            ..Self::default()
        }
    }
    pub(super) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
    pub(super) fn bytes(&self) -> usize {
        self.meta.len() + (self.payload.len() + self.beside.len()) * BLOCK_U64 as usize
    }
}

enum State {
    /// Record and blocks are one operation, which makes them durable.
    Committing,
    /// It is being written: the number of record pieces in flight (two where the ring wraps), and
    /// the blocks beside the log.
    Writing(usize),
    /// Its record is being flushed.
    Flushing,
    /// It bypasses the log: once the blocks beside the log are written, the checkpoint that
    /// contains it begins, or has begun.
    PastLog { begun: bool },
}

/// Whether the last group of the log has no transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum EndMark {
    /// It has none, or there is no group.
    #[default]
    There,
    Missing,
    /// It has some, and an end mark is to be written as soon as the store is idle.
    Wanted,
}

/// A group in flight.
pub(super) struct Group {
    what: Building,
    first: u64,
    state: State,
}

impl<D: Device> Store<D> {
    /// Adds a transaction's blocks for fresh units to the group being built.
    pub(super) fn add_beside(
        &mut self,
        transaction: u64,
        units: &[(u64, u32)],
        blocks: Vec<BlockData>,
    ) {
        self.usage.borders.beside_writes += 1;
        self.usage.beside_bytes += units.len() as u64 * BLOCK_U64;
        let blocks: Vec<(u64, BlockData)> =
            units.iter().map(|&(unit, _)| unit).zip(blocks).collect();
        for (unit, data) in &blocks {
            self.pending.insert(
                *unit,
                Pending {
                    data: data.clone(),
                    transaction,
                    beside: true,
                },
            );
        }
        if blocks.len() >= EARLY_BLOCKS {
            self.building.beside_left += self.write_beside(transaction, &blocks);
            self.building.early = true;
        } else {
            self.building.beside.extend(blocks);
        }
    }

    /// Writes blocks of transactions up to `last`, ascending, to their units; returns the number of
    /// writes.
    fn write_beside(&mut self, last: u64, blocks: &[(u64, BlockData)]) -> usize {
        let most = usize::try_from(self.limits.beside_run_blocks).unwrap_or(usize::MAX);
        let mut writes = 0;
        for run in runs(blocks) {
            for piece in run.chunks(most) {
                let Run { offset, data } = to_units(piece);
                let (unit, count) = (piece[0].0, piece.len() as u64);
                self.io(
                    Purpose::Beside { last, unit, count },
                    IoKind::Write { offset, data },
                );
                writes += 1;
            }
            self.usage.borders.beside_runs_cut += run.len().div_ceil(most) as u64 - 1;
        }
        writes
    }

    /// Blocks of transactions up to `last` are written to their units.
    pub(super) fn beside_written(&mut self, last: u64, unit: u64, count: u64) {
        for unit in unit..unit + count {
            self.pending.settled_beside(unit, last);
        }
        match &mut self.group {
            Some(group) if last < group.first + group.what.tokens.len() as u64 => {
                group.what.beside_left -= 1
            }
            _ => self.building.beside_left -= 1,
        }
        self.flush_written();
    }

    /// Starts a group if one is due.
    pub(super) fn drive_group(&mut self) {
        if self.group.is_some() {
            return;
        }
        let first = self.committed + 1;
        let marks_end = self.building.is_empty();
        let due = if marks_end {
            self.end_mark == EndMark::Wanted && self.can_mark_end()
        } else {
            self.requested >= first || self.stalled || self.past_log
        };
        if !due {
            return;
        }
        self.end_mark = if marks_end {
            EndMark::There
        } else {
            EndMark::Missing
        };
        let next = self.building.next();
        let mut what = std::mem::replace(&mut self.building, next);
        let past_log = self.past_log;
        assert!(
            !past_log || what.meta.is_empty() && what.payload.is_empty(),
            "it is alone"
        );
        let length = if past_log {
            0
        } else {
            group_length(what.meta.len(), what.payload.len())
        };
        let position = self.head;
        self.head += length;
        assert!(
            self.head - self.tail <= self.layout.wal_length,
            "apply admits only what the log can take"
        );
        let last = first + what.tokens.len() as u64 - 1;
        let mut beside: Vec<(u64, BlockData)> =
            std::mem::take(&mut what.beside).into_iter().collect();
        beside.sort_unstable_by_key(|&(unit, _)| unit);
        let small = length as usize + beside.len() * BLOCK <= self.limits.commit_bytes_max;
        let early = what.early && !crate::mutant(crate::Mutant::EarlyUnflushed);
        if small && !early && !past_log && !crate::mutant(crate::Mutant::CommitBeforeFlush) {
            let mut writes = self.record(&mut what, first, position, length);
            writes.extend(runs(&beside).map(to_units));
            let units = beside.iter().map(|&(unit, _)| unit).collect();
            self.usage.borders.small_groups += 1;
            self.io(Purpose::Commit { last, units }, IoKind::Commit { writes });
            self.group = Some(Group {
                what,
                first,
                state: State::Committing,
            });
            return self.maybe_freeze();
        }
        what.beside_left += self.write_beside(last, &beside);
        if past_log {
            self.group = Some(Group {
                what,
                first,
                state: State::PastLog { begun: false },
            });
            return self.drive_past_log();
        }
        let record = self.record(&mut what, first, position, length);
        let pieces = record.len();
        for Run { offset, data } in record {
            self.io(Purpose::Log, IoKind::Write { offset, data });
        }
        self.group = Some(Group {
            what,
            first,
            state: State::Writing(pieces),
        });
        self.maybe_freeze();
    }

    /// Nothing is in flight, and the log has a last group and space for one more.
    pub(super) fn can_mark_end(&self) -> bool {
        let length = self.head - self.tail;
        self.queue.is_empty() && length > 0 && length + group_length(0, 0) <= self.layout.wal_length
    }

    pub(super) fn want_end_mark(&mut self) {
        if self.end_mark == EndMark::Missing && !crate::mutant(crate::Mutant::EndUnmarked) {
            self.end_mark = EndMark::Wanted;
        }
    }

    /// A group's record for the log: two runs if it continues at the ring's beginning.
    fn record(&mut self, what: &mut Building, first: u64, position: u64, length: u64) -> Vec<Run> {
        let (meta, payload) = (
            std::mem::take(&mut what.meta),
            std::mem::take(&mut what.payload),
        );
        let header = GroupHeader {
            epoch: self.epoch,
            salt: self.salt,
            position,
            first,
            ..GroupHeader::default()
        };
        let segments = encode_group(header, meta, &payload);
        let at = position % self.layout.wal_length;
        let until_end = (self.layout.wal_length - at).min(length);
        let pieces = split_at(segments, until_end as usize);
        self.usage.wal_groups += 1;
        self.usage.wal_bytes += length;
        self.usage.borders.log_wraps += pieces.len() as u64 - 1;
        let offsets = [at, 0].map(|at| self.layout.wal_offset + at);
        offsets
            .into_iter()
            .zip(pieces)
            .map(|(offset, data)| Run { offset, data })
            .collect()
    }

    /// Flushes the group in flight once all of it is written.
    fn flush_written(&mut self) {
        let Some(group) = &mut self.group else { return };
        let beside = group.what.beside_left == 0 || crate::mutant(crate::Mutant::BesideNotAwaited);
        if beside && matches!(group.state, State::Writing(0)) {
            if crate::mutant(crate::Mutant::CommitBeforeFlush) {
                return self.group_committed();
            }
            group.state = State::Flushing;
            self.io(Purpose::GroupFlush, IoKind::Flush);
        }
    }

    /// A transaction that bypasses the log is committed by its checkpoint, which flushes all
    /// completed writes before it reports completion.
    pub(super) fn drive_past_log(&mut self) {
        if let Some(group) = &mut self.group
            && let State::PastLog {
                begun: begun @ false,
            } = &mut group.state
            && group.what.beside_left == 0
            && self.cycle.is_none()
        {
            *begun = true;
            self.freeze(true);
        }
    }

    pub(super) fn log_written(&mut self) {
        let group = self
            .group
            .as_mut()
            .expect("a log write belongs to the group under way");
        if let State::Writing(left) = &mut group.state {
            *left -= 1;
        }
        self.flush_written();
    }

    /// The group in flight is durable, with all of its blocks.
    pub(super) fn group_written(&mut self, last: u64, units: &[u64]) {
        for &unit in units {
            self.pending.settled_beside(unit, last);
        }
        self.group_committed();
    }

    /// The group in flight is durable.
    pub(super) fn group_committed(&mut self) {
        let group = self
            .group
            .take()
            .expect("a flush belongs to the group under way");
        self.last_group = group.what.tokens.len();
        self.committed += self.last_group as u64;
        let before = self.events.len();
        self.events.extend(
            group
                .what
                .tokens
                .into_iter()
                .flatten()
                .map(Event::Committed),
        );
        self.usage.committed += (self.events.len() - before) as u64;
    }
}

/// The write of adjacent blocks to their units.
fn to_units(blocks: &[(u64, BlockData)]) -> Run {
    Run {
        offset: blocks[0].0 * BLOCK_U64,
        data: blocks
            .iter()
            .flat_map(|(_, data)| data.segments().iter().cloned())
            .collect(),
    }
}

/// Splits segments at a byte; the second part is omitted if empty.
fn split_at(segments: Vec<Bytes>, at: usize) -> Vec<Vec<Bytes>> {
    let (mut first, mut second, mut left) = (Vec::with_capacity(segments.len()), Vec::new(), at);
    for mut segment in segments {
        if left == 0 {
            second.push(segment);
        } else if segment.len() <= left {
            left -= segment.len();
            first.push(segment);
        } else {
            first.push(segment.split_to(left));
            left = 0;
            second.push(segment);
        }
    }
    if second.is_empty() {
        vec![first]
    } else {
        vec![first, second]
    }
}
