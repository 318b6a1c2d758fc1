//! The write-ahead log's records: groups of transactions; each transaction as its resulting index
//! records, allocations and block payloads (a physical redo log: replay looks nothing up and
//! computes nothing).
//!
//! ```text
//!  ┌ header 64 B ┬ transaction records ┬ payload blocks, 4 KiB each, in order of mention ┬ zeros to 4 KiB ┐
//! ```
//! A group is accepted only if its checksum matches, its position is its place in the ring (a
//! recycled ring contains groups of earlier laps), and its epoch is the current one (an earlier
//! instance of the daemon may have left groups behind that were never acknowledged and must not be
//! replayed after newer ones). It also contains the *salt* of its epoch, 64 random bits chosen when
//! the store was opened: the ring contains clients' data, and without the salt a client could write
//! a block that is a valid group.
//!
//! Blocks for fresh units are not in the log: they are written *beside* it, at the same time and
//! under the same flush, and the record contains their checksums. For the last complete group, the
//! record may be on the device and such a block not: replay reads the blocks. For an earlier group
//! the blocks are there, since a group is written after the flush of the previous one.
//!
//! Magic, version, epoch, position and salt have the same place in every version: a group of this
//! epoch in another version is not the end of the log, but a reason to refuse it.

use super::checksum::{BlockData, Crc};
use super::codec::{Put, Take};
use super::object::Head;
use super::value::Value;
use super::{BLOCK, BLOCK_U64, ZEROS};
use bytes::Bytes;

const MAGIC: u32 = 0x4c57_434e; // "NCWL"
const VERSION: u16 = 3;
pub(crate) const HEADER: usize = 64;
const SALT_AT: usize = 40;
const CRC_AT: usize = 56;
const TOMBSTONE: u32 = u32::MAX;

/// The changes of one transaction, as logged and replayed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    /// Number for the next new object, after this transaction.
    pub(crate) next_number: u64,
    /// Units taken, as first and count.
    pub(crate) allocated: Vec<(u64, u32)>,
    /// Units given back.
    pub(crate) freed: Vec<(u64, u32)>,
    /// Key ranges removed from the index: from, to (excluded). They come before `records`.
    pub(crate) ranges: Vec<(Bytes, Bytes)>,
    /// Index records: new value, or `None` to remove.
    pub(crate) records: Vec<(Bytes, Option<Value>)>,
    /// Units whose content is in the log until it is written back.
    pub(crate) blocks: Vec<u64>,
    /// Units taken here that are written beside the log, ascending, and the checksum of their
    /// content.
    pub(crate) beside: Vec<(u64, u32)>,
}

/// Runs of adjacent units, ascending, each with the values of its units.
pub(crate) fn runs<T>(units: &[(u64, T)]) -> impl Iterator<Item = &[(u64, T)]> {
    units.chunk_by(|(unit, _), (next, _)| *next == *unit + 1)
}

/// A [`Change`] whose parts are anywhere: what is logged of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Logged<'a> {
    pub(crate) next_number: u64,
    pub(crate) allocated: &'a [(u64, u32)],
    pub(crate) freed: &'a [(u64, u32)],
    pub(crate) ranges: &'a [(Bytes, Bytes)],
    /// A record before `records`: key and new value.
    pub(crate) head: Option<(&'a [u8], &'a Head)>,
    pub(crate) records: &'a [(Bytes, Option<Value>)],
    pub(crate) blocks: &'a [u64],
    pub(crate) beside: &'a [(u64, u32)],
}

impl Logged<'_> {
    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.u32(0);
        out.u64(self.next_number);
        for runs in [self.allocated, self.freed] {
            out.u32(runs.len() as u32);
            for &(unit, count) in runs {
                out.u64(unit);
                out.u32(count);
            }
        }
        out.u32(self.ranges.len() as u32);
        for (from, to) in self.ranges {
            out.bytes(from);
            out.bytes(to);
        }
        out.u32(self.records.len() as u32 + u32::from(self.head.is_some()));
        if let Some((key, head)) = self.head {
            out.bytes(key);
            out.u32(head.encoded_len() as u32);
            head.encode_into(out);
        }
        for (key, value) in self.records {
            out.bytes(key);
            match value {
                Some(value) => value.encode_into(out),
                None => out.u32(TOMBSTONE),
            }
        }
        out.u32(self.blocks.len() as u32);
        for &unit in self.blocks {
            out.u64(unit);
        }
        out.u32(runs(self.beside).count() as u32);
        for run in runs(self.beside) {
            out.u64(run[0].0);
            out.u32(run.len() as u32);
            for &(_, crc) in run {
                out.u32(crc);
            }
        }
        let length = (out.len() - at - 4) as u32;
        out[at..at + 4].copy_from_slice(&length.to_le_bytes());
    }
}

impl Change {
    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        let Self {
            next_number,
            allocated,
            freed,
            ranges,
            records,
            blocks,
            beside,
        } = self;
        Logged {
            next_number: *next_number,
            allocated,
            freed,
            ranges,
            head: None,
            records,
            blocks,
            beside,
        }
        .encode_into(out);
    }

    fn decode(mut take: Take) -> Option<Self> {
        let mut change = Self {
            next_number: take.u64()?,
            ..Self::default()
        };
        for runs in [&mut change.allocated, &mut change.freed] {
            for _ in 0..take.u32()? {
                runs.push((take.u64()?, take.u32()?));
            }
        }
        for _ in 0..take.u32()? {
            change.ranges.push((take.bytes()?, take.bytes()?));
        }
        for _ in 0..take.u32()? {
            let key = take.bytes()?;
            let value = match take.u32()? {
                TOMBSTONE => None,
                length => Some(take.take(length as usize)?.into()),
            };
            change.records.push((key, value));
        }
        for _ in 0..take.u32()? {
            change.blocks.push(take.u64()?);
        }
        for _ in 0..take.u32()? {
            let unit = take.u64()?;
            for at in 0..u64::from(take.u32()?) {
                change.beside.push((unit.checked_add(at)?, take.u32()?));
            }
        }
        take.is_empty().then_some(change)
    }

    /// All changes of a group's meta part.
    pub(crate) fn decode_all(meta: Bytes) -> Option<Vec<Self>> {
        let mut take = Take::new(meta);
        let mut changes = Vec::new();
        while !take.is_empty() {
            changes.push(Self::decode(Take::new(take.bytes()?))?);
        }
        Some(changes)
    }
}

/// A group's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupHeader {
    /// The epoch of the daemon's instance that wrote it.
    pub(crate) epoch: u64,
    /// Bytes ever logged before it: determines its place in the ring, and the lap.
    pub(crate) position: u64,
    /// Number of its first transaction.
    pub(crate) first: u64,
    /// Bytes of the transaction records.
    pub(crate) meta_length: u32,
    /// Blocks of payload.
    pub(crate) blocks: u32,
    /// The salt of its epoch.
    pub(crate) salt: u64,
    pub(crate) crc: u32,
}

/// Identifies a log, and a position in it: the same in every version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sign {
    pub(crate) version: u16,
    pub(crate) epoch: u64,
    pub(crate) position: u64,
    pub(crate) salt: u64,
}

impl Sign {
    /// `None` if no version of the log begins a group like this.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes
            .get(..HEADER)
            .filter(|bytes| bytes.starts_with(&MAGIC.to_le_bytes()))?;
        let number = |at: usize| {
            u64::from_le_bytes(
                bytes[at..at + 8]
                    .try_into()
                    .expect("eight bytes were taken"),
            )
        };
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        Some(Self {
            version,
            epoch: number(8),
            position: number(16),
            salt: number(SALT_AT),
        })
    }
    /// Whether it belongs to this log at this position, and this release cannot read it.
    pub(crate) fn is_foreign(&self, epoch: u64, position: u64, salt: u64) -> bool {
        self.version != VERSION && (self.epoch, self.position, self.salt) == (epoch, position, salt)
    }
}

impl GroupHeader {
    /// Bytes in the ring, padding included.
    pub(crate) fn length(&self) -> u64 {
        group_length(self.meta_length as usize, self.blocks as usize)
    }

    fn encode(&self, crc: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER);
        out.u32(MAGIC);
        out.u16(VERSION);
        out.u16(0);
        out.u64(self.epoch);
        out.u64(self.position);
        out.u64(self.first);
        out.u32(self.meta_length);
        out.u32(self.blocks);
        out.u64(self.salt);
        out.resize(CRC_AT, 0);
        out.u32(crc);
        out.resize(HEADER, 0);
        out
    }

    /// `None` if this is no header of this version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        // Few blocks of a scanned log are headers: checked before anything is copied.
        let bytes = bytes
            .get(..HEADER)
            .filter(|bytes| bytes.starts_with(&MAGIC.to_le_bytes()))?;
        let mut take = Take::new(Bytes::copy_from_slice(bytes));
        take.u32()?;
        if take.u16()? != VERSION {
            return None;
        }
        take.u16()?;
        let (epoch, position, first) = (take.u64()?, take.u64()?, take.u64()?);
        let (meta_length, blocks) = (take.u32()?, take.u32()?);
        let salt = take.u64()?;
        take.take(CRC_AT - SALT_AT - 8)?;
        Some(Self {
            epoch,
            position,
            first,
            meta_length,
            blocks,
            salt,
            crc: take.u32()?,
        })
    }

    /// The checksum of the header, to be continued over meta and payload.
    pub(crate) fn crc_start(&self) -> Crc {
        let mut crc = Crc::new();
        crc.update(&self.encode(0));
        crc
    }
}

/// Bytes a group takes in the ring.
pub(crate) fn group_length(meta: usize, blocks: usize) -> u64 {
    ((HEADER + meta) as u64 + blocks as u64 * BLOCK_U64).next_multiple_of(BLOCK_U64)
}

/// A group as the segments to write: `header` contains epoch, salt, position and first transaction.
pub(crate) fn encode_group(
    header: GroupHeader,
    meta: Vec<u8>,
    payload: &[BlockData],
) -> Vec<Bytes> {
    let header = GroupHeader {
        meta_length: u32::try_from(meta.len()).expect("a group is smaller than the log"),
        blocks: u32::try_from(payload.len()).expect("a group is smaller than the log"),
        ..header
    };
    let mut encoded = header.encode(0);
    let mut crc = Crc::new();
    crc.update(&encoded);
    crc.update(&meta);
    let mut segments = Vec::with_capacity(3 + payload.len());
    segments.push(Bytes::new());
    let padding = (header.length()
        - (HEADER + meta.len()) as u64
        - payload.len() as u64 * BLOCK_U64) as usize;
    segments.push(Bytes::from(meta));
    for block in payload {
        for segment in block.segments() {
            crc.update(segment);
            segments.push(segment.clone());
        }
    }
    encoded[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.finish().to_le_bytes());
    segments[0] = Bytes::from(encoded);
    debug_assert!(padding < BLOCK);
    if padding > 0 {
        segments.push(Bytes::from_static(&ZEROS[..padding]));
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_reads_back_and_any_flipped_bit_is_noticed() {
        let change = Change {
            next_number: 9,
            allocated: vec![(100, 3)],
            freed: vec![(7, 1), (9, 2)],
            ranges: vec![("a".into(), "b".into())],
            records: vec![
                ("k".into(), Some(Bytes::from("v").into())),
                ("gone".into(), None),
                ("empty".into(), Some(Bytes::new().into())),
            ],
            blocks: vec![101],
            beside: vec![(100, 8), (102, 9), (103, 10)],
        };
        let mut meta = Vec::new();
        change.encode_into(&mut meta);
        Change::default().encode_into(&mut meta);
        let block = BlockData::Many(vec![vec![1; 96].into(), vec![2; 4000].into()]);
        let meta_length = meta.len();
        let mut group = encode_group(
            GroupHeader {
                epoch: 3,
                position: 8192,
                first: 77,
                salt: 5,
                ..GroupHeader::default()
            },
            meta,
            &[block],
        )
        .concat();
        assert_eq!(group.len() as u64, group_length(meta_length, 1));
        let crc_of = |group: &[u8]| {
            let header = GroupHeader::decode(group)?;
            let mut crc = header.crc_start();
            crc.update(group.get(
                HEADER..HEADER + header.meta_length as usize + header.blocks as usize * BLOCK,
            )?);
            (crc.finish() == header.crc).then_some(header)
        };
        let header = crc_of(&group).expect("as it was written");
        assert_eq!(
            (
                header.epoch,
                header.position,
                header.first,
                header.blocks,
                header.salt
            ),
            (3, 8192, 77, 1, 5)
        );
        let sign = Sign::decode(&group).expect("a group's");
        assert!(!sign.is_foreign(3, 8192, 5));
        assert!(
            Sign { version: 9, ..sign }.is_foreign(3, 8192, 5)
                && !Sign { version: 9, ..sign }.is_foreign(3, 8192, 6)
        );
        let changes =
            Change::decode_all(Bytes::copy_from_slice(&group[HEADER..HEADER + meta_length]))
                .expect("whole");
        assert_eq!(
            format!("{changes:?}"),
            format!("{:?}", [change, Change::default()])
        );
        let used = HEADER + meta_length + BLOCK;
        // Reserved bytes are ignored when read, and therefore not covered.
        for at in (0..used)
            .filter(|at| !(6..8).contains(at) && !(48..56).contains(at) && !(60..64).contains(at))
        {
            group[at] ^= 4;
            assert!(crc_of(&group).is_none(), "byte {at}");
            group[at] ^= 4;
        }
    }
}
