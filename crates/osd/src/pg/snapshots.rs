//! Snapshots at the primary: clones before writes, reads at snapshots, rollback (CHECKLIST
//! CEPH-09).
//!
//! ```text
//!  write that knows a newer snapshot ─▶ log:  n    :7    CloneFrom live          ┐ one transaction here;
//!                                             n+1  live  the write, and SnapSet  ┘ members take them one by one
//!  read at snapshot 6 ─▶ live object's queue ─ SnapSet says :7 ─▶ :7's queue ─▶ like any read
//! ```
//! Members apply `CloneFrom` to their own replicas. So a write that clones waits until no receiver
//! lacks the live object or the object in the clone's place, except members that are not waited for
//! (`cover.rs`) and then lack the clone; and a backfill's cursor never lies between two objects of
//! one name (`backfill.rs`). If the interval ends between the two updates, the clone is an orphan:
//! no SnapSet names it, so it is never read; the next write puts its own clone in its place, and
//! the trimmer (`trim.rs`) removes remaining ones. The write's client gets the answer of the second
//! update, and a resend finds that one.
//!
//! Extents are shared where a clone is made. An object that is recovered or backfilled is
//! transferred separately, with extents of its own.
//!
//! Invariants: a clone named by a SnapSet has the state of the live object before the first write
//! that knew of its snapshots, on every member that has both; no client's write changes a clone.

use super::Lead;
use super::holders::Holders;
use super::object::Objects;
use super::pending::Pending;
use super::repair::Damage;
use super::watch::Own;
use crate::shared::Shared;
use nacre_object::Context;
use nacre_object::evaluate::Brought;
use nacre_object::snaps::{self, Found, Then};
use nacre_types::{ObjectId, SnapId};
use nacre_wire::map::{PoolSnaps, SnapMode};
use nacre_wire::msg::client::{OpFailure, SnapContext, SubOp};
use nacre_wire::msg::replication::Effect;
use nacre_wire::msg::snap::{CloneInfo, SnapSet};
use std::collections::BTreeSet;

/// How an update uses a clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Touch {
    /// Replaces or removes it.
    Writes,
    /// Reads its content.
    Reads,
}

/// The operations' use of clones of their objects. Read-only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clones<'a> {
    pub(super) holders: Holders<'a>,
    pub(super) objects: &'a Objects,
    pub(super) damage: &'a Damage,
}

impl Clones<'_> {
    fn pool_snaps<'a>(&self, sh: &'a Shared) -> Option<&'a PoolSnaps> {
        let pool = &self.holders.interval.pool(sh)?.snaps;
        (pool.mode != SnapMode::Unused {}).then_some(pool)
    }

    /// The snapshots that an operation preserves; none if it does not change the preserved content.
    fn snap_context(&self, op: &Pending, before: &Context, sh: &Shared) -> Option<SnapContext> {
        let pool = self.pool_snaps(sh)?;
        // A created object records the snapshots that it is newer than.
        let matters = op.own.is_none() && (snaps::changes_content(&op.request) || !before.exists);
        matters.then(|| snaps::context(&op.request, pool))
    }

    /// Whether a deletion of the object makes no clone, and there are no clones to keep a whiteout
    /// for.
    pub(super) fn leaves_nothing(&self, op: &Pending, before: &Context, sh: &Shared) -> bool {
        before.snaps.clones.is_empty() && self.touched(op, before, sh).is_empty()
    }

    /// The clone that the operation makes if it changes the object.
    fn clone_made(&self, op: &Pending, before: &Context, sh: &Shared) -> Option<CloneInfo> {
        snaps::preserve(before, &self.snap_context(op, before, sh)?).0
    }

    /// The objects that the operation clones, as far as known before its evaluation: the current
    /// object, and the clones that it rolls the object back to.
    pub(super) fn cloned_from(&self, op: &Pending, before: &Context, sh: &Shared) -> Vec<ObjectId> {
        let source = |(id, touch)| match touch {
            Touch::Writes => op.request.object.clone(),
            Touch::Reads => snaps::at(&op.request.object, id),
        };
        self.touched(op, before, sh)
            .into_iter()
            .map(source)
            .collect()
    }

    /// Whether a clone is made before the operation's own update.
    pub(super) fn clones_first(&self, op: &Pending, before: &Context, sh: &Shared) -> bool {
        op.is_write() && self.clone_made(op, before, sh).is_some()
    }

    fn touched(&self, op: &Pending, before: &Context, sh: &Shared) -> Vec<(SnapId, Touch)> {
        let Some(pool) = self.pool_snaps(sh) else {
            return Vec::new();
        };
        if let Some(Own::Trim { found }) = &op.own {
            let dead = snaps::trimmed(&before.snaps, pool).1;
            let all: BTreeSet<SnapId> = dead
                .into_iter()
                .chain(orphans(&before.snaps, found))
                .collect();
            return all.into_iter().map(|id| (id, Touch::Writes)).collect();
        }
        let made = self
            .clone_made(op, before, sh)
            .map(|clone| (clone.id, Touch::Writes));
        let back = rolled_back_to(op).filter_map(|snap| {
            match snaps::resolve(&before.snaps, before.exists, snap) {
                Found::Clone(id) => Some((id, Touch::Reads)),
                _ => None,
            }
        });
        made.into_iter().chain(back).collect()
    }

    /// The first clone whose state blocks the operation.
    fn unready(&self, op: &Pending, before: &Context, sh: &Shared) -> Option<ObjectId> {
        let objects = &self.objects;
        let suspect = |clone: &ObjectId| self.damage.is_suspect(clone);
        let ready = |(id, touch): &(SnapId, Touch)| {
            let clone = snaps::at(&op.request.object, *id);
            let state = objects.peek(&clone);
            let free = |state: &super::object::ObjectState| {
                state.held == 0 && state.reads == 0 && !state.exclusive
            };
            let fits = state.is_some_and(|state| {
                state.context.is_some() && (*touch == Touch::Reads || free(state))
            });
            fits && !suspect(&clone) && !self.holders.keeps_waiting(&clone, op, sh)
        };
        let touched = self.touched(op, before, sh);
        touched
            .iter()
            .find(|touch| !ready(touch))
            .map(|(id, _)| snaps::at(&op.request.object, *id))
    }

    /// Whether all clones that the operation uses are ready.
    pub(super) fn clones_are_ready(&self, op: &Pending, before: &Context, sh: &Shared) -> bool {
        self.unready(op, before, sh).is_none()
    }

    /// The clone that the front of the queue waits for.
    pub(super) fn clone_waited_for(&self, object: &ObjectId, sh: &Shared) -> Option<ObjectId> {
        let state = self.objects.peek(object)?;
        self.unready(state.front()?, state.context.as_ref()?, sh)
    }

    /// Whether the object can have the clone that the operation makes, if it makes one.
    pub(super) fn room_for_clone(
        &self,
        op: &Pending,
        before: &Context,
        sh: &Shared,
    ) -> Result<(), OpFailure> {
        let Some(context) = self.snap_context(op, before, sh) else {
            return Ok(());
        };
        match snaps::preserve(before, &context) {
            (Some(_), after) => snaps::has_room(&after),
            (None, _) => Ok(()),
        }
    }

    /// Updates the live object's SnapSet. Returns the clone to be made before the update.
    pub(super) fn preserve(
        &self,
        op: &Pending,
        before: &Context,
        context: &mut Context,
        effects: &mut Vec<Effect>,
        sh: &Shared,
    ) -> Option<CloneInfo> {
        let (clone, after) = match self.snap_context(op, before, sh) {
            Some(snaps) => snaps::preserve(before, &snaps),
            None => (None, before.snaps.clone()),
        };
        context.snaps = after;
        context.snaps.whiteout = !context.exists && !context.snaps.clones.is_empty();
        if !context.is_stored() {
            context.snaps = SnapSet::default();
            return clone;
        }
        let wiped = effects
            .iter()
            .any(|effect| matches!(effect, Effect::Remove {} | Effect::CloneFrom { .. }));
        if context.snaps != before.snaps || (wiped && context.snaps != SnapSet::default()) {
            effects.push(snaps::attr_effect(&context.snaps));
        }
        clone
    }

    /// The content that the operation takes from clones and other objects.
    pub(super) fn brought(&self, op: &Pending, context: &Context, sh: &Shared) -> Brought {
        let source = op.source.clone().and_then(Result::ok);
        let is_live = |snap| self.pool_snaps(sh).is_some_and(|pool| pool.is_live(snap));
        let back = rolled_back_to(op)
            .map(|snap| (snap, is_live(snap).then(|| self.then(op, context, snap))));
        Brought {
            back: back.collect(),
            source,
        }
    }

    /// The state of the object after a rollback.
    fn then(&self, op: &Pending, context: &Context, snap: SnapId) -> Then {
        match snaps::resolve(&context.snaps, context.exists, snap) {
            Found::Live => Then::Same,
            Found::Nothing => Then::Gone,
            Found::Clone(id) => {
                let clone = snaps::at(&op.request.object, id);
                let state = self.objects.peek(&clone);
                let clone = state
                    .and_then(|state| state.context.clone())
                    .expect("it waits until that is known");
                Then::Clone(id, Box::new(clone))
            }
        }
    }
}

impl Lead<'_> {
    /// Prepares the clone that the front of the queue waits for.
    pub(super) fn prepare_clones(&mut self, object: &ObjectId, sh: &mut Shared) {
        let Some(clone) = self.clones().clone_waited_for(object, sh) else {
            return;
        };
        let Some(front) = self.primary.objects.front_of(object) else {
            return;
        };
        let (waits, deletes) = (
            self.holders().keeps_waiting(&clone, front, sh),
            front.only_deletes(),
        );
        if waits {
            self.recover_now(&clone, sh);
        } else if self
            .primary
            .objects
            .peek(&clone)
            .is_none_or(|s| s.context.is_none())
        {
            self.primary.objects.load(&clone, self.interval, sh);
        } else {
            // It may be in a transfer that nothing waits for.
            self.stop_pushing(&clone, deletes, sh);
        }
    }

    /// The operation and its context, if it is on the live object or on an absent one; otherwise
    /// the operation has moved to the queue of the returned object.
    pub(super) fn at_snapshot(
        &mut self,
        mut op: Box<Pending>,
        live: Context,
        sh: &mut Shared,
    ) -> Result<(Box<Pending>, Context), ObjectId> {
        let Some(snap) = op.snapshot else {
            return Ok((op, live));
        };
        if !self
            .clones()
            .pool_snaps(sh)
            .is_some_and(|pool| pool.is_live(snap))
        {
            let object = op.request.object.clone();
            let why = format!(
                "the pool has no snapshot {}; `pool snap ls` lists them",
                snap.0
            );
            self.replies().fail(op, OpFailure::Invalid { why }, sh);
            return Err(object);
        }
        match snaps::resolve(&live.snaps, live.exists, snap) {
            Found::Live => Ok((op, live)),
            Found::Nothing => Ok((op, Context::default())),
            Found::Clone(id) => {
                let clone = snaps::at(&op.request.object, id);
                (op.request.object, op.snapshot) = (clone.clone(), None);
                self.primary.objects.push(&clone, op);
                Err(clone)
            }
        }
    }
}

/// The snapshots that the operation, or one of its methods, may roll its object back to.
fn rolled_back_to(op: &Pending) -> impl Iterator<Item = SnapId> + '_ {
    let snap = |part: &SubOp| {
        if let SubOp::Rollback { snap } = part {
            Some(*snap)
        } else {
            None
        }
    };
    op.request
        .ops
        .iter()
        .filter_map(snap)
        .chain(op.back.iter().copied())
}

/// Clones that the object does not know.
pub(super) fn orphans<'a>(
    set: &'a SnapSet,
    found: &'a BTreeSet<SnapId>,
) -> impl Iterator<Item = SnapId> + 'a {
    found
        .iter()
        .copied()
        .filter(|id| set.clones.iter().all(|clone| clone.id != *id))
}
