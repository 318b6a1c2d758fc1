//! Lists of rights (POSIX.1e, as Linux has them): what they say, and what they have to do with
//! modes.
//!
//! ```text
//!  u:: u:ANNA: u:BERT: g:: g:STAFF: m:: o::      in this order; those with a name any number of times
//!   │                   └──────┬─────┘   │       the mask is needed if there is one with a name
//!  mode: owner               group     others    the mode's bits for the group are the mask's, if there is one
//! ```
//! An inode has them as extended attributes, in the form in which Linux hands them to programs, all
//! numbers with the lowest byte first: version 2 (u32), then of each entry a tag (u16), rights
//! (u16) and an id (u32). So they go out as they came, and rights are checked by those who are told
//! them.
//!
//! Invariant: what is parsed is in order, and has all that it needs ([`Acl::parse`]).

use bytes::Bytes;

pub use nacre_wire::fs::inode::{ACL_ACCESS as ACCESS, ACL_DEFAULT as DEFAULT};

/// Longest list in bytes: Linux reads no longer ones from a server, and could not use the file.
pub const BYTES_MAX: usize = 4096;

const VERSION: u32 = 2;
const HEAD: usize = 4;
const ENTRY: usize = 8;
/// The id of an entry without a name, and of no user or group.
const NO_ID: u32 = u32::MAX;
/// The bits of a mode that a list says, too.
const MODE: u16 = 0o777;
const RIGHTS: u16 = 0o7;

/// Whose rights an entry says, in the order of a list; the numbers are Linux'.
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

/// It is no list of rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Acl {
    /// What an attribute says; `None`: nothing, there is no list.
    ///
    /// # Errors
    /// [`Malformed`]: as Linux takes it, an entry is not in its place, or one is missing.
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

    /// Whether all are in order, those that must be there are, and no other is there twice.
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

    /// As an attribute.
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

    /// The entries that are bits of a mode, and how far up.
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

    /// The nine bits of a mode that say of it what they can.
    #[must_use]
    pub fn mode(&self) -> u16 {
        self.clone()
            .classes()
            .fold(0, |mode, (entry, up)| mode | entry.rights << up)
    }

    /// The mode is set: its nine bits become those of the list.
    pub fn set_mode(&mut self, mode: u16) {
        self.classes()
            .for_each(|(entry, up)| entry.rights = mode >> up & RIGHTS);
    }

    /// Whether a mode says all of it.
    #[must_use]
    pub fn is_mode(&self) -> bool {
        self.0
            .iter()
            .all(|entry| !entry.tag.is_named() && entry.tag != Tag::Mask)
    }

    /// What is made in a directory with this default list: its mode, of which `mode` was wanted,
    /// and its own list, if the mode does not say all of it. What the maker takes off modes
    /// counts for nothing.
    #[must_use]
    pub fn inherited(&self, mode: u16) -> (u16, Option<Self>) {
        let mut acl = self.clone();
        acl.set_mode(self.mode() & mode);
        let mode = mode & !MODE | acl.mode();
        (mode, Some(acl).filter(|acl| !acl.is_mode()))
    }

    /// The mode of an inode that has `mode` and is given this list.
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
