//! A healthy cluster: elections, commits, subscriptions, commands, with 1 and 3 monitors; the cost
//! of a change.

use crate::harness::{CLIENT, Follower, World, ms};
use nacre_types::{ClientId, Entity, Epoch, MonId, OsdId};
use nacre_wire::map::Digest;
use nacre_wire::msg::Message;
use nacre_wire::msg::monitor::Subscribe;
use serde_json::json;
use std::time::Duration;

#[test]
fn one_monitor_is_a_cluster() {
    let mut world = World::found(1, 1);
    let took = world.until("a leader", ms(200), |world| world.leader().is_some());
    assert!(
        took < ms(20),
        "the only voter does not wait for anybody: {took:?}"
    );
    world.boot_osds(3);
    let reply = world
        .command(MonId(0), json!({"command": "pool create", "name": "data"}))
        .expect("created");
    assert_eq!(
        (reply["size"].clone(), reply["pg_num"].clone()),
        (json!(3), json!(64))
    );
    let status = world
        .command(MonId(0), json!({"command": "status"}))
        .expect("answered");
    assert_eq!(
        (
            &status["osds"]["count"],
            &status["osds"]["up"],
            &status["osds"]["in"]
        ),
        (&json!(3), &json!(3), &json!(3))
    );
    assert_eq!(status["pgs"]["count"], json!(64));
}

#[test]
fn three_monitors_elect_commit_and_answer_wherever_they_are_asked() {
    let mut world = World::found(3, 2);
    let leader = world.elect();
    world.boot_osds(3);
    for id in 0..3 {
        let name = format!("p{id}");
        world
            .command(MonId(id), json!({"command": "pool create", "name": name}))
            .expect("created");
        // The next monitor asked returns it: reads are linearizable.
        let pools = world
            .command(MonId((id + 1) % 3), json!({"command": "pool ls"}))
            .expect("answered");
        assert!(
            pools["pools"]
                .as_array()
                .expect("list")
                .iter()
                .any(|pool| pool["name"] == json!(name))
        );
    }
    world.run(ms(50));
    let epochs: Vec<Epoch> = (0..3).map(|id| world.mon(MonId(id)).epoch()).collect();
    assert!(epochs.iter().all(|epoch| *epoch == epochs[0]), "{epochs:?}");
    assert_eq!(world.mon(leader).voters().len(), 3);
}

// One flush on the leader and its followers in parallel, one round trip, the batching delay of 2
// ms: two sequential flushes would exceed the limit.
#[test]
fn a_change_costs_one_flush_and_a_few_milliseconds() {
    let mut world = World::found(3, 3);
    let leader = world.elect();
    world.boot_osds(1);
    world.run(ms(500));
    let client = Entity::Client(ClientId(9));
    for disk in [1, 5] {
        world.disk = ms(disk);
        for other in 0..3 {
            let map = world.map(MonId(other)).clone();
            world.subscribe(client, MonId(other), &map);
        }
        world.run(ms(20));
        let start = world.now;
        let before = world.inbox.len();
        let epoch = world.map(leader).epoch;
        let flag = if disk == 1 { "noout" } else { "nodown" };
        let token = world.ask(
            CLIENT,
            leader,
            &json!({"command": "flag set", "flag": flag}),
        );
        world.until("the answer", ms(100), |world| {
            world.reply_to(token).is_some()
        });
        let answered = world.now.since(start);
        let mut heard = 0;
        world.until("everybody has the map", ms(100), |world| {
            heard = world.inbox[before..]
                .iter()
                .filter(|(_, _, to, message)| {
                    *to == client && matches!(message, Message::MapDeltas(d) if d.newest > epoch)
                })
                .count();
            heard >= 3
        });
        let everybody = world.now.since(start);
        assert!(
            answered <= ms(2) + ms(disk) + Duration::from_micros(1_500),
            "answered after {answered:?}, disk {disk} ms"
        );
        assert!(
            everybody <= ms(2) + ms(disk) * 2 + ms(2),
            "told after {everybody:?}, disk {disk} ms"
        );
        assert!(everybody <= ms(20), "the budget");
    }
}

#[test]
fn the_host_sees_new_lines_of_the_cluster_log_once_on_every_monitor() {
    let mut world = World::found(3, 14);
    world.elect();
    world.boot_osds(3);
    world.run(ms(100));
    for (id, node) in &world.nodes {
        let ups = node
            .logged
            .iter()
            .filter(|line| line.contains("is up at"))
            .count();
        assert_eq!(ups, 3, "{id}: {:?}", node.logged);
    }
}

#[test]
fn what_arrives_together_is_one_epoch() {
    let mut world = World::found(3, 4);
    let leader = world.elect();
    world.run(ms(100));
    let before = world.map(leader).epoch;
    for osd in 0..20 {
        let boot = world.boot_message(osd, 1);
        world.say(Entity::Osd(OsdId(osd)), leader, Epoch::NONE, boot);
    }
    world.until("all up", ms(200), |world| {
        world
            .map(leader)
            .osds
            .values()
            .filter(|info| info.up)
            .count()
            == 20
    });
    let epochs = world.map(leader).epoch.0 - before.0;
    assert!(epochs <= 2, "twenty new OSDs made {epochs} epochs");
    let places = nacre_mon::hierarchy::places(&world.map(leader).crush.text);
    assert_eq!(places.len(), 20, "and each has its place in the hierarchy");
}

#[test]
fn subscribers_get_every_epoch_and_the_same_map() {
    let mut world = World::found(3, 5);
    let leader = world.elect();
    let mut followers: Vec<Follower> = (0..3)
        .map(|id| Follower::new(Entity::Client(ClientId(100 + id))))
        .collect();
    for (id, follower) in (0..).zip(&followers) {
        let message = Message::Subscribe(Subscribe {
            have: Epoch::NONE,
            digest: Digest::default(),
            once: false,
        });
        world.say(follower.who, MonId(id), Epoch::NONE, message);
    }
    world.run(ms(20));
    world.boot_osds(4);
    world
        .command(
            leader,
            json!({"command": "pool create", "name": "a", "pg_num": 8}),
        )
        .expect("created");
    world
        .command(leader, json!({"command": "osd out", "osd": 2}))
        .expect("done");
    world.run(ms(50));
    for follower in &mut followers {
        follower.catch_up(&world);
        let map = follower.map.as_ref().expect("a map");
        assert_eq!(map, world.map(leader), "derived state included");
    }
}

/// A client that connected just after a change got the map that another had been given just before
/// it, and nothing more until the next change: its operations with that map were refused until
/// then.
#[test]
fn who_comes_just_after_a_change_gets_the_map_with_it() {
    let mut world = World::found(3, 7);
    let leader = world.elect();
    world.boot_osds(2);
    for id in 0..6 {
        let mut follower = Follower::new(Entity::Client(ClientId(200 + id)));
        let message = Message::Subscribe(Subscribe {
            have: Epoch::NONE,
            digest: Digest::default(),
            once: id % 2 == 0,
        });
        world.say(follower.who, leader, Epoch::NONE, message);
        world.run(ms(5));
        follower.catch_up(&world);
        assert_eq!(follower.epoch(), world.map(leader).epoch);
        world.toggle_flag(leader, 1 + id % 2);
    }
}

// Failed when `subscribe` did not compare digests.
#[test]
fn a_subscriber_of_another_history_is_told_to_stop() {
    let mut world = World::found(3, 6);
    let leader = world.elect();
    world.boot_osds(2);
    let mut strange = world.map(leader).clone();
    strange.digest = Digest(1);
    let mut follower = Follower::new(Entity::Osd(OsdId(1)));
    world.subscribe(follower.who, leader, &strange);
    world.run(ms(20));
    follower.catch_up(&world);
    assert!(follower.refused);

    // A digest for a future epoch is compared when that epoch comes.
    let mut ahead = world.map(leader).clone();
    ahead.epoch = Epoch(ahead.epoch.0 + 2);
    let mut follower = Follower::new(Entity::Osd(OsdId(0)));
    world.subscribe(follower.who, leader, &ahead);
    world.run(ms(20));
    follower.catch_up(&world);
    assert!(!follower.refused);
    for flag in ["noout", "nodown"] {
        world
            .command(leader, json!({"command": "flag set", "flag": flag}))
            .expect("done");
    }
    world.run(ms(20));
    follower.catch_up(&world);
    assert!(follower.refused);
}

// MAL-73: the monitors' work for a change does not grow with the number of OSDs.
#[test]
fn a_change_is_told_to_few_osds_who_tell_the_others() {
    let sent = |osds: u32| {
        let mut world = World::found(1, 7);
        world.boot_osds(osds);
        let map = world.map(MonId(0)).clone();
        for osd in 0..osds {
            world.subscribe(Entity::Osd(OsdId(osd)), MonId(0), &map);
        }
        world.run(ms(50));
        let before = world.inbox.len();
        world
            .command(MonId(0), json!({"command": "flag set", "flag": "noout"}))
            .expect("done");
        world.run(ms(5));
        world.inbox[before..]
            .iter()
            .filter(|(_, _, _, m)| matches!(m, Message::MapDeltas(_) | Message::MapFull(_)))
            .count()
    };
    assert_eq!(
        (sent(20), sent(200)),
        (2, 2),
        "the roots of the trees by which OSDs tell each other"
    );
}

#[test]
fn an_osd_that_gossip_missed_is_caught_up() {
    let mut world = World::found(1, 8);
    world.boot_osds(40);
    let map = world.map(MonId(0)).clone();
    let mut followers: Vec<Follower> = (0..40)
        .map(|osd| Follower::new(Entity::Osd(OsdId(osd))))
        .collect();
    for follower in &mut followers {
        follower.map = Some(map.clone());
        world.subscribe(follower.who, MonId(0), &map);
    }
    world
        .command(MonId(0), json!({"command": "flag set", "flag": "noout"}))
        .expect("done");
    world.run(ms(8_500));
    for follower in &mut followers {
        follower.catch_up(&world);
        assert_eq!(
            follower.epoch(),
            world.mon(MonId(0)).epoch(),
            "{}",
            follower.who
        );
    }
}

/// A new leader had no reports of PGs that did not change: `status` showed them as unknown until
/// they did.
#[test]
fn subscribed_osds_hear_who_leads_and_clients_do_not() {
    let mut world = World::found(3, 14);
    let first = world.elect();
    world.boot_osds(1);
    let followers: Vec<MonId> = (0..3).map(MonId).filter(|mon| *mon != first).collect();
    let (osd, client) = (Entity::Osd(OsdId(0)), Entity::Client(ClientId(5)));
    for who in [osd, client] {
        for mon in &followers {
            let map = world.map(*mon).clone();
            world.subscribe(who, *mon, &map);
        }
    }
    world.run(ms(100));
    let heard = |world: &World, from: usize| -> Vec<(Entity, MonId, u64)> {
        let led = world.inbox[from..]
            .iter()
            .filter_map(|(_, _, to, message)| match message {
                Message::Led(led) => Some((*to, led.leader, led.term)),
                _ => None,
            });
        led.collect()
    };
    let at_first = heard(&world, 0);
    assert!(
        at_first
            .iter()
            .any(|(to, leader, _)| (*to, *leader) == (osd, first)),
        "{at_first:?}"
    );
    let seen = world.inbox.len();
    world.crash(first);
    let second = world.elect();
    world.run(ms(500));
    let then = heard(&world, seen);
    let term = at_first
        .iter()
        .map(|(.., term)| *term)
        .max()
        .expect("heard");
    assert!(
        then.iter()
            .any(|(_, leader, later)| *leader == second && *later > term),
        "{then:?}"
    );
    assert!(
        at_first.iter().chain(&then).all(|(to, ..)| *to == osd),
        "clients report nothing"
    );
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let trace = |seed: u64| {
        let mut world = World::found(3, seed);
        world.tracing = true;
        world.loss = 5;
        world.repeats = 5;
        world.delay = (ms(0), ms(20));
        let first = world.elect();
        world.boot_osds(5);
        let _ = world.command(first, json!({"command": "pool create", "name": "a"}));
        world.crash(first);
        world.elect();
        world.restart(first, 0);
        world.run(ms(1_000));
        world.trace
    };
    assert!(trace(11) == trace(11), "same seed, same bytes");
    assert!(trace(11) != trace(12), "and the seed matters");
}
