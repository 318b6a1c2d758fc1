//! The whole cluster under a deterministic scheduler: the second host of the role crates (DESIGN
//! §2, §11).
//!
//! ```text
//!  seed ─▶ Plan: cluster, workload, faults
//!            │
//!            ▼
//!  World ─ one queue of events in virtual time ─▶ the real `mon`, `osd` and `client` roles on RAM stores or the real store
//!            │
//!            ▼
//!  all faults end ─▶ everything must become clean ─▶ replicas identical · stores intact · every register's history linearizable
//! ```
//! * [`rng`]: the only source of randomness; [`plan`]: what a seed means;
//! * [`world`]: events and their consequences; [`schedule`], [`network`], [`sessions`], [`clock`],
//!   [`disk`], [`process`]: its parts;
//! * `faults`: fault injection; `survey`: members compared with primaries all the time; `health`:
//!   invariants, and the conditions of a healthy cluster; [`ledger`]: every map that was ever
//!   committed;
//! * [`workload`]: the list of what clients do, and what is common to all of it; [`registers`]:
//!   clients that read, write, delete, compare and set, and record what they saw; [`claims`]: the
//!   same for watches, notifies and locks; [`programs`]: for calls of methods; [`propagation`]: how
//!   soon new versions are active; [`snapshots`]: for snapshots, rollback, appends and copies;
//!   [`spanning`]: for writes of several objects under locks; [`streams`]: for many operations in
//!   flight on one object, and for listings; [`early`]: for early answers, before durability;
//!   [`fencing`]: for clients that are fenced; [`filling`]: for devices that are full;
//!   [`operator`]: the same with commands;
//! * [`verdict`]: what must be true at the end; [`shrink`]: the smallest part of a plan that still
//!   fails; [`hunt`]: whether planted bugs make seeds fail.
//!
//! Same seed, same bytes: [`Report::digest`] covers every event; a test runs a seed in two
//! processes.
#![forbid(unsafe_code)]

pub mod borders;
pub mod claims;
pub mod clock;
pub mod disk;
pub mod early;
mod faults;
pub mod fencing;
pub mod files;
pub mod filling;
pub mod hangs;
mod health;
pub mod hunt;
pub mod ledger;
pub mod moves;
mod network;
pub mod operator;
pub mod plan;
pub mod process;
pub mod programs;
pub mod propagation;
pub mod registers;
mod replace;
pub mod rng;
pub mod schedule;
pub mod sessions;
pub mod shrink;
pub mod snapshots;
pub mod spanning;
pub mod streams;
mod survey;
pub mod verdict;
pub mod workload;
pub mod world;

pub use plan::{Disks, Plan};
pub use workload::Report;
pub use world::{World, run};
