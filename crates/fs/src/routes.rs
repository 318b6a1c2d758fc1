//! Which rank has what: all of this client asks here, and nowhere else.
//!
//! ```text
//!  inode ─▶ the rank that gave its number            attributes, data, locks; a directory's names
//!  call  ─▶ the rank of the directory it is about, or of the inode; none: all have something to
//! say
//! ```

use nacre_types::{Ino, Rank};
use nacre_wire::msg::fs::FsCall;

/// Each file system has it: what is of no other rank is asked there.
pub(crate) const FIRST: Rank = Rank(0);

/// The rank that has an inode; if that is a directory, its names too.
pub(crate) const fn rank_of(ino: Ino) -> Rank {
    ino.rank()
}

/// The rank that a call goes to; `None`: it is of no inode.
pub(crate) fn rank_of_call(call: &FsCall) -> Option<Rank> {
    call.rank()
}
