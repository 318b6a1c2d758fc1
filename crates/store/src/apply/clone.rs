//! Cloning objects and ranges: blocks by reference, the rest by value.

use super::{Attempt, Open, Step, Stop, block_range, split};
use crate::api::ObjectKey;
use crate::format::checksum::BlockData;
use crate::format::object::BlockRef;
use crate::format::value::Value;
use crate::format::{BLOCK, BLOCK_U64, keys};
use bytes::Bytes;
use std::collections::BTreeMap;

/// A part of a cloned range.
enum Piece {
    Zeros(u64),
    /// Whole blocks that both objects can hold.
    Block(BlockRef),
    /// Bytes, and whether they passed their checksum.
    Bytes(Vec<Bytes>, bool),
}

impl Attempt<'_> {
    pub(super) fn clone_object(&mut self, from: &ObjectKey, to: &ObjectKey) -> Step<()> {
        if from == to {
            return Ok(());
        }
        self.load(from)?;
        if self.objects.get(from).expect("just loaded").open.is_none() {
            return self.remove(to);
        }
        self.remove(to)?;
        let mut copy = self.fresh();
        let mut shares = Vec::new();
        self.with(from, false, |a, source| {
            a.need_shards(source, 0, u32::MAX - 1)?;
            let shards: Vec<u32> = std::iter::once(0)
                .chain(source.shards.keys().copied())
                .collect();
            for n in shards {
                for index in u64::from(n) * 32..(u64::from(n) + 1) * 32 {
                    let block = source.block(index);
                    if !block.is_hole() {
                        shares.push((index, a.share(source, index)?));
                    }
                }
            }
            let head = copy.head_mut();
            head.size = source.head.size;
            head.attrs = source.head.attrs.clone();
            head.inline = source.head.inline.clone();
            if source.head.has_omap {
                if let Some(&number) = a.world.filled.get(&a.at) {
                    head.number = number;
                    head.has_omap = true;
                    if !crate::mutant(crate::Mutant::CopyNotOverlaid) {
                        a.overlay_copy(source.head.number, number);
                    }
                    return Ok(());
                }
                for (key, value) in a.whole_omap(source.head.number)? {
                    a.records
                        .insert(keys::omap(head.number, &key), Some(value.into()));
                    head.has_omap = true;
                }
            }
            Ok(())
        })?;
        for (index, block) in shares {
            copy.set_block(index, block);
        }
        let slot = self.objects.get_mut(to).expect("remove loads it");
        slot.open = Some(copy);
        slot.changed = true;
        Ok(())
    }

    /// Adds a reference to a block of an object.
    fn share(&mut self, source: &mut Open, index: u64) -> Step<BlockRef> {
        let block = BlockRef {
            shared: true,
            ..source.block(index)
        };
        self.add_reference(block)?;
        if !source.block(index).shared {
            source.set_block(index, block);
        }
        Ok(block)
    }

    /// Applies this transaction's earlier changes of an omap to the copy that was made before the
    /// transaction. The copy is referred to from now on.
    fn overlay_copy(&mut self, source: u64, copy: u64) {
        let (first, end) = (keys::omap(source, &[]), keys::end(keys::TAG_OMAP, source));
        let ranges: Vec<(Bytes, Bytes)> = self.out.change.ranges.clone();
        for (from, to) in ranges {
            let (from, to) = (from.max(first.clone()), to.min(end.clone()));
            if from < to {
                let last = if to == end {
                    keys::end(keys::TAG_OMAP, copy)
                } else {
                    keys::omap(copy, &keys::rest(&to))
                };
                self.remove_range(keys::omap(copy, &keys::rest(&from)), last);
            }
        }
        let changed: Vec<(Bytes, Option<Value>)> = self
            .records
            .range(&first, &end)
            .map(|(key, value)| (keys::rest(key), value.clone()))
            .collect();
        for (key, value) in changed {
            self.records.insert(keys::omap(copy, &key), value);
        }
        self.records.insert(keys::filling(copy), None);
    }

    /// All omap entries of an object at this point of the transaction.
    fn whole_omap(&mut self, number: u64) -> Step<BTreeMap<Bytes, Bytes>> {
        let (from, to) = (keys::omap(number, &[]), keys::end(keys::TAG_OMAP, number));
        let mut entries = BTreeMap::new();
        if number < self.world.tables.indexed_numbers {
            let indexed = self.world.omaps.get(&number).ok_or(Stop::Omap(number))?;
            let indexed = indexed.as_ref().ok_or(Stop::Fill {
                op: self.at,
                number,
            })?;
            entries.extend(indexed.iter().cloned());
        }
        self.world.tables.overlay(&mut entries, &from, &to);
        for (from, to) in &self.out.change.ranges {
            entries.retain(|key, _| key < from || key >= to);
        }
        for (key, value) in self.records.range(&from, &to) {
            match value {
                Some(value) => drop(entries.insert(key.clone(), value.bytes().clone())),
                None => drop(entries.remove(key)),
            }
        }
        Ok(entries
            .into_iter()
            .map(|(key, value)| (keys::rest(&key), value))
            .collect())
    }

    pub(super) fn clone_range(
        &mut self,
        from: &ObjectKey,
        to: &ObjectKey,
        offset: u64,
        length: u64,
        to_offset: u64,
    ) -> Step<()> {
        let mut pieces = Vec::new();
        self.with(from, false, |a, source| {
            pieces = a.pieces(
                source,
                offset,
                length,
                to_offset % BLOCK_U64 == offset % BLOCK_U64,
            )?;
            Ok(())
        })?;
        self.with(to, true, |a, target| {
            let mut at = to_offset;
            for piece in pieces {
                match piece {
                    Piece::Zeros(count) => {
                        a.zero(target, at, count)?;
                        at += count;
                    }
                    Piece::Bytes(data, whole) => {
                        a.write(target, at, &data, !whole)?;
                        at += data.iter().map(|d| d.len() as u64).sum::<u64>();
                    }
                    Piece::Block(block) => {
                        a.spill(target)?;
                        let index = at / BLOCK_U64;
                        a.need_shards(target, split(index).0, split(index).0)?;
                        a.drop_reference(target.block(index))?;
                        target.set_block(index, block);
                        at += BLOCK_U64;
                        target.head_mut().size = target.head.size.max(at);
                    }
                }
            }
            Ok(())
        })
    }

    /// Splits the range into pieces; references are counted here, before the target (perhaps the
    /// same object) changes.
    fn pieces(
        &mut self,
        source: &mut Open,
        offset: u64,
        length: u64,
        aligned: bool,
    ) -> Step<Vec<Piece>> {
        let end = (offset + length).min(source.head.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        if !source.head.inline.is_empty() {
            let inline = source
                .head
                .inline
                .slice(offset.min(source.head.inline.len() as u64) as usize..);
            let inline = inline.slice(..inline.len().min((end - offset) as usize));
            let rest = end - offset - inline.len() as u64;
            return Ok(vec![Piece::Bytes(vec![inline], true), Piece::Zeros(rest)]);
        }
        let (first, after) = block_range(offset, end);
        self.need_shards(source, split(first).0, split(after - 1).0)?;
        let bounds = |index: u64| {
            let start = offset.saturating_sub(index * BLOCK_U64) as usize;
            (start, (end - index * BLOCK_U64).min(BLOCK_U64) as usize)
        };
        let by_value = |index: u64| !aligned || bounds(index) != (0, BLOCK);
        let copied: Vec<u64> = (first..after).filter(|&index| by_value(index)).collect();
        let refs: Vec<BlockRef> = copied.iter().map(|&index| source.block(index)).collect();
        let mut contents = self.old_blocks(&refs)?.into_iter();
        let mut pieces = Vec::new();
        for index in first..after {
            let (start, stop) = bounds(index);
            let content: Option<(BlockData, bool)> = if by_value(index) {
                contents.next().expect("one for each block copied")
            } else {
                None
            };
            pieces.push(match content {
                _ if source.block(index).is_hole() => Piece::Zeros((stop - start) as u64),
                Some((data, whole)) => {
                    let mut bytes = Vec::new();
                    data.slice_into(start, stop - start, &mut bytes);
                    Piece::Bytes(bytes, whole)
                }
                None => Piece::Block(self.share(source, index)?),
            });
        }
        Ok(pieces)
    }
}
