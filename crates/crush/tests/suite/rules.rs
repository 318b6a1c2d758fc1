//! CEPH-41: mappings satisfy their rules, over random maps.

use nacre_crush::{CrushMap, ItemId, Reweights, Scratch, Weight, text};
use nacre_types::OsdId;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A device: host, weight in quarters, class, reweight in quarters.
type Sketch = Vec<(u32, u32, bool, u32)>;

fn build(sketch: &Sketch, racks: u32) -> (CrushMap, Reweights) {
    let mut map = CrushMap::new();
    let mut reweights = Reweights::default();
    for (id, (host, weight, fast, reweight)) in sketch.iter().enumerate() {
        let id = OsdId(id as u32);
        let (rack, host) = (format!("r{}", host % racks), format!("h{host}"));
        let path = [
            ("root", "default"),
            ("rack", rack.as_str()),
            ("host", host.as_str()),
        ];
        let class = if *fast { "ssd" } else { "hdd" };
        map.add_device(id, Weight(weight * 0x4000), Some(class), &path)
            .expect("a legal device");
        reweights.set(id, Weight(reweight * 0x4000));
    }
    for (name, class) in [("any", None), ("fast", Some("ssd")), ("slow", Some("hdd"))] {
        for domain in ["osd", "host", "rack"] {
            // A class that no device has cannot be requested.
            let _ =
                map.create_replicated_rule(&format!("{name}-{domain}"), "default", domain, class);
            let _ =
                map.create_erasure_rule(&format!("{name}-{domain}-ec"), "default", domain, class);
        }
    }
    (map, reweights)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn rules_are_kept(
        sketch in prop::collection::vec((0..8_u32, 0..8_u32, any::<bool>(), 0..5_u32), 1..24),
        racks in 1..4_u32,
        replicas in 1..6_usize,
    ) {
        let (map, reweights) = build(&sketch, racks);
        map.check();
        prop_assert!(text::parse(&text::print(&map)).as_ref() == Ok(&map));
        let mut scratch = Scratch::default();
        for rule in map.rules() {
            for x in 0..32 {
                let items = map.map(rule.id, x, replicas, &reweights, &mut scratch).expect("a legal call").to_vec();
                if rule.name.ends_with("-ec") {
                    prop_assert_eq!(items.len(), replicas);
                } else {
                    prop_assert!(items.len() <= replicas && !items.contains(&ItemId::NONE));
                }
                let found: Vec<OsdId> = items.iter().filter_map(|item| item.device()).collect();
                let mut domains = BTreeSet::new();
                for id in &found {
                    let (host, _, fast, reweight) = sketch[id.0 as usize];
                    // A shard rule over devices, like Ceph's, names an out device when its tries
                    // are used up.
                    if rule.name != "any-osd-ec" && rule.name != "fast-osd-ec" && rule.name != "slow-osd-ec" {
                        prop_assert!(reweight > 0, "{} is out", id);
                    }
                    prop_assert!(!rule.name.starts_with("fast") || fast);
                    prop_assert!(!rule.name.starts_with("slow") || !fast);
                    domains.insert(match &rule.name {
                        name if name.contains("rack") => host % racks,
                        name if name.contains("host") => host,
                        _ => id.0,
                    });
                }
                prop_assert_eq!(domains.len(), found.len(), "{} gives {:?}", rule.name, items);
            }
        }
    }
}
