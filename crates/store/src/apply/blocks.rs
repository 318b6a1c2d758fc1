//! Writing, zeroing and truncating an object's data.

use super::{Attempt, Open, Step, Stop, block_range, fits_inline, split};
use crate::format::checksum::BlockData;
use crate::format::object::BlockRef;
use crate::format::{BLOCK, BLOCK_U64, ZEROS};
use bytes::{Bytes, BytesMut};

/// The maximum number of blocks of a lone writer that go through the log: for more, writing them
/// once saves more than a second place costs.
const LONE_BLOCKS_MAX: u64 = 4;

/// Returns the next bytes of a list of segments, as slices.
struct Segments<'s> {
    rest: &'s [Bytes],
    skip: usize,
}

impl Segments<'_> {
    fn take(&mut self, mut count: usize, out: &mut Vec<Bytes>) {
        while count > 0 {
            let segment = &self.rest[0];
            let take = count.min(segment.len() - self.skip);
            if take > 0 {
                out.push(segment.slice(self.skip..self.skip + take));
            }
            count -= take;
            self.skip += take;
            if self.skip == segment.len() {
                self.rest = &self.rest[1..];
                self.skip = 0;
            }
        }
    }
}

impl Attempt<'_> {
    /// Writes; with `poison`, the blocks get a checksum that never matches (their content is known
    /// to be wrong).
    pub(super) fn write(
        &mut self,
        open: &mut Open,
        offset: u64,
        data: &[Bytes],
        poison: bool,
    ) -> Step<()> {
        let length: usize = data.iter().map(Bytes::len).sum();
        if length == 0 {
            return Ok(());
        }
        let end = offset + length as u64;
        if fits_inline(end) && !open.has_blocks() && !poison {
            let mut inline = BytesMut::from(&open.head.inline[..]);
            inline.resize(inline.len().max(end as usize), 0);
            let mut at = offset as usize;
            for segment in data {
                inline[at..at + segment.len()].copy_from_slice(segment);
                at += segment.len();
            }
            open.head_mut().inline = inline.freeze();
            self.out.inline_bytes += length as u64;
        } else {
            self.spill(open)?;
            self.write_blocks(open, offset, data, poison)?;
        }
        open.head_mut().size = open.head.size.max(end);
        Ok(())
    }

    /// Moves inline data to a block.
    pub(super) fn spill(&mut self, open: &mut Open) -> Step<()> {
        if open.head.inline.is_empty() {
            return Ok(());
        }
        let inline = std::mem::take(&mut open.head_mut().inline);
        self.write_blocks(open, 0, &[inline], false)
    }

    /// Contents of blocks of which a part will stay, and whether they passed their checksum.
    pub(super) fn old_blocks(
        &mut self,
        blocks: &[BlockRef],
    ) -> Step<Vec<Option<(BlockData, bool)>>> {
        let mut missing = Vec::new();
        let mut contents = Vec::with_capacity(blocks.len());
        for block in blocks {
            let beside = || self.beside.get(&block.unit).map(|(data, _)| data);
            let known = self.deferred.get(&block.unit).or_else(beside);
            let known =
                known.or_else(|| self.world.pending.by_unit.get(&block.unit).map(|p| &p.data));
            contents.push(if block.is_hole() {
                None
            } else if let Some(data) = known {
                Some((data.clone(), data.crc() == block.crc))
            } else if let Some((bytes, whole)) = self.world.old_blocks.get(&block.unit) {
                Some((BlockData::One(bytes.clone()), *whole))
            } else {
                missing.push((block.unit, block.crc));
                None
            });
        }
        if missing.is_empty() {
            Ok(contents)
        } else {
            Err(Stop::Blocks(missing))
        }
    }

    fn write_blocks(
        &mut self,
        open: &mut Open,
        offset: u64,
        data: &[Bytes],
        poison: bool,
    ) -> Step<()> {
        let length: usize = data.iter().map(Bytes::len).sum();
        let end = offset + length as u64;
        let (first, after) = block_range(offset, end);
        self.need_shards(open, split(first).0, split(after - 1).0)?;

        // Old content of the partly written blocks at both ends.
        let partial = |index: u64| index * BLOCK_U64 < offset || (index + 1) * BLOCK_U64 > end;
        let last = (after - first > 1).then_some(after - 1);
        let edges: Vec<u64> = std::iter::once(first)
            .chain(last)
            .filter(|&index| partial(index))
            .collect();
        let refs: Vec<BlockRef> = edges.iter().map(|&index| open.block(index)).collect();
        let old = self.old_blocks(&refs)?;

        let large = self.direct_now || length > self.world.deferred_write_max;
        let alone = self.world.is_alone && after - first <= LONE_BLOCKS_MAX;
        let small = !alone && open.head.size.max(end) <= self.world.small_object_max;
        let is_own = |block: BlockRef| {
            !block.is_hole()
                && (!block.shared || crate::mutant(crate::Mutant::SharedWrittenInPlace))
        };
        let in_place =
            |index: u64, block: BlockRef| !large && is_own(block) && (!small || partial(index));
        let wanted = (first..after)
            .filter(|&index| !in_place(index, open.block(index)))
            .count() as u64;
        let left = if first % 32 == 0 {
            BlockRef::default()
        } else {
            open.block(first - 1)
        };
        let near = if left.is_hole() {
            self.out.cursor
        } else {
            left.unit + 1
        };
        let mut units = self.take_units(wanted, near, small)?;

        let mut segments = Segments {
            rest: data,
            skip: 0,
        };
        for index in first..after {
            let start = offset.saturating_sub(index * BLOCK_U64) as usize;
            let stop = (end - index * BLOCK_U64).min(BLOCK_U64) as usize;
            let mut content = Vec::with_capacity(1);
            let mut whole = !poison;
            if stop - start == BLOCK {
                segments.take(BLOCK, &mut content);
            } else {
                let edge = edges
                    .iter()
                    .position(|&edge| edge == index)
                    .expect("only edges are partial");
                let old = old[edge].as_ref();
                whole &= old.is_none_or(|(_, whole)| *whole);
                let keep = |from: usize, to: usize, out: &mut Vec<Bytes>| match old {
                    _ if from == to => {}
                    Some((data, _)) => data.slice_into(from, to - from, out),
                    None => out.push(Bytes::from_static(&ZEROS[..to - from])),
                };
                keep(0, start, &mut content);
                segments.take(stop - start, &mut content);
                keep(stop, BLOCK, &mut content);
            }
            let content = BlockData::from_segments(content);
            let crc = content.crc();
            // A block of which a part is lost must stay unreadable: it gets a checksum that cannot
            // match.
            let of_content = crc;
            let crc = if whole { crc } else { !crc };
            if !whole {
                self.out.poisoned.push(self.at);
            }
            let before = open.block(index);
            let stays = in_place(index, before);
            let unit = if stays {
                before.unit
            } else {
                self.drop_reference(before)?;
                units.next().expect("as many as counted")
            };
            open.set_block(
                index,
                BlockRef {
                    unit,
                    crc,
                    shared: false,
                },
            );
            if !stays && (large || !partial(index) && !alone) {
                self.beside.insert(unit, (content, of_content));
            } else {
                // This transaction's write beside the log to this unit comes first: the write-back
                // is later.
                self.deferred.insert(unit, content);
            }
        }
        Ok(())
    }

    pub(super) fn zero(&mut self, open: &mut Open, offset: u64, length: u64) -> Step<()> {
        if length == 0 {
            return Ok(());
        }
        let end = offset + length;
        if !open.head.inline.is_empty() {
            let stop = end.min(open.head.inline.len() as u64);
            if offset < stop {
                let mut inline = BytesMut::from(&open.head.inline[..]);
                inline[offset as usize..stop as usize].fill(0);
                open.head_mut().inline = inline.freeze();
            }
        }
        let (first, after) = (offset.div_ceil(BLOCK_U64), end / BLOCK_U64);
        if first > after {
            self.zero_part(open, offset, end)?;
        } else {
            self.zero_part(open, offset, first * BLOCK_U64)?;
            self.zero_part(open, after * BLOCK_U64, end)?;
            self.punch(open, first, after)?;
        }
        open.head_mut().size = open.head.size.max(end);
        Ok(())
    }

    /// Zeroes a part of one block, if the block exists.
    fn zero_part(&mut self, open: &mut Open, offset: u64, end: u64) -> Step<()> {
        let index = offset / BLOCK_U64;
        self.need_shards(open, split(index).0, split(index).0)?;
        if offset == end || open.block(index).is_hole() {
            return Ok(());
        }
        self.write_blocks(
            open,
            offset,
            &[Bytes::from_static(&ZEROS[..(end - offset) as usize])],
            false,
        )
    }

    pub(super) fn truncate(&mut self, open: &mut Open, size: u64) -> Step<()> {
        if size < open.head.size {
            let inline = &mut open.head_mut().inline;
            inline.truncate(usize::try_from(size).unwrap_or(usize::MAX));
            let whole = size.div_ceil(BLOCK_U64);
            if !size.is_multiple_of(BLOCK_U64) {
                self.zero_part(open, size, whole * BLOCK_U64)?;
            }
            self.punch(open, whole, u64::MAX)?;
        }
        open.head_mut().size = size;
        Ok(())
    }

    /// Frees the blocks from `first` up to `after`.
    pub(super) fn punch(&mut self, open: &mut Open, first: u64, after: u64) -> Step<()> {
        if first >= after {
            return Ok(());
        }
        let end = open.head.size.div_ceil(BLOCK_U64).min(after);
        if first >= end {
            return Ok(());
        }
        self.need_shards(open, split(first).0, split(end - 1).0)?;
        let loaded = open
            .shards
            .keys()
            .copied()
            .filter(|n| (split(first).0..=split(end - 1).0).contains(n));
        let shards: Vec<u32> = std::iter::once(0).chain(loaded).collect();
        for n in shards {
            let base = u64::from(n) * 32;
            for index in base.max(first)..(base + 32).min(end) {
                let block = open.block(index);
                if !block.is_hole() {
                    self.drop_reference(block)?;
                    open.set_block(index, BlockRef::default());
                }
            }
        }
        Ok(())
    }
}
