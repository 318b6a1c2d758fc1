//! What clients were answered, judged.
//!
//! The journal says in which order changes were made. In that order a model of POSIX must answer what the server did;
//! no change may come before one that had been answered when it was sent; and what changes nothing must be
//! true at some moment between its sending and its answer.

use nacre_history::posix::{Kind, Model};
use nacre_mds::journal::{self, Batch};
use nacre_types::{ClientId, Ino};
use nacre_wire::fs::FileKind;
use nacre_wire::msg::fs::{FsAnswer, FsCall, rename_flag};
use std::collections::{BTreeMap, BTreeSet};

/// A request as the network saw it.
#[derive(Debug)]
pub struct Seen {
    pub call: FsCall,
    pub sent: u64,
    /// When its client was answered first, and what.
    pub answered: Option<(u64, FsAnswer)>,
    /// It was told as safe.
    pub safe: bool,
    /// Its session ended before that: it may be lost, or have happened.
    pub evicted: bool,
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Judge {
    pub requests: BTreeMap<(ClientId, u64), Seen>,
    /// Changes in the order of the journal: whose they are, and what was answered.
    order: Vec<((ClientId, u64), FsAnswer)>,
    next: u64,
    evicted: BTreeSet<ClientId>,
    pub batches: u64,
}

/// A call in words of the model, with what it says.
struct World {
    model: Model,
    ids: BTreeMap<Ino, usize>,
}

type Said = Result<Option<usize>, u16>;
const ESTALE: u16 = 116;

impl World {
    fn id(&self, ino: Ino) -> Result<usize, u16> {
        self.ids.get(&ino).copied().ok_or(ESTALE)
    }
    fn name(name: &nacre_types::Name) -> String {
        name.to_string()
    }

    /// What the model says of a call, and does.
    fn perform(&mut self, call: &FsCall) -> Said {
        match call {
            FsCall::Make { dir, name, kind, exclusive, .. } => {
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
                self.model.link(id, dir, &Self::name(name)).map(|()| Some(id))
            }
            FsCall::Unlink { dir, name, directory } => {
                let dir = self.id(*dir)?;
                let result = if *directory {
                    self.model.rmdir(dir, &Self::name(name))
                } else {
                    self.model.unlink(dir, &Self::name(name))
                };
                result.map(|()| None)
            }
            FsCall::Rename { dir, name, to_dir, to_name, flags } => {
                let (from, to) = ((self.id(*dir)?, Self::name(name)), (self.id(*to_dir)?, Self::name(to_name)));
                let (no_replace, exchange) = (flags & rename_flag::NO_REPLACE != 0, flags & rename_flag::EXCHANGE != 0);
                self.model.rename((from.0, &from.1), (to.0, &to.1), no_replace, exchange).map(|()| None)
            }
            FsCall::Set { ino, changes } => {
                let id = self.id(*ino)?;
                match changes.size {
                    Some(size) => self.model.resize(id, size).map(|()| Some(id)),
                    None => Ok(Some(id)),
                }
            }
            FsCall::Wrote { ino, size, .. } | FsCall::Close { ino, size, .. } => {
                let id = self.id(*ino)?;
                let node = &mut self.model.nodes[id];
                node.size = node.size.max(*size);
                Ok(Some(id))
            }
            FsCall::Lookup { dir, name } => self.model.lookup(self.id(*dir)?, &Self::name(name)).map(Some),
            FsCall::Stat { ino } | FsCall::Open { ino } => self.id(*ino).map(Some),
            other => panic!("no program asks {other:?}"),
        }
    }

    /// What a call is about: directories, files, and what its names stand for now.
    fn touches(&self, call: &FsCall) -> BTreeSet<usize> {
        let mut all: BTreeSet<usize> = call.inos().filter_map(|ino| self.id(ino).ok()).collect();
        let named = |dir: &Ino, name: &nacre_types::Name| self.model.lookup(self.id(*dir)?, &Self::name(name));
        match call {
            FsCall::Lookup { dir, name } | FsCall::Make { dir, name, .. } | FsCall::Unlink { dir, name, .. } => {
                all.extend(named(dir, name));
            }
            FsCall::Rename { dir, name, to_dir, to_name, .. } => {
                all.extend(named(dir, name).into_iter().chain(named(to_dir, to_name)));
            }
            _ => {}
        }
        all
    }
    /// What an answer is about.
    fn answered(&self, answer: &FsAnswer) -> BTreeSet<usize> {
        match answer {
            FsAnswer::Node { node, .. } => self.id(node.inode.ino).into_iter().collect(),
            FsAnswer::Listed { entries, .. } => {
                entries.iter().filter_map(|listed| self.id(listed.node.inode.ino).ok()).collect()
            }
            _ => BTreeSet::new(),
        }
    }

    /// Whether the model's answer is the server's.
    fn agrees(&self, said: &Said, call: &FsCall, answer: &FsAnswer) -> bool {
        match (said, answer) {
            // A file that is not in memory is found by its name, as its client has seen it last: if another client has
            // renamed it, it is not found (docs/plan.md, files).
            (_, FsAnswer::Failed { errno: ESTALE }) if call.ino().is_some() => true,
            (Err(errno), FsAnswer::Failed { errno: other }) => {
                // What is gone may be known by its number for a while, or not.
                errno == other || (*other == ESTALE && *errno == 2) || (*errno == ESTALE && *other == 2)
            }
            (Ok(id), FsAnswer::Node { node, .. }) if !matches!(call, FsCall::Unlink { .. }) => id.is_some_and(|id| {
                let model = &self.model.nodes[id];
                let same = self.ids.get(&node.inode.ino).is_none_or(|known| *known == id);
                let is_file = node.inode.is_file();
                same && (model.kind == Kind::File) == is_file
                    && (model.kind == Kind::Directory || model.names == node.inode.links)
                    && (!is_file || model.size == node.inode.size)
            }),
            (Ok(_), FsAnswer::Node { .. } | FsAnswer::Done {}) => true,
            _ => false,
        }
    }

    /// Whether nothing is known for sure of what this is about: it has no name, and may be removed at any time.
    fn is_vague(&self, call: &FsCall) -> bool {
        let nameless = |ino: Ino| self.ids.get(&ino).is_none_or(|id| self.model.nodes[*id].names == 0);
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
    pub fn on_sent(&mut self, now: u64, client: ClientId, number: u64, call: &FsCall) {
        self.requests.entry((client, number)).or_insert_with(|| Seen {
            call: call.clone(),
            sent: now,
            answered: None,
            safe: false,
            evicted: false,
        });
    }
    pub fn on_answered(&mut self, now: u64, client: ClientId, number: u64, answer: &FsAnswer, safe: bool) {
        if let Some(seen) = self.requests.get_mut(&(client, number)) {
            seen.answered.get_or_insert_with(|| (now, answer.clone()));
            seen.safe |= safe;
        }
    }
    pub fn on_safe(&mut self, client: ClientId, numbers: &[u64]) {
        for number in numbers {
            if let Some(seen) = self.requests.get_mut(&(client, *number)) {
                seen.safe = true;
            }
        }
    }
    /// A client came too late.
    pub fn on_evicted(&mut self, client: ClientId) {
        self.evicted.insert(client);
        for (_, seen) in self.requests.range_mut((client, 0)..=(client, u64::MAX)) {
            seen.evicted |= !seen.safe;
        }
    }
    /// An object of the journal grew.
    pub fn on_append(&mut self, bytes: &[u8]) {
        let mut batches: Vec<Batch> = Vec::new();
        assert!(journal::read(bytes, &mut self.next, &mut batches), "an append is whole, and follows the one before");
        for batch in batches {
            self.batches += 1;
            let answers = batch.answers.into_iter();
            self.order.extend(answers.map(|one| ((one.client, one.reply.number), one.reply.answer)));
        }
    }

    /// Judges; `lives` are the clients that have not died.
    ///
    /// # Panics
    /// With what is wrong.
    pub fn check(&self, lives: &[ClientId]) -> (Model, BTreeMap<Ino, usize>) {
        let mut place = BTreeMap::new();
        for (at, (who, _)) in self.order.iter().enumerate() {
            assert!(place.insert(*who, at).is_none(), "{who:?} was done twice");
        }
        for (who, seen) in &self.requests {
            let changed = matches!(&seen.answered, Some((_, answer)) if !matches!(answer, FsAnswer::Failed { .. }))
                && is_judged(&seen.call, &seen.answered);
            let sure = seen.safe || (lives.contains(&who.0) && !seen.evicted);
            assert!(!(changed && sure) || place.contains_key(who), "{who:?} {seen:?} was answered and is lost");
        }
        // Each change in turn.
        let mut world = World { model: Model::new(), ids: BTreeMap::from([(Ino::ROOT, 0)]) };
        let mut states = vec![(world.model.clone(), world.ids.clone())];
        // By what each touches: when it was sent, and when its client was answered.
        let mut touched: Vec<BTreeSet<usize>> = Vec::new();
        let mut latest = BTreeMap::<usize, (u64, (ClientId, u64))>::new();
        for (who, answer) in &self.order {
            let seen = &self.requests[who];
            let mut touches = world.touches(&seen.call);
            let said = world.perform(&seen.call);
            if let (Ok(Some(id)), FsAnswer::Node { node, made: true }) = (&said, answer) {
                world.ids.insert(node.inode.ino, *id);
            }
            touches.extend(world.answered(answer));
            assert!(world.agrees(&said, &seen.call, answer), "{who:?} {:?}: {answer:?}, but {said:?}", seen.call);
            if let Some((at, told)) = &seen.answered {
                assert!(world.agrees(&said, &seen.call, told), "{who:?} {:?}: was told {told:?}", seen.call);
                for id in &touches {
                    if let Some((sent, other)) = latest.get(id) {
                        assert!(
                            at >= sent,
                            "{who:?} {seen:?} was answered before this was sent, which comes before it: {other:?} {:?}",
                            self.requests[other]
                        );
                    }
                }
            }
            for id in &touches {
                let entry = latest.entry(*id).or_insert((seen.sent, *who));
                if seen.sent > entry.0 {
                    *entry = (seen.sent, *who);
                }
            }
            touched.push(touches);
            states.push((world.model.clone(), world.ids.clone()));
        }
        // What changed nothing.
        for (who, seen) in &self.requests {
            let Some((answered, answer)) = &seen.answered else { continue };
            let sure = seen.safe || (lives.contains(&who.0) && !seen.evicted);
            // One that died or was evicted may have seen what it changed itself, and was lost with it.
            if place.contains_key(who) || !sure || !lives.contains(&who.0) || self.evicted.contains(&who.0) {
                continue;
            }
            let mut touches = world.touches(&seen.call);
            touches.extend(world.answered(answer));
            // What touches nothing of it may have another place in the journal than in time.
            let related = |at: &usize| !touched[*at].is_disjoint(&touches);
            let done = |at: &usize| {
                let change = &self.requests[&self.order[*at].0];
                change.answered.as_ref().is_some_and(|(at, _)| *at < seen.sent)
            };
            let low = (0..self.order.len()).rev().filter(related).find(done).map_or(0, |at| at + 1);
            let begun = |at: &usize| self.requests[&self.order[*at].0].sent > *answered;
            let high = (0..self.order.len()).filter(related).find(begun).unwrap_or(self.order.len());
            let fits = |at: usize| {
                let (model, ids) = states[at].clone();
                let mut world = World { model, ids };
                if let FsCall::List { dir, .. } = &seen.call {
                    return match (world.listed(*dir), answer) {
                        (Ok(entries), FsAnswer::Listed { entries: listed, .. }) => {
                            listed.len() == entries.len()
                                && listed
                                    .iter()
                                    .all(|one| entries.get(&one.name.to_string()) == world.ids.get(&one.node.inode.ino))
                        }
                        (Err(errno), FsAnswer::Failed { errno: other }) => {
                            errno == *other || matches!((errno, other), (2, &ESTALE) | (ESTALE, 2))
                        }
                        _ => false,
                    };
                }
                if world.is_vague(&seen.call) {
                    return true;
                }
                let before = world.model.clone();
                let said = world.perform(&seen.call);
                let changed = world.model != before;
                world.agrees(&said, &seen.call, answer) && (!changed || matches!(answer, FsAnswer::Failed { .. }))
            };
            assert!(
                low > high || (low..=high).any(fits),
                "{who:?} {:?}, sent at {}: {answer:?} at {answered} is true at no moment of {low}..={high}",
                seen.call,
                seen.sent
            );
            assert!(low <= high, "{who:?}: the order of the journal is not that of time");
        }
        (world.model, world.ids)
    }
}

/// Whether success of it is in the journal.
fn is_judged(call: &FsCall, answered: &Option<(u64, FsAnswer)>) -> bool {
    match call {
        FsCall::Flush {}
        | FsCall::Open { .. }
        | FsCall::StatFs {}
        | FsCall::Lookup { .. }
        | FsCall::Stat { .. }
        | FsCall::List { .. } => false,
        // What is there already is opened, or left as it is.
        FsCall::Make { .. } => matches!(answered, Some((_, FsAnswer::Node { made: true, .. }))),
        FsCall::Close { mtime, .. } => *mtime != nacre_wire::fs::Stamp::default(),
        // To its own name: it changes nothing.
        FsCall::Rename { .. } => false,
        _ => true,
    }
}
