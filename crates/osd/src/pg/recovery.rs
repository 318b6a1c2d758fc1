//! Recovery by log: objects in a member's log that its store lacks (CEPH-51, -53, -54).
//!
//! The primary first gets the objects that it misses itself (`Pull` from a member that has them),
//! then pushes the others the objects that they miss. Only a few objects at a time per PG, and not
//! many more in all PGs of a daemon together: otherwise an OSD that comes back would have thousands
//! of objects before every client's update in its queue. A PG that must wait for this limit is
//! woken when it is free ([`Shared::recovery_waits`]). An object that a client waits for has
//! priority, and is not counted.

use super::holders::Holders;
use super::local::Local;
use super::primary::{PeerState, Primary};
use super::repair::Damage;
use super::transfer::Sending;
use super::{Interval, Lead};
use crate::key;
use crate::shared::Shared;
use nacre_types::{ObjectId, OsdId, Time, Version};
use nacre_wire::Message;
use nacre_wire::map::flag;
use nacre_wire::msg::replication::{PgInfo, Pull, PushAck};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The state of recovery.
#[derive(Debug, Default)]
pub struct Recovery {
    /// Requested objects: the source, and the timeout.
    pub(super) pulls: BTreeMap<ObjectId, (OsdId, Time)>,
    /// Those of them that are replicas with undone updates (`redo.rs`).
    pub(super) redo: BTreeMap<ObjectId, super::redo::Redo>,
    /// Objects that clients wait for.
    urgent: VecDeque<ObjectId>,
    /// The OSDs that reported that they cannot send an object.
    refused: BTreeMap<ObjectId, BTreeSet<OsdId>>,
    /// The OSDs that did not answer a request for an object in time: others are asked first. (A
    /// member of the last activation that was neither up nor acting by CRUSH was asked again and
    /// again after it had died, although another had the object.)
    unanswered: BTreeMap<ObjectId, BTreeSet<OsdId>>,
    /// Objects that no reachable OSD had when they were last requested.
    unfound: BTreeSet<ObjectId>,
    /// Some member misses an object.
    unfinished: bool,
}

impl Recovery {
    /// Whether no OSD has refused to send an object that it reported to have.
    pub(super) fn all_have_room(&self) -> bool {
        self.refused.is_empty()
    }
    /// The object was written: OSDs that could not send it may be able to now.
    pub(super) fn may_have(&mut self, object: &ObjectId) {
        self.refused.remove(object);
    }
    /// The object is here, or deleted: no OSD is asked for it any more, and answers are ignored.
    pub(super) fn forget(&mut self, object: &ObjectId) {
        self.pulls.remove(object);
        self.refused.remove(object);
        self.unanswered.remove(object);
        self.unfound.remove(object);
        self.redo.remove(object);
    }
    pub(super) fn is_busy(&self) -> bool {
        self.unfinished || !self.pulls.is_empty()
    }

    /// A backfill target may still have its former objects: if no member has an object (because the
    /// target alone had it when its log fell behind), the target is asked for that very version. A
    /// version names one update; a target with another version refuses.
    fn last_resort(&self, object: &ObjectId, at: &Interval) -> Option<OsdId> {
        let refused = self.refused.get(object);
        let willing = |osd: &OsdId| refused.is_none_or(|refused| !refused.contains(osd));
        at.backfill_targets().find(willing)
    }

    /// Up to `room` objects to be recovered next. Objects that cannot be recovered now do not
    /// occupy the places of others: those that no reachable OSD has come last, and a member without
    /// space is sent one object at a time, to detect when it has space.
    fn next(
        &self,
        room: usize,
        holders: Holders<'_>,
        damage: &Damage,
        sending: &Sending,
        sh: &Shared,
    ) -> Vec<ObjectId> {
        let Self { pulls, unfound, .. } = self;
        let own = |found: bool| {
            let wanted = move |object: &&ObjectId| {
                !pulls.contains_key(*object) && unfound.contains(*object) != found
            };
            holders.missing.keys().filter(wanted).cloned()
        };
        // Objects that no member can read do not occupy places either (simulator with snapshots,
        // seed 2515: a clone shares the corrupt block of its object, and the two waited in all
        // places for ever).
        let here =
            |object: &&ObjectId| !holders.missing.contains_key(*object) && !damage.is_lost(object);
        let mut ready: Vec<_> = holders
            .peers
            .iter()
            .filter(|(_, peer)| peer.catching.is_none())
            .collect();
        ready.sort_by_key(|(osd, _)| sh.has_no_room_at(**osd));
        let others = ready.into_iter().flat_map(|(osd, peer)| {
            let probes = usize::from(!sending.sends_to(*osd));
            let most = if sh.has_no_room_at(*osd) {
                probes
            } else {
                room
            };
            let fresh = |object: &&ObjectId| !sending.is_outgoing(*osd, object);
            peer.missing
                .keys()
                .filter(here)
                .filter(fresh)
                .take(most)
                .cloned()
        });
        own(true)
            .chain(others)
            .chain(own(false))
            .take(room)
            .collect()
    }

    /// Ends the wait for OSDs that did not answer in time.
    fn expire(&mut self, now: Time) {
        let unanswered = &mut self.unanswered;
        self.pulls.retain(|object, (source, until)| {
            let waits = *until > now;
            if !waits {
                let silent = unanswered.entry(object.clone()).or_default();
                silent.insert(*source);
            }
            waits
        });
    }
}

/// The number of objects being recovered. Pushes to a member without space are not counted: they
/// would occupy the places of others for as long as that member is full.
pub(super) fn under_way(pulls: usize, sending: &Sending, sh: &Shared) -> usize {
    pulls + sending.outgoing_to(|osd| !sh.has_no_room_at(osd))
}

impl Primary {
    /// The next OSD to ask: of those that have the object, one that has not been asked without
    /// success since all were.
    fn next_source(&mut self, object: &ObjectId, local: &Local) -> Option<OsdId> {
        let unanswered = self.recovery.unanswered.get(object);
        let fresh = |osd: &OsdId| unanswered.is_none_or(|silent| !silent.contains(osd));
        let found = self.sources(object, local).find(fresh);
        found.or_else(|| {
            self.recovery.unanswered.remove(object);
            self.sources(object, local).next()
        })
    }

    /// Members that have the object at the needed version.
    pub(super) fn sources<'a>(
        &'a self,
        object: &'a ObjectId,
        local: &Local,
    ) -> impl Iterator<Item = OsdId> + 'a {
        let missing = local.missing.get(object);
        let need = missing.map_or(Version::NONE, |missing| missing.need);
        let refused = self.recovery.refused.get(object);
        let knows = move |(osd, info): (&OsdId, &PgInfo)| {
            let peer = self.peers.get(osd);
            let lacks = match peer {
                Some(peer) => peer.missing.contains_key(object),
                None => info.missing.iter().any(|missing| missing.object == *object),
            };
            let cursor = match peer {
                Some(peer) => peer.backfill.as_ref(),
                None => info.backfill.as_ref(),
            };
            let inside = key::is_before(object, cursor);
            // A member that has adopted our log has everything in it, independent of its state at
            // the interval's beginning.
            let follows = self.is_peered() && peer.is_some();
            let current = follows || (info.exists && info.head >= need);
            let willing = refused.is_none_or(|refused| !refused.contains(osd));
            (current && !lacks && inside && willing).then_some(*osd)
        };
        self.peering.infos.iter().filter_map(knows)
    }
}

impl Lead<'_> {
    fn under_way(&self, sh: &Shared) -> usize {
        under_way(self.primary.recovery.pulls.len(), self.sending, sh)
    }

    /// Continues recovery as far as the limits allow.
    pub(crate) fn start_recovery(&mut self, sh: &mut Shared) {
        let stopped = sh
            .map
            .as_ref()
            .is_some_and(|map| map.flags & flag::NO_RECOVER != 0);
        let limit = sh.config.limits.recovery_objects;
        if !self.primary.is_peered() {
            return;
        }
        // Urgent ones beyond the limit: a client waits.
        while let Some(object) = self.primary.recovery.urgent.pop_front() {
            self.recover_object(&object, sh);
        }
        let here = self.under_way(sh);
        let together = sh
            .config
            .limits
            .recovery_objects_total
            .saturating_sub(sh.recovering + here - self.counted.recovering);
        let room = limit.saturating_sub(here).min(together);
        if !stopped && room == 0 && here < limit {
            sh.counters.borders.recovery_waits += 1;
            sh.recovery_waits.insert(self.id());
        }
        if !stopped && room > 0 {
            let Primary {
                recovery, damage, ..
            } = &*self.primary;
            let next = recovery.next(room, self.holders(), damage, self.sending, sh);
            for object in next {
                if self.under_way(sh) >= here + room {
                    break;
                }
                self.recover_object(&object, sh);
            }
        }
        let peers = &self.primary.peers;
        let mut lacking = peers.iter().filter(|(_, peer)| !peer.missing.is_empty());
        let missing_here = !self.local.missing.is_empty();
        let unfinished = missing_here || lacking.clone().next().is_some();
        // A member that stands aside may take long; others are filled meanwhile.
        let first = missing_here || lacking.any(|(osd, _)| self.interval.is_waited_for(*osd, sh));
        self.primary.recovery.unfinished = unfinished;
        if !first {
            self.start_backfill(sh);
        }
    }

    /// A client waits for this object.
    pub(super) fn recover_now(&mut self, object: &ObjectId, sh: &mut Shared) {
        let primary = &mut *self.primary;
        primary.recovery.urgent.push_back(object.clone());
        self.start_recovery(sh);
    }

    fn recover_object(&mut self, object: &ObjectId, sh: &mut Shared) {
        if let Some(missing) = self.local.missing.get(object) {
            let version = missing.need;
            let source = self.primary.next_source(object, self.local);
            sh.counters.borders.last_resorts += u64::from(source.is_none());
            let source =
                source.or_else(|| self.primary.recovery.last_resort(object, self.interval));
            let until = sh.after(4);
            let (pg, interval) = (self.id(), self.interval.since);
            let pulls = &mut self.primary.recovery.pulls;
            match source {
                _ if pulls.contains_key(object) => {}
                Some(source) => {
                    pulls.insert(object.clone(), (source, until));
                    sh.send(
                        source,
                        Message::Pull(Pull {
                            pg,
                            interval,
                            object: object.clone(),
                            version,
                        }),
                    );
                }
                None => {
                    self.primary.recovery.unfound.insert(object.clone());
                    self.on_no_source(object, sh);
                }
            }
            return;
        }
        let lacking: Vec<(OsdId, Version)> = {
            let primary = &*self.primary;
            // A member that does not have the log entry yet cannot accept the object.
            let need = |peer: &PeerState| {
                peer.missing
                    .get(object)
                    .filter(|_| peer.catching.is_none())
                    .map(|missing| missing.need)
            };
            primary
                .peers
                .iter()
                .filter_map(|(osd, peer)| Some((*osd, need(peer)?)))
                .collect()
        };
        // An object that cannot be read here is not read again and again for others. An object that
        // is about to change (possibly without waiting for members that lack it) is read after the
        // change.
        let changes = |primary: &Primary| {
            primary
                .objects
                .peek(object)
                .is_some_and(|state| state.exclusive)
        };
        if self.primary.damage.is_lost(object) || changes(self.primary) {
            return;
        }
        for (osd, version) in lacking {
            self.outbox().push_object(osd, object, version, sh);
        }
    }

    /// The object is here now.
    pub(super) fn on_recovered_here(&mut self, object: &ObjectId, sh: &mut Shared) {
        let primary = &mut *self.primary;
        primary.recovery.forget(object);
        let (me, pg) = (sh.me(), self.id());
        self.primary.damage.note_repaired(me, object, pg, sh);
        if let Some((target, version)) = self.primary.backfill.pushes_again(object) {
            self.outbox().push_object(target, object, version, sh);
        }
        self.start_recovery(sh);
        self.process_object(object, sh);
        self.backfill_tick(sh);
    }

    /// A member has the object now.
    pub(super) fn on_pushed(
        &mut self,
        to: OsdId,
        object: &ObjectId,
        version: Version,
        sh: &mut Shared,
    ) {
        let primary = &mut *self.primary;
        // It may miss a newer version by now (`catchup.rs`).
        if let Some(peer) = primary.peers.get_mut(&to)
            && peer
                .missing
                .get(object)
                .is_some_and(|missing| missing.need <= version)
        {
            peer.missing.swap_remove(object);
        }
        let pg = self.id();
        self.primary.damage.note_repaired(to, object, pg, sh);
        if self.primary.backfill.note_pushed(to, object) {
            self.backfill_tick(sh);
        }
        self.start_recovery(sh);
        self.process_object(object, sh);
    }

    /// The object that we meant to push is not here at that version, or cannot be read: then we
    /// need it from another member first. A backfill's range is given up, or continues when the
    /// object is here: its cursor must not pass an object that the target lacks.
    pub(super) fn on_push_failed(
        &mut self,
        to: OsdId,
        object: &ObjectId,
        version: Version,
        damaged: bool,
        sh: &mut Shared,
    ) {
        if damaged && !self.primary.damage.is_lost(object) {
            self.suspect(sh.me(), object, version, sh);
            return;
        }
        let newer = |peer: &PeerState| peer.missing.get(object).is_some_and(|it| it.need > version);
        if !damaged && self.primary.peers.get(&to).is_some_and(newer) {
            // An update in progress has been ordered since (`catchup.rs`): its version is sent
            // instead.
            self.start_recovery(sh);
            return;
        }
        if !damaged {
            sh.say(
                nacre_wire::msg::monitor::Severity::Error {},
                format!(
                    "{}: {object} at {version} is not here, so {to} does not get it",
                    self.id()
                ),
            );
        }
        self.abandon_range_of(object, sh);
    }

    /// A member does not have a requested object, or cannot read it.
    pub(super) fn on_pull_failed(&mut self, from: OsdId, message: &PushAck, sh: &mut Shared) {
        let object = &message.object;
        if self.primary.recovery.awaits_undone(object, message.version) {
            self.on_undone_failed(from, object, sh);
            return;
        }
        let needed = self
            .local
            .missing
            .get(object)
            .is_some_and(|missing| missing.need == message.version);
        let primary = &mut *self.primary;
        if needed
            && primary
                .recovery
                .pulls
                .get(object)
                .is_some_and(|(source, _)| *source == from)
        {
            primary.recovery.pulls.remove(object);
            primary
                .recovery
                .refused
                .entry(object.clone())
                .or_default()
                .insert(from);
            if message.damaged {
                self.suspect(from, object, message.version, sh);
            }
            self.recover_object(object, sh);
        } else if message.damaged {
            self.on_told_lost(from, object, message.version, sh);
        }
    }

    pub(super) fn recovery_tick(&mut self, sh: &mut Shared) {
        self.primary.recovery.expire(sh.now);
        if self.primary.is_peered() {
            self.start_recovery(sh);
        }
    }

    /// Recovery or backfill no longer copies the object.
    pub(super) fn release_object(&mut self, object: &ObjectId, sh: &mut Shared) {
        let primary = &mut *self.primary;
        if let Some(state) = primary.objects.existing(object) {
            state.held = state.held.saturating_sub(1);
            if state.held == 0 && (state.has_queue() || nacre_object::snaps::is_clone(object)) {
                self.process_object(object, sh);
            }
        }
    }
}
