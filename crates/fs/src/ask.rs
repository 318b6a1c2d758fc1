//! What callers ask of a file system, and what they are given.

use crate::routes::{rank_of, rank_of_call};
use bytes::Bytes;
use nacre_types::{Ino, Rank};
use nacre_wire::fs::FsLock;
use nacre_wire::msg::fs::{FsAnswer, FsCall};

/// Names a call in flight; grows with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// A call. Those that change names or attributes end when the server has done them; they are safe
/// only after [`Self::Sync`].
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// Of names and attributes. An open file stays until it is closed as often; its size and times
    /// at the close are known here, those of the call are not looked at. It does not matter to
    /// callers which rank has what: [`FsAnswer::Elsewhere`] and [`FsAnswer::ListedPartly`] are
    /// never given. [`FsCall::StatFs`] and [`FsCall::Flush`] are of all ranks; [`FsCall::Clients`]
    /// and [`FsCall::Evict`] of the first one only.
    Names(FsCall),
    /// Data of a file that is open, short at its end.
    Read {
        /// Which.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// Bytes at most.
        length: u32,
    },
    /// Data for a file that is open, which other clients see all of or nothing. It is in the file
    /// when this ends, and durable after [`Self::Sync`]: what is written later, and what could
    /// not be, that waits for and says.
    Write {
        /// Which.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// All of it is written, or the call fails.
        data: Bytes,
    },
    /// Data for the end of a file that is open, wherever that is by then: what is appended by
    /// others at the same time comes before or after it. Else as [`Self::Write`].
    Append {
        /// Which.
        ino: Ino,
        /// All of it is written, or the call fails.
        data: Bytes,
    },
    /// Makes bytes of a file that is open zeros, as far as they lie within it. Room is given back
    /// where possible. It is durable when this ends; the file's time is so after
    /// [`Self::Sync`].
    Zero {
        /// Which.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Makes a file that is open at least as large as that: what is new are zeros, and no room is
    /// taken for it.
    Extend {
        /// Which.
        ino: Ino,
        /// Bytes.
        size: u64,
    },
    /// Looks for the next data, or the next hole, of a file that is open. Its end is a hole;
    /// `ENXIO`: there is none.
    Seek {
        /// Which.
        ino: Ino,
        /// From this byte on.
        offset: u64,
        /// A hole, and not data.
        hole: bool,
    },
    /// Copies a range of one open file into another one, or to another place of the same, as
    /// `copy_file_range` does: perhaps only the first part of it. Whole objects are copied inside
    /// the cluster where that is possible (`fs/copying.rs`). Ranges of one file that overlap are
    /// `EINVAL`. What is copied is safe after [`Self::Sync`].
    Copy {
        /// Which to read.
        from: Ino,
        /// Its first byte.
        offset: u64,
        /// Which to write.
        to: Ino,
        /// Where its first byte goes.
        at: u64,
        /// Bytes at most.
        length: u64,
    },
    /// Ends at once: with the error of what was to be written before and could not be, as long as
    /// [`Self::Sync`] has not told it.
    Failed {
        /// Which.
        ino: Ino,
    },
    /// One open of a file wants to be kept and written later also while other clients write the
    /// file, or does not want that any more: to be said before the open is closed. It is so while
    /// all opens of the file in this client want it.
    Lazy {
        /// Which.
        ino: Ino,
        /// It wants that.
        lazy: bool,
    },
    /// Waits until all that this client wrote there before is in objects, and the server knows how
    /// large the file is. Else as [`Self::Sync`]; what is outside of the range may be written, too.
    Propagate {
        /// Which.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// The same; then what is kept of these bytes is forgotten, if others may have written them:
    /// reads that begin later see what others have propagated before this began. What could not be
    /// written is an error here, and of the next [`Self::Propagate`] or [`Self::Sync`] as well.
    Synchronize {
        /// Which.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Waits until all that was done to a file or directory, or to anything, is safe.
    Sync {
        /// Which; `None`: everything.
        ino: Option<Ino>,
    },
    /// How many bytes the cluster still has room for, in the pool of new files' data.
    Room,
    /// Locks bytes of a file. [`FsCall::TestLock`] asks which are locked.
    Lock {
        /// What is wanted.
        lock: FsLock,
        /// Waits until it is granted; the number is for [`Self::CancelLock`].
        wait: Option<u64>,
    },
    /// Unlocks bytes of a file.
    Unlock {
        /// Which; in what way they are locked is of no interest.
        lock: FsLock,
    },
    /// An owner has closed a file: all its locks there go.
    UnlockAll {
        /// Which.
        ino: Ino,
        /// Whose.
        owner: u64,
    },
    /// A wait is to end: that call ends with `EINTR`, or with success if it has the lock by then.
    CancelLock {
        /// The number that [`Self::Lock`] gave it.
        wait: u64,
    },
}

impl Ask {
    /// The rank that it goes to; `None`: that of no inode.
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
    /// Of a call about the data of an open file: which, and whether it changes it. Of a copy: the
    /// one that it changes.
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

/// What a call that succeeded is given.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "nearly all are answers")]
pub enum Given {
    /// To [`Ask::Names`]; never [`FsAnswer::Failed`].
    Answer(FsAnswer),
    /// To [`Ask::Read`]: holes are zeros.
    Data(Vec<Bytes>),
    /// To [`Ask::Seek`].
    Offset(u64),
    /// To [`Ask::Copy`]: how many bytes, perhaps fewer than were asked for. 0: the source ends
    /// there.
    Copied(u64),
    /// To [`Ask::Room`], as the cluster said last; `None`: it says nothing.
    Room(Option<u64>),
    /// To all others.
    Done,
}

/// How a call ended: with what it is given, or with an error number of POSIX (Linux' numbers,
/// positive).
pub type Outcome = Result<Given, u16>;
