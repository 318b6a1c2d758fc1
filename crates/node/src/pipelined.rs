//! Operations without another thread: the caller's thread runs the reactor. For benchmarks, and for
//! programs with their own event loop.

use crate::any_role::AnyRole;
use crate::clock;
use crate::config::Config;
use crate::conn::Traffic;
use crate::daemon::{self, RunOptions};
use crate::error::StartError;
use crate::locks::Lock;
use crate::reactor::Reactor;
use bytes::Bytes;
use nacre_client::{
    Client, Completion, Driven, ObjectCluster, OpId, Operation, Refused, WatchError, WatchEvent,
    WatchId,
};
use nacre_types::{Entity, ObjectId, PoolId};
use nacre_wire::msg::client::RequestId;
use std::path::Path;
use std::time::Duration;

/// See the module head.
pub struct Pipelined {
    reactor: Reactor,
    me: Entity,
    cpu_at_start: u64,
    _lock: Option<Lock>,
}

/// Activations of a class, as known in one process.
#[derive(Clone, Debug, Default)]
pub struct ProgramsHere {
    /// The newest that a monitor here has committed; 0: none.
    pub committed: u64,
    /// The one that each OSD here can run; 0: none.
    pub live: Vec<(nacre_types::OsdId, u64)>,
}

impl Pipelined {
    /// A client over the network.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, StartError> {
        Self::connect_as(path, crate::cluster::ADMIN)
    }

    /// The same under another name, which determines its rights in the cluster.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_as(path: impl AsRef<Path>, name: &str) -> Result<Self, StartError> {
        let config = Config::load(path.as_ref())?;
        let mut reactor = daemon::reactor(&config, daemon::waker()?, 0)?;
        let me = daemon::add_client(&mut reactor, None, name)?;
        Ok(Self {
            reactor,
            me,
            cpu_at_start: clock::cpu_ns(),
            _lock: None,
        })
    }

    /// All daemons of the directory and the client, on the caller's thread: they run only inside
    /// [`Self::poll`].
    ///
    /// # Errors
    /// [`StartError`].
    pub fn embedded(dir: impl AsRef<Path>, options: &RunOptions) -> Result<Self, StartError> {
        let config = Config::load(dir.as_ref())?;
        let lock = Lock::whole(&config)?;
        let mut reactor = daemon::reactor(
            &config,
            daemon::waker()?,
            config.mons.len() + config.osds.len(),
        )?;
        for id in config.mons.keys() {
            daemon::add_mon(&mut reactor, &config, *id, options)?;
        }
        for id in config.osds.keys() {
            daemon::add_osd(&mut reactor, &config, *id, options)?;
        }
        let me = daemon::add_client(&mut reactor, None, crate::cluster::ADMIN)?;
        Ok(Self {
            reactor,
            me,
            cpu_at_start: clock::cpu_ns(),
            _lock: Some(lock),
        })
    }

    /// The client role: its map and blocked operations.
    ///
    /// # Panics
    /// Never: the client exists as long as this.
    pub fn client(&mut self) -> &mut Client {
        match self.reactor.node_mut(self.me).map(|node| &mut node.role) {
            Some(AnyRole::Client(access)) => &mut access.client,
            _ => unreachable!("it was added and is never removed"),
        }
    }

    /// The activations of a class known to the daemons here: for measuring how soon it is active.
    #[must_use]
    pub fn programs(&self, class: &str) -> ProgramsHere {
        let name = nacre_types::Name::from(class);
        let id = (nacre_wire::map::ProgramKind::Class {}, name.clone());
        let mut here = ProgramsHere::default();
        for entity in self.reactor.entities() {
            let Some(node) = self.reactor.node(entity) else {
                continue;
            };
            match &node.role {
                AnyRole::Mon(mon) => {
                    let activation = mon
                        .map()
                        .programs
                        .get(&id)
                        .map_or(0, |program| program.activation);
                    here.committed = here.committed.max(activation);
                }
                AnyRole::Osd(osd) => {
                    let live = osd.programs().live().find(|(live, _)| **live == name);
                    here.live
                        .push((osd.id(), live.map_or(0, |(_, activation)| activation)));
                }
                AnyRole::Client(_) | AnyRole::Service(_) | AnyRole::Mds(_) => {}
            }
        }
        here
    }

    /// Begins an operation; it is sent by the next [`Self::poll`], together with all others begun
    /// until then.
    ///
    /// # Errors
    /// [`Refused`]: poll first.
    pub fn submit(&mut self, operation: Operation) -> Result<OpId, Refused> {
        let now = clock::now();
        // Without this the next turn would sleep: it does not know of the operation yet.
        self.reactor.waker().wake();
        self.client().submit(now, operation)
    }

    /// One wake-up: waits at most `max` if nothing is ready; appends completions.
    pub fn poll(&mut self, max: Duration, into: &mut Vec<Completion>) {
        self.reactor.turn(max);
        self.client().completions(into);
    }

    /// Operations with [`nacre_wire::msg::client::op_flag::ACK`] that were applied in memory on the
    /// whole acting set since the last call; see [`ObjectCluster::acks`].
    pub fn acks(&mut self, into: &mut Vec<OpId>) {
        self.client().acks(into);
    }

    /// See [`ObjectCluster::watch`]; it is sent by the next [`Self::poll`].
    ///
    /// # Errors
    /// [`Refused`]: poll first.
    pub fn watch(
        &mut self,
        pool: PoolId,
        object: ObjectId,
        timeout: Duration,
    ) -> Result<WatchId, Refused> {
        self.reactor.waker().wake();
        self.client().watch(clock::now(), pool, object, timeout)
    }

    /// See [`ObjectCluster::unwatch`].
    ///
    /// # Errors
    /// [`Refused`]: poll first.
    pub fn unwatch(&mut self, watch: WatchId) -> Result<Option<OpId>, Refused> {
        self.reactor.waker().wake();
        self.client().unwatch(clock::now(), watch)
    }

    /// See [`ObjectCluster::watch_events`].
    pub fn watch_events(&mut self, into: &mut Vec<WatchEvent>) {
        self.client().watch_events(into);
    }

    /// See [`ObjectCluster::ack_notify`]; it is sent by the next [`Self::poll`].
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn ack_notify(
        &mut self,
        watch: WatchId,
        notify: RequestId,
        reply: Bytes,
    ) -> Result<(), WatchError> {
        self.reactor.waker().wake();
        self.client().ack_notify(clock::now(), watch, notify, reply)
    }

    /// Daemons that stopped, and why.
    #[must_use]
    pub fn halted(&self) -> Vec<(Entity, String)> {
        self.reactor.halted()
    }

    /// Processor time of this process since this was created, all threads, in nanoseconds.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        clock::cpu_ns() - self.cpu_at_start
    }

    /// Work done by connections, and wake-ups.
    #[must_use]
    pub fn traffic(&self) -> (Traffic, u64) {
        (self.reactor.traffic(), self.reactor.turns())
    }
}

impl Driven for Pipelined {
    fn objects(&mut self) -> &mut dyn ObjectCluster {
        // Without this the next turn would sleep: it does not know of the call yet.
        self.reactor.waker().wake();
        self.client()
    }
    fn now(&self) -> nacre_types::Time {
        clock::now()
    }
    fn identity(&mut self) -> Option<(nacre_types::ClientId, nacre_types::Instance)> {
        let client = self.client();
        Some((client.id(), client.instance()))
    }
    fn turn(&mut self, max: Duration) {
        self.reactor.turn(max);
    }
    fn completions(&mut self, into: &mut Vec<Completion>) {
        self.client().completions(into);
    }
    fn watch_events(&mut self, into: &mut Vec<WatchEvent>) {
        self.client().watch_events(into);
    }
    fn abandon(&mut self, id: OpId) {
        self.client().abandon(id);
    }
    fn waits(&mut self) -> Vec<String> {
        let now = clock::now();
        let blocked = self.client().blocked(now, Duration::ZERO);
        blocked
            .into_iter()
            .map(|one| {
                format!(
                    "{} for {:?}: {}",
                    one.id.0,
                    now.since(one.since),
                    one.reason
                )
            })
            .collect()
    }
    fn groups(&mut self, pool: PoolId) -> Option<u32> {
        Some(self.client().map()?.pools.get(&pool)?.pg_num)
    }
    fn is_connected(&mut self) -> bool {
        self.client().map().is_some()
    }
    fn epoch(&mut self) -> u64 {
        self.client().epoch().0
    }
    fn stopped(&mut self) -> Option<String> {
        self.halted()
            .first()
            .map(|(who, why)| format!("{who} can go on no longer: {why}"))
    }
}
