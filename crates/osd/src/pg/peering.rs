//! Peering: a new interval establishes the authoritative state before it serves (CEPH-52; DESIGN
//! §3, Peering).
//!
//! ```text
//!  GetInfo     query all OSDs that may know: the last activated interval's members, acting, up
//!  GetLog      fetch the authoritative log, unless it is ours
//!  Adopting    all that serve or are backfilled adopt it, durably
//!  Activating  the prior primary's read leases run out, then the monitors commit that this interval may serve (or: Peered, too few members; recovery continues anyway)
//!  Active      serves
//!
//!  Down        no member of the last activated interval is up and complete: wait for the map
//!  Remap       another acting set is needed: ask the monitors, wait for the map
//! ```
//! Which state is authoritative: a write is answered when every acting member of an *activated*
//! interval has it. So each member of the last activated interval has every answered write, and no
//! other OSD is certain to. Among them the highest head wins: its entries beyond the others' were
//! never answered, and keeping them is allowed. No OSD that answers us will acknowledge an older
//! interval again, so no further write of an older interval can be answered.

use super::Interval;
use super::cover::full_last;
use super::local::{Local, Ops};
use super::log::{PgLog, common, follows_from};
use super::logs::send_adopt;
pub use super::phase::Phase;
use super::primary::PeerState;
use crate::purpose::Purpose;
use crate::shared::Shared;
use nacre_object::evaluate::{Update, small_bytes};
use nacre_role::Output;
use nacre_types::{Instance, OsdId, Time, Version};
use nacre_wire::Message;
use nacre_wire::msg::monitor::{PgActivateRequest, Severity};
use nacre_wire::msg::replication::{AdoptAck, LogQuery, LogReply, PeerInfo, PeerQuery, PgInfo};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[cfg(feature = "mutants")]
#[path = "../mutants/peering.rs"]
mod planted;

/// The state of peering at the primary.
#[derive(Debug)]
pub struct Peering {
    /// The current phase.
    pub phase: Phase,
    /// Our log as it was at the interval's beginning is durable.
    durable: bool,
    /// The answers of all OSDs.
    pub infos: BTreeMap<OsdId, PgInfo>,
    /// The instance that gave each answer.
    instances: BTreeMap<OsdId, Instance>,
    /// The bytes of log entries that members' stores accept in one transaction, as far as reported.
    logged_max: BTreeMap<OsdId, u64>,
    /// The spans of the authoritative log at the time when it was decided which members follow it.
    truth: Vec<Version>,
    /// The interval serves no earlier: the prior primary may still be answering reads.
    pub serve_after: Time,
    /// When unanswered messages are repeated next.
    pub retry_at: Time,
    /// The earliest end of the old primary's leases that a member of its interval has reported.
    leases_end: Option<Time>,
}

impl Peering {
    /// Begins peering.
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
    /// The bytes of log entries that a member's store accepts in one transaction, as far as
    /// reported.
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
    /// Whether the stores of all receivers accept the update in one transaction: an ordered update
    /// cannot be refused any more, and a store that does not accept it stops its daemon. Half of
    /// the limit is for the PG's own log, which grows and is trimmed in the same transaction.
    pub(super) fn fits_stores(&self, update: &Update, at: &Interval, sh: &Shared) -> bool {
        let theirs = |osd: OsdId| self.logged_max(osd);
        let most = at.receivers().map(theirs).fold(sh.logged_max, u64::min);
        small_bytes(&update.effects) as u64 <= most / 2
    }

    /// The map allows the interval to serve. Returns whether that is news.
    pub(super) fn activate(&mut self, at: &Interval) -> bool {
        let news = at.activated.interval == at.since && self.phase == Phase::Activating;
        if news {
            self.phase = Phase::Active;
        }
        news
    }
}

impl Interval {
    /// Whether an OSD certainly has every answered write: as a complete member of the last
    /// activated interval.
    #[nacre_types::planted]
    fn may_know(&self, osd: OsdId, info: &PgInfo) -> bool {
        let members = &self.activated.members;
        if members.is_empty() {
            return self.acting.contains(&osd) && info.backfill.is_none();
        }
        members.contains(&osd) && info.exists && info.backfill.is_none()
    }

    /// The OSD whose log is authoritative. Of several complete ones with the highest head, the one
    /// whose log goes back farthest: then the same members can follow by log, independent of the
    /// judging primary. Otherwise two primaries, one with a shorter and one with a longer log, hand
    /// the PG to each other for ever (seed 268).
    #[nacre_types::planted]
    fn authority(&self, infos: &BTreeMap<OsdId, PgInfo>, me: OsdId) -> Option<OsdId> {
        let candidates = infos
            .iter()
            .filter(|(osd, info)| self.may_know(**osd, info));
        let best = candidates
            .max_by_key(|(osd, info)| (info.head, Reverse(info.tail), **osd == me, Reverse(**osd)));
        best.map(|(osd, _)| *osd)
    }

    /// The OSDs up that can be brought up to date with the best log by log alone.
    #[nacre_types::planted]
    fn up_by_log(&self, infos: &BTreeMap<OsdId, PgInfo>, best: &PgInfo) -> Vec<OsdId> {
        let by_log = |osd: &OsdId| {
            infos
                .get(osd)
                .is_some_and(|info| follows_by_log(info, best))
        };
        self.up.iter().copied().filter(by_log).collect()
    }
}

/// Whether a member can be brought up to date with the best log by log alone.
fn follows_by_log(info: &PgInfo, best: &PgInfo) -> bool {
    info.backfill.is_none() && follows_from(info, &best.spans, best.tail).is_some()
}

/// The phase once all that serve or are backfilled have adopted the log.
#[nacre_types::planted]
fn phase_when_adopted(acting: usize, min_size: usize) -> Phase {
    if acting < min_size {
        Phase::Peered
    } else {
        Phase::Activating
    }
}

/// The result of a step of peering for the primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(super) struct Reached {
    /// The interval serves now.
    pub(super) active: bool,
    /// Objects can be recovered that could not be before.
    pub(super) peered: bool,
}

/// A primary that peers, with the state that it may access: its log, its knowledge of the members,
/// and the progress of updates.
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
    /// Begins. Our own log counts only when it is durable: entries that others adopt from it must
    /// not vanish with us.
    pub(super) fn begin(&mut self, sh: &mut Shared) {
        self.interval.submit(sh, Ops::new(), Purpose::Barrier);
        self.ask(sh);
    }

    /// Everything in our log is durable here.
    pub(super) fn on_barrier(&mut self, sh: &mut Shared) {
        let me = sh.me();
        self.peering.durable = true;
        if let Phase::GetInfo(waiting) = &mut self.peering.phase {
            waiting.remove(&me);
            self.advance(sh);
        }
    }

    /// Queries all OSDs that may know something.
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

    /// A member reports its state. If peering does not wait for that any more, returns whether it
    /// is the first report of this instance.
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
            // The old primary needed a lease of every member: the first to expire ends its right.
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

    /// The map changed without ending the interval: members that are down are not waited for, and
    /// reports of ended instances are discarded. (Simulator, seed 1880: a member of the last
    /// activation that was neither up nor acting by CRUSH was to serve again. It died before the
    /// monitors had accepted that, and was requested again and again.)
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
        let Some(authority) = self.interval.authority(&infos, sh.me()) else {
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
        let best = infos[&authority].clone();
        let by_log = |info: &PgInfo| follows_by_log(info, &best);
        let mut want = self.interval.up_by_log(&infos, &best);
        // Other complete OSDs cover for members that must be backfilled. If the map gives fewer
        // members than are needed to serve, because OSDs are out, those that are out serve until
        // others have their data.
        let others = infos
            .iter()
            .filter(|(osd, info)| !want.contains(osd) && self.interval.may_know(**osd, info))
            .filter(|(_, info)| by_log(info));
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
        // The OSD that leads in place of a full member continues to lead until that member is
        // complete, even if it has not heard of that member's space yet (after a restart):
        // otherwise the two would take turns until it has.
        let acting = &self.interval.acting;
        let same = want.len() == acting.len() && want.iter().all(|osd| acting.contains(osd));
        if same && lacks(want[0]) && !lacks(acting[0]) {
            want.clone_from(acting);
        }
        // New members serve beside a member of the last activated interval first: the monitors
        // commit no activation without one. So members that are all replaced at once are replaced
        // in two steps (simulator with real monitors, seed 6: activation was refused for ever).
        let knows = |osd: &OsdId| fresh || activated.members.contains(osd);
        if !want.is_empty() && !want.iter().any(knows) {
            let stays = |osd: &&OsdId| {
                infos
                    .get(osd)
                    .is_some_and(|info| self.interval.may_know(**osd, info) && by_log(info))
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

    /// The version after which we want the authoritative log: the last shared one, if all members
    /// can then follow by our log.
    ///
    /// A member may be able to follow by the authoritative log and not by ours, which begins later:
    /// then we need all of it. With only the last part, the member would start over in an acting
    /// set, where it would never be brought up to date (simulator with snapshots, seed 1486).
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
            // All of it: the part before our tail, and the part after the last shared entry.
            let theirs = PgLog::restore(tail, head, &entries);
            from = common(&self.local.log.spans(), &theirs.spans());
            if from >= ours {
                let older = entries.iter().filter(|entry| entry.version() <= ours);
                let older = older.cloned().collect();
                self.local.reach_back(tail, totals, older, &mut ops);
            }
            entries.retain(|entry| entry.version() > from);
        }
        let fits = from >= self.local.log.tail() && from <= self.local.log.head();
        if !fits {
            // Its log was trimmed since its report: query all OSDs again.
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

    /// Our own log is authoritative; others adopt it.
    fn adopt_everywhere(&mut self, sh: &mut Shared) {
        let mut ops = Ops::new();
        self.local.activated = self.interval.since;
        self.local.save_meta(&mut ops);
        self.submit_adopted(ops, sh);
    }

    fn submit_adopted(&mut self, ops: Ops, sh: &mut Shared) {
        self.interval.submit(sh, ops, Purpose::Adopted);
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
        // By the authoritative log, as decided before. Ours has the same entries by now, but its
        // spans may say less: where it diverged from the authoritative log there is a position
        // without an entry, if the other half of a split has that entry (simulator,
        // `--set library=1`, seed 74).
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
            // It was ordered to start over.
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

    /// All members have the log: its entries are committed. Requests the activation, or continues
    /// without it.
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
        // If the old primary itself answered, it has left its interval. Otherwise its leases must
        // expire.
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
        peering.phase = phase_when_adopted(acting, min_size);
        if acting < min_size {
            sh.say(
                Severity::Warn {},
                format!(
                    "{}: {acting} complete members, {min_size} are needed to serve",
                    self.interval.pg
                ),
            );
        } else {
            self.repeat(sh);
        }
        Reached {
            active: self.peering.activate(self.interval),
            peered: true,
        }
    }

    /// Resends the messages that the current phase waits for.
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
            // Not before the old primary's leases have expired. The next interval looks only at the
            // primary of the last activated one: if ours were activated now and ended at once,
            // those leases would not be waited for any more (simulator, seed 445: a stale read).
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
