//! Judges the answers that callers got: each call spans the time from its beginning to its outcome.
//!
//! ```text
//!  on_begun ─▶ open ── on_sent: it has a number ──▶ requests ── on_append: its position in the journal
//!                └─ on_ended: answered without a request ──▶ alone, or, if it is a change, done ── on_sent ──▶ requests
//! ```
//! The journal has the order in which changes were made. In that order, a POSIX model must give the
//! same answers as the server. Changes that touch nothing in common may have been reordered by a
//! takeover. There must be an order that keeps all other pairs as they are in the journal, and in
//! which no change precedes one that had ended before it began. An answer to a call that changes
//! nothing must be true at some moment between its beginning and its end, in that order, whether or
//! not it caused a request.
//!
//! Not covered: times and owners; sizes of files that programs write to, which the programs judge;
//! answers to clients that died or were evicted.

use super::bounds::Bounds;
use super::programs::is_written;
use super::tops::Top;
use nacre_fs::{Ask, CallId, Given, Outcome};
use nacre_history::posix::{Kind, Model};
use nacre_mds::journal::{self, Batch, Progress};
use nacre_types::{ClientId, Ino};
use nacre_wire::fs::quota::{DirAttr, parse_bound};
use nacre_wire::fs::{Entry, FileKind, Inode, name_hash};
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsNode, rename_flag};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A call as its caller sees it; for a client's own request, as the client sees it.
#[derive(Debug)]
struct Seen {
    call: FsCall,
    begun: u64,
    /// When its outcome was given, and the outcome; `None`: none, or it is unknown whether it was
    /// executed.
    ended: Option<(u64, FsAnswer)>,
    /// Whether it was reported as safe.
    safe: bool,
    /// Its session ended before that: it may be lost or have been executed.
    evicted: bool,
    /// Whether a caller made it; otherwise the client did, to report the size of a written file.
    called: bool,
    /// Whether its client executed it before sending it.
    foretold: bool,
}

/// A call that has not ended.
#[derive(Debug)]
struct Open {
    call: FsCall,
    begun: u64,
    number: Option<u64>,
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Judge {
    open: BTreeMap<(ClientId, CallId), Open>,
    requests: BTreeMap<(ClientId, u64), Seen>,
    /// What requests to create something returned.
    heard: BTreeMap<(ClientId, u64), Ino>,
    /// Calls answered without a request.
    alone: Vec<(ClientId, Seen)>,
    /// Changes of names that their clients made themselves and have not sent.
    done: BTreeMap<ClientId, VecDeque<Seen>>,
    /// The number of those.
    pub here: u64,
    /// Directories that existed before.
    tops: Vec<(String, Ino)>,
    fills: bool,
    /// Changes in the order of the journal: the request and its answer. With several ranks, in the
    /// order in which their journals grew: a change by two ranks is decided when the leader's
    /// journal has it, and what precedes or follows it on the same things does so in the other's
    /// journal too.
    order: Vec<((ClientId, u64), FsAnswer)>,
    /// The next batch of each rank's journal.
    next: BTreeMap<u16, u64>,
    /// Number of changes that several ranks made together.
    pub across: u64,
    /// Sizes of files according to the journal.
    sizes: BTreeMap<Ino, u64>,
    /// When each client was last told that it was evicted.
    evicted: BTreeMap<ClientId, u64>,
    pub batches: u64,
}

impl Seen {
    /// When it began and when it ended.
    fn span(&self) -> (u64, u64) {
        (
            self.begun,
            self.ended.as_ref().map_or(u64::MAX, |(at, _)| *at),
        )
    }
}

/// A call in terms of the model, with its result.
#[derive(Clone)]
struct World {
    model: Model,
    ids: BTreeMap<Ino, usize>,
    /// What the model lacks: permissions, as they were last set.
    modes: BTreeMap<usize, u16>,
    bounds: Bounds,
    /// Whether the cluster is full at times.
    fills: bool,
}

/// Whether it makes the namespace larger.
const fn takes_room(call: &FsCall) -> bool {
    matches!(
        call,
        FsCall::Make { .. } | FsCall::Link { .. } | FsCall::SetXattr { .. } | FsCall::Pin { .. }
    )
}

type Said = Result<Option<usize>, u16>;
const EIO: u16 = 5;
const EXDEV: u16 = 18;
const ENOSPC: u16 = 28;
const EDQUOT: u16 = 122;
const ESTALE: u16 = 116;

impl World {
    fn new(tops: &[(String, Ino)], fills: bool) -> Self {
        let (ids, modes) = (BTreeMap::from([(Ino::ROOT, 0)]), BTreeMap::new());
        let mut world = Self {
            model: Model::new(),
            ids,
            modes,
            bounds: Bounds::default(),
            fills,
        };
        for (name, ino) in tops {
            let id = world
                .model
                .make(0, name, Kind::Directory)
                .expect("it is new");
            world.ids.insert(*ino, id);
            world.bounds.on_made(id, *ino);
        }
        world
    }
    /// Applies a journaled change to the model; returns the model's result.
    fn make(&mut self, call: &FsCall, answer: &FsAnswer) -> Said {
        let before = match call {
            FsCall::Pin { dir, name, .. } | FsCall::Rename { dir, name, .. } => self
                .id(*dir)
                .and_then(|dir| self.model.lookup(dir, &Self::name(name)))
                .ok(),
            _ => None,
        };
        let said = match (call, answer) {
            // The directory is another one from now on.
            (FsCall::Pin { dir, name, .. }, FsAnswer::Node { made: true, .. }) => {
                self.id(*dir).and_then(|dir| {
                    let name = Self::name(name);
                    self.model.rmdir(dir, &name)?;
                    self.model.make(dir, &name, Kind::Directory).map(Some)
                })
            }
            _ => self.perform(call),
        };
        if let (Ok(Some(id)), FsAnswer::Node { node, made: true }) = (&said, answer) {
            self.ids.insert(node.inode.ino, *id);
            self.modes.insert(*id, node.inode.mode);
            self.bounds.on_made(*id, node.inode.ino);
        }
        match (call, &said) {
            (FsCall::Pin { .. }, Ok(Some(id))) => before
                .iter()
                .for_each(|before| self.bounds.on_pinned(*before, *id)),
            (FsCall::Link { ino, dir, .. }, Ok(Some(id)))
                if self.model.nodes[*id].names > 1 || ino.rank() != dir.rank() =>
            {
                self.bounds.on_several(*id);
            }
            (FsCall::SetXattr { .. }, _) => self.set_bound(call, &said, u64::MAX),
            (FsCall::Rename { dir, to_dir, .. }, Ok(_)) if dir.rank() != to_dir.rank() => {
                before.iter().for_each(|id| self.bounds.on_several(*id));
            }
            _ => {}
        }
        said
    }
    /// Sets a directory's quota; `since`: when its caller knew.
    fn set_bound(&mut self, call: &FsCall, said: &Said, since: u64) {
        if let FsCall::SetXattr { name, value, .. } = call
            && let (Ok(Some(id)), Some(DirAttr::Max(kind))) =
                (said, DirAttr::parse(name.as_bytes()))
        {
            let max = parse_bound(value).expect("programs set numbers");
            self.bounds.set(&self.model, *id, kind, max, since);
        }
    }
    fn id(&self, ino: Ino) -> Result<usize, u16> {
        self.ids.get(&ino).copied().ok_or(ESTALE)
    }
    fn name(name: &nacre_types::Name) -> String {
        name.to_string()
    }

    /// Executes a call on the model; returns its result.
    fn perform(&mut self, call: &FsCall) -> Said {
        match call {
            FsCall::Make { dir, .. } if call.is_unnamed() => {
                self.model.make_unnamed(self.id(*dir)?).map(Some)
            }
            FsCall::Make {
                dir,
                name,
                kind,
                exclusive,
                ..
            } => {
                let kind = match kind {
                    FileKind::File {} => Kind::File,
                    FileKind::Directory {} => Kind::Directory,
                    _ => Kind::Symlink,
                };
                let dir = self.id(*dir)?;
                if !exclusive && let Ok(there) = self.model.lookup(dir, &Self::name(name)) {
                    return Ok(Some(there));
                }
                self.model.make(dir, &Self::name(name), kind).map(Some)
            }
            FsCall::Link { ino, dir, name } => {
                let (id, dir) = (self.id(*ino)?, self.id(*dir)?);
                self.model
                    .link(id, dir, &Self::name(name))
                    .map(|()| Some(id))
            }
            FsCall::Unlink {
                dir,
                name,
                directory,
            } => {
                let dir = self.id(*dir)?;
                let result = if *directory {
                    self.model.rmdir(dir, &Self::name(name))
                } else {
                    self.model.unlink(dir, &Self::name(name))
                };
                result.map(|()| None)
            }
            FsCall::Rename {
                dir,
                name,
                to_dir,
                to_name,
                flags,
            } => {
                let (from, to) = (
                    (self.id(*dir)?, Self::name(name)),
                    (self.id(*to_dir)?, Self::name(to_name)),
                );
                let (no_replace, exchange) = (
                    flags & rename_flag::NO_REPLACE != 0,
                    flags & rename_flag::EXCHANGE != 0,
                );
                self.model
                    .rename((from.0, &from.1), (to.0, &to.1), no_replace, exchange)
                    .map(|()| None)
            }
            FsCall::Set { ino, changes } => {
                let id = self.id(*ino)?;
                if let Some(mode) = changes.mode {
                    self.modes.insert(id, mode);
                }
                match changes.size {
                    Some(size) => self.model.resize(id, size).map(|()| Some(id)),
                    None => Ok(Some(id)),
                }
            }
            FsCall::SetXattr { ino, .. } => {
                let id = self.id(*ino)?;
                match (self.model.nodes[id].gone, self.model.nodes[id].kind) {
                    (true, _) => Err(2),
                    (false, Kind::Directory) => Ok(Some(id)),
                    _ => Err(20),
                }
            }
            FsCall::Pin { dir, name, .. } => {
                let mut after = self.model.clone();
                after
                    .rmdir(self.id(*dir)?, &Self::name(name))
                    .map(|()| None)
            }
            FsCall::Wrote { ino, size, .. }
            | FsCall::Close { ino, size, .. }
            | FsCall::Comply { ino, size, .. } => {
                let id = self.id(*ino)?;
                let node = &mut self.model.nodes[id];
                node.size = node.size.max(*size);
                Ok(Some(id))
            }
            other => self
                .look(other)
                .unwrap_or_else(|| panic!("no program asks {other:?}")),
        }
    }

    /// The same for a call that changes nothing.
    fn look(&self, call: &FsCall) -> Option<Said> {
        match call {
            FsCall::Lookup { dir, name } => Some(
                self.id(*dir)
                    .and_then(|dir| self.model.lookup(dir, &Self::name(name)).map(Some)),
            ),
            FsCall::Stat { ino } | FsCall::StatLite { ino } | FsCall::Open { ino, write: true } => {
                Some(self.id(*ino).map(Some))
            }
            _ => None,
        }
    }

    /// What a call concerns: directories, files, and what its names currently refer to.
    fn touches(&self, call: &FsCall) -> BTreeSet<usize> {
        let mut all: BTreeSet<usize> = call.inos().filter_map(|ino| self.id(ino).ok()).collect();
        let named = |dir: &Ino, name: &nacre_types::Name| {
            self.model.lookup(self.id(*dir)?, &Self::name(name))
        };
        match call {
            FsCall::Lookup { dir, name }
            | FsCall::Make { dir, name, .. }
            | FsCall::Pin { dir, name, .. }
            | FsCall::Unlink { dir, name, .. } => {
                all.extend(named(dir, name));
            }
            FsCall::Rename {
                dir,
                name,
                to_dir,
                to_name,
                ..
            } => {
                let moved = named(dir, name)
                    .ok()
                    .filter(|id| !self.is_moved_unasked(*id, *dir));
                all.extend(moved.into_iter().chain(named(to_dir, to_name)));
            }
            _ => {}
        }
        all
    }
    /// Whether it belongs to another rank than a directory that contains a name of it.
    fn is_of_other_rank(&self, id: usize, dir: Ino) -> bool {
        let ino = self
            .ids
            .iter()
            .find(|(_, of)| **of == id)
            .map(|(ino, _)| *ino);
        ino.is_some_and(|ino| ino.rank() != dir.rank())
    }
    /// Whether its name can be moved in a directory without asking its rank: for a file that
    /// changes nothing. Changes by the file's rank may become safe before the move, although they
    /// began after the move was answered. (Simulated seed 266 of e4226904.)
    fn is_moved_unasked(&self, id: usize, dir: Ino) -> bool {
        self.model.nodes[id].kind != Kind::Directory && self.is_of_other_rank(id, dir)
    }
    /// What an answer concerns.
    fn answered(&self, answer: &FsAnswer) -> BTreeSet<usize> {
        match answer {
            FsAnswer::Node { node, .. } => self.id(node.inode.ino).into_iter().collect(),
            FsAnswer::Listed { entries, .. } => entries
                .iter()
                .filter_map(|listed| self.id(listed.node.inode.ino).ok())
                .collect(),
            _ => BTreeSet::new(),
        }
    }

    /// Whether a call that changed nothing may get this answer now.
    fn fits(&self, call: &FsCall, answer: &FsAnswer) -> bool {
        if let FsCall::List { dir, .. } = call {
            return match (self.listed(*dir), answer) {
                (
                    Ok(entries),
                    FsAnswer::Listed {
                        entries: listed,
                        end,
                    },
                ) => {
                    // A page covers only the names up to its last.
                    let last = listed
                        .iter()
                        .map(|one| name_hash(&one.name))
                        .max()
                        .unwrap_or(0);
                    let is_behind = |name: &str| !end && name_hash(&name.into()) > last;
                    let names: BTreeSet<String> =
                        listed.iter().map(|one| one.name.to_string()).collect();
                    // Inodes of other ranks are read later, and may be gone by then.
                    let may_lack =
                        |name: &String, id| self.is_of_other_rank(id, *dir) || is_behind(name);
                    entries
                        .iter()
                        .all(|(name, id)| names.contains(name) || may_lack(name, *id))
                        && listed.iter().all(|one| {
                            entries.get(&one.name.to_string()) == self.ids.get(&one.node.inode.ino)
                        })
                }
                (Err(errno), FsAnswer::Failed { errno: other }) => {
                    errno == *other || matches!((errno, other), (2, &ESTALE) | (ESTALE, 2))
                }
                _ => false,
            };
        }
        if self.is_vague(call) {
            return true;
        }
        let mut world = self.clone();
        let said = world.perform(call);
        world.told(&said, call, answer)
            && (world.model == self.model || matches!(answer, FsAnswer::Failed { .. }))
    }
    /// Whether the model's result is what a caller was told.
    fn told(&self, said: &Said, call: &FsCall, answer: &FsAnswer) -> bool {
        let mut answer = answer.clone();
        if let (Ok(Some(id)), FsAnswer::Node { node, .. }) = (said, &mut answer)
            && is_written(&node.inode)
        {
            // Its client may know more than the server does.
            node.inode.size = self.model.nodes[*id].size;
        }
        self.agrees(said, call, &answer)
    }
    /// Whether the model's result is the server's.
    fn agrees(&self, said: &Said, call: &FsCall, answer: &FsAnswer) -> bool {
        match (said, answer) {
            // A file that is not in memory is looked up by the name that its client saw last: if
            // another client has renamed it, it is not found (docs/plan.md, files).
            (_, FsAnswer::Failed { errno: ESTALE }) if call.ino().is_some() => true,
            (_, FsAnswer::Failed { errno: ENOSPC }) if self.fills && takes_room(call) => true,
            (_, FsAnswer::Failed { errno: EDQUOT }) if self.may_be_refused(call) => true,
            // Directories stay in their rank's part of the tree.
            (_, FsAnswer::Failed { errno: EXDEV }) if self.may_be_across(call) => true,
            // It already belongs to that rank.
            (Err(39), FsAnswer::Done {}) if matches!(call, FsCall::Pin { .. }) => true,
            (Err(errno), FsAnswer::Failed { errno: other }) => {
                // A removed inode may be known by its number for a while, or not.
                errno == other
                    || (*other == ESTALE && *errno == 2)
                    || (*errno == ESTALE && *other == 2)
            }
            (Ok(id), FsAnswer::Node { node, .. }) if !matches!(call, FsCall::Unlink { .. }) => id
                .is_some_and(|id| {
                    let model = &self.model.nodes[id];
                    let same = self
                        .ids
                        .get(&node.inode.ino)
                        .is_none_or(|known| *known == id);
                    if let FsCall::Lookup { dir, .. } | FsCall::Make { dir, .. } = call
                        && dir.rank() != node.inode.ino.rank()
                    {
                        // Another rank reports later what the name referred to.
                        return same;
                    }
                    let is_file = node.inode.is_file();
                    same && (model.kind == Kind::File) == is_file
                        && self
                            .modes
                            .get(&id)
                            .is_none_or(|mode| *mode == node.inode.mode)
                        && (model.kind == Kind::Directory || model.names == node.inode.links)
                        && (!is_file || model.size == node.inode.size)
                }),
            (Ok(_), FsAnswer::Node { .. } | FsAnswer::Done {}) => true,
            _ => false,
        }
    }

    /// Whether a quota may have caused a refusal: one applies where this adds something.
    fn may_be_refused(&self, call: &FsCall) -> bool {
        let has = |dir: &Ino| {
            self.id(*dir)
                .is_ok_and(|dir| self.bounds.has(&self.model, dir))
        };
        match call {
            FsCall::Make { dir, .. } | FsCall::Link { dir, .. } => has(dir),
            FsCall::Rename {
                dir, to_dir, flags, ..
            } => has(to_dir) || (flags & rename_flag::EXCHANGE != 0 && has(dir)),
            FsCall::Set { ino, .. } | FsCall::Wrote { ino, .. } => {
                let holds = |node: &nacre_history::posix::Node| {
                    node.entries.values().any(|id| Ok(*id) == self.id(*ino))
                };
                (0..self.model.nodes.len())
                    .any(|dir| holds(&self.model.nodes[dir]) && self.bounds.has(&self.model, dir))
            }
            _ => false,
        }
    }
    /// Whether a directory would move to another part of the tree, or already belongs to another
    /// rank.
    fn may_be_across(&self, call: &FsCall) -> bool {
        let is_directory = |dir: &Ino, name: &nacre_types::Name| {
            let id = self
                .id(*dir)
                .and_then(|dir| self.model.lookup(dir, &Self::name(name)));
            id.is_ok_and(|id| self.model.nodes[id].kind == Kind::Directory)
        };
        match call {
            FsCall::Pin { .. } => true,
            FsCall::Rename {
                dir,
                name,
                to_dir,
                to_name,
                flags,
            } => {
                let is_exchange = flags & rename_flag::EXCHANGE != 0 && dir.rank() != to_dir.rank();
                is_exchange || is_directory(dir, name) || is_directory(to_dir, to_name)
            }
            _ => false,
        }
    }
    /// Whether nothing is certain about what it concerns: an inode without a name, which may be
    /// removed at any time.
    fn is_vague(&self, call: &FsCall) -> bool {
        let nameless = |ino: Ino| {
            self.ids
                .get(&ino)
                .is_none_or(|id| self.model.nodes[*id].names == 0)
        };
        call.ino().is_some_and(nameless)
    }

    fn listed(&self, dir: Ino) -> Result<BTreeMap<String, usize>, u16> {
        let id = self.id(dir)?;
        let node = &self.model.nodes[id];
        match (node.gone, node.kind) {
            (true, _) => Err(2),
            (false, Kind::Directory) => Ok(node.entries.clone()),
            _ => Err(20),
        }
    }
}

impl Judge {
    /// `fills`: the cluster is full at times.
    pub fn new(tops: &[Top], fills: bool) -> Self {
        let tops = tops.iter().filter(|top| top.ino != Ino::ROOT);
        Self {
            tops: tops.map(|top| (top.name.clone(), top.ino)).collect(),
            fills,
            ..Self::default()
        }
    }
    /// A caller begins a call; calls about data are not judged here.
    pub fn on_begun(&mut self, now: u64, client: ClientId, id: CallId, ask: &Ask) {
        if let Ask::Names(call) = ask {
            self.open.insert(
                (client, id),
                Open {
                    call: call.clone(),
                    begun: now,
                    number: None,
                },
            );
        }
    }
    /// A caller gets its call's outcome. To be called before [`Self::on_sent`] of the same turn.
    pub fn on_ended(&mut self, now: u64, client: ClientId, id: CallId, outcome: &Outcome) {
        let Some(Open {
            call,
            begun,
            number,
        }) = self.open.remove(&(client, id))
        else {
            return;
        };
        let told = match outcome {
            // Its session ended while it waited.
            Err(EIO) if self.evicted.get(&client) == Some(&now) && call.is_change() => None,
            Err(errno) => Some((now, FsAnswer::Failed { errno: *errno })),
            Ok(Given::Answer(answer)) => Some((now, answer.clone())),
            Ok(other) => panic!("{call:?} was given {other:?}"),
        };
        match number.or_else(|| self.of_another(client, &call, begun, &told)) {
            Some(number) => {
                self.requests
                    .get_mut(&(client, number))
                    .expect("it was sent")
                    .ended = told
            }
            // Its client answered it itself and sends the request now: the file's rank checks that
            // it is true.
            None if matches!(call, FsCall::Set { .. }) => {}
            None => {
                let changes =
                    is_judged(&call, &told) && matches!(&told, Some((_, FsAnswer::Node { .. })));
                let seen = Seen {
                    call,
                    begun,
                    ended: told,
                    safe: false,
                    evicted: false,
                    called: true,
                    foretold: changes,
                };
                if changes {
                    self.here += 1;
                    self.done.entry(client).or_default().push_back(seen);
                } else {
                    self.alone.push((client, seen));
                }
            }
        }
    }
    /// A request caused by an already answered call may have been attributed to another call with
    /// the same arguments, which was sent elsewhere before and must be resent: that other call then
    /// has no request. (Simulated seed 1226: the call was taken for one that its client executed
    /// itself.)
    fn of_another(
        &mut self,
        client: ClientId,
        call: &FsCall,
        begun: u64,
        told: &Option<(u64, FsAnswer)>,
    ) -> Option<u64> {
        let (FsCall::Make { .. }, Some((_, FsAnswer::Node { node, .. }))) = (call, told) else {
            return None;
        };
        let heard = &self.heard;
        let is_told = |number: &u64| heard.get(&(client, *number)) == Some(&node.inode.ino);
        let mut calls = self
            .open
            .range_mut((client, CallId(0))..=(client, CallId(u64::MAX)));
        let (_, other) = calls
            .find(|(_, open)| open.call == *call && open.number.as_ref().is_some_and(is_told))?;
        let number = other.number.take()?;
        self.requests
            .get_mut(&(client, number))
            .filter(|seen| seen.call == *call)?
            .begun = begun;
        Some(number)
    }
    /// A client makes or repeats a request: the oldest call with the same arguments and without a
    /// request caused it.
    pub fn on_sent(
        &mut self,
        now: u64,
        client: ClientId,
        number: u64,
        (call, foretold): (&FsCall, bool),
    ) {
        if self.requests.contains_key(&(client, number)) {
            return;
        }
        if foretold {
            let all = self.done.entry(client).or_default();
            // What was not sent when its session ended never will be.
            while all
                .pop_front_if(|done| done.evicted && done.call != *call)
                .is_some()
            {}
            let done = all.pop_front().expect("its client did it itself");
            assert_eq!(done.call, *call, "in the order in which they were done");
            self.requests.insert((client, number), done);
            return;
        }
        let calls = self
            .open
            .range_mut((client, CallId(0))..=(client, CallId(u64::MAX)));
        let mut calls = calls.filter(|(_, open)| open.number.is_none() && is_for(call, &open.call));
        let begun = calls.next().map(|(_, open)| {
            open.number = Some(number);
            open.begun
        });
        let (called, begun) = (begun.is_some(), begun.unwrap_or(now));
        let (call, foretold) = (call.clone(), false);
        let seen = Seen {
            call,
            begun,
            ended: None,
            safe: false,
            evicted: false,
            called,
            foretold,
        };
        self.requests.insert((client, number), seen);
    }
    /// A client receives the answer to a request.
    pub fn on_answered(
        &mut self,
        now: u64,
        client: ClientId,
        number: u64,
        answer: &FsAnswer,
        safe: bool,
    ) {
        if let Some(seen) = self.requests.get_mut(&(client, number)) {
            seen.safe |= safe;
            if let (FsCall::Make { .. }, FsAnswer::Node { node, .. }) = (&seen.call, answer) {
                self.heard.insert((client, number), node.inode.ino);
            }
            let is_refused = seen.foretold && matches!(answer, FsAnswer::Failed { .. });
            assert!(
                !is_refused,
                "{client} did {number} {:?} itself: {answer:?}",
                seen.call
            );
            if seen.called && matches!(answer, FsAnswer::Elsewhere { .. }) {
                // The client continues with another rank, or asks again: that request then belongs
                // to its caller.
                let mut calls = self
                    .open
                    .range_mut((client, CallId(0))..=(client, CallId(u64::MAX)));
                if let Some((_, open)) = calls.find(|(_, open)| open.number == Some(number)) {
                    (open.number, seen.called) = (None, false);
                }
            }
            if !seen.called {
                seen.ended.get_or_insert_with(|| (now, answer.clone()));
            }
        }
    }
    pub fn on_safe(&mut self, client: ClientId, numbers: &[u64]) {
        for number in numbers {
            if let Some(seen) = self.requests.get_mut(&(client, *number)) {
                seen.safe = true;
            }
        }
    }
    /// A client was evicted. To be called before [`Self::on_ended`] of the same turn.
    pub fn on_evicted(&mut self, now: u64, client: ClientId) {
        self.evicted.insert(client, now);
        for (_, seen) in self.requests.range_mut((client, 0)..=(client, u64::MAX)) {
            seen.evicted |= !seen.safe;
        }
        self.done
            .entry(client)
            .or_default()
            .iter_mut()
            .for_each(|seen| seen.evicted = true);
    }
    /// An object of the journal grew.
    pub fn on_append(&mut self, rank: u16, bytes: &[u8]) {
        let mut batches: Vec<Batch> = Vec::new();
        let next = self.next.entry(rank).or_default();
        assert!(
            journal::read(bytes, next, &mut batches),
            "an append is whole, and follows the one before"
        );
        for batch in batches {
            self.batches += 1;
            let is_across = |progress: &&Progress| matches!(progress, Progress::Committed { .. });
            self.across += batch.transactions.iter().filter(is_across).count() as u64;
            let found = self.found_in(&batch);
            let begins = self.order.len();
            let answers = batch.answers.into_iter();
            self.order
                .extend(answers.map(|one| ((one.client, one.reply.number), one.reply.answer)));
            for inode in found {
                let is_later = |(_, answer): &((ClientId, u64), FsAnswer)| {
                    answer
                        .nodes()
                        .any(|node| node.inode.ino == inode.ino && node.inode.change > inode.change)
                };
                let at = self.order[begins..]
                    .iter()
                    .position(is_later)
                    .map_or(self.order.len(), |at| begins + at);
                self.found(inode, at);
            }
        }
    }
    /// Files that became larger without a request: data written by an evicted client was found.
    fn found_in(&mut self, batch: &Batch) -> Vec<Inode> {
        let answers = || {
            batch
                .answers
                .iter()
                .flat_map(|one| one.reply.answer.nodes())
        };
        let mut found = Vec::new();
        for change in &batch.changes {
            if let nacre_mds::change::Change::Set {
                entry: Entry::Inode { inode, .. },
                ..
            } = change
                && inode.is_file()
                && self
                    .sizes
                    .insert(inode.ino, inode.size)
                    .is_some_and(|before| before != inode.size)
                && !answers()
                    .any(|node| node.inode.ino == inode.ino && node.inode.change == inode.change)
            {
                found.push(inode.clone());
            }
        }
        found
    }
    /// Records it as if a client had reported it at that position of the journal.
    fn found(&mut self, inode: Inode, at: usize) {
        let who = (ClientId(0), inode.change << 32 | inode.ino.0 & 0xffff_ffff);
        let call = FsCall::Wrote {
            ino: inode.ino,
            size: inode.size,
            mtime: inode.mtime,
        };
        let seen = Seen {
            call,
            begun: 0,
            ended: None,
            safe: true,
            evicted: false,
            called: false,
            foretold: false,
        };
        self.requests.insert(who, seen);
        let node = FsNode {
            inode,
            head: None,
            home: None,
        };
        self.order
            .insert(at, (who, FsAnswer::Node { node, made: false }));
    }

    /// Judges; `lives` are the clients that have not died.
    ///
    /// # Panics
    /// With the violation.
    pub fn check(&self, lives: &[ClientId]) -> (Model, BTreeMap<Ino, usize>) {
        let mut place = BTreeMap::new();
        for (at, (who, _)) in self.order.iter().enumerate() {
            assert!(place.insert(*who, at).is_none(), "{who:?} was done twice");
        }
        for (who, seen) in &self.requests {
            let changed = matches!(&seen.ended, Some((_, answer)) if !matches!(answer, FsAnswer::Failed { .. }))
                && is_judged(&seen.call, &seen.ended);
            let sure = seen.safe || (lives.contains(&who.0) && !seen.evicted);
            assert!(
                !(changed && sure) || place.contains_key(who),
                "{who:?} {seen:?} was answered and is lost"
            );
        }
        for (client, done) in self
            .done
            .iter()
            .filter(|(client, _)| lives.contains(client))
        {
            assert!(
                done.iter().all(|seen| seen.evicted),
                "{client} did {done:?}, and never said so"
            );
        }
        // Each change in turn.
        let mut world = World::new(&self.tops, self.fills);
        let mut touched: Vec<BTreeSet<usize>> = Vec::new();
        for (who, answer) in &self.order {
            let seen = &self.requests[who];
            let mut touches = world.touches(&seen.call);
            let said = world.make(&seen.call, answer);
            touches.extend(world.answered(answer));
            assert!(
                world.agrees(&said, &seen.call, answer),
                "{who:?} {:?}: {answer:?}, but {said:?}",
                seen.call
            );
            world.set_bound(&seen.call, &said, seen.span().1);
            // Data that was found had been written before its client was evicted.
            let is_found = who.0 == ClientId(0);
            world
                .bounds
                .look(&world.model, if is_found { u64::MAX } else { seen.begun });
            if let Some((_, told)) = &seen.ended {
                assert!(
                    world.told(&said, &seen.call, told),
                    "{who:?} {:?}: was told {told:?}",
                    seen.call
                );
                let is_made = seen.foretold && matches!(seen.call, FsCall::Make { .. });
                let inodes =
                    [told, answer].map(|answer| answer.nodes().next().map(|node| &node.inode));
                assert!(
                    !is_made || inodes[0] == inodes[1],
                    "{who:?} {:?}: {inodes:?}",
                    seen.call
                );
            }
            touched.push(touches);
        }
        world.bounds.check(&world.model);
        // Once more, in an order that also agrees with time.
        let spans = self.order.iter().map(|(who, _)| self.requests[who].span());
        let changes: Vec<Change<'_>> = touched.iter().zip(spans).map(Change::from).collect();
        let order = in_time(&changes).unwrap_or_else(|pair| {
            let [early, behind] = pair.map(|at| {
                (
                    self.order[at].0,
                    &self.requests[&self.order[at].0],
                    &touched[at],
                )
            });
            panic!(
                "{early:?} comes before {behind:?} in the journal, and began when that had ended"
            );
        });
        let order: Vec<_> = order
            .into_iter()
            .map(|at| (&self.order[at], &touched[at]))
            .collect();
        let mut places = BTreeMap::<usize, Vec<usize>>::new();
        for (at, (_, touches)) in order.iter().enumerate() {
            touches
                .iter()
                .for_each(|id| places.entry(*id).or_default().push(at));
        }
        // Calls that changed nothing.
        let mut looks = Vec::new();
        let requests = self
            .requests
            .iter()
            .filter(|(who, seen)| seen.called && !place.contains_key(who));
        let asked = requests.map(|((client, _), seen)| (*client, seen));
        for (who, seen) in asked.chain(self.alone.iter().map(|(client, seen)| (*client, seen))) {
            let Some((ended, answer)) = &seen.ended else {
                continue;
            };
            // A client that died or was evicted may have seen its own changes, which were lost with
            // it.
            if !lives.contains(&who) || self.evicted.contains_key(&who) {
                continue;
            }
            let mut touches = world.touches(&seen.call);
            // For a listing only the names are judged: something may have been created in a listed
            // directory before something else that is not listed yet. (Simulated seed 435.)
            if !matches!(seen.call, FsCall::List { .. }) {
                touches.extend(world.answered(answer));
            }
            // Changes that touch nothing of it may be ordered differently in the journal than in
            // time.
            let related: BTreeSet<usize> = touches
                .iter()
                .filter_map(|id| places.get(id))
                .flatten()
                .copied()
                .collect();
            let done = |at: &usize| {
                let change = &self.requests[&order[*at].0.0];
                change
                    .ended
                    .as_ref()
                    .is_some_and(|(at, _)| *at < seen.begun)
            };
            let low = related
                .iter()
                .rev()
                .find(|at| done(at))
                .map_or(0, |at| at + 1);
            let begun = |at: &usize| self.requests[&order[*at].0.0].begun > *ended;
            let high = related
                .iter()
                .find(|at| begun(at))
                .copied()
                .unwrap_or(order.len());
            looks.push(Look {
                low,
                high,
                who,
                seen,
                answer,
            });
        }
        looks.sort_by_key(|look| std::cmp::Reverse(look.low));
        let (mut again, mut open) = (World::new(&self.tops, self.fills), Vec::<Look<'_>>::new());
        for at in 0..=order.len() {
            if let Some(((who, answer), _)) = at.checked_sub(1).map(|last| order[last]) {
                let call = &self.requests[who].call;
                let said = again.make(call, answer);
                assert!(
                    again.agrees(&said, call, answer),
                    "{who:?} {call:?}: {answer:?}, but in time {said:?}"
                );
            }
            while let Some(look) = looks.pop_if(|look| look.low == at) {
                open.push(look);
            }
            open.retain(
                |Look {
                     low,
                     high,
                     who,
                     seen,
                     answer,
                 }| {
                    let fits = again.fits(&seen.call, answer);
                    assert!(
                        fits || at < *high,
                        "{who:?} {seen:?} is true at no moment of {low}..={high}"
                    );
                    !fits
                },
            );
        }
        (world.model, world.ids)
    }
}

/// A call that changed nothing: its answer must be true after this many changes, or some more.
struct Look<'a> {
    low: usize,
    high: usize,
    who: ClientId,
    seen: &'a Seen,
    answer: &'a FsAnswer,
}

/// Whether a call causes such a request: for a closed file, the client itself reports when it was
/// written.
fn is_for(request: &FsCall, call: &FsCall) -> bool {
    match (request, call) {
        (FsCall::Close { ino, .. }, FsCall::Close { ino: other, .. }) => ino == other,
        _ => request == call,
    }
}

/// Whether its success is recorded in the journal.
fn is_judged(call: &FsCall, ended: &Option<(u64, FsAnswer)>) -> bool {
    match call {
        FsCall::Flush {}
        | FsCall::Alone { .. }
        | FsCall::Open { .. }
        | FsCall::Clients { .. }
        | FsCall::Evict { .. }
        | FsCall::StatFs {}
        | FsCall::Grow { .. }
        | FsCall::Numbers {}
        | FsCall::Usage { .. }
        | FsCall::Lookup { .. }
        | FsCall::Stat { .. }
        | FsCall::StatLite { .. }
        | FsCall::List { .. } => false,
        // An existing one is opened, or left unchanged.
        FsCall::Make { .. } | FsCall::Pin { .. } => {
            matches!(ended, Some((_, FsAnswer::Node { made: true, .. })))
        }
        FsCall::Comply { written: false, .. } => false,
        FsCall::Close { mtime, .. } | FsCall::Comply { mtime, .. } => {
            *mtime != nacre_wire::fs::Stamp::default()
        }
        // A rename to its own name changes nothing.
        FsCall::Rename { .. } => false,
        _ => true,
    }
}

/// A change in the journal: what it touches, and when.
#[derive(Debug)]
struct Change<'a> {
    touches: &'a BTreeSet<usize>,
    begun: u64,
    /// `u64::MAX`: never.
    ended: u64,
}
impl<'a> From<(&'a BTreeSet<usize>, (u64, u64))> for Change<'a> {
    fn from((touches, (begun, ended)): (&'a BTreeSet<usize>, (u64, u64))) -> Self {
        Self {
            touches,
            begun,
            ended,
        }
    }
}

/// An order of the journal's changes in which changes that touch the same things keep the journal's
/// order, and none precedes one that ended before it began.
///
/// # Errors
/// There is no such order: returns a change that is too early in the journal, and one that had
/// ended before it began and comes after it.
fn in_time(changes: &[Change<'_>]) -> Result<Vec<usize>, [usize; 2]> {
    // For each change: the next changes that touch the same things, and how many come before it.
    let (mut next, mut before) = (vec![Vec::new(); changes.len()], vec![0; changes.len()]);
    let mut last = BTreeMap::<usize, usize>::new();
    for (at, change) in changes.iter().enumerate() {
        for id in change.touches {
            if let Some(other) = last.insert(*id, at) {
                next[other].push(at);
                before[at] += 1;
            }
        }
    }
    let mut ready: BTreeSet<usize> = (0..changes.len()).filter(|at| before[*at] == 0).collect();
    let mut ends: BTreeSet<(u64, usize)> = changes
        .iter()
        .enumerate()
        .map(|(at, one)| (one.ended, at))
        .collect();
    let mut order = Vec::new();
    while let Some((first, behind)) = ends.first().copied() {
        let Some(at) = ready.iter().copied().find(|at| changes[*at].begun <= first) else {
            return Err([
                *ready
                    .first()
                    .expect("the first of the rest of the journal is ready"),
                behind,
            ]);
        };
        ready.remove(&at);
        ends.remove(&(changes[at].ended, at));
        order.push(at);
        for other in std::mem::take(&mut next[at]) {
            before[other] -= 1;
            if before[other] == 0 {
                ready.insert(other);
            }
        }
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_wire::fs::{Inode, Stamp};
    use nacre_wire::msg::fs::FsNode;

    fn order(changes: &[(&[usize], u64, u64)]) -> Result<Vec<usize>, [usize; 2]> {
        let touches: Vec<BTreeSet<usize>> = changes
            .iter()
            .map(|(ids, ..)| ids.iter().copied().collect())
            .collect();
        let spans = changes.iter().map(|(_, begun, ended)| (*begun, *ended));
        in_time(
            &touches
                .iter()
                .zip(spans)
                .map(Change::from)
                .collect::<Vec<_>>(),
        )
    }

    /// A client created a name in one directory, was told that a rename to another directory
    /// failed, and only then was a name of that other directory removed. After a takeover, the two
    /// changes got into the journal in the opposite order. Both orders are correct. (Simulated seed
    /// 719.)
    #[test]
    fn changes_of_different_directories_follow_time() {
        assert_eq!(order(&[(&[2], 30, 40), (&[1], 0, 10)]), Ok(vec![1, 0]));
        assert_eq!(
            order(&[(&[2], 5, 40), (&[1], 0, 10)]),
            Ok(vec![0, 1]),
            "at one time: as in the journal"
        );
    }

    #[test]
    fn changes_of_one_directory_follow_the_journal_and_time() {
        assert_eq!(order(&[(&[1], 5, 40), (&[1], 0, 10)]), Ok(vec![0, 1]));
        assert_eq!(order(&[(&[1], 30, 40), (&[1], 0, 10)]), Err([0, 1]));
        assert_eq!(
            order(&[(&[2], 30, 40), (&[1, 2], 0, u64::MAX), (&[1], 0, 10)]),
            Err([0, 2]),
            "by way of a third"
        );
    }

    const ANNA: ClientId = ClientId(1);
    const BERT: ClientId = ClientId(2);
    const INO: Ino = Ino(100);

    fn lookup() -> FsCall {
        FsCall::Lookup {
            dir: Ino::ROOT,
            name: "x".into(),
        }
    }
    fn node() -> FsAnswer {
        let inode = Inode::new(INO, FileKind::File {}, 0o755, (1, 1), Stamp(1));
        FsAnswer::Node {
            node: FsNode {
                inode,
                head: None,
                home: None,
            },
            made: false,
        }
    }
    /// One client has created a file, from 0 to 10.
    fn made() -> Judge {
        let mut judge = Judge::default();
        let FsAnswer::Node { node, .. } = node() else {
            unreachable!("it is one")
        };
        let made = FsAnswer::Node { node, made: true };
        let call = super::super::programs::make(Ino::ROOT, "x".into(), FileKind::File {}, true);
        judge.on_begun(0, ANNA, CallId(1), &Ask::Names(call.clone()));
        judge.on_sent(0, ANNA, 1, (&call, false));
        judge.order.push(((ANNA, 1), made.clone()));
        judge.on_ended(10, ANNA, CallId(1), &Ok(Given::Answer(made)));
        judge
    }
    fn passes(judge: &Judge) -> bool {
        std::panic::catch_unwind(|| drop(judge.check(&[ANNA, BERT]))).is_ok()
    }

    #[test]
    fn what_is_told_without_a_request_must_have_been_true_meanwhile() {
        let told = |begun, ended, outcome: Outcome| {
            let mut judge = made();
            judge.on_begun(begun, BERT, CallId(1), &Ask::Names(lookup()));
            judge.on_ended(ended, BERT, CallId(1), &outcome);
            passes(&judge)
        };
        assert!(
            told(5, 15, Err(2)) && told(5, 15, Ok(Given::Answer(node()))),
            "at one time"
        );
        assert!(told(11, 15, Ok(Given::Answer(node()))));
        assert!(!told(11, 15, Err(2)), "an old cache");
        assert!(!told(11, 15, Err(EIO)), "for no reason");
    }

    #[test]
    fn a_change_that_no_request_made_is_wrong() {
        let mut judge = made();
        let call = FsCall::Unlink {
            dir: Ino::ROOT,
            name: "x".into(),
            directory: false,
        };
        judge.on_begun(20, ANNA, CallId(2), &Ask::Names(call.clone()));
        judge.on_ended(30, ANNA, CallId(2), &Ok(Given::Answer(node())));
        assert!(!passes(&judge));
        let mut judge = made();
        judge.on_begun(20, ANNA, CallId(2), &Ask::Names(call.clone()));
        judge.on_sent(20, ANNA, 2, (&call, false));
        judge.on_ended(30, ANNA, CallId(2), &Ok(Given::Answer(node())));
        assert!(!passes(&judge), "it was sent, and is not in the journal");
        judge.order.push(((ANNA, 2), node()));
        assert!(passes(&judge));
    }

    /// Of two calls with the same arguments, the first is answered from a cache, the second by the
    /// server.
    #[test]
    fn a_request_is_for_a_call_that_still_waits() {
        let mut judge = made();
        for call in [2, 3] {
            judge.on_begun(20, ANNA, CallId(call), &Ask::Names(lookup()));
        }
        judge.on_ended(20, ANNA, CallId(2), &Ok(Given::Answer(node())));
        judge.on_sent(20, ANNA, 2, (&lookup(), false));
        assert_eq!(judge.open[&(ANNA, CallId(3))].number, Some(2));
        judge.on_ended(30, ANNA, CallId(3), &Ok(Given::Answer(node())));
        assert!(passes(&judge) && judge.alone.len() == 1);
    }
}
