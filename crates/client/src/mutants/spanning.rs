//! Planted bugs of writes that span objects: what one is told, remembers and asks is spoiled around
//! each of its steps.

use super::{Asked, LockTerms, Part, SpanningFailure, SpanningWrite as Role};
use crate::cluster::{Capabilities, Completion, Failure, ObjectCluster, OpId, Operation, Refused};
use crate::mutants::{Mutant, mutant};
use nacre_types::{ObjectId, PoolId, Time, Version};
use nacre_wire::msg::client::{OpFailure, SubOp};
use std::collections::BTreeMap;

/// A write with the bug that is switched on; without one, the write.
#[derive(Debug)]
pub struct SpanningWrite(Role);

/// The cluster that the write sees.
struct Spoiled<'a> {
    cluster: &'a mut dyn ObjectCluster,
    terms: &'a LockTerms,
}

impl ObjectCluster for Spoiled<'_> {
    fn capabilities(&self) -> Capabilities {
        self.cluster.capabilities()
    }
    fn submit(&mut self, now: Time, mut operation: Operation) -> Result<OpId, Refused> {
        let ops = &mut operation.ops;
        if mutant(Mutant::WrittenUnguarded) {
            ops.retain(|op| !matches!(op, SubOp::AssertLock { .. }));
        }
        let deletes = ops.iter().any(|op| matches!(op, SubOp::Delete {}));
        if deletes && mutant(Mutant::DeletedIsUnlocked) {
            ops.push(SubOp::Unlock {
                name: self.terms.name.clone(),
                cookie: self.terms.cookie,
            });
        }
        self.cluster.submit(now, operation)
    }
    fn completions(&mut self, into: &mut Vec<Completion>) {
        self.cluster.completions(into);
    }
}

impl SpanningWrite {
    /// Like [`Role::new`].
    #[must_use]
    pub fn new(pool: PoolId, terms: LockTerms, parts: Vec<Part>) -> Self {
        let mut write = Role::new(pool, terms, parts);
        if mutant(Mutant::LockedBackwards) {
            write.parts.reverse();
        }
        Self(write)
    }

    /// Like [`Role::advance`].
    pub fn advance(
        &mut self,
        now: Time,
        cluster: &mut dyn ObjectCluster,
    ) -> Option<Result<BTreeMap<ObjectId, Version>, SpanningFailure>> {
        let terms = &self.0.terms.clone();
        let mut ended = self.0.advance(now, &mut Spoiled { cluster, terms })?;
        if let Err(failure) = &mut ended
            && mutant(Mutant::WrittenForgotten)
        {
            failure.written.clear();
        }
        Some(ended)
    }

    /// Like [`Role::on_completion`].
    pub fn on_completion(&mut self, completion: &Completion) -> bool {
        let asked = match self.0.asked.get(&completion.id) {
            Some(Asked::Lock(part)) => Some((*part, false)),
            Some(Asked::Write(part)) => Some((*part, true)),
            _ => None,
        };
        let unknown = |write: &Role| write.failure.as_ref().map_or(0, |one| one.unknown.len());
        let (held, known) = (self.0.held.clone(), unknown(&self.0));
        let ours = self.0.on_completion(completion);
        match (asked, &completion.result) {
            (Some((part, false)), Err(_)) if mutant(Mutant::PerhapsLockedKept) => {
                self.0.held[part] = false;
            }
            (Some((part, true)), Err(_)) if mutant(Mutant::AnothersUnlocked) => {
                self.0.held[part] = held[part];
            }
            (Some((_, true)), Err(Failure::Refused(OpFailure::Superseded {})))
                if mutant(Mutant::SupersededIsNothing) =>
            {
                if let Some(failure) = &mut self.0.failure {
                    failure.unknown.truncate(known);
                }
            }
            _ => {}
        }
        ours
    }
}
