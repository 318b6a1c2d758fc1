//! Advisory file locks: which owner has locked which bytes, and which owners wait for them.
//!
//! ```text
//!  lock ─▶ no conflict ─▶ held ──unlock, close, end of the session──▶ waits are checked, in order of arrival
//!     └──▶ conflict ─▶ fails, or waits ─▶ granted once no held lock conflicts
//! ```
//! As in POSIX (`fcntl`): an owner's own locks are replaced, split and merged, and a wait that
//! would cause a deadlock among owners fails. A new lock is not compared with waits, so a stream of
//! shared locks may delay an exclusive one. As in Linux (`flock`): whole files, independent of
//! `fcntl`; a conversion gives the old lock up first.
//!
//! Invariants ([`Locks::check`]): locks of two owners overlap only if both are shared; once
//! settled, each wait conflicts with a held lock.

use nacre_types::{ClientId, Ino};
use nacre_wire::fs::{FsLock, LockSpans};
use std::collections::{BTreeMap, BTreeSet};

/// Linux' error numbers.
const EAGAIN: u16 = 11;
const EINVAL: u16 = 22;
const EDEADLK: u16 = 35;
const ENOLCK: u16 = 37;

/// Limits on locks and waits.
#[derive(Clone, Copy, Debug)]
pub struct LockLimits {
    /// Per client.
    pub client_max: usize,
    /// Per file.
    pub file_max: usize,
}
impl Default for LockLimits {
    fn default() -> Self {
        Self {
            client_max: 16_384,
            file_max: 8192,
        }
    }
}

/// A lock's owner, including the kind of lock: no owner has both kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Its client.
    pub client: ClientId,
    /// Its number within the client.
    pub owner: u64,
    /// Whether it uses `flock`.
    pub flock: bool,
}
impl Owner {
    fn of(client: ClientId, lock: &FsLock) -> Self {
        Self {
            client,
            owner: lock.owner,
            flock: lock.flock,
        }
    }
}

/// The result of a lock request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// The lock is held.
    Held,
    /// The request waits.
    Waits,
}

/// A granted wait: its client, and the request's number.
pub type Granted = (ClientId, u64);

#[derive(Clone, Copy, Debug)]
struct Wait {
    owner: Owner,
    number: u64,
    lock: FsLock,
}

#[derive(Debug, Default)]
struct File {
    held: BTreeMap<Owner, LockSpans>,
    /// In order of arrival.
    waits: Vec<Wait>,
}
impl File {
    fn len(&self) -> usize {
        self.held.values().map(LockSpans::len).sum::<usize>() + self.waits.len()
    }
    /// Owners whose locks conflict with this one.
    fn blockers(&self, owner: Owner, lock: &FsLock) -> impl Iterator<Item = Owner> {
        let (range, exclusive) = ((lock.start, lock.end), lock.exclusive);
        let others = self
            .held
            .iter()
            .filter(move |(other, _)| **other != owner && other.flock == owner.flock);
        others
            .filter(move |(_, spans)| spans.conflict(range, exclusive).is_some())
            .map(|(other, _)| *other)
    }
    fn is_free(&self, owner: Owner, lock: &FsLock) -> bool {
        self.blockers(owner, lock).next().is_none()
    }
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Locks {
    limits: LockLimits,
    files: BTreeMap<Ino, File>,
    /// Number of locks and waits of each client.
    counts: BTreeMap<ClientId, usize>,
    /// Where owners of `fcntl` locks wait, and how often.
    waiting: BTreeMap<Owner, BTreeMap<Ino, usize>>,
}

impl Locks {
    /// An empty table.
    #[must_use]
    pub fn new(limits: LockLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }
    /// Nothing is locked, and nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Locks bytes; with `wait`, on a conflict the request with that number waits.
    ///
    /// # Errors
    /// A POSIX error number.
    pub fn lock(
        &mut self,
        client: ClientId,
        lock: &FsLock,
        wait: Option<u64>,
        granted: &mut Vec<Granted>,
    ) -> Result<Got, u16> {
        let lock = whole(lock)?;
        let owner = Owner::of(client, &lock);
        // A resend.
        if let Some(number) = wait
            && self.has_wait(client, lock.ino, number)
        {
            return Ok(Got::Waits);
        }
        let range = (lock.start, lock.end);
        if self
            .files
            .get(&lock.ino)
            .is_none_or(|file| file.is_free(owner, &lock))
        {
            self.set(owner, lock.ino, range, Some((lock.exclusive, lock.pid)))?;
            // Exclusive locks may have become shared.
            self.settle(lock.ino, granted);
            return Ok(Got::Held);
        }
        if lock.flock {
            self.set(owner, lock.ino, range, None)?;
            self.settle(lock.ino, granted);
        }
        let Some(number) = wait else {
            return Err(EAGAIN);
        };
        if !lock.flock && self.closes_circle(owner, &lock) {
            return Err(EDEADLK);
        }
        self.push_wait(Wait {
            owner,
            number,
            lock,
        })?;
        Ok(Got::Waits)
    }

    /// Unlocks bytes.
    ///
    /// # Errors
    /// `ENOLCK`: it would split a lock, and the limit is reached.
    pub fn unlock(
        &mut self,
        client: ClientId,
        ino: Ino,
        (owner, flock): (u64, bool),
        (start, end): (u64, u64),
        granted: &mut Vec<Granted>,
    ) -> Result<(), u16> {
        let range = if flock { (0, u64::MAX) } else { (start, end) };
        self.set(
            Owner {
                client,
                owner,
                flock,
            },
            ino,
            range,
            None,
        )?;
        self.settle(ino, granted);
        Ok(())
    }

    /// The first lock of its file that this one conflicts with.
    #[must_use]
    pub fn test(&self, client: ClientId, lock: &FsLock) -> Option<FsLock> {
        let lock = whole(lock).ok()?;
        let owner = Owner::of(client, &lock);
        let file = self.files.get(&lock.ino)?;
        let conflicts = file.blockers(owner, &lock).filter_map(|other| {
            let span = file.held[&other].conflict((lock.start, lock.end), lock.exclusive)?;
            let (start, end, exclusive, pid) = (span.start, span.end, span.exclusive, span.pid);
            Some(FsLock {
                ino: lock.ino,
                owner: other.owner,
                flock: other.flock,
                pid,
                start,
                end,
                exclusive,
            })
        });
        conflicts.min_by_key(|conflict| conflict.start)
    }

    /// Ends a wait; returns whether there was one.
    pub fn cancel(&mut self, client: ClientId, ino: Ino, number: u64) -> bool {
        let Some(file) = self.files.get_mut(&ino) else {
            return false;
        };
        let is_it = |wait: &Wait| wait.owner.client == client && wait.number == number;
        let Some(at) = file.waits.iter().position(is_it) else {
            return false;
        };
        self.take_wait(ino, at);
        self.forget(ino);
        true
    }

    /// Removes a client with all its locks and waits. [`Self::settle_all`] then grants what others
    /// wait for.
    pub fn remove_client(&mut self, client: ClientId) {
        if self.counts.remove(&client).is_none() {
            return;
        }
        self.waiting.retain(|owner, _| owner.client != client);
        for file in self.files.values_mut() {
            file.held.retain(|owner, _| owner.client != client);
            file.waits.retain(|wait| wait.owner.client != client);
        }
        self.files.retain(|_, file| file.len() > 0);
    }

    /// A client reports its locks to a new holder of the rank. A conflicting one is not accepted:
    /// its client was presumed gone when another one got it.
    pub fn claim(&mut self, client: ClientId, locks: &[FsLock]) {
        for lock in locks {
            let Ok(lock) = whole(lock) else { continue };
            let owner = Owner::of(client, &lock);
            if self
                .files
                .get(&lock.ino)
                .is_none_or(|file| file.is_free(owner, &lock))
            {
                let _ = self.set(
                    owner,
                    lock.ino,
                    (lock.start, lock.end),
                    Some((lock.exclusive, lock.pid)),
                );
            }
        }
    }
    /// A client reports what it waits for: it stays a wait, even if the bytes are free, until
    /// [`Self::settle_all`].
    pub fn claim_wait(&mut self, client: ClientId, number: u64, lock: &FsLock) -> Result<(), u16> {
        let lock = whole(lock)?;
        if self.has_wait(client, lock.ino, number) {
            return Ok(());
        }
        self.push_wait(Wait {
            owner: Owner::of(client, &lock),
            number,
            lock,
        })
    }
    /// Grants all waits without conflicts.
    pub fn settle_all(&mut self, granted: &mut Vec<Granted>) {
        for ino in self.files.keys().copied().collect::<Vec<_>>() {
            self.settle(ino, granted);
        }
    }

    /// Asserts the invariants.
    pub fn check(&self) {
        let mut counts: BTreeMap<ClientId, usize> = BTreeMap::new();
        for (ino, file) in &self.files {
            assert!(file.len() > 0, "{ino}: an empty file is kept");
            for (owner, spans) in &file.held {
                assert!(
                    !spans.is_empty(),
                    "{ino}: {owner:?} is kept and holds nothing"
                );
                *counts.entry(owner.client).or_default() += spans.len();
                for span in spans.iter() {
                    let (start, end, exclusive, pid) =
                        (span.start, span.end, span.exclusive, span.pid);
                    let lock = FsLock {
                        ino: *ino,
                        owner: owner.owner,
                        pid,
                        flock: owner.flock,
                        start,
                        end,
                        exclusive,
                    };
                    assert!(
                        file.is_free(*owner, &lock),
                        "{ino}: {owner:?} and another one hold {span:?}"
                    );
                }
            }
            for wait in &file.waits {
                assert!(
                    !file.is_free(wait.owner, &wait.lock),
                    "{ino}: {wait:?} waits for nothing"
                );
                *counts.entry(wait.owner.client).or_default() += 1;
            }
        }
        assert_eq!(counts, self.counts, "locks and waits are counted");
        let posix = self
            .files
            .values()
            .flat_map(|file| &file.waits)
            .filter(|wait| !wait.owner.flock)
            .count();
        assert_eq!(
            self.waiting
                .values()
                .flat_map(BTreeMap::values)
                .sum::<usize>(),
            posix,
            "waits are known by owner"
        );
    }

    // ── parts ───────────────────────────────────────────────────────────────────────────

    fn has_wait(&self, client: ClientId, ino: Ino, number: u64) -> bool {
        let file = self.files.get(&ino);
        file.is_some_and(|file| {
            file.waits
                .iter()
                .any(|wait| wait.owner.client == client && wait.number == number)
        })
    }

    fn has_room(&self, client: ClientId, ino: Ino) -> bool {
        self.counts
            .get(&client)
            .is_none_or(|count| *count < self.limits.client_max)
            && self
                .files
                .get(&ino)
                .is_none_or(|file| file.len() < self.limits.file_max)
    }

    fn set(
        &mut self,
        owner: Owner,
        ino: Ino,
        range: (u64, u64),
        to: Option<(bool, u32)>,
    ) -> Result<(), u16> {
        let has_room = self.has_room(owner.client, ino);
        let before = self.files.get(&ino).and_then(|file| file.held.get(&owner));
        if before.is_none() && to.is_none() {
            return Ok(());
        }
        let mut spans = before.cloned().unwrap_or_default();
        let old = spans.len();
        spans.set(range, to);
        if spans.len() > old && !has_room {
            return Err(ENOLCK);
        }
        self.count(owner.client, old, spans.len());
        let file = self.files.entry(ino).or_default();
        if spans.is_empty() {
            file.held.remove(&owner);
        } else {
            file.held.insert(owner, spans);
        }
        Ok(())
    }

    fn count(&mut self, client: ClientId, less: usize, more: usize) {
        let count = self.counts.entry(client).or_default();
        *count = *count + more - less;
        if *count == 0 {
            self.counts.remove(&client);
        }
    }

    fn push_wait(&mut self, wait: Wait) -> Result<(), u16> {
        let ino = wait.lock.ino;
        if !self.has_room(wait.owner.client, ino) {
            return Err(ENOLCK);
        }
        self.count(wait.owner.client, 0, 1);
        if !wait.owner.flock {
            *self
                .waiting
                .entry(wait.owner)
                .or_default()
                .entry(ino)
                .or_default() += 1;
        }
        self.files.entry(ino).or_default().waits.push(wait);
        Ok(())
    }
    fn take_wait(&mut self, ino: Ino, at: usize) -> Wait {
        let wait = self
            .files
            .get_mut(&ino)
            .expect("it has waits")
            .waits
            .remove(at);
        self.count(wait.owner.client, 1, 0);
        if let Some(inos) = self.waiting.get_mut(&wait.owner) {
            let times = inos.get_mut(&ino).expect("it is counted");
            *times -= 1;
            if *times == 0 {
                inos.remove(&ino);
            }
            if inos.is_empty() {
                self.waiting.remove(&wait.owner);
            }
        }
        wait
    }

    /// Grants the first wait without a conflict, until there is none.
    fn settle(&mut self, ino: Ino, granted: &mut Vec<Granted>) {
        while let Some(file) = self.files.get(&ino)
            && let Some(at) = file
                .waits
                .iter()
                .position(|wait| file.is_free(wait.owner, &wait.lock))
        {
            let Wait {
                owner,
                number,
                lock,
            } = self.take_wait(ino, at);
            // The wait was within the limits, so the lock is; that it may split another one is
            // ignored.
            let mut spans = self
                .files
                .get_mut(&ino)
                .and_then(|file| file.held.remove(&owner))
                .unwrap_or_default();
            let old = spans.len();
            spans.set((lock.start, lock.end), Some((lock.exclusive, lock.pid)));
            self.count(owner.client, old, spans.len());
            self.files.entry(ino).or_default().held.insert(owner, spans);
            granted.push((owner.client, number));
        }
        self.forget(ino);
    }

    fn forget(&mut self, ino: Ino) {
        if self.files.get(&ino).is_some_and(|file| file.len() == 0) {
            self.files.remove(&ino);
        }
    }

    /// Whether waiting for this lock would close a cycle of waiting owners, directly or indirectly.
    fn closes_circle(&self, owner: Owner, lock: &FsLock) -> bool {
        let mut seen = BTreeSet::new();
        let mut next: Vec<Owner> = self.files[&lock.ino].blockers(owner, lock).collect();
        while let Some(blocker) = next.pop() {
            if blocker == owner {
                return true;
            }
            if !seen.insert(blocker) {
                continue;
            }
            for ino in self
                .waiting
                .get(&blocker)
                .into_iter()
                .flat_map(BTreeMap::keys)
            {
                let file = &self.files[ino];
                for wait in file.waits.iter().filter(|wait| wait.owner == blocker) {
                    next.extend(file.blockers(blocker, &wait.lock));
                }
            }
        }
        false
    }
}

/// A `flock` lock covers the whole file.
fn whole(lock: &FsLock) -> Result<FsLock, u16> {
    match lock.flock {
        true => Ok(FsLock {
            start: 0,
            end: u64::MAX,
            ..*lock
        }),
        false if lock.start > lock.end => Err(EINVAL),
        false => Ok(*lock),
    }
}

#[cfg(test)]
#[path = "locks_test.rs"]
mod tests;
