//! What directories' objects do not have yet: changes that are in the journal only.

use crate::change::Change;
use nacre_types::{Frag, Ino, Name};
use nacre_wire::fs::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Of a fragment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// Names that stand for something else, or for nothing, since it was written.
    pub names: BTreeSet<Name>,
    /// So does its head.
    pub head: bool,
    /// Its directory has another place, or is new.
    pub place: bool,
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
            Change::Set { dir, frag, name, entry } => {
                self.part(*dir, *frag).names.insert(name.clone());
                if let Entry::Inode { inode, .. } = entry
                    && inode.is_directory()
                {
                    self.part(inode.ino, Frag::WHOLE).place = true;
                }
            }
            Change::Remove { dir, frag, name } => drop(self.part(*dir, *frag).names.insert(name.clone())),
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
    pub fn has(&self, dir: Ino, frag: Frag) -> bool {
        self.parts.contains_key(&(dir, frag))
    }
    /// Fragments whose heads have changed.
    pub fn heads(&self) -> Vec<Ino> {
        self.parts.iter().filter(|(_, part)| part.head).map(|((dir, _), _)| *dir).collect()
    }
    /// All of it: nothing is dirty any more.
    pub fn take(&mut self) -> (BTreeMap<(Ino, Frag), Part>, BTreeSet<Ino>) {
        let Self { parts, ended } = std::mem::take(self);
        (parts, ended)
    }
}
