//! The map's view of a placement group in its current interval. Every machine of the PG reads it;
//! only the PG itself changes it.

use crate::purpose::Purpose;
use crate::shared::Shared;
use nacre_role::Output;
use nacre_store::{Op, Read};
use nacre_types::{Epoch, OsdId, PgId, Time};
use nacre_wire::Message;
use nacre_wire::map::{Activation, ClusterMap, Pool};
use nacre_wire::msg::monitor::PgTemporaryRequest;

/// The map's view of the PG in its current interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    /// The PG.
    pub pg: PgId,
    /// The interval's first epoch.
    pub since: Epoch,
    /// The OSDs that should hold the PG.
    pub up: Vec<OsdId>,
    /// The OSDs that serve the PG.
    pub acting: Vec<OsdId>,
    /// Replicas needed to serve.
    pub min_size: usize,
    /// Replicas wanted.
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
    /// All OSDs that get updates.
    pub fn receivers(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.acting.iter().copied().chain(self.backfill_targets())
    }
    /// Requests another acting set from the monitors; empty: the one that the map computes.
    pub(super) fn request_acting(&self, acting: Vec<OsdId>, sh: &mut Shared) {
        sh.counters.borders.temporary += 1;
        let message = PgTemporaryRequest {
            pg: self.pg,
            interval: self.since,
            acting,
        };
        sh.out.push(Output::SendMon {
            message: Message::PgTemporaryRequest(message),
        });
    }
    /// The pool in the map.
    pub(super) fn pool<'a>(&self, sh: &'a Shared) -> Option<&'a Pool> {
        sh.map.as_ref()?.pools.get(&self.pg.pool)
    }
    /// The primary.
    pub(super) fn primary(&self) -> Option<OsdId> {
        self.acting.first().copied()
    }

    /// Reads; the reply returns to the PG as `purpose`, unless the interval has ended by then.
    pub(super) fn read(&self, sh: &mut Shared, read: Read, purpose: Purpose) {
        sh.read(self.pg, self.since, read, purpose);
    }
    /// Submits a transaction; its commit returns as `purpose`, unless the interval has ended by
    /// then.
    pub(super) fn submit(&self, sh: &mut Shared, ops: Vec<Op>, purpose: Purpose) {
        sh.submit(self.pg, self.since, ops, purpose);
    }
    /// Whether updates that need space are refused: a member cannot refuse an ordered update, so
    /// the primary must refuse it before.
    pub(super) fn is_full(&self, sh: &Shared) -> bool {
        sh.is_full(self.pg.pool) || self.receivers().any(|osd| sh.peers.is_nearly_full(osd))
    }

    /// When the right to answer reads ends.
    pub(super) fn lease_until(&self, sh: &Shared) -> Time {
        let me = sh.me();
        let others = self.acting.iter().filter(|osd| **osd != me);
        others
            .map(|osd| sh.peers.lease_until(*osd))
            .min()
            .unwrap_or(Time::MAX)
    }
}
