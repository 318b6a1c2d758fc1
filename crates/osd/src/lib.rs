//! The object storage daemon: replication, peering, read leases, recovery (OSDI 2006 §5; DESIGN §3,
//! OSD).
//!
//! ```text
//!  frames ─▶ Osd ─▶ Pg ─▶ Pg …        one machine per placement group: `pg/`
//!            │ map, held messages      `osd.rs`
//!            │ heartbeats, leases      `heartbeat.rs`
//!            │ loading from the store  `boot.rs`
//!            ▼
//!         Outputs (send, submit, read) `shared.rs`; their replies `awaited.rs`
//! ```
//! Pure: no clock, socket, lock, thread or random number (`docs/adr/0001-roles-and-hosts.md`).
//! Start reading at [`pg`].
#![forbid(unsafe_code)]

#[cfg(test)]
mod aside_stories;
mod awaited;
mod boot;
pub mod borders;
mod builtin;
#[cfg(test)]
mod class_stories;
pub mod clones;
#[cfg(test)]
mod company;
#[cfg(test)]
mod company_stories;
mod config;
mod copies;
mod device;
mod evaluating;
mod heartbeat;
mod held;
#[cfg(test)]
mod hollow_stories;
pub mod key;
#[cfg(test)]
mod lock_stories;
#[cfg(test)]
mod memory_stories;
mod mutants;
pub mod options;
mod osd;
#[cfg(test)]
mod osd_test;
mod parts;
pub mod pg;
pub mod programs;
mod record;
#[cfg(test)]
mod recovery_stories;
#[cfg(test)]
mod repair_stories;
mod room;
#[cfg(test)]
mod room_stories;
#[cfg(test)]
mod share_stories;
mod shared;
#[cfg(test)]
mod snap_stories;
mod spread;
#[cfg(test)]
mod stories;
mod turned_away;
#[cfg(test)]
mod watch_stories;

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
