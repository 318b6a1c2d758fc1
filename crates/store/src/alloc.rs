//! Free space: which units of the device hold something.
//!
//! EBOFS bins free extents by size and sorts them by place (OSDI 2006 §5.6; CEPH-56). Here the device is cut into
//! groups of 4096 units (16 MiB), each with a bitmap, and *groups* are binned by their largest free run and sorted by
//! place: the same search, in memory that does not grow with fragmentation (32 MiB per TiB at worst; a group that is
//! all free or all used has no bitmap).
//!
//! ```text
//!  unit:   free ──take──▶ taken ──give──▶ waiting ──release──▶ free
//! ```
//! A unit that a transaction gives back *waits* until nobody can need its old content: see `Store::release`. To the
//! index it is free already, since a crash after the transaction's commit ends every wait.
//!
//! Invariants: `free` counts the clear bits; bins agree with bitmaps ([`Allocator::check`]).

use std::collections::BTreeSet;

/// Units of one group; one record of the index.
pub(crate) const GROUP_UNITS: u64 = 4096;
const WORDS: usize = (GROUP_UNITS / 64) as usize;
const CLASSES: usize = 14;

#[derive(Clone, Debug)]
enum Bits {
    Free,
    Used,
    Mixed(Box<[u64; WORDS]>),
}

#[derive(Clone, Debug)]
struct Group {
    bits: Bits,
    free: u16,
    /// 0 if full; else the largest free run has at least `1 << (class - 1)` units.
    class: u8,
}

#[derive(Debug)]
pub(crate) struct Allocator {
    groups: Vec<Group>,
    bins: [BTreeSet<u32>; CLASSES],
    free: u64,
    units: u64,
}

fn words(bits: &Bits) -> [u64; WORDS] {
    match bits {
        Bits::Free => [0; WORDS],
        Bits::Used => [u64::MAX; WORDS],
        Bits::Mixed(words) => **words,
    }
}

/// First clear run of at least `want` bits at or after `from`; else the longest there is. `(start, length)`.
fn find_run(words: &[u64; WORDS], from: usize, want: usize) -> (usize, usize) {
    let (mut best, mut at) = ((0, 0), from);
    let total = WORDS * 64;
    while at < total {
        let word = words[at / 64] >> (at % 64);
        if word == u64::MAX >> (at % 64) || word & 1 == 1 {
            at += (word.trailing_ones() as usize).clamp(1, 64 - at % 64);
            continue;
        }
        let start = at;
        while at < total {
            let word = words[at / 64] >> (at % 64);
            let zeros = (word.trailing_zeros() as usize).min(64 - at % 64);
            at += zeros;
            if at % 64 != 0 || zeros == 0 {
                break;
            }
        }
        if at - start > best.1 {
            best = (start, at - start);
            if best.1 >= want {
                break;
            }
        }
    }
    best
}

fn class_of(run: usize) -> u8 {
    if run == 0 { 0 } else { run.ilog2() as u8 + 1 }
}

impl Allocator {
    /// All of `units` free, except those before `first`.
    pub(crate) fn new(units: u64, first: u64) -> Self {
        let count = units.div_ceil(GROUP_UNITS);
        let group = Group { bits: Bits::Free, free: GROUP_UNITS as u16, class: class_of(GROUP_UNITS as usize) };
        let mut allocator = Self {
            groups: vec![group; usize::try_from(count).expect("a device's groups fit memory")],
            bins: Default::default(),
            free: count * GROUP_UNITS,
            units,
        };
        allocator.bins[CLASSES - 1] = (0..count as u32).collect();
        allocator.take_range(0, first);
        allocator.take_range(units, count * GROUP_UNITS - units);
        allocator
    }

    /// Whether it has any units, free or taken.
    pub(crate) fn knows_units(&self) -> bool {
        self.units > 0
    }

    /// Units nobody has.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    fn rebin(&mut self, group: u32, words: &[u64; WORDS]) {
        let old = &self.groups[group as usize];
        let (old_free, old_class) = (old.free, old.class);
        let free = words.iter().map(|w| w.count_zeros()).sum::<u32>() as u16;
        let class = class_of(find_run(words, 0, GROUP_UNITS as usize).1);
        let bits = match u64::from(free) {
            0 => Bits::Used,
            GROUP_UNITS => Bits::Free,
            _ => Bits::Mixed(Box::new(*words)),
        };
        self.free = self.free - u64::from(old_free) + u64::from(free);
        if class != old_class {
            self.bins[old_class as usize].remove(&group);
            self.bins[class as usize].insert(group);
        }
        self.groups[group as usize] = Group { bits, free, class };
    }

    /// Sets or clears a range; returns whether every unit of it was in the other state before.
    fn change(&mut self, unit: u64, count: u64, used: bool) -> bool {
        let mut as_expected = true;
        let (mut at, end) = (unit, unit + count);
        while at < end {
            let group = (at / GROUP_UNITS) as u32;
            let stop = end.min((u64::from(group) + 1) * GROUP_UNITS);
            let mut words = words(&self.groups[group as usize].bits);
            for bit in (at % GROUP_UNITS) as usize..(stop - u64::from(group) * GROUP_UNITS) as usize {
                let mask = 1 << (bit % 64);
                as_expected &= (words[bit / 64] & mask != 0) != used;
                if used {
                    words[bit / 64] |= mask;
                } else {
                    words[bit / 64] &= !mask;
                }
            }
            self.rebin(group, &words);
            at = stop;
        }
        as_expected
    }

    /// Marks units as taken; false if one of them was taken already, or lies outside.
    pub(crate) fn take_range(&mut self, unit: u64, count: u64) -> bool {
        unit.checked_add(count).is_some_and(|end| end <= self.groups.len() as u64 * GROUP_UNITS)
            && self.change(unit, count, true)
    }

    /// Marks units as free; false if one of them was free already, or lies outside.
    pub(crate) fn give_range(&mut self, unit: u64, count: u64) -> bool {
        unit.checked_add(count).is_some_and(|end| end <= self.units) && self.change(unit, count, false)
    }

    /// Takes `count` units, near `near` if it can, in as few runs as it can; `None`, and nothing taken, if there are
    /// not enough.
    pub(crate) fn take(&mut self, count: u64, near: u64) -> Option<Vec<(u64, u32)>> {
        if count > self.free {
            return None;
        }
        let mut runs = Vec::new();
        let (mut left, mut near) = (count, near);
        while left > 0 {
            let (unit, length) = self.take_run(left.min(GROUP_UNITS) as usize, near);
            match runs.last_mut() {
                Some((start, run)) if *start + u64::from(*run) == unit => *run += length as u32,
                _ => runs.push((unit, length as u32)),
            }
            left -= length as u64;
            near = unit + length as u64;
        }
        Some(runs)
    }

    fn take_run(&mut self, want: usize, near: u64) -> (u64, usize) {
        let home = ((near / GROUP_UNITS) as u32).min(self.groups.len() as u32 - 1);
        let home_words = words(&self.groups[home as usize].bits);
        let from = if near / GROUP_UNITS == u64::from(home) { (near % GROUP_UNITS) as usize } else { 0 };
        for from in [from, 0] {
            let (start, length) = find_run(&home_words, from, want);
            if length >= want {
                return self.take_in(home, start, want);
            }
        }
        // Any group of these bins has such a run: the first by place, from home on and then around.
        let enough = usize::from(class_of(want.next_power_of_two()));
        let after = (enough..CLASSES).filter_map(|c| self.bins[c].range(home..).next()).min();
        let before = || (enough..CLASSES).filter_map(|c| self.bins[c].first()).min();
        let group = after.or_else(before).copied();
        // Failing that, the bin below may have one; failing that, as much as the largest run gives.
        let group = group.or_else(|| (1..enough).rev().find_map(|c| self.bins[c].first().copied()));
        let group = group.expect("the caller checked that units are free");
        let (start, length) = find_run(&words(&self.groups[group as usize].bits), 0, want);
        self.take_in(group, start, length.min(want))
    }

    fn take_in(&mut self, group: u32, start: usize, length: usize) -> (u64, usize) {
        let unit = u64::from(group) * GROUP_UNITS + start as u64;
        assert!(self.take_range(unit, length as u64), "a run that was just found free is free");
        (unit, length)
    }

    /// Takes `count` units (at most a group) in one run, if a group has one.
    pub(crate) fn take_whole(&mut self, count: u64) -> Option<u64> {
        let count = count as usize;
        let surely = usize::from(class_of(count.next_power_of_two()));
        let surely = (surely..CLASSES).filter_map(|c| self.bins[c].first()).min();
        let perhaps = || self.bins[usize::from(class_of(count))].iter();
        for &group in surely.into_iter().chain(perhaps()) {
            let (start, length) = find_run(&words(&self.groups[group as usize].bits), 0, count);
            if length >= count {
                return Some(self.take_in(group, start, count).0);
            }
        }
        None
    }

    /// A group's record: which units are taken, leaving out `except` ranges. `None` if it would be empty.
    pub(crate) fn encode_group(&self, group: u32, except: impl Iterator<Item = (u64, u64)>) -> Option<Vec<u8>> {
        let mut words = words(&self.groups[group as usize].bits);
        let base = u64::from(group) * GROUP_UNITS;
        for (unit, count) in except {
            for at in unit.max(base)..(unit + count).min(base + GROUP_UNITS) {
                let bit = (at - base) as usize;
                words[bit / 64] &= !(1 << (bit % 64));
            }
        }
        words.iter().any(|&w| w != 0).then(|| words.iter().flat_map(|w| w.to_le_bytes()).collect())
    }

    /// Takes what a group's record says; false if it makes no sense.
    pub(crate) fn decode_group(&mut self, group: u32, record: &[u8]) -> bool {
        if record.len() != WORDS * 8 || group as usize >= self.groups.len() {
            return false;
        }
        let mut now = words(&self.groups[group as usize].bits);
        for (word, bytes) in now.iter_mut().zip(record.chunks_exact(8)) {
            let more = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            if *word & more != 0 {
                return false;
            }
            *word |= more;
        }
        self.rebin(group, &now);
        true
    }

    pub(crate) fn is_taken(&self, unit: u64) -> bool {
        let Some(group) = self.groups.get((unit / GROUP_UNITS) as usize) else { return true };
        let bit = (unit % GROUP_UNITS) as usize;
        match &group.bits {
            Bits::Free => false,
            Bits::Used => true,
            Bits::Mixed(words) => words[bit / 64] & (1 << (bit % 64)) != 0,
        }
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        let mixed = self.groups.iter().filter(|g| matches!(g.bits, Bits::Mixed(_))).count();
        (mixed * 512 + self.groups.len() * 40) as u64
    }
}

impl Allocator {
    /// The invariants of the module head, for tests and simulation.
    pub(crate) fn check(&self) {
        let mut free = 0;
        for (i, group) in self.groups.iter().enumerate() {
            let words = words(&group.bits);
            let count: u32 = words.iter().map(|w| w.count_zeros()).sum();
            assert_eq!(u64::from(group.free), u64::from(count));
            free += u64::from(count);
            assert_eq!(group.class, class_of(find_run(&words, 0, GROUP_UNITS as usize).1));
            for (class, bin) in self.bins.iter().enumerate() {
                assert_eq!(bin.contains(&(i as u32)), class == usize::from(group.class));
            }
        }
        assert_eq!(free, self.free);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{RngCore, SeedableRng};

    #[test]
    fn nothing_is_given_twice_and_everything_comes_back() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let (units, first) = (3 * GROUP_UNITS + 100, 70);
        let mut allocator = Allocator::new(units, first);
        let mut held: Vec<(u64, u32)> = Vec::new();
        let mut taken = vec![false; units as usize];
        for step in 0..4000 {
            if rng.next_u32() % 100 < 55 {
                let want = 1 + u64::from(rng.next_u32()) % if step % 50 == 0 { 3000 } else { 20 };
                let near = u64::from(rng.next_u32()) % units;
                let free = allocator.free();
                match allocator.take(want, near) {
                    Some(runs) => {
                        assert_eq!(runs.iter().map(|r| u64::from(r.1)).sum::<u64>(), want);
                        for &(unit, count) in &runs {
                            for at in unit..unit + u64::from(count) {
                                assert!(at >= first && at < units && !taken[at as usize], "unit {at}");
                                taken[at as usize] = true;
                            }
                        }
                        held.extend(runs);
                    }
                    None => assert!(want > free),
                }
            } else if !held.is_empty() {
                let (unit, count) = held.swap_remove(rng.next_u32() as usize % held.len());
                assert!(allocator.give_range(unit, count.into()));
                taken[unit as usize..][..count as usize].fill(false);
            }
            if step % 100 == 0 {
                allocator.check();
                let mut other = Allocator::new(units, first);
                for group in 0..allocator.groups.len() as u32 {
                    let constant = [(0, first), (units, GROUP_UNITS)];
                    if let Some(record) = allocator.encode_group(group, constant.into_iter()) {
                        assert!(other.decode_group(group, &record));
                    }
                }
                assert!((0..units).all(|unit| other.is_taken(unit) == allocator.is_taken(unit)));
            }
        }
        for (unit, count) in held.drain(..) {
            assert!(allocator.give_range(unit, count.into()));
            assert!(!allocator.give_range(unit, 1), "giving twice is noticed");
        }
        assert_eq!(allocator.free(), units - first);
    }

    #[test]
    fn runs_stay_whole_and_near_when_they_can() {
        let mut allocator = Allocator::new(4 * GROUP_UNITS, 10);
        let place = |runs: Option<Vec<(u64, u32)>>| runs.expect("enough free")[..].to_vec();
        assert_eq!(place(allocator.take(100, 5000)), [(5000, 100)]);
        assert_eq!(place(allocator.take(10, 5000)), [(5100, 10)]);
        assert_eq!(place(allocator.take(4096, 0)), [(2 * GROUP_UNITS, 4096)], "the first group with room for all");
        assert_eq!(place(allocator.take(1, 2 * GROUP_UNITS)), [(3 * GROUP_UNITS, 1)], "the next by place");
        assert_eq!(allocator.take_whole(256), Some(10));
        assert_eq!(allocator.take_whole(4096), None, "no group is all free");
        assert_eq!(allocator.take_whole(3000), Some(266));
        allocator.check();
    }
}
