//! Fences of other clients, and operations that rest on those of others.

use super::{Ceph, Event};
use crate::instances;
use nacre_client::{Done, Failure, OpId, Operation, Refused};
use nacre_types::{ClientId, Epoch, Instance, Version};
use nacre_wire::Payload;

/// Which maps this client has, as far as it was told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Maps {
    /// It has this one, or a newer one.
    known: u64,
    /// What is begun rests on this one.
    wanted: u64,
    /// A newer one is waited for.
    asking: bool,
}

impl Ceph {
    /// The newest map that operations here rest on.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.maps.known)
    }
    /// It has this map already.
    #[must_use]
    pub fn knowing(mut self, epoch: u64) -> Self {
        self.maps.known = epoch;
        self
    }

    pub(super) fn begin_fence(&mut self, client: ClientId, instance: Instance) -> Result<OpId, Refused> {
        if !self.rados.knows_addresses() {
            return Err(Refused::Unsupported);
        }
        let id = self.admit(Operation::default())?;
        let (rados, queue) = (self.rados.clone(), self.queue.clone());
        self.workers.run(Box::new(move || {
            queue.push(Event::Fenced(id, instances::fence(&rados, client, instance)));
        }));
        Ok(OpId(id))
    }
    pub(super) fn fenced(&mut self, id: u64, result: Result<u64, Failure>) {
        if let Ok(epoch) = result {
            self.maps.known = self.maps.known.max(epoch);
        }
        let done = Done { version: Version::default(), results: Vec::new(), payload: Payload::new() };
        self.end(id, result.map(|_| done));
    }

    pub(super) fn begin_to_rest_on(&mut self, epoch: Epoch) {
        self.maps.wanted = self.maps.wanted.max(epoch.0);
        self.ask_for_maps();
    }
    /// Whether the map that operations rest on is yet to come.
    pub(super) const fn awaits_map(&self) -> bool {
        self.maps.known < self.maps.wanted
    }
    fn ask_for_maps(&mut self) {
        if !self.awaits_map() || std::mem::replace(&mut self.maps.asking, true) {
            return;
        }
        let (rados, queue, wanted) = (self.rados.clone(), self.queue.clone(), self.maps.wanted);
        self.workers.run(Box::new(move || {
            // What was told of a map has it: it is no newer than the monitors' newest.
            queue.push(Event::Maps(rados.wait_for_newest_map().is_ok().then_some(wanted)));
        }));
    }
    pub(super) fn maps_came(&mut self, has: Option<u64>) {
        self.maps.asking = false;
        self.maps.known = self.maps.known.max(has.unwrap_or_default());
        self.ended += 1;
        self.ask_for_maps();
    }
}
