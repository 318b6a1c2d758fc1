//! Contents of a monitor's store, byte by byte: `docs/formats/mon.md`.
//!
//! ```text
//!  collection 1
//!    object "identity"  omap  "who"          ─▶ Identity
//!    object "raft"      omap  "h"            ─▶ HardRecord         vote and term; commit as of the last write
//!                             "e" index u64be ─▶ EntryRecord       the log after the snapshot, and some before it
//!    object "snapshot"  data                 ─▶ SnapshotRecord     the state machine at one index
//! ```

use bytes::Bytes;
use nacre_store::{CollectionId, ObjectKey, Op, Transaction};
use nacre_types::{ClusterId, MonId};
use nacre_wire::codec::Wire;
use nacre_wire::wire_record;
use protobuf::RepeatedField;
use raft::eraftpb::{ConfState, Entry, EntryType, HardState};

/// The monitor's only collection.
pub const COLLECTION: CollectionId = CollectionId(1);

/// Object with the consensus log.
#[must_use]
pub fn raft_object() -> ObjectKey {
    ObjectKey::new(COLLECTION, &b"raft"[..])
}
/// Object with the snapshot.
#[must_use]
pub fn snapshot_object() -> ObjectKey {
    ObjectKey::new(COLLECTION, &b"snapshot"[..])
}
/// Object with the store's identity.
#[must_use]
pub fn identity_object() -> ObjectKey {
    ObjectKey::new(COLLECTION, &b"identity"[..])
}
/// Key of [`Identity`].
pub const WHO_KEY: &[u8] = b"who";
/// Key of [`HardRecord`].
pub const HARD_KEY: &[u8] = b"h";

/// Key of the entry at `index`.
#[must_use]
pub fn entry_key(index: u64) -> Bytes {
    let mut key = Vec::with_capacity(9);
    key.push(b'e');
    key.extend_from_slice(&index.to_be_bytes());
    key.into()
}

/// Owner of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: ClusterId,
    /// The monitor.
    pub mon: MonId,
    /// The random number of the store, as named by `mon add`; 0 for one that founded the cluster.
    pub store: u64,
}
wire_record!(Identity version 2 compat 2 { cluster, mon } since 2 { store });

/// Raft's hard state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardRecord {
    /// Current term.
    pub term: u64,
    /// Its vote in that term; 0: none.
    pub vote: u64,
    /// A committed index; the true one may be higher.
    pub commit: u64,
}
wire_record!(HardRecord version 1 compat 1 { term, vote, commit });

impl From<&HardState> for HardRecord {
    fn from(state: &HardState) -> Self {
        Self {
            term: state.term,
            vote: state.vote,
            commit: state.commit,
        }
    }
}
impl From<HardRecord> for HardState {
    fn from(record: HardRecord) -> Self {
        Self {
            term: record.term,
            vote: record.vote,
            commit: record.commit,
            ..Self::default()
        }
    }
}

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryRecord {
    /// Its index.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// 0: a proposal (or empty, at the start of a term); 1, 2: a change of members.
    pub kind: u8,
    /// A [`crate::state::Proposal`], or the consensus library's encoding of a change of members.
    pub data: Bytes,
    /// Unused.
    pub context: Bytes,
}
wire_record!(EntryRecord version 1 compat 1 { index, term, kind, data, context });

impl From<&Entry> for EntryRecord {
    fn from(entry: &Entry) -> Self {
        let kind = match entry.get_entry_type() {
            EntryType::EntryNormal => 0,
            EntryType::EntryConfChange => 1,
            EntryType::EntryConfChangeV2 => 2,
        };
        Self {
            index: entry.index,
            term: entry.term,
            kind,
            data: entry.data.clone(),
            context: entry.context.clone(),
        }
    }
}
impl From<EntryRecord> for Entry {
    fn from(record: EntryRecord) -> Self {
        let mut entry = Self {
            index: record.index,
            term: record.term,
            data: record.data,
            context: record.context,
            ..Self::default()
        };
        entry.set_entry_type(match record.kind {
            1 => EntryType::EntryConfChange,
            2 => EntryType::EntryConfChangeV2,
            _ => EntryType::EntryNormal,
        });
        entry
    }
}

/// Members of consensus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Raft ids ([`super::member`]) of the voters.
    pub voters: Vec<u64>,
    /// Raft ids of the learners.
    pub learners: Vec<u64>,
    /// Voters before a joint change; empty, as only simple changes are made.
    pub voters_outgoing: Vec<u64>,
    /// Learners after a joint change; empty.
    pub learners_next: Vec<u64>,
}
wire_record!(Members version 1 compat 1 { voters, learners, voters_outgoing, learners_next });

impl From<&ConfState> for Members {
    fn from(conf: &ConfState) -> Self {
        // The library keeps them in hash sets: sorted here, so that equal members have equal bytes.
        let sorted = |ids: &[u64]| {
            let mut ids = ids.to_vec();
            ids.sort_unstable();
            ids
        };
        Self {
            voters: sorted(&conf.voters),
            learners: sorted(&conf.learners),
            voters_outgoing: sorted(&conf.voters_outgoing),
            learners_next: sorted(&conf.learners_next),
        }
    }
}
impl From<&Members> for ConfState {
    fn from(members: &Members) -> Self {
        Self {
            voters: members.voters.clone(),
            learners: members.learners.clone(),
            voters_outgoing: members.voters_outgoing.clone(),
            learners_next: members.learners_next.clone(),
            ..Self::default()
        }
    }
}

/// The state machine at one index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// The last entry it contains.
    pub index: u64,
    /// That entry's term.
    pub term: u64,
    /// Members after that entry.
    pub members: Members,
    /// The entry before the first one still in the log; its term is needed, the entry is trimmed.
    pub trimmed_index: u64,
    /// That entry's term.
    pub trimmed_term: u64,
    /// An encoded [`crate::state::Image`]; empty on a monitor that waits to join.
    pub state: Bytes,
}
wire_record!(SnapshotRecord version 1 compat 1 { index, term, members, trimmed_index, trimmed_term, state });

/// Appends the operations that replace the snapshot.
pub fn put_snapshot(transaction: &mut Transaction, record: &SnapshotRecord) {
    let bytes = record.to_bytes();
    transaction.ops.push(Op::Truncate {
        object: snapshot_object(),
        size: bytes.len() as u64,
    });
    transaction.ops.push(Op::Write {
        object: snapshot_object(),
        offset: 0,
        data: vec![bytes.into()],
    });
}

/// Appends the operation that replaces the hard state.
pub fn put_hard(transaction: &mut Transaction, hard: &HardState) {
    let entry = (
        Bytes::from_static(HARD_KEY),
        HardRecord::from(hard).to_bytes().into(),
    );
    transaction.ops.push(Op::OmapSet {
        object: raft_object(),
        entries: vec![entry],
    });
}

/// Appends the operations that write `entries`, and remove later ones that they replace.
pub fn put_entries(transaction: &mut Transaction, entries: &[Entry]) {
    let Some(last) = entries.last() else { return };
    transaction.ops.push(Op::OmapRemoveRange {
        object: raft_object(),
        from: entry_key(last.index + 1),
        to: Some(Bytes::from_static(b"f")),
    });
    let entries = entries
        .iter()
        .map(|e| (entry_key(e.index), EntryRecord::from(e).to_bytes().into()))
        .collect();
    transaction.ops.push(Op::OmapSet {
        object: raft_object(),
        entries,
    });
}

/// Appends the operation that trims the entries up to and including `index`.
pub fn trim_entries(transaction: &mut Transaction, index: u64) {
    transaction.ops.push(Op::OmapRemoveRange {
        object: raft_object(),
        from: entry_key(0),
        to: Some(entry_key(index + 1)),
    });
}

/// A list in the consensus library's form.
pub fn repeated(entries: Vec<Entry>) -> RepeatedField<Entry> {
    entries.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_as_they_went() {
        for kind in 0..3 {
            let record = EntryRecord {
                index: 4,
                term: 2,
                kind,
                data: Bytes::from_static(b"d"),
                context: Bytes::new(),
            };
            assert_eq!(EntryRecord::from(&Entry::from(record.clone())), record);
        }
    }
}
