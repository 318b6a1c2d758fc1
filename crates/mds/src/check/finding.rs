//! The findings of a check, and their repairs.

use bytes::Bytes;
use nacre_types::{Ino, Name, PoolId, Rank};
use nacre_wire::fs::{Backpointer, Entry, Head};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// The kind of a fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($(#[$doc])* $kind,)* }
        impl Kind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];
            /// Its machine-readable name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }
    };
}
kinds! {
    /// A journal's head cannot be read.
    JournalHead = "journal-head",
    /// A batch of a journal is damaged, or out of sequence.
    JournalDamaged = "journal-damaged",
    /// An object could not be read.
    Unreadable = "unreadable",
    /// A name change across ranks is decided but not complete everywhere: the ranks' servers
    /// complete it.
    Unfinished = "unfinished",
    /// The root, its entry, or a hidden directory is missing.
    Missing = "missing",
    /// An entry's key is not its name's.
    BadKey = "bad-key",
    /// An entry cannot be read, or has a number that no rank can have assigned.
    BadEntry = "bad-entry",
    /// The name of an entry of a hidden directory is not its number.
    HiddenName = "hidden-name",
    /// A fragment that its directory does not have.
    Fragment = "fragment",
    /// A directory's head is missing or cannot be read.
    BadHead = "bad-head",
    /// Two entries contain the inode of one file.
    NumberTwice = "number-twice",
    /// An inode in a directory of another rank than the one that assigned its number.
    OtherRank = "other-rank",
    /// A number that its rank has not assigned yet.
    NumberNotGiven = "number-not-given",
    /// Two entries refer to one directory.
    DirectoryTwice = "directory-twice",
    /// A directory is below itself.
    DirectoryLoop = "directory-loop",
    /// No entry refers to a directory.
    DirectoryOrphan = "directory-orphan",
    /// A directory has an entry and no object.
    DirectoryWithoutObject = "directory-without-object",
    /// A reference whose inode does not exist.
    Dangling = "reference-without-inode",
    /// An inode for references without any reference.
    Unreferenced = "inode-without-reference",
    /// A reference has another kind than its inode.
    ReferenceKind = "reference-kind",
    /// A link count is not the number of names.
    Links = "link-count",
    /// A directory's object names another place for its entry.
    Backpointer = "backpointer",
    /// A head has wrong entry counts.
    Count = "count",
    /// A head has wrong sums of the files below it.
    Sum = "sum",
    /// An entry's copy of its directory's head differs from the head.
    Copy = "copy",
    /// Data of a file that does not exist.
    DataOrphan = "data-orphan",
    /// Data beyond a file's end.
    DataBeyond = "data-beyond",
    /// An object that is no part of a file system.
    Unknown = "unknown-object",
}

impl Kind {
    /// Whether the fault is certain even if something could not be read.
    pub(super) const fn is_local(self) -> bool {
        matches!(
            self,
            Self::JournalHead
                | Self::JournalDamaged
                | Self::Unreadable
                | Self::Unfinished
                | Self::BadKey
                | Self::BadEntry
                | Self::HiddenName
                | Self::Fragment
                | Self::BadHead
                | Self::Backpointer
                | Self::Unknown
        )
    }
    /// Whether it must be repaired before counts and sums can be.
    #[must_use]
    pub const fn is_structural(self) -> bool {
        !matches!(
            self,
            Self::Links | Self::Count | Self::Sum | Self::Copy | Self::Backpointer
        )
    }
}

/// A change made by a repair.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Edit {
    /// Sets a name.
    Set {
        dir: Ino,
        name: Name,
        entry: Box<Entry>,
    },
    /// Removes a key, whatever it is.
    Unset { dir: Ino, key: Bytes },
    /// Sets a directory's head.
    Head { dir: Ino, head: Head },
    /// Sets a directory's backpointer.
    Parent { dir: Ino, at: Backpointer },
    /// Creates an empty object for a directory.
    Begin { dir: Ino, at: Option<Backpointer> },
    /// Gives an unreferenced inode a name in `lost+found`.
    Adopt { entry: Box<Entry> },
    /// Sets a rank's next serial.
    Serial { rank: Rank, serial: u64 },
    /// Removes a data object.
    Remove { pool: PoolId, ino: Ino, number: u64 },
    /// Truncates a data object.
    Cut {
        pool: PoolId,
        ino: Ino,
        number: u64,
        size: u64,
    },
}

/// A fault.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Its kind.
    pub kind: Kind,
    /// Where: a path, or the name of an object without one.
    pub place: String,
    /// A sentence that describes it.
    pub what: String,
    /// A sentence that describes the repair; `None` if there is none.
    pub repair: Option<String>,
    /// It results from a repair and is no damage.
    pub(super) quiet: bool,
    /// Identifies the fault across checks of a file system in use.
    pub(super) same: (u64, i64, i64),
    pub(super) edits: Vec<Edit>,
}

impl Finding {
    pub(super) fn new(kind: Kind, place: String, what: String) -> Self {
        Self {
            kind,
            place,
            what,
            repair: None,
            quiet: false,
            same: (0, 0, 0),
            edits: Vec::new(),
        }
    }
    pub(super) fn repaired(mut self, repair: impl Into<String>, edits: Vec<Edit>) -> Self {
        (self.repair, self.edits) = (Some(repair.into()), edits);
        self
    }
    /// Whether another check of a file system in use has found this too.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (self.kind, &self.place, self.same) == (other.kind, &other.place, other.same)
    }
}
