//! What services may use: submit operations, take completions, nothing else.
//!
//! Three implementations are meant to exist: in-process, network (both [`crate::Client`] under different hosts), and Ceph's librados.

use nacre_types::{ObjectId, PoolId, Time, Version};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use std::fmt;

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
    /// The cluster said so; it had no effect.
    Refused(OpFailure),
    /// The pool does not exist (any more).
    NoSuchPool,
    /// The caller gave up waiting ([`crate::Client::abandon`]): it may have happened, or happen yet.
    Unknown,
}
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => why.fmt(f),
            Self::NoSuchPool => f.write_str("the pool does not exist"),
            Self::Unknown => f.write_str("no answer came in time; the operation may have happened"),
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
}

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
    /// Class calls read their own writes.
    pub exec_reads_own_writes: bool,
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
    /// Takes the operations with [`op_flag::ACK`](nacre_wire::msg::client::op_flag::ACK) that were applied in memory on the whole acting
    /// set since the last call (CEPH-46). Their completions are still to come; until then the implementation keeps them and sends
    /// them again after a failure, so what is lost is lost only together with this client. Each is named at most once, and never after
    /// its completion.
    fn acks(&mut self, into: &mut Vec<OpId>) {
        let _ = into;
    }
}
