//! The thread that flushes the log, so that the loop continues meanwhile.

use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::fdatasync;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// The interface of the loop to the thread.
pub struct Flusher {
    asked: Sender<()>,
    outcomes: Receiver<rustix::io::Result<()>>,
    event: OwnedFd,
}

impl Flusher {
    /// Starts it.
    ///
    /// # Errors
    /// When the kernel lacks the resources.
    pub fn start(file: File) -> Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .context("creating an event")?;
        let signal = event.try_clone().context("sharing an event")?;
        let (asked, requests) = channel();
        let (done, outcomes) = channel();
        let work = move || {
            // It ends when the loop does.
            while requests.recv().is_ok() && done.send(fdatasync(&file)).is_ok() {
                if rustix::io::write(&signal, &1_u64.to_ne_bytes()).is_err() {
                    break;
                }
            }
        };
        thread::Builder::new()
            .name("flusher".into())
            .spawn(work)
            .context("starting a thread")?;
        Ok(Self {
            asked,
            outcomes,
            event,
        })
    }

    /// Fires when a flush has ended.
    pub const fn event(&self) -> &OwnedFd {
        &self.event
    }

    /// Requests a flush.
    ///
    /// # Errors
    /// When the thread has ended.
    pub fn flush(&self) -> Result<()> {
        self.asked.send(()).context("the flusher has ended")
    }

    /// Result of the flush whose end the event signalled.
    ///
    /// # Errors
    /// When it failed.
    pub fn outcome(&self) -> Result<()> {
        self.outcomes
            .recv()
            .context("the flusher has ended")?
            .context("flushing the log")
    }
}
