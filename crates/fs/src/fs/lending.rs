//! Attributes that a cache above this client keeps: the kernel, so that it has not to ask for each
//! (CEPH-12). Without such a cache nothing of this happens.
//!
//! ```text
//!  answered ─▶ still what would be answered from memory? ─ lend ─▶ for as long as this client's lease lasts
//!  names: forgotten, or another's change learned ─▶ owed ─▶ the host takes it back above ─ returned
//!                                                                                           └▶ FsForgot, or a greeting
//! ```
//! What the cache above changes itself it knows. A host that stands still takes nothing back, but
//! what was lent is over by then: servers wait for leases.
//!
//! Invariants: a server is told that something is forgotten, or is greeted, when nothing of it is
//! owed; what is lent is what is answered from memory.

use super::*;

impl Fs {
    /// For how long attributes that were just given may be shown without asking: not at all, if
    /// they would be other ones now, or are not kept. To be [taken back](Self::owed).
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
    /// Begins a call of another than the cache above: what it changes is taken back there.
    pub fn begin_beside(&mut self, ask: Ask) -> CallId {
        let call = self.begin(ask);
        self.beside.insert(call);
        call
    }
    /// What the cache above is to forget: asked for after each turn, before what that says is sent,
    /// and again later for what has not been [returned](Self::returned).
    pub fn owed(&mut self, now: Time) -> Vec<Ino> {
        self.lent.owed(now).collect()
    }
    /// It has forgotten that.
    pub fn returned(&mut self, inos: &[Ino], out: &mut Vec<Output>) {
        inos.iter().for_each(|ino| self.lent.returned(*ino));
        self.say_forgotten(out);
        self.greet_holders(out);
    }

    /// Whether a request that was answered was made by the cache above, which knows what it
    /// changed.
    pub(super) fn is_known_above(&self, number: u64, call: &FsCall) -> bool {
        let caller = match self.purposes.get(&number) {
            // Made by it, and no other one: see `at_once`.
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
    /// What is not kept here any more is not to be kept above.
    pub(super) fn take_back(&mut self) {
        for ino in self.names.gone() {
            self.lent.take_back(self.now, ino);
        }
    }
    /// All that a rank has given shares of is given back.
    pub(super) fn forget_names(&mut self, rank: Rank) {
        if self.sessions.is_only(rank) {
            self.names.clear();
        } else {
            self.names.forget_rank(rank);
            self.take_back();
        }
        self.lent
            .take_back_where(self.now, |ino| rank_of(ino) == rank);
        // Of parts there is nothing more to say.
        self.forgets.retain(|(of, _)| *of != rank);
    }
    /// Tells servers what they wait for.
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
