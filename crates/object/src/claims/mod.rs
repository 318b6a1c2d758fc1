//! Clients' claims on an object: watches and locks (CHECKLIST CEPH-09; DESIGN §3, Fencing).
//!
//! ```text
//!  attribute  w | client u64 BE | instance u64 BE | cookie u64 BE  ─▶ WatchRecord
//!             l | name of the lock                                 ─▶ LockRecord
//! ```
//! Claims are replicated state of the object like its attributes: they survive a change of the
//! primary, follow recovery and backfill, and are deleted with the object. They contain no clock:
//! the time at which a client was last heard from is known only to the primary, in memory
//! (`osd/src/pg/watch.rs`).

pub mod lock;
pub mod watch;

use crate::context::Context;
use bytes::Bytes;
use nacre_types::{ClientId, Epoch, Instance, Name, Version};
use nacre_wire::Wire;
use nacre_wire::msg::lock::{LockOwner, LockRecord};
use nacre_wire::msg::replication::Effect;
use nacre_wire::msg::watch::{WatchRecord, WatcherId};
use std::collections::{BTreeMap, BTreeSet};

/// Prefix of the attributes with watches.
pub const WATCH_ATTR: &[u8] = b"w";
/// Prefix of the attributes with locks.
pub const LOCK_ATTR: &[u8] = b"l";

/// See the module head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claims {
    /// The watches.
    pub watches: BTreeMap<WatcherId, WatchRecord>,
    /// Locks that are held, by name.
    pub locks: BTreeMap<Name, LockRecord>,
}

/// What decides about an operation's claims, besides the object itself.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// The requesting client.
    pub client: ClientId,
    /// Its instance.
    pub instance: Instance,
    /// The version that the object will have if the operation changes it.
    pub token: Version,
    /// The epoch of this OSD's map.
    pub epoch: Epoch,
    /// Lock holders that a contender may replace: fenced, or silent for longer than this lock's
    /// lease. The same owner may hold another lock of the object for longer.
    pub free: BTreeSet<(Name, LockOwner)>,
}

/// An object whose claims an operation reads or changes.
pub struct Claiming<'a> {
    /// What decides about the claims.
    pub scene: &'a Scene,
    /// The object.
    pub context: &'a mut Context,
    /// The operation's effects so far.
    pub effects: &'a mut Vec<Effect>,
}

impl Claims {
    /// Decodes the claims in an object's stored attributes.
    pub fn of<'a>(attrs: impl Iterator<Item = (&'a Bytes, &'a Bytes)>) -> Self {
        let mut claims = Self::default();
        for (name, value) in attrs {
            if let Some(id) = name.strip_prefix(WATCH_ATTR).and_then(watcher) {
                // Attributes are covered by checksums: one that cannot be decoded was not written
                // by this program.
                claims.watches.extend(
                    WatchRecord::from_bytes(value)
                        .ok()
                        .map(|record| (id, record)),
                );
            } else if let Some(lock) = name.strip_prefix(LOCK_ATTR) {
                claims.locks.extend(
                    LockRecord::from_bytes(value)
                        .ok()
                        .map(|record| (Name::copy(lock), record)),
                );
            }
        }
        claims
    }

    /// The claims as attributes.
    #[must_use]
    pub fn stored(&self) -> Vec<(Name, Bytes)> {
        let watches = self
            .watches
            .iter()
            .map(|(id, record)| (watch_attr(id), record.to_bytes().into()));
        let locks = self
            .locks
            .iter()
            .map(|(name, record)| (lock_attr(name), record.to_bytes().into()));
        watches.chain(locks).collect()
    }

    /// Whether there are no claims.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.watches.is_empty() && self.locks.is_empty()
    }

    /// Bytes that the claims take as attributes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        if self.watches.is_empty() && self.locks.is_empty() {
            return 0;
        }
        let watch = watch_attr(&WatcherId::default()).as_bytes().len()
            + WatchRecord::default().to_bytes().len();
        let lock = |(name, record): (&Name, &LockRecord)| {
            1 + name.as_bytes().len() + record.to_bytes().len()
        };
        self.watches.len() * watch + self.locks.iter().map(lock).sum::<usize>()
    }
}

/// The attribute's name for a watch.
#[must_use]
pub fn watch_attr(id: &WatcherId) -> Name {
    let numbers = [id.client.0, id.instance.0, id.cookie].map(u64::to_be_bytes);
    Name::copy(&[WATCH_ATTR, &numbers.concat()].concat())
}

fn watcher(name: &[u8]) -> Option<WatcherId> {
    let name: &[u8; 24] = name.try_into().ok()?;
    let number = |at: usize| u64::from_be_bytes(name[at..at + 8].try_into().expect("eight bytes"));
    Some(WatcherId {
        client: ClientId(number(0)),
        instance: Instance(number(8)),
        cookie: number(16),
    })
}

/// The attribute's name for a lock.
#[must_use]
pub fn lock_attr(name: &Name) -> Name {
    Name::copy(&[LOCK_ATTR, name.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_reads_back_and_clients_attributes_are_not_taken_for_claims() {
        let id = WatcherId {
            client: ClientId(u64::MAX),
            instance: Instance(2),
            cookie: 3,
        };
        let record = WatchRecord {
            timeout_ms: 4,
            since: Version::NONE,
        };
        let mut claims = Claims::default();
        claims.watches.insert(id, record);
        claims.locks.insert("a lock".into(), LockRecord::default());
        let pair = |name: Name, value: Vec<u8>| {
            (Bytes::copy_from_slice(name.as_bytes()), Bytes::from(value))
        };
        let stored = [
            pair(watch_attr(&id), record.to_bytes()),
            pair(
                lock_attr(&"a lock".into()),
                LockRecord::default().to_bytes(),
            ),
        ];
        let size: usize = stored
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        let others = [
            pair("uw".into(), vec![1]),
            pair("ul".into(), vec![2]),
            pair("_".into(), vec![3]),
        ];
        let all = stored
            .iter()
            .chain(&others)
            .map(|(name, value)| (name, value));
        assert_eq!(Claims::of(all), claims);
        let again = claims
            .stored()
            .into_iter()
            .map(|(name, value)| (Bytes::copy_from_slice(name.as_bytes()), value));
        assert_eq!(again.collect::<Vec<_>>(), stored);
        assert_eq!(claims.bytes(), size);
    }
}
