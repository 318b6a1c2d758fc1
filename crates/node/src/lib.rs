//! The real host: sockets, disks, timers and threads around the pure roles (DESIGN §2, §9; ADR
//! 0001, ADR 0004).
//!
//! ```text
//!            Cluster (users) ──┐     Pipelined (its owner) ──┐    cluster.toml ── config, directory
//!                              ▼                             ▼
//!   callers ─▶ Port ─▶ ┌──────────────── Reactor (one thread) ─────────────┐
//!                      │  Access(Client)   Mon   Osd   Osd   Osd           │
//!   workers ─▶ Mailbox ┼▶ Hosted: store     │  by value, or framed:        │
//!                      │                    └──▶ Conn ⇄ other processes    │
//!                      └───────────────────────────────────────────────────┘
//! ```
//! * [`Cluster`]: the facade; [`Embedded`]: a whole cluster here; [`run_mon`], [`run_osd`]: one
//!   daemon; [`Pipelined`]: a client on its owner's thread (ADR 0015);
//! * `reactor`: the loop, and the budget; `conn`, `links`, `net`: connections;
//! * `hosted`, `device`, `workers`: stores and disks; `access`, `slot`: a client and its callers;
//! * [`inspect`]: offline inspection of a store; [`machine`]: properties of this machine;
//! * [`config`], [`directory`], [`locks`]: files besides stores; [`stop`]: stopping daemons.
//!
//! This crate is a host: it opts out of the lists that keep clocks, threads and files out of the
//! pure crates.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this crate is a host (ADR 0001)"
)]

mod access;
mod any_role;
mod calls;
mod clock;
mod cluster;
pub mod config;
mod conn;
pub mod creating;
mod daemon;
mod device;
pub mod directory;
mod embedded;
mod error;
mod evaluator;
mod faults;
mod files;
mod hosted;
mod inquiry;
mod inspect;
mod lanes;
mod last_words;
mod links;
pub mod locks;
pub mod machine;
mod meta;
mod meta_access;
mod moved;
mod net;
mod owed;
mod own_thread;
mod pipelined;
mod reactor;
mod reserve;
mod servers;
mod session_watchdog;
mod slot;
pub mod space;
pub mod stop;
mod wake;
mod watch;
mod watchdog;
mod windows;
mod workers;
mod yielding;

pub use clock::cpu_ns;
pub use cluster::{
    ADMIN, Call, Cluster, Cursor, IntoObject, Listing, Pool, PoolInfo, Stat, TIMEOUT,
};
pub use config::Config;
pub use conn::Traffic;
pub use daemon::{RunOptions, run_mon, run_osd};
pub use directory::{InitOptions, init};
pub use embedded::Embedded;
pub use error::{Error, StartError};
pub use files::{DirEntry, FileSystem, Keeper, OpenFile, OpenOptions};
pub use inquiry::{inquire, inquire_on};
pub use inspect::{StoreReport, inspect};
pub use meta::MetaWatcher;
pub use moved::Moved;
pub use net::is_free as port_is_free;
pub use pipelined::{Pipelined, ProgramsHere};
pub use servers::{run_mds, run_mds_on};
pub use watch::{Notified, Watcher};
