//! Editing the CRUSH text: the one place that knows its form.
//!
//! Today's text is that of the stand-in for the real hierarchy: one `device` line per OSD, with its place in a comment of ours. When
//! the real crate lands, these functions edit buckets (`host=H` below `root default`) instead; nothing else in the crate changes.
//!
//! ```text
//!   device 3 osd.3 class hdd
//!   # place osd.3 weight 1.819 host alpha
//! ```

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
    String::new()
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
fn read_weight(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.')?;
    let part: String = part.chars().chain("00000".chars()).take(5).collect();
    Some(whole.parse::<u64>().ok()?.checked_mul(WEIGHT_ONE)? + part.parse::<u64>().ok()?)
}

/// The number of the placement group of an object, in a pool of so many (CEPH-40).
#[must_use]
pub fn group_of(namespace: &[u8], key: &[u8], name: &[u8], pg_num: u32) -> u32 {
    nacre_crush::hash::stable_mod(nacre_crush::hash::object(namespace, key, name), pg_num)
}

fn device_line(osd: OsdId) -> String {
    format!("device {} osd.{}", osd.0, osd.0)
}
fn is_about(line: &str, osd: OsdId) -> bool {
    let starts =
        |prefix: String| line.strip_prefix(&prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    starts(device_line(osd)) || starts(format!("# place osd.{}", osd.0))
}

/// Whether the OSD has a place.
#[must_use]
pub fn contains(text: &str, osd: OsdId) -> bool {
    text.lines().any(|line| line.starts_with("device ") && is_about(line, osd))
}

/// A name that may stand in the text: letters, digits, `-`, `_`, `.`; anything else becomes `-`, nothing becomes `default`.
#[must_use]
pub fn clean_name(name: &str, default: &str) -> String {
    let name: String =
        name.chars().take(64).map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    if name.is_empty() { default.to_owned() } else { name }
}

/// The text with the OSD at `place` (moved there if it had another).
#[must_use]
pub fn put(text: &str, place: &Place) -> String {
    let mut text = remove(text, place.osd);
    let (class, host) = (clean_name(&place.class, "hdd"), clean_name(&place.host, "host"));
    text.push_str(&format!("{} class {class}\n", device_line(place.osd)));
    text.push_str(&format!("# place osd.{} weight {} host {host}\n", place.osd.0, show_weight(place.weight)));
    text
}

/// The text without the OSD.
#[must_use]
pub fn remove(text: &str, osd: OsdId) -> String {
    let mut kept = String::with_capacity(text.len());
    for line in text.lines().filter(|line| !is_about(line, osd)) {
        kept.push_str(line);
        kept.push('\n');
    }
    kept
}

/// Every OSD's place, by id.
#[must_use]
pub fn places(text: &str) -> Vec<Place> {
    let mut places = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["device", id, _, rest @ ..] => {
                let Ok(id) = id.parse() else { continue };
                let class = rest.get(1).copied().unwrap_or("hdd").to_owned();
                places.push(Place { osd: OsdId(id), class, weight: WEIGHT_ONE, host: "host".to_owned() });
            }
            ["#", "place", osd, "weight", weight, "host", host] => {
                let id = osd.strip_prefix("osd.").and_then(|id| id.parse().ok());
                if let Some(place) = places.iter_mut().find(|place: &&mut Place| Some(place.osd.0) == id) {
                    place.weight = read_weight(weight).unwrap_or(WEIGHT_ONE);
                    (*host).clone_into(&mut place.host);
                }
            }
            _ => {}
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
        assert_eq!(places(&text), vec![place(1, "c"), place(11, "b")]);
        assert!(contains(&text, OsdId(11)) && !contains(&text, OsdId(2)));
        assert_eq!(places(&remove(&text, OsdId(1))), vec![place(11, "b")]);
        assert_eq!(nacre_crush::text::parse(&text).expect("the placement's parser reads it").devices, vec![11, 1]);
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
        assert_eq!(places(&put("", &evil)).len(), 1);
    }
}
