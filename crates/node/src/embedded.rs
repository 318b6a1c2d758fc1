//! A whole cluster in one process and one directory, as SQLite is a whole database (DESIGN §9).
//!
//! One thread runs all daemons and the process's own client; messages between them are values. It
//! is the same role code, and the same directory also runs as separate processes. Replicas on one
//! disk survive the loss of a daemon, not of the disk.

use crate::access::{Access, Port};
use crate::any_role::AnyRole;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::conn::Traffic;
use crate::daemon::{self, RunOptions};
use crate::error::{Error, StartError};
use crate::locks::Lock;
use crate::reactor::Reactor;
use crate::servers::Servers;
use crate::slot::{block_on, slot};
use crate::wake::Waker;
use crate::watchdog::Witness;
use nacre_store::Usage;
use nacre_types::{Entity, MonId, OsdId};
use nacre_wire::ClusterMap;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time limit of a start.
const READY_MAX: Duration = Duration::from_secs(30);

/// Time limit of a stop: longer than a device may hang before its daemon halts.
const STOP_MAX: Duration = Duration::from_secs(30);

type Order = Box<dyn FnOnce(&mut Host) + Send>;

/// State of the thread.
struct Host {
    reactor: Reactor,
    config: Config,
    options: RunOptions,
    servers: Servers,
    stop: Arc<AtomicBool>,
    /// Daemons that did not start, and why: the others continue without them.
    broken: BTreeMap<Entity, String>,
    // Last: the directory is released only when nothing writes to it any more.
    lock: Lock,
}

#[derive(Default)]
struct Orders {
    pending: VecDeque<Order>,
    gone: bool,
    said: VecDeque<String>,
}

/// See the module head. Dropping it stops the cluster, as [`Self::stop`] does.
pub struct Embedded {
    orders: Arc<Mutex<Orders>>,
    waker: Arc<Waker>,
    port: Arc<Port>,
    config: Config,
    stop: Arc<AtomicBool>,
    witness: Witness,
    ending: Mutex<Ending>,
}

/// The thread, and how its end is detected.
struct Ending {
    thread: Option<JoinHandle<()>>,
    /// Disconnected when the thread has released everything.
    ended: Receiver<Infallible>,
    /// Whether waiting for it has timed out.
    given_up: bool,
}

fn lock(orders: &Mutex<Orders>) -> MutexGuard<'_, Orders> {
    orders
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Reports the thread's end, and releases all waiting callers.
struct Leave(Arc<Mutex<Orders>>);
impl Drop for Leave {
    fn drop(&mut self) {
        leave(&self.0);
    }
}
fn leave(orders: &Mutex<Orders>) {
    let mut orders = lock(orders);
    orders.gone = true;
    let pending = std::mem::take(&mut orders.pending);
    drop(orders);
    drop(pending);
}

impl Embedded {
    /// Starts the cluster in the directory; returns when its OSDs are up and every placement group
    /// serves.
    ///
    /// A daemon whose store is damaged or missing is left out as long as an OSD and a majority of
    /// the monitors run; [`Self::halted`] names it. A store of another cluster, or a port in use,
    /// is an error: it indicates a mistake of the operator.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(dir: &Path, options: RunOptions) -> Result<Self, StartError> {
        let config = Config::load(dir)?;
        let held = Lock::whole(&config)?;
        let waker = daemon::waker()?;
        let port = Port::new(waker.clone());
        let orders: Arc<Mutex<Orders>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = slot();
        let (alive, ended) = channel();
        let thread = {
            let (config, waker, port, orders) =
                (config.clone(), waker.clone(), port.clone(), orders.clone());
            let stop = stop.clone();
            let run = move || {
                // Declared first, so it is dropped last.
                let _alive: std::sync::mpsc::Sender<Infallible> = alive;
                // Runs however this thread ends: no caller waits for it afterwards. Declared after
                // `held`, so it is dropped first.
                let _leave = Leave(orders.clone());
                let host = match Host::new(config, options, waker, port, held, stop) {
                    Ok(host) => {
                        sender.send(Ok(host.reactor.witness()));
                        host
                    }
                    Err(why) => return sender.send(Err(why)),
                };
                host.run(&orders);
            };
            std::thread::Builder::new()
                .name("nacre".to_owned())
                .spawn(run)
                .map_err(|error| StartError::Io {
                    doing: "start a thread for",
                    path: dir.to_owned(),
                    error,
                })?
        };
        let started = block_on(receiver);
        let witness = match started.unwrap_or_else(|| {
            Err(StartError::NotReady {
                why: "its thread ended".to_owned(),
            })
        }) {
            Ok(witness) => witness,
            Err(why) => {
                // It runs no daemon any more, and only has to release the directory's lock.
                let _ = thread.join();
                return Err(why);
            }
        };
        let ending = Mutex::new(Ending {
            thread: Some(thread),
            ended,
            given_up: false,
        });
        let embedded = Self {
            orders,
            waker,
            port,
            config,
            stop,
            witness,
            ending,
        };
        embedded.wait_active(READY_MAX)?;
        Ok(embedded)
    }

    /// The directory's configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    fn order<T: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Host) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = slot();
        {
            let mut orders = lock(&self.orders);
            if orders.gone {
                return None;
            }
            orders
                .pending
                .push_back(Box::new(move |host| sender.send(order(host))));
        }
        self.waker.wake();
        block_on(receiver)
    }

    /// Waits until every running OSD is up and every placement group serves in its current
    /// interval.
    ///
    /// # Errors
    /// [`StartError::NotReady`] says what is missing; [`StartError::Halted`] which daemon stopped.
    pub fn wait_active(&self, max: Duration) -> Result<(), StartError> {
        let begun = crate::clock::now();
        loop {
            let missing = self
                .order(|host| host.leave_out_halted().map(|()| host.missing()))
                .ok_or_else(|| StartError::NotReady {
                    why: "the cluster has been stopped".to_owned(),
                })??;
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

    /// Ends an OSD as `kill -9` would: nothing is finished, no peer is notified. The flushed part
    /// of its store remains.
    pub fn kill_osd(&self, id: OsdId) -> bool {
        self.order(move |host| host.kill(Entity::Osd(id)))
            .unwrap_or(false)
    }

    /// Starts an OSD that was killed, or that was added to the directory.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_osd(&self, id: OsdId) -> Result<(), StartError> {
        let start = move |host: &mut Host| {
            host.config = Config::load(&host.config.dir)?;
            host.start(Entity::Osd(id))
        };
        let ended = || StartError::NotReady {
            why: "the cluster has been stopped".to_owned(),
        };
        self.order(start).unwrap_or_else(|| Err(ended()))
    }

    /// Ends a monitor as `kill -9` would.
    pub fn kill_mon(&self, id: MonId) -> bool {
        self.order(move |host| host.kill(Entity::Mon(id)))
            .unwrap_or(false)
    }

    /// Starts a monitor that was killed, or that was added to the directory.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_mon(&self, id: MonId) -> Result<(), StartError> {
        let start = move |host: &mut Host| {
            host.config = Config::load(&host.config.dir)?;
            host.start(Entity::Mon(id))
        };
        let ended = || StartError::NotReady {
            why: "the cluster has been stopped".to_owned(),
        };
        self.order(start).unwrap_or_else(|| Err(ended()))
    }

    /// The running daemons.
    #[must_use]
    pub fn running(&self) -> Vec<Entity> {
        self.order(|host| host.reactor.entities())
            .unwrap_or_default()
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

    /// The daemons' human-readable lines since the last call; at most the last thousand.
    #[must_use]
    pub fn take_log(&self) -> Vec<String> {
        lock(&self.orders).said.drain(..).collect()
    }

    /// Work done by connections.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.order(|host| host.reactor.traffic())
            .unwrap_or_default()
    }

    /// Replicas of objects that an OSD has recovered since it started, by log or backfill.
    #[must_use]
    pub fn recovered(&self, id: OsdId) -> Option<u64> {
        let look = move |host: &mut Host| match &host.reactor.node(Entity::Osd(id))?.role {
            AnyRole::Osd(osd) => Some(osd.counters().recovered),
            AnyRole::Mon(_) | AnyRole::Client(_) | AnyRole::Service(_) | AnyRole::Mds(_) => None,
        };
        self.order(look).flatten()
    }

    /// Counters of a monitor since it started.
    #[must_use]
    pub fn mon_counters(&self, id: MonId) -> Option<nacre_mon::Counters> {
        let look = move |host: &mut Host| match &host.reactor.node(Entity::Mon(id))?.role {
            AnyRole::Mon(mon) => Some(mon.counters()),
            AnyRole::Osd(_) | AnyRole::Client(_) | AnyRole::Service(_) | AnyRole::Mds(_) => None,
        };
        self.order(look).flatten()
    }

    /// Space usage of a daemon's store.
    #[must_use]
    pub fn usage(&self, who: Entity) -> Option<Usage> {
        self.order(move |host| host.reactor.node(who)?.usage())
            .flatten()
    }

    /// Stops the cluster cleanly and waits for it, for up to 30 s.
    ///
    /// A hanging disk may block a thread for ever. The thread is then abandoned: it starts no new
    /// writes, but the directory stays in use as long as it exists, so no other process takes its
    /// stores. Another call waits for it again.
    ///
    /// # Errors
    /// [`Error::NotStopped`] names the daemons that wait for their disks.
    pub fn stop(&self) -> Result<(), Error> {
        self.stop_within(STOP_MAX)
    }

    fn stop_within(&self, max: Duration) -> Result<(), Error> {
        // Not as an order: the thread may not take another one.
        self.stop.store(true, Ordering::SeqCst);
        self.waker.wake();
        let mut ending = self
            .ending
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(thread) = ending.thread.take() else {
            return Ok(());
        };
        if ending.ended.recv_timeout(max) == Err(RecvTimeoutError::Timeout) {
            (ending.thread, ending.given_up) = (Some(thread), true);
            drop(ending);
            // Other callers must not wait for it either.
            leave(&self.orders);
            self.port
                .close("the cluster is being stopped, and does not answer");
            let hanging = self
                .witness
                .hanging()
                .into_iter()
                .map(|(who, call)| (who, call.to_text()));
            return Err(Error::NotStopped {
                hanging: hanging.collect(),
                waited: max,
            });
        }
        let _ = thread.join();
        Ok(())
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        let given_up = self
            .ending
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .given_up;
        if !given_up {
            // There is no caller to report to.
            let _ = self.stop();
        }
    }
}

impl Host {
    fn new(
        config: Config,
        options: RunOptions,
        waker: Arc<Waker>,
        port: Arc<Port>,
        lock: Lock,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, StartError> {
        let reactor = daemon::reactor(&config, waker, config.mons.len() + config.osds.len())?;
        let mons = config.mons.keys().map(|id| Entity::Mon(*id));
        let all: Vec<Entity> = mons
            .chain(config.osds.keys().map(|id| Entity::Osd(*id)))
            .collect();
        let tightened = crate::creating::tighten(&config);
        let servers = Servers::embedded(&config, options.listen);
        let mut host = Self {
            reactor,
            config,
            options,
            servers,
            stop,
            broken: BTreeMap::new(),
            lock,
        };
        tightened
            .into_iter()
            .for_each(|line| host.reactor.say(line));
        for who in all {
            match host.start(who) {
                Ok(()) => {}
                Err(why) if why.is_one_daemons() => host.leave_out(who, why.to_string())?,
                Err(why) => return Err(why),
            }
        }
        daemon::add_client(&mut host.reactor, port, crate::cluster::ADMIN)?;
        Ok(host)
    }

    fn start(&mut self, who: Entity) -> Result<(), StartError> {
        // A daemon that stopped by itself still has its slot.
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

    /// Continues without a daemon, if the others suffice.
    fn leave_out(&mut self, who: Entity, why: String) -> Result<(), StartError> {
        self.kill(who);
        self.broken.insert(who, why.clone());
        let broken = |is: fn(&Entity) -> bool| self.broken.keys().filter(|who| is(who)).count();
        let mons = broken(|who| matches!(who, Entity::Mon(_)));
        let osds = broken(|who| matches!(who, Entity::Osd(_)));
        if mons * 2 >= self.config.mons.len() || osds >= self.config.osds.len() {
            return Err(StartError::Halted {
                who: who.to_string(),
                why,
            });
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
        while !self.stop.load(Ordering::SeqCst) {
            // Without a port, for example, file systems wait; the rest continues.
            if self.options.servers
                && let Err(why) = self.servers.look(&mut self.reactor)
            {
                self.reactor.say(why.to_string());
            }
            self.reactor.turn(Duration::from_secs(1));
            loop {
                let said = self.reactor.take_said();
                let mut queue = lock(orders);
                queue.said.extend(said);
                while queue.said.len() > 1000 {
                    queue.said.pop_front();
                }
                let Some(order) = queue.pending.pop_front() else {
                    break;
                };
                drop(queue);
                order(&mut self);
            }
        }
        // Before steps that may hang: callers would wait for this thread.
        leave(orders);
        for who in self.reactor.entities() {
            if let Some(AnyRole::Client(access)) =
                self.reactor.node_mut(who).map(|node| &mut node.role)
            {
                Access::stop(access, "the cluster has been stopped");
            }
        }
        self.servers.shut_down(&mut self.reactor);
        // All daemons stop at once: no peer is notified, only writes are finished.
        daemon::drain(&mut self.reactor);
    }

    /// What is not ready yet.
    fn missing(&self) -> Option<String> {
        let running = self.reactor.entities();
        let mons = running
            .iter()
            .filter_map(|who| match self.reactor.node(*who)?.role {
                AnyRole::Mon(ref mon) => Some(mon),
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
                    && map
                        .up_osd(*id)
                        .is_some_and(|info| info.instance == node.role.instance()))
            {
                return Some(format!("{id} is not up"));
            }
        }
        let waiting = map.pgs.iter().find(|(id, record)| {
            let min = map
                .pools
                .get(&id.pool)
                .map_or(1, |pool| usize::from(pool.min_size));
            record.acting.len() >= min && !record.is_activated()
        });
        waiting.map(|(id, record)| {
            format!(
                "placement group {id} does not serve yet (acting {:?})",
                record.acting
            )
        })
    }
}

/// Opens the cluster in a directory in this process, creating it if the directory is empty or
/// missing.
pub(crate) fn open(dir: &Path) -> Result<Cluster, Error> {
    if !dir.join(crate::config::FILE_NAME).exists() {
        let plain = crate::directory::InitOptions::default();
        let osd_bytes = crate::space::default_osd_bytes(dir, plain.osds);
        let options = crate::directory::InitOptions {
            base_port: None,
            osd_bytes,
            ..plain
        };
        match crate::directory::init(dir, &options) {
            // Another process has created one meanwhile.
            Ok(_) | Err(StartError::Exists { .. }) => {}
            Err(why) => return Err(why.into()),
        }
    }
    Ok(Arc::new(Embedded::start(dir, RunOptions::default())?).cluster())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::{InitOptions, init};
    use nacre_command::{Command, PoolCreate};
    use nacre_wire::msg::client::SubOp;
    use serde_json::json;

    /// A small cluster in a new directory, started.
    fn started(name: &str, osds: u32) -> (std::path::PathBuf, Arc<Embedded>) {
        let dir = std::env::temp_dir().join(format!("nacre-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let options = InitOptions {
            osds,
            base_port: None,
            osd_bytes: 64 << 20,
            mon_bytes: 128 << 20,
            ..Default::default()
        };
        init(&dir, &options).expect("an empty folder");
        let embedded = Arc::new(Embedded::start(&dir, RunOptions::default()).expect("starts"));
        (dir, embedded)
    }

    /// A flush of one OSD's disk did not end, and `stop` waited for its thread for ever. So did
    /// each later call of the cluster.
    #[test]
    fn a_cluster_whose_disk_hangs_does_not_stop_and_says_whose() {
        let (dir, embedded) = started("stop", 3);
        let pool = embedded.cluster().create_pool("p").wait().expect("made");
        // The hang ends with this file: see `faults.rs`.
        let faults = dir.join("osd.1/store.faults");
        std::fs::write(&faults, "osd.1/ flush hang 3600000\n").expect("writable");
        let write = std::thread::spawn(move || pool.put("a", vec![0; 1 << 20]).wait().map(drop));
        let hangs = |who: Entity| {
            embedded
                .witness
                .hanging()
                .iter()
                .any(|(hangs, _)| *hangs == who)
        };
        let osd = Entity::Osd(OsdId(1));
        assert!((0..6000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            hangs(osd)
        }));

        let why = embedded
            .stop_within(Duration::from_secs(3))
            .expect_err("it hangs");
        let Error::NotStopped { hanging, .. } = &why else {
            panic!("{why}")
        };
        assert!(
            hanging
                .iter()
                .any(|(who, text)| *who == osd && text.contains("a flush")),
            "{why}"
        );
        assert_eq!(
            (embedded.running(), embedded.usage(osd)),
            (vec![], None),
            "asked in vain, and not for ever"
        );
        assert!(matches!(
            Embedded::start(&dir, RunOptions::default()),
            Err(StartError::Locked { .. })
        ));
        let _ = write.join().expect("no panic");

        std::fs::remove_file(faults).expect("it is there");
        embedded
            .stop_within(Duration::from_secs(600))
            .expect("the flush has ended");
        embedded.stop().expect("again");
        drop(embedded);
        std::fs::remove_dir_all(dir).expect("ours");
    }

    /// Comparing long strings counts one step and reads all of them: repeated this often, it takes
    /// tens of milliseconds at least, and fewer steps than either budget has. Step counts do not
    /// stop it.
    fn long_and_cheap(bytes: u32) -> String {
        format!(
            "local s, t = string.rep('x', {bytes}), string.rep('x', {bytes} - 1) .. 'y'
             for _ = 1, 15000 do if t < s then return end end"
        )
    }

    /// F33: what a client's script takes beyond its step count delayed all clients. An OSD can hand
    /// such a script to another thread, but has no clock of its own: no test failed when the daemon
    /// gave it none.
    #[test]
    fn a_daemon_gives_its_osds_a_clock() {
        let (dir, embedded) = started("osd-clock", 1);
        let create = Command::PoolCreate(PoolCreate::replicated("p", 1, 1));
        embedded.cluster().command(&create).wait().expect("made");
        let pool = embedded.cluster().pool("p").wait().expect("a pool");
        pool.put("a", "x").wait().expect("put");
        let jobs = || {
            let look = |host: &mut Host| match &host.reactor.node(Entity::Osd(OsdId(0)))?.role {
                AnyRole::Osd(osd) => Some(osd.programs().counters.jobs),
                AnyRole::Mon(_) | AnyRole::Client(_) | AnyRole::Service(_) | AnyRole::Mds(_) => {
                    None
                }
            };
            embedded.order(look).flatten().expect("it runs")
        };
        let run = |body: &str| {
            let script =
                bytes::Bytes::from(format!("function f() {body} end objclass.register(f)"));
            let eval = SubOp::Eval {
                script: script.len() as u64,
                handler: "f".into(),
                input: 0,
            };
            pool.operate("a", vec![eval], vec![script])
                .wait()
                .expect("it ends well");
            jobs()
        };
        let before = run("return");
        assert!(
            run(&long_and_cheap(200_000)) > before,
            "it kept the daemon's own thread"
        );
        embedded.stop().expect("stops");
        std::fs::remove_dir_all(dir).expect("ours");
    }

    /// F34: a validator that counts few steps and takes long blocked the leading monitor. No test
    /// failed when the daemon's monitor ran programs without its clock.
    #[test]
    fn a_daemon_gives_its_monitors_a_clock() {
        let (dir, embedded) = started("mon-clock", 1);
        let cluster = embedded.cluster();
        let put = |key: &str, value: String| cluster.meta_put(key, value).wait();
        let validator = |body: &str| format!("function validate() {body} end");
        put("nacre/program/short", validator("return")).expect("a program");
        put("nacre/program/long", validator(&long_and_cheap(1_000_000))).expect("a program");
        put(
            "nacre/namespace/s",
            json!({ "validator": "short" }).to_string(),
        )
        .expect("a namespace");
        put(
            "nacre/namespace/l",
            json!({ "validator": "long" }).to_string(),
        )
        .expect("a namespace");
        put("s/a", "1".to_owned()).expect("accepted");
        let refused = put("l/a", "1".to_owned());
        assert!(
            refused.as_ref().is_err_and(|why| why
                .to_string()
                .contains("it took longer than the daemon has")),
            "{refused:?}"
        );
        embedded.stop().expect("stops");
        std::fs::remove_dir_all(dir).expect("ours");
    }
}
