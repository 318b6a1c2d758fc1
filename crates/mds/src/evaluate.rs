//! Evaluates a request on the namespace: a function of the state in memory, the request and the
//! time.
//!
//! ```text
//!  request, tree ─▶ evaluate ─▶ Done: the answer, and changes as new values
//!                           └─▶ Wants: fragments that are not in memory; evaluated again from its beginning when they are
//!                           └─▶ Busy: data of a truncated file is still being removed
//!                           └─▶ Crowded: a quota has room, except for what clients may still write
//!                           └─▶ Across: another rank has to prepare its part; evaluated again when it has
//! ```
//! Nothing is changed here. Evaluating twice gives the same result: no state is kept between a run
//! that lacked something and the next (as with methods, ADR 0005).
//!
//! Permissions are not checked: clients do that, with the modes and owners in the answers.

mod across;
mod quota;

pub use self::across::evaluate_part;
use crate::acl::{self, Acl};
use crate::change::Change;
use crate::draft::{Bounds, Draft};
use crate::rooms::Rooms;
use crate::tree::{Found, Tree};
use bytes::Bytes;
use nacre_types::{Frag, Ino, Name, Rank};
use nacre_wire::Wire as _;
use nacre_wire::fs::entry::{NAME_MAX, is_name};
use nacre_wire::fs::inode::{S_ISGID, SIZE_MAX, TARGET_MAX, XATTR_BYTES_MAX};
use nacre_wire::fs::quota::PREFIX;
use nacre_wire::fs::{Entry, FileKind, Inode, Layout, Rare, Stamp, name_hash};
use nacre_wire::msg::fs::{
    FS_LIST_MAX, FsAnswer, FsCall, FsChanges, FsElsewhere, FsListed, FsNode, rename_flag,
};
use nacre_wire::msg::transaction::{FsFact, FsPart};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Linux' numbers for POSIX errors.
#[allow(missing_docs, reason = "POSIX says what each is")]
pub mod errno {
    pub const EPERM: u16 = 1;
    pub const ENOENT: u16 = 2;
    pub const ESRCH: u16 = 3;
    pub const EIO: u16 = 5;
    pub const E2BIG: u16 = 7;
    pub const EACCES: u16 = 13;
    pub const EEXIST: u16 = 17;
    pub const EXDEV: u16 = 18;
    pub const ENOTDIR: u16 = 20;
    pub const EISDIR: u16 = 21;
    pub const EINVAL: u16 = 22;
    pub const EFBIG: u16 = 27;
    pub const ENOSPC: u16 = 28;
    pub const EMLINK: u16 = 31;
    pub const ENAMETOOLONG: u16 = 36;
    pub const ENOTEMPTY: u16 = 39;
    pub const ENODATA: u16 = 61;
    pub const EOPNOTSUPP: u16 = 95;
    /// For a number that this server does not know: the client must look it up by path.
    pub const ESTALE: u16 = 116;
    pub const EDQUOT: u16 = 122;
}
use errno::*;

/// Longest name of an extended attribute in bytes.
const XATTR_NAME_MAX: usize = 255;
/// Size of a listing's entry besides its name, as counted by its reader.
const LISTED_BYTES: usize = 128;

/// The circumstances of an evaluation, besides the tree.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// The server's rank.
    pub rank: Rank,
    /// The time, for stamps.
    pub now: Stamp,
    /// The number for a new inode.
    pub ino: Ino,
    /// Layout of new files.
    pub layout: Layout,
    /// Whether any client has this file open.
    pub is_open: &'a dyn Fn(Ino) -> bool,
    /// It was executed once by the rank's last holder and is executed again: files that were open
    /// then may be closed now.
    pub again: bool,
    /// Whether the removal of this file's truncated data is complete but not yet in the journal:
    /// the next holder of the rank would repeat it.
    pub is_settling: &'a dyn Fn(Ino) -> bool,
    /// What other ranks have prepared for it.
    pub facts: &'a [(FsPart, FsFact)],
    /// How large clients may make files below quotas.
    pub rooms: &'a Rooms,
    /// How large this client may make the file; and how large it may already have made it, if the
    /// call reports that.
    pub room: (u64, u64),
}

/// Something that is not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Missing {
    /// The slice of a directory's fragment that contains this hash, and its head.
    Slice(Ino, Frag, u64),
    /// The same; the following slice is needed next.
    Page(Ino, Frag, u64),
    /// The entry of this inode, with all directories above it.
    Inode(Ino),
}

/// See the module head.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "nearly all are done")]
pub enum Verdict {
    /// It can be executed now.
    Done(Outcome),
    /// Something must be read first.
    Wants(Missing),
    /// Data of this file beyond its end must be removed first.
    Busy(Ino),
    /// Clients must first give back what they may still write below this directory, and of the
    /// inode that is to move there: there is not enough room for both.
    Crowded(Ino, Option<Ino>),
    /// This rank must first prepare this part.
    Across(Rank, FsPart),
}

/// A file that was opened or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The file.
    pub ino: Ino,
    /// Whether for writing.
    pub write: bool,
    /// Whether it was closed.
    pub closed: bool,
}

impl Opened {
    /// The file, if it was opened.
    #[must_use]
    pub fn file(self) -> Option<Ino> {
        (!self.closed).then_some(self.ino)
    }
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The answer for its client.
    pub answer: FsAnswer,
    /// The changes, in order; empty if it failed.
    pub changes: Vec<Change>,
    /// The file that was opened or closed.
    pub opened: Option<Opened>,
    /// Whether the number was used.
    pub took_ino: bool,
    /// It must be answered only when it is safe: a client may write into the truncated range, and
    /// if the truncation were repeated later, its data would be removed, too.
    pub when_safe: bool,
    /// How large its client may make the file from now on.
    pub room: Option<u64>,
}

impl Outcome {
    /// An answer without changes.
    #[must_use]
    pub const fn only(answer: FsAnswer) -> Self {
        Self {
            answer,
            changes: Vec::new(),
            opened: None,
            took_ino: false,
            when_safe: false,
            room: None,
        }
    }
}

/// Why an evaluation ends early.
pub(crate) enum Stop {
    Fail(u16),
    Wants(Missing),
    Busy(Ino),
    Crowded(Ino, Option<Ino>),
    Across(Rank, FsPart),
}
pub(crate) type Step<T> = Result<T, Stop>;

/// Evaluates a request.
#[must_use]
pub fn evaluate(tree: &Tree, call: &FsCall, setting: &Setting<'_>) -> Verdict {
    evaluate_with(tree, setting, setting.again || call.tells(), |run| {
        run.call(call)
    })
}
/// `is_free`: quotas are ignored. A client's last report covers writes within its grant.
fn evaluate_with(
    tree: &Tree,
    setting: &Setting<'_>,
    is_free: bool,
    call: impl FnOnce(&mut Run<'_>) -> Step<FsAnswer>,
) -> Verdict {
    let draft = Draft::new(
        tree,
        setting.now,
        Bounds {
            rooms: setting.rooms,
            is_free,
        },
    );
    let mut run = Run {
        tree,
        setting,
        draft,
        opened: None,
        took_ino: false,
        when_safe: false,
        room: None,
    };
    match call(&mut run) {
        Ok(answer) => Verdict::Done(Outcome {
            answer,
            changes: run.draft.into_changes(),
            opened: run.opened,
            took_ino: run.took_ino,
            when_safe: run.when_safe,
            room: run.room,
        }),
        Err(Stop::Fail(errno)) => Verdict::Done(Outcome {
            // The file is closed, whatever the result for its size.
            opened: run.opened.filter(|opened| opened.closed),
            ..Outcome::only(FsAnswer::Failed { errno })
        }),
        Err(Stop::Wants(missing)) => Verdict::Wants(missing),
        Err(Stop::Busy(ino)) => Verdict::Busy(ino),
        Err(Stop::Crowded(dir, moved)) => Verdict::Crowded(dir, moved),
        Err(Stop::Across(rank, part)) => Verdict::Across(rank, part),
    }
}

/// What was found in a file's objects that its writer has not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The file has at least this size.
    pub size: u64,
    /// Where its data ends: not beyond the file's end.
    pub end: u64,
    /// Whether it was written just now.
    pub now: bool,
}

/// The changes for a file where that was found.
#[must_use]
pub fn evaluate_found(tree: &Tree, ino: Ino, found: Written, setting: &Setting<'_>) -> Verdict {
    evaluate_with(tree, setting, true, |run| run.found(ino, found))
}

struct Run<'a> {
    tree: &'a Tree,
    setting: &'a Setting<'a>,
    draft: Draft<'a>,
    opened: Option<Opened>,
    took_ino: bool,
    when_safe: bool,
    room: Option<u64>,
}

/// What to create.
struct Made<'a> {
    kind: FileKind,
    mode: u16,
    umask: u16,
    owner: (u32, u32),
    target: &'a Bytes,
    device: u64,
}

impl Run<'_> {
    fn call(&mut self, call: &FsCall) -> Step<FsAnswer> {
        match call {
            FsCall::Lookup { dir, name } => {
                self.directory(*dir)?;
                let entry = self.entry(*dir, name)?;
                if self.is_elsewhere(&entry) {
                    return Ok(FsAnswer::Elsewhere {
                        ino: entry.ino(),
                        kind: entry.kind(),
                    });
                }
                let inode = self.resolve(&entry)?;
                Ok(self.shown(inode, false))
            }
            FsCall::Stat { ino } | FsCall::StatLite { ino } => {
                let inode = self.inode(*ino)?;
                Ok(self.shown(inode, false))
            }
            FsCall::List {
                dir,
                after,
                bytes_max,
            } => self.list(*dir, *after, (*bytes_max).min(FS_LIST_MAX) as usize),
            FsCall::Make {
                dir,
                name,
                kind,
                mode,
                umask,
                uid,
                gid,
                target,
                device,
                exclusive,
                open,
                write,
            } => {
                let (kind, owner, device) = (*kind, (*uid, *gid), *device);
                let made = Made {
                    kind,
                    mode: *mode & 0o7777,
                    umask: *umask & 0o777,
                    owner,
                    target,
                    device,
                };
                self.make(*dir, name, &made, *exclusive, open.then_some(*write))
            }
            FsCall::Link { ino, dir, name } => self.link(*ino, *dir, name),
            FsCall::Unlink {
                dir,
                name,
                directory,
            } => {
                self.directory(*dir)?;
                let entry = self.entry(*dir, name)?;
                match (entry.is_directory(), directory) {
                    (true, false) => return Err(Stop::Fail(EISDIR)),
                    (false, true) => return Err(Stop::Fail(ENOTDIR)),
                    _ => {}
                }
                let node = self.unname(&entry)?;
                self.draft.remove(*dir, name, &entry);
                Ok(FsAnswer::Node { node, made: false })
            }
            FsCall::Rename {
                dir,
                name,
                to_dir,
                to_name,
                flags,
            } => self.rename((*dir, name), (*to_dir, to_name), *flags),
            FsCall::Set { ino, changes } => self.set(*ino, changes),
            FsCall::SetXattr {
                ino,
                name,
                value,
                fresh,
                drop_sgid,
            } => match name.as_bytes() {
                acl::ACCESS | acl::DEFAULT => self.set_acl(*ino, name, value, *fresh, *drop_sgid),
                own if own.starts_with(PREFIX) => self.set_own(*ino, own, value, *fresh),
                _ => self.set_xattr(*ino, name, value, *fresh),
            },
            FsCall::RemoveXattr { ino, name } if name.as_bytes().starts_with(PREFIX) => {
                self.remove_own(*ino, name.as_bytes())
            }
            FsCall::Usage { ino } => self.usage(*ino),
            FsCall::Grow { ino, size } => self.give_room(*ino, *size),
            FsCall::RemoveXattr { ino, name } => {
                let mut inode = self.inode(*ino)?;
                if matches!(name.as_bytes(), acl::ACCESS | acl::DEFAULT)
                    && xattr(&inode, name.as_bytes()).is_none()
                {
                    // As in other file systems: it is already what its caller wants.
                    return Ok(self.shown(inode, false));
                }
                let rare = rare_of(&mut inode);
                if rare.xattrs.remove(name).is_none() {
                    return Err(Stop::Fail(ENODATA));
                }
                self.changed(inode)
            }
            FsCall::Open { ino, write } => {
                let inode = self.inode(*ino)?;
                if !inode.is_file() {
                    return Err(Stop::Fail(EINVAL));
                }
                self.opened = Some(Opened {
                    ino: *ino,
                    write: *write,
                    closed: false,
                });
                Ok(self.shown(inode, false))
            }
            FsCall::Close {
                ino,
                write,
                size,
                mtime,
            } => {
                self.opened = Some(Opened {
                    ino: *ino,
                    write: *write,
                    closed: true,
                });
                if *mtime == Stamp::default() {
                    return Ok(FsAnswer::Done {});
                }
                self.wrote(*ino, *size, *mtime)
            }
            FsCall::Wrote { ino, size, mtime } => self.wrote(*ino, *size, *mtime),
            // Nothing is written that could be journaled (`mds/capabilities.rs`).
            FsCall::Alone { ino, ends: false } => {
                let inode = self.inode(*ino)?;
                Ok(self.shown(inode, false))
            }
            FsCall::Alone { .. }
            | FsCall::Comply {
                mtime: Stamp(0), ..
            }
            | FsCall::Comply { written: false, .. } => Ok(FsAnswer::Done {}),
            FsCall::Comply {
                ino, size, mtime, ..
            } => self.wrote(*ino, *size, *mtime),
            // They do not concern the tree: `Mds` handles them.
            FsCall::Lock { .. }
            | FsCall::Unlock { .. }
            | FsCall::TestLock { .. }
            | FsCall::CancelLock { .. } => Err(Stop::Fail(EINVAL)),
            // The waiting happens elsewhere (`mds/flushing.rs`).
            FsCall::Flush {} => Ok(FsAnswer::Done {}),
            // The tree does not know clients (`mds/clients.rs`).
            FsCall::Clients { .. } | FsCall::Evict { .. } | FsCall::Numbers {} => {
                Err(Stop::Fail(EINVAL))
            }
            FsCall::Pin { dir, name, rank } => self.pin(*dir, name, Rank(*rank)),
            FsCall::StatFs {} => {
                let head = |dir| {
                    let head = self.tree.head(dir, Frag::WHOLE).copied();
                    head.ok_or(Stop::Wants(Missing::Slice(dir, Frag::WHOLE, 0)))
                };
                // Each rank reports what it has: below the root, or below what other ranks'
                // references refer to.
                let links = head(Ino::links(self.setting.rank))?;
                if self.setting.rank != Ino::TOP.rank() {
                    // Inodes with names elsewhere count there.
                    let files =
                        (links.files_below + links.directories_below).saturating_sub(links.entries);
                    let bytes = links.bytes_below;
                    return Ok(FsAnswer::Room { bytes, files });
                }
                let top = head(Ino::TOP)?;
                let bytes = top.bytes_below + links.bytes_below;
                Ok(FsAnswer::Room {
                    bytes,
                    files: top.files_below + top.directories_below,
                })
            }
        }
    }

    // ── what is there ───────────────────────────────────────────────────────────────────

    fn inode(&self, ino: Ino) -> Step<Inode> {
        if ino.rank() != self.setting.rank {
            // What is known here about another rank's inode is incomplete.
            return Err(Stop::Fail(ESTALE));
        }
        let inode = self
            .tree
            .inode(ino)
            .ok_or(Stop::Wants(Missing::Inode(ino)))?;
        if inode.is_file()
            && inode.links == 0
            && !self.setting.again
            && !(self.setting.is_open)(ino)
        {
            // It is removed, and so may be some of its data.
            return Err(Stop::Fail(ESTALE));
        }
        Ok(inode.clone())
    }
    fn directory(&self, dir: Ino) -> Step<Inode> {
        let inode = self.inode(dir)?;
        if inode.is_directory() {
            Ok(inode)
        } else {
            Err(Stop::Fail(ENOTDIR))
        }
    }
    fn find(&self, dir: Ino, name: &Name) -> Step<Option<Entry>> {
        let bytes = name.as_bytes();
        if bytes.len() > NAME_MAX {
            return Err(Stop::Fail(ENAMETOOLONG));
        }
        if !is_name(bytes) {
            return Err(Stop::Fail(EINVAL));
        }
        match self.tree.find(dir, name) {
            Found::Entry(entry) => Ok(Some(entry.clone())),
            Found::Nothing => Ok(None),
            Found::Unknown(frag, hash) => Err(Stop::Wants(Missing::Slice(dir, frag, hash))),
        }
    }
    fn entry(&self, dir: Ino, name: &Name) -> Step<Entry> {
        self.find(dir, name)?.ok_or(Stop::Fail(ENOENT))
    }
    /// The inode that an entry refers to.
    fn resolve(&self, entry: &Entry) -> Step<Inode> {
        match (entry, entry.home()) {
            (Entry::Inode { inode, .. }, _) => Ok(inode.clone()),
            (_, Some((home, name))) => match self.find(home, &name)? {
                Some(Entry::Inode { inode, .. }) => Ok(inode),
                // Damage, which `fs check` reports.
                _ => Err(Stop::Fail(ENOENT)),
            },
            (Entry::Reference { .. }, None) => unreachable!("references have homes"),
        }
    }
    fn shown(&self, inode: Inode, made: bool) -> FsAnswer {
        let head = inode.is_directory().then(|| self.draft.sum(inode.ino));
        FsAnswer::Node {
            node: FsNode {
                inode,
                head,
                home: None,
            },
            made,
        }
    }

    fn list(&self, dir: Ino, after: u64, bytes_max: usize) -> Step<FsAnswer> {
        self.directory(dir)?;
        let (mut entries, mut elsewhere) = (Vec::new(), Vec::new());
        let (mut bytes, mut last, mut after) = (0, 0, after);
        loop {
            let frag = self.tree.frag_at(dir, after + 1);
            let list = self.tree.list(dir, frag, after);
            let (list, known_to) = list.ok_or(Stop::Wants(Missing::Page(dir, frag, after + 1)))?;
            for (hash, name, entry) in list {
                // Names with equal hashes stay together, because an offset is a hash.
                if bytes >= bytes_max && hash != last {
                    return Ok(listed(entries, elsewhere, false));
                }
                last = hash;
                if self.is_elsewhere(entry) {
                    bytes += LISTED_BYTES + name.as_bytes().len();
                    elsewhere.push(FsElsewhere {
                        name: name.clone(),
                        ino: entry.ino(),
                        kind: entry.kind(),
                    });
                    continue;
                }
                let inode = match self.resolve(entry) {
                    // References may need more than fits into memory: a shorter page is valid, too.
                    Err(Stop::Wants(missing)) => return shorter(entries, elsewhere, hash, missing),
                    resolved => resolved?,
                };
                let head = inode.is_directory().then(|| self.tree.sum(inode.ino));
                bytes += LISTED_BYTES
                    + name.as_bytes().len()
                    + inode.rare.as_ref().map_or(0, |rare| rare.to_bytes().len());
                entries.push(FsListed {
                    name: name.clone(),
                    node: FsNode {
                        inode,
                        head,
                        home: None,
                    },
                });
            }
            if known_to < frag.last() {
                if entries.is_empty() && elsewhere.is_empty() {
                    after = known_to;
                    continue;
                }
                // The rest must be read: a shorter page is valid, too.
                return Ok(listed(entries, elsewhere, false));
            }
            match frag
                .last()
                .checked_add(1)
                .filter(|next| *next < 1 << Frag::HASH_BITS)
            {
                Some(_) => after = frag.last(),
                None => return Ok(listed(entries, elsewhere, true)),
            }
        }
    }

    // ── names ───────────────────────────────────────────────────────────────────────────

    fn make(
        &mut self,
        dir: Ino,
        name: &Name,
        made: &Made<'_>,
        exclusive: bool,
        open: Option<bool>,
    ) -> Step<FsAnswer> {
        let parent = self.directory(dir)?;
        let is_unnamed = name.is_empty();
        if is_unnamed && (open.is_none() || !matches!(made.kind, FileKind::File {})) {
            return Err(Stop::Fail(EINVAL));
        }
        let there = if is_unnamed {
            None
        } else {
            self.find(dir, name)?
        };
        if let Some(entry) = there {
            if exclusive || !matches!(made.kind, FileKind::File {}) {
                return Err(Stop::Fail(EEXIST));
            }
            if self.is_elsewhere(&entry) {
                return Ok(FsAnswer::Elsewhere {
                    ino: entry.ino(),
                    kind: entry.kind(),
                });
            }
            let inode = self.resolve(&entry)?;
            self.note_opened(&inode, open);
            return Ok(self.shown(inode, false));
        }
        if made.target.len() > TARGET_MAX {
            return Err(Stop::Fail(ENAMETOOLONG));
        }
        let directory = matches!(made.kind, FileKind::Directory {});
        let (uid, mut gid) = made.owner;
        let (mut mode, xattrs) = rights_below(&parent, made)?;
        if parent.mode & S_ISGID != 0 {
            gid = parent.gid;
            mode |= if directory { S_ISGID } else { 0 };
        }
        let ino = self.setting.ino;
        self.took_ino = true;
        let rare = Rare {
            target: made.target.clone(),
            device: made.device,
            xattrs,
            ..Rare::default()
        };
        let inode = Inode {
            size: made.target.len() as u64,
            layout: matches!(made.kind, FileKind::File {}).then_some(self.setting.layout),
            rare: (rare != Rare::default()).then(|| Arc::new(rare)),
            links: u32::from(!is_unnamed),
            ..Inode::new(ino, made.kind, mode, (uid, gid), self.setting.now)
        };
        self.note_opened(&inode, open);
        if is_unnamed {
            self.set_stray(&inode)?;
            return Ok(self.shown(inode, true));
        }
        let head = directory.then(Default::default);
        self.draft.room_for(dir, 0, 1)?;
        self.draft.set(
            dir,
            name,
            Entry::Inode {
                inode: inode.clone(),
                head: head.map(Box::new),
            },
            None,
        );
        if directory {
            self.draft.begin_directory(ino);
        }
        Ok(FsAnswer::Node {
            node: FsNode {
                inode,
                head,
                home: None,
            },
            made: true,
        })
    }

    fn note_opened(&mut self, inode: &Inode, open: Option<bool>) {
        let opened = open.filter(|_| inode.is_file());
        self.opened = opened.map(|write| Opened {
            ino: inode.ino,
            write,
            closed: false,
        });
    }

    fn link(&mut self, ino: Ino, dir: Ino, name: &Name) -> Step<FsAnswer> {
        if ino.rank() != self.setting.rank {
            return self.link_elsewhere(ino, dir, name);
        }
        let inode = self.one_more_name(ino)?;
        self.directory(dir)?;
        if self.find(dir, name)?.is_some() {
            return Err(Stop::Fail(EEXIST));
        }
        let strays = Ino::strays(self.setting.rank);
        let (at, its_name) = self.tree.place(ino).expect("it was just found");
        let its_name = its_name.clone();
        if at == strays {
            // A file without a name was not counted before.
            self.draft.room_to_name(&inode, dir)?;
            // A file that was created without a name, or lost its last one: this is its only name.
            let whole = Entry::Inode {
                inode: inode.clone(),
                head: None,
            };
            self.draft.set(dir, name, whole, None);
            self.draft.remove_at(at, &its_name)?;
            return Ok(self.shown(inode, false));
        }
        self.draft.room_for(dir, 0, 1)?;
        let reference = self.move_home(&inode)?;
        self.draft.set(dir, name, reference, None);
        Ok(self.shown(inode, false))
    }
    /// A file with one more name.
    fn one_more_name(&self, ino: Ino) -> Step<Inode> {
        let mut inode = self.inode(ino)?;
        if inode.is_directory() {
            return Err(Stop::Fail(EPERM));
        }
        inode.links = inode.links.checked_add(1).ok_or(Stop::Fail(EMLINK))?;
        self.touch(&mut inode);
        Ok(inode)
    }
    /// Moves an inode that is to have names in several directories to the hidden directory for such
    /// inodes; returns the reference for its names. Its current name becomes one.
    fn move_home(&mut self, inode: &Inode) -> Step<Entry> {
        let ino = inode.ino;
        let (rank, home) = (self.setting.rank, Ino::links(self.setting.rank));
        let reference = Entry::Reference {
            ino,
            kind: inode.kind,
            home: rank.0,
        };
        let (at, its_name) = self.tree.place(ino).expect("it was just found");
        let its_name = its_name.clone();
        self.set_hidden(home, inode)?;
        if at == Ino::strays(rank) {
            self.draft.remove_at(at, &its_name)?;
        } else if at != home {
            let first = self.entry(at, &its_name)?;
            self.draft.swap(at, &its_name, reference.clone(), &first);
        }
        Ok(reference)
    }

    /// Changes an inode that loses one of its names; the caller removes the name itself. Returns
    /// the inode afterwards.
    fn unname(&mut self, entry: &Entry) -> Step<FsNode> {
        let shown = |inode| FsNode {
            inode,
            head: None,
            home: None,
        };
        if self.is_elsewhere(entry) {
            return self.unname_elsewhere(entry);
        }
        let mut inode = self.resolve(entry)?;
        if inode.is_directory() {
            if self.draft.sum(inode.ino).entries > 0 {
                return Err(Stop::Fail(ENOTEMPTY));
            }
            inode.links = 0;
            self.draft.end_directory(inode.ino);
            if let Some((home, key)) = entry.home() {
                self.draft.remove_at(home, &key)?;
            }
            return Ok(shown(inode));
        }
        inode.links = inode.links.saturating_sub(1);
        self.touch(&mut inode);
        let home = entry.home();
        if inode.links > 0 {
            self.draft.put(inode.clone())?;
            return Ok(shown(inode));
        }
        if inode.is_file()
            && ((self.setting.is_open)(inode.ino) || inode.data_to() > 0 || inode.stale_to() > 0)
        {
            self.set_stray(&inode)?;
        }
        if let Some((home, key)) = home {
            self.draft.remove_at(home, &key)?;
        }
        Ok(shown(inode))
    }

    /// Puts a file without a name into the hidden directory for those.
    fn set_stray(&mut self, inode: &Inode) -> Step<()> {
        self.set_hidden(Ino::strays(self.setting.rank), inode)
    }
    /// Puts an inode into a hidden directory.
    fn set_hidden(&mut self, dir: Ino, inode: &Inode) -> Step<()> {
        let key = stray_name(inode.ino);
        let old = self.find(dir, &key)?;
        self.draft.set(
            dir,
            &key,
            Entry::Inode {
                inode: inode.clone(),
                head: None,
            },
            old.as_ref(),
        );
        Ok(())
    }

    fn rename(&mut self, from: (Ino, &Name), to: (Ino, &Name), flags: u8) -> Step<FsAnswer> {
        if flags & !(rename_flag::NO_REPLACE | rename_flag::EXCHANGE) != 0
            || flags == rename_flag::NO_REPLACE | rename_flag::EXCHANGE
        {
            return Err(Stop::Fail(EINVAL));
        }
        if from.0.rank() != self.setting.rank {
            return self.rename_from_elsewhere(from, to, flags);
        }
        self.directory(from.0)?;
        self.directory(to.0)?;
        let source = self.entry(from.0, from.1)?;
        let target = self.find(to.0, to.1)?;
        if flags == rename_flag::NO_REPLACE && target.is_some() {
            return Err(Stop::Fail(EEXIST));
        }
        if flags == rename_flag::EXCHANGE && target.is_none() {
            return Err(Stop::Fail(ENOENT));
        }
        if source.is_directory() && self.tree.is_below(to.0, source.ino()) {
            return Err(Stop::Fail(EINVAL));
        }
        let moves_directory =
            source.is_directory() || target.as_ref().is_some_and(Entry::is_directory);
        if moves_directory && self.tree.top(from.0) != self.tree.top(to.0) {
            // Whether one is below the other is not known here.
            return Err(Stop::Fail(EXDEV));
        }
        if target
            .as_ref()
            .is_some_and(|target| target.ino() == source.ino())
        {
            return Ok(FsAnswer::Done {});
        }
        if let Some(target) = &target {
            if flags == rename_flag::EXCHANGE {
                if target.is_directory() && self.tree.is_below(from.0, target.ino()) {
                    return Err(Stop::Fail(EINVAL));
                }
                self.draft
                    .room_to_move(&source, from.0, to.0, Some(target))?;
                self.draft
                    .room_to_move(target, to.0, from.0, Some(&source))?;
                let (moved, other) = (self.moved(&source)?, self.moved(target)?);
                self.draft.set(to.0, to.1, moved, Some(target));
                self.draft.set(from.0, from.1, other, Some(&source));
                return Ok(FsAnswer::Done {});
            }
            match (source.is_directory(), target.is_directory()) {
                (true, false) => return Err(Stop::Fail(ENOTDIR)),
                (false, true) => return Err(Stop::Fail(EISDIR)),
                _ => {}
            }
        }
        self.draft
            .room_to_move(&source, from.0, to.0, target.as_ref())?;
        if let Some(target) = &target {
            self.unname(target)?;
        }
        let moved = self.moved(&source)?;
        // The new name first: a directory is never without one, and its entries stay.
        self.draft.set(to.0, to.1, moved, target.as_ref());
        self.draft.remove(from.0, from.1, &source);
        Ok(FsAnswer::Done {})
    }

    /// An entry under its new name: the moved inode has changed.
    fn moved(&mut self, entry: &Entry) -> Step<Entry> {
        if self.is_elsewhere(entry) {
            return Ok(entry.clone());
        }
        let mut inode = self.resolve(entry)?;
        self.touch(&mut inode);
        match entry {
            Entry::Inode { head, .. } => {
                let head = head.is_some().then(|| Box::new(self.draft.sum(inode.ino)));
                Ok(Entry::Inode { head, inode })
            }
            Entry::Reference { .. } => {
                self.draft.put(inode)?;
                Ok(entry.clone())
            }
        }
    }

    // ── attributes ──────────────────────────────────────────────────────────────────────

    fn touch(&self, inode: &mut Inode) {
        touch_at(inode, self.setting.now);
    }
    fn changed(&mut self, inode: Inode) -> Step<FsAnswer> {
        self.changed_at(inode, self.setting.now)
    }
    fn changed_at(&mut self, mut inode: Inode, now: Stamp) -> Step<FsAnswer> {
        touch_at(&mut inode, now);
        self.draft.put(inode.clone())?;
        Ok(self.shown(inode, false))
    }

    /// Whether quotas allow a file to become this large; its client may already have made it
    /// larger.
    fn room_to_grow(&self, inode: &Inode, size: u64, may: u64) -> Step<()> {
        let Some((dir, _)) = self
            .tree
            .place(inode.ino)
            .filter(|_| size > may.max(inode.size))
        else {
            return Ok(());
        };
        self.draft.room_to_grow(inode.ino, dir, size - inode.size)
    }
    /// Makes a file larger, but not over data that it once had.
    fn grow(&mut self, inode: &mut Inode, size: u64) -> Step<()> {
        if size > SIZE_MAX {
            return Err(Stop::Fail(EFBIG));
        }
        if inode.stale_to() > inode.size || (self.setting.is_settling)(inode.ino) {
            return Err(Stop::Busy(inode.ino));
        }
        inode.size = size;
        Ok(())
    }

    fn wrote(&mut self, ino: Ino, size: u64, mtime: Stamp) -> Step<FsAnswer> {
        let mut inode = self.inode(ino)?;
        if !inode.is_file() {
            return Err(Stop::Fail(EINVAL));
        }
        let Some(layout) = inode.layout.filter(|layout| size <= layout.data_max()) else {
            return Err(Stop::Fail(EFBIG));
        };
        let data_to = inode.data_to();
        // Its client writes data when it has the answer; if both die then, the data must be found.
        self.when_safe |= size > data_to + layout.reach();
        if size > inode.size {
            self.room_to_grow(&inode, size, self.setting.room.1)?;
            self.grow(&mut inode, size)?;
        }
        set_data_to(&mut inode, data_to.max(size));
        inode.mtime = inode.mtime.max(mtime);
        self.changed(inode)
    }

    fn found(&mut self, ino: Ino, Written { size, end, now }: Written) -> Step<FsAnswer> {
        let mut inode = self.inode(ino)?;
        let data_to = inode.data_to();
        if size > inode.size {
            self.grow(&mut inode, size)?;
        }
        debug_assert!(end <= inode.size, "what lies beyond is removed before");
        set_data_to(&mut inode, data_to.max(end));
        if now {
            inode.mtime = inode.mtime.max(self.setting.now);
        }
        self.changed(inode)
    }

    fn set(&mut self, ino: Ino, changes: &FsChanges) -> Step<FsAnswer> {
        let mut inode = self.inode(ino)?;
        let now = changes.foretold.unwrap_or(self.setting.now);
        if let Some(size) = changes.size {
            if !inode.is_file() {
                return Err(Stop::Fail(if inode.is_directory() {
                    EISDIR
                } else {
                    EINVAL
                }));
            }
            let data_to = inode.data_to();
            if size > inode.size {
                self.room_to_grow(&inode, size, self.setting.room.0)?;
                self.grow(&mut inode, size)?;
                set_data_to(&mut inode, data_to);
            } else if size < inode.size {
                self.when_safe = true;
                inode.size = size;
                set_data_to(&mut inode, data_to.min(size));
                if data_to > size {
                    let rare = rare_of(&mut inode);
                    rare.stale_to = rare.stale_to.max(data_to);
                }
            }
            inode.mtime = inode.mtime.max(now);
        }
        if let Some(mode) = changes.mode {
            inode.mode = mode & 0o7777;
            if let Some(mut acl) = acl_of(&inode, acl::ACCESS)? {
                acl.set_mode(mode);
                rare_of(&mut inode)
                    .xattrs
                    .insert(Name::copy(acl::ACCESS), acl.to_bytes());
            }
        }
        inode.uid = changes.uid.unwrap_or(inode.uid);
        inode.gid = changes.gid.unwrap_or(inode.gid);
        inode.atime = changes
            .atime
            .map_or(inode.atime, |stamp| stamp.unwrap_or(now));
        inode.mtime = changes
            .mtime
            .map_or(inode.mtime, |stamp| stamp.unwrap_or(now));
        if changes.mtime.is_some() && inode.is_directory() {
            rare_of(&mut inode).time_set_at = Some(self.draft.sum(ino).change);
        }
        self.changed_at(inode, now)
    }

    fn set_xattr(
        &mut self,
        ino: Ino,
        name: &Name,
        value: &Bytes,
        fresh: Option<bool>,
    ) -> Step<FsAnswer> {
        let mut inode = self.inode(ino)?;
        if name.is_empty() || name.as_bytes().len() > XATTR_NAME_MAX {
            return Err(Stop::Fail(EINVAL));
        }
        check_fresh(&inode, name, fresh)?;
        let rare = rare_of(&mut inode);
        rare.xattrs.insert(name.clone(), value.clone());
        fits(rare)?;
        self.changed(inode)
    }

    /// Sets an access control list, or removes it if the attribute contains none.
    fn set_acl(
        &mut self,
        ino: Ino,
        name: &Name,
        value: &Bytes,
        fresh: Option<bool>,
        drop_sgid: bool,
    ) -> Step<FsAnswer> {
        let mut inode = self.inode(ino)?;
        if matches!(inode.kind, FileKind::Symlink {}) {
            return Err(Stop::Fail(EOPNOTSUPP));
        }
        if value.len() > acl::BYTES_MAX {
            return Err(Stop::Fail(E2BIG));
        }
        let mut acl = Acl::parse(value).map_err(|_| Stop::Fail(EINVAL))?;
        check_fresh(&inode, name, fresh)?;
        if name.as_bytes() == acl::DEFAULT && !inode.is_directory() && acl.is_some() {
            return Err(Stop::Fail(EACCES));
        }
        if name.as_bytes() == acl::ACCESS
            && let Some(list) = &acl
        {
            inode.mode = list.given_to(inode.mode) & if drop_sgid { !S_ISGID } else { u16::MAX };
            acl.take_if(|list| list.is_mode());
        }
        let rare = rare_of(&mut inode);
        match acl {
            Some(acl) => drop(rare.xattrs.insert(name.clone(), acl.to_bytes())),
            None => drop(rare.xattrs.remove(name)),
        }
        fits(rare)?;
        self.changed(inode)
    }
}

/// A shorter page of a listing that ends before this hash, where something is missing; if nothing
/// precedes it, the missing part is read first.
fn shorter(
    mut entries: Vec<FsListed>,
    mut elsewhere: Vec<FsElsewhere>,
    hash: u64,
    missing: Missing,
) -> Step<FsAnswer> {
    entries.retain(|listed| name_hash(&listed.name) < hash);
    elsewhere.retain(|other| name_hash(&other.name) < hash);
    let is_empty = entries.is_empty() && elsewhere.is_empty();
    if is_empty {
        Err(Stop::Wants(missing))
    } else {
        Ok(listed(entries, elsewhere, false))
    }
}
fn listed(entries: Vec<FsListed>, elsewhere: Vec<FsElsewhere>, end: bool) -> FsAnswer {
    if elsewhere.is_empty() {
        FsAnswer::Listed { entries, end }
    } else {
        FsAnswer::ListedPartly {
            entries,
            elsewhere,
            end,
        }
    }
}
/// An extended attribute's value.
fn xattr<'a>(inode: &'a Inode, name: &[u8]) -> Option<&'a Bytes> {
    inode
        .rare
        .as_ref()?
        .xattrs
        .iter()
        .find(|(other, _)| other.as_bytes() == name)
        .map(|(_, value)| value)
}
/// Whether an attribute may be set by a caller who requires it to exist, or not to exist.
fn check_fresh(inode: &Inode, name: &Name, fresh: Option<bool>) -> Step<()> {
    match (fresh, xattr(inode, name.as_bytes()).is_some()) {
        (Some(true), true) => Err(Stop::Fail(EEXIST)),
        (Some(false), false) => Err(Stop::Fail(ENODATA)),
        _ => Ok(()),
    }
}
/// Whether the attributes are within their limit.
fn fits(rare: &Rare) -> Step<()> {
    let bytes: usize = rare
        .xattrs
        .iter()
        .map(|(name, value)| name.as_bytes().len() + value.len())
        .sum();
    if bytes > XATTR_BYTES_MAX {
        Err(Stop::Fail(E2BIG))
    } else {
        Ok(())
    }
}
/// An access control list; one that cannot be parsed is damage.
fn acl_of(inode: &Inode, name: &[u8]) -> Step<Option<Acl>> {
    xattr(inode, name).map_or(Ok(None), |value| {
        Acl::parse(value).map_err(|_| Stop::Fail(EIO))
    })
}
/// The mode of a new inode in a directory, and its access control lists.
fn rights_below(parent: &Inode, made: &Made<'_>) -> Step<(u16, BTreeMap<Name, Bytes>)> {
    if matches!(made.kind, FileKind::Symlink {}) {
        return Ok((made.mode, BTreeMap::new()));
    }
    let Some(default) = acl_of(parent, acl::DEFAULT)? else {
        return Ok((made.mode & !made.umask, BTreeMap::new()));
    };
    let (mode, own) = default.inherited(made.mode);
    let own = own.map(|acl| (acl::ACCESS, acl.to_bytes()));
    let handed_on =
        matches!(made.kind, FileKind::Directory {}).then(|| (acl::DEFAULT, default.to_bytes()));
    Ok((
        mode,
        own.into_iter()
            .chain(handed_on)
            .map(|(name, value)| (Name::copy(name), value))
            .collect(),
    ))
}
/// A file's name in the hidden directories.
pub(crate) fn stray_name(ino: Ino) -> Name {
    Name::from(&*ino.to_string())
}
/// An inode's rare fields, mutable.
fn touch_at(inode: &mut Inode, now: Stamp) {
    inode.ctime = inode.ctime.max(now);
    inode.change += 1;
}
fn rare_of(inode: &mut Inode) -> &mut Rare {
    Arc::make_mut(inode.rare.get_or_insert_default())
}
/// Records up to where data was written.
fn set_data_to(inode: &mut Inode, end: u64) {
    let data_to = Some(end).filter(|end| *end < inode.size);
    if inode.rare.as_ref().and_then(|rare| rare.data_to) != data_to {
        rare_of(inode).data_to = data_to;
    }
}
