//! What directories' objects do not have yet: changes that are in the journal only.

use crate::change::Change;
use crate::slices::between;
use nacre_types::{Frag, Ino, Name};
use nacre_wire::fs::{Entry, name_hash};
use std::collections::{BTreeMap, BTreeSet};

/// Of a fragment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// Names, by their hashes, that stand for something else, or for nothing, since it was
    /// written.
    pub names: BTreeSet<(u64, Name)>,
    /// So does its head.
    pub head: bool,
    /// Its directory has another place, or is new.
    pub place: bool,
}

impl Part {
    pub fn name(&mut self, name: Name) {
        self.names.insert((name_hash(&name), name));
    }
    /// Whether there is something in a range of hashes.
    pub fn has_in(&self, range: (u64, u64)) -> bool {
        self.names.range(between(range)).next().is_some()
    }
}

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    parts: BTreeMap<(Ino, Frag), Part>,
    /// Directories that are gone, with their objects still there.
    ended: BTreeSet<Ino>,
}

impl Dirty {
    /// A change was made.
    pub fn note(&mut self, change: &Change) {
        match change {
            Change::Set {
                dir,
                frag,
                name,
                entry,
            } => {
                self.part(*dir, *frag).name(name.clone());
                if let Entry::Inode { inode, .. } = entry
                    && inode.is_directory()
                {
                    self.part(inode.ino, Frag::WHOLE).place = true;
                }
            }
            Change::Remove { dir, frag, name } => self.part(*dir, *frag).name(name.clone()),
            Change::Head { dir, frag, .. } => self.part(*dir, *frag).head = true,
            Change::Begin { dir } => self.part(*dir, Frag::WHOLE).head = true,
            Change::End { dir } => {
                self.parts.retain(|(of, _), _| of != dir);
                self.ended.insert(*dir);
            }
        }
    }
    /// A fragment's part; it is dirty from now on.
    pub fn part(&mut self, dir: Ino, frag: Frag) -> &mut Part {
        self.parts.entry((dir, frag)).or_default()
    }
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.ended.is_empty()
    }
    /// What of a fragment is dirty.
    pub fn get(&self, dir: Ino, frag: Frag) -> Option<&Part> {
        self.parts.get(&(dir, frag))
    }
    /// Fragments whose heads have changed.
    pub fn heads(&self) -> Vec<Ino> {
        self.parts
            .iter()
            .filter(|(_, part)| part.head)
            .map(|((dir, _), _)| *dir)
            .collect()
    }
    /// All of it: nothing is dirty any more.
    pub fn take(&mut self) -> (BTreeMap<(Ino, Frag), Part>, BTreeSet<Ino>) {
        let Self { parts, ended } = std::mem::take(self);
        (parts, ended)
    }
}
