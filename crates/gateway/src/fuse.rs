//! The kernel's requests: each becomes a call, whose end is the reply.
//!
//! Nothing is kept here: an inode's number is its number there, and what is open is counted by the client. Rights are
//! checked by the kernel (`default_permissions`), with the modes and owners that it is told.

use crate::attr::{attr, file_type, kind_of, stamp};
use crate::listing::{self, DOT, DOT_DOT};
use crate::xattr::{self, Told};
use bytes::Bytes;
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use nacre_fs::{Ask, Given, Outcome};
use nacre_node::FileSystem;
use nacre_types::{Ino, Name};
use nacre_wire::fs::{FileKind, Stamp};
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsChanges, FsListed, FsNode, rename_flag};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long the kernel may take for granted what it was told: not at all, as long as no capability says so.
const TTL: Duration = Duration::ZERO;
/// Largest read and write in bytes.
const IO_BYTES_MAX: u32 = 1 << 20;
/// Requests that the kernel has under way for itself (read-ahead, direct I/O in pieces).
const BACKGROUND_MAX: u16 = 64;
/// Bytes of a listing that the kernel takes at a time, about.
const LIST_BYTES: usize = 4096;
/// Bytes of an entry's header in a listing without and with attributes.
const DIRENT_BYTES: usize = 24;
const DIRENT_PLUS_BYTES: usize = 152;
/// What `statfs` counts in.
const BLOCK_BYTES: u64 = 4096;
/// What it says is free: what the cluster has is told with quotas (docs/plan.md, files, 6).
const FREE_BYTES: u64 = 1 << 40;
const NAME_MAX: u32 = 255;
const O_EXCL: i32 = 0o200;

/// See the module head.
pub struct Fuse(pub FileSystem);

impl Fuse {
    /// Asks for something about names; `end` replies.
    fn names(&self, call: FsCall, end: impl FnOnce(Result<FsAnswer, Errno>) + Send + 'static) {
        self.0.ask(Ask::Names(call), move |outcome| {
            end(match outcome {
                Ok(Given::Answer(answer)) => Ok(answer),
                Ok(_) => Err(Errno::EIO),
                Err(why) => Err(errno(why)),
            });
        });
    }
    /// The same, if it is answered with an inode.
    fn node(&self, call: FsCall, end: impl FnOnce(Result<FsNode, Errno>) + Send + 'static) {
        self.names(call, |answer| {
            end(answer.and_then(|answer| match answer {
                FsAnswer::Node { node, .. } => Ok(node),
                _ => Err(Errno::EIO),
            }));
        });
    }
    fn entry(&self, call: FsCall, reply: ReplyEntry) {
        self.node(call, |node| match node {
            Ok(node) => reply.entry(&TTL, &attr(&node), Generation(0)),
            Err(why) => reply.error(why),
        });
    }
    fn done(&self, call: FsCall, reply: ReplyEmpty) {
        self.names(call, |answer| match answer {
            Ok(_) => reply.ok(),
            Err(why) => reply.error(why),
        });
    }
    fn sync(&self, ino: INodeNo, reply: ReplyEmpty) {
        self.0.ask(Ask::Sync { ino: Some(Ino(ino.0)) }, |outcome| match outcome {
            Ok(_) => reply.ok(),
            Err(why) => reply.error(errno(why)),
        });
    }
    /// A part of a directory: what comes before its entries, and these.
    fn list(
        &self,
        dir: INodeNo,
        offset: u64,
        end: impl FnOnce(Result<(Vec<(u64, &'static str)>, Vec<FsListed>), Errno>) + Send + 'static,
    ) {
        let dots = [(DOT, "."), (DOT_DOT, "..")].into_iter().filter(|(at, _)| *at > offset).collect();
        let call = FsCall::List {
            dir: Ino(dir.0),
            after: listing::after(offset),
            bytes_max: u32::try_from(2 * LIST_BYTES).expect("small"),
        };
        self.names(call, |answer| {
            end(answer.and_then(|answer| match answer {
                FsAnswer::Listed { entries, .. } => Ok((dots, entries)),
                _ => Err(Errno::EIO),
            }));
        });
    }
}

fn errno(why: u16) -> Errno {
    Errno::from_i32(i32::from(why))
}
fn name_of(name: &OsStr) -> Name {
    Name::copy(name.as_bytes())
}
fn ino(node: INodeNo) -> Ino {
    Ino(node.0)
}
fn twelve_bits(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}
fn make(req: &Request, dir: INodeNo, name: &OsStr, kind: FileKind, mode: u32) -> FsCall {
    FsCall::Make {
        dir: ino(dir),
        name: name_of(name),
        kind,
        mode: twelve_bits(mode),
        uid: req.uid(),
        gid: req.gid(),
        target: Bytes::new(),
        device: 0,
        exclusive: true,
        open: false,
    }
}

/// What the kernel looks at in `.` and `..`: the number and the kind.
fn dot(dir: INodeNo) -> FileAttr {
    let zero = UNIX_EPOCH;
    FileAttr {
        ino: dir,
        size: 0,
        blocks: 0,
        atime: zero,
        mtime: zero,
        ctime: zero,
        crtime: zero,
        kind: FileType::Directory,
        perm: 0o755,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Fuse {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let wanted = [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_AUTO_INVAL_DATA,
        ];
        for flag in wanted {
            // What a kernel has not is done without.
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_write(IO_BYTES_MAX);
        let _ = config.set_max_readahead(IO_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(FsCall::Lookup { dir: ino(parent), name: name_of(name) }, reply);
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.node(FsCall::Stat { ino: ino(node) }, |node| match node {
            Ok(node) => reply.attr(&TTL, &attr(&node)),
            Err(why) => reply.error(why),
        });
    }

    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let time = |time: TimeOrNow| match time {
            TimeOrNow::SpecificTime(time) => Some(stamp(time)),
            TimeOrNow::Now => None,
        };
        let (atime, mtime) = (atime.map(time), mtime.map(time));
        let changes = FsChanges { mode: mode.map(twelve_bits), uid, gid, size, atime, mtime };
        self.node(FsCall::Set { ino: ino(node), changes }, |node| match node {
            Ok(node) => reply.attr(&TTL, &attr(&node)),
            Err(why) => reply.error(why),
        });
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        self.node(FsCall::Stat { ino: ino(node) }, |node| match node {
            Ok(node) => reply.data(node.inode.rare.as_ref().map_or(&[][..], |rare| &rare.target)),
            Err(why) => reply.error(why),
        });
    }

    fn mknod(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, rdev: u32, reply: ReplyEntry) {
        let Some(kind) = kind_of(mode) else { return reply.error(Errno::EINVAL) };
        let mut call = make(req, parent, name, kind, mode);
        if let FsCall::Make { device, .. } = &mut call {
            *device = u64::from(rdev);
        }
        self.entry(call, reply);
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        self.entry(make(req, parent, name, FileKind::Directory {}, mode), reply);
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, to: &Path, reply: ReplyEntry) {
        let mut call = make(req, parent, name, FileKind::Symlink {}, 0o777);
        if let FsCall::Make { target, .. } = &mut call {
            *target = Bytes::copy_from_slice(to.as_os_str().as_bytes());
        }
        self.entry(call, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.done(FsCall::Unlink { dir: ino(parent), name: name_of(name), directory: false }, reply);
    }
    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.done(FsCall::Unlink { dir: ino(parent), name: name_of(name), directory: true }, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let known = u32::from(rename_flag::NO_REPLACE | rename_flag::EXCHANGE);
        let flags = match u8::try_from(flags.bits()) {
            Ok(bits) if u32::from(bits) & !known == 0 => bits,
            _ => return reply.error(Errno::EINVAL),
        };
        let (dir, to_dir) = (ino(parent), ino(to));
        self.done(FsCall::Rename { dir, name: name_of(name), to_dir, to_name: name_of(to_name), flags }, reply);
    }

    fn link(&self, _: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(FsCall::Link { ino: ino(node), dir: ino(parent), name: name_of(name) }, reply);
    }

    fn open(&self, _: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.node(FsCall::Open { ino: ino(node) }, |node| match node {
            Ok(_) => reply.opened(FileHandle(0), FopenFlags::empty()),
            Err(why) => reply.error(why),
        });
    }

    fn create(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, flags: i32, reply: ReplyCreate) {
        let mut call = make(req, parent, name, FileKind::File {}, mode);
        if let FsCall::Make { exclusive, open, .. } = &mut call {
            (*exclusive, *open) = (flags & O_EXCL != 0, true);
        }
        self.node(call, |node| match node {
            Ok(node) => reply.created(&TTL, &attr(&node), Generation(0), FileHandle(0), FopenFlags::empty()),
            Err(why) => reply.error(why),
        });
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.0.ask(Ask::Read { ino: ino(node), offset, length: size }, |outcome: Outcome| match outcome {
            Ok(Given::Data(parts)) => match &parts[..] {
                [one] => reply.data(one),
                _ => reply.data(&parts.concat()),
            },
            Ok(_) => reply.error(Errno::EIO),
            Err(why) => reply.error(errno(why)),
        });
    }

    fn write(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let length = u32::try_from(data.len()).expect("a write is bounded");
        let ask = Ask::Write { ino: ino(node), offset, data: Bytes::copy_from_slice(data) };
        self.0.ask(ask, move |outcome| match outcome {
            Ok(_) => reply.written(length),
            Err(why) => reply.error(errno(why)),
        });
    }

    /// What was written is durable already; how large the file is, is told with the last close.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.done(FsCall::Close { ino: ino(node), size: 0, mtime: Stamp::default() }, reply);
    }

    fn fsync(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.sync(node, reply);
    }
    fn fsyncdir(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.sync(node, reply);
    }

    fn readdir(&self, _: &Request, dir: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.list(dir, offset, move |listed| {
            let (dots, entries) = match listed {
                Ok(listed) => listed,
                Err(why) => return reply.error(why),
            };
            for (offset, name) in &dots {
                let _ = reply.add(dir, *offset, FileType::Directory, name);
            }
            let room = LIST_BYTES - dots.len() * listing::entry_bytes(b"..", DIRENT_BYTES);
            let size = |listed: &FsListed| listing::entry_bytes(listed.name.as_bytes(), DIRENT_BYTES);
            listing::tell(&entries, room, size, |listed, offset| {
                let inode = &listed.node.inode;
                let name = OsStr::from_bytes(listed.name.as_bytes());
                reply.add(INodeNo(inode.ino.0), offset, file_type(inode.kind), name)
            });
            reply.ok();
        });
    }

    fn readdirplus(&self, _: &Request, dir: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        self.list(dir, offset, move |listed| {
            let (dots, entries) = match listed {
                Ok(listed) => listed,
                Err(why) => return reply.error(why),
            };
            for (offset, name) in &dots {
                let _ = reply.add(dir, *offset, name, &TTL, &dot(dir), Generation(0));
            }
            let room = LIST_BYTES - dots.len() * listing::entry_bytes(b"..", DIRENT_PLUS_BYTES);
            let size = |listed: &FsListed| listing::entry_bytes(listed.name.as_bytes(), DIRENT_PLUS_BYTES);
            listing::tell(&entries, room, size, |listed, offset| {
                let (name, attr) = (OsStr::from_bytes(listed.name.as_bytes()), attr(&listed.node));
                reply.add(attr.ino, offset, name, &TTL, &attr, Generation(0))
            });
            reply.ok();
        });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.names(FsCall::StatFs {}, |answer| match answer {
            Ok(FsAnswer::Room { bytes, files }) => {
                let (used, free) = (bytes.div_ceil(BLOCK_BYTES), FREE_BYTES / BLOCK_BYTES);
                let block = u32::try_from(BLOCK_BYTES).expect("small");
                reply.statfs(used + free, free, free, files + free, free, block, NAME_MAX, block);
            }
            Ok(_) => reply.error(Errno::EIO),
            Err(why) => reply.error(why),
        });
    }

    fn setxattr(&self, _: &Request, node: INodeNo, name: &OsStr, value: &[u8], flags: i32, _: u32, reply: ReplyEmpty) {
        if let Err(why) = xattr::may_be(name.as_bytes()) {
            return reply.error(Errno::from_i32(why));
        }
        let (value, fresh) = (Bytes::copy_from_slice(value), xattr::fresh(flags));
        self.done(FsCall::SetXattr { ino: ino(node), name: name_of(name), value, fresh }, reply);
    }

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if let Err(why) = xattr::may_be(name.as_bytes()) {
            return reply.error(Errno::from_i32(why));
        }
        let name = name.as_bytes().to_vec();
        self.node(FsCall::Stat { ino: ino(node) }, move |node| {
            tell(node.and_then(|node| xattr::value(&node.inode, &name, size).map_err(Errno::from_i32)), reply);
        });
    }

    fn listxattr(&self, _: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        self.node(FsCall::Stat { ino: ino(node) }, move |node| {
            tell(node.and_then(|node| xattr::names(&node.inode, size).map_err(Errno::from_i32)), reply);
        });
    }

    fn removexattr(&self, _: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if let Err(why) = xattr::may_be(name.as_bytes()) {
            return reply.error(Errno::from_i32(why));
        }
        self.done(FsCall::RemoveXattr { ino: ino(node), name: name_of(name) }, reply);
    }
}

fn tell(told: Result<Told, Errno>, reply: ReplyXattr) {
    match told {
        Ok(Told::Size(size)) => reply.size(size),
        Ok(Told::Data(data)) => reply.data(&data),
        Err(why) => reply.error(why),
    }
}
