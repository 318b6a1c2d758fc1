//! Stories of classes: long calls, and calls that are sent again.

use super::classes::{COUNTER, call, call_op, company, install};
use super::company::CLIENT;
use nacre_types::ClientId;
use nacre_wire::Message;
use nacre_wire::msg::client::{SubOp, SubReply};

/// A method that does not end is stopped by its budget, on another thread; the daemon serves
/// meanwhile.
#[test]
fn an_endless_method_is_stopped_and_costs_the_daemon_little() {
    let mut company = company();
    install(&mut company, "counter", COUNTER);
    for _ in 0..3 {
        let failed = call(&mut company, "o", "spin", "").expect_err("it has no end");
        assert!(failed.to_string().contains("instructions"), "{failed}");
    }
    let jobs: u64 = company
        .hosts
        .values()
        .map(|host| host.osd.programs().counters.jobs)
        .sum();
    assert_eq!(jobs, 3);
}

/// (Planted by a reviewer: it was a thousand times too slow.)
#[test]
fn a_methods_clock_is_its_clients() {
    let mut company = company();
    let source = r#"
function now(input, output) output:append(string.format("%d", nacre.now())) end
objclass.register(now)
"#;
    install(&mut company, "clock", source);
    let mut request = company.request(ClientId(9), "a", vec![call_op("clock", "now", "")], 0);
    request.unix_ms = 1_700_000_000_123;
    company.resend(&request, &[]);
    company.await_answer(&request).expect("called");
    let [SubReply::Called { output, .. }] = &company.results(&request)[..] else {
        panic!("a call")
    };
    assert_eq!(output.as_ref(), b"1700000000123", "milliseconds");
}

/// A read-only call took longer than its client's resend interval. Each resend was evaluated in
/// parallel with the first, all on the thread for long calls, and a failure as the answer to the
/// first was discarded: the call never ended, and health did not report it. Now an operation in
/// progress is not begun again, and is answered as the newest attempt.
#[test]
fn a_call_that_takes_longer_than_its_client_waits_is_evaluated_once() {
    let mut company = company();
    install(&mut company, "counter", COUNTER);
    call(&mut company, "o", "add", "x").expect("there");
    let primary = company.acting()[0];
    let spin = || {
        vec![SubOp::Call {
            class: "reader".into(),
            method: "spin".into(),
            length: 0,
        }]
    };
    install(
        &mut company,
        "reader",
        "objclass.register('spin', function() while true do end end, 'read')",
    );
    company.host(primary).jobs = Some(Vec::new());
    let mut first = company.send("o", spin(), &[], 0);
    company.settle();
    assert_eq!(
        company.host(primary).jobs.as_ref().map(Vec::len),
        Some(1),
        "it takes long"
    );
    company.host(primary).sent.clear();
    for attempt in 2..6 {
        (0..20).for_each(|_| company.host(primary).wait(100));
        first.attempt = attempt;
        company.resend(&first, &[]);
    }
    // An attempt that was in transit for longer.
    first.attempt = 3;
    company.resend(&first, &[]);
    assert_eq!(
        company.host(primary).jobs.as_ref().map(Vec::len),
        Some(1),
        "it is evaluated once"
    );
    let told = |message: &Message| match message {
        Message::OpBlocked(blocked) => blocked.reason.contains("evaluated"),
        _ => false,
    };
    assert!(
        company
            .host(primary)
            .sent
            .iter()
            .any(|(_, message)| told(message)),
        "its client is told"
    );
    let slow = |message: &Message| match message {
        Message::Beacon(beacon) => beacon
            .slow
            .iter()
            .any(|line| line.contains("its call is being evaluated")),
        _ => false,
    };
    assert!(company.host(primary).to_mon.iter().any(slow), "and health");
    company.host(primary).evaluate();
    company.settle();
    let (reply, _) = company
        .replies
        .iter()
        .find(|(reply, _)| reply.request == first.request)
        .expect("answered");
    assert_eq!(reply.attempt, 5);
    assert!(
        reply
            .failure
            .as_ref()
            .is_some_and(|failure| failure.to_string().contains("instructions")),
        "{reply:?}"
    );
}

/// An update that its client sent before a read, and resent after it had been lost, must be visible
/// to the read's newest attempt: that one waits behind the update.
#[test]
fn a_repetition_behind_an_update_of_its_client_is_not_answered_from_before_it() {
    let mut company = company();
    install(&mut company, "counter", COUNTER);
    call(&mut company, "o", "add", "x").expect("there");
    let primary = company.acting()[0];
    company.host(primary).held = Some(Vec::new());
    let write = company.request(CLIENT, "o", vec![SubOp::WriteFull { length: 1 }], 0);
    let mut read = company.request(
        CLIENT,
        "o",
        vec![SubOp::Read {
            offset: 0,
            length: 9,
        }],
        0,
    );
    read.answered_below = write.request.sequence;
    company.resend(&read, &[]);
    company.resend(&write, b"y");
    read.attempt = 2;
    company.resend(&read, &[]);
    assert_eq!(
        company.host(primary).held.as_ref().map(Vec::len),
        Some(1),
        "the update waits for the read"
    );
    company.host(primary).release();
    company.settle();
    company.host(primary).release();
    company.host(primary).held = None;
    company.settle();
    let answers: Vec<_> = company
        .replies
        .iter()
        .filter(|(reply, _)| reply.request == read.request)
        .collect();
    let found: Vec<_> = answers
        .iter()
        .map(|(reply, data)| (reply.attempt, data.concat()))
        .collect();
    assert_eq!(found, [(1, b"x".to_vec()), (2, b"y".to_vec())]);
}

/// (Review.) A holder whose call took longer than its lock's lease resent it again and again
/// without being counted as alive: it lost the lock though it had never been silent.
#[test]
fn who_asks_for_what_is_under_way_is_heard() {
    let mut company = company();
    install(&mut company, "counter", COUNTER);
    call(&mut company, "o", "add", "x").expect("there");
    let lock = |lease_ms| SubOp::Lock {
        name: "l".into(),
        cookie: 1,
        shared: false,
        lease_ms,
        description: "d".into(),
    };
    company.op("o", vec![lock(3_000)], &[]).expect("it is free");
    let primary = company.acting()[0];
    company.host(primary).jobs = Some(Vec::new());
    let mut spin = company.send("o", vec![call_op("counter", "spin", "")], &[], 0);
    for attempt in 2..6 {
        company.wait(2_000);
        spin.attempt = attempt;
        company.resend(&spin, &[]);
    }
    let bert = company.request(ClientId(10), "o", vec![lock(3_000)], 0);
    company.resend(&bert, &[]);
    company.host(primary).evaluate();
    let refused = company
        .await_answer(&bert)
        .expect_err("ANNA holds it, and was heard a moment ago");
    assert!(refused.to_string().contains("lock"), "{refused}");
}

/// (Review.) The first attempt waits, an update that must precede it arrives behind it, and then
/// the newest attempt: that one must see the update. The same holds if the first one was in
/// progress, and returns to the queue because the lease had expired meanwhile.
#[test]
fn a_repetition_joins_nothing_that_is_before_an_update_of_its_client() {
    for back in [false, true] {
        let mut company = company();
        company.write("o", b"x").expect("there");
        let primary = company.acting()[0];
        let write = company.request(CLIENT, "o", vec![SubOp::WriteFull { length: 1 }], 0);
        let mut read = company.request(
            CLIENT,
            "o",
            vec![SubOp::Read {
                offset: 0,
                length: 9,
            }],
            0,
        );
        read.answered_below = write.request.sequence;
        if back {
            company.host(primary).held = Some(Vec::new());
            company.resend(&read, &[]);
        }
        // No OSD is heard for long enough that the lease expires.
        for _ in 0..6 {
            company.host(primary).wait(100);
        }
        if !back {
            company.resend(&read, &[]);
        }
        company.resend(&write, b"y");
        read.attempt = 2;
        company.resend(&read, &[]);
        if back {
            company.host(primary).release();
            company.host(primary).held = None;
        }
        read.attempt = 3;
        company.resend(&read, &[]);
        company.wait(2_000);
        let answers: Vec<_> = company
            .replies
            .iter()
            .filter(|(reply, _)| reply.request == read.request)
            .collect();
        let found: Vec<_> = answers
            .iter()
            .map(|(reply, data)| (reply.attempt, data.concat()))
            .collect();
        assert_eq!(
            found,
            [(1, b"x".to_vec()), (3, b"y".to_vec())],
            "back: {back}"
        );
    }
}

/// (Review.) Operators on long strings take long and count little: no step checks the clock between
/// them. Classes whose calls repeatedly end late are evaluated elsewhere after a few, although they
/// succeed.
#[test]
fn who_keeps_the_daemons_thread_for_too_long_is_evaluated_elsewhere() {
    #[derive(Debug)]
    struct Late;
    impl crate::Patience for Late {
        fn begin(&self) {}
        fn is_over(&self) -> bool {
            true
        }
    }
    let mut company = company();
    install(
        &mut company,
        "short",
        "objclass.register('nothing', function() end, 'read')",
    );
    let primary = company.acting()[0];
    company.write("o", b"x").expect("there");
    company
        .host(primary)
        .osd
        .set_patience(std::sync::Arc::new(Late));
    let jobs: Vec<u64> = (0..8)
        .map(|_| {
            company
                .op("o", vec![call_op("short", "nothing", "")], &[])
                .expect("too short to ask the clock");
            company.host(primary).osd.programs().counters.jobs
        })
        .collect();
    assert!(jobs[0] == 0 && jobs[7] > 0, "{jobs:?}");
}
