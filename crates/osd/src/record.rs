//! The record of a store's owner.

use crate::key;
use nacre_store::{ObjectStat, Read, Transaction};
use nacre_types::{ClusterId, Instance, OsdId};
use nacre_wire::{Wire, wire_record};

/// The owner of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonRecord {
    /// The cluster.
    pub cluster: ClusterId,
    /// The OSD.
    pub osd: OsdId,
    /// The last instance that was used here; stored before it is used.
    pub instance: Instance,
}
wire_record!(DaemonRecord version 1 compat 1 { cluster, osd, instance });

const RECORD_ATTR: &[u8] = b"daemon";

impl DaemonRecord {
    /// The transaction that stores it.
    #[must_use]
    pub fn save(&self) -> Transaction {
        Transaction::new().set_attr(key::daemon_key(), RECORD_ATTR, self.to_bytes())
    }
    /// The read that loads it.
    #[must_use]
    pub fn read() -> Read {
        Read::Stat(key::daemon_key())
    }
    /// Decodes the reply to [`Self::read`]; `None` if the store is not an OSD's.
    #[must_use]
    pub fn from_stat(stat: Option<&ObjectStat>) -> Option<Self> {
        Self::from_bytes(stat?.attrs.get(RECORD_ATTR)?).ok()
    }
}
