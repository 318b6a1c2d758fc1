//! Values of the omap's entries (`docs/formats/rados-meta.md`); keys' values are
//! [`nacre_wire::msg::meta::MetaPair`].

use nacre_types::Name;
use nacre_wire::msg::meta::MetaEvent;
use nacre_wire::wire_record;

/// The one entry that every request reads, and every change writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The newest revision; 0: nothing was ever changed.
    pub revision: u64,
    /// Bytes of the log's entries by blocks of 64 revisions, oldest first; the last block is the
    /// newest revision's.
    pub log: Vec<u64>,
    /// The newest lease's number.
    pub last_lease: u64,
    /// Number of leases.
    pub leases: u64,
    /// Number of keys.
    pub keys: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}
wire_record!(Head version 1 compat 1 { revision, log, last_lease, leases, keys, bytes } verify damage);

/// Limit of all counters: anyone with write access to the pool may have written anything, and no
/// real count gets this far.
pub const COUNT_MAX: u64 = 1 << 48;

impl Head {
    /// What is impossible: numbers that would overflow, or a log that does not match the revision.
    fn damage(&self) -> Option<&'static str> {
        let counts = [
            self.revision,
            self.last_lease,
            self.leases,
            self.keys,
            self.bytes,
        ];
        let too_large = counts
            .iter()
            .chain(&self.log)
            .any(|count| *count >= COUNT_MAX);
        let blocks = self.log.len() as u64;
        let strange =
            (blocks == 0) != (self.revision == 0) || blocks > self.revision / super::log::BLOCK + 1;
        (too_large || strange).then_some("head")
    }
}

/// A lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Its duration without a renewal, in milliseconds.
    pub ttl_ms: u64,
    /// The name of the client that owns it.
    pub owner: Name,
    /// Number of renewals: a client that has seen the same number for the lease's duration knows
    /// that its owner is silent.
    pub renewals: u64,
}
wire_record!(LeaseRecord version 1 compat 1 { ttl_ms, owner, renewals });

/// A key attached to a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldRecord {
    /// The key's share of [`Head::bytes`].
    pub bytes: u64,
}
wire_record!(HeldRecord version 1 compat 1 { bytes });

/// The changes of a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepRecord {
    /// Ordered by key.
    pub events: Vec<MetaEvent>,
}
wire_record!(StepRecord version 1 compat 1 { events });
