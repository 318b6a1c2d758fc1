//! F18: a PG remembered every client instance that ever wrote to it: 100 bytes each in memory, in
//! the store and in every adoption, which was one frame and one transaction. A job that starts a
//! client per second stopped its PG for ever after two and a half days (at 64 MiB of frame).

use super::company::Company;
use super::rig::PG;
use crate::config::Limits;
use crate::key;
use nacre_store::{ObjectStore, Read, ReadReply, Token};
use nacre_types::ClientId;
use nacre_wire::Message;
use nacre_wire::map::{Change, Pool};
use nacre_wire::msg::client::{Dated, OpFailure, OpRequest, SubOp};
use std::cell::Cell;

thread_local! {
    static LONGEST: Cell<usize> = const { Cell::new(0) };
}

/// Notes the longest message between OSDs, and loses none.
fn measure(message: &Message) -> bool {
    let mut meta = Vec::new();
    message.put_meta(&mut meta);
    LONGEST.set(LONGEST.get().max(meta.len()));
    false
}

/// The PG's metadata object at an OSD: entries, and their bytes.
fn stored(company: &mut Company, osd: u32) -> (usize, usize) {
    let host = company.host(osd);
    let object = key::meta_key(PG);
    let (from, to) = (std::ops::Bound::Unbounded, None);
    host.store.read(
        Read::Omap {
            object,
            from,
            to,
            limit_entries: usize::MAX,
            limit_bytes: usize::MAX,
        },
        Token(u64::MAX),
    );
    let mut events = Vec::new();
    host.store.poll(&mut events);
    match events.pop() {
        Some(nacre_store::Event::Read(_, Ok(ReadReply::Omap { entries, .. }))) => (
            entries.len(),
            entries
                .iter()
                .map(|(key, value)| key.len() + value.len())
                .sum(),
        ),
        other => panic!("{other:?}"),
    }
}

/// A write of a client that does nothing else, as its client would send it: resent, with the date
/// by the OSD's clock, if that is requested.
fn write_once(company: &mut Company, client: u64) -> OpRequest {
    let mut request = company.request(
        ClientId(client),
        "shared",
        vec![SubOp::WriteFull { length: 3 }],
        0,
    );
    company.resend(&request, b"abc");
    company.settle();
    if let Some(Err(OpFailure::Undated { now })) = company.answer(&request) {
        company.replies.clear();
        (request.dated, request.attempt) = (now, 2);
        company.resend(&request, b"abc");
        company.settle();
    }
    request
}

/// A PG that remembers two clients.
fn forgetful() -> Company {
    let mut company = Company::new(3, 2, 3);
    company.limit(Limits {
        clients_remembered: 2,
        push_bytes: 2,
        ..Limits::default()
    });
    company
}

fn time_passes(company: &mut Company) {
    company.wait(50);
    company.replies.clear();
}

/// The PG executed and forgot an operation of a client without an answer; a duplicate of it arrives
/// when the object has long been changed by others. It is refused, whether it is undated, dated by
/// the clock of a process that is gone, or dated correctly.
#[test]
fn what_a_forgotten_client_sent_is_not_executed_again() {
    let mut company = forgetful();
    let late = write_once(&mut company, 100);
    let first_sent = company.host(0).now;
    for client in 101..105 {
        time_passes(&mut company);
        write_once(&mut company, client);
    }
    let primary = company.acting()[0];
    let process = super::rig::process(primary, 1);
    let version = company.answer_of("shared");
    for dated in [
        Dated::default(),
        Dated {
            process: 77,
            reading: u64::MAX,
        },
        Dated {
            process,
            reading: first_sent.0,
        },
    ] {
        time_passes(&mut company);
        let copy = OpRequest {
            dated,
            attempt: 2,
            ..late.clone()
        };
        company.resend(&copy, b"old");
        company.settle();
        let answer = company
            .answer(&copy)
            .expect("an answer")
            .expect_err("refused");
        if dated.process == process {
            assert_eq!(answer, OpFailure::Superseded {});
        } else {
            assert!(matches!(answer, OpFailure::Undated { now } if now.process == process));
        }
        assert_eq!(company.answer_of("shared"), version, "nothing was written");
    }
    // The client continues with a new operation.
    time_passes(&mut company);
    let reading = company.host(primary).now.0;
    let mut next = company.request(
        ClientId(100),
        "shared",
        vec![SubOp::WriteFull { length: 3 }],
        0,
    );
    next.dated = Dated { process, reading };
    company.resend(&next, b"new");
    company.settle();
    assert!(matches!(company.answer(&next), Some(Ok(_))));
}

/// A PG had forgotten clients when it split, and the new PG did not know that. An operation of a
/// forgotten client was considered new there when it was resent, and executed a second time.
#[test]
fn what_a_forgotten_client_sent_is_not_executed_again_after_a_split() {
    let mut company = forgetful();
    let late = write_once(&mut company, 100);
    let first_sent = company.host(0).now;
    for client in 101..105 {
        time_passes(&mut company);
        write_once(&mut company, client);
    }
    let settings = Pool {
        pg_num: 8,
        ..company.monitors.map.pools[&PG.pool].clone()
    };
    company.commit(vec![Change::PoolSet {
        pool: PG.pool,
        settings,
    }]);
    company.wait(3000);
    let pg = company.group("shared");
    assert_ne!(pg, PG, "the object is in a new group");
    let process = super::rig::process(company.monitors.map.pgs[&pg].acting[0].0, 1);
    let version = company.answer_of("shared");
    time_passes(&mut company);
    let dated = Dated {
        process,
        reading: first_sent.0,
    };
    let copy = OpRequest {
        pg,
        dated,
        attempt: 2,
        ..late
    };
    company.resend(&copy, b"old");
    company.settle();
    assert_eq!(company.answer(&copy), Some(Err(OpFailure::Superseded {})));
    assert_eq!(company.answer_of("shared"), version, "nothing was written");
}

/// Operations that a client sends behind one that must be dated first wait for it: otherwise the
/// later of two writes could be executed first.
#[test]
fn what_follows_an_undated_operation_does_not_overtake_it() {
    let mut company = forgetful();
    for client in 100..105 {
        time_passes(&mut company);
        write_once(&mut company, client);
    }
    time_passes(&mut company);
    let primary = company.acting()[0];
    let dated = Dated {
        process: super::rig::process(primary, 1),
        reading: company.host(primary).now.0,
    };
    let write = |company: &mut Company| {
        company.request(
            ClientId(200),
            "shared",
            vec![SubOp::WriteFull { length: 3 }],
            0,
        )
    };
    let first = write(&mut company);
    let second = OpRequest {
        answered_below: first.answered_below,
        dated,
        ..write(&mut company)
    };
    for (request, data) in [(&first, b"one"), (&second, b"two")] {
        company.resend(request, data);
    }
    company.settle();
    for request in [&first, &second] {
        assert!(matches!(
            company.answer(request),
            Some(Err(OpFailure::Undated { .. }))
        ));
    }
    company.replies.clear();
    for (request, data) in [(&first, b"one"), (&second, b"two")] {
        company.resend(
            &OpRequest {
                dated,
                attempt: 2,
                ..request.clone()
            },
            data,
        );
    }
    company.settle();
    assert!(
        matches!(company.answer(&first), Some(Ok(_)))
            && matches!(company.answer(&second), Some(Ok(_)))
    );
    assert_eq!(company.read("shared").as_deref(), Ok(&b"two"[..]));
}

/// A guard did not hold, its answer was discarded with the interval, and later writes of its client
/// were executed. In a PG that has forgotten clients the client's operation counted as possibly
/// new, and was finally executed, after operations sent behind it; the guard held then (simulator,
/// seed 11 with corruption).
#[test]
fn what_was_overtaken_is_not_executed_because_clients_were_forgotten() {
    let mut company = forgetful();
    for client in 100..105 {
        time_passes(&mut company);
        write_once(&mut company, client);
    }
    time_passes(&mut company);
    let acting = company.acting();
    let dated = Dated {
        process: super::rig::process(acting[0], 1),
        reading: company.host(acting[0]).now.0,
    };
    let guard = vec![
        SubOp::CompareData {
            offset: 0,
            length: 3,
        },
        SubOp::WriteFull { length: 3 },
    ];
    let first = OpRequest {
        dated,
        ..company.request(ClientId(200), "shared", guard, 0)
    };
    let below = first.answered_below;
    let write = company.request(
        ClientId(200),
        "shared",
        vec![SubOp::WriteFull { length: 3 }],
        0,
    );
    let second = OpRequest {
        dated,
        answered_below: below,
        ..write
    };
    company.resend(&first, b"twoNEW");
    company.resend(&second, b"two");
    company.settle();
    assert!(matches!(
        company.answer(&first),
        Some(Err(OpFailure::Guard { .. }))
    ));
    assert!(matches!(company.answer(&second), Some(Ok(_))));
    // The primary continues in another interval.
    company.kill(acting[2]);
    company.wait(3000);
    company.replies.clear();
    assert_eq!(company.acting()[0], acting[0]);
    company.resend(
        &OpRequest {
            attempt: 2,
            ..first.clone()
        },
        b"twoNEW",
    );
    company.settle();
    assert_eq!(company.answer(&first), Some(Err(OpFailure::Superseded {})));
    assert_eq!(company.read("shared").as_deref(), Ok(&b"two"[..]));
}

/// A primary trimmed its log with an update that no other member got, and died. It kept the trimmed
/// entries as records; the others had them in their logs, and no records. It came back, adopted
/// their memory, which is complete only beside *their* longer log, and its records were gone: an
/// operation whose answer was lost was executed once more (simulator, seed 76 with
/// `--set ram=0 --set rot=0`: a call was executed twice).
#[test]
fn who_takes_over_the_memory_beside_a_longer_log_forgets_nothing() {
    let mut company = Company::new(3, 2, 3);
    company.limit(Limits {
        log_entries_min: 4,
        log_entries_max: 16,
        ..Limits::default()
    });
    let primary = company.acting()[0];
    let once = company.request(
        ClientId(200),
        "shared",
        vec![SubOp::Append { length: 1 }],
        0,
    );
    company.resend(&once, b"x");
    (0..6).for_each(|_| company.write("b", b"other").expect("written"));
    let version = company
        .answer(&once)
        .expect("answered")
        .expect("executed")
        .0;
    // The eighth entry trims the log to four.
    company.lose = |message| matches!(message, Message::Replicate(..));
    company.send("b", vec![SubOp::WriteFull { length: 3 }], b"new", 0);
    company.settle();
    company.lose = |_| false;
    let gone = company.kill(primary);
    company.wait(3000);
    company.write("b", b"newer").expect("written");
    let tail = |company: &mut Company, osd: u32| {
        let group = company
            .host(osd)
            .osd
            .pgs()
            .find(|group| group.id() == PG)
            .map(|group| group.local.log.tail());
        group.expect("it has the group")
    };
    let other = company.acting()[0];
    assert!(tail(&mut company, other) < version);
    company.revive(gone, 2);
    company.wait(6000);
    assert_eq!(company.acting()[0], primary);
    assert!(
        tail(&mut company, primary) >= version,
        "its log is the shorter one"
    );
    company.replies.clear();
    company.resend(
        &OpRequest {
            attempt: 2,
            ..once.clone()
        },
        b"x",
    );
    company.settle();
    assert!(
        matches!(company.answer(&once), Some(Ok((again, _))) if again == version),
        "{:?}",
        company.replies
    );
    assert_eq!(company.read("shared").as_deref(), Ok(&b"x"[..]));
}

/// A restarted daemon does not know which operations of forgotten clients it has seen: everything
/// sent before its start may be among them.
#[test]
fn who_loads_a_memory_with_gaps_refuses_what_may_have_been_in_them() {
    let mut company = forgetful();
    let small = Limits {
        clients_remembered: 2,
        log_entries_min: 1,
        log_entries_max: 1,
        ..Limits::default()
    };
    company.limit(small);
    let late = write_once(&mut company, 100);
    for client in 101..108 {
        time_passes(&mut company);
        write_once(&mut company, client);
    }
    let primary = company.acting()[0];
    let host = company.kill(primary);
    company.revive(host, 2);
    company.wait(8000);
    company.replies.clear();
    assert_eq!(company.acting()[0], primary);
    let process = super::rig::process(primary, 2);
    let before = company.answer_of("shared");
    let copy = OpRequest {
        dated: Dated {
            process,
            reading: 1,
        },
        attempt: 2,
        ..late
    };
    company.resend(&copy, b"old");
    company.settle();
    assert_eq!(company.answer(&copy), Some(Err(OpFailure::Superseded {})));
    assert_eq!(company.answer_of("shared"), before);
}

#[test]
fn many_client_instances_leave_a_bounded_memory() {
    let mut company = Company::new(3, 2, 3);
    let mut sizes = Vec::new();
    for round in 0..3 {
        for client in 0..6_000 {
            write_once(&mut company, 1_000_000 * (round + 1) + client);
            company.replies.clear();
        }
        company.wait(500);
        company.lose = measure;
        LONGEST.set(0);
        let host = company.kill(2);
        company.wait(1000);
        company.revive(host, round + 2);
        company.wait(3000);
        assert_eq!(company.acting().len(), 3);
        sizes.push((stored(&mut company, 0), LONGEST.get()));
        company.lose = |_| false;
    }
    println!("entries and bytes in the store, longest message: {sizes:?}");
    for ((entries, _), longest) in sizes {
        // A mark and a record of each, since no client confirms; and the log.
        assert!(
            entries <= 2 * (4096 + 4096 / 8) + 64,
            "{entries} entries in the store"
        );
        assert!(longest <= 1 << 20, "a message of {longest} bytes");
    }
}

/// (Review.) A notify is no update, so its client is not asked when it first sent it. A PG that had
/// forgotten clients once refused every notify of clients that had written nothing there, for ever,
/// because it might be an old one. That is allowed: notifies are delivered at least once.
#[test]
fn who_only_notifies_is_heard_where_clients_were_forgotten() {
    let mut company = forgetful();
    for client in 100..105 {
        write_once(&mut company, client);
        time_passes(&mut company);
    }
    let ops = vec![SubOp::Notify {
        timeout_ms: 1000,
        length: 0,
    }];
    let notify = company.request(ClientId(300), "shared", ops, 0);
    company.resend(&notify, &[]);
    company.settle();
    company.await_answer(&notify).expect("nobody watches");
}
