//! Membership: the map holds the desired members, and consensus is adjusted to it, one member at a
//! time.
//!
//! ```text
//!  mon add ─▶ map: expected ─▶ learner ─▶ caught up? voter
//!  mon rm  ─▶ map: leaving  ─▶ no member of consensus ─▶ no longer in the map: only now its process may end
//! ```
//! Removing a voter takes a majority of the voters, and of two its own vote. Found by simulation
//! (seed 1291): the map dropped a monitor at once, its operator was told to stop it and did, and
//! the other one waited for its vote for ever.

use super::Live;
use crate::command::Quorum;
use crate::raft::member::Member;
use nacre_types::{MonId, Time};
use nacre_wire::map::ClusterMap;
use raft::eraftpb::ConfChangeType;
use std::time::Duration;

/// A monitor silent for this long counts as unreachable.
const REACHABLE: Duration = Duration::from_secs(2);
/// A learner becomes a voter once it is this close to the log's end.
const CAUGHT_UP: u64 = 64;

/// The desired members.
fn staying(map: &ClusterMap) -> impl Iterator<Item = Member> + '_ {
    let staying = map.mons.iter().filter(|(_, info)| !info.leaving);
    staying.map(|(mon, info)| Member {
        mon: *mon,
        store: info.store,
    })
}

impl Live {
    /// Adjusts consensus to the map, one step at a time.
    pub(super) fn reconcile_members(&mut self, now: Time) {
        if !self.consensus.may_propose() {
            return;
        }
        let me = self.consensus.me();
        let wanted: Vec<Member> = staying(self.state.map()).collect();
        let (voters, learners) = self.members();
        for member in &wanted {
            if !voters.contains(member) && !learners.contains(member) {
                self.consensus
                    .propose_member(*member, ConfChangeType::AddLearnerNode);
                return;
            }
        }
        for member in &learners {
            let matched = self.consensus.matched(*member);
            let near = matched.is_some_and(|at| at > 0 && at + CAUGHT_UP >= self.consensus.last());
            if wanted.contains(member) && near && self.is_reachable(now, member.mon) {
                self.consensus
                    .propose_member(*member, ConfChangeType::AddNode);
                return;
            }
        }
        let rest: Vec<Member> = voters
            .iter()
            .filter(|member| wanted.contains(member))
            .copied()
            .collect();
        let reachable: Vec<Member> = rest
            .iter()
            .filter(|member| self.is_reachable(now, member.mon))
            .copied()
            .collect();
        for member in voters
            .iter()
            .chain(&learners)
            .filter(|member| !wanted.contains(member))
        {
            if voters.contains(member) && reachable.len() < rest.len() / 2 + 1 {
                continue; // the remaining ones could decide nothing without it
            }
            if *member == me {
                let best = reachable.iter().max_by_key(|other| {
                    (self.consensus.matched(**other), std::cmp::Reverse(**other))
                });
                if let Some(best) = best {
                    self.consensus.transfer(*best);
                }
            } else {
                self.consensus
                    .propose_member(*member, ConfChangeType::RemoveNode);
            }
            return;
        }
    }

    /// Monitors that were to leave and have left consensus.
    pub(super) fn gone(&self) -> Vec<MonId> {
        let takes_part = |mon: MonId| self.consensus.members().any(|member| member.mon == mon);
        let leaving = self
            .state
            .map()
            .mons
            .iter()
            .filter(|(_, info)| info.leaving)
            .map(|(mon, _)| *mon);
        leaving.filter(|mon| !takes_part(*mon)).collect()
    }

    /// Stops when it is in neither the map nor consensus any more.
    pub(super) fn notice_removal(&mut self) {
        let me = self.consensus.me();
        let known = self
            .state
            .map()
            .mons
            .get(&me.mon)
            .filter(|info| info.store == me.store);
        let stays = known.is_some_and(|info| !info.leaving);
        // Also for one that was started while it was to leave. (A new one's map may be older than
        // its addition.)
        self.was_member |= known.is_some();
        let takes_part = self.consensus.members().any(|member| member == me);
        if self.was_member && !stays && !takes_part {
            self.halted = Some(format!(
                "{} was removed from the cluster; its store may be wiped",
                me.mon
            ));
        }
    }

    fn is_reachable(&self, now: Time, mon: MonId) -> bool {
        mon == self.config.id
            || self
                .heard
                .get(&mon)
                .is_some_and(|at| now.since(*at) <= REACHABLE)
    }

    pub(super) fn quorum(&self, now: Time) -> Quorum {
        let voters = self.voters();
        Quorum {
            leader: self.consensus.leader(),
            term: self.consensus.term(),
            reachable: voters
                .iter()
                .filter(|mon| self.is_reachable(now, **mon))
                .copied()
                .collect(),
            voters,
            learners: self.consensus.learners().map(|member| member.mon).collect(),
        }
    }

    pub fn voters(&self) -> Vec<MonId> {
        self.consensus.voters().map(|member| member.mon).collect()
    }

    /// Voters and learners.
    pub fn members(&self) -> (Vec<Member>, Vec<Member>) {
        (
            self.consensus.voters().collect(),
            self.consensus.learners().collect(),
        )
    }
}
