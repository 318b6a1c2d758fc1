//! The derived part of the map: up sets, acting sets, intervals.
//!
//! Runs once per delta, the same everywhere. CRUSH is asked again only when something it reads has changed; an OSD
//! going up or down costs a scan of the records.

use super::ClusterMap;
use nacre_crush::map::RuleKind;
use nacre_crush::place::{PoolPlacement, raw};
use nacre_crush::upmap::Upmaps;
use nacre_crush::{CrushMap, Reweights, Scratch};
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

pub(super) fn parse(text: &str) -> Result<CrushMap, String> {
    let map = nacre_crush::text::parse(text).map_err(|error| error.to_string())?;
    // Everybody maps every group by it.
    map.check_attempts()?;
    Ok(map)
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
    scratch: Scratch,
    reweights: Reweights,
    upmaps: Upmaps,
}

impl Placer {
    fn new(map: &ClusterMap) -> Self {
        let mut reweights = Reweights::default();
        for (osd, info) in &map.osds {
            reweights.set(*osd, nacre_crush::Weight(info.weight.0));
        }
        let items = map.upmaps.iter().map(|(pg, items)| ((pg.pool, pg.seed), items.clone())).collect();
        Self { scratch: Scratch::default(), reweights, upmaps: Upmaps { items, ..Upmaps::default() } }
    }

    fn raw(&mut self, map: &ClusterMap, pg: PgId) -> Vec<OsdId> {
        let pool = &map.pools[&pg.pool];
        let settings = PoolPlacement {
            pool: pg.pool,
            pg_num: pool.pg_num,
            pgp_num: pool.pgp_num,
            rule: u8::try_from(pool.rule).unwrap_or(u8::MAX),
            size: usize::from(pool.size),
            kind: RuleKind::Replicated,
        };
        let raw = raw(&map.crush.map, &settings, pg.seed, &self.reweights, &self.upmaps, &mut self.scratch);
        // A rule that is gone places nothing: the groups wait, visibly, until there is one again.
        let raw = raw.unwrap_or_default();
        // An OSD that is in the hierarchy but not in the map has never existed.
        raw.into_iter().filter_map(|item| item.device()).filter(|osd| map.osds.contains_key(osd)).collect()
    }
}
