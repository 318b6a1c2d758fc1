//! What only the leader does: gathers requests, checks them, proposes, answers.
//!
//! ```text
//!  request ──▶ queue ──take_batch──▶ Batch + replies ──propose──▶ InFlight ──applied here──▶ replies out
//!                 ▲                                                  │
//!                 └──────────── its place went to another leader ────┘
//!  command that reads ──▶ fresh ──read-index──▶ waiting ──majority confirmed──▶ evaluated ──▶ reply
//!  command refused or with nothing to do ──▶ fresh, with its answer: also a refusal must not come from a deposed leader
//! ```
//! Everything here is soft: it dies with the leadership, and its requesters repeat themselves ([`crate::router`]).

use nacre_types::{Entity, Epoch, Instance, MonId, OsdId, PgId, PoolId, Time};
use nacre_wire::map::{Change, ClusterMap, Weight, pool_flag};
use nacre_wire::msg::monitor::{Boot, LogLine, PgActivateRequest, PgTemporaryRequest, Refused, Severity};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::batch::{Batch, Part, Reads};
use crate::beacons::Beacons;
use crate::command::{self, CommandSpec, Done, View};
use crate::failure::{Down, FailureFilter};
use crate::meta::MetaAsk;
use crate::meta::lead::MetaLead;
use crate::meta::programs::FaultLine;
use crate::osds::{self, BootVerdict};
use crate::pgs;
use crate::router::Origin;
use crate::state::State;
use crate::state::cluster_log::ClusterLog;
use crate::stats::Stats;

/// Requests in the queue; beyond, those that repeat themselves are dropped.
const QUEUE_MAX: usize = 20_000;
/// Changes in one proposal.
const BATCH_CHANGES_MAX: usize = 2_000;
/// An OSD that is heard of this long after another process asked for its place lives: longer than anything of a dead one is under way.
const INTRUDER_WAIT: Duration = Duration::from_secs(2);
/// Log lines in one proposal.
const BATCH_LINES_MAX: usize = 200;

/// A command and where its answer goes.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Where.
    pub origin: Origin,
    /// Which command.
    pub spec: &'static CommandSpec,
    /// Its fields.
    pub request: Value,
}

/// An answer.
pub type Answer = Result<Value, String>;

/// Something to be checked and proposed.
#[derive(Clone, Debug)]
pub enum Request {
    /// An OSD started.
    Boot(Origin, Boot),
    /// A primary peered.
    Activate(Entity, PgActivateRequest),
    /// A primary wants others to act.
    Temporary(Entity, PgTemporaryRequest),
    /// The failure filter's verdict.
    Down(Down),
    /// Down for too long.
    TakeOut(OsdId),
    /// A pool is full, or no longer.
    PoolFull(PoolId, bool),
    /// A monitor that was to leave has left consensus.
    MonGone(MonId),
    /// A command that changes something.
    Command(Ask),
}

/// At most one request of a kind about a thing is queued: the newest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Boot(OsdId),
    Activate(PgId, Entity),
    Temporary(PgId, Entity),
    Down(OsdId),
    TakeOut(OsdId),
    PoolFull(PoolId),
    MonGone(MonId),
    Command(Origin),
}

impl Request {
    fn subject(&self) -> Subject {
        match self {
            Self::Boot(_, boot) => Subject::Boot(boot.osd),
            Self::Activate(from, request) => Subject::Activate(request.pg, *from),
            Self::Temporary(from, request) => Subject::Temporary(request.pg, *from),
            Self::Down(down) => Subject::Down(down.osd),
            Self::TakeOut(osd) => Subject::TakeOut(*osd),
            Self::PoolFull(pool, _) => Subject::PoolFull(*pool),
            Self::MonGone(mon) => Subject::MonGone(*mon),
            Self::Command(ask) => Subject::Command(ask.origin),
        }
    }

    fn reads(&self) -> Reads {
        let parts = match self {
            Self::Boot(_, boot) => {
                vec![Part::Osd(boot.osd), Part::Store(boot.store), Part::Fence(Entity::Osd(boot.osd)), Part::Features]
            }
            Self::Activate(_, request) => {
                let osds = request.members.iter().map(|osd| Part::Osd(*osd));
                osds.chain([Part::Pg(request.pg), Part::Pool(request.pg.pool)]).collect()
            }
            Self::Temporary(_, request) => {
                let osds = request.acting.iter().map(|osd| Part::Osd(*osd));
                osds.chain([Part::Pg(request.pg), Part::Pool(request.pg.pool)]).collect()
            }
            Self::Down(down) => vec![Part::Osd(down.osd)],
            Self::TakeOut(osd) => vec![Part::Osd(*osd), Part::Flags],
            Self::PoolFull(pool, _) => vec![Part::Pool(*pool)],
            Self::MonGone(mon) => vec![Part::Mon(*mon)],
            Self::Command(_) => return Reads::All,
        };
        Reads::Parts(parts)
    }
}

/// A proposal on its way.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// Its place in the log.
    pub index: u64,
    /// The term it was proposed in.
    pub term: u64,
    /// Who waits for it, and what they will be told.
    pub replies: Vec<(Ask, Value)>,
    /// Who waits for the metadata's entries, one for each; nobody for the leader's own.
    pub meta: Vec<Option<MetaAsk>>,
}

/// What a batch amounts to.
#[derive(Debug, Default)]
pub struct Taken {
    /// For the proposal.
    pub changes: Vec<Change>,
    /// For the proposal.
    pub lines: Vec<LogLine>,
    /// To be told when it is applied.
    pub replies: Vec<(Ask, Value)>,
    /// To be told to OSDs now: they must not come up.
    pub refused: Vec<(Origin, Refused)>,
}

/// A question or an answer that waits for proof that this monitor still leads.
#[derive(Clone, Debug)]
pub enum Unproven {
    /// To be evaluated then.
    Question(Ask),
    /// To be sent then.
    Answer(Ask, Answer),
    /// A request about metadata that changes nothing.
    Meta(MetaAsk),
}

/// Adds the epoch that has a command's change.
pub fn set_epoch(reply: &mut Value, epoch: Epoch) {
    if let Value::Object(fields) = reply {
        fields.insert("epoch".to_owned(), Value::from(epoch.0));
    }
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Leader {
    queue: VecDeque<Request>,
    subjects: BTreeSet<Subject>,
    lines: VecDeque<LogLine>,
    /// When the next batch is due; none when nothing waits.
    pub propose_at: Option<Time>,
    /// The proposal on its way.
    pub in_flight: Option<InFlight>,
    /// Waits for a read-index to be asked.
    pub fresh: Vec<Unproven>,
    /// Waits for its confirmation, by context.
    pub waiting: BTreeMap<u64, Vec<Unproven>>,
    /// Confirmed; waits until this much is applied.
    pub confirmed: Vec<(u64, Vec<Unproven>)>,
    /// Who is reported.
    pub filter: FailureFilter,
    /// Who says nothing at all.
    pub beacons: Beacons,
    /// What OSDs say of themselves.
    pub stats: Stats,
    /// Service metadata.
    pub meta: MetaLead,
    /// Its programs had all their time: until then, everything else goes first.
    pub meta_rests_until: Time,
    /// Refusals by reason.
    pub rejects: BTreeMap<&'static str, u64>,
    said: u64,
    said_in: u64,
    refused: BTreeMap<OsdId, (u64, u128)>,
    /// Processes that want to be OSDs that others are, and since when.
    intruders: BTreeMap<OsdId, (u64, Time)>,
    told_mass_failure: bool,
}

impl Leader {
    /// Queues a request; it takes the place of an older one about the same thing.
    pub fn push(&mut self, due: Time, request: Request) {
        let subject = request.subject();
        if self.subjects.contains(&subject) {
            let at = self.queue.iter().position(|queued| queued.subject() == subject);
            self.queue[at.expect("subjects are those of the queue")] = request;
        } else if self.queue.len() < QUEUE_MAX {
            self.subjects.insert(subject);
            self.queue.push_back(request);
        } else {
            self.reject("queue_full");
            return;
        }
        self.propose_at.get_or_insert(due);
    }

    /// Whether a command is in the proposal on its way (in the queue, the newer takes the older's place).
    #[must_use]
    pub fn is_on_its_way(&self, origin: Origin) -> bool {
        self.in_flight.as_ref().is_some_and(|flight| flight.replies.iter().any(|(ask, _)| ask.origin == origin))
    }

    /// Queues lines for the cluster log.
    pub fn push_lines(&mut self, due: Time, lines: impl IntoIterator<Item = LogLine>) {
        for line in lines {
            if self.lines.len() >= 10 * BATCH_LINES_MAX {
                self.reject("log_lines");
                return;
            }
            self.lines.push_back(line);
            self.propose_at.get_or_insert(due);
        }
    }

    /// A line of this monitor's own. Lines are numbered within a term: two leaders never share one.
    fn line(&mut self, me: MonId, term: u64, severity: Severity, text: String) -> LogLine {
        if self.said_in != term {
            (self.said_in, self.said) = (term, 0);
        }
        self.said += 1;
        LogLine {
            from: Entity::Mon(me),
            instance: Instance(term),
            number: self.said,
            severity,
            text,
            once: String::new(),
        }
    }

    /// What is wrong with programs, as lines that the log has once. Those that it has already are left out.
    pub fn fault_lines(&mut self, me: MonId, term: u64, log: &ClusterLog, said: Vec<FaultLine>) -> Vec<LogLine> {
        let line = |FaultLine { key, text }| LogLine { once: key, ..self.line(me, term, Severity::Warn {}, text) };
        said.into_iter().map(line).filter(|line| !log.knows(line)).collect()
    }

    /// Says something in the cluster log.
    pub fn say(&mut self, due: Time, me: MonId, term: u64, severity: Severity, text: String) {
        let line = self.line(me, term, severity, text);
        self.push_lines(due, [line]);
    }

    /// Counts a refusal.
    pub fn reject(&mut self, why: &'static str) {
        *self.rejects.entry(why).or_default() += 1;
    }

    /// When there is something to propose: at once, or when programs have rested.
    #[must_use]
    pub fn next_work(&self, now: Time) -> Option<Time> {
        if !self.queue.is_empty() || !self.lines.is_empty() {
            return Some(now);
        }
        self.meta.has_work().then(|| now.max(self.meta_rests_until))
    }

    /// Checks what is queued and takes what can go into one proposal.
    pub fn take_batch(&mut self, view: &View<'_>) -> Taken {
        let mut batch = Batch::default();
        let mut taken = Taken::default();
        let mut said: Vec<(Severity, String)> = Vec::new();
        let mut deferred = VecDeque::new();
        let mut stores = None;
        while let Some(request) = self.queue.pop_front() {
            if batch.changes() >= BATCH_CHANGES_MAX {
                deferred.push_back(request);
                break;
            }
            if !batch.admits(&request.reads()) {
                deferred.push_back(request);
                continue;
            }
            self.subjects.remove(&request.subject());
            let changes = self.evaluate(view, &mut batch, &mut stores, request, &mut taken, &mut said);
            batch.add(changes);
        }
        deferred.append(&mut self.queue);
        self.queue = deferred;
        for (severity, text) in said {
            let line = self.line(view.me, view.term, severity, text);
            taken.lines.push(line);
        }
        while taken.lines.len() < BATCH_LINES_MAX {
            let Some(line) = self.lines.pop_front() else { break };
            if !view.state.log().knows(&line) {
                taken.lines.push(line);
            }
        }
        taken.changes = batch.into_changes(&view.map().crush.text);
        taken
    }

    /// Boots repeat themselves; the log says it once per process.
    fn refuse_boot(
        &mut self,
        origin: Origin,
        boot: &Boot,
        why: String,
        taken: &mut Taken,
        said: &mut Vec<(Severity, String)>,
    ) -> Vec<Change> {
        self.reject("boot_refused");
        let process = (boot.process, boot.store);
        if self.refused.insert(boot.osd, process) != Some(process) {
            said.push((Severity::Error {}, why.clone()));
        }
        taken.refused.push((origin, Refused { why, process: boot.process }));
        Vec::new()
    }

    fn evaluate(
        &mut self,
        view: &View<'_>,
        batch: &mut Batch,
        stores: &mut Option<osds::Stores>,
        request: Request,
        taken: &mut Taken,
        said: &mut Vec<(Severity, String)>,
    ) -> Vec<Change> {
        let map = view.map();
        match request {
            Request::Boot(origin, boot) => {
                match osds::boot(map, stores.get_or_insert_with(|| osds::stores(map)), &boot) {
                    BootVerdict::Up(changes, place) => {
                        place.into_iter().for_each(|place| batch.put(place));
                        self.intruders.remove(&boot.osd);
                        if map.osds.get(&boot.osd).is_some_and(|info| boot.instance > info.instance) {
                            let why = "its store knows a newer instance than the monitors do: were they set back to an older copy?";
                            said.push((Severity::Warn {}, format!("{}: {why}", boot.osd)));
                        }
                        let granted = changes.iter().find_map(|change| match change {
                            Change::OsdUp { instance, .. } => Some(*instance),
                            _ => None,
                        });
                        let instance = granted.expect("who is let up is granted an instance");
                        said.push((Severity::Info {}, format!("{} {instance} is up at {}", boot.osd, boot.address)));
                        changes
                    }
                    // Until the one that is up is known to live, this one may be it, moved.
                    BootVerdict::Occupied(why) => {
                        let first = *self.intruders.entry(boot.osd).or_insert((boot.process, view.awake));
                        let first = if first.0 == boot.process { first.1 } else { view.awake };
                        self.intruders.insert(boot.osd, (boot.process, first));
                        if self.beacons.last_heard(boot.osd).is_some_and(|heard| heard.since(first) >= INTRUDER_WAIT) {
                            return self.refuse_boot(origin, &boot, why, taken, said);
                        }
                        self.reject("boot_occupied");
                        Vec::new()
                    }
                    BootVerdict::Late => {
                        self.reject("boot_late");
                        Vec::new()
                    }
                    BootVerdict::Refused(why) => self.refuse_boot(origin, &boot, why, taken, said),
                }
            }
            Request::Activate(from, request) => self.checked(pgs::activate(map, from, &request)),
            Request::Temporary(from, request) => self.checked(pgs::temporary(map, from, &request)),
            Request::Down(down) => {
                if map.up_osd(down.osd).is_none_or(|info| info.instance != down.instance) {
                    return Vec::new();
                }
                said.push((Severity::Warn {}, format!("{} is down: {}", down.osd, down.why)));
                vec![Change::OsdDown { osd: down.osd, instance: down.instance }]
            }
            Request::TakeOut(osd) => {
                if !osds::to_take_out(view.now, map, view.down_since, view.stats).contains(&osd) {
                    return Vec::new();
                }
                said.push((Severity::Warn {}, format!("{osd} has been down for long: its data is copied elsewhere")));
                vec![Change::OsdWeight { osd, weight: Weight::OUT, automatic: true }]
            }
            Request::PoolFull(pool, full) => {
                let Some(settings) = map.pools.get(&pool) else { return Vec::new() };
                let mut settings = settings.clone();
                if (settings.flags & pool_flag::FULL != 0) == full {
                    return Vec::new();
                }
                settings.flags ^= pool_flag::FULL;
                let text = if full { "is full: writes that need space are refused" } else { "has space again" };
                said.push((Severity::Warn {}, format!("pool {} {text}", settings.name)));
                vec![Change::PoolSet { pool, settings }]
            }
            Request::MonGone(mon) => {
                let leaving = map.mons.get(&mon).is_some_and(|info| info.leaving);
                if !leaving || view.quorum.takes_part(mon) {
                    return Vec::new();
                }
                said.push((Severity::Info {}, format!("{mon} is removed")));
                vec![Change::MonRemove { mon }]
            }
            Request::Command(ask)
                if let Some((epoch, reply)) = view.state.command_done(ask.origin.via, ask.origin.token) =>
            {
                let mut reply: Value = serde_json::from_str(reply).unwrap_or_default();
                set_epoch(&mut reply, epoch);
                self.fresh.push(Unproven::Answer(ask, Ok(reply)));
                Vec::new()
            }
            Request::Command(ask) => match command::run(view, &ask) {
                Ok(Done { reply, changes, lines }) => {
                    said.extend(lines);
                    if changes.is_empty() {
                        self.fresh.push(Unproven::Answer(ask, Ok(reply)));
                    } else {
                        taken.replies.push((ask, reply));
                    }
                    changes
                }
                Err(error) => {
                    self.fresh.push(Unproven::Answer(ask, Err(error)));
                    Vec::new()
                }
            },
        }
    }

    fn checked(&mut self, verdict: Result<Change, pgs::PgReject>) -> Vec<Change> {
        match verdict {
            Ok(change) => vec![change],
            Err(why) => {
                self.reject(why.name());
                Vec::new()
            }
        }
    }

    /// The map changed.
    pub fn on_map(&mut self, awake: Time, state: &State, changes: &[Change]) {
        let map = state.map();
        for change in changes {
            if let Change::OsdUp { osd, .. } = change {
                self.filter.on_up(awake, *osd);
                self.refused.remove(osd);
                self.intruders.remove(osd);
            }
        }
        if changes.iter().any(|change| !matches!(change, Change::PgActivate { .. } | Change::PgTemporary { .. })) {
            self.filter.on_map(map);
            self.stats.on_map(map);
        }
    }

    /// Says once, each time it begins, that so much is lost that nothing is taken out.
    pub fn mass_failure_line(&mut self, map: &ClusterMap) -> Option<String> {
        let lost = osds::mass_failure(map);
        let begins = lost && !self.told_mass_failure;
        self.told_mass_failure = lost;
        begins.then(|| {
            "so many OSDs are down that they probably have one cause: none is taken out, no data moves. Bring them back, or take \
             them out with `osd out`"
                .to_owned()
        })
    }

    /// Leadership is over: who asked asks the next leader. The proposal on its way stays until its fate is known.
    pub fn abdicate(&mut self) {
        self.subjects.clear();
        self.lines.clear();
        self.queue.clear();
        self.propose_at = None;
        self.fresh.clear();
        self.waiting.clear();
        self.confirmed.clear();
        self.filter = FailureFilter::default();
        self.beacons = Beacons::default();
        // Figures of before would clear flags before anybody has said how full it is now.
        self.stats = Stats::default();
        self.meta.abdicate();
    }
}
