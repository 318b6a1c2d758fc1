//! Monitors come and go while the cluster works.

use crate::harness::{CLIENT, World, ms};
use nacre_types::{Entity, MonId, OsdId};
use serde_json::json;
use std::time::Duration;

fn add(world: &mut World, id: u32) {
    world.add_joining(id);
    let leader = world.elect();
    world.command(leader, json!({"command": "mon add", "id": id, "address": format!("m{id}:1")})).expect("let in");
}

#[test]
fn one_grows_to_three_under_load() {
    for seed in 0..6 {
        let mut world = World::found(1, 60 + seed);
        world.loss = seed * 2;
        let leader = world.elect();
        world.boot_osds(3);
        world.command(leader, json!({"command": "pool create", "name": "a", "pg_num": 8})).expect("created");
        for id in [1, 2] {
            add(&mut world, id);
            let mut tokens = Vec::new();
            for round in 0..40 {
                let flag = if round % 2 == 0 { "flag set" } else { "flag unset" };
                tokens.push(world.ask(CLIENT, leader, &json!({"command": flag, "flag": "noout"})));
                world.run(ms(5));
            }
            world.until("it votes", Duration::from_secs(20), |world| {
                let leader = world.leader().unwrap_or(MonId(0));
                world.mon(leader).voters().contains(&MonId(id))
                    && tokens.iter().all(|token| world.reply_to(*token).is_some())
            });
        }
        world.heal();
        // Now any one may die.
        let leader = world.elect();
        world.crash(leader);
        let other = MonId((leader.0 + 1) % 3);
        world.command(other, json!({"command": "osd out", "osd": 1})).expect("two of three go on");
        assert_eq!(world.map(other).osds[&OsdId(1)].weight.0, 0);
        assert_eq!(world.map(other).pools.len(), 1, "nothing was lost on the way");
    }
}

#[test]
fn a_monitor_that_is_not_started_yet_gets_no_vote() {
    let mut world = World::found(1, 70);
    let leader = world.elect();
    world.command(leader, json!({"command": "mon add", "id": 5, "address": "m5:1"})).expect("announced");
    world.run(Duration::from_secs(3));
    assert_eq!(world.mon(leader).voters(), [MonId(0)], "a majority must not depend on who never ran");
    world.command(leader, json!({"command": "flag set", "flag": "noout"})).expect("alone as before");
    world.add_joining(5);
    world.until("it votes", Duration::from_secs(10), |world| world.mon(MonId(0)).voters().len() == 2);
}

#[test]
fn removal_never_costs_the_majority() {
    let mut world = World::found(3, 71);
    let leader = world.elect();
    let others: Vec<MonId> = (0..3).map(MonId).filter(|id| *id != leader).collect();
    world.crash(others[0]);
    world.run(Duration::from_secs(3));
    let rm = |world: &mut World, id: MonId| world.command(leader, json!({"command": "mon rm", "id": id.0}));
    let error = rm(&mut world, others[1]).expect_err("one living of two would remain");
    assert!(error.contains("1 of 2 monitors would be reachable"), "{error}");
    rm(&mut world, others[0]).expect("the dead one may go");
    world.until("it is gone", Duration::from_secs(5), |world| world.mon(leader).voters().len() == 2);
    rm(&mut world, others[1]).expect("both live, one remains");
    world.until("it is gone", Duration::from_secs(5), |world| world.mon(leader).voters().len() == 1);
    world.run(Duration::from_secs(2));
    let leader = world.elect();
    let error = world.command(leader, json!({"command": "mon rm", "id": leader.0})).expect_err("the last one stays");
    assert!(error.contains("the only monitor"), "{error}");
    world.command(leader, json!({"command": "flag set", "flag": "noout"})).expect("one is a cluster");
}

#[test]
fn the_leader_can_be_removed() {
    let mut world = World::found(3, 72);
    let old = world.elect();
    world.boot_osds(1);
    world.command(old, json!({"command": "mon rm", "id": old.0})).expect("accepted");
    world.until("it is gone", Duration::from_secs(10), |world| {
        world.leader().is_some_and(|id| id != old && world.mon(id).voters().len() == 2)
    });
    let leader = world.elect();
    world.command(leader, json!({"command": "flag set", "flag": "noout"})).expect("the others go on");
    world.run(Duration::from_secs(2));
    // Whether it learnt of its end or not, it disturbs nobody.
    let term = world.command(leader, json!({"command": "mon stat"})).expect("answered")["term"].clone();
    world.run(Duration::from_secs(10));
    assert_eq!(world.command(leader, json!({"command": "mon stat"})).expect("answered")["term"], term);
    // Its id may be let in again, with an empty store.
    world.disconnect(leader, Entity::Mon(old));
    add(&mut world, old.0);
    world.until("it votes again", Duration::from_secs(10), |world| {
        world.leader().is_some_and(|id| world.mon(id).voters().len() == 3)
    });
}
