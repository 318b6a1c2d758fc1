//! Calls to a file system, and their results.

use crate::routes::{rank_of, rank_of_call};
use bytes::Bytes;
use nacre_types::{Ino, Rank};
use nacre_wire::fs::FsLock;
use nacre_wire::msg::fs::{FsAnswer, FsCall};

/// Identifies a call in flight; increasing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// A call. Calls that change names or attributes end when the server has executed them; their
/// effects are safe only after [`Self::Sync`].
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// A call about names and attributes. A file stays open until it is closed as often; its size
    /// and times at the close are known here, those in the call are ignored. Callers do not see
    /// ranks: [`FsAnswer::Elsewhere`] and [`FsAnswer::ListedPartly`] are never returned.
    /// [`FsCall::StatFs`] and [`FsCall::Flush`] go to all ranks; [`FsCall::Clients`] and
    /// [`FsCall::Evict`] only to the first one.
    Names(FsCall),
    /// Reads data of an open file; short at its end.
    Read {
        /// The file.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// Bytes at most.
        length: u32,
    },
    /// Writes data to an open file; other clients see all of it or nothing. When this ends, the
    /// data is in the file; it is durable after [`Self::Sync`], which waits for delayed writes and
    /// reports their errors.
    Write {
        /// The file.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// The data: all of it is written, or the call fails.
        data: Bytes,
    },
    /// Writes data at the end of an open file, wherever the end is at that moment: concurrent
    /// appends of others come before or after it. Otherwise like [`Self::Write`].
    Append {
        /// The file.
        ino: Ino,
        /// The data: all of it is written, or the call fails.
        data: Bytes,
    },
    /// Zeroes a range of an open file, as far as it lies within the file. Space is freed where
    /// possible. The zeros are durable when this ends; the file's time is durable after
    /// [`Self::Sync`].
    Zero {
        /// The file.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Makes an open file at least this large: the new part is a hole, and takes no space.
    Extend {
        /// The file.
        ino: Ino,
        /// Size in bytes.
        size: u64,
    },
    /// Finds the next data, or the next hole, of an open file. The file's end is a hole; `ENXIO`:
    /// there is none.
    Seek {
        /// The file.
        ino: Ino,
        /// Offset to start from.
        offset: u64,
        /// Find a hole instead of data.
        hole: bool,
    },
    /// Copies a range of one open file to another, or within the same file, like `copy_file_range`:
    /// possibly only the first part. Whole objects are copied inside the cluster where possible
    /// (`fs/copying.rs`). Overlapping ranges of one file are `EINVAL`. The copy is safe after
    /// [`Self::Sync`].
    Copy {
        /// The source file.
        from: Ino,
        /// Its first byte.
        offset: u64,
        /// The target file.
        to: Ino,
        /// Offset in the target.
        at: u64,
        /// Bytes at most.
        length: u64,
    },
    /// Ends at once, with the error of an earlier delayed write that failed, unless [`Self::Sync`]
    /// has reported it.
    Failed {
        /// The file.
        ino: Ino,
    },
    /// Switches lazy I/O on or off for one open of a file: cached and delayed I/O even while other
    /// clients write the file. Must be switched off before the open is closed. It is in effect
    /// while all opens of the file in this client have it on.
    Lazy {
        /// The file.
        ino: Ino,
        /// Whether to switch it on.
        lazy: bool,
    },
    /// Waits until this client's earlier writes to the range are in objects, and the server knows
    /// the file's size. Otherwise like [`Self::Sync`]; data outside of the range may be written,
    /// too.
    Propagate {
        /// The file.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// The same; then drops the cached data of the range if others may have written it: later reads
    /// see what others have propagated before this call began. A failed write is an error here, and
    /// also of the next [`Self::Propagate`] or [`Self::Sync`].
    Synchronize {
        /// The file.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Waits until all changes of a file, of a directory, or of everything are safe.
    Sync {
        /// The inode; `None`: everything.
        ino: Option<Ino>,
    },
    /// Returns the cluster's free space in bytes, in the pool of new files' data.
    Room,
    /// Locks bytes of a file. [`FsCall::TestLock`] returns a conflicting lock.
    Lock {
        /// The lock.
        lock: FsLock,
        /// Wait until it is granted; the number is for [`Self::CancelLock`].
        wait: Option<u64>,
    },
    /// Unlocks bytes of a file.
    Unlock {
        /// The range; its mode is ignored.
        lock: FsLock,
    },
    /// An owner has closed a file: releases all its locks there.
    UnlockAll {
        /// The file.
        ino: Ino,
        /// The owner.
        owner: u64,
    },
    /// Ends a wait: that call ends with `EINTR`, or successfully if it already has the lock.
    CancelLock {
        /// The number given in [`Self::Lock`].
        wait: u64,
    },
}

impl Ask {
    /// The rank that handles it; `None` if it concerns no inode.
    pub(crate) fn rank(&self) -> Option<Rank> {
        match self {
            Self::Names(names) => rank_of_call(names),
            Self::Read { ino, .. }
            | Self::Write { ino, .. }
            | Self::Append { ino, .. }
            | Self::Zero { ino, .. }
            | Self::Extend { ino, .. }
            | Self::Seek { ino, .. }
            | Self::Failed { ino }
            | Self::Lazy { ino, .. }
            | Self::Propagate { ino, .. }
            | Self::Synchronize { ino, .. }
            | Self::Copy { to: ino, .. }
            | Self::UnlockAll { ino, .. } => Some(rank_of(*ino)),
            Self::Lock { lock, .. } | Self::Unlock { lock } => Some(rank_of(lock.ino)),
            Self::Sync { ino } => ino.map(rank_of),
            Self::CancelLock { .. } | Self::Room => None,
        }
    }
    /// For a call about the data of an open file: the file, and whether the call changes it. For a
    /// copy: the target.
    pub(crate) const fn of_data(&self) -> Option<(Ino, bool)> {
        match self {
            Self::Read { ino, .. } | Self::Seek { ino, .. } => Some((*ino, false)),
            Self::Write { ino, .. }
            | Self::Append { ino, .. }
            | Self::Zero { ino, .. }
            | Self::Extend { ino, .. }
            | Self::Copy { to: ino, .. } => Some((*ino, true)),
            _ => None,
        }
    }
}

/// The result of a successful call.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "nearly all are answers")]
pub enum Given {
    /// For [`Ask::Names`]; never [`FsAnswer::Failed`].
    Answer(FsAnswer),
    /// For [`Ask::Read`]: holes are zeros.
    Data(Vec<Bytes>),
    /// For [`Ask::Seek`].
    Offset(u64),
    /// For [`Ask::Copy`]: the number of bytes, possibly fewer than requested. 0: the source ends
    /// there.
    Copied(u64),
    /// For [`Ask::Room`], as last reported by the cluster; `None`: not reported.
    Room(Option<u64>),
    /// For all others.
    Done,
}

/// The end of a call: its result, or a POSIX error number (Linux' numbers, positive).
pub type Outcome = Result<Given, u16>;
