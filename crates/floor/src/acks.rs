//! The state of a primary's updates: one number per replica is enough, since acknowledgements are
//! cumulative.
//!
//! ```text
//!  submitted ≥ logged (own log), acked[p] (each other OSD) ≥ committed = their minimum
//! ```
//! Invariant (checked in [`Progress::release`]): an update is released only when every replica has
//! it.

use crate::OSDS;
use anyhow::{Result, ensure};
use std::collections::VecDeque;

/// See the module head.
pub struct Progress {
    me: usize,
    submitted: u64,
    /// By OSD; the own entry is the state of the own log.
    durable: [u64; OSDS],
    committed: u64,
    /// Requests of the versions after `committed`, in order.
    requests: VecDeque<u64>,
}

impl Progress {
    /// For a primary without updates.
    pub fn new(me: usize) -> Self {
        Self {
            me,
            submitted: 0,
            durable: [0; OSDS],
            committed: 0,
            requests: VecDeque::new(),
        }
    }

    /// Assigns the next version to a request.
    pub fn submit(&mut self, request: u64) -> u64 {
        self.submitted += 1;
        self.requests.push_back(request);
        self.submitted
    }

    /// The own log has everything up to `version` durable.
    pub fn logged(&mut self, version: u64) {
        debug_assert!(
            version <= self.submitted,
            "a log has nothing that was not submitted"
        );
        self.durable[self.me] = self.durable[self.me].max(version);
    }

    /// A replica has everything up to `version` durable. An earlier version is ignored.
    ///
    /// # Errors
    /// When it acknowledges a version that was never sent.
    pub fn acknowledged(&mut self, by: usize, version: u64) -> Result<()> {
        ensure!(
            version <= self.submitted,
            "OSD {by} acknowledges {version} of {}",
            self.submitted
        );
        self.durable[by] = self.durable[by].max(version);
        Ok(())
    }

    /// Releases each update that has become durable everywhere, once and in order.
    pub fn release(&mut self, mut reply: impl FnMut(u64, u64)) {
        let committed = self.durable.into_iter().min().unwrap_or(0);
        while self.committed < committed {
            self.committed += 1;
            let request = self
                .requests
                .pop_front()
                .expect("what is committed was submitted");
            reply(request, self.committed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn released(progress: &mut Progress) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        progress.release(|request, version| all.push((request, version)));
        all
    }

    #[test]
    fn two_updates_are_released_when_all_three_have_them_in_every_order() {
        // Three members; each reports version 1 and then 2, or 2 at once.
        let reports: Vec<(usize, u64)> = (0..OSDS).flat_map(|by| [(by, 1), (by, 2)]).collect();
        for order in 0..reports.len().pow(4) {
            let mut progress = Progress::new(1);
            assert_eq!((progress.submit(10), progress.submit(20)), (1, 2));
            let (mut rest, mut seen, mut found) = (order, [0; OSDS], 0);
            for _ in 0..4 {
                let (by, version) = reports[rest % reports.len()];
                rest /= reports.len();
                seen[by] = seen[by].max(version);
                if by == 1 {
                    progress.logged(version);
                } else {
                    progress
                        .acknowledged(by, version)
                        .expect("it was submitted");
                }
                for (request, version) in released(&mut progress) {
                    found += 1;
                    assert_eq!((version, request), (found, found * 10));
                }
                assert_eq!(found, seen.into_iter().min().expect("three"));
            }
        }
    }

    #[test]
    fn an_acknowledgement_of_what_was_never_sent_is_an_error() {
        let mut progress = Progress::new(0);
        progress.submit(1);
        assert!(progress.acknowledged(1, 2).is_err());
        progress.logged(1);
        assert_eq!(released(&mut progress), []);
    }
}
