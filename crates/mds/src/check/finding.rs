//! What a check finds, and what a repair does about it.

use bytes::Bytes;
use nacre_types::{Ino, Name, PoolId, Rank};
use nacre_wire::fs::{Backpointer, Entry, Head};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// What is wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($(#[$doc])* $kind,)* }
        impl Kind {
            /// All there are.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];
            /// Its name for programs.
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
    /// A batch of a journal is not whole, or out of sequence.
    JournalDamaged = "journal-damaged",
    /// An object could not be read.
    Unreadable = "unreadable",
    /// A change of names of several ranks is decided, and not done everywhere: the ranks' servers do it.
    Unfinished = "unfinished",
    /// The root, its entry, or a hidden directory is missing.
    Missing = "missing",
    /// An entry's key is not its name's.
    BadKey = "bad-key",
    /// An entry cannot be read, or has a number that no rank can have given.
    BadEntry = "bad-entry",
    /// An entry of a hidden directory has another name than its number.
    HiddenName = "hidden-name",
    /// A fragment that its directory does not have.
    Fragment = "fragment",
    /// A directory's head is missing or cannot be read.
    BadHead = "bad-head",
    /// Two entries have the inode of one file.
    NumberTwice = "number-twice",
    /// An inode in a directory of another rank than the one that gave its number.
    OtherRank = "other-rank",
    /// A number that its rank has not given yet.
    NumberNotGiven = "number-not-given",
    /// Two entries lead to one directory.
    DirectoryTwice = "directory-twice",
    /// A directory is below itself.
    DirectoryLoop = "directory-loop",
    /// No entry leads to a directory.
    DirectoryOrphan = "directory-orphan",
    /// A directory has an entry and no object.
    DirectoryWithoutObject = "directory-without-object",
    /// A reference whose inode is not there.
    Dangling = "reference-without-inode",
    /// An inode for references, and there are none.
    Unreferenced = "inode-without-reference",
    /// A reference says of another kind what it stands for.
    ReferenceKind = "reference-kind",
    /// A link count is not the number of names.
    Links = "link-count",
    /// A directory's object says that its entry is elsewhere.
    Backpointer = "backpointer",
    /// A head counts other entries than there are.
    Count = "count",
    /// A head sums up other files than there are below it.
    Sum = "sum",
    /// What an entry says to be in its directory is not what its head says.
    Copy = "copy",
    /// Data of a file that does not exist.
    DataOrphan = "data-orphan",
    /// Data beyond a file's end.
    DataBeyond = "data-beyond",
    /// An object of which a file system knows nothing.
    Unknown = "unknown-object",
}

impl Kind {
    /// Whether it is known from what was read, though something could not be read.
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
    /// Whether what it is about has to be right before counts and sums can be.
    #[must_use]
    pub const fn is_structural(self) -> bool {
        !matches!(
            self,
            Self::Links | Self::Count | Self::Sum | Self::Copy | Self::Backpointer
        )
    }
}

/// What a repair changes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Edit {
    /// A name stands for this.
    Set {
        dir: Ino,
        name: Name,
        entry: Box<Entry>,
    },
    /// A key goes, whatever it is.
    Unset { dir: Ino, key: Bytes },
    /// What is in a directory.
    Head { dir: Ino, head: Head },
    /// Where a directory's entry is.
    Parent { dir: Ino, at: Backpointer },
    /// A directory gets an object, with nothing in it.
    Begin { dir: Ino, at: Option<Backpointer> },
    /// What no name leads to gets one in `lost+found`.
    Adopt { entry: Box<Entry> },
    /// A rank goes on with other numbers.
    Serial { rank: Rank, serial: u64 },
    /// An object with data goes.
    Remove { pool: PoolId, ino: Ino, number: u64 },
    /// An object with data becomes shorter.
    Cut {
        pool: PoolId,
        ino: Ino,
        number: u64,
        size: u64,
    },
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What.
    pub kind: Kind,
    /// Where: a path, or what an object without one is called.
    pub place: String,
    /// A sentence.
    pub what: String,
    /// What a repair does about it: a sentence; none, if it can do nothing.
    pub repair: Option<String>,
    /// It follows from a repair, and is no damage.
    pub(super) quiet: bool,
    /// What stays equal if the same is found again while the file system changes.
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
    /// Whether another look at a file system that changes has found this too.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (self.kind, &self.place, self.same) == (other.kind, &other.place, other.same)
    }
}
