//! Attributes cached above this client: by the kernel, so that it need not ask each time (CEPH-12).
//! Without such a cache, none of this happens.
//!
//! ```text
//!  answered ─▶ still equal to an answer from memory? ─ lend ─▶ for the rest of this client's lease
//!  names: dropped, or another client's change learned ─▶ owed ─▶ the host revokes it above ─ returned
//!                                                                                           └▶ FsForgot, or a greeting
//! ```
//! The cache above knows the changes that it makes itself. A paused host revokes nothing, but loans
//! have expired by then: servers wait for leases.
//!
//! Invariants: a server is told that something is dropped, or is greeted, when nothing of it is
//! owed; a loan equals the answer from memory.

use super::*;

impl Fs {
    /// For how long attributes that were just returned may be shown without asking: zero if they
    /// have changed, or are not cached. They may be [revoked](Self::owed).
    pub fn lend(&mut self, now: Time, node: &FsNode) -> Duration {
        self.now = self.now.max(now);
        let ino = node.inode.ino;
        match self.names_at_once(&FsCall::Stat { ino }) {
            Some(Ok(Given::Answer(FsAnswer::Node { node: known, .. })))
                if known.inode == node.inode && known.head == node.head =>
            {
                let brief = self.names.brief_until(ino).unwrap_or(Time::MAX);
                let home = known
                    .home
                    .map_or(Time::ZERO, |home| self.sessions.lease(rank_of(home)));
                let until = self.sessions.lease(rank_of(ino)).min(home).min(brief);
                self.lent.lend(now, ino, until);
                until.since(now)
            }
            _ => Duration::ZERO,
        }
    }
    /// Begins a call from outside the cache above: its changes are revoked there.
    pub fn begin_beside(&mut self, ask: Ask) -> CallId {
        let call = self.begin(ask);
        self.beside.insert(call);
        call
    }
    /// What the cache above must drop: to be called after each turn, before its messages are sent,
    /// and again later for what has not been [returned](Self::returned).
    pub fn owed(&mut self, now: Time) -> Vec<Ino> {
        self.lent.owed(now).collect()
    }
    /// The cache above has dropped these.
    pub fn returned(&mut self, inos: &[Ino], out: &mut Vec<Output>) {
        inos.iter().for_each(|ino| self.lent.returned(*ino));
        self.say_forgotten(out);
        self.greet_holders(out);
    }

    /// Whether an answered request was made by the cache above, which knows what it changed.
    pub(super) fn is_known_above(&self, number: u64, call: &FsCall) -> bool {
        let caller = match self.purposes.get(&number) {
            // Made by it and by no other caller: see `at_once`.
            Some(Purpose::Foretold(..)) => return true,
            Some(Purpose::Call(call) | Purpose::Opened(call) | Purpose::Resized(call, _)) => *call,
            _ => return false,
        };
        let changes_names = matches!(
            call,
            FsCall::Make { .. }
                | FsCall::Link { .. }
                | FsCall::Unlink { .. }
                | FsCall::Rename { .. }
                | FsCall::Set { .. }
                | FsCall::SetXattr { .. }
                | FsCall::RemoveXattr { .. }
        );
        changes_names && !self.beside.contains(&caller)
    }
    /// What is not cached here any more must not be cached above.
    pub(super) fn take_back(&mut self) {
        for ino in self.names.gone() {
            self.lent.take_back(self.now, ino);
        }
    }
    /// Everything under shares of a rank is given back.
    pub(super) fn forget_names(&mut self, rank: Rank) {
        if self.sessions.is_only(rank) {
            self.names.clear();
        } else {
            self.names.forget_rank(rank);
            self.take_back();
        }
        self.lent
            .take_back_where(self.now, |ino| rank_of(ino) == rank);
        // There is nothing more to confirm.
        self.forgets.retain(|(of, _)| *of != rank);
    }
    /// Sends confirmations that servers wait for.
    pub(super) fn say_forgotten(&mut self, out: &mut Vec<Output>) {
        if !self.forgets.is_empty() && !self.lent.owes(self.now) {
            for (rank, number) in std::mem::take(&mut self.forgets) {
                self.sessions.of(rank).forgot(number, out);
            }
        }
    }
}

#[cfg(test)]
#[path = "lending_test.rs"]
mod tests;
