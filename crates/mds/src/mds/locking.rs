//! Requests about locks. They do not need the tree and are not journaled: after a takeover clients
//! report what they hold and wait for, and nothing is granted before all have reported or were
//! evicted.

use super::*;
use crate::locks::Got;
use nacre_wire::fs::{FsLock, FsLockWait};
use nacre_wire::msg::fs::FsLocked;

impl Mds {
    /// The locks that a client reports when it comes. Held locks count if this holder did not know
    /// the client before; waits that were granted meanwhile are answered again.
    pub(super) fn inherit_locks(
        &mut self,
        client: ClientId,
        is_new: bool,
        locks: &[FsLock],
        waits: &[FsLockWait],
    ) {
        if is_new {
            self.locks.claim(client, locks);
        }
        for FsLockWait { number, lock } in waits {
            if let Err(errno) = self.locks.claim_wait(client, *number, lock) {
                self.out.push((
                    client,
                    Say::Locked(FsLocked {
                        number: *number,
                        errno: Some(errno),
                    }),
                ));
            }
        }
        self.locks_unsettled = true;
        self.try_again = true;
    }
    /// Grants reported waits, once no held lock can be unknown.
    pub(super) fn settle_locks(&mut self) {
        if !self.is_quiet() && std::mem::take(&mut self.locks_unsettled) {
            let mut granted = Vec::new();
            self.locks.settle_all(&mut granted);
            self.tell_granted(granted);
        }
    }
    /// Releases all of a client's locks and waits.
    pub(super) fn release_locks(&mut self, client: ClientId) {
        self.locks.remove_client(client);
        self.locks_unsettled = true;
        self.try_again = true;
    }

    /// Executes a request about locks.
    pub(super) fn lock_request(&mut self, client: ClientId, request: &FsRequest) {
        self.end_request(client, request.number);
        let mut granted = Vec::new();
        let done = |result: Result<(), u16>| match result {
            Ok(()) => FsAnswer::Done {},
            Err(errno) => FsAnswer::Failed { errno },
        };
        let answer = match &request.call {
            FsCall::Lock { lock, wait } => {
                match self
                    .locks
                    .lock(client, lock, wait.then_some(request.number), &mut granted)
                {
                    Ok(Got::Held) => FsAnswer::Done {},
                    Ok(Got::Waits) => FsAnswer::Waits {},
                    Err(errno) => FsAnswer::Failed { errno },
                }
            }
            FsCall::Unlock {
                ino,
                owner,
                flock,
                start,
                end,
            } => done(self.locks.unlock(
                client,
                *ino,
                (*owner, *flock),
                (*start, *end),
                &mut granted,
            )),
            FsCall::TestLock { lock } => FsAnswer::Conflict {
                lock: self.locks.test(client, lock),
            },
            FsCall::CancelLock { ino, number } => {
                self.locks.cancel(client, *ino, *number);
                FsAnswer::Done {}
            }
            other => unreachable!("not about locks: {other:?}"),
        };
        let reply = FsReply {
            number: request.number,
            safe: true,
            stamp: self.stamp(),
            place: None,
            keep: false,
            shares: Vec::new(),
            delegated: Vec::new(),
            changed: Vec::new(),
            caps: Vec::new(),
            answer,
        };
        // A failed request must not succeed when it is resent. A wait may have been granted in
        // between, and that answer may have been lost: it is examined again.
        let stays = matches!(reply.answer, FsAnswer::Failed { .. });
        if stays && let Some(session) = self.sessions.get_mut(&client) {
            let kept = Kept {
                reply: reply.clone(),
                batch: None,
                after: super::sharing::After::default(),
                inherited: false,
            };
            session.answers.insert(request.number, kept);
        }
        self.out.push((client, Say::Reply(reply)));
        self.tell_granted(granted);
    }

    fn tell_granted(&mut self, granted: Vec<(ClientId, u64)>) {
        let say = |(client, number)| {
            (
                client,
                Say::Locked(FsLocked {
                    number,
                    errno: None,
                }),
            )
        };
        self.out.extend(granted.into_iter().map(say));
    }
}
