//! A file or block device with the interface that the store needs.
//!
//! ```text
//!  read   page cache has it ──preadv2(NOWAIT), here──▶ done        it has not ──▶ worker
//!  write  small ──pwritev into the page cache, here──▶ done        large ───────▶ worker; direct I/O if the memory is aligned
//!  flush  single writer, little to write ──▶ here        else ──▶ worker: fdatasync
//!  commit single writer, as a flush ──▶ here        else ──▶ worker: one run with `RWF_DSYNC`;
//!                                                       several are written here, flushed there
//! ```
//! A small write costs less than handing it to a worker, and saves one wake-up per group commit. It
//! can block in the kernel only when dirty pages exceed the kernel's limits, which the flush after
//! every log write prevents. The same holds for the flush of a single writer as long as the disk is
//! fast: handing it over and being woken would be a third of that writer's latency. With more than
//! one in flight the reactor can do other work meanwhile. A commit of one run, which most small
//! groups of the log are, is copied to aligned memory and written directly with `RWF_DSYNC`: a
//! fifth less time than a write to the page cache and a flush. A large write with suitably aligned
//! memory goes directly to the disk (`O_DIRECT`): the page cache would cost a copy and the kernel's
//! work on a thousand pages. Received payloads are aligned (`nacre_wire::frame::PAYLOAD_ALIGN`).
//! Freed space is returned by punching holes, which file systems and block devices (Linux issues a
//! discard with zeros) support; a device that does not is asked once. An opening store drops its
//! page cache: see [`BlockingDevice::forget_cached`]. Segments are written in place (`pwritev`),
//! without a copy. An error is reported, never retried; interruptions and short counts are
//! continued. The file or device itself is locked while a daemon has it open, under whichever path
//! it was found. Every call that may block is counted while it lasts (`calls.rs`). A write for
//! which the file system lacks space gets it from the reserve (`reserve.rs`).

mod file;
mod waits;

pub use file::FileDevice;

use crate::calls::{Calls, What};
use crate::faults::Faults;
use crate::reserve::{self, Reserve};
use crate::windows::{Way, Windows};
use bytes::{Bytes, BytesMut};
use nacre_store::{BlockingDevice, DeviceError, IoKind, Run};
use rustix::fs::{Advice, FallocateFlags, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::{File, TryLockError};
use std::io::{IoSlice, IoSliceMut, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest write made on the reactor's thread.
const INLINE_WRITE_MAX: usize = 256 << 10;
/// Number of attempts to lock a store that is still open elsewhere, half a second in all.
const LOCK_TRIES: u32 = 100;
const BETWEEN_LOCK_TRIES: Duration = Duration::from_millis(5);
/// Maximum number of segments per system call.
const SEGMENTS_MAX: usize = 1024;
/// The same for direct writes, 1 MiB of blocks: during one, file systems hold a lock that the log's
/// next write waits for.
const DIRECT_SEGMENTS_MAX: usize = 256;

/// Alignment of offsets and lengths of direct writes.
const DIRECT_UNIT: u64 = 4096;
/// Alignment of the memory of direct writes: the sector size of nearly every disk. A disk with a
/// larger alignment refuses, and gets buffered writes.
const DIRECT_MEMORY: usize = 512;

/// The bytes of one file or block device.
#[derive(Debug)]
pub struct Blocks {
    file: File,
    path: std::path::PathBuf,
    /// The same, opened for direct writes; `None` where the file system or the disk does not
    /// support them.
    direct: Option<File>,
    direct_refused: AtomicBool,
    /// Memory for direct commits; one is in progress at a time.
    aligned: Mutex<Aligned>,
    /// Whether the device refused to take back space.
    punch_refused: AtomicBool,
    /// Ranges being written, and in which way.
    windows: Windows,
    length: u64,
    calls: Calls,
    reserve: Option<Reserve>,
    faults: Option<Box<Faults>>,
    /// Whether a write found no space on the host's file system, including the reserve.
    ran_out: AtomicBool,
    reserve_used: AtomicBool,
}

/// Memory for direct writes of data that is anywhere. It keeps the size of the largest commit,
/// which the store limits.
#[derive(Debug, Default)]
struct Aligned(Vec<u8>);

impl Aligned {
    /// A copy of the segments.
    fn copy(&mut self, data: &[Bytes], length: usize) -> &[u8] {
        if self.0.len() < length + DIRECT_UNIT as usize {
            self.0.resize(length + DIRECT_UNIT as usize, 0);
        }
        let start = self.0.as_ptr().align_offset(DIRECT_UNIT as usize);
        let out = &mut self.0[start..start + length];
        let mut at = 0;
        for segment in data {
            out[at..at + segment.len()].copy_from_slice(segment);
            at += segment.len();
        }
        out
    }
}

/// A call, with the information needed when there is no space.
#[derive(Clone, Copy)]
enum Call {
    Read,
    /// A write of this many bytes.
    Write(u64),
    Flush,
    Discard,
    Forget,
}
impl Call {
    const fn what(self) -> What {
        match self {
            Self::Read => What::Read,
            Self::Write(_) => What::Write,
            Self::Flush => What::Flush,
            Self::Discard => What::Discard,
            Self::Forget => What::Forget,
        }
    }
}

/// The thread that makes a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Reactor,
    Other,
}

/// Opens a file once more, for direct writes. Not every file system supports them.
fn open_direct(path: &Path) -> Option<File> {
    let flags = OFlags::DIRECT.bits().cast_signed();
    File::options()
        .write(true)
        .custom_flags(flags)
        .open(path)
        .ok()
}

/// Whether the alignment allows a direct write.
fn lies_for_disk(offset: u64, data: &[Bytes]) -> bool {
    let whole = |length: u64| length.is_multiple_of(DIRECT_UNIT);
    whole(offset)
        && data.iter().all(|piece| {
            whole(piece.len() as u64) && piece.as_ptr().addr().is_multiple_of(DIRECT_MEMORY)
        })
}

fn write_all(file: &File, mut offset: u64, data: &[Bytes], segments: usize) -> Result<(), Errno> {
    for batch in data.chunks(segments) {
        let mut slices: Vec<IoSlice<'_>> =
            batch.iter().map(|segment| IoSlice::new(segment)).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            match rustix::io::pwritev(file, rest, offset) {
                Ok(0) => return Err(Errno::NOSPC),
                Ok(count) => {
                    offset += count as u64;
                    IoSlice::advance_slices(&mut rest, count);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(())
}

fn failed(errno: Errno) -> DeviceError {
    DeviceError::Os(errno.raw_os_error())
}

impl Blocks {
    /// Opens a device exclusively; `create` makes a sparse file of that many bytes or keeps a
    /// longer one.
    ///
    /// # Errors
    /// The operating system's; `WouldBlock` when another process has it open as a store.
    pub fn open(path: &Path, create: Option<u64>) -> std::io::Result<Self> {
        let mut options = File::options();
        options
            .read(true)
            .write(true)
            .create(create.is_some())
            .truncate(false)
            .mode(0o600);
        let mut file = options.open(path)?;
        // A daemon that was killed inside this process may still have a write on a worker: the next
        // process to open its store must wait for it.
        for tried in 1.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if tried < LOCK_TRIES => {
                    std::thread::sleep(BETWEEN_LOCK_TRIES)
                }
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(length) = create
            && file.metadata()?.is_file()
            && file.metadata()?.len() < length
        {
            file.set_len(length)?;
            file.sync_all()?;
        }
        // This also works for block devices, whose metadata reports 0.
        let length = file.seek(SeekFrom::End(0))?;
        let reserve = file
            .metadata()?
            .is_file()
            .then(|| Reserve::of(path, length));
        Ok(Self {
            calls: Calls::default(),
            reserve,
            ran_out: AtomicBool::new(false),
            reserve_used: AtomicBool::new(false),
            faults: Faults::of(path),
            path: path.to_owned(),
            file,
            direct: open_direct(path),
            direct_refused: AtomicBool::new(false),
            aligned: Mutex::default(),
            punch_refused: AtomicBool::new(false),
            windows: Windows::default(),
            length,
        })
    }

    /// Opens a device for inspection while no daemon writes to it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_to_read(path: &Path) -> std::io::Result<Self> {
        let mut file = File::open(path)?;
        file.try_lock_shared()?;
        let length = file.seek(SeekFrom::End(0))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            direct: None,
            direct_refused: AtomicBool::new(true),
            aligned: Mutex::default(),
            punch_refused: AtomicBool::new(true),
            windows: Windows::default(),
            length,
            calls: Calls::default(),
            reserve: None,
            ran_out: AtomicBool::new(false),
            reserve_used: AtomicBool::new(false),
            faults: None,
        })
    }

    pub const fn calls(&self) -> &Calls {
        &self.calls
    }
    pub fn path(&self) -> &Path {
        &self.path
    }
    pub const fn len(&self) -> u64 {
        self.length
    }

    /// Permanently allocates the first bytes: those that are overwritten repeatedly. Not every file
    /// system can, and a block device need not.
    ///
    /// # Errors
    /// There is no space for them.
    pub fn allocate(&self, length: u64) -> Result<(), DeviceError> {
        if self.reserve.is_none() {
            return Ok(());
        }
        match reserve::allocate(&self.file, length) {
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Drops the page cache of the first `length` bytes: those that are overwritten repeatedly in
    /// small pieces. A read of them makes Linux read ahead into folios of up to 2 MiB, and a write
    /// of 8 KiB walks all blocks of its folio (Linux 6.18, ext4: a quarter of an update at depth
    /// 1).
    ///
    /// # Errors
    /// The operating system's.
    pub fn forget_first(&self, length: u64) -> Result<(), DeviceError> {
        NonZeroU64::new(length).map_or(Ok(()), |length| self.forget(Some(length)))
    }

    /// Drops clean pages; without a length those of the whole device.
    fn forget(&self, length: Option<NonZeroU64>) -> Result<(), DeviceError> {
        self.call(Call::Forget, On::Other, || {
            match rustix::fs::fadvise(&self.file, 0, length, Advice::DontNeed) {
                // A file system in memory has only its pages.
                Err(Errno::INVAL | Errno::NOSYS | Errno::SPIPE) => Ok(()),
                other => other,
            }
        })
    }

    /// Restores the reserve as far as `free` bytes allow. Returns whether it is complete, or not
    /// needed.
    pub fn keep_reserve(&self, free: u64) -> bool {
        let Some(reserve) = &self.reserve else {
            return true;
        };
        reserve.restore(free);
        let whole = reserve.is_whole();
        self.reserve_used.store(!whole, Ordering::Relaxed);
        whole
    }

    /// Whether writes are using the reserve.
    pub fn uses_reserve(&self) -> bool {
        self.reserve_used.load(Ordering::Relaxed)
    }

    /// Makes a call of the operating system that may block.
    fn call<T>(
        &self,
        what: Call,
        on: On,
        run: impl Fn() -> Result<T, Errno>,
    ) -> Result<T, DeviceError> {
        let _calling = match on {
            On::Reactor => self.calls.begin_inline(what.what()),
            On::Other => self.calls.begin(what.what()),
        };
        let attempt = || {
            self.faults
                .as_ref()
                .map_or(Ok(()), |faults| faults.meet(what.what().word()))?;
            run()
        };
        let mut result = attempt();
        while matches!(result, Err(Errno::NOSPC)) && self.takes_of_reserve(what) {
            result = attempt();
        }
        if matches!(result, Err(Errno::NOSPC)) {
            self.ran_out.store(true, Ordering::Relaxed);
        }
        result.map_err(failed)
    }

    /// Runs a job of the store for this device on a worker.
    pub fn work<T>(&self, job: impl FnOnce() -> T) -> T {
        let _working = self.calls.begin_job();
        self.meet(What::Job.word());
        job()
    }

    /// Queries the file system on the reactor's thread.
    pub fn ask_space<T>(&self, ask: impl FnOnce() -> T) -> T {
        let _calling = self.calls.begin_inline(What::Space);
        self.meet(What::Space.word());
        ask()
    }

    /// Meets the faults of calls that cannot fail but may hang or panic.
    pub fn meet(&self, what: &str) {
        if let Some(faults) = &self.faults {
            let _ = faults.meet(what);
        }
    }

    /// A write found no space: whether it may be retried with a part of the reserve.
    fn takes_of_reserve(&self, what: Call) -> bool {
        let Call::Write(length) = what else {
            return false;
        };
        self.reserve_used.store(true, Ordering::Relaxed);
        self.reserve
            .as_ref()
            .is_some_and(|reserve| reserve.give_up(length))
    }

    /// Whether a write failed because the host's file system is full.
    pub fn ran_out(&self) -> bool {
        self.ran_out.load(Ordering::Relaxed)
    }

    fn check(&self, offset: u64, length: usize) -> Result<(), DeviceError> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.length => Ok(()),
            _ => Err(DeviceError::OutOfRange {
                offset,
                length: length as u64,
                device: self.length,
            }),
        }
    }

    /// Reads from the page cache; `false` if not all of it is cached.
    fn read_cached(&self, offset: u64, out: &mut [u8]) -> bool {
        let want = out.len();
        let got = rustix::io::preadv2(
            &self.file,
            &mut [IoSliceMut::new(out)],
            offset,
            ReadWriteFlags::NOWAIT,
        );
        got == Ok(want)
    }

    fn write_segments(&self, offset: u64, data: &[Bytes]) -> Result<(), DeviceError> {
        let length: usize = data.iter().map(Bytes::len).sum();
        self.check(offset, length)?;
        if length > INLINE_WRITE_MAX
            && lies_for_disk(offset, data)
            && let Some(result) = self.write_past_cache(offset, data, length)
        {
            return result;
        }
        let _writing = self.windows.enter(Way::Through, offset, length as u64);
        self.call(Call::Write(length as u64), On::Other, || {
            write_all(&self.file, offset, data, SEGMENTS_MAX)
        })
    }

    /// Writes through the page cache, if it need not wait for a direct write.
    fn write_now(&self, offset: u64, data: &[Bytes]) -> Option<Result<(), DeviceError>> {
        let length = data.iter().map(Bytes::len).sum();
        if let Err(error) = self.check(offset, length) {
            return Some(Err(error));
        }
        let _writing = self
            .windows
            .try_enter(Way::Through, offset, length as u64)?;
        Some(self.call(Call::Write(length as u64), On::Reactor, || {
            write_all(&self.file, offset, data, SEGMENTS_MAX)
        }))
    }

    /// For direct writes, unless one was refused.
    fn direct_file(&self) -> Option<&File> {
        self.direct
            .as_ref()
            .filter(|_| !self.direct_refused.load(Ordering::Relaxed))
    }

    /// Writes directly to the disk. `None`: not possible here; a partial write must be repeated.
    fn write_past_cache(
        &self,
        offset: u64,
        data: &[Bytes],
        length: usize,
    ) -> Option<Result<(), DeviceError>> {
        let direct = self.direct_file()?;
        let _writing = self.windows.enter(Way::Past, offset, length as u64);
        match self.call(Call::Write(length as u64), On::Other, || {
            write_all(direct, offset, data, DIRECT_SEGMENTS_MAX)
        }) {
            Err(error) if error == failed(Errno::INVAL) => {
                self.direct_refused.store(true, Ordering::Relaxed);
                None
            }
            result => Some(result),
        }
    }

    /// Writes one run directly and durably. `None`: not possible here; a partial write must be
    /// repeated.
    fn commit_past_cache(&self, run: &Run, on: On) -> Option<Result<(), DeviceError>> {
        let direct = self.direct_file()?;
        let length = run.length();
        if let Err(error) = self.check(run.offset, length) {
            return Some(Err(error));
        }
        let mut aligned = self.aligned.try_lock().ok()?;
        let data = aligned.copy(&run.data, length);
        let _writing = match on {
            On::Reactor => self
                .windows
                .try_enter(Way::Past, run.offset, length as u64)?,
            On::Other => self.windows.enter(Way::Past, run.offset, length as u64),
        };
        let attempt = || {
            if let Some(faults) = &self.faults {
                faults.meet(What::Write.word())?;
            }
            write_piece(run.offset, data, |rest, at| {
                rustix::io::pwritev2(direct, &[IoSlice::new(rest)], at, ReadWriteFlags::DSYNC)
            })
        };
        // It ends with a flush, and may hang and fail as one.
        let result = self.call(Call::Flush, on, || match attempt() {
            // The other way may take space from the reserve.
            Err(Errno::NOSPC) => Ok(false),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                self.direct_refused.store(true, Ordering::Relaxed);
                Ok(false)
            }
            other => other.map(|()| true),
        });
        match result {
            Ok(false) => None,
            result => Some(result.map(drop)),
        }
    }

    /// Writes all runs and makes them durable.
    fn commit(&self, writes: &[Run]) -> Result<(), DeviceError> {
        if let [run] = writes
            && let Some(result) = self.commit_past_cache(run, On::Other)
        {
            return result;
        }
        for run in writes {
            self.write_segments(run.offset, &run.data)?;
        }
        self.flush()
    }

    /// Executes one operation, blocking.
    pub fn run(&self, kind: IoKind) -> Result<Bytes, DeviceError> {
        match kind {
            IoKind::Read { offset, length } => {
                let mut out = BytesMut::zeroed(length);
                self.read_at(offset, &mut out)?;
                Ok(out.freeze())
            }
            IoKind::Write { offset, data } => {
                self.write_segments(offset, &data).map(|()| Bytes::new())
            }
            IoKind::Flush => self.flush().map(|()| Bytes::new()),
            IoKind::Commit { writes } => self.commit(&writes).map(|()| Bytes::new()),
            IoKind::Discard { offset, length } => self.punch(offset, length).map(|()| Bytes::new()),
        }
    }

    /// Returns a range to the host.
    fn punch(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.check(offset, usize::try_from(length).unwrap_or(usize::MAX))?;
        if self.punch_refused.load(Ordering::Relaxed) {
            return Ok(());
        }
        // It drops the range from the page cache, as a direct write does.
        let _writing = self.windows.enter(Way::Past, offset, length);
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.call(Call::Discard, On::Other, || {
            match rustix::fs::fallocate(&self.file, mode, offset, length) {
                Err(Errno::INTR) => Ok(()),
                Err(
                    Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NODEV | Errno::PERM,
                ) => {
                    self.punch_refused.store(true, Ordering::Relaxed);
                    Ok(())
                }
                other => other,
            }
        })
    }
}

/// Fills `out`; returns the offset where the file ended, if it did.
fn read_all(file: &File, mut offset: u64, out: &mut [u8]) -> Result<Option<u64>, Errno> {
    let mut rest = out;
    while !rest.is_empty() {
        match rustix::io::pread(file, &mut *rest, offset) {
            Ok(0) => return Ok(Some(offset)),
            Ok(count) => {
                offset += count as u64;
                rest = &mut rest[count..];
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(None)
}

/// Writes one piece by calls that may write a part of it.
fn write_piece(
    mut offset: u64,
    mut rest: &[u8],
    write: impl Fn(&[u8], u64) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    while !rest.is_empty() {
        match write(rest, offset) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(count) => {
                offset += count as u64;
                rest = &rest[count..];
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn sync(file: &File) -> Result<(), Errno> {
    loop {
        match rustix::fs::fdatasync(file) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

impl BlockingDevice for Blocks {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        self.check(offset, out.len())?;
        let end = offset + out.len() as u64;
        let out = std::cell::RefCell::new(out);
        match self.call(Call::Read, On::Other, || {
            read_all(&self.file, offset, &mut out.borrow_mut())
        })? {
            None => Ok(()),
            Some(at) => Err(DeviceError::OutOfRange {
                offset: at,
                length: end - at,
                device: at,
            }),
        }
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.check(offset, data.len())?;
        let _writing = self.windows.enter(Way::Through, offset, data.len() as u64);
        self.call(Call::Write(data.len() as u64), On::Other, || {
            write_piece(offset, data, |rest, at| {
                rustix::io::pwrite(&self.file, rest, at)
            })
        })
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.call(Call::Flush, On::Other, || sync(&self.file))
    }
    /// After a failed flush Linux marks pages clean that it did not write. This drops all clean
    /// pages; dirty ones were written by the flush before. (Direct reads would do the same for
    /// reads by this process only, and not on every file system.)
    fn forget_cached(&self) -> Result<(), DeviceError> {
        self.forget(None)
    }
    fn length(&self) -> u64 {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workers::Mailbox;
    use std::sync::Arc;

    const LARGE: usize = 1 << 20;

    pub(super) struct Folder(pub(super) std::path::PathBuf);
    impl Folder {
        pub(super) fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("nacre-device-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).expect("a folder");
            Self(path)
        }
    }
    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Memory that begins `skip` bytes after the alignment of a disk.
    fn memory(skip: usize, fill: u8) -> Bytes {
        let mut bytes = BytesMut::zeroed(LARGE + 8192);
        let start = bytes.as_ptr().align_offset(4096) + skip;
        bytes.fill(fill);
        bytes.freeze().slice(start..start + LARGE)
    }

    /// Large writes bypass the page cache, small ones and reads use it: both must see the same
    /// data.
    #[test]
    fn writes_past_the_page_cache_and_through_it_see_each_other() {
        let folder = Folder::new("past");
        let blocks = Blocks::open(&folder.0.join("blocks"), Some(16 << 20)).expect("opens");
        let read = |offset: u64, length: usize| {
            let mut out = vec![0; length];
            blocks.read_at(offset, &mut out).expect("reads");
            out
        };
        let write =
            |offset: u64, data: Vec<Bytes>| blocks.write_segments(offset, &data).expect("writes");
        for round in 0..4_u8 {
            // Dirty in the page cache, clean, and not cached.
            write(LARGE as u64, vec![Bytes::from(vec![200; 4096])]);
            if round == 2 {
                blocks.flush().expect("flushes");
            }
            let data = memory(0, round);
            assert!(lies_for_disk(LARGE as u64, std::slice::from_ref(&data)));
            let cut: Vec<Bytes> = (0..LARGE / 4096)
                .map(|n| data.slice(n * 4096..(n + 1) * 4096))
                .collect();
            write(LARGE as u64, cut);
            assert!(
                read(LARGE as u64, LARGE).iter().all(|byte| *byte == round),
                "round {round}"
            );
            write(
                LARGE as u64 + 4096,
                vec![Bytes::from(vec![100 + round; 4096])],
            );
            assert!(
                read(LARGE as u64 + 4096, 4096)
                    .iter()
                    .all(|byte| *byte == 100 + round)
            );
        }
        // Unaligned writes go through the page cache: unaligned memory, offset, or length.
        let (data, whole) = (memory(1, 9), memory(0, 9));
        assert!(
            !lies_for_disk(0, std::slice::from_ref(&data))
                && !lies_for_disk(512, std::slice::from_ref(&whole))
        );
        assert!(!lies_for_disk(0, &[whole.slice(..LARGE - 512)]));
        for (offset, data) in [
            (0, data),
            (512, whole.clone()),
            (4096, whole.slice(..LARGE - 512)),
        ] {
            let length = data.len();
            write(offset, vec![data]);
            assert!(
                read(offset, length).iter().all(|byte| *byte == 9),
                "at {offset}"
            );
        }
        let past_the_end = blocks.write_segments((16 << 20) - 4096, &[memory(0, 1)]);
        assert!(
            matches!(past_the_end, Err(DeviceError::OutOfRange { .. })),
            "{past_the_end:?}"
        );
    }

    /// Blocks of both kinds are adjacent, and the kernel tracks them by the megabyte
    /// (`windows.rs`). On ext4, whose own lock separates the two, this works in any case; elsewhere
    /// a flush would fail, and a daemon whose flush fails stops.
    #[test]
    fn neighbours_written_in_both_ways_at_once_do_not_harm_each_other() {
        const AT: u64 = 8 << 20;
        let folder = Folder::new("neighbours");
        let blocks = Blocks::open(&folder.0.join("blocks"), Some(32 << 20)).expect("opens");
        // Long runs make long folios.
        let write =
            |offset: u64, data: Bytes| blocks.write_segments(offset, &[data]).expect("writes");
        write(AT, Bytes::from(vec![1; (4 << 20) + 1]));
        blocks.flush().expect("flushes");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..200_u32 {
                    write(AT, memory(0, round as u8));
                }
                done.store(true, Ordering::Relaxed);
            });
            scope.spawn(|| {
                let small = Bytes::from(vec![7; 4096]);
                for n in (0..256_u64)
                    .cycle()
                    .take_while(|_| !done.load(Ordering::Relaxed))
                {
                    let offset = AT + LARGE as u64 + n * 4096;
                    write(offset, small.clone());
                }
            });
            scope.spawn(|| {
                let mut out = vec![0; 64 << 10];
                for n in (0..32_u64)
                    .cycle()
                    .take_while(|_| !done.load(Ordering::Relaxed))
                {
                    blocks
                        .read_at(AT + n * (64 << 10), &mut out)
                        .expect("reads");
                }
            });
            while !done.load(Ordering::Relaxed) {
                blocks.flush().expect("flushes");
            }
        });
        blocks.flush().expect("flushes");
        let mut out = vec![0; 2 * LARGE];
        blocks.read_at(AT, &mut out).expect("reads");
        assert!(
            out[..LARGE].iter().all(|byte| *byte == 199),
            "past the cache"
        );
        assert!(out[LARGE..].iter().all(|byte| *byte == 7), "through it");
    }

    /// F54: the blocks of a file are returned to its file system, and the file keeps its length.
    /// F5: the cache can be dropped.
    #[test]
    fn discarded_ranges_take_no_space() {
        use std::os::unix::fs::MetadataExt;
        let folder = Folder::new("punch");
        let path = folder.0.join("blocks");
        let blocks = Blocks::open(&path, Some(16 << 20)).expect("opens");
        blocks.write_at(0, &vec![7; 8 << 20]).expect("writes");
        blocks.flush().expect("flushes");
        let taken = || std::fs::metadata(&path).expect("is there").blocks() * 512;
        let before = taken();
        blocks
            .run(IoKind::Discard {
                offset: 1 << 20,
                length: 4 << 20,
            })
            .expect("punched or refused");
        blocks.flush().expect("flushes");
        blocks.forget_cached().expect("forgets");
        if !blocks.punch_refused.load(Ordering::Relaxed) {
            assert!(taken() + (3 << 20) < before, "{before} {}", taken());
        }
        assert_eq!(std::fs::metadata(&path).expect("is there").len(), 16 << 20);
        let mut out = vec![0; 1 << 20];
        for offset in [0, 5 << 20] {
            blocks.read_at(offset, &mut out).expect("reads");
            assert!(out.iter().all(|byte| *byte == 7), "at {offset}");
        }
        assert!(
            blocks
                .run(IoKind::Discard {
                    offset: 15 << 20,
                    length: 4 << 20
                })
                .is_err(),
            "past the end"
        );
    }

    /// F54: a device that takes no space back is asked once. No test failed when it was asked again
    /// for each freed range: every answer is the same, and each costs a call of the device.
    #[test]
    fn a_device_that_takes_no_space_back_is_not_asked_again() {
        let folder = Folder::new("unpunched");
        let blocks = Blocks::open(&folder.0.join("blocks"), Some(1 << 20)).expect("opens");
        blocks.write_at(0, &[7; 8192]).expect("writes");
        let discard = |length: u64| blocks.run(IoKind::Discard { offset: 0, length });
        // Every file system refuses an empty range with the answer of a device that cannot punch.
        assert!(discard(0).is_ok(), "a refusal is not the store's trouble");
        // A call made now would meet an error.
        meet(&folder, "blocks discard error 5");
        assert!(discard(4096).is_ok(), "asked again");
        meet(&folder, "");
        let mut out = [0; 8192];
        blocks.read_at(0, &mut out).expect("reads");
        assert!(out == [7; 8192], "punched after all");
        assert!(discard(2 << 20).is_err(), "past the end");
    }

    /// F5: after a failed flush the page cache shows data that is not on the medium, and an opening
    /// store must read the medium. No test failed when this dropped nothing: the store's own tests
    /// use another device, and a correct read does not show where the data came from.
    #[test]
    fn what_is_cached_of_a_store_can_be_forgotten() {
        const LENGTH: usize = 4 << 20;
        let folder = Folder::new("forget");
        let blocks = Blocks::open(&folder.0.join("blocks"), Some(LENGTH as u64)).expect("opens");
        // Tmpfs and ramfs have only their pages.
        let kind = rustix::fs::fstatfs(&blocks.file).expect("it says").f_type;
        if [0x0102_1994, 0x8584_58f6].contains(&(kind as u64)) {
            eprintln!(
                "SKIPPED: {} is in memory, nothing of it is cached",
                folder.0.display()
            );
            return;
        }
        blocks.write_at(0, &vec![7; LENGTH]).expect("writes");
        blocks.flush().expect("flushes");
        let mut out = vec![0; LENGTH];
        if !blocks.read_cached(0, &mut out) {
            eprintln!(
                "SKIPPED: the file system of {} does not say what is cached",
                folder.0.display()
            );
            return;
        }
        blocks.forget_cached().expect("forgets");
        assert!(!blocks.read_cached(0, &mut out), "all of it is still there");
        out.fill(0);
        blocks.read_at(0, &mut out).expect("reads");
        assert!(out.iter().all(|byte| *byte == 7), "it was on the medium");

        // The same for the beginning only.
        let (log, rest) = out.split_at_mut(LENGTH / 2);
        assert!(
            blocks.read_cached(0, log) && blocks.read_cached(log.len() as u64, rest),
            "it was just read"
        );
        blocks.forget_first(log.len() as u64).expect("forgets");
        assert!(!blocks.read_cached(0, log), "all of it is still there");
        assert!(
            blocks.read_cached(log.len() as u64, rest),
            "and what is behind it is gone"
        );
        blocks.forget_first(0).expect("nothing");
        assert!(
            blocks.read_cached(log.len() as u64, rest),
            "no byte is not every byte"
        );
    }

    pub(super) fn run(offset: u64, fill: u8, length: usize) -> Run {
        Run {
            offset,
            data: vec![
                Bytes::from(vec![fill; 100]),
                vec![fill; length - 100].into(),
            ],
        }
    }

    /// A commit of one run, directly and where that is refused, and of several; over content that
    /// is dirty, clean and not in the page cache.
    #[test]
    fn commits_and_writes_through_the_page_cache_see_each_other() {
        let folder = Folder::new("commits");
        let blocks = Blocks::open(&folder.0.join("blocks"), Some(4 << 20)).expect("opens");
        let read = |offset: u64| {
            let mut out = vec![0; 8192];
            blocks.read_at(offset, &mut out).expect("reads");
            out
        };
        for round in 0..8_u8 {
            blocks.write_at(0, &[100; 20_000]).expect("writes");
            if round % 2 == 1 {
                blocks.flush().expect("flushes");
            }
            if round == 4 {
                blocks.direct_refused.store(true, Ordering::Relaxed);
            }
            blocks.commit(&[run(4096, round, 8192)]).expect("commits");
            assert_eq!(read(4096), [round; 8192], "round {round}");
            assert_eq!(read(0)[..4096], [100; 4096]);
            let both = [run(1 << 20, round, 4096), run(4096, round + 50, 8192)];
            blocks.commit(&both).expect("commits");
            assert_eq!(read(4096), [round + 50; 8192], "round {round}");
            assert_eq!(read(1 << 20)[..4096], [round; 4096]);
        }
        for writes in [
            vec![run(4 << 20, 1, 4096)],
            vec![run(0, 1, 4096), run(4 << 20, 1, 4096)],
        ] {
            let past_the_end = blocks.commit(&writes);
            assert!(
                matches!(past_the_end, Err(DeviceError::OutOfRange { .. })),
                "{past_the_end:?}"
            );
        }
    }

    /// A disk that refuses (sectors of 4 KiB, memory that it cannot reach) costs one attempt, not
    /// the write.
    #[test]
    fn a_refused_direct_write_is_made_through_the_page_cache() {
        let folder = Folder::new("refused");
        let blocks = Blocks::open(&folder.0.join("blocks"), Some(4 << 20)).expect("opens");
        // Refused by every file system that supports direct writes: here this stands for a disk
        // with a larger alignment.
        assert!(
            blocks.write_past_cache(0, &[memory(1, 4)], LARGE).is_none(),
            "memory at an odd address"
        );
        let data = [memory(0, 5)];
        assert!(
            blocks.write_past_cache(0, &data, LARGE).is_none(),
            "not tried again"
        );
        blocks.write_segments(0, &data).expect("writes");
        let mut out = vec![0; LARGE];
        blocks.read_at(0, &mut out).expect("reads");
        assert!(out.iter().all(|byte| *byte == 5));
    }

    /// The faults of `faults.rs`, in a file beside the store.
    pub(super) fn meet(folder: &Folder, line: &str) {
        std::fs::write(folder.0.join("blocks.faults"), line).expect("writable");
    }

    /// Planted: the error of a flush was swallowed, and every later write was answered though
    /// nothing had reached the disk.
    #[test]
    fn an_error_of_any_call_reaches_who_asked() {
        let folder = Folder::new("errors");
        let blocks = Blocks::open(&folder.0.join("blocks"), Some(4 << 20)).expect("opens");
        let data = |length: usize| vec![Bytes::from(vec![1; length])];
        type Make<'a> = &'a dyn Fn() -> Result<(), DeviceError>;
        let calls: [(&str, Make<'_>); 8] = [
            ("read", &|| {
                blocks
                    .run(IoKind::Read {
                        offset: 0,
                        length: 4096,
                    })
                    .map(drop)
            }),
            ("read", &|| blocks.read_at(0, &mut [0; 4096])),
            ("write", &|| {
                blocks
                    .run(IoKind::Write {
                        offset: 0,
                        data: data(4096),
                    })
                    .map(drop)
            }),
            ("write", &|| {
                blocks
                    .run(IoKind::Write {
                        offset: 0,
                        data: vec![memory(0, 1)],
                    })
                    .map(drop)
            }),
            ("write", &|| {
                blocks
                    .write_now(0, &data(4096))
                    .expect("nobody is in the way")
            }),
            ("flush", &|| blocks.run(IoKind::Flush).map(drop)),
            ("discard", &|| {
                blocks
                    .run(IoKind::Discard {
                        offset: 0,
                        length: 4096,
                    })
                    .map(drop)
            }),
            ("forget", &|| blocks.forget_cached()),
        ];
        for (n, (call, make)) in calls.iter().enumerate() {
            assert_eq!(make(), Ok(()), "{call} {n}");
            meet(&folder, &format!("blocks {call} error 5"));
            assert_eq!(make(), Err(failed(Errno::IO)), "{call} {n}");
            meet(&folder, "");
        }
        let workers = crate::workers::Workers::new(1).expect("threads");
        let mailbox = Mailbox::new(Arc::new(
            crate::wake::Waker::new().expect("an event descriptor"),
        ));
        mailbox.set_lone(true);
        let mut device = FileDevice::new(Arc::new(blocks), workers.handle(), mailbox);
        meet(&folder, "blocks flush error 5");
        assert_eq!(
            device.at_once(&mut IoKind::Flush),
            Some(Err(failed(Errno::IO))),
            "on the reactor's thread"
        );
    }

    /// A file that was truncated by another process: the missing part is neither read as zeros nor
    /// as the previous content of the buffer.
    #[test]
    fn a_short_read_is_an_error() {
        let folder = Folder::new("short");
        let path = folder.0.join("blocks");
        let blocks = Blocks::open(&path, Some(1 << 20)).expect("opens");
        blocks.write_at(0, &[7; 8192]).expect("writes");
        File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(8192))
            .expect("cut");
        let mut out = vec![0; 8192];
        assert!(
            blocks.read_cached(0, &mut out) && out == [7; 8192],
            "it is in the page cache"
        );
        assert!(!blocks.read_cached(4096, &mut out), "half of it");
        let short = DeviceError::OutOfRange {
            offset: 8192,
            length: 4096,
            device: 8192,
        };
        assert_eq!(blocks.read_at(4096, &mut out), Err(short));
    }

    /// More pieces than one call takes, for each way of writing.
    #[test]
    fn many_pieces_lie_one_behind_the_other() {
        let folder = Folder::new("pieces");
        let blocks = Blocks::open(&folder.0.join("blocks"), Some(32 << 20)).expect("opens");
        for (at, length) in [(0, 100), (8 << 20, 4096), (4096, 5000)] {
            let whole: Vec<u8> = (0..SEGMENTS_MAX * 2 + 76)
                .flat_map(|n| vec![(n % 251) as u8; length])
                .collect();
            let mut aligned = BytesMut::zeroed(whole.len() + 4096);
            let start = aligned.as_ptr().align_offset(4096);
            aligned[start..start + whole.len()].copy_from_slice(&whole);
            let bytes = aligned.freeze().slice(start..start + whole.len());
            let pieces: Vec<Bytes> = (0..whole.len() / length)
                .map(|n| bytes.slice(n * length..(n + 1) * length))
                .collect();
            assert_eq!(lies_for_disk(at, &pieces), length == 4096);
            blocks.write_segments(at, &pieces).expect("writes");
            let mut out = vec![0; whole.len()];
            blocks.read_at(at, &mut out).expect("reads");
            assert!(out == whole, "pieces of {length}");
        }
    }

    /// A write without space uses the reserve, piece by piece; if that is not enough the device
    /// remembers it.
    #[test]
    fn a_write_without_space_takes_the_reserve_and_says_when_there_is_none() {
        let folder = Folder::new("reserve");
        let blocks = Blocks::open(&folder.0.join("blocks"), Some(4 << 20)).expect("opens");
        let reserve = || {
            folder
                .0
                .join("blocks.reserve")
                .metadata()
                .expect("it is there")
                .len()
        };
        let before = reserve();
        assert!(!blocks.uses_reserve() && !blocks.ran_out());
        meet(&folder, "blocks write error 28");
        assert_eq!(blocks.write_at(0, &[1; 4096]), Err(failed(Errno::NOSPC)));
        assert!(blocks.ran_out() && blocks.uses_reserve());
        assert!(
            before == 0 || reserve() == 0,
            "{before} bytes were there, {} are",
            reserve()
        );
        meet(&folder, "blocks flush error 28");
        assert!(blocks.flush().is_err());
    }
}
