//! Duties of the leader alone: gathers requests, checks them, proposes, answers.
//!
//! ```text
//!  request ──▶ queue ──take_batch──▶ Batch + replies ──propose──▶ InFlight ──applied here──▶ replies out
//!                 ▲                                                  │
//!                 └─────────── its index went to another leader ─────┘
//!  read-only command ───▶ fresh ──read-index──▶ waiting ──majority confirmed──▶ evaluated ──▶ reply
//!  command refused or with nothing to do ──▶ fresh, with its answer: not even a refusal may come from a deposed leader
//! ```
//! All state here is soft: it ends with the leadership, and requests are resent
//! ([`crate::router`]).

use nacre_types::{Entity, Epoch, Instance, MonId, OsdId, PgId, PoolId, Time};
use nacre_wire::map::{Change, ClusterMap, Weight, pool_flag};
use nacre_wire::msg::monitor::{
    Boot, LogLine, PgActivateRequest, PgTemporaryRequest, Refused, Severity,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::batch::{Batch, Part, Reads};
use crate::beacons::Beacons;
use crate::command::{self, Done, View};
use crate::failure::{Down, FailureFilter};
use crate::meta::MetaAsk;
use crate::meta::lead::MetaLead;
use crate::meta::programs::FaultLine;
use crate::osds::{self, BootVerdict};
use crate::pgs;
use crate::router::Origin;
use crate::state::State;
use crate::state::cluster_log::{ClusterLog, cut_line};
use crate::state::meta::Meta;
use crate::stats::Stats;

/// Maximum length of the queue; beyond, requests that will be resent are dropped.
const QUEUE_MAX: usize = 20_000;
/// Maximum number of changes per proposal.
const BATCH_CHANGES_MAX: usize = 2_000;
/// An OSD heard from this long after another process asked for its place is running: no message of
/// a dead one is in flight for longer.
const INTRUDER_WAIT: Duration = Duration::from_secs(2);
/// Maximum number of log lines per proposal.
const BATCH_LINES_MAX: usize = 200;
/// Maximum bytes of their texts: a small part of a proposal's limit.
const BATCH_LINES_BYTES_MAX: usize = 128 << 10;

/// Answer to a resent command that may be among those that were executed and forgotten.
const FORGOTTEN: &str = "so many commands came meanwhile that the monitors do not know any more whether this one was \
     carried out: look, then repeat it";

/// State computed once for several requests of one proposal.
#[derive(Default)]
struct Known {
    stores: Option<osds::Stores>,
    /// OSDs that should be taken out.
    outs: Option<BTreeSet<OsdId>>,
}

fn unnumbered(me: MonId, term: u64, severity: Severity, text: String) -> LogLine {
    let (from, instance, once) = (Entity::Mon(me), Instance(term), String::new());
    LogLine {
        from,
        instance,
        number: 0,
        severity,
        text,
        once,
    }
}

/// A command and the recipient of its answer.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The recipient.
    pub origin: Origin,
    /// The command.
    pub command: nacre_command::Command,
}

/// An answer.
pub type Answer = Result<Value, String>;

/// Something to be checked and proposed.
#[derive(Clone, Debug)]
pub enum Request {
    /// An OSD has started.
    Boot(Origin, Boot),
    /// A primary peered.
    Activate(Entity, PgActivateRequest),
    /// A primary asks for a temporary acting set.
    Temporary(Entity, PgTemporaryRequest),
    /// The failure filter's verdict.
    Down(Down),
    /// An OSD has been down for too long.
    TakeOut(OsdId),
    /// A pool has become full, or is no longer full.
    PoolFull(PoolId, bool),
    /// A monitor that was to leave has left consensus.
    MonGone(MonId),
    /// A command that changes something.
    Command(Ask),
}

/// The subject of a request; only the newest request of a kind about a subject is queued.
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
                vec![
                    Part::Osd(boot.osd),
                    Part::Store(boot.store),
                    Part::Fence(Entity::Osd(boot.osd)),
                    Part::Features,
                ]
            }
            Self::Activate(_, request) => {
                let osds = request.members.iter().map(|osd| Part::Osd(*osd));
                osds.chain([Part::Pg(request.pg), Part::Pool(request.pg.pool)])
                    .collect()
            }
            Self::Temporary(_, request) => {
                let osds = request.acting.iter().map(|osd| Part::Osd(*osd));
                osds.chain([Part::Pg(request.pg), Part::Pool(request.pg.pool)])
                    .collect()
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

/// A proposal in flight.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// Its index in the log.
    pub index: u64,
    /// The term it was proposed in.
    pub term: u64,
    /// Commands that wait for it, with their replies.
    pub replies: Vec<(Ask, Value)>,
    /// The request that waits for each metadata entry; `None` for the leader's own.
    pub meta: Vec<Option<MetaAsk>>,
}

/// The contents of a batch.
#[derive(Debug, Default)]
pub struct Taken {
    /// For the proposal.
    pub changes: Vec<Change>,
    /// For the proposal.
    pub lines: Vec<LogLine>,
    /// To be sent when it is applied.
    pub replies: Vec<(Ask, Value)>,
    /// To be sent to OSDs now: they must not come up.
    pub refused: Vec<(Origin, Refused)>,
}

/// A request or an answer that waits for the proof that this monitor still leads (read index).
#[derive(Clone, Debug)]
pub enum PendingRead {
    /// To be evaluated then.
    Question(Ask),
    /// To be sent then.
    Answer(Ask, Answer),
    /// A metadata request that changes nothing.
    Meta(MetaAsk),
}

/// Sets the epoch that contains a command's change.
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
    /// When the next batch is due; `None` when no request waits.
    pub propose_at: Option<Time>,
    /// The proposal in flight.
    pub in_flight: Option<InFlight>,
    /// Requests without a read index so far.
    pub fresh: Vec<PendingRead>,
    /// Requests that wait for the confirmation of their read index, by context.
    pub waiting: BTreeMap<u64, Vec<PendingRead>>,
    /// Confirmed; waits until this index is applied.
    pub confirmed: Vec<(u64, Vec<PendingRead>)>,
    /// Reports about OSDs.
    pub filter: FailureFilter,
    /// Times of OSDs' beacons.
    pub beacons: Beacons,
    /// Statistics reported by OSDs.
    pub stats: Stats,
    /// Service metadata.
    pub meta: MetaLead,
    /// Metadata programs have used up their time: until then, everything else goes first.
    pub meta_rests_until: Time,
    /// Refusals by reason.
    pub rejects: BTreeMap<&'static str, u64>,
    said: u64,
    said_in: u64,
    refused: BTreeMap<OsdId, (u64, u128)>,
    /// Processes that claim the ids of other OSDs, and since when.
    intruders: BTreeMap<OsdId, (u64, Time)>,
    told_mass_failure: bool,
}

impl Leader {
    /// Queues a request; it replaces an older one about the same subject.
    pub fn push(&mut self, due: Time, request: Request) {
        let subject = request.subject();
        if self.subjects.contains(&subject) {
            let at = self
                .queue
                .iter()
                .position(|queued| queued.subject() == subject);
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

    /// Whether a command is in the proposal in flight (in the queue, the newer replaces the older).
    #[must_use]
    pub fn is_on_its_way(&self, origin: Origin) -> bool {
        self.in_flight
            .as_ref()
            .is_some_and(|flight| flight.replies.iter().any(|(ask, _)| ask.origin == origin))
    }

    /// Queues lines for the cluster log.
    pub fn push_lines(&mut self, due: Time, lines: impl IntoIterator<Item = LogLine>) {
        for mut line in lines {
            if self.lines.len() >= 10 * BATCH_LINES_MAX {
                self.reject("log_lines");
                return;
            }
            cut_line(&mut line);
            self.lines.push_back(line);
            self.propose_at.get_or_insert(due);
        }
    }

    /// Numbers a line of this monitor. Lines are numbered within a term: two leaders never share
    /// one.
    fn numbered(&mut self, mut line: LogLine) -> LogLine {
        if self.said_in != line.instance.0 {
            (self.said_in, self.said) = (line.instance.0, 0);
        }
        self.said += 1;
        line.number = self.said;
        cut_line(&mut line);
        line
    }

    /// Takes queued lines that are not in the log. Our own are numbered here, so that their order
    /// is the log's: the log takes a lower number after a higher one for a repetition.
    fn take_lines(&mut self, me: MonId, log: &ClusterLog, lines: &mut Vec<LogLine>) {
        let mut bytes = 0;
        while lines.len() < BATCH_LINES_MAX && bytes < BATCH_LINES_BYTES_MAX {
            let Some(mut line) = self.lines.pop_front() else {
                break;
            };
            if line.from == Entity::Mon(me) {
                line = self.numbered(line);
            }
            if !log.knows(&line) {
                bytes += line.text.len() + line.once.len();
                lines.push(line);
            }
        }
    }

    /// Faults of programs, as lines that the log holds only once. Those already in the log are left
    /// out.
    pub fn fault_lines(
        &mut self,
        me: MonId,
        term: u64,
        log: &ClusterLog,
        said: Vec<FaultLine>,
    ) -> Vec<LogLine> {
        let line = |FaultLine { key, text }| {
            self.numbered(LogLine {
                once: key,
                ..unnumbered(me, term, Severity::Warn {}, text)
            })
        };
        said.into_iter()
            .map(line)
            .filter(|line| !log.knows(line))
            .collect()
    }

    /// Queues a line for the cluster log.
    pub fn say(&mut self, due: Time, me: MonId, term: u64, severity: Severity, text: String) {
        self.push_lines(due, [unnumbered(me, term, severity, text)]);
    }

    /// Counts a refusal.
    pub fn reject(&mut self, why: &'static str) {
        *self.rejects.entry(why).or_default() += 1;
    }

    /// When there is something to propose: at once, or after the pause of programs.
    #[must_use]
    pub fn next_work(&self, now: Time) -> Option<Time> {
        if !self.queue.is_empty() || !self.lines.is_empty() {
            return Some(now);
        }
        self.meta.has_work().then(|| now.max(self.meta_rests_until))
    }

    /// Checks queued requests and takes those that fit into one proposal.
    pub fn take_batch(&mut self, view: &View<'_>) -> Taken {
        let mut batch = Batch::default();
        let mut taken = Taken::default();
        let mut said: Vec<(Severity, String)> = Vec::new();
        let mut deferred = VecDeque::new();
        let mut known = Known::default();
        // Before the lines about these requests: the leader's earlier lines have lower numbers.
        self.take_lines(view.me, view.state.log(), &mut taken.lines);
        while let Some(request) = self.queue.pop_front() {
            // A refused boot changes nothing, but adds a log line.
            if batch.changes() >= BATCH_CHANGES_MAX || said.len() >= BATCH_LINES_MAX {
                deferred.push_back(request);
                break;
            }
            if !batch.admits(&request.reads()) {
                deferred.push_back(request);
                continue;
            }
            self.subjects.remove(&request.subject());
            let changes =
                self.evaluate(view, &mut batch, &mut known, request, &mut taken, &mut said);
            batch.add(changes);
        }
        deferred.append(&mut self.queue);
        self.queue = deferred;
        for (severity, text) in said {
            taken
                .lines
                .push(self.numbered(unnumbered(view.me, view.term, severity, text)));
        }
        taken.changes = batch.into_changes(&view.map().crush.text);
        taken
    }

    /// Boots are resent; the log mentions the refusal once per process.
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
        taken.refused.push((
            origin,
            Refused {
                why,
                process: boot.process,
            },
        ));
        Vec::new()
    }

    fn evaluate(
        &mut self,
        view: &View<'_>,
        batch: &mut Batch,
        known: &mut Known,
        request: Request,
        taken: &mut Taken,
        said: &mut Vec<(Severity, String)>,
    ) -> Vec<Change> {
        let map = view.map();
        match request {
            Request::Boot(origin, boot) => {
                match osds::boot(
                    map,
                    known.stores.get_or_insert_with(|| osds::stores(map)),
                    &boot,
                ) {
                    BootVerdict::Up(changes, place) => {
                        place.into_iter().for_each(|place| batch.put(place));
                        self.intruders.remove(&boot.osd);
                        if map
                            .osds
                            .get(&boot.osd)
                            .is_some_and(|info| boot.instance > info.instance)
                        {
                            let why = "its store knows a newer instance than the monitors do: were they set back to an older copy?";
                            said.push((Severity::Warn {}, format!("{}: {why}", boot.osd)));
                        }
                        let granted = changes.iter().find_map(|change| match change {
                            Change::OsdUp { instance, .. } => Some(*instance),
                            _ => None,
                        });
                        let instance = granted.expect("who is let up is granted an instance");
                        said.push((
                            Severity::Info {},
                            format!("{} {instance} is up at {}", boot.osd, boot.address),
                        ));
                        changes
                    }
                    // Until the up instance is known to run, this process may be the same OSD,
                    // moved.
                    BootVerdict::Occupied(why) => {
                        let first = *self
                            .intruders
                            .entry(boot.osd)
                            .or_insert((boot.process, view.awake));
                        let first = if first.0 == boot.process {
                            first.1
                        } else {
                            view.awake
                        };
                        self.intruders.insert(boot.osd, (boot.process, first));
                        if self
                            .beacons
                            .last_heard(boot.osd)
                            .is_some_and(|heard| heard.since(first) >= INTRUDER_WAIT)
                        {
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
                if map
                    .up_osd(down.osd)
                    .is_none_or(|info| info.instance != down.instance)
                {
                    return Vec::new();
                }
                said.push((
                    Severity::Warn {},
                    format!("{} is down: {}", down.osd, down.why),
                ));
                vec![Change::OsdDown {
                    osd: down.osd,
                    instance: down.instance,
                }]
            }
            Request::TakeOut(osd) => {
                let outs = known.outs.get_or_insert_with(|| {
                    osds::to_take_out(view.now, map, view.outages, view.stats)
                        .into_iter()
                        .collect()
                });
                if !outs.contains(&osd) {
                    return Vec::new();
                }
                said.push((
                    Severity::Warn {},
                    format!("{osd} has been down for long: its data is copied elsewhere"),
                ));
                vec![Change::OsdWeight {
                    osd,
                    weight: Weight::OUT,
                    automatic: true,
                }]
            }
            Request::PoolFull(pool, full) => {
                let Some(settings) = map.pools.get(&pool) else {
                    return Vec::new();
                };
                let mut settings = settings.clone();
                if (settings.flags & pool_flag::FULL != 0) == full {
                    return Vec::new();
                }
                settings.flags ^= pool_flag::FULL;
                let text = if full {
                    "is full: writes that need space are refused"
                } else {
                    "has space again"
                };
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
                if let Some((epoch, reply)) =
                    view.state.command_done(ask.origin.via, ask.origin.token) =>
            {
                let mut reply: Value = serde_json::from_str(reply).unwrap_or_default();
                set_epoch(&mut reply, epoch);
                self.fresh.push(PendingRead::Answer(ask, Ok(reply)));
                Vec::new()
            }
            Request::Command(ask)
                if view
                    .state
                    .may_be_forgotten(ask.origin.via, ask.origin.token) =>
            {
                self.reject("command_forgotten");
                self.fresh
                    .push(PendingRead::Answer(ask, Err(FORGOTTEN.to_owned())));
                Vec::new()
            }
            Request::Command(ask) => match command::run(view, &ask.command) {
                Ok(Done {
                    reply,
                    changes,
                    lines,
                }) => {
                    said.extend(lines);
                    if changes.is_empty() {
                        self.fresh.push(PendingRead::Answer(ask, Ok(reply)));
                    } else {
                        taken.replies.push((ask, reply));
                    }
                    changes
                }
                Err(error) => {
                    self.fresh.push(PendingRead::Answer(ask, Err(error)));
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
        if changes.iter().any(|change| {
            !matches!(
                change,
                Change::PgActivate { .. } | Change::PgTemporary { .. }
            )
        }) {
            self.filter.on_map(map);
            self.stats.on_map(map);
        }
    }

    /// Returns a line, once for each mass failure, that so much is lost that nothing is taken out.
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

    /// Leadership has ended: requests are resent to the next leader. The proposal in flight stays
    /// until its fate is known.
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
        // Old figures would clear flags before the OSDs have reported their current usage.
        self.stats = Stats::default();
        // Claims are judged by the beacons of one leadership.
        self.intruders.clear();
        self.refused.clear();
        self.told_mass_failure = false;
        self.meta.abdicate();
    }

    /// Asserts the invariants between two steps: a monitor that does not lead keeps no state of an
    /// earlier leadership (its next leadership would use it), and no state refers to removed items.
    pub fn check(&self, leads: bool, meta: &Meta) {
        assert_eq!(
            self.subjects.len(),
            self.queue.len(),
            "what is queued is known by its subject"
        );
        self.meta.check(meta);
        if leads {
            return;
        }
        assert!(
            self.queue.is_empty() && self.lines.is_empty(),
            "{:?} {:?} wait for nobody",
            self.queue,
            self.lines
        );
        assert!(
            self.intruders.is_empty() && self.refused.is_empty() && !self.told_mass_failure,
            "of a former term"
        );
        let pending = (&self.fresh, &self.waiting, &self.confirmed);
        assert!(
            self.fresh.is_empty() && self.waiting.is_empty() && self.confirmed.is_empty(),
            "{pending:?}"
        );
        assert!(
            self.filter.is_blank(),
            "reports of a former term: {:?}",
            self.filter
        );
        assert!(
            self.beacons.is_blank(),
            "beacons of a former term: {:?}",
            self.beacons
        );
        assert!(
            self.stats.is_blank(),
            "figures of a former term: {:?}",
            self.stats
        );
        assert!(
            self.meta.is_blank(),
            "metadata's work of a former term: {:?}",
            self.meta
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Quorum;
    use crate::meta::overruns::Overruns;
    use crate::state::CommandDone;
    use crate::testing::{map_with_osds, with_pool};
    use nacre_types::ClientId;
    use nacre_wire::codec::Wire as _;
    use nacre_wire::map::{Address, MonInfo, flag};
    use serde_json::json;

    /// Four OSDs that are up and one that is down, a pool of four PGs with a snapshot, a monitor
    /// that is to leave.
    fn scene() -> State {
        let mut map = with_pool(map_with_osds(5), 4);
        let down = Change::OsdDown {
            osd: OsdId(4),
            instance: map.osds[&OsdId(4)].instance,
        };
        let mon = |leaving, mon| Change::MonSet {
            mon: MonId(mon),
            info: MonInfo {
                address: Address(format!("m{mon}:1")),
                store: 0,
                leaving,
            },
        };
        let snap = Change::SnapCreate {
            pool: PoolId(1),
            snap: nacre_types::SnapId(1),
            name: "first".into(),
        };
        for changes in [
            vec![down],
            vec![mon(false, 0), mon(false, 1), mon(true, 2)],
            vec![snap],
        ] {
            let delta = map.delta(changes);
            map.apply(&delta).expect("applies");
        }
        State::new(map)
    }

    fn take(leader: &mut Leader, state: &State) -> Taken {
        let (rejects, overruns, nobody, none) = Default::default();
        let outages = BTreeMap::from([(OsdId(4), osds::Outage::now(Time(0)))]);
        let quorum = Quorum {
            voters: vec![MonId(0), MonId(1)],
            reachable: vec![MonId(0), MonId(1)],
            ..Quorum::default()
        };
        let overruns: Overruns = overruns;
        leader.take_batch(&View {
            now: Time(0) + Duration::from_secs(100_000),
            awake: Time(1),
            me: MonId(0),
            term: 1,
            state,
            stats: &Stats::default(),
            suspects: &nobody,
            parted: &none,
            held: Vec::new(),
            silent: Vec::new(),
            rejects: &rejects,
            outages: &outages,
            overruns: &overruns,
            ranks: &crate::ranks::Ranks::default(),
            quorum,
            clock: None,
        })
    }

    /// Possible requests of OSDs, this monitor itself and operators.
    fn requests(state: &State) -> Vec<Request> {
        let map = state.map();
        let mut list = Vec::new();
        for (pg, record) in &map.pgs {
            let (from, interval) = (Entity::Osd(record.acting[0]), record.since);
            let request = PgActivateRequest {
                pg: *pg,
                interval,
                members: record.acting.clone(),
            };
            list.push(Request::Activate(from, request.clone()));
            let members = request.members[..2].to_vec();
            list.push(Request::Activate(
                from,
                PgActivateRequest { members, ..request },
            ));
            let acting = record.acting.iter().rev().copied().collect();
            list.push(Request::Temporary(
                from,
                PgTemporaryRequest {
                    pg: *pg,
                    interval,
                    acting,
                },
            ));
        }
        for (osd, store) in [(4, 1_004), (5, 77), (6, 77)] {
            let boot = Boot {
                osd: OsdId(osd),
                instance: map
                    .osds
                    .get(&OsdId(osd))
                    .map_or(Instance(0), |info| info.instance),
                address: Address(format!("o{osd}:1")),
                store,
                features: 0,
                class: "ssd".into(),
                capacity: 1 << 40,
                host: format!("host{osd}"),
                process: 9,
            };
            let origin = Origin {
                via: MonId(0),
                token: u64::from(osd),
                from: Entity::Osd(OsdId(osd)),
            };
            list.push(Request::Boot(origin, boot));
        }
        for osd in [0, 1] {
            let instance = map.osds[&OsdId(osd)].instance;
            list.push(Request::Down(Down {
                osd: OsdId(osd),
                instance,
                why: String::new(),
                silent: false,
                parted: false,
            }));
        }
        list.extend([
            Request::TakeOut(OsdId(4)),
            Request::PoolFull(PoolId(1), true),
            Request::MonGone(MonId(2)),
        ]);
        let commands = [
            json!({"command": "osd down", "osd": 0}),
            json!({"command": "osd out", "osd": 0}),
            json!({"command": "osd out", "osd": 4}),
            json!({"command": "osd rm", "osd": 4, "force": true}),
            json!({"command": "osd reweight", "osd": 4, "weight": 0.5}),
            json!({"command": "pool create", "name": "more", "pg_num": 2}),
            json!({"command": "pool rm", "name": "data", "yes_i_really_mean_it": true}),
            json!({"command": "pool set", "name": "data", "key": "size", "value": 2}),
            json!({"command": "pool set", "name": "data", "key": "min_size", "value": 3}),
            json!({"command": "pool set", "name": "data", "key": "pg_num", "value": 8}),
            json!({"command": "pool snap create", "pool": "data", "snap": "second"}),
            json!({"command": "pool snap rm", "pool": "data", "snap": "first"}),
            json!({"command": "flag set", "flag": "noout"}),
            json!({"command": "config set", "key": "mon.down_out_interval_s", "value": 900_000}),
            json!({"command": "mon rm", "id": 1}),
            json!({"command": "mon add", "id": 3, "address": "m3:1", "store": "9"}),
        ];
        for (token, command) in (100..).zip(commands) {
            let command = nacre_command::Command::parse(&command.to_string()).expect("a command");
            let origin = Origin {
                via: MonId(0),
                token,
                from: Entity::Client(ClientId(1)),
            };
            list.push(Request::Command(Ask { origin, command }));
        }
        list
    }

    /// A leader's earlier lines, in its queue, had lower numbers than its lines about requests of
    /// the same proposal, and came after them: the log took them for repetitions, and they were
    /// lost.
    #[test]
    fn what_is_said_about_requests_does_not_cost_what_was_said_before() {
        let state = scene();
        let mut leader = Leader::default();
        let mut said: Vec<String> = (0..BATCH_LINES_MAX + 50)
            .map(|n| format!("line {n}"))
            .collect();
        for text in &said {
            leader.say(Time(1), MonId(0), 1, Severity::Info {}, text.clone());
        }
        let mut log = crate::state::cluster_log::ClusterLog::default();
        for osd in [0, 1] {
            let instance = state.map().osds[&OsdId(osd)].instance;
            let down = Down {
                osd: OsdId(osd),
                instance,
                why: "gone".into(),
                silent: false,
                parted: false,
            };
            leader.push(Time(1), Request::Down(down));
            log.append(take(&mut leader, &state).lines, 0);
            said.push(format!("osd.{osd} is down: gone"));
        }
        let mut kept: Vec<String> = log.lines().map(|kept| kept.line.text.clone()).collect();
        kept.sort();
        said.sort();
        assert_eq!(kept, said);
    }

    /// (A reviewer's concern.) A command waits behind a slow proposal, and its monitor resends it:
    /// the new one replaces the old one in the queue. A test with real monitors is in
    /// `tests/faults.rs`.
    #[test]
    fn a_command_that_is_asked_again_while_it_waits_is_taken_once() {
        let state = scene();
        let mut leader = Leader::default();
        let commands = requests(&state)
            .into_iter()
            .filter(|request| matches!(request, Request::Command(_)));
        let create = commands.clone().nth(5).expect("`pool create`");
        for request in [
            create.clone(),
            commands.clone().next().expect("another"),
            create,
        ] {
            leader.push(Time(1), request);
        }
        let mut made = 0;
        while !leader.queue.is_empty() {
            let changes = take(&mut leader, &state).changes;
            made += changes
                .iter()
                .filter(|change| matches!(change, Change::PoolSet { .. }))
                .count();
        }
        assert_eq!(made, 1);
    }

    /// In the second after which a monitor resends, a leader executes hundreds of commands, and a
    /// thousand are remembered: a command that was executed and forgotten was executed again.
    #[test]
    fn a_command_that_may_be_forgotten_is_not_carried_out() {
        let mut state = scene();
        for token in 0..=crate::state::COMMANDS_MAX as u64 {
            let proposal = crate::state::Proposal {
                base: state.map().epoch,
                changes: vec![Change::Flags { flags: 0 }],
                lines: Vec::new(),
                clean_to: Epoch::NONE,
                commands: vec![CommandDone {
                    via: MonId(0),
                    token,
                    reply: "{}".to_owned(),
                }],
                unix_ms: 0,
                meta: Vec::new(),
            };
            state.apply(&proposal.to_bytes()).expect("applies");
        }
        for (token, again) in [(0, true), (1_000_000, false)] {
            let command = nacre_command::Command::FlagSet {
                flag: nacre_command::Flag::Noout,
            };
            let origin = Origin {
                via: MonId(0),
                token,
                from: Entity::Client(ClientId(1)),
            };
            let mut leader = Leader::default();
            leader.push(Time(1), Request::Command(Ask { origin, command }));
            assert_eq!(take(&mut leader, &state).changes.is_empty(), again);
            let refused =
                matches!(&leader.fresh[..], [PendingRead::Answer(_, Err(why))] if why == FORGOTTEN);
            assert_eq!(refused, again);
        }
    }

    /// Refused boots change nothing, so no limit on changes ended their proposal: thousands of
    /// lines made it too long, and everything else in it was dropped.
    #[test]
    fn what_is_said_in_a_proposal_is_bounded() {
        let state = scene();
        let mut leader = Leader::default();
        let long = LogLine {
            text: "x".repeat(1 << 20),
            once: "y".repeat(1 << 20),
            ..unnumbered(MonId(7), 1, Severity::Info {}, String::new())
        };
        leader.push_lines(
            Time(1),
            (1..300).map(|number| LogLine {
                number,
                ..long.clone()
            }),
        );
        for process in 0..2000 {
            let Request::Boot(origin, boot) = requests(&state)
                .into_iter()
                .find(|r| matches!(r, Request::Boot(..)))
                .expect("one")
            else {
                unreachable!()
            };
            let boot = Boot {
                process,
                osd: OsdId(100 + process as u32),
                store: 77,
                ..boot
            };
            leader.push(
                Time(1),
                Request::Boot(
                    Origin {
                        token: process,
                        ..origin
                    },
                    boot,
                ),
            );
        }
        let mut rounds = 0;
        while !leader.queue.is_empty() || !leader.lines.is_empty() {
            let taken = take(&mut leader, &state);
            let bytes: usize = taken
                .lines
                .iter()
                .map(|line| line.text.len() + line.once.len() + 64)
                .sum();
            assert!(
                bytes < 700_000,
                "{bytes} bytes of {} lines",
                taken.lines.len()
            );
            rounds += 1;
            assert!(rounds < 2000, "{} requests wait", leader.queue.len());
        }
    }

    /// Two OSDs with copies of one store booted at once and both came up; an OSD was taken out in
    /// the very batch in which an operator forbade it. For every two requests of all kinds, in both
    /// orders, in one batch if possible: the batch applies, both have been executed or refused when
    /// the queue is empty, and the first one's effect holds for the second.
    #[test]
    fn what_a_batch_takes_together_applies_together() {
        let scene = scene();
        let requests = requests(&scene);
        let (mut together, mut taken_out) = (0, 0);
        for first in &requests {
            for second in &requests {
                if first.subject() == second.subject() {
                    continue;
                }
                // The second is judged on the result of the first.
                let mut alone = Leader::default();
                alone.push(Time(1), first.clone());
                let mut serial = scene.map().clone();
                let delta = serial.delta(take(&mut alone, &scene).changes);
                if !delta.changes.is_empty() {
                    serial.apply(&delta).expect("one alone applies");
                }
                let (mut leader, mut state, mut batches) = (Leader::default(), scene.clone(), 0);
                leader.push(Time(1), first.clone());
                leader.push(Time(1), second.clone());
                while !leader.queue.is_empty() {
                    let taken = take(&mut leader, &state);
                    let mut map = state.map().clone();
                    let delta = map.delta(taken.changes.clone());
                    let applied = if taken.changes.is_empty() {
                        Ok(())
                    } else {
                        map.apply(&delta)
                    };
                    assert!(
                        applied.is_ok(),
                        "{first:?}, {second:?}: {applied:?} of {:?}",
                        taken.changes
                    );
                    map.check();
                    assert_eq!(leader.subjects.len(), leader.queue.len());
                    together += usize::from(batches == 0 && taken.changes.len() > 1);
                    batches += 1;
                    assert!(batches <= 2, "{first:?}, {second:?}: not taken");
                    state = State::new(map);
                }
                // An activation of an interval that ends in the same epoch is void.
                if let Request::Activate(from, request) = second
                    && serial
                        .pgs
                        .get(&request.pg)
                        .is_some_and(|record| record.since == request.interval)
                    && pgs::activate(&serial, *from, request).is_err()
                {
                    let of = |map: &ClusterMap| {
                        map.pgs
                            .get(&request.pg)
                            .map(|record| record.activated.clone())
                    };
                    assert_eq!(
                        of(state.map()),
                        of(&serial),
                        "{first:?}, {second:?}: activated all the same"
                    );
                }
                let (map, mut stores) = (state.map(), BTreeSet::new());
                assert!(
                    map.osds.values().all(|info| stores.insert(info.store)),
                    "one store of two: {first:?}, {second:?}"
                );
                let out = matches!(second, Request::TakeOut(osd) if map.osds.get(osd).is_some_and(|i| i.weight == Weight::OUT));
                let may = serial.flags & flag::NO_OUT == 0;
                assert!(may || !out, "{second:?} although that was forbidden first");
                taken_out += usize::from(out);
            }
        }
        assert!(
            together > 100 && taken_out > 10,
            "{taken_out} taken out, {together} of {} pairs",
            requests.len() * requests.len()
        );
    }
}
