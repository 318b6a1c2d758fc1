//! A block of a file's data: segments with their states and bytes.
//!
//! ```text
//!  0                                                  BLOCK
//!  │   Clean   │ Dirty │ Writing(7) │   unknown  │ Dirty │
//! ```
//! A segment's bytes are a slice of a buffer. A write goes into the buffer of the dirty segment
//! that it begins in or follows, in place if nothing else refers to that buffer: a file that is
//! written in small parts has one segment per block, whose buffer doubles as it grows. Otherwise
//! the write gets its own segment. It never goes into bytes that are being written.
//!
//! Invariants ([`Block::check`]): segments are ordered and disjoint, none is empty or ends beyond
//! the block, and each has at least a [`HELD_MAX`]th of the buffer that it keeps alive.

use super::RunId;
use super::slice::Slice;
use bytes::{Bytes, BytesMut};
use std::ops::Range;

/// Approximate overhead of a segment: the segment itself, its buffer's reference count, and its
/// share of the block.
pub(super) const SEGMENT_COST: usize = 128;
/// Above this number, adjacent segments of equal state in a block are merged by copying.
const SEGMENTS_MAX: usize = 8;
/// A segment may keep alive a buffer of this many times its own size.
const HELD_MAX: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The same as in objects.
    Clean,
    /// To be written: waits for [`Block::take`].
    Dirty,
    /// Waits for [`Block::end_run`].
    Writing(RunId),
}

#[derive(Clone, Debug)]
struct Segment {
    /// Offset in the block.
    at: usize,
    data: Slice,
    /// Size of the buffer that `data` is a slice of, as far as known.
    held: usize,
    state: State,
}

impl Segment {
    fn end(&self) -> usize {
        self.at + self.data.len()
    }
    /// A slice of a segment. A small one does not keep the buffer alive.
    fn part(&self, range: Range<usize>) -> Option<Self> {
        if range.is_empty() {
            return None;
        }
        let data = self.data.slice(range.start - self.at..range.end - self.at);
        let part = Self {
            at: range.start,
            data,
            ..*self
        };
        Some(if part.is_small() { part.copied() } else { part })
    }
    fn is_small(&self) -> bool {
        self.data.len() * HELD_MAX < self.held
    }
    fn copied(self) -> Self {
        Self {
            data: Bytes::copy_from_slice(self.data.bytes()).into(),
            held: self.data.len(),
            ..self
        }
    }
    /// Writes into a segment, or directly after it.
    fn write(&mut self, at: usize, data: &[u8]) {
        let at = at - self.at;
        let mut buffer = std::mem::take(&mut self.data)
            .into_bytes()
            .try_into_mut()
            .unwrap_or_else(|shared| {
                let mut buffer = BytesMut::with_capacity(shared.len().max(at + data.len()));
                buffer.extend_from_slice(&shared);
                self.held = 0;
                buffer
            });
        let (over, behind) = data.split_at(data.len().min(buffer.len() - at));
        buffer[at..at + over.len()].copy_from_slice(over);
        buffer.extend_from_slice(behind);
        self.held = self.held.max(buffer.len());
        self.data = buffer.freeze().into();
    }
}

/// See the module head.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    segments: Vec<Segment>,
    /// Number of the event that last used it.
    pub used: u64,
    /// Number of the event by which some of it last became clean after a write; 0: never.
    pub written: u64,
}

impl Block {
    /// The cached parts of a range, with their offsets in the block.
    pub fn read(&self, range: Range<usize>) -> impl Iterator<Item = (usize, Slice)> {
        self.segments[self.overlapping(&range)]
            .iter()
            .map(move |segment| {
                let (from, to) = (segment.at.max(range.start), segment.end().min(range.end));
                (from, segment.data.slice(from - segment.at..to - segment.at))
            })
    }
    /// Adds clean data where nothing is cached.
    pub fn fill(&mut self, at: usize, data: &Slice) {
        let whole = Segment {
            at,
            data: data.clone(),
            held: data.len(),
            state: State::Clean,
        };
        let mut next = self.overlapping(&(at..whole.end())).start;
        let mut from = at;
        while from < whole.end() {
            let gap = from..self
                .segments
                .get(next)
                .map_or(whole.end(), |segment| segment.at.min(whole.end()));
            if let Some(part) = whole.part(gap) {
                self.segments.insert(next, part);
                next += 1;
            }
            from = self.segments.get(next).map_or(whole.end(), Segment::end);
            next += 1;
        }
        self.join();
    }
    /// Replaces the whole block with new data.
    pub fn replace(&mut self, data: Slice) {
        self.segments.clear();
        self.segments.push(Segment {
            at: 0,
            held: data.len(),
            data,
            state: State::Dirty,
        });
    }
    /// Writes new data.
    pub fn write(&mut self, at: usize, data: &[u8]) {
        let end = at + data.len();
        let near = self.segments.partition_point(|segment| segment.end() < at);
        let takes_it = |segment: &Segment| {
            segment.state == State::Dirty && (segment.at..=segment.end()).contains(&at)
        };
        match (near..self.segments.len().min(near + 2))
            .find(|index| takes_it(&self.segments[*index]))
        {
            Some(index) => {
                self.carve(self.segments[index].end()..end);
                self.segments[index].write(at, data);
            }
            None => {
                self.carve(at..end);
                let index = self.segments.partition_point(|segment| segment.at < at);
                let (held, data) = (data.len(), Bytes::copy_from_slice(data).into());
                self.segments.insert(
                    index,
                    Segment {
                        at,
                        data,
                        held,
                        state: State::Dirty,
                    },
                );
            }
        }
        self.join();
    }
    /// Takes dirty data within a range; it is being written if `run` names the run.
    pub fn take(
        &mut self,
        range: Range<usize>,
        mut run: impl FnMut(usize, &Slice) -> Option<RunId>,
    ) {
        self.split(range.start);
        self.split(range.end);
        let overlapping = self.overlapping(&range);
        for segment in self.segments[overlapping]
            .iter_mut()
            .filter(|segment| segment.state == State::Dirty)
        {
            if let Some(run) = run(segment.at, &segment.data) {
                segment.state = State::Writing(run);
            }
        }
    }
    /// Ends a run: its data is clean since this event, or dropped.
    pub fn end_run(&mut self, run: RunId, clean: Option<u64>) {
        let is_it = |segment: &Segment| segment.state == State::Writing(run);
        match clean {
            Some(now) => {
                for segment in self.segments.iter_mut().filter(|segment| is_it(segment)) {
                    segment.state = State::Clean;
                    self.written = now;
                }
                self.join();
            }
            None => self.segments.retain(|segment| !is_it(segment)),
        }
    }
    /// Drops a range.
    pub fn carve(&mut self, range: Range<usize>) {
        let overlapping = self.overlapping(&range);
        if overlapping.is_empty() {
            return;
        }
        let (first, last) = (
            &self.segments[overlapping.start],
            &self.segments[overlapping.end - 1],
        );
        let parts = [
            first.part(first.at..range.start),
            last.part(range.end..last.end()),
        ];
        self.segments
            .splice(overlapping, parts.into_iter().flatten());
    }
    /// Drops the clean data of a range.
    pub fn drop_clean(&mut self, range: Range<usize>) {
        let clean = self.segments[self.overlapping(&range)]
            .iter()
            .filter(|segment| segment.state == State::Clean);
        let clean: Vec<_> = clean
            .map(|segment| segment.at.max(range.start)..segment.end().min(range.end))
            .collect();
        for range in clean {
            self.carve(range);
        }
    }

    /// Indexes of the segments that overlap a range.
    fn overlapping(&self, range: &Range<usize>) -> Range<usize> {
        let from = self
            .segments
            .partition_point(|segment| segment.end() <= range.start);
        let count = self.segments[from..].partition_point(|segment| segment.at < range.end);
        if range.is_empty() {
            from..from
        } else {
            from..from + count
        }
    }
    /// Splits a dirty segment that has bytes on both sides.
    fn split(&mut self, at: usize) {
        let index = self.segments.partition_point(|segment| segment.end() <= at);
        if let Some(segment) = self
            .segments
            .get(index)
            .filter(|it| it.state == State::Dirty && it.at < at)
        {
            let parts = [
                segment.part(segment.at..at),
                segment.part(at..segment.end()),
            ];
            self.segments
                .splice(index..=index, parts.into_iter().flatten());
        }
    }
    /// Merges adjacent segments of equal state, if there are many.
    fn join(&mut self) {
        if self.segments.len() <= SEGMENTS_MAX {
            return;
        }
        self.segments.dedup_by(|right, left| {
            let joins = left.end() == right.at && left.state == right.state;
            if joins {
                left.write(right.at, right.data.bytes());
            }
            joins
        });
    }

    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for Segment { data, state, .. } in &self.segments {
            sums.kept += data.len() + SEGMENT_COST;
            match state {
                State::Clean => {}
                State::Dirty => sums.dirty += data.len() as u64,
                State::Writing(_) => sums.writing += data.len() as u64,
            }
        }
        sums
    }
    /// The data being written, by run.
    #[cfg(test)]
    pub fn writing(&self) -> impl Iterator<Item = (RunId, Range<usize>)> {
        self.segments
            .iter()
            .filter_map(|segment| match segment.state {
                State::Writing(run) => Some((run, segment.at..segment.end())),
                _ => None,
            })
    }
    #[cfg(test)]
    pub fn segments(&self) -> usize {
        self.segments.len()
    }
    /// Checks the module head's invariants.
    #[cfg(test)]
    pub fn check<const BLOCK: usize>(&self) {
        assert!(
            self.segments.is_sorted_by(|a, b| a.end() <= b.at),
            "{self:?}"
        );
        assert!(
            self.segments
                .iter()
                .all(|it| !it.data.is_empty() && it.end() <= BLOCK && !it.is_small()),
            "{self:?}"
        );
    }
}

/// Sizes of a block, of a file, or of the whole cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Cached bytes, with the overhead.
    pub kept: usize,
    /// Dirty bytes that are not being written.
    pub dirty: u64,
    pub writing: u64,
}

impl Sums {
    /// Whether this block is not empty and entirely clean.
    pub const fn may_be_evicted(&self) -> bool {
        self.kept > 0 && self.dirty == 0 && self.writing == 0
    }
    /// Updates the sum after a part of it has changed.
    pub const fn change(&mut self, before: &Self, after: &Self) {
        self.kept = self.kept - before.kept + after.kept;
        self.dirty = self.dirty - before.dirty + after.dirty;
        self.writing = self.writing - before.writing + after.writing;
    }
}
