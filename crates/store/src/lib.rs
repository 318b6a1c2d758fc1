//! The local object store of one OSD, with the role of EBOFS in Ceph (Weil et al., OSDI 2006, §5.6
//! "Object Storage with EBOFS"; CEPH-46, CEPH-55, CEPH-56, CEPH-57).
//!
//! Objects have byte data, small attributes and an ordered key-value map (*omap*), and live in
//! collections. A [`Transaction`] changes any number of objects atomically. *Applied* (visible to
//! reads) and *committed* (survives a power cut) are reported separately.
//!
//! ```text
//!            submit / read / request_commit       jobs (worker thread, or the simulator)
//!   osd ─────────────────────────▶ ObjectStore ─────────────────────────▶ index lookups, checkpoints
//!       ◀───────────────────────── │         │
//!        Applied Committed Read    RamStore  Store<D>
//!                                            │
//!                                            ▼  Device: submit, poll
//! ```
//!
//! Where to start reading: [`api`] (the caller's interface), [`device`] (the host's part), [`ram`]
//! (the same interface over memory, for tests and the simulator), then [`store`] (the machine),
//! `apply` (the effects of operations), `format` (bytes), [`open`] and [`check`].
#![forbid(unsafe_code)]

mod alloc;
pub mod api;
mod apply;
mod borders;
mod cache;
pub mod check;
pub mod device;
pub mod feed;
mod few;
mod format;
mod index;
mod job;
mod memtable;
mod mutants;
pub mod open;
pub mod ram;
mod replay;
pub mod store;
mod tables;
pub mod testing;

pub use api::{
    CollectionId, Event, Job, JobDone, ObjectKey, ObjectStat, ObjectStore, Op, Read, ReadError,
    ReadReply, StoreFailure, SubmitError, Token, Transaction, Usage,
};
pub use borders::Borders;
pub use check::{CheckOptions, Finding, Report, check};
pub use device::{BlockingDevice, Device, DeviceError, Io, IoDone, IoId, IoKind, Run};
pub use feed::Feed;
pub use format::root::{Features, Identity, RootError};
#[cfg(feature = "mutants")]
pub use mutants::set_mutant;
pub use mutants::{Mutant, mutant};
pub use open::{FormatError, FormatOptions, OpenError, OpenOptions, format};
pub use ram::RamStore;
pub use store::{INDEX_COST, Store};
