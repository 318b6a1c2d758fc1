//! Erasing the local data of a PG: its pool was removed, or it is clean without us.
//!
//! ```text
//!  begin ─▶ mark: backfill cursor at the PG's beginning, no object is valid ── durable before anything else
//!        ─▶ page ─▶ durable ─▶ pause ─▶ page … ─▶ metadata object
//! ```
//! Erasing takes many transactions. An interval change, a crash or a split may come between any two
//! of them, and the map may assign the PG to this member again: the mark records that it has
//! nothing, so it is backfilled. Without the mark a PG that had lost half of its objects reported
//! itself complete (F2).
//!
//! One page at a time in the whole daemon, with pauses: clients have priority. (Removing a pool of
//! 60,000 objects stopped a cluster for 2.5 s, F41.)

use super::Interval;
use super::local::Local;
use crate::key;
use crate::purpose::Purpose;
use crate::shared::Shared;
use nacre_store::{ObjectKey, Op, Read, ReadError, ReadReply};
use std::time::Duration;

/// Minimum time between two pages.
const PAUSE: Duration = Duration::from_millis(5);
/// A page that takes longer than this no longer blocks others: the state of its PG may have
/// changed.
const PAGE_MAX: Duration = Duration::from_secs(2);

/// The progress of erasing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Erasing {
    /// Nothing is to be erased.
    #[default]
    No,
    /// The next page is to be taken in our turn.
    Due,
    /// A page is being listed, or its removal is being stored.
    UnderWay,
}

impl Erasing {
    /// Marks durably that no object here is valid.
    pub(super) fn begin(local: &mut Local, at: &Interval, sh: &mut Shared) -> Self {
        let mut ops = Vec::new();
        local.mark_worthless(&mut ops);
        at.submit(sh, ops, Purpose::Nothing);
        sh.wake_at(sh.erase_at);
        Self::Due
    }

    /// Takes the next page if it is due.
    pub(super) fn tick(&mut self, local: &Local, at: &Interval, sh: &mut Shared) {
        if *self != Self::Due {
            return;
        }
        if sh.erase_at > sh.now {
            sh.wake_at(sh.erase_at);
            return;
        }
        sh.erase_at = sh.now + PAGE_MAX;
        sh.erases = Some(at.pg);
        *self = Self::UnderWay;
        let (from, to) = key::range(at.pg.seed, local.pg_num);
        let collection = key::collection(at.pg.pool, at.pg.shard);
        let read = Read::List {
            collection,
            from,
            to,
            limit: sh.config.limits.erase_objects,
        };
        at.read(sh, read, Purpose::EraseList);
    }

    /// The store has listed a page.
    pub(super) fn on_list(
        &mut self,
        reply: Result<ReadReply, ReadError>,
        local: &mut Local,
        at: &Interval,
        sh: &mut Shared,
    ) {
        if *self != Self::UnderWay {
            return;
        }
        let (keys, more) = match reply {
            Ok(ReadReply::List { keys, more }) => (keys, more),
            Err(ReadError::NotFound) => (Vec::new(), false),
            // Not now: the page is read again later.
            Err(_) | Ok(_) => {
                *self = Self::Due;
                page_over(at, sh);
                return;
            }
        };
        let collection = key::collection(at.pg.pool, at.pg.shard);
        let mut ops: Vec<Op> = keys
            .into_iter()
            .map(|key| Op::Remove(ObjectKey::new(collection, key)))
            .collect();
        if more {
            sh.counters.borders.erase_pages += 1;
            at.submit(sh, ops, Purpose::Erased);
        } else {
            local.erase(&mut ops);
            at.submit(sh, ops, Purpose::Nothing);
            *self = Self::No;
            page_over(at, sh);
        }
    }

    /// A page is durably erased.
    pub(super) fn on_erased(&mut self, at: &Interval, sh: &mut Shared) {
        if *self == Self::UnderWay {
            *self = Self::Due;
            page_over(at, sh);
        }
    }
}

/// The next page, of any PG, may begin after a pause.
fn page_over(at: &Interval, sh: &mut Shared) {
    // A page that took too long may no longer be the current one.
    if sh.erases == Some(at.pg) {
        sh.erases = None;
        sh.erase_at = sh.now + PAUSE;
    }
    sh.wake_at(sh.erase_at);
}
