//! Freed space is discarded, so that the host can reclaim it: a thin device, or the file system
//! that contains the store's file.
//!
//! ```text
//!  released ──▶ freed ──checkpoint durable──▶ ready ──one at a time──▶ in flight (taken, so that nothing is written there) ──▶ free
//! ```
//! Runs shorter than a minimum wait for neighbours. The memory of runs is bounded and not durable:
//! a forgotten run is discarded when it is freed the next time.

use super::{Purpose, Store};
use crate::device::{Device, IoKind};
use crate::format::BLOCK_U64;
use std::collections::BTreeMap;

/// The maximum number of remembered runs.
const RUNS_MAX: usize = 1 << 16;

#[derive(Default)]
pub(super) struct Discards {
    /// First unit and count, disjoint and not adjacent.
    freed: BTreeMap<u64, u64>,
    ready: BTreeMap<u64, u64>,
    in_flight: Option<(u64, u32)>,
}

fn add(runs: &mut BTreeMap<u64, u64>, mut unit: u64, count: u64) {
    let mut end = unit + count;
    while let Some((&start, &length)) = runs.range(..=end).next_back()
        && start + length >= unit
    {
        runs.remove(&start);
        (unit, end) = (unit.min(start), end.max(start + length));
    }
    if runs.len() < RUNS_MAX {
        runs.insert(unit, end - unit);
    }
}

impl Discards {
    /// Forgets all runs: nothing is discarded.
    fn forget(&mut self) {
        self.freed.clear();
        self.ready.clear();
    }
    pub(super) fn freed(&mut self, runs: impl IntoIterator<Item = (u64, u32)>) {
        runs.into_iter()
            .for_each(|(unit, count)| add(&mut self.freed, unit, count.into()));
    }
    /// All runs freed so far are free in a durable checkpoint.
    pub(super) fn checkpointed(&mut self) {
        for (unit, count) in std::mem::take(&mut self.freed) {
            add(&mut self.ready, unit, count);
        }
    }
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_none()
    }
    /// The run being discarded: marked as taken, though unused.
    pub(super) fn in_flight(&self) -> Option<(u64, u64)> {
        self.in_flight.map(|(unit, count)| (unit, count.into()))
    }
    pub(super) fn units(&self) -> u32 {
        self.in_flight.map_or(0, |(_, count)| count)
    }
}

impl<D: Device> Store<D> {
    /// Begins the next discard. No cycle may be in progress: its checkpoint records which units are
    /// taken.
    pub(super) fn drive_discards(&mut self) {
        if self.failed || !self.discards.is_idle() || self.discards.ready.is_empty() {
            return;
        }
        let (min, max) = (
            self.limits
                .discard_units_min
                .min(self.limits.discard_units_max),
            self.limits.discard_units_max,
        );
        if max == 0 {
            return self.discards.forget();
        }
        let mut allocator = self.allocator.lock();
        while let Some((start, count)) = self.discards.ready.pop_first() {
            // Some of it may be in use again.
            let end = start + count;
            let Some(unit) = (start..end).find(|&unit| !allocator.is_taken(unit)) else {
                continue;
            };
            let stop = end.min(unit + max);
            let stop = (unit..stop)
                .find(|&unit| allocator.is_taken(unit))
                .unwrap_or(stop);
            if stop < end {
                self.discards.ready.insert(stop, end - stop);
            }
            if stop - unit < min {
                self.usage.borders.discards_short += 1;
                continue;
            }
            self.usage.borders.discards += 1;
            self.usage.borders.discards_cut += u64::from(stop - unit == max && stop < end);
            assert!(
                allocator.take_range(unit, stop - unit),
                "it was just found free"
            );
            drop(allocator);
            self.discards.in_flight = Some((unit, (stop - unit) as u32));
            let (offset, length) = (unit * BLOCK_U64, (stop - unit) * BLOCK_U64);
            self.usage.discarded_bytes += length;
            let purpose = Purpose::Discard {
                unit,
                count: (stop - unit) as u32,
            };
            return self.io(purpose, IoKind::Discard { offset, length });
        }
    }

    pub(super) fn discarded(&mut self, unit: u64, count: u32) {
        self.discards.in_flight = None;
        self.give_back(&[(unit, count)]);
    }
}
