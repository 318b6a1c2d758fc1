//! The interface of an object store: transactions and reads are submitted, events are returned.
//!
//! Implements the interface of EBOFS (OSDI 2006 §5.6): atomic transactions over data and attributes
//! of several objects, completion in memory, and separate notification of commits (CEPH-46,
//! CEPH-55).
//!
//! ```text
//!  submit(t1) submit(t2) read(r) submit(t3) request_commit()
//!     │          │         │        │
//!     ▼          ▼         ▼        ▼
//!  Applied(1) Applied(2) Read(r) Applied(3) ─── one log write, one flush ──▶ Committed(1) Committed(2) Committed(3)
//! ```
//!
//! Invariants:
//! 1. Applied and Committed events each come in order of submission; Applied(t) comes no later than
//!    Committed(t).
//! 2. A read sees every transaction submitted before it, completely.
//! 3. After a power cut the store holds a prefix of the submitted transactions, each complete, at
//!    least up to the last Committed.
//! 4. A transaction that `submit` accepted is applied. The effects of operations on absent objects
//!    are defined below, so that applying cannot fail and every replica does the same. The space
//!    that it needs is computed once, by `submit`: in blocks, not in the bytes it carries. The size
//!    of the log never matters: transactions that the log is too small for bypass it (`store`).

use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;

use crate::device::DeviceError;
pub use crate::job::{Job, JobDone};

/// Maximum length of [`ObjectKey::key`] and of omap keys, in bytes.
pub const KEY_LENGTH_MAX: usize = 8 * 1024;
/// Maximum length of an attribute name, in bytes.
pub const ATTR_NAME_LENGTH_MAX: usize = 255;
/// Limit on all attributes of one object, names and values, in bytes. The caller enforces it (it
/// sees them in `Stat`); the store refuses only a single value above it.
pub const ATTRS_LENGTH_MAX: usize = 64 * 1024;
/// Maximum length of an omap value, in bytes.
pub const OMAP_VALUE_LENGTH_MAX: usize = 1024 * 1024;
/// Maximum size of an object, in bytes.
pub const OBJECT_SIZE_MAX: u64 = 256 << 20;

/// A collection of objects. The OSD uses one per pool and shard, and one for its own metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectionId(pub u64);

/// An object's name in the store. A placement group is a *range* of keys: splitting one moves no
/// data.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Its collection.
    pub collection: CollectionId,
    /// Opaque, at most [`KEY_LENGTH_MAX`] bytes, ordered bytewise within the collection.
    pub key: Bytes,
}

impl ObjectKey {
    /// The object `key` of `collection`.
    pub fn new(collection: CollectionId, key: impl Into<Bytes>) -> Self {
        Self {
            collection,
            key: key.into(),
        }
    }
}

/// The caller's identifier of a transaction or read, returned in its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// One change. Writing operations (`Touch`, `Write`, `Zero`, `Truncate`, `SetAttr`, `OmapSet`)
/// create the object if it is absent; operations that remove something from an object do nothing if
/// it is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Creates an empty collection; does nothing if it exists.
    CreateCollection(CollectionId),
    /// Removes a collection, which must be empty: an object in it is a bug of the caller and fails
    /// the store ([`StoreFailure::CollectionNotEmpty`]), like an assertion. Does nothing if the
    /// collection is absent.
    RemoveCollection(CollectionId),
    /// Creates the object if it is absent.
    Touch(ObjectKey),
    /// Writes bytes; a gap before `offset` reads as zeros. The segments are not copied on their way
    /// to the device.
    Write {
        /// The object.
        object: ObjectKey,
        /// First byte.
        offset: u64,
        /// The bytes, as the segments they arrived in.
        data: Vec<Bytes>,
    },
    /// Makes a range read as zeros, freeing whole blocks; extends the object if needed.
    Zero {
        /// The object.
        object: ObjectKey,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
    /// Sets the size; a longer object reads as zeros past its old end.
    Truncate {
        /// The object.
        object: ObjectKey,
        /// New size in bytes.
        size: u64,
    },
    /// Removes an object completely; does nothing if it is absent.
    Remove(ObjectKey),
    /// Sets one attribute.
    SetAttr {
        /// The object.
        object: ObjectKey,
        /// At most [`ATTR_NAME_LENGTH_MAX`] bytes.
        name: Bytes,
        /// At most [`ATTRS_LENGTH_MAX`] bytes.
        value: Bytes,
    },
    /// Removes one attribute.
    RemoveAttr {
        /// The object.
        object: ObjectKey,
        /// The attribute's name.
        name: Bytes,
    },
    /// Sets omap entries.
    OmapSet {
        /// The object.
        object: ObjectKey,
        /// Keys and values; of equal keys the later one wins.
        entries: Vec<(Bytes, Bytes)>,
    },
    /// Removes omap entries by key.
    OmapRemove {
        /// The object.
        object: ObjectKey,
        /// The keys.
        keys: Vec<Bytes>,
    },
    /// Removes omap entries by range. The cost does not depend on the number of entries.
    OmapRemoveRange {
        /// The object.
        object: ObjectKey,
        /// First key removed.
        from: Bytes,
        /// First key kept; `None` removes to the end.
        to: Option<Bytes>,
    },
    /// Removes all omap entries.
    OmapClear(ObjectKey),
    /// Makes `to` equal to `from`: data by reference, attributes, omap (copied). An absent `from`
    /// removes `to`; an object cloned onto itself is unchanged.
    Clone {
        /// The source.
        from: ObjectKey,
        /// The target, which is replaced.
        to: ObjectKey,
    },
    /// Writes a range of `from` into `to` (created if absent), by reference where both offsets
    /// allow it. The range ends at the source's end; an absent source is empty. With overlapping
    /// ranges of one object, the source is read before the target is written.
    CloneRange {
        /// The source.
        from: ObjectKey,
        /// The target.
        to: ObjectKey,
        /// First byte in the source.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// First byte in the target.
        to_offset: u64,
    },
    /// Moves `from` to `to`, replacing it. An absent `from` removes `to`; renaming to itself does
    /// nothing.
    Rename {
        /// The old name.
        from: ObjectKey,
        /// The new name, in any collection.
        to: ObjectKey,
    },
}

impl Op {
    /// Whether the operation only frees space. A full store still accepts transactions of only
    /// these.
    #[must_use]
    pub fn is_removal(&self) -> bool {
        matches!(
            self,
            Self::RemoveCollection(_)
                | Self::Remove(_)
                | Self::RemoveAttr { .. }
                | Self::OmapRemove { .. }
                | Self::OmapRemoveRange { .. }
                | Self::OmapClear(_)
        )
    }

    /// Whether the whole operation always goes through the log: all but written data does.
    pub(crate) fn is_logged_whole(&self) -> bool {
        !matches!(self, Self::Write { .. })
    }

    /// Bytes of the operation: payload, names and a small constant.
    #[must_use]
    pub fn size(&self) -> usize {
        let object = |o: &ObjectKey| o.key.len() + 8;
        let fixed = 16;
        fixed
            + match self {
                Self::CreateCollection(_) | Self::RemoveCollection(_) => 8,
                Self::Touch(o) | Self::Remove(o) | Self::OmapClear(o) => object(o),
                Self::Write {
                    object: o, data, ..
                } => object(o) + data.iter().map(Bytes::len).sum::<usize>(),
                Self::Zero { object: o, .. } | Self::Truncate { object: o, .. } => object(o),
                Self::SetAttr {
                    object: o,
                    name,
                    value,
                } => object(o) + name.len() + value.len(),
                Self::RemoveAttr { object: o, name } => object(o) + name.len(),
                Self::OmapSet { object: o, entries } => {
                    object(o)
                        + entries
                            .iter()
                            .map(|(k, v)| k.len() + v.len() + 8)
                            .sum::<usize>()
                }
                Self::OmapRemove { object: o, keys } => {
                    object(o) + keys.iter().map(|k| k.len() + 4).sum::<usize>()
                }
                Self::OmapRemoveRange {
                    object: o,
                    from,
                    to,
                } => object(o) + from.len() + to.as_ref().map_or(0, Bytes::len),
                Self::Clone { from, to }
                | Self::CloneRange { from, to, .. }
                | Self::Rename { from, to } => object(from) + object(to),
            }
    }

    /// The objects the operation names: at most two.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectKey> {
        let (a, b) = match self {
            Self::CreateCollection(_) | Self::RemoveCollection(_) => (None, None),
            Self::Touch(o) | Self::Remove(o) | Self::OmapClear(o) => (Some(o), None),
            Self::Write { object, .. }
            | Self::Zero { object, .. }
            | Self::Truncate { object, .. }
            | Self::SetAttr { object, .. }
            | Self::RemoveAttr { object, .. }
            | Self::OmapSet { object, .. }
            | Self::OmapRemove { object, .. }
            | Self::OmapRemoveRange { object, .. } => (Some(object), None),
            Self::Clone { from, to }
            | Self::CloneRange { from, to, .. }
            | Self::Rename { from, to } => (Some(from), Some(to)),
        };
        a.into_iter().chain(b)
    }
}

/// Changes applied in order, atomically.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The operations, in order.
    pub ops: Vec<Op>,
}

impl Transaction {
    /// A transaction without operations; committing it is a barrier.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Appends any operation.
    #[must_use]
    pub fn op(mut self, op: Op) -> Self {
        self.ops.push(op);
        self
    }
    /// Appends [`Op::CreateCollection`].
    #[must_use]
    pub fn create_collection(self, collection: CollectionId) -> Self {
        self.op(Op::CreateCollection(collection))
    }
    /// Appends [`Op::RemoveCollection`].
    #[must_use]
    pub fn remove_collection(self, collection: CollectionId) -> Self {
        self.op(Op::RemoveCollection(collection))
    }
    /// Appends [`Op::Touch`].
    #[must_use]
    pub fn touch(self, object: ObjectKey) -> Self {
        self.op(Op::Touch(object))
    }
    /// Appends [`Op::Write`] of one segment.
    #[must_use]
    pub fn write(self, object: ObjectKey, offset: u64, data: impl Into<Bytes>) -> Self {
        self.op(Op::Write {
            object,
            offset,
            data: vec![data.into()],
        })
    }
    /// Appends [`Op::Zero`].
    #[must_use]
    pub fn zero(self, object: ObjectKey, offset: u64, length: u64) -> Self {
        self.op(Op::Zero {
            object,
            offset,
            length,
        })
    }
    /// Appends [`Op::Truncate`].
    #[must_use]
    pub fn truncate(self, object: ObjectKey, size: u64) -> Self {
        self.op(Op::Truncate { object, size })
    }
    /// Appends [`Op::Remove`].
    #[must_use]
    pub fn remove(self, object: ObjectKey) -> Self {
        self.op(Op::Remove(object))
    }
    /// Appends [`Op::SetAttr`].
    #[must_use]
    pub fn set_attr(
        self,
        object: ObjectKey,
        name: impl Into<Bytes>,
        value: impl Into<Bytes>,
    ) -> Self {
        self.op(Op::SetAttr {
            object,
            name: name.into(),
            value: value.into(),
        })
    }
    /// Appends [`Op::RemoveAttr`].
    #[must_use]
    pub fn remove_attr(self, object: ObjectKey, name: impl Into<Bytes>) -> Self {
        self.op(Op::RemoveAttr {
            object,
            name: name.into(),
        })
    }
    /// Appends [`Op::OmapSet`] of one entry.
    #[must_use]
    pub fn omap_set(
        self,
        object: ObjectKey,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
    ) -> Self {
        self.op(Op::OmapSet {
            object,
            entries: vec![(key.into(), value.into())],
        })
    }
    /// Appends [`Op::OmapRemove`] of one key.
    #[must_use]
    pub fn omap_remove(self, object: ObjectKey, key: impl Into<Bytes>) -> Self {
        self.op(Op::OmapRemove {
            object,
            keys: vec![key.into()],
        })
    }
    /// Appends [`Op::OmapRemoveRange`].
    #[must_use]
    pub fn omap_remove_range(
        self,
        object: ObjectKey,
        from: impl Into<Bytes>,
        to: Option<Bytes>,
    ) -> Self {
        self.op(Op::OmapRemoveRange {
            object,
            from: from.into(),
            to,
        })
    }
    /// Appends [`Op::OmapClear`].
    #[must_use]
    pub fn omap_clear(self, object: ObjectKey) -> Self {
        self.op(Op::OmapClear(object))
    }
    /// Appends [`Op::Clone`].
    #[must_use]
    pub fn clone_object(self, from: ObjectKey, to: ObjectKey) -> Self {
        self.op(Op::Clone { from, to })
    }
    /// Appends [`Op::Rename`].
    #[must_use]
    pub fn rename(self, from: ObjectKey, to: ObjectKey) -> Self {
        self.op(Op::Rename { from, to })
    }

    /// Bytes of all operations, which count against the store's limits.
    #[must_use]
    pub fn size(&self) -> usize {
        self.ops.iter().map(Op::size).sum()
    }

    /// The part of [`Self::size`] that always goes through the log: all but written data. See
    /// [`ObjectStore::logged_bytes_max`].
    #[must_use]
    pub fn logged_size(&self) -> usize {
        self.ops
            .iter()
            .filter(|op| op.is_logged_whole())
            .map(Op::size)
            .sum()
    }

    /// Checks everything that does not depend on the store's content.
    ///
    /// # Errors
    /// The first operation that breaks a limit.
    pub fn validate(&self) -> Result<(), SubmitError> {
        let range = |offset: u64, length: u64| match offset.checked_add(length) {
            Some(end) if end <= OBJECT_SIZE_MAX => Ok(()),
            _ => Err(SubmitError::OutOfRange {
                offset,
                length,
                max: OBJECT_SIZE_MAX,
            }),
        };
        let short = |what: &Bytes, max: usize| match what.len() {
            length if length > max => Err(SubmitError::TooLong { length, max }),
            _ => Ok(()),
        };
        for op in &self.ops {
            for object in op.objects() {
                short(&object.key, KEY_LENGTH_MAX)?;
            }
            match op {
                Op::Write { offset, data, .. } => {
                    range(*offset, data.iter().map(|d| d.len() as u64).sum())?
                }
                Op::Zero { offset, length, .. } => range(*offset, *length)?,
                Op::Truncate { size, .. } => range(*size, 0)?,
                Op::CloneRange {
                    offset,
                    length,
                    to_offset,
                    ..
                } => {
                    range(*offset, *length)?;
                    range(*to_offset, *length)?;
                }
                Op::SetAttr { name, value, .. } => {
                    short(name, ATTR_NAME_LENGTH_MAX)?;
                    short(value, ATTRS_LENGTH_MAX)?;
                }
                Op::OmapSet { entries, .. } => {
                    for (key, value) in entries {
                        short(key, KEY_LENGTH_MAX)?;
                        short(value, OMAP_VALUE_LENGTH_MAX)?;
                    }
                }
                Op::OmapRemove { keys, .. } => {
                    for key in keys {
                        short(key, KEY_LENGTH_MAX)?;
                    }
                }
                Op::OmapRemoveRange { from, to, .. } => {
                    short(from, KEY_LENGTH_MAX)?;
                    to.as_ref().map_or(Ok(()), |to| short(to, KEY_LENGTH_MAX))?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A read request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// Size and attributes; [`ReadReply::Stat`] of `None` if the object is absent.
    Stat(ObjectKey),
    /// Bytes; fewer than requested at the object's end.
    Data {
        /// The object.
        object: ObjectKey,
        /// First byte.
        offset: u64,
        /// Number of bytes; `u64::MAX` means to the end.
        length: u64,
    },
    /// A range of the omap, in order. At least one entry is returned if there is one and
    /// `limit_entries > 0`.
    Omap {
        /// The object.
        object: ObjectKey,
        /// The start.
        from: Bound<Bytes>,
        /// The first key excluded; `None` reads to the end.
        to: Option<Bytes>,
        /// The maximum number of entries.
        limit_entries: usize,
        /// Stops before keys and values exceed this many bytes (a larger first entry is returned
        /// alone).
        limit_bytes: usize,
    },
    /// Omap entries by key; absent ones are omitted.
    OmapGet {
        /// The object.
        object: ObjectKey,
        /// In any order; the reply is ordered by key, without repetition.
        keys: Vec<Bytes>,
    },
    /// Object keys of a collection, in order.
    List {
        /// The collection.
        collection: CollectionId,
        /// First key.
        from: Bytes,
        /// The first key excluded; `None` lists to the end.
        to: Option<Bytes>,
        /// The maximum number of keys.
        limit: usize,
    },
    /// The maximum space that a clone of the object takes: [`ReadReply::Weight`]. Blocks are
    /// shared, but not the omap, attributes and records of blocks.
    Weight(ObjectKey),
    /// The ranges that hold data, in blocks cut at the object's end: everything else reads as
    /// zeros.
    Extents {
        /// The object.
        object: ObjectKey,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
}

/// Size and attributes of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectStat {
    /// In bytes.
    pub size: u64,
    /// All attributes.
    pub attrs: BTreeMap<Bytes, Bytes>,
}

/// A reply, of the kind of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadReply {
    /// The reply to [`Read::Stat`].
    Stat(Option<ObjectStat>),
    /// The reply to [`Read::Data`]: the bytes in segments.
    Data(Vec<Bytes>),
    /// The reply to [`Read::Weight`]: bytes; 0 if the object is absent.
    Weight(u64),
    /// The reply to [`Read::Omap`] and [`Read::OmapGet`].
    Omap {
        /// In order.
        entries: Vec<(Bytes, Bytes)>,
        /// A limit was reached: ask again after the last key. Never set for `OmapGet`.
        more: bool,
    },
    /// The reply to [`Read::List`].
    List {
        /// In order.
        keys: Vec<Bytes>,
        /// The limit was reached: ask again after the last key.
        more: bool,
    },
    /// The reply to [`Read::Extents`]: offset and length, in order, not adjacent.
    Extents(Vec<(u64, u64)>),
}

/// Why a read has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// There is no such object (or, for `List`, no such collection).
    NotFound,
    /// The data failed its checksum: read another replica, then repair by rewriting the block.
    Corrupt {
        /// First byte in the object of the block that failed.
        offset: u64,
        /// The CRC32C recorded when it was written.
        expected: u32,
        /// The CRC32C of what the device returned.
        found: u32,
    },
    /// The device could not read the block at `offset` of the object: as for `Corrupt`.
    Device {
        /// First byte in the object that could not be read.
        offset: u64,
        /// The device's error.
        error: DeviceError,
    },
    /// The index is damaged: lookups of objects cannot be trusted. Stop the daemon and run the
    /// offline check.
    IndexCorrupt,
}

/// Why a transaction was not accepted; it had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// No space. Transactions that only remove are still accepted.
    Full {
        /// Bytes the transaction may need.
        needed: u64,
        /// Bytes available for it.
        available: u64,
    },
    /// Too much is unfinished, or records must be looked up first: submit again (`request_commit`
    /// first) after the next [`Event::Committed`], and after every job that was returned.
    Busy,
    /// Larger than the store can ever accept in one piece: split it.
    TooLarge {
        /// Its size in bytes.
        size: u64,
        /// The maximum.
        max: u64,
    },
    /// A range ends beyond the maximum object size.
    OutOfRange {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// Maximum object size in bytes.
        max: u64,
    },
    /// A key, name or value is too long.
    TooLong {
        /// Its length in bytes.
        length: usize,
        /// The maximum.
        max: usize,
    },
    /// An operation names an object of a collection that does not exist at that point.
    NoCollection(CollectionId),
    /// The store has failed ([`Event::Failed`]); the daemon must stop.
    Failed,
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { needed, available } => write!(
                f,
                "the store is full: {needed} bytes needed, {available} left"
            ),
            Self::Busy => f.write_str("the store is busy; try again after the next commit"),
            Self::TooLarge { size, max } => write!(
                f,
                "a transaction of {size} bytes exceeds the largest of {max}"
            ),
            Self::OutOfRange {
                offset,
                length,
                max,
            } => {
                write!(
                    f,
                    "bytes {offset}+{length} exceed the largest object of {max}"
                )
            }
            Self::TooLong { length, max } => {
                write!(f, "a key, name or value of {length} bytes exceeds {max}")
            }
            Self::NoCollection(id) => write!(f, "collection {} does not exist", id.0),
            Self::Failed => f.write_str("the store has failed"),
        }
    }
}
impl std::error::Error for SubmitError {}

/// Why the store can no longer be used in this process. Everything reported committed is safe on
/// the device, provided the device keeps its guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFailure {
    /// A write or flush failed.
    Device(DeviceError),
    /// The index failed its checksums or cannot be read: run the offline check.
    IndexCorrupt,
    /// The index, or an accepted transaction, found no space although the reserve was kept. A bug,
    /// or a device that shrank.
    IndexFull,
    /// The caller removed a collection that still holds objects.
    CollectionNotEmpty(CollectionId),
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => write!(f, "a write or flush of its device: {error}"),
            Self::IndexCorrupt => {
                f.write_str("its index is damaged; `nacre store check` says more")
            }
            Self::IndexFull => f.write_str(
                "it found no room although some was kept: a bug, or a device that shrank",
            ),
            Self::CollectionNotEmpty(collection) => {
                write!(f, "collection {} was to go and is not empty", collection.0)
            }
        }
    }
}

/// An event. See the module head for the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The transaction is visible to reads.
    Applied(Token),
    /// The transaction survives a power cut.
    Committed(Token),
    /// The transaction overwrote a part of a block of this object, and the rest of the block could
    /// not be read: reading that block is an error from now on, also after a restart, until it is
    /// overwritten completely or the object is replaced. Comes before [`Self::Applied`].
    Lost(Token, ObjectKey),
    /// The answer to a read.
    Read(Token, Result<ReadReply, ReadError>),
    /// No more events follow; the daemon must stop. Comes once, last.
    Failed(StoreFailure),
}

/// Space and work, for status pages and benchmarks. Counters count since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that objects and the index can ever use.
    pub total: u64,
    /// Bytes used by objects and the index.
    pub used: u64,
    /// Bytes that a transaction may still use (without the reserve for deletes).
    pub free: u64,
    /// Bytes of memory held: caches, memtables, pending writes.
    pub memory: u64,
    /// Transactions committed.
    pub committed: u64,
    /// Write-ahead log writes (groups).
    pub wal_groups: u64,
    /// Bytes written to the write-ahead log, padding included.
    pub wal_bytes: u64,
    /// Flushes requested from the device.
    pub flushes: u64,
    /// Blocks written back from the log to their place.
    pub blocks_written_back: u64,
    /// Block writes that were cancelled because a later write replaced them (CEPH-57).
    pub blocks_cancelled: u64,
    /// Bytes written to fresh units beside the log.
    pub beside_bytes: u64,
    /// Bytes discarded on the device.
    pub discarded_bytes: u64,
    /// Payload bytes that the store copied in memory: only data kept inside the index (objects
    /// below 1 KiB).
    pub payload_bytes_copied: u64,
    /// Index lookups that needed a job.
    pub index_misses: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Blocks whose old content failed its checksum when a part of them was overwritten; they stay
    /// unreadable.
    pub blocks_poisoned: u64,
    /// How often it reached each of its limits.
    pub borders: crate::Borders,
}

/// An object store, driven by one thread.
///
/// A host calls, per wake-up: any number of `submit` and `read`, `on_job` for finished jobs, then
/// `request_commit`, `poll` and `jobs`. It wakes up again when a job finished or the device has
/// completions.
pub trait ObjectStore {
    /// Accepts a transaction. The order of submits is the order of apply and of commit.
    ///
    /// # Errors
    /// The transaction was not accepted and had no effect; each error states what to do.
    fn submit(&mut self, mut transaction: Transaction, token: Token) -> Result<(), SubmitError> {
        self.offer(&mut transaction, token)
    }
    /// The same, for callers that may have to submit it again: the transaction is emptied if it is
    /// accepted, and unchanged otherwise.
    ///
    /// # Errors
    /// As for [`Self::submit`].
    fn offer(&mut self, transaction: &mut Transaction, token: Token) -> Result<(), SubmitError>;
    /// Submits a read; the reply comes as [`Event::Read`] and sees every transaction submitted
    /// before.
    fn read(&mut self, read: Read, token: Token);
    /// Groups everything submitted since the last call into one log write and one flush. Call once
    /// per wake-up.
    fn request_commit(&mut self);
    /// Nothing was submitted for a while: blocks and index records that memory holds for later
    /// writers may be written to their place now.
    fn rest(&mut self) {}
    /// The host is about to stop, and nothing is in flight: the end of the log must be marked
    /// (`docs/formats/store.md`), so that damage to the last committed transactions is detected.
    /// Returns whether it is; call again after each poll until then.
    fn mark_end(&mut self) -> bool {
        true
    }
    /// Appends the events since the last call. Never blocks.
    fn poll(&mut self, events: &mut Vec<Event>);
    /// Appends work that needs blocking I/O. Run each job with [`Job::run`], in any order, on any
    /// thread, and pass the result to `on_job`. For the store, dropping a job is equivalent to a
    /// crash.
    fn jobs(&mut self, jobs: &mut Vec<Job>);
    /// A job has finished.
    fn on_job(&mut self, done: JobDone);
    /// Space and work so far.
    fn usage(&self) -> Usage;
    /// The maximum [`Transaction::logged_size`] that is accepted; a larger transaction is
    /// [`SubmitError::TooLarge`]. It never changes.
    fn logged_bytes_max(&self) -> u64 {
        u64::MAX
    }
}
