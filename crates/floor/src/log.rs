//! The log of an OSD: updates are written in groups, one flush for all of a group.
//!
//! ```text
//!  add … ─▶ waiting ──company is there──▶ in flight ──flushed──▶ durable
//!                 a group of one: written past the page cache by the loop itself, durable at once
//! ```
//! A group consists of a header with all records, padded to whole blocks, followed by the payloads.
//! Short payloads are stored in the records. The file is used as a ring and has its full size from
//! the beginning, so that a flush has no metadata to write.

use crate::OSDS;
use crate::company::{Company, Verdict};
use crate::flusher::Flusher;
use crate::frame::{BODY_MAX, checksum};
use crate::memory::{Aligned, BLOCK, whole_blocks};
use crate::net::{Frame, Net, Received};
use anyhow::{Context, Result, ensure};
use rustix::io::{pwrite, pwritev};
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Size of the header before the records of a group.
const GROUP_HEAD: usize = 64;
/// Size of a record, which a short payload follows.
const RECORD: usize = BODY_MAX + 10;
/// Payloads up to this size are stored in the records.
const SHORT_MAX: usize = 512;
/// Maximum number of updates per group.
const GROUP_MAX: usize = 512;

/// The last version of each origin: an OSD's own updates, and those received from other primaries.
pub type Marks = [u64; OSDS];

/// Updates not yet assigned to a group.
#[derive(Default)]
struct Waiting {
    count: usize,
    marks: Marks,
    /// [`GROUP_HEAD`] bytes, and the records.
    records: Vec<u8>,
    /// Payloads that were copied, because their connection needs the buffer.
    held: Vec<u8>,
    /// Payloads still in their receive buffers.
    fresh: Vec<Received>,
}

/// See the module head.
pub struct Log {
    file: File,
    /// The same file, bypassing the page cache, where possible.
    direct: Option<File>,
    one: Aligned,
    flusher: Flusher,
    size: u64,
    position: u64,
    waiting: Waiting,
    in_flight: Option<(Marks, usize)>,
    begun: Instant,
    company: Company,
    durable: Marks,
    /// Groups so far.
    pub groups: u64,
    /// Updates in them.
    pub updates: u64,
}

impl Log {
    /// Opens the log in a file that already has its full size.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn open(file: File) -> Result<Self> {
        let size = file.metadata().context("looking at the log")?.len();
        ensure!(
            size >= ((GROUP_MAX + 64) * BLOCK) as u64,
            "a log of {size} bytes is too small"
        );
        Ok(Self {
            direct: crate::files::direct(&file, true),
            one: Aligned::zeroed(BLOCK * 4),
            flusher: Flusher::start(file.try_clone().context("sharing the log")?)?,
            file,
            size,
            position: 0,
            waiting: Waiting::default(),
            in_flight: None,
            begun: Instant::now(),
            company: Company::default(),
            durable: [0; OSDS],
            groups: 0,
            updates: 0,
        })
    }

    /// The event that signals the end of a flush: then call [`Self::flushed`].
    pub fn event(&self) -> &OwnedFd {
        self.flusher.event()
    }

    /// Where the next group will be.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// What is durable.
    pub const fn durable(&self) -> Marks {
        self.durable
    }

    /// Adds an update with the version that `origin` assigned.
    ///
    /// # Errors
    /// When too many updates are already waiting.
    pub fn add(&mut self, net: &Net, frame: &Frame, origin: usize, version: u64) -> Result<()> {
        let waiting = &mut self.waiting;
        ensure!(
            waiting.count < GROUP_MAX,
            "more than {GROUP_MAX} updates wait for the log"
        );
        if waiting.count == 0 {
            waiting.records.resize(GROUP_HEAD, 0);
        }
        let end = waiting.records.len() + RECORD;
        waiting.records.extend_from_slice(&version.to_le_bytes());
        waiting
            .records
            .extend_from_slice(net.bytes(frame.body_bytes));
        waiting.records.resize(end, 0);
        if frame.payload.len <= SHORT_MAX {
            waiting.records.extend_from_slice(net.bytes(frame.payload));
        } else {
            waiting.fresh.push(frame.payload);
        }
        waiting.count += 1;
        waiting.marks[origin] = version;
        Ok(())
    }

    /// Called when the flusher has signalled the end of a flush.
    ///
    /// # Errors
    /// When the flush failed.
    pub fn flushed(&mut self) -> Result<()> {
        self.flusher.outcome()?;
        let (marks, count) = self
            .in_flight
            .take()
            .context("a flush that was not asked for")?;
        self.ended(&marks, count);
        Ok(())
    }

    /// Writes a group if it is due. Returns the latest time for the next call.
    ///
    /// # Errors
    /// When the write fails.
    pub fn advance(&mut self, net: &Net) -> Result<Option<Instant>> {
        let mut again = None;
        if self.waiting.count > 0 && self.in_flight.is_none() {
            let now = Instant::now();
            match self.company.judge(self.waiting.count, now) {
                Verdict::Write => self.write(net, now)?,
                Verdict::WaitUntil(until) => again = Some(until),
            }
        }
        // Connections will overwrite the buffers of waiting payloads.
        for payload in self.waiting.fresh.drain(..) {
            self.waiting.held.extend_from_slice(net.bytes(payload));
        }
        Ok(again)
    }

    fn write(&mut self, net: &Net, now: Instant) -> Result<()> {
        self.begun = now;
        let mut group = std::mem::take(&mut self.waiting);
        group.pad(net);
        let payloads =
            group.held.len() + group.fresh.iter().map(|payload| payload.len).sum::<usize>();
        let whole = whole_blocks(group.records.len() + payloads);
        if self.position + whole as u64 > self.size {
            self.position = 0;
        }
        let at = self.position;
        self.position += whole as u64;
        group.seal(at);
        self.groups += 1;
        self.updates += group.count as u64;
        let alone = group.count == 1 && whole <= self.one.bytes().len();
        if let Some(direct) = self.direct.as_ref().filter(|_| alone) {
            let block = &mut self.one.bytes_mut()[..whole];
            gather(block, group.pieces(net));
            let written = pwrite(direct, block, at).context("writing to the log")?;
            ensure!(written == whole, "the log took {written} of {whole} bytes");
            self.ended(&group.marks, group.count);
        } else {
            let padding = [0; BLOCK];
            let rest = whole - group.records.len() - payloads;
            let slices: Vec<IoSlice> = group
                .pieces(net)
                .chain([&padding[..rest]])
                .map(IoSlice::new)
                .collect();
            let written = pwritev(&self.file, &slices, at).context("writing to the log")?;
            ensure!(written == whole, "the log took {written} of {whole} bytes");
            self.flusher.flush()?;
            self.in_flight = Some((group.marks, group.count));
        }
        // Its memory is reused.
        group.clear();
        self.waiting = group;
        Ok(())
    }

    fn ended(&mut self, marks: &Marks, count: usize) {
        for (durable, mark) in self.durable.iter_mut().zip(marks) {
            *durable = (*durable).max(*mark);
        }
        self.company
            .ended(count, self.waiting.count, self.begun.elapsed());
    }
}

impl Waiting {
    /// Pads the records to whole blocks if payloads follow.
    fn pad(&mut self, net: &Net) {
        if self.pieces(net).nth(1).is_some() {
            self.records.resize(whole_blocks(self.records.len()), 0);
        }
    }

    /// Fills in the header.
    fn seal(&mut self, position: u64) {
        self.records[8..16].copy_from_slice(&position.to_le_bytes());
        self.records[16..24].copy_from_slice(&(self.count as u64).to_le_bytes());
        for (to, mark) in self.records[24..48].chunks_exact_mut(8).zip(self.marks) {
            to.copy_from_slice(&mark.to_le_bytes());
        }
        // The checksums of the payloads are in their records.
        let crc = checksum(&self.records[8..]);
        self.records[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// All parts in the order in which they are written.
    fn pieces<'a>(&'a self, net: &'a Net) -> impl Iterator<Item = &'a [u8]> {
        let held = Some(&self.held[..]).filter(|held| !held.is_empty());
        let fresh = self.fresh.iter().map(|payload| net.bytes(*payload));
        std::iter::once(&self.records[..]).chain(held).chain(fresh)
    }

    fn clear(&mut self) {
        (self.count, self.marks) = (0, [0; OSDS]);
        self.records.clear();
        self.held.clear();
        self.fresh.clear();
    }
}

fn gather<'a>(to: &mut [u8], pieces: impl Iterator<Item = &'a [u8]>) {
    let mut at = 0;
    for piece in pieces {
        to[at..at + piece.len()].copy_from_slice(piece);
        at += piece.len();
    }
    to[at..].fill(0);
}
