//! What services may use: submit operations, take completions, nothing else.
//!
//! Three implementations are meant to exist: in-process, network (both [`crate::Client`] under
//! different hosts), and Ceph's librados.

use crate::rooms::Room;
use bytes::Bytes;
use nacre_types::{ClientId, Epoch, Instance, ObjectId, PoolId, Time, Version};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, RequestId, SnapContext, SubOp, SubReply};
use std::fmt;
use std::time::Duration;

/// Names an operation in flight; grows with every submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpId(pub u64);

/// One operation: parts applied atomically to one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operation {
    /// Which pool.
    pub pool: PoolId,
    /// Which object.
    pub object: ObjectId,
    /// In order.
    pub ops: Vec<SubOp>,
    /// Data of the parts, in order.
    pub payload: Payload,
    /// Bits of [`nacre_wire::msg::client::op_flag`].
    pub flags: u32,
    /// For operations on a placement group instead of an object (listing): its number.
    pub group: Option<u32>,
    /// In a pool whose snapshot ids clients allocate themselves (`pool snap create` without a
    /// name): what a write preserves. Empty: nothing. In other pools it must be empty; there the
    /// map says it.
    pub snaps: SnapContext,
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// Which one.
    pub id: OpId,
    /// What it returned.
    pub result: Result<Done, Failure>,
}

/// What a successful operation returned.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// The object's version after it.
    pub version: Version,
    /// One for each part.
    pub results: Vec<SubReply>,
    /// Data of the parts, in order.
    pub payload: Payload,
}

/// Why an operation had no effect, or may have had one.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The cluster said so; it had no effect, but for those of [`Self::may_have_happened`].
    Refused(OpFailure),
    /// The cluster refuses it now, for a reason that does not depend on the object (room, time, a
    /// fence, rights). It had been sent before, without an answer, and may have been executed then,
    /// or be executed later (an update that some members lost is done again where no member has the
    /// object without it).
    Doubtful(OpFailure),
    /// The pool does not exist (any more).
    NoSuchPool,
    /// The caller gave up waiting ([`crate::Client::abandon`]): it may have happened, or happen
    /// yet.
    Unknown,
    /// Another engine refused it, for a reason that has no word here; it had no effect.
    Foreign {
        /// The engine's positive error number.
        code: i32,
        /// For people.
        why: String,
    },
}
impl Failure {
    /// Whether the operation may have been executed, or be executed later.
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

/// Why an operation was not even taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// As much as allowed is in flight: take completions first.
    Busy,
    /// There is no map yet: wait for it.
    NotConnected,
    /// The map has no such pool.
    NoSuchPool,
    /// This implementation cannot do it: see [`ObjectCluster::capabilities`].
    Unsupported,
}

/// Names a watch; also, as an [`OpId`], the operation that registers it. Never used again in a
/// client's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchId(pub u64);

/// What a watcher hears.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// Somebody notifies. To be acknowledged with [`ObjectCluster::ack_notify`] within the
    /// notifier's timeout, or the watch is lost.
    Notify {
        /// Which watch.
        watch: WatchId,
        /// Names the notify.
        notify: RequestId,
        /// What is told.
        payload: Payload,
    },
    /// The watch is gone, and notifies may have been missed: read the object again, and watch it
    /// again.
    Lost {
        /// Which watch.
        watch: WatchId,
        /// By this client's clock, the watch was still there then. What it missed was notified
        /// later, or less than the notify's timeout before.
        since: Time,
    },
}

/// Why a notify was not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchError {
    /// The watch is lost or was ended.
    NoSuchWatch,
    /// It has been acknowledged, or never came.
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

/// What an operation in flight has been waiting for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Which one.
    pub id: OpId,
    /// For people.
    pub reason: String,
    /// Since when.
    pub since: Time,
}

/// What an implementation can do beyond plain operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Answers when applied in memory, before durable (CEPH-46).
    pub ack: bool,
    /// Watch and notify.
    pub watch: bool,
    /// Class calls.
    pub exec: bool,
    /// Class calls read their own writes, and those of parts before them.
    pub exec_reads_own_writes: bool,
    /// A class call that writes returns its output, whatever its length.
    pub exec_writes_return: bool,
    /// Ends another client's life.
    pub fence: bool,
    /// Lists which snapshots an object has clones for.
    pub list_snaps: bool,
    /// Names, namespaces, attributes' names and keys may have bytes 0 in them.
    pub zero_bytes: bool,
}

/// A replicated object store.
pub trait ObjectCluster {
    /// What it can do.
    fn capabilities(&self) -> Capabilities;
    /// Begins an operation.
    ///
    /// # Errors
    /// [`Refused`]: nothing has begun.
    fn submit(&mut self, now: Time, operation: Operation) -> Result<OpId, Refused>;
    /// Takes what has ended since the last call, in the order in which it ended.
    fn completions(&mut self, into: &mut Vec<Completion>);
    /// Takes the operations with [`op_flag::ACK`](nacre_wire::msg::client::op_flag::ACK) that were
    /// applied in memory on the whole acting set since the last call (CEPH-46). Their completions
    /// are still to come; until then the implementation keeps them and sends them again after a
    /// failure, so what is lost is lost only together with this client. Each is named at most once,
    /// and never after its completion.
    fn acks(&mut self, into: &mut Vec<OpId>) {
        let _ = into;
    }
    /// Begins to end a client's life, and all its earlier ones: what it sent and was not executed
    /// yet never is. Once this has ended well, nothing of it is executed any more after an
    /// operation that is begun here. It ends like an operation, with no results.
    ///
    /// # Errors
    /// [`Refused`]: nothing has begun; [`Refused::Unsupported`] without the capability.
    fn fence(&mut self, now: Time, client: ClientId, instance: Instance) -> Result<OpId, Refused> {
        let _ = (now, client, instance);
        Err(Refused::Unsupported)
    }
    /// What is begun from now on may rest on fences that the map of this epoch has: a peer that
    /// knows it has said so. It is executed only where those fences are in force. Nothing where
    /// there are no epochs.
    fn rest_on(&mut self, epoch: Epoch) {
        let _ = epoch;
    }

    /// What still fits into a pool, as was said last. If that is old the cluster is asked, at most
    /// once in [`ROOM_AGE`](crate::ROOM_AGE) for all pools: there is a turn when it has answered.
    fn room(&mut self, now: Time, pool: PoolId) -> Room {
        let _ = (now, pool);
        Room::UNKNOWN
    }

    /// Begins to watch an object. The registration ends like any operation, with the completion of
    /// the [`OpId`] of the same number; if it fails, there is no watch. A watcher silent for
    /// `timeout` (between 100 ms and an hour) loses it; pings go by themselves. An object has at
    /// most 100 watches. Deleting the object breaks them.
    ///
    /// # Errors
    /// [`Refused`]: nothing has begun; [`Refused::Unsupported`] without the capability.
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
    /// Ends a watch: there are no more events of it from now on. Returns the operation that removes
    /// its record; `None` if it is lost already.
    ///
    /// # Errors
    /// [`Refused`]: the watch goes on.
    fn unwatch(&mut self, now: Time, watch: WatchId) -> Result<Option<OpId>, Refused> {
        let _ = (now, watch);
        Err(Refused::Unsupported)
    }
    /// Takes what watchers have to hear, in order. Delivery is at least once while watcher and
    /// notifier live: every notify that was begun after a watch's registration was answered is told
    /// here, or else [`WatchEvent::Lost`] is, at the latest when the client next reaches the
    /// object's primary. A notify may come before its watch's completion.
    fn watch_events(&mut self, into: &mut Vec<WatchEvent>) {
        let _ = into;
    }
    /// Acknowledges a notify, with at most 4096 bytes of reply for the notifier.
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
    /// When, by this client's clock, a watch was last known to be there; `None` if it is lost or
    /// not registered yet. Whoever must not trust silence for longer than so-and-so compares this
    /// with the time.
    fn watch_confirmed(&self, watch: WatchId) -> Option<Time> {
        let _ = watch;
        None
    }
}
