//! Outputs of a role.

use crate::Job;
use nacre_store::{Read, Token, Transaction};
use nacre_types::{Entity, Time};
use nacre_wire::Message;
use nacre_wire::map::Address;
use std::sync::Arc;

/// One action for the host.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all are messages")]
pub enum Output {
    /// Send to a peer, in order per receiver, in a frame with [`crate::Role::epoch`]. Daemons are
    /// found in the role's map, clients on their own connections or at an address from
    /// [`Self::Meet`]. What cannot be sent is dropped: a role that needs an answer sends again.
    Send {
        /// The receiver.
        to: Entity,
        /// The message.
        message: Message,
        /// Drop it if the clock has passed this when it is released to the connection (a reply that
        /// depends on a read lease).
        before: Option<Time>,
    },
    /// Sets the address of a peer that is in no map (a client that listens): messages go there if
    /// it has no connection yet. An empty address removes it; this must be done for every peer that
    /// is gone for good.
    Meet {
        /// The peer.
        peer: Entity,
        /// Its address.
        address: Address,
    },
    /// Send to any monitor; the host keeps one session and switches to another monitor when it
    /// breaks.
    SendMon {
        /// The message.
        message: Message,
    },
    /// Submit to the store; its events carry the token.
    Submit {
        /// The transaction.
        transaction: Transaction,
        /// Identifies it in events.
        token: Token,
    },
    /// Read from the store; the reply carries the token.
    Read {
        /// The read.
        read: Read,
        /// Identifies it in the reply.
        token: Token,
    },
    /// Run on a worker thread; [`crate::Input::Done`] returns the result.
    Run(Arc<dyn Job>),
    /// A human-readable line for the host's own log.
    Say(String),
    /// Stop the daemon: continuing could do damage.
    Halt {
        /// For the operator: what is wrong and what to do.
        why: String,
    },
}

impl Output {
    /// A message that is not bounded by a lease.
    #[must_use]
    pub const fn send(to: Entity, message: Message) -> Self {
        Self::Send {
            to,
            message,
            before: None,
        }
    }
}
