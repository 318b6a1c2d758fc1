//! Service metadata on a Ceph cluster: `config-key` points at one object, whose map has keys,
//! leases and the newest changes (Malacology §4.1; UNI-06).
//!
//! ```text
//!  config-key "nacre/meta" ─▶ {"pool", "object", "format"}
//!                                        │
//!   omap  head                  revision, bounds of the log, counts           ┐ read what a request needs: one version of the object
//!         held/LEASE/KEY        keys that go with a lease                     │   ─▶ decide: pure
//!         key/NAMESPACE/NAME    value, revisions, lease                       │   ─▶ write if the object still has that version
//!         lease/NUMBER          time, owner, renewals                         │        └─ no: somebody was faster; from the beginning
//!         log/REVISION          what that revision changed                    ┘
//!
//!  watch: read head and log/next… again and again; each revision is there once and in order, or the head says that it is compacted
//! ```
//!
//! * [`layout`], [`record`], [`log`]: names and values of the map's entries, the log's bounds;
//! * [`needs`], [`state`], [`decide`]: what a request reads, what was read, what follows;
//!   transactions mean what `nacre_wire::meta` says;
//! * [`cursor`]: a watch's place; [`hints`]: when to look; [`silence`]: which leases' owners are
//!   silent;
//! * [`place`]: the pointer; [`object`]: the object, read and written; [`store`]: all that
//!   together, what clients call;
//! * [`queued`]: the same for services, which never wait.
//!
//! *Invariants.* Every read of a request is of one version of the object, and every change is made
//! to that version: requests are linearizable. A revision's entry in the log is written with its
//! changes or not at all. No lease ends before its time has passed without a renewal on the clock
//! of whoever ends it.
//!
//! What is weaker than with monitors of our own is in `docs/metadata.md`; the bytes are in
//! `docs/formats/rados-meta.md`.

pub mod cursor;
pub mod decide;
#[cfg(test)]
pub(crate) mod fake;
pub mod hints;
pub mod layout;
pub mod log;
pub mod needs;
pub mod object;
pub mod place;
pub mod queued;
pub mod record;
pub mod silence;
pub mod state;
pub mod store;
#[cfg(test)]
mod store_test;

pub use cursor::Cursor;
pub use place::{ConfigKey, Locate};
pub use queued::Queued;
pub use store::MetaStore;
