//! Clients' claims on an object: watches and locks (CHECKLIST CEPH-09; DESIGN §3, Fencing).
//!
//! ```text
//!  attribute  w | client u64 BE | instance u64 BE | cookie u64 BE  ─▶ WatchRecord
//!             l | name of the lock                                 ─▶ LockRecord
//! ```
//! Claims are replicated state of the object like its attributes: they survive the primary, follow
//! recovery and backfill, and go with the object when it is deleted. No clock is in them: when
//! somebody was last heard only the primary knows, and forgets (`osd/src/pg/watch.rs`).

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

/// Watches are stored behind this prefix.
pub const WATCH_ATTR: &[u8] = b"w";
/// Locks are stored behind this prefix.
pub const LOCK_ATTR: &[u8] = b"l";

/// See the module head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claims {
    /// Who watches.
    pub watches: BTreeMap<WatcherId, WatchRecord>,
    /// Locks that somebody holds, by name.
    pub locks: BTreeMap<Name, LockRecord>,
}

/// What an operation's claims are judged by, beside the object itself.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// Who asks.
    pub client: ClientId,
    /// In which life.
    pub instance: Instance,
    /// The version that the object will have if the operation changes it.
    pub token: Version,
    /// The map's epoch here.
    pub epoch: Epoch,
    /// Holders of locks that a contender may push out: fenced, or silent for longer than this
    /// lock's lease. The same owner may hold another lock of the object for longer.
    pub free: BTreeSet<(Name, LockOwner)>,
}

/// An object whose claims an operation asks about or changes.
pub struct Claiming<'a> {
    /// By which they are judged.
    pub scene: &'a Scene,
    /// The object.
    pub context: &'a mut Context,
    /// Of the operation so far.
    pub effects: &'a mut Vec<Effect>,
}

impl Claims {
    /// What an object's stored attributes say.
    pub fn of<'a>(attrs: impl Iterator<Item = (&'a Bytes, &'a Bytes)>) -> Self {
        let mut claims = Self::default();
        for (name, value) in attrs {
            if let Some(id) = name.strip_prefix(WATCH_ATTR).and_then(watcher) {
                // Attributes are under checksums: what cannot be decoded was never written by us.
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

    /// As attributes.
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

    /// Whether nobody claims anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.watches.is_empty() && self.locks.is_empty()
    }

    /// Bytes that they take as attributes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let watch = watch_attr(&WatcherId::default()).as_bytes().len()
            + WatchRecord::default().to_bytes().len();
        let lock = |(name, record): (&Name, &LockRecord)| {
            1 + name.as_bytes().len() + record.to_bytes().len()
        };
        self.watches.len() * watch + self.locks.iter().map(lock).sum::<usize>()
    }
}

/// The attribute of a watch.
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

/// The attribute of a lock.
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
