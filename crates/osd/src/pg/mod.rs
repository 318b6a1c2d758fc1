//! One placement group at one OSD.
//!
//! ```text
//!              map: I am …                          Phase of a primary (`peering.rs`)
//!   ┌─────────┬──────────────┬────────────┐      GetInfo ─▶ GetLog ─▶ Adopting ─▶ Activating ─▶ Active
//!   │ Primary │ Member       │ Stray      │         │  ▲                  │            │
//!   │ orders, │ executes    │ answers    │         ▼  └── new interval ──┴────────────┘  (any phase)
//!   │ answers │ its orders  │ queries    │      Down (a member is needed)   Remap (asked for a temporary set)
//!   └─────────┴──────────────┴────────────┘
//! ```
//! Ownership:
//!
//! ```text
//!   Pg ─┬─ Local · Interval · Sending · Receiving
//!       └─ Role ─┬─ Stray ── Erasing
//!                ├─ Member ── TargetScan
//!                └─ Primary ── Peering · Objects · Recovery · Backfill · Damage · Counting · …
//! ```
//! Access. A machine is a type; its fields and parameters are all the state of the PG that it can
//! access. If it requires an action of the PG afterwards, it returns that (`Reached`, `Ended`,
//! `Next`, `Step`).
//!
//! ```text
//!   Pg ── input ─┬─▶ Stray    Local, Interval
//!                ├─▶ Follow   Local, Interval, Sending, Receiving, Member
//!                └─▶ Lead     Local, Interval, Sending, Receiving, Primary
//!   Lead ─┬─▶ Agree    peering      Local, Peering, the members, how far updates have come
//!         ├─▶ Admit    admission    queues, clients served, clients turned away
//!         ├─▶ Gate     waiting      queues; reads all that an operation may wait for
//!         ├─▶ Order    positions    Local, Receiving, Counting
//!         ├─▶ Outbox   transfers    queues, Sending
//!         ├─▶ Replies  answers      remembered and in-flight updates
//!         ├─▶ Lister   listings     queues; reads Local
//!         ├─▶ Work     a range      queues; reads Local and Sending
//!         ├─▶ Counting, Trimming, Watching, Damage, Recovery, Backfill: their own state
//!         └─▶ Holders, Clones       holders' objects, clones: read-only
//! ```
//! [`Lead`] itself keeps the interactions between queues, updates, recovery and repair: an
//! operation that waits for an object begins its recovery, which continues with the operation, in
//! the same turn and in this order.
//!
//! * [`local`] the stored state; `stored`, [`log`], [`dedup`] its parts; `split` divides one in
//!   two;
//! * `peering` a new interval establishes the authoritative state (CEPH-52); `logs` sends it;
//! * `member` a member that is not primary;
//! * `replication` updates from the primary to the others (CEPH-45); `order`, `update` before that;
//! * `ops` client operations; `object` the queue of one object; `waiting`, `reads`, `replies` their
//!   waits, reads and answers;
//! * `transfer` and `receive` whole objects between members; `recovery` and `backfill` which ones
//!   (CEPH-51, -53, -54);
//! * `check` invariants of the counters;
//! * `count` the totals of the PG after a split;
//! * `catchup` receivers that have lost an update;
//! * `erase` the data of a PG that is no longer ours;
//! * `repair` replicas that cannot be read; `lost` those that were partly overwritten;
//! * `undone` replicas with updates that they should not have; `redo` objects without other
//!   replicas;
//! * [`watch`] watchers of an object; `notify` their notifications;
//! * [`snapshots`] clones on write, reads at snapshots; [`trim`] clones that are no longer needed;
//!   [`copy`] copies of other objects.
//!
//! A new interval discards everything except [`local::Local`]: clients and timers repeat what was
//! in progress.
//!
//! Invariants ([`Pg::check`]): those of `Local`; a reply for version `v` implies that `v` is
//! durable on the whole acting set of an activated interval; `committed ≤ acked[m] ≤ head` for
//! every acting member `m`.

pub mod answered;
pub mod backfill;
pub mod catchup;
mod check;
pub mod copy;
pub mod count;
mod cover;
pub mod dedup;
pub mod erase;
mod holders;
mod interval;
mod lead;
pub mod listing;
pub mod local;
pub mod log;
mod logs;
mod lost;
mod member;
mod notify;
pub mod object;
pub mod ops;
mod order;
mod outbox;
pub mod peering;
pub mod pending;
mod phase;
pub mod primary;
mod range;
mod reads;
mod receive;
pub mod recovery;
mod redo;
pub mod repair;
pub mod replication;
mod replies;
mod report;
mod ring;
mod scan;
mod shares;
mod slow;
pub mod snapshots;
mod split;
mod stored;
mod stray;
mod sweep;
pub mod transfer;
pub mod trim;
mod undone;
mod unseen;
mod update;
mod waiting;
pub mod watch;

use crate::purpose::{Purpose, StoreOutcome};
use crate::shared::Shared;
use erase::Erasing;
pub use interval::Interval;
pub(crate) use lead::Lead;
use local::Local;
use member::Follow;
pub use member::Member;
use nacre_types::{Entity, Epoch, Name, ObjectId, OsdId, PgId, Time, Version};
use nacre_wire::msg::client::{OpFailure, OpRequest};
use nacre_wire::msg::replication::{Logged, PeerInfo, ProgressAck, Push, ReplicaUpdate};
use nacre_wire::{Message, Payload};
use receive::{Expects, Receiving};
pub use stray::Stray;
use transfer::{Sending, Unsent};

#[cfg(feature = "mutants")]
#[path = "../mutants/pg.rs"]
mod planted;

/// The role of this OSD in the PG.
#[derive(Debug)]
pub enum Role {
    /// Not a member; may have data that others need.
    Stray(Stray),
    /// Serves or is backfilled under the primary's orders.
    Member(Member),
    /// Orders the updates.
    Primary(Box<primary::Primary>),
}

/// One placement group at one OSD.
#[derive(Debug)]
pub struct Pg {
    /// The stored state.
    pub local: Local,
    /// The map's view.
    pub interval: Interval,
    /// Our role.
    pub role: Role,
    /// Objects being sent.
    pub sending: Sending,
    /// Objects being received.
    receiving: Receiving,
    counted: Counted,
}

/// The state of the PG that a role may access.
enum Part<'a> {
    Stray(&'a mut Stray, &'a mut Local, &'a Interval),
    Follow(Follow<'a>),
    Lead(Lead<'a>),
}

/// The PG's contributions to the daemon's counters.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// Objects being recovered that [`Shared::recovering`] counts.
    pub(crate) recovering: usize,
    /// Whether [`Shared::backfilling`] counts a range of this PG.
    range: bool,
    /// Whether the daemon counts this PG among those that want ticks.
    busy: bool,
}

impl Counted {
    /// Keeps [`Shared::backfilling`] correct.
    fn count_range(&mut self, has: bool, sh: &mut Shared) {
        if has != self.range {
            self.range = has;
            sh.backfilling = if has {
                sh.backfilling + 1
            } else {
                sh.backfilling - 1
            };
        }
    }
}

impl Pg {
    /// A PG as stored, before any map.
    #[must_use]
    pub fn new(local: Local) -> Self {
        Self {
            interval: Interval::none(local.pg()),
            local,
            role: Role::Stray(Stray::new(Time::MAX)),
            sending: Sending::default(),
            receiving: Receiving::default(),
            counted: Counted::default(),
        }
    }

    /// The PG's id.
    #[must_use]
    pub const fn id(&self) -> PgId {
        self.local.pg()
    }

    /// The PG from the view of our role.
    fn part(&mut self) -> Part<'_> {
        let Self {
            local,
            interval,
            role,
            sending,
            receiving,
            counted,
        } = self;
        match role {
            Role::Stray(stray) => Part::Stray(stray, local, interval),
            Role::Member(member) => Part::Follow(Follow {
                local,
                interval,
                sending,
                receiving,
                member,
            }),
            Role::Primary(primary) => Part::Lead(Lead {
                local,
                interval,
                sending,
                receiving,
                counted,
                primary,
            }),
        }
    }

    /// The PG from the view of its primary, if we are it.
    pub(crate) fn lead(&mut self) -> Option<Lead<'_>> {
        match self.part() {
            Part::Lead(lead) => Some(lead),
            _ => None,
        }
    }

    /// The primary's state, if we are it.
    #[must_use]
    pub fn as_primary(&self) -> Option<&primary::Primary> {
        match &self.role {
            Role::Primary(primary) => Some(primary),
            _ => None,
        }
    }

    /// The map changed: begins a new interval, or continues the current one.
    pub fn on_map(&mut self, sh: &mut Shared) {
        let map = sh.map.as_ref().expect("called because of a map");
        let Some(interval) = Interval::of(map, self.id()) else {
            // A daemon that starts may get an old map first, from a monitor that has just started
            // too. The data may be erased only by a map that has known the pool and no longer
            // contains it.
            let pool = self.id().pool;
            if map.pool_last >= pool && !map.pools.contains_key(&pool) {
                self.begin_erase(sh);
            }
            return;
        };
        if interval.since != self.interval.since {
            self.begin_interval(interval, sh);
        } else {
            let activated = interval.activated.interval != self.interval.activated.interval;
            self.interval = interval;
            if let Some(mut lead) = self.lead() {
                lead.agree().on_map(sh);
                if activated {
                    lead.on_activation(sh);
                }
            }
        }
        if let Role::Primary(primary) = &mut self.role {
            primary.trimming.on_map(&self.local, &self.interval, sh);
        }
    }

    /// The daemon's instance has ended, and the map's current view of the PG must not be acted on
    /// yet: all work of the interval ends.
    pub fn stand_down(&mut self, sh: &mut Shared) {
        self.begin_interval(Interval::none(self.id()), sh);
    }

    /// Ends all work in progress: clients and timers repeat it.
    fn end_work(&mut self, sh: &mut Shared) {
        if let Role::Primary(primary) = &mut self.role {
            primary.drop_operations(&self.interval, sh);
        }
        self.sending.end_all();
        self.receiving.end_all(&self.interval, sh);
    }

    fn begin_interval(&mut self, interval: Interval, sh: &mut Shared) {
        self.end_work(sh);
        self.interval = interval;
        // Independent of the interval's demands: data marked for erasing stays marked, and erasing
        // begins again.
        let me = sh.me();
        if self.interval.primary() == Some(me) {
            self.role = Role::Primary(Box::new(primary::Primary::new(sh.now)));
            self.lead().expect("just made").agree().begin(sh);
        } else if self.interval.acting.contains(&me) || self.interval.up.contains(&me) {
            self.role = Role::Member(Member::default());
        } else {
            let at = sh.after(1);
            self.role = Role::Stray(Stray::new(at));
        }
    }

    /// The data here is not needed any more.
    fn begin_erase(&mut self, sh: &mut Shared) {
        if matches!(&self.role, Role::Stray(stray) if stray.erasing != Erasing::No) {
            return;
        }
        self.end_work(sh);
        let mut stray = Stray::new(Time::MAX);
        // A PG that never existed is not erased, and no operations wait for it any more.
        if self.local.exists {
            stray.erasing = Erasing::begin(&mut self.local, &self.interval, sh);
        }
        self.role = Role::Stray(stray);
    }

    /// Whether [`Self::on_tick`] may have something to do.
    #[must_use]
    pub fn needs_tick(&self) -> bool {
        let own = match &self.role {
            Role::Stray(_) => self.local.exists,
            Role::Member(_) => false,
            Role::Primary(primary) => primary.has_work() || primary.wants_count(&self.local),
        };
        let lost = !self.local.lost.is_empty() && !matches!(self.role, Role::Stray(_));
        own || lost || self.sending.is_busy()
    }

    /// Updates the daemon's counters after an event of this PG.
    pub(crate) fn count(&mut self, busy: &mut usize, sh: &mut Shared) {
        let primary = self.as_primary();
        let range = primary.is_some_and(|primary| primary.backfill.has_range());
        let pulls = primary.map_or(0, |primary| primary.recovery.pulls.len());
        let recovering = recovery::under_way(pulls, &self.sending, sh);
        sh.recovering = sh.recovering + recovering - self.counted.recovering;
        self.counted.recovering = recovering;
        self.counted.count_range(range, sh);
        let is_busy = self.needs_tick();
        *busy = *busy + usize::from(is_busy) - usize::from(self.counted.busy);
        self.counted.busy = is_busy;
    }
    /// The same, when nothing is counted yet.
    pub(crate) fn count_anew(&mut self, busy: &mut usize, sh: &mut Shared) {
        self.counted = Counted::default();
        self.count(busy, sh);
    }
    /// Whether the daemon counts this PG among those that want ticks.
    pub(crate) const fn is_busy(&self) -> bool {
        self.counted.busy
    }

    /// Repeats unanswered messages.
    pub fn on_tick(&mut self, sh: &mut Shared) {
        self.sending.retry(&self.interval, sh);
        match self.part() {
            Part::Stray(stray, local, at) => stray.on_tick(local, at, sh),
            Part::Follow(mut follow) => follow.on_tick(sh),
            Part::Lead(mut lead) => lead.on_tick(sh),
        }
    }

    /// A pending store event of this interval.
    pub fn on_store(&mut self, purpose: Purpose, outcome: StoreOutcome, sh: &mut Shared) {
        let at = &self.interval;
        match (purpose, outcome) {
            (Purpose::Nothing, _) => {}
            (Purpose::InfoBarrier(to), _) => self.send_info(to, sh),
            (Purpose::CursorStored { to, cursor, round }, _) => {
                let message = ProgressAck {
                    pg: at.pg,
                    interval: at.since,
                    cursor,
                    round,
                };
                sh.send(to, Message::ProgressAck(message));
            }
            (
                Purpose::PushRead {
                    to,
                    object,
                    transfer,
                    what,
                },
                StoreOutcome::Read(reply),
            ) => {
                let read = (transfer, what);
                if let Some(unsent) = self.sending.on_push_read(to, &object, read, reply, at, sh) {
                    self.on_unsent(to, object, &unsent, sh);
                }
            }
            (
                Purpose::PartStored {
                    from,
                    object,
                    version,
                    part,
                    last,
                },
                _,
            ) => {
                self.receiving
                    .on_part_stored(from, &object, version, (part, last), at, sh);
                if last && let Some(mut lead) = self.lead() {
                    lead.on_received(&object, version, sh);
                }
            }
            (purpose, outcome) => match self.part() {
                Part::Stray(stray, local, at) => stray.on_store(purpose, outcome, local, at, sh),
                Part::Follow(mut follow) => follow.on_store(purpose, outcome, sh),
                Part::Lead(mut lead) => lead.on_store(purpose, outcome, sh),
            },
        }
    }

    /// An object to be sent is not here at that version, or cannot be read: another member must
    /// have it.
    fn on_unsent(&mut self, to: OsdId, object: ObjectId, unsent: &Unsent, sh: &mut Shared) {
        let (version, damaged) = (unsent.ended.version, unsent.damaged);
        if let Some(mut lead) = self.lead() {
            lead.on_unsent(to, &object, unsent, sh);
            return;
        }
        if let (true, Role::Member(member)) = (damaged, &mut self.role) {
            member.damaged.insert(object.clone(), version);
        }
        receive::cannot_send(to, object, version, damaged, &self.interval, sh);
    }

    /// An operation of a client. `name` and `epoch` are the client's.
    pub fn on_request(
        &mut self,
        from: Entity,
        name: &Name,
        epoch: Epoch,
        request: OpRequest,
        payload: Payload,
        sh: &mut Shared,
    ) {
        // A client that does not know this interval will resend when it does: the order of its
        // operations is then that of the resends.
        let knows = epoch >= self.interval.since;
        match self.lead().filter(|_| knows) {
            Some(mut lead) => lead.on_request(from, name, request, payload, sh),
            None => {
                let (id, attempt) = (request.request, request.attempt);
                sh.refuse(from, id, attempt, OpFailure::WrongTarget {});
            }
        }
    }

    /// An update arrived from the primary.
    #[nacre_types::planted]
    pub fn on_replicate(
        &mut self,
        from: OsdId,
        message: ReplicaUpdate,
        payload: Payload,
        sh: &mut Shared,
    ) {
        if self.is_ordered_by(from, message.interval)
            && let Part::Follow(mut follow) = self.part()
        {
            follow.on_replicate(message, payload, sh);
        }
    }

    /// Whether a message belongs to this interval and is from its primary.
    fn is_ordered_by(&self, from: OsdId, interval: Epoch) -> bool {
        interval == self.interval.since && self.interval.primary() == Some(from)
    }

    /// A member has everything up to some version.
    pub fn on_member_logged(&mut self, from: OsdId, message: &Logged, sh: &mut Shared) {
        if message.interval == self.interval.since
            && let Some(mut lead) = self.lead()
        {
            lead.on_member_logged(from, message.version, sh);
        }
    }

    /// An update is applied in memory here. Updates are applied in order, so this covers all
    /// earlier ones.
    pub(crate) fn on_applied(&mut self, version: Version, sh: &mut Shared) {
        match &mut self.role {
            Role::Stray(_) => {}
            Role::Member(member) => member.on_applied(version, &self.interval, sh),
            Role::Primary(primary) => {
                primary.applied = version;
                primary.tell_applied(&self.interval, sh);
            }
        }
    }

    /// As a member: the durable position, and the primary to report it to.
    pub(crate) fn logged_for_primary(&self) -> Option<(OsdId, Logged)> {
        match &self.role {
            Role::Member(member) => member.logged_for_primary(&self.interval),
            _ => None,
        }
    }

    /// Our store has overwritten a part of a block of the object that it could not read; `since` is
    /// the version that did it, if known.
    pub(crate) fn on_lost(&mut self, object: &ObjectId, since: Version, sh: &mut Shared) {
        if !lost::note(object, since, &mut self.local, &self.interval, sh) {
            return;
        }
        match self.part() {
            Part::Stray(_, local, _) => lost::heard(local, sh),
            Part::Follow(mut follow) => follow.tell_lost(sh),
            Part::Lead(mut lead) => lead.tell_lost(sh),
        }
    }

    /// A message of the interval `of` from another OSD of the PG.
    pub fn on_message(&mut self, from: OsdId, of: Epoch, message: Message, sh: &mut Shared) {
        if of != self.interval.since {
            return;
        }
        let ordered = self.is_ordered_by(from, of);
        let at = &self.interval;
        match message {
            // As a source, even as a stray.
            Message::Pull(m) if ordered => {
                let version = (m.version, false);
                self.sending.push_object(from, &m.object, version, at, sh);
            }
            Message::LogQuery(m) => logs::send_log(from, &m, &self.local, at, sh),
            Message::Push(m, payload) => self.on_push(from, m, payload, sh),
            Message::PeerQuery(_) if !matches!(self.role, Role::Primary(_)) => {
                at.submit(sh, Vec::new(), Purpose::InfoBarrier(from));
            }
            Message::Discard(_) if ordered && matches!(self.role, Role::Stray(_)) => {
                self.begin_erase(sh);
            }
            Message::PushAck(m) if m.have && !matches!(self.role, Role::Primary(_)) => {
                self.sending.on_push_ack(from, &m, at, sh);
            }
            message => match self.part() {
                Part::Stray(..) => {}
                Part::Follow(mut follow) => follow.on_message(from, ordered, message, sh),
                Part::Lead(mut lead) => lead.on_message(from, message, sh),
            },
        }
    }

    /// A part of an object arrived.
    fn on_push(&mut self, from: OsdId, push: Push, payload: Payload, sh: &mut Shared) {
        let at = &self.interval;
        if at.primary() != Some(from) && at.primary() != Some(sh.me()) {
            return;
        }
        match self.part() {
            Part::Follow(mut follow) => follow.on_push(from, push, payload, sh),
            Part::Lead(mut lead) => lead.on_push(from, push, payload, sh),
            Part::Stray(_, local, at) => {
                if let Some(wanted) = Expects::default().judge(from, &push, local, at, sh) {
                    let part = (push, payload);
                    self.receiving
                        .take(from, part, wanted, &mut self.local, &self.interval, sh);
                }
            }
        }
    }

    fn send_info(&self, to: OsdId, sh: &mut Shared) {
        let at = &self.interval;
        // The remaining time of our lease to the primary of the last activated interval.
        let left = at.activated.members.first().map_or(0, |primary| {
            let left = sh.peers.lease_left(sh.now, *primary);
            u64::try_from(left.as_nanos()).expect("a lease is short")
        });
        let message = PeerInfo {
            pg: at.pg,
            interval: at.since,
            info: self.local.info(Version::NONE),
            lease_left_ns: left,
            logged_max: sh.logged_max,
        };
        sh.send(to, Message::PeerInfo(message));
    }

    /// Whether there is no state left to keep.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(&self.role, Role::Stray(stray) if stray.erasing == Erasing::No)
            && !self.local.exists
    }
}

/// By object, in a reproducible order: that of insertions, except for elements that a removal
/// moved. Names of one pool often have a common prefix, which makes a tree of them slow.
pub type ByObject<T> = indexmap::IndexMap<ObjectId, T, foldhash::fast::FixedState>;

#[cfg(test)]
pub(crate) mod testing {
    use nacre_types::{ClientId, Epoch, Instance, ObjectId, Version};
    use nacre_wire::msg::client::RequestId;
    use nacre_wire::{Record, RecordFields};

    pub fn v(interval: u64, number: u64) -> Version {
        Version {
            interval: Epoch(interval),
            number,
        }
    }
    pub fn fields(name: &str, prior: Version, version: Version) -> RecordFields {
        let request = RequestId {
            client: ClientId(1),
            instance: Instance(1),
            sequence: version.number,
        };
        RecordFields {
            version,
            prior,
            object: ObjectId::named(name),
            request,
            ..RecordFields::default()
        }
    }
    pub fn entry(name: &str, prior: Version, version: Version) -> Record {
        fields(name, prior, version).into()
    }
}
