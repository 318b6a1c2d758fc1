//! The local object store of one OSD: what EBOFS was for Ceph (Weil et al., OSDI 2006, §5.6 "Object Storage with
//! EBOFS"; CEPH-46, CEPH-55, CEPH-56, CEPH-57).
//!
//! Objects have byte data, small attributes and an ordered key-value map (*omap*), and live in collections.
//! A [`Transaction`] changes any number of objects atomically. *Applied* (visible to reads) and *committed*
//! (survives a power cut) are reported separately.
//!
//! ```text
//!            submit / read / kick                 jobs (worker thread, or the simulator)
//!   osd ─────────────────────────▶ ObjectStore ─────────────────────────▶ index lookups, checkpoints
//!       ◀───────────────────────── │         │
//!        Applied Committed Read    RamStore  Store<D>
//!                                            │
//!                                            ▼  Device: submit, poll
//! ```
//!
//! Where to start reading: [`api`] (what a caller sees), [`device`] (what a host supplies), [`ram`] (the same
//! interface over memory, for tests and the simulator).
#![forbid(unsafe_code)]

pub mod api;
pub mod device;
mod job;
pub mod ram;

pub use api::{
    CollectionId, Event, Job, JobDone, ObjectKey, ObjectStat, ObjectStore, Op, Read, ReadError, ReadReply,
    StoreFailure, SubmitError, Token, Transaction, Usage,
};
pub use device::{BlockingDevice, Device, DeviceError, Io, IoDone, IoId, IoKind};
pub use ram::RamStore;
