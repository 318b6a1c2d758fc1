//! Stories of operations that wait for one object: they have a share of their daemon's memory,
//! other operations keep the rest (`pg/shares.rs`).

use super::company::{CLIENT, Company};
use crate::Limits;
use nacre_types::{ClientId, ObjectId};
use nacre_wire::Message;
use nacre_wire::msg::client::{OpFailure, OpRequest, SubOp};

const BERT: ClientId = ClientId(CLIENT.0 + 1);

/// A cluster whose primary has memory for 64 operations of clients or 1 MiB, and whose updates are
/// not committed until [`go_on`]: a read of an object just written waits, and all operations behind
/// it.
fn company() -> Company {
    let mut company = Company::new(3, 2, 3);
    company.limit(Limits {
        client_ops: 64,
        client_bytes: 1 << 20,
        ..Limits::default()
    });
    company.write("other", b"x").expect("all is well");
    company.lose = |message| matches!(message, Message::ReplicateAcks(_));
    company
}

fn go_on(company: &mut Company) {
    company.lose = |_| false;
    company.wait(3_000);
}

/// Sends one of several operations that a client has in flight.
fn send(
    company: &mut Company,
    client: ClientId,
    object: &str,
    op: SubOp,
    data: &[u8],
) -> OpRequest {
    let request = OpRequest {
        answered_below: 1,
        ..company.request(client, object, vec![op], 0)
    };
    company.resend(&request, data);
    company.settle();
    request
}

fn again(company: &mut Company, request: &OpRequest, data: &[u8]) -> OpRequest {
    let request = OpRequest {
        attempt: request.attempt + 1,
        ..request.clone()
    };
    company
        .replies
        .retain(|(reply, _)| reply.request != request.request);
    company.resend(&request, data);
    company.settle();
    request
}

/// Holds the object up: operations behind these two wait.
fn hold_up(company: &mut Company, object: &str) {
    send(company, CLIENT, object, append(b"_"), b"_");
    send(company, CLIENT, object, SubOp::Stat {}, &[]);
}

fn append(data: &[u8]) -> SubOp {
    SubOp::Append {
        length: data.len() as u64,
    }
}

fn is_refused(company: &mut Company, request: &OpRequest) -> bool {
    company.answer(request) == Some(Err(OpFailure::WrongTarget {}))
}

fn load(company: &mut Company) -> (usize, u64) {
    let primary = company.acting()[0];
    company.host(primary).osd.client_load()
}

fn takes_work(company: &mut Company) -> bool {
    let primary = company.acting()[0];
    company.host(primary).osd.wants_client_work()
}

/// (Simulator, seed 3026.) Operations that waited for one object behind a call of six seconds
/// filled the daemon's memory for clients: no other client's operations were received until it
/// ended, and health did not report those. Now, when the memory is full, operations on a held-up
/// object are sent back beyond their share, and resent in order.
#[test]
fn what_waits_for_one_object_leaves_room_for_the_others() {
    for data in [vec![b'x'; 1], vec![b'x'; 64 << 10]] {
        let mut company = company();
        hold_up(&mut company, "o");
        let mut writes = Vec::new();
        while takes_work(&mut company) {
            let digit = [b'0' + writes.len() as u8];
            writes.push(send(
                &mut company,
                CLIENT,
                "o",
                append(&data),
                &[&digit, &data[1..]].concat(),
            ));
        }
        let (ops, bytes) = load(&mut company);
        assert!(ops == 64 || bytes >= 1 << 20, "it is full");
        company.wait(1_100);
        let (ops, bytes) = load(&mut company);
        let share = (40..=49).contains(&ops) || (700 << 10..=832 << 10).contains(&bytes);
        assert!(
            share && takes_work(&mut company),
            "{ops} operations of {bytes} bytes"
        );
        let read = send(
            &mut company,
            CLIENT,
            "other",
            SubOp::Read {
                offset: 0,
                length: 9,
            },
            &[],
        );
        assert!(
            company
                .answer(&read)
                .expect("who waits for others is served")
                .is_ok()
        );
        let mut late = send(&mut company, CLIENT, "o", append(b"!"), b"!");
        assert!(is_refused(&mut company, &late), "it does not overtake them");
        go_on(&mut company);
        late = again(&mut company, &late, b"!");
        assert!(is_refused(&mut company, &late), "not then either");
        let mut order = vec![b'_'];
        for (at, write) in writes.iter().enumerate() {
            if is_refused(&mut company, write) {
                again(
                    &mut company,
                    write,
                    &[&[b'0' + at as u8], &data[1..]].concat(),
                );
            }
            order.extend([&[b'0' + at as u8], &data[1..]].concat());
        }
        again(&mut company, &late, b"!");
        order.push(b'!');
        company.wait(1_000);
        let read = send(
            &mut company,
            BERT,
            "o",
            SubOp::Read {
                offset: 0,
                length: 2 << 20,
            },
            &[],
        );
        let (_, found) = company.await_answer(&read).expect("there");
        assert!(found == order, "each once and in order");
        assert_eq!(load(&mut company), (0, 0));
    }
}

/// (Review.) A client that must resend an operation on one object was not served on any other
/// object of the PG.
#[test]
fn who_comes_again_for_one_object_is_served_on_others() {
    let mut company = company();
    hold_up(&mut company, "o");
    company.wait(1_100);
    while !{
        let write = send(&mut company, CLIENT, "o", append(b"x"), b"x");
        is_refused(&mut company, &write)
    } {}
    assert!(load(&mut company).0 > 40, "three times what is left");
    let read = send(
        &mut company,
        CLIENT,
        "other",
        SubOp::Read {
            offset: 0,
            length: 9,
        },
        &[],
    );
    assert!(company.answer(&read).expect("it is served").is_ok());
    // A deletion may free the space.
    let deletion = send(&mut company, BERT, "o", SubOp::Delete {}, &[]);
    assert!(company.answer(&deletion).is_none(), "it waits its turn");
}

/// When operations on many objects have filled the memory together, none of the objects has more
/// than its share, and nothing is sent back.
#[test]
fn what_waits_for_many_objects_stays() {
    for bytes in [1, 8 << 10] {
        let mut company = company();
        let data = vec![7; bytes];
        for n in 0..20 {
            let object = format!("object-{n}");
            hold_up(&mut company, &object);
            (0..2).for_each(|_| drop(send(&mut company, BERT, &object, append(&data), &data)));
        }
        assert_eq!(load(&mut company).0, 80);
        company.wait(1_100);
        assert_eq!(load(&mut company).0, 80);
        assert!(
            company
                .replies
                .iter()
                .all(|(reply, _)| reply.failure.is_none())
        );
    }
}

/// Operations on an object that makes progress keep their place, regardless of how many wait for
/// it; so do operations on a held-up object while there is memory.
#[test]
fn what_was_just_asked_stays_and_what_leaves_room() {
    let mut company = company();
    hold_up(&mut company, "o");
    (0..55).for_each(|_| drop(send(&mut company, BERT, "o", append(b"x"), b"x")));
    company.wait(1_500);
    assert_eq!(load(&mut company).0, 57, "there is room");
    go_on(&mut company);
    company.lose = |message| matches!(message, Message::ReplicateAcks(_));
    hold_up(&mut company, "o");
    company.wait(900);
    (0..70).for_each(|_| drop(send(&mut company, CLIENT, "o", append(b"x"), b"x")));
    assert_eq!(load(&mut company).0, 72);
    assert!(
        !company
            .replies
            .iter()
            .any(|(reply, _)| reply.failure.is_some())
    );
}

/// (Review.) A copy reads its source before all operations that wait for the source. Without memory
/// for it the read was requested again and again: the operations that filled the queue waited for
/// the copy.
#[test]
fn a_copy_reads_its_source_whatever_waits_for_it() {
    let mut company = company();
    hold_up(&mut company, "o");
    let source = ObjectId::named("o");
    let copy = send(&mut company, CLIENT, "o", SubOp::CopyFrom { source }, &[]);
    company.wait(1_100);
    while !{
        let write = send(&mut company, BERT, "o", append(b"x"), b"x");
        is_refused(&mut company, &write)
    } {}
    go_on(&mut company);
    assert!(company.answer(&copy).expect("it is done").is_ok());
    assert_eq!(load(&mut company), (0, 0));
}

/// A lock's holder requests an object that is held up, and is refused for longer than its lease. It
/// counts as alive.
#[test]
fn who_finds_no_room_is_heard() {
    let mut company = company();
    company.lose = |_| false;
    let lock = |lease_ms| SubOp::Lock {
        name: "l".into(),
        cookie: 1,
        shared: false,
        lease_ms,
        description: "d".into(),
    };
    let held = send(&mut company, CLIENT, "o", lock(3_000), &[]);
    company.await_answer(&held).expect("it is free");
    company.lose = |message| matches!(message, Message::ReplicateAcks(_));
    hold_up(&mut company, "o");
    company.wait(1_100);
    (0..60).for_each(|_| drop(send(&mut company, BERT, "o", append(b"x"), b"x")));
    let mut asks = send(&mut company, CLIENT, "o", append(b"x"), b"x");
    for _ in 0..4 {
        assert!(is_refused(&mut company, &asks));
        company.wait(2_000);
        asks = again(&mut company, &asks, b"x");
    }
    company.lose = |_| false;
    company.wait(1_000);
    let cleo = send(&mut company, ClientId(BERT.0 + 1), "o", lock(3_000), &[]);
    let refused = company
        .await_answer(&cleo)
        .expect_err("it is held, and its holder was heard a moment ago");
    assert!(refused.to_string().contains("lock"), "{refused}");
}

/// (Review.) An operation was refused; its client's others were answered meanwhile, more of them
/// than answers are remembered: the refused one counted as possibly executed.
#[test]
fn what_was_turned_away_is_known_not_to_have_been_executed() {
    let mut company = company();
    hold_up(&mut company, "o");
    company.wait(1_100);
    (0..60).for_each(|_| drop(send(&mut company, BERT, "o", append(b"x"), b"x")));
    let write = send(&mut company, CLIENT, "o", append(b"!"), b"!");
    assert!(is_refused(&mut company, &write));
    company.limit(Limits {
        client_ops: 64,
        answered_bytes: 2_000,
        ..Limits::default()
    });
    for _ in 0..40 {
        let create = send(
            &mut company,
            CLIENT,
            "other",
            SubOp::Create { exclusive: true },
            &[],
        );
        assert!(
            company
                .answer(&create)
                .expect("it is there already")
                .is_err()
        );
    }
    go_on(&mut company);
    let write = again(&mut company, &write, b"!");
    company.await_answer(&write).expect("it is executed");
}
