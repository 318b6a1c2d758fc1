//! The only module that creates daemons and connections: everything else in this crate sees
//! [`Session`] and [`Running`].
//!
//! A connection is a separate client that runs on the caller's thread (`nacre_node::Pipelined`).
//! Objects, commands and metadata share it, and with it one session with the monitors: a command
//! opens one, and passes it on ([`Session::metadata`]).

use super::{Commands, Metadata, Place, Session};
use crate::object::pools;
use crate::objects::{Ended, Failed, Objects};
use crate::shown::shown;
use anyhow::{Context, Result, bail, ensure};
use nacre_client::{
    Capabilities, Completion, Driven, Engines, Failure, ObjectCluster, OpId, Operation, Refused,
    WatchEvent, WatchId, WatchNews,
};
use nacre_command::Command;
use nacre_node::{Call, Cluster, Config, Embedded, FileSystem, InitOptions, Pipelined, RunOptions};
use nacre_rados::meta::{ConfigKey, Cursor, MetaStore};
use nacre_rados::{Bounds, Ceph, CephEngines, Rados};
use nacre_types::{ClientId, Entity, Instance, MonId, ObjectId, OsdId, PoolId, Rank, Time};
use nacre_wire::fs::FsHolder;
use nacre_wire::fs::registry::PREFIX as FILES;
use nacre_wire::msg::client::RequestId;
use nacre_wire::msg::fs::FsFigures;
use nacre_wire::msg::meta::{MetaCall, MetaPair, MetaResult, MetaSpan};
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An operation unanswered for this long has an unknown result.
const OPERATION_MAX: Duration = Duration::from_secs(30);
/// Time limit for a first map, or a map with a new pool.
const MAP_MAX: Duration = Duration::from_secs(10);
/// After this time without the pool in the map, the monitors are asked whether it exists.
const MAP_ASK: Duration = Duration::from_millis(500);

/// Properties of a new cluster.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Monitors.
    pub mons: u32,
    /// OSDs.
    pub osds: u32,
    /// The first port; daemons use the following ones. None: the first free ones.
    pub base_port: Option<u16>,
    /// The first daemon's address; the others have the following ones. None: all on 127.0.0.1.
    pub host: Option<Ipv4Addr>,
    /// Size of an OSD's store. None: what fits on the disk, at most 10 GiB.
    pub osd_bytes: Option<u64>,
    /// Replicas of the pool `data`, which is created at the first start.
    pub first_pool: Option<u32>,
}

fn run_options() -> RunOptions {
    RunOptions {
        idle: Some(crate::memory::give_back),
        ..RunOptions::default()
    }
}

/// Daemons that run in this process.
pub trait Running {
    /// Ends an OSD as a crash would: nothing is flushed, no peer is notified.
    ///
    /// # Errors
    /// When there is none.
    fn kill_osd(&mut self, osd: u32) -> Result<()>;
    /// Starts an OSD again.
    ///
    /// # Errors
    /// When it does not start.
    fn start_osd(&mut self, osd: u32) -> Result<()>;
    /// Replicas of objects that an OSD has recovered since it started, if known.
    fn recovered(&mut self, osd: u32) -> Option<u64>;
    /// Human-readable news since the last call: daemons that did not start, or stopped by
    /// themselves.
    fn news(&mut self) -> Vec<String>;
    /// Number of OSDs that should be up.
    fn osds(&mut self) -> usize;
    /// Daemons that should run and do not, with the reason.
    fn missing(&mut self) -> Vec<String>;
    /// The reason why it will never be ready, if that is certain.
    fn hopeless(&mut self) -> Option<String>;
    /// Stops everything in order.
    ///
    /// # Errors
    /// When something could not be written.
    fn stop(self: Box<Self>) -> Result<()>;
}

/// An embedded cluster, and the news already reported.
struct Here {
    embedded: Arc<Embedded>,
    told: BTreeSet<String>,
    log: Option<File>,
}

impl Running for Here {
    fn kill_osd(&mut self, osd: u32) -> Result<()> {
        if !self.embedded.kill_osd(OsdId(osd)) {
            bail!("osd.{osd} does not run here");
        }
        Ok(())
    }
    fn start_osd(&mut self, osd: u32) -> Result<()> {
        Ok(self.embedded.start_osd(OsdId(osd))?)
    }
    fn recovered(&mut self, osd: u32) -> Option<u64> {
        self.embedded.recovered(OsdId(osd))
    }
    fn news(&mut self) -> Vec<String> {
        for line in self.embedded.take_log() {
            if let Some(log) = &mut self.log {
                // A failing log must not stop the cluster.
                let _ = writeln!(log, "{} {line}", crate::clock::now_utc());
            }
        }
        let halted = self.embedded.halted().into_iter();
        let lines = halted.map(|(who, why)| format!("{who} does not run, the others go on: {why}"));
        lines
            .filter(|line| self.told.insert(line.clone()))
            .collect()
    }
    fn osds(&mut self) -> usize {
        self.embedded
            .running()
            .iter()
            .filter(|who| matches!(who, Entity::Osd(_)))
            .count()
    }
    fn missing(&mut self) -> Vec<String> {
        self.embedded
            .halted()
            .into_iter()
            .map(|(who, why)| format!("{who} does not run: {why}"))
            .collect()
    }
    fn hopeless(&mut self) -> Option<String> {
        None
    }
    fn stop(self: Box<Self>) -> Result<()> {
        let halted = self.embedded.halted();
        self.embedded.stop()?;
        match halted.first() {
            Some((who, why)) => bail!("the cluster is stopped; {who} had not been running: {why}"),
            None => Ok(()),
        }
    }
}

/// See the module head.
struct Connection {
    control: Box<dyn Control>,
    data: Rc<RefCell<dyn Driven>>,
    /// Command to diagnose problems with this cluster.
    advice: &'static str,
    /// Operations in flight, in the order in which they began.
    flying: BTreeMap<OpId, Time>,
    ended: VecDeque<(OpId, Ended)>,
    /// Whether an operation was begun since the last turn.
    unsent: bool,
    polled: Vec<Completion>,
    /// Watchers' events not yet taken.
    heard: Vec<WatchEvent>,
}

/// A cluster's monitors, and its metadata.
trait Control: Commands {
    fn metadata(&self) -> Result<Box<dyn Metadata>>;
}

impl Connection {
    fn new(control: Box<dyn Control>, data: Rc<RefCell<dyn Driven>>, advice: &'static str) -> Self {
        Self {
            control,
            data,
            advice,
            flying: BTreeMap::new(),
            ended: VecDeque::new(),
            unsent: false,
            polled: Vec::new(),
            heard: Vec::new(),
        }
    }

    fn poll(&mut self, max: Duration) {
        let mut data = self.data.borrow_mut();
        data.turn(max);
        data.completions(&mut self.polled);
    }

    fn stopped(&mut self) -> Result<()> {
        match self.data.borrow_mut().stopped() {
            Some(why) => bail!(why),
            None => Ok(()),
        }
    }

    /// Runs one turn of the connection.
    fn turn(&mut self) {
        // A turn waits first and sends last: operations just begun must be sent before the wait.
        if std::mem::take(&mut self.unsent) {
            self.poll(Duration::ZERO);
        }
        let wait = if self.polled.is_empty() {
            Duration::from_millis(100)
        } else {
            Duration::ZERO
        };
        self.poll(wait);
        if self.flying.is_empty() {
            return self.polled.clear();
        }
        let now = self.data.borrow().now();
        for Completion { id, result } in self.polled.drain(..) {
            let Some(begun) = self.flying.remove(&id) else {
                continue;
            };
            let result = result.map_err(|failure| match failure {
                Failure::Refused(why) => Failed::Refused(why),
                doubtful @ Failure::Doubtful(_) => Failed::Unknown(doubtful.to_string()),
                Failure::NoSuchPool => Failed::Unknown("the pool was removed".to_owned()),
                Failure::Unknown => {
                    let waited = now.since(begun).as_secs_f64();
                    Failed::Unknown(format!(
                        "no answer for {waited:.0} s; `{}` says what the cluster waits for",
                        self.advice
                    ))
                }
                Failure::Foreign { why, .. } => Failed::Foreign(why),
            });
            self.ended.push_back((id, result));
        }
        while let Some((id, _)) = self
            .flying
            .first_key_value()
            .filter(|(_, begun)| now.since(**begun) > OPERATION_MAX)
        {
            let id = *id;
            self.data.borrow_mut().abandon(id);
            let begun = self.flying.remove(&id).expect("just seen");
            let why = format!(
                "no answer for {:.0} s, and it may happen yet; `{}` says what the cluster waits for",
                now.since(begun).as_secs_f64(),
                self.advice
            );
            self.ended.push_back((id, Err(Failed::Unknown(why))));
        }
    }

    /// Waits until the map has the pool: it may be new, and the map may come from a lagging
    /// monitor. That it does not exist is only decided by a majority of the monitors.
    fn await_pool(&mut self, pool: PoolId) -> Result<u32> {
        let begun = Instant::now();
        let mut asked = false;
        loop {
            if let Some(groups) = self.data.borrow_mut().groups(pool) {
                return Ok(groups);
            }
            let known = self.data.borrow_mut().is_connected();
            if known && !asked && begun.elapsed() > MAP_ASK {
                asked = true;
                if !self.exists(pool)? {
                    bail!("the pool was removed");
                }
            }
            if begun.elapsed() > MAP_MAX {
                bail!(if known {
                    "the monitors have not sent the newest map; `nacre health detail` says what is wrong"
                } else {
                    "no monitor has answered; are the monitors running?"
                });
            }
            self.turn();
        }
    }

    /// Begins an operation, as soon as there is room for it.
    fn fly<T>(
        &mut self,
        bytes: u64,
        begin: impl FnOnce(Time, &mut dyn ObjectCluster) -> Result<(OpId, T), Refused>,
    ) -> Result<T> {
        loop {
            let mut data = self.data.borrow_mut();
            let now = data.now();
            let objects = data.objects();
            if objects.has_room(bytes) {
                let (id, begun) = begin(now, objects)?;
                self.flying.insert(id, now);
                self.unsent = true;
                return Ok(begun);
            }
            drop(data);
            self.turn();
        }
    }

    fn exists(&mut self, pool: PoolId) -> Result<bool> {
        Ok(pools(self)?.iter().any(|(_, id)| *id == pool))
    }
}

impl Objects for Connection {
    fn begin(&mut self, operation: Operation) -> Result<OpId> {
        self.await_pool(operation.pool)?;
        let bytes = operation.bytes();
        self.fly(bytes, |now, objects| {
            objects.submit(now, operation).map(|id| (id, id))
        })
    }

    fn next(&mut self) -> Result<Option<(OpId, Ended)>> {
        loop {
            if let Some(ended) = self.ended.pop_front() {
                return Ok(Some(ended));
            }
            if self.flying.is_empty() {
                return Ok(None);
            }
            self.turn();
            self.stopped()?;
        }
    }

    fn pg_num(&mut self, pool: PoolId) -> Result<u32> {
        self.await_pool(pool)
    }

    fn map_at_least(&mut self, epoch: u64) -> Result<()> {
        let begun = Instant::now();
        while self.data.borrow_mut().epoch() < epoch {
            if begun.elapsed() > MAP_MAX {
                bail!(
                    "the monitors have not sent the newest map; `nacre health detail` says what is wrong"
                );
            }
            self.turn();
        }
        Ok(())
    }

    fn identity(&mut self) -> Option<(ClientId, Instance)> {
        self.data.borrow_mut().identity()
    }

    fn capabilities(&mut self) -> Capabilities {
        self.data.borrow_mut().objects().capabilities()
    }

    fn watch(&mut self, pool: PoolId, object: &ObjectId, timeout: Duration) -> Result<WatchId> {
        self.await_pool(pool)?;
        self.fly(0, |now, objects| {
            let watch = objects.watch(now, pool, object.clone(), timeout)?;
            Ok((OpId(watch.0), watch))
        })
    }

    fn watch_event(&mut self, max: Duration) -> Result<Option<WatchEvent>> {
        let begun = Instant::now();
        loop {
            self.data.borrow_mut().watch_events(&mut self.heard);
            if !self.heard.is_empty() {
                return Ok(Some(self.heard.remove(0)));
            }
            if begun.elapsed() >= max {
                return Ok(None);
            }
            self.turn();
            self.stopped()?;
        }
    }

    fn acknowledge(&mut self, watch: WatchId, notify: RequestId) -> Result<()> {
        // Lost meanwhile: the next event says so.
        let mut data = self.data.borrow_mut();
        let now = data.now();
        let _ = data
            .objects()
            .ack_notify(now, watch, notify, bytes::Bytes::new());
        drop(data);
        self.poll(Duration::ZERO);
        Ok(())
    }

    fn unwatch(&mut self, watch: WatchId) -> Result<()> {
        let mut data = self.data.borrow_mut();
        let now = data.now();
        let begun = data.objects().unwatch(now, watch)?;
        drop(data);
        if let Some(id) = begun {
            self.flying.insert(id, now);
            self.unsent = true;
            // Refused only if the watch is gone already.
            let _ = self.next()?;
        }
        Ok(())
    }
}

impl Commands for Connection {
    fn command(&mut self, command: &Command) -> Result<Value> {
        self.control.command(command)
    }
    fn program_pool(&self) -> &'static str {
        self.control.program_pool()
    }
}
impl Session for Connection {
    fn metadata(&mut self) -> Result<Box<dyn Metadata>> {
        self.control.metadata()
    }
}

/// A client of Nacre's own daemons that runs on this thread. Clones are the same client.
#[derive(Clone)]
struct Ours {
    reactor: Rc<RefCell<Pipelined>>,
    cluster: Cluster,
}

impl Ours {
    fn connect(place: &Path, name: &str) -> Result<Self> {
        let reactor = Pipelined::connect_as(place, name)?;
        Ok(Self {
            cluster: reactor.cluster(),
            reactor: Rc::new(RefCell::new(reactor)),
        })
    }
    fn wait<T>(&self, call: Call<'_, T>) -> Result<T> {
        Ok(self.reactor.borrow_mut().wait(call)?)
    }
}

impl Commands for Ours {
    fn command(&mut self, command: &Command) -> Result<Value> {
        self.wait(self.cluster.command(command))
    }
}
impl Control for Ours {
    fn metadata(&self) -> Result<Box<dyn Metadata>> {
        Ok(Box::new(self.clone()))
    }
}
impl Metadata for Ours {
    fn meta(&mut self, call: MetaCall) -> Result<(u64, MetaResult)> {
        self.wait(self.cluster.meta(call))
    }
    fn list(&mut self, span: MetaSpan) -> Result<(Vec<MetaPair>, u64)> {
        self.wait(self.cluster.meta_list(span))
    }
    fn watch(
        &mut self,
        span: MetaSpan,
        from: u64,
        each: &mut dyn FnMut(WatchNews) -> Result<bool>,
    ) -> Result<()> {
        let watcher = self.cluster.meta_watch(span, from)?;
        while !each(self.wait(watcher.next())?)? {}
        Ok(())
    }
}

/// Connects to the cluster of a directory or file.
///
/// # Errors
/// When its file is wrong.
pub fn connect(place: &Path, name: &str) -> Result<Box<dyn Session>> {
    let ours = Ours::connect(place, name)?;
    let data = ours.reactor.clone();
    Ok(Box::new(Connection::new(
        Box::new(ours),
        data,
        "nacre health detail",
    )))
}

/// The same, for service metadata alone.
///
/// # Errors
/// As [`connect`].
pub fn metadata(place: &Path, name: &str) -> Result<Box<dyn Metadata>> {
    Ok(Box::new(Ours::connect(place, name)?))
}

/// A Ceph cluster's monitors, with Nacre's commands.
struct CephControl {
    rados: Rados,
    name: String,
}
impl Commands for CephControl {
    fn command(&mut self, command: &Command) -> Result<Value> {
        Ok(nacre_rados::admin::command(&self.rados, command)?)
    }
    fn program_pool(&self) -> &'static str {
        nacre_rados::home::HOME
    }
}
impl Control for CephControl {
    fn metadata(&self) -> Result<Box<dyn Metadata>> {
        let (rados, name) = (self.rados.clone(), self.name.as_str());
        Ok(Box::new(MetaStore::connect(rados, name)))
    }
}

/// Connects to the Ceph cluster of a configuration file; with `for_files`, for the objects of file
/// systems.
///
/// # Errors
/// When librados is not there, or no monitor answers.
pub fn connect_ceph(conf: &Path, name: &str, for_files: bool) -> Result<Box<dyn Session>> {
    let rados = Rados::connect(conf, name, &Bounds::default())?;
    let ceph = Ceph::new(rados.clone());
    let ceph = if for_files { ceph.private() } else { ceph };
    let control = CephControl {
        rados,
        name: name.to_owned(),
    };
    Ok(Box::new(Connection::new(
        Box::new(control),
        Rc::new(RefCell::new(ceph)),
        "ceph health detail",
    )))
}

impl Metadata for MetaStore<Ceph, ConfigKey> {
    fn meta(&mut self, call: MetaCall) -> Result<(u64, MetaResult)> {
        Ok(self.call(&call)?)
    }
    fn list(&mut self, span: MetaSpan) -> Result<(Vec<MetaPair>, u64)> {
        Ok(Self::list(self, &span)?)
    }
    fn settle(&mut self, time: Duration) -> Result<()> {
        let (begun, mut cursor) = (
            Instant::now(),
            Cursor::new(
                MetaSpan::Prefix {
                    prefix: FILES.into(),
                },
                0,
            ),
        );
        while begun.elapsed() < time && !cursor.has_ended() {
            self.news(&mut cursor, time.saturating_sub(begun.elapsed()))?;
        }
        Ok(())
    }
    fn watch(
        &mut self,
        span: MetaSpan,
        from: u64,
        each: &mut dyn FnMut(WatchNews) -> Result<bool>,
    ) -> Result<()> {
        let mut cursor = Cursor::new(span, from);
        loop {
            let news = self.news(&mut cursor, Duration::from_secs(10))?;
            if let Some(news) = news
                && each(news)?
            {
                return Ok(());
            }
            ensure!(!cursor.has_ended(), "the watch has ended");
        }
    }
}

/// Connects to the service metadata of a Ceph cluster.
///
/// # Errors
/// When librados is not there, or no monitor answers.
pub fn metadata_on_ceph(conf: &Path, name: &str) -> Result<Box<dyn Metadata>> {
    Ok(Box::new(MetaStore::connect(
        Rados::connect(conf, name, &Bounds::default())?,
        name,
    )))
}

/// A client for callers on several threads.
///
/// # Errors
/// When there is no cluster, or its file is wrong.
pub fn client(place: &Place, name: &str) -> Result<Cluster> {
    place.config_of_running()?;
    Ok(Cluster::connect_as(place.path(), name)?)
}

/// Makes a cluster in an empty directory.
///
/// # Errors
/// When the directory is not empty.
pub fn init(dir: &Path, shape: &Shape) -> Result<()> {
    let Shape {
        mons,
        osds,
        base_port,
        host,
        osd_bytes,
        first_pool,
    } = *shape;
    let base_port = Some(match base_port {
        Some(port) => port,
        None => free_ports(nacre_node::directory::BASE_PORT, mons + osds)?,
    });
    let osd_bytes = osd_bytes.unwrap_or_else(|| nacre_node::space::default_osd_bytes(dir, osds));
    nacre_node::init(
        dir,
        &InitOptions {
            mons,
            osds,
            base_port,
            host,
            osd_bytes,
            first_pool,
            ..InitOptions::default()
        },
    )?;
    Ok(())
}

/// Whether [`init`] failed because there is a cluster.
#[must_use]
pub fn is_there_already(why: &anyhow::Error) -> bool {
    matches!(
        why.downcast_ref(),
        Some(nacre_node::StartError::Exists { .. })
    )
}

/// The first of `count` consecutive free ports of 127.0.0.1, starting at `from`.
///
/// # Errors
/// When there are none.
pub fn free_ports(from: u16, count: u32) -> Result<u16> {
    let is_free =
        |port: u32| nacre_node::port_is_free("a daemon", &format!("127.0.0.1:{port}")).is_ok();
    let mut bases = (u32::from(from)..65_536 - count).step_by(20);
    let base = bases
        .find(|base| (*base..base + count).all(is_free))
        .context("no free ports were found on 127.0.0.1")?;
    Ok(u16::try_from(base).expect("below 65536"))
}

/// Opens a log for appending; a large old one is replaced.
///
/// # Errors
/// The operating system's.
pub fn open_log(path: &Path) -> Result<File> {
    const LARGE: u64 = 16 << 20;
    let large = path.metadata().is_ok_and(|meta| meta.len() > LARGE);
    if large {
        std::fs::rename(path, path.with_extension("log.old"))
            .with_context(|| format!("renaming {}", path.display()))?;
    }
    File::options()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("opening {}", path.display()))
}

/// Connects to a cluster that may not answer yet, with a limit of `each` per answer.
///
/// # Errors
/// When its file is wrong.
pub fn ask_patiently(place: &Path, each: Duration) -> Result<Box<dyn Commands>> {
    let mut ours = Ours::connect(place, nacre_node::ADMIN)?;
    ours.cluster = ours.cluster.with_timeout(each);
    Ok(Box::new(ours))
}

/// Starts a cluster's daemons in this process.
///
/// # Errors
/// When one does not start.
pub fn start(dir: &Path) -> Result<Box<dyn Running>> {
    let embedded = Arc::new(Embedded::start(dir, run_options())?);
    let log = open_log(&nacre_node::locks::run_folder(dir).join("up.log"))?;
    Ok(Box::new(Here {
        embedded,
        told: BTreeSet::new(),
        log: Some(log),
    }))
}

/// The same, without servers of file systems.
///
/// # Errors
/// When one does not start.
pub fn start_without_servers(dir: &Path) -> Result<Box<dyn Running>> {
    let options = RunOptions {
        servers: false,
        ..run_options()
    };
    let embedded = Arc::new(Embedded::start(dir, options)?);
    Ok(Box::new(Here {
        embedded,
        told: BTreeSet::new(),
        log: None,
    }))
}

/// Runs one monitor until it is told to stop.
///
/// # Errors
/// When it does not start, or stops by itself.
pub fn run_mon(config: &Path, id: u32) -> Result<()> {
    let config = Config::load(config)?;
    Ok(nacre_node::run_mon(
        &config,
        MonId(id),
        &run_options(),
        &mut |line| {
            crate::say::line(&format!("{} {}", crate::clock::now_utc(), shown(line)));
        },
    )?)
}

/// Runs one OSD until it is told to stop.
///
/// # Errors
/// When it does not start, or stops by itself.
pub fn run_osd(config: &Path, id: u32) -> Result<()> {
    let config = Config::load(config)?;
    Ok(nacre_node::run_osd(
        &config,
        OsdId(id),
        &run_options(),
        &mut |line| {
            crate::say::line(&format!("{} {}", crate::clock::now_utc(), shown(line)));
        },
    )?)
}

/// Runs servers of file systems until they are told to stop: for a cluster's directory or file, or
/// for a Ceph cluster.
///
/// # Errors
/// When they do not start.
pub fn run_mds(
    config: Option<&Path>,
    id: u32,
    address: Option<IpAddr>,
    place: &Place,
) -> Result<()> {
    let mut say =
        |line: &str| crate::say::line(&format!("{} {}", crate::clock::now_utc(), shown(line)));
    let named =
        config.map(|config| Place::new(Some(config.to_owned())).named(place.name().to_owned()));
    let place = named.as_ref().unwrap_or(place);
    match place.ceph() {
        Some(conf) => Ok(nacre_node::run_mds_on(
            engines(conf, place.name())?,
            id,
            address,
            &mut say,
        )?),
        None => Ok(nacre_node::run_mds(
            &place.config()?,
            id,
            address,
            &mut say,
        )?),
    }
}

/// A Ceph cluster, for services.
fn engines(conf: &Path, name: &str) -> Result<Arc<dyn Engines>> {
    Ok(Arc::new(CephEngines::find(conf, name)?))
}

/// Opens a file system of a running cluster; `about` is the description shown by `nacre fs
/// clients`.
///
/// # Errors
/// There is no such file system, or no server for it; what is wrong with the cluster.
pub fn file_system(place: &Place, name: &str, about: &str) -> Result<FileSystem> {
    match place.ceph() {
        Some(conf) => {
            let engines = engines(conf, place.name())?;
            Ok(FileSystem::connect_on(engines, place.name(), name, about)?)
        }
        None => {
            place.config_of_running()?;
            let (path, client) = (place.path(), place.name());
            Ok(FileSystem::connect_for(path, client, name, about)?)
        }
    }
}

/// Status of the servers of ranks, of those that answer in time.
///
/// # Errors
/// The cluster's configuration cannot be used.
pub fn figures(
    place: &Place,
    holders: Vec<(Rank, FsHolder)>,
    max: Duration,
) -> Result<BTreeMap<Rank, FsFigures>> {
    Ok(match place.ceph() {
        Some(conf) => {
            nacre_node::inquire_on(&*engines(conf, place.name())?, place.name(), holders, max)?
        }
        None => nacre_node::inquire(&place.config_of_running()?, place.name(), holders, max)?,
    })
}

/// Ctrl-C and SIGTERM, watched from the creation of this value.
pub struct Ending(Signals);

impl Ending {
    /// Starts watching for signals.
    ///
    /// # Errors
    /// When signals cannot be watched.
    pub fn watch() -> Result<Self> {
        Ok(Self(
            Signals::new([SIGINT, SIGTERM]).context("watching for Ctrl-C")?,
        ))
    }
    /// Whether a signal has arrived since the last call.
    pub fn has_come(&mut self) -> bool {
        self.0.pending().next().is_some()
    }
    /// Waits for one, and reports the daemons' news meanwhile.
    pub fn wait(&mut self, daemons: &mut dyn Running) {
        while !self.has_come() {
            for line in daemons.news() {
                crate::say::line(&format!("nacre: {}", shown(&line)));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}
