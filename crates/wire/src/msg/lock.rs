//! Locks on objects: replicated state of the object, fenced by tokens and by the map (DESIGN §3,
//! Fencing; CHECKLIST CEPH-09).

use crate::{wire_fields, wire_record};
use nacre_types::{ClientId, Epoch, Instance, Name, Version};
use std::fmt;

/// Most locks of one object.
pub const LOCKS_MAX: usize = 16;
/// Most holders of one shared lock.
pub const LOCK_HOLDERS_MAX: usize = 64;
/// Longest name of a lock, in bytes.
pub const LOCK_NAME_MAX: usize = 200;
/// Longest description of a holder, in bytes.
pub const LOCK_DESCRIPTION_MAX: usize = 256;

/// Identifies a lock's holder: a client instance and a cookie of its choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockOwner {
    /// The client.
    pub client: ClientId,
    /// Its instance.
    pub instance: Instance,
    /// Identifies one of its threads or tasks.
    pub cookie: u64,
}
wire_fields!(LockOwner {
    client,
    instance,
    cookie
});

impl fmt::Display for LockOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "client.{}/{} cookie {}",
            self.client.0, self.instance.0, self.cookie
        )
    }
}

/// One holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// The holder.
    pub owner: LockOwner,
    /// Fencing token: the object's version at the grant. Later grants have greater tokens;
    /// renewing keeps it.
    pub token: Version,
    /// The map's epoch at the grant.
    pub granted: Epoch,
    /// A contender may take over from a holder silent for this many milliseconds; 0 means never.
    pub lease_ms: u32,
    /// Human-readable description.
    pub description: String,
}
wire_record!(LockHolder version 1 compat 1 { owner, token, granted, lease_ms, description });

/// One lock in an object's replicated state; the attribute's name identifies the lock. It exists
/// while the lock has a holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockRecord {
    /// Whether several may hold it.
    pub shared: bool,
    /// The holders, in order of their grants.
    pub holders: Vec<LockHolder>,
}
wire_record!(LockRecord version 1 compat 1 { shared, holders });

/// A lock, in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockEntry {
    /// The lock's name.
    pub name: Name,
    /// The recorded state.
    pub record: LockRecord,
}
wire_fields!(LockEntry { name, record });
