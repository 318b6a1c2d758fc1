//! A device for tests and the simulator that distinguishes live bytes from durable ones.
//!
//! ```text
//!  submit ──▶ in flight ──complete──▶ live ──a flush submitted after that──▶ durable
//!                 │         (a commit)────────────────────────────────────────▶ durable
//!                 └─────────────────────┴── after a power cut: there, torn by sectors, or not
//! ```
//! It implements exactly the contract of [`crate::device`], and records every step, so that one run
//! of a workload yields every possible power cut in it: [`PowerCuts`].
#![expect(
    clippy::disallowed_types,
    reason = "one device has two faces, one of them on other threads"
)]

use crate::device::{BlockingDevice, Device, DeviceError, Io, IoDone, IoKind, Run};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

const PAGE: usize = 4096;
/// The number of blocks remembered for tests that corrupt one.
const BLOCKS_KEPT: usize = 256;
/// The size of the writes that a device never tears.
pub const SECTOR: usize = 512;

type Page = Arc<[u8; PAGE]>;

/// Bytes by page; absent pages are zeros. Clones share pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    pages: BTreeMap<u64, Page>,
}

impl Image {
    /// Fills `out` from `offset`.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        let mut done = 0;
        while done < out.len() {
            let at = offset + done as u64;
            let (page, start) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let count = (PAGE - start).min(out.len() - done);
            match self.pages.get(&page) {
                Some(bytes) => {
                    out[done..done + count].copy_from_slice(&bytes[start..start + count])
                }
                None => out[done..done + count].fill(0),
            }
            done += count;
        }
    }

    /// The offsets of pages that were ever written, in order.
    pub fn written(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages.keys().map(|page| page * PAGE as u64)
    }

    /// Writes `data` at `offset`.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (page, start) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let count = (PAGE - start).min(data.len() - done);
            let bytes = Arc::make_mut(
                self.pages
                    .entry(page)
                    .or_insert_with(|| Arc::new([0; PAGE])),
            );
            bytes[start..start + count].copy_from_slice(&data[done..done + count]);
            done += count;
        }
    }
}

/// One step in the history of a device.
#[derive(Clone, Debug)]
pub enum Step {
    /// A write begins: from here on, parts of it may be on the medium.
    Write {
        /// Numbers writes and flushes.
        id: u64,
        /// First byte.
        offset: u64,
        /// The data.
        data: Bytes,
    },
    /// The write is complete: a flush that begins later covers it.
    Written(u64),
    /// A flush begins.
    Flush(u64),
    /// Everything that was complete when it began is durable.
    Flushed(u64),
    /// A commit with these writes has ended: they are complete and durable.
    Committed(Range<u64>),
    /// A mark set by the test.
    Mark(u64),
}

/// When operations of the asynchronous interface complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// All at the next poll, in order.
    AtOnce,
    /// Some at every poll, in any order; the number is the seed.
    Shuffled(u64),
    /// Each at its own time: most soon, some after so many polls that all operations begun
    /// meanwhile have ended; the number is the seed.
    Uneven(u64),
    /// Only when [`TestDevice::complete`] is called: the simulator's clock decides.
    Held,
}

#[derive(Debug)]
struct State {
    length: u64,
    live: Image,
    steps: Option<Vec<Step>>,
    next: u64,
    in_flight: Vec<(Io, u64)>,
    /// The number of polls that each operation still waits, by its number; for
    /// [`Completion::Uneven`].
    patience: BTreeMap<u64, u32>,
    /// Completed, not polled yet.
    completed: Vec<IoDone>,
    completion: Completion,
    unreadable: BTreeSet<u64>,
    /// The number of writes or flushes until one fails.
    fuse: Option<u64>,
    /// Only that one fails.
    once: bool,
    /// The number that have failed.
    failures: u64,
    /// Discards fail.
    keeps_space: bool,
    /// The offsets of the last written blocks of objects that were not overwritten by anything
    /// else.
    blocks: VecDeque<u64>,
    /// Bytes discarded.
    discarded: u64,
    /// The contents of the medium, and whether a failed flush made the cache in front of it differ.
    /// See [`TestDevice::cache_writes`].
    medium: Option<(Image, bool)>,
}

impl State {
    fn step(&mut self, step: Step) {
        if let Some(steps) = &mut self.steps {
            steps.push(step);
        }
    }
    fn check(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        match offset.checked_add(length) {
            Some(end) if end <= self.length => Ok(()),
            _ => Err(DeviceError::OutOfRange {
                offset,
                length,
                device: self.length,
            }),
        }
    }
    fn flushed(&mut self) -> Result<(), DeviceError> {
        let burnt = self.burn();
        if let Some((medium, lost)) = &mut self.medium {
            match burnt {
                Ok(()) if !*lost => *medium = self.live.clone(),
                // Dirty pages count as clean from now on: later flushes do not write them.
                _ => *lost = true,
            }
        }
        burnt
    }
    fn burn(&mut self) -> Result<(), DeviceError> {
        match &mut self.fuse {
            Some(0) => {
                self.failures += 1;
                if self.once {
                    self.fuse = None;
                }
                Err(DeviceError::Os(5))
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
    /// This range contains no blocks of objects any more.
    fn forget_blocks(&mut self, offset: u64, length: u64) {
        self.blocks
            .retain(|at| !(offset..offset + length).contains(at));
    }
    fn begin(&mut self, step: impl FnOnce(u64) -> Step) -> u64 {
        let id = self.next;
        self.next += 1;
        self.step(step(id));
        id
    }
    /// Performs one operation in flight.
    fn complete(&mut self, at: usize) -> IoDone {
        let (io, id) = self.in_flight.remove(at);
        let result = match io.kind {
            IoKind::Read { offset, length } => {
                let mut out = vec![0; length];
                self.read(offset, &mut out).map(|()| Bytes::from(out))
            }
            IoKind::Write { offset, data } => self.write(offset, &data.concat()).map(|()| {
                self.step(Step::Written(id));
                Bytes::new()
            }),
            IoKind::Commit { writes } => self.commit(&writes).map(|()| {
                self.step(Step::Committed(id..id + writes.len() as u64));
                Bytes::new()
            }),
            IoKind::Flush => self.flushed().map(|()| {
                self.step(Step::Flushed(id));
                Bytes::new()
            }),
            IoKind::Discard { .. } if self.keeps_space => Err(DeviceError::Os(95)),
            IoKind::Discard { offset, length } => self.check(offset, length).map(|()| {
                self.live.write(offset, &discarded(length));
                self.discarded += length;
                self.step(Step::Written(id));
                Bytes::new()
            }),
        };
        IoDone { id: io.id, result }
    }
    /// Performs the operations that are due.
    fn complete_due(&mut self, done: &mut Vec<IoDone>) {
        let Completion::Uneven(seed) = &mut self.completion else {
            return;
        };
        for (io, _) in &self.in_flight {
            self.patience.entry(io.id.0).or_insert_with(|| {
                *seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                [0, 0, 0, 1, 1, 2, 4, 9, 25, 60][(*seed >> 33) as usize % 10]
            });
        }
        let mut at = 0;
        while at < self.in_flight.len() {
            let id = self.in_flight[at].0.id.0;
            match self.patience.get_mut(&id) {
                Some(left) if *left > 0 => {
                    *left -= 1;
                    at += 1;
                }
                _ => {
                    self.patience.remove(&id);
                    let finished = self.complete(at);
                    done.push(finished);
                }
            }
        }
    }
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.check(offset, data.len() as u64)?;
        self.burn()?;
        self.live.write(offset, data);
        // A rewritten sector can be read again: the disk remaps it.
        self.unreadable.retain(|page| {
            let start = page * PAGE as u64;
            start < offset || start >= offset + data.len() as u64
        });
        Ok(())
    }
    /// It may fail at any of its writes, and at their flush.
    fn commit(&mut self, writes: &[Run]) -> Result<(), DeviceError> {
        for run in writes {
            self.write(run.offset, &run.data.concat())?;
        }
        let burnt = self.burn();
        if let Some((medium, lost)) = &mut self.medium {
            match burnt {
                Ok(()) if !*lost => {
                    for run in writes {
                        medium.write(run.offset, &run.data.concat());
                    }
                }
                _ => *lost = true,
            }
        }
        burnt
    }
    /// A write of the asynchronous interface begins; returns its number.
    fn begin_write(&mut self, offset: u64, data: &[Bytes]) -> u64 {
        let data = Bytes::from(data.concat());
        assert!(
            offset.is_multiple_of(PAGE as u64) && data.len().is_multiple_of(PAGE),
            "writes are whole pages"
        );
        // Objects and log use this interface, the index the blocking one.
        self.blocks
            .extend((offset..offset + data.len() as u64).step_by(PAGE));
        let excess = self.blocks.len().saturating_sub(BLOCKS_KEPT);
        self.blocks.drain(..excess);
        self.begin(|id| Step::Write { id, offset, data })
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        self.check(offset, out.len() as u64)?;
        let pages = offset / PAGE as u64..(offset + out.len() as u64).div_ceil(PAGE as u64);
        if self.unreadable.range(pages).next().is_some() {
            return Err(DeviceError::Os(5));
        }
        self.live.read(offset, out);
        Ok(())
    }
}

/// The contents of a discarded range: anything but the former contents, or zeros.
fn discarded(length: u64) -> Bytes {
    Bytes::from(vec![0xd5; length as usize])
}

/// The device. Clones are the same device, with both interfaces.
#[derive(Clone, Debug)]
pub struct TestDevice {
    state: Arc<Mutex<State>>,
}

impl TestDevice {
    /// A device of `length` bytes of zeros.
    #[must_use]
    pub fn new(length: u64) -> Self {
        Self::with_image(length, Image::default())
    }

    /// A device that holds `image`, durably.
    #[must_use]
    pub fn with_image(length: u64, image: Image) -> Self {
        let state = State {
            length,
            live: image,
            steps: None,
            next: 0,
            in_flight: Vec::new(),
            patience: BTreeMap::new(),
            completed: Vec::new(),
            completion: Completion::AtOnce,
            unreadable: BTreeSet::new(),
            fuse: None,
            once: false,
            failures: 0,
            keeps_space: false,
            blocks: VecDeque::new(),
            discarded: 0,
            medium: None,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The blocking interface.
    #[must_use]
    pub fn blocking(&self) -> Arc<dyn BlockingDevice> {
        Arc::new(self.clone())
    }
    /// From now on, operations complete this way.
    pub fn set_completion(&self, completion: Completion) {
        self.lock().completion = completion;
    }
    /// Starts recording, with everything so far durable. Returns that state.
    #[must_use]
    pub fn record(&self) -> Image {
        let mut state = self.lock();
        state.steps = Some(Vec::new());
        state.live.clone()
    }
    /// Ends recording.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        self.lock().steps.take().unwrap_or_default()
    }
    /// The steps since the last call; recording continues.
    #[must_use]
    pub fn take_steps(&self) -> Vec<Step> {
        self.lock()
            .steps
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }
    /// The number of operations of the asynchronous interface in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.lock().in_flight.len()
    }
    /// Performs one operation in flight, by its index; the next poll returns it.
    pub fn complete(&self, at: usize) {
        let mut state = self.lock();
        let done = state.complete(at);
        state.completed.push(done);
    }
    /// Sets a mark among the steps.
    pub fn mark(&self, mark: u64) {
        self.lock().step(Step::Mark(mark));
    }
    /// The bytes that reads return now.
    #[must_use]
    pub fn live(&self) -> Image {
        self.lock().live.clone()
    }
    /// Flips bits of one byte, like bit rot.
    pub fn rot(&self, offset: u64, bits: u8) {
        let mut byte = [0];
        let mut state = self.lock();
        state.live.read(offset, &mut byte);
        state.live.write(offset, &[byte[0] ^ bits]);
    }
    /// Overwrites bytes, like a misdirected write.
    pub fn overwrite(&self, offset: u64, bytes: &[u8]) {
        self.lock().live.write(offset, bytes);
    }
    /// The offsets of the last written blocks of objects, in the store's data area behind a log of
    /// `wal_bytes`; without those where a page of the index was written since, or whose space was
    /// discarded.
    #[must_use]
    pub fn data_blocks(&self, wal_bytes: u64) -> Vec<u64> {
        let first = 2 * crate::format::root::SLOT + wal_bytes;
        self.lock()
            .blocks
            .iter()
            .copied()
            .filter(|offset| *offset >= first)
            .collect()
    }
    /// Makes reads of the page at `offset` fail, like a bad sector.
    pub fn make_unreadable(&self, offset: u64) {
        self.lock().unreadable.insert(offset / PAGE as u64);
    }
    /// From now on there is a cache in front of the medium: data that a flush failed to write stays
    /// readable, and is not on the medium, as on Linux after a failed `fsync`.
    pub fn cache_writes(&self) {
        let mut state = self.lock();
        state.medium = Some((state.live.clone(), false));
    }
    /// Writes and flushes succeed again.
    pub fn mend(&self) {
        self.lock().fuse = None;
    }
    /// Bytes discarded so far.
    #[must_use]
    pub fn discarded(&self) -> u64 {
        self.lock().discarded
    }
    /// Makes every write and flush fail after `count` more were accepted.
    pub fn fail_after(&self, count: u64) {
        let mut state = self.lock();
        (state.fuse, state.once) = (Some(count), false);
    }
    /// Makes one write or flush fail after `count` more were accepted, and later ones succeed.
    pub fn fail_once_after(&self, count: u64) {
        let mut state = self.lock();
        (state.fuse, state.once) = (Some(count), true);
    }
    /// The number of writes and flushes that have failed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.lock().failures
    }
    /// From now on discards fail: a device that reclaims no space.
    pub fn keep_space(&self) {
        self.lock().keeps_space = true;
    }
}

impl Device for TestDevice {
    fn submit(&mut self, io: Io) {
        let mut state = self.lock();
        let id = match &io.kind {
            IoKind::Read { .. } => 0,
            IoKind::Write { offset, data } => state.begin_write(*offset, data),
            IoKind::Commit { writes } => {
                let first = state.next;
                for run in writes {
                    state.begin_write(run.offset, &run.data);
                }
                first
            }
            IoKind::Flush => state.begin(Step::Flush),
            IoKind::Discard { offset, length } => {
                assert!(
                    offset % PAGE as u64 == 0 && length % PAGE as u64 == 0,
                    "whole pages are discarded"
                );
                state.forget_blocks(*offset, *length);
                let (offset, data) = (*offset, discarded(*length));
                state.begin(|id| Step::Write { id, offset, data })
            }
        };
        state.in_flight.push((io, id));
    }

    fn poll(&mut self, done: &mut Vec<IoDone>) {
        let mut state = self.lock();
        done.append(&mut state.completed);
        if let Completion::Uneven(_) = state.completion {
            return state.complete_due(done);
        }
        let mut left = match state.completion {
            Completion::AtOnce => usize::MAX,
            Completion::Shuffled(_) => state.in_flight.len().div_ceil(2),
            Completion::Held | Completion::Uneven(_) => 0,
        };
        while left > 0 && !state.in_flight.is_empty() {
            left -= 1;
            let at = match &mut state.completion {
                Completion::AtOnce | Completion::Held | Completion::Uneven(_) => 0,
                Completion::Shuffled(seed) => {
                    // A linear congruential generator is sufficient to shuffle a handful.
                    *seed = seed
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let (seed, count) = (*seed >> 33, state.in_flight.len() as u64);
                    if seed % (count + 1) == count {
                        break;
                    }
                    (seed % (count + 1)) as usize
                }
            };
            let finished = state.complete(at);
            done.push(finished);
        }
    }

    fn length(&self) -> u64 {
        self.lock().length
    }
}

impl BlockingDevice for TestDevice {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        self.lock().read(offset, out)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let mut state = self.lock();
        state.check(offset, data.len() as u64)?;
        state.burn()?;
        state.forget_blocks(offset, data.len() as u64);
        if state.steps.is_some() {
            let data = Bytes::copy_from_slice(data);
            let id = state.begin(|id| Step::Write { id, offset, data });
            state.step(Step::Written(id));
        }
        state.live.write(offset, data);
        Ok(())
    }
    fn flush(&self) -> Result<(), DeviceError> {
        let mut state = self.lock();
        state.flushed()?;
        let id = state.begin(Step::Flush);
        state.step(Step::Flushed(id));
        Ok(())
    }
    fn forget_cached(&self) -> Result<(), DeviceError> {
        let mut state = self.lock();
        if let Some((medium, lost @ true)) = &mut state.medium {
            *lost = false;
            let medium = medium.clone();
            state.live = medium;
        }
        Ok(())
    }
    fn length(&self) -> u64 {
        self.lock().length
    }
}

/// Walks a recording and determines, at each step, the possible results of a power cut.
pub struct PowerCuts {
    durable: Image,
    /// Writes begun and not durable, in order; and whether each is complete.
    loose: Vec<(u64, u64, Bytes, bool)>,
    /// Flushes in progress, and the writes that they cover.
    flushes: BTreeMap<u64, BTreeSet<u64>>,
}

impl PowerCuts {
    /// Before the first step, only `durable` exists.
    #[must_use]
    pub fn new(durable: Image) -> Self {
        Self {
            durable,
            loose: Vec::new(),
            flushes: BTreeMap::new(),
        }
    }

    /// Takes the next step. Returns whether it changed the possible results of a power cut.
    pub fn step(&mut self, step: &Step) -> bool {
        match step {
            Step::Write { id, offset, data } => {
                self.loose.push((*id, *offset, data.clone(), false))
            }
            Step::Written(id) => {
                self.loose
                    .iter_mut()
                    .filter(|w| w.0 == *id)
                    .for_each(|w| w.3 = true);
                return false;
            }
            Step::Flush(id) => {
                self.flushes.insert(
                    *id,
                    self.loose.iter().filter(|w| w.3).map(|w| w.0).collect(),
                );
                return false;
            }
            Step::Flushed(id) => {
                let covered = self.flushes.remove(id).unwrap_or_default();
                for (_, offset, data, _) in self.loose.extract_if(.., |w| covered.contains(&w.0)) {
                    self.durable.write(offset, &data);
                }
            }
            Step::Committed(ids) => {
                let committed: Vec<_> = self.loose.extract_if(.., |w| ids.contains(&w.0)).collect();
                for (_, offset, data, _) in committed {
                    self.supersede(offset, data.len() as u64);
                    self.durable.write(offset, &data);
                }
            }
            Step::Mark(_) => return false,
        }
        true
    }

    /// What completed writes have put there is overwritten, durably.
    fn supersede(&mut self, offset: u64, length: u64) {
        let end = offset + length;
        for (id, at, data, written) in std::mem::take(&mut self.loose) {
            let before = offset.saturating_sub(at).min(data.len() as u64) as usize;
            let behind = end.saturating_sub(at).min(data.len() as u64) as usize;
            if before == behind {
                self.loose.push((id, at, data, written));
                continue;
            }
            assert!(written, "a commit of a range to which a write is in flight");
            for part in [0..before, behind..data.len()] {
                if !part.is_empty() {
                    let start = at + part.start as u64;
                    self.loose.push((id, start, data.slice(part), true));
                }
            }
        }
    }

    /// Replaces durable bytes.
    pub fn overwrite(&mut self, offset: u64, bytes: &[u8]) {
        self.durable.write(offset, bytes);
    }
    /// Whether a loose write is complete: the death of the process alone does not lose it.
    #[must_use]
    pub fn is_written(&self, at: usize) -> bool {
        self.loose[at].3
    }
    /// The number of writes that a cut now could lose.
    #[must_use]
    pub fn loose(&self) -> usize {
        self.loose.len()
    }

    /// The medium after a cut now. `keep` determines for each loose write, in order, which of its
    /// sectors survive.
    pub fn image(&self, mut keep: impl FnMut(usize, usize) -> bool) -> Image {
        let mut image = self.durable.clone();
        for (at, (_, offset, data, _)) in self.loose.iter().enumerate() {
            for (sector, bytes) in data.chunks(SECTOR).enumerate() {
                if keep(at, sector) {
                    image.write(offset + (sector * SECTOR) as u64, bytes);
                }
            }
        }
        image
    }
}
