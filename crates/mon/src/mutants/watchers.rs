//! A planted bug of watches.

use super::{Meta, MetaEvent};
use crate::mutants::{Mutant, mutant};

pub(super) fn events_after<'a>(meta: &'a Meta, before: &u64) -> Option<Vec<&'a MetaEvent>> {
    let revisions = before + 2..=meta.revision();
    let events = revisions.filter_map(|revision| meta.history().at(revision));
    mutant(Mutant::WatchGap).then(|| events.flatten().collect())
}
