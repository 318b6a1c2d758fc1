//! Instances of clients: their addresses as known to OSDs, and which are fenced.
//!
//! ```text
//!  an instance ──address──▶ clients/NUMBER of the metadata ──▶ sends its first operation
//!  a fence ──"fenced up to here"──▶ the same key ──▶ blocklist: the addresses of those instances
//!                                                └──▶ this client's newest map
//! ```
//! Ceph fences clients by address, services by number and instance. Both changes of a key are
//! compare-and-set: an instance that registers after its own fence is refused, and never sends
//! anything; one that registered before has its address there. Each operation after a fence is sent
//! with a map that contains it, so no OSD executes that operation and afterwards requests of the
//! fenced instance.
//!
//! Keys of fenced clients are removed some time after their addresses have left the blocklist.
//!
//! Invariant: a fence is permanent: the fenced instance number never decreases.

use crate::handle::Rados;
use crate::meta::MetaStore;
use crate::meta::place::Locate;
use nacre_client::{Driven, Failure, MetaFailure};
use nacre_types::{ClientId, Instance, Name};
use nacre_wire::msg::meta::{
    MetaCall, MetaCompare, MetaOp, MetaPair, MetaRelation, MetaResult, MetaSpan, MetaTarget,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The namespace of the keys.
const NAMESPACE: &str = "clients/";
/// How long addresses stay on the blocklist. A client that was paused for longer could resend what
/// it had begun.
const BLOCKED: Duration = Duration::from_hours(24);
/// How long keys of fenced clients are kept.
const KEPT: Duration = Duration::from_hours(48);
/// The name that changes keys: a lease's owner matters, and these have no leases.
pub(crate) const WHO: &str = "nacre";

/// What is known about a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The last fenced instance, and when it was fenced, in seconds since 1970.
    fenced: Option<(Instance, u64)>,
    /// The address of each instance.
    addresses: BTreeMap<Instance, String>,
}

impl Record {
    /// Registers an instance; returns whether it is allowed.
    pub fn come(&mut self, instance: Instance, address: &str) -> bool {
        if self.fenced.is_some_and(|(fenced, _)| instance <= fenced) {
            return false;
        }
        self.addresses.insert(instance, address.to_owned());
        true
    }
    /// An instance has left with nothing in flight; returns whether anything remains to be
    /// recorded.
    pub fn go(&mut self, instance: Instance) -> bool {
        self.addresses.remove(&instance);
        self.fenced.is_some() || !self.addresses.is_empty()
    }
    /// Fences an instance and all earlier ones; returns their addresses.
    pub fn fence(&mut self, instance: Instance, now_s: u64) -> Vec<String> {
        let last = self
            .fenced
            .map_or(instance, |(fenced, _)| fenced.max(instance));
        self.fenced = Some((last, now_s));
        self.addresses
            .range(..=instance)
            .map(|(_, address)| address.clone())
            .collect()
    }
    /// Whether the record is no longer needed.
    fn is_over(&self, now_s: u64) -> bool {
        self.fenced.is_some_and(|(last, at)| {
            now_s.saturating_sub(at) > KEPT.as_secs()
                && self.addresses.keys().all(|instance| *instance <= last)
        })
    }

    fn text(&self) -> String {
        let addresses: BTreeMap<String, &String> = self
            .addresses
            .iter()
            .map(|(instance, address)| (instance.0.to_string(), address))
            .collect();
        let (fenced, at) = self.fenced.unzip();
        json!({ "addresses": addresses, "fenced": fenced.map(|fenced| fenced.0), "fenced_at_s": at }).to_string()
    }
    fn parse(text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let address = |(instance, address): (&String, &Value)| {
            Some((
                Instance(instance.parse().ok()?),
                address.as_str()?.to_owned(),
            ))
        };
        let addresses = value["addresses"]
            .as_object()?
            .iter()
            .map(address)
            .collect::<Option<_>>()?;
        let fenced = value["fenced"]
            .as_u64()
            .map(Instance)
            .zip(value["fenced_at_s"].as_u64());
        Some(Self { fenced, addresses })
    }
}

fn key(client: ClientId) -> Name {
    Name::from(&*format!("{NAMESPACE}{:016x}", client.0))
}

fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// Changes a client's record.
fn change<D: Driven, L: Locate, T>(
    store: &mut MetaStore<D, L>,
    client: ClientId,
    mut how: impl FnMut(Record) -> (Record, T),
) -> Result<T, MetaFailure> {
    let key = key(client);
    loop {
        let (mut pairs, _) = store.list(&MetaSpan::Key { key: key.clone() })?;
        let pair = pairs.pop();
        // An unreadable record is another program's; a fence must not treat it as empty.
        let record = match &pair {
            Some(MetaPair { value, .. }) => Record::parse(value).ok_or_else(|| {
                let why = format!("`{key}` has a value that this program cannot read: is it older than the others?");
                MetaFailure::Refused(nacre_wire::msg::meta::MetaError::Invalid { why })
            })?,
            None => Record::default(),
        };
        let (record, came) = how(record);
        let target = MetaTarget::Modified {
            number: pair.map_or(0, |pair| pair.modified),
        };
        let then = MetaOp::Put {
            key: key.clone(),
            value: record.text().into_bytes().into(),
            lease: 0,
        };
        let compares = vec![MetaCompare {
            key: key.clone(),
            target,
            relation: MetaRelation::Equal {},
        }];
        let (_, result) = store.call(&MetaCall::Transact {
            compares,
            then: vec![then],
            otherwise: Vec::new(),
        })?;
        if matches!(
            result,
            MetaResult::Transacted {
                succeeded: true,
                ..
            }
        ) {
            return Ok(came);
        }
    }
}

/// Registers an instance. `None`: it was fenced, and may send nothing; otherwise the client's
/// record from now on.
///
/// # Errors
/// The metadata cannot be changed.
pub fn come<D: Driven, L: Locate>(
    store: &mut MetaStore<D, L>,
    client: ClientId,
    instance: Instance,
    address: &str,
) -> Result<Option<Record>, MetaFailure> {
    change(store, client, |mut record| {
        let may = record.come(instance, address);
        (record.clone(), may.then_some(record))
    })
}

/// The metadata request of an instance that leaves with nothing in flight. Has no effect if others
/// have changed the record since it registered.
#[must_use]
pub fn gone(client: ClientId, instance: Instance, mut record: Record) -> MetaCall {
    let key = key(client);
    let target = MetaTarget::Value {
        value: record.text().into_bytes().into(),
    };
    let compares = vec![MetaCompare {
        key: key.clone(),
        target,
        relation: MetaRelation::Equal {},
    }];
    let then = if record.go(instance) {
        MetaOp::Put {
            key,
            value: record.text().into_bytes().into(),
            lease: 0,
        }
    } else {
        MetaOp::Delete {
            span: MetaSpan::Key { key },
        }
    };
    MetaCall::Transact {
        compares,
        then: vec![then],
        otherwise: Vec::new(),
    }
}

/// Removes keys that are no longer needed.
fn prune<D: Driven, L: Locate>(store: &mut MetaStore<D, L>) -> Result<(), MetaFailure> {
    let (pairs, _) = store.list(&MetaSpan::Prefix {
        prefix: NAMESPACE.into(),
    })?;
    for MetaPair {
        key,
        value,
        modified,
        ..
    } in pairs
    {
        if Record::parse(&value).is_some_and(|record| record.is_over(now_s())) {
            let target = MetaTarget::Modified { number: modified };
            let compares = vec![MetaCompare {
                key: key.clone(),
                target,
                relation: MetaRelation::Equal {},
            }];
            let then = vec![MetaOp::Delete {
                span: MetaSpan::Key { key },
            }];
            store.call(&MetaCall::Transact {
                compares,
                then,
                otherwise: Vec::new(),
            })?;
        }
    }
    Ok(())
}

/// Fences an instance of a client and all earlier ones. Returns the epoch of a map that contains
/// the fence, and that this connection has. Waits for the cluster.
///
/// # Errors
/// The fence is not in force.
pub fn fence(rados: &Rados, client: ClientId, instance: Instance) -> Result<u64, Failure> {
    let foreign = |why: String| Failure::Foreign {
        code: 0,
        why: format!("fencing {client}: {why}"),
    };
    let mut store = MetaStore::connect(rados.clone(), WHO).quiet();
    let fenced = change(&mut store, client, |mut record| {
        let addresses = record.fence(instance, now_s());
        (record, addresses)
    });
    for address in fenced.map_err(|failure| foreign(failure.to_string()))? {
        rados
            .blocklist(&address, BLOCKED)
            .map_err(|error| foreign(error.why))?;
    }
    let epoch = rados.newest_epoch().map_err(|error| foreign(error.why))?;
    rados
        .wait_for_newest_map()
        .map_err(|error| foreign(error.why))?;
    // What is not removed now is removed with the next fence.
    let _ = prune(&mut store);
    Ok(epoch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::fake::{Fake, Here, world};

    const ME: ClientId = ClientId(7);

    /// Whichever comes first, an instance or its fence: either sees the other.
    #[test]
    fn a_fence_finds_the_addresses_of_all_that_came_and_keeps_out_who_comes_later() {
        let world = world();
        let mut store = MetaStore::new(Fake::new(&world), Here(world.clone()), WHO);
        let may = |store: &mut MetaStore<Fake, Here>, client, instance, address: &str| {
            come(store, client, Instance(instance), address)
                .expect("written")
                .is_some()
        };
        assert!(may(&mut store, ME, 1, "a:0/1") && may(&mut store, ME, 2, "a:0/2"));
        let fence = |store: &mut MetaStore<Fake, Here>, client, instance| {
            let fenced = change(store, client, |mut record| {
                let addresses = record.fence(Instance(instance), 0);
                (record, addresses)
            });
            fenced.expect("written")
        };
        assert_eq!(fence(&mut store, ME, 1), ["a:0/1"]);
        assert_eq!(fence(&mut store, ME, 2), ["a:0/1", "a:0/2"]);
        assert_eq!(fence(&mut store, ME, 1), ["a:0/1"], "again, by another one");
        assert!(!may(&mut store, ME, 2, "a:0/9"), "it never goes down");
        let third = come(&mut store, ME, Instance(3), "a:0/3")
            .expect("written")
            .expect("it is not fenced");
        assert!(
            fence(&mut store, ClientId(8), 5).is_empty(),
            "it has not come"
        );
        assert!(!may(&mut store, ClientId(8), 5, "b:0/5"));
        let left = || MetaStore::new(Fake::new(&world), Here(world.clone()), WHO);
        let keys = |store: &mut MetaStore<Fake, Here>| {
            store
                .list(&MetaSpan::Prefix {
                    prefix: NAMESPACE.into(),
                })
                .expect("listed")
                .0
                .len()
        };
        assert_eq!(keys(&mut left()), 2);
        prune(&mut store).expect("written");
        assert_eq!(
            keys(&mut left()),
            1,
            "of the one that still has an instance"
        );
        store.call(&gone(ME, Instance(3), third)).expect("written");
        prune(&mut store).expect("written");
        assert_eq!(keys(&mut left()), 0);
    }

    #[test]
    fn who_goes_by_himself_leaves_nothing() {
        let world = world();
        let mut store = MetaStore::new(Fake::new(&world), Here(world.clone()), WHO);
        let record = come(&mut store, ME, Instance(1), "a:0/1")
            .expect("written")
            .expect("it is not fenced");
        store.call(&gone(ME, Instance(1), record)).expect("written");
        assert!(
            store
                .list(&MetaSpan::Prefix {
                    prefix: NAMESPACE.into()
                })
                .expect("listed")
                .0
                .is_empty()
        );
    }

    #[test]
    fn a_record_reads_as_written_and_another_is_none() {
        let mut record = Record::default();
        for (instance, address) in [(1, "a:0/1"), (12, "[::1]:0/2")] {
            assert_eq!(
                Record::parse(record.text().as_bytes()),
                Some(record.clone())
            );
            assert!(record.come(Instance(instance), address));
        }
        record.fence(Instance(3), 9);
        assert_eq!(Record::parse(record.text().as_bytes()), Some(record));
        assert_eq!(Record::parse(b"{}"), None);
        assert_eq!(Record::parse(br#"{"addresses": {"x": "y"}}"#), None);
    }
}
