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
            Change::End { dir } => {
                let of = |(ino, _): &(Ino, Frag)| *ino == dir;
                self.parts.retain(|place, _| !of(place));
            }
        }
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
        self.places.retain(|_, place| *place != (dir, frag));
        let mut all: BTreeMap<Name, Option<Entry>> =
            entries.into_iter().map(|(name, entry)| (name, Some(entry))).collect();
        all.extend(part.entries);
        let mut entries: Vec<(Name, Entry)> =
            all.into_iter().filter_map(|(name, entry)| Some((name, entry?))).collect();
        // What a directory has in it is in its entry's copy only when it is written.
        for (_, entry) in &mut entries {
            if let Entry::Inode { inode, head: Some(copy) } = entry
                && let Some(head) = self.parts.get(&(inode.ino, Frag::WHOLE)).and_then(|part| part.head)
            {
                *copy = head;
            }
        }
        (part.head.unwrap_or(head), entries)
    }
}
