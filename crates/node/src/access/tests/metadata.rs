//! Requests about metadata, and watches of it.

use super::*;

/// A watcher read nothing for so long that its watch was ended here, but the monitors kept
/// sending events to this client until it stopped.
#[test]
fn a_watch_that_ended_here_ends_at_the_monitors() {
    use nacre_wire::msg::meta::{MetaError, MetaEvent, MetaEvents};
    let mut case = Case::new();
    let sink = Arc::<Sink>::default();
    case.call(Call::MetaWatch {
        span: MetaSpan::Prefix {
            prefix: "a/".into(),
        },
        from: 1,
        sink: sink.clone(),
    });
    let sent = |case: &mut Case| {
        let mut out = Vec::new();
        case.access.take_outputs(case.now, &mut out);
        let message = |output| match output {
            Output::SendMon { message } => Some(message),
            _ => None,
        };
        out.into_iter().filter_map(message).collect::<Vec<_>>()
    };
    let watch = |message: &Message| match message {
        Message::MetaWatch(watch) => Some(watch.watch),
        _ => None,
    };
    let watch = sent(&mut case)
        .iter()
        .find_map(watch)
        .expect("it is asked for");
    assert!(
        !sink.push(nacre_client::WatchNews::Ended(MetaError::Superseded {})),
        "nobody reads it any more"
    );
    let events = MetaEvents::encode(&[MetaEvent::Delete {
        key: "a/k".into(),
        revision: 1,
    }]);
    let message = Message::MetaEvents(
        MetaEvents {
            watch,
            after: 0,
            through: 1,
        },
        vec![events],
    );
    case.access.on_message(case.now, MON, Epoch(1), message);
    let cancelled =
        |message: &Message| matches!(message, Message::MetaCancel(cancel) if cancel.watch == watch);
    assert!(
        sent(&mut case).iter().any(cancelled),
        "the monitors are not told"
    );
}

/// Two requests waited for others of their client. The second had less time, but was answered
/// only when the first one's time was over, too.
#[test]
fn each_request_about_metadata_has_a_time_of_its_own() {
    use nacre_wire::msg::meta::META_WINDOW;
    let mut case = Case::new();
    let ask = |case: &mut Case, seconds| {
        let (reply, receiver) = slot();
        let call = MetaCall::Leases {};
        case.call(Call::Meta {
            call,
            deadline: case.now + Duration::from_secs(seconds),
            reply,
        });
        receiver
    };
    let mut patient: Vec<_> = (0..META_WINDOW + 10).map(|_| ask(&mut case, 30)).collect();
    let mut hurried = ask(&mut case, 1);
    assert!(
        case.access.next_deadline() <= case.now + Duration::from_secs(1),
        "or nobody looks"
    );
    case.waits(1_000);
    assert!(
        matches!(now(&mut hurried), Some(Err(Error::TimedOut { .. }))),
        "a second is over"
    );
    assert!(
        patient.iter_mut().all(|answer| now(answer).is_none()),
        "the others have time"
    );
    case.waits(30_000);
    assert!(patient.iter_mut().all(|answer| now(answer).is_some()));
}

/// Metadata requests beyond a client's limit in flight wait here, and continue when others are
/// answered.
#[test]
fn requests_about_metadata_go_on_when_others_are_answered() {
    use nacre_wire::msg::meta::{META_WINDOW, MetaReply};
    let mut case = Case::new();
    case.commands();
    let count = META_WINDOW + 10;
    let mut answers = Vec::new();
    for n in 0..count {
        let (reply, receiver) = slot();
        let span = MetaSpan::Key {
            key: n.to_string().as_str().into(),
        };
        let call = MetaCall::Range {
            span,
            limit: 0,
            keys_only: false,
            serializable: false,
        };
        case.call(Call::Meta {
            call,
            deadline: case.now + Duration::from_secs(30),
            reply,
        });
        answers.push(receiver);
    }
    let mut done = 0;
    while done < count {
        let mut out = Vec::new();
        case.access.take_outputs(case.now, &mut out);
        let request = |output| match output {
            Output::SendMon {
                message: Message::MetaRequest(request),
            } => Some(request),
            _ => None,
        };
        let sent: Vec<_> = out.into_iter().filter_map(request).collect();
        assert!(
            !sent.is_empty(),
            "{done} of {count} are done, and nothing is under way"
        );
        for request in sent {
            let result = MetaResult::Ranged {
                pairs: Vec::new(),
                more: false,
            };
            let reply = MetaReply {
                instance: request.instance,
                sequence: request.sequence,
                revision: 1,
                result,
            };
            case.access
                .on_message(case.now, MON, Epoch(1), Message::MetaReply(reply));
            done += 1;
        }
    }
    assert_eq!(
        answers
            .iter_mut()
            .filter_map(now)
            .filter(Result::is_ok)
            .count() as u64,
        count
    );
}
