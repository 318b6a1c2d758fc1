//! Writes that span objects (CHECKLIST CEPH-09): lock all objects, write under the locks, unlock.
//!
//! ```text
//!  Locking ──all granted──▶ Writing ──all written──▶ Unlocking ──▶ Done
//!     │ one object after the other, in order of     │ all at once, each with AssertLock in the same operation;
//!     │ their names: writers cannot deadlock        │ the last operation on each object also releases its lock
//!     ▼ held by another, refused                    ▼ a guard failed: another client took a lock over
//!  Unlocking granted locks ──▶ Failed: nothing written        Failed: these were written, those were not
//! ```
//! What it guarantees: while one writer is between its first and last lock, no other writer that
//! follows this protocol writes any of the objects, and a writer that lost a lock writes nothing
//! more to that object. What it does not guarantee: atomicity. A writer that dies in between leaves
//! some objects written. Its locks then expire, or are taken over once it is fenced, and the next
//! holder finds the objects as they are and repairs them. A lock creates its object if it does not
//! exist, and releasing the lock does not remove it. Readers that must not see a partial write take
//! the locks shared.
//!
//! Round trips: one per object to lock, because of the order, and one for all writes and unlocks
//! together: write and unlock are one operation.

use crate::cluster::{Completion, Failure, ObjectCluster, OpId, Operation, Refused};
use nacre_types::{Name, ObjectId, PoolId, Time, Version};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, SubOp};
use std::collections::BTreeMap;
use std::fmt;

#[cfg(feature = "mutants")]
#[path = "mutants/spanning.rs"]
pub(crate) mod planted;

/// The change of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The object.
    pub object: ObjectId,
    /// Parts of the operation, without the guard; at most 62.
    pub ops: Vec<SubOp>,
    /// The parts' data.
    pub payload: Payload,
}

/// How the locks are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockTerms {
    /// The lock's name on every object.
    pub name: Name,
    /// This writer's cookie, different for each write that this client has in progress.
    pub cookie: u64,
    /// A contender may take over from this writer when it is silent for this many milliseconds; 0:
    /// only when it is fenced.
    pub lease_ms: u32,
    /// Human-readable description of the lock.
    pub description: String,
}

/// Why the write is incomplete.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanningFailure {
    /// The object at which it failed.
    pub object: ObjectId,
    /// The reason. A guard is named by its index among the caller's own parts.
    pub why: Failure,
    /// Objects that were written nevertheless. If both lists are empty nothing was written; objects
    /// that did not exist may exist now, empty, because taking a lock creates its object.
    pub written: Vec<ObjectId>,
    /// Objects whose outcome is unknown because no answer arrived.
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
    /// Releases the locks it holds, after a failure.
    Cleaning,
    Over,
}

#[derive(Debug)]
enum Asked {
    Lock(usize),
    Write(usize),
    Unlock,
}

/// See the module head. The owner of the cluster passes completions on and calls [`Self::advance`]
/// until it returns the outcome.
#[derive(Debug)]
pub struct SpanningWrite {
    pool: PoolId,
    terms: LockTerms,
    parts: Vec<Part>,
    phase: Phase,
    /// Whether the lock of each part is held, as far as is known.
    held: Vec<bool>,
    versions: BTreeMap<ObjectId, Version>,
    failure: Option<SpanningFailure>,
    /// Parts still to be sent in this phase.
    to_send: Vec<usize>,
    asked: BTreeMap<OpId, Asked>,
}

impl SpanningWrite {
    /// Creates the write; nothing is sent yet.
    ///
    /// # Panics
    /// Without parts, or with an object named twice.
    #[must_use]
    pub fn new(pool: PoolId, terms: LockTerms, mut parts: Vec<Part>) -> Self {
        assert!(!parts.is_empty(), "a write that spans nothing");
        parts.sort_by(|a, b| a.object.cmp(&b.object));
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

    /// Sends what is next; returns the outcome when there is one: the versions written, or the
    /// failure.
    ///
    /// A temporary refusal ([`Refused::Busy`], [`Refused::NotConnected`]) is no failure: call again
    /// after completions.
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
                failure.written = std::mem::take(&mut self.versions).into_keys().collect();
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
                // A lock is deleted with its object.
                let deletes = ops.iter().any(|op| matches!(op, SubOp::Delete {}));
                let unlock = (!deletes).then_some(unlock);
                let ops = std::iter::once(guard)
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

    /// Handles a completion if it belongs to this write; otherwise returns `false`.
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
                // With an unknown outcome, the lock may be held.
                self.held[part] = why.may_have_happened();
                self.fail(part, why.clone(), false);
            }
            (Asked::Write(part), Ok(done)) => {
                self.held[part] = false;
                self.versions
                    .insert(self.parts[part].object.clone(), done.version);
            }
            (Asked::Write(part), Err(why)) => {
                // The guard is the first part: if it failed, another client has the lock.
                let taken = matches!(why, Failure::Refused(OpFailure::Guard { index: 0 }));
                self.held[part] &= !taken;
                let unknown = why.may_have_happened();
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
        // Parts not sent yet need not be sent any more.
        self.to_send.clear();
    }
}
