//! Invariants of a placement group between any two inputs: everything counted in one place exists
//! in another.
//!
//! A counter that is not decremented, or a note that is not removed, does harm much later and
//! elsewhere: an object that is held for ever, a daemon that accepts no more operations, a trimmer
//! without space. Simulation and tests check all of this after every step.

use super::primary::Primary;
use super::watch::Own;
use super::{Pg, Role};
use crate::key;
use nacre_types::OsdId;
use nacre_wire::{Record, RecordView};

impl Pg {
    /// Asserts the invariants in the heads of the PG's modules.
    pub fn check(&self) {
        let id = self.id();
        self.local.check();
        let seed = |object| key::seed(key::hash(object), self.local.pg_num);
        let newest = self.local.log.newest().map(RecordView::to_record);
        let noted = self
            .local
            .missing
            .keys()
            .chain(self.local.lost.keys())
            .chain(self.local.undone.keys());
        for object in noted.chain(newest.as_ref().map(Record::object)) {
            assert_eq!(seed(object), id.seed, "{id}: {object} is another group's");
        }
        let Role::Primary(primary) = &self.role else {
            return;
        };
        primary.check(&self.local, &self.interval);
        let (updates, reads, held) = primary.objects.counted();
        assert_eq!(
            updates,
            primary.in_flight.len(),
            "{id}: updates under way were miscounted"
        );
        assert_eq!(
            reads,
            primary.objects.under_way(),
            "{id}: operations that read were miscounted"
        );
        let copied = self.sending.holds() + primary.backfill.holds();
        assert_eq!(
            held, copied,
            "{id}: objects are held for copies that nobody makes"
        );
        let own = |is: fn(&Own) -> bool| {
            primary
                .objects
                .all()
                .filter(|op| op.own.as_ref().is_some_and(is))
                .count()
        };
        let probes = own(|own| matches!(own, Own::Probe { .. }));
        assert_eq!(
            primary.watching.probing(),
            probes,
            "{id}: pings that wait were miscounted"
        );
        let trims = own(|own| matches!(own, Own::Trim { .. }));
        assert_eq!(
            primary.trimming.in_queues(),
            trims,
            "{id}: names that are to be trimmed were miscounted"
        );
    }

    /// Whether a range is being compared.
    #[cfg(test)]
    pub(crate) fn has_range(&self) -> bool {
        self.as_primary()
            .is_some_and(|primary| primary.backfill.has_range())
    }

    /// The number of objects being recovered, as the daemon counts them.
    pub(crate) const fn recovering(&self) -> usize {
        self.counted.recovering
    }

    /// Bytes of updates that each acting member has not acknowledged.
    pub(crate) fn in_flight(&self, me: OsdId) -> Vec<(OsdId, u64)> {
        match self.as_primary() {
            Some(primary) => primary.under_way(me, &self.interval),
            None => Vec::new(),
        }
    }
}

impl Primary {
    /// Clients' operations here, and their bytes: all of them, and those that arrived while the PG
    /// did not serve.
    pub(crate) fn client_load(&self) -> [(usize, u64); 2] {
        let answers = self.in_flight.iter().flat_map(|update| &update.answers);
        let ordered = answers.filter_map(|answer| answer.op.as_deref());
        let all = self.objects.all().chain(ordered);
        let mut load = [(0, 0); 2];
        for op in all.filter(|op| op.is_counted()) {
            for (ops, bytes) in &mut load[..=usize::from(op.blocked)] {
                (*ops, *bytes) = (*ops + 1, *bytes + op.bytes());
            }
        }
        load
    }

    /// Notifies that wait for watchers here, and their bytes.
    pub(crate) fn notify_load(&self) -> (usize, u64) {
        let waiting = self.watching.operations();
        waiting.fold((0, 0), |(count, bytes), op| (count + 1, bytes + op.bytes()))
    }
}
