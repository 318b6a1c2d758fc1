//! The place of a chunk of the index: one piece, or, when no free piece is long enough, many.
//!
//! ```text
//!  superblock's table:  │ first unit │  SCATTERED + unit ─▶ list ─next─▶ list     units of the chunk, piece by piece
//! ```
//! A fragmented device must not count as full: the index grows while data is deleted, and when the
//! store is opened. The list is written once, when the chunk is created, and is durable before the
//! superblock that names it. It never changes.

use super::IndexError;
use crate::alloc::Allocator;
use crate::format::checksum::crc32c_always;
use crate::format::codec::{Put, Take};
use crate::format::root::SCATTERED;
use crate::format::{BLOCK, BLOCK_U64};
use bytes::Bytes;

const MAGIC: u32 = 0x4c49_434e; // "NCIL"
const HEAD: usize = 24;
/// The number of pieces in one block of a list.
const PIECES: usize = (BLOCK - HEAD) / 12;

/// One block of a list, and the unit that it is written to.
pub(super) type ListBlock = (u64, Vec<u8>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Pieces in order: first unit and count.
    runs: Vec<(u64, u32)>,
    /// Units of their list; none if it is one piece.
    lists: Vec<u64>,
}

impl Place {
    pub(super) fn whole(unit: u64, count: u64) -> Self {
        Self {
            runs: vec![(unit, count as u32)],
            lists: Vec::new(),
        }
    }

    /// Takes space for a chunk: one piece if possible, otherwise many. `None` if there are not
    /// enough free units.
    pub(super) fn take(allocator: &mut Allocator, count: u64) -> Option<Self> {
        if let Some(unit) = allocator.take_whole(count) {
            return Some(Self::whole(unit, count));
        }
        let runs = allocator.take(count, 0)?;
        let place = match allocator.take(runs.len().div_ceil(PIECES) as u64, 0) {
            Some(lists) => {
                let lists = lists
                    .into_iter()
                    .flat_map(|(unit, count)| unit..unit + u64::from(count))
                    .collect();
                return Some(Self { runs, lists });
            }
            None => Self {
                runs,
                lists: Vec::new(),
            },
        };
        place.give(allocator);
        None
    }

    pub(super) fn is_scattered(&self) -> bool {
        !self.lists.is_empty()
    }

    /// Frees its units.
    pub(super) fn give(&self, allocator: &mut Allocator) {
        for (unit, count) in self.units() {
            assert!(
                allocator.give_range(unit, count.into()),
                "the index's chunks are taken"
            );
        }
    }

    /// All units that it occupies.
    pub(super) fn units(&self) -> impl Iterator<Item = (u64, u32)> {
        self.runs
            .iter()
            .copied()
            .chain(self.lists.iter().map(|&unit| (unit, 1)))
    }

    /// Its entry in the superblock's table.
    pub(super) fn entry(&self) -> u64 {
        self.lists
            .first()
            .map_or(self.runs[0].0, |unit| unit | SCATTERED)
    }

    /// Unit number `at` of the chunk.
    pub(super) fn unit(&self, mut at: u64) -> u64 {
        for &(unit, count) in &self.runs {
            if at < u64::from(count) {
                return unit + at;
            }
            at -= u64::from(count);
        }
        unreachable!("a chunk has as many units as its shape says")
    }

    /// The list to be written.
    pub(super) fn list(&self) -> Vec<ListBlock> {
        let blocks = self.lists.iter().zip(self.runs.chunks(PIECES)).enumerate();
        blocks
            .map(|(n, (&unit, runs))| {
                let mut out = Vec::with_capacity(BLOCK);
                out.u32(MAGIC);
                out.u32(0);
                out.u64(self.lists.get(n + 1).copied().unwrap_or(0));
                out.u32(runs.len() as u32);
                out.u32(0);
                for &(unit, count) in runs {
                    out.u64(unit);
                    out.u32(count);
                }
                out.resize(BLOCK, 0);
                let crc = crc32c_always(&out);
                out[4..8].copy_from_slice(&crc.to_le_bytes());
                (unit, out)
            })
            .collect()
    }

    /// Decodes an entry of the table, other than that of a chunk without a place.
    pub(super) fn read(
        entry: u64,
        count: u64,
        device_units: u64,
        read: impl Fn(u64, &mut [u8]) -> Result<(), IndexError>,
    ) -> Result<Self, IndexError> {
        if entry & SCATTERED == 0 {
            let inside = entry
                .checked_add(count)
                .is_some_and(|end| end <= device_units);
            return if inside {
                Ok(Self::whole(entry, count))
            } else {
                Err(IndexError::Corrupt)
            };
        }
        let (mut runs, mut lists): (Vec<(u64, u32)>, Vec<u64>) = (Vec::new(), Vec::new());
        let mut unit = entry & !SCATTERED;
        while unit != 0 {
            // A list never has more blocks than the chunk has units.
            if unit >= device_units || lists.len() as u64 >= count {
                return Err(IndexError::Corrupt);
            }
            lists.push(unit);
            let mut block = vec![0; BLOCK];
            read(unit * BLOCK_U64, &mut block)?;
            unit = Self::decode_list(&mut block, &mut runs).ok_or(IndexError::Corrupt)?;
        }
        let inside = |&(unit, count): &(u64, u32)| {
            unit.checked_add(count.into())
                .is_some_and(|end| end <= device_units)
        };
        let total: u64 = runs.iter().map(|&(_, count)| u64::from(count)).sum();
        if total == count && runs.iter().all(inside) {
            Ok(Self { runs, lists })
        } else {
            Err(IndexError::Corrupt)
        }
    }

    /// Appends the pieces of one block of a list; returns the unit of the next one, or 0.
    fn decode_list(block: &mut [u8], runs: &mut Vec<(u64, u32)>) -> Option<u64> {
        let crc = u32::from_le_bytes(block[4..8].try_into().expect("four bytes were taken"));
        block[4..8].fill(0);
        if crc32c_always(block) != crc {
            return None;
        }
        let mut take = Take::new(Bytes::copy_from_slice(block));
        let magic = take.u32()?;
        take.u32()?;
        let (next, count) = (take.u64()?, take.u32()? as usize);
        take.u32()?;
        if magic != MAGIC || count > PIECES {
            return None;
        }
        for _ in 0..count {
            runs.push((take.u64()?, take.u32()?));
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_chunk_in_pieces_reads_back_and_a_flipped_bit_is_noticed() {
        let mut allocator = Allocator::new(4096, 1);
        assert_eq!(
            Place::take(&mut allocator, 16)
                .expect("all is free")
                .entry()
                & SCATTERED,
            0
        );
        for unit in (1..4096).step_by(2).filter(|unit| *unit > 40) {
            assert!(allocator.take_range(unit, 1));
        }
        let free = allocator.free();
        let place = Place::take(&mut allocator, 1024).expect("half is free");
        assert!(place.entry() & SCATTERED != 0 && place.lists.len() > 1);
        let blocks: BTreeMap<u64, Vec<u8>> = place.list().into_iter().collect();
        let read = |flip: usize| {
            Place::read(place.entry(), 1024, 4096, |at, out| {
                out.copy_from_slice(blocks.get(&(at / BLOCK_U64)).ok_or(IndexError::Corrupt)?);
                out[flip % BLOCK] ^= u8::from(flip > 0);
                Ok(())
            })
        };
        assert_eq!(read(0), Ok(place.clone()));
        for flip in 1..BLOCK {
            assert!(read(flip).is_err(), "byte {flip}");
        }
        let units: Vec<u64> = (0..1024).map(|at| place.unit(at)).collect();
        assert!(units.iter().all(|&unit| allocator.is_taken(unit)));
        place.give(&mut allocator);
        assert_eq!(allocator.free(), free);
        assert!(
            Place::take(&mut allocator, free).is_none(),
            "no room for the list"
        );
        assert_eq!(allocator.free(), free);
        allocator.check();
    }
}
