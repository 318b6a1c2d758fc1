//! Stories of members without space for recovery: deletions, refusals, and leftovers.

use super::company::Company;
use super::rig::{Host, PG};
use crate::key;
use nacre_object::{VERSION_ATTR, version_of};
use nacre_store::{Read, ReadReply};
use nacre_types::{ClientId, ObjectId};
use nacre_wire::Message;
use nacre_wire::msg::client::{OpFailure, OpRequest, SubOp};

pub(super) const GIB: u64 = 1 << 30;

/// Less than half of the reserve is left.
pub(super) const FULL: (u64, u64) = (100 * GIB, 99 * GIB);

pub(super) const ROOMY: (u64, u64) = (100 * GIB, 50 * GIB);

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
pub(super) fn comes_back_full(company: &mut Company, host: Host, place: usize) {
    let member = host.osd.id().0;
    company.lose = |message| matches!(message, Message::Push(..));
    company.revive(host, 2);
    company.host(member).osd.on_usage(FULL.0, FULL.1);
    company.wait(1000);
    assert_eq!(company.acting()[place], member);
    company.lose = |_| false;
}

/// All members have the object in the same version, or none has it.
pub(super) fn is_the_same_everywhere(company: &mut Company, object: &ObjectId) {
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

pub(super) fn is_missed_by(company: &mut Company, osd: u32) -> Vec<String> {
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
fn deletions_of_what_a_member_lacks_are_repeated() {
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
