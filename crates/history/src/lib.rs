//! Histories of reads, writes and compare-and-sets on named registers, and whether they are
//! linearizable (DESIGN §11).
//!
//! * [`record`]: one operation, one line of JSON, whose fields it documents;
//! * [`check()`]: Wing & Gong's search with Lowe's memory of visited states, one register at a
//!   time: linearizability is local, so a history is linearizable if each register's part is;
//! * [`posix`]: a model of POSIX directory operations, to check file systems against.
//!
//! An operation of unknown outcome (`unknown`) is tried both ways; one that certainly did not
//! happen (`fail`) is left out.
#![forbid(unsafe_code)]

pub mod check;
pub mod posix;
pub mod record;

pub use check::{Violation, check};
pub use record::{Kind, ParseError, Record, parse};
