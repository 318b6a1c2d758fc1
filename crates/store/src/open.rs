//! Making a store on a device, and opening it again after anything.
//!
//! ```text
//!  superblock ──▶ flush ──▶ index (last checkpoint) ──▶ replay log ──▶ blocks to their place ──▶ checkpoint, epoch + 1
//! ```
//! Opening is one blocking function. It ends with an empty log and a new epoch, so that nothing an earlier life left in
//! the ring can ever be taken for the new one's.

use crate::CollectionId;
use crate::alloc::Allocator;
use crate::device::{BlockingDevice, Device, DeviceError};
use crate::format::keys;
use crate::format::root::{CHUNKS_MAX, Features, Identity, Layout, NO_CHUNK, Root, RootError, SLOT};
use crate::format::{BLOCK, BLOCK_U64};
use crate::index::backend::Backend;
use crate::index::{Index, IndexError};
use crate::memtable::MemTable;
use crate::replay::{Replay, ReplayError, replay};
use crate::store::{Recovered, StateRecord, Store};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Smallest device a store can be made on, in bytes.
pub const DEVICE_LENGTH_MIN: u64 = 8 << 20;

/// How to make a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormatOptions {
    /// Whose it will be.
    pub identity: Identity,
    /// Bytes of the write-ahead log; by default a sixteenth of the device, from 1 to 128 MiB.
    pub wal_bytes: Option<u64>,
}

/// How to run a store. The defaults suit a daemon that should stay below 100 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Whose it must be.
    pub identity: Identity,
    /// Writes up to this many bytes go through the log and stay in place; larger ones are copy-on-write.
    pub deferred_write_max: usize,
    /// Bytes of memory for index records of warm objects (an object takes some 350).
    pub cache_bytes: usize,
    /// Bytes of memory for the index's own pages.
    pub index_cache_bytes: usize,
    /// Bytes of index changes after which a checkpoint starts; up to four times as many are held.
    pub memtable_bytes: usize,
    /// Bytes of blocks waiting in the log after which they are written back; up to twice as many are held.
    pub deferred_bytes: usize,
    /// Records merged into the index in one of its transactions: bounds its memory beyond `index_cache_bytes`.
    pub index_batch_max: usize,
    /// Bytes of transactions taken but not in the log after which `submit` says busy.
    pub queue_bytes_max: usize,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            identity: Identity::default(),
            deferred_write_max: 64 << 10,
            cache_bytes: 48 << 20,
            index_cache_bytes: 8 << 20,
            memtable_bytes: 8 << 20,
            deferred_bytes: 16 << 20,
            index_batch_max: 2048,
            queue_bytes_max: 8 << 20,
        }
    }
}

/// [`OpenOptions`], completed for one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) deferred_write_max: usize,
    pub(crate) deferred_transaction_max: usize,
    pub(crate) cache_bytes: usize,
    pub(crate) index_cache_bytes: usize,
    pub(crate) memtable_bytes: usize,
    /// Entries of a memtable after which a checkpoint starts: each may cost the index a page.
    pub(crate) memtable_records: usize,
    pub(crate) deferred_blocks: usize,
    pub(crate) index_batch_max: usize,
    pub(crate) queue_bytes_max: usize,
    pub(crate) transaction_bytes_max: usize,
    /// Chunks kept free for the index: two checkpoints of full memtables, each entry on a page of its own.
    pub(crate) reserve_chunks: usize,
}

impl Limits {
    fn new(options: &OpenOptions, layout: &Layout) -> Self {
        let records = (layout.units() / 64).clamp(256, 32_768) as usize;
        let pages = records as u64 * 2 + 128;
        let wal = usize::try_from(layout.wal_length).unwrap_or(usize::MAX);
        Self {
            deferred_write_max: options.deferred_write_max,
            deferred_transaction_max: (wal / 8).clamp(options.deferred_write_max, 1 << 20),
            cache_bytes: options.cache_bytes,
            index_cache_bytes: options.index_cache_bytes,
            memtable_bytes: options.memtable_bytes.min(wal / 2),
            memtable_records: records,
            deferred_blocks: options.deferred_bytes / BLOCK,
            index_batch_max: options.index_batch_max,
            queue_bytes_max: options.queue_bytes_max.min(wal / 2),
            transaction_bytes_max: 64 << 20,
            reserve_chunks: (pages.div_ceil(layout.chunk_units() - 1) + 1) as usize,
        }
    }
}

/// Why a device was not formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// The device failed.
    Device(DeviceError),
    /// Too small, in bytes.
    TooSmall {
        /// Its length.
        length: u64,
        /// The least that would do.
        min: u64,
    },
}

/// Why a store does not open. Nothing has been changed unless it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// No usable superblock.
    Root(RootError),
    /// The store belongs to another cluster or daemon: a wrong disk or directory.
    WrongOwner {
        /// Whose it is.
        found: Identity,
        /// Whose it should be.
        wanted: Identity,
    },
    /// It uses formats that this version may only read.
    ReadOnly(Features),
    /// The device failed.
    Device(DeviceError),
    /// The index is damaged: run the offline check; recover the objects from their replicas.
    IndexCorrupt,
    /// The index has no room left for recovery.
    IndexFull,
    /// An acknowledged part of the write-ahead log is damaged: recover the objects from their replicas.
    LogDamaged {
        /// Byte of the device.
        at: u64,
    },
    /// Log and index contradict each other.
    Contradiction,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(RootError::Device(error)) | Self::Device(error) => error.fmt(f),
            Self::Root(RootError::NotAStore) => f.write_str("this is not a Nacre store; format it first"),
            Self::Root(RootError::Damaged) => f.write_str("both copies of the superblock are damaged"),
            Self::Root(RootError::UnknownVersion(v)) => {
                write!(f, "the store has format version {v}; use a newer release")
            }
            Self::Root(RootError::UnknownFeatures(features)) => {
                write!(f, "the store uses unknown formats (bits {:#x}); use a newer release", features.incompat)
            }
            Self::Root(RootError::Shrunk { was, is }) => write!(f, "the device shrank from {was} to {is} bytes"),
            Self::WrongOwner { found, wanted } => write!(
                f,
                "the store belongs to {} of cluster {}, not to {} of cluster {}",
                found.osd, found.cluster, wanted.osd, wanted.cluster
            ),
            Self::ReadOnly(features) => {
                write!(f, "the store uses formats (bits {:#x}) that this release may only read", features.ro_compat)
            }
            Self::IndexCorrupt => f.write_str("the index is damaged; run the offline check"),
            Self::IndexFull => f.write_str("no room is left to recover the index"),
            Self::LogDamaged { at } => write!(f, "an acknowledged part of the log is damaged at byte {at}"),
            Self::Contradiction => f.write_str("log and index contradict each other; run the offline check"),
        }
    }
}
impl std::error::Error for OpenError {}

impl From<IndexError> for OpenError {
    fn from(error: IndexError) -> Self {
        match error {
            IndexError::Device(error) => Self::Device(error),
            IndexError::Corrupt => Self::IndexCorrupt,
            IndexError::Full => Self::IndexFull,
        }
    }
}
impl From<ReplayError> for OpenError {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Device(error) => Self::Device(error),
            ReplayError::Damaged { at } => Self::LogDamaged { at },
            ReplayError::Contradiction => Self::Contradiction,
        }
    }
}

fn layout(length: u64, options: &FormatOptions) -> Layout {
    let device_length = length / BLOCK_U64 * BLOCK_U64;
    let wal = options.wal_bytes.unwrap_or((device_length / 16).clamp(1 << 20, 128 << 20));
    let chunk_length = (device_length / 8192).next_power_of_two().clamp(64 << 10, 16 << 20);
    Layout { device_length, wal_offset: 2 * SLOT, wal_length: wal / BLOCK_U64 * BLOCK_U64, chunk_length }
}

/// Makes an empty store, destroying whatever is on the device.
///
/// # Errors
/// The device failed or is too small.
pub fn format(device: &Arc<dyn BlockingDevice>, options: &FormatOptions) -> Result<(), FormatError> {
    let length = device.length();
    let min = DEVICE_LENGTH_MIN + options.wal_bytes.unwrap_or(0);
    if length < min {
        return Err(FormatError::TooSmall { length, min });
    }
    let layout = layout(length, options);
    // The whole log is overwritten: so that its space exists, and so that no group of an earlier store is left.
    let zeros = vec![0; 1 << 20];
    let end = layout.wal_offset + layout.wal_length;
    let mut at = 0;
    while at < end {
        let count = (zeros.len() as u64).min(end - at);
        device.write_at(at, &zeros[..count as usize]).map_err(FormatError::Device)?;
        at += count;
    }
    device.flush().map_err(FormatError::Device)?;
    let root = Root {
        sequence: 0,
        features: Features::default(),
        identity: options.identity,
        layout,
        index_length: 0,
        index_header: Box::new([0; BLOCK]),
        chunks: Vec::new(),
    };
    let mut allocator = Allocator::new(layout.units(), layout.first_unit());
    let make = || -> Result<(), IndexError> {
        let backend = Backend::new(device.clone(), root, false);
        for _ in 0..8 {
            let unit = allocator.take_aligned(layout.chunk_units()).ok_or(IndexError::Full)?;
            backend.add_places([(unit / layout.chunk_units()) as u32]);
        }
        let index = Index::open(backend, 1 << 20)?;
        let state = StateRecord { epoch: 1, position: 0, transactions: 0, next_number: 1 };
        index.commit(&MemTable::default(), &[(Bytes::from_static(keys::STATE), Some(state.encode()))], 1)?;
        Ok(())
    };
    make().map_err(|error| match error {
        IndexError::Device(error) => FormatError::Device(error),
        _ => FormatError::TooSmall { length, min },
    })
}

/// What the index says before replay.
pub(crate) struct Loaded {
    pub(crate) state: StateRecord,
    pub(crate) allocator: Allocator,
}

/// Reads state and allocation from the index.
pub(crate) fn load(index: &Index, layout: &Layout) -> Result<Loaded, OpenError> {
    let state = index.get_many(&[Bytes::from_static(keys::STATE)])?.pop().flatten();
    let state = state.as_ref().and_then(StateRecord::decode).ok_or(OpenError::IndexCorrupt)?;
    let mut allocator = Allocator::new(layout.units(), layout.first_unit());
    let (mut from, to) = (vec![keys::TAG_BITMAP], [keys::TAG_BITMAP + 1]);
    loop {
        let scanned = index.scan(&from, &to, 1024, usize::MAX)?;
        for (key, record) in &scanned.entries {
            let group = keys::bitmap_group(key).ok_or(OpenError::IndexCorrupt)?;
            if !allocator.decode_group(group, record) {
                return Err(OpenError::IndexCorrupt);
            }
        }
        match scanned.entries.last() {
            Some((last, _)) if scanned.more => from = [&last[..], &[0]].concat(),
            _ => return Ok(Loaded { state, allocator }),
        }
    }
}

/// Marks the index's own chunks as taken: not in its bitmaps, since it grows while it writes them.
pub(crate) fn take_chunks(allocator: &mut Allocator, index: &Index, layout: &Layout) -> Result<(), OpenError> {
    for place in index.backend().places() {
        if !allocator.take_range(u64::from(place) * layout.chunk_units(), layout.chunk_units()) {
            return Err(OpenError::Contradiction);
        }
    }
    Ok(())
}

/// Records of the allocation groups that replay changed.
fn bitmaps(replay: &Replay, allocator: &Allocator, layout: &Layout) -> Vec<(Bytes, Option<Bytes>)> {
    let own = [(0, layout.first_unit()), (layout.units(), u64::MAX - layout.units())];
    let record = |&group: &u32| (keys::bitmap(group), allocator.encode_group(group, own.into_iter()).map(Bytes::from));
    replay.dirty_groups.iter().map(record).collect()
}

impl<D: Device> Store<D> {
    /// Opens the store on a device, after a clean stop or any crash. Blocks until everything that was committed is in
    /// its place. `device` and `blocking` are the same bytes.
    ///
    /// # Errors
    /// See [`OpenError`]; except for device failures, nothing that was committed has been harmed.
    pub fn open(device: D, blocking: Arc<dyn BlockingDevice>, options: &OpenOptions) -> Result<Self, OpenError> {
        let root = Root::read(&*blocking).map_err(OpenError::Root)?;
        if root.identity != options.identity {
            return Err(OpenError::WrongOwner { found: root.identity, wanted: options.identity });
        }
        let read_only = Features { ro_compat: root.features.ro_compat & !Features::KNOWN.ro_compat, ..root.features };
        if read_only.ro_compat != 0 {
            return Err(OpenError::ReadOnly(read_only));
        }
        // What a killed process wrote may still be in the page cache: make it durable before anyone acts on it.
        blocking.flush().map_err(OpenError::Device)?;
        let layout = root.layout;
        let limits = Limits::new(options, &layout);
        let index = Index::open(Backend::new(blocking.clone(), root, false), options.index_cache_bytes)?;
        let Loaded { state, mut allocator } = load(&index, &layout)?;
        let replay = replay(&*blocking, &layout, state, &mut allocator)?;
        let bitmaps = bitmaps(&replay, &allocator, &layout);
        take_chunks(&mut allocator, &index, &layout)?;
        while index.backend().places_left() < limits.reserve_chunks {
            let Some(unit) = allocator.take_aligned(layout.chunk_units()) else { break };
            index.backend().add_places([(unit / layout.chunk_units()) as u32]);
        }
        replay.write_back(&*blocking, &layout).map_err(OpenError::Device)?;
        blocking.flush().map_err(OpenError::Device)?;
        let state = StateRecord { epoch: state.epoch + 1, ..replay.state };
        let mut extra = bitmaps;
        extra.push((Bytes::from_static(keys::STATE), Some(state.encode())));
        let index_bytes = index.commit(&replay.changes, &extra, options.index_batch_max)?;
        drop(replay);
        if index.backend().bytes_placed()
            > (4 * index_bytes).max(4 * limits.reserve_chunks as u64 * layout.chunk_length / 3)
        {
            // Most of it is holes: give chunks back to data.
            index.compact()?;
        }

        let mut collections = BTreeMap::new();
        for (key, count) in
            index.scan(&[keys::TAG_COLLECTION], &[keys::TAG_COLLECTION + 1], usize::MAX, usize::MAX)?.entries
        {
            let id = keys::number(&key).ok_or(OpenError::IndexCorrupt)?;
            let count: [u8; 8] = count[..].try_into().map_err(|_| OpenError::IndexCorrupt)?;
            collections.insert(CollectionId(id), u64::from_le_bytes(count));
        }
        let recovered = Recovered {
            layout,
            limits,
            index,
            allocator,
            collections,
            next_number: state.next_number,
            epoch: state.epoch,
            position: state.position,
            transactions: state.transactions,
        };
        Ok(Self::resume(device, recovered))
    }
}

/// Chunks a device of this layout can give to its index; the superblock's table must hold them.
const _: () = assert!(CHUNKS_MAX > 16 * 1024 && NO_CHUNK as usize > CHUNKS_MAX);
