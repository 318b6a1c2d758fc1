//! What a server has in memory of the namespace: whole fragments of directories, and where each
//! inode is in them.
//!
//! ```text
//!  (dir, name) ─▶ fragment ─▶ node ◀─ by number
//!                  └ head       └ entry: inode or reference · where it is
//! ```
//! A fragment is here whole or not at all, so what is not in one that is here does not exist.
//! A directory is here only if its own entry is: the way up to the root is always known.
//!
//! Invariants ([`Tree::check`]): the two ways to a node agree; a head counts its entries; every
//! fragment but those of hidden directories belongs to a directory whose entry is here.

use crate::change::Change;
use nacre_types::{Frag, Ino, Name};
use nacre_wire::fs::{Entry, Head, Inode, name_hash};
use std::collections::{BTreeMap, BTreeSet};

/// Which entry of [`Tree::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NodeId(u32);

#[derive(Clone, Debug)]
struct Node {
    dir: Ino,
    name: Name,
    entry: Entry,
}

/// A part of a directory: its entries in the order of their names' hashes.
#[derive(Clone, Debug, Default)]
struct Fragment {
    head: Head,
    entries: BTreeMap<(u64, Name), NodeId>,
    /// In which turn it was used last.
    used: u64,
}

/// What is known of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// It stands for this.
    Entry(&'a Entry),
    /// There is no such entry.
    Nothing,
    /// This fragment is not here.
    Unknown(Frag),
}

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    nodes: Vec<Option<Node>>,
    free: Vec<NodeId>,
    /// Inodes, not references.
    by_ino: BTreeMap<Ino, NodeId>,
    dirs: BTreeMap<Ino, BTreeMap<Frag, Fragment>>,
}

impl Tree {
    /// Where a name of a directory is, or would be. One that was never split has one fragment.
    #[must_use]
    pub fn frag_of(&self, dir: Ino, name: &Name) -> Frag {
        self.frag_at(dir, name_hash(name))
    }
    /// Where a hash of a directory is.
    #[must_use]
    pub fn frag_at(&self, dir: Ino, hash: u64) -> Frag {
        let frags = self.dirs.get(&dir);
        frags.and_then(|frags| frags.keys().copied().find(|frag| frag.has(hash))).unwrap_or(Frag::WHOLE)
    }

    /// What a name stands for.
    #[must_use]
    pub fn find(&self, dir: Ino, name: &Name) -> Found<'_> {
        let hash = name_hash(name);
        let frag = self.frag_at(dir, hash);
        let Some(fragment) = self.dirs.get(&dir).and_then(|frags| frags.get(&frag)) else {
            return Found::Unknown(frag);
        };
        // A name that is looked for is cloned once: it shares its bytes.
        match fragment.entries.get(&(hash, name.clone())) {
            Some(id) => Found::Entry(&self.node(*id).entry),
            None => Found::Nothing,
        }
    }

    /// An inode by its number, if its entry is here.
    #[must_use]
    pub fn inode(&self, ino: Ino) -> Option<&Inode> {
        match &self.node(*self.by_ino.get(&ino)?).entry {
            Entry::Inode { inode, .. } => Some(inode),
            Entry::Reference { .. } => None,
        }
    }
    /// Under which name, in which directory, an inode is.
    #[must_use]
    pub fn place(&self, ino: Ino) -> Option<(Ino, &Name)> {
        let node = self.node(*self.by_ino.get(&ino)?);
        Some((node.dir, &node.name))
    }

    /// What a fragment's head says, if it is here.
    #[must_use]
    pub fn head(&self, dir: Ino, frag: Frag) -> Option<&Head> {
        Some(&self.dirs.get(&dir)?.get(&frag)?.head)
    }
    /// What is in a directory, all fragments together: of those that are not here what its entry
    /// says stands for all.
    #[must_use]
    pub fn sum(&self, dir: Ino) -> Head {
        if let Some(fragment) = self.dirs.get(&dir).and_then(|frags| frags.get(&Frag::WHOLE)) {
            return fragment.head;
        }
        match self.by_ino.get(&dir).map(|id| &self.node(*id).entry) {
            Some(Entry::Inode { head: Some(head), .. }) => *head,
            _ => Head::default(),
        }
    }

    /// Entries of a fragment with larger hashes than `after`, in order; `None` if it is not here.
    pub fn list(&self, dir: Ino, frag: Frag, after: u64) -> Option<impl Iterator<Item = (u64, &Name, &Entry)>> {
        let fragment = self.dirs.get(&dir)?.get(&frag)?;
        let from = (after + 1, Name::default());
        Some(fragment.entries.range(from..).map(|((hash, name), id)| (*hash, name, &self.node(*id).entry)))
    }

    /// Whether `below` is `above` or somewhere below it.
    #[must_use]
    pub fn is_below(&self, below: Ino, above: Ino) -> bool {
        let mut at = below;
        loop {
            if at == above {
                return true;
            }
            match self.place(at) {
                Some((dir, _)) => at = dir,
                None => return false,
            }
        }
    }

    /// The directory at the top of the subtree of this rank that `dir` is in: a hidden one has its entry.
    #[must_use]
    pub fn top(&self, dir: Ino) -> Ino {
        let mut at = dir;
        while let Some((above, _)) = self.place(at).filter(|(above, _)| !above.is_hidden()) {
            at = above;
        }
        at
    }

    /// The directories from `dir` upwards, each with the fragment that the one before it is in, from
    /// `dir`'s parent on to [`Ino::TOP`].
    pub fn ancestors(&self, dir: Ino) -> impl Iterator<Item = (Ino, Frag)> {
        let mut at = dir;
        std::iter::from_fn(move || {
            let (parent, name) = self.place(at)?;
            at = parent;
            Some((parent, self.frag_of(parent, name)))
        })
    }

    /// A fragment was read: it is here from now on.
    ///
    /// # Panics
    /// If it is here already.
    pub fn load(&mut self, dir: Ino, frag: Frag, head: Head, entries: Vec<(Name, Entry)>) {
        let before = self.dirs.entry(dir).or_default().insert(frag, Fragment { head, ..Fragment::default() });
        assert!(before.is_none(), "a fragment is read once");
        for (name, entry) in entries {
            self.set(dir, frag, name, entry);
        }
    }

    /// Makes a change. Made twice it changes nothing the second time.
    ///
    /// # Panics
    /// If the fragment is not here.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Set { dir, frag, name, entry } => self.set(dir, frag, name, entry),
            Change::Remove { dir, frag, name } => self.remove(dir, frag, &name),
            Change::Head { dir, frag, head } => self.fragment(dir, frag).head = head,
            Change::End { dir } => drop(self.dirs.remove(&dir)),
            Change::Begin { dir } => drop(self.dirs.entry(dir).or_default().entry(Frag::WHOLE).or_default()),
        }
    }

    /// A directory is used in this turn.
    pub fn touch(&mut self, dir: Ino, turn: u64) {
        for fragment in self.dirs.get_mut(&dir).into_iter().flat_map(BTreeMap::values_mut) {
            fragment.used = turn;
        }
    }
    /// Fragments that are here, and in which turn each was used last.
    pub fn fragments(&self) -> impl Iterator<Item = (Ino, Frag, u64)> {
        let of = |(dir, frags): (&Ino, &BTreeMap<Frag, Fragment>)| {
            let dir = *dir;
            frags.iter().map(move |(frag, fragment)| (dir, *frag, fragment.used)).collect::<Vec<_>>()
        };
        self.dirs.iter().flat_map(of)
    }
    /// Directories with the entries of others that are here: they have to stay as long as those.
    #[must_use]
    pub fn directories_above(&self) -> BTreeSet<Ino> {
        self.dirs.keys().filter_map(|dir| self.place(*dir)).map(|(above, _)| above).collect()
    }
    /// Forgets a fragment: it is in its object.
    pub fn evict(&mut self, dir: Ino, frag: Frag) {
        let Some(frags) = self.dirs.get_mut(&dir) else { return };
        let Some(fragment) = frags.remove(&frag) else { return };
        if frags.is_empty() {
            self.dirs.remove(&dir);
        }
        for id in fragment.entries.into_values() {
            self.forget(id);
            self.nodes[id.0 as usize] = None;
            self.free.push(id);
        }
    }
    /// Writes into a directory's entry what is in it; where that is, if it was something else.
    pub fn copy_head(&mut self, dir: Ino) -> Option<(Ino, Frag, Name)> {
        let sum = self.sum(dir);
        let id = *self.by_ino.get(&dir)?;
        let node = self.nodes[id.0 as usize].as_mut().expect("nodes that are named are there");
        let Entry::Inode { head, .. } = &mut node.entry else { return None };
        if head.replace(sum) == Some(sum) {
            return None;
        }
        let (parent, name) = (node.dir, node.name.clone());
        Some((parent, self.frag_of(parent, &name), name))
    }

    fn fragment(&mut self, dir: Ino, frag: Frag) -> &mut Fragment {
        let fragment = self.dirs.get_mut(&dir).and_then(|frags| frags.get_mut(&frag));
        fragment.expect("a fragment is read before it is changed")
    }

    fn set(&mut self, dir: Ino, frag: Frag, name: Name, entry: Entry) {
        let key = (name_hash(&name), name.clone());
        debug_assert!(frag.has(key.0), "{name} does not belong to {frag}");
        if let Some(id) = self.fragment(dir, frag).entries.get(&key).copied() {
            self.forget(id);
            self.nodes[id.0 as usize].as_mut().expect("it is in its directory").entry = entry;
            self.note(id);
            return;
        }
        let node = Node { dir, name, entry };
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                self.nodes.push(None);
                NodeId(u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 entries fit into memory"))
            }
        };
        self.nodes[id.0 as usize] = Some(node);
        self.note(id);
        self.fragment(dir, frag).entries.insert(key, id);
    }

    fn remove(&mut self, dir: Ino, frag: Frag, name: &Name) {
        let key = (name_hash(name), name.clone());
        let Some(id) = self.fragment(dir, frag).entries.remove(&key) else { return };
        self.forget(id);
        self.nodes[id.0 as usize] = None;
        self.free.push(id);
    }

    /// An inode can now be found by its number.
    fn note(&mut self, id: NodeId) {
        if let Entry::Inode { inode, .. } = &self.node(id).entry {
            let ino = inode.ino;
            self.by_ino.insert(ino, id);
        }
    }
    /// No more, unless it is found somewhere else already: a rename sets the new entry first, or removes the old one.
    fn forget(&mut self, id: NodeId) {
        let ino = self.node(id).entry.ino();
        if self.by_ino.get(&ino) == Some(&id) {
            self.by_ino.remove(&ino);
        }
    }
    fn node(&self, id: NodeId) -> &Node {
        self.nodes[id.0 as usize].as_ref().expect("nodes that are named are there")
    }

    /// Entries that are here.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }
    /// Whether nothing is here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asserts the module head's invariants.
    pub fn check(&self) {
        let mut seen = 0;
        for (dir, frags) in &self.dirs {
            assert!(dir.is_hidden() || self.by_ino.contains_key(dir), "directory {dir} has no entry here");
            for (frag, fragment) in frags {
                let mut directories = 0;
                for ((hash, name), id) in &fragment.entries {
                    let node = self.node(*id);
                    assert!(frag.has(*hash) && *hash == name_hash(name), "{dir} {frag}: {name}");
                    assert_eq!((node.dir, &node.name), (*dir, name));
                    if let Entry::Inode { inode, .. } = &node.entry {
                        assert_eq!(self.by_ino.get(&inode.ino), Some(id), "inode {} is twice", inode.ino);
                    }
                    directories += u64::from(node.entry.is_directory());
                    seen += 1;
                }
                let head = &fragment.head;
                assert_eq!(
                    (head.entries, head.directories),
                    (fragment.entries.len() as u64, directories),
                    "{dir} {frag}"
                );
            }
        }
        assert_eq!(seen, self.len(), "every node is in a directory");
    }
}
