//! Changes in preparation: entries, and their effects on the heads above them.
//!
//! Each head that a request changes is written once, with its final value.

use crate::change::Change;
use crate::evaluate::errno::EDQUOT;
use crate::evaluate::{Missing, Step, Stop};
use crate::rooms::Rooms;
use crate::tree::{Found, Tree};
use nacre_types::{Frag, Ino, Name};
use nacre_wire::fs::{Entry, FileKind, Head, Inode, Rare, Stamp};
use std::collections::BTreeMap;

/// An entry's contribution to the sums above it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Weight {
    bytes: u64,
    files: u64,
    directories: u64,
}

/// What quotas allow, beyond what the tree knows.
#[derive(Clone, Copy)]
pub(crate) struct Bounds<'a> {
    pub rooms: &'a Rooms,
    /// The change was answered before or has already happened: quotas are ignored.
    pub is_free: bool,
}

/// See the module head.
pub(crate) struct Draft<'a> {
    tree: &'a Tree,
    now: Stamp,
    bounds: Bounds<'a>,
    changes: Vec<Change>,
    heads: BTreeMap<(Ino, Frag), Head>,
}

impl<'a> Draft<'a> {
    pub fn new(tree: &'a Tree, now: Stamp, bounds: Bounds<'a>) -> Self {
        Self {
            tree,
            now,
            bounds,
            changes: Vec::new(),
            heads: BTreeMap::new(),
        }
    }

    pub fn into_changes(mut self) -> Vec<Change> {
        let heads = self
            .heads
            .into_iter()
            .map(|((dir, frag), head)| Change::Head { dir, frag, head });
        self.changes.extend(heads);
        self.changes
    }

    /// A directory's contents.
    pub fn sum(&self, dir: Ino) -> Head {
        self.heads
            .get(&(dir, Frag::WHOLE))
            .copied()
            .unwrap_or_else(|| self.tree.sum(dir))
    }

    fn weight(&self, entry: &Entry) -> Weight {
        match entry {
            Entry::Inode { inode, .. } if inode.is_directory() => {
                let below = self.sum(inode.ino);
                let (bytes, files) = (below.bytes_below, below.files_below);
                Weight {
                    bytes,
                    files,
                    directories: below.directories_below + 1,
                }
            }
            Entry::Inode { inode, .. } => Weight {
                bytes: inode.size,
                files: 1,
                directories: 0,
            },
            // Its bytes count where its inode is; what is below it counts at its own rank.
            Entry::Reference {
                kind: FileKind::Directory {},
                ..
            } => Weight {
                bytes: 0,
                files: 0,
                directories: 1,
            },
            Entry::Reference { .. } => Weight {
                bytes: 0,
                files: 1,
                directories: 0,
            },
        }
    }

    fn head(&mut self, dir: Ino, frag: Frag) -> &mut Head {
        let tree = self.tree;
        self.heads
            .entry((dir, frag))
            .or_insert_with(|| tree.head(dir, frag).copied().unwrap_or_default())
    }

    /// Sets a name; `before` is its former entry.
    pub fn set(&mut self, dir: Ino, name: &Name, entry: Entry, before: Option<&Entry>) {
        let frag = self.tree.frag_of(dir, name);
        self.count(
            dir,
            frag,
            (before.map(Entry::is_directory), Some(entry.is_directory())),
        );
        self.write(dir, frag, name, entry, before);
    }

    /// Replaces an entry by an equivalent one: nothing visible in the directory changes.
    pub fn swap(&mut self, dir: Ino, name: &Name, entry: Entry, before: &Entry) {
        self.write(dir, self.tree.frag_of(dir, name), name, entry, Some(before));
    }

    fn write(&mut self, dir: Ino, frag: Frag, name: &Name, entry: Entry, before: Option<&Entry>) {
        let old = before.map(|before| self.weight(before)).unwrap_or_default();
        let new = self.weight(&entry);
        self.changes.push(Change::Set {
            dir,
            frag,
            name: name.clone(),
            entry,
        });
        self.carry(dir, frag, old, new);
    }

    /// Removes a name.
    pub fn remove(&mut self, dir: Ino, name: &Name, before: &Entry) {
        let frag = self.tree.frag_of(dir, name);
        let old = self.weight(before);
        self.changes.push(Change::Remove {
            dir,
            frag,
            name: name.clone(),
        });
        self.count(dir, frag, (Some(before.is_directory()), None));
        self.carry(dir, frag, old, Weight::default());
    }
    /// The same, looking up the former entry.
    pub fn remove_at(&mut self, dir: Ino, name: &Name) -> Step<()> {
        match self.tree.find(dir, name) {
            Found::Entry(entry) => {
                let entry = entry.clone();
                self.remove(dir, name, &entry);
                Ok(())
            }
            Found::Nothing => Ok(()),
            Found::Unknown(frag, hash) => Err(Stop::Wants(Missing::Slice(dir, frag, hash))),
        }
    }

    /// Changes an inode in place.
    pub fn put(&mut self, inode: Inode) -> Step<()> {
        let (dir, name) = self
            .tree
            .place(inode.ino)
            .ok_or(Stop::Wants(Missing::Inode(inode.ino)))?;
        let Found::Entry(before) = self.tree.find(dir, name) else {
            unreachable!("it was just found")
        };
        // A directory's entry is journaled with the directory's current head, because the journal
        // may no longer contain it.
        let head = inode.is_directory().then(|| self.sum(inode.ino));
        self.swap(
            dir,
            name,
            Entry::Inode {
                head: head.map(Box::new),
                inode,
            },
            before,
        );
        Ok(())
    }

    /// Adds a new, empty directory.
    pub fn begin_directory(&mut self, ino: Ino) {
        self.changes.push(Change::Begin { dir: ino });
        self.heads.insert(
            (ino, Frag::WHOLE),
            Head {
                mtime: self.now,
                ..Head::default()
            },
        );
    }

    /// Removes an empty directory.
    pub fn end_directory(&mut self, ino: Ino) {
        self.changes.push(Change::End { dir: ino });
    }

    /// Counts an entry that was added, removed or replaced.
    fn count(&mut self, dir: Ino, frag: Frag, (before, after): (Option<bool>, Option<bool>)) {
        let now = self.now;
        let head = self.head(dir, frag);
        head.entries = head.entries + u64::from(after.is_some()) - u64::from(before.is_some());
        head.directories =
            head.directories + u64::from(after == Some(true)) - u64::from(before == Some(true));
        head.mtime = head.mtime.max(now);
        head.change += 1;
    }

    /// Replaces a contribution in all sums above.
    fn carry(&mut self, dir: Ino, frag: Frag, old: Weight, new: Weight) {
        if old == new {
            return;
        }
        let above: Vec<(Ino, Frag)> = self.tree.ancestors(dir).collect();
        for (dir, frag) in std::iter::once((dir, frag)).chain(above) {
            let head = self.head(dir, frag);
            head.bytes_below = (head.bytes_below + new.bytes).saturating_sub(old.bytes);
            head.files_below = (head.files_below + new.files).saturating_sub(old.files);
            head.directories_below =
                (head.directories_below + new.directories).saturating_sub(old.directories);
        }
    }

    // ── quotas ──────────────────────────────────────────────────────────────────────────

    /// Whether an entry may move to `dir` from `from`, replacing another one: below a directory
    /// that contains both it counts already.
    pub fn room_to_move(
        &self,
        entry: &Entry,
        from: Ino,
        dir: Ino,
        instead: Option<&Entry>,
    ) -> Step<()> {
        let Weight {
            bytes,
            files,
            directories,
        } = self.weight(entry);
        let gone = instead.map(|entry| self.weight(entry)).unwrap_or_default();
        let bytes = bytes.saturating_sub(gone.bytes);
        let files = (files + directories).saturating_sub(gone.files + gone.directories);
        // Space that its writers may still use comes with it.
        let moved = matches!(entry, Entry::Inode { .. }).then(|| entry.ino());
        self.room_below(
            dir,
            files,
            More {
                bytes,
                from: Some(from),
                moved,
                own: None,
            },
        )
    }
    /// Whether the quotas of a directory and of those above it have room.
    pub fn room_for(&self, dir: Ino, bytes: u64, files: u64) -> Step<()> {
        self.room_below(
            dir,
            files,
            More {
                bytes,
                ..More::default()
            },
        )
    }
    /// The same for a file that had no name.
    pub fn room_to_name(&self, inode: &Inode, dir: Ino) -> Step<()> {
        self.room_below(
            dir,
            1,
            More {
                bytes: inode.size,
                moved: Some(inode.ino),
                ..More::default()
            },
        )
    }
    /// The same for a file in it that becomes larger.
    pub fn room_to_grow(&self, ino: Ino, dir: Ino, bytes: u64) -> Step<()> {
        self.room_below(
            dir,
            0,
            More {
                bytes,
                own: Some(ino),
                ..More::default()
            },
        )
    }
    fn room_below(&self, dir: Ino, files: u64, more: More) -> Step<()> {
        if self.bounds.is_free {
            return Ok(());
        }
        let rooms = self.bounds.rooms;
        let spare_moved = more
            .moved
            .map_or(0, |ino| rooms.spare(self.tree, ino, None));
        for (at, rare) in self.bounded(dir) {
            if more.from.is_some_and(|from| self.tree.is_below(from, at)) {
                continue;
            }
            let sum = self.sum(at);
            let files_used = sum.files_below + sum.directories_below;
            if files > 0 && rare.files_max.is_some_and(|max| files_used + files > max) {
                return Err(Stop::Fail(EDQUOT));
            }
            let Some(max) = rare.bytes_max.map(u128::from) else {
                continue;
            };
            let wanted = u128::from(more.bytes) + spare_moved;
            let used = u128::from(sum.bytes_below) + u128::from(more.bytes);
            if more.bytes > 0 && used > max {
                return Err(Stop::Fail(EDQUOT));
            }
            if wanted > 0 && used + spare_moved + rooms.at_most() > max {
                let spare = rooms.spare(self.tree, at, more.own);
                if used + spare_moved + spare > max {
                    return Err(Stop::Crowded(at, more.moved));
                }
            }
        }
        Ok(())
    }
    /// How many bytes a file's directory may still get; `None`: no limit.
    pub fn room_left(&self, ino: Ino, dir: Ino) -> Option<u64> {
        let left = |(at, rare): (Ino, &Rare)| {
            let spare = self.bounds.rooms.spare(self.tree, at, Some(ino));
            let used = u128::from(self.sum(at).bytes_below) + spare;
            u64::try_from(u128::from(rare.bytes_max?).saturating_sub(used)).ok()
        };
        self.bounded(dir).filter_map(left).min()
    }
    /// Directories from this one up that may have quotas.
    fn bounded(&self, dir: Ino) -> impl Iterator<Item = (Ino, &Rare)> {
        self.tree
            .upwards(dir)
            .filter_map(|dir| Some((dir, self.tree.inode(dir)?.rare.as_deref()?)))
    }
}

/// Bytes that are added below a directory.
#[derive(Clone, Copy, Default)]
struct More {
    bytes: u64,
    /// They were below this directory before.
    from: Option<Ino>,
    /// Together with everything at or below this inode.
    moved: Option<Ino>,
    /// They belong to this file.
    own: Option<Ino>,
}
