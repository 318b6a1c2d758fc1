//! Stories found in a hostile review of recovery: replicas that did not have the declared contents,
//! and work that waited for events that never come.

use super::company::Company;
use super::rig::{Host, MON, Monitors, PG, process};
use super::scenes::copy_of_a;
use crate::{Limits, key};
use nacre_store::{Event, ReadReply};
use nacre_types::{ClientId, Entity, ObjectId, OsdId, PoolId, SnapId};
use nacre_wire::Message;
use nacre_wire::map::{Change, Pool, Weight};
use nacre_wire::msg::client::{OpFailure, SubOp};
use nacre_wire::msg::replication::Progress;
use nacre_wire::msg::watch::{WatchPing, WatcherId};

const TOTAL: u64 = 128 << 20;

/// Less than half of the reserve: no part of a push is accepted.
const NO_ROOM: u64 = TOTAL - (1 << 20);

const ROOM: u64 = 10 << 20;

/// An object is sent in parts, restarted, and cut at other positions meanwhile, because an option
/// has changed. Parts were identified by their number alone. Of the second transfer the receiver
/// accepted the numbers that it lacked, and the bytes between were zeros with valid checksums.
#[test]
fn parts_of_two_transfers_are_not_mixed() {
    let whole = b"0123456789abcdefghij";
    let mut company = Company::new(3, 2, 3);
    let member = company.acting()[2];
    let away = company.kill(member);
    company.write("a", whole).expect("written");
    company.lose = |message| matches!(message, Message::Push(push, _) if push.part >= 3);
    company.revive(away, 2);
    company.wait(600);
    assert!(!company.has(member, "a"), "it is on its way");
    company.limit(Limits {
        push_bytes: 5,
        ..Limits::default()
    });
    company.wait(3000);
    company.lose = |_| false;
    company.wait(5000);
    assert_eq!(company.data_at(member, &ObjectId::named("a")), whole);
}

/// A member of the last activation that is neither up nor acting any more has an object that the
/// primary misses. It dies; that ends no interval. It was asked again and again, though another
/// member had the object.
#[test]
fn who_does_not_answer_is_not_asked_for_ever() {
    let mut tried = 0;
    for osds in 3..9 {
        let mut company = Company::new(osds, 1, 2);
        company.write("a", b"before").expect("written");
        let [primary, other] = company.acting()[..] else {
            panic!("two")
        };
        let away = company.kill(primary);
        company.weigh(primary, Weight::OUT);
        company.wait(5000);
        let stray = company
            .acting()
            .into_iter()
            .find(|osd| *osd != other)
            .expect("another took its place");
        if stray > other {
            continue;
        }
        tried += 1;
        company.write("a", b"after").expect("written");
        company.lose = |message| matches!(message, Message::Pull(_) | Message::Discard(_));
        company.weigh(primary, Weight::IN);
        company.revive(away, 2);
        company.wait(1000);
        assert_eq!(
            company.acting(),
            [primary, other],
            "it is back, and misses the object"
        );
        company.kill(stray);
        company.lose = |_| false;
        company.wait(8000);
        assert_eq!(company.read("a").expect("read"), b"after");
    }
    assert!(tried > 0, "no cluster had the stray first in order");
}

/// F17 again: pings of watchers waited for objects of a PG that does not serve and counted as
/// clients' work, each cookie of a client separately, until the daemon received no operations any
/// more.
#[test]
fn pings_in_a_group_that_does_not_serve_take_no_room() {
    let mut company = Company::new(2, 2, 2);
    company.write("a", b"x").expect("written");
    let [primary, other] = company.acting()[..] else {
        panic!("two")
    };
    company.kill(other);
    for cookie in 0..5000 {
        let watcher = WatcherId {
            client: ClientId(21),
            instance: nacre_types::Instance(1),
            cookie,
        };
        let message = WatchPing {
            pg: PG,
            object: ObjectId::named("a"),
            watcher,
            stamp: 1,
        };
        let epoch = company.monitors.map.epoch;
        company.host(primary).tell(
            Entity::Client(ClientId(21)),
            epoch,
            Message::WatchPing(message),
        );
    }
    assert_eq!(company.host(primary).osd.client_load().0, 0);
}

/// A read at a snapshot waits in its clone's queue. Its duplicates, sent every two seconds, were
/// searched for in the live object's.
#[test]
fn a_read_at_a_snapshot_waits_once() {
    let mut company = Company::new(3, 2, 3);
    company.write("a", b"before").expect("written");
    let snap = super::snapshots::snapshot(&mut company, "s");
    let primary = company.acting()[0];
    let away = company.kill(primary);
    company.write("a", b"after").expect("written");
    // The live object arrives, its clone does not.
    company.lose =
        |message| matches!(message, Message::Push(push, _) if push.object.snapshot != SnapId::HEAD);
    company.revive(away, 2);
    company.wait(3000);
    let mut request = company.request(
        ClientId(40),
        "a",
        vec![SubOp::Read {
            offset: 0,
            length: 9,
        }],
        0,
    );
    request.object.snapshot = snap;
    for attempt in 1..20 {
        request.attempt = attempt;
        company.resend(&request, &[]);
        company.wait(100);
    }
    assert_eq!(company.answer(&request), None, "its clone is not here");
    assert_eq!(company.host(primary).osd.client_load().0, 1);
    company.lose = |_| false;
    company.wait(5000);
    assert!(matches!(company.answer(&request), Some(Ok((_, data))) if data == b"before"));
}

/// A member that could not read its own replica noted that it needs another one, and removed the
/// note when that arrived, before it had checked for space. There was none. The next duplicate was
/// acknowledged as already received: the object counted as intact.
#[test]
fn a_damaged_copy_is_wanted_until_another_is_stored() {
    for place in 1..3 {
        let mut company = Company::new(3, 2, 3);
        company.write("a", b"hello").expect("written");
        let (primary, member) = (company.acting()[0], company.acting()[place]);
        company.rot(primary, "a");
        company.rot(member, "a");
        company.host(member).osd.on_usage(TOTAL, NO_ROOM);
        assert_eq!(company.read("a").expect("the third has it"), b"hello");
        company.wait(3000);
        company.host(member).osd.on_usage(TOTAL, ROOM);
        company.wait(3000);
        // A member that was not asked is not known to be damaged.
        let was_asked = company.was_said(&format!("osd.{member}"));
        assert!(
            company.can_read(member, "a") || !was_asked,
            "osd.{member}: {:?}",
            company.log
        );
    }
}

/// A backfill target's versions are compared. A replica that was known to be damaged lost its note
/// when its member started over, had the right version, and counted as good.
#[test]
fn who_starts_over_keeps_no_damaged_copy() {
    let mut company = Company::new(3, 2, 3);
    company.limit(Limits {
        log_entries_min: 2,
        log_entries_max: 4,
        ..Limits::default()
    });
    company.write("a", b"hello").expect("written");
    let member = company.acting()[2];
    company.rot(member, "a");
    company.lose = |message| matches!(message, Message::PushAck(ack) if ack.damaged);
    company.patch("a", 1, b"EL").expect("written");
    company.wait(100);
    let away = company.kill(member);
    for n in 0..20 {
        company
            .write(&format!("object-{n}"), b"x")
            .expect("written");
    }
    company.revive(away, 2);
    company.wait(5000);
    company.lose = |_| false;
    company.wait(10_000);
    assert!(company.has(member, "object-7"), "it was filled");
    assert!(company.can_read(member, "a"));
}

/// A backfill's target without space accepted nothing of a range, and the range was held until it
/// would: clients' writes hung, and so did the very deletions that would have freed space.
#[test]
fn a_target_without_room_keeps_nobody_from_deleting() {
    let mut company = Company::new(3, 2, 3);
    company.limit(Limits {
        log_entries_min: 2,
        log_entries_max: 4,
        ..Limits::default()
    });
    let member = company.acting()[2];
    let away = company.kill(member);
    for n in 0..20 {
        company
            .write(&format!("object-{n}"), &[1; 100])
            .expect("written");
    }
    // It had space when the range began, and has none when the objects arrive.
    company.lose = |message| matches!(message, Message::Push(..));
    company.revive(away, 2);
    company.wait(100);
    company.host(member).osd.on_usage(TOTAL, NO_ROOM);
    company.lose = |_| false;
    company.wait(1000);
    let deleted: Vec<_> = (0..20)
        .map(|n| company.send(&format!("object-{n}"), vec![SubOp::Delete {}], &[], 0))
        .collect();
    company.wait(15_000);
    let waiting = deleted
        .iter()
        .filter(|request| company.answer(request).is_none())
        .count();
    assert_eq!(waiting, 0, "deletions that wait");
    company.host(member).osd.on_usage(TOTAL, ROOM);
    company.wait(30_000);
    company.write("object-3", b"new").expect("written");
    assert!(company.has(member, "object-3"));
}

/// A pool was removed while a PG of it was still peering for the first time. There was nothing to
/// be erased, so nothing was done: the PG stayed, with the operations that waited for it, and these
/// counted as clients' work until the daemon was restarted.
#[test]
fn a_group_that_never_was_goes_with_its_pool() {
    let mut company = Company::without_pool(3);
    company.lose = |message| matches!(message, Message::PeerInfo(_) | Message::Part(_));
    let before = company.monitors.map.epoch;
    company.monitors.pool_that_needs(2, 3);
    company.tell_map(before);
    let primary = company.acting()[0];
    company.send("a", vec![SubOp::WriteFull { length: 1 }], b"x", 0);
    company.settle();
    assert_eq!(company.host(primary).osd.client_load().0, 1, "it waits");
    company.commit(vec![Change::PoolRemove { pool: PG.pool }]);
    company.lose = |_| false;
    company.wait(1000);
    assert_eq!(company.host(primary).osd.client_load(), (0, 0));
    assert!(
        company
            .hosts
            .values()
            .all(|host| host.osd.pgs().next().is_none()),
        "groups are left"
    );
}

/// An object was corrupted on all members of a PG. The OSD that had been a member before them came
/// back with an intact replica, and was ordered to erase it, because the PG counted as complete.
/// After a first fix it was kept only until its second report: the object was not requested from it
/// before that, and it was ordered to erase it.
#[test]
fn the_last_readable_copy_is_not_erased() {
    let mut company = Company::new(4, 2, 3);
    company.write("a", b"hello").expect("written");
    let before = company.acting()[2];
    let away = company.kill(before);
    company.weigh(before, Weight::OUT);
    company.wait(10_000);
    let acting = company.acting();
    assert!(
        acting.len() == 3 && acting.iter().all(|osd| *osd != before),
        "{acting:?}"
    );
    for osd in &acting {
        company.rot(*osd, "a");
    }
    assert!(matches!(company.read("a"), Err(OpFailure::Corrupt { .. })));
    company.revive(away, 2);
    company.wait(5000);
    assert_eq!(
        company.read("a"),
        Ok(b"hello".to_vec()),
        "{:?}",
        company.log
    );
    company.wait(30_000);
    assert!(
        acting.iter().all(|osd| company.can_read(*osd, "a")),
        "{:?}",
        company.log
    );
    assert!(!company.has(before, "a"), "now it may go");
}

/// A daemon was restarted so fast that the others learned of its end and of its next instance in
/// one message. They kept the state of the old instance, and reported that when the next one died:
/// no OSD was marked down.
#[test]
fn a_restart_that_is_heard_of_at_once_is_another_life() {
    let mut company = Company::new(3, 2, 3);
    company.write("a", b"1").expect("all are there");
    let member = company.acting()[1];
    let (before, host) = (
        company.monitors.map.epoch,
        company.hosts.remove(&member).expect("it runs"),
    );
    company.monitors.down(member);
    company.monitors.up(member, process(member, 2));
    let now = company.host(company.acting()[0]).now;
    let mut host = host.restart(2);
    host.now = host.now.max(now);
    company.hosts.insert(member, host);
    company.tell_map(before);
    company.wait(2000);
    company.write("a", b"2").expect("all are there");
    let of = company.monitors.map.osds[&OsdId(member)].instance;
    company.hosts.remove(&member);
    let serving = company.acting()[0];
    let host = company.host(serving);
    for _ in 0..200 {
        host.wait(50);
    }
    let accused = host.to_mon.iter().filter_map(|message| match message {
        Message::FailureReport(report) if report.target == OsdId(member) => Some(report.instance),
        _ => None,
    });
    assert_eq!(accused.last(), Some(of));
}

/// (Review.) On a slow store PGs were erased in parallel: the pause was measured from one page's
/// beginning to the next one's, and the pages of a pool's PGs were queued before all clients.
#[test]
fn one_group_at_a_time_is_erased() {
    let mut monitors = Monitors::of(1);
    let mut host = Host::new(0);
    monitors.up(0, process(0, 1));
    let settings = Pool::replicated("many".into(), 1, 1, 8);
    let epoch = monitors.commit(vec![Change::PoolSet {
        pool: PoolId(1),
        settings,
    }]);
    host.tell(MON, epoch, monitors.full());
    host.wait(1500);
    let interval = |monitors: &Monitors, pg| monitors.map.pgs[&pg].since;
    let groups: Vec<_> = monitors.map.pgs.keys().copied().collect();
    let active = |pg: &_| Change::PgActivate {
        pg: *pg,
        interval: interval(&monitors, *pg),
        members: vec![OsdId(0)],
    };
    let changes = groups.iter().map(active).collect();
    let active = monitors.commit(changes);
    host.tell(MON, active, monitors.since(epoch));
    host.wait(1500);
    host.held = Some(Vec::new());
    let gone = monitors.commit(vec![Change::PoolRemove { pool: PoolId(1) }]);
    host.tell(MON, gone, monitors.since(active));
    (0..20).for_each(|_| host.wait(50));
    let lists = host
        .held
        .iter()
        .flatten()
        .filter(|event| matches!(event, Event::Read(_, Ok(ReadReply::List { .. }))));
    assert_eq!((groups.len(), lists.count()), (8, 1));
}

/// A member that was assigned the PG again while it was being erased, and later not any more, kept
/// all its data for ever: it assumed that it was being erased already.
#[test]
fn who_is_wanted_while_it_is_erased_is_erased_later() {
    let mut company = Company::new(3, 1, 2);
    company.limit(Limits {
        erase_objects: 1,
        ..Limits::default()
    });
    let names: Vec<String> = (0..20).map(|n| format!("object-{n}")).collect();
    for name in &names {
        company.write(name, b"1").expect("written");
    }
    let first = company.acting()[0];
    let left = |company: &mut Company| names.iter().filter(|name| company.has(first, name)).count();
    company.weigh(first, Weight::OUT);
    for _ in 0..400 {
        company.wait(50);
        if left(&mut company) < 20 {
            break;
        }
    }
    assert!(
        (1..20).contains(&left(&mut company)),
        "it is being erased, a page after the other"
    );
    company.weigh(first, Weight::IN);
    company.wait(8000);
    assert!(company.acting().contains(&first));
    assert_eq!(left(&mut company), 20, "it was filled");
    company.weigh(first, Weight::OUT);
    company.wait(20_000);
    assert_eq!(left(&mut company), 0);
}

/// A replica had lost a part of its data when its PG was split. The note on that stayed with the
/// other half: the replica was not replaced, and it counted as intact.
#[test]
fn a_damaged_copy_is_healed_after_a_split_too() {
    let mut company = Company::new(3, 2, 3);
    let child = |name: &String| key::seed(key::hash(&ObjectId::named(name)), 2) == 1;
    let name = (0..)
        .map(|n| format!("object-{n}"))
        .find(child)
        .expect("half of them");
    company.write(&name, b"hello").expect("written");
    let member = company.acting()[1];
    company.rot(member, &name);
    company.lose = |message| matches!(message, Message::PushAck(ack) if ack.damaged);
    company
        .op(
            &name,
            vec![SubOp::Write {
                offset: 1,
                length: 2,
            }],
            b"EL",
        )
        .expect("written");
    company.wait(100);
    let mut settings = company.monitors.map.pools[&PG.pool].clone();
    (settings.pg_num, settings.pgp_num) = (2, 2);
    company.commit(vec![Change::PoolSet {
        pool: PG.pool,
        settings,
    }]);
    assert!(!company.can_read(member, &name), "nobody was told");
    company.lose = |_| false;
    company.wait(5000);
    assert!(company.can_read(member, &name));
}

/// A target of backfill had fallen behind and started over within an interval. The end of a range
/// that was compared before arrived again, late: the target counted as having everything before it,
/// and objects that had been deleted since were there. (Simulator, seed 2651.)
#[test]
fn a_cursor_of_before_the_target_started_over_does_not_count() {
    let mut company = Company::new(3, 2, 3);
    company.limit(Limits {
        log_entries_min: 2,
        log_entries_max: 4,
        scan_objects: 4,
        ..Limits::default()
    });
    let mut names: Vec<String> = (0..40).map(|n| format!("object-{n}")).collect();
    names.sort_by_key(|name| key::position(&ObjectId::named(name)));
    for name in &names {
        company.write(name, b"1").expect("all are there");
    }
    let [primary, _, target] = company.acting()[..] else {
        panic!("three of three")
    };
    let away = company.kill(target);
    for name in &names {
        company.write(name, b"2").expect("two are enough");
    }
    company.lose = |message| matches!(message, Message::Push(push, _) if push.object.name.as_bytes() == b"object-7");
    company.revive(away, 2);
    company.limit(Limits {
        log_entries_min: 2,
        log_entries_max: 4,
        scan_objects: 4,
        ..Limits::default()
    });
    company.wait(2000);
    let cursor = |company: &mut Company| {
        let group = company
            .host(target)
            .osd
            .pgs()
            .find(|pg| pg.id() == PG)
            .expect("it has the group");
        group.local.backfill.clone().expect("it is not complete")
    };
    let before = cursor(&mut company);
    assert!(
        key::position(&ObjectId::named(&names[0])) < before,
        "a range in the middle is under way"
    );
    let round = super::scenes::compared(company.host(primary));
    // It misses an update, and the log soon no longer contains it.
    company.lose = |message| match message {
        Message::Push(push, _) => push.object.name.as_bytes() == b"object-7",
        Message::Replicate(update, _) => update.updates[0].entry_only,
        _ => false,
    };
    company.write(&names[39], b"3").expect("the others have it");
    company.lose = |message| {
        matches!(
            message,
            Message::Push(..) | Message::ScanReply(_) | Message::Progress(_)
        )
    };
    for _ in 0..20 {
        company.write(&names[0], b"3").expect("the others have it");
    }
    company
        .op(&names[0], vec![SubOp::Delete {}], &[])
        .expect("the others have it");
    company.wait(5000);
    let started = cursor(&mut company);
    assert!(started < before, "it has started over");
    let interval = company.monitors.map.pgs[&PG].since;
    let late = Progress {
        pg: PG,
        interval,
        cursor: Some(before),
        round,
    };
    let epoch = company.monitors.map.epoch;
    company
        .host(target)
        .tell(Entity::Osd(OsdId(primary)), epoch, Message::Progress(late));
    company.settle();
    assert_eq!(
        cursor(&mut company),
        started,
        "what is late counts for nothing"
    );
    company.lose = |_| false;
    company.wait(30_000);
    assert!(!company.has(target, &names[0]));
}

/// An object is pushed before its update's entry has arrived, which declares it missing: the entry
/// was lost, and is resent. The push was acknowledged as already received, the primary no longer
/// counted the object as missing there, and the member never had it.
#[test]
fn what_is_newer_than_the_log_is_not_acknowledged() {
    let mut company = Company::new(2, 2, 2);
    company.write("a", b"x").expect("written");
    let (version, _) = company.answer_of("a");
    let [primary, member] = company.acting()[..] else {
        panic!("two")
    };
    let (interval, epoch) = (
        company.monitors.map.pgs[&PG].since,
        company.monitors.map.epoch,
    );
    for (version, acknowledged) in [(version, true), (version.next_in(interval), false)] {
        let host = company.host(member);
        host.sent_to(primary);
        host.tell(
            Entity::Osd(OsdId(primary)),
            epoch,
            copy_of_a(interval, version, b"y"),
        );
        let answered = host
            .sent_to(primary)
            .iter()
            .any(|message| matches!(message, Message::PushAck(_)));
        assert_eq!(answered, acknowledged, "{version}");
    }
    company.wait(3000);
    assert_eq!(company.data_at(member, &ObjectId::named("a")), b"x");
}
