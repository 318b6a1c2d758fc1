//! The state that all of a daemon's placement groups share while one input is handled: the map, the
//! clock's reading, the peers, outputs and pending store events.

use crate::config::{Limits, OsdConfig, Timing};
use crate::heartbeat::Peers;
use crate::purpose::Purpose;
use crate::record::DaemonRecord;
use nacre_role::Output;
use nacre_store::{Op, Read, Token, Transaction};
use nacre_types::{ClusterId, Entity, Epoch, Instance, OsdId, PgId, Time, Version};
use nacre_wire::msg::client::{OpFailure, OpReply, RequestId};
use nacre_wire::msg::monitor::Severity;
use nacre_wire::msg::replication::{ReplicaUpdate, Replicate};
use nacre_wire::{ClusterMap, Message, Payload};
use std::collections::VecDeque;

/// The key of a line of which the cluster log has only one, from any daemon; empty: every line
/// counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Once(pub String);

/// The reply for an operation that is not executed.
#[must_use]
pub const fn refusal(request: RequestId, attempt: u32, failure: OpFailure) -> OpReply {
    OpReply {
        request,
        failure: Some(failure),
        version: Version::NONE,
        results: Vec::new(),
        attempt,
    }
}

/// Updates for one replica.
#[derive(Debug)]
struct Outgoing {
    to: OsdId,
    updates: Vec<ReplicaUpdate>,
    payload: Payload,
    /// Their approximate size.
    bytes: usize,
}

/// Updates are combined in one message until they reach this size.
const UPDATES_BYTES: usize = 256 << 10;

/// The shared state; see the module head.
#[derive(Debug)]
pub struct Shared {
    /// Settings.
    pub config: OsdConfig,
    /// The instance that this daemon acts as; before the first is granted, the last one in its
    /// store.
    pub instance: Instance,
    /// The newest instance of this OSD that was seen in its store or in a map.
    pub instance_known: Instance,
    cluster: ClusterId,
    /// The newest map; `None` until the first arrives.
    pub map: Option<ClusterMap>,
    /// The clock's reading for the current input.
    pub now: Time,
    /// The lateness of the current tick: silence during that time was our own fault.
    pub late: std::time::Duration,
    /// Other OSDs.
    pub peers: Peers,
    /// Outputs for the host.
    pub out: Vec<Output>,
    /// Pending store events, with their purposes.
    pub pending: PendingEvents,
    /// Counts.
    pub counters: Counters,
    /// Client operations in flight, and their bytes.
    pub client_load: (usize, u64),
    /// Notifies that wait for watchers, and their bytes. Not in `client_load`: clients' messages
    /// end them, and these are not received while that is full.
    pub notify_load: (usize, u64),
    /// The part of `client_load` that arrived while its PG did not serve.
    pub blocked_load: std::collections::BTreeMap<PgId, (usize, u64)>,
    /// Lines for the cluster log, sent with the next beacon.
    pub log: Vec<(Severity, String, Once)>,
    /// Updates that this turn has ordered, for each replica, with their data.
    updates: Vec<Outgoing>,
    /// PGs that must send their primary an acknowledgement.
    pub acks: Vec<PgId>,
    /// The free space of our own store.
    pub room: crate::room::Room,
    /// Until when it is reported that recovery has no space here.
    pub no_room_until: Time,
    /// Updates that members have not acknowledged.
    pub under_way: crate::room::UnderWay,
    /// PGs with an update that waits until fewer bytes are in flight.
    pub room_waits: std::collections::BTreeSet<PgId>,
    /// The bytes of log entries that our own store accepts in one transaction.
    pub logged_max: u64,
    /// Tick at this time at the latest.
    pub wake: Time,
    /// Objects that recovery and backfill are transferring, in all PGs together.
    pub recovering: usize,
    /// The time before which no PG erases another page.
    pub erase_at: Time,
    /// The PG whose page is being erased.
    pub erases: Option<PgId>,
    /// PGs with a range of a backfill in progress.
    pub backfilling: usize,
    /// PGs that wait for the backfill limit.
    pub backfill_waits: std::collections::BTreeSet<PgId>,
    /// PGs that wait for the recovery limit.
    pub recovery_waits: std::collections::BTreeSet<PgId>,
    /// Classes, and their runtime.
    pub programs: crate::programs::Programs,
    /// Requested sources of copies.
    pub copies: crate::copies::Copies,
    /// Messages of this daemon to itself.
    pub loopback: VecDeque<Message>,
    /// The host's settings: options of the map override them.
    given: (Timing, Limits),
}

/// Pending store events with their purposes, in order of their tokens, which count up, so that each
/// is found by its number.
#[derive(Debug, Default)]
pub struct PendingEvents {
    /// The token of the first.
    first: u64,
    slots: VecDeque<Option<(PgId, Epoch, Purpose)>>,
}

/// The capacity that is kept when nothing is pending.
const SLOTS_KEPT: usize = 1024;

impl PendingEvents {
    /// Slots in use: from the oldest pending one on.
    pub fn len(&self) -> usize {
        self.slots.len()
    }
    fn push(&mut self, pg: PgId, interval: Epoch, purpose: Purpose) -> Token {
        self.slots.push_back(Some((pg, interval, purpose)));
        Token(self.first + self.slots.len() as u64 - 1)
    }
    /// The update that the event belongs to, if any, with its PG and interval; the event itself is
    /// still pending.
    pub fn update(&self, token: Token) -> Option<(PgId, Epoch, nacre_types::Version)> {
        let at = usize::try_from(token.0.checked_sub(self.first)?).ok()?;
        match self.slots.get(at)? {
            Some((pg, interval, Purpose::Logged(version))) => Some((*pg, *interval, *version)),
            _ => None,
        }
    }
    /// The version of the object that the transaction wrote, if known; the event itself is still
    /// pending.
    pub fn version(&self, token: Token) -> nacre_types::Version {
        let at = token
            .0
            .checked_sub(self.first)
            .and_then(|at| usize::try_from(at).ok());
        match at.and_then(|at| self.slots.get(at)) {
            Some(Some((_, _, Purpose::Logged(version) | Purpose::PartStored { version, .. }))) => {
                *version
            }
            _ => nacre_types::Version::NONE,
        }
    }
    /// The purpose of the event; `None` if it was not pending.
    pub fn take(&mut self, token: Token) -> Option<(PgId, Epoch, Purpose)> {
        let at = usize::try_from(token.0.checked_sub(self.first)?).ok()?;
        let found = self.slots.get_mut(at)?.take();
        while let Some(None) = self.slots.front() {
            self.slots.pop_front();
            self.first += 1;
        }
        if self.slots.is_empty() && self.slots.capacity() > SLOTS_KEPT {
            self.slots = VecDeque::new();
        }
        found
    }
}

/// Counts since start, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Limits and rare paths.
    pub borders: crate::borders::Borders,
    /// Client operations answered.
    pub ops: u64,
    /// Of these, those with an update.
    pub writes: u64,
    /// Resends answered from memory.
    pub dedup_hits: u64,
    /// Parts of objects pushed to others.
    pub pushed: u64,
    /// Objects received.
    pub recovered: u64,
    /// Replicas that could not be read and were replaced.
    pub repaired: u64,
    /// Objects whose undone updates were executed again because no member had a replica without
    /// them.
    pub redone: u64,
    /// Updates that trimmed clones.
    pub trimmed: u64,
    /// Objects compared by backfill.
    pub scanned: u64,
    /// Reads that waited for a lease.
    pub lease_waits: u64,
    /// Objects whose attributes were not cached and were read.
    pub contexts_loaded: u64,
}

impl Shared {
    pub(crate) fn new(config: OsdConfig) -> Self {
        Self {
            peers: Peers::new(config.timing),
            given: (config.timing, config.limits),
            config,
            instance: Instance(0),
            instance_known: Instance(0),
            cluster: ClusterId(0),
            map: None,
            now: Time::ZERO,
            late: std::time::Duration::ZERO,
            out: Vec::new(),
            pending: PendingEvents::default(),
            counters: Counters::default(),
            client_load: (0, 0),
            notify_load: (0, 0),
            blocked_load: std::collections::BTreeMap::new(),
            log: Vec::new(),
            updates: Vec::new(),
            acks: Vec::new(),
            room: Default::default(),
            under_way: Default::default(),
            room_waits: Default::default(),
            no_room_until: Time::ZERO,
            logged_max: u64::MAX,
            wake: Time::MAX,
            recovering: 0,
            erase_at: Time::ZERO,
            erases: None,
            backfilling: 0,
            programs: crate::programs::Programs::new(),
            copies: crate::copies::Copies::default(),
            loopback: VecDeque::new(),
            backfill_waits: std::collections::BTreeSet::new(),
            recovery_waits: std::collections::BTreeSet::new(),
        }
    }

    /// The next PG that waits for a limit that is free now: first recovery, then backfill.
    pub fn next_with_room(&mut self) -> Option<PgId> {
        let limits = &self.config.limits;
        if self.recovering < limits.recovery_objects_total
            && let Some(id) = self.recovery_waits.pop_first()
        {
            return Some(id);
        }
        if self.backfilling < limits.backfill_groups {
            self.backfill_waits.pop_first()
        } else {
            None
        }
    }

    /// Sets limits other than the host's.
    #[cfg(test)]
    pub fn set_limits(&mut self, limits: Limits) {
        self.given.1 = limits;
        self.config.limits = limits;
    }

    /// Applies the map's options, at once.
    pub fn take_options(&mut self) {
        let Some(map) = &self.map else { return };
        let (timing, limits) = crate::options::settings(map, self.given.0, self.given.1);
        if timing != self.config.timing {
            self.config.timing = timing;
            self.peers.set_timing(timing);
        }
        self.config.limits = limits;
        self.limit_to_store();
    }

    /// Keeps the limits under what the store takes in one transaction: a group that adopts another
    /// member's log writes log and records in one. (On a store with a small log the records of
    /// unconfirmed answers alone were larger, and a daemon whose store refuses what it must write
    /// stops: seed 134.)
    pub fn limit_to_store(&mut self) {
        let share = |part: u64| usize::try_from(self.logged_max / part).unwrap_or(usize::MAX);
        let limits = &mut self.config.limits;
        limits.log_bytes = limits.log_bytes.min(share(2));
        limits.records_bytes = limits.records_bytes.min(share(8));
    }

    /// Stores the owner of the store.
    pub fn record(&mut self, record: DaemonRecord) {
        (self.instance, self.cluster) = (record.instance, record.cluster);
        self.instance_known = self.instance_known.max(record.instance);
    }
    /// The record of the owner while this daemon acts as `instance`.
    #[must_use]
    pub fn record_of(&self, instance: Instance) -> DaemonRecord {
        DaemonRecord {
            cluster: self.cluster,
            osd: self.me(),
            instance,
        }
    }

    /// This OSD.
    pub const fn me(&self) -> OsdId {
        self.config.id
    }

    /// The time after this number of retry intervals.
    pub fn after(&self, times: u32) -> Time {
        self.now + self.config.timing.retry_interval * times
    }

    /// Requests a tick at `time`.
    pub fn wake_at(&mut self, time: Time) {
        self.wake = self.wake.min(time);
    }

    /// Sends to an OSD.
    pub fn send(&mut self, to: OsdId, message: Message) {
        assert!(to != self.me(), "an OSD has nothing to say to itself");
        self.send_updates(Some(to));
        if let Some(parts) = crate::parts::split(&message, self.config.limits.message_bytes) {
            let part = |part| Output::Send {
                to: Entity::Osd(to),
                message: Message::Part(part),
                before: None,
            };
            self.out.extend(parts.into_iter().map(part));
            return;
        }
        self.out.push(Output::Send {
            to: Entity::Osd(to),
            message,
            before: None,
        });
    }

    /// Sends an update to a replica at the end of the turn, together with others ordered in it.
    pub fn update_later(&mut self, to: OsdId, update: ReplicaUpdate, payload: Payload) {
        let small = nacre_object::evaluate::small_bytes(&update.effects);
        let bytes = update.entry.as_bytes().len() + small + nacre_wire::msg::payload_len(&payload);
        let at = self
            .updates
            .iter()
            .position(|outgoing| outgoing.to == to)
            .unwrap_or_else(|| {
                self.updates.push(Outgoing {
                    to,
                    updates: Vec::new(),
                    payload: Payload::new(),
                    bytes: 0,
                });
                self.updates.len() - 1
            });
        let outgoing = &mut self.updates[at];
        outgoing.updates.push(update);
        outgoing.payload.extend(payload);
        outgoing.bytes += bytes;
        if outgoing.bytes >= UPDATES_BYTES {
            self.send_updates(Some(to));
        }
    }
    /// Sends the waiting updates, for this replica or for all: before any other message to it.
    pub fn send_updates(&mut self, only: Option<OsdId>) {
        for Outgoing {
            to,
            updates,
            payload,
            ..
        } in self
            .updates
            .extract_if(.., |outgoing| only.is_none_or(|to| to == outgoing.to))
        {
            let message = Message::Replicate(Replicate { updates }, payload);
            self.out.push(Output::Send {
                to: Entity::Osd(to),
                message,
                before: None,
            });
        }
    }

    /// Sends to a client, before a deadline if there is one. For an OSD, in order with its other
    /// messages.
    pub fn reply(&mut self, to: Entity, message: Message, before: Option<Time>) {
        if let Entity::Osd(osd) = to {
            if osd == self.me() {
                self.loopback.push_back(message);
                return;
            }
            self.send_updates(Some(osd));
        }
        self.out.push(Output::Send {
            to,
            message,
            before,
        });
    }

    /// Reports to a client that its operation is not executed.
    pub fn refuse(&mut self, to: Entity, request: RequestId, attempt: u32, failure: OpFailure) {
        self.reply(
            to,
            Message::OpReply(refusal(request, attempt, failure), Payload::new()),
            None,
        );
    }

    /// Submits a transaction; its commit returns to the PG as `purpose`, unless the PG's interval
    /// has ended by then.
    pub fn submit(
        &mut self,
        pg: PgId,
        interval: Epoch,
        mut ops: Vec<Op>,
        purpose: Purpose,
    ) -> Token {
        crate::clones::note(&mut ops);
        let token = self.token(pg, interval, purpose);
        self.out.push(Output::Submit {
            transaction: Transaction { ops },
            token,
        });
        token
    }

    /// Reads; the reply returns to the PG as `purpose`.
    pub fn read(&mut self, pg: PgId, interval: Epoch, read: Read, purpose: Purpose) {
        let token = self.token(pg, interval, purpose);
        self.out.push(Output::Read { read, token });
    }

    fn token(&mut self, pg: PgId, interval: Epoch, purpose: Purpose) -> Token {
        self.pending.push(pg, interval, purpose)
    }

    /// Acknowledges at the end of this turn.
    pub fn ack_later(&mut self, pg: PgId) {
        if self.acks.last() != Some(&pg) {
            self.acks.push(pg);
        }
    }

    /// Whether recovery or backfill may add `bytes`; they are counted at once.
    pub fn take_part(&mut self, bytes: u64) -> bool {
        let fits = self.room.take_part(bytes);
        if !fits {
            self.counters.borders.parts_without_room += 1;
            self.no_room_until = self.now + self.config.timing.retry_interval * 4;
        }
        fits
    }
    /// Whether that was refused lately. A refused part is resent every few hundred milliseconds.
    pub fn has_no_room(&self) -> bool {
        self.no_room_until > self.now
    }
    /// Whether only the reserve is left at the member, this OSD included, according to its reports.
    pub fn is_nearly_full_at(&self, osd: nacre_types::OsdId) -> bool {
        if osd == self.config.id {
            self.room.is_nearly_full()
        } else {
            self.peers.is_nearly_full(osd)
        }
    }
    /// Whether the member reports of its store what [`Self::has_no_room`] states of ours.
    pub fn has_no_room_at(&self, osd: nacre_types::OsdId) -> bool {
        if osd == self.config.id {
            self.has_no_room()
        } else {
            self.peers.has_no_room(osd)
        }
    }

    /// Whether writes to the pool that need space are refused.
    pub fn is_full(&self, pool: nacre_types::PoolId) -> bool {
        let pool = self.map.as_ref().and_then(|map| map.pools.get(&pool));
        self.room.is_nearly_full()
            || pool.is_some_and(|pool| pool.flags & nacre_wire::map::pool_flag::FULL != 0)
    }

    /// Adds a line to the cluster log.
    pub fn say(&mut self, severity: Severity, text: String) {
        self.log.push((severity, text, Once(String::new())));
    }
    /// Adds a line that other daemons may report as well, with a text of their own: the cluster log
    /// has only the first of `key`.
    pub fn say_once(&mut self, severity: Severity, key: String, text: String) {
        self.log.push((severity, text, Once(key)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_in_any_order_and_once() {
        let mut expected = PendingEvents::default();
        let tokens: Vec<Token> = (0..4)
            .map(|seed| {
                expected.push(
                    PgId {
                        seed,
                        ..PgId::default()
                    },
                    Epoch(1),
                    Purpose::Nothing,
                )
            })
            .collect();
        for at in [1, 0, 3, 2] {
            assert_eq!(
                expected.take(tokens[at]).map(|(pg, _, _)| pg.seed),
                Some(at as u32)
            );
            assert!(expected.take(tokens[at]).is_none());
        }
        let next = expected.push(PgId::default(), Epoch(1), Purpose::Nothing);
        assert!(
            !tokens.contains(&next)
                && expected.take(Token(99)).is_none()
                && expected.take(next).is_some()
        );
    }
}
