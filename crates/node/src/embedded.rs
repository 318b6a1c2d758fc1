//! A whole cluster in one process and one folder, the way SQLite is a whole database (DESIGN §9).
//!
//! One thread runs all daemons and the process's own client; messages between them are values. It is the same role code, and
//! the same folder runs as separate processes just as well. Copies on one disk survive a daemon, not the disk.

use crate::access::{Access, Port};
use crate::cluster::Cluster;
use crate::config::Config;
use crate::conn::Traffic;
use crate::daemon::{self, RunOptions};
use crate::error::{Error, StartError};
use crate::locks::Lock;
use crate::reactor::Reactor;
use crate::role::Role;
use crate::slot::{block_on, slot};
use crate::wake::Waker;
use nacre_store::Usage;
use nacre_types::{Entity, MonId, OsdId};
use nacre_wire::ClusterMap;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a start may take.
const READY_MAX: Duration = Duration::from_secs(30);

type Order = Box<dyn FnOnce(&mut Host) + Send>;

/// What the thread owns.
struct Host {
    reactor: Reactor,
    config: Config,
    options: RunOptions,
    stop: bool,
    /// Daemons that did not start, and why: the others go on without them.
    broken: BTreeMap<Entity, String>,
    // Last: the folder is free only when nobody writes to it any more.
    lock: Lock,
}

#[derive(Default)]
struct Orders {
    pending: VecDeque<Order>,
    gone: bool,
    said: VecDeque<String>,
}

/// See the module head. Dropping it stops the cluster.
pub struct Embedded {
    orders: Arc<Mutex<Orders>>,
    waker: Arc<Waker>,
    port: Arc<Port>,
    config: Config,
    thread: Mutex<Option<JoinHandle<()>>>,
}

fn lock(orders: &Mutex<Orders>) -> MutexGuard<'_, Orders> {
    orders.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Says that the thread is gone, and lets go of everybody who waits for it.
struct Leave(Arc<Mutex<Orders>>);
impl Drop for Leave {
    fn drop(&mut self) {
        let mut orders = lock(&self.0);
        orders.gone = true;
        let pending = std::mem::take(&mut orders.pending);
        drop(orders);
        drop(pending);
    }
}

impl Embedded {
    /// Starts the cluster in the folder; returns when its OSDs are up and every placement group serves.
    ///
    /// A daemon whose store is damaged or missing is left out as long as an OSD and a majority of the monitors are there; [`Self::halted`]
    /// names it. A store of another cluster, or a port that is taken, is an error: somebody is about to make a mistake.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(dir: &Path, options: RunOptions) -> Result<Self, StartError> {
        let config = Config::load(dir)?;
        let held = Lock::whole(&config)?;
        let waker = daemon::waker()?;
        let port = Port::new(waker.clone());
        let orders: Arc<Mutex<Orders>> = Arc::default();
        let (sender, receiver) = slot();
        let thread = {
            let (config, waker, port, orders) = (config.clone(), waker.clone(), port.clone(), orders.clone());
            let run = move || {
                // However this thread ends, nobody waits for it afterwards. Declared after `held`, so it goes first.
                let _leave = Leave(orders.clone());
                let host = match Host::new(config, options, waker, port, held) {
                    Ok(host) => {
                        sender.send(Ok(()));
                        host
                    }
                    Err(why) => return sender.send(Err(why)),
                };
                host.run(&orders);
            };
            std::thread::Builder::new().name("nacre".to_owned()).spawn(run).map_err(|error| StartError::Io {
                doing: "start a thread for",
                path: dir.to_owned(),
                error,
            })?
        };
        let embedded = Self { orders, waker, port, config, thread: Mutex::new(Some(thread)) };
        match block_on(receiver) {
            Some(Ok(())) => {}
            Some(Err(why)) => return Err(why),
            None => return Err(StartError::NotReady { why: "its thread ended".to_owned() }),
        }
        embedded.wait_active(READY_MAX)?;
        Ok(embedded)
    }

    /// The folder's configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    fn order<T: Send + 'static>(&self, order: impl FnOnce(&mut Host) -> T + Send + 'static) -> Option<T> {
        let (sender, receiver) = slot();
        {
            let mut orders = lock(&self.orders);
            if orders.gone {
                return None;
            }
            orders.pending.push_back(Box::new(move |host| sender.send(order(host))));
        }
        self.waker.wake();
        block_on(receiver)
    }

    /// Waits until every running OSD is up and every placement group serves in its current interval.
    ///
    /// # Errors
    /// [`StartError::NotReady`] says what is missing; [`StartError::Halted`] which daemon stopped.
    pub fn wait_active(&self, max: Duration) -> Result<(), StartError> {
        let begun = crate::clock::now();
        loop {
            let missing = self
                .order(|host| host.leave_out_halted().map(|()| host.missing()))
                .ok_or_else(|| StartError::NotReady { why: "the cluster has been stopped".to_owned() })??;
            let Some(why) = missing else { return Ok(()) };
            if crate::clock::now().since(begun) > max {
                return Err(StartError::NotReady { why });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// A client of this cluster.
    #[must_use]
    pub fn cluster(self: &Arc<Self>) -> Cluster {
        Cluster::over(self.port.clone(), Arc::<Self>::clone(self))
    }

    /// Ends an OSD as `kill -9` would: nothing is finished, nobody is told. Its store's flushed part remains.
    pub fn kill_osd(&self, id: OsdId) -> bool {
        self.order(move |host| host.kill(Entity::Osd(id))).unwrap_or(false)
    }

    /// Starts an OSD that was killed, or that was added to the folder.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_osd(&self, id: OsdId) -> Result<(), StartError> {
        let start = move |host: &mut Host| {
            host.config = Config::load(&host.config.dir)?;
            host.start(Entity::Osd(id))
        };
        let ended = || StartError::NotReady { why: "the cluster has been stopped".to_owned() };
        self.order(start).unwrap_or_else(|| Err(ended()))
    }

    /// Ends a monitor as `kill -9` would.
    pub fn kill_mon(&self, id: MonId) -> bool {
        self.order(move |host| host.kill(Entity::Mon(id))).unwrap_or(false)
    }

    /// Starts a monitor that was killed, or that was added to the folder.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_mon(&self, id: MonId) -> Result<(), StartError> {
        let start = move |host: &mut Host| {
            host.config = Config::load(&host.config.dir)?;
            host.start(Entity::Mon(id))
        };
        let ended = || StartError::NotReady { why: "the cluster has been stopped".to_owned() };
        self.order(start).unwrap_or_else(|| Err(ended()))
    }

    /// Which daemons run.
    #[must_use]
    pub fn running(&self) -> Vec<Entity> {
        self.order(|host| host.reactor.entities()).unwrap_or_default()
    }

    /// Daemons that did not start or stopped by themselves, and why.
    #[must_use]
    pub fn halted(&self) -> Vec<(Entity, String)> {
        let look = |host: &mut Host| {
            let broken = host.broken.iter().map(|(who, why)| (*who, why.clone()));
            broken.chain(host.reactor.halted()).collect()
        };
        self.order(look).unwrap_or_default()
    }

    /// The daemons' lines for people since the last call; at most the last thousand.
    #[must_use]
    pub fn take_log(&self) -> Vec<String> {
        lock(&self.orders).said.drain(..).collect()
    }

    /// Work done by connections.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.order(|host| host.reactor.traffic()).unwrap_or_default()
    }

    /// Copies of objects that an OSD has been brought since it started, by log or backfill.
    #[must_use]
    pub fn recovered(&self, id: OsdId) -> Option<u64> {
        let look = move |host: &mut Host| match &host.reactor.node(Entity::Osd(id))?.role {
            Role::Osd(osd, _) => Some(osd.counters().recovered),
            Role::Mon(..) | Role::Client(_) => None,
        };
        self.order(look).flatten()
    }

    /// What a monitor has counted since it started.
    #[must_use]
    pub fn mon_counters(&self, id: MonId) -> Option<nacre_mon::Counters> {
        let look = move |host: &mut Host| match &host.reactor.node(Entity::Mon(id))?.role {
            Role::Mon(mon, _) => Some(mon.counters()),
            Role::Osd(..) | Role::Client(_) => None,
        };
        self.order(look).flatten()
    }

    /// A daemon's store.
    #[must_use]
    pub fn usage(&self, who: Entity) -> Option<Usage> {
        self.order(move |host| host.reactor.node(who)?.usage()).flatten()
    }

    /// Stops the cluster cleanly and waits for it.
    pub fn stop(&self) {
        let _ = self.order(|host| host.stop = true);
        let thread = self.thread.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Host {
    fn new(
        config: Config,
        options: RunOptions,
        waker: Arc<Waker>,
        port: Arc<Port>,
        lock: Lock,
    ) -> Result<Self, StartError> {
        let reactor = daemon::reactor(&config, waker, config.mons.len() + config.osds.len())?;
        let mons = config.mons.keys().map(|id| Entity::Mon(*id));
        let all: Vec<Entity> = mons.chain(config.osds.keys().map(|id| Entity::Osd(*id))).collect();
        let tightened = crate::creating::tighten(&config);
        let mut host = Self { reactor, config, options, stop: false, broken: BTreeMap::new(), lock };
        tightened.into_iter().for_each(|line| host.reactor.say(line));
        for who in all {
            match host.start(who) {
                Ok(()) => {}
                Err(why) if why.is_one_daemons() => host.leave_out(who, why.to_string())?,
                Err(why) => return Err(why),
            }
        }
        daemon::add_client(&mut host.reactor, Some(port), crate::cluster::ADMIN)?;
        Ok(host)
    }

    fn start(&mut self, who: Entity) -> Result<(), StartError> {
        // One that stopped by itself still has its place.
        self.reactor.kill(who);
        match who {
            Entity::Mon(id) => daemon::add_mon(&mut self.reactor, &self.config, id, &self.options)?,
            Entity::Osd(id) => daemon::add_osd(&mut self.reactor, &self.config, id, &self.options)?,
            Entity::Client(_) => unreachable!("clients are not in the configuration"),
        }
        self.broken.remove(&who);
        self.lock.add_pid(&who.to_string())
    }

    fn kill(&mut self, who: Entity) -> bool {
        self.lock.remove_pid(&who.to_string());
        self.reactor.kill(who).is_some()
    }

    /// Goes on without a daemon, if the others are enough.
    fn leave_out(&mut self, who: Entity, why: String) -> Result<(), StartError> {
        self.kill(who);
        self.broken.insert(who, why.clone());
        let broken = |is: fn(&Entity) -> bool| self.broken.keys().filter(|who| is(who)).count();
        let mons = broken(|who| matches!(who, Entity::Mon(_)));
        let osds = broken(|who| matches!(who, Entity::Osd(_)));
        if mons * 2 >= self.config.mons.len() || osds >= self.config.osds.len() {
            return Err(StartError::Halted { who: who.to_string(), why });
        }
        Ok(())
    }

    fn leave_out_halted(&mut self) -> Result<(), StartError> {
        for (who, why) in self.reactor.halted() {
            self.leave_out(who, why)?;
        }
        Ok(())
    }

    fn run(mut self, orders: &Mutex<Orders>) {
        while !self.stop {
            self.reactor.turn(Duration::from_secs(1));
            loop {
                let said = self.reactor.take_said();
                let mut queue = lock(orders);
                queue.said.extend(said);
                while queue.said.len() > 1000 {
                    queue.said.pop_front();
                }
                let Some(order) = queue.pending.pop_front() else { break };
                drop(queue);
                order(&mut self);
            }
        }
        for who in self.reactor.entities() {
            if let Some(Role::Client(access)) = self.reactor.node_mut(who).map(|node| &mut node.role) {
                Access::stop(access, "the cluster has been stopped");
            }
        }
        // All daemons stop at once: there is nobody to be told, only writes to be finished.
        daemon::drain(&mut self.reactor);
    }

    /// What is not ready yet.
    fn missing(&self) -> Option<String> {
        let running = self.reactor.entities();
        let mons = running.iter().filter_map(|who| match self.reactor.node(*who)?.role {
            Role::Mon(ref mon, _) => Some(mon),
            _ => None,
        });
        let Some(mon) = mons.max_by_key(|mon| (mon.is_leader(), mon.epoch())) else {
            return Some("no monitor runs".to_owned());
        };
        if !mon.is_leader() {
            return Some("the monitors have not elected a leader".to_owned());
        }
        let map: &ClusterMap = mon.map();
        for who in &running {
            if let (Entity::Osd(id), Some(node)) = (who, self.reactor.node(*who))
                && !(node.role.is_live_osd()
                    && map.up_osd(*id).is_some_and(|info| info.instance == node.role.instance()))
            {
                return Some(format!("{id} is not up"));
            }
        }
        let waiting = map.pgs.iter().find(|(id, record)| {
            let min = map.pools.get(&id.pool).map_or(1, |pool| usize::from(pool.min_size));
            record.acting.len() >= min && !record.is_activated()
        });
        waiting.map(|(id, record)| format!("placement group {id} does not serve yet (acting {:?})", record.acting))
    }
}

/// Opens the cluster in a folder in this process, making it if the folder is empty or missing.
pub(crate) fn open(dir: &Path) -> Result<Cluster, Error> {
    if !dir.join(crate::config::FILE_NAME).exists() {
        let plain = crate::directory::InitOptions::default();
        let osd_bytes = crate::space::default_osd_bytes(dir, plain.osds);
        let options = crate::directory::InitOptions { base_port: None, osd_bytes, ..plain };
        match crate::directory::init(dir, &options) {
            // Another process has made one meanwhile.
            Ok(_) | Err(StartError::Exists { .. }) => {}
            Err(why) => return Err(why.into()),
        }
    }
    Ok(Arc::new(Embedded::start(dir, RunOptions::default())?).cluster())
}
