//! The purpose of pending store events: noted when a read or a transaction is submitted, and
//! returned to the placement group with the event.

use bytes::Bytes;
use nacre_store::{ReadError, ReadReply};
use nacre_types::{ObjectId, OsdId, Version};

/// The purpose of a store event.
#[derive(Debug)]
pub enum Purpose {
    /// Nothing depends on it.
    Nothing,
    /// The update is durable here.
    Logged(Version),
    /// Everything in our log is durable: peering may rely on it.
    Barrier,
    /// Everything in our log is durable: report to the peering primary.
    InfoBarrier(OsdId),
    /// The adopted log is durable here; acknowledge or continue peering.
    Adopted,
    /// An object's attributes and size.
    Stat(ObjectId),
    /// A part of an operation's reads.
    OpRead {
        /// The operation.
        op: u64,
        /// The part.
        index: usize,
    },
    /// A part of an object to be pushed.
    PushRead {
        /// The receiver.
        to: OsdId,
        /// The object.
        object: ObjectId,
        /// The transfer.
        transfer: u64,
        /// The kind of read.
        what: PushRead,
    },
    /// A received part is durable.
    PartStored {
        /// The sender.
        from: OsdId,
        /// The object.
        object: ObjectId,
        /// The version.
        version: Version,
        /// The transfer, and the part.
        part: (u64, u32),
        /// Whether it completes the object.
        last: bool,
    },
    /// Objects in a range, for the backfill of this member.
    ScanList {
        /// The comparison.
        round: u64,
        /// The number requested.
        limit: usize,
    },
    /// The version of one of them.
    ScanStat {
        /// The comparison.
        round: u64,
        /// The index of the object.
        index: usize,
    },
    /// Objects in a range, for a client's listing.
    ClientList(u64),
    /// The state of a listed object.
    ListedStat {
        /// The listing.
        number: u64,
        /// The object.
        object: ObjectId,
    },
    /// Objects in a range, to compare with a backfill target.
    BackfillList {
        /// The comparison.
        round: u64,
        /// The number requested.
        limit: usize,
    },
    /// The version of one of them.
    BackfillStat {
        /// The comparison.
        round: u64,
        /// The index of the object.
        index: usize,
    },
    /// The backfill cursor is durable here.
    CursorStored {
        /// The OSD to report to.
        to: OsdId,
        /// The cursor.
        cursor: Option<Bytes>,
        /// The comparison that it results from.
        round: u64,
    },
    /// Objects in a page of a count.
    CountList(u64),
    /// The size of one of them.
    CountStat {
        /// The page.
        number: u64,
        /// The object's position.
        position: Bytes,
    },
    /// A page of clones, to trim them.
    TrimList(u64),
    /// The state of our replica of an object, to execute undone updates on it again.
    Redo(ObjectId),
    /// Objects to be erased.
    EraseList,
    /// A page of objects is durably erased.
    Erased,
}

/// A store event's content.
#[derive(Debug)]
pub enum StoreOutcome {
    /// Durable.
    Committed,
    /// Read.
    Read(Result<ReadReply, ReadError>),
}

/// The kind of read for a part of an object to be pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushRead {
    /// Attributes and size.
    Stat,
    /// Data.
    Data,
    /// Omap.
    Omap,
}
