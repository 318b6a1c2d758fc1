//! Snapshots of objects: what the live object records about them, and whole objects for copying
//! (CHECKLIST CEPH-09).

use crate::{wire_fields, wire_record};
use bytes::Bytes;
use nacre_types::{Name, SnapId, Version};

/// Most clones of one object.
pub const CLONES_MAX: usize = 120;
/// Most snapshots that all clones of one object preserve together, including removed ones that are
/// not trimmed yet.
pub const CLONE_SNAPS_MAX: usize = 190;
/// Most bytes of attributes and omap, names and keys included, of an object that is copied: 4 MiB.
/// Its data may have [`OP_BYTES_MAX`](super::client::OP_BYTES_MAX) in addition.
pub const COPY_SMALL_BYTES_MAX: usize = 4 << 20;

/// One clone: the object's state before the first write that knew of the clone's snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneInfo {
    /// The newest of its snapshots; also the clone's own snapshot id.
    pub id: SnapId,
    /// All its snapshots, newest first.
    pub snaps: Vec<SnapId>,
    /// Bytes of data.
    pub size: u64,
}
wire_fields!(CloneInfo { id, snaps, size });

/// What a live object's replicated state records about its clones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapSet {
    /// The newest snapshot known to any write to the object.
    pub sequence: u64,
    /// Oldest first.
    pub clones: Vec<CloneInfo>,
    /// The object does not exist for clients; it is kept only because it has clones.
    pub whiteout: bool,
}
wire_record!(SnapSet version 1 compat 1 { sequence, clones, whiteout });

/// An object without its data, as needed for a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whole {
    /// The object's version.
    pub version: Version,
    /// Bytes of data.
    pub size: u64,
    /// Clients' attributes.
    pub attrs: Vec<(Name, Bytes)>,
    /// The header that methods keep in addition to the omap.
    pub header: Bytes,
    /// In key order.
    pub omap: Vec<(Bytes, Bytes)>,
}
wire_record!(Whole version 1 compat 1 { version, size, attrs, header, omap });
