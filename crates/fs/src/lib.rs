//! The client of a file system (ADR 0006).
//!
//! ```text
//!  callers ──Ask──▶ Fs ──FsRequest──▶ each rank's server    names, attributes
//!          ◀─Given──   ──operations──▶ objects               data, by each file's layout
//! ```
#![forbid(unsafe_code)]

mod ahead;
mod ask;
mod cache;
mod file;
mod fs;
mod inquiry;
mod lent;
mod losses;
mod mutants;
mod names;
mod pieces;
mod places;
mod queue;
mod routes;
mod seek;
mod session;
mod sessions;
mod stream;

pub use ahead::LookAhead;
pub use ask::{Ask, CallId, Given, Outcome};
pub use fs::{Fs, FsConfig, State};
pub use inquiry::Inquiry;
pub use mutants::Mutant;
#[cfg(feature = "mutants")]
pub use mutants::set_mutant;
