//! The suite that every implementation of the object cluster's trait passes, in this process and
//! over the network. `crates/rados` runs it on Ceph.

use crate::embedded::wait_clean;
use crate::folder::{Folder, free_ports};
use nacre_client::{
    Capabilities, Client, Completion, Done, Driven, Failure, ObjectCluster, OpId, Operation,
    Refused, WatchEvent,
};
use nacre_node::{Cluster, Embedded, Error, InitOptions, Pipelined, RunOptions, init};
use nacre_types::{PoolId, Time};
use nacre_wire::msg::client::OpFailure;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

struct Unpark(Thread);
impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

type Flight = Pin<Box<dyn Future<Output = Result<Done, Error>>>>;

/// The facade itself lets any number of calls wait.
const FLYING_MAX: usize = 1024;

/// The facade, as the suite drives an engine: each operation is a call, polled in every turn.
struct Facade {
    cluster: Cluster,
    begun: Instant,
    flying: BTreeMap<OpId, Flight>,
    next: u64,
    done: Vec<Completion>,
}

impl Facade {
    fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            begun: Instant::now(),
            flying: BTreeMap::new(),
            next: 1,
            done: Vec::new(),
        }
    }

    fn poll(&mut self, only: Option<OpId>) {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        self.flying.retain(|id, call| {
            if only.is_some_and(|only| only != *id) {
                return true;
            }
            let Poll::Ready(result) = call.as_mut().poll(&mut context) else {
                return true;
            };
            let result = result.map_err(|error| match error {
                Error::Refused(why) => Failure::Refused(why),
                Error::Doubtful(why) => Failure::Doubtful(why),
                Error::TooLarge { .. } => Failure::Refused(OpFailure::TooLarge {}),
                Error::NoSuchPool { .. } => Failure::NoSuchPool,
                Error::TimedOut { .. } | Error::Stopped { .. } => Failure::Unknown,
                other => panic!("{other}"),
            });
            self.done.push(Completion { id: *id, result });
            false
        });
    }
}

impl ObjectCluster for Facade {
    fn capabilities(&self) -> Capabilities {
        // Watches and early answers are the facade's own methods.
        Capabilities {
            ack: false,
            watch: false,
            ..Client::CAPABILITIES
        }
    }
    fn submit(&mut self, _: Time, operation: Operation) -> Result<OpId, Refused> {
        if self.flying.len() >= FLYING_MAX {
            return Err(Refused::Busy);
        }
        let (id, cluster) = (OpId(self.next), self.cluster.clone());
        self.next += 1;
        let call = async move { cluster.operate(operation).await };
        self.flying.insert(id, Box::pin(call));
        // Operations are sent in the order in which they are polled first.
        self.poll(Some(id));
        Ok(id)
    }
    fn completions(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.done);
    }
}

impl Driven for Facade {
    fn objects(&mut self) -> &mut dyn ObjectCluster {
        self
    }
    fn now(&self) -> Time {
        Time::ZERO + self.begun.elapsed()
    }
    fn turn(&mut self, max: Duration) {
        self.poll(None);
        if self.done.is_empty() {
            thread::park_timeout(max);
            self.poll(None);
        }
    }
    fn completions(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.done);
    }
    fn watch_events(&mut self, _: &mut Vec<WatchEvent>) {}
    fn abandon(&mut self, id: OpId) {
        if self.flying.remove(&id).is_some() {
            let result = Err(Failure::Unknown);
            self.done.push(Completion { id, result });
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
        self.cluster.map().wait().err().map(|why| why.to_string())
    }
}

/// Three OSDs with space for the largest objects of the suite.
fn options(base_port: Option<u16>) -> InitOptions {
    InitOptions {
        base_port,
        osd_bytes: 512 << 20,
        mon_bytes: 128 << 20,
        ..InitOptions::default()
    }
}

#[test]
fn in_this_process() {
    let folder = Folder::new("conformance-in-process");
    init(folder.path(), &options(None)).expect("made");
    let embedded = Arc::new(Embedded::start(folder.path(), RunOptions::default()).expect("starts"));
    let cluster = embedded.cluster();
    let pool = cluster.create_pool("suite").wait().expect("made").id();
    wait_clean(&cluster);
    nacre_conformance::run(
        &|| Box::new(Facade::new(cluster.clone())) as Box<dyn Driven>,
        pool,
    );
}

#[test]
fn over_the_network() {
    let folder = Folder::new("conformance-network");
    init(folder.path(), &options(Some(free_ports(4)))).expect("made");
    let embedded = Arc::new(Embedded::start(folder.path(), RunOptions::default()).expect("starts"));
    let cluster = embedded.cluster();
    let pool = cluster.create_pool("suite").wait().expect("made").id();
    wait_clean(&cluster);
    let connect =
        || Box::new(Pipelined::connect(folder.path()).expect("connects")) as Box<dyn Driven>;
    nacre_conformance::run(&connect, pool);
}
