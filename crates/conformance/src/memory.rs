//! Objects of pools in memory: used to test services and commands where the object store itself is
//! not under test.
//!
//! It uses the same evaluator as every engine (`nacre_object::memory`), so it cannot find a fault
//! in that. The cases of this crate can: they state the results and effects of operations as
//! literal values.

use nacre_client::{Done, Failure, Operation};
pub use nacre_object::memory::Object;
use nacre_types::{ObjectId, PoolId};
use nacre_wire::msg::client::{OpRequest, SubOp};
use std::collections::BTreeMap;

/// All objects of all pools.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// By pool and name.
    pub all: BTreeMap<(PoolId, ObjectId), Object>,
}

impl Memory {
    /// Executes all parts of an operation, or none.
    ///
    /// # Errors
    /// The refusal that the cluster would give.
    ///
    /// # Panics
    /// If it concerns more than one object, except for copies.
    pub fn perform(&mut self, operation: &Operation) -> Result<Done, Failure> {
        self.perform_where(operation, false)
    }

    /// The same; `full`: the cluster has no free space.
    ///
    /// # Errors
    /// As [`Self::perform`].
    pub fn perform_where(&mut self, operation: &Operation, full: bool) -> Result<Done, Failure> {
        let Operation {
            pool,
            object,
            ops,
            payload,
            flags,
            ..
        } = operation;
        let key = (*pool, object.clone());
        let source = ops
            .iter()
            .find_map(SubOp::source)
            .and_then(|source| self.all.get(&(*pool, source.clone())))
            .cloned();
        let mut object = self.all.remove(&key);
        let request = OpRequest {
            ops: ops.clone(),
            flags: *flags,
            ..OpRequest::default()
        };
        let performed = Object::perform(&mut object, &request, payload, full, source.as_ref());
        if let Some(object) = object {
            self.all.insert(key, object);
        }
        let (version, results, payload) = performed.map_err(Failure::Refused)?;
        Ok(Done {
            version,
            results,
            payload,
        })
    }
}
