//! Records in the journal which client has which file open for writing (see [`crate::writers`]).
//!
//! ```text
//!  first Open or Make for writing ─▶ Writer here ─▶ answered as early: safe when that is
//!  Wrote with a time, by a client with delayed writes, alone ─▶ wrote; until Comply, or until times are set
//!  last Close ─▶ gone     reported in a greeting ─▶ here     caught up, and not reported ─▶ gone
//! ```
//! Invariant: a client that was told that its opening is safe is known to the rank's next holder,
//! until its session ends, as one that may have written the file.

use super::*;
use nacre_wire::msg::fs::FS_LARGER_ONLY;

impl Mds {
    /// A client has opened or closed a file.
    pub(super) fn record(&mut self, client: ClientId, ino: Ino) {
        match (self.caps.writes(client, ino), self.writers.has(client, ino)) {
            (true, false) => self.record_open(client, ino, None),
            (false, true) => self.record_close(client, ino),
            _ => {}
        }
    }
    /// A client can no longer be writing a file.
    pub(super) fn record_close(&mut self, client: ClientId, ino: Ino) {
        if let Some((writer, since)) = self.writers.close(client, ino, self.journal.number()) {
            self.journal.push_writer(writer, since);
        }
    }
    /// `place`: where its client saw it last.
    fn record_open(&mut self, client: ClientId, ino: Ino, place: Option<(Ino, Name)>) {
        let batch = self.journal.number();
        let known = self.tree.place(ino).map(|(dir, name)| (dir, name.clone()));
        let writer = self.writers.open(client, ino, known.or(place), batch);
        self.journal.push_writer(writer, batch);
    }
    /// Files that a client reports to this holder for the first time.
    pub(super) fn record_opens(&mut self, client: ClientId, opens: &[FsOpens]) {
        for open in opens.iter().filter(|open| open.writes > 0) {
            if !self.writers.has(client, open.ino) {
                let place = open.place.clone().map(|place| (place.dir, place.name));
                self.record_open(client, open.ino, place);
            }
        }
    }
    /// A client has resent everything that was not safe: what it does not have open is closed.
    pub(super) fn forget_closed(&mut self, client: ClientId) {
        for ino in self.writers.of(client) {
            self.record(client, ino);
        }
    }
    /// A client may have reported that it has written a file, or that its delayed writes have
    /// ended.
    pub(super) fn note_written(&mut self, client: ClientId, call: &FsCall, failed: bool) {
        let (ino, wrote) = match call {
            FsCall::Wrote {
                mtime: FS_LARGER_ONLY,
                ..
            } => return,
            FsCall::Wrote { ino, .. } => (*ino, true),
            // It reports again when it writes data that is to count.
            FsCall::Set { ino, changes } if changes.mtime.is_some() && !failed => (*ino, false),
            FsCall::Comply {
                ino, written: true, ..
            } => (*ino, false),
            _ => return,
        };
        if wrote && (failed || !self.caps.buffers(client, ino)) {
            return;
        }
        if let Some((writer, since)) = self
            .writers
            .wrote(client, ino, wrote, self.journal.number())
        {
            self.journal.push_writer(writer, since);
        }
    }
    /// The batch that must be safe before a client has a file alone: it records that the client's
    /// writes count when they are reported, and not before.
    pub(super) fn before_alone(&self, client: ClientId, call: &FsCall) -> Option<u64> {
        let FsCall::Alone { ino, ends: false } = call else {
            return None;
        };
        self.writers
            .last(client, *ino)
            .filter(|batch| *batch >= self.journal.safe())
    }
    /// The batch that records that a client has a file open for writing, unless it is safe.
    pub(super) fn unsafe_opening(&self, client: ClientId, opened: Option<Opened>) -> Option<u64> {
        let file = opened
            .filter(|opened| opened.write)
            .and_then(Opened::file)?;
        self.writers
            .batch(client, file)
            .filter(|batch| *batch >= self.journal.safe())
    }
}
