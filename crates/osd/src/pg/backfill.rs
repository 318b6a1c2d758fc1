//! Backfill: brings a member up to date whose log does not reach back far enough, by comparing
//! contents (CEPH-51).
//!
//! ```text
//!  positions   first ─────────── cursor ──── end ─────────── last
//!  target has  everything, and     │ being    │ stale objects; not relied on
//!              gets updates        │ compared │ gets only log entries
//! ```
//! One range is compared at a time: the primary and the target each list their objects. Objects
//! that differ are pushed; objects that only the target has are removed. Clients' writes to objects
//! of the range are held meanwhile. Then the target stores the new cursor, and only then does the
//! primary rely on it. When all targets are complete, the monitors are asked to end the temporary
//! acting set. Several targets are compared with one listing each, one after the other; a new
//! interval continues at the target's stored cursor.
//!
//! Each comparison has a number, in one sequence with those of transfers: late messages of an
//! earlier one are ignored by both sides. (A target had fallen behind and started over within an
//! interval; then it received a cursor that it had received before. It was believed to have objects
//! that had been deleted since: simulator, seed 2651.)
//!
//! A range ends between two names, never between two objects of one name: an update that makes a
//! clone of its live object, or the live object of a clone, goes to targets that have both or
//! neither.

use super::holders::Holders;
use super::local::Local;
use super::primary::Primary;
use super::range::{Ground, PAUSE, Step, Work, range_read};
use super::transfer::{Sending, version_of};
use super::{Counted, Interval, Lead};
use crate::purpose::Purpose;
use crate::shared::Shared;
use bytes::Bytes;
use nacre_store::{ReadError, ReadReply};
use nacre_types::{ObjectId, OsdId, Time, Version};
use nacre_wire::map::flag;
use nacre_wire::msg::replication::{ProgressAck, ScanReply};

/// The state of backfill at the primary.
#[derive(Debug, Default)]
pub struct Backfill {
    pub(super) work: Option<Work>,
    /// Sweeps of targets without space.
    pub(super) sweeps: super::sweep::Sweeps,
    /// Something in the range could not be read: pause until then.
    pause_until: Option<Time>,
    /// When to ask the monitors again for another acting set.
    pub(super) ask_at: Time,
    /// The end of the temporary acting set was requested, and the interval has not ended yet.
    pub(super) asked: bool,
}

impl Backfill {
    pub(super) fn is_busy(&self) -> bool {
        self.work.is_some() || self.asked || self.pause_until.is_some()
    }
    /// The number of objects held for a range.
    pub(super) fn holds(&self) -> usize {
        self.work.as_ref().map_or(0, |work| work.held.len())
    }
    /// Whether a range is being compared.
    pub(crate) fn has_range(&self) -> bool {
        self.work.is_some()
    }
    /// The number of the current comparison.
    #[cfg(test)]
    pub(crate) fn round(&self) -> u64 {
        self.work.as_ref().map_or(0, |work| work.round)
    }
    /// An update of the object has been assigned its position in the log.
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

/// The state of the PG that a new range uses, besides backfill's own.
#[derive(Debug)]
pub(super) struct Fill<'a> {
    pub(super) holders: Holders<'a>,
    pub(super) counted: &'a mut Counted,
    /// Assigns the comparison's number.
    pub(super) sending: &'a mut Sending,
}

impl Backfill {
    /// Begins the next range, if there is one and none is being compared.
    pub(super) fn start(&mut self, of: Fill<'_>, sh: &mut Shared) {
        let map = sh.map.as_ref();
        let stopped = map.is_some_and(|map| map.flags & flag::NO_BACKFILL != 0);
        let (at, now) = (of.holders.interval, sh.now);
        if self.work.is_some() {
            return;
        }
        let behind = |osd: OsdId| {
            let peer = of.holders.peers.get(&osd)?;
            let cursor = peer.backfill.clone().filter(|_| peer.catching.is_none())?;
            Some((osd, cursor))
        };
        let behind: Vec<(OsdId, Bytes)> = at.backfill_targets().filter_map(behind).collect();
        if behind.is_empty() {
            self.ask_for_the_complete(of.holders, sh);
            return;
        }
        // Objects that we miss are recovered first; then this is called again.
        if stopped || !of.holders.missing.is_empty() {
            return;
        }
        // A target without space would block all writes to the range, and deletions in it.
        let fill = behind
            .iter()
            .find(|(osd, _)| !sh.peers.is_nearly_full(*osd))
            .cloned()
            .map(|next| (next, false));
        let sweep = || {
            self.sweeps
                .next(behind.into_iter(), now)
                .map(|next| (next, true))
        };
        let Some(((target, from), sweeps)) = fill.or_else(sweep) else {
            sh.wake_at(sh.after(5));
            return;
        };
        if let Some(until) = self.pause_until.filter(|until| now < *until) {
            sh.wake_at(until);
            return;
        }
        self.pause_until = None;
        if !of.counted.range && sh.backfilling >= sh.config.limits.backfill_groups {
            sh.counters.borders.backfill_waits += 1;
            sh.backfill_waits.insert(at.pg);
            return;
        }
        of.counted.count_range(true, sh);
        let work = Work {
            retry_at: sh.after(2),
            ..Work::new(target, sweeps, of.sending.number(now), from)
        };
        work.ask(at, sh);
        self.work = Some(work);
    }

    /// The target's objects arrived: list ours.
    pub(super) fn on_scan_reply(
        &mut self,
        from: OsdId,
        message: ScanReply,
        local: &Local,
        at: &Interval,
        sh: &mut Shared,
    ) {
        let awaits = |work: &&mut Work| {
            work.target == from && work.round == message.round && work.theirs.is_none()
        };
        let Some(work) = self.work.as_mut().filter(awaits) else {
            return;
        };
        work.theirs = Some(message.objects.into_iter().collect());
        sh.counters.borders.scan_pages += u64::from(message.to.is_some());
        work.end = message.to;
        let (limit, round) = (sh.config.limits.scan_objects as usize, work.round);
        let read = range_read(work.from.clone(), limit, local);
        at.read(sh, read, Purpose::BackfillList { round, limit });
    }

    /// Whether a client may not change the object because a range that contains it is being
    /// compared.
    pub(super) fn compares(&self, object: &ObjectId) -> bool {
        let work = self.work.as_ref();
        work.is_some_and(|work| work.ours.is_some() && work.is_inside(object))
    }
    /// Whether the object is being pushed for the range.
    pub(super) fn pushes(&self, object: &ObjectId) -> bool {
        let work = self.work.as_ref();
        work.is_some_and(|work| work.pushing.contains(object))
    }
    /// Whether a range of the target is being compared.
    pub(super) fn fills(&self, target: OsdId) -> bool {
        self.work.as_ref().is_some_and(|work| work.target == target)
    }

    /// The target has the object now. Returns whether it has all of the range.
    pub(super) fn note_pushed(&mut self, to: OsdId, object: &ObjectId) -> bool {
        self.work.as_mut().is_some_and(|work| {
            work.target == to && work.pushing.remove(object) && work.pushing.is_empty()
        })
    }

    /// An object that could not be read when it was to be pushed is intact again here. Returns the
    /// target and the version to push.
    pub(super) fn pushes_again(&self, object: &ObjectId) -> Option<(OsdId, Version)> {
        let work = self.work.as_ref()?;
        let version = work.ours.as_ref()?.get(object).copied()?;
        let pushes = work.compared && work.pushing.contains(object) && version != Version::NONE;
        pushes.then_some((work.target, version))
    }
}

impl Lead<'_> {
    /// Begins the next range, if there is one and none is being compared.
    pub(super) fn start_backfill(&mut self, sh: &mut Shared) {
        let Primary {
            peering,
            peers,
            backfill,
            ..
        } = &mut *self.primary;
        if peering.is_peered() {
            let holders = Holders {
                missing: &self.local.missing,
                interval: self.interval,
                peers,
            };
            let of = Fill {
                holders,
                counted: self.counted,
                sending: self.sending,
            };
            backfill.start(of, sh);
        }
    }

    /// Abandons the current range if it contains the object, which makes it impossible to finish.
    pub(super) fn abandon_range_of(&mut self, object: &ObjectId, sh: &mut Shared) {
        if self.primary.backfill.pushes(object) {
            self.abandon_range(PAUSE, sh);
        }
    }

    /// The current range, and the state of the PG that it needs.
    fn range(&mut self) -> Option<(&mut Work, Ground<'_>)> {
        let Primary {
            backfill,
            objects,
            committed,
            ..
        } = &mut *self.primary;
        let ground = Ground {
            local: self.local,
            at: self.interval,
            objects,
            sending: self.sending,
            committed: *committed,
        };
        Some((backfill.work.as_mut()?, ground))
    }

    /// Our store has listed the range.
    pub(super) fn on_backfill_list(
        &mut self,
        (round, limit): (u64, usize),
        reply: Result<ReadReply, ReadError>,
        sh: &mut Shared,
    ) {
        let awaits =
            |work: &Work| work.round == round && work.theirs.is_some() && work.ours.is_none();
        let Some((work, of)) = self.range().filter(|(work, _)| awaits(work)) else {
            return;
        };
        match reply {
            Ok(ReadReply::List { keys, more }) => {
                if work.on_list((keys, more), limit, of, sh) {
                    self.backfill_tick(sh);
                }
            }
            _ => self.abandon_range(PAUSE, sh),
        }
    }

    /// The version of an object of the range was read.
    pub(super) fn on_backfill_stat(
        &mut self,
        (round, index): (u64, usize),
        reply: Result<ReadReply, ReadError>,
        sh: &mut Shared,
    ) {
        let Some((work, _)) = self.range().filter(|(work, _)| work.round == round) else {
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
            // An unreadable object is not deleted: the target must not remove it.
            Err(_) => {
                self.abandon_range(PAUSE, sh);
                return;
            }
        };
        ours.insert(object, version);
        work.stats = work.stats.saturating_sub(1);
        if work.stats == 0 {
            self.backfill_tick(sh);
        }
    }

    /// Advances the current range as far as possible, or begins the next one.
    pub(super) fn backfill_tick(&mut self, sh: &mut Shared) {
        let Some((work, of)) = self.range() else {
            self.start_backfill(sh);
            return;
        };
        let (target, head) = (work.target, of.local.log.head());
        match work.tick(of, sh) {
            Step::Rest => {}
            Step::Abandon(pause) => self.abandon_range(pause, sh),
            Step::GiveUp => self.give_range_up(sh),
            Step::Push(all) => self.outbox().push_all(target, all, head, sh),
            Step::Compared(all) => {
                self.outbox().push_all(target, all, head, sh);
                self.backfill_tick(sh);
            }
            Step::Swept => self.end_swept_range(sh),
        }
    }

    /// Lets clients write to the objects that were held for a range.
    pub(super) fn release_range(&mut self, held: Vec<ObjectId>, sh: &mut Shared) {
        for object in held {
            self.release_object(&object, sh);
        }
        self.process_all_objects(sh);
    }

    /// Begins the range again after `pause` retry intervals: clients may write to it meanwhile,
    /// which can make an unreadable object intact.
    pub(super) fn abandon_range(&mut self, pause: u32, sh: &mut Shared) {
        let until = sh.after(pause);
        let primary = &mut *self.primary;
        let Some(work) = primary.backfill.work.take() else {
            return;
        };
        primary.backfill.pause_until = Some(until);
        sh.wake_at(until);
        // Pushes in flight for this range would be late for the next.
        for object in &work.pushing {
            if !self.holders().lacks(work.target, object) {
                self.end_outgoing(work.target, object, sh);
            }
        }
        self.release_range(work.held, sh);
    }

    /// Gives up the range because it makes no progress: its target accepts nothing more, or an
    /// object to be sent cannot be read. Clients' writes must not wait for that.
    fn give_range_up(&mut self, sh: &mut Shared) {
        let Some(work) = self.primary.backfill.work.as_ref() else {
            return;
        };
        let (target, left) = (work.target, work.pushing.clone());
        for object in left {
            self.end_outgoing(target, &object, sh);
        }
        self.abandon_range(PAUSE, sh);
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
