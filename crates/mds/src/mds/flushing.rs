//! Requests that end when everything has been written to directories ([`FsCall::Flush`]).
//!
//! A round that has not taken what is dirty when the request comes writes it; the one that is under
//! way has taken it earlier, so the next one counts.

use super::*;

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Flushing {
    /// Rounds that have taken what was dirty, and of those how many have ended.
    pub taken: u64,
    pub ended: u64,
    /// Who waits, and until how many have ended.
    waiting: BTreeMap<(ClientId, u64), u64>,
}

impl Mds {
    /// Whether what was dirty when the request came is written now.
    pub(super) fn is_flushed(&mut self, client: ClientId, number: u64) -> bool {
        let next = self.flushing.taken + 1;
        let until = *self.flushing.waiting.entry((client, number)).or_insert(next);
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
        !self.flushing.waiting.is_empty()
    }
}
