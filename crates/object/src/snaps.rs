//! What an object records about its snapshots (CHECKLIST CEPH-09). No state, no I/O;
//! `osd/src/pg/snapshots.rs` makes it durable.
//!
//! ```text
//!  objects of one name, in the store's order      attribute `s` of the live one: SnapSet
//!    :3      its state for snapshots 3 and 2        clones    3 preserves [3, 2], 7 preserves [7]
//!    :7      its state for snapshot 7               sequence  8: the newest snapshot a write knew
//!    live    what snapshots after 8 see             whiteout  kept only for its clones, not visible to clients
//! ```
//! The guarantee: an object at a snapshot is in its state before the first write that knew of the
//! snapshot; it does not exist there if it did not exist then. A write knows the snapshots in its
//! snapshot context, and in a pool of named snapshots those in its primary's map. An object that is
//! deleted while it has no clones is forgotten, including its sequence. So where clients manage
//! their own contexts, a later write with an older context creates an object that newer snapshots
//! report as having existed.

use crate::context::Context;
use crate::view::Stop;
use bytes::Bytes;
use nacre_types::{Name, ObjectId, SnapId};
use nacre_wire::Wire;
use nacre_wire::map::{PoolSnaps, SnapMode};
use nacre_wire::msg::client::{OpFailure, OpRequest, SnapContext, SubOp};
use nacre_wire::msg::part::Kind;
use nacre_wire::msg::replication::Effect;
use nacre_wire::msg::snap::{CLONE_SNAPS_MAX, CLONES_MAX, CloneInfo, SnapSet};

#[cfg(feature = "mutants")]
#[path = "mutants/snaps.rs"]
mod planted;

/// The attribute of the live object with its [`SnapSet`].
pub const SNAPS_ATTR: &[u8] = b"s";
/// Most snapshots in an operation's context; removed ones may be included.
const CONTEXT_MAX: usize = 1000;

/// What an object's state at a snapshot is stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The live object.
    Live,
    /// This clone.
    Clone(SnapId),
    /// The object did not exist.
    Nothing,
}

/// The key of the live object with the same name.
#[must_use]
pub fn live(object: &ObjectId) -> ObjectId {
    at(object, SnapId::HEAD)
}
/// The key of the clone with the same name and this id.
#[must_use]
pub fn at(object: &ObjectId, snapshot: SnapId) -> ObjectId {
    ObjectId {
        snapshot,
        ..object.clone()
    }
}
/// Whether it is a clone.
#[must_use]
pub fn is_clone(object: &ObjectId) -> bool {
    object.snapshot != SnapId::HEAD
}

/// Decodes an object's stored attribute.
#[must_use]
pub fn of_attr(value: Option<&Bytes>) -> SnapSet {
    // Attributes are covered by checksums: one that cannot be decoded was not written by this
    // program.
    value
        .and_then(|value| SnapSet::from_bytes(value).ok())
        .unwrap_or_default()
}

/// The effect that stores the set.
#[must_use]
pub fn attr_effect(set: &SnapSet) -> Effect {
    let name = Name::copy(SNAPS_ATTR);
    if *set == SnapSet::default() {
        return Effect::RemoveAttr { name };
    }
    Effect::SetAttr {
        name,
        value: set.to_bytes().into(),
    }
}

/// The object's state at a snapshot.
#[must_use]
pub fn resolve(set: &SnapSet, exists: bool, snap: SnapId) -> Found {
    if snap.0 > set.sequence {
        return if exists { Found::Live } else { Found::Nothing };
    }
    let preserves = |clone: &&CloneInfo| clone.snaps.contains(&snap);
    set.clones
        .iter()
        .find(preserves)
        .map_or(Found::Nothing, |clone| Found::Clone(clone.id))
}

/// What a write does about snapshots: the clone to be made of the current object, and the set
/// afterwards.
#[must_use]
#[nacre_types::planted]
pub fn preserve(before: &Context, context: &SnapContext) -> (Option<CloneInfo>, SnapSet) {
    let mut after = before.snaps.clone();
    after.sequence = after.sequence.max(context.sequence);
    let newer = context
        .snapshots
        .iter()
        .copied()
        .filter(|snap| snap.0 > before.snaps.sequence);
    let snaps: Vec<SnapId> = newer.collect();
    let Some(id) = snaps.first().copied().filter(|_| before.exists) else {
        return (None, after);
    };
    let clone = CloneInfo {
        id,
        snaps,
        size: before.size,
    };
    after.clones.push(clone.clone());
    (Some(clone), after)
}

/// Whether another clone of the object is allowed.
///
/// # Errors
/// It has the maximum number; clones of removed snapshots are still to be trimmed.
pub fn has_room(set: &SnapSet) -> Result<(), OpFailure> {
    let preserved: usize = set.clones.iter().map(|clone| clone.snaps.len()).sum();
    if set.clones.len() <= CLONES_MAX && preserved <= CLONE_SNAPS_MAX {
        return Ok(());
    }
    let what = format!(
        "the object has {CLONES_MAX} clones; those of removed snapshots are being trimmed, try again later"
    );
    Err(OpFailure::TooMany { what })
}

/// The set after removed snapshots are dropped, and the clones that then preserve nothing.
#[must_use]
pub fn trimmed(set: &SnapSet, pool: &PoolSnaps) -> (SnapSet, Vec<SnapId>) {
    let mut after = set.clone();
    for clone in &mut after.clones {
        clone.snaps = still_preserved(clone, pool);
    }
    let dead = after
        .clones
        .iter()
        .filter(|clone| clone.snaps.is_empty())
        .map(|clone| clone.id)
        .collect();
    after.clones.retain(|clone| !clone.snaps.is_empty());
    (after, dead)
}

/// The snapshots of a clone that still exist.
#[nacre_types::planted]
fn still_preserved(clone: &CloneInfo, pool: &PoolSnaps) -> Vec<SnapId> {
    let all = clone.snaps.iter().copied();
    all.filter(|snap| pool.is_live(*snap)).collect()
}

/// Why the operation cannot be a rollback, if it is one. Checked only after duplicate detection: if
/// the rollback was already executed, the snapshot may have been removed since (simulator, seed
/// 194).
#[must_use]
pub fn impossible(request: &OpRequest, pool: &PoolSnaps) -> Option<OpFailure> {
    let dead = |op: &SubOp| {
        if let SubOp::Rollback { snap } = op {
            Some(*snap)
        } else {
            None
        }
    };
    let snap = request
        .ops
        .iter()
        .filter_map(dead)
        .find(|snap| !pool.is_live(*snap))?;
    Some(OpFailure::Invalid {
        why: format!(
            "the pool has no snapshot {}; `pool snap ls` lists them",
            snap.0
        ),
    })
}

/// The snapshots that the operation preserves.
#[must_use]
pub fn context(request: &OpRequest, pool: &PoolSnaps) -> SnapContext {
    match pool.mode {
        SnapMode::Unused {} => SnapContext::default(),
        SnapMode::Named {} => pool.context(),
        SnapMode::Own {} => {
            let mut context = request.snaps.clone();
            context.snapshots.retain(|snap| pool.is_live(*snap));
            context
        }
    }
}

/// Whether the operation changes what snapshots preserve. Watches and locks belong to the live
/// object only.
#[must_use]
pub fn changes_content(request: &OpRequest) -> bool {
    request
        .ops
        .iter()
        .any(|op| matches!(op.facts().kind, Kind::Writes | Kind::Calls))
}

/// Whether the operation's snapshot and snapshot context are valid in the pool.
///
/// # Errors
/// What is invalid.
pub fn validate(request: &OpRequest, pool: &PoolSnaps) -> Result<(), OpFailure> {
    let invalid = |why: &str| {
        Err(OpFailure::Invalid {
            why: why.to_owned(),
        })
    };
    if is_clone(&request.object) {
        let reads = |op: &SubOp| matches!(op.facts().kind, Kind::Reads | Kind::Guards);
        if !request.ops.iter().all(reads) {
            return invalid(
                "a snapshot's objects can be read, and nothing else; calls are for the live object",
            );
        }
    }
    let SnapContext {
        sequence,
        snapshots,
    } = &request.snaps;
    if *sequence == 0 && snapshots.is_empty() {
        return Ok(());
    }
    match pool.mode {
        SnapMode::Own {} => {}
        SnapMode::Named {} => {
            return invalid(
                "the pool's snapshots have names: all writes preserve them, leave the context empty",
            );
        }
        SnapMode::Unused {} => {
            return invalid("snapshots are allocated with `pool snap create`; the pool has none");
        }
    }
    let descends = snapshots.is_sorted_by(|a, b| a > b)
        && snapshots.first().is_none_or(|first| first.0 <= *sequence);
    if !descends || snapshots.len() > CONTEXT_MAX || *sequence > pool.last.0 {
        return invalid(
            "a snapshot context is newest first, up to its sequence, of at most 1000 allocated snapshots",
        );
    }
    Ok(())
}

/// The result of a rollback.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Then {
    /// The current object: nothing was written since the snapshot.
    #[default]
    Same,
    /// This clone.
    Clone(SnapId, Box<Context>),
    /// The object did not exist.
    Gone,
}

impl crate::view::View {
    /// Rolls the object back. Watches and locks stay, unless the object is removed. It is an update
    /// even if nothing changes: a later primary would not remember a success without an update, and
    /// would roll back what was written since (simulator, seed 153).
    ///
    /// # Errors
    /// The object did not exist then and does not exist now.
    pub fn roll_back(&mut self, then: &Then) -> Result<(), Stop> {
        match then {
            Then::Same => self.create(false),
            Then::Gone => self.remove(),
            Then::Clone(snapshot, clone) => {
                self.replace(Effect::CloneFrom {
                    snapshot: *snapshot,
                })?;
                for (name, value) in self.context.claims.stored() {
                    self.effects.push(Effect::SetAttr { name, value });
                }
                let Context {
                    size,
                    attrs,
                    header,
                    ..
                } = (**clone).clone();
                let claims = std::mem::take(&mut self.context.claims);
                let (version, snaps) = (self.context.version, self.context.snaps.clone());
                self.context = Context {
                    exists: true,
                    version,
                    size,
                    attrs,
                    header,
                    claims,
                    snaps,
                    ..Context::default()
                };
                self.copied = true;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn write(context: &mut Context, snaps: &SnapContext, exists: bool) -> Option<CloneInfo> {
        let (clone, after) = preserve(context, snaps);
        context.snaps = after;
        context.exists = exists;
        context.snaps.whiteout = !exists && !context.snaps.clones.is_empty();
        if !exists && !context.snaps.whiteout {
            context.snaps = SnapSet::default();
        }
        clone
    }

    proptest! {
        /// Compares with a list of the object's states when a write first knew each snapshot.
        #[test]
        fn a_snapshot_is_what_was_there_before_the_first_write_that_knew_it(
            steps in proptest::collection::vec(0..10_u8, 1..60),
        ) {
            let (mut pool, mut context, mut value) = (PoolSnaps { mode: SnapMode::Named {}, ..PoolSnaps::default() }, Context::default(), None);
            let mut model: std::collections::BTreeMap<SnapId, Option<u64>> = Default::default();
            let mut clones: std::collections::BTreeMap<SnapId, Option<u64>> = Default::default();
            let mut names = 0;
            for (number, step) in (1..).zip(steps) {
                match step {
                    0..=2 => {
                        names += 1;
                        pool.last = SnapId(names);
                        pool.named.insert(pool.last, Default::default());
                    }
                    3 if pool.named.len() > 2 => {
                        let (gone, _) = pool.named.pop_first().expect("more than two");
                        pool.removed.push((gone, gone));
                    }
                    4 => {
                        let (after, dead) = trimmed(&context.snaps, &pool);
                        prop_assert!(dead.iter().all(|id| clones.remove(id).is_some()));
                        context.snaps = after;
                        if context.snaps.clones.is_empty() && !context.exists {
                            context.snaps = SnapSet::default();
                        }
                    }
                    _ => {
                        let before = value;
                        for snap in pool.named.keys() {
                            model.entry(*snap).or_insert(before);
                        }
                        value = (step > 5).then_some(number);
                        if (value.is_some() || before.is_some())
                            && let Some(clone) = write(&mut context, &pool.context(), value.is_some())
                        {
                            prop_assert!(clones.insert(clone.id, before).is_none());
                        }
                    }
                }
                for snap in pool.named.keys() {
                    let seen = match resolve(&context.snaps, context.exists, *snap) {
                        Found::Live => value,
                        Found::Clone(id) => clones[&id],
                        Found::Nothing => None,
                    };
                    prop_assert_eq!(seen, model.get(snap).copied().unwrap_or(value), "{:?}", snap);
                }
            }
            let listed: Vec<SnapId> = context.snaps.clones.iter().map(|clone| clone.id).collect();
            prop_assert_eq!(listed, clones.into_keys().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_full_set_of_clones_leaves_room_for_the_largest_attributes() {
        let snaps = |n: usize| (0..n as u64).map(SnapId).collect::<Vec<_>>();
        let per = CLONE_SNAPS_MAX / CLONES_MAX;
        let mut clones: Vec<CloneInfo> = (0..CLONES_MAX)
            .map(|_| CloneInfo {
                id: SnapId(1),
                snaps: snaps(per),
                size: 0,
            })
            .collect();
        clones[0].snaps = snaps(per + CLONE_SNAPS_MAX % CLONES_MAX);
        let mut set = SnapSet {
            sequence: 0,
            clones,
            whiteout: false,
        };
        assert_eq!(has_room(&set), Ok(()));
        let others = set.to_bytes().len() + SNAPS_ATTR.len() + 25;
        let user = nacre_wire::msg::client::ATTR_BYTES_MAX;
        assert!(
            user + others <= nacre_store::api::ATTRS_LENGTH_MAX,
            "{others} bytes"
        );
        set.clones[0].snaps.push(SnapId(3));
        assert!(has_room(&set).is_err());
    }
}
