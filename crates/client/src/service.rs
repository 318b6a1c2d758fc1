//! A service on the substrate, and what makes it a role of our own engine (ADR 0006).
//!
//! ```text
//!            ┌──────────────── Served ────────────────┐
//!  OSDs  ◀──▶│ Client      ◀─ ObjectCluster ─┐         │
//!  mons  ◀──▶│ MetaClient  ◀─ Metadata ──────┤ Service │◀──▶ the service's own peers
//!            └────────────────────────────────┴────────┘
//! ```
//! A service knows objects and metadata by their traits, and its peers by messages; of OSDs,
//! monitors and maps it hears nothing. So the same service runs beside another engine's client.
//!
//! A server is a client that listens: [`Entity::Client`]. Where a peer listens is the service's to
//! know, from its metadata, and to tell its host ([`Output::Meet`]).
//!
//! A service whose instance was fenced goes on as a later one of the same client: it says so
//! ([`Service::instance`]), and its objects' client becomes that instance after the turn. The host
//! sees it ([`Served::instance`]), and opens new connections in that instance's name.
//!
//! Invariants: a service has a turn after all that its objects and metadata had to say has come,
//! and another one while they have more; what it submits leaves with the turn. What an instance had
//! in flight when it ended is told to the service as [`crate::Failure::Unknown`]; nothing of it is
//! sent in the next one's name.

use crate::cluster::ObjectCluster;
use crate::meta::MetaClient;
use crate::metadata::Metadata;
use crate::role::{Client, ClientConfig};
use nacre_role::{Input, Output, Role};
use nacre_types::{Entity, Epoch, Instance, Time};
use nacre_wire::{ClusterMap, Message};

/// A pure state machine that works on objects and metadata. See the module head.
pub trait Service {
    /// Takes inputs in order: messages and connections of peers, who are clients all, jobs that
    /// have run, [`Input::Tick`], [`Input::Stopping`]. Takes what objects and metadata have to
    /// say, begins more there, and adds what else is to be done to `out`.
    ///
    /// What is refused for the moment ([`crate::Refused::Busy`], [`crate::Refused::NotConnected`],
    /// [`crate::Refused::NoSuchPool`] of a pool that exists: the map may be older) is tried again
    /// in a later turn; there is one when something has ended or a map has come.
    fn on_turn(
        &mut self,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        objects: &mut dyn ObjectCluster,
        metadata: &mut dyn Metadata,
        out: &mut Vec<Output>,
    );

    /// When it next wants a turn; [`Time::MAX`]: not before something has come.
    fn next_deadline(&self) -> Time;

    /// Whether callers of its own have left something for it: asked when its host wakes up.
    fn has_calls(&self) -> bool {
        false
    }

    /// Whether it was told to stop and has something to say before it does: its host gives it turns
    /// until then.
    fn is_leaving(&self) -> bool {
        false
    }

    /// Which instance of its client it acts as: looked at after each turn. A larger one than before
    /// ends the former one at the objects; requests about metadata and watches of it go on.
    /// `None`: always the one that it was made as.
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
    /// What is the service's, of the turn's inputs.
    own: Vec<Input>,
}

impl<S: Service> Served<S> {
    /// A service that is this client of the cluster; asks for the map.
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

    /// Which instance of the client this is, for handshakes. Once it is another one, connections
    /// that were opened in the former one's name are to be closed.
    #[must_use]
    pub const fn instance(&self) -> Instance {
        self.client.instance()
    }

    /// Gives the substrate's inputs to the substrate's clients, and keeps the service's.
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
            // They are in the map, and said to be down there.
            Input::Absent(Entity::Mon(_) | Entity::Osd(_)) => {}
            Input::Tick => {
                self.metadata.on_tick(now);
                // The tick may be the service's: each would ask for the map again.
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

    /// Whether something ended as it was begun, after the service had taken what there was.
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
