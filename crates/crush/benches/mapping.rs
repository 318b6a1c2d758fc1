//! The cost of a mapping (CEPH-E8b): one JSON line per tree. Target: 10 µs at 10,000 devices.
#![allow(clippy::disallowed_methods)] // measuring needs a clock; nothing here decides anything

use nacre_crush::{CrushMap, Reweights, Scratch, text};
use std::fmt::Write;
use std::time::Instant;

/// Racks of hosts of devices, `straw2` throughout, three replicas on three hosts.
fn tree(racks: u32, hosts: u32, devices: u32) -> String {
    let mut out = String::from(
        "tunable choose_local_tries 0\ntunable choose_local_fallback_tries 0\ntunable choose_total_tries 50\n\
         tunable chooseleaf_descend_once 1\ntunable chooseleaf_vary_r 1\ntunable chooseleaf_stable 1\n\
         type 0 osd\ntype 1 host\ntype 3 rack\ntype 11 root\n",
    );
    let line = |out: &mut String, text: std::fmt::Arguments<'_>| {
        out.write_fmt(text).expect("strings take all")
    };
    for id in 0..racks * hosts * devices {
        line(&mut out, format_args!("device {id} osd.{id}\n"));
    }
    let mut bucket = |kind: &str, name: String, items: &mut dyn Iterator<Item = String>| {
        line(&mut out, format_args!("{kind} {name} {{\n alg straw2\n"));
        items.for_each(|item| line(&mut out, format_args!(" item {item}\n")));
        out.push_str("}\n");
    };
    for rack in 0..racks {
        for host in rack * hosts..(rack + 1) * hosts {
            let items = host * devices..(host + 1) * devices;
            bucket(
                "host",
                format!("h{host}"),
                &mut items.map(|id| format!("osd.{id} weight 1.819")),
            );
        }
        let items = rack * hosts..(rack + 1) * hosts;
        bucket(
            "rack",
            format!("r{rack}"),
            &mut items.map(|host| format!("h{host}")),
        );
    }
    bucket(
        "root",
        "default".to_owned(),
        &mut (0..racks).map(|rack| format!("r{rack}")),
    );
    out
}

fn main() {
    for (racks, hosts, devices) in [(1, 5, 2), (5, 10, 20), (20, 20, 25)] {
        let source = tree(racks, hosts, devices);
        let start = Instant::now();
        let mut map: CrushMap = text::parse(&source).expect("our own text");
        let parse_us = start.elapsed().as_micros();
        map.create_replicated_rule("rep", "default", "host", None)
            .expect("a legal rule");
        let start = Instant::now();
        let printed = text::print(&map);
        let print_us = start.elapsed().as_micros();
        let (reweights, mut scratch) = (Reweights::all_in(&map), Scratch::default());
        // Enough for a stable figure, and short enough for a benchmark that runs with the tests.
        let (rounds, inputs) = (5, 20_000_u32);
        let (mut best, mut sum) = (f64::INFINITY, 0_u64);
        for _ in 0..rounds {
            let start = Instant::now();
            for x in 0..inputs {
                let placed = map
                    .map(0, x, 3, &reweights, &mut scratch)
                    .expect("a legal call");
                sum += placed.iter().map(|item| item.0 as u64).sum::<u64>();
            }
            best = best.min(start.elapsed().as_nanos() as f64 / f64::from(inputs));
        }
        println!(
            "{{\"bench\":\"crush-mapping\",\"devices\":{},\"replicas\":3,\"ns_per_mapping\":{best:.0},\
             \"parse_us\":{parse_us},\"print_us\":{print_us},\"text_bytes\":{},\"checksum\":{sum}}}",
            racks * hosts * devices,
            printed.len(),
        );
    }
}
