//! Objects of pools in memory: what services and commands are tried on where objects are not the
//! question.
//!
//! It evaluates as every engine does (`nacre_object::memory`), so it finds no fault in that. The
//! cases of this crate are what does: they say in literal values what an operation returns and
//! leaves.

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
    /// Does all parts of an operation, or none.
    ///
    /// # Errors
    /// As the cluster would refuse it.
    ///
    /// # Panics
    /// If it is about more than one object, but for copies.
    pub fn perform(&mut self, operation: &Operation) -> Result<Done, Failure> {
        self.perform_where(operation, false)
    }

    /// The same; `full`: where there is no room for more.
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
