//! Values of the map's entries. `docs/formats/rados-meta.md`; keys' values are
//! [`nacre_wire::msg::meta::MetaPair`].

use nacre_types::Name;
use nacre_wire::msg::meta::MetaEvent;
use nacre_wire::wire_record;

/// The one entry that every request reads, and every change writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The newest revision; 0: nothing was ever changed.
    pub revision: u64,
    /// Bytes of the log's entries by block of 64 revisions, the oldest kept first; the last block
    /// is the newest revision's.
    pub log: Vec<u64>,
    /// The newest lease's number.
    pub last_lease: u64,
    /// Leases that there are.
    pub leases: u64,
    /// Keys that there are.
    pub keys: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}
wire_record!(Head version 1 compat 1 { revision, log, last_lease, leases, keys, bytes } verify damage);

/// What is counted stays below this: whoever may write the pool may have written anything, and
/// nothing counts so far.
pub const COUNT_MAX: u64 = 1 << 48;

impl Head {
    /// What cannot be: numbers to which one could not be added, or a log that is not the
    /// revision's.
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
    /// How long it lasts without a renewal, in milliseconds.
    pub ttl_ms: u64,
    /// The name of the client that took it.
    pub owner: Name,
    /// How often it was renewed: whoever has seen the same number for the lease's time knows that
    /// its owner is silent.
    pub renewals: u64,
}
wire_record!(LeaseRecord version 1 compat 1 { ttl_ms, owner, renewals });

/// A key that goes with a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldRecord {
    /// What the key counts for in [`Head::bytes`].
    pub bytes: u64,
}
wire_record!(HeldRecord version 1 compat 1 { bytes });

/// What a revision changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepRecord {
    /// By key.
    pub events: Vec<MetaEvent>,
}
wire_record!(StepRecord version 1 compat 1 { events });
