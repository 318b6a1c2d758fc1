//! Access control lists (POSIX.1e, as in Linux): their format, and how they relate to modes.
//!
//! ```text
//!  u:: u:ANNA: u:BERT: g:: g:STAFF: m:: o::      in this order; any number of named entries
//!   │                   └──────┬─────┘   │       the mask is required if there is a named entry
//!  mode: owner               group     others    the mode's group bits are the mask's, if there is one
//! ```
//! An inode stores them as extended attributes, in the format in which Linux passes them to
//! programs, all numbers little-endian: version 2 (u32), then for each entry a tag (u16),
//! permissions (u16) and an id (u32). So attributes are returned exactly as they were set.
//! Permissions are checked by the clients.
//!
//! Invariant: a parsed list is in order and complete ([`Acl::parse`]).

use bytes::Bytes;

pub use nacre_wire::fs::inode::{ACL_ACCESS as ACCESS, ACL_DEFAULT as DEFAULT};

/// Longest list in bytes: Linux does not accept longer ones from a server, and could not use the
/// file.
pub const BYTES_MAX: usize = 4096;

const VERSION: u32 = 2;
const HEAD: usize = 4;
const ENTRY: usize = 8;
/// The id of entries without a name; no user or group has it.
const NO_ID: u32 = u32::MAX;
/// The mode bits that a list also contains.
const MODE: u16 = 0o777;
const RIGHTS: u16 = 0o7;

/// The tag of an entry, in the order of a list; the numbers are Linux'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Owner = 1,
    User = 2,
    OwningGroup = 4,
    Group = 8,
    Mask = 16,
    Others = 32,
}

impl Tag {
    fn of(number: u16) -> Option<Self> {
        let all = [
            Self::Owner,
            Self::User,
            Self::OwningGroup,
            Self::Group,
            Self::Mask,
            Self::Others,
        ];
        all.into_iter().find(|tag| *tag as u16 == number)
    }
    const fn is_named(self) -> bool {
        matches!(self, Self::User | Self::Group)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: Tag,
    rights: u16,
    id: u32,
}

/// See the module head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

/// The bytes are not a valid list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Acl {
    /// Parses an attribute; `None`: there is no list.
    ///
    /// # Errors
    /// [`Malformed`]: by Linux' rules, an entry is misplaced or missing.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let (head, rest) = bytes.split_first_chunk::<HEAD>().ok_or(Malformed)?;
        let (entries, []) = rest.as_chunks::<ENTRY>() else {
            return Err(Malformed);
        };
        if u32::from_le_bytes(*head) != VERSION {
            return Err(Malformed);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let acl = Self(entries.iter().map(entry).collect::<Result<_, _>>()?);
        if acl.is_whole() {
            Ok(Some(acl))
        } else {
            Err(Malformed)
        }
    }

    /// Whether all entries are in order, the required ones are present, and none is duplicated.
    fn is_whole(&self) -> bool {
        let tags = || self.0.iter().map(|entry| entry.tag);
        let in_order = tags()
            .zip(tags().skip(1))
            .all(|(one, next)| (one as u16) < (next as u16) || one == next && one.is_named());
        let has = |tag| tags().any(|other| other == tag);
        let is_named = tags().any(Tag::is_named);
        in_order
            && [Tag::Owner, Tag::OwningGroup, Tag::Others]
                .into_iter()
                .all(has)
            && (!is_named || has(Tag::Mask))
    }

    /// Encodes the list as an attribute.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for Entry { tag, rights, id } in &self.0 {
            bytes.extend_from_slice(&(*tag as u16).to_le_bytes());
            bytes.extend_from_slice(&rights.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes.into()
    }

    /// The entries that correspond to mode bits, each with its shift.
    fn classes(&mut self) -> impl Iterator<Item = (&mut Entry, u32)> {
        let group = if self.0.iter().any(|entry| entry.tag == Tag::Mask) {
            Tag::Mask
        } else {
            Tag::OwningGroup
        };
        self.0.iter_mut().filter_map(move |entry| match entry.tag {
            Tag::Owner => Some((entry, 6)),
            Tag::Others => Some((entry, 0)),
            tag if tag == group => Some((entry, 3)),
            _ => None,
        })
    }

    /// The nine mode bits that represent the list as far as possible.
    #[must_use]
    pub fn mode(&self) -> u16 {
        self.clone()
            .classes()
            .fold(0, |mode, (entry, up)| mode | entry.rights << up)
    }

    /// Applies the nine bits of a new mode to the list.
    pub fn set_mode(&mut self, mode: u16) {
        self.classes()
            .for_each(|(entry, up)| entry.rights = mode >> up & RIGHTS);
    }

    /// Whether a mode represents the list completely.
    #[must_use]
    pub fn is_mode(&self) -> bool {
        self.0
            .iter()
            .all(|entry| !entry.tag.is_named() && entry.tag != Tag::Mask)
    }

    /// For a new inode in a directory with this default list: its mode, given the requested `mode`,
    /// and its own list if the mode does not represent it completely. The creator's umask is
    /// ignored.
    #[must_use]
    pub fn inherited(&self, mode: u16) -> (u16, Option<Self>) {
        let mut acl = self.clone();
        acl.set_mode(self.mode() & mode);
        let mode = mode & !MODE | acl.mode();
        (mode, Some(acl).filter(|acl| !acl.is_mode()))
    }

    /// The mode of an inode with `mode` after it gets this list.
    #[must_use]
    pub fn given_to(&self, mode: u16) -> u16 {
        mode & !MODE | self.mode()
    }
}

fn entry(bytes: &[u8; ENTRY]) -> Result<Entry, Malformed> {
    let [a, b, c, d, id @ ..] = *bytes;
    let (tag, rights) = (
        Tag::of(u16::from_le_bytes([a, b])).ok_or(Malformed)?,
        u16::from_le_bytes([c, d]),
    );
    let id = if tag.is_named() {
        u32::from_le_bytes(id)
    } else {
        NO_ID
    };
    if rights & !RIGHTS != 0 || (tag.is_named() && id == NO_ID) {
        return Err(Malformed);
    }
    Ok(Entry { tag, rights, id })
}

#[cfg(test)]
#[path = "acl_test.rs"]
mod tests;
