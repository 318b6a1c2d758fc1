//! A service on another engine's client: the test is that engine.
#![allow(
    clippy::disallowed_types,
    reason = "engines can be sent to another thread"
)]

use nacre_client::{
    Beside, Capabilities, Completion, Engine, Failure, MetaDone, MetaId, MetaWatchId, Metadata,
    ObjectCluster, OpId, Operation, Placed, Refused, Service, WatchNews,
};
use nacre_role::{Input, Output, Role};
use nacre_types::{ClientId, Entity, Epoch, Instance, OsdId, Time};
use nacre_wire::Message;
use nacre_wire::msg::meta::{MetaCall, MetaSpan};
use nacre_wire::msg::replication::Ping;
use std::sync::{Arc, Mutex, MutexGuard};

/// Records the engine's inputs, and holds its outputs.
#[derive(Default)]
struct World {
    /// Results of its threads, not taken yet.
    heard: u64,
    done: Vec<Completion>,
    ended: u64,
    instance: Instance,
    /// Operations end as soon as they are submitted.
    at_once: bool,
    next: u64,
    said: Vec<String>,
}
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<World>>);
impl Fake {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().expect("one thread")
    }
}
impl ObjectCluster for Fake {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }
    fn submit(&mut self, _: Time, _: Operation) -> Result<OpId, Refused> {
        let mut world = self.world();
        world.next += 1;
        let id = OpId(world.next);
        if world.at_once {
            world.ended += 1;
            world.done.push(Completion {
                id,
                result: Err(Failure::NoSuchPool),
            });
        }
        Ok(id)
    }
    fn completions(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.world().done);
    }
}
impl Metadata for Fake {
    fn submit(&mut self, _: Time, _: MetaCall) -> Option<MetaId> {
        None
    }
    fn abandon(&mut self, _: MetaId) {}
    fn done(&mut self, _: &mut Vec<MetaDone>) {}
    fn watch(&mut self, _: MetaSpan, _: u64) -> MetaWatchId {
        MetaWatchId(1)
    }
    fn cancel(&mut self, _: MetaWatchId) {}
    fn news(&mut self, _: &mut Vec<(MetaWatchId, WatchNews)>) {}
}
struct FakeEngine(Fake, Fake);
impl Engine for FakeEngine {
    fn is_ready(&self) -> bool {
        self.0.world().heard > 0
    }
    fn listen(&mut self) {
        let mut world = self.0.world();
        for _ in 0..std::mem::take(&mut world.heard) {
            world.ended += 1;
            world.done.push(Completion {
                id: OpId(9),
                result: Err(Failure::Unknown),
            });
        }
    }
    fn parts(&mut self) -> (&mut dyn ObjectCluster, &mut dyn Metadata) {
        (&mut self.0, &mut self.1)
    }
    fn ended(&self) -> u64 {
        self.0.world().ended
    }
    fn instance(&self) -> Instance {
        self.0.world().instance
    }
    fn begin_again(&mut self, instance: Instance) {
        let mut world = self.0.world();
        (world.instance, world.ended) = (instance, world.ended + 1);
        world.done.push(Completion {
            id: OpId(1),
            result: Err(Failure::Unknown),
        });
    }
    fn epoch(&self) -> Epoch {
        Epoch(7)
    }
    fn said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.0.world().said)
    }
}

#[derive(Default)]
struct Noting {
    turns: Vec<(usize, usize)>,
    submits: bool,
    instance: Option<Instance>,
}
impl Service for Noting {
    fn on_turn(
        &mut self,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        objects: &mut dyn ObjectCluster,
        _: &mut dyn Metadata,
        _: &mut Vec<Output>,
    ) {
        let mut ended = Vec::new();
        objects.completions(&mut ended);
        self.turns.push((inputs.count(), ended.len()));
        if std::mem::take(&mut self.submits) {
            objects.submit(now, Operation::default()).expect("room");
        }
    }
    fn next_deadline(&self) -> Time {
        Time(100)
    }
    fn instance(&self) -> Option<Instance> {
        self.instance
    }
}

fn placed(service: Noting) -> (Placed<Noting>, Fake) {
    let fake = Fake::default();
    (
        Placed::Other(Beside::new(
            service,
            Box::new(FakeEngine(fake.clone(), Fake::default())),
        )),
        fake,
    )
}
fn turn(role: &mut Placed<Noting>, input: Option<Input>) -> Vec<Output> {
    let mut out = Vec::new();
    role.on_turn(Time(1), &mut input.into_iter(), &mut out);
    out
}

/// After its engine has produced something, a service has a turn that includes it; only clients are
/// accepted as peers.
pub fn what_an_engine_says_is_there_in_the_turn_for_which_it_wakes() {
    let (mut role, fake) = placed(Noting::default());
    assert!(!role.has_calls() && !role.has_monitors() && role.next_deadline() == Time(100));
    fake.world().heard = 2;
    assert!(role.has_calls() && role.next_deadline() == Time::ZERO);
    fake.world().said.push("no cluster yet".to_owned());
    let out = turn(&mut role, None);
    assert!(
        matches!(&out[..], [Output::Say(line)] if line == "no cluster yet"),
        "{out:?}"
    );
    assert!(!role.has_calls() && role.next_deadline() == Time(100));
    let ping = |from| Input::Message {
        from,
        epoch: Epoch(0),
        message: Message::Ping(Ping { stamp: 1 }),
    };
    turn(&mut role, Some(ping(Entity::Osd(OsdId(1)))));
    turn(&mut role, Some(ping(Entity::Client(ClientId(1)))));
    assert_eq!(role.service().turns, [(0, 2), (0, 0), (1, 0)]);
    assert_eq!(
        role.epoch(),
        Epoch(7),
        "its peers hear of the map that its objects rest on"
    );
}

/// Nothing else would cause a turn.
pub fn what_ends_as_it_is_begun_beside_has_a_turn_of_its_own() {
    let (mut role, fake) = placed(Noting {
        submits: true,
        ..Noting::default()
    });
    fake.world().at_once = true;
    turn(&mut role, None);
    assert_eq!(role.next_deadline(), Time::ZERO);
    turn(&mut role, Some(Input::Tick));
    assert_eq!(role.next_deadline(), Time(100));
    assert_eq!(role.service().turns, [(0, 0), (1, 1)]);
}

/// The engine continues as the instance that the service names, once; operations in flight are
/// reported.
pub fn an_engine_goes_on_as_a_later_instance() {
    let (mut role, fake) = placed(Noting {
        instance: Some(Instance(2)),
        ..Noting::default()
    });
    fake.world().instance = Instance(1);
    turn(&mut role, None);
    assert_eq!(
        (role.instance(), role.next_deadline()),
        (Instance(2), Time::ZERO)
    );
    turn(&mut role, None);
    assert_eq!(role.next_deadline(), Time(100), "once");
    assert_eq!(role.service().turns, [(0, 0), (0, 1)]);
}
