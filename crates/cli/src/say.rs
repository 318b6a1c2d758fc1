//! Human-readable lines on standard error, and in a daemon's log.
//!
//! `eprintln!` panics when the line cannot be written: a full log partition, or a closed pipe,
//! ended every daemon of the machine at its next line. A daemon that cannot print continues; so all
//! output of this crate goes through here or `Out`, which the lints of `main.rs` enforce.

use std::io::Write as _;

/// Writes a line to standard error, if possible.
pub fn line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Writes a line to standard output, if possible; for code without an [`crate::out::Out`].
pub fn to_stdout(text: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}
