//! An object without its data and omap: what its primary keeps in memory.

use crate::attributes::{HEADER_ATTR, VERSION_ATTR, user_attr, version_of};
use crate::claims::Claims;
use crate::snaps;
use bytes::Bytes;
use nacre_store::ObjectStat;
use nacre_types::{Name, Version};
use nacre_wire::Payload;
use nacre_wire::msg::snap::{SnapSet, Whole};
use std::collections::BTreeMap;

/// An object's state after every update executed on it, committed or not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// Whether it exists.
    pub exists: bool,
    /// Version of its last update.
    pub version: Version,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last update by its client's clock, in milliseconds since 1970.
    pub modified_ms: u64,
    /// Clients' attributes.
    pub attrs: BTreeMap<Name, Bytes>,
    /// The header that methods keep in addition to the omap.
    pub header: Bytes,
    /// Watches and locks.
    pub claims: Claims,
    /// Its snapshots. Empty for a clone.
    pub snaps: SnapSet,
    /// Some of it cannot be read from any replica: what replaces it must not keep the rest of a
    /// block.
    pub damaged: bool,
}

impl Context {
    /// Decodes an object's stored attributes.
    #[must_use]
    pub fn of(stat: Option<ObjectStat>) -> Self {
        let Some(stat) = stat else {
            return Self::default();
        };
        let (version, modified_ms) = stat
            .attrs
            .get(VERSION_ATTR)
            .map(|bytes| version_of(bytes))
            .unwrap_or_default();
        let header = stat.attrs.get(HEADER_ATTR).cloned().unwrap_or_default();
        let attrs = stat
            .attrs
            .iter()
            .filter_map(|(name, value)| Some((user_attr(name)?, value.clone())))
            .collect();
        let claims = Claims::of(stat.attrs.iter());
        let snaps = snaps::of_attr(stat.attrs.get(snaps::SNAPS_ATTR));
        let exists = !snaps.whiteout;
        Self {
            exists,
            version,
            modified_ms,
            size: stat.size,
            attrs,
            header,
            claims,
            snaps,
            damaged: false,
        }
    }
    /// Whether the store has it: it exists, or its clones need it.
    #[must_use]
    pub const fn is_stored(&self) -> bool {
        self.exists || self.snaps.whiteout
    }
    /// Bytes that the store counts for it, if the store has it.
    #[must_use]
    pub fn stored_size(&self) -> Option<u64> {
        self.is_stored().then_some(self.size)
    }
}

/// The complete source object of a copy.
#[derive(Debug, Default)]
pub struct Source {
    /// Everything except the data.
    pub object: Whole,
    /// Its data.
    pub data: Payload,
}
