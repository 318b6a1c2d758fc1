//! Operations on objects.
//!
//! One operation is a list of sub-operations on one object, applied atomically and in order (DESIGN
//! §3). Guards come as sub-operations too: the first that does not hold fails the whole operation
//! without effects. Bulk data of all sub-operations follows as the payload, in order.

use super::lock::{LockEntry, LockOwner};
use super::snap::{CloneInfo, Whole};
use super::watch::{NotifyAcked, Watcher, WatcherId};
use crate::{wire_enum, wire_fields, wire_record};
use bytes::Bytes;
use nacre_types::{ClientId, Epoch, Instance, Name, ObjectId, PgId, SnapId, Version};
use std::fmt;

/// Largest byte range of one sub-operation, and largest sum of one operation's data: 32 MiB.
pub const OP_BYTES_MAX: u64 = 32 << 20;
/// Largest object: 256 MiB. Clients stripe larger data over several objects.
pub const OBJECT_BYTES_MAX: u64 = 256 << 20;
/// Longest attribute name of a client, in bytes.
pub const ATTR_NAME_MAX: usize = 250;
/// Largest sum of an object's attributes, in bytes.
pub const ATTR_BYTES_MAX: usize = 60 << 10;
/// Longest omap key of a client, in bytes.
pub const OMAP_KEY_MAX: usize = 4096;
/// Longest omap value, in bytes.
pub const OMAP_VALUE_MAX: usize = 1 << 20;
/// Most sub-operations of one operation.
pub const SUB_OPS_MAX: usize = 64;
/// Longest output of a writing operation in bytes: it is kept for resends.
pub const OUTPUT_BYTES_MAX: usize = 4096;
/// Longest output of a call that writes nothing, in bytes.
pub const CALL_OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Limit on the bytes of values, keys and outputs that an operation's parts return together,
/// besides data ([`OP_BYTES_MAX`]).
pub const RESULT_BYTES_MAX: usize = 16 << 20;
/// Longest human-readable text in a failure, in bytes.
pub const WHY_BYTES_MAX: usize = 1024;

/// Identifies one operation of one client; a resend has the same identifier (DESIGN §3, Exactly
/// once).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId {
    /// The client.
    pub client: ClientId,
    /// The client's instance.
    pub instance: Instance,
    /// Consecutive within the instance, from 1.
    pub sequence: u64,
}
wire_fields!(RequestId {
    client,
    instance,
    sequence
});

/// The snapshots that exist for the object, as far as the client knows: a write preserves the state
/// for each one newer than the last write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapContext {
    /// The newest snapshot.
    pub sequence: u64,
    /// All snapshots, newest first.
    pub snapshots: Vec<SnapId>,
}
wire_fields!(SnapContext {
    sequence,
    snapshots
});

/// One part of an operation. Where the part carries data, its lengths refer to the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubOp {
    /// Reads a range; short at the object's end.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes at most.
        length: u64,
    },
    /// Reads size, version and times.
    Stat {},
    /// Writes a range from the payload; a gap before it reads as zeros.
    Write {
        /// First byte.
        offset: u64,
        /// Bytes of payload.
        length: u64,
    },
    /// Replaces all data with the payload.
    WriteFull {
        /// Bytes of payload.
        length: u64,
    },
    /// Appends the payload.
    Append {
        /// Bytes of payload.
        length: u64,
    },
    /// Makes a range read as zeros without changing the size.
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
    /// Creates the object.
    Create {
        /// Fail if the object exists.
        exclusive: bool,
    },
    /// Removes the object with its attributes and omap.
    Delete {},
    /// Reads an attribute's value.
    GetAttr {
        /// The attribute.
        name: Name,
    },
    /// Reads all attributes.
    ListAttrs {},
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
    /// Reads the values of omap keys; absent keys are left out.
    OmapGet {
        /// The keys.
        keys: Vec<Bytes>,
    },
    /// Reads keys and values in key order.
    OmapList {
        /// Only keys after this one; empty starts at the first.
        after: Bytes,
        /// Maximum number of entries.
        limit: u32,
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
    /// Guard: the object exists, or does not.
    AssertExists {
        /// Whether it must exist.
        exists: bool,
    },
    /// Guard: the object's version is this one.
    AssertVersion {
        /// The version, from an earlier reply.
        version: Version,
    },
    /// Guard: the range holds exactly these bytes of payload.
    CompareData {
        /// First byte.
        offset: u64,
        /// Bytes of payload.
        length: u64,
    },
    /// Guard: the attribute has this value; an absent one equals the empty value.
    CompareAttr {
        /// The attribute.
        name: Name,
        /// Its value.
        value: Bytes,
    },
    /// Lists objects of the placement group in its own order; the operation's object name is
    /// ignored.
    ListObjects {
        /// Where an earlier listing stopped; empty starts at the beginning.
        after: Bytes,
        /// Maximum number of objects.
        limit: u32,
    },
    /// Calls a method of a class on the object (MAL-20). It sees what the parts before it wrote.
    Call {
        /// The class.
        class: Name,
        /// The method.
        method: Name,
        /// Bytes of payload: the input.
        length: u64,
    },
    /// Runs a script sent with the call. Requires that capability.
    Eval {
        /// Bytes of payload: the script.
        script: u64,
        /// The registered function to run.
        handler: Name,
        /// Bytes of payload after it: the input.
        input: u64,
    },
    /// Computes the CRC32C of a range, short at the object's end.
    Checksum {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Registers a watch of this client instance; with the same cookie again, it changes the
    /// timeout. Like every update, registering and ending a watch give the object a new version, so
    /// a client that compares versions notices watchers.
    Watch {
        /// Identifies the watch within the client; never reused.
        cookie: u64,
        /// A client silent for this many milliseconds loses the watch.
        timeout_ms: u32,
    },
    /// Ends a watch.
    Unwatch {
        /// Identifies the watch within the client.
        cookie: u64,
    },
    /// Notifies every watcher and returns which received it; must be the only part.
    Notify {
        /// A watcher that does not acknowledge within this many milliseconds loses its watch.
        timeout_ms: u32,
        /// Bytes of payload.
        length: u64,
    },
    /// Lists the watchers.
    ListWatchers {},
    /// Takes a lock for this client instance; with the same cookie again, it renews the lock.
    Lock {
        /// The lock.
        name: Name,
        /// Identifies a thread or task of the client.
        cookie: u64,
        /// Whether others may hold it too.
        shared: bool,
        /// A contender may take over from a holder silent for this many milliseconds; 0 means
        /// never.
        lease_ms: u32,
        /// Human-readable description.
        description: String,
    },
    /// Releases a lock.
    Unlock {
        /// The lock.
        name: Name,
        /// The cookie it was taken with.
        cookie: u64,
    },
    /// Takes a lock away from its holder. Fence the holder first: otherwise only its guarded
    /// operations fail, and its other operations still succeed.
    BreakLock {
        /// The lock.
        name: Name,
        /// The holder.
        owner: LockOwner,
    },
    /// Guard: this client instance holds the lock.
    AssertLock {
        /// The lock.
        name: Name,
        /// The cookie it was taken with.
        cookie: u64,
        /// Whether a shared lock is enough.
        shared_ok: bool,
    },
    /// Lists all locks and their holders.
    ListLocks {},
    /// Lists the object's clones and the snapshots that each preserves.
    ListSnaps {},
    /// Restores the object's state at a snapshot; deletes it if it did not exist then. Must be the
    /// only part besides guards.
    Rollback {
        /// The snapshot.
        snap: SnapId,
    },
    /// Replaces data, attributes and omap with those of another object of the pool, all of one
    /// version. Watches, locks and clones stay. Must be the only part besides guards.
    CopyFrom {
        /// The source object, or its state at a snapshot.
        source: ObjectId,
    },
    /// Reads the whole object at one version, to copy it; must be the only part.
    ReadWhole {},
}
wire_enum!(SubOp {
    1 => Read { offset, length },
    2 => Stat {},
    3 => Write { offset, length },
    4 => WriteFull { length },
    5 => Append { length },
    6 => Zero { offset, length },
    7 => Truncate { size },
    8 => Create { exclusive },
    9 => Delete {},
    10 => GetAttr { name },
    11 => ListAttrs {},
    12 => SetAttr { name, value },
    13 => RemoveAttr { name },
    14 => OmapGet { keys },
    15 => OmapList { after, limit },
    16 => OmapSet { entries },
    17 => OmapRemove { keys },
    18 => OmapClear {},
    19 => AssertExists { exists },
    20 => AssertVersion { version },
    21 => CompareData { offset, length },
    22 => CompareAttr { name, value },
    23 => ListObjects { after, limit },
    24 => Call { class, method, length },
    25 => Eval { script, handler, input },
    26 => Checksum { offset, length },
    40 => Watch { cookie, timeout_ms },
    41 => Unwatch { cookie },
    42 => Notify { timeout_ms, length },
    43 => ListWatchers {},
    50 => Lock { name, cookie, shared, lease_ms, description },
    51 => Unlock { name, cookie },
    52 => BreakLock { name, owner },
    53 => AssertLock { name, cookie, shared_ok },
    54 => ListLocks {},
    60 => ListSnaps {},
    61 => Rollback { snap },
    62 => CopyFrom { source },
    63 => ReadWhole {},
});

/// Bits of [`OpRequest::flags`].
pub mod op_flag {
    /// Also answer when the update is applied in memory on the whole acting set, before it is
    /// durable (CEPH-46, [`OpApplied`]).
    pub const ACK: u32 = 1;
    /// The reader accepts updates that are applied but not yet durable.
    pub const UNCOMMITTED: u32 = 2;
    /// Write even if the pool is full: the operation frees space.
    pub const FULL_OK: u32 = 4;
}

/// One operation. The default has no identifier and no parts, and sets no flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpRequest {
    /// Its identifier.
    pub request: RequestId,
    /// The client has received the answers to all its operations below this sequence number.
    pub answered_below: u64,
    /// The PG that the client believes the object is in.
    pub pg: PgId,
    /// The object.
    pub object: ObjectId,
    /// Parts, in order.
    pub ops: Vec<SubOp>,
    /// Bits of [`op_flag`].
    pub flags: u32,
    /// The OSD must know at least this epoch's fences before it acts.
    pub fence: Epoch,
    /// Snapshots to preserve.
    pub snaps: SnapContext,
    /// Trace id, to follow one operation through the daemons' logs; 0 is none.
    pub trace: u64,
    /// The tenant whose share of the service it uses.
    pub tenant: u32,
    /// Not worth executing after this many milliseconds at the OSD; 0 is no limit.
    pub deadline_ms: u32,
    /// How often it was sent before. A failure that answers an earlier attempt is ignored: a later
    /// attempt may succeed.
    pub attempt: u32,
    /// The client's wall clock in milliseconds since 1970: recorded as the object's modification
    /// time, and the current time for methods.
    pub unix_ms: u64,
    /// The operation was not sent before this moment.
    pub dated: Dated,
}
wire_record!(OpRequest version 2 compat 1 {
    request, answered_below, pg, object, ops, flags, fence, snaps, trace, tenant, deadline_ms, attempt, unix_ms,
} since 2 { dated });

/// A moment on the clock of an OSD process: at or before the moment that is meant, never after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dated {
    /// The random number of the process whose clock it is; 0: no moment is given.
    pub process: u64,
    /// The clock's reading in nanoseconds.
    pub reading: u64,
}
wire_fields!(Dated { process, reading });

/// Why an operation had no effect. Except for `WrongTarget`, every replica would return the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpFailure {
    /// The object, or the attribute a part names, does not exist.
    NotFound {},
    /// The object exists and must not.
    AlreadyExists {},
    /// The guard with this index does not hold.
    Guard {
        /// Index in [`OpRequest::ops`].
        index: u32,
    },
    /// This OSD does not serve the PG in its epoch: get the map of the frame's epoch, and resend.
    WrongTarget {},
    /// The sequence number is below the lowest unanswered one and unknown, or the client may have
    /// been forgotten since it first asked: executing the operation might repeat it.
    Superseded {},
    /// The client's instance is fenced.
    Fenced {},
    /// No space, or the pool's quota is used up. Deletes still work.
    Full {},
    /// A limit of this module is exceeded.
    TooLarge {},
    /// Not an operation this OSD can do; says what is wrong.
    Invalid {
        /// Human-readable reason.
        why: String,
    },
    /// Stored data failed its checksum, and no good replica is known. For a resent update, this
    /// does not mean that it was not executed.
    Corrupt {
        /// First bad byte.
        offset: u64,
    },
    /// The operation's deadline passed before it was executed.
    Expired {},
    /// The PG has forgotten some clients, and this may be one of them: resend the operation with
    /// the time at which it was first sent, by the clock shown here.
    Undated {
        /// The reading of the OSD's clock.
        now: Dated,
    },
    /// The client's capabilities do not allow it.
    Denied {
        /// Human-readable: which client may not do what.
        why: String,
    },
    /// No such class is active, or it has no such method.
    NoSuchMethod {
        /// Human-readable reason.
        why: String,
    },
    /// A method failed; the operation had no effect.
    Method {
        /// Index of the call in [`OpRequest::ops`].
        index: u32,
        /// The activation that ran; 0 for a script that came with the call.
        activation: u64,
        /// The error that it returned or raised, as a positive error number.
        errno: u32,
        /// Human-readable: script, line and message; empty if the method chose the number itself.
        why: String,
    },
    /// The object has reached its limit of watches, locks, holders or waiting notifies.
    TooMany {
        /// Human-readable: of what, and the limit.
        what: String,
    },
    /// Another client holds the lock.
    LockHeld {
        /// The holder; the first of several.
        owner: LockOwner,
        /// The holder's description of its purpose.
        description: String,
    },
}
wire_enum!(OpFailure {
    1 => NotFound {},
    2 => AlreadyExists {},
    3 => Guard { index },
    4 => WrongTarget {},
    5 => Superseded {},
    6 => Fenced {},
    7 => Full {},
    8 => TooLarge {},
    9 => Invalid { why },
    10 => Corrupt { offset },
    11 => Expired {},
    15 => Undated { now },
    12 => Denied { why },
    13 => NoSuchMethod { why },
    14 => Method { index, activation, errno, why },
    40 => TooMany { what },
    50 => LockHeld { owner, description },
});

impl fmt::Display for OpFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound {} => f.write_str("no such object or attribute"),
            Self::AlreadyExists {} => f.write_str("the object exists already"),
            Self::Guard { index } => write!(f, "the condition in part {index} of the operation does not hold"),
            Self::WrongTarget {} => f.write_str("the placement group has moved"),
            Self::Superseded {} => {
                f.write_str("a resend came after its answer was confirmed or forgotten; it was not executed again")
            }
            Self::Fenced {} => f.write_str("this client was fenced off; start a new one"),
            Self::Full {} => f.write_str("no space left (deleting still works)"),
            Self::TooLarge {} => f.write_str("larger than one operation or object may be, or than the log of a member's store takes at once; write it in smaller pieces"),
            Self::Invalid { why } => f.write_str(why),
            Self::Corrupt { offset } => write!(f, "stored data is damaged at byte {offset} and no good copy is known"),
            Self::Expired {} => f.write_str("the operation's deadline passed before it was executed"),
            Self::Undated { .. } => f.write_str("the placement group does not know the client, and wants to hear when it asked first"),
            Self::Denied { why } | Self::NoSuchMethod { why } => f.write_str(why),
            Self::Method { errno, why, .. } if why.is_empty() => write!(f, "the method failed with error {errno}"),
            Self::Method { errno, why, .. } => write!(f, "{why} (error {errno})"),
            Self::TooMany { what } => f.write_str(what),
            Self::LockHeld { owner, description } => {
                write!(f, "{owner} holds the lock")?;
                if description.is_empty() { Ok(()) } else { write!(f, " ({description})") }
            }
        }
    }
}

/// The result of one part of an operation. Lengths refer to the reply's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubReply {
    /// Success, without a result.
    Done {},
    /// Bytes of payload.
    Data {
        /// Number of bytes.
        length: u64,
    },
    /// Size, version and time.
    Stat {
        /// Bytes.
        size: u64,
        /// Version of the last update.
        version: Version,
        /// Time of the last update by its client's clock, in milliseconds since 1970.
        modified_ms: u64,
    },
    /// A value.
    Value {
        /// The attribute's value.
        value: Bytes,
    },
    /// Keys and values.
    Entries {
        /// In key order.
        entries: Vec<(Bytes, Bytes)>,
        /// Whether more entries follow.
        more: bool,
    },
    /// Objects.
    Objects {
        /// In the PG's order.
        objects: Vec<ObjectId>,
        /// Where to continue; `None` at the PG's end.
        next: Option<Bytes>,
    },
    /// The result of a method.
    Called {
        /// The activation that ran (MAL-06); 0 for a script that came with the call.
        activation: u64,
        /// Zero or positive, chosen by the method.
        status: u32,
        /// Its output.
        output: Bytes,
    },
    /// A checksum.
    Checksum {
        /// The CRC32C.
        crc: u32,
        /// Number of bytes it covers.
        length: u64,
    },
    /// Which watchers received a notify. The watchers' replies are the operation's payload, in
    /// order.
    Notified {
        /// Watchers that acknowledged.
        acked: Vec<NotifyAcked>,
        /// Watchers that did not acknowledge in time; their watches are gone.
        missed: Vec<WatcherId>,
        /// A resend was answered from the recorded result, which does not include the watchers'
        /// replies: their lengths are 0.
        from_memory: bool,
    },
    /// The watchers of the object.
    Watchers {
        /// In order.
        watchers: Vec<Watcher>,
    },
    /// This client holds the lock.
    Locked {
        /// Fencing token: the object's version at the grant.
        token: Version,
        /// The holder's requests must carry at least this epoch: it contains the fences of the
        /// clients that lost the lock.
        fence: Epoch,
    },
    /// All locks.
    Locks {
        /// Ordered by name.
        locks: Vec<LockEntry>,
    },
    /// What snapshots preserve of the object.
    Snaps {
        /// The newest snapshot known to the latest write; any newer snapshot is equal to the
        /// current object.
        sequence: u64,
        /// Whether the object currently exists.
        exists: bool,
        /// Oldest first.
        clones: Vec<CloneInfo>,
    },
    /// The whole object. Its data is the operation's payload.
    Whole {
        /// Everything except the data.
        object: Whole,
    },
}
impl SubReply {
    /// Bytes of values, keys, names and outputs; data is counted in the payload instead.
    #[must_use]
    pub fn carried_bytes(&self) -> usize {
        match self {
            Self::Value { value } => value.len(),
            Self::Entries { entries, .. } => entries
                .iter()
                .map(|(key, value)| key.len() + value.len())
                .sum(),
            Self::Objects { objects, .. } => objects
                .iter()
                .map(|object| object.name.as_bytes().len())
                .sum(),
            Self::Called { output, .. } => output.len(),
            Self::Whole { object } => {
                let attrs = object
                    .attrs
                    .iter()
                    .map(|(name, value)| name.as_bytes().len() + value.len());
                let entries = object
                    .omap
                    .iter()
                    .map(|(key, value)| key.len() + value.len());
                attrs.sum::<usize>() + entries.sum::<usize>() + object.header.len()
            }
            // A few numbers, or bounded by the limits of one object.
            Self::Done {}
            | Self::Data { .. }
            | Self::Stat { .. }
            | Self::Checksum { .. }
            | Self::Notified { .. }
            | Self::Watchers { .. }
            | Self::Locked { .. }
            | Self::Locks { .. }
            | Self::Snaps { .. } => 0,
        }
    }
}
wire_enum!(SubReply {
    1 => Done {},
    2 => Data { length },
    3 => Stat { size, version, modified_ms },
    4 => Value { value },
    5 => Entries { entries, more },
    6 => Objects { objects, next },
    7 => Called { activation, status, output },
    8 => Checksum { crc, length },
    20 => Notified { acked, missed, from_memory },
    21 => Watchers { watchers },
    30 => Locked { token, fence },
    31 => Locks { locks },
    40 => Snaps { sequence, exists, clones },
    41 => Whole { object },
});

/// The answer to an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpReply {
    /// The operation it answers.
    pub request: RequestId,
    /// Why the operation had no effect, if it failed.
    pub failure: Option<OpFailure>,
    /// The object's version after the operation.
    pub version: Version,
    /// One result for each part, if it succeeded.
    pub results: Vec<SubReply>,
    /// Copied from the request.
    pub attempt: u32,
}
wire_record!(OpReply version 1 compat 1 { request, failure, version, results, attempt });

/// Sent to a client that set [`op_flag::ACK`]: its update is applied in memory on the whole acting
/// set (CEPH-46). It may still be lost if all of them lose power. The final answer follows when the
/// update is durable; until then the client keeps the operation and resends it if necessary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpApplied {
    /// The operation.
    pub request: RequestId,
    /// The object's version after it.
    pub version: Version,
    /// Copied from the request.
    pub attempt: u32,
}
wire_record!(OpApplied version 1 compat 1 { request, version, attempt });

/// Sent to a client whose operation has waited for long: the reason and the time. The operation
/// continues to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpBlocked {
    /// The operation.
    pub request: RequestId,
    /// Human-readable reason.
    pub reason: String,
    /// How long the OSD has had it, in milliseconds.
    pub since_ms: u64,
}
wire_record!(OpBlocked version 1 compat 1 { request, reason, since_ms });
