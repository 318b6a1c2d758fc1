//! The part of the namespace in a server's memory: fragments of directories with slices of their
//! entries, and the place of each inode in them.
//!
//! ```text
//!  (dir, name) ─▶ fragment ─▶ node ◀─ by number
//!                  └ head       └ entry: inode or reference · its place
//! ```
//! A fragment in memory has its head and [`Slices`] of its entries: a name whose hash is in a
//! slice, but which is not there, does not exist. A directory is in memory only if its own entry
//! is: the path to the root is always known.
//!
//! Invariants ([`Tree::check`]): both ways to a node agree; a head counts all its entries, in
//! memory or not; every fragment except those of hidden directories belongs to a directory whose
//! entry is in memory.

use crate::change::Change;
use crate::slices::Slices;
use nacre_types::{Frag, Ino, Name};
use nacre_wire::fs::{Entry, Head, Inode, name_hash};
use std::collections::{BTreeMap, BTreeSet};

/// Index of an entry in [`Tree::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NodeId(u32);

#[derive(Clone, Debug)]
struct Node {
    dir: Ino,
    name: Name,
    entry: Entry,
}

/// A fragment of a directory: its entries in the order of their names' hashes.
#[derive(Clone, Debug, Default)]
struct Fragment {
    head: Head,
    slices: Slices<NodeId>,
}

/// The result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// The name has this entry.
    Entry(&'a Entry),
    /// There is no such entry.
    Nothing,
    /// The slice of this fragment with this hash is not in memory.
    Unknown(Frag, u64),
}

/// A slice of a fragment, by its first hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SliceId {
    /// The directory.
    pub dir: Ino,
    /// The fragment.
    pub frag: Frag,
    /// Its first hash.
    pub first: u64,
}

/// Most entries of a slice by default.
const SLICE_MAX: usize = 2000;

/// See the module head.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Slices with more entries are divided.
    slice_max: usize,
    nodes: Vec<Option<Node>>,
    free: Vec<NodeId>,
    /// Inodes, not references.
    by_ino: BTreeMap<Ino, NodeId>,
    dirs: BTreeMap<Ino, BTreeMap<Frag, Fragment>>,
}

impl Default for Tree {
    fn default() -> Self {
        Self::with_slices(SLICE_MAX)
    }
}

impl Tree {
    /// An empty tree; slices have at most this many entries.
    #[must_use]
    pub const fn with_slices(slice_max: usize) -> Self {
        Self {
            slice_max,
            nodes: Vec::new(),
            free: Vec::new(),
            by_ino: BTreeMap::new(),
            dirs: BTreeMap::new(),
        }
    }

    /// The fragment of a name. A directory that was never split has one.
    #[must_use]
    pub fn frag_of(&self, dir: Ino, name: &Name) -> Frag {
        self.frag_at(dir, name_hash(name))
    }
    /// The fragment of a hash.
    #[must_use]
    pub fn frag_at(&self, dir: Ino, hash: u64) -> Frag {
        let frags = self.dirs.get(&dir);
        frags
            .and_then(|frags| frags.keys().copied().find(|frag| frag.has(hash)))
            .unwrap_or(Frag::WHOLE)
    }

    /// Looks a name up.
    #[must_use]
    pub fn find(&self, dir: Ino, name: &Name) -> Found<'_> {
        let hash = name_hash(name);
        let frag = self.frag_at(dir, hash);
        let fragment = self.dirs.get(&dir).and_then(|frags| frags.get(&frag));
        // The name is cloned once for the look-up: clones share their bytes.
        match fragment.and_then(|fragment| fragment.slices.get(&(hash, name.clone()))) {
            Some(Some(id)) => Found::Entry(&self.node(id).entry),
            Some(None) => Found::Nothing,
            None => Found::Unknown(frag, hash),
        }
    }

    /// An inode by its number, if its entry is in memory.
    #[must_use]
    pub fn inode(&self, ino: Ino) -> Option<&Inode> {
        match &self.node(*self.by_ino.get(&ino)?).entry {
            Entry::Inode { inode, .. } => Some(inode),
            Entry::Reference { .. } => None,
        }
    }
    /// The directory and name of an inode.
    #[must_use]
    pub fn place(&self, ino: Ino) -> Option<(Ino, &Name)> {
        let node = self.node(*self.by_ino.get(&ino)?);
        Some((node.dir, &node.name))
    }

    /// A fragment's head, if it is in memory.
    #[must_use]
    pub fn head(&self, dir: Ino, frag: Frag) -> Option<&Head> {
        Some(&self.dirs.get(&dir)?.get(&frag)?.head)
    }
    /// A directory's summary over all fragments; for fragments not in memory, the copy in its entry
    /// stands for all.
    #[must_use]
    pub fn sum(&self, dir: Ino) -> Head {
        if let Some(fragment) = self
            .dirs
            .get(&dir)
            .and_then(|frags| frags.get(&Frag::WHOLE))
        {
            return fragment.head;
        }
        match self.by_ino.get(&dir).map(|id| &self.node(*id).entry) {
            Some(Entry::Inode {
                head: Some(head), ..
            }) => **head,
            _ => Head::default(),
        }
    }

    /// Entries of a fragment with larger hashes than `after`, in order, up to the returned hash;
    /// `None` if the next hash is not in memory.
    pub fn list(
        &self,
        dir: Ino,
        frag: Frag,
        after: u64,
    ) -> Option<(impl Iterator<Item = (u64, &Name, &Entry)>, u64)> {
        let fragment = self.dirs.get(&dir)?.get(&frag)?;
        let known_to = fragment.slices.known_to(after + 1)?;
        let entries = fragment.slices.from(after + 1);
        Some((
            entries.map(|((hash, name), id)| (*hash, name, &self.node(id).entry)),
            known_to,
        ))
    }
    /// The slice that contains a hash, if it is in memory.
    #[must_use]
    pub fn slice_of(&self, dir: Ino, frag: Frag, hash: u64) -> Option<SliceId> {
        let first = self.dirs.get(&dir)?.get(&frag)?.slices.of(hash)?;
        Some(SliceId { dir, frag, first })
    }
    /// The same for a name.
    #[must_use]
    pub fn slice_of_name(&self, dir: Ino, name: &Name) -> Option<SliceId> {
        self.slice_of(dir, self.frag_of(dir, name), name_hash(name))
    }
    /// Up to which hash everything of a fragment is in memory, from this one on.
    #[must_use]
    pub fn known_to(&self, dir: Ino, frag: Frag, hash: u64) -> Option<u64> {
        self.dirs.get(&dir)?.get(&frag)?.slices.known_to(hash)
    }
    /// The range of hashes of a fragment that is not in memory and contains this one.
    #[must_use]
    pub fn gap(&self, dir: Ino, frag: Frag, hash: u64) -> (u64, u64) {
        let fragment = self.dirs.get(&dir).and_then(|frags| frags.get(&frag));
        fragment.map_or((frag.first(), frag.last()), |fragment| {
            fragment.slices.gap(frag, hash)
        })
    }

    /// Whether `below` is `above` or below it.
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

    /// The top directory of this rank's subtree that contains `dir`: its entry is in a hidden
    /// directory.
    #[must_use]
    pub fn top(&self, dir: Ino) -> Ino {
        let mut at = dir;
        while let Some((above, _)) = self.place(at).filter(|(above, _)| !above.is_hidden()) {
            at = above;
        }
        at
    }

    /// An inode, and the directories above it, up to [`Ino::TOP`] or as far as they are in memory.
    pub fn upwards(&self, ino: Ino) -> impl Iterator<Item = Ino> {
        std::iter::successors(Some(ino), |ino| self.place(*ino).map(|(dir, _)| dir))
    }
    /// The directories from `dir` upwards, each with the fragment that contains the previous one,
    /// from `dir`'s parent to [`Ino::TOP`].
    pub fn ancestors(&self, dir: Ino) -> impl Iterator<Item = (Ino, Frag)> {
        let mut at = dir;
        std::iter::from_fn(move || {
            let (parent, name) = self.place(at)?;
            at = parent;
            Some((parent, self.frag_of(parent, name)))
        })
    }

    /// Adds a complete fragment.
    ///
    /// # Panics
    /// If some of it is already in memory.
    pub fn load(&mut self, dir: Ino, frag: Frag, head: Head, entries: Vec<(Name, Entry)>) {
        self.load_slice(dir, frag, head, (frag.first(), frag.last()), entries, 0);
    }
    /// Adds a part of a fragment: all entries with hashes in that range, used in this turn. Its
    /// head in memory is kept, if there is one.
    ///
    /// # Panics
    /// If some of it is already in memory.
    pub fn load_slice(
        &mut self,
        dir: Ino,
        frag: Frag,
        head: Head,
        range: (u64, u64),
        entries: Vec<(Name, Entry)>,
        turn: u64,
    ) {
        let new = || Fragment {
            head,
            ..Fragment::default()
        };
        let fragment = self
            .dirs
            .entry(dir)
            .or_default()
            .entry(frag)
            .or_insert_with(new);
        fragment.slices.add(range, turn);
        for (name, entry) in entries {
            self.set(dir, frag, name, entry);
        }
    }

    /// Applies a change. Applying it twice has no further effect.
    ///
    /// # Panics
    /// If the fragment is not in memory.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Set {
                dir,
                frag,
                name,
                entry,
            } => self.set(dir, frag, name, entry),
            Change::Remove { dir, frag, name } => self.remove(dir, frag, &name),
            Change::Head { dir, frag, head } => self.fragment(dir, frag).head = head,
            Change::End { dir } => drop(self.dirs.remove(&dir)),
            Change::Begin { dir } => {
                let frag = Frag::WHOLE;
                let fragment = self.dirs.entry(dir).or_default().entry(frag).or_default();
                if fragment.slices.len() == 0 {
                    fragment.slices.add((frag.first(), frag.last()), 0);
                }
            }
        }
    }

    /// Marks the slice of this hash in a directory as used in this turn.
    pub fn touch(&mut self, dir: Ino, hash: u64, turn: u64) {
        let frag = self.frag_at(dir, hash);
        if let Some(fragment) = self
            .dirs
            .get_mut(&dir)
            .and_then(|frags| frags.get_mut(&frag))
        {
            fragment.slices.touch(hash, turn);
        }
    }
    /// Slices in memory, each with its last hash and the turn of its last use.
    pub fn slices(&self) -> impl Iterator<Item = (SliceId, u64, u64)> {
        let frags = self
            .dirs
            .iter()
            .flat_map(|(dir, frags)| frags.iter().map(move |(frag, of)| (*dir, *frag, of)));
        frags.flat_map(|(dir, frag, of)| {
            of.slices
                .all()
                .map(move |((first, last), used)| (SliceId { dir, frag, first }, last, used))
        })
    }
    /// Number of slices of a fragment in memory.
    #[must_use]
    pub fn slices_of(&self, dir: Ino, frag: Frag) -> usize {
        self.dirs
            .get(&dir)
            .and_then(|frags| frags.get(&frag))
            .map_or(0, |fragment| fragment.slices.len())
    }
    /// Places of the entries of directories in memory: they have to stay as long as those.
    #[must_use]
    pub fn slices_above(&self) -> BTreeSet<SliceId> {
        let above = |dir: &Ino| {
            self.place(*dir)
                .and_then(|(above, name)| self.slice_of_name(above, name))
        };
        self.dirs.keys().filter_map(above).collect()
    }
    /// Evicts a slice, which is in its object. The last slice takes its fragment along.
    pub fn evict(&mut self, slice: SliceId) {
        let SliceId { dir, frag, first } = slice;
        let Some(frags) = self.dirs.get_mut(&dir) else {
            return;
        };
        let Some(fragment) = frags.get_mut(&frag) else {
            return;
        };
        let gone = fragment.slices.forget(first);
        if fragment.slices.len() == 0 {
            frags.remove(&frag);
        }
        if frags.is_empty() {
            self.dirs.remove(&dir);
        }
        for id in gone.into_values() {
            self.forget(id);
            self.nodes[id.0 as usize] = None;
            self.free.push(id);
        }
    }
    /// Updates the copy of a directory's head in its entry; returns the entry's place if it
    /// changed.
    pub fn copy_head(&mut self, dir: Ino) -> Option<(Ino, Frag, Name)> {
        let sum = self.sum(dir);
        let id = *self.by_ino.get(&dir)?;
        let node = self.nodes[id.0 as usize]
            .as_mut()
            .expect("nodes that are named are there");
        let Entry::Inode { head, .. } = &mut node.entry else {
            return None;
        };
        match head {
            Some(head) if **head == sum => return None,
            Some(head) => **head = sum,
            None => *head = Some(Box::new(sum)),
        }
        let (parent, name) = (node.dir, node.name.clone());
        Some((parent, self.frag_of(parent, &name), name))
    }

    fn fragment(&mut self, dir: Ino, frag: Frag) -> &mut Fragment {
        let fragment = self
            .dirs
            .get_mut(&dir)
            .and_then(|frags| frags.get_mut(&frag));
        fragment.expect("a fragment is read before it is changed")
    }

    fn set(&mut self, dir: Ino, frag: Frag, name: Name, entry: Entry) {
        let key = (name_hash(&name), name.clone());
        debug_assert!(frag.has(key.0), "{name} does not belong to {frag}");
        if let Some(Some(id)) = self.fragment(dir, frag).slices.get(&key) {
            self.forget(id);
            self.nodes[id.0 as usize]
                .as_mut()
                .expect("it is in its directory")
                .entry = entry;
            self.note(id);
            return;
        }
        let node = Node { dir, name, entry };
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                self.nodes.push(None);
                NodeId(
                    u32::try_from(self.nodes.len() - 1)
                        .expect("fewer than 2^32 entries fit into memory"),
                )
            }
        };
        self.nodes[id.0 as usize] = Some(node);
        self.note(id);
        let max = self.slice_max;
        self.fragment(dir, frag).slices.insert(key, id, max);
    }

    fn remove(&mut self, dir: Ino, frag: Frag, name: &Name) {
        let key = (name_hash(name), name.clone());
        let Some(id) = self.fragment(dir, frag).slices.remove(&key) else {
            return;
        };
        self.forget(id);
        self.nodes[id.0 as usize] = None;
        self.free.push(id);
    }

    /// Makes an inode findable by its number.
    fn note(&mut self, id: NodeId) {
        if let Entry::Inode { inode, .. } = &self.node(id).entry {
            let ino = inode.ino;
            self.by_ino.insert(ino, id);
        }
    }
    /// The opposite, unless it is already found elsewhere: a rename sets the new entry first, or
    /// removes the old one first.
    fn forget(&mut self, id: NodeId) {
        let ino = self.node(id).entry.ino();
        if self.by_ino.get(&ino) == Some(&id) {
            self.by_ino.remove(&ino);
        }
    }
    fn node(&self, id: NodeId) -> &Node {
        self.nodes[id.0 as usize]
            .as_ref()
            .expect("nodes that are named are there")
    }

    /// Number of entries in memory.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }
    /// Whether nothing is in memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asserts the module head's invariants.
    pub fn check(&self) {
        let mut seen = 0;
        for (dir, frags) in &self.dirs {
            assert!(
                dir.is_hidden() || self.by_ino.contains_key(dir),
                "directory {dir} has no entry here"
            );
            for (frag, fragment) in frags {
                let (mut directories, mut entries) = (0, 0);
                for ((first, last), (hash, name), id) in fragment.slices.entries() {
                    assert!((first..=last).contains(hash), "{dir} {frag}: {name}");
                    let node = self.node(id);
                    assert!(
                        frag.has(*hash) && *hash == name_hash(name),
                        "{dir} {frag}: {name}"
                    );
                    assert_eq!((node.dir, &node.name), (*dir, name));
                    if let Entry::Inode { inode, .. } = &node.entry {
                        assert_eq!(
                            self.by_ino.get(&inode.ino),
                            Some(&id),
                            "inode {} is twice",
                            inode.ino
                        );
                    }
                    directories += u64::from(node.entry.is_directory());
                    entries += 1;
                }
                seen += entries;
                let head = &fragment.head;
                let is_all = fragment.slices.is_all(*frag);
                assert!(
                    head.entries == entries as u64 || !is_all && head.entries > entries as u64,
                    "{dir} {frag}"
                );
                assert!(
                    head.directories == directories || !is_all && head.directories > directories,
                    "{dir} {frag}"
                );
            }
        }
        assert_eq!(seen, self.len(), "every node is in a directory");
    }
}
