//! Locks of two clients: at the server, and across its takeover.

use crate::sharing::{ANNA, BERT, Two};
use nacre_mds::mds::Say;
use nacre_types::{ClientId, Ino, Instance};
use nacre_wire::fs::{FsLock, FsLockWait};
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsEvicted, FsLocked};

const INO: Ino = Ino(0x10_0007);

pub fn lock(owner: u64) -> FsLock {
    FsLock {
        ino: INO,
        owner,
        pid: 1,
        flock: false,
        start: 0,
        end: 9,
        exclusive: true,
    }
}
pub fn wanted(owner: u64, wait: bool) -> FsCall {
    FsCall::Lock {
        lock: lock(owner),
        wait,
    }
}
pub fn unlock(owner: u64) -> FsCall {
    FsCall::Unlock {
        ino: INO,
        owner,
        flock: false,
        start: 0,
        end: u64::MAX,
    }
}

impl Two {
    /// A request, and its immediate answer.
    pub fn answer(&mut self, client: ClientId, number: u64, call: FsCall) -> Option<FsAnswer> {
        self.said.clear();
        self.ask(client, number, call);
        self.reply(client, number).map(|reply| reply.answer.clone())
    }
    pub fn locked(&self) -> Vec<(ClientId, u64)> {
        let locked = |(client, say): &(ClientId, Say)| match say {
            Say::Locked(FsLocked {
                number,
                errno: None,
            }) => Some((*client, *number)),
            _ => None,
        };
        self.said.iter().filter_map(locked).collect()
    }
    pub fn greet(&mut self, client: ClientId, locks: &[FsLock], waits: &[FsLockWait]) {
        self.mds
            .on_session_with(client, Instance(1), (true, 0), &[], (locks, waits));
        self.mds.on_caught_up(client);
        self.settle();
    }
}

pub const DONE: Option<FsAnswer> = Some(FsAnswer::Done {});
pub const AGAIN: Option<FsAnswer> = Some(FsAnswer::Failed { errno: 11 });
pub const WAITS: Option<FsAnswer> = Some(FsAnswer::Waits {});

#[test]
fn a_lock_is_refused_waited_for_and_granted() {
    let mut two = Two::new();
    assert_eq!(two.answer(ANNA, 1, wanted(1, false)), DONE);
    assert_eq!(
        two.answer(BERT, 1, wanted(1, false)),
        AGAIN,
        "owners of two clients are two, whatever their numbers"
    );
    let test = FsCall::TestLock { lock: lock(1) };
    assert_eq!(
        two.answer(BERT, 2, test.clone()),
        Some(FsAnswer::Conflict {
            lock: Some(lock(1))
        })
    );
    assert_eq!(
        two.answer(ANNA, 2, test),
        Some(FsAnswer::Conflict { lock: None })
    );
    // Sent twice, it is one wait.
    for _ in 0..2 {
        assert_eq!(two.answer(BERT, 3, wanted(1, true)), WAITS);
    }
    assert_eq!(two.answer(ANNA, 3, unlock(1)), DONE);
    assert_eq!(two.locked(), [(BERT, 3)]);
    // Its first answer was lost, and so was this.
    assert_eq!(two.answer(BERT, 3, wanted(1, true)), DONE);
    // What failed fails for ever, even when the bytes are free.
    assert_eq!(two.answer(BERT, 4, unlock(1)), DONE);
    assert_eq!(two.answer(BERT, 1, wanted(1, false)), AGAIN);
}

#[test]
fn a_wait_is_cancelled() {
    let mut two = Two::new();
    assert_eq!(two.answer(ANNA, 1, wanted(1, false)), DONE);
    assert_eq!(two.answer(BERT, 1, wanted(1, true)), WAITS);
    for _ in 0..2 {
        assert_eq!(
            two.answer(
                BERT,
                2,
                FsCall::CancelLock {
                    ino: INO,
                    number: 1
                }
            ),
            DONE
        );
    }
    assert_eq!(two.answer(ANNA, 2, unlock(1)), DONE);
    assert_eq!(two.locked(), []);
    assert_eq!(two.answer(ANNA, 3, wanted(1, false)), DONE, "it is free");
}

#[test]
fn locks_and_waits_go_with_their_session() {
    for leaves in [true, false] {
        let mut two = Two::new();
        assert_eq!(two.answer(ANNA, 1, wanted(1, false)), DONE);
        assert_eq!(two.answer(BERT, 1, wanted(1, true)), WAITS);
        assert_eq!(two.answer(ANNA, 2, wanted(2, true)), WAITS);
        if leaves {
            two.mds.on_leave(ANNA);
        } else {
            two.mds.evict(ANNA);
        }
        two.settle();
        assert_eq!(two.locked(), [(BERT, 1)]);
        assert_eq!(two.answer(BERT, 2, unlock(1)), DONE);
        assert_eq!(two.locked(), [], "the other wait is gone");
    }
}

/// What BERT waits for is ANNA's, and she has not come yet.
#[test]
fn the_next_holder_grants_nothing_before_all_have_named_what_they_hold() {
    let mut two = Two::new();
    assert_eq!(two.answer(ANNA, 1, wanted(1, false)), DONE);
    assert_eq!(two.answer(BERT, 1, wanted(1, true)), WAITS);
    two.take_over();
    two.greet(
        BERT,
        &[],
        &[FsLockWait {
            number: 1,
            lock: lock(1),
        }],
    );
    assert_eq!(two.locked(), []);
    assert_eq!(
        two.answer(BERT, 2, wanted(2, false)),
        None,
        "it may be another one's"
    );
    two.greet(ANNA, &[lock(1)], &[]);
    assert_eq!(
        (
            two.locked(),
            two.reply(BERT, 2).map(|reply| reply.answer.clone())
        ),
        (vec![], AGAIN)
    );
    assert_eq!(two.answer(ANNA, 2, unlock(1)), DONE);
    assert_eq!(two.locked(), [(BERT, 1)]);
}

#[test]
fn a_holder_that_does_not_come_back_has_lost_its_locks() {
    let mut two = Two::new();
    assert_eq!(two.answer(ANNA, 1, wanted(1, false)), DONE);
    two.take_over();
    two.greet(
        BERT,
        &[],
        &[FsLockWait {
            number: 1,
            lock: lock(1),
        }],
    );
    assert_eq!(two.locked(), []);
    two.now = two.mds.next_deadline();
    two.settle();
    assert_eq!(two.locked(), [(BERT, 1)]);
    two.greet(ANNA, &[lock(1)], &[]);
    assert!(two.said.contains(&(
        ANNA,
        Say::Evicted(FsEvicted {
            instance: Instance(1)
        })
    )));
    assert_eq!(
        two.answer(BERT, 2, wanted(1, false)),
        DONE,
        "it still has it"
    );
}

/// The connection broke while it was in flight.
#[test]
fn a_grant_that_was_lost_is_told_again() {
    let mut two = Two::new();
    assert_eq!(two.answer(ANNA, 1, wanted(1, false)), DONE);
    assert_eq!(two.answer(BERT, 1, wanted(1, true)), WAITS);
    let waits = [FsLockWait {
        number: 1,
        lock: lock(1),
    }];
    two.greet(BERT, &[], &waits);
    assert_eq!(two.locked(), [], "still ANNA's");
    assert_eq!(two.answer(ANNA, 2, unlock(1)), DONE);
    assert_eq!(two.locked(), [(BERT, 1)]);
    two.said.clear();
    two.greet(BERT, &[], &waits);
    assert_eq!(two.locked(), [(BERT, 1)]);
    // A client's reported locks count only for a holder that did not know it.
    assert_eq!(two.answer(BERT, 2, unlock(1)), DONE);
    two.greet(ANNA, &[lock(1)], &[]);
    assert_eq!(two.answer(BERT, 3, wanted(1, false)), DONE);
}
