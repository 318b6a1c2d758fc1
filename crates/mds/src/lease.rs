//! The lease under which a server holds its rank or registers as a standby.
//!
//! ```text
//!  requested ──────── ttl ────────────▶ expired     counted from the request, not from the answer
//!    └ a third of it: KeepAlive, repeatedly
//! ```
//! Invariant: while [`Lease::is_valid`], no monitor lets the lease expire.

use nacre_client::{MetaDone, MetaFailure, MetaId, Metadata};
use nacre_types::Time;
use nacre_wire::msg::meta::{MetaCall, MetaError, MetaResult};
use std::time::Duration;

/// How long a rank is kept without a renewal.
pub const TTL: Duration = Duration::from_secs(3);
/// Reserve for clocks that run at different speeds.
const MARGIN: Duration = Duration::from_millis(300);

/// See the module head.
#[derive(Debug)]
pub(crate) struct Lease {
    id: u64,
    ttl: Duration,
    asked: Time,
    until: Time,
    question: Option<(MetaId, Time)>,
}

impl Lease {
    /// A lease granted for `ttl` and requested at `asked`.
    pub fn granted(id: u64, asked: Time, ttl: Duration) -> Self {
        Self {
            id,
            ttl,
            asked,
            until: asked + (ttl - MARGIN),
            question: None,
        }
    }
    pub const fn id(&self) -> u64 {
        self.id
    }
    /// When it expires unless renewed.
    pub const fn until(&self) -> Time {
        self.until
    }
    pub fn is_valid(&self, now: Time) -> bool {
        now < self.until
    }
    pub fn next_deadline(&self) -> Time {
        if self.question.is_some() {
            Time::MAX
        } else {
            self.asked + self.ttl / 3
        }
    }

    /// Renews it, if that is due.
    pub fn renew(&mut self, now: Time, metadata: &mut dyn Metadata) {
        if self.question.is_none() && self.next_deadline() <= now {
            self.question = metadata
                .submit(now, MetaCall::KeepAlive { lease: self.id })
                .map(|question| (question, now));
        }
    }
    /// Handles an answer; returns whether the lease has ended.
    pub fn on_done(&mut self, done: &MetaDone) -> bool {
        let Some((_, asked)) = self.question.take_if(|(question, _)| *question == done.id) else {
            return false;
        };
        match &done.result {
            Ok(MetaResult::Alive { .. }) => {
                (self.asked, self.until) = (asked, asked + (self.ttl - MARGIN));
                false
            }
            Err(MetaFailure::Refused(MetaError::NoSuchLease { .. })) => true,
            // Retried in the next turn.
            _ => false,
        }
    }
    /// Revokes it.
    pub fn revoke(&self, now: Time, metadata: &mut dyn Metadata) {
        // If the request cannot be sent, it expires.
        let _ = metadata.submit(now, MetaCall::Revoke { lease: self.id });
    }
}
