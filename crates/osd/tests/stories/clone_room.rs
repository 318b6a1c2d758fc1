//! Stories of full members: clones, members that stand aside, and leftovers of others.

use super::company::Company;
use super::rig::PG;
use super::room::{FULL, GIB, ROOMY, comes_back_full, is_missed_by, is_the_same_everywhere};
use crate::key;
use nacre_store::{Read, ReadReply};
use nacre_types::{ClientId, ObjectId, OsdId};
use nacre_wire::Message;
use nacre_wire::msg::client::{OpFailure, OpRequest, SubOp};

/// An object was here, and a member had no space for the clone that it was to be rolled back to:
/// the rollback waited for ever, was not refused, and did not let the member stand aside.
#[test]
fn what_waits_for_a_clone_without_room_is_refused_and_the_full_member_stands_aside() {
    for too_few in [true, false] {
        let mut company = Company::new(3, 2, 3);
        company.write("a", b"old").expect("all are there");
        let [_, other, member] = company.acting()[..] else {
            panic!("three")
        };
        let host = company.kill(member);
        company.wait(1000);
        let monday = super::snapshots::snapshot(&mut company, "monday");
        company.write("a", b"new").expect("it makes a clone");
        company.lose = |message| matches!(message, Message::Push(push, _) if nacre_object::snaps::is_clone(&push.object));
        company.revive(host, 2);
        company.wait(2000);
        assert_eq!(
            is_missed_by(&mut company, member),
            ["a:1"],
            "the object has come"
        );
        company.host(member).osd.on_usage(FULL.0, FULL.1);
        company.wait(500);
        company.lose = |_| false;
        if too_few {
            company.kill(other);
            company.wait(2000);
        }
        let back = || vec![SubOp::Rollback { snap: monday }];
        let refused = company.send("a", back(), &[], 0);
        assert_eq!(company.await_answer(&refused), Err(OpFailure::Full {}));
        assert_eq!(company.read("a"), Ok(b"new".to_vec()), "it had no effect");
        if too_few {
            continue;
        }
        company.wait(2000);
        assert!(
            !company.acting().contains(&member),
            "the others act without it"
        );
        // It has space for an update.
        company.host(member).osd.on_usage(100 * GIB, 96 * GIB);
        company.wait(500);
        company
            .op("a", back(), &[])
            .expect("nothing waits for the full member");
        company.host(member).osd.on_usage(ROOMY.0, ROOMY.1);
        company.wait(8000);
        assert_eq!(company.acting().len(), 3);
        assert_eq!(company.data_at(member, &ObjectId::named("a")), b"old");
    }
}

/// A full member lacked an object of every name, and had old versions of all. Those had clones, so
/// deletions left something and waited for recovery, as trimming did; and recovery waited for
/// space. (Simulator, small devices, seed 3761.) Now the others act without it: their deletions and
/// trimming free space there, and it gets what it lacks by then, including clones of objects that
/// it lacks, before it acts again.
#[test]
fn who_has_no_room_for_what_it_lacks_stands_aside() {
    for (place, trimmed) in [(0, true), (0, false), (1, false), (2, true), (2, false)] {
        let mut company = Company::new(3, 2, 3);
        for name in ["a", "b"] {
            company.write(name, b"old").expect("all are there");
        }
        let member = company.acting()[place];
        let host = company.kill(member);
        company.wait(1000);
        let monday = super::snapshots::snapshot(&mut company, "monday");
        for name in ["a", "b"] {
            company.write(name, b"new").expect("two are enough");
        }
        let tuesday = super::snapshots::snapshot(&mut company, "tuesday");
        comes_back_full(&mut company, host, place);
        let delete = company.send("a", vec![SubOp::Delete {}], &[], 0);
        company.wait(3000);
        assert!(
            !company.acting().contains(&member),
            "the others act without it"
        );
        company.resend(&delete, &[]);
        company
            .await_answer(&delete)
            .expect("deletions always work");
        assert!(company.without_room.contains(&member), "health says it");
        assert_eq!(company.read("b"), Ok(b"new".to_vec()));
        assert_eq!(company.read("a"), Err(OpFailure::NotFound {}));
        if trimmed {
            super::snapshots::remove(&mut company, monday);
            super::snapshots::remove(&mut company, tuesday);
            company.wait(15_000);
            assert!(!company.has(member, "a"), "it made room there, too");
            assert!(!company.acting().contains(&member), "it lacks b");
        } else {
            // It has space for an update, and gets nothing that it lacks.
            company.lose = |message| matches!(message, Message::Push(..));
            company.host(member).osd.on_usage(100 * GIB, 96 * GIB);
            company.wait(500);
            company
                .op("b", vec![SubOp::Delete {}], &[])
                .expect("it makes a clone");
            let primary = company.acting()[0];
            let group = company
                .host(primary)
                .osd
                .pgs()
                .find(|group| group.id() == PG)
                .expect("it is there");
            let known = &group.as_primary().expect("it serves").peers[&OsdId(member)].missing;
            let mut known: Vec<_> = known.keys().map(ToString::to_string).collect();
            let mut missed = is_missed_by(&mut company, member);
            known.sort();
            missed.sort();
            assert_eq!(known, missed, "what it lacks is known");
            company.lose = |_| false;
        }
        company.host(member).osd.on_usage(ROOMY.0, ROOMY.1);
        company.wait(5000);
        assert_eq!(company.acting()[place], member, "it is as before");
        assert_eq!(is_missed_by(&mut company, member), [""; 0]);
        for (name, snapshot) in ["a", "b"]
            .into_iter()
            .flat_map(|name| [(name, monday), (name, tuesday)])
        {
            is_the_same_everywhere(
                &mut company,
                &ObjectId {
                    snapshot,
                    ..ObjectId::named(name)
                },
            );
            is_the_same_everywhere(&mut company, &ObjectId::named(name));
        }
    }
}

/// Backfill towards a nearly full target stops. A member had been away, and was full of objects
/// that were deleted meanwhile: only backfill would have removed them, so it stayed full, and the
/// PG never became complete. (Simulator, small devices: three of 1,500 seeds.)
#[test]
fn what_a_full_target_has_too_much_is_removed() {
    let mut company = Company::new(3, 2, 3);
    company.limit(crate::Limits {
        log_entries_min: 2,
        log_entries_max: 4,
        scan_objects: 4,
        ..crate::Limits::default()
    });
    let names: Vec<String> = (0..20).map(|n| format!("object-{n}")).collect();
    for name in &names {
        company.write(name, b"old").expect("all are there");
    }
    company.write("kept", b"old").expect("all are there");
    let member = company.acting()[2];
    let host = company.kill(member);
    company.wait(1000);
    for name in &names {
        company
            .op(name, vec![SubOp::Delete {}], &[])
            .expect("two are enough");
    }
    company.write("kept", b"new").expect("two are enough");
    company.lose = |message| matches!(message, Message::ScanQuery(_));
    company.revive(host, 2);
    company.host(member).osd.on_usage(FULL.0, FULL.1);
    company.wait(1000);
    company.lose = |_| false;
    company.wait(4000);
    let left = names
        .iter()
        .filter(|name| company.has(member, name))
        .count();
    assert_eq!(left, 0, "what frees space is done");
    assert_eq!(
        company.data_at(member, &ObjectId::named("kept")),
        b"old",
        "and nothing else"
    );
    company.host(member).osd.on_usage(ROOMY.0, ROOMY.1);
    company.wait(5000);
    assert_eq!(company.data_at(member, &ObjectId::named("kept")), b"new");
    assert!(company.acting().contains(&member));
}

/// Only a clean PG was trimmed. A member that was full of clones lacked something and had no space
/// for it: the PG did not become clean, and clones of a removed snapshot kept their space.
/// (Simulator, small devices, seeds 2851 and 3761.)
#[test]
fn removed_snapshots_give_their_room_back_while_a_full_member_lacks_something() {
    let mut company = Company::new(3, 2, 3);
    for name in ["a", "b"] {
        company.write(name, b"old").expect("all are there");
    }
    let snap = super::snapshots::snapshot(&mut company, "monday");
    company.write("a", b"new").expect("it makes a clone");
    let member = company.acting()[2];
    let host = company.kill(member);
    company.wait(1000);
    company.write("b", b"new").expect("two are enough");
    company.lose = |message| matches!(message, Message::Push(..));
    company.revive(host, 2);
    company.host(member).osd.on_usage(FULL.0, FULL.1);
    company.wait(1000);
    company.lose = |_| false;
    company.wait(2000);
    assert!(
        !is_missed_by(&mut company, member).is_empty(),
        "there is no room"
    );
    let clones = |company: &mut Company, name: &str| {
        let place = key::store_key(
            PG,
            &ObjectId {
                snapshot: snap,
                ..ObjectId::named(name)
            },
        );
        let stat = Read::Stat(place);
        (0..3)
            .filter(|osd| company.host(*osd).store.peek(&stat) != Ok(ReadReply::Stat(None)))
            .count()
    };
    assert_eq!(clones(&mut company, "a"), 3);
    super::snapshots::remove(&mut company, snap);
    company.wait(2000);
    assert_eq!(clones(&mut company, "a"), 0, "nobody lacks anything of it");
    assert!(
        !company.acting().contains(&member),
        "it lacks something of the other, which is trimmed without it"
    );
    company.host(member).osd.on_usage(ROOMY.0, ROOMY.1);
    company.wait(12_000);
    assert_eq!(clones(&mut company, "b"), 0);
    is_the_same_everywhere(&mut company, &ObjectId::named("b"));
}

/// A primary that lacked clones searched for clones to trim while another member was full: in its
/// own index, which does not list the ones that it lacks. The pass ended, the clones arrived, and
/// no further pass was done. (Simulator, seed 5128.)
#[test]
fn clones_that_the_primary_lacks_are_trimmed_when_they_have_come() {
    for full_place in [1, 2] {
        let mut company = Company::new(3, 2, 3);
        for name in ["a", "b"] {
            company.write(name, b"old").expect("all are there");
        }
        let acting = company.acting();
        let host = company.kill(acting[0]);
        company.wait(1000);
        let monday = super::snapshots::snapshot(&mut company, "monday");
        for name in ["a", "b"] {
            company.write(name, b"new").expect("it makes a clone");
        }
        company.lose = |message| matches!(message, Message::Push(..));
        company.revive(host, 2);
        company
            .host(acting[full_place])
            .osd
            .on_usage(FULL.0, FULL.1);
        company.wait(1000);
        assert_eq!(company.acting(), acting, "it leads again");
        super::snapshots::remove(&mut company, monday);
        company.wait(2000);
        assert_eq!(
            is_missed_by(&mut company, acting[0]).len(),
            4,
            "nothing comes"
        );
        company.lose = |_| false;
        company.wait(20_000);
        assert_eq!(is_missed_by(&mut company, acting[0]), [""; 0]);
        for name in ["a", "b"] {
            let place = key::store_key(
                PG,
                &ObjectId {
                    snapshot: monday,
                    ..ObjectId::named(name)
                },
            );
            for osd in company.acting() {
                let found = company.host(osd).store.peek(&Read::Stat(place.clone()));
                assert_eq!(
                    found,
                    Ok(ReadReply::Stat(None)),
                    "the clone of {name} preserves nothing"
                );
            }
        }
    }
}

/// A target of backfill accepts clients' updates before its cursor, and nothing waits for it. It
/// checked for the space that an update states, and an update that makes a clone states little:
/// some clones of large omaps, and its store was completely full. Now the update states the clone's
/// size, too.
#[test]
fn who_is_being_filled_takes_no_clones_that_do_not_fit() {
    const MIB: u64 = 1 << 20;
    let mut company = Company::new(3, 2, 3);
    let limits = crate::Limits {
        log_entries_min: 2,
        log_entries_max: 8,
        scan_objects: 2,
        ..crate::Limits::default()
    };
    company.limit(limits);
    let mut names: Vec<String> = (0..7).map(|n| format!("object-{n}")).collect();
    names.sort_by_key(|name| key::position(&ObjectId::named(name)));
    let last = names.pop().expect("seven");
    // Those in the range that does not arrive are held.
    let inside = &names[..4];
    let entries: Vec<_> = (0..100)
        .map(|n| {
            (
                bytes::Bytes::from(format!("{n:03}")),
                bytes::Bytes::from(vec![7; 15_000]),
            )
        })
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
    let target = company.acting()[2];
    let host = company.kill(target);
    for _ in 0..20 {
        company.write(&last, b"x").expect("two are enough");
    }
    // The last range does not arrive.
    company.lose = |message| matches!(message, Message::Push(push, _) if push.omap.is_empty());
    company.revive(host, 2);
    company.limit(limits);
    company.wait(3000);
    assert!(!company.acting().contains(&target), "it is being filled");
    let snap = super::snapshots::snapshot(&mut company, "monday");
    // Half of the reserve of 12 MiB is not for recovery: there is space for one clone of 6 MB.
    company.host(target).osd.on_usage(128 * MIB, 114 * MIB);
    company.wait(500);
    let cloned = |company: &mut Company| {
        let has = |name: &&String| {
            let place = key::store_key(
                PG,
                &ObjectId {
                    snapshot: snap,
                    ..ObjectId::named(name)
                },
            );
            company.host(target).store.peek(&Read::Stat(place)) != Ok(ReadReply::Stat(None))
        };
        inside.iter().filter(has).count()
    };
    let mut sent = Vec::new();
    for name in inside {
        let op = SubOp::Write {
            offset: 0,
            length: 1,
        };
        let request = OpRequest {
            answered_below: 1,
            ..company.request(ClientId(300), name, vec![op], 0)
        };
        company.resend(&request, b"x");
        sent.push(request);
    }
    company.wait(500);
    for request in &sent {
        assert!(
            matches!(company.answer(request), Some(Ok(_))),
            "{:?}",
            company.answer(request)
        );
    }
    assert_eq!(cloned(&mut company), 1, "the others do not fit");
    company.lose = |_| false;
    company.host(target).osd.on_usage(128 * MIB, 10 * MIB);
    company.wait(20_000);
    assert_eq!(cloned(&mut company), inside.len());
    assert!(
        company.acting().contains(&target),
        "it was filled: {:?}",
        company.reports
    );
    for name in &names {
        is_the_same_everywhere(&mut company, &ObjectId::named(name));
    }
}
