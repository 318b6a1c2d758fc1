//! Lookups that memory cannot answer: jobs, and their results.

use super::Store;
use crate::api::{Job, StoreFailure};
use crate::device::Device;
use crate::format::keys;
use crate::format::value::Value;
use crate::index::{Index, IndexError, Merge, Scanned};
use crate::job::{Outcome, Work};
use crate::memtable::MemTable;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The purpose of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ScanFor {
    /// A waiting read, by its number.
    Read(u64),
    /// The whole omap of an object being cloned.
    Clone(u64),
    /// A slice of an omap that is copied for a transaction.
    Fill,
}

/// Range and limits of a scan.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    pub(crate) from: Bytes,
    pub(crate) to: Bytes,
    pub(crate) limit: usize,
    pub(crate) bytes: usize,
}

#[derive(Default)]
pub(super) struct Lookups {
    wanted: BTreeSet<Bytes>,
    out: BTreeSet<Bytes>,
    scans: BTreeMap<ScanFor, Scan>,
    scans_out: BTreeSet<ScanFor>,
    weights: BTreeSet<u64>,
    /// Running weighings, each with the bytes that checkpoints have moved from memory into the
    /// index since it began.
    weights_out: BTreeMap<u64, u64>,
    /// The number of checkpoints so far; results of another generation are dropped.
    pub(super) generation: u64,
    next_job: u64,
}

impl Lookups {
    /// Asserts that no job is running or wanted.
    pub(super) fn check_at_rest(&self) {
        assert!(
            self.wanted.is_empty() && self.out.is_empty(),
            "records looked up: {:?} {:?}",
            self.wanted,
            self.out
        );
        assert!(
            self.scans.is_empty() && self.scans_out.is_empty(),
            "scans: {:?} {:?}",
            self.scans,
            self.scans_out
        );
        assert!(
            self.weights.is_empty() && self.weights_out.is_empty(),
            "{:?} {:?}",
            self.weights,
            self.weights_out
        );
    }
    pub(super) fn want_keys(&mut self, keys: Vec<Bytes>) {
        self.wanted
            .extend(keys.into_iter().filter(|key| !self.out.contains(key)));
    }
    pub(super) fn want_omap(&mut self, number: u64, bytes: usize) {
        let (from, to) = (keys::omap(number, &[]), keys::end(keys::TAG_OMAP, number));
        self.want_scan(
            ScanFor::Clone(number),
            Scan {
                from,
                to,
                limit: usize::MAX,
                bytes,
            },
        );
    }
    pub(super) fn want_weight(&mut self, number: u64) {
        if !self.weights_out.contains_key(&number) {
            self.weights.insert(number);
        }
    }
    /// A weighing has ended; returns the bytes to be added to its result.
    pub(super) fn weighed(&mut self, number: u64) -> u64 {
        self.weights_out
            .remove(&number)
            .expect("only what is out comes back")
    }
    /// A checkpoint has moved `frozen` into the index. Weighing a large omap may take longer than
    /// the interval between checkpoints, so an earlier result is not discarded: together with the
    /// bytes added since, it is what a weight must be, an upper bound.
    pub(super) fn checkpointed(&mut self, frozen: &MemTable) {
        self.generation += 1;
        for (number, since) in &mut self.weights_out {
            *since += frozen.weigh(
                &keys::omap(*number, &[]),
                &keys::end(keys::TAG_OMAP, *number),
            );
        }
    }
    pub(super) fn want_scan(&mut self, what: ScanFor, scan: Scan) {
        if !self.scans_out.contains(&what) {
            self.scans.insert(what, scan);
        }
    }
}

struct FindWork {
    index: Index,
    generation: u64,
    keys: Vec<Bytes>,
}
impl Work for FindWork {
    fn run(self: Box<Self>) -> Outcome {
        let found = self.index.get_many(&self.keys);
        Outcome::Found {
            generation: self.generation,
            keys: self.keys,
            found,
        }
    }
    fn name(&self) -> &'static str {
        "lookup"
    }
}

struct ScanWork {
    index: Index,
    generation: u64,
    what: ScanFor,
    scan: Scan,
}
impl Work for ScanWork {
    fn run(self: Box<Self>) -> Outcome {
        let Scan {
            from,
            to,
            limit,
            bytes,
        } = &self.scan;
        let found = self.index.scan(from, to, *limit, *bytes);
        Outcome::Scanned {
            generation: self.generation,
            scan: self.what,
            from: self.scan.from,
            found,
        }
    }
    fn name(&self) -> &'static str {
        "scan"
    }
}

struct WeighWork {
    index: Index,
    number: u64,
    max: u64,
}
impl Work for WeighWork {
    fn run(self: Box<Self>) -> Outcome {
        let (from, to) = (
            keys::omap(self.number, &[]),
            keys::end(keys::TAG_OMAP, self.number),
        );
        let weight = self.index.weigh(&from, &to, self.max);
        Outcome::Weighed {
            number: self.number,
            weight,
        }
    }
    fn name(&self) -> &'static str {
        "weigh"
    }
}

pub(super) struct CheckpointWork {
    pub(super) index: Index,
    pub(super) frozen: Arc<MemTable>,
    pub(super) leftovers: Vec<(Bytes, Bytes)>,
    pub(super) extra: Vec<(Bytes, Option<Bytes>)>,
    pub(super) batch_max: usize,
    pub(super) removals_max: usize,
    pub(super) atomic: bool,
}
impl Work for CheckpointWork {
    fn run(self: Box<Self>) -> Outcome {
        let Self {
            index,
            frozen,
            leftovers,
            extra,
            batch_max,
            removals_max,
            atomic,
        } = *self;
        let (changes, leftovers, extra) = (&*frozen, &leftovers[..], &extra[..]);
        Outcome::Checkpointed(index.commit(&Merge {
            changes,
            leftovers,
            extra,
            batch_max,
            removals_max,
            atomic,
        }))
    }
    fn name(&self) -> &'static str {
        "checkpoint"
    }
}

impl<D: Device> Store<D> {
    pub(super) fn make_jobs(&mut self, jobs: &mut Vec<Job>) {
        let mut works: Vec<Box<dyn Work>> = Vec::new();
        let generation = self.lookups.generation;
        if !self.lookups.wanted.is_empty() {
            let keys: Vec<Bytes> = std::mem::take(&mut self.lookups.wanted)
                .into_iter()
                .collect();
            self.lookups.out.extend(keys.iter().cloned());
            self.usage.index_misses += keys.len() as u64;
            works.push(Box::new(FindWork {
                index: self.index.clone(),
                generation,
                keys,
            }));
        }
        for (what, scan) in std::mem::take(&mut self.lookups.scans) {
            self.lookups.scans_out.insert(what);
            self.usage.index_misses += 1;
            works.push(Box::new(ScanWork {
                index: self.index.clone(),
                generation,
                what,
                scan,
            }));
        }
        for number in std::mem::take(&mut self.lookups.weights) {
            self.lookups.weights_out.insert(number, 0);
            self.usage.index_misses += 1;
            // Beyond the device's length the exact value does not matter any more.
            let max = self.layout.device_length;
            works.push(Box::new(WeighWork {
                index: self.index.clone(),
                number,
                max,
            }));
        }
        if let Some(work) = self.take_checkpoint() {
            works.push(Box::new(work));
        }
        for work in works {
            let id = self.lookups.next_job;
            self.lookups.next_job += 1;
            jobs.push(Job { id, work });
        }
    }

    pub(super) fn found(
        &mut self,
        generation: u64,
        keys: Vec<Bytes>,
        found: Result<Vec<Option<Bytes>>, IndexError>,
    ) {
        for key in &keys {
            self.lookups.out.remove(key);
        }
        let found = match found {
            Ok(found) => found,
            Err(error) => return self.lookup_failed(error),
        };
        if generation != self.lookups.generation {
            return; // callers that still need them ask again
        }
        self.tables.staged.turn();
        for (key, value) in keys.into_iter().zip(found) {
            let value = value.map(Value::from);
            // Memory is newer, if it has learned the key meanwhile.
            if self.tables.get(&key).is_none() {
                self.tables.cache.set(&key, value.clone());
                self.tables.staged.insert(key, value);
            }
        }
    }

    pub(super) fn scanned(
        &mut self,
        generation: u64,
        what: ScanFor,
        from: Bytes,
        found: Result<Scanned, IndexError>,
    ) {
        self.lookups.scans_out.remove(&what);
        let found = match found {
            Ok(found) => found,
            Err(error) => return self.lookup_failed(error),
        };
        if generation != self.lookups.generation {
            return;
        }
        match what {
            ScanFor::Clone(number) => drop(
                self.omaps
                    .insert(number, (!found.more).then_some(found.entries)),
            ),
            ScanFor::Fill => {
                if let Some(filling) = &mut self.filling {
                    filling.found = Some(found);
                }
            }
            ScanFor::Read(read) => self.reads.scanned(read, from, found),
        }
    }

    /// Reads cannot continue without the index any more than writes can.
    pub(super) fn lookup_failed(&mut self, error: IndexError) {
        if error == IndexError::Corrupt {
            self.fail_reads();
            return self.fail(StoreFailure::IndexCorrupt);
        }
        self.fail_index(error);
    }
}
