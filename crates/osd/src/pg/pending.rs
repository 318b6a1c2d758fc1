//! An operation in flight, and its share of the daemon's memory for clients.
//!
//! ```text
//!  client_load ── answered ─▶ released
//!       │ ▲ └ blocked_load: arrived while its PG did not serve
//!       ▼ │
//!  notify_load   a notify that waits for watchers: clients' messages end it
//! ```

use crate::shared::Shared;
use nacre_types::{Entity, Name, Time};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, OpRequest, SubOp};

#[cfg(feature = "mutants")]
#[path = "../mutants/pending.rs"]
mod planted;

/// An operation in flight. It is in one place from its arrival to its answer, and what passes it on
/// passes a `Box`: it is half a kilobyte.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The sender.
    pub from: Entity,
    /// The request.
    pub request: OpRequest,
    /// Its data.
    pub payload: Payload,
    /// Bytes of its parts besides the data: see [`nacre_wire::msg::check::inline_bytes`].
    pub inline: u64,
    /// When it arrived.
    pub received: Time,
    /// When its client was last informed that it waits.
    pub explained: Time,
    /// Whether it may change the object. For calls this depends on their classes: see
    /// [`crate::programs`].
    pub writes: bool,
    /// The client's name.
    pub name: Name,
    /// An operation of the primary itself: the request then has no parts to evaluate.
    pub own: Option<super::watch::Own>,
    /// It reads the object at this snapshot, and waits in the live object's queue to be assigned
    /// the object to read.
    pub snapshot: Option<nacre_types::SnapId>,
    /// Its methods requested a rollback of the object to these snapshots.
    pub back: Vec<nacre_types::SnapId>,
    /// Bytes of a store's space for the clones that it makes or rolls the object back to; `None`
    /// until that was determined.
    pub clone_bytes: Option<u64>,
    /// The source of a copy, when it has arrived.
    pub source: Option<Result<std::sync::Arc<nacre_object::Source>, OpFailure>>,
    /// It called a class that was not here, at this state of the classes
    /// ([`crate::programs::Programs::moment`]).
    pub awaits_since: Option<u64>,
    /// It arrived while the PG did not serve ([`crate::shared::Shared::blocked_load`]).
    pub blocked: bool,
    /// When it became the first of its object's queue, once it was begun.
    pub next_since: Option<Time>,
}

impl Pending {
    /// A new operation, with nothing else known.
    #[must_use]
    pub fn new(from: Entity, request: OpRequest, now: Time) -> Self {
        Self {
            from,
            request,
            payload: Payload::new(),
            inline: 0,
            received: now,
            explained: now,
            writes: false,
            name: Name::default(),
            own: None,
            snapshot: None,
            back: Vec::new(),
            clone_bytes: None,
            source: None,
            awaits_since: None,
            blocked: false,
            next_since: None,
        }
    }
    /// Its client has resent it: it is answered as the newest attempt. An older one may arrive
    /// late.
    pub const fn comes_again(&mut self, from: Entity, attempt: u32) {
        if attempt > self.request.attempt {
            (self.from, self.request.attempt) = (from, attempt);
        }
    }
    /// The bytes that it holds in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        nacre_wire::msg::payload_len(&self.payload) as u64 + self.inline + 512
    }
    /// Whether its client accepts data that is not durable yet.
    #[must_use]
    #[nacre_types::planted]
    pub fn reads_uncommitted(&self) -> bool {
        self.request.flags & nacre_wire::msg::client::op_flag::UNCOMMITTED != 0 && !self.is_write()
    }
    /// Whether it only deletes the object.
    #[must_use]
    pub fn only_deletes(&self) -> bool {
        self.own.is_none()
            && self.snapshot.is_none()
            && matches!(self.request.ops[..], [SubOp::Delete {}])
    }
    /// Whether it may change the object.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.own
            .as_ref()
            .map_or(self.writes, super::watch::Own::is_write)
    }
    /// Whether it counts as client work ([`crate::shared::Shared::client_load`]): pings of watchers
    /// have their own bound.
    #[must_use]
    pub const fn is_counted(&self) -> bool {
        !matches!(self.own, Some(super::watch::Own::Probe { .. }))
    }
    /// Whether a client waits for an answer: sequence numbers begin at 1, and the primary's own
    /// operations have 0.
    #[must_use]
    pub const fn is_clients(&self) -> bool {
        self.request.request.sequence != 0
    }

    /// Counts an operation that has arrived.
    pub(super) fn take_up(&self, sh: &mut Shared) {
        if !self.is_counted() {
            return;
        }
        sh.client_load.0 += 1;
        sh.client_load.1 += self.bytes();
        if self.blocked {
            let load = sh.blocked_load.entry(self.request.pg).or_default();
            *load = (load.0 + 1, load.1 + self.bytes());
        }
    }

    /// Uncounts an operation that has ended.
    pub(super) fn release(&self, sh: &mut Shared) {
        if !self.is_counted() {
            return;
        }
        sh.client_load.0 -= 1;
        sh.client_load.1 -= self.bytes();
        if self.blocked
            && let Some(load) = sh.blocked_load.get_mut(&self.request.pg)
        {
            *load = (load.0 - 1, load.1 - self.bytes());
            if load.0 == 0 {
                sh.blocked_load.remove(&self.request.pg);
            }
        }
    }

    /// Whether waiting notifies already take their share of a daemon's memory for clients: a
    /// quarter.
    pub(super) fn finds_too_many_set_aside(&self, sh: &Shared) -> bool {
        let (count, bytes) = sh.notify_load;
        let limits = &sh.config.limits;
        count > 0
            && (count >= limits.client_ops / 4 || bytes + self.bytes() > limits.client_bytes / 4)
    }
    /// It waits for watchers, and blocks no other operation.
    pub(super) fn set_aside(&mut self, sh: &mut Shared) {
        self.release(sh);
        sh.notify_load = (sh.notify_load.0 + 1, sh.notify_load.1 + self.bytes());
        self.blocked = false;
    }
    /// It waits no more: it is an ordinary operation in flight again, until it is answered.
    pub(super) fn take_back(&self, sh: &mut Shared) {
        sh.notify_load = (sh.notify_load.0 - 1, sh.notify_load.1 - self.bytes());
        sh.client_load = (sh.client_load.0 + 1, sh.client_load.1 + self.bytes());
    }
}
