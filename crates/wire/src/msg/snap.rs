//! Snapshots of objects: what the live object remembers of them, and whole objects on their way to
//! a copy (CHECKLIST CEPH-09).

use crate::{wire_fields, wire_record};
use bytes::Bytes;
use nacre_types::{Name, SnapId, Version};

/// Most clones of one object.
pub const CLONES_MAX: usize = 120;
/// Most snapshots that all clones of one object preserve together, those included that are removed
/// and not trimmed yet.
pub const CLONE_SNAPS_MAX: usize = 190;
/// Most bytes of attributes and omap, names and keys included, of an object that is copied: 4 MiB.
/// Its data may have [`OP_BYTES_MAX`](super::client::OP_BYTES_MAX).
pub const COPY_SMALL_BYTES_MAX: usize = 4 << 20;

/// One clone: the object as it was before the first write that knew of its snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneInfo {
    /// The newest of them; also the clone's own snapshot id.
    pub id: SnapId,
    /// All, newest first.
    pub snaps: Vec<SnapId>,
    /// Bytes of data.
    pub size: u64,
}
wire_fields!(CloneInfo { id, snaps, size });

/// What a live object's replicated state says of its clones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapSet {
    /// The newest snapshot that any write to the object knew.
    pub sequence: u64,
    /// Oldest first.
    pub clones: Vec<CloneInfo>,
    /// For clients there is no object: it is here for its clones' sake.
    pub whiteout: bool,
}
wire_record!(SnapSet version 1 compat 1 { sequence, clones, whiteout });

/// All of an object but its data, as a copy takes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whole {
    /// Of which version.
    pub version: Version,
    /// Bytes of data.
    pub size: u64,
    /// Clients' attributes.
    pub attrs: Vec<(Name, Bytes)>,
    /// What methods keep beside the omap.
    pub header: Bytes,
    /// In key order.
    pub omap: Vec<(Bytes, Bytes)>,
}
wire_record!(Whole version 1 compat 1 { version, size, attrs, header, omap });
