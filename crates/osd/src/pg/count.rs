//! Exact totals after a split.
//!
//! A split knows the total of the parent, not of each part: the parts begin with estimates, marked
//! as such in every log entry ([`Totals::estimated`]). The primary of a clean PG with an estimate
//! counts its objects, one page at a time, while clients continue to write:
//!
//! ```text
//!  positions  first ────────── from ──── end ─────────── last
//!             counted: updates │ page:   │ not counted yet:
//!             are added        │ updates │ updates do not matter
//!                              │ replace what was read
//! ```
//! When the count ends, the next update carries exact totals, and so does every later one. A new
//! primary whose log ends with an estimate counts again. One page per
//! [`crate::Timing::retry_interval`]: nothing waits for a count.
//!
//! Invariant: when the count ends, its sum equals the store's contents after the last ordered
//! update.

use super::Interval;
use super::local::Local;
use crate::key;
use crate::purpose::Purpose;
use crate::shared::Shared;
use bytes::Bytes;
use nacre_store::{ObjectKey, Read, ReadError, ReadReply};
use nacre_types::ObjectId;
use nacre_wire::msg::replication::Totals;
use std::collections::BTreeMap;

/// A count under way.
#[derive(Debug, Default)]
pub struct Count {
    /// Everything before this position is counted.
    from: Bytes,
    sum: Totals,
    /// `Some` while a page is being read.
    page: Option<Page>,
    /// The number that the pending replies carry.
    number: u64,
}

/// A range whose objects are being read.
#[derive(Debug, Default)]
struct Page {
    /// The end of the page; `None`: the end of the PG.
    end: Option<Bytes>,
    /// Sizes by position; `None` for objects that do not exist.
    sizes: BTreeMap<Bytes, Option<u64>>,
    waiting: usize,
    /// Sizes after the updates since the page was begun, of objects from `from` on.
    changed: BTreeMap<Bytes, Option<u64>>,
}

/// The primary's knowledge of its PG's totals.
#[derive(Debug, Default)]
pub struct Counting {
    count: Option<Count>,
    /// The outcome, until an update carries it.
    exact: Option<Totals>,
    /// Something could not be read: no further count in this interval.
    failed: bool,
    numbers: u64,
}

impl Counting {
    /// Discards the count, which no longer matches the contents.
    pub(super) fn forget(&mut self) {
        (self.count, self.exact) = (None, None);
    }

    /// The PG's totals, as exact as known.
    pub(super) fn totals(&self, local: &Local) -> Totals {
        self.exact.unwrap_or_else(|| local.totals())
    }

    /// Whether a served PG has something to count, now or later.
    pub(super) fn wants_more(&self, local: &Local) -> bool {
        local.totals().estimated && self.exact.is_none() && !self.failed
    }

    /// Begins a count of a clean PG, or its next page.
    pub(super) fn tick(&mut self, local: &Local, at: &Interval, sh: &mut Shared) {
        if !self.wants_more(local) {
            return;
        }
        let (first, to) = key::range(at.pg.seed, local.pg_num);
        self.numbers += 1;
        let number = self.numbers;
        let count = self.count.get_or_insert_with(|| Count {
            from: first,
            ..Count::default()
        });
        if count.page.is_some() {
            return;
        }
        count.page = Some(Page::default());
        count.number = number;
        let read = Read::List {
            collection: key::collection(at.pg.pool, at.pg.shard),
            from: count.from.clone(),
            to,
            limit: sh.config.limits.page_objects,
        };
        at.read(sh, read, Purpose::CountList(number));
    }

    fn page_of(&mut self, number: u64) -> Option<&mut Page> {
        let count = self.count.as_mut().filter(|count| count.number == number);
        count?.page.as_mut()
    }

    /// The store has listed a page.
    pub(super) fn on_list(
        &mut self,
        number: u64,
        reply: Result<ReadReply, ReadError>,
        at: &Interval,
        sh: &mut Shared,
    ) {
        let Some(page) = self.page_of(number) else {
            return;
        };
        let (keys, more) = match reply {
            Ok(ReadReply::List { keys, more }) => (keys, more),
            Err(ReadError::NotFound) => (Vec::new(), false),
            _ => {
                self.give_up();
                return;
            }
        };
        page.end = more
            .then(|| {
                keys.last()
                    .map(|last| Bytes::from([&last[..], &[0]].concat()))
            })
            .flatten();
        page.waiting = keys.len();
        sh.counters.borders.count_pages += u64::from(more);
        let collection = key::collection(at.pg.pool, at.pg.shard);
        for position in keys {
            let read = Read::Stat(ObjectKey::new(collection, position.clone()));
            at.read(sh, read, Purpose::CountStat { number, position });
        }
        self.end_page(number);
    }

    /// The size of an object of the page was read.
    pub(super) fn on_stat(
        &mut self,
        number: u64,
        position: Bytes,
        reply: Result<ReadReply, ReadError>,
    ) {
        let Some(page) = self.page_of(number) else {
            return;
        };
        let size = match reply {
            Ok(ReadReply::Stat(stat)) => stat.map(|stat| stat.size),
            Err(ReadError::NotFound) => None,
            _ => {
                self.give_up();
                return;
            }
        };
        page.sizes.insert(position, size);
        page.waiting -= 1;
        self.end_page(number);
    }

    fn give_up(&mut self) {
        (self.count, self.failed) = (None, true);
    }

    fn end_page(&mut self, number: u64) {
        if self.page_of(number).is_none_or(|page| page.waiting > 0) {
            return;
        }
        let count = self.count.as_mut().expect("just seen");
        let Page {
            end,
            mut sizes,
            changed,
            ..
        } = count.page.take().expect("just seen");
        let inside = |position: &Bytes| end.as_ref().is_none_or(|end| position < end);
        sizes.extend(changed.into_iter().filter(|(position, _)| inside(position)));
        for size in sizes.into_values().flatten() {
            count.sum.objects += 1;
            count.sum.bytes += size;
        }
        match end {
            Some(end) => count.from = end,
            None => {
                self.exact = Some(count.sum);
                self.count = None;
            }
        }
    }

    /// An update that changes an object's size (from or to none, if it is created or deleted) is
    /// ordered; returns the PG's totals after it.
    pub(super) fn after_update(
        &mut self,
        object: &ObjectId,
        (before, after): (Option<u64>, Option<u64>),
        local: &Local,
    ) -> Totals {
        let step = |totals: Totals| Totals {
            objects: (totals.objects + u64::from(after.is_some()))
                .saturating_sub(u64::from(before.is_some())),
            bytes: (totals.bytes + after.unwrap_or(0)).saturating_sub(before.unwrap_or(0)),
            estimated: totals.estimated,
        };
        let totals = step(self.totals(local));
        // From now on the log carries the totals.
        self.exact = None;
        if let Some(count) = &mut self.count {
            let position = key::position(object);
            if position < count.from {
                count.sum = step(count.sum);
            } else if let Some(page) = &mut count.page {
                page.changed.insert(position, after);
            }
        }
        totals
    }
}
