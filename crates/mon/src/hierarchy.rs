//! Editing the hierarchy: from one CRUSH text to the next. The only code that knows how an OSD is
//! represented in it.
//!
//! ```text
//!   root default ─┬─ host alpha ─┬─ osd.0   weight: its capacity in TiB
//!                 │              └─ osd.3
//!                 └─ host beta ──── osd.1         rule 0 `replicated`: each replica on another host
//! ```
//! The text is what is committed, so an operator's text may have another structure; items that are
//! not below a host are left unchanged.

use nacre_crush::{CrushMap, ItemId, NewDevice, Weight, text};
use nacre_types::OsdId;

/// Location of an OSD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The OSD.
    pub osd: OsdId,
    /// Its device class, such as `ssd`.
    pub class: String,
    /// Its CRUSH weight: capacity in TiB, in hundred-thousandths.
    pub weight: u64,
    /// Its host.
    pub host: String,
}

/// Units of [`Place::weight`] in one TiB.
pub const WEIGHT_ONE: u64 = 100_000;

/// The hierarchy of a cluster without OSDs: a root, and rule 0 that puts replicas on different
/// hosts.
#[must_use]
pub fn initial() -> String {
    let mut map = CrushMap::new();
    map.create_replicated_rule("replicated", "default", "host", None)
        .expect("an empty map has room for a rule");
    text::print(&map)
}

/// The CRUSH weight of a store of `bytes` bytes: TiB, at least the smallest weight that CRUSH
/// distinguishes from zero.
#[must_use]
pub fn weight_of_capacity(bytes: u64) -> u64 {
    // 16.16 fixed point has steps of 1/65536, so a hundred-thousandth would round to zero: two of
    // them do not.
    ((u128::from(bytes) * u128::from(WEIGHT_ONE)) >> 40)
        .try_into()
        .unwrap_or(u64::MAX)
        .max(2)
}

/// A human-readable weight, in TiB.
#[must_use]
pub fn show_weight(weight: u64) -> String {
    format!("{}.{:05}", weight / WEIGHT_ONE, weight % WEIGHT_ONE)
}
/// The number of an object's placement group, in a pool of `pg_num` PGs (CEPH-40).
#[must_use]
pub fn group_of(namespace: &[u8], key: &[u8], name: &[u8], pg_num: u32) -> u32 {
    nacre_crush::object::pg_seed(
        nacre_crush::object::object_hash(namespace, key, name),
        pg_num,
    )
}

/// A committed text always parses; see `CrushSection::parse`.
fn parse(crush: &str) -> CrushMap {
    text::parse(crush).expect("a CRUSH text is parsed before it is proposed")
}
/// Hundred-thousandths to 16.16 fixed point, rounded; limited to the maximum weight of a device.
fn to_fixed(weight: u64) -> Weight {
    let fixed = (u128::from(weight) * 65_536 + u128::from(WEIGHT_ONE) / 2) / u128::from(WEIGHT_ONE);
    Weight(u32::try_from(fixed).unwrap_or(u32::MAX)).min(Weight::DEVICE_MAX)
}
fn from_fixed(weight: Weight) -> u64 {
    (u64::from(weight.0) * WEIGHT_ONE + 32_768) / 65_536
}

/// Whether the OSD has a location. Called for every OSD that boots, hence with a parsed map.
#[must_use]
pub fn contains(crush: &CrushMap, osd: OsdId) -> bool {
    crush.item_name(ItemId::from(osd)).is_some()
}

/// A valid name for the text: letters, digits, `-`, `_`, `.`; other characters become `-`, an empty
/// name becomes `default`.
#[must_use]
pub fn clean_name(name: &str, default: &str) -> String {
    let name: String = name
        .chars()
        .take(64)
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-_.".contains(c) {
                c
            } else {
                '-'
            }
        })
        .collect();
    if name.is_empty() {
        default.to_owned()
    } else {
        name
    }
}

/// The text with the OSD at `place` (moved there if it had another).
#[must_use]
pub fn put(crush: &str, place: &Place) -> String {
    put_all(crush, std::slice::from_ref(place))
}

/// The same for several OSDs: parsed and written once.
#[must_use]
pub fn put_all(crush: &str, places: &[Place]) -> String {
    let mut map = parse(crush);
    let mut named = Vec::with_capacity(places.len());
    for place in places {
        let mut host = clean_name(&place.host, "host");
        // Names are unique over all buckets and devices; a host with a name in use gets another
        // one.
        while map
            .item(&host)
            .is_some_and(|item| map.item_kind(item) != map.type_by_name("host"))
        {
            host.push_str("-host");
        }
        named.push((place, clean_name(&place.class, "hdd"), host));
    }
    let list: Vec<NewDevice<'_>> = named
        .iter()
        .map(|(place, class, host)| NewDevice {
            id: place.osd,
            weight: to_fixed(place.weight),
            class: Some(class),
            path: vec![("root", "default"), ("host", host)],
        })
        .collect();
    if map.add_devices(&list).is_ok() {
        return text::print(&map);
    }
    // One of them cannot be added. In an operator's hierarchy without `root default`, or one that
    // is full, none can: the operator has to specify their locations.
    let put = list
        .chunks(1)
        .filter(|one| map.add_devices(one).is_ok())
        .count();
    if put > 0 {
        text::print(&map)
    } else {
        crush.to_owned()
    }
}

/// The text without the OSD.
#[must_use]
pub fn remove(crush: &str, osd: OsdId) -> String {
    let mut map = parse(crush);
    match map.remove_device(osd) {
        Ok(()) => text::print(&map),
        Err(_) => crush.to_owned(),
    }
}

/// Every OSD's location, by id.
#[must_use]
pub fn places(crush: &str) -> Vec<Place> {
    let map = parse(crush);
    // The first bucket that contains it.
    let mut parents: std::collections::BTreeMap<OsdId, (&str, Weight)> =
        std::collections::BTreeMap::new();
    for bucket in map.real_buckets() {
        for (item, weight) in bucket.items() {
            if let Some(osd) = item.device() {
                parents.entry(osd).or_insert((bucket.name(), weight));
            }
        }
    }
    let parent = |osd: OsdId| {
        parents
            .get(&osd)
            .map(|(host, weight)| ((*host).to_owned(), *weight))
    };
    let mut places: Vec<Place> = map
        .devices()
        .filter_map(|osd| {
            let (host, weight) = parent(osd)?;
            let class = map.device_class(osd).unwrap_or("hdd").to_owned();
            Some(Place {
                osd,
                class,
                weight: from_fixed(weight),
                host,
            })
        })
        .collect();
    places.sort_by_key(|place| place.osd);
    places
}

/// The failure domain of every OSD: its host.
#[must_use]
pub fn hosts(text: &str) -> std::collections::BTreeMap<OsdId, String> {
    places(text)
        .into_iter()
        .map(|place| (place.osd, place.host))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_osd_is_put_moved_and_removed() {
        let place = |osd, host: &str| Place {
            osd: OsdId(osd),
            class: "ssd".into(),
            weight: 181_900,
            host: host.into(),
        };
        let text = put(
            &put(&put(&initial(), &place(1, "a")), &place(11, "b")),
            &place(1, "c"),
        );
        assert_eq!(places(&text), vec![place(1, "c"), place(11, "b")]);
        assert!(contains(&parse(&text), OsdId(11)) && !contains(&parse(&text), OsdId(2)));
        assert_eq!(places(&remove(&text, OsdId(1))), vec![place(11, "b")]);
        assert_eq!(
            nacre_crush::text::parse(&text)
                .expect("the placement's parser reads it")
                .devices()
                .collect::<Vec<_>>(),
            vec![OsdId(1), OsdId(11)]
        );
    }

    #[test]
    fn weights_are_tebibytes_and_never_nothing() {
        assert_eq!(show_weight(weight_of_capacity(1 << 40)), "1.00000");
        assert_eq!(
            show_weight(weight_of_capacity(4_000_000_000_000)),
            "3.63797"
        );
        assert_eq!(show_weight(weight_of_capacity(0)), "0.00002");
        assert_eq!(weight_of_capacity(u64::MAX), 16_777_216 * WEIGHT_ONE - 1);
    }

    #[test]
    fn hostile_names_cannot_write_lines() {
        let evil = Place {
            osd: OsdId(1),
            class: "x\ndevice 7 osd.7".into(),
            weight: 1,
            host: "h weight 9".into(),
        };
        assert_eq!(places(&put(&initial(), &evil)).len(), 1);
    }
}
