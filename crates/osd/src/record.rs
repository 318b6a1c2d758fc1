//! What a store says of whose it is.

use crate::key;
use nacre_store::{ObjectStat, Read, Transaction};
use nacre_types::{ClusterId, Instance, OsdId};
use nacre_wire::{Wire, wire_record};

/// Who owns the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonRecord {
    /// Which cluster.
    pub cluster: ClusterId,
    /// Which OSD.
    pub osd: OsdId,
    /// The last instance that was used here: stored before it is.
    pub instance: Instance,
}
wire_record!(DaemonRecord version 1 compat 1 { cluster, osd, instance });

const RECORD_ATTR: &[u8] = b"daemon";

impl DaemonRecord {
    /// Stores it.
    #[must_use]
    pub fn save(&self) -> Transaction {
        Transaction::new().set_attr(key::daemon_key(), RECORD_ATTR, self.to_bytes())
    }
    /// What to read to get it.
    #[must_use]
    pub fn read() -> Read {
        Read::Stat(key::daemon_key())
    }
    /// From the answer to [`Self::read`]; `None` if the store is not an OSD's.
    #[must_use]
    pub fn from_stat(stat: Option<&ObjectStat>) -> Option<Self> {
        Self::from_bytes(stat?.attrs.get(RECORD_ATTR)?).ok()
    }
}
