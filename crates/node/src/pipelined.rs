//! A client without another thread: the caller's thread runs the reactor. For the command line,
//! benchmarks, and programs with their own event loop.
//!
//! Operations may be begun many at a time and their results taken together. All calls of
//! [`Cluster`] can be made with [`Pipelined::wait`]: both are one client, with one session.

use crate::access::{Access, Port};
use crate::any_role::AnyRole;
use crate::clock;
use crate::cluster::{Call, Cluster};
use crate::config::Config;
use crate::conn::Traffic;
use crate::daemon::{self, RunOptions};
use crate::error::{Error, StartError};
use crate::locks::Lock;
use crate::reactor::Reactor;
use nacre_client::{
    Client, Completion, Driven, ObjectCluster, OpId, Operation, Refused, WatchEvent,
};
use nacre_types::{Entity, PoolId};
use std::future::Future as _;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// See the module head. The other operations of an [`ObjectCluster`] are those of
/// [`Driven::objects`].
pub struct Pipelined {
    reactor: Reactor,
    me: Entity,
    cluster: Cluster,
    _lock: Option<Lock>,
}

/// Longest turn of [`Pipelined::wait`]; it ends sooner when something happens.
const TURN_MAX: Duration = Duration::from_secs(1);

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
    /// [`Error::Start`]: the file cannot be used.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::connect_as(path, crate::cluster::ADMIN)
    }

    /// The same under another name, which determines its rights in the cluster.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_as(path: impl AsRef<Path>, name: &str) -> Result<Self, Error> {
        crate::cluster::check_name(name)?;
        let config = Config::load(path.as_ref())?;
        let reactor = daemon::reactor(&config, daemon::waker()?, 0)?;
        Ok(Self::with_client(reactor, name, None)?)
    }

    fn with_client(
        mut reactor: Reactor,
        name: &str,
        lock: Option<Lock>,
    ) -> Result<Self, StartError> {
        let port = Port::new(reactor.waker().clone());
        let me = daemon::add_client(&mut reactor, port.clone(), name)?;
        Ok(Self {
            reactor,
            me,
            cluster: Cluster::driven(port),
            _lock: lock,
        })
    }

    /// All daemons of the directory and the client, on the caller's thread: they run only inside
    /// [`Self::poll`].
    ///
    /// # Errors
    /// [`Error::Start`].
    pub fn embedded(dir: impl AsRef<Path>, options: &RunOptions) -> Result<Self, Error> {
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
        let admin = crate::cluster::ADMIN;
        Ok(Self::with_client(reactor, admin, Some(lock))?)
    }

    /// The same client as a facade. Its calls make progress only inside [`Self::wait`] and
    /// [`Self::poll`]: do not wait for them otherwise.
    #[must_use]
    pub fn cluster(&self) -> Cluster {
        self.cluster.clone()
    }

    /// Runs the reactor until a call of [`Self::cluster`] ends.
    ///
    /// # Errors
    /// The call's own.
    pub fn wait<T>(&mut self, mut call: Call<'_, T>) -> Result<T, Error> {
        // A session that broke since the last turn must be noticed before anything is sent on it.
        self.reactor.turn(Duration::ZERO);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(answer) = Pin::new(&mut call).poll(&mut context) {
                return answer;
            }
            self.reactor.turn(TURN_MAX);
        }
    }

    /// The client role: its map and blocked operations.
    pub fn client(&mut self) -> &mut Client {
        &mut self.access().client
    }

    fn access(&mut self) -> &mut Access {
        match self.reactor.node_mut(self.me).map(|node| &mut node.role) {
            Some(AnyRole::Client(access)) => access,
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
        self.access().completions(into);
    }

    /// Daemons that stopped, and why.
    #[must_use]
    pub fn halted(&self) -> Vec<(Entity, String)> {
        self.reactor.halted()
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
        self.access().completions(into);
    }
    fn watch_events(&mut self, into: &mut Vec<WatchEvent>) {
        self.access().watch_events(into);
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
        Some(self.access().usable_map()?.pools.get(&pool)?.pg_num)
    }
    fn is_connected(&mut self) -> bool {
        self.access().usable_map().is_some()
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
