//! One running monitor: every input ends in [`Live::settle`], which runs until no further step
//! follows.
//!
//! ```text
//!  input ─▶ consensus / router / subscribers / leader
//!                └──────────────▶ settle: ┌▶ consensus decisions ─▶ apply ─▶ publish, answer ┐
//!                                         │  leader changed? ─▶ re-route                     │
//!                                         │  reads confirmed? ─▶ answer                      │
//!                                         └─ batch due? ─▶ propose ◀─────────────────────────┘ until quiet
//! ```
//! Service metadata is handled in the same way; its code is in `live/meta.rs`. Membership is in
//! `live/members.rs`.

mod members;
mod meta;

use nacre_role::Output;
use nacre_store::Token;
use nacre_types::{Entity, Epoch, MonId, Name, OsdId, Time};
use nacre_wire::codec::Wire;
use nacre_wire::map::{Change, ClusterMap, CrushSection, Weight};
use nacre_wire::msg::Message;
use nacre_wire::msg::monitor::{
    CommandReply, Forward, ForwardReply, Led, RaftStep, SessionPong, Severity,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::command::{self, View};
use crate::failure::Down;
use crate::hierarchy;
use crate::leader::{Ask, InFlight, Leader, PendingRead, Request, set_epoch};
use crate::meta::lead::MetaTaken;
use crate::meta::programs::Programs;
use crate::meta::watchers::Watchers;
use crate::meta::{MetaAsk, unavailable};
use crate::mon::{Counters, MonConfig};
use crate::options;
use crate::osds;
use crate::raft::{Consensus, Decision, Recovered};
use crate::ranks::Ranks;
use crate::router::{self, Origin, Router};
use crate::state::{CommandDone, Proposal, State};
use crate::subscribers::{Outgoing, Subscribers};

#[cfg(feature = "mutants")]
#[path = "mutants/live.rs"]
mod planted;

/// A proposal larger than this is refused: a store's omap values end at 1 MiB.
const PROPOSAL_BYTES_MAX: usize = 1_000_000;
/// Marks store tokens of transactions whose completion nothing waits for.
const UNAWAITED: u64 = 1 << 63;

/// Pause of programs after a turn in which they used up their time: the leader does everything else
/// first.
const PROGRAMS_REST: Duration = Duration::from_millis(50);

/// Interval at which idle watches are told the current revision, in seconds.
const PROGRESS_S: u64 = 5;

/// The remembered outcome of a command.
fn done(ask: &Ask, reply: &Value) -> CommandDone {
    CommandDone {
        via: ask.origin.via,
        token: ask.origin.token,
        reply: reply.to_string(),
    }
}

pub struct Live {
    config: MonConfig,
    consensus: Consensus,
    state: State,
    subscribers: Subscribers,
    router: Router,
    leader: Leader,
    programs: Box<dyn Programs>,
    watchers: Watchers,
    /// Names of connected clients.
    names: BTreeMap<Entity, Name>,
    /// Leader and term, as last checked.
    led_by: (Option<MonId>, u64),
    was_leading: bool,
    last_tick: Time,
    next_tick: Time,
    next_second: Time,
    /// The time this process was awake: see `failure.rs`.
    awake: Time,
    /// Seconds of housekeeping since start.
    seconds: u64,
    heard: BTreeMap<MonId, Time>,
    outages: BTreeMap<OsdId, osds::Outage>,
    ranks: Ranks,
    hosts: (Arc<str>, BTreeMap<OsdId, String>),
    clean_to: Epoch,
    next_token: u64,
    image_bytes: usize,
    accused: bool,
    was_member: bool,
    halted: Option<String>,
    counters: Counters,
}

impl Live {
    pub fn new(
        config: MonConfig,
        programs: Box<dyn Programs>,
        now: Time,
        state: Option<State>,
        recovered: Recovered,
        out: &mut Vec<Output>,
    ) -> Result<Self, String> {
        let state = state.unwrap_or_else(|| {
            let crush =
                CrushSection::parse(&hierarchy::initial()).expect("the initial hierarchy parses");
            State::new(ClusterMap::empty(config.cluster, crush))
        });
        let consensus = Consensus::new(config.seed, config.tick, recovered)?;
        let down = state.map().osds.iter().filter(|(_, info)| !info.up);
        let outages = down
            .map(|(osd, _)| (*osd, osds::Outage::now(now)))
            .collect();
        let mut live = Self {
            router: Router::new(config.seed, now),
            next_tick: now + config.tick,
            config,
            consensus,
            state,
            subscribers: Subscribers::default(),
            leader: Leader::default(),
            programs,
            watchers: Watchers::default(),
            names: BTreeMap::new(),
            led_by: (None, 0),
            was_leading: false,
            last_tick: now,
            next_second: now,
            awake: Time(1),
            seconds: 0,
            heard: BTreeMap::new(),
            outages,
            ranks: Ranks::default(),
            hosts: ("".into(), BTreeMap::new()),
            clean_to: Epoch::NONE,
            next_token: UNAWAITED,
            image_bytes: 0,
            accused: false,
            was_member: false,
            halted: None,
            counters: Counters::default(),
        };
        live.consensus.campaign_if_alone();
        live.settle(now, out);
        Ok(live)
    }

    // ── facts ───────────────────────────────────────────────────────────────────────────

    pub fn on_message(
        &mut self,
        now: Time,
        from: Entity,
        epoch: Epoch,
        message: Message,
        out: &mut Vec<Output>,
    ) {
        self.subscribers.on_epoch(from, epoch);
        let sender = match from {
            Entity::Mon(_) => "mon",
            Entity::Osd(_) => "osd",
            Entity::Client(_) => "client",
        };
        *self
            .counters
            .received
            .entry((sender, message.name()))
            .or_default() += 1;
        if let Entity::Mon(mon) = from {
            self.heard.insert(mon, now);
        }
        match (message, from) {
            (Message::Raft(step), Entity::Mon(mon)) => {
                if let Err(amnesia) = self.consensus.step(mon, &step.message) {
                    self.halted = Some(amnesia.why);
                    return;
                }
            }
            (Message::Forward(forward), Entity::Mon(mon)) if forward.via == mon => {
                let decoded =
                    Message::decode(forward.kind, forward.compat, &forward.meta, Vec::new());
                match decoded {
                    Ok(message) if self.consensus.is_leader() => {
                        let origin = Origin {
                            via: mon,
                            token: forward.token,
                            from: forward.from,
                        };
                        self.lead(now, origin, forward.name, message, out);
                    }
                    // The forwarding monitor learns who leads, and resends it there.
                    Ok(_) => self.leader.reject("forward_not_leading"),
                    Err(_) => self.leader.reject("forward_malformed"),
                }
            }
            (Message::ForwardReply(reply), Entity::Mon(_)) => {
                if let Ok(message) =
                    Message::decode(reply.kind, reply.compat, &reply.meta, Vec::new())
                    && let Some((to, message)) = self.router.answer(reply.token, message)
                {
                    out.push(Output::send(to, message));
                }
            }
            (Message::Subscribe(ask), _) => {
                let mut outgoing = Outgoing::new();
                self.subscribers
                    .subscribe(&self.state, from, &ask, &mut outgoing);
                self.post(outgoing, out);
                if matches!(from, Entity::Osd(_)) {
                    out.extend(self.led().map(|message| Output::send(from, message)));
                }
            }
            (Message::SessionPing(ping), _) => {
                let pong = SessionPong {
                    number: ping.number,
                    led: self.consensus.leader().is_some(),
                };
                out.push(Output::send(from, Message::SessionPong(pong)));
            }
            (Message::MapAck(ack), _) => self.subscribers.on_epoch(from, ack.epoch),
            (Message::MetaWatch(ask), _) => self.watch(from, ask, out),
            (Message::MetaCancel(cancel), _) => self.watchers.cancel(from, cancel.watch),
            (Message::MetaRequest(request), _) if meta::is_local(&request) => {
                self.read_here(from, &request, out)
            }
            (
                message @ (Message::Boot(_)
                | Message::FailureReport(_)
                | Message::PgActivateRequest(_)
                | Message::PgTemporaryRequest(_)
                | Message::Beacon(_)
                | Message::ClusterLog(_)
                | Message::Command(_)
                | Message::MetaRequest(_)),
                _,
            ) => self.route(now, from, message, out),
            _ => self.leader.reject("message_unexpected"),
        }
        self.settle(now, out);
    }

    pub fn on_disconnect(&mut self, now: Time, who: Entity, out: &mut Vec<Output>) {
        self.subscribers.remove(who);
        self.watchers.remove(who);
        self.names.remove(&who);
        self.router.disconnect(who);
        if let Entity::Mon(mon) = who {
            self.heard.remove(&mon);
            self.consensus.on_disconnect(mon);
        }
        self.settle(now, out);
    }

    pub fn on_committed(&mut self, now: Time, token: Token, out: &mut Vec<Output>) {
        if token.0 & UNAWAITED == 0 {
            let mut decisions = Vec::new();
            self.consensus.on_committed(token.0, &mut decisions);
            self.handle(now, decisions, out);
        }
        self.settle(now, out);
    }

    pub fn on_tick(&mut self, now: Time, out: &mut Vec<Output>) {
        if now >= self.next_tick {
            // However late: one tick, and at most two ticks of awake time.
            self.awake = self.awake + now.since(self.last_tick).min(self.config.tick * 2);
            self.last_tick = now;
            self.next_tick = now + self.config.tick;
            self.consensus.tick(now);
            self.consensus.campaign_if_alone();
            self.accused = true;
            self.end_leases(now);
            self.reconcile_members(now);
        }
        if now >= self.next_second {
            self.next_second = now + Duration::from_secs(1);
            self.every_second(now, out);
        }
        let reachable = self.reachable_text(now);
        for (to, message) in self
            .router
            .expire(now, self.consensus.leader().is_some(), &reachable)
        {
            out.push(Output::send(to, message));
        }
        self.router.repeat(now);
        self.settle(now, out);
    }

    pub fn next_deadline(&self) -> Time {
        let mut next = self.next_tick.min(self.next_second);
        if let Some(at) = self.leader.propose_at
            && self.leader.in_flight.is_none()
            && self.consensus.may_propose()
        {
            next = next.min(at);
        }
        self.router.next_deadline().map_or(next, |at| next.min(at))
    }

    // ── requests ────────────────────────────────────────────────────────────────────────

    fn route(&mut self, now: Time, from: Entity, message: Message, out: &mut Vec<Output>) {
        let wait = options::duration(self.state.map(), "mon.command_wait_ms");
        match self.router.open(now, wait, from, &message) {
            Some(token) => self.dispatch(now, token, from, message, out),
            None => {
                let busy = "this monitor has too many open commands; try again in a moment";
                let answer = match message {
                    Message::Command(command) => Some(router::reply(command.token, busy)),
                    Message::MetaRequest(request) => Some(unavailable(&request, busy)),
                    _ => None,
                };
                out.extend(answer.map(|message| Output::send(from, message)));
            }
        }
    }

    fn dispatch(
        &mut self,
        now: Time,
        token: u64,
        from: Entity,
        message: Message,
        out: &mut Vec<Output>,
    ) {
        let me = self.config.id;
        if self.consensus.is_leader() {
            self.router.sent(now, token);
            let name = self.name_of(from);
            self.lead(
                now,
                Origin {
                    via: me,
                    token,
                    from,
                },
                name,
                message,
                out,
            );
        } else if let Some(leader) = self.consensus.leader() {
            self.router.sent(now, token);
            let (kind, _, compat) = message.kind();
            let mut meta = Vec::new();
            message.put_meta(&mut meta);
            let forward = Forward {
                from,
                via: me,
                token,
                kind,
                compat,
                meta: meta.into(),
                name: self.name_of(from),
            };
            out.push(Output::send(Entity::Mon(leader), Message::Forward(forward)));
        } else {
            self.router.hold(now, token, from, message);
        }
    }

    fn due(&self, now: Time) -> Time {
        now + options::duration(self.state.map(), "mon.propose_interval_ms")
    }

    /// A request has reached the leader.
    fn lead(
        &mut self,
        now: Time,
        origin: Origin,
        name: Name,
        message: Message,
        out: &mut Vec<Output>,
    ) {
        let due = self.due(now);
        let from = origin.from;
        match message {
            Message::Boot(boot) if from == Entity::Osd(boot.osd) => {
                let (map, Leader { filter, stats, .. }) = (self.state.map(), &mut self.leader);
                if filter.may_come(self.awake, map, boot.osd, || {
                    stats.is_awaited(map, boot.osd)
                }) {
                    self.leader.push(due, Request::Boot(origin, boot));
                } else {
                    // It is resent.
                    self.leader.reject("boot_held");
                }
            }
            Message::FailureReport(report) if from == Entity::Osd(report.reporter) => {
                // All are judged with each tick. At once only for the first report that a process
                // has ended: when a rack goes silent, thousands of reports arrive in one turn.
                let first =
                    (report.refused || report.itself) && !self.leader.filter.is_gone(report.target);
                if self
                    .leader
                    .filter
                    .report(self.awake, self.state.map(), &report)
                {
                    self.accused |= first;
                } else {
                    self.leader.reject("failure_report");
                }
            }
            Message::PgActivateRequest(request) => {
                self.leader.push(due, Request::Activate(from, request))
            }
            Message::PgTemporaryRequest(request) => {
                self.leader.push(due, Request::Temporary(from, request))
            }
            Message::Beacon(beacon) if from == Entity::Osd(beacon.osd) => {
                let (osd, instance) = (beacon.osd, beacon.instance);
                if self.leader.stats.beacon(self.state.map(), beacon) {
                    self.leader.beacons.heard(self.awake, osd, instance);
                } else {
                    self.leader.reject("beacon");
                }
            }
            Message::ClusterLog(log) => {
                let lines = log
                    .lines
                    .into_iter()
                    .filter(|line| line.from == from && !self.state.log().knows(line));
                let lines: Vec<_> = lines.collect();
                self.leader.push_lines(due, lines);
            }
            Message::Command(command) => match nacre_command::Command::parse(&command.request) {
                Ok(command) => {
                    let writes = command.writes();
                    let ask = Ask { origin, command };
                    if self.leader.is_on_its_way(origin) {
                        // Resent while the first one is being executed: one answer serves both.
                    } else if writes {
                        self.leader.push(due, Request::Command(ask));
                    } else {
                        self.leader.fresh.push(PendingRead::Question(ask));
                    }
                }
                // An invalid command is invalid on every monitor: no proof of leadership is needed.
                Err(error) => self.answer(origin, Err(error.to_string()), out),
            },
            Message::MetaRequest(request) => {
                self.lead_meta(
                    now,
                    MetaAsk {
                        origin,
                        name,
                        request,
                        tries: 0,
                    },
                    out,
                );
            }
            _ => self.leader.reject("sender_mismatch"),
        }
    }

    fn answer(&mut self, origin: Origin, answer: Result<Value, String>, out: &mut Vec<Output>) {
        self.counters.commands += 1;
        let (error, reply) = match answer {
            Ok(reply) => (None, reply.to_string()),
            Err(error) => (Some(error), "{}".to_owned()),
        };
        self.send_back(
            origin,
            Message::CommandReply(CommandReply {
                token: origin.token,
                error,
                reply,
            }),
            out,
        );
    }

    fn send_back(&mut self, origin: Origin, message: Message, out: &mut Vec<Output>) {
        if origin.via == self.config.id {
            if let Some((to, message)) = self.router.answer(origin.token, message) {
                out.push(Output::send(to, message));
            }
            return;
        }
        let (kind, _, compat) = message.kind();
        let mut meta = Vec::new();
        message.put_meta(&mut meta);
        let reply = ForwardReply {
            token: origin.token,
            kind,
            compat,
            meta: meta.into(),
        };
        out.push(Output::send(
            Entity::Mon(origin.via),
            Message::ForwardReply(reply),
        ));
    }

    fn post(&mut self, outgoing: Outgoing, out: &mut Vec<Output>) {
        for (to, message) in outgoing {
            self.counters.maps_sent += 1;
            out.push(Output::send(to, message));
        }
    }

    // ── what follows ────────────────────────────────────────────────────────────────────

    fn settle(&mut self, now: Time, out: &mut Vec<Output>) {
        loop {
            let mut decisions = Vec::new();
            self.consensus.poll(now, &mut decisions);
            let quiet = decisions.is_empty();
            self.handle(now, decisions, out);
            if self.halted.is_some() {
                return;
            }
            self.notice_leader(now, out);
            let asked = self.answer_reads(now, out);
            self.judge_failures(now);
            if !self.propose(now, out) && !asked && quiet {
                break;
            }
        }
        if self.consensus.wants_snapshot() && self.consensus.applied() > 0 {
            self.consensus.offer_snapshot(self.state.to_image());
        }
        let entries = options::number(self.state.map(), "mon.compact_entries");
        if self.consensus.should_compact(entries, self.image_bytes) {
            let image = self.state.to_image();
            self.image_bytes = image.len();
            let transaction = self.consensus.compact(image);
            self.next_token += 1;
            out.push(Output::Submit {
                transaction,
                token: Token(self.next_token),
            });
        }
    }

    fn handle(&mut self, now: Time, decisions: Vec<Decision>, out: &mut Vec<Output>) {
        for decision in decisions {
            match decision {
                Decision::Send(to, message) => {
                    out.push(Output::send(
                        Entity::Mon(to),
                        Message::Raft(RaftStep { message }),
                    ));
                }
                Decision::Submit(transaction, token) => out.push(Output::Submit {
                    transaction,
                    token: Token(token),
                }),
                Decision::Apply { index, term, data } => self.apply(now, index, term, &data, out),
                Decision::Restore { index, state } => self.restore(now, index, &state, out),
                Decision::ReadReady { index, context } => {
                    if let Some(list) = self.leader.waiting.remove(&context) {
                        self.leader.confirmed.push((index, list));
                    }
                }
            }
            if self.halted.is_some() {
                return;
            }
        }
    }

    fn apply(&mut self, now: Time, index: u64, term: u64, data: &[u8], out: &mut Vec<Output>) {
        let mut stale = false;
        let mut outcomes = Vec::new();
        let before = self.state.meta().revision();
        if !data.is_empty() {
            match self.state.apply(data) {
                Ok(applied) => {
                    stale = applied.stale;
                    outcomes = applied.meta;
                    let mut fresh: Vec<_> =
                        self.state.log().lines().rev().take(applied.lines).collect();
                    fresh.reverse();
                    out.extend(
                        fresh
                            .into_iter()
                            .map(|numbered| Output::Say(numbered.line.text.clone())),
                    );
                    if let Some(changes) = applied.changes {
                        self.counters.epochs += 1;
                        self.on_map(now, &changes, out);
                    }
                }
                Err(why) => {
                    self.halted = Some(why.to_string());
                    return;
                }
            }
        }
        if !outcomes.is_empty() {
            self.on_meta(before, out);
        }
        if let Some(flight) = self
            .leader
            .in_flight
            .take_if(|flight| flight.index <= index)
            && flight.index == index
            && flight.term == term
        {
            // Metadata entries contain their own preconditions: they are applied, or not, even if
            // the map's changes are dropped.
            self.answer_meta(now, flight.meta, outcomes, out);
            let epoch = self.state.map().epoch;
            for (ask, mut reply) in flight.replies.into_iter().filter(|_| !stale) {
                set_epoch(&mut reply, epoch);
                self.answer(ask.origin, Ok(reply), out);
            }
        }
        // Otherwise another leader's entry is at its index: it was not applied, and its monitor
        // resends it.
        let triggers = self
            .triggers_wait()
            .then(|| now.max(self.leader.meta_rests_until));
        if let Some(due) = self.leader.next_work(now).into_iter().chain(triggers).min() {
            self.leader.propose_at = Some(
                self.leader
                    .propose_at
                    .map_or(due, |at| at.min(due.max(self.due(now)))),
            );
        }
    }

    fn restore(&mut self, now: Time, index: u64, state: &[u8], out: &mut Vec<Output>) {
        match State::from_image(state) {
            Ok(state) => self.state = state,
            Err(why) => {
                self.halted = Some(format!(
                    "the leading monitor's snapshot cannot be read ({why}): upgrade this monitor"
                ));
                return;
            }
        }
        // The new state records whether it was executed; its monitor resends it.
        self.leader
            .in_flight
            .take_if(|flight| flight.index <= index);
        self.outages.clear();
        self.note_down(now);
        let mut outgoing = Outgoing::new();
        self.subscribers.on_restore(&self.state, &mut outgoing);
        self.post(outgoing, out);
        self.tell_watchers(
            |watchers, meta, outgoing| watchers.on_restore(meta, outgoing),
            out,
        );
    }

    fn note_down(&mut self, now: Time) {
        let map = self.state.map();
        self.outages
            .retain(|osd, _| map.osds.get(osd).is_some_and(|info| !info.up));
        for (osd, info) in &map.osds {
            if !info.up {
                self.outages.entry(*osd).or_insert(osds::Outage::now(now));
            }
        }
    }

    fn on_map(&mut self, now: Time, changes: &[Change], out: &mut Vec<Output>) {
        let about_osds = |change: &Change| {
            matches!(
                change,
                Change::OsdUp { .. }
                    | Change::OsdDown { .. }
                    | Change::OsdNew { .. }
                    | Change::OsdRemove { .. }
            )
        };
        if changes.iter().any(about_osds) {
            self.note_down(now);
        }
        for change in changes {
            // An operator marks in an OSD that is down: its time starts again.
            if let Change::OsdWeight {
                osd,
                weight,
                automatic: false,
            } = change
                && *weight != Weight::OUT
                && let Some(outage) = self.outages.get_mut(osd)
            {
                outage.counts_from = now;
            }
        }
        self.leader.on_map(self.awake, &self.state, changes);
        let fanout = options::number(self.state.map(), "mon.map_fanout");
        let mut outgoing = Outgoing::new();
        self.subscribers.publish(
            &self.state,
            changes,
            usize::try_from(fanout).unwrap_or(usize::MAX),
            &mut outgoing,
        );
        self.post(outgoing, out);
    }

    fn notice_leader(&mut self, now: Time, out: &mut Vec<Output>) {
        let leading = self.consensus.is_leader();
        let led_by = (self.consensus.leader(), self.consensus.term());
        if self.was_leading && (!leading || led_by.1 != self.led_by.1) {
            self.leader.abdicate();
        }
        if led_by != self.led_by {
            if led_by.0.is_some() {
                self.counters.leaders_seen += 1;
            }
            self.led_by = led_by;
            self.router.on_leader();
            if let Some(message) = self.led() {
                out.extend(
                    self.subscribers
                        .osds()
                        .map(|to| Output::send(to, message.clone())),
                );
            }
            if leading {
                let text = format!("{} leads in term {}", self.config.id, led_by.1);
                let due = self.due(now);
                self.leader
                    .say(due, self.config.id, led_by.1, Severity::Info {}, text);
                // Their silence counts from now on; no OSD is due yet.
                self.leader.beacons.verdicts(self.awake, self.state.map());
            }
        }
        self.was_leading = leading;
        if led_by.0.is_some() && self.router.has_held() {
            for (token, from, message) in self.router.release() {
                self.dispatch(now, token, from, message, out);
            }
        }
        self.notice_removal();
    }

    /// The message about the leader for subscribed OSDs.
    fn led(&self) -> Option<Message> {
        let (leader, term) = self.led_by;
        leader.map(|leader| Message::Led(Led { leader, term }))
    }

    /// Requests proof that this monitor still leads, and answers proven reads; returns whether it
    /// requested one.
    #[nacre_types::planted]
    fn answer_reads(&mut self, now: Time, out: &mut Vec<Output>) -> bool {
        let mut asked = false;
        if !self.leader.fresh.is_empty() && self.consensus.may_propose() {
            self.next_token += 1;
            if self.consensus.read(self.next_token) {
                let list = std::mem::take(&mut self.leader.fresh);
                self.leader.waiting.insert(self.next_token, list);
                asked = true;
            }
        }
        let applied = self.consensus.applied();
        let confirmed = std::mem::take(&mut self.leader.confirmed);
        let (ready, later) = confirmed
            .into_iter()
            .partition(|(index, _)| *index <= applied);
        self.leader.confirmed = later;
        for (_, list) in ready {
            for pending in list {
                match pending {
                    PendingRead::Answer(ask, answer) => self.answer(ask.origin, answer, out),
                    PendingRead::Meta(ask) => self.read_proven(&ask, out),
                    PendingRead::Question(ask) => {
                        let answer =
                            command::run(&self.view(now), &ask.command).map(|done| done.reply);
                        self.answer(ask.origin, answer, out);
                    }
                }
            }
        }
        asked
    }

    fn judge_failures(&mut self, now: Time) {
        if !std::mem::take(&mut self.accused) || !self.consensus.may_propose() {
            return;
        }
        if !Arc::ptr_eq(&self.hosts.0, &self.state.map().crush.text) {
            let text = Arc::clone(&self.state.map().crush.text);
            self.hosts = (Arc::clone(&text), hierarchy::hosts(&text));
        }
        let due = self.due(now);
        for down in self
            .leader
            .filter
            .verdicts(self.awake, self.state.map(), &self.hosts.1)
        {
            self.mark_down(due, down);
        }
    }

    fn mark_down(&mut self, due: Time, down: Down) {
        if down.silent {
            self.leader.filter.on_silenced(self.awake, down.osd);
        }
        if down.parted {
            self.leader.filter.on_parted(self.awake, down.osd);
        }
        self.leader.push(due, Request::Down(down));
    }

    /// Proposes what is due; returns whether it did.
    fn propose(&mut self, now: Time, out: &mut Vec<Output>) -> bool {
        let due = self.leader.propose_at.is_some_and(|at| at <= now);
        if !due || self.leader.in_flight.is_some() || !self.consensus.may_propose() {
            return false;
        }
        // The soft state is read while the queue is drained: two parts of one struct.
        let mut leader = std::mem::take(&mut self.leader);
        let mut soft = Leader::default();
        soft.stats = std::mem::take(&mut leader.stats);
        soft.filter = std::mem::take(&mut leader.filter);
        soft.rejects.clone_from(&leader.rejects);
        let mut taken = leader.take_batch(&self.view_with(now, &soft));
        (leader.stats, leader.filter) = (soft.stats, soft.filter);
        let rests = leader.meta_rests_until > now;
        let mut meta = match rests {
            true => MetaTaken::default(),
            false => leader
                .meta
                .take(&mut meta::judge(&self.state, self.programs.as_mut())),
        };
        if meta.exhausted {
            leader.meta_rests_until = now + PROGRAMS_REST;
        }
        let said = std::mem::take(&mut meta.said);
        taken.lines.extend(leader.fault_lines(
            self.config.id,
            self.consensus.term(),
            self.state.log(),
            said,
        ));
        leader.propose_at = leader.next_work(now);
        self.leader = leader;
        if rests && self.triggers_wait() {
            let until = self.leader.meta_rests_until;
            self.leader.propose_at = Some(self.leader.propose_at.map_or(until, |at| at.min(until)));
        }
        for (origin, refused) in taken.refused {
            self.send_back(origin, Message::Refused(refused), out);
        }
        for (origin, message) in meta.answers {
            self.send_back(origin, message, out);
        }
        if taken.changes.is_empty() && taken.lines.is_empty() && meta.entries.is_empty() {
            return !self.leader.fresh.is_empty();
        }
        let unix = if self.config.unix_ms_at_zero == 0 {
            0
        } else {
            self.config.unix_ms_at_zero + now.0 / 1_000_000
        };
        let mut proposal = Proposal {
            base: self.state.map().epoch,
            changes: taken.changes,
            lines: taken.lines,
            clean_to: self.clean_to,
            commands: taken
                .replies
                .iter()
                .map(|(ask, reply)| done(ask, reply))
                .collect(),
            unix_ms: unix,
            meta: meta.entries,
        };
        let mut data = proposal.to_bytes();
        if data.len() > PROPOSAL_BYTES_MAX && !proposal.meta.is_empty() {
            // Too long together with the map's changes: metadata goes into the next proposal, where
            // it fits (`meta/lead.rs`).
            proposal.meta.clear();
            for ask in std::mem::take(&mut meta.asks).into_iter().flatten().rev() {
                self.leader.meta.push_again(ask);
            }
            self.leader.propose_at = Some(now);
            data = proposal.to_bytes();
        }
        if data.len() > PROPOSAL_BYTES_MAX
            && !proposal.lines.is_empty()
            && !proposal.changes.is_empty()
        {
            // Log lines must not displace changes.
            self.leader.reject("log_lines");
            proposal.lines.clear();
            data = proposal.to_bytes();
        }
        if data.len() > PROPOSAL_BYTES_MAX {
            self.leader.reject("proposal_too_large");
            for (ask, _) in taken.replies {
                let error = format!(
                    "a change of {} bytes is more than the monitors' log takes in one piece",
                    data.len()
                );
                self.answer(ask.origin, Err(error), out);
            }
            self.leader.propose_at = Some(now);
            return true;
        }
        if proposal.changes.is_empty() && proposal.lines.is_empty() && proposal.meta.is_empty() {
            self.leader.reject("proposal_too_large");
            return false;
        }
        match self.consensus.propose(data) {
            Some((index, term)) => {
                self.counters.proposals += 1;
                self.leader.in_flight = Some(InFlight {
                    index,
                    term,
                    replies: taken.replies,
                    meta: meta.asks,
                });
            }
            // Leadership ended within this very step: the requesting monitors will ask the next
            // leader.
            None => self.leader.reject("proposal_not_taken"),
        }
        true
    }

    fn every_second(&mut self, now: Time, out: &mut Vec<Output>) {
        let mut outgoing = Outgoing::new();
        self.subscribers.sweep(&self.state, &mut outgoing);
        self.post(outgoing, out);
        self.seconds += 1;
        if self.seconds.is_multiple_of(PROGRESS_S) {
            self.tell_watchers(
                |watchers, meta, outgoing| watchers.progress(meta, outgoing),
                out,
            );
        }
        self.subscribers.tidy();
        self.consensus.tidy();
        self.ranks.follow(self.awake, self.state.meta());
        if !self.consensus.may_propose() {
            return;
        }
        let due = self.due(now);
        for down in self.leader.beacons.verdicts(self.awake, self.state.map()) {
            self.mark_down(due, down);
        }
        let map = self.state.map();
        for osd in osds::to_take_out(now, map, &self.outages, &self.leader.stats) {
            self.leader.push(due, Request::TakeOut(osd));
        }
        for (pool, full) in self.leader.stats.pools_to_flag(map) {
            self.leader.push(due, Request::PoolFull(pool, full));
        }
        for mon in self.gone() {
            self.leader.push(due, Request::MonGone(mon));
        }
        self.clean_to = self.leader.stats.clean_to(map);
        if let Some(text) = self.leader.mass_failure_line(map) {
            self.leader.say(
                due,
                self.config.id,
                self.consensus.term(),
                Severity::Error {},
                text,
            );
        }
    }

    fn reachable_text(&self, now: Time) -> String {
        let quorum = self.quorum(now);
        format!(
            "{} of {} monitors reachable from {}",
            quorum.reachable.len(),
            quorum.voters.len(),
            self.config.id
        )
    }

    fn view(&self, now: Time) -> View<'_> {
        self.view_with(now, &self.leader)
    }

    fn view_with<'a>(&'a self, now: Time, leader: &'a Leader) -> View<'a> {
        View {
            now,
            awake: self.awake,
            me: self.config.id,
            term: self.consensus.term(),
            state: &self.state,
            stats: &leader.stats,
            suspects: leader.filter.suspects(),
            parted: leader.filter.parted(),
            held: leader.filter.held(self.awake).collect(),
            silent: leader
                .beacons
                .silent(self.awake, self.state.map())
                .collect(),
            rejects: &leader.rejects,
            outages: &self.outages,
            overruns: &leader.meta.overruns,
            ranks: &self.ranks,
            quorum: self.quorum(now),
            clock: self.programs.clock(),
        }
    }

    // ── views ───────────────────────────────────────────────────────────────────────────

    pub fn state(&self) -> &State {
        &self.state
    }
    pub fn halted(&mut self) -> Option<String> {
        self.halted.take()
    }
    pub fn kept_down(&self) -> Vec<OsdId> {
        self.leader
            .filter
            .held(self.awake)
            .map(|(osd, _)| osd)
            .collect()
    }
    pub fn leads(&self) -> bool {
        self.consensus.may_propose()
    }
    pub fn term(&self) -> u64 {
        self.consensus.term()
    }
    pub fn leader(&self) -> Option<MonId> {
        self.consensus.leader()
    }
    pub fn log_bounds(&self) -> (u64, u64, u64) {
        (
            self.consensus.first(),
            self.consensus.last(),
            self.consensus.applied(),
        )
    }
    pub fn counters(&self) -> Counters {
        Counters {
            rejects: self.leader.rejects.clone(),
            ..self.counters.clone()
        }
    }
    pub fn check(&self) {
        self.consensus.check();
        self.state.check();
        self.watchers.check(self.state.meta());
        self.leader.check(self.was_leading, self.state.meta());
    }
}
