//! Deletions of objects that a member lacks: they do not wait for recovery (DESIGN §3, full:
//! deletes always work).
//!
//! ```text
//!  a member lacks it      the entry is sent without effects: members with the object remove it, others need nothing more
//!  the primary lacks it   it pulls the object; the first part has the attributes and the size, and a deletion needs no more
//! ```
//! A nearly full member has no space for recovered objects, and the deletion that waited for
//! recovery was the one that would have freed space: when clients only deleted, all waited for ever
//! (simulator, seed 1824).
//!
//! A deletion that leaves something, a clone or data for its clones, waits like every update; but
//! not for a member that has no space and must act (`cover.rs`).

use super::Lead;
use super::primary::Primary;
use crate::shared::Shared;
use nacre_object::Context;
use nacre_object::fetched::Fetched;
use nacre_store::ObjectStat;
use nacre_types::ObjectId;
use nacre_wire::msg::client::OpFailure;
use nacre_wire::msg::replication::Push;

impl Primary {
    /// An object was deleted that some receivers lacked.
    pub(super) fn is_on_all(&mut self, object: &ObjectId) {
        for peer in self.peers.values_mut() {
            peer.missing.swap_remove(object);
        }
        self.recovery.forget(object);
    }
}

impl Lead<'_> {
    /// The front of a queue waits until the object has been pushed to others. A deletion does not,
    /// and nothing waits for members that stand aside.
    pub(super) fn make_way(&mut self, object: &ObjectId, sh: &mut Shared) {
        let Some(deletes) = self
            .primary
            .objects
            .front_of(object)
            .map(super::pending::Pending::only_deletes)
        else {
            return;
        };
        self.stop_pushing(object, deletes, sh);
    }

    /// Refuses writes that would wait until recovery has space: a full member refuses growth soon
    /// (DESIGN §3). Other operations on the same object continue. Reads wait, and deletions of
    /// other clients overtake them.
    pub(super) fn refuse_what_has_no_room(&mut self, sh: &mut Shared) {
        let patience = sh.config.timing.retry_interval * 2;
        if !self.primary.serves(sh.now) {
            return;
        }
        for object in self.primary.objects.waiting() {
            while let Some(writes) = self.gate().waits_for_room(&object, patience, sh) {
                let objects = &mut self.primary.objects;
                if writes {
                    let op = objects.pop(&object, sh.now).expect("just seen");
                    sh.counters.borders.no_room_refused += 1;
                    if !self.replies().answered_from_memory(&op, sh) {
                        self.replies().fail(op, OpFailure::Full {}, sh);
                    }
                } else if !objects.advance_deletion(&object) {
                    break;
                }
                self.process_object(&object, sh);
            }
        }
    }

    /// Whether the next operation only deletes the object whose first part has arrived, and was
    /// executed: then the object is no longer needed.
    pub(super) fn delete_by_first_part(
        &mut self,
        push: &Push,
        undone: bool,
        sh: &mut Shared,
    ) -> bool {
        let object = &push.object;
        let is_first =
            push.part == 0 && !push.absent && !undone && self.local.missing.contains_key(object);
        if !is_first
            || !self.primary.serves(sh.now)
            || self.primary.backfill.compares(object)
            || self.primary.damage.is_lost(object)
        {
            return false;
        }
        let primary = &*self.primary;
        let Some(state) = primary.objects.peek(object) else {
            return false;
        };
        // Few objects are deleted during their transfer: the attributes of the others are not
        // decoded.
        let Some(front) = state.front().filter(|front| front.only_deletes()) else {
            return false;
        };
        let quiet = state.updates == 0
            && state.reads == 0
            && state.held == 0
            && !state.exclusive
            && !state.loading;
        let attrs = push
            .attrs
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec().into(), value.clone()))
            .collect();
        let context = Context::of(Some(ObjectStat {
            size: push.size,
            attrs,
        }));
        let deletes =
            context.version == push.version && self.clones().leaves_nothing(front, &context, sh);
        if !quiet || !deletes || primary.damage.is_suspect(object) {
            return false;
        }
        let objects = &mut self.primary.objects;
        objects.get(object).context = Some(context);
        let op = objects.pop(object, sh.now).expect("just seen");
        if !self.replies().answered_from_memory(&op, sh) {
            self.execute(op, Fetched::default(), sh);
        }
        let gone = !self.local.missing.contains_key(object);
        if gone {
            sh.counters.borders.deleted_unseen += 1;
            self.start_recovery(sh);
            self.process_object(object, sh);
        } else if let Some(state) = self.primary.objects.existing(object) {
            // Refused: the object is still needed.
            state.context = None;
        }
        gone
    }
}
