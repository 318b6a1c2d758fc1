//! Operations in flight on a Ceph cluster.
//!
//! Operations of several stages (`plan`) delay later ones on the same object, so that all take
//! effect in the order of submission; for single-stage ones librados and the OSDs keep the order.

mod calls;
mod fencing;
mod locks;
mod looking;
mod rooms;
mod watching;

use crate::compound::{Found, Out, ReadOp, WriteOp};
use crate::context::{Context, Contexts, Scope};
use crate::error::{self, RadosError, failure};
use crate::ffi;
use crate::flight::{Completion as Ending, Flight};
use crate::general::version;
use crate::handle::Rados;
use crate::keys;
use crate::listing::{self, Cursors, Page};
use crate::plan::{Step, Way, way};
use crate::programs::classes::{Active, Classes, Installed};
use crate::queue::Queue;
use crate::watch::{Heard, Watch};
use crate::worker::Workers;
use bytes::Bytes;
use nacre_client::{
    Capabilities, Completion, Done, Driven, Failure, ObjectCluster, OpId, Operation, Refused, Room,
    Wake, WatchError, WatchEvent, WatchId,
};
use nacre_object::Source;
use nacre_types::{ClientId, Epoch, Instance, ObjectId, PoolId, Time, Version};
use nacre_wire::Payload;
use nacre_wire::msg::check::check_operation;
use nacre_wire::msg::client::{OpFailure, RequestId, SubOp, SubReply, op_flag};
use nacre_wire::msg::payload_len;
use nacre_wire::msg::watch::Watcher;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{CStr, CString, c_int};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most operations in flight.
const OPS_MAX: usize = 1024;
/// Most bytes in flight: librados copies the data.
const BYTES_MAX: u64 = 256 << 20;
/// Limit of attempts on an object that keeps changing between reading and writing.
const ATTEMPTS_MAX: u32 = 100;

/// An event from librados' threads and our workers.
enum Event {
    /// An operation has ended.
    Ended(u64),
    /// A page of a listing.
    Page(u64, Result<Page, RadosError>),
    /// The installed classes.
    Classes(Result<Arc<Active>, Failure>),
    /// The watchers of an object.
    Watchers(u64, Result<Vec<Watcher>, RadosError>),
    /// An event of a watch.
    Watch(WatchId, Heard),
    /// A fence is in force since this map, or failed.
    Fenced(u64, Result<u64, Failure>),
    /// This client has this map, or a newer one.
    Maps(Option<u64>),
    /// The remaining space of each pool, if the monitors report it.
    Rooms(Option<BTreeMap<PoolId, u64>>),
}

/// The stage of an operation in flight.
enum Stage {
    /// The whole operation, which reads data.
    Data,
    /// The whole operation, which writes; the indexes of parts that are calls.
    Write(Vec<usize>),
    /// Reading what it depends on.
    Looking(looking::Looking),
    /// Writing the result, guarded.
    Guarded(looking::Guarded),
    /// A call; whether the output of a writing call was requested.
    Call { returning: bool },
    /// Querying locks.
    Asking(locks::Asking),
    /// Registering a watch.
    Registering(WatchId),
    /// Notifying watchers.
    Notifying,
    /// An operation without a result.
    Plain,
    /// At a worker.
    Waiting,
}

/// Operations that wait for an operation of several stages on the same object.
struct Held {
    by: u64,
    waiting: VecDeque<u64>,
}

struct Running {
    operation: Operation,
    bytes: u64,
    attempts: u32,
    stage: Stage,
    flight: Option<Flight>,
    /// No caller waits for it: its end is not reported.
    abandoned: bool,
    /// Whether locks for which both modes are acceptable are tried as shared ones.
    shared: bool,
    /// The source of a copy, once it is read.
    source: Option<Arc<Source>>,
    /// Parts that call installed classes; `None` while that is not known.
    installed: Option<BTreeMap<usize, Installed>>,
}

/// See the module head.
pub struct Ceph {
    rados: Rados,
    contexts: Contexts,
    queue: Arc<Queue<Event>>,
    running: BTreeMap<u64, Running>,
    bytes: u64,
    next: u64,
    held: BTreeMap<(PoolId, ObjectId), Held>,
    classes: Classes,
    cursors: Cursors,
    workers: Workers,
    done: Vec<Completion>,
    events: Vec<Event>,
    begun: Instant,
    watches: BTreeMap<WatchId, Watch>,
    watch_heard: Vec<WatchEvent>,
    /// Notifies that wait for an acknowledgement.
    pending: BTreeSet<(WatchId, RequestId)>,
    maps: fencing::Maps,
    rooms: rooms::Asked,
    /// This client's identity, once it was requested.
    identity: Option<fencing::Identity>,
    /// Whether keys may have zero bytes in them ([`keys`]).
    private: bool,
    /// Number of operations that have ended so far, for hosts that ask whether there are more.
    ended: u64,
}

impl Running {
    fn is_write(&self) -> bool {
        self.operation.ops.iter().any(SubOp::is_write)
    }
}

impl Drop for Ceph {
    fn drop(&mut self) {
        self.leave();
        // librados may still write to the outputs of these operations; it is told to stop, and the
        // outputs are leaked.
        for (_, running) in std::mem::take(&mut self.running) {
            if let Some(flight) = running.flight {
                flight.completion.cancel(&flight.context);
                flight.leak();
            }
        }
        for (_, watch) in std::mem::take(&mut self.watches) {
            // A registration in flight may still write its handle.
            std::mem::forget(watch.handle);
        }
    }
}

/// A C string for librados.
fn name(bytes: &[u8], what: &str) -> Result<CString, OpFailure> {
    CString::new(bytes).map_err(|_| crate::plan::zero_byte(what))
}

impl Ceph {
    /// Uses a connection.
    #[must_use]
    pub fn new(rados: Rados) -> Self {
        Self {
            contexts: Contexts::new(rados.clone()),
            rados,
            queue: Arc::new(Queue::new()),
            running: BTreeMap::new(),
            bytes: 0,
            next: 1,
            held: BTreeMap::new(),
            classes: Classes::default(),
            cursors: Cursors::default(),
            workers: Workers::default(),
            done: Vec::new(),
            events: Vec::new(),
            begun: Instant::now(),
            watches: BTreeMap::new(),
            watch_heard: Vec::new(),
            pending: BTreeSet::new(),
            maps: fencing::Maps::default(),
            rooms: rooms::Asked::default(),
            identity: None,
            private: false,
            ended: 0,
        }
    }

    /// With a host that is woken, on librados' threads, when there is an event.
    #[must_use]
    pub fn waking(self, wake: Wake) -> Self {
        self.queue.wake_with(wake);
        self
    }
    /// For objects used only by Nacre's services: keys of their omaps may have zero bytes in them.
    #[must_use]
    pub fn private(mut self) -> Self {
        self.private = true;
        self
    }
    /// Numbers operations from here on.
    #[must_use]
    pub fn numbered_from(mut self, next: u64) -> Self {
        self.next = next;
        self
    }
    /// The number of the next operation.
    #[must_use]
    pub const fn next_number(&self) -> u64 {
        self.next
    }
    /// Number of operations that have ended so far.
    #[must_use]
    pub const fn ended(&self) -> u64 {
        self.ended
    }
    /// Whether nothing is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }
    /// Abandons everything in flight: it may have been executed, or may be executed later.
    /// Operations that have ended come first.
    pub fn end_all(&mut self, into: &mut Vec<Completion>) {
        ObjectCluster::completions(self, into);
        let under_way = self.running.keys().map(|id| Completion {
            id: OpId(*id),
            result: Err(Failure::Unknown),
        });
        into.extend(under_way);
    }

    /// The connection.
    #[must_use]
    pub const fn rados(&self) -> &Rados {
        &self.rados
    }

    /// Waits at most `max` for an operation to end; [`ObjectCluster::completions`] then returns it.
    pub fn turn(&mut self, max: Duration) {
        let max = if self.done.is_empty() {
            max
        } else {
            Duration::ZERO
        };
        let mut events = std::mem::take(&mut self.events);
        self.queue.take(max, &mut events);
        for event in events.drain(..) {
            self.heard(event);
        }
        self.events = events;
        self.classes_overdue();
    }

    /// Abandons an operation: it soon completes as [`Failure::Unknown`], and may still be executed.
    pub fn abandon(&mut self, id: OpId) {
        if let Some(running) = self.running.get_mut(&id.0) {
            if let Some(flight) = &running.flight {
                running.abandoned = true;
                flight.completion.cancel(&flight.context);
            } else {
                self.end(id.0, Err(Failure::Unknown));
            }
        }
    }

    /// Accepts an operation, if there is room.
    fn admit(&mut self, operation: Operation) -> Result<u64, Refused> {
        let bytes = payload_len(&operation.payload) as u64;
        if !self.has_room(bytes) {
            return Err(Refused::Busy);
        }
        let id = self.next;
        self.next += 1;
        self.bytes += bytes;
        let running = Running {
            operation,
            bytes,
            attempts: 0,
            stage: Stage::Waiting,
            flight: None,
            abandoned: false,
            shared: false,
            source: None,
            installed: None,
        };
        self.running.insert(id, running);
        Ok(id)
    }

    /// Sends an operation's first stage.
    fn start(&mut self, id: u64) {
        if let Err(failed) = self.try_start(id) {
            self.end(id, Err(failed));
        }
    }

    fn try_start(&mut self, id: u64) -> Result<(), Failure> {
        if !self.calls_are_known(id)? {
            return Ok(());
        }
        let Running {
            operation, shared, ..
        } = &self.running[&id];
        match way(&operation.ops, &operation.payload, *shared).map_err(Failure::Refused)? {
            Way::Data(offset, length) => {
                let mut op = ReadOp::new(self.rados.functions());
                op.read(offset, usize::try_from(length).expect("bounded"));
                self.send_read(id, op, Stage::Data, 0)
            }
            Way::General => {
                // Reads with one round trip keep their order by themselves.
                if self.running[&id].is_write() {
                    self.hold(id);
                }
                self.look(id).map_or(Ok(()), |next| next.map(drop))
            }
            Way::Write(steps) => self.send_write(id, &steps, Stage::Write(calls_of(&steps))),
            Way::Call(class, method, input) => {
                let returning = self.running[&id].returning();
                self.send_call(id, &class, &method, &input, returning)
            }
            Way::List(after, limit) => self.list(id, &after, limit),
            Way::Notify(timeout_ms, data) => self.notify(id, timeout_ms, &data),
            Way::Locks => self
                .ask(id, &[], locks::Asking::Names)
                .map_or(Ok(()), |next| next.map(drop)),
            Way::Break(name, owner) => {
                let names = [Bytes::copy_from_slice(name.as_bytes())];
                self.ask(id, &names, locks::Asking::ToBreak(name, owner))
                    .map_or(Ok(()), |next| next.map(drop))
            }
            Way::Watchers => self.list_watchers(id),
        }
    }

    /// Later operations on the object wait until this one has ended.
    fn hold(&mut self, id: u64) {
        let Operation { pool, object, .. } = &self.running[&id].operation;
        self.held
            .entry((*pool, object.clone()))
            .or_insert_with(|| Held {
                by: id,
                waiting: VecDeque::new(),
            });
    }

    fn place(&mut self, id: u64) -> Result<(Arc<Context>, CString), Failure> {
        let Operation {
            pool,
            object,
            snaps,
            ..
        } = &self.running[&id].operation;
        if object.name.is_empty() {
            return Err(Failure::Refused(OpFailure::Invalid {
                why: "an object's name is not empty on a Ceph cluster".to_owned(),
            }));
        }
        let object_name =
            name(object.name.as_bytes(), "the object's name").map_err(Failure::Refused)?;
        let context = self
            .contexts
            .get(Scope::of(*pool, object, snaps))
            .map_err(|error| match error.code {
                error::ENOENT => Failure::NoSuchPool,
                code => Failure::Foreign {
                    code,
                    why: error.why,
                },
            })?;
        Ok((context, object_name))
    }

    fn send_read(
        &mut self,
        id: u64,
        op: ReadOp,
        stage: Stage,
        flags: c_int,
    ) -> Result<(), Failure> {
        let (context, object) = self.place(id)?;
        self.send(id, context, stage, |context, completion| {
            op.send(context, completion, &object, flags)
        })
    }

    fn send_write(&mut self, id: u64, steps: &[Step], stage: Stage) -> Result<(), Failure> {
        let (context, object) = self.place(id)?;
        let mut op = WriteOp::new(self.rados.functions());
        for step in steps {
            step_into(&mut op, step).map_err(Failure::Refused)?;
        }
        let full_ok = self.running[&id].operation.flags & op_flag::FULL_OK != 0;
        let flags = if full_ok {
            ffi::LIBRADOS_OPERATION_FULL_TRY
        } else {
            0
        };
        self.send(id, context, stage, |context, completion| {
            op.send(context, completion, &object, flags)
        })
    }

    fn send_call(
        &mut self,
        id: u64,
        class: &nacre_types::Name,
        method: &nacre_types::Name,
        input: &[u8],
        returning: bool,
    ) -> Result<(), Failure> {
        let class = name(class.as_bytes(), "the class").map_err(Failure::Refused)?;
        let method = name(method.as_bytes(), "the method").map_err(Failure::Refused)?;
        let mut op = ReadOp::new(self.rados.functions());
        op.call(&class, &method, input);
        let flags = if returning {
            ffi::LIBRADOS_OPERATION_RETURNVEC
        } else {
            0
        };
        self.send_read(id, op, Stage::Call { returning }, flags)
    }

    fn send(
        &mut self,
        id: u64,
        context: Arc<Context>,
        stage: Stage,
        send: impl FnOnce(&Context, ffi::rados_completion_t) -> Result<Vec<Out>, c_int>,
    ) -> Result<(), Failure> {
        let unsent = Ending::telling(self.rados.functions(), &self.queue, Event::Ended(id));
        match send(&context, unsent.raw()) {
            Ok(outs) => {
                let flight = Flight {
                    completion: unsent.sent(),
                    outs,
                    context,
                };
                let running = self.running.get_mut(&id).expect("it is being sent");
                (running.stage, running.flight) = (stage, Some(flight));
                Ok(())
            }
            Err(result) => {
                unsent.unsent();
                Err(failure(result))
            }
        }
    }

    fn list(&mut self, id: u64, after: &[u8], limit: u32) -> Result<(), Failure> {
        let invalid = |why: &str| {
            Failure::Refused(OpFailure::Invalid {
                why: why.to_owned(),
            })
        };
        let operation = &self.running[&id].operation;
        let group = operation.group.filter(|group| *group < listing::GROUPS);
        let group = group.ok_or_else(|| invalid("the pool's listing has no such part"))?;
        let from = match after {
            [] => None,
            name => Some(
                self.cursors
                    .get(name)
                    .ok_or_else(|| invalid("this listing was given up; begin it anew"))?,
            ),
        };
        let context =
            Context::everywhere(&self.rados, operation.pool).map_err(|error| match error.code {
                error::ENOENT => Failure::NoSuchPool,
                code => Failure::Foreign {
                    code,
                    why: error.why,
                },
            })?;
        let (context, queue) = (Arc::new(context), self.queue.clone());
        self.running
            .get_mut(&id)
            .expect("it is being started")
            .stage = Stage::Waiting;
        self.workers.run(Box::new(move || {
            queue.push(Event::Page(
                id,
                listing::page(&context, group, from.as_deref(), limit),
            ));
        }));
        Ok(())
    }

    fn heard(&mut self, event: Event) {
        match event {
            Event::Ended(id) => self.stage_ended(id),
            Event::Page(id, Ok(page)) => {
                let next = page.next.map(|cursor| self.cursors.keep(cursor));
                let results = vec![SubReply::Objects {
                    objects: page.objects,
                    next,
                }];
                self.end(
                    id,
                    Ok(Done {
                        version: Version::default(),
                        results,
                        payload: Payload::new(),
                    }),
                );
            }
            Event::Classes(read) => self.classes_read(&read),
            Event::Watchers(id, Ok(watchers)) => {
                let results = vec![SubReply::Watchers { watchers }];
                self.end(
                    id,
                    Ok(Done {
                        version: Version::default(),
                        results,
                        payload: Payload::new(),
                    }),
                );
            }
            Event::Page(id, Err(error)) | Event::Watchers(id, Err(error)) => {
                let failed = match failure(-error.code) {
                    Failure::Foreign { code, .. } => Failure::Foreign {
                        code,
                        why: error.why,
                    },
                    other => other,
                };
                self.end(id, Err(failed));
            }
            Event::Watch(watch, heard) => self.heard_of(watch, heard),
            Event::Fenced(id, result) => self.fenced(id, result),
            Event::Maps(has) => self.maps_came(has),
            Event::Rooms(said) => self.rooms_said(said),
        }
    }

    /// A stage of an operation has ended.
    fn stage_ended(&mut self, id: u64) {
        let Some(running) = self.running.get_mut(&id) else {
            return;
        };
        let flight = running.flight.take().expect("what has ended was in flight");
        let (result, number) = flight.completion.result();
        let outs = flight.outs;
        if running.abandoned {
            self.end(id, Err(Failure::Unknown));
            return;
        }
        let next = match std::mem::replace(&mut running.stage, Stage::Waiting) {
            Stage::Data if result < 0 => Some(Err(failure(result))),
            Stage::Data => match outs.into_iter().next().map(Out::found) {
                Some(Ok(Found::Data(data))) => {
                    let results = vec![SubReply::Data {
                        length: data.len() as u64,
                    }];
                    let payload = if data.is_empty() {
                        Payload::new()
                    } else {
                        vec![data]
                    };
                    Some(Ok(Done {
                        version: version(number),
                        results,
                        payload,
                    }))
                }
                Some(Err(result)) => Some(Err(failure(result))),
                other => unreachable!("data was read as {other:?}"),
            },
            Stage::Write(calls) if result >= 0 => {
                let mut results = vec![SubReply::Done {}; running.operation.ops.len()];
                for (out, index) in outs.into_iter().zip(calls) {
                    results[index] = Self::reply_of(&running.operation.ops[index], out, number);
                }
                Some(Ok(Done {
                    version: version(number),
                    results,
                    payload: Payload::new(),
                }))
            }
            Stage::Write(calls) => match failed_call(&outs, &calls) {
                Some(index) => self.call_failed(id, index, result),
                None => self.why_refused(id, result),
            },
            Stage::Looking(looking) => self.looked(id, looking, result, number, outs),
            Stage::Guarded(guarded) => self.written(id, guarded, result, number, outs),
            Stage::Asking(asking) => self.asked(id, asking, result, number, outs),
            Stage::Registering(watch) => self.registered(watch, result, number),
            Stage::Notifying => self.notified(result, number, outs),
            Stage::Plain if result < 0 => Some(Err(failure(result))),
            Stage::Plain => Some(Ok(Done {
                version: version(number),
                results: vec![SubReply::Done {}],
                payload: Payload::new(),
            })),
            Stage::Call { returning } => self.called(id, result, number, outs, returning),
            Stage::Waiting => unreachable!("nothing was in flight"),
        };
        if let Some(result) = next {
            self.end(id, result);
        }
    }

    /// A write that was sent directly did not succeed. If there may be several reasons, the object
    /// is read.
    fn why_refused(&mut self, id: u64, result: i32) -> Option<Result<Done, Failure>> {
        let operation = &self.running[&id].operation;
        let guarded = matches!(
            -result,
            error::ENOENT
                | error::EEXIST
                | error::ECANCELED
                | error::ERANGE
                | error::EOVERFLOW
                | error::ENODATA
        );
        if !guarded || operation.ops.len() == 1 {
            return Some(Err(failure(result)));
        }
        self.hold(id);
        self.look(id)
    }

    /// Completes an operation; those that waited for it continue.
    fn end(&mut self, id: u64, mut result: Result<Done, Failure>) {
        let Some(running) = self.running.remove(&id) else {
            return;
        };
        self.bytes -= running.bytes;
        if let Ok(done) = &mut result {
            running.tell_activations(done);
            if self.private {
                keys::restore(&mut done.results);
            }
        }
        self.done.push(Completion {
            id: OpId(id),
            result,
        });
        self.ended += 1;
        if self.held.is_empty() {
            return;
        }
        let Operation { pool, object, .. } = running.operation;
        let key = (pool, object);
        if self.held.get(&key).is_none_or(|held| held.by != id) {
            return;
        }
        // Single-stage operations are sent at once, up to the next one of several stages, which
        // delays the rest.
        let mut waiting = self
            .held
            .remove(&key)
            .map(|held| held.waiting)
            .unwrap_or_default();
        while let Some(next) = waiting.pop_front() {
            if self.running.contains_key(&next) {
                self.start(next);
            }
            if let Some(held) = self.held.get_mut(&key) {
                held.waiting.append(&mut waiting);
            }
        }
    }
}

/// The parts that are calls.
fn calls_of(steps: &[Step]) -> Vec<usize> {
    steps
        .iter()
        .filter_map(|step| {
            if let Step::Call(index, ..) = step {
                Some(*index)
            } else {
                None
            }
        })
        .collect()
}

/// The first failed call, if the OSDs report it.
fn failed_call(outs: &[Out], calls: &[usize]) -> Option<usize> {
    let failed = outs.iter().position(|out| out.failed().is_some());
    // If the operation has a single call, the failure is the call's own, unless it comes from a
    // guard of ours.
    failed.and_then(|at| calls.get(at)).copied()
}

fn step_into(op: &mut WriteOp, step: &Step) -> Result<(), OpFailure> {
    let attr = |text: &nacre_types::Name| name(text.as_bytes(), "the attribute's name");
    match step {
        Step::AssertExists => op.assert_exists(),
        Step::AssertVersion(version) => op.assert_version(*version),
        Step::CompareAttr(name, value) => op.compare_attr(&attr(name)?, value),
        Step::Create(exclusive) => op.create(*exclusive),
        Step::Write(offset, data) => op.write(*offset, data),
        Step::WriteFull(data) => op.write_full(data),
        Step::Append(data) => op.append(data),
        Step::Zero(offset, length) => op.zero(*offset, *length),
        Step::Truncate(size) => op.truncate(*size),
        Step::Remove => op.remove(),
        Step::SetAttr(name, value) => op.set_attr(&attr(name)?, value),
        Step::RemoveAttr(name) => op.remove_attr(&attr(name)?),
        Step::OmapSet(entries) => op.omap_set(entries),
        Step::OmapRemove(keys) => op.omap_remove(keys),
        Step::OmapClear => op.omap_clear(),
        Step::Call(_, class, method, input) => {
            let (class, method): (CString, CString) = (
                name(class.as_bytes(), "the class")?,
                name(method.as_bytes(), "the method")?,
            );
            let (class, method): (&CStr, &CStr) = (&class, &method);
            op.call(class, method, input);
        }
    }
    Ok(())
}

impl ObjectCluster for Ceph {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ack: false,
            watch: true,
            exec: true,
            exec_reads_own_writes: false,
            exec_writes_return: false,
            fence: self.rados.knows_addresses(),
            list_snaps: false,
            zero_bytes: false,
        }
    }

    fn has_room(&self, bytes: u64) -> bool {
        let many = self.running.len() >= OPS_MAX || self.bytes + bytes > BYTES_MAX;
        !many || self.running.is_empty()
    }

    fn submit(&mut self, _: Time, mut operation: Operation) -> Result<OpId, Refused> {
        if self.awaits_map() {
            return Err(Refused::NotConnected);
        }
        let waits = (!self.held.is_empty()).then(|| (operation.pool, operation.object.clone()));
        let valid = check_operation(&operation.ops, &operation.payload);
        if self.private {
            keys::store(&mut operation.ops);
        }
        let id = self.admit(operation)?;
        let waits = waits
            .and_then(|key| self.held.get_mut(&key))
            .map(|held| held.waiting.push_back(id))
            .is_some();
        match valid {
            Err(failed) => self.end(id, Err(Failure::Refused(failed))),
            Ok(()) if waits => {}
            Ok(()) => self.start(id),
        }
        Ok(OpId(id))
    }

    fn completions(&mut self, into: &mut Vec<Completion>) {
        self.turn(Duration::ZERO);
        into.append(&mut self.done);
    }

    fn fence(&mut self, _: Time, client: ClientId, instance: Instance) -> Result<OpId, Refused> {
        self.begin_fence(client, instance)
    }
    fn rest_on(&mut self, epoch: Epoch) {
        self.begin_to_rest_on(epoch);
    }
    fn room(&mut self, now: Time, pool: PoolId) -> Room {
        self.look_at_room(now, pool)
    }

    fn watch(
        &mut self,
        _: Time,
        pool: PoolId,
        object: ObjectId,
        timeout: Duration,
    ) -> Result<WatchId, Refused> {
        self.begin_watch(pool, object, timeout)
    }
    fn unwatch(&mut self, _: Time, watch: WatchId) -> Result<Option<OpId>, Refused> {
        self.pending.retain(|(of, _)| *of != watch);
        self.end_watch(watch)
    }
    fn watch_events(&mut self, into: &mut Vec<WatchEvent>) {
        into.append(&mut self.watch_heard);
    }
    fn ack_notify(
        &mut self,
        _: Time,
        watch: WatchId,
        notify: RequestId,
        reply: Bytes,
    ) -> Result<(), WatchError> {
        self.acknowledge(watch, notify, &reply)
    }
    fn watch_confirmed(&self, watch: WatchId) -> Option<Time> {
        self.confirmed(watch)
    }
}

impl Driven for Ceph {
    fn objects(&mut self) -> &mut dyn ObjectCluster {
        self
    }
    fn now(&self) -> Time {
        Time::ZERO + self.begun.elapsed()
    }
    fn identity(&mut self) -> Option<(ClientId, Instance)> {
        self.identify()
    }
    fn turn(&mut self, max: Duration) {
        Self::turn(self, max);
    }
    fn completions(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.done);
    }
    fn watch_events(&mut self, into: &mut Vec<WatchEvent>) {
        ObjectCluster::watch_events(self, into);
    }
    fn abandon(&mut self, id: OpId) {
        Self::abandon(self, id);
    }
    fn groups(&mut self, pool: PoolId) -> Option<u32> {
        Context::plain(&self.rados, pool)
            .ok()
            .map(|_| listing::GROUPS)
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
