//! [`ObjectCluster`] over the facade: for users in the process of an embedded cluster, whose
//! daemons run on their own thread.
//!
//! Operations are sent when they are submitted, in that order. To the daemons, clones of one
//! [`Cluster`] are one client.

use crate::clock;
use crate::cluster::Cluster;
use crate::error::Error;
use nacre_client::{
    Capabilities, Completion, Done, Driven, Failure, ObjectCluster, OpId, Operation, Refused,
    WatchEvent,
};
use nacre_types::{PoolId, Time};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Maximum number of operations in flight.
const OPS_MAX: usize = 1024;

type Ending = Pin<Box<dyn Future<Output = Result<Done, Error>> + Send>>;

/// Wakes one operation.
struct Bell {
    id: u64,
    rung: Arc<Mutex<Vec<u64>>>,
    thread: Thread,
}
impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(self.id);
        self.thread.unpark();
    }
}

/// See the module head. Its owner polls it.
pub struct InProcess {
    cluster: Cluster,
    flying: BTreeMap<u64, Ending>,
    rung: Arc<Mutex<Vec<u64>>>,
    next: u64,
    done: Vec<Completion>,
}

impl InProcess {
    /// Over a cluster.
    #[must_use]
    pub fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            flying: BTreeMap::new(),
            rung: Arc::default(),
            next: 1,
            done: Vec::new(),
        }
    }

    fn poll(&mut self, id: u64) {
        let Some(ending) = self.flying.get_mut(&id) else {
            return;
        };
        let bell = Waker::from(Arc::new(Bell {
            id,
            rung: self.rung.clone(),
            thread: thread::current(),
        }));
        if let Poll::Ready(result) = ending.as_mut().poll(&mut Context::from_waker(&bell)) {
            self.flying.remove(&id);
            self.done.push(Completion {
                id: OpId(id),
                result: result.map_err(failure),
            });
        }
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Refused(why) => Failure::Refused(why),
        Error::Doubtful(why) => Failure::Doubtful(why),
        Error::TooLarge { .. } => Failure::Refused(nacre_wire::msg::client::OpFailure::TooLarge {}),
        Error::NoSuchPool { .. } => Failure::NoSuchPool,
        // It was sent, or may have been.
        Error::TimedOut { .. } | Error::Stopped { .. } => Failure::Unknown,
        other => Failure::Foreign {
            code: 0,
            why: other.to_string(),
        },
    }
}

impl ObjectCluster for InProcess {
    fn capabilities(&self) -> Capabilities {
        // Watches and early answers are the facade's own methods.
        Capabilities {
            ack: false,
            watch: false,
            ..nacre_client::Client::CAPABILITIES
        }
    }
    fn submit(&mut self, _: Time, operation: Operation) -> Result<OpId, Refused> {
        if self.flying.len() >= OPS_MAX {
            return Err(Refused::Busy);
        }
        let (id, cluster) = (self.next, self.cluster.clone());
        self.next += 1;
        self.flying.insert(
            id,
            Box::pin(async move { cluster.operate(operation).await }),
        );
        self.poll(id);
        Ok(OpId(id))
    }
    fn completions(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.done);
    }
}

impl Driven for InProcess {
    fn objects(&mut self) -> &mut dyn ObjectCluster {
        self
    }
    fn now(&self) -> Time {
        clock::now()
    }
    fn turn(&mut self, max: Duration) {
        let begun = Instant::now();
        loop {
            let rung =
                std::mem::take(&mut *self.rung.lock().unwrap_or_else(PoisonError::into_inner));
            for id in rung {
                self.poll(id);
            }
            let left = max.saturating_sub(begun.elapsed());
            if !self.done.is_empty() || left.is_zero() {
                return;
            }
            thread::park_timeout(left);
        }
    }
    fn completions(&mut self, into: &mut Vec<Completion>) {
        ObjectCluster::completions(self, into);
    }
    fn watch_events(&mut self, _: &mut Vec<WatchEvent>) {}
    fn abandon(&mut self, id: OpId) {
        if self.flying.remove(&id.0).is_some() {
            self.done.push(Completion {
                id,
                result: Err(Failure::Unknown),
            });
        }
    }
    fn groups(&mut self, pool: PoolId) -> Option<u32> {
        Some(self.cluster.map().wait().ok()?.pools.get(&pool)?.pg_num)
    }
    fn is_connected(&mut self) -> bool {
        self.cluster.map().wait().is_ok()
    }
    fn epoch(&mut self) -> u64 {
        self.cluster.map().wait().map_or(0, |map| map.epoch.0)
    }
    fn stopped(&mut self) -> Option<String> {
        match self.cluster.map().wait() {
            Err(Error::Stopped { why }) => Some(why),
            _ => None,
        }
    }
}
