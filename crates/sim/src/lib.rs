//! The whole cluster under a deterministic scheduler: the second host of the role crates (DESIGN §2, §11).
//!
//! ```text
//!  seed ─▶ Plan: cluster, workload, faults
//!            │
//!            ▼
//!  World ─ one queue of events in virtual time ─▶ the real `osd` and `client` roles, RAM stores, an oracle for the monitors
//!            │
//!            ▼
//!  all faults end ─▶ everything must become clean ─▶ copies identical · every register's history linearizable
//! ```
//! * [`rng`]: the only source of chance;
//! * [`world`]: events, clocks, network, stores, crashes;
//! * [`oracle`]: the monitors' decisions, right and wrong but never inconsistent;
//! * [`workload`]: clients that read, write, delete, compare and set, and write down what they saw;
//! * [`verdict`]: what must be true at the end.
//!
//! Same seed, same bytes: [`Report::digest`] covers every event; a test runs a seed in two processes.
#![forbid(unsafe_code)]

pub mod oracle;
pub mod rng;
pub mod verdict;
pub mod workload;
pub mod world;

pub use world::{Plan, Report, World, run};
