//! Fences of other clients, and operations that depend on others' fences.

use super::{Ceph, Event};
use crate::instances::{self, Record};
use crate::meta::MetaStore;
use nacre_client::{Done, Failure, OpId, Operation, Refused};
use nacre_types::{ClientId, Epoch, Instance, Version};
use nacre_wire::Payload;
use std::time::{SystemTime, UNIX_EPOCH};

/// The maps that this client has, as far as it knows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Maps {
    /// It has this one, or a newer one.
    known: u64,
    /// New operations depend on this one.
    wanted: u64,
    /// It waits for a newer one.
    asking: bool,
}

/// A client that can be fenced.
pub(super) struct Identity {
    client: ClientId,
    record: Record,
}
/// A client of a command has a single instance.
const INSTANCE: Instance = Instance(1);

impl Ceph {
    /// This client's identity; its address is registered from now on.
    pub(super) fn identify(&mut self) -> Option<(ClientId, Instance)> {
        if self.identity.is_none() {
            let address = self.rados.addresses().ok()?;
            // An address, combined with its registration time, belongs to one client only.
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_nanos();
            let hash = blake3::hash(format!("{address} {now}").as_bytes());
            let client = ClientId(u64::from_le_bytes(
                hash.as_bytes()[..8].try_into().expect("eight bytes"),
            ));
            let mut store = MetaStore::connect(self.rados.clone(), instances::WHO).quiet();
            let record = instances::come(&mut store, client, INSTANCE, &address).ok()??;
            self.identity = Some(Identity { client, record });
        }
        self.identity
            .as_ref()
            .map(|identity| (identity.client, INSTANCE))
    }
    /// A client that leaves with nothing in flight needs no fence any more.
    pub(super) fn leave(&mut self) {
        if let Some(Identity { client, record }) = self.identity.take().filter(|_| self.is_idle()) {
            let mut store = MetaStore::connect(self.rados.clone(), instances::WHO).quiet();
            // A remaining entry does no harm.
            let _ = store.call(&instances::gone(client, INSTANCE, record));
        }
    }

    /// The newest map that operations here depend on.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.maps.known)
    }
    /// The client has this map, or a newer one.
    pub fn has_map(&mut self, epoch: u64) {
        self.maps.known = self.maps.known.max(epoch);
    }

    pub(super) fn begin_fence(
        &mut self,
        client: ClientId,
        instance: Instance,
    ) -> Result<OpId, Refused> {
        if !self.rados.knows_addresses() {
            return Err(Refused::Unsupported);
        }
        let id = self.admit(Operation::default())?;
        let (rados, queue) = (self.rados.clone(), self.queue.clone());
        self.workers.run(Box::new(move || {
            queue.push(Event::Fenced(
                id,
                instances::fence(&rados, client, instance),
            ));
        }));
        Ok(OpId(id))
    }
    pub(super) fn fenced(&mut self, id: u64, result: Result<u64, Failure>) {
        if let Ok(epoch) = result {
            self.maps.known = self.maps.known.max(epoch);
        }
        let done = Done {
            version: Version::default(),
            results: Vec::new(),
            payload: Payload::new(),
        };
        self.end(id, result.map(|_| done));
    }

    pub(super) fn begin_to_rest_on(&mut self, epoch: Epoch) {
        self.maps.wanted = self.maps.wanted.max(epoch.0);
        self.ask_for_maps();
    }
    /// Whether the map that operations depend on has not arrived yet.
    pub(super) const fn awaits_map(&self) -> bool {
        self.maps.known < self.maps.wanted
    }
    fn ask_for_maps(&mut self) {
        if !self.awaits_map() || std::mem::replace(&mut self.maps.asking, true) {
            return;
        }
        let (rados, queue, wanted) = (self.rados.clone(), self.queue.clone(), self.maps.wanted);
        self.workers.run(Box::new(move || {
            // A map that was reported exists: it is no newer than the monitors' newest.
            queue.push(Event::Maps(
                rados.wait_for_newest_map().is_ok().then_some(wanted),
            ));
        }));
    }
    pub(super) fn maps_came(&mut self, has: Option<u64>) {
        self.maps.asking = false;
        self.maps.known = self.maps.known.max(has.unwrap_or_default());
        self.ended += 1;
        self.ask_for_maps();
    }
}
