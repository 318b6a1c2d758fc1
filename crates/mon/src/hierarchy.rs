//! Editing the CRUSH hierarchy: the one place of the monitors that knows its form.
//!
//! ```text
//!   root default ── host H ── osd.N (class, weight)      rule 0: copies on distinct OSDs, rule 1: on distinct hosts
//! ```
//! The text form is what the map carries; every edit parses, changes and prints it.

use nacre_crush::{CrushMap, Weight};
use nacre_types::OsdId;

/// Where an OSD stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// Which.
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

/// The hierarchy of a cluster without OSDs.
#[must_use]
pub fn initial() -> String {
    let mut map = CrushMap::new();
    map.create_replicated_rule("replicated_osd", "default", "osd", None).expect("a new map takes a rule");
    map.create_replicated_rule("replicated_host", "default", "host", None).expect("a new map takes a second rule");
    nacre_crush::text::print(&map)
}

fn parse(text: &str) -> CrushMap {
    nacre_crush::text::parse(text).expect("the map's text was parsed before it was committed")
}

/// The CRUSH weight of a store of so many bytes: TiB, at least the smallest that CRUSH can tell from none.
#[must_use]
pub fn weight_of_capacity(bytes: u64) -> u64 {
    // 16.16 fixed point has steps of 1/65536, so a hundred-thousandth would round to nothing: two of them do not.
    ((u128::from(bytes) * u128::from(WEIGHT_ONE)) >> 40).try_into().unwrap_or(u64::MAX).max(2)
}

/// A weight for people, in TiB.
#[must_use]
pub fn show_weight(weight: u64) -> String {
    format!("{}.{:05}", weight / WEIGHT_ONE, weight % WEIGHT_ONE)
}
/// The number of the placement group of an object, in a pool of so many (CEPH-40).
#[must_use]
pub fn group_of(namespace: &[u8], key: &[u8], name: &[u8], pg_num: u32) -> u32 {
    nacre_crush::object::pg_seed(nacre_crush::object::object_hash(namespace, key, name), pg_num)
}

/// Whether the OSD has a place.
#[must_use]
pub fn contains(text: &str, osd: OsdId) -> bool {
    parse(text).devices().any(|device| device == osd)
}

/// A name that may stand in the text: letters, digits, `-`, `_`, `.`; anything else becomes `-`, nothing becomes `default`.
#[must_use]
pub fn clean_name(name: &str, default: &str) -> String {
    let name: String =
        name.chars().take(64).map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    if name.is_empty() { default.to_owned() } else { name }
}

/// The text with the OSD at `place` (moved there if it had another). Unchanged if the hierarchy cannot take it: its name belongs
/// to something else, or the sum of weights would overflow.
#[must_use]
pub fn put(text: &str, place: &Place) -> String {
    let mut map = parse(text);
    let (class, host) = (clean_name(&place.class, "hdd"), clean_name(&place.host, "host"));
    let weight = Weight::from_f64(place.weight as f64 / WEIGHT_ONE as f64).unwrap_or(Weight::ONE);
    let path = [("root", "default"), ("host", host.as_str())];
    match map.add_device(place.osd, weight.min(Weight::DEVICE_MAX), Some(&class), &path) {
        Ok(()) => nacre_crush::text::print(&map),
        Err(_) => text.to_owned(),
    }
}

/// The text without the OSD, and without its host if that is empty then.
#[must_use]
pub fn remove(text: &str, osd: OsdId) -> String {
    let host = hosts(text).remove(&osd);
    let mut map = parse(text);
    if map.remove_device(osd).is_err() {
        return text.to_owned();
    }
    if let Some(host) = host {
        // It stays while other OSDs are in it, or a rule takes it.
        let _ = map.remove_bucket(&host);
    }
    nacre_crush::text::print(&map)
}

/// Every OSD's place, by id.
#[must_use]
pub fn places(text: &str) -> Vec<Place> {
    let map = parse(text);
    let mut places = Vec::new();
    for bucket in map.real_buckets() {
        for (item, weight) in bucket.items() {
            let Some(osd) = item.device() else { continue };
            let class = map.device_class(osd).unwrap_or("hdd").to_owned();
            let weight = (weight.as_f64() * WEIGHT_ONE as f64).round() as u64;
            places.push(Place { osd, class, weight, host: bucket.name().to_owned() });
        }
    }
    places.sort_by_key(|place| place.osd);
    places
}

/// The failure domain of every OSD: its host.
#[must_use]
pub fn hosts(text: &str) -> std::collections::BTreeMap<OsdId, String> {
    places(text).into_iter().map(|place| (place.osd, place.host)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_osd_is_put_moved_and_removed() {
        let place =
            |osd, host: &str| Place { osd: OsdId(osd), class: "ssd".into(), weight: 181_900, host: host.into() };
        let text = put(&put(&put(&initial(), &place(1, "a")), &place(11, "b")), &place(1, "c"));
        let where_are =
            |text: &str| -> Vec<(u32, String)> { places(text).into_iter().map(|p| (p.osd.0, p.host)).collect() };
        assert_eq!(where_are(&text), vec![(1, "c".to_owned()), (11, "b".to_owned())]);
        assert!(contains(&text, OsdId(11)) && !contains(&text, OsdId(2)));
        assert_eq!(where_are(&remove(&text, OsdId(1))), vec![(11, "b".to_owned())]);
    }

    #[test]
    fn weights_are_tebibytes_and_never_nothing() {
        assert_eq!(show_weight(weight_of_capacity(1 << 40)), "1.00000");
        assert_eq!(show_weight(weight_of_capacity(4_000_000_000_000)), "3.63797");
        assert_eq!(show_weight(weight_of_capacity(0)), "0.00002");
        assert_eq!(weight_of_capacity(u64::MAX), 16_777_216 * WEIGHT_ONE - 1);
    }

    #[test]
    fn hostile_names_cannot_write_lines() {
        let evil = Place { osd: OsdId(1), class: "x\ndevice 7 osd.7".into(), weight: 1, host: "h weight 9".into() };
        assert_eq!(places(&put(&initial(), &evil)).len(), 1);
    }
}
