//! A cluster without room: what makes room can be done, and what needs more is refused.
//!
//! ```text
//!  append ─▶ refused as full ─▶ sent again for the reserve ─▶ for a while: the next ones, too; what would make the
//!                                                             namespace larger is ENOSPC
//!                                                           └▶ then as others: room again, or refused once more
//! ```
//! Removing a file is a change like others: it is in the journal before its data goes. So a server
//! that cannot append can remove nothing, and a full cluster would stay full.
//!
//! Invariant: what was answered is in the journal or will be, full or not.

use super::*;
use crate::evaluate::errno::ENOSPC;
use std::time::Duration;

/// So long after a refusal it is tried again whether there is room.
const AGAIN: Duration = Duration::from_secs(2);

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// There was none, and appends take of the reserve until then.
    full_until: Time,
}

/// Whether an operation may have what is kept for those that make room.
pub(super) const fn is_urgent(operation: &Operation) -> bool {
    operation.flags & op_flag::FULL_OK != 0
}

impl Mds {
    pub(super) fn is_full(&self) -> bool {
        self.now < self.room.full_until
    }
    /// The journal grows.
    pub(super) fn append(&mut self, mut operation: Operation) {
        operation.flags = if self.is_full() { op_flag::FULL_OK } else { 0 };
        self.queue
            .push_back((operation.clone(), Purpose::Append(operation)));
    }
    /// There is no room for an append: it was not made.
    pub(super) fn on_full(&mut self, operation: Operation) {
        self.room.full_until = self.now + AGAIN;
        // What clients make themselves they would not be refused.
        self.delegations.take_back_all(self.now);
        self.append(operation);
    }
    /// What would make the namespace larger fails while there is no room.
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
