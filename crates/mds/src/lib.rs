//! The server of a rank: names, what they refer to, and which changes are safe (ADR 0006).
//!
//! ```text
//!  client ──FsRequest──▶ evaluate ──changes──▶ tree (memory) ──▶ journal ──▶ directory objects, later
//!         ◀──FsReply──────────┘ early                  └─ safe: FsSafe
//! ```
#![forbid(unsafe_code)]

pub mod acl;
mod caps;
pub mod change;
pub mod check;
mod claim;
mod delegations;
mod dirty;
mod draft;
pub mod evaluate;
pub mod follow;
mod followed;
mod followers;
pub mod journal;
mod lease;
pub mod locks;
pub mod mds;
mod mutants;
mod overlay;
mod peers;
mod popularity;
mod removing;
pub mod rooms;
pub mod server;
mod shares;
mod slices;
mod standby;
#[cfg(test)]
mod testing;
mod transactions;
pub mod tree;
pub mod writers;

pub use followed::Followed;
pub use followers::followers;
pub use mutants::Mutant;
#[cfg(feature = "mutants")]
pub use mutants::set_mutant;
