//! The programs on a client: one creates, moves and removes names that others use too; one reads
//! and writes a file of its own, which may be created without a name.

use super::data;
use super::relics::{Relic, Synced};
use super::tops::Top;
use super::world::layout;
use crate::rng::Rng;
use bytes::Bytes;
use nacre_fs::{Ask, CallId, Given, Outcome};
use nacre_types::{Ino, Name};
use nacre_wire::fs::{FileKind, Inode, QuotaKind, Stamp};
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsChanges, FsNode, rename_flag};
use std::collections::BTreeSet;
use std::sync::Arc;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Largest file of a program's own: several objects.
const OWN_MAX: u64 = 30_000;
/// In one of three cases it is farther than a client may write without telling the server.
const OWN_FAR: u64 = 150_000;
/// The mode that marks such files.
const OWN_MODE: u16 = 0o644;
const EBADF: u16 = 9;
const EEXIST: u16 = 17;
const EINVAL: u16 = 22;
const EIO: u16 = 5;
const ENOSPC: u16 = 28;
const ESTALE: u16 = 116;
const EDQUOT: u16 = 122;
/// Values of directory quotas in bytes; 0 is none.
const BOUNDS: [u64; 5] = [0, 20_000, 60_000, 100_000, 200_000];
/// The directory of files that are written below a quota.
const HOME: &str = "bounded";
const ENXIO: u16 = 6;

/// Whether it is a file whose data is written: its program judges its size, and other programs do
/// not touch it.
pub fn is_written(inode: &Inode) -> bool {
    inode.mode == OWN_MODE || inode.mode == data::MODE
}

/// What a client's programs have seen.
#[derive(Debug)]
pub struct Seen {
    tops: Arc<[Top]>,
    /// Whether directories get quotas.
    bounds: bool,
    dirs: BTreeSet<Ino>,
    files: BTreeSet<Ino>,
}

impl Seen {
    pub const fn new(tops: Arc<[Top]>, bounds: bool) -> Self {
        Self {
            tops,
            bounds,
            dirs: BTreeSet::new(),
            files: BTreeSet::new(),
        }
    }
    pub fn note(&mut self, answer: &FsAnswer) {
        if let FsAnswer::Node { node, .. } = answer
            && !is_written(&node.inode)
        {
            let ino = node.inode.ino;
            let set = if node.inode.is_directory() {
                &mut self.dirs
            } else {
                &mut self.files
            };
            set.insert(ino);
            // Old ones are mostly gone.
            if set.len() > 12 {
                set.pop_first();
            }
        }
    }
    fn dir(&self, rng: &mut Rng) -> Ino {
        let tops = self.tops.iter().map(|top| top.ino);
        let dirs: Vec<Ino> = tops.chain(self.dirs.iter().copied()).collect();
        // The last one is often this client's own and unknown to others.
        let last = self.dirs.last().filter(|_| rng.one_in(4));
        *last.unwrap_or_else(|| rng.pick(&dirs))
    }
    fn any(&self, rng: &mut Rng) -> Ino {
        let all: Vec<Ino> = self.dirs.iter().chain(&self.files).copied().collect();
        if all.is_empty() {
            Ino::ROOT
        } else {
            *rng.pick(&all)
        }
    }
}

/// The call that creates an inode.
pub fn make(dir: Ino, name: Name, kind: FileKind, exclusive: bool) -> FsCall {
    let (mode, target) = (0o755, Bytes::new());
    let (uid, gid, open) = (1, 1, false);
    FsCall::Make {
        dir,
        name,
        kind,
        mode,
        umask: 0,
        uid,
        gid,
        target,
        device: 0,
        exclusive,
        open,
        write: open,
    }
}

/// Sets a directory's quota; 0: none.
fn bound(ino: Ino, kind: QuotaKind, max: u64) -> FsCall {
    FsCall::SetXattr {
        ino,
        name: kind.name().into(),
        value: max.to_string().into(),
        fresh: None,
        drop_sgid: false,
    }
}

/// A call about names that others use as well.
pub fn shared(rng: &mut Rng, seen: &Seen) -> Ask {
    let (dir, to_dir) = (seen.dir(rng), seen.dir(rng));
    let name = |rng: &mut Rng| Name::from(*rng.pick(&NAMES));
    let (name, to_name) = (name(rng), name(rng));
    let make = |kind, exclusive| make(dir, name.clone(), kind, exclusive);
    Ask::Names(match rng.below(100) {
        0..18 => make(FileKind::File {}, true),
        18..24 => make(FileKind::File {}, false),
        24..36 => make(FileKind::Directory {}, true),
        36..40 => make(FileKind::Symlink {}, true),
        40..46 => FsCall::Link {
            ino: seen.any(rng),
            dir,
            name,
        },
        46..58 => FsCall::Unlink {
            dir,
            name,
            directory: false,
        },
        58..63 => FsCall::Unlink {
            dir,
            name,
            directory: true,
        },
        63..78 => {
            let flags = *rng.pick(&[0, 0, 0, rename_flag::NO_REPLACE, rename_flag::EXCHANGE]);
            FsCall::Rename {
                dir,
                name,
                to_dir,
                to_name,
                flags,
            }
        }
        78..85 => {
            let changes = if rng.one_in(2) {
                FsChanges {
                    size: Some(rng.below(3) * 5000),
                    ..FsChanges::default()
                }
            } else {
                FsChanges {
                    mode: Some(0o600 + rng.below(64) as u16),
                    ..FsChanges::default()
                }
            };
            FsCall::Set {
                ino: seen.any(rng),
                changes,
            }
        }
        85..92 => FsCall::Lookup { dir, name },
        92..96 => FsCall::List {
            dir,
            after: 0,
            bytes_max: 1 << 20,
        },
        97 if seen.bounds => {
            // Directories that other programs write in have no quota.
            let is_top = |dir: &Ino| seen.tops.iter().any(|top| top.ino == *dir);
            let dirs: Vec<Ino> = seen
                .dirs
                .iter()
                .copied()
                .filter(|dir| !is_top(dir))
                .collect();
            let (kind, max) = if rng.one_in(2) {
                (QuotaKind::Bytes {}, *rng.pick(&[0, 4_000, 9_000, 20_000]))
            } else {
                (QuotaKind::Files {}, *rng.pick(&[0, 1, 2, 4]))
            };
            if dirs.is_empty() {
                FsCall::Stat { ino: dir }
            } else {
                bound(*rng.pick(&dirs), kind, max)
            }
        }
        96 => FsCall::StatLite { ino: seen.any(rng) },
        97 => FsCall::Stat { ino: seen.any(rng) },
        98 if seen.tops.len() > 1 => FsCall::Pin {
            dir,
            name,
            rank: rng.below(seen.tops.len() as u64) as u16,
        },
        _ => return Ask::Sync { ino: None },
    })
}

/// A program with a file that only it writes: each read must return what it wrote.
#[derive(Debug)]
pub struct Own {
    tops: Arc<[Top]>,
    /// Where the file is created, and where it has its name.
    made_in: Top,
    named_in: Top,
    name: Name,
    ino: Option<Ino>,
    /// Whether it has a name, from its creation or later.
    named: bool,
    open: bool,
    content: Vec<u8>,
    /// A second file without a name that it copies from, and its content.
    twin: Option<(Ino, Vec<u8>)>,
    /// Its owner: changed only here, often answered by the client itself.
    uid: u32,
    /// The modification time set by a caller, if nothing was written since.
    time: Option<Stamp>,
    /// What is certain about it if its client dies now.
    synced: Option<Synced>,
    /// The last call, and the content if it succeeds.
    asked: Option<(CallId, Step, Vec<u8>)>,
    next: u8,
    most: u64,
    /// A call of an earlier file's program.
    stale: Option<CallId>,
    /// For a file below a quota: its directory, once known, and whether the directory exists.
    home: Option<Option<Top>>,
    is_made: bool,
    /// How often there was no space.
    pub refused: u64,
    /// Whether the cluster is full at times: data that was written and is lost must cause an error
    /// of the next `fsync`.
    pub fills: bool,
    doubts: bool,
    /// It was told that some of its file is lost: it starts another one.
    pub is_broken: bool,
    pub steps: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// The directory: created or looked up.
    Home,
    Bound,
    /// Whether with its name.
    Create(bool),
    Link,
    Write,
    Read(u64, u64),
    Resize,
    Chown(u32),
    Touch(Stamp),
    Zero,
    Extend,
    Copy(Copied),
    Twin,
    /// The range in the second file.
    TwinWrite(u64, u64),
    Seek(u64, bool),
    Sync,
    Stat,
    Close,
    Open,
}

/// A range that a program copies to its file, from another offset there or from its second file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Copied {
    is_twins: bool,
    offset: u64,
    at: u64,
    length: u64,
}

impl Copied {
    /// In three of four cases from the beginning of one object to that of another.
    fn any(rng: &mut Rng, most: u64, has_twin: bool) -> Self {
        let is_twins = has_twin && rng.one_in(2);
        let object = u64::from(layout().object);
        let (mut offset, mut at) = (rng.below(most), rng.below(most));
        if rng.one_in(2) {
            offset = rng.below(3) * object;
        }
        if !rng.one_in(4) {
            (offset, at) = (offset / object * object, at / object * object);
        }
        let length = 1 + rng.below(6 * object);
        // Overlapping ranges are refused.
        let apart = if is_twins {
            u64::MAX
        } else {
            offset.abs_diff(at).max(1)
        };
        Self {
            is_twins,
            offset,
            at,
            length: if rng.one_in(8) {
                length
            } else {
                length.min(apart)
            },
        }
    }
    /// The part of the range within the source.
    fn length_in(&self, size: usize) -> u64 {
        self.length.min((size as u64).saturating_sub(self.offset))
    }
    fn overlaps(&self, size: usize) -> bool {
        if self.is_twins {
            return false;
        }
        let length = self.length_in(size);
        self.offset < self.at + length && self.at < self.offset + length
    }
    /// The file's content after this much was copied.
    fn apply(&self, source: &[u8], content: &mut Vec<u8>, copied: u64) {
        let [from, at, length] = [self.offset, self.at, copied].map(|place| place as usize);
        if length > 0 {
            content.resize(content.len().max(at + length), 0);
            content[at..at + length].copy_from_slice(&source[from..from + length]);
        }
    }
}

impl Own {
    pub fn new(name: &str, tops: Arc<[Top]>, is_bounded: bool) -> Self {
        let sum: u32 = name.bytes().map(u32::from).sum();
        let top = |n: u32| tops[n as usize % tops.len()].clone();
        let (made_in, named_in) = (top(sum), top(sum / 5));
        let most = if sum.is_multiple_of(3) {
            OWN_FAR
        } else {
            OWN_MAX
        };
        let name = Name::from(name);
        Self {
            tops,
            made_in,
            named_in,
            name,
            ino: None,
            named: false,
            open: false,
            content: Vec::new(),
            twin: None,
            uid: 1,
            time: None,
            synced: None,
            asked: None,
            next: 0,
            most,
            stale: None,
            home: is_bounded.then_some(None),
            is_made: false,
            refused: 0,
            fills: false,
            doubts: false,
            is_broken: false,
            steps: 0,
        }
    }
    pub const fn is_waiting(&self) -> bool {
        self.asked.is_some() || self.stale.is_some()
    }
    /// The same program with another file.
    fn again(&self, name: &str) -> Self {
        let (steps, refused, home) = (self.steps, self.refused, self.home.clone());
        let fills = self.fills;
        let mut own = Self {
            steps,
            refused,
            fills,
            ..Self::new(name, self.tops.clone(), false)
        };
        if let Some(Some(home)) = &home {
            (own.made_in, own.named_in) = (home.clone(), home.clone());
        }
        Self { home, ..own }
    }
    /// Makes the next call.
    pub fn next(&mut self, rng: &mut Rng, begin: impl FnOnce(Ask) -> CallId) {
        let mut content = self.content.clone();
        if let Some(None) = self.home {
            let (dir, name) = (self.tops[0].ino, Name::from(HOME));
            let call = match self.is_made {
                false => make(dir, name, FileKind::Directory {}, true),
                true => FsCall::Lookup { dir, name },
            };
            self.asked = Some((begin(Ask::Names(call)), Step::Home, content));
            return;
        }
        let Some(ino) = self.ino else {
            let named = rng.one_in(2);
            if named {
                self.named_in.clone_from(&self.made_in);
            }
            let name = if named {
                self.name.clone()
            } else {
                Name::default()
            };
            let make = FsCall::Make {
                dir: self.made_in.ino,
                name,
                kind: FileKind::File {},
                mode: OWN_MODE,
                umask: 0,
                uid: 1,
                gid: 1,
                target: Bytes::new(),
                device: 0,
                exclusive: true,
                open: true,
                write: true,
            };
            self.asked = Some((begin(Ask::Names(make)), Step::Create(named), content));
            return;
        };
        if self.doubts && self.open {
            self.asked = Some((begin(Ask::Sync { ino: Some(ino) }), Step::Sync, content));
            return;
        }
        // Data that finds no space later would be an error of that file, which is reported to no
        // caller.
        if self.twin.is_none() && !self.fills && rng.one_in(12) {
            let mut make = make(self.made_in.ino, Name::default(), FileKind::File {}, true);
            if let FsCall::Make {
                mode, open, write, ..
            } = &mut make
            {
                (*mode, *open, *write) = (OWN_MODE, true, true);
            }
            self.asked = Some((begin(Ask::Names(make)), Step::Twin, content));
            return;
        }
        let close = FsCall::Close {
            ino,
            write: true,
            size: 0,
            mtime: Stamp::default(),
        };
        let home = self
            .home
            .as_ref()
            .and_then(Option::as_ref)
            .map(|home| home.ino);
        let (step, ask) = match rng.below(if home.is_some() { 31 } else { 30 }) {
            30 => {
                let bound = bound(
                    home.expect("it is below a quota"),
                    QuotaKind::Bytes {},
                    *rng.pick(&BOUNDS),
                );
                (Step::Bound, Ask::Names(bound))
            }
            0 if !self.named => {
                let (dir, name) = (self.named_in.ino, self.name.clone());
                (Step::Link, Ask::Names(FsCall::Link { ino, dir, name }))
            }
            _ if !self.open => (Step::Open, Ask::Names(FsCall::Open { ino, write: true })),
            0..8 => {
                let (offset, length) = (rng.below(self.most), 1 + rng.below(9000));
                self.next = self.next % 250 + 1;
                let end = (offset + length) as usize;
                content.resize(content.len().max(end), 0);
                content[offset as usize..end].fill(self.next);
                self.synced
                    .iter_mut()
                    .for_each(|synced| synced.written(offset, offset + length));
                let data = Bytes::from(vec![self.next; length as usize]);
                (Step::Write, Ask::Write { ino, offset, data })
            }
            8..14 => {
                let (offset, length) = (rng.below(self.most), rng.below(20_000));
                (
                    Step::Read(offset, length),
                    Ask::Read {
                        ino,
                        offset,
                        length: length as u32,
                    },
                )
            }
            14..16 => {
                let size = rng.below(self.most);
                content.resize(size as usize, 0);
                self.synced
                    .iter_mut()
                    .for_each(|synced| synced.resized(size));
                let changes = FsChanges {
                    size: Some(size),
                    ..FsChanges::default()
                };
                (Step::Resize, Ask::Names(FsCall::Set { ino, changes }))
            }
            20..22 => {
                let (offset, length) = (rng.below(self.most), 1 + rng.below(20_000));
                let end = content.len().min((offset + length) as usize);
                content[end.min(offset as usize)..end].fill(0);
                self.synced
                    .iter_mut()
                    .for_each(|synced| synced.written(offset, end as u64));
                (
                    Step::Zero,
                    Ask::Zero {
                        ino,
                        offset,
                        length,
                    },
                )
            }
            22 => {
                let size = rng.below(self.most);
                content.resize(content.len().max(size as usize), 0);
                self.synced
                    .iter_mut()
                    .for_each(|synced| synced.extended(size));
                (Step::Extend, Ask::Extend { ino, size })
            }
            23 => {
                let (offset, hole) = (rng.below(self.most), rng.one_in(2));
                (Step::Seek(offset, hole), Ask::Seek { ino, offset, hole })
            }
            24..26 => {
                let uid = 1 + rng.below(99) as u32;
                let changes = FsChanges {
                    uid: Some(uid),
                    ..FsChanges::default()
                };
                (Step::Chown(uid), Ask::Names(FsCall::Set { ino, changes }))
            }
            26..28 => {
                let time = Stamp(rng.below(1 << 50) as i64);
                self.synced.iter_mut().for_each(Synced::touched);
                let changes = FsChanges {
                    mtime: Some(Some(time)),
                    ..FsChanges::default()
                };
                (Step::Touch(time), Ask::Names(FsCall::Set { ino, changes }))
            }
            28..30 if self.twin.is_some() && rng.one_in(3) => {
                let (twin, _) = self.twin.as_ref().expect("just seen");
                let (offset, length) = (rng.below(self.most), 1 + rng.below(9000));
                self.next = self.next % 250 + 1;
                let data = Bytes::from(vec![self.next; length as usize]);
                (
                    Step::TwinWrite(offset, length),
                    Ask::Write {
                        ino: *twin,
                        offset,
                        data,
                    },
                )
            }
            28..30 => {
                let copied = Copied::any(rng, self.most, self.twin.is_some());
                let Copied {
                    offset, at, length, ..
                } = copied;
                let source = self.source(&copied, &content);
                let (from, size) = (source.0.unwrap_or(ino), source.1.len());
                // The answer says how much was copied.
                let within = copied.length_in(size);
                if !copied.overlaps(size) && within > 0 {
                    self.synced
                        .iter_mut()
                        .for_each(|synced| synced.written(at, at + within));
                }
                (
                    Step::Copy(copied),
                    Ask::Copy {
                        from,
                        offset,
                        to: ino,
                        at,
                        length,
                    },
                )
            }
            16 => (Step::Sync, Ask::Sync { ino: Some(ino) }),
            17 => (Step::Stat, Ask::Names(FsCall::Stat { ino })),
            _ => (Step::Close, Ask::Names(close)),
        };
        if matches!(
            step,
            Step::Write | Step::Resize | Step::Zero | Step::Extend | Step::Copy(_)
        ) {
            self.time = None;
        }
        self.asked = Some((begin(ask), step, content));
    }
    /// The source of a copy: the second file, or its own.
    fn source<'a>(&'a self, copied: &Copied, content: &'a [u8]) -> (Option<Ino>, &'a [u8]) {
        match &self.twin {
            Some((ino, twin)) if copied.is_twins => (Some(*ino), twin),
            _ => (None, content),
        }
    }
    /// Whether nothing has been done since the whole file was synchronized.
    pub fn is_synced(&self) -> bool {
        self.synced.as_ref().is_some_and(Synced::is_all)
    }
    /// Its client has left, and had time to send everything.
    pub fn on_left(&mut self) {
        if self.named && self.asked.is_none() {
            self.synced = Some(Synced::new(&self.content, self.time));
        }
    }
    /// What must exist of its file after its client is gone.
    pub fn relic(&mut self) -> Option<Relic> {
        Some(Relic {
            path: self.named_in.path(&self.name),
            ino: self.ino?,
            synced: self.synced.take()?,
        })
    }
    /// Its client was evicted: it restarts with another file.
    pub fn begin_again(&mut self, name: &str) {
        let asked = self.asked.take();
        // Evicted twice, it may still wait for a call from before the first time.
        let stale = asked.map(|(call, ..)| call).or(self.stale);
        *self = Self {
            stale,
            ..self.again(name)
        };
    }
    /// Handles the end of its call.
    ///
    /// # Panics
    /// If the outcome is wrong.
    pub fn on_ended(&mut self, call: CallId, outcome: &Outcome) -> bool {
        if self.stale.take_if(|stale| *stale == call).is_some() {
            return true;
        }
        let Some((_, step, mut content)) = self.asked.take_if(|(asked, ..)| *asked == call) else {
            return false;
        };
        self.steps += 1;
        if let Step::Seek(offset, hole) = step {
            if !self.fills {
                check_sought(&content, (offset, hole), outcome);
            }
            return true;
        }
        let given = match outcome {
            Ok(given) => given,
            Err(EEXIST) if step == Step::Home => {
                self.is_made = true;
                return true;
            }
            Err(EINVAL) if matches!(step, Step::Copy(copied) if copied.overlaps(content.len())) => {
                return true;
            }
            // Nothing has changed.
            Err(EDQUOT)
                if self.home.is_some()
                    && matches!(
                        step,
                        Step::Create(_)
                            | Step::Link
                            | Step::Write
                            | Step::Resize
                            | Step::Extend
                            | Step::Copy(_)
                            | Step::Twin
                            | Step::TwinWrite(..)
                    ) =>
            {
                self.refused += 1;
                return true;
            }
            Err(ENOSPC)
                if self.fills
                    && matches!(
                        step,
                        Step::Home | Step::Create(_) | Step::Twin | Step::Link | Step::Bound
                    ) =>
            {
                return true;
            }
            // Another rank has evicted its client, which does not know yet: without a name the file
            // is gone.
            Err(ESTALE) if self.tops.len() > 1 && step == Step::Link => {
                self.is_broken = true;
                return true;
            }
            // What it wrote since it was synchronized may be lost.
            Err(ENOSPC | EIO) if self.fills => {
                self.is_broken = true;
                return true;
            }
            Err(errno) => panic!(
                "{}: {step:?} failed with {errno} ({EBADF}: it is not open)",
                self.name
            ),
        };
        match (&step, given) {
            (Step::Create(named), Given::Answer(FsAnswer::Node { node, made: true })) => {
                (self.ino, self.named, self.open) = (Some(node.inode.ino), *named, true);
            }
            (Step::Link, Given::Answer(FsAnswer::Node { node, .. })) => {
                assert_eq!(node.inode.links, 1, "{}: its names", self.name);
                self.named = true;
            }
            // The file is gone, and another one begins.
            (Step::Close, _) if !self.named => {
                let twin = self.twin.take();
                *self = Self {
                    next: self.next,
                    twin,
                    ..self.again(&self.name.to_string())
                };
                return true;
            }
            (Step::Read(offset, length), Given::Data(parts)) => {
                let read = parts.concat();
                let from = content.len().min(*offset as usize);
                let to = content.len().min((*offset + *length) as usize);
                let same = read == content[from..to];
                let at = read
                    .iter()
                    .zip(&content[from..to])
                    .position(|(one, other)| one != other);
                self.doubts |= self.fills && !same;
                let same = same || self.fills;
                assert!(
                    same,
                    "{}: read {} bytes of {} at {offset}, other at {at:?}",
                    self.name,
                    read.len(),
                    to - from
                );
            }
            (Step::Copy(copied), Given::Copied(length)) => {
                let source = self.source(copied, &content).1.to_vec();
                let within = copied.length_in(source.len());
                assert!(
                    !copied.overlaps(content.len()) || within == 0,
                    "{}: {copied:?} is within itself",
                    self.name
                );
                assert!(
                    *length <= within,
                    "{}: {length} of {within} bytes are copied",
                    self.name
                );
                assert!(
                    *length > 0 || within == 0,
                    "{}: nothing is copied",
                    self.name
                );
                let is_short = *length < within;
                assert!(
                    !is_short || self.fills || self.home.is_some(),
                    "{}: only {length} of {within}",
                    self.name
                );
                // Writes that were begun and found no space may have made the file larger.
                self.is_broken |= is_short && self.fills;
                copied.apply(&source, &mut content, *length);
            }
            (Step::Twin, Given::Answer(FsAnswer::Node { node, made: true })) => {
                self.twin = Some((node.inode.ino, Vec::new()));
            }
            (Step::TwinWrite(offset, length), Given::Done) => {
                if let Some((_, twin)) = &mut self.twin {
                    let (from, to) = (*offset as usize, (*offset + *length) as usize);
                    twin.resize(twin.len().max(to), 0);
                    twin[from..to].fill(self.next);
                }
            }
            (Step::Stat, Given::Answer(FsAnswer::Node { node, .. })) => {
                let seen = (node.inode.size, node.inode.uid);
                assert_eq!(
                    seen,
                    (content.len() as u64, self.uid),
                    "{}: its size and owner",
                    self.name
                );
                self.check_time(node);
            }
            (Step::Chown(uid), Given::Answer(FsAnswer::Node { node, .. })) => {
                assert_eq!(node.inode.uid, *uid, "{}: its new owner", self.name);
                self.uid = *uid;
                self.check_time(node);
            }
            (Step::Touch(time), Given::Answer(FsAnswer::Node { node, .. })) => {
                self.time = Some(*time);
                self.check_time(node);
            }
            (Step::Close, _) => self.open = false,
            (Step::Open, Given::Answer(FsAnswer::Node { node, .. })) => {
                let seen = (node.inode.size, node.inode.uid);
                assert_eq!(
                    seen,
                    (content.len() as u64, self.uid),
                    "{}: size and owner of what is opened",
                    self.name
                );
                self.check_time(node);
                self.open = true;
            }
            (Step::Home, Given::Answer(FsAnswer::Node { node, .. })) => {
                let home = Top {
                    ino: node.inode.ino,
                    name: HOME.to_owned(),
                };
                (self.made_in, self.named_in) = (home.clone(), home.clone());
                self.home = Some(Some(home));
            }
            (Step::Bound, Given::Answer(_)) => {}
            (Step::Write | Step::Zero | Step::Extend | Step::Sync, Given::Done)
            | (Step::Resize, Given::Answer(_)) => {}
            (step, given) => panic!("{}: {step:?} was given {given:?}", self.name),
        }
        // A file without a name is removed with its client.
        assert!(
            step != Step::Sync || !self.doubts,
            "{}: other data was read than written, and no error told",
            self.name
        );
        if step == Step::Sync && self.named {
            self.synced = Some(Synced::new(&content, self.time));
        }
        self.content = content;
        true
    }
    fn check_time(&self, node: &FsNode) {
        if let Some(time) = self.time {
            assert_eq!(node.inode.mtime, time, "{}: its time was set", self.name);
        }
    }
}

/// Checks a search for data or a hole: what a search for data skips, and what is reported as a
/// hole, must be zeros.
fn check_sought(content: &[u8], (offset, hole): (u64, bool), outcome: &Outcome) {
    let is_zero = |from: u64, to: usize| content[from as usize..to].iter().all(|byte| *byte == 0);
    match outcome {
        Ok(Given::Offset(at)) => {
            let last = if hole {
                content.len() as u64
            } else {
                content.len() as u64 - 1
            };
            assert!(
                (offset..=last).contains(at),
                "from {offset} on, it was found at {at} of {}",
                content.len()
            );
            assert!(
                hole || is_zero(offset, *at as usize),
                "data before {at} was passed over"
            );
            assert!(
                !hole || *at == last || content[*at as usize] == 0,
                "{at} is no hole"
            );
        }
        Err(ENXIO) if offset >= content.len() as u64 => {}
        Err(ENXIO) if !hole => assert!(
            is_zero(offset, content.len()),
            "there is data behind {offset}"
        ),
        other => panic!("looked from {offset} on, and was given {other:?}"),
    }
}
