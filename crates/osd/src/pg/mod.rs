//! One placement group at one OSD.
//!
//! ```text
//!              map: I am …                          Phase of a primary (`peering.rs`)
//!   ┌─────────┬──────────────┬────────────┐      GetInfo ─▶ GetLog ─▶ Adopting ─▶ Activating ─▶ Active
//!   │ Primary │ Member       │ Stray      │         │  ▲                  │            │
//!   │ orders, │ stores what  │ answers    │         ▼  └── new interval ──┴────────────┘  (any phase)
//!   │ answers │ it is told   │ questions  │      Down (a member is needed)   Remap (asked for a temporary set)
//!   └─────────┴──────────────┴────────────┘
//! ```
//! Who owns what:
//!
//! ```text
//!   Pg ─┬─ Local · Interval · Sending · Receiving
//!       └─ Role ─┬─ Stray ── Erasing
//!                ├─ Member ── TargetScan
//!                └─ Primary ── Peering · Objects · Recovery · Backfill · Damage · Counting · …
//! ```
//! Who may touch what. A machine is a type; what it is given, by its fields or its parameters, is
//! all of the group that it can reach. Where it wants something of the group afterwards, it returns
//! that (`Reached`, `Ended`, `Next`, `Step`).
//!
//! ```text
//!   Pg ── input ─┬─▶ Stray    Local, Interval
//!                ├─▶ Follow   Local, Interval, Sending, Receiving, Member
//!                └─▶ Lead     Local, Interval, Sending, Receiving, Primary
//!   Lead ─┬─▶ Agree    peering      Local, Peering, the members, how far updates have come
//!         ├─▶ Admit    admission    queues, who was heard, who was turned away
//!         ├─▶ Gate     waiting      queues; looks at all that an operation may wait for
//!         ├─▶ Order    log places   Local, Receiving, Counting
//!         ├─▶ Outbox   transfers    queues, Sending
//!         ├─▶ Replies  answers      what is remembered and in flight
//!         ├─▶ Lister   listings     queues; looks at Local
//!         ├─▶ Work     a range      queues; looks at Local and Sending
//!         ├─▶ Counting, Trimming, Watching, Damage, Recovery, Backfill: their own state
//!         └─▶ Holders, Clones       who has what, what is cloned: they only look
//! ```
//! What is left to [`Lead`] itself is what goes back and forth between queues, updates, recovery
//! and repair: an operation that waits for an object begins its recovery, which goes on with the
//! operation, in the same turn and in this order.
//!
//! * [`local`] what is stored; `stored`, [`log`], [`dedup`] its parts; `split` two of one;
//! * `peering` a new interval finds out what is true (CEPH-52); `logs` what it sends;
//! * `member` what a member does that is told;
//! * `replication` updates from the primary to the others (CEPH-45); `order`, `update` before that;
//! * `ops` client operations; `object` the queue of one object; `waiting`, `reads`, `replies` what
//!   they wait for, read and are answered;
//! * `transfer` and `receive` whole objects between members; `recovery` and `backfill` which ones
//!   (CEPH-51, -53, -54);
//! * `check` what is counted is there;
//! * `count` how much the group holds, after a split;
//! * `catchup` receivers that have lost an update;
//! * `erase` a group that is not ours any more;
//! * `repair` copies that cannot be read any more; `lost` those that were overwritten in part;
//! * `undone` copies with more on them than they should have; `redo` objects of which there are no
//!   others;
//! * [`watch`] who watches an object; `notify` what they are told;
//! * [`snapshots`] clones on write, reads at snapshots; [`trim`] clones that are needed no more;
//!   [`copy`] copies of other objects.
//!
//! A new interval throws away everything but [`local::Local`]: clients and timers repeat what was
//! under way.
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

use crate::awaited::{Awaited, StoreOutcome};
use crate::shared::Shared;
use crate::{Mutant, mutant};
use erase::Erasing;
pub use interval::Interval;
pub(crate) use lead::Lead;
use local::Local;
use member::Follow;
pub use member::Member;
use nacre_types::{Entity, Epoch, Name, ObjectId, OsdId, PgId, Time, Version};
use nacre_wire::msg::client::{OpFailure, OpRequest};
use nacre_wire::msg::replication::{
    Logged, PeerInfo, ProgressAck, Push, ReplicaUpdate, ReplicateAcks,
};
use nacre_wire::{Message, Payload};
use receive::{Expects, Receiving};
pub use stray::Stray;
use transfer::{Sending, Unsent};

/// What this OSD is to the group.
#[derive(Debug)]
pub enum Role {
    /// Not a part of it; may have what others need.
    Stray(Stray),
    /// Serves or is backfilled under another's orders.
    Member(Member),
    /// Orders.
    Primary(Box<primary::Primary>),
}

/// One placement group at one OSD.
#[derive(Debug)]
pub struct Pg {
    /// What is stored.
    pub local: Local,
    /// What the map says.
    pub interval: Interval,
    /// What we are.
    pub role: Role,
    /// Objects on their way to others.
    pub sending: Sending,
    /// Objects on their way here.
    receiving: Receiving,
    counted: Counted,
}

/// What a role may touch of the group.
enum Part<'a> {
    Stray(&'a mut Stray, &'a mut Local, &'a Interval),
    Follow(Follow<'a>),
    Lead(Lead<'a>),
}

/// What the daemon counts of the group.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// Objects under way that [`Shared::recovering`] counts.
    pub(crate) recovering: usize,
    /// Whether [`Shared::backfilling`] counts a range of ours.
    range: bool,
    /// Whether the daemon counts us among those that want ticks.
    busy: bool,
}

impl Counted {
    /// Keeps [`Shared::backfilling`] true.
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
    /// A group as it is in the store, before any map.
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

    /// Which group.
    #[must_use]
    pub const fn id(&self) -> PgId {
        self.local.pg()
    }

    /// The group as our role has it.
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

    /// The group as its primary has it, if we are it.
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

    /// The map changed: begin the interval it says, or go on in ours.
    pub fn on_map(&mut self, sh: &mut Shared) {
        let map = sh.map.as_ref().expect("called because of a map");
        let Some(interval) = Interval::of(map, self.id()) else {
            // A daemon that starts may be told an old map first, by a monitor that has just started
            // too. Only a map that has known the pool and knows it no longer says that the data may
            // go.
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

    /// The daemon's instance is over, and what the map says of the group now is not to be acted on
    /// yet: nothing of the interval goes on.
    pub fn stand_down(&mut self, sh: &mut Shared) {
        self.begin_interval(Interval::none(self.id()), sh);
    }

    /// Nothing of what is under way goes on: clients and timers repeat it.
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
        // Whatever this interval wants of us: what was marked to be erased stays so, and what is to
        // go is said again.
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

    /// What is here is not needed any more.
    fn begin_erase(&mut self, sh: &mut Shared) {
        if matches!(&self.role, Role::Stray(stray) if stray.erasing != Erasing::No) {
            return;
        }
        self.end_work(sh);
        let mut stray = Stray::new(Time::MAX);
        // What never came into being is not erased, and nobody's operations wait for it any more.
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

    /// Keeps what is known of all groups together true when something has happened to this one.
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
    /// The same, when nothing is counted.
    pub(crate) fn count_anew(&mut self, busy: &mut usize, sh: &mut Shared) {
        self.counted = Counted::default();
        self.count(busy, sh);
    }
    /// Whether the daemon counts us among those that want ticks.
    pub(crate) const fn is_busy(&self) -> bool {
        self.counted.busy
    }

    /// Repeats what has not been answered.
    pub fn on_tick(&mut self, sh: &mut Shared) {
        self.sending.retry(&self.interval, sh);
        match self.part() {
            Part::Stray(stray, local, at) => stray.on_tick(local, at, sh),
            Part::Follow(mut follow) => follow.on_tick(sh),
            Part::Lead(mut lead) => lead.on_tick(sh),
        }
    }

    /// A store event that was expected in this interval.
    pub fn on_store(&mut self, awaited: Awaited, outcome: StoreOutcome, sh: &mut Shared) {
        let at = &self.interval;
        match (awaited, outcome) {
            (Awaited::Nothing, _) => {}
            (Awaited::InfoBarrier(to), _) => self.send_info(to, sh),
            (Awaited::CursorStored { to, cursor, round }, _) => {
                let message = ProgressAck {
                    pg: at.pg,
                    interval: at.since,
                    cursor,
                    round,
                };
                sh.send(to, Message::ProgressAck(message));
            }
            (
                Awaited::PushRead {
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
                Awaited::PartStored {
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
            (awaited, outcome) => match self.part() {
                Part::Stray(stray, local, at) => stray.on_store(awaited, outcome, local, at, sh),
                Part::Follow(mut follow) => follow.on_store(awaited, outcome, sh),
                Part::Lead(mut lead) => lead.on_store(awaited, outcome, sh),
            },
        }
    }

    /// An object that was to be sent is not here at that version, or cannot be read: another member
    /// must have it.
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
        // A client that does not know this interval will send again when it does: its order is then
        // that of its resends.
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
    pub fn on_replicate(
        &mut self,
        from: OsdId,
        message: ReplicaUpdate,
        payload: Payload,
        sh: &mut Shared,
    ) {
        if self.is_ordered_by(from, message.interval) {
            if let Part::Follow(mut follow) = self.part() {
                follow.on_replicate(message, payload, sh);
            }
        } else if mutant(Mutant::AckIntervalUnchecked)
            && self.logged().number >= message.entry.version().number
        {
            let logged = Logged {
                pg: message.pg,
                interval: message.interval,
                version: message.entry.version(),
            };
            let acks = ReplicateAcks {
                logged: vec![logged],
                nearly_full: false,
            };
            sh.send(from, Message::ReplicateAcks(acks));
        }
    }

    /// Whether a message of an interval is of this one, and from its primary.
    fn is_ordered_by(&self, from: OsdId, interval: Epoch) -> bool {
        interval == self.interval.since && self.interval.primary() == Some(from)
    }

    /// Our log is durable up to here.
    const fn logged(&self) -> Version {
        match &self.role {
            Role::Member(member) => member.logged,
            Role::Primary(primary) => primary.logged,
            Role::Stray(_) => Version::NONE,
        }
    }

    /// A member has everything up to some version.
    pub fn on_member_logged(&mut self, from: OsdId, message: &Logged, sh: &mut Shared) {
        if message.interval == self.interval.since
            && let Some(mut lead) = self.lead()
        {
            lead.on_member_logged(from, message.version, sh);
        }
    }

    /// An update is applied in memory here. Updates are applied in order, so it stands for all
    /// before it.
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

    /// As a member: what is durable here, and who is to hear of it.
    pub(crate) fn logged_for_primary(&self) -> Option<(OsdId, Logged)> {
        match &self.role {
            Role::Member(member) => member.logged_for_primary(&self.interval),
            _ => None,
        }
    }

    /// Our store has overwritten a part of a block of the object that it could not read; `since` is
    /// the version that did it, if it is known.
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

    /// Another OSD of the group says something of the interval `of`.
    pub fn on_message(&mut self, from: OsdId, of: Epoch, message: Message, sh: &mut Shared) {
        if of != self.interval.since {
            return;
        }
        let ordered = self.is_ordered_by(from, of);
        let at = &self.interval;
        match message {
            // As a source, a stray too.
            Message::Pull(m) if ordered => {
                let version = (m.version, false);
                self.sending.push_object(from, &m.object, version, at, sh);
            }
            Message::LogQuery(m) => logs::send_log(from, &m, &self.local, at, sh),
            Message::Push(m, payload) => self.on_push(from, m, payload, sh),
            Message::PeerQuery(_) if !matches!(self.role, Role::Primary(_)) => {
                at.submit(sh, Vec::new(), Awaited::InfoBarrier(from));
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
        // What is left of the last activated interval's primary's right to read under a lease from
        // us.
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

    /// Whether there is nothing left to remember.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(&self.role, Role::Stray(stray) if stray.erasing == Erasing::No)
            && !self.local.exists
    }
}

/// By object, in an order that replays: that of insertions, but for what a removal moved. Names of
/// one pool often begin alike, which makes a tree of them slow.
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
