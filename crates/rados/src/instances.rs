//! Instances of clients: by which addresses OSDs know them, and which are fenced.
//!
//! ```text
//!  an instance ──address──▶ clients/NUMBER of the metadata ──▶ sends its first operation
//!  a fence ──"fenced up to here"──▶ the same key ──▶ blocklist: the addresses that it had
//!                                                └──▶ this client's newest map
//! ```
//! Ceph ends clients by address, services by number and instance. Both changes of a key are
//! compare-and-set: an instance that comes after its own fence is refused, and never sends
//! anything; one that came before has its address there. Each operation after a fence is sent with
//! a map that has it, so no OSD takes that operation and still executes what the fenced instance
//! sent.
//!
//! Keys of fenced clients go some time after their addresses have left the blocklist.
//!
//! Invariant: what was fenced stays fenced: the number never goes down.

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
/// Addresses stay on the blocklist for so long. A client that stood still for longer could send
/// again what it had begun.
const BLOCKED: Duration = Duration::from_hours(24);
/// Keys of fenced clients are kept for so long.
const KEPT: Duration = Duration::from_hours(48);
/// Who changes keys: a lease's owner matters, and these have none.
pub(crate) const WHO: &str = "nacre";

/// What is known of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The last instance that is fenced, and when it was, in seconds since 1970.
    fenced: Option<(Instance, u64)>,
    /// By which address each is known.
    addresses: BTreeMap<Instance, String>,
}

impl Record {
    /// An instance has come; whether it may.
    pub fn come(&mut self, instance: Instance, address: &str) -> bool {
        if self.fenced.is_some_and(|(fenced, _)| instance <= fenced) {
            return false;
        }
        self.addresses.insert(instance, address.to_owned());
        true
    }
    /// It has gone, with nothing in flight; whether anything is left to be known.
    pub fn go(&mut self, instance: Instance) -> bool {
        self.addresses.remove(&instance);
        self.fenced.is_some() || !self.addresses.is_empty()
    }
    /// An instance and all earlier ones are fenced now; the addresses that they had.
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
    /// Nothing in it matters any more.
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
        // What cannot be read is of another program; a fence must not take it for nothing.
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

/// An instance has come. `None`: it was fenced, and may send nothing; else what is known of its
/// client from now on.
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

/// What is asked of the metadata when an instance goes that has nothing in flight. Does nothing if
/// others have written there since it came.
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

/// Removes keys in which nothing matters any more.
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

/// Fences an instance of a client and all earlier ones. Returns a number of a map that has it, and
/// that this connection has. Waits for the cluster.
///
/// # Errors
/// It is not in force.
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
    // What is not removed now is with the next fence.
    let _ = prune(&mut store);
    Ok(epoch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::fake::{Fake, Here, world};

    const ME: ClientId = ClientId(7);

    /// Whichever comes first, an instance or its fence: either has the other.
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
