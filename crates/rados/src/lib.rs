//! The third implementation of [`nacre_client::ObjectCluster`]: an existing Ceph cluster, through
//! `librados.so.2` loaded at run time (DESIGN §9; UNI-06).
//!
//! ```text
//!  submit ─▶ plan: read · write · read, evaluate, write ─▶ compound ─▶ librados ─▶ Ceph's OSDs
//!  completions ◀─ cluster: answers, next stages ◀─ queue ◀─ librados' threads
//! ```
//!
//! * [`plan`], `general`: the path of an operation, and the path possible for all of them, pure;
//! * [`cluster`]: operations in flight;
//! * [`keys`]: keys with zero bytes in them;
//! * `compound`, `flight`, `context`, `listing`, `queue`, `worker`: safe wrappers of librados;
//! * [`programs`]: installed classes, their registry, and how they are called; [`home`]: the pool
//!   for such data;
//! * [`meta`]: service metadata in an object;
//! * [`engine`]: all of that for services on Nacre's hosts; [`instances`]: fencing of clients;
//! * [`handle`]: connecting, commands; [`error`]: error numbers.
//!
//! *Invariants.* Operations on one object take effect in the order of their submission. A failed
//! operation had no effect; one without an answer in time is
//! [`Failure::Unknown`](nacre_client::Failure::Unknown). Only [`handle`]'s calls wait for the
//! cluster.
//!
//! *Boundary*: answers come from librados, which has validated them; `unsafe` is used only in this
//! crate.

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
