//! Records of one object: its head and its shards, and the reference counts of shared units.
//!
//! ```text
//!  head ── size, attributes ── inline data (objects below 1 KiB)
//!   │                      └── shard 0: blocks 0..32
//!   └── which further shards exist ──▶ shard n: blocks 32n..32n+32, a record of its own
//! ```
//! A 4 KiB overwrite therefore rewrites at most one record of some 200 bytes, independent of the
//! object's size.
//!
//! Invariants: an object has inline data or blocks, not both; no block is at or past the object's
//! end; bytes past the end in its last block are zero. Checked by the offline check.

use super::checksum::crc32c;
use super::codec::{Put, Take};
use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Blocks of one shard: 128 KiB of data.
pub(crate) const SHARD_BLOCKS: usize = 32;
/// Units whose reference counts share a record.
pub(crate) const REFERENCE_UNITS: u64 = 256;
/// Objects of at most this many bytes of data keep it in their head.
pub(crate) const INLINE_MAX: usize = 1024;

const HEAD_VERSION: u8 = 1;
const FLAG_OMAP: u8 = 1;
const SHARED_BIT: u64 = 1 << 63;

/// The unit of a block of data, and its checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockRef {
    /// Number of its unit on the device; 0 (the superblock's) means none: the block is zeros.
    pub(crate) unit: u64,
    pub(crate) crc: u32,
    /// A clone may refer to the unit too: never overwrite it in place, and check the reference
    /// counts before freeing it.
    pub(crate) shared: bool,
}

impl BlockRef {
    pub(crate) fn is_hole(self) -> bool {
        self.unit == 0
    }
}

/// Blocks of a shard, up to the last one that is not a hole: a small object's one block needs no
/// separate allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shard {
    blocks: SmallVec<[BlockRef; 1]>,
}

impl Shard {
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The block at this index, below [`SHARD_BLOCKS`].
    pub(crate) fn block(&self, at: usize) -> BlockRef {
        self.blocks.get(at).copied().unwrap_or_default()
    }

    pub(crate) fn set_block(&mut self, at: usize, block: BlockRef) {
        assert!(at < SHARD_BLOCKS, "a block of another shard");
        if at >= self.blocks.len() {
            self.blocks.resize(at + 1, BlockRef::default());
        }
        self.blocks[at] = block;
        let used = self.blocks.iter().rposition(|block| !block.is_hole());
        self.blocks.truncate(used.map_or(0, |last| last + 1));
    }

    /// Runs of blocks that are adjacent on the device: index and blocks.
    fn runs(&self) -> impl Iterator<Item = (usize, &[BlockRef])> {
        let follows = |a: &BlockRef, b: &BlockRef| {
            a.is_hole() == b.is_hole()
                && a.shared == b.shared
                && (a.is_hole() || a.unit + 1 == b.unit)
        };
        let mut at = 0;
        self.blocks.chunk_by(follows).filter_map(move |run| {
            let start = at;
            at += run.len();
            (!run[0].is_hole()).then_some((start, run))
        })
    }

    /// Bytes of its encoding, without a checksum.
    fn encoded_len(&self) -> usize {
        1 + self
            .runs()
            .map(|(_, run)| 10 + run.len() * 4)
            .sum::<usize>()
    }

    fn encode_into(&self, out: &mut Vec<u8>) {
        out.u8(self.runs().count() as u8);
        for (start, run) in self.runs() {
            out.u8(start as u8);
            out.u8(run.len() as u8);
            out.u64(run[0].unit | if run[0].shared { SHARED_BIT } else { 0 });
        }
        for block in self.blocks.iter().filter(|b| !b.is_hole()) {
            out.u32(block.crc);
        }
    }

    /// Decodes into an empty shard.
    fn fill(&mut self, take: &mut Take) -> Option<()> {
        let mut next = 0;
        for _ in 0..take.u8()? {
            let (start, length) = (take.u8()? as usize, take.u8()? as usize);
            let unit = take.u64()?;
            let (shared, unit) = (unit & SHARED_BIT != 0, unit & !SHARED_BIT);
            if start < next || length == 0 || start + length > SHARD_BLOCKS || unit == 0 {
                return None;
            }
            next = start + length;
            self.blocks.resize(start, BlockRef::default());
            for i in 0..length as u64 {
                self.blocks.push(BlockRef {
                    unit: unit.checked_add(i)?,
                    crc: 0,
                    shared,
                });
            }
        }
        for block in self.blocks.iter_mut().filter(|b| !b.is_hole()) {
            block.crc = take.u32()?;
        }
        Some(())
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.encoded_len() + 4);
        self.encode_into(&mut out);
        seal(&mut out, 0);
        Bytes::from(out)
    }

    pub(crate) fn decode(record: &Bytes) -> Option<Self> {
        let mut take = Take::new(unseal(record)?);
        let mut shard = Self::default();
        shard.fill(&mut take)?;
        take.is_empty().then_some(shard)
    }
}

/// Appends the checksum of the record that begins at this offset.
fn seal(out: &mut Vec<u8>, begin: usize) {
    let crc = crc32c(&out[begin..]);
    out.u32(crc);
}

/// The record without its checksum, if the checksum matches.
fn unseal(record: &Bytes) -> Option<Bytes> {
    let at = record.len().checked_sub(4)?;
    let crc = u32::from_le_bytes(record[at..].try_into().expect("four bytes were taken"));
    (crc32c(&record[..at]) == crc).then(|| record.slice(..at))
}

/// The name or value of an attribute. Nearly all are an object's version and time, which fit in.
type Short = SmallVec<[u8; 24]>;

/// Attributes, in order of their names: an object has one or two, and a tree for these costs more
/// than the rest of a head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attrs(SmallVec<[(Short, Short); 1]>);

impl Attrs {
    fn place(&self, name: &[u8]) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known[..].cmp(name))
    }
    /// Name and value may be small parts of a large message's buffer: a head, which stays in
    /// memory, keeps copies.
    pub(crate) fn set(&mut self, name: &[u8], value: &[u8]) {
        let value = Short::from_slice(value);
        match self.place(name) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (Short::from_slice(name), value)),
        }
    }
    pub(crate) fn remove(&mut self, name: &[u8]) {
        if let Ok(at) = self.place(name) {
            self.0.remove(at);
        }
    }
    pub(crate) fn to_map(&self) -> BTreeMap<Bytes, Bytes> {
        let copy = |bytes: &Short| Bytes::copy_from_slice(bytes);
        let attrs = self.0.iter();
        attrs
            .map(|(name, value)| (copy(name), copy(value)))
            .collect()
    }
}

/// The record found under an object's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) number: u64,
    pub(crate) size: u64,
    /// The object has, or may have, omap entries.
    pub(crate) has_omap: bool,
    pub(crate) attrs: Attrs,
    pub(crate) inline: Bytes,
    pub(crate) first: Shard,
    /// Further shards that have a record: first number and count, in order, not adjacent.
    pub(crate) shards: Vec<(u32, u32)>,
}

impl Head {
    /// Bytes of its record.
    pub(crate) fn encoded_len(&self) -> usize {
        let attrs = self.attrs.0.iter();
        let attrs: usize = attrs.map(|(k, v)| k.len() + v.len() + 5).sum();
        32 + attrs + self.inline.len() + self.first.encoded_len() + self.shards.len() * 8
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.encoded_len());
        self.encode_into(&mut out);
        Bytes::from(out)
    }

    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        out.u8(HEAD_VERSION);
        out.u8(if self.has_omap { FLAG_OMAP } else { 0 });
        out.u64(self.number);
        out.u64(self.size);
        out.u32(self.attrs.0.len() as u32);
        for (name, value) in &self.attrs.0 {
            out.u8(name.len() as u8);
            out.extend_from_slice(name);
            out.bytes(value);
        }
        out.bytes(&self.inline);
        self.first.encode_into(out);
        out.u16(u16::try_from(self.shards.len()).expect("an object has at most 2,048 shards"));
        for &(start, count) in &self.shards {
            out.u32(start);
            out.u32(count);
        }
        seal(out, begin);
    }

    pub(crate) fn decode(record: &Bytes) -> Option<Self> {
        let mut head = Self::default();
        let mut take = Take::new(unseal(record)?);
        if take.u8()? != HEAD_VERSION {
            return None;
        }
        head.has_omap = take.u8()? & FLAG_OMAP != 0;
        (head.number, head.size) = (take.u64()?, take.u64()?);
        for _ in 0..take.u32()? {
            let length = take.u8()? as usize;
            let name = take.take(length)?;
            head.attrs.set(&name, &take.bytes()?);
        }
        head.inline = take.bytes()?;
        head.first.fill(&mut take)?;
        for _ in 0..take.u16()? {
            head.shards.push((take.u32()?, take.u32()?));
        }
        take.is_empty().then_some(head)
    }

    /// Whether shard `n` (1 or more) has a record.
    pub(crate) fn has_shard(&self, n: u32) -> bool {
        let after = self.shards.partition_point(|&(start, _)| start <= n);
        after > 0 && n - self.shards[after - 1].0 < self.shards[after - 1].1
    }

    /// Records whether shard `n` has a record.
    pub(crate) fn set_shard(&mut self, n: u32, present: bool) {
        if self.has_shard(n) == present {
            return;
        }
        let after = self.shards.partition_point(|&(start, _)| start <= n);
        if present {
            let joins_left = after > 0 && self.shards[after - 1].0 + self.shards[after - 1].1 == n;
            let joins_right = self
                .shards
                .get(after)
                .is_some_and(|&(start, _)| start == n + 1);
            match (joins_left, joins_right) {
                (true, true) => {
                    let (_, count) = self.shards.remove(after);
                    self.shards[after - 1].1 += 1 + count;
                }
                (true, false) => self.shards[after - 1].1 += 1,
                (false, true) => {
                    self.shards[after].0 = n;
                    self.shards[after].1 += 1;
                }
                (false, false) => self.shards.insert(after, (n, 1)),
            }
        } else {
            let (start, count) = self.shards.remove(after - 1);
            let (left, right) = (n - start, start + count - n - 1);
            if right > 0 {
                self.shards.insert(after - 1, (n + 1, right));
            }
            if left > 0 {
                self.shards.insert(after - 1, (start, left));
            }
        }
    }

    /// The numbers in `range` of further shards that have a record.
    pub(crate) fn shards_in(&self, range: std::ops::Range<u32>) -> impl Iterator<Item = u32> {
        self.shards
            .iter()
            .flat_map(move |&(start, count)| start.max(range.start)..(start + count).min(range.end))
    }
}

/// Reference counts of [`REFERENCE_UNITS`] units; a unit without an entry has one reference or
/// none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct References(pub(crate) BTreeMap<u8, u32>);

impl References {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(4 + self.0.len() * 5);
        for (&at, &count) in &self.0 {
            out.u8(at);
            out.u32(count);
        }
        seal(&mut out, 0);
        Bytes::from(out)
    }
    pub(crate) fn decode(record: &Bytes) -> Option<Self> {
        let mut take = Take::new(unseal(record)?);
        let mut counts = BTreeMap::new();
        while !take.is_empty() {
            counts.insert(take.u8()?, take.u32()?);
        }
        Some(Self(counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shard() -> impl Strategy<Value = Shard> {
        let block = prop_oneof![
            Just(BlockRef::default()),
            (1u64..40, any::<u32>(), any::<bool>()).prop_map(|(unit, crc, shared)| BlockRef {
                unit,
                crc,
                shared
            })
        ];
        proptest::collection::vec(block, SHARD_BLOCKS).prop_map(|blocks| {
            let mut shard = Shard::default();
            for (at, block) in blocks.into_iter().enumerate() {
                shard.set_block(at, block);
            }
            shard
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn records_read_back_what_was_written_and_notice_every_flipped_bit(
            first in shard(), size in any::<u64>(), present in proptest::collection::vec(1u32..60, 0..20),
            value in proptest::collection::vec(any::<u8>(), 0..50), flip in any::<prop::sample::Index>(),
        ) {
            let mut head = Head { number: 7, size, has_omap: true, first, ..Head::default() };
            head.attrs.set(b"a", &value);
            head.attrs.set(b"bb", b"");
            head.inline = value.into();
            for &n in &present {
                head.set_shard(n, true);
                prop_assert!(head.has_shard(n));
            }
            let mut want = present.clone();
            want.sort_unstable();
            want.dedup();
            prop_assert_eq!(head.shards_in(0..u32::MAX).collect::<Vec<_>>(), want.clone());
            let record = head.encode();
            prop_assert_eq!(record.len(), head.encoded_len());
            prop_assert_eq!(Head::decode(&record), Some(head.clone()));
            let mut wrong = record.to_vec();
            let bit = flip.index(wrong.len() * 8);
            wrong[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Head::decode(&wrong.into()), None);
            let shard = head.first.encode();
            prop_assert_eq!(Shard::decode(&shard), Some(head.first.clone()));
            for n in want.iter().step_by(2) {
                head.set_shard(*n, false);
            }
            let rest: Vec<u32> = want.iter().copied().skip(1).step_by(2).collect();
            prop_assert_eq!(head.shards_in(0..u32::MAX).collect::<Vec<_>>(), rest);
        }
    }
}
