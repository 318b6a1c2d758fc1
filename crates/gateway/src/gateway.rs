//! The kernel's requests: each becomes one call, and is answered when that ends.
//!
//! `access` never occurs: the kernel checks permissions itself (`default_permissions`).

use crate::caller::Caller;
use crate::calls::{self, Allocate, New, Wanted};
use crate::client::Files;
use crate::following::follow;
use crate::kept::Kept;
use crate::lazy::{LAZYIO, Lazy};
use crate::listing::{self, Form};
use crate::locks::{self, Locks};
use crate::room::{BLOCK, Room};
use crate::set_ids::{self, SetIds};
use crate::{answers, attr, xattr};
use bytes::Bytes;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl,
    ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use nacre_fs::{Ask, Outcome};
use nacre_types::Ino;
use nacre_wire::fs::entry::NAME_MAX;
use nacre_wire::fs::inode::{ACL_ACCESS, S_ISGID};
use nacre_wire::fs::quota::DirAttr;
use nacre_wire::fs::{FileKind, FsLock, Stamp};
use nacre_wire::msg::fs::{FsCall, FsChanges, FsNode};
use std::convert::Infallible;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime};

/// How long the kernel may use a name without asking: never (`kept`).
const ENTRY_TTL: Duration = Duration::ZERO;
/// Inode numbers are never reused, so the generation is unused.
const GENERATION: Generation = Generation(0);
/// An open directory has no state.
const HANDLE: FileHandle = FileHandle(0);

/// Largest write in bytes, and the kernel's maximum read-ahead.
const IO_MAX: u32 = 1 << 20;
/// Most background requests in flight, such as read-ahead.
const BACKGROUND_MAX: u16 = 64;

/// See the module head.
pub struct Gateway<F> {
    files: F,
    kept: Arc<Kept>,
    /// How much to request per page of a listing, by [`Form`]: estimated from what the kernel used
    /// of the last ones.
    asks: [Arc<AtomicU32>; 2],
    locks: Locks,
    set_ids: Arc<SetIds>,
    lazy: Arc<Lazy>,
    /// The kernel's mode for open files.
    how: FopenFlags,
    /// Dropped with this: the holder of its other end learns that the session has ended.
    _ended: Sender<Infallible>,
}

impl<F: Files + Clone> Gateway<F> {
    /// Creates the gateway of a session; `ended` is dropped with it.
    pub fn new(files: F, kept: Arc<Kept>, ended: Sender<Infallible>) -> Self {
        let asks = [listing::ASK_FIRST; 2].map(|bytes| Arc::new(AtomicU32::new(bytes)));
        let (locks, set_ids, lazy) = (Locks::default(), Arc::default(), Arc::default());
        Self {
            files,
            kept,
            asks,
            locks,
            set_ids,
            lazy,
            how: FopenFlags::empty(),
            _ended: ended,
        }
    }

    fn names(&self, call: FsCall, then: impl FnOnce(Outcome) + Send + 'static) {
        self.files.ask(Ask::Names(call), then);
    }
    fn entry(&self, call: FsCall, reply: ReplyEntry) {
        let (files, kept, set_ids) = (
            self.files.clone(),
            Arc::clone(&self.kept),
            Arc::clone(&self.set_ids),
        );
        self.names(call, move |outcome| match answers::node(outcome) {
            Ok(node) => {
                kept.looked_up(node.inode.ino);
                set_ids.note(&node.inode);
                reply.entry_with_ttls(
                    &files.lend(&node),
                    &ENTRY_TTL,
                    &attr::attr(&node),
                    GENERATION,
                );
            }
            Err(why) => reply.error(why),
        });
    }
    fn attributes(&self, call: FsCall, reply: ReplyAttr) {
        let (files, set_ids) = (self.files.clone(), Arc::clone(&self.set_ids));
        self.names(call, move |outcome| match answers::node(outcome) {
            Ok(node) => {
                set_ids.note(&node.inode);
                reply.attr(&files.lend(&node), &attr::attr(&node));
            }
            Err(why) => reply.error(why),
        });
    }
    /// A directory's usage changes without invalidating cached attributes, so its server is asked.
    fn own_xattr(&self, ino: Ino, attr: DirAttr, size: u32, reply: ReplyXattr) {
        let files = self.files.clone();
        self.names(FsCall::Stat { ino }, move |outcome| {
            match answers::node(outcome) {
                Ok(node) if node.inode.is_directory() => {
                    files.ask(Ask::Names(FsCall::Usage { ino }), move |outcome| {
                        let given = answers::usage(outcome)
                            .and_then(|usage| xattr::get_own(ino, attr, &usage, size));
                        give(reply, given);
                    });
                }
                Ok(_) => reply.error(Errno::ENODATA),
                Err(why) => reply.error(why),
            }
        });
    }
    /// Continues once the bits that a write by this user must clear are cleared.
    fn before_write(
        &self,
        by: &Request,
        ino: Ino,
        then: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        if !self.set_ids.concern(ino, by.uid()) {
            return then(Ok(()));
        }
        let (files, set_ids) = (self.files.clone(), Arc::clone(&self.set_ids));
        self.names(FsCall::Stat { ino }, move |outcome| {
            let node = match answers::node(outcome) {
                Ok(node) => node,
                Err(why) => return then(Err(why)),
            };
            let Some(mode) = set_ids::without(&node.inode) else {
                return then(Ok(()));
            };
            let changes = FsChanges {
                mode: Some(mode),
                ..FsChanges::default()
            };
            files.ask_beside(Ask::Names(FsCall::Set { ino, changes }), move |outcome| {
                then(answers::node(outcome).map(|node| set_ids.note(&node.inode)));
            });
        });
    }
    fn empty(&self, ask: Ask, reply: ReplyEmpty) {
        self.files.ask(ask, move |outcome| finish(reply, outcome));
    }
    fn xattrs(
        &self,
        ino: INodeNo,
        reply: ReplyXattr,
        give: impl FnOnce(&FsNode) -> Result<xattr::Given, Errno> + Send + 'static,
    ) {
        self.names(FsCall::Stat { ino: number(ino) }, move |outcome| {
            self::give(reply, answers::node(outcome).and_then(|node| give(&node)));
        });
    }
}

/// Replies with an attribute's value, or its size.
fn give(reply: ReplyXattr, given: Result<xattr::Given, Errno>) {
    match given {
        Ok(xattr::Given::Size(bytes)) => reply.size(bytes),
        Ok(xattr::Given::Data(data)) => reply.data(&data),
        Err(why) => reply.error(why),
    }
}

/// Replies to a call without a result.
fn finish(reply: ReplyEmpty, outcome: Outcome) {
    match answers::done(outcome) {
        Ok(()) => reply.ok(),
        Err(why) => reply.error(why),
    }
}

fn number(ino: INodeNo) -> Ino {
    Ino(ino.0)
}

fn owner(request: &Request) -> (u32, u32) {
    (request.uid(), request.gid())
}

impl<F: Files + Clone> Filesystem for Gateway<F> {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            // The kernel drops cached data when a file's size or time has changed.
            InitFlags::FUSE_AUTO_INVAL_DATA,
            // The kernel checks access control lists, and reads them again when it reads
            // attributes.
            InitFlags::FUSE_POSIX_ACL,
            // Whether the umask applies depends on the directory.
            InitFlags::FUSE_DONT_MASK,
            // Otherwise each kernel would manage locks on its own.
            InitFlags::FUSE_POSIX_LOCKS,
            InitFlags::FUSE_FLOCK_LOCKS,
        ];
        for flag in wanted {
            // An older kernel works without it.
            let _ = config.add_capabilities(flag);
        }
        // Each read sees other clients' writes only if the kernel caches nothing: caching is done
        // here. An older kernel cannot map files then; it drops cached data of a file when that is
        // opened, or its size or time has changed.
        if config
            .add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP)
            .is_ok()
        {
            self.how = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        }
        if let Err(most) = config.set_max_readahead(IO_MAX) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_write(IO_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    // ── names ───────────────────────────────────────────────────────────────────────────

    fn lookup(&self, by: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        follow(by);
        self.entry(
            FsCall::Lookup {
                dir: number(parent),
                name: calls::name(name),
            },
            reply,
        );
    }

    fn forget(&self, _: &Request, ino: INodeNo, times: u64) {
        self.kept.forgotten(number(ino), times);
    }

    fn mknod(
        &self,
        by: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        match calls::kind(mode) {
            Ok(kind) => {
                let new = New {
                    device: rdev,
                    umask,
                    ..New::plain(kind, mode, owner(by))
                };
                self.entry(new.call(number(parent), calls::name(name), None), reply);
            }
            Err(why) => reply.error(why),
        }
    }

    fn mkdir(
        &self,
        by: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        follow(by);
        let new = New {
            umask,
            ..New::plain(FileKind::Directory {}, mode, owner(by))
        };
        self.entry(new.call(number(parent), calls::name(name), None), reply);
    }

    fn symlink(
        &self,
        by: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = Bytes::copy_from_slice(target.as_os_str().as_bytes());
        let new = New {
            target,
            ..New::plain(FileKind::Symlink {}, 0o777, owner(by))
        };
        self.entry(new.call(number(parent), calls::name(name), None), reply);
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(
            FsCall::Link {
                ino: number(ino),
                dir: number(parent),
                name: calls::name(name),
            },
            reply,
        );
    }

    fn unlink(&self, by: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        follow(by);
        let call = FsCall::Unlink {
            dir: number(parent),
            name: calls::name(name),
            directory: false,
        };
        self.empty(Ask::Names(call), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let call = FsCall::Unlink {
            dir: number(parent),
            name: calls::name(name),
            directory: true,
        };
        self.empty(Ask::Names(call), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to_parent: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let flags = match calls::rename_flags(flags) {
            Ok(flags) => flags,
            Err(why) => return reply.error(why),
        };
        let (dir, to_dir) = (number(parent), number(to_parent));
        let call = FsCall::Rename {
            dir,
            name: calls::name(name),
            to_dir,
            to_name: calls::name(to_name),
            flags,
        };
        self.empty(Ask::Names(call), reply);
    }

    // ── attributes ──────────────────────────────────────────────────────────────────────

    fn getattr(&self, by: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        follow(by);
        self.attributes(FsCall::Stat { ino: number(ino) }, reply);
    }

    fn setattr(
        &self,
        by: &Request,
        ino: INodeNo,
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
        follow(by);
        let changes = Wanted {
            mode,
            uid,
            gid,
            size,
            atime,
            mtime,
        }
        .changes();
        self.attributes(
            FsCall::Set {
                ino: number(ino),
                changes,
            },
            reply,
        );
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        self.names(
            FsCall::Stat { ino: number(ino) },
            move |outcome| match answers::node(outcome) {
                Ok(FsNode { inode, .. }) => match (inode.kind, inode.rare) {
                    (FileKind::Symlink {}, Some(rare)) => reply.data(&rare.target),
                    _ => reply.error(Errno::EINVAL),
                },
                Err(why) => reply.error(why),
            },
        );
    }

    fn setxattr(
        &self,
        by: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let may = xattr::check(name.as_bytes())
            .and_then(|()| xattr::check_owner(name.as_bytes(), by.uid()));
        let fresh = match may.and_then(|()| xattr::fresh(flags)) {
            Ok(fresh) => fresh,
            Err(why) => return reply.error(why),
        };
        let is_access = name.as_bytes() == ACL_ACCESS;
        let (ino, name, value) = (
            number(ino),
            calls::name(name),
            Bytes::copy_from_slice(value),
        );
        let set = move |drop_sgid| {
            Ask::Names(FsCall::SetXattr {
                ino,
                name,
                value,
                fresh,
                drop_sgid,
            })
        };
        if !is_access {
            return self.empty(set(false), reply);
        }
        let (files, by) = (self.files.clone(), Caller::of(by));
        self.names(FsCall::Stat { ino }, move |outcome| {
            match answers::node(outcome) {
                Ok(FsNode { inode, .. }) => {
                    let drops = inode.mode & S_ISGID != 0 && !by.is_of(inode.gid);
                    files.ask(set(drops), move |outcome| finish(reply, outcome));
                }
                Err(why) => reply.error(why),
            }
        });
    }

    fn getxattr(&self, by: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        follow(by);
        if let Err(why) = xattr::check(name.as_bytes()) {
            return reply.error(why);
        }
        if let Some(attr) = DirAttr::parse(name.as_bytes()) {
            return self.own_xattr(number(ino), attr, size, reply);
        }
        let name = calls::name(name);
        self.xattrs(ino, reply, move |node| xattr::get(node, &name, size));
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.xattrs(ino, reply, move |node| xattr::list(node, size));
    }

    fn removexattr(&self, by: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match xattr::check(name.as_bytes())
            .and_then(|()| xattr::check_owner(name.as_bytes(), by.uid()))
        {
            Ok(()) => {
                let call = FsCall::RemoveXattr {
                    ino: number(ino),
                    name: calls::name(name),
                };
                self.empty(Ask::Names(call), reply);
            }
            Err(why) => reply.error(why),
        }
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let files = self.files.clone();
        self.names(FsCall::Usage { ino: number(ino) }, move |outcome| {
            // If the inode is removed meanwhile, the whole file system's usage is still reported.
            let quotas = answers::usage(outcome)
                .map(|usage| usage.quotas)
                .unwrap_or_default();
            let asks = files.clone();
            files.ask(
                Ask::Names(FsCall::StatFs {}),
                move |outcome| match answers::room(outcome) {
                    Ok(used) => asks.ask(Ask::Room, move |outcome| {
                        let room = Room::of(used, &quotas, answers::free(outcome));
                        let Room {
                            blocks,
                            free,
                            files,
                            files_free,
                        } = room;
                        let names = u32::try_from(NAME_MAX).expect("255");
                        reply.statfs(blocks, free, free, files, files_free, BLOCK, names, BLOCK);
                    }),
                    Err(why) => reply.error(why),
                },
            );
        });
    }

    // ── files ───────────────────────────────────────────────────────────────────────────

    fn open(&self, by: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        follow(by);
        let (open, how) = (
            FsCall::Open {
                ino: number(ino),
                write: calls::writes(flags),
            },
            self.how,
        );
        let (files, handle, is_lazy) = (
            self.files.clone(),
            self.lazy.handle(),
            self.lazy.has(number(ino)),
        );
        self.names(open, move |outcome| match answers::done(outcome) {
            Ok(()) if is_lazy => {
                let all = Ask::Synchronize {
                    ino: number(ino),
                    offset: 0,
                    length: u64::MAX,
                };
                // Write errors are reported to the program that wrote, by `fsync`.
                files.ask(all, move |_| reply.opened(handle, how));
            }
            Ok(()) => reply.opened(handle, how),
            Err(why) => reply.error(why),
        });
    }

    fn ioctl(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: IoctlFlags,
        command: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let ino = number(ino);
        if command != LAZYIO || handle == HANDLE {
            return reply.error(Errno::ENOTTY);
        }
        if !self.lazy.begin(handle, ino) {
            return reply.ioctl(0, &[]);
        }
        let lazy = Arc::clone(&self.lazy);
        self.files.ask(
            Ask::Lazy { ino, lazy: true },
            move |outcome| match answers::done(outcome) {
                Ok(()) => reply.ioctl(0, &[]),
                Err(why) => {
                    lazy.end(handle);
                    reply.error(why);
                }
            },
        );
    }

    fn create(
        &self,
        by: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        follow(by);
        let new = New {
            umask,
            ..New::plain(FileKind::File {}, mode, owner(by))
        };
        let (open, how) = (Some(calls::writes(OpenFlags(flags))), self.how);
        let (kept, set_ids, handle) = (
            Arc::clone(&self.kept),
            Arc::clone(&self.set_ids),
            self.lazy.handle(),
        );
        self.names(
            new.call(number(parent), calls::name(name), open),
            move |outcome| match answers::node(outcome) {
                Ok(node) => {
                    kept.looked_up(node.inode.ino);
                    set_ids.note(&node.inode);
                    // The library has one time for the name and the attributes: the name's is used.
                    reply.created(&ENTRY_TTL, &attr::attr(&node), GENERATION, handle, how);
                }
                Err(why) => reply.error(calls::taken(why, flags)),
            },
        );
    }

    fn read(
        &self,
        by: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        follow(by);
        self.files.ask(
            Ask::Read {
                ino: number(ino),
                offset,
                length: size,
            },
            move |outcome| {
                answers::with_data(outcome, |data| match data {
                    Ok(data) => reply.data(data),
                    Err(why) => reply.error(why),
                });
            },
        );
    }

    fn write(
        &self,
        by: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        from: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        follow(by);
        let length = u32::try_from(data.len()).expect("the kernel writes at most IO_MAX at once");
        // The library reuses the memory for the next request.
        let data = Bytes::copy_from_slice(data);
        let ino = number(ino);
        // Pages of a mapping are written at their offsets.
        let appends = calls::appends(flags) && !from.contains(WriteFlags::FUSE_WRITE_CACHE);
        let ask = if appends {
            Ask::Append { ino, data }
        } else {
            Ask::Write { ino, offset, data }
        };
        let files = self.files.clone();
        self.before_write(by, ino, move |may| match may {
            Ok(()) => files.ask(ask, move |outcome| match answers::done(outcome) {
                Ok(()) => reply.written(length),
                Err(why) => reply.error(why),
            }),
            Err(why) => reply.error(why),
        });
    }

    fn fallocate(
        &self,
        by: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (ino, end) = (number(ino), offset.saturating_add(length));
        let files = self.files.clone();
        self.before_write(by, ino, move |may| {
            match may.and_then(|()| calls::allocate(mode)) {
                Ok(Allocate {
                    extend: true,
                    zero: true,
                }) => {
                    let again = files.clone();
                    files.ask(
                        Ask::Extend { ino, size: end },
                        move |outcome| match answers::done(outcome) {
                            Ok(()) => again.ask(
                                Ask::Zero {
                                    ino,
                                    offset,
                                    length,
                                },
                                move |outcome| finish(reply, outcome),
                            ),
                            Err(why) => reply.error(why),
                        },
                    );
                }
                Ok(Allocate { extend: true, .. }) => {
                    files.ask(Ask::Extend { ino, size: end }, move |outcome| {
                        finish(reply, outcome)
                    });
                }
                Ok(Allocate { zero: true, .. }) => {
                    files.ask(
                        Ask::Zero {
                            ino,
                            offset,
                            length,
                        },
                        move |outcome| finish(reply, outcome),
                    );
                }
                // Nothing is reserved.
                Ok(_) => reply.ok(),
                Err(why) => reply.error(why),
            }
        });
    }

    /// Only for data and holes: the kernel handles the other cases.
    fn lseek(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match calls::seek(number(ino), offset, whence) {
            Ok(ask) => self
                .files
                .ask(ask, move |outcome| match answers::offset(outcome) {
                    Ok(offset) => reply.offset(offset),
                    Err(why) => reply.error(why),
                }),
            Err(why) => reply.error(why),
        }
    }

    /// Possibly only the first part: the caller requests the rest.
    fn copy_file_range(
        &self,
        by: &Request,
        from: INodeNo,
        _: FileHandle,
        offset: u64,
        to: INodeNo,
        _: FileHandle,
        to_offset: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (from, to, files) = (number(from), number(to), self.files.clone());
        let copy = Ask::Copy {
            from,
            offset,
            to,
            at: to_offset,
            length,
        };
        self.before_write(by, to, move |may| match may {
            Ok(()) => files.ask(copy, move |outcome| match answers::copied(outcome) {
                Ok(copied) => reply.written(copied),
                Err(why) => reply.error(why),
            }),
            Err(why) => reply.error(why),
        });
    }

    /// `close` only waits for releasing its process's locks, if there are any. It reports failed
    /// writes known by then.
    fn flush(
        &self,
        by: &Request,
        ino: INodeNo,
        _: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        follow(by);
        let ino = number(ino);
        if !self.locks.take(ino, owner.0) {
            return self.empty(Ask::Failed { ino }, reply);
        }
        let files = self.files.clone();
        self.files.ask(
            Ask::UnlockAll {
                ino,
                owner: owner.0,
            },
            move |unlocked| {
                files.ask(Ask::Failed { ino }, move |failed| {
                    match answers::done(failed).and(answers::done(unlocked)) {
                        Ok(()) => reply.ok(),
                        Err(why) => reply.error(why),
                    }
                });
            },
        );
    }

    /// The client knows how far it has written. An owner is given if the file description had a
    /// `flock` lock.
    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        flags: OpenFlags,
        owner: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let ino = number(ino);
        if let Some(LockOwner(owner)) = owner
            && self.locks.take(ino, owner)
        {
            self.files.ask(Ask::UnlockAll { ino, owner }, |_| {});
        }
        if self.lazy.end(handle) {
            self.files.ask(Ask::Lazy { ino, lazy: false }, |_| {});
        }
        self.empty(
            Ask::Names(FsCall::Close {
                ino,
                write: calls::writes(flags),
                size: 0,
                mtime: Stamp::default(),
            }),
            reply,
        );
    }

    // ── locks ───────────────────────────────────────────────────────────────────────────

    fn getlk(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        // Only `fcntl` asks this.
        let (ino, exclusive) = (number(ino), kind == locks::EXCLUSIVE);
        let lock = FsLock {
            ino,
            owner: owner.0,
            pid,
            flock: false,
            start,
            end: locks::last(end),
            exclusive,
        };
        self.names(
            FsCall::TestLock { lock },
            move |outcome| match answers::conflict(outcome) {
                Ok(Some(lock)) => {
                    let ((start, end), kind) =
                        (locks::shown(&lock), [locks::SHARED, locks::EXCLUSIVE]);
                    reply.locked(start, end, kind[usize::from(lock.exclusive)], lock.pid);
                }
                Ok(None) => reply.locked(0, 0, locks::UNLOCKED, 0),
                Err(why) => reply.error(why),
            },
        );
    }

    /// `sleep`: wait until the lock is granted, or a signal arrives for its thread.
    fn setlk(
        &self,
        by: &Request,
        ino: INodeNo,
        _: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let (ino, owner) = (number(ino), owner.0);
        if kind == locks::UNLOCKED {
            let all = start == 0 && locks::last(end) == u64::MAX;
            let unlock = if all {
                // Both kinds: no owner has both.
                Ask::UnlockAll { ino, owner }
            } else {
                let end = locks::last(end);
                Ask::Unlock {
                    lock: FsLock {
                        ino,
                        owner,
                        pid,
                        flock: false,
                        start,
                        end,
                        exclusive: false,
                    },
                }
            };
            return self.empty(unlock, reply);
        }
        let lock = self.locks.lock(
            ino,
            owner,
            (start, end),
            pid,
            kind == locks::EXCLUSIVE,
            by.pid(),
        );
        self.locks.note(&lock);
        let wait = sleep.then(|| self.locks.begin_wait(&self.files, by.pid()));
        let locks = self.locks.clone();
        self.files.ask(Ask::Lock { lock, wait }, move |outcome| {
            wait.into_iter().for_each(|wait| locks.end_wait(wait));
            match answers::done(outcome) {
                Ok(()) => {
                    // Its process may have closed the file meanwhile.
                    locks.note(&lock);
                    reply.ok();
                }
                Err(why) => reply.error(why),
            }
        });
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.empty(
            Ask::Sync {
                ino: Some(number(ino)),
            },
            reply,
        );
    }

    // ── directories ─────────────────────────────────────────────────────────────────────

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(HANDLE, FopenFlags::empty());
    }

    fn releasedir(&self, _: &Request, _: INodeNo, _: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    /// The kernel does not pass `sync` and `syncfs` on to mounts of this kind, and returns at once:
    /// to synchronize the top directory is to synchronize everything.
    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let one = Some(number(ino)).filter(|ino| *ino != Ino::ROOT);
        self.empty(Ask::Sync { ino: one }, reply);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let (dir, hint) = (number(ino), Arc::clone(&self.asks[Form::Plain as usize]));
        let asked = hint.load(Ordering::Relaxed);
        let Some(call) = listing::call(dir, offset, asked) else {
            return reply.ok();
        };
        self.names(call, move |outcome| match answers::listed(outcome) {
            Ok((entries, end)) => {
                let filled = listing::fill(dir, offset, (&entries, end), Form::Plain, |line| {
                    reply.add(
                        line.attr.ino,
                        line.offset,
                        line.attr.kind,
                        OsStr::from_bytes(line.name),
                    )
                });
                hint.store(filled.next_ask(asked), Ordering::Relaxed);
                reply.ok();
            }
            Err(why) => reply.error(why),
        });
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let (dir, hint) = (number(ino), Arc::clone(&self.asks[Form::Plus as usize]));
        let asked = hint.load(Ordering::Relaxed);
        let Some(call) = listing::call(dir, offset, asked) else {
            return reply.ok();
        };
        let (kept, set_ids) = (Arc::clone(&self.kept), Arc::clone(&self.set_ids));
        self.names(call, move |outcome| match answers::listed(outcome) {
            Ok((entries, end)) => {
                entries
                    .iter()
                    .for_each(|entry| set_ids.note(&entry.node.inode));
                let filled = listing::fill(dir, offset, (&entries, end), Form::Plus, |line| {
                    let name = OsStr::from_bytes(line.name);
                    let is_full = reply.add(
                        line.attr.ino,
                        line.offset,
                        name,
                        &ENTRY_TTL,
                        &line.attr,
                        GENERATION,
                    );
                    // The kernel does not count `.` and `..` as look-ups.
                    if !is_full && !listing::is_dots(line.name) {
                        kept.looked_up(number(line.attr.ino));
                    }
                    is_full
                });
                hint.store(filled.next_ask(asked), Ordering::Relaxed);
                reply.ok();
            }
            Err(why) => reply.error(why),
        });
    }
}
