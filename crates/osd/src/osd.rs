//! The daemon around the placement groups: map, peers, messages, time.
//!
//! ```text
//!  Loading ──store read──▶ Waiting for a map in which this process is up ──▶ Taking the instance ──durable──▶ Live
//!                             ▲                                                                                │
//!                             └──────────────────── the map says that this instance is over ───────────────────┘
//! ```
//! An instance is the monitors' to grant, to one process and larger than any before, and is stored here before anything is done as it:
//! a daemon that numbered its own lives could take a number twice, and be live at once in an interval of which it remembers nothing (F1).
//! Whatever carries an epoch newer than ours waits until we have that map ([`Osd::on_message`] holds it); whoever is behind us is sent the
//! changes he lacks (MAL-73).
//!
//! Invariants: a group handles nothing before the map's interval that it belongs to; `Osd::check` asserts each group's.

use crate::boot::{Loading, Progress};
use crate::device::{DeviceCall, DeviceWatch};
use crate::io::{OsdConfig, Output};
use crate::key;
use crate::methods::{Complaint, Evaluated};
use crate::parts::Parts;
use crate::pg::copy::Copies;
use crate::pg::local::Local;
use crate::pg::{Pg, StoreOutcome};
use crate::programs::{Ask, Programs};
use crate::room::Room;
use crate::shared::{Counters, Once, Shared};
use crate::turned_away::{TurnedAway, Why};
use bytes::Bytes;
use nacre_store::{DeviceError, Event, ObjectKey, Op, StoreFailure, Token};
use nacre_types::{Entity, Epoch, Instance, Name, OsdId, PgId, PoolId, Time};
use nacre_wire::map::{ApplyError, MapDelta};
use nacre_wire::msg::client::{OpFailure, OpReply};
use nacre_wire::msg::monitor::{
    Beacon, Boot, ClusterLog, FailureReport, Led, LogLine, MapDeltas, PgReport, Severity, Subscribe,
};
use nacre_wire::msg::replication::{Ping, Pong};
use nacre_wire::{ClusterMap, Message, Payload, Wire};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Beacon intervals between two reports of all groups.
const REPORT_ALL_EVERY: u32 = 15;
/// The system's number for a file system that is full.
const ENOSPC: i32 = 28;
/// Bytes of messages held, of one sender and of all. Always one, whatever its size.
const HELD_BYTES_EACH: usize = 32 << 20;
const HELD_BYTES: usize = 128 << 20;

#[derive(Debug)]
enum Phase {
    Loading(Loading),
    /// Announces itself; `at` is when to do so again.
    Waiting {
        at: Time,
    },
    /// The map has granted us this instance; it is being stored. Groups hear of no map until it is, and nobody of us.
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
    /// How many groups want ticks ([`Pg::needs_tick`]), so that nobody has to ask all of them after every message. Each knows whether it is one.
    busy: usize,
    deltas: VecDeque<(Epoch, Bytes)>,
    /// The epoch that each needs, its sender's, its sender, and it.
    held: Vec<(Epoch, Epoch, Entity, Message)>,
    /// By group: clients' operations that found no room among what is held.
    turned_away: BTreeMap<PgId, TurnedAway>,
    told: BTreeMap<Entity, (Epoch, Time)>,
    collections: BTreeSet<PoolId>,
    /// The transaction that stores the instance being taken.
    taking: Option<Token>,
    reported: BTreeMap<PgId, PgReport>,
    /// When all groups are reported again, changed or not: a beacon may be lost on its way through the monitors.
    report_all_at: Time,
    /// Who leads the monitors, and in which term: it knows what was reported to it.
    led: Option<Led>,
    usage: (u64, u64),
    /// What keeps the store from using all of its space, for people.
    space: String,
    device: DeviceWatch,
    ticked: Time,
    tick_due: Time,
    beacon_at: Time,
    log_number: u64,
    map_asked: Time,
    /// Messages of other OSDs that arrive in parts.
    parts: Parts,
    /// Names of clients, as their connections said.
    names: BTreeMap<Entity, Name>,
}

impl Osd {
    /// Starts: begins to read the store. The host has checked that the store is this OSD's and has counted the start.
    #[must_use]
    pub fn open(config: OsdConfig, now: Time, out: &mut Vec<Output>) -> Self {
        let mut sh = Shared::new(config);
        sh.now = now;
        sh.peers.start(now);
        let mut loading = Loading::default();
        let mut reads = Vec::new();
        loading.start(sh.config.limits.boot_entries, &mut reads);
        out.extend(reads.into_iter().map(|(read, token)| Output::Read { read, token }));
        Self {
            sh,
            phase: Phase::Loading(loading),
            pgs: BTreeMap::new(),
            busy: 0,
            deltas: VecDeque::new(),
            held: Vec::new(),
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

    /// Which OSD.
    #[must_use]
    pub const fn id(&self) -> OsdId {
        self.sh.config.id
    }
    /// The instance that this daemon acts as; before the first is granted, the last that its store knows.
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
    /// Whether it serves: the map says that this life is up.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Live)
    }
    /// Whether the host may take more client operations off the connections.
    #[must_use]
    pub const fn wants_client_work(&self) -> bool {
        let limits = &self.sh.config.limits;
        self.sh.client_load.0 < limits.client_ops && self.sh.client_load.1 < limits.client_bytes
    }
    /// Operations of clients that are held here, and their bytes.
    #[must_use]
    pub const fn client_load(&self) -> (usize, u64) {
        self.sh.client_load
    }
    /// The groups here.
    pub fn pgs(&self) -> impl Iterator<Item = &Pg> {
        self.pgs.values()
    }

    /// Space: total and used bytes, of what the store and its host have. The host says so after every wake-up.
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

    /// What keeps the store from using all of its space, for people; empty: nothing. The host says so now and then.
    pub fn on_space(&mut self, text: &str) {
        if self.space != text {
            text.clone_into(&mut self.space);
            self.beacon_soon();
        }
    }

    /// The monitors are told within a ping's time.
    fn beacon_soon(&mut self) {
        self.beacon_at = self.beacon_at.min(self.sh.now + self.sh.config.timing.ping_interval);
        self.sh.wake_at(self.beacon_at);
    }

    /// The host looked at the store's device: its oldest call that has not ended, or one that just did. To be called a few times a second while a call
    /// takes long, and once when none does any more.
    pub fn on_device(&mut self, now: Time, call: Option<&DeviceCall>, out: &mut Vec<Output>) {
        self.sh.now = now;
        let news = self.device.look(now, call, &self.sh.config.timing);
        if self.is_live() {
            if news.stalled || news.answers_again {
                self.report_stall(news.answers_again);
            }
            if news.tell {
                self.beacon();
            }
        }
        self.flush(out);
    }

    /// Other limits than the host gave: options of the map go over them.
    #[cfg(test)]
    pub(crate) fn set_limits(&mut self, limits: crate::Limits) {
        self.sh.set_limits(limits);
    }

    /// Protocol timing as it is now, options included.
    #[must_use]
    pub const fn timing(&self) -> &crate::io::Timing {
        &self.sh.config.timing
    }

    /// A beacon as it would be now, without the groups: what the host sends if this thread hangs in its device.
    #[must_use]
    pub fn last_words(&self) -> (Beacon, FailureReport) {
        let (total, used) = self.usage;
        let (device, space) = (String::new(), self.space.clone());
        let (osd, instance) = (self.id(), self.instance());
        let beacon =
            Beacon { osd, instance, total, used, pgs: Vec::new(), all: false, slow: Vec::new(), device, space };
        (beacon, FailureReport { stalled: true, ..self.own_report() })
    }

    /// How many logged bytes (`nacre_store::Transaction::logged_size`) the store takes in one transaction. The host says so before the first tick;
    /// a host that does not has a store that takes everything.
    pub const fn on_store_limit(&mut self, logged_bytes_max: u64) {
        self.sh.logged_max = logged_bytes_max;
    }

    /// A frame arrived.
    pub fn on_message(&mut self, now: Time, from: Entity, epoch: Epoch, message: Message, out: &mut Vec<Output>) {
        self.sh.now = now;
        if let Entity::Osd(osd) = from {
            self.sh.peers.heard(now, osd);
        }
        self.receive(from, epoch, message);
        self.flush(out);
    }

    /// A client's connection said what it is called; an empty name says that it is gone. One that said nothing is nobody in particular.
    pub fn on_client_name(&mut self, client: Entity, name: Name) {
        if name.as_bytes().is_empty() {
            self.names.remove(&client);
        } else {
            self.names.insert(client, name);
        }
    }

    /// An operation that was handed out has been evaluated.
    pub fn on_evaluated(&mut self, now: Time, evaluated: Evaluated, out: &mut Vec<Output>) {
        self.sh.now = now;
        let Evaluated { pg, interval, number, outcome, complaints } = evaluated;
        self.complain(complaints);
        if let Some(group) = self.pgs.get_mut(&pg)
            && group.interval.since == interval
        {
            group.on_evaluated(number, outcome, &mut self.sh);
            note(&mut self.busy, group, &mut self.sh);
        }
        self.flush(out);
    }

    /// Gives the programs that this daemon runs on its own thread a clock: what takes longer is handed out ([`Output::Evaluate`]). Once, after the start.
    pub fn set_patience(&mut self, patience: std::sync::Arc<dyn crate::Patience>) {
        self.sh.programs.runtime.set_patience(patience);
    }

    /// Programs of this daemon.
    #[must_use]
    pub const fn programs(&self) -> &Programs {
        &self.sh.programs
    }

    fn complain(&mut self, complaints: Vec<Complaint>) {
        for (key, line) in self.sh.programs.lines(complaints) {
            self.sh.say_once(Severity::Warn {}, key, line);
            // People who try their program look at the log now.
            self.beacon_at = self.beacon_at.min(self.sh.now + self.sh.config.timing.ping_interval);
            self.sh.wake_at(self.beacon_at);
        }
    }

    /// Asks for sources that are missing.
    fn fetch_sources(&mut self) {
        if !self.is_live() || !self.sh.programs.wants_sources() {
            return;
        }
        let (me, instance, now, again) =
            (self.id(), self.instance(), self.sh.now, self.sh.config.timing.retry_interval);
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
            pg.process_all_objects(&mut self.sh);
        }
        self.find_busy();
    }

    fn on_copied(&mut self, reply: OpReply, payload: Payload) {
        let Some(copied) = self.sh.copies.on_answer(reply, payload) else { return };
        if let Some(pg) = self.pgs.get_mut(&copied.pg)
            && pg.interval.since == copied.interval
        {
            pg.on_copied(copied, &mut self.sh);
            note(&mut self.busy, pg, &mut self.sh);
        }
    }

    /// The connection to an OSD was refused: its process is gone.
    pub fn on_peer_refused(&mut self, now: Time, osd: OsdId, out: &mut Vec<Output>) {
        self.sh.now = now;
        self.sh.peers.refused(now, osd);
        self.accuse();
        self.flush(out);
    }

    /// The connection to the monitors is new: they do not know what we want.
    pub fn on_mon_session(&mut self, now: Time, out: &mut Vec<Output>) {
        self.sh.now = now;
        if !matches!(self.phase, Phase::Loading(_)) {
            self.subscribe();
            self.beacon_at = now;
            if let Phase::Waiting { at } = &mut self.phase {
                *at = now;
                self.announce();
            }
        }
        self.flush(out);
    }

    /// A store event.
    pub fn on_store(&mut self, now: Time, event: Event, out: &mut Vec<Output>) {
        self.sh.now = now;
        if let Phase::Loading(_) = self.phase {
            if let Event::Committed(token) = event {
                self.sh.awaited.take(token);
            }
            self.on_loading(event);
            self.flush(out);
            return;
        }
        match event {
            Event::Committed(token) if self.taking == Some(token) => {
                self.taking = None;
                self.take_instance();
            }
            Event::Applied(token) => {
                if let Some((pg, interval, version)) = self.sh.awaited.update(token)
                    && let Some(group) = self.pgs.get_mut(&pg)
                    && group.interval.since == interval
                {
                    group.on_applied(version, &mut self.sh);
                }
            }
            Event::Lost(token, object) => self.on_lost(token, &object),
            Event::Committed(token) => self.on_token(token, StoreOutcome::Committed),
            Event::Read(token, reply) => self.on_token(token, StoreOutcome::Read(reply)),
            Event::Failed(failure) => {
                // A failed flush is never tried again: what the disk has is no longer known.
                let why = match failure {
                    StoreFailure::Device(DeviceError::Os(ENOSPC)) => format!(
                        "{}: the file system of its store is full: free space there, then start it again. Nothing is lost",
                        self.id()
                    ),
                    failure => format!(
                        "{}: the store failed ({failure:?}). The other OSDs have its objects: check the disk, then start it again or replace it",
                        self.id()
                    ),
                };
                self.report_itself();
                self.sh.out.push(Output::Halt { why });
            }
        }
        self.flush(out);
    }

    fn on_token(&mut self, token: Token, outcome: StoreOutcome) {
        let Some((pg, interval, awaited)) = self.sh.awaited.take(token) else { return };
        if let Some(group) = self.pgs.get_mut(&pg)
            && group.interval.since == interval
        {
            group.on_store(awaited, outcome, &mut self.sh);
            note(&mut self.busy, group, &mut self.sh);
        }
    }

    /// The store could not read what an update left as it was; whose object that is by now, splits say.
    fn on_lost(&mut self, token: Token, place: &ObjectKey) {
        let Some((pool, shard, object)) = key::object_in(place) else { return };
        let hash = key::hash(&object);
        let since = self.sh.awaited.version(token);
        let ours = |pg: &&mut Pg| {
            let id = pg.id();
            (id.pool, id.shard) == (pool, shard) && key::seed(hash, pg.local.pg_num) == id.seed
        };
        if let Some(group) = self.pgs.values_mut().find(ours) {
            group.on_lost(&object, since, &mut self.sh);
            note(&mut self.busy, group, &mut self.sh);
        }
    }

    /// Asks all groups anew.
    fn find_busy(&mut self) {
        self.busy = 0;
        (self.sh.recovering, self.sh.backfilling) = (0, 0);
        for pg in self.pgs.values_mut() {
            (pg.counted, pg.counted_range, pg.counted_busy) = (0, false, false);
            note(&mut self.busy, pg, &mut self.sh);
        }
    }

    /// Wakes groups that wait for room to recover something or to backfill a range.
    fn share_room(&mut self) {
        while let Some(id) = self.sh.next_with_room() {
            if let Some(pg) = self.pgs.get_mut(&id) {
                pg.start_recovery(&mut self.sh);
                note(&mut self.busy, pg, &mut self.sh);
            }
        }
        if self.sh.under_way.was_freed() {
            for id in std::mem::take(&mut self.sh.room_waits) {
                if let Some(pg) = self.pgs.get_mut(&id) {
                    pg.process_all_objects(&mut self.sh);
                    note(&mut self.busy, pg, &mut self.sh);
                }
            }
        }
    }

    fn on_loading(&mut self, event: Event) {
        let Phase::Loading(loading) = &mut self.phase else { return };
        let (mut reads, mut cleanup) = (Vec::new(), Vec::new());
        let before = loading.pages;
        let progress = loading.on_event(self.sh.now, event, &mut reads, &mut cleanup);
        self.sh.counters.borders.boot_pages += loading.pages - before;
        self.sh.out.extend(reads.into_iter().map(|(read, token)| Output::Read { read, token }));
        if !cleanup.is_empty() {
            self.sh.submit(PgId::default(), Epoch::NONE, cleanup, crate::pg::Awaited::Nothing);
        }
        match progress {
            Progress::Reading => {}
            Progress::Broken(why) => self.sh.out.push(Output::Halt { why }),
            Progress::Done(record, locals) => {
                self.sh.record(record);
                self.pgs = locals.into_iter().map(|local| (local.pg(), Pg::new(local))).collect();
                self.phase = Phase::Waiting { at: self.sh.now };
                self.subscribe();
                self.announce();
            }
        }
    }

    /// Time passed. To be called at or after [`Self::next_deadline`].
    pub fn on_tick(&mut self, now: Time, out: &mut Vec<Output>) {
        self.sh.now = now;
        // What we did not hear while we slept is our own fault.
        let late = now.since(self.tick_due);
        if late > self.sh.config.timing.ping_interval / 2 {
            self.sh.peers.discount(late, now);
            self.sh.late = late;
        }
        self.ticked = now;
        self.sh.wake = Time::MAX;
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
                for pg in self.pgs.values_mut().filter(|pg| pg.counted_busy) {
                    pg.on_tick(&mut self.sh);
                }
                self.find_busy();
            }
        }
        self.sh.late = Duration::ZERO;
        if self.beacon_at <= now {
            self.beacon();
        }
        self.flush(out);
    }

    /// When the role next wants [`Self::on_tick`].
    #[must_use]
    pub fn next_deadline(&self) -> Time {
        let timing = &self.sh.config.timing;
        let busy = self.busy > 0;
        let step = if busy { timing.ping_interval / 3 } else { timing.ping_interval };
        (self.ticked + step).min(self.sh.wake.max(self.ticked + timing.ping_interval / 50))
    }

    fn flush(&mut self, out: &mut Vec<Output>) {
        while let Some(message) = self.sh.loopback.pop_front() {
            self.receive(Entity::Osd(self.id()), self.epoch(), message);
        }
        if !self.sh.programs.runtime.complaints.is_empty() {
            let complaints = std::mem::take(&mut self.sh.programs.runtime.complaints);
            self.complain(complaints);
        }
        if !self.sh.acks.is_empty() {
            let mut acks = std::mem::take(&mut self.sh.acks);
            acks.sort_unstable();
            for pg in acks.drain(..) {
                if let Some(group) = self.pgs.get_mut(&pg) {
                    group.send_ack(&mut self.sh);
                }
            }
            assert!(self.sh.acks.is_empty(), "an acknowledgement makes none");
            self.sh.acks = acks;
        }
        self.share_room();
        self.tick_due = self.next_deadline();
        if out.is_empty() {
            // Hosts that have taken everything get the list itself, and we theirs.
            std::mem::swap(out, &mut self.sh.out);
        } else {
            out.append(&mut self.sh.out);
        }
    }

    // ── maps ──────────────────────────────────────────────────────────────────────────────────────────────────────

    fn subscribe(&mut self) {
        let (have, digest) = self.sh.map.as_ref().map_or_else(Default::default, |map| (map.epoch, map.digest));
        self.map_asked = self.sh.now;
        self.sh.out.push(Output::SendMon { message: Message::Subscribe(Subscribe { have, digest, once: false }) });
    }

    fn on_full_map(&mut self, bytes: &[u8]) {
        let map = match ClusterMap::from_bytes(bytes) {
            Ok(map) => map,
            Err(why) => {
                self.halt(format!("{}: the cluster map cannot be read: {why}", self.id()));
                return;
            }
        };
        if let Some(ours) = &self.sh.map {
            if map.cluster != ours.cluster {
                self.halt(format!(
                    "{}: this store belongs to cluster {}, the monitors to {}",
                    self.id(),
                    ours.cluster,
                    map.cluster
                ));
                return;
            }
            if map.epoch == ours.epoch && map.digest != ours.digest {
                self.halt(ApplyError::OtherHistory { epoch: map.epoch }.to_string());
                return;
            }
            if map.epoch <= ours.epoch {
                return;
            }
        }
        self.deltas.clear();
        self.sh.map = Some(map);
        self.after_map();
    }

    fn on_deltas(&mut self, message: &MapDeltas) {
        let mut changed = false;
        for bytes in &message.deltas {
            let Ok(delta) = MapDelta::from_bytes(bytes) else { return };
            let Some(map) = &mut self.sh.map else { return };
            if delta.epoch <= map.epoch {
                continue;
            }
            match map.apply(&delta) {
                Ok(()) => {
                    changed = true;
                    self.deltas.push_back((delta.epoch, bytes.clone()));
                    if self.deltas.len() > self.sh.config.limits.deltas_kept {
                        self.deltas.pop_front();
                    }
                }
                Err(ApplyError::Gap { .. }) => {
                    self.subscribe();
                    break;
                }
                Err(error @ ApplyError::OtherHistory { .. }) => {
                    self.halt(error.to_string());
                    return;
                }
            }
        }
        if let Some(root) = message.root {
            self.pass_on(root, message);
        }
        if changed {
            self.after_map();
        }
    }

    /// News of a map change go on before anything else: others are waiting for them.
    fn pass_on(&mut self, root: OsdId, message: &MapDeltas) {
        let Some(map) = &self.sh.map else { return };
        for osd in crate::spread::children(map, root, self.id()) {
            self.sh.send(osd, Message::MapDeltas(message.clone()));
        }
    }

    fn halt(&mut self, why: String) {
        self.sh.out.push(Output::Halt { why });
    }

    fn after_map(&mut self) {
        self.sh.take_options();
        let me = self.id();
        let map = self.sh.map.as_ref().expect("there is a new map");
        let entry = map.osds.get(&me).cloned();
        let fenced = map.is_fenced(Entity::Osd(me), self.instance());
        let ours = |info: &&nacre_wire::map::OsdInfo| info.up && info.process == self.sh.config.process;
        let granted = entry.as_ref().filter(ours).map(|info| info.instance);
        self.sh.instance_known = self.sh.instance_known.max(entry.as_ref().map_or(Instance(0), |info| info.instance));
        match (&self.phase, granted) {
            (Phase::Loading(_), _) => return,
            (Phase::Live, Some(instance)) if instance == self.instance() => {}
            (Phase::Live, _) if fenced => {
                self.halt(match entry {
                    Some(_) => format!("{me}: this instance was fenced; start it again"),
                    None => format!("{me} was removed from the cluster; what is on its store does not count any more"),
                });
                return;
            }
            (Phase::Taking { instance }, Some(granted)) if *instance == granted => return,
            // A number that the store has had before was granted by monitors that forgot it: they are told of it with the next boot.
            (_, Some(instance)) if instance > self.instance() => {
                self.leave_live();
                let ops = self.sh.record_of(instance).save().ops;
                self.taking = Some(self.sh.submit(PgId::default(), Epoch::NONE, ops, crate::pg::Awaited::Nothing));
                self.phase = Phase::Taking { instance };
                return;
            }
            (Phase::Live | Phase::Taking { .. }, _) => {
                // The cluster gave this instance up. Everything it may have promised is void; ask for another.
                self.leave_live();
                self.phase = Phase::Waiting { at: self.sh.now };
            }
            (Phase::Waiting { .. }, _) => {}
        }
        self.use_map();
    }

    /// What an instance promised ends with it.
    fn leave_live(&mut self) {
        if self.is_live() {
            self.sh.peers.start(self.sh.now);
            self.reported.clear();
            for pg in self.pgs.values_mut() {
                pg.stand_down(&mut self.sh);
            }
            self.find_busy();
        }
    }

    /// The instance that we were granted is stored: begin to act as it, unless the map has changed its mind.
    fn take_instance(&mut self) {
        let Phase::Taking { instance } = self.phase else { return };
        self.sh.instance = instance;
        self.phase = Phase::Live;
        self.beacon_at = self.sh.now;
        self.after_map();
    }

    /// Groups, peers and programs follow the newest map.
    fn use_map(&mut self) {
        self.make_collections();
        self.split_groups();
        self.make_groups();
        for pg in self.pgs.values_mut() {
            pg.on_map(&mut self.sh);
        }
        self.pgs.retain(|_, pg| !pg.is_gone());
        self.parts.keep(|pg, interval| self.pgs.get(&pg).is_some_and(|pg| pg.interval.since == interval));
        self.find_busy();
        self.watch_peers();
        if let Phase::Waiting { .. } = self.phase {
            self.announce();
        }
        let map = self.sh.map.as_ref().expect("called with a map");
        self.sh.programs.on_map(map);
        self.fetch_sources();
        self.release_held();
        self.beacon_at = self.beacon_at.min(self.sh.now + self.sh.config.timing.ping_interval);
        self.sh.wake_at(self.beacon_at);
    }

    /// Every pool that has a group here has a collection in the store.
    fn make_collections(&mut self) {
        let map = self.sh.map.as_ref().expect("called with a map");
        let fresh: Vec<PoolId> = map.pools.keys().copied().filter(|pool| !self.collections.contains(pool)).collect();
        for pool in fresh {
            self.collections.insert(pool);
            let op = Op::CreateCollection(key::collection(pool, nacre_types::Shard::NONE));
            self.sh.submit(PgId::default(), Epoch::NONE, vec![op], crate::pg::Awaited::Nothing);
        }
    }

    /// Groups of pools that have grown give up what now belongs to others.
    fn split_groups(&mut self) {
        let map = self.sh.map.as_ref().expect("called with a map");
        let due: Vec<(PgId, u32)> = self
            .pgs
            .iter()
            .filter(|(_, pg)| pg.local.exists)
            .filter_map(|(id, pg)| map.pools.get(&id.pool).map(|pool| (*id, pool.pg_num, pg.local.pg_num)))
            .filter(|(_, new, old)| new > old)
            .map(|(id, new, _)| (id, new))
            .collect();
        for (id, pg_num) in due {
            let parent = self.pgs.get_mut(&id).expect("just listed");
            let old = parent.local.pg_num;
            self.sh.counters.borders.splits += 1;
            self.sh.counters.borders.splits_in_backfill += u64::from(parent.local.backfill.is_some());
            let mut ops = Vec::new();
            let seeds = (old..pg_num).filter(|seed| key::seed(*seed, old) == id.seed);
            let children: Vec<Local> =
                seeds.map(|seed| parent.local.split_off(PgId { seed, ..id }, pg_num, &mut ops)).collect();
            parent.local.finish_split(pg_num, &mut ops);
            self.pgs.extend(children.into_iter().map(|child| (child.pg(), Pg::new(child))));
            self.sh.submit(id, Epoch::NONE, ops, crate::pg::Awaited::Nothing);
        }
    }

    /// Groups that the map gives us and that we do not have yet.
    fn make_groups(&mut self) {
        let me = self.id();
        let map = self.sh.map.as_ref().expect("called with a map");
        let ours = map.pgs.iter().filter(|(_, record)| record.acting.contains(&me) || record.up.contains(&me));
        let fresh: Vec<(PgId, u32)> = ours
            .filter(|(id, _)| !self.pgs.contains_key(id))
            .map(|(id, _)| (*id, map.pools[&id.pool].pg_num))
            .collect();
        for (id, pg_num) in fresh {
            self.pgs.insert(id, Pg::new(Local::new(id, pg_num)));
        }
        // A group without anything follows its pool without ceremony.
        let map = self.sh.map.as_ref().expect("called with a map");
        for (id, pg) in self.pgs.iter_mut().filter(|(_, pg)| !pg.local.exists) {
            if let Some(pool) = map.pools.get(&id.pool) {
                pg.local.pg_num = pool.pg_num;
            }
        }
    }

    fn watch_peers(&mut self) {
        let me = self.id();
        let map = self.sh.map.as_ref().expect("called with a map");
        let ours = map.pgs.values().filter(|record| record.acting.contains(&me) || record.up.contains(&me));
        let mut peers: BTreeSet<OsdId> = BTreeSet::new();
        for record in ours {
            peers.extend(record.acting.iter().chain(&record.up).chain(&record.activated.members));
        }
        peers.remove(&me);
        let up = peers.into_iter().filter_map(|osd| map.up_osd(osd).map(|info| (osd, info.instance)));
        let up: Vec<(OsdId, Instance)> = up.collect();
        self.sh.under_way.keep(|osd| osd == me || up.iter().any(|(up, _)| *up == osd));
        self.sh.peers.watch(self.sh.now, up.into_iter());
    }

    /// Keeps a message until we have a map and may act on it, if there is room; its sender repeats what finds none. A fence or an epoch of the far future must not
    /// fill our memory.
    fn hold(&mut self, needed: Epoch, epoch: Epoch, from: Entity, message: Message) {
        let bytes = |message: &Message| nacre_wire::msg::payload_len(message.payload());
        let (mut all, mut theirs, mut count) = (0, 0, 0);
        // Only what is held costs: usually nothing is.
        for (_, _, sender, held) in &self.held {
            all += bytes(held);
            if *sender == from {
                theirs += bytes(held);
                count += 1;
            }
        }
        let more = bytes(&message);
        let first = count == 0 && all + more <= HELD_BYTES * 2;
        let most = self.sh.config.limits.held_messages;
        // Of one sender half of them.
        let room = count < most.div_ceil(2) && theirs + more <= HELD_BYTES_EACH && all + more <= HELD_BYTES;
        let room = self.held.len() < most && (first || room);
        // A client's operations keep their order, those that find no room too.
        if let (Message::OpRequest(request, _), Entity::Client(_)) = (&message, from) {
            let away = self.turned_away.entry(request.pg).or_default();
            if away.must_wait(&request.request, request.answered_below) || !room {
                away.refuse(self.sh.now, &request.request, Why::NoRoom);
                self.sh.counters.borders.held_refused += 1;
                return;
            }
            away.take(&request.request);
        }
        if room {
            self.sh.counters.borders.held += 1;
            self.held.push((needed, epoch, from, message));
        }
    }

    fn release_held(&mut self) {
        let epoch = self.epoch();
        let (now, later) = std::mem::take(&mut self.held).into_iter().partition(|(needed, ..)| *needed <= epoch);
        self.held = later;
        let now: Vec<(Epoch, Epoch, Entity, Message)> = now;
        for (_, theirs, from, message) in now {
            self.receive(from, theirs, message);
        }
    }

    /// Sends a peer the changes it lacks.
    fn bring_up_to_date(&mut self, who: Entity, theirs: Epoch) {
        let ours = self.epoch();
        // Once, and again after a while: the first may have been lost.
        let (now, again) = (self.sh.now, self.sh.config.timing.retry_interval);
        if theirs >= ours || self.told.get(&who).is_some_and(|(told, at)| *told >= ours && now.since(*at) < again) {
            return;
        }
        self.told.insert(who, (ours, now));
        let known = self.deltas.front().is_some_and(|(first, _)| first.0 <= theirs.0 + 1);
        let message = if known && theirs != Epoch::NONE {
            let deltas =
                self.deltas.iter().filter(|(epoch, _)| *epoch > theirs).map(|(_, bytes)| bytes.clone()).collect();
            Message::MapDeltas(MapDeltas { deltas, newest: ours, root: None })
        } else {
            self.sh.counters.borders.full_maps_sent += 1;
            let map = self.sh.map.as_ref().expect("we have an epoch").to_bytes().into();
            Message::MapFull(nacre_wire::msg::monitor::MapFull { map })
        };
        self.sh.out.push(Output::Send { to: who, message, before: None });
    }

    // ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────

    /// A leader that we did not report to knows nothing of our groups.
    fn on_led(&mut self, led: Led) {
        if self.led.replace(led) != Some(led) {
            self.reported.clear();
            self.beacon_at = self.sh.now;
            self.sh.wake_at(self.sh.now);
        }
    }

    fn receive(&mut self, from: Entity, epoch: Epoch, message: Message) {
        let (to_mon, from_client) = (matches!(from, Entity::Mon(_)), matches!(from, Entity::Client(_)));
        match &message {
            // Clients have no map to give, and nobody but a monitor may stop an OSD.
            Message::MapFull(full) if !from_client => {
                self.on_full_map(&full.map);
                return;
            }
            Message::MapDeltas(deltas) if !from_client => {
                self.on_deltas(deltas);
                return;
            }
            Message::Refused(refused) if to_mon => {
                // Not what a process before us asked (simulator, seed 1464: the first boot of a store that was replaced was late, and its refusal stopped the
                // new one).
                if refused.process == 0 || refused.process == self.sh.config.process {
                    self.halt(refused.why.clone());
                }
                return;
            }
            Message::Led(led) if to_mon => {
                self.on_led(*led);
                return;
            }
            _ => {}
        }
        if let Phase::Loading(_) = self.phase {
            return;
        }
        let unchecked =
            crate::mutant(crate::Mutant::AckIntervalUnchecked) && matches!(message, Message::ReplicateAck(_));
        // The holder of a lock that was taken over from somebody fenced says the epoch that has the fence.
        let needed = match &message {
            Message::OpRequest(request, _) => epoch.max(request.fence),
            _ => epoch,
        };
        if needed > self.epoch() && !to_mon && !unchecked {
            // Its sender will see our epoch and send us the changes; ask the monitors too, should that fail.
            self.hold(needed, epoch, from, message);
            if self.sh.now.since(self.map_asked) >= self.sh.config.timing.ping_interval {
                self.subscribe();
                if let Entity::Osd(osd) = from {
                    self.sh.send(osd, Message::Ping(Ping { stamp: self.sh.now.0 }));
                }
            }
            return;
        }
        if let Phase::Taking { .. } = self.phase {
            self.hold(epoch, epoch, from, message);
            return;
        }
        if !to_mon {
            self.bring_up_to_date(from, epoch);
        }
        if !self.is_live() {
            return;
        }
        match (from, message) {
            // OSDs read, too: sources of programs.
            (Entity::Client(_) | Entity::Osd(_), Message::OpRequest(request, payload)) => {
                self.on_request(from, epoch, request, payload);
            }
            (Entity::Osd(_), Message::OpReply(reply, payload)) if Copies::is_ours(reply.request.sequence) => {
                self.on_copied(reply, payload);
            }
            (Entity::Osd(_), Message::OpReply(reply, payload)) => self.on_source(&reply, &payload),
            (Entity::Client(_), message) => self.on_watcher(from, epoch, message),
            (Entity::Osd(osd), message) => self.on_peer_message(osd, epoch, message),
            _ => {}
        }
    }

    /// What watchers say: that they are there, and that they have a notify.
    fn on_watcher(&mut self, from: Entity, epoch: Epoch, message: Message) {
        let (id, object) = match &message {
            Message::WatchPing(m) => (m.pg, &m.object),
            Message::NotifyAck(m, _) => (m.pg, &m.object),
            _ => return,
        };
        let Some(pg) = self.pgs.get_mut(&id) else { return };
        // Who does not know this interval says it again when he does.
        if pg.interval.since > epoch || key::seed(key::hash(object), pg.local.pg_num) != id.seed {
            return;
        }
        match message {
            Message::WatchPing(m) => pg.on_watch_ping(from, m, &mut self.sh),
            Message::NotifyAck(m, payload) => pg.on_notify_ack(&m, payload, &mut self.sh),
            _ => {}
        }
        note(&mut self.busy, pg, &mut self.sh);
    }

    fn on_request(
        &mut self,
        from: Entity,
        epoch: Epoch,
        request: nacre_wire::msg::client::OpRequest,
        payload: Payload,
    ) {
        let map = self.sh.map.as_ref().expect("live");
        let id = request.request;
        let client = matches!(from, Entity::Client(_));
        let nobody = Name::default();
        let name = self.names.get(&from).unwrap_or(&nobody);
        let fenced =
            map.is_fenced(Entity::Client(id.client), id.instance) && !crate::mutant(crate::Mutant::FenceIgnored);
        let failure = if client && fenced {
            Some(OpFailure::Fenced {})
        } else if !client && request.ops.iter().any(nacre_wire::msg::client::SubOp::is_write) {
            Some(OpFailure::Invalid { why: "daemons only read".to_owned() })
        } else if let Some(why) = denied(map, name, &request) {
            Some(OpFailure::Denied { why })
        } else {
            if let Some(away) = self.turned_away.get_mut(&request.pg).filter(|_| client) {
                if away.must_wait(&id, request.answered_below) {
                    away.refuse(self.sh.now, &id, Why::NoRoom);
                    return;
                }
                away.take(&id);
                if away.is_empty() {
                    self.turned_away.remove(&request.pg);
                }
            }
            match self.pgs.get_mut(&request.pg) {
                Some(pg) if right_group(&request, pg.local.pg_num) => {
                    pg.on_request(from, name, epoch, request, payload, &mut self.sh);
                    note(&mut self.busy, pg, &mut self.sh);
                    return;
                }
                _ => Some(OpFailure::WrongTarget {}),
            }
        };
        let reply = OpReply {
            request: id,
            failure,
            version: nacre_types::Version::NONE,
            results: Vec::new(),
            attempt: request.attempt,
        };
        self.sh.reply(from, Message::OpReply(reply, Payload::new()), None);
    }

    fn on_peer_message(&mut self, from: OsdId, epoch: Epoch, message: Message) {
        if let Message::Part(part) = message {
            let current = |pg: &Pg| pg.interval.since == part.interval;
            if self.pgs.get(&part.pg).is_some_and(current)
                && let Some(message) = self.parts.take(from, part)
            {
                self.on_peer_message(from, epoch, message);
            }
            return;
        }
        let sh = &mut self.sh;
        let id = match &message {
            Message::Ping(ping) => {
                let lease = sh.peers.on_ping(sh.now, from);
                let lease_ns = u64::try_from(lease.as_nanos()).expect("a lease is short");
                let (nearly_full, share, most) = (sh.room.is_nearly_full(), sh.room.share(), sh.room.most());
                sh.send(from, Message::Pong(Pong { stamp: ping.stamp, lease_ns, nearly_full, share, most }));
                return;
            }
            Message::Pong(pong) => {
                let ours = sh.map.as_ref().map_or(Epoch::NONE, |map| map.epoch);
                sh.peers.says_full(from, pong.nearly_full);
                if pong.share > 0 {
                    sh.under_way.says(from, pong.share, pong.most);
                }
                sh.peers.on_pong(from, Time(pong.stamp), Duration::from_nanos(pong.lease_ns), epoch, ours);
                for pg in self.pgs.values_mut().filter(|pg| pg.counted_busy) {
                    if pg.waits_for_lease() {
                        pg.process_all_objects(&mut self.sh);
                    }
                }
                self.find_busy();
                return;
            }
            Message::Replicate(m, _) => m.pg,
            Message::ReplicateAck(m) => m.pg,
            Message::ReplicateApplied(m) => m.pg,
            Message::PeerQuery(m) => m.pg,
            Message::PeerInfo(m) => m.pg,
            Message::LogQuery(m) => m.pg,
            Message::LogReply(m) => m.pg,
            Message::Adopt(m) => m.pg,
            Message::AdoptAck(m) => m.pg,
            Message::Pull(m) => m.pg,
            Message::Push(m, _) => m.pg,
            Message::PushAck(m) => m.pg,
            Message::ScanQuery(m) => m.pg,
            Message::ScanReply(m) => m.pg,
            Message::Progress(m) => m.pg,
            Message::ProgressAck(m) => m.pg,
            Message::Discard(m) => m.pg,
            _ => return,
        };
        if let (Message::PeerQuery(query), None) = (&message, self.pgs.get(&id)) {
            // Asked as a member of an old interval whose data is gone: say so.
            self.answer_without_group(from, query.pg, query.interval);
            return;
        }
        let Some(pg) = self.pgs.get_mut(&id) else { return };
        match message {
            Message::Replicate(m, payload) => pg.on_replicate(from, m, payload, sh),
            Message::ReplicateAck(m) => pg.on_replicate_ack(from, &m, sh),
            Message::ReplicateApplied(m) => pg.on_replicate_applied(from, &m, sh),
            Message::PeerQuery(m) => pg.on_peer_query(from, m.interval, sh),
            Message::PeerInfo(m) => pg.on_peer_info(from, m, sh),
            Message::LogQuery(m) => pg.on_log_query(from, &m, sh),
            Message::LogReply(m) => pg.on_log_reply(from, m, sh),
            Message::Adopt(m) => pg.on_adopt(from, m, sh),
            Message::AdoptAck(m) => pg.on_adopt_ack(from, m, sh),
            Message::Pull(m) => pg.on_pull(from, &m, sh),
            Message::Push(m, payload) => pg.on_push(from, m, payload, sh),
            Message::PushAck(m) => pg.on_push_ack(from, &m, sh),
            Message::ScanQuery(m) => pg.on_scan_query(from, &m, sh),
            Message::ScanReply(m) => pg.on_scan_reply(from, m, sh),
            Message::Progress(m) => pg.on_progress(from, &m, sh),
            Message::ProgressAck(m) => pg.on_progress_ack(from, &m, sh),
            Message::Discard(m) => pg.on_discard(from, &m, sh),
            _ => {}
        }
        note(&mut self.busy, pg, sh);
    }

    fn answer_without_group(&mut self, to: OsdId, pg: PgId, interval: Epoch) {
        let record = self.sh.map.as_ref().and_then(|map| map.pgs.get(&pg)).filter(|record| record.since == interval);
        let Some(record) = record else { return };
        let left =
            record.activated.members.first().map_or(Duration::ZERO, |osd| self.sh.peers.lease_left(self.sh.now, *osd));
        let lease_left_ns = u64::try_from(left.as_nanos()).expect("a lease is short");
        let info = nacre_wire::msg::replication::PgInfo::default();
        let message = nacre_wire::msg::replication::PeerInfo {
            pg,
            interval,
            info,
            lease_left_ns,
            logged_max: self.sh.logged_max,
        };
        self.sh.send(to, Message::PeerInfo(message));
    }

    // ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    fn ping(&mut self) {
        let now = self.sh.now;
        for osd in self.sh.peers.due_pings(now) {
            self.sh.send(osd, Message::Ping(Ping { stamp: now.0 }));
        }
    }

    fn accuse(&mut self) {
        if !self.is_live() {
            return;
        }
        for accusation in self.sh.peers.accusations(self.sh.now) {
            let report = FailureReport {
                target: accusation.target,
                instance: accusation.instance,
                reporter: self.id(),
                silent_ms: u64::try_from(accusation.silent.as_millis()).unwrap_or(u64::MAX),
                alive: accusation.alive,
                refused: accusation.refused,
                itself: false,
                stalled: false,
            };
            self.sh.out.push(Output::SendMon { message: Message::FailureReport(report) });
        }
    }

    /// Tells the monitors that this daemon stops.
    fn report_itself(&mut self) {
        let report = self.own_report();
        self.sh.out.push(Output::SendMon { message: Message::FailureReport(report) });
    }

    /// Tells the monitors that this daemon's device does not answer, or answers again.
    fn report_stall(&mut self, alive: bool) {
        let report = FailureReport { stalled: true, alive, ..self.own_report() };
        self.sh.out.push(Output::SendMon { message: Message::FailureReport(report) });
    }

    const fn own_report(&self) -> FailureReport {
        FailureReport {
            target: self.id(),
            instance: self.instance(),
            reporter: self.id(),
            silent_ms: 0,
            alive: false,
            refused: false,
            itself: true,
            stalled: false,
        }
    }

    /// The host is about to stop the daemon: others need not find out the slow way.
    pub fn on_shutdown(&mut self, now: Time, out: &mut Vec<Output>) {
        self.sh.now = now;
        self.report_itself();
        self.flush(out);
    }

    fn announce(&mut self) {
        let every = self.sh.config.timing.retry_interval;
        self.phase = Phase::Waiting { at: self.sh.now + every };
        self.sh.wake_at(self.sh.now + every);
        if self.device.is_stalled() {
            // Up again, it would only be marked down again.
            return;
        }
        let config = &self.sh.config;
        let boot = Boot {
            osd: config.id,
            instance: self.sh.instance_known,
            address: config.address.clone(),
            store: config.store,
            features: 0,
            class: config.class.clone(),
            capacity: config.capacity,
            host: config.host.clone(),
            process: config.process,
        };
        self.sh.out.push(Output::SendMon { message: Message::Boot(boot) });
        if self.sh.map.is_none() {
            self.subscribe();
        }
    }

    fn beacon(&mut self) {
        let now = self.sh.now;
        self.beacon_at = now + self.sh.config.timing.beacon_interval;
        // An OSD without groups has no peers to hear of a new map from, and a monitor's message may have been lost.
        if !matches!(self.phase, Phase::Loading(_))
            && now.since(self.map_asked) >= self.sh.config.timing.beacon_interval * 5
        {
            self.subscribe();
        }
        if !self.is_live() {
            return;
        }
        let reports: BTreeMap<PgId, PgReport> =
            self.pgs.iter().filter_map(|(id, pg)| Some((*id, pg.report()?))).collect();
        if self.report_all_at <= now {
            self.report_all_at = now + self.sh.config.timing.beacon_interval * REPORT_ALL_EVERY;
            self.reported.clear();
        }
        let all = self.reported.is_empty();
        let changed = reports.iter().filter(|(id, report)| all || self.reported.get(id) != Some(report));
        let pgs: Vec<PgReport> = changed.map(|(_, report)| report.clone()).collect();
        let unfinished = reports.values().any(|report| report.state & nacre_wire::msg::monitor::pg_state::CLEAN == 0);
        self.reported = reports;
        let (total, used) = self.usage;
        let limit = self.sh.config.timing.complain_after;
        let mut slow = Vec::new();
        for pg in self.pgs.values_mut() {
            pg.slow(self.sh.config.id, now, limit, &mut slow);
        }
        let (device, space) = (self.device.text(now), self.space.clone());
        let beacon = Beacon { osd: self.id(), instance: self.instance(), total, used, pgs, all, slow, device, space };
        self.sh.out.push(Output::SendMon { message: Message::Beacon(beacon) });
        if unfinished {
            self.beacon_at = now + self.sh.config.timing.beacon_interval / 8;
        }
        self.sh.wake_at(self.beacon_at);
        self.send_log();
    }

    fn send_log(&mut self) {
        if self.sh.log.is_empty() {
            return;
        }
        let (from, instance) = (Entity::Osd(self.id()), self.instance());
        let lines = std::mem::take(&mut self.sh.log);
        let number = |n: &mut u64| {
            *n += 1;
            *n
        };
        let lines = lines
            .into_iter()
            .map(|(severity, text, Once(once))| {
                let number = number(&mut self.log_number);
                LogLine { from, instance, number, severity, text, once }
            })
            .collect();
        self.sh.out.push(Output::SendMon { message: Message::ClusterLog(ClusterLog { lines }) });
    }

    /// Asserts the invariants of every group.
    pub fn check(&self) {
        for (id, pg) in &self.pgs {
            pg.check();
            assert!(!pg.needs_tick() || pg.counted_busy || !self.is_live(), "{id} wants ticks and gets none");
        }
        let busy = self.pgs.values().filter(|pg| pg.counted_busy).count();
        assert_eq!(self.busy, busy, "groups that want ticks were miscounted");
        let recovering: usize = self.pgs.values().map(|pg| pg.counted).sum();
        assert_eq!(self.sh.recovering, recovering, "objects under way were miscounted");
        let ranges = self.pgs.values().filter(|pg| pg.has_range()).count();
        assert_eq!(self.sh.backfilling, ranges, "ranges under way were miscounted");
        assert!(ranges <= self.sh.config.limits.backfill_groups, "{ranges} groups hold a range for backfill");
        let mut under_way: BTreeMap<OsdId, u64> = BTreeMap::new();
        for (osd, bytes) in self.pgs.values().flat_map(|pg| pg.under_way(self.sh.me())) {
            *under_way.entry(osd).or_default() += bytes;
        }
        under_way.retain(|_, bytes| *bytes > 0);
        assert_eq!(self.sh.under_way.known(), under_way, "updates under way were miscounted");
        if let Some(map) = &self.sh.map {
            map.check();
        }
    }
}

/// Keeps what is known of all groups together true for one that something just happened to.
fn note(busy: &mut usize, pg: &mut Pg, sh: &mut Shared) {
    let counted = pg.in_recovery();
    sh.recovering = sh.recovering + counted - pg.counted;
    pg.counted = counted;
    pg.count_range(pg.has_range(), sh);
    let is_busy = pg.needs_tick();
    *busy = *busy + usize::from(is_busy) - usize::from(pg.counted_busy);
    pg.counted_busy = is_busy;
}

/// Why the client may not do that, if it may not. Only calls are asked about: who may read and write comes with authentication.
fn denied(map: &ClusterMap, name: &Name, request: &nacre_wire::msg::client::OpRequest) -> Option<String> {
    use nacre_wire::msg::client::SubOp;
    let is_call = |op: &&SubOp| matches!(op, SubOp::Call { .. } | SubOp::Eval { .. });
    let mut calls = request.ops.iter().filter(is_call).peekable();
    calls.peek()?;
    let pool = &map.pools.get(&request.pg.pool)?.name;
    let who = if name.as_bytes().is_empty() { "a client without a name".to_owned() } else { format!("client {name}") };
    calls.find_map(|op| match op {
        SubOp::Call { class, method, .. } if !map.may_call(name, pool, class, method) => {
            Some(format!("{who} may not call {class}.{method} in pool {pool}"))
        }
        SubOp::Eval { .. } if !map.may_eval(name, pool) => {
            Some(format!("{who} may not run scripts of its own in pool {pool}"))
        }
        _ => None,
    })
}

/// Whether the client put the object into the right group; listings go to any.
fn right_group(request: &nacre_wire::msg::client::OpRequest, pg_num: u32) -> bool {
    let listing = matches!(request.ops[..], [nacre_wire::msg::client::SubOp::ListObjects { .. }]);
    listing || key::seed(key::hash(&request.object), pg_num) == request.pg.seed
}
