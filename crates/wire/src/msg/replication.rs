//! Between OSDs: updates, heartbeats with read leases, peering, recovery.
//!
//! ```text
//!  update     primary ──Replicate──▶ replica ──ReplicateAcks──▶ primary
//!  lease      primary ──Ping──▶ replica ──Pong──▶ primary                  (per pair of OSDs, not per group)
//!  peering    primary ──PeerQuery──▶ all who may know ──PeerInfo──▶ ; ──LogQuery──▶ best ──LogReply──▶ ;
//!             ──Adopt──▶ acting and backfill ──AdoptAck──▶ ; then the monitors commit the activation
//!  recovery   needs it ──Pull──▶ has it ──Push──▶ ──PushAck──▶
//!  backfill   primary ──ScanQuery──▶ target ──ScanReply──▶ ; Push… ; ──Progress──▶ ──ProgressAck──▶
//! ```
//! Of what grows with a group (PeerInfo, LogReply, Adopt, AdoptAck) each message goes in `Part`s
//! when it is long. Every one names the group and the interval it belongs to: work of an older
//! interval never counts towards a newer one.

use super::client::RequestId;
use super::{Payload, PayloadCursor};
use crate::record::Record;
use crate::{wire_enum, wire_fields, wire_record};
use bytes::Bytes;
use nacre_types::{Epoch, Name, ObjectId, PgId, SnapId, Version};

/// A step of an update, on the entry's object, with values in place of conditions: what is
/// replicated is the effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Makes it exist.
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
        /// Bytes.
        size: u64,
    },
    /// Removes it.
    Remove {},
    /// Sets an attribute.
    SetAttr {
        /// Which.
        name: Name,
        /// To what.
        value: Bytes,
    },
    /// Removes an attribute.
    RemoveAttr {
        /// Which.
        name: Name,
    },
    /// Sets omap keys.
    OmapSet {
        /// Keys and values.
        entries: Vec<(Bytes, Bytes)>,
    },
    /// Removes omap keys.
    OmapRemove {
        /// Which.
        keys: Vec<Bytes>,
    },
    /// Removes all omap keys.
    OmapClear {},
    /// Makes the object what another one of the same name is: data, attributes, omap. The receiver
    /// has it, at the version that the sender has.
    CloneFrom {
        /// Which snapshot's object, or the live one.
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

/// How much a group holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Objects.
    pub objects: u64,
    /// Sum of their sizes in bytes.
    pub bytes: u64,
    /// A guess since the group was split; nobody has counted yet.
    pub estimated: bool,
}
wire_fields!(Totals {
    objects,
    bytes,
    estimated
});

/// A client's lowest unanswered sequence number, as the group knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientMark {
    /// Whose; the sequence number is the mark.
    pub below: RequestId,
}
wire_fields!(ClientMark { below });

/// The group's memory of operations beyond its log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dedup {
    /// Operations not yet confirmed: their updates.
    pub records: Vec<Record>,
    /// One per client.
    pub marks: Vec<ClientMark>,
    /// The last update of each of these clients: the one with the oldest is forgotten first.
    pub last: Vec<Version>,
    /// Clients have been forgotten: one that is not here may have been here.
    pub forgot: bool,
}
wire_fields!(Dedup {
    records,
    marks,
    last,
    forgot
});

/// An object that a member's log has and its store does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Which.
    pub object: ObjectId,
    /// The version it must be brought to.
    pub need: Version,
    /// The version the store has; [`Version::NONE`] for none.
    pub have: Version,
}
wire_fields!(Missing { object, need, have });

/// A missing object whose copy has what is needed, and updates on it that an adopted log undid.
/// Nobody was told of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undone {
    /// Which.
    pub object: ObjectId,
    /// The version before them: the one that is needed.
    pub base: Version,
    /// They, oldest first, at least one. The copy is at the last one's version.
    pub entries: Vec<Record>,
}
wire_record!(Undone version 1 compat 1 { object, base, entries });

/// An update on its way to a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaUpdate {
    /// Which group.
    pub pg: PgId,
    /// In which interval.
    pub interval: Epoch,
    /// For the log.
    pub entry: Record,
    /// For the store. That the object's version is the entry's afterwards is none of them.
    pub effects: Vec<Effect>,
    /// The receiver gets the entry only, since it lacks the object: recovery brings that.
    pub entry_only: bool,
    /// Bytes of the message's payload that the effects are about, behind those of earlier updates.
    pub payload: u64,
    /// Everything up to here is durable on the whole acting set.
    pub committed: Version,
    /// The log may forget everything up to here.
    pub trim: Version,
    /// Answer with [`ReplicateApplied`] as soon as it is applied in memory: the client asked for
    /// an early answer (CEPH-46).
    pub tell_applied: bool,
    /// Bytes that it takes of a store's room, clones included.
    pub takes: u64,
}
wire_record!(ReplicaUpdate version 1 compat 1 {
    pg, interval, entry, effects, entry_only, payload, committed, trim, tell_applied, takes,
});

/// What a primary ordered in one turn, for one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicate {
    /// In order.
    pub updates: Vec<ReplicaUpdate>,
}
wire_fields!(Replicate { updates });

impl Replicate {
    /// One message for each update: what a network that loses some of them could deliver.
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

/// Everything up to `version` is applied here, in memory; it is not durable yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicateApplied {
    /// Which group.
    pub pg: PgId,
    /// In which interval.
    pub interval: Epoch,
    /// Up to where.
    pub version: Version,
}
wire_record!(ReplicateApplied version 1 compat 1 { pg, interval, version });

/// Everything up to `version` is durable here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Which group.
    pub pg: PgId,
    /// In which interval.
    pub interval: Epoch,
    /// Up to where.
    pub version: Version,
}
wire_fields!(Logged {
    pg,
    interval,
    version
});

/// What became durable in a turn of the sender's, of all groups of which the receiver is the
/// primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicateAcks {
    /// Each group once, in order.
    pub logged: Vec<Logged>,
    /// The sender's store is nearly full: updates that need room should be refused while they
    /// still can be.
    pub nearly_full: bool,
}
wire_record!(ReplicateAcks version 1 compat 1 { logged, nearly_full });

/// Are you there? And: grant me a read lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ping {
    /// The sender's clock, returned as it is.
    pub stamp: u64,
}
wire_record!(Ping version 1 compat 1 { stamp });

/// I am. Until `lease_ns` after I received the ping I shall take part in no interval that takes a
/// group from you without saying how long your lease still runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pong {
    /// From the ping.
    pub stamp: u64,
    /// Nanoseconds; 0 grants none.
    pub lease_ns: u64,
    /// As in [`ReplicateAcks`].
    pub nearly_full: bool,
    /// Bytes of updates that the receiver may have unacknowledged at the sender; 0 if it does not
    /// say (before version 2).
    pub share: u64,
    /// Bytes that one update may have if it is larger than that and goes alone.
    pub most: u64,
    /// The sender has lately had no room for what recovery or backfill brings; `false` before
    /// version 3.
    pub no_room: bool,
}
wire_record!(Pong version 3 compat 1 { stamp, lease_ns, nearly_full } since 2 { share, most } since 3 { no_room });

/// What do you know of this group?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerQuery {
    /// Which group.
    pub pg: PgId,
    /// The interval that is peering.
    pub interval: Epoch,
}
wire_fields!(PeerQuery { pg, interval });

/// A member's state, as far as peering must know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgInfo {
    /// Whether it has anything of the group.
    pub exists: bool,
    /// The last interval that it knows to have been activated with it as a member, or whose log it
    /// adopted as one.
    pub activated: Epoch,
    /// Its log's last entry.
    pub head: Version,
    /// The entry before its log's first.
    pub tail: Version,
    /// The last version of each interval that occurs in its log (or is its tail's), ascending:
    /// enough to find where two logs part.
    pub spans: Vec<Version>,
    /// Everything up to here it knows to be durable on a whole acting set.
    pub committed: Version,
    /// Objects from this position on are not here yet; none when it is complete.
    pub backfill: Option<Bytes>,
    /// Objects that its log has and its store does not.
    pub missing: Vec<Missing>,
}
wire_record!(PgInfo version 1 compat 1 { exists, activated, head, tail, spans, committed, backfill, missing });

/// This.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Which group.
    pub pg: PgId,
    /// The interval that asked.
    pub interval: Epoch,
    /// State.
    pub info: PgInfo,
    /// How long the prior primary may still answer reads under a lease granted here, in
    /// nanoseconds.
    pub lease_left_ns: u64,
    /// How many bytes of attributes, omap entries and log the sender's store takes in one
    /// transaction; 0 if it does not say (before version 2).
    pub logged_max: u64,
}
wire_record!(PeerInfo version 2 compat 1 { pg, interval, info, lease_left_ns } since 2 { logged_max });

/// Send me your log after `common`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogQuery {
    /// Which group.
    pub pg: PgId,
    /// The interval that is peering.
    pub interval: Epoch,
    /// The last entry we share; the whole log if it has it no longer.
    pub common: Version,
}
wire_fields!(LogQuery {
    pg,
    interval,
    common
});

/// Here it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogReply {
    /// Which group.
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
    /// Memory of older operations.
    pub dedup: Dedup,
    /// What the group holds at the tail.
    pub totals: Totals,
}
wire_record!(LogReply version 1 compat 1 { pg, interval, from, tail, head, entries, dedup, totals });

/// Make your log this: cut it after `from`, append `entries`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopt {
    /// Which group.
    pub pg: PgId,
    /// The interval that is peering.
    pub interval: Epoch,
    /// The last entry we share. With `restart` all of the receiver's log goes.
    pub from: Version,
    /// The log's tail.
    pub tail: Version,
    /// The log's head afterwards.
    pub head: Version,
    /// In order.
    pub entries: Vec<Record>,
    /// Memory of older operations; replaces the receiver's.
    pub dedup: Dedup,
    /// The logs share nothing: start over, and be backfilled from the first object.
    pub restart: bool,
    /// Everything up to here is durable on a whole acting set.
    pub committed: Version,
    /// What the group holds at the tail.
    pub totals: Totals,
}
wire_record!(Adopt version 1 compat 1 {
    pg, interval, from, tail, head, entries, dedup, restart, committed, totals,
});

/// A part of a message whose size grows with a group's log, memory or objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which group the message is about.
    pub pg: PgId,
    /// In which interval.
    pub interval: Epoch,
    /// The message's type number.
    pub kind: u16,
    /// The oldest version of that type that its reader must know.
    pub compat: u8,
    /// The message's length and checksum: parts that name the same belong together, whenever they
    /// were sent.
    pub whole: (u32, u32),
    /// Which part, from 0.
    pub index: u32,
    /// Of how many.
    pub count: u32,
    /// It.
    pub bytes: Bytes,
}
wire_record!(Part version 1 compat 1 { pg, interval, kind, compat, whole, index, count, bytes });

/// Done, durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptAck {
    /// Which group.
    pub pg: PgId,
    /// In which interval.
    pub interval: Epoch,
    /// The log's head.
    pub head: Version,
    /// What the log has and the store does not.
    pub missing: Vec<Missing>,
    /// From where on objects are not here yet.
    pub backfill: Option<Bytes>,
    /// Of what is missing, copies that only have more than they should.
    pub undone: Vec<Undone>,
}
wire_record!(AdoptAck version 1 compat 1 { pg, interval, head, missing, backfill, undone });

/// Push me this object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pull {
    /// Which group.
    pub pg: PgId,
    /// In which interval.
    pub interval: Epoch,
    /// Which object.
    pub object: ObjectId,
    /// At which version.
    pub version: Version,
}
wire_fields!(Pull {
    pg,
    interval,
    object,
    version
});

/// A part of an object, or its absence. The first part replaces what the receiver had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// Which group.
    pub pg: PgId,
    /// In which interval.
    pub interval: Epoch,
    /// Which object.
    pub object: ObjectId,
    /// At which version.
    pub version: Version,
    /// Whether it does not exist at that version.
    pub absent: bool,
    /// Its number, from 0.
    pub part: u32,
    /// Whether this part is the last.
    pub last: bool,
    /// The object's size.
    pub size: u64,
    /// Where the payload goes.
    pub offset: u64,
    /// All attributes, with the first part.
    pub attrs: Vec<(Name, Bytes)>,
    /// Some of the omap.
    pub omap: Vec<(Bytes, Bytes)>,
    /// Number of the transfer, larger than that of any which this sender began before: parts of
    /// two need not be cut alike.
    pub transfer: u64,
}
wire_record!(Push version 2 compat 1 {
    pg, interval, object, version, absent, part, last, size, offset, attrs, omap
} since 2 { transfer });

/// The part is durable here. Or, `have` false, an answer to [`Pull`]: I do not have that object at
/// that version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushAck {
    /// Which group.
    pub pg: PgId,
    /// In which interval.
    pub interval: Epoch,
    /// Which object.
    pub object: ObjectId,
    /// At which version.
    pub version: Version,
    /// Which part.
    pub part: u32,
    /// False: cannot push it.
    pub have: bool,
    /// With `have` false: it is here at that version and cannot be read. Push it to me when you
    /// have it from somebody else.
    pub damaged: bool,
    /// Which transfer the part is of.
    pub transfer: u64,
}
wire_record!(PushAck version 2 compat 1 { pg, interval, object, version, part, have, damaged } since 2 { transfer });

/// Which objects do you have from here on?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanQuery {
    /// Which group.
    pub pg: PgId,
    /// In which interval.
    pub interval: Epoch,
    /// First position.
    pub from: Bytes,
    /// At most this many.
    pub limit: u32,
    /// Which comparison this is for: larger than that of every one before it in the interval, and
    /// than the numbers of all transfers that began before it.
    pub round: u64,
}
wire_fields!(ScanQuery {
    pg,
    interval,
    from,
    limit,
    round
});

/// These.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanReply {
    /// Which group.
    pub pg: PgId,
    /// In which interval.
    pub interval: Epoch,
    /// From the query.
    pub from: Bytes,
    /// Everything before this position is listed; none: to the group's end.
    pub to: Option<Bytes>,
    /// Objects and versions, in the group's order.
    pub objects: Vec<(ObjectId, Version)>,
    /// From the query; 0 before version 2.
    pub round: u64,
}
wire_record!(ScanReply version 2 compat 1 { pg, interval, from, to, objects } since 2 { round });

/// Objects before this position are all there: remember it. None: you are complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Which group.
    pub pg: PgId,
    /// In which interval.
    pub interval: Epoch,
    /// The new cursor.
    pub cursor: Option<Bytes>,
    /// Which comparison it comes of: [`ScanQuery::round`].
    pub round: u64,
}
wire_fields!(Progress {
    pg,
    interval,
    cursor,
    round
});

/// Remembered, durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgressAck {
    /// Which group.
    pub pg: PgId,
    /// In which interval.
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

/// The group is clean without you: forget it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discard {
    /// Which group.
    pub pg: PgId,
    /// The interval in which it is clean.
    pub interval: Epoch,
}
wire_fields!(Discard { pg, interval });
