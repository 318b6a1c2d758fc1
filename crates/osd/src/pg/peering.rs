//! Peering: a new interval finds out what is true before it serves (CEPH-52; DESIGN §3, Peering).
//!
//! ```text
//!  GetInfo     ask everyone who may know: the last activated interval's members, acting, up
//!  GetLog      fetch the authoritative log, unless ours is it
//!  Adopting    everyone who serves or is backfilled makes it theirs, durably
//!  Activating  the prior primary's read leases run out, then the monitors commit that this interval may serve (or: Peered, too few members; recovery goes on all the same)
//!  Active      serves
//!
//!  Down        no member of the last activated interval is up and complete: wait for the map
//!  Remap       the acting set should be another one: ask the monitors, wait for the map
//! ```
//! Whom to believe: a write is answered when every acting member of an *activated* interval has it.
//! So each member of the last activated interval has every answered write, and no one else is sure
//! to. Among them the highest head wins: what it has beyond the others was never answered, and
//! keeping it is allowed. Nobody who answers us will acknowledge an older interval again, so
//! nothing can be answered behind our back.

use super::answered::Answers;
use super::cover::full_last;
use super::local::{Local, Ops};
use super::log::{PgLog, common, follows_from};
use super::object::Objects;
use super::update::InFlight;
use super::{ByObject, Interval, Lead};
use crate::awaited::Awaited;
use crate::shared::Shared;
use crate::{Mutant, key, mutant};
use bytes::Bytes;
use nacre_role::Output;
use nacre_types::{Instance, OsdId, Time, Version};
use nacre_wire::msg::monitor::{PgActivateRequest, PgTemporaryRequest, Severity, pg_state};
use nacre_wire::msg::replication::{
    Adopt, AdoptAck, LogQuery, LogReply, Missing, PeerInfo, PeerQuery, PgInfo, Undone,
};
use nacre_wire::{Message, Record};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// See the module head.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// Waits for [`PeerInfo`] of these; ends when all have answered or are down.
    GetInfo(BTreeSet<OsdId>),
    /// Waits for this member's log.
    GetLog(OsdId),
    /// Waits until the monitors change the acting set to this one.
    Remap(Vec<OsdId>),
    /// Waits until one of these is up.
    Down(Vec<OsdId>),
    /// Waits for our own log to be durable (`self_done`) and for the others' [`AdoptAck`].
    Adopting {
        /// Ours is.
        self_done: bool,
        /// Theirs are not yet.
        waiting: BTreeSet<OsdId>,
    },
    /// Waits for the monitors to commit the activation.
    Activating,
    /// Too few members to serve; recovery and backfill go on.
    Peered,
    /// Serves.
    Active,
}

/// What the primary knows of another member that gets updates.
#[derive(Clone, Debug, Default)]
pub struct PeerState {
    /// What its log has and its store has not.
    pub missing: ByObject<Missing>,
    /// Copies of these that have undone updates on them.
    pub undone: ByObject<Undone>,
    /// Its cursor, if it is being backfilled.
    pub backfill: Option<Bytes>,
    /// Its log is durable up to here.
    pub acked: Version,
    /// It said that it has applied everything up to here; it says so only when asked.
    pub applied: Version,
    /// When `acked` last moved, or something was done about it.
    pub moved: Time,
    /// It is being sent again what it has lost, up to here; nothing is pushed before it has that.
    pub catching: Option<Version>,
}

impl PeerState {
    /// It is sent an entry of the log without data: recovery brings the object, backfill what lies
    /// beyond the cursor.
    pub(super) fn gets_without_data(&mut self, entry: &Record) {
        let object = entry.object().clone();
        if entry.deleted() || !key::is_before(&object, self.backfill.as_ref()) {
            self.missing.swap_remove(&object);
        } else {
            let missing = Missing {
                object: object.clone(),
                need: entry.version(),
                have: Version::NONE,
            };
            self.missing.insert(object, missing);
        }
    }
}

/// The state of an interval's primary.
#[derive(Debug)]
pub struct Primary {
    /// How far peering is.
    pub phase: Phase,
    /// What our log had when the interval began is durable.
    durable: bool,
    /// Everyone's answer.
    pub infos: BTreeMap<OsdId, PgInfo>,
    /// In which life each gave it.
    lives: BTreeMap<OsdId, Instance>,
    /// Logged bytes that members' stores take in one transaction, of those who said so.
    logged_max: BTreeMap<OsdId, u64>,
    /// The spans of the authoritative log, as they were when it was judged who follows by it.
    truth: Vec<Version>,
    /// Members that get updates.
    pub peers: BTreeMap<OsdId, PeerState>,
    /// Not before: the prior primary may still be answering reads.
    pub serve_after: Time,
    /// Updates not yet durable everywhere.
    pub in_flight: VecDeque<InFlight>,
    /// Our own log is durable up to here.
    pub logged: Version,
    /// Our own log is applied in memory up to here.
    pub applied: Version,
    /// Everything up to here is durable on the whole acting set.
    pub committed: Version,
    /// Objects with operations in hand, and a cache of others.
    pub objects: Objects,
    /// What recovery is doing.
    pub recovery: super::recovery::Recovery,
    /// How much the group holds, if its log only estimates that.
    pub counting: super::count::Counting,
    /// Copies that cannot be read.
    pub damage: super::repair::Damage,
    /// What backfill is doing.
    pub backfill: super::backfill::Backfill,
    /// Operations that changed nothing in this interval, in case they arrive twice.
    pub answered: Answers,
    /// Clones that go.
    pub trimming: super::trim::Trimming,
    /// Watchers, and notifies that wait for them.
    pub watching: super::watch::Watching,
    /// When what is unanswered is repeated next.
    pub retry_at: Time,
    /// Operations that found no room here.
    pub turned_away: crate::turned_away::TurnedAway,
    /// The earliest end of the old primary's leases that a member of its interval vouches for.
    leases_end: Option<Time>,
}

impl Primary {
    /// Begins.
    #[must_use]
    pub fn new(now: Time) -> Self {
        Self {
            phase: Phase::GetInfo(BTreeSet::new()),
            durable: false,
            infos: BTreeMap::new(),
            lives: BTreeMap::new(),
            logged_max: BTreeMap::new(),
            truth: Vec::new(),
            peers: BTreeMap::new(),
            serve_after: now,
            in_flight: VecDeque::new(),
            logged: Version::NONE,
            applied: Version::NONE,
            committed: Version::NONE,
            objects: Objects::default(),
            recovery: super::recovery::Recovery::default(),
            counting: super::count::Counting::default(),
            damage: super::repair::Damage::default(),
            backfill: super::backfill::Backfill::default(),
            answered: Answers::default(),
            trimming: super::trim::Trimming::default(),
            watching: super::watch::Watching::default(),
            retry_at: now,
            turned_away: Default::default(),
            leases_end: None,
        }
    }

    /// Whether the monitors have committed the activation.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.phase == Phase::Active
    }
    /// Whether the members agree on the log, so that objects can be recovered.
    #[must_use]
    pub fn is_peered(&self) -> bool {
        matches!(
            self.phase,
            Phase::Activating | Phase::Peered | Phase::Active
        )
    }
    pub(super) fn state_bits(&self) -> u32 {
        match &self.phase {
            Phase::Active => pg_state::ACTIVE,
            Phase::Down(_) => pg_state::DOWN,
            Phase::Peered => pg_state::UNDERSIZED,
            _ => pg_state::PEERING,
        }
    }
    pub(super) fn waits_for(&self) -> Vec<OsdId> {
        match &self.phase {
            Phase::GetInfo(waiting) | Phase::Adopting { waiting, .. } => {
                waiting.iter().copied().collect()
            }
            Phase::GetLog(from) => vec![*from],
            Phase::Down(needed) => needed.clone(),
            _ => Vec::new(),
        }
    }
    /// Whether something waits for an answer, or for time to pass.
    pub(super) fn has_work(&self) -> bool {
        let idle = matches!(self.phase, Phase::Active | Phase::Peered) && self.in_flight.is_empty();
        !idle
            || !self.objects.is_idle()
            || self.recovery.is_busy()
            || self.backfill.is_busy()
            // Backfill may have been stopped by the map's flag, and go on when that is gone.
            || self.peers.values().any(|peer| peer.backfill.is_some() || peer.acked < self.committed)
            || self.watching.has_work()
            || self.trimming.pending
    }

    /// Whether there is something to count, now or later.
    pub(super) fn wants_count(&self, local: &Local) -> bool {
        self.is_active() && self.counting.wants_more(local)
    }

    /// Logged bytes that a member's store takes in one transaction, as far as it said.
    pub(super) fn logged_max(&self, osd: OsdId) -> u64 {
        self.logged_max.get(&osd).copied().unwrap_or(u64::MAX)
    }

    /// Whether some member has every object; a quick look before a long one.
    pub(super) fn somebody_has_all(&self) -> bool {
        self.is_peered()
            && self.recovery.nobody_refused()
            && self
                .peers
                .values()
                .any(|peer| peer.missing.is_empty() && peer.backfill.is_none())
    }

    pub(super) fn check(&self, local: &Local, at: &Interval) {
        self.objects.check();
        let head = local.log.head();
        assert!(
            self.committed <= head,
            "{}: committed {} beyond {head}",
            at.pg,
            self.committed
        );
        for (osd, peer) in &self.peers {
            assert!(
                peer.acked <= head,
                "{}: {osd} acknowledged {} beyond {head}",
                at.pg,
                peer.acked
            );
            let acting = at.acting.contains(osd);
            // Backfill looks after those who do not serve yet only. (The mutant lets the others in;
            // its harm is to be seen.)
            let complete = peer.backfill.is_none() || mutant(Mutant::BackfillTargetComplete);
            assert!(
                !acting || complete,
                "{}: {osd} serves, and is to be backfilled",
                at.pg
            );
            assert!(
                !acting || !self.is_active() || self.committed <= peer.acked,
                "{}: committed beyond {osd}",
                at.pg
            );
        }
    }
}

impl Lead<'_> {
    /// Begins. Our own log counts only when it is durable: what others adopt from it must not
    /// vanish with us.
    pub(super) fn start_peering(&mut self, sh: &mut Shared) {
        self.interval.submit(sh, Ops::new(), Awaited::Barrier);
        self.peering_ask(sh);
    }

    /// Everything that our log says is durable here.
    pub(super) fn on_barrier(&mut self, sh: &mut Shared) {
        let me = sh.me();
        self.primary.durable = true;
        if let Phase::GetInfo(waiting) = &mut self.primary.phase {
            waiting.remove(&me);
            self.peering_advance(sh);
        }
    }

    /// Everyone who may know something: asks them.
    fn peering_ask(&mut self, sh: &mut Shared) {
        let (id, since) = (self.id(), self.interval.since);
        let map = sh.map.as_ref().expect("peering follows a map");
        let mut ask: BTreeSet<OsdId> = self.interval.receivers().collect();
        ask.extend(
            self.interval
                .activated
                .members
                .iter()
                .copied()
                .filter(|osd| map.up_osd(*osd).is_some()),
        );
        ask.remove(&sh.me());
        let primary = &mut *self.primary;
        ask.retain(|osd| !primary.infos.contains_key(osd));
        let own = (!primary.durable).then_some(sh.config.id);
        primary.phase = Phase::GetInfo(ask.iter().copied().chain(own).collect());
        primary.retry_at = sh.now + sh.config.timing.retry_interval;
        for osd in ask {
            sh.send(
                osd,
                Message::PeerQuery(PeerQuery {
                    pg: id,
                    interval: since,
                }),
            );
        }
        self.peering_advance(sh);
    }

    pub(super) fn peering_on_info(&mut self, from: OsdId, message: PeerInfo, sh: &mut Shared) {
        let lease = Duration::from_nanos(message.lease_left_ns);
        let old_primary = self.interval.activated.members.first().copied();
        let is_member = self.interval.activated.members.contains(&from);
        let life = sh
            .map
            .as_ref()
            .and_then(|map| map.up_osd(from))
            .map(|info| info.instance);
        let primary = &mut *self.primary;
        let new_life = primary.lives.get(&from) != life.as_ref();
        let new = primary.infos.insert(from, message.info).is_none() || new_life;
        primary.lives.extend(life.map(|life| (from, life)));
        if message.logged_max > 0 {
            primary.logged_max.insert(from, message.logged_max);
        }
        if is_member && old_primary != Some(from) {
            // The old primary needed a lease of every member: the first to run out ends its right.
            let end = sh.now + lease + lease * sh.config.timing.drift_ppm / 1_000_000;
            primary.leases_end = Some(primary.leases_end.map_or(end, |other| other.min(end)));
        }
        match &mut primary.phase {
            Phase::GetInfo(waiting) => {
                waiting.remove(&from);
                self.peering_advance(sh);
            }
            Phase::Down(_) => self.peering_ask(sh),
            _ => {
                self.cover_with(from, sh);
                if new {
                    self.look_again(sh);
                }
                // What nobody could read may be whole at the one who is new here, if only in an
                // older version: he keeps it.
                let damage = &self.primary.damage;
                let wanted = damage.has_suspects() || damage.lost_count() > 0;
                if !wanted && self.local.lost.is_empty() {
                    self.discard_stray(from, sh);
                }
            }
        }
    }

    /// A stray told us that it has something of a clean group: it may go.
    fn discard_stray(&mut self, from: OsdId, sh: &mut Shared) {
        let stray = !self.interval.acting.contains(&from) && !self.interval.up.contains(&from);
        if stray && self.primary.is_clean(self.local, self.interval) {
            let message = nacre_wire::msg::replication::Discard {
                pg: self.id(),
                interval: self.interval.since,
            };
            sh.send(from, Message::Discard(message));
        }
    }

    /// The map changed without ending the interval: who is down need not be waited for, and nothing
    /// is decided any more by what somebody said in a life that is over. (Simulator, seed 1880: a
    /// member of the last activation that was neither up nor acting by CRUSH was to serve again. It
    /// died before the monitors had taken that, and was asked for without an end.)
    pub(super) fn peering_on_map(&mut self, sh: &mut Shared) {
        let map = sh.map.as_ref().expect("called because of a map");
        let primary = &mut *self.primary;
        if matches!(
            primary.phase,
            Phase::GetInfo(_) | Phase::Remap(_) | Phase::GetLog(_) | Phase::Down(_)
        ) {
            let before = primary.infos.len();
            let lives = &primary.lives;
            primary.infos.retain(|osd, _| {
                map.up_osd(*osd).map(|info| info.instance).as_ref() == lives.get(osd)
            });
            if primary.infos.len() < before {
                self.peering_ask(sh);
                return;
            }
        }
        match &mut primary.phase {
            Phase::GetInfo(waiting) => {
                waiting.retain(|osd| map.up_osd(*osd).is_some());
                self.peering_advance(sh);
            }
            Phase::Down(needed) if needed.iter().any(|osd| map.up_osd(*osd).is_some()) => {
                self.peering_ask(sh)
            }
            _ => {}
        }
    }

    fn peering_advance(&mut self, sh: &mut Shared) {
        let own = self.local.info(Version::NONE);
        let primary = &mut *self.primary;
        if !matches!(&primary.phase, Phase::GetInfo(waiting) if waiting.is_empty()) {
            return;
        }
        let mut infos = primary.infos.clone();
        infos.insert(sh.me(), own);
        let activated = &self.interval.activated;
        let fresh = activated.members.is_empty();
        let may_know = |osd: &OsdId, info: &PgInfo| {
            if fresh {
                self.interval.acting.contains(osd) && info.backfill.is_none()
            } else if mutant(Mutant::BackfillTargetComplete) {
                info.exists
            } else {
                let exists = info.exists || mutant(Mutant::EmptyStoreCounts);
                activated.members.contains(osd) && exists && info.backfill.is_none()
            }
        };
        let candidates = infos
            .iter()
            .filter(|(osd, info)| mutant(Mutant::LongestLogWins) || may_know(osd, info));
        let best = if mutant(Mutant::LongestLogWins) {
            candidates.max_by_key(|(osd, info)| (info.head.number, info.exists, **osd == sh.me()))
        } else {
            // Of several with all there is, the one whose log goes back farthest: from whoever
            // judges, the same members can then follow by log. Otherwise two primaries, each by its
            // own shorter or longer log, hand the group to each other for ever (seed 268).
            candidates.max_by_key(|(osd, info)| {
                (
                    info.head,
                    Reverse(info.tail),
                    **osd == sh.me(),
                    Reverse(**osd),
                )
            })
        };
        let Some((authority, best)) = best.map(|(osd, info)| (*osd, info.clone())) else {
            let needed = activated
                .members
                .iter()
                .copied()
                .filter(|osd| !infos.contains_key(osd))
                .collect();
            let primary = &mut *self.primary;
            primary.phase = Phase::Down(needed);
            primary.retry_at = sh.now + sh.config.timing.retry_interval * 5;
            return;
        };
        // Who can be brought up to date by log alone.
        let by_log = |info: &PgInfo| {
            info.backfill.is_none() && follows_from(info, &best.spans, best.tail).is_some()
        };
        let mut want: Vec<OsdId> = self
            .interval
            .up
            .iter()
            .copied()
            .filter(|osd| infos.get(osd).is_some_and(by_log))
            .collect();
        if mutant(Mutant::BackfillTargetComplete) {
            want.clone_from(&self.interval.up);
        }
        // Others who have everything cover for those who must be backfilled; and where the map
        // gives fewer members than it takes to serve, because OSDs are out, those who are out serve
        // until others have their data: all of it is there.
        let others = infos
            .iter()
            .filter(|(osd, info)| !want.contains(osd) && may_know(osd, info) && by_log(info));
        let mut others: Vec<OsdId> = others.map(|(osd, _)| *osd).collect();
        let lacks = |osd| infos.get(&osd).is_some_and(|info| !info.missing.is_empty());
        let act = self.without_full(&[&want[..], &others].concat(), lacks, sh);
        want.retain(|osd| act.contains(osd));
        others.retain(|osd| act.contains(osd));
        let covers = want.len() < self.interval.up.len() || want.is_empty();
        let most = if covers {
            self.interval.size
        } else {
            self.interval.min_size
        };
        want.extend(others.into_iter().take(most.saturating_sub(want.len())));
        full_last(&mut want, lacks, sh);
        // The OSD that leads in place of a full member goes on leading until that member is
        // complete, also if it has not heard of that member's room yet (after a restart):
        // otherwise the two would take turns until it has.
        let acting = &self.interval.acting;
        let same = want.len() == acting.len() && want.iter().all(|osd| acting.contains(osd));
        if same && lacks(want[0]) && !lacks(acting[0]) {
            want.clone_from(acting);
        }
        // Whoever takes over serves beside somebody of the last activated interval first: the
        // monitors commit no activation without one. So members that are all replaced at once are
        // replaced in two steps (simulator with real monitors, seed 6: activation was refused for
        // ever).
        let knows = |osd: &OsdId| fresh || activated.members.contains(osd);
        if !want.is_empty() && !want.iter().any(knows) {
            let stays = |osd: &&OsdId| {
                infos
                    .get(osd)
                    .is_some_and(|info| may_know(osd, info) && by_log(info))
            };
            let witness = self
                .interval
                .acting
                .iter()
                .find(stays)
                .copied()
                .unwrap_or(authority);
            want.truncate(self.interval.size.max(2) - 1);
            want.push(witness);
        }
        if want != self.interval.acting {
            let ask = if want == self.interval.up {
                Vec::new()
            } else {
                want.clone()
            };
            let primary = &mut *self.primary;
            primary.phase = Phase::Remap(ask);
            self.peering_repeat(sh);
            return;
        }
        let primary = &mut *self.primary;
        primary.truth.clone_from(&best.spans);
        if authority == sh.me() {
            self.adopt_everywhere(sh);
            return;
        }
        primary.phase = Phase::GetLog(authority);
        self.peering_repeat(sh);
    }

    /// After what we want the authority's log: after what we share, if everybody can then follow by
    /// ours.
    ///
    /// Somebody may follow by the authority's log and not by ours, which begins later: then we need
    /// all of it. With the last part only, he would start over in an acting set, where nobody
    /// brings him up to date (simulator with snapshots, seed 1486).
    fn wanted_after(&self, authority: OsdId) -> Option<Version> {
        let infos = &self.primary.infos;
        let best = infos.get(&authority)?;
        let ours = self.local.log.tail();
        let needs_more = |info: &PgInfo| {
            if info.exists {
                common(&info.spans, &best.spans) < ours
            } else {
                ours > best.tail
            }
        };
        let mut acting = self.interval.acting.iter().filter_map(|osd| infos.get(osd));
        let all = ours > best.tail && acting.any(needs_more);
        Some(if all {
            Version::NONE
        } else {
            common(&self.local.log.spans(), &best.spans)
        })
    }

    pub(super) fn peering_on_log(&mut self, authority: OsdId, message: LogReply, sh: &mut Shared) {
        let primary = &mut *self.primary;
        if primary.phase != Phase::GetLog(authority) {
            return;
        }
        let mut ops = Ops::new();
        let interval = self.interval.since;
        let LogReply {
            mut from,
            tail,
            head,
            mut entries,
            dedup,
            totals,
            ..
        } = message;
        let ours = self.local.log.tail();
        if from < ours && from == tail {
            // All of it: what is before our tail, and what is after the last entry that we share.
            let theirs = PgLog::restore(tail, head, entries);
            from = common(&self.local.log.spans(), &theirs.spans());
            if from >= ours {
                let older = theirs
                    .entries()
                    .iter()
                    .filter(|entry| entry.version() <= ours)
                    .cloned()
                    .collect();
                self.local.reach_back(tail, totals, older, &mut ops);
            }
            entries = theirs.after(from).cloned().collect();
        }
        let fits = from >= self.local.log.tail() && from <= self.local.log.head();
        if !fits {
            // Its log was trimmed since it told us: ask everybody again.
            let primary = &mut *self.primary;
            primary.infos.clear();
            self.peering_ask(sh);
            return;
        }
        sh.counters.borders.divergent += u64::from(from < self.local.log.head());
        self.local
            .adopt(from, entries, head, &dedup, (interval, sh.now), &mut ops);
        self.local.forget(&sh.config.limits, &mut ops);
        self.submit_adopted(ops, sh);
    }

    /// Our own log is the truth; others make it theirs.
    fn adopt_everywhere(&mut self, sh: &mut Shared) {
        let mut ops = Ops::new();
        self.local.activated = self.interval.since;
        self.local.save_meta(&mut ops);
        self.submit_adopted(ops, sh);
    }

    fn submit_adopted(&mut self, ops: Ops, sh: &mut Shared) {
        let (id, since) = (self.id(), self.interval.since);
        sh.submit(id, since, ops, Awaited::Adopted);
        let me = sh.me();
        let others: Vec<OsdId> = self.interval.receivers().filter(|osd| *osd != me).collect();
        let primary = &mut *self.primary;
        primary.phase = Phase::Adopting {
            self_done: false,
            waiting: others.iter().copied().collect(),
        };
        primary.retry_at = sh.now + sh.config.timing.retry_interval;
        primary.logged = Version::NONE;
        primary.peers = others
            .iter()
            .map(|osd| (*osd, PeerState::default()))
            .collect();
        for osd in others {
            self.send_adopt(osd, sh);
        }
    }

    fn send_adopt(&self, to: OsdId, sh: &mut Shared) {
        let log = &self.local.log;
        let primary = &*self.primary;
        let info = primary.infos.get(&to).cloned().unwrap_or_default();
        // By the authority's log, as it was judged. Ours says the same by now, but its spans may
        // say less: where it had parted from the authority's there is a position that is no entry,
        // if the other half of a split has that one (simulator, `--set library=1`, seed 74).
        self.send_adopt_from(to, follows_from(&info, &primary.truth, log.tail()), sh);
    }

    /// A receiver outside the acting set is to start over.
    pub(super) fn send_adopt_anew(&self, to: OsdId, sh: &mut Shared) {
        self.send_adopt_from(to, None, sh);
    }

    /// Sends our log after a position that both have; without one, the receiver starts over.
    fn send_adopt_from(&self, to: OsdId, shared: Option<Version>, sh: &mut Shared) {
        let log = &self.local.log;
        let restart = shared.is_none();
        let from = shared.unwrap_or(log.tail());
        let message = Adopt {
            pg: self.id(),
            interval: self.interval.since,
            from,
            tail: log.tail(),
            head: log.head(),
            entries: log.after(from).cloned().collect(),
            // Beside a log that may begin anywhere up to there.
            dedup: self.local.dedup.beyond(from),
            restart,
            committed: Version::NONE,
            totals: self.local.base_totals(),
        };
        sh.send(to, Message::Adopt(message));
    }

    /// The adopted log is durable here.
    pub(super) fn on_adopted(&mut self, sh: &mut Shared) {
        if let Phase::Adopting { self_done, .. } = &mut self.primary.phase {
            *self_done = true;
            self.primary.logged = self.local.log.head();
            self.peering_adopted(sh);
        }
    }

    /// A member has adopted our log.
    pub fn on_adopt_ack(&mut self, from: OsdId, message: AdoptAck, sh: &mut Shared) {
        let head = self.local.log.head();
        let primary = &mut *self.primary;
        let Phase::Adopting { waiting, .. } = &mut primary.phase else {
            // It was told to start over.
            if let Some(peer) = primary.peers.get_mut(&from)
                && peer.catching.is_some_and(|head| message.head >= head)
                && message.backfill.is_some()
            {
                peer.backfill = message.backfill;
                peer.note_progress(message.head.min(head), sh.now);
                self.start_recovery(sh);
            }
            return;
        };
        if waiting.remove(&from)
            && let Some(peer) = primary.peers.get_mut(&from)
        {
            peer.missing = message
                .missing
                .into_iter()
                .map(|m| (m.object.clone(), m))
                .collect();
            peer.undone = message
                .undone
                .into_iter()
                .map(|undone| (undone.object.clone(), undone))
                .collect();
            peer.backfill = message.backfill;
            peer.acked = message.head;
            peer.moved = sh.now;
        }
        self.peering_adopted(sh);
    }

    /// Everybody has the log: what is in it is committed. Ask for the activation, or go on without.
    fn peering_adopted(&mut self, sh: &mut Shared) {
        let head = self.local.log.head();
        let (acting, min_size) = (self.interval.acting.len(), self.interval.min_size);
        let old_primary = self.interval.activated.members.first().copied();
        let me = sh.me();
        let is_member = self.interval.activated.members.contains(&me);
        let own_lease = old_primary.map_or(Duration::ZERO, |osd| sh.peers.lease_left(sh.now, osd));
        let primary = &mut *self.primary;
        if !matches!(&primary.phase, Phase::Adopting { self_done: true, waiting } if waiting.is_empty())
        {
            return;
        }
        primary.committed = head;
        // The old primary itself, if it answered, has left its interval. Otherwise its leases must
        // run out.
        primary.serve_after = match old_primary {
            None => sh.now,
            Some(old) if old == me || primary.infos.contains_key(&old) => sh.now,
            Some(_) => {
                let own = is_member.then(|| sh.now + own_lease);
                let ends = [own, primary.leases_end].into_iter().flatten().min();
                ends.expect("the authority is a member of the old interval: we are, or it told us")
            }
        };
        sh.counters.borders.waited_for_leases += u64::from(primary.serve_after > sh.now);
        sh.wake_at(primary.serve_after);
        primary.retry_at = sh.now + sh.config.timing.retry_interval;
        if acting < min_size {
            primary.phase = Phase::Peered;
            sh.say(
                Severity::Warn {},
                format!(
                    "{}: {acting} complete members, {min_size} are needed to serve",
                    self.id()
                ),
            );
        } else {
            primary.phase = Phase::Activating;
            if mutant(Mutant::ActivationNotAwaited) {
                primary.phase = Phase::Active;
            }
            self.peering_repeat(sh);
            if self.interval.activated.interval == self.interval.since {
                self.on_activation(sh);
            }
        }
        self.start_recovery(sh);
    }

    /// The map says that our interval may serve.
    pub(super) fn on_activation(&mut self, sh: &mut Shared) {
        if self.interval.activated.interval != self.interval.since {
            return;
        }
        let primary = &mut *self.primary;
        if primary.phase == Phase::Activating {
            primary.phase = Phase::Active;
            self.process_all_objects(sh);
            self.start_recovery(sh);
        }
    }

    /// Sends again what the current phase waits for.
    fn peering_repeat(&mut self, sh: &mut Shared) {
        let (pg, interval) = (self.id(), self.interval.since);
        let acting = self.interval.acting.clone();
        let wanted = match self.primary.phase {
            Phase::GetLog(from) => self.wanted_after(from),
            _ => None,
        };
        let primary = &mut *self.primary;
        primary.retry_at = sh.now + sh.config.timing.retry_interval;
        match &primary.phase {
            Phase::GetInfo(waiting) => {
                for osd in waiting
                    .iter()
                    .filter(|osd| **osd != sh.config.id)
                    .copied()
                    .collect::<Vec<_>>()
                {
                    sh.send(osd, Message::PeerQuery(PeerQuery { pg, interval }));
                }
            }
            Phase::GetLog(from) => {
                if let Some(common) = wanted {
                    sh.send(
                        *from,
                        Message::LogQuery(LogQuery {
                            pg,
                            interval,
                            common,
                        }),
                    );
                }
            }
            Phase::Remap(acting) => {
                sh.counters.borders.temporary += 1;
                let message = PgTemporaryRequest {
                    pg,
                    interval,
                    acting: acting.clone(),
                };
                sh.out.push(Output::SendMon {
                    message: Message::PgTemporaryRequest(message),
                });
            }
            Phase::Adopting { waiting, .. } => {
                for osd in waiting.clone() {
                    self.send_adopt(osd, sh);
                }
            }
            // Not before the old primary's leases have run out. The next interval looks at the last
            // activated one's primary only: were ours activated now and over at once, nobody would
            // wait for those leases any more (simulator, seed 445: a stale read).
            Phase::Activating if primary.serve_after > sh.now => {
                primary.retry_at = primary.retry_at.min(primary.serve_after);
                sh.wake_at(primary.serve_after);
            }
            Phase::Activating => {
                let message = PgActivateRequest {
                    pg,
                    interval,
                    members: acting,
                };
                sh.out.push(Output::SendMon {
                    message: Message::PgActivateRequest(message),
                });
            }
            Phase::Down(_) => self.peering_ask(sh),
            Phase::Peered | Phase::Active => {}
        }
    }

    pub(super) fn primary_tick(&mut self, sh: &mut Shared) {
        let primary = &mut *self.primary;
        if primary.retry_at <= sh.now {
            self.peering_repeat(sh);
            self.resend_updates(sh);
            self.catch_up_tick(sh);
            self.recovery_tick(sh);
            self.backfill_tick(sh);
            if self.primary.is_clean(self.local, self.interval) {
                self.primary.counting.tick(self.local, self.interval, sh);
            }
            self.trim_tick(sh);
            self.stand_aside(sh);
            self.refuse_what_has_no_room(sh);
            self.explain_waiting(sh);
        }
        let primary = &mut *self.primary;
        if primary.is_active() {
            self.process_all_objects(sh);
        }
    }

    /// Ends a temporary acting set whose backfill is done, or asks for the first one.
    pub(super) fn request_acting(&mut self, acting: Vec<OsdId>, sh: &mut Shared) {
        sh.counters.borders.temporary += 1;
        let message = PgTemporaryRequest {
            pg: self.id(),
            interval: self.interval.since,
            acting,
        };
        sh.out.push(Output::SendMon {
            message: Message::PgTemporaryRequest(message),
        });
    }
}

/// A primary wants our log.
pub(super) fn send_log(
    to: OsdId,
    message: &LogQuery,
    local: &Local,
    at: &Interval,
    sh: &mut Shared,
) {
    let log = &local.log;
    let from_version = message.common.max(log.tail());
    let reply = LogReply {
        pg: at.pg,
        interval: at.since,
        from: from_version,
        tail: log.tail(),
        head: log.head(),
        entries: log.after(from_version).cloned().collect(),
        // Beside a log that may begin anywhere up to there.
        dedup: local.dedup.beyond(from_version),
        totals: local.base_totals(),
    };
    sh.send(to, Message::LogReply(reply));
}
