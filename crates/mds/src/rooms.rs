//! How large clients may make files below a quota before telling the server (ADR 0006, "Quotas").
//!
//! ```text
//!   0            size            room
//!   ├──────────────┼───────────────┤
//!     in the sums     spare: reserved for its writer
//! ```
//! Invariant: below a directory with a quota of bytes, sizes and spare space together do not exceed
//! the quota, or the usage when the quota was set. So what a client writes within its room is never
//! refused later.

use crate::tree::Tree;
use nacre_types::Ino;
use std::collections::BTreeMap;

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct Rooms {
    /// The allowed size of each file.
    files: BTreeMap<Ino, u64>,
    /// The sum of these: at least the total spare space.
    sum: u128,
}

impl Rooms {
    /// Sets the room of a file's writer; `None`: it has none.
    pub fn set(&mut self, ino: Ino, room: Option<u64>) {
        let before = match room {
            Some(room) => self.files.insert(ino, room),
            None => self.files.remove(&ino),
        };
        self.sum = self.sum - u128::from(before.unwrap_or(0)) + u128::from(room.unwrap_or(0));
    }
    /// An upper bound on all spare space.
    pub(crate) const fn at_most(&self) -> u128 {
        self.sum
    }
    /// Files with a room that are at or below this inode, and those for which that is unknown.
    pub(crate) fn below<'a>(
        &'a self,
        tree: &'a Tree,
        top: Ino,
    ) -> impl Iterator<Item = (Ino, u64)> {
        let room = self.files.iter().map(|(ino, room)| (*ino, *room));
        room.filter(move |(ino, _)| tree.place(*ino).is_none() || tree.is_below(*ino, top))
    }
    /// The spare space there, except for one file.
    pub(crate) fn spare(&self, tree: &Tree, top: Ino, but: Option<Ino>) -> u128 {
        let spare = |(ino, room): (Ino, u64)| {
            let size = tree.inode(ino).map_or(0, |inode| inode.size);
            u128::from(room.saturating_sub(size))
        };
        self.below(tree, top)
            .filter(|(ino, _)| Some(*ino) != but)
            .map(spare)
            .sum()
    }
}
