//! Erasing what is here of a group: its pool was removed, or it is clean without us.
//!
//! ```text
//!  begin ─▶ mark: backfill cursor at the group's beginning, nothing counts any more ── durable before anything else
//!        ─▶ page ─▶ durable ─▶ pause ─▶ page … ─▶ metadata object
//! ```
//! Erasing takes many transactions. An interval change, a crash or a split may come between any two
//! of them, and the map may want this member again: the mark says that it has nothing, so it is
//! backfilled. Without it a group that had lost half of its objects called itself complete (F2).
//!
//! One page at a time in the whole daemon, with pauses: clients go first. (Removing a pool of
//! 60,000 objects stopped a cluster for 2.5 s, F41.)

use super::{Awaited, Pg, Role};
use crate::key;
use crate::shared::Shared;
use nacre_store::{ObjectKey, Op, Read, ReadError, ReadReply};
use nacre_types::Time;
use std::time::Duration;

/// Least time between two pages.
const PAUSE: Duration = Duration::from_millis(5);
/// A page that is not over after so long holds back no other: its group may have become something
/// else.
const PAGE_MAX: Duration = Duration::from_secs(2);

/// How far erasing is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Erasing {
    /// Nothing is to be erased.
    #[default]
    No,
    /// The next page is to be taken when it is our turn.
    Due,
    /// A page is being listed, or its removal stored.
    UnderWay,
}

impl Pg {
    pub(super) fn begin_erase(&mut self, sh: &mut Shared) {
        if self.erasing != Erasing::No {
            return;
        }
        self.drop_operations(sh);
        self.role = Role::Stray {
            notify_at: Time::MAX,
        };
        self.end_transfers(sh);
        self.scan = None;
        if !self.local.exists {
            // It never came into being: there is nothing to erase, and nobody's operations wait for
            // it any more.
            return;
        }
        let mut ops = Vec::new();
        self.local.mark_worthless(&mut ops);
        sh.submit(self.id(), self.interval.since, ops, Awaited::Nothing);
        self.erasing = Erasing::Due;
        sh.wake_at(sh.erase_at);
    }

    /// Takes the next page if it is time.
    pub(super) fn erase_tick(&mut self, sh: &mut Shared) {
        if self.erasing != Erasing::Due {
            return;
        }
        if sh.erase_at > sh.now {
            sh.wake_at(sh.erase_at);
            return;
        }
        sh.erase_at = sh.now + PAGE_MAX;
        sh.erases = Some(self.id());
        self.erasing = Erasing::UnderWay;
        let (from, to) = key::range(self.id().seed, self.local.pg_num);
        let collection = key::collection(self.id().pool, self.id().shard);
        let read = Read::List {
            collection,
            from,
            to,
            limit: sh.config.limits.erase_objects,
        };
        sh.read(self.id(), self.interval.since, read, Awaited::EraseList);
    }

    pub(super) fn on_erase_list(&mut self, reply: Result<ReadReply, ReadError>, sh: &mut Shared) {
        if self.erasing != Erasing::UnderWay {
            return;
        }
        let (keys, more) = match reply {
            Ok(ReadReply::List { keys, more }) => (keys, more),
            Err(ReadError::NotFound) => (Vec::new(), false),
            // Not now: the page is read again.
            Err(_) | Ok(_) => {
                self.erasing = Erasing::Due;
                self.page_over(sh);
                return;
            }
        };
        let collection = key::collection(self.id().pool, self.id().shard);
        let mut ops: Vec<Op> = keys
            .into_iter()
            .map(|key| Op::Remove(ObjectKey::new(collection, key)))
            .collect();
        if more {
            sh.counters.borders.erase_pages += 1;
            sh.submit(self.id(), self.interval.since, ops, Awaited::Erased);
        } else {
            self.local.erase(&mut ops);
            sh.submit(self.id(), self.interval.since, ops, Awaited::Nothing);
            self.erasing = Erasing::No;
            self.page_over(sh);
        }
    }

    /// A page is durably gone.
    pub(super) fn on_erased(&mut self, sh: &mut Shared) {
        if self.erasing == Erasing::UnderWay {
            self.erasing = Erasing::Due;
            self.page_over(sh);
        }
    }

    /// The next one may begin after a pause, whichever group's it is.
    fn page_over(&self, sh: &mut Shared) {
        // One that took too long is not the one that is waited for.
        if sh.erases == Some(self.id()) {
            sh.erases = None;
            sh.erase_at = sh.now + PAUSE;
        }
        sh.wake_at(sh.erase_at);
    }
}
