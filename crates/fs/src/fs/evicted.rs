//! An instance of this client is over: others went on without it, and it goes on as the next one.
//!
//! ```text
//!  FsEvicted ──────────────────────┐
//!  an operation ends as fenced ────┴▶ what was begun fails, once ─▶ next instance: new objects' client, new session
//! ```
//! The server fences an instance before it gives others what that one had, so an operation may say
//! so first. A server that took the rank meanwhile may not know; it hears of the next instance by
//! its greeting.
//!
//! What callers had begun ends with `EIO`: it may have happened or not. What was answered and is
//! not safe is an error of the next `fsync`. Files stay open.
//!
//! It is one instance for all ranks: what one of them says is true of all.
//!
//! Of others' fences: each operation rests on the map that the server had when it last said
//! something ([`ObjectCluster::rest_on`]). So no OSD executes it that would still execute what a
//! fenced client sent.

#[cfg(test)]
#[path = "evicted_test.rs"]
mod tests;

use super::*;
use crate::session::Ended;
use nacre_types::Epoch;

/// What is known of fences: of this client, and of others.
#[derive(Debug, Default)]
pub(super) struct Fencing {
    /// An operation of this instance ended because that is fenced.
    fenced: bool,
    /// Operations up to this one are a former instance's.
    former: Option<OpId>,
    /// The newest map of its servers. Before they give it what another client had, they have the
    /// map that fences that one.
    epoch: Epoch,
}

impl Fencing {
    /// Its server has this map.
    pub fn heard(&mut self, epoch: Epoch) {
        self.epoch = self.epoch.max(epoch);
    }
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }
    /// An operation has ended.
    pub fn look(&mut self, Completion { id, result }: &Completion) {
        let fence = matches!(
            result,
            Err(Failure::Refused(OpFailure::Fenced {}) | Failure::Doubtful(OpFailure::Fenced {}))
        );
        self.fenced |= fence && Some(*id) > self.former;
    }
    pub const fn is_fenced(&self) -> bool {
        self.fenced
    }
}

impl Fs {
    /// Which instance it is now, of its objects' client as well ([`Service::instance`]).
    #[must_use]
    pub const fn acts_as(&self) -> Instance {
        self.sessions.instance()
    }

    /// Others went on without this client: it says what was lost to who asks next.
    pub(super) fn on_evicted(&mut self, instance: Instance, out: &mut Vec<Output>) {
        if instance != self.acts_as() {
            return;
        }
        // That ends with it, too.
        self.send_foretold(out);
        let mut last = None;
        while let Some(rank) = self.sessions.following(last) {
            last = Some(rank);
            self.forget_names(rank);
        }
        self.sized.clear();
        let former = self
            .under_way
            .keys()
            .next_back()
            .copied()
            .max(self.fencing.former);
        (self.fencing.fenced, self.fencing.former) = (false, former);
        let ended = self.sessions.on_evicted();
        self.evictions += 1;
        self.tells.clear();
        self.lose_data();
        self.locking.on_evicted();
        self.seek.forget_holders(self.now);
        self.delegated.on_evicted();
        for Ended {
            number, call, told, ..
        } in ended
        {
            match told {
                // It has the file open.
                Some(_) if matches!(call, FsCall::Open { .. }) => {}
                Some(again) => {
                    call.inos()
                        .chain([again.made])
                        .for_each(|ino| self.losses.lost(ino));
                }
                // Its caller waits for it.
                None => self.on_answer(number, &call, FsAnswer::Failed { errno: EIO }, out),
            }
        }
        // What is under way ends by itself. The rest belongs to calls of the former instance, too.
        for (_, whom) in std::mem::take(&mut self.operations) {
            self.piece_ended(whom, Err(Failure::Refused(OpFailure::Fenced {})), out);
        }
    }
}
