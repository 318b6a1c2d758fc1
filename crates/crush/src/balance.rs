//! The balancer (CEPH-E8): proposes swaps that bring every device close to its share of placement
//! groups.
//!
//! CRUSH is pseudo-random: at 100 PGs per device, the counts scatter by about 10 %. Swapping a few
//! devices in a few PGs removes the scatter without moving anything else.
//!
//! ```text
//!  counts ─▶ most overfull device ─▶ one of its groups ─▶ most underfull device that may serve it ─▶ swap ─┐
//!     ▲                                                                                                    │
//!     └─────────────── every swap lowers the sum of squared deviations, so this ends ◀─────────────────────┘
//! ```
//! A swap preserves the rule's guarantees: the new device is below the same `take`, in the same
//! bucket of every type that the rule chooses before its last choice, and in a bucket of the last
//! type that the PG does not use yet.

use crate::map::{CrushMap, DeviceId, ItemId, Rule, Step};
use crate::mapper::{MapError, Reweights, Scratch};
use crate::place::{PoolPlacement, raw};
use crate::upmap::{Group, Upmaps, swap};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BalanceLimits {
    /// A device within this fraction of its share, or within half a PG of it, is not changed.
    pub tolerance: f64,
    /// Maximum number of swaps per call: each one moves a PG's data.
    pub swaps_max: usize,
}

impl Default for BalanceLimits {
    fn default() -> Self {
        Self {
            tolerance: 0.01,
            swaps_max: usize::MAX,
        }
    }
}

/// The result of [`balance`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Balance {
    /// PGs whose list of swaps changes, with the new list; an empty list means that the exception
    /// is to be removed.
    pub changes: BTreeMap<Group, Vec<(DeviceId, DeviceId)>>,
    /// Number of swaps made.
    pub swaps: usize,
    /// The largest deviation of a device from its share, in PGs, before and after.
    pub worst: (f64, f64),
}

/// A region is the starting point of one `take` of a rule: its devices share the PGs placed in it
/// in proportion to their weights.
type Region = usize;

/// PGs above a share, in millionths: an ordered number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Deviation(i64);

impl Deviation {
    fn of(groups: f64) -> Self {
        Self((groups * 1e6) as i64)
    }
    fn value(self) -> f64 {
        self.0 as f64 / 1e6
    }
}
impl std::ops::Neg for Deviation {
    type Output = Self;
    fn neg(self) -> Self {
        Self(-self.0)
    }
}

struct Placed {
    group: Group,
    /// The result of CRUSH and full exceptions; swaps apply to this.
    base: Vec<ItemId>,
    now: Vec<ItemId>,
    rule: u8,
}

struct State<'a> {
    map: &'a CrushMap,
    reweights: &'a Reweights,
    placed: Vec<Placed>,
    swaps: BTreeMap<Group, Vec<(DeviceId, DeviceId)>>,
    /// PGs (indexes into `placed`) per device.
    members: BTreeMap<DeviceId, BTreeSet<usize>>,
    share: BTreeMap<DeviceId, f64>,
    /// Devices that have a share, by deviation.
    order: BTreeSet<(Deviation, DeviceId)>,
    /// Devices that no swap can improve.
    hopeless: BTreeSet<DeviceId>,
    region: BTreeMap<DeviceId, BTreeSet<Region>>,
    /// Buckets above a device, by (rule, type).
    ancestors: BTreeMap<(u8, u16, DeviceId), ItemId>,
    /// Types that a rule chooses, in order.
    choices: BTreeMap<u8, Vec<u16>>,
}

/// Proposes swaps for all PGs of `pools`, given the exceptions in force.
pub fn balance(
    map: &CrushMap,
    pools: &[PoolPlacement],
    reweights: &Reweights,
    upmaps: &Upmaps,
    limits: &BalanceLimits,
) -> Result<Balance, MapError> {
    let mut state = State::new(map, pools, reweights, upmaps)?;
    let before = state.worst();
    let mut done = Balance {
        worst: (before, before),
        ..Balance::default()
    };
    let mut changed = BTreeSet::new();
    while done.swaps < limits.swaps_max {
        let Some(group) = state.step(limits.tolerance) else {
            break;
        };
        changed.insert(group);
        done.swaps += 1;
    }
    done.worst.1 = state.worst();
    for group in changed {
        done.changes
            .insert(group, state.swaps.get(&group).cloned().unwrap_or_default());
    }
    Ok(done)
}

impl<'a> State<'a> {
    fn new(
        map: &'a CrushMap,
        pools: &[PoolPlacement],
        reweights: &'a Reweights,
        upmaps: &Upmaps,
    ) -> Result<Self, MapError> {
        let mut state = Self {
            map,
            reweights,
            placed: Vec::new(),
            swaps: upmaps.items.clone(),
            members: BTreeMap::new(),
            share: BTreeMap::new(),
            order: BTreeSet::new(),
            hopeless: BTreeSet::new(),
            region: BTreeMap::new(),
            ancestors: BTreeMap::new(),
            choices: BTreeMap::new(),
        };
        let full_only = Upmaps {
            full: upmaps.full.clone(),
            items: BTreeMap::new(),
        };
        let mut scratch = Scratch::default();
        let mut tops: Vec<ItemId> = Vec::new();
        for pool in pools {
            let rule = map
                .rule(pool.rule)
                .ok_or(MapError::NoSuchRule { rule: pool.rule })?;
            let regions = state.learn_rule(rule, &mut tops);
            let mut counts: BTreeMap<Region, usize> = BTreeMap::new();
            for seed in 0..pool.pg_num {
                let base = raw(map, pool, seed, reweights, &full_only, &mut scratch)?;
                let now = raw(map, pool, seed, reweights, upmaps, &mut scratch)?;
                let at = state.placed.len();
                for device in now.iter().filter_map(|item| item.device()) {
                    state.members.entry(device).or_default().insert(at);
                    // Where regions overlap, the first one named counts.
                    let own = state.region.get(&device);
                    if let Some(region) = regions
                        .iter()
                        .find(|region| own.is_some_and(|own| own.contains(region)))
                    {
                        *counts.entry(*region).or_default() += 1;
                    }
                }
                state.placed.push(Placed {
                    group: (pool.pool, seed),
                    base,
                    now,
                    rule: rule.id,
                });
            }
            for (region, count) in counts {
                let weights = device_weights(map, tops[region], reweights);
                let total: f64 = weights.values().sum();
                for (device, weight) in weights.iter().filter(|_| total > 0.0) {
                    *state.share.entry(*device).or_default() += count as f64 * weight / total;
                }
            }
        }
        state.order = state
            .share
            .keys()
            .map(|device| (Deviation::of(state.deviation(*device)), *device))
            .collect();
        Ok(state)
    }

    /// Records what a rule takes and chooses, and returns its regions.
    fn learn_rule(&mut self, rule: &Rule, tops: &mut Vec<ItemId>) -> Vec<Region> {
        let mut regions = Vec::new();
        let mut choices = Vec::new();
        for step in &rule.steps {
            match step {
                Step::Take(top) => {
                    let region = tops
                        .iter()
                        .position(|known| known == top)
                        .unwrap_or_else(|| {
                            tops.push(*top);
                            tops.len() - 1
                        });
                    regions.push(region);
                    for device in self.map.devices_below(*top) {
                        self.region.entry(device).or_default().insert(region);
                    }
                    self.learn_ancestors(rule.id, *top, &mut Vec::new());
                }
                Step::Choose { kind, .. } if !choices.contains(kind) => choices.push(*kind),
                Step::Choose { .. } | Step::Set(..) | Step::Emit => {}
            }
        }
        self.choices.insert(rule.id, choices);
        regions
    }

    fn learn_ancestors(&mut self, rule: u8, id: ItemId, above: &mut Vec<(u16, ItemId)>) {
        match (id.device(), self.map.bucket(id)) {
            (Some(device), _) => {
                for (kind, bucket) in above.iter() {
                    self.ancestors.insert((rule, *kind, device), *bucket);
                }
                self.ancestors.insert((rule, 0, device), id);
            }
            (None, Some(bucket)) => {
                // A shadow is replaced by its original: two classes of one host are one host.
                let original = self
                    .map
                    .shadow_of
                    .get(&id)
                    .map_or(id, |(original, _)| *original);
                above.push((bucket.kind, original));
                for item in &bucket.items {
                    self.learn_ancestors(rule, *item, above);
                }
                above.pop();
            }
            (None, None) => {}
        }
    }

    /// Number of PGs above (or below) the share of a device.
    fn deviation(&self, device: DeviceId) -> f64 {
        let count = self.members.get(&device).map_or(0, BTreeSet::len);
        count as f64 - self.share.get(&device).copied().unwrap_or(0.0)
    }

    fn worst(&self) -> f64 {
        self.share
            .keys()
            .map(|device| self.deviation(*device).abs())
            .fold(0.0, f64::max)
    }

    fn settled(&self, device: DeviceId, tolerance: f64) -> bool {
        let share = self.share.get(&device).copied().unwrap_or(0.0);
        self.deviation(device).abs() <= (share * tolerance).max(0.5)
    }

    /// Makes one swap; `None` when all devices are within tolerance or none can be improved.
    fn step(&mut self, tolerance: f64) -> Option<Group> {
        if let found @ Some(_) = self.help_one_device(tolerance) {
            return found;
        }
        // Swaps made since then may allow one for the devices that were given up.
        if std::mem::take(&mut self.hopeless).is_empty() {
            None
        } else {
            self.help_one_device(tolerance)
        }
    }

    /// Improves the first device for which a swap exists, the worst one first, from either end:
    /// moves a PG away from an overfull device or to an underfull one.
    fn help_one_device(&mut self, tolerance: f64) -> Option<Group> {
        let (mut low, mut high) = (None, None);
        loop {
            let next_low = match low {
                None => self.order.first(),
                Some(last) => self
                    .order
                    .range((Bound::Excluded(last), Bound::Unbounded))
                    .next(),
            };
            let next_high = match high {
                None => self.order.last(),
                Some(last) => self.order.range(..last).next_back(),
            };
            let (next_low, next_high) = (*next_low?, *next_high?);
            let from_above = next_high.0 > -next_low.0;
            let (_, device) = if from_above { next_high } else { next_low };
            if from_above {
                high = Some(next_high);
            } else {
                low = Some(next_low);
            }
            if next_low > next_high {
                return None; // the two ends have met
            }
            if self.settled(device, tolerance) || self.hopeless.contains(&device) {
                continue;
            }
            let own = self.deviation(device);
            let others: Vec<DeviceId> = if from_above {
                let worth = self
                    .order
                    .iter()
                    .take_while(|(other, _)| own - other.value() > 1.0);
                worth.map(|(_, other)| *other).collect()
            } else {
                let worth = self
                    .order
                    .iter()
                    .rev()
                    .take_while(|(other, _)| other.value() - own > 1.0);
                worth.map(|(_, other)| *other).collect()
            };
            for other in others {
                let (from, to) = if from_above {
                    (device, other)
                } else {
                    (other, device)
                };
                if let found @ Some(_) = self.shift(from, to) {
                    return found;
                }
            }
            self.hopeless.insert(device);
        }
    }

    /// Updates a device's deviation in the order.
    fn reorder(&mut self, device: DeviceId, change: impl FnOnce(&mut BTreeSet<usize>)) {
        self.order
            .remove(&(Deviation::of(self.deviation(device)), device));
        change(self.members.entry(device).or_default());
        if self.share.contains_key(&device) {
            self.order
                .insert((Deviation::of(self.deviation(device)), device));
        }
    }

    /// Moves one PG from one device to another, if a swap is allowed.
    fn shift(&mut self, from: DeviceId, to: DeviceId) -> Option<Group> {
        if self.reweights.get(to) == crate::Weight::ZERO {
            return None;
        }
        let candidates = self.members.get(&from)?.iter().copied();
        let (at, swaps) = candidates
            .filter(|at| self.may(&self.placed[*at], from, to))
            .find_map(|at| Some((at, self.reexpressed(&self.placed[at], from, to)?)))?;
        let placed = &mut self.placed[at];
        for item in &mut placed.now {
            if *item == ItemId::from(from) {
                *item = to.into();
            }
        }
        let group = placed.group;
        self.reorder(from, |members| {
            members.remove(&at);
        });
        self.reorder(to, |members| {
            members.insert(at);
        });
        if swaps.is_empty() {
            self.swaps.remove(&group);
        } else {
            self.swaps.insert(group, swaps);
        }
        Some(group)
    }

    /// Whether the rule's guarantees hold with `to` in the place of `from`.
    fn may(&self, placed: &Placed, from: DeviceId, to: DeviceId) -> bool {
        let choices = &self.choices[&placed.rule];
        let same_region = match (self.region.get(&from), self.region.get(&to)) {
            (Some(from), Some(to)) => from == to,
            _ => false,
        };
        if !same_region || placed.now.contains(&to.into()) {
            return false;
        }
        let above = |kind: u16, device: DeviceId| self.ancestors.get(&(placed.rule, kind, device));
        let Some((last, outer)) = choices.split_last() else {
            return false;
        };
        if outer
            .iter()
            .any(|kind| above(*kind, from).is_none() || above(*kind, from) != above(*kind, to))
        {
            return false;
        }
        let Some(target) = above(*last, to) else {
            return false;
        };
        let others = placed
            .now
            .iter()
            .filter_map(|item| item.device())
            .filter(|device| *device != from);
        above(*last, from) == Some(target)
            || others
                .into_iter()
                .all(|other| above(*last, other) != Some(target))
    }

    /// The PG's swaps with `from` replaced by `to`; `None` if swaps cannot express that.
    fn reexpressed(
        &self,
        placed: &Placed,
        from: DeviceId,
        to: DeviceId,
    ) -> Option<Vec<(DeviceId, DeviceId)>> {
        let wanted: Vec<ItemId> = placed
            .now
            .iter()
            .map(|item| {
                if *item == from.into() {
                    to.into()
                } else {
                    *item
                }
            })
            .collect();
        // One swap per changed position, in an order in which none is blocked because another's
        // source is still present.
        let changed = placed
            .base
            .iter()
            .zip(&wanted)
            .filter(|(base, wanted)| base != wanted);
        let mut open: Vec<_> = changed
            .map(|(base, wanted)| Some((base.device()?, wanted.device()?)))
            .collect::<Option<_>>()?;
        let (mut current, mut swaps) = (placed.base.clone(), Vec::new());
        while !open.is_empty() {
            let free = open
                .iter()
                .position(|(_, to)| !current.contains(&ItemId::from(*to)))?;
            let (from, to) = open.remove(free);
            swap(&mut current, from, to, self.reweights);
            swaps.push((from, to));
        }
        (current == wanted).then_some(swaps)
    }
}

/// CRUSH weight times reweight of the devices below `top`; devices that are out weigh nothing. A
/// device's weight is scaled by the weight that the buckets above give its bucket, which may differ
/// from the sum.
fn device_weights(map: &CrushMap, top: ItemId, reweights: &Reweights) -> BTreeMap<DeviceId, f64> {
    let mut weights = BTreeMap::new();
    let mut open = vec![(top, 1.0_f64)];
    while let Some((id, share)) = open.pop() {
        if let Some(device) = id.device() {
            *weights.entry(device).or_default() += share * reweights.get(device).as_f64();
            continue;
        }
        let Some(bucket) = map.bucket(id) else {
            continue;
        };
        let total = bucket.weight().as_f64();
        for (item, weight) in bucket.items().filter(|(_, weight)| weight.0 > 0) {
            open.push((item, share * weight.as_f64() / total));
        }
    }
    weights.retain(|_, weight| *weight > 0.0);
    weights
}
