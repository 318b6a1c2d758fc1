//! The only place that knows how daemons and connections are made: everything else in this crate sees [`Session`] and [`Running`].
//!
//! A connection is a client of its own that is turned by the caller's thread (`nacre_node::Pipelined`), and beside it one for commands.

use super::{Commands, Session};
use crate::objects::{Ended, Failed, Objects};
use anyhow::{Context, Result, anyhow, bail};
use nacre_client::{Completion, Failure, OpId, Operation, Refused};
use nacre_node::{Cluster, Config, Embedded, InitOptions, Pipelined, RunOptions};
use nacre_types::{MonId, OsdId, PoolId};
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An operation without an answer for so long has an unknown end.
const OPERATION_MAX: Duration = Duration::from_secs(30);
/// For how long a first map, or a map with a pool just made, is waited for.
const MAP_MAX: Duration = Duration::from_secs(10);
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
    /// Stops everything in order.
    ///
    /// # Errors
    /// When something could not be written.
    fn stop(self: Box<Self>) -> Result<()>;
}

impl Running for Arc<Embedded> {
    fn kill_osd(&mut self, osd: u32) -> Result<()> {
        if !Embedded::kill_osd(self, OsdId(osd)) {
            bail!("osd.{osd} does not run here");
        }
        Ok(())
    }
    fn start_osd(&mut self, osd: u32) -> Result<()> {
        Ok(Embedded::start_osd(self, OsdId(osd))?)
    }
    fn stop(self: Box<Self>) -> Result<()> {
        let halted = self.halted();
        Embedded::stop(&self);
        match halted.first() {
            Some((who, why)) => bail!("{who} had stopped by itself: {why}"),
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

    /// Waits until the map knows the pool: it may have been made a moment ago.
    fn await_pool(&mut self, pool: PoolId) -> Result<u32> {
        let begun = Instant::now();
        loop {
            let map = self.data.client().map();
            if let Some(found) = map.and_then(|map| map.pools.get(&pool)) {
                return Ok(found.pg_num);
            }
            if begun.elapsed() > MAP_MAX {
                let known = map.is_some();
                bail!(if known {
                    "the pool was removed"
                } else {
                    "no monitor has answered; are the monitors running?"
                });
            }
            self.turn();
        }
    }
}

impl Objects for Connection {
    fn begin(&mut self, operation: Operation) -> Result<OpId> {
        self.await_pool(operation.pool)?;
        while self.flying.len() >= IN_FLIGHT_MAX {
            self.turn();
        }
        let id = self.data.submit(operation).map_err(|refused| match refused {
            Refused::Busy => anyhow!("too many bytes are in flight at once"),
            Refused::NotConnected => anyhow!("no monitor has answered; are the monitors running?"),
            Refused::NoSuchPool => anyhow!("the pool was removed"),
        })?;
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
pub fn connect(place: &Path) -> Result<Box<dyn Session>> {
    Ok(Box::new(Connection {
        commands: Cluster::connect(place)?,
        data: Pipelined::connect(place)?,
        flying: BTreeMap::new(),
        ended: VecDeque::new(),
        unsent: false,
        polled: Vec::new(),
    }))
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

/// Starts a cluster's daemons in this process.
///
/// # Errors
/// When one does not start.
pub fn start(dir: &Path) -> Result<Box<dyn Running>> {
    Ok(Box::new(Arc::new(Embedded::start(dir, RunOptions::default())?)))
}

/// Runs one monitor until it is told to end.
///
/// # Errors
/// When it does not start, or stops by itself.
pub fn run_mon(config: &Path, id: u32) -> Result<()> {
    let config = Config::load(config)?;
    Ok(nacre_node::run_mon(&config, MonId(id), &RunOptions::default(), &mut |line| eprintln!("{line}"))?)
}

/// Runs one OSD until it is told to end.
///
/// # Errors
/// When it does not start, or stops by itself.
pub fn run_osd(config: &Path, id: u32) -> Result<()> {
    let config = Config::load(config)?;
    Ok(nacre_node::run_osd(&config, OsdId(id), &RunOptions::default(), &mut |line| eprintln!("{line}"))?)
}

/// Waits for Ctrl-C or the signal to end.
///
/// # Errors
/// When signals cannot be watched.
pub fn wait_for_signal() -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).context("watching for Ctrl-C")?;
    signals.forever().next();
    Ok(())
}
