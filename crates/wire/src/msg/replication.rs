//! Messages between OSDs: updates, heartbeats with read leases, peering, recovery.
//!
//! ```text
//!  update     primary ──Replicate──▶ replica ──ReplicateAcks──▶ primary
//!  lease      primary ──Ping──▶ replica ──Pong──▶ primary                  (per pair of OSDs, not per group)
//!  peering    primary ──PeerQuery──▶ all who may know ──PeerInfo──▶ ; ──LogQuery──▶ best ──LogReply──▶ ;
//!             ──Adopt──▶ acting and backfill ──AdoptAck──▶ ; then the monitors commit the activation
//!  recovery   needs it ──Pull──▶ has it ──Push──▶ ──PushAck──▶
//!  backfill   primary ──ScanQuery──▶ target ──ScanReply──▶ ; Push… ; ──Progress──▶ ──ProgressAck──▶
//! ```
//! Messages that grow with a PG (PeerInfo, LogReply, Adopt, AdoptAck) are split into `Part`s when
//! they are long. Every message names its PG and interval: work of an older interval never counts
//! towards a newer one.

use super::client::RequestId;
use super::{Payload, PayloadCursor};
use crate::record::Record;
use crate::{wire_enum, wire_fields, wire_record};
use bytes::Bytes;
use nacre_types::{Epoch, Name, ObjectId, PgId, SnapId, Version};

/// One step of an update of the entry's object. Conditions are already resolved to values: the
/// effect is what is replicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Creates the object.
    Touch {},
    /// Writes from the payload.
    Write {
        /// First byte.
        offset: u64,
        /// Bytes of payload.
        length: u64,
    },
    /// Makes a range read as zeros.
    Zero {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Sets the size.
    Truncate {
        /// The new size in bytes.
        size: u64,
    },
    /// Removes the object.
    Remove {},
    /// Sets an attribute.
    SetAttr {
        /// The attribute.
        name: Name,
        /// Its new value.
        value: Bytes,
    },
    /// Removes an attribute.
    RemoveAttr {
        /// The attribute.
        name: Name,
    },
    /// Sets omap keys.
    OmapSet {
        /// Keys and values.
        entries: Vec<(Bytes, Bytes)>,
    },
    /// Removes omap keys.
    OmapRemove {
        /// The keys.
        keys: Vec<Bytes>,
    },
    /// Removes all omap keys.
    OmapClear {},
    /// Copies data, attributes and omap from another object with the same name. The receiver has
    /// that object at the same version as the sender.
    CloneFrom {
        /// The snapshot of the source, or the live object.
        snapshot: SnapId,
    },
}
wire_enum!(Effect {
    1 => Touch {},
    2 => Write { offset, length },
    3 => Zero { offset, length },
    4 => Truncate { size },
    5 => Remove {},
    6 => SetAttr { name, value },
    7 => RemoveAttr { name },
    8 => OmapSet { entries },
    9 => OmapRemove { keys },
    10 => OmapClear {},
    11 => CloneFrom { snapshot },
});

/// How much a PG holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of objects.
    pub objects: u64,
    /// Sum of their sizes in bytes.
    pub bytes: u64,
    /// Estimated since a split of the PG; not counted yet.
    pub estimated: bool,
}
wire_fields!(Totals {
    objects,
    bytes,
    estimated
});

/// A client's lowest unanswered sequence number, as known to the PG.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientMark {
    /// The client; the sequence number is the lowest unanswered one.
    pub below: RequestId,
}
wire_fields!(ClientMark { below });

/// The PG's memory of operations that its log no longer has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dedup {
    /// Updates whose answers are not yet confirmed.
    pub records: Vec<Record>,
    /// One mark per client.
    pub marks: Vec<ClientMark>,
    /// The last update of each of these clients: the client with the oldest is forgotten first.
    pub last: Vec<Version>,
    /// Whether clients have been forgotten: a client that is absent here may be one of them.
    pub forgot: bool,
}
wire_fields!(Dedup {
    records,
    marks,
    last,
    forgot
});

/// An object that is in a member's log but not in its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The object.
    pub object: ObjectId,
    /// The version that is needed.
    pub need: Version,
    /// The version the store has; [`Version::NONE`] for none.
    pub have: Version,
}
wire_fields!(Missing { object, need, have });

/// A missing object whose replica contains the needed version, plus updates that an adopted log
/// undid. Those updates were never acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undone {
    /// The object.
    pub object: ObjectId,
    /// The version before those updates: the one that is needed.
    pub base: Version,
    /// The undone updates, oldest first, at least one. The replica is at the last one's version.
    pub entries: Vec<Record>,
}
wire_record!(Undone version 1 compat 1 { object, base, entries });

/// An update for a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaUpdate {
    /// The PG.
    pub pg: PgId,
    /// The interval.
    pub interval: Epoch,
    /// The record for the log.
    pub entry: Record,
    /// Changes to the store. Setting the object's version to the record's is implied.
    pub effects: Vec<Effect>,
    /// Only the record is sent, because the receiver lacks the object: recovery will bring it.
    pub entry_only: bool,
    /// Bytes of the message's payload that the effects use, after those of earlier updates.
    pub payload: u64,
    /// Everything up to this version is durable on the whole acting set.
    pub committed: Version,
    /// The log may be trimmed up to this version.
    pub trim: Version,
    /// Answer with [`ReplicateApplied`] as soon as it is applied in memory: the client requested an
    /// early answer (CEPH-46).
    pub tell_applied: bool,
    /// Bytes that it takes of the store's space, clones included.
    pub takes: u64,
}
wire_record!(ReplicaUpdate version 1 compat 1 {
    pg, interval, entry, effects, entry_only, payload, committed, trim, tell_applied, takes,
});

/// The updates that a primary ordered in one turn, for one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicate {
    /// In order.
    pub updates: Vec<ReplicaUpdate>,
}
wire_fields!(Replicate { updates });

impl Replicate {
    /// Splits it into one message per update, which is what a lossy network could deliver.
    #[must_use]
    pub fn split(self, payload: Payload) -> Vec<(Self, Payload)> {
        let mut payload = PayloadCursor::new(payload);
        let alone = |update: ReplicaUpdate| {
            let data = payload
                .take(update.payload as usize)
                .expect("a message's lengths fit its payload");
            (
                Self {
                    updates: vec![update],
                },
                data,
            )
        };
        self.updates.into_iter().map(alone).collect()
    }
}

/// Everything up to `version` is applied in the sender's memory; it is not durable yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicateApplied {
    /// The PG.
    pub pg: PgId,
    /// The interval.
    pub interval: Epoch,
    /// The last applied version.
    pub version: Version,
}
wire_record!(ReplicateApplied version 1 compat 1 { pg, interval, version });

/// Everything up to `version` is durable at the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The PG.
    pub pg: PgId,
    /// The interval.
    pub interval: Epoch,
    /// The last durable version.
    pub version: Version,
}
wire_fields!(Logged {
    pg,
    interval,
    version
});

/// What became durable in one turn of the sender, for all PGs whose primary is the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicateAcks {
    /// Each PG once, in order.
    pub logged: Vec<Logged>,
    /// The sender's store is nearly full: refuse updates that need space while that is still
    /// possible.
    pub nearly_full: bool,
}
wire_record!(ReplicateAcks version 1 compat 1 { logged, nearly_full });

/// A heartbeat that also requests a read lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ping {
    /// The sender's clock, returned unchanged.
    pub stamp: u64,
}
wire_record!(Ping version 1 compat 1 { stamp });

/// The answer to a ping. Until `lease_ns` after the ping arrived, the sender will not take part in
/// an interval that takes a PG from the receiver without reporting how long the receiver's lease
/// still runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pong {
    /// Copied from the ping.
    pub stamp: u64,
    /// Nanoseconds; 0 grants none.
    pub lease_ns: u64,
    /// As in [`ReplicateAcks`].
    pub nearly_full: bool,
    /// Bytes of updates that the receiver may have unacknowledged at the sender; 0 if not reported
    /// (before version 2).
    pub share: u64,
    /// Largest single update that may exceed `share` if it is sent alone, in bytes.
    pub most: u64,
    /// Whether the sender recently lacked space for recovery or backfill; `false` before version 3.
    pub no_room: bool,
}
wire_record!(Pong version 3 compat 1 { stamp, lease_ns, nearly_full } since 2 { share, most } since 3 { no_room });

/// Asks what the receiver knows of a PG.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerQuery {
    /// The PG.
    pub pg: PgId,
    /// The interval that is peering.
    pub interval: Epoch,
}
wire_fields!(PeerQuery { pg, interval });

/// A member's state, as far as peering needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgInfo {
    /// Whether it has any data of the PG.
    pub exists: bool,
    /// The last interval that the member knows to have been activated with it as a member, or whose
    /// log it adopted as a member.
    pub activated: Epoch,
    /// Its log's last entry.
    pub head: Version,
    /// The entry before its log's first.
    pub tail: Version,
    /// The last version of each interval that occurs in its log (or is its tail's), ascending:
    /// enough to find where two logs diverge.
    pub spans: Vec<Version>,
    /// Known to be durable on a whole acting set up to this version.
    pub committed: Version,
    /// Objects from this position on are not here yet; `None` when it is complete.
    pub backfill: Option<Bytes>,
    /// Objects that are in its log but not in its store.
    pub missing: Vec<Missing>,
}
wire_record!(PgInfo version 1 compat 1 { exists, activated, head, tail, spans, committed, backfill, missing });

/// The answer to [`PeerQuery`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// The PG.
    pub pg: PgId,
    /// The interval that asked.
    pub interval: Epoch,
    /// The member's state.
    pub info: PgInfo,
    /// How long the prior primary may still answer reads under a lease granted here, in
    /// nanoseconds.
    pub lease_left_ns: u64,
    /// Limit on the attributes, omap entries and log in one transaction of the sender's store, in
    /// bytes; 0 if not reported (before version 2).
    pub logged_max: u64,
}
wire_record!(PeerInfo version 2 compat 1 { pg, interval, info, lease_left_ns } since 2 { logged_max });

/// Requests the receiver's log after `common`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogQuery {
    /// The PG.
    pub pg: PgId,
    /// The interval that is peering.
    pub interval: Epoch,
    /// The last shared entry; if the receiver no longer has it, it sends its whole log.
    pub common: Version,
}
wire_fields!(LogQuery {
    pg,
    interval,
    common
});

/// The answer to [`LogQuery`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogReply {
    /// The PG.
    pub pg: PgId,
    /// The interval that asked.
    pub interval: Epoch,
    /// The entry before the first of `entries`.
    pub from: Version,
    /// The log's tail.
    pub tail: Version,
    /// The log's head.
    pub head: Version,
    /// In order.
    pub entries: Vec<Record>,
    /// Memory of operations older than the log.
    pub dedup: Dedup,
    /// What the PG holds at the tail.
    pub totals: Totals,
}
wire_record!(LogReply version 1 compat 1 { pg, interval, from, tail, head, entries, dedup, totals });

/// Replaces the receiver's log: cut it after `from` and append `entries`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopt {
    /// The PG.
    pub pg: PgId,
    /// The interval that is peering.
    pub interval: Epoch,
    /// The last shared entry. With `restart` the receiver drops its whole log.
    pub from: Version,
    /// The log's tail.
    pub tail: Version,
    /// The log's head afterwards.
    pub head: Version,
    /// In order.
    pub entries: Vec<Record>,
    /// Memory of operations older than the log; replaces the receiver's.
    pub dedup: Dedup,
    /// The logs share nothing: start over with backfill from the first object.
    pub restart: bool,
    /// Everything up to this version is durable on a whole acting set.
    pub committed: Version,
    /// What the PG holds at the tail.
    pub totals: Totals,
}
wire_record!(Adopt version 1 compat 1 {
    pg, interval, from, tail, head, entries, dedup, restart, committed, totals,
});

/// A part of a message whose size grows with a PG's log, memory or objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The PG that the message concerns.
    pub pg: PgId,
    /// The interval.
    pub interval: Epoch,
    /// The message's type number.
    pub kind: u16,
    /// The oldest version of that type that its reader must know.
    pub compat: u8,
    /// The message's length and checksum: parts with the same values belong together, whenever they
    /// were sent.
    pub whole: (u32, u32),
    /// The part's index, from 0.
    pub index: u32,
    /// The number of parts.
    pub count: u32,
    /// The part's bytes.
    pub bytes: Bytes,
}
wire_record!(Part version 1 compat 1 { pg, interval, kind, compat, whole, index, count, bytes });

/// The log was adopted, durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptAck {
    /// The PG.
    pub pg: PgId,
    /// The interval.
    pub interval: Epoch,
    /// The log's head.
    pub head: Version,
    /// Objects that are in the log but not in the store.
    pub missing: Vec<Missing>,
    /// Objects from this position on are not here yet.
    pub backfill: Option<Bytes>,
    /// Missing objects whose replicas only contain undone updates in addition.
    pub undone: Vec<Undone>,
}
wire_record!(AdoptAck version 1 compat 1 { pg, interval, head, missing, backfill, undone });

/// Requests an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pull {
    /// The PG.
    pub pg: PgId,
    /// The interval.
    pub interval: Epoch,
    /// The object.
    pub object: ObjectId,
    /// The version needed.
    pub version: Version,
}
wire_fields!(Pull {
    pg,
    interval,
    object,
    version
});

/// A part of an object, or the fact that it does not exist. The first part replaces what the
/// receiver had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// The PG.
    pub pg: PgId,
    /// The interval.
    pub interval: Epoch,
    /// The object.
    pub object: ObjectId,
    /// Its version.
    pub version: Version,
    /// Whether it does not exist at that version.
    pub absent: bool,
    /// The part's number, from 0.
    pub part: u32,
    /// Whether this part is the last.
    pub last: bool,
    /// The object's size.
    pub size: u64,
    /// Offset of the payload in the object.
    pub offset: u64,
    /// All attributes, with the first part.
    pub attrs: Vec<(Name, Bytes)>,
    /// A part of the omap.
    pub omap: Vec<(Bytes, Bytes)>,
    /// Number of the transfer, larger than the number of any earlier transfer by this sender: two
    /// transfers may be split into different parts.
    pub transfer: u64,
}
wire_record!(Push version 2 compat 1 {
    pg, interval, object, version, absent, part, last, size, offset, attrs, omap
} since 2 { transfer });

/// The part is durable at the sender. Or, with `have` false, the answer to [`Pull`]: the sender
/// cannot provide that object at that version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushAck {
    /// The PG.
    pub pg: PgId,
    /// The interval.
    pub interval: Epoch,
    /// The object.
    pub object: ObjectId,
    /// Its version.
    pub version: Version,
    /// The part's number.
    pub part: u32,
    /// `false`: the object cannot be pushed.
    pub have: bool,
    /// With `have` false: the sender has that version but cannot read it, and asks for it once the
    /// receiver has it from another OSD.
    pub damaged: bool,
    /// The part's transfer.
    pub transfer: u64,
}
wire_record!(PushAck version 2 compat 1 { pg, interval, object, version, part, have, damaged } since 2 { transfer });

/// Asks for the objects that the receiver has from a position on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanQuery {
    /// The PG.
    pub pg: PgId,
    /// The interval.
    pub interval: Epoch,
    /// First position.
    pub from: Bytes,
    /// Maximum number of objects.
    pub limit: u32,
    /// Number of the comparison: larger than that of every earlier one in the interval, and than
    /// the numbers of all transfers that began before it.
    pub round: u64,
}
wire_fields!(ScanQuery {
    pg,
    interval,
    from,
    limit,
    round
});

/// The answer to [`ScanQuery`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanReply {
    /// The PG.
    pub pg: PgId,
    /// The interval.
    pub interval: Epoch,
    /// From the query.
    pub from: Bytes,
    /// Everything before this position is listed; `None`: up to the PG's end.
    pub to: Option<Bytes>,
    /// Objects and versions, in the PG's order.
    pub objects: Vec<(ObjectId, Version)>,
    /// From the query; 0 before version 2.
    pub round: u64,
}
wire_record!(ScanReply version 2 compat 1 { pg, interval, from, to, objects } since 2 { round });

/// The receiver has all objects before this position and records that. `None`: it is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The PG.
    pub pg: PgId,
    /// The interval.
    pub interval: Epoch,
    /// The new cursor.
    pub cursor: Option<Bytes>,
    /// The comparison that it results from: [`ScanQuery::round`].
    pub round: u64,
}
wire_fields!(Progress {
    pg,
    interval,
    cursor,
    round
});

/// The progress was recorded, durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgressAck {
    /// The PG.
    pub pg: PgId,
    /// The interval.
    pub interval: Epoch,
    /// From [`Progress`].
    pub cursor: Option<Bytes>,
    /// From [`Progress`].
    pub round: u64,
}
wire_fields!(ProgressAck {
    pg,
    interval,
    cursor,
    round
});

/// The PG is clean without the receiver, which can delete its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discard {
    /// The PG.
    pub pg: PgId,
    /// The interval in which it is clean.
    pub interval: Epoch,
}
wire_fields!(Discard { pg, interval });
