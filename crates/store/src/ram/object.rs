//! One object in memory: data in blocks (absent blocks are zeros), attributes, omap.

use crate::api::{ObjectStat, ReadError, ReadReply};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Granularity of data and of corruption, as in the real store.
pub(super) const BLOCK: usize = 4096;
const BLOCK_U64: u64 = BLOCK as u64;
static ZEROS: [u8; BLOCK] = [0; BLOCK];

#[derive(Clone, Debug, Default)]
pub(super) struct Object {
    size: u64,
    /// Exactly [`BLOCK`] bytes each; bytes past `size` are zero.
    blocks: BTreeMap<u64, Bytes>,
    rotten: BTreeSet<u64>,
    /// A part of a corrupt block was overwritten.
    pub(super) lost: bool,
    pub(super) attrs: BTreeMap<Bytes, Bytes>,
    omap: BTreeMap<Bytes, Bytes>,
    omap_bytes: u64,
}

impl Object {
    pub(super) fn used(&self) -> u64 {
        let attrs: usize = self.attrs.iter().map(|(k, v)| k.len() + v.len()).sum();
        self.blocks.len() as u64 * BLOCK_U64 + attrs as u64 + self.omap_bytes
    }

    /// Like the real store's result.
    pub(super) fn clone_bytes(&self) -> u64 {
        let attrs: usize = self.attrs.iter().map(|(k, v)| k.len() + v.len()).sum();
        crate::store::INDEX_COST * (attrs as u64 + self.omap_bytes + 1024)
    }

    pub(super) fn stat(&self) -> ObjectStat {
        ObjectStat {
            size: self.size,
            attrs: self.attrs.clone(),
        }
    }

    fn block(&self, index: u64) -> Bytes {
        self.blocks
            .get(&index)
            .cloned()
            .unwrap_or(Bytes::from_static(&ZEROS))
    }

    /// Replaces bytes of one block. A corrupt block is repaired only if it is replaced completely.
    fn splice(&mut self, index: u64, start: usize, piece: &Bytes) {
        if piece.len() == BLOCK {
            self.rotten.remove(&index);
            self.blocks.insert(index, piece.clone());
        } else {
            self.lost |= self.rotten.contains(&index);
            let mut block = BytesMut::from(&self.block(index)[..]);
            block[start..start + piece.len()].copy_from_slice(piece);
            self.blocks.insert(index, block.freeze());
        }
    }

    pub(super) fn write(&mut self, offset: u64, data: &[Bytes]) {
        let mut at = offset;
        for segment in data {
            let mut rest = segment.clone();
            while !rest.is_empty() {
                let start = (at % BLOCK_U64) as usize;
                let piece = rest.split_to(rest.len().min(BLOCK - start));
                self.splice(at / BLOCK_U64, start, &piece);
                at += piece.len() as u64;
            }
        }
        if at > offset {
            self.size = self.size.max(at);
        }
    }

    pub(super) fn zero(&mut self, offset: u64, length: u64) {
        let end = offset + length;
        let mut at = offset;
        while at < end {
            let (index, start) = (at / BLOCK_U64, (at % BLOCK_U64) as usize);
            let piece = (BLOCK - start).min((end - at) as usize);
            if piece == BLOCK {
                self.blocks.remove(&index);
                self.rotten.remove(&index);
            } else if self.blocks.contains_key(&index) {
                self.splice(index, start, &Bytes::from_static(&ZEROS[..piece]));
            }
            at += piece as u64;
        }
        if length > 0 {
            self.size = self.size.max(end);
        }
    }

    pub(super) fn truncate(&mut self, size: u64) {
        if size < self.size {
            let whole = size.div_ceil(BLOCK_U64);
            self.blocks.split_off(&whole);
            self.rotten.split_off(&whole);
            let start = (size % BLOCK_U64) as usize;
            if start > 0 && self.blocks.contains_key(&(size / BLOCK_U64)) {
                self.splice(
                    size / BLOCK_U64,
                    start,
                    &Bytes::from_static(&ZEROS[start..]),
                );
            }
        }
        self.size = size;
    }

    pub(super) fn clone_range(&mut self, source: &Self, offset: u64, length: u64, to_offset: u64) {
        let end = (offset + length).min(source.size);
        let mut at = offset;
        while at < end {
            let (index, start) = (at / BLOCK_U64, (at % BLOCK_U64) as usize);
            let piece = (BLOCK - start).min((end - at) as usize);
            let target = to_offset + (at - offset);
            if source.blocks.contains_key(&index) {
                self.write(target, &[source.block(index).slice(start..start + piece)]);
                if source.rotten.contains(&index) {
                    // The clone is as unreadable as its source.
                    self.rotten
                        .extend(target / BLOCK_U64..=(target + piece as u64 - 1) / BLOCK_U64);
                }
            } else {
                self.zero(target, piece as u64);
            }
            at += piece as u64;
        }
    }

    pub(super) fn read(&self, offset: u64, length: u64) -> Result<Vec<Bytes>, ReadError> {
        let end = offset.saturating_add(length).min(self.size);
        let mut at = offset;
        let mut data = Vec::new();
        while at < end {
            let (index, start) = (at / BLOCK_U64, (at % BLOCK_U64) as usize);
            if self.rotten.contains(&index) {
                return Err(ReadError::Corrupt {
                    offset: index * BLOCK_U64,
                    expected: 0,
                    found: u32::MAX,
                });
            }
            let piece = (BLOCK - start).min((end - at) as usize);
            data.push(self.block(index).slice(start..start + piece));
            at += piece as u64;
        }
        Ok(data)
    }

    pub(super) fn extents(&self, offset: u64, length: u64) -> Vec<(u64, u64)> {
        let end = offset.saturating_add(length).min(self.size);
        let mut extents: Vec<(u64, u64)> = Vec::new();
        if offset < end {
            for &index in self
                .blocks
                .range(offset / BLOCK_U64..end.div_ceil(BLOCK_U64))
                .map(|(index, _)| index)
            {
                let (from, to) = (
                    (index * BLOCK_U64).max(offset),
                    ((index + 1) * BLOCK_U64).min(end),
                );
                match extents.last_mut() {
                    Some((start, length)) if *start + *length == from => *length += to - from,
                    _ => extents.push((from, to - from)),
                }
            }
        }
        extents
    }

    pub(super) fn corrupt(&mut self, offset: u64) -> bool {
        let index = offset / BLOCK_U64;
        self.blocks.contains_key(&index) && {
            self.rotten.insert(index);
            true
        }
    }

    pub(super) fn omap_set(&mut self, key: Bytes, value: Bytes) {
        self.omap_remove(&key);
        self.omap_bytes += (key.len() + value.len()) as u64;
        self.omap.insert(key, value);
    }

    pub(super) fn omap_remove(&mut self, key: &Bytes) {
        if let Some(value) = self.omap.remove(key) {
            self.omap_bytes -= (key.len() + value.len()) as u64;
        }
    }

    pub(super) fn omap_remove_range(&mut self, from: &Bytes, to: Option<&Bytes>) {
        let mut removed = self.omap.split_off(from);
        if let Some(to) = to {
            let mut kept = removed.split_off(to.max(from));
            self.omap.append(&mut kept);
        }
        self.omap_bytes -= removed
            .iter()
            .map(|(k, v)| (k.len() + v.len()) as u64)
            .sum::<u64>();
    }

    pub(super) fn omap_get(&self, keys: &[Bytes]) -> ReadReply {
        let keys: BTreeSet<&Bytes> = keys.iter().collect();
        let entries = keys
            .iter()
            .filter_map(|&k| Some((k.clone(), self.omap.get(k)?.clone())))
            .collect();
        ReadReply::Omap {
            entries,
            more: false,
        }
    }

    pub(super) fn omap_range(
        &self,
        from: &Bound<Bytes>,
        to: Option<&Bytes>,
        limit_entries: usize,
        limit_bytes: usize,
    ) -> ReadReply {
        let mut entries: Vec<(Bytes, Bytes)> = Vec::new();
        let mut bytes = 0;
        for (key, value) in self.omap.range((from.clone(), Bound::Unbounded)) {
            if to.is_some_and(|to| key >= to) {
                break;
            }
            let size = key.len() + value.len();
            if entries.len() >= limit_entries || (!entries.is_empty() && bytes + size > limit_bytes)
            {
                return ReadReply::Omap {
                    entries,
                    more: true,
                };
            }
            bytes += size;
            entries.push((key.clone(), value.clone()));
        }
        ReadReply::Omap {
            entries,
            more: false,
        }
    }
}
