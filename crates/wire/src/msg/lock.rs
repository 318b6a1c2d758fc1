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

/// Who holds a lock: a client's life and a cookie of his choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockOwner {
    /// Who.
    pub client: ClientId,
    /// In which life.
    pub instance: Instance,
    /// Which of his threads or tasks.
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
    /// Who.
    pub owner: LockOwner,
    /// Fencing token: the object's version at the grant. Later grants have greater tokens;
    /// renewing keeps it.
    pub token: Version,
    /// The map's epoch at the grant.
    pub granted: Epoch,
    /// A contender may take over from a holder silent for so many milliseconds; 0 is never.
    pub lease_ms: u32,
    /// For people.
    pub description: String,
}
wire_record!(LockHolder version 1 compat 1 { owner, token, granted, lease_ms, description });

/// What an object's replicated state says of one lock; the attribute's name says which. It is there
/// while somebody holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockRecord {
    /// Several may hold it.
    pub shared: bool,
    /// Who does, in order of their grants.
    pub holders: Vec<LockHolder>,
}
wire_record!(LockRecord version 1 compat 1 { shared, holders });

/// A lock, in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockEntry {
    /// Which.
    pub name: Name,
    /// What is recorded.
    pub record: LockRecord,
}
wire_fields!(LockEntry { name, record });
