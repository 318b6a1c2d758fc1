//! Invariants that must hold at every moment, and the conditions of a healthy cluster.

use crate::plan::SECOND;
use crate::process::Daemon;
use crate::world::World;
use nacre_types::{Entity, Epoch, ObjectId, OsdId, PgId, Version};
use std::collections::BTreeMap;

/// How long an interval may take until it serves when there are no faults: leases expire, and lost
/// messages are repeated.
const SETTLE_NS: u64 = 6 * SECOND;

impl World {
    /// Checks each daemon's invariants, and those between daemons.
    pub(crate) fn check(&self) {
        for process in self.processes.values() {
            if let Some(role) = &process.role {
                role.check();
            }
            let Some(osd) = process.osd() else { continue };
            for group in osd.pgs() {
                let Some(primary) = group.as_primary() else {
                    continue;
                };
                for (peer, state) in &primary.peers {
                    // No member has acknowledged what it does not have. An OSD that is not up yet
                    // may have a new store and not know what was acknowledged under its name.
                    let other = self.processes[&Entity::Osd(*peer)]
                        .osd()
                        .filter(|osd| osd.is_live());
                    let other =
                        other.and_then(|role| role.pgs().find(|other| other.id() == group.id()));
                    let Some(other) =
                        other.filter(|other| other.interval.since == group.interval.since)
                    else {
                        continue;
                    };
                    let head = other.local.log.head();
                    let (pg, acked) = (group.id(), state.acked);
                    assert!(
                        acked <= head,
                        "{pg}: {peer} is said to have {acked}, its log ends at {head}"
                    );
                }
            }
        }
        self.at_most_one_leader_serves();
    }

    /// The last fault was a while ago, and neither restarts nor the operator's orders have repaired
    /// anything: every PG with enough members serves. From now on everything is put in order.
    pub(crate) fn calm_down(&mut self) {
        self.must_answer();
        self.must_answer_from = u64::MAX;
        for pg in self.groups_that_can_serve() {
            let record = &self.ledger.map().expect("it has groups").pgs[&pg];
            let serves = record.primary().is_some_and(|osd| {
                let role = self.processes[&Entity::Osd(osd)].osd();
                role.and_then(|role| role.pgs().find(|group| group.id() == pg))
                    .is_some_and(|group| {
                        group.interval.since == record.since
                            && group
                                .as_primary()
                                .is_some_and(|primary| primary.is_active())
                    })
            });
            assert!(
                serves,
                "{pg} has its members and does not serve: {}",
                self.unclean()
            );
        }
        self.put_in_order();
    }

    /// PGs whose interval is old enough to serve, with enough members, or with enough possible
    /// members: OSDs that are up and were members when the PG last served, out or not.
    fn groups_that_can_serve(&self) -> Vec<PgId> {
        let Some(map) = self.ledger.map() else {
            return Vec::new();
        };
        let enough = |pg: &PgId, members: usize| {
            map.pools
                .get(&pg.pool)
                .is_some_and(|pool| members >= usize::from(pool.min_size))
        };
        let old = |since: Epoch| {
            self.ledger
                .seen_at(since)
                .is_some_and(|at| self.now() >= at + SETTLE_NS)
        };
        let there = |record: &nacre_wire::map::PgRecord| {
            let known = record
                .activated
                .members
                .iter()
                .filter(|osd| map.up_osd(**osd).is_some())
                .count();
            if record.up.is_empty() {
                0
            } else {
                record.acting.len().max(known)
            }
        };
        let able = map
            .pgs
            .iter()
            .filter(|(pg, record)| enough(pg, there(record)) && old(record.since));
        able.map(|(pg, _)| *pg).collect()
    }

    fn is_of_registers(&self, pg: PgId) -> bool {
        let pool = self
            .ledger
            .map()
            .and_then(|map| map.pool_named(&crate::world::POOL.into()));
        pool.is_some_and(|(id, _)| id == pg.pool)
    }

    /// Checks the operations abandoned since `ended`: nothing may hang without faults.
    pub(crate) fn must_have_answered(&self, ended: usize, hung: usize) {
        if self.must_answer_from == u64::MAX {
            return;
        }
        let able = self.groups_that_can_serve();
        for (object, begun) in &self.records.streams.hung[hung..] {
            let home = able
                .iter()
                .any(|pg| self.is_of_registers(*pg) && self.is_home(*pg, object));
            assert!(
                !home || *begun < self.must_answer_from,
                "nothing is wrong, and no answer came for what was asked of {object} at {begun}: {}",
                self.unclean()
            );
        }
        for (place, record) in self
            .records
            .registers
            .history
            .iter()
            .enumerate()
            .skip(ended)
        {
            // Where hardly any client is remembered, a refusal is an answer.
            if self.plan.lives && self.records.registers.refused.contains(&place) {
                continue;
            }
            // A write that found no space is retried by its client, which takes a second and a half
            // each time.
            let waited = self.now() >= record.invoke_ns + SETTLE_NS;
            let late = record.unknown && record.invoke_ns >= self.must_answer_from && waited;
            let Some(key) = record.key.parse().ok().filter(|_| late) else {
                continue;
            };
            let home = able
                .iter()
                .any(|pg| self.is_of_registers(*pg) && self.registers(*pg).contains(&key));
            assert!(
                !home,
                "nothing is wrong, and no answer came for {record:?}: {}",
                self.unclean()
            );
        }
    }

    /// Checks operations that have been waiting for as long as is acceptable: nothing may hang
    /// without faults.
    fn must_answer(&self) {
        let able = self.groups_that_can_serve();
        for client in &self.clients {
            for (object, begun) in client.waits_for(&self.records) {
                let late = begun >= self.must_answer_from && self.now() >= begun + SETTLE_NS;
                let home = able
                    .iter()
                    .any(|pg| self.is_of_registers(*pg) && self.is_home(*pg, &object));
                assert!(
                    !(late && home),
                    "nothing is wrong, and {} waits for an answer to what it asked of {object} at {begun}: {}",
                    client.role.id(),
                    self.unclean()
                );
            }
        }
    }

    /// A term has one leader; what leaders of different terms answer is judged by the registers'
    /// histories.
    fn at_most_one_leader_serves(&self) {
        let mut terms: Vec<u64> = Vec::new();
        for process in self.processes.values() {
            if let Some(mon) = process.mon().filter(|mon| mon.is_leader()) {
                terms.push(mon.term());
            }
        }
        terms.sort_unstable();
        assert!(
            terms.is_sorted_by(|a, b| a < b),
            "two leaders in one term: {terms:?}"
        );
    }

    /// Every PG has all its replicas where they belong; every running monitor has the newest map.
    pub(crate) fn is_clean(&self) -> bool {
        let Some(map) = self.ledger.map() else {
            return false;
        };
        let told = self
            .processes
            .values()
            .filter_map(|process| process.mon())
            .all(|mon| mon.epoch() == map.epoch);
        told && !map.pgs.is_empty()
            && map.pgs.iter().all(|(pg, record)| {
                Self::has_copies(map, *pg, record.acting.len())
                    && record
                        .primary()
                        .is_some_and(|osd| self.pg_is_clean(osd, *pg, record.since))
            })
    }

    /// As many replicas as the pool wants. The programs' pool may want fewer than the plan: it has
    /// as many replicas as the cluster had OSDs when it was created.
    fn has_copies(map: &nacre_wire::ClusterMap, pg: PgId, members: usize) -> bool {
        map.pools
            .get(&pg.pool)
            .is_some_and(|pool| members >= usize::from(pool.size))
    }

    fn pg_is_clean(&self, osd: OsdId, pg: PgId, since: Epoch) -> bool {
        let role = self.processes[&Entity::Osd(osd)].osd();
        // An OSD that has not heard of a removed snapshot does not know that there is something to
        // trim.
        let snaps =
            |map: &nacre_wire::ClusterMap| map.pools.get(&pg.pool).map(|pool| pool.snaps.clone());
        let knows = role.and_then(|role| snaps(role.map()?)) == self.ledger.map().and_then(snaps);
        let group = role
            .and_then(|role| role.pgs().find(|group| group.id() == pg))
            .filter(|_| knows);
        let whole = group.is_some_and(|group| {
            group
                .interval
                .acting
                .iter()
                .all(|osd| !self.has_lost_parts(*osd, pg))
        });
        group.is_some_and(|group| {
            group.interval.since == since && group.is_clean() && !group.is_trimming()
        }) && whole
    }

    /// Whether every PG that this OSD may have a replica of has a complete replica elsewhere, with
    /// everything that is logged.
    pub(crate) fn others_are_complete(&self, but: OsdId) -> bool {
        let Some(map) = self.ledger.map() else {
            return false;
        };
        map.pgs.iter().all(|(pg, record)| {
            let primary = record
                .primary()
                .and_then(|osd| self.processes[&Entity::Osd(osd)].osd());
            let Some(group) = primary.and_then(|role| role.pgs().find(|group| group.id() == *pg))
            else {
                return false;
            };
            let Some(leads) = group.as_primary().filter(|leads| leads.is_active()) else {
                return false;
            };
            let own = record.primary() != Some(but) && group.local.missing.is_empty();
            let head = group.local.log.head();
            let mut peers = leads
                .peers
                .iter()
                .filter(|(osd, _)| **osd != but && record.acting.contains(osd));
            own || peers.any(|(_, peer)| {
                peer.missing.is_empty() && peer.backfill.is_none() && peer.acked == head
            })
        })
    }

    /// Whether a member knows of replicas of its own that have lost data. Its primary learns of it
    /// a moment later.
    fn has_lost_parts(&self, osd: OsdId, pg: PgId) -> bool {
        let group = self.processes[&Entity::Osd(osd)]
            .osd()
            .and_then(|role| role.pgs().find(|group| group.id() == pg));
        group.is_some_and(|group| !group.local.lost.is_empty())
    }

    /// PGs that lack replicas, and the OSDs that have them.
    pub(crate) fn unclean_groups(&self) -> Vec<(PgId, Vec<OsdId>)> {
        let Some(map) = self.ledger.map() else {
            return Vec::new();
        };
        let is_clean = |pg: PgId, record: &nacre_wire::map::PgRecord| {
            Self::has_copies(map, pg, record.acting.len())
                && record
                    .primary()
                    .is_some_and(|osd| self.pg_is_clean(osd, pg, record.since))
        };
        map.pgs
            .iter()
            .filter(|(pg, record)| !is_clean(**pg, record))
            .map(|(pg, record)| (*pg, record.acting.clone()))
            .collect()
    }

    /// Replicas that a running OSD knows to have lost data in a PG.
    pub(crate) fn lost_of(&self, osd: OsdId, pg: PgId) -> Vec<(ObjectId, Version)> {
        let group = self.group(osd, pg);
        group.map_or_else(Vec::new, |group| {
            group
                .local
                .lost
                .iter()
                .map(|(object, at)| (object.clone(), *at))
                .collect()
        })
    }

    /// Records what OSDs report as corrupt: at the end they may have forgotten it together with the
    /// replica.
    pub(crate) fn note_rot(&mut self) {
        let rotten = self
            .processes
            .values()
            .filter(|process| process.disk.rotten)
            .filter_map(|process| process.osd());
        let notes = rotten
            .flat_map(|role| role.pgs())
            .flat_map(|group| group.local.lost.iter());
        let new: Vec<_> = notes
            .map(|(object, version)| (object.clone(), *version))
            .collect();
        self.rotted.extend(new);
    }

    /// The objects that a running OSD lacks of a PG, and the versions that it needs.
    pub(crate) fn missed_by(&self, osd: OsdId, pg: PgId) -> BTreeMap<ObjectId, Version> {
        let missing = self
            .group(osd, pg)
            .into_iter()
            .flat_map(|group| group.local.missing.values());
        missing
            .map(|missing| (missing.object.clone(), missing.need))
            .collect()
    }

    /// The version of an object that a running OSD lacks.
    pub(crate) fn needs_of(&self, osd: OsdId, pg: PgId, object: &ObjectId) -> Option<Version> {
        self.group(osd, pg)?
            .local
            .missing
            .get(object)
            .map(|missing| missing.need)
    }

    /// A human-readable list of what is not healthy.
    pub(crate) fn unclean(&self) -> String {
        let mut lines = String::new();
        for (who, process) in &self.processes {
            let session = self.sessions.of(*who);
            let state = match &process.role {
                None => "does not run".to_owned(),
                Some(Daemon::Mon(mon)) => {
                    let (voters, learners) = mon.members();
                    format!(
                        "leader {:?} leads {} term {} log {:?} {} voters {voters:?} learners {learners:?} refused {:?}",
                        mon.leader(),
                        mon.is_leader(),
                        mon.term(),
                        mon.log_bounds(),
                        mon.epoch(),
                        mon.counters().rejects,
                    )
                }
                Some(Daemon::Osd(osd)) => {
                    let (beacon, _) = osd.last_words();
                    format!(
                        "{} {} live {} session {session:?} uses {} of {} KiB",
                        osd.instance(),
                        osd.epoch(),
                        osd.is_live(),
                        beacon.used >> 10,
                        beacon.total >> 10,
                    )
                }
            };
            lines += &format!("\n  {who}: {state}");
        }
        for registrar in self
            .registrars
            .iter()
            .filter(|registrar| !registrar.finished || registrar.is_busy())
        {
            lines += &format!("\n  {} has not come to rest", registrar.entity());
        }
        for client in self
            .clients
            .iter()
            .filter(|client| !client.is_settled(&self.records))
        {
            lines += &format!("\n  {} has not come to rest", client.role.id());
        }
        let Some(map) = self.ledger.map() else {
            return lines;
        };
        for (osd, info) in &map.osds {
            lines += &format!(
                "\n  {osd}: map up {} {} weight {:?}",
                info.up, info.instance, info.weight
            );
        }
        for (pg, record) in &map.pgs {
            if Self::has_copies(map, *pg, record.acting.len())
                && record
                    .primary()
                    .is_some_and(|osd| self.pg_is_clean(osd, *pg, record.since))
            {
                continue;
            }
            let primary = record
                .primary()
                .and_then(|osd| self.processes[&Entity::Osd(osd)].osd());
            let group = primary.and_then(|role| role.pgs().find(|group| group.id() == *pg));
            let state = group.map(|group| {
                let phase = group
                    .as_primary()
                    .map(|primary| format!("{:?}", primary.peering.phase));
                let peers = group.as_primary().map(|p| {
                    p.peers
                        .iter()
                        .map(|(o, s)| {
                            let missing: Vec<String> = s
                                .missing
                                .values()
                                .map(|m| format!("{} at {}", m.object, m.need))
                                .collect();
                            format!(
                                "{o}: missing {missing:?} backfill {:?}",
                                s.backfill.is_some()
                            )
                        })
                        .collect::<Vec<_>>()
                });
                let missing: Vec<_> = group.local.missing.keys().collect();
                let backfill = group
                    .as_primary()
                    .map(|primary| format!("{:?}", primary.backfill));
                format!(
                    "since {} {phase:?} missing {missing:?} peers {peers:?} {backfill:?}",
                    group.interval.since
                )
            });
            // All OSDs, not only members: one that is being filled may have what members lack.
            for osd in &self.osds() {
                let role = self.processes[&Entity::Osd(*osd)].osd();
                let Some(group) = role.and_then(|role| role.pgs().find(|group| group.id() == *pg))
                else {
                    continue;
                };
                let lost = &group.local.lost;
                if !lost.is_empty() {
                    lines += &format!("\n  {pg}: {osd} has lost parts of {lost:?}");
                }
                for undone in group.local.undone.values() {
                    lines += &format!(
                        "\n  {pg}: {osd} has {} with {} undone",
                        undone.object,
                        undone.entries.len()
                    );
                }
            }
            lines += &format!(
                "\n  {pg} since {} up {:?} acting {:?} temporary {:?} activated {:?}: {state:?}",
                record.since, record.up, record.acting, record.temporary, record.activated
            );
        }
        for wish in self.operator.unmet(map) {
            lines += &format!("\n  not done: {wish}");
        }
        lines + &self.blocked()
    }
}
