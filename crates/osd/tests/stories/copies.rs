//! Stories of copying objects between daemons: see `pg/copy.rs`.

use super::company::Company;
use super::snapshots::{NOT_FOUND, eight_groups, everywhere, snapshot};
use nacre_object::snaps;
use nacre_types::{ClientId, ObjectId, SnapId};
use nacre_wire::Message;
use nacre_wire::msg::client::{OpFailure, OpRequest, SubOp, SubReply};

fn copy(company: &mut Company, from: &str, to: &str, snap: SnapId) -> OpRequest {
    let source = snaps::at(&ObjectId::named(from), snap);
    let request = company.request(ClientId(9), to, vec![SubOp::CopyFrom { source }], 0);
    company.resend(&request, &[]);
    request
}

#[test]
fn a_copy_is_all_of_the_source_at_one_time() {
    let mut company = Company::new(3, 2, 3);
    eight_groups(&mut company);
    let entries = |n: u8| {
        vec![SubOp::OmapSet {
            entries: vec![(vec![n].into(), vec![n].into())],
        }]
    };
    company.write("a", b"one").expect("written");
    company
        .op(
            "a",
            vec![SubOp::SetAttr {
                name: "x".into(),
                value: "1".into(),
            }],
            &[],
        )
        .expect("set");
    company.op("a", entries(1), &[]).expect("set");
    let monday = snapshot(&mut company, "monday");
    company.write("a", b"two").expect("written");
    // Into objects of other PGs, with other primaries among them; these have contents that must be
    // removed.
    let targets: Vec<String> = (0..12).map(|n| format!("target-{n}")).collect();
    let primaries: std::collections::BTreeSet<_> = targets
        .iter()
        .map(|name| company.monitors.map.pgs[&company.group(name)].acting[0])
        .collect();
    assert_eq!(primaries.len(), 3, "all three serve one");
    for name in &targets {
        company.write(name, b"something longer").expect("written");
        company.op(name, entries(9), &[]).expect("set");
        company
            .op(
                name,
                vec![SubOp::SetAttr {
                    name: "y".into(),
                    value: "2".into(),
                }],
                &[],
            )
            .expect("set");
        let (snap, expected) = if name.ends_with('3') {
            (monday, b"one")
        } else {
            (SnapId::HEAD, b"two")
        };
        let request = copy(&mut company, "a", name, snap);
        company.await_answer(&request).expect("copied");
        company.resend(&request, &[]);
        company.settle();
        let ops = vec![
            SubOp::Read {
                offset: 0,
                length: 100,
            },
            SubOp::ListAttrs {},
            SubOp::OmapList {
                after: Default::default(),
                limit: 10,
            },
        ];
        let all = company.send(name, ops, &[], 0);
        assert_eq!(
            company.await_answer(&all).map(|(_, data)| data),
            Ok(expected.to_vec())
        );
        let results = company.results(&all);
        let [
            _,
            SubReply::Entries { entries: attrs, .. },
            SubReply::Entries { entries: omap, .. },
        ] = &results[..]
        else {
            panic!("{results:?}")
        };
        assert_eq!(
            (&attrs[..], &omap[..]),
            (
                &[("x".into(), "1".into())][..],
                &[(vec![1].into(), vec![1].into())][..]
            )
        );
    }
    let absent = copy(&mut company, "nothing", "target-1", SnapId::HEAD);
    assert_eq!(company.await_answer(&absent), Err(OpFailure::NotFound {}));
    let same = copy(&mut company, "a", "a", monday);
    company.await_answer(&same).expect("copied");
    assert_eq!(company.read("a"), Ok(b"one".to_vec()));
    let same = copy(&mut company, "a", "a", SnapId::HEAD);
    company.await_answer(&same).expect("copied");
    assert_eq!(company.read("a"), Ok(b"one".to_vec()));
}

#[test]
fn copies_of_each_other_do_not_wait_for_each_other() {
    let mut company = Company::new(3, 2, 3);
    for (name, data) in [("a", b"one"), ("b", b"two")] {
        company.write(name, data).expect("written");
    }
    // The requests are delayed until both wait.
    let asks: Vec<OpRequest> = [("a", "b"), ("b", "a")]
        .map(|(from, to)| copy(&mut company, from, to, SnapId::HEAD))
        .into();
    for request in &asks {
        company.await_answer(request).expect("copied");
    }
    let both = (
        company.read("a").expect("read"),
        company.read("b").expect("read"),
    );
    assert!(
        [
            (b"one".to_vec(), b"one".to_vec()),
            (b"two".to_vec(), b"two".to_vec()),
            (b"two".to_vec(), b"one".to_vec())
        ]
        .contains(&both)
    );
}

/// The request for a copy's source was lost, or the answer. It counted as in progress for ever, and
/// the copy hung, with all operations behind it.
#[test]
fn a_copy_whose_question_or_answer_is_lost_is_made_all_the_same() {
    let question: fn(&Message) -> bool = |message| matches!(message, Message::OpRequest(..));
    let answer: fn(&Message) -> bool = |message| matches!(message, Message::OpReply(..));
    for lost in [question, answer] {
        let mut company = Company::new(3, 2, 3);
        eight_groups(&mut company);
        company.write("a", b"one").expect("written");
        let primary = |name: &str| company.monitors.map.pgs[&company.group(name)].acting[0];
        let target = (0..)
            .map(|n| format!("target-{n}"))
            .find(|name| primary(name) != primary("a"));
        let target = target.expect("three of them serve");
        company.lose = lost;
        let request = copy(&mut company, "a", &target, SnapId::HEAD);
        let behind = company.request(ClientId(10), &target, vec![SubOp::Append { length: 1 }], 0);
        company.resend(&behind, b"!");
        company.wait(300);
        company.lose = |_| false;
        company.wait(300);
        assert_eq!(company.answer(&request), None, "it was lost");
        company.await_answer(&request).expect("asked again");
        company.await_answer(&behind).expect("and then what waited");
        assert_eq!(company.read(&target), Ok(b"one!".to_vec()));
    }
}

#[test]
fn what_is_too_large_is_not_copied_and_says_so() {
    let mut company = Company::new(1, 1, 1);
    company
        .op(
            "a",
            vec![SubOp::Truncate {
                size: (32 << 20) + 1,
            }],
            &[],
        )
        .expect("made");
    let large = copy(&mut company, "a", "b", SnapId::HEAD);
    let answer = company.await_answer(&large);
    assert!(
        matches!(&answer, Err(OpFailure::Invalid { why }) if why.contains("at most 33554432")),
        "{answer:?}"
    );
    company.write("a", b"x").expect("written");
    for n in 0..5_u8 {
        let entries = vec![(vec![n].into(), vec![0; 1 << 20].into())];
        company
            .op("a", vec![SubOp::OmapSet { entries }], &[])
            .expect("set");
    }
    let large = copy(&mut company, "a", "b", SnapId::HEAD);
    let answer = company.await_answer(&large);
    assert!(
        matches!(&answer, Err(OpFailure::Invalid { why }) if why.contains("omap")),
        "{answer:?}"
    );
    assert_eq!(company.read("b"), NOT_FOUND);
}

/// Simulator, seed 1704: a primary was sent a replica with undone updates on it, to execute them
/// again; the clone had arrived and the object had not, when an OSD came back that had the previous
/// version of the object. That one was used, and the clone stayed in its place at the primary
/// alone, as an orphan.
#[test]
fn a_copy_with_undone_updates_comes_whole_or_not_at_all() {
    let mut fetched = 0;
    for places in [[2, 0, 1], [0, 1, 2]] {
        let mut company = Company::new(3, 2, 3);
        let members = company.acting();
        let lose = |message: &Message| matches!(message, Message::Push(push, _) if push.object.snapshot == SnapId::HEAD);
        let (_, third) =
            super::undone::left_with_an_undone_append_and_losing(&mut company, places, lose);
        let holder = members[places[1]];
        if company.acting()[0] == holder {
            continue; // it executes its own again, and is sent nothing
        }
        fetched += 1;
        let dead = company.kill(holder);
        company.lose = |_| false;
        company.revive(third, 2);
        company.wait(3000);
        assert_eq!(company.read("a").expect("it is there"), b"one");
        assert_eq!(everywhere(&mut company), ["a", "b"]);
        company.revive(dead, 4);
        company.wait(8000);
        assert_eq!(everywhere(&mut company), ["a", "b"]);
    }
    assert!(fetched > 0);
}

/// Copies whose sources did not answer sent requests again and again, before the others had their
/// turn: any other copy of the daemon waited as long as they did.
#[test]
fn copies_of_what_does_not_answer_leave_room_for_others() {
    let mut company = Company::new(3, 2, 3);
    eight_groups(&mut company);
    company.write("a", b"one").expect("written");
    let primary =
        |company: &Company, name: &str| company.monitors.map.pgs[&company.group(name)].acting[0];
    let maker = primary(&company, "target-0");
    let of = |company: &Company, prefix: &str, makers: bool| -> Vec<String> {
        let all = (0..).map(|n| format!("{prefix}-{n}"));
        all.filter(|name| (primary(company, name) == maker) == makers)
            .take(12)
            .collect()
    };
    let (sources, targets) = (of(&company, "stuck", false), of(&company, "target", true));
    company.lose = |message| match message {
        Message::OpRequest(request, _) => request.object.name.as_bytes().starts_with(b"stuck"),
        _ => false,
    };
    for (source, target) in sources.iter().zip(&targets) {
        copy(&mut company, source, target, SnapId::HEAD);
    }
    // It comes after all of them in the daemon's order.
    let groups = company
        .monitors
        .map
        .pgs
        .iter()
        .filter(|(_, record)| record.acting[0] == maker)
        .map(|(pg, _)| *pg);
    let group = groups.max().expect("it serves some");
    let last = (0..)
        .map(|n| format!("last-{n}"))
        .find(|name| company.group(name) == group)
        .expect("some are in it");
    let request = copy(&mut company, "a", &last, SnapId::HEAD);
    company.await_answer(&request).expect("it has its turn");
    assert_eq!(company.read(&last), Ok(b"one".to_vec()));
}

/// (Planted by a reviewer.) A copy repeats its request for the source while that cannot be read.
/// Each request waited there, one more every second and a half, until that daemon received no
/// requests any more.
#[test]
fn a_copy_that_waits_for_its_source_has_one_question_there() {
    let mut company = Company::new(3, 2, 3);
    eight_groups(&mut company);
    let primary =
        |company: &Company, name: &str| company.monitors.map.pgs[&company.group(name)].acting[0].0;
    company.write("a", b"old").expect("written");
    let source = primary(&company, "a");
    let host = company.kill(source);
    company.wait(2000);
    company.write("a", b"new").expect("two are enough");
    company.lose = |message| matches!(message, Message::Push(..));
    company.revive(host, 2);
    company.wait(2000);
    assert_eq!(primary(&company, "a"), source);
    let target = (0..)
        .map(|n| format!("target-{n}"))
        .find(|name| primary(&company, name) != source)
        .expect("three");
    let request = copy(&mut company, "a", &target, SnapId::HEAD);
    company.wait(20_000);
    assert_eq!(company.host(source).osd.client_load().0, 1);
    company.lose = |_| false;
    company.wait(4000);
    company.await_answer(&request).expect("copied");
    assert_eq!(company.read(&target), Ok(b"new".to_vec()));
}

/// (Review.) An answer was matched by the request's number alone, and numbers restart with each
/// instance: an answer to an earlier instance arrived late, was taken for the source of another
/// copy, and that copy was acknowledged.
#[test]
fn what_an_earlier_instance_asked_for_is_no_source() {
    use nacre_types::{Entity, Instance, OsdId, Version};
    use nacre_wire::msg::client::{OpReply, RequestId};
    use nacre_wire::msg::snap::Whole;
    let mut company = Company::new(3, 2, 3);
    eight_groups(&mut company);
    company.write("a", b"right").expect("written");
    let primary = |name: &str| company.monitors.map.pgs[&company.group(name)].acting[0].0;
    let target = (0..)
        .map(|n| format!("target-{n}"))
        .find(|name| primary(name) != primary("a"))
        .expect("three serve");
    let (asks, asked) = (primary(&target), primary("a"));
    company.lose = |message| matches!(message, Message::OpRequest(..));
    let request = copy(&mut company, "a", &target, SnapId::HEAD);
    company.settle();
    let client = ClientId(u64::MAX - u64::from(asks));
    let instance = Instance(company.host(asks).osd.instance().0 - 1);
    let object = Whole {
        size: 5,
        ..Whole::default()
    };
    for number in 1..5 {
        let late = OpReply {
            request: RequestId {
                client,
                instance,
                sequence: 1 << 63 | number,
            },
            failure: None,
            version: Version::NONE,
            results: vec![SubReply::Whole {
                object: object.clone(),
            }],
            attempt: 1,
        };
        let epoch = company.monitors.map.epoch;
        let message = Message::OpReply(late, vec![bytes::Bytes::from_static(b"wrong")]);
        company
            .host(asks)
            .tell(Entity::Osd(OsdId(asked)), epoch, message);
    }
    company.settle();
    company.lose = |_| false;
    company.await_answer(&request).expect("copied");
    assert_eq!(company.read(&target), Ok(b"right".to_vec()));
}
