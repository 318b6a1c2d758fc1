//! Converts requests into calls, where that is not trivial.

use bytes::Bytes;
use fuser::{Errno, OpenFlags, RenameFlags, TimeOrNow};
use nacre_fs::Ask;
use nacre_types::{Ino, Name};
use nacre_wire::fs::{FileKind, Stamp};
use nacre_wire::msg::fs::{FsCall, FsChanges, rename_flag};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// The permission bits of `st_mode`.
const PERMISSIONS: u32 = 0o7777;
/// The file type bits of `st_mode`.
const KIND: u32 = 0o170_000;

/// A name, unchanged.
pub fn name(name: &OsStr) -> Name {
    Name::copy(name.as_bytes())
}

/// The low twelve bits of `st_mode`.
fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & PERMISSIONS).expect("twelve bits")
}

/// The kind that `mknod` must create.
pub fn kind(mode: u32) -> Result<FileKind, Errno> {
    match mode & KIND {
        // POSIX does not define a missing type; Linux creates a regular file.
        0 | 0o100_000 => Ok(FileKind::File {}),
        0o010_000 => Ok(FileKind::Fifo {}),
        0o020_000 => Ok(FileKind::CharDevice {}),
        0o060_000 => Ok(FileKind::BlockDevice {}),
        0o140_000 => Ok(FileKind::Socket {}),
        _ => Err(Errno::EINVAL),
    }
}

/// What to create, except its place.
#[derive(Debug)]
pub struct New {
    /// The kind.
    pub kind: FileKind,
    /// `st_mode`.
    pub mode: u32,
    /// The umask, applied by the server, which knows whether the directory has a default access
    /// control list. 0 for symbolic links.
    pub umask: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Target of a symbolic link.
    pub target: Bytes,
    /// Device number: the kernel's 32 bits, unchanged.
    pub device: u32,
}

impl New {
    /// An inode without a target or device number.
    pub fn plain(kind: FileKind, mode: u32, owner: (u32, u32)) -> Self {
        Self {
            kind,
            mode,
            umask: 0,
            owner,
            target: Bytes::new(),
            device: 0,
        }
    }

    /// The call that creates it. It fails if the name exists; that is also right for `create`
    /// without `O_EXCL`: see [`taken`]. `open`: also open it, for writing or not.
    pub fn call(self, dir: Ino, name: Name, open: Option<bool>) -> FsCall {
        let (uid, gid) = self.owner;
        FsCall::Make {
            dir,
            name,
            kind: self.kind,
            mode: permissions(self.mode),
            umask: permissions(self.umask),
            uid,
            gid,
            target: self.target,
            device: u64::from(self.device),
            exclusive: true,
            open: open.is_some(),
            write: open.unwrap_or_default(),
        }
    }
}

/// Whether a file is opened for writing.
pub fn writes(flags: OpenFlags) -> bool {
    flags.acc_mode() != fuser::OpenAccMode::O_RDONLY
}
/// Whether all writes through an open file go to its end.
pub fn appends(flags: OpenFlags) -> bool {
    flags.0.cast_unsigned() & rustix::fs::OFlags::APPEND.bits() != 0
}

/// The error of a `create` that failed.
///
/// The kernel calls `create` if the name did not exist a moment ago, and assumes that the file is
/// new: it neither checks whether the caller may open it, nor truncates it. If another client has
/// created it in between, the kernel must open it as an existing file: after `ESTALE` it looks the
/// path up again. Only `O_EXCL` needs the error.
pub fn taken(why: Errno, flags: i32) -> Errno {
    let exclusive = flags.cast_unsigned() & rustix::fs::OFlags::EXCL.bits() != 0;
    if why == Errno::EEXIST && !exclusive {
        Errno::ESTALE
    } else {
        why
    }
}

/// The rename flags that servers support.
pub fn rename_flags(flags: RenameFlags) -> Result<u8, Errno> {
    let known = rename_flag::NO_REPLACE | rename_flag::EXCHANGE;
    u8::try_from(flags.bits())
        .ok()
        .filter(|flags| flags & !known == 0)
        .ok_or(Errno::EINVAL)
}

/// What `fallocate` must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocate {
    /// Extend the file to the range's end, if it is shorter.
    pub extend: bool,
    /// Zero the range.
    pub zero: bool,
}

/// Interprets a mode of `fallocate`. Nothing is reserved: a mode that keeps the size and zeroes
/// nothing has no effect.
pub fn allocate(mode: i32) -> Result<Allocate, Errno> {
    const KEEP_SIZE: i32 = 1;
    const PUNCH_HOLE: i32 = 2;
    const ZERO_RANGE: i32 = 16;
    let [keeps, punches, zeroes] = [KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE].map(|bit| mode & bit != 0);
    let is_known = mode & !(KEEP_SIZE | PUNCH_HOLE | ZERO_RANGE) == 0;
    if !is_known || (punches && (!keeps || zeroes)) {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(Allocate {
        extend: !keeps,
        zero: punches || zeroes,
    })
}

/// The call for `lseek`.
pub fn seek(ino: Ino, offset: i64, whence: i32) -> Result<Ask, Errno> {
    const DATA: i32 = 3;
    const HOLE: i32 = 4;
    let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
    match whence {
        DATA | HOLE => Ok(Ask::Seek {
            ino,
            offset,
            hole: whence == HOLE,
        }),
        _ => Err(Errno::EINVAL),
    }
}

/// The arguments of `setattr`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// `st_mode`.
    pub mode: Option<u32>,
    /// Owner's user id.
    pub uid: Option<u32>,
    /// Owner's group id.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<TimeOrNow>,
    /// Last change of data.
    pub mtime: Option<TimeOrNow>,
}

impl Wanted {
    /// The changes for the server; "now" is by the server's clock.
    pub fn changes(self) -> FsChanges {
        FsChanges {
            mode: self.mode.map(permissions),
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            atime: self.atime.map(moment),
            mtime: self.mtime.map(moment),
            foretold: None,
        }
    }
}

fn moment(time: TimeOrNow) -> Option<Stamp> {
    match time {
        TimeOrNow::Now => None,
        TimeOrNow::SpecificTime(time) => Some(crate::attr::stamp(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn a_kind_is_in_the_mode() {
        assert_eq!(kind(0o100_644), Ok(FileKind::File {}));
        assert_eq!(kind(0o644), Ok(FileKind::File {}));
        assert_eq!(kind(0o020_600), Ok(FileKind::CharDevice {}));
        assert_eq!(kind(0o060_600), Ok(FileKind::BlockDevice {}));
        assert_eq!(kind(0o010_600), Ok(FileKind::Fifo {}));
        assert_eq!(kind(0o140_600), Ok(FileKind::Socket {}));
        // Directories and links are created by other requests.
        assert_eq!(
            (kind(0o040_755), kind(0o120_777)),
            (Err(Errno::EINVAL), Err(Errno::EINVAL))
        );
    }

    #[test]
    fn a_device_is_made_with_the_kernels_number_and_the_modes_low_bits() {
        let new = New {
            device: 0xffe0_0103,
            ..New::plain(FileKind::CharDevice {}, 0o026_640, (1, 2))
        };
        let FsCall::Make {
            mode,
            uid,
            gid,
            device,
            exclusive,
            open,
            ..
        } = new.call(Ino(5), Name::from("x"), None)
        else {
            panic!("it makes something");
        };
        assert_eq!(
            (mode, uid, gid, device, exclusive, open),
            (0o6640, 1, 2, 0xffe0_0103, true, false)
        );
    }

    #[test]
    fn a_file_that_another_client_made_meanwhile_is_looked_up_again() {
        let (exclusive, plain) = (0o301, 0o1101);
        assert_eq!(taken(Errno::EEXIST, plain), Errno::ESTALE);
        assert_eq!(taken(Errno::EEXIST, exclusive), Errno::EEXIST);
        assert_eq!(taken(Errno::ENOENT, plain), Errno::ENOENT);
    }

    #[test]
    fn renames_of_other_kinds_are_refused() {
        let bits = RenameFlags::from_bits_retain;
        assert_eq!(
            [0, 1, 2, 3].map(|flags| rename_flags(bits(flags))),
            [Ok(0), Ok(1), Ok(2), Ok(3)]
        );
        assert_eq!(
            [4, 5, 257].map(|flags| rename_flags(bits(flags))),
            [Err(Errno::EINVAL); 3]
        );
    }

    #[test]
    fn zeros_and_a_larger_file_are_what_fallocate_can_make() {
        let all = [0, 1, 3, 16, 17]
            .map(|mode| allocate(mode).map(|Allocate { extend, zero }| (extend, zero)));
        let (yes, no) = (true, false);
        assert_eq!(
            all,
            [
                Ok((yes, no)),
                Ok((no, no)),
                Ok((no, yes)),
                Ok((yes, yes)),
                Ok((no, yes))
            ]
        );
        for mode in [2, 8, 19, 32, 33, 64, 128, -1] {
            assert_eq!(allocate(mode), Err(Errno::EOPNOTSUPP), "{mode}");
        }
    }

    #[test]
    fn data_and_holes_are_looked_for_from_a_place_on() {
        assert_eq!(
            seek(Ino(5), 7, 3),
            Ok(Ask::Seek {
                ino: Ino(5),
                offset: 7,
                hole: false
            })
        );
        assert_eq!(
            seek(Ino(5), 0, 4),
            Ok(Ask::Seek {
                ino: Ino(5),
                offset: 0,
                hole: true
            })
        );
        assert_eq!(
            (seek(Ino(5), -1, 3), seek(Ino(5), 0, 2)),
            (Err(Errno::ENXIO), Err(Errno::EINVAL))
        );
    }

    #[test]
    fn changes_are_those_that_came() {
        assert_eq!(Wanted::default().changes(), FsChanges::default());
        let before = TimeOrNow::SpecificTime(UNIX_EPOCH + Duration::new(1, 5));
        let wanted = Wanted {
            mode: Some(0o104_755),
            atime: Some(TimeOrNow::Now),
            mtime: Some(before),
            ..Wanted::default()
        };
        let changes = wanted.changes();
        assert_eq!(
            (changes.mode, changes.atime, changes.mtime),
            (Some(0o4755), Some(None), Some(Some(Stamp(1_000_000_005))))
        );
    }
}
