//! Group commit: large writes to fresh units, flush, log record, flush, Committed.
//!
//! ```text
//!  WaitDirect ──all on the device──▶ FlushDirect ──▶ Writing ──▶ Flushing ──▶ committed
//!      └──────────── no large writes in the group ─────▲
//! ```
//! One group is under way at a time; what arrives meanwhile becomes the next one. That is what makes groups large
//! exactly when the device is slow.

use super::{Purpose, Store};
use crate::api::{Event, Token};
use crate::device::{Device, IoKind};
use crate::format::BLOCK_U64;
use crate::format::checksum::BlockData;
use crate::format::log::{GroupHeader, encode_group, group_length};
use crate::tables::Pending;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Applied, not yet in a group.
#[derive(Default)]
pub(super) struct Building {
    pub(super) meta: Vec<u8>,
    pub(super) payload: Vec<BlockData>,
    /// A transaction each; none for a slice of an omap that is copied for the next one.
    pub(super) tokens: Vec<Option<Token>>,
    direct_left: usize,
    has_direct: bool,
}

impl Building {
    pub(super) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
    pub(super) fn bytes(&self) -> usize {
        self.meta.len() + self.payload.len() * BLOCK_U64 as usize
    }
}

enum State {
    /// Its large writes are not all on the device.
    WaitDirect,
    /// They are being flushed.
    FlushDirect,
    /// Its record is being written, in so many pieces (two where the ring wraps).
    Writing(usize),
    /// Its record is being flushed.
    Flushing,
    /// It goes past the log: the checkpoint with it is to begin, or has begun.
    PastLog { begun: bool },
}

/// On its way to the log.
pub(super) struct Group {
    what: Building,
    first: u64,
    position: u64,
    length: u64,
    state: State,
}

impl<D: Device> Store<D> {
    /// Sends a transaction's large writes to their fresh units.
    pub(super) fn start_direct_writes(&mut self, transaction: u64, blocks: BTreeMap<u64, BlockData>) {
        let mut blocks = blocks.into_iter().peekable();
        self.usage.borders.direct_writes += 1;
        while let Some((unit, data)) = blocks.next() {
            let mut segments = data.segments().to_vec();
            self.pending.insert(unit, Pending { data, transaction, direct: true });
            let mut count = 1;
            while count < self.limits.direct_run_blocks
                && let Some((next, data)) = blocks.next_if(|&(next, _)| next == unit + count)
            {
                segments.extend_from_slice(data.segments());
                self.pending.insert(next, Pending { data, transaction, direct: true });
                count += 1;
            }
            let goes_on = blocks.peek().is_some_and(|&(next, _)| next == unit + count);
            self.usage.borders.direct_runs_cut += u64::from(goes_on);
            self.usage.direct_bytes += count * BLOCK_U64;
            self.building.direct_left += 1;
            self.building.has_direct = true;
            let write = IoKind::Write { offset: unit * BLOCK_U64, data: segments };
            self.io(Purpose::Direct { transaction, unit, count }, write);
        }
    }

    pub(super) fn direct_write_done(&mut self, transaction: u64) {
        match &mut self.group {
            Some(group) if transaction < group.first + group.what.tokens.len() as u64 => group.what.direct_left -= 1,
            _ => self.building.direct_left -= 1,
        }
    }

    /// Starts a group if one is due, and moves it on.
    pub(super) fn drive_group(&mut self) {
        if self.group.is_none() && !self.building.is_empty() {
            let first = self.committed + 1;
            let due = self.kicked >= first || self.stalled || self.past_log;
            if due {
                let what = std::mem::take(&mut self.building);
                let past_log = self.past_log;
                assert!(!past_log || what.meta.is_empty() && what.payload.is_empty(), "it is alone");
                let length = if past_log { 0 } else { group_length(what.meta.len(), what.payload.len()) };
                let position = self.head;
                self.head += length;
                assert!(self.head - self.tail <= self.layout.wal_length, "apply admits only what the log can take");
                self.group = Some(Group { what, first, position, length, state: State::WaitDirect });
                if !past_log {
                    self.maybe_freeze();
                }
            }
        }
        if let Some(group) = &mut self.group
            && matches!(group.state, State::WaitDirect)
            && (group.what.direct_left == 0 || crate::mutant(crate::Mutant::DirectNotAwaited))
        {
            if group.what.has_direct && !crate::mutant(crate::Mutant::DirectFlushSkipped) {
                group.state = State::FlushDirect;
                self.io(Purpose::DirectFlush, IoKind::Flush);
            } else {
                self.write_group();
            }
        }
    }

    pub(super) fn write_group(&mut self) {
        let group = self.group.as_mut().expect("only a group under way is written");
        if self.past_log {
            group.state = State::PastLog { begun: false };
            return self.drive_past_log();
        }
        let meta = std::mem::take(&mut group.what.meta);
        let payload = std::mem::take(&mut group.what.payload);
        let (position, first) = (group.position, group.first);
        let header = GroupHeader { epoch: self.epoch, salt: self.salt, position, first, ..GroupHeader::default() };
        let segments = encode_group(header, meta, &payload);
        let at = group.position % self.layout.wal_length;
        let until_end = (self.layout.wal_length - at).min(group.length);
        let pieces = split_at(segments, until_end as usize);
        self.usage.wal_groups += 1;
        self.usage.wal_bytes += group.length;
        group.state = State::Writing(pieces.len());
        self.usage.borders.log_wraps += pieces.len() as u64 - 1;
        for (offset, data) in [at, 0].into_iter().zip(pieces) {
            self.io(Purpose::Log, IoKind::Write { offset: self.layout.wal_offset + offset, data });
        }
    }

    /// A transaction past the log is committed by the checkpoint it is in.
    pub(super) fn drive_past_log(&mut self) {
        if let Some(group) = &mut self.group
            && let State::PastLog { begun: begun @ false } = &mut group.state
            && self.cycle.is_none()
        {
            *begun = true;
            self.freeze(true);
        }
    }

    pub(super) fn log_written(&mut self) {
        let group = self.group.as_mut().expect("a log write belongs to the group under way");
        match &mut group.state {
            State::Writing(left) if *left > 1 => *left -= 1,
            _ if crate::mutant(crate::Mutant::CommitBeforeFlush) => self.log_flushed(),
            state => {
                *state = State::Flushing;
                self.io(Purpose::LogFlush, IoKind::Flush);
            }
        }
    }

    pub(super) fn log_flushed(&mut self) {
        let group = self.group.take().expect("a log flush belongs to the group under way");
        self.committed += group.what.tokens.len() as u64;
        let before = self.events.len();
        self.events.extend(group.what.tokens.into_iter().flatten().map(Event::Committed));
        self.usage.committed += (self.events.len() - before) as u64;
    }
}

/// Cuts segments in two at a byte, if there is anything behind it.
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
    if second.is_empty() { vec![first] } else { vec![first, second] }
}
