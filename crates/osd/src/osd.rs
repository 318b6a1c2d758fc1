//! The daemon around the placement groups: map, peers, messages, time.
//!
//! ```text
//!  Loading ──store read──▶ Waiting for a map in which this process is up ──▶ Taking the instance ──durable──▶ Live
//!                             ▲                                                                                │
//!                             └──────────────────── the map says that this instance ended ─────────────────────┘
//! ```
//! An instance is granted by the monitors, to one process and larger than all before, and is stored
//! here before anything is done as it: a daemon that numbered its own instances could use a number
//! twice, and be live at once in an interval that it does not remember (F1). Messages with an epoch
//! newer than ours wait until we have that map ([`Osd::on_message`] holds them); a sender that is
//! behind us is sent the changes that it lacks (MAL-73).
//!
//! Invariants: a PG handles nothing before the map of the interval that it belongs to; `Osd::check`
//! asserts each PG's invariants.

mod check;
mod maps;
mod messages;
mod store;
mod time;

use crate::boot::Loading;
use crate::config::OsdConfig;
use crate::device::DeviceWatch;
use crate::evaluating::Evaluated;
use crate::held::Held;
use crate::parts::Parts;
use crate::pg::Pg;
use crate::programs::{Ask, Programs};
use crate::room::Room;
use crate::shared::{Counters, Shared};
use crate::turned_away::TurnedAway;
use bytes::Bytes;
use nacre_object::methods::Complaint;
use nacre_role::{DeviceCall, Input, Output, Role};
use nacre_store::Token;
use nacre_types::{Entity, Epoch, Instance, Name, OsdId, PgId, PoolId, Time};
use nacre_wire::msg::client::OpReply;
use nacre_wire::msg::monitor::{Beacon, FailureReport, Led, PgReport, Severity};
use nacre_wire::msg::replication::{Logged, ReplicateAcks};
use nacre_wire::{ClusterMap, Message, Payload};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

#[derive(Debug)]
enum Phase {
    Loading(Loading),
    /// Announces itself; `at` is when to do so again.
    Waiting {
        at: Time,
    },
    /// The map has granted us this instance; it is being stored. Until it is, PGs receive no map,
    /// and nothing is sent as this instance.
    Taking {
        instance: Instance,
    },
    Live,
}

/// One object storage daemon. See the module head.
#[derive(Debug)]
pub struct Osd {
    sh: Shared,
    phase: Phase,
    pgs: BTreeMap<PgId, Pg>,
    /// The number of PGs that want ticks ([`Pg::needs_tick`]), so that not all must be asked after
    /// every message. Each PG knows whether it is counted.
    busy: usize,
    deltas: VecDeque<(Epoch, Bytes)>,
    /// Messages that wait for a newer map.
    held: Held,
    /// By PG: clients' operations that were refused for lack of memory for held messages.
    turned_away: BTreeMap<PgId, TurnedAway>,
    told: BTreeMap<Entity, (Epoch, Time)>,
    collections: BTreeSet<PoolId>,
    /// The transaction that stores the instance being taken.
    taking: Option<Token>,
    reported: BTreeMap<PgId, PgReport>,
    /// When all PGs are reported again, changed or not: a beacon may be lost between monitors.
    report_all_at: Time,
    /// The leading monitor, and its term: it knows the reports that were sent to it.
    led: Option<Led>,
    usage: (u64, u64),
    /// The reason why the store cannot use all of its space, human-readable.
    space: String,
    device: DeviceWatch,
    ticked: Time,
    tick_due: Time,
    beacon_at: Time,
    log_number: u64,
    map_asked: Time,
    /// Messages of other OSDs that are received in parts.
    parts: Parts,
    /// Names of clients, as announced on their connections.
    names: BTreeMap<Entity, Name>,
}

impl Role for Osd {
    fn on_turn(
        &mut self,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        out: &mut Vec<Output>,
    ) {
        self.sh.now = now;
        let (epoch, mut taken) = (self.epoch(), 0);
        for input in inputs {
            self.take(input);
            taken += 1;
        }
        let alone = taken <= 1 || self.epoch() == epoch;
        assert!(
            alone,
            "what brings a map is a turn of its own: frames bear the epoch of the turn's end"
        );
        self.end_turn(out);
    }
    fn next_deadline(&self) -> Time {
        let timing = &self.sh.config.timing;
        let busy = self.busy > 0;
        let step = if busy {
            timing.ping_interval / 3
        } else {
            timing.ping_interval
        };
        (self.ticked + step).min(self.sh.wake.max(self.ticked + timing.ping_interval / 50))
    }
    fn map(&self) -> Option<&ClusterMap> {
        Self::map(self)
    }
}

impl Osd {
    /// Starts: begins to read the store. The host has checked that the store belongs to this OSD
    /// and has counted the start.
    #[must_use]
    pub fn open(config: OsdConfig, now: Time, out: &mut Vec<Output>) -> Self {
        let mut sh = Shared::new(config);
        sh.now = now;
        sh.peers.start(now);
        let mut loading = Loading::default();
        let mut reads = Vec::new();
        loading.start(sh.config.limits.boot_entries, &mut reads);
        out.extend(
            reads
                .into_iter()
                .map(|(read, token)| Output::Read { read, token }),
        );
        Self {
            sh,
            phase: Phase::Loading(loading),
            pgs: BTreeMap::new(),
            busy: 0,
            deltas: VecDeque::new(),
            held: Held::default(),
            turned_away: BTreeMap::new(),
            told: BTreeMap::new(),
            collections: BTreeSet::new(),
            taking: None,
            reported: BTreeMap::new(),
            report_all_at: Time::ZERO,
            led: None,
            usage: (0, 0),
            space: String::new(),
            device: DeviceWatch::default(),
            ticked: now,
            tick_due: now,
            beacon_at: now,
            log_number: 0,
            map_asked: Time::ZERO,
            parts: Parts::default(),
            names: BTreeMap::new(),
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Message {
                from,
                epoch,
                message,
            } => self.on_message(from, epoch, message),
            Input::Tick => self.on_tick(),
            Input::Store(event) => self.on_store(event),
            Input::Done(done) => self.on_evaluated(done.into()),
            Input::Absent(Entity::Osd(peer)) => self.on_peer_refused(peer),
            Input::MonSession => self.on_mon_session(),
            Input::Device(call) => self.on_device(call.as_ref()),
            Input::Named(client, name) => self.on_client_name(client, name),
            Input::Gone(client) => self.on_client_name(client, Name::default()),
            Input::Stopping => self.report_itself(),
            Input::Absent(_) => {}
        }
    }

    /// The OSD's id.
    #[must_use]
    pub const fn id(&self) -> OsdId {
        self.sh.config.id
    }
    /// The instance that this daemon acts as; before the first is granted, the last one in its
    /// store.
    #[must_use]
    pub const fn instance(&self) -> Instance {
        self.sh.instance
    }
    /// The newest map.
    #[must_use]
    pub const fn map(&self) -> Option<&ClusterMap> {
        self.sh.map.as_ref()
    }
    /// The newest map's epoch, for outgoing frames.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.sh.map.as_ref().map_or(Epoch::NONE, |map| map.epoch)
    }
    /// Counts since start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.sh.counters
    }
    /// Whether it serves: in the map, this instance is up.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Live)
    }
    /// Whether the host may receive more client operations from the connections.
    #[must_use]
    pub const fn wants_client_work(&self) -> bool {
        let limits = &self.sh.config.limits;
        self.sh.client_load.0 < limits.client_ops && self.sh.client_load.1 < limits.client_bytes
    }
    /// The number of clients' operations that are held here, and their bytes.
    #[must_use]
    pub const fn client_load(&self) -> (usize, u64) {
        self.sh.client_load
    }
    /// The number of entries kept for pending answers of the store: from the oldest one on,
    /// including those answered since.
    #[must_use]
    pub fn pending_events(&self) -> usize {
        self.sh.pending.len()
    }
    /// The PGs here.
    pub fn pgs(&self) -> impl Iterator<Item = &Pg> {
        self.pgs.values()
    }

    /// Space: total and used bytes of the store and its host. The host reports it after every
    /// wake-up.
    pub fn on_usage(&mut self, total: u64, used: u64) {
        self.usage = (total, used);
        let senders = self.sh.map.as_ref().map_or(1, |map| map.osds.len());
        let before = std::mem::replace(&mut self.sh.room, Room::of(total, used, senders));
        let room = self.sh.room;
        if room.is_nearly_full() != before.is_nearly_full() {
            self.beacon_soon();
        }
        if (room.share(), room.most()) != (before.share(), before.most()) {
            self.sh.under_way.says(self.id(), room.share(), room.most());
        }
    }

    /// The reason why the store cannot use all of its space, human-readable; empty: none. The host
    /// reports it from time to time.
    pub fn on_space(&mut self, text: &str) {
        if self.space != text {
            text.clone_into(&mut self.space);
            self.beacon_soon();
        }
    }

    /// Sends a beacon to the monitors within a ping interval.
    fn beacon_soon(&mut self) {
        self.beacon_at = self
            .beacon_at
            .min(self.sh.now + self.sh.config.timing.ping_interval);
        self.sh.wake_at(self.beacon_at);
    }

    /// The host's observation of the store's device: its oldest call in progress, or one that has
    /// just ended. To be called a few times a second while a call takes long, and once when none
    /// does any more.
    fn on_device(&mut self, call: Option<&DeviceCall>) {
        let news = self.device.look(self.sh.now, call, &self.sh.config.timing);
        if self.is_live() {
            if news.stalled || news.answers_again {
                self.report_stall(news.answers_again);
            }
            if news.tell {
                self.beacon();
            }
        }
    }

    /// Sets limits other than the host's: options of the map override them.
    #[cfg(test)]
    pub(crate) fn set_limits(&mut self, limits: crate::Limits) {
        self.sh.set_limits(limits);
    }

    /// The current protocol timing, options included.
    #[must_use]
    pub const fn timing(&self) -> &crate::config::Timing {
        &self.sh.config.timing
    }

    /// The current beacon without the PGs: the host sends it if this thread hangs in its device.
    #[must_use]
    pub fn last_words(&self) -> (Beacon, FailureReport) {
        let (total, used) = self.usage;
        let (device, space) = (String::new(), self.space.clone());
        let (osd, instance) = (self.id(), self.instance());
        let beacon = Beacon {
            osd,
            instance,
            total,
            used,
            pgs: Vec::new(),
            all: false,
            slow: Vec::new(),
            device,
            space,
            no_room: false,
        };
        (
            beacon,
            FailureReport {
                stalled: true,
                ..self.own_report()
            },
        )
    }

    /// The number of logged bytes (`nacre_store::Transaction::logged_size`) that the store accepts
    /// in one transaction. The host reports it before the first tick; without a report the store
    /// accepts everything.
    pub fn on_store_limit(&mut self, logged_bytes_max: u64) {
        if self.sh.logged_max != logged_bytes_max {
            self.sh.logged_max = logged_bytes_max;
            self.sh.limit_to_store();
        }
    }

    /// A frame arrived.
    fn on_message(&mut self, from: Entity, epoch: Epoch, message: Message) {
        if let Entity::Osd(osd) = from {
            self.sh.peers.heard(self.sh.now, osd);
        }
        self.receive(from, epoch, message);
    }

    /// A client's connection announced the client's name; an empty name means that the client is
    /// gone. A client that announced nothing has no name.
    fn on_client_name(&mut self, client: Entity, name: Name) {
        if name.as_bytes().is_empty() {
            self.names.remove(&client);
        } else {
            self.names.insert(client, name);
        }
    }

    /// The number of clients whose names are known: those that have a connection.
    #[must_use]
    pub fn named(&self) -> usize {
        self.names.len()
    }

    /// An operation evaluated elsewhere has its result.
    fn on_evaluated(&mut self, evaluated: Evaluated) {
        let Evaluated {
            pg,
            interval,
            number,
            outcome,
            complaints,
        } = evaluated;
        self.complain(complaints);
        if let Some(group) = self.pgs.get_mut(&pg)
            && group.interval.since == interval
        {
            if let Some(mut lead) = group.lead() {
                lead.on_evaluated(number, outcome, &mut self.sh);
            }
            group.count(&mut self.busy, &mut self.sh);
        }
    }

    /// Gives the classes that this daemon runs on its own thread a clock: methods that take longer
    /// are run elsewhere ([`Output::Run`]). Once, after the start.
    pub fn set_patience(&mut self, patience: std::sync::Arc<dyn crate::Patience>) {
        self.sh.programs.runtime.set_patience(patience);
    }

    /// Classes of this daemon.
    #[must_use]
    pub const fn programs(&self) -> &Programs {
        &self.sh.programs
    }

    fn complain(&mut self, complaints: Vec<Complaint>) {
        for (key, line) in self.sh.programs.lines(complaints) {
            self.sh.say_once(Severity::Warn {}, key, line);
            // A user who tries a class looks at the log now.
            self.beacon_at = self
                .beacon_at
                .min(self.sh.now + self.sh.config.timing.ping_interval);
            self.sh.wake_at(self.beacon_at);
        }
    }

    /// Requests missing sources.
    fn fetch_sources(&mut self) {
        if !self.is_live() || !self.sh.programs.wants_sources() {
            return;
        }
        let (me, instance, now, again) = (
            self.id(),
            self.instance(),
            self.sh.now,
            self.sh.config.timing.retry_interval,
        );
        let Some(map) = &self.sh.map else { return };
        for Ask { to, request } in self.sh.programs.asks(me, instance, map, now, again) {
            let message = Message::OpRequest(request, Payload::new());
            if to == me {
                self.sh.loopback.push_back(message);
            } else {
                self.sh.send(to, message);
            }
        }
        self.sh.wake_at(now + again);
    }

    fn on_source(&mut self, reply: &OpReply, payload: &[Bytes]) {
        if let Some(line) = self.sh.programs.on_answer(reply, payload) {
            self.sh.say_once(Severity::Error {}, line.clone(), line);
        }
        // Calls may have waited for it.
        for pg in self.pgs.values_mut() {
            if let Some(mut lead) = pg.lead() {
                lead.process_all_objects(&mut self.sh);
            }
        }
        self.find_busy();
    }

    fn on_copied(&mut self, reply: OpReply, payload: Payload) {
        let Some(copied) = self.sh.copies.on_answer(self.sh.instance, reply, payload) else {
            return;
        };
        if let Some(pg) = self.pgs.get_mut(&copied.pg)
            && pg.interval.since == copied.interval
        {
            if let Some(mut lead) = pg.lead() {
                lead.on_copied(copied, &mut self.sh);
            }
            pg.count(&mut self.busy, &mut self.sh);
        }
    }

    /// The connection to an OSD was refused: its process is gone.
    fn on_peer_refused(&mut self, osd: OsdId) {
        self.sh.peers.refused(self.sh.now, osd);
        self.accuse();
    }

    /// The connection to the monitors is new: they do not know our subscriptions.
    fn on_mon_session(&mut self) {
        let now = self.sh.now;
        if !matches!(self.phase, Phase::Loading(_)) {
            self.subscribe();
            self.beacon_at = now;
            if let Phase::Waiting { at } = &mut self.phase {
                *at = now;
                self.announce();
            }
        }
    }

    /// Asks all PGs again whether they want ticks.
    fn find_busy(&mut self) {
        self.busy = 0;
        (self.sh.recovering, self.sh.backfilling) = (0, 0);
        for pg in self.pgs.values_mut() {
            pg.count_anew(&mut self.busy, &mut self.sh);
        }
    }

    /// Wakes PGs that wait for the limit of recovery or backfill.
    fn share_room(&mut self) {
        while let Some(id) = self.sh.next_with_room() {
            if let Some(pg) = self.pgs.get_mut(&id) {
                if let Some(mut lead) = pg.lead() {
                    lead.start_recovery(&mut self.sh);
                }
                pg.count(&mut self.busy, &mut self.sh);
            }
        }
        if self.sh.under_way.was_freed() {
            for id in std::mem::take(&mut self.sh.room_waits) {
                if let Some(pg) = self.pgs.get_mut(&id) {
                    if let Some(mut lead) = pg.lead() {
                        lead.process_all_objects(&mut self.sh);
                    }
                    pg.count(&mut self.busy, &mut self.sh);
                }
            }
        }
    }

    /// Time passed. To be called at or after [`Role::next_deadline`].
    fn on_tick(&mut self) {
        let now = self.sh.now;
        // We were stalled: silence during that time was our own fault.
        let late = now.since(self.tick_due);
        if late > self.sh.config.timing.ping_interval / 2 {
            self.sh.peers.discount(late, now);
            self.sh.late = late;
        }
        self.ticked = now;
        self.sh.wake = Time::MAX;
        self.forget_late();
        match self.phase {
            Phase::Loading(_) | Phase::Taking { .. } => {}
            Phase::Waiting { at } => {
                if at <= now {
                    self.announce();
                }
            }
            Phase::Live => {
                self.ping();
                self.accuse();
                self.fetch_sources();
                for pg in self.pgs.values_mut().filter(|pg| pg.is_busy()) {
                    pg.on_tick(&mut self.sh);
                }
                // After deletions ordered by the PGs that may have freed memory.
                if !self.wants_client_work() {
                    for mut lead in self.pgs.values_mut().filter_map(Pg::lead) {
                        lead.make_room(&mut self.sh);
                    }
                }
                self.find_busy();
            }
        }
        self.sh.late = Duration::ZERO;
        if self.beacon_at <= now {
            self.beacon();
        }
    }

    /// Work done once for all inputs of a turn.
    fn end_turn(&mut self, out: &mut Vec<Output>) {
        while let Some(message) = self.sh.loopback.pop_front() {
            self.receive(Entity::Osd(self.id()), self.epoch(), message);
        }
        if !self.sh.programs.runtime.complaints.is_empty() {
            let complaints = std::mem::take(&mut self.sh.programs.runtime.complaints);
            self.complain(complaints);
        }
        self.sh.send_updates(None);
        self.send_acks();
        self.share_room();
        self.tick_due = self.next_deadline();
        if out.is_empty() {
            // Hosts that have taken everything get the list itself, and we theirs.
            std::mem::swap(out, &mut self.sh.out);
        } else {
            out.append(&mut self.sh.out);
        }
    }

    /// Acknowledges the updates that became durable in this turn: one message for each primary.
    fn send_acks(&mut self) {
        if self.sh.acks.is_empty() {
            return;
        }
        let mut groups = std::mem::take(&mut self.sh.acks);
        groups.sort_unstable();
        groups.dedup();
        let mut owed: Vec<(OsdId, Vec<Logged>)> = Vec::new();
        for pg in groups.drain(..) {
            let Some((primary, logged)) = self.pgs.get(&pg).and_then(Pg::logged_for_primary) else {
                continue;
            };
            match owed.iter_mut().find(|(to, _)| *to == primary) {
                Some((_, of_it)) => of_it.push(logged),
                None => owed.push((primary, vec![logged])),
            }
        }
        self.sh.acks = groups;
        let nearly_full = self.sh.room.is_nearly_full();
        for (primary, logged) in owed {
            self.sh.send(
                primary,
                Message::ReplicateAcks(ReplicateAcks {
                    logged,
                    nearly_full,
                }),
            );
        }
    }
}
