//! A service on another engine's client, without Nacre's monitors, maps or OSDs (ADR 0006).
//!
//! ```text
//!            ┌──────────────── Beside ────────────────┐
//!            │ Engine ┬─ ObjectCluster ─┐              │
//!  Ceph  ◀──▶│        └─ Metadata ──────┤ Service      │◀──▶ the service's own peers
//!            └───── wake ─▶ host ───────┴──────────────┘
//! ```
//! The engine has threads of its own. Their results wait for the service's next turn; the threads
//! wake the service's host, which starts one.
//!
//! Invariants: as for [`crate::Served`]: a service has a turn after something has arrived, and
//! another one if an operation ended as soon as it was begun.

use crate::cluster::ObjectCluster;
use crate::metadata::Metadata;
use crate::service::{Served, Service};
use nacre_role::{Input, Output, Role};
use nacre_types::{ClientId, ClusterId, Entity, Epoch, Instance, Time};
use nacre_wire::ClusterMap;
use std::sync::Arc;

/// Tells a service's host, from any thread, that its engine has results.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// The engine that a service works on when there are no Nacre monitors, and its driver.
pub trait Engine {
    /// Whether its threads have produced something that [`Self::listen`] has not taken yet. Cheap.
    fn is_ready(&self) -> bool;
    /// Takes what its threads have produced, for objects and metadata.
    fn listen(&mut self);
    /// The interfaces that the service works on.
    fn parts(&mut self) -> (&mut dyn ObjectCluster, &mut dyn Metadata);
    /// How many operations have ended so far.
    fn ended(&self) -> u64;
    /// The instance of its client towards the object store.
    fn instance(&self) -> Instance;
    /// Continues as a later instance. Operations in flight of the former one end as
    /// [`crate::Failure::Unknown`]; metadata requests continue.
    fn begin_again(&mut self, instance: Instance);
    /// The newest map of the engine that this client depends on; peers that receive it depend on
    /// it, too ([`ObjectCluster::rest_on`]).
    fn epoch(&self) -> Epoch;
    /// Takes its human-readable log lines.
    fn said(&mut self) -> Vec<String>;
}

/// Another engine, as known to hosts of services. Its own threads connect; until they have,
/// services are refused for the moment.
pub trait Engines: Send + Sync {
    /// The cluster's identity: peers of other clusters are refused.
    fn cluster(&self) -> ClusterId;
    /// The address of this machine from which the cluster is reached: servers listen there.
    fn host(&self) -> &str;
    /// Opens a client for one service.
    fn open(&self, client: ClientId, instance: Instance, wake: Wake) -> Box<dyn Engine + Send>;
}

/// A service as a role. See the module head.
pub struct Beside<S> {
    /// The service itself.
    pub service: S,
    engine: Box<dyn Engine + Send>,
    /// An operation ended as soon as it was begun, after the service had taken its results.
    again: bool,
}

impl<S: Service> Beside<S> {
    /// Wraps a service that works on this engine.
    #[must_use]
    pub fn new(service: S, engine: Box<dyn Engine + Send>) -> Self {
        Self {
            service,
            engine,
            again: false,
        }
    }
}

impl<S: Service> Role for Beside<S> {
    fn on_turn(
        &mut self,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        out: &mut Vec<Output>,
    ) {
        self.engine.listen();
        let ended = self.engine.ended();
        let (objects, metadata) = self.engine.parts();
        // There are no Nacre monitors and OSDs here: a peer that claims to be one is wrong.
        let mut own = inputs.filter(|input| match input {
            Input::Message { from, .. } | Input::Gone(from) | Input::Absent(from) => {
                matches!(from, Entity::Client(_))
            }
            Input::MonSession => false,
            _ => true,
        });
        self.service.on_turn(now, &mut own, objects, metadata, out);
        if let Some(instance) = self
            .service
            .instance()
            .filter(|instance| *instance > self.engine.instance())
        {
            self.engine.begin_again(instance);
        }
        self.again = self.engine.ended() != ended;
        out.extend(self.engine.said().into_iter().map(Output::Say));
    }
    fn next_deadline(&self) -> Time {
        if self.again || self.engine.is_ready() {
            Time::ZERO
        } else {
            self.service.next_deadline()
        }
    }
    fn map(&self) -> Option<&ClusterMap> {
        None
    }
    fn epoch(&self) -> Epoch {
        self.engine.epoch()
    }
}

/// A service on any engine.
#[allow(clippy::large_enum_variant, reason = "hosts keep it in a box")]
pub enum Placed<S> {
    /// On Nacre's own engine.
    Ours(Served<S>),
    /// On another engine.
    Other(Beside<S>),
}

impl<S: Service> Placed<S> {
    /// The service itself.
    pub const fn service(&self) -> &S {
        match self {
            Self::Ours(served) => &served.service,
            Self::Other(beside) => &beside.service,
        }
    }
    /// The instance of its client, for handshakes: see [`Served::instance`].
    #[must_use]
    pub fn instance(&self) -> Instance {
        match self {
            Self::Ours(served) => served.instance(),
            Self::Other(beside) => beside.engine.instance(),
        }
    }
    /// Whether it works with Nacre's monitors.
    #[must_use]
    pub const fn has_monitors(&self) -> bool {
        matches!(self, Self::Ours(_))
    }
    /// Whether callers of the service, or its engine, have left something for it.
    #[must_use]
    pub fn has_calls(&self) -> bool {
        match self {
            Self::Ours(served) => served.service.has_calls(),
            Self::Other(beside) => beside.engine.is_ready() || beside.service.has_calls(),
        }
    }
    /// See [`Service::is_leaving`].
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.service().is_leaving()
    }
    fn role(&self) -> &dyn Role {
        match self {
            Self::Ours(served) => served,
            Self::Other(beside) => beside,
        }
    }
}

impl<S: Service> Role for Placed<S> {
    fn on_turn(
        &mut self,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        out: &mut Vec<Output>,
    ) {
        match self {
            Self::Ours(served) => served.on_turn(now, inputs, out),
            Self::Other(beside) => beside.on_turn(now, inputs, out),
        }
    }
    fn next_deadline(&self) -> Time {
        self.role().next_deadline()
    }
    fn map(&self) -> Option<&ClusterMap> {
        self.role().map()
    }
    fn epoch(&self) -> Epoch {
        self.role().epoch()
    }
}
