//! Planted bugs of the layers in memory.

use super::{PendingBlocks, Tables, Value, keys};
use crate::mutants::{Mutant, mutant};

pub(super) fn get(tables: &mut Tables, key: &[u8]) -> Option<Option<Option<Value>>> {
    if !keys::is_head(key) || !mutant(Mutant::OldHeadFirst) {
        return None;
    }
    tables.cache.get(key).cloned().map(Some)
}

pub(super) fn head_of_tables<'a>(
    tables: &'a Tables,
    key: &[u8],
) -> Option<Option<&'a Option<Value>>> {
    let asked = [Some(&tables.active), tables.frozen.as_deref()];
    let mut asked = asked.into_iter().flatten();
    mutant(Mutant::LeavingNotAsked).then(|| asked.find_map(|table| table.head(key)))
}

pub(super) fn settled(blocks: &mut PendingBlocks, unit: &u64, transaction: &u64) -> Option<()> {
    if let Some(pending) = blocks.by_unit.get_mut(unit)
        && mutant(Mutant::SettledNewer)
        && !pending.beside
    {
        pending.transaction = *transaction;
    }
    None
}
