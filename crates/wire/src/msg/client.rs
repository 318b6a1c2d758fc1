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
/// Largest object: 256 MiB. Larger things are striped over objects by whoever writes them.
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
/// Longest output of a writing operation that is kept for resends, in bytes.
pub const OUTPUT_BYTES_MAX: usize = 4096;
/// Longest output of a call that writes nothing, in bytes.
pub const CALL_OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Most bytes of values, keys and outputs that the parts of an operation return together, beside
/// data ([`OP_BYTES_MAX`]).
pub const RESULT_BYTES_MAX: usize = 16 << 20;
/// Longest text for people in a failure, in bytes.
pub const WHY_BYTES_MAX: usize = 1024;

/// Names one operation of one client; a resend has the same name (DESIGN §3, Exactly once).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId {
    /// Who.
    pub client: ClientId,
    /// Which life.
    pub instance: Instance,
    /// Dense per life, from 1.
    pub sequence: u64,
}
wire_fields!(RequestId {
    client,
    instance,
    sequence
});

/// The snapshots that exist for the object, as the client knows them: a write preserves the state
/// of each newer than the last write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapContext {
    /// Newest snapshot.
    pub sequence: u64,
    /// All, newest first.
    pub snapshots: Vec<SnapId>,
}
wire_fields!(SnapContext {
    sequence,
    snapshots
});

/// One part of an operation. Lengths refer to the payload where the part carries data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubOp {
    /// Data of a range, short at the object's end.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes at most.
        length: u64,
    },
    /// Size, version, times.
    Stat {},
    /// Writes a range from the payload; a gap reads as zeros.
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
    /// Writes at the end.
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
        /// Bytes.
        size: u64,
    },
    /// Makes the object exist.
    Create {
        /// Fails if it does already.
        exclusive: bool,
    },
    /// Removes the object with attributes and omap.
    Delete {},
    /// An attribute's value.
    GetAttr {
        /// Which.
        name: Name,
    },
    /// All attributes.
    ListAttrs {},
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
    /// Values of omap keys; absent keys are left out.
    OmapGet {
        /// Which.
        keys: Vec<Bytes>,
    },
    /// Keys and values in key order.
    OmapList {
        /// Only keys after this one; empty is from the first.
        after: Bytes,
        /// At most this many.
        limit: u32,
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
    /// Guard: the object exists, or does not.
    AssertExists {
        /// Which of the two.
        exists: bool,
    },
    /// Guard: the object's version is this one.
    AssertVersion {
        /// As an earlier reply said.
        version: Version,
    },
    /// Guard: the range holds just these bytes of payload.
    CompareData {
        /// First byte.
        offset: u64,
        /// Bytes of payload.
        length: u64,
    },
    /// Guard: the attribute has this value; an absent one equals the empty value.
    CompareAttr {
        /// Which.
        name: Name,
        /// Its value.
        value: Bytes,
    },
    /// Objects of the placement group in its own order; the operation's object name is ignored.
    ListObjects {
        /// Where an earlier listing stopped; empty is the beginning.
        after: Bytes,
        /// At most this many.
        limit: u32,
    },
    /// Calls a method of a class on the object (MAL-20). It sees what the parts before it wrote.
    Call {
        /// Which class.
        class: Name,
        /// Which of its methods.
        method: Name,
        /// Bytes of payload: the input.
        length: u64,
    },
    /// Runs a script that comes with the call. For clients with that capability.
    Eval {
        /// Bytes of payload: the script.
        script: u64,
        /// Which of its registered functions.
        handler: Name,
        /// Bytes of payload after it: the input.
        input: u64,
    },
    /// CRC32C of a range, short at the object's end.
    Checksum {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Registers a watch of this client's life; again with the same cookie, it sets the timeout
    /// anew. Like every update it gives the object a new version, and so does a watch's end:
    /// whoever compares versions meets watchers.
    Watch {
        /// Which of the client's watches; never used for another.
        cookie: u64,
        /// A client silent for so many milliseconds loses the watch.
        timeout_ms: u32,
    },
    /// Ends a watch.
    Unwatch {
        /// Which of the client's watches.
        cookie: u64,
    },
    /// Tells every watcher, and says who has it; stands alone.
    Notify {
        /// Who has not acknowledged after so many milliseconds has missed it, and loses his watch.
        timeout_ms: u32,
        /// Bytes of payload.
        length: u64,
    },
    /// Who watches.
    ListWatchers {},
    /// Takes a lock for this client's life; again with the same cookie, it renews.
    Lock {
        /// Which.
        name: Name,
        /// Which of the client's threads or tasks.
        cookie: u64,
        /// Others may hold it too.
        shared: bool,
        /// A contender may take over from a holder silent for so many milliseconds; 0 is never.
        lease_ms: u32,
        /// For people.
        description: String,
    },
    /// Gives a lock back.
    Unlock {
        /// Which.
        name: Name,
        /// As it was taken.
        cookie: u64,
    },
    /// Takes a lock away from its holder, whoever that is. Fence him first, or his guarded
    /// operations fail and his other ones do not.
    BreakLock {
        /// Which.
        name: Name,
        /// Whose.
        owner: LockOwner,
    },
    /// Guard: this client's life holds the lock.
    AssertLock {
        /// Which.
        name: Name,
        /// As it was taken.
        cookie: u64,
        /// Holding it with others is enough.
        shared_ok: bool,
    },
    /// All locks and their holders.
    ListLocks {},
    /// The object's clones, and the snapshots that each preserves.
    ListSnaps {},
    /// Makes the object what it was at a snapshot; gone, if it was not there. Stands alone, but for
    /// guards.
    Rollback {
        /// Which.
        snap: SnapId,
    },
    /// Makes data, attributes and omap those of another object of the pool, all of one version.
    /// Watches, locks and clones stay. Stands alone, but for guards.
    CopyFrom {
        /// The source; with a snapshot, what it was then.
        source: ObjectId,
    },
    /// All of the object, of one version, for a copy; stands alone.
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
    /// Say when it is applied in memory on the whole acting set, before it is durable (CEPH-46,
    /// [`OpApplied`]).
    pub const ACK: u32 = 1;
    /// The reader accepts what is applied but not yet durable.
    pub const UNCOMMITTED: u32 = 2;
    /// Write although the pool is full: the operation frees space.
    pub const FULL_OK: u32 = 4;
}

/// One operation. By default it has no name and no parts, and asks for nothing special.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpRequest {
    /// Its name.
    pub request: RequestId,
    /// The client has the answers of all its operations below this sequence number.
    pub answered_below: u64,
    /// Where the client believes the object is.
    pub pg: PgId,
    /// Which object.
    pub object: ObjectId,
    /// Parts, in order.
    pub ops: Vec<SubOp>,
    /// Bits of [`op_flag`].
    pub flags: u32,
    /// The OSD must know at least this epoch's fences before it acts.
    pub fence: Epoch,
    /// Snapshots to preserve.
    pub snaps: SnapContext,
    /// For following one operation through the daemons' logs; 0 is none.
    pub trace: u64,
    /// Whose share of the service it takes.
    pub tenant: u32,
    /// Not worth executing after so many milliseconds in the OSD's hands; 0 is no limit.
    pub deadline_ms: u32,
    /// How often it was sent before. A failure that answers an earlier attempt means nothing: a
    /// later one may succeed.
    pub attempt: u32,
    /// The client's wall clock, in milliseconds since 1970: when the object was changed, for
    /// people, and what methods take for now.
    pub unix_ms: u64,
    /// Not sent before this.
    pub dated: Dated,
}
wire_record!(OpRequest version 2 compat 1 {
    request, answered_below, pg, object, ops, flags, fence, snaps, trace, tenant, deadline_ms, attempt, unix_ms,
} since 2 { dated });

/// A moment by the clock of an OSD's process: at or before the moment that is meant, never after
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dated {
    /// The random number of the process whose clock it is; 0: nothing is said.
    pub process: u64,
    /// What that clock showed, in nanoseconds.
    pub reading: u64,
}
wire_fields!(Dated { process, reading });

/// Why an operation had no effect. Except for `WrongTarget`, every replica would say the same.
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
    /// This OSD does not serve the group in its epoch: get the map the frame's epoch says, and
    /// resend.
    WrongTarget {},
    /// The sequence number is below the lowest unanswered one and unknown, or the client may have
    /// been forgotten since it first asked: executing it might be the second time.
    Superseded {},
    /// The client's instance is fenced.
    Fenced {},
    /// No space, or the pool's quota is used up. Deletes still work.
    Full {},
    /// A limit of this module is exceeded.
    TooLarge {},
    /// Not an operation this OSD can do; says what is wrong.
    Invalid {
        /// For people.
        why: String,
    },
    /// Stored data failed its checksum, and no good copy is known. Of an update that was sent
    /// before, it does not say that it was not executed.
    Corrupt {
        /// First bad byte.
        offset: u64,
    },
    /// The operation's deadline passed before it was executed.
    Expired {},
    /// The group has forgotten clients, and this may be one of them: send it again, and say when it
    /// was first sent, by the clock that shows this.
    Undated {
        /// What the OSD's clock shows.
        now: Dated,
    },
    /// The client's capabilities do not allow it.
    Denied {
        /// For people: who may not do what.
        why: String,
    },
    /// No such class is active, or it has no such method.
    NoSuchMethod {
        /// For people.
        why: String,
    },
    /// A method failed, and nothing of the operation happened.
    Method {
        /// Index of the call in [`OpRequest::ops`].
        index: u32,
        /// The activation that ran; 0 for a script that came with the call.
        activation: u64,
        /// What it returned or raised, as a positive error number.
        errno: u32,
        /// For people: script, line and message; empty if the method chose the number itself.
        why: String,
    },
    /// The object has as many watches, locks, holders or waiting notifies as it may have.
    TooMany {
        /// For people: of what, and how many.
        what: String,
    },
    /// Somebody else holds the lock.
    LockHeld {
        /// Who; the first of several.
        owner: LockOwner,
        /// What he says he does.
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

/// What a part of an operation returns. Lengths refer to the reply's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubReply {
    /// Nothing but success.
    Done {},
    /// Bytes of payload.
    Data {
        /// How many.
        length: u64,
    },
    /// Size and version.
    Stat {
        /// Bytes.
        size: u64,
        /// Version of the last update.
        version: Version,
        /// When that was by its client's clock, in milliseconds since 1970.
        modified_ms: u64,
    },
    /// A value.
    Value {
        /// The attribute's.
        value: Bytes,
    },
    /// Keys and values.
    Entries {
        /// In key order.
        entries: Vec<(Bytes, Bytes)>,
        /// Whether there are more after them.
        more: bool,
    },
    /// Objects.
    Objects {
        /// In the group's order.
        objects: Vec<ObjectId>,
        /// Where to go on; none at the group's end.
        next: Option<Bytes>,
    },
    /// What a method returned.
    Called {
        /// The activation that ran (MAL-06); 0 for a script that came with the call.
        activation: u64,
        /// Zero or positive, as the method chose.
        status: u32,
        /// Its output.
        output: Bytes,
    },
    /// CRC32C.
    Checksum {
        /// It.
        crc: u32,
        /// Of so many bytes.
        length: u64,
    },
    /// Who has a notify. The watchers' replies are the operation's payload, in order.
    Notified {
        /// Who acknowledged.
        acked: Vec<NotifyAcked>,
        /// Who did not in time; these watches are gone.
        missed: Vec<WatcherId>,
        /// A resend was answered from memory, which does not keep the watchers' replies: their
        /// lengths are 0.
        from_memory: bool,
    },
    /// Who watches.
    Watchers {
        /// In order.
        watchers: Vec<Watcher>,
    },
    /// The lock is this client's.
    Locked {
        /// Fencing token: the object's version at the grant.
        token: Version,
        /// The holder's requests must carry at least this epoch: it has the fences of those from
        /// whom the lock was taken.
        fence: Epoch,
    },
    /// All locks.
    Locks {
        /// In order of their names.
        locks: Vec<LockEntry>,
    },
    /// What snapshots preserve of the object.
    Snaps {
        /// The newest snapshot that a write to the object knew; what is newer is the object as it
        /// is.
        sequence: u64,
        /// Whether the object is there now.
        exists: bool,
        /// Oldest first.
        clones: Vec<CloneInfo>,
    },
    /// All of the object. Its data is the operation's payload.
    Whole {
        /// All but the data.
        object: Whole,
    },
}
impl SubReply {
    /// Bytes of values, keys, names and outputs in it; data is not in it but in the payload.
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
            // A few numbers, or bounded by what one object may have of it.
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
    /// To which.
    pub request: RequestId,
    /// Why it had no effect, if so.
    pub failure: Option<OpFailure>,
    /// The object's version after the operation.
    pub version: Version,
    /// One for each part, if it succeeded.
    pub results: Vec<SubReply>,
    /// From the request.
    pub attempt: u32,
}
wire_record!(OpReply version 1 compat 1 { request, failure, version, results, attempt });

/// Told to a client that set [`op_flag::ACK`]: its update is applied in memory on the whole acting
/// set (CEPH-46). It may still be lost if all of them lose power; the answer proper follows when it
/// is durable, and until then the client keeps the operation and sends it again if need be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpApplied {
    /// Which operation.
    pub request: RequestId,
    /// The object's version after it.
    pub version: Version,
    /// From the request.
    pub attempt: u32,
}
wire_record!(OpApplied version 1 compat 1 { request, version, attempt });

/// Told to a client whose operation waits for long: why, and since when. The operation goes on
/// waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpBlocked {
    /// Which operation.
    pub request: RequestId,
    /// What for, for people.
    pub reason: String,
    /// How long it has been in the OSD's hands, in milliseconds.
    pub since_ms: u64,
}
wire_record!(OpBlocked version 1 compat 1 { request, reason, since_ms });
