//! The third implementation of [`nacre_client::ObjectCluster`]: an existing Ceph cluster, through
//! `librados.so.2` loaded at run time (DESIGN §9; UNI-06).
//!
//! ```text
//!  submit ─▶ plan: read · write · read, evaluate, write ─▶ compound ─▶ librados ─▶ OSDs of Ceph
//!  completions ◀─ cluster: answers, next stages ◀─ queue ◀─ librados' threads
//! ```
//!
//! * [`plan`], `general`: which way an operation goes, and the one that all can go, pure;
//! * [`cluster`]: operations in flight;
//! * [`keys`]: keys with bytes 0 in them;
//! * `compound`, `flight`, `context`, `listing`, `queue`, `worker`: librados made safe;
//! * [`programs`]: installed classes, their registry, and what their calls become; [`home`]: the
//!   pool for such things;
//! * [`meta`]: service metadata in an object;
//! * [`engine`]: all that for services with a host of ours; [`instances`]: who can be fenced, and
//!   is;
//! * [`handle`]: connecting, commands; [`error`]: what its numbers mean.
//!
//! *Invariants.* Operations on one object take effect in the order of their submission. What fails
//! had no effect; what has no answer in time is
//! [`Failure::Unknown`](nacre_client::Failure::Unknown). No call but [`handle`]'s waits for the
//! cluster.
//!
//! *Boundary*: answers come from librados, which has checked them; `unsafe` is in this crate alone.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a host: librados has threads, and waits are bounded by the clock"
)]

#[cfg(not(target_os = "linux"))]
compile_error!("librados is loaded by its Linux name");

pub mod admin;
pub mod cluster;
mod compound;
mod context;
pub mod engine;
pub mod error;
mod ffi;
mod flight;
mod general;
pub mod handle;
pub mod home;
pub mod instances;
pub mod keys;
mod listing;
mod lock;
mod lua;
pub mod meta;
pub mod plan;
pub mod programs;
mod queue;
mod watch;
mod worker;

pub use cluster::Ceph;
pub use engine::CephEngines;
pub use error::RadosError;
pub use handle::{Bounds, Rados, To};
pub use listing::GROUPS;
