//! [`Few`]: a map in order of its keys that nearly always holds one to four entries.

use std::collections::BTreeMap;
use std::ops::Bound;

/// This many entries are kept in a sorted array; more of them in a tree.
const ROW_MAX: usize = 16;

/// A transaction changes two records and one block: creating, walking and dropping trees for these
/// costs several times as much as an array. The number of a transaction's records is unbounded,
/// though, and the time for a long array would grow with its square.
///
/// Invariant: one of the two is empty. The tree is created on demand: dropping an empty one has a
/// cost too.
#[derive(Debug)]
pub(crate) struct Few<K, V> {
    /// In order of keys.
    row: Vec<(K, V)>,
    tree: Option<BTreeMap<K, V>>,
}

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self {
            row: Vec::new(),
            tree: None,
        }
    }
}

impl<K: Ord, V> Few<K, V> {
    fn place(&self, key: &K) -> Result<usize, usize> {
        self.row.binary_search_by(|(known, _)| known.cmp(key))
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        match self.place(key) {
            Ok(at) => Some(&self.row[at].1),
            Err(_) => self.tree.as_ref()?.get(key),
        }
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match self.place(key) {
            Ok(at) => Some(&mut self.row[at].1),
            Err(_) => self.tree.as_mut()?.get_mut(key),
        }
    }

    /// All entries, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.row
            .iter()
            .map(|(key, value)| (key, value))
            .chain(self.tree.iter().flatten())
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        let Some(tree) = &mut self.tree else {
            match self.place(&key) {
                Ok(at) => self.row[at].1 = value,
                Err(at) if self.row.len() < ROW_MAX => self.row.insert(at, (key, value)),
                Err(_) => {
                    let mut tree: BTreeMap<K, V> =
                        std::mem::take(&mut self.row).into_iter().collect();
                    tree.insert(key, value);
                    self.tree = Some(tree);
                }
            }
            return;
        };
        tree.insert(key, value);
    }

    pub(crate) fn remove(&mut self, key: &K) {
        match self.place(key) {
            Ok(at) => drop(self.row.remove(at)),
            Err(_) => drop(self.tree.as_mut().and_then(|tree| tree.remove(key))),
        }
    }

    /// Removes the entries from `from` up to `to`.
    pub(crate) fn remove_range(&mut self, from: &K, to: &K) {
        self.row.retain(|(key, _)| key < from || key >= to);
        if let Some(tree) = &mut self.tree {
            tree.extract_if((Bound::Included(from), Bound::Excluded(to)), |_, _| true)
                .for_each(drop);
        }
    }

    /// The entries from `from` up to `to`, in order.
    pub(crate) fn range(&self, from: &K, to: &K) -> impl Iterator<Item = (&K, &V)> {
        let row = self
            .row
            .iter()
            .filter(move |(key, _)| key >= from && key < to)
            .map(|(key, value)| (key, value));
        let tree = self
            .tree
            .iter()
            .flat_map(move |tree| tree.range((Bound::Included(from), Bound::Excluded(to))));
        row.chain(tree)
    }

    /// All entries, in order.
    pub(crate) fn into_row(self) -> Vec<(K, V)> {
        match self.tree {
            None => self.row,
            Some(tree) => tree.into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_map_however_many_there_are(steps in proptest::collection::vec((0u8..5, 0u8..40, 0u8..40), 0..120)) {
            let (mut few, mut model) = (Few::default(), BTreeMap::new());
            for (value, (what, a, b)) in steps.into_iter().enumerate() {
                match what {
                    0 => {
                        few.remove(&a);
                        model.remove(&a);
                    }
                    1 if a < b => {
                        few.remove_range(&a, &b);
                        model.retain(|key, _| !(a..b).contains(key));
                    }
                    _ => {
                        few.insert(a, value);
                        model.insert(a, value);
                    }
                }
                prop_assert_eq!(few.get(&b), model.get(&b));
                let (from, to) = (a.min(b), a.max(b));
                prop_assert!(few.range(&from, &to).eq(model.range(from..to)));
            }
            prop_assert_eq!(few.into_row(), Vec::from_iter(model));
        }
    }
}
