//! A page of a listing in the kernel's form.
//!
//! ```text
//!  offset   0 ─▶ .   1 ─▶ ..   2 ─▶ the first names   h ─▶ names with larger hashes than h
//!
//!  server's page    a b │ c c c │ d …      c c c: names with equal hashes, which it never splits
//!  kernel's buffer  a b │ c c c │          offsets: h(a) h(b) │ h(c)-1 h(c)-1 h(c) │
//! ```
//! No state is kept between two pages: an entry's offset determines what follows it. Names with
//! equal hashes share their offset, so:
//!
//! 1. A group of such names begins a page if it may not fit after what is there already.
//! 2. All of the group except the last have the offset *before* the group: a reader that stops
//!    within it gets all of it again, and loses none. A reader that cannot hold a group at all
//!    would read it for ever.
//! 3. For a group larger than a kernel's smallest buffer, only the names that fit are shown; the
//!    others appear when these are removed. With 63 bits this only happens with names chosen for
//!    it, in their creator's own directory.

use crate::attr;
use fuser::FileAttr;
use nacre_types::Ino;
use nacre_wire::fs::name_hash;
use nacre_wire::msg::fs::{FS_LIST_MAX, FsCall, FsListed};

/// Minimum size of a kernel's buffer for a page. The library does not tell the actual size.
const BUFFER_MIN: usize = 4096;
/// Size of the first page requested from a server, in bytes.
pub const ASK_FIRST: u32 = 8 << 10;
/// The offset after `..`.
const DOTS: u64 = 2;
/// End of the range of hashes (`name_hash`).
const HASH_END: u64 = 1 << 63;
/// The inode number of `..` in a listing: it is not known here, and the kernel does not use it.
const NO_INO: Ino = Ino(u32::MAX as u64);

/// The size of an entry in the kernel's buffer besides its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Names, numbers and kinds.
    Plain,
    /// With all attributes, like a look-up.
    Plus,
}

impl Form {
    /// Size of an entry: `fuse_dirent` or `fuse_direntplus`, the name, and padding to a multiple of
    /// eight.
    fn bytes(self, name: &[u8]) -> usize {
        let fixed = match self {
            Self::Plain => 24,
            Self::Plus => 152,
        };
        (fixed + name.len()).next_multiple_of(8)
    }
}

/// A line of a page.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Where the following page begins.
    pub offset: u64,
    /// Attributes of its inode.
    pub attr: FileAttr,
}

/// Whether a line is `.` or `..`.
pub fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// The call for what follows an offset; `None`: nothing does.
pub fn call(dir: Ino, offset: u64, bytes_max: u32) -> Option<FsCall> {
    let after = if offset > DOTS { offset } else { 0 };
    (after < HASH_END - 1).then_some(FsCall::List {
        dir,
        after,
        bytes_max,
    })
}

/// How many entries of the server's page fit into the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// Entries used.
    pub taken: usize,
    /// Entries in the server's page.
    pub of: usize,
    /// Whether the server has no more.
    pub end: bool,
}

impl Filled {
    /// How much to request next time, given this time's size: somewhat more than the kernel uses.
    pub fn next_ask(self, asked: u32) -> u32 {
        let next = if self.taken < self.of {
            let share = u64::from(asked) * (self.taken as u64 + 1) / self.of as u64;
            share + share / 4
        } else if self.end {
            u64::from(asked)
        } else {
            u64::from(asked) * 2
        };
        u32::try_from(next)
            .unwrap_or(FS_LIST_MAX)
            .clamp(ASK_FIRST / 2, FS_LIST_MAX)
    }
}

/// Builds a page line by line, until `add` reports that a line did not fit.
pub fn fill(
    dir: Ino,
    offset: u64,
    (entries, end): (&[FsListed], bool),
    form: Form,
    mut add: impl FnMut(Line<'_>) -> bool,
) -> Filled {
    let (mut used, mut taken) = (0, 0);
    let filled = |taken| Filled {
        taken,
        of: entries.len(),
        end,
    };
    let dots: [(&[u8], Ino); 2] = [
        (b".", dir),
        (b"..", if dir == Ino::ROOT { dir } else { NO_INO }),
    ];
    for ((name, ino), at) in dots.into_iter().zip(1..).filter(|(_, at)| *at > offset) {
        if add(Line {
            name,
            offset: at,
            attr: attr::dot(ino),
        }) {
            return filled(0);
        }
        used += form.bytes(name);
    }
    for group in entries.chunk_by(|a, b| name_hash(&a.name) == name_hash(&b.name)) {
        let hash = name_hash(&group[0].name);
        let bytes: usize = group
            .iter()
            .map(|entry| form.bytes(entry.name.as_bytes()))
            .sum();
        let fits = used + bytes <= BUFFER_MIN;
        if group.len() > 1 && !fits && used > 0 {
            break;
        }
        for (index, entry) in group.iter().enumerate() {
            let is_last = index + 1 == group.len();
            let at = if is_last || !fits { hash } else { hash - 1 };
            if add(Line {
                name: entry.name.as_bytes(),
                offset: at,
                attr: attr::attr(&entry.node),
            }) {
                return filled(taken);
            }
            used += form.bytes(entry.name.as_bytes());
            taken += 1;
        }
    }
    filled(taken)
}

#[cfg(test)]
#[path = "listing_test.rs"]
mod tests;
