//! Stories of several daemons: who is filled, who covers, and who is not waited for.

use super::answers::split;
use super::company::Company;
use super::rig::weighted;
use super::rig::{Host, PG};
use crate::key;
use nacre_types::{ClientId, Entity, ObjectId, OsdId};
use nacre_wire::map::{Change, Weight};
use nacre_wire::msg::client::{OpFailure, SubOp};
use nacre_wire::{Message, Payload};

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
    company.weigh(old, Weight::OUT);
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

/// Simulator, seed 310: the range that backfill compares blocks writes to its objects, and waited
/// for one that the primary missed. Only an OSD that was down had that, so no client could write
/// any of them.
#[test]
fn backfill_keeps_no_client_waiting_for_what_only_an_absent_member_has() {
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
        company.set("osd.log_entries_max", "100");
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
    company.set("osd.log_entries_max", "100");
    for n in 0..300 {
        company
            .write(&format!("object-{}", n % 40), b"2")
            .expect("two are enough");
    }
    company.flags(nacre_wire::map::flag::NO_BACKFILL);
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
    company.flags(0);
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
    let out = |osd: &u32| weighted(*osd, Weight::OUT);
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
        company.set("osd.log_entries_max", "100");
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
        let out = |osd: u32| weighted(osd, Weight::OUT);
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
    let out = |osd: u32| weighted(osd, Weight::OUT);
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

/// A primary was cut off with read leases of its members that were still valid. A new OSD replaced
/// it among them; it had never granted the primary a lease, and reported that. Its report was taken
/// for the others': writes were answered while the old primary still answered reads with the former
/// data. The same if the new OSD leads: its own grants say nothing.
#[test]
fn no_primary_serves_before_the_leases_of_the_old_one_end() {
    for leads in [false, true] {
        let mut company = Company::new(4, 2, 3);
        let first = company.acting()[0];
        if leads {
            company.weigh(first, Weight::OUT);
            company.wait(5000);
        }
        company.write("a", b"old").expect("written");
        company.wait(1000);
        let members = company.acting();
        let mut cut_off = company.hosts.remove(&members[0]).expect("it runs");
        let (osd, instance) = (OsdId(members[0]), cut_off.osd.instance());
        let out = weighted(osd.0, Weight::OUT);
        let down = Change::OsdDown { osd, instance };
        let comes = leads.then(|| weighted(first, Weight::IN));
        company.commit([down, out].into_iter().chain(comes).collect());
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
        company.weigh(first, weight);
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
    company.set("osd.log_entries_max", "100");
    for n in 0..300 {
        company.write(&names[n % 40], b"2").expect("two are enough");
    }
    company.write("blocker", b"2").expect("two are enough");
    company.flags(nacre_wire::map::flag::NO_BACKFILL);
    company.revive(away, 2);
    company.limit(crate::Limits {
        scan_objects: 4,
        push_bytes: 2,
        ..crate::Limits::default()
    });
    company.set("osd.log_entries_max", "101");
    company.lose = |message| matches!(message, Message::Push(push, _) if push.object.name.as_bytes() == b"blocker");
    company.flags(0);
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
