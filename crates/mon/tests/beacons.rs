//! OSDs without peers: when their beacons stop, they are marked down. A working OSD is never blamed
//! for messages that monitors did not receive.

use crate::harness::{World, ms};
use nacre_types::{MonId, OsdId};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Monitors, one of which leads, and OSDs that are up and have sent beacons for a while.
fn at_work(mons: u32, osds: u32, seed: u64) -> (World, MonId) {
    let mut world = World::found(mons, seed);
    let leader = world.elect();
    world.boot_osds(osds);
    world.run_with_beacons(ms(5_000), &[]);
    (world, leader)
}

fn up(world: &World) -> Vec<u32> {
    let leader = world.leader().expect("somebody leads");
    world
        .map(leader)
        .osds
        .iter()
        .filter(|(_, info)| info.up)
        .map(|(osd, _)| osd.0)
        .collect()
}

// An OSD that shared no placement group stayed up for ever: only OSDs that share one report each
// other.
#[test]
fn an_osd_that_nobody_watches_is_down_half_a_minute_after_its_last_beacon() {
    for osds in 1..4 {
        let mut world = World::found(3, 70 + u64::from(osds));
        world.elect();
        world.boot_osds(osds);
        world.run_with_beacons(ms(10_000), &[]);
        world.run_with_beacons(TIMEOUT - ms(4_000), &[0]);
        assert_eq!(up(&world), (0..osds).collect::<Vec<_>>());
        world.run_with_beacons(ms(6_000), &[0]);
        assert_eq!(up(&world), (1..osds).collect::<Vec<_>>());
        let leader = world.leader().expect("leads");
        let log = world
            .command(leader, serde_json::json!({"command": "log last", "n": 10}))
            .expect("answered");
        assert!(
            log.to_string()
                .contains("osd.0 is down: no beacon for 30 s"),
            "{log}"
        );
    }
}

#[test]
fn a_new_leader_gives_everybody_all_the_time() {
    let (mut world, first) = at_work(3, 3, 80);
    world.run_with_beacons(TIMEOUT - ms(5_000), &[0, 1, 2]);
    world.crash(first);
    world.elect();
    world.restart(first, 0);
    world.run_with_beacons(TIMEOUT - ms(3_000), &[0, 1, 2]);
    assert_eq!(
        up(&world),
        [0, 1, 2],
        "25 s under the first and 27 s under the second are no 30 s under one"
    );
    // And once more.
    let second = world.leader().expect("leads");
    world.crash(second);
    world.elect();
    world.restart(second, 0);
    world.run_with_beacons(TIMEOUT - ms(3_000), &[0, 1, 2]);
    assert_eq!(up(&world), [0, 1, 2]);
}

// Failed when beacons were timed by the clock instead of awake time.
#[test]
fn a_monitor_that_was_stopped_blames_nobody() {
    let (mut world, leader) = at_work(1, 3, 81);
    for _ in 0..5 {
        world.pause(leader);
        world.run(Duration::from_secs(300));
        world.resume(leader);
        // The OSDs' connections are new: their beacons come a little later.
        world.run(ms(1_500));
        assert_eq!(up(&world), [0, 1, 2]);
        world.run_with_beacons(ms(2_000), &[]);
    }
}

// Beacons missed while there was no leader do not count. Failed when a leader that stepped down
// kept its times.
#[test]
fn a_leader_without_a_majority_blames_nobody_before_or_after() {
    let (mut world, leader) = at_work(3, 3, 82);
    let others: Vec<MonId> = (0..3).map(MonId).filter(|id| *id != leader).collect();
    for round in 0..3 {
        for other in &others {
            world.crash(*other);
        }
        world.run(TIMEOUT * 4);
        for other in &others {
            world.restart(*other, 0);
        }
        world.elect();
        world.run(ms(3_000));
        assert_eq!(up(&world), [0, 1, 2], "round {round}");
        world.run_with_beacons(ms(5_000), &[]);
    }
    assert!(world.map(leader).up_osd(OsdId(0)).is_some());
}

// CEPH-50: the monitors detect late that all OSDs have died, and that still moves no data.
#[test]
fn everybody_falling_silent_is_believed_late_and_moves_no_data() {
    let (mut world, leader) = at_work(3, 4, 83);
    world.run_with_beacons(TIMEOUT * 2 - ms(4_000), &[1, 2, 3]);
    assert_eq!(up(&world), [0, 1, 2, 3]);
    world.run_with_beacons(ms(6_000), &[1, 2, 3]);
    assert_eq!(up(&world), [0]);
    world.run_with_beacons(Duration::from_secs(1_300), &[]);
    assert!(
        world
            .map(leader)
            .osds
            .values()
            .all(|info| info.weight.0 > 0),
        "nobody is out"
    );
}
