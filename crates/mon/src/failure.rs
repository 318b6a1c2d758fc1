//! Failure detection: OSDs watch each other and report; the leader filters (CEPH-47, CEPH-49:
//! "filters out transient or systemic problems").
//!
//! ```text
//!  FailureReport ─▶ is the reporter up, the target's instance current?  ─no─▶ dropped
//!        │ yes
//!        ├─ the target itself ───────────────────────────────────────────▶ down
//!        ├─ the target: its disk stalls, and not those of most OSDs ─────▶ down
//!        ├─ connection refused, to one that does not accuse most ────────▶ down
//!        ├─ silent beyond grace (longer if it flapped), by enough reporters
//!        │  on enough hosts, none of them cut off itself ────────────────▶ down
//!        └─ silent for four times the grace, by too few: a *parted* pair ─▶ one of the two down, and kept down for a while
//! ```
//! *Parted*: two OSDs of which one does not hear the other, or neither does, while others hear
//! both. PGs that they serve together stall as long as both are up. The one that is parted from
//! more others is marked down; of two alike, the one that was marked down before, or the higher
//! number: always the same one. It may not come up at once, or it would go down and up as long as
//! the network is cut: it is kept down for half a minute, twice as long each further time. An OSD
//! without which a PG stalls ([`crate::needed`]) is marked down only if the other is needed, too.
//! It may come up when a PG has needed it for as long as it took to mark it down.
//!
//! *Cut off*: a reporter that accuses most of the others, and is itself accused, reports on its own
//! network. One that accuses most and is not accused (half the cluster lost power) is believed
//! after twice the grace, so that the accused have had time to accuse it.
//!
//! Time here is the leader's *awake* time: it advances by at most two ticks per tick, so a leader
//! that was starved or stopped does not take its own absence for the OSDs' silence.
//!
//! Invariants: reports about one instance never affect its successor; the kept state is bounded by
//! the square of the number of OSDs in the map, and in practice by the few that are reported.

use nacre_types::{Instance, OsdId, Time};
use nacre_wire::map::{ClusterMap, flag};
use nacre_wire::msg::monitor::FailureReport;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::needed::Needs;
use crate::options;

/// A report that is not repeated is forgotten.
const EXPIRY: Duration = Duration::from_secs(10);
/// How long a reporter's silence is assumed to continue without a further report.
const EXTRAPOLATED: Duration = Duration::from_millis(1_000);
/// An OSD that came back this soon after it was marked down for silence was probably marked down
/// wrongly.
const FLAP: Duration = Duration::from_secs(30);
/// Maximum number of flaps counted.
const FLAPS_MAX: usize = 4;
/// Additional silence allowed after each number of flaps, in fifths of the grace. Little for the
/// first two: writes wait meanwhile, and with 2 s of grace they must wait for at most 3 s in all
/// though the same OSD hangs twice or three times in a row. An OSD that continues to flap is slow
/// rather than dead, and gets up to three times the grace.
const FLAP_FIFTHS: [u32; FLAPS_MAX + 1] = [0, 1, 2, 5, 10];
/// Flaps expire one after the other, one per this time.
const FLAP_MEMORY: Duration = Duration::from_secs(600);

#[derive(Clone, Debug)]
struct Report {
    at: Time,
    silent: Duration,
    refused: bool,
    itself: bool,
    stalled: bool,
}

#[derive(Clone, Debug, Default)]
struct Target {
    instance: Instance,
    reports: BTreeMap<OsdId, Report>,
}

/// An OSD's history of being marked down too early, or for being parted from another.
#[derive(Clone, Debug, Default)]
struct History {
    silenced_at: Option<Time>,
    flaps: u32,
    last_flap: Time,
    parted: u32,
    held_until: Time,
    /// Since when a PG has stalled without it, though it is kept down.
    needed_since: Option<Time>,
}

/// After this many times the grace, a pair that does not hear each other is parted: operations wait
/// meanwhile, and time out after thirty seconds.
const PARTED_GRACES: u32 = 4;
/// How long an OSD that was marked down as parted is kept down, the first time; twice as long each
/// further time, up to eight times.
const HELD: Duration = Duration::from_secs(30);
const HELD_DOUBLINGS: u32 = 3;
/// After this time without being parted, the count starts again.
const PARTED_MEMORY: Duration = Duration::from_secs(3_600);

/// A verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Down {
    /// The OSD.
    pub osd: OsdId,
    /// Its instance.
    pub instance: Instance,
    /// For the cluster log.
    pub why: String,
    /// Whether the reason is only silence: such a verdict may be wrong.
    pub silent: bool,
    /// Whether only one other OSD reports it, or only it reports one other: it may not come up at
    /// once.
    pub parted: bool,
}

/// `.0` has not heard `.1` for longer than the grace, and others have.
pub type Parted = (OsdId, OsdId);

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct FailureFilter {
    targets: BTreeMap<OsdId, Target>,
    history: BTreeMap<OsdId, History>,
    /// Reporters that are ignored as cut off, for health.
    suspects: BTreeSet<OsdId>,
    /// Pairs of OSDs of which one does not hear the other, for health.
    parted: BTreeSet<Parted>,
}

/// An OSD that may be down.
struct Silent {
    osd: OsdId,
    instance: Instance,
    grace: Duration,
    /// Its reporters, with the silence seen by each.
    by: BTreeMap<OsdId, Duration>,
}

impl FailureFilter {
    /// Takes a report. `false`: it was dropped.
    pub fn report(&mut self, awake: Time, map: &ClusterMap, report: &FailureReport) -> bool {
        let current = map
            .up_osd(report.target)
            .is_some_and(|info| info.instance == report.instance);
        if !current || map.up_osd(report.reporter).is_none() {
            return false;
        }
        if report.itself != (report.reporter == report.target) {
            return false;
        }
        let target = self.targets.entry(report.target).or_default();
        if target.instance != report.instance {
            *target = Target {
                instance: report.instance,
                reports: BTreeMap::new(),
            };
        }
        if report.alive {
            target.reports.remove(&report.reporter);
            if target.reports.is_empty() {
                self.targets.remove(&report.target);
            }
            return true;
        }
        let silent = Duration::from_millis(report.silent_ms);
        let FailureReport {
            refused,
            itself,
            stalled,
            ..
        } = *report;
        let report_ = Report {
            at: awake,
            silent,
            refused,
            itself,
            stalled,
        };
        target.reports.insert(report.reporter, report_);
        true
    }

    /// Whether a report says that its process has ended, or its disk has failed.
    #[must_use]
    pub fn is_gone(&self, osd: OsdId) -> bool {
        let gone = |report: &Report| report.refused || report.itself;
        self.targets
            .get(&osd)
            .is_some_and(|target| target.reports.values().any(gone))
    }

    /// The map changed: drops reports that are decided.
    pub fn on_map(&mut self, map: &ClusterMap) {
        let up = |osd: &OsdId| map.up_osd(*osd).is_some();
        self.targets.retain(|osd, target| {
            map.up_osd(*osd)
                .is_some_and(|info| info.instance == target.instance)
        });
        for target in self.targets.values_mut() {
            target.reports.retain(|reporter, _| up(reporter));
        }
        self.targets.retain(|_, target| !target.reports.is_empty());
        self.history.retain(|osd, _| map.osds.contains_key(osd));
    }

    /// An OSD was marked down for silence.
    pub fn on_silenced(&mut self, awake: Time, osd: OsdId) {
        self.history.entry(osd).or_default().silenced_at = Some(awake);
    }

    /// An OSD came up.
    pub fn on_up(&mut self, awake: Time, osd: OsdId) {
        let Some(history) = self.history.get_mut(&osd) else {
            return;
        };
        if history
            .silenced_at
            .take()
            .is_some_and(|at| awake.since(at) < FLAP)
        {
            history.flaps = (history.flaps + 1).min(FLAPS_MAX as u32);
            history.last_flap = awake;
        }
    }

    /// An OSD was marked down for being parted from another.
    pub fn on_parted(&mut self, awake: Time, osd: OsdId) {
        let history = self.history.entry(osd).or_default();
        if history.held_until > awake {
            return; // the verdict is in flight
        }
        if awake.since(history.held_until) > PARTED_MEMORY {
            history.parted = 0;
        }
        history.held_until = awake + HELD * 2_u32.pow(history.parted.min(HELD_DOUBLINGS));
        history.parted += 1;
    }

    /// Whether an OSD that asks to come up may. `awaited`: whether a PG reports that it stalls
    /// without it; only called for OSDs that are kept down. (Simulator, seed 5396: of three OSDs
    /// with a PG's state one had a new store, and the two others were kept down. According to the
    /// map an OSD with the state was up.)
    pub fn may_come(
        &mut self,
        awake: Time,
        map: &ClusterMap,
        osd: OsdId,
        awaited: impl FnOnce() -> bool,
    ) -> bool {
        let Some(history) = self
            .history
            .get_mut(&osd)
            .filter(|history| history.held_until > awake)
        else {
            return true;
        };
        if !Needs::of(map).is_needed(osd) && !awaited() {
            history.needed_since = None;
            return false;
        }
        let since = *history.needed_since.get_or_insert(awake);
        awake.since(since) >= options::duration(map, "osd.failure_grace_ms") * PARTED_GRACES
    }

    /// The OSDs that are kept down, for health.
    pub fn held(&self, awake: Time) -> impl Iterator<Item = (OsdId, Duration)> {
        let held = self
            .history
            .iter()
            .filter(move |(_, history)| history.held_until > awake);
        held.map(move |(osd, history)| (*osd, history.held_until.since(awake)))
    }

    /// The silence that is too long for this OSD: longer with each recent flap ([`FLAP_FIFTHS`]).
    fn grace(&self, awake: Time, osd: OsdId, grace: Duration) -> Duration {
        let flaps = self.history.get(&osd).map_or(0, |history| {
            let forgotten = awake.since(history.last_flap).as_secs() / FLAP_MEMORY.as_secs();
            (history.flaps as usize)
                .saturating_sub(usize::try_from(forgotten).unwrap_or(usize::MAX))
        });
        grace + grace / 5 * FLAP_FIFTHS[flaps.min(FLAPS_MAX)]
    }

    /// OSDs to be marked down now.
    pub fn verdicts(
        &mut self,
        awake: Time,
        map: &ClusterMap,
        hosts: &BTreeMap<OsdId, String>,
    ) -> Vec<Down> {
        for target in self.targets.values_mut() {
            target
                .reports
                .retain(|_, report| awake.since(report.at) <= EXPIRY);
        }
        self.targets.retain(|_, target| !target.reports.is_empty());
        self.suspects.clear();
        self.parted.clear();
        if self.targets.is_empty() {
            return Vec::new();
        }
        let scene = Scene::of(&self.targets, map, hosts);
        let base = options::duration(map, "osd.failure_grace_ms");
        let wanted = options::number(map, "mon.osd_reporters_min") as usize;
        let is_stalled = |target: &Target| {
            target
                .reports
                .values()
                .any(|report| report.itself && report.stalled)
        };
        let stalled = self
            .targets
            .values()
            .filter(|target| is_stalled(target))
            .count();
        let no_down = map.flags & flag::NO_DOWN != 0;
        let mut down = Vec::new();
        let mut silent = Vec::new();
        let mut suspects = BTreeSet::new();
        for (osd, target) in &self.targets {
            if target
                .reports
                .values()
                .any(|report| report.itself && !report.stalled)
            {
                down.push(Down {
                    osd: *osd,
                    instance: target.instance,
                    why: "it said so itself".into(),
                    silent: false,
                    parted: false,
                });
                continue;
            }
            if no_down {
                continue;
            }
            // If most disks stall at a time the cause is one shared disk, or one event: no OSD
            // would be left to serve.
            if is_stalled(target) && stalled * 2 <= scene.up.len() {
                let why = "its disk does not answer".to_owned();
                down.push(Down {
                    osd: *osd,
                    instance: target.instance,
                    why,
                    silent: false,
                    parted: false,
                });
                continue;
            }
            let mut by = BTreeMap::new();
            let mut gone = None;
            let grace = self.grace(awake, *osd, base);
            for (reporter, report) in target.reports.iter().filter(|(_, report)| !report.itself) {
                if scene.is_cut_off(*reporter) {
                    suspects.insert(*reporter);
                    continue;
                }
                let accuses_most = scene.accuses_most(*reporter);
                if report.refused && !accuses_most {
                    gone = Some(*reporter);
                }
                let needed = if accuses_most { grace * 2 } else { grace };
                // An OSD refused by nearly all others may be misled itself: its report needs the
                // others', but no grace.
                let silence = report.silent + awake.since(report.at).min(EXTRAPOLATED);
                if report.refused || silence >= needed {
                    by.insert(*reporter, silence);
                }
            }
            if let Some(reporter) = gone {
                let why = format!("its process is gone ({reporter} was refused a connection)");
                down.push(Down {
                    osd: *osd,
                    instance: target.instance,
                    why,
                    silent: false,
                    parted: false,
                });
            } else if !by.is_empty() {
                silent.push(Silent {
                    osd: *osd,
                    instance: target.instance,
                    grace,
                    by,
                });
            }
        }
        self.judge_silent(map, &scene, silent, wanted, base, &mut down);
        self.suspects = suspects;
        down.sort_by_key(|down| down.osd);
        down
    }

    /// One after the other, those missed by most first: reports of an OSD that is marked down are
    /// ignored, or both of two that do not hear each other would be marked down.
    fn judge_silent(
        &mut self,
        map: &ClusterMap,
        scene: &Scene<'_>,
        mut silent: Vec<Silent>,
        wanted: usize,
        base: Duration,
        down: &mut Vec<Down>,
    ) {
        let parted_before = |osd: &OsdId| self.history.get(osd).map_or(0, |history| history.parted);
        silent.sort_by_key(|silent| {
            std::cmp::Reverse((silent.by.len(), parted_before(&silent.osd), silent.osd))
        });
        let mut gone: BTreeSet<OsdId> = down.iter().map(|down| down.osd).collect();
        let mut edges: BTreeMap<Parted, (Duration, Instance)> = BTreeMap::new();
        for Silent {
            osd,
            instance,
            grace,
            by,
        } in &silent
        {
            let heard: BTreeSet<OsdId> = by
                .keys()
                .filter(|reporter| !gone.contains(reporter))
                .copied()
                .collect();
            if scene.suffice(*osd, &heard, wanted) {
                let who: Vec<String> = heard.iter().take(3).map(ToString::to_string).collect();
                let why = format!(
                    "silent for {} ms, reported by {}",
                    grace.as_millis(),
                    who.join(", ")
                );
                down.push(Down {
                    osd: *osd,
                    instance: *instance,
                    why,
                    silent: true,
                    parted: false,
                });
                gone.insert(*osd);
                continue;
            }
            edges.extend(
                by.iter()
                    .map(|(reporter, silence)| ((*reporter, *osd), (*silence, *instance))),
            );
        }
        edges.retain(|(by, osd), _| !gone.contains(by) && !gone.contains(osd));
        self.parted = edges.keys().copied().collect();

        edges.retain(|_, (silence, _)| *silence >= base * PARTED_GRACES);
        if edges.is_empty() {
            return;
        }
        // Every PG is examined once, however many pairs there are.
        let mut needs = Needs::of(map);
        gone.iter().for_each(|osd| needs.take(*osd));
        while !edges.is_empty() {
            let mut others: BTreeMap<OsdId, BTreeSet<OsdId>> = BTreeMap::new();
            for (by, osd) in edges.keys() {
                others.entry(*osd).or_default().insert(*by);
                others.entry(*by).or_default().insert(*osd);
            }
            let most = |(osd, others): &(&OsdId, &BTreeSet<OsdId>)| {
                (
                    !needs.is_needed(**osd),
                    others.len(),
                    parted_before(osd),
                    **osd,
                )
            };
            let (osd, others) = others.iter().max_by_key(most).expect("there are edges");
            let Some(instance) = scene.instance(*osd) else {
                edges.retain(|(by, target), _| by != osd && target != osd);
                continue;
            };
            let who: Vec<String> = others.iter().take(3).map(ToString::to_string).collect();
            let why = format!(
                "it and {} do not hear each other, though others hear both",
                who.join(", ")
            );
            down.push(Down {
                osd: *osd,
                instance,
                why,
                silent: true,
                parted: true,
            });
            needs.take(*osd);
            edges.retain(|(by, target), _| by != osd && target != osd);
        }
    }

    /// Pairs of OSDs, both still up, of which one has not heard the other for longer than the
    /// grace, where others have.
    #[must_use]
    pub fn parted(&self) -> &BTreeSet<Parted> {
        &self.parted
    }

    /// Reporters that are ignored because they seem to be cut off themselves.
    #[must_use]
    pub fn suspects(&self) -> &BTreeSet<OsdId> {
        &self.suspects
    }

    /// Whether it has no entries.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.targets.is_empty()
            && self.history.is_empty()
            && self.suspects.is_empty()
            && self.parted.is_empty()
    }
}

/// All accusations at one moment.
struct Scene<'a> {
    /// Number of OSDs that each reporter accuses.
    accuses: BTreeMap<OsdId, usize>,
    /// All accused OSDs.
    accused: BTreeSet<OsdId>,
    /// OSDs accused by a reporter that is not cut off.
    credibly_accused: BTreeSet<OsdId>,
    up: Vec<OsdId>,
    instances: BTreeMap<OsdId, Instance>,
    hosts: &'a BTreeMap<OsdId, String>,
}

impl<'a> Scene<'a> {
    fn of(
        targets: &BTreeMap<OsdId, Target>,
        map: &ClusterMap,
        hosts: &'a BTreeMap<OsdId, String>,
    ) -> Self {
        let mut accuses = BTreeMap::new();
        for (osd, target) in targets {
            for reporter in target.reports.keys().filter(|reporter| *reporter != osd) {
                *accuses.entry(*reporter).or_default() += 1;
            }
        }
        let instances: BTreeMap<OsdId, Instance> = map
            .osds
            .iter()
            .filter(|(_, info)| info.up)
            .map(|(osd, info)| (*osd, info.instance))
            .collect();
        let up = instances.keys().copied().collect();
        let accused = targets.keys().copied().collect();
        let mut scene = Self {
            accuses,
            accused,
            credibly_accused: BTreeSet::new(),
            up,
            instances,
            hosts,
        };
        let credible = |(_, target): &(&OsdId, &Target)| {
            target
                .reports
                .keys()
                .any(|reporter| !scene.is_cut_off(*reporter))
        };
        scene.credibly_accused = targets
            .iter()
            .filter(credible)
            .map(|(osd, _)| *osd)
            .collect();
        scene
    }
    /// Whether it accuses more than half of the others, and more than one.
    fn accuses_most(&self, reporter: OsdId) -> bool {
        let accuses = self.accuses.get(&reporter).copied().unwrap_or(0);
        accuses >= 2 && accuses * 2 > self.up.len().saturating_sub(1)
    }
    fn is_cut_off(&self, reporter: OsdId) -> bool {
        self.accuses_most(reporter) && self.accused.contains(&reporter)
    }
    fn instance(&self, osd: OsdId) -> Option<Instance> {
        self.instances.get(&osd).copied()
    }
    fn host(&self, osd: OsdId) -> &str {
        self.hosts.get(&osd).map_or("", String::as_str)
    }
    /// Whether these reporters suffice: `wanted`, or all possible reporters if they are fewer; and
    /// the same for their hosts.
    fn suffice(&self, target: OsdId, by: &BTreeSet<OsdId>, wanted: usize) -> bool {
        // Accused OSDs may be dead: their reports are not required.
        let able = |osd: &&OsdId| {
            **osd != target && (!self.credibly_accused.contains(osd) || by.contains(osd))
        };
        let able: Vec<OsdId> = self.up.iter().filter(able).copied().collect();
        let able_hosts: BTreeSet<&str> = able.iter().map(|osd| self.host(*osd)).collect();
        let by_hosts: BTreeSet<&str> = by.iter().map(|osd| self.host(*osd)).collect();
        !by.is_empty()
            && by.len() >= wanted.min(able.len())
            && by_hosts.len() >= wanted.min(able_hosts.len())
    }
}

#[cfg(test)]
#[path = "failure_test.rs"]
mod tests;
