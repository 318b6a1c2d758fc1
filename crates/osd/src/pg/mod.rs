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
//! * [`local`] what is stored; [`log`], [`dedup`] its parts;
//! * `peering` a new interval finds out what is true (CEPH-52);
//! * `replication` updates from the primary to the others (CEPH-45);
//! * `ops` client operations; `object` the queue of one object;
//! * `transfer` whole objects between members; `recovery` and `backfill` which ones (CEPH-51, -53,
//!   -54);
//! * `check` what is counted is there;
//! * `count` how much the group holds, after a split;
//! * `catchup` receivers that have lost an update;
//! * `erase` a group that is not ours any more;
//! * `repair` copies that cannot be read any more; `lost` those that were overwritten in part;
//! * `undone` copies with more on them than they should have; `redo` objects of which there are no
//!   others;
//! * [`watch`] who watches an object, and notifies;
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
pub mod listing;
pub mod local;
pub mod log;
mod lost;
pub mod object;
pub mod ops;
pub mod peering;
pub mod recovery;
mod redo;
pub mod repair;
pub mod replication;
mod shares;
mod slow;
pub mod snapshots;
mod sweep;
pub mod transfer;
pub mod trim;
mod undone;
mod unseen;
pub mod watch;

use crate::shared::Shared;
use bytes::Bytes;
use local::Local;
use nacre_store::{ReadError, ReadReply};
use nacre_types::{Epoch, ObjectId, OsdId, PgId, Time, Version};
use nacre_wire::map::{Activation, ClusterMap};
use nacre_wire::msg::monitor::{PgReport, pg_state};
use nacre_wire::msg::replication::{Adopt, Discard, LogReply, PeerInfo};

/// What a store event is for.
#[derive(Debug)]
pub enum Awaited {
    /// Nothing depends on it.
    Nothing,
    /// The update is durable here.
    Logged(Version),
    /// Everything in our log is durable: peering may count on it.
    Barrier,
    /// Everything in our log is durable: tell the primary that peers.
    InfoBarrier(OsdId),
    /// The adopted log is durable here; acknowledge or go on peering.
    Adopted,
    /// An object's attributes and size.
    Stat(ObjectId),
    /// A part of an operation's reads.
    OpRead {
        /// Which operation.
        op: u64,
        /// Which part.
        index: usize,
    },
    /// A part of an object to be pushed.
    PushRead {
        /// To whom.
        to: OsdId,
        /// Which object.
        object: ObjectId,
        /// For which transfer.
        transfer: u64,
        /// Which of the reads.
        what: transfer::PushRead,
    },
    /// A received part is durable.
    PartStored {
        /// From whom.
        from: OsdId,
        /// Which object.
        object: ObjectId,
        /// At which version.
        version: Version,
        /// Of which transfer, and which part.
        part: (u64, u32),
        /// Whether it completes the object.
        last: bool,
    },
    /// Objects in a range, for the backfill of this member.
    ScanList {
        /// For which comparison.
        round: u64,
        /// How many were asked for.
        limit: usize,
    },
    /// The version of one of them.
    ScanStat {
        /// For which comparison.
        round: u64,
        /// Which one.
        index: usize,
    },
    /// Objects in a range, for a client's listing.
    ClientList(u64),
    /// What a listed object is.
    ListedStat {
        /// For which listing.
        number: u64,
        /// Which object.
        object: ObjectId,
    },
    /// Objects in a range, to compare with a backfill target.
    BackfillList {
        /// For which comparison.
        round: u64,
        /// How many were asked for.
        limit: usize,
    },
    /// The version of one of them.
    BackfillStat {
        /// For which comparison.
        round: u64,
        /// Which one.
        index: usize,
    },
    /// The backfill cursor is durable here.
    CursorStored {
        /// Whom to tell.
        to: OsdId,
        /// It.
        cursor: Option<Bytes>,
        /// Of which comparison it comes.
        round: u64,
    },
    /// Objects in a page of a count.
    CountList(u64),
    /// The size of one of them.
    CountStat {
        /// Which page.
        number: u64,
        /// Which object.
        position: Bytes,
    },
    /// A page of clones, to trim them.
    TrimList(u64),
    /// What our copy of an object is, to do undone updates on it again.
    Redo(ObjectId),
    /// Objects to be erased.
    EraseList,
    /// A page of them is durably gone.
    Erased,
}

/// A store event's content.
#[derive(Debug)]
pub enum StoreOutcome {
    /// Durable.
    Committed,
    /// Read.
    Read(Result<ReadReply, ReadError>),
}

/// What the map says of the group in its current interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    /// First epoch.
    pub since: Epoch,
    /// Those who should hold it.
    pub up: Vec<OsdId>,
    /// Those who serve it.
    pub acting: Vec<OsdId>,
    /// Copies needed to serve.
    pub min_size: usize,
    /// Copies wanted.
    pub size: usize,
    /// The last activation.
    pub activated: Activation,
}

impl Interval {
    fn of(map: &ClusterMap, pg: PgId) -> Option<Self> {
        let record = map.pgs.get(&pg)?;
        let pool = map.pools.get(&pg.pool)?;
        Some(Self {
            since: record.since,
            up: record.up.clone(),
            acting: record.acting.clone(),
            min_size: usize::from(pool.min_size),
            size: usize::from(pool.size),
            activated: record.activated.clone(),
        })
    }
    /// Up members that do not serve yet.
    pub fn backfill_targets(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.up
            .iter()
            .copied()
            .filter(|osd| !self.acting.contains(osd))
    }
    /// Everyone who gets updates.
    pub fn receivers(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.acting.iter().copied().chain(self.backfill_targets())
    }
}

/// What this OSD is to the group.
#[derive(Debug)]
pub enum Role {
    /// Not a part of it; may have what others need.
    Stray {
        /// When to tell the primary next that there is something here.
        notify_at: Time,
    },
    /// Serves or is backfilled under another's orders.
    Member(replication::Member),
    /// Orders.
    Primary(Box<peering::Primary>),
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
    /// Objects under way to and from others.
    pub transfers: transfer::Transfers,
    /// Backfill scan that we do for the primary.
    pub(crate) scan: Option<backfill::TargetScan>,
    /// Objects under way that [`Shared::recovering`] counts.
    pub(crate) counted: usize,
    /// Whether [`Shared::backfilling`] counts a range of ours.
    pub(crate) counted_range: bool,
    /// Whether the daemon counts us among those that want ticks.
    pub(crate) counted_busy: bool,
    pub(crate) erasing: erase::Erasing,
}

impl Pg {
    /// A group as it is in the store, before any map.
    #[must_use]
    pub fn new(local: Local) -> Self {
        Self {
            local,
            interval: Interval::default(),
            role: Role::Stray {
                notify_at: Time::MAX,
            },
            transfers: transfer::Transfers::default(),
            scan: None,
            counted: 0,
            counted_range: false,
            counted_busy: false,
            erasing: erase::Erasing::No,
        }
    }

    /// Which group.
    #[must_use]
    pub const fn id(&self) -> PgId {
        self.local.pg()
    }

    /// The primary's state, if we are it.
    pub(crate) fn primary(&mut self) -> Option<&mut peering::Primary> {
        match &mut self.role {
            Role::Primary(primary) => Some(primary),
            _ => None,
        }
    }
    /// The primary's state, if we are it.
    #[must_use]
    pub fn as_primary(&self) -> Option<&peering::Primary> {
        match &self.role {
            Role::Primary(primary) => Some(primary),
            _ => None,
        }
    }

    /// Whether a message of the group's current interval says so.
    pub(crate) fn is_current(&self, interval: Epoch) -> bool {
        interval == self.interval.since
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
            if self.as_primary().is_some() {
                self.peering_on_map(sh);
                if activated {
                    self.on_activation(sh);
                }
            }
        }
        self.trim_on_map(sh);
    }

    /// The daemon's instance is over, and what the map says of the group now is not to be acted on
    /// yet: nothing of the interval goes on.
    pub fn stand_down(&mut self, sh: &mut Shared) {
        self.begin_interval(Interval::default(), sh);
    }

    fn begin_interval(&mut self, interval: Interval, sh: &mut Shared) {
        self.drop_operations(sh);
        self.end_transfers(sh);
        self.interval = interval;
        self.scan = None;
        // Whatever this interval wants of us: what was marked stays so, and what is to go is said
        // again.
        self.erasing = erase::Erasing::No;
        let me = sh.me();
        if self.interval.acting.first() == Some(&me) {
            self.role = Role::Primary(Box::new(peering::Primary::new(sh.now)));
            self.start_peering(sh);
        } else if self.interval.acting.contains(&me) || self.interval.up.contains(&me) {
            self.role = Role::Member(replication::Member::default());
        } else {
            self.role = Role::Stray {
                notify_at: sh.now + sh.config.timing.retry_interval,
            };
        }
    }

    /// Whether [`Self::on_tick`] may have something to do.
    #[must_use]
    pub fn needs_tick(&self) -> bool {
        let own = match &self.role {
            Role::Stray { .. } => self.local.exists,
            Role::Member(_) => false,
            Role::Primary(primary) => primary.has_work(),
        };
        let lost = !self.local.lost.is_empty() && !matches!(self.role, Role::Stray { .. });
        own || lost || self.transfers.is_busy() || self.wants_count()
    }

    /// Repeats what has not been answered.
    pub fn on_tick(&mut self, sh: &mut Shared) {
        self.retry_transfers(sh);
        match &mut self.role {
            Role::Stray { .. } if self.erasing != erase::Erasing::No => self.erase_tick(sh),
            Role::Stray { notify_at } => {
                if *notify_at <= sh.now && self.local.exists {
                    *notify_at = sh.now + sh.config.timing.beacon_interval * 2;
                    if let Some(primary) = self
                        .interval
                        .acting
                        .first()
                        .copied()
                        .filter(|osd| *osd != sh.me())
                    {
                        sh.submit(
                            self.id(),
                            self.interval.since,
                            Vec::new(),
                            Awaited::InfoBarrier(primary),
                        );
                    }
                }
            }
            Role::Member(_) => self.lost_tick(sh),
            Role::Primary(_) => {
                self.lost_tick(sh);
                self.watch_tick(sh);
                self.primary_tick(sh);
            }
        }
    }

    /// A store event that was expected in this interval.
    pub fn on_store(&mut self, awaited: Awaited, outcome: StoreOutcome, sh: &mut Shared) {
        match (awaited, outcome) {
            (Awaited::Nothing, _) => {}
            (Awaited::Logged(version), _) => self.on_logged(version, sh),
            (Awaited::Barrier, _) => self.on_barrier(sh),
            (Awaited::InfoBarrier(to), _) => self.send_info(to, self.interval.since, sh),
            (Awaited::Adopted, _) => self.on_adopted(sh),
            (Awaited::Stat(object), StoreOutcome::Read(reply)) => self.on_stat(&object, reply, sh),
            (Awaited::OpRead { op, index }, StoreOutcome::Read(reply)) => {
                self.on_op_read(op, index, reply, sh)
            }
            (Awaited::ClientList(op), StoreOutcome::Read(reply)) => {
                self.on_client_list(op, reply, sh)
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
                self.on_push_read(to, &object, (transfer, what), reply, sh);
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
                self.on_part_stored(from, &object, version, part, last, sh);
            }
            (Awaited::ScanList { round, limit }, StoreOutcome::Read(reply)) => {
                self.on_scan_list((round, limit), reply, sh);
            }
            (Awaited::ScanStat { round, index }, StoreOutcome::Read(reply)) => {
                self.on_scan_stat((round, index), reply, sh);
            }
            (Awaited::BackfillList { round, limit }, StoreOutcome::Read(reply)) => {
                self.on_backfill_list((round, limit), reply, sh);
            }
            (Awaited::BackfillStat { round, index }, StoreOutcome::Read(reply)) => {
                self.on_backfill_stat((round, index), reply, sh);
            }
            (Awaited::CursorStored { to, cursor, round }, _) => {
                self.on_cursor_stored(to, cursor, round, sh)
            }
            (Awaited::CountList(number), StoreOutcome::Read(reply)) => {
                self.on_count_list(number, reply, sh)
            }
            (Awaited::CountStat { number, position }, StoreOutcome::Read(reply)) => {
                self.on_count_stat(number, position, reply);
            }
            (Awaited::ListedStat { number, object }, StoreOutcome::Read(reply)) => {
                self.on_listed_stat(number, object, reply, sh);
            }
            (Awaited::Redo(object), StoreOutcome::Read(reply)) => {
                self.on_redo_stat(&object, reply, sh)
            }
            (Awaited::Erased, _) => self.on_erased(sh),
            (Awaited::TrimList(page), StoreOutcome::Read(reply)) => {
                self.on_trim_list(page, reply, sh)
            }
            (Awaited::EraseList, StoreOutcome::Read(reply)) => self.on_erase_list(reply, sh),
            (awaited, StoreOutcome::Committed) => panic!("{awaited:?} is a read"),
        }
    }

    /// Somebody's state arrived: an answer to peering, or a stray's notice.
    pub fn on_peer_info(&mut self, from: OsdId, message: PeerInfo, sh: &mut Shared) {
        if self.is_current(message.interval) && self.as_primary().is_some() {
            self.peering_on_info(from, message, sh);
        }
    }

    /// Answers a primary that peers.
    pub fn on_peer_query(&mut self, from: OsdId, interval: Epoch, sh: &mut Shared) {
        if self.is_current(interval) && self.as_primary().is_none() {
            sh.submit(self.id(), interval, Vec::new(), Awaited::InfoBarrier(from));
        }
    }

    fn send_info(&self, to: OsdId, interval: Epoch, sh: &mut Shared) {
        // What is left of the last activated interval's primary's right to read under a lease from
        // us.
        let left = self
            .interval
            .activated
            .members
            .first()
            .map_or(0, |primary| {
                let left = sh.peers.lease_left(sh.now, *primary);
                u64::try_from(left.as_nanos()).expect("a lease is short")
            });
        let info = self.local.info(Version::NONE);
        let message = PeerInfo {
            pg: self.id(),
            interval,
            info,
            lease_left_ns: left,
            logged_max: sh.logged_max,
        };
        sh.send(to, nacre_wire::Message::PeerInfo(message));
    }

    /// The authoritative log arrived at the primary.
    pub fn on_log_reply(&mut self, from: OsdId, message: LogReply, sh: &mut Shared) {
        if self.is_current(message.interval) && self.as_primary().is_some() {
            self.peering_on_log(from, message, sh);
        }
    }

    /// The primary's log arrived at a member.
    pub fn on_adopt(&mut self, from: OsdId, message: Adopt, sh: &mut Shared) {
        if self.is_current(message.interval) && self.interval.acting.first() == Some(&from) {
            self.member_adopt(message, sh);
        }
    }

    /// The group is clean without us.
    pub fn on_discard(&mut self, from: OsdId, message: &Discard, sh: &mut Shared) {
        let stray = matches!(self.role, Role::Stray { .. });
        if self.is_current(message.interval) && stray && self.interval.acting.first() == Some(&from)
        {
            self.begin_erase(sh);
        }
    }

    /// Whether there is nothing left to remember.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self.role, Role::Stray { .. })
            && !self.local.exists
            && self.erasing == erase::Erasing::No
    }

    /// For the monitors; `None` unless we are primary.
    #[must_use]
    pub fn report(&self) -> Option<PgReport> {
        let primary = self.as_primary()?;
        let mut state = primary.state_bits();
        let totals = self.totals();
        let wanted = self.interval.size.max(self.interval.acting.len());
        let absent = wanted - self.interval.acting.len();
        let missing: usize = self.local.missing.len()
            + primary
                .peers
                .values()
                .map(|peer| peer.missing.len())
                .sum::<usize>();
        let degraded = missing as u64 + totals.objects * absent as u64;
        let unfound = self.unfound();
        if degraded > 0 || absent > 0 {
            state |= pg_state::DEGRADED;
        }
        if self.interval.acting.len() < self.interval.min_size {
            state |= pg_state::UNDERSIZED;
        }
        if self.interval.acting != self.interval.up {
            state |= pg_state::REMAPPED;
        }
        if state & pg_state::ACTIVE != 0 && missing > 0 {
            state |= pg_state::RECOVERING;
        }
        if self.interval.backfill_targets().next().is_some() && state & pg_state::PEERING == 0 {
            state |= pg_state::BACKFILLING;
        }
        if self.is_clean() {
            state |= pg_state::CLEAN;
        }
        Some(PgReport {
            pg: self.id(),
            interval: self.interval.since,
            state,
            objects: totals.objects,
            bytes: totals.bytes,
            degraded,
            misplaced: 0,
            unfound,
            waits_for: primary.waits_for(),
        })
    }

    /// How many objects nobody who is here has, or can read from end to end.
    fn unfound(&self) -> u64 {
        let Some(primary) = self.as_primary() else {
            return 0;
        };
        let lost = primary.damage.lost_count() as u64;
        if self.local.missing.is_empty() || primary.somebody_has_all() {
            return lost;
        }
        lost + self
            .local
            .missing
            .keys()
            .filter(|object| self.sources(object).next().is_none())
            .count() as u64
    }

    /// Whether every member that the pool wants is in its place and has everything.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let Some(primary) = self.as_primary() else {
            return false;
        };
        primary.is_active()
            && self.interval.acting == self.interval.up
            && self.interval.acting.len() >= self.interval.size
            && self.local.missing.is_empty()
            && primary
                .peers
                .values()
                .all(|peer| peer.missing.is_empty() && peer.backfill.is_none())
    }

    /// Whether clones may still be there that nobody needs.
    #[must_use]
    pub fn is_trimming(&self) -> bool {
        self.as_primary()
            .is_some_and(|primary| primary.trimming.pending)
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
