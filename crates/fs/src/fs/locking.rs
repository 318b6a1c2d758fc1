//! Locks of this client's callers: held ones, to report them to the next holder of the rank, and
//! waiting requests.
//!
//! ```text
//!  Lock ─▶ request ─▶ Done: held
//!              ├────▶ Waits ──FsLocked──▶ held
//!              │         └──Cancel──▶ request ─▶ still waits: EINTR
//!              └────▶ Failed
//! ```

use super::*;
use nacre_wire::fs::{FsLock, FsLockWait, LockSpans};
use nacre_wire::msg::fs::FsLocked;

/// Interrupted.
const EINTR: u16 = 4;

/// The purpose of a request about locks.
#[derive(Clone, Copy, Debug)]
pub(super) enum LockPurpose {
    /// A caller requests it.
    Lock(CallId, FsLock),
    /// A caller releases these bytes; `None`: another answer ends its call.
    Unlock(Option<CallId>, FsLock),
    /// Ends the wait of the request with this number.
    Cancel(u64),
}

/// The owner: file, number, and whether it uses `flock`.
type Key = (Ino, u64, bool);

fn key(lock: &FsLock) -> Key {
    (lock.ino, lock.owner, lock.flock)
}

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Locking {
    held: BTreeMap<Key, LockSpans>,
    /// Waits by their requests' numbers.
    waits: BTreeMap<u64, (CallId, FsLock)>,
    /// Requests that may wait, by their callers' numbers.
    tokens: BTreeMap<u64, u64>,
    /// Files whose locks ended with an evicted session: their next read or write fails.
    lost: BTreeSet<Ino>,
}

impl Locking {
    fn set(&mut self, lock: &FsLock, to: Option<(bool, u32)>) {
        let spans = self.held.entry(key(lock)).or_default();
        spans.set(range(lock), to);
        if spans.is_empty() {
            self.held.remove(&key(lock));
        }
    }
    fn hold(&mut self, lock: &FsLock) {
        self.set(lock, Some((lock.exclusive, lock.pid)));
    }
    /// Whether a file's locks were lost and that was not reported.
    pub fn has_lost(&self, ino: Ino) -> bool {
        self.lost.contains(&ino)
    }
    /// Whether a file's locks were lost: reported once.
    pub fn take_lost(&mut self, ino: Ino) -> bool {
        self.lost.remove(&ino)
    }
    /// The session has ended, and with it all held locks. Waits are reported to the next one.
    pub fn on_evicted(&mut self) {
        self.lost.extend(
            std::mem::take(&mut self.held)
                .into_keys()
                .map(|(ino, ..)| ino),
        );
    }
    /// The locks to report to a server: those certainly held. An unanswered request may have been
    /// executed: what it released may belong to another owner.
    pub fn named<'a>(
        &self,
        pending: impl Iterator<Item = &'a LockPurpose>,
    ) -> (Vec<FsLock>, Vec<FsLockWait>) {
        let mut held = self.held.clone();
        let mut give_up = |lock: &FsLock, unlock: bool| {
            let Some(spans) = held.get_mut(&key(lock)) else {
                return;
            };
            let (start, end) = range(lock);
            if unlock || lock.flock {
                spans.set((start, end), None);
            } else if !lock.exclusive {
                let overlapping: Vec<_> = spans
                    .iter()
                    .filter(|span| span.start <= end && start <= span.end)
                    .copied()
                    .collect();
                for span in overlapping {
                    spans.set(
                        (span.start.max(start), span.end.min(end)),
                        Some((false, span.pid)),
                    );
                }
            }
        };
        for purpose in pending {
            match purpose {
                LockPurpose::Lock(_, lock) => give_up(lock, false),
                LockPurpose::Unlock(_, lock) => give_up(lock, true),
                LockPurpose::Cancel(_) => {}
            }
        }
        self.waits
            .values()
            .for_each(|(_, lock)| give_up(lock, false));
        let locks = held.iter().flat_map(|((ino, owner, flock), spans)| {
            spans.iter().map(|span| FsLock {
                ino: *ino,
                owner: *owner,
                pid: span.pid,
                flock: *flock,
                start: span.start,
                end: span.end,
                exclusive: span.exclusive,
            })
        });
        let waits = self.waits.iter().map(|(number, (_, lock))| FsLockWait {
            number: *number,
            lock: *lock,
        });
        (locks.collect(), waits.collect())
    }
}

/// A `flock` lock covers the whole file.
const fn range(lock: &FsLock) -> (u64, u64) {
    if lock.flock {
        (0, u64::MAX)
    } else {
        (lock.start, lock.end)
    }
}

impl Fs {
    /// Ends the wait of a call that has not begun; returns whether there was one, or this is in
    /// progress already.
    pub(super) fn cancel_queued(&mut self, token: u64) -> bool {
        // Waiting threads are checked often, and while there is no server nothing begins.
        if self
            .queue
            .iter()
            .any(|(_, ask)| matches!(ask, Ask::CancelLock { wait } if *wait == token))
        {
            return true;
        }
        let is_it = |ask: &Ask| matches!(ask, Ask::Lock { wait: Some(it), .. } if *it == token);
        let Some(call) = self.queue.extract(is_it) else {
            return false;
        };
        self.end(call, Err(EINTR));
        true
    }
    /// The request of a lock that may wait, and its file, by its caller's number.
    pub(super) fn lock_of(&self, token: u64) -> Option<(u64, Ino)> {
        let number = self.locking.tokens.get(&token).copied()?;
        let waits = self.locking.waits.get(&number).map(|(_, lock)| lock.ino);
        let ino = waits.or_else(|| match self.purposes.get(&number) {
            Some(Purpose::Lock(LockPurpose::Lock(_, lock))) => Some(lock.ino),
            _ => None,
        });
        ino.map(|ino| (number, ino))
    }

    pub(super) fn lock(
        &mut self,
        call: CallId,
        lock: FsLock,
        wait: Option<u64>,
        out: &mut Vec<Output>,
    ) {
        if let Some(token) = wait {
            self.locking.tokens.insert(token, self.sessions.next());
        }
        let request = FsCall::Lock {
            lock,
            wait: wait.is_some(),
        };
        self.request(request, Purpose::Lock(LockPurpose::Lock(call, lock)), out);
    }
    pub(super) fn unlock(&mut self, call: Option<CallId>, lock: FsLock, out: &mut Vec<Output>) {
        let FsLock {
            ino,
            owner,
            flock,
            start,
            end,
            ..
        } = lock;
        let request = FsCall::Unlock {
            ino,
            owner,
            flock,
            start,
            end,
        };
        self.request(request, Purpose::Lock(LockPurpose::Unlock(call, lock)), out);
    }
    /// An owner closes a file: releases what it holds there.
    pub(super) fn unlock_all(&mut self, call: CallId, ino: Ino, owner: u64, out: &mut Vec<Output>) {
        let kinds = [false, true]
            .into_iter()
            .filter(|flock| self.locking.held.contains_key(&(ino, owner, *flock)));
        let mut kinds: Vec<bool> = kinds.collect();
        let Some(last) = kinds.pop() else {
            return self.end(call, Ok(Given::Done));
        };
        let all = |flock| FsLock {
            ino,
            owner,
            pid: 0,
            flock,
            start: 0,
            end: u64::MAX,
            exclusive: false,
        };
        for flock in kinds {
            self.unlock(None, all(flock), out);
        }
        self.unlock(Some(call), all(last), out);
    }
    pub(super) fn cancel(&mut self, call: CallId, token: u64, out: &mut Vec<Output>) {
        self.end(call, Ok(Given::Done));
        let Some((number, ino)) = self.lock_of(token) else {
            return;
        };
        let is_it = |purpose: &Purpose| matches!(purpose, Purpose::Lock(LockPurpose::Cancel(it)) if *it == number);
        // Repeated while the server has not answered.
        if self.purposes.values().any(is_it) {
            return;
        }
        let request = FsCall::CancelLock { ino, number };
        self.request(request, Purpose::Lock(LockPurpose::Cancel(number)), out);
    }

    pub(super) fn lock_answered(
        &mut self,
        number: u64,
        purpose: LockPurpose,
        given: Result<FsAnswer, u16>,
    ) {
        match (purpose, given) {
            (LockPurpose::Lock(call, lock), Ok(FsAnswer::Waits {})) => {
                self.given_up(&lock);
                self.locking.waits.insert(number, (call, lock));
            }
            (LockPurpose::Lock(call, lock), Ok(_)) => self.lock_ended(number, call, &lock, Ok(())),
            (LockPurpose::Lock(call, lock), Err(errno)) => {
                self.given_up(&lock);
                self.lock_ended(number, call, &lock, Err(errno));
            }
            (LockPurpose::Unlock(call, lock), given) => {
                if given.is_ok() {
                    self.locking.set(&lock, None);
                }
                if let Some(call) = call {
                    self.end(call, given.map(|_| Given::Done));
                }
            }
            (LockPurpose::Cancel(number), given) => {
                if given.is_ok()
                    && let Some((call, lock)) = self.locking.waits.remove(&number)
                {
                    self.lock_ended(number, call, &lock, Err(EINTR));
                }
            }
        }
    }
    /// A wait has ended.
    pub(super) fn on_locked(&mut self, locked: FsLocked) {
        // One that is reported twice is unknown the second time.
        if let Some((call, lock)) = self.locking.waits.remove(&locked.number) {
            self.lock_ended(locked.number, call, &lock, locked.errno.map_or(Ok(()), Err));
        }
    }
    fn lock_ended(&mut self, number: u64, call: CallId, lock: &FsLock, result: Result<(), u16>) {
        self.locking.tokens.retain(|_, request| *request != number);
        if result.is_ok() {
            self.locking.hold(lock);
        }
        self.end(call, result.map(|()| Given::Done));
    }
    /// A `flock` request that was not granted at once has given up its owner's lock.
    fn given_up(&mut self, lock: &FsLock) {
        if lock.flock {
            self.locking.set(lock, None);
        }
    }

    /// What to report about this client to a rank's server.
    pub(super) fn holds(&mut self, rank: Rank) -> Holds {
        let pending = self.purposes.values().filter_map(|purpose| match purpose {
            Purpose::Lock(purpose) => Some(purpose),
            _ => None,
        });
        let (mut locks, mut waits) = self.locking.named(pending);
        locks.retain(|lock| rank_of(lock.ino) == rank);
        waits.retain(|wait| rank_of(wait.lock.ino) == rank);
        let opens = self
            .files
            .iter_mut()
            .filter(|(ino, file)| rank_of(**ino) == rank && file.opens != [0; 2]);
        let mut opens: Vec<_> = opens
            .map(|(ino, file)| (file.cap, file.claim(*ino)))
            .collect();
        for (before, open) in &opens {
            // The cached data of a file about to be closed could be outdated when it is reopened.
            if *before >= (FsCap::Cache {}) && open.cap < (FsCap::Cache {}) {
                self.cache.drop_clean(open.ino);
            }
        }
        let opens = opens.drain(..).map(|(_, open)| open).collect();
        let (about, delegable) = (self.config.about.clone(), self.config.names_max > 0);
        Holds {
            about,
            delegable,
            opens,
            locks,
            waits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(owner: u64, (start, end): (u64, u64), exclusive: bool) -> FsLock {
        FsLock {
            ino: Ino(7),
            owner,
            pid: 1,
            flock: false,
            start,
            end,
            exclusive,
        }
    }

    /// The last holder may have executed the request, and given the bytes to another client.
    #[test]
    fn what_an_unanswered_request_gives_up_is_not_named() {
        let mut locking = Locking::default();
        locking.hold(&lock(1, (0, 9), true));
        locking.hold(&FsLock {
            flock: true,
            ..lock(2, (0, 0), false)
        });
        let spans = |pending: &[LockPurpose]| {
            let (locks, _) = locking.named(pending.iter());
            locks
                .iter()
                .map(|lock| (lock.owner, lock.start, lock.end, lock.exclusive))
                .collect::<Vec<_>>()
        };
        assert_eq!(spans(&[]), [(1, 0, 9, true), (2, 0, u64::MAX, false)]);
        let shared = LockPurpose::Lock(CallId(1), lock(1, (5, 20), false));
        assert_eq!(
            spans(&[shared]),
            [(1, 0, 4, true), (1, 5, 9, false), (2, 0, u64::MAX, false)]
        );
        let exclusive = LockPurpose::Lock(CallId(1), lock(1, (5, 20), true));
        assert_eq!(
            spans(&[exclusive]),
            spans(&[]),
            "it is not more yet, and not less"
        );
        let unlock = LockPurpose::Unlock(None, lock(1, (0, 3), false));
        let convert = LockPurpose::Lock(
            CallId(1),
            FsLock {
                flock: true,
                ..lock(2, (0, 0), true)
            },
        );
        assert_eq!(spans(&[unlock, convert]), [(1, 4, 9, true)]);
    }

    #[test]
    fn locks_that_an_eviction_took_are_an_error_once() {
        let mut locking = Locking::default();
        locking.hold(&lock(1, (0, 9), true));
        locking.waits.insert(5, (CallId(1), lock(2, (0, 9), true)));
        locking.on_evicted();
        assert!(locking.take_lost(Ino(7)) && !locking.take_lost(Ino(7)));
        let (locks, waits) = locking.named(std::iter::empty());
        assert!(locks.is_empty());
        assert_eq!(
            waits,
            [FsLockWait {
                number: 5,
                lock: lock(2, (0, 9), true)
            }]
        );
    }
}

#[cfg(test)]
#[path = "locking_test.rs"]
mod client_tests;
