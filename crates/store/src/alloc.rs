//! Free space: which units of the device are in use.
//!
//! EBOFS bins free extents by size and sorts them by place (OSDI 2006 §5.6; CEPH-56). Here the
//! device is divided into groups of 4096 units (16 MiB), each with a bitmap, and *groups* are
//! binned by their largest free run and sorted by place: the same search, in memory that does not
//! grow with fragmentation (at most 32 MiB per TiB; a group that is all free or all used has no
//! bitmap).
//!
//! ```text
//!  unit:   free ──take──▶ taken ──give──▶ waiting ──release──▶ free
//! ```
//! A freed unit *waits* until its old content is no longer needed: see `Store::release`. In the
//! index it is free already, since a crash after the transaction's commit ends every wait.
//!
//! Taking units may make a group's largest run shorter than its bin states: a search for a run
//! there corrects that. So taking and freeing access only the words that they change, and not a
//! whole group.
//!
//! Invariants: `free` is the number of clear bits; no group has a longer run than its bin states
//! ([`Allocator::check`]).

use smallvec::SmallVec;
use std::collections::BTreeSet;

/// Units, as first and count; most transactions take and free one.
pub(crate) type Runs = SmallVec<[(u64, u32); 1]>;

/// Units of one group, which is one record of the index.
pub(crate) const GROUP_UNITS: u64 = 4096;
const WORDS: usize = (GROUP_UNITS / 64) as usize;
const CLASSES: usize = 14;

#[derive(Clone, Debug)]
enum Bits {
    Free,
    Used,
    Mixed(Box<[u64; WORDS]>),
}

impl Bits {
    fn words(&self) -> &[u64; WORDS] {
        match self {
            Self::Free => &[0; WORDS],
            Self::Used => &[u64::MAX; WORDS],
            Self::Mixed(words) => words,
        }
    }
    fn words_mut(&mut self) -> &mut [u64; WORDS] {
        if !matches!(self, Self::Mixed(_)) {
            *self = Self::Mixed(Box::new(*self.words()));
        }
        match self {
            Self::Mixed(words) => words,
            _ => unreachable!("it was just made one"),
        }
    }
}

#[derive(Clone, Debug)]
struct Group {
    bits: Bits,
    free: u16,
    /// 0 if full; otherwise the largest free run has less than `1 << class` units, and at least
    /// `1 << (class - 1)`, unless some were taken since the last search.
    class: u8,
    /// It belongs to the area for small pieces ([`Area`]).
    in_area: bool,
}

/// Groups in which small pieces are written in turn: units used before are reused, rather than
/// units for which the host's file has no blocks yet. The area grows at the end of a round until
/// enough of it is free ([`Area::wants`]), so that consecutive writes are in runs.
///
/// Random overwrites in an area that is half full find 16 units in 3.9 runs, in one that is a
/// quarter full in 1.3: one write for a group of the log. That costs space of the host's file, so
/// large areas are fuller.
#[derive(Debug, Default)]
struct Area {
    groups: Vec<u32>,
    /// The next group, and the next unit in it.
    at: usize,
    bit: usize,
    /// Groups that left the area, with space that the host may reclaim.
    left: Vec<u32>,
}

/// Below so many groups (1 GiB) three quarters of the area are to be free, of larger ones a half.
const ROOMY_MAX: usize = 64;

impl Area {
    /// How many units of it are to be free.
    fn wants(&self) -> u64 {
        let units = |groups: usize| groups as u64 * GROUP_UNITS;
        let all = self.groups.len();
        (units(all) / 2).max(units(all.min(ROOMY_MAX)) / 4 * 3)
    }
}

/// Groups of the area that are searched for one piece.
const LOOKS_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Allocator {
    groups: Vec<Group>,
    bins: [BTreeSet<u32>; CLASSES],
    free: u64,
    units: u64,
    area: Area,
}

/// The number of clear bits from `at` on.
fn clear_from(words: &[u64; WORDS], mut at: usize) -> usize {
    let first = at;
    while at < WORDS * 64 {
        let left = 64 - at % 64;
        let clear = ((words[at / 64] >> (at % 64)).trailing_zeros() as usize).min(left);
        at += clear;
        if clear < left {
            break;
        }
    }
    at - first
}

/// The number of clear bits just before `end`.
fn clear_before(words: &[u64; WORDS], end: usize) -> usize {
    let mut at = end;
    while at > 0 {
        let left = (at - 1) % 64 + 1;
        let clear = ((words[(at - 1) / 64] << (64 - left)).leading_zeros() as usize).min(left);
        at -= clear;
        if clear < left {
            break;
        }
    }
    end - at
}

/// The first clear run of at least `want` bits at or after `from`; otherwise the longest one.
/// `(start, length)`.
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
        at += clear_from(words, at);
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
    /// An allocator with all of `units` free, except those before `first`.
    pub(crate) fn new(units: u64, first: u64) -> Self {
        let count = units.div_ceil(GROUP_UNITS);
        let class = class_of(GROUP_UNITS as usize);
        let group = Group {
            bits: Bits::Free,
            free: GROUP_UNITS as u16,
            class,
            in_area: false,
        };
        let mut allocator = Self {
            groups: vec![group; usize::try_from(count).expect("a device's groups fit memory")],
            bins: Default::default(),
            free: count * GROUP_UNITS,
            units,
            area: Area::default(),
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

    /// The number of free units.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    fn put_in_class(&mut self, group: u32, class: u8) {
        let old = std::mem::replace(&mut self.groups[group as usize].class, class);
        if class != old {
            self.bins[old as usize].remove(&group);
            self.bins[class as usize].insert(group);
        }
    }

    /// The first free run of at least this many units, or the longest one: then the group's class
    /// is updated.
    fn search(&mut self, group: u32, want: usize) -> (usize, usize) {
        let run = find_run(self.groups[group as usize].bits.words(), 0, want);
        if run.1 < want {
            self.put_in_class(group, class_of(run.1));
        }
        run
    }

    /// Sets the number of free units of a group.
    fn note_free(&mut self, group: u32, free: u16) {
        let of = &mut self.groups[group as usize];
        self.free = self.free - u64::from(of.free) + u64::from(free);
        of.free = free;
        match u64::from(free) {
            0 => of.bits = Bits::Used,
            GROUP_UNITS => of.bits = Bits::Free,
            _ => {}
        }
    }

    /// Sets or clears a range; returns whether every unit of it was in the other state before.
    fn change(&mut self, unit: u64, count: u64, used: bool) -> bool {
        let mut as_expected = true;
        let (mut at, end) = (unit, unit + count);
        while at < end {
            let group = (at / GROUP_UNITS) as u32;
            let stop = end.min((u64::from(group) + 1) * GROUP_UNITS);
            let (first, last) = (
                (at % GROUP_UNITS) as usize,
                (stop - u64::from(group) * GROUP_UNITS) as usize,
            );
            as_expected &= self.change_in(group, first, last, used);
            at = stop;
        }
        as_expected
    }

    /// The same in one group, from `first` up to `last`.
    fn change_in(&mut self, group: u32, first: usize, last: usize, used: bool) -> bool {
        let of = &mut self.groups[group as usize];
        let words = of.bits.words_mut();
        let (mut as_expected, mut changed, mut at) = (true, 0, first);
        while at < last {
            let stop = last.min((at / 64 + 1) * 64);
            let mask = (u64::MAX >> (64 - (stop - at))) << (at % 64);
            let word = &mut words[at / 64];
            let others = if used { *word & mask } else { !*word & mask };
            as_expected &= others == 0;
            changed += mask.count_ones() - others.count_ones();
            if used {
                *word |= mask;
            } else {
                *word &= !mask;
            }
            at = stop;
        }
        let run = if used {
            0
        } else {
            clear_before(words, first) + clear_from(words, first)
        };
        let changed = changed as u16;
        let (free, class) = (
            if used {
                of.free - changed
            } else {
                of.free + changed
            },
            of.class,
        );
        self.note_free(group, free);
        self.put_in_class(group, class.max(class_of(run)).min(class_of(free.into())));
        as_expected
    }

    /// Marks units as taken; false if one of them was taken already, or is out of range.
    pub(crate) fn take_range(&mut self, unit: u64, count: u64) -> bool {
        unit.checked_add(count)
            .is_some_and(|end| end <= self.groups.len() as u64 * GROUP_UNITS)
            && self.change(unit, count, true)
    }

    /// Marks units as free; false if one of them was free already, or is out of range.
    pub(crate) fn give_range(&mut self, unit: u64, count: u64) -> bool {
        unit.checked_add(count).is_some_and(|end| end <= self.units)
            && self.change(unit, count, false)
    }

    /// Takes `count` units, near `near` if possible, in as few runs as possible; `None`, and
    /// nothing taken, if there are not enough.
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
        let from = if near / GROUP_UNITS == u64::from(home) {
            (near % GROUP_UNITS) as usize
        } else {
            0
        };
        for from in [from, 0] {
            if let Some((start, _)) = self.find_in(home, from, want) {
                return self.take_in(home, start, want);
            }
        }
        // Any group of these bins has such a run: the first by place, starting at home, cyclically.
        let enough = usize::from(class_of(want.next_power_of_two()));
        loop {
            let after = (enough..CLASSES)
                .filter_map(|c| self.bins[c].range(home..).next())
                .min();
            let before = || (enough..CLASSES).filter_map(|c| self.bins[c].first()).min();
            let Some(&group) = after.or_else(before) else {
                break;
            };
            if let Some((start, _)) = self.find_in(group, 0, want) {
                return self.take_in(group, start, want);
            }
        }
        // Otherwise, the bin below may have one; otherwise, the largest run is used.
        loop {
            let group = (1..CLASSES)
                .rev()
                .find_map(|c| self.bins[c].first().copied());
            let group = group.expect("the caller checked that units are free");
            let class = self.groups[group as usize].class;
            let (start, length) = self.search(group, want);
            // Otherwise another group may have a longer run.
            if length >= want || self.groups[group as usize].class == class {
                return self.take_in(group, start, length.min(want));
            }
        }
    }

    /// The first free run of at least this many units in a group, from one of its units on.
    fn find_in(&mut self, group: u32, from: usize, want: usize) -> Option<(usize, usize)> {
        let of = &self.groups[group as usize];
        if of.class < class_of(want) {
            return None;
        }
        let run = if from == 0 {
            self.search(group, want)
        } else {
            find_run(of.bits.words(), from, want)
        };
        (run.1 >= want).then_some(run)
    }

    fn take_in(&mut self, group: u32, start: usize, length: usize) -> (u64, usize) {
        let unit = u64::from(group) * GROUP_UNITS + start as u64;
        assert!(
            self.take_range(unit, length as u64),
            "a run that was just found free is free"
        );
        (unit, length)
    }

    /// Takes `count` units (at most a group) in one run, if a group has one.
    pub(crate) fn take_whole(&mut self, count: u64) -> Option<u64> {
        let count = count as usize;
        let surely = usize::from(class_of(count.next_power_of_two()));
        while let Some(&group) = (surely..CLASSES).filter_map(|c| self.bins[c].first()).min() {
            if let Some((start, _)) = self.find_in(group, 0, count) {
                return Some(self.take_in(group, start, count).0);
            }
        }
        let perhaps: Vec<u32> = self.bins[usize::from(class_of(count))]
            .iter()
            .copied()
            .collect();
        let mut found = perhaps
            .into_iter()
            .filter_map(|group| Some((group, self.find_in(group, 0, count)?)));
        let (group, (start, _)) = found.next()?;
        Some(self.take_in(group, start, count).0)
    }

    /// Takes `count` units for small pieces that will soon be replaced: in one run of the area if
    /// one is near, otherwise in pieces; see [`Area`]. `None`, and nothing taken, if there are not
    /// enough.
    pub(crate) fn take_small(&mut self, count: u64, near: u64) -> Option<Runs> {
        if count > self.free {
            return None;
        }
        let mut runs = Runs::new();
        let mut left = count as usize;
        for want in [left, 1] {
            let mut looks = 0;
            while left > 0 && looks < LOOKS_MAX.min(self.area.groups.len() + 2) {
                looks += 1;
                let Some(&group) = self.area.groups.get(self.area.at) else {
                    self.end_round();
                    continue;
                };
                let Some((start, length)) = self.find_in(group, self.area.bit, want) else {
                    (self.area.at, self.area.bit) = (self.area.at + 1, 0);
                    continue;
                };
                let (unit, length) = self.take_in(group, start, length.min(left));
                self.area.bit = start + length;
                left -= length;
                runs.push((unit, length as u32));
            }
        }
        if left > 0 {
            // The area has no space.
            runs.extend(self.take(left as u64, near).expect("so many are free"));
        }
        Some(runs)
    }

    /// The number of free units of the area.
    fn area_free(&self) -> u64 {
        self.area
            .groups
            .iter()
            .map(|&group| u64::from(self.groups[group as usize].free))
            .sum()
    }

    /// A round of the area has ended: it grows until enough of it is free.
    fn end_round(&mut self) {
        (self.area.at, self.area.bit) = (0, 0);
        let mut free = self.area_free();
        let mut from = 0;
        while self.area.groups.is_empty() || free < self.area.wants() {
            let fits = |group: &Group| !group.in_area && u64::from(group.free) >= GROUP_UNITS / 4;
            let Some(more) = self.groups[from..].iter().position(fits) else {
                return;
            };
            from += more;
            free += u64::from(self.groups[from].free);
            self.groups[from].in_area = true;
            self.area.groups.push(from as u32);
        }
    }

    /// Groups leave the area while nearly all of it is free.
    fn shrink_area(&mut self) {
        let mut free = self.area_free();
        while self.area.groups.len() > 2
            && free > self.area.groups.len() as u64 * GROUP_UNITS / 8 * 7
        {
            let group = self.area.groups.pop().expect("more than two");
            free -= u64::from(self.groups[group as usize].free);
            self.groups[group as usize].in_area = false;
            self.area.left.push(group);
        }
    }

    /// Whether a unit is in the area for small pieces.
    pub(crate) fn in_area(&self, unit: u64) -> bool {
        self.groups
            .get((unit / GROUP_UNITS) as usize)
            .is_some_and(|group| group.in_area)
    }

    /// Lets the area shrink; returns the free units of groups that have left it since the last
    /// call.
    pub(crate) fn take_left(&mut self) -> Vec<(u64, u32)> {
        self.shrink_area();
        let mut runs = Vec::new();
        for group in std::mem::take(&mut self.area.left) {
            let words = self.groups[group as usize].bits.words();
            let mut at = 0;
            while at < GROUP_UNITS as usize {
                let (start, length) = find_run(words, at, 1);
                if length == 0 {
                    break;
                }
                runs.push((u64::from(group) * GROUP_UNITS + start as u64, length as u32));
                at = start + length;
            }
        }
        runs
    }

    /// A group's record: its taken units, except `except` ranges. `None` if it would be empty.
    pub(crate) fn encode_group(
        &self,
        group: u32,
        except: impl Iterator<Item = (u64, u64)>,
    ) -> Option<Vec<u8>> {
        let mut words = *self.groups[group as usize].bits.words();
        let base = u64::from(group) * GROUP_UNITS;
        for (unit, count) in except {
            for at in unit.max(base)..(unit + count).min(base + GROUP_UNITS) {
                let bit = (at - base) as usize;
                words[bit / 64] &= !(1 << (bit % 64));
            }
        }
        words
            .iter()
            .any(|&w| w != 0)
            .then(|| words.iter().flat_map(|w| w.to_le_bytes()).collect())
    }

    /// Applies a group's record; false if it is malformed.
    pub(crate) fn decode_group(&mut self, group: u32, record: &[u8]) -> bool {
        if record.len() != WORDS * 8 || group as usize >= self.groups.len() {
            return false;
        }
        let mut now = *self.groups[group as usize].bits.words();
        for (word, bytes) in now.iter_mut().zip(record.chunks_exact(8)) {
            let more = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            if *word & more != 0 {
                return false;
            }
            *word |= more;
        }
        *self.groups[group as usize].bits.words_mut() = now;
        self.note_free(
            group,
            now.iter().map(|word| word.count_zeros()).sum::<u32>() as u16,
        );
        self.search(group, usize::MAX);
        true
    }

    pub(crate) fn is_taken(&self, unit: u64) -> bool {
        let Some(group) = self.groups.get((unit / GROUP_UNITS) as usize) else {
            return true;
        };
        let bit = (unit % GROUP_UNITS) as usize;
        match &group.bits {
            Bits::Free => false,
            Bits::Used => true,
            Bits::Mixed(words) => words[bit / 64] & (1 << (bit % 64)) != 0,
        }
    }

    /// The bytes of memory used.
    pub(crate) fn memory(&self) -> u64 {
        let mixed = self
            .groups
            .iter()
            .filter(|g| matches!(g.bits, Bits::Mixed(_)))
            .count();
        (mixed * 512 + self.groups.len() * 40) as u64
    }
}

impl Allocator {
    /// Asserts the invariants of the module head, for tests and simulation.
    pub(crate) fn check(&self) {
        let mut free = 0;
        for (i, group) in self.groups.iter().enumerate() {
            let words = group.bits.words();
            let count: u32 = words.iter().map(|w| w.count_zeros()).sum();
            assert_eq!(u64::from(group.free), u64::from(count));
            free += u64::from(count);
            assert!(group.class >= class_of(find_run(words, 0, GROUP_UNITS as usize).1));
            assert_eq!(group.in_area, self.area.groups.contains(&(i as u32)));
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
                let small = want < 20 && rng.next_u32() % 2 == 0;
                match if small {
                    allocator.take_small(want, near)
                } else {
                    allocator.take(want, near).map(Runs::from)
                } {
                    Some(runs) => {
                        assert_eq!(runs.iter().map(|r| u64::from(r.1)).sum::<u64>(), want);
                        for &(unit, count) in &runs {
                            for at in unit..unit + u64::from(count) {
                                assert!(
                                    at >= first && at < units && !taken[at as usize],
                                    "unit {at}"
                                );
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

    /// Units taken and freed by small pieces are reused before other groups are used, and the area
    /// keeps so much free space that a group of the log is one run or two. When nearly all of it is
    /// free, groups leave.
    #[test]
    fn small_pieces_go_round() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut allocator = Allocator::new(40 * GROUP_UNITS, 10);
        let mut held: Vec<u64> = (0..6000)
            .map(|_| allocator.take_small(1, 0).expect("free")[0].0)
            .collect();
        assert!(held.is_sorted(), "one after the other at first");
        let (mut last, mut runs) = (0, 0);
        for i in 0..100_000 {
            let at = rng.next_u32() as usize % held.len();
            let new = allocator.take_small(1, 0).expect("free")[0].0;
            runs += u32::from(i >= 50_000 && (i % 16 == 0 || new != last + 1));
            last = new;
            assert!(allocator.give_range(std::mem::replace(&mut held[at], new), 1));
        }
        assert!(runs < 50_000 / 16 * 13 / 10, "{runs} runs");
        allocator.check();
        let area = |allocator: &Allocator| {
            (0..40)
                .filter(|group| allocator.in_area(group * GROUP_UNITS))
                .count()
        };
        assert_eq!(area(&allocator), 6);
        assert!(
            held.iter()
                .all(|&unit| unit < 6 * GROUP_UNITS && allocator.in_area(unit))
        );
        let runs = allocator.take_small(16, 0).expect("free");
        assert!(
            runs.len() <= 2,
            "neighbours lie together where there is a run: {runs:?}"
        );
        for unit in held.drain(..) {
            assert!(allocator.give_range(unit, 1));
        }
        let left = allocator.take_left();
        assert!(
            left.iter()
                .all(|&(unit, _)| (2..6).contains(&(unit / GROUP_UNITS))),
            "{left:?}"
        );
        assert_eq!(
            (
                area(&allocator),
                left.is_empty(),
                allocator.take_left().is_empty()
            ),
            (2, false, true)
        );
        allocator.check();
    }

    /// If the area has no space, small pieces go anywhere, down to the last unit.
    #[test]
    fn small_pieces_fill_a_device() {
        let mut allocator = Allocator::new(3 * GROUP_UNITS, 10);
        let free = allocator.free();
        // Every group is full except for single units.
        let all = allocator.take(free, 0).expect("free");
        let units = || {
            all.iter()
                .flat_map(|&(unit, count)| unit..unit + u64::from(count))
                .step_by(7)
        };
        units().for_each(|unit| assert!(allocator.give_range(unit, 1)));
        let mut taken = std::collections::BTreeSet::new();
        while let Some(runs) = allocator.take_small(3, 5000) {
            assert!(
                runs.iter()
                    .flat_map(|&(unit, count)| unit..unit + u64::from(count))
                    .all(|unit| taken.insert(unit))
            );
        }
        assert_eq!(
            (taken.len(), allocator.free()),
            (units().count() / 3 * 3, units().count() as u64 % 3)
        );
        allocator.check();
    }

    #[test]
    fn runs_stay_whole_and_near_when_they_can() {
        let mut allocator = Allocator::new(4 * GROUP_UNITS, 10);
        let place = |runs: Option<Vec<(u64, u32)>>| runs.expect("enough free")[..].to_vec();
        assert_eq!(place(allocator.take(100, 5000)), [(5000, 100)]);
        assert_eq!(place(allocator.take(10, 5000)), [(5100, 10)]);
        assert_eq!(
            place(allocator.take(4096, 0)),
            [(2 * GROUP_UNITS, 4096)],
            "the first group with room for all"
        );
        assert_eq!(
            place(allocator.take(1, 2 * GROUP_UNITS)),
            [(3 * GROUP_UNITS, 1)],
            "the next by place"
        );
        assert_eq!(allocator.take_whole(256), Some(10));
        assert_eq!(allocator.take_whole(4096), None, "no group is all free");
        assert_eq!(allocator.take_whole(3000), Some(266));
        allocator.check();
    }
}
