//! What the journal says: new values, never differences, so that replaying twice is replaying once.

use nacre_types::{Frag, Ino, Name};
use nacre_wire::fs::{Entry, Head};
use nacre_wire::wire_enum;

/// One change of the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "nearly all set entries")]
pub enum Change {
    /// A name stands for this from now on.
    Set {
        /// In which directory.
        dir: Ino,
        /// In which part of it.
        frag: Frag,
        /// Which name.
        name: Name,
        /// For what.
        entry: Entry,
    },
    /// A name stands for nothing any more.
    Remove {
        /// In which directory.
        dir: Ino,
        /// In which part of it.
        frag: Frag,
        /// Which name.
        name: Name,
    },
    /// A directory is new: there is nothing in it.
    Begin {
        /// Which.
        dir: Ino,
    },
    /// A directory, which was empty, is gone.
    End {
        /// Which.
        dir: Ino,
    },
    /// What is in a fragment.
    Head {
        /// Of which directory.
        dir: Ino,
        /// Which part of it.
        frag: Frag,
        /// All of it together.
        head: Head,
    },
}
impl Change {
    /// The directory whose names it changes; none, if it says what is in one.
    pub(crate) const fn dir(&self) -> Option<Ino> {
        match self {
            Self::Set { dir, .. }
            | Self::Remove { dir, .. }
            | Self::Begin { dir }
            | Self::End { dir } => Some(*dir),
            Self::Head { .. } => None,
        }
    }
}
wire_enum!(Change {
    1 => Set { dir, frag, name, entry },
    2 => Remove { dir, frag, name },
    3 => Begin { dir },
    4 => End { dir },
    5 => Head { dir, frag, head },
});
