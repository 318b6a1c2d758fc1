//! When the journal grows: changes for which nothing waits wait for others, so that they share an
//! append.
//!
//! ```text
//!  a change ─▶ 50 ms, much of it, or something waits: a client (FsSync), an answer, a request, a
//!           │  round of writing ─▶ append
//!           └─ meanwhile others, into the same batch
//! ```
//! A client that makes files one after the other waits for none of them: each had an append of its
//! own. If the server dies its clients do again what was not appended; what is lost if both die is
//! what its program would have lost with any write-back: it did not ask for more.
//!
//! Invariant: what was changed is appended after [`MdsLimits::linger`] at the latest, once the
//! append before it has ended.

use super::*;

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Appending {
    /// Since when something is to be appended.
    since: Option<Time>,
    /// Batches below this one are waited for.
    wanted: u64,
}

impl Appending {
    /// What there is, and what comes in this turn, is waited for.
    pub fn hurry(&mut self, journal: &Journal) {
        self.wanted = journal.number() + 1;
    }
}

impl Mds {
    /// A client waits until what it has asked for is safe.
    pub fn hurry(&mut self) {
        self.appending.hurry(&self.journal);
    }
    /// What to append now: to which object, and what.
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
    /// When that is due, if nothing comes before.
    pub(super) fn append_at(&self) -> Time {
        let since = self
            .appending
            .since
            .filter(|_| !self.journal.is_appending());
        since.map_or(Time::MAX, |since| since + self.config.limits.linger)
    }
}
