//! redb's storage on our device: a sparse, growing, checksummed address space made of chunks.
//!
//! ```text
//!  redb's bytes   │ block 0 │ block 1 … block n │ block n+1 … │        redb doubles its length; a chunk gets its units
//!                     │           │                  │              only when something is first written to it
//!                 superblock   chunk a            chunk b             (in pieces if need be: `place`)
//!                              ├ checksums ┬ blocks ┤
//! ```
//! redb does not verify its pages when it reads them. Here every block has a CRC32C in the first
//! blocks of its chunk, checked on every read. redb reads no page that it has not written, so a
//! checksum of 0, *never written*, is an error too: a zeroed block of checksums must not be
//! trusted.
//!
//! Why a power cut cannot separate a block from its checksum: redb never overwrites a block that
//! its last commit uses, with one exception, block 0, which therefore lives in the superblock and
//! is replaced atomically at `sync_data`. The checksums of all other live blocks are the same in
//! the old and the new version of their checksum block, so even a torn write of it keeps them.

use super::IndexError;
use super::place::Place;
use super::space::Space;
use crate::device::{BlockingDevice, DeviceError};
use crate::format::checksum::crc32c_always;
use crate::format::root::{CHUNKS_MAX, NO_CHUNK, Root};
use crate::format::{BLOCK, BLOCK_U64};
use redb::StorageBackend;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

/// Checksums in one block.
const SUMS: u64 = (BLOCK / 4) as u64;
/// The number of checksums kept in memory: chunks' tables beyond this are dropped once they are on
/// the device.
const SUMS_MEMORY_MAX: usize = 1 << 20;

/// A chunk's checksums; 0 marks a block that was never written.
#[derive(Debug)]
struct Sums {
    crcs: Vec<u32>,
    dirty: bool,
}

#[derive(Debug)]
struct State {
    device: Arc<dyn BlockingDevice>,
    root: Root,
    root_dirty: bool,
    written: bool,
    sums: BTreeMap<u32, Sums>,
    /// The places of the chunks that have one.
    places: BTreeMap<u32, Place>,
    /// The space that places for new chunks are taken from.
    space: Space,
    /// Places of chunks that were cut off, until that is durable.
    released: Vec<Place>,
    /// For the offline check: blocks by place that were "written" without touching the device.
    overlay: Option<BTreeMap<u64, Box<[u8; BLOCK]>>>,
    /// The first error: redb reports some errors as panics or other errors.
    failure: Option<IndexError>,
    bad_block: Option<u64>,
}

/// The storage; see the module head. Clones share one state.
#[derive(Clone, Debug)]
pub(crate) struct Backend {
    state: Arc<Mutex<State>>,
}

impl State {
    fn read_device(&self, block: u64, out: &mut [u8]) -> Result<(), IndexError> {
        let Some(overlay) = &self.overlay else {
            return self
                .device
                .read_at(block * BLOCK_U64, out)
                .map_err(IndexError::Device);
        };
        for (at, out) in (block..).zip(out.chunks_exact_mut(BLOCK)) {
            match overlay.get(&at) {
                Some(content) => out.copy_from_slice(&content[..]),
                None => self
                    .device
                    .read_at(at * BLOCK_U64, out)
                    .map_err(IndexError::Device)?,
            }
        }
        Ok(())
    }

    fn write_device(&mut self, block: u64, data: &[u8]) -> Result<(), IndexError> {
        match &mut self.overlay {
            Some(overlay) => {
                for (i, content) in data.chunks_exact(BLOCK).enumerate() {
                    overlay.insert(
                        block + i as u64,
                        Box::new(content.try_into().expect("a block")),
                    );
                }
            }
            None => self
                .device
                .write_at(block * BLOCK_U64, data)
                .map_err(IndexError::Device)?,
        }
        self.written = true;
        Ok(())
    }

    /// Blocks of checksums at the front of a chunk, and blocks of content after them.
    fn chunk_shape(&self) -> (u64, u64) {
        let units = self.root.layout.chunk_units();
        let sums = units.div_ceil(SUMS + 1);
        (sums, units - sums)
    }

    /// The chunk and the position in it of one of redb's blocks (not 0).
    fn locate(&self, block: u64) -> (u32, usize) {
        let (_, content) = self.chunk_shape();
        (
            ((block - 1) / content) as u32,
            ((block - 1) % content) as usize,
        )
    }

    /// Reads a chunk, from unit `at` on.
    fn read_chunk(&self, chunk: u32, at: u64, out: &mut [u8]) -> Result<(), IndexError> {
        let place = self.places.get(&chunk).ok_or(IndexError::Corrupt)?;
        for (at, out) in (at..).zip(out.chunks_exact_mut(BLOCK)) {
            self.read_device(place.unit(at), out)?;
        }
        Ok(())
    }

    /// Writes to a chunk, from unit `at` on.
    fn write_chunk(&mut self, chunk: u32, at: u64, data: &[u8]) -> Result<(), IndexError> {
        for (at, data) in (at..).zip(data.chunks_exact(BLOCK)) {
            let unit = self.places.get(&chunk).ok_or(IndexError::Corrupt)?.unit(at);
            self.write_device(unit, data)?;
        }
        Ok(())
    }

    /// Allocates a chunk's place.
    fn place(&mut self, chunk: u32) -> Result<(), IndexError> {
        if chunk as usize >= CHUNKS_MAX {
            return Err(IndexError::Full);
        }
        let place = Place::take(&mut self.space.lock(), self.root.layout.chunk_units())
            .ok_or(IndexError::Full)?;
        for (unit, list) in place.list() {
            self.write_device(unit, &list)?;
        }
        if self.root.chunks.len() <= chunk as usize {
            self.root.chunks.resize(chunk as usize + 1, NO_CHUNK);
        }
        self.root.chunks[chunk as usize] = place.entry();
        self.root_dirty = true;
        self.places.insert(chunk, place);
        let (_, content) = self.chunk_shape();
        self.sums.insert(
            chunk,
            Sums {
                crcs: vec![0; content as usize],
                dirty: true,
            },
        );
        Ok(())
    }

    fn sums(&mut self, chunk: u32) -> Result<&mut Sums, IndexError> {
        if !self.sums.contains_key(&chunk) {
            let (blocks, content) = self.chunk_shape();
            let mut bytes = vec![0; blocks as usize * BLOCK];
            self.read_chunk(chunk, 0, &mut bytes)?;
            let number = |b: &[u8]| u32::from_le_bytes(b.try_into().expect("four bytes"));
            let crcs = bytes
                .chunks_exact(4)
                .take(content as usize)
                .map(number)
                .collect();
            let held: usize = self.sums.values().map(|s| s.crcs.len() * 4).sum();
            if held > SUMS_MEMORY_MAX {
                self.sums.retain(|_, sums| sums.dirty);
            }
            self.sums.insert(chunk, Sums { crcs, dirty: false });
        }
        Ok(self.sums.get_mut(&chunk).expect("just loaded"))
    }

    /// The unit of one of redb's blocks (not 0), and its checksum; `None`: it was never written.
    fn find(&mut self, block: u64) -> Result<Option<(u64, u32)>, IndexError> {
        let (chunk, at) = self.locate(block);
        if !self.places.contains_key(&chunk) {
            return Ok(None);
        }
        let expected = self.sums(chunk)?.crcs[at];
        let (sums, _) = self.chunk_shape();
        let place = self.places.get(&chunk).ok_or(IndexError::Corrupt)?;
        Ok((expected != 0).then(|| (place.unit(sums + at as u64), expected)))
    }

    /// Returns `false` if it was never written.
    fn read_written(&mut self, block: u64, out: &mut [u8]) -> Result<bool, IndexError> {
        if block == 0 {
            out.copy_from_slice(&self.root.index_header[..]);
            return Ok(true);
        }
        let Some((unit, expected)) = self.find(block)? else {
            return Ok(false);
        };
        self.read_device(unit, out)?;
        if mark(crc32c_always(out)) != expected {
            self.bad_block.get_or_insert(block);
            return Err(IndexError::Corrupt);
        }
        Ok(true)
    }

    fn read_block(&mut self, block: u64, out: &mut [u8]) -> Result<(), IndexError> {
        if self.read_written(block, out)? {
            return Ok(());
        }
        self.bad_block.get_or_insert(block);
        Err(IndexError::Corrupt)
    }

    fn write_block(&mut self, block: u64, data: &[u8]) -> Result<(), IndexError> {
        if block == 0 {
            self.root.index_header.copy_from_slice(data);
            self.root_dirty = true;
            return Ok(());
        }
        let (chunk, at) = self.locate(block);
        if !self.places.contains_key(&chunk) {
            self.place(chunk)?;
        }
        let sums = self.sums(chunk)?;
        sums.crcs[at] = mark(crc32c_always(data));
        sums.dirty = true;
        let (sums, _) = self.chunk_shape();
        self.write_chunk(chunk, sums + at as u64, data)
    }

    fn set_len(&mut self, length: u64) -> Result<(), IndexError> {
        // The part that was cut off must read as zeros if the length grows again.
        let first = length.div_ceil(BLOCK_U64).max(1);
        let last = self.root.index_length.div_ceil(BLOCK_U64);
        let (_, content) = self.chunk_shape();
        let mut block = first;
        while block < last {
            let (chunk, at) = self.locate(block);
            let end = (block + content - at as u64).min(last);
            if self.places.contains_key(&chunk) {
                let sums = self.sums(chunk)?;
                let count = (end - block) as usize;
                sums.crcs[at..at + count].fill(0);
                sums.dirty = true;
            }
            block = end;
        }
        // Chunks completely behind the end are released; they are not reused before a superblock
        // without them is durable.
        let keep = (first - 1).div_ceil(content) as usize;
        self.root.chunks.truncate(keep);
        self.released
            .extend(self.places.split_off(&(keep as u32)).into_values());
        self.sums.split_off(&(keep as u32));
        self.root.index_length = length;
        self.root_dirty = true;
        Ok(())
    }

    /// Writes the changed checksums. Returns whether there is anything to flush.
    fn write_sums(&mut self) -> Result<bool, IndexError> {
        let dirty: Vec<u32> = self
            .sums
            .iter()
            .filter(|(_, s)| s.dirty)
            .map(|(&chunk, _)| chunk)
            .collect();
        for chunk in dirty {
            let (blocks, _) = self.chunk_shape();
            let sums = self.sums.get_mut(&chunk).expect("listed from the same map");
            sums.dirty = false;
            let mut bytes: Vec<u8> = sums.crcs.iter().flat_map(|crc| crc.to_le_bytes()).collect();
            bytes.resize(blocks as usize * BLOCK, 0);
            self.write_chunk(chunk, 0, &bytes)?;
        }
        let any = self.written || self.root_dirty;
        self.written = false;
        Ok(any && self.overlay.is_none())
    }

    /// The superblock to be written, if it changed.
    fn take_root(&mut self) -> Option<Root> {
        let dirty = std::mem::take(&mut self.root_dirty);
        self.root.sequence += u64::from(dirty);
        dirty.then(|| self.root.clone())
    }

    /// The superblock is written: space that it does not name any more is free.
    fn root_written(&mut self) {
        // Its mirror is not durable yet.
        self.written = true;
        let mut space = self.space.lock();
        if space.knows_units() {
            self.released
                .drain(..)
                .for_each(|place| place.give(&mut space));
        }
        // Otherwise the store is being opened: these units will be recorded as free with all
        // others.
    }
}

/// 0 means "never written" in a table of checksums.
fn mark(crc: u32) -> u32 {
    crc.max(1)
}

impl Backend {
    /// The storage that `root` describes, which grows into `space`. With `dry`, nothing is ever
    /// written to the device.
    pub(crate) fn new(
        device: Arc<dyn BlockingDevice>,
        root: Root,
        space: Space,
        dry: bool,
    ) -> Result<Self, IndexError> {
        let mut places = BTreeMap::new();
        let (count, units) = (root.layout.chunk_units(), root.layout.units());
        for (chunk, &entry) in (0..).zip(&root.chunks) {
            if entry != NO_CHUNK {
                let read =
                    |at: u64, out: &mut [u8]| device.read_at(at, out).map_err(IndexError::Device);
                places.insert(chunk, Place::read(entry, count, units, read)?);
            }
        }
        let state = State {
            device,
            root,
            root_dirty: false,
            written: false,
            sums: BTreeMap::new(),
            places,
            space,
            released: Vec::new(),
            overlay: dry.then(BTreeMap::new),
            failure: None,
            bad_block: None,
        };
        Ok(Self {
            state: Arc::new(Mutex::new(state)),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn guarded<T>(&self, work: impl FnOnce(&mut State) -> Result<T, IndexError>) -> io::Result<T> {
        let mut state = self.lock();
        if let Some(failure) = state.failure {
            return Err(failure.into());
        }
        work(&mut state).map_err(|error| {
            state.failure = Some(error);
            error.into()
        })
    }

    /// The device is read without the lock: readers do not wait for each other. redb writes to no
    /// block that a reader may access, so the looked-up place stays valid.
    fn read_block(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        let mut at = None;
        let device = self.guarded(|state| {
            if block == 0 || state.overlay.is_some() {
                state.read_block(block, out)?;
                return Ok(None);
            }
            at = state.find(block)?;
            Ok(Some(state.device.clone()))
        })?;
        let Some(device) = device else { return Ok(()) };
        let result = match at {
            None => Err(IndexError::Corrupt),
            Some((unit, expected)) => match device.read_at(unit * BLOCK_U64, out) {
                Ok(()) if mark(crc32c_always(out)) == expected => Ok(()),
                Ok(()) => Err(IndexError::Corrupt),
                Err(error) => Err(IndexError::Device(error)),
            },
        };
        self.guarded(|state| {
            if result == Err(IndexError::Corrupt) {
                state.bad_block.get_or_insert(block);
            }
            result
        })
    }

    /// The first error, if there was one.
    pub(crate) fn failure(&self) -> Option<IndexError> {
        self.lock().failure
    }

    /// The number of blocks that the index could grow by.
    pub(crate) fn blocks_left(&self) -> u64 {
        self.lock().space.free()
    }

    /// Bytes of blocks in chunks that have a place.
    pub(crate) fn bytes_placed(&self) -> u64 {
        let state = self.lock();
        state.places.len() as u64 * state.chunk_shape().1 * BLOCK_U64
    }

    /// The number of chunks in more than one piece.
    pub(crate) fn scattered(&self) -> u64 {
        self.lock()
            .places
            .values()
            .filter(|place| place.is_scattered())
            .count() as u64
    }

    /// Units that the index occupies, in runs, by place.
    pub(crate) fn units(&self) -> Vec<(u64, u32)> {
        let state = self.lock();
        let mut runs: Vec<(u64, u32)> = state
            .places
            .values()
            .chain(&state.released)
            .flat_map(Place::units)
            .collect();
        runs.sort_unstable();
        runs
    }

    /// The first of redb's blocks that failed its checksum. (Blocks that no commit refers to may
    /// fail after a power cut; they are never read.)
    pub(crate) fn bad_block(&self) -> Option<u64> {
        self.lock().bad_block
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.guarded(|state| Ok(state.root.index_length))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < out.len() {
            let at = offset + done as u64;
            let (block, start) = (at / BLOCK_U64, (at % BLOCK_U64) as usize);
            let count = (BLOCK - start).min(out.len() - done);
            if count == BLOCK {
                self.read_block(block, &mut out[done..done + BLOCK])?;
            } else {
                let mut whole = [0; BLOCK];
                self.read_block(block, &mut whole)?;
                out[done..done + count].copy_from_slice(&whole[start..start + count]);
            }
            done += count;
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.guarded(|state| state.set_len(length))
    }

    /// Only one thread writes to the index at a time; concurrent readers must not wait for these
    /// flushes.
    fn sync_data(&self) -> io::Result<()> {
        let device = self.lock().device.clone();
        let unlocked = |work: &dyn Fn() -> Result<(), DeviceError>| {
            let result = work().map_err(IndexError::Device);
            self.guarded(|_| result)
        };
        if self.guarded(State::write_sums)? {
            // This flush also covers the mirror superblock of the previous sync, which must be
            // durable before slot 0 is written.
            unlocked(&|| device.flush())?;
            if let Some(root) = self.guarded(|state| Ok(state.take_root()))? {
                unlocked(&|| root.write(&*device))?;
                self.lock().root_written();
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.guarded(|state| {
            let mut done = 0;
            while done < data.len() {
                let at = offset + done as u64;
                let (block, start) = (at / BLOCK_U64, (at % BLOCK_U64) as usize);
                let count = (BLOCK - start).min(data.len() - done);
                if count == BLOCK {
                    state.write_block(block, &data[done..done + BLOCK])?;
                } else {
                    let mut whole = [0; BLOCK];
                    state.read_written(block, &mut whole)?;
                    whole[start..start + count].copy_from_slice(&data[done..done + count]);
                    state.write_block(block, &whole)?;
                }
                done += count;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::Allocator;
    use crate::format::root::{Features, Identity, Layout};
    use crate::testing::TestDevice;

    const LENGTH: u64 = 8 << 30;
    const CHUNKS: u64 = 200;

    fn root() -> Root {
        let layout = Layout {
            device_length: LENGTH,
            wal_offset: 256 << 10,
            wal_length: 1 << 20,
            chunk_length: 16 << 20,
        };
        let (features, identity) = (Features::default(), Identity::default());
        let index_header = Box::new([0; BLOCK]);
        Root {
            sequence: 0,
            features,
            identity,
            layout,
            index_length: 0,
            index_header,
            chunks: Vec::new(),
        }
    }

    /// An index of more than a gigabyte has more checksums than are kept in memory. Those that are
    /// not on the device yet are kept regardless of reads: if they were dropped, the pages that a
    /// checkpoint has just written would be unreadable, and the store would not open any more.
    #[test]
    fn checksums_that_are_not_written_down_are_kept() {
        let device = TestDevice::new(LENGTH);
        let space = Space::new(Allocator::new(LENGTH / BLOCK_U64, 1000));
        let backend = Backend::new(device.blocking(), root(), space.clone(), false).expect("empty");
        let content = backend.lock().chunk_shape().1;
        let page = |chunk: u64, version: u8| vec![chunk as u8 ^ version; BLOCK];
        let write = |backend: &Backend, chunk: u64, version: u8| {
            backend
                .write((1 + chunk * content) * BLOCK_U64, &page(chunk, version))
                .expect("room");
        };
        let read = |backend: &Backend, chunk: u64| {
            let mut out = vec![0; BLOCK];
            backend
                .read((1 + chunk * content) * BLOCK_U64, &mut out)
                .map(|()| out)
        };
        backend
            .set_len((1 + CHUNKS * content) * BLOCK_U64)
            .expect("sparse");
        (0..CHUNKS).for_each(|chunk| write(&backend, chunk, 0));
        backend.sync_data().expect("healthy");
        for version in 1..4 {
            let root = Root::read(&device).expect("durable");
            let backend =
                Backend::new(device.blocking(), root, space.clone(), false).expect("sound");
            // Some chunks change, and between them all others are read.
            for chunk in 0..CHUNKS {
                if chunk % 20 == 7 {
                    write(&backend, chunk, version);
                } else {
                    assert_eq!(read(&backend, chunk).expect("sound"), page(chunk, 0));
                }
            }
            let held: usize = backend
                .lock()
                .sums
                .values()
                .map(|sums| sums.crcs.len() * 4)
                .sum();
            assert!(
                held < 2 * SUMS_MEMORY_MAX,
                "{held} bytes of checksums in memory"
            );
            backend.sync_data().expect("healthy");
            let root = Root::read(&device).expect("durable");
            let backend =
                Backend::new(device.blocking(), root, space.clone(), false).expect("sound");
            for chunk in 0..CHUNKS {
                let version = if chunk % 20 == 7 { version } else { 0 };
                assert_eq!(
                    read(&backend, chunk).expect("sound"),
                    page(chunk, version),
                    "chunk {chunk}"
                );
            }
        }
    }

    /// The index released chunks. Until a superblock without them is durable a power cut brings
    /// them back: data written there meanwhile would be read as the index's pages. Afterwards all
    /// of their space is free for data.
    #[test]
    fn the_space_of_chunks_is_free_once_no_superblock_names_them() {
        let device = TestDevice::new(LENGTH);
        let space = Space::new(Allocator::new(LENGTH / BLOCK_U64, 1000));
        let backend = Backend::new(device.blocking(), root(), space.clone(), false).expect("empty");
        let content = backend.lock().chunk_shape().1;
        let units = backend.lock().root.layout.chunk_units();
        let empty = space.free();
        backend
            .set_len((1 + 10 * content) * BLOCK_U64)
            .expect("sparse");
        for chunk in 0..10 {
            backend
                .write((1 + chunk * content) * BLOCK_U64, &[1; BLOCK])
                .expect("room");
        }
        backend.sync_data().expect("healthy");
        assert_eq!(space.free(), empty - 10 * units);
        backend
            .set_len((1 + 3 * content) * BLOCK_U64)
            .expect("shorter");
        assert_eq!(
            space.free(),
            empty - 10 * units,
            "the superblock on the device names them"
        );
        assert_eq!(
            backend.units().len(),
            10,
            "nor are they free to a checkpoint"
        );
        device.fail_once_after(1);
        assert!(backend.sync_data().is_err(), "no superblock was written");
        assert_eq!(space.free(), empty - 10 * units);
        let root = Root::read(&device).expect("the one before");
        let backend = Backend::new(device.blocking(), root, space.clone(), false).expect("sound");
        assert_eq!(backend.units().len(), 10);
        backend
            .set_len((1 + 3 * content) * BLOCK_U64)
            .expect("shorter");
        backend.sync_data().expect("healthy");
        assert_eq!(
            (space.free(), backend.units().len()),
            (empty - 3 * units, 3)
        );
        assert_eq!(Root::read(&device).expect("durable").chunks.len(), 3);
    }
}
