//! Writes that span objects (CHECKLIST CEPH-09): lock all, write under the locks, unlock.
//!
//! ```text
//!  Locking ──all granted──▶ Writing ──all written──▶ Unlocking ──▶ Done
//!     │ one object after the other, in order of     │ all at once, each with AssertLock in the same operation;
//!     │ their names: no two writers wait in a ring  │ the last operation on each object also gives its lock back
//!     ▼ held by another, refused                    ▼ a guard failed: somebody took a lock over
//!  Unlocking what was granted ──▶ Failed: nothing written     Failed: these were written, those were not
//! ```
//! What it gives: while one writer is between its first and last lock, no other writer that follows
//! the recipe writes any of the objects, and a writer that lost a lock writes nothing more to that
//! object. What it does not give: all or nothing. A writer that dies in between leaves some objects
//! written; its locks then run out, or are taken over once it is fenced, and whoever takes them
//! over finds the objects as they are and repairs them. A lock makes its object where there is
//! none, and giving it back does not remove it. Readers who must not see a half of it take the
//! locks shared.
//!
//! Round trips: one per object to lock, which the order needs, and one for all writes and unlocks
//! together: the write and the unlock are one operation.

use crate::cluster::{Completion, Failure, ObjectCluster, OpId, Operation, Refused};
use crate::mutants::{Mutant, mutant};
use nacre_types::{Name, ObjectId, PoolId, Time, Version};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, SubOp};
use std::collections::BTreeMap;
use std::fmt;

/// What is to be done to one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Which object.
    pub object: ObjectId,
    /// Parts of the operation, without the guard; at most 62.
    pub ops: Vec<SubOp>,
    /// Their data.
    pub payload: Payload,
}

/// How the locks are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockTerms {
    /// The lock's name on every object.
    pub name: Name,
    /// This writer's cookie: another for each write that this client has under way.
    pub cookie: u64,
    /// A contender may take over from us when we are silent for so many milliseconds; 0 is only
    /// when we are fenced.
    pub lease_ms: u32,
    /// For people who find the lock.
    pub description: String,
}

/// Why not everything was written.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanningFailure {
    /// Which object it failed at.
    pub object: ObjectId,
    /// Why. A guard is named by its place among the caller's own parts.
    pub why: Failure,
    /// Objects that were written none the less. Where both lists are empty nothing was written;
    /// objects that were not there may be now, empty: taking a lock makes its object.
    pub written: Vec<ObjectId>,
    /// Objects of which nobody knows: no answer came.
    pub unknown: Vec<ObjectId>,
}
impl fmt::Display for SpanningFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; ", self.object, self.why)?;
        if self.written.is_empty() && self.unknown.is_empty() {
            return f.write_str("nothing was written");
        }
        write!(
            f,
            "{} other objects were written, of {} it is not known",
            self.written.len(),
            self.unknown.len()
        )
    }
}
impl std::error::Error for SpanningFailure {}

#[derive(Debug, PartialEq)]
enum Phase {
    /// Takes the lock of the part with this index.
    Locking(usize),
    Writing,
    /// Gives back what it holds, after a failure.
    Cleaning,
    Over,
}

#[derive(Debug)]
enum Asked {
    Lock(usize),
    Write(usize),
    Unlock,
}

/// See the module head. The owner of the cluster passes on completions and calls [`Self::advance`]
/// until it says how it ended.
#[derive(Debug)]
pub struct SpanningWrite {
    pool: PoolId,
    terms: LockTerms,
    parts: Vec<Part>,
    phase: Phase,
    /// Whether the lock of each part is held, as far as we know.
    held: Vec<bool>,
    versions: BTreeMap<ObjectId, Version>,
    failure: Option<SpanningFailure>,
    /// Parts still to be sent in this phase.
    to_send: Vec<usize>,
    asked: BTreeMap<OpId, Asked>,
}

impl SpanningWrite {
    /// Nothing is sent yet.
    ///
    /// # Panics
    /// Without parts, or with an object named twice.
    #[must_use]
    pub fn new(pool: PoolId, terms: LockTerms, mut parts: Vec<Part>) -> Self {
        assert!(!parts.is_empty(), "a write that spans nothing");
        parts.sort_by(|a, b| a.object.cmp(&b.object));
        if mutant(Mutant::LockedBackwards) {
            parts.reverse();
        }
        assert!(
            parts.windows(2).all(|two| two[0].object != two[1].object),
            "an object is named twice"
        );
        let held = vec![false; parts.len()];
        let (versions, asked) = (BTreeMap::new(), BTreeMap::new());
        Self {
            pool,
            terms,
            parts,
            phase: Phase::Locking(0),
            held,
            versions,
            failure: None,
            to_send: vec![0],
            asked,
        }
    }

    /// Sends what is next; says how it ended when it has: the versions written, or why not.
    ///
    /// A refusal for want of room ([`Refused::Busy`], [`Refused::NotConnected`]) is no failure:
    /// call again after completions.
    pub fn advance(
        &mut self,
        now: Time,
        cluster: &mut dyn ObjectCluster,
    ) -> Option<Result<BTreeMap<ObjectId, Version>, SpanningFailure>> {
        while let Some(part) = self.to_send.last().copied() {
            let (operation, asked) = self.operation(part);
            match cluster.submit(now, operation) {
                Ok(id) => {
                    self.to_send.pop();
                    self.asked.insert(id, asked);
                }
                Err(Refused::Busy | Refused::NotConnected) => return None,
                Err(Refused::NoSuchPool | Refused::Unsupported) => {
                    self.to_send.pop();
                    self.fail(part, Failure::NoSuchPool, false);
                }
            }
        }
        if !self.asked.is_empty() {
            return None;
        }
        match self.phase {
            Phase::Writing if self.failure.is_none() => {
                self.phase = Phase::Over;
                Some(Ok(std::mem::take(&mut self.versions)))
            }
            Phase::Locking(_) | Phase::Writing => {
                self.phase = Phase::Cleaning;
                self.to_send = (0..self.parts.len())
                    .filter(|part| self.held[*part])
                    .collect();
                self.advance(now, cluster)
            }
            Phase::Cleaning => {
                self.phase = Phase::Over;
                let mut failure = self.failure.take().expect("cleaning follows a failure");
                if !mutant(Mutant::WrittenForgotten) {
                    failure.written = std::mem::take(&mut self.versions).into_keys().collect();
                }
                Some(Err(failure))
            }
            Phase::Over => None,
        }
    }

    fn operation(&self, part: usize) -> (Operation, Asked) {
        let Part {
            object,
            ops,
            payload,
        } = &self.parts[part];
        let LockTerms {
            name,
            cookie,
            lease_ms,
            description,
        } = self.terms.clone();
        let unlock = SubOp::Unlock {
            name: name.clone(),
            cookie,
        };
        let (ops, payload, asked) = match self.phase {
            Phase::Locking(_) => (
                vec![SubOp::Lock {
                    name,
                    cookie,
                    shared: false,
                    lease_ms,
                    description,
                }],
                Payload::new(),
                Asked::Lock(part),
            ),
            Phase::Writing => {
                let guard = SubOp::AssertLock {
                    name,
                    cookie,
                    shared_ok: false,
                };
                // A lock goes with its object.
                let deletes = ops.iter().any(|op| matches!(op, SubOp::Delete {}))
                    && !mutant(Mutant::DeletedIsUnlocked);
                let unlock = (!deletes).then_some(unlock);
                let ops = (!mutant(Mutant::WrittenUnguarded))
                    .then_some(guard)
                    .into_iter()
                    .chain(ops.iter().cloned())
                    .chain(unlock)
                    .collect();
                (ops, payload.clone(), Asked::Write(part))
            }
            Phase::Cleaning | Phase::Over => (vec![unlock], Payload::new(), Asked::Unlock),
        };
        (
            Operation {
                pool: self.pool,
                object: object.clone(),
                ops,
                payload,
                ..Operation::default()
            },
            asked,
        )
    }

    /// Takes the completion if it is of this write; `false` if it is not.
    pub fn on_completion(&mut self, completion: &Completion) -> bool {
        let Some(asked) = self.asked.remove(&completion.id) else {
            return false;
        };
        match (asked, &completion.result) {
            (Asked::Lock(part), Ok(_)) => {
                self.held[part] = true;
                let next = part + 1;
                self.phase = if next < self.parts.len() {
                    Phase::Locking(next)
                } else {
                    Phase::Writing
                };
                self.to_send = if next < self.parts.len() {
                    vec![next]
                } else {
                    (0..self.parts.len()).rev().collect()
                };
            }
            (Asked::Lock(part), Err(why)) => {
                // Of unknown outcome, it may be held.
                self.held[part] = why.may_have_happened() && !mutant(Mutant::PerhapsLockedKept);
                self.fail(part, why.clone(), false);
            }
            (Asked::Write(part), Ok(done)) => {
                self.held[part] = false;
                self.versions
                    .insert(self.parts[part].object.clone(), done.version);
            }
            (Asked::Write(part), Err(why)) => {
                // The guard is the first part: if it failed, the lock is somebody else's.
                let taken = matches!(why, Failure::Refused(OpFailure::Guard { index: 0 }));
                self.held[part] &= !taken || mutant(Mutant::AnothersUnlocked);
                let superseded = matches!(why, Failure::Refused(OpFailure::Superseded {}));
                let unknown =
                    why.may_have_happened() && !(superseded && mutant(Mutant::SupersededIsNothing));
                let why = match why {
                    Failure::Refused(OpFailure::Guard { index: index @ 1.. }) => {
                        Failure::Refused(OpFailure::Guard { index: index - 1 })
                    }
                    why => why.clone(),
                };
                self.fail(part, why, unknown);
            }
            (Asked::Unlock, _) => {}
        }
        true
    }

    fn fail(&mut self, part: usize, why: Failure, unknown: bool) {
        let object = self.parts[part].object.clone();
        if self.phase == Phase::Cleaning {
            return;
        }
        let failure = self.failure.get_or_insert_with(|| SpanningFailure {
            object: object.clone(),
            why,
            written: Vec::new(),
            unknown: Vec::new(),
        });
        if unknown {
            failure.unknown.push(object);
        }
        // What has not been sent need not be any more.
        self.to_send.clear();
    }
}
