//! The contents of a journal that was read, for fragments that are not in memory yet.
//!
//! Taking a rank over reads only its journal; the fragments' objects are merged with it slice by
//! slice, when a request needs one.

use crate::change::Change;
use crate::slices::{Entries, between};
use nacre_types::{Frag, Ino, Name};
use nacre_wire::fs::{Entry, Head, name_hash};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
struct Part {
    /// It was created in this journal: its object, if there is one, is ignored.
    all: bool,
    head: Option<Head>,
    /// Names, with their hashes, and their entries; `None` if the name was removed.
    entries: Entries<Option<Entry>>,
}

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    parts: BTreeMap<(Ino, Frag), Part>,
    /// Places of inodes whose entries are in a part.
    places: BTreeMap<Ino, (Ino, Frag, u64)>,
}

impl Overlay {
    /// Adds the next change of the journal.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Set {
                dir,
                frag,
                name,
                entry,
            } => {
                let hash = name_hash(&name);
                if let Entry::Inode { inode, .. } = &entry {
                    self.places.insert(inode.ino, (dir, frag, hash));
                }
                self.part(dir, frag)
                    .entries
                    .insert((hash, name), Some(entry));
            }
            Change::Remove { dir, frag, name } => {
                drop(
                    self.part(dir, frag)
                        .entries
                        .insert((name_hash(&name), name), None),
                );
            }
            Change::Head { dir, frag, head } => self.part(dir, frag).head = Some(head),
            Change::Begin { dir } => self.part(dir, Frag::WHOLE).all = true,
            Change::End { dir } => self.end(dir),
        }
    }
    /// A directory is removed, with everything known about it.
    pub fn end(&mut self, dir: Ino) {
        self.parts.retain(|(ino, _), _| *ino != dir);
    }
    fn part(&mut self, dir: Ino, frag: Frag) -> &mut Part {
        self.parts.entry((dir, frag)).or_default()
    }

    /// The fragment and hash of an inode's entry, if a part contains it. (A later change may have
    /// removed it: a request that reads it then finds nothing.)
    #[must_use]
    pub fn place(&self, ino: Ino) -> Option<(Ino, Frag, u64)> {
        self.places.get(&ino).copied()
    }

    /// An inode does not exist, or can be found otherwise now.
    pub fn forget_place(&mut self, ino: Ino, place: (Ino, Frag)) {
        if self
            .places
            .get(&ino)
            .is_some_and(|(dir, frag, _)| (*dir, *frag) == place)
        {
            self.places.remove(&ino);
        }
    }

    /// Whether everything has been merged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
    /// Fragments with changes.
    #[must_use]
    pub fn parts(&self) -> Vec<(Ino, Frag)> {
        self.parts.keys().copied().collect()
    }
    /// The last head of a directory.
    #[must_use]
    pub fn head(&self, dir: Ino) -> Option<Head> {
        self.parts.get(&(dir, Frag::WHOLE))?.head
    }
    /// The changes of one fragment.
    #[must_use]
    pub fn changes(&self, dir: Ino, frag: Frag) -> Vec<Change> {
        self.changes_in(dir, frag, (frag.first(), frag.last()))
    }
    /// The changes in a range of hashes.
    #[must_use]
    pub fn changes_in(&self, dir: Ino, frag: Frag, range: (u64, u64)) -> Vec<Change> {
        let Some(part) = self.parts.get(&(dir, frag)) else {
            return Vec::new();
        };
        let begin = part.all.then_some(Change::Begin { dir });
        let head = part.head.map(|head| Change::Head { dir, frag, head });
        let entries = part
            .entries
            .range(between(range))
            .map(|((_, name), entry)| match entry.clone() {
                Some(entry) => Change::Set {
                    dir,
                    frag,
                    name: name.clone(),
                    entry,
                },
                None => Change::Remove {
                    dir,
                    frag,
                    name: name.clone(),
                },
            });
        begin.into_iter().chain(head).chain(entries).collect()
    }
    /// Whether it has changes of a fragment.
    #[must_use]
    pub fn has(&self, dir: Ino, frag: Frag) -> bool {
        self.parts.contains_key(&(dir, frag))
    }
    /// The first hash with a change.
    #[must_use]
    pub fn first(&self, dir: Ino, frag: Frag) -> Option<u64> {
        Some(self.parts.get(&(dir, frag))?.entries.keys().next()?.0)
    }
    /// The first part of a range, with at most this many names; names with equal hashes stay
    /// together.
    #[must_use]
    pub fn piece(
        &self,
        dir: Ino,
        frag: Frag,
        (first, last): (u64, u64),
        count: usize,
    ) -> (u64, u64) {
        let Some(part) = self.parts.get(&(dir, frag)) else {
            return (first, last);
        };
        let mut hashes = part
            .entries
            .range(between((first, last)))
            .map(|((hash, _), _)| *hash)
            .skip(count);
        hashes
            .find(|hash| *hash > first)
            .map_or((first, last), |next| (first, next - 1))
    }

    /// Whether it has the complete fragment, so that its object need not be read.
    #[must_use]
    pub fn is_all(&self, dir: Ino, frag: Frag) -> bool {
        self.parts.get(&(dir, frag)).is_some_and(|part| part.all)
    }

    /// A range of a fragment, merged from its object and these changes, and its head if it was
    /// changed; removes both from here.
    pub fn merge(
        &mut self,
        dir: Ino,
        frag: Frag,
        range: (u64, u64),
        entries: Vec<(Name, Entry)>,
    ) -> (Option<Head>, Vec<(Name, Entry)>) {
        let Some(part) = self.parts.get_mut(&(dir, frag)) else {
            return (None, entries);
        };
        let head = part.head.take();
        let taken: Vec<((u64, Name), Option<Entry>)> = part
            .entries
            .extract_if(between(range), |_, _| true)
            .collect();
        for ino in taken
            .iter()
            .filter_map(|(_, entry)| entry.as_ref())
            .map(Entry::ino)
        {
            self.forget_place(ino, (dir, frag));
        }
        let mut all: BTreeMap<Name, Option<Entry>> = entries
            .into_iter()
            .map(|(name, entry)| (name, Some(entry)))
            .collect();
        all.extend(taken.into_iter().map(|((_, name), entry)| (name, entry)));
        (
            head,
            all.into_iter()
                .filter_map(|(name, entry)| Some((name, entry?)))
                .collect(),
        )
    }
    /// Drops a fragment without remaining changes. A fragment that was created in the journal
    /// stays, as known to be empty otherwise, until it is completely in memory.
    pub fn retire(&mut self, dir: Ino, frag: Frag, is_whole: bool) {
        let part = self.parts.get(&(dir, frag));
        if part.is_some_and(|part| {
            part.head.is_none() && part.entries.is_empty() && (is_whole || !part.all)
        }) {
            self.parts.remove(&(dir, frag));
        }
    }
}
