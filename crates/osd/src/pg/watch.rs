//! Watchers at the primary: which are alive, and notifies that wait for them (CHECKLIST CEPH-09).
//!
//! ```text
//!  Notify ─▶ at the front of the object's queue, like a read ─▶ WatchNotify to every watcher; the queue continues
//!                                                                 │ all acknowledged ──────────────▶ answer
//!                                                                 └ timeout, silence, fence: missed
//!                                                                     └▶ update: removes their watches ─▶ committed ─▶ answer names them
//! ```
//! The watches themselves are replicated ([`nacre_object::claims`]). The state here is soft: a new
//! primary does not know when watchers were last heard, and gives each a full timeout from when it
//! first loads the object. A watcher's ping is a read of the object, so it is answered in order and
//! under a lease, and reports reliably whether the watch exists.
//!
//! Delivery is at least once while watcher and notifier are alive: a notifier's client resends its
//! operation after a failure, and watchers may see the same id twice. An answer that a watcher
//! missed the notify is remembered by every member, like the answer of an update: a resend gets the
//! same.
//!
//! Invariants: a notify is answered only when every watcher in its list has acknowledged or its
//! watch is durably removed; a watch reported as removed is durably removed
//! ([`Watching::farewells`] wait for the commit).

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

/// The number of watchers of a PG whose pings may wait in their objects' queues: further pings are
/// dropped until there is space, and repeated by the watchers.
const PROBES_MAX: usize = 1024;

/// An operation of the primary itself on an object.
#[derive(Clone, Debug)]
pub enum Own {
    /// Removes these watches. For a notify that they missed: the watchers that acknowledged it,
    /// with their replies.
    Drop {
        /// The watchers.
        watchers: BTreeSet<WatcherId>,
        /// The acknowledgements of the notify, if there is one.
        acked: BTreeMap<WatcherId, Payload>,
    },
    /// A watcher asks whether its watch exists.
    Probe {
        /// The watcher.
        watcher: WatcherId,
        /// To be returned.
        stamp: u64,
    },
    /// Removes content that only removed snapshots preserve.
    Trim {
        /// Clones in the store; the object's SnapSet may not know all of them.
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

/// An update's changes of an object's claims.
#[derive(Debug, Default)]
pub struct Change {
    removed: Vec<WatcherId>,
    after: Option<Claims>,
}

impl Change {
    /// The difference between two states.
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

/// The watchers of a PG; see the module head.
#[derive(Debug, Default)]
pub struct Watching {
    /// When each watcher of a loaded object was last heard.
    heard: BTreeMap<ObjectId, BTreeMap<WatcherId, Heard>>,
    /// When each lock holder of a loaded object was last heard.
    leases: BTreeMap<ObjectId, BTreeMap<LockOwner, Time>>,
    pub(super) notifies: BTreeMap<RequestId, Notify>,
    /// Watchers whose ping is in an object's queue.
    probing: BTreeSet<WatcherId>,
    /// Watches that are removed when the version is committed.
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
        self.notifies.values().map(|notify| &*notify.op)
    }
    /// The number of pings that wait in queues.
    pub(super) fn probing(&self) -> usize {
        self.probing.len()
    }

    /// Removes the operations in flight, to be discarded.
    pub fn drain(&mut self) -> Vec<Box<Pending>> {
        std::mem::take(self)
            .notifies
            .into_values()
            .map(|notify| notify.op)
            .collect()
    }

    /// Sets the claims of the object: new ones count as just heard.
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

    /// An update of the object was assigned its position in the log.
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

    /// Takes the watchers whose watch is durably removed when everything up to `committed` is
    /// durable.
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

    /// A client has sent a message about an object: its leased locks on it are renewed for a full
    /// term.
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

    /// We were stalled: silence during that time was our own fault.
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

    /// Watchers whose timeout has expired, by object. They are returned again only after another
    /// timeout.
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
    /// Operations of our own on an object that no member can read are discarded: a watcher may ask
    /// again, and the trimmer continues with other names.
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
    /// The context in which claims are judged.
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

    /// Puts an operation of our own into an object's queue.
    pub(super) fn queue_own(&mut self, from: Entity, object: &ObjectId, own: Own, sh: &mut Shared) {
        let request = OpRequest {
            pg: self.id(),
            object: object.clone(),
            ..OpRequest::default()
        };
        let op = Box::new(Pending {
            writes: true,
            own: Some(own),
            ..Pending::new(from, request, sh.now)
        });
        op.take_up(sh);
        self.primary.objects.push(object, op);
        self.process_object(object, sh);
    }

    /// Executes a watch operation at the front of an object's queue. Reads among these are under a
    /// lease here, after the commits.
    pub(super) fn execute_watch(&mut self, op: Box<Pending>, context: Context, sh: &mut Shared) {
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
                // It may have arrived from another primary just now.
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

    /// A watcher is alive and asks whether its watch exists.
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
        // A waiting watcher is answered once. A PG that does not serve, or an object that no member
        // can read, must not block other watchers.
        let watching = &mut self.primary.watching;
        if !serving || watching.probing.contains(&watcher) || watching.probing.len() >= PROBES_MAX {
            return;
        }
        watching.probing.insert(watcher);
        self.queue_own(from, &object, Own::Probe { watcher, stamp }, sh);
    }

    /// Silent watchers lose their watches; notifies are resent or ended.
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
    /// The context in which claims are judged, if an update would have the version `token`.
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

    /// Informs watchers whose watch is durably removed.
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

    /// If it were informed too early, a watcher could watch again, and the old watch could exist
    /// again after a crash.
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
