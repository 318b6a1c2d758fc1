//! Invariants of a daemon between any two inputs: every total over all PGs matches the PGs.

use super::Osd;
use crate::pg::Pg;
use crate::pg::primary::Primary;
use nacre_types::{OsdId, PgId};
use nacre_wire::map::ClusterMap;
use std::collections::BTreeMap;

impl Osd {
    /// Asserts the invariants of every PG.
    pub fn check(&self) {
        for (id, pg) in &self.pgs {
            pg.check();
            assert!(
                !pg.needs_tick() || pg.is_busy() || !self.is_live(),
                "{id} wants ticks and gets none"
            );
        }
        let busy = self.pgs.values().filter(|pg| pg.is_busy()).count();
        assert_eq!(self.busy, busy, "groups that want ticks were miscounted");
        let recovering: usize = self.pgs.values().map(Pg::recovering).sum();
        assert_eq!(
            self.sh.recovering, recovering,
            "objects under way were miscounted"
        );
        let leading = || self.pgs.values().filter_map(Pg::as_primary);
        let ranges = leading()
            .filter(|primary| primary.backfill.has_range())
            .count();
        assert_eq!(
            self.sh.backfilling, ranges,
            "ranges under way were miscounted"
        );
        assert!(
            ranges <= self.sh.config.limits.backfill_groups,
            "{ranges} groups hold a range for backfill"
        );
        let mut under_way: BTreeMap<OsdId, u64> = BTreeMap::new();
        for (osd, bytes) in self.pgs.values().flat_map(|pg| pg.in_flight(self.sh.me())) {
            *under_way.entry(osd).or_default() += bytes;
        }
        under_way.retain(|_, bytes| *bytes > 0);
        assert_eq!(
            self.sh.under_way.known(),
            under_way,
            "updates under way were miscounted"
        );
        self.check_load();
        if let Some(map) = &self.sh.map {
            map.check();
            if self.is_live()
                && map
                    .up_osd(self.id())
                    .is_some_and(|info| info.instance == self.instance())
            {
                self.check_news(map);
            }
        }
    }

    /// The counted client load matches the operations here: otherwise the daemon accepts no more,
    /// or accepts them without bound.
    fn check_load(&self) {
        let mut blocked: BTreeMap<PgId, (usize, u64)> = BTreeMap::new();
        let mut all = (0, 0);
        for pg in self.pgs.values() {
            let Some(primary) = pg.as_primary() else {
                continue;
            };
            let [here, waits] = primary.client_load();
            all = (all.0 + here.0, all.1 + here.1);
            if waits.0 > 0 {
                blocked.insert(pg.id(), waits);
            }
        }
        assert_eq!(
            self.sh.client_load, all,
            "operations of clients were miscounted"
        );
        let leading = self.pgs.values().filter_map(Pg::as_primary);
        let notifies = leading.map(Primary::notify_load);
        let notifies = notifies.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        assert_eq!(
            self.sh.notify_load, notifies,
            "notifies that wait were miscounted"
        );
        assert_eq!(
            self.sh.blocked_load, blocked,
            "operations of groups that did not serve were miscounted"
        );
    }

    /// Nothing from before the newest map is left: no message that waited for it, and no state of
    /// peers' earlier instances.
    fn check_news(&self, map: &ClusterMap) {
        let epoch = map.epoch;
        self.held.check(epoch);
        for (osd, instance) in self.sh.peers.instances() {
            let now = map.up_osd(osd).map(|info| info.instance);
            assert_eq!(
                now,
                Some(instance),
                "what is known of {osd} is of another life of it"
            );
        }
    }
}
