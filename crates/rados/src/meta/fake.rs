//! One in-memory object, its watchers, and other clients' actions: the world of the store's tests.
//! Only waiting advances its clock.

use super::place::Locate;
use super::store::MetaStore;
use crate::error::RadosError;
use bytes::Bytes;
use nacre_client::{
    Capabilities, Completion, Done, Driven, Failure, ObjectCluster, OpId, Operation, Refused,
    WatchError, WatchEvent, WatchId,
};
use nacre_object::memory::Object;
use nacre_types::{ClientId, Instance, ObjectId, PoolId, Time, Version};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, OpRequest, RequestId, SubOp, SubReply};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

pub type Meanwhile = Box<dyn FnOnce(&Shared)>;

/// The object, and the cluster's other events.
#[derive(Default)]
pub struct World {
    pub object: Option<Object>,
    pub made: bool,
    pub now: Time,
    /// Other actions before the operation with this number, counted over all clients.
    pub meanwhile: BTreeMap<u64, Meanwhile>,
    pub operations: u64,
    /// The next operations are not answered; whether they are executed anyway.
    pub silent: VecDeque<bool>,
    /// Most entries per page.
    pub page: u32,
    /// Actions while clients wait.
    pub later: BTreeMap<Time, Meanwhile>,
    /// Whether objects can be watched.
    pub watchable: bool,
    /// Whether each watcher still exists, and its pending events.
    pub watchers: BTreeMap<WatchId, (bool, VecDeque<WatchEvent>)>,
    pub notified: u64,
    /// A watcher acknowledges nothing: notifies do not end.
    pub hold: bool,
}
pub type Shared = Rc<RefCell<World>>;

pub struct Fake {
    world: Shared,
    next: u64,
    done: Vec<Completion>,
    watch: Option<WatchId>,
    held: Vec<Completion>,
}

fn apply(world: &mut World, mut ops: Vec<SubOp>) -> Result<Done, OpFailure> {
    for op in &mut ops {
        if let SubOp::OmapList { limit, .. } = op {
            *limit = world.page.min(*limit);
        }
    }
    if let [SubOp::Notify { .. }] = ops[..] {
        ops = vec![SubOp::Stat {}];
    }
    let request = OpRequest {
        ops,
        ..OpRequest::default()
    };
    let (version, results, payload) =
        Object::perform(&mut world.object, &request, &Payload::new(), false, None)?;
    Ok(Done {
        version,
        results,
        payload,
    })
}

impl ObjectCluster for Fake {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            watch: self.world.borrow().watchable,
            ..Capabilities::default()
        }
    }
    fn watch(&mut self, _: Time, _: PoolId, _: ObjectId, _: Duration) -> Result<WatchId, Refused> {
        self.next += 1;
        let mut world = self.world.borrow_mut();
        let watch = WatchId(1_000 * world.watchers.len() as u64 + self.next);
        let there = world.object.is_some();
        if there {
            world.watchers.insert(watch, (true, VecDeque::new()));
            self.watch = Some(watch);
        }
        let done = Done {
            version: Version::default(),
            results: vec![SubReply::Done {}],
            payload: Payload::new(),
        };
        let result = there
            .then_some(done)
            .ok_or(Failure::Refused(OpFailure::NotFound {}));
        self.done.push(Completion {
            id: OpId(watch.0),
            result,
        });
        Ok(watch)
    }
    fn ack_notify(
        &mut self,
        _: Time,
        watch: WatchId,
        _: RequestId,
        _: Bytes,
    ) -> Result<(), WatchError> {
        assert_eq!(
            Some(watch),
            self.watch,
            "it is acknowledged by whom it was told"
        );
        Ok(())
    }
    fn submit(&mut self, _: Time, operation: Operation) -> Result<OpId, Refused> {
        let number = self.world.borrow().operations;
        let meanwhile = self.world.borrow_mut().meanwhile.remove(&number);
        self.world.borrow_mut().operations += 1;
        if let Some(meanwhile) = meanwhile {
            meanwhile(&self.world);
        }
        let mut world = self.world.borrow_mut();
        if let [SubOp::Notify { .. }] = operation.ops[..] {
            world.notified += 1;
            let notify = RequestId {
                client: ClientId(1),
                instance: Instance(1),
                sequence: world.notified,
            };
            for (watch, (_, events)) in world.watchers.iter_mut().filter(|(_, (there, _))| *there) {
                events.push_back(WatchEvent::Notify {
                    watch: *watch,
                    notify,
                    payload: Payload::new(),
                });
            }
        }
        let silent = world.silent.pop_front();
        let result = match silent {
            Some(false) => Err(Failure::Unknown),
            Some(true) => apply(&mut world, operation.ops.clone())
                .map_err(Failure::Refused)
                .and(Err(Failure::Unknown)),
            None => apply(&mut world, operation.ops.clone()).map_err(Failure::Refused),
        };
        self.next += 1;
        let held = world.hold && matches!(operation.ops[..], [SubOp::Notify { .. }]);
        let ended = if held { &mut self.held } else { &mut self.done };
        ended.push(Completion {
            id: OpId(self.next),
            result,
        });
        Ok(OpId(self.next))
    }
    fn completions(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.done);
    }
}
impl Fake {
    fn hears(&self) -> bool {
        let world = self.world.borrow();
        self.watch
            .and_then(|watch| world.watchers.get(&watch))
            .is_some_and(|(_, events)| !events.is_empty())
    }
}
impl Driven for Fake {
    fn objects(&mut self) -> &mut dyn ObjectCluster {
        self
    }
    fn now(&self) -> Time {
        self.world.borrow().now
    }
    fn turn(&mut self, max: Duration) {
        if !self.world.borrow().hold {
            self.done.append(&mut self.held);
        }
        // An operation takes a millisecond; otherwise waiting takes the whole time, or until
        // something happens.
        let waits = self.done.is_empty() && !self.hears();
        let until = self.now() + if waits { max } else { Duration::from_millis(1) };
        while !self.hears() {
            let due = self
                .world
                .borrow()
                .later
                .first_key_value()
                .map(|(at, _)| *at)
                .filter(|at| *at <= until);
            let Some(at) = due else { break };
            let happens = self
                .world
                .borrow_mut()
                .later
                .remove(&at)
                .expect("just seen");
            self.world.borrow_mut().now = at;
            happens(&self.world);
            if waits && self.hears() {
                return;
            }
        }
        self.world.borrow_mut().now = until;
    }
    fn completions(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.done);
    }
    fn watch_events(&mut self, into: &mut Vec<WatchEvent>) {
        let mut world = self.world.borrow_mut();
        let mine = self.watch.and_then(|watch| world.watchers.get_mut(&watch));
        into.extend(mine.into_iter().flat_map(|(_, events)| events.drain(..)));
    }
    fn abandon(&mut self, _: OpId) {}
    fn groups(&mut self, _: PoolId) -> Option<u32> {
        Some(1)
    }
    fn is_connected(&mut self) -> bool {
        true
    }
    fn epoch(&mut self) -> u64 {
        0
    }
    fn stopped(&mut self) -> Option<String> {
        None
    }
}

pub struct Here(pub Shared);
impl Locate for Here {
    fn find(&mut self) -> Result<Option<(PoolId, ObjectId)>, RadosError> {
        Ok(self
            .0
            .borrow()
            .made
            .then(|| (PoolId(1), ObjectId::named("meta"))))
    }
    fn make(&mut self) -> Result<(PoolId, ObjectId), RadosError> {
        self.0.borrow_mut().made = true;
        Ok((PoolId(1), ObjectId::named("meta")))
    }
}

pub type Store = MetaStore<Fake, Here>;

pub fn world() -> Shared {
    Rc::new(RefCell::new(World {
        page: 256,
        ..World::default()
    }))
}

impl Fake {
    /// Creates a client.
    pub fn new(world: &Shared) -> Self {
        Self {
            world: world.clone(),
            next: 0,
            done: Vec::new(),
            watch: None,
            held: Vec::new(),
        }
    }
}
