//! The object storage daemon: replication, peering, read leases, recovery (OSDI 2006 §5; DESIGN §3,
//! OSD).
//!
//! ```text
//!  frames ─▶ Osd ─▶ Pg ─▶ Pg …        one machine per placement group: `pg/`
//!            │ map, held messages      `osd.rs`
//!            │ heartbeats, leases      `heartbeat.rs`
//!            │ loading from the store  `boot.rs`
//!            ▼
//!         Outputs (send, submit, read) `shared.rs`; their replies `purpose.rs`
//! ```
//! Pure: no clock, socket, lock, thread or random number (`docs/adr/0001-roles-and-hosts.md`).
//! Start reading at [`pg`].
#![forbid(unsafe_code)]

mod boot;
pub mod borders;
mod builtin;
pub mod clones;
mod config;
mod copies;
mod device;
mod evaluating;
mod heartbeat;
mod held;
pub mod key;
mod mutants;
pub mod options;
mod osd;
mod parts;
pub mod pg;
pub mod programs;
mod purpose;
mod record;
mod room;
mod shared;
mod spread;
#[cfg(test)]
#[path = "../tests/stories/mod.rs"]
mod stories;
mod turned_away;

pub use boot::format;
pub use config::{Limits, OsdConfig, Timing};
#[cfg(feature = "mutants")]
pub use mutants::set_mutant;
pub use mutants::{Mutant, mutant};
pub use nacre_object::methods::Runtime;
pub use nacre_policy::Patience;
pub use osd::Osd;
pub use record::DaemonRecord;
pub use shared::Counters;
