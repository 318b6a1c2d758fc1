//! Decides on a request, given what was read for it. Pure: the writer of the changes ensures that
//! the object's version has not changed.

use super::layout;
use super::record::{Head, HeldRecord, LeaseRecord, StepRecord};
use super::state::State;
use bytes::Bytes;
use nacre_types::{Epoch, Name};
use nacre_wire::Wire;
use nacre_wire::meta::draft::{Draft, bytes_of, holds, page, within};
use nacre_wire::meta::form;
use nacre_wire::msg::meta::{
    META_ADMIN, META_SETTINGS, META_VALUE_BYTES_MAX, MetaCall, MetaError, MetaEvent, MetaLease,
    MetaOp, MetaResult,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Most bytes of all keys and values together.
pub const BYTES_MAX: u64 = 64 << 20;
/// Most keys: Ceph warns about omaps with twice as many entries.
pub const KEYS_MAX: u64 = 100_000;
/// Most leases: a client that looks for silent ones reads all.
pub const LEASES_MAX: u64 = 1_000;
/// Most keys changed by one transaction: they form one entry of the log.
pub const CHANGES_MAX: usize = 10_000;

/// What to write, atomically.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Entries to set.
    pub set: BTreeMap<Bytes, Bytes>,
    /// Entries to remove.
    pub remove: BTreeSet<Bytes>,
}
impl Changes {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }
    fn set(&mut self, entry: Bytes, value: &impl Wire) {
        self.set.insert(entry, value.to_bytes().into());
    }
}

/// The decision on a request; see the module head.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The store's revision after it.
    pub revision: u64,
    /// The result, once the changes are written.
    pub result: MetaResult,
    /// The changes to write.
    pub changes: Changes,
}

fn invalid(why: impl Into<String>) -> MetaError {
    MetaError::Invalid { why: why.into() }
}
fn lacks(capability: &str, instead: &str) -> MetaError {
    invalid(format!(
        "service metadata on a Ceph cluster cannot do that (capability `{capability}`): {instead}"
    ))
}

/// Checks everything that can be refused before reading.
///
/// # Errors
/// The request is invalid, too large, not supported by this engine, or reserved for `admin`.
pub fn admit(who: &Name, call: &MetaCall) -> Result<(), MetaError> {
    form::bounds(call)?;
    match call {
        MetaCall::Transact {
            then, otherwise, ..
        } => {
            admit_ops(who, then)?;
            admit_ops(who, otherwise)
        }
        MetaCall::Grant { ttl_ms } => form::ttl(*ttl_ms),
        _ => Ok(()),
    }
}

fn admit_ops(who: &Name, ops: &[MetaOp]) -> Result<(), MetaError> {
    form::sets_once(ops)?;
    for op in ops {
        let namespace = match op {
            MetaOp::Get { .. } => continue,
            MetaOp::Put { key, value, .. } => {
                let namespace = form::key(key)?;
                if value.len() as u64 > META_VALUE_BYTES_MAX {
                    return Err(MetaError::TooLarge {
                        what: format!("value of `{key}`"),
                        limit: META_VALUE_BYTES_MAX,
                    });
                }
                if form::program_of(key).is_some() {
                    return Err(lacks(
                        "meta_programs",
                        "Ceph's monitors run no programs that judge or follow changes",
                    ));
                }
                if let Some(of) = form::settings_of(key) {
                    settings(&of, value)?;
                }
                namespace
            }
            MetaOp::Delete { span } => form::deletion(span)?,
        };
        if namespace.as_bytes() == META_SETTINGS.as_bytes()
            && who.as_bytes() != META_ADMIN.as_bytes()
        {
            let what = format!("write keys of `{namespace}`");
            return Err(MetaError::Denied {
                who: who.clone(),
                what,
            });
        }
    }
    Ok(())
}

/// A namespace's settings could only be enforced by Ceph.
fn settings(namespace: &Name, value: &[u8]) -> Result<(), MetaError> {
    let wrong = |why: &str| invalid(format!("namespace `{namespace}`: {why}"));
    let value: Value =
        serde_json::from_slice(value).map_err(|_| wrong("settings are a JSON object"))?;
    let fields = value
        .as_object()
        .ok_or_else(|| wrong("settings are a JSON object"))?;
    let everybody = serde_json::json!(["*"]);
    for (field, value) in fields {
        match field.as_str() {
            "readers" | "writers" if *value == everybody => {}
            "readers" | "writers" => {
                return Err(lacks(
                    "meta_access",
                    "a client could read and write around it; Ceph's own capabilities for the pool say who may",
                ));
            }
            "validator" if value.is_null() => {}
            "triggers" if value.as_array().is_some_and(Vec::is_empty) => {}
            "validator" | "triggers" => {
                return Err(lacks(
                    "meta_programs",
                    "Ceph's monitors run no programs that judge or follow changes",
                ));
            }
            "quota_bytes" | "keys_max" | "value_bytes_max" => {
                return Err(lacks(
                    "meta_quotas",
                    "a namespace there has no bounds but those of all metadata together",
                ));
            }
            other => return Err(wrong(&format!("settings have no field `{other}`"))),
        }
    }
    Ok(())
}

/// Whether this client owns a lease.
fn owned<'s>(state: &'s State, who: &Name, lease: u64) -> Result<&'s LeaseRecord, MetaError> {
    let record = state
        .leases
        .get(&lease)
        .ok_or(MetaError::NoSuchLease { lease })?;
    if record.owner != *who && who.as_bytes() != META_ADMIN.as_bytes() {
        let what = format!("use lease {lease} of `{}`", record.owner);
        return Err(MetaError::Denied {
            who: who.clone(),
            what,
        });
    }
    Ok(record)
}

/// Decides on a request that passed [`admit`]; `state` has what [`super::needs::Needs::of`] asks
/// for.
///
/// # Errors
/// The request is refused.
pub fn decide(state: &State, who: &Name, call: &MetaCall) -> Result<Decision, MetaError> {
    let mut head = state.head.clone();
    let mut changes = Changes::default();
    let result = match call {
        MetaCall::Transact {
            compares,
            then,
            otherwise,
        } => {
            return transact(
                state,
                who,
                compares.iter().all(|compare| holds(&state.pairs, compare)),
                then,
                otherwise,
            );
        }
        MetaCall::Range {
            span,
            limit,
            keys_only,
            ..
        } => {
            let (pairs, more) = page(within(&state.pairs, span), *limit, *keys_only);
            MetaResult::Ranged {
                pairs,
                more: more || state.more,
            }
        }
        MetaCall::Grant { ttl_ms } => {
            if head.leases >= LEASES_MAX {
                let (namespace, what) = (Name::default(), "leases".to_owned());
                return Err(MetaError::QuotaExceeded {
                    namespace,
                    what,
                    limit: LEASES_MAX,
                });
            }
            head.last_lease += 1;
            head.leases += 1;
            let record = LeaseRecord {
                ttl_ms: *ttl_ms,
                owner: who.clone(),
                renewals: 0,
            };
            changes.set(layout::lease(head.last_lease), &record);
            changes.set(Bytes::from_static(layout::HEAD), &head);
            MetaResult::Granted {
                lease: head.last_lease,
                ttl_ms: *ttl_ms,
            }
        }
        MetaCall::KeepAlive { lease } => {
            let mut record = owned(state, who, *lease)?.clone();
            // It only has to differ.
            record.renewals = record.renewals.wrapping_add(1);
            changes.set(layout::lease(*lease), &record);
            MetaResult::Alive {
                lease: *lease,
                ttl_ms: record.ttl_ms,
            }
        }
        MetaCall::Revoke { lease } => {
            owned(state, who, *lease)?;
            return Ok(ended(state, *lease));
        }
        MetaCall::Leases {} => {
            let lease = |(lease, record): (&u64, &LeaseRecord)| MetaLease {
                lease: *lease,
                ttl_ms: record.ttl_ms,
                owner: record.owner.clone(),
                keys: state.held.get(lease).map_or(0, |keys| keys.len() as u64),
            };
            MetaResult::Leases {
                leases: state.leases.iter().map(lease).collect(),
            }
        }
    };
    Ok(Decision {
        revision: head.revision,
        result,
        changes,
    })
}

/// Decides on the end of a lease whose owner was silent; `None`: it is alive, or has ended already.
#[must_use]
pub fn expire(state: &State, lease: u64, renewals: u64) -> Option<Decision> {
    state
        .leases
        .get(&lease)
        .filter(|record| record.renewals == renewals)?;
    Some(ended(state, lease))
}

fn transact(
    state: &State,
    who: &Name,
    succeeded: bool,
    then: &[MetaOp],
    otherwise: &[MetaOp],
) -> Result<Decision, MetaError> {
    let ops = if succeeded { then } else { otherwise };
    // Includes the branch that is not taken: what a request may do does not depend on what others
    // did.
    for op in then.iter().chain(otherwise) {
        if let MetaOp::Put {
            lease: lease @ 1.., ..
        } = op
            && state.leases.contains_key(lease)
        {
            owned(state, who, *lease)?;
        }
    }
    let mut draft = Draft::new(&state.pairs, state.head.revision + 1, Epoch(0));
    let mut answers = Vec::with_capacity(ops.len());
    for op in ops {
        answers.push(draft.run(op, |lease| state.leases.contains_key(&lease))?);
    }
    let events = draft.events();
    if events.len() > CHANGES_MAX {
        return Err(invalid(format!(
            "this would change {} keys at once, and {CHANGES_MAX} is the most there; do it in parts",
            events.len()
        )));
    }
    let (mut head, mut changes) = (state.head.clone(), Changes::default());
    for event in &events {
        let old = state.pairs.get(event.key());
        let new = if let MetaEvent::Put { pair } = event {
            Some(pair)
        } else {
            None
        };
        if let Some(old) = old {
            (head.keys, head.bytes) = (
                head.keys.saturating_sub(1),
                head.bytes.saturating_sub(bytes_of(old)),
            );
            if old.lease != 0 && new.is_none_or(|new| new.lease != old.lease) {
                changes.remove.insert(layout::held(old.lease, &old.key));
            }
        }
        match new {
            Some(pair) => {
                (head.keys, head.bytes) = (head.keys + 1, head.bytes + bytes_of(pair));
                changes.set(layout::key(&pair.key), pair);
                if pair.lease != 0 {
                    changes.set(
                        layout::held(pair.lease, &pair.key),
                        &HeldRecord {
                            bytes: bytes_of(pair),
                        },
                    );
                }
            }
            None => drop(changes.remove.insert(layout::key(event.key()))),
        }
    }
    for (what, now, before, limit) in [
        ("bytes", head.bytes, state.head.bytes, BYTES_MAX),
        ("keys", head.keys, state.head.keys, KEYS_MAX),
    ] {
        // A request that makes it smaller is allowed.
        if now > limit && now > before {
            return Err(MetaError::QuotaExceeded {
                namespace: Name::default(),
                what: what.to_owned(),
                limit,
            });
        }
    }
    log(&mut head, events, &mut changes);
    Ok(Decision {
        revision: head.revision,
        result: MetaResult::Transacted { succeeded, answers },
        changes,
    })
}

/// Ends a lease and deletes its keys.
fn ended(state: &State, lease: u64) -> Decision {
    let (mut head, mut changes, mut events) = (state.head.clone(), Changes::default(), Vec::new());
    let revision = head.revision + 1;
    for (key, held) in state.held.get(&lease).into_iter().flatten() {
        (head.keys, head.bytes) = (
            head.keys.saturating_sub(1),
            head.bytes.saturating_sub(held.bytes),
        );
        changes
            .remove
            .extend([layout::key(key), layout::held(lease, key)]);
        events.push(MetaEvent::Delete {
            key: key.clone(),
            revision,
        });
    }
    let keys = events.len() as u64;
    head.leases = head.leases.saturating_sub(1);
    changes.remove.insert(layout::lease(lease));
    log(&mut head, events, &mut changes);
    // Even if no key was deleted: the number of leases has changed.
    changes.set(Bytes::from_static(layout::HEAD), &head);
    Decision {
        revision: head.revision,
        result: MetaResult::Revoked { keys },
        changes,
    }
}

/// Adds a revision's events to the log, if there are any, and compacts the log.
fn log(head: &mut Head, events: Vec<MetaEvent>, changes: &mut Changes) {
    if events.is_empty() {
        return;
    }
    let step: Bytes = StepRecord { events }.to_bytes().into();
    let gone = head.advance(step.len() as u64);
    changes.remove.extend(gone.map(layout::log));
    changes.set.insert(layout::log(head.revision), step);
    changes.set(Bytes::from_static(layout::HEAD), head);
}
