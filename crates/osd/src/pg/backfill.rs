//! Backfill: bringing a member up to date whose log does not reach back far enough, by comparing
//! contents (CEPH-51).
//!
//! ```text
//!  positions   first ─────────── cursor ──── end ─────────── last
//!  target has  everything, and     │ being    │ whatever it had; nobody counts on it
//!              gets updates        │ compared │ gets only log entries
//! ```
//! A range is compared at a time: the primary lists its objects, the target lists its own; what
//! differs is pushed, what the target has too much is removed. Objects of the range are held
//! meanwhile. Then the target stores the new cursor, and only then does the primary count on it.
//! When all targets are complete the monitors are asked to end the temporary acting set. Several
//! targets are compared with one listing each, one after the other; a new interval goes on at the
//! target's stored cursor.
//!
//! Each comparison has a number, in one order with those of transfers: what is late of an earlier
//! one counts for nothing, at either side. (A target had fallen behind and started over within an
//! interval; then the cursor came again that it had been told before. It counted as having what had
//! been deleted since: simulator, seed 2651.)
//!
//! A range ends between two names, never between two objects of one name: an update that makes a
//! clone of its live object, or the live object of a clone, goes to targets that have both or
//! neither.

use super::local::Local;
use super::transfer::version_of;
use super::{ByObject, Lead};
use crate::awaited::Awaited;
use crate::shared::Shared;
use crate::{Mutant, key, mutant};
use bytes::Bytes;
use nacre_store::{Read, ReadError, ReadReply};
use nacre_types::{ObjectId, OsdId, Time, Version};
use nacre_wire::Message;
use nacre_wire::map::flag;
use nacre_wire::msg::replication::{Progress, ProgressAck, ScanQuery, ScanReply};
use std::collections::BTreeSet;

/// What backfill is doing at the primary.
#[derive(Debug, Default)]
pub struct Backfill {
    pub(super) work: Option<Work>,
    /// Of targets without room.
    pub(super) sweeps: super::sweep::Sweeps,
    /// Something in the range could not be read: not before then.
    pause_until: Option<Time>,
    /// When to ask the monitors again for another acting set.
    pub(super) ask_at: Time,
    /// Asked to end a temporary one, and the interval has not ended yet.
    pub(super) asked: bool,
}

impl Backfill {
    pub(super) fn is_busy(&self) -> bool {
        self.work.is_some() || self.asked || self.pause_until.is_some()
    }
    /// How many objects are held for a range.
    pub(super) fn holds(&self) -> usize {
        self.work.as_ref().map_or(0, |work| work.held.len())
    }
    /// Whether a range is under way.
    pub(crate) fn has_range(&self) -> bool {
        self.work.is_some()
    }
    /// Which comparison is under way.
    #[cfg(test)]
    pub(crate) fn round(&self) -> u64 {
        self.work.as_ref().map_or(0, |work| work.round)
    }
    /// An update of the object has got its place in the log.
    pub(super) fn note(&mut self, object: &ObjectId) {
        if let Some(work) = self
            .work
            .as_mut()
            .filter(|work| work.theirs.is_some() && !work.compared)
            && work.is_inside(object)
        {
            work.fresh.insert(object.clone());
        }
    }
}

/// A range that has not moved for so many looks is given up: some eight seconds.
const STUCK_MAX: u32 = 10;
/// One that waits for an update to be ordered, after so many looks: within two seconds.
const UNORDERED_MAX: u32 = 1;
/// How long nothing is compared then, in intervals of repetition: ten seconds, usually, and two.
const PAUSE: u32 = 25;
const PAUSE_SHORT: u32 = 5;

/// One range of one target.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) target: OsdId,
    /// Its target has no room: nothing is pushed, and the cursor stays (`sweep.rs`).
    sweeps: bool,
    /// Objects that the target has had too much.
    pub(super) removed: usize,
    /// See [`ScanQuery::round`].
    round: u64,
    from: Bytes,
    /// Everything before is compared now; `None`: to the group's end.
    pub(super) end: Option<Bytes>,
    ours: Option<ByObject<Version>>,
    theirs: Option<ByObject<Version>>,
    listed: Vec<ObjectId>,
    /// What was ordered since our listing was asked for: it may have come into being.
    fresh: BTreeSet<ObjectId>,
    stats: usize,
    /// What was ordered before the range was held; `None` while an update in it still reads before
    /// it is ordered.
    ordered: Option<Version>,
    pushing: BTreeSet<ObjectId>,
    pub(super) held: Vec<ObjectId>,
    compared: bool,
    /// Looks since it is held that found an update in it that had no place in the log yet.
    unordered: u32,
    stored: bool,
    /// How often nothing of it had moved when it was looked at again: so many objects were left
    /// each time.
    stuck: (u32, (usize, u64)),
    retry_at: Time,
}

impl Work {
    fn is_inside(&self, object: &ObjectId) -> bool {
        let position = key::position(object);
        position >= self.from && self.end.as_ref().is_none_or(|end| position < *end)
    }
}

impl Lead<'_> {
    /// Goes on with the next range, if there is one and nothing is under way.
    pub(super) fn start_backfill(&mut self, sh: &mut Shared) {
        let stopped = sh
            .map
            .as_ref()
            .is_some_and(|map| map.flags & flag::NO_BACKFILL != 0);
        let now = sh.now;
        let targets: Vec<OsdId> = self.interval.backfill_targets().collect();
        let (pg, interval, limit) = (
            self.id(),
            self.interval.since,
            sh.config.limits.scan_objects,
        );
        // It is recovered first, and then we are called again.
        let missing_here = !self.local.missing.is_empty();
        let primary = &mut *self.primary;
        if !primary.is_peered() || primary.backfill.work.is_some() {
            return;
        }
        let behind = |osd: &OsdId| {
            let peer = primary
                .peers
                .get(osd)
                .filter(|peer| peer.catching.is_none())?;
            peer.backfill.clone().map(|cursor| (*osd, cursor))
        };
        let behind: Vec<(OsdId, Bytes)> = targets.iter().filter_map(behind).collect();
        if behind.is_empty() {
            self.ask_for_the_complete(sh);
            return;
        }
        if stopped || missing_here {
            return;
        }
        // Who has no room would keep everybody from writing to the range, and from deleting in it.
        let fill = behind
            .iter()
            .find(|(osd, _)| !sh.peers.is_nearly_full(*osd))
            .cloned()
            .map(|next| (next, false));
        let sweep = || {
            primary
                .backfill
                .sweeps
                .next(behind.into_iter(), now)
                .map(|next| (next, true))
        };
        let Some(((target, from), sweeps)) = fill.or_else(sweep) else {
            sh.wake_at(now + sh.config.timing.retry_interval * 5);
            return;
        };
        if let Some(until) = primary.backfill.pause_until.filter(|until| now < *until) {
            sh.wake_at(until);
            return;
        }
        primary.backfill.pause_until = None;
        if !self.counted.range && sh.backfilling >= sh.config.limits.backfill_groups {
            sh.counters.borders.backfill_waits += 1;
            sh.backfill_waits.insert(pg);
            return;
        }
        self.counted.count_range(true, sh);
        let round = self.sending.number(now);
        let primary = &mut *self.primary;
        primary.backfill.work = Some(Work {
            target,
            sweeps,
            removed: 0,
            round,
            from: from.clone(),
            end: None,
            ours: None,
            theirs: None,
            listed: Vec::new(),
            fresh: BTreeSet::new(),
            stats: 0,
            ordered: None,
            pushing: BTreeSet::new(),
            held: Vec::new(),
            compared: false,
            unordered: 0,
            stored: false,
            stuck: (0, (0, 0)),
            retry_at: now + sh.config.timing.retry_interval * 2,
        });
        sh.send(
            target,
            Message::ScanQuery(ScanQuery {
                pg,
                interval,
                from,
                limit,
                round,
            }),
        );
    }

    /// The target's objects arrived: list ours.
    pub fn on_scan_reply(&mut self, from: OsdId, message: ScanReply, sh: &mut Shared) {
        let limit = sh.config.limits.scan_objects as usize;
        let primary = &mut *self.primary;
        let Some(work) = &mut primary.backfill.work else {
            return;
        };
        if work.target != from || work.round != message.round || work.theirs.is_some() {
            return;
        }
        work.theirs = Some(message.objects.into_iter().collect());
        sh.counters.borders.scan_pages += u64::from(message.to.is_some());
        work.end = message.to;
        let (from, round) = (work.from.clone(), work.round);
        let read = range_read(from, limit, self.local);
        self.interval
            .read(sh, read, Awaited::BackfillList { round, limit });
    }

    pub(super) fn on_backfill_list(
        &mut self,
        (round, limit): (u64, usize),
        reply: Result<ReadReply, ReadError>,
        sh: &mut Shared,
    ) {
        let missing: Vec<ObjectId> = self.local.missing.keys().cloned().collect();
        let primary = &mut *self.primary;
        let awaits =
            |work: &&mut Work| work.round == round && work.theirs.is_some() && work.ours.is_none();
        let Some(work) = primary.backfill.work.as_mut().filter(awaits) else {
            return;
        };
        let Ok(ReadReply::List { keys, more }) = reply else {
            self.abandon_range(sh);
            return;
        };
        let (keys, ours) = match whole_names(keys, more, limit) {
            Ok(whole) => whole,
            Err(limit) => {
                let from = work.from.clone();
                let (pg, since, read) = (
                    self.id(),
                    self.interval.since,
                    range_read(from, limit, self.local),
                );
                sh.read(pg, since, read, Awaited::BackfillList { round, limit });
                return;
            }
        };
        // The range ends where the shorter of the two listings does.
        if let Some(ours) = ours {
            work.end = Some(
                work.end
                    .take()
                    .map_or(ours.clone(), |theirs| theirs.min(ours)),
            );
        }
        let inside = |position: &[u8]| work.end.as_ref().is_none_or(|end| position < &end[..]);
        let mut objects: BTreeSet<ObjectId> = keys
            .iter()
            .filter(|key| inside(key))
            .filter_map(|key| key::object_at(key))
            .collect();
        objects.extend(missing.into_iter().filter(|object| {
            let position = key::position(object);
            position >= work.from && inside(&position)
        }));
        work.listed = objects.into_iter().collect();
        work.ours = Some(ByObject::default());
        work.stats = 0;
        sh.counters.scanned += work.listed.len() as u64;
        let theirs: Vec<ObjectId> = work
            .theirs
            .iter()
            .flatten()
            .map(|(object, _)| object)
            .filter(|object| inside(&key::position(object)))
            .cloned()
            .collect();
        // Nothing in the range may change until the cursor is behind it.
        let held: BTreeSet<ObjectId> = work.listed.iter().cloned().chain(theirs).collect();
        work.held = held.iter().cloned().collect();
        for object in &held {
            primary.objects.get(object).held += 1;
        }
        self.backfill_tick(sh);
    }

    /// Whether a client may not change the object because a range that contains it is being
    /// compared.
    pub(super) fn in_compared_range(&self, object: &ObjectId) -> bool {
        let Some(work) = self.primary.backfill.work.as_ref() else {
            return false;
        };
        work.ours.is_some() && work.is_inside(object)
    }

    /// Goes on as far as possible: what hangs on updates in flight, recovery or lost messages is
    /// looked at again.
    pub(super) fn backfill_tick(&mut self, sh: &mut Shared) {
        let (pg, since) = (self.id(), self.interval.since);
        let limit = sh.config.limits.scan_objects;
        let missing_here = !self.local.missing.is_empty();
        let head = self.local.log.head();
        let target = self.primary.backfill.work.as_ref().map(|work| work.target);
        let parts_out = target.map_or(0, |target| self.sending.parts_out(target));
        let primary = &mut *self.primary;
        let Some(work) = &mut primary.backfill.work else {
            self.start_backfill(sh);
            return;
        };
        // An update that still reads what it will change was let through before the range was held.
        // What clients do to other objects meanwhile keeps nobody waiting.
        let stands = work.ours.is_some() && work.ordered.is_none();
        if stands
            && !primary
                .objects
                .is_about_to_change(|object| work.is_inside(object))
        {
            work.ordered = Some(head);
            // Nothing is ordered any more. What has been since our listing may not be in it: an
            // update that was still reading made a clone, or the object itself.
            let fresh = std::mem::take(&mut work.fresh);
            let fresh: Vec<ObjectId> = fresh
                .into_iter()
                .filter(|object| work.is_inside(object))
                .collect();
            for object in fresh
                .into_iter()
                .filter(|object| !work.listed.contains(object))
                .collect::<Vec<_>>()
            {
                primary.objects.get(&object).held += 1;
                work.held.push(object.clone());
                work.listed.push(object);
            }
        }
        let idle = work
            .ordered
            .is_some_and(|version| primary.committed >= version);
        let again = work.retry_at <= sh.now;
        if again {
            work.retry_at = sh.now + sh.config.timing.retry_interval * 2;
        }
        if work.theirs.is_none() {
            if again {
                let query = ScanQuery {
                    pg,
                    interval: since,
                    from: work.from.clone(),
                    limit,
                    round: work.round,
                };
                sh.send(work.target, Message::ScanQuery(query));
            }
            return;
        }
        if work.ours.is_none() {
            return;
        }
        if !work.compared {
            // A call may be evaluated for seconds, on a busy machine for a minute: nobody's writes
            // to all the other objects wait for that (simulator, seed 2838).
            if work.ordered.is_none() && again {
                work.unordered += 1;
                if work.unordered > UNORDERED_MAX {
                    self.abandon_range_for(PAUSE_SHORT, sh);
                    return;
                }
            }
            // What we miss ourselves may be with somebody who is away for long: nobody's writes
            // wait for that (simulator, seed 310: an object that only an OSD that was down had kept
            // all the objects of the range from being written).
            if missing_here && again {
                self.abandon_range(sh);
                return;
            }
            // Updates that were ordered before the range was held must be in our store and
            // everybody's log first.
            if !idle || missing_here || work.stats > 0 {
                sh.wake_at(sh.now + sh.config.timing.retry_interval / 8);
                return;
            }
            if work
                .ours
                .as_ref()
                .is_some_and(|ours| ours.len() < work.listed.len())
            {
                work.stats = work.listed.len();
                let (listed, round) = (work.listed.clone(), work.round);
                for (index, object) in listed.iter().enumerate() {
                    sh.read(
                        pg,
                        since,
                        Read::Stat(key::store_key(pg, object)),
                        Awaited::BackfillStat { round, index },
                    );
                }
                return;
            }
            self.compare_range(sh);
            return;
        }
        if again && !work.pushing.is_empty() {
            let left = (work.pushing.len(), parts_out);
            work.stuck = if work.stuck.1 == left {
                (work.stuck.0 + 1, left)
            } else {
                (0, left)
            };
            if work.stuck.0 >= STUCK_MAX {
                self.give_range_up(sh);
            } else {
                self.push_what_is_left(sh);
            }
            return;
        }
        if work.sweeps && work.pushing.is_empty() {
            self.end_swept_range(sh);
            return;
        }
        if work.pushing.is_empty() && (!work.stored || again) {
            work.stored = true;
            let (target, cursor, round) = (work.target, work.end.clone(), work.round);
            sh.send(
                target,
                Message::Progress(Progress {
                    pg,
                    interval: since,
                    cursor,
                    round,
                }),
            );
        }
    }

    /// What of the range is not on its way: it could not be read when it was to be sent, and may
    /// have been healed since.
    fn push_what_is_left(&mut self, sh: &mut Shared) {
        let head = self.local.log.head();
        let Some(work) = self.primary.backfill.work.as_ref() else {
            return;
        };
        let target = work.target;
        let version = |object: &ObjectId| {
            work.ours
                .as_ref()
                .and_then(|ours| ours.get(object))
                .copied()
        };
        let left = work
            .pushing
            .iter()
            .filter(|object| !self.sending.is_outgoing(target, object));
        let left = left.filter(|object| !self.local.missing.contains_key(*object));
        let left: Vec<_> = left
            .map(|object| (object.clone(), version(object).unwrap_or_default()))
            .collect();
        for (object, version) in left {
            if version == Version::NONE {
                self.push_absence(target, &object, head, sh);
            } else {
                self.push_object(target, &object, version, sh);
            }
        }
    }

    pub(super) fn on_backfill_stat(
        &mut self,
        (round, index): (u64, usize),
        reply: Result<ReadReply, ReadError>,
        sh: &mut Shared,
    ) {
        let primary = &mut *self.primary;
        let Some(work) = primary
            .backfill
            .work
            .as_mut()
            .filter(|work| work.round == round)
        else {
            return;
        };
        let (Some(object), Some(ours)) = (work.listed.get(index).cloned(), &mut work.ours) else {
            return;
        };
        if work.stats == 0 {
            return;
        }
        let version = match reply {
            Ok(ReadReply::Stat(Some(stat))) => version_of(&stat),
            Ok(_) | Err(ReadError::NotFound) => Version::NONE,
            // What we cannot read is not gone: the target must not be told to remove it.
            Err(_) => {
                self.abandon_range(sh);
                return;
            }
        };
        ours.insert(object, version);
        work.stats = work.stats.saturating_sub(1);
        if work.stats == 0 {
            self.backfill_tick(sh);
        }
    }

    fn compare_range(&mut self, sh: &mut Shared) {
        let head = self.local.log.head();
        let work = self.primary.backfill.work.as_mut().expect("comparing");
        work.compared = true;
        let target = work.target;
        let ours = work.ours.clone().expect("listed");
        let theirs = work.theirs.clone().expect("listed");
        let end = work.end.clone();
        let inside =
            |object: &ObjectId| end.as_ref().is_none_or(|end| key::position(object) < *end);
        let differs = |(object, version): &(&ObjectId, &Version)| {
            **version != Version::NONE && theirs.get(*object) != Some(*version)
        };
        let push: Vec<(ObjectId, Version)> = match work.sweeps {
            true => Vec::new(),
            false => ours
                .iter()
                .filter(differs)
                .map(|(object, version)| (object.clone(), *version))
                .collect(),
        };
        let gone = |object: &ObjectId| {
            ours.get(object)
                .is_none_or(|version| *version == Version::NONE)
        };
        let remove: Vec<ObjectId> = if mutant(Mutant::BackfillResurrects) {
            Vec::new()
        } else {
            theirs
                .keys()
                .filter(|object| inside(object) && gone(object))
                .cloned()
                .collect()
        };
        work.removed = remove.len();
        work.pushing = push
            .iter()
            .map(|(object, _)| object.clone())
            .chain(remove.iter().cloned())
            .collect();
        for (object, version) in push {
            self.push_object(target, &object, version, sh);
        }
        for object in remove {
            self.push_absence(target, &object, head, sh);
        }
        self.backfill_tick(sh);
    }

    pub(super) fn backfill_on_pushed(&mut self, to: OsdId, object: &ObjectId, sh: &mut Shared) {
        let Some(work) = self.primary.backfill.work.as_mut() else {
            return;
        };
        if work.target == to && work.pushing.remove(object) && work.pushing.is_empty() {
            self.backfill_tick(sh);
        }
    }

    /// We have an object again that could not be read when it was to be pushed.
    pub(super) fn backfill_on_repaired(&mut self, object: &ObjectId, sh: &mut Shared) {
        let Some(work) = self.primary.backfill.work.as_ref() else {
            return;
        };
        let version = work
            .ours
            .as_ref()
            .and_then(|ours| ours.get(object))
            .copied()
            .unwrap_or_default();
        let target = work.target;
        if work.compared && work.pushing.contains(object) && version != Version::NONE {
            self.push_object(target, object, version, sh);
        }
    }

    /// The range that the object is in cannot be finished, if one is under way.
    pub(super) fn abandon_range_of(&mut self, object: &ObjectId, sh: &mut Shared) {
        let work = self.primary.backfill.work.as_ref();
        if work.is_some_and(|work| work.pushing.contains(object)) {
            self.abandon_range(sh);
        }
    }

    /// The target of the range starts over, if there is one.
    pub(super) fn abandon_range_to(&mut self, target: OsdId, sh: &mut Shared) {
        let work = self.primary.backfill.work.as_ref();
        if work.is_some_and(|work| work.target == target) {
            self.abandon_range(sh);
        }
    }

    /// Clients may write to what was held for a range.
    pub(super) fn release_range(&mut self, held: Vec<ObjectId>, sh: &mut Shared) {
        for object in held {
            self.release_object(&object, sh);
        }
        self.process_all_objects(sh);
    }

    /// Begins the range anew, later: clients may write to it meanwhile, which is how an object that
    /// nobody can read becomes whole.
    fn abandon_range(&mut self, sh: &mut Shared) {
        self.abandon_range_for(PAUSE, sh);
    }

    /// The same, where less time is enough.
    fn abandon_range_for(&mut self, pause: u32, sh: &mut Shared) {
        let until = sh.now + sh.config.timing.retry_interval * pause;
        let primary = &mut *self.primary;
        let Some(work) = primary.backfill.work.take() else {
            return;
        };
        primary.backfill.pause_until = Some(until);
        sh.wake_at(until);
        // What is on its way for this range would be late for the next.
        for object in &work.pushing {
            if !self.lacks(work.target, object) {
                self.end_outgoing(work.target, object, sh);
            }
        }
        self.release_range(work.held, sh);
    }

    /// Nothing of the range moves: its target takes nothing more, or what is to be sent cannot be
    /// read. Nobody's writes wait for that.
    fn give_range_up(&mut self, sh: &mut Shared) {
        let Some(work) = self.primary.backfill.work.as_ref() else {
            return;
        };
        let (target, left) = (work.target, work.pushing.clone());
        for object in left {
            self.end_outgoing(target, &object, sh);
        }
        self.abandon_range(sh);
    }

    /// The target has stored its cursor.
    pub fn on_progress_ack(&mut self, from: OsdId, message: &ProgressAck, sh: &mut Shared) {
        let primary = &mut *self.primary;
        let done =
            |work: &mut Work| work.target == from && work.stored && work.round == message.round;
        let Some(work) = primary.backfill.work.take_if(|work| done(work)) else {
            return;
        };
        if let Some(peer) = primary.peers.get_mut(&from) {
            peer.backfill.clone_from(&message.cursor);
        }
        self.release_range(work.held, sh);
        self.start_backfill(sh);
    }
}

/// Lists objects of the group.
pub(super) fn range_read(from: Bytes, limit: usize, local: &Local) -> Read {
    let id = local.pg();
    let (_, to) = key::range(id.seed, local.pg_num);
    Read::List {
        collection: key::collection(id.pool, id.shard),
        from,
        to,
        limit,
    }
}

/// The positions of a listing without those of its last name, if there may be more of that, and
/// where it ends then. If it has only that one name: how many to list instead. A store may list
/// less than it was asked for though there is more: twice what came could be what was asked for,
/// again and again (simulator, seed 398: two, of which one came).
pub(super) fn whole_names(
    mut keys: Vec<Bytes>,
    more: bool,
    limit: usize,
) -> Result<(Vec<Bytes>, Option<Bytes>), usize> {
    if !more {
        return Ok((keys, None));
    }
    let Some(last) = keys.last() else {
        return Err(limit.saturating_mul(2));
    };
    let end = last.slice(..last.len().saturating_sub(key::NUMBERS_LEN));
    let whole = keys.partition_point(|key| *key < end);
    if whole == 0 {
        return Err(limit.saturating_mul(2));
    }
    keys.truncate(whole);
    Ok((keys, Some(end)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::SnapId;

    #[test]
    fn a_range_ends_between_names() {
        let mut keys: Vec<Bytes> = Vec::new();
        for name in ["a", "b", "b\0c"] {
            for snapshot in [SnapId(3), SnapId(7), SnapId::HEAD] {
                keys.push(key::position(&ObjectId {
                    snapshot,
                    ..ObjectId::named(name)
                }));
            }
        }
        keys.sort();
        for listed in 1..=keys.len() {
            let page = keys[..listed].to_vec();
            assert_eq!(
                whole_names(page.clone(), false, listed),
                Ok((page.clone(), None))
            );
            match whole_names(page, true, 5) {
                Err(limit) => assert_eq!(
                    (listed <= 3, limit),
                    (true, 10),
                    "twice what was asked for, not what came"
                ),
                Ok((whole, end)) => {
                    let end = end.expect("there is more");
                    assert_eq!(whole.len(), (listed - 1) / 3 * 3);
                    assert!(
                        keys.iter().all(|key| (*key < end) == whole.contains(key)),
                        "no name is on both sides"
                    );
                }
            }
        }
        assert_eq!(
            whole_names(Vec::new(), true, 4),
            Err(8),
            "nothing came, and it is not the end"
        );
    }
}
