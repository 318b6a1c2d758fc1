//! The superblock: the store's owner, the layout of the device, and the root of the index.
//!
//! ```text
//! 0        128 KiB   256 KiB                                                     device length
//! │ slot 0 │ slot 1 │ write-ahead log (ring) │ units: objects' data and chunks of the index │
//! ```
//! Both slots hold the same superblock, with a sequence number and a checksum. Slot 0 is written
//! and flushed first, then slot 1: a torn write leaves the other one intact, which is then the
//! newest that anything relies on; and if one is corrupted, the other is equal. A slot contains the
//! index's first block (redb's header, which redb overwrites in place and which could tear) and the
//! table of chunks, so that growth and commit of the index are one atomic write.

use super::BLOCK;
use super::checksum::crc32c_always;
use super::codec::{Put, Take};
use crate::device::{BlockingDevice, DeviceError};
use bytes::Bytes;
use nacre_types::{ClusterId, OsdId};

const MAGIC: &[u8; 8] = b"NACRESTO";
/// The format of this release.
pub const FORMAT_VERSION: u32 = 3;
const VERSION: u32 = FORMAT_VERSION;
/// Bytes of one superblock slot.
pub(crate) const SLOT: u64 = 128 << 10;
const HEADER_AT: usize = 512;
const TABLE_AT: usize = HEADER_AT + BLOCK;
/// The maximum number of chunks in the table.
pub(crate) const CHUNKS_MAX: usize = (SLOT as usize - TABLE_AT) / 8;
/// A chunk of the index that has no units on the device yet.
pub(crate) const NO_CHUNK: u64 = u64::MAX;
/// In the table: the chunk is scattered, and the unit is that of the list of its pieces.
pub(crate) const SCATTERED: u64 = 1 << 63;
/// The offset of the length that the checksum covers. Magic, version, checksum, sequence and this
/// field have the same place in every version, so that a release can distinguish a newer superblock
/// from a damaged one.
const COVERED_AT: usize = 112;

/// A store's use of formats introduced after the first one. A store with an unknown incompatible
/// bit cannot be opened; with an unknown read-only-compatible bit it can be checked but not opened
/// for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Unknown bits are harmless.
    pub compat: u64,
    /// Unknown bits forbid writing.
    pub ro_compat: u64,
    /// Unknown bits forbid opening.
    pub incompat: u64,
}

impl Features {
    /// The features that this version knows: none beyond the first format.
    pub const KNOWN: Self = Self {
        compat: 0,
        ro_compat: 0,
        incompat: 0,
    };
}

/// The owner of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: ClusterId,
    /// The daemon.
    pub osd: OsdId,
}

/// The layout of the device; fixed at format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) device_length: u64,
    pub(crate) wal_offset: u64,
    pub(crate) wal_length: u64,
    pub(crate) chunk_length: u64,
}

impl Layout {
    /// Units before the first that can hold data.
    pub(crate) fn first_unit(&self) -> u64 {
        (self.wal_offset + self.wal_length) / BLOCK as u64
    }
    pub(crate) fn units(&self) -> u64 {
        self.device_length / BLOCK as u64
    }
    pub(crate) fn chunk_units(&self) -> u64 {
        self.chunk_length / BLOCK as u64
    }
}

/// A superblock that was read and passed all checks, or will be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) sequence: u64,
    pub(crate) features: Features,
    pub(crate) identity: Identity,
    pub(crate) layout: Layout,
    /// Length of the index in bytes, as redb sees it.
    pub(crate) index_length: u64,
    /// The index's first block.
    pub(crate) index_header: Box<[u8; BLOCK]>,
    /// The first unit of each chunk of the index; or, with [`SCATTERED`], the first unit of the
    /// list of its pieces.
    pub(crate) chunks: Vec<u64>,
}

/// Why there is no usable superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootError {
    /// The device cannot be read.
    Device(DeviceError),
    /// Neither slot begins like a store's: the device was never formatted, or contains something
    /// else.
    NotAStore,
    /// A store existed here, but neither slot passes its checksum.
    Damaged,
    /// Written by a release with another format: newer if the number is larger than
    /// [`FORMAT_VERSION`].
    UnknownVersion(u32),
    /// The store uses formats unknown to this version: use a newer one. The bits are the unknown
    /// ones.
    UnknownFeatures(Features),
    /// The device is shorter than when the store was created.
    Shrunk {
        /// Bytes at format.
        was: u64,
        /// Bytes now.
        is: u64,
    },
}

impl Root {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(TABLE_AT + self.chunks.len() * 8 + BLOCK);
        out.extend_from_slice(MAGIC);
        out.u32(VERSION);
        out.u32(0); // checksum, below
        out.u64(self.sequence);
        out.u64(self.features.compat);
        out.u64(self.features.ro_compat);
        out.u64(self.features.incompat);
        out.extend_from_slice(&self.identity.cluster.0.to_le_bytes());
        out.u32(self.identity.osd.0);
        out.u32(self.chunks.len() as u32);
        out.u64(self.layout.device_length);
        out.u64(self.layout.wal_offset);
        out.u64(self.layout.wal_length);
        out.u64(self.layout.chunk_length);
        out.u64(self.index_length);
        out.u32((TABLE_AT + self.chunks.len() * 8) as u32);
        out.resize(HEADER_AT, 0);
        out.extend_from_slice(&self.index_header[..]);
        for &chunk in &self.chunks {
            out.u64(chunk);
        }
        let crc = crc32c_always(&out);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out.resize(out.len().next_multiple_of(BLOCK), 0);
        out
    }

    fn decode(slot: &[u8]) -> Result<Self, RootError> {
        if slot.len() < TABLE_AT || &slot[..8] != MAGIC {
            return Err(RootError::NotAStore);
        }
        let number = |at: usize| {
            u32::from_le_bytes(slot[at..at + 4].try_into().expect("four bytes were taken"))
        };
        let covered = number(COVERED_AT) as usize;
        if number(8) < 2 && covered == 0 {
            // From before the covered length existed: no other version has a zero there.
            return Err(RootError::UnknownVersion(number(8)));
        }
        if !(COVERED_AT + 4..=slot.len()).contains(&covered) {
            return Err(RootError::Damaged);
        }
        let mut covered = slot[..covered].to_vec();
        covered[12..16].fill(0);
        if crc32c_always(&covered) != number(12) {
            return Err(RootError::Damaged);
        }
        if number(8) != VERSION {
            return Err(RootError::UnknownVersion(number(8)));
        }
        let chunk_count = number(68) as usize;
        if chunk_count > CHUNKS_MAX || TABLE_AT + chunk_count * 8 != covered.len() {
            return Err(RootError::Damaged);
        }
        let mut take = Take::new(Bytes::from(covered));
        Self::fields(&mut take).ok_or(RootError::Damaged)
    }

    fn fields(take: &mut Take) -> Option<Self> {
        take.take(16)?;
        let sequence = take.u64()?;
        let features = Features {
            compat: take.u64()?,
            ro_compat: take.u64()?,
            incompat: take.u64()?,
        };
        let cluster = u128::from_le_bytes(
            take.take(16)?[..]
                .try_into()
                .expect("sixteen bytes were taken"),
        );
        let identity = Identity {
            cluster: ClusterId(cluster),
            osd: OsdId(take.u32()?),
        };
        let chunk_count = take.u32()?;
        let layout = Layout {
            device_length: take.u64()?,
            wal_offset: take.u64()?,
            wal_length: take.u64()?,
            chunk_length: take.u64()?,
        };
        let index_length = take.u64()?;
        take.take(HEADER_AT - COVERED_AT)?;
        let header = take.take(BLOCK)?;
        let index_header = Box::new(header[..].try_into().expect("a block was taken"));
        let chunks = (0..chunk_count)
            .map(|_| take.u64())
            .collect::<Option<Vec<u64>>>()?;
        Some(Self {
            sequence,
            features,
            identity,
            layout,
            index_length,
            index_header,
            chunks,
        })
    }

    /// Writes this superblock. Everything that it refers to must be durable already; it is durable
    /// itself on return. The mirror becomes durable with the next flush, which precedes the next
    /// write of slot 0.
    pub(crate) fn write(&self, device: &dyn BlockingDevice) -> Result<(), DeviceError> {
        let slot = self.encode();
        device.write_at(0, &slot)?;
        device.flush()?;
        device.write_at(SLOT, &slot)
    }

    /// Whether both slots hold this superblock.
    pub(crate) fn copies_agree(&self, device: &dyn BlockingDevice) -> Result<bool, DeviceError> {
        let mut agree = true;
        for at in [0, SLOT] {
            let mut slot = vec![0; SLOT as usize];
            device.read_at(at, &mut slot)?;
            agree &= Self::decode(&slot).as_ref() == Ok(self);
        }
        Ok(agree)
    }

    /// The newest intact superblock, of any version: one that a newer release wrote must not lose
    /// against the previous one, or everything acknowledged since would silently be lost.
    pub(crate) fn read(device: &dyn BlockingDevice) -> Result<Self, RootError> {
        if device.length() < 2 * SLOT {
            return Err(RootError::NotAStore);
        }
        let mut slots = [0, SLOT].map(|at| {
            let mut slot = vec![0; SLOT as usize];
            device.read_at(at, &mut slot).map_err(RootError::Device)?;
            let sequence =
                u64::from_le_bytes(slot[16..24].try_into().expect("eight bytes were taken"));
            Ok((sequence, Self::decode(&slot)))
        });
        // Among intact slots the sequence decides.
        slots.sort_by_key(|slot| match slot {
            Ok((sequence, Ok(_) | Err(RootError::UnknownVersion(_)))) => (1, *sequence),
            _ => (0, 0),
        });
        let [other, best] = slots.map(|slot| slot.and_then(|(_, root)| root));
        let root = match (best, other) {
            (Ok(root), _) => root,
            // "Damaged" is more precise than "not a store": one slot did begin like a store's.
            (Err(RootError::NotAStore), Err(error)) | (Err(error), _) => return Err(error),
        };
        let unknown = Features {
            compat: root.features.compat & !Features::KNOWN.compat,
            ro_compat: root.features.ro_compat & !Features::KNOWN.ro_compat,
            incompat: root.features.incompat & !Features::KNOWN.incompat,
        };
        if unknown.incompat != 0 {
            return Err(RootError::UnknownFeatures(unknown));
        }
        if device.length() < root.layout.device_length {
            return Err(RootError::Shrunk {
                was: root.layout.device_length,
                is: device.length(),
            });
        }
        Ok(root)
    }
}
