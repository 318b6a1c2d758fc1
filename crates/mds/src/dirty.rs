//! Changes that are only in the journal and not yet in the directories' objects.

use crate::change::Change;
use crate::slices::between;
use nacre_types::{Frag, Ino, Name};
use nacre_wire::fs::{Entry, name_hash};
use std::collections::{BTreeMap, BTreeSet};

/// The dirty parts of a fragment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// Names, with their hashes, that have changed since the fragment was written.
    pub names: BTreeSet<(u64, Name)>,
    /// Whether its head has changed.
    pub head: bool,
    /// Whether its directory has moved or is new.
    pub place: bool,
}

impl Part {
    pub fn name(&mut self, name: Name) {
        self.names.insert((name_hash(&name), name));
    }
    /// Whether a range of hashes has dirty names.
    pub fn has_in(&self, range: (u64, u64)) -> bool {
        self.names.range(between(range)).next().is_some()
    }
}

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    parts: BTreeMap<(Ino, Frag), Part>,
    /// Removed directories whose objects still exist.
    ended: BTreeSet<Ino>,
}

impl Dirty {
    /// Records a change.
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
    /// A fragment's dirty part, created if necessary.
    pub fn part(&mut self, dir: Ino, frag: Frag) -> &mut Part {
        self.parts.entry((dir, frag)).or_default()
    }
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.ended.is_empty()
    }
    /// A fragment's dirty part, if any.
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
    /// Takes everything: nothing is dirty any more.
    pub fn take(&mut self) -> (BTreeMap<(Ino, Frag), Part>, BTreeSet<Ino>) {
        let Self { parts, ended } = std::mem::take(self);
        (parts, ended)
    }
}
