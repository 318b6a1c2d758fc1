//! The derived part of the map: up sets, acting sets, intervals.
//!
//! Runs once per delta, identically everywhere. CRUSH is evaluated again only when something it
//! reads has changed. An OSD going up or down costs one scan of the records, which skips those that
//! do not involve it (F51).

use super::ClusterMap;
use nacre_crush::map::RuleKind;
use nacre_crush::place::{PoolPlacement, raw};
use nacre_crush::upmap::Upmaps;
use nacre_crush::{CrushMap, Reweights, Scratch};
use nacre_types::{Instance, OsdId, PgId, PoolId};
use std::collections::{BTreeMap, BTreeSet};

/// What the derivation needs of the map before the delta.
pub(super) struct Before {
    osds: BTreeMap<OsdId, (bool, Instance)>,
    sizes: BTreeMap<PoolId, (u8, u8)>,
    /// Whether any input of CRUSH has changed.
    pub crush_changed: bool,
    /// PGs that lost a part of their objects to new PGs: their interval ends.
    pub split: BTreeSet<PgId>,
}

fn lives(map: &ClusterMap) -> BTreeMap<OsdId, (bool, Instance)> {
    map.osds
        .iter()
        .map(|(osd, info)| (*osd, (info.up, info.instance)))
        .collect()
}
fn sizes(map: &ClusterMap) -> BTreeMap<PoolId, (u8, u8)> {
    map.pools
        .iter()
        .map(|(id, pool)| (*id, (pool.size, pool.min_size)))
        .collect()
}

impl Before {
    pub fn of(map: &ClusterMap) -> Self {
        Self {
            osds: lives(map),
            sizes: sizes(map),
            crush_changed: false,
            split: BTreeSet::new(),
        }
    }
}

pub(super) fn parse(text: &str) -> Result<CrushMap, String> {
    let map = nacre_crush::text::parse(text).map_err(|error| error.to_string())?;
    // Every daemon and client evaluates every PG by it.
    map.check_attempts()?;
    Ok(map)
}

impl ClusterMap {
    pub(super) fn derive_placement(&mut self, before: &Before) {
        self.derive(before, false);
    }

    /// With `all`, no record is skipped. Returns the number of skipped records.
    fn derive(&mut self, before: &Before, all: bool) -> usize {
        let now = lives(self);
        // Includes an OSD that died and came back within one delta: its new instance knows nothing
        // of the promises made by the old one.
        let changed: BTreeSet<OsdId> = now
            .iter()
            .filter(|(osd, life)| before.osds.get(osd) != Some(life))
            .map(|(osd, _)| *osd)
            .collect();
        let sizes = sizes(self);
        // A split, or the removal of an OSD, changes CRUSH's inputs.
        let quiet = !before.crush_changed && before.sizes == sizes && !all;
        let has_changed =
            |osds: &[OsdId]| !changed.is_empty() && osds.iter().any(|osd| changed.contains(osd));
        let mut placer: Option<Placer> = None;
        let mut passed = 0;
        let mut records = std::mem::take(&mut self.pgs);
        for (pg, record) in &mut records {
            // Without a temporary set, both sets are the up members of `raw`.
            if quiet
                && record.since != nacre_types::Epoch::NONE
                && record.temporary.is_empty()
                && record.acting == record.up
                && !has_changed(&record.raw)
            {
                passed += 1;
                continue;
            }
            if before.crush_changed || record.since == nacre_types::Epoch::NONE {
                record.raw = placer
                    .get_or_insert_with(|| Placer::new(self))
                    .raw(self, *pg);
            }
            let is_up = |osd: &OsdId| now.get(osd).is_some_and(|(up, _)| *up);
            let up: Vec<OsdId> = record.raw.iter().copied().filter(is_up).collect();
            let temporary: Vec<OsdId> = record.temporary.iter().copied().filter(is_up).collect();
            let acting = if temporary.is_empty() {
                up.clone()
            } else {
                temporary
            };
            let ends = record.since == nacre_types::Epoch::NONE
                || up != record.up
                || acting != record.acting
                || has_changed(&up)
                || has_changed(&acting)
                || before.split.contains(pg)
                || before.sizes.get(&pg.pool) != sizes.get(&pg.pool);
            record.up = up;
            record.acting = acting;
            if ends {
                record.since = self.epoch;
            }
        }
        self.pgs = records;
        passed
    }
}

/// Evaluates CRUSH.
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
        let items = map
            .upmaps
            .iter()
            .map(|(pg, items)| ((pg.pool, pg.seed), items.clone()))
            .collect();
        Self {
            scratch: Scratch::default(),
            reweights,
            upmaps: Upmaps {
                items,
                ..Upmaps::default()
            },
        }
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
        let raw = raw(
            &map.crush.map,
            &settings,
            pg.seed,
            &self.reweights,
            &self.upmaps,
            &mut self.scratch,
        );
        // A rule that no longer exists places nothing: the PGs wait, visibly, until there is one
        // again.
        let raw = raw.unwrap_or_default();
        // An OSD in the hierarchy but not in the map has never existed.
        raw.into_iter()
            .filter_map(|item| item.device())
            .filter(|osd| map.osds.contains_key(osd))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::{Address, Change, CrushSection, MapDelta, Pool, Weight};
    use nacre_types::{ClusterId, Epoch};

    const OSDS: u32 = 12;
    const POOL: PoolId = PoolId(1);

    fn map(pg_num: u32) -> ClusterMap {
        let mut text = String::new();
        for osd in 0..OSDS {
            text += &format!("device {osd} osd.{osd}\n");
        }
        text += "type 0 osd\ntype 1 root\nroot default { id -1 alg straw2 hash 0\n";
        for osd in 0..OSDS {
            text += &format!("item osd.{osd} weight 1.000\n");
        }
        text += "}\nrule data { id 0\ntype replicated\nmin_size 1\nmax_size 10\nstep take default\nstep choose firstn 0 type osd\nstep emit\n}\n";
        let mut map = ClusterMap::empty(
            ClusterId(1),
            CrushSection::parse(&text).expect("well-formed"),
        );
        let new = |osd| Change::OsdNew {
            osd: OsdId(osd),
            store: u128::from(osd) + 1,
        };
        let changes = (0..OSDS).map(new).chain([Change::PoolSet {
            pool: POOL,
            settings: Pool::replicated("p".into(), 3, 2, pg_num),
        }]);
        map.apply(&map.delta(changes.collect()))
            .expect("the next delta");
        map
    }

    fn up(osd: u32, instance: u64) -> Change {
        let (osd, store) = (OsdId(osd), u128::from(osd) + 1);
        let (instance, address) = (Instance(instance), Address("o".into()));
        Change::OsdUp {
            osd,
            instance,
            address,
            store,
            features: 0,
            process: 1,
        }
    }

    /// The map after a delta, computed with every record examined or with the usual skipping, and
    /// the number of records skipped.
    fn derived(map: &ClusterMap, delta: &MapDelta, all: bool) -> (ClusterMap, usize) {
        let mut map = map.clone();
        (map.epoch, map.digest) = (delta.epoch, map.digest.chain(&crate::Wire::to_bytes(delta)));
        let mut before = Before::of(&map);
        for change in &delta.changes {
            map.apply_change(change, &mut before);
        }
        let passed = map.derive(&before, all);
        (map, passed)
    }

    /// Applies deltas of all kinds, with and without skipping records: both give the same map.
    #[test]
    fn what_is_passed_over_would_not_have_changed() {
        let mut dice = 7u64;
        let mut below = move |n: u64| {
            dice = dice
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % n
        };
        let mut map = map(16);
        let (mut ends, mut stays, mut passed) = (0, 0, 0);
        for step in 1..1500u64 {
            let mut changes = Vec::new();
            for _ in 0..=below(3) {
                let osd = below(u64::from(OSDS)) as u32;
                let pg = PgId::replicated(POOL, below(u64::from(map.pools[&POOL].pg_num)) as u32);
                let instance = map
                    .osds
                    .get(&OsdId(osd))
                    .map_or(Instance(0), |info| info.instance);
                changes.push(match below(9) {
                    0..3 => up(osd, step),
                    3..5 => Change::OsdDown {
                        osd: OsdId(osd),
                        instance,
                    },
                    5 => Change::PgTemporary {
                        pg,
                        interval: map.pgs[&pg].since,
                        acting: (0..below(4))
                            .map(|_| OsdId(below(u64::from(OSDS)) as u32))
                            .collect(),
                    },
                    6 if below(8) == 0 => Change::OsdWeight {
                        osd: OsdId(osd),
                        weight: if below(2) == 0 { Weight(0) } else { Weight::IN },
                        automatic: false,
                    },
                    7 if below(20) == 0 => Change::OsdRemove { osd: OsdId(osd) },
                    8 if below(20) == 0 => Change::OsdNew {
                        osd: OsdId(osd),
                        store: u128::from(step) << 8,
                    },
                    _ => {
                        let mut settings = map.pools[&POOL].clone();
                        settings.min_size = 1 + below(2) as u8;
                        settings.pg_num = (settings.pg_num + below(30) as u32 / 29).min(40);
                        Change::PoolSet {
                            pool: POOL,
                            settings,
                        }
                    }
                });
            }
            let delta = map.delta(changes);
            let (slow, none) = derived(&map, &delta, true);
            assert_eq!(none, 0);
            passed += derived(&map, &delta, false).1;
            map.apply(&delta).expect("the next delta");
            assert_eq!(map, slow, "after {delta:?}");
            let now = map
                .pgs
                .values()
                .filter(|record| record.since == map.epoch)
                .count();
            (ends, stays) = (ends + now, stays + map.pgs.len() - now);
        }
        assert!(
            ends > 2000 && stays > 2000,
            "{ends} intervals ended, {stays} stayed"
        );
        assert!(
            passed > 2000 && passed <= stays,
            "{passed} of {stays} were passed over"
        );
        assert!(map.epoch > Epoch(1000));
    }

    /// F51: every delta allocated two new lists for each PG of the cluster. No test failed when all
    /// PGs were examined again: the map was the same, thirty times slower.
    #[test]
    fn a_delta_looks_at_the_groups_that_it_has_a_part_in() {
        let mut map = map(64);
        map.apply(&map.delta((0..OSDS).map(|osd| up(osd, 1)).collect()))
            .expect("the next delta");
        let passed = |map: &ClusterMap, change| derived(map, &map.delta(vec![change]), false).1;
        let config = Change::Config {
            key: "a".into(),
            value: Some("1".into()),
        };
        assert_eq!(passed(&map, config), 64, "no group has to do with it");
        for osd in 0..OSDS {
            let others = map
                .pgs
                .values()
                .filter(|record| !record.raw.contains(&OsdId(osd)))
                .count();
            assert!((16..64).contains(&others), "a group has three of twelve");
            let down = Change::OsdDown {
                osd: OsdId(osd),
                instance: Instance(1),
            };
            assert_eq!(passed(&map, down), others, "all but those of osd.{osd}");
        }
        // CRUSH reads weights, so any PG may get other members.
        let out = Change::OsdWeight {
            osd: OsdId(0),
            weight: Weight(0),
            automatic: false,
        };
        assert_eq!(passed(&map, out), 0);
    }

    /// F55: a few lines of a rule can demand ten thousand million attempts, and each daemon makes
    /// them for every PG. `check_attempts` finds such a rule; no test noticed when it was not
    /// called.
    #[test]
    fn a_hierarchy_that_tries_for_ever_is_not_taken() {
        let mut map = map(4);
        let (old, epoch) = (map.crush.clone(), map.epoch);
        let mild = old
            .text
            .replace("step take", "step set_choose_tries 1000\nstep take");
        let hostile = mild.replace("step take", "step set_choose_local_tries 100000\nstep take");
        assert!(nacre_crush::text::parse(&hostile).is_ok(), "a legal text");
        let why = CrushSection::parse(&hostile).expect_err("every group would be mapped by it");
        assert!(why.contains("rule 0 may make 100001000 attempts"), "{why}");
        // As a delta brings it: whole, or as a patch. The epoch advances with the old text.
        let hunks = |text: &str| Change::CrushPatch {
            hunks: crate::map::patch::diff(&old.text, text),
        };
        for change in [
            Change::Crush {
                text: hostile.clone(),
            },
            hunks(&hostile),
        ] {
            map.apply(&map.delta(vec![change])).expect("the next delta");
            assert_eq!(map.crush, old);
        }
        map.apply(&map.delta(vec![hunks(&mild)]))
            .expect("the next delta");
        assert_eq!((&*map.crush.text, map.epoch.0), (&*mild, epoch.0 + 3));
        // As a whole map.
        let bytes = crate::Wire::to_bytes(&map);
        assert!(<ClusterMap as crate::Wire>::from_bytes(&bytes).is_ok());
        map.crush.text = hostile.into();
        let refused = <ClusterMap as crate::Wire>::from_bytes(&crate::Wire::to_bytes(&map));
        assert_eq!(refused, Err(crate::Malformed::Value("CRUSH map")));
    }
}
