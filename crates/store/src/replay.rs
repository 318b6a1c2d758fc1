//! Replaying the write-ahead log: the groups between the last checkpoint and the last complete
//! group before a crash.
//!
//! Nothing is executed again: groups contain results. Memory is limited by the records in the log;
//! of block payloads only the position in the log is kept, and only of those that were not replaced
//! or freed later.
//!
//! Blocks beside the log are at their units if the flush of their group was completed. It was if a
//! later group exists. For the last complete group the blocks are read: if one does not match the
//! record, the group was never acknowledged, and ends the log like one with a torn record. Not
//! checked are blocks that the group itself freed, which may have been reused since, and blocks of
//! which the group has later content as payload, which may be overwritten.

use crate::alloc::{Allocator, GROUP_UNITS};
use crate::device::{BlockingDevice, DeviceError};
use crate::format::checksum::crc32c;
use crate::format::log::{Change, GroupHeader, HEADER, Sign, runs};
use crate::format::root::Layout;
use crate::format::{BLOCK, BLOCK_U64};
use crate::memtable::MemTable;
use crate::store::StateRecord;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes read at once.
const PIECE: usize = 256 << 10;

/// Why the log cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplayError {
    Device(DeviceError),
    /// An acknowledged group is damaged: a later one is intact. At this byte of the device.
    Damaged {
        at: u64,
    },
    /// Groups pass their checksums but contradict the index.
    Contradiction,
    /// Another release continued this log, in a format of its own.
    Foreign {
        version: u16,
    },
}

/// The changes of the log after the last checkpoint.
pub(crate) struct Replay {
    pub(crate) changes: MemTable,
    /// The positions in the log of the content of units that may not be at their place.
    pub(crate) blocks: BTreeMap<u64, u64>,
    pub(crate) dirty_groups: BTreeSet<u32>,
    /// The state after the last complete group.
    pub(crate) state: StateRecord,
}

fn read_ring(
    device: &dyn BlockingDevice,
    layout: &Layout,
    position: u64,
    out: &mut [u8],
) -> Result<(), DeviceError> {
    let at = position % layout.wal_length;
    let first = out.len().min((layout.wal_length - at) as usize);
    device.read_at(layout.wal_offset + at, &mut out[..first])?;
    if first < out.len() {
        device.read_at(layout.wal_offset, &mut out[first..])?;
    }
    Ok(())
}

/// Reads the group at `position`, if there is a complete one of this epoch and salt. Returns its
/// meta part.
fn read_group(
    device: &dyn BlockingDevice,
    layout: &Layout,
    position: u64,
    state: &StateRecord,
) -> Result<Option<(GroupHeader, Bytes)>, ReplayError> {
    let mut block = vec![0; BLOCK];
    read_ring(device, layout, position, &mut block).map_err(ReplayError::Device)?;
    if let Some(sign) =
        Sign::decode(&block).filter(|sign| sign.is_foreign(state.epoch, position, state.salt))
    {
        return Err(ReplayError::Foreign {
            version: sign.version,
        });
    }
    let Some(header) = GroupHeader::decode(&block) else {
        return Ok(None);
    };
    let ours = (header.epoch, header.salt) == (state.epoch, state.salt);
    if !ours || header.position != position || header.length() > layout.wal_length {
        return Ok(None);
    }
    let meta_length = header.meta_length as usize;
    let covered = meta_length + header.blocks as usize * BLOCK;
    let mut crc = header.crc_start();
    let mut meta = Vec::with_capacity(meta_length);
    let mut done = 0;
    let mut piece = vec![0; PIECE.min(covered)];
    while done < covered {
        let count = PIECE.min(covered - done);
        read_ring(
            device,
            layout,
            position + (HEADER + done) as u64,
            &mut piece[..count],
        )
        .map_err(ReplayError::Device)?;
        crc.update(&piece[..count]);
        let of_meta = count.min(meta_length.saturating_sub(done));
        meta.extend_from_slice(&piece[..of_meta]);
        done += count;
    }
    Ok(
        (crc.finish() == header.crc || crate::mutant(crate::Mutant::TornGroupTrusted))
            .then(|| (header, Bytes::from(meta))),
    )
}

/// Replays the log from `state` on into `allocator`.
pub(crate) fn replay(
    device: &dyn BlockingDevice,
    layout: &Layout,
    state: StateRecord,
    allocator: &mut Allocator,
) -> Result<Replay, ReplayError> {
    let mut replay = Replay {
        changes: MemTable::default(),
        blocks: BTreeMap::new(),
        dirty_groups: BTreeSet::new(),
        state,
    };
    let mut next = read_group(device, layout, state.position, &state)?;
    while let Some((header, meta)) = next {
        let end = header.position + header.length();
        if header.first != replay.state.transactions + 1 || end - state.position > layout.wal_length
        {
            return Err(ReplayError::Contradiction);
        }
        let changes = Change::decode_all(meta).ok_or(ReplayError::Contradiction)?;
        next = read_group(device, layout, end, &state)?;
        if next.is_none() && !is_beside_whole(device, layout, &changes)? {
            break;
        }
        let mut payload = header.position + (HEADER as u64) + u64::from(header.meta_length);
        for change in changes {
            replay.add(change, &mut payload, allocator)?;
        }
        replay.state.position = end;
    }
    replay.look_beyond(device, layout)?;
    Ok(replay)
}

/// Whether the blocks beside the log of the last group are on the device.
fn is_beside_whole(
    device: &dyn BlockingDevice,
    layout: &Layout,
    changes: &[Change],
) -> Result<bool, ReplayError> {
    if crate::mutant(crate::Mutant::BesideUnverified) {
        return Ok(true);
    }
    let mut beside: BTreeMap<u64, u32> = changes
        .iter()
        .flat_map(|change| change.beside.iter().copied())
        .collect();
    if !crate::mutant(crate::Mutant::GivenBackVerified) {
        for change in changes {
            let freed = change
                .freed
                .iter()
                .flat_map(|&(unit, count)| unit..unit.saturating_add(count.into()));
            for unit in freed.chain(change.blocks.iter().copied()) {
                beside.remove(&unit);
            }
        }
    }
    let beside: Vec<(u64, u32)> = beside.into_iter().collect();
    let mut piece = Vec::new();
    for run in runs(&beside).flat_map(|run| run.chunks(PIECE / BLOCK)) {
        let (first, count) = (run[0].0, run.len());
        if !(layout.first_unit()..=layout.units().saturating_sub(count as u64)).contains(&first) {
            return Err(ReplayError::Contradiction);
        }
        piece.resize(count * BLOCK, 0);
        match device.read_at(first * BLOCK_U64, &mut piece) {
            Ok(()) => {}
            // Unreadable does not mean unwritten: a read of the object will detect it.
            Err(DeviceError::Os(_)) => continue,
            Err(error) => return Err(ReplayError::Device(error)),
        }
        if !piece
            .chunks_exact(BLOCK)
            .zip(run)
            .all(|(block, (_, crc))| crc32c(block) == *crc)
        {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Replay {
    fn add(
        &mut self,
        change: Change,
        payload: &mut u64,
        allocator: &mut Allocator,
    ) -> Result<(), ReplayError> {
        self.state.transactions += 1;
        self.state.next_number = change.next_number;
        for (from, to) in change.ranges {
            self.changes.remove_range(from, to);
        }
        for (key, value) in change.records {
            self.changes.set(key, value);
        }
        for &(unit, count) in &change.allocated {
            if !allocator.take_range(unit, count.into()) {
                return Err(ReplayError::Contradiction);
            }
        }
        for unit in change.blocks {
            self.blocks.insert(unit, *payload);
            *payload += BLOCK_U64;
        }
        for &(unit, count) in &change.freed {
            if !allocator.give_range(unit, count.into()) {
                return Err(ReplayError::Contradiction);
            }
            for unit in unit..unit + u64::from(count) {
                // The unit may contain something else by now.
                self.blocks.remove(&unit);
            }
        }
        for &(unit, count) in change.allocated.iter().chain(&change.freed) {
            let group = |unit: u64| (unit / GROUP_UNITS) as u32;
            self.dirty_groups.extend(
                group(unit)..=if crate::mutant(crate::Mutant::ReplayGroupsOfFirst) {
                    group(unit)
                } else {
                    group(unit + u64::from(count).max(1) - 1)
                },
            );
        }
        Ok(())
    }

    /// A group is written only after the previous one was flushed. An intact group after the
    /// apparent end of the log therefore proves that an acknowledged one is damaged, and that
    /// stopping here would silently lose it. (The very last group cannot be distinguished from one
    /// that was never finished.)
    fn look_beyond(&self, device: &dyn BlockingDevice, layout: &Layout) -> Result<(), ReplayError> {
        let mut piece = vec![0; PIECE];
        let mut position = self.state.position;
        let end = position
            + if crate::mutant(crate::Mutant::LookBeyondEndsAtWrap) {
                layout.wal_length - position % layout.wal_length
            } else {
                layout.wal_length
            };
        while position < end
            && !(crate::mutant(crate::Mutant::LookBeyondShort)
                && position >= self.state.position + PIECE as u64)
        {
            let count = PIECE.min((end - position) as usize);
            read_ring(device, layout, position, &mut piece[..count])
                .map_err(ReplayError::Device)?;
            for (i, block) in piece[..count].chunks_exact(BLOCK).enumerate() {
                let at = position + (i * BLOCK) as u64;
                let same =
                    |sign: Sign| (sign.epoch, sign.salt) == (self.state.epoch, self.state.salt);
                let candidate =
                    Sign::decode(block).is_some_and(|sign| same(sign) && sign.position == at);
                if candidate && at > self.state.position {
                    let group = read_group(device, layout, at, &self.state)?;
                    if group.is_some() {
                        let at = layout.wal_offset + self.state.position % layout.wal_length;
                        return Err(ReplayError::Damaged { at });
                    }
                }
            }
            position += count as u64;
        }
        Ok(())
    }

    /// The content of a unit, read from the log.
    pub(crate) fn read_block(
        &self,
        device: &dyn BlockingDevice,
        layout: &Layout,
        unit: u64,
        out: &mut [u8],
    ) -> Result<bool, DeviceError> {
        match self.blocks.get(&unit) {
            Some(&position) => read_ring(device, layout, position, out).map(|()| true),
            None => Ok(false),
        }
    }

    /// Writes every block to its place, joining adjacent ones. The caller flushes.
    pub(crate) fn write_back(
        &self,
        device: &dyn BlockingDevice,
        layout: &Layout,
    ) -> Result<(), DeviceError> {
        let mut run: Vec<u8> = Vec::new();
        let mut first = 0;
        for (&unit, &position) in &self.blocks {
            if !run.is_empty() && (first + (run.len() / BLOCK) as u64 != unit || run.len() >= PIECE)
            {
                device.write_at(first * BLOCK_U64, &run)?;
                run.clear();
            }
            if run.is_empty() {
                first = unit;
            }
            let at = run.len();
            run.resize(at + BLOCK, 0);
            read_ring(device, layout, position, &mut run[at..])?;
        }
        if run.is_empty() {
            Ok(())
        } else {
            device.write_at(first * BLOCK_U64, &run)
        }
    }
}
