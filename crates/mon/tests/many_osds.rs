//! F50: thousands of OSDs that come up at once after a complete power failure. The leader parsed
//! the whole hierarchy for each of them, 10 ms at ten thousand: it was deposed in the middle of its
//! turn, and so was the next one. From fifteen thousand on the text was longer than a proposal may
//! be, and no OSD could be added or removed any more.
//!
//! Figures: `cargo test --release -p nacre-mon --test main many_osds -- --ignored --nocapture`.

use crate::harness::World;
use nacre_types::{Entity, Epoch, Instance, OsdId};
use nacre_wire::map::Change;
use nacre_wire::msg::Message;
use nacre_wire::msg::monitor::Boot;
use serde_json::json;
use std::time::Duration;

/// Twenty on each host.
fn boot(osd: u32, instance: u64) -> Message {
    Message::Boot(Boot {
        osd: OsdId(osd),
        instance: Instance(instance - 1),
        address: nacre_wire::map::Address(format!("10.0.{}.{}:6800", osd / 250, osd % 250)),
        store: 5_000 + u128::from(osd),
        features: 0,
        class: "hdd".into(),
        capacity: 1 << 40,
        host: format!("host{}", osd / 20),
        process: instance,
    })
}

fn all_boot(world: &mut World, osds: u32, instance: u64) -> Duration {
    let to = world.elect();
    let begun = world.now;
    for osd in 0..osds {
        world.say(
            Entity::Osd(OsdId(osd)),
            to,
            Epoch::NONE,
            boot(osd, instance),
        );
    }
    world.until("all OSDs are up", Duration::from_secs(600), |world| {
        let infos = world.map(to).osds.values();
        infos
            .filter(|info| info.up && info.instance == Instance(instance))
            .count()
            == osds as usize
    });
    world.now.since(begun)
}

fn power_failure(osds: u32) {
    let mut world = World::found(3, 5);
    world.unchecked = true;
    let leader = world.elect();
    let term = world.mon(leader).term();
    let first = all_boot(&mut world, osds, 1);
    let (epochs, slowest) = (
        world.mon(leader).epoch(),
        std::mem::take(&mut world.slowest),
    );
    // Everything loses power, without a report. All come up again, at the same time.
    let again = all_boot(&mut world, osds, 2);
    let after = world.mon(leader).epoch();
    println!(
        "{osds} OSDs: hierarchy of {} KB; enter in {first:?} ({} epochs, slowest step {slowest:?}), come up again in {again:?} ({} epochs, slowest step {:?})",
        world.map(leader).crush.text.len() >> 10,
        epochs.0,
        after.0 - epochs.0,
        world.slowest,
    );
    assert_eq!(
        (world.leader(), world.mon(leader).term()),
        (Some(leader), term),
        "one leader all the way"
    );
    assert!(
        after.0 - epochs.0 <= u64::from(osds) / 1_000 + 4,
        "they come up many at a time: {} epochs",
        after.0 - epochs.0
    );
    // And the cluster can be changed.
    world.until("up", Duration::from_secs(5), |_| true);
    let extra = boot(osds, 1);
    world.say(Entity::Osd(OsdId(osds)), leader, Epoch::NONE, extra);
    world.until("one more", Duration::from_secs(20), |world| {
        world.map(leader).up_osd(OsdId(osds)).is_some()
    });
    world
        .command(leader, json!({"command": "osd out", "osd": 1}))
        .expect("done");
    world.run(Duration::from_secs(2));
    let maps: Vec<_> = world
        .nodes
        .values()
        .map(|node| (node.mon.epoch(), node.mon.map().digest))
        .collect();
    assert!(
        maps.iter().all(|map| *map == maps[0]),
        "all monitors have the same map: {maps:?}"
    );
    let rejects = world.mon(leader).counters().rejects;
    assert!(
        !rejects.contains_key("proposal_too_large") && !rejects.contains_key("queue_full"),
        "{rejects:?}"
    );
}

#[test]
fn a_thousand_osds_come_up_at_once() {
    power_failure(1_000);
}

#[test]
#[ignore = "minutes, where it is not optimised: for figures"]
fn ten_thousand_osds_come_up_at_once() {
    power_failure(10_000);
}

#[test]
#[ignore = "minutes, where it is not optimised: for figures"]
fn sixteen_thousand_osds_come_up_at_once() {
    power_failure(16_000);
}

// Failed when `into_changes` proposed the text.
#[test]
fn one_osd_more_is_a_few_lines_of_the_hierarchy() {
    let mut world = World::found(1, 6);
    let leader = world.elect();
    all_boot(&mut world, 200, 1);
    let have = world.mon(leader).epoch();
    world.say(Entity::Osd(OsdId(777)), leader, Epoch::NONE, boot(777, 1));
    world.until("one more", Duration::from_secs(20), |world| {
        world.map(leader).up_osd(OsdId(777)).is_some()
    });
    let state = world.mon(leader).state().expect("it runs");
    let deltas = state.deltas_after(have).expect("they are kept");
    let delta = nacre_mon::state::decode_delta(&deltas[0]).expect("a delta");
    let hunks = delta.changes.iter().find_map(|change| match change {
        Change::CrushPatch { hunks } => Some(hunks),
        _ => None,
    });
    let lines: usize = hunks
        .expect("a patch")
        .iter()
        .map(|hunk| hunk.lines.lines().count())
        .sum();
    assert!(
        lines <= 40 && deltas[0].len() < 2_000,
        "{lines} lines, {} bytes",
        deltas[0].len()
    );
}
