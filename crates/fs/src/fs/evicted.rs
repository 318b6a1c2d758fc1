//! An instance of this client has ended: others continued without it, and it continues as the next
//! one.
//!
//! ```text
//!  FsEvicted ──────────────────────┐
//!  an operation ends as fenced ────┴▶ begun calls fail, once ─▶ next instance: new object client, new session
//! ```
//! The server fences an instance before it gives its files to others, so an operation may fail
//! first. A server that claimed the rank meanwhile may not know; it learns of the next instance
//! from its greeting.
//!
//! Begun calls end with `EIO`: they may have been executed or not. What was answered and is not
//! safe is an error of the next `fsync`. Files stay open.
//!
//! There is one instance for all ranks: what one of them reports applies to all.
//!
//! About fences of other clients: each operation depends on the map that the server had in its last
//! message ([`ObjectCluster::rest_on`]). So no OSD executes it that would still execute a fenced
//! client's requests.

#[cfg(test)]
#[path = "evicted_test.rs"]
mod tests;

use super::*;
use crate::session::Ended;
use nacre_types::Epoch;

/// What is known about fences: of this client, and of others.
#[derive(Debug, Default)]
pub(super) struct Fencing {
    /// An operation of this instance failed because the instance is fenced.
    fenced: bool,
    /// Operations up to this one belong to a former instance.
    former: Option<OpId>,
    /// The newest map of its servers. Before they give it what another client had, they have the
    /// map that fences that client.
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
    /// Handles the end of an operation.
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
    /// The current instance, also for its object client ([`Service::instance`]).
    #[must_use]
    pub const fn acts_as(&self) -> Instance {
        self.sessions.instance()
    }

    /// Others continued without this client: it reports losses to the next caller that asks.
    pub(super) fn on_evicted(&mut self, instance: Instance, out: &mut Vec<Output>) {
        if instance != self.acts_as() {
            return;
        }
        // These end with it, too.
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
                // The client has the file open.
                Some(_) if matches!(call, FsCall::Open { .. }) => {}
                Some(again) => {
                    call.inos()
                        .chain([again.made])
                        .for_each(|ino| self.losses.lost(ino));
                }
                // Its caller is waiting.
                None => self.on_answer(number, &call, FsAnswer::Failed { errno: EIO }, out),
            }
        }
        // What is in flight ends by itself. The rest also belongs to calls of the former instance.
        for (_, whom) in std::mem::take(&mut self.operations) {
            self.piece_ended(whom, Err(Failure::Refused(OpFailure::Fenced {})), out);
        }
    }
}
