//! The host's part: one file or block device, with two interfaces.
//!
//! [`Device`] is asynchronous (submit, then poll for completions) and carries the write-ahead log
//! and object data. [`BlockingDevice`] accesses the same bytes from code that runs inside a
//! [`crate::Job`] or before the store is open.
//!
//! The contract, which is all that the store relies on:
//! 1. Operations in flight may complete, and reach the medium, in any order.
//! 2. A flush that succeeds makes durable exactly the writes that had *completed* before it was
//!    submitted, through either trait. Writes in flight at that moment may or may not be durable.
//! 3. A commit that succeeds has made its own writes durable, and no other. Until it ends, and
//!    after it has failed, each of its writes may be durable or not.
//! 4. After a power cut, a write that was not made durable may be on the medium completely, partly
//!    or not at all; its parts are 512-byte sectors, and a sector is never a mixture.
//! 5. A write never changes bytes outside its range.
//! 6. After a write, flush or commit has failed, the state of the medium is unknown: the store
//!    stops and never retries. The next start calls [`BlockingDevice::forget_cached`] before it
//!    reads: a system that failed to write a page may still return it from its cache.
//! 7. A discarded range reads as anything until it is written again. Nothing else changes.

use bytes::Bytes;
use std::fmt;

/// Identifies one operation in flight; chosen by the store, unique among those in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// One operation on the device. Offsets and lengths are in bytes and multiples of 4096.
#[derive(Clone, Debug)]
pub enum IoKind {
    /// Reads `length` bytes from `offset`.
    Read {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: usize,
    },
    /// Writes the segments, one after the other, from `offset`.
    Write {
        /// First byte.
        offset: u64,
        /// The payload, as the segments it arrived in.
        data: Vec<Bytes>,
    },
    /// Makes every write completed so far durable.
    Flush,
    /// Writes each run and makes them durable, in any order. The ranges are disjoint, and no other
    /// write to them is in flight.
    Commit {
        /// At least one.
        writes: Vec<Run>,
    },
    /// These bytes are no longer needed: the host may reclaim their space. A failure means that it
    /// did not.
    Discard {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
}

/// Segments that are written one after the other.
#[derive(Clone, Debug)]
pub struct Run {
    /// First byte.
    pub offset: u64,
    /// The payload, as the segments it arrived in.
    pub data: Vec<Bytes>,
}

impl Run {
    /// In bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.data.iter().map(Bytes::len).sum()
    }
}

/// An operation and its id.
#[derive(Clone, Debug)]
pub struct Io {
    /// Returned with the completion.
    pub id: IoId,
    /// The operation.
    pub kind: IoKind,
}

/// A completion.
#[derive(Clone, Debug)]
pub struct IoDone {
    /// The operation's id.
    pub id: IoId,
    /// The bytes read (exactly as many as requested), or nothing for writes and flushes.
    pub result: Result<Bytes, DeviceError>,
}

/// Why a device operation failed. Writes and flushes are never retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// The operating system reported this error number (`EIO`, `ENOSPC` …). 0 when it gave none.
    Os(i32),
    /// The range is not within the device: it was shrunk or replaced.
    OutOfRange {
        /// First byte requested.
        offset: u64,
        /// Number of bytes requested.
        length: u64,
        /// Size of the device in bytes.
        device: u64,
    },
    /// The power is off (test devices only).
    PowerCut,
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os(0) => f.write_str("the system gives no reason"),
            Self::Os(code) => write!(f, "{}", std::io::Error::from_raw_os_error(*code)),
            Self::OutOfRange {
                offset,
                length,
                device,
            } => {
                write!(
                    f,
                    "bytes {offset}+{length} lie outside the device of {device} bytes"
                )
            }
            Self::PowerCut => f.write_str("the power was cut"),
        }
    }
}
impl std::error::Error for DeviceError {}

/// The asynchronous interface: used from the store's own thread.
pub trait Device {
    /// Starts an operation. It may complete inside this call (a read from the page cache); the
    /// completion is still returned by the next [`Device::poll`].
    fn submit(&mut self, io: Io);
    /// Appends the completions since the last call. Never blocks.
    fn poll(&mut self, done: &mut Vec<IoDone>);
    /// Size in bytes. Constant while the store is open.
    fn length(&self) -> u64;
}

/// The blocking interface: used on a worker thread by jobs, and by format, open and check.
pub trait BlockingDevice: Send + Sync + fmt::Debug {
    /// Fills `out` from `offset`.
    ///
    /// # Errors
    /// The device's error; `out` is then unspecified.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), DeviceError>;
    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// The device's error; the range is then unspecified.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError>;
    /// Makes every write completed so far, through either interface, durable.
    ///
    /// # Errors
    /// The device's error; never to be retried.
    fn flush(&self) -> Result<(), DeviceError>;
    /// From now on reads return the contents of the medium, not of a cache. Called once, after a
    /// flush, before a store is read.
    ///
    /// # Errors
    /// The system's error.
    fn forget_cached(&self) -> Result<(), DeviceError> {
        Ok(())
    }
    /// Size in bytes.
    fn length(&self) -> u64;
}
