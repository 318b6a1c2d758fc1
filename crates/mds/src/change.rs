//! Changes in the journal: new values, never differences, so that replaying twice has the effect of
//! replaying once.

use nacre_types::{Frag, Ino, Name};
use nacre_wire::fs::{Entry, Head};
use nacre_wire::wire_enum;

/// One change of the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "nearly all set entries")]
pub enum Change {
    /// A name refers to this entry from now on.
    Set {
        /// The directory.
        dir: Ino,
        /// Its fragment.
        frag: Frag,
        /// The name.
        name: Name,
        /// The entry.
        entry: Entry,
    },
    /// A name is removed.
    Remove {
        /// The directory.
        dir: Ino,
        /// Its fragment.
        frag: Frag,
        /// The name.
        name: Name,
    },
    /// A new, empty directory.
    Begin {
        /// The directory.
        dir: Ino,
    },
    /// An empty directory is removed.
    End {
        /// The directory.
        dir: Ino,
    },
    /// The head of a fragment.
    Head {
        /// The directory.
        dir: Ino,
        /// Its fragment.
        frag: Frag,
        /// The new head.
        head: Head,
    },
}
impl Change {
    /// The directory whose names it changes; `None` if it only changes a head.
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
