//! Pages of listings: as much as the kernel has room for.
//!
//! An offset is a name's hash, so a listing goes on where it was, whatever was made or removed meanwhile. Names of
//! one hash share an offset: they are told together, or not yet.

use nacre_wire::fs::name_hash;
use nacre_wire::msg::fs::FsListed;

/// Offsets of `.` and `..`: no name has such a hash.
pub const DOT: u64 = 1;
pub const DOT_DOT: u64 = 2;

/// From where on the server is to list, for a listing that goes on at an offset of the kernel's.
pub const fn after(offset: u64) -> u64 {
    if offset > DOT_DOT { offset } else { 0 }
}

/// Tells entries in order as long as there is room for `size`; `tell` is given each with its offset. Entries of one
/// hash that do not fit together are left for the next page, unless they are its first.
pub fn tell(
    entries: &[FsListed],
    mut room: usize,
    size: impl Fn(&FsListed) -> usize,
    mut tell: impl FnMut(&FsListed, u64) -> bool,
) {
    let mut told = false;
    for same in entries.chunk_by(|one, next| name_hash(&one.name) == name_hash(&next.name)) {
        let needed: usize = same.iter().map(&size).sum();
        if needed > room && told {
            return;
        }
        room = room.saturating_sub(needed);
        for listed in same {
            if tell(listed, name_hash(&listed.name)) {
                return;
            }
        }
        told = true;
    }
}

/// Bytes of an entry in the kernel's buffer: a header and its name, filled up to eight.
pub fn entry_bytes(name: &[u8], header: usize) -> usize {
    (header + name.len()).next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{Ino, Name};
    use nacre_wire::fs::{FileKind, Inode, Stamp};
    use nacre_wire::msg::fs::FsNode;

    fn listed(name: &str) -> FsListed {
        let inode = Inode::new(Ino(9), FileKind::File {}, 0o644, (0, 0), Stamp(1));
        FsListed { name: Name::from(name), node: FsNode { inode, head: None } }
    }
    fn told(entries: &[FsListed], room: usize) -> Vec<String> {
        let mut all = Vec::new();
        tell(
            entries,
            room,
            |_| 10,
            |listed, _| {
                all.push(listed.name.to_string());
                false
            },
        );
        all
    }

    #[test]
    fn a_page_ends_where_its_room_does() {
        let entries: Vec<FsListed> = ["a", "b", "c"].map(listed).into();
        assert_eq!(told(&entries, 25), ["a", "b"]);
        assert_eq!(told(&entries, 30), ["a", "b", "c"]);
        assert_eq!(told(&entries, 5), ["a"], "one at least, or a listing never ends");
    }

    /// A name twice stands for two names of one hash, which are hard to find.
    #[test]
    fn names_of_one_hash_are_told_together() {
        let entries: Vec<FsListed> = ["a", "b", "b", "c"].map(listed).into();
        assert_eq!(told(&entries, 25), ["a"]);
        assert_eq!(told(&entries, 35), ["a", "b", "b"]);
        assert_eq!(told(&entries[1..], 15), ["b", "b"], "what is too large for any page is told nevertheless");
    }

    #[test]
    fn a_listing_begins_with_its_first_name() {
        assert_eq!((after(0), after(DOT), after(DOT_DOT), after(77)), (0, 0, 0, 77));
    }
}
