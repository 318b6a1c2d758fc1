//! Stories of several daemons: what clients hear and when, listings, and totals.

use super::company::Company;
use super::rig::PG;
use crate::key;
use nacre_store::{ObjectStore, Read, ReadReply, Token};
use nacre_types::{PgId, SplitMix64};
use nacre_wire::Message;
use nacre_wire::map::Change;
use nacre_wire::msg::client::{SubOp, op_flag};

pub(super) fn split(company: &mut Company, pg_num: u32) {
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
        let mut random = SplitMix64(seed);
        let mut company = Company::new(2, 1, 2);
        let change = |company: &mut Company, random: &mut SplitMix64| {
            let name = format!("object-{}", random.below(700));
            let data = vec![1; random.below(50) as usize];
            let ops = match random.below(4) {
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
            change(&mut company, &mut random);
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
            for _ in 0..random.below(6) {
                change(&mut company, &mut random);
            }
            if random.below(2) == 0 {
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
