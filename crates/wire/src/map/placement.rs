//! The derived part of the map: up sets, acting sets, intervals.
//!
//! Runs once per delta, the same everywhere. CRUSH is asked again only when something it reads has changed; an OSD
//! going up or down costs a scan of the records.

use super::{ClusterMap, Weight};
use nacre_crush::Crush;
use nacre_types::{Instance, OsdId, PgId, PoolId};
use std::collections::{BTreeMap, BTreeSet};

/// What the derivation needs to know of the map before the delta.
pub(super) struct Before {
    osds: BTreeMap<OsdId, (bool, Instance)>,
    sizes: BTreeMap<PoolId, (u8, u8)>,
    /// Whether anything that CRUSH reads has changed.
    pub crush_changed: bool,
    /// Groups that lost a part of their objects to new groups: their interval ends.
    pub split: BTreeSet<PgId>,
}

fn lives(map: &ClusterMap) -> BTreeMap<OsdId, (bool, Instance)> {
    map.osds.iter().map(|(osd, info)| (*osd, (info.up, info.instance))).collect()
}
fn sizes(map: &ClusterMap) -> BTreeMap<PoolId, (u8, u8)> {
    map.pools.iter().map(|(id, pool)| (*id, (pool.size, pool.min_size))).collect()
}

impl Before {
    pub fn of(map: &ClusterMap) -> Self {
        Self { osds: lives(map), sizes: sizes(map), crush_changed: false, split: BTreeSet::new() }
    }
}

pub(super) fn parse(text: &str) -> Result<Crush, String> {
    nacre_crush::text::parse(text).map_err(|error| error.to_string())
}

impl ClusterMap {
    pub(super) fn derive_placement(&mut self, before: &Before) {
        let now = lives(self);
        // Also an OSD that died and came back within one delta: its new life knows nothing of the old one's promises.
        let changed: BTreeSet<OsdId> =
            now.iter().filter(|(osd, life)| before.osds.get(osd) != Some(life)).map(|(osd, _)| *osd).collect();
        let sizes = sizes(self);
        let mut placer = Placer::new(self);
        let mut records = std::mem::take(&mut self.pgs);
        for (pg, record) in &mut records {
            if before.crush_changed || record.since == nacre_types::Epoch::NONE {
                record.raw = placer.raw(self, *pg);
            }
            let is_up = |osd: &OsdId| now.get(osd).is_some_and(|(up, _)| *up);
            let up: Vec<OsdId> = record.raw.iter().copied().filter(is_up).collect();
            let temporary: Vec<OsdId> = record.temporary.iter().copied().filter(is_up).collect();
            let acting = if temporary.is_empty() { up.clone() } else { temporary };
            let member_changed = |members: &[OsdId]| members.iter().any(|osd| changed.contains(osd));
            let ends = record.since == nacre_types::Epoch::NONE
                || up != record.up
                || acting != record.acting
                || member_changed(&up)
                || member_changed(&acting)
                || before.split.contains(pg)
                || before.sizes.get(&pg.pool) != sizes.get(&pg.pool);
            record.up = up;
            record.acting = acting;
            if ends {
                record.since = self.epoch;
            }
        }
        self.pgs = records;
    }
}

/// Asks CRUSH.
struct Placer {
    scratch: nacre_crush::Scratch,
    reweights: Vec<u32>,
}

impl Placer {
    fn new(map: &ClusterMap) -> Self {
        let len = map.osds.last_key_value().map_or(0, |(osd, _)| osd.0 as usize + 1);
        let mut reweights = vec![Weight::OUT.0; len];
        for (osd, info) in &map.osds {
            reweights[osd.0 as usize] = info.weight.0;
        }
        Self { scratch: nacre_crush::Scratch::default(), reweights }
    }

    fn raw(&mut self, map: &ClusterMap, pg: PgId) -> Vec<OsdId> {
        let pool = &map.pools[&pg.pool];
        let _ = &self.scratch;
        map.crush
            .map
            .standin(pg.pool.0, pg.seed, usize::from(pool.size), &self.reweights)
            .into_iter()
            .map(OsdId)
            .collect()
    }
}
