//! A Ceph cluster as the engine of services on Nacre's hosts (`nacre_client::Engine`).
//!
//! ```text
//!            ┌ metadata ─▶ Queued ─ a connection and a thread of its own
//!  CephEngine┤
//!            └ objects ─▶ Ceph ─ a connection that is fenced with its instance
//!                           ▲
//!               opening: a thread ── connects ──▶ here, for fencing others
//!               naming:  a thread ── registers its address (`instances`) ──▶ here, for operations; with the first
//! ```
//! librados' handle of a fenced instance stays unusable: the next instance opens another one.
//! Meanwhile the service is refused temporarily.
//!
//! Invariants: nothing is sent to an object before the instance's address is known to those that
//! may fence it; the numbering of operations continues over instances; each operation ends once.

use crate::cluster::Ceph;
use crate::error::RadosError;
use crate::handle::{Bounds, Rados, each_address};
use crate::instances::{self, Record};
use crate::meta::{ConfigKey, MetaStore, Queued};
use nacre_client::{
    Capabilities, Completion, Engine, Engines, Failure, Metadata, ObjectCluster, OpId, Operation,
    Refused, Room, Wake,
};
use nacre_types::{ClientId, ClusterId, Epoch, Instance, PoolId, Time};
use nacre_wire::msg::client::OpFailure;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::{Builder, JoinHandle, park_timeout, sleep};
use std::time::{Duration, Instant};

/// Delay between two attempts to connect.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a client that leaves waits for a connecting thread.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// How to reach a cluster.
#[derive(Clone, Debug)]
struct Place {
    conf: PathBuf,
    name: String,
}

impl Place {
    fn connect(&self, operation: Duration) -> Result<Rados, String> {
        let bounds = Bounds {
            operation,
            ..Bounds::default()
        };
        Rados::connect(&self.conf, &self.name, &bounds).map_err(|error| error.why)
    }
}

/// See the module head. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CephEngines {
    place: Arc<Place>,
    cluster: ClusterId,
    host: String,
}

impl CephEngines {
    /// Checks whether the cluster of a `ceph.conf` is reachable as `client.NAME`.
    ///
    /// # Errors
    /// As [`Rados::connect`].
    pub fn find(conf: &Path, name: &str) -> Result<Self, RadosError> {
        let rados = Rados::connect(conf, name, &Bounds::default())?;
        let host = rados.addresses().ok().as_deref().and_then(host_of);
        // Without known addresses, the cluster is assumed to be on this machine.
        let host = host.unwrap_or_else(|| "127.0.0.1".to_owned());
        let place = Arc::new(Place {
            conf: conf.to_owned(),
            name: name.to_owned(),
        });
        Ok(Self {
            place,
            cluster: rados.cluster()?,
            host,
        })
    }
}

/// The host in an address such as `10.0.0.1:0/123` or `v1:[::1]:0/5`.
fn host_of(addresses: &str) -> Option<String> {
    let (socket, _) = each_address(addresses).next()?.rsplit_once('/')?;
    let (host, _) = socket.rsplit_once(':')?;
    let host = host.trim_start_matches("v1:").trim_start_matches("v2:");
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.parse::<IpAddr>().ok().map(|host| host.to_string())
}

impl Engines for CephEngines {
    fn cluster(&self) -> ClusterId {
        self.cluster
    }
    fn host(&self) -> &str {
        &self.host
    }
    fn open(&self, client: ClientId, instance: Instance, wake: Wake) -> Box<dyn Engine + Send> {
        Box::new(CephEngine::open(self.place.clone(), client, instance, wake))
    }
}

/// See the module head.
struct CephEngine {
    objects: Objects,
    metadata: Queued,
    /// Whether the objects' threads have produced something.
    ready: Arc<AtomicBool>,
}

impl CephEngine {
    fn open(place: Arc<Place>, client: ClientId, instance: Instance, wake: Wake) -> Self {
        let ready = Arc::new(AtomicBool::new(false));
        let at = place.clone();
        let metadata = Queued::start(wake.clone(), move |poke| {
            let rados = at.connect(Bounds::default().operation)?;
            let objects = Ceph::new(rados.clone()).waking(poke.wake());
            Ok(MetaStore::new(objects, ConfigKey::new(rados), &at.name))
        });
        let told = ready.clone();
        let wake: Wake = Arc::new(move || {
            told.store(true, Ordering::SeqCst);
            wake();
        });
        Self {
            objects: Objects::open(place, client, instance, wake),
            metadata,
            ready,
        }
    }
}

impl Engine for CephEngine {
    fn is_ready(&self) -> bool {
        self.ready.load(Ordering::SeqCst) || self.metadata.is_ready()
    }
    fn listen(&mut self) {
        self.metadata.listen();
        if self.ready.swap(false, Ordering::SeqCst) {
            self.objects.listen();
        }
    }
    fn parts(&mut self) -> (&mut dyn ObjectCluster, &mut dyn Metadata) {
        (&mut self.objects, &mut self.metadata)
    }
    fn ended(&self) -> u64 {
        let objects = if let Link::Open(ceph, _) = &self.objects.link {
            ceph.ended()
        } else {
            0
        };
        self.objects.ended + objects + self.metadata.ended()
    }
    fn instance(&self) -> Instance {
        self.objects.instance
    }
    fn begin_again(&mut self, instance: Instance) {
        self.objects.begin_again(instance);
    }
    fn epoch(&self) -> Epoch {
        self.objects.epoch()
    }
    fn said(&mut self) -> Vec<String> {
        let mut said = self.metadata.said();
        said.append(&mut self.objects.said);
        said
    }
}

impl Drop for CephEngine {
    fn drop(&mut self) {
        // A client that leaves with nothing in flight needs no fence; otherwise its address stays
        // registered, so that it can be fenced.
        if let Link::Open(ceph, Naming::Done(record)) = &mut self.objects.link
            && ceph.is_idle()
        {
            let gone = instances::gone(
                self.objects.client,
                self.objects.instance,
                std::mem::take(record),
            );
            // It waits for the cluster while the metadata's thread ends, which is bounded.
            let _ = self.metadata.submit(Time::ZERO, gone);
        }
    }
}

/// A message of a thread that waits for the cluster.
enum Said {
    /// Not ready yet, and why.
    NotYet(String),
    /// The connection, and the epoch of its newest map.
    Open(Rados, u64),
    /// Its address is registered: the client's record, and the epoch of the newest map.
    Named(Record, u64),
    /// This instance was fenced before it registered.
    Fenced,
}

/// A thread that waits for the cluster, retrying until it has succeeded.
struct Waiting {
    heard: Receiver<Said>,
    /// The thread continues while this is set.
    wanted: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.wanted.store(false, Ordering::SeqCst);
        let Some(thread) = self.thread.take() else {
            return;
        };
        thread.thread().unpark();
        // A process that ends while one of its threads is in librados crashes.
        let begun = Instant::now();
        while !thread.is_finished() && begun.elapsed() < LEAVE_MAX {
            sleep(Duration::from_millis(1));
        }
    }
}

impl Waiting {
    fn begin(wake: Wake, mut what: impl FnMut() -> Result<Said, String> + Send + 'static) -> Self {
        let (sender, heard) = channel();
        let wanted = Arc::new(AtomicBool::new(true));
        let still = wanted.clone();
        let run = move || {
            let mut said = String::new();
            while still.load(Ordering::SeqCst) {
                match what() {
                    Ok(what) => {
                        let _ = sender.send(what);
                        return wake();
                    }
                    Err(why) if why != said => {
                        said.clone_from(&why);
                        let _ = sender.send(Said::NotYet(why));
                        wake();
                    }
                    Err(_) => {}
                }
                park_timeout(AGAIN);
            }
        };
        // Without threads there is no cluster: the machine has run out of them, or of memory.
        let thread = Builder::new()
            .name("nacre-waits".to_owned())
            .spawn(run)
            .expect("a thread can be started");
        Self {
            heard,
            wanted,
            thread: Some(thread),
        }
    }
}

enum Link {
    Opening(Waiting),
    Open(Box<Ceph>, Naming),
    /// Fenced before it registered: everything that is begun ends that way.
    Fenced,
}

/// Whether this instance's address is registered.
enum Naming {
    /// There is nothing to fence it for: a standby that dies leaves nothing.
    No,
    Asking(Waiting),
    Done(Record),
}

/// The objects of one client, over all its instances.
struct Objects {
    place: Arc<Place>,
    client: ClientId,
    instance: Instance,
    wake: Wake,
    link: Link,
    /// The next operation's number, while there is no connection.
    next: u64,
    /// Completions of former instances, and of a fenced one.
    done: Vec<Completion>,
    /// Number of ended operations, without those counted by the connection.
    ended: u64,
    /// The epoch that operations depend on, until there is a connection that knows it.
    epoch: Epoch,
    said: Vec<String>,
}

impl Objects {
    fn open(place: Arc<Place>, client: ClientId, instance: Instance, wake: Wake) -> Self {
        let link = Link::Opening(opening(&place, &wake));
        let (done, said) = (Vec::new(), Vec::new());
        Self {
            place,
            client,
            instance,
            wake,
            link,
            next: 1,
            done,
            ended: 0,
            epoch: Epoch::NONE,
            said,
        }
    }
    fn listen(&mut self) {
        loop {
            let heard = match &mut self.link {
                Link::Fenced => return,
                Link::Opening(waiting) => waiting.heard.try_recv(),
                Link::Open(ceph, naming) => {
                    ceph.turn(Duration::ZERO);
                    let Naming::Asking(waiting) = naming else {
                        return;
                    };
                    waiting.heard.try_recv()
                }
            };
            match heard {
                Ok(Said::NotYet(why)) => self
                    .said
                    .push(format!("no connection to objects yet: {why}")),
                Ok(Said::Open(rados, epoch)) => {
                    let naming = if rados.knows_addresses() {
                        Naming::No
                    } else {
                        Naming::Done(Record::default())
                    };
                    let ceph = Ceph::new(rados).private().waking(self.wake.clone());
                    let mut ceph = ceph.numbered_from(self.next);
                    ceph.has_map(epoch);
                    ceph.rest_on(self.epoch);
                    self.link = Link::Open(Box::new(ceph), naming);
                }
                Ok(Said::Named(record, epoch)) => {
                    let Link::Open(ceph, naming) = &mut self.link else {
                        unreachable!("it was asked")
                    };
                    ceph.has_map(epoch);
                    *naming = Naming::Done(record);
                }
                Ok(Said::Fenced) => {
                    self.let_go(Link::Fenced);
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
    }
    fn begin_again(&mut self, instance: Instance) {
        assert!(instance > self.instance, "instances grow");
        self.let_go(Link::Opening(opening(&self.place, &self.wake)));
        self.ended += 1;
        self.instance = instance;
    }
    /// Operations in flight end with an unknown outcome.
    fn let_go(&mut self, link: Link) {
        self.epoch = self.epoch();
        if let Link::Open(mut ceph, _) = std::mem::replace(&mut self.link, link) {
            ceph.end_all(&mut self.done);
            self.next = ceph.next_number();
            // Counted there so far.
            self.ended += ceph.ended();
        }
    }
    fn epoch(&self) -> Epoch {
        match &self.link {
            Link::Open(ceph, _) => ceph.epoch().max(self.epoch),
            Link::Opening(_) | Link::Fenced => self.epoch,
        }
    }
    fn end_fenced(&mut self) -> OpId {
        let id = OpId(self.next);
        self.next += 1;
        self.ended += 1;
        self.done.push(Completion {
            id,
            result: Err(Failure::Refused(OpFailure::Fenced {})),
        });
        id
    }
}

/// Connects.
fn opening(place: &Arc<Place>, wake: &Wake) -> Waiting {
    let place = place.clone();
    Waiting::begin(wake.clone(), move || {
        // A service waits for its objects as long as the cluster takes.
        let rados = place.connect(Duration::MAX)?;
        let epoch = newest_map(&rados)?;
        Ok(Said::Open(rados, epoch))
    })
}

/// The epoch of a map that this connection has, and that is no older than this call.
fn newest_map(rados: &Rados) -> Result<u64, String> {
    let epoch = rados.newest_epoch().map_err(|error| error.why)?;
    rados.wait_for_newest_map().map_err(|error| error.why)?;
    Ok(epoch)
}

/// Registers this instance's address, for those that may fence it.
fn naming(rados: Rados, who: (ClientId, Instance), place: &Arc<Place>, wake: &Wake) -> Waiting {
    let (place, (client, instance)) = (place.clone(), who);
    Waiting::begin(wake.clone(), move || {
        let address = rados.addresses().map_err(|error| error.why)?;
        let mut store = MetaStore::connect(rados.clone(), &place.name).quiet();
        let came = instances::come(&mut store, client, instance, &address)
            .map_err(|failure| failure.to_string())?;
        let Some(record) = came else {
            return Ok(Said::Fenced);
        };
        // A standby that claims a rank now depends on the fence of the former holder, and tells its
        // clients.
        let epoch = newest_map(&rados)?;
        Ok(Said::Named(record, epoch))
    })
}

impl ObjectCluster for Objects {
    fn capabilities(&self) -> Capabilities {
        match &self.link {
            Link::Open(ceph, _) => ceph.capabilities(),
            // Until its limits are known, only what always works is used.
            Link::Opening(_) | Link::Fenced => Capabilities {
                fence: true,
                ..Capabilities::default()
            },
        }
    }
    fn submit(&mut self, now: Time, operation: Operation) -> Result<OpId, Refused> {
        match &mut self.link {
            Link::Open(ceph, Naming::Done(_)) => ceph.submit(now, operation),
            Link::Open(ceph, unnamed @ Naming::No) => {
                let who = (self.client, self.instance);
                *unnamed =
                    Naming::Asking(naming(ceph.rados().clone(), who, &self.place, &self.wake));
                Err(Refused::NotConnected)
            }
            Link::Open(_, Naming::Asking(_)) | Link::Opening(_) => Err(Refused::NotConnected),
            Link::Fenced => Ok(self.end_fenced()),
        }
    }
    fn completions(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.done);
        if let Link::Open(ceph, _) = &mut self.link {
            ObjectCluster::completions(&mut **ceph, into);
        }
    }
    fn fence(&mut self, now: Time, client: ClientId, instance: Instance) -> Result<OpId, Refused> {
        match &mut self.link {
            Link::Open(ceph, _) => ceph.fence(now, client, instance),
            Link::Opening(_) => Err(Refused::NotConnected),
            Link::Fenced => Ok(self.end_fenced()),
        }
    }
    fn rest_on(&mut self, epoch: Epoch) {
        self.epoch = self.epoch.max(epoch);
        if let Link::Open(ceph, _) = &mut self.link {
            ceph.rest_on(epoch);
        }
    }
    fn room(&mut self, now: Time, pool: PoolId) -> Room {
        match &mut self.link {
            Link::Open(ceph, _) => ceph.room(now, pool),
            Link::Opening(_) => Room {
                free: None,
                is_new: false,
            },
            Link::Fenced => Room::UNKNOWN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_address_is_found_in_every_form_of_it() {
        for (address, host) in [
            ("10.0.0.1:0/123", Some("10.0.0.1")),
            ("v1:10.0.0.1:0/123", Some("10.0.0.1")),
            ("v2:[fd00::1]:0/4", Some("fd00::1")),
            ("[v2:10.0.0.2:0/7,v1:10.0.0.2:0/7]", Some("10.0.0.2")),
            ("[::1]:0/5", Some("::1")),
            ("-", None),
            ("host:0/5", None),
        ] {
            assert_eq!(host_of(address).as_deref(), host, "{address}");
        }
    }

    /// An engine without a cluster: nothing blocks, and refusals are temporary.
    #[test]
    fn where_there_is_no_cluster_nothing_waits() {
        let place = Arc::new(Place {
            conf: PathBuf::from("/nowhere/ceph.conf"),
            name: "admin".to_owned(),
        });
        let (sender, woken) = channel();
        let wake: Wake = Arc::new(move || sender.send(()).unwrap_or(()));
        let mut engine = CephEngine::open(place, ClientId(1), Instance(1), wake);
        let mut said = Vec::new();
        while said.len() < 2 {
            woken
                .recv_timeout(Duration::from_secs(60))
                .expect("it says why");
            engine.listen();
            said.append(&mut engine.said());
            let (objects, _) = engine.parts();
            assert_eq!(
                objects.submit(Time(0), Operation::default()),
                Err(Refused::NotConnected)
            );
        }
        assert!(
            said.iter()
                .all(|line| line.contains("/nowhere/ceph.conf") || line.contains("librados")),
            "{said:?}"
        );
        let ended = engine.ended();
        engine.begin_again(Instance(2));
        assert!(
            engine.instance() == Instance(2) && engine.ended() > ended,
            "its service has another turn"
        );
    }
}
