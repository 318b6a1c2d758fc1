//! Watchers at the primary: who is still there, and notifies that wait for them (CHECKLIST
//! CEPH-09).
//!
//! ```text
//!  Notify ─▶ at the front of the object's queue, like a read ─▶ WatchNotify to every watcher; the queue goes on
//!                                                                 │ all acknowledged ──────────────▶ answer
//!                                                                 └ timeout, silence, fence: missed
//!                                                                     └▶ update: their watches go ─▶ committed ─▶ answer names them
//! ```
//! The watches themselves are replicated ([`nacre_object::claims`]). What is here is soft: a new
//! primary knows nobody's silence and gives every watcher a full timeout from when it first looks
//! at the object. A watcher's ping is a read of the object, so it is answered in order and under a
//! lease, and says for certain whether the watch is there.
//!
//! Delivery is at least once while watcher and notifier live: a notifier's client sends its
//! operation again after a failure, and watchers may see the same name twice. An answer that
//! somebody missed it is remembered like any update's, in every member: a resend hears the same.
//!
//! Invariants: a notify is answered only when everyone in its list has acknowledged or his watch is
//! durably gone; what is told as gone is durably gone ([`Watching::farewells`] wait for the
//! commit).

use super::Lead;
use super::notify::Notify;
use super::pending::Pending;
use super::primary::Primary;
use crate::shared::Shared;
use nacre_object::Context;
use nacre_object::claims::{Claims, Scene};
use nacre_types::{ClientId, Entity, Instance, ObjectId, SnapId, Time, Version};
use nacre_wire::msg::client::{OpRequest, RequestId, SubOp};
use nacre_wire::msg::lock::LockOwner;
use nacre_wire::msg::watch::{WatchPing, WatchPong, WatcherId};
use nacre_wire::{Message, Payload};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Watchers of a group whose pings may wait for their objects' queues: more are not heard until
/// there is room, and ask again.
const PROBES_MAX: usize = 1024;

/// What the primary wants of an object itself.
#[derive(Clone, Debug)]
pub enum Own {
    /// These watches go. For a notify that they missed: who has acknowledged it, with what.
    Drop {
        /// Whose.
        watchers: BTreeSet<WatcherId>,
        /// Of the notify, if it is for one.
        acked: BTreeMap<WatcherId, Payload>,
    },
    /// A watcher asks whether his watch is there.
    Probe {
        /// Which.
        watcher: WatcherId,
        /// To be returned.
        stamp: u64,
    },
    /// What only removed snapshots preserve goes.
    Trim {
        /// Clones that the store has; of those that the object does not know it knows nothing.
        found: BTreeSet<SnapId>,
    },
}

impl Own {
    /// Whether it may change the object.
    #[must_use]
    pub const fn is_write(&self) -> bool {
        matches!(self, Self::Drop { .. } | Self::Trim { .. })
    }
}

/// What an update changes about an object's claims.
#[derive(Debug, Default)]
pub struct Change {
    removed: Vec<WatcherId>,
    after: Option<Claims>,
}

impl Change {
    /// From what was to what is.
    #[must_use]
    pub fn between(before: &Claims, after: &Claims) -> Self {
        if before == after {
            return Self::default();
        }
        let gone = before
            .watches
            .keys()
            .filter(|id| !after.watches.contains_key(id));
        Self {
            removed: gone.copied().collect(),
            after: Some(after.clone()),
        }
    }
}

#[derive(Debug)]
struct Heard {
    at: Time,
    timeout: Duration,
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Watching {
    /// When each watcher was last heard, of objects that were looked at.
    heard: BTreeMap<ObjectId, BTreeMap<WatcherId, Heard>>,
    /// When each holder of a lock was last heard, of objects that were looked at.
    leases: BTreeMap<ObjectId, BTreeMap<LockOwner, Time>>,
    pub(super) notifies: BTreeMap<RequestId, Notify>,
    /// Watchers whose ping is in an object's queue.
    probing: BTreeSet<WatcherId>,
    /// Watches that are gone when the version is committed.
    farewells: Vec<(Version, WatcherId)>,
}

impl Watching {
    /// Whether it wants ticks.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !(self.heard.is_empty()
            && self.leases.is_empty()
            && self.notifies.is_empty()
            && self.farewells.is_empty())
    }

    /// Notifies that wait for watchers.
    pub(super) fn operations(&self) -> impl Iterator<Item = &Pending> {
        self.notifies.values().map(|notify| &notify.op)
    }
    /// How many pings wait in queues.
    pub(super) fn probing(&self) -> usize {
        self.probing.len()
    }

    /// Operations in hand, to be thrown away.
    pub fn drain(&mut self) -> Vec<Pending> {
        std::mem::take(self)
            .notifies
            .into_values()
            .map(|notify| notify.op)
            .collect()
    }

    /// This is who claims something of the object: whoever is new has just been heard.
    pub fn look_at(&mut self, object: &ObjectId, claims: &Claims, now: Time) {
        if claims.watches.is_empty() {
            self.heard.remove(object);
        } else {
            let known = self.heard.entry(object.clone()).or_default();
            known.retain(|id, _| claims.watches.contains_key(id));
            for (id, record) in &claims.watches {
                let timeout = Duration::from_millis(u64::from(record.timeout_ms));
                known
                    .entry(*id)
                    .or_insert(Heard { at: now, timeout })
                    .timeout = timeout;
            }
        }
        let holders = claims
            .locks
            .values()
            .flat_map(|record| &record.holders)
            .filter(|holder| holder.lease_ms > 0);
        let holders: BTreeSet<LockOwner> = holders.map(|holder| holder.owner).collect();
        if holders.is_empty() {
            self.leases.remove(object);
        } else {
            let known = self.leases.entry(object.clone()).or_default();
            known.retain(|owner, _| holders.contains(owner));
            for owner in holders {
                known.entry(owner).or_insert(now);
            }
        }
    }

    /// An update of the object got its place in the log.
    pub fn note(&mut self, object: &ObjectId, change: Change, version: Version, now: Time) {
        let Some(after) = change.after else { return };
        self.look_at(object, &after, now);
        for notify in self
            .notifies
            .values_mut()
            .filter(|notify| notify.op.request.object == *object)
        {
            let gone = change.removed.iter().filter(|id| notify.waiting.remove(id));
            notify.missed.extend(gone);
        }
        self.farewells
            .extend(change.removed.into_iter().map(|id| (version, id)));
    }

    /// Takes those whose watch is durably gone when everything up to `committed` is.
    fn gone(&mut self, committed: Version) -> Vec<WatcherId> {
        let durable = self
            .farewells
            .iter()
            .filter(|(version, _)| *version <= committed)
            .map(|(_, id)| *id)
            .collect();
        self.farewells.retain(|(version, _)| *version > committed);
        durable
    }

    /// A client has said something about an object: it holds its locks with a lease for as long
    /// again.
    pub fn hear(&mut self, object: &ObjectId, client: ClientId, instance: Instance, now: Time) {
        let Some(holders) = self.leases.get_mut(object) else {
            return;
        };
        for (_, at) in holders
            .iter_mut()
            .filter(|(owner, _)| (owner.client, owner.instance) == (client, instance))
        {
            *at = now;
        }
    }

    /// We slept: what was not heard meanwhile is our own fault.
    fn shift(&mut self, late: Duration) {
        let heard = self
            .heard
            .values_mut()
            .flat_map(|known| known.values_mut())
            .map(|heard| &mut heard.at);
        let leases = self
            .leases
            .values_mut()
            .flat_map(|known| known.values_mut());
        let ends = self.notifies.values_mut().map(|notify| &mut notify.ends);
        for at in heard.chain(leases).chain(ends) {
            *at = *at + late;
        }
    }

    /// Watchers that are gone for good, by object. They are named again only after another timeout.
    fn silent(
        &mut self,
        now: Time,
        fenced: impl Fn(&WatcherId) -> bool,
    ) -> Vec<(ObjectId, BTreeSet<WatcherId>)> {
        let mut all = Vec::new();
        for (object, known) in &mut self.heard {
            let due = known
                .iter_mut()
                .filter(|(id, heard)| now.since(heard.at) > heard.timeout || fenced(id));
            let gone: BTreeSet<WatcherId> = due
                .map(|(id, heard)| {
                    heard.at = now;
                    *id
                })
                .collect();
            if !gone.is_empty() {
                all.push((object.clone(), gone));
            }
        }
        all
    }
}

impl Primary {
    /// What waited for an object that nobody can read is answered and gone: a watcher among it may
    /// ask again, and the trimmer goes on with other names.
    pub(super) fn forget_own(&mut self, op: &Pending) {
        match &op.own {
            Some(Own::Probe { watcher, .. }) => {
                self.watching.probing.remove(watcher);
            }
            Some(Own::Trim { .. }) => self.trimming.forget(&op.request.object),
            _ => {}
        }
    }
}

impl Lead<'_> {
    /// What claims are judged by.
    pub(super) fn scene(&self, op: &Pending, context: &Context, sh: &Shared) -> Scene {
        let since = self.interval.since;
        let next = self.local.log.head().next_in(since);
        let token = if self.clones().clones_first(op, context, sh) {
            next.next_in(since)
        } else {
            next
        };
        self.primary.watching.scene(op, context, token, sh)
    }

    /// Puts something of our own into an object's queue.
    pub(super) fn queue_own(&mut self, from: Entity, object: &ObjectId, own: Own, sh: &mut Shared) {
        let request = OpRequest {
            pg: self.id(),
            object: object.clone(),
            ..OpRequest::default()
        };
        let op = Pending {
            writes: true,
            own: Some(own),
            ..Pending::new(from, request, sh.now)
        };
        op.take_up(sh);
        self.primary.objects.push(object, op);
        self.process_object(object, sh);
    }

    /// The front of an object's queue, when it is about watchers. Reads among these stand here
    /// under a lease, behind commits.
    pub(super) fn execute_watch(&mut self, op: Pending, context: Context, sh: &mut Shared) {
        match op.own.clone() {
            Some(Own::Drop { watchers, acked }) => {
                self.drop_watches(op, &watchers, &acked, context, sh)
            }
            Some(Own::Trim { found }) => self.trim_object(op, &found, context, sh),
            Some(Own::Probe { watcher, stamp }) => {
                let alive = context.claims.watches.contains_key(&watcher);
                let lease = self.interval.lease_until(sh);
                self.primary.watching.probing.remove(&watcher);
                let pong = WatchPong {
                    watcher,
                    stamp,
                    alive,
                };
                sh.reply(op.from, Message::WatchPong(pong), Some(lease));
                op.release(sh);
                // It may have come from another primary just now.
                let of_object = |notify: &Notify| notify.op.request.object == op.request.object;
                let watching = &mut self.primary.watching;
                let ids = watching
                    .notifies
                    .iter()
                    .filter(|(_, notify)| of_object(notify))
                    .map(|(id, _)| *id);
                for id in ids.collect::<Vec<_>>() {
                    self.primary
                        .watching
                        .tell(self.interval.pg, &id, Some(watcher), sh);
                }
            }
            None => self.notify(op, &context, sh),
        }
    }

    /// A watcher is there and asks whether his watch is.
    pub fn on_watch_ping(&mut self, from: Entity, message: WatchPing, sh: &mut Shared) {
        let WatchPing {
            object,
            watcher,
            stamp,
            ..
        } = message;
        let map = sh.map.as_ref().expect("live");
        if map.is_fenced(Entity::Client(watcher.client), watcher.instance) {
            let pong = WatchPong {
                watcher,
                stamp,
                alive: false,
            };
            sh.reply(from, Message::WatchPong(pong), None);
            return;
        }
        let (now, serving) = (sh.now, self.primary.serves(sh.now));
        let watching = &mut self.primary.watching;
        watching.hear_watcher(&object, &watcher, now);
        watching.hear(&object, watcher.client, watcher.instance, now);
        // Who waits is answered once. A group that does not serve, or an object that nobody can
        // read, holds up nobody else's.
        let watching = &mut self.primary.watching;
        if !serving || watching.probing.contains(&watcher) || watching.probing.len() >= PROBES_MAX {
            return;
        }
        watching.probing.insert(watcher);
        self.queue_own(from, &object, Own::Probe { watcher, stamp }, sh);
    }

    /// Who is silent loses his watch; notifies come again, or to their end.
    pub(super) fn watch_tick(&mut self, sh: &mut Shared) {
        let (now, retry) = (sh.now, sh.config.timing.retry_interval);
        let primary = &mut *self.primary;
        if !primary.watching.has_work() {
            return;
        }
        primary.watching.shift(sh.late);
        if !primary.is_active() {
            return;
        }
        let map = sh.map.as_ref().expect("who serves has a map");
        let fenced = |id: &WatcherId| map.is_fenced(Entity::Client(id.client), id.instance);
        let silent = primary.watching.silent(now, fenced);
        let notifies: Vec<(RequestId, bool)> = primary
            .watching
            .notifies
            .iter()
            .map(|(id, notify)| (*id, now.since(notify.sent) >= retry))
            .collect();
        let me = Entity::Osd(sh.me());
        for (object, watchers) in silent {
            // An object that cannot be written now keeps one such update, not one per timeout.
            let waits = |op: &Pending| matches!(op.own, Some(Own::Drop { .. })) && !op.is_clients();
            if self.primary.objects.has_queued(&object, waits) {
                continue;
            }
            self.queue_own(
                me,
                &object,
                Own::Drop {
                    watchers,
                    acked: BTreeMap::new(),
                },
                sh,
            );
        }
        for (id, again) in notifies {
            self.conclude_if_over(&id, sh);
            if again {
                self.primary.watching.tell(self.interval.pg, &id, None, sh);
            }
        }
        for notify in self.primary.watching.notifies.values() {
            sh.wake_at(notify.ends);
        }
    }
}

impl Watching {
    /// What claims are judged by, where an update would have the version `token`.
    pub(super) fn scene(
        &self,
        op: &Pending,
        context: &Context,
        token: Version,
        sh: &Shared,
    ) -> Scene {
        let RequestId {
            client, instance, ..
        } = op.request.request;
        let map = sh.map.as_ref().expect("who serves has a map");
        let mut scene = Scene {
            client,
            instance,
            token,
            epoch: map.epoch,
            ..Scene::default()
        };
        let is_lock = |op: &SubOp| matches!(op, SubOp::Lock { .. });
        if op.request.ops.iter().any(is_lock) {
            let heard = self.leases.get(&op.request.object);
            let locks = context.claims.locks.iter();
            for (name, holder) in
                locks.flat_map(|(name, record)| record.holders.iter().map(move |one| (name, one)))
            {
                let owner = holder.owner;
                let lease = Duration::from_millis(u64::from(holder.lease_ms));
                let silent = |at: &Time| holder.lease_ms > 0 && sh.now.since(*at) > lease;
                let over = heard
                    .and_then(|heard| heard.get(&owner))
                    .is_some_and(silent);
                if over || map.is_fenced(Entity::Client(owner.client), owner.instance) {
                    scene.free.insert((name.clone(), owner));
                }
            }
        }
        scene
    }

    /// Tells watchers whose watch is durably gone.
    pub(super) fn tell_gone(&mut self, committed: Version, sh: &mut Shared) {
        for watcher in self.gone(committed) {
            let pong = WatchPong {
                watcher,
                stamp: 0,
                alive: false,
            };
            let message = Message::WatchPong(pong);
            sh.reply(Entity::Client(watcher.client), message, None);
        }
    }

    pub(super) fn hear_watcher(&mut self, object: &ObjectId, watcher: &WatcherId, now: Time) {
        if let Some(heard) = self
            .heard
            .get_mut(object)
            .and_then(|known| known.get_mut(watcher))
        {
            heard.at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg::testing::v;
    use nacre_wire::msg::watch::WatchRecord;

    /// Told too early, a watcher could watch anew, and the old watch be there again after a crash.
    #[test]
    fn a_watcher_is_told_when_the_removal_is_committed_and_not_with_an_earlier_update() {
        let watcher = |cookie| WatcherId {
            cookie,
            ..WatcherId::default()
        };
        let claims = |cookies: std::ops::RangeInclusive<u64>| Claims {
            watches: cookies
                .map(|cookie| (watcher(cookie), WatchRecord::default()))
                .collect(),
            ..Claims::default()
        };
        let (mut watching, object) = (Watching::default(), ObjectId::named("a"));
        watching.look_at(&object, &claims(1..=3), Time::ZERO);
        watching.note(
            &object,
            Change::between(&claims(1..=3), &claims(2..=3)),
            v(1, 4),
            Time::ZERO,
        );
        watching.note(
            &object,
            Change::between(&claims(2..=3), &claims(3..=3)),
            v(1, 6),
            Time::ZERO,
        );
        assert_eq!(watching.gone(v(1, 3)), []);
        assert_eq!(watching.gone(v(1, 5)), [watcher(1)]);
        assert_eq!(watching.gone(v(1, 9)), [watcher(2)]);
        assert_eq!(watching.gone(v(1, 9)), []);
        assert_eq!(watching.heard[&object].len(), 1);
    }
}
