//! An inode: everything about a file, directory or link except its names and its data (CEPH-20,
//! -24, -30).

use crate::Measure;
use crate::codec::{Malformed, Reader, Wire};
use crate::{wire_enum, wire_record};
use bytes::Bytes;
use nacre_types::{Frag, Ino, Name, PoolId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Limit on the bytes of an inode's extended attributes, names and values together: an inode is a
/// value in its directory's omap.
pub const XATTR_BYTES_MAX: usize = 64 << 10;
/// The set-group-id bit of a mode: an executable runs with the file's group; entries made in a
/// directory inherit its group.
pub const S_ISGID: u16 = 0o2000;
/// The extended attribute with an inode's access control list, in Linux' format.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The extended attribute with a directory's default access control list, which new entries start
/// with.
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
/// Longest target of a symbolic link in bytes.
pub const TARGET_MAX: usize = 4095;

/// Largest file in bytes: the limit of a 63-bit offset.
pub const SIZE_MAX: u64 = i64::MAX as u64;

/// The name of one of a file's data objects.
#[must_use]
pub fn data_name(ino: Ino, number: u64) -> String {
    format!("{ino}.{number:08x}")
}

/// A wall-clock time in nanoseconds since 1970; covers 1677 to 2262.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub i64);

impl Stamp {
    /// The wall-clock time for a clock that read [`Time::ZERO`] this many milliseconds after 1970.
    #[must_use]
    pub fn at(unix_ms_at_zero: u64, now: Time) -> Self {
        let ns = u128::from(unix_ms_at_zero) * 1_000_000 + u128::from(now.0);
        Self(i64::try_from(ns).unwrap_or(i64::MAX))
    }
}

impl Wire for Stamp {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        i64::get(from).map(Self)
    }
    fn measure(&self, into: &mut Measure) {
        self.0.measure(into);
    }
}

/// The kind of an inode; never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File {},
    /// A directory.
    Directory {},
    /// A symbolic link.
    Symlink {},
    /// A named pipe.
    Fifo {},
    /// A socket.
    Socket {},
    /// A character device.
    CharDevice {},
    /// A block device.
    BlockDevice {},
}
wire_enum!(FileKind { 1 => File {}, 2 => Directory {}, 3 => Symlink {}, 4 => Fifo {}, 5 => Socket {}, 6 => CharDevice {}, 7 => BlockDevice {} });

/// How a file's bytes are spread over objects (CEPH-05): `count` objects in turn get `unit` bytes
/// each, until each has `object` bytes; then the next `count` objects follow. An object's name is
/// the inode's number followed by the object's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The pool of the data objects.
    pub pool: PoolId,
    /// Stripe unit: bytes that are stored contiguously.
    pub unit: u32,
    /// Stripe count: objects that are filled in turn.
    pub count: u32,
    /// Size of a full object in bytes, a multiple of `unit`.
    pub object: u32,
}
wire_record!(Layout version 1 compat 1 { pool, unit, count, object } verify fault);

impl Layout {
    /// Largest object in bytes.
    pub const OBJECT_MAX: u32 = 32 << 20;
    /// Most data objects of a file: each is looked for when the file is removed.
    pub const OBJECTS_MAX: u64 = 1 << 22;

    /// What is wrong with the layout, if anything.
    #[must_use]
    pub fn fault(&self) -> Option<&'static str> {
        if self.unit < 4096 || !self.unit.is_power_of_two() {
            return Some("a stripe unit is a power of two of at least 4096 bytes");
        }
        if self.count == 0 || self.count > 4096 {
            return Some("between 1 and 4096 objects take turns");
        }
        if self.object > Self::OBJECT_MAX
            || self.object < self.unit
            || !self.object.is_multiple_of(self.unit)
        {
            return Some("an object's size is a multiple of the stripe unit, and at most 32 MiB");
        }
        None
    }

    /// Where a byte is stored: the object's number, the offset in it, and how many bytes from there
    /// on are contiguous.
    #[must_use]
    pub fn place(&self, offset: u64) -> (u64, u64, u64) {
        let (unit, count) = (u64::from(self.unit), u64::from(self.count));
        let units = u64::from(self.object) / unit;
        let (block, within) = (offset / unit, offset % unit);
        let (stripe, turn) = (block / count, block % count);
        let number = stripe / units * count + turn;
        (number, stripe % units * unit + within, unit - within)
    }

    /// The most objects that a file of this size can have: holes have none.
    #[must_use]
    pub fn objects(&self, size: u64) -> u64 {
        let (set, count) = (
            u64::from(self.object) * u64::from(self.count),
            u64::from(self.count),
        );
        let units = (size % set).div_ceil(u64::from(self.unit));
        size / set * count + units.min(count)
    }

    /// The smallest size of a file whose object of this number has this many bytes.
    #[must_use]
    pub fn end_of(&self, number: u64, length: u64) -> u64 {
        let Some(last) = length.checked_sub(1) else {
            return 0;
        };
        let (unit, count) = (u64::from(self.unit), u64::from(self.count));
        let (set, turn) = (number / count, number % count);
        set * u64::from(self.object) * count + (last / unit * count + turn) * unit + last % unit + 1
    }
    /// How many bytes beyond the end known to the server a client may write without telling the
    /// server first. If both fail, recovery searches this far for written data.
    #[must_use]
    pub fn reach(&self) -> u64 {
        let set = u64::from(self.object) * u64::from(self.count);
        (set * 8).min(64 << 20).max(set)
    }
    /// Largest end of data in bytes: 16 TiB with objects of 4 MiB. Files may be made larger without
    /// data.
    #[must_use]
    pub const fn data_max(&self) -> u64 {
        Self::OBJECTS_MAX * self.object as u64
    }

    /// How many bytes of an object belong to a file of this size.
    #[must_use]
    pub fn length_of(&self, number: u64, size: u64) -> u64 {
        let (unit, count, object) = (
            u64::from(self.unit),
            u64::from(self.count),
            u64::from(self.object),
        );
        let (set, turn) = (number / count, number % count);
        let begin = set * object * count;
        let left = size.saturating_sub(begin).min(object * count);
        let (rows, rest) = (left / (unit * count), left % (unit * count));
        (rows * unit + rest.saturating_sub(turn * unit).min(unit)).min(object)
    }
}

/// Fields that few inodes need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rare {
    /// Target of a symbolic link.
    pub target: Bytes,
    /// Extended attributes.
    pub xattrs: BTreeMap<Name, Bytes>,
    /// Of a device: major and minor number, combined as by `makedev`.
    pub device: u64,
    /// The policy that grants its capabilities; empty: the default one (MAL-31).
    pub policy: Name,
    /// Its file type; empty: a plain file of bytes.
    pub class: Name,
    /// Of a directory: the rank that its subtree is pinned to.
    pub pinned: Option<u16>,
    /// Of a directory: limit on the bytes below it.
    pub bytes_max: Option<u64>,
    /// Of a directory: limit on the number of files and directories below it.
    pub files_max: Option<u64>,
    /// Of a directory: its fragments, as ranges of hashes; empty if it was never split (CEPH-31).
    pub fragments: Vec<Frag>,
    /// Of a truncated file: data beyond its size may remain up to this offset.
    pub stale_to: u64,
    /// Of a file that was extended without data: nothing was written from this offset on. `None`:
    /// nothing was written from its size on.
    pub data_to: Option<u64>,
    /// Of a directory whose time was set by a program: its change counter ([`Head::change`]) at
    /// that moment. While the counter is unchanged, the inode's time is the directory's time.
    ///
    /// [`Head::change`]: crate::fs::Head::change
    pub time_set_at: Option<u64>,
}
wire_record!(Rare version 1 compat 1 {
    target, xattrs, device, policy, class, pinned, bytes_max, files_max, fragments, stale_to, data_to,
    time_set_at,
});

impl Inode {
    /// The offset up to which data may remain beyond the file's end.
    #[must_use]
    pub fn stale_to(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.stale_to)
    }
    /// The offset up to which data was written, as far as the server knows.
    #[must_use]
    pub fn data_to(&self) -> u64 {
        self.rare
            .as_ref()
            .and_then(|rare| rare.data_to)
            .unwrap_or(self.size)
            .min(self.size)
    }
}

/// See the module head. A directory's summary is not here but in its [`super::Head`]s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Inode number.
    pub ino: Ino,
    /// Its kind.
    pub kind: FileKind,
    /// Permissions, set-user-id, set-group-id, sticky: the low twelve bits of `st_mode`.
    pub mode: u16,
    /// Owner's user id.
    pub uid: u32,
    /// Owner's group id.
    pub gid: u32,
    /// Number of names; 1 for a directory, 0 for a stray.
    pub links: u32,
    /// Size in bytes; for a symbolic link, the length of its target.
    pub size: u64,
    /// Last read.
    pub atime: Stamp,
    /// Last change of data.
    pub mtime: Stamp,
    /// Last change of data or attributes.
    pub ctime: Stamp,
    /// Time of creation.
    pub btime: Stamp,
    /// Change counter.
    pub change: u64,
    /// Where its data is stored; only regular files have a layout.
    pub layout: Option<Layout>,
    /// Rare fields, if any.
    pub rare: Option<Arc<Rare>>,
}
wire_record!(Inode version 1 compat 1 { ino, kind, mode, uid, gid, links, size, atime, mtime, ctime, btime, change, layout, rare });

impl Inode {
    /// A new inode without rare fields.
    #[must_use]
    pub const fn new(
        ino: Ino,
        kind: FileKind,
        mode: u16,
        (uid, gid): (u32, u32),
        now: Stamp,
    ) -> Self {
        Self {
            ino,
            kind,
            mode,
            uid,
            gid,
            links: 1,
            size: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            change: 1,
            layout: None,
            rare: None,
        }
    }
    /// The root of a new file system.
    #[must_use]
    pub const fn root(now: Stamp) -> Self {
        Self::new(Ino::ROOT, FileKind::Directory {}, 0o755, (0, 0), now)
    }
    /// Whether it is a directory.
    #[must_use]
    pub const fn is_directory(&self) -> bool {
        matches!(self.kind, FileKind::Directory {})
    }
    /// Whether it is a regular file.
    #[must_use]
    pub const fn is_file(&self) -> bool {
        matches!(self.kind, FileKind::File {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with counting byte by byte in the order in which the layout fills objects.
    #[test]
    fn every_byte_has_a_place_of_its_own_and_units_lie_together() {
        for (unit, count, units) in [(4096, 1, 1), (4096, 3, 2), (8192, 4, 4), (4096, 1, 8)] {
            let layout = Layout {
                pool: PoolId(1),
                unit,
                count,
                object: unit * units,
            };
            assert_eq!(layout.fault(), None);
            let (mut number, mut expected) = (0, Vec::new());
            for _set in 0..3 {
                for row in 0..units {
                    for turn in 0..count {
                        expected.push((number + u64::from(turn), u64::from(row * unit)));
                    }
                }
                number += u64::from(count);
            }
            for (block, (object, offset)) in expected.into_iter().enumerate() {
                let at = block as u64 * u64::from(unit);
                assert_eq!(
                    layout.place(at),
                    (object, offset, u64::from(unit)),
                    "{layout:?} {block}"
                );
                assert_eq!(
                    layout.place(at + 7),
                    (object, offset + 7, u64::from(unit) - 7),
                    "{layout:?} {block}"
                );
            }
        }
    }

    /// Compares with placing each byte.
    #[test]
    fn a_size_gives_each_object_its_length() {
        for (unit, count, units) in [(4096, 1, 1), (4096, 3, 2), (8192, 4, 4), (4096, 1, 8)] {
            let layout = Layout {
                pool: PoolId(1),
                unit,
                count,
                object: unit * units,
            };
            let set = u64::from(unit * count * units);
            for size in [
                0,
                1,
                4096,
                4097,
                8192,
                12_289,
                set - 1,
                set,
                set + 1,
                2 * set + 5_000,
                3 * set,
            ] {
                let mut lengths = BTreeMap::<u64, u64>::new();
                let mut at = 0;
                while at < size {
                    let (number, offset, left) = layout.place(at);
                    let bytes = left.min(size - at);
                    let length = lengths.entry(number).or_default();
                    *length = (*length).max(offset + bytes);
                    at += bytes;
                }
                let last = lengths.last_key_value().map_or(0, |(number, _)| number + 1);
                assert_eq!(layout.objects(size), last, "{layout:?} {size}");
                let ends = lengths
                    .iter()
                    .map(|(number, length)| layout.end_of(*number, *length));
                assert_eq!(ends.max().unwrap_or(0), size, "{layout:?}");
                for number in 0..last + 2 {
                    let expected = lengths.get(&number).copied().unwrap_or(0);
                    assert_eq!(
                        layout.length_of(number, size),
                        expected,
                        "{layout:?} {size} {number}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_layout_that_cannot_be_does_not_decode() {
        let good = Layout {
            pool: PoolId(1),
            unit: 4096,
            count: 2,
            object: 8192,
        };
        assert_eq!(Layout::from_bytes(&good.to_bytes()), Ok(good));
        let bad = [
            Layout { unit: 4095, ..good },
            Layout { unit: 0, ..good },
            Layout { count: 0, ..good },
            Layout {
                object: 12_000,
                ..good
            },
            Layout { object: 0, ..good },
            Layout {
                object: 64 << 20,
                ..good
            },
        ];
        for layout in bad {
            assert_eq!(
                Layout::from_bytes(&layout.to_bytes()),
                Err(Malformed::Value("Layout")),
                "{layout:?}"
            );
        }
    }

    /// CEPH-20: the common part of an inode is small.
    #[test]
    fn an_inode_without_anything_rare_is_small() {
        assert!(size_of::<Inode>() <= 120, "{}", size_of::<Inode>());
    }
}
