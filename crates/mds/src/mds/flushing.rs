//! Requests that end when everything has been written to directories ([`FsCall::Flush`]).
//!
//! A round that has not taken what is dirty when the request comes writes it; the one that is under
//! way has taken it earlier, so the next one counts. Before a rank is given back to a repair, there
//! are rounds until nothing is in the journal.

use super::*;

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Flushing {
    /// Rounds that have taken what was dirty, and of those how many have ended.
    pub taken: u64,
    pub ended: u64,
    /// Who waits, and until how many have ended.
    waiting: BTreeMap<(ClientId, u64), u64>,
    pub retiring: bool,
}

impl Mds {
    /// Whether what was dirty when the request came is written now.
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
    /// Whether a request waits for a round. One whose client has gone does not.
    pub(super) fn wants_flush(&mut self) -> bool {
        let asked = &self.asked;
        self.flushing.waiting.retain(|key, _| asked.contains(key));
        !self.flushing.waiting.is_empty() || (self.flushing.retiring && !self.is_cut_off())
    }

    /// The rank is about to be given back: nothing more is removed, and the journal is cut off
    /// behind all that is in it, so that a repair finds who the clients are and what they were
    /// answered in its head.
    ///
    /// Requests that wait are forgotten: their clients ask the next holder. Changes across ranks
    /// that are not decided do not happen, as the ranks that they wait for are about to go,
    /// too.
    pub fn retire(&mut self) {
        self.flushing.retiring = true;
        let clients: Vec<ClientId> = self.sessions.keys().copied().collect();
        clients
            .into_iter()
            .for_each(|client| self.forget_requests(client));
    }
    /// Whether that has been done, and nothing is under way.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.flushing.retiring && self.is_idle() && self.is_cut_off()
    }
    /// Whether all is in directories.
    fn is_cut_off(&self) -> bool {
        self.writing.begins.1 == self.journal.end() && self.flushing.ended == self.flushing.taken
    }
}
