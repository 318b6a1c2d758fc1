//! What a journal that was read says of fragments that are not in memory yet.
//!
//! Taking a rank over reads its journal and nothing else; what a fragment's object has is put
//! together with this when a request wants the fragment.

use crate::change::Change;
use nacre_types::{Frag, Ino, Name};
use nacre_wire::fs::{Entry, Head};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
struct Part {
    /// It began in this journal: its object, if there is one, says nothing.
    all: bool,
    head: Option<Head>,
    /// Names with what they stand for; without, if they stand for nothing.
    entries: BTreeMap<Name, Option<Entry>>,
}

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    parts: BTreeMap<(Ino, Frag), Part>,
    /// Where inodes are whose entries are in a part.
    places: BTreeMap<Ino, (Ino, Frag)>,
}

impl Overlay {
    /// The next change of the journal.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Set { dir, frag, name, entry } => {
                if let Entry::Inode { inode, .. } = &entry {
                    self.places.insert(inode.ino, (dir, frag));
                }
                self.part(dir, frag).entries.insert(name, Some(entry));
            }
            Change::Remove { dir, frag, name } => drop(self.part(dir, frag).entries.insert(name, None)),
            Change::Head { dir, frag, head } => self.part(dir, frag).head = Some(head),
            Change::Begin { dir } => self.part(dir, Frag::WHOLE).all = true,
            Change::End { dir } => self.end(dir),
        }
    }
    /// A directory is gone, and with it all that is said of it.
    pub fn end(&mut self, dir: Ino) {
        self.parts.retain(|(ino, _), _| *ino != dir);
    }
    fn part(&mut self, dir: Ino, frag: Frag) -> &mut Part {
        self.parts.entry((dir, frag)).or_default()
    }

    /// In which fragment an inode's entry is, if a part says so. (It may have said so before a later one
    /// took it away: a request that reads that finds nothing.)
    #[must_use]
    pub fn place(&self, ino: Ino) -> Option<(Ino, Frag)> {
        self.places.get(&ino).copied()
    }

    /// An inode is not there, or can be found there now.
    pub fn forget_place(&mut self, ino: Ino, place: (Ino, Frag)) {
        if self.places.get(&ino) == Some(&place) {
            self.places.remove(&ino);
        }
    }

    /// Whether nothing is left that was not put together with what objects have.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
    /// Fragments of which it says something.
    #[must_use]
    pub fn parts(&self) -> Vec<(Ino, Frag)> {
        self.parts.keys().copied().collect()
    }
    /// What it says of all that is in a directory.
    #[must_use]
    pub fn head(&self, dir: Ino) -> Option<Head> {
        self.parts.get(&(dir, Frag::WHOLE))?.head
    }
    /// What it says of one, as changes.
    #[must_use]
    pub fn changes(&self, dir: Ino, frag: Frag) -> Vec<Change> {
        let Some(part) = self.parts.get(&(dir, frag)) else { return Vec::new() };
        let begin = part.all.then_some(Change::Begin { dir });
        let head = part.head.map(|head| Change::Head { dir, frag, head });
        let entries = part.entries.iter().map(|(name, entry)| match entry.clone() {
            Some(entry) => Change::Set { dir, frag, name: name.clone(), entry },
            None => Change::Remove { dir, frag, name: name.clone() },
        });
        begin.into_iter().chain(head).chain(entries).collect()
    }

    /// Whether this is all there is of a fragment: its object need not be read.
    #[must_use]
    pub fn is_all(&self, dir: Ino, frag: Frag) -> bool {
        self.parts.get(&(dir, frag)).is_some_and(|part| part.all)
    }

    /// A fragment as it is, from what its object has; it is forgotten here.
    pub fn merge(
        &mut self,
        dir: Ino,
        frag: Frag,
        head: Head,
        entries: Vec<(Name, Entry)>,
    ) -> (Head, Vec<(Name, Entry)>) {
        let part = self.parts.remove(&(dir, frag)).unwrap_or_default();
        for ino in part.entries.values().flatten().map(Entry::ino) {
            self.forget_place(ino, (dir, frag));
        }
        let mut all: BTreeMap<Name, Option<Entry>> =
            entries.into_iter().map(|(name, entry)| (name, Some(entry))).collect();
        all.extend(part.entries);
        let entries = all.into_iter().filter_map(|(name, entry)| Some((name, entry?))).collect();
        (part.head.unwrap_or(head), entries)
    }
}
