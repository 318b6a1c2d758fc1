//! Watch and notify: how clients register for notifications about an object and receive them
//! (CHECKLIST CEPH-09).
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
/// Most notifies of one object that may wait for acknowledgements.
pub const NOTIFIES_MAX: usize = 16;
/// Shortest and longest timeout of a watch, in milliseconds.
pub const WATCH_TIMEOUT_MS: (u32, u32) = (100, 3_600_000);
/// Shortest and longest timeout of a notify, in milliseconds.
pub const NOTIFY_TIMEOUT_MS: (u32, u32) = (10, 600_000);

/// Identifies one watch of an object. A client instance uses a cookie once, so a watch that ended
/// never comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatcherId {
    /// The watching client.
    pub client: ClientId,
    /// Its instance.
    pub instance: Instance,
    /// Identifies the watch within the client.
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

/// One watch in an object's replicated state; the attribute's name identifies the watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchRecord {
    /// A watcher silent for this many milliseconds loses the watch.
    pub timeout_ms: u32,
    /// The object's version when it was registered.
    pub since: Version,
}
wire_record!(WatchRecord version 1 compat 1 { timeout_ms, since });

/// A watch, in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watcher {
    /// The watch.
    pub id: WatcherId,
    /// The recorded state.
    pub record: WatchRecord,
}
wire_fields!(Watcher { id, record });

/// A watcher that acknowledged a notify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotifyAcked {
    /// The watcher.
    pub watcher: WatcherId,
    /// Length of its reply within the operation's reply payload, in bytes.
    pub length: u32,
}
wire_fields!(NotifyAcked { watcher, length });

/// Delivers a notify to a watcher. It may be repeated with the same request id until it is
/// acknowledged, and after a change of the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchNotify {
    /// The object's PG.
    pub pg: PgId,
    /// The object.
    pub object: ObjectId,
    /// The watch.
    pub watcher: WatcherId,
    /// The notifying operation.
    pub notify: RequestId,
}
wire_record!(WatchNotify version 1 compat 1 { pg, object, watcher, notify });

/// A watcher acknowledges a notify. The payload is its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifyAck {
    /// The object's PG.
    pub pg: PgId,
    /// The object.
    pub object: ObjectId,
    /// The watch.
    pub watcher: WatcherId,
    /// The notifying operation.
    pub notify: RequestId,
}
wire_record!(NotifyAck version 1 compat 1 { pg, object, watcher, notify });

/// A watcher is alive and asks whether its watch still exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchPing {
    /// The object's PG.
    pub pg: PgId,
    /// The object.
    pub object: ObjectId,
    /// The watch.
    pub watcher: WatcherId,
    /// The watcher's clock, returned unchanged.
    pub stamp: u64,
}
wire_record!(WatchPing version 1 compat 1 { pg, object, watcher, stamp });

/// Whether a watch exists: the answer to a ping, or, with stamp 0, sent unasked when the watch has
/// ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchPong {
    /// The watch.
    pub watcher: WatcherId,
    /// Copied from the ping.
    pub stamp: u64,
    /// Whether the record exists; if not, it never will again.
    pub alive: bool,
}
wire_record!(WatchPong version 1 compat 1 { watcher, stamp, alive });
