//! The interface between a host and a role: the same for monitors, OSDs, clients, and the services
//! built on them.
//!
//! ```text
//!  host: sockets, disks, clocks, threads          role: decides
//!    ── now, inputs ─────────────────────▶ on_turn
//!    ◀─ outputs, in order ────────────────
//!    ── Tick at next_deadline ───────────▶
//!    ── Done, when a job has run ────────▶       (job.rs)
//! ```
//! Two hosts run the same roles: `node` with real I/O, `sim` with simulated network, disks and
//! time. A role has no clock, socket, lock or task of its own: everything it must know is an input,
//! with the time, and everything it wants done is an output.
//!
//! Invariants that a host keeps: `now` never decreases and was read after the inputs arrived;
//! outputs are performed in order and before the role's next turn; an input with a map
//! ([`Input::is_map`]) is a turn of its own, since a turn's frames all carry the epoch at its end;
//! per pair of peers, messages arrive in the order in which they were sent, and nothing of a lost
//! connection arrives after [`Input::Gone`]; nothing for a former instance of the role reaches its
//! next one.
#![forbid(unsafe_code)]

mod device;
mod input;
mod job;
mod output;

pub use device::DeviceCall;
pub use input::Input;
pub use job::{Done, Job, Tools};
pub use output::Output;

use nacre_types::{Epoch, Time};
use nacre_wire::ClusterMap;

/// A pure state machine that is part of a cluster. See the module head.
pub trait Role {
    /// Handles inputs in order, and adds what is to be done to `out`. Inputs of kinds that the role
    /// does not use are dropped.
    fn on_turn(
        &mut self,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        out: &mut Vec<Output>,
    );

    /// Handles a turn with one input.
    fn on_input(&mut self, now: Time, input: Input, out: &mut Vec<Output>) {
        self.on_turn(now, &mut std::iter::once(input), out);
    }

    /// When it next wants [`Input::Tick`]; [`Time::MAX`]: not before another input. To be read
    /// again after each turn.
    fn next_deadline(&self) -> Time;

    /// The newest cluster map that it knows: the map has the peers' addresses.
    fn map(&self) -> Option<&ClusterMap>;

    /// That map's epoch, for frames; [`Epoch::NONE`] without one.
    fn epoch(&self) -> Epoch {
        self.map().map_or(Epoch::NONE, |map| map.epoch)
    }
}
