//! Nacre's monitors: a small group that agrees on the cluster map (Weil et al., OSDI 2006, §5.2
//! "Failure Detection"; CEPH-44, -47..-50; Malacology, EuroSys 2017, §4.1: MAL-10..-12, -17).
//!
//! A pure role: facts in ([`Mon::on_message`], [`Mon::on_store`], [`Mon::on_tick`], …), decisions
//! out ([`Output`]). The real host and the simulator drive the same code; the same seed and the
//! same facts give the same bytes.
//!
//! ```text
//!            Raft ⇄ other monitors
//!                 │
//!   mon ──▶ live ─┼─ raft        consensus and its log in the store                     raft/
//!    │            ├─ state       map, history, cluster log: the replicated state        state/
//!    │            ├─ subscribers their maps, and the messages to them
//!    │            ├─ router      requests on their way to the leader and back
//!    │            ├─ meta        service metadata: judging, leases, limits, watches      meta/
//!    │            └─ leader ──┬─ batch     requests ─▶ one proposal at a time
//!    └─ open (start)          ├─ failure, beacons            failure detection
//!                             ├─ osds, pgs, pools   other proposals, and refusals
//!                             ├─ stats, health               soft state, and its findings for operators
//!                             └─ command/                    execution of each command: docs/formats/commands.md
//! ```
//! Where to start reading: [`Mon`], then `live.rs` (one step from input to decisions), then
//! `leader.rs`.
//!
//! Invariants, checked by [`Mon::check`] after every step in tests and simulation: those of
//! [`raft`] and [`state`]; and across monitors, checked by the tests: there are never two different
//! maps of one epoch; acknowledged changes are never lost; reads see every earlier answer.
#![forbid(unsafe_code)]

mod batch;
mod beacons;
mod command;
mod failure;
mod fit;
mod health;
pub mod hierarchy;
mod leader;
mod live;
pub mod meta;
mod mon;
mod mutants;
mod needed;
mod open;
pub mod options;
mod osds;
mod pgs;
mod pools;
pub mod raft;
mod ranks;
mod router;
pub mod state;
mod stats;
mod subscribers;
#[cfg(test)]
mod testing;

pub use command::{Done, run_program};
pub use mutants::Mutant;
#[cfg(feature = "mutants")]
pub use mutants::set_mutant;

pub use mon::{Counters, Founding, Mon, MonConfig};
