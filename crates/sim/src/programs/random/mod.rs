//! Random classes, called by clients under all faults while their versions change (MAL-07, MAL-21,
//! MAL-29).
//!
//! ```text
//!  seed ─▶ author: sources ─▶ installed one version after the other
//!                                  │ called by `caller` with random inputs, one or two calls in an operation
//!                                  ▼
//!          diary: what was asked, answered, seen ─▶ at the end each object's own history is replayed on a `plain` object
//! ```
//! Every call that changes an object adds its number to a history in the object, and returns its
//! position there with a digest of the whole visible state ([`author`], `prelude.lua`). So the
//! order in which calls took effect is known, including unanswered calls, and [`diary`] checks it:
//! atomic, executed once, in an order that agrees with time, and equal to the same program on a
//! plain object.

pub mod author;
pub mod caller;
pub mod diary;
pub mod plain;

use std::fmt;

/// Number of objects that are called.
pub const OBJECTS: u64 = 3;

/// Counters of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that changed an object and were answered.
    pub calls: usize,
    /// Operations that failed in the method, with all effects dropped.
    pub failed: usize,
    /// Of these, ended because a budget was exhausted or a called class failed after writing.
    pub killed: usize,
    /// Calls in objects' histories that were never answered.
    pub unheard: usize,
    /// Looks at objects.
    pub looks: usize,
    /// Different sets of versions that ran together.
    pub casts: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            calls,
            failed,
            killed,
            unheard,
            looks,
            casts,
        } = self;
        write!(
            f,
            "{calls} random calls ({failed} failed, {killed} killed, {unheard} unheard, {casts} casts), {looks} looks"
        )
    }
}
