//! A service on the object store, and how it becomes a role on Nacre's own engine (ADR 0006).
//!
//! ```text
//!            ┌──────────────── Served ────────────────┐
//!  OSDs  ◀──▶│ Client      ◀─ ObjectCluster ─┐         │
//!  mons  ◀──▶│ MetaClient  ◀─ Metadata ──────┤ Service │◀──▶ the service's own peers
//!            └────────────────────────────────┴────────┘
//! ```
//! A service knows objects and metadata by their traits, and its peers by messages; it does not
//! know OSDs, monitors or maps. So the same service also runs on another engine's client.
//!
//! A server is a client that listens: [`Entity::Client`]. The service finds the addresses of its
//! peers in its metadata and tells them to its host ([`Output::Meet`]).
//!
//! A service whose instance was fenced continues as a later instance of the same client:
//! [`Service::instance`] returns the new one, and its object client becomes that instance after the
//! turn. The host notices ([`Served::instance`]) and opens new connections as that instance.
//!
//! Invariants: a service has a turn after the results of its objects and metadata have arrived, and
//! another one while there are more; what it submits is sent in the same turn. Operations in flight
//! when an instance ends are reported to the service as [`crate::Failure::Unknown`]; none of them
//! is sent as the next instance.

use crate::cluster::ObjectCluster;
use crate::meta::MetaClient;
use crate::metadata::Metadata;
use crate::role::{Client, ClientConfig};
use nacre_role::{Input, Output, Role};
use nacre_types::{Entity, Epoch, Instance, Time};
use nacre_wire::{ClusterMap, Message};

/// A pure state machine that works on objects and metadata. See the module head.
pub trait Service {
    /// Handles inputs in order: messages and connections of peers (all of them clients), finished
    /// jobs, [`Input::Tick`], [`Input::Stopping`]. Takes the results of objects and metadata,
    /// begins new requests there, and adds other actions to `out`.
    ///
    /// What is refused for the moment ([`crate::Refused::Busy`], [`crate::Refused::NotConnected`],
    /// [`crate::Refused::NoSuchPool`] for a pool that exists, because the map may be older) is
    /// retried in a later turn; there is one when something has ended or a map has arrived.
    fn on_turn(
        &mut self,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        objects: &mut dyn ObjectCluster,
        metadata: &mut dyn Metadata,
        out: &mut Vec<Output>,
    );

    /// When it next wants a turn; [`Time::MAX`]: not before something arrives.
    fn next_deadline(&self) -> Time;

    /// Whether its own callers have left something for it: asked when its host wakes up.
    fn has_calls(&self) -> bool {
        false
    }

    /// Whether it was told to stop and still has something to send: its host gives it turns until
    /// then.
    fn is_leaving(&self) -> bool {
        false
    }

    /// The instance of its client that it acts as; read after each turn. A larger one than before
    /// ends the former one at the object store; its metadata requests and watches continue. `None`:
    /// always the instance that it was created as.
    fn instance(&self) -> Option<Instance> {
        None
    }
}

impl<S: Service + ?Sized> Service for Box<S> {
    fn on_turn(
        &mut self,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        objects: &mut dyn ObjectCluster,
        metadata: &mut dyn Metadata,
        out: &mut Vec<Output>,
    ) {
        (**self).on_turn(now, inputs, objects, metadata, out);
    }
    fn next_deadline(&self) -> Time {
        (**self).next_deadline()
    }
    fn has_calls(&self) -> bool {
        (**self).has_calls()
    }
    fn is_leaving(&self) -> bool {
        (**self).is_leaving()
    }
    fn instance(&self) -> Option<Instance> {
        (**self).instance()
    }
}

/// A service as a role. See the module head.
#[derive(Debug)]
pub struct Served<S> {
    /// The service itself.
    pub service: S,
    client: Client,
    metadata: MetaClient,
    /// The service's own inputs of the turn.
    own: Vec<Input>,
}

impl<S: Service> Served<S> {
    /// Makes a service a client of the cluster; asks for the map.
    #[must_use]
    pub fn new(service: S, config: ClientConfig, now: Time) -> Self {
        let metadata = MetaClient::new(config.instance);
        Self {
            service,
            client: Client::new(config, now),
            metadata,
            own: Vec::new(),
        }
    }

    /// The instance of the client, for handshakes. After it changes, connections opened as the
    /// former one must be closed.
    #[must_use]
    pub const fn instance(&self) -> Instance {
        self.client.instance()
    }

    /// Passes the cluster's inputs to the internal clients, and collects the service's.
    fn sort(&mut self, now: Time, input: Input) {
        match input {
            Input::Message {
                from: from @ (Entity::Mon(_) | Entity::Osd(_)),
                epoch,
                message,
            } => {
                self.on_substrate(now, from, epoch, message);
            }
            Input::MonSession => {
                self.metadata.on_session(now);
                self.client.on_mon_session(now);
            }
            Input::Gone(Entity::Mon(_)) => self.metadata.on_session_lost(),
            Input::Gone(Entity::Osd(osd)) => self.client.on_peer_reset(now, osd),
            // The map shows them as down.
            Input::Absent(Entity::Mon(_) | Entity::Osd(_)) => {}
            Input::Tick => {
                self.metadata.on_tick(now);
                // The tick may be for the service: the client must not ask for the map each time.
                if self.client.next_deadline() <= now {
                    self.client.on_tick(now);
                }
                self.own.push(Input::Tick);
            }
            Input::Message {
                from: Entity::Client(_),
                ..
            }
            | Input::Gone(Entity::Client(_))
            | Input::Absent(Entity::Client(_))
            | Input::Named(..)
            | Input::Store(_)
            | Input::Device(_)
            | Input::Done(_)
            | Input::Stopping => self.own.push(input),
        }
    }

    fn on_substrate(&mut self, now: Time, from: Entity, epoch: Epoch, message: Message) {
        if !self.metadata.on_message(now, from, &message) {
            self.client.on_message(now, from, epoch, message);
        }
    }

    /// Whether something ended as soon as it was begun, after the service had taken its results.
    fn has_more(&self) -> bool {
        self.client.has_more() || self.metadata.has_more()
    }
}

impl<S: Service> Role for Served<S> {
    fn on_turn(
        &mut self,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        out: &mut Vec<Output>,
    ) {
        for input in inputs {
            self.sort(now, input);
        }
        let mut own = std::mem::take(&mut self.own);
        self.service.on_turn(
            now,
            &mut own.drain(..),
            &mut self.client,
            &mut self.metadata,
            out,
        );
        self.own = own;
        if let Some(instance) = self
            .service
            .instance()
            .filter(|instance| *instance > self.client.instance())
        {
            self.client.begin_again(now, instance);
        }
        self.client.take_outputs(out);
        let mut messages = Vec::new();
        self.metadata.take_outputs(&mut messages);
        out.extend(
            messages
                .into_iter()
                .map(|message| Output::SendMon { message }),
        );
    }
    fn next_deadline(&self) -> Time {
        if self.has_more() {
            return Time::ZERO;
        }
        self.service
            .next_deadline()
            .min(self.client.next_deadline())
            .min(self.metadata.next_deadline())
    }
    fn map(&self) -> Option<&ClusterMap> {
        self.client.map()
    }
}
