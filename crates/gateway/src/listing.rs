//! A page of a listing, as the kernel wants it.
//!
//! ```text
//!  offset   0 ─▶ .   1 ─▶ ..   2 ─▶ the first names   h ─▶ names with larger hashes than h
//!
//!  server's page    a b │ c c c │ d …      c c c: names of one hash, which it never takes apart
//!  kernel's buffer  a b │ c c c │          offsets: h(a) h(b) │ h(c)-1 h(c)-1 h(c) │
//! ```
//! Nothing is kept between two pages: an entry's offset says what follows it. Names of one hash
//! share theirs, so:
//!
//! 1. A group of such names begins a page if it may not fit behind what is there already.
//! 2. All but its last have the offset *before* the group: a reader that stops within it gets all
//!    of it again, and loses none. One that cannot hold a group at all would read it for ever.
//! 3. Of a group that is larger than the smallest buffer of a kernel those names are shown that
//!    fit; the others when these are gone. With 63 bits this happens to names that were made for it
//!    only, in the maker's own directory.

use crate::attr;
use fuser::FileAttr;
use nacre_types::Ino;
use nacre_wire::fs::name_hash;
use nacre_wire::msg::fs::{FS_LIST_MAX, FsCall, FsListed};

/// A kernel's buffer for a page has at least so many bytes. How many it has our library does not
/// say.
const BUFFER_MIN: usize = 4096;
/// First question to a server, in bytes of its page.
pub const ASK_FIRST: u32 = 8 << 10;
/// The offset behind `..`.
const DOTS: u64 = 2;
/// Hashes of names are below this (`name_hash`).
const HASH_END: u64 = 1 << 63;
/// What a directory's parent is called in its listing: it is not known here, and the kernel does
/// not look at it.
const NO_INO: Ino = Ino(u32::MAX as u64);

/// What an entry takes of the kernel's buffer beside its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Names, numbers and kinds.
    Plain,
    /// With all attributes, as a look-up gives them.
    Plus,
}

impl Form {
    /// Bytes of an entry: `fuse_dirent` or `fuse_direntplus`, the name, and zeros up to a multiple
    /// of eight.
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
    /// Where the page behind it begins.
    pub offset: u64,
    /// What it stands for.
    pub attr: FileAttr,
}

/// Whether a line is a directory's own, or its parent's.
pub fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// The question for what follows an offset; `None`: nothing does.
pub fn call(dir: Ino, offset: u64, bytes_max: u32) -> Option<FsCall> {
    let after = if offset > DOTS { offset } else { 0 };
    (after < HASH_END - 1).then_some(FsCall::List {
        dir,
        after,
        bytes_max,
    })
}

/// How many entries of the server's page went into the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// So many.
    pub taken: usize,
    /// Of so many.
    pub of: usize,
    /// The server has no more.
    pub end: bool,
}

impl Filled {
    /// How much to ask a server for next time, if it was so much this time: somewhat more than a
    /// kernel takes.
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

/// Puts a page together, line by line, until `add` says that its line did not fit any more.
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
