//! Stories of the obligations of several daemons towards each other, and towards their clients,
//! beyond one update: totals after a split, space, early answers.

use crate::company::Company;
use crate::hollow_stories::weighted;
use crate::key;
use crate::stories::{Host, PG};
use bytes::Bytes;
use nacre_store::{ObjectStore, Read, ReadReply, Token};
use nacre_types::{ClientId, Entity, ObjectId, OsdId, PgId};
use nacre_wire::map::{Change, Weight};
use nacre_wire::msg::client::{OpFailure, OpRequest, SubOp, op_flag};
use nacre_wire::{Message, Payload};

/// Reproducible pseudo-random numbers.
struct Dice(u64);
impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn split(company: &mut Company, pg_num: u32) {
    let mut settings = company.monitors.map.pools[&PG.pool].clone();
    (settings.pg_num, settings.pgp_num) = (pg_num, pg_num);
    company.commit(vec![Change::PoolSet {
        pool: PG.pool,
        settings,
    }]);
}

/// The objects and bytes of a PG in the store of an OSD.
fn recount(company: &mut Company, osd: u32, pg: PgId, pg_num: u32) -> (u64, u64) {
    let host = company.host(osd);
    let mut ask = |read: Read| {
        host.store.read(read, Token(u64::MAX));
        let mut events = Vec::new();
        host.store.poll(&mut events);
        match events.pop() {
            Some(nacre_store::Event::Read(_, Ok(reply))) => reply,
            other => panic!("{other:?}"),
        }
    };
    let ((from, to), collection) = (
        key::range(pg.seed, pg_num),
        key::collection(pg.pool, pg.shard),
    );
    let ReadReply::List { keys, .. } = ask(Read::List {
        collection,
        from,
        to,
        limit: usize::MAX,
    }) else {
        panic!("a list")
    };
    let sizes = keys.iter().map(|at| {
        match ask(Read::Stat(nacre_store::ObjectKey::new(
            collection,
            at.clone(),
        ))) {
            ReadReply::Stat(Some(stat)) => stat.size,
            other => panic!("{other:?}"),
        }
    });
    let sizes: Vec<u64> = sizes.collect();
    (sizes.len() as u64, sizes.iter().sum())
}

/// A split halved the totals and continued from the wrong base for ever.
#[test]
fn totals_are_exact_again_after_a_split_whatever_clients_do_meanwhile() {
    for seed in 0..4 {
        let mut dice = Dice(seed);
        let mut company = Company::new(2, 1, 2);
        let change = |company: &mut Company, dice: &mut Dice| {
            let name = format!("object-{}", dice.below(700));
            let data = vec![1; dice.below(50) as usize];
            let ops = match dice.below(4) {
                0 => vec![SubOp::Create { exclusive: false }, SubOp::Delete {}],
                1 => vec![SubOp::Append {
                    length: data.len() as u64,
                }],
                _ => vec![SubOp::WriteFull {
                    length: data.len() as u64,
                }],
            };
            let data = if matches!(ops[0], SubOp::Create { .. }) {
                Vec::new()
            } else {
                data
            };
            company.send(&name, ops, &data, 0);
            company.settle();
        };
        for _ in 0..900 {
            change(&mut company, &mut dice);
        }
        company.wait(1000);
        split(&mut company, 4);
        company.wait(100);
        let groups: Vec<PgId> = (0..4).map(|seed| PgId { seed, ..PG }).collect();
        let estimated = |company: &Company| {
            let all = company.hosts.values().flat_map(|host| host.osd.pgs());
            all.filter(|pg| pg.as_primary().is_some() && pg.totals().estimated)
                .count()
        };
        assert_eq!(estimated(&company), 4, "nobody has counted yet");
        // Answers of the stores arrive late and in bursts, with updates before, between and after
        // them.
        for round in 0..150 {
            if round == 0 {
                company
                    .hosts
                    .values_mut()
                    .for_each(|host| host.held = Some(Vec::new()));
            }
            for _ in 0..dice.below(6) {
                change(&mut company, &mut dice);
            }
            if dice.below(2) == 0 {
                company.hosts.values_mut().for_each(|host| host.release());
                company.settle();
            }
            company.wait(50);
        }
        for _ in 0..50 {
            company.hosts.values_mut().for_each(|host| host.release());
            company.wait(50);
        }
        for host in company.hosts.values_mut() {
            host.release();
            host.held = None;
        }
        company.wait(4000);
        assert_eq!(estimated(&company), 0, "everybody has counted");
        for last in [false, true] {
            if last {
                // The count goes into the log, and to the members.
                for name in 0..40 {
                    company
                        .write(&format!("object-{name}"), b"end")
                        .expect("written");
                }
            }
            for pg in &groups {
                let acting: Vec<u32> = company.monitors.map.pgs[pg]
                    .acting
                    .iter()
                    .map(|osd| osd.0)
                    .collect();
                let expected = recount(&mut company, acting[0], *pg, 4);
                for osd in acting.iter().take(if last { 2 } else { 1 }) {
                    let group = company.hosts[osd]
                        .osd
                        .pgs()
                        .find(|group| group.id() == *pg)
                        .expect("it is there");
                    let totals = group.totals();
                    assert_eq!(
                        (totals.objects, totals.bytes, totals.estimated),
                        (expected.0, expected.1, false),
                        "{pg} at {osd}"
                    );
                }
            }
        }
    }
}

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
    let snap = crate::snap_stories::snapshot(&mut company, "monday");
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

/// CEPH-46: the report that an update is applied everywhere, in memory, precedes the durable
/// answer, and goes only to clients that requested it.
#[test]
fn who_asks_hears_of_applied_before_durable_and_never_after() {
    for slow in 0..3 {
        let mut company = Company::new(3, 2, 3);
        company.write("a", b"hello").expect("written");
        let slow = company.acting()[slow];
        company.host(slow).commits = false;
        let asks = company.send(
            "a",
            vec![SubOp::WriteFull { length: 3 }],
            b"one",
            op_flag::ACK,
        );
        let does_not = company.send("b", vec![SubOp::WriteFull { length: 3 }], b"two", 0);
        company.settle();
        assert!(
            company.answer(&asks).is_none() && company.answer(&does_not).is_none(),
            "osd.{slow} has not flushed"
        );
        let told: Vec<_> = company
            .early
            .iter()
            .map(|(applied, _)| applied.request)
            .collect();
        assert_eq!(
            told,
            [asks.request],
            "once, and the other client did not ask"
        );
        company.host(slow).commits = true;
        company.wait(100);
        assert!(
            matches!(company.answer(&asks), Some(Ok(_)))
                && matches!(company.answer(&does_not), Some(Ok(_)))
        );
        company.wait(2000);
        assert_eq!(company.early.len(), 1, "nothing more after the answer");
    }
    // An update that a member has not received is not applied everywhere.
    let mut company = Company::new(3, 2, 3);
    company.lose = |message| matches!(message, Message::Replicate(..));
    let asks = company.send(
        "a",
        vec![SubOp::WriteFull { length: 3 }],
        b"one",
        op_flag::ACK,
    );
    company.settle();
    assert!(company.early.is_empty() && company.answer(&asks).is_none());
    company.lose = |_| false;
    company.wait(1500);
    assert!(matches!(company.answer(&asks), Some(Ok(_))));
}

/// All members lose power after an update was applied everywhere and before any of them flushed:
/// the update is lost. Its client, which keeps it until it is durable, resends it, and it is
/// executed once.
#[test]
fn an_applied_update_that_all_members_lost_is_sent_again_and_happens_once() {
    for survivors in 0..2 {
        let mut company = Company::new(3, 2, 3);
        company.write("a", b"x").expect("written");
        let acting = company.acting();
        // With one survivor its flush succeeds, and only the answer is lost.
        for osd in &acting[survivors..] {
            company.host(*osd).commits = false;
        }
        let append = company.send("a", vec![SubOp::Append { length: 1 }], b"y", op_flag::ACK);
        company.settle();
        assert_eq!(
            (company.early.len(), company.answer(&append).is_none()),
            (1, true)
        );
        let dead: Vec<_> = acting.iter().map(|osd| company.kill(*osd)).collect();
        for host in dead {
            company.revive(host, 2);
        }
        company
            .hosts
            .values_mut()
            .for_each(|host| host.commits = true);
        company.wait(4000);
        company.resend(&append, b"y");
        company.resend(&append, b"y");
        company.wait(1000);
        assert!(
            matches!(company.answer(&append), Some(Ok(_))),
            "{:?}",
            company.replies
        );
        assert_eq!(company.read("a").expect("read"), b"xy", "exactly once");
    }
}

/// Every PG that had something to backfill held a range at the same time, and with it the updates
/// of that many objects.
#[test]
fn a_few_groups_backfill_at_a_time_and_the_others_follow() {
    let mut company = Company::new(4, 1, 1);
    split(&mut company, 16);
    company.wait(1500);
    for name in 0..100 {
        company
            .write(&format!("object-{name}"), b"hello")
            .expect("written");
    }
    company.wait(1000);
    let old = company.acting()[0];
    let limit = crate::Limits::default().backfill_groups;
    company.lose = |message| matches!(message, Message::Progress(_));
    // Logs are the whole history of these PGs, so they would follow by log: they must not.
    for name in 0..100 {
        for _ in 0..60 {
            company
                .write(&format!("object-{name}"), b"again")
                .expect("written");
        }
    }
    let weight = Weight::OUT;
    company.commit(vec![Change::OsdWeight {
        osd: OsdId(old),
        weight,
        automatic: false,
    }]);
    company.wait(2000);
    let waits = |company: &Company| {
        let map = &company.monitors.map;
        map.pgs
            .values()
            .filter(|record| record.acting == [OsdId(old)] && record.up != record.acting)
            .count()
    };
    let ranges = |company: &Company| {
        company.hosts[&old]
            .osd
            .pgs()
            .filter(|pg| pg.has_range())
            .count()
    };
    assert!(
        waits(&company) > limit,
        "more groups than may at a time: {}",
        waits(&company)
    );
    assert_eq!(ranges(&company), limit);
    company.lose = |_| false;
    company.wait(6000);
    assert_eq!(
        (waits(&company), ranges(&company)),
        (0, 0),
        "all have moved"
    );
}

/// F4, proven on processes: a listing showed the state that the store had applied. It contained an
/// object whose write was never committed, and omitted one whose removal was not: work that a
/// client then based on it vanished with the primary.
#[test]
fn a_listing_is_answered_when_what_it_shows_is_committed() {
    for removal in [false, true] {
        let mut company = Company::new(3, 2, 3);
        company.write("old", b"1").expect("all are there");
        company.lose = |message| matches!(message, Message::ReplicateAcks(_));
        let change = match removal {
            true => company.send("old", vec![SubOp::Delete {}], &[], 0),
            false => company.send("new", vec![SubOp::WriteFull { length: 1 }], b"2", 0),
        };
        let list = company.send(
            "",
            vec![SubOp::ListObjects {
                after: bytes::Bytes::new(),
                limit: 100,
            }],
            &[],
            0,
        );
        company.settle();
        company.wait(1000);
        assert_eq!(
            company.answer(&change),
            None,
            "nobody has said that he has it"
        );
        assert_eq!(
            company.answer(&list),
            None,
            "and what the listing would say may not stay true"
        );
        company.lose = |_| false;
        company.await_answer(&list).expect("committed by now");
        let results = company.results(&list);
        let [nacre_wire::msg::client::SubReply::Objects { objects, .. }] = &results[..] else {
            panic!("{results:?}")
        };
        assert_eq!(objects.len(), if removal { 0 } else { 2 });
    }
}

/// Simulator, seed 168: the store had listed when a missing object was recovered, and the object
/// was no longer missing when the listing arrived: it was in neither, although it had existed all
/// the time.
#[test]
fn a_listing_has_what_is_brought_while_the_store_lists() {
    let mut company = Company::new(3, 2, 3);
    company.write("old", b"1").expect("all are there");
    let primary = company.acting()[0];
    let host = company.kill(primary);
    company.wait(1000);
    company.write("new", b"2").expect("two are enough");
    company.lose = |message| matches!(message, Message::Push(..));
    company.revive(host, 2);
    company.wait(1000);
    assert_eq!(company.acting()[0], primary);
    assert!(!company.has(primary, "new"), "it is missing");
    company.host(primary).held = Some(Vec::new());
    let list = company.send(
        "",
        vec![SubOp::ListObjects {
            after: bytes::Bytes::new(),
            limit: 100,
        }],
        &[],
        0,
    );
    // It reads the state of the first of them, and lists again.
    company.host(primary).release();
    company.host(primary).release();
    company.lose = |_| false;
    company.wait(2000);
    assert!(company.has(primary, "new"), "it has been brought");
    company.host(primary).release();
    company.host(primary).held = None;
    company.await_answer(&list).expect("nothing was removed");
    let results = company.results(&list);
    let [nacre_wire::msg::client::SubReply::Objects { objects, .. }] = &results[..] else {
        panic!("{results:?}")
    };
    assert_eq!(objects.len(), 2, "{objects:?}");
}

/// Simulator, seed 310: the range that backfill compares blocks writes to its objects, and waited
/// for one that the primary missed. Only an OSD that was down had that, so no client could write
/// any of them.
#[test]
fn backfill_keeps_nobody_waiting_for_what_only_an_absent_member_has() {
    for lost_while_compared in [false, true] {
        let mut company = Company::new(3, 1, 3);
        for n in 0..40 {
            company
                .write(&format!("object-{n}"), b"1")
                .expect("all are there");
        }
        let [first, second, filled] = company.acting()[..] else {
            panic!("three members")
        };
        let filled_host = company.kill(filled);
        // More than the log keeps.
        let value = Some("100".to_owned());
        company.commit(vec![Change::Config {
            key: "osd.log_entries_max".into(),
            value,
        }]);
        for n in 0..300 {
            company
                .write(&format!("object-{}", n % 40), b"2")
                .expect("two are enough");
        }
        let second_host = company.kill(second);
        company.wait(1000);
        company.write("object-7", b"3").expect("one is enough");
        let left = match lost_while_compared {
            // The second one takes over, and knows only that there is a newer version.
            false => {
                company.lose = |message| matches!(message, Message::Push(..));
                company.revive(second_host, 2);
                company.wait(1000);
                drop(company.kill(first));
                company.wait(1000);
                company.lose = |_| false;
                company.revive(filled_host, 2);
                second
            }
            // The first one finds its own replica damaged, the only one.
            true => {
                company.lose = |message| matches!(message, Message::ScanReply(..));
                company.revive(filled_host, 2);
                company.wait(500);
                assert!(company.hosts[&first].osd.pgs().any(|pg| pg.has_range()));
                company.rot(first, "object-7");
                assert_eq!(
                    company.read("object-7"),
                    Err(OpFailure::Corrupt { offset: 0 })
                );
                company.lose = |_| false;
                first
            }
        };
        company.wait(2000);
        assert_eq!(company.acting(), [left], "the other is still to be filled");
        for n in (0..40).filter(|n| *n != 7) {
            company
                .write(&format!("object-{n}"), b"4")
                .expect("nothing is wrong with it");
        }
    }
}

/// F32, proven on processes: a backfill target that lost one update dropped every later one for the
/// rest of the interval because of the gap; the update was not resent, since nothing waits for such
/// a member. A PG with continuous writes never became clean.
#[test]
fn a_backfill_target_that_lost_an_update_gets_it_all_the_same() {
    let mut company = Company::new(3, 2, 3);
    for n in 0..40 {
        company
            .write(&format!("object-{n}"), b"1")
            .expect("all are there");
    }
    let spare = company.acting()[2];
    let host = company.kill(spare);
    // More than the log keeps: the member that comes back is backfilled.
    let value = Some("100".to_owned());
    company.commit(vec![Change::Config {
        key: "osd.log_entries_max".into(),
        value,
    }]);
    for n in 0..300 {
        company
            .write(&format!("object-{}", n % 40), b"2")
            .expect("two are enough");
    }
    company.commit(vec![Change::Flags {
        flags: nacre_wire::map::flag::NO_BACKFILL,
    }]);
    company.revive(host, 2);
    company.wait(500);
    assert!(!company.acting().contains(&spare), "it is to be backfilled");
    // Only messages to the target have no data: the object is beyond its cursor.
    company.lose =
        |message| matches!(message, Message::Replicate(update, _) if update.updates[0].entry_only);
    company.write("object-7", b"3").expect("the others have it");
    company.lose = |_| false;
    company.write("object-8", b"4").expect("and go on");
    company.wait(3000);
    let head = |company: &mut Company, osd: u32| {
        let group = company
            .host(osd)
            .osd
            .pgs()
            .find(|pg| pg.id() == PG)
            .map(|pg| pg.local.log.head());
        group.expect("it has the group")
    };
    let serving = company.acting()[0];
    assert_eq!(
        head(&mut company, spare),
        head(&mut company, serving),
        "it follows"
    );
    company.commit(vec![Change::Flags { flags: 0 }]);
    company.wait(5000);
    assert!(
        company.acting().contains(&spare),
        "it has become a member: {:?}",
        company.reports
    );
    for osd in company.acting() {
        assert!(company.can_read(osd, "object-7") && company.can_read(osd, "object-8"));
    }
    assert_eq!(company.read("object-7").expect("there"), b"3");
}

/// Simulator, seed 1880: both members were out, and one of them was to serve beside a new one until
/// that was complete. It died before the monitors had received the request; it was no member any
/// more, so the interval did not end, and the new primary requested it for ever.
#[test]
fn who_died_while_it_was_asked_for_is_not_waited_for() {
    let mut company = Company::new(4, 1, 2);
    company.write("a", b"1").expect("all are there");
    company.wait(500);
    let mut old = company.acting();
    old.sort_unstable();
    company.unheard = true;
    let weight = Weight::OUT;
    let out = |osd: &u32| Change::OsdWeight {
        osd: OsdId(*osd),
        weight,
        automatic: false,
    };
    company.commit(old.iter().map(out).collect());
    company.wait(500);
    assert!(company.acting().iter().all(|osd| !old.contains(osd)));
    drop(company.kill(old[0]));
    company.unheard = false;
    company.wait(3000);
    assert_eq!(company.read("a").expect("the other has it"), b"1");
    company.wait(6000);
    assert!(
        company.acting().iter().all(|osd| !old.contains(osd)),
        "{:?}",
        company.reports
    );
    assert_eq!(
        company.read("a").expect("and the new ones have it now"),
        b"1"
    );
}

/// Simulator, seed 3732: the map gave a PG one member where two are needed to serve, because the
/// others were out. A member that was out acted alone until that one was filled, and never accepted
/// it: one OSD that is in is not enough, so no acting set was requested.
#[test]
fn who_is_out_takes_the_one_that_it_has_filled() {
    for dead in [true, false] {
        let mut company = Company::new(4, 2, 2);
        let value = Some("100".to_owned());
        company.commit(vec![Change::Config {
            key: "osd.log_entries_max".into(),
            value,
        }]);
        for n in 0..300 {
            company
                .write(&format!("object-{}", n % 10), b"1")
                .expect("both are there");
        }
        let old = company.acting();
        let new = (0..4).find(|osd| !old.contains(osd)).expect("four");
        if dead {
            drop(company.kill(old[1]));
        }
        let weight = Weight::OUT;
        let out = |osd: u32| Change::OsdWeight {
            osd: OsdId(osd),
            weight,
            automatic: false,
        };
        company.commit((0..4).filter(|osd| *osd != new).map(out).collect());
        company.wait(6000);
        assert_eq!(
            company.monitors.map.pgs[&PG].up,
            [OsdId(new)],
            "all others are out"
        );
        assert_eq!(company.acting()[0], new, "{:?}", company.reports);
        company.write("object-0", b"2").expect("two serve");
    }
}

/// Simulator, seed 3301: the map gave a PG one member where two are needed, and that one peered
/// before the other, which was out, was up again. An OSD that is out is not a member of an
/// interval, so its arrival began no new one: no OSD served, and health had nothing to name.
#[test]
fn who_is_out_and_comes_late_covers_too() {
    let mut company = Company::new(3, 2, 2);
    company.write("a", b"1").expect("both are there");
    let old = company.acting();
    let host = company.kill(old[1]);
    let weight = Weight::OUT;
    let out = |osd: u32| Change::OsdWeight {
        osd: OsdId(osd),
        weight,
        automatic: false,
    };
    company.commit((0..3).filter(|osd| *osd != old[0]).map(out).collect());
    company.wait(3000);
    assert_eq!(company.acting(), [old[0]], "it is alone");
    company.revive(host, 2);
    company.wait(3000);
    assert_eq!(
        company.monitors.map.pgs[&PG].up,
        [OsdId(old[0])],
        "the other is out"
    );
    company.write("a", b"2").expect("two serve");
    assert_eq!(company.read("a").expect("there"), b"2");
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

/// A primary was cut off with read leases of its members that were still valid. A new OSD replaced
/// it among them; it had never granted the primary a lease, and reported that. Its report was taken
/// for the others': writes were answered while the old primary still answered reads with the former
/// data. The same if the new OSD leads: its own grants say nothing.
#[test]
fn nobody_serves_before_the_old_primarys_leases_end_whoever_is_new() {
    for leads in [false, true] {
        let mut company = Company::new(4, 2, 3);
        let first = company.acting()[0];
        if leads {
            company.commit(weighted(first, Weight::OUT));
            company.wait(5000);
        }
        company.write("a", b"old").expect("written");
        company.wait(1000);
        let members = company.acting();
        let mut cut_off = company.hosts.remove(&members[0]).expect("it runs");
        let (osd, instance) = (OsdId(members[0]), cut_off.osd.instance());
        let out = Change::OsdWeight {
            osd,
            weight: Weight::OUT,
            automatic: false,
        };
        let down = Change::OsdDown { osd, instance };
        let comes = if leads {
            weighted(first, Weight::IN)
        } else {
            Vec::new()
        };
        company.commit([vec![down, out], comes].concat());
        let new: Vec<u32> = company
            .acting()
            .into_iter()
            .filter(|osd| !members.contains(osd))
            .collect();
        assert_eq!((company.acting().len(), new.len()), (3, 1), "one is new");
        assert_eq!(company.acting()[0] == new[0], leads);
        let write = company.send("a", vec![SubOp::WriteFull { length: 3 }], b"new", 0);
        company.settle();
        let answers_reads = |company: &mut Company, host: &mut Host| {
            let read = company.request(
                ClientId(10),
                "a",
                vec![SubOp::Read {
                    offset: 0,
                    length: 3,
                }],
                0,
            );
            let epoch = host.osd.epoch();
            host.sent.clear();
            host.tell(
                Entity::Client(ClientId(10)),
                epoch,
                Message::OpRequest(read, Payload::new()),
            );
            let answered = |message: &Message| matches!(message, Message::OpReply(reply, _) if reply.failure.is_none());
            host.sent.iter().any(|(_, message)| answered(message))
        };
        assert!(
            answers_reads(&mut company, &mut cut_off),
            "its leases run on"
        );
        for _ in 0..40 {
            let written = company.answer(&write).is_some();
            assert!(
                !written || !answers_reads(&mut company, &mut cut_off),
                "the old primary answers what was overwritten"
            );
            company.wait(50);
            cut_off.wait(50);
        }
        assert!(
            matches!(company.answer(&write), Some(Ok(_))),
            "led by the new one: {leads}"
        );
    }
}

/// A member that had left was filled, and its daemon stopped: its store accepts less in one
/// transaction than the others', and only the serving members had been asked for their limits.
#[test]
fn what_the_store_of_one_that_is_filled_would_not_take_is_refused() {
    let mut company = Company::new(3, 2, 3);
    let spare = company.acting()[2];
    let away = company.kill(spare);
    let value = Some("100".to_owned());
    company.commit(vec![Change::Config {
        key: "osd.log_entries_max".into(),
        value,
    }]);
    for n in 0..300 {
        company
            .write(&format!("object-{}", n % 10), b"1")
            .expect("two are enough");
    }
    company.commit(vec![Change::Flags {
        flags: nacre_wire::map::flag::NO_BACKFILL,
    }]);
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

/// A member of the last activation that was out had the longest log, and died while the log was
/// requested from it. It was not a member of the interval, so the interval did not end, and the PG
/// waited for the log for ever.
#[test]
fn who_died_while_its_log_was_asked_for_is_not_waited_for() {
    let mut company = Company::new(3, 1, 2);
    // The third's data stays there.
    company.lose = |message| matches!(message, Message::Discard(_));
    company.write("a", b"1").expect("all are there");
    let first = company.acting()[0];
    let weigh = |company: &mut Company, weight| {
        company.commit(vec![Change::OsdWeight {
            osd: OsdId(first),
            weight,
            automatic: false,
        }]);
        company.wait(4000);
    };
    weigh(&mut company, Weight::OUT);
    assert!(!company.acting().contains(&first), "the third was filled");
    weigh(&mut company, nacre_wire::map::Weight::IN);
    assert_eq!(company.acting()[0], first);
    company.write("b", b"2").expect("all are there");
    company.lose = |message| matches!(message, Message::Discard(_) | Message::Replicate(..));
    company.send("a", vec![SubOp::WriteFull { length: 1 }], b"9", 0);
    company.settle();
    company.lose = |message| matches!(message, Message::Discard(_) | Message::LogQuery(_));
    weigh(&mut company, Weight::OUT);
    assert!(
        !company.acting().contains(&first),
        "the others need no more than its log"
    );
    let waits = company.reports[&PG].waits_for.clone();
    assert_eq!(waits, [OsdId(first)]);
    drop(company.kill(first));
    company.lose = |_| false;
    company.wait(4000);
    assert_eq!(company.read("a").expect("the others serve"), b"1");
    assert_eq!(company.read("b").expect("the others serve"), b"2");
}

/// A target of backfill that had lost more than the log contains started over while a range was
/// being copied to it. The range's end became its cursor, and objects that it had missed before the
/// range were never compared: it served old data.
#[test]
fn a_target_that_starts_over_is_compared_from_its_beginning() {
    let mut company = Company::new(3, 2, 3);
    let mut names: Vec<String> = (0..40).map(|n| format!("object-{n}")).collect();
    names.sort_by_key(|name| key::position(&ObjectId::named(name)));
    for name in names.iter().map(String::as_str).chain(["blocker"]) {
        company.write(name, b"1").expect("all are there");
    }
    let spare = company.acting()[2];
    let away = company.kill(spare);
    let value = Some("100".to_owned());
    company.commit(vec![Change::Config {
        key: "osd.log_entries_max".into(),
        value,
    }]);
    for n in 0..300 {
        company.write(&names[n % 40], b"2").expect("two are enough");
    }
    company.write("blocker", b"2").expect("two are enough");
    company.commit(vec![Change::Flags {
        flags: nacre_wire::map::flag::NO_BACKFILL,
    }]);
    company.revive(away, 2);
    company.limit(crate::Limits {
        scan_objects: 4,
        push_bytes: 2,
        ..crate::Limits::default()
    });
    company.commit(vec![Change::Config {
        key: "osd.log_entries_max".into(),
        value: Some("101".to_owned()),
    }]);
    company.lose = |message| matches!(message, Message::Push(push, _) if push.object.name.as_bytes() == b"blocker");
    company.commit(vec![Change::Flags { flags: 0 }]);
    company.wait(500);
    let inside = |company: &mut Company, name: &str| {
        let group = company
            .host(spare)
            .osd
            .pgs()
            .find(|pg| pg.id() == PG)
            .expect("it has the group");
        group.local.inside_cursor(&ObjectId::named(name))
    };
    let (first, last) = (names[0].clone(), names[39].clone());
    assert!(
        inside(&mut company, &first) && !inside(&mut company, &last),
        "a range in the middle is under way"
    );
    // Updates beyond the cursor go to the target without data. One is lost, and the later ones are
    // useless to it.
    company.lose = |message| match message {
        Message::Push(push, _) => push.object.name.as_bytes() == b"blocker",
        Message::Replicate(update, _) => update.updates[0].entry_only,
        _ => false,
    };
    company.write(&last, b"3").expect("the others have it");
    company.lose = |message| matches!(message, Message::Push(push, _) if push.object.name.as_bytes() == b"blocker");
    for _ in 0..200 {
        company.write(&first, b"3").expect("the others have it");
    }
    company.wait(3000);
    company.lose = |_| false;
    company.wait(30_000);
    assert!(
        company.acting().contains(&spare),
        "it has become a member: {:?}",
        company.reports
    );
    for (name, data) in [(&first, b"3"), (&last, b"3"), (&"blocker".to_owned(), b"2")] {
        assert_eq!(
            company.data_at(spare, &ObjectId::named(name)),
            data,
            "{name}"
        );
    }
}

/// A member that is asked for the remaining time of the old primary's leases answered for the
/// leases of the asking OSD. Those may be older: the new primary answered while the old one still
/// could, with data that the new one had changed meanwhile.
#[test]
fn what_a_member_says_of_leases_is_of_the_old_primarys() {
    let mut company = Company::new(3, 2, 3);
    company.write("a", b"1").expect("all are there");
    company.wait(1000);
    let [old, new, other] = company.acting()[..] else {
        panic!("three")
    };
    let pass = |company: &mut Company, osds: [u32; 2], steps: u32| {
        for _ in 0..steps {
            osds.iter().for_each(|osd| company.host(*osd).wait(50));
            company.settle();
        }
    };
    // The next primary is silent for a while: the other has granted it nothing for that time.
    pass(&mut company, [old, other], 8);
    drop(company.kill(old));
    assert_eq!(company.acting()[0], new);
    let read = company.send(
        "a",
        vec![SubOp::Read {
            offset: 0,
            length: 1,
        }],
        &[],
        0,
    );
    pass(&mut company, [new, other], 6);
    assert!(
        company.answer(&read).is_none(),
        "the old one may read under a lease for half a second"
    );
    company.wait(1000);
    assert!(matches!(company.answer(&read), Some(Ok(_))));
}

/// An object behind the page that was being counted changed meanwhile, and was counted with that
/// page and again with its own: the PG's totals were wrong from then on.
#[test]
fn what_changes_behind_the_page_that_is_counted_is_counted_once() {
    let mut company = Company::new(1, 1, 1);
    company.limit(crate::Limits {
        page_objects: 2,
        ..crate::Limits::default()
    });
    let write = |company: &mut Company, n: usize| {
        company.send(
            &format!("object-{n}"),
            vec![SubOp::WriteFull { length: n as u64 }],
            &vec![1; n],
            0,
        )
    };
    for n in 1..20 {
        let request = write(&mut company, n);
        company.await_answer(&request).expect("written");
    }
    split(&mut company, 2);
    company.host(0).held = Some(Vec::new());
    for _ in 0..300 {
        company.wait(50);
        for n in 1..20 {
            write(&mut company, n);
        }
        company.host(0).release();
    }
    company.host(0).release();
    company.host(0).held = None;
    company.wait(3000);
    for seed in 0..2 {
        let pg = PgId { seed, ..PG };
        let totals = company
            .host(0)
            .osd
            .pgs()
            .find(|group| group.id() == pg)
            .expect("it is here")
            .totals();
        assert!(!totals.estimated, "it has been counted");
        assert_eq!(
            (totals.objects, totals.bytes),
            recount(&mut company, 0, pg, 2),
            "{pg}"
        );
    }
}

/// (Planted by a reviewer: all of them were named.) Health names the disk that a write waits for,
/// and no other.
#[test]
fn a_slow_write_names_who_has_not_made_it_durable() {
    for at in 0..3 {
        let mut company = Company::new(3, 2, 3);
        let [primary, slow] = [company.acting()[0], company.acting()[at]];
        company.host(slow).commits = false;
        company.send("a", vec![SubOp::WriteFull { length: 1 }], b"x", 0);
        company.settle();
        for _ in 0..50 {
            company.host(primary).wait(100);
        }
        let lines: Vec<String> = std::mem::take(&mut company.host(primary).to_mon)
            .into_iter()
            .filter_map(|message| match message {
                Message::Beacon(beacon) => Some(beacon.slow),
                _ => None,
            })
            .flatten()
            .collect();
        let named = |osd: u32| {
            lines
                .iter()
                .any(|line| line.contains(&format!("osd.{osd}")))
        };
        assert_eq!(
            [0, 1, 2].map(named),
            [0, 1, 2].map(|osd| osd == slow),
            "{lines:?}"
        );
    }
}

/// (Planted by a reviewer.) While a PG does not serve, its clients are informed of the reason.
#[test]
fn who_waits_for_a_group_that_does_not_serve_is_told_why() {
    let mut company = Company::new(2, 2, 2);
    company.write("a", b"x").expect("both are there");
    company.kill(company.acting()[1]);
    let primary = company.acting()[0];
    company.send(
        "a",
        vec![SubOp::Read {
            offset: 0,
            length: 1,
        }],
        &[],
        0,
    );
    company.host(primary).sent.clear();
    for _ in 0..80 {
        company.host(primary).wait(50);
    }
    let told: Vec<String> = std::mem::take(&mut company.host(primary).sent)
        .into_iter()
        .filter_map(|(_, message)| match message {
            Message::OpBlocked(blocked) => Some(blocked.reason),
            _ => None,
        })
        .collect();
    assert!(told.iter().any(|reason| reason.contains("1.0")), "{told:?}");
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
