//! Checks directory quotas: the usage below a directory, in the order of the journal.
//!
//! ```text
//!  quota ─▶ allowed: the quota, or what was there ─▶ usage falls: allowed falls ─▶ usage above that: a fault, if it stays
//! ```
//! A change begun before the quota was set may follow it in the journal. Changes that were answered
//! and are redone after a takeover may be in another order than before, so usage may exceed the
//! limit for a moment.

use nacre_history::posix::{Kind, Model};
use nacre_types::{Ino, Rank};
use nacre_wire::fs::QuotaKind;
use std::collections::{BTreeMap, BTreeSet};

/// A quota of a directory.
#[derive(Clone, Debug)]
struct Bound {
    max: u64,
    /// The allowed usage.
    allowed: u64,
    /// When it was known to be set.
    since: u64,
    /// Usage exceeds it.
    over: bool,
}

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    of: BTreeMap<(usize, bool), Bound>,
    /// The rank of each inode.
    ranks: BTreeMap<usize, Rank>,
    /// Files that have, or had, several names, or one in another rank's directory: their bytes are
    /// not counted.
    several: BTreeSet<usize>,
}

const fn is_of_bytes(kind: QuotaKind) -> bool {
    matches!(kind, QuotaKind::Bytes {})
}

impl Bounds {
    /// A new inode was created.
    pub fn on_made(&mut self, id: usize, ino: Ino) {
        self.ranks.insert(id, ino.rank());
    }
    /// A directory was replaced by another one, with the same quotas.
    pub fn on_pinned(&mut self, before: usize, id: usize) {
        for is_bytes in [false, true] {
            if let Some(bound) = self.of.remove(&(before, is_bytes)) {
                self.of.insert(
                    (id, is_bytes),
                    Bound {
                        allowed: bound.max,
                        over: false,
                        ..bound
                    },
                );
            }
        }
    }
    /// A file's bytes are not counted from now on.
    pub fn on_several(&mut self, id: usize) {
        self.several.insert(id);
    }
    /// A quota is set; `since`: when its caller knew.
    pub fn set(&mut self, model: &Model, id: usize, kind: QuotaKind, max: Option<u64>, since: u64) {
        let key = (id, is_of_bytes(kind));
        match max {
            None => drop(self.of.remove(&key)),
            Some(max) => {
                let allowed = max.max(self.usage(model, key));
                self.of.insert(
                    key,
                    Bound {
                        max,
                        allowed,
                        since,
                        over: false,
                    },
                );
            }
        }
    }
    /// Whether a quota of this kind applies to a directory.
    pub fn has(&self, model: &Model, mut dir: usize) -> bool {
        loop {
            if self.of.contains_key(&(dir, false)) || self.of.contains_key(&(dir, true)) {
                return true;
            }
            match model.nodes[dir].parent {
                parent if parent == dir => return false,
                parent => dir = parent,
            }
        }
    }
    /// Checks after a change that was begun at `begun`.
    pub fn look(&mut self, model: &Model, begun: u64) {
        let keys: Vec<(usize, bool)> = self.of.keys().copied().collect();
        for key in keys {
            let usage = self.usage(model, key);
            let bound = self.of.get_mut(&key).expect("just seen");
            bound.allowed = match usage > bound.allowed {
                true if begun <= bound.since => usage,
                true => bound.allowed,
                false => usage.max(bound.max),
            };
            bound.over = usage > bound.allowed;
        }
    }
    /// Checks at the end of the journal.
    ///
    /// # Panics
    /// If usage below a directory exceeds its quota.
    pub fn check(&self, model: &Model) {
        for (key, bound) in &self.of {
            assert!(
                !bound.over,
                "below {key:?} is {}, and {bound:?}",
                self.usage(model, *key)
            );
        }
    }

    fn usage(&self, model: &Model, (dir, is_bytes): (usize, bool)) -> u64 {
        let rank = |id: &usize| self.ranks.get(id).copied().unwrap_or(Rank(0));
        let mut sum = 0;
        let mut dirs = vec![dir];
        while let Some(dir) = dirs.pop() {
            for id in model.nodes[dir].entries.values() {
                let node = &model.nodes[*id];
                let counts = rank(id) == rank(&dir);
                match node.kind {
                    Kind::Directory => {
                        sum += u64::from(!is_bytes);
                        dirs.extend(Some(*id).filter(|_| counts));
                    }
                    _ if is_bytes => {
                        sum += if counts && !self.several.contains(id) {
                            node.size
                        } else {
                            0
                        }
                    }
                    _ => sum += 1,
                }
            }
        }
        sum
    }
}
