//! Inputs of a role.

use crate::{DeviceCall, Done};
use nacre_store::Event;
use nacre_types::{Entity, Epoch, Name};
use nacre_wire::Message;

/// One input from the host.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all are messages; a box each would cost an allocation each"
)]
pub enum Input {
    /// A message arrived.
    Message {
        /// The sender.
        from: Entity,
        /// The sender's epoch when it sent the message.
        epoch: Epoch,
        /// The message.
        message: Message,
    },
    /// [`crate::Role::next_deadline`] has been reached.
    Tick,
    /// The connection to a peer is lost.
    Gone(Entity),
    /// The connection to a peer was refused: nothing listens at its address.
    Absent(Entity),
    /// There is a new connection to the monitors.
    MonSession,
    /// The name given by a client that just connected.
    Named(Entity, Name),
    /// An event of the role's store.
    Store(Event),
    /// The state of the store's device: its oldest call that has not ended, or one that just ended.
    /// Sent a few times a second while a call takes long, and once with `None` when none does any
    /// more.
    Device(Option<DeviceCall>),
    /// The result of a job ([`crate::Output::Run`]).
    Done(Done),
    /// The host is about to stop the daemon.
    Stopping,
}

impl Input {
    /// Whether it may change the role's map: such an input gets a turn of its own.
    #[must_use]
    pub const fn is_map(&self) -> bool {
        matches!(
            self,
            Self::Message {
                message: Message::MapFull(_) | Message::MapDeltas(_),
                ..
            }
        )
    }
}
