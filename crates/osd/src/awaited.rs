//! What events of the store are for: each is noted when a read or a transaction is submitted, and
//! comes back to the placement group with the event.

use bytes::Bytes;
use nacre_store::{ReadError, ReadReply};
use nacre_types::{ObjectId, OsdId, Version};

/// What a store event is for.
#[derive(Debug)]
pub enum Awaited {
    /// Nothing depends on it.
    Nothing,
    /// The update is durable here.
    Logged(Version),
    /// Everything in our log is durable: peering may count on it.
    Barrier,
    /// Everything in our log is durable: tell the primary that peers.
    InfoBarrier(OsdId),
    /// The adopted log is durable here; acknowledge or go on peering.
    Adopted,
    /// An object's attributes and size.
    Stat(ObjectId),
    /// A part of an operation's reads.
    OpRead {
        /// Which operation.
        op: u64,
        /// Which part.
        index: usize,
    },
    /// A part of an object to be pushed.
    PushRead {
        /// To whom.
        to: OsdId,
        /// Which object.
        object: ObjectId,
        /// For which transfer.
        transfer: u64,
        /// Which of the reads.
        what: PushRead,
    },
    /// A received part is durable.
    PartStored {
        /// From whom.
        from: OsdId,
        /// Which object.
        object: ObjectId,
        /// At which version.
        version: Version,
        /// Of which transfer, and which part.
        part: (u64, u32),
        /// Whether it completes the object.
        last: bool,
    },
    /// Objects in a range, for the backfill of this member.
    ScanList {
        /// For which comparison.
        round: u64,
        /// How many were asked for.
        limit: usize,
    },
    /// The version of one of them.
    ScanStat {
        /// For which comparison.
        round: u64,
        /// Which one.
        index: usize,
    },
    /// Objects in a range, for a client's listing.
    ClientList(u64),
    /// What a listed object is.
    ListedStat {
        /// For which listing.
        number: u64,
        /// Which object.
        object: ObjectId,
    },
    /// Objects in a range, to compare with a backfill target.
    BackfillList {
        /// For which comparison.
        round: u64,
        /// How many were asked for.
        limit: usize,
    },
    /// The version of one of them.
    BackfillStat {
        /// For which comparison.
        round: u64,
        /// Which one.
        index: usize,
    },
    /// The backfill cursor is durable here.
    CursorStored {
        /// Whom to tell.
        to: OsdId,
        /// It.
        cursor: Option<Bytes>,
        /// Of which comparison it comes.
        round: u64,
    },
    /// Objects in a page of a count.
    CountList(u64),
    /// The size of one of them.
    CountStat {
        /// Which page.
        number: u64,
        /// Which object.
        position: Bytes,
    },
    /// A page of clones, to trim them.
    TrimList(u64),
    /// What our copy of an object is, to do undone updates on it again.
    Redo(ObjectId),
    /// Objects to be erased.
    EraseList,
    /// A page of them is durably gone.
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

/// Which of the reads that a part of an object to be pushed takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushRead {
    /// Attributes and size.
    Stat,
    /// Data.
    Data,
    /// Omap.
    Omap,
}
