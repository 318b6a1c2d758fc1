//! Stories of members without space for recovery: deletions, refusals, and leftovers.

use crate::company::Company;
use crate::key;
use crate::stories::{Host, PG};
use nacre_object::{VERSION_ATTR, version_of};
use nacre_store::{Read, ReadReply};
use nacre_types::{ClientId, ObjectId, OsdId};
use nacre_wire::Message;
use nacre_wire::msg::client::{OpFailure, OpRequest, SubOp};

const GIB: u64 = 1 << 30;
/// Less than half of the reserve is left.
pub(crate) const FULL: (u64, u64) = (100 * GIB, 99 * GIB);
pub(crate) const ROOMY: (u64, u64) = (100 * GIB, 50 * GIB);

/// Three members; the one at `place` in the acting set was away while these objects were written,
/// came back, and its store has no space.
fn without_room(place: usize, names: &[&str]) -> (Company, u32) {
    let mut company = Company::new(3, 2, 3);
    for name in names {
        company.write(name, b"old").expect("all are there");
    }
    let member = company.acting()[place];
    let host = company.kill(member);
    company.wait(1000);
    for name in names {
        company.write(name, b"new").expect("two are enough");
    }
    comes_back_full(&mut company, host, place);
    (company, member)
}

/// It acts again in its former place, and its store has no space for the objects that it missed.
pub(crate) fn comes_back_full(company: &mut Company, host: Host, place: usize) {
    let member = host.osd.id().0;
    company.lose = |message| matches!(message, Message::Push(..));
    company.revive(host, 2);
    company.host(member).osd.on_usage(FULL.0, FULL.1);
    company.wait(1000);
    assert_eq!(company.acting()[place], member);
    company.lose = |_| false;
}

/// All members have the object in the same version, or none has it.
pub(crate) fn is_the_same_everywhere(company: &mut Company, object: &ObjectId) {
    let place = key::store_key(PG, object);
    let versions: Vec<_> = company
        .acting()
        .into_iter()
        .map(
            |osd| match company.host(osd).store.peek(&Read::Stat(place.clone())) {
                Ok(ReadReply::Stat(stat)) => stat.map(|stat| version_of(&stat.attrs[VERSION_ATTR])),
                other => panic!("osd.{osd}: {other:?}"),
            },
        )
        .collect();
    assert!(
        versions.iter().all(|version| *version == versions[0]),
        "{object}: {versions:?}"
    );
}

/// Objects of which the member has received some parts, and not all.
fn staged(company: &mut Company, osd: u32) -> usize {
    let (from, to, collection) = (Default::default(), None, key::INCOMING);
    match company.host(osd).store.peek(&Read::List {
        collection,
        from,
        to,
        limit: 100,
    }) {
        Ok(ReadReply::List { keys, .. }) => keys.len(),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn is_missed_by(company: &mut Company, osd: u32) -> Vec<String> {
    let group = company
        .host(osd)
        .osd
        .pgs()
        .find(|group| group.id() == PG)
        .expect("it is there");
    group
        .local
        .missing
        .keys()
        .map(ToString::to_string)
        .collect()
}

/// A nearly full member lacked objects and had no space for them; their deletions waited for
/// recovery, and recovery for deletions: for ever, where clients only deleted. (Simulator, small
/// devices.)
#[test]
fn deletions_wait_for_no_copy() {
    for place in [0, 1, 2] {
        let (mut company, member) = without_room(place, &["a", "b"]);
        company.wait(2000);
        assert_eq!(
            is_missed_by(&mut company, member),
            ["a", "b"],
            "there is no room"
        );
        company
            .op("a", vec![SubOp::Delete {}], &[])
            .expect("deletions always work");
        assert_eq!(is_missed_by(&mut company, member), ["b"]);
        assert_eq!(
            company.op("a", vec![SubOp::Delete {}], &[]),
            Err(OpFailure::NotFound {})
        );
        is_the_same_everywhere(&mut company, &ObjectId::named("a"));
        company.host(member).osd.on_usage(ROOMY.0, ROOMY.1);
        company.wait(500);
        company.write("a", b"again").expect("there is room");
        company.wait(2000);
        assert_eq!(is_missed_by(&mut company, member), [""; 0]);
        for name in ["a", "b"] {
            is_the_same_everywhere(&mut company, &ObjectId::named(name));
        }
        assert_eq!(company.read("a"), Ok(b"again".to_vec()));
        assert_eq!(company.read("b"), Ok(b"new".to_vec()));
    }
}

/// As before; and the deletion's message to a member is lost, or the member that lacks the object
/// dies before it has it. The resent message has the same content.
#[test]
fn deletions_of_what_somebody_lacks_are_repeated() {
    for place in [0, 1] {
        let (mut company, member) = without_room(place, &["a"]);
        company.lose = |message| matches!(message, Message::Replicate(..));
        let delete = company.send("a", vec![SubOp::Delete {}], &[], 0);
        company.wait(300);
        assert_eq!(company.answer(&delete), None, "nobody has it");
        company.lose = |_| false;
        company.await_answer(&delete).expect("it is sent again");
        let host = company.kill(member);
        company.wait(1000);
        company.revive(host, 3);
        company.wait(1000);
        assert_eq!(is_missed_by(&mut company, member), [""; 0]);
        is_the_same_everywhere(&mut company, &ObjectId::named("a"));
    }
}

/// Writes to objects without space for their recovery were held until there was some, without a
/// report. Now they are refused within a second or so, a read waits, and both monitors and clients
/// learn the reason.
#[test]
fn writes_that_wait_for_what_has_no_room_are_refused() {
    for place in [0, 2] {
        let (mut company, member) = without_room(place, &["a", "b"]);
        // No member may be missing.
        company.kill(company.acting()[1]);
        company.wait(2000);
        // One client, which has the answer of none of them when it sends the next.
        let send = |company: &mut Company, name: &str, op: SubOp, data: &[u8]| {
            let request = OpRequest {
                answered_below: 1,
                ..company.request(ClientId(300), name, vec![op], 0)
            };
            company.resend(&request, data);
            request
        };
        let read = send(
            &mut company,
            "b",
            SubOp::Read {
                offset: 0,
                length: 3,
            },
            &[],
        );
        let write = send(
            &mut company,
            "a",
            SubOp::Write {
                offset: 0,
                length: 1,
            },
            b"x",
        );
        let delete = send(&mut company, "a", SubOp::Delete {}, &[]);
        company.wait(1500);
        assert_eq!(company.answer(&write), Some(Err(OpFailure::Full {})));
        assert!(
            matches!(company.answer(&delete), Some(Ok(_))),
            "what comes after it goes on"
        );
        assert!(company.answer(&read).is_none(), "one copy is too few");
        assert!(company.without_room.contains(&member), "health says it");
        company.host(member).osd.on_usage(ROOMY.0, ROOMY.1);
        company.wait(5000);
        assert_eq!(
            company
                .answer(&read)
                .and_then(Result::ok)
                .map(|(_, data)| data),
            Some(b"new".to_vec())
        );
        assert!(company.without_room.is_empty(), "and that it is over");
        assert_eq!(
            company.op("a", vec![SubOp::Delete {}], &[]),
            Err(OpFailure::NotFound {}),
            "a refused write had no effect"
        );
    }
}

/// A read of an object without space for its recovery waits. The deletion that would free the space
/// waited behind it: a deletion of another client now overtakes it. And a call of a read-only
/// method is not refused as a write.
#[test]
fn deletions_do_not_wait_behind_reads_of_what_has_no_room() {
    for place in [0, 2] {
        let (mut company, member) = without_room(place, &["a", "b"]);
        // No member may be missing.
        company.kill(company.acting()[1]);
        company.wait(2000);
        let send = |company: &mut Company, client: u64, name: &str, op: SubOp| {
            let request = company.request(ClientId(client), name, vec![op], 0);
            company.resend(&request, &[]);
            request
        };
        let get = || SubOp::Call {
            class: "tally".into(),
            method: "get".into(),
            length: 0,
        };
        let call = send(&mut company, 300, "b", get());
        let reads = [301, 302].map(|client| {
            send(
                &mut company,
                client,
                "a",
                SubOp::Read {
                    offset: 0,
                    length: 3,
                },
            )
        });
        let delete = send(&mut company, 303, "a", SubOp::Delete {});
        company.wait(2500);
        assert_eq!(company.answer(&call), None, "it waits as a read does");
        assert!(
            matches!(company.answer(&delete), Some(Ok(_))),
            "{:?}",
            company.answer(&delete)
        );
        for read in &reads {
            assert_eq!(
                company.await_answer(read),
                Err(OpFailure::NotFound {}),
                "it came after the deletion"
            );
        }
        company.host(member).osd.on_usage(ROOMY.0, ROOMY.1);
        company.await_answer(&call).expect("there is room");
    }
}

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
        let monday = crate::snap_stories::snapshot(&mut company, "monday");
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
        let monday = crate::snap_stories::snapshot(&mut company, "monday");
        for name in ["a", "b"] {
            company.write(name, b"new").expect("two are enough");
        }
        let tuesday = crate::snap_stories::snapshot(&mut company, "tuesday");
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
            crate::snap_stories::remove(&mut company, monday);
            crate::snap_stories::remove(&mut company, tuesday);
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

/// An interval ended while an object was being received in parts. The received parts stayed in the
/// incoming area until the daemon's next start if the object was not sent in parts again: if it was
/// deleted, or small by then, they took their space for ever.
#[test]
fn parts_that_are_of_no_use_any_more_take_no_room() {
    for other_interval in [true, false] {
        let mut company = Company::new(3, 2, 3);
        company.limit(crate::Limits {
            push_bytes: 4 << 10,
            ..crate::Limits::default()
        });
        company.write("a", b"old").expect("all are there");
        let [primary, .., member] = company.acting()[..] else {
            panic!("three of three")
        };
        let host = company.kill(member);
        company.write("a", &[7; 20 << 10]).expect("two are enough");
        company.lose = |message| matches!(message, Message::Push(push, _) if push.part > 1);
        company.revive(host, 2);
        company.wait(1000);
        assert_eq!(staged(&mut company, member), 1, "two parts have come");
        if other_interval {
            company.lose = |message| matches!(message, Message::Push(..));
            let host = company.kill(primary);
            company.wait(1000);
            assert_eq!(staged(&mut company, member), 0);
            company.revive(host, 2);
        }
        company
            .op("a", vec![SubOp::Delete {}], &[])
            .expect("deleted");
        company.wait(1000);
        assert_eq!(staged(&mut company, member), 0);
        company.lose = |_| false;
        is_the_same_everywhere(&mut company, &ObjectId::named("a"));
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

/// A member sent an object, and the object was rewritten, shorter, before it had sent all of it.
/// The data that it read for the next part was empty, and for the part after that, for ever, each
/// as soon as the previous one was acknowledged. (Simulator, seed 2227.)
#[test]
fn an_object_that_changes_is_not_sent_any_further() {
    let mut company = Company::new(3, 2, 3);
    company.limit(crate::Limits {
        push_bytes: 4 << 10,
        ..crate::Limits::default()
    });
    company.write("a", b"old").expect("all are there");
    let primary = company.acting()[0];
    let host = company.kill(primary);
    company.wait(1000);
    company.write("a", &[7; 20 << 10]).expect("two are enough");
    company.lose = |message| matches!(message, Message::Push(..));
    company.revive(host, 2);
    company.wait(300);
    assert_eq!(company.acting()[0], primary);
    let delete = company.send("a", vec![SubOp::Delete {}], &[], 0);
    company.wait(100);
    company.lose = |_| false;
    company
        .await_answer(&delete)
        .expect("the first part says what it is");
    company.write("a", b"short").expect("there is room");
    company.wait(3000);
    is_the_same_everywhere(&mut company, &ObjectId::named("a"));
    let sent: usize = company
        .hosts
        .values()
        .flat_map(|host| host.osd.pgs())
        .map(|group| group.sending.outgoing_to(|_| true))
        .sum();
    assert_eq!(sent, 0);
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
    let snap = crate::snap_stories::snapshot(&mut company, "monday");
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
    crate::snap_stories::remove(&mut company, snap);
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
        let monday = crate::snap_stories::snapshot(&mut company, "monday");
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
        crate::snap_stories::remove(&mut company, monday);
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
    let snap = crate::snap_stories::snapshot(&mut company, "monday");
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

/// (Planted by a reviewer: the flag was ignored.) A pool at its quota accepts no more data, and
/// deletions free space.
#[test]
fn a_pool_that_the_monitors_call_full_takes_deletions_only() {
    use nacre_wire::map::{Change, pool_flag};
    let mut company = Company::new(3, 2, 3);
    company.write("a", b"old").expect("there is room");
    let flag = |company: &mut Company, full: bool| {
        let mut settings = company.monitors.map.pools[&PG.pool].clone();
        settings.flags = if full {
            settings.flags | pool_flag::FULL
        } else {
            settings.flags & !pool_flag::FULL
        };
        company.commit(vec![Change::PoolSet {
            pool: PG.pool,
            settings,
        }]);
    };
    flag(&mut company, true);
    assert_eq!(company.write("b", b"x"), Err(OpFailure::Full {}));
    assert_eq!(company.read("a"), Ok(b"old".to_vec()));
    company
        .op("a", vec![SubOp::Delete {}], &[])
        .expect("deletions always work");
    flag(&mut company, false);
    company.write("b", b"x").expect("there is room");
}

/// (Planted by a reviewer.) Parts of an object received before its daemon died are removed at the
/// next start.
#[test]
fn parts_of_before_a_start_take_no_room() {
    let mut company = Company::new(3, 2, 3);
    company.limit(crate::Limits {
        push_bytes: 4 << 10,
        ..crate::Limits::default()
    });
    company.write("a", b"old").expect("all are there");
    let member = company.acting()[2];
    let host = company.kill(member);
    company.write("a", &[7; 20 << 10]).expect("two are enough");
    company.lose = |message| matches!(message, Message::Push(push, _) if push.part > 1);
    company.revive(host, 2);
    company.wait(1000);
    assert_eq!(staged(&mut company, member), 1, "two parts have come");
    let host = company.kill(member);
    company
        .op("a", vec![SubOp::Delete {}], &[])
        .expect("two are enough");
    company.revive(host, 3);
    company.wait(1000);
    assert_eq!(staged(&mut company, member), 0);
}

/// (Planted by a reviewer.) The deletion that frees space overtakes others' reads, not those of its
/// own client.
#[test]
fn a_deletion_does_not_overtake_its_own_clients_read() {
    let (mut company, member) = without_room(2, &["a"]);
    company.kill(company.acting()[1]);
    company.wait(2000);
    let mut read = company.request(
        ClientId(301),
        "a",
        vec![SubOp::Read {
            offset: 0,
            length: 3,
        }],
        0,
    );
    let mut delete = company.request(ClientId(301), "a", vec![SubOp::Delete {}], 0);
    (read.answered_below, delete.answered_below) = (read.request.sequence, read.request.sequence);
    company.resend(&read, &[]);
    company.resend(&delete, &[]);
    company.wait(2500);
    assert_eq!(
        (company.answer(&read), company.answer(&delete)),
        (None, None)
    );
    company.host(member).osd.on_usage(ROOMY.0, ROOMY.1);
    assert_eq!(
        company.await_answer(&read).map(|(_, data)| data),
        Ok(b"new".to_vec())
    );
    company.await_answer(&delete).expect("deleted");
}
