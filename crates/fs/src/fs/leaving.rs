//! The end of a client: it closes what it has open for writing, and leaves when that is in its
//! servers' journals (CEPH-03, -23).
//!
//! ```text
//!  Stopping ─▶ delayed writes are done ─▶ Close of each file ─▶ answered, safe ─▶ FsLeave
//!                    └──────────── LEAVE_MAX, or fenced ───────────────────────────▶ FsLeave
//! ```
//! A server treats a client that leaves with files open for writing like one that died: it fences
//! it at the OSDs, examines the files' objects, and sets their modification time. So times set by a
//! program would be lost, although it had closed its files long before.
//!
//! Invariant: nothing is sent to a server after [`FsLeave`](nacre_wire::msg::fs::FsLeave).

#[cfg(test)]
#[path = "leaving_test.rs"]
mod tests;

use super::*;

/// How long it may take: after a takeover, servers answer within that time.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// The progress of leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    No,
    /// It leaves when everything is closed, or at this time.
    By(Time),
    Gone,
}

impl Fs {
    pub(super) fn is_stopping(&self) -> bool {
        self.leaving != Leaving::No
    }
    /// It was told to stop.
    pub(super) fn begin_leaving(&mut self) {
        if !self.is_stopping() {
            self.leaving = Leaving::By(self.now + LEAVE_MAX);
            self.closed_at = self.now;
        }
    }
    /// When it leaves, finished or not.
    pub(super) fn leaves_by(&self) -> Time {
        match self.leaving {
            Leaving::By(at) => at,
            Leaving::No | Leaving::Gone => Time::MAX,
        }
    }

    /// Closes files that no caller will close any more: once no call is left that may need them.
    pub(super) fn close_for_leaving(&mut self) {
        if self.leaves_by() == Time::MAX || self.has_calls_of_files() {
            return;
        }
        for (ino, file) in &self.files {
            for _ in file.closing[1]..file.opens[1] {
                let close = FsCall::Close {
                    ino: *ino,
                    write: true,
                    size: 0,
                    mtime: Stamp::default(),
                };
                self.queue
                    .push_back(rank_of(*ino), ANSWERED, Ask::Names(close));
            }
        }
    }
    /// Whether a call that may concern a file's data or names has not ended.
    fn has_calls_of_files(&self) -> bool {
        let is_call = |purpose: &Purpose| match purpose {
            Purpose::Call(_)
            | Purpose::Opened(_)
            | Purpose::Part(..)
            | Purpose::Closed(..)
            | Purpose::Resized(..)
            | Purpose::Extended(..)
            | Purpose::Written(..)
            | Purpose::Propagated(..)
            | Purpose::Grown(..)
            | Purpose::Sized(..)
            | Purpose::Room(..)
            | Purpose::CopyGrown(_) => true,
            // A lock may be waited for as long as this client exists.
            Purpose::Lock(_)
            | Purpose::Alone(_)
            | Purpose::Growing(_)
            | Purpose::Told(_)
            | Purpose::Said
            | Purpose::Ahead(_)
            | Purpose::Foretold(..)
            | Purpose::Here { .. }
            | Purpose::Numbers(_) => false,
        };
        let waits =
            |file: &File| !file.waiting.is_empty() || file.writes > 0 || !file.exclusive.is_empty();
        self.queue.len() + self.throttled.len() + self.transfers.len() + self.readers.len() > 0
            || self.delegated.has_calls()
            || self.files.values().any(waits)
            || self.purposes.values().any(is_call)
    }
    /// Leaves if nothing is left to do, or there is no more time.
    pub(super) fn leave(&mut self, out: &mut Vec<Output>) {
        let Leaving::By(at) = self.leaving else {
            return;
        };
        if self.now < at && self.owes() {
            // Answers would otherwise wait for the journal.
            self.sessions.hurry_all(out);
            return;
        }
        self.sessions.leave(out);
        self.leaving = Leaving::Gone;
    }
    /// Whether servers lack some of what was written or changed here.
    #[nacre_types::planted]
    fn owes(&self) -> bool {
        let writes =
            |file: &File| file.opens[1] > 0 || file.dirty.is_some() || !file.flushes.is_empty();
        self.files.values().any(writes) || self.cache.dirty() > 0 || self.sessions.owe_changes()
    }
}
