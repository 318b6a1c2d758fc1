//! Sending objects from a primary: the queue of each is held until its receiver has it.

use super::Interval;
use super::object::Objects;
use super::transfer::Sending;
use crate::shared::Shared;
use nacre_types::{ObjectId, OsdId, Version};

/// See the module head.
#[derive(Debug)]
pub(super) struct Outbox<'a> {
    pub(super) interval: &'a Interval,
    pub(super) objects: &'a mut Objects,
    pub(super) sending: &'a mut Sending,
}

impl Outbox<'_> {
    /// Begins to send an object at a version; its queue is held meanwhile. The caller has checked
    /// that the object is here.
    pub(super) fn push_object(
        &mut self,
        to: OsdId,
        object: &ObjectId,
        version: Version,
        sh: &mut Shared,
    ) {
        let (version, at) = ((version, true), self.interval);
        let begun = self.sending.push_object(to, object, version, at, sh);
        self.hold(object, begun);
    }

    fn hold(&mut self, object: &ObjectId, begun: bool) {
        if begun {
            self.objects.get(object).held += 1;
        }
    }

    /// Sends objects of the range, and the deletions.
    pub(super) fn push_all(
        &mut self,
        target: OsdId,
        all: Vec<(ObjectId, Version)>,
        head: Version,
        sh: &mut Shared,
    ) {
        for (object, version) in all {
            if version == Version::NONE {
                let at = self.interval;
                let begun = self.sending.push_absence(target, &object, head, at, sh);
                self.hold(&object, begun);
            } else {
                self.push_object(target, &object, version, sh);
            }
        }
    }
}
