//! [`RamStore`]: the store's interface over memory, for tests and the simulator.
//!
//! It keeps two images, like the live and durable bytes of a device:
//!
//! ```text
//!  submit ──▶ applied image (what reads see)
//!     │
//!     └─▶ waiting, in order ──commit──▶ durable image (what survives `crash`)
//! ```
//!
//! Commits happen at `request_commit`, or, with [`Commits::Manual`], on the test's command. Reads
//! are answered at once. Each image applies every transaction separately, so that a difference
//! between the visible and the durable state would be detected.

mod object;

use crate::api::{
    CollectionId, Event, Job, JobDone, ObjectKey, ObjectStore, Op, Read, ReadError, ReadReply,
    StoreFailure, SubmitError, Token, Transaction, Usage,
};
use bytes::Bytes;
use object::{BLOCK, Object};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

/// When transactions commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Commits {
    /// At the next `request_commit`.
    #[default]
    AtKick,
    /// Only by [`RamStore::commit`].
    Manual,
}

/// One state of all collections.
#[derive(Clone, Debug, Default)]
struct Image {
    collections: BTreeMap<CollectionId, BTreeMap<Bytes, Object>>,
    /// The used bytes for `usage`: whole blocks, plus attributes and omap.
    used: u64,
    /// Objects of which a part of a corrupt block was overwritten, since the last check.
    lost: BTreeSet<ObjectKey>,
}

impl Image {
    fn get(&self, key: &ObjectKey) -> Option<&Object> {
        self.collections.get(&key.collection)?.get(&key.key)
    }

    fn take(&mut self, key: &ObjectKey) -> Option<Object> {
        let object = self
            .collections
            .get_mut(&key.collection)?
            .remove(&key.key)?;
        self.used -= object.used();
        Some(object)
    }

    fn put(&mut self, key: &ObjectKey, object: Object) {
        self.used += object.used();
        let collection = self
            .collections
            .get_mut(&key.collection)
            .expect("submit checked that the collection exists");
        if let Some(old) = collection.insert(key.key.clone(), object) {
            self.used -= old.used();
        }
    }

    /// Changes an object, creating it if `create`.
    fn change(&mut self, key: &ObjectKey, create: bool, change: impl FnOnce(&mut Object)) {
        let object = match self.take(key) {
            Some(object) => Some(object),
            None => create.then(Object::default),
        };
        if let Some(mut object) = object {
            change(&mut object);
            if std::mem::take(&mut object.lost) {
                self.lost.insert(key.clone());
            }
            self.put(key, object);
        }
    }

    fn apply(&mut self, op: &Op) -> Result<(), StoreFailure> {
        match op {
            Op::CreateCollection(id) => {
                self.collections.entry(*id).or_default();
            }
            Op::RemoveCollection(id) => {
                if self.collections.get(id).is_some_and(|c| !c.is_empty()) {
                    return Err(StoreFailure::CollectionNotEmpty(*id));
                }
                self.collections.remove(id);
            }
            Op::Touch(key) => self.change(key, true, |_| {}),
            Op::Write {
                object,
                offset,
                data,
            } => self.change(object, true, |o| o.write(*offset, data)),
            Op::Zero {
                object,
                offset,
                length,
            } => self.change(object, true, |o| o.zero(*offset, *length)),
            Op::Truncate { object, size } => self.change(object, true, |o| o.truncate(*size)),
            Op::Remove(key) => drop(self.take(key)),
            Op::SetAttr {
                object,
                name,
                value,
            } => self.change(object, true, |o| {
                o.attrs.insert(name.clone(), value.clone());
            }),
            Op::RemoveAttr { object, name } => self.change(object, false, |o| {
                o.attrs.remove(name);
            }),
            Op::OmapSet { object, entries } => self.change(object, true, |o| {
                for (key, value) in entries {
                    o.omap_set(key.clone(), value.clone());
                }
            }),
            Op::OmapRemove { object, keys } => self.change(object, false, |o| {
                for key in keys {
                    o.omap_remove(key);
                }
            }),
            Op::OmapRemoveRange { object, from, to } => {
                self.change(object, false, |o| o.omap_remove_range(from, to.as_ref()));
            }
            Op::OmapClear(object) => {
                self.change(object, false, |o| o.omap_remove_range(&Bytes::new(), None))
            }
            Op::Clone { from, to } => match self.get(from).cloned() {
                Some(object) if from != to => self.put(to, object),
                Some(_) => {}
                None => drop(self.take(to)),
            },
            Op::CloneRange {
                from,
                to,
                offset,
                length,
                to_offset,
            } => {
                let source = self.get(from).cloned().unwrap_or_default();
                self.change(to, true, |o| {
                    o.clone_range(&source, *offset, *length, *to_offset)
                });
            }
            Op::Rename { from, to } => {
                if from != to {
                    match self.take(from) {
                        Some(object) => self.put(to, object),
                        None => drop(self.take(to)),
                    }
                }
            }
        }
        Ok(())
    }

    fn apply_all(&mut self, transaction: &Transaction) -> Result<(), StoreFailure> {
        transaction.ops.iter().try_for_each(|op| self.apply(op))
    }

    fn answer(&self, read: &Read) -> Result<ReadReply, ReadError> {
        let object = |key: &ObjectKey| self.get(key).ok_or(ReadError::NotFound);
        match read {
            Read::Stat(key) => Ok(ReadReply::Stat(self.get(key).map(Object::stat))),
            Read::Weight(key) => Ok(ReadReply::Weight(
                self.get(key).map_or(0, Object::clone_bytes),
            )),
            Read::Data {
                object: key,
                offset,
                length,
            } => object(key)?.read(*offset, *length).map(ReadReply::Data),
            Read::Extents {
                object: key,
                offset,
                length,
            } => Ok(ReadReply::Extents(object(key)?.extents(*offset, *length))),
            Read::OmapGet { object: key, keys } => Ok(object(key)?.omap_get(keys)),
            Read::Omap {
                object: key,
                from,
                to,
                limit_entries,
                limit_bytes,
            } => Ok(object(key)?.omap_range(from, to.as_ref(), *limit_entries, *limit_bytes)),
            Read::List {
                collection,
                from,
                to,
                limit,
            } => {
                let objects = self
                    .collections
                    .get(collection)
                    .ok_or(ReadError::NotFound)?;
                let end = to.clone().map_or(Bound::Unbounded, Bound::Excluded);
                if to.as_ref().is_some_and(|to| to <= from) {
                    return Ok(ReadReply::List {
                        keys: Vec::new(),
                        more: false,
                    });
                }
                let mut range = objects
                    .range((Bound::Included(from.clone()), end))
                    .map(|(key, _)| key.clone());
                let keys: Vec<Bytes> = range.by_ref().take(*limit).collect();
                Ok(ReadReply::List {
                    keys,
                    more: range.next().is_some(),
                })
            }
        }
    }
}

/// The store's interface over memory. See the module head.
#[derive(Clone, Debug)]
pub struct RamStore {
    applied: Image,
    durable: Image,
    waiting: VecDeque<(Token, Transaction)>,
    events: Vec<Event>,
    commits: Commits,
    /// Uncommitted transactions at the last `request_commit`.
    requested: usize,
    capacity: u64,
    logged_max: u64,
    failed: bool,
    usage: Usage,
}

impl Default for RamStore {
    fn default() -> Self {
        Self::new()
    }
}

impl RamStore {
    /// An empty store that commits at `request_commit` and is never full.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Commits::AtKick, u64::MAX)
    }

    /// An empty store of `capacity` bytes.
    #[must_use]
    pub fn with(commits: Commits, capacity: u64) -> Self {
        Self {
            applied: Image::default(),
            durable: Image::default(),
            waiting: VecDeque::new(),
            events: Vec::new(),
            commits,
            requested: 0,
            capacity,
            logged_max: u64::MAX,
            failed: false,
            usage: Usage::default(),
        }
    }

    /// Accepts at most this many logged bytes in one transaction from now on, like a store with a
    /// small log.
    pub const fn takes(&mut self, logged_bytes_max: u64) {
        self.logged_max = logged_bytes_max;
    }

    /// The number of transactions that are applied but not committed.
    #[must_use]
    pub fn uncommitted(&self) -> usize {
        self.waiting.len()
    }

    /// The number of these at the last `request_commit`: later ones are not written.
    #[must_use]
    pub fn requested(&self) -> usize {
        self.requested.min(self.waiting.len())
    }

    /// Commits the `count` oldest uncommitted transactions.
    pub fn commit(&mut self, count: usize) {
        self.requested = self.requested.saturating_sub(count);
        for _ in 0..count.min(self.waiting.len()) {
            let (token, transaction) = self.waiting.pop_front().expect("counted");
            self.durable
                .apply_all(&transaction)
                .expect("the same transactions were applied before in the same order");
            self.durable.lost.clear();
            self.usage.committed += 1;
            self.events.push(Event::Committed(token));
        }
    }

    /// The store after a power cut: the committed transactions, and the `lucky` oldest uncommitted
    /// ones. No events of the old instance remain.
    #[must_use]
    pub fn crash(mut self, lucky: usize) -> Self {
        self.commit(lucky);
        Self {
            applied: self.durable.clone(),
            durable: self.durable,
            waiting: VecDeque::new(),
            events: Vec::new(),
            commits: self.commits,
            requested: 0,
            capacity: self.capacity,
            logged_max: self.logged_max,
            failed: false,
            usage: Usage::default(),
        }
    }

    /// Reports a failure, as a real device would cause one; the store accepts nothing more.
    pub fn fail(&mut self, failure: StoreFailure) {
        if !self.failed {
            self.failed = true;
            self.events.push(Event::Failed(failure));
        }
    }

    /// Corrupts the block at `offset` of an object: reading it is an error until it is rewritten.
    /// Returns whether there was such a block.
    pub fn corrupt(&mut self, key: &ObjectKey, offset: u64) -> bool {
        let mut rotten = false;
        for image in [&mut self.applied, &mut self.durable] {
            image.change(key, false, |object| rotten |= object.corrupt(offset));
        }
        rotten
    }

    /// Whether every named collection exists at that point of the transaction.
    fn check_collections(&self, transaction: &Transaction) -> Result<(), SubmitError> {
        let mut changed: BTreeMap<CollectionId, bool> = BTreeMap::new();
        for op in &transaction.ops {
            match op {
                Op::CreateCollection(id) => drop(changed.insert(*id, true)),
                Op::RemoveCollection(id) => drop(changed.insert(*id, false)),
                _ => {}
            }
            for object in op.objects() {
                let id = object.collection;
                if !changed
                    .get(&id)
                    .copied()
                    .unwrap_or_else(|| self.applied.collections.contains_key(&id))
                {
                    return Err(SubmitError::NoCollection(id));
                }
            }
        }
        Ok(())
    }
}

impl RamStore {
    /// The reply that [`ObjectStore::read`] would give now; for tests that only observe.
    ///
    /// # Errors
    /// As for a read.
    pub fn peek(&self, read: &Read) -> Result<ReadReply, ReadError> {
        self.applied.answer(read)
    }
}

impl ObjectStore for RamStore {
    fn offer(&mut self, transaction: &mut Transaction, token: Token) -> Result<(), SubmitError> {
        if self.failed {
            return Err(SubmitError::Failed);
        }
        transaction.validate()?;
        self.check_collections(transaction)?;
        let size = transaction.logged_size() as u64;
        if size > self.logged_max {
            return Err(SubmitError::TooLarge {
                size,
                max: self.logged_max,
            });
        }
        if !transaction.ops.iter().all(Op::is_removal) {
            // Every operation may need one block more at each end than its bytes.
            let needed =
                transaction.size() as u64 + 2 * BLOCK as u64 * transaction.ops.len() as u64;
            let available = self.capacity.saturating_sub(self.applied.used);
            if needed > available {
                return Err(SubmitError::Full { needed, available });
            }
        }
        let transaction = std::mem::take(transaction);
        if let Err(failure) = self.applied.apply_all(&transaction) {
            self.fail(failure);
            return Ok(());
        }
        let lost = std::mem::take(&mut self.applied.lost);
        self.events
            .extend(lost.into_iter().map(|object| Event::Lost(token, object)));
        self.events.push(Event::Applied(token));
        self.waiting.push_back((token, transaction));
        Ok(())
    }

    fn read(&mut self, read: Read, token: Token) {
        if !self.failed {
            let answer = self.applied.answer(&read);
            self.events.push(Event::Read(token, answer));
        }
    }

    fn request_commit(&mut self) {
        self.requested = self.waiting.len();
        if self.commits == Commits::AtKick && !self.failed && !self.waiting.is_empty() {
            self.usage.wal_groups += 1;
            self.usage.flushes += 1;
            self.commit(usize::MAX);
        }
    }

    fn poll(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.events);
    }

    fn jobs(&mut self, _: &mut Vec<Job>) {}

    fn on_job(&mut self, done: JobDone) {
        unreachable!("a RamStore makes no jobs, and was given {done:?}");
    }

    fn logged_bytes_max(&self) -> u64 {
        self.logged_max
    }

    fn usage(&self) -> Usage {
        let used = self.applied.used;
        Usage {
            total: self.capacity,
            used,
            free: self.capacity.saturating_sub(used),
            memory: used + self.durable.used,
            ..self.usage
        }
    }
}

#[cfg(test)]
mod tests;
