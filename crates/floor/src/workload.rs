//! The measurements: the rows of the table.

use crate::frame::{NAME, Name};
use clap::ValueEnum;

/// Type of operation of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Overwrites an existing object.
    Overwrite,
    /// Creates an object.
    New,
    /// Sets a key of an object: an overwrite with a short payload.
    Omap,
    /// Calls a method: the same, after work at the primary that stands for the interpreter.
    Call,
    /// Reads an object that the OSD has in memory.
    Read,
    /// Overwrites a large object, in pieces.
    LargeWrite,
    /// Three plain sockets.
    LargeRead,
}

/// Which loop an OSD runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Service {
    /// Small operations.
    Small,
    /// Large writes, in pieces.
    Pieces,
    /// Bytes from memory.
    Bare,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name on the command line and in JSON.
    pub name: &'static str,
    /// Description of an operation.
    pub what: &'static str,
    /// Type of operation.
    pub work: Work,
    /// Operations in flight.
    pub depth: usize,
    /// Bytes of an operation's payload.
    pub size: usize,
}

const KIB_4: usize = 4 << 10;
const MIB_4: usize = 4 << 20;
/// Size of a key, its value and their framing.
const OMAP: usize = 64;

/// All rows.
pub const ROWS: &[Row] = &[
    row("overwrite", "overwrite", Work::Overwrite, 16, KIB_4),
    row("overwrite-1", "overwrite", Work::Overwrite, 1, KIB_4),
    row("read", "warm read", Work::Read, 16, KIB_4),
    row("read-1", "warm read", Work::Read, 1, KIB_4),
    row("new", "write, new objects", Work::New, 16, KIB_4),
    row("new-1", "write, new objects", Work::New, 1, KIB_4),
    row("omap", "omap set, 1 key", Work::Omap, 16, OMAP),
    row("call", "class call", Work::Call, 16, OMAP),
    row("large-write", "write", Work::LargeWrite, 16, MIB_4),
    row("large-write-1", "write", Work::LargeWrite, 1, MIB_4),
    row(
        "large-read",
        "warm read (bare sockets)",
        Work::LargeRead,
        16,
        MIB_4,
    ),
];

const fn row(name: &'static str, what: &'static str, work: Work, depth: usize, size: usize) -> Row {
    Row {
        name,
        what,
        work,
        depth,
        size,
    }
}

impl Row {
    /// Label in the table.
    pub fn label(&self) -> String {
        let size = match self.size {
            size if size >= 1 << 20 && size.is_multiple_of(1 << 20) => {
                format!("{} MiB", size >> 20)
            }
            size if size >= 1 << 10 && size.is_multiple_of(1 << 10) => {
                format!("{} KiB", size >> 10)
            }
            size => format!("{size} B"),
        };
        format!("{size} {}, depth {}", self.what, self.depth)
    }
}

impl Work {
    /// The loop that serves it.
    pub const fn service(self) -> Service {
        match self {
            Self::LargeWrite => Service::Pieces,
            Self::LargeRead => Service::Bare,
            _ => Service::Small,
        }
    }
    /// Whether it only reads.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::LargeRead)
    }
}

/// The name of an object: as long as those of `nacre bench`.
pub fn name_of(object: u64) -> Name {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut name: Name = [0; NAME];
    name[..6].copy_from_slice(b"bench.");
    let spread = object.wrapping_mul(2_654_435_761);
    for (at, digit) in name[6..14].iter_mut().enumerate() {
        *digit = DIGITS[(spread >> (28 - 4 * at) & 15) as usize];
    }
    name[14] = b'.';
    for (at, digit) in name[15..31].iter_mut().enumerate() {
        *digit = DIGITS[(object >> (60 - 4 * at) & 15) as usize];
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_and_are_readable() {
        let text = |object| String::from_utf8(name_of(object).to_vec()).expect("digits");
        assert_eq!(
            text(26).trim_end_matches('\0'),
            "bench.11a25bfa.000000000000001a"
        );
        assert_ne!(name_of(1), name_of(2));
        assert_eq!(ROWS[0].label(), "4 KiB overwrite, depth 16");
        assert_eq!(
            Row {
                size: 1000,
                depth: 3,
                ..ROWS[0].clone()
            }
            .label(),
            "1000 B overwrite, depth 3"
        );
        assert!(
            ROWS.iter()
                .enumerate()
                .all(|(at, row)| ROWS[..at].iter().all(|other| other.name != row.name))
        );
    }
}
