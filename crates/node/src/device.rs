//! A file or block device as the store wants it.
//!
//! ```text
//!  read   page cache has it ──preadv2(NOWAIT), here──▶ done        it has not ──▶ worker
//!  write  small ──pwritev into the page cache, here──▶ done        large ───────▶ worker
//!  flush  ──▶ worker: fdatasync
//! ```
//! A small write costs less than the hand-over to a worker would, and it saves one wake-up per group commit; it can wait for the
//! kernel only when dirty pages exceed the kernel's bounds, which the flush that follows every log write prevents.
//! Segments are written as they are (`pwritev`): no byte is copied by us. An error is reported, never retried; interruptions and short
//! counts are continued. The file or device itself is locked while a daemon has it open, whatever folder and name it was found by.

use crate::workers::{Mailbox, Task, WorkersHandle};
use bytes::{Bytes, BytesMut};
use nacre_store::{BlockingDevice, Device, DeviceError, Io, IoDone, IoKind};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::{File, TryLockError};
use std::io::{IoSlice, IoSliceMut, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Longest write that is made on the reactor's thread.
const INLINE_WRITE_MAX: usize = 256 << 10;
/// A store that somebody has open is waited for this often, half a second in all.
const LOCK_TRIES: u32 = 100;
const BETWEEN_LOCK_TRIES: Duration = Duration::from_millis(5);
/// Most segments of one system call.
const SEGMENTS_MAX: usize = 1024;

/// The bytes of one file or block device.
#[derive(Debug)]
pub struct Blocks {
    file: File,
    length: u64,
}

fn failed(errno: Errno) -> DeviceError {
    DeviceError::Os(errno.raw_os_error())
}

impl Blocks {
    /// Opens a device for this process alone; `create` makes a file of that many bytes (sparse) or keeps a longer one.
    ///
    /// # Errors
    /// The operating system's; `WouldBlock` when somebody has it open as a store.
    pub fn open(path: &Path, create: Option<u64>) -> std::io::Result<Self> {
        let mut file = File::options().read(true).write(true).create(create.is_some()).truncate(false).open(path)?;
        // A daemon that was killed inside this process may still have a write on a worker: whoever opens its store next must come after it.
        for tried in 1.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if tried < LOCK_TRIES => std::thread::sleep(BETWEEN_LOCK_TRIES),
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
        // Also right for block devices, whose metadata says 0.
        let length = file.seek(SeekFrom::End(0))?;
        Ok(Self { file, length })
    }

    /// Opens a device to look at it while nobody writes to it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_to_read(path: &Path) -> std::io::Result<Self> {
        let mut file = File::open(path)?;
        file.try_lock_shared()?;
        let length = file.seek(SeekFrom::End(0))?;
        Ok(Self { file, length })
    }

    fn check(&self, offset: u64, length: usize) -> Result<(), DeviceError> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.length => Ok(()),
            _ => Err(DeviceError::OutOfRange { offset, length: length as u64, device: self.length }),
        }
    }

    /// Reads what the page cache has; `None` if that is not all of it.
    fn read_cached(&self, offset: u64, out: &mut [u8]) -> bool {
        let want = out.len();
        let got = rustix::io::preadv2(&self.file, &mut [IoSliceMut::new(out)], offset, ReadWriteFlags::NOWAIT);
        got == Ok(want)
    }

    fn write_segments(&self, mut offset: u64, data: &[Bytes]) -> Result<(), DeviceError> {
        self.check(offset, data.iter().map(Bytes::len).sum())?;
        for batch in data.chunks(SEGMENTS_MAX) {
            let mut slices: Vec<IoSlice<'_>> = batch.iter().map(|segment| IoSlice::new(segment)).collect();
            let mut rest = &mut slices[..];
            while !rest.is_empty() {
                match rustix::io::pwritev(&self.file, rest, offset) {
                    Ok(0) => return Err(DeviceError::Os(Errno::NOSPC.raw_os_error())),
                    Ok(count) => {
                        offset += count as u64;
                        IoSlice::advance_slices(&mut rest, count);
                    }
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(failed(errno)),
                }
            }
        }
        Ok(())
    }

    /// Does one operation, blocking.
    pub fn run(&self, kind: IoKind) -> Result<Bytes, DeviceError> {
        match kind {
            IoKind::Read { offset, length } => {
                let mut out = BytesMut::zeroed(length);
                self.read_at(offset, &mut out)?;
                Ok(out.freeze())
            }
            IoKind::Write { offset, data } => self.write_segments(offset, &data).map(|()| Bytes::new()),
            IoKind::Flush => self.flush().map(|()| Bytes::new()),
        }
    }
}

impl BlockingDevice for Blocks {
    fn read_at(&self, mut offset: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        self.check(offset, out.len())?;
        let mut rest = out;
        while !rest.is_empty() {
            match rustix::io::pread(&self.file, &mut *rest, offset) {
                Ok(0) => {
                    let length = rest.len() as u64;
                    return Err(DeviceError::OutOfRange { offset, length, device: offset });
                }
                Ok(count) => {
                    offset += count as u64;
                    rest = &mut rest[count..];
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(())
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.check(offset, data.len())?;
        let (mut offset, mut rest) = (offset, data);
        while !rest.is_empty() {
            match rustix::io::pwrite(&self.file, rest, offset) {
                Ok(0) => return Err(DeviceError::Os(Errno::NOSPC.raw_os_error())),
                Ok(count) => {
                    offset += count as u64;
                    rest = &rest[count..];
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(())
    }
    fn flush(&self) -> Result<(), DeviceError> {
        loop {
            match rustix::fs::fdatasync(&self.file) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
    }
    fn length(&self) -> u64 {
        self.length
    }
}

/// The asynchronous face of [`Blocks`].
pub struct FileDevice {
    blocks: Arc<Blocks>,
    workers: WorkersHandle,
    mailbox: Arc<Mailbox>,
    done: Vec<IoDone>,
}

impl FileDevice {
    pub fn new(blocks: Arc<Blocks>, workers: WorkersHandle, mailbox: Arc<Mailbox>) -> Self {
        Self { blocks, workers, mailbox, done: Vec::new() }
    }

    fn at_once(&self, kind: &IoKind) -> Option<Result<Bytes, DeviceError>> {
        match kind {
            IoKind::Read { offset, length } => {
                let mut out = BytesMut::zeroed(*length);
                self.blocks.read_cached(*offset, &mut out).then(|| Ok(out.freeze()))
            }
            IoKind::Write { offset, data } => {
                let small = data.iter().map(Bytes::len).sum::<usize>() <= INLINE_WRITE_MAX;
                small.then(|| self.blocks.write_segments(*offset, data).map(|()| Bytes::new()))
            }
            IoKind::Flush => None,
        }
    }
}

impl Device for FileDevice {
    fn submit(&mut self, io: Io) {
        if let Some(result) = self.at_once(&io.kind) {
            self.done.push(IoDone { id: io.id, result });
            self.mailbox.set_ready();
        } else {
            self.workers.begin(Task::Io { blocks: self.blocks.clone(), io, to: self.mailbox.clone() });
        }
    }
    fn poll(&mut self, done: &mut Vec<IoDone>) {
        done.append(&mut self.done);
        self.mailbox.take_ios(done);
    }
    fn length(&self) -> u64 {
        self.blocks.length
    }
}
