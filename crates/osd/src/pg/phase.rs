//! The phases of peering (`peering.rs`).

use nacre_types::OsdId;
use nacre_wire::msg::monitor::pg_state;
use std::collections::BTreeSet;

/// A phase of peering.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// Waits for [`PeerInfo`] of these; ends when all have answered or are down.
    GetInfo(BTreeSet<OsdId>),
    /// Waits for this member's log.
    GetLog(OsdId),
    /// Waits until the monitors change the acting set to this one.
    Remap(Vec<OsdId>),
    /// Waits until one of these is up.
    Down(Vec<OsdId>),
    /// Waits for our own log to be durable (`self_done`) and for the others' [`AdoptAck`].
    Adopting {
        /// Ours is durable.
        self_done: bool,
        /// The members whose logs are not durable yet.
        waiting: BTreeSet<OsdId>,
    },
    /// Waits for the monitors to commit the activation.
    Activating,
    /// Too few members to serve; recovery and backfill continue.
    Peered,
    /// Serves.
    Active,
}

impl Phase {
    /// Whether the members agree on the log, so that objects can be recovered.
    pub(super) const fn is_peered(&self) -> bool {
        matches!(self, Phase::Activating | Phase::Peered | Phase::Active)
    }
    pub(super) fn state_bits(&self) -> u32 {
        match self {
            Phase::Active => pg_state::ACTIVE,
            Phase::Down(_) => pg_state::DOWN,
            Phase::Peered => pg_state::UNDERSIZED,
            _ => pg_state::PEERING,
        }
    }
    pub(super) fn waits_for(&self) -> Vec<OsdId> {
        match self {
            Phase::GetInfo(waiting) | Phase::Adopting { waiting, .. } => {
                waiting.iter().copied().collect()
            }
            Phase::GetLog(from) => vec![*from],
            Phase::Down(needed) => needed.clone(),
            _ => Vec::new(),
        }
    }
}
