//! Recovery by log: objects that a member's log has and its store has not (CEPH-51, -53, -54).
//!
//! The primary first gets what it misses itself (`Pull` from whoever has it), then gives the others
//! what they miss. A few objects at a time per group, and not many more in all groups of a daemon
//! together: whoever comes back would otherwise have thousands of objects before every client's
//! update in its queue. A group that finds no room is woken when there is some
//! ([`Shared::recovery_waits`]). An object that a client waits for goes first, and is not counted.

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

/// What recovery is doing.
#[derive(Debug, Default)]
pub struct Recovery {
    /// What we asked for: from whom, until when.
    pub(super) pulls: BTreeMap<ObjectId, (OsdId, Time)>,
    /// Of these, copies with undone updates on them (`redo.rs`).
    pub(super) redo: BTreeMap<ObjectId, super::redo::Redo>,
    /// What clients wait for.
    urgent: VecDeque<ObjectId>,
    /// Who said that he cannot send an object.
    refused: BTreeMap<ObjectId, BTreeSet<OsdId>>,
    /// Who did not answer in time when asked for an object: others are asked first. (A member of
    /// the last activation that is neither up nor acting by CRUSH was asked again and again after
    /// it had died, though another had the object.)
    unanswered: BTreeMap<ObjectId, BTreeSet<OsdId>>,
    /// Objects that no reachable OSD had when they were last asked for.
    unfound: BTreeSet<ObjectId>,
    /// Something is missing somewhere.
    unfinished: bool,
}

impl Recovery {
    /// Whether everybody can send what he says he has.
    pub(super) fn nobody_refused(&self) -> bool {
        self.refused.is_empty()
    }
    /// The object was written to: who could not send it may be able to now.
    pub(super) fn may_have(&mut self, object: &ObjectId) {
        self.refused.remove(object);
    }
    /// The object is here, or deleted: nobody is asked for it any more, and nobody's answer counts.
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

    /// Whoever is being backfilled may still have what he had before: where no member has an object
    /// (he alone did, when his log fell behind), he is asked for that very version. A version names
    /// one update; if he has another one, he says so.
    fn last_resort(&self, object: &ObjectId, at: &Interval) -> Option<OsdId> {
        let refused = self.refused.get(object);
        let willing = |osd: &OsdId| refused.is_none_or(|refused| !refused.contains(osd));
        at.backfill_targets().find(willing)
    }

    /// Up to `room` objects that are recovered next. Objects that cannot be recovered now take no
    /// place from others: those that no reachable OSD has come last, and a member that has no room
    /// is sent one object at a time, to see when it has some.
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
        // What no member can read takes no place from others either (simulator with snapshots, seed
        // 2515: a clone shares the block that rotted under its object, and the two waited in all
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

    /// Who did not answer in time is not waited for.
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

/// Objects under way. What is on its way to a member without room for it does not count: it would
/// take the places of others for as long as that member is full.
pub(super) fn under_way(pulls: usize, sending: &Sending, sh: &Shared) -> usize {
    pulls + sending.outgoing_to(|osd| !sh.has_no_room_at(osd))
}

impl Primary {
    /// Who is asked now: of those that have it, one that has not been asked in vain since all were.
    fn next_source(&mut self, object: &ObjectId, local: &Local) -> Option<OsdId> {
        let unanswered = self.recovery.unanswered.get(object);
        let fresh = |osd: &OsdId| unanswered.is_none_or(|silent| !silent.contains(osd));
        let found = self.sources(object, local).find(fresh);
        found.or_else(|| {
            self.recovery.unanswered.remove(object);
            self.sources(object, local).next()
        })
    }

    /// Members that have the object as we need it.
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
            // Who has adopted our log has all that it says, whatever there was when the interval
            // began.
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

    /// Goes on with recovery as far as limits allow.
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
        // Who stands aside may take long, and others are filled meanwhile.
        let first = missing_here || lacking.any(|(osd, _)| self.interval.is_waited_for(*osd, sh));
        self.primary.recovery.unfinished = unfinished;
        if !first {
            self.start_backfill(sh);
        }
    }

    /// A client waits for this one.
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
            // Who does not have the log's entry yet cannot take the object.
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
        // What cannot be read here is not read again and again for others, and what is about to
        // change (which may go without those that lack it) is read when it has.
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

    /// We have it now.
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

    /// A member has it now.
    pub(super) fn on_pushed(
        &mut self,
        to: OsdId,
        object: &ObjectId,
        version: Version,
        sh: &mut Shared,
    ) {
        let primary = &mut *self.primary;
        // It may miss a newer one by now (`catchup.rs`).
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

    /// We do not have, at that version, what we meant to push; or have it and cannot read it: then
    /// we need it from somebody else first. A backfill's range is given up or goes on when we have
    /// it: its cursor must not pass an object that the target lacks.
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
            // An update that was under way has been ordered since (`catchup.rs`): that one is sent
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

    /// A member does not have what we asked for, or cannot read it.
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
