//! What a caller sees of an object store: transactions and reads go in, events come out.
//!
//! Implements the interface of EBOFS (OSDI 2006 §5.6): atomic transactions over data and attributes
//! of several objects, completion in memory, and separate notification of commits (CEPH-46,
//! CEPH-55).
//!
//! ```text
//!  submit(t1) submit(t2) read(r) submit(t3) kick()
//!     │          │         │        │
//!     ▼          ▼         ▼        ▼
//!  Applied(1) Applied(2) Read(r) Applied(3) ─── one log write, one flush ──▶ Committed(1) Committed(2) Committed(3)
//! ```
//!
//! Invariants:
//! 1. Applied and Committed come each in order of submission; Applied(t) comes no later than
//!    Committed(t).
//! 2. A read sees every transaction submitted before it, whole.
//! 3. After a power cut the store holds a prefix of the submitted transactions, each whole, at
//!    least up to the last Committed.
//! 4. A transaction that `submit` took is applied. What operations do to absent objects is defined
//!    below, so that applying cannot fail and every replica does the same. What it takes is counted
//!    once, by `submit`: in blocks, not in the bytes it carries. How much log it takes never
//!    matters: what the log is too small for goes past it (`store`).

use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;

use crate::device::DeviceError;
pub use crate::job::{Job, JobDone};

/// Longest [`ObjectKey::key`], omap key, in bytes.
pub const KEY_LENGTH_MAX: usize = 8 * 1024;
/// Longest attribute name, in bytes.
pub const ATTR_NAME_LENGTH_MAX: usize = 255;
/// Bound on all attributes of one object, names and values, in bytes. The caller keeps it (it sees
/// them in `Stat`); the store refuses only a single value above it.
pub const ATTRS_LENGTH_MAX: usize = 64 * 1024;
/// Longest omap value, in bytes.
pub const OMAP_VALUE_LENGTH_MAX: usize = 1024 * 1024;
/// Largest object, in bytes.
pub const OBJECT_SIZE_MAX: u64 = 256 << 20;

/// A collection of objects. The OSD uses one per pool and shard, and one for its own metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectionId(pub u64);

/// An object's name in the store. A placement group is a *range* of keys: splitting one moves no
/// data.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The collection it is in.
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

/// The caller's name for a transaction or read, returned in its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// One change. The operations that write (`Touch`, `Write`, `Zero`, `Truncate`, `SetAttr`,
/// `OmapSet`) create the object if it is absent; those that remove something from an object do
/// nothing if it is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Makes an empty collection; nothing if it exists.
    CreateCollection(CollectionId),
    /// Removes a collection, which must be empty: an object found in it is the caller's bug and
    /// fails the store ([`StoreFailure::CollectionNotEmpty`]), as an assertion would. Nothing
    /// if it is absent.
    RemoveCollection(CollectionId),
    /// Creates the object if it is absent.
    Touch(ObjectKey),
    /// Writes bytes; a gap before `offset` reads as zeros. The segments are never copied on their
    /// way to the device.
    Write {
        /// Where.
        object: ObjectKey,
        /// First byte.
        offset: u64,
        /// The bytes, as the segments they arrived in.
        data: Vec<Bytes>,
    },
    /// Makes a range read as zeros, giving whole blocks back to the device; extends the object if
    /// needed.
    Zero {
        /// Where.
        object: ObjectKey,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
    /// Sets the size; a longer object reads as zeros past its old end.
    Truncate {
        /// Which.
        object: ObjectKey,
        /// New size in bytes.
        size: u64,
    },
    /// Removes an object with all it has; nothing if it is absent.
    Remove(ObjectKey),
    /// Sets one attribute.
    SetAttr {
        /// Where.
        object: ObjectKey,
        /// At most [`ATTR_NAME_LENGTH_MAX`] bytes.
        name: Bytes,
        /// At most [`ATTRS_LENGTH_MAX`] bytes.
        value: Bytes,
    },
    /// Removes one attribute.
    RemoveAttr {
        /// Where.
        object: ObjectKey,
        /// Which.
        name: Bytes,
    },
    /// Sets omap entries.
    OmapSet {
        /// Where.
        object: ObjectKey,
        /// Key and value; a later one of the same key wins.
        entries: Vec<(Bytes, Bytes)>,
    },
    /// Removes omap entries by key.
    OmapRemove {
        /// Where.
        object: ObjectKey,
        /// Which.
        keys: Vec<Bytes>,
    },
    /// Removes omap entries by range. Costs the same for one entry and for a million.
    OmapRemoveRange {
        /// Where.
        object: ObjectKey,
        /// First key removed.
        from: Bytes,
        /// First key kept; `None` removes to the end.
        to: Option<Bytes>,
    },
    /// Removes all omap entries.
    OmapClear(ObjectKey),
    /// Makes `to` equal to `from`: data by reference, attributes, omap (copied). An absent `from`
    /// removes `to`; an object cloned onto itself stays as it is.
    Clone {
        /// The source.
        from: ObjectKey,
        /// Replaced.
        to: ObjectKey,
    },
    /// Writes a range of `from` into `to` (created if absent), by reference where both offsets
    /// allow it. The range is cut at the source's end; an absent source is empty. Overlapping
    /// ranges of one object read before they write.
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
    /// Whether the operation only gives space back. A full store still takes transactions of these
    /// alone.
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

    /// Whether all of it goes through the log whatever the store does: all but written data.
    pub(crate) fn is_logged_whole(&self) -> bool {
        !matches!(self, Self::Write { .. })
    }

    /// Bytes the operation carries: payload, names and a small constant.
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

/// Changes applied in order, and all or none of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// In order.
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

    /// Bytes carried by all operations: what counts against the store's limits.
    #[must_use]
    pub fn size(&self) -> usize {
        self.ops.iter().map(Op::size).sum()
    }

    /// Of [`Self::size`], what goes through the log whatever the store does: all but written data.
    /// See [`ObjectStore::logged_bytes_max`].
    #[must_use]
    pub fn logged_size(&self) -> usize {
        self.ops
            .iter()
            .filter(|op| op.is_logged_whole())
            .map(Op::size)
            .sum()
    }

    /// Checks what can be checked without the store's content.
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

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// Size and attributes; [`ReadReply::Stat`] of `None` if the object is absent.
    Stat(ObjectKey),
    /// Bytes; fewer than asked for at the object's end.
    Data {
        /// Which.
        object: ObjectKey,
        /// First byte.
        offset: u64,
        /// Number of bytes; `u64::MAX` means to the end.
        length: u64,
    },
    /// A range of the omap, in order. At least one entry is returned if there is one and
    /// `limit_entries > 0`.
    Omap {
        /// Which.
        object: ObjectKey,
        /// Where to start.
        from: Bound<Bytes>,
        /// First key left out; `None` reads to the end.
        to: Option<Bytes>,
        /// At most so many entries.
        limit_entries: usize,
        /// Stop before keys and values exceed so many bytes (a first entry larger than that is
        /// returned alone).
        limit_bytes: usize,
    },
    /// Omap entries by key; absent ones are left out.
    OmapGet {
        /// Which.
        object: ObjectKey,
        /// In any order; the reply is ordered by key, without repetition.
        keys: Vec<Bytes>,
    },
    /// Object keys of a collection, in order.
    List {
        /// Which.
        collection: CollectionId,
        /// First key.
        from: Bytes,
        /// First key left out; `None` lists to the end.
        to: Option<Bytes>,
        /// At most so many keys.
        limit: usize,
    },
    /// What a clone of the object takes in space at most: [`ReadReply::Weight`]. Blocks are shared,
    /// but not the omap, attributes and records of blocks.
    Weight(ObjectKey),
    /// The ranges that hold data, in blocks cut at the object's end: everything outside reads as
    /// zeros.
    Extents {
        /// Which.
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
    /// All of them.
    pub attrs: BTreeMap<Bytes, Bytes>,
}

/// An answer, of the kind of the question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadReply {
    /// To [`Read::Stat`].
    Stat(Option<ObjectStat>),
    /// To [`Read::Data`]: the bytes in segments.
    Data(Vec<Bytes>),
    /// To [`Read::Weight`]: bytes; 0 if the object is absent.
    Weight(u64),
    /// To [`Read::Omap`] and [`Read::OmapGet`].
    Omap {
        /// In order.
        entries: Vec<(Bytes, Bytes)>,
        /// A limit was hit: ask again after the last key. Never set for `OmapGet`.
        more: bool,
    },
    /// To [`Read::List`].
    List {
        /// In order.
        keys: Vec<Bytes>,
        /// The limit was hit: ask again after the last key.
        more: bool,
    },
    /// To [`Read::Extents`]: offset and length, in order, not adjacent.
    Extents(Vec<(u64, u64)>),
}

/// Why a read has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// There is no such object (or, for `List`, no such collection).
    NotFound,
    /// The data failed its checksum: read another replica, then repair by writing the block anew.
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
        /// What the device said.
        error: DeviceError,
    },
    /// The index is damaged: no object can be trusted to be found. Stop the daemon and run the
    /// offline check.
    IndexCorrupt,
}

/// Why a transaction was not taken; nothing has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// No space. Transactions that only remove are still taken.
    Full {
        /// Bytes the transaction may need.
        needed: u64,
        /// Bytes left for it.
        available: u64,
    },
    /// Too much is unfinished, or has to be looked up first: submit again (kick first) after the
    /// next [`Event::Committed`], and after every job that was handed back.
    Busy,
    /// Larger than the store can ever take in one piece: split it.
    TooLarge {
        /// Its size in bytes.
        size: u64,
        /// The largest allowed.
        max: u64,
    },
    /// A range ends past the largest object.
    OutOfRange {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// Largest object in bytes.
        max: u64,
    },
    /// A key, name or value is too long.
    TooLong {
        /// Its length in bytes.
        length: usize,
        /// The longest allowed.
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

/// Why the store can no longer be used in this process. What was reported committed is safe on the
/// device, as far as the device keeps its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFailure {
    /// A write or flush failed.
    Device(DeviceError),
    /// The index failed its checksums or cannot be read: run the offline check.
    IndexCorrupt,
    /// The index, or a transaction that was taken, found no room although the reserve was kept. A
    /// bug, or a device that shrank.
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

/// What happened. See the module head for the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The transaction is visible to reads.
    Applied(Token),
    /// The transaction survives a power cut.
    Committed(Token),
    /// The transaction overwrote a part of a block of this object, and the rest of the block could
    /// not be read: that block is an error to read from now on, also after a restart, until it is
    /// overwritten whole or the object is replaced. Comes before [`Self::Applied`].
    Lost(Token, ObjectKey),
    /// The answer to a read.
    Read(Token, Result<ReadReply, ReadError>),
    /// Nothing more will happen; the daemon must stop. Comes once, last.
    Failed(StoreFailure),
}

/// Space and work, for status pages and benchmarks. Counters count since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that objects and the index can ever use.
    pub total: u64,
    /// Bytes used by objects and the index.
    pub used: u64,
    /// Bytes a transaction may still ask for (the reserve for deletes is not in it).
    pub free: u64,
    /// Bytes of memory held: caches, memtables, pending writes.
    pub memory: u64,
    /// Transactions committed.
    pub committed: u64,
    /// Write-ahead log writes (groups).
    pub wal_groups: u64,
    /// Bytes written to the write-ahead log, padding included.
    pub wal_bytes: u64,
    /// Flushes asked of the device.
    pub flushes: u64,
    /// Blocks written to their place from the log.
    pub blocks_written_back: u64,
    /// Block writes that never happened because a later write replaced them (CEPH-57).
    pub blocks_cancelled: u64,
    /// Bytes written to fresh units beside the log.
    pub beside_bytes: u64,
    /// Bytes given back to the device's host.
    pub discarded_bytes: u64,
    /// Payload bytes the store copied in memory: only data kept inside the index (objects below 1
    /// KiB).
    pub payload_bytes_copied: u64,
    /// Index lookups that needed a job.
    pub index_misses: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Blocks whose old content failed its checksum when a part of them was overwritten; they stay
    /// unreadable.
    pub blocks_poisoned: u64,
    /// How often it came to each of its limits.
    pub borders: crate::Borders,
}

/// An object store, driven by one thread.
///
/// A host calls, per wake-up: any number of `submit` and `read`, `on_job` for finished jobs, then
/// `kick`, `poll` and `jobs`. It wakes up again when a job finished or the device has completions.
pub trait ObjectStore {
    /// Takes a transaction. The order of submits is the order of apply and of commit.
    ///
    /// # Errors
    /// The transaction was not taken and nothing happened; each error says what to do.
    fn submit(&mut self, mut transaction: Transaction, token: Token) -> Result<(), SubmitError> {
        self.offer(&mut transaction, token)
    }
    /// The same, for who may have to offer it again: it is emptied if it is taken, and stays as it
    /// is otherwise.
    ///
    /// # Errors
    /// As for [`Self::submit`].
    fn offer(&mut self, transaction: &mut Transaction, token: Token) -> Result<(), SubmitError>;
    /// Asks a question; the answer comes as [`Event::Read`] and sees every transaction submitted
    /// before.
    fn read(&mut self, read: Read, token: Token);
    /// Groups everything submitted since the last call into one log write and one flush. Call once
    /// per wake-up.
    fn kick(&mut self);
    /// Nothing has been asked for a while: what memory holds for writers to come, blocks and index
    /// records, may go to its place now.
    fn rest(&mut self) {}
    /// The host is about to stop, and nothing is in flight: the end of the log is to be marked
    /// (`docs/formats/store.md`), so that damage to what was committed last is recognised.
    /// Returns whether it is; ask again after a poll until then.
    fn mark_end(&mut self) -> bool {
        true
    }
    /// Appends what happened since the last call. Never blocks.
    fn poll(&mut self, events: &mut Vec<Event>);
    /// Appends work that needs blocking I/O. Run each with [`Job::run`], in any order, on any
    /// thread, and hand the result to `on_job`. Dropping one is a crash as far as the store is
    /// concerned.
    fn jobs(&mut self, jobs: &mut Vec<Job>);
    /// A job has finished.
    fn on_job(&mut self, done: JobDone);
    /// Space and work so far.
    fn usage(&self) -> Usage;
    /// The largest [`Transaction::logged_size`] that is taken; a larger transaction is
    /// [`SubmitError::TooLarge`]. It never changes.
    fn logged_bytes_max(&self) -> u64 {
        u64::MAX
    }
}
