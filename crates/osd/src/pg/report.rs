//! The primary's report on its PG to the monitors.

use super::local::Local;
use super::primary::Primary;
use super::{Interval, Pg};
use nacre_wire::msg::monitor::{PgReport, pg_state};
use nacre_wire::msg::replication::Totals;

impl Pg {
    /// The report; `None` unless we are primary.
    #[must_use]
    pub fn report(&self) -> Option<PgReport> {
        let primary = self.as_primary()?;
        Some(primary.report(&self.local, &self.interval))
    }

    /// Whether every member that the pool requires acts and is complete.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.as_primary()
            .is_some_and(|primary| primary.is_clean(&self.local, &self.interval))
    }

    /// The PG's totals, as exact as known.
    #[must_use]
    pub fn totals(&self) -> Totals {
        match self.as_primary() {
            Some(primary) => primary.counting.totals(&self.local),
            None => self.local.totals(),
        }
    }

    /// Whether there may still be unneeded clones.
    #[must_use]
    pub fn is_trimming(&self) -> bool {
        self.as_primary()
            .is_some_and(|primary| primary.trimming.pending)
    }
}

impl Primary {
    fn report(&self, local: &Local, at: &Interval) -> PgReport {
        let mut state = self.peering.phase.state_bits();
        let totals = self.counting.totals(local);
        let wanted = at.size.max(at.acting.len());
        let absent = wanted - at.acting.len();
        let theirs = self.peers.values().map(|peer| peer.missing.len());
        let missing = local.missing.len() + theirs.sum::<usize>();
        let degraded = missing as u64 + totals.objects * absent as u64;
        if degraded > 0 || absent > 0 {
            state |= pg_state::DEGRADED;
        }
        if at.acting.len() < at.min_size {
            state |= pg_state::UNDERSIZED;
        }
        if at.acting != at.up {
            state |= pg_state::REMAPPED;
        }
        if state & pg_state::ACTIVE != 0 && missing > 0 {
            state |= pg_state::RECOVERING;
        }
        if at.backfill_targets().next().is_some() && state & pg_state::PEERING == 0 {
            state |= pg_state::BACKFILLING;
        }
        if self.is_clean(local, at) {
            state |= pg_state::CLEAN;
        }
        PgReport {
            pg: at.pg,
            interval: at.since,
            state,
            objects: totals.objects,
            bytes: totals.bytes,
            degraded,
            misplaced: 0,
            unfound: self.unfound(local),
            waits_for: self.peering.phase.waits_for(),
        }
    }

    /// The number of objects that no reachable member has, or can read completely.
    fn unfound(&self, local: &Local) -> u64 {
        let lost = self.damage.lost_count() as u64;
        if local.missing.is_empty() || self.is_complete_somewhere() {
            return lost;
        }
        let found = |object| self.sources(object, local).next().is_some();
        lost + local.missing.keys().filter(|object| !found(object)).count() as u64
    }

    /// See [`Pg::is_clean`].
    pub(super) fn is_clean(&self, local: &Local, at: &Interval) -> bool {
        let mut peers = self.peers.values();
        self.is_active()
            && at.acting == at.up
            && at.acting.len() >= at.size
            && local.missing.is_empty()
            && peers.all(|peer| peer.missing.is_empty() && peer.backfill.is_none())
    }
}
