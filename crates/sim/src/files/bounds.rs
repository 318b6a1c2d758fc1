//! Quotas of directories, judged: what is below one, in the order of the journal.
//!
//! ```text
//!  bound ─▶ allowed: the bound, or what was there ─▶ less is there: less is allowed ─▶ more than that: wrong, if it stays
//! ```
//! What was begun before the bound was set may come after it in the journal. What was answered and
//! is done again after a takeover may be in another order than before: there may be more for a
//! moment.

use nacre_history::posix::{Kind, Model};
use nacre_types::{Ino, Rank};
use nacre_wire::fs::QuotaKind;
use std::collections::{BTreeMap, BTreeSet};

/// A quota of a directory.
#[derive(Clone, Debug)]
struct Bound {
    max: u64,
    /// So much may be there.
    allowed: u64,
    /// When it was known to be set.
    since: u64,
    /// There is more.
    over: bool,
}

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    of: BTreeMap<(usize, bool), Bound>,
    /// The ranks that have what is there.
    ranks: BTreeMap<usize, Rank>,
    /// Files that have, or had, several names, or one in another rank's directory: their bytes
    /// count nowhere.
    several: BTreeSet<usize>,
}

const fn is_of_bytes(kind: QuotaKind) -> bool {
    matches!(kind, QuotaKind::Bytes {})
}

impl Bounds {
    /// Something new is there.
    pub fn on_made(&mut self, id: usize, ino: Ino) {
        self.ranks.insert(id, ino.rank());
    }
    /// A directory has become another one, with the same quotas.
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
    /// A file's bytes count nowhere from now on.
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
    /// Whether something of this kind is bounded at a directory or above it.
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
    /// A change was made that was begun then.
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
    /// At the end of the journal.
    ///
    /// # Panics
    /// If there is more below a directory than may be.
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
