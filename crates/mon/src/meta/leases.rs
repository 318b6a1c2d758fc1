//! Expiry of leases. Only the leader measures time; the end of a lease is replicated
//! ([`crate::state::meta`]).
//!
//! ```text
//!  granted, or this monitor became leader ─▶ full time ─▶ expired ─▶ Revoke proposed ─▶ ended
//!                                               ▲ keep-alive, once it is proven that this monitor still leads
//! ```
//! Never early: a new leader gives every lease its full time again, and time in which this process
//! did not run does not count.

use crate::state::meta::Meta;
use nacre_types::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// A proposed revocation that was not applied by then is proposed again.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Running {
    until: Time,
    ending: Option<Time>,
    /// Some of its keys have been deleted.
    parted: bool,
}

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct Leases {
    running: BTreeMap<u64, Running>,
    seen: u64,
}

impl Leases {
    /// Follows created and revoked leases.
    pub fn follow(&mut self, awake: Time, meta: &Meta) {
        if self.seen == meta.leases_changed() {
            return;
        }
        self.seen = meta.leases_changed();
        self.running.retain(|lease, _| meta.lease(*lease).is_some());
        for lease in meta.leases() {
            let until = awake + Duration::from_millis(lease.ttl_ms);
            self.running.entry(lease.lease).or_insert(Running {
                until,
                ending: None,
                parted: false,
            });
        }
    }
    /// Extends a lease for its owner. False: it is about to end, or does not exist.
    pub fn keep(&mut self, awake: Time, lease: u64, ttl: Duration) -> bool {
        match self.running.get_mut(&lease) {
            Some(running) if running.ending.is_none() => {
                running.until = awake + ttl;
                true
            }
            _ => false,
        }
    }
    /// Leases to be revoked now.
    pub fn ran_out(&mut self, awake: Time) -> Vec<u64> {
        let due = |running: &Running| {
            running.until <= awake
                && running
                    .ending
                    .is_none_or(|since| awake.since(since) >= AGAIN)
        };
        let mut list = Vec::new();
        for (lease, running) in self.running.iter_mut().filter(|(_, running)| due(running)) {
            running.ending = Some(awake);
            list.push(*lease);
        }
        list
    }

    /// It could not be revoked: its time is extended a little, and its owner may keep it alive,
    /// unless some of its keys have been deleted already.
    pub fn spare(&mut self, lease: u64) {
        if let Some(running) = self
            .running
            .get_mut(&lease)
            .filter(|running| !running.parted)
        {
            *running = Running {
                until: running.until + AGAIN,
                ending: None,
                parted: false,
            };
        }
    }

    /// Some of its keys are deleted before the others.
    pub fn part(&mut self, lease: u64) {
        if let Some(running) = self.running.get_mut(&lease) {
            running.parted = true;
        }
    }

    /// Whether no lease is timed.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.running.is_empty()
    }
    /// Asserts that exactly the existing leases are timed.
    pub fn check(&self, meta: &Meta) {
        let current = self.seen == meta.leases_changed();
        assert!(
            !current || self.running.len() == meta.leases_held(),
            "{self:?}, and there are {}",
            meta.leases_held()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of a lease could not be proposed, since too many trigger runs were pending. The
    /// lease stayed, but its owner, which was still running, could not keep it alive any more.
    #[test]
    fn a_lease_whose_end_cannot_be_proposed_may_be_kept_alive() {
        let (begin, ttl) = (Time(0), Duration::from_secs(10));
        let mut leases = Leases::default();
        leases.running.insert(
            7,
            Running {
                until: begin + ttl,
                ending: None,
                parted: false,
            },
        );
        assert_eq!(leases.ran_out(begin + ttl), [7]);
        assert!(!leases.keep(begin + ttl, 7, ttl), "it is about to end");
        leases.spare(7);
        assert!(leases.ran_out(begin + ttl).is_empty(), "not at once");
        assert!(leases.keep(begin + ttl, 7, ttl));
        assert!(leases.ran_out(begin + ttl + AGAIN).is_empty());
        assert_eq!(leases.ran_out(begin + ttl * 2), [7]);
        leases.part(7);
        leases.spare(7);
        assert!(
            !leases.keep(begin + ttl * 2, 7, ttl),
            "some of its keys are gone"
        );
        assert_eq!(leases.ran_out(begin + ttl * 2 + AGAIN), [7]);
    }
}
