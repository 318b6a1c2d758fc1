//! Deletions of objects that somebody lacks: they wait for no copy (DESIGN §3, full: deletes always
//! work).
//!
//! ```text
//!  a member lacks it      the entry goes without effects: who has the object removes it, who lacks it has nothing more to get
//!  the primary lacks it   it asks somebody who has it; the first part says what the object is (attributes, size), and a deletion wants no more
//! ```
//! A nearly full member has no room for what recovery brings, and the deletion that waited for that
//! was the one that would have made room: where everybody only deleted, everybody waited for ever
//! (simulator, seed 1824).
//!
//! What leaves something, a clone or what its clones need, waits like every update; but not for a
//! member that has no room and has to act (`cover.rs`).

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
    /// An object was deleted that some of those who get updates lacked.
    pub(super) fn nobody_lacks(&mut self, object: &ObjectId) {
        for peer in self.peers.values_mut() {
            peer.missing.swap_remove(object);
        }
        self.recovery.forget(object);
    }
}

impl Lead<'_> {
    /// The front of a queue waits until the object has been copied to others. What only deletes it
    /// does not, and nothing waits for who stands aside.
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

    /// Writes that would wait until recovery has room are told so: who is full refuses growth soon
    /// (DESIGN §3). Others of the same object go on. Reads wait, and deletions of other clients go
    /// before them.
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

    /// Whether what is next only deletes the object that begins to come, and was executed: then the
    /// object need not come.
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
        // Few are deleted while they come: the others' attributes are looked at by nobody.
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
            // Refused: the object is still to come.
            state.context = None;
        }
        gone
    }
}
