//! Stories of several daemons: what takes space and memory, and what is refused for want of it.

use super::company::Company;
use super::rig::PG;
use bytes::Bytes;
use nacre_store::{Read, ReadReply};
use nacre_types::{ClientId, ObjectId, OsdId};
use nacre_wire::Message;
use nacre_wire::map::Change;
use nacre_wire::msg::client::{OpFailure, OpRequest, SubOp};

/// Reproducible pseudo-random numbers.
/// A replica that filled up before its primary had to halt: an ordered update cannot be refused.
/// Now it reports its space in time, with heartbeats and with acknowledgements.
#[test]
fn a_member_that_is_nearly_full_stops_what_needs_room_and_nothing_else() {
    let heartbeats: fn(&Message) -> bool = |message| matches!(message, Message::ReplicateAcks(_));
    let acknowledgements: fn(&Message) -> bool = |message| matches!(message, Message::Pong(_));
    for (place, other_way) in [(1, heartbeats), (2, acknowledgements)] {
        let mut company = Company::new(3, 2, 3);
        company.write("a", b"hello").expect("there is room");
        company.write("b", b"hello").expect("there is room");
        company.wait(500);
        let member = company.acting()[place];
        // The host's report at each wake-up.
        company.host(member).osd.on_usage(100 << 30, 96 << 30);
        if place == 1 {
            // Acknowledgements are lost meanwhile: the heartbeat reports it.
            company.lose = other_way;
            company.wait(500);
            company.lose = |_| false;
        } else {
            company.lose = other_way;
            let last = company.send("a", vec![SubOp::Append { length: 1 }], b"!", 0);
            company.settle();
            assert!(
                matches!(company.answer(&last), Some(Ok(_))),
                "nobody knew yet"
            );
        }
        let refused = company.send("c", vec![SubOp::WriteFull { length: 1 }], b"x", 0);
        let goes = company.send("b", vec![SubOp::Delete {}], &[], 0);
        company.settle();
        company.lose = |_| false;
        company.wait(500);
        assert_eq!(company.answer(&refused), Some(Err(OpFailure::Full {})));
        assert!(
            matches!(company.answer(&goes), Some(Ok(_))),
            "what makes room is taken"
        );
        company.host(member).osd.on_usage(100 << 30, 50 << 30);
        company.wait(500);
        company.write("c", b"x").expect("there is room again");
    }
}

/// F14: each of three primaries could have as much in flight as clients had sent it, 64 MiB; stores
/// of 128 MiB were full before any OSD learned that one was nearly so, and all of them stopped (24
/// clients with objects of 3 MB). The updates in flight to a member are limited by that member's
/// reserve.
#[test]
fn what_is_under_way_to_a_small_store_fits_its_reserve() {
    const MB: usize = 1_000_000;
    let mut company = Company::new(3, 2, 3);
    company.write("a", b"hello").expect("written");
    let acting = company.acting();
    company.host(acting[1]).osd.on_usage(128 << 20, 10 << 20);
    company.wait(500);
    company.lose = |message| matches!(message, Message::ReplicateAcks(_));
    let names: Vec<String> = (0..8).map(|n| format!("object-{n}")).collect();
    let write = |company: &mut Company, name: &str, bytes: usize| {
        let mut request = company.request(
            ClientId(300),
            name,
            vec![SubOp::WriteFull {
                length: bytes as u64,
            }],
            0,
        );
        request.answered_below = 1;
        company.resend(&request, &vec![7; bytes]);
        request
    };
    let sent: Vec<_> = names
        .iter()
        .map(|name| write(&mut company, name, MB))
        .collect();
    company.settle();
    let there = |company: &mut Company, osd: u32| {
        names.iter().filter(|name| company.has(osd, name)).count()
    };
    assert_eq!(
        there(&mut company, acting[1]),
        2,
        "a share of the reserve of 12 MiB"
    );
    let small = OpRequest {
        answered_below: 1,
        ..company.request(ClientId(300), "a", vec![SubOp::Delete {}], 0)
    };
    company.resend(&small, &[]);
    company.settle();
    company.lose = |_| false;
    company.wait(2000);
    for request in sent.iter().chain([&small]) {
        assert!(
            matches!(company.answer(request), Some(Ok(_))),
            "{:?} {:?}",
            request.object,
            company.answer(request)
        );
    }
    assert_eq!(there(&mut company, acting[1]), 8);

    // Larger than the share: alone, as long as there is space for one of each primary.
    let large = write(&mut company, "large", 4 * MB);
    company.settle();
    assert!(matches!(company.answer(&large), Some(Ok(_))));
    company.host(acting[1]).osd.on_usage(128 << 20, 110 << 20);
    company.wait(500);
    let large = write(&mut company, "larger", 4 * MB);
    let fits = write(&mut company, "fits", MB);
    company.settle();
    assert_eq!(company.answer(&large), Some(Err(OpFailure::Full {})));
    assert!(matches!(company.answer(&fits), Some(Ok(_))));
}

/// A write of one byte to an object that a snapshot preserves clones its omap in every store. This
/// was not counted: with some large omaps and a snapshot, the stores of all members became full at
/// once and stopped, again after each restart, when the write was resent.
#[test]
fn clones_fit_what_stores_have() {
    const MIB: u64 = 1 << 20;
    let mut company = Company::new(3, 2, 3);
    let names: Vec<String> = (0..6).map(|n| format!("object-{n}")).collect();
    let entries: Vec<_> = (0..100)
        .map(|n| (Bytes::from(format!("{n:03}")), Bytes::from(vec![7; 15_000])))
        .collect();
    for name in &names {
        company
            .op(
                name,
                vec![SubOp::OmapSet {
                    entries: entries.clone(),
                }],
                &[],
            )
            .expect("written");
    }
    let acting = company.acting();
    let snap = super::snapshots::snapshot(&mut company, "monday");
    // The reserve is 12 MiB, of which each of three primaries may have 2 in flight: less than one
    // clone's 3 MB.
    let say = |company: &mut Company, free: u64| {
        for osd in &acting {
            company
                .host(*osd)
                .osd
                .on_usage(128 * MIB, (128 - free) * MIB);
        }
        company.wait(500);
    };
    let cloned = |company: &mut Company, osd: u32| {
        let has = |name: &&String| {
            let clone = ObjectId {
                snapshot: snap,
                ..ObjectId::named(name)
            };
            company
                .host(osd)
                .store
                .peek(&Read::Stat(crate::key::store_key(PG, &clone)))
                != Ok(ReadReply::Stat(None))
        };
        names.iter().filter(has).count()
    };
    let write = |company: &mut Company, name: &str, op: SubOp| {
        let length = if matches!(op, SubOp::Delete {}) { 0 } else { 1 };
        let request = OpRequest {
            answered_below: 1,
            ..company.request(ClientId(300), name, vec![op], 0)
        };
        company.resend(&request, &b"x"[..length]);
        request
    };
    let byte = || SubOp::Write {
        offset: 0,
        length: 1,
    };
    say(&mut company, 14);
    for op in [byte(), SubOp::Delete {}] {
        let refused = write(&mut company, &names[0], op);
        company.settle();
        assert_eq!(
            company.answer(&refused),
            Some(Err(OpFailure::Full {})),
            "three such would not fit"
        );
    }
    assert_eq!(cloned(&mut company, acting[1]), 0);
    say(&mut company, 60);
    company.lose = |message| matches!(message, Message::ReplicateAcks(_));
    let sent: Vec<_> = names
        .iter()
        .map(|name| write(&mut company, name, byte()))
        .collect();
    company.settle();
    assert_eq!(
        cloned(&mut company, acting[1]),
        1,
        "the others wait until this one is acknowledged"
    );
    company.lose = |_| false;
    company.wait(3000);
    for request in &sent {
        assert!(
            matches!(company.answer(request), Some(Ok(_))),
            "{:?}",
            company.answer(request)
        );
    }
    assert_eq!(cloned(&mut company, acting[1]), 6);
    // A deletion that makes no clone is executed even if the stores are full.
    say(&mut company, 1);
    let deleted = write(&mut company, &names[0], SubOp::Delete {});
    company.settle();
    assert!(
        matches!(company.answer(&deleted), Some(Ok(_))),
        "{:?}",
        company.answer(&deleted)
    );
}

/// Parts of objects that recovery brings are counted on arrival: the host reports only from time to
/// time.
#[test]
fn recovery_leaves_half_of_the_reserve_alone() {
    let mut company = Company::new(3, 2, 3);
    company.limit(crate::Limits::default());
    let member = company.acting()[2];
    let away = company.kill(member);
    company.wait(3000);
    for n in 0..10 {
        company
            .write(&format!("object-{n}"), &vec![1; 1 << 20])
            .expect("written");
    }
    company.lose = |message| matches!(message, Message::Push(..));
    company.revive(away, 2);
    company.lose = |_| false;
    // 12.8 MiB are the reserve, and there is space for 4 MiB besides half of it.
    company
        .host(member)
        .osd
        .on_usage(128 << 20, (128 << 20) - (10 << 20) - (1 << 19));
    company.wait(6000);
    let there = (0..10)
        .filter(|n| company.has(member, &format!("object-{n}")))
        .count();
    assert!((3..=4).contains(&there), "{there} of them");
    company.host(member).osd.on_usage(128 << 20, 10 << 20);
    company.wait(6000);
    assert_eq!(
        (0..10)
            .filter(|n| company.has(member, &format!("object-{n}")))
            .count(),
        10
    );
}

/// A store accepts only a limited amount through its log at once. An ordered update cannot be
/// refused, so a plain operation with some megabytes of omap stopped the daemon with the smallest
/// device.
#[test]
fn what_a_members_store_would_not_take_is_refused_before_it_is_ordered() {
    let entries = |bytes: usize| {
        vec![SubOp::OmapSet {
            entries: vec![
                ("a".into(), vec![1; bytes / 2].into()),
                ("b".into(), vec![2; bytes / 2].into()),
            ],
        }]
    };
    let takes = 64 << 10;
    for place in 0..3 {
        let mut company = Company::new(3, 2, 3);
        let before = vec![SubOp::OmapSet {
            entries: vec![("c".into(), vec![3; 40_000].into())],
        }];
        company.op("a", before, &[]).expect("it fits");
        let small = company.acting()[place];
        company.host(small).store.takes(takes);
        company.host(small).osd.on_store_limit(takes);
        // Members report it when the next interval begins.
        let other = company
            .acting()
            .into_iter()
            .find(|osd| *osd != small)
            .expect("three");
        let host = company.kill(other);
        company.revive(host, 2);
        company.wait(3000);
        assert_eq!(
            company.op("a", entries(80_000), &[]),
            Err(OpFailure::TooLarge {}),
            "{place}"
        );
        company.op("a", entries(20_000), &[]).expect("it fits");
        let data = vec![7; 200_000];
        company.write("a", &data).expect("data goes by another way");
    }
}

/// F17, proven on processes: three blocked 4 MiB puts to a PG that did not serve were queued again
/// at every resend, until the daemon had no memory for any client's operation: all other PGs of
/// that OSD starved.
#[test]
fn a_group_that_does_not_serve_takes_a_share_of_its_daemon() {
    let mut company = Company::new(3, 2, 3);
    company.write("a", b"0").expect("all are there");
    let away: Vec<u32> = company.acting()[1..].to_vec();
    let hosts: Vec<_> = away.iter().map(|osd| company.kill(*osd)).collect();
    company.wait(500);
    let serving = company.acting()[0];
    let data = vec![7; 1 << 20];
    let put = |company: &mut Company, name: &str| {
        company.send(name, vec![SubOp::WriteFull { length: 1 << 20 }], &data, 0)
    };
    let mut waiting = put(&mut company, "a");
    let one = company.host(serving).osd.client_load();
    for attempt in 2..100 {
        waiting.attempt = attempt;
        company.resend(&waiting, &data);
    }
    assert_eq!(
        company.host(serving).osd.client_load(),
        one,
        "a copy of what waits takes nothing"
    );
    let others: Vec<_> = (0..200)
        .map(|n| put(&mut company, &format!("object-{n}")))
        .collect();
    let (ops, bytes) = company.host(serving).osd.client_load();
    assert!(
        ops < 20 && bytes <= 9 << 20,
        "{ops} operations of {bytes} bytes"
    );
    assert!(company.host(serving).osd.wants_client_work());
    // Of the refused operations the first represents all behind it: no later one of this client is
    // accepted before it.
    let mut late = others[199].clone();
    (late.attempt, late.answered_below) = (2, others[0].request.sequence);
    company.resend(&late, &[0]);
    assert_eq!(company.host(serving).osd.client_load(), (ops, bytes));
    for (osd, host) in away.into_iter().zip(hosts) {
        assert_eq!(host.osd.id(), OsdId(osd));
        company.revive(host, 2);
    }
    company.wait(2000);
    company.replies.clear();
    for request in &others {
        let mut again = request.clone();
        again.attempt = 3;
        company.resend(&again, &data);
    }
    company.wait(1000);
    let good = company
        .replies
        .iter()
        .filter(|(reply, _)| reply.attempt == 3 && reply.failure.is_none())
        .count();
    assert_eq!(good, 200, "all are answered when the group serves");
}

/// Entries of maps, attributes and names were not counted: operations of 1 MiB each counted as 512
/// bytes, and a PG that did not serve held gigabytes of them.
#[test]
fn what_an_operation_carries_beside_data_is_weighed() {
    let mut company = Company::new(3, 2, 3);
    let away: Vec<u32> = company.acting()[1..].to_vec();
    away.iter().for_each(|osd| drop(company.kill(*osd)));
    company.wait(500);
    let serving = company.acting()[0];
    for n in 0..200 {
        let entries = vec![("k".into(), Bytes::from(vec![7; 1 << 20]))];
        company.send(
            &format!("object-{n}"),
            vec![SubOp::OmapSet { entries }],
            &[],
            0,
        );
    }
    let (ops, bytes) = company.host(serving).osd.client_load();
    assert!(
        ops < 20 && (4 << 20..=9 << 20).contains(&bytes),
        "{ops} operations of {bytes} bytes"
    );
}

/// A pool was removed while clients' operations were in flight. They were counted for ever, until
/// the daemon accepted no operations of any client any more.
#[test]
fn the_operations_of_a_removed_pool_take_no_room() {
    let mut company = Company::new(3, 2, 3);
    company.limit(crate::Limits {
        client_ops: 4,
        ..crate::Limits::default()
    });
    let primary = company.acting()[0];
    company.lose = |message| matches!(message, Message::ReplicateAcks(_));
    for name in ["a", "b", "c"] {
        company.send(name, vec![SubOp::WriteFull { length: 1 }], b"x", 0);
    }
    company.send(
        "a",
        vec![SubOp::Read {
            offset: 0,
            length: 1,
        }],
        &[],
        0,
    );
    company.settle();
    let host = company.host(primary);
    assert!(
        host.osd.client_load().0 == 4 && !host.osd.wants_client_work(),
        "it has all hands full"
    );
    company.commit(vec![Change::PoolRemove { pool: PG.pool }]);
    let host = company.host(primary);
    assert!(host.osd.wants_client_work(), "and free again");
    assert_eq!(host.osd.client_load(), (0, 0));
}

/// A member that had left was filled, and its daemon stopped: its store accepts less in one
/// transaction than the others', and only the serving members had been asked for their limits.
#[test]
fn what_the_store_of_one_that_is_filled_would_not_take_is_refused() {
    let mut company = Company::new(3, 2, 3);
    let spare = company.acting()[2];
    let away = company.kill(spare);
    company.set("osd.log_entries_max", "100");
    for n in 0..300 {
        company
            .write(&format!("object-{}", n % 10), b"1")
            .expect("two are enough");
    }
    company.flags(nacre_wire::map::flag::NO_BACKFILL);
    company.revive(away, 2);
    company.host(spare).osd.on_store_limit(64 << 10);
    // It reports it when the next interval begins.
    let other = company.acting()[1];
    let host = company.kill(other);
    company.revive(host, 2);
    company.wait(3000);
    assert!(!company.acting().contains(&spare), "it is to be filled");
    let entries = |bytes: usize| {
        vec![SubOp::OmapSet {
            entries: vec![("a".into(), vec![1; bytes].into())],
        }]
    };
    assert_eq!(
        company.op("a", entries(80_000), &[]),
        Err(OpFailure::TooLarge {})
    );
    company.op("a", entries(20_000), &[]).expect("it fits");
}

/// (Review; F17.) Each resend of an update that was not durable everywhere kept its data until
/// then: one slow member and ten clients filled the daemon's memory for clients, and it received
/// nothing for any other PG.
#[test]
fn repetitions_of_what_is_not_committed_take_nothing() {
    let mut company = Company::new(3, 2, 3);
    company.lose = |message| matches!(message, Message::ReplicateAcks(_));
    let data = vec![7; 1 << 20];
    let mut write = company.send("a", vec![SubOp::WriteFull { length: 1 << 20 }], &data, 0);
    company.settle();
    let primary = company.acting()[0];
    let one = company.host(primary).osd.client_load();
    assert!(one.1 > 1 << 20);
    for attempt in 2..20 {
        write.attempt = attempt;
        company.resend(&write, &data);
        company.settle();
        assert_eq!(company.host(primary).osd.client_load(), one);
    }
    company.lose = |_| false;
    company.await_answer(&write).expect("written");
    let attempts: Vec<u32> = company
        .replies
        .iter()
        .map(|(reply, _)| reply.attempt)
        .collect();
    assert_eq!(attempts, [19], "one answer, to the last attempt");
    assert_eq!(company.host(primary).osd.client_load(), (0, 0));
}
