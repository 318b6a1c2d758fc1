//! Attributes in the kernel's form.
//!
//! ```text
//!  FsNode: inode (mode, owner, times) ┐
//!          head  (its contents)       ┴─▶ FileAttr
//! ```
//! By POSIX, adding or removing an entry changes the directory's times. Here that changes the
//! head's time, so a directory's time is the later of both.

use fuser::{FileAttr, FileType, INodeNo};
use nacre_types::Ino;
use nacre_wire::fs::{FileKind, Stamp};
use nacre_wire::msg::fs::FsNode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The preferred I/O size reported by `stat`.
const BLOCK: u32 = 4096;
/// The unit of occupied space in `stat`.
const SECTOR: u64 = 512;

/// The kernel's type for a kind.
pub fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File {} => FileType::RegularFile,
        FileKind::Directory {} => FileType::Directory,
        FileKind::Symlink {} => FileType::Symlink,
        FileKind::Fifo {} => FileType::NamedPipe,
        FileKind::Socket {} => FileType::Socket,
        FileKind::CharDevice {} => FileType::CharDevice,
        FileKind::BlockDevice {} => FileType::BlockDevice,
    }
}

/// Converts a time for the kernel.
pub fn time(stamp: Stamp) -> SystemTime {
    let apart = Duration::from_nanos(stamp.0.unsigned_abs());
    if stamp.0 < 0 {
        UNIX_EPOCH - apart
    } else {
        UNIX_EPOCH + apart
    }
}

/// Converts a time from a request; times outside of a stamp's range become the nearest one.
///
/// The kernel writes a time as seconds plus nanoseconds *after* them: 1.2 s before 1970 is (-2, 800
/// million). The library subtracts both from 1970 when the seconds are negative, which gives 2.8 s
/// before 1970: that is corrected here.
pub fn stamp(time: SystemTime) -> Stamp {
    const SECOND: i128 = 1_000_000_000;
    let parts = |apart: Duration| {
        (
            i128::from(apart.as_secs()),
            i128::from(apart.subsec_nanos()),
        )
    };
    let (seconds, nanos) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => parts(after),
        Err(before) => {
            let (seconds, nanos) = parts(before.duration());
            (-seconds, nanos)
        }
    };
    let all = (seconds * SECOND + nanos).clamp(i128::from(i64::MIN), i128::from(i64::MAX));
    Stamp(i64::try_from(all).expect("it was brought into range"))
}

/// All attributes of an inode.
pub fn attr(node: &FsNode) -> FileAttr {
    let inode = &node.inode;
    let head = node.head.unwrap_or_default();
    let is_directory = inode.is_directory();
    // The kernel's own 32 bits are kept unchanged (`calls::make`).
    let device = inode.rare.as_ref().map_or(0, |rare| rare.device);
    FileAttr {
        ino: INodeNo(inode.ino.0),
        size: if is_directory {
            head.entries
        } else {
            inode.size
        },
        blocks: if inode.is_file() {
            inode.size.div_ceil(SECTOR)
        } else {
            0
        },
        atime: time(inode.atime),
        mtime: time(node.mtime()),
        ctime: time(if is_directory {
            inode.ctime.max(head.mtime)
        } else {
            inode.ctime
        }),
        crtime: time(inode.btime),
        kind: file_type(inode.kind),
        perm: inode.mode,
        nlink: if is_directory {
            links(head.directories)
        } else {
            inode.links
        },
        uid: inode.uid,
        gid: inode.gid,
        rdev: u32::try_from(device).unwrap_or(0),
        blksize: BLOCK,
        flags: 0,
    }
}

/// Link count of a directory: its name, its `.`, and the `..` of each subdirectory.
fn links(directories: u64) -> u32 {
    u32::try_from(directories.saturating_add(2)).unwrap_or(u32::MAX)
}

/// Attributes of `.` and `..` in a listing: the number and the kind. The kernel uses nothing else.
pub fn dot(ino: Ino) -> FileAttr {
    let inode =
        nacre_wire::fs::Inode::new(ino, FileKind::Directory {}, 0, (0, 0), Stamp::default());
    attr(&FsNode {
        inode,
        head: None,
        home: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_wire::fs::{Head, Inode, Rare};
    use std::sync::Arc;

    fn node(kind: FileKind) -> FsNode {
        FsNode {
            inode: Inode::new(Ino(7), kind, 0o4755, (3, 4), Stamp(50)),
            head: None,
            home: None,
        }
    }

    /// How the library converts the kernel's time.
    fn from_kernel(seconds: i64, nanos: u32) -> SystemTime {
        let apart = Duration::new(seconds.unsigned_abs(), nanos);
        if seconds < 0 {
            UNIX_EPOCH - apart
        } else {
            UNIX_EPOCH + apart
        }
    }

    #[test]
    fn times_before_1970_and_parts_of_seconds_go_out_and_come_back() {
        for nanos in [
            0,
            1,
            -1,
            999_999_999,
            1_000_000_000,
            -1_000_000_000,
            -1_200_000_000,
            -1,
            i64::MAX,
            i64::MIN,
        ] {
            let out = time(Stamp(nanos));
            let exact = match out.duration_since(UNIX_EPOCH) {
                Ok(after) => i128::try_from(after.as_nanos()).expect("small"),
                Err(before) => -i128::try_from(before.duration().as_nanos()).expect("small"),
            };
            assert_eq!(exact, i128::from(nanos));
            let (seconds, rest) = (
                nanos.div_euclid(1_000_000_000),
                nanos.rem_euclid(1_000_000_000),
            );
            let back = from_kernel(seconds, u32::try_from(rest).expect("less than a second"));
            assert_eq!(stamp(back), Stamp(nanos), "{seconds} {rest}");
        }
    }

    #[test]
    fn times_that_no_stamp_has_become_the_nearest() {
        assert_eq!(stamp(from_kernel(1 << 40, 0)), Stamp(i64::MAX));
        assert_eq!(stamp(from_kernel(-(1 << 40), 5)), Stamp(i64::MIN));
    }

    #[test]
    fn a_directory_counts_its_entries_and_is_as_young_as_they_are() {
        let mut dir = node(FileKind::Directory {});
        dir.head = Some(Head {
            mtime: Stamp(60),
            entries: 9,
            directories: 4,
            ..Head::default()
        });
        let shown = attr(&dir);
        assert_eq!((shown.size, shown.nlink, shown.blocks), (9, 6, 0));
        assert_eq!(
            (shown.mtime, shown.ctime, shown.atime),
            (time(Stamp(60)), time(Stamp(60)), time(Stamp(50)))
        );
        dir.inode.mtime = Stamp(70);
        dir.inode.ctime = Stamp(80);
        let shown = attr(&dir);
        assert_eq!(
            (shown.mtime, shown.ctime),
            (time(Stamp(70)), time(Stamp(80)))
        );
        dir.head = Some(Head {
            directories: u64::MAX,
            ..Head::default()
        });
        assert_eq!(attr(&dir).nlink, u32::MAX);
    }

    #[test]
    fn a_file_has_its_inodes_size_and_names() {
        let mut file = node(FileKind::File {});
        (file.inode.size, file.inode.links) = (513, 3);
        // A file has no head; it is ignored.
        file.head = Some(Head {
            mtime: Stamp(60),
            entries: 9,
            directories: 4,
            ..Head::default()
        });
        let shown = attr(&file);
        assert_eq!(
            (shown.size, shown.blocks, shown.nlink, shown.perm),
            (513, 2, 3, 0o4755)
        );
        assert_eq!(
            (shown.ino, shown.uid, shown.gid, shown.mtime),
            (INodeNo(7), 3, 4, time(Stamp(50)))
        );
    }

    #[test]
    fn a_device_keeps_the_number_that_the_kernel_gave() {
        let mut device = node(FileKind::CharDevice {});
        device.inode.rare = Some(Arc::new(Rare {
            device: 0xffe0_0103,
            ..Rare::default()
        }));
        assert_eq!(
            (attr(&device).rdev, attr(&device).kind),
            (0xffe0_0103, FileType::CharDevice)
        );
    }
}
