//! The client of service metadata; the test plays the monitors.

#[cfg(not(feature = "mutants"))]
use nacre_client::MetaClient;
#[cfg(feature = "mutants")]
use nacre_client::broken::MetaClient;
use nacre_client::{MetaDone, MetaFailure, MetaId, MetaWatchId, WatchNews};
use nacre_types::{Entity, Instance, MonId, Name, Time};
use nacre_wire::Message;
use nacre_wire::msg::meta::{
    META_WINDOW, MetaCall, MetaCancel, MetaError, MetaEvent, MetaEvents, MetaOp, MetaReply,
    MetaRequest, MetaResult, MetaSpan, MetaWatch, MetaWatchEnded,
};
use std::time::Duration;

const MON: Entity = Entity::Mon(MonId(0));
fn events(after: u64, through: u64, at: &[u64]) -> Message {
    let list: Vec<MetaEvent> = at
        .iter()
        .map(|revision| MetaEvent::Delete {
            key: "a/k".into(),
            revision: *revision,
        })
        .collect();
    Message::MetaEvents(
        MetaEvents {
            watch: 1,
            after,
            through,
        },
        vec![MetaEvents::encode(&list)],
    )
}
fn sent(client: &mut MetaClient) -> Vec<Message> {
    let mut out = Vec::new();
    client.take_outputs(&mut out);
    out
}
fn seen(client: &mut MetaClient) -> Vec<u64> {
    let mut news = Vec::new();
    client.take_news(&mut news);
    let of = |(_, news): (MetaWatchId, WatchNews)| match news {
        WatchNews::Events { events, .. } => events,
        WatchNews::Ended(_) => Vec::new(),
    };
    news.into_iter()
        .flat_map(of)
        .map(|event| event.revision())
        .collect()
}

// Fails when `retain` is left out, and when a gap is accepted.
pub fn a_watch_goes_on_after_the_last_revision_seen_and_takes_nothing_twice() {
    let mut client = MetaClient::new(Instance(1));
    client.watch(
        MetaSpan::Prefix {
            prefix: "a/".into(),
        },
        0,
    );
    assert!(sent(&mut client).is_empty(), "there is no session");
    client.on_session(Time(1));
    assert!(matches!(
        &sent(&mut client)[..],
        [Message::MetaWatch(MetaWatch { from: 0, .. })]
    ));
    client.on_message(Time(1), MON, &events(4, 6, &[5, 6]));
    client.on_session_lost();
    client.on_session(Time(2));
    assert!(matches!(
        &sent(&mut client)[..],
        [Message::MetaWatch(MetaWatch { from: 7, .. })]
    ));
    // The former monitor's last messages, then the new one's first.
    client.on_message(Time(2), MON, &events(6, 7, &[7]));
    client.on_message(Time(2), MON, &events(6, 8, &[7, 8]));
    assert_eq!(seen(&mut client), [5, 6, 7, 8]);
    client.on_message(Time(2), MON, &events(9, 10, &[10]));
    assert_eq!(seen(&mut client), [] as [u64; 0], "revision 9 is missing");
    assert!(matches!(
        &sent(&mut client)[..],
        [Message::MetaWatch(MetaWatch { from: 9, .. })]
    ));
}

/// F42: a key of 2,060 bytes took 30 s and was reported as "no monitor has answered". A watch of
/// such a prefix ended every session with the monitors, as long as the client existed.
pub fn what_no_monitor_could_read_is_refused_before_it_is_sent() {
    let mut client = MetaClient::new(Instance(1));
    client.on_session(Time(1));
    let span = |length| MetaSpan::Key {
        key: Name::copy(&vec![b'x'; length]),
    };
    let range = |span| MetaCall::Range {
        span,
        limit: 0,
        keys_only: false,
        serializable: false,
    };
    client
        .submit(Time(1), range(span(Name::LEN_MAX)))
        .expect("room");
    assert_eq!(sent(&mut client).len(), 1, "the monitor's to judge");
    let put = MetaOp::Put {
        key: "a/k".into(),
        value: vec![0; 64 << 20].into(),
        lease: 0,
    };
    let large = MetaCall::Transact {
        compares: vec![],
        then: vec![put],
        otherwise: vec![],
    };
    let cases = [
        (range(span(Name::LEN_MAX + 1)), "Key.key has 2049"),
        (large, "the request has 671"),
    ];
    for (call, said) in cases {
        let id = client.submit(Time(1), call).expect("room");
        let mut done = Vec::new();
        client.take_done(&mut done);
        let [
            MetaDone {
                id: of,
                result: Err(MetaFailure::Refused(MetaError::Invalid { why })),
                ..
            },
        ] = &done[..]
        else {
            panic!("{} sent, {} ended", sent(&mut client).len(), done.len());
        };
        assert!(
            *of == id && why.contains(said) && why.contains("at most 1024 bytes"),
            "{why}"
        );
    }
    let watch = client.watch(span(Name::LEN_MAX + 1), 0);
    let mut news = Vec::new();
    client.take_news(&mut news);
    let ended =
        |(of, news): &(MetaWatchId, WatchNews)| *of == watch && matches!(news, WatchNews::Ended(_));
    assert!(matches!(&news[..], [one] if ended(one)), "{news:?}");
    client.on_session_lost();
    client.on_session(Time(2));
    assert_eq!(sent(&mut client).len(), 1, "the one that can be read");
}

/// Read at revision 4, watched from 5: the change at 5 is the first one reported.
pub fn a_watch_from_a_revision_tells_that_revision() {
    let mut client = MetaClient::new(Instance(1));
    client.on_session(Time(1));
    client.watch(
        MetaSpan::Prefix {
            prefix: "a/".into(),
        },
        5,
    );
    assert!(matches!(
        &sent(&mut client)[..],
        [Message::MetaWatch(MetaWatch { from: 5, .. })]
    ));
    client.on_message(Time(1), MON, &events(4, 5, &[5]));
    assert_eq!(seen(&mut client), [5]);
}

pub fn not_now_is_tried_again_and_an_answer_is_final() {
    let mut client = MetaClient::new(Instance(1));
    client.on_session(Time(0));
    let id = client.submit(Time(0), MetaCall::Leases {}).expect("room");
    assert_eq!(sent(&mut client).len(), 1);
    let reply = |result| {
        Message::MetaReply(MetaReply {
            instance: Instance(1),
            sequence: id.0,
            revision: 3,
            result,
        })
    };
    let limited = MetaResult::Failed {
        error: MetaError::RateLimited { retry_ms: 20 },
    };
    client.on_message(Time(0), MON, &reply(limited));
    let at = client.next_deadline();
    assert_eq!(at, Time(0) + Duration::from_millis(20));
    client.on_tick(at);
    let again = sent(&mut client);
    assert!(
        matches!(
            &again[..],
            [Message::MetaRequest(MetaRequest {
                again: true,
                sequence: 1,
                ..
            })]
        ),
        "{again:?}"
    );
    for _ in 0..2 {
        client.on_message(at, MON, &reply(MetaResult::Leases { leases: vec![] }));
    }
    let mut done = Vec::new();
    client.take_done(&mut done);
    assert_eq!(done.len(), 1);
}

pub fn the_window_bounds_what_is_in_flight() {
    let mut client = MetaClient::new(Instance(1));
    let taken = (0..1_000)
        .take_while(|_| client.submit(Time(0), MetaCall::Leases {}).is_some())
        .count();
    assert_eq!(taken as u64, META_WINDOW);
    client.abandon(MetaId(1));
    assert!(client.submit(Time(0), MetaCall::Leases {}).is_some());
}

fn requests(client: &mut MetaClient) -> Vec<MetaRequest> {
    let of = |message| match message {
        Message::MetaRequest(request) => request,
        other => panic!("{other:?}"),
    };
    sent(client).into_iter().map(of).collect()
}
fn reply(sequence: u64, revision: u64, result: MetaResult) -> Message {
    Message::MetaReply(MetaReply {
        instance: Instance(1),
        sequence,
        revision,
        result,
    })
}
fn done(client: &mut MetaClient) -> Vec<MetaDone> {
    let mut done = Vec::new();
    client.take_done(&mut done);
    done
}
fn submit(client: &mut MetaClient, now: Time) -> u64 {
    client.submit(now, MetaCall::Leases {}).expect("room").0
}
fn leases() -> MetaResult {
    MetaResult::Leases { leases: vec![] }
}

pub fn a_lost_session_is_sent_nothing() {
    let mut client = MetaClient::new(Instance(1));
    client.on_session(Time(0));
    let watch = client.watch(
        MetaSpan::Prefix {
            prefix: "a/".into(),
        },
        0,
    );
    submit(&mut client, Time(0));
    sent(&mut client);
    assert!(client.awaits_answers());
    client.on_session_lost();
    assert!(!client.awaits_answers());
    submit(&mut client, Time(1));
    client.cancel(watch);
    client.on_tick(Time(0) + Duration::from_secs(60));
    assert!(sent(&mut client).is_empty());
    assert_eq!(
        client.next_deadline(),
        Time::MAX,
        "there is nobody to send to"
    );
}

/// Two requests have to wait, each for its own time.
pub fn each_request_is_sent_again_when_it_may_be() {
    let mut client = MetaClient::new(Instance(1));
    client.on_session(Time(0));
    let ids: Vec<u64> = (0..2).map(|_| submit(&mut client, Time(0))).collect();
    sent(&mut client);
    for (id, retry_ms) in ids.iter().zip([50, 20]) {
        let limited = MetaResult::Failed {
            error: MetaError::RateLimited { retry_ms },
        };
        client.on_message(Time(0), MON, &reply(*id, 1, limited));
    }
    for (id, ms) in [(ids[1], 20), (ids[0], 50)] {
        let at = Time(0) + Duration::from_millis(ms);
        assert_eq!(client.next_deadline(), at);
        client.on_tick(at);
        assert_eq!(
            requests(&mut client)
                .iter()
                .map(|request| request.sequence)
                .collect::<Vec<_>>(),
            [id]
        );
    }
}

/// A monitor forgets what is below the mark: an open request below it would be executed again when
/// it is resent.
pub fn the_mark_is_the_first_request_without_an_answer() {
    let mut client = MetaClient::new(Instance(1));
    client.on_session(Time(0));
    let ids: Vec<u64> = (0..3).map(|_| submit(&mut client, Time(0))).collect();
    assert!(
        requests(&mut client)
            .iter()
            .all(|request| request.answered_below == ids[0])
    );
    client.on_message(Time(0), MON, &reply(ids[1], 1, leases()));
    submit(&mut client, Time(0));
    assert_eq!(requests(&mut client)[0].answered_below, ids[0]);
    client.on_message(Time(0), MON, &reply(ids[0], 1, leases()));
    submit(&mut client, Time(0));
    assert_eq!(requests(&mut client)[0].answered_below, ids[2]);
}

/// Monitors distinguish a forgotten client from a new one by the revision that it knew when it
/// asked.
pub fn a_request_says_what_its_client_has_seen() {
    let mut client = MetaClient::new(Instance(1));
    client.on_session(Time(0));
    let first = submit(&mut client, Time(0));
    assert_eq!(requests(&mut client)[0].known, 0);
    client.on_message(Time(0), MON, &reply(first, 7, leases()));
    submit(&mut client, Time(0));
    assert_eq!(requests(&mut client)[0].known, 7);
    client.watch(
        MetaSpan::Prefix {
            prefix: "a/".into(),
        },
        0,
    );
    sent(&mut client);
    client.on_message(Time(0), MON, &events(8, 9, &[9]));
    submit(&mut client, Time(0));
    assert_eq!(requests(&mut client)[0].known, 9);
}

/// A monitor that has forgotten a client decides by the revision in a request whether it may have
/// been executed before. A client that had received newer revisions sent the newest one in its
/// resend. It was taken for a new client, and its transaction was executed twice.
pub fn what_is_sent_again_says_what_was_known_when_it_was_first_asked() {
    let mut client = MetaClient::new(Instance(1));
    client.on_session(Time(0));
    client.watch(
        MetaSpan::Prefix {
            prefix: "a/".into(),
        },
        0,
    );
    client.on_message(Time(0), MON, &events(2, 3, &[3]));
    sent(&mut client);
    let delete = MetaOp::Delete {
        span: MetaSpan::Key { key: "a/k".into() },
    };
    let call = MetaCall::Transact {
        compares: vec![],
        then: vec![delete],
        otherwise: vec![],
    };
    client.submit(Time(0), call).expect("room");
    let first = requests(&mut client).remove(0);
    assert_eq!((first.known, first.again), (3, false));
    let repeated = MetaRequest {
        again: true,
        ..first
    };
    client.on_message(Time(1), MON, &events(3, 9, &[8, 9]));
    client.on_tick(client.next_deadline());
    assert_eq!(
        requests(&mut client),
        std::slice::from_ref(&repeated),
        "no answer came"
    );
    let later = submit(&mut client, Time(2));
    client.on_message(Time(2), MON, &reply(later, 12, leases()));
    sent(&mut client);
    client.on_session_lost();
    client.on_session(Time(3));
    let asked = sent(&mut client);
    assert_eq!(asked[0], Message::MetaRequest(repeated), "on a new session");
}

pub fn a_new_session_hears_what_is_open_and_nothing_is_sent_without_one() {
    let mut client = MetaClient::new(Instance(1));
    let (first, second) = (submit(&mut client, Time(0)), submit(&mut client, Time(0)));
    assert!(sent(&mut client).is_empty());
    assert_eq!(
        (client.next_deadline(), client.awaits_answers()),
        (Time::MAX, false)
    );
    client.on_session(Time(1));
    let at = |client: &mut MetaClient| {
        requests(client)
            .iter()
            .map(|one| (one.sequence, one.again))
            .collect::<Vec<_>>()
    };
    assert_eq!(at(&mut client), [(first, false), (second, false)]);
    assert!(client.awaits_answers());
    client.on_session_lost();
    assert_eq!(
        (client.next_deadline(), client.awaits_answers()),
        (Time::MAX, false)
    );
    client.on_session(Time(2));
    assert_eq!(
        at(&mut client),
        [(first, true), (second, true)],
        "it may have been carried out"
    );
    client.on_tick(client.next_deadline());
    assert_eq!(
        at(&mut client),
        [(first, true), (second, true)],
        "no answer came"
    );
}

pub fn an_answer_for_another_instance_is_not_ours() {
    let mut client = MetaClient::new(Instance(2));
    client.on_session(Time(0));
    let id = submit(&mut client, Time(0));
    client.on_message(Time(0), MON, &reply(id, 1, leases()));
    assert!(done(&mut client).is_empty());
    assert!(!client.on_message(
        Time(0),
        Entity::Osd(nacre_types::OsdId(0)),
        &reply(id, 1, leases())
    ));
}

/// A caller that gives up gets the monitors' last reply; until then "no leader" is not an answer.
pub fn no_majority_is_not_an_answer() {
    let mut client = MetaClient::new(Instance(1));
    client.on_session(Time(0));
    let id = submit(&mut client, Time(0));
    requests(&mut client);
    let error = MetaError::Unavailable {
        why: "1 of 3".to_owned(),
    };
    client.on_message(
        Time(0),
        MON,
        &reply(
            id,
            0,
            MetaResult::Failed {
                error: error.clone(),
            },
        ),
    );
    assert!(done(&mut client).is_empty());
    client.on_tick(Time(0));
    assert!(sent(&mut client).is_empty(), "not at once");
    client.on_tick(client.next_deadline());
    assert_eq!(requests(&mut client).len(), 1);
    client.abandon(MetaId(id));
    client.abandon(MetaId(id));
    assert_eq!(
        done(&mut client),
        [MetaDone {
            id: MetaId(id),
            revision: 0,
            result: Err(MetaFailure::Unknown(Some(error)))
        }]
    );
}

pub fn a_watch_that_ends_says_so_once_and_one_that_is_cancelled_says_nothing() {
    let mut client = MetaClient::new(Instance(1));
    client.on_session(Time(0));
    let span = || MetaSpan::Prefix {
        prefix: "a/".into(),
    };
    let (one, other) = (client.watch(span(), 0), client.watch(span(), 3));
    sent(&mut client);
    client.cancel(other);
    assert!(
        matches!(&sent(&mut client)[..], [Message::MetaCancel(MetaCancel { watch })] if *watch == other.0)
    );
    let ended = |watch: MetaWatchId| {
        Message::MetaWatchEnded(MetaWatchEnded {
            watch: watch.0,
            error: MetaError::Compacted { oldest: 9 },
        })
    };
    for watch in [one, one, other] {
        client.on_message(Time(0), MON, &ended(watch));
    }
    let mut news = Vec::new();
    client.take_news(&mut news);
    assert_eq!(
        news,
        [(one, WatchNews::Ended(MetaError::Compacted { oldest: 9 }))]
    );
    client.on_session(Time(1));
    assert!(sent(&mut client).is_empty(), "neither is asked for again");
}

/// (Planted by a reviewer: the first reason was kept.) A caller that gives up gets the last reason.
pub fn who_gives_up_hears_what_was_said_last() {
    let mut client = MetaClient::new(Instance(1));
    client.on_session(Time(0));
    let id = submit(&mut client, Time(0));
    let limited = MetaResult::Failed {
        error: MetaError::RateLimited { retry_ms: 20 },
    };
    client.on_message(Time(0), MON, &reply(id, 1, limited));
    let at = client.next_deadline();
    client.on_tick(at);
    sent(&mut client);
    let unavailable = MetaError::Unavailable {
        why: "no majority".to_owned(),
    };
    client.on_message(
        at,
        MON,
        &reply(
            id,
            1,
            MetaResult::Failed {
                error: unavailable.clone(),
            },
        ),
    );
    client.abandon(MetaId(id));
    let done = done(&mut client);
    assert_eq!(done[0].result, Err(MetaFailure::Unknown(Some(unavailable))));
}

/// (Planted by a reviewer.) A report of no events counts, too: a watch continues after it.
pub fn a_watch_goes_on_behind_what_it_was_told_of_nothing() {
    let mut client = MetaClient::new(Instance(1));
    client.on_session(Time(1));
    client.watch(
        MetaSpan::Prefix {
            prefix: "a/".into(),
        },
        0,
    );
    sent(&mut client);
    client.on_message(Time(1), MON, &events(4, 4, &[]));
    client.on_session_lost();
    client.on_session(Time(2));
    assert!(matches!(
        &sent(&mut client)[..],
        [Message::MetaWatch(MetaWatch { from: 5, .. })]
    ));
    client.on_message(Time(2), MON, &events(4, 9, &[]));
    client.on_session_lost();
    client.on_session(Time(3));
    assert!(matches!(
        &sent(&mut client)[..],
        [Message::MetaWatch(MetaWatch { from: 10, .. })]
    ));
}
