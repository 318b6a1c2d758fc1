//! The thread that writes pieces: bypassing the page cache, several with one call, one flush for
//! all that are ready.

use crate::memory::Aligned;
use crate::stream::PIECE;
use anyhow::{Context, Result, ensure};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::fdatasync;
use rustix::io::pwritev;
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Maximum number of pieces per call.
const CALL_MAX: usize = 16;

/// A piece to be written.
struct Job {
    slot: u64,
    data: Arc<Aligned>,
    /// The OSD that assigned the version, and the version.
    mark: (usize, u64),
}

/// The interface of the loop to the thread.
pub struct Disk {
    jobs: Sender<Job>,
    outcomes: Receiver<Result<Vec<(usize, u64)>>>,
    event: OwnedFd,
    slots: u64,
    next: u64,
}

impl Disk {
    /// Starts it on a file that already has its full size.
    ///
    /// # Errors
    /// When the thread does not start.
    pub fn start(file: File) -> Result<Self> {
        let slots = file.metadata().context("looking at the data file")?.len() / PIECE as u64;
        ensure!(slots > 0, "the data file is too small for a piece");
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .context("creating an event")?;
        let signal = event.try_clone().context("sharing an event")?;
        let (jobs, work) = channel::<Job>();
        let (done, outcomes) = channel();
        let file = crate::files::direct(&file, false).unwrap_or(file);
        let run = move || {
            while let Ok(first) = work.recv() {
                let jobs: Vec<Job> = std::iter::once(first).chain(work.try_iter()).collect();
                let outcome = write(&file, &jobs);
                // The loop may reuse their memory as soon as it is notified.
                let marks = jobs.iter().map(|job| job.mark).collect();
                drop(jobs);
                let told = done.send(outcome.map(|()| marks)).is_ok();
                if !told || rustix::io::write(&signal, &1_u64.to_ne_bytes()).is_err() {
                    break;
                }
            }
        };
        thread::Builder::new()
            .name("disk".into())
            .spawn(run)
            .context("starting a thread")?;
        Ok(Self {
            jobs,
            outcomes,
            event,
            slots,
            next: 0,
        })
    }

    /// Fires when pieces have become durable.
    pub const fn event(&self) -> &OwnedFd {
        &self.event
    }

    /// Writes a piece.
    ///
    /// # Errors
    /// When the thread has ended.
    pub fn write(&mut self, data: Arc<Aligned>, mark: (usize, u64)) -> Result<()> {
        let slot = self.next % self.slots;
        self.next += 1;
        self.jobs
            .send(Job { slot, data, mark })
            .ok()
            .context("the disk's thread has ended")
    }

    /// Reports the pieces that have become durable since the last call.
    ///
    /// # Errors
    /// When a write failed.
    pub fn durable(&self, mut each: impl FnMut(usize, u64)) -> Result<usize> {
        let mut groups = 0;
        for outcome in self.outcomes.try_iter() {
            groups += 1;
            for (origin, version) in outcome? {
                each(origin, version);
            }
        }
        Ok(groups)
    }
}

fn write(file: &File, jobs: &[Job]) -> Result<()> {
    // Neighbours, except at the wrap of the file.
    for run in jobs
        .chunk_by(|one, next| next.slot == one.slot + 1)
        .flat_map(|run| run.chunks(CALL_MAX))
    {
        let slices: Vec<IoSlice> = run
            .iter()
            .map(|job| IoSlice::new(job.data.bytes()))
            .collect();
        let written =
            pwritev(file, &slices, run[0].slot * PIECE as u64).context("writing pieces")?;
        ensure!(
            written == run.len() * PIECE,
            "the disk took {written} bytes of {} pieces",
            run.len()
        );
    }
    fdatasync(file).context("flushing pieces")
}
