//! Changes of an OSD's state in the map: boots, and the rule that turns *down* into *out* (CEPH-48,
//! CEPH-50).
//!
//! ```text
//!  Boot ─▶ other store, removed, missing features ──▶ refused, with a line in the cluster log
//!       ─▶ knows less than the map, or is up already ▶ ignored: a late frame; the map has the rest
//!       ─▶ another process is up at another address ─▶ waits; refused if that one sends a message meanwhile: a copied directory
//!       ─▶ unknown id ─▶ OsdNew + its location in the hierarchy + OsdUp, in one delta
//!       ─▶ known id ───▶ OsdUp (and in again, if the monitors had marked it out)
//!
//!  The monitors assign the instance: larger than any in the map, in a fence, or in the requesting store, and for one process only.
//!
//!  down for `mon.down_out_interval_s` ─▶ out, unless NO_OUT, or so many are down or were marked out
//!                                        that one cause is likely, or the others have no space for its data:
//!                                        then health reports it, and no data move
//! ```

use nacre_types::{Entity, Instance, OsdId, Time};
use nacre_wire::map::{Change, ClusterMap, Weight, flag};
use nacre_wire::msg::monitor::Boot;
use std::collections::BTreeMap;

use crate::fit;
use crate::hierarchy::{self, Place};
use crate::options;
use crate::stats::Stats;

/// Highest OSD id: CRUSH keeps an array of all ids up to the highest.
pub const OSD_ID_MAX: u32 = 99_999;

/// The decision on a boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootVerdict {
    /// Commit these changes, in one delta, together with its location in the hierarchy if it had
    /// none.
    Up(Vec<Change>, Option<Place>),
    /// A late frame; the map is up to date.
    Late,
    /// Another process is up as this OSD, at another address. If that one is running, this one is
    /// refused, with the sentence for its operator; if not, it will soon be marked down.
    Occupied(String),
    /// It must not come up; the sentence is for the operator.
    Refused(String),
}

/// The owner of each store: built once from the whole map for all boots of a turn.
#[must_use]
pub fn stores(map: &ClusterMap) -> Stores {
    map.osds
        .iter()
        .rev()
        .map(|(osd, info)| (info.store, *osd))
        .collect()
}
/// See [`stores`].
pub type Stores = BTreeMap<u128, OsdId>;

/// Decides on a boot.
#[must_use]
pub fn boot(map: &ClusterMap, stores: &Stores, boot: &Boot) -> BootVerdict {
    let osd = boot.osd;
    if osd.0 > OSD_ID_MAX {
        return BootVerdict::Refused(format!("{osd}: ids end at {OSD_ID_MAX}"));
    }
    if boot.store == 0 || boot.process == 0 {
        return BootVerdict::Refused(format!(
            "{osd} names neither its store nor its process: it is no OSD of this version"
        ));
    }
    if boot.instance > INSTANCE_MAX {
        return BootVerdict::Refused(format!(
            "{osd} says that it was instance {}, which was never granted: its store is damaged or no OSD's of this cluster",
            boot.instance.0
        ));
    }
    let missing = map.required_features & !boot.features;
    if missing != 0 {
        return BootVerdict::Refused(format!(
            "{osd} lacks features {missing:#x} that this cluster requires: upgrade it before it starts"
        ));
    }
    if let Some(other) = stores.get(&boot.store).filter(|other| **other != osd) {
        return BootVerdict::Refused(format!(
            "{osd} brings the store of {other}: its directory is a copy of another OSD's. Make it a store of its own"
        ));
    }
    let Some(info) = map.osds.get(&osd) else {
        if map.is_fenced(Entity::Osd(osd), boot.instance) {
            return removed(osd);
        }
        return admit(map, boot);
    };
    if info.store != 0 && info.store != boot.store {
        return BootVerdict::Refused(format!(
            "{osd} brings another store than the cluster knows under this id. If the old one is gone for good, run `osd rm {}` first; \
             otherwise start it with its own directory",
            osd.0
        ));
    }
    if info.store == 0 && map.is_fenced(Entity::Osd(osd), boot.instance) {
        return removed(osd);
    }
    let answered = info.up && info.process == boot.process;
    if boot.instance < info.instance || (answered && boot.instance == info.instance) {
        return BootVerdict::Late;
    }
    // A process with the same address owns the port: the one before has ended, whether that was
    // noticed or not.
    if info.up && info.address != boot.address {
        return BootVerdict::Occupied(format!(
            "{osd} {} already serves at {}, this process wants to at {}: its directory is in use there, or one of the two is a copy. \
             Stop the one that should not run",
            info.instance, info.address, boot.address
        ));
    }
    let placed = hierarchy::contains(&map.crush.map, osd);
    BootVerdict::Up(vec![come_up(map, boot)], (!placed).then(|| place(boot)))
}

fn removed(osd: OsdId) -> BootVerdict {
    BootVerdict::Refused(format!(
        "{osd} was removed from this cluster, and this is the store it had: what is on it does not count any more. \
         `nacre osd add` makes a new store for the id"
    ))
}

/// Largest instance in a store or a fence: an OSD never restarts so often.
pub const INSTANCE_MAX: Instance = Instance(1 << 48);

/// The instance that a process is granted.
fn next_instance(map: &ClusterMap, boot: &Boot) -> Instance {
    let known = map
        .osds
        .get(&boot.osd)
        .map_or(Instance(0), |info| info.instance);
    let fenced = map
        .fences
        .get(&Entity::Osd(boot.osd))
        .copied()
        .unwrap_or(Instance(0));
    Instance(known.max(fenced).max(boot.instance).0 + 1)
}

fn admit(map: &ClusterMap, boot: &Boot) -> BootVerdict {
    let changes = vec![
        Change::OsdNew {
            osd: boot.osd,
            store: boot.store,
        },
        come_up(map, boot),
    ];
    BootVerdict::Up(changes, Some(place(boot)))
}

fn place(boot: &Boot) -> Place {
    Place {
        osd: boot.osd,
        class: boot.class.clone(),
        weight: hierarchy::weight_of_capacity(boot.capacity),
        host: boot.host.clone(),
    }
}

fn come_up(map: &ClusterMap, boot: &Boot) -> Change {
    Change::OsdUp {
        osd: boot.osd,
        instance: next_instance(map, boot),
        address: boot.address.clone(),
        store: boot.store,
        features: boot.features,
        process: boot.process,
    }
}

/// Number of OSDs that count for the mass-failure guard, and of the lost ones among them.
fn losses(map: &ClusterMap) -> (usize, usize) {
    let holds = |info: &&nacre_wire::map::OsdInfo| {
        info.weight != Weight::OUT || info.weight_before_auto_out.is_some()
    };
    // OSDs that never started hold no data.
    let counts = map
        .osds
        .values()
        .filter(holds)
        .filter(|info| info.instance.0 > 0);
    let (mut all, mut lost) = (0, 0);
    for info in counts {
        all += 1;
        lost += usize::from(!info.up);
    }
    (all, lost)
}

/// Whether so many OSDs are lost that the cause is probably not theirs, and taking them out would
/// move data needlessly (CEPH-50).
#[must_use]
pub fn mass_failure(map: &ClusterMap) -> bool {
    let (all, lost) = losses(map);
    let limit = options::millionths(map, "mon.auto_out_max_down_fraction");
    all >= 2 && lost as u64 * 1_000_000 >= all as u64 * limit && lost > 0
}

/// An OSD's outage, on this monitor's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// When it went down, as far as this monitor knows.
    pub since: Time,
    /// Start of `mon.down_out_interval_s`: when it went down, or when an operator marked it in.
    pub counts_from: Time,
}
impl Outage {
    /// It has just gone down.
    #[must_use]
    pub const fn now(now: Time) -> Self {
        Self {
            since: now,
            counts_from: now,
        }
    }
}

/// OSDs that have been down long enough to be taken out.
fn due(now: Time, map: &ClusterMap, outages: &BTreeMap<OsdId, Outage>) -> Vec<OsdId> {
    if map.flags & flag::NO_OUT != 0 || mass_failure(map) {
        return Vec::new();
    }
    let interval = options::duration(map, "mon.down_out_interval_s");
    let due = |osd: &OsdId| {
        outages
            .get(osd)
            .is_some_and(|outage| now.since(outage.counts_from) >= interval)
    };
    map.osds
        .iter()
        .filter(|(osd, info)| {
            !info.up && info.weight != Weight::OUT && info.instance.0 > 0 && due(osd)
        })
        .map(|(osd, _)| *osd)
        .collect()
}

/// OSDs to be taken out now: as many as the others have space for, together.
#[must_use]
pub fn to_take_out(
    now: Time,
    map: &ClusterMap,
    outages: &BTreeMap<OsdId, Outage>,
    stats: &Stats,
) -> Vec<OsdId> {
    fit::by_room(map, stats, due(now, map, outages)).0
}

/// OSDs that would be taken out now if the others had space for their data.
#[must_use]
pub fn kept_in(
    now: Time,
    map: &ClusterMap,
    outages: &BTreeMap<OsdId, Outage>,
    stats: &Stats,
) -> Vec<OsdId> {
    fit::by_room(map, stats, due(now, map, outages)).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{map_with_osds, with_pool};
    use nacre_wire::map::Address;
    use nacre_wire::msg::monitor::Beacon;
    use std::time::Duration;

    fn a_boot(map: &ClusterMap, osd: u32) -> Boot {
        let known = map.osds.get(&OsdId(osd));
        Boot {
            osd: OsdId(osd),
            instance: known.map_or(Instance(0), |info| info.instance),
            address: known.map_or(Address("h:1".into()), |info| info.address.clone()),
            store: known.map_or(0xabcd, |info| info.store),
            features: 0,
            class: "hdd".into(),
            capacity: 1 << 40,
            host: "h".into(),
            process: 99,
        }
    }

    #[test]
    fn a_new_osd_enters_with_its_place_in_one_delta() {
        let mut map = map_with_osds(2);
        let BootVerdict::Up(mut changes, place) = boot(&map, &stores(&map), &a_boot(&map, 2))
        else {
            panic!("refused")
        };
        changes.push(Change::Crush {
            text: hierarchy::put(&map.crush.text, &place.expect("it is new")),
        });
        let delta = map.delta(changes);
        map.apply(&delta).expect("applies");
        let info = map.up_osd(OsdId(2)).expect("up");
        assert_eq!((info.weight, info.up_from), (Weight::IN, map.epoch));
        assert!(hierarchy::contains(&map.crush.map, OsdId(2)));
    }

    // Each failed when its check in `boot` was removed.
    #[test]
    fn boots_that_would_mix_instances_or_stores_are_refused() {
        let mut map = map_with_osds(2);
        let good = a_boot(&map, 1);
        let refused = |map: &ClusterMap, b: &Boot| {
            matches!(boot(map, &stores(map), b), BootVerdict::Refused(_))
        };
        assert!(!refused(&map, &good));
        let copy = Boot {
            store: map.osds[&OsdId(0)].store,
            osd: OsdId(7),
            ..good.clone()
        };
        let mut passed = Vec::new();
        let mut must_refuse = |what: &'static str, map: &ClusterMap, b: &Boot| {
            if !refused(map, b) {
                passed.push(what);
            }
        };
        must_refuse(
            "another store",
            &map,
            &Boot {
                store: 99,
                ..good.clone()
            },
        );
        must_refuse("a copied store", &map, &copy);
        must_refuse(
            "an id that costs memory",
            &map,
            &Boot {
                osd: OsdId(OSD_ID_MAX + 1),
                store: 98,
                ..good.clone()
            },
        );
        map.required_features = 4;
        must_refuse("missing features", &map, &good);
        map.required_features = 0;
        assert!(passed.is_empty(), "must be refused: {passed:?}");
    }

    /// F1: an OSD counted its starts itself, and used a number twice. F22: a copy of a directory
    /// replaced the original.
    #[test]
    fn an_instance_is_granted_once_and_to_one_process() {
        let mut map = map_with_osds(2);
        let first = map.osds[&OsdId(1)].clone();
        let restarted = a_boot(&map, 1);
        let granted = |map: &ClusterMap, b: &Boot| match boot(map, &stores(map), b) {
            BootVerdict::Up(changes, _) => changes.into_iter().find_map(|change| match change {
                Change::OsdUp {
                    instance, process, ..
                } => Some((instance.0, process)),
                _ => None,
            }),
            _ => None,
        };
        // Its address is free again: the old process has ended, though the map shows it up.
        assert_eq!(granted(&map, &restarted), Some((first.instance.0 + 1, 99)));
        // At another address: not while the first one is up.
        let copy = Boot {
            address: Address("elsewhere".into()),
            ..restarted.clone()
        };
        assert!(matches!(
            boot(&map, &stores(&map), &copy),
            BootVerdict::Occupied(_)
        ));
        // Its request from before it came up arrives again, and it asks before it has the new map.
        let same = Boot {
            process: first.process,
            ..restarted.clone()
        };
        assert_eq!(boot(&map, &stores(&map), &same), BootVerdict::Late);
        assert_eq!(
            boot(
                &map,
                &stores(&map),
                &Boot {
                    instance: Instance(first.instance.0 - 1),
                    ..restarted.clone()
                }
            ),
            BootVerdict::Late
        );
        map.osds.get_mut(&OsdId(1)).expect("exists").up = false;
        assert_eq!(
            granted(&map, &same),
            Some((first.instance.0 + 1, first.process)),
            "marked down while it lived"
        );
        assert_eq!(
            granted(&map, &copy),
            Some((first.instance.0 + 1, 99)),
            "moved"
        );
        // After a fence, and after a store's instance that is ahead of restored monitors.
        map.fences.insert(Entity::Osd(OsdId(1)), Instance(70));
        assert_eq!(granted(&map, &same), Some((71, first.process)));
        assert_eq!(
            granted(
                &map,
                &Boot {
                    instance: Instance(80),
                    ..same
                }
            ),
            Some((81, first.process))
        );
    }

    /// A simulated disk was replaced under its number. The first boot of the old process, which
    /// knew no instance yet, arrived between `osd add` and the new store's first start, and was
    /// accepted: the new store was refused as unknown.
    #[test]
    fn what_was_removed_does_not_take_the_place_of_its_successor() {
        let mut map = map_with_osds(2);
        let late = Boot {
            instance: Instance(0),
            ..a_boot(&map, 1)
        };
        let fenced = map.osds[&OsdId(1)].instance;
        let info = map.osds.get_mut(&OsdId(1)).expect("exists");
        (info.up, info.instance, info.store) = (false, Instance(0), 77);
        map.fences.insert(Entity::Osd(OsdId(1)), fenced);
        let new = Boot {
            store: 77,
            ..late.clone()
        };
        assert!(
            matches!(boot(&map, &stores(&map), &late), BootVerdict::Refused(_)),
            "another store was named"
        );
        assert!(matches!(
            boot(&map, &stores(&map), &new),
            BootVerdict::Up(..)
        ));
        // Without a store in the map: the process that continues after the fence owns the number.
        map.osds.get_mut(&OsdId(1)).expect("exists").store = 0;
        assert!(
            matches!(boot(&map, &stores(&map), &late), BootVerdict::Refused(_)),
            "it may be the one that was removed"
        );
        let counts_on = Boot {
            instance: Instance(fenced.0 + 1),
            ..new
        };
        assert!(matches!(
            boot(&map, &stores(&map), &counts_on),
            BootVerdict::Up(..)
        ));
    }

    // Failed when `mass_failure` compared with `>` (half is the case that the paper names), and
    // when OSDs that are out did not count.
    #[test]
    fn losing_half_takes_nothing_out_losing_less_does() {
        let mut map = map_with_osds(10);
        let mut outages = BTreeMap::new();
        for osd in 0..4 {
            map.osds.get_mut(&OsdId(osd)).expect("exists").up = false;
            outages.insert(OsdId(osd), Outage::now(Time(0)));
        }
        let due = Time(0) + Duration::from_secs(600);
        assert!(
            to_take_out(
                due - Duration::from_nanos(1),
                &map,
                &outages,
                &Stats::default()
            )
            .is_empty(),
            "down is not out"
        );
        assert_eq!(to_take_out(due, &map, &outages, &Stats::default()).len(), 4);
        map.flags = flag::NO_OUT;
        assert!(to_take_out(due, &map, &outages, &Stats::default()).is_empty());
        map.flags = 0;
        // The four are out; one more makes half.
        for osd in 0..4 {
            let info = map.osds.get_mut(&OsdId(osd)).expect("exists");
            info.weight_before_auto_out = Some(Weight::IN);
            info.weight = Weight::OUT;
        }
        map.osds.get_mut(&OsdId(4)).expect("exists").up = false;
        outages.insert(OsdId(4), Outage::now(Time(0)));
        assert!(mass_failure(&map));
        assert!(to_take_out(due, &map, &outages, &Stats::default()).is_empty());
    }

    /// F24: recovery filled the others. `fit` judges the space, and its tests passed when
    /// `to_take_out` did not call it.
    #[test]
    fn an_osd_is_taken_out_when_the_others_have_room_for_it_and_not_before() {
        let mut map = with_pool(map_with_osds(5), 8);
        map.osds.get_mut(&OsdId(0)).expect("exists").up = false;
        let outages = BTreeMap::from([(OsdId(0), Outage::now(Time(0)))]);
        let due = Time(0) + Duration::from_secs(600);
        // The data of osd.0 are a quarter more for each of the others. They may get 90 % full.
        for (used, fits) in [(720, true), (721, false)] {
            let mut stats = Stats::default();
            for (osd, info) in &map.osds {
                let (pgs, slow, device, space) =
                    (Vec::new(), Vec::new(), String::new(), String::new());
                let (osd, instance) = (*osd, info.instance);
                let known = Beacon {
                    osd,
                    instance,
                    total: 1_000,
                    used,
                    pgs,
                    all: true,
                    slow,
                    device,
                    space,
                    no_room: false,
                };
                assert!(stats.beacon(&map_with_osds(5), known), "it was up then");
            }
            let early = due - Duration::from_nanos(1);
            assert_eq!(to_take_out(early, &map, &outages, &stats), []);
            assert_eq!(
                kept_in(early, &map, &outages, &stats),
                [],
                "not for want of room"
            );
            let (out, kept) = if fits {
                (vec![OsdId(0)], vec![])
            } else {
                (vec![], vec![OsdId(0)])
            };
            assert_eq!(to_take_out(due, &map, &outages, &stats), out, "{used}");
            assert_eq!(kept_in(due, &map, &outages, &stats), kept, "{used}");
        }
    }
}
