//! A service as a role: the test plays OSDs, monitors and the service's peers.

use crate::rig::{ME, Rig, config};
use nacre_client::{
    Completion, MetaDone, MetaWatchId, Metadata, ObjectCluster, Operation, Served, Service,
    WatchNews,
};
use nacre_role::{Input, Output, Role};
use nacre_types::{ClientId, Entity, Epoch, Instance, MonId, Name, ObjectId, OsdId, PoolId, Time};
use nacre_wire::msg::client::{OpReply, SubOp, SubReply};
use nacre_wire::msg::meta::{MetaCall, MetaEvent, MetaEvents, MetaReply, MetaResult, MetaSpan};
use nacre_wire::msg::monitor::MapFull;
use nacre_wire::msg::replication::Ping;
use nacre_wire::{Message, Wire};
use std::time::Duration;

const MON: Entity = Entity::Mon(MonId(0));
const PEER: Entity = Entity::Client(ClientId(3));

/// Records its inputs, turn by turn, and performs prepared actions.
#[derive(Default)]
struct Noting {
    turns: Vec<Vec<String>>,
    operation: Option<Operation>,
    call: Option<MetaCall>,
    watch: Option<MetaSpan>,
    deadline: Option<Time>,
    out: Vec<Output>,
    refused: u32,
    instance: Option<Instance>,
    fence: Option<(Entity, Instance)>,
}

impl Service for Noting {
    fn on_turn(
        &mut self,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        objects: &mut dyn ObjectCluster,
        metadata: &mut dyn Metadata,
        out: &mut Vec<Output>,
    ) {
        let word = |input| match input {
            Input::Message { from, message, .. } => format!("{} of {from}", message.name()),
            Input::Gone(who) => format!("{who} gone"),
            Input::Absent(who) => format!("{who} absent"),
            Input::Named(who, name) => format!("{who} named {name}"),
            Input::Tick => "tick".to_owned(),
            Input::Stopping => "stopping".to_owned(),
            other => format!("{other:?}"),
        };
        let mut heard: Vec<String> = inputs.map(word).collect();
        let (mut ended, mut done, mut news) = (Vec::new(), Vec::new(), Vec::new());
        objects.completions(&mut ended);
        metadata.done(&mut done);
        metadata.news(&mut news);
        heard.extend(
            ended
                .iter()
                .map(|Completion { result, .. }| format!("object {}", result.is_ok())),
        );
        heard.extend(
            done.iter()
                .map(|MetaDone { result, .. }| format!("meta {}", result.is_ok())),
        );
        heard.extend(news.iter().map(|(MetaWatchId(watch), news)| match news {
            WatchNews::Events { events, .. } => format!("watch {watch}: {}", events.len()),
            WatchNews::Ended(_) => format!("watch {watch} ended"),
        }));
        self.turns.push(heard);
        if let Some(operation) = self.operation.take()
            && objects.submit(now, operation.clone()).is_err()
        {
            (self.operation, self.refused) = (Some(operation), self.refused + 1);
        }
        if let Some(call) = self.call.take() {
            metadata.submit(now, call).expect("room");
        }
        if let Some((Entity::Client(client), instance)) = self.fence.take() {
            objects.fence(now, client, instance).expect("room");
        }
        if let Some(span) = self.watch.take() {
            metadata.watch(span, 0);
        }
        out.append(&mut self.out);
    }
    fn next_deadline(&self) -> Time {
        self.deadline.unwrap_or(Time::MAX)
    }
    fn instance(&self) -> Option<Instance> {
        self.instance
    }
}

struct Host {
    role: Served<Noting>,
    now: Time,
}

impl Host {
    fn new() -> Self {
        let now = Time(1_000_000_000);
        Self {
            role: Served::new(Noting::default(), config(), now),
            now,
        }
    }
    /// With a session and a map.
    fn connected() -> Self {
        let mut host = Self::new();
        host.turn([Input::MonSession, map()]);
        host.role.service.turns.clear();
        host
    }
    fn turn<const N: usize>(&mut self, inputs: [Input; N]) -> Vec<Output> {
        let mut out = Vec::new();
        self.role
            .on_turn(self.now, &mut inputs.into_iter(), &mut out);
        out
    }
    fn turns(&mut self) -> Vec<Vec<String>> {
        std::mem::take(&mut self.role.service.turns)
    }
}

fn message(from: Entity, message: Message) -> Input {
    Input::Message {
        from,
        epoch: Epoch(1),
        message,
    }
}
fn map() -> Input {
    message(
        MON,
        Message::MapFull(MapFull {
            map: Rig::new().map.to_bytes().into(),
        }),
    )
}
fn stat() -> Operation {
    let object = ObjectId::named("a");
    Operation {
        pool: PoolId(1),
        object,
        ops: vec![SubOp::Stat {}],
        ..Operation::default()
    }
}
fn range(key: Name) -> MetaCall {
    MetaCall::Range {
        span: MetaSpan::Key { key },
        limit: 0,
        keys_only: false,
        serializable: false,
    }
}

/// The service gets its own inputs in order and in one turn, and none of the cluster's.
pub fn a_service_hears_its_peers_and_nothing_of_the_substrate() {
    let mut host = Host::connected();
    let ping = |from| message(from, Message::Ping(Ping { stamp: 1 }));
    let (osd, gone) = (Entity::Osd(OsdId(0)), Input::Gone);
    host.turn([
        Input::Named(PEER, "anna".into()),
        ping(PEER),
        ping(osd),
        ping(MON),
        gone(osd),
        gone(PEER),
    ]);
    host.turn([
        Input::Absent(osd),
        Input::Absent(PEER),
        gone(MON),
        Input::MonSession,
        Input::Tick,
        Input::Stopping,
    ]);
    assert_eq!(
        host.turns(),
        [
            vec!["client.3 named anna", "Ping of client.3", "client.3 gone"],
            vec!["client.3 absent", "tick", "stopping"]
        ]
    );
}

/// An answer and its consequences share one turn: the operation begins, ends, and its end is
/// reported.
pub fn what_objects_and_metadata_say_is_there_in_the_turn_in_which_it_came() {
    let mut host = Host::connected();
    host.role.service.operation = Some(stat());
    host.role.service.call = Some(range("k".into()));
    host.role.service.watch = Some(MetaSpan::Prefix {
        prefix: "fs/".into(),
    });
    host.role
        .service
        .out
        .push(Output::send(PEER, Message::Ping(Ping { stamp: 5 })));
    let out = host.turn([]);
    let (mut request, mut asked, mut others) = (None, None, Vec::new());
    for output in out {
        match output {
            Output::Send {
                to,
                message: Message::OpRequest(it, _),
                ..
            } => request = Some((to, it)),
            Output::SendMon {
                message: Message::MetaRequest(it),
            } => asked = Some(it),
            Output::SendMon { message } => others.push(message.name().to_owned()),
            Output::Send { to, message, .. } => others.push(format!("{} to {to}", message.name())),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(others, ["Ping to client.3", "MetaWatch"]);
    let ((osd, request), asked) = (request.expect("sent"), asked.expect("sent"));
    assert_eq!(request.request.client, ME);
    let results = vec![SubReply::Done {}];
    let version = nacre_types::Version::NONE;
    let reply = OpReply {
        request: request.request,
        failure: None,
        version,
        results,
        attempt: request.attempt,
    };
    let answer = MetaResult::Ranged {
        pairs: Vec::new(),
        more: false,
    };
    let meta = MetaReply {
        instance: asked.instance,
        sequence: asked.sequence,
        revision: 9,
        result: answer,
    };
    let event = MetaEvents::encode(&[MetaEvent::Delete {
        key: "fs/a".into(),
        revision: 10,
    }]);
    let events = Message::MetaEvents(
        MetaEvents {
            watch: 1,
            after: 9,
            through: 10,
        },
        vec![event],
    );
    host.turns();
    host.turn([
        message(osd, Message::OpReply(reply, Vec::new())),
        message(MON, Message::MetaReply(meta)),
        message(MON, events),
    ]);
    assert_eq!(host.turns(), [["object true", "meta true", "watch 1: 1"]]);
}

/// Without a map nothing can begin; the map causes a turn, and then it does.
pub fn what_is_refused_for_want_of_a_map_begins_when_there_is_one() {
    let mut host = Host::new();
    host.role.service.operation = Some(stat());
    assert!(host.role.map().is_none());
    host.turn([Input::MonSession]);
    assert_eq!(host.role.service.refused, 1);
    let out = host.turn([map()]);
    let begun = |output: &Output| {
        matches!(
            output,
            Output::Send {
                message: Message::OpRequest(..),
                ..
            }
        )
    };
    assert!(
        out.iter().any(begun) && host.role.service.refused == 1,
        "{out:?}"
    );
    assert_eq!(host.role.epoch(), Rig::new().map.epoch);
}

/// A request that no monitor can decode ends as soon as it is begun, after its service has had its
/// turn. It used to wait until something else arrived.
pub fn what_ends_as_it_is_begun_is_told_in_a_turn_of_its_own() {
    let mut host = Host::connected();
    host.role.service.call = Some(range(Name::copy(&vec![b'x'; Name::LEN_MAX + 1])));
    host.turn([]);
    assert_eq!(
        (host.turns(), host.role.next_deadline()),
        (vec![vec![]], Time::ZERO),
        "at once"
    );
    host.turn([Input::Tick]);
    assert_eq!(host.turns(), [["tick", "meta false"]]);
    assert_eq!(host.role.next_deadline(), Time::MAX);
}

/// The earliest of the three deadlines counts. (Found by the host's test.) A service with many
/// deadlines made its client ask for the map at each of them.
pub fn the_services_deadlines_are_no_ones_else() {
    let mut host = Host::new();
    host.turn([]);
    let first = host.role.next_deadline();
    assert!(
        first > host.now && first < Time::MAX,
        "it waits for its map"
    );
    host.role.service.deadline = Some(Time(first.0 - 1));
    assert_eq!(host.role.next_deadline(), Time(first.0 - 1));
    host.now = Time(first.0 - 1);
    assert!(
        host.turn([Input::Tick]).is_empty(),
        "it is not the client's"
    );
    host.role.service.deadline = Some(first + Duration::from_secs(9));
    (host.now, _) = (first, host.turns());
    let asked = |output: &Output| {
        matches!(
            output,
            Output::SendMon {
                message: Message::Subscribe(_)
            }
        )
    };
    assert!(host.turn([Input::Tick]).iter().any(asked));

    let mut host = Host::connected();
    host.role.service.call = Some(range("k".into()));
    host.turn([]);
    let due = host.role.next_deadline();
    host.now = due;
    let again = |output: &Output| {
        matches!(
            output,
            Output::SendMon {
                message: Message::MetaRequest(_)
            }
        )
    };
    assert!(
        due < Time::MAX && host.turn([Input::Tick]).iter().any(again),
        "sent again"
    );
}

/// After a fence it continues as the next instance: everything begun has an end, its object client
/// uses the new instance, and answers to the former one are ignored.
pub fn a_service_goes_on_as_a_later_instance() {
    let requests = |out: Vec<Output>| {
        let request = |output| match output {
            Output::Send {
                to,
                message: Message::OpRequest(request, _),
                ..
            } => Some((to, request)),
            _ => None,
        };
        out.into_iter().filter_map(request).collect::<Vec<_>>()
    };
    let mut host = Host::connected();
    host.role.service.operation = Some(stat());
    host.role.service.call = Some(range("k".into()));
    let sent = requests(host.turn([]));
    let [(osd, first)] = &sent[..] else {
        panic!("{sent:?}")
    };
    // Begun in the turn that changes the instance: it is not sent at all.
    host.role.service.operation = Some(stat());
    host.role.service.instance = Some(Instance(2));
    let out = host.turn([]);
    assert!(
        out.iter().any(|output| matches!(
            output,
            Output::SendMon {
                message: Message::Subscribe(_)
            }
        )),
        "{out:?}"
    );
    assert_eq!(
        (
            requests(out),
            host.role.instance(),
            host.role.next_deadline()
        ),
        (vec![], Instance(2), Time::ZERO)
    );
    assert!(host.role.map().is_some(), "what it knows it knows");
    host.turns();
    host.role.service.operation = Some(stat());
    let sent = requests(host.turn([]));
    assert_eq!(host.turns(), [["object false", "object false"]]);
    let [(_, next)] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!(
        (first.request.instance, next.request.instance),
        (Instance(1), Instance(2))
    );
    assert!(
        next.request.sequence > first.request.sequence + 1,
        "numbers go on"
    );
    let reply = |request| {
        let (version, results) = (nacre_types::Version::NONE, vec![SubReply::Done {}]);
        message(
            *osd,
            Message::OpReply(
                OpReply {
                    request,
                    failure: None,
                    version,
                    results,
                    attempt: 1,
                },
                Vec::new(),
            ),
        )
    };
    let stale = nacre_wire::msg::client::RequestId {
        instance: Instance(1),
        ..next.request
    };
    host.turn([reply(first.request), reply(stale)]);
    host.turn([reply(next.request)]);
    assert_eq!(host.turns(), [vec![], vec!["object true".to_owned()]]);
    // Monitors do not fence: unanswered requests are resent over the next session.
    let out = host.turn([Input::Gone(MON), Input::MonSession]);
    assert!(
        out.iter().any(|output| matches!(
            output,
            Output::SendMon {
                message: Message::MetaRequest(_)
            }
        )),
        "{out:?}"
    );
    host.turn([]);
    assert_eq!(requests(host.turn([])), [], "it is said once");
}

/// Fences end as well.
pub fn fences_of_a_former_instance_end() {
    let mut host = Host::connected();
    host.role.service.fence = Some((PEER, Instance(4)));
    let command = |out: &[Output]| {
        out.iter().any(|output| {
            matches!(
                output,
                Output::SendMon {
                    message: Message::Command(_)
                }
            )
        })
    };
    assert!(command(&host.turn([])));
    host.role.service.instance = Some(Instance(2));
    host.turn([]);
    host.turns();
    host.turn([]);
    assert_eq!(host.turns(), [["object false"]]);
}
