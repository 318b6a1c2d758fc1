//! Attributes as the kernel wants them (CEPH-30: both parts of a directory's).

use fuser::{FileAttr, FileType, INodeNo};
use nacre_wire::fs::{FileKind, Stamp};
use nacre_wire::msg::fs::FsNode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What `stat` calls the best size of a read or write.
const BLOCK_BYTES: u32 = 4096;
/// `st_blocks` counts these.
const SECTOR_BYTES: u64 = 512;

/// What an inode is, in the kernel's words.
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

/// What the kernel's `mode` says that is to be made; `None`: nothing that there is.
pub fn kind_of(mode: u32) -> Option<FileKind> {
    Some(match mode & 0o170_000 {
        0 | 0o100_000 => FileKind::File {},
        0o010_000 => FileKind::Fifo {},
        0o140_000 => FileKind::Socket {},
        0o020_000 => FileKind::CharDevice {},
        0o060_000 => FileKind::BlockDevice {},
        _ => return None,
    })
}

/// All that `stat` tells of an inode.
pub fn attr(node: &FsNode) -> FileAttr {
    let inode = &node.inode;
    let head = node.head.unwrap_or_default();
    // What comes into a directory or goes changes the directory: that time is in its fragment's head.
    let (mtime, ctime) = (inode.mtime.max(head.mtime), inode.ctime.max(head.mtime));
    let (size, nlink) = match inode.is_directory() {
        true => (head.entries, u32::try_from(head.directories).unwrap_or(u32::MAX).saturating_add(2)),
        false => (inode.size, inode.links),
    };
    FileAttr {
        ino: INodeNo(inode.ino.0),
        size,
        blocks: if inode.is_file() { size.div_ceil(SECTOR_BYTES) } else { 0 },
        atime: system_time(inode.atime),
        mtime: system_time(mtime),
        ctime: system_time(ctime),
        crtime: system_time(inode.btime),
        kind: file_type(inode.kind),
        perm: inode.mode,
        nlink,
        uid: inode.uid,
        gid: inode.gid,
        // As the kernel gave it: what it means is between the kernel and the program that made it.
        rdev: inode.rare.as_ref().and_then(|rare| u32::try_from(rare.device).ok()).unwrap_or(0),
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn system_time(stamp: Stamp) -> SystemTime {
    let ns = Duration::from_nanos(stamp.0.unsigned_abs());
    if stamp.0 >= 0 { UNIX_EPOCH + ns } else { UNIX_EPOCH - ns }
}

/// A time that the kernel gives; what is before 1677 or after 2262 becomes the nearest that there is.
pub fn stamp(time: SystemTime) -> Stamp {
    let (ns, sign) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after.as_nanos(), 1),
        Err(before) => (before.duration().as_nanos(), -1),
    };
    Stamp(i64::try_from(ns).unwrap_or(i64::MAX) * sign)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::Ino;
    use nacre_wire::fs::{Head, Inode};

    fn node(kind: FileKind, head: Option<Head>) -> FsNode {
        FsNode { inode: Inode::new(Ino(7), kind, 0o1755, (1, 2), Stamp(100)), head }
    }

    /// POSIX: `.` and one `..` for each directory in it, and its times change with what is in it.
    #[test]
    fn a_directory_shows_what_is_in_it() {
        let head = Head { mtime: Stamp(200), entries: 5, directories: 2, ..Head::default() };
        let attr = attr(&node(FileKind::Directory {}, Some(head)));
        assert_eq!((attr.nlink, attr.size, attr.perm), (4, 5, 0o1755));
        assert_eq!((stamp(attr.mtime), stamp(attr.ctime), stamp(attr.atime)), (Stamp(200), Stamp(200), Stamp(100)));
    }

    #[test]
    fn times_before_1970_are_times() {
        for ns in [0, 1, -1, 1_500_000_000, -1_500_000_000, i64::MAX, i64::MIN + 1] {
            assert_eq!(stamp(system_time(Stamp(ns))), Stamp(ns));
        }
    }

    #[test]
    fn a_file_has_the_blocks_of_its_size() {
        let mut file = node(FileKind::File {}, None);
        file.inode.size = 513;
        assert_eq!((attr(&file).blocks, attr(&file).size), (2, 513));
        assert_eq!(attr(&node(FileKind::Fifo {}, None)).blocks, 0);
    }
}
