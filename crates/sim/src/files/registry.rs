//! The monitors' keys as services see them: transactions, leases by the registry's own clock,
//! events.

use nacre_client::MetaFailure;
use nacre_types::{Epoch, Name};
use nacre_wire::msg::meta::{
    MetaAnswer, MetaCall, MetaCompare, MetaError, MetaEvent, MetaOp, MetaPair, MetaRelation,
    MetaResult, MetaTarget,
};
use std::collections::BTreeMap;

/// See the module head.
#[derive(Debug, Default)]
pub struct Registry {
    keys: BTreeMap<Name, MetaPair>,
    revision: u64,
    /// Each lease's duration and expiry, in virtual nanoseconds.
    leases: BTreeMap<u64, (u64, u64)>,
    /// Events not delivered yet.
    pub events: Vec<MetaEvent>,
}

impl Registry {
    pub const fn revision(&self) -> u64 {
        self.revision
    }
    /// Deletes the keys of expired leases.
    pub fn expire(&mut self, now: u64) {
        let over: Vec<u64> = self
            .leases
            .iter()
            .filter(|(_, (_, until))| *until <= now)
            .map(|(id, _)| *id)
            .collect();
        over.into_iter().for_each(|lease| self.end(lease));
    }
    /// There was no quorum for a while: no lease expires because of that.
    pub fn renew_all(&mut self, now: u64) {
        for (ttl, until) in self.leases.values_mut() {
            *until = (*until).max(now + *ttl);
        }
    }
    fn end(&mut self, lease: u64) {
        self.leases.remove(&lease);
        let keys: Vec<Name> = self
            .keys
            .values()
            .filter(|pair| pair.lease == lease)
            .map(|pair| pair.key.clone())
            .collect();
        if !keys.is_empty() {
            self.revision += 1;
        }
        for key in keys {
            self.delete(key);
        }
    }
    fn delete(&mut self, key: Name) -> bool {
        let had = self.keys.remove(&key).is_some();
        if had {
            self.events.push(MetaEvent::Delete {
                key,
                revision: self.revision,
            });
        }
        had
    }

    fn holds(&self, compare: &MetaCompare) -> bool {
        assert_eq!(compare.relation, MetaRelation::Equal {});
        let pair = self.keys.get(&compare.key);
        match &compare.target {
            MetaTarget::Value { value } => pair.is_some_and(|pair| pair.value == *value),
            MetaTarget::Version { number } => pair.map_or(0, |pair| pair.version) == *number,
            MetaTarget::Modified { number } => pair.map_or(0, |pair| pair.modified) == *number,
            other => panic!("no service compares {other:?}"),
        }
    }

    /// Executes a request.
    pub fn ask(&mut self, now: u64, call: MetaCall) -> Result<MetaResult, MetaFailure> {
        match call {
            MetaCall::Transact {
                compares,
                then,
                otherwise,
            } => {
                let succeeded = compares.iter().all(|compare| self.holds(compare));
                let ops = if succeeded { then } else { otherwise };
                for op in &ops {
                    if let MetaOp::Put { lease, .. } = op
                        && *lease != 0
                        && !self.leases.contains_key(lease)
                    {
                        return Err(MetaFailure::Refused(MetaError::NoSuchLease {
                            lease: *lease,
                        }));
                    }
                }
                if !ops.is_empty() {
                    self.revision += 1;
                }
                let answers = ops.into_iter().map(|op| self.perform(op)).collect();
                Ok(MetaResult::Transacted { succeeded, answers })
            }
            MetaCall::Range { span, .. } => {
                let pairs = self
                    .keys
                    .values()
                    .filter(|pair| span.has(&pair.key))
                    .cloned()
                    .collect();
                Ok(MetaResult::Ranged { pairs, more: false })
            }
            MetaCall::Grant { ttl_ms } => {
                self.revision += 1;
                let lease = self.revision;
                self.leases
                    .insert(lease, (ttl_ms * 1_000_000, now + ttl_ms * 1_000_000));
                Ok(MetaResult::Granted { lease, ttl_ms })
            }
            MetaCall::KeepAlive { lease } => match self.leases.get_mut(&lease) {
                Some((ttl, until)) => {
                    *until = now + *ttl;
                    Ok(MetaResult::Alive {
                        lease,
                        ttl_ms: *ttl / 1_000_000,
                    })
                }
                None => Err(MetaFailure::Refused(MetaError::NoSuchLease { lease })),
            },
            MetaCall::Revoke { lease } => {
                self.end(lease);
                Ok(MetaResult::Revoked { keys: 0 })
            }
            MetaCall::Leases {} => unreachable!("no service asks for that"),
        }
    }

    fn perform(&mut self, op: MetaOp) -> MetaAnswer {
        match op {
            MetaOp::Put { key, value, lease } => {
                let revision = self.revision;
                let before = self.keys.get(&key);
                let (created, version) =
                    before.map_or((revision, 0), |pair| (pair.created, pair.version));
                let modified = before.map_or(0, |pair| pair.modified);
                let version = version + 1;
                let pair = MetaPair {
                    key: key.clone(),
                    value,
                    created,
                    modified: revision,
                    version,
                    lease,
                    epoch: Epoch::NONE,
                };
                self.events.push(MetaEvent::Put { pair: pair.clone() });
                self.keys.insert(key, pair);
                MetaAnswer::Put { before: modified }
            }
            MetaOp::Delete { span } => {
                let keys: Vec<Name> = self
                    .keys
                    .keys()
                    .filter(|key| span.has(key))
                    .cloned()
                    .collect();
                let count = keys
                    .into_iter()
                    .filter(|key| self.delete(key.clone()))
                    .count();
                MetaAnswer::Deleted { keys: count as u64 }
            }
            MetaOp::Get { .. } => unreachable!("services ask for ranges"),
        }
    }
}
