//! What a role is told.

use crate::{DeviceCall, Done};
use nacre_store::Event;
use nacre_types::{Entity, Epoch, Name};
use nacre_wire::Message;

/// One thing that a role hears from its host.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all are messages; a box each would cost an allocation each"
)]
pub enum Input {
    /// A message arrived.
    Message {
        /// From whom.
        from: Entity,
        /// The sender's epoch as it sent this.
        epoch: Epoch,
        /// It.
        message: Message,
    },
    /// [`crate::Role::next_deadline`] has come.
    Tick,
    /// The connection to a peer is gone.
    Gone(Entity),
    /// The connection to a peer was refused: nothing listens at its address.
    Absent(Entity),
    /// There is a new connection to the monitors.
    MonSession,
    /// What a client that just connected calls itself.
    Named(Entity, Name),
    /// The role's store says something.
    Store(Event),
    /// The host looked at the store's device: its oldest call that has not ended, or one that just
    /// did. A few times a second while a call takes long, and `None` once when none does any more.
    Device(Option<DeviceCall>),
    /// What became of a job ([`crate::Output::Run`]).
    Done(Done),
    /// The host is about to stop the daemon.
    Stopping,
}

impl Input {
    /// Whether it may change the role's map: it is a turn of its own then.
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
