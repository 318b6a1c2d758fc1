//! Stories of bit rot at one member, regardless of which OSD finds it: the client gets its data as
//! long as any member has it, and the replica is repaired.

use super::company::Company;
use super::rig::{PG, weighted};
use nacre_types::{ObjectId, SnapId};
use nacre_wire::Message;
use nacre_wire::map::{Change, Weight};
use nacre_wire::msg::client::{OpFailure, SubOp};

pub(super) fn is_clean(company: &Company) -> bool {
    let primary = company.acting()[0];
    company.hosts[&primary]
        .osd
        .pgs()
        .any(|pg| pg.id() == PG && pg.is_clean())
}

/// A primary answered `Corrupt` for data that two others had.
#[test]
fn a_read_of_what_rotted_at_the_primary_is_answered_from_another_copy() {
    for size in [2, 3] {
        let mut company = Company::new(3, 2, size);
        company.write("a", b"hello").expect("written");
        let primary = company.acting()[0];
        company.rot(primary, "a");
        assert_eq!(company.read("a").expect("read"), b"hello");
        assert!(
            company.can_read(primary, "a"),
            "and it is good again where it had rotted"
        );
        company.wait(3000);
        assert!(
            company.was_said("cannot read its copy") && company.was_said("has a good copy"),
            "{:?}",
            company.log
        );
        assert!(is_clean(&company));
        company.write("a", b"world").expect("written");
        assert_eq!(company.read("a").expect("read"), b"world");
    }
}

#[test]
fn an_update_that_reads_first_waits_for_a_good_copy() {
    let mut company = Company::new(3, 2, 3);
    company.write("a", b"hello").expect("written");
    let primary = company.acting()[0];
    company.rot(primary, "a");
    let swap = vec![
        SubOp::CompareData {
            offset: 0,
            length: 5,
        },
        SubOp::WriteFull { length: 3 },
    ];
    company
        .op("a", swap, b"hellobye")
        .expect("it is as compared");
    assert_eq!(company.read("a").expect("read"), b"bye");
    assert!(company.can_read(primary, "a"));
}

/// Part of a corrupt block is overwritten: the store keeps it unreadable, as it should. The members
/// have the complete block.
#[test]
fn a_partial_overwrite_of_a_rotten_block_ends_whole() {
    let mut company = Company::new(3, 2, 3);
    company.write("a", b"hello").expect("written");
    let primary = company.acting()[0];
    company.rot(primary, "a");
    company.patch("a", 1, b"EL").expect("written");
    assert_eq!(company.read("a").expect("read"), b"hELlo");
    assert!(company.can_read(primary, "a"));
}

/// The same at a member: its store applied the update and kept the block unreadable, the others had
/// the complete block, the loss was not reported, and the next failure of the others would have
/// made it permanent (chaos, seeds 9 and 10).
#[test]
fn a_member_that_loses_the_rest_of_a_block_is_given_a_good_copy() {
    for (size, more) in [(2, 0), (3, 0), (3, 1), (3, 5)] {
        let mut company = Company::new(3, 2, size);
        company.write("a", b"hello").expect("written");
        let member = company.acting()[1];
        company.rot(member, "a");
        // Later updates are in flight when the primary learns of the first.
        let part = |n: u64| {
            vec![SubOp::Write {
                offset: n % 4,
                length: 1,
            }]
        };
        let sent: Vec<_> = (0..=more)
            .map(|n| company.send("a", part(n), b"x", 0))
            .collect();
        company.wait(1000);
        assert!(
            sent.iter()
                .all(|request| matches!(company.answer(request), Some(Ok(_))))
        );
        assert!(company.can_read(member, "a"), "size {size}, {more} more");
        assert!(
            is_clean(&company) && company.was_said("has a good copy"),
            "{:?}",
            company.log
        );
        let whole = company.read("a").expect("read");
        for osd in company.acting() {
            assert_eq!(
                company.data_at(osd, &ObjectId::named("a")),
                whole,
                "osd.{osd}"
            );
        }
    }
}

/// The primary's own replica, and the updates that arrive while it is recovered.
#[test]
fn a_primary_that_loses_the_rest_of_a_block_is_given_a_good_copy_before_anybody_reads() {
    let mut company = Company::new(3, 2, 3);
    company.write("a", b"hello").expect("written");
    let primary = company.acting()[0];
    company.rot(primary, "a");
    company.patch("a", 1, b"EL").expect("written");
    company.wait(500);
    assert!(company.can_read(primary, "a"));
    assert_eq!(company.read("a").expect("read"), b"hELlo");
}

/// The primary does not get the report, or is gone before it has repaired the object: the member
/// reports it again, also after a restart, and to every later primary.
#[test]
fn what_a_member_has_lost_it_says_until_it_has_it() {
    for restart in [false, true] {
        let mut company = Company::new(3, 2, 3);
        company.write("a", b"hello").expect("written");
        company.write("b", b"hello").expect("written");
        let (primary, member) = (company.acting()[0], company.acting()[1]);
        company.rot(member, "a");
        company.rot(member, "b");
        company.lose = |message| matches!(message, Message::PushAck(ack) if ack.damaged);
        company.patch("a", 1, b"EL").expect("written");
        company.patch("b", 1, b"EL").expect("written");
        company.wait(500);
        assert!(!company.can_read(member, "a"), "nobody was told");
        // The note follows, although the store reports nothing for an update that touches no data.
        company
            .op("a", vec![SubOp::Truncate { size: 5 }], &[])
            .expect("written");
        let stopped = company.kill(if restart { member } else { primary });
        company.wait(3000);
        // Objects deleted or completely overwritten in between need no repair.
        company
            .op("b", vec![SubOp::Delete {}], &[])
            .expect("deleted");
        company.lose = |_| false;
        company.revive(stopped, 2);
        company.wait(6000);
        assert!(company.can_read(member, "a"), "restart: {restart}");
        assert!(is_clean(&company), "{:?}", company.log);
        assert_eq!(company.data_at(member, &ObjectId::named("a")), b"hELlo");
    }
}

/// A clone made of a replica that has lost data has lost it as well: the member that gets a good
/// replica of the object gets one of the clone.
#[test]
fn a_clone_of_what_has_lost_data_is_given_a_good_copy_too() {
    let mut company = Company::new(3, 2, 3);
    company.write("a", b"hello").expect("written");
    let member = company.acting()[1];
    company.rot(member, "a");
    company.lose = |message| matches!(message, Message::PushAck(ack) if ack.damaged);
    company.patch("a", 1, b"EL").expect("written");
    let snap = SnapId(1);
    company.commit(vec![Change::SnapCreate {
        pool: PG.pool,
        snap,
        name: "monday".into(),
    }]);
    company.patch("a", 0, b"H").expect("written");
    company.lose = |_| false;
    company.wait(3000);
    let clone = ObjectId {
        snapshot: snap,
        ..ObjectId::named("a")
    };
    assert_eq!(company.data_at(member, &clone), b"hELlo");
    assert_eq!(company.data_at(member, &ObjectId::named("a")), b"HELlo");
}

#[test]
fn rot_found_while_updates_are_in_flight_waits_for_them() {
    let mut company = Company::new(3, 2, 3);
    company.write("a", b"hello").expect("written");
    let primary = company.acting()[0];
    company.rot(primary, "a");
    // Not acknowledged by the members before the compare-and-set has read.
    let first = company.send(
        "a",
        vec![SubOp::Write {
            offset: 1,
            length: 2,
        }],
        b"EL",
        0,
    );
    let swap = vec![
        SubOp::CompareData {
            offset: 0,
            length: 5,
        },
        SubOp::WriteFull { length: 3 },
    ];
    let second = company.send("a", swap, b"hELlobye", 0);
    company.wait(1000);
    assert!(matches!(company.answer(&first), Some(Ok(_))));
    assert!(
        matches!(company.answer(&second), Some(Ok(_))),
        "{:?}",
        company.replies
    );
    assert_eq!(company.read("a").expect("read"), b"bye");
}

/// The member that is asked for a good replica has none either: the next one is asked, and both are
/// repaired.
#[test]
fn a_source_that_cannot_read_says_so_and_is_repaired_too() {
    for omit in 1..3 {
        let mut company = Company::new(3, 2, 3);
        company.write("a", b"hello").expect("written");
        let acting = company.acting();
        let (rotten, good) = (acting[omit], acting[3 - omit]);
        company.rot(acting[0], "a");
        company.rot(rotten, "a");
        assert_eq!(company.read("a").expect("read"), b"hello");
        company.wait(2000);
        assert!(company.can_read(acting[0], "a"));
        // Only a member asked before the good one is detected.
        assert_eq!(
            company.can_read(rotten, "a"),
            rotten < good,
            "the members are asked in order"
        );
        assert!(is_clean(&company));
        company.write("a", b"world").expect("nobody is left behind");
    }
}

#[test]
fn only_without_a_good_copy_the_client_hears_of_it() {
    let mut company = Company::new(3, 2, 3);
    company.write("a", b"hello").expect("written");
    company.write("b", b"other").expect("written");
    for osd in company.acting() {
        company.rot(osd, "a");
    }
    assert!(matches!(company.read("a"), Err(OpFailure::Corrupt { .. })));
    assert!(
        matches!(company.read("a"), Err(OpFailure::Corrupt { .. })),
        "again"
    );
    assert_eq!(
        company.read("b").expect("others are as they were"),
        b"other"
    );
    company
        .op("a", vec![SubOp::Stat {}], &[])
        .expect("what is left of it is served");
    company.wait(3000);
    assert!(
        company.was_said("no member that is here"),
        "{:?}",
        company.log
    );
    assert_eq!(
        company
            .log
            .iter()
            .filter(|line| line.contains("no member"))
            .count(),
        1,
        "once: {:?}",
        company.log
    );
    assert_eq!(company.reports[&PG].unfound, 1, "health says it, too");
    company.write("a", b"new").expect("it may be written anew");
    company.wait(3000);
    assert_eq!(company.reports[&PG].unfound, 0);
    assert_eq!(company.read("a").expect("read"), b"new");
    for osd in company.acting() {
        company.rot(osd, "a");
    }
    assert!(matches!(company.read("a"), Err(OpFailure::Corrupt { .. })));
    company.op("a", vec![SubOp::Delete {}], &[]).expect("or go");
    assert_eq!(company.read("a"), Err(OpFailure::NotFound {}));
}

#[test]
fn the_only_copy_is_served_as_far_as_it_can_be_read() {
    let mut company = Company::new(1, 1, 1);
    company.write("a", &[7; 8192]).expect("written");
    let only = company.acting()[0];
    company.rot(only, "a");
    assert!(matches!(
        company.read("a"),
        Err(OpFailure::Corrupt { offset: 0 })
    ));
    let rest = company.op(
        "a",
        vec![SubOp::Read {
            offset: 4096,
            length: 10,
        }],
        &[],
    );
    assert_eq!(rest.expect("the second block is good"), [7; 10]);
    company.write("a", &[8; 8192]).expect("written anew");
    assert_eq!(company.read("a").expect("read"), [8; 8192]);
}

/// A repair that was pending when the daemon died is done by its next instance, and the object is
/// not read before.
#[test]
fn damage_is_remembered_like_any_missing_object() {
    let mut company = Company::new(3, 1, 3);
    company.write("a", b"hello").expect("written");
    let acting = company.acting();
    company.rot(acting[0], "a");
    company.lose = |message| matches!(message, nacre_wire::Message::Pull(_));
    let request = company.send(
        "a",
        vec![SubOp::Read {
            offset: 0,
            length: 5,
        }],
        &[],
        0,
    );
    company.wait(200);
    assert!(company.answer(&request).is_none());
    let dead = company.kill(acting[0]);
    company.wait(1000);
    company.lose = |_| false;
    company.revive(dead, 2);
    let noted = company
        .host(acting[0])
        .osd
        .pgs()
        .any(|pg| pg.local.missing.contains_key(&ObjectId::named("a")));
    company.wait(5000);
    assert!(noted || company.can_read(acting[0], "a"));
    assert!(is_clean(&company) && company.can_read(acting[0], "a"));
    assert_eq!(company.read("a").expect("read"), b"hello");
}

/// An object was corrupted at the primary while a member that returns by log waits for it: it is
/// pulled from the third, then pushed.
#[test]
fn what_cannot_be_pushed_is_pulled_first() {
    let mut company = Company::new(3, 2, 3);
    let acting = company.acting();
    let dead = company.kill(acting[2]);
    company.wait(1000);
    company.write("a", b"hello").expect("written");
    company.rot(acting[0], "a");
    company.revive(dead, 2);
    company.wait(5000);
    assert!(
        is_clean(&company),
        "{:?} {:?} {:?}",
        company.reports,
        company.log,
        company.acting()
    );
    for osd in acting {
        assert!(company.can_read(osd, "a"), "osd.{osd}");
    }
}

/// An object that only the primary had, and has lost, took the places of everything else that a
/// member lacked.
#[test]
fn what_is_lost_keeps_nothing_else_from_being_recovered() {
    let mut company = Company::new(2, 1, 2);
    let acting = company.acting();
    let dead = company.kill(acting[1]);
    company.wait(1000);
    let lost: Vec<String> = (0..2 * crate::config::Limits::default().recovery_objects)
        .map(|n| format!("a-{n:03}"))
        .collect();
    for name in &lost {
        company.write(name, b"hello").expect("written");
    }
    company.write("z", b"hello").expect("written");
    for name in &lost {
        company.rot(acting[0], name);
    }
    company.revive(dead, 2);
    company.wait(20_000);
    assert!(company.can_read(acting[1], "z"), "{:?}", company.log);
    assert!(!company.can_read(acting[1], &lost[0]) && company.was_said("no member that is here"));
}

/// A range of a backfill with an object that could not be read made no progress until the next
/// interval, and held its objects.
#[test]
fn a_backfill_goes_on_after_repair_and_lets_go_when_there_is_none() {
    for second_copy in [true, false] {
        let mut company = Company::new(4, 1, if second_copy { 2 } else { 1 });
        for name in ["a", "b", "c"] {
            company.write(name, b"hello").expect("written");
        }
        let old = company.acting();
        company.rot(old[0], "b");
        // Its successors have nothing, and the log is no longer complete.
        let everybody = |company: &Company| company.acting() == old;
        for _ in 0..300 {
            company.write("c", b"again").expect("written");
        }
        assert!(everybody(&company));
        let out = |osd: &u32| weighted(*osd, Weight::OUT);
        company.commit(old.iter().map(out).collect());
        company.wait(8000);
        if second_copy {
            assert!(
                is_clean(&company) && company.acting().iter().all(|osd| !old.contains(osd)),
                "{:?}",
                company.reports
            );
        } else {
            assert_eq!(company.acting(), old, "the only copy stays where it is");
            company
                .write("b", b"fresh")
                .expect("and may be written: the range is not held for ever");
            company.wait(15_000);
            assert!(
                is_clean(&company) && company.acting().iter().all(|osd| !old.contains(osd)),
                "{:?}",
                company.reports
            );
        }
        let expected: &[u8] = if second_copy { b"hello" } else { b"fresh" };
        assert_eq!(company.read("b").expect("read"), expected);
        assert_eq!(company.read("a").expect("read"), b"hello");
    }
}

/// Simulator with watches and locks, seed 5. Only one member had applied a write; the others had
/// adopted its log, not yet the object, when it died. They served, and their logs were trimmed
/// beyond that write: when the member returned it was a target of backfill, which counts as having
/// no replicas. The backfill waited for the object, and the only OSD that had it was not asked.
#[test]
fn what_only_a_target_of_backfill_has_is_asked_of_it() {
    let mut company = Company::new(3, 1, 3);
    let option = |key: &str, value: &str| Change::Config {
        key: key.into(),
        value: Some(value.to_owned()),
    };
    company.commit(vec![
        option("osd.log_entries_min", "100"),
        option("osd.log_entries_max", "100"),
    ]);
    let all = company.acting();
    let (alone, others) = (all[2], [all[0], all[1]]);
    let dead = others.map(|osd| company.kill(osd));
    company.wait(2000);
    company
        .write("a", b"only here")
        .expect("one copy is enough");
    // Its replicas never arrive; the log's entries do.
    company.lose = |message| matches!(message, Message::Push(..) | Message::Pull(_));
    for host in dead {
        company.revive(host, 2);
    }
    company.wait(2000);
    let last = company.kill(alone);
    company.lose = |_| false;
    company.wait(2000);
    for number in 0..150 {
        company
            .write(&format!("b{number}"), b"since then")
            .expect("the others serve");
    }
    let log = |host: &super::rig::Host| {
        let group = host
            .osd
            .pgs()
            .find(|pg| pg.id() == PG)
            .expect("it has the group");
        (group.local.log.tail(), group.local.log.head())
    };
    let primary = company.acting()[0];
    assert!(
        log(&company.hosts[&primary]).0 > log(&last).1,
        "their logs reach back to his: no backfill"
    );
    company.revive(last, 2);
    company.wait(10_000);
    assert_eq!(company.read("a").expect("it was answered"), b"only here");
    assert!(is_clean(&company));
}
