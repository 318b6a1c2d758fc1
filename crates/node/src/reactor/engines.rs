//! Tests: a service with an external engine: no monitors, and threads that wake the reactor.

use super::{NodeParts, Reactor};
use crate::any_role::AnyRole;
use crate::clock;
use crate::wake::Waker;
use nacre_client::{
    Beside, Capabilities, Completion, Engine, Failure, MetaDone, MetaId, MetaWatchId, Metadata,
    ObjectCluster, OpId, Operation, Placed, Refused, Service, Wake, WatchNews,
};
use nacre_role::{Input, Output};
use nacre_types::{ClientId, ClusterId, Entity, Epoch, Instance, Time};
use nacre_wire::msg::meta::{MetaCall, MetaSpan};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Objects whose operations end when a thread says so.
#[derive(Clone)]
struct Fake {
    said: Arc<AtomicU64>,
    taken: Arc<AtomicU64>,
    done: Arc<Mutex<Vec<Completion>>>,
}
impl ObjectCluster for Fake {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }
    fn submit(&mut self, _: Time, _: Operation) -> Result<OpId, Refused> {
        Err(Refused::NotConnected)
    }
    fn completions(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.done.lock().expect("no panic"));
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
        self.0.said.load(Ordering::SeqCst) > self.0.taken.load(Ordering::SeqCst)
    }
    fn listen(&mut self) {
        let said = self.0.said.load(Ordering::SeqCst);
        for id in self.0.taken.swap(said, Ordering::SeqCst)..said {
            let ended = Completion {
                id: OpId(id),
                result: Err(Failure::Unknown),
            };
            self.0.done.lock().expect("no panic").push(ended);
        }
    }
    fn parts(&mut self) -> (&mut dyn ObjectCluster, &mut dyn Metadata) {
        (&mut self.0, &mut self.1)
    }
    fn ended(&self) -> u64 {
        self.0.taken.load(Ordering::SeqCst)
    }
    fn instance(&self) -> Instance {
        Instance(1)
    }
    fn begin_again(&mut self, _: Instance) {}
    fn epoch(&self) -> Epoch {
        Epoch::NONE
    }
    fn said(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// Counts completions, and needs no turn of its own.
struct Counting(Arc<AtomicU64>);
impl Service for Counting {
    fn on_turn(
        &mut self,
        _: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        objects: &mut dyn ObjectCluster,
        _: &mut dyn Metadata,
        _: &mut Vec<Output>,
    ) {
        for input in inputs {
            assert!(
                matches!(input, Input::Tick),
                "{input:?}: there are no monitors"
            );
        }
        let mut ended = Vec::new();
        objects.completions(&mut ended);
        self.0.fetch_add(ended.len() as u64, Ordering::SeqCst);
    }
    fn next_deadline(&self) -> Time {
        Time::MAX
    }
}

/// Without monitors nothing is dialed, and only the engine's threads wake a service that waits for
/// them.
#[test]
fn an_engines_threads_wake_a_reactor_that_sleeps() {
    let waker = Arc::new(Waker::new().expect("an event counter"));
    let wake: Wake = waker.on_other_threads();
    let mut reactor =
        Reactor::new(ClusterId(1), BTreeMap::new(), waker, 0).expect("an event queue");
    let fake = Fake {
        said: Arc::default(),
        taken: Arc::default(),
        done: Arc::default(),
    };
    let counted = Arc::new(AtomicU64::new(0));
    let service: Box<dyn Service + Send> = Box::new(Counting(counted.clone()));
    let engine = Box::new(FakeEngine(fake.clone(), fake.clone()));
    let role = AnyRole::Service(Box::new(Placed::Other(Beside::new(service, engine))));
    let entity = Entity::Client(ClientId(7));
    let parts = NodeParts {
        entity,
        role,
        begun: Vec::new(),
        name: "anna".into(),
        store: None,
        listener: None,
    };
    reactor.add(parts).expect("no device, no thread");
    let said = fake.said;
    let speaks = std::thread::spawn(move || {
        for _ in 0..100 {
            said.fetch_add(1, Ordering::SeqCst);
            wake();
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let begun = clock::now();
    while counted.load(Ordering::SeqCst) < 100 {
        reactor.turn(Duration::from_secs(60));
        assert!(
            clock::now().since(begun) < Duration::from_secs(30),
            "it sleeps though something was said"
        );
    }
    speaks.join().expect("no panic");
    // An idle reactor does not spin: only its housekeeping wakes it.
    let before = reactor.turns();
    let begun = clock::now();
    while clock::now().since(begun) < Duration::from_millis(600) {
        reactor.turn(Duration::from_millis(200));
    }
    assert!(
        reactor.turns() - before < 20,
        "{} turns",
        reactor.turns() - before
    );
    assert!(reactor.take_said().is_empty() && reactor.halted().is_empty());
}
