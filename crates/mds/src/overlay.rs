//! What a journal that was read says of fragments that are not in memory yet.
//!
//! Taking a rank over reads its journal and nothing else; what a fragment's object has is put
//! together with this slice by slice, when a request wants one.

use crate::change::Change;
use crate::slices::{Entries, between};
use nacre_types::{Frag, Ino, Name};
use nacre_wire::fs::{Entry, Head, name_hash};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
struct Part {
    /// It began in this journal: its object, if there is one, says nothing.
    all: bool,
    head: Option<Head>,
    /// Names, by their hashes, with what they stand for; without, if they stand for nothing.
    entries: Entries<Option<Entry>>,
}

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    parts: BTreeMap<(Ino, Frag), Part>,
    /// Where inodes are whose entries are in a part.
    places: BTreeMap<Ino, (Ino, Frag, u64)>,
}

impl Overlay {
    /// The next change of the journal.
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
    /// A directory is gone, and with it all that is said of it.
    pub fn end(&mut self, dir: Ino) {
        self.parts.retain(|(ino, _), _| *ino != dir);
    }
    fn part(&mut self, dir: Ino, frag: Frag) -> &mut Part {
        self.parts.entry((dir, frag)).or_default()
    }

    /// In which fragment an inode's entry is, and at which hash, if a part says so. (It may have
    /// said so before a later one took it away: a request that reads that finds nothing.)
    #[must_use]
    pub fn place(&self, ino: Ino) -> Option<(Ino, Frag, u64)> {
        self.places.get(&ino).copied()
    }

    /// An inode is not there, or can be found there now.
    pub fn forget_place(&mut self, ino: Ino, place: (Ino, Frag)) {
        if self
            .places
            .get(&ino)
            .is_some_and(|(dir, frag, _)| (*dir, *frag) == place)
        {
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
        self.changes_in(dir, frag, (frag.first(), frag.last()))
    }
    /// The same of a range of hashes.
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
    /// Whether it says something of a fragment.
    #[must_use]
    pub fn has(&self, dir: Ino, frag: Frag) -> bool {
        self.parts.contains_key(&(dir, frag))
    }
    /// The first hash of which it says something.
    #[must_use]
    pub fn first(&self, dir: Ino, frag: Frag) -> Option<u64> {
        Some(self.parts.get(&(dir, frag))?.entries.keys().next()?.0)
    }
    /// The part of a range, from its first hash on, in which it names no more than so many; those
    /// of one hash are together.
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

    /// Whether this is all there is of a fragment: its object need not be read.
    #[must_use]
    pub fn is_all(&self, dir: Ino, frag: Frag) -> bool {
        self.parts.get(&(dir, frag)).is_some_and(|part| part.all)
    }

    /// A range of a fragment as it is, from what its object has, and its head, if that is another
    /// one; both are forgotten here.
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
    /// Forgets that there was something of a fragment, if nothing is left. Of one that began in the
    /// journal what is left is known to be empty, until all of it is in memory.
    pub fn retire(&mut self, dir: Ino, frag: Frag, is_whole: bool) {
        let part = self.parts.get(&(dir, frag));
        if part.is_some_and(|part| {
            part.head.is_none() && part.entries.is_empty() && (is_whole || !part.all)
        }) {
            self.parts.remove(&(dir, frag));
        }
    }
}
