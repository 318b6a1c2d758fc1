//! Early answers (CEPH-46): an update was reported as applied in memory on the whole acting set.
//! When may it be lost before its final answer?
//!
//! ```text
//!  OpApplied is sent ─▶ holders: the acting members whose logs have it   all that are in the interval must
//!  one crashes       ─▶ no longer a holder: it may not have flushed      (the others still are)
//!  a later interval  ─▶ only members of its activation still count       (others bring it back as divergent)
//!  no holder left    ─▶ legitimately lost: its client resends it
//! ```
//! While there is a holder, no client may read anything older (`streams.rs`).

use crate::world::{POOL, World};
use nacre_osd::pg::Pg;
use nacre_types::{ClientId, Entity, Epoch, ObjectId, OsdId, PgId};
use nacre_wire::msg::client::OpApplied;
use std::collections::{BTreeMap, BTreeSet};

/// A client and its operation's number.
pub type Name = (ClientId, u64);

/// An early answer whose final answer has not arrived.
#[derive(Debug)]
struct Early {
    object: ObjectId,
    interval: Epoch,
    holders: BTreeSet<OsdId>,
}

/// See the module head.
#[derive(Debug, Default)]
pub struct EarlyAnswers {
    held: BTreeMap<Name, Early>,
    lost: BTreeSet<Name>,
}

impl EarlyAnswers {
    /// Whether it may have been lost.
    #[must_use]
    pub fn is_lost(&self, name: &Name) -> bool {
        self.lost.contains(name)
    }
    /// How many were lost.
    #[must_use]
    pub fn lost(&self) -> usize {
        self.lost.len()
    }
    /// It got its final answer, or was abandoned.
    pub fn ended(&mut self, name: &Name) {
        self.held.remove(name);
    }
    /// The OSD crashed and lost what it had not flushed.
    pub fn crashed(&mut self, osd: OsdId) {
        self.only(|_| true, |holder| *holder != osd);
    }
    /// An interval was activated with these members.
    pub fn activated(
        &mut self,
        interval: Epoch,
        members: &[OsdId],
        is_home: impl Fn(&ObjectId) -> bool,
    ) {
        let later = |early: &Early| early.interval < interval && is_home(&early.object);
        self.only(later, |holder| members.contains(holder));
    }
    fn only(&mut self, which: impl Fn(&Early) -> bool, keep: impl Fn(&OsdId) -> bool) {
        let lost = &mut self.lost;
        self.held.retain(|name, early| {
            if which(early) {
                early.holders.retain(&keep);
            }
            let held = !early.holders.is_empty();
            if !held {
                lost.insert(*name);
            }
            held
        });
    }
}

impl World {
    /// A primary reports to a client that its update is applied everywhere.
    ///
    /// # Panics
    /// When it is not: that is the finding.
    pub(crate) fn see_early(&mut self, primary: OsdId, client: ClientId, applied: &OpApplied) {
        let Some(object) = self
            .records
            .streams
            .object_of(client, applied.request.sequence)
        else {
            return;
        };
        let version = applied.version;
        // According to how far each member has split the PG.
        let hash = nacre_osd::key::hash(&object);
        let has_it = |group: &&Pg| {
            self.is_ours(group.id())
                && nacre_osd::key::seed(hash, group.local.pg_num) == group.id().seed
        };
        let home = |osd: OsdId| self.groups(osd).find(has_it);
        let Some(group) = home(primary) else { return };
        let (pg, acting) = (group.id(), group.interval.acting.clone());
        let mut holders = BTreeSet::new();
        for osd in acting {
            let Some(member) = home(osd) else { continue };
            let head = member.local.log.head();
            let has = (head.interval == version.interval && head >= version)
                || member
                    .local
                    .log
                    .entries()
                    .any(|entry| entry.version() == version);
            // A member that has not left the interval since has it at least in memory. One that
            // lost power after reporting it, and has no instance yet, still names the interval on
            // its disk (seed 146).
            let is_live = self
                .processes
                .get(&Entity::Osd(osd))
                .and_then(|process| process.osd())
                .is_some_and(nacre_osd::Osd::is_live);
            assert!(
                has || member.interval.since != version.interval || !is_live,
                "{pg}: {} of {client} is said to be applied everywhere, {osd} has {head} of {version}",
                applied.request.sequence
            );
            if has {
                holders.insert(osd);
            }
        }
        let name = (client, applied.request.sequence);
        let early = Early {
            object,
            interval: version.interval,
            holders,
        };
        self.records.streams.early.held.insert(name, early);
        self.records.streams.early.only(|_| true, |_| true);
    }

    /// Whether it is a PG of the pool that streams write to.
    fn is_ours(&self, pg: PgId) -> bool {
        let map = self.ledger.map();
        map.and_then(|map| map.pools.get(&pg.pool))
            .is_some_and(|pool| pool.name == POOL.into())
    }

    fn groups(&self, osd: OsdId) -> impl Iterator<Item = &Pg> {
        self.processes
            .get(&Entity::Osd(osd))
            .and_then(|process| process.osd())
            .into_iter()
            .flat_map(|osd| osd.pgs())
    }

    /// Newly committed activations remove the early answers of OSDs that are not members.
    pub(crate) fn see_activations(&mut self) {
        for (pg, activation) in self.ledger.take_activations() {
            if !self.is_ours(pg) {
                continue;
            }
            let pool = self
                .ledger
                .map()
                .and_then(|map| map.pools.get(&pg.pool))
                .map(|pool| pool.pg_num);
            let seed = |object: &ObjectId| {
                pool.map(|pg_num| nacre_osd::key::seed(nacre_osd::key::hash(object), pg_num))
            };
            let is_home = |object: &ObjectId| seed(object) == Some(pg.seed);
            self.records
                .streams
                .early
                .activated(activation.interval, &activation.members, is_home);
        }
    }
}
