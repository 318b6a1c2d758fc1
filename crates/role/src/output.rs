//! What a role wants done.

use crate::Job;
use nacre_store::{Read, Token, Transaction};
use nacre_types::{Entity, Time};
use nacre_wire::Message;
use nacre_wire::map::Address;
use std::sync::Arc;

/// One thing that a host is to do for a role.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all are messages")]
pub enum Output {
    /// Send to a peer, in order per receiver, in a frame with [`crate::Role::epoch`]. Daemons are
    /// found in the role's map, clients on their own connections or where they were said to be
    /// ([`Self::Meet`]). What cannot be sent is dropped: a role that needs an answer sends again.
    Send {
        /// To whom.
        to: Entity,
        /// What.
        message: Message,
        /// Drop it if the clock has passed this when it is released to the connection (a reply
        /// that rests on a read lease).
        before: Option<Time>,
    },
    /// A peer that is in no map, a client that listens, is at this address from now on: what is
    /// sent to it goes there, if it has no connection yet. An empty address forgets it: to be said
    /// of each that is gone for good.
    Meet {
        /// Who.
        peer: Entity,
        /// Where.
        address: Address,
    },
    /// Send to any monitor; the host keeps one session and moves on when it breaks.
    SendMon {
        /// What.
        message: Message,
    },
    /// Hand to the store; its events come back with the token.
    Submit {
        /// What.
        transaction: Transaction,
        /// Names it.
        token: Token,
    },
    /// Hand to the store; the reply comes back with the token.
    Read {
        /// What.
        read: Read,
        /// Names it.
        token: Token,
    },
    /// Run on a thread that has the time; [`crate::Input::Done`] comes back.
    Run(Arc<dyn Job>),
    /// A line for people, in the host's own log.
    Say(String),
    /// Stop the daemon: going on could hurt.
    Halt {
        /// For its operator: what is wrong and what to do.
        why: String,
    },
}

impl Output {
    /// A message that no lease bounds.
    #[must_use]
    pub const fn send(to: Entity, message: Message) -> Self {
        Self::Send {
            to,
            message,
            before: None,
        }
    }
}
