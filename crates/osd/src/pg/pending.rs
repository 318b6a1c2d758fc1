//! An operation in hand, and what it takes of the daemon's room for clients while it is here.
//!
//! ```text
//!  client_load ── is answered ─▶ released
//!       │ ▲ └ blocked_load: came while its group did not serve
//!       ▼ │
//!  notify_load   a notify that waits for watchers: what ends it comes from clients
//! ```

use crate::shared::Shared;
use nacre_types::{Entity, Name, Time};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, OpRequest, SubOp};

/// An operation in hand.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Who asked.
    pub from: Entity,
    /// What.
    pub request: OpRequest,
    /// Its data.
    pub payload: Payload,
    /// Bytes of its parts beside that: see [`nacre_wire::msg::check::inline_bytes`].
    pub inline: u64,
    /// When it came.
    pub received: Time,
    /// When its client was last told that it waits.
    pub explained: Time,
    /// Whether it may change the object. Of calls only their classes know: see
    /// [`crate::programs`].
    pub writes: bool,
    /// What the client is called.
    pub name: Name,
    /// What the primary wants of the object itself: the request then has no parts to evaluate.
    pub own: Option<super::watch::Own>,
    /// It reads the object as it was at this snapshot, and waits in the live object's queue to be
    /// told where that is.
    pub snapshot: Option<nacre_types::SnapId>,
    /// Methods of it asked to roll the object back to these snapshots.
    pub back: Vec<nacre_types::SnapId>,
    /// Bytes that the clones which it makes or takes the object back to take of a store's room;
    /// none as long as that was not asked.
    pub clone_bytes: Option<u64>,
    /// What it copies, when that is here.
    pub source: Option<Result<std::sync::Arc<nacre_object::Source>, OpFailure>>,
    /// It called a class that was not here, when classes were as of that moment
    /// ([`crate::programs::Programs::moment`]).
    pub awaits_since: Option<u64>,
    /// It came while the group did not serve ([`crate::shared::Shared::blocked_load`]).
    pub blocked: bool,
    /// Since when it was the next one of its object, once it was begun.
    pub next_since: Option<Time>,
}

impl Pending {
    /// One that came just now, and of which nothing else is known.
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
    /// Its client has sent it again: it is answered as the newest attempt. An older one may come
    /// late.
    pub const fn comes_again(&mut self, from: Entity, attempt: u32) {
        if attempt > self.request.attempt {
            (self.from, self.request.attempt) = (from, attempt);
        }
    }
    /// Bytes it holds in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        nacre_wire::msg::payload_len(&self.payload) as u64 + self.inline + 512
    }
    /// Whether its client wants what is there now, durable or not.
    #[must_use]
    pub fn reads_uncommitted(&self) -> bool {
        self.request.flags & nacre_wire::msg::client::op_flag::UNCOMMITTED != 0 && !self.is_write()
    }
    /// Whether it does nothing but delete the object.
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
    /// Whether it counts as work of clients ([`crate::shared::Shared::client_load`]): pings of
    /// watchers have a bound of their own.
    #[must_use]
    pub const fn is_counted(&self) -> bool {
        !matches!(self.own, Some(super::watch::Own::Probe { .. }))
    }
    /// Whether a client waits for an answer: sequence numbers begin at 1, and what the primary
    /// wants for itself has 0.
    #[must_use]
    pub const fn is_clients(&self) -> bool {
        self.request.request.sequence != 0
    }

    /// It is here.
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

    /// It is here no more.
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

    /// Whether notifies that wait have their share of what a daemon holds for clients already: a
    /// quarter.
    pub(super) fn finds_too_many_set_aside(&self, sh: &Shared) -> bool {
        let (count, bytes) = sh.notify_load;
        let limits = &sh.config.limits;
        count > 0
            && (count >= limits.client_ops / 4 || bytes + self.bytes() > limits.client_bytes / 4)
    }
    /// It waits for watchers, and holds up no other operation.
    pub(super) fn set_aside(self, sh: &mut Shared) -> Self {
        self.release(sh);
        sh.notify_load = (sh.notify_load.0 + 1, sh.notify_load.1 + self.bytes());
        Self {
            blocked: false,
            ..self
        }
    }
    /// It waits no more: it is an operation in hand again, until it is answered.
    pub(super) fn take_back(&self, sh: &mut Shared) {
        sh.notify_load = (sh.notify_load.0 - 1, sh.notify_load.1 - self.bytes());
        sh.client_load = (sh.client_load.0 + 1, sh.client_load.1 + self.bytes());
    }
}
