//! What callers ask of a client, and the queue in which they leave it.

use crate::error::Error;
use crate::meta::Sink;
use crate::meta_access::ended;
use crate::slot::Sender;
use crate::wake::Waker;
use crate::watch::Hearing;
use bytes::Bytes;
use nacre_client::{Blocked, Done, Operation, WatchId};
use nacre_types::{Epoch, ObjectId, PoolId, Time};
use nacre_wire::ClusterMap;
use nacre_wire::msg::client::RequestId;
use nacre_wire::msg::meta::{MetaCall, MetaResult, MetaSpan};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Where a caller waits for its answer.
pub type Reply<T> = Sender<Result<T, Error>>;

/// A request of a caller.
pub enum Call {
    /// An operation on an object.
    Operate {
        operation: Operation,
        deadline: Time,
        reply: Reply<Done>,
    },
    /// A command for the monitors.
    Command {
        request: String,
        writes: bool,
        deadline: Time,
        reply: Reply<String>,
    },
    /// A map of this epoch or newer.
    Map {
        at_least: Epoch,
        deadline: Time,
        reply: Reply<Arc<ClusterMap>>,
    },
    /// Registers a watch; answered when it is registered.
    Watch {
        pool: PoolId,
        object: ObjectId,
        timeout: Duration,
        deadline: Time,
        hearing: Arc<Hearing>,
        reply: Reply<Done>,
    },
    /// Acknowledges a notify for a watcher.
    Acknowledge {
        watch: WatchId,
        notify: RequestId,
        data: Bytes,
        reply: Reply<()>,
    },
    /// Ends a watch.
    Unwatch { watch: WatchId },
    /// A request about metadata.
    Meta {
        call: MetaCall,
        deadline: Time,
        reply: Reply<(u64, MetaResult)>,
    },
    /// Subscribes to changes of metadata.
    MetaWatch {
        span: MetaSpan,
        from: u64,
        sink: Arc<Sink>,
    },
    /// Ends such a subscription.
    MetaUnwatch { sink: Arc<Sink> },
    /// Lists operations in flight for longer than this.
    Blocked {
        than: Duration,
        reply: Reply<Vec<Blocked>>,
    },
}

impl Call {
    /// The pool that it is about.
    pub fn pool(&self) -> Option<PoolId> {
        match self {
            Self::Operate { operation, .. } => Some(operation.pool),
            Self::Watch { pool, .. } => Some(*pool),
            _ => None,
        }
    }
    /// Bytes that it has in flight, if it is an operation.
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Self::Operate { operation, .. } => Some(operation.bytes()),
            Self::Watch { .. } | Self::Unwatch { .. } => Some(0),
            _ => None,
        }
    }
    /// When a call that cannot begin fails.
    pub fn deadline(&self) -> Option<Time> {
        match self {
            Self::Operate { deadline, .. }
            | Self::Watch { deadline, .. }
            | Self::Command { deadline, .. }
            | Self::Map { deadline, .. }
            | Self::Meta { deadline, .. } => Some(*deadline),
            _ => None,
        }
    }
    /// Whether an operation's caller has given up before it began.
    pub fn is_given_up(&self) -> bool {
        match self {
            Self::Operate { reply, .. } | Self::Watch { reply, .. } => !reply.is_awaited(),
            _ => false,
        }
    }
    /// Answers it with an error.
    pub fn fail(self, why: Error) {
        match self {
            Self::Operate { reply, .. } | Self::Watch { reply, .. } => reply.send(Err(why)),
            Self::Command { reply, .. } => reply.send(Err(why)),
            Self::Map { reply, .. } => reply.send(Err(why)),
            Self::Acknowledge { reply, .. } => reply.send(Err(why)),
            Self::Meta { reply, .. } => reply.send(Err(why)),
            Self::Blocked { reply, .. } => reply.send(Err(why)),
            Self::MetaWatch { sink, .. } => {
                sink.push(ended(&why));
            }
            Self::Unwatch { .. } | Self::MetaUnwatch { .. } => {}
        }
    }
}

#[derive(Default)]
struct Inbox {
    calls: Vec<Call>,
    closed: Option<String>,
}

/// Queue of the callers' calls.
pub struct Port {
    inbox: Mutex<Inbox>,
    /// Whether the queue is not empty: read at each turn of the reactor, without the lock.
    filled: AtomicBool,
    waker: Arc<Waker>,
}

impl Port {
    pub fn new(waker: Arc<Waker>) -> Arc<Self> {
        Arc::new(Self {
            inbox: Mutex::default(),
            filled: AtomicBool::new(false),
            waker,
        })
    }
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    /// Queues a call.
    ///
    /// # Errors
    /// The client has stopped.
    pub fn call(&self, call: Call) -> Result<(), Error> {
        let mut inbox = self.lock();
        if let Some(why) = &inbox.closed {
            return Err(Error::Stopped { why: why.clone() });
        }
        inbox.calls.push(call);
        drop(inbox);
        if !self.filled.swap(true, Ordering::SeqCst) {
            self.waker.wake();
        }
        Ok(())
    }
    /// Takes the queued calls.
    pub fn take(&self) -> Vec<Call> {
        if !self.filled.load(Ordering::SeqCst) {
            return Vec::new();
        }
        // Before the queue is emptied: a later call wakes the reactor again.
        self.filled.store(false, Ordering::SeqCst);
        std::mem::take(&mut self.lock().calls)
    }
    /// Closes the queue; returns the pending calls. Dropping them tells their callers.
    pub fn close(&self, why: &str) -> Vec<Call> {
        let mut inbox = self.lock();
        inbox.closed.get_or_insert_with(|| why.to_owned());
        std::mem::take(&mut inbox.calls)
    }
    /// Why the client stopped, if it did.
    pub fn closed(&self) -> Option<String> {
        self.lock().closed.clone()
    }
}
