//! Planted bugs of snapshots.

use super::{CloneInfo, Context, PoolSnaps, SnapContext, SnapId, SnapSet};
use crate::mutants::{Mutant, mutant};

pub(super) fn preserve(
    before: &Context,
    context: &SnapContext,
) -> Option<(Option<CloneInfo>, SnapSet)> {
    mutant(Mutant::CloneForgotten).then(|| {
        let mut after = before.snaps.clone();
        after.sequence = after.sequence.max(context.sequence);
        (None, after)
    })
}

pub(super) fn still_preserved(clone: &CloneInfo, pool: &PoolSnaps) -> Option<Vec<SnapId>> {
    (mutant(Mutant::NeededCloneTrimmed) && !pool.is_live(clone.id)).then(Vec::new)
}
