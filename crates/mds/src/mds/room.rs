//! A full cluster: requests that free space are executed, those that need more are refused.
//!
//! ```text
//!  append ─▶ refused as full ─▶ resent, using the reserve ─▶ for a while all appends use it; requests that make the
//!                                                             namespace larger get ENOSPC
//!                                                           └▶ then as usual: there is space again, or another refusal
//! ```
//! Removing a file is a change like others: it is in the journal before its data is removed. So a
//! server that cannot append cannot remove anything, and a full cluster would stay full.
//!
//! Invariant: an answered change is in the journal or will be, even when the cluster is full.

use super::*;
use crate::evaluate::errno::ENOSPC;
use std::time::Duration;

/// How long after a refusal it is tried again whether there is space.
const AGAIN: Duration = Duration::from_secs(2);

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// The cluster was full, and appends use the reserve until then.
    full_until: Time,
}

/// Whether an operation may use the space reserved for those that free space.
pub(super) const fn is_urgent(operation: &Operation) -> bool {
    operation.flags & op_flag::FULL_OK != 0
}

impl Mds {
    pub(super) fn is_full(&self) -> bool {
        self.now < self.room.full_until
    }
    /// Appends to the journal.
    pub(super) fn append(&mut self, mut operation: Operation) {
        operation.flags = if self.is_full() { op_flag::FULL_OK } else { 0 };
        self.queue
            .push_back((operation.clone(), Purpose::Append(operation)));
    }
    /// An append was refused for lack of space.
    pub(super) fn on_full(&mut self, operation: Operation) {
        self.room.full_until = self.now + AGAIN;
        // Otherwise clients could create names themselves, without being refused.
        self.delegations.take_back_all(self.now);
        self.append(operation);
    }
    /// Requests that make the namespace larger fail while the cluster is full.
    pub(super) fn refuse_without_room(&self, call: &FsCall, outcome: &mut Outcome) {
        let grows = matches!(
            call,
            FsCall::Make { .. }
                | FsCall::Link { .. }
                | FsCall::SetXattr { .. }
                | FsCall::Pin { .. }
        );
        if self.is_full() && grows && !outcome.changes.is_empty() {
            *outcome = Outcome::only(FsAnswer::Failed { errno: ENOSPC });
        }
    }
}
