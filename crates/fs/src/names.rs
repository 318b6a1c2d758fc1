//! This client's cache of names and attributes (CEPH-12, -17).
//!
//! ```text
//!  answer, with a share of dir ─▶ cached: name ─▶ number; number ─▶ attributes
//!  own change ─▶ its answer replaces what was cached, or that is dropped
//!  FsForget ─▶ dropped one by one, or the whole directory
//!  the lease of a rank ends, another server ─▶ everything cached under that rank's shares
//!  is dropped
//! ```
//! A directory with all names known also answers for names that do not exist, and for listings.
//!
//! A name may refer to an inode of another rank than its directory's: the name is cached under a
//! share of one rank, and the attributes under a share of the other. Each is used only while its
//! rank's lease is valid: `lasts` decides for the rank of an inode.
//!
//! Invariants ([`Names::check`]): names and attributes are cached only for directories with a
//! share, and within the configured limit.

use crate::ahead::{Ahead, LookAhead};
use crate::routes::rank_of;
use nacre_types::{Ino, Name, Rank, Time};
use nacre_wire::fs::entry::{NAME_MAX, is_name};
use nacre_wire::fs::{FileKind, Head, Inode, Stamp, name_hash};
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsElsewhere, FsListed, FsNode, FsStale, rename_flag};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// For how long after a listing a directory's contents may be shown without a share of it: `ls -l`
/// asks for these attributes next.
const BRIEF: Duration = Duration::from_secs(1);
/// Longest listing answered from the cache, in entries.
const LISTED_MAX: usize = 1000;

/// A directory that this client has a share of.
#[derive(Debug, Default)]
struct Dir {
    /// The inode of each name; `None`: the name does not exist.
    names: BTreeMap<Name, Option<Ino>>,
    /// Existing names, in the order of a listing.
    order: BTreeSet<(u64, Name)>,
    /// All names are known except those dropped since.
    complete: Option<BTreeSet<Name>>,
    /// A listing has been read up to here without anything being dropped.
    listing: Option<u64>,
    /// The state of listing ahead.
    ahead: Ahead,
    head: Option<Head>,
    /// Whether it is delegated to this client: names are created and removed here first
    /// ([`crate::fs`]).
    delegated: bool,
    /// Inodes whose attributes are cached under it.
    inos: BTreeSet<Ino>,
    used: u64,
}

impl Dir {
    /// Whether it is known what a name refers to, if anything.
    fn knows(&self, name: &Name) -> bool {
        self.names.contains_key(name)
            || self
                .complete
                .as_ref()
                .is_some_and(|holes| !holes.contains(name))
    }
}

#[derive(Debug)]
struct Node {
    inode: Inode,
    home: Ino,
    /// Its recent contents, and until when they may be shown.
    brief: Option<(Head, Time)>,
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Names {
    dirs: BTreeMap<Ino, Dir>,
    nodes: BTreeMap<Ino, Node>,
    /// Number of names in all directories.
    names: usize,
    /// Most names and attributes.
    max: usize,
    uses: u64,
    /// Inodes whose attributes are no longer cached, or have changed: for the cache above.
    gone: Vec<Ino>,
}

impl Names {
    /// Caches at most this many names and attributes: some 400 bytes each.
    pub fn new(max: usize) -> Self {
        Self {
            dirs: BTreeMap::new(),
            nodes: BTreeMap::new(),
            names: 0,
            max,
            uses: 0,
            gone: Vec::new(),
        }
    }
    /// Whether an inode's attributes are cached.
    pub fn has(&self, lasts: &impl Fn(Ino) -> bool, ino: Ino) -> bool {
        self.nodes
            .get(&ino)
            .is_some_and(|node| lasts(node.home) && lasts(ino))
    }
    /// Drops everything. (The cache above is revoked as a whole.)
    pub fn clear(&mut self) {
        *self = Self::new(self.max);
    }
    /// Drops everything cached under shares of one rank.
    pub fn forget_rank(&mut self, rank: Rank) {
        let all: Vec<Ino> = self
            .dirs
            .keys()
            .copied()
            .filter(|dir| rank_of(*dir) == rank)
            .collect();
        all.into_iter().for_each(|dir| self.end(dir));
    }
    /// Takes the inodes whose attributes were dropped or changed since the last call.
    pub fn gone(&mut self) -> Vec<Ino> {
        std::mem::take(&mut self.gone)
    }
    /// Until when a directory's contents may be shown without a share of it.
    pub fn brief_until(&self, ino: Ino) -> Option<Time> {
        let is_exact = self.dirs.get(&ino).is_some_and(|dir| dir.head.is_some());
        let node = self
            .nodes
            .get(&ino)
            .filter(|node| node.inode.is_directory() && !is_exact)?;
        node.brief.map(|(_, until)| until)
    }

    // ── answers ─────────────────────────────────────────────────────────────────────────

    /// The answer to a call, if it is cached.
    pub fn answer(
        &mut self,
        lasts: &impl Fn(Ino) -> bool,
        now: Time,
        call: &FsCall,
    ) -> Option<FsAnswer> {
        match call {
            FsCall::Lookup { dir, name } => self.lookup(lasts, now, *dir, name),
            // Cached attributes are current, so they also satisfy weaker requests.
            FsCall::Stat { ino } | FsCall::StatLite { ino } => self
                .node(lasts, now, *ino)
                .map(|node| FsAnswer::Node { node, made: false }),
            FsCall::List {
                dir,
                after,
                bytes_max,
            } => self.list(lasts, *dir, *after, *bytes_max),
            _ => None,
        }
    }
    /// The inode of a name, if it is known and belongs to another rank.
    pub fn elsewhere(&self, lasts: &impl Fn(Ino) -> bool, dir: Ino, name: &Name) -> Option<Ino> {
        self.bound(dir, name)
            .filter(|ino| rank_of(*ino) != rank_of(dir) && lasts(dir))
    }
    fn lookup(
        &mut self,
        lasts: &impl Fn(Ino) -> bool,
        now: Time,
        dir: Ino,
        name: &Name,
    ) -> Option<FsAnswer> {
        self.uses += 1;
        let of = self.dirs.get_mut(&dir).filter(|_| lasts(dir))?;
        of.used = self.uses;
        match of.names.get(name) {
            Some(Some(ino)) => {
                let ino = *ino;
                self.node(lasts, now, ino)
                    .map(|node| FsAnswer::Node { node, made: false })
            }
            Some(None) => Some(FsAnswer::Failed { errno: 2 }),
            None => {
                // An invalid name is another error, which the server knows.
                let known = name.as_bytes().len() <= NAME_MAX && of.knows(name);
                known.then_some(FsAnswer::Failed { errno: 2 })
            }
        }
    }
    fn node(&mut self, lasts: &impl Fn(Ino) -> bool, now: Time, ino: Ino) -> Option<FsNode> {
        let node = self
            .nodes
            .get(&ino)
            .filter(|node| lasts(node.home) && lasts(ino))?;
        let head = if node.inode.is_directory() {
            let exact = self.dirs.get(&ino).and_then(|dir| dir.head);
            Some(exact.or_else(|| {
                node.brief
                    .filter(|(_, until)| now < *until)
                    .map(|(head, _)| head)
            })?)
        } else {
            None
        };
        let node = FsNode {
            inode: node.inode.clone(),
            head,
            home: Some(node.home),
        };
        self.uses += 1;
        self.dirs.get_mut(&node.home?)?.used = self.uses;
        Some(node)
    }
    fn list(
        &self,
        lasts: &impl Fn(Ino) -> bool,
        dir: Ino,
        after: u64,
        bytes_max: u32,
    ) -> Option<FsAnswer> {
        let of = self.dirs.get(&dir).filter(|_| lasts(dir))?;
        let is_shown = |ino: Ino| rank_of(ino) == rank_of(dir) || lasts(ino);
        if !of.complete.as_ref().is_some_and(BTreeSet::is_empty) {
            return None;
        }
        let (mut entries, mut bytes, mut last) = (Vec::new(), 0, 0);
        for (hash, name) in of.order.range((after + 1, Name::default())..) {
            // Names with equal hashes stay together.
            if (bytes >= bytes_max as usize || entries.len() >= LISTED_MAX) && *hash != last {
                return Some(FsAnswer::Listed {
                    entries,
                    end: false,
                });
            }
            let ino = of.names.get(name).copied().flatten()?;
            let node = self
                .nodes
                .get(&ino)
                .filter(|node| is_shown(node.home) && is_shown(ino))?;
            let head = if node.inode.is_directory() {
                Some(self.dirs.get(&ino)?.head?)
            } else {
                None
            };
            bytes += 128 + name.as_bytes().len();
            let node = FsNode {
                inode: node.inode.clone(),
                head,
                home: Some(node.home),
            };
            entries.push(FsListed {
                name: name.clone(),
                node,
            });
            last = *hash;
        }
        Some(FsAnswer::Listed { entries, end: true })
    }

    // ── directories that are delegated ──────────────────────────────────────────────────

    /// These are delegated from now on.
    pub fn delegate(&mut self, dirs: &[Ino]) {
        for dir in dirs {
            if let Some(of) = self.dirs.get_mut(dir) {
                of.delegated = true;
            }
        }
    }
    /// This one no longer is.
    pub fn undelegate(&mut self, dir: Ino) {
        if let Some(of) = self.dirs.get_mut(&dir) {
            of.delegated = false;
        }
    }
    /// The attributes of a delegated directory, if they are known.
    pub fn delegated(&self, lasts: &impl Fn(Ino) -> bool, dir: Ino) -> Option<&Inode> {
        self.dirs
            .get(&dir)
            .filter(|of| of.delegated && of.head.is_some() && lasts(dir))?;
        self.nodes
            .get(&dir)
            .filter(|node| lasts(node.home))
            .map(|node| &node.inode)
    }
    /// Whether a name is known not to exist.
    pub fn is_free(&self, dir: Ino, name: &Name) -> bool {
        is_name(name.as_bytes()) && self.knows(dir, name) && self.bound(dir, name).is_none()
    }
    /// The inode of a name, if it is a file with only this name and its attributes are known.
    pub fn file_at(&self, lasts: &impl Fn(Ino) -> bool, dir: Ino, name: &Name) -> Option<&Inode> {
        let node = self
            .nodes
            .get(&self.bound(dir, name)?)
            .filter(|node| node.home == dir && lasts(dir))?;
        Some(&node.inode).filter(|inode| {
            inode.is_file() && inode.links == 1 && rank_of(inode.ino) == rank_of(dir)
        })
    }
    /// This client has created a file there.
    pub fn made_here(&mut self, dir: Ino, name: &Name, inode: &Inode) {
        self.bind(dir, name, Some(inode.ino), true);
        self.nodes.insert(
            inode.ino,
            Node {
                inode: inode.clone(),
                home: dir,
                brief: None,
            },
        );
        if let Some(of) = self.dirs.get_mut(&dir) {
            of.inos.insert(inode.ino);
            self.uses += 1;
            of.used = self.uses;
        }
        self.count_here(dir, inode.ctime, |head| {
            (head.entries, head.files_below) = (head.entries + 1, head.files_below + 1);
        });
        self.make_room();
    }
    /// This client has removed a file there.
    pub fn removed_here(&mut self, dir: Ino, name: &Name, ino: Ino, now: Stamp) {
        self.bind(dir, name, None, true);
        let Some(node) = self.nodes.remove(&ino) else {
            return;
        };
        if let Some(of) = self.dirs.get_mut(&node.home) {
            of.inos.remove(&ino);
        }
        self.count_here(dir, now, |head| {
            head.entries = head.entries.saturating_sub(1);
            head.files_below = head.files_below.saturating_sub(1);
            head.bytes_below = head.bytes_below.saturating_sub(node.inode.size);
        });
    }
    /// Updates the head as the server will.
    fn count_here(&mut self, dir: Ino, now: Stamp, change: impl FnOnce(&mut Head)) {
        if let Some(head) = self.dirs.get_mut(&dir).and_then(|of| of.head.as_mut()) {
            head.mtime = head.mtime.max(now);
            head.change += 1;
            change(head);
        }
        if let Some(node) = self.nodes.get_mut(&dir) {
            node.brief = None;
        }
    }
    /// The server refused what was done there.
    pub fn doubt(&mut self, dir: Ino) {
        self.clear_dir(dir);
    }

    // ── what is learned ─────────────────────────────────────────────────────────────────

    /// The client has a share of these from now on.
    pub fn share(&mut self, dirs: &[Ino]) {
        for dir in dirs {
            self.dirs.entry(*dir).or_default();
        }
    }

    /// The cached state of these is outdated.
    pub fn on_changed(&mut self, inos: &[Ino]) {
        inos.iter().for_each(|ino| self.forget_node(*ino));
    }

    /// The server has answered a call; `keep`: the answer may be cached.
    pub fn learn(&mut self, now: Time, call: &FsCall, answer: &FsAnswer, keep: bool) {
        self.learned(now, call, answer, keep);
        self.make_room();
    }
    /// The same for a call that the cache above made and that `changed` these: it knows the effect.
    pub fn learn_own(
        &mut self,
        now: Time,
        (call, changed): (&FsCall, &[Ino]),
        answer: &FsAnswer,
        keep: bool,
    ) {
        let before = self.gone.len();
        self.on_changed(changed);
        self.learned(now, call, answer, keep);
        self.gone.truncate(before);
        self.make_room();
    }
    fn learned(&mut self, now: Time, call: &FsCall, answer: &FsAnswer, keep: bool) {
        if let FsCall::StatLite { .. } = call {
            // The cached state is newer, or as new.
            return;
        }
        if let FsAnswer::Failed { errno } = answer {
            // As far as is known, nothing has changed.
            if let FsCall::Lookup { dir, name } = call {
                self.bind(*dir, name, None, keep && *errno == 2);
            }
            return;
        }
        match call {
            FsCall::Lookup { dir, name } => {
                if let Some(ino) = found(answer) {
                    self.bind(*dir, name, Some(ino), keep);
                }
            }
            // Its directory has not changed.
            call if call.is_unnamed() => {}
            FsCall::Make {
                dir, name, kind, ..
            } => {
                if let Some(ino) = found(answer) {
                    self.bind(*dir, name, Some(ino), keep);
                }
                if let FsAnswer::Node { node, made } = answer {
                    if *made {
                        self.changed(*dir);
                    }
                    if *made
                        && keep
                        && matches!(kind, FileKind::Directory {})
                        && let Some(of) = self.dirs.get_mut(&node.inode.ino)
                    {
                        of.complete = Some(BTreeSet::new());
                    }
                }
            }
            FsCall::Link { ino, dir, name } => {
                self.bind(*dir, name, Some(*ino), keep);
                self.changed(*dir);
            }
            FsCall::Unlink { dir, name, .. } => {
                let before = self.bind(*dir, name, None, keep);
                self.changed(*dir);
                if let Some(ino) = before {
                    self.forget_node(ino);
                    self.end(ino);
                }
                if let FsAnswer::Node { node, .. } = answer {
                    self.forget_node(node.inode.ino);
                    self.end(node.inode.ino);
                }
                return;
            }
            // Another directory has replaced it.
            FsCall::Pin { dir, name, .. } => {
                let before = self.bind(*dir, name, None, false);
                self.changed(*dir);
                if let Some(ino) = before {
                    self.forget_node(ino);
                    self.end(ino);
                }
            }
            FsCall::Rename {
                dir,
                name,
                to_dir,
                to_name,
                flags,
            } => {
                let (moved, other) = (self.bound(*dir, name), self.bound(*to_dir, to_name));
                let exchange = flags & rename_flag::EXCHANGE != 0;
                // Two names of one file: nothing happens, and both stay. An unknown name may be the
                // second one.
                if moved.is_none() || moved == other || !self.knows(*to_dir, to_name) {
                    self.bind(*dir, name, None, false);
                    self.bind(*to_dir, to_name, None, false);
                } else {
                    let back = other.filter(|_| exchange);
                    self.bind(*dir, name, back, keep && exchange == back.is_some());
                    self.bind(*to_dir, to_name, moved, keep);
                }
                self.changed(*dir);
                self.changed(*to_dir);
                moved
                    .into_iter()
                    .chain(other)
                    .for_each(|ino| self.forget_node(ino));
                if let Some(ino) = other.filter(|_| !exchange) {
                    self.end(ino);
                }
            }
            FsCall::Set { ino, .. }
            | FsCall::SetXattr { ino, .. }
            | FsCall::RemoveXattr { ino, .. }
            | FsCall::Wrote { ino, .. }
            | FsCall::Close { ino, .. }
                if !keep || matches!(answer, FsAnswer::Done {}) && call_changes(call) =>
            {
                self.forget_node(*ino);
            }
            _ => {}
        }
        match answer {
            FsAnswer::Node { node, .. } => self.keep(now, node, keep),
            FsAnswer::Listed { entries, end } => {
                if let FsCall::List { dir, after, .. } = call {
                    self.listed(now, *dir, *after, entries, *end, keep);
                }
            }
            FsAnswer::ListedPartly {
                entries, elsewhere, ..
            } => {
                if let FsCall::List { dir, after, .. } = call {
                    self.listed_partly(now, (*dir, *after), entries, elsewhere, keep);
                }
            }
            _ => {}
        }
    }

    fn listed_entries(
        &mut self,
        now: Time,
        dir: Ino,
        after: u64,
        entries: &[FsListed],
        keep: bool,
    ) {
        // Only a caller that lists sees a directory's contents from a moment ago.
        let is_ahead = self
            .dirs
            .get(&dir)
            .is_some_and(|of| of.ahead.is_under_way(after));
        for listed in entries {
            self.bind(dir, &listed.name, Some(listed.node.inode.ino), keep);
            self.keep(now, &listed.node, keep);
            if !is_ahead
                && let (Some(head), Some(node)) =
                    (listed.node.head, self.nodes.get_mut(&listed.node.inode.ino))
            {
                node.brief = Some((head, now + BRIEF));
            }
        }
    }
    /// Some listed inodes must still be requested: their names are known, but the listing is
    /// incomplete.
    fn listed_partly(
        &mut self,
        now: Time,
        (dir, after): (Ino, u64),
        entries: &[FsListed],
        others: &[FsElsewhere],
        keep: bool,
    ) {
        self.listed_entries(now, dir, after, entries, keep);
        for FsElsewhere { name, ino, .. } in others {
            self.bind(dir, name, Some(*ino), keep);
        }
        if let Some(of) = self.dirs.get_mut(&dir) {
            of.listing = None;
        }
    }
    fn listed(
        &mut self,
        now: Time,
        dir: Ino,
        after: u64,
        entries: &[FsListed],
        end: bool,
        keep: bool,
    ) {
        self.listed_entries(now, dir, after, entries, keep);
        let Some(of) = self.dirs.get_mut(&dir) else {
            return;
        };
        if after == 0 {
            of.listing = Some(0);
        }
        let follows = keep && of.listing == Some(after);
        of.listing = follows.then(|| entries.last().map_or(after, |last| name_hash(&last.name)));
        if end && follows {
            of.listing = None;
            of.complete = Some(BTreeSet::new());
        }
    }

    /// Sets a name's inode; returns the former one. If it must not be cached, the name is dropped.
    fn bind(&mut self, dir: Ino, name: &Name, ino: Option<Ino>, keep: bool) -> Option<Ino> {
        let of = self.dirs.get_mut(&dir)?;
        let key = (name_hash(name), name.clone());
        if !keep {
            let before = of.names.remove(name);
            self.names -= usize::from(before.is_some());
            of.order.remove(&key);
            of.listing = None;
            if let Some(holes) = &mut of.complete {
                holes.insert(name.clone());
            }
            return before.flatten();
        }
        let before = of.names.insert(name.clone(), ino);
        self.names += usize::from(before.is_none());
        if let Some(holes) = &mut of.complete {
            holes.remove(name);
        }
        if ino.is_some() {
            of.order.insert(key);
        } else {
            of.order.remove(&key);
        }
        before.flatten()
    }
    /// The directory of an inode, as far as is known.
    pub fn home(&self, ino: Ino) -> Option<Ino> {
        self.nodes.get(&ino).map(|node| node.home)
    }
    fn bound(&self, dir: Ino, name: &Name) -> Option<Ino> {
        self.dirs.get(&dir)?.names.get(name).copied().flatten()
    }
    /// Whether it is known what a name refers to, if anything.
    fn knows(&self, dir: Ino, name: &Name) -> bool {
        self.dirs.get(&dir).is_some_and(|of| of.knows(name))
    }
    /// An entry was added or removed.
    fn changed(&mut self, dir: Ino) {
        if let Some(of) = self.dirs.get_mut(&dir) {
            of.head = None;
        }
        if let Some(node) = self.nodes.get_mut(&dir) {
            node.brief = None;
            self.gone.push(dir);
        }
    }
    /// A directory is removed.
    fn end(&mut self, dir: Ino) {
        self.clear_dir(dir);
        if self.dirs.remove(&dir).is_some() {
            self.gone.push(dir);
        }
    }

    fn keep(&mut self, now: Time, node: &FsNode, keep: bool) {
        let ino = node.inode.ino;
        let home = node
            .home
            .filter(|home| keep && self.dirs.contains_key(home));
        let mut is_same = true;
        if let (Some(of), Some(head)) = (self.dirs.get_mut(&ino).filter(|_| keep), node.head) {
            is_same = of.head.replace(head) == Some(head);
        }
        let Some(home) = home else {
            return self.forget_node(ino);
        };
        let before = self.nodes.get(&ino);
        let brief = before
            .and_then(|before| before.brief)
            .filter(|(_, until)| now < *until);
        is_same &= before.is_some_and(|before| before.inode == node.inode);
        let gone = self.gone.len();
        self.forget_node(ino);
        if is_same {
            self.gone.truncate(gone);
        }
        self.nodes.insert(
            ino,
            Node {
                inode: node.inode.clone(),
                home,
                brief,
            },
        );
        self.dirs
            .get_mut(&home)
            .expect("just seen")
            .inos
            .insert(ino);
    }
    fn forget_node(&mut self, ino: Ino) {
        let Some(node) = self.nodes.remove(&ino) else {
            return;
        };
        self.gone.push(ino);
        if let Some(home) = self.dirs.get_mut(&node.home) {
            home.inos.remove(&ino);
        }
    }

    // ── what is looked up next ──────────────────────────────────────────────────────────

    /// A server has answered a look-up: returns a request for names that are likely to be looked up
    /// next.
    pub fn looked_up(&mut self, dir: Ino, how: LookAhead) -> Option<FsCall> {
        let of = self.dirs.get_mut(&dir).filter(|of| of.complete.is_none())?;
        let (after, bytes_max) = of.ahead.looked_up(how, self.max as u64)?;
        Some(FsCall::List {
            dir,
            after,
            bytes_max,
        })
    }
    /// The result of that request.
    pub fn listed_ahead(&mut self, dir: Ino, answer: &FsAnswer) {
        let last = match answer {
            FsAnswer::Listed {
                entries,
                end: false,
            } => entries.last().map(|last| name_hash(&last.name)),
            FsAnswer::ListedPartly {
                entries,
                elsewhere,
                end: false,
            } => last_listed(entries, elsewhere),
            _ => None,
        };
        if let Some(of) = self.dirs.get_mut(&dir) {
            of.ahead.listed(last);
        }
    }

    // ── what is forgotten ───────────────────────────────────────────────────────────────

    /// A name must be looked up again.
    pub fn forget_name(&mut self, dir: Ino, name: &Name) {
        self.bind(dir, name, None, false);
    }
    /// Another client has changed something.
    pub fn forget(&mut self, item: &FsStale) {
        match item {
            FsStale::Name { dir, name } => {
                if let Some(ino) = self.bind(*dir, name, None, false) {
                    self.forget_node(ino);
                }
                self.changed(*dir);
            }
            FsStale::Node { ino } => self.forget_node(*ino),
            FsStale::Share { dir } => self.end(*dir),
        }
    }
    /// Drops everything cached under a share; the share stays.
    fn clear_dir(&mut self, dir: Ino) {
        let Some(of) = self.dirs.get_mut(&dir) else {
            return;
        };
        let Dir { names, inos, .. } = std::mem::take(of);
        self.names -= names.len();
        self.gone.push(dir);
        for ino in inos {
            self.nodes.remove(&ino);
            self.gone.push(ino);
        }
    }
    /// Evicts what was not used for long, if there is too much.
    fn make_room(&mut self) {
        if self.names + self.nodes.len() <= self.max {
            return;
        }
        let mut all: Vec<(u64, Ino)> = self
            .dirs
            .iter()
            .map(|(ino, dir)| (dir.used, *ino))
            .collect();
        all.sort_unstable();
        for (_, dir) in all {
            if self.names + self.nodes.len() <= self.max - self.max / 10 {
                return;
            }
            let of = &self.dirs[&dir];
            let is_most = of.names.len() + of.inos.len() > self.max / 2;
            self.clear_dir(dir);
            if let Some(of) = self.dirs.get_mut(&dir).filter(|_| is_most) {
                // It would be listed again, and evicted again.
                of.ahead.end();
            }
        }
    }

    /// Asserts the module head's invariants.
    #[cfg(test)]
    pub fn check(&self) {
        let names: usize = self.dirs.values().map(|dir| dir.names.len()).sum();
        let inos: usize = self.dirs.values().map(|dir| dir.inos.len()).sum();
        assert_eq!((names, inos), (self.names, self.nodes.len()));
        for (ino, node) in &self.nodes {
            assert!(self.dirs[&node.home].inos.contains(ino), "{ino}");
        }
        for dir in self.dirs.values() {
            let order: BTreeSet<&Name> = dir.order.iter().map(|(_, name)| name).collect();
            let bound = dir
                .names
                .iter()
                .filter(|(_, ino)| ino.is_some())
                .map(|(name, _)| name);
            assert!(order.into_iter().eq(bound));
        }
        assert!(self.names + self.nodes.len() <= self.max);
    }
}

/// The hash of a page's last name, including inodes of other ranks.
pub(crate) fn last_listed(entries: &[FsListed], elsewhere: &[FsElsewhere]) -> Option<u64> {
    let names = entries.iter().map(|listed| &listed.name);
    names
        .chain(elsewhere.iter().map(|other| &other.name))
        .map(name_hash)
        .max()
}
/// The inode found by a look-up.
const fn found(answer: &FsAnswer) -> Option<Ino> {
    match answer {
        FsAnswer::Node { node, .. } => Some(node.inode.ino),
        FsAnswer::Elsewhere { ino, .. } => Some(*ino),
        _ => None,
    }
}

/// Whether a call that was answered without attributes may have changed some.
fn call_changes(call: &FsCall) -> bool {
    !matches!(call, FsCall::Close { mtime, .. } if *mtime == nacre_wire::fs::Stamp::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use nacre_wire::fs::Stamp;

    const DIR: Ino = Ino::ROOT;
    const NOW: Time = Time(1);

    fn inode(ino: u64, kind: FileKind) -> Inode {
        Inode::new(Ino(ino), kind, 0o644, (1, 2), Stamp(3))
    }
    fn node(ino: u64, kind: FileKind) -> FsNode {
        let inode = inode(ino, kind);
        FsNode {
            head: inode.is_directory().then(Head::default),
            inode,
            home: Some(DIR),
        }
    }
    fn file(ino: u64) -> FsAnswer {
        FsAnswer::Node {
            node: node(ino, FileKind::File {}),
            made: false,
        }
    }
    fn lookup(name: &str) -> FsCall {
        FsCall::Lookup {
            dir: DIR,
            name: name.into(),
        }
    }
    fn make(dir: Ino, name: &str, kind: FileKind) -> FsCall {
        let (name, target) = (Name::from(name), Bytes::new());
        FsCall::Make {
            dir,
            name,
            kind,
            mode: 0,
            umask: 0,
            uid: 0,
            gid: 0,
            target,
            device: 0,
            exclusive: true,
            open: false,
            write: false,
        }
    }
    fn listing(names: &[(&str, u64)]) -> FsAnswer {
        let listed = |(name, ino): &(&str, u64)| FsListed {
            name: (*name).into(),
            node: node(*ino, FileKind::File {}),
        };
        let mut entries: Vec<FsListed> = names.iter().map(listed).collect();
        entries.sort_by_key(|listed| name_hash(&listed.name));
        FsAnswer::Listed { entries, end: true }
    }
    const LIST: FsCall = FsCall::List {
        dir: DIR,
        after: 0,
        bytes_max: 1000,
    };
    const GONE: Option<FsAnswer> = Some(FsAnswer::Failed { errno: 2 });

    fn lasts(_: Ino) -> bool {
        true
    }
    fn shared() -> Names {
        let mut names = Names::new(100);
        names.share(&[DIR]);
        names
    }

    #[test]
    fn nothing_is_kept_without_a_share_or_if_it_is_not_to_be_kept() {
        let mut names = Names::new(100);
        names.learn(NOW, &lookup("a"), &file(50), true);
        assert_eq!(names.answer(&lasts, NOW, &lookup("a")), None);
        names.share(&[DIR]);
        names.learn(NOW, &lookup("a"), &file(50), false);
        assert_eq!(names.answer(&lasts, NOW, &lookup("a")), None);
        names.learn(NOW, &lookup("a"), &file(50), true);
        assert_eq!(names.answer(&lasts, NOW, &lookup("a")), Some(file(50)));
        assert_eq!(
            names.answer(&lasts, NOW, &FsCall::Stat { ino: Ino(50) }),
            Some(file(50))
        );
        names.learn(NOW, &lookup("b"), &FsAnswer::Failed { errno: 2 }, true);
        assert_eq!(
            (
                names.answer(&lasts, NOW, &lookup("b")),
                names.answer(&lasts, NOW, &lookup("c"))
            ),
            (GONE, None)
        );
        names.check();
        names.clear();
        assert_eq!(names.answer(&lasts, NOW, &lookup("a")), None);
    }

    /// What another client changed is requested again, and only that.
    #[test]
    fn what_is_forgotten_is_asked_for() {
        let mut names = shared();
        names.learn(
            NOW,
            &LIST,
            &listing(&[("a", 50), ("b", 51), ("c", 52)]),
            true,
        );
        let FsAnswer::Listed { entries, end: true } =
            names.answer(&lasts, NOW, &LIST).expect("all of it")
        else {
            panic!()
        };
        assert_eq!(entries.len(), 3);
        assert_eq!(
            names.answer(&lasts, NOW, &lookup("x")),
            GONE,
            "all names are known"
        );
        names.forget(&FsStale::Name {
            dir: DIR,
            name: "x".into(),
        });
        names.forget(&FsStale::Node { ino: Ino(51) });
        for (call, known) in [
            (lookup("a"), true),
            (lookup("b"), false),
            (lookup("x"), false),
            (LIST, false),
        ] {
            assert_eq!(
                names.answer(&lasts, NOW, &call).is_some(),
                known,
                "{call:?}"
            );
        }
        assert_eq!(names.answer(&lasts, NOW, &lookup("y")), GONE);
        assert_eq!(
            names.answer(&lasts, NOW, &lookup(&"y".repeat(256))),
            None,
            "that is no name: the server says so"
        );
        names.learn(NOW, &lookup("x"), &FsAnswer::Failed { errno: 2 }, true);
        names.learn(NOW, &lookup("b"), &file(51), true);
        assert!(
            names.answer(&lasts, NOW, &LIST).is_some(),
            "both are known again"
        );
        names.check();
        names.forget(&FsStale::Share { dir: DIR });
        assert_eq!(names.answer(&lasts, NOW, &lookup("a")), None);
        names.check();
    }

    /// Something was dropped between two pages: the combination of the pages never existed.
    #[test]
    fn a_listing_in_which_something_was_forgotten_is_not_complete() {
        let mut names = shared();
        let FsAnswer::Listed { mut entries, .. } = listing(&[("a", 50), ("b", 51), ("c", 52)])
        else {
            panic!()
        };
        let rest = entries.split_off(1);
        let after = name_hash(&entries[0].name);
        let second = FsCall::List {
            dir: DIR,
            after,
            bytes_max: 1,
        };
        names.learn(
            NOW,
            &LIST,
            &FsAnswer::Listed {
                entries: entries.clone(),
                end: false,
            },
            true,
        );
        names.forget(&FsStale::Name {
            dir: DIR,
            name: "a".into(),
        });
        names.learn(
            NOW,
            &second,
            &FsAnswer::Listed {
                entries: rest.clone(),
                end: true,
            },
            true,
        );
        assert_eq!(
            (
                names.answer(&lasts, NOW, &LIST),
                names.answer(&lasts, NOW, &lookup("x"))
            ),
            (None, None)
        );
        names.learn(
            NOW,
            &LIST,
            &FsAnswer::Listed {
                entries,
                end: false,
            },
            true,
        );
        names.learn(
            NOW,
            &second,
            &FsAnswer::Listed {
                entries: rest,
                end: true,
            },
            true,
        );
        assert!(names.answer(&lasts, NOW, &LIST).is_some());
    }

    #[test]
    fn own_changes_take_the_place_of_what_was_kept() {
        let mut names = shared();
        names.learn(NOW, &LIST, &listing(&[("a", 50), ("b", 51)]), true);
        let new = FsAnswer::Node {
            node: node(60, FileKind::Directory {}),
            made: true,
        };
        names.share(&[Ino(60)]);
        names.learn(NOW, &make(DIR, "new", FileKind::Directory {}), &new, true);
        assert_eq!(
            names.answer(
                &lasts,
                NOW,
                &FsCall::Lookup {
                    dir: Ino(60),
                    name: "x".into()
                }
            ),
            GONE,
            "it is new"
        );
        let rename = FsCall::Rename {
            dir: DIR,
            name: "a".into(),
            to_dir: DIR,
            to_name: "b".into(),
            flags: 0,
        };
        names.on_changed(&[Ino(50), Ino(51)]);
        names.learn(NOW, &rename, &FsAnswer::Done {}, true);
        assert_eq!(names.answer(&lasts, NOW, &lookup("a")), GONE);
        assert_eq!(
            names.answer(&lasts, NOW, &lookup("b")),
            None,
            "its time of change is not known"
        );
        names.learn(NOW, &lookup("b"), &file(50), true);
        assert_eq!(names.answer(&lasts, NOW, &lookup("b")), Some(file(50)));
        let unlink = FsCall::Unlink {
            dir: DIR,
            name: "b".into(),
            directory: false,
        };
        names.learn(NOW, &unlink, &file(50), true);
        assert_eq!(names.answer(&lasts, NOW, &lookup("b")), GONE);
        assert_eq!(
            names.answer(&lasts, NOW, &FsCall::Stat { ino: Ino(50) }),
            None
        );
        names.check();
    }

    /// A rename to an unknown name had no effect, since both were names of one file: the old one
    /// was shown as removed. (Simulated seed 98.)
    #[test]
    fn a_rename_onto_what_is_not_known_says_nothing_of_either_name() {
        let mut names = shared();
        names.learn(NOW, &lookup("a"), &file(50), true);
        let rename = FsCall::Rename {
            dir: DIR,
            name: "a".into(),
            to_dir: DIR,
            to_name: "b".into(),
            flags: 0,
        };
        names.learn(NOW, &rename, &FsAnswer::Done {}, true);
        assert_eq!(
            (
                names.answer(&lasts, NOW, &lookup("a")),
                names.answer(&lasts, NOW, &lookup("b"))
            ),
            (None, None)
        );
        names.check();
    }

    /// A directory's contents are shown without a share of it for a moment after a listing: `ls -l`
    /// asks for them next.
    #[test]
    fn directories_of_a_listing_are_shown_for_a_moment() {
        let mut names = shared();
        let listed = FsListed {
            name: "d".into(),
            node: node(60, FileKind::Directory {}),
        };
        names.learn(
            NOW,
            &LIST,
            &FsAnswer::Listed {
                entries: vec![listed],
                end: true,
            },
            true,
        );
        assert!(names.answer(&lasts, NOW, &lookup("d")).is_some());
        assert!(names.answer(&lasts, NOW + BRIEF, &lookup("d")).is_none());
        names.share(&[Ino(60)]);
        names.learn(
            NOW,
            &lookup("d"),
            &FsAnswer::Node {
                node: node(60, FileKind::Directory {}),
                made: false,
            },
            true,
        );
        assert!(names.answer(&lasts, NOW + BRIEF, &lookup("d")).is_some());
        names.forget(&FsStale::Name {
            dir: Ino(60),
            name: "x".into(),
        });
        assert!(
            names.answer(&lasts, NOW + BRIEF, &lookup("d")).is_none(),
            "its time has changed"
        );
    }

    /// An empty directory was moved to another rank: the name refers to a new one.
    #[test]
    fn what_is_pinned_is_another_directory() {
        let mut names = shared();
        names.share(&[Ino(60)]);
        let shown = FsAnswer::Node {
            node: node(60, FileKind::Directory {}),
            made: false,
        };
        names.learn(NOW, &lookup("d"), &shown, true);
        let inside = FsCall::Lookup {
            dir: Ino(60),
            name: "x".into(),
        };
        names.learn(NOW, &inside, &FsAnswer::Failed { errno: 2 }, true);
        assert!(names.answer(&lasts, NOW, &lookup("d")).is_some());
        let pin = FsCall::Pin {
            dir: DIR,
            name: "d".into(),
            rank: 1,
        };
        names.learn(NOW, &pin, &FsAnswer::Done {}, true);
        for call in [lookup("d"), inside, FsCall::Stat { ino: Ino(60) }] {
            assert_eq!(names.answer(&lasts, NOW, &call), None, "{call:?}");
        }
        names.check();
    }

    /// A directory has names for another rank's inodes. Each rank's part is shown, and dropped,
    /// separately.
    #[test]
    fn names_and_attributes_of_two_ranks_are_kept_side_by_side() {
        let mut names = shared();
        let other = Ino(1 << 48 | 1 << 20);
        let links = Ino::links(Rank(1));
        let kind = FileKind::File {};
        let partly = FsAnswer::ListedPartly {
            entries: vec![FsListed {
                name: "a".into(),
                node: node(50, kind),
            }],
            elsewhere: vec![FsElsewhere {
                name: "x".into(),
                ino: other,
                kind,
            }],
            end: true,
        };
        names.learn(NOW, &LIST, &partly, true);
        assert_eq!(names.elsewhere(&lasts, DIR, &"x".into()), Some(other));
        assert_eq!(
            names.elsewhere(&lasts, DIR, &"a".into()),
            None,
            "its own rank is asked for the name"
        );
        assert_eq!(
            (
                names.answer(&lasts, NOW, &LIST),
                names.answer(&lasts, NOW, &lookup("x"))
            ),
            (None, None)
        );
        names.share(&[links]);
        let mut there = node(other.0, kind);
        there.home = Some(links);
        let there = FsAnswer::Node {
            node: there,
            made: false,
        };
        let learn =
            |names: &mut Names| names.learn(NOW, &FsCall::Stat { ino: other }, &there, true);
        learn(&mut names);
        assert_eq!(names.answer(&lasts, NOW, &lookup("x")), Some(there.clone()));
        assert_eq!(
            names.answer(&lasts, NOW, &lookup("y")),
            None,
            "not all names are known to be"
        );
        for rank in [Rank(0), Rank(1)] {
            let lasts = |ino| rank_of(ino) != rank;
            let is_known = names.answer(&lasts, NOW, &lookup("a")).is_some();
            assert_eq!(
                (is_known, names.has(&lasts, other)),
                (rank == Rank(1), rank == Rank(0))
            );
            assert_eq!(
                names.answer(&lasts, NOW, &lookup("x")),
                None,
                "it is of both"
            );
            assert_eq!(
                names.elsewhere(&lasts, DIR, &"x".into()).is_some(),
                rank == Rank(1)
            );
        }
        names.forget_rank(Rank(1));
        names.check();
        assert_eq!(names.elsewhere(&lasts, DIR, &"x".into()), Some(other));
        assert!(names.answer(&lasts, NOW, &lookup("a")).is_some() && !names.has(&lasts, other));
        names.share(&[links]);
        learn(&mut names);
        names.forget_rank(Rank(0));
        names.check();
        assert_eq!(names.elsewhere(&lasts, DIR, &"x".into()), None);
        assert!(names.has(&lasts, other));
    }

    /// A directory of a million was listed ahead, evicted as a whole when there was too much, and
    /// listed ahead again: each look-up paid for 32 entries that were evicted before they were
    /// looked up.
    #[test]
    fn a_directory_that_does_not_fit_is_not_listed_ahead_twice() {
        let (mut names, how) = (
            Names::new(40),
            LookAhead {
                per_lookup: 8,
                page_min: 8,
            },
        );
        names.share(&[DIR]);
        let mut pages = 0;
        for n in 0..200 {
            names.learn(NOW, &lookup(&n.to_string()), &file(5000 + n), true);
            if names.looked_up(DIR, how).is_some() {
                let listed = FsListed {
                    name: "some".into(),
                    node: node(9000, FileKind::File {}),
                };
                names.listed_ahead(
                    DIR,
                    &FsAnswer::Listed {
                        entries: vec![listed],
                        end: false,
                    },
                );
                pages += 1;
            }
            names.check();
        }
        assert!(
            pages <= 5,
            "{pages} pages of 8 in a directory of which 20 are kept"
        );
    }

    #[test]
    fn no_more_is_kept_than_was_set() {
        let mut names = Names::new(40);
        for dir in 0..30 {
            names.share(&[Ino(1000 + dir)]);
            for n in 0..4 {
                let ino = 5000 + dir * 10 + n;
                let mut node = node(ino, FileKind::File {});
                node.home = Some(Ino(1000 + dir));
                let call = FsCall::Lookup {
                    dir: Ino(1000 + dir),
                    name: Name::from(&*n.to_string()),
                };
                names.learn(NOW, &call, &FsAnswer::Node { node, made: false }, true);
                names.check();
            }
            let used = FsCall::Lookup {
                dir: Ino(1000),
                name: "0".into(),
            };
            assert!(
                names.answer(&lasts, NOW, &used).is_some(),
                "what is used stays"
            );
        }
    }
}
