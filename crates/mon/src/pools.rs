//! Creating and changing pools: defaults and checks.
//!
//! Placement groups per pool (CEPH-40): such that each OSD holds about `mon.pg_per_osd_target`
//! replicas over all pools, a power of two (PGs of equal size); never more than
//! `mon.pg_per_osd_max` replicas per OSD.

use nacre_command::{PoolCreate, Text, Whole};
use nacre_crush::map::RuleKind;
use nacre_crush::place::{PoolPlacement, raw};
use nacre_crush::upmap::Upmaps;
use nacre_crush::{Reweights, Scratch};
use nacre_types::PoolId;
use nacre_wire::map::{ClusterMap, Pool, Weight, pool_flag};

use crate::options;

/// Longest pool name, in bytes.
pub const NAME_LEN_MAX: usize = 255;
/// Maximum number of PGs per pool.
pub use nacre_wire::map::PG_NUM_MAX;
/// Maximum number of replicas.
pub const SIZE_MAX: u8 = 10;

fn osds_in(map: &ClusterMap) -> u64 {
    map.osds
        .values()
        .filter(|info| info.weight != Weight::OUT)
        .count() as u64
}

/// Replicas of PGs that exist (or would), over all pools but `except`.
fn copies(map: &ClusterMap, except: Option<PoolId>) -> u64 {
    let osds = osds_in(map);
    let of = |pool: &Pool| u64::from(pool.pg_num) * u64::from(pool.size).min(osds.max(1));
    map.pools
        .iter()
        .filter(|(id, _)| Some(**id) != except)
        .map(|(_, pool)| of(pool))
        .sum()
}

/// The number of PGs of a new pool with `size` replicas.
#[must_use]
pub fn choose_pg_num(map: &ClusterMap, size: u8) -> u32 {
    let all = osds_in(map).max(1) * options::number(map, "mon.pg_per_osd_target");
    // Later pools get a share even if the first ones used the whole budget.
    let budget = all.saturating_sub(copies(map, None)).max(all / 8);
    let copies = u64::from(size).min(osds_in(map).max(1));
    let wanted = (budget / copies).clamp(1, u64::from(PG_NUM_MAX));
    // The power of two at or below; there are many PGs, so losing up to half of the target costs
    // little balance.
    1 << wanted.ilog2()
}

fn size(value: u64, what: &str) -> Result<u8, String> {
    match u8::try_from(value) {
        Ok(value) if (1..=SIZE_MAX).contains(&value) => Ok(value),
        _ => Err(format!(
            "{what} is a number from 1 to {SIZE_MAX}, not {value}"
        )),
    }
}

fn check_pg_num(map: &ClusterMap, pool: Option<PoolId>, settings: &Pool) -> Result<(), String> {
    let osds = osds_in(map).max(1);
    let max = options::number(map, "mon.pg_per_osd_max");
    let total = copies(map, pool) + u64::from(settings.pg_num) * u64::from(settings.size).min(osds);
    if total > max * osds {
        let room =
            (max * osds).saturating_sub(copies(map, pool)) / u64::from(settings.size).min(osds);
        return Err(format!(
            "{} groups of {} copies would make {} copies per OSD on average, more than mon.pg_per_osd_max = {max}: at most {room} groups \
             fit; add OSDs or raise the option",
            settings.pg_num,
            settings.size,
            total / osds
        ));
    }
    Ok(())
}

/// Human-readable warnings about valid settings.
#[must_use]
pub fn warnings(map: &ClusterMap, settings: &Pool) -> Vec<String> {
    let mut warnings = Vec::new();
    let osds = osds_in(map);
    if u64::from(settings.size) > osds {
        warnings.push(format!(
            "pool {} wants {} copies, but there are {osds} OSDs: it stays degraded",
            settings.name, settings.size
        ));
    }
    if u64::from(settings.min_size) > osds {
        warnings.push(format!(
            "it needs {} copies to accept anything, so it does not serve yet",
            settings.min_size
        ));
    }
    if settings.min_size == 1 && settings.size > 1 {
        warnings.push(
            "min_size 1 accepts writes that exist once: one failing disk then loses them"
                .to_owned(),
        );
    }
    warnings
}

/// A new pool.
///
/// # Errors
/// A human-readable sentence.
pub fn create(map: &ClusterMap, wish: &PoolCreate) -> Result<(PoolId, Pool), String> {
    let number = |field: Option<Whole>| field.map(|number| number.0);
    let rule: u64 = match &wish.rule {
        None => 0,
        Some(Text(rule)) => rule
            .parse()
            .map_err(|_| format!("`rule` is a whole number, 0 or more, not `{rule}`"))?,
    };
    let name = wish.name.as_str();
    if name.is_empty() || name.len() > NAME_LEN_MAX || name.chars().any(char::is_control) {
        return Err(format!(
            "a pool's name has 1 to {NAME_LEN_MAX} bytes without control characters"
        ));
    }
    if map.pool_named(&name.into()).is_some() {
        return Err(format!("there is a pool {name} already"));
    }
    let copies = size(
        number(wish.size).unwrap_or_else(|| options::number(map, "pool.default_size")),
        "size",
    )?;
    let min_default = || options::number(map, "pool.default_min_size").min(u64::from(copies));
    let min_size = size(
        number(wish.min_size).unwrap_or_else(min_default),
        "min_size",
    )?;
    if min_size > copies {
        return Err(format!("min_size {min_size} is more than size {copies}"));
    }
    let pg_num = match number(wish.pg_num) {
        None => choose_pg_num(map, copies),
        Some(number) => pg_num(number)?,
    };
    let rule = u32::try_from(rule).map_err(|_| "rule is a small number".to_owned())?;
    let settings = Pool {
        rule,
        created: map.epoch.next(),
        ..Pool::replicated(name.into(), copies, min_size, pg_num)
    };
    check_pg_num(map, None, &settings)?;
    // Ids are inputs of the placement hash and are never reused.
    let id = PoolId(map.pool_last.0 + 1);
    check_rule(map, id, &settings)?;
    Ok((id, settings))
}

/// Number of seeds tried to determine what a rule can place.
const SEEDS_TRIED: u32 = 64;

/// Maximum number of replicas that the rule places, over a sample of PGs; OSDs that are down count,
/// those that are out do not.
fn places(map: &ClusterMap, pool: PoolId, settings: &Pool) -> Result<usize, String> {
    let rules = || {
        let all: Vec<String> = map
            .crush
            .map
            .rules()
            .map(|rule| format!("{} ({})", rule.id, rule.name))
            .collect();
        if all.is_empty() {
            "the hierarchy has none".to_owned()
        } else {
            format!("there are {}", all.join(", "))
        }
    };
    let missing = || format!("there is no placement rule {}; {}", settings.rule, rules());
    let rule = u8::try_from(settings.rule).map_err(|_| missing())?;
    if map.crush.map.rule(rule).is_none() {
        return Err(missing());
    }
    let mut reweights = Reweights::default();
    for (osd, info) in &map.osds {
        reweights.set(*osd, nacre_crush::Weight(info.weight.0));
    }
    let placement = PoolPlacement {
        pool,
        pg_num: settings.pg_num,
        pgp_num: settings.pgp_num,
        rule,
        size: usize::from(settings.size),
        kind: RuleKind::Replicated,
    };
    let (upmaps, mut scratch) = (Upmaps::default(), Scratch::default());
    let mut most = 0;
    for seed in 0..settings.pg_num.min(SEEDS_TRIED) {
        let found = raw(
            &map.crush.map,
            &placement,
            seed,
            &reweights,
            &upmaps,
            &mut scratch,
        );
        let found = found.map_err(|why| format!("placement rule {rule} does not work: {why}"))?;
        // An OSD of the hierarchy that is not in the map has never existed.
        let known = found
            .iter()
            .filter_map(|item| item.device())
            .filter(|osd| map.osds.contains_key(osd));
        most = most.max(known.count());
    }
    Ok(most)
}

/// Checks that the rule exists and places enough replicas for the pool to serve. Before the first
/// OSD this is unknown.
fn check_rule(map: &ClusterMap, pool: PoolId, settings: &Pool) -> Result<(), String> {
    let most = places(map, pool, settings)?;
    if osds_in(map) > 0 && most < usize::from(settings.min_size) {
        return Err(format!(
            "rule {} finds places for {most} of {} copies, and min_size is {}: the pool would never serve. Add hosts with OSDs, lower size \
             and min_size, or take another rule (`crush tree` shows the hierarchy)",
            settings.rule, settings.size, settings.min_size
        ));
    }
    Ok(())
}

fn pg_num(number: u64) -> Result<u32, String> {
    match u32::try_from(number) {
        Ok(number) if (1..=PG_NUM_MAX).contains(&number) => Ok(number),
        _ => Err(format!(
            "pg_num is a number from 1 to {PG_NUM_MAX}, not {number}"
        )),
    }
}

/// A pool with one setting changed.
///
/// # Errors
/// A human-readable sentence.
pub fn set(map: &ClusterMap, pool: PoolId, key: &str, value: u64) -> Result<Pool, String> {
    let mut settings = map.pools[&pool].clone();
    match key {
        "size" => {
            settings.size = size(value, "size")?;
            if settings.min_size > settings.size {
                return Err(format!(
                    "size {value} is less than min_size {}: lower that first",
                    settings.min_size
                ));
            }
        }
        "min_size" => {
            settings.min_size = size(value, "min_size")?;
            if settings.min_size > settings.size {
                return Err(format!(
                    "min_size {value} is more than size {}",
                    settings.size
                ));
            }
        }
        "pg_num" => {
            let number = pg_num(value)?;
            if number < settings.pg_num {
                return Err(format!("pg_num only grows; it is {}", settings.pg_num));
            }
            settings.pg_num = number;
            settings.pgp_num = number;
        }
        "quota_bytes" => settings.quota_bytes = value,
        "quota_objects" => settings.quota_objects = value,
        "no_delete" => {
            settings.flags = match value {
                0 => settings.flags & !pool_flag::NO_DELETE,
                1 => settings.flags | pool_flag::NO_DELETE,
                _ => return Err("no_delete is 0 or 1".to_owned()),
            }
        }
        _ => {
            return Err(format!(
                "pools have no setting {key}; try size, min_size, pg_num, quota_bytes, quota_objects or no_delete"
            ));
        }
    }
    if key == "size" || key == "pg_num" {
        check_pg_num(map, Some(pool), &settings)?;
    }
    if key == "size" || key == "min_size" {
        check_rule(map, pool, &settings)?;
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::map_with_osds;

    fn named(name: &str) -> PoolCreate {
        PoolCreate::named(name)
    }

    #[test]
    fn the_number_of_groups_follows_the_cluster() {
        // target 100 replicas per OSD: n OSDs × 100 / 3, the power of two at or below
        for (osds, expected) in [(1, 64), (2, 64), (3, 64), (6, 128), (10, 256), (100, 2048)] {
            assert_eq!(
                choose_pg_num(&map_with_osds(osds), 3),
                expected,
                "{osds} OSDs"
            );
        }
        assert_eq!(
            choose_pg_num(&map_with_osds(0), 3),
            64,
            "before the first OSD"
        );
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_could() {
        let map = map_with_osds(3);
        let error = |wishes: &PoolCreate| create(&map, wishes).expect_err("refused");
        assert!(error(&named("")).contains("255"));
        assert!(error(&named(&"x".repeat(256))).contains("255"));
        assert!(
            error(&PoolCreate {
                size: Some(Whole(0)),
                ..named("p")
            })
            .contains("from 1 to 10")
        );
        assert!(
            error(&PoolCreate {
                min_size: Some(Whole(4)),
                ..named("p")
            })
            .contains("more than size")
        );
        assert!(
            error(&PoolCreate {
                pg_num: Some(Whole(0)),
                ..named("p")
            })
            .contains("pg_num")
        );
        assert!(
            error(&PoolCreate {
                pg_num: Some(Whole(1024)),
                ..named("p")
            })
            .contains("at most 250")
        );
        let (id, pool) = create(
            &map,
            &PoolCreate {
                size: Some(Whole(1)),
                ..named("p")
            },
        )
        .expect("one copy is allowed");
        assert_eq!((id, pool.min_size), (PoolId(1), 1));
        assert!(
            warnings(
                &map,
                &create(
                    &map,
                    &PoolCreate {
                        size: Some(Whole(5)),
                        ..named("p")
                    }
                )
                .expect("allowed")
                .1
            )[0]
            .contains("5 copies")
        );
    }

    /// A pool with a missing rule was created, and its PGs waited for ever.
    #[test]
    fn a_rule_must_exist_and_find_places() {
        let map = map_with_osds(3);
        let error = |wishes: &PoolCreate| create(&map, wishes).expect_err("refused");
        for rule in [7, 255, 256, 4_000_000_000_u64] {
            assert!(
                error(&PoolCreate {
                    rule: Some(Text(rule.to_string())),
                    ..named("p")
                })
                .contains("there are 0 (replicated)"),
                "{rule}"
            );
        }
        let wide = PoolCreate {
            size: Some(Whole(5)),
            min_size: Some(Whole(4)),
            ..named("p")
        };
        assert!(
            error(&wide).contains("places for 3 of 5 copies"),
            "{}",
            error(&wide)
        );
        // Fewer replicas than requested, but enough to serve: a warning.
        assert!(
            create(
                &map,
                &PoolCreate {
                    size: Some(Whole(5)),
                    ..named("p")
                }
            )
            .is_ok()
        );
        // Not enough to serve, but nothing is known yet.
        assert!(create(&map_with_osds(0), &named("p")).is_ok());
        let mut map = map.clone();
        let (id, pool) = create(&map, &named("p")).expect("created");
        map.pools.insert(id, pool);
        assert!(set(&map, id, "size", 5).is_ok());
        map.pools.get_mut(&id).expect("there").size = 5;
        assert!(
            set(&map, id, "min_size", 4)
                .expect_err("refused")
                .contains("never serve")
        );
        // An OSD that is out holds no replicas.
        map.osds
            .values_mut()
            .take(2)
            .for_each(|info| info.weight = Weight::OUT);
        assert!(
            create(&map, &named("q"))
                .expect_err("refused")
                .contains("places for 1 of 3")
        );
    }

    #[test]
    fn a_removed_pools_id_is_not_used_again() {
        let mut map = map_with_osds(3);
        map.pool_last = PoolId(9);
        assert_eq!(create(&map, &named("p")).expect("created").0, PoolId(10));
    }
}
