//! Files whose data must be removed: those without a name that no client has open, and those that
//! were truncated.
//!
//! The namespace contains this (a stray's entry, an inode's `stale_to`), so it is known again after
//! a takeover; a completed removal is recorded there.

use crate::change::Change;
use crate::tree::{Found, Tree};
use nacre_types::{Frag, Ino, Name, PoolId, Rank};
use nacre_wire::fs::{Entry, Layout, Rare};
use nacre_wire::msg::client::SubOp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Files whose data is removed at a time.
const AT_ONCE: usize = 4;
/// Objects of each: a file of a terabyte has a quarter of a million.
const PARTS_AT_ONCE: usize = 16;

/// A removal in progress.
#[derive(Clone, Copy, Debug)]
pub struct Under {
    /// Remove data from here on; `None`: all of it, and the file itself.
    pub keep: Option<u64>,
    /// Remove data up to here.
    pub until: u64,
    layout: Layout,
    /// The next object.
    next: u64,
    /// Objects being changed.
    parts: usize,
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Removing {
    due: BTreeSet<Ino>,
    under_way: BTreeMap<Ino, Under>,
}

impl Removing {
    /// Examines a change that was made or read.
    pub fn see(&mut self, change: &Change, rank: Rank) {
        if let Change::Set { dir, entry, .. } = change {
            self.see_entry(*dir, entry, rank);
        }
    }
    /// Examines an entry that was read.
    pub fn see_entry(&mut self, dir: Ino, entry: &Entry, rank: Rank) {
        let Entry::Inode { inode, .. } = entry else {
            return;
        };
        if dir == Ino::strays(rank) || inode.stale_to() > inode.size {
            self.due.insert(inode.ino);
        } else {
            // It may have had no name before.
            self.due.remove(&inode.ino);
        }
    }
    /// Files with data to remove.
    pub fn all(&self) -> impl Iterator<Item = Ino> {
        self.due.iter().chain(self.under_way.keys()).copied()
    }

    /// The next file whose data can be removed now: one that `is_ready`.
    pub fn next(&mut self, is_ready: impl Fn(Ino) -> bool) -> Option<Ino> {
        if self.under_way.len() >= AT_ONCE {
            return None;
        }
        let next = self
            .due
            .iter()
            .copied()
            .find(|ino| !self.under_way.contains_key(ino) && is_ready(*ino))?;
        self.due.remove(&next);
        Some(next)
    }
    /// Begins to remove its data between `keep` and `until`; with `keep` `None`, the whole file.
    pub fn begin(&mut self, ino: Ino, layout: Layout, keep: Option<u64>, until: u64) {
        self.under_way.insert(
            ino,
            Under {
                keep,
                until,
                layout,
                next: 0,
                parts: 0,
            },
        );
    }
    /// The next object to change: pool, number and operation.
    pub fn next_part(&mut self, ino: Ino) -> Option<(PoolId, u64, SubOp)> {
        let under = self
            .under_way
            .get_mut(&ino)
            .filter(|under| under.parts < PARTS_AT_ONCE)?;
        let Under {
            keep,
            until,
            layout,
            ..
        } = *under;
        while under.next < layout.objects(until) {
            let number = under.next;
            under.next += 1;
            let had = layout.length_of(number, until);
            let Some(op) = cut(&layout, number, keep.unwrap_or(0), had) else {
                continue;
            };
            under.parts += 1;
            return Some((layout.pool, number, op));
        }
        None
    }
    /// One of them is complete.
    pub fn part_gone(&mut self, ino: Ino) {
        if let Some(under) = self.under_way.get_mut(&ino) {
            under.parts -= 1;
        }
    }
    /// Whether nothing is left to change.
    #[must_use]
    pub fn is_done(&self, ino: Ino) -> bool {
        let done =
            |under: &Under| under.parts == 0 && under.next >= under.layout.objects(under.until);
        self.under_way.get(&ino).is_some_and(done)
    }
    /// Everything is removed.
    pub fn end(&mut self, ino: Ino) -> Option<Under> {
        self.under_way.remove(&ino)
    }
}

/// The operation on an object of a file that keeps only this many bytes; the object had `had`
/// bytes.
pub(crate) fn cut(layout: &Layout, number: u64, keep: u64, had: u64) -> Option<SubOp> {
    match layout.length_of(number, keep) {
        0 => Some(SubOp::Delete {}),
        size if size < had => Some(SubOp::Truncate { size }),
        _ => None,
    }
}

/// The change to record a completed removal: a stray's entry is removed, or a truncated file has
/// nothing beyond its end any more (even one without a name that is still open). None if more must
/// be removed by now.
#[must_use]
pub fn conclude(tree: &Tree, ino: Ino, removed: Under, rank: Rank) -> Option<Vec<Change>> {
    let (dir, name) = tree.place(ino)?;
    let (name, frag): (Name, Frag) = (name.clone(), tree.frag_of(dir, name));
    let Found::Entry(Entry::Inode { inode, head }) = tree.find(dir, &name) else {
        return None;
    };
    let Some(keep) = removed.keep else {
        if dir != Ino::strays(rank) {
            return None;
        }
        let mut sum = *tree.head(dir, frag)?;
        sum.entries -= 1;
        sum.files_below -= 1;
        sum.bytes_below -= inode.size;
        return Some(vec![
            Change::Remove { dir, frag, name },
            Change::Head {
                dir,
                frag,
                head: sum,
            },
        ]);
    };
    // Truncated again meanwhile: that data is removed next.
    if inode.stale_to() > removed.until || inode.size < keep {
        return None;
    }
    let mut inode = inode.clone();
    let mut rare = inode.rare.as_deref().cloned().unwrap_or_default();
    rare.stale_to = 0;
    inode.rare = (rare != Rare::default()).then(|| Arc::new(rare));
    Some(vec![Change::Set {
        dir,
        frag,
        name,
        entry: Entry::Inode {
            inode,
            head: head.clone(),
        },
    }])
}
