//! Tests: services that talk to each other, each a client of the cluster, over real connections.

use super::{NodeParts, Reactor};
use crate::any_role::{AnyRole, AnyService};
use crate::wake::Waker;
use crate::{clock, net};
use nacre_client::{ClientConfig, Metadata, ObjectCluster, Placed, Served, Service};
use nacre_role::{Input, Output};
use nacre_types::{ClientId, ClusterId, Entity, Instance, Time};
use nacre_wire::Message;
use nacre_wire::map::Address;
use nacre_wire::msg::replication::Ping;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Known = (Vec<String>, Vec<Output>, Option<Instance>);

/// Messages received by a service, as text, its pending orders, and its instance.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Known>>);

impl Shared {
    fn heard(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("one thread").0)
    }
    fn order(&self, outputs: impl IntoIterator<Item = Output>) {
        self.0.lock().expect("one thread").1.extend(outputs);
    }
}

/// Answers each odd stamp with the next even one.
struct Talker(Shared);

impl Service for Talker {
    fn on_turn(
        &mut self,
        _: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        _: &mut dyn ObjectCluster,
        _: &mut dyn Metadata,
        out: &mut Vec<Output>,
    ) {
        let mut shared = self.0.0.lock().expect("one thread");
        for input in inputs {
            match input {
                Input::Message {
                    from,
                    message: Message::Ping(Ping { stamp }),
                    ..
                } => {
                    shared.0.push(format!("{stamp} of {from}"));
                    if stamp % 2 == 1 {
                        out.push(Output::send(from, ping(stamp + 1)));
                    }
                }
                Input::Gone(who) => shared.0.push(format!("{who} is gone")),
                Input::Absent(who) => shared.0.push(format!("{who} is absent")),
                Input::Named(who, name) => shared.0.push(format!("{who} is {name}")),
                Input::Tick => {}
                other => panic!("{other:?}"),
            }
        }
        out.append(&mut shared.1);
    }
    /// Orders are due at once.
    fn next_deadline(&self) -> Time {
        Time::ZERO
    }
    fn instance(&self) -> Option<Instance> {
        self.0.0.lock().expect("one thread").2
    }
}

fn ping(stamp: u64) -> Message {
    Message::Ping(Ping { stamp })
}

/// Like a separate process, except for the thread.
struct Process {
    reactor: Reactor,
    me: Entity,
    shared: Shared,
}

impl Process {
    /// With a listener, or without.
    fn new(id: u64, name: &str, listens: Option<&str>) -> Self {
        let waker = Arc::new(Waker::new().expect("an event counter"));
        let mut reactor =
            Reactor::new(ClusterId(1), BTreeMap::new(), waker, 0).expect("an event queue");
        let (id, shared) = (ClientId(id), Shared::default());
        let service: Box<dyn Service + Send> = Box::new(Talker(shared.clone()));
        let role: AnyService =
            Placed::Ours(Served::new(service, ClientConfig::new(id), clock::now()));
        let (entity, role) = (Entity::Client(id), AnyRole::Service(Box::new(role)));
        let listener = listens.map(|at| {
            (
                net::listen("test", at).expect("free"),
                Address(at.to_owned()),
            )
        });
        let parts = NodeParts {
            entity,
            role,
            begun: Vec::new(),
            name: name.into(),
            store: None,
            listener,
        };
        reactor.add(parts).expect("no device, no thread");
        Self {
            reactor,
            me: entity,
            shared,
        }
    }
    fn turn(&mut self) {
        self.reactor.turn(Duration::ZERO);
    }
}

fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").to_string()
}

/// Runs all until the first one has received something; returns that.
fn until_heard(all: &mut [&mut Process]) -> Vec<String> {
    let begun = clock::now();
    loop {
        all.iter_mut().for_each(|process| process.turn());
        let heard = all[0].shared.heard();
        if !heard.is_empty() {
            return heard;
        }
        assert!(
            clock::now().since(begun) < Duration::from_secs(60),
            "nothing is heard"
        );
    }
}

/// A service finds a peer that is in no map by its own metadata, receives its answers and its end,
/// and continues with its successor at the same address.
#[test]
fn a_service_finds_its_peers_where_it_was_told() {
    let (first, second) = (free_address(), free_address());
    let mut client = Process::new(7, "anna", None);
    let mut server = Process::new(1, "server", Some(&first));
    let peer = server.me;

    client.shared.order([Output::send(peer, ping(1))]);
    for _ in 0..10 {
        client.turn();
    }
    // It is dropped: the address is not known.
    let meet = |peer, at: &str| Output::Meet {
        peer,
        address: Address(at.to_owned()),
    };
    client.shared.order([
        meet(peer, &first),
        Output::send(peer, ping(3)),
        Output::send(peer, ping(5)),
    ]);
    let mut heard = until_heard(&mut [&mut client, &mut server]);
    while heard.len() < 2 {
        heard.extend(until_heard(&mut [&mut client, &mut server]));
    }
    assert_eq!(heard, ["4 of client.1", "6 of client.1"]);
    assert_eq!(
        server.shared.heard(),
        ["client.7 is anna", "3 of client.7", "5 of client.7"]
    );

    // The server sends a message unasked, on the existing connection.
    server.shared.order([Output::send(client.me, ping(8))]);
    assert_eq!(
        until_heard(&mut [&mut client, &mut server]),
        ["8 of client.1"]
    );

    drop(server);
    assert_eq!(until_heard(&mut [&mut client]), ["client.1 is gone"]);
    // It is retried a while later, and reported as absent each time.
    let begun = clock::now();
    while client.shared.0.lock().expect("one thread").0.is_empty() {
        client.shared.order([Output::send(peer, ping(9))]);
        client.turn();
        assert!(
            clock::now().since(begun) < Duration::from_secs(60),
            "it is not dialed"
        );
    }
    assert_eq!(client.shared.heard(), ["client.1 is absent"]);

    let mut next = Process::new(2, "server", Some(&second));
    client.shared.order([
        meet(peer, ""),
        meet(next.me, &second),
        Output::send(next.me, ping(11)),
    ]);
    assert_eq!(
        until_heard(&mut [&mut client, &mut next]),
        ["12 of client.2"]
    );
    // Forgotten is not absent: absence would be reported at once.
    std::thread::sleep(Duration::from_millis(600));
    client.shared.order([
        Output::send(peer, ping(13)),
        Output::send(next.me, ping(15)),
    ]);
    assert_eq!(
        until_heard(&mut [&mut client, &mut next]),
        ["16 of client.2"]
    );
}

/// If another daemon listens at the address, nothing is sent to it.
#[test]
fn a_peer_that_is_not_where_it_was_is_not_taken_for_another() {
    let address = free_address();
    let mut client = Process::new(7, "anna", None);
    let mut other = Process::new(2, "server", Some(&address));
    let peer = Entity::Client(ClientId(1));
    client.shared.order([
        Output::Meet {
            peer,
            address: Address(address),
        },
        Output::send(peer, ping(1)),
    ]);
    let begun = clock::now();
    while clock::now().since(begun) < Duration::from_millis(200) {
        client.turn();
        other.turn();
    }
    assert_eq!(
        (client.shared.heard(), other.shared.heard()),
        (vec![], vec![])
    );
    other.shared.order([Output::send(client.me, ping(2))]);
    let begun = clock::now();
    while clock::now().since(begun) < Duration::from_millis(200) {
        other.turn();
        client.turn();
    }
    assert_eq!(
        client.shared.heard(),
        [] as [String; 0],
        "there is no connection"
    );
}

/// A client that continues as a later instance: its messages are sent on a connection of that
/// instance, and its peers see that the previous one ended, in another process and in its own.
#[test]
fn a_later_instance_has_connections_of_its_own() {
    let address = free_address();
    let mut client = Process::new(7, "anna", None);
    let mut server = Process::new(1, "server", Some(&address));
    let (beside, service) = (ClientId(8), Shared::default());
    let talker: Box<dyn Service + Send> = Box::new(Talker(service.clone()));
    let role: AnyService =
        Placed::Ours(Served::new(talker, ClientConfig::new(beside), clock::now()));
    let (entity, role) = (Entity::Client(beside), AnyRole::Service(Box::new(role)));
    let parts = NodeParts {
        entity,
        role,
        begun: Vec::new(),
        name: "bert".into(),
        store: None,
        listener: None,
    };
    client.reactor.add(parts).expect("no device, no thread");
    let peer = server.me;
    let instance = |server: &Process| {
        let conns: Vec<_> = server
            .reactor
            .conns
            .iter()
            .flatten()
            .filter_map(|conn| conn.peer)
            .collect();
        assert_eq!(conns.len(), 1, "one connection");
        conns[0]
    };
    client.shared.order([
        Output::Meet {
            peer,
            address: Address(address),
        },
        Output::send(peer, ping(1)),
    ]);
    assert_eq!(
        until_heard(&mut [&mut client, &mut server]),
        ["2 of client.1"]
    );
    assert_eq!(instance(&server), (client.me, Instance(1)));
    client.shared.order([Output::send(entity, ping(1))]);
    assert_eq!(until_heard(&mut [&mut client]), ["2 of client.8"]);
    server.shared.heard();
    service.heard();

    client.shared.0.lock().expect("one thread").2 = Some(Instance(2));
    client
        .shared
        .order([Output::send(peer, ping(3)), Output::send(entity, ping(4))]);
    let mut heard = until_heard(&mut [&mut client, &mut server]);
    while heard.len() < 2 {
        heard.extend(until_heard(&mut [&mut client, &mut server]));
    }
    assert_eq!(heard, ["client.1 is gone", "4 of client.1"]);
    assert_eq!(
        server.shared.heard(),
        ["client.7 is gone", "client.7 is anna", "3 of client.7"]
    );
    assert_eq!(service.heard(), ["client.7 is gone", "4 of client.7"]);
    assert_eq!(instance(&server), (client.me, Instance(2)));
}
