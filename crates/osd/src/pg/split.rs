//! A placement group splits when its pool grows.

use super::ByObject;
use super::dedup::DedupTable;
use super::local::{Local, Ops};
use super::stored::{dedup_entries, log_key, lost_key, missing_key, undone_key};
use crate::key;
use bytes::Bytes;
use nacre_store::Op;
use nacre_types::{ObjectId, PgId, Version};
use nacre_wire::Wire;
use nacre_wire::msg::replication::{Missing, Totals};

#[cfg(feature = "mutants")]
#[path = "../mutants/split.rs"]
mod planted;

/// Takes out the notes on objects for which `leaves` holds.
fn take_those<T>(notes: &mut ByObject<T>, leaves: impl Fn(&ObjectId) -> bool) -> ByObject<T> {
    let (gone, kept) = std::mem::take(notes)
        .into_iter()
        .partition(|(object, _)| leaves(object));
    *notes = kept;
    gone
}

impl Local {
    /// Splits off the PG `child` when the pool grows to `pg_num` PGs. Objects stay where they are.
    pub fn split_off(&mut self, child: PgId, pg_num: u32, ops: &mut Ops) -> Self {
        let leaves = |object: &ObjectId| key::seed(key::hash(object), pg_num) == child.seed;
        let mut other = Self::new(child, pg_num);
        other.log = self.log.split(|entry| leaves(entry.object()));
        other.dedup = self.take_operations(leaves);
        other.missing = take_those(&mut self.missing, leaves);
        other.lost = take_those(&mut self.lost, leaves);
        other.undone = take_those(&mut self.undone, leaves);
        (other.activated, other.clones_known) = (self.activated, self.clones_known);
        // The parent's range contains the child's: a cursor inside or before the child's range is
        // the child's too.
        let (first, end) = key::range(child.seed, pg_num);
        other.backfill = match &self.backfill {
            None => None,
            Some(cursor) if end.as_ref().is_some_and(|end| cursor >= end) => None,
            Some(cursor) => Some(cursor.clone().max(first)),
        };
        other.estimate_totals(self.totals(), self.pg_num, pg_num);
        other.rewrite(ops);
        other
    }

    /// Takes out the memory of operations on objects for which `leaves` holds.
    #[nacre_types::planted]
    fn take_operations(&mut self, leaves: impl Fn(&ObjectId) -> bool) -> DedupTable {
        self.dedup.split(leaves)
    }

    /// Ends a split: this PG is now one of `pg_num`.
    pub fn finish_split(&mut self, pg_num: u32, ops: &mut Ops) {
        let (_, end) = key::range(self.pg().seed, pg_num);
        if let (Some(cursor), Some(end)) = (&self.backfill, &end)
            && cursor >= end
        {
            self.backfill = None;
        }
        self.estimate_totals(self.totals(), self.pg_num, pg_num);
        self.pg_num = pg_num;
        self.rewrite(ops);
    }

    /// Estimates its share when `old` PGs of the pool become `new` ones; the primary counts the
    /// exact totals (`count.rs`).
    fn estimate_totals(&mut self, whole: Totals, old: u32, new: u32) {
        let share = |n: u64| (u128::from(n) * u128::from(old) / u128::from(new)) as u64;
        let nothing = whole.objects == 0 && !whole.estimated;
        let totals = Totals {
            objects: share(whole.objects),
            bytes: share(whole.bytes),
            estimated: !nothing,
        };
        self.base_totals = totals;
        self.log.set_totals(totals);
    }

    /// Rewrites all metadata.
    fn rewrite(&mut self, ops: &mut Ops) {
        ops.push(Op::OmapClear(self.meta_key.clone()));
        let mut entries: Vec<(Bytes, Bytes)> = self
            .log
            .entries()
            .map(|entry| (log_key(entry.version()), entry.as_bytes().to_vec().into()))
            .collect();
        entries.extend(
            self.missing
                .values()
                .map(|m| (missing_key(&m.object), m.to_bytes().into())),
        );
        let note = |(object, version): (&ObjectId, &Version)| Missing {
            object: object.clone(),
            need: *version,
            have: *version,
        };
        entries.extend(
            self.lost
                .iter()
                .map(note)
                .map(|m| (lost_key(&m.object), m.to_bytes().into())),
        );
        entries.extend(
            self.undone
                .values()
                .map(|undone| (undone_key(&undone.object), undone.to_bytes().into())),
        );
        self.dedup.mark_beyond(self.log.tail());
        let old = self.dedup.beyond(self.log.tail());
        entries.extend(dedup_entries(&old));
        entries.sort();
        self.set(ops, entries);
        self.save_meta(ops);
    }
}
