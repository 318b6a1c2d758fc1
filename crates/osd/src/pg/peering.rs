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

use super::Interval;
use super::cover::full_last;
use super::local::{Local, Ops};
use super::log::{PgLog, common, follows_from};
use super::logs::send_adopt;
pub use super::phase::Phase;
use super::primary::PeerState;
use crate::awaited::Awaited;
use crate::shared::Shared;
use crate::{Mutant, mutant};
use nacre_object::evaluate::{Update, small_bytes};
use nacre_role::Output;
use nacre_types::{Instance, OsdId, Time, Version};
use nacre_wire::Message;
use nacre_wire::msg::monitor::{PgActivateRequest, Severity};
use nacre_wire::msg::replication::{AdoptAck, LogQuery, LogReply, PeerInfo, PeerQuery, PgInfo};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a primary finds out before its interval serves.
#[derive(Debug)]
pub struct Peering {
    /// How far it is.
    pub phase: Phase,
    /// What our log had when the interval began is durable.
    durable: bool,
    /// Everyone's answer.
    pub infos: BTreeMap<OsdId, PgInfo>,
    /// In which incarnation each gave it.
    instances: BTreeMap<OsdId, Instance>,
    /// Logged bytes that members' stores take in one transaction, of those who said so.
    logged_max: BTreeMap<OsdId, u64>,
    /// The spans of the authoritative log, as they were when it was judged who follows by it.
    truth: Vec<Version>,
    /// Not before: the prior primary may still be answering reads.
    pub serve_after: Time,
    /// When what is unanswered is repeated next.
    pub retry_at: Time,
    /// The earliest end of the old primary's leases that a member of its interval vouches for.
    leases_end: Option<Time>,
}

impl Peering {
    /// Begins.
    pub(super) fn new(now: Time) -> Self {
        Self {
            phase: Phase::GetInfo(BTreeSet::new()),
            durable: false,
            infos: BTreeMap::new(),
            instances: BTreeMap::new(),
            logged_max: BTreeMap::new(),
            truth: Vec::new(),
            serve_after: now,
            retry_at: now,
            leases_end: None,
        }
    }
    /// Whether the monitors have committed the activation.
    pub(super) fn is_active(&self) -> bool {
        self.phase == Phase::Active
    }
    /// Logged bytes that a member's store takes in one transaction, as far as it said.
    fn logged_max(&self, osd: OsdId) -> u64 {
        self.logged_max.get(&osd).copied().unwrap_or(u64::MAX)
    }
    /// Whether clients are served now.
    pub(super) fn serves(&self, now: Time) -> bool {
        self.is_active() && self.serve_after <= now
    }
    /// Whether the members agree on the log, so that objects can be recovered.
    pub(super) const fn is_peered(&self) -> bool {
        self.phase.is_peered()
    }
    /// Whether the store of everybody who gets the update takes it in one transaction: what was
    /// ordered cannot be refused any more, and a store that does not take it stops its daemon. Half
    /// of what they take is for the group's own log, which grows and is trimmed in the same
    /// transaction.
    pub(super) fn fits_stores(&self, update: &Update, at: &Interval, sh: &Shared) -> bool {
        let theirs = |osd: OsdId| self.logged_max(osd);
        let most = at.receivers().map(theirs).fold(sh.logged_max, u64::min);
        small_bytes(&update.effects) as u64 <= most / 2
    }

    /// The map says that the interval may serve. Says whether that is news.
    pub(super) fn activate(&mut self, at: &Interval) -> bool {
        let news = at.activated.interval == at.since && self.phase == Phase::Activating;
        if news {
            self.phase = Phase::Active;
        }
        news
    }
}

/// What a step of peering lets the primary do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(super) struct Reached {
    /// The interval serves.
    pub(super) active: bool,
    /// Objects can be recovered that could not before.
    pub(super) peered: bool,
}

/// A primary that peers, with what it may touch: its log, what it knows of the members, and how far
/// updates have come.
#[derive(Debug)]
pub(super) struct Agree<'a> {
    pub(super) local: &'a mut Local,
    pub(super) interval: &'a Interval,
    pub(super) peering: &'a mut Peering,
    pub(super) peers: &'a mut BTreeMap<OsdId, PeerState>,
    pub(super) logged: &'a mut Version,
    pub(super) committed: &'a mut Version,
}

impl Agree<'_> {
    /// Begins. Our own log counts only when it is durable: what others adopt from it must not
    /// vanish with us.
    pub(super) fn begin(&mut self, sh: &mut Shared) {
        self.interval.submit(sh, Ops::new(), Awaited::Barrier);
        self.ask(sh);
    }

    /// Everything that our log says is durable here.
    pub(super) fn on_barrier(&mut self, sh: &mut Shared) {
        let me = sh.me();
        self.peering.durable = true;
        if let Phase::GetInfo(waiting) = &mut self.peering.phase {
            waiting.remove(&me);
            self.advance(sh);
        }
    }

    /// Everyone who may know something: asks them.
    fn ask(&mut self, sh: &mut Shared) {
        let (id, since) = (self.interval.pg, self.interval.since);
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
        let peering = &mut *self.peering;
        ask.retain(|osd| !peering.infos.contains_key(osd));
        let own = (!peering.durable).then_some(sh.config.id);
        peering.phase = Phase::GetInfo(ask.iter().copied().chain(own).collect());
        peering.retry_at = sh.after(1);
        for osd in ask {
            sh.send(
                osd,
                Message::PeerQuery(PeerQuery {
                    pg: id,
                    interval: since,
                }),
            );
        }
        self.advance(sh);
    }

    /// A member says what it has. If peering does not wait for that any more, returns whether it
    /// has not said so in this incarnation.
    pub(super) fn on_info(
        &mut self,
        from: OsdId,
        message: PeerInfo,
        sh: &mut Shared,
    ) -> Option<bool> {
        let lease = Duration::from_nanos(message.lease_left_ns);
        let old_primary = self.interval.activated.members.first().copied();
        let is_member = self.interval.activated.members.contains(&from);
        let instance = sh
            .map
            .as_ref()
            .and_then(|map| map.up_osd(from))
            .map(|info| info.instance);
        let peering = &mut *self.peering;
        let reborn = peering.instances.get(&from) != instance.as_ref();
        let new = peering.infos.insert(from, message.info).is_none() || reborn;
        peering
            .instances
            .extend(instance.map(|instance| (from, instance)));
        if message.logged_max > 0 {
            peering.logged_max.insert(from, message.logged_max);
        }
        if is_member && old_primary != Some(from) {
            // The old primary needed a lease of every member: the first to run out ends its right.
            let end = sh.now + lease + lease * sh.config.timing.drift_ppm / 1_000_000;
            peering.leases_end = Some(peering.leases_end.map_or(end, |other| other.min(end)));
        }
        match &mut peering.phase {
            Phase::GetInfo(waiting) => {
                waiting.remove(&from);
                self.advance(sh);
            }
            Phase::Down(_) => self.ask(sh),
            _ => {
                return Some(new);
            }
        }
        None
    }

    /// The map changed without ending the interval: who is down need not be waited for, and nothing
    /// is decided any more by what somebody said in a life that is over. (Simulator, seed 1880: a
    /// member of the last activation that was neither up nor acting by CRUSH was to serve again. It
    /// died before the monitors had taken that, and was asked for without an end.)
    pub(super) fn on_map(&mut self, sh: &mut Shared) {
        let map = sh.map.as_ref().expect("called because of a map");
        let peering = &mut *self.peering;
        if matches!(
            peering.phase,
            Phase::GetInfo(_) | Phase::Remap(_) | Phase::GetLog(_) | Phase::Down(_)
        ) {
            let before = peering.infos.len();
            let instances = &peering.instances;
            peering.infos.retain(|osd, _| {
                map.up_osd(*osd).map(|info| info.instance).as_ref() == instances.get(osd)
            });
            if peering.infos.len() < before {
                self.ask(sh);
                return;
            }
        }
        match &mut peering.phase {
            Phase::GetInfo(waiting) => {
                waiting.retain(|osd| map.up_osd(*osd).is_some());
                self.advance(sh);
            }
            Phase::Down(needed) if needed.iter().any(|osd| map.up_osd(*osd).is_some()) => {
                self.ask(sh)
            }
            _ => {}
        }
    }

    fn advance(&mut self, sh: &mut Shared) {
        let own = self.local.info(Version::NONE);
        let peering = &mut *self.peering;
        if !matches!(&peering.phase, Phase::GetInfo(waiting) if waiting.is_empty()) {
            return;
        }
        let mut infos = peering.infos.clone();
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
            let peering = &mut *self.peering;
            peering.phase = Phase::Down(needed);
            peering.retry_at = sh.after(5);
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
        let act = self
            .interval
            .without_full(&[&want[..], &others].concat(), lacks, sh);
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
            let peering = &mut *self.peering;
            peering.phase = Phase::Remap(ask);
            self.repeat(sh);
            return;
        }
        let peering = &mut *self.peering;
        peering.truth.clone_from(&best.spans);
        if authority == sh.me() {
            self.adopt_everywhere(sh);
            return;
        }
        peering.phase = Phase::GetLog(authority);
        self.repeat(sh);
    }

    /// After what we want the authority's log: after what we share, if everybody can then follow by
    /// ours.
    ///
    /// Somebody may follow by the authority's log and not by ours, which begins later: then we need
    /// all of it. With the last part only, he would start over in an acting set, where nobody
    /// brings him up to date (simulator with snapshots, seed 1486).
    fn wanted_after(&self, authority: OsdId) -> Option<Version> {
        let infos = &self.peering.infos;
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

    pub(super) fn on_log(&mut self, authority: OsdId, message: LogReply, sh: &mut Shared) {
        let peering = &mut *self.peering;
        if peering.phase != Phase::GetLog(authority) {
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
            let peering = &mut *self.peering;
            peering.infos.clear();
            self.ask(sh);
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
        self.interval.submit(sh, ops, Awaited::Adopted);
        let me = sh.me();
        let others: Vec<OsdId> = self.interval.receivers().filter(|osd| *osd != me).collect();
        let peering = &mut *self.peering;
        peering.phase = Phase::Adopting {
            self_done: false,
            waiting: others.iter().copied().collect(),
        };
        peering.retry_at = sh.after(1);
        *self.logged = Version::NONE;
        *self.peers = others
            .iter()
            .map(|osd| (*osd, PeerState::default()))
            .collect();
        for osd in others {
            self.send_adopt(osd, sh);
        }
    }

    fn send_adopt(&self, to: OsdId, sh: &mut Shared) {
        let log = &self.local.log;
        let peering = &*self.peering;
        let info = peering.infos.get(&to).cloned().unwrap_or_default();
        // By the authority's log, as it was judged. Ours says the same by now, but its spans may
        // say less: where it had parted from the authority's there is a position that is no entry,
        // if the other half of a split has that one (simulator, `--set library=1`, seed 74).
        let shared = follows_from(&info, &peering.truth, log.tail());
        send_adopt(to, shared, self.local, self.interval, sh);
    }

    /// The adopted log is durable here.
    pub(super) fn on_adopted(&mut self, sh: &mut Shared) -> Reached {
        let Phase::Adopting { self_done, .. } = &mut self.peering.phase else {
            return Reached::default();
        };
        *self_done = true;
        *self.logged = self.local.log.head();
        self.all_adopted(sh)
    }

    /// A member has adopted our log.
    pub(super) fn on_adopt_ack(
        &mut self,
        from: OsdId,
        message: AdoptAck,
        sh: &mut Shared,
    ) -> Reached {
        let head = self.local.log.head();
        let peering = &mut *self.peering;
        let Phase::Adopting { waiting, .. } = &mut peering.phase else {
            // It was told to start over.
            if let Some(peer) = self.peers.get_mut(&from)
                && peer.catching.is_some_and(|head| message.head >= head)
                && message.backfill.is_some()
            {
                peer.backfill = message.backfill;
                peer.note_progress(message.head.min(head), sh.now);
                return Reached {
                    active: false,
                    peered: true,
                };
            }
            return Reached::default();
        };
        if waiting.remove(&from)
            && let Some(peer) = self.peers.get_mut(&from)
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
        self.all_adopted(sh)
    }

    /// Everybody has the log: what is in it is committed. Ask for the activation, or go on without.
    fn all_adopted(&mut self, sh: &mut Shared) -> Reached {
        let head = self.local.log.head();
        let (acting, min_size) = (self.interval.acting.len(), self.interval.min_size);
        let old_primary = self.interval.activated.members.first().copied();
        let me = sh.me();
        let is_member = self.interval.activated.members.contains(&me);
        let own_lease = old_primary.map_or(Duration::ZERO, |osd| sh.peers.lease_left(sh.now, osd));
        let peering = &mut *self.peering;
        if !matches!(&peering.phase, Phase::Adopting { self_done: true, waiting } if waiting.is_empty())
        {
            return Reached::default();
        }
        *self.committed = head;
        // The old primary itself, if it answered, has left its interval. Otherwise its leases must
        // run out.
        peering.serve_after = match old_primary {
            None => sh.now,
            Some(old) if old == me || peering.infos.contains_key(&old) => sh.now,
            Some(_) => {
                let own = is_member.then(|| sh.now + own_lease);
                let ends = [own, peering.leases_end].into_iter().flatten().min();
                ends.expect("the authority is a member of the old interval: we are, or it told us")
            }
        };
        sh.counters.borders.waited_for_leases += u64::from(peering.serve_after > sh.now);
        sh.wake_at(peering.serve_after);
        peering.retry_at = sh.after(1);
        if acting < min_size {
            peering.phase = Phase::Peered;
            sh.say(
                Severity::Warn {},
                format!(
                    "{}: {acting} complete members, {min_size} are needed to serve",
                    self.interval.pg
                ),
            );
        } else {
            peering.phase = Phase::Activating;
            if mutant(Mutant::ActivationNotAwaited) {
                peering.phase = Phase::Active;
            }
            self.repeat(sh);
        }
        Reached {
            active: self.peering.activate(self.interval),
            peered: true,
        }
    }

    /// Sends again what the current phase waits for.
    pub(super) fn repeat(&mut self, sh: &mut Shared) {
        let (pg, interval) = (self.interval.pg, self.interval.since);
        let acting = self.interval.acting.clone();
        let wanted = match self.peering.phase {
            Phase::GetLog(from) => self.wanted_after(from),
            _ => None,
        };
        let peering = &mut *self.peering;
        peering.retry_at = sh.after(1);
        match &peering.phase {
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
            Phase::Remap(acting) => self.interval.request_acting(acting.clone(), sh),
            Phase::Adopting { waiting, .. } => {
                for osd in waiting.clone() {
                    self.send_adopt(osd, sh);
                }
            }
            // Not before the old primary's leases have run out. The next interval looks at the last
            // activated one's primary only: were ours activated now and over at once, nobody would
            // wait for those leases any more (simulator, seed 445: a stale read).
            Phase::Activating if peering.serve_after > sh.now => {
                peering.retry_at = peering.retry_at.min(peering.serve_after);
                sh.wake_at(peering.serve_after);
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
            Phase::Down(_) => self.ask(sh),
            Phase::Peered | Phase::Active => {}
        }
    }
}
