//! Routing: which rank has what. The only place in this client that decides it.
//!
//! ```text
//!  inode ─▶ the rank that assigned its number         attributes, data, locks; a directory's names
//!  call  ─▶ the rank of the directory it concerns, or of the inode; none: all ranks contribute
//! ```

use nacre_types::{Ino, Rank};
use nacre_wire::msg::fs::FsCall;

/// It exists in each file system: what belongs to no other rank is requested there.
pub(crate) const FIRST: Rank = Rank(0);

/// The rank of an inode; if that is a directory, its names too.
pub(crate) const fn rank_of(ino: Ino) -> Rank {
    ino.rank()
}

/// The rank that handles a call; `None`: it concerns no inode.
pub(crate) fn rank_of_call(call: &FsCall) -> Option<Rank> {
    call.rank()
}
