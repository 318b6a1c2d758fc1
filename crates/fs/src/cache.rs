//! Data of open files that this client caches: data it has read, and data not written to objects
//! yet.
//!
//! ```text
//!             fill                                             write (replaces any state)
//!               │                                                │
//!               ▼                                                ▼
//!  unknown ──▶ Clean ◀──written── Writing(run) ◀──take_dirty── Dirty
//!     ▲         │                     │ failed
//!     └─────────┴─────────────────────┘
//!      eviction, leave, drop_clean; truncate and forget from all states
//! ```
//! A file is cached in aligned blocks of `BLOCK` bytes, and a block in segments: see `block.rs`.
//!
//! A read from objects takes time, and its data may be older than what has been written, cleaned
//! and evicted meanwhile. The number `sequence` increases with each event. A mark is its value when
//! the read begins. `File::lost` is its value when the last of the evicted bytes became clean, or
//! when bytes were last dropped for another reason: data from a read with an older mark is not
//! cached.
//!
//! Two writes of the same bytes are never in flight at once: data that is overwritten while it is
//! being written is taken after that write has ended.
//!
//! Invariants ([`Cache::check`] after every step of the tests):
//! 1. A dirty byte is cached until it is written or fails, or the file is truncated or dropped.
//! 2. The cache exceeds `bytes_max` only while every block has dirty bytes.
//! 3. `lru` has exactly the blocks without dirty bytes; counts and indexes match the segments.
//! 4. Bytes being written lie within their run.

mod block;
mod divide;
mod slice;
mod writeback;

use block::{Block, Sums};
use bytes::Bytes;
use divide::{Rope, blocks, indexes, within};
use nacre_types::Ino;
use slice::Slice;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};
use writeback::Flight;
pub(crate) use writeback::RunId;

/// Whole blocks are cached without copying, and evicted as a whole.
const BLOCK_SIZE: usize = 64 << 10;

/// A part of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Data(Bytes),
    /// Must be read from objects.
    Missing {
        offset: u64,
        length: u64,
    },
}

/// The beginning of a read from objects: see the module head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(u64);

#[derive(Clone, Debug, Default)]
struct File {
    blocks: BTreeMap<u64, Block>,
    /// Blocks with dirty bytes that are not being written.
    dirty_blocks: BTreeSet<u64>,
    /// The key in `dirty_order`, if there are such blocks.
    dirty_since: u64,
    flights: BTreeMap<RunId, Flight>,
    /// Reads from objects that began before this may have outdated data.
    lost: u64,
    sums: Sums,
}

/// See the module head.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
pub(crate) struct Cache<const BLOCK: usize = BLOCK_SIZE> {
    bytes_max: usize,
    files: BTreeMap<Ino, File>,
    /// Blocks that may be evicted, by their last use.
    lru: BTreeMap<u64, (Ino, u64)>,
    /// Files with dirty bytes that are not being written, ordered by their first such byte.
    dirty_order: BTreeMap<u64, Ino>,
    /// Number of the last event.
    sequence: u64,
    /// The latest `File::lost` of files that are no longer remembered.
    removed: u64,
    runs: u64,
    sums: Sums,
}

impl<const BLOCK: usize> Cache<BLOCK> {
    /// Clean data is evicted, least recently used first, while the cache exceeds `bytes_max` (see
    /// [`Cache::bytes`]). 0: clean data is not cached; dirty data always is.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            ..Self::default()
        }
    }

    /// The parts of [offset, offset+length), in order and without gaps. Data that arrived in one
    /// piece is one part.
    pub fn read(&mut self, ino: Ino, offset: u64, length: u64) -> Vec<Part> {
        let range = offset..offset.saturating_add(length);
        let (mut at, mut parts, mut run) = (offset, Vec::new(), Slice::default());
        let end = |run: &mut Slice, parts: &mut Vec<Part>| {
            if !run.is_empty() {
                parts.push(Part::Data(std::mem::take(run).into_bytes()));
            }
        };
        let file = self.files.get_mut(&ino).filter(|_| !range.is_empty());
        for (index, block) in file
            .into_iter()
            .flat_map(|file| file.blocks.range_mut(indexes::<BLOCK>(&range)))
        {
            for (start, data) in block.read(within::<BLOCK>(*index, &range)) {
                let start = index * BLOCK as u64 + start as u64;
                if start > at {
                    end(&mut run, &mut parts);
                    parts.push(Part::Missing {
                        offset: at,
                        length: start - at,
                    });
                }
                at = start + data.len() as u64;
                if !run.join(&data) {
                    end(&mut run, &mut parts);
                    run = data;
                }
            }
            if block.used < self.sequence {
                self.sequence += 1;
                if let Some(key) = self.lru.remove(&block.used) {
                    self.lru.insert(self.sequence, key);
                }
                block.used = self.sequence;
            }
        }
        end(&mut run, &mut parts);
        if at < range.end {
            parts.push(Part::Missing {
                offset: at,
                length: range.end - at,
            });
        }
        parts
    }
    /// A read from objects begins: returns the mark for [`Cache::fill`]. The file is remembered
    /// until then, or until it is dropped.
    pub fn reading(&mut self, ino: Ino) -> Mark {
        self.file(ino);
        Mark(self.sequence)
    }
    /// Whether data read since the mark is still current.
    pub fn is_of_now(&self, ino: Ino, mark: Mark) -> bool {
        self.files.get(&ino).is_none_or(|file| mark.0 >= file.lost)
    }
    /// Caches data read from objects where nothing is cached yet, but only if it cannot be older
    /// than the state since `mark`. It may be evicted at once: a caller answers with what it has
    /// read, not from the cache.
    pub fn fill(&mut self, ino: Ino, mark: Mark, offset: u64, data: &[Bytes]) {
        if mark.0 >= self.file(ino).lost && self.bytes_max > 0 {
            let mut rope = Rope::new(data);
            for (index, at, range) in blocks::<BLOCK>(offset, data.iter().map(Bytes::len).sum()) {
                let piece = rope.take(range.len(), range.len() == BLOCK);
                let used = self.next();
                self.edit(ino, index, |block| {
                    block.used = used;
                    block.fill(at, &piece);
                });
            }
        }
        self.settle(ino);
    }

    /// A reader has passed a range and will not come back: evicts its blocks where possible.
    pub fn leave(&mut self, ino: Ino, range: Range<u64>) {
        let passed = range.start / BLOCK as u64..range.end / BLOCK as u64;
        if passed.is_empty() {
            return;
        }
        for index in self.known(ino, passed.start..=passed.end - 1) {
            self.edit(ino, index, |block| {
                if block.sums().may_be_evicted() {
                    block.carve(0..BLOCK);
                }
            });
        }
        self.tidy(ino);
    }

    /// Writes new data, which becomes dirty.
    pub fn write(&mut self, ino: Ino, offset: u64, data: &Bytes) {
        let data = Slice::from(data.clone());
        for (index, at, range) in blocks::<BLOCK>(offset, data.len()) {
            let used = self.next();
            self.edit(ino, index, |block| {
                block.used = used;
                if range.len() == BLOCK {
                    block.replace(data.slice(range));
                } else {
                    block.write(at, &data.bytes()[range]);
                }
            });
        }
        self.settle(ino);
    }
    /// The file is truncated here: nothing beyond is cached any more, including data being written.
    pub fn truncate(&mut self, ino: Ino, size: u64) {
        for index in self.known(ino, size / BLOCK as u64..=u64::MAX) {
            self.edit(ino, index, |block| {
                block.carve(within::<BLOCK>(index, &(size..u64::MAX)))
            });
        }
        self.cut(ino, size);
    }
    /// Drops clean data of a file.
    pub fn drop_clean(&mut self, ino: Ino) {
        for index in self.known(ino, 0..=u64::MAX) {
            self.edit(ino, index, |block| block.drop_clean(0..BLOCK));
        }
        self.lose(ino);
        self.settle(ino);
    }
    /// The same for a range.
    pub fn drop_clean_of(&mut self, ino: Ino, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        for index in self.known(ino, indexes::<BLOCK>(&range)) {
            self.edit(ino, index, |block| {
                block.drop_clean(within::<BLOCK>(index, &range))
            });
        }
        self.lose(ino);
        self.settle(ino);
    }
    /// Drops all data of a file. Runs in flight must still be ended.
    pub fn forget(&mut self, ino: Ino) {
        for index in self.known(ino, 0..=u64::MAX) {
            self.edit(ino, index, |block| block.carve(0..BLOCK));
        }
        self.cut(ino, 0);
    }
    fn cut(&mut self, ino: Ino, size: u64) {
        for flight in self.file(ino).flights.values_mut() {
            flight.cut |= flight.range.end > size;
        }
        self.lose(ino);
        self.settle(ino);
    }

    /// Limit above which clean data is evicted.
    pub const fn bytes_max(&self) -> u64 {
        self.bytes_max as u64
    }
    /// Bytes of a file that are dirty or being written.
    pub fn dirty_of(&self, ino: Ino) -> u64 {
        self.files
            .get(&ino)
            .map_or(0, |file| file.sums.dirty + file.sums.writing)
    }
    /// Bytes of a file that are dirty and not being written.
    pub fn untaken_of(&self, ino: Ino) -> u64 {
        self.files.get(&ino).map_or(0, |file| file.sums.dirty)
    }
    /// Bytes of all files that are dirty or being written.
    pub fn dirty(&self) -> u64 {
        self.sums.dirty + self.sums.writing
    }
    /// Files with dirty bytes that are not being written, ordered by their first such byte.
    pub fn dirty_files(&self) -> impl Iterator<Item = Ino> {
        self.dirty_order.values().copied()
    }
    /// Total size of the cache, with its overhead.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.sums.kept
    }

    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
    fn file(&mut self, ino: Ino) -> &mut File {
        self.files.entry(ino).or_insert_with(|| File {
            lost: self.removed,
            ..File::default()
        })
    }
    /// The existing blocks of a range.
    fn known(&self, ino: Ino, indexes: RangeInclusive<u64>) -> Vec<u64> {
        self.files.get(&ino).map_or(Vec::new(), |file| {
            file.blocks
                .range(indexes)
                .map(|(index, _)| *index)
                .collect()
        })
    }
    /// Changes a block and updates everything derived from it.
    fn edit(&mut self, ino: Ino, index: u64, edit: impl FnOnce(&mut Block)) {
        let file = self.files.entry(ino).or_insert_with(|| File {
            lost: self.removed,
            ..File::default()
        });
        let block = file.blocks.entry(index).or_default();
        let before = block.sums();
        if before.may_be_evicted() {
            self.lru.remove(&block.used);
        }
        edit(block);
        let after = block.sums();
        if after.kept == 0 {
            file.lost = file.lost.max(block.written);
            file.blocks.remove(&index);
        } else if after.may_be_evicted() {
            self.lru.insert(block.used, (ino, index));
        }
        match (before.dirty > 0, after.dirty > 0) {
            (false, true) => _ = file.dirty_blocks.insert(index),
            (true, false) => _ = file.dirty_blocks.remove(&index),
            _ => {}
        }
        let was_dirty = file.sums.dirty > 0;
        self.sums.change(&before, &after);
        file.sums.change(&before, &after);
        match (was_dirty, file.sums.dirty > 0) {
            (false, true) => {
                self.sequence += 1;
                file.dirty_since = self.sequence;
                self.dirty_order.insert(file.dirty_since, ino);
            }
            (true, false) => _ = self.dirty_order.remove(&file.dirty_since),
            _ => {}
        }
    }
    /// Ends each change: evicts the excess, and drops files without cached data.
    fn settle(&mut self, ino: Ino) {
        while self.sums.kept > self.bytes_max
            && let Some((_, (ino, index))) = self.lru.pop_first()
        {
            self.edit(ino, index, |block| block.carve(0..BLOCK));
            self.tidy(ino);
        }
        self.tidy(ino);
    }
    /// Data being read from objects may be older than the former state.
    fn lose(&mut self, ino: Ino) {
        let now = self.next();
        self.file(ino).lost = now;
    }
    fn tidy(&mut self, ino: Ino) {
        if let Some(file) = self.files.get(&ino)
            && file.blocks.is_empty()
            && file.flights.is_empty()
        {
            self.removed = self.removed.max(file.lost);
            self.files.remove(&ino);
        }
    }

    /// Checks the module head's invariants.
    #[cfg(test)]
    pub fn check(&self) {
        let (mut all, mut lru, mut dirty_order) =
            (Sums::default(), BTreeMap::new(), BTreeMap::new());
        for (ino, file) in &self.files {
            let mut of_file = Sums::default();
            for (index, block) in &file.blocks {
                block.check::<BLOCK>();
                let sums = block.sums();
                of_file.change(&Sums::default(), &sums);
                assert!(sums.kept > 0, "a block without anything is kept");
                assert_eq!(file.dirty_blocks.contains(index), sums.dirty > 0);
                if sums.may_be_evicted() {
                    assert_eq!(lru.insert(block.used, (*ino, *index)), None);
                }
                for (run, range) in block.writing() {
                    let flight = &file
                        .flights
                        .get(&run)
                        .expect("bytes are written without a run")
                        .range;
                    let whole = index * BLOCK as u64..(index + 1) * BLOCK as u64;
                    assert!(
                        whole.start < flight.end && flight.start < whole.end,
                        "{whole:?} {flight:?}"
                    );
                    let inside = within::<BLOCK>(*index, flight);
                    assert!(
                        inside.start <= range.start && range.end <= inside.end,
                        "{range:?} of {flight:?}"
                    );
                }
            }
            assert!(
                file.dirty_blocks
                    .iter()
                    .all(|index| file.blocks.contains_key(index))
            );
            assert_eq!(file.sums, of_file);
            assert!(file.lost <= self.sequence);
            all.change(&Sums::default(), &of_file);
            if of_file.dirty > 0 {
                dirty_order.insert(file.dirty_since, *ino);
            }
        }
        assert_eq!(
            (&self.sums, &self.lru, &self.dirty_order),
            (&all, &lru, &dirty_order)
        );
        assert!(
            self.sums.kept <= self.bytes_max || self.lru.is_empty(),
            "more is kept than may be"
        );
    }
}

#[cfg(test)]
#[path = "cache_test.rs"]
mod tests;
