//! Maps that several tests use.

use nacre_crush::map::RuleKind;
use nacre_crush::place::PoolPlacement;
use nacre_crush::{CrushMap, Weight, text};
use nacre_types::{OsdId, PoolId};

/// Racks of hosts of devices, with rule 0 `rep` and rule 1 `ec` over `domain`. Written as text,
/// which is faster than edits.
pub fn tree(
    racks: u32,
    hosts: u32,
    devices: u32,
    domain: &str,
    weight: impl Fn(u32) -> f64,
) -> CrushMap {
    let mut out = String::from(
        "tunable choose_local_tries 0\ntunable choose_local_fallback_tries 0\ntunable choose_total_tries 50\n\
         tunable chooseleaf_descend_once 1\ntunable chooseleaf_vary_r 1\ntunable chooseleaf_stable 1\n\
         type 0 osd\ntype 1 host\ntype 3 rack\ntype 11 root\n",
    );
    for id in 0..racks * hosts * devices {
        out += &format!("device {id} osd.{id}\n");
    }
    for rack in 0..racks {
        for host in rack * hosts..(rack + 1) * hosts {
            out += &format!("host h{host} {{\n alg straw2\n");
            for id in host * devices..(host + 1) * devices {
                out += &format!(" item osd.{id} weight {:.3}\n", weight(id));
            }
            out += "}\n";
        }
        out += &format!("rack r{rack} {{\n alg straw2\n");
        for host in rack * hosts..(rack + 1) * hosts {
            out += &format!(" item h{host}\n");
        }
        out += "}\n";
    }
    out += "root default {\n alg straw2\n";
    for rack in 0..racks {
        out += &format!(" item r{rack}\n");
    }
    out += "}\n";
    let mut map = text::parse(&out).unwrap_or_else(|error| panic!("{error}"));
    map.create_replicated_rule("rep", "default", domain, None)
        .expect("a legal rule");
    map.create_erasure_rule("ec", "default", domain, None)
        .expect("a legal rule");
    map
}

/// `count` equal devices directly below the root, with the same two rules.
pub fn flat(count: u32) -> CrushMap {
    let mut map = CrushMap::new();
    for id in 0..count {
        map.add_device(OsdId(id), Weight::ONE, None, &[("root", "default")])
            .expect("a legal device");
    }
    map.create_replicated_rule("rep", "default", "osd", None)
        .expect("a legal rule");
    map.create_erasure_rule("ec", "default", "osd", None)
        .expect("a legal rule");
    map
}

/// A replicated pool of three replicas by rule 0.
pub fn pool(pg_num: u32) -> PoolPlacement {
    PoolPlacement {
        pool: PoolId(1),
        pg_num,
        pgp_num: pg_num,
        rule: 0,
        size: 3,
        kind: RuleKind::Replicated,
    }
}
