//! Work that needs blocking I/O and therefore leaves the store's thread: index lookups and
//! checkpoints.
//!
//! A host runs jobs on worker threads; the simulator runs them at any time, reorders them, and
//! crashes inside them. The only output of a job for the store is its [`JobDone`].

use crate::index::{IndexError, Merged, Scanned};
use crate::store::ScanFor;
use bytes::Bytes;
use std::fmt;

/// The work of a job; private to the store that created it.
pub(crate) trait Work: Send {
    /// Does the work, blocking.
    fn run(self: Box<Self>) -> Outcome;
    /// One word for logs.
    fn name(&self) -> &'static str;
}

/// The result of a job; private to the store that created it.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Records by key. `generation` identifies results from before a checkpoint.
    Found {
        generation: u64,
        keys: Vec<Bytes>,
        found: Result<Vec<Option<Bytes>>, IndexError>,
    },
    /// Records by range.
    Scanned {
        generation: u64,
        scan: ScanFor,
        from: Bytes,
        found: Result<Scanned, IndexError>,
    },
    /// The checkpoint is durable, or failed.
    Checkpointed(Result<Merged, IndexError>),
    /// Bytes of the records under an object's number.
    Weighed {
        number: u64,
        weight: Result<u64, IndexError>,
    },
}

/// One piece of blocking work.
pub struct Job {
    pub(crate) id: u64,
    pub(crate) work: Box<dyn Work>,
}

impl Job {
    /// Does the work; may block on the device.
    #[must_use]
    pub fn run(self) -> JobDone {
        JobDone {
            id: self.id,
            outcome: self.work.run(),
        }
    }
    /// Its number: jobs of one store are numbered in the order of their creation.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }
    /// One word for logs: `lookup`, `scan`, `weigh` or `checkpoint`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.work.name()
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({} {})", self.id, self.name())
    }
}

/// A finished job, to be passed to [`crate::ObjectStore::on_job`] of the store that it came from.
#[derive(Debug)]
pub struct JobDone {
    pub(crate) id: u64,
    pub(crate) outcome: Outcome,
}

impl JobDone {
    /// Number of the job it came from.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }
}
