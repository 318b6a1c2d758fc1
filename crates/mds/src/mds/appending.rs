//! When the journal is appended to: changes that nothing waits for wait for others, to share an
//! append.
//!
//! ```text
//!  a change ─▶ after 50 ms, or with enough changes, or when something waits: a client (FsSync), an answer, a request,
//!           │  a round of writing ─▶ append
//!           └─ meanwhile other changes join the batch
//! ```
//! A client that creates one file after another waits for none of them; each used to have an append
//! of its own. If the server dies, its clients repeat what was not appended. If both die, the loss
//! is what the program would lose with any write-back cache: it had not asked for more.
//!
//! Invariant: a change is appended after [`MdsLimits::linger`] at the latest, once the previous
//! append has ended.

use super::*;

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Appending {
    /// Since when something waits to be appended.
    since: Option<Time>,
    /// Lower batches are waited for.
    wanted: u64,
}

impl Appending {
    /// Marks everything so far, and in this turn, as waited for.
    pub fn hurry(&mut self, journal: &Journal) {
        self.wanted = journal.number() + 1;
    }
}

impl Mds {
    /// A client waits until its requests are safe.
    pub fn hurry(&mut self) {
        self.appending.hurry(&self.journal);
    }
    /// The next append if it is due: the object and the bytes.
    pub(super) fn next_append(&mut self) -> Option<(u64, Vec<u8>)> {
        if self.journal.is_empty() {
            self.appending.since = None;
            return None;
        }
        let since = *self.appending.since.get_or_insert(self.now);
        let is_wanted = self.journal.number() < self.appending.wanted
            || self.journal.has_enough()
            || !self.held.is_empty()
            || !self.waiting.is_empty()
            || !self.writing.is_idle();
        if !is_wanted && self.now < since + self.config.limits.linger {
            return None;
        }
        let append = self.journal.next_append()?;
        self.appending.since = None;
        Some(append)
    }
    /// When it is due, if nothing arrives before.
    pub(super) fn append_at(&self) -> Time {
        let since = self
            .appending
            .since
            .filter(|_| !self.journal.is_appending());
        since.map_or(Time::MAX, |since| since + self.config.limits.linger)
    }
}
