//! Directory entries, and what a directory's fragments record about all of their entries.

use super::inode::{FileKind, Inode, Stamp};
use crate::{wire_enum, wire_record};
use nacre_types::{Frag, Ino, Name, Rank};

/// Longest name of an entry in bytes, the usual limit of file systems.
pub const NAME_MAX: usize = 255;
/// Whether an entry may have this name.
#[must_use]
pub fn is_name(bytes: &[u8]) -> bool {
    let is_reserved = matches!(bytes, b"" | b"." | b"..");
    bytes.len() <= NAME_MAX && !is_reserved && !bytes.iter().any(|byte| matches!(byte, 0 | b'/'))
}
/// Hashes below this are reserved for `.`, `..` and the start of a listing.
const HASH_MIN: u64 = 3;

/// The hash that orders a directory's entries and decides which fragment holds each. It has 63
/// bits, so that it can serve as an offset in a listing. Names with equal hashes are ordered by
/// their bytes, and a page of a listing never ends between them.
#[must_use]
pub fn name_hash(name: &Name) -> u64 {
    (xxhash_rust::xxh3::xxh3_64(name.as_bytes()) >> (64 - Frag::HASH_BITS)).max(HASH_MIN)
}

/// The key of an entry in its directory's object: ordered by hash, then by name.
#[must_use]
pub fn entry_key(name: &Name) -> Name {
    Name::copy(&[&name_hash(name).to_be_bytes(), name.as_bytes()].concat())
}

/// The name in such a key, or `None` if the bytes are no such key.
#[must_use]
pub fn entry_name(key: &Name) -> Option<Name> {
    let (hash, name) = key.as_bytes().split_at_checked(8)?;
    let name = Name::copy(name);
    (hash == name_hash(&name).to_be_bytes()
        && !name.is_empty()
        && name.as_bytes().len() <= NAME_MAX)
        .then_some(name)
}

/// What a fragment records about all its entries: the second part of a directory's attributes. The
/// sums cover everything below; those of directories of this rank are updated at once, those of
/// other ranks' directories periodically.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Last time an entry was added or removed.
    pub mtime: Stamp,
    /// Number of entries.
    pub entries: u64,
    /// Number of entries that are directories.
    pub directories: u64,
    /// Bytes of all files below this directory.
    pub bytes_below: u64,
    /// Files, links and other non-directories below.
    pub files_below: u64,
    /// Number of directories below.
    pub directories_below: u64,
    /// Change counter.
    pub change: u64,
}
wire_record!(Head version 1 compat 1 { mtime, entries, directories, bytes_below, files_below, directories_below, change });

/// Where an entry is: the attribute `parent` of the object of a directory's first fragment, and of
/// a file's first data object. A directory's is written before the journal forgets that the
/// directory was made or moved. A file's is written with its first data and is not updated when the
/// file is renamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backpointer {
    /// The parent directory.
    pub dir: Ino,
    /// The name in that directory.
    pub name: Name,
}
wire_record!(Backpointer version 1 compat 1 { dir, name });

impl Backpointer {
    /// Name of the attribute.
    pub const ATTR: &str = "parent";
}

/// What a name refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "nearly all are inodes")]
pub enum Entry {
    /// An inode with this one name.
    Inode {
        /// The inode.
        inode: Inode,
        /// For a directory: the sum of its fragments' heads when they were last written. Boxed,
        /// because most entries are files' and need no room for it.
        head: Option<Box<Head>>,
    },
    /// A file that has had several names: its inode is in its home's `links` directory
    /// ([`Ino::links`]), under its number in hexadecimal.
    Reference {
        /// The inode's number.
        ino: Ino,
        /// Its kind, for listings.
        kind: FileKind,
        /// The rank whose `links` directory holds the inode.
        home: u16,
    },
}
wire_enum!(Entry { 1 => Inode { inode, head }, 2 => Reference { ino, kind, home } });

impl Entry {
    /// The number of the inode that the entry refers to.
    #[must_use]
    pub const fn ino(&self) -> Ino {
        match self {
            Self::Inode { inode, .. } => inode.ino,
            Self::Reference { ino, .. } => *ino,
        }
    }
    /// The kind of that inode.
    #[must_use]
    pub const fn kind(&self) -> FileKind {
        match self {
            Self::Inode { inode, .. } => inode.kind,
            Self::Reference { kind, .. } => *kind,
        }
    }
    /// Whether that inode is a directory.
    #[must_use]
    pub const fn is_directory(&self) -> bool {
        matches!(self.kind(), FileKind::Directory {})
    }
    /// Where a referenced inode is stored.
    #[must_use]
    pub fn home(&self) -> Option<(Ino, Name)> {
        match self {
            Self::Inode { .. } => None,
            Self::Reference { ino, home, .. } => {
                Some((Ino::links(Rank(*home)), Name::from(&*ino.to_string())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_order_of_hash_and_give_their_names_back() {
        let names: Vec<Name> = (0..200)
            .map(|n| Name::from(&*format!("name {n}")))
            .collect();
        let mut keys: Vec<Name> = names.iter().map(entry_key).collect();
        keys.sort();
        let hashes: Vec<u64> = keys
            .iter()
            .map(|key| name_hash(&entry_name(key).expect("a key")))
            .collect();
        assert!(hashes.is_sorted() && hashes.iter().all(|hash| *hash < 1 << 63));
        for name in &names {
            assert_eq!(entry_name(&entry_key(name)).as_ref(), Some(name));
        }
    }

    /// A damaged key must not turn into another file's name.
    #[test]
    fn a_key_of_another_hash_is_none() {
        let key = entry_key(&Name::from("a"));
        let mut other = key.as_bytes().to_vec();
        other[3] ^= 1;
        for bytes in [
            other.as_slice(),
            &key.as_bytes()[..8],
            &key.as_bytes()[..3],
            b"",
        ] {
            assert_eq!(entry_name(&Name::copy(bytes)), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_reference_says_where_its_inode_is() {
        let entry = Entry::Reference {
            ino: Ino(0x30_0001),
            kind: FileKind::File {},
            home: 2,
        };
        assert_eq!(entry.home(), Some((Ino(0x1_0002), Name::from("300001"))));
    }
}
