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
//! A request is identified by its client's instance and an increasing number. Requests that are not
//! safe are sent again, in order, to the next holder of the rank; a journaled one gets the same
//! answer as before.

use crate::fs::{FileKind, FsLock, FsLockWait, FsQuota, Head, Inode, Stamp};
use crate::{wire_enum, wire_fields, wire_record};
use bytes::Bytes;
use nacre_types::{ClientId, Ino, Instance, Name, Rank};

/// Limit on the numbers of a client's requests to a rank, counted from the lowest one without a
/// safe answer: requests beyond it are dropped.
pub const FS_WINDOW: u64 = 4096;

/// How long a client may use what it caches under shares, in milliseconds, counted from when it
/// sent its last answered ping, or its greeting.
pub const FS_LEASE_MS: u64 = 5_000;

/// A time in [`FsCall::Wrote`] that leaves the file's times unchanged: the file only became larger,
/// or its time was set since.
pub const FS_LARGER_ONLY: Stamp = Stamp(i64::MIN);

/// Approximate limit of a listing's page in bytes, whatever limit was requested.
pub const FS_LIST_MAX: u32 = 1 << 20;

/// A client's first message to the holder of a rank; sent again over each new connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsSession {
    /// The file system.
    pub file_system: Name,
    /// The rank that the client believes the server holds.
    pub rank: u16,
    /// The session's instance: a new one after [`FsEvicted`].
    pub instance: Instance,
    /// Whether this server or an earlier one has welcomed this instance.
    pub known: bool,
    /// Number of this greeting: the client waits for the answer to the last one it sent.
    pub greeting: u64,
    /// Human-readable description of the client.
    pub about: Name,
    /// Whether the client creates names itself in directories delegated to it.
    pub delegable: bool,
    /// Files it has open.
    pub opens: Vec<FsOpens>,
    /// Locks it holds.
    pub locks: Vec<FsLock>,
    /// Lock requests that wait.
    pub waits: Vec<FsLockWait>,
}
wire_record!(FsSession version 1 compat 1 {
    file_system, rank, instance, known, greeting, about, delegable, opens, locks, waits
});

/// An open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsOpens {
    /// The file.
    pub ino: Ino,
    /// How many times it is open for reading only.
    pub reads: u32,
    /// How many times it is open for writing.
    pub writes: u32,
    /// The client's capability for its data: granted and not given back.
    pub cap: FsCap,
    /// The client was granted [`FsCall::Alone`] and has not ended it.
    pub alone: bool,
    /// Where the file was seen last.
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

/// A client's capability for the data of a file that it has open; each includes the ones before it
/// (CEPH-03, -08).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FsCap {
    /// No access for a moment: another client truncates the file.
    Nothing {},
    /// Like [`Self::Sync`], but the client asks the server before a write that makes the file
    /// larger, because a quota applies.
    Asks {},
    /// Reads and writes objects directly, without caching: others write too.
    Sync {},
    /// May cache what it has read: no client has the file open for writing.
    Cache {},
    /// Like [`Self::Buffer`], but because a quota applies, the file may not grow beyond `room` or
    /// the size known to the server. [`FsCall::Grow`] asks for more.
    Bounded {
        /// Limit of the file's size in bytes.
        room: u64,
    },
    /// May delay writes; it alone knows the file's size and when it was written, because no other
    /// client has the file open.
    Buffer {},
}
wire_enum!(FsCap { 1 => Nothing {}, 2 => Sync {}, 3 => Cache {}, 4 => Buffer {}, 5 => Asks {}, 6 => Bounded { room } });

impl FsCap {
    /// Whether its holder may delay writes and alone knows the file's size.
    #[must_use]
    pub const fn buffers(self) -> bool {
        matches!(self, Self::Buffer {} | Self::Bounded { .. })
    }
    /// Whether its holder reads and writes at once, as other clients do.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Sync {} | Self::Asks {})
    }
    /// How large the client may make the file before it must tell the server.
    #[must_use]
    pub const fn room(self) -> u64 {
        match self {
            Self::Buffer {} | Self::Sync {} => u64::MAX,
            Self::Bounded { room } => room,
            Self::Cache {} | Self::Asks {} | Self::Nothing {} => 0,
        }
    }
}

/// A capability granted from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsGrant {
    /// The file.
    pub ino: Ino,
    /// The capability.
    pub cap: FsCap,
}
wire_fields!(FsGrant { ino, cap });

/// One part of [`FsCaps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsCapNews {
    /// The file.
    pub ino: Ino,
    /// The client's capability from now on.
    pub cap: FsCap,
    /// When not 0, the client must stop what the capability does not allow, write out what it may
    /// no longer buffer, and confirm with [`FsCall::Comply`]. If its capability is unchanged, only
    /// the file's current size is asked for. 0: the capability grew, and no confirmation is needed.
    pub number: u64,
}
wire_fields!(FsCapNews { ino, cap, number });

/// Capabilities that the server revokes or grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsCaps {
    /// In order.
    pub items: Vec<FsCapNews>,
}
wire_record!(FsCaps version 1 compat 1 { items });

/// Every later holder of the rank will know the session: the client may send requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsWelcome {
    /// The client first resends what is not known to be safe, then sends [`FsCaughtUp`]: until
    /// then, and for a limited time, nothing new is executed.
    pub again: bool,
    /// From [`FsSession`]: what the client cached before that greeting must be dropped.
    pub greeting: u64,
}
wire_record!(FsWelcome version 1 compat 1 { again, greeting });

/// No session: the server does not hold this rank, no longer holds it, or does not hold it yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsAway {
    /// Human-readable reason.
    pub why: String,
}
wire_record!(FsAway version 1 compat 1 { why });

/// The client did not return in time, and others continued without it: its requests that were not
/// reported safe are lost or may have been executed. It starts a new instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsEvicted {
    /// The instance that ended.
    pub instance: Instance,
}
wire_record!(FsEvicted version 1 compat 1 { instance });

/// The client has resent everything that was not safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsCaughtUp {
    /// Number of its next request.
    pub next: u64,
}
wire_record!(FsCaughtUp version 1 compat 1 { next });

/// The client leaves for good: all its requests are safe, and it has nothing open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsLeave {
    /// The number that its next request would have had.
    pub next: u64,
}
wire_record!(FsLeave version 1 compat 1 { next });

/// A request to the server of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsRequest {
    /// Increases with each request of this client to any rank, so one rank may see gaps.
    pub number: u64,
    /// All requests below this number have safe answers.
    pub safe_below: u64,
    /// An earlier holder of the rank has answered it early: it is executed before requests that
    /// were not answered, in order of arrival.
    pub again: Option<FsAgain>,
    /// The client has already answered its caller, in a directory delegated to it: the change
    /// happened then, and what it created has a number from [`FsAnswer::Numbers`]. That client's
    /// later requests are executed later.
    pub foretold: Option<FsAgain>,
    /// Where the file that the call names by number was, if the client knows: for a server that
    /// does not know the file.
    pub place: Option<FsPlace>,
    /// The call.
    pub call: FsCall,
}
wire_record!(FsRequest version 1 compat 1 { number, safe_below, again, foretold, place, call });

/// Where a client last saw a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsPlace {
    /// The directory.
    pub dir: Ino,
    /// The name in that directory.
    pub name: Name,
}
wire_record!(FsPlace version 1 compat 1 { dir, name });

/// An early answer of an earlier holder of the rank: the caller has seen it, so it must be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsAgain {
    /// [`FsReply::stamp`] of that answer.
    pub stamp: Stamp,
    /// The number of what it created; [`Ino::TOP`] if nothing.
    pub made: Ino,
}
wire_record!(FsAgain version 1 compat 1 { stamp, made });

/// Attributes to change; those that are `None` stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsChanges {
    /// The low twelve bits of `st_mode`.
    pub mode: Option<u16>,
    /// Owner's user id.
    pub uid: Option<u32>,
    /// Owner's group id.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Last read; `Some(None)`: the server's current time.
    pub atime: Option<Option<Stamp>>,
    /// Last change of data; likewise.
    pub mtime: Option<Option<Stamp>>,
    /// The change happened at this time: the client had the file alone and has already answered its
    /// caller. `None`: it happens when the server executes it.
    pub foretold: Option<Stamp>,
}
wire_record!(FsChanges version 1 compat 1 { mode, uid, gid, size, atime, mtime, foretold });

impl FsChanges {
    /// Whether it changes something that a client with [`FsCap::Buffer`] may know better.
    #[must_use]
    pub const fn is_of_data(&self) -> bool {
        self.size.is_some() || self.mtime.is_some()
    }
}

/// Flags of a rename.
pub mod rename_flag {
    /// Fail if the new name exists.
    pub const NO_REPLACE: u8 = 1;
    /// Exchange what the two names refer to.
    pub const EXCHANGE: u8 = 2;
}

/// A client's request. Directories are named by number, entries by directory and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FsCall {
    /// Looks up a name. A file that another client is writing may be larger than the answer says:
    /// [`Self::Stat`] asks the writer.
    Lookup {
        /// The directory.
        dir: Ino,
        /// The name.
        name: Name,
    },
    /// Reads attributes.
    Stat {
        /// The inode.
        ino: Ino,
    },
    /// Lists entries with their inodes, in the order of their names' hashes (CEPH-12).
    List {
        /// The directory.
        dir: Ino,
        /// Only names with hashes larger than this; 0 starts at the first.
        after: u64,
        /// Approximate limit in bytes; at least one entry is returned.
        bytes_max: u32,
    },
    /// Creates a file, directory, link or device.
    Make {
        /// The directory.
        dir: Ino,
        /// Its name. Empty: creates and opens a file without a name, which is removed at its last
        /// close unless [`Self::Link`] gives it a name before.
        name: Name,
        /// What to create.
        kind: FileKind,
        /// Permissions that the caller asks for.
        mode: u16,
        /// Permissions removed from those, unless the directory has a default access control list.
        umask: u16,
        /// Owner's user id.
        uid: u32,
        /// Group id, unless the directory passes on its own.
        gid: u32,
        /// Target of a symbolic link.
        target: Bytes,
        /// Number of a device.
        device: u64,
        /// Fail if the name exists; otherwise an existing file is returned.
        exclusive: bool,
        /// Also open the file.
        open: bool,
        /// Open it for writing.
        write: bool,
    },
    /// Gives a file another name.
    Link {
        /// The file.
        ino: Ino,
        /// The directory.
        dir: Ino,
        /// The new name.
        name: Name,
    },
    /// Removes a name.
    Unlink {
        /// The directory.
        dir: Ino,
        /// The name.
        name: Name,
        /// Whether it must be an empty directory; otherwise it must not be a directory.
        directory: bool,
    },
    /// Renames an entry.
    Rename {
        /// Its current directory.
        dir: Ino,
        /// Its current name.
        name: Name,
        /// Its new directory.
        to_dir: Ino,
        /// Its new name.
        to_name: Name,
        /// Bits of [`rename_flag`].
        flags: u8,
    },
    /// Changes attributes.
    Set {
        /// The inode.
        ino: Ino,
        /// The changes.
        changes: FsChanges,
    },
    /// Sets an extended attribute.
    SetXattr {
        /// The inode.
        ino: Ino,
        /// Its name.
        name: Name,
        /// Its value.
        value: Bytes,
        /// Fail if it exists (`Some(true)`), or if it does not (`Some(false)`).
        fresh: Option<bool>,
        /// For an access control list: clear the set-group-id bit, since the caller is not in the
        /// file's group.
        drop_sgid: bool,
    },
    /// Removes an extended attribute.
    RemoveXattr {
        /// The inode.
        ino: Ino,
        /// Its name.
        name: Name,
    },
    /// Opens a file: its data is kept until it is closed as often, even without names.
    Open {
        /// The file.
        ino: Ino,
        /// Whether for writing.
        write: bool,
    },
    /// Closes a file.
    Close {
        /// The file.
        ino: Ino,
        /// Whether it was opened for writing.
        write: bool,
        /// The size reached by its writer; ignored unless larger than the size known to the server
        /// (CEPH-07).
        size: u64,
        /// Time of the last write; 0: nothing was written.
        mtime: Stamp,
    },
    /// Reads the file system's usage.
    StatFs {},
    /// An open file was written: it is now at least this large (CEPH-07).
    Wrote {
        /// The file.
        ino: Ino,
        /// Size in bytes; ignored if smaller than the size known to the server.
        size: u64,
        /// Time of the write, or [`FS_LARGER_ONLY`]. With a time, until the file's times are set,
        /// its client may have written it again since.
        mtime: Stamp,
    },
    /// Locks bytes of a file. Locks are in the server's memory only; a client reports its own to
    /// the next holder of the rank.
    Lock {
        /// The lock; it replaces what its owner holds of these bytes.
        lock: FsLock,
        /// On a conflict, answer [`FsAnswer::Waits`] and send [`FsLocked`] when the lock is
        /// granted; otherwise fail.
        wait: bool,
    },
    /// Unlocks bytes of a file.
    Unlock {
        /// The file.
        ino: Ino,
        /// The lock's owner.
        owner: u64,
        /// Whether it is a `flock` lock.
        flock: bool,
        /// First byte.
        start: u64,
        /// Last byte.
        end: u64,
    },
    /// Finds a lock that conflicts with this one.
    TestLock {
        /// The lock.
        lock: FsLock,
    },
    /// Ends a wait; does nothing if there is none. If the lock was granted before, [`FsLocked`]
    /// arrives first.
    CancelLock {
        /// The file.
        ino: Ino,
        /// The request that asked for it.
        number: u64,
    },
    /// Waits until everything now in memory and in the journal is written to directories.
    Flush {},
    /// The answer to [`FsCaps`].
    Comply {
        /// The file.
        ino: Ino,
        /// [`FsCapNews::number`]; also confirms all earlier ones.
        number: u64,
        /// As in [`Self::Wrote`].
        size: u64,
        /// Time of the last write; 0: none, or already reported.
        mtime: Stamp,
        /// Whether the written data is in objects. Otherwise the size and time are only for
        /// display: they may be lost with the client.
        written: bool,
    },
    /// Excludes all other clients from an open file until this client ends it: it appends, or
    /// writes to several objects at once. The answer shows the file at that moment.
    Alone {
        /// The file.
        ino: Ino,
        /// Whether this ends it.
        ends: bool,
    },
    /// Lists clients, one page at a time.
    Clients {
        /// Only clients with larger numbers.
        after: u64,
    },
    /// Ends a client's session as if its timeout had expired: what it has not written is lost.
    /// Answered when that has begun; `ESRCH`: it has no session.
    Evict {
        /// The client.
        client: ClientId,
    },
    /// Moves an empty directory to another rank: a new directory of that rank with the same owner,
    /// permissions and attributes replaces it. `ENOTEMPTY`: it is not empty.
    Pin {
        /// The directory that contains it.
        dir: Ino,
        /// Its name.
        name: Name,
        /// The new rank.
        rank: u16,
    },
    /// Reads the usage below a directory and the quotas that apply to an inode.
    Usage {
        /// The inode.
        ino: Ino,
    },
    /// A client with [`FsCap::Bounded`] wants to make the file this large. Fails with `EDQUOT` if
    /// there is no room; otherwise the capability in the answer says how large it may become.
    Grow {
        /// The file.
        ino: Ino,
        /// Size in bytes.
        size: u64,
    },
    /// Requests inode numbers for what the client will create itself in directories that the rank
    /// delegates to it.
    Numbers {},
    /// Attributes as the server knows them (`statlite`): no writer is asked, so a file's size and
    /// times are those last reported. The answer must not be cached.
    StatLite {
        /// The inode.
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
    /// Whether it changes journaled state.
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
    /// Whether it concerns locks, which are not journaled.
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
    /// Whether it reports what a client did with a file's data under a capability that it no longer
    /// has: another client that uses the file must see it.
    #[must_use]
    pub fn tells(&self) -> bool {
        matches!(self, Self::Comply { mtime, .. } | Self::Close { mtime, .. } if *mtime != Stamp::default())
    }
    /// Whether it creates a file without a name: once created, it would be removed if it were not
    /// known to be open.
    #[must_use]
    pub fn is_unnamed(&self) -> bool {
        matches!(self, Self::Make { name, .. } if name.is_empty())
    }
    /// Whether it changes attributes and its client has already answered its caller.
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
    /// The inode that it names by number, if that may be a file.
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
    /// All inodes that it names by number: directories, and what may be a file.
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
    /// The rank whose server handles it: the rank of the directory in which a name is looked up,
    /// created or removed (for a rename, of the new directory); otherwise the rank of the inode.
    /// `None`: every rank contributes to the answer.
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

/// An inode with its directory's summary: both parts of a directory's attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsNode {
    /// The inode.
    pub inode: Inode,
    /// Of a directory: the summary of its entries.
    pub head: Option<Head>,
    /// The directory that contains its entry: a client with a share of that directory may cache the
    /// attributes. `None`: they must not be cached.
    pub home: Option<Ino>,
}
wire_record!(FsNode version 1 compat 1 { inode, head, home });

impl FsNode {
    /// When its content was changed last. For a directory, inode and head together decide: a
    /// program may have set the time, even to an earlier one.
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
    /// What it refers to.
    pub node: FsNode,
}
wire_fields!(FsListed { name, node });

/// A listed entry whose inode another rank has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsElsewhere {
    /// Its name.
    pub name: Name,
    /// The inode's number.
    pub ino: Ino,
    /// The inode's kind.
    pub kind: FileKind,
}
wire_fields!(FsElsewhere { name, ino, kind });

/// A client with a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsClient {
    /// The client.
    pub client: ClientId,
    /// Its instance.
    pub instance: Instance,
    /// Its human-readable description; empty until it has reached this holder of the rank.
    pub about: Name,
    /// Files that it has open.
    pub open: u32,
    /// Those of them that are open for writing.
    pub writing: u32,
    /// Milliseconds since it was last heard from.
    pub silent_ms: u64,
    /// Whether its session is being ended.
    pub evicting: bool,
    /// Requests that this holder of the rank has accepted from it, resends not counted.
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

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "nearly all are nodes")]
pub enum FsAnswer {
    /// Success, without a result.
    Done {},
    /// Failure, with a POSIX error (Linux' numbers, positive).
    Failed {
        /// The error number.
        errno: u16,
    },
    /// The inode that was looked up, created or changed.
    Node {
        /// The inode.
        node: FsNode,
        /// Whether it was created.
        made: bool,
    },
    /// Entries of a listing.
    Listed {
        /// In order.
        entries: Vec<FsListed>,
        /// Whether the listing is complete.
        end: bool,
    },
    /// Usage of the file system.
    Room {
        /// Bytes of all files.
        bytes: u64,
        /// Number of files, directories and other entries.
        files: u64,
    },
    /// Answers [`FsCall::TestLock`].
    Conflict {
        /// A conflicting lock, if there is one.
        lock: Option<FsLock>,
    },
    /// Answers [`FsCall::Lock`]: [`FsLocked`] follows when it is granted.
    Waits {},
    /// Answers [`FsCall::Clients`].
    Clients {
        /// Ordered by number.
        clients: Vec<FsClient>,
        /// Whether the list is complete.
        end: bool,
    },
    /// Answers [`FsCall::Lookup`], and [`FsCall::Make`] of an existing file: another rank
    /// ([`Ino::rank`]) has the inode and must be asked about it.
    Elsewhere {
        /// The inode's number.
        ino: Ino,
        /// Its kind.
        kind: FileKind,
    },
    /// Like [`Self::Listed`], when other ranks have some of the inodes.
    ListedPartly {
        /// In order.
        entries: Vec<FsListed>,
        /// Entries whose inodes other ranks have, in order; they belong between the others.
        elsewhere: Vec<FsElsewhere>,
        /// Whether the listing is complete.
        end: bool,
    },
    /// Answers [`FsCall::Usage`].
    Usage {
        /// For a directory: bytes of the files below it.
        bytes: u64,
        /// Files, links and other non-directories below it.
        files: u64,
        /// Directories below it.
        directories: u64,
        /// Its own quotas and those of the directories above it, from the nearest up.
        quotas: Vec<FsQuota>,
    },
    /// Answers [`FsCall::Numbers`]: a range of inode numbers for this client alone; no other inode
    /// will ever have one of them.
    Numbers {
        /// The first number.
        first: Ino,
        /// The count of numbers.
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
    /// All inodes in the answer.
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
    /// The same, mutable.
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
    /// The request's number.
    pub number: u64,
    /// Whether its changes are in the journal, or there were none.
    pub safe: bool,
    /// The server's time when it executed the request.
    pub stamp: Stamp,
    /// Where the file that the call named by number was, if the call changed it: to be included if
    /// the request is sent again.
    pub place: Option<FsPlace>,
    /// Whether the answer may be cached, as far as the client has shares of the directories
    /// concerned.
    pub keep: bool,
    /// Directories that the client has a share of from now on.
    pub shares: Vec<Ino>,
    /// Directories delegated to the client, which has shares of them: while they are delegated it
    /// may create and remove files' names there itself and report that later (`foretold`).
    /// [`FsCaps`] revokes the delegation, and so does a greeting.
    pub delegated: Vec<Ino>,
    /// Inodes that the request changed: cached copies of them are outdated.
    pub changed: Vec<Ino>,
    /// Capabilities for the files it has opened. They never revoke anything.
    pub caps: Vec<FsGrant>,
    /// The result.
    pub answer: FsAnswer,
}
wire_record!(FsReply version 1 compat 1 { number, safe, stamp, place, keep, shares, delegated, changed, caps, answer });

/// The client waits until its requests so far are in the journal; otherwise changes wait briefly to
/// be grouped with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsSync {
    /// All its requests below this number.
    pub below: u64,
}
wire_record!(FsSync version 1 compat 1 { below });

/// Requests whose changes are now in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsSafe {
    /// Their numbers.
    pub numbers: Vec<u64>,
}
wire_record!(FsSafe version 1 compat 1 { numbers });

/// What clients with a share of a directory must drop from their caches, because another client
/// changed it. That client is answered when all have confirmed ([`FsForgot`]) or their leases have
/// expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsForget {
    /// Increases by one with each message to this client.
    pub number: u64,
    /// The outdated items.
    pub items: Vec<FsStale>,
}
wire_record!(FsForget version 1 compat 1 { number, items });

/// An outdated item of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FsStale {
    /// What a name refers to has changed.
    Name {
        /// The directory.
        dir: Ino,
        /// The name.
        name: Name,
    },
    /// Attributes of an inode.
    Node {
        /// The inode.
        ino: Ino,
    },
    /// All names of a directory and their attributes: the share has ended.
    Share {
        /// The directory.
        dir: Ino,
    },
}
wire_enum!(FsStale { 1 => Name { dir, name }, 2 => Node { ino }, 3 => Share { dir } });

/// The client has dropped it from its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsForgot {
    /// [`FsForget::number`]; also confirms all earlier ones.
    pub number: u64,
}
wire_record!(FsForgot version 1 compat 1 { number });

/// The client is alive. It may use what it caches under shares until [`FS_LEASE_MS`] after it sent
/// the last ping that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsPing {
    /// Increases with each ping.
    pub number: u64,
}
wire_record!(FsPing version 1 compat 1 { number });

/// The answer to [`FsPing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsPong {
    /// The ping's number.
    pub number: u64,
}
wire_record!(FsPong version 1 compat 1 { number });

/// A client without a session asks the holder of a rank how much work a takeover would be. The
/// answer is [`FsFigures`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsInquire {
    /// The rank: a holder of another rank does not answer.
    pub rank: u16,
}
wire_record!(FsInquire version 1 compat 1 { rank });

/// What the next holder of a rank would have to read and to wait for, and the load of the current
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsFigures {
    /// Objects in the journal.
    pub objects: u32,
    /// Bytes in them.
    pub bytes: u64,
    /// Clients with a session.
    pub sessions: u32,
    /// Files that they have open, counted once per client.
    pub opens: u32,
    /// Directories with the most recent requests in or below them, the busiest first.
    pub popular: Vec<FsPopular>,
}
wire_record!(FsFigures version 1 compat 1 { objects, bytes, sessions, opens, popular });

/// The recent rate of requests for a directory and everything below it (CEPH-27).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsPopular {
    /// The directory.
    pub ino: Ino,
    /// In thousandths of a request per second; the last five seconds weigh one half.
    pub rate: u64,
    /// Its path from the root, or from where the rank's part of the tree begins.
    pub path: Bytes,
}
wire_fields!(FsPopular { ino, rate, path });

/// A wait for a lock has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsLocked {
    /// The request that asked for it.
    pub number: u64,
    /// Why it was not granted, as a POSIX error; `None`: it was granted.
    pub errno: Option<u16>,
}
wire_record!(FsLocked version 1 compat 1 { number, errno });
