//! Lines for people on standard error, and on a daemon's log.
//!
//! `eprintln!` panics when the line cannot be written: a log partition that was full, or a pipe
//! that was closed, ended every daemon of the machine at its next line. A daemon that cannot say
//! something goes on; so all output of this crate goes through here or `Out`, and the lints of
//! `main.rs` see to that.

use std::io::Write as _;

/// Writes a line to standard error, if it takes one.
pub fn line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Writes a line to standard output, if it takes one; for what has no [`crate::out::Out`].
pub fn to_stdout(text: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}
