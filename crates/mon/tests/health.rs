//! Health, code by code: its severity, the items it names, and that it is absent without the cause.
//!
//! A reviewer removed codes, one after the other, and all tests passed. Without such a code an
//! operator is told that all is well.

use crate::commands::{say_of_group, settle};
use crate::harness::{World, ms};
use crate::meta::{Clients, client, transact};
use nacre_types::{ClientId, Entity, Epoch, Instance, MonId, Name, OsdId, PoolId, Rank};
use nacre_wire::Wire as _;
use nacre_wire::fs::registry::standby_key;
use nacre_wire::fs::{FsHolder, FsKey, FsSettings, Layout};
use nacre_wire::map::Address;
use nacre_wire::msg::meta::{MetaOp, MetaSpan};
use nacre_wire::msg::monitor::{PgReport, pg_state};
use serde_json::{Value, json};
use std::time::Duration;

/// One monitor, `osds` OSDs, and a pool of eight PGs with three replicas.
fn cluster(osds: u32, seed: u64) -> World {
    let mut world = World::found(1, seed);
    world.boot_osds(osds);
    ask(
        &mut world,
        json!({"command": "pool create", "name": "data", "pg_num": 8}),
    );
    (0..osds).for_each(|osd| world.beacon(MonId(0), osd, 100));
    world.run(ms(20));
    world
}

fn ask(world: &mut World, request: Value) -> Value {
    let leader = world.elect();
    world.command(leader, request).expect("answered")
}

/// The finding with that code, if there is one.
fn finding(world: &mut World, code: &str) -> Option<Value> {
    let health = ask(world, json!({"command": "health detail"}));
    let checks = health["checks"].as_array().expect("a list");
    checks
        .iter()
        .find(|check| check["code"] == json!(code))
        .cloned()
}

/// Asserts that health has this code with this severity, all these words, and a recommended action.
/// Returns its summary and details.
fn said(world: &mut World, code: &str, severity: &str, words: &[&str]) -> String {
    let found = finding(world, code).unwrap_or_else(|| panic!("health does not say {code}"));
    assert_eq!(found["severity"], json!(severity), "{found}");
    assert!(
        found["what_to_do"]
            .as_str()
            .is_some_and(|todo| !todo.is_empty()),
        "{found}"
    );
    let text = format!("{} {}", found["summary"], found["detail"]);
    for word in words {
        assert!(text.contains(word), "{code} does not say `{word}`: {found}");
    }
    text
}

fn unsaid(world: &mut World, code: &str) {
    let found = finding(world, code);
    assert_eq!(found, None, "{code} is said without its cause");
}

// ── file systems ────────────────────────────────────────────────────────────────────────

/// All calls on a mount hung, since its file system had no server, and health reported OK.
#[test]
fn a_rank_without_a_server_is_said_when_that_lasts() {
    let mut world = cluster(3, 131);
    let mut clients = Clients::default();
    let mut write = |world: &mut World, key: Name, value: Option<Vec<u8>>| {
        let op = match value {
            Some(value) => MetaOp::Put {
                key,
                value: value.into(),
                lease: 0,
            },
            None => MetaOp::Delete {
                span: MetaSpan::Key { key },
            },
        };
        clients.ask(world, client(1), MonId(0), transact(vec![op]));
    };
    let (home, later) = (Name::from("home"), |world: &mut World| {
        world.run(Duration::from_secs(8))
    });
    let layout = Layout {
        pool: PoolId(1),
        unit: 4096,
        count: 1,
        object: 4096,
    };
    let settings = FsSettings {
        namespace: "home.1".into(),
        pool: PoolId(1),
        layout,
        ranks: 2,
    };
    let address = Address("127.0.0.1:1".into());
    let server = FsHolder {
        client: 7,
        instance: Instance(1),
        address,
        name: "mds.0".into(),
    }
    .to_bytes();
    later(&mut world);
    unsaid(&mut world, "FS_NO_STANDBY");
    write(
        &mut world,
        FsKey::Settings.of(&home),
        Some(settings.to_bytes()),
    );
    world.run(ms(3_000));
    unsaid(&mut world, "FS_RANK_DOWN");
    later(&mut world);
    said(
        &mut world,
        "FS_RANK_DOWN",
        "error",
        &[
            "2 ranks",
            "rank 0 of file system home has had no server for",
            "rank 1",
        ],
    );
    unsaid(&mut world, "FS_NO_STANDBY");
    write(&mut world, standby_key(ClientId(8)), Some(server.clone()));
    write(
        &mut world,
        FsKey::Rank(Rank(0)).of(&home),
        Some(server.clone()),
    );
    said(
        &mut world,
        "FS_RANK_DOWN",
        "warn",
        &["rank 1 of file system home has no server"],
    );
    write(
        &mut world,
        FsKey::Rank(Rank(1)).of(&home),
        Some(server.clone()),
    );
    unsaid(&mut world, "FS_RANK_DOWN");
    later(&mut world);
    unsaid(&mut world, "FS_NO_STANDBY");
    write(&mut world, standby_key(ClientId(8)), None);
    world.run(ms(3_000));
    unsaid(&mut world, "FS_NO_STANDBY");
    later(&mut world);
    said(&mut world, "FS_NO_STANDBY", "warn", &["no server waits"]);
    // A takeover.
    write(&mut world, FsKey::Rank(Rank(1)).of(&home), None);
    world.run(ms(3_000));
    unsaid(&mut world, "FS_RANK_DOWN");
    write(&mut world, FsKey::Rank(Rank(1)).of(&home), Some(server));
    later(&mut world);
    unsaid(&mut world, "FS_RANK_DOWN");
    write(&mut world, FsKey::Settings.of(&home), None);
    unsaid(&mut world, "FS_NO_STANDBY");
}

// ── monitors ────────────────────────────────────────────────────────────────────────────

/// `mon add` is answered, and the new monitor is never started. The map has two monitors then, and
/// one of them votes. No test failed when `health` and `status` did not distinguish the two.
#[test]
fn a_monitor_without_a_vote_is_said_to_be_joining() {
    let mut world = World::found(1, 120);
    world.elect();
    let mons = |world: &mut World| {
        let status = ask(world, json!({"command": "status"}));
        ["count", "voters", "reachable"]
            .map(|field| status["mons"][field].as_u64().expect("a number"))
    };
    unsaid(&mut world, "MON_JOINING");
    assert_eq!(mons(&mut world), [1, 1, 1]);
    ask(
        &mut world,
        json!({"command": "mon add", "id": 5, "address": "m5:1", "store": "7"}),
    );
    world.run(ms(500));
    said(
        &mut world,
        "MON_JOINING",
        "warn",
        &["1 of 2 monitors", "mon.5 has no vote yet"],
    );
    assert_eq!(mons(&mut world), [2, 1, 1]);
    unsaid(&mut world, "MON_COUNT");
    world.add_joining(5, 7);
    world.until("it votes", Duration::from_secs(10), |world| {
        world.mon(MonId(0)).voters().len() == 2
    });
    unsaid(&mut world, "MON_JOINING");
    assert_eq!(mons(&mut world), [2, 2, 2]);
    // The loss of either one stops the cluster now.
    said(&mut world, "MON_COUNT", "warn", &["two monitors"]);
}

/// With one of three monitors dead the next failure stops the cluster. No test checked the warning.
#[test]
fn a_monitor_that_is_down_is_named_and_how_many_more_may_fail() {
    let mut world = World::found(3, 121);
    let leader = world.elect();
    world.run(ms(500));
    unsaid(&mut world, "MON_DOWN");
    let other = MonId((leader.0 + 1) % 3);
    world.crash(other);
    world.run(ms(3_000));
    said(
        &mut world,
        "MON_DOWN",
        "warn",
        &[
            "1 of 3 monitors",
            "0 more may fail",
            &format!("\"{other}\""),
        ],
    );
    world.restart(other, 0);
    world.run(ms(3_000));
    unsaid(&mut world, "MON_DOWN");
}

/// A monitor that is to leave has to run until it is removed: its vote may be needed. No test
/// failed when health did not report that it is still a member.
#[test]
fn a_monitor_that_is_to_leave_is_named_until_it_is_gone() {
    let mut world = World::found(3, 122);
    let leader = world.elect();
    world.run(ms(500));
    unsaid(&mut world, "MON_LEAVING");
    let [leaves, dies] = [1, 2].map(|more| MonId((leader.0 + more) % 3));
    ask(&mut world, json!({"command": "mon rm", "id": leaves.0}));
    // One of the two remaining ones dies: only the vote of the leaving one makes a majority.
    world.crash(dies);
    world.run(ms(3_000));
    assert!(
        world.mon(leader).voters().contains(&leaves),
        "it died too late"
    );
    said(
        &mut world,
        "MON_LEAVING",
        "warn",
        &["1 monitors", &format!("\"{leaves}\"")],
    );
    world.restart(dies, 0);
    world.until("it is gone", Duration::from_secs(10), |world| {
        !world.map(leader).mons.contains_key(&leaves)
    });
    unsaid(&mut world, "MON_LEAVING");
}

// ── OSDs and their room ─────────────────────────────────────────────────────────────────

/// F31: PGs shared by two OSDs stall while the OSDs do not hear each other. For eight seconds only
/// this finding names the two, and so the cable to check.
#[test]
fn osds_that_do_not_hear_each_other_are_named() {
    let mut world = World::found(1, 123);
    world.boot_osds(6);
    unsaid(&mut world, "OSD_PARTED");
    world.report(MonId(0), 1, 2, 2_500, false);
    world.run(ms(100));
    let text = said(
        &mut world,
        "OSD_PARTED",
        "warn",
        &["osd.1 does not hear osd.2"],
    );
    assert!(!text.contains("osd.0") && !text.contains("osd.3"), "{text}");
    world.report(MonId(0), 2, 1, 2_500, false);
    world.run(ms(100));
    said(
        &mut world,
        "OSD_PARTED",
        "warn",
        &["osd.1 and osd.2 do not hear each other"],
    );
    world.report(MonId(0), 0, 3, 2_500, false);
    world.run(ms(100));
    said(
        &mut world,
        "OSD_PARTED",
        "warn",
        &[
            "2 pairs of OSDs",
            "osd.0 does not hear osd.3",
            "osd.1 and osd.2",
        ],
    );
    // A report that is not repeated expires.
    world.run(Duration::from_secs(11));
    unsaid(&mut world, "OSD_PARTED");
}

/// An OSD that shares no PG with another is marked down after half a minute of silence. Until then
/// the map shows it up, and only this finding reports its silence.
#[test]
fn an_osd_that_says_nothing_is_named_before_it_is_marked_down() {
    let mut world = World::found(1, 124);
    world.boot_osds(3);
    world.run_with_beacons(ms(5_000), &[]);
    unsaid(&mut world, "OSD_SILENT");
    world.run_with_beacons(ms(6_000), &[1]);
    let text = said(
        &mut world,
        "OSD_SILENT",
        "warn",
        &["1 of 3 OSDs", "osd.1 for"],
    );
    assert!(!text.contains("osd.0") && !text.contains("osd.2"), "{text}");
    world.beacon(MonId(0), 1, 0);
    world.run(ms(20));
    unsaid(&mut world, "OSD_SILENT");
}

/// F24: 78 % full, HEALTH_OK; one OSD died, and recovery filled the others. Health has to warn
/// earlier.
#[test]
fn osds_whose_loss_the_others_have_no_room_for_are_named() {
    let mut world = cluster(4, 125);
    unsaid(&mut world, "OSD_LOSS_NO_ROOM");
    (0..3).for_each(|osd| world.beacon(MonId(0), osd, 750));
    world.run(ms(20));
    let words = [
        "no room",
        "what osd.0 holds",
        "what osd.1 holds",
        "what osd.2 holds",
    ];
    let text = said(&mut world, "OSD_LOSS_NO_ROOM", "warn", &words);
    assert!(!text.contains("osd.3"), "it holds next to nothing: {text}");
    unsaid(&mut world, "OSD_NEARFULL");
    (0..3).for_each(|osd| world.beacon(MonId(0), osd, 500));
    world.run(ms(20));
    unsaid(&mut world, "OSD_LOSS_NO_ROOM");
}

/// F24: an OSD that is down for long is not taken out if the others lack space for its data. Its
/// PGs stay degraded until an operator acts, and only this finding tells the operator.
#[test]
fn an_osd_that_stays_in_for_want_of_room_is_named_until_there_is_room() {
    let mut world = cluster(5, 126);
    ask(
        &mut world,
        json!({"command": "config set", "key": "mon.down_out_interval_s", "value": 5}),
    );
    (0..5).for_each(|osd| world.beacon(MonId(0), osd, 800));
    world.run(ms(20));
    world.report(MonId(0), 1, 0, 0, true);
    let is_out = |world: &World| world.map(MonId(0)).osds[&OsdId(0)].weight.0 == 0;
    world.run(ms(3_000));
    unsaid(&mut world, "OSD_OUT_NO_ROOM");
    world.run(ms(7_000));
    assert!(
        !is_out(&world),
        "a fifth more for each of four that are 80 % full"
    );
    let text = said(
        &mut world,
        "OSD_OUT_NO_ROOM",
        "error",
        &["1 OSDs", "\"osd.0\""],
    );
    assert!(!text.contains("osd.1"), "{text}");
    (1..5).for_each(|osd| world.beacon(MonId(0), osd, 600));
    world.run(ms(2_000));
    assert!(is_out(&world), "there is room now");
    unsaid(&mut world, "OSD_OUT_NO_ROOM");
}

/// Writes waited for an OSD without space for recovery, and no message said why (simulator, seed
/// 1824). The finding that was added then was in no test.
#[test]
fn an_osd_without_room_for_recovery_is_named() {
    let mut world = cluster(3, 127);
    world.beacon_with(MonId(0), 1, 890, |beacon| beacon.no_room = true);
    world.run(ms(20));
    let text = said(
        &mut world,
        "RECOVERY_NO_ROOM",
        "warn",
        &["1 OSDs", "osd.1 is 89 % full"],
    );
    assert!(!text.contains("osd.0") && !text.contains("osd.2"), "{text}");
    // An OSD that is down takes no data in any case.
    ask(&mut world, json!({"command": "osd down", "osd": 1}));
    unsaid(&mut world, "RECOVERY_NO_ROOM");
    let mut world = cluster(3, 128);
    for no_room in [true, false] {
        world.beacon_with(MonId(0), 1, 890, |beacon| beacon.no_room = no_room);
        world.run(ms(20));
        assert_eq!(finding(&mut world, "RECOVERY_NO_ROOM").is_some(), no_room);
    }
}

/// F15: OSDs may report more space than their host's file system has, and are full when it is.
/// Deleting objects does not help while other files fill it: health has to name the file system.
#[test]
fn an_osd_that_is_full_says_which_file_system_is() {
    const SPACE: &str = "the file system of /srv/a/osd.1/store is full";
    for (code, severity, used) in [
        ("OSD_NEARFULL", "warn", 860),
        ("OSD_FULL", "error", 960),
        ("RECOVERY_NO_ROOM", "warn", 890),
    ] {
        let mut world = cluster(3, 129);
        unsaid(&mut world, code);
        for (osd, space) in [(1, SPACE), (2, "")] {
            world.beacon_with(MonId(0), osd, used, |beacon| {
                space.clone_into(&mut beacon.space);
                beacon.no_room = code == "RECOVERY_NO_ROOM";
            });
        }
        world.run(ms(20));
        let full = used / 10;
        let (limited, own) = (
            format!("\"osd.1 is {full} % full ({SPACE})\""),
            format!("\"osd.2 is {full} % full\""),
        );
        let text = said(&mut world, code, severity, &["2 OSDs", &limited, &own]);
        assert!(!text.contains("osd.0"), "{text}");
    }
}

// ── the others ──────────────────────────────────────────────────────────────────────────

type Act = fn(&mut World);

/// A code, its severity and words; the actions that cause and end it.
const CASES: &[(&str, &str, &[&str], Act, Act)] = &[
    (
        "SLOW_OPS",
        "warn",
        &[
            "2 operations",
            "osd.1: a write waits for osd.2",
            "osd.1: a read waits",
        ],
        |world| {
            world.beacon_with(MonId(0), 1, 100, |beacon| {
                beacon.slow = ["a write waits for osd.2", "a read waits"]
                    .map(str::to_owned)
                    .to_vec();
            });
        },
        |world| world.beacon(MonId(0), 1, 100),
    ),
    (
        "DEVICE_SLOW",
        "warn",
        &["osd.1: a flush hangs"],
        |world| {
            world.beacon_with(MonId(0), 1, 100, |beacon| {
                "a flush hangs".clone_into(&mut beacon.device)
            })
        },
        |world| world.beacon(MonId(0), 1, 100),
    ),
    (
        // It hears none of three others, and one of them does not hear it.
        "OSD_CUT_OFF",
        "warn",
        &["1 OSDs", "osd.4 accuses most of the cluster"],
        |world| {
            (0..3).for_each(|osd| world.report(MonId(0), 4, osd, 1_000, false));
            world.report(MonId(0), 0, 4, 1_000, false);
        },
        |world| world.run(Duration::from_secs(11)),
    ),
    (
        "OSD_DOWN",
        "warn",
        &["1 of 5 OSDs", "osd.3 has been down for"],
        |world| world.report(MonId(0), 1, 3, 0, true),
        |world| come_back(world, 3),
    ),
    (
        "OSD_MASS_FAILURE",
        "error",
        &["so many OSDs are lost"],
        |world| (0..3).for_each(|osd| world.report(MonId(0), 3, osd, 0, true)),
        |world| (0..3).for_each(|osd| come_back(world, osd)),
    ),
    (
        "NO_OSD_UP",
        "error",
        &["no OSD is up"],
        |world| (0..5).for_each(|osd| drop(ask(world, json!({"command": "osd down", "osd": osd})))),
        |world| come_back(world, 3),
    ),
    (
        "POOL_NO_REDUNDANCY",
        "warn",
        &["1 pools", "pool solo keeps one copy"],
        |world| {
            drop(ask(
                world,
                json!({"command": "pool create", "name": "solo", "size": 1, "pg_num": 1}),
            ))
        },
        |world| {
            drop(ask(
                world,
                json!({"command": "pool set", "name": "solo", "key": "size", "value": 3}),
            ))
        },
    ),
    (
        "POOL_FULL",
        "error",
        &["1 pools", "\"data\""],
        |world| world.beacon(MonId(0), 1, 960),
        |world| (0..5).for_each(|osd| world.beacon(MonId(0), osd, 100)),
    ),
    (
        "TOO_FEW_OSDS",
        "warn",
        &["5 OSDs", "pool data wants 6 copies"],
        |world| {
            drop(ask(
                world,
                json!({"command": "pool set", "name": "data", "key": "size", "value": 6}),
            ))
        },
        |world| {
            drop(ask(
                world,
                json!({"command": "pool set", "name": "data", "key": "size", "value": 5}),
            ))
        },
    ),
    (
        "FLAGS_SET",
        "warn",
        &["flags are set: norecover"],
        |world| {
            drop(ask(
                world,
                json!({"command": "flag set", "flag": "norecover"}),
            ))
        },
        |world| {
            drop(ask(
                world,
                json!({"command": "flag unset", "flag": "norecover"}),
            ))
        },
    ),
];

fn come_back(world: &mut World, osd: u32) {
    let boot = world.boot_message(osd, 2);
    world.say(Entity::Osd(OsdId(osd)), MonId(0), Epoch(1), boot);
}

/// Half of these codes were in no test, and no test checked their severity.
#[test]
fn each_code_is_said_for_its_cause_and_not_without() {
    for (code, severity, words, cause, end) in CASES {
        let mut world = cluster(5, 130);
        unsaid(&mut world, code);
        cause(&mut world);
        world.run(ms(1_500));
        let text = said(&mut world, code, severity, words);
        assert!(
            !text.contains("osd.0"),
            "it has nothing to do with it: {text}"
        );
        end(&mut world);
        world.run(ms(1_500));
        unsaid(&mut world, code);
    }
}

/// Tests checked for these codes but not for their severity. An alarm based on severity misses PGs
/// that do not serve if they are a warning.
#[test]
fn groups_are_said_to_be_as_bad_as_they_are() {
    let mut world = cluster(5, 131);
    let words = ["8 of 8 placement groups", "1.0 is peering since"];
    said(&mut world, "PG_INACTIVE", "warn", &words);
    settle(&mut world);
    for code in ["PG_INACTIVE", "PG_DEGRADED", "PG_DOWN", "OBJECT_UNFOUND"] {
        unsaid(&mut world, code);
    }
    let map = world.map(MonId(0)).clone();
    let (pg, record) = map.pgs.first_key_value().expect("eight");
    let primary = record.primary().expect("it serves");
    for unfound in [3, 0] {
        let (interval, state) = (record.since, pg_state::ACTIVE | pg_state::CLEAN);
        let report = PgReport {
            pg: *pg,
            interval,
            state,
            objects: 10,
            unfound,
            ..PgReport::default()
        };
        say_of_group(&mut world, primary, report);
        world.run(ms(20));
        match unfound {
            0 => unsaid(&mut world, "OBJECT_UNFOUND"),
            _ => drop(said(&mut world, "OBJECT_UNFOUND", "error", &["3 objects"])),
        }
    }
    ask(&mut world, json!({"command": "osd down", "osd": 0}));
    settle(&mut world);
    said(
        &mut world,
        "PG_DEGRADED",
        "warn",
        &[
            "of 8 placement groups have fewer copies",
            "has 2 of 3 copies",
        ],
    );
    unsaid(&mut world, "PG_INACTIVE");
    unsaid(&mut world, "PG_DOWN");
    (1..4).for_each(|osd| drop(ask(&mut world, json!({"command": "osd down", "osd": osd}))));
    said(
        &mut world,
        "PG_DOWN",
        "error",
        &["8 of 8 placement groups do not serve", "of 3 copies up"],
    );
    unsaid(&mut world, "PG_DEGRADED");
}

/// Sixteen codes were in no test. A code without a test, or without a line in the documents, fails
/// here.
#[test]
fn every_code_is_in_a_test_and_in_the_documents() {
    let (source, own) = include_str!("../src/health.rs")
        .split_once("#[cfg(test)]")
        .expect("tests come last");
    let is_code = |text: &&str| {
        text.contains('_') && text.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    };
    let codes: Vec<&str> = source.split('"').filter(is_code).collect();
    assert!(codes.len() > 20, "{codes:?}");
    let tests = [
        own,
        include_str!("health.rs"),
        include_str!("commands.rs"),
        include_str!("faults.rs"),
        include_str!("meta_limits.rs"),
    ];
    let document = include_str!("../../../docs/formats/commands.md");
    for code in codes {
        assert!(
            tests
                .iter()
                .any(|test| test.contains(&format!("\"{code}\""))),
            "no test knows {code}"
        );
        assert!(
            document.contains(&format!("`{code}`")),
            "docs/formats/commands.md lacks {code}"
        );
    }
}
