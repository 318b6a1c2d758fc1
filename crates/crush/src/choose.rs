//! One choice in one bucket: the draws of the five bucket kinds.
//!
//! Pure functions of (bucket, x, attempt). The original keeps a permutation per bucket between
//! calls. The permutation is a function of (bucket, x) too, so [`Permutations`] is only a cache
//! within one mapping.

use crate::bucket::{Alg, Bucket, Derived};
use crate::hash::{LANES, hash32_3, hash32_3_lanes, hash32_4};
use crate::ln::crush_ln;
use crate::map::{ChooseArg, ItemId};
use crate::weight::Weight;

/// The item that `bucket` gives for input `x` at attempt `r`. `position` selects among weight sets.
/// The bucket is not empty.
pub(crate) fn choose(
    bucket: &Bucket,
    arg: Option<&ChooseArg>,
    x: u32,
    r: u32,
    position: usize,
    permutations: &mut Permutations,
) -> ItemId {
    match (&bucket.derived, bucket.alg) {
        (Derived::List(sums), _) => by_list(bucket, sums, x, r),
        (Derived::Tree(nodes), _) => by_tree(bucket, nodes, x, r),
        (Derived::Straw(straws), _) => by_straw(bucket, straws, x, r),
        (Derived::Nothing, Alg::Uniform) => permutations.choose(bucket, x, r),
        (Derived::Nothing, _) => match arg {
            None => bucket.items[longest_straw(&bucket.items, &bucket.weights, x, r)],
            Some(arg) => by_overridden_straw2(bucket, arg, x, r, position),
        },
    }
}

fn by_overridden_straw2(
    bucket: &Bucket,
    arg: &ChooseArg,
    x: u32,
    r: u32,
    position: usize,
) -> ItemId {
    let last = arg.weight_set.len().saturating_sub(1);
    let weights = arg
        .weight_set
        .get(position.min(last))
        .unwrap_or(&bucket.weights);
    let ids: Vec<ItemId>;
    let ids = if arg.ids.is_empty() {
        &bucket.items
    } else {
        ids = arg.ids.iter().map(|id| ItemId(*id)).collect();
        &ids
    };
    bucket.items[longest_straw(ids, weights, x, r)]
}

/// straw2: the straw of an item is ln(u)/weight with u uniform in (0, 1], so that each item wins in
/// proportion to its weight, independent of the other weights. Straws are compared as |ln u| /
/// weight, rounded down, smallest first; the earlier item wins a tie, and an item of weight zero
/// loses to any other.
fn longest_straw(ids: &[ItemId], weights: &[Weight], x: u32, r: u32) -> usize {
    let (mut best, mut shortest) = (0, u64::MAX);
    let mut lanes = [0_u32; LANES];
    for (chunk, (ids, weights)) in ids.chunks(LANES).zip(weights.chunks(LANES)).enumerate() {
        for (lane, id) in lanes.iter_mut().zip(ids) {
            *lane = id.0 as u32;
        }
        let hashes = hash32_3_lanes(x, &lanes, r);
        for (i, (hash, Weight(weight))) in hashes.iter().zip(weights).enumerate() {
            let log = (1_u64 << 48) - crush_ln(*hash as u16);
            // floor(log / weight) < shortest, without the division; never true for weight zero.
            if u128::from(shortest) * u128::from(*weight) > u128::from(log) {
                shortest = log / u64::from(*weight);
                best = chunk * LANES + i;
            }
        }
    }
    best
}

fn by_straw(bucket: &Bucket, straws: &[u32], x: u32, r: u32) -> ItemId {
    let (mut best, mut longest) = (bucket.items[0], None);
    for (item, straw) in bucket.items.iter().zip(straws) {
        let length = u64::from(hash32_3(x, item.0 as u32, r) & 0xffff) * u64::from(*straw);
        if longest.is_none_or(|longest| length > longest) {
            (best, longest) = (*item, Some(length));
        }
    }
    best
}

fn by_list(bucket: &Bucket, sums: &[u32], x: u32, r: u32) -> ItemId {
    for (i, item) in bucket.items.iter().enumerate().rev() {
        let draw = u64::from(hash32_4(x, item.0 as u32, r, bucket.id.0 as u32) & 0xffff);
        if (draw * u64::from(sums[i])) >> 16 < u64::from(bucket.weights[i].0) {
            return *item;
        }
    }
    bucket.items[0]
}

fn by_tree(bucket: &Bucket, nodes: &[u32], x: u32, r: u32) -> ItemId {
    let mut node = nodes.len() / 2;
    while node.is_multiple_of(2) {
        let draw = u64::from(hash32_4(x, node as u32, r, bucket.id.0 as u32));
        let point = (draw * u64::from(nodes[node])) >> 32;
        let half = 1 << (node.trailing_zeros() - 1);
        node = if point < u64::from(nodes[node - half]) {
            node - half
        } else {
            node + half
        };
    }
    // A tree of weight zero descends to the right, possibly beyond its items; the original reads
    // beyond its array.
    bucket.items[(node / 2).min(bucket.items.len() - 1)]
}

/// Random permutations of buckets' items for the current input, computed only as far as needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permutations {
    slots: Vec<Permutation>,
    used: usize,
}

#[derive(Clone, Debug)]
struct Permutation {
    bucket: ItemId,
    /// The first `decided` entries are final.
    decided: usize,
    order: Vec<u32>,
}

impl Permutations {
    /// Clears the permutations but keeps the allocated memory: the input changes.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }

    /// The `r`-th item (modulo the size) of the permutation of `bucket` for `x`.
    pub(crate) fn choose(&mut self, bucket: &Bucket, x: u32, r: u32) -> ItemId {
        let size = bucket.items.len();
        let wanted = r as usize % size;
        let draw = |at: usize| hash32_3(x, bucket.id.0 as u32, at as u32) as usize % (size - at);
        if wanted == 0 {
            return bucket.items[draw(0)];
        }
        let slot = match self.slots[..self.used]
            .iter()
            .position(|slot| slot.bucket == bucket.id)
        {
            Some(slot) => slot,
            None => self.start(bucket),
        };
        let Permutation { decided, order, .. } = &mut self.slots[slot];
        while *decided <= wanted {
            // The last entry has no other entry to be swapped with.
            if *decided < size - 1 {
                let other = *decided + draw(*decided);
                order.swap(*decided, other);
            }
            *decided += 1;
        }
        bucket.items[order[wanted] as usize]
    }

    fn start(&mut self, bucket: &Bucket) -> usize {
        if self.used == self.slots.len() {
            self.slots.push(Permutation {
                bucket: bucket.id,
                decided: 0,
                order: Vec::new(),
            });
        }
        let slot = &mut self.slots[self.used];
        (slot.bucket, slot.decided) = (bucket.id, 0);
        slot.order.clear();
        slot.order.extend(0..bucket.items.len() as u32);
        self.used += 1;
        self.used - 1
    }
}
