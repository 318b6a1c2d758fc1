//! Running a rule: input x → ordered items (CEPH-41).
//!
//! ```text
//!  take ──▶ working set ──choose──▶ working set ──choose──▶ … ──emit──▶ result
//!                 │ per item: descend from it, one draw per level, to an item of the wanted type;
//!                 │ collision, full or marked-out device, dead end: draw again with another attempt number
//! ```
//! `firstn` attempts a replica until it works, then the next. `indep` gives every position its
//! first attempt before any gets its second, so that a lost device affects no other position.
//!
//! Follows Weil et al., SC 2006, in the form deployed by Ceph 16, including its numbering of
//! attempts: every detail here affects placement. No allocation once a [`Scratch`] has grown to its
//! size.

use crate::bucket::{Alg, Bucket};
use crate::choose::{Permutations, choose};
use crate::hash::hash32_2;
use crate::map::{ChooseArgs, CrushMap, DeviceId, ItemId, Mode, REPLICAS_MAX, Setting, Step};
use crate::weight::Weight;
use std::fmt;

/// Per device, the fraction of its share that it takes: [`Weight::ONE`] all, zero none (it is out).
/// Devices beyond the end are out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reweights(Vec<Weight>);

impl Reweights {
    /// Every device in some bucket of `map` takes its whole share; all others are out.
    #[must_use]
    pub fn all_in(map: &CrushMap) -> Self {
        let mut weights = vec![Weight::ZERO; map.device_end as usize];
        for device in map.buckets().flat_map(Bucket::devices) {
            weights[device.0 as usize] = Weight::ONE;
        }
        Self(weights)
    }

    /// Sets one; values above [`Weight::ONE`] mean [`Weight::ONE`]. Devices in between that were
    /// not set are out. A number past [`ItemId::DEVICE_END`] is not a device of any map, and is
    /// ignored.
    pub fn set(&mut self, device: DeviceId, weight: Weight) {
        if device.0 >= ItemId::DEVICE_END.0 as u32 {
            return;
        }
        let at = device.0 as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, Weight::ZERO);
        }
        self.0[at] = weight.min(Weight::ONE);
    }

    /// The reweight of a device; zero when it was never set.
    #[must_use]
    pub fn get(&self, device: DeviceId) -> Weight {
        self.0
            .get(device.0 as usize)
            .copied()
            .unwrap_or(Weight::ZERO)
    }

    /// Whether the device rejects input `x`: always when it is out, otherwise with probability one
    /// minus its reweight.
    fn refuses(&self, item: ItemId, x: u32) -> bool {
        match self.0.get(item.0 as usize) {
            None | Some(&Weight::ZERO) => true,
            Some(weight) if *weight >= Weight::ONE => false,
            Some(weight) => hash32_2(x, item.0 as u32) & 0xffff >= weight.0,
        }
    }
}

/// Scratch memory for mappings; reuse it.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    work: Vec<ItemId>,
    chosen: Vec<ItemId>,
    leaves: Vec<ItemId>,
    result: Vec<ItemId>,
    permutations: Permutations,
}

/// Why a rule could not be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The map has no rule with this number.
    NoSuchRule {
        /// The requested rule.
        rule: u8,
    },
    /// More results were asked for than [`REPLICAS_MAX`].
    TooManyReplicas {
        /// The requested number.
        asked: usize,
    },
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchRule { rule } => write!(f, "the CRUSH map has no rule {rule}"),
            Self::TooManyReplicas { asked } => {
                write!(
                    f,
                    "{asked} replicas were asked for; at most {REPLICAS_MAX} are possible"
                )
            }
        }
    }
}
impl std::error::Error for MapError {}

impl CrushMap {
    /// Runs rule `rule` on `x` for `replicas` results: devices, or the type on which the rule ends.
    /// `firstn` rules may return fewer; `indep` rules return [`ItemId::NONE`] for positions they
    /// could not fill.
    pub fn map<'s>(
        &self,
        rule: u8,
        x: u32,
        replicas: usize,
        reweights: &Reweights,
        scratch: &'s mut Scratch,
    ) -> Result<&'s [ItemId], MapError> {
        self.map_with(rule, x, replicas, reweights, None, scratch)
    }

    /// As [`Self::map`], with replacement weights or ids for some buckets
    /// ([`Self::choose_args_of_pool`]).
    pub fn map_with<'s>(
        &self,
        rule: u8,
        x: u32,
        replicas: usize,
        reweights: &Reweights,
        args: Option<&ChooseArgs>,
        scratch: &'s mut Scratch,
    ) -> Result<&'s [ItemId], MapError> {
        let steps = &self.rule(rule).ok_or(MapError::NoSuchRule { rule })?.steps;
        if replicas > REPLICAS_MAX {
            return Err(MapError::TooManyReplicas { asked: replicas });
        }
        let Scratch {
            work,
            chosen,
            leaves,
            result,
            permutations,
        } = scratch;
        for column in [&mut *work, &mut *chosen, &mut *leaves] {
            column.clear();
            column.resize(replicas.max(1), ItemId::NONE);
        }
        result.clear();
        permutations.clear();
        let tunables = &self.tunables;
        let mut descent = Descent {
            map: self,
            reweights,
            args,
            x,
            // The tunable counts retries; the setting of the same name counts tries.
            tries: tunables.choose_total_tries + 1,
            leaf_tries: None,
            local_tries: tunables.choose_local_tries,
            fallback_tries: tunables.choose_local_fallback_tries,
            vary_r: tunables.chooseleaf_vary_r,
            stable: tunables.chooseleaf_stable != 0,
            permutations,
        };
        let mut work_len = 0;
        for step in steps {
            match *step {
                Step::Take(item) => {
                    if item.0 < self.device_end {
                        work[0] = item;
                        work_len = 1;
                    }
                }
                Step::Set(setting, value) => descent.set(setting, value),
                Step::Choose {
                    mode,
                    count,
                    kind,
                    leaf,
                } => {
                    let count = if count > 0 {
                        count as usize
                    } else {
                        replicas.saturating_sub(count.unsigned_abs() as usize)
                    };
                    if count == 0 && work_len > 0 {
                        work_len = 0;
                        continue;
                    }
                    let mut len = 0;
                    for from in &work[..work_len] {
                        // Holes, and devices of an earlier step, have nothing below them.
                        let Some(bucket) = self.bucket(*from) else {
                            continue;
                        };
                        let room = replicas - len;
                        let (out, leaf_out) = (&mut chosen[len..], &mut leaves[len..]);
                        len += match mode {
                            Mode::Firstn => descent.firstn(
                                bucket,
                                kind,
                                count,
                                room,
                                out,
                                leaf.then_some(leaf_out),
                            ),
                            Mode::Indep => descent.indep(
                                bucket,
                                kind,
                                count,
                                room,
                                out,
                                leaf.then_some(leaf_out),
                            ),
                        };
                    }
                    std::mem::swap(work, if leaf { leaves } else { chosen });
                    work_len = len;
                }
                Step::Emit => {
                    let room = replicas - result.len();
                    result.extend_from_slice(&work[..work_len.min(room)]);
                    work_len = 0;
                }
            }
        }
        Ok(result)
    }
}

/// State shared by the descents of one mapping.
struct Descent<'a> {
    map: &'a CrushMap,
    reweights: &'a Reweights,
    args: Option<&'a ChooseArgs>,
    x: u32,
    tries: u32,
    leaf_tries: Option<u32>,
    local_tries: u32,
    fallback_tries: u32,
    vary_r: u32,
    stable: bool,
    permutations: &'a mut Permutations,
}

/// One call of firstn: at the top level, or for the leaf below a chosen bucket.
struct Firstn {
    kind: u16,
    /// Attempt numbers of replicas start here and end before `end`.
    start: u32,
    end: u32,
    /// Results are appended from here on; those before it must not be repeated.
    position: usize,
    room: usize,
    tries: u32,
    parent_r: u32,
}

/// Result of a draw at the end of a descent.
enum Outcome {
    Accept(ItemId),
    /// Try again with the next attempt number.
    Retry {
        collided: bool,
    },
    /// The hierarchy has no such type here; no attempt will help.
    DeadEnd,
}

impl<'a> Descent<'a> {
    fn set(&mut self, setting: Setting, value: u32) {
        match setting {
            // Zero leaves these two unchanged.
            Setting::ChooseTries if value == 0 => {}
            Setting::ChooseleafTries if value == 0 => {}
            Setting::ChooseTries => self.tries = value,
            Setting::ChooseleafTries => self.leaf_tries = Some(value),
            Setting::ChooseLocalTries => self.local_tries = value,
            Setting::ChooseLocalFallbackTries => self.fallback_tries = value,
            Setting::ChooseleafVaryR => self.vary_r = value,
            Setting::ChooseleafStable => self.stable = value != 0,
        }
    }

    fn draw(&mut self, bucket: &Bucket, r: u32, position: usize) -> ItemId {
        let arg = self.args.and_then(|args| args.get(&bucket.id));
        choose(bucket, arg, self.x, r, position, self.permutations)
    }

    /// Chooses up to `count` distinct items of `kind` below `bucket`; returns how many were found.
    fn firstn(
        &mut self,
        bucket: &'a Bucket,
        kind: u16,
        count: usize,
        room: usize,
        out: &mut [ItemId],
        leaves: Option<&mut [ItemId]>,
    ) -> usize {
        let top = Firstn {
            kind,
            start: 0,
            end: count as u32,
            position: 0,
            room,
            tries: self.tries,
            parent_r: 0,
        };
        self.firstn_from(bucket, &top, out, leaves)
    }

    fn firstn_from(
        &mut self,
        bucket: &'a Bucket,
        call: &Firstn,
        out: &mut [ItemId],
        mut leaves: Option<&mut [ItemId]>,
    ) -> usize {
        let (mut position, mut room) = (call.position, call.room);
        for replica in call.start..call.end {
            if room == 0 {
                break;
            }
            let first_r = replica.wrapping_add(call.parent_r);
            let leaves = leaves.as_deref_mut();
            if let Some(item) =
                self.one_replica(bucket, call, first_r, (position, room), out, leaves)
            {
                out[position] = item;
                position += 1;
                room -= 1;
            }
        }
        position
    }

    /// Attempts one replica until it works or the tries are used up.
    fn one_replica(
        &mut self,
        top: &'a Bucket,
        call: &Firstn,
        first_r: u32,
        (position, room): (usize, usize),
        out: &[ItemId],
        mut leaves: Option<&mut [ItemId]>,
    ) -> Option<ItemId> {
        let mut failures = 0_u32;
        'descent: loop {
            let mut bucket = top;
            let mut local_failures = 0_u32;
            loop {
                let r = first_r.wrapping_add(failures);
                let outcome = if bucket.items.is_empty() {
                    Outcome::Retry { collided: false }
                } else {
                    let size = bucket.items.len() as u32;
                    let exhaustive = self.fallback_tries > 0
                        && local_failures >= size / 2
                        && local_failures > self.fallback_tries;
                    let item = if exhaustive {
                        self.permutations.choose(bucket, self.x, r)
                    } else {
                        self.draw(bucket, r, position)
                    };
                    if let (Some(below), true) =
                        (self.map.bucket(item), self.kind_differs(item, call.kind))
                    {
                        bucket = below;
                        continue;
                    }
                    self.judge(item, call, r, (position, room), out, leaves.as_deref_mut())
                };
                let collided = match outcome {
                    Outcome::Accept(item) => return Some(item),
                    Outcome::DeadEnd => return None,
                    Outcome::Retry { collided } => collided,
                };
                failures += 1;
                local_failures += 1;
                let locally = (collided && local_failures <= self.local_tries)
                    || (self.fallback_tries > 0
                        && local_failures
                            <= (bucket.items.len() as u32).saturating_add(self.fallback_tries));
                if locally {
                    continue;
                }
                if failures < call.tries {
                    continue 'descent;
                }
                return None;
            }
        }
    }

    fn kind_differs(&self, item: ItemId, kind: u16) -> bool {
        self.map.item_kind(item) != Some(kind)
    }

    /// Decides on an item at the end of a descent.
    fn judge(
        &mut self,
        item: ItemId,
        call: &Firstn,
        r: u32,
        (position, room): (usize, usize),
        out: &[ItemId],
        leaves: Option<&mut [ItemId]>,
    ) -> Outcome {
        if self.kind_differs(item, call.kind) {
            return Outcome::DeadEnd; // a device, where a bucket of some type was wanted
        }
        if out[..position].contains(&item) {
            return Outcome::Retry { collided: true };
        }
        if let Some(leaves) = leaves {
            match self.map.bucket(item) {
                None => leaves[position] = item,
                Some(below) => {
                    let parent_r = if self.vary_r == 0 {
                        0
                    } else {
                        r.checked_shr(self.vary_r - 1).unwrap_or(0)
                    };
                    let call = Firstn {
                        kind: 0,
                        start: if self.stable { 0 } else { position as u32 },
                        end: if self.stable { 1 } else { position as u32 + 1 },
                        position,
                        room,
                        tries: self.leaf_tries.unwrap_or(
                            match self.map.tunables.chooseleaf_descend_once {
                                0 => self.tries,
                                _ => 1,
                            },
                        ),
                        parent_r,
                    };
                    if self.firstn_from(below, &call, leaves, None) <= position {
                        return Outcome::Retry { collided: false };
                    }
                }
            }
        }
        if call.kind == 0 && self.reweights.refuses(item, self.x) {
            return Outcome::Retry { collided: false };
        }
        Outcome::Accept(item)
    }

    /// Fills up to `room` of `count` positions with distinct items of `kind` below `bucket`;
    /// returns the number of positions, including holes.
    fn indep(
        &mut self,
        bucket: &'a Bucket,
        kind: u16,
        count: usize,
        room: usize,
        out: &mut [ItemId],
        leaves: Option<&mut [ItemId]>,
    ) -> usize {
        let positions = count.min(room);
        let call = Indep {
            kind,
            positions: (0, positions),
            count: count as u32,
            tries: self.tries,
            parent_r: 0,
        };
        self.indep_from(bucket, &call, out, leaves);
        positions
    }

    fn indep_from(
        &mut self,
        top: &'a Bucket,
        call: &Indep,
        out: &mut [ItemId],
        mut leaves: Option<&mut [ItemId]>,
    ) {
        let (start, end) = call.positions;
        out[start..end].fill(ItemId::UNDECIDED);
        if let Some(leaves) = leaves.as_deref_mut() {
            leaves[start..end].fill(ItemId::UNDECIDED);
        }
        let mut left = end - start;
        for failures in 0..call.tries {
            if left == 0 {
                break;
            }
            for position in start..end {
                if out[position] != ItemId::UNDECIDED {
                    continue;
                }
                let leaves = leaves.as_deref_mut();
                if let Some(item) = self.one_position(top, call, failures, position, out, leaves) {
                    out[position] = item;
                    left -= 1;
                }
            }
        }
        for column in [Some(out), leaves].into_iter().flatten() {
            for item in &mut column[start..end] {
                if *item == ItemId::UNDECIDED {
                    *item = ItemId::NONE;
                }
            }
        }
    }

    /// One attempt at one position: an item, a final hole, or nothing yet.
    fn one_position(
        &mut self,
        top: &'a Bucket,
        call: &Indep,
        failures: u32,
        position: usize,
        out: &[ItemId],
        leaves: Option<&mut [ItemId]>,
    ) -> Option<ItemId> {
        let mut bucket = top;
        let (item, r) = loop {
            if bucket.items.is_empty() {
                return None;
            }
            // If the size of a permutation is a multiple of the number of positions, each position
            // would get the same few items repeatedly; a stride of one more than that number visits
            // all of them.
            let even = bucket.alg == Alg::Uniform
                && (bucket.items.len() as u32).is_multiple_of(call.count);
            let stride = if even { call.count + 1 } else { call.count };
            let r = (position as u32)
                .wrapping_add(call.parent_r)
                .wrapping_add(stride.wrapping_mul(failures));
            let item = self.draw(bucket, r, call.positions.0);
            match self.map.bucket(item) {
                Some(below) if below.kind != call.kind => bucket = below,
                None if call.kind != 0 => {
                    // A device in place of a bucket of some type: no attempt will help.
                    if let Some(leaves) = leaves {
                        leaves[position] = ItemId::NONE;
                    }
                    return Some(ItemId::NONE);
                }
                _ => break (item, r),
            }
        };
        if out[call.positions.0..call.positions.1].contains(&item) {
            return None;
        }
        if let Some(leaves) = leaves {
            match self.map.bucket(item) {
                None => leaves[position] = item,
                Some(below) => {
                    let tries = self.leaf_tries.unwrap_or(1);
                    let positions = (position, position + 1);
                    let call = Indep {
                        kind: 0,
                        positions,
                        count: call.count,
                        tries,
                        parent_r: r,
                    };
                    self.indep_from(below, &call, leaves, None);
                    if leaves[position] == ItemId::NONE {
                        return None;
                    }
                }
            }
        }
        if call.kind == 0 && self.reweights.refuses(item, self.x) {
            return None;
        }
        Some(item)
    }
}

/// One call of indep: at the top level, or for the leaf below a chosen bucket.
struct Indep {
    kind: u16,
    /// First position and the one after the last.
    positions: (usize, usize),
    /// Number of positions of the whole step; the distance between a position's attempt numbers.
    count: u32,
    tries: u32,
    parent_r: u32,
}
