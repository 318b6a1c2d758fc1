//! The client: Nacre's equivalent of librados, as a pure role.
//!
//! ```text
//!  service ──submit──▶ Client ──OpRequest──▶ primary of the object's PG
//!     ◀──completions──   │  ▲──OpReply──
//!                        │  └─ map changes: operations whose PG began a new interval are resent, in order
//!                        └─ Subscribe ─▶ monitors
//! ```
//! Services use only the traits [`ObjectCluster`] and [`Metadata`] (DESIGN §3, Client; ADRs 0002,
//! 0006). [`Served`] makes a role of a service, and [`Beside`] one that works on another engine.
//! [`MetaClient`], a role in addition to [`Client`], handles requests about service metadata.
//!
//! Invariants: at most `ops_max` operations and `bytes_max` bytes are in flight, more are refused,
//! not queued; operations on one object are sent, and resent, in the order of their submission;
//! every operation completes exactly once; a failure that answers an earlier attempt is ignored.
#![forbid(unsafe_code)]

mod cluster;
mod driven;
mod engine;
mod fencing;
mod heard;
mod meta;
mod metadata;
mod mutants;
mod role;
mod rooms;
mod service;
mod spanning;
mod watch;

pub use cluster::{
    Blocked, Capabilities, Completion, Done, Failure, ObjectCluster, OpId, Operation, Refused,
    WatchError, WatchEvent, WatchId,
};
pub use driven::Driven;
pub use engine::{Beside, Engine, Engines, Placed, Wake};
pub use meta::{MetaClient, MetaDone, MetaFailure, MetaId, MetaWatchId, WatchNews};
pub use metadata::Metadata;
pub use mutants::Mutant;
#[cfg(feature = "mutants")]
pub use mutants::{broken, set_mutant};
pub use role::{Client, ClientConfig};
pub use rooms::{ROOM_AGE, Room, Rooms};
pub use service::{Served, Service};
pub use spanning::{LockTerms, Part, SpanningFailure, SpanningWrite};
