//! Assigns changes their positions in the primary's log, and applies them to the local store.

use super::Interval;
use super::count::Counting;
use super::local::{Local, Ops};
use super::object::Objects;
use super::receive::Receiving;
use super::update::{Change, InFlight, Ordered, apply_update};
use super::watch;
use crate::shared::Shared;
use nacre_object::Context;
use nacre_object::snaps;
use nacre_types::{Name, ObjectId, SnapId, Version};
use nacre_wire::msg::client::RequestId;
use nacre_wire::msg::replication::Effect;
use nacre_wire::msg::snap::{CloneInfo, SnapSet};
use nacre_wire::{Payload, Record, RecordFields};

/// See the module head. Nothing is sent from here: `Primary::launch` sends the ordered updates.
#[derive(Debug)]
pub(super) struct Order<'a> {
    pub(super) local: &'a mut Local,
    pub(super) interval: &'a Interval,
    pub(super) receiving: &'a mut Receiving,
    pub(super) counting: &'a mut Counting,
    /// Read-only.
    pub(super) objects: &'a Objects,
}

impl Order<'_> {
    /// Assigns a change its position in the local log: `Primary::launch` must follow, with all
    /// ordered updates, in order.
    pub(super) fn order(&mut self, change: Change, ops: &mut Ops, sh: &Shared) -> Ordered {
        let Change {
            object,
            before,
            mut context,
            effects,
            payload,
            request,
            answered_below,
            results,
        } = change;
        let version = self.local.log.head().next_in(self.interval.since);
        let sizes = (before.stored_size(), context.stored_size());
        let totals = self.counting.after_update(&object, sizes, self.local);
        let deleted = !context.is_stored();
        context.damaged = false;
        context.version = if deleted { Version::NONE } else { version };
        let watch_change = watch::Change::between(&before.claims, &context.claims);
        let modified_ms = if deleted { 0 } else { context.modified_ms };
        let prior = before.version;
        let fields = RecordFields {
            version,
            prior,
            deleted,
            object,
            request,
            answered_below,
            results,
            totals,
            modified_ms,
        };
        let entry = Record::new(fields);
        apply_update(self.local.pg(), &entry, &effects, payload.clone(), ops)
            .expect("our own effects fit their payload");
        if deleted && effects.is_empty() {
            self.receiving.drop_object(entry.object(), self.local, ops);
        }
        self.local.append(entry.clone(), sh.now, ops);
        self.local.lost_by_clone(&entry, &effects, ops);
        Ordered {
            update: InFlight::new(entry, effects, payload, sh.now),
            context,
            watch_change,
        }
    }

    /// The update that makes a clone of the current live object.
    pub(super) fn clone_of(
        &mut self,
        object: &ObjectId,
        clone: &CloneInfo,
        live: &Context,
        ops: &mut Ops,
        sh: &Shared,
    ) -> Ordered {
        let place = snaps::at(object, clone.id);
        // Only the live object has claims and a SnapSet.
        let claims = live
            .claims
            .stored()
            .into_iter()
            .map(|(name, _)| Effect::RemoveAttr { name });
        let snaps = (live.snaps != SnapSet::default()).then(|| Effect::RemoveAttr {
            name: Name::copy(snaps::SNAPS_ATTR),
        });
        let effects = [Effect::CloneFrom {
            snapshot: SnapId::HEAD,
        }]
        .into_iter()
        .chain(claims)
        .chain(snaps)
        .collect();
        let Context {
            exists,
            size,
            modified_ms,
            attrs,
            header,
            ..
        } = live.clone();
        let context = Context {
            exists,
            size,
            modified_ms,
            attrs,
            header,
            ..Context::default()
        };
        let change = self.own_change(place, context, effects);
        self.order(change, ops, sh)
    }

    /// A change without a client's request, of an object whose context is known.
    pub(super) fn own_change(
        &self,
        object: ObjectId,
        context: Context,
        effects: Vec<Effect>,
    ) -> Change {
        let state = self.objects.peek(&object);
        let before = state
            .and_then(|state| state.context.clone())
            .expect("known before it is changed");
        let (payload, request, results) = (Payload::new(), RequestId::default(), Vec::new());
        Change {
            object,
            before,
            context,
            effects,
            payload,
            request,
            answered_below: 0,
            results,
        }
    }
}
