//! Service metadata on a Ceph cluster: `config-key` points to one object, whose omap has keys,
//! leases and recent changes (Malacology §4.1; UNI-06).
//!
//! ```text
//!  config-key "nacre/meta" ─▶ {"pool", "object", "format"}
//!                                        │
//!   omap  head                  revision, bounds of the log, counts           ┐ read what a request needs: one version of the object
//!         held/LEASE/KEY        keys attached to leases                       │   ─▶ decide: pure
//!         key/NAMESPACE/NAME    value, revisions, lease                       │   ─▶ write if the object still has that version
//!         lease/NUMBER          time, owner, renewals                         │        └─ no: another client was faster; from the beginning
//!         log/REVISION          what that revision changed                    ┘
//!
//!  watch: read head and log/next… repeatedly; each revision is there once and in order, or the head shows that it is compacted
//! ```
//!
//! * [`layout`], [`record`], [`log`]: names and values of the omap's entries, the log's bounds;
//! * [`needs`], [`state`], [`decide`]: what a request reads, what was read, and the decision;
//!   `nacre_wire::meta` defines the semantics of transactions;
//! * [`cursor`]: a watch's position; [`hints`]: when to look; [`silence`]: leases with silent
//!   owners;
//! * [`place`]: the pointer; [`object`]: the object, read and written; [`store`]: the whole store,
//!   as used by clients;
//! * [`queued`]: the same for services, which never wait.
//!
//! *Invariants.* All reads of a request see one version of the object, and every change is made to
//! that version: requests are linearizable. A revision's entry in the log is written atomically
//! with its changes. No lease ends before its time has passed without a renewal, by the clock of
//! the client that ends it.
//!
//! What is weaker than with Nacre's own monitors is in `docs/metadata.md`; the bytes are in
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
