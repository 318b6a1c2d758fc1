//! Requests that wait until everything is written to directories ([`FsCall::Flush`]).
//!
//! The round that writes it is the next one to capture dirty state: a round already in progress has
//! captured earlier. Before a rank is given back for a repair, rounds continue until the journal is
//! empty.

use super::*;

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Flushing {
    /// Rounds that have captured dirty state, and how many of them have ended.
    pub taken: u64,
    pub ended: u64,
    /// Waiting requests, and how many rounds must have ended.
    waiting: BTreeMap<(ClientId, u64), u64>,
    pub retiring: bool,
}

impl Mds {
    /// Whether everything that was dirty when the request arrived is written.
    pub(super) fn is_flushed(&mut self, client: ClientId, number: u64) -> bool {
        let next = self.flushing.taken + 1;
        let until = *self
            .flushing
            .waiting
            .entry((client, number))
            .or_insert(next);
        let flushed = self.flushing.ended >= until;
        if flushed {
            self.flushing.waiting.remove(&(client, number));
        }
        flushed
    }
    /// Whether a request waits for a round. Requests of clients that are gone do not count.
    pub(super) fn wants_flush(&mut self) -> bool {
        let asked = &self.asked;
        self.flushing.waiting.retain(|key, _| asked.contains(key));
        !self.flushing.waiting.is_empty() || (self.flushing.retiring && !self.is_cut_off())
    }

    /// Prepares to give the rank back: nothing more is removed, and the journal is trimmed after
    /// its whole content, so that a repair finds the clients and their answers in its head.
    ///
    /// Waiting requests are dropped: their clients ask the next holder. Undecided changes across
    /// ranks are aborted, because the ranks that they wait for are about to stop, too.
    pub fn retire(&mut self) {
        self.flushing.retiring = true;
        let clients: Vec<ClientId> = self.sessions.keys().copied().collect();
        clients
            .into_iter()
            .for_each(|client| self.forget_requests(client));
    }
    /// Whether that is complete, and nothing is in flight.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.flushing.retiring && self.is_idle() && self.is_cut_off()
    }
    /// Whether everything is in directories.
    fn is_cut_off(&self) -> bool {
        self.writing.begins.1 == self.journal.end() && self.flushing.ended == self.flushing.taken
    }
}
