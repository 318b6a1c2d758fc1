//! The only place that knows how daemons and connections are made: everything else in this crate sees [`Session`] and [`Running`].
//!
//! A connection is a client of its own that is turned by the caller's thread (`nacre_node::Pipelined`), and beside it one for commands.

use super::{Commands, Place, Session};
use crate::objects::{Ended, Failed, Objects};
use anyhow::{Context, Result, anyhow, bail};
use nacre_client::{Completion, Failure, OpId, Operation, Refused, WatchEvent, WatchId};
use nacre_node::{Cluster, Config, Embedded, InitOptions, Pipelined, RunOptions};
use nacre_types::{Entity, MonId, ObjectId, OsdId, PoolId};
use nacre_wire::msg::client::RequestId;
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An operation without an answer for so long has an unknown end.
const OPERATION_MAX: Duration = Duration::from_secs(30);
/// For how long a first map, or a map with a pool just made, is waited for.
const MAP_MAX: Duration = Duration::from_secs(10);
/// After so long without the pool in the map, the monitors are asked whether there is one.
const MAP_ASK: Duration = Duration::from_millis(500);
/// Operations that one connection keeps in flight; the client's own bound is a little higher.
const IN_FLIGHT_MAX: usize = 1000;

/// What a new cluster is made of.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Monitors.
    pub mons: u32,
    /// OSDs.
    pub osds: u32,
    /// The first port; daemons take the following ones. None: only inside one process.
    pub base_port: Option<u16>,
}

/// Daemons that run in this process.
pub trait Running {
    /// Ends an OSD as a crash would: nothing is flushed, nobody is told.
    ///
    /// # Errors
    /// When there is none.
    fn kill_osd(&mut self, osd: u32) -> Result<()>;
    /// Starts an OSD again.
    ///
    /// # Errors
    /// When it does not start.
    fn start_osd(&mut self, osd: u32) -> Result<()>;
    /// Copies of objects that an OSD has been brought since it started, if that can be known.
    fn recovered(&mut self, osd: u32) -> Option<u64>;
    /// What a person should hear of since the last call: daemons that did not start, or stopped by themselves.
    fn news(&mut self) -> Vec<String>;
    /// OSDs that should be up.
    fn osds(&mut self) -> usize;
    /// Why it will never be ready, if that is certain.
    fn hopeless(&mut self) -> Option<String>;
    /// Stops everything in order.
    ///
    /// # Errors
    /// When something could not be written.
    fn stop(self: Box<Self>) -> Result<()>;
}

/// An embedded cluster, and what of it has been told.
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
                // A log that cannot be written must not stop the cluster.
                let _ = writeln!(log, "{} {line}", crate::clock::now_utc());
            }
        }
        let halted = self.embedded.halted().into_iter();
        let lines = halted.map(|(who, why)| format!("{who} does not run, the others go on: {why}"));
        lines.filter(|line| self.told.insert(line.clone())).collect()
    }
    fn osds(&mut self) -> usize {
        self.embedded.running().iter().filter(|who| matches!(who, Entity::Osd(_))).count()
    }
    fn hopeless(&mut self) -> Option<String> {
        None
    }
    fn stop(self: Box<Self>) -> Result<()> {
        let halted = self.embedded.halted();
        self.embedded.stop();
        match halted.first() {
            Some((who, why)) => bail!("the cluster is stopped; {who} had not been running: {why}"),
            None => Ok(()),
        }
    }
}

/// See the module head.
struct Connection {
    commands: Cluster,
    data: Pipelined,
    /// In the order in which they began.
    flying: BTreeMap<OpId, Instant>,
    ended: VecDeque<(OpId, Ended)>,
    /// Something was begun since the last turn.
    unsent: bool,
    polled: Vec<Completion>,
    /// What watchers heard and nobody has taken yet.
    heard: Vec<WatchEvent>,
}

impl Connection {
    /// Turns the connection once.
    fn turn(&mut self) {
        // A turn waits first and sends last: what was just begun must leave before the waiting.
        if std::mem::take(&mut self.unsent) {
            self.data.poll(Duration::ZERO, &mut self.polled);
        }
        let wait = if self.polled.is_empty() { Duration::from_millis(100) } else { Duration::ZERO };
        self.data.poll(wait, &mut self.polled);
        for Completion { id, result } in self.polled.drain(..) {
            let Some(begun) = self.flying.remove(&id) else { continue };
            let result = result.map_err(|failure| match failure {
                Failure::Refused(why) => Failed::Refused(why),
                Failure::NoSuchPool => Failed::Unknown("the pool was removed".to_owned()),
                Failure::Unknown => {
                    let waited = begun.elapsed().as_secs_f64();
                    Failed::Unknown(format!(
                        "no answer for {waited:.0} s; `nacre health detail` says what the cluster waits for"
                    ))
                }
            });
            self.ended.push_back((id, result));
        }
        while let Some((id, _)) = self.flying.first_key_value().filter(|(_, begun)| begun.elapsed() > OPERATION_MAX) {
            let id = *id;
            self.data.client().abandon(id);
            let begun = self.flying.remove(&id).expect("just seen");
            let why = format!(
                "no answer for {:.0} s, and it may happen yet; `nacre health detail` says what the cluster waits for",
                begun.elapsed().as_secs_f64()
            );
            self.ended.push_back((id, Err(Failed::Unknown(why))));
        }
    }

    /// Waits until the map knows the pool: it may have been made a moment ago, and the map may come from a monitor that lags behind. That it
    /// was removed is the monitors' majority's word.
    fn await_pool(&mut self, pool: PoolId) -> Result<u32> {
        let begun = Instant::now();
        let mut asked = false;
        loop {
            let map = self.data.client().map();
            if let Some(found) = map.and_then(|map| map.pools.get(&pool)) {
                return Ok(found.pg_num);
            }
            let known = map.is_some();
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

    fn exists(&self, pool: PoolId) -> Result<bool> {
        let reply = self.commands.command(serde_json::json!({ "command": "pool ls" })).wait()?;
        let pools = reply.get("pools").and_then(Value::as_array);
        Ok(pools.into_iter().flatten().any(|known| known.get("id").and_then(Value::as_u64) == Some(pool.0)))
    }
}

impl Objects for Connection {
    fn begin(&mut self, operation: Operation) -> Result<OpId> {
        self.await_pool(operation.pool)?;
        while self.flying.len() >= IN_FLIGHT_MAX {
            self.turn();
        }
        let id = self.data.submit(operation).map_err(refusal)?;
        self.flying.insert(id, Instant::now());
        self.unsent = true;
        Ok(id)
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
            if let Some((who, why)) = self.data.halted().first() {
                bail!("{who} can go on no longer: {why}");
            }
        }
    }

    fn pg_num(&mut self, pool: PoolId) -> Result<u32> {
        self.await_pool(pool)
    }

    fn map_at_least(&mut self, epoch: u64) -> Result<()> {
        let begun = Instant::now();
        while self.data.client().map().is_none_or(|map| map.epoch.0 < epoch) {
            if begun.elapsed() > MAP_MAX {
                bail!("the monitors have not sent the newest map; `nacre health detail` says what is wrong");
            }
            self.turn();
        }
        Ok(())
    }

    fn watch(&mut self, pool: PoolId, object: &ObjectId, timeout: Duration) -> Result<WatchId> {
        self.await_pool(pool)?;
        let watch = self.data.watch(pool, object.clone(), timeout).map_err(refusal)?;
        self.flying.insert(OpId(watch.0), Instant::now());
        self.unsent = true;
        Ok(watch)
    }

    fn watch_event(&mut self, max: Duration) -> Result<Option<WatchEvent>> {
        let begun = Instant::now();
        loop {
            self.data.watch_events(&mut self.heard);
            if !self.heard.is_empty() {
                return Ok(Some(self.heard.remove(0)));
            }
            if begun.elapsed() >= max {
                return Ok(None);
            }
            self.turn();
            if let Some((who, why)) = self.data.halted().first() {
                bail!("{who} can go on no longer: {why}");
            }
        }
    }

    fn acknowledge(&mut self, watch: WatchId, notify: RequestId) -> Result<()> {
        // Lost meanwhile: the next event says so.
        let _ = self.data.ack_notify(watch, notify, bytes::Bytes::new());
        self.data.poll(Duration::ZERO, &mut self.polled);
        Ok(())
    }

    fn unwatch(&mut self, watch: WatchId) -> Result<()> {
        if let Some(id) = self.data.unwatch(watch).map_err(refusal)? {
            self.flying.insert(id, Instant::now());
            self.unsent = true;
            // Refused only if the watch is gone already.
            let _ = self.next()?;
        }
        Ok(())
    }
}

fn refusal(refused: Refused) -> anyhow::Error {
    match refused {
        Refused::Busy => anyhow!("too many bytes are in flight at once"),
        Refused::NotConnected => anyhow!("no monitor has answered; are the monitors running?"),
        Refused::NoSuchPool => anyhow!("the pool was removed"),
        Refused::Unsupported => anyhow!("this cluster cannot do that"),
    }
}

impl Commands for Connection {
    fn command(&mut self, request: &Value) -> Result<Value> {
        Ok(self.commands.command(request.clone()).wait()?)
    }
}

/// Connects to the cluster of a folder or file.
///
/// # Errors
/// When its file is wrong.
pub fn connect(place: &Path, name: &str) -> Result<Box<dyn Session>> {
    Ok(Box::new(Connection {
        commands: Cluster::connect_as(place, name)?,
        data: Pipelined::connect_as(place, name)?,
        flying: BTreeMap::new(),
        ended: VecDeque::new(),
        unsent: false,
        polled: Vec::new(),
        heard: Vec::new(),
    }))
}

/// A client for service metadata under a name.
///
/// # Errors
/// When there is no cluster, or its file is wrong.
pub fn client(place: &Place, name: &str) -> Result<Cluster> {
    place.config()?;
    Ok(Cluster::connect_as(place.path(), name)?)
}

/// Makes a cluster in an empty folder.
///
/// # Errors
/// When the folder holds something.
pub fn init(dir: &Path, shape: &Shape) -> Result<()> {
    let Shape { mons, osds, base_port } = *shape;
    nacre_node::init(dir, &InitOptions { mons, osds, base_port, ..InitOptions::default() })?;
    Ok(())
}

/// Opens a log to write at its end; one of an earlier time that has grown large begins anew.
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
    File::options().create(true).append(true).open(path).with_context(|| format!("opening {}", path.display()))
}

/// Asks a cluster that may not answer yet, waiting for each answer so long at most.
///
/// # Errors
/// When its file is wrong.
pub fn ask_patiently(place: &Path, each: Duration) -> Result<Box<dyn Commands>> {
    struct Asker(Cluster);
    impl Commands for Asker {
        fn command(&mut self, request: &Value) -> Result<Value> {
            Ok(self.0.command(request.clone()).wait()?)
        }
    }
    Ok(Box::new(Asker(Cluster::connect(place)?.with_timeout(each))))
}

/// Starts a cluster's daemons in this process.
///
/// # Errors
/// When one does not start.
pub fn start(dir: &Path) -> Result<Box<dyn Running>> {
    let embedded = Arc::new(Embedded::start(dir, RunOptions::default())?);
    let log = open_log(&nacre_node::locks::run_folder(dir).join("up.log"))?;
    Ok(Box::new(Here { embedded, told: BTreeSet::new(), log: Some(log) }))
}

/// Runs one monitor until it is told to end.
///
/// # Errors
/// When it does not start, or stops by itself.
pub fn run_mon(config: &Path, id: u32) -> Result<()> {
    let config = Config::load(config)?;
    Ok(nacre_node::run_mon(&config, MonId(id), &RunOptions::default(), &mut |line| {
        eprintln!("{} {line}", crate::clock::now_utc())
    })?)
}

/// Runs one OSD until it is told to end.
///
/// # Errors
/// When it does not start, or stops by itself.
pub fn run_osd(config: &Path, id: u32) -> Result<()> {
    let config = Config::load(config)?;
    Ok(nacre_node::run_osd(&config, OsdId(id), &RunOptions::default(), &mut |line| {
        eprintln!("{} {line}", crate::clock::now_utc())
    })?)
}

/// Ctrl-C and the signal to end, watched from the moment this is made.
pub struct Ending(Signals);

impl Ending {
    /// Begins to watch.
    ///
    /// # Errors
    /// When signals cannot be watched.
    pub fn watch() -> Result<Self> {
        Ok(Self(Signals::new([SIGINT, SIGTERM]).context("watching for Ctrl-C")?))
    }
    /// Whether one has come since the last call.
    pub fn has_come(&mut self) -> bool {
        self.0.pending().next().is_some()
    }
    /// Waits for one, and tells the daemons' news meanwhile.
    pub fn wait(&mut self, daemons: &mut dyn Running) {
        while !self.has_come() {
            for line in daemons.news() {
                eprintln!("nacre: {line}");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}
