//! Evaluates operations on objects (OSDI 2006 §5; DESIGN §4; CHECKLIST CEPH-09, MAL-20 to MAL-24).
//!
//! ```text
//!  operation ─┐                            ┌─▶ effects, results, the object afterwards    (for the log and the replicas)
//!  context ───┼─▶ evaluate ─▶ View ◀─▶ ────┼─▶ an answer                                  (it failed, or only reads)
//!  fetched ───┘      │                     └─▶ wants: what must be read first             (then again, from its beginning)
//!                    └─▶ Runtime: methods of classes, in Lua or Rust, on the same View
//! ```
//! The caller performs the wanted reads, evaluates again, and makes the effects durable. Callers
//! are an OSD's primary, the engine on Ceph, and in-memory objects for tests ([`memory`]). Nothing
//! here depends on placement groups, replicas, clocks or I/O, so the same operation on the same
//! object has the same effects wherever it is evaluated.
#![forbid(unsafe_code)]

mod allowance;
mod attributes;
pub mod claims;
mod context;
pub mod evaluate;
pub mod fetched;
mod hints;
pub mod memory;
pub mod methods;
mod mutants;
mod patches;
mod plain;
pub mod snaps;
mod view;

pub use attributes::{HEADER_ATTR, USER_ATTR, VERSION_ATTR, user_attr, version_of, version_value};
pub use context::{Context, Source};
pub use evaluate::{Outcome, Setting, Update, evaluate};
pub use fetched::{Fetched, Want};
pub use mutants::Mutant;
#[cfg(feature = "mutants")]
pub use mutants::set_mutant;
pub use view::{COPY_ENTRIES_MAX, EFFECTS_MAX, Stop, View};
