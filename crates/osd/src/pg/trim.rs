//! Trimming: removes clones that preserve only removed snapshots, and orphans; their space is
//! reclaimed (CHECKLIST CEPH-09).
//!
//! ```text
//!  the map removes a snapshot, or an interval begins
//!    ─▶ a page of the PG's objects  ─▶ names that have clones ─▶ a few at a time, in the live object's queue:
//!         log:  n    live  SnapSet without the removed; deleted, if it existed only for them
//!               n+1  :3    Remove                       the live object first: an interruption leaves an orphan for the next pass
//! ```
//! Only the primary of a clean PG trims. If an OSD is nearly full, the primary of any PG that is
//! served trims, provided that no member lacks an object of the name: recovery and backfill may
//! have to wait for the very space that trimming frees (simulator, small devices full of clones,
//! seeds 2851 and 3761). If a member lacks a clone, its removal must not remove the last replica:
//! an interval that ends before the removal is committed brings back the live object, which names
//! the clone (seed 4961).
//!
//! The progress of a pass is stored in the objects. The first pass of an interval examines all
//! clones of the PG, for orphans. Later passes examine only clones that may preserve a snapshot
//! removed since the last pass: a clone's snapshots come after the previous clone of its name. The
//! index lists the clones ([`crate::clones`]): the cost of a pass grows with clones, not with
//! objects (F52).
//!
//! Invariant: a clone is removed when no SnapSet names it any more, or with the update that removes
//! it from the SnapSet that does.

use super::local::{Local, Ops};
use super::pending::Pending;
use super::snapshots::orphans;
use super::update::Answer;
use super::watch::Own;
use super::{Interval, Lead};
use crate::clones::{self, Ranges};
use crate::key;
use crate::purpose::Purpose;
use crate::shared::Shared;
use bytes::Bytes;
use nacre_object::Context;
use nacre_object::snaps;
use nacre_store::{Read, ReadError, ReadReply};
use nacre_types::{Entity, ObjectId, SnapId, Time, Version};
use nacre_wire::msg::replication::Effect;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

/// The number of names examined or trimmed at one time, per PG.
const ROOM: usize = 4;

/// Bytes of names of one page.
const PAGE_BYTES: usize = 1 << 20;

/// The state of trimming at the primary.
#[derive(Debug, Default)]
pub struct Trimming {
    /// The pool's removed snapshots at the time of the current or last pass; `None` before the
    /// first.
    seen: Option<Ranges>,
    /// Those of the last completed pass.
    done: Option<Ranges>,
    /// The snapshots that this pass looks for; `None`: all clones.
    new: Option<Ranges>,
    /// A pass is due or in progress.
    pub(super) pending: bool,
    /// The beginning of the next page; `None`: the last was read.
    from: Option<Bytes>,
    /// The number of the page being read; the reply of an abandoned pass has another number.
    listing: Option<u64>,
    pages: u64,
    /// Live objects whose names have clones, with the clones.
    candidates: VecDeque<(ObjectId, BTreeSet<SnapId>)>,
    /// Objects in their queues, and those whose last update is not committed yet.
    busy: BTreeMap<ObjectId, Option<Version>>,
    filling: bool,
    /// A name of this pass could not be examined: the next pass looks for the same snapshots as
    /// well.
    failed: bool,
    /// A member lacks an object of a name of this pass: the pass is repeated.
    lacked: bool,
    /// This pass is a repetition for that reason.
    again: bool,
    /// Not before then.
    not_before: Time,
}

impl Trimming {
    /// The number of names that wait in their queues.
    pub(super) fn in_queues(&self) -> usize {
        self.busy
            .values()
            .filter(|version| version.is_none())
            .count()
    }

    /// Whether a name could not be trimmed because a member lacks an object of it. If no snapshot
    /// was ever removed, trimming frees no space.
    pub(super) fn lacks(&self) -> bool {
        (self.lacked || self.again)
            && self
                .seen
                .as_ref()
                .is_some_and(|removed| !removed.is_empty())
    }

    /// The map may have other snapshots.
    pub(super) fn on_map(&mut self, local: &Local, at: &Interval, sh: &Shared) {
        let map = sh.map.as_ref().expect("called because of a map");
        let Some(pool) = map
            .pools
            .get(&at.pg.pool)
            .filter(|pool| pool.snaps.last.0 > 0)
        else {
            return;
        };
        if self.seen.as_ref() != Some(&pool.snaps.removed) {
            self.seen = Some(pool.snaps.removed.clone());
            let done = self.done.as_ref();
            self.new = done.map(|done| clones::without(&pool.snaps.removed, done));
            self.candidates.clear();
            (self.failed, self.lacked, self.again) = (false, false, false);
            self.not_before = Time::ZERO;
            let (first, _) = key::range(at.pg.seed, local.pg_num);
            (self.pending, self.from, self.listing) = (true, Some(first), None);
        }
    }

    /// The name's turn ended without a result: the next pass examines it again.
    pub(super) fn forget(&mut self, object: &ObjectId) {
        self.busy.remove(object);
        self.failed = true;
    }

    /// Reads the next page of a pass, or ends it.
    fn next_page(&mut self, local: &Local, at: &Interval, sh: &mut Shared) {
        if self.not_before > sh.now
            || self.listing.is_some()
            || !self.candidates.is_empty()
            || !self.busy.is_empty()
        {
            return;
        }
        let (first, to) = key::range(at.pg.seed, local.pg_num);
        let Some(from) = self.from.clone() else {
            self.again = std::mem::take(&mut self.lacked);
            if self.again {
                self.from = Some(first);
                self.not_before = sh.after(10);
                return;
            }
            self.pending = false;
            if !std::mem::take(&mut self.failed) {
                self.done.clone_from(&self.seen);
            }
            return;
        };
        if from == first {
            self.note_missing_clones(local);
        }
        self.pages += 1;
        let page = self.pages;
        self.listing = Some(page);
        let collection = key::collection(at.pg.pool, at.pg.shard);
        let limit = sh.config.limits.page_objects;
        let read = if local.clones_known {
            let (object, from) = (key::clones_key(collection), Bound::Included(from));
            Read::Omap {
                object,
                from,
                to,
                limit_entries: limit,
                limit_bytes: PAGE_BYTES,
            }
        } else {
            Read::List {
                collection,
                from,
                to,
                limit,
            }
        };
        at.read(sh, read, Purpose::TrimList(page));
    }

    /// Objects that we lack ourselves are in no page. Checked once: during an interval only
    /// corruption adds missing objects, and those are in the index.
    fn note_missing_clones(&mut self, local: &Local) {
        let new = &self.new;
        let of_use = |id| {
            new.as_ref()
                .is_none_or(|new| clones::touches(new, SnapId(0), id))
        };
        let mut missing = local
            .missing
            .keys()
            .filter(|object| snaps::is_clone(object));
        self.lacked |= missing.any(|clone| of_use(clone.snapshot));
    }

    /// The store has listed a page. Returns whether its names can be processed.
    fn on_list(&mut self, page: u64, reply: Result<ReadReply, ReadError>, sh: &mut Shared) -> bool {
        // A pass that was restarted meanwhile reads its own first page.
        if self.listing != Some(page) {
            return false;
        }
        self.listing = None;
        let (keys, more) = match reply {
            Ok(ReadReply::List { keys, more }) => (keys, more),
            Ok(ReadReply::Omap { entries, more }) => {
                (entries.into_iter().map(|(key, _)| key).collect(), more)
            }
            Err(ReadError::NotFound) => (Vec::new(), false),
            // Not now: the page is read again.
            _ => return false,
        };
        sh.counters.borders.trim_pages += u64::from(more);
        self.from = more
            .then(|| {
                keys.last()
                    .map(|last| Bytes::from([&last[..], &[0]].concat()))
            })
            .flatten();
        let mut before: Option<ObjectId> = None;
        for clone in keys
            .iter()
            .filter_map(|key| key::object_at(key))
            .filter(snaps::is_clone)
        {
            let live = snaps::live(&clone);
            let follows = before.as_ref().filter(|before| snaps::live(before) == live);
            let after = follows.map_or(SnapId(0), |before| before.snapshot);
            let new = self.new.as_ref();
            let of_use = new.is_none_or(|new| clones::touches(new, after, clone.snapshot));
            before = Some(clone.clone());
            if !of_use {
                continue;
            }
            let last = self.candidates.back_mut();
            match last.filter(|(object, _)| *object == live) {
                Some((_, found)) => drop(found.insert(clone.snapshot)),
                None => {
                    let found = BTreeSet::from([clone.snapshot]);
                    self.candidates.push_back((live, found));
                }
            }
        }
        true
    }
}

impl Lead<'_> {
    /// The store has listed a page of clones.
    pub(super) fn on_trim_list(
        &mut self,
        page: u64,
        reply: Result<ReadReply, ReadError>,
        sh: &mut Shared,
    ) {
        if self.primary.trimming.on_list(page, reply, sh) {
            self.trim_go_on(sh);
        }
    }

    /// Whether trimming is allowed now. See the module head.
    fn may_trim(&self, sh: &Shared) -> bool {
        let active = || self.primary.is_active();
        self.primary.is_clean(self.local, self.interval) || (self.interval.is_full(sh) && active())
    }

    /// Continues a pass, if there is one.
    pub(super) fn trim_tick(&mut self, sh: &mut Shared) {
        if !self.primary.trimming.pending || !self.may_trim(sh) {
            return;
        }
        self.trim_go_on(sh);
        // If clones must be searched among all names, one page per tick is enough.
        if !self.local.clones_known {
            self.primary
                .trimming
                .next_page(self.local, self.interval, sh);
        }
    }

    /// Begins the next names, up to the limit.
    pub(super) fn trim_go_on(&mut self, sh: &mut Shared) {
        let primary = &mut *self.primary;
        if !primary.trimming.pending || primary.trimming.filling {
            return;
        }
        let committed = primary.committed;
        primary
            .trimming
            .busy
            .retain(|_, version| version.is_none_or(|version| version > committed));
        let now = self.may_trim(sh);
        self.primary.trimming.filling = true;
        while now && self.primary.trimming.busy.len() < ROOM {
            let trimming = &mut self.primary.trimming;
            let Some((object, found)) = trimming.candidates.pop_front() else {
                break;
            };
            let lacks = |object: &ObjectId| self.holders().is_lacking(object, sh);
            let lacking = lacks(&object) || found.iter().any(|id| lacks(&snaps::at(&object, *id)));
            let trimming = &mut self.primary.trimming;
            if lacking {
                trimming.lacked = true;
                continue;
            }
            trimming.busy.insert(object.clone(), None);
            self.queue_own(Entity::Osd(sh.me()), &object, Own::Trim { found }, sh);
        }
        self.primary.trimming.filling = false;
        if now && self.local.clones_known && self.primary.trimming.pending {
            self.primary
                .trimming
                .next_page(self.local, self.interval, sh);
        }
    }

    /// The front of a live object's queue, which is to be trimmed. The clones concerned are ready
    /// (`snapshots.rs`).
    pub(super) fn trim_object(
        &mut self,
        op: Box<Pending>,
        found: &BTreeSet<SnapId>,
        before: Context,
        sh: &mut Shared,
    ) {
        let object = op.request.object.clone();
        let pool = self.interval.pool(sh);
        let (after, dead) = pool
            .map(|pool| snaps::trimmed(&before.snaps, &pool.snaps))
            .unwrap_or_default();
        let gone: BTreeSet<SnapId> = dead
            .into_iter()
            .chain(orphans(&before.snaps, found))
            .collect();
        let objects = &self.primary.objects;
        let context = |id: &SnapId| {
            objects
                .peek(&snaps::at(&object, *id))
                .and_then(|state| state.context.as_ref())
        };
        let stored = |id: &SnapId| context(id).is_some_and(Context::is_stored);
        let there: Vec<SnapId> = gone.into_iter().filter(stored).collect();
        let (mut ops, mut ordered) = (Ops::new(), Vec::new());
        if after != before.snaps {
            let mut context = before.clone();
            context.snaps = after;
            context.snaps.whiteout = !context.exists && !context.snaps.clones.is_empty();
            let effects = match context.is_stored() {
                true => vec![snaps::attr_effect(&context.snaps)],
                false => vec![Effect::Remove {}],
            };
            if !context.is_stored() {
                context = Context::default();
            }
            let change = self.ordering().own_change(object.clone(), context, effects);
            ordered.push(self.ordering().order(change, &mut ops, sh));
        }
        for id in there {
            let change = self.ordering().own_change(
                snaps::at(&object, id),
                Context::default(),
                vec![Effect::Remove {}],
            );
            ordered.push(self.ordering().order(change, &mut ops, sh));
        }
        let Some(last) = ordered.last_mut() else {
            op.release(sh);
            self.primary.trimming.busy.remove(&object);
            self.trim_go_on(sh);
            return;
        };
        let version = last.update.version;
        last.update.answers = vec![Answer::new(op, Version::NONE, Vec::new())];
        sh.counters.trimmed += ordered.len() as u64;
        self.primary
            .launch(ordered.into(), ops, self.local, self.interval, sh);
        self.primary.trimming.busy.insert(object, Some(version));
    }
}
