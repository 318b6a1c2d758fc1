//! Advisory locks of files: which owner has locked which bytes, and which owners wait for them.
//!
//! ```text
//!  lock ─▶ no conflict ─▶ held ──unlock, close, end of the session──▶ waits are looked at, in order of arrival
//!     └──▶ conflict ─▶ fails, or waits ─▶ granted once nothing that is held is in its way
//! ```
//! As in POSIX (`fcntl`): an owner's own locks are replaced, split and joined, and a wait that
//! would close a circle of owners that wait for each other fails. A new lock is not compared with
//! waits, so a stream of shared locks may hold up an exclusive one. As in Linux (`flock`): whole
//! files, unseen by `fcntl`; one that is converted is given up first.
//!
//! Invariants ([`Locks::check`]): locks of two owners overlap only if both are shared; once
//! settled, each wait conflicts with something that is held.

use nacre_types::{ClientId, Ino};
use nacre_wire::fs::{FsLock, LockSpans};
use std::collections::{BTreeMap, BTreeSet};

/// Linux' numbers.
const EAGAIN: u16 = 11;
const EINVAL: u16 = 22;
const EDEADLK: u16 = 35;
const ENOLCK: u16 = 37;

/// Locks and waits that there may be.
#[derive(Clone, Copy, Debug)]
pub struct LockLimits {
    /// Of a client.
    pub client_max: usize,
    /// Of a file.
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

/// Whose a lock is; its kind is part of that: no owner has both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Its client.
    pub client: ClientId,
    /// Its name there.
    pub owner: u64,
    /// It locks with `flock`.
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

/// How an attempt to lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// It is held.
    Held,
    /// It waits.
    Waits,
}

/// A wait that has been granted: its client, and the request that asked for it.
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
    /// Owners whose locks are in the way of this one.
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
    /// Locks and waits of each client.
    counts: BTreeMap<ClientId, usize>,
    /// Where owners of `fcntl` wait, how often.
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

    /// Locks bytes; `wait`: if they are not free, the request of this number waits for them.
    ///
    /// # Errors
    /// An error number of POSIX.
    pub fn lock(
        &mut self,
        client: ClientId,
        lock: &FsLock,
        wait: Option<u64>,
        granted: &mut Vec<Granted>,
    ) -> Result<Got, u16> {
        let lock = whole(lock)?;
        let owner = Owner::of(client, &lock);
        // Sent twice.
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
            // What was exclusive may be shared now.
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
    /// `ENOLCK`: it would split a lock, and there are too many.
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

    /// A lock that this one conflicts with: the first of its file.
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

    /// Ends a wait; whether there was one.
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

    /// A client goes: all that it holds and waits for goes with it. What others wait for is granted
    /// with [`Self::settle_all`].
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

    /// A client says to a new holder of the rank what it holds. One that conflicts is not taken:
    /// its client was thought to be gone when another one got it.
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
    /// A client says what it waits for: that waits, even if it is free, until [`Self::settle_all`].
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
    /// Grants what can be granted.
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

    /// Grants the first wait that nothing is in the way of, until there is none.
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
            // The wait had room, so the lock has; that it splits another one is not looked at.
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

    /// Whether one of those that this lock would wait for waits, over others or not, for its owner.
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

/// A lock of `flock` is of the whole file.
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
