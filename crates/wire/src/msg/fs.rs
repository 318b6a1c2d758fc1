//! File systems: clients ⇄ the server of a rank (ADR 0006; CEPH-02, -12, -16, -23, -32).
//!
//! ```text
//!  client ──FsSession──▶ server       once per connection: who it is, what it has open
//!         ◀─FsWelcome, or FsAway──    its session outlives the server; or: look for the rank's holder again
//!         ──FsRequest 3 again, …, FsCaughtUp──▶   what an earlier holder answered, and did not tell as safe
//!  client ──FsRequest 7──▶ server     changes what it has in memory
//!         ◀─FsReply 7, early──        done; lost only if the server and this client die before it is safe
//!         ◀─FsSafe [5, 6, 7]──        in the journal: the client forgets it
//!  client ──FsRequest 8, safe_below 8──▶   the server forgets what it answered below 8
//!  client ──FsRequest 9, Lock──▶ server    another client has it: answered Waits
//!         ◀─FsLocked 9──              later: it has the lock
//!
//!  client ◀─FsReply, shares [dir]── server    it may keep what it is told of names and attributes in dir
//!  another client changes something in dir: answered after
//!  client ◀─FsForget 4── server; ──FsForgot 4──▶     or after its lease, which FsPing and FsPong renew
//!
//!  client ──FsRequest 10, Open──▶ server; ◀─FsReply, caps [ino Buffer]──     no other client has it open
//!  another client opens the file
//!  client ◀─FsCaps [ino Sync 6]── server   writes what it buffers, then
//!         ──FsRequest 11, Comply 6──▶      how large the file is now; both are at Sync then
//!
//!  client ──FsRequest 12, Make a──▶ server; ◀─FsReply, delegated [dir]──     no other client knows anything of dir
//!         ──FsRequest 13, Numbers──▶ server; ◀─FsReply, Numbers──
//!  client   makes b and answers its caller; then
//!         ──FsRequest 14, Make b, foretold──▶ server     which number it was given, and when
//!  another client looks into dir
//!  client ◀─FsCaps [dir Nothing 8]── server; ──FsRequest 15, Comply 8──▶     behind all that it foretold there
//! ```
//! A request is named by its client's life and a number that grows. What is not safe is sent again,
//! in order, to the next holder of the rank; one that was journaled is answered as it was then.

use crate::fs::{FileKind, FsLock, FsLockWait, FsQuota, Head, Inode, Stamp};
use crate::{wire_enum, wire_fields, wire_record};
use bytes::Bytes;
use nacre_types::{ClientId, Ino, Instance, Name, Rank};

/// Requests of a client to a rank that it has from the lowest one without a safe answer on, at
/// most: others are dropped.
pub const FS_WINDOW: u64 = 4096;

/// How long a client may show what it keeps under shares, in milliseconds, counted from when it
/// sent the last ping that was answered, or its greeting.
pub const FS_LEASE_MS: u64 = 5_000;

/// A time of [`FsCall::Wrote`] that changes none: the file has only become larger, or its time was
/// set since.
pub const FS_LARGER_ONLY: Stamp = Stamp(i64::MIN);

/// A page of a listing has about so many bytes at most, whatever was asked for.
pub const FS_LIST_MAX: u32 = 1 << 20;

/// A client's first word to the holder of a rank, and again over each new connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsSession {
    /// Whose.
    pub file_system: Name,
    /// The rank that it takes the server for.
    pub rank: u16,
    /// The session's life: a new one after [`FsEvicted`].
    pub instance: Instance,
    /// This life has been welcomed by this server or one before it.
    pub known: bool,
    /// Which greeting this is: the client waits for the answer to the last one it sent.
    pub greeting: u64,
    /// What people are to know it by.
    pub about: Name,
    /// It makes names itself in directories that are delegated to it.
    pub delegable: bool,
    /// What it has open.
    pub opens: Vec<FsOpens>,
    /// What it has locked.
    pub locks: Vec<FsLock>,
    /// Which locks it was told to wait for.
    pub waits: Vec<FsLockWait>,
}
wire_record!(FsSession version 1 compat 1 {
    file_system, rank, instance, known, greeting, about, delegable, opens, locks, waits
});

/// A file that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsOpens {
    /// Which.
    pub ino: Ino,
    /// How often, for reading only.
    pub reads: u32,
    /// How often, for writing, too.
    pub writes: u32,
    /// What the client may do with its data: what it was granted and has not given back.
    pub cap: FsCap,
    /// It has been answered [`FsCall::Alone`], and has not ended that.
    pub alone: bool,
    /// Where it was seen last.
    pub place: Option<FsPlace>,
}
wire_fields!(FsOpens {
    ino,
    reads,
    writes,
    cap,
    alone,
    place
});

/// What a client may do with the data of a file that it has open; each may do what those before it
/// may (CEPH-03, -08).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FsCap {
    /// Nothing, for a moment: another client cuts the file off.
    Nothing {},
    /// As [`Self::Sync`], and the server is told before a write makes the file larger: it is below
    /// a quota.
    Asks {},
    /// It reads and writes objects, and keeps nothing: others write, too.
    Sync {},
    /// It keeps what it has read: no client has the file open for writing.
    Cache {},
    /// As [`Self::Buffer`], and the file becomes no larger than that, or than the server knows: it
    /// is below a quota. [`FsCall::Grow`] asks for more.
    Bounded {
        /// In bytes.
        room: u64,
    },
    /// It writes later, and it alone knows how large the file is and when it was written: no other
    /// client has it open.
    Buffer {},
}
wire_enum!(FsCap { 1 => Nothing {}, 2 => Sync {}, 3 => Cache {}, 4 => Buffer {}, 5 => Asks {}, 6 => Bounded { room } });

impl FsCap {
    /// Whether who has it writes later, and alone knows how large the file is.
    #[must_use]
    pub const fn buffers(self) -> bool {
        matches!(self, Self::Buffer {} | Self::Bounded { .. })
    }
    /// Whether who has it reads and writes at once, as others do.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Sync {} | Self::Asks {})
    }
    /// How large it lets a client make the file before the server knows.
    #[must_use]
    pub const fn room(self) -> u64 {
        match self {
            Self::Buffer {} | Self::Sync {} => u64::MAX,
            Self::Bounded { room } => room,
            Self::Cache {} | Self::Asks {} | Self::Nothing {} => 0,
        }
    }
}

/// What a client may do with a file from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsGrant {
    /// Which.
    pub ino: Ino,
    /// It.
    pub cap: FsCap,
}
wire_fields!(FsGrant { ino, cap });

/// One part of [`FsCaps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsCapNews {
    /// Which file.
    pub ino: Ino,
    /// The most that the client may do with it.
    pub cap: FsCap,
    /// It is to do no more, to have nothing buffered that it may not, and to say so with
    /// [`FsCall::Comply`]. If it may do what it could before: only how large the file is now.
    /// 0: it may do more, and says nothing.
    pub number: u64,
}
wire_fields!(FsCapNews { ino, cap, number });

/// Capabilities that the server takes back, or grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsCaps {
    /// In order.
    pub items: Vec<FsCapNews>,
}
wire_record!(FsCaps version 1 compat 1 { items });

/// The session is known to every later holder of the rank: the client may send requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsWelcome {
    /// It is to send first what it has not been told as safe, then [`FsCaughtUp`]: nothing new is
    /// done before, for a while.
    pub again: bool,
    /// Of [`FsSession`]: what the client kept before that is to be forgotten.
    pub greeting: u64,
}
wire_record!(FsWelcome version 1 compat 1 { again, greeting });

/// There is no session: who is asked has not this rank, or has it no more, or not yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsAway {
    /// For people.
    pub why: String,
}
wire_record!(FsAway version 1 compat 1 { why });

/// The client did not come in time, and others went on without it: what it had not been told as
/// safe is lost, or may have happened. It begins a new life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsEvicted {
    /// The life that has ended.
    pub instance: Instance,
}
wire_record!(FsEvicted version 1 compat 1 { instance });

/// The client has sent again all that was not safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsCaughtUp {
    /// The number of its next request.
    pub next: u64,
}
wire_record!(FsCaughtUp version 1 compat 1 { next });

/// The client goes for good: all its requests are safe, and nothing is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsLeave {
    /// The number that its next request would have had.
    pub next: u64,
}
wire_record!(FsLeave version 1 compat 1 { next });

/// A request to the server of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsRequest {
    /// Grows with each request of this client, to whichever rank: to this one there may be gaps.
    pub number: u64,
    /// All requests below have safe answers.
    pub safe_below: u64,
    /// An earlier holder of the rank has answered it early: it is done before what was not
    /// answered, in the order in which those arrive.
    pub again: Option<FsAgain>,
    /// Its client has answered it itself, in a directory that was delegated to it: it happened
    /// then, and what it made has a number of [`FsAnswer::Numbers`]. Requests of that client
    /// that come later are done later.
    pub foretold: Option<FsAgain>,
    /// Where the file was that the call names by number, if the client knows: for a server that
    /// does not know the file.
    pub place: Option<FsPlace>,
    /// What is asked.
    pub call: FsCall,
}
wire_record!(FsRequest version 1 compat 1 { number, safe_below, again, foretold, place, call });

/// Where a file is, as a client has seen it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsPlace {
    /// In which directory.
    pub dir: Ino,
    /// Under which name.
    pub name: Name,
}
wire_record!(FsPlace version 1 compat 1 { dir, name });

/// What an earlier holder of the rank answered early: its caller has seen it, so it stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsAgain {
    /// [`FsReply::stamp`] of that answer.
    pub stamp: Stamp,
    /// The number of what it made; [`Ino::TOP`]: nothing.
    pub made: Ino,
}
wire_record!(FsAgain version 1 compat 1 { stamp, made });

/// Attributes to be changed; those without a value stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsChanges {
    /// The low twelve bits of `st_mode`.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    /// Last read; `Some(None)`: now, by the server's clock.
    pub atime: Option<Option<Stamp>>,
    /// Last change of data; the same.
    pub mtime: Option<Option<Stamp>>,
    /// It happened then, its caller has been told: the client, which had the file alone, has
    /// answered it itself. Else it happens when the server does it.
    pub foretold: Option<Stamp>,
}
wire_record!(FsChanges version 1 compat 1 { mode, uid, gid, size, atime, mtime, foretold });

impl FsChanges {
    /// Whether it changes what a client with [`FsCap::Buffer`] may know better.
    #[must_use]
    pub const fn is_of_data(&self) -> bool {
        self.size.is_some() || self.mtime.is_some()
    }
}

/// Bits of a rename.
pub mod rename_flag {
    /// Fail if the new name is taken.
    pub const NO_REPLACE: u8 = 1;
    /// Each name gets what the other one has.
    pub const EXCHANGE: u8 = 2;
}

/// What a client may ask. Directories are named by number, entries by directory and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FsCall {
    /// What a name stands for. A file that another client is writing may be larger: [`Self::Stat`]
    /// asks.
    Lookup {
        /// In which directory.
        dir: Ino,
        /// It.
        name: Name,
    },
    /// Attributes.
    Stat {
        /// Whose.
        ino: Ino,
    },
    /// Entries with their inodes, in the order of their names' hashes (CEPH-12).
    List {
        /// Of which directory.
        dir: Ino,
        /// Names with larger hashes than this; 0: from the first.
        after: u64,
        /// About so many bytes at most, and one entry at least.
        bytes_max: u32,
    },
    /// A new file, directory, link or device.
    Make {
        /// In which directory.
        dir: Ino,
        /// Its name. Empty: a file that no name leads to, and that is opened. It goes with its
        /// last close, unless [`Self::Link`] gives it a name before.
        name: Name,
        /// What it is to be.
        kind: FileKind,
        /// Permissions, as the caller wants them.
        mode: u16,
        /// Those that are taken off, unless the directory has a default list of rights.
        umask: u16,
        /// Owner.
        uid: u32,
        /// Group, unless the directory gives its own.
        gid: u32,
        /// Of a symbolic link: where it leads.
        target: Bytes,
        /// Of a device: its number.
        device: u64,
        /// Fail if the name is taken; else a file of that name is the answer.
        exclusive: bool,
        /// Of a file: it is also opened.
        open: bool,
        /// For writing.
        write: bool,
    },
    /// Another name for a file.
    Link {
        /// Which file.
        ino: Ino,
        /// In which directory.
        dir: Ino,
        /// The new name.
        name: Name,
    },
    /// Takes a name away.
    Unlink {
        /// In which directory.
        dir: Ino,
        /// It.
        name: Name,
        /// It must be an empty directory; else it must be none.
        directory: bool,
    },
    /// Gives something another name.
    Rename {
        /// In which directory it is.
        dir: Ino,
        /// Under which name.
        name: Name,
        /// In which directory it is to be.
        to_dir: Ino,
        /// Under which name.
        to_name: Name,
        /// Bits of [`rename_flag`].
        flags: u8,
    },
    /// Changes attributes.
    Set {
        /// Whose.
        ino: Ino,
        /// Which.
        changes: FsChanges,
    },
    /// Sets an extended attribute.
    SetXattr {
        /// Whose.
        ino: Ino,
        /// Its name.
        name: Name,
        /// Its value.
        value: Bytes,
        /// Fail if it is there (`Some(true)`), or if it is not (`Some(false)`).
        fresh: Option<bool>,
        /// If it is the list of rights: the set-group-id bit goes, since its caller is not of the
        /// file's group.
        drop_sgid: bool,
    },
    /// Removes an extended attribute.
    RemoveXattr {
        /// Whose.
        ino: Ino,
        /// Its name.
        name: Name,
    },
    /// Keeps a file's data until it is closed as often, names or not.
    Open {
        /// Which.
        ino: Ino,
        /// For writing, too.
        write: bool,
    },
    /// The opposite.
    Close {
        /// Which.
        ino: Ino,
        /// It was opened for writing.
        write: bool,
        /// The size that its writer has made it; larger than what the server knows, or nothing
        /// changes (CEPH-07).
        size: u64,
        /// When that was; 0: it did not write.
        mtime: Stamp,
    },
    /// How full it is.
    StatFs {},
    /// A file that is open was written: it is at least so large now (CEPH-07).
    Wrote {
        /// Which.
        ino: Ino,
        /// In bytes; smaller than what the server knows changes nothing.
        size: u64,
        /// When; or [`FS_LARGER_ONLY`]. Else, until its times are set, its client may have written
        /// it since.
        mtime: Stamp,
    },
    /// Locks bytes of a file. Locks are in the server's memory; a client names its own to the next
    /// holder of the rank.
    Lock {
        /// What is wanted; what its owner has of these bytes is replaced.
        lock: FsLock,
        /// If it conflicts: the answer is [`FsAnswer::Waits`], and [`FsLocked`] comes when it is
        /// granted. Else it fails.
        wait: bool,
    },
    /// Unlocks bytes of a file.
    Unlock {
        /// Which.
        ino: Ino,
        /// Whose lock.
        owner: u64,
        /// A lock of `flock`.
        flock: bool,
        /// First byte.
        start: u64,
        /// Last byte.
        end: u64,
    },
    /// Which lock is in the way of this one.
    TestLock {
        /// It.
        lock: FsLock,
    },
    /// Ends a wait; nothing, if there is none. The lock may have been granted before: [`FsLocked`]
    /// comes first then.
    CancelLock {
        /// Of which file.
        ino: Ino,
        /// The request that asked for it.
        number: u64,
    },
    /// Waits until what is in memory and in the journal now is written to directories.
    Flush {},
    /// The answer to [`FsCaps`].
    Comply {
        /// Of which file.
        ino: Ino,
        /// [`FsCapNews::number`]; those before it, too.
        number: u64,
        /// As in [`Self::Wrote`].
        size: u64,
        /// When it was written; 0: it was not, or that was told.
        mtime: Stamp,
        /// What was written is in objects. Else it is only to be shown to those who look: it may
        /// be lost with the client.
        written: bool,
    },
    /// No other client is to do anything with a file that this one has open, until it says that
    /// this has ended: it appends, or writes to several objects at once. The answer shows the
    /// file as it is then.
    Alone {
        /// Which.
        ino: Ino,
        /// It has ended.
        ends: bool,
    },
    /// Which clients there are: a page of them.
    Clients {
        /// Those with larger numbers.
        after: u64,
    },
    /// Ends a client's session, as if it had been waited for long enough: what it has not written
    /// is lost. Answered when that has begun; `ESRCH`: there is none.
    Evict {
        /// Whose.
        client: ClientId,
    },
    /// Gives an empty directory to another rank: in its place comes a new one, with the same owner,
    /// rights and attributes, that the other rank has. `ENOTEMPTY`: there is something in it.
    Pin {
        /// In which directory it is.
        dir: Ino,
        /// Under which name.
        name: Name,
        /// Which rank.
        rank: u16,
    },
    /// How much is below a directory, and which quotas bound what this inode is below.
    Usage {
        /// Which inode.
        ino: Ino,
    },
    /// A client with [`FsCap::Bounded`] wants to make the file so large. If that fails there is no
    /// room for it (`EDQUOT`); else the answer's capability says how large it may make it.
    Grow {
        /// Which file.
        ino: Ino,
        /// In bytes.
        size: u64,
    },
    /// Numbers for inodes that the client will make itself, where the rank delegates directories to
    /// it.
    Numbers {},
    /// Attributes as the server knows them (`statlite`): no writer is asked, so a file's size and
    /// times are those that its writers told last. The answer is not to be kept.
    StatLite {
        /// Whose.
        ino: Ino,
    },
}
wire_enum!(FsCall {
    1 => Lookup { dir, name },
    2 => Stat { ino },
    3 => List { dir, after, bytes_max },
    4 => Make { dir, name, kind, mode, umask, uid, gid, target, device, exclusive, open, write },
    5 => Link { ino, dir, name },
    6 => Unlink { dir, name, directory },
    7 => Rename { dir, name, to_dir, to_name, flags },
    8 => Set { ino, changes },
    9 => SetXattr { ino, name, value, fresh, drop_sgid },
    10 => RemoveXattr { ino, name },
    11 => Open { ino, write },
    12 => Close { ino, write, size, mtime },
    13 => StatFs {},
    14 => Wrote { ino, size, mtime },
    15 => Lock { lock, wait },
    16 => Unlock { ino, owner, flock, start, end },
    17 => TestLock { lock },
    18 => CancelLock { ino, number },
    19 => Flush {},
    20 => Comply { ino, number, size, mtime, written },
    21 => Alone { ino, ends },
    22 => Clients { after },
    23 => Evict { client },
    24 => Pin { dir, name, rank },
    25 => Usage { ino },
    26 => Grow { ino, size },
    27 => Numbers {},
    28 => StatLite { ino },
});

impl FsCall {
    /// Whether it changes what is journaled.
    #[must_use]
    pub const fn is_change(&self) -> bool {
        let looks = matches!(
            self,
            Self::Lookup { .. }
                | Self::Stat { .. }
                | Self::StatLite { .. }
                | Self::List { .. }
                | Self::StatFs {}
                | Self::Flush {}
                | Self::Clients { .. }
                | Self::Usage { .. }
                | Self::Grow { .. }
                | Self::Numbers {}
        );
        !looks && !self.is_lock()
    }
    /// Whether it is about locks: these are not in the journal.
    #[must_use]
    pub const fn is_lock(&self) -> bool {
        matches!(
            self,
            Self::Lock { .. }
                | Self::Unlock { .. }
                | Self::TestLock { .. }
                | Self::CancelLock { .. }
        )
    }
    /// Whether it says what a client has done with a file's data that it has no capability for any
    /// more: another client that does something with the file is to see it.
    #[must_use]
    pub fn tells(&self) -> bool {
        matches!(self, Self::Comply { mtime, .. } | Self::Close { mtime, .. } if *mtime != Stamp::default())
    }
    /// Whether it makes a file without a name: one that was made and is not known to be open would
    /// be removed.
    #[must_use]
    pub fn is_unnamed(&self) -> bool {
        matches!(self, Self::Make { name, .. } if name.is_empty())
    }
    /// Whether it changes attributes and its client has answered it itself.
    #[must_use]
    pub const fn is_foretold(&self) -> bool {
        matches!(
            self,
            Self::Set {
                changes: FsChanges {
                    foretold: Some(_),
                    ..
                },
                ..
            }
        )
    }
    /// What it names by number, if that may be a file.
    #[must_use]
    pub const fn ino(&self) -> Option<Ino> {
        match self {
            Self::Stat { ino }
            | Self::StatLite { ino }
            | Self::Usage { ino }
            | Self::Grow { ino, .. }
            | Self::Link { ino, .. }
            | Self::Set { ino, .. }
            | Self::SetXattr { ino, .. }
            | Self::RemoveXattr { ino, .. }
            | Self::Open { ino, .. }
            | Self::Comply { ino, .. }
            | Self::Alone { ino, .. }
            | Self::Close { ino, .. }
            | Self::Wrote { ino, .. } => Some(*ino),
            Self::Lookup { .. }
            | Self::List { .. }
            | Self::Make { .. }
            | Self::Unlink { .. }
            | Self::Rename { .. }
            | Self::Lock { .. }
            | Self::Unlock { .. }
            | Self::TestLock { .. }
            | Self::CancelLock { .. }
            | Self::StatFs {}
            | Self::Flush {}
            | Self::Numbers {}
            | Self::Clients { .. }
            | Self::Evict { .. }
            | Self::Pin { .. } => None,
        }
    }
    /// All that it names by number: directories, and what may be a file.
    pub fn inos(&self) -> impl Iterator<Item = Ino> {
        let dirs = match self {
            Self::Lookup { dir, .. }
            | Self::List { dir, .. }
            | Self::Make { dir, .. }
            | Self::Link { dir, .. }
            | Self::Unlink { dir, .. }
            | Self::Pin { dir, .. } => [Some(*dir), None],
            Self::Rename { dir, to_dir, .. } => [Some(*dir), Some(*to_dir)],
            _ => [None, None],
        };
        dirs.into_iter().flatten().chain(self.ino())
    }
    /// Names that it may change or that its answer depends on, each with its directory.
    pub fn names(&self) -> impl Iterator<Item = (Ino, &Name)> {
        let names = match self {
            Self::Lookup { dir, name }
            | Self::Make { dir, name, .. }
            | Self::Link { dir, name, .. }
            | Self::Unlink { dir, name, .. }
            | Self::Pin { dir, name, .. } => [Some((*dir, name)), None],
            Self::Rename {
                dir,
                name,
                to_dir,
                to_name,
                ..
            } => [Some((*dir, name)), Some((*to_dir, to_name))],
            _ => [None, None],
        };
        names.into_iter().flatten()
    }
    /// The rank whose server is to be asked: that of the directory in which a name is looked up,
    /// made or removed, for a rename the new one's; else that of the inode. `None`: each has
    /// something to say.
    #[must_use]
    pub fn rank(&self) -> Option<Rank> {
        match self {
            Self::Lookup { dir, .. }
            | Self::List { dir, .. }
            | Self::Make { dir, .. }
            | Self::Link { dir, .. }
            | Self::Unlink { dir, .. }
            | Self::Pin { dir, .. }
            | Self::Rename { to_dir: dir, .. } => Some(dir.rank()),
            Self::Lock { lock, .. } | Self::TestLock { lock } => Some(lock.ino.rank()),
            Self::Unlock { ino, .. } | Self::CancelLock { ino, .. } => Some(ino.rank()),
            Self::StatFs {} | Self::Flush {} | Self::Clients { .. } | Self::Evict { .. } => None,
            _ => self.ino().map(Ino::rank),
        }
    }
}

/// An inode as it is shown: both parts of a directory's attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsNode {
    /// It.
    pub inode: Inode,
    /// Of a directory: what is in it.
    pub head: Option<Head>,
    /// The directory that its entry is in: who has a share of that may keep its attributes.
    /// `None`: they are not to be kept.
    pub home: Option<Ino>,
}
wire_record!(FsNode version 1 compat 1 { inode, head, home });

impl FsNode {
    /// When its content was changed last. Of a directory both parts say it, and a program may have
    /// set it, also back.
    #[must_use]
    pub fn mtime(&self) -> Stamp {
        let Some(head) = self.head.filter(|_| self.inode.is_directory()) else {
            return self.inode.mtime;
        };
        match self.inode.rare.as_ref().and_then(|rare| rare.time_set_at) {
            Some(change) if change == head.change => self.inode.mtime,
            Some(_) => head.mtime,
            None => head.mtime.max(self.inode.mtime),
        }
    }
}

/// An entry in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsListed {
    /// Its name.
    pub name: Name,
    /// What it stands for.
    pub node: FsNode,
}
wire_fields!(FsListed { name, node });

/// An entry in a listing of which another rank has the inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsElsewhere {
    /// Its name.
    pub name: Name,
    /// The inode's number.
    pub ino: Ino,
    /// What it is.
    pub kind: FileKind,
}
wire_fields!(FsElsewhere { name, ino, kind });

/// A client with a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsClient {
    /// Which.
    pub client: ClientId,
    /// In which life.
    pub instance: Instance,
    /// What people know it by; empty, as long as it has not come to this holder of the rank.
    pub about: Name,
    /// Files that it has open, and of those for writing.
    pub open: u32,
    /// See above.
    pub writing: u32,
    /// How long ago it was heard last, in milliseconds.
    pub silent_ms: u64,
    /// Its session is being ended.
    pub evicting: bool,
    /// Requests that this holder of the rank has taken from it, each once.
    pub requests: u64,
}
wire_fields!(FsClient {
    client,
    instance,
    about,
    open,
    writing,
    silent_ms,
    evicting,
    requests
});

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "nearly all are nodes")]
pub enum FsAnswer {
    /// Nothing but that it was done.
    Done {},
    /// It was not done, for this reason of POSIX (Linux' numbers, positive).
    Failed {
        /// The number.
        errno: u16,
    },
    /// What was looked up, made or changed.
    Node {
        /// It.
        node: FsNode,
        /// It is new.
        made: bool,
    },
    /// Entries, and whether these were the last.
    Listed {
        /// In order.
        entries: Vec<FsListed>,
        /// There are no more.
        end: bool,
    },
    /// How full the file system is.
    Room {
        /// Bytes of all files.
        bytes: u64,
        /// Files, directories and the like.
        files: u64,
    },
    /// To [`FsCall::TestLock`].
    Conflict {
        /// A lock that is in the way, if there is one.
        lock: Option<FsLock>,
    },
    /// To [`FsCall::Lock`]: [`FsLocked`] comes when it is granted.
    Waits {},
    /// To [`FsCall::Clients`].
    Clients {
        /// By their numbers.
        clients: Vec<FsClient>,
        /// There are no more.
        end: bool,
    },
    /// To [`FsCall::Lookup`], and to [`FsCall::Make`] of a file that is there: another rank
    /// ([`Ino::rank`]) has what the name stands for, and is to be asked about it.
    Elsewhere {
        /// Its number.
        ino: Ino,
        /// What it is.
        kind: FileKind,
    },
    /// As [`Self::Listed`], where other ranks have some of what is listed.
    ListedPartly {
        /// In order.
        entries: Vec<FsListed>,
        /// Those that other ranks have, in order; they belong between the others.
        elsewhere: Vec<FsElsewhere>,
        /// There are no more.
        end: bool,
    },
    /// To [`FsCall::Usage`].
    Usage {
        /// Of a directory: bytes of the files below it.
        bytes: u64,
        /// Files, links and the like.
        files: u64,
        /// Directories.
        directories: u64,
        /// Its own quotas and those of the directories above it, from the lowest one up.
        quotas: Vec<FsQuota>,
    },
    /// To [`FsCall::Numbers`]: from the first on, so many are this client's; no other inode will
    /// ever have one of them.
    Numbers {
        /// The first.
        first: Ino,
        /// How many.
        count: u32,
    },
}
wire_enum!(FsAnswer {
    1 => Done {},
    2 => Failed { errno },
    3 => Node { node, made },
    4 => Listed { entries, end },
    5 => Room { bytes, files },
    6 => Conflict { lock },
    7 => Waits {},
    8 => Clients { clients, end },
    9 => Elsewhere { ino, kind },
    10 => ListedPartly { entries, elsewhere, end },
    11 => Usage { bytes, files, directories, quotas },
    12 => Numbers { first, count },
});

impl FsAnswer {
    /// All inodes that it shows.
    pub fn nodes(&self) -> impl Iterator<Item = &FsNode> {
        let (one, listed) = match self {
            Self::Node { node, .. } => (Some(node), &[][..]),
            Self::Listed { entries, .. } | Self::ListedPartly { entries, .. } => {
                (None, &entries[..])
            }
            _ => (None, &[][..]),
        };
        one.into_iter()
            .chain(listed.iter().map(|listed| &listed.node))
    }
    /// The same, to be changed.
    pub fn nodes_mut(&mut self) -> impl Iterator<Item = &mut FsNode> {
        let (one, listed) = match self {
            Self::Node { node, .. } => (Some(node), &mut [][..]),
            Self::Listed { entries, .. } | Self::ListedPartly { entries, .. } => {
                (None, &mut entries[..])
            }
            _ => (None, &mut [][..]),
        };
        one.into_iter()
            .chain(listed.iter_mut().map(|listed| &mut listed.node))
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsReply {
    /// Which request.
    pub number: u64,
    /// What it changed is in the journal, or it changed nothing.
    pub safe: bool,
    /// The server's time when it did this.
    pub stamp: Stamp,
    /// Where the file was that the call named by number, if it was changed: to be said if it is
    /// sent again.
    pub place: Option<FsPlace>,
    /// What it says may be kept, as far as the client has shares of the directories that it is
    /// about.
    pub keep: bool,
    /// Directories that the client has a share of from here on.
    pub shares: Vec<Ino>,
    /// Directories that are delegated to the client, of which it has shares: as long as they are
    /// it may make and remove names of files there itself, and send that later (`foretold`).
    /// [`FsCaps`] takes it back, and so does a greeting.
    pub delegated: Vec<Ino>,
    /// Inodes that the request changed: what was kept of them is old.
    pub changed: Vec<Ino>,
    /// What the client may do with what it has opened. It never takes something back.
    pub caps: Vec<FsGrant>,
    /// What came of it.
    pub answer: FsAnswer,
}
wire_record!(FsReply version 1 compat 1 { number, safe, stamp, place, keep, shares, delegated, changed, caps, answer });

/// The client waits until what it has asked for so far is in the journal: else changes wait for
/// others for a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsSync {
    /// All its requests below this number.
    pub below: u64,
}
wire_record!(FsSync version 1 compat 1 { below });

/// Requests whose changes are in the journal now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsSafe {
    /// Which.
    pub numbers: Vec<u64>,
}
wire_record!(FsSafe version 1 compat 1 { numbers });

/// What clients with a share of a directory are to forget: another client has changed it. That one
/// is answered when all have said so ([`FsForgot`]), or their leases have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsForget {
    /// Grows by one with each to this client.
    pub number: u64,
    /// What.
    pub items: Vec<FsStale>,
}
wire_record!(FsForget version 1 compat 1 { number, items });

/// Something of a directory that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FsStale {
    /// A name stands for something else, or for nothing.
    Name {
        /// In which directory.
        dir: Ino,
        /// Which.
        name: Name,
    },
    /// Attributes.
    Node {
        /// Whose.
        ino: Ino,
    },
    /// All that is known of a directory's names and their attributes: the share has ended.
    Share {
        /// Which.
        dir: Ino,
    },
}
wire_enum!(FsStale { 1 => Name { dir, name }, 2 => Node { ino }, 3 => Share { dir } });

/// The client has forgotten it: it shows nothing of that any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsForgot {
    /// [`FsForget::number`]; those before it, too.
    pub number: u64,
}
wire_record!(FsForgot version 1 compat 1 { number });

/// The client is there. What it keeps under shares it may show until [`FS_LEASE_MS`] after it sent
/// the last one that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsPing {
    /// Grows with each.
    pub number: u64,
}
wire_record!(FsPing version 1 compat 1 { number });

/// The answer to [`FsPing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsPong {
    /// Of which.
    pub number: u64,
}
wire_record!(FsPong version 1 compat 1 { number });

/// A client without a session asks the holder of a rank what the next one would have to do. The
/// answer is [`FsFigures`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsInquire {
    /// Which rank: the holder of another one does not answer.
    pub rank: u16,
}
wire_record!(FsInquire version 1 compat 1 { rank });

/// What the next holder of a rank would have to read, and whom it would wait for; and what is asked
/// of this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsFigures {
    /// Objects of the journal from its beginning on.
    pub objects: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Clients with a session.
    pub sessions: u32,
    /// Files that they have open, each once for each client.
    pub opens: u32,
    /// Directories in or below which most was asked for of late, the first one most.
    pub popular: Vec<FsPopular>,
}
wire_record!(FsFigures version 1 compat 1 { objects, bytes, sessions, opens, popular });

/// How often a directory, and what is below it, was asked for of late (CEPH-27).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsPopular {
    /// Which.
    pub ino: Ino,
    /// In thousandths of a request a second; half of it is from the last five seconds.
    pub rate: u64,
    /// The names that lead to it from the root, or from where the rank's part of the tree begins.
    pub path: Bytes,
}
wire_fields!(FsPopular { ino, rate, path });

/// A wait for a lock has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsLocked {
    /// The request that asked for it.
    pub number: u64,
    /// It is not granted, for this reason of POSIX; `None`: it is.
    pub errno: Option<u16>,
}
wire_record!(FsLocked version 1 compat 1 { number, errno });
