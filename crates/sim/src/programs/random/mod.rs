//! Random classes, called by clients under all faults while their versions change (MAL-07, MAL-21,
//! MAL-29).
//!
//! ```text
//!  seed ─▶ author: sources ─▶ installed one version after the other
//!                                  │ called by `caller` with random inputs, one or two calls in an operation
//!                                  ▼
//!          diary: what was asked, answered, seen ─▶ at the end each object's own history is played again on a `plain` object
//! ```
//! Every call that changes an object adds its number to a history that the object carries, and
//! gives back its place there with a digest of all that can be seen ([`author`], `prelude.lua`). So
//! the order in which calls took effect is known, also of those that nobody heard of, and [`diary`]
//! says what must be true of it: atomic, once, in an order that time allows, and equal to the same
//! program on a plain object.

pub mod author;
pub mod caller;
pub mod diary;
pub mod plain;

use std::fmt;

/// Objects that are called.
pub const OBJECTS: u64 = 3;

/// How much there was of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that changed an object and were answered.
    pub calls: usize,
    /// Operations that failed in the method, all effects dropped.
    pub failed: usize,
    /// Of these, ended because a budget was spent or a class called had failed half done.
    pub killed: usize,
    /// Calls in objects' histories of which no answer came.
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
