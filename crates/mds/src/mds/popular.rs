//! Which parts of the tree are busy: each request counts for what it concerns, and for all
//! directories above (CEPH-27).

use super::*;
use nacre_wire::msg::fs::FsPopular;

/// Most directories above an inode that are counted.
const DEPTH_MAX: usize = 100;
/// Directories shown to an operator.
const SHOWN: usize = 20;

impl Mds {
    /// Counts a completed request.
    pub(super) fn count_popular(&mut self, call: &FsCall) {
        let tree = &self.tree;
        let named = call.names().map(|(dir, name)| match tree.find(dir, name) {
            Found::Entry(entry) => entry.ino(),
            Found::Nothing | Found::Unknown(..) => dir,
        });
        let listed = if let FsCall::List { dir, .. } = call {
            Some(*dir)
        } else {
            None
        };
        // A rename counts once for what is above both names.
        let all: BTreeSet<Ino> = call
            .ino()
            .into_iter()
            .chain(named)
            .chain(listed)
            .flat_map(|ino| above(tree, ino))
            .collect();
        self.popularity.count(self.now, all);
    }
    /// The directories with the most recent requests, in or below them.
    pub(super) fn popular(&self) -> Vec<FsPopular> {
        let is_directory = |ino| self.tree.inode(ino).is_some_and(Inode::is_directory);
        let most = self.popularity.most(self.now, SHOWN, is_directory);
        most.into_iter()
            .map(|(ino, rate)| FsPopular {
                ino,
                rate,
                path: self.path(ino),
            })
            .collect()
    }
    /// The path of a directory, as far as it is in memory.
    fn path(&self, ino: Ino) -> Bytes {
        let names = above(&self.tree, ino)
            .filter_map(|ino| self.tree.place(ino).filter(|_| ino != Ino::ROOT));
        let mut names: Vec<&[u8]> = names.map(|(_, name)| name.as_bytes()).collect();
        names.reverse();
        [&b"/"[..], &names.join(&b"/"[..])].concat().into()
    }
}

/// An inode, and the directories above it up to the root.
fn above(tree: &Tree, ino: Ino) -> impl Iterator<Item = Ino> {
    tree.upwards(ino)
        .take_while(|ino| *ino != Ino::TOP)
        .take(DEPTH_MAX)
}
