//! What the map says of a placement group in its current interval. Every machine of the group sees
//! it; only the group itself changes it.

use crate::awaited::Awaited;
use crate::shared::Shared;
use nacre_store::{Op, Read};
use nacre_types::{Epoch, OsdId, PgId};
use nacre_wire::map::{Activation, ClusterMap};

/// What the map says of the group in its current interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    /// Which group.
    pub pg: PgId,
    /// First epoch.
    pub since: Epoch,
    /// Those who should hold it.
    pub up: Vec<OsdId>,
    /// Those who serve it.
    pub acting: Vec<OsdId>,
    /// Copies needed to serve.
    pub min_size: usize,
    /// Copies wanted.
    pub size: usize,
    /// The last activation.
    pub activated: Activation,
}

impl Interval {
    /// No interval yet.
    pub(super) fn none(pg: PgId) -> Self {
        Self {
            pg,
            ..Self::default()
        }
    }
    pub(super) fn of(map: &ClusterMap, pg: PgId) -> Option<Self> {
        let record = map.pgs.get(&pg)?;
        let pool = map.pools.get(&pg.pool)?;
        Some(Self {
            pg,
            since: record.since,
            up: record.up.clone(),
            acting: record.acting.clone(),
            min_size: usize::from(pool.min_size),
            size: usize::from(pool.size),
            activated: record.activated.clone(),
        })
    }
    /// Up members that do not serve yet.
    pub fn backfill_targets(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.up
            .iter()
            .copied()
            .filter(|osd| !self.acting.contains(osd))
    }
    /// Everyone who gets updates.
    pub fn receivers(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.acting.iter().copied().chain(self.backfill_targets())
    }
    /// Who leads.
    pub(super) fn primary(&self) -> Option<OsdId> {
        self.acting.first().copied()
    }

    /// Reads; the reply comes back to the group as `awaited`, unless the interval is over by then.
    pub(super) fn read(&self, sh: &mut Shared, read: Read, awaited: Awaited) {
        sh.read(self.pg, self.since, read, awaited);
    }
    /// Submits a transaction; its commit comes back as `awaited`, unless the interval is over by
    /// then.
    pub(super) fn submit(&self, sh: &mut Shared, ops: Vec<Op>, awaited: Awaited) {
        sh.submit(self.pg, self.since, ops, awaited);
    }
}
