mod metadata;

use super::*;
use crate::meta::Sink;
use crate::slot::{Receiver, slot};
use crate::wake::Waker;
use nacre_client::{ClientConfig, Operation};
use nacre_types::{ClientId, ClusterId, MonId, Name, ObjectId};
use nacre_wire::Wire;
use nacre_wire::map::{Change, CrushSection, Pool};
use nacre_wire::msg::check::CLIENT_BYTES_MAX;
use nacre_wire::msg::client::SubOp;
use nacre_wire::msg::meta::{MetaCall, MetaResult, MetaSpan};
use nacre_wire::msg::monitor::{CommandReply, MapFull};
use std::task::{Context, Poll, Waker as TaskWaker};

type Answer = Receiver<Result<Done, Error>>;
const MON: Entity = Entity::Mon(MonId(0));

/// A map with pools 1 to `pools`, served by no OSD.
fn map(pools: u64) -> ClusterMap {
    let mut map = ClusterMap::empty(
        ClusterId(1),
        CrushSection::parse("type 0 osd\n").expect("well-formed"),
    );
    for pool in 1..=pools {
        let settings = Pool {
            created: map.epoch,
            ..Pool::replicated(format!("p{pool}").as_str().into(), 3, 2, 1)
        };
        let delta = map.delta(vec![Change::PoolSet {
            pool: PoolId(pool),
            settings,
        }]);
        map.apply(&delta).expect("applies");
    }
    map
}

struct Case {
    access: Access,
    port: Arc<Port>,
    now: Time,
}
impl Case {
    /// A client whose first map has pool 1 only, and was the newest.
    fn new() -> Self {
        Self::stranger().known()
    }
    fn known(self) -> Self {
        let mut case = self;
        case.sees(1);
        let question = case.questions()[0];
        case.answer(question, Ok(r#"{"pools": [{"id": 1}], "epoch": 1}"#));
        case
    }
    /// A client that has just connected.
    fn stranger() -> Self {
        Self::bounded(ClientConfig::new(ClientId(7)))
    }
    fn bounded(config: ClientConfig) -> Self {
        let now = Time(1_000_000_000);
        let port = Port::new(Arc::new(Waker::new().expect("a descriptor")));
        let client = Client::new(config, now);
        let mut case = Self {
            access: Access::new(client, Instance(1), port.clone()),
            port,
            now,
        };
        case.access.on_mon_session(now);
        case
    }
    fn sees(&mut self, pools: u64) {
        let map = map(pools);
        let full = MapFull {
            map: map.to_bytes().into(),
        };
        self.access
            .on_message(self.now, MON, map.epoch, Message::MapFull(full));
    }
    fn operate(&mut self, pool: u64) -> Answer {
        self.carry(pool, 0)
    }
    /// An operation with so many bytes.
    fn carry(&mut self, pool: u64, bytes: usize) -> Answer {
        let (reply, receiver) = slot();
        let (data, length) = (vec![0; bytes].into(), bytes as u64);
        let write = (bytes > 0).then_some((SubOp::WriteFull { length }, data));
        let (ops, payload) = write.into_iter().unzip();
        let operation = Operation {
            pool: PoolId(pool),
            ops,
            payload,
            ..Operation::default()
        };
        let deadline = self.now + Duration::from_secs(30);
        self.port
            .call(Call::Operate {
                operation,
                deadline,
                reply,
            })
            .expect("it runs");
        self.access.take_calls(self.now);
        receiver
    }
    /// Tokens of the requests sent since the last call.
    fn questions(&mut self) -> Vec<u64> {
        let mut out = Vec::new();
        self.access.take_outputs(self.now, &mut out);
        let command = |output| match output {
            Output::SendMon {
                message: Message::Command(command),
            } => Some(command),
            _ => None,
        };
        let commands = out.into_iter().filter_map(command);
        commands
            .inspect(|command| assert!(command.request.contains("pool ls")))
            .map(|c| c.token)
            .collect()
    }
    fn answer(&mut self, token: u64, answer: Result<&str, &str>) {
        let (reply, error) = (
            answer.unwrap_or("{}").to_owned(),
            answer.err().map(str::to_owned),
        );
        let message = Message::CommandReply(CommandReply {
            token,
            error,
            reply,
        });
        self.access.on_message(self.now, MON, Epoch(1), message);
    }
    fn waits(&mut self, millis: u64) {
        for _ in 0..millis / 100 {
            self.now = self.now + Duration::from_millis(100);
            self.access.on_tick(self.now);
        }
    }
}
fn ended(answer: &mut Answer) -> Option<Result<Done, Error>> {
    let mut context = Context::from_waker(TaskWaker::noop());
    match std::pin::Pin::new(answer).poll(&mut context) {
        Poll::Ready(answer) => answer,
        Poll::Pending => None,
    }
}
use std::future::Future as _;

/// The answer if it is there; does not wait.
fn now<T>(answer: &mut Receiver<T>) -> Option<T> {
    match std::pin::Pin::new(answer).poll(&mut Context::from_waker(TaskWaker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => None,
    }
}
impl Case {
    fn call(&mut self, call: Call) {
        self.port.call(call).expect("it runs");
        self.access.take_calls(self.now);
    }
    fn command(&mut self, request: &str, writes: bool) -> Receiver<Result<String, Error>> {
        let (reply, receiver) = slot();
        let deadline = self.now + Duration::from_secs(30);
        self.call(Call::Command {
            request: request.to_owned(),
            writes,
            deadline,
            reply,
        });
        receiver
    }
    /// Commands that were sent since the last call.
    fn commands(&mut self) -> Vec<(String, u64)> {
        let mut out = Vec::new();
        self.access.take_outputs(self.now, &mut out);
        let command = |output| match output {
            Output::SendMon {
                message: Message::Command(command),
            } => Some((command.request, command.token)),
            _ => None,
        };
        out.into_iter().filter_map(command).collect()
    }
    fn new_session(&mut self) {
        self.access.on_gone(self.now, MON);
        self.access.on_mon_session(self.now);
    }
}

/// A monitor that is lost may have executed a command: its caller is told so, and the command
/// is not resent. A read-only command is resent; before, its caller waited until its deadline.
/// A command that was never sent is sent in any case.
#[test]
fn a_lost_session_asks_again_what_reads_and_never_what_writes() {
    let mut case = Case::new();
    let (mut looks, mut writes) = (case.command("look", false), case.command("write", true));
    assert_eq!(case.commands().len(), 2);
    case.access.on_gone(case.now, MON);
    let mut later = case.command("later", true);
    let Some(Err(Error::Command(why))) = now(&mut writes) else {
        panic!("it may have happened")
    };
    assert!(why.contains("may or may not have happened"), "{why}");
    assert!(case.commands().is_empty(), "there is no session");
    case.access.on_mon_session(case.now);
    let again = case.commands();
    assert_eq!(
        again
            .iter()
            .map(|(request, _)| request.as_str())
            .collect::<Vec<_>>(),
        ["look", "later"]
    );
    assert!(case.commands().is_empty(), "once");
    assert!(now(&mut looks).is_none() && now(&mut later).is_none());
    for (_, token) in again {
        case.answer(token, Ok("{}"));
    }
    assert!(matches!(
        (now(&mut looks), now(&mut later)),
        (Some(Ok(_)), Some(Ok(_)))
    ));
    // Each new session asks again.
    let mut patient = case.command("look", false);
    for _ in 0..5 {
        assert_eq!(case.commands().len(), 1);
        case.new_session();
    }
    assert_eq!(case.commands().len(), 1);
    case.waits(31_000);
    assert!(
        matches!(now(&mut patient), Some(Err(Error::TimedOut { .. }))),
        "its deadline holds"
    );
    case.new_session();
    assert!(case.commands().is_empty(), "nobody waits for it");
}

/// A key or a command too large for any monitor waited for its deadline, with a monitor and
/// without: here there is no session yet, and each is answered before time passes.
#[test]
fn what_cannot_be_sent_is_refused_at_once() {
    let mut case = Case::new();
    case.access.on_gone(case.now, MON);
    let mut command = case.command(&"x".repeat(CLIENT_BYTES_MAX), false);
    let Some(Err(Error::Command(why))) = now(&mut command) else {
        panic!("it waits")
    };
    assert!(
        why.contains(&format!("at most {CLIENT_BYTES_MAX} ")),
        "{why}"
    );
    let span = || MetaSpan::Key {
        key: Name::copy(&[b'x'; Name::LEN_MAX + 1]),
    };
    let (reply, mut asked) = slot();
    let call = MetaCall::Range {
        span: span(),
        limit: 0,
        keys_only: false,
        serializable: false,
    };
    case.call(Call::Meta {
        call,
        deadline: case.now + Duration::from_secs(30),
        reply,
    });
    assert!(matches!(now(&mut asked), Some(Err(Error::Meta(_)))));
    let sink = Arc::<Sink>::default();
    case.call(Call::MetaWatch {
        span: span(),
        from: 0,
        sink: sink.clone(),
    });
    assert!(
        !sink.push(nacre_client::WatchNews::Events {
            events: Vec::new(),
            through: 1
        }),
        "it has ended"
    );
}

/// The owner of the host uses the client itself, beside callers: each gets its own answer. (A
/// refused fence never ended: its answer was taken for one to a caller.)
#[test]
fn the_owners_answers_are_its_own() {
    let mut case = Case::new();
    let mut looks = case.command("look", false);
    assert_eq!(case.commands().len(), 1);
    let (other, begun) = (ClientId(9), case.now);
    let fence = case.access.client.fence(begun, other, Instance(1));
    let fence = fence.expect("there is room");
    let [(_, token)] = &case.commands()[..] else {
        panic!("one command")
    };
    case.answer(*token, Err("no"));
    case.commands();
    let mut own = Vec::new();
    case.access.completions(&mut own);
    assert_eq!(own.iter().map(|one| one.id).collect::<Vec<_>>(), [fence]);
    assert!(own[0].result.is_err() && now(&mut looks).is_none());

    let mut calls: Vec<Answer> = (0..3).map(|_| case.operate(1)).collect();
    let begun = case.now;
    let operation = Operation {
        pool: PoolId(1),
        ..Operation::default()
    };
    let mine = case.access.client.submit(begun, operation).expect("room");
    case.waits(31_000);
    case.access.client.abandon(mine);
    own.clear();
    case.access.completions(&mut own);
    assert_eq!(own.iter().map(|one| one.id).collect::<Vec<_>>(), [mine]);
    assert!(calls.iter_mut().all(|call| ended(call).is_some()));
}

/// What the client role would refuse waits here: in order, until its deadline, and only as long as
/// its caller does.
#[test]
fn operations_beyond_the_bound_wait_in_order() {
    let config = ClientConfig {
        ops_max: 2,
        ..ClientConfig::new(ClientId(7))
    };
    let mut case = Case::bounded(config).known();
    let mut early: Vec<Answer> = (0..2).map(|_| case.operate(1)).collect();
    drop(case.operate(1));
    early.extend((0..2).map(|_| case.operate(1)));
    let flying = |case: &Case| case.access.running.keys().copied().collect::<Vec<_>>();
    let first = flying(&case);
    assert_eq!((first.len(), case.access.waiting.len()), (2, 3));
    case.waits(10_000);
    let mut late = case.operate(1);
    case.access.client.abandon(first[0]);
    case.commands();
    assert!(ended(&mut early[0]).is_some() && ended(&mut early[1]).is_none());
    assert_eq!((flying(&case).len(), case.access.waiting.len()), (2, 2));
    case.waits(20_500);
    case.commands();
    for early in &mut early[1..] {
        assert!(matches!(ended(early), Some(Err(Error::TimedOut { .. }))));
    }
    assert_eq!((flying(&case).len(), case.access.waiting.len()), (1, 0));
    assert!(ended(&mut late).is_none(), "it is in flight");
}

/// The largest operation goes alone, and smaller ones do not overtake it for ever.
#[test]
fn nothing_overtakes_what_waits_for_room() {
    let config = ClientConfig {
        bytes_max: 1000,
        ..ClientConfig::new(ClientId(7))
    };
    let mut case = Case::bounded(config).known();
    let calls: Vec<Answer> = [800, 2000, 100, 100]
        .map(|bytes| case.carry(1, bytes))
        .into();
    for flying in [1, 1, 2] {
        let ids: Vec<OpId> = case.access.running.keys().copied().collect();
        assert_eq!(ids.len(), flying);
        ids.into_iter()
            .for_each(|id| case.access.client.abandon(id));
        case.commands();
    }
    assert!(calls.into_iter().all(|mut call| ended(&mut call).is_some()));
}

/// Two operations on one object of a pool that the map lacks, and a queue for room that begins
/// between them. The second one joined that queue, and the first one came behind it when the map
/// arrived.
#[test]
fn what_waits_for_a_map_is_not_overtaken_by_what_waits_for_room() {
    let config = ClientConfig {
        ops_max: 1,
        ..ClientConfig::new(ClientId(7))
    };
    let mut case = Case::bounded(config).known();
    let mut first = case.operate(2);
    let others = [case.operate(1), case.operate(1)];
    let mut second = case.operate(2);
    case.sees(2);
    drop(others);
    let mut ends = Vec::new();
    for _ in 0..3 {
        let flying: Vec<OpId> = case.access.running.keys().copied().collect();
        assert_eq!(flying.len(), 1, "the bound");
        case.access.client.abandon(flying[0]);
        case.access.take_outputs(case.now, &mut Vec::new());
        ends.push((ended(&mut first).is_some(), ended(&mut second).is_some()));
    }
    assert_eq!(ends, [(false, false), (true, false), (false, true)]);
}

/// An operation whose caller gave up is neither kept nor resent.
#[test]
fn an_operation_whose_caller_gave_up_leaves_nothing() {
    let mut case = Case::new();
    let mut calls: Vec<Answer> = (0..100).map(|_| case.operate(1)).collect();
    assert_eq!(
        (case.access.client.in_flight(), case.access.running.len()),
        (100, 100)
    );
    case.waits(31_000);
    assert!(
        calls
            .iter_mut()
            .all(|call| matches!(ended(call), Some(Err(Error::TimedOut { .. }))))
    );
    case.commands();
    assert_eq!(
        (case.access.client.in_flight(), case.access.running.len()),
        (0, 0)
    );
}

/// A watch exists for its watcher. If the watcher is dropped before the registration completes,
/// nothing else would end the watch.
#[test]
fn a_watch_that_nobody_hears_ends() {
    let mut case = Case::new();
    let watch = |case: &mut Case| {
        let ((reply, receiver), hearing) = (slot(), Arc::<Hearing>::default());
        let (deadline, timeout) = (case.now + Duration::from_secs(30), Duration::from_secs(60));
        let (pool, object) = (PoolId(1), ObjectId::named("a"));
        case.call(Call::Watch {
            pool,
            object,
            timeout,
            deadline,
            hearing: hearing.clone(),
            reply,
        });
        (receiver, hearing)
    };
    let (_kept, _heard) = watch(&mut case);
    drop(watch(&mut case));
    assert_eq!(case.access.watching.len(), 2);
    case.waits(32_000);
    let heard = case
        .access
        .watching
        .values()
        .filter(|hearing| Arc::strong_count(hearing) == 1)
        .count();
    assert_eq!(heard, 0, "it is kept for nobody");
}

// A client whose first map came from a lagging monitor answered at once that there was no such
// pool.
#[test]
fn a_pool_that_an_old_map_lacks_is_asked_for_and_waited_for() {
    let mut case = Case::new();
    let (mut first, mut second) = (case.operate(2), case.operate(2));
    let questions = case.questions();
    assert_eq!(questions.len(), 1, "one question for both");
    case.answer(questions[0], Ok(r#"{"pools": [{"id": 1}, {"id": 2}]}"#));
    case.waits(1000);
    assert!(
        ended(&mut first).is_none() && ended(&mut second).is_none(),
        "the map is on its way"
    );
    assert_eq!(case.questions(), [] as [u64; 0]);
    case.sees(2);
    assert_eq!(case.access.client.in_flight(), 2);
}

/// `nacre class install` was answered, and `nacre class exec` right after it reported that
/// there was no such class: neither its monitor nor the OSD had received the change yet.
#[test]
fn a_client_begins_nothing_with_a_map_from_before_it_came() {
    let mut case = Case::stranger();
    let question = case.questions()[0];
    let (mut early, (reply, mut map)) = (case.operate(1), slot());
    let deadline = case.now + Duration::from_secs(30);
    case.call(Call::Map {
        at_least: Epoch::NONE,
        deadline,
        reply,
    });
    case.sees(1);
    assert_eq!(
        (case.access.client.in_flight(), now(&mut map).is_none()),
        (0, true),
        "it is not known to be new"
    );
    case.answer(
        question,
        Ok(r#"{"pools": [{"id": 1}, {"id": 2}], "epoch": 2}"#),
    );
    assert_eq!(
        (case.access.client.in_flight(), now(&mut map).is_none()),
        (0, true),
        "it is old"
    );
    case.sees(2);
    assert!(ended(&mut early).is_none());
    assert_eq!(
        (case.access.client.in_flight(), now(&mut map).is_some()),
        (1, true)
    );
    case.new_session();
    assert_eq!(case.questions(), [] as [u64; 0], "it has come before");
}

/// Objects can be read without a majority of monitors, also by a client that connects then, or
/// that connects to a monitor cut off from the others.
#[test]
fn a_client_that_comes_when_nobody_leads_goes_on_with_what_it_has() {
    for answer in [
        None,
        Some(Err("no monitor majority")),
        Some(Ok(r#"{"pools": [{"id": 1}], "epoch": 2}"#)),
    ] {
        let mut case = Case::stranger();
        let (question, _call) = (case.questions()[0], case.operate(1));
        case.sees(1);
        if let Some(answer) = answer {
            case.answer(question, answer);
        }
        assert_eq!(case.access.client.in_flight(), 0);
        case.waits(2_500);
        assert_eq!(case.access.client.in_flight(), 1);
    }
}

/// A pool was created and then used while the answer that it did not exist was in flight.
#[test]
fn a_pool_that_is_asked_for_after_a_question_is_not_judged_by_its_answer() {
    let mut case = Case::new();
    let mut first = case.operate(2);
    let question = case.questions()[0];
    case.now = case.now + Duration::from_millis(1);
    let mut second = case.operate(2);
    case.answer(question, Ok(r#"{"pools": [{"id": 1}], "epoch": 1}"#));
    assert!(matches!(
        ended(&mut first),
        Some(Err(Error::NoSuchPool { .. }))
    ));
    assert!(ended(&mut second).is_none());
    assert_eq!(case.questions().len(), 1, "it is asked for again");
}

#[test]
fn a_pool_that_the_monitors_do_not_know_does_not_exist() {
    let mut case = Case::new();
    let (mut gone, mut there) = (case.operate(3), case.operate(2));
    let question = case.questions()[0];
    case.answer(question, Ok(r#"{"pools": [{"id": 1}, {"id": 2}]}"#));
    assert!(matches!(
        ended(&mut gone),
        Some(Err(Error::NoSuchPool { .. }))
    ));
    assert!(ended(&mut there).is_none());
}

#[test]
fn without_a_majority_it_is_asked_again_until_the_callers_deadline() {
    let mut case = Case::new();
    let mut call = case.operate(2);
    for _ in 0..20 {
        for question in case.questions() {
            case.answer(question, Err("no monitor majority"));
        }
        case.waits(1000);
        assert!(ended(&mut call).is_none());
    }
    assert_eq!(case.questions().len(), 1);
    case.waits(15_000);
    let Some(Err(Error::TimedOut { waits_for, .. })) = ended(&mut call) else {
        panic!("its deadline has passed")
    };
    assert_eq!(waits_for, OLD_MAP);
}

/// (Planted by a reviewer: it was reported as a definite refusal.) A write was sent twice, and
/// the second sending was refused because the queue was full: the first may have been executed.
#[test]
fn a_doubtful_refusal_stays_doubtful() {
    use nacre_types::OsdId;
    use nacre_wire::map::Address;
    use nacre_wire::msg::client::{OpFailure, OpReply, OpRequest};
    let text = "device 0 osd.0\ntype 0 osd\ntype 1 root\nroot default { id -1 alg straw2 item osd.0 weight 1 }\n\
        rule r { id 0 type replicated min_size 1 max_size 10 step take default step choose firstn 0 type osd step emit }\n";
    let mut map = ClusterMap::empty(
        ClusterId(1),
        CrushSection::parse(text).expect("well-formed"),
    );
    let (osd, store, address) = (OsdId(0), 1, Address("o0".into()));
    let changes = vec![
        Change::OsdNew { osd, store },
        Change::OsdUp {
            osd,
            instance: Instance(1),
            address,
            store,
            features: 0,
            process: 1,
        },
        Change::PoolSet {
            pool: PoolId(1),
            settings: Pool::replicated("p1".into(), 1, 1, 1),
        },
    ];
    // Newer than the map that the client has.
    for changes in [
        vec![Change::Flags { flags: 0 }],
        vec![Change::Flags { flags: 1 }],
        changes,
    ] {
        map.apply(&map.delta(changes)).expect("the next delta");
    }
    for again in [false, true] {
        let mut case = Case::new();
        let full = MapFull {
            map: map.to_bytes().into(),
        };
        case.access
            .on_message(case.now, MON, map.epoch, Message::MapFull(full));
        let (reply, mut answer) = slot();
        let ops = vec![SubOp::WriteFull { length: 0 }];
        let operation = Operation {
            pool: PoolId(1),
            ops,
            ..Operation::default()
        };
        let deadline = case.now + Duration::from_secs(30);
        case.call(Call::Operate {
            operation,
            deadline,
            reply,
        });
        let sent = |case: &mut Case| -> Option<OpRequest> {
            let mut out = Vec::new();
            case.access.take_outputs(case.now, &mut out);
            out.into_iter().find_map(|output| match output {
                Output::Send {
                    message: Message::OpRequest(request, _),
                    ..
                } => Some(request),
                _ => None,
            })
        };
        let mut request = sent(&mut case).expect("it is sent");
        if again {
            case.access.on_gone(case.now, Entity::Osd(osd));
            request = sent(&mut case).expect("and again");
        }
        let failure = Some(OpFailure::Full {});
        let (version, results) = (Default::default(), Vec::new());
        let refused = OpReply {
            request: request.request,
            failure,
            version,
            results,
            attempt: request.attempt,
        };
        case.access.on_message(
            case.now,
            Entity::Osd(osd),
            map.epoch,
            Message::OpReply(refused, Vec::new()),
        );
        let mut out = Vec::new();
        case.access.take_outputs(case.now, &mut out);
        match now(&mut answer) {
            Some(Err(Error::Doubtful(OpFailure::Full {}))) if again => {}
            Some(Err(Error::Refused(OpFailure::Full {}))) if !again => {}
            other => panic!("{other:?}"),
        }
    }
}
