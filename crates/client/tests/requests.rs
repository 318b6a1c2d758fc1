//! Operations on objects: what is sent, where to, when it is resent, and what completes it.

use super::rig::{Rig, config};
use bytes::Bytes;
use nacre_client::{
    Client, ClientConfig, Completion, Failure, ObjectCluster, OpId, Operation, Refused,
};
use nacre_role::Role as _;
use nacre_types::{
    ClientId, Entity, Epoch, Instance, MonId, Name, ObjectId, OsdId, PoolId, SnapId, Time, Version,
};
use nacre_wire::map::Change;
use nacre_wire::msg::check::CLIENT_BYTES_MAX;
use nacre_wire::msg::client::{
    Dated, OpApplied, OpBlocked, OpFailure, OpReply, OpRequest, RequestId, SnapContext, SubOp,
    SubReply,
};
use nacre_wire::msg::monitor::{MapDeltas, MapFull, Refused as Refusal};
use nacre_wire::{Message, Wire};
use std::time::Duration;

/// The first attempt may be refused by an OSD that the second one never reached; a success of any
/// attempt is final.
pub fn a_failure_counts_for_the_last_attempt_only_and_success_for_any() {
    let mut rig = Rig::new();
    let (first, second) = (rig.submit(), rig.submit());
    let sent = rig.sent();
    let request = |n: usize, sent: &[(OsdId, Message)]| match &sent[n].1 {
        Message::OpRequest(request, _) => request.clone(),
        other => panic!("{other:?}"),
    };
    let (early, other) = (request(0, &sent), request(1, &sent));
    rig.wait_for_retry();
    let late = request(0, &rig.sent());
    assert_eq!(late.request, early.request, "the same operation");
    assert!(late.attempt > early.attempt);
    rig.answer(&early, Some(OpFailure::NotFound {}), vec![]);
    assert_eq!(rig.ended(), []);
    rig.answer(&late, Some(OpFailure::NotFound {}), vec![]);
    assert_eq!(rig.ended(), [(first, false)]);
    for _ in 0..2 {
        rig.answer(&other, None, vec![]);
    }
    assert_eq!(rig.ended(), [(second, true)], "once");
    assert_eq!(rig.role.in_flight(), 0);
}

pub fn an_answer_for_another_client_or_instance_is_not_ours() {
    let mut rig = Rig::new();
    let id = rig.submit();
    let ours = rig.request();
    let others = [
        RequestId {
            client: ClientId(8),
            ..ours.request
        },
        RequestId {
            instance: Instance(2),
            ..ours.request
        },
        RequestId {
            sequence: ours.request.sequence + 1,
            ..ours.request
        },
    ];
    for request in others {
        let mut theirs = ours.clone();
        theirs.request = request;
        rig.answer(&theirs, None, vec![]);
        rig.tell(Message::OpApplied(OpApplied {
            request,
            version: Version::NONE,
            attempt: 1,
        }));
    }
    let mut acks = Vec::new();
    rig.role.acks(&mut acks);
    assert_eq!((rig.ended(), acks), (vec![], vec![]));
    rig.answer(&ours, None, vec![]);
    assert_eq!(rig.ended(), [(id, true)]);
}

/// Simulator, seed 118: a creation found no space; before the refusal arrived, the timer had resent
/// it, and it was executed. A later operation had not been resent and was answered that the object
/// does not exist.
pub fn what_was_there_before_an_earlier_operation_is_no_answer() {
    let mut rig = Rig::new();
    let (create, created) = rig.submit_to("a", SubOp::Create { exclusive: true });
    rig.now = rig.now + config().retry_interval / 2;
    let (delete, deleted) = rig.submit_to("a", SubOp::Delete {});
    let (stat, seen) = rig.submit_to("a", SubOp::Stat {});
    let (other, elsewhere) = rig.submit_to("b", SubOp::Stat {});
    let created_again = rig.request_after(config().retry_interval / 2);
    assert_eq!(
        created_again.request, created.request,
        "only that is old enough"
    );
    rig.answer(&created, Some(OpFailure::Full {}), vec![]);
    rig.answer(&elsewhere, Some(OpFailure::NotFound {}), vec![]);
    assert_eq!(rig.ended(), [(other, false)], "another object's");
    rig.answer(&deleted, Some(OpFailure::NotFound {}), vec![]);
    let deleted_again = rig.request();
    rig.answer(&seen, Some(OpFailure::NotFound {}), vec![]);
    let seen_again = rig.request();
    rig.answer(&deleted, Some(OpFailure::NotFound {}), vec![]);
    assert_eq!(
        (rig.ended(), rig.sent().len()),
        (vec![], 0),
        "they have been asked again"
    );
    rig.answer(&created_again, None, vec![]);
    rig.answer(&deleted_again, None, vec![]);
    rig.answer(&seen_again, Some(OpFailure::NotFound {}), vec![]);
    assert_eq!(rig.ended(), [(create, true), (delete, true), (stat, false)]);
    // A successful change is final, whichever attempt it answers.
    let (first, _) = rig.submit_to("a", SubOp::Create { exclusive: false });
    rig.now = rig.now + config().retry_interval / 2;
    let (second, written) = rig.submit_to("a", SubOp::Truncate { size: 0 });
    let first_again = rig.request_after(config().retry_interval / 2);
    rig.answer(&written, None, vec![]);
    rig.answer(&first_again, None, vec![]);
    assert_eq!(rig.ended(), [(second, true), (first, true)]);
}

/// Simulator, seed 1704: a member executed an append and lost power. The append was resent and
/// refused for lack of space, and executed later from what the first member had kept. Its client
/// had been told that it had no effect. A refusal for a reason that does not depend on the object
/// says nothing about earlier sendings. (Likewise if the client was fenced or lost its rights in
/// between: a write existed although its client had been told otherwise.)
pub fn a_refusal_for_want_of_room_says_nothing_of_what_was_sent_before() {
    for (failure, doubtful) in [
        (OpFailure::Full {}, true),
        (OpFailure::Expired {}, true),
        (OpFailure::Fenced {}, true),
        (OpFailure::Denied { why: String::new() }, true),
        (OpFailure::NotFound {}, false),
    ] {
        let mut rig = Rig::new();
        for again in [false, true] {
            let (_, mut sent) = rig.submit_to("a", SubOp::Truncate { size: 9 });
            if again {
                sent = rig.request_after(config().retry_interval);
            }
            rig.answer(&sent, Some(failure.clone()), vec![]);
            let mut ended = rig.completions();
            let expected = if again && doubtful {
                Failure::Doubtful(failure.clone())
            } else {
                Failure::Refused(failure.clone())
            };
            assert_eq!(ended.pop().expect("it ended").result, Err(expected));
        }
        // An operation that only reads has no effect.
        let (id, _) = rig.submit_to("b", SubOp::Stat {});
        let sent = rig.request_after(config().retry_interval);
        rig.answer(&sent, Some(OpFailure::Expired {}), vec![]);
        assert_eq!(rig.ended(), [(id, false)]);
    }
}

/// The same with a read, which is not refused: it finds the old object, because the first sending
/// of the write before it was refused (simulator, seed 118).
pub fn what_a_read_found_before_an_earlier_operation_is_no_answer() {
    let mut rig = Rig::new();
    let (write, written) = rig.submit_to("a", SubOp::Truncate { size: 9 });
    rig.now = rig.now + config().retry_interval / 2;
    let (first, seen) = rig.submit_to("a", SubOp::Stat {});
    let (other, elsewhere) = rig.submit_to("b", SubOp::Stat {});
    let written_again = rig.request_after(config().retry_interval / 2);
    let (second, seen_behind) = rig.submit_to("a", SubOp::Stat {});
    rig.answer(&written, Some(OpFailure::Full {}), vec![]);
    rig.answer(&elsewhere, None, vec![]);
    rig.answer(&seen_behind, None, vec![]);
    assert_eq!(
        rig.ended(),
        [(other, true), (second, true)],
        "another object's; and what was sent behind the second sending"
    );
    rig.answer(&seen, None, vec![]);
    let seen_again = rig.request();
    assert_eq!(seen_again.request, seen.request);
    rig.answer(&written_again, None, vec![]);
    rig.answer(&seen, None, vec![]);
    assert_eq!(
        (rig.ended(), rig.sent().len()),
        (vec![(write, true)], 0),
        "it has been asked again"
    );
    rig.answer(&seen_again, None, vec![]);
    assert_eq!(rig.ended(), [(first, true)]);
    // An operation that is merely late delays no other: its first sending may still be executed.
    let (write, _) = rig.submit_to("a", SubOp::Truncate { size: 9 });
    rig.now = rig.now + config().retry_interval / 2;
    let (read, seen) = rig.submit_to("a", SubOp::Stat {});
    let written_again = rig.request_after(config().retry_interval / 2);
    rig.answer(&seen, None, vec![]);
    rig.answer(&written_again, None, vec![]);
    assert_eq!(rig.ended(), [(read, true), (write, true)]);
}

/// Operations on one object are executed in order of arrival: whatever the reason for resending,
/// the order is kept.
pub fn what_is_sent_again_goes_in_order_to_whoever_serves_now() {
    let mut rig = Rig::new();
    let ids: Vec<u64> = (0..3).map(|_| rig.submit().0).collect();
    let all = |to: OsdId| ids.iter().map(|id| (to, *id)).collect::<Vec<_>>();
    let primary = rig.primary();
    let replica = OsdId(1 - primary.0);
    assert_eq!(rig.requests(), all(primary));
    rig.wait_for_retry();
    assert_eq!(rig.requests(), all(primary), "by the timer");
    rig.role.on_peer_reset(rig.now, primary);
    assert_eq!(rig.requests(), all(primary), "its connection broke");
    rig.role.on_peer_reset(rig.now, replica);
    assert_eq!(rig.requests(), [], "another one's did");
    rig.commit(Change::Flags { flags: 1 });
    assert_eq!(rig.requests(), [], "nothing moved");
    // The primary of a new interval does not have what was not executed in the last one, even if it
    // is the same OSD.
    rig.commit(Change::OsdDown {
        osd: replica,
        instance: Instance(1),
    });
    assert_eq!(rig.primary(), primary);
    assert_eq!(rig.requests(), all(primary), "a new interval");
    let (store, address) = (
        u128::from(replica.0) + 1,
        nacre_wire::map::Address("o".into()),
    );
    let up = Change::OsdUp {
        osd: replica,
        instance: Instance(2),
        address,
        store,
        features: 0,
        process: 2,
    };
    rig.commit(up);
    rig.sent();
    rig.commit(Change::OsdDown {
        osd: primary,
        instance: Instance(1),
    });
    assert_eq!(rig.requests(), all(replica), "a new primary");
}

/// Without a primary for the PG nothing is sent; the map that names one causes the sending.
pub fn what_nobody_serves_waits_for_the_map() {
    let mut rig = Rig::new();
    for osd in 0..2 {
        rig.commit(Change::OsdDown {
            osd: OsdId(osd),
            instance: Instance(1),
        });
    }
    let id = rig.submit();
    assert_eq!(rig.requests(), []);
    let blocked = rig.role.blocked(rig.now, Duration::ZERO);
    assert!(blocked[0].reason.contains("no OSD serves"), "{blocked:?}");
    let address = nacre_wire::map::Address("o".into());
    let up = Change::OsdUp {
        osd: OsdId(1),
        instance: Instance(2),
        address,
        store: 2,
        features: 0,
        process: 2,
    };
    rig.commit(up);
    assert_eq!(rig.requests(), [(OsdId(1), id.0)]);
    let blocked = rig.role.blocked(rig.now, Duration::ZERO);
    assert!(
        blocked[0].reason.contains("osd.1 has not answered"),
        "{blocked:?}"
    );
}

pub fn a_removed_pool_ends_its_operations() {
    let mut rig = Rig::new();
    let id = rig.submit();
    rig.commit(Change::PoolRemove { pool: PoolId(1) });
    let ended = rig.completions();
    assert_eq!(
        (ended[0].id, ended[0].result.clone()),
        (id, Err(Failure::NoSuchPool))
    );
    let operation = rig.operation(vec![]);
    assert_eq!(
        rig.role.submit(rig.now, operation),
        Err(Refused::NoSuchPool)
    );
    let mut unconnected = nacre_client::Client::new(config(), rig.now);
    assert_eq!(
        unconnected.submit(rig.now, Operation::default()),
        Err(Refused::NotConnected)
    );
}

/// An OSD forgets what is below the mark: an unanswered operation below it would be refused when
/// resent, and without a mark operations would be remembered for ever.
pub fn the_mark_is_the_first_operation_without_an_answer() {
    let mut rig = Rig::new();
    let (first, second) = (rig.submit(), rig.submit());
    rig.sent();
    rig.submit();
    let third = rig.request();
    assert_eq!(third.answered_below, first.0);
    let mut of_second = third.clone();
    of_second.request.sequence = second.0;
    rig.answer(&of_second, None, vec![]);
    rig.submit();
    let fourth = rig.request();
    assert_eq!(
        fourth.answered_below, first.0,
        "the second one is answered, the first is not"
    );
    let mut of_first = third.clone();
    of_first.request.sequence = first.0;
    rig.answer(&of_first, None, vec![]);
    rig.submit();
    assert_eq!(rig.request().answered_below, third.request.sequence);
}

pub fn an_osd_that_does_not_serve_it_ends_nothing_and_makes_the_client_ask_for_the_map() {
    let mut rig = Rig::new();
    rig.submit();
    let request = rig.request();
    rig.now = rig.now + Duration::from_millis(60);
    let (request, attempt) = (request.request, request.attempt);
    let failure = Some(OpFailure::WrongTarget {});
    let reply = OpReply {
        request,
        failure,
        version: Version::NONE,
        results: vec![],
        attempt,
    };
    let (from, epoch) = (Entity::Osd(rig.primary()), rig.map.epoch);
    rig.role.on_message(
        rig.now,
        from,
        epoch,
        Message::OpReply(reply.clone(), vec![]),
    );
    assert_eq!(
        (rig.ended(), rig.others()),
        (vec![], vec![]),
        "the OSD knows no more than we do: the timer asks"
    );
    rig.role
        .on_message(rig.now, from, epoch.next(), Message::OpReply(reply, vec![]));
    assert_eq!(
        (rig.ended(), rig.others()),
        (vec![], vec!["map".to_owned()])
    );
}

/// (Found by reading.) An operation that an OSD had no space for was resent two seconds later, each
/// operation separately. Everything sent after a refused operation is refused too until that one
/// has arrived. With two operations in flight there was always one missing, and every operation
/// took at least two seconds as long as the client continued, although there was space again.
pub fn what_a_group_refuses_goes_to_it_again_with_all_that_went_after_it() {
    let mut rig = Rig::new();
    let sent = ["a", "b", "c", "d"].map(|object| rig.submit_to(object, SubOp::Stat {}).1);
    let behind: Vec<u64> = sent[1..].iter().map(|one| one.request.sequence).collect();
    let refuse = |rig: &mut Rig, request: &OpRequest| {
        rig.answer(request, Some(OpFailure::WrongTarget {}), vec![])
    };
    let after = |rig: &mut Rig, ms| {
        rig.now = rig.now + Duration::from_millis(ms);
        rig.role.on_tick(rig.now);
        rig.requests()
            .into_iter()
            .map(|(_, number)| number)
            .collect::<Vec<u64>>()
    };
    // The last one is refused too: its answer is still in flight.
    refuse(&mut rig, &sent[1]);
    refuse(&mut rig, &sent[2]);
    assert_eq!(
        (rig.ended(), rig.role.next_deadline()),
        (vec![], rig.now + Duration::from_millis(200))
    );
    assert_eq!(after(&mut rig, 199), [0_u64; 0]);
    assert_eq!(after(&mut rig, 1), behind, "not what went before it");
    // The answer that was in flight no longer matters.
    refuse(&mut rig, &sent[3]);
    assert_eq!(after(&mut rig, 600), [0_u64; 0]);
    // Sent long ago; then less and less often, but as often as any unanswered operation.
    let mut again = sent[1].clone();
    for pause in [100, 800, 1600, 2000].into_iter().chain([2000; 40]) {
        again.attempt += 1;
        refuse(&mut rig, &again);
        let mut waited = 0;
        while !after(&mut rig, 100).contains(&behind[0]) {
            waited += 100;
        }
        assert_eq!(waited + 100, pause);
    }
}

/// An OSD waits for what it turned away only for a while: a client that slept and has not seen a
/// refusal yet would overtake itself.
pub fn who_slept_sends_what_was_before_first() {
    let mut rig = Rig::new();
    let first = rig.submit();
    rig.requests();
    rig.now = rig.now + Duration::from_secs(30);
    let second = rig.submit();
    let sent: Vec<u64> = rig
        .requests()
        .into_iter()
        .map(|(_, number)| number)
        .collect();
    assert_eq!(sent, [first.0, second.0]);
    let third = rig.submit();
    assert_eq!(rig.requests(), [(rig.primary(), third.0)]);
}

/// A PG that has forgotten clients executes what is certainly newer than they are: a date that is
/// too late would cause a second execution.
pub fn an_osd_that_asks_is_told_when_it_was_first_asked_never_later() {
    let mut rig = Rig::new();
    let id = rig.submit();
    let first = rig.request();
    assert_eq!(first.dated, Dated::default(), "its clock was never heard");
    let second = Duration::from_secs(1);
    rig.now = rig.now + second;
    let now = Dated {
        process: 5,
        reading: 100 * second.as_nanos() as u64,
    };
    rig.answer(&first, Some(OpFailure::Undated { now }), vec![]);
    let again = rig.request();
    assert_eq!(
        (again.request, again.attempt, again.dated.process),
        (first.request, 2, 5)
    );
    let drift = Duration::from_millis(2);
    assert_eq!(
        again.dated.reading,
        now.reading - (second + drift).as_nanos() as u64,
        "a second before, and drift"
    );
    assert_eq!(rig.ended(), []);
    // Begun after the clock was read: less drift.
    rig.now = rig.now + second;
    rig.submit();
    assert_eq!(
        rig.request().dated.reading,
        now.reading + (second - drift).as_nanos() as u64
    );
    // When resent, it has the same first date as before; a reading that is too old is not used.
    rig.role.on_peer_reset(rig.now, rig.primary());
    assert!(matches!(&rig.sent()[0].1, Message::OpRequest(same, _) if same.dated == again.dated));
    rig.now = rig.now + second * 10;
    rig.role.on_peer_reset(rig.now, rig.primary());
    let all = rig.sent();
    assert!(all.iter().all(
        |(_, one)| matches!(one, Message::OpRequest(one, _) if one.dated == Dated::default())
    ));
    assert_eq!(
        (all.len(), rig.role.in_flight(), rig.ended()),
        (2, 2, vec![]),
        "{id:?}"
    );
}

/// An early answer only informs the caller: the operation is not complete, is still resent, and
/// completes once.
pub fn an_early_answer_is_told_once_and_ends_nothing() {
    let mut rig = Rig::new();
    let (first, second) = (rig.submit(), rig.submit());
    let request = match &rig.sent()[..] {
        [(_, Message::OpRequest(request, _)), _] => request.clone(),
        other => panic!("{other:?}"),
    };
    let acks = |rig: &mut Rig| {
        let mut acks = Vec::new();
        rig.role.acks(&mut acks);
        acks
    };
    let applied = |id: OpId| {
        let request = RequestId {
            sequence: id.0,
            ..request.request
        };
        Message::OpApplied(OpApplied {
            request,
            version: Version::NONE,
            attempt: 1,
        })
    };
    rig.tell(applied(first));
    assert_eq!((acks(&mut rig), rig.ended()), (vec![first], vec![]));
    rig.tell(applied(first));
    assert_eq!(acks(&mut rig), []);
    rig.role.on_peer_reset(rig.now, rig.primary());
    assert_eq!(rig.requests().len(), 2, "it may be lost with its primary");
    // Applied and durable before the results were taken.
    rig.tell(applied(second));
    let mut of_second = request.clone();
    (of_second.request.sequence, of_second.attempt) = (second.0, 2);
    rig.answer(&of_second, None, vec![]);
    assert_eq!(acks(&mut rig), [], "never after its end");
    rig.tell(applied(second));
    assert_eq!(
        (rig.ended(), acks(&mut rig)),
        (vec![(second, true)], vec![])
    );
}

pub fn what_is_in_flight_is_bounded_and_the_largest_goes_alone() {
    let settings = ClientConfig {
        ops_max: 3,
        bytes_max: 100_000,
        ..config()
    };
    let mut rig = Rig::with(settings);
    let full = |rig: &Rig, length: u64| Operation {
        payload: vec![Bytes::from(vec![0; length as usize])],
        ..rig.operation(vec![SubOp::WriteFull { length }])
    };
    let submit = |rig: &mut Rig, length| {
        let operation = full(rig, length);
        rig.role.submit(rig.now, operation)
    };
    for round in 0..3 {
        submit(&mut rig, 1_000_000).expect("alone");
        let request = rig.request();
        assert_eq!(
            submit(&mut rig, 0),
            Err(Refused::Busy),
            "round {round}: more bytes than the bound are under way"
        );
        rig.answer(&request, None, vec![]);
    }
    for _ in 0..3 {
        submit(&mut rig, 30_000).expect("there is room");
    }
    assert_eq!(submit(&mut rig, 0), Err(Refused::Busy), "three operations");
    rig.role.abandon(OpId(4));
    assert_eq!(submit(&mut rig, 50_000), Err(Refused::Busy), "60 and 50 kB");
    submit(&mut rig, 39_000).expect("60 and 39");
}

/// Map entries counted as zero bytes: 1,024 operations of 16 MiB each were accepted.
pub fn what_is_carried_beside_data_is_bounded_too() {
    let mut rig = Rig::with(ClientConfig {
        bytes_max: 1 << 20,
        ..config()
    });
    let set = |rig: &Rig, length| {
        let entries = vec![("k".into(), Bytes::from(vec![0; length]))];
        rig.operation(vec![SubOp::OmapSet { entries }])
    };
    for length in [700_000, 100_000] {
        let operation = set(&rig, length);
        rig.role.submit(rig.now, operation).expect("there is room");
    }
    let operation = set(&rig, 300_000);
    assert_eq!(rig.role.submit(rig.now, operation), Err(Refused::Busy));
}

/// An OSD could not assign the bytes to the parts; a daemon's own client must not stop its daemon
/// because of a caller's mistake.
pub fn lengths_that_do_not_fit_the_data_end_it_at_once() {
    let mut rig = Rig::new();
    let payload = vec![Bytes::from_static(b"four")];
    let operation = Operation {
        payload,
        ..rig.operation(vec![SubOp::WriteFull { length: 5 }])
    };
    let id = rig.role.submit(rig.now, operation).expect("taken");
    assert_eq!((rig.ended(), rig.requests()), (vec![(id, false)], vec![]));
    assert_ne!(rig.submit(), id);
}

/// A class call with a method name of 3,000 bytes was sent. The OSD could not decode it and closed
/// the connection, every 2 s until the caller gave up; everything else that the client had in
/// flight there was interrupted as often. A lock, a watch and 64 MiB of omap values had the same
/// effect.
pub fn what_no_osd_could_read_is_refused_before_it_is_sent() {
    let mut rig = Rig::new();
    let long = || Name::copy(&[b'x'; Name::LEN_MAX + 1]);
    let lock = |description: String, name| SubOp::Lock {
        name,
        cookie: 1,
        shared: false,
        lease_ms: 0,
        description,
    };
    let value = Bytes::from(vec![0; 1 << 20]);
    let entries = (0..64_u8)
        .map(|key| (Bytes::from(vec![key]), value.clone()))
        .collect();
    let whole = "the operation without its data";
    let ops = [
        (
            SubOp::Call {
                class: long(),
                method: "m".into(),
                length: 0,
            },
            "Call.class",
            2048,
        ),
        (
            SubOp::Call {
                class: "c".into(),
                method: long(),
                length: 0,
            },
            "Call.method",
            2048,
        ),
        (
            SubOp::Eval {
                script: 0,
                handler: long(),
                input: 0,
            },
            "Eval.handler",
            2048,
        ),
        (lock(String::new(), long()), "Lock.name", 2048),
        (
            lock("x".repeat(65 << 20), "l".into()),
            whole,
            CLIENT_BYTES_MAX,
        ),
        (
            SubOp::SetAttr {
                name: long(),
                value: Bytes::new(),
            },
            "SetAttr.name",
            2048,
        ),
        (SubOp::OmapSet { entries }, whole, CLIENT_BYTES_MAX),
    ];
    let operations = ops
        .into_iter()
        .map(|(op, what, max)| (rig.operation(vec![op]), what, max));
    let mut cases: Vec<_> = operations.collect();
    for field in ["object.name", "object.namespace", "object.key"] {
        let mut operation = rig.operation(vec![SubOp::Stat {}]);
        let object = &mut operation.object;
        *match field {
            "object.name" => &mut object.name,
            "object.key" => &mut object.key,
            _ => &mut object.namespace,
        } = long();
        cases.push((operation, field, 2048));
    }
    for (operation, what, max) in cases {
        let id = rig.role.submit(rig.now, operation).expect("taken");
        let sent = rig.sent().len();
        let ended = rig.completions();
        let [
            Completion {
                id: of,
                result: Err(Failure::Refused(OpFailure::Invalid { why })),
            },
        ] = &ended[..]
        else {
            panic!("{what}: {sent} sent, {} ended", ended.len());
        };
        assert!(
            why.contains(what) && why.contains(&format!("at most {max} ")),
            "{what}: {why}"
        );
        assert_eq!((*of, sent, rig.role.in_flight()), (id, 0, 0), "{what}");
    }
    // A client that has not connected to any monitor yet reports it at once, too.
    let mut alone = Client::new(config(), rig.now);
    let object = ObjectId {
        name: long(),
        ..ObjectId::default()
    };
    assert!(
        alone
            .submit(
                rig.now,
                Operation {
                    object,
                    ..Operation::default()
                }
            )
            .is_ok()
    );
    let mut ended = Vec::new();
    alone.completions(&mut ended);
    assert_eq!(ended.len(), 1);
}

/// Operations that were never sent take no space: otherwise callers' mistakes would add up until
/// everything is refused.
pub fn what_ends_at_once_takes_no_room() {
    let mut rig = Rig::with(ClientConfig {
        bytes_max: 100,
        ..config()
    });
    rig.submit();
    rig.sent();
    for _ in 0..3 {
        let payload = vec![Bytes::from(vec![0; 60])];
        let operation = Operation {
            payload,
            ..rig.operation(vec![SubOp::WriteFull { length: 5 }])
        };
        rig.role.submit(rig.now, operation).expect("taken");
        assert_eq!(rig.ended().len(), 1, "it has ended");
    }
}

pub fn the_host_is_asked_to_come_back_while_something_is_in_flight() {
    let mut rig = Rig::new();
    assert_eq!(rig.role.next_deadline(), Time::MAX, "nothing to do");
    rig.submit();
    let request = rig.request();
    let retry = config().retry_interval;
    let begun = rig.now;
    // The host calls when it is asked to, not sooner.
    while rig.requests().is_empty() {
        let due = rig.role.next_deadline();
        assert!(due > rig.now && due <= rig.now + retry, "{due:?}");
        assert!(due.since(begun) <= retry * 2, "nothing was sent again");
        rig.now = due;
        rig.role.on_tick(due);
    }
    assert!(rig.now.since(begun) >= retry, "not before its time");
    rig.answer(&request, None, vec![]);
    assert_eq!(rig.role.next_deadline(), Time::MAX);
    let unconnected = nacre_client::Client::new(config(), rig.now);
    assert!(
        unconnected.next_deadline() <= rig.now + retry,
        "it wants a map"
    );
}

/// Monitors also report changes one by one: these redirect operations in flight like a whole map
/// does.
pub fn a_change_of_the_map_moves_what_is_under_way() {
    let mut rig = Rig::new();
    rig.submit();
    let before = rig.primary();
    assert_eq!(rig.requests(), [(before, 1)]);
    let delta = rig.map.delta(vec![Change::OsdDown {
        osd: before,
        instance: Instance(1),
    }]);
    rig.map.apply(&delta).expect("the next delta");
    let deltas = MapDeltas {
        deltas: vec![delta.to_bytes().into()],
        newest: rig.map.epoch,
        root: None,
    };
    rig.role.on_message(
        rig.now,
        Entity::Mon(nacre_types::MonId(0)),
        rig.map.epoch,
        Message::MapDeltas(deltas),
    );
    assert_ne!(rig.primary(), before);
    assert_eq!(rig.requests(), [(rig.primary(), 1)]);
}

/// The map is requested on each new session, and when something is late; not by a client that waits
/// for nothing.
pub fn the_map_is_asked_for_when_there_is_reason_to() {
    let mut rig = Rig::new();
    rig.others();
    rig.role.on_mon_session(rig.now);
    assert_eq!(rig.others(), ["map"]);
    rig.wait_for_retry();
    assert!(rig.others().is_empty(), "nothing is late");
    rig.submit();
    rig.wait_for_retry();
    assert_eq!(rig.others(), ["map"]);
}

/// A failure is final if nothing before it was resent, even if an earlier operation has no answer
/// yet. An earlier operation that writes in any of its parts and was resent may still change what
/// caused the failure.
pub fn a_failure_waits_only_for_writes_that_were_sent_again() {
    for again in [false, true] {
        let mut rig = Rig::new();
        let ops = vec![
            SubOp::AssertExists { exists: false },
            SubOp::WriteFull { length: 0 },
        ];
        let operation = rig.operation(ops);
        rig.role.submit(rig.now, operation).expect("taken");
        let earlier = rig.request();
        let (id, request) = rig.submit_to("a", SubOp::Create { exclusive: true });
        if again {
            rig.answer(
                &earlier,
                Some(OpFailure::Undated {
                    now: Dated {
                        process: 1,
                        reading: 1,
                    },
                }),
                vec![],
            );
            assert_eq!(rig.requests().len(), 1, "it is sent again");
        }
        rig.answer(&request, Some(OpFailure::AlreadyExists {}), vec![]);
        let expected = if again { vec![] } else { vec![(id, false)] };
        assert_eq!(rig.ended(), expected);
    }
}

pub fn a_client_without_a_map_asks_again() {
    let mut role = nacre_client::Client::new(config(), Time(1));
    let mut asked = 0;
    for tick in 0..3 {
        role.on_tick(Time(1) + config().retry_interval * tick);
        let mut out = Vec::new();
        role.take_outputs(&mut out);
        asked += out.len();
    }
    assert_eq!(asked, 4, "at once, and each time");
}

pub fn maps_go_forward_only_and_of_one_history() {
    let mut rig = Rig::new();
    let old = rig.map.clone();
    rig.commit(Change::Flags { flags: 1 });
    assert_eq!(rig.role.epoch(), old.epoch.next());
    let (mon, newest) = (Entity::Mon(MonId(0)), rig.map.epoch);
    rig.role.on_message(
        rig.now,
        mon,
        old.epoch,
        Message::MapFull(MapFull {
            map: old.to_bytes().into(),
        }),
    );
    assert_eq!(rig.role.epoch(), newest, "an older one is not taken");
    rig.others();
    // A peer has a newer map; asking twice in a row would only deliver it twice.
    rig.now = rig.now + Duration::from_millis(60);
    for _ in 0..2 {
        let nobodys = Message::OpApplied(OpApplied {
            request: RequestId::default(),
            version: Version::NONE,
            attempt: 0,
        });
        rig.role
            .on_message(rig.now, Entity::Osd(OsdId(0)), newest.next(), nobodys);
    }
    assert_eq!(rig.others(), ["map"]);
    let deltas = |maps: &[nacre_wire::map::MapDelta]| {
        let deltas = maps.iter().map(|delta| delta.to_bytes().into()).collect();
        Message::MapDeltas(MapDeltas {
            deltas,
            newest,
            root: None,
        })
    };
    let next = rig.map.delta(vec![Change::Flags { flags: 2 }]);
    rig.map.apply(&next).expect("the next");
    let after = rig.map.delta(vec![Change::Flags { flags: 3 }]);
    rig.role
        .on_message(rig.now, mon, newest, deltas(std::slice::from_ref(&after)));
    assert_eq!(rig.role.epoch(), newest, "one is missing");
    rig.role
        .on_message(rig.now, mon, newest, deltas(&[next, after]));
    assert_eq!(
        (rig.role.epoch(), rig.others()),
        (newest.next().next(), vec![])
    );
    let mut other = old;
    while other.epoch < rig.role.epoch() {
        other
            .apply(&other.delta(vec![Change::Flags { flags: 9 }]))
            .expect("the next");
    }
    let foreign = other.delta(vec![Change::Flags { flags: 1 }]);
    rig.role
        .on_message(rig.now, mon, newest, deltas(&[foreign]));
    let others = rig.others();
    assert!(others[0].contains("history differs"), "{others:?}");
}

pub fn a_monitors_refusal_ends_the_client_an_osds_does_not() {
    let mut rig = Rig::new();
    rig.others();
    let refused = || {
        Message::Refused(Refusal {
            why: "another cluster".to_owned(),
            process: 0,
        })
    };
    rig.role
        .on_message(rig.now, Entity::Osd(OsdId(0)), rig.map.epoch, refused());
    assert_eq!(rig.others(), [] as [&str; 0]);
    rig.role
        .on_message(rig.now, Entity::Mon(MonId(0)), rig.map.epoch, refused());
    assert_eq!(rig.others(), ["another cluster"]);
}

pub fn who_gives_up_hears_that_nobody_knows() {
    let mut rig = Rig::new();
    let id = rig.submit();
    let request = rig.request();
    rig.role.abandon(id);
    rig.answer(&request, None, vec![]);
    rig.role.abandon(id);
    let ended = rig.completions();
    assert_eq!(
        (ended.len(), ended[0].id, ended[0].result.clone()),
        (1, id, Err(Failure::Unknown))
    );
}

/// An OSD that does not know the fence must wait for it before it acts for the new holder.
pub fn what_is_sent_after_a_grant_carries_its_fence() {
    let mut rig = Rig::new();
    let op = |ops| Operation {
        pool: PoolId(1),
        object: ObjectId::named("a"),
        ops,
        ..Operation::default()
    };
    rig.role
        .submit(rig.now, op(vec![SubOp::Stat {}]))
        .expect("taken");
    let before = rig.request();
    assert_eq!(before.fence, Epoch::NONE);
    rig.answer(
        &before,
        None,
        vec![SubReply::Locked {
            token: Version::NONE,
            fence: Epoch(40),
        }],
    );
    rig.role
        .submit(rig.now, op(vec![SubOp::Stat {}]))
        .expect("taken");
    let after = rig.request();
    assert_eq!(after.fence, Epoch(40));
    rig.answer(
        &after,
        None,
        vec![SubReply::Locked {
            token: Version::NONE,
            fence: Epoch(30),
        }],
    );
    rig.role
        .submit(rig.now, op(vec![SubOp::Stat {}]))
        .expect("taken");
    assert_eq!(rig.request().fence, Epoch(40), "never less");
}

/// Every attempt is the same: what an operation preserves is decided when it is submitted, not when
/// it is sent.
pub fn an_operation_carries_its_own_snapshot_context_with_every_attempt() {
    let mut rig = Rig::new();
    let snaps = SnapContext {
        sequence: 7,
        snapshots: vec![SnapId(7), SnapId(4)],
    };
    let operation = Operation {
        pool: PoolId(1),
        object: ObjectId::named("a"),
        ops: vec![SubOp::WriteFull { length: 0 }],
        snaps: snaps.clone(),
        ..Operation::default()
    };
    rig.role.submit(rig.now, operation).expect("taken");
    let first = rig.request();
    assert_eq!(first.snaps, snaps);
    let second = rig.request_after(Duration::from_secs(60));
    assert_eq!((second.request, &second.snaps), (first.request, &snaps));
    assert!(second.attempt > first.attempt);
    let plain = Operation {
        pool: PoolId(1),
        object: ObjectId::named("a"),
        ..Operation::default()
    };
    rig.role.submit(rig.now, plain).expect("taken");
    assert_eq!(rig.request().snaps, SnapContext::default());
}

/// An OSD was restarted and asked when an operation had first been sent, by its new clock. Its
/// client continued to use the old clock, was asked again and again, and the operation hung until
/// the old reading had become useless.
pub fn an_osd_that_was_started_again_is_told_by_its_new_clock() {
    let mut rig = Rig::new();
    rig.submit();
    for process in [5, 6] {
        let asked = rig.request();
        let now = Dated {
            process,
            reading: 100_000_000_000,
        };
        rig.answer(&asked, Some(OpFailure::Undated { now }), vec![]);
    }
    assert_eq!(rig.request().dated.process, 6);
}

/// One OSD's reason for a delay was displayed as that of the OSD to which the operation had been
/// sent since: operators looked for the cause at the wrong daemon.
pub fn what_held_an_operation_up_elsewhere_is_not_why_it_waits_now() {
    let mut rig = Rig::new();
    rig.submit();
    let (request, first) = (rig.request().request, rig.primary());
    rig.tell(Message::OpBlocked(OpBlocked {
        request,
        reason: "the object is being recovered".into(),
        since_ms: 9,
    }));
    let reason = |rig: &Rig| rig.role.blocked(rig.now, Duration::ZERO)[0].reason.clone();
    assert_eq!(
        reason(&rig),
        format!("the object is being recovered (says {first})")
    );
    rig.commit(Change::OsdDown {
        osd: first,
        instance: Instance(1),
    });
    let second = rig.primary();
    assert_eq!(rig.requests(), [(second, request.sequence)]);
    assert!(
        reason(&rig).starts_with(&format!("{second} has not answered")),
        "{}",
        reason(&rig)
    );
}

/// (Planted by a reviewer: it was measured from the last sending.) An operation is resent every two
/// seconds, and its wait includes all of that time.
pub fn what_waits_has_waited_since_it_was_submitted() {
    let mut rig = Rig::new();
    let begun = rig.now;
    let id = rig.submit();
    rig.sent();
    for _ in 0..3 {
        assert_eq!(
            rig.request_after(config().retry_interval).request.sequence,
            id.0
        );
    }
    let waits = rig.now.since(begun);
    assert_eq!(
        rig.role
            .blocked(rig.now, waits + Duration::from_millis(1))
            .len(),
        0
    );
    let blocked = rig.role.blocked(rig.now, waits);
    assert_eq!(
        blocked
            .iter()
            .map(|one| (one.id, one.since))
            .collect::<Vec<_>>(),
        [(id, begun)]
    );
}

/// (Planted by a reviewer.) Objects were modified in January 1970.
pub fn a_request_says_what_time_it_is() {
    let mut rig = Rig::with(ClientConfig {
        unix_ms_at_zero: 1_700_000_000_000,
        ..config()
    });
    rig.submit();
    assert_eq!(rig.request().unix_ms, 1_700_000_001_000);
}
