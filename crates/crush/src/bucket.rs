//! Buckets: the inner nodes of the hierarchy, and the values that each kind precomputes for
//! choosing among its items.
//!
//! | kind | choice | a changed weight moves |
//! |---|---|---|
//! | `straw2` | longest straw, length ~ ln(u)/weight | only to or from the changed item |
//! | `straw` | longest straw, precomputed lengths | some of the others too |
//! | `uniform` | random permutation, equal weights | nearly everything |
//! | `list` | newest first, by weight | little when items are appended |
//! | `tree` | binary descent by weight | along one path |
//!
//! The draws themselves are in `choose.rs`. Two parts follow deployed systems instead of the paper:
//! straw2, and the two versions of the straw length computation.

use crate::map::{DeviceId, ItemId};
use crate::weight::Weight;

/// The choice algorithm of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alg {
    /// Equal weights, chosen by permutation.
    Uniform,
    /// A list with the newest item at its end.
    List,
    /// A weighted binary tree.
    Tree,
    /// Straws of precomputed length.
    Straw,
    /// Straws drawn with a logarithm; the default.
    Straw2,
}

impl Alg {
    /// All, ordered by their bit in `allowed_bucket_algs`.
    pub const ALL: [Self; 5] = [
        Self::Uniform,
        Self::List,
        Self::Tree,
        Self::Straw,
        Self::Straw2,
    ];

    /// The word in the text form.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::List => "list",
            Self::Tree => "tree",
            Self::Straw => "straw",
            Self::Straw2 => "straw2",
        }
    }
}

/// A bucket: a named node with weighted items, which are devices or other buckets.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    pub(crate) id: ItemId,
    pub(crate) name: String,
    pub(crate) kind: u16,
    pub(crate) alg: Alg,
    pub(crate) items: Vec<ItemId>,
    pub(crate) weights: Vec<Weight>,
    pub(crate) weight: Weight,
    pub(crate) derived: Derived,
}

/// Values computed from the weights once, for the draws.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Derived {
    Nothing,
    /// `sums[i]` = weight of items 0 to `i`.
    List(Vec<u32>),
    /// Weights of a perfect binary tree in in-order numbering: leaf `i` is node `2i + 1`.
    Tree(Vec<u32>),
    /// Straw length per item, 16.16.
    Straw(Vec<u32>),
}

/// The weights of a bucket's items add up to more than a bucket may weigh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightOverflow;

impl Bucket {
    /// Creates a bucket with its derived values. `straw_calc_version` is the tunable of that name.
    pub(crate) fn new(
        id: ItemId,
        name: String,
        kind: u16,
        alg: Alg,
        items: Vec<(ItemId, Weight)>,
        straw_calc_version: u32,
    ) -> Result<Self, WeightOverflow> {
        let (items, weights) = items.into_iter().unzip();
        let mut bucket = Self {
            id,
            name,
            kind,
            alg,
            items,
            weights,
            weight: Weight::ZERO,
            derived: Derived::Nothing,
        };
        bucket.rebuild(straw_calc_version)?;
        Ok(bucket)
    }

    /// Recomputes the weight and the derived values after `items` or `weights` changed.
    pub(crate) fn rebuild(&mut self, straw_calc_version: u32) -> Result<(), WeightOverflow> {
        let total: u64 = self.weights.iter().map(|weight| u64::from(weight.0)).sum();
        if total > u64::from(Weight::BUCKET_MAX.0) {
            return Err(WeightOverflow);
        }
        self.weight = Weight(total as u32);
        let weights = self.weights.iter().map(|weight| weight.0);
        self.derived = match self.alg {
            Alg::Uniform | Alg::Straw2 => Derived::Nothing,
            Alg::List => Derived::List(
                weights
                    .scan(0, |sum, weight| {
                        *sum += weight;
                        Some(*sum)
                    })
                    .collect(),
            ),
            Alg::Tree => Derived::Tree(tree_nodes(&weights.collect::<Vec<_>>())),
            Alg::Straw => Derived::Straw(straw_lengths(
                &weights.collect::<Vec<_>>(),
                straw_calc_version,
            )),
        };
        Ok(())
    }

    /// Its number, below zero; an input of the draws in the buckets above it.
    #[must_use]
    pub fn id(&self) -> ItemId {
        self.id
    }
    /// Its name; shadow buckets are called `name~class`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
    /// The number of its type (host, rack, …), above zero.
    #[must_use]
    pub fn kind(&self) -> u16 {
        self.kind
    }
    /// Its choice algorithm.
    #[must_use]
    pub fn alg(&self) -> Alg {
        self.alg
    }
    /// The sum of its items' weights.
    #[must_use]
    pub fn weight(&self) -> Weight {
        self.weight
    }
    /// Its items and their weights, in order.
    pub fn items(&self) -> impl ExactSizeIterator<Item = (ItemId, Weight)> + '_ {
        self.items.iter().copied().zip(self.weights.iter().copied())
    }
    /// The devices directly in it.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.items.iter().filter_map(|item| item.device())
    }
}

/// Leaf `i` of a tree bucket.
pub(crate) fn tree_leaf(i: usize) -> usize {
    2 * i + 1
}

/// Node weights of a tree bucket: the weight of an inner node is the sum of the weights below it.
fn tree_nodes(weights: &[u32]) -> Vec<u32> {
    if weights.is_empty() {
        return Vec::new();
    }
    let leaves = weights.len().next_power_of_two();
    let mut nodes = vec![0_u32; 2 * leaves];
    for (i, weight) in weights.iter().enumerate() {
        nodes[tree_leaf(i)] = *weight;
    }
    // Nodes of height h are the odd multiples of 2^h; their children are 2^(h-1) to either side.
    let mut step = 1;
    while step < leaves {
        for node in (2 * step..2 * leaves).step_by(4 * step) {
            nodes[node] = nodes[node - step] + nodes[node + step];
        }
        step *= 2;
    }
    nodes
}

/// Straw lengths of a `straw` bucket. Version 0 computes wrong lengths for items of weight zero and
/// of equal weight; it is kept because changing it would move data.
fn straw_lengths(weights: &[u32], version: u32) -> Vec<u32> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|i| weights[*i]); // stable, as the original's insertion sort is
    let mut straws = vec![0; weights.len()];
    let mut left = weights.len();
    let (mut straw, mut below, mut last) = (1.0_f64, 0.0_f64, 0.0_f64);
    let mut i = 0;
    while i < order.len() {
        let weight = weights[order[i]];
        if weight == 0 {
            i += 1;
            if version >= 1 {
                left -= 1;
            }
            continue;
        }
        // Through 64 bits, so that a length above 32 bits wraps as in the original.
        straws[order[i]] = (straw * 65_536.0) as i64 as u32;
        i += 1;
        let Some(next) = order.get(i).map(|next| weights[*next]) else {
            break;
        };
        if version == 0 && next == weight {
            continue;
        }
        below += (f64::from(weight) - last) * left as f64;
        if version == 0 {
            left -= order[i..]
                .iter()
                .take_while(|other| weights[**other] == next)
                .count();
        } else {
            left -= 1;
        }
        // 32-bit wrapping arithmetic, as in the original.
        let above = f64::from((left as u32).wrapping_mul(next - weight));
        let chance_below = below / (below + above);
        straw *= (1.0 / chance_below).powf(1.0 / left as f64);
        last = f64::from(weight);
    }
    straws
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_bucket_weighs_its_leaves_at_the_root() {
        for size in 1..40_u32 {
            let weights: Vec<u32> = (0..size).map(|i| i * 1000 + 7).collect();
            let nodes = tree_nodes(&weights);
            assert_eq!(
                nodes[nodes.len() / 2],
                weights.iter().sum::<u32>(),
                "{size} items"
            );
        }
    }

    #[test]
    fn equal_weights_have_equal_straws_and_zero_has_none() {
        for version in [0, 1] {
            assert_eq!(straw_lengths(&[65_536; 5], version), [65_536; 5]);
            assert_eq!(straw_lengths(&[0, 65_536], version)[0], 0);
            let straws = straw_lengths(&[65_536, 131_072, 196_608], version);
            assert!(straws.is_sorted() && straws[0] < straws[2], "{straws:?}");
        }
    }
}
