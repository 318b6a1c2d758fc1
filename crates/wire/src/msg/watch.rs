//! Watch and notify: who wants to hear of an object, and how he is told (CHECKLIST CEPH-09).
//!
//! ```text
//!  watcher ──OpRequest[Watch]──▶ primary        a replicated record of the object
//!  watcher ◀──WatchNotify────── primary ◀──OpRequest[Notify]── notifier
//!  watcher ──NotifyAck────────▶ primary ──OpReply[Notified]──▶ notifier, when all have acknowledged or missed it
//!  watcher ──WatchPing────────▶ primary ──WatchPong──────────▶ watcher: the record exists, or it is gone for good
//! ```

use super::client::RequestId;
use crate::{wire_fields, wire_record};
use nacre_types::{ClientId, Instance, ObjectId, PgId, Version};
use std::fmt;

/// Most watches of one object.
pub const WATCHERS_MAX: usize = 100;
/// Largest payload of a notify: 64 KiB.
pub const NOTIFY_BYTES_MAX: u64 = 64 << 10;
/// Largest reply with which one watcher acknowledges, in bytes.
pub const NOTIFY_REPLY_MAX: usize = 4096;
/// Most notifies of one object that wait for acknowledgements.
pub const NOTIFIES_MAX: usize = 16;
/// Shortest and longest timeout of a watch, in milliseconds.
pub const WATCH_TIMEOUT_MS: (u32, u32) = (100, 3_600_000);
/// Shortest and longest timeout of a notify, in milliseconds.
pub const NOTIFY_TIMEOUT_MS: (u32, u32) = (10, 600_000);

/// One watch of an object: whose, and which of his. A cookie is used once in a client's life, so
/// that a watch that is gone never comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatcherId {
    /// Whose.
    pub client: ClientId,
    /// In which life.
    pub instance: Instance,
    /// Which of his watches.
    pub cookie: u64,
}
wire_fields!(WatcherId {
    client,
    instance,
    cookie
});

impl fmt::Display for WatcherId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "client.{}/{} watch {}",
            self.client.0, self.instance.0, self.cookie
        )
    }
}

/// What an object's replicated state says of a watch; the attribute's name says whose it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchRecord {
    /// A watcher silent for so many milliseconds loses the watch.
    pub timeout_ms: u32,
    /// The object's version when it was registered.
    pub since: Version,
}
wire_record!(WatchRecord version 1 compat 1 { timeout_ms, since });

/// A watch, in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watcher {
    /// Whose.
    pub id: WatcherId,
    /// What is recorded.
    pub record: WatchRecord,
}
wire_fields!(Watcher { id, record });

/// A watcher that acknowledged a notify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotifyAcked {
    /// Who.
    pub watcher: WatcherId,
    /// Bytes of the operation's reply payload that are its reply.
    pub length: u32,
}
wire_fields!(NotifyAcked { watcher, length });

/// Told to a watcher: somebody notifies. It may come again, with the same name, until it is
/// acknowledged and after the primary changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchNotify {
    /// The object's group.
    pub pg: PgId,
    /// Which object.
    pub object: ObjectId,
    /// Which watch.
    pub watcher: WatcherId,
    /// The notifying operation.
    pub notify: RequestId,
}
wire_record!(WatchNotify version 1 compat 1 { pg, object, watcher, notify });

/// A watcher has it. The payload is its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifyAck {
    /// The object's group.
    pub pg: PgId,
    /// Which object.
    pub object: ObjectId,
    /// Which watch.
    pub watcher: WatcherId,
    /// The notifying operation.
    pub notify: RequestId,
}
wire_record!(NotifyAck version 1 compat 1 { pg, object, watcher, notify });

/// A watcher is still there and asks whether his watch is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchPing {
    /// The object's group.
    pub pg: PgId,
    /// Which object.
    pub object: ObjectId,
    /// Which watch.
    pub watcher: WatcherId,
    /// The watcher's clock, returned as it is.
    pub stamp: u64,
}
wire_record!(WatchPing version 1 compat 1 { pg, object, watcher, stamp });

/// Whether a watch is there: the answer to a ping, or, with stamp 0, said unasked when it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchPong {
    /// Which watch.
    pub watcher: WatcherId,
    /// From the ping.
    pub stamp: u64,
    /// The record exists; otherwise it never will again.
    pub alive: bool,
}
wire_record!(WatchPong version 1 compat 1 { watcher, stamp, alive });
