//! What services may use: submit operations and take completions.
//!
//! Implemented by [`crate::Client`], whichever host runs it, and on Ceph's librados.

use crate::rooms::Room;
use bytes::Bytes;
use nacre_types::{ClientId, Epoch, Instance, ObjectId, PoolId, Time, Version};
use nacre_wire::Payload;
use nacre_wire::msg::check::inline_bytes;
use nacre_wire::msg::client::{OpFailure, RequestId, SnapContext, SubOp, SubReply};
use nacre_wire::msg::payload_len;
use std::fmt;
use std::time::Duration;

/// Identifies an operation in flight; increases with every submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpId(pub u64);

/// One operation: parts applied atomically to one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operation {
    /// The pool.
    pub pool: PoolId,
    /// The object.
    pub object: ObjectId,
    /// The parts, in order.
    pub ops: Vec<SubOp>,
    /// Data of the parts, in order.
    pub payload: Payload,
    /// Bits of [`nacre_wire::msg::client::op_flag`].
    pub flags: u32,
    /// For operations on a placement group instead of an object (listing): the PG's number.
    pub group: Option<u32>,
    /// In a pool whose clients allocate snapshot ids themselves (`pool snap create` without a
    /// name): the snapshots that a write preserves. Empty: none. In other pools it must be empty,
    /// because the map decides there.
    pub snaps: SnapContext,
}

impl Operation {
    /// The bytes that it has in flight: of its payload, and of its parts.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        payload_len(&self.payload) as u64 + inline_bytes(&self.ops)
    }
}

/// The end of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// The operation.
    pub id: OpId,
    /// Its result.
    pub result: Result<Done, Failure>,
}

/// The result of a successful operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// The object's version after it.
    pub version: Version,
    /// One result for each part.
    pub results: Vec<SubReply>,
    /// Data of the parts, in order.
    pub payload: Payload,
}

/// Why an operation had no effect, or may have had one.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The cluster refused it; it had no effect, except for the failures listed in
    /// [`Self::may_have_happened`].
    Refused(OpFailure),
    /// The cluster refuses it now, for a reason that does not depend on the object (space, time, a
    /// fence, rights). It had been sent before without an answer, and may have been executed then
    /// or may be executed later (an update that some members lost is executed again if no member
    /// has the object without it).
    Doubtful(OpFailure),
    /// The pool does not exist, or no longer exists.
    NoSuchPool,
    /// The caller gave up waiting ([`crate::Client::abandon`]): the operation may or may not have
    /// been executed, or may be executed later.
    Unknown,
    /// Another engine refused it, for a reason without an equivalent here; it had no effect.
    Foreign {
        /// The engine's positive error number.
        code: i32,
        /// Human-readable reason.
        why: String,
    },
}
impl Failure {
    /// Whether the operation may have been executed, or may be executed later.
    #[must_use]
    pub const fn may_have_happened(&self) -> bool {
        matches!(
            self,
            Self::Unknown
                | Self::Doubtful(_)
                | Self::Refused(OpFailure::Superseded {} | OpFailure::Corrupt { .. })
        )
    }
}
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => why.fmt(f),
            Self::Doubtful(why) => {
                write!(f, "{why}. It was sent before, and may have happened then")
            }
            Self::NoSuchPool => f.write_str("the pool does not exist"),
            Self::Unknown => f.write_str("no answer came in time; the operation may have happened"),
            Self::Foreign { why, .. } => f.write_str(why),
        }
    }
}
impl std::error::Error for Failure {}

/// Why an operation was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The limit of operations in flight is reached: take completions first.
    Busy,
    /// There is no map yet: wait for it.
    NotConnected,
    /// The map has no such pool.
    NoSuchPool,
    /// This implementation cannot do it: see [`ObjectCluster::capabilities`].
    Unsupported,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "too many operations of this client are in flight",
            Self::NotConnected => "no monitor has answered; are the monitors running?",
            Self::NoSuchPool => "the pool was removed",
            Self::Unsupported => "this cluster cannot do that",
        })
    }
}
impl std::error::Error for Refused {}

/// Identifies a watch, and, as an [`OpId`], the operation that registers it. Never reused by a
/// client instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchId(pub u64);

/// An event for a watcher.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// A notify. It must be acknowledged with [`ObjectCluster::ack_notify`] within the notifier's
    /// timeout, or the watch is lost.
    Notify {
        /// The watch.
        watch: WatchId,
        /// Identifies the notify.
        notify: RequestId,
        /// The notify's payload.
        payload: Payload,
    },
    /// The watch is gone, and notifies may have been missed: read the object again, and watch it
    /// again.
    Lost {
        /// The watch.
        watch: WatchId,
        /// When, by this client's clock, the watch last existed for certain. Missed notifies were
        /// sent later, or less than the notify's timeout earlier.
        since: Time,
    },
}

/// Why a notify was not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchError {
    /// The watch is lost or was ended.
    NoSuchWatch,
    /// It was acknowledged before, or never arrived.
    NoSuchNotify,
    /// The reply is longer than [`NOTIFY_REPLY_MAX`](nacre_wire::msg::watch::NOTIFY_REPLY_MAX).
    ReplyTooLarge,
    /// This implementation cannot watch.
    Unsupported,
}
impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchWatch => "the watch is lost or was ended; watch again",
            Self::NoSuchNotify => "the notify has been acknowledged already, or never came",
            Self::ReplyTooLarge => "the reply to a notify has at most 4096 bytes",
            Self::Unsupported => "this cluster cannot watch objects",
        })
    }
}
impl std::error::Error for WatchError {}

/// What an operation in flight waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The operation.
    pub id: OpId,
    /// Human-readable reason.
    pub reason: String,
    /// When the wait began.
    pub since: Time,
}

/// What an implementation can do beyond plain operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Early answers when an update is applied in memory, before it is durable (CEPH-46).
    pub ack: bool,
    /// Watch and notify.
    pub watch: bool,
    /// Class calls.
    pub exec: bool,
    /// Class calls read their own writes and those of earlier parts.
    pub exec_reads_own_writes: bool,
    /// A class call that writes returns its output, whatever the output's length.
    pub exec_writes_return: bool,
    /// Can fence another client.
    pub fence: bool,
    /// Lists which snapshots an object has clones for.
    pub list_snaps: bool,
    /// Names, namespaces, attributes' names and keys may contain zero bytes.
    pub zero_bytes: bool,
}

/// A replicated object store.
pub trait ObjectCluster {
    /// What the implementation can do.
    fn capabilities(&self) -> Capabilities;
    /// Begins an operation.
    ///
    /// # Errors
    /// [`Refused`]: nothing was begun.
    fn submit(&mut self, now: Time, operation: Operation) -> Result<OpId, Refused>;
    /// Whether an operation of so many bytes ([`Operation::bytes`]) fits into the bounds of what is
    /// in flight. If not, [`Self::submit`] refuses it as [`Refused::Busy`]. Alone every one fits.
    fn has_room(&self, bytes: u64) -> bool {
        let _ = bytes;
        true
    }
    /// Takes the operations that have ended since the last call, in the order in which they ended.
    fn completions(&mut self, into: &mut Vec<Completion>);
    /// Takes the operations with [`op_flag::ACK`](nacre_wire::msg::client::op_flag::ACK) that were
    /// applied in memory on the whole acting set since the last call (CEPH-46). Their completions
    /// follow later; until then the implementation keeps them and resends them after a failure, so
    /// they can only be lost together with this client. Each is reported at most once, and never
    /// after its completion.
    fn acks(&mut self, into: &mut Vec<OpId>) {
        let _ = into;
    }
    /// Begins to fence a client instance and all earlier ones: requests that they sent and that
    /// were not executed yet never will be. Once this has succeeded, none of their requests is
    /// executed after an operation that is begun here. It ends like an operation, without results.
    ///
    /// # Errors
    /// [`Refused`]: nothing was begun; [`Refused::Unsupported`] without the capability.
    fn fence(&mut self, now: Time, client: ClientId, instance: Instance) -> Result<OpId, Refused> {
        let _ = (now, client, instance);
        Err(Refused::Unsupported)
    }
    /// Operations begun from now on may depend on the fences in the map of this epoch, which a peer
    /// has reported. They are executed only where those fences are in force. Does nothing on
    /// engines without epochs.
    fn rest_on(&mut self, epoch: Epoch) {
        let _ = epoch;
    }

    /// The remaining space of a pool, as last reported. If the report is old, the cluster is asked,
    /// at most once in [`ROOM_AGE`](crate::ROOM_AGE) for all pools; its answer causes a turn.
    fn room(&mut self, now: Time, pool: PoolId) -> Room {
        let _ = (now, pool);
        Room::UNKNOWN
    }

    /// Begins to watch an object. The registration ends like any operation, with the completion of
    /// the [`OpId`] with the same number; if it fails, there is no watch. A watcher silent for
    /// `timeout` (between 100 ms and an hour) loses the watch; pings are sent automatically. An
    /// object has at most 100 watches. Deleting the object ends them.
    ///
    /// # Errors
    /// [`Refused`]: nothing was begun; [`Refused::Unsupported`] without the capability.
    fn watch(
        &mut self,
        now: Time,
        pool: PoolId,
        object: ObjectId,
        timeout: Duration,
    ) -> Result<WatchId, Refused> {
        let _ = (now, pool, object, timeout);
        Err(Refused::Unsupported)
    }
    /// Ends a watch: it has no more events from now on. Returns the operation that removes its
    /// record; `None` if the watch is already lost.
    ///
    /// # Errors
    /// [`Refused`]: the watch continues.
    fn unwatch(&mut self, now: Time, watch: WatchId) -> Result<Option<OpId>, Refused> {
        let _ = (now, watch);
        Err(Refused::Unsupported)
    }
    /// Takes the watchers' events, in order. Delivery is at least once while watcher and notifier
    /// are alive: every notify begun after a watch's registration was answered is reported here, or
    /// else [`WatchEvent::Lost`] is, at the latest when the client next reaches the object's
    /// primary. A notify may arrive before its watch's completion.
    fn watch_events(&mut self, into: &mut Vec<WatchEvent>) {
        let _ = into;
    }
    /// Acknowledges a notify, with a reply of at most 4096 bytes for the notifier.
    ///
    /// # Errors
    /// [`WatchError`].
    fn ack_notify(
        &mut self,
        now: Time,
        watch: WatchId,
        notify: RequestId,
        reply: Bytes,
    ) -> Result<(), WatchError> {
        let _ = (now, watch, notify, reply);
        Err(WatchError::Unsupported)
    }
    /// When, by this client's clock, the watch last existed for certain; `None` if it is lost or
    /// not registered yet. A service that must not rely on a silent watch for longer than some time
    /// compares this with the current time.
    fn watch_confirmed(&self, watch: WatchId) -> Option<Time> {
        let _ = watch;
        None
    }
}
