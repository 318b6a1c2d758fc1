//! What the front of an object's queue waits for, and how clients are informed.

use super::Interval;
use super::backfill::Backfill;
use super::holders::Holders;
use super::local::Local;
use super::object::Objects;
use super::ops::learn_of_calls;
use super::peering::Peering;
use super::primary::{PeerState, Primary};
use super::repair::Damage;
use super::snapshots::Clones;
use crate::room::UPDATE_BESIDE;
use crate::shared::Shared;
use nacre_types::{Entity, ObjectId, OsdId, Time};
use nacre_wire::Message;
use nacre_wire::msg::client::{OpBlocked, OpRequest};
use std::collections::BTreeMap;
use std::time::Duration;

/// What the front of an object's queue waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The activation of the interval, or the expiry of the old one's leases.
    Serving,
    /// A read lease from every member.
    Lease,
    /// The object's attributes.
    Context,
    /// Earlier operations on the object.
    Order,
    /// The source of a class.
    Program,
    /// Recovery of the object.
    Missing,
    /// Recovery of enough replicas of the object.
    Degraded,
    /// Acknowledgements of other updates: a member has no space for more at one time.
    Room,
    /// The end of the object's recovery or backfill.
    Held,
    /// A clone of the object, which is not ready.
    Clone,
    /// The source of a copy.
    Source,
}

impl Wait {
    const fn reason(self) -> &'static str {
        match self {
            Self::Serving => "the placement group is peering",
            Self::Lease => "a member has not granted a read lease",
            Self::Context => "the object's metadata is being read",
            Self::Order => "earlier operations on the object are not finished",
            Self::Program => "the source of its class is being fetched",
            Self::Missing => "the object is being recovered",
            Self::Degraded => "the object has too few copies and is being recovered",
            Self::Room => "a nearly full or small store takes few updates at one time",
            Self::Held => "the object is being copied to another member",
            Self::Clone => "a clone of the object is being looked at, recovered or copied",
            Self::Source => "the object that is copied is being read",
        }
    }
}

fn ms_since(then: Time, now: Time) -> u64 {
    u64::try_from(now.since(then).as_millis()).unwrap_or(u64::MAX)
}

impl Clones<'_> {
    /// The object whose recovery the front of a waiting queue waits for.
    fn copy_waited_for(&self, object: &ObjectId, wait: Wait, sh: &Shared) -> Option<ObjectId> {
        match wait {
            Wait::Missing | Wait::Degraded => Some(object.clone()),
            Wait::Clone => {
                let front = self.objects.front_of(object)?;
                self.clone_waited_for(object, sh)
                    .filter(|clone| self.holders.keeps_waiting(clone, front, sh))
            }
            _ => None,
        }
    }
}

/// Determines what an operation waits for: reads the PG, and accesses the queues.
#[derive(Debug)]
pub(super) struct Gate<'a> {
    pub(super) local: &'a Local,
    pub(super) interval: &'a Interval,
    pub(super) objects: &'a mut Objects,
    pub(super) peering: &'a Peering,
    pub(super) peers: &'a BTreeMap<OsdId, PeerState>,
    pub(super) damage: &'a Damage,
    pub(super) backfill: &'a Backfill,
}

impl Gate<'_> {
    fn holders(&self) -> Holders<'_> {
        Holders {
            missing: &self.local.missing,
            interval: self.interval,
            peers: self.peers,
        }
    }
    fn clones(&self) -> Clones<'_> {
        Clones {
            holders: self.holders(),
            objects: self.objects,
            damage: self.damage,
        }
    }

    /// The object whose recovery the front of the queue waits for: its own, or a clone that it
    /// uses.
    pub(super) fn awaited_copy(&mut self, object: &ObjectId, sh: &mut Shared) -> Option<ObjectId> {
        let wait = self.obstacle(object, sh)?;
        self.clones().copy_waited_for(object, wait, sh)
    }

    /// What the front of the queue waits for, if anything.
    pub(super) fn obstacle(&mut self, object: &ObjectId, sh: &mut Shared) -> Option<Wait> {
        if !self.peering.serves(sh.now) {
            return Some(Wait::Serving);
        }
        let (now, min_size) = (sh.now, self.interval.min_size);
        if self.local.missing.contains_key(object) {
            return Some(Wait::Missing);
        }
        let acting = &self.interval.acting;
        let having = acting
            .iter()
            .filter(|osd| !self.holders().lacks(**osd, object))
            .count();
        let lost = self.damage.is_lost(object);
        let lacks =
            |osd: OsdId| self.holders().lacks(osd, object) && self.interval.is_waited_for(osd, sh);
        let lacking = having < acting.len() || self.interval.backfill_targets().any(lacks);
        let suspect = self.damage.is_suspect(object);
        let state = self.objects.get(object);
        let front = state.front_mut()?;
        if !learn_of_calls(front, &sh.programs) {
            return Some(Wait::Program);
        }
        let is_write = front.is_write();
        let clones = front.clone_bytes.unwrap_or(0);
        // Counted like the resulting update (`room_of`).
        let records = nacre_store::INDEX_COST * front.inline;
        let bytes =
            nacre_wire::msg::payload_len(&front.payload) as u64 + records + UPDATE_BESIDE + clones;
        let uncommitted = front.reads_uncommitted();
        let needs_copies = having < min_size || (is_write && lacking);
        // Deletions do not wait if they leave nothing (to know that, the object is read) or if
        // there is no space for it.
        if needs_copies && (!front.only_deletes() || lost) {
            return Some(Wait::Degraded);
        }
        // A replica found damaged is handled when no operation on it is in progress.
        if suspect {
            return Some(Wait::Order);
        }
        if state.context.is_none() {
            return Some(Wait::Context);
        }
        if state.exclusive || (is_write && state.reads > 0) {
            return Some(Wait::Order);
        }
        if !is_write && state.updates > 0 && !uncommitted {
            return Some(Wait::Order);
        }
        let held = state.held > 0;
        if needs_copies {
            let state = self.objects.peek(object)?;
            let (front, context) = (state.front()?, state.context.as_ref()?);
            if !self.clones().leaves_nothing(front, context, sh)
                && self.holders().keeps_waiting(object, front, sh)
            {
                return Some(Wait::Degraded);
            }
        }
        if is_write && sh.under_way.must_wait(&self.interval.acting, bytes) {
            sh.counters.borders.room_waits += 1;
            sh.room_waits.insert(self.interval.pg);
            return Some(Wait::Room);
        }
        if is_write && (held || self.backfill.compares(object)) {
            return Some(Wait::Held);
        }
        let state = self.objects.peek(object)?;
        let (front, context) = (state.front()?, state.context.as_ref()?);
        if front.source.is_none() && front.request.ops.iter().any(|op| op.source().is_some()) {
            return Some(Wait::Source);
        }
        if is_write && !self.clones().clones_are_ready(front, context, sh) {
            return Some(Wait::Clone);
        }
        if !is_write && self.interval.lease_until(sh) <= now {
            sh.counters.lease_waits += 1;
            return Some(Wait::Lease);
        }
        None
    }

    /// Informs clients why their operations wait.
    pub(super) fn explain_waiting(&mut self, sh: &mut Shared) {
        let complain = sh.config.timing.complain_after;
        let now = sh.now;
        let late: Vec<(ObjectId, Entity, OpRequest, Time)> = self
            .objects
            .pending_mut()
            .filter(|(_, op)| op.is_clients() && now.since(op.explained) >= complain)
            .map(|(object, op)| {
                op.explained = now;
                (object.clone(), op.from, op.request.clone(), op.received)
            })
            .collect();
        let under_way = self.objects.under_way_mut();
        for (doing, op) in
            under_way.filter(|(_, op)| op.is_clients() && now.since(op.explained) >= complain)
        {
            op.explained = now;
            let reason = format!("{doing} ({}, {})", op.request.pg, op.request.object);
            let blocked = OpBlocked {
                request: op.request.request,
                reason,
                since_ms: ms_since(op.received, now),
            };
            sh.reply(op.from, Message::OpBlocked(blocked), None);
        }
        for (object, from, request, received) in late {
            let reason = match self.obstacle(&object, sh) {
                Some(Wait::Serving) => match self.peering.phase.waits_for() {
                    osds if !osds.is_empty() => {
                        let list: Vec<String> = osds.iter().map(ToString::to_string).collect();
                        format!(
                            "{} {} waits for {}",
                            Wait::Serving.reason(),
                            self.interval.pg,
                            list.join(", ")
                        )
                    }
                    _ => format!("{} ({})", Wait::Serving.reason(), self.interval.pg),
                },
                Some(wait) => {
                    let copy = self.clones().copy_waited_for(&object, wait, sh);
                    let full = copy.and_then(|copy| self.holders().without_room(&copy, sh));
                    let full =
                        full.map_or_else(String::new, |osd| format!("; {osd} has no room for it"));
                    format!("{}{full} ({}, {object})", wait.reason(), self.interval.pg)
                }
                None => "it is next".to_owned(),
            };
            let since_ms = ms_since(received, now);
            sh.reply(
                from,
                Message::OpBlocked(OpBlocked {
                    request: request.request,
                    reason,
                    since_ms,
                }),
                None,
            );
        }
    }

    /// Whether an operation has waited a while for recovery.
    pub(super) fn someone_waits_for_a_copy(&mut self, sh: &mut Shared) -> bool {
        let patience = sh.config.timing.retry_interval * 2;
        if !self.peering.serves(sh.now) {
            return false;
        }
        let late = |object: &ObjectId| {
            let front = self.objects.peek(object).and_then(|state| state.front());
            front.is_some_and(|front| sh.now.since(front.received) >= patience)
        };
        let waiting: Vec<ObjectId> = self.objects.waiting().into_iter().filter(late).collect();
        waiting.iter().any(|object| {
            self.awaited_copy(object, sh)
                .is_some_and(|copy| !self.damage.is_lost(&copy))
        })
    }

    /// Whether the front of the queue is a client's operation that has waited longer than
    /// `patience` for a recovery without space, and whether it writes. Deletions do not wait.
    pub(super) fn waits_for_room(
        &mut self,
        object: &ObjectId,
        patience: Duration,
        sh: &mut Shared,
    ) -> Option<bool> {
        let front = self.objects.existing(object)?.front_mut()?;
        let late =
            sh.now.since(front.received) >= patience && front.is_clients() && !front.only_deletes();
        // A call may turn out to be read-only; that is known before its object is here.
        if !late || !learn_of_calls(front, &sh.programs) {
            return None;
        }
        let writes = front.is_write();
        let copy = self
            .awaited_copy(object, sh)
            .filter(|copy| !self.damage.is_lost(copy))?;
        self.holders().without_room(&copy, sh).map(|_| writes)
    }
}

impl Primary {
    /// The machine that determines what operations wait for.
    pub(super) fn gate<'a>(&'a mut self, local: &'a Local, at: &'a Interval) -> Gate<'a> {
        Gate {
            local,
            interval: at,
            objects: &mut self.objects,
            peering: &self.peering,
            peers: &self.peers,
            damage: &self.damage,
            backfill: &self.backfill,
        }
    }
}
