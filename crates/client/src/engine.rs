//! A service beside another engine's client: no monitors, maps or OSDs of ours (ADR 0006).
//!
//! ```text
//!            ┌──────────────── Beside ────────────────┐
//!            │ Engine ┬─ ObjectCluster ─┐              │
//!  Ceph  ◀──▶│        └─ Metadata ──────┤ Service      │◀──▶ the service's own peers
//!            └───── wake ─▶ host ───────┴──────────────┘
//! ```
//! The engine has threads of its own. What they have to say waits until the service has a turn;
//! they wake the service's host, which gives it one.
//!
//! Invariants: as of [`crate::Served`]: a service has a turn after something has come, and another
//! one while something ended in it as it was begun.

use crate::cluster::ObjectCluster;
use crate::metadata::Metadata;
use crate::service::{Served, Service};
use nacre_role::{Input, Output, Role};
use nacre_types::{ClientId, ClusterId, Entity, Epoch, Instance, Time};
use nacre_wire::ClusterMap;
use std::sync::Arc;

/// Tells a service's host, from any thread, that its engine has something to say.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// What a service works on where there are no monitors of ours, and what makes it go.
pub trait Engine {
    /// Whether its threads have said something that [`Self::listen`] has not taken yet. Cheap.
    fn is_ready(&self) -> bool;
    /// Takes what its threads have said, so that objects and metadata have it.
    fn listen(&mut self);
    /// What the service works on.
    fn parts(&mut self) -> (&mut dyn ObjectCluster, &mut dyn Metadata);
    /// How many things have ended so far.
    fn ended(&self) -> u64;
    /// Which instance of its client it is at the objects.
    fn instance(&self) -> Instance;
    /// Goes on as a later instance. What the former one has in flight ends as
    /// [`crate::Failure::Unknown`]; metadata go on.
    fn begin_again(&mut self, instance: Instance);
    /// The newest map of the engine that this client has rested something on; peers that hear it
    /// rest on it, too ([`ObjectCluster::rest_on`]).
    fn epoch(&self) -> Epoch;
    /// Takes its lines for people.
    fn said(&mut self) -> Vec<String>;
}

/// Another engine, as hosts of services know it. Connections are made by threads of its own: until
/// there is one, services are refused for the moment.
pub trait Engines: Send + Sync {
    /// Which cluster it is: peers of another one are not talked to.
    fn cluster(&self) -> ClusterId;
    /// By which address of this machine the cluster is reached: servers listen there.
    fn host(&self) -> &str;
    /// A client of its own for a service.
    fn open(&self, client: ClientId, instance: Instance, wake: Wake) -> Box<dyn Engine + Send>;
}

/// A service as a role. See the module head.
pub struct Beside<S> {
    /// The service itself.
    pub service: S,
    engine: Box<dyn Engine + Send>,
    /// Something ended as it was begun, after the service had taken what there was.
    again: bool,
}

impl<S: Service> Beside<S> {
    /// A service that works on this engine.
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
        // There are no monitors and OSDs of ours: who says so is wrong.
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
    /// On ours.
    Ours(Served<S>),
    /// On another one.
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
    /// Which instance of its client it is, for handshakes: see [`Served::instance`].
    #[must_use]
    pub fn instance(&self) -> Instance {
        match self {
            Self::Ours(served) => served.instance(),
            Self::Other(beside) => beside.engine.instance(),
        }
    }
    /// Whether it works with monitors of ours at all.
    #[must_use]
    pub const fn has_monitors(&self) -> bool {
        matches!(self, Self::Ours(_))
    }
    /// Whether callers of its own, or its engine, have left something for it.
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
